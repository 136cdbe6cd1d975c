/* The directory of keys as a master's clients see it: what the reference's master is tested for, in our own words, with the
 * differences that are meant. */
#include "tests/unit/key_rig.h"

/* --- clients -------------------------------------------------------------------------------------------------------------- */

START_TEST(registering)
{
	join(1, MIB);
	ck_assert_int_eq(status_of(1), NEAP_KEY_HEALTHY);
	ck_assert_int_eq(status_of(2), NEAP_KEY_UNDEFINED);
	struct waited waited = {.call.as.register_ = registration(2)};
	struct neap_key_register *call = &waited.call.as.register_;
	call->port = 0;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_REGISTER), NEAP_STORE_INVALID_PARAMS);
	*call = registration(2);
	call->host[0] = 0;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_REGISTER), NEAP_STORE_INVALID_PARAMS);
	memset(call->host, 'x', sizeof call->host);
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_REGISTER), NEAP_STORE_INVALID_PARAMS);
	*call = registration(2);
	call->client.id = (struct neap_key_id){0, 0};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_REGISTER), NEAP_STORE_INVALID_PARAMS);
	*call = registration(2);
	call->client.instance = 0;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_REGISTER), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(status_of(2), NEAP_KEY_UNDEFINED);
}
END_TEST

/* The reference ignores what a client that is registered says of itself; here its new segments and address count. */
START_TEST(registering_again_merges)
{
	join(1, MIB);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
	struct neap_key_segment segment = segment_of(1, 20, 3 * MIB);
	struct waited waited = {.call.as.register_ = registration(1)};
	waited.call.as.register_.segments = &segment;
	waited.call.as.register_.segment_count = 1;
	waited.call.as.register_.port = 77;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_REGISTER), NEAP_OK);
	ck_assert_int_eq(add(1, 20, "b"), NEAP_OK);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_uint_eq(found[0].port, 77);
	ck_assert_int_eq(look("b"), 1);
	struct neap_local_directory_stats stats;
	neap_local_directory_stats(rig.directory, &stats);
	ck_assert_uint_eq(stats.clients, 1);
	ck_assert_uint_eq(stats.registered, 1);
}
END_TEST

START_TEST(a_restarted_client_is_another)
{
	join(1, MIB);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
	/* the same id, another instance */
	struct waited waited = {.call.as.register_ = registration(1)};
	waited.call.as.register_.client.instance = 5;
	waited.call.as.register_.start = 20;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_REGISTER), NEAP_OK);
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(beat(1), NEAP_KEY_UNDEFINED); /* the predecessor */
	ck_assert_int_eq(add(1, 10, "a"), NEAP_STORE_CLIENT_NOT_FOUND);
	ck_assert_int_eq(do_unregister(1), NEAP_OK);
	ck_assert_int_eq(status_of(1), NEAP_KEY_HEALTHY);
	/* a new id at the same address, as clients of the reference do */
	struct neap_key_register *call = &waited.call.as.register_;
	call->client = self(9);
	call->start = 30;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_REGISTER), NEAP_OK);
	ck_assert_int_eq(status_of(1), NEAP_KEY_UNDEFINED);
	ck_assert_int_eq(status_of(9), NEAP_KEY_HEALTHY);
	/* one that started before it is a ghost */
	call->client = self(1);
	call->start = 25;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_REGISTER), NEAP_STORE_ILLEGAL_CLIENT);
	ck_assert_int_eq(status_of(9), NEAP_KEY_HEALTHY);
	struct neap_local_directory_stats stats;
	neap_local_directory_stats(rig.directory, &stats);
	ck_assert_uint_eq(stats.replaced, 2);
}
END_TEST

START_TEST(unregistering)
{
	join(1, MIB);
	join(2, MIB);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
	ck_assert_int_eq(add(2, 10, "b"), NEAP_OK);
	ck_assert_int_eq(do_unregister(1), NEAP_OK);
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(look("b"), 1);
	ck_assert_int_eq(do_unregister(1), NEAP_OK);
	ck_assert_int_eq(do_unregister(77), NEAP_OK);
	ck_assert_uint_eq(count_keys(), 1);
	join(1, MIB);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
}
END_TEST

