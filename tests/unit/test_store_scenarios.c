/* What users of such stores have suffered from, done to a cluster in the simulator; docs/SCENARIOS.md lists them. And a crash or a pause of each
 * process after every step of a put and of a get. */
#include "reactor/core.h"
#include "store/peer/methods.h"
#include "store/rpc/client.h"
#include "tests/unit/store_rig.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rig_store *a, *b, *c;
static const enum neap_direction directions[] = {NEAP_REVERSE, NEAP_FORWARD};

/* Only b owns. */
static void setup_with(uint64_t lease_ms)
{
	const struct neap_store_options owner = {.lease_ms = lease_ms, .scan_interval_ms = 100, .placement = {.remote_weight = 1, .set = true}};
	rig_open();
	rig_master_start(true);
	a = rig_store_start(NULL, false);
	b = rig_store_start(&owner, true);
	c = rig_store_start(NULL, false);
	ck_assert(rig_until(&a->ready, 5000) && rig_until(&b->ready, 5000) && rig_until(&c->ready, 5000));
}

static void setup(void)
{
	setup_with(500);
}

static void teardown(void)
{
	rig_holds();
	rig_close();
}

static struct neap_store_numbers numbers_of(const struct rig_store *store)
{
	struct neap_store_numbers numbers;
	neap_store_numbers(store->store, &numbers);
	return numbers;
}

static bool all_quiet(void *user)
{
	struct neap_store_numbers numbers = numbers_of(user);
	return numbers.pending_writes + numbers.pins + numbers.quarantined_writes == 0 && numbers.quarantined_bytes == 0;
}

/* --- reservations that nobody commits -------------------------------------------------------------------------------------------- */

static uint32_t granted, refused;

static void reserved(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	(void)user;
	(void)reply;
	granted += outcome->result == NEAP_RPC_OK;
	refused += outcome->result == NEAP_RPC_REFUSED;
}

START_TEST(orphans_are_only_memory_and_end)
{
	struct neap_rpc_client_options client_options = {.channels_max = 1, .calls_max = 2048};
	struct neap_rpc_channel_options channel_options = {.server = {.host = "10.0.0.3", .port = 4000, .has_port = true}, .lane = 9};
	struct neap_rpc_client *client;
	struct neap_rpc_channel *channel;
	uint8_t instance[16];
	neap_engine_instance(a->engine, instance);
	memcpy(client_options.instance, instance, sizeof instance);
	granted = refused = 0;
	ck_assert_int_eq(neap_rpc_client_create(&client, a->node->reactor, &client_options), 0);
	ck_assert_int_eq(neap_rpc_channel_open(&channel, client, &channel_options), 0);
	for (unsigned i = 0; i < 1000; i++) {
		char text[32];
		struct pre_write request = {.key = {text, (uint32_t)snprintf(text, sizeof text, "orphan/%u", i)}, .size_bytes = 100,
		                            .engine = {(const char *)instance, sizeof instance}};
		ck_assert_int_eq(neap_rpc_call(channel, &neap_method_pre_write, &request, 5000 * MS, NULL, reserved, NULL, NULL), 0);
	}
	rig_for(100);
	ck_assert_uint_eq(granted + refused, 1000);
	ck_assert_uint_ge(granted, 900);
	ck_assert_uint_eq(numbers_of(b).pending_writes, granted);
	for (unsigned i = 0; i < 20; i++) { /* others do not notice */
		char key[32];
		snprintf(key, sizeof key, "normal/%u", i);
		rig_must_put(c, key, 20000, i, directions[i & 1]);
		rig_must_get(c, key, 20000, i, directions[i >> 1 & 1]);
	}
	ck_assert(rig_until_true(all_quiet, b, 2000)); /* their leases are over, all their memory is free */
	neap_rpc_client_destroy(client);
}
END_TEST

/* --- leases that run out ----------------------------------------------------------------------------------------------------------- */

