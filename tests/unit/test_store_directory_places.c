/* Which clients are offered a new value, and which replicas a reader. */
#include "tests/unit/key_rig.h"
#include <math.h>

#define CONFIG ((struct neap_key_write_config)NEAP_KEY_WRITE_CONFIG)

static void open_many(void)
{
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 1000, .max_client_per_key = 2, .epoch = 7});
}

static struct neap_key_write_config all(void)
{
	struct neap_key_write_config config = CONFIG;
	config.early_return = false;
	config.candidates_max = 0;
	return config;
}

static void tag(uint64_t client, int32_t priority, const char *name)
{
	struct waited waited = {.call.as.mount = {.client = self(client), .segment = segment_of(client, priority, MIB)}};
	struct neap_key_segment *segment = &waited.call.as.mount.segment;
	segment->tag_count = 2;
	(void)snprintf(segment->tags[0], sizeof segment->tags[0], "other");
	(void)snprintf(segment->tags[1], sizeof segment->tags[1], "%s", name);
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_MOUNT), NEAP_OK);
}

START_TEST(a_place)
{
	ck_assert_int_eq(place("a", 1), NEAP_STORE_NO_AVAILABLE_CANDIDATE);
	join(1, MIB);
	ck_assert_int_eq(place("a", 1000), 1);
	ck_assert_uint_eq(offered[0].client.first, 1);
	ck_assert_str_eq(offered[0].host, "10.0.0.1");
	ck_assert_uint_eq(offered[0].port, 1001);
	ck_assert_uint_eq(offered[0].available, MIB);
	ck_assert_int_eq(place("a", MIB + 1), NEAP_STORE_NO_AVAILABLE_CANDIDATE);
	ck_assert_int_eq(place("a", 0), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(place("", 1), NEAP_STORE_INVALID_KEY);
	ck_assert_int_eq(use(1, 10, MIB, 0), NEAP_OK);
	ck_assert_int_eq(place("a", 1), 1); /* it is full, but may evict */
	ck_assert_uint_eq(offered[0].available, 0);
	join(2, MIB);
	ck_assert_int_eq(place("a", 1), 2); /* after those with room */
	ck_assert_uint_eq(offered[0].client.first, 2);
	ck_assert_uint_eq(offered[1].client.first, 1);
}
END_TEST

START_TEST(contradictions_are_refused)
{
	join(1, MIB);
	struct neap_key_write_config config = CONFIG;
	config.remote_weight = config.local_write_waterline = 0;
	ck_assert_int_eq(place_from(0, "a", 1, config), NEAP_STORE_INVALID_PARAMS);
	config.remote_weight = config.local_write_waterline = 1;
	ck_assert_int_eq(place_from(0, "a", 1, config), NEAP_STORE_INVALID_PARAMS);
	config = CONFIG;
	config.remote_weight = 1.5;
	ck_assert_int_eq(place_from(0, "a", 1, config), NEAP_STORE_INVALID_PARAMS);
	config.remote_weight = (double)NAN;
	ck_assert_int_eq(place_from(0, "a", 1, config), NEAP_STORE_INVALID_PARAMS);
	config = CONFIG;
	config.strategy = (enum neap_key_strategy)3;
	ck_assert_int_eq(place_from(0, "a", 1, config), NEAP_STORE_INVALID_PARAMS);
	config = CONFIG;
	config.tag_count = NEAP_KEY_TAGS_MAX + 1;
	ck_assert_int_eq(place_from(0, "a", 1, config), NEAP_STORE_INVALID_PARAMS);
	config = CONFIG;
	config.local_write_waterline = 1;
	ck_assert_int_eq(place_from(0, "a", 1, config), 1);
}
END_TEST

START_TEST(tags_exclude)
{
	join(1, 0);
	join(2, MIB);
	tag(1, 10, "ssd");
	struct neap_key_write_config config = all();
	config.tag_count = 1;
	(void)snprintf(config.tags[0], sizeof config.tags[0], "ssd");
	ck_assert_int_eq(place_from(0, "a", 1, config), 1);
	ck_assert_uint_eq(offered[0].client.first, 2);
	(void)snprintf(config.tags[0], sizeof config.tags[0], "hdd");
	ck_assert_int_eq(place_from(0, "a", 1, config), 2);
}
END_TEST

START_TEST(priorities)
{
	ck_assert_int_eq(do_register(1, 4 * MIB, MIB), NEAP_OK); /* priorities 10 and 20 */
	struct neap_key_write_config config = all();
	ck_assert_int_eq(place_from(0, "a", MIB + 1, config), NEAP_STORE_NO_AVAILABLE_CANDIDATE); /* only the top tier counts */
	config.top_tier_only = false;
	ck_assert_int_eq(place_from(0, "a", MIB + 1, config), 1);
	ck_assert_uint_eq(offered[0].available, 5 * MIB);
	/* a value lies in one segment */
	ck_assert_int_eq(use(1, 10, 0, 0), NEAP_OK);
	ck_assert_int_eq(place_from(0, "a", 4 * MIB, config), 1);
	ck_assert_int_eq(use(1, 10, 0, 0), NEAP_OK);
	ck_assert_int_eq(place_from(0, "a", 4 * MIB + 1, config), NEAP_STORE_NO_AVAILABLE_CANDIDATE);
	config.priority_limit = 20;
	ck_assert_int_eq(place_from(0, "a", MIB + 1, config), NEAP_STORE_NO_AVAILABLE_CANDIDATE);
	config.priority_limit = 21;
	ck_assert_int_eq(place_from(0, "a", 1, config), NEAP_STORE_NO_AVAILABLE_CANDIDATE);
}
END_TEST

START_TEST(the_top_tier_makes_the_score)
{
	ck_assert_int_eq(do_register(1, 100 * MIB, MIB), NEAP_OK);
	join(2, 10 * MIB);
	ck_assert_int_eq(use(1, 20, MIB / 2, 0), NEAP_OK);
	ck_assert_int_eq(use(2, 10, MIB, 0), NEAP_OK);
	ck_assert_int_eq(place_from(0, "a", 1, all()), 2);
	ck_assert_uint_eq(offered[0].client.first, 2); /* 0.9 free; the other 0.5 of its top tier */
	ck_assert_double_eq_tol(offered[0].score, 0.45, 1e-9);
	ck_assert_double_eq_tol(offered[1].score, 0.25, 1e-9);
}
END_TEST

START_TEST(several_segments_are_one_candidate)
{
	ck_assert_int_eq(do_register(1, MIB, MIB), NEAP_OK);
	struct neap_key_write_config config = all();
	config.top_tier_only = false;
	ck_assert_int_eq(place_from(0, "a", 1, config), 1);
	ck_assert_uint_eq(offered[0].available, 2 * MIB);
}
END_TEST

START_TEST(weights)
{
	join(1, MIB);
	join(2, MIB);
	struct neap_key_write_config config = all();
	config.remote_weight = 1;
	config.local_write_waterline = 0.5;
	ck_assert_int_eq(place_from(1, "a", 1, config), 1); /* forced away */
	ck_assert_uint_eq(offered[0].client.first, 2);
	config.remote_weight = 0;
	ck_assert_int_eq(place_from(1, "a", 1, config), 1); /* forced to stay */
	ck_assert_uint_eq(offered[0].client.first, 1);
	ck_assert_int_eq(place_from(0, "a", 1, config), NEAP_STORE_NO_AVAILABLE_CANDIDATE);
	ck_assert_int_eq(place_from(77, "a", 1, config), NEAP_STORE_NO_AVAILABLE_CANDIDATE);
	config.remote_weight = 0.9; /* the remote one can win although it has less room */
	ck_assert_int_eq(use(2, 10, MIB / 2, 0), NEAP_OK);
	ck_assert_int_eq(place_from(1, "a", 1, config), 2);
	ck_assert_uint_eq(offered[0].client.first, 2);
	config.remote_weight = 0.1;
	ck_assert_int_eq(place_from(1, "a", 1, config), 2);
	ck_assert_uint_eq(offered[0].client.first, 1);
}
END_TEST

START_TEST(the_callers_own_place_is_looked_at_first)
{
	join(1, 100 * MIB);
	join(2, MIB);
	struct neap_key_write_config config = CONFIG;
	config.candidates_max = 1;
	ck_assert_int_eq(place_from(2, "a", 1, config), 1); /* stops early: before the one with more room */
	ck_assert_uint_eq(offered[0].client.first, 2);
	ck_assert_int_eq(place_from(0, "a", 1, config), 1);
	ck_assert_uint_eq(offered[0].client.first, 1);
	config.candidates_max = 2;
	ck_assert_int_eq(place_from(2, "a", 1, config), 2);
	config.candidates_max = 0;
	ck_assert_int_eq(place_from(2, "a", 1, config), 2); /* each once */
	ck_assert_uint_eq(offered[0].client.first + offered[1].client.first, 3);
}
END_TEST

START_TEST(strategies)
{
	for (uint64_t i = 1; i <= 8; i++)
		join(i, i * MIB);
	struct neap_key_write_config config = CONFIG;
	ck_assert_int_eq(place_from(0, "a", 1, config), 2); /* most room */
	ck_assert_uint_eq(offered[0].client.first + offered[1].client.first, 15);
	config.strategy = NEAP_KEY_ORDERED;
	ck_assert_int_eq(place_from(0, "a", 1, config), 2); /* registered first */
	ck_assert_uint_eq(offered[0].client.first + offered[1].client.first, 3);
	config.candidates_max = 0;
	ck_assert_int_eq(place_from(0, "a", 1, config), 8);
	for (int i = 1; i < 8; i++)
		ck_assert(offered[i - 1].score >= offered[i].score);
	config.strategy = NEAP_KEY_RANDOM;
	config.candidates_max = 1;
	unsigned seen = 0;
	for (int i = 0; i < 200; i++) {
		ck_assert_int_eq(place_from(0, "a", 1, config), 1);
		seen |= 1u << offered[0].client.first;
	}
	ck_assert_uint_eq(seen, 0x1fe);
}
END_TEST

START_TEST(owners_are_not_offered_again)
{
	join(1, MIB);
	join(2, MIB);
	join(3, MIB);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
	ck_assert_int_eq(place_from(0, "a", 1, all()), 2);
	ck_assert(offered[0].client.first != 1 && offered[1].client.first != 1);
	ck_assert_int_eq(place_from(1, "a", 1, CONFIG), 2);
	ck_assert(offered[0].client.first != 1 && offered[1].client.first != 1);
	ck_assert_int_eq(add(2, 10, "a"), NEAP_OK);
	ck_assert_int_eq(place("a", 1), NEAP_STORE_REPLICA_NUM_EXCEEDED);
	ck_assert_int_eq(do_unregister(2), NEAP_OK);
	ck_assert_int_eq(place("a", 1), 1);
	ck_assert_uint_eq(offered[0].client.first, 3);
}
END_TEST

/* In the reference all who ask between two heartbeats are sent to the emptiest client. */
START_TEST(what_was_given_out_counts_as_taken)
{
	enum { KEYS = 64 };
	static struct neap_key_write_item items[KEYS];
	static struct neap_key_candidate places[KEYS];
	static char keys[KEYS][8];
	uint32_t to[5] = {0};
	for (uint64_t i = 1; i <= 4; i++)
		join(i, 64 * MIB + i);
	for (uint32_t i = 0; i < KEYS; i++) {
		(void)snprintf(keys[i], sizeof keys[i], "k%u", i);
		items[i] = (struct neap_key_write_item){.key = text(keys[i]), .size = MIB};
	}
	struct waited waited = {
		.call.as.write_routes = {.config = CONFIG, .items = items, .count = KEYS, .candidates = places, .candidates_max = KEYS}};
	waited.call.as.write_routes.config.candidates_max = 1;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_WRITE_ROUTES), NEAP_OK);
	ck_assert_uint_eq(waited.call.as.write_routes.candidates_used, KEYS);
	for (uint32_t i = 0; i < KEYS; i++) {
		ck_assert(items[i].error == 0 && items[i].count == 1 && items[i].first == i);
		to[places[i].client.first]++;
	}
	for (int i = 1; i <= 4; i++)
		ck_assert_uint_eq(to[i], KEYS / 4);
	/* a heartbeat says what is really used */
	ck_assert_int_eq(place("x", 60 * MIB), 2);
	ck_assert_uint_lt(offered[0].available, 60 * MIB);
	ck_assert_int_eq(use(3, 10, 0, 0), NEAP_OK);
	ck_assert_int_eq(place("x", 60 * MIB), 2);
	ck_assert_uint_eq(offered[0].client.first, 3);
	ck_assert_uint_ge(offered[0].available, 60 * MIB);
	ck_assert_int_eq(place("x", 60 * MIB), 2);
	ck_assert_uint_lt(offered[0].available, 60 * MIB);
}
END_TEST