START_TEST(unregistering_leaves_other_owners)
{
	rig_close();
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 100, .max_client_per_key = 2});
	join(1, MIB);
	join(2, MIB);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
	ck_assert_int_eq(add(2, 10, "a"), NEAP_OK);
	ck_assert_int_eq(look("a"), 2);
	ck_assert_int_eq(do_unregister(1), NEAP_OK);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_uint_eq(found[0].client.first, 2);
}
END_TEST

START_TEST(mounting)
{
	ck_assert_int_eq(do_mount(1, 10, MIB), NEAP_STORE_CLIENT_NOT_FOUND);
	ck_assert_int_eq(do_unmount(1, 10), NEAP_STORE_CLIENT_NOT_FOUND);
	join(1, 0);
	join(2, MIB);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_STORE_SEGMENT_NOT_FOUND);
	ck_assert_int_eq(do_mount(1, 10, MIB), NEAP_OK);
	ck_assert_int_eq(do_mount(1, 10, MIB), NEAP_OK);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
	ck_assert_int_eq(do_unmount(1, 20), NEAP_OK);
	ck_assert_int_eq(do_unmount(1, 10), NEAP_OK);
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(do_mount(1, 10, MIB), NEAP_OK); /* anew, and empty */
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	struct waited waited = {.call.as.mount = {.client = self(1), .segment = segment_of(2, 10, MIB)}};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_MOUNT), NEAP_STORE_ILLEGAL_CLIENT);
	waited.call.as.mount.segment = segment_of(1, 30, MIB);
	waited.call.as.mount.segment.used = 2 * MIB;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_MOUNT), NEAP_STORE_INVALID_PARAMS);
	for (int32_t i = 0; i < 15; i++)
		ck_assert_int_eq(do_mount(1, 100 + i, MIB), NEAP_OK);
	ck_assert_int_eq(do_mount(1, 200, MIB), NEAP_STORE_KEYS_ULTRA_LIMIT);
}
END_TEST

START_TEST(usage_is_checked)
{
	join(1, MIB);
	ck_assert_int_eq(use(1, 10, MIB, 0), NEAP_OK);
	ck_assert_int_eq(use(1, 10, MIB + 1, 0), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(use(1, 10, 2 * MIB, 2 * MIB), NEAP_OK);
	ck_assert_int_eq(use(1, 20, 0, 0), NEAP_STORE_SEGMENT_NOT_FOUND);
}
END_TEST

/* --- liveness --------------------------------------------------------------------------------------------------------------- */

START_TEST(silence_hides_and_a_heartbeat_restores)
{
	join(1, MIB);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
	rig_advance(9990);
	ck_assert_int_eq(beat(1), NEAP_KEY_HEALTHY);
	rig_advance(9990);
	ck_assert_int_eq(status_of(1), NEAP_KEY_HEALTHY);
	rig_advance(20);
	ck_assert_int_eq(status_of(1), NEAP_KEY_DISCONNECTED);
	ck_assert_int_eq(look("a"), NEAP_STORE_REPLICA_IS_NOT_READY);
	ck_assert_int_eq(exists("a"), NEAP_OK);
	ck_assert_int_eq(place("b", 1), NEAP_STORE_NO_AVAILABLE_CANDIDATE);
	ck_assert_int_eq(add(1, 10, "b"), NEAP_STORE_CLIENT_UNHEALTHY);
	rig_advance(19980);
	ck_assert_int_eq(status_of(1), NEAP_KEY_DISCONNECTED);
	ck_assert_msg(strstr(rig.log, " is silent; ") != NULL, "%s", rig.log);
	ck_assert_int_eq(beat(1), NEAP_KEY_HEALTHY);
	ck_assert_msg(strstr(rig.log, " is heard again") != NULL, "%s", rig.log);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_int_eq(add(1, 10, "b"), NEAP_OK);
}
END_TEST

START_TEST(crashed_is_final)
{
	join(1, MIB);
	join(2, MIB);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
	rig_advance(10000);
	ck_assert_int_eq(status_of(1), NEAP_KEY_DISCONNECTED);
	ck_assert_int_eq(beat(2), NEAP_KEY_HEALTHY);
	rig_advance(20001);
	ck_assert_int_eq(status_of(1), NEAP_KEY_UNDEFINED);
	ck_assert_int_eq(status_of(2), NEAP_KEY_DISCONNECTED);
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(beat(1), NEAP_KEY_UNDEFINED);
	ck_assert_int_eq(do_register(1, MIB, 0), NEAP_OK);
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
}
END_TEST

/* In the reference a start-up fails when the client happens to be disconnected while it mounts. Here a mount is a sign of life. */
START_TEST(mounting_and_registering_are_signs_of_life)
{
	join(1, MIB);
	rig_advance(12000);
	ck_assert_int_eq(status_of(1), NEAP_KEY_DISCONNECTED);
	ck_assert_int_eq(do_mount(1, 20, MIB), NEAP_OK);
	ck_assert_int_eq(status_of(1), NEAP_KEY_HEALTHY);
	rig_advance(12000);
	ck_assert_int_eq(do_register(1, MIB, 0), NEAP_OK);
	ck_assert_int_eq(status_of(1), NEAP_KEY_HEALTHY);
	rig_advance(12000);
	ck_assert_int_eq(do_unmount(1, 20), NEAP_OK);
	ck_assert_int_eq(status_of(1), NEAP_KEY_HEALTHY);
	rig_advance(12000);
	ck_assert_int_eq(do_unregister(1), NEAP_OK); /* and leaving is possible in any state */
	join(1, MIB);
	rig_advance(12000);
	struct waited waited = {.call.as.register_ = registration(1)};
	waited.call.as.register_.client.instance = 5;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_REGISTER), NEAP_OK); /* being replaced too */
}
END_TEST

