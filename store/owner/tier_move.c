/* How values move between memory and a disk, and those who wait for one to come up. */
#include "store/owner/lower.h"
#include "store/owner/tier_move_fsm.h"
#include <errno.h>
#include <string.h>

static struct neap_tier_move *move_of(const struct neap_machine *machine)
{
	return (struct neap_tier_move *)(uintptr_t)((const char *)machine - offsetof(struct neap_tier_move, machine));
}

/* --- those who wait ---------------------------------------------------------------------------------------------------------------- */

static void unlink_bring(struct neap_bring *bring)
{
	*bring->slot = bring->next;
	if (bring->next)
		bring->next->slot = bring->slot;
	bring->slot = NULL;
	bring->next = NULL;
	neap_timer_cancel(bring->owner->reactor, &bring->timer);
}

static void late(struct neap_timer *timer, void *user)
{
	struct neap_bring *bring = user;
	(void)timer;
	bring->owner->lower->stats.brings_late++;
	unlink_bring(bring);
	bring->brought(bring, NEAP_STORE_UNAVAILABLE_IN_CURRENT_MODE, NULL);
}

static int wait_for(struct neap_tier_move *move, struct neap_bring *bring)
{
	struct neap_owner *owner = move->owner;
	uint64_t last_ns = neap_now(owner->reactor) + owner->lower->options.bring_ns;
	uint64_t due_ns = bring->deadline_ns && bring->deadline_ns < last_ns ? bring->deadline_ns : last_ns;
	int error = neap_timer_start(owner->reactor, &bring->timer, due_ns, late, bring);
	if (error)
		return NEAP_STORE_NO_AVAILABLE_HANDLE;
	bring->owner = owner;
	bring->slot = &move->waiters;
	bring->next = move->waiters;
	if (bring->next)
		bring->next->slot = &bring->next;
	move->waiters = bring;
	return NEAP_STORE_OK;
}

void neap_owner_bring_forget(struct neap_bring *bring)
{
	if (bring->slot)
		unlink_bring(bring);
}

static void tell(struct neap_tier_move *move, int error, const struct neap_value *value)
{
	if (error && move->owner->closing)
		error = NEAP_STORE_SHUTTING_DOWN;
	while (move->waiters) {
		struct neap_bring *bring = move->waiters;
		unlink_bring(bring);
		bring->brought(bring, error, value);
	}
}

/* --- actions ----------------------------------------------------------------------------------------------------------------------- */

/* The entry that it moved the value of, or NULL; they have nothing to do with one another any more. */
static struct neap_key_entry *detach(struct neap_tier_move *move)
{
	struct neap_key_entry *entry = move->entry;
	move->entry = NULL;
	if (entry)
		entry->moving = NULL;
	return entry;
}

static void finish(struct neap_tier_move *move)
{
	struct neap_owner *owner = move->owner;
	struct neap_lower *lower = owner->lower;
	(void)detach(move);
	tell(move, NEAP_STORE_OBJECT_NOT_FOUND, NULL); /* whoever came to a value that went */
	if (!move->up) {
		lower->down--;
		lower->going_bytes[neap_tiers_index(owner->tiers, move->memory->tier)] -= move->memory->extent.rounded;
		lower->disk_bytes -= move->disk->extent.rounded;
	}
	(void)neap_handle_drop(move->memory);
	(void)neap_handle_drop(move->disk);
	neap_machine_end(&move->machine);
	neap_pool_give(&lower->moves, move);
	neap_lower_again(owner); /* there is room for another, and a close waits for the last */
}

static void do_finish(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	finish(move_of(machine));
}

static void do_keep(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tier_move *move = move_of(machine);
	struct neap_lower *lower = move->owner->lower;
	struct neap_key_entry *entry = detach(move);
	(void)argument;
	if (entry) { /* else it went while this was on its way */
		lower->stats.offloaded++;
		lower->stats.offloaded_bytes += move->disk->extent.size;
		neap_lower_has_copy(move->owner, entry, move->disk);
		(void)neap_handle_hold(move->disk);
		move->disk->entry.marked = false; /* being written is no use */
	}
	finish(move);
}

static void log_once(struct neap_owner *owner, bool *told, const char *what, int system_errno)
{
	if (!*told)
		neap_log(owner->reactor, NEAP_LOG_WARNING, "store", "%s: %s; more of these are counted and not logged", what,
		         system_errno ? strerror(system_errno) : "no room for it");
	*told = true;
}

