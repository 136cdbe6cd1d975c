/* The owner by itself: reservations, commits, revokes, pins, moves, and what is left of each. The accessor is this test: it writes where a
 * grant says. Names of the first case follow the list of behaviours that the reference's own tests check. */
#include "reactor/inside.h"
#include "store/owner/inside.h"
#include "store/owner/pin_record_fsm.h"
#include "store/owner/write_record_fsm.h"
#include "store/tier/dram_engine.h"
#include "tests/support/drive.h"
#include "tests/support/engine_rig.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define MS UINT64_C(1000000)

static struct engine_rig rig;
static struct neap_dram dram;
static struct neap_dram_engine binding;
static struct neap_tiers tiers;
static struct neap_owner *owner;
static uint32_t published, withdrawn;
static uint64_t last_generation, retry;

static struct neap_key key(const char *text)
{
	return (struct neap_key){text, (uint32_t)strlen(text)};
}

static void on_published(void *user, const struct neap_owner_value *value)
{
	(void)user;
	ck_assert_uint_gt(value->size, 0);
	ck_assert_uint_gt(value->key.length, 0);
	ck_assert_uint_eq(value->tier, 0);
	ck_assert_uint_gt(value->generation, last_generation); /* no two values of an owner have one generation */
	last_generation = value->generation;
	published++;
}

static void on_withdrawn(void *user, const struct neap_owner_value *value)
{
	(void)user;
	ck_assert_uint_gt(value->key.length, 0);
	ck_assert_uint_le(value->generation, last_generation);
	withdrawn++;
}

static void begin(struct neap_owner_options options, uint64_t capacity)
{
	char why[200];
	struct neap_dram_options dram_options = {.capacity = capacity, .numa_node = -1, .slab_bytes = 2 * MIB};
	struct neap_tiers_options tiers_options = {.handles_max = 4096};
	struct neap_tier_settings settings = {.priority = 1};
	uint32_t index;
	const struct neap_engine_options engine_options = {.requests_max = 256, .batches_max = 64, .regions_max = 64, .grants_max = 64};
	rig_begin(&rig, &engine_options);
	ck_assert_int_eq(neap_dram_create(&dram, rig.reactor, &dram_options, why, sizeof why), 0);
	ck_assert_int_eq(neap_dram_engine_begin(&binding, rig.engine, &dram, -1, false, why, sizeof why), 0);
	ck_assert_int_eq(neap_tiers_create(&tiers, rig.reactor, &tiers_options), 0);
	ck_assert_int_eq(neap_tiers_add(&tiers, &settings, &neap_dram_tier_ops, &dram, capacity, &index), 0);
	options.published = on_published;
	options.withdrawn = on_withdrawn;
	options.shards = options.shards ? options.shards : 4;
	options.keys_max = options.keys_max ? options.keys_max : 4096;
	options.writes_max = options.writes_max ? options.writes_max : 32;
	options.pins_max = options.pins_max ? options.pins_max : 32;
	options.moves_max = options.moves_max ? options.moves_max : 8;
	published = withdrawn = 0;
	last_generation = 0;
	ck_assert_int_eq(neap_owner_create(&owner, rig.engine, &tiers, &options), 0);
}

static void setup(void)
{
	begin((struct neap_owner_options){.lease_ns = 60000 * MS}, 8 * MIB);
}

static void holds(void)
{
	const char *wrong = neap_owner_check(owner);
	ck_assert_msg(!wrong, "%s", wrong);
	wrong = neap_dram_check(&dram);
	ck_assert_msg(!wrong, "%s", wrong);
}

static void set(void *flag)
{
	*(bool *)flag = true;
}

static struct neap_owner_stats stats(void)
{
	struct neap_owner_stats stats = {0};
	neap_owner_stats(owner, &stats);
	return stats;
}

static void teardown(void)
{
	bool closed = false;
	holds();
	neap_owner_close(owner, set, &closed);
	ck_assert(rig_until(&rig, &closed));
	struct neap_owner_stats left = stats();
	ck_assert_uint_eq(left.keys + left.bytes + left.pending + left.committing + left.quarantined + left.pins + left.moves, 0);
	ck_assert_uint_eq(published, withdrawn);
	ck_assert_uint_eq(tiers.tiers[0].tier.counts.handles, 0);
	neap_owner_destroy(owner);
	ck_assert_int_eq(neap_tiers_destroy(&tiers), 0);
	bool unmapped = false;
	ck_assert_int_eq(neap_dram_close(&dram, set, &unmapped), 0);
	ck_assert(rig_until(&rig, &unmapped));
	neap_dram_engine_end(&binding);
	rig_end(&rig);
}

/* --- what an accessor does */