/* --- announcements --------------------------------------------------------------------------------------------------------- */

START_TEST(adding_replicas)
{
	join(1, MIB);
	join(2, MIB);
	ck_assert_int_eq(do_mount(1, 20, MIB), NEAP_OK);
	struct neap_key_stamp stamp = {0, 0}, again = {0, 0};
	ck_assert_int_eq(add_stamped(1, 10, "a", &stamp), NEAP_OK);
	ck_assert(stamp.epoch == 7 && stamp.sequence == 1);
	ck_assert_int_eq(add_stamped(1, 10, "a", &again), NEAP_STORE_REPLICA_ALREADY_EXISTS);
	ck_assert(again.epoch == 7 && again.sequence == 1);
	ck_assert_int_eq(add(1, 20, "a"), NEAP_OK); /* the limit counts clients, not segments */
	ck_assert_int_eq(add(2, 10, "a"), NEAP_STORE_REPLICA_NUM_EXCEEDED);
	ck_assert_int_eq(add(3, 10, "a"), NEAP_STORE_CLIENT_NOT_FOUND);
	ck_assert_int_eq(add(1, 30, "a"), NEAP_STORE_SEGMENT_NOT_FOUND);
	ck_assert_int_eq(add(1, 10, ""), NEAP_STORE_INVALID_KEY);
	struct neap_key_change change = adding(1, 10, "b");
	change.size = 0;
	ck_assert_int_eq(announce(1, 0, 0, &change, 1), NEAP_OK);
	ck_assert_int_eq(change.error, NEAP_STORE_INVALID_PARAMS);
	static char key[2000];
	memset(key, 'k', 1025);
	ck_assert_int_eq(add(1, 10, key), NEAP_STORE_INVALID_KEY);
	key[1024] = 0;
	ck_assert_int_eq(add(1, 10, key), NEAP_OK);
	ck_assert_int_eq(look(key), 1);
	key[1023] = 'l';
	ck_assert_int_eq(look(key), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(look("a"), 1);
}
END_TEST

START_TEST(removing_replicas)
{
	join(1, MIB);
	ck_assert_int_eq(do_mount(1, 20, MIB), NEAP_OK);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
	ck_assert_int_eq(add(1, 20, "a"), NEAP_OK);
	ck_assert_int_eq(take_away(1, 10, "b", 0), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(take_away(1, 30, "a", 0), NEAP_STORE_REPLICA_NOT_FOUND);
	ck_assert_int_eq(take_away(1, 10, "a", 0), NEAP_OK);
	ck_assert_int_eq(take_away(1, 10, "a", 0), NEAP_STORE_REPLICA_NOT_FOUND);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_int_eq(take_away(1, 20, "a", 0), NEAP_OK);
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(exists("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_uint_eq(count_keys(), 0);
	ck_assert_int_eq(add(1, 20, "a"), NEAP_OK);
	ck_assert_int_eq(exists("a"), NEAP_OK);
}
END_TEST

/* A REMOVE and an ADD of the same place cancel each other in the reference's notifier, so that a value has no route. Here the last
 * one counts, within a batch and between batches. */
START_TEST(the_last_change_counts)
{
	join(1, MIB);
	struct neap_key_change changes[3] = {adding(1, 10, "a"), adding(1, 10, "a"), adding(1, 10, "a")};
	changes[0].kind = NEAP_KEY_REMOVE;
	ck_assert_int_eq(announce(1, 0, 0, changes, 2), NEAP_OK);
	ck_assert_int_eq(changes[0].error, NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(changes[1].error, NEAP_OK);
	ck_assert_int_eq(look("a"), 1);
	changes[0].kind = NEAP_KEY_ADD;
	changes[1].kind = NEAP_KEY_REMOVE;
	ck_assert_int_eq(announce(1, 0, 0, changes, 2), NEAP_OK);
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	changes[2].generation = 2;
	ck_assert_int_eq(announce(1, 0, 0, changes, 3), NEAP_OK);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_uint_eq(found[0].generation, 2);
	/* a removal of what is not there any more does not remove what is */
	ck_assert_int_eq(take_away(1, 10, "a", 1), NEAP_STORE_CAS_FAILED);
	changes[0].generation = 1;
	changes[0].stamp = (struct neap_key_stamp){0, 0};
	ck_assert_int_eq(announce(1, 0, 0, changes, 1), NEAP_OK);
	ck_assert_int_eq(changes[0].error, NEAP_STORE_CAS_FAILED);
	ck_assert_uint_eq((look("a"), found[0].generation), 2);
	ck_assert_int_eq(take_away(1, 10, "a", 2), NEAP_OK);
}
END_TEST

START_TEST(an_echo_of_an_old_batch_is_refused)
{
	join(1, MIB);
	struct neap_key_change change = adding(1, 10, "a");
	ck_assert_int_eq(announce(1, 5, 0, &change, 1), NEAP_OK);
	ck_assert_int_eq(take_away(1, 10, "a", 0), NEAP_OK);
	ck_assert_int_eq(announce(1, 5, 0, &change, 1), NEAP_STORE_INVALID_VERSION);
	ck_assert_int_eq(change.error, NEAP_STORE_INVALID_VERSION);
	ck_assert_int_eq(announce(1, 4, 0, &change, 1), NEAP_STORE_INVALID_VERSION);
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	change.stamp = (struct neap_key_stamp){0, 0};
	ck_assert_int_eq(announce(1, 6, 0, &change, 1), NEAP_OK);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_int_eq(announce(2, 1, 0, &change, 1), NEAP_STORE_CLIENT_NOT_FOUND);
	ck_assert_int_eq(change.error, NEAP_STORE_CLIENT_NOT_FOUND);
}
END_TEST

START_TEST(a_batch_longer_than_a_slice)
{
	static struct neap_key_change changes[2000];
	static char keys[2000][16];
	rig_close();
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 1500, .replicas_max = 1500, .slice = 64});
	join(1, MIB);
	for (uint32_t i = 0; i < 2000; i++) {
		(void)snprintf(keys[i], sizeof keys[i], "key-%u", i);
		changes[i] = adding(1, 10, keys[i]);
	}
	ck_assert_int_eq(announce(1, 1, 0, changes, 2000), NEAP_OK);
	for (uint32_t i = 0; i < 2000; i++)
		ck_assert_int_eq(changes[i].error, i < 1500 ? NEAP_OK : NEAP_STORE_KEYS_ULTRA_LIMIT); /* full is said, item by item */
	ck_assert_uint_eq(count_keys(), 1500);
	struct waited waited = {.call.as.announce = {.client = self(1), .changes = changes, .count = 2001}};
	ck_assert_int_eq(rig_begin(&waited, NEAP_KEY_OP_ANNOUNCE), NEAP_EINVAL);
}
END_TEST

/* --- full announcements ------------------------------------------------------------------------------------------------------ */

START_TEST(what_is_not_announced_again_goes)
{
	join(1, MIB);
	join(2, MIB);
	ck_assert_int_eq(add(1, 10, "kept"), NEAP_OK);
	ck_assert_int_eq(add(1, 10, "dropped"), NEAP_OK);
	ck_assert_int_eq(add(2, 10, "another's"), NEAP_OK);
	uint32_t round = round_begin(1);
	struct neap_key_change change = adding(1, 10, "kept");
	ck_assert_int_eq(announce(1, 0, round, &change, 1), NEAP_OK);
	ck_assert_int_eq(add(1, 10, "new meanwhile"), NEAP_OK);
	ck_assert_int_eq(look("dropped"), 1);
	uint64_t dropped;
	ck_assert_int_eq(round_end(1, round, &dropped), NEAP_OK);
	ck_assert_uint_eq(dropped, 1);
	ck_assert_int_eq(look("dropped"), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(look("kept"), 1);
	ck_assert_int_eq(look("new meanwhile"), 1);
	ck_assert_int_eq(look("another's"), 1);
	ck_assert_int_eq(round_end(1, round, NULL), NEAP_STORE_INVALID_VERSION); /* it is over */
	ck_assert_int_eq(announce(1, 0, round, &change, 1), NEAP_STORE_INVALID_VERSION);
	ck_assert_int_eq(round_end(3, round, NULL), NEAP_STORE_CLIENT_NOT_FOUND);
	struct waited waited = {.call.as.round.client = self(3)};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_ROUND_BEGIN), NEAP_STORE_CLIENT_NOT_FOUND);
}
END_TEST

START_TEST(a_new_round_makes_the_old_one_void)
{
	join(1, MIB);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
	uint32_t first = round_begin(1);
	struct neap_key_change change = adding(1, 10, "a");
	ck_assert_int_eq(announce(1, 0, first, &change, 1), NEAP_OK);
	uint32_t second = round_begin(1);
	ck_assert_int_eq(announce(1, 0, first, &change, 1), NEAP_STORE_INVALID_VERSION);
	ck_assert_int_eq(round_end(1, first, NULL), NEAP_STORE_INVALID_VERSION);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_int_eq(round_end(1, second, NULL), NEAP_OK); /* nothing was named in it */
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
}
END_TEST

START_TEST(a_round_ends_in_slices)
{
	static struct neap_key_change changes[600];
	static char keys[600][16];
	rig_close();
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 1000, .slice = 16});
	join(1, MIB);
	for (uint32_t i = 0; i < 600; i++) {
		(void)snprintf(keys[i], sizeof keys[i], "key-%u", i);
		changes[i] = adding(1, 10, keys[i]);
	}
	ck_assert_int_eq(announce(1, 0, 0, changes, 600), NEAP_OK);
	uint32_t round = round_begin(1);
	ck_assert_int_eq(announce(1, 0, round, changes, 100), NEAP_OK);
	struct waited end = {.call.as.round = {.client = self(1), .round = round}};
	ck_assert_int_eq(rig_begin(&end, NEAP_KEY_OP_ROUND_END), NEAP_OK);
	uint32_t turns = 0;
	struct waited other = {.call = {0}};
	for (; !end.done; turns++) {
		rig_turn();
		if (turns == 3)
			ck_assert_int_eq(rig_begin(&other, NEAP_KEY_OP_COUNT), NEAP_OK);
		if (turns == 5)
			ck_assert(other.done && !end.done && other.call.as.count.keys > 100); /* others do not wait for it */
	}
	ck_assert_int_eq(end.error, NEAP_OK);
	ck_assert_uint_eq(end.call.as.round.dropped, 500);
	ck_assert_uint_ge(turns, 600 / 16 / 2); /* a ready source runs at most twice a turn */
	ck_assert_uint_eq(count_keys(), 100);
	/* a round that a new one overtakes while it ends */
	round = round_begin(1);
	end.call.as.round.round = round;
	ck_assert_int_eq(rig_begin(&end, NEAP_KEY_OP_ROUND_END), NEAP_OK);
	rig_turn();
	rig_turn();
	(void)round_begin(1);
	ck_assert(end.done);
	ck_assert_int_eq(end.error, NEAP_STORE_INVALID_VERSION);
	/* and one whose client goes */
	round = round_begin(1);
	end.call.as.round.round = round;
	ck_assert_int_eq(rig_begin(&end, NEAP_KEY_OP_ROUND_END), NEAP_OK);
	rig_turn();
	ck_assert_int_eq(do_unregister(1), NEAP_OK);
	ck_assert_int_eq(end.error, NEAP_STORE_CLIENT_NOT_FOUND);
	ck_assert_uint_eq(count_keys(), 0);
}
END_TEST