static void do_spoil(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tier_move *move = move_of(machine);
	struct neap_lower *lower = move->owner->lower;
	lower->stats.disk_writes_failed++;
	log_once(move->owner, &lower->told_write, "a value could not be written to the STORAGE tier and stays in memory", (int)argument);
	neap_lower_pause(move->owner);
	finish(move);
}

static void do_check(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tier_move *move = move_of(machine);
	(void)argument;
	move->sum = (struct neap_sum){.machine = machine, .on_right = tier_move_on_RIGHT, .on_wrong = tier_move_on_WRONG};
	if (move->entry) {
		move->sum.has_expected = move->entry->has_crc;
		move->sum.expected = move->entry->crc;
	}
	neap_sum_begin(&move->sum, move->owner, move->memory, move->memory->extent.size);
}

static void do_serve(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tier_move *move = move_of(machine);
	struct neap_owner *owner = move->owner;
	struct neap_lower_stats *stats = &owner->lower->stats;
	struct neap_key_entry *entry = detach(move);
	(void)argument;
	if (entry) {
		struct neap_value value = {.handle = move->memory, .address = neap_handle_address(move->memory), .size = move->memory->extent.size,
		                           .generation = entry->generation, .has_crc = entry->has_crc, .crc = entry->crc};
		stats->onboarded_bytes += value.size;
		if (neap_lower_keeps(owner, entry, move->memory)) {
			stats->onboarded++;
			neap_lower_raise(owner, entry, move->memory);
			(void)neap_handle_hold(move->memory);
		} else {
			stats->served_once++;
		}
		tell(move, NEAP_STORE_OK, &value);
	}
	finish(move);
}

/* What cannot be read, or is not what was written, is not there. */
static void do_lose(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tier_move *move = move_of(machine);
	struct neap_owner *owner = move->owner;
	struct neap_lower *lower = owner->lower;
	bool wrong = move->sum.machine != NULL;
	struct neap_key_entry *entry = detach(move);
	lower->stats.wrong_copies += wrong;
	lower->stats.disk_reads_failed += !wrong;
	log_once(owner, &lower->told_read, "a value could not be read from the STORAGE tier and is gone", wrong ? EILSEQ : (int)argument);
	if (entry)
		(void)neap_key_entry_withdraw(owner, entry);
	finish(move);
}

static void do_abandon(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	tell(move_of(machine), NEAP_STORE_OBJECT_NOT_FOUND, NULL);
}

static void do_stop(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tier_move *move = move_of(machine);
	(void)argument;
	neap_sum_cancel(&move->sum, move->owner->reactor);
	finish(move);
}

static neap_action_func *const actions[] = {
	[tier_move_do_keep] = do_keep,   [tier_move_do_spoil] = do_spoil,     [tier_move_do_check] = do_check,
	[tier_move_do_serve] = do_serve, [tier_move_do_lose] = do_lose,       [tier_move_do_abandon] = do_abandon,
	[tier_move_do_stop] = do_stop,   [tier_move_do_finish] = do_finish,
};

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_tier_move *move = move_of(machine);
	(void)from;
	switch (machine->state) {
	case tier_move_WRITING: return !move->up && !move->waiters ? NULL : "nobody waits for a value to go down";
	case tier_move_LEAVING: return !move->entry && !move->waiters ? NULL : "a value that went is still being waited for";
	default: return NULL;
	}
}

const struct neap_machine_kind neap_tier_move_kind = {.fsm = &neap_fsm_tier_move, .actions = actions, .invariant = invariant};

/* --- begin ------------------------------------------------------------------------------------------------------------------------- */

static void on_disk(void *user, int error, int system_errno)
{
	struct neap_tier_move *move = user;
	neap_step(&move->machine, error ? (uint8_t)tier_move_on_FAILED : (uint8_t)tier_move_on_MOVED, (uint64_t)system_errno);
}