struct result {
	bool done, released;
	int error;
	uint64_t generation;
	struct neap_moved moved;
};

static void on_committed(void *user, int error, uint64_t generation)
{
	struct result *result = user;
	ck_assert(!result->done);
	*result = (struct result){.done = true, .error = error, .generation = generation};
}

static int prewrite(const char *name, uint64_t size, struct neap_write_grant *grant)
{
	uint64_t retry_after_ns;
	struct neap_prewrite request = {.key = key(name), .size = size, .tier = NEAP_TIER_ANY, .peer = 1};
	return neap_owner_prewrite(owner, &request, grant, &retry_after_ns);
}

static int commit_with(const char *name, const struct neap_write_grant *grant, const uint32_t *crc, struct result *result)
{
	struct neap_commit request = {.key = key(name), .write_id = grant->write_id, .size = grant->size, .has_crc = crc != NULL,
	                              .crc = crc ? *crc : 0};
	memset(result, 0, sizeof *result);
	int error = neap_owner_commit(owner, &request, on_committed, result);
	if (!error)
		ck_assert(rig_until(&rig, &result->done));
	return error ? error : result->error;
}

static int commit(const char *name, const struct neap_write_grant *grant)
{
	struct result result;
	return commit_with(name, grant, NULL, &result);
}

static void put(const char *name, int byte, uint64_t size)
{
	struct neap_write_grant grant;
	ck_assert_int_eq(prewrite(name, size, &grant), 0);
	memset(grant.address, byte, size);
	ck_assert_int_eq(commit(name, &grant), 0);
}

static void put_copy(const char *name)
{
	struct neap_copy copy = {.key = key(name), .bytes = "0123456789", .size = 10, .tier = NEAP_TIER_ANY};
	uint64_t generation;
	ck_assert_int_eq(neap_owner_put_copy(owner, &copy, &generation, &retry), 0);
}

static int pin(const char *name, struct neap_read_grant *grant)
{
	struct neap_pin request = {.key = key(name), .peer = 2};
	return neap_owner_pin(owner, &request, grant);
}

static int unpin(const char *name, uint64_t id)
{
	struct neap_key of = key(name);
	return neap_owner_unpin(owner, &of, id);
}

static int revoke(const char *name, uint64_t id)
{
	struct neap_key of = key(name);
	return neap_owner_revoke(owner, &of, id, false);
}

static bool exists(const char *name)
{
	struct neap_key of = key(name);
	return neap_owner_exists(owner, &of);
}

static int remove_key(const char *name)
{
	struct neap_key of = key(name);
	return neap_owner_remove(owner, &of);
}

static bool only(const void *bytes, int byte, uint64_t size)
{
	const unsigned char *p = bytes;
	for (uint64_t i = 0; i < size; i++)
		if (p[i] != byte)
			return false;
	return true;
}

/* Until no write and no pin is on its way out. */
static void settle(void)
{
	for (int i = 0; i < 1000 && (stats().quarantined || stats().pins); i++)
		rig_turn(&rig);
	holds();
}

/* --- writes */

START_TEST(put_and_get)
{
	struct neap_value value;
	struct neap_key name = key("a");
	put("a", 7, 100000);
	ck_assert(exists("a"));
	ck_assert_int_eq(neap_owner_hold(owner, &name, &value), 0);
	ck_assert_uint_eq(value.size, 100000);
	ck_assert_uint_eq(value.generation, last_generation);
	ck_assert(only(value.address, 7, 100000));
	neap_handle_drop(value.handle);
	ck_assert_uint_eq(published, 1);
}
END_TEST