/* --- two owners -------------------------------------------------------------------------------------------------------------- */

static struct neap_key_lost lost[4];
static char lost_text[100];

static struct neap_key_heartbeat told(uint64_t client)
{
	struct waited waited = {.call.as.heartbeat = {.client = self(client),
	                                              .epoch_known = 7,
	                                              .lost = lost,
	                                              .lost_max = 4,
	                                              .lost_text = lost_text,
	                                              .lost_text_size = sizeof lost_text}};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_HEARTBEAT), NEAP_OK);
	return waited.call.as.heartbeat;
}

START_TEST(the_earlier_stamp_wins_and_the_loser_is_told)
{
	join(1, MIB);
	join(2, MIB);
	struct neap_key_stamp late = {5, 9}, early = {5, 3};
	ck_assert_int_eq(add_stamped(1, 10, "a", &late), NEAP_OK);
	ck_assert(late.epoch == 5 && late.sequence == 9);
	ck_assert_int_eq(add(2, 10, "a"), NEAP_STORE_REPLICA_NUM_EXCEEDED);
	ck_assert_int_eq(add_stamped(2, 10, "a", &early), NEAP_OK);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_uint_eq(found[0].client.first, 2);
	ck_assert_uint_eq(count_keys(), 1);
	/* told in each heartbeat until it lets go */
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(told(1).lost_count, 1);
		ck_assert(lost[0].generation == 1 && lost[0].length == 1 && lost_text[lost[0].offset] == 'a');
		ck_assert_uint_eq(lost[0].segment.second, 10);
	}
	ck_assert_uint_eq(told(2).lost_count, 0);
	ck_assert_int_eq(take_away(1, 10, "a", 1), NEAP_OK);
	ck_assert_uint_eq(told(1).lost_count, 0);
	/* announced again it is refused */
	ck_assert_int_eq(add_stamped(1, 10, "a", &late), NEAP_STORE_REPLICA_NUM_EXCEEDED);
	ck_assert_int_eq(look("a"), 1);
}
END_TEST