START_TEST(room_for_the_answer_is_checked)
{
	join(1, MIB);
	join(2, MIB);
	struct neap_key_write_item items[2] = {{.key = text("a"), .size = 1}, {.key = text("b"), .size = 1}};
	struct waited waited = {
		.call.as.write_routes = {.config = all(), .items = items, .count = 2, .candidates = offered, .candidates_max = 3}};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_WRITE_ROUTES), NEAP_OK);
	ck_assert(items[0].error == 0 && items[0].count == 2);
	ck_assert(items[1].error == NEAP_STORE_BUFFER_OVERFLOW && items[1].count == 0);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
	struct neap_key_read_item read[2] = {{.key = text("a")}, {.key = text("a")}};
	waited.call.as.replicas = (struct neap_key_replicas){.items = read, .count = 2, .replicas = found, .replicas_max = 1};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_REPLICAS), NEAP_OK);
	ck_assert(read[0].error == 0 && read[1].error == NEAP_STORE_BUFFER_OVERFLOW);
}
END_TEST

/* --- readers ----------------------------------------------------------------------------------------------------------------- */

START_TEST(one_replica_of_each_client)
{
	ck_assert_int_eq(do_register(1, MIB, MIB), NEAP_OK);
	ck_assert_int_eq(do_register(2, MIB, MIB), NEAP_OK);
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(add(1, 10, "a"), NEAP_OK);
	ck_assert_int_eq(add(2, 20, "a"), NEAP_OK);
	ck_assert_int_eq(add(2, 10, "a"), NEAP_OK);
	ck_assert_int_eq(look("a"), 2);
	ck_assert(found[0].client.first == 2 && found[0].segment.second == 20 && found[0].priority == 20);
	ck_assert(found[1].client.first == 1 && found[1].segment.second == 10);
	ck_assert(found[0].size == 100 && found[0].generation == 1 && found[0].port == 1002);
	ck_assert_int_eq(add(1, 20, "a"), NEAP_OK);
	ck_assert_int_eq(look("a"), 2);
	ck_assert(found[0].segment.second == 20 && found[1].segment.second == 20);
	ck_assert_uint_eq(found[0].client.first, 2); /* the earlier one */
}
END_TEST

