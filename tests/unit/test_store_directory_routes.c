/* The directory against a plain model of it: random announcements, full announcements, clients that come, go and fall silent, with
 * everything compared again and again; and the table by itself with many keys. */
#include "store/directory/routes.h"
#include "tests/unit/key_rig.h"

enum { CLIENTS = 4, TIERS = 2, KEYS = 60 };

/* What should be known. */
static struct {
	struct replica {
		bool there, lost, named; /* named: in the round under way */
		uint64_t generation, size;
		struct neap_key_stamp stamp;
	} replicas[KEYS][CLIENTS][TIERS];
	bool registered[CLIENTS];
	uint32_t round[CLIENTS];
	uint64_t instance[CLIENTS];
	struct neap_key_stamp last;
	uint32_t max;
} model;

static char key_names[KEYS][120];

static uint32_t below(uint32_t bound)
{
	return (uint32_t)(rig_random() % bound);
}

static struct neap_key_client who(uint32_t client)
{
	return (struct neap_key_client){.id = id_of(client + 1), .instance = model.instance[client]};
}

static struct neap_key_id tier_of(uint32_t client, uint32_t tier)
{
	return segment_id(client + 1, (int32_t)(10 * tier + 10));
}

/* --- the rules, said plainly ----------------------------------------------------------------------------------------------- */

static bool holds(uint32_t key, uint32_t client, struct neap_key_stamp *first)
{
	bool any = false;
	for (uint32_t tier = 0; tier < TIERS; tier++) {
		const struct replica *replica = &model.replicas[key][client][tier];
		if (!replica->there || replica->lost)
			continue;
		if (first && (!any || neap_key_stamp_before(replica->stamp, *first)))
			*first = replica->stamp;
		any = true;
	}
	return any;
}

static void loses(uint32_t key, uint32_t client)
{
	for (uint32_t tier = 0; tier < TIERS; tier++)
		if (model.replicas[key][client][tier].there)
			model.replicas[key][client][tier].lost = true;
}

static int model_claim(uint32_t key, uint32_t client, struct neap_key_stamp stamp)
{
	uint32_t others = 0, last = 0;
	struct neap_key_stamp last_stamp = {0, 0};
	for (uint32_t other = 0; other < CLIENTS; other++) {
		struct neap_key_stamp first = {0, 0};
		if (other == client || !holds(key, other, &first))
			continue;
		if (others++ == 0 || neap_key_stamp_before(last_stamp, first)) {
			last = other;
			last_stamp = first;
		}
	}
	if (holds(key, client, NULL) || others < model.max)
		return 0;
	if (neap_key_stamp_none(stamp) || !neap_key_stamp_before(stamp, last_stamp))
		return NEAP_STORE_REPLICA_NUM_EXCEEDED;
	loses(key, last);
	return 0;
}

static struct neap_key_stamp model_stamp(struct neap_key_stamp stamp)
{
	if (!neap_key_stamp_none(stamp))
		return stamp;
	model.last.sequence++;
	return model.last;
}

static int model_add(uint32_t key, uint32_t client, uint32_t tier, uint64_t generation, struct neap_key_stamp *stamp)
{
	struct replica *replica = &model.replicas[key][client][tier];
	if (neap_key_stamp_before(model.last, *stamp))
		model.last = (struct neap_key_stamp){stamp->epoch + 1, 0};
	int error = model_claim(key, client, *stamp);
	if (replica->there && replica->lost)
		*replica = (struct replica){0};
	if (error)
		return error;
	if (!replica->there || generation > replica->generation) {
		*stamp = model_stamp(*stamp);
		*replica = (struct replica){.there = true, .named = true, .generation = generation, .size = 100, .stamp = *stamp};
		return 0;
	}
	replica->named = true;
	if (generation == replica->generation && !neap_key_stamp_none(*stamp) && neap_key_stamp_before(*stamp, replica->stamp))
		replica->stamp = *stamp;
	*stamp = replica->stamp;
	return generation < replica->generation ? NEAP_STORE_CAS_FAILED : NEAP_STORE_REPLICA_ALREADY_EXISTS;
}