START_TEST(pre_write_rejects_what_cannot_be)
{
	char long_name[NEAP_KEY_MAX + 2];
	struct neap_write_grant grant;
	memset(long_name, 'k', sizeof long_name - 1);
	long_name[sizeof long_name - 1] = '\0';
	ck_assert_int_eq(prewrite("", 10, &grant), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(prewrite("a", 0, &grant), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(prewrite(long_name, 10, &grant), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(prewrite("a", 100 * MIB, &grant), NEAP_STORE_NO_AVAILABLE_HANDLE);
	long_name[NEAP_KEY_MAX] = '\0';
	put(long_name, 1, 10);
	ck_assert(exists(long_name));
	ck_assert_uint_eq(stats().pending, 0);
}
END_TEST

START_TEST(pre_write_rejects_concurrent_lease)
{
	struct neap_write_grant first, second;
	uint64_t retry_after_ns;
	struct neap_prewrite request = {.key = key("a"), .size = 10, .tier = NEAP_TIER_ANY};
	ck_assert_int_eq(prewrite("a", 10, &first), 0);
	ck_assert_uint_ne(first.write_id, 0);
	ck_assert_uint_eq(first.lease_ns, 60000 * MS);
	ck_assert_int_eq(neap_owner_prewrite(owner, &request, &second, &retry_after_ns), NEAP_STORE_REPLICA_IS_PROCESSING);
	ck_assert_uint_gt(retry_after_ns, 0);
	ck_assert_uint_le(retry_after_ns, 60000 * MS);
	ck_assert_int_eq(commit("a", &first), 0); /* it keeps its id */
	ck_assert_int_eq(prewrite("a", 10, &second), NEAP_STORE_OBJECT_ALREADY_EXISTS);
}
END_TEST

/* Differs from the reference on purpose: a commit whose answer was lost is asked again and is OK again. */
START_TEST(write_commit_repeated_is_ok_and_unknown_is_not)
{
	struct neap_write_grant grant, other = {.write_id = 12345, .size = 10};
	struct result result;
	ck_assert_int_eq(commit("a", &other), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(prewrite("a", 10, &grant), 0);
	ck_assert_int_eq(commit("a", &grant), 0);
	uint64_t generation = last_generation;
	ck_assert_int_eq(commit_with("a", &grant, NULL, &result), 0);
	ck_assert_uint_eq(result.generation, generation);
	ck_assert_int_eq(commit("a", &other), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(revoke("a", grant.write_id), NEAP_STORE_INVALID_WRITE);
	ck_assert(exists("a"));
	ck_assert_uint_eq(published, 1);
}
END_TEST

START_TEST(write_commit_checks_id_and_size)
{
	struct neap_write_grant grant, wrong;
	ck_assert_int_eq(prewrite("a", 10, &grant), 0);
	wrong = grant;
	wrong.write_id = 999;
	ck_assert_int_eq(commit("a", &wrong), NEAP_STORE_INVALID_WRITE);
	ck_assert_int_eq(revoke("a", 999), NEAP_STORE_INVALID_WRITE);
	wrong = grant;
	wrong.size = 9;
	ck_assert_int_eq(commit("a", &wrong), NEAP_STORE_INVALID_PARAMS);
	wrong.write_id = 0;
	ck_assert_int_eq(commit("a", &wrong), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(commit("a", &grant), 0); /* the record was kept */
}
END_TEST

START_TEST(write_commit_twice_at_once)
{
	struct neap_write_grant grant;
	struct result first = {0}, second = {0};
	ck_assert_int_eq(prewrite("a", 10, &grant), 0);
	struct neap_commit request = {.key = key("a"), .write_id = grant.write_id, .size = 10};
	ck_assert_int_eq(neap_owner_commit(owner, &request, on_committed, &first), 0);
	ck_assert_int_eq(neap_owner_commit(owner, &request, on_committed, &second), NEAP_STORE_REPLICA_IS_PROCESSING);
	ck_assert_int_eq(revoke("a", grant.write_id), NEAP_STORE_REPLICA_IS_PROCESSING);
	neap_owner_write_lost(owner, grant.write_id); /* the accessor has gone: its commit counts all the same */
	ck_assert(rig_until(&rig, &first.done));
	ck_assert_int_eq(first.error, 0);
	ck_assert(!second.done);
	ck_assert(exists("a"));
}
END_TEST

START_TEST(write_revoke_frees_the_key_and_is_idempotent)
{
	struct neap_write_grant grant, next;
	ck_assert_int_eq(revoke("a", 1), 0);
	ck_assert_int_eq(revoke("a", 0), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(revoke("", 1), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(prewrite("a", 10, &grant), 0);
	ck_assert_int_eq(revoke("a", grant.write_id), 0);
	ck_assert_uint_eq(stats().quarantined, 1);
	ck_assert_int_eq(prewrite("a", 10, &next), 0); /* other memory: the first may still be written to */
	ck_assert_ptr_ne(next.address, grant.address);
	ck_assert_uint_ne(next.write_id, grant.write_id);
	neap_owner_write_lost(owner, grant.write_id); /* too late for anything */
	settle();
	ck_assert_int_eq(revoke("a", grant.write_id), NEAP_STORE_INVALID_WRITE);
	ck_assert_int_eq(commit("a", &next), 0);
	ck_assert_uint_eq(stats().revokes, 1);
}
END_TEST

START_TEST(commit_after_revoke_is_refused)
{
	struct neap_write_grant grant;
	ck_assert_int_eq(prewrite("a", 10, &grant), 0);
	ck_assert_int_eq(revoke("a", grant.write_id), 0);
	ck_assert_int_eq(commit("a", &grant), NEAP_STORE_LEASE_EXPIRED);
	settle();
	ck_assert_int_eq(commit("a", &grant), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert(!exists("a"));
}
END_TEST

START_TEST(lost_accessor_frees_the_key)
{
	struct neap_write_grant grant, next;
	ck_assert_int_eq(prewrite("a", 10, &grant), 0);
	neap_owner_write_lost(owner, grant.write_id);
	ck_assert_uint_eq(stats().lost_writes, 1);
	ck_assert_int_eq(prewrite("a", 10, &next), 0);
	settle();
	neap_owner_write_lost(owner, grant.write_id); /* nothing of that id any more */
	ck_assert_int_eq(commit("a", &next), 0);
}
END_TEST

START_TEST(crc_is_kept_and_verified)
{
	struct neap_write_grant grant;
	struct neap_value value;
	struct result result;
	struct neap_key name = key("b");
	const uint64_t size = 3 * MIB / 2; /* more than one piece */
	uint32_t crc = 1;
	ck_assert_int_eq(prewrite("a", size, &grant), 0);
	memset(grant.address, 3, size);
	ck_assert_int_eq(commit_with("a", &grant, &crc, &result), NEAP_STORE_DATA_COPY_FAILED);
	ck_assert(!exists("a"));
	ck_assert_uint_eq(stats().wrong_sums, 1);
	ck_assert_int_eq(prewrite("b", size, &grant), 0);
	memset(grant.address, 3, size);
	crc = neap_crc32c(0, grant.address, size);
	ck_assert_int_eq(commit_with("b", &grant, &crc, &result), 0);
	ck_assert_int_eq(neap_owner_hold(owner, &name, &value), 0);
	ck_assert(value.has_crc);
	ck_assert_uint_eq(value.crc, crc);
	neap_handle_drop(value.handle);
}
END_TEST

static bool has_expired(void)
{
	return stats().expired_writes + stats().expired_pins > 0;
}

static void until_expired(void)
{
	for (int i = 0; i < 100000 && !has_expired(); i++)
		ck_assert_int_gt(neap_reactor_run_once(rig.reactor, NULL), 0);
	ck_assert(has_expired());
}

static void setup_short(void)
{
	begin((struct neap_owner_options){.lease_ns = 2 * MS, .scan_interval_ns = MS}, 8 * MIB);
}

START_TEST(expired_write_frees_the_key)
{
	struct neap_write_grant grant, next;
	ck_assert_int_eq(prewrite("a", 10, &grant), 0);
	until_expired();
	ck_assert_uint_eq(stats().expired_writes, 1);
	ck_assert_int_eq(commit("a", &grant), stats().quarantined ? NEAP_STORE_LEASE_EXPIRED : NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(prewrite("a", 10, &next), 0);
	ck_assert_uint_ne(next.write_id, grant.write_id);
}
END_TEST

/* The clock has gone on, but no timer has fired yet: whoever asks sees it. */
START_TEST(expiry_is_seen_in_the_foreground)
{
	struct neap_write_grant grant, next;
	struct neap_read_grant read;
	put_copy("p");
	ck_assert_int_eq(pin("p", &read), 0);
	ck_assert_int_eq(prewrite("a", 10, &grant), 0);
	ck_assert_int_eq(prewrite("b", 10, &next), 0);
	ck_assert_int_eq(prewrite("c", 10, &next), 0);
	uint64_t until_ns = neap_reactor_refresh(rig.reactor) + 5 * MS;
	while (neap_reactor_refresh(rig.reactor) < until_ns)
		;
	ck_assert_uint_eq(stats().expired_writes, 0); /* no turn, no timer */
	ck_assert_int_eq(commit("a", &grant), NEAP_STORE_LEASE_EXPIRED);
	ck_assert_int_eq(revoke("b", 1), NEAP_STORE_LEASE_EXPIRED);
	ck_assert_int_eq(prewrite("c", 10, &next), 0);
	ck_assert_uint_eq(stats().expired_writes, 3);
	ck_assert_int_eq(unpin("p", read.read_id), NEAP_STORE_LEASE_EXPIRED);
}
END_TEST

/* --- pins */

START_TEST(pins_are_each_readers_own)
{
	struct neap_read_grant first, second;
	ck_assert_int_eq(pin("a", &first), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(pin("", &first), NEAP_STORE_INVALID_PARAMS);
	put("a", 9, 1000);
	put("b", 8, 1000);
	ck_assert_int_eq(pin("a", &first), 0);
	ck_assert_int_eq(pin("a", &second), 0);
	ck_assert_uint_ne(first.read_id, second.read_id);
	ck_assert_ptr_eq(first.address, second.address);
	ck_assert(only(first.address, 9, 1000));
	ck_assert_int_eq(unpin("b", first.read_id), NEAP_STORE_INVALID_READ);
	ck_assert_int_eq(unpin("a", 0), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(unpin("a", first.read_id), 0);
	ck_assert_int_eq(unpin("a", first.read_id), 0); /* a repeated one takes nobody else's */
	ck_assert_uint_eq(stats().unpins, 1);
	neap_owner_pin_lost(owner, first.read_id);
	for (int i = 0; i < 1000 && stats().pins > 1; i++)
		rig_turn(&rig);
	ck_assert_uint_eq(stats().pins, 1);
	neap_owner_pin_lost(owner, second.read_id);
	settle();
	ck_assert_int_eq(unpin("a", second.read_id), 0);
	ck_assert_uint_eq(stats().lost_pins, 1);
}
END_TEST

/* A value that is removed while somebody reads it: its bytes stay until the reader can read no more, and a new value is another one. */
START_TEST(removed_while_pinned)
{
	struct neap_read_grant old, new;
	put("a", 1, MIB);
	ck_assert_int_eq(pin("a", &old), 0);
	ck_assert_int_eq(remove_key("a"), 0);
	ck_assert_int_eq(remove_key("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert(!exists("a"));
	put("a", 2, MIB);
	ck_assert_int_eq(pin("a", &new), 0);
	ck_assert_ptr_ne(old.address, new.address);
	ck_assert_uint_ne(old.generation, new.generation);
	ck_assert(only(old.address, 1, MIB));
	ck_assert_int_eq(unpin("a", old.read_id), 0);
	ck_assert_int_eq(unpin("a", new.read_id), 0);
	settle();
}
END_TEST

START_TEST(expired_pin_lets_go)
{
	struct neap_read_grant grant;
	put_copy("a");
	ck_assert_int_eq(pin("a", &grant), 0);
	until_expired();
	settle();
	ck_assert_uint_eq(stats().expired_pins, 1);
	ck_assert_int_eq(unpin("a", grant.read_id), 0);
	ck_assert(exists("a"));
}
END_TEST

/* --- full */

START_TEST(evicts_what_nobody_holds)
{
	struct neap_read_grant grant;
	char name[16];
	put("held", 1, MIB);
	ck_assert_int_eq(pin("held", &grant), 0);
	for (int i = 0; i < 50; i++) {
		snprintf(name, sizeof name, "k%d", i);
		put(name, i, MIB / 2);
		holds();
	}
	ck_assert_uint_gt(stats().evicted, 20);
	ck_assert(exists("held"));
	ck_assert(only(grant.address, 1, MIB));
	ck_assert_int_eq(unpin("held", grant.read_id), 0);
	settle();
}
END_TEST

START_TEST(full_of_pending_writes)
{
	struct neap_write_grant grants[33];
	char name[16];
	int error = 0, count = 0;
	for (; count < 33 && !error; count++) {
		snprintf(name, sizeof name, "k%d", count);
		error = prewrite(name, 1000, &grants[count]);
	}
	ck_assert_int_eq(error, NEAP_STORE_NO_AVAILABLE_HANDLE); /* writes_max is 32 */
	ck_assert_int_eq(count, 33);
	ck_assert_uint_eq(stats().pending, 32);
	ck_assert(!exists("k32"));
	holds();
}
END_TEST

/* --- moves */

static void on_moved(void *user, const struct neap_moved *moved)
{
	struct result *result = user;
	ck_assert(!result->done);
	result->done = true;
	result->moved = *moved;
	result->error = moved->error;
}

static void on_move_released(void *user)
{
	struct result *result = user;
	ck_assert(result->done && result->moved.held && !result->released);
	result->released = true;
}

static unsigned char theirs[3][70000];

static struct neap_move local_move(const char *name, struct neap_remote_slice slices[3])
{
	for (int i = 0; i < 3; i++)
		slices[i] = (struct neap_remote_slice){.address = (uintptr_t)theirs[i], .length = 20000 * (unsigned)(i + 1)};
	return (struct neap_move){.key = key(name), .slices = slices, .count = 3, .tier = NEAP_TIER_ANY};
}

START_TEST(pull_and_push)
{
	struct neap_remote_slice slices[3];
	struct neap_move move = local_move("a", slices);
	struct result result = {0};
	for (int i = 0; i < 3; i++)
		memset(theirs[i], i + 1, sizeof theirs[i]);
	ck_assert_int_eq(neap_owner_push(owner, &move, on_moved, NULL, &result), NEAP_STORE_OBJECT_NOT_FOUND);
	move.has_crc = true;
	move.crc = neap_crc32c(neap_crc32c(neap_crc32c(0, theirs[0], 20000), theirs[1], 40000), theirs[2], 60000);
	ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, NULL, &result, &retry), 0);
	ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, NULL, &result, &retry), NEAP_STORE_REPLICA_IS_PROCESSING);
	ck_assert(rig_until(&rig, &result.done));
	ck_assert_int_eq(result.error, 0);
	ck_assert_uint_eq(result.moved.size, 120000);
	ck_assert_uint_eq(result.moved.generation, last_generation);
	ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, NULL, &result, &retry), NEAP_STORE_OBJECT_ALREADY_EXISTS);
	memset(theirs, 0, sizeof theirs);
	result = (struct result){0};
	ck_assert_int_eq(neap_owner_push(owner, &move, on_moved, NULL, &result), 0);
	ck_assert(rig_until(&rig, &result.done));
	ck_assert_int_eq(result.error, 0);
	ck_assert_uint_eq(result.moved.crc, move.crc);
	for (int i = 0; i < 3; i++)
		ck_assert(only(theirs[i], i + 1, 20000 * (unsigned)(i + 1)));
	slices[2].length--;
	ck_assert_int_eq(neap_owner_push(owner, &move, on_moved, NULL, &result), NEAP_STORE_INVALID_PARAMS);
	ck_assert_uint_eq(stats().pulled_bytes, 120000);
	ck_assert_uint_eq(stats().pushed_bytes, 120000);
}
END_TEST

START_TEST(pull_with_a_wrong_sum_leaves_no_key)
{
	struct neap_remote_slice slices[3];
	struct neap_move move = local_move("a", slices);
	struct result result = {0};
	move.has_crc = true;
	move.crc = 1;
	ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, NULL, &result, &retry), 0);
	ck_assert(rig_until(&rig, &result.done));
	ck_assert_int_eq(result.error, NEAP_STORE_DATA_COPY_FAILED);
	ck_assert(!exists("a"));
	holds();
}
END_TEST

/* An accessor that came over the RPC and is of this very process: what it has lent is read until it takes it back, and no byte later. */
START_TEST(lent_by_this_process_and_taken_back)
{
	static unsigned char lent[MIB];
	uint8_t instance[16];
	struct neap_memory memory = {.address = lent, .length = sizeof lent, .access = NEAP_GRANT_ONLY};
	struct neap_remote_slice slice = {.segment = neap_engine_name(rig.engine), .address = (uintptr_t)lent, .length = sizeof lent};
	neap_engine_instance(rig.engine, instance);
	ck_assert_int_eq(neap_memory_register(rig.engine, &memory, 1, NULL, NULL, 0), 0);
	for (int taken_back = 0; taken_back < 2; taken_back++) {
		const char *key = taken_back ? "late" : "early";
		struct neap_move move = {.key = {key, (uint32_t)strlen(key)}, .slices = &slice, .count = 1, .tier = NEAP_TIER_ANY};
		struct result result = {0};
		ck_assert_int_eq(neap_grant_create(rig.engine, lent, sizeof lent, NEAP_MAY_READ, instance, &slice.token), 0);
		ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, NULL, &result, &retry), 0);
		if (taken_back)
			ck_assert_int_eq(neap_grant_end(rig.engine, &slice.token, NULL, NULL), 0);
		ck_assert(rig_until(&rig, &result.done));
		ck_assert_int_eq(result.error, taken_back ? NEAP_STORE_TRANSFER_FAIL : 0);
		ck_assert_int_eq(exists(key), !taken_back);
	}
	holds();
}
END_TEST

START_TEST(moves_are_validated)
{
	struct neap_remote_slice slices[3];
	struct neap_move move = local_move("a", slices);
	struct result result = {0};
	move.count = 0;
	ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, NULL, &result, &retry), NEAP_STORE_INVALID_PARAMS);
	move.count = NEAP_MOVE_SLICES_MAX + 1;
	ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, NULL, &result, &retry), NEAP_STORE_INVALID_PARAMS);
	move.count = 3;
	slices[1].address = 0;
	ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, NULL, &result, &retry), NEAP_STORE_INVALID_PARAMS);
	slices[1].address = 4096;
	slices[1].length = 0;
	ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, NULL, &result, &retry), NEAP_STORE_INVALID_PARAMS);
	slices[1].length = UINT64_MAX;
	ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, NULL, &result, &retry), NEAP_STORE_INVALID_PARAMS);
	slices[1].length = 5;
	slices[2].segment = "elsewhere";
	ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, NULL, &result, &retry), NEAP_STORE_INVALID_PARAMS);
}
END_TEST

