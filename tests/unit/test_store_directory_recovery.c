/* A directory that starts empty while values exist: it does not say NOT_FOUND before those who may have them were heard. */
#include "tests/unit/key_rig.h"

static struct neap_local_directory_options restarted(void)
{
	return (struct neap_local_directory_options){
		.keys_max = 1000, .epoch = 8, .client_ttl_ms = 1000, .crashed_ttl_ms = 3000, .announce_timeout_ms = 2000};
}

static void open_restarted(void)
{
	rig_open(restarted());
}

static int join_holding(uint64_t client, bool holds)
{
	struct neap_key_segment segment = segment_of(client, 10, MIB);
	struct waited waited = {.call.as.register_ = registration(client)};
	waited.call.as.register_.segments = &segment;
	waited.call.as.register_.segment_count = 1;
	waited.call.as.register_.holds = holds;
	int error = rig_call(&waited, NEAP_KEY_OP_REGISTER);
	ck_assert_uint_eq(waited.call.as.register_.epoch, 8);
	ck_assert(waited.call.as.register_.announce_all == holds);
	return error;
}

static struct neap_local_directory_stats stats(void)
{
	struct neap_local_directory_stats now;
	neap_local_directory_stats(rig.directory, &now);
	return now;
}

/* Heartbeats of client 1 for `ms`. */
static void live_on(uint64_t ms)
{
	for (; ms > 0; ms -= ms < 500 ? ms : 500) {
		(void)beat(1);
		rig_advance(ms < 500 ? ms : 500);
	}
}

START_TEST(a_miss_says_nothing_until_the_crashed_ttl_has_passed)
{
	ck_assert(stats().recovering);
	ck_assert_int_eq(join_holding(1, false), NEAP_OK);
	ck_assert_int_eq(look("a"), NEAP_STORE_REPLICA_IS_NOT_READY);
	ck_assert_int_eq(exists("a"), NEAP_STORE_REPLICA_IS_NOT_READY);
	ck_assert_int_eq(place("a", 1), NEAP_STORE_REPLICA_IS_NOT_READY);
	struct waited waited = {.call = {0}};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_COUNT), NEAP_OK);
	ck_assert(!waited.call.as.count.complete);
	live_on(2990); /* although nobody owes anything: never early */
	ck_assert_int_eq(look("a"), NEAP_STORE_REPLICA_IS_NOT_READY);
	live_on(20);
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(exists("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(place("a", 1), 1);
	ck_assert(!stats().recovering);
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_COUNT), NEAP_OK);
	ck_assert(waited.call.as.count.complete);
}
END_TEST

START_TEST(what_is_known_is_served_meanwhile)
{
	ck_assert_int_eq(join_holding(1, true), NEAP_OK);
	struct neap_key_stamp stamp = {7, 3};
	ck_assert_int_eq(add_stamped(1, 10, "a", &stamp), NEAP_OK);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_int_eq(exists("a"), NEAP_OK);
	ck_assert_int_eq(place("a", 1), NEAP_STORE_REPLICA_NUM_EXCEEDED);
}
END_TEST

/* Nobody can say yet whether a claim without a stamp is the first: it is put off, so that no second version is acknowledged. */
START_TEST(new_claims_wait)
{
	ck_assert_int_eq(join_holding(1, true), NEAP_OK);
	ck_assert_int_eq(join_holding(2, true), NEAP_OK);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_STORE_REPLICA_IS_NOT_READY);
	struct neap_key_stamp stamp = {7, 3};
	ck_assert_int_eq(add_stamped(2, 10, "a", &stamp), NEAP_OK);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_STORE_REPLICA_NUM_EXCEEDED);
	/* the owner itself may add to what it is known to have */
	ck_assert_int_eq(do_mount(2, 20, MIB), NEAP_OK);
	ck_assert_int_eq(add(2, 20, "a"), NEAP_OK);
	ck_assert_int_eq(add(1, 10, "b"), NEAP_STORE_REPLICA_IS_NOT_READY);
	ck_assert_int_eq(round_end(1, round_begin(1), NULL), NEAP_OK);
	rig_advance(900);
	live_on(5000);
	ck_assert_int_eq(add(1, 10, "b"), NEAP_OK);
}
END_TEST

START_TEST(those_who_hold_values_are_waited_for)
{
	live_on(2500);
	ck_assert_int_eq(join_holding(1, true), NEAP_OK);
	uint32_t round = round_begin(1);
	live_on(1000);
	ck_assert(stats().recovering && stats().owing == 1);
	ck_assert_int_eq(look("a"), NEAP_STORE_REPLICA_IS_NOT_READY);
	struct neap_key_stamp stamp = {7, 3};
	ck_assert_int_eq(add_stamped(1, 10, "a", &stamp), NEAP_OK);
	ck_assert_int_eq(look("b"), NEAP_STORE_REPLICA_IS_NOT_READY);
	ck_assert_int_eq(round_end(1, round, NULL), NEAP_OK);
	ck_assert(!stats().recovering && stats().owing == 0);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_int_eq(look("b"), NEAP_STORE_OBJECT_NOT_FOUND);
}
END_TEST