START_TEST(a_loser_may_hear_it_in_an_announcement)
{
	join(1, MIB);
	join(2, MIB);
	struct neap_key_stamp late = {5, 9}, early = {5, 3};
	ck_assert_int_eq(add_stamped(1, 10, "a", &late), NEAP_OK);
	ck_assert_int_eq(add_stamped(2, 10, "a", &early), NEAP_OK);
	ck_assert_int_eq(add_stamped(1, 10, "a", &late), NEAP_STORE_REPLICA_NUM_EXCEEDED);
	ck_assert_uint_eq(told(1).lost_count, 0); /* it knows */
	/* or it has forgotten it: its next full announcement settles it */
	struct neap_key_stamp earlier = {5, 1};
	ck_assert_int_eq(add_stamped(1, 10, "a", &earlier), NEAP_OK);
	ck_assert_uint_eq(told(2).lost_count, 1);
	uint64_t dropped;
	ck_assert_int_eq(round_end(2, round_begin(2), &dropped), NEAP_OK);
	ck_assert_uint_eq(dropped, 0);
	ck_assert_uint_eq(told(2).lost_count, 0);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_uint_eq(found[0].client.first, 1);
}
END_TEST

START_TEST(more_is_lost_than_can_be_told_at_once)
{
	static const char *const keys[] = {"a", "b", "c", "d", "e", "f"};
	join(1, MIB);
	join(2, MIB);
	for (int i = 0; i < 6; i++) {
		struct neap_key_stamp late = {5, 9}, early = {5, 3};
		ck_assert_int_eq(add_stamped(1, 10, keys[i], &late), NEAP_OK);
		ck_assert_int_eq(add_stamped(2, 10, keys[i], &early), NEAP_OK);
	}
	struct neap_local_directory_stats stats;
	neap_local_directory_stats(rig.directory, &stats);
	ck_assert(stats.lost == 6 && stats.keys == 6 && stats.replicas == 6);
	for (uint32_t left = 6; left > 0;) {
		struct neap_key_heartbeat heartbeat = told(1);
		ck_assert_uint_eq(heartbeat.lost_count, left < 4 ? left : 4);
		ck_assert(heartbeat.lost_more == (left > 4));
		for (uint32_t i = 0; i < heartbeat.lost_count; i++, left--) {
			char key[2] = {lost_text[lost[i].offset]};
			ck_assert_int_eq(take_away(1, 10, key, 1), NEAP_OK);
		}
	}
}
END_TEST

