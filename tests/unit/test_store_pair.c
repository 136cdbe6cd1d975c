/* An accessor and an owner, both the library's own, in the simulator: what one puts the other has, in both directions, whatever is cut. */
#include "store/accessor/accessor.h"
#include "tests/unit/peer_rig.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct neap_accessor *accessor;
static uint32_t stale;

static struct neap_route route(void)
{
	struct neap_route route = {0};
	memcpy(route.place.instance, rig.engine_instance, sizeof route.place.instance);
	snprintf(route.place.rpc, sizeof route.place.rpc, "10.0.0.2:%u", RIG_PORT);
	snprintf(route.place.engine, sizeof route.place.engine, "%s", neap_engine_name(rig.engine));
	return route;
}

static void candidates(void *directory, const struct neap_key *key, uint64_t size, neap_placed_func *answered, void *user, uint64_t question)
{
	struct neap_route only = route();
	(void)directory;
	(void)key;
	(void)size;
	answered(user, question, 0, &only, 1, "");
}

static void replicas(void *directory, const struct neap_key *key, neap_placed_func *answered, void *user, uint64_t question)
{
	struct neap_route only = route();
	(void)directory;
	(void)key;
	answered(user, question, 0, &only, 1, "");
}

static void report_stale(void *directory, const struct neap_key *key, const struct neap_route *which)
{
	(void)directory;
	(void)key;
	(void)which;
	stale++;
}

static const struct neap_places places = {.write_candidates = candidates, .replicas = replicas, .report_stale = report_stale};

static void setup(void)
{
	struct neap_accessor_options options = {.operations_max = 64, .deadline_ns = 20000 * MS};
	rig_open(NULL);
	stale = 0;
	ck_assert_int_eq(neap_accessor_create(&accessor, rig.peers[0].engine, &places, &options), 0);
}

static void teardown(void)
{
	bool closed = false;
	neap_accessor_close(accessor, rig_set, &closed);
	ck_assert(rig_until_set(&closed, 20000));
	rig_close();
}

/* --- one operation */

struct operation {
	bool done, released;
	struct neap_store_outcome outcome;
	struct neap_unsettled unsettled;
	char why[300];
};

static void on_done(void *user, const struct neap_store_outcome *outcome)
{
	struct operation *operation = user;
	ck_assert(!operation->done);
	operation->done = true;
	operation->outcome = *outcome;
	if (outcome->unsettled)
		operation->unsettled = *outcome->unsettled;
	snprintf(operation->why, sizeof operation->why, "%s", outcome->why);
}

static struct neap_key key_of(const char *text)
{
	return (struct neap_key){text, (uint32_t)strlen(text)};
}

/* The first half of the memory is what is put, the second what is got. */
static unsigned char *half(unsigned which)
{
	return rig.peers[0].memory + which * (RIG_MEMORY / 2);
}

static void cut_in_pieces(struct neap_slice_of slices[3], unsigned char *from, uint64_t size)
{
	uint64_t first = size / 3 + 1, second = (size - first) / 2 + (size > first + 1);
	slices[0] = (struct neap_slice_of){from, size < 3 ? size : first};
	slices[1] = (struct neap_slice_of){from + first, second};
	slices[2] = (struct neap_slice_of){from + first + second, size - first - second};
}

static void begin_put(struct operation *operation, const char *key, uint64_t size, enum neap_direction direction)
{
	struct neap_put_options options = {.direction = direction, .checksum = true};
	struct neap_slice_of slices[3];
	struct neap_key of = key_of(key);
	*operation = (struct operation){0};
	cut_in_pieces(slices, half(0), size);
	ck_assert_int_eq(neap_accessor_put(accessor, &of, slices, size < 3 ? 1 : 3, &options, on_done, operation, NULL), 0);
}

static void begin_get(struct operation *operation, const char *key, uint64_t size, enum neap_direction direction)
{
	struct neap_get_options options = {.direction = direction, .verify = true};
	struct neap_slice_of slice = {half(1), size};
	struct neap_key of = key_of(key);
	*operation = (struct operation){0};
	memset(half(1), 0xee, size);
	ck_assert_int_eq(neap_accessor_get(accessor, &of, &slice, 1, &options, on_done, operation, NULL), 0);
}

static void await(struct operation *operation)
{
	ck_assert_msg(rig_until_set(&operation->done, 60000), "an operation does not end");
}

static void put(const char *key, uint64_t size, unsigned seed, enum neap_direction direction)
{
	struct operation operation;
	rig_fill(half(0), size, seed);
	begin_put(&operation, key, size, direction);
	await(&operation);
	ck_assert_msg(operation.outcome.status == NEAP_STORE_SUCCESS, "put of %s: %d %s", key, operation.outcome.error, operation.why);
	ck_assert(operation.outcome.created);
	memset(half(0), 0x55, size); /* it is ours again */
}

static void get(const char *key, uint64_t size, unsigned seed, enum neap_direction direction)
{
	struct operation operation;
	begin_get(&operation, key, size, direction);
	await(&operation);
	ck_assert_msg(operation.outcome.status == NEAP_STORE_SUCCESS, "get of %s: %d %s", key, operation.outcome.error, operation.why);
	ck_assert_uint_eq(operation.outcome.size, size);
	ck_assert_msg(rig_filled(half(1), size, seed), "get of %s: wrong bytes reported as right", key);
}

