/* FORWARD writes: prewrite, commit, revoke, and what happens without them. */
#include "store/owner/inside.h"
#include "store/owner/write_record_fsm.h"

static struct neap_write_record *record_of(const struct neap_machine *machine)
{
	return (struct neap_write_record *)(uintptr_t)((const char *)machine - offsetof(struct neap_write_record, machine));
}

static uint64_t id_of(const struct neap_write_record *record)
{
	return neap_pool_handle(&record->owner->writes, record);
}

/* --- actions */

static void give_back(struct neap_write_record *record)
{
	struct neap_owner *owner = record->owner;
	neap_machine_end(&record->machine);
	neap_pool_give(&owner->writes, record);
	neap_owner_wake(owner); /* a close waits for the last */
}

/* From a turn: no byte can be stored under the grant any more. */
static void on_sealed(void *user)
{
	struct neap_write_record *record = user;
	neap_step(&record->machine, write_record_on_SEALED, 0);
}

static void end_grant(struct neap_write_record *record)
{
	int (*end)(struct neap_engine *, const struct neap_grant_token *, void (*)(void *), void *) =
		record->quiet ? neap_grant_end_quiet : neap_grant_end;
	/* Stale: it has ended, with its grace period, as everything an engine had when it closed. */
	if (end(record->owner->engine, &record->token, on_sealed, record) != NEAP_OK)
		(void)neap_post(&record->machine, write_record_on_SEALED, 0);
}

static void do_seal(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	end_grant(record_of(machine));
}

/* The key is free for another write: that one gets other memory. What is decided about a record is decided here at once; its machine,
 * which may be told from inside another's action, follows. */
static struct neap_key_entry *detach(struct neap_write_record *record)
{
	struct neap_key_entry *entry = record->entry;
	record->entry = NULL;
	if (entry)
		entry->pending = 0;
	return entry;
}

static void leave_key(struct neap_write_record *record)
{
	struct neap_key_entry *entry = detach(record);
	if (entry)
		neap_key_entry_settle(record->owner, entry);
}

static void quarantine(struct neap_write_record *record)
{
	leave_key(record);
	(void)neap_handle_drop(record->handle); /* its exposure keeps it in quarantine */
	end_grant(record);
}

static void do_expire(struct neap_machine *machine, uint64_t argument)
{
	struct neap_write_record *record = record_of(machine);
	(void)argument;
	record->owner->stats.expired_writes++;
	quarantine(record);
}

static void do_revoke(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	quarantine(record_of(machine));
}

static void do_check(struct neap_machine *machine, uint64_t argument)
{
	struct neap_write_record *record = record_of(machine);
	(void)argument;
	(void)neap_exposure_end(&record->exposure, NEAP_FACT_GRANT_ENDED);
	record->sum.machine = machine;
	record->sum.on_right = write_record_on_RIGHT;
	record->sum.on_wrong = write_record_on_WRONG;
	neap_sum_begin(&record->sum, record->owner, record->handle, record->size);
}

static void answer(struct neap_write_record *record, int error, uint64_t generation)
{
	neap_committed_func *done = record->done;
	void *user = record->user;
	give_back(record);
	done(user, error, generation);
}

static void do_publish(struct neap_machine *machine, uint64_t argument)
{
	struct neap_write_record *record = record_of(machine);
	struct neap_key_entry *entry = record->entry;
	(void)argument;
	record->owner->stats.commits++;
	neap_key_entry_publish(record->owner, entry, record->handle, id_of(record), &record->sum);
	answer(record, NEAP_STORE_OK, entry->generation);
}

static void do_discard(struct neap_machine *machine, uint64_t argument)
{
	struct neap_write_record *record = record_of(machine);
	(void)argument;
	record->owner->stats.wrong_sums++;
	leave_key(record);
	(void)neap_handle_drop(record->handle);
	answer(record, NEAP_STORE_DATA_COPY_FAILED, 0);
}

static void do_release(struct neap_machine *machine, uint64_t argument)
{
	struct neap_write_record *record = record_of(machine);
	(void)argument;
	(void)neap_exposure_end(&record->exposure, NEAP_FACT_GRANT_ENDED);
	give_back(record);
}