START_TEST(values_that_differ_are_two_values)
{
	rig_close();
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 100, .max_client_per_key = UINT32_MAX, .epoch = 7});
	join(1, MIB);
	join(2, MIB);
	join(3, MIB);
	struct neap_key_change change = adding(1, 10, "a");
	change.has_crc = true;
	change.crc = 1;
	ck_assert_int_eq(announce(1, 0, 0, &change, 1), NEAP_OK);
	struct neap_key_change same = adding(2, 10, "a");
	ck_assert_int_eq(announce(2, 0, 0, &same, 1), NEAP_OK); /* a checksum that is not known contradicts nothing */
	struct neap_key_change other = adding(3, 10, "a");
	other.has_crc = true;
	other.crc = 2;
	ck_assert_int_eq(announce(3, 0, 0, &other, 1), NEAP_OK);
	ck_assert_int_eq(other.error, NEAP_STORE_OBJECT_ALREADY_EXISTS);
	other.stamp = (struct neap_key_stamp){1, 1};
	ck_assert_int_eq(announce(3, 0, 0, &other, 1), NEAP_OK);
	ck_assert_int_eq(other.error, NEAP_OK);
	ck_assert_int_eq(look("a"), 2); /* of 2 and 3 */
	ck_assert_uint_eq(told(1).lost_count, 1);
	ck_assert_uint_eq(told(2).lost_count, 0);
	other = adding(1, 10, "b");
	ck_assert_int_eq(announce(1, 0, 0, &other, 1), NEAP_OK);
	same = adding(2, 10, "b");
	same.size = 101;
	ck_assert_int_eq(announce(2, 0, 0, &same, 1), NEAP_OK);
	ck_assert_int_eq(same.error, NEAP_STORE_OBJECT_ALREADY_EXISTS);
}
END_TEST

