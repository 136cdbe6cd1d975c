/* The owner's life, and the steps its operations share. */
#include "store/owner/lower.h"
#include <string.h>

#define SHARDS_DEFAULT 1024u
#define KEYS_DEFAULT (UINT64_C(1) << 20)
#define KEY_BYTES_DEFAULT (UINT64_C(256) << 20)
#define RECORDS_DEFAULT 65536u
#define MOVES_DEFAULT 4096u
#define SEGMENTS_DEFAULT 256u
#define SECOND_NS UINT64_C(1000000000)
#define EVICT_STEPS 64u  /* objects looked at in one piece of background work */
#define REMOVED_A_TURN 64u /* values, while closing */

static void set_default64(uint64_t *value, uint64_t otherwise)
{
	if (!*value)
		*value = otherwise;
}

static void set_default32(uint32_t *value, uint32_t otherwise)
{
	if (!*value)
		*value = otherwise;
}

static int fill_options(struct neap_owner_options *options)
{
	set_default32(&options->shards, SHARDS_DEFAULT);
	set_default64(&options->keys_max, KEYS_DEFAULT);
	set_default64(&options->key_bytes_max, KEY_BYTES_DEFAULT);
	set_default32(&options->writes_max, RECORDS_DEFAULT);
	set_default32(&options->pins_max, RECORDS_DEFAULT);
	set_default32(&options->moves_max, MOVES_DEFAULT);
	set_default64(&options->lease_ns, 5 * SECOND_NS);
	set_default64(&options->scan_interval_ns, SECOND_NS);
	set_default64(&options->move_timeout_ns, 30 * SECOND_NS);
	set_default32(&options->segments_max, SEGMENTS_DEFAULT);
	set_default64(&options->segment_idle_ns, 60 * SECOND_NS);
	bool power = (options->shards & (options->shards - 1)) == 0;
	return power && options->keys_max <= UINT32_MAX / 2 ? NEAP_OK : NEAP_EINVAL;
}

/* --- background work: eviction to the watermarks, the scan, closing */

static bool remove_some(struct neap_owner *owner)
{
	struct neap_owner_cursor cursor = {0};
	struct neap_owner_value value;
	for (unsigned i = 0; i < REMOVED_A_TURN; i++) {
		if (!neap_owner_next(owner, &cursor, &value))
			return false;
		(void)neap_key_entry_withdraw(owner, neap_key_entry_find(owner, &value.key));
	}
	return true;
}

static bool has_ended(const struct neap_owner *owner)
{
	return owner->keys == 0 && owner->writes.used == 0 && owner->pins.used == 0 && owner->moves.used == 0 &&
	       neap_lower_moves(owner) == 0 && owner->tiers->handles.quarantined == 0;
}

static void tend_closing(struct neap_owner *owner)
{
	if (remove_some(owner)) {
		neap_owner_wake(owner);
		return;
	}
	void (*closed)(void *user) = owner->closed;
	if (!has_ended(owner) || !closed)
		return;
	owner->closed = NULL;
	closed(owner->closed_user);
}

static void tend(struct neap_ready *ready)
{
	struct neap_owner *owner = (struct neap_owner *)(void *)((char *)ready - offsetof(struct neap_owner, tend));
	if (owner->closing)
		tend_closing(owner);
	else if (owner->lower ? neap_lower_tend(owner, EVICT_STEPS) : neap_tiers_maintain(owner->tiers, EVICT_STEPS))
		neap_owner_wake(owner);
}

void neap_owner_wake(struct neap_owner *owner)
{
	neap_ready_again(owner->reactor, &owner->tend);
}

/* Closes segments that nobody has needed for a while. Leases have timers; the scan is for one that a paused host has not let fire yet, and
 * makes sure that nothing stays for ever because a timer was lost. A share of the writes each time, so that all are seen within the
 * interval. */
static void scan(struct neap_timer *timer, void *user)
{
	struct neap_owner *owner = user;
	uint32_t seen = 0;
	for (uint32_t index = owner->scan_at; seen < SCANNED_A_TURN; seen++) {
		struct neap_write_record *record = neap_pool_next(&owner->writes, &index);
		owner->scan_at = index;
		if (!record) {
			owner->scan_at = 0;
			break;
		}
		neap_write_look_at(record);
	}
	neap_move_segments_look(owner);
	if (owner->lower)
		neap_lower_again(owner);
	uint64_t pause_ns = seen < SCANNED_A_TURN ? owner->options.scan_interval_ns : 0;
	(void)neap_timer_start(owner->reactor, timer, neap_now(owner->reactor) + pause_ns, scan, owner);
}