/* A read takes longer than its lease; meanwhile its value is removed and its memory has another. What comes is the value, whole, or an error. */
START_TEST(a_lease_runs_out_while_reading)
{
	struct rig_outcome outcome;
	const struct neap_get_options options = {.direction = directions[_i], .no_verify = true};
	rig_must_put(c, "k", 800000, 1, NEAP_FORWARD);
	rig_get_begin(a, &outcome, "k", 800000, &options);
	rig_for(2);
	sim_node_pause(a->node, 2000 * MS);
	rig_for(1);
	ck_assert_int_eq(rig_remove(c, "k", NULL), 0);
	for (unsigned i = 0; i < 9; i++) { /* all of its memory is used again as soon as it may be */
		char key[32];
		snprintf(key, sizeof key, "other/%u", i);
		struct rig_outcome put;
		rig_put(c, &put, key, 800000, 100 + i, NEAP_FORWARD);
	}
	rig_await(&outcome);
	if (outcome.outcome.status == NEAP_STORE_SUCCESS)
		ck_assert(rig_filled(a->memory + RIG_MEMORY / 2, 800000, 1));
	rig_for(2000);
	for (unsigned i = 0; i < 9; i++) {
		char key[32];
		struct rig_outcome get;
		snprintf(key, sizeof key, "other/%u", i);
		rig_get(c, &get, key, 800000, NEAP_REVERSE);
		if (get.outcome.status == NEAP_STORE_SUCCESS)
			ck_assert(rig_filled(c->memory + RIG_MEMORY / 2, 800000, 100 + i));
	}
	ck_assert(rig_until_true(all_quiet, b, 3000));
}
END_TEST

/* An accessor is stopped in the middle of its write for many leases. The memory goes to others, and what it sends when it wakes touches
 * nothing. */