START_TEST(stamps_grow_past_all_that_were_seen)
{
	join(1, MIB);
	struct neap_key_stamp old = {1000, 5}, fresh = {0, 0}, far = {UINT64_MAX, 1};
	ck_assert_int_eq(add_stamped(1, 10, "a", &old), NEAP_OK);
	ck_assert_int_eq(add_stamped(1, 10, "b", &fresh), NEAP_OK);
	ck_assert(fresh.epoch == 1001 && fresh.sequence == 1);
	ck_assert_int_eq(add_stamped(1, 10, "c", &far), NEAP_STORE_INVALID_PARAMS);
	far = (struct neap_key_stamp){UINT64_C(1) << 62, 4};
	ck_assert_int_eq(add_stamped(1, 10, "c", &far), NEAP_OK);
	fresh = (struct neap_key_stamp){0, 0};
	ck_assert_int_eq(add_stamped(1, 10, "d", &fresh), NEAP_OK);
	ck_assert(fresh.epoch == UINT64_C(1) << 62 && fresh.sequence == 5);
	/* a lower stamp of the same value is taken over */
	old = (struct neap_key_stamp){999, 1};
	ck_assert_int_eq(add_stamped(1, 10, "a", &old), NEAP_STORE_REPLICA_ALREADY_EXISTS);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_uint_eq(found[0].stamp.epoch, 999);
}
END_TEST