/* Of the peer's segment: the fake transport says how it goes. */
static struct neap_move remote_move(const char *name, struct neap_remote_slice slices[2])
{
	for (int i = 0; i < 2; i++)
		slices[i] = (struct neap_remote_slice){.segment = neap_engine_name(rig.peer), .address = 4096, .length = 1000};
	return (struct neap_move){.key = key(name), .slices = slices, .count = 2, .tier = NEAP_TIER_ANY};
}

static void until_submitted(uint32_t count)
{
	for (int i = 0; i < 1000 && rig.fake->count < count; i++)
		rig_turn(&rig);
	ck_assert_uint_eq(rig.fake->count, count);
}

START_TEST(pull_from_a_peer_fails_or_holds)
{
	struct neap_remote_slice slices[2];
	struct neap_move move = remote_move("a", slices);
	struct result result = {0};
	bool held = _i == 1;
	ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, on_move_released, &result, &retry), 0);
	until_submitted(2);
	fake_complete(rig.fake, fake_slice(rig.fake, 0));
	neap_slice_begun(fake_slice(rig.fake, 0));
	fake_end(rig.fake, fake_slice(rig.fake, 0), NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_NO_PROGRESS, 0, held);
	ck_assert(rig_until(&rig, &result.done));
	ck_assert_int_eq(result.error, NEAP_STORE_TRANSFER_FAIL);
	ck_assert_int_eq(result.moved.outcome.cause, NEAP_CAUSE_NO_PROGRESS);
	ck_assert(result.moved.held == held);
	ck_assert(!exists("a"));
	ck_assert_uint_eq(tiers.tiers[0].tier.counts.handles, held); /* its memory waits for the transport */
	if (held) {
		put("a", 4, 1000); /* the key does not */
		fake_release(rig.fake, rig.fake->held[0]);
		ck_assert(rig_until(&rig, &result.released));
	}
	holds();
}
END_TEST