static const uint64_t sizes[] = {1, 2, 100, 4096, 16384, 16385, 65536, 300000, 700000};
#define SIZES (sizeof sizes / sizeof sizes[0])
static const enum neap_direction directions[] = {NEAP_REVERSE, NEAP_FORWARD};

START_TEST(every_size_in_both_directions)
{
	char key[32];
	for (unsigned i = 0; i < SIZES; i++) {
		snprintf(key, sizeof key, "k%u", i);
		put(key, sizes[i], i, directions[_i & 1]);
		get(key, sizes[i], i, directions[_i >> 1]);
		rig_holds();
		struct neap_key of = key_of(key);
		ck_assert_int_eq(neap_owner_remove(rig.owner, &of), 0); /* room for the next */
	}
	ck_assert_uint_eq(stale, 0);
}
END_TEST

START_TEST(what_is_there_and_what_is_not)
{
	struct operation operation;
	begin_get(&operation, "absent", 100, directions[_i]);
	await(&operation);
	ck_assert_int_eq(operation.outcome.status, NEAP_STORE_FAILED);
	ck_assert_int_eq(operation.outcome.error, NEAP_STORE_OBJECT_NOT_FOUND);
	put("there", 50000, 1, directions[_i]);
	rig_fill(half(0), 50000, 1);
	begin_put(&operation, "there", 50000, directions[_i]);
	await(&operation);
	ck_assert_int_eq(operation.outcome.status, NEAP_STORE_SUCCESS);
	ck_assert(!operation.outcome.created);
	rig_fill(half(0), 50000, 2);
	begin_put(&operation, "there", 50000, directions[_i]);
	await(&operation);
	ck_assert_int_eq(operation.outcome.status, NEAP_STORE_FAILED); /* its sum is known to differ */
	ck_assert_int_eq(operation.outcome.error, NEAP_STORE_OBJECT_ALREADY_EXISTS);
	get("there", 50000, 1, directions[_i]);
}
END_TEST

/* A get at once after a put, many times: the reference returned wrong bytes here in some percent of rounds. */
START_TEST(put_then_get_at_once)
{
	char key[32];
	for (unsigned i = 0; i < 150; i++) {
		uint64_t size = 60000 + i;
		snprintf(key, sizeof key, "k%u", i);
		put(key, size, i, directions[_i & 1]);
		get(key, size, i, directions[_i >> 1]);
		struct neap_key of = key_of(key);
		ck_assert_int_eq(neap_owner_remove(rig.owner, &of), 0);
	}
	rig_for(300);
	struct neap_owner_stats stats = rig_owner_stats();
	ck_assert_uint_eq(stats.pins + stats.pending + stats.quarantined + stats.moves, 0); /* finished pins were told */
}
END_TEST

/* The connection for calls is cut after a time that differs each round. What is said of a put is true of the owner, and what is got is
 * right. */
START_TEST(cut_anywhere)
{
	unsigned succeeded = 0, failed = 0, unknown = 0;
	char key[32];
	for (unsigned i = 0; i < 60; i++) {
		const uint64_t size = 200000;
		enum neap_direction direction = directions[_i];
		struct operation operation;
		struct neap_key of;
		snprintf(key, sizeof key, "k%u", i);
		of = key_of(key);
		rig_fill(half(0), size, i);
		begin_put(&operation, key, size, direction);
		sim_run_for(rig.sim, (20 + 35 * (uint64_t)i) * 1000);
		for (unsigned cut = 0; cut < 4; cut++) /* of calls, of data, or neither */
			(void)sim_cut_one(rig.sim, rig.peers[0].node->host, 1, true);
		await(&operation);
		succeeded += operation.outcome.status == NEAP_STORE_SUCCESS;
		failed += operation.outcome.status == NEAP_STORE_FAILED;
		unknown += operation.outcome.status == NEAP_STORE_UNKNOWN;
		if (operation.outcome.status == NEAP_STORE_SUCCESS)
			get(key, size, i, direction);
		rig_for(6000); /* longer than a lease: what was left has ended */
		if (operation.outcome.status == NEAP_STORE_FAILED)
			ck_assert_msg(!neap_owner_exists(rig.owner, &of), "FAILED, and yet it became visible");
		rig_holds();
		(void)neap_owner_remove(rig.owner, &of);
	}
	ck_assert_uint_gt(succeeded, 0);
	(void)failed;
	(void)unknown;
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("an accessor and an owner");
	TCase *pair = tcase_create("pair");
	tcase_add_checked_fixture(pair, setup, teardown);
	tcase_set_timeout(pair, 60);
	tcase_add_loop_test(pair, every_size_in_both_directions, 0, 4);
	tcase_add_loop_test(pair, what_is_there_and_what_is_not, 0, 2);
	tcase_add_loop_test(pair, put_then_get_at_once, 0, 4);
	tcase_add_loop_test(pair, cut_anywhere, 0, 2);
	suite_add_tcase(suite, pair);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