START_TEST(errors_have_the_references_names_and_numbers)
{
	ck_assert_str_eq(neap_store_error_name(-713), "REPLICA_NUM_EXCEEDED");
	ck_assert_str_eq(neap_store_error_name(-1500), "EMPTY_REPLICAS");
	ck_assert_str_eq(neap_store_error_name(-2), "NOT_IMPLEMENTED");
	ck_assert_str_eq(neap_store_error_name(-9999), "UNKNOWN_ERROR");
	ck_assert_str_eq(neap_store_error_name(NEAP_ETIMEDOUT), "NEAP_ETIMEDOUT");
	ck_assert_str_eq(neap_store_error_text(NEAP_ETIMEDOUT), neap_error_text(NEAP_ETIMEDOUT));
	ck_assert(strlen(neap_store_error_text(-104)) > 10 && strlen(neap_store_error_text(-9999)) > 10);
	ck_assert_int_eq(NEAP_STORE_ASYNC_ENQUEUE_FAILED, -1601);
}
END_TEST

static TCase *group(Suite *suite, const char *name)
{
	TCase *tests = tcase_create(name);
	tcase_add_checked_fixture(tests, rig_open_first, rig_close);
	tcase_set_timeout(tests, 60);
	suite_add_tcase(suite, tests);
	return tests;
}

int main(void)
{
	Suite *suite = suite_create("store directory");
	TCase *clients = group(suite, "clients");
	tcase_add_test(clients, registering);
	tcase_add_test(clients, registering_again_merges);
	tcase_add_test(clients, a_restarted_client_is_another);
	tcase_add_test(clients, unregistering);
	tcase_add_test(clients, unregistering_leaves_other_owners);
	tcase_add_test(clients, mounting);
	tcase_add_test(clients, usage_is_checked);
	TCase *liveness = group(suite, "liveness");
	tcase_add_test(liveness, silence_hides_and_a_heartbeat_restores);
	tcase_add_test(liveness, crashed_is_final);
	tcase_add_test(liveness, mounting_and_registering_are_signs_of_life);
	TCase *changes = group(suite, "announcements");
	tcase_add_test(changes, adding_replicas);
	tcase_add_test(changes, removing_replicas);
	tcase_add_test(changes, the_last_change_counts);
	tcase_add_test(changes, an_echo_of_an_old_batch_is_refused);
	tcase_add_test(changes, a_batch_longer_than_a_slice);
	TCase *rounds = group(suite, "full announcements");
	tcase_add_test(rounds, what_is_not_announced_again_goes);
	tcase_add_test(rounds, a_new_round_makes_the_old_one_void);
	tcase_add_test(rounds, a_round_ends_in_slices);
	TCase *owners = group(suite, "two owners");
	tcase_add_test(owners, the_earlier_stamp_wins_and_the_loser_is_told);
	tcase_add_test(owners, a_loser_may_hear_it_in_an_announcement);
	tcase_add_test(owners, more_is_lost_than_can_be_told_at_once);
	tcase_add_test(owners, values_that_differ_are_two_values);
	tcase_add_test(owners, stamps_grow_past_all_that_were_seen);
	TCase *errors = tcase_create("errors");
	tcase_add_test(errors, errors_have_the_references_names_and_numbers);
	suite_add_tcase(suite, errors);
	return run_suite(suite);
}