START_TEST(push_to_a_peer)
{
	struct neap_remote_slice slices[2];
	struct neap_move move = remote_move("a", slices);
	struct result result = {0};
	put("a", 4, 2000);
	ck_assert_int_eq(neap_owner_push(owner, &move, on_moved, NULL, &result), 0);
	until_submitted(2);
	ck_assert_int_eq(remove_key("a"), 0); /* under way: its bytes stay */
	fake_complete_all(rig.fake);
	ck_assert(rig_until(&rig, &result.done));
	ck_assert_int_eq(result.error, 0);
	ck_assert_uint_eq(tiers.tiers[0].tier.counts.handles, 0);
}
END_TEST

START_TEST(pull_from_nobody)
{
	struct neap_remote_slice slices[2];
	struct neap_move move = remote_move("a", slices);
	struct result result = {0};
	slices[0].segment = slices[1].segment = _i ? "127.0.0.1:1" : "not a name\001";
	ck_assert_int_eq(neap_owner_pull(owner, &move, on_moved, NULL, &result, &retry), 0);
	ck_assert(rig_until(&rig, &result.done));
	ck_assert_int_eq(result.error, NEAP_STORE_TRANSFER_FAIL);
	ck_assert_int_ne(result.moved.outcome.error, 0);
	ck_assert(!exists("a"));
	holds();
}
END_TEST

