/* Which values go to the disk, which come back to stay, and what eviction means where there is a disk.
 *
 * From the low watermark on more than what lies above it is to have a copy below, the next victims first: when room is needed, in the
 * background at the high watermark or at once for a write, what has a copy gives its memory up and is still there. An allocation that
 * cannot wait takes a value without a copy, as it would without a disk. */
#include "store/owner/lower.h"

#define MOVES_DEFAULT 256u
#define DOWN_DEFAULT 16u
#define SKETCH_DEFAULT 65536u
#define SECOND_NS UINT64_C(1000000000)
#define SPARED_MAX 64u /* uncopied ones that an allocation passes over, looking for one with a copy */

int neap_lower_create(struct neap_owner *owner, const struct neap_owner_lower *options)
{
	struct neap_lower *lower = neap_allocate(owner->reactor, sizeof *lower);
	if (!lower)
		return NEAP_ENOMEM;
	owner->lower = lower;
	lower->options = *options;
	struct neap_owner_lower *mine = &lower->options;
	mine->moves_max = mine->moves_max ? mine->moves_max : MOVES_DEFAULT;
	mine->down_max = mine->down_max ? mine->down_max : DOWN_DEFAULT;
	mine->pause_ns = mine->pause_ns ? mine->pause_ns : SECOND_NS;
	mine->bring_ns = mine->bring_ns ? mine->bring_ns : 10 * SECOND_NS;
	mine->sketch_keys = mine->sketch_keys ? mine->sketch_keys : SKETCH_DEFAULT;
	if (mine->tier >= owner->tiers->count || neap_tiers_in_memory(owner->tiers, mine->tier) || mine->largest == 0)
		return NEAP_EINVAL;
	int error = neap_reactor_class_of(owner->reactor, &neap_tier_move_kind, &lower->class_);
	if (!error)
		error = neap_pool_create(&lower->moves, owner->reactor, sizeof(struct neap_tier_move), mine->moves_max);
	return error ? error : neap_frequency_create(&lower->frequency, owner->reactor, mine->sketch_keys);
}

void neap_lower_destroy(struct neap_owner *owner)
{
	struct neap_lower *lower = owner->lower;
	if (!lower)
		return;
	neap_frequency_destroy(&lower->frequency);
	neap_pool_destroy(&lower->moves);
	neap_release(owner->reactor, lower, sizeof *lower);
	owner->lower = NULL;
}

void neap_lower_close(struct neap_owner *owner)
{
	neap_tier_moves_close(owner);
}

/* --- what has a copy ---------------------------------------------------------------------------------------------------------- */

static void count_copy(struct neap_owner *owner, const struct neap_handle *memory, const struct neap_handle *disk, bool more)
{
	struct neap_lower *lower = owner->lower;
	uint64_t *bytes = &lower->copied_bytes[neap_tiers_index(owner->tiers, memory->tier)], rounded = memory->extent.rounded;
	lower->copies += more ? 1 : (uint64_t)-1;
	lower->copied_all += more ? rounded : -rounded;
	*bytes += more ? rounded : -rounded;
	lower->disk_bytes += more ? disk->extent.rounded : -disk->extent.rounded;
}

void neap_lower_has_copy(struct neap_owner *owner, struct neap_key_entry *entry, struct neap_handle *disk)
{
	entry->below = disk;
	neap_handle_commit(disk, entry);
	count_copy(owner, entry->handle, disk, true);
}

void neap_lower_raise(struct neap_owner *owner, struct neap_key_entry *entry, struct neap_handle *memory)
{
	entry->below = entry->handle;
	entry->handle = memory;
	neap_handle_commit(memory, entry);
	count_copy(owner, memory, entry->below, true);
	neap_key_entry_moved(owner, entry, owner->lower->options.tier);
	neap_lower_again(owner);
}

static void drop_copy(struct neap_owner *owner, struct neap_key_entry *entry)
{
	struct neap_handle *disk = entry->below;
	entry->below = NULL;
	count_copy(owner, entry->handle, disk, false);
	neap_handle_withdraw(disk);
	(void)neap_handle_drop(disk);
}

static void fall_back(struct neap_owner *owner, struct neap_key_entry *entry)
{
	struct neap_handle *memory = entry->handle;
	count_copy(owner, memory, entry->below, false);
	entry->handle = entry->below;
	entry->below = NULL;
	owner->lower->stats.fell_back++;
	owner->lower->spared = 0;
	neap_key_entry_moved(owner, entry, neap_tiers_index(owner->tiers, memory->tier));
	neap_handle_withdraw(memory);
	(void)neap_handle_drop(memory);
}

void neap_lower_forget(struct neap_owner *owner, struct neap_key_entry *entry)
{
	if (entry->moving)
		neap_tier_move_gone(entry->moving);
	if (entry->below)
		drop_copy(owner, entry);
}