static neap_action_func *const actions[] = {
	[write_record_do_seal] = do_seal,       [write_record_do_expire] = do_expire,   [write_record_do_revoke] = do_revoke,
	[write_record_do_check] = do_check,     [write_record_do_publish] = do_publish, [write_record_do_discard] = do_discard,
	[write_record_do_release] = do_release,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)timeout_class;
	(void)now_ns;
	return record_of(machine)->lease_end_ns;
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_write_record *record = record_of(machine);
	(void)from;
	switch (machine->state) {
	case write_record_GRANTED:
		return record->entry && record->exposure.handle ? NULL : "a granted write has its key and may be written";
	case write_record_SEALING: return record->entry && record->done ? NULL : "a write that is being committed has its key and an asker";
	case write_record_QUARANTINED: return record->entry ? "a write in quarantine blocks its key" : NULL;
	default: return NULL;
	}
}

const struct neap_machine_kind neap_write_record_kind = {
	.fsm = &neap_fsm_write_record,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_write_record),
	.due_ns = due_ns,
};

/* --- calls */

static int grant(struct neap_write_record *record, const struct neap_prewrite *request)
{
	struct neap_owner *owner = record->owner;
	int error = neap_exposure_begin(&record->exposure, record->handle, request->peer);
	if (error)
		return error;
	if (neap_grant_create(owner->engine, neap_handle_address(record->handle), record->size, NEAP_MAY_WRITE, request->instance,
	                      &record->token) == NEAP_OK)
		return NEAP_STORE_OK;
	(void)neap_exposure_end(&record->exposure, NEAP_FACT_GRANT_ENDED); /* there never was one */
	return NEAP_STORE_NO_AVAILABLE_HANDLE;
}

static struct neap_write_record *take(struct neap_owner *owner, struct neap_key_entry *entry, struct neap_handle *handle, uint64_t size)
{
	struct neap_write_record *record = neap_pool_take(&owner->writes);
	if (!record)
		return NULL;
	struct neap_machine machine = record->machine; /* its generation goes on */
	*record = (struct neap_write_record){.machine = machine, .owner = owner, .entry = entry, .handle = handle, .size = size};
	neap_machine_begin(&record->machine, &owner->write_class->class_);
	return record;
}

int neap_owner_prewrite(struct neap_owner *owner, const struct neap_prewrite *request, struct neap_write_grant *grant_p,
                        uint64_t *retry_after_ns_p)
{
	struct neap_key_entry *entry;
	struct neap_handle *handle;
	owner->stats.prewrites++;
	int error = neap_owner_reserve(owner, &request->key, request->size, request->tier, &entry, &handle, retry_after_ns_p);
	if (error)
		return error;
	struct neap_write_record *record = take(owner, entry, handle, request->size);
	error = record ? grant(record, request) : NEAP_STORE_NO_AVAILABLE_HANDLE;
	if (error) {
		owner->stats.refused_no_space++;
		if (record)
			give_back(record);
		(void)neap_handle_drop(handle);
		neap_key_entry_settle(owner, entry);
		return error;
	}
	entry->pending = id_of(record);
	entry->pending_move = false;
	record->lease_end_ns = neap_now(owner->reactor) + owner->options.lease_ns;
	neap_step(&record->machine, write_record_on_GRANT, 0);
	*grant_p = (struct neap_write_grant){
		.write_id = entry->pending,
		.address = neap_handle_address(handle),
		.size = request->size,
		.token = record->token,
		.lease_ns = owner->options.lease_ns,
	};
	return NEAP_STORE_OK;
}

static bool is_over(const struct neap_write_record *record)
{
	return !record->done && neap_now(record->owner->reactor) >= record->lease_end_ns;
}

void neap_write_look_at(struct neap_write_record *record)
{
	if (!record->entry || !is_over(record))
		return;
	leave_key(record);
	neap_step(&record->machine, write_record_on_TIMEOUT, 0);
}

void neap_write_look(struct neap_owner *owner, struct neap_key_entry *entry)
{
	struct neap_write_record *record = neap_pool_find(&owner->writes, entry->pending);
	if (!record || !is_over(record))
		return;
	(void)detach(record); /* the caller goes on with the entry */
	neap_step(&record->machine, write_record_on_TIMEOUT, 0);
}

uint64_t neap_write_left_ns(struct neap_owner *owner, uint64_t write_id)
{
	const struct neap_write_record *record = neap_pool_find(&owner->writes, write_id);
	uint64_t now_ns = neap_now(owner->reactor);
	return record && record->lease_end_ns > now_ns ? record->lease_end_ns - now_ns : 0;
}