START_TEST(an_accessor_wakes_after_its_lease)
{
	struct rig_outcome outcome;
	const struct neap_put_options options = {.direction = NEAP_FORWARD};
	rig_put_begin(a, &outcome, "k", 900000, 1, &options);
	sim_run_for(rig.sim, 200000 + (uint64_t)_i * 150000);
	sim_node_pause(a->node, 7000 * MS);
	rig_for(1500); /* three leases */
	for (unsigned i = 0; i < 9; i++) {
		char key[32];
		snprintf(key, sizeof key, "other/%u", i);
		rig_must_put(c, key, 800000, 100 + i, directions[i & 1]);
	}
	rig_await(&outcome);
	rig_for(1000);
	for (unsigned i = 5; i < 9; i++) {
		char key[32];
		struct rig_outcome get;
		snprintf(key, sizeof key, "other/%u", i);
		rig_get(c, &get, key, 800000, NEAP_FORWARD);
		ck_assert_msg(get.outcome.status != NEAP_STORE_SUCCESS || rig_filled(c->memory + RIG_MEMORY / 2, 800000, 100 + i),
		              "a late write has landed in %s", key);
	}
	rig_get(c, &outcome, "k", 900000, NEAP_REVERSE); /* it was through before it was stopped, or tried again; and perhaps evicted */
	if (outcome.outcome.status == NEAP_STORE_SUCCESS)
		ck_assert(rig_filled(c->memory + RIG_MEMORY / 2, 900000, 1));
	else
		ck_assert_int_eq(outcome.outcome.error, NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert(rig_until_true(all_quiet, b, 3000));
}
END_TEST

/* --- one key ------------------------------------------------------------------------------------------------------------------------ */

static const uint64_t race_sizes[] = {1, 5000, 200000, 3000000};

START_TEST(two_writers_one_key)
{
	for (unsigned round = 0; round < 60; round++) {
		struct rig_outcome one, two, get;
		uint64_t size = race_sizes[round % 4];
		const struct neap_put_options options = {.direction = directions[round & 1], .checksum = true};
		rig_put_begin(a, &one, "k", size, 2 * round, &options);
		sim_run_for(rig.sim, round * 7000);
		rig_put_begin(c, &two, "k", size, 2 * round + 1, &options);
		rig_get(c, &get, "k", size, directions[round >> 1 & 1]); /* whole, or not at all */
		if (get.outcome.status == NEAP_STORE_SUCCESS)
			ck_assert(rig_filled(c->memory + RIG_MEMORY / 2, size, 2 * round) ||
			          rig_filled(c->memory + RIG_MEMORY / 2, size, 2 * round + 1));
		rig_await(&one);
		rig_await(&two);
		ck_assert_msg(one.outcome.created + two.outcome.created == 1, "round %u: %s; %s", round, one.why, two.why);
		rig_must_get(c, "k", size, 2 * round + (one.outcome.created ? 0 : 1), NEAP_FORWARD);
		ck_assert_int_eq(rig_remove(round & 1 ? a : c, "k", NULL), 0);
		if (size > 1000000)
			rig_for(700);
	}
}
END_TEST

/* Put, remove and put again within the time that announcements wait for each other, over and over, with a master that restarts in between:
 * what the directory says in the end is what the owner has. */
START_TEST(put_removed_put_in_one_window)
{
	for (unsigned round = 0; round < 20; round++) {
		struct rig_outcome outcome;
		char key[32];
		snprintf(key, sizeof key, "k%u", round % 5);
		rig_put(a, &outcome, key, 3000, round, NEAP_REVERSE);
		bool first = outcome.outcome.status == NEAP_STORE_SUCCESS;
		int error = rig_remove(c, key, NULL);
		ck_assert(error == 0 || !first);
		if (round == 10) {
			rig_master_crash();
			rig_master_start(false);
			rig_for(40000); /* recovered */
		}
		rig_put(a, &outcome, key, 2000, round + 100, NEAP_REVERSE);
		ck_assert_msg(outcome.outcome.status == NEAP_STORE_SUCCESS && outcome.outcome.created, "round %u: %s", round, outcome.why);
		rig_for(50);
		ck_assert_int_eq(rig_exists(c, key), 1);
		rig_must_get(c, key, 2000, round + 100, directions[round & 1]);
		ck_assert_int_eq(rig_remove(a, key, NULL), 0);
		rig_for(50);
		ck_assert_int_eq(rig_exists(c, key), 0);
	}
}
END_TEST

/* --- after every step ------------------------------------------------------------------------------------------------------------------ */

enum victim { ACCESSOR, OWNER, MASTER, VICTIMS };

static bool is_full(void *user)
{
	return neap_store_health(((struct rig_store *)user)->store) == NEAP_STORE_FULL;
}

/* What happens to the victim, after so many events of the world. False: the operation had ended before. */
static bool strike(enum victim victim, bool pause, const struct rig_outcome *outcome, unsigned steps)
{
	for (unsigned i = 0; i < steps && !outcome->done; i++)
		if (!sim_step(rig.sim))
			break;
	if (outcome->done)
		return false;
	struct sim_node *node = victim == ACCESSOR ? a->node : victim == OWNER ? b->node : rig.masters[rig.master_count - 1].node;
	if (pause)
		sim_node_pause(node, 3000 * MS);
	else
		sim_node_crash(node, false);
	return true;
}

/* A put of `a`, to b, while something happens to the victim. Whatever is said of it is true, and the cluster goes on. */
static bool struck_put(enum victim victim, bool pause, enum neap_direction direction, unsigned steps)
{
	struct rig_outcome outcome, other;
	const struct neap_put_options options = {.direction = direction, .deadline_ns = 8000 * MS};
	setup();
	rig_put_begin(a, &outcome, "k", 100000, 1, &options);
	bool struck = strike(victim, pause, &outcome, steps);
	if (victim == MASTER && struck && !pause)
		rig_master_start(false);
	bool told = (victim != ACCESSOR || pause || !struck) && rig_until(&outcome.done, 60000);
	if (victim == OWNER && struck && !pause) {
		b = rig_store_start(&(struct neap_store_options){.lease_ms = 500, .placement = {.remote_weight = 1, .set = true}}, true);
		ck_assert(rig_until(&b->ready, 10000));
	}
	ck_assert(victim == OWNER || told || victim == ACCESSOR);
	rig_for(victim == MASTER && struck && !pause ? 40000 : 4000);
	ck_assert(rig_until_true(is_full, b, 60000));
	rig_get(c, &other, "k", 100000, direction);
	bool there = other.outcome.status == NEAP_STORE_SUCCESS, lost = victim == OWNER && struck && !pause;
	if (there)
		ck_assert_msg(rig_filled(c->memory + RIG_MEMORY / 2, 100000, 1), "wrong bytes, %u steps", steps);
	else if (!lost)
		ck_assert_msg(other.outcome.error == NEAP_STORE_OBJECT_NOT_FOUND, "%u steps: %s", steps, other.why);
	if (told && outcome.outcome.status == NEAP_STORE_SUCCESS && !lost)
		ck_assert_msg(there, "acknowledged, and not there: %u steps: %s", steps, other.why);
	if (told && outcome.outcome.status == NEAP_STORE_FAILED)
		ck_assert_msg(!there, "FAILED, and yet it is there: %u steps: %s", steps, outcome.why);
	if (!lost || there) { /* the key is not stuck */
		rig_put(c, &other, "k", 100000, 1, NEAP_REVERSE);
		ck_assert_msg(other.outcome.status == NEAP_STORE_SUCCESS, "%u steps: %s", steps, other.why);
	}
	ck_assert(rig_until_true(all_quiet, b, 5000));
	teardown();
	return struck;
}

static bool struck_get(enum victim victim, bool pause, enum neap_direction direction, unsigned steps)
{
	struct rig_outcome outcome, other;
	const struct neap_get_options options = {.direction = direction, .deadline_ns = 8000 * MS};
	setup();
	rig_must_put(c, "k", 100000, 1, NEAP_REVERSE);
	rig_get_begin(a, &outcome, "k", 100000, &options);
	bool struck = strike(victim, pause, &outcome, steps);
	if (victim == MASTER && struck && !pause)
		rig_master_start(false);
	bool told = (victim != ACCESSOR || pause || !struck) && rig_until(&outcome.done, 60000);
	if (told && outcome.outcome.status == NEAP_STORE_SUCCESS)
		ck_assert_msg(rig_filled(a->memory + RIG_MEMORY / 2, 100000, 1), "wrong bytes, %u steps", steps);
	if (told)
		ck_assert_msg(outcome.outcome.error != NEAP_STORE_OBJECT_NOT_FOUND, "%u steps: %s", steps, outcome.why);
	if (victim != OWNER || pause || !struck) {
		rig_for(victim == MASTER && struck && !pause ? 40000 : 4000);
		rig_get(c, &other, "k", 100000, direction);
		ck_assert_msg(other.outcome.status == NEAP_STORE_SUCCESS, "%u steps: %s", steps, other.why);
		ck_assert(rig_until_true(all_quiet, b, 5000));
	}
	teardown();
	return struck;
}

/* Every step with NEAP_FULL, otherwise some of them, others for each case. */
START_TEST(something_happens_after_every_step)
{
	enum victim victim = (enum victim)(_i % VICTIMS);
	bool pause = _i / VICTIMS & 1, get = _i / VICTIMS / 2 & 1;
	enum neap_direction direction = directions[_i / VICTIMS / 4 & 1];
	unsigned stride = getenv("NEAP_FULL") ? 1 : 53, struck = 0;
	for (unsigned steps = 1 + (unsigned)_i % stride;; steps += stride) {
		if (!(get ? struck_get : struck_put)(victim, pause, direction, steps))
			break;
		struck++;
		ck_assert_uint_lt(struck, 2000);
	}
	ck_assert_uint_gt(struck, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("the store's scenarios");
	TCase *scenarios = tcase_create("scenarios"), *steps = tcase_create("steps");
	tcase_add_checked_fixture(scenarios, setup, teardown);
	tcase_set_timeout(scenarios, 60);
	tcase_add_test(scenarios, orphans_are_only_memory_and_end);
	tcase_add_loop_test(scenarios, a_lease_runs_out_while_reading, 0, 2);
	tcase_add_loop_test(scenarios, an_accessor_wakes_after_its_lease, 0, 6);
	tcase_add_test(scenarios, two_writers_one_key);
	tcase_add_test(scenarios, put_removed_put_in_one_window);
	suite_add_tcase(suite, scenarios);
	tcase_set_timeout(steps, getenv("NEAP_FULL") ? 3600 : 120);
	tcase_add_loop_test(steps, something_happens_after_every_step, 0, VICTIMS * 8);
	suite_add_tcase(suite, steps);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
