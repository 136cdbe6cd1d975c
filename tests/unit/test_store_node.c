/* Stores and a master: the public API, over everything that is below it. */
#include "tests/unit/store_rig.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rig_store *a, *b, *c;

static void setup(void)
{
	const struct neap_store_options far = {.placement = {.remote_weight = 1, .set = true}};
	rig_open();
	rig_master_start(true);
	a = rig_store_start(&far, true); /* never keeps what it puts */
	b = rig_store_start(NULL, true);
	c = rig_store_start(NULL, false); /* owns nothing */
	ck_assert(rig_until(&a->ready, 5000) && rig_until(&b->ready, 5000) && rig_until(&c->ready, 5000));
	ck_assert_int_eq(a->ready_error | b->ready_error | c->ready_error, 0);
}

static void teardown(void)
{
	rig_holds();
	rig_close();
}

static const uint64_t sizes[] = {1, 2, 100, 4096, 16384, 16385, 65536, 65537, 300000, 900000, 3000000 /* more than a slab */};
#define SIZES (sizeof sizes / sizeof sizes[0])
static const enum neap_direction directions[] = {NEAP_REVERSE, NEAP_FORWARD};

START_TEST(every_size_from_every_store)
{
	struct rig_store *stores[] = {a, b, c};
	char key[32];
	for (unsigned i = 0; i < SIZES; i++)
		for (unsigned from = 0; from < 3; from++) {
			snprintf(key, sizeof key, "k%u-%u", i, from);
			if (sizes[i] > 1000000)
				rig_for(300); /* the pins of what was removed are told: what is beyond the quarantine's limit goes into an empty one */
			rig_must_put(stores[from], key, sizes[i], i, directions[_i & 1]);
			for (unsigned to = 0; to < 3; to++) /* at once: a put that has succeeded is to be got everywhere */
				rig_must_get(stores[to], key, sizes[i], i, directions[_i >> 1]);
			ck_assert_int_eq(rig_remove(stores[(from + 1) % 3], key, NULL), 0);
		}
	rig_holds();
}
END_TEST

START_TEST(where_values_go)
{
	struct rig_outcome outcome;
	struct neap_store_numbers numbers;
	rig_must_put(a, "from a", 20000, 1, NEAP_REVERSE); /* b is the only other owner */
	neap_store_numbers(b->store, &numbers);
	ck_assert_uint_eq(numbers.keys, 1);
	rig_put(b, &outcome, "from b", 20000, 2, NEAP_REVERSE); /* below the waterline: stays */
	ck_assert(outcome.outcome.created && outcome.outcome.local);
	neap_store_numbers(b->store, &numbers);
	ck_assert_uint_eq(numbers.keys, 2);
	rig_get(b, &outcome, "from b", 30000, NEAP_REVERSE);
	ck_assert(outcome.outcome.status == NEAP_STORE_SUCCESS && outcome.outcome.local);
	rig_get(a, &outcome, "from b", 30000, NEAP_REVERSE);
	ck_assert(outcome.outcome.status == NEAP_STORE_SUCCESS && !outcome.outcome.local);
}
END_TEST

START_TEST(the_first_writer_wins)
{
	struct rig_store *stores[] = {a, b, c};
	struct rig_outcome outcome;
	rig_must_put(stores[_i], "k", 50000, 1, NEAP_REVERSE);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned way = 0; way < 2; way++) {
			rig_put(stores[i], &outcome, "k", 50000, 1, directions[way]);
			ck_assert_msg(outcome.outcome.status == NEAP_STORE_SUCCESS, "%s", outcome.why);
			ck_assert(!outcome.outcome.created);
			ck_assert_uint_eq(outcome.outcome.size, 50000);
			rig_put(stores[i], &outcome, "k", 50000, 2, directions[way]); /* other bytes */
			ck_assert_int_eq(outcome.outcome.status, NEAP_STORE_FAILED);
			ck_assert_int_eq(outcome.outcome.error, NEAP_STORE_OBJECT_ALREADY_EXISTS);
			rig_put(stores[i], &outcome, "k", 50001, 1, directions[way]); /* another size */
			ck_assert_int_eq(outcome.outcome.error, NEAP_STORE_OBJECT_ALREADY_EXISTS);
		}
	for (unsigned i = 0; i < 3; i++)
		rig_must_get(stores[i], "k", 50000, 1, NEAP_FORWARD);
}
END_TEST