/* The tiers have chosen a value to go. */
static void evict(void *user, struct neap_handle *handle)
{
	struct neap_owner *owner = user;
	struct neap_key_entry *entry = handle->object;
	if (!entry || (owner->lower ? !neap_lower_lets_go(owner, entry, handle) : entry->handle != handle))
		return;
	owner->stats.evicted++;
	(void)neap_key_entry_withdraw(owner, entry);
}

/* --- life */

static int make(struct neap_owner *owner)
{
	const struct neap_owner_options *options = &owner->options;
	int error = neap_reactor_class_of(owner->reactor, &neap_write_record_kind, &owner->write_class);
	if (!error)
		error = neap_reactor_class_of(owner->reactor, &neap_pin_record_kind, &owner->pin_class);
	if (!error)
		error = neap_reactor_class_of(owner->reactor, &neap_move_record_kind, &owner->move_class);
	if (!error)
		error = neap_pool_create(&owner->entries, owner->reactor, sizeof(struct neap_key_entry), (uint32_t)options->keys_max);
	if (!error)
		error = neap_pool_create(&owner->writes, owner->reactor, sizeof(struct neap_write_record), options->writes_max);
	if (!error)
		error = neap_pool_create(&owner->pins, owner->reactor, sizeof(struct neap_pin_record), options->pins_max);
	if (!error)
		error = neap_pool_create(&owner->moves, owner->reactor, sizeof(struct neap_move_record), options->moves_max);
	if (!error)
		error = neap_move_segments_create(owner);
	if (!error && options->lower)
		error = neap_lower_create(owner, options->lower);
	return error ? error : neap_index_create(owner);
}

static void release(struct neap_owner *owner)
{
	neap_index_destroy(owner);
	neap_lower_destroy(owner);
	neap_move_segments_destroy(owner);
	neap_pool_destroy(&owner->moves);
	neap_pool_destroy(&owner->pins);
	neap_pool_destroy(&owner->writes);
	neap_pool_destroy(&owner->entries);
	neap_release(owner->reactor, owner, sizeof *owner);
}

int neap_owner_create(struct neap_owner **owner_p, struct neap_engine *engine, struct neap_tiers *tiers,
                      const struct neap_owner_options *options)
{
	struct neap_reactor *reactor = neap_engine_reactor(engine);
	*owner_p = NULL;
	struct neap_owner *owner = neap_allocate(reactor, sizeof *owner);
	if (!owner)
		return NEAP_ENOMEM;
	owner->engine = engine;
	owner->reactor = reactor;
	owner->tiers = tiers;
	if (options)
		owner->options = *options;
	owner->tend.run = tend;
	int error = fill_options(&owner->options);
	if (!error)
		error = make(owner);
	owner->options.lower = NULL; /* the caller's */
	if (error) {
		release(owner);
		return error;
	}
	/* Generations go on across owners of one process, as far as chance allows. */
	owner->generation = neap_random_u64(reactor) >> 16;
	neap_key_secret_draw(&owner->secret, reactor);
	tiers->options.evict = evict;
	tiers->options.user = owner;
	(void)neap_timer_start(reactor, &owner->scan, neap_now(reactor) + owner->options.scan_interval_ns, scan, owner);
	*owner_p = owner;
	return NEAP_OK;
}

void neap_owner_close(struct neap_owner *owner, void (*closed)(void *user), void *user)
{
	owner->closing = true;
	owner->closed = closed;
	owner->closed_user = user;
	neap_writes_close(owner);
	neap_pins_close(owner);
	if (owner->lower)
		neap_lower_close(owner);
	neap_owner_wake(owner);
}

void neap_owner_destroy(struct neap_owner *owner)
{
	neap_timer_cancel(owner->reactor, &owner->scan);
	neap_ready_cancel(owner->reactor, &owner->tend);
	owner->tiers->options.evict = NULL;
	release(owner);
}

/* --- steps that operations share */

int neap_owner_check_key(const struct neap_owner *owner, const struct neap_key *key)
{
	if (key->length == 0 || key->length > NEAP_KEY_MAX || !key->bytes)
		return NEAP_STORE_INVALID_PARAMS;
	return owner->closing ? NEAP_STORE_SHUTTING_DOWN : NEAP_STORE_OK;
}