/* --- many keys */

START_TEST(against_a_plain_list)
{
	enum { NAMES = 300, STEPS = 20000 };
	static bool there[NAMES];
	static uint64_t sizes[NAMES];
	char name[200];
	uint32_t random = 1;
	uint64_t generation;
	for (int i = 0; i < STEPS; i++) {
		random = random * 1664525u + 1013904223u;
		uint32_t n = (random >> 8) % NAMES;
		memset(name, 'x', sizeof name);
		snprintf(name + (n % 3) * 60, 20, "%u", n); /* short ones, and some that are kept outside */
		struct neap_key of = key(name);
		ck_assert_int_eq(neap_owner_exists(owner, &of), there[n]);
		if (random >> 30 == 0) {
			ck_assert_int_eq(neap_owner_remove(owner, &of), there[n] ? 0 : NEAP_STORE_OBJECT_NOT_FOUND);
			there[n] = false;
		} else {
			struct neap_copy copy = {.key = of, .bytes = theirs, .size = 1 + n, .tier = NEAP_TIER_ANY};
			int error = neap_owner_put_copy(owner, &copy, &generation, &retry);
			ck_assert_int_eq(error, there[n] ? NEAP_STORE_OBJECT_ALREADY_EXISTS : 0);
			there[n] = true;
			sizes[n] = 1 + n;
		}
		if (i % 1000 == 0)
			holds();
	}
	struct neap_owner_cursor cursor = {0};
	struct neap_owner_value value;
	uint64_t seen = 0, expected = 0, bytes = 0, expected_bytes = 0;
	while (neap_owner_next(owner, &cursor, &value)) {
		seen++;
		bytes += value.size;
	}
	for (int n = 0; n < NAMES; n++) {
		expected += there[n];
		expected_bytes += there[n] ? sizes[n] : 0;
	}
	ck_assert_uint_eq(seen, expected);
	ck_assert_uint_eq(bytes, expected_bytes);
}
END_TEST