/* Two put one key at the same time, each would keep it: one value is left, and both are told the truth. */
START_TEST(two_writers_at_once)
{
	const struct neap_store_options near = {.placement = {.remote_weight = 0, .local_write_waterline = 1, .set = true}};
	struct rig_store *d = rig_store_start(&near, true);
	ck_assert(rig_until(&d->ready, 5000));
	for (unsigned i = 0; i < 40; i++) {
		struct rig_outcome one, two;
		const struct neap_put_options options = {.checksum = true, .direction = directions[i & 1]};
		bool same = i % 3 == 0;
		char key[32];
		snprintf(key, sizeof key, "k%u", i);
		rig_put_begin(b, &one, key, 30000, i, &options);
		sim_run_for(rig.sim, i * 3000);
		rig_put_begin(d, &two, key, 30000, same ? i : i + 1000, &options);
		rig_await(&one);
		rig_await(&two);
		unsigned created = one.outcome.created + two.outcome.created;
		ck_assert_msg(created == 1, "%u of two writers have created the value: %s; %s", created, one.why, two.why);
		if (same)
			ck_assert(one.outcome.status == NEAP_STORE_SUCCESS && two.outcome.status == NEAP_STORE_SUCCESS);
		else
			ck_assert_int_ne(one.outcome.status, two.outcome.status);
		rig_must_get(a, key, 30000, same || one.outcome.created ? i : i + 1000, NEAP_REVERSE);
	}
	rig_for(100);
	struct neap_store_numbers at_b, at_d;
	neap_store_numbers(b->store, &at_b);
	neap_store_numbers(d->store, &at_d);
	ck_assert_uint_eq(at_b.keys + at_d.keys, 40); /* what lost is gone */
}
END_TEST

/* A put that finds another's value in its own process, which then loses to a third: it is judged by what the key has in the end. */
START_TEST(judged_by_the_value_that_stays)
{
	const struct neap_store_options near = {.placement = {.remote_weight = 0, .local_write_waterline = 1, .set = true}};
	struct rig_store *d = rig_store_start(&near, true);
	struct rig_outcome first, second, third;
	const struct neap_put_options options = {.checksum = true};
	ck_assert(rig_until(&d->ready, 5000));
	rig_put_begin(b, &first, "k", 30000, 1, &options);
	rig_put_begin(d, &second, "k", 20000, 2, &options);
	sim_run_for(rig.sim, 2000); /* both are in their own processes by now */
	rig_put_begin(_i ? d : b, &third, "k", 30000, 1, &options); /* the memory that second puts from is another's */
	rig_await(&first);
	rig_await(&second);
	rig_await(&third);
	ck_assert_uint_eq(first.outcome.created + second.outcome.created, 1);
	bool same = first.outcome.created;
	ck_assert_msg((third.outcome.status == NEAP_STORE_SUCCESS) == same, "%s", third.why);
	ck_assert(!third.outcome.created);
}
END_TEST

/* --- keys --------------------------------------------------------------------------------------------------------------------- */

START_TEST(removed_everywhere_and_put_anew)
{
	struct rig_outcome outcome;
	uint64_t removed;
	rig_must_put(b, "k", 40000, 1, NEAP_REVERSE);
	rig_must_get(c, "k", 40000, 1, NEAP_FORWARD); /* its route is remembered */
	ck_assert_int_eq(rig_remove(_i ? a : b, "k", &removed), 0);
	ck_assert_uint_eq(removed, 1);
	rig_put(c, &outcome, "k", 30000, 2, directions[_i]); /* at once, whatever the directory still thinks */
	ck_assert_msg(outcome.outcome.status == NEAP_STORE_SUCCESS && outcome.outcome.created, "%s", outcome.why);
	rig_must_get(a, "k", 30000, 2, NEAP_REVERSE);
	rig_must_get(c, "k", 30000, 2, NEAP_REVERSE);
	ck_assert_int_eq(rig_remove(c, "k", &removed), 0);
	rig_for(100);
	ck_assert_int_eq(rig_remove(c, "k", &removed), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(rig_exists(a, "k"), 0);
	rig_get(a, &outcome, "k", 40000, NEAP_REVERSE);
	ck_assert_int_eq(outcome.outcome.error, NEAP_STORE_OBJECT_NOT_FOUND);
}
END_TEST

struct listing {
	bool done;
	uint32_t count;
	int error;
	uint64_t next;
};

static void on_listed(void *user, int error, const struct neap_key *keys, uint32_t count, uint64_t next, const char *why)
{
	struct listing *listing = user;
	ck_assert((error == 0) == (*why == '\0'));
	for (uint32_t i = 0; i < count; i++)
		ck_assert(keys[i].length >= 3 && memcmp(keys[i].bytes, "one", 3) == 0);
	listing->done = true;
	listing->count += count;
	listing->error = error;
	listing->next = next;
}

static void on_swept(void *user, int error, uint64_t removed, const char *why)
{
	struct listing *listing = user;
	ck_assert((error == 0) == (*why == '\0'));
	listing->done = true;
	listing->error = error;
	listing->count = (uint32_t)removed;
}

START_TEST(listed_and_removed_by_pattern)
{
	enum { KEYS = 700 };
	struct listing listing = {0}, swept = {0};
	char key[32];
	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(key, sizeof key, "%s/%u", i % 2 ? "one" : "other", i);
		rig_must_put(i % 3 ? a : b, key, 50, i, NEAP_REVERSE);
	}
	do {
		listing.done = false;
		ck_assert_int_eq(neap_store_list(c->store, "^one/", listing.next, 0, on_listed, &listing), 0);
		ck_assert(rig_until(&listing.done, 5000));
		ck_assert_int_eq(listing.error, 0);
	} while (listing.next);
	ck_assert_uint_eq(listing.count, KEYS / 2);
	ck_assert_int_eq(neap_store_remove_matching(c->store, "^one/", 0, on_swept, &swept), 0);
	ck_assert_int_eq(neap_store_remove_matching(c->store, "^one/", 0, on_swept, &swept), NEAP_EAGAIN);
	ck_assert(rig_until(&swept.done, 20000));
	ck_assert_int_eq(swept.error, 0);
	ck_assert_uint_eq(swept.count, KEYS / 2);
	rig_for(200);
	ck_assert_int_eq(rig_exists(a, "one/1"), 0);
	ck_assert_int_eq(rig_exists(a, "other/0"), 1);
	swept = (struct listing){0};
	ck_assert_int_eq(neap_store_remove_matching(b->store, "", 0, on_swept, &swept), 0);
	ck_assert(rig_until(&swept.done, 20000));
	ck_assert_int_eq(swept.error, 0);
	ck_assert_uint_eq(swept.count, KEYS / 2);
	listing = (struct listing){0};
	ck_assert_int_eq(neap_store_list(c->store, "(", 0, 0, on_listed, &listing), 0);
	ck_assert(rig_until(&listing.done, 5000));
	ck_assert_int_eq(listing.error, NEAP_STORE_INVALID_PARAMS);
}
END_TEST