/* The pending write of the key when it has that id; otherwise why not. */
static int find(struct neap_owner *owner, const struct neap_key *key, uint64_t write_id, struct neap_key_entry **entry_p,
                struct neap_write_record **record_p)
{
	*record_p = NULL;
	*entry_p = NULL;
	if (key->length == 0 || key->length > NEAP_KEY_MAX || !key->bytes || write_id == 0)
		return NEAP_STORE_INVALID_PARAMS;
	struct neap_key_entry *entry = neap_key_entry_find(owner, key);
	if (!entry)
		return NEAP_STORE_OBJECT_NOT_FOUND;
	*entry_p = entry;
	if (!entry->pending || entry->pending_move)
		return NEAP_STORE_OBJECT_NOT_FOUND;
	struct neap_write_record *record = neap_pool_find(&owner->writes, entry->pending);
	if (is_over(record)) {
		neap_write_look_at(record);
		*entry_p = NULL; /* perhaps it went with it */
		return NEAP_STORE_LEASE_EXPIRED;
	}
	if (entry->pending != write_id)
		return NEAP_STORE_INVALID_WRITE;
	*record_p = record;
	return NEAP_STORE_OK;
}

static bool is_committed(const struct neap_key_entry *entry, uint64_t write_id)
{
	return entry && entry->handle && entry->write_id == write_id;
}

int neap_owner_commit(struct neap_owner *owner, const struct neap_commit *request, neap_committed_func *done, void *user)
{
	struct neap_key_entry *entry;
	struct neap_write_record *record;
	int error = find(owner, &request->key, request->write_id, &entry, &record);
	if (error == NEAP_STORE_OBJECT_NOT_FOUND && is_committed(entry, request->write_id)) {
		done(user, NEAP_STORE_OK, entry->generation);
		return NEAP_STORE_OK;
	}
	/* Its time is over, and the key perhaps another's: what is known of the id itself is the better answer. */
	if (error == NEAP_STORE_OBJECT_NOT_FOUND && neap_pool_find(&owner->writes, request->write_id))
		return NEAP_STORE_LEASE_EXPIRED;
	if (error)
		return error;
	if (record->done)
		return NEAP_STORE_REPLICA_IS_PROCESSING;
	if (request->size != record->size)
		return NEAP_STORE_INVALID_PARAMS;
	record->done = done;
	record->user = user;
	record->quiet = true; /* who commits has all answers */
	record->sum.has_expected = request->has_crc;
	record->sum.expected = request->crc;
	neap_step(&record->machine, write_record_on_COMMIT, 0);
	return NEAP_STORE_OK;
}

int neap_owner_revoke(struct neap_owner *owner, const struct neap_key *key, uint64_t write_id, bool quiet)
{
	struct neap_key_entry *entry;
	struct neap_write_record *record;
	int error = find(owner, key, write_id, &entry, &record);
	if (error == NEAP_STORE_OBJECT_NOT_FOUND)
		return is_committed(entry, write_id) ? NEAP_STORE_INVALID_WRITE : NEAP_STORE_OK;
	if (error)
		return error;
	if (record->done)
		return NEAP_STORE_REPLICA_IS_PROCESSING;
	owner->stats.revokes++;
	record->quiet = quiet;
	leave_key(record);
	neap_step(&record->machine, write_record_on_REVOKE, 0);
	return NEAP_STORE_OK;
}

void neap_owner_write_lost(struct neap_owner *owner, uint64_t write_id)
{
	struct neap_write_record *record = neap_pool_find(&owner->writes, write_id);
	if (!record)
		return;
	if (!record->done && record->entry) {
		owner->stats.lost_writes++;
		leave_key(record);
	}
	neap_step(&record->machine, write_record_on_LOST, 0);
}

void neap_writes_close(struct neap_owner *owner)
{
	uint32_t index = 0;
	struct neap_write_record *record;
	while ((record = neap_pool_next(&owner->writes, &index)))
		neap_owner_write_lost(owner, id_of(record));
}

void neap_writes_count(const struct neap_owner *owner, struct neap_owner_stats *stats_p)
{
	uint32_t index = 0;
	const struct neap_write_record *record;
	while ((record = neap_pool_next(&owner->writes, &index))) {
		if (record->done)
			stats_p->committing++;
		else if (record->entry)
			stats_p->pending++;
		else
			stats_p->quarantined++;
	}
}