static int model_remove(uint32_t key, uint32_t client, uint32_t tier, uint64_t generation)
{
	struct replica *replica = &model.replicas[key][client][tier];
	if (!replica->there) {
		for (uint32_t i = 0; i < CLIENTS * TIERS; i++)
			if (model.replicas[key][i / TIERS][i % TIERS].there)
				return NEAP_STORE_REPLICA_NOT_FOUND;
		return NEAP_STORE_OBJECT_NOT_FOUND;
	}
	if (generation && generation < replica->generation)
		return NEAP_STORE_CAS_FAILED;
	*replica = (struct replica){0};
	return 0;
}

static void model_forget(uint32_t client)
{
	for (uint32_t key = 0; key < KEYS; key++)
		memset(model.replicas[key][client], 0, sizeof model.replicas[key][client]);
	model.registered[client] = false;
	model.round[client] = 0;
}

/* --- the same to both --------------------------------------------------------------------------------------------------------- */

static void announce_some(uint32_t client)
{
	struct neap_key_change changes[8];
	uint32_t keys[8], tiers[8], count = 1 + below(8);
	for (uint32_t i = 0; i < count; i++) {
		keys[i] = below(KEYS);
		tiers[i] = below(TIERS);
		changes[i] = (struct neap_key_change){
			.kind = below(3) ? NEAP_KEY_ADD : NEAP_KEY_REMOVE,
			.key = text(key_names[keys[i]]),
			.segment = tier_of(client, tiers[i]),
			.size = 100,
			.generation = below(4),
		};
		if (below(3) == 0)
			changes[i].stamp = (struct neap_key_stamp){1 + below(3), below(100)};
	}
	struct neap_key_change given[8];
	memcpy(given, changes, sizeof given);
	struct waited waited = {.call.as.announce = {.client = who(client), .changes = changes, .count = count}};
	int error = rig_call(&waited, NEAP_KEY_OP_ANNOUNCE);
	ck_assert_int_eq(error, model.registered[client] ? NEAP_OK : NEAP_STORE_CLIENT_NOT_FOUND);
	for (uint32_t i = 0; i < count && !error; i++) {
		bool add_ = given[i].kind == NEAP_KEY_ADD;
		int expected = add_ ? model_add(keys[i], client, tiers[i], given[i].generation, &given[i].stamp)
		                    : model_remove(keys[i], client, tiers[i], given[i].generation);
		ck_assert_msg(changes[i].error == expected, "item %u: %d, expected %d", i, changes[i].error, expected);
		if (add_ && (expected == 0 || expected == NEAP_STORE_REPLICA_ALREADY_EXISTS))
			ck_assert(changes[i].stamp.epoch == given[i].stamp.epoch && changes[i].stamp.sequence == given[i].stamp.sequence);
	}
}

static void register_again(uint32_t client)
{
	struct neap_key_segment segments[TIERS] = {segment_of(client + 1, 10, MIB), segment_of(client + 1, 20, MIB)};
	if (below(3) == 0 && model.registered[client]) { /* restarted */
		model_forget(client);
		model.instance[client]++;
	}
	struct waited waited = {.call.as.register_ = registration(client + 1)};
	waited.call.as.register_.client = who(client);
	waited.call.as.register_.segments = segments;
	waited.call.as.register_.segment_count = TIERS;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_REGISTER), NEAP_OK);
	model.registered[client] = true;
}

static void leave(uint32_t client)
{
	struct waited waited = {.call.as.unregister.client = who(client)};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_UNREGISTER), NEAP_OK);
	model_forget(client);
}

static void mount_again(uint32_t client, uint32_t tier)
{
	struct waited waited = {
		.call.as.mount = {.client = who(client), .segment = segment_of(client + 1, (int32_t)(10 * tier + 10), MIB)}};
	int expected = model.registered[client] ? NEAP_OK : NEAP_STORE_CLIENT_NOT_FOUND;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_UNMOUNT), expected);
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_MOUNT), expected);
	for (uint32_t key = 0; key < KEYS; key++)
		model.replicas[key][client][tier] = (struct replica){0};
}