START_TEST(but_not_for_ever)
{
	ck_assert_int_eq(join_holding(1, true), NEAP_OK);
	live_on(3000);
	live_on(1900);
	ck_assert(stats().recovering);
	live_on(200);
	ck_assert(!stats().recovering);
	ck_assert_uint_eq(stats().given_up, 1);
	ck_assert_ptr_nonnull(strstr(rig.log, "1 clients have not ended"));
	/* it may still announce */
	ck_assert_int_eq(round_end(1, round_begin(1), NULL), NEAP_OK);
	ck_assert_uint_eq(stats().owing, 0);
}
END_TEST

START_TEST(the_dead_are_not_waited_for)
{
	live_on(2500);
	ck_assert_int_eq(join_holding(2, true), NEAP_OK); /* and never a heartbeat */
	live_on(1000);
	ck_assert(stats().recovering && stats().owing == 1);
	ck_assert_int_eq(do_unregister(2), NEAP_OK);
	ck_assert(!stats().recovering && stats().owing == 0);
}
END_TEST

/* The stamps decide who was first, whoever comes first now. */
START_TEST(a_restart_keeps_who_was_first)
{
	rig_close();
	rig_open_first();
	join(1, MIB);
	struct neap_key_stamp kept = {0, 0};
	ck_assert_int_eq(add_stamped(1, 10, "a", &kept), NEAP_OK);
	rig_close();
	rig_open(restarted());
	/* the other one has written the key in between, on a directory that forgot it: its stamp is of a later epoch */
	struct neap_key_stamp later = {8, 1};
	ck_assert_int_eq(join_holding(2, true), NEAP_OK);
	ck_assert_int_eq(add_stamped(2, 10, "a", &later), NEAP_OK);
	ck_assert_int_eq(join_holding(1, true), NEAP_OK);
	ck_assert_int_eq(add_stamped(1, 10, "a", &kept), NEAP_OK);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_uint_eq(found[0].client.first, 1);
	ck_assert_uint_eq(stats().lost, 1);
}
END_TEST

/* A client that comes with the epoch of another directory has missed something. */
START_TEST(an_old_epoch_asks_for_everything)
{
	ck_assert_int_eq(join_holding(1, false), NEAP_OK);
	struct waited waited = {.call.as.heartbeat = {.client = self(1), .epoch_known = 8}};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_HEARTBEAT), NEAP_OK);
	ck_assert(!waited.call.as.heartbeat.announce_all);
	waited.call.as.heartbeat.epoch_known = 7;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_HEARTBEAT), NEAP_OK);
	ck_assert(waited.call.as.heartbeat.announce_all && waited.call.as.heartbeat.epoch == 8);
	ck_assert_uint_eq(stats().owing, 1);
	waited.call.as.heartbeat.epoch_known = 8;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_HEARTBEAT), NEAP_OK);
	ck_assert(waited.call.as.heartbeat.announce_all); /* until it has done so */
	ck_assert_int_eq(round_end(1, round_begin(1), NULL), NEAP_OK);
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_HEARTBEAT), NEAP_OK);
	ck_assert(!waited.call.as.heartbeat.announce_all);
}
END_TEST

START_TEST(closing_in_each_state)
{
	for (int i = 0; i < 3; i++) {
		rig_close();
		struct neap_local_directory_options options = restarted();
		options.first = i == 0;
		rig_open(options);
		if (i == 2) {
			ck_assert_int_eq(join_holding(1, true), NEAP_OK);
			live_on(3001);
			ck_assert(stats().recovering);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store directory: recovery");
	TCase *tests = tcase_create("recovery");
	tcase_add_checked_fixture(tests, open_restarted, rig_close);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, a_miss_says_nothing_until_the_crashed_ttl_has_passed);
	tcase_add_test(tests, what_is_known_is_served_meanwhile);
	tcase_add_test(tests, new_claims_wait);
	tcase_add_test(tests, those_who_hold_values_are_waited_for);
	tcase_add_test(tests, but_not_for_ever);
	tcase_add_test(tests, the_dead_are_not_waited_for);
	tcase_add_test(tests, a_restart_keeps_who_was_first);
	tcase_add_test(tests, an_old_epoch_asks_for_everything);
	tcase_add_test(tests, closing_in_each_state);
	suite_add_tcase(suite, tests);
	return run_suite(suite);
}