/* Values come and go while the walk stands still: what was there all the time is seen. */
START_TEST(a_walk_sees_what_stays)
{
	enum { STAYING = 120, PASSING = 400 };
	bool seen[STAYING] = {false};
	struct neap_owner_cursor cursor = {0};
	struct neap_owner_value value;
	uint32_t random = 7, steps = 0;
	char name[32];
	for (int i = 0; i < STAYING; i++) {
		snprintf(name, sizeof name, "stays %d", i);
		put_copy(name);
	}
	while (neap_owner_next(owner, &cursor, &value)) {
		int number;
		snprintf(name, sizeof name, "%.*s", (int)value.key.length, value.key.bytes);
		if (sscanf(name, "stays %d", &number) == 1)
			seen[number] = true;
		random = random * 1664525u + 1013904223u;
		snprintf(name, sizeof name, "passes %u", (random >> 8) % PASSING);
		struct neap_key of = key(name);
		if (neap_owner_remove(owner, &of) == NEAP_STORE_OBJECT_NOT_FOUND && steps < 3 * PASSING)
			put_copy(name);
		ck_assert_uint_lt(++steps, 100000);
	}
	for (int i = 0; i < STAYING; i++)
		ck_assert_msg(seen[i], "value %d was there all the time and not seen", i);
}
END_TEST