struct stat_result {
	bool done;
	int error;
	uint32_t count;
	struct neap_store_replica first;
};

static void on_stat(void *user, int error, const struct neap_store_replica *replicas, uint32_t count, const char *why)
{
	struct stat_result *result = user;
	(void)why;
	result->done = true;
	result->error = error;
	result->count = count;
	if (count)
		result->first = replicas[0];
}

START_TEST(what_is_known_of_a_key)
{
	struct stat_result result = {0};
	struct neap_key k = rig_key("k"), none = rig_key("none");
	rig_must_put(a, "k", 12345, 1, NEAP_FORWARD);
	ck_assert_int_eq(neap_store_stat(b->store, &k, 0, on_stat, &result), 0);
	ck_assert(rig_until(&result.done, 5000));
	ck_assert_int_eq(result.error, 0);
	ck_assert_uint_eq(result.count, 1);
	ck_assert_uint_eq(result.first.size, 12345);
	ck_assert(result.first.in_memory && result.first.local && result.first.priority == 10 && result.first.has_crc);
	ck_assert_str_eq(result.first.place.rpc, "10.0.0.3:4000");
	result = (struct stat_result){0};
	ck_assert_int_eq(neap_store_stat(b->store, &none, 0, on_stat, &result), 0);
	ck_assert(rig_until(&result.done, 5000));
	ck_assert_int_eq(result.error, NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(neap_store_stat(b->store, &(struct neap_key){"", 0}, 0, on_stat, &result), NEAP_EINVAL);
}
END_TEST

/* --- the master goes and comes ------------------------------------------------------------------------------------------------- */

static bool is_full(void *user)
{
	struct rig_store *store = user;
	return neap_store_health(store->store) == NEAP_STORE_FULL;
}

START_TEST(a_master_that_forgot_everything)
{
	struct rig_outcome outcome;
	char key[32];
	for (unsigned i = 0; i < 200; i++) {
		snprintf(key, sizeof key, "k%u", i);
		rig_must_put(i % 2 ? c : b, key, 1000, i, NEAP_REVERSE);
	}
	rig_master_crash();
	rig_for(6000);
	ck_assert_int_eq(neap_store_health(b->store), NEAP_STORE_DEGRADED);
	rig_must_get(c, "k7", 1000, 7, NEAP_REVERSE); /* where it was put is remembered */
	rig_master_start(false);
	ck_assert(rig_until_true(is_full, a, 30000) && rig_until_true(is_full, b, 30000));
	for (unsigned i = 0; i < 200; i++) {
		snprintf(key, sizeof key, "k%u", i);
		rig_must_get(c, key, 1000, i, directions[i & 1]);
		rig_put(c, &outcome, key, 1000, i + 1, NEAP_REVERSE); /* no second version of a key */
		ck_assert_int_ne(outcome.outcome.status, NEAP_STORE_SUCCESS);
	}
}
END_TEST

/* One client is silent, so the master does not know yet what else there is: what it lists and removes is not said to be all. */
START_TEST(not_all_is_known_while_the_master_recovers)
{
	const struct neap_store_options near = {.placement = {.remote_weight = 0, .local_write_waterline = 1, .set = true}};
	struct listing listing = {0}, swept = {0};
	char key[32];
	struct rig_store *d = NULL;
	for (unsigned i = 0; i < 20; i++) {
		if (i == 10) {
			d = rig_store_start(&near, true);
			ck_assert(rig_until(&d->ready, 5000));
		}
		snprintf(key, sizeof key, "one/%u", i);
		rig_must_put(d ? d : a, key, 1000, i, NEAP_REVERSE); /* at itself; at b */
	}
	rig_store_crash(b);
	rig_master_crash();
	rig_for(6000);
	ck_assert_int_eq(neap_store_health(d->store), NEAP_STORE_DEGRADED);
	rig_master_start(false);
	ck_assert(rig_until_true(is_full, a, 20000) && rig_until_true(is_full, d, 20000));
	ck_assert_int_eq(neap_store_list(c->store, "", 0, 0, on_listed, &listing), 0);
	ck_assert(rig_until(&listing.done, 5000));
	ck_assert_int_eq(listing.error, NEAP_STORE_REPLICA_IS_NOT_READY);
	ck_assert_uint_eq(listing.count, 10);
	ck_assert_int_eq(neap_store_remove_matching(c->store, "", 0, on_swept, &swept), 0);
	ck_assert(rig_until(&swept.done, 5000));
	ck_assert_int_eq(swept.error, NEAP_STORE_REPLICA_IS_NOT_READY);
	ck_assert_uint_eq(swept.count, listing.count);
	rig_for(40000); /* it has given the silent one up */
	listing = (struct listing){0};
	ck_assert_int_eq(neap_store_list(c->store, "", 0, 0, on_listed, &listing), 0);
	ck_assert(rig_until(&listing.done, 5000));
	ck_assert_int_eq(listing.error, 0);
	ck_assert_uint_eq(listing.count, 0);
}
END_TEST

static bool is_degraded(void *user)
{
	struct rig_store *store = user;
	return neap_store_health(store->store) == NEAP_STORE_DEGRADED;
}

/* It has no heartbeats and asks for nothing. */
START_TEST(a_store_without_tiers_knows_whether_the_master_is_there)
{
	ck_assert(rig_until_true(is_full, c, 5000));
	rig_master_crash();
	ck_assert(rig_until_true(is_degraded, c, 10000));
	rig_master_start(false);
	ck_assert(rig_until_true(is_full, c, 10000));
}
END_TEST

START_TEST(no_master_yet)
{
	rig_master_crash();
	struct rig_store *d = rig_store_start(NULL, true);
	struct rig_outcome outcome;
	ck_assert(rig_until(&d->ready, 8000));
	ck_assert_int_ne(d->ready_error, 0);
	rig_get(d, &outcome, "k", 100, NEAP_REVERSE);
	ck_assert_int_eq(outcome.outcome.status, NEAP_STORE_FAILED);
	ck_assert_int_ne(outcome.outcome.error, NEAP_STORE_OBJECT_NOT_FOUND); /* nobody can know */
	rig_put(d, &outcome, "k", 100, 1, NEAP_REVERSE);
	ck_assert_int_eq(outcome.outcome.status, NEAP_STORE_UNKNOWN); /* it is here, and nobody has been told */
	rig_master_start(true);
	ck_assert(rig_until_true(is_full, d, 30000) && rig_until_true(is_full, c, 30000));
	rig_must_get(c, "k", 100, 1, NEAP_REVERSE);
}
END_TEST

/* --- owners go ----------------------------------------------------------------------------------------------------------------- */

START_TEST(an_owner_that_died)
{
	struct rig_outcome outcome;
	rig_must_put(a, "k", 60000, 1, NEAP_REVERSE); /* at b */
	rig_must_get(c, "k", 60000, 1, NEAP_REVERSE);
	rig_store_crash(b);
	rig_get(c, &outcome, "k", 60000, directions[_i]);
	ck_assert_int_eq(outcome.outcome.status, NEAP_STORE_FAILED);
	rig_for(40000); /* the directory has given it up */
	rig_get(c, &outcome, "k", 60000, directions[_i]);
	ck_assert_int_eq(outcome.outcome.error, NEAP_STORE_OBJECT_NOT_FOUND);
	rig_must_put(c, "k", 50000, 2, directions[_i]); /* at a */
	rig_must_get(c, "k", 50000, 2, directions[_i]);
}
END_TEST

static void on_drained(void *user, int error)
{
	struct rig_store *store = user;
	store->drained = true;
	store->drain_error = error;
}

START_TEST(drained_and_closed)
{
	struct rig_outcome outcome;
	rig_must_put(a, "k", 60000, 1, NEAP_REVERSE);
	ck_assert_int_eq(neap_store_drain(b->store, 10000, on_drained, b), 0);
	ck_assert_int_eq(neap_store_drain(b->store, 10000, on_drained, b), NEAP_ECLOSED);
	ck_assert_int_eq(neap_store_health(b->store), NEAP_STORE_DRAINING);
	ck_assert(rig_until(&b->drained, 11000));
	ck_assert_int_eq(b->drain_error, 0);
	rig_must_put(b, "own", 60000, 2, NEAP_FORWARD); /* our own operations go on: it is put at a */
	rig_get(c, &outcome, "k", 60000, NEAP_REVERSE);
	ck_assert_int_eq(outcome.outcome.error, NEAP_STORE_OBJECT_NOT_FOUND);
	rig_store_close(b);
	rig_must_get(c, "own", 60000, 2, NEAP_REVERSE);
}
END_TEST

/* A reservation of a peer that was stopped keeps the drain waiting; its deadline, or a close, ends that. */
START_TEST(drained_too_late)
{
	const struct neap_put_options options = {.direction = NEAP_FORWARD};
	struct rig_outcome outcome;
	rig_put_begin(a, &outcome, "k", 900000, 1, &options);
	sim_run_for(rig.sim, 300000);
	sim_node_pause(a->node, 3000 * MS);
	sim_run_for(rig.sim, 300000);
	ck_assert_int_eq(neap_store_drain(b->store, _i ? 5000 : 100, on_drained, b), 0);
	if (_i)
		rig_store_close(b);
	ck_assert(rig_until(&b->drained, 200));
	ck_assert_int_eq(b->drain_error, _i ? NEAP_ECANCELED : NEAP_ETIMEDOUT);
	rig_await(&outcome);
	ck_assert_int_ne(outcome.outcome.status, NEAP_STORE_SUCCESS); /* nobody else could take it */
}
END_TEST

/* What cannot be done in this process is done as if it were another's. */
START_TEST(no_room_for_a_copy_here)
{
	struct rig_outcome outcomes[16];
	rig.batches_max = 4;
	struct rig_store *d = rig_store_start(NULL, true);
	unsigned good = 0;
	char key[32];
	ck_assert(rig_until(&d->ready, 5000));
	for (unsigned i = 0; i < 16; i++) {
		const struct neap_put_options options = {.direction = directions[i & 1]};
		snprintf(key, sizeof key, "k%u", i);
		rig_put_begin(d, &outcomes[i], key, 300000, 1, &options);
	}
	for (unsigned i = 0; i < 16; i++) {
		rig_await(&outcomes[i]);
		good += outcomes[i].outcome.status == NEAP_STORE_SUCCESS;
	}
	ck_assert_uint_ge(good, 4);
	for (unsigned i = 0; i < 16; i++) {
		const struct neap_get_options options = {.direction = directions[i & 1]};
		snprintf(key, sizeof key, "k%u", i);
		rig_get_begin(d, &outcomes[i], key, 300000, &options);
	}
	for (unsigned i = 0; i < 16; i++)
		rig_await(&outcomes[i]);
}
END_TEST

/* Its caller has enough of waiting for a directory that does not answer: what is here stays, and is settled later. */
START_TEST(canceled_while_nobody_was_told)
{
	struct rig_outcome outcome, outcome_of_get, resolved = {0};
	neap_operation_id operation;
	struct neap_key key = rig_key("k");
	struct neap_slice_of slice = {b->memory, _i ? 200000 : 2000};
	rig_master_crash();
	outcome = (struct rig_outcome){0};
	rig_fill(b->memory, slice.length, 3);
	ck_assert_int_eq(neap_store_put(b->store, &key, &slice, 1, NULL, rig_done, &outcome, &operation), 0);
	rig_for(200);
	ck_assert(!outcome.done);
	neap_store_cancel(b->store, operation);
	ck_assert(rig_until(&outcome.done, 1000));
	ck_assert_int_eq(outcome.outcome.status, NEAP_STORE_UNKNOWN);
	rig_get(b, &outcome_of_get, "k", slice.length, NEAP_REVERSE); /* nobody reads what may be a second version */
	ck_assert_int_eq(outcome_of_get.outcome.status, NEAP_STORE_FAILED);
	ck_assert_int_eq(neap_store_resolve(b->store, &key, &outcome.unsettled, 3000 * MS, rig_done, &resolved, NULL), 0);
	rig_await(&resolved);
	ck_assert_int_eq(resolved.outcome.status, NEAP_STORE_UNKNOWN);
	rig_master_start(true);
	ck_assert(rig_until_true(is_full, b, 30000));
	resolved = (struct rig_outcome){0};
	ck_assert_int_eq(neap_store_resolve(b->store, &key, &outcome.unsettled, 0, rig_done, &resolved, NULL), 0);
	rig_await(&resolved);
	ck_assert_msg(resolved.outcome.status == NEAP_STORE_SUCCESS, "%s", resolved.why);
	rig_must_get(b, "k", slice.length, 3, NEAP_REVERSE);
}
END_TEST

/* The time of a put is over, or its caller has enough, while the value is being copied: it is here then, and FAILED would be a lie. */
START_TEST(late_while_it_was_copied)
{
	const struct neap_put_options options = {.deadline_ns = 50 * MS};
	struct rig_outcome outcome = {0};
	struct neap_key key = rig_key("k");
	struct neap_slice_of slice = {b->memory, 3000000};
	neap_operation_id operation;
	rig_master_crash();
	rig_fill(b->memory, slice.length, 3);
	ck_assert_int_eq(neap_store_put(b->store, &key, &slice, 1, _i ? NULL : &options, rig_done, &outcome, &operation), 0);
	sim_run_for(rig.sim, 1000); /* a few turns, and each copies a piece */
	if (_i)
		neap_store_cancel(b->store, operation);
	else
		sim_node_pause(b->node, 100 * MS);
	ck_assert(rig_until(&outcome.done, 1000));
	ck_assert_msg(outcome.outcome.status == NEAP_STORE_UNKNOWN, "%d: %s", outcome.outcome.status, outcome.why);
	rig_master_start(true);
	ck_assert(rig_until_true(is_full, b, 30000));
	rig_for(3000);
	rig_must_get(b, "k", slice.length, 3, NEAP_REVERSE);
}
END_TEST

struct batch_end {
	uint32_t told, canceled, succeeded, count;
	bool finished;
};

static void batch_item_done(void *user, uint32_t index, void *item_user, const struct neap_store_outcome *outcome)
{
	struct batch_end *end = user;
	ck_assert_uint_eq(index, (uint32_t)(uintptr_t)item_user);
	ck_assert(!outcome->held);
	end->told++;
	end->canceled += outcome->status != NEAP_STORE_SUCCESS && outcome->error == NEAP_ECANCELED;
}

static void batch_finished(void *user, uint32_t succeeded, uint32_t count)
{
	struct batch_end *end = user;
	ck_assert_uint_eq(end->told, count);
	end->succeeded = succeeded;
	end->count = count;
	end->finished = true;
}

/* Each item ends once; what is said to be there can be got, also in a batch. */
START_TEST(a_batch_is_canceled)
{
	enum { ITEMS = 40, SIZE = 20000 };
	struct neap_batch_item items[ITEMS];
	struct neap_slice_of from[ITEMS], to[ITEMS];
	struct batch_end put = {0}, got = {0};
	struct neap_store_batch_options options = {.concurrency = 4, .done = batch_item_done, .finished = batch_finished, .user = &put};
	char keys[ITEMS][8];
	uint64_t batch;
	for (uint32_t i = 0; i < ITEMS; i++) {
		snprintf(keys[i], sizeof keys[i], "k%u", i);
		from[i] = (struct neap_slice_of){a->memory + i * SIZE, SIZE};
		to[i] = (struct neap_slice_of){a->memory + RIG_MEMORY / 2 + i * SIZE, SIZE};
		rig_fill(from[i].address, SIZE, i);
		items[i] = (struct neap_batch_item){rig_key(keys[i]), &from[i], 1, (void *)(uintptr_t)i};
	}
	ck_assert_int_eq(neap_store_put_batch(a->store, items, ITEMS, &options, &batch), 0);
	while (put.told < 8)
		sim_run_for(rig.sim, 1000);
	neap_store_cancel_batch(a->store, batch);
	ck_assert(rig_until(&put.finished, 5000));
	ck_assert_uint_ge(put.canceled, ITEMS - 16);
	ck_assert_uint_ge(put.succeeded, 4);
	neap_store_cancel_batch(a->store, batch); /* harmless */
	rig_for(200);
	options.user = &got;
	for (uint32_t i = 0; i < ITEMS; i++)
		items[i].slices = &to[i];
	ck_assert_int_eq(neap_store_get_batch(a->store, items, ITEMS, &options, &batch), 0);
	ck_assert(rig_until(&got.finished, 5000));
	ck_assert_uint_ge(got.succeeded, put.succeeded);
	for (uint32_t i = 0; i < ITEMS; i++)
		if (rig_exists(b, keys[i]) == 1)
			ck_assert(rig_filled(to[i].address, SIZE, i));
}
END_TEST

START_TEST(refused_in_this_process)
{
	struct rig_outcome outcome;
	struct neap_key key = rig_key("k");
	const struct neap_put_options wrong = {.has_crc = true, .crc = 1};
	uint64_t length = _i ? 200000 : 2000;
	struct neap_slice_of slice = {b->memory, length};
	outcome = (struct rig_outcome){0};
	ck_assert_int_eq(neap_store_put(b->store, &key, &slice, 1, &wrong, rig_done, &outcome, NULL), 0);
	rig_await(&outcome);
	ck_assert_int_eq(outcome.outcome.status, NEAP_STORE_FAILED);
	ck_assert_int_eq(outcome.outcome.error, NEAP_STORE_DATA_COPY_FAILED);
	ck_assert_int_eq(rig_exists(a, "k"), 0);
	rig_must_put(b, "k", length, 1, NEAP_REVERSE);
	rig_get(b, &outcome, "k", length - 1, NEAP_REVERSE);
	ck_assert_int_eq(outcome.outcome.error, NEAP_STORE_BUFFER_OVERFLOW);
	ck_assert_uint_eq(outcome.outcome.size, length);
	rig_put(b, &outcome, "large", 1000000, 1, NEAP_REVERSE); /* more than a place has is somebody else's, or nobody's */
	ck_assert_int_eq(outcome.outcome.status, NEAP_STORE_SUCCESS);
}
END_TEST

/* Whatever is under way when a store closes ends, once. */
START_TEST(closed_in_the_middle)
{
	struct rig_outcome put[4], get[4];
	struct listing listing = {0};
	struct stat_result result = {0};
	struct neap_key k = rig_key("k0");
	char key[32];
	for (unsigned i = 0; i < 4; i++) {
		snprintf(key, sizeof key, "k%u", i);
		rig_must_put(a, key, 200000, i, NEAP_REVERSE);
	}
	for (unsigned i = 0; i < 4; i++) {
		const struct neap_put_options put_options = {.direction = directions[i & 1]};
		const struct neap_get_options get_options = {.direction = directions[i & 1]};
		snprintf(key, sizeof key, "n%u", i);
		rig_put_begin(c, &put[i], key, 200000, i, &put_options);
		snprintf(key, sizeof key, "k%u", i);
		rig_get_begin(c, &get[i], key, 200000, &get_options);
	}
	sim_run_for(rig.sim, (uint64_t)_i * 60000);
	ck_assert_int_eq(neap_store_stat(c->store, &k, 0, on_stat, &result), 0);
	ck_assert_int_eq(neap_store_list(c->store, "^one", 0, 0, on_listed, &listing), 0);
	rig_store_close(c);
	ck_assert(result.done && listing.done);
	for (unsigned i = 0; i < 4; i++)
		ck_assert(put[i].done && get[i].done);
	ck_assert_int_eq(neap_engine_close(a->engine, NULL, NULL), NEAP_EBUSY); /* a store is open on it */
}
END_TEST

/* The same of the owner: a value that it is still taking in is there when it has half gone. */
START_TEST(an_owner_closes_in_the_middle)
{
	struct rig_outcome put[4];
	char key[32];
	for (unsigned i = 0; i < 4; i++) {
		const struct neap_put_options options = {.direction = NEAP_REVERSE};
		snprintf(key, sizeof key, "n%u", i);
		rig_put_begin(a, &put[i], key, 200000 + 100000 * i, i, &options); /* at b */
	}
	sim_run_for(rig.sim, (uint64_t)_i * 40000);
	rig_store_close(b);
	for (unsigned i = 0; i < 4; i++)
		rig_await(&put[i]);
}
END_TEST

START_TEST(a_cluster_of_one)
{
	const struct neap_store_options alone = {.master = ""};
	struct rig_store *d = rig_store_start(&alone, true);
	struct rig_outcome outcome;
	ck_assert(rig_until(&d->ready, 5000));
	ck_assert_int_eq(d->ready_error, 0);
	ck_assert_int_eq(neap_store_health(d->store), NEAP_STORE_LOCAL_ONLY);
	for (unsigned i = 0; i < SIZES; i++) {
		char key[32];
		snprintf(key, sizeof key, "k%u", i);
		rig_must_put(d, key, sizes[i], i, directions[i & 1]);
		rig_must_get(d, key, sizes[i], i, directions[i >> 1 & 1]);
		ck_assert_int_eq(rig_exists(d, key), 1);
	}
	rig_get(d, &outcome, "none", 100, NEAP_REVERSE);
	ck_assert_int_eq(outcome.outcome.error, NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(rig_remove(d, "k1", NULL), 0);
	ck_assert_int_eq(rig_remove(d, "k1", NULL), NEAP_STORE_OBJECT_NOT_FOUND);
	rig_put(d, &outcome, "k2", 99, 1, NEAP_REVERSE);
	ck_assert_int_eq(outcome.outcome.error, NEAP_STORE_OBJECT_ALREADY_EXISTS);
}
END_TEST

/* A full store evicts, and says so: the directory follows. */
START_TEST(more_than_fits)
{
	struct rig_outcome outcome;
	struct neap_store_numbers numbers;
	unsigned got = 0, missed = 0;
	char key[32];
	for (unsigned i = 0; i < 100; i++) {
		snprintf(key, sizeof key, "k%u", i);
		rig_must_put(a, key, 200000, i, directions[i & 1]);
	}
	rig_for(200);
	neap_store_numbers(b->store, &numbers);
	ck_assert_uint_gt(numbers.evicted, 0);
	for (unsigned i = 0; i < 100; i++) {
		snprintf(key, sizeof key, "k%u", i);
		rig_get(c, &outcome, key, 200000, directions[i & 1]);
		if (outcome.outcome.status == NEAP_STORE_SUCCESS) {
			ck_assert(rig_filled(c->memory + RIG_MEMORY / 2, 200000, i));
			got++;
		} else {
			ck_assert_int_eq(outcome.outcome.error, NEAP_STORE_OBJECT_NOT_FOUND);
			missed++;
		}
	}
	ck_assert_uint_eq(got, numbers.keys);
	ck_assert_uint_eq(missed, 100 - numbers.keys);
}
END_TEST

/* --- options ------------------------------------------------------------------------------------------------------------------- */

static const struct {
	struct neap_store_options options;
	int error;
	const char *says;
} bad[] = {
	{{.lease_ms = 5}, NEAP_EINVAL, "lease_ms is 5; it may be 100 to"},
	{{.lock_shards = 3}, NEAP_EINVAL, "power of two"},
	{{.master = "10.0.0.1"}, NEAP_EINVAL, "host:port"},
	{{.bind_address = "nowhere"}, NEAP_EINVAL, "numeric"},
	{{.placement = {.remote_weight = 2}}, NEAP_EINVAL, "remote_weight is 2"},
	{{.placement = {.local_write_waterline = -1}}, NEAP_EINVAL, "local_write_waterline is -1"},
	{{.tiers = "{\"tiers\":[]}"}, NEAP_EJSON, "tiers"},
	{{.tiers = "{\"tiers\":[{\"type\":\"DRAM\",\"capacity\":\"8MB\"}]}"}, NEAP_EJSON, "priority"},
	{{.rpc_port = 15100}, NEAP_ESOCKET, "rpc_port"},
	{{.inline_max = 1u << 20}, NEAP_EINVAL, "inline_max"},
};

START_TEST(options_that_cannot_be)
{
	struct neap_store *store = (struct neap_store *)&store;
	struct neap_store_options options = bad[_i].options;
	char why[400];
	if (!options.tiers)
		options.tiers = RIG_TIERS;
	int error = neap_store_create(&store, c->engine, &options, why, sizeof why);
	ck_assert_msg(error == bad[_i].error, "%d: %s", error, why);
	ck_assert(!store);
	ck_assert_msg(strstr(why, bad[_i].says), "%s", why);
	rig_for(100);
}
END_TEST

static void count_metric(void *user, const struct neap_metric *metric)
{
	unsigned *count = user;
	ck_assert(metric->name && metric->help && metric->labels);
	ck_assert((metric->kind == NEAP_METRIC_HISTOGRAM) == (metric->histogram != NULL));
	if (strcmp(metric->name, "neap_store_keys") == 0)
		ck_assert_uint_eq(metric->value, 1);
	++*count;
}

START_TEST(figures)
{
	unsigned count = 0;
	rig_must_put(a, "k", 1000, 1, NEAP_REVERSE);
	neap_store_metrics(b->store, count_metric, &count);
	ck_assert_uint_gt(count, 60);
	ck_assert_str_eq(neap_store_health_name(neap_store_health(b->store)), "FULL");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stores and a master");
	TCase *cluster = tcase_create("cluster"), *options = tcase_create("options");
	tcase_add_checked_fixture(cluster, setup, teardown);
	tcase_set_timeout(cluster, 60);
	tcase_add_loop_test(cluster, every_size_from_every_store, 0, 4);
	tcase_add_test(cluster, where_values_go);
	tcase_add_loop_test(cluster, the_first_writer_wins, 0, 3);
	tcase_add_test(cluster, two_writers_at_once);
	tcase_add_loop_test(cluster, judged_by_the_value_that_stays, 0, 2);
	tcase_add_loop_test(cluster, removed_everywhere_and_put_anew, 0, 2);
	tcase_add_test(cluster, listed_and_removed_by_pattern);
	tcase_add_test(cluster, not_all_is_known_while_the_master_recovers);
	tcase_add_test(cluster, a_store_without_tiers_knows_whether_the_master_is_there);
	tcase_add_test(cluster, what_is_known_of_a_key);
	tcase_add_test(cluster, a_master_that_forgot_everything);
	tcase_add_test(cluster, no_master_yet);
	tcase_add_loop_test(cluster, an_owner_that_died, 0, 2);
	tcase_add_test(cluster, drained_and_closed);
	tcase_add_loop_test(cluster, drained_too_late, 0, 2);
	tcase_add_test(cluster, no_room_for_a_copy_here);
	tcase_add_loop_test(cluster, canceled_while_nobody_was_told, 0, 2);
	tcase_add_loop_test(cluster, late_while_it_was_copied, 0, 2);
	tcase_add_test(cluster, a_batch_is_canceled);
	tcase_add_loop_test(cluster, refused_in_this_process, 0, 2);
	tcase_add_loop_test(cluster, closed_in_the_middle, 0, 12);
	tcase_add_loop_test(cluster, an_owner_closes_in_the_middle, 0, 20);
	tcase_add_test(cluster, a_cluster_of_one);
	tcase_add_test(cluster, more_than_fits);
	tcase_add_test(cluster, figures);
	suite_add_tcase(suite, cluster);
	tcase_add_checked_fixture(options, setup, teardown);
	tcase_add_loop_test(options, options_that_cannot_be, 0, sizeof bad / sizeof bad[0]);
	suite_add_tcase(suite, options);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