static void begin_round(uint32_t client)
{
	struct waited waited = {.call.as.round.client = who(client)};
	if (!model.registered[client])
		return;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_ROUND_BEGIN), NEAP_OK);
	model.round[client] = waited.call.as.round.round;
	for (uint32_t key = 0; key < KEYS; key++)
		for (uint32_t tier = 0; tier < TIERS; tier++)
			model.replicas[key][client][tier].named = false;
}

static void end_round(uint32_t client)
{
	struct waited waited = {.call.as.round = {.client = who(client), .round = model.round[client]}};
	uint64_t dropped = 0;
	if (!model.registered[client] || !model.round[client])
		return;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_ROUND_END), NEAP_OK);
	model.round[client] = 0;
	for (uint32_t key = 0; key < KEYS; key++)
		for (uint32_t tier = 0; tier < TIERS; tier++) {
			struct replica *replica = &model.replicas[key][client][tier];
			if (!replica->there || replica->named)
				continue;
			dropped += !replica->lost;
			*replica = (struct replica){0};
		}
	ck_assert_uint_eq(waited.call.as.round.dropped, dropped);
}

/* Everybody but one lives on; it crashes. */
static void crash(uint32_t client)
{
	for (int i = 0; i < 4; i++) {
		for (uint32_t other = 0; other < CLIENTS; other++) {
			struct waited waited = {.call.as.heartbeat = {.client = who(other), .epoch_known = rig.epoch}};
			if (other != client)
				ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_HEARTBEAT), NEAP_OK);
		}
		rig_advance(8000);
	}
	model_forget(client);
}

static void compare(void)
{
	uint32_t keys = 0, replicas = 0, lost = 0;
	for (uint32_t key = 0; key < KEYS; key++) {
		int clients = 0;
		for (uint32_t client = 0; client < CLIENTS; client++) {
			clients += holds(key, client, NULL);
			for (uint32_t tier = 0; tier < TIERS; tier++) {
				const struct replica *replica = &model.replicas[key][client][tier];
				replicas += replica->there && !replica->lost;
				lost += replica->there && replica->lost;
			}
		}
		keys += clients > 0;
		int answer = look(key_names[key]);
		ck_assert_msg(answer == (clients ? clients : NEAP_STORE_OBJECT_NOT_FOUND), "%s: %d, expected %d", key_names[key], answer,
		              clients);
		for (int i = 0; i < answer; i++) {
			uint32_t client = (uint32_t)found[i].client.first - 1, tier = (uint32_t)found[i].segment.second / 10 - 1;
			const struct replica *replica = &model.replicas[key][client][tier];
			ck_assert(replica->there && !replica->lost && replica->generation == found[i].generation);
			ck_assert(replica->stamp.epoch == found[i].stamp.epoch && replica->stamp.sequence == found[i].stamp.sequence);
		}
	}
	struct neap_local_directory_stats stats;
	neap_local_directory_stats(rig.directory, &stats);
	ck_assert(stats.keys == keys && stats.replicas == replicas && stats.lost == lost);
	const char *wrong = neap_local_directory_check(rig.directory);
	ck_assert_msg(!wrong, "%s", wrong);
}

static void against_the_model(uint64_t seed, uint32_t max)
{
	memset(&model, 0, sizeof model);
	rig.random = seed * 7919 + 1;
	rig_open((struct neap_local_directory_options){
		.first = true, .keys_max = 200, .max_client_per_key = max, .epoch = 2, .slice = 1 + (uint32_t)seed % 40});
	model.max = max;
	model.last.epoch = 2;
	for (uint32_t key = 0; key < KEYS; key++)
		(void)snprintf(key_names[key], sizeof key_names[key], "%0*u", 1 + (int)key * 3 / 2, key);
	for (uint32_t client = 0; client < CLIENTS; client++) {
		model.instance[client] = 100;
		register_again(client);
	}
	for (int step = 0; step < 400; step++) {
		uint32_t client = below(CLIENTS), choice = below(100);
		if (choice < 80)
			announce_some(client);
		else if (choice < 84)
			register_again(client);
		else if (choice < 86)
			leave(client);
		else if (choice < 88)
			mount_again(client, below(TIERS));
		else if (choice < 92)
			begin_round(client);
		else if (choice < 99)
			end_round(client);
		else
			crash(client);
		if (step % 20 == 19)
			compare();
	}
	rig_close();
}