static int check_pending(struct neap_owner *owner, struct neap_key_entry *entry, uint64_t *retry_after_ns_p)
{
	if (entry->pending && !entry->pending_move)
		neap_write_look(owner, entry); /* the foreground check: its lease may be over */
	if (entry->pending) {
		*retry_after_ns_p = entry->pending_move ? owner->options.lease_ns : neap_write_left_ns(owner, entry->pending);
		return NEAP_STORE_REPLICA_IS_PROCESSING;
	}
	return entry->handle ? NEAP_STORE_OBJECT_ALREADY_EXISTS : NEAP_STORE_OK;
}

int neap_owner_reserve(struct neap_owner *owner, const struct neap_key *key, uint64_t size, uint32_t tier,
                       struct neap_key_entry **entry_p, struct neap_handle **handle_p, uint64_t *retry_after_ns_p)
{
	*retry_after_ns_p = 0;
	int error = neap_owner_check_key(owner, key);
	if (error || size == 0)
		return error ? error : NEAP_STORE_INVALID_PARAMS;
	struct neap_key_entry *entry = neap_key_entry_get(owner, key);
	if (!entry)
		return NEAP_STORE_NO_AVAILABLE_HANDLE;
	error = check_pending(owner, entry, retry_after_ns_p);
	if (error)
		return error;
	/* Eviction may settle other entries; this one has nothing that could be evicted. */
	error = neap_tiers_allocate_memory(owner->tiers, size, tier, handle_p);
	if (error) {
		owner->stats.refused_no_space += error == NEAP_STORE_NO_AVAILABLE_HANDLE;
		neap_key_entry_settle(owner, entry);
		return error;
	}
	*entry_p = entry;
	return NEAP_STORE_OK;
}

/* --- values */

int neap_owner_hold(struct neap_owner *owner, const struct neap_key *key, struct neap_value *value_p)
{
	int error = neap_owner_check_key(owner, key);
	struct neap_key_entry *entry = error ? NULL : neap_key_entry_find(owner, key);
	if (!entry || !entry->handle)
		return error ? error : NEAP_STORE_OBJECT_NOT_FOUND;
	if (owner->lower)
		neap_lower_access(owner, entry);
	*value_p = (struct neap_value){
		.handle = neap_handle_hold(entry->handle),
		.address = neap_handle_address(entry->handle),
		.size = entry->handle->extent.size,
		.generation = entry->generation,
		.has_crc = entry->has_crc,
		.crc = entry->crc,
	};
	return NEAP_STORE_OK;
}

int neap_owner_put_copy(struct neap_owner *owner, const struct neap_copy *request, uint64_t *generation_p, uint64_t *retry_after_ns_p)
{
	struct neap_key_entry *entry;
	struct neap_handle *handle;
	int error = neap_owner_reserve(owner, &request->key, request->size, request->tier, &entry, &handle, retry_after_ns_p);
	if (error)
		return error;
	memcpy(neap_handle_address(handle), request->bytes, request->size);
	struct neap_sum sum = {.wanted = request->has_crc || owner->options.verify, .crc = request->crc};
	if (!request->has_crc && owner->options.verify)
		sum.crc = neap_crc32c(0, request->bytes, (size_t)request->size);
	neap_key_entry_publish(owner, entry, handle, 0, &sum);
	*generation_p = entry->generation;
	return NEAP_STORE_OK;
}

bool neap_owner_exists(const struct neap_owner *owner, const struct neap_key *key)
{
	const struct neap_key_entry *entry = neap_key_entry_find(owner, key);
	return entry && entry->handle;
}

int neap_owner_remove(struct neap_owner *owner, const struct neap_key *key)
{
	int error = neap_owner_check_key(owner, key);
	struct neap_key_entry *entry = error ? NULL : neap_key_entry_find(owner, key);
	if (!entry || !entry->handle)
		return error ? error : NEAP_STORE_OBJECT_NOT_FOUND;
	owner->stats.removed++;
	(void)neap_key_entry_withdraw(owner, entry);
	return NEAP_STORE_OK;
}

void neap_owner_stats(const struct neap_owner *owner, struct neap_owner_stats *stats_p)
{
	*stats_p = owner->stats;
	stats_p->keys = owner->keys;
	stats_p->bytes = owner->bytes;
	stats_p->pins = owner->pins.used;
	stats_p->moves = owner->moves.used;
	stats_p->quarantined_bytes = owner->tiers->handles.quarantined_bytes;
	neap_writes_count(owner, stats_p);
	if (owner->lower)
		neap_lower_count(owner, stats_p);
}