/* Takes the references over, or drops them: the disk begins at once or not at all. */
static struct neap_tier_move *begin(struct neap_owner *owner, struct neap_key_entry *entry, struct neap_handle *memory,
                                    struct neap_handle *disk, bool up)
{
	struct neap_lower *lower = owner->lower;
	const struct neap_tier *tier = disk->tier;
	struct neap_tier_move *move = neap_pool_take(&lower->moves);
	void *address = neap_handle_address(memory);
	int error = NEAP_STORE_NO_AVAILABLE_HANDLE;
	if (move) {
		struct neap_machine machine = move->machine; /* its generation goes on */
		*move = (struct neap_tier_move){.machine = machine, .owner = owner, .entry = entry, .memory = memory, .disk = disk, .up = up};
		neap_machine_begin(&move->machine, &lower->class_->class_);
		error = up ? tier->ops->read(tier->backend, &disk->extent, address, on_disk, move)
		           : tier->ops->write(tier->backend, &disk->extent, address, on_disk, move);
	}
	if (error) {
		if (move) {
			neap_machine_end(&move->machine);
			neap_pool_give(&lower->moves, move);
		}
		(void)neap_handle_drop(memory);
		(void)neap_handle_drop(disk);
		return NULL;
	}
	entry->moving = move;
	return move;
}

bool neap_tier_move_down(struct neap_owner *owner, struct neap_key_entry *entry)
{
	struct neap_lower *lower = owner->lower;
	struct neap_handle *memory = entry->handle, *disk;
	uint64_t size = memory->extent.size;
	if (entry->below || entry->moving || size > lower->options.largest)
		return false;
	if (neap_tiers_allocate(owner->tiers, size, lower->options.tier, true, &disk)) {
		lower->stats.disk_full++;
		log_once(owner, &lower->told_full, "a value could not be written to the STORAGE tier and stays in memory", 0);
		neap_lower_pause(owner);
		return false;
	}
	bool marked = memory->entry.marked; /* being written is no use */
	(void)neap_handle_hold(memory);
	memory->entry.marked = marked;
	struct neap_tier_move *move = begin(owner, entry, memory, disk, false);
	if (!move) {
		neap_lower_pause(owner);
		return false;
	}
	lower->down++;
	lower->going_bytes[neap_tiers_index(owner->tiers, memory->tier)] += memory->extent.rounded;
	lower->disk_bytes += disk->extent.rounded;
	neap_step(&move->machine, tier_move_on_DOWN, 0);
	return true;
}

/* Room in memory first: that may evict, but never this value, which is in none. */
static int go_up(struct neap_owner *owner, struct neap_key_entry *entry)
{
	struct neap_handle *memory;
	int error = neap_tiers_allocate_memory(owner->tiers, entry->handle->extent.size, NEAP_TIER_ANY, &memory);
	if (error)
		return error;
	struct neap_tier_move *move = begin(owner, entry, memory, neap_handle_hold(entry->handle), true);
	if (!move)
		return NEAP_STORE_NO_AVAILABLE_HANDLE;
	neap_step(&move->machine, tier_move_on_UP, 0);
	return NEAP_STORE_OK;
}

int neap_lower_bring(struct neap_owner *owner, const struct neap_key *key, struct neap_bring *bring)
{
	int error = neap_owner_check_key(owner, key);
	struct neap_key_entry *entry = error ? NULL : neap_key_entry_find(owner, key);
	if (!entry || !entry->handle)
		return error ? error : NEAP_STORE_OBJECT_NOT_FOUND;
	if (!owner->lower || neap_handle_address(entry->handle))
		return NEAP_STORE_UNAVAILABLE_IN_CURRENT_MODE;
	if (!entry->moving)
		error = go_up(owner, entry);
	return error ? error : wait_for(entry->moving, bring);
}

int neap_owner_bring(struct neap_owner *owner, const struct neap_key *key, struct neap_bring *bring)
{
	struct neap_key_entry *entry = key->length > 0 && key->length <= NEAP_KEY_MAX && key->bytes ? neap_key_entry_find(owner, key) : NULL;
	if (entry && entry->handle && owner->lower)
		neap_lower_access(owner, entry);
	return neap_lower_bring(owner, key, bring);
}

/* --- end --------------------------------------------------------------------------------------------------------------------------- */

void neap_tier_move_gone(struct neap_tier_move *move)
{
	(void)detach(move);
	(void)neap_post(&move->machine, tier_move_on_GONE, 0);
}

/* Nobody waits for anything from an owner that closes. What the disk has begun it ends. */
void neap_tier_moves_close(struct neap_owner *owner)
{
	uint32_t index = 0;
	struct neap_tier_move *move;
	while ((move = neap_pool_next(&owner->lower->moves, &index)))
		if (move->entry)
			neap_tier_move_gone(move);
}