START_TEST(filters)
{
	join(1, 0);
	join(2, MIB);
	tag(1, 20, "ssd");
	ck_assert_int_eq(add(1, 20, "a"), NEAP_OK);
	ck_assert_int_eq(add(2, 10, "a"), NEAP_OK);
	struct neap_key_read_config config = {.tag_count = 1, .tags = {"ssd"}};
	ck_assert_int_eq(look_with("a", config), 1);
	ck_assert_uint_eq(found[0].client.first, 2);
	config.priority_limit = 15;
	ck_assert_int_eq(look_with("a", config), NEAP_STORE_REPLICA_IS_NOT_READY);
	config.tag_count = 0;
	ck_assert_int_eq(look_with("a", config), 1);
	ck_assert_uint_eq(found[0].client.first, 1);
	config = (struct neap_key_read_config){.replicas_max = 1};
	ck_assert_int_eq(look_with("a", config), 1);
	ck_assert_uint_eq(found[0].client.first, 1);
	config.tag_count = NEAP_KEY_TAGS_MAX + 1;
	ck_assert_int_eq(look_with("a", config), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(look(""), NEAP_STORE_INVALID_KEY);
	ck_assert_int_eq(exists(""), NEAP_STORE_INVALID_KEY);
}
END_TEST

START_TEST(write_and_read)
{
	join(1, MIB);
	join(2, MIB);
	ck_assert_int_eq(place_from(1, "a", 100, CONFIG), 2);
	uint64_t owner = offered[0].client.first;
	ck_assert_int_eq(add(owner, 10, "a"), NEAP_OK);
	ck_assert_int_eq(look("a"), 1);
	ck_assert_uint_eq(found[0].client.first, owner);
	ck_assert_int_eq(take_away(owner, 10, "a", 1), NEAP_OK);
	ck_assert_int_eq(look("a"), NEAP_STORE_OBJECT_NOT_FOUND);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store directory: places");
	TCase *tests = tcase_create("writers");
	TCase *readers = tcase_create("readers");
	tcase_add_checked_fixture(tests, open_many, rig_close);
	tcase_add_checked_fixture(readers, open_many, rig_close);
	tcase_add_test(tests, a_place);
	tcase_add_test(tests, contradictions_are_refused);
	tcase_add_test(tests, tags_exclude);
	tcase_add_test(tests, priorities);
	tcase_add_test(tests, the_top_tier_makes_the_score);
	tcase_add_test(tests, several_segments_are_one_candidate);
	tcase_add_test(tests, weights);
	tcase_add_test(tests, the_callers_own_place_is_looked_at_first);
	tcase_add_test(tests, strategies);
	tcase_add_test(tests, owners_are_not_offered_again);
	tcase_add_test(tests, what_was_given_out_counts_as_taken);
	tcase_add_test(tests, room_for_the_answer_is_checked);
	tcase_add_test(readers, one_replica_of_each_client);
	tcase_add_test(readers, filters);
	tcase_add_test(readers, write_and_read);
	suite_add_tcase(suite, tests);
	suite_add_tcase(suite, readers);
	return run_suite(suite);
}