START_TEST(one_client_a_key)
{
	against_the_model((uint64_t)_i, 1);
}
END_TEST

START_TEST(two_clients_a_key)
{
	against_the_model((uint64_t)_i + 1000, 2);
}
END_TEST

/* --- the table ------------------------------------------------------------------------------------------------------------------
 * */

static struct neap_pool segments;
static struct neap_routes routes;

static void open_table(void)
{
	rig_reactor();
	ck_assert_int_eq(neap_pool_create(&segments, rig.reactor, sizeof(struct neap_route_segment), 2), NEAP_OK);
	for (uint32_t i = 0; i < 2; i++)
		neap_route_segment_begin(neap_pool_take(&segments), i);
	struct neap_routes_options options = {
		.keys_max = 50000, .replicas_max = 60000, .cells_max = 1000, .epoch = 1, .max_client_per_key = 1};
	ck_assert_int_eq(neap_routes_create(&routes, rig.reactor, &options, &segments), NEAP_OK);
}

static void close_table(void)
{
	neap_routes_destroy(&routes);
	neap_pool_destroy(&segments);
	rig_close();
}

static int change_table(enum neap_key_change_kind kind, uint32_t segment, const char *key, uint32_t length)
{
	struct neap_key_change change = {.kind = kind, .key = {key, length}, .size = 1};
	neap_routes_change(&routes, segment, 1, false, &change);
	return change.error;
}

static uint32_t name(char *key, uint32_t number)
{
	return (uint32_t)snprintf(key, 32, "key/%u", number);
}

START_TEST(it_grows_a_bucket_at_a_time)
{
	char key[32];
	for (uint32_t i = 0; i < 50000; i++) {
		uint32_t before = routes.bucket_count;
		ck_assert_int_eq(change_table(NEAP_KEY_ADD, i % 2, key, name(key, i)), NEAP_OK);
		ck_assert_uint_le(routes.bucket_count - before, 1);
	}
	ck_assert_int_eq(change_table(NEAP_KEY_ADD, 0, "one more", 8), NEAP_STORE_KEYS_ULTRA_LIMIT);
	ck_assert_uint_ge(routes.bucket_count, 49000);
	ck_assert_ptr_null(neap_routes_check(&routes));
	for (uint32_t i = 0; i < 50000; i += 3)
		ck_assert_int_eq(change_table(NEAP_KEY_REMOVE, i % 2, key, name(key, i)), NEAP_OK);
	for (uint32_t i = 0; i < 50000; i++)
		ck_assert_int_eq(neap_routes_find(&routes, (struct neap_key_text){key, name(key, i)}) == NEAP_ROUTE_NONE, i % 3 == 0);
	ck_assert_ptr_null(neap_routes_check(&routes));
}
END_TEST

/* What a sweep would come to next goes in between; so does what it would come to after that. */
START_TEST(a_sweep_goes_on_where_it_was)
{
	static const char keys[] = "abcdefgh";
	uint64_t dropped = 0;
	uint32_t budget = 2;
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_int_eq(change_table(NEAP_KEY_ADD, 0, keys + i, 1), NEAP_OK);
	neap_routes_sweep_begin(&routes, 0);
	ck_assert(!neap_routes_sweep(&routes, 0, 2, &budget, &dropped));
	ck_assert_uint_eq(dropped, 2); /* h, g: the newest first */
	ck_assert_int_eq(change_table(NEAP_KEY_REMOVE, 0, "f", 1), NEAP_OK);
	ck_assert_int_eq(change_table(NEAP_KEY_REMOVE, 0, "e", 1), NEAP_OK);
	/* the memory of both serves others, of a segment that is not swept */
	ck_assert_int_eq(change_table(NEAP_KEY_ADD, 1, "x", 1), NEAP_OK);
	ck_assert_int_eq(change_table(NEAP_KEY_ADD, 1, "y", 1), NEAP_OK);
	budget = 100;
	ck_assert(neap_routes_sweep(&routes, 0, 2, &budget, &dropped));
	ck_assert_uint_eq(dropped, 6);
	ck_assert_uint_eq(routes.standing_keys, 2);
	ck_assert_ptr_null(neap_routes_check(&routes));
}
END_TEST