/* --- eviction ------------------------------------------------------------------------------------------------------------------ */

/* The background takes nothing from memory that has no copy: it is what makes them. */
static bool is_spared(struct neap_owner *owner)
{
	struct neap_lower *lower = owner->lower;
	if (owner->tending)
		return true;
	return lower->copied_all > 0 && lower->spared++ < SPARED_MAX;
}

bool neap_lower_lets_go(struct neap_owner *owner, struct neap_key_entry *entry, struct neap_handle *handle)
{
	struct neap_lower *lower = owner->lower;
	if (handle == entry->below) {
		lower->stats.copies_dropped++;
		drop_copy(owner, entry);
		return false;
	}
	if (handle != entry->handle)
		return false;
	if (entry->below) {
		fall_back(owner, entry);
		return false;
	}
	if (!neap_handle_address(handle))
		return true; /* the only one there is, and the disk is full of others */
	if (is_spared(owner))
		return false;
	lower->spared = 0;
	lower->stats.evicted_uncopied++;
	lower->stats.too_large += handle->extent.size > lower->options.largest;
	return true;
}

/* --- what goes down -------------------------------------------------------------------------------------------------------------- */

void neap_lower_pause(struct neap_owner *owner)
{
	owner->lower->not_before_ns = neap_now(owner->reactor) + owner->lower->options.pause_ns;
}

void neap_lower_again(struct neap_owner *owner)
{
	for (uint32_t i = 0; i < owner->tiers->count; i++)
		owner->lower->looked[i] = 0;
	neap_owner_wake(owner);
}

static bool may_go_down(const struct neap_owner *owner)
{
	const struct neap_lower *lower = owner->lower;
	return !owner->closing && lower->down < lower->options.down_max && lower->moves.used < lower->options.moves_max &&
	       neap_now(owner->reactor) >= lower->not_before_ns;
}

/* On a disk that is small beside the memory copies would push one another out, for ever: most of it is for values that are nowhere else. */
static bool has_room_for_copies(const struct neap_owner *owner, uint64_t bytes)
{
	const struct neap_lower *lower = owner->lower;
	double most = owner->tiers->options.watermark_low * 2 / 3 * (double)owner->tiers->tiers[lower->options.tier].capacity;
	return (double)(lower->disk_bytes + bytes) < most;
}

/* Above the low mark: more than lies above it has a copy, or will have one soon, by half of what lies between the marks. Otherwise all that
 * eviction takes back to the mark would be all that has a copy, whatever has been used since. */
static bool wants_copies(const struct neap_owner *owner, uint32_t tier)
{
	const struct neap_tiers_tier *it = &owner->tiers->tiers[tier];
	const struct neap_lower *lower = owner->lower;
	const struct neap_tiers_options *marks = &owner->tiers->options;
	double used = (double)it->tier.counts.rounded_bytes, capacity = (double)it->capacity;
	double safe = (double)(lower->copied_bytes[tier] + lower->going_bytes[tier]);
	if (!has_room_for_copies(owner, 0))
		return false;
	double more = (marks->watermark_high - marks->watermark_low) / 2 * capacity;
	return used > marks->watermark_low * capacity && used + more > marks->watermark_low * capacity + safe;
}

/* In a first round what was used since the hand came by is passed over, as the hand will. */
static bool send_next(struct neap_owner *owner, uint32_t tier)
{
	struct neap_lower *lower = owner->lower;
	struct neap_evict *queue = &owner->tiers->tiers[tier].tier.eviction;
	struct neap_handle *handle = (struct neap_handle *)(void *)neap_evict_ahead(queue);
	if (lower->looked[tier]++ > 2 * queue->count)
		return false;
	if (!handle || handle->entry.pins > 0 || (handle->entry.marked && lower->looked[tier] <= queue->count + 1))
		return true;
	if (has_room_for_copies(owner, handle->extent.rounded) && neap_tier_move_down(owner, handle->object))
		lower->looked[tier] = 0;
	return true;
}

static bool send_some(struct neap_owner *owner, uint32_t steps)
{
	for (uint32_t i = 0; i < owner->tiers->count; i++) {
		if (!neap_tiers_in_memory(owner->tiers, i))
			continue;
		while (may_go_down(owner) && wants_copies(owner, i)) {
			if (steps-- == 0)
				return true;
			if (!send_next(owner, i))
				break;
		}
	}
	return false;
}