START_TEST(closing_ends_everything)
{
	struct neap_write_grant write;
	struct neap_read_grant read;
	put("a", 1, 1000);
	ck_assert_int_eq(pin("a", &read), 0);
	ck_assert_int_eq(prewrite("b", 1000, &write), 0);
	bool closed = false;
	neap_owner_close(owner, set, &closed);
	ck_assert_int_eq(prewrite("c", 10, &write), NEAP_STORE_SHUTTING_DOWN);
	ck_assert_int_eq(pin("a", &read), NEAP_STORE_SHUTTING_DOWN);
	ck_assert(rig_until(&rig, &closed));
}
END_TEST

static void add_writes(TCase *writes)
{
	tcase_add_test(writes, put_and_get);
	tcase_add_test(writes, pre_write_rejects_what_cannot_be);
	tcase_add_test(writes, pre_write_rejects_concurrent_lease);
	tcase_add_test(writes, write_commit_repeated_is_ok_and_unknown_is_not);
	tcase_add_test(writes, write_commit_checks_id_and_size);
	tcase_add_test(writes, write_commit_twice_at_once);
	tcase_add_test(writes, write_revoke_frees_the_key_and_is_idempotent);
	tcase_add_test(writes, commit_after_revoke_is_refused);
	tcase_add_test(writes, lost_accessor_frees_the_key);
	tcase_add_test(writes, crc_is_kept_and_verified);
	tcase_add_test(writes, pins_are_each_readers_own);
	tcase_add_test(writes, removed_while_pinned);
	tcase_add_test(writes, evicts_what_nobody_holds);
	tcase_add_test(writes, full_of_pending_writes);
}

int main(void)
{
	Suite *suite = suite_create("owner");
	TCase *writes = tcase_create("writes and pins"), *leases = tcase_create("leases"), *moves = tcase_create("moves");
	tcase_add_checked_fixture(writes, setup, teardown);
	add_writes(writes);
	tcase_add_checked_fixture(leases, setup_short, teardown);
	tcase_add_test(leases, expired_write_frees_the_key);
	tcase_add_test(leases, expiry_is_seen_in_the_foreground);
	tcase_add_test(leases, expired_pin_lets_go);
	tcase_add_checked_fixture(moves, setup, teardown);
	tcase_add_test(moves, pull_and_push);
	tcase_add_test(moves, pull_with_a_wrong_sum_leaves_no_key);
	tcase_add_test(moves, lent_by_this_process_and_taken_back);
	tcase_add_test(moves, moves_are_validated);
	tcase_add_loop_test(moves, pull_from_a_peer_fails_or_holds, 0, 2);
	tcase_add_test(moves, push_to_a_peer);
	tcase_add_loop_test(moves, pull_from_nobody, 0, 2);
	tcase_add_test(moves, against_a_plain_list);
	tcase_add_test(moves, a_walk_sees_what_stays);
	tcase_add_test(moves, closing_ends_everything);
	suite_add_tcase(suite, writes);
	suite_add_tcase(suite, leases);
	suite_add_tcase(suite, moves);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