START_TEST(long_keys_are_bounded_by_bytes)
{
	static char key[4096];
	memset(key, 'k', sizeof key);
	uint32_t taken = 0;
	for (; taken < 100; taken++) {
		(void)snprintf(key, 8, "%07u", taken);
		key[7] = 'k';
		int error = change_table(NEAP_KEY_ADD, 0, key, sizeof key);
		if (error) {
			ck_assert_int_eq(error, NEAP_STORE_KEYS_ULTRA_LIMIT);
			break;
		}
	}
	ck_assert_uint_eq(taken, 1000 / ((4096 - 42 + 59) / 60));
	ck_assert_int_eq(change_table(NEAP_KEY_ADD, 0, "short", 5), NEAP_OK); /* it was not left half done */
	ck_assert_ptr_null(neap_routes_check(&routes));
	char copied[4096];
	(void)snprintf(key, 8, "%07u", 3);
	key[7] = 'k';
	uint32_t index = neap_routes_find(&routes, (struct neap_key_text){key, sizeof key});
	ck_assert_uint_ne(index, NEAP_ROUTE_NONE);
	neap_routes_copy_key(&routes, index, copied);
	ck_assert_mem_eq(copied, key, sizeof key);
	/* each length has its own place */
	for (uint32_t length = 1; length < 400; length++)
		ck_assert_int_eq(neap_routes_find(&routes, (struct neap_key_text){key, length}) == NEAP_ROUTE_NONE, true);
}
END_TEST

START_TEST(a_key_has_so_many_replicas_and_no_more)
{
	struct neap_pool many;
	struct neap_routes other;
	struct neap_routes_options options = {.keys_max = 10, .replicas_max = 100, .cells_max = 10, .epoch = 1};
	ck_assert_int_eq(neap_pool_create(&many, rig.reactor, sizeof(struct neap_route_segment), 40), NEAP_OK);
	ck_assert_int_eq(neap_routes_create(&other, rig.reactor, &options, &many), NEAP_OK);
	for (uint32_t i = 0; i < 40; i++) {
		struct neap_key_change change = {.kind = NEAP_KEY_ADD, .key = text("a"), .size = 1};
		neap_route_segment_begin(neap_pool_take(&many), i / 2);
		neap_routes_change(&other, i, 1, false, &change);
		ck_assert_int_eq(change.error, i < NEAP_ROUTE_REPLICAS_MAX ? NEAP_OK : NEAP_STORE_REPLICA_NUM_EXCEEDED);
	}
	ck_assert_ptr_null(neap_routes_check(&other));
	neap_routes_destroy(&other);
	neap_pool_destroy(&many);
	options.keys_max = 0;
	ck_assert_int_eq(neap_routes_create(&other, rig.reactor, &options, &many), NEAP_EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store directory: routes");
	TCase *tests = tcase_create("against a model");
	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, one_client_a_key, 0, 30);
	tcase_add_loop_test(tests, two_clients_a_key, 0, 30);
	suite_add_tcase(suite, tests);
	TCase *table = tcase_create("table");
	tcase_add_checked_fixture(table, open_table, close_table);
	tcase_add_test(table, it_grows_a_bucket_at_a_time);
	tcase_add_test(table, a_sweep_goes_on_where_it_was);
	tcase_add_test(table, long_keys_are_bounded_by_bytes);
	tcase_add_test(table, a_key_has_so_many_replicas_and_no_more);
	suite_add_tcase(suite, table);
	return run_suite(suite);
}