bool neap_lower_tend(struct neap_owner *owner, uint32_t steps)
{
	const struct neap_lower *lower = owner->lower;
	uint64_t before = lower->stats.fell_back;
	bool more = send_some(owner, steps);
	owner->tending = true;
	for (uint32_t i = 0; i < owner->tiers->count; i++)
		if (lower->copied_bytes[i] > 0 || !neap_tiers_in_memory(owner->tiers, i)) /* else there is nothing that may go */
			more |= neap_tiers_maintain_one(owner->tiers, i, steps);
	owner->tending = false;
	if (lower->stats.fell_back != before)
		neap_lower_again(owner); /* others may have copies in their place */
	return more;
}

/* --- accesses -------------------------------------------------------------------------------------------------------------------- */

static struct neap_move_facts facts_of(const struct neap_owner *owner, const struct neap_key_entry *entry, const struct neap_handle *memory)
{
	const struct neap_tiers_tier *below = &owner->tiers->tiers[owner->lower->options.tier];
	const struct neap_tiers_tier *it = (const struct neap_tiers_tier *)(const void *)memory->tier;
	uint64_t used = below->tier.counts.rounded_bytes;
	return (struct neap_move_facts){
		.frequency = neap_frequency_of(&owner->lower->frequency, entry->hash),
		.in_fast = memory == entry->handle,
		.in_slow = entry->below || memory != entry->handle,
		.bytes = memory->extent.rounded,
		.fast_used = it->tier.counts.rounded_bytes - (memory == entry->handle ? 0 : memory->extent.rounded),
		.fast_capacity = it->capacity,
		.slow_free = below->capacity > used ? below->capacity - used : 0,
	};
}

void neap_lower_access(struct neap_owner *owner, struct neap_key_entry *entry)
{
	struct neap_lower *lower = owner->lower;
	neap_frequency_add(&lower->frequency, entry->hash);
	if (entry->below || entry->moving || !neap_handle_address(entry->handle) || !may_go_down(owner))
		return;
	struct neap_move_facts facts = facts_of(owner, entry, entry->handle);
	if (neap_move_on_access(&lower->options.rules, &facts) == NEAP_MOVE_COPY_DOWN)
		(void)neap_tier_move_down(owner, entry);
}

bool neap_lower_keeps(const struct neap_owner *owner, const struct neap_key_entry *entry, const struct neap_handle *memory)
{
	struct neap_move_facts facts = facts_of(owner, entry, memory);
	return neap_move_on_access(&owner->lower->options.rules, &facts) == NEAP_MOVE_UP;
}

/* --- figures ----------------------------------------------------------------------------------------------------------------------- */

void neap_lower_count(const struct neap_owner *owner, struct neap_owner_stats *stats_p)
{
	const struct neap_lower *lower = owner->lower;
	const struct neap_lower_stats *stats = &lower->stats;
	stats_p->offloaded = stats->offloaded;
	stats_p->offloaded_bytes = stats->offloaded_bytes;
	stats_p->onboarded = stats->onboarded;
	stats_p->served_once = stats->served_once;
	stats_p->onboarded_bytes = stats->onboarded_bytes;
	stats_p->fell_back = stats->fell_back;
	stats_p->evicted_uncopied = stats->evicted_uncopied;
	stats_p->too_large = stats->too_large;
	stats_p->copies_dropped = stats->copies_dropped;
	stats_p->disk_full = stats->disk_full;
	stats_p->disk_writes_failed = stats->disk_writes_failed;
	stats_p->disk_reads_failed = stats->disk_reads_failed;
	stats_p->wrong_copies = stats->wrong_copies;
	stats_p->brings_late = stats->brings_late;
	stats_p->copies = lower->copies;
	stats_p->copied_bytes = lower->copied_all;
	stats_p->going_down = lower->down;
	stats_p->going_up = lower->moves.used - lower->down;
}

const char *neap_lower_check(const struct neap_owner *owner, uint64_t copies)
{
	const struct neap_lower *lower = owner->lower;
	uint64_t copied = 0, going = 0, written = 0;
	uint32_t down = 0, index = 0;
	const struct neap_tier_move *move;
	for (uint32_t i = 0; i < owner->tiers->count; i++) {
		copied += lower->copied_bytes[i];
		going += lower->going_bytes[i];
		if (lower->copied_bytes[i] > owner->tiers->tiers[i].tier.counts.committed_bytes)
			return "a tier has more bytes with copies than bytes";
	}
	while ((move = neap_pool_next(&lower->moves, &index))) {
		down += !move->up;
		going -= move->up ? 0 : move->memory->extent.rounded;
		written += move->up ? 0 : move->disk->extent.rounded;
		if (move->entry && move->entry->moving != move)
			return "a move is not its value's";
	}
	if (copies != lower->copies || copied != lower->copied_all)
		return "the index has other copies than are counted";
	if (written > lower->disk_bytes || (copies == 0 && written != lower->disk_bytes))
		return "copies have other bytes on the disk than are counted";
	return down == lower->down && going == 0 ? NULL : "other values are being written than are counted";
}
