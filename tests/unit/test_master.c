/* The directory of keys at a master: every operation over the wire, who may speak for whom, bounds, deadlines, losses. */
#include "tests/unit/master_rig.h"

static struct rig_client *a, *b;

static void open_world(void)
{
	rig_open();
	rig_master(true);
	a = rig_client();
	b = rig_client();
}

static int announce(struct rig_client *client, struct neap_key_change *changes, uint32_t count)
{
	struct rig_call call = {.call.as.announce = {.client = rig_self(client), .changes = changes, .count = count}};
	return rig_do(client, &call, NEAP_KEY_OP_ANNOUNCE);
}

static struct neap_key_change adding(const struct rig_client *client, const char *key)
{
	return (struct neap_key_change){.kind = NEAP_KEY_ADD, .key = rig_text(key), .segment = client->segment.id, .size = 100,
	                                .generation = 9, .has_crc = true, .crc = 0xfedcba98};
}

/* --- each operation ----------------------------------------------------------------------------------------------------------- */

START_TEST(clients_register_live_and_leave)
{
	open_world();
	ck_assert_int_eq(rig_register(a, false), 0);
	ck_assert_int_eq(rig_register(b, false), 0);
	struct neap_key_client_item items[3] = {{.id = rig_self(b).id}, {.id = {9, 9}}, {.id = rig_self(a).id}};
	struct rig_call clients = {.call.as.clients = {.items = items, .count = 3}};
	ck_assert_int_eq(rig_do(a, &clients, NEAP_KEY_OP_CLIENTS), 0);
	ck_assert_int_eq(items[0].status, NEAP_KEY_HEALTHY);
	ck_assert_str_eq(items[0].host, "10.0.0.102");
	ck_assert_uint_eq(items[0].port, 12345);
	ck_assert_int_eq(items[1].status, NEAP_KEY_UNDEFINED);

	struct neap_key_usage usage[2] = {{.segment = a->segment.id, .used = 70}, {.segment = {8, 8}, .used = 1}};
	struct rig_call beat = {
		.call.as.heartbeat = {.client = rig_self(a), .epoch_known = 1000, .usages = usage, .usage_count = 2}};
	ck_assert_int_eq(rig_do(a, &beat, NEAP_KEY_OP_HEARTBEAT), 0);
	ck_assert_int_eq(beat.call.as.heartbeat.status, NEAP_KEY_HEALTHY);
	ck_assert_uint_eq(beat.call.as.heartbeat.epoch, 1000);
	ck_assert(!beat.call.as.heartbeat.announce_all);
	ck_assert_int_eq(usage[0].error, 0);
	ck_assert_int_eq(usage[1].error, NEAP_STORE_SEGMENT_NOT_FOUND);

	struct neap_key_segment more = {.id = {5, 6}, .name = "second", .capacity = 1u << 20, .priority = -3};
	struct rig_call mount = {.call.as.mount = {.client = rig_self(a), .segment = more}};
	ck_assert_int_eq(rig_do(a, &mount, NEAP_KEY_OP_MOUNT), 0);
	ck_assert_int_eq(rig_do(a, &mount, NEAP_KEY_OP_UNMOUNT), 0);
	mount.call.as.mount.segment.id = (struct neap_key_id){0, 0};
	ck_assert_int_eq(rig_do(a, &mount, NEAP_KEY_OP_MOUNT), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(mount.call.effect, NEAP_KEY_EFFECT_DONE);

	struct rig_call leave = {.call.as.unregister = {.client = rig_self(a)}};
	ck_assert_int_eq(rig_do(a, &leave, NEAP_KEY_OP_UNREGISTER), 0);
	ck_assert_int_eq(rig_do(a, &clients, NEAP_KEY_OP_CLIENTS), 0);
	ck_assert_int_eq(items[2].status, NEAP_KEY_UNDEFINED);
	ck_assert_int_eq(rig_do(a, &beat, NEAP_KEY_OP_HEARTBEAT), 0);
	ck_assert_int_eq(beat.call.as.heartbeat.status, NEAP_KEY_UNDEFINED);
	rig_close();
}
END_TEST

START_TEST(changes_and_rounds)
{
	open_world();
	struct neap_key_change changes[3] = {adding(a, "one"), adding(a, "two"), adding(a, "three")};
	ck_assert_int_eq(announce(a, changes, 3), NEAP_STORE_CLIENT_NOT_FOUND);
	ck_assert_int_eq(changes[2].error, NEAP_STORE_CLIENT_NOT_FOUND); /* each of them */
	ck_assert_int_eq(rig_register(a, false), 0);
	changes[1].segment = (struct neap_key_id){4, 4}; /* partly refused */
	ck_assert_int_eq(announce(a, changes, 3), 0);
	ck_assert_int_eq(changes[0].error, 0);
	ck_assert_uint_eq(changes[0].stamp.epoch, 1000);
	ck_assert_int_eq(changes[1].error, NEAP_STORE_SEGMENT_NOT_FOUND);
	ck_assert(neap_key_stamp_before(changes[0].stamp, changes[2].stamp));
	ck_assert_int_eq(announce(a, changes, 1), 0);
	ck_assert_int_eq(changes[0].error, NEAP_STORE_REPLICA_ALREADY_EXISTS);

	struct rig_call round = {.call.as.round = {.client = rig_self(a)}};
	ck_assert_int_eq(rig_do(a, &round, NEAP_KEY_OP_ROUND_BEGIN), 0);
	ck_assert_uint_ne(round.call.as.round.round, 0);
	struct rig_call in_round = {
		.call.as.announce = {
			.client = rig_self(a), .round = round.call.as.round.round, .number = 1, .changes = changes, .count = 1}};
	ck_assert_int_eq(rig_do(a, &in_round, NEAP_KEY_OP_ANNOUNCE), 0);
	ck_assert_int_eq(rig_do(a, &in_round, NEAP_KEY_OP_ANNOUNCE), NEAP_STORE_INVALID_VERSION); /* an echo */
	ck_assert_int_eq(rig_do(a, &round, NEAP_KEY_OP_ROUND_END), 0);
	ck_assert_uint_eq(round.call.as.round.dropped, 1);
	ck_assert_int_eq(rig_exists(b, "one"), 0);
	ck_assert_int_eq(rig_exists(b, "three"), NEAP_STORE_OBJECT_NOT_FOUND);

	changes[0].kind = NEAP_KEY_REMOVE;
	ck_assert_int_eq(announce(a, changes, 1), 0);
	ck_assert_int_eq(rig_exists(b, "one"), NEAP_STORE_OBJECT_NOT_FOUND);
	rig_close();
}
END_TEST

START_TEST(questions)
{
	open_world();
	ck_assert_int_eq(rig_register(a, false), 0);
	ck_assert_int_eq(rig_register(b, false), 0);
	struct neap_key_change changes[2] = {adding(a, "one"), adding(a, "two\x01\xff")};
	ck_assert_int_eq(announce(a, changes, 2), 0);

	struct neap_key_read_item items[3] = {{.key = rig_text("one")}, {.key = rig_text("none")}, {.key = rig_text("two\x01\xff")}};
	struct neap_key_replica found[4];
	struct rig_call look = {.call.as.replicas = {.config.priority_limit = INT32_MIN, .items = items, .count = 3,
	                                             .replicas = found, .replicas_max = 4}};
	ck_assert_int_eq(rig_do(b, &look, NEAP_KEY_OP_REPLICAS), 0);
	ck_assert_uint_eq(look.call.as.replicas.replicas_used, 2);
	ck_assert_int_eq(items[1].error, NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_uint_eq(items[2].first, 1);
	ck_assert_uint_eq(items[2].count, 1);
	ck_assert(neap_key_id_equal(found[1].client, rig_self(a).id) && neap_key_id_equal(found[1].segment, a->segment.id));
	ck_assert_str_eq(found[1].host, "10.0.0.101");
	ck_assert_uint_eq(found[1].port, 12345);
	ck_assert_uint_eq(found[1].size, 100);
	ck_assert_uint_eq(found[1].generation, 9);
	ck_assert_uint_eq(found[1].crc, 0xfedcba98);
	ck_assert_int_eq(found[1].priority, 10);
	ck_assert_uint_eq(found[1].memory_type, 3);
	ck_assert_uint_eq(found[1].stamp.sequence, changes[1].stamp.sequence);
	look.call.as.replicas.config.tag_count = 1;
	(void)snprintf(look.call.as.replicas.config.tags[0], NEAP_KEY_TAG_SIZE, "ssd");
	ck_assert_int_eq(rig_do(b, &look, NEAP_KEY_OP_REPLICAS), 0);
	ck_assert_int_eq(items[0].error, NEAP_STORE_REPLICA_IS_NOT_READY);

	struct neap_key_write_item places[2] = {{.key = rig_text("new"), .size = 5000}, {.key = rig_text("one"), .size = 5000}};
	struct neap_key_candidate offered[8];
	struct rig_call place = {.call.as.write_routes = {.requester = rig_self(b).id, .config = NEAP_KEY_WRITE_CONFIG, .items = places,
	                                                  .count = 2, .candidates = offered, .candidates_max = 8}};
	ck_assert_int_eq(rig_do(b, &place, NEAP_KEY_OP_WRITE_ROUTES), 0);
	ck_assert_int_eq(places[0].error, 0);
	ck_assert_uint_eq(places[0].count, 2);
	ck_assert_int_eq(places[1].error, NEAP_STORE_REPLICA_NUM_EXCEEDED);
	ck_assert_uint_eq(place.call.as.write_routes.candidates_used, 2);
	ck_assert(offered[0].score > 0.4 && offered[0].score < 0.6 && offered[0].available > 1u << 29);
	place.call.as.write_routes.config.remote_weight = place.call.as.write_routes.config.local_write_waterline = 1e300;
	ck_assert_int_eq(rig_do(b, &place, NEAP_KEY_OP_WRITE_ROUTES), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(places[0].error, NEAP_STORE_INVALID_PARAMS);
	volatile double zero = 0;
	place.call.as.write_routes.config.remote_weight = zero / zero;
	ck_assert_int_eq(rig_begin(b, &place, NEAP_KEY_OP_WRITE_ROUTES), NEAP_EINVAL);

	struct rig_call count = {.times = 0};
	ck_assert_int_eq(rig_do(b, &count, NEAP_KEY_OP_COUNT), 0);
	ck_assert_uint_eq(count.call.as.count.keys, 2);
	ck_assert_uint_eq(count.call.as.count.replicas, 2);
	ck_assert(count.call.as.count.complete);
	rig_close();
}
END_TEST

START_TEST(lists_in_pages)
{
	open_world();
	ck_assert_int_eq(rig_register(a, false), 0);
	static struct neap_key_change changes[1000];
	static char keys[1000][16];
	for (uint32_t i = 0; i < 1000; i++) {
		(void)snprintf(keys[i], sizeof keys[i], "key-%u", i);
		changes[i] = adding(a, keys[i]);
	}
	ck_assert_int_eq(announce(a, changes, 1000), 0);
	struct neap_key_listed listed[64];
	char text[4096];
	uint32_t seen = 0, pages = 0;
	struct rig_call list = {.call.as.list = {.pattern = rig_text("^key-[0-4]"), .keys = listed, .keys_max = 64, .text = text,
	                                         .text_size = sizeof text}};
	do {
		ck_assert_int_eq(rig_do(b, &list, NEAP_KEY_OP_LIST), 0);
		for (uint32_t i = 0; i < list.call.as.list.count; i++)
			ck_assert(memcmp(text + listed[i].offset, "key-", 4) == 0 && text[listed[i].offset + 4] <= '4');
		seen += list.call.as.list.count;
		pages++;
	} while (list.call.as.list.cursor);
	ck_assert_uint_eq(seen, 1 + 4 + 40 + 400);
	ck_assert_uint_eq(pages, 7);
	ck_assert(list.call.as.list.complete);
	list.call.as.list.pattern = rig_text("(");
	ck_assert_int_eq(rig_do(b, &list, NEAP_KEY_OP_LIST), NEAP_STORE_INVALID_PARAMS);
	ck_assert_msg(strlen(list.call.as.list.why) > 5, "it says not what is wrong");
	list.call.as.list.pattern = rig_text("");
	list.call.as.list.text_size = 3;
	ck_assert_int_eq(rig_do(b, &list, NEAP_KEY_OP_LIST), NEAP_STORE_BUFFER_OVERFLOW);
	rig_close();
}
END_TEST

/* The one who was not first is told so, with the key, until it lets go. */
START_TEST(losers_are_told)
{
	open_world();
	ck_assert_int_eq(rig_register(a, false), 0);
	ck_assert_int_eq(rig_register(b, false), 0);
	struct neap_key_change first = adding(a, "one"), second = adding(b, "one");
	first.stamp = (struct neap_key_stamp){500, 5};
	ck_assert_int_eq(announce(b, &second, 1), 0);
	ck_assert_int_eq(second.error, 0);
	ck_assert_int_eq(announce(a, &first, 1), 0); /* an earlier claim */
	ck_assert_int_eq(first.error, 0);
	struct neap_key_lost lost[4];
	char text[64];
	struct rig_call beat = {.call.as.heartbeat = {.client = rig_self(b), .epoch_known = 1000, .lost = lost, .lost_max = 4,
	                                              .lost_text = text, .lost_text_size = sizeof text}};
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(rig_do(b, &beat, NEAP_KEY_OP_HEARTBEAT), 0);
		ck_assert_uint_eq(beat.call.as.heartbeat.lost_count, 1);
		ck_assert_uint_eq(lost[0].generation, 9);
		ck_assert(lost[0].length == 3 && memcmp(text + lost[0].offset, "one", 3) == 0);
	}
	beat.call.as.heartbeat.lost_text_size = 2;
	ck_assert_int_eq(rig_do(b, &beat, NEAP_KEY_OP_HEARTBEAT), 0);
	ck_assert(beat.call.as.heartbeat.lost_count == 0 && beat.call.as.heartbeat.lost_more);
	rig_close();
}
END_TEST

/* --- who may speak for whom ----------------------------------------------------------------------------------------------------- */

START_TEST(nobody_speaks_for_another)
{
	open_world();
	ck_assert_int_eq(rig_register(a, false), 0);
	struct neap_key_change change = adding(a, "one");
	ck_assert_int_eq(announce(a, &change, 1), 0);
	struct neap_key_client victim = rig_self(a);
	struct rig_call call = {.call.as.unregister = {.client = victim}};
	ck_assert_int_eq(rig_do(b, &call, NEAP_KEY_OP_UNREGISTER), NEAP_STORE_ILLEGAL_CLIENT);
	call = (struct rig_call){.call.as.unmount = {.client = victim, .segment = a->segment}};
	ck_assert_int_eq(rig_do(b, &call, NEAP_KEY_OP_UNMOUNT), NEAP_STORE_ILLEGAL_CLIENT);
	call = (struct rig_call){.call.as.mount = {.client = victim, .segment = a->segment}};
	ck_assert_int_eq(rig_do(b, &call, NEAP_KEY_OP_MOUNT), NEAP_STORE_ILLEGAL_CLIENT);
	change.kind = NEAP_KEY_REMOVE;
	call = (struct rig_call){.call.as.announce = {.client = victim, .changes = &change, .count = 1}};
	ck_assert_int_eq(rig_do(b, &call, NEAP_KEY_OP_ANNOUNCE), NEAP_STORE_ILLEGAL_CLIENT);
	call = (struct rig_call){.call.as.heartbeat = {.client = victim}};
	ck_assert_int_eq(rig_do(b, &call, NEAP_KEY_OP_HEARTBEAT), NEAP_STORE_ILLEGAL_CLIENT);
	call = (struct rig_call){.call.as.round = {.client = victim}};
	ck_assert_int_eq(rig_do(b, &call, NEAP_KEY_OP_ROUND_BEGIN), NEAP_STORE_ILLEGAL_CLIENT);
	ck_assert_int_eq(rig_do(b, &call, NEAP_KEY_OP_ROUND_END), NEAP_STORE_ILLEGAL_CLIENT);
	call = (struct rig_call){.call.as.register_ = {.client = victim, .host = "10.0.0.7", .port = 1}};
	ck_assert_int_eq(rig_do(b, &call, NEAP_KEY_OP_REGISTER), NEAP_STORE_ILLEGAL_CLIENT);
	victim.instance = neap_remote_directory_instance(b->remote); /* its own instance under another's id */
	call = (struct rig_call){.call.as.unregister = {.client = victim}};
	ck_assert_int_eq(rig_do(b, &call, NEAP_KEY_OP_UNREGISTER), 0); /* of no effect: there is no such client */
	ck_assert_int_eq(rig_look(b, "one"), 1);
	struct neap_master_service_stats stats;
	neap_master_service_stats(rig_present()->service, &stats);
	ck_assert_uint_eq(stats.strangers, 8);
	rig_close();
}
END_TEST

/* --- bounds, deadlines, losses ---------------------------------------------------------------------------------------------------- */

START_TEST(what_makes_no_sense)
{
	open_world();
	struct rig_call call = {.times = 0};
	static struct neap_key_change changes[2001];
	ck_assert_int_eq(rig_register(a, false), 0);
	ck_assert_int_eq(rig_begin(a, &call, NEAP_KEY_OPS), NEAP_EINVAL);
	call.call.as.announce = (struct neap_key_announce){.client = rig_self(a), .changes = changes, .count = 2001};
	ck_assert_int_eq(rig_begin(a, &call, NEAP_KEY_OP_ANNOUNCE), NEAP_EINVAL);
	changes[0].kind = (enum neap_key_change_kind)7;
	call.call.as.announce.count = 1;
	ck_assert_int_eq(rig_begin(a, &call, NEAP_KEY_OP_ANNOUNCE), NEAP_EINVAL);
	call.call.deadline_ns = 1;
	rig_for(1);
	ck_assert_int_eq(rig_begin(a, &call, NEAP_KEY_OP_COUNT), NEAP_EINVAL);
	call.call.deadline_ns = 0;
	ck_assert_int_eq(rig_begin(a, &call, NEAP_KEY_OP_COUNT), 0);
	ck_assert_int_eq(rig_begin(a, &call, NEAP_KEY_OP_COUNT), NEAP_EINVAL); /* under way */
	char long_key[4097];
	memset(long_key, 'x', sizeof long_key);
	struct neap_key_read_item item = {.key = {long_key, sizeof long_key}};
	struct rig_call exist = {.call.as.exist = {.items = &item, .count = 1}};
	ck_assert_int_eq(rig_begin(a, &exist, NEAP_KEY_OP_EXIST), NEAP_EINVAL);
	item.key.length--;
	ck_assert_int_eq(rig_do(a, &exist, NEAP_KEY_OP_EXIST), 0);
	ck_assert_int_eq(item.error, NEAP_STORE_INVALID_KEY); /* the directory's own bound */
	rig_close();
}
END_TEST

START_TEST(as_many_calls_as_there_may_be)
{
	rig_open();
	rig.service_options.calls_max = 4;
	rig.service_options.bytes_max = 300000;
	rig_master(true);
	a = rig_client();
	static struct rig_call calls[300];
	uint32_t begun = 0;
	while (rig_begin(a, &calls[begun], NEAP_KEY_OP_COUNT) == 0)
		begun++;
	ck_assert_uint_eq(begun, 256);
	rig_for(1000);
	uint32_t good = 0;
	for (uint32_t i = 0; i < begun; i++) {
		ck_assert_uint_eq(calls[i].times, 1);
		good += calls[i].error == 0;
		ck_assert(calls[i].error == 0 || calls[i].error == NEAP_STORE_RPC_FAIL);
		ck_assert_int_eq(calls[i].call.effect, calls[i].error ? NEAP_KEY_EFFECT_NONE : NEAP_KEY_EFFECT_DONE);
	}
	ck_assert(good >= 4 && good < begun);
	/* a batch for which there is no memory */
	static struct neap_key_read_item items[2000];
	static char key[1000];
	memset(key, 'k', sizeof key);
	for (uint32_t i = 0; i < 2000; i++)
		items[i].key = (struct neap_key_text){key, sizeof key};
	struct rig_call exist = {.call.as.exist = {.items = items, .count = 2000}};
	ck_assert_int_eq(rig_do(a, &exist, NEAP_KEY_OP_EXIST), NEAP_STORE_RPC_FAIL);
	exist.call.as.exist.count = 100;
	ck_assert_int_eq(rig_do(a, &exist, NEAP_KEY_OP_EXIST), 0);
	struct neap_master_service_stats stats;
	neap_master_service_stats(rig_present()->service, &stats);
	ck_assert(stats.refused > 0 && stats.bytes == 0 && stats.calls_now == 0);
	rig_close();
}
END_TEST

/* The full size of each batch passes the bounds of the RPC. */
START_TEST(full_batches)
{
	open_world();
	ck_assert_int_eq(rig_register(a, false), 0);
	static struct neap_key_change changes[2000];
	static struct neap_key_read_item items[2000];
	static struct neap_key_replica replicas[2000];
	static char keys[2000][64];
	for (uint32_t i = 0; i < 2000; i++) {
		(void)snprintf(keys[i], sizeof keys[i], "a key that is somewhat longer than others %u", i);
		changes[i] = adding(a, keys[i]);
		changes[i].generation = UINT64_MAX - i;
		changes[i].stamp = (struct neap_key_stamp){900, UINT32_MAX + (uint64_t)i};
		items[i].key = rig_text(keys[i]);
	}
	ck_assert_int_eq(announce(a, changes, 2000), 0);
	for (uint32_t i = 0; i < 2000; i++)
		ck_assert_int_eq(changes[i].error, 0);
	struct rig_call look = {.call.as.replicas = {.config.priority_limit = INT32_MIN, .items = items, .count = 2000,
	                                             .replicas = replicas, .replicas_max = 2000}};
	ck_assert_int_eq(rig_do(b, &look, NEAP_KEY_OP_REPLICAS), 0);
	ck_assert_uint_eq(look.call.as.replicas.replicas_used, NEAP_MASTER_REPLICAS_MAX);
	ck_assert_int_eq(items[1999].error, NEAP_STORE_BUFFER_OVERFLOW);
	ck_assert_uint_eq(replicas[1499].generation, UINT64_MAX - 1499);
	rig_close();
}
END_TEST

START_TEST(deadlines_travel)
{
	open_world();
	ck_assert_int_eq(rig_register(a, false), 0);
	sim_node_pause(rig_present()->node, 1000 * MS);
	struct rig_call call = {.call.deadline_ns = rig.sim->now_ns + 50 * MS};
	ck_assert_int_eq(rig_do(a, &call, NEAP_KEY_OP_COUNT), NEAP_ETIMEDOUT);
	ck_assert_int_eq(call.call.effect, NEAP_KEY_EFFECT_PERHAPS);
	ck_assert_uint_lt(rig.sim->now_ns, call.call.deadline_ns + 10 * MS);
	call.call.deadline_ns = 0;
	ck_assert_int_eq(rig_do(a, &call, NEAP_KEY_OP_COUNT), 0);
	rig_close();
}
END_TEST

START_TEST(cancel)
{
	open_world();
	struct rig_call call = {.times = 0};
	ck_assert_int_eq(rig_begin(a, &call, NEAP_KEY_OP_COUNT), 0);
	neap_key_cancel(neap_remote_directory_face(a->remote), &call.call);
	neap_key_cancel(neap_remote_directory_face(a->remote), &call.call); /* not under way: nothing */
	ck_assert_int_eq(rig_begin(a, &call, NEAP_KEY_OP_COUNT), 0); /* the memory is free at once */
	rig_for(10);
	ck_assert_uint_eq(call.times, 1);
	ck_assert_int_eq(call.error, 0);
	/* one that the directory has begun: the end of a large round is a walk */
	rig.directory_options.slice = 1;
	rig_crash();
	rig_master(true);
	rig_for(3000);
	ck_assert_int_eq(rig_register(a, false), 0);
	static struct neap_key_change changes[500];
	static char keys[500][16];
	for (uint32_t i = 0; i < 500; i++) {
		(void)snprintf(keys[i], sizeof keys[i], "key-%u", i);
		changes[i] = adding(a, keys[i]);
	}
	struct rig_call batch = {.call.as.announce = {.client = rig_self(a), .changes = changes, .count = 500}};
	ck_assert_int_eq(rig_begin(a, &batch, NEAP_KEY_OP_ANNOUNCE), 0);
	struct neap_master_service_stats stats = {0};
	while (stats.calls_now == 0) {
		sim_run_for(rig.sim, 1000);
		neap_master_service_stats(rig_present()->service, &stats);
	}
	neap_key_cancel(neap_remote_directory_face(a->remote), &batch.call);
	rig_for(100);
	neap_master_service_stats(rig_present()->service, &stats);
	ck_assert_uint_eq(batch.times, 0);
	ck_assert_uint_eq(stats.calls_now, 0);
	ck_assert_uint_le(stats.canceled, 1);
	rig_close();
}
END_TEST

START_TEST(a_master_that_is_not_there)
{
	rig_open();
	a = rig_client();
	struct rig_call call = {.times = 0};
	call.call.deadline_ns = 30000 * MS;
	rig.master_count = 0;
	ck_assert_int_eq(rig_do(a, &call, NEAP_KEY_OP_COUNT), NEAP_STORE_RPC_FAIL);
	ck_assert_int_eq(call.call.effect, NEAP_KEY_EFFECT_NONE);
	rig_close();
}
END_TEST

START_TEST(a_connection_that_is_lost)
{
	open_world();
	ck_assert_int_eq(rig_register(a, false), 0);
	struct rig_call call = {.times = 0};
	sim_node_pause(rig_present()->node, 50 * MS);
	ck_assert_int_eq(rig_begin(a, &call, NEAP_KEY_OP_COUNT), 0);
	rig_for(10);
	ck_assert(sim_cut_one(rig.sim, 0, 1, true));
	rig_for(100);
	ck_assert_uint_eq(call.times, 1);
	ck_assert_int_eq(call.error, NEAP_STORE_RPC_FAIL);
	ck_assert_int_eq(call.call.effect, NEAP_KEY_EFFECT_PERHAPS);
	ck_assert_int_eq(rig_do(a, &call, NEAP_KEY_OP_COUNT), 0);
	ck_assert_uint_eq(a->welcomes, 1);
	ck_assert_uint_eq(a->others, 0);
	rig_crash();
	rig_master(false);
	struct rig_call again = {.times = 0};
	for (int i = 0; i < 20 && a->others == 0; i++) {
		again.call.deadline_ns = rig.sim->now_ns + 500 * MS;
		(void)rig_do(a, &again, NEAP_KEY_OP_COUNT);
	}
	ck_assert_uint_eq(a->others, 1);
	struct neap_remote_directory_stats stats;
	neap_remote_directory_stats(a->remote, &stats);
	ck_assert_uint_eq(stats.masters, 2);
	ck_assert_uint_eq(stats.calls_now, 0);
	rig_close();
}
END_TEST

static struct rig_call big, beat;
static bool beat_ended(void)
{
	return beat.times > 0;
}

/* On a thin line a batch takes its time; a heartbeat that was begun after it is answered before it. */
START_TEST(heartbeats_do_not_queue_behind_batches)
{
	open_world();
	ck_assert_int_eq(rig_register(a, false), 0);
	struct rig_call first = {.call.as.heartbeat = {.client = rig_self(a), .epoch_known = 1000}};
	ck_assert_int_eq(rig_do(a, &first, NEAP_KEY_OP_HEARTBEAT), 0); /* the connection is there */
	static struct neap_key_change changes[2000];
	static char keys[2000][1000];
	for (uint32_t i = 0; i < 2000; i++) {
		memset(keys[i], 'k', sizeof keys[i] - 1);
		(void)snprintf(keys[i] + 900, 20, "%u", i);
		keys[i][910] = '\0';
		changes[i] = adding(a, keys[i]);
	}
	rig.sim->net.segment_max = 1460;
	rig.sim->net.delay_min_ns = rig.sim->net.delay_max_ns = 1 * MS;
	memset(&beat, 0, sizeof beat);
	big = (struct rig_call){.call.as.announce = {.client = rig_self(a), .changes = changes, .count = 2000}};
	beat.call.as.heartbeat = first.call.as.heartbeat;
	ck_assert_int_eq(rig_begin(a, &big, NEAP_KEY_OP_ANNOUNCE), 0);
	ck_assert_int_eq(rig_begin(a, &beat, NEAP_KEY_OP_HEARTBEAT), 0);
	ck_assert(rig_until(beat_ended, 100));
	ck_assert_uint_eq(big.times, 0);
	ck_assert_int_eq(beat.error, 0);
	rig_for(4000);
	ck_assert_uint_eq(big.times, 1);
	ck_assert_int_eq(big.error, 0);
	rig_close();
}
END_TEST

static void done_after_destroy(struct neap_key_call *call, int error)
{
	struct rig_call *mine = (struct rig_call *)(void *)call;
	mine->times++;
	mine->error = error;
}

START_TEST(destroyed_in_the_middle)
{
	open_world();
	struct rig_call call = {.call = {.op = NEAP_KEY_OP_COUNT, .done = done_after_destroy}};
	const struct neap_key_directory *face = neap_remote_directory_face(a->remote);
	ck_assert_int_eq(neap_key_begin(face, &call.call), 0);
	neap_remote_directory_destroy(a->remote);
	struct rig_call late = {.call = {.op = NEAP_KEY_OP_COUNT, .done = done_after_destroy}};
	ck_assert_int_eq(neap_key_begin(face, &late.call), NEAP_ECLOSED);
	rig_for(5);
	ck_assert_uint_eq(call.times, 1);
	ck_assert_int_eq(call.error, NEAP_ECLOSED);
	a->remote = NULL;
	/* the server goes first, then the service, with a call under way */
	sim_node_pause(a->node, 1);
	struct rig_call other = {.times = 0};
	ck_assert_int_eq(rig_begin(b, &other, NEAP_KEY_OP_COUNT), 0);
	rig_close();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("master");
	TCase *ops = tcase_create("operations"), *bounds = tcase_create("bounds and losses");
	tcase_set_timeout(bounds, 60);
	tcase_add_test(ops, clients_register_live_and_leave);
	tcase_add_test(ops, changes_and_rounds);
	tcase_add_test(ops, questions);
	tcase_add_test(ops, lists_in_pages);
	tcase_add_test(ops, losers_are_told);
	tcase_add_test(ops, nobody_speaks_for_another);
	tcase_add_test(bounds, what_makes_no_sense);
	tcase_add_test(bounds, as_many_calls_as_there_may_be);
	tcase_add_test(bounds, full_batches);
	tcase_add_test(bounds, deadlines_travel);
	tcase_add_test(bounds, cancel);
	tcase_add_test(bounds, a_master_that_is_not_there);
	tcase_add_test(bounds, a_connection_that_is_lost);
	tcase_add_test(bounds, heartbeats_do_not_queue_behind_batches);
	tcase_add_test(bounds, destroyed_in_the_middle);
	suite_add_tcase(suite, ops);
	suite_add_tcase(suite, bounds);
	return rig_run(suite);
}
