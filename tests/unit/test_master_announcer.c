/* The announcer with a master behind a network: whatever happens between them, in the end the master has what the owner has. */
#include "tests/unit/master_rig.h"

static struct rig_client *a, *b;

static void open_world(void)
{
	rig_open();
	rig_master(true);
	a = rig_client();
	rig_announcer(a);
}

static bool settled_of(const struct rig_client *client)
{
	struct neap_announcer_stats stats = rig_announced(client);
	return stats.registered && !stats.owes_all && stats.queued == 0;
}

static bool settled(void)
{
	return settled_of(a) && (!b || settled_of(b));
}

static uint64_t values_of(const struct rig_client *client)
{
	uint64_t count = 0;
	for (uint32_t i = 0; i < client->value_count; i++)
		count += client->values[i].generation != 0;
	return count;
}

static bool lives(const struct rig_client *client, const char *key)
{
	for (uint32_t i = 0; i < client->value_count; i++)
		if (client->values[i].generation && strcmp(client->values[i].key, key) == 0)
			return true;
	return false;
}

/* What the owner has, the master has, and nothing else. */
static void expect_agreement(unsigned ms)
{
	ck_assert_msg(rig_until(settled, ms), "it does not come to rest");
	ck_assert_uint_eq(rig_keys(), values_of(a) + (b ? values_of(b) : 0));
	for (uint32_t i = 0; i < a->value_count; i += 1 + a->value_count / 20)
		if (!b || a->values[i].generation)
			ck_assert_int_eq(rig_look(a, a->values[i].key), lives(a, a->values[i].key) ? 1 : NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_ptr_null(neap_local_directory_check(rig_present()->local));
}

static void put_many(struct rig_client *client, uint32_t count, const char *form)
{
	char key[200];
	for (uint32_t i = 0; i < count; i++) {
		(void)snprintf(key, sizeof key, form, i);
		(void)rig_put(client, key, 100);
	}
}

static void put_numbered(unsigned number)
{
	char key[32];
	(void)snprintf(key, sizeof key, "while-%u", number);
	(void)rig_put(a, key, 100);
}

/* --- the usual course --------------------------------------------------------------------------------------------------------- */

START_TEST(a_put_is_known_at_once_when_somebody_asks)
{
	open_world();
	rig_for(100);
	ck_assert(settled());
	uint32_t value = rig_put(a, "one", 100);
	uint64_t begin_ns = rig.sim->now_ns;
	ck_assert_int_eq(rig_ask(a, value, 1000), 0);
	ck_assert_uint_lt(rig.sim->now_ns - begin_ns, 5 * MS); /* not after the gathering */
	ck_assert_int_eq(rig_look(a, "one"), 1);
	ck_assert_int_eq(rig_ask(a, value, 1000), NEAP_ANNOUNCER_ACCEPTED);
	rig_remove(a, value);
	ck_assert_int_eq(rig_look(a, "one"), 1);
	rig_for(30);
	ck_assert_int_eq(rig_look(a, "one"), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_uint_eq(rig_announced(a).stamps, 0);
	rig_close();
}
END_TEST

START_TEST(changes_are_gathered)
{
	open_world();
	rig_for(100);
	uint64_t batches = rig_announced(a).batches;
	put_many(a, 500, "key-%u");
	rig_for(10);
	put_many(a, 500, "another-%u");
	rig_for(5);
	ck_assert_uint_eq(rig_announced(a).batches, batches);
	expect_agreement(1000);
	ck_assert_uint_eq(rig_announced(a).batches, batches + 1);
	put_many(a, 2000, "more-%u"); /* a batch's worth waits for nothing */
	rig_for(5);
	ck_assert_uint_eq(rig_announced(a).batches, batches + 2);
	expect_agreement(1000);
	rig_close();
}
END_TEST

START_TEST(the_last_change_counts)
{
	open_world();
	rig_for(100);
	uint32_t value = rig_put(a, "one", 100);
	rig_remove(a, value);
	value = rig_put(a, "one", 200); /* added, removed, added: it is there */
	expect_agreement(1000);
	rig_remove(a, value);
	value = rig_put(a, "one", 300);
	rig_remove(a, value);
	expect_agreement(1000);
	ck_assert_uint_eq(rig_keys(), 0);
	/* changed while it is on its way */
	value = rig_put(a, "two", 100);
	rig.sim->net.delay_min_ns = rig.sim->net.delay_max_ns = 10 * MS;
	rig_for(25);
	rig_remove(a, value);
	value = rig_put(a, "two", 200);
	ck_assert_int_eq(rig_ask(a, value, 1000), 0);
	expect_agreement(1000);
	struct neap_announcement echo = rig_value(a, value);
	echo.generation--; /* of the past */
	neap_announcer_published(a->announcer, &echo);
	neap_announcer_withdrawn(a->announcer, echo.key, echo.segment, echo.generation);
	expect_agreement(1000);
	ck_assert_uint_eq(rig_keys(), 1);
	rig_close();
}
END_TEST

START_TEST(asking)
{
	open_world();
	uint32_t value = rig_put(a, "one", 100);
	ck_assert_int_eq(rig_ask(a, value, 1000), 0); /* from before the registration */
	struct neap_announcement of = rig_value(a, value);
	struct neap_announcer_watch watch = {.key = of.key, .segment = of.segment, .generation = 5};
	ck_assert_int_eq(neap_announcer_ask(a->announcer, &watch), NEAP_EINVAL);
	neap_announcer_forget(&watch);
	/* withdrawn before it was known */
	sim_node_pause(rig_present()->node, 100 * MS);
	value = rig_put(a, "two", 100);
	of = rig_value(a, value);
	ck_assert_int_eq(rig_ask(a, value, 20), NEAP_ETIMEDOUT);
	ck_assert_int_eq(rig_ask(a, value, 1000), 0); /* it was tried on */
	/* whoever asks too late has not been refused */
	sim_node_pause(rig_present()->node, 100 * MS);
	value = rig_put(a, "three", 100);
	ck_assert_int_eq(rig_ask(a, value, 0), NEAP_ETIMEDOUT);
	ck_assert_int_eq(rig_ask(a, value, 1000), 0);
	ck_assert_int_eq(rig_ask(a, value, 0), NEAP_ANNOUNCER_ACCEPTED);
	rig_close();
}
END_TEST

static struct neap_announcer_watch watches[2];
static int watch_errors[2];
static uint32_t watch_ends;
static void watched(struct neap_announcer_watch *watch, int error)
{
	watch_errors[watch - watches] = error;
	watch_ends++;
}
static bool watches_ended(void)
{
	return watch_ends == 2;
}

START_TEST(asking_for_what_goes)
{
	open_world();
	rig_for(100);
	sim_node_pause(rig_present()->node, 100 * MS);
	uint32_t value = rig_put(a, "one", 100);
	struct neap_announcement of = rig_value(a, value);
	for (int i = 0; i < 2; i++) {
		watches[i] = (struct neap_announcer_watch){.key = of.key, .segment = of.segment, .generation = of.generation,
		                                           .deadline_ns = rig.sim->now_ns + 5000 * MS, .done = watched};
		ck_assert_int_eq(neap_announcer_ask(a->announcer, &watches[i]), 0);
	}
	ck_assert_int_eq(neap_announcer_ask(a->announcer, &watches[0]), NEAP_EINVAL); /* it asks already */
	rig_remove(a, value);
	ck_assert(rig_until(watches_ended, 50));
	ck_assert_int_eq(watch_errors[0], NEAP_STORE_OBJECT_NOT_FOUND);
	value = rig_put(a, "two", 100);
	of = rig_value(a, value);
	for (int i = 0; i < 2; i++) {
		watches[i] = (struct neap_announcer_watch){.key = of.key, .segment = of.segment, .generation = of.generation,
		                                           .deadline_ns = rig.sim->now_ns + 5000 * MS, .done = watched};
		ck_assert_int_eq(neap_announcer_ask(a->announcer, &watches[i]), 0);
	}
	neap_announcer_forget(&watches[0]);
	neap_announcer_forget(&watches[0]);
	expect_agreement(1000);
	ck_assert_uint_eq(watch_ends, 3);
	ck_assert_int_eq(watch_errors[1], 0);
	rig_close();
}
END_TEST

/* --- from one segment to the other ------------------------------------------------------------------------------------------------ */

static void open_both(uint32_t batch_max, uint64_t delay_ns)
{
	rig_open();
	rig.announcer_options.batch_max = batch_max;
	rig.sim->net.delay_max_ns += delay_ns;
	rig_master(true);
	a = rig_client();
	a->has_below = true;
	rig_announcer(a);
}

static bool no_route(void *user)
{
	(void)user;
	return rig_keys() == 0;
}

static bool knows(uint32_t value)
{
	struct neap_announcement of = rig_value(a, value);
	return neap_announcer_knows(a->announcer, of.key, of.segment, of.generation);
}

static uint64_t replicas(void)
{
	struct neap_local_directory_stats stats;
	neap_local_directory_stats(rig_present()->local, &stats);
	return stats.replicas;
}

/* Whatever is under way, sent or lost, when it moves, and however few changes a call takes: there is a route at every moment, one in the
 * end, and it stays accepted. */
START_TEST(a_moving_value_has_a_route)
{
	open_both((uint32_t)_i % 3, _i < 3 ? 0 : 5 * MS);
	srand(91 + (unsigned)_i);
	uint32_t value = rig_put(a, "one", 100);
	ck_assert_int_eq(rig_ask(a, value, 1000), 0);
	for (unsigned i = 0; i < 400; i++) {
		rig_move(a, value);
		ck_assert(knows(value));
		if (rand() % 8 == 0)
			(void)rig_ask(a, value, 1 + (unsigned)rand() % 3); /* urgent */
		if (rand() % 16 == 0)
			(void)sim_cut_one(rig.sim, a->node->host, rig_present()->node->host, rand() % 2);
		ck_assert_msg(!sim_run_until(rig.sim, no_route, NULL, (uint64_t)rand() % 30 * MS), "move %u: no route", i);
	}
	expect_agreement(5000);
	ck_assert_uint_eq(replicas(), 1);
	ck_assert(knows(value));
	ck_assert_uint_eq(a->withdrawn, 0);
	rig_remove(a, value);
	expect_agreement(5000);
	rig_close();
}
END_TEST

/* There is no room to note that it moved: all is announced, and only that takes the old route away. */
START_TEST(moved_with_a_full_queue)
{
	rig_open();
	rig.announcer_options.queue_max = 2;
	rig_master(true);
	a = rig_client();
	a->has_below = true;
	rig_announcer(a);
	uint32_t value = rig_put(a, "one", 100);
	ck_assert_int_eq(rig_ask(a, value, 1000), 0);
	expect_agreement(5000);
	for (unsigned i = 0; i < 10; i++) {
		uint32_t others[2] = {rig_put(a, "other", 100), rig_put(a, "another", 100)};
		rig_move(a, value);
		ck_assert(knows(value));
		ck_assert_int_eq(rig_until(settled, 5000), true);
		ck_assert_int_eq(rig_look(a, "one"), 1);
		rig_remove(a, others[0]);
		rig_remove(a, others[1]);
		expect_agreement(5000);
		ck_assert_uint_eq(replicas(), 1);
	}
	ck_assert_uint_ge(rig_announced(a).overflows, 10);
	rig_close();
}
END_TEST

START_TEST(who_asks_is_told_of_the_new_one)
{
	open_both(0, 0);
	rig_for(100);
	sim_node_pause(rig_present()->node, 100 * MS);
	uint32_t value = rig_put(a, "one", 100), other = rig_put(a, "two", 100);
	watch_ends = 0;
	for (int i = 0; i < 2; i++) {
		struct neap_announcement of = rig_value(a, i ? other : value);
		watches[i] = (struct neap_announcer_watch){.key = of.key, .segment = of.segment, .generation = of.generation,
		                                           .deadline_ns = rig.sim->now_ns + 5000 * MS, .done = watched};
		ck_assert_int_eq(neap_announcer_ask(a->announcer, &watches[i]), 0);
	}
	rig_move(a, value);
	ck_assert(!knows(value));
	rig_for(5);
	rig_move(a, value);
	rig_move(a, value);
	expect_agreement(2000);
	ck_assert_uint_eq(watch_ends, 2);
	ck_assert_int_eq(watch_errors[0], 0);
	ck_assert_int_eq(watch_errors[1], 0);
	ck_assert(knows(value));
	rig_close();
}
END_TEST

/* --- others were first ----------------------------------------------------------------------------------------------------------- */

START_TEST(another_was_first)
{
	open_world();
	b = rig_client();
	rig_announcer(b);
	ck_assert_int_eq(rig_ask(b, rig_put(b, "one", 100), 1000), 0);
	uint32_t value = rig_put(a, "one", 100);
	ck_assert_int_eq(rig_ask(a, value, 1000), NEAP_STORE_REPLICA_NUM_EXCEEDED);
	ck_assert_uint_eq(a->withdrawn, 1);
	ck_assert_int_eq(a->why, NEAP_STORE_REPLICA_NUM_EXCEEDED);
	expect_agreement(1000);
	put_many(a, 20, "a-%u");
	put_many(b, 20, "a-%u"); /* partly refused */
	put_many(b, 20, "b-%u");
	expect_agreement(1000);
	ck_assert_uint_eq(rig_keys(), 41);
	rig_close();
}
END_TEST

static bool b_has_lost(void)
{
	return b->withdrawn > 0;
}

/* A master that forgot everything hears of the later claim first; when the earlier one comes, the heartbeat tells the loser. */
START_TEST(the_loser_is_told_by_its_heartbeat)
{
	open_world();
	b = rig_client();
	rig.announcer_options.heartbeat_ms = 50;
	rig_announcer(b);
	uint32_t value = rig_put(a, "one", 100);
	ck_assert_int_eq(rig_ask(a, value, 1000), 0);
	sim_sever(rig.sim, 0, 1, false);
	rig_crash();
	rig_master(true); /* it takes new keys at once */
	rig_for(3000);
	uint32_t later = rig_put(b, "one", 100);
	ck_assert_int_eq(rig_ask(b, later, 3000), 0);
	sim_heal(rig.sim);
	ck_assert(rig_until(b_has_lost, 60000));
	expect_agreement(1000);
	ck_assert_uint_eq(b->withdrawn, 1);
	ck_assert_uint_eq(b->values[later].generation, 0);
	ck_assert_uint_eq(a->values[value].generation, 1);
	rig_close();
}
END_TEST

START_TEST(closed_from_inside_a_withdrawal)
{
	open_world();
	b = rig_client();
	rig_announcer(b);
	ck_assert_int_eq(rig_ask(b, rig_put(b, "one", 100), 1000), 0);
	a->closes_on_withdraw = true;
	(void)rig_put(a, "one", 100);
	(void)rig_put(a, "two", 100);
	rig_for(200);
	ck_assert(a->closed);
	ck_assert_uint_eq(rig_keys(), 1);
	rig_close();
}
END_TEST

/* --- a master that forgot everything ------------------------------------------------------------------------------------------------ */

static struct neap_key_stamp stamp_of(const char *key)
{
	struct neap_key_read_item item = {.key = rig_text(key)};
	struct neap_key_replica replica = {.size = 0};
	struct rig_call call = {.call.as.replicas = {.config.priority_limit = INT32_MIN, .items = &item, .count = 1,
	                                             .replicas = &replica, .replicas_max = 1}};
	ck_assert_int_eq(rig_do(a, &call, NEAP_KEY_OP_REPLICAS), 0);
	ck_assert_int_eq(item.error, 0);
	return replica.stamp;
}

START_TEST(a_master_that_comes_back_empty)
{
	open_world();
	put_many(a, 9000, "key-%u");
	expect_agreement(1000);
	struct neap_key_stamp before = stamp_of("key-8888");
	rig_crash();
	rig_for(500);
	rig_master(false);
	ck_assert_int_eq(rig_exists(a, "key-1"), NEAP_STORE_REPLICA_IS_NOT_READY);
	ck_assert_int_eq(rig_exists(a, "no-such-key"), NEAP_STORE_REPLICA_IS_NOT_READY);
	expect_agreement(10000);
	struct neap_key_stamp after = stamp_of("key-8888");
	ck_assert(before.epoch == after.epoch && before.sequence == after.sequence);
	/* a key that nobody announced before has to wait until all were heard */
	uint32_t value = rig_put(a, "new", 100);
	ck_assert_int_eq(rig_ask(a, value, 1000), NEAP_ETIMEDOUT);
	ck_assert_uint_gt(rig_announced(a).put_off, 2);
	ck_assert_int_eq(rig_ask(a, value, 40000), 0);
	ck_assert_int_eq(rig_exists(a, "no-such-key"), NEAP_STORE_OBJECT_NOT_FOUND);
	expect_agreement(1000);
	rig_close();
}
END_TEST

/* Values that were never announced are walked, put off, and go again from the queue, also when it is too small. */
START_TEST(walked_and_put_off)
{
	rig_open();
	rig.announcer_options.queue_max = _i == 0 ? 1000 : 10;
	rig_master(false);
	a = rig_client();
	put_many(a, 300, "key-%u");
	rig_announcer(a);
	rig_for(2000);
	ck_assert_uint_eq(rig_keys(), 0);
	ck_assert_uint_gt(rig_announced(a).put_off, 299);
	ck_assert_uint_lt(rig_announced(a).batches, 100); /* it does not insist */
	expect_agreement(120000);
	rig_close();
}
END_TEST

/* Its process stood still for longer than it may: everything of it is gone, and comes again. */
START_TEST(taken_for_dead)
{
	open_world();
	put_many(a, 3000, "key-%u");
	expect_agreement(1000);
	sim_node_pause(a->node, 45000 * MS);
	rig_for(44000);
	ck_assert_uint_eq(rig_keys(), 0);
	rig_for(3000);
	expect_agreement(5000);
	ck_assert_uint_ge(rig_announced(a).registrations, 2);
	ck_assert_uint_eq(rig_keys(), 3000);
	rig_close();
}
END_TEST

/* --- losses ------------------------------------------------------------------------------------------------------------------------------ */

/* The connection is cut at another moment each time: while it registers, sends, begins, walks, ends. */
START_TEST(cut_at_any_time)
{
	rig_open();
	rig.announcer_options.batch_max = 200;
	rig_master(true);
	a = rig_client();
	put_many(a, 500, "before-%u");
	rig_announcer(a);
	put_many(a, 1000, "after-%u");
	for (unsigned i = 0; i < 40; i++) {
		sim_run_for(rig.sim, (uint64_t)(_i + 1) * 37000 + i * 11000);
		(void)sim_cut_one(rig.sim, 0, 1, i % 2);
		if (i % 4 == 1)
			rig_remove(a, i);
		if (i % 4 == 2)
			put_numbered(i);
		if (i % 10 == 9) {
			rig_for(300);
			neap_announcer_renew(a->announcer);
		}
	}
	for (uint32_t i = 40; i < 60; i++)
		rig_remove(a, i);
	ck_assert(rig_until(settled, 60000));
	for (uint32_t i = 0; i < 60; i++) {
		bool there = a->values[i].generation != 0;
		ck_assert_int_eq(rig_look(a, a->values[i].key), there ? 1 : NEAP_STORE_OBJECT_NOT_FOUND);
	}
	rig_close();
}
END_TEST

START_TEST(a_queue_that_is_too_small)
{
	rig_open();
	rig.announcer_options.queue_max = 16;
	rig.announcer_options.long_keys_max = 2;
	rig.announcer_options.batch_max = 64;
	rig_master(true);
	a = rig_client();
	rig_announcer(a);
	rig_for(100);
	put_many(a, 1000, "key-%u");
	put_many(a, 50, "a long key a long key a long key a long key a long key a long key a long key a long key a long key %u");
	ck_assert_uint_gt(rig_announced(a).overflows, 900);
	ck_assert_int_eq(rig_ask(a, 999, 2000), 0); /* nobody is forgotten */
	expect_agreement(5000);
	for (uint32_t i = 0; i < 900; i++)
		rig_remove(a, i);
	expect_agreement(5000);
	ck_assert_uint_eq(rig_keys(), 150);
	for (uint32_t i = 0; i < 900; i += 3) { /* while a round is under way */
		put_many(a, 1, "while-%u");
		rig_remove(a, a->value_count - 1);
		sim_run_for(rig.sim, 100000);
	}
	expect_agreement(5000);
	rig_close();
}
END_TEST

/* A directory that is full takes what it can; when there is room the rest follows. */
START_TEST(a_directory_that_is_full)
{
	rig_open();
	rig.directory_options.keys_max = 100;
	rig_master(true);
	a = rig_client();
	rig_announcer(a);
	put_many(a, 150, "key-%u");
	rig_for(1000);
	ck_assert_uint_eq(rig_keys(), 100);
	ck_assert_uint_gt(rig_announced(a).put_off, 50);
	for (uint32_t i = 0; i < 70; i++)
		rig_remove(a, i);
	expect_agreement(5000);
	ck_assert_uint_eq(rig_keys(), 80);
	rig_close();
}
END_TEST

START_TEST(leaving)
{
	open_world();
	put_many(a, 100, "key-%u");
	expect_agreement(1000);
	ck_assert_uint_eq(rig_keys(), 100);
	(void)rig_put(a, "", 1); /* not a key: not announced */
	a->values[100].generation = 0;
	b = rig_client();
	rig_announcer(b);
	b->closes_on_withdraw = true;
	(void)rig_put(b, "key-1", 100);
	rig_for(500);
	ck_assert(b->closed);
	struct neap_key_client_item item = {.id = rig_self(b).id};
	struct rig_call call = {.call.as.clients = {.items = &item, .count = 1}};
	ck_assert_int_eq(rig_do(a, &call, NEAP_KEY_OP_CLIENTS), 0);
	ck_assert_int_eq(item.status, NEAP_KEY_UNDEFINED);
	ck_assert_int_eq(rig_ask(b, 0, 100), NEAP_ECLOSED);
	rig_close();
}
END_TEST

/* What heartbeats say of the tiers is what places are chosen by. */
START_TEST(usages_arrive)
{
	open_world();
	put_many(a, 200, "key-%u");
	rig_for(1500);
	struct neap_key_write_item item = {.key = rig_text("new"), .size = 1};
	struct neap_key_candidate offered;
	struct rig_call call = {.call.as.write_routes = {.config = NEAP_KEY_WRITE_CONFIG, .items = &item, .count = 1,
	                                                 .candidates = &offered, .candidates_max = 1}};
	ck_assert_int_eq(rig_do(a, &call, NEAP_KEY_OP_WRITE_ROUTES), 0);
	ck_assert_uint_eq(offered.available, (1u << 30) - 200000);
	rig_close();
}
END_TEST

static void reset(void)
{
	a = b = NULL;
}

int main(void)
{
	Suite *suite = suite_create("master_announcer");
	TCase *usual = tcase_create("the usual course"), *losses = tcase_create("losses");
	tcase_add_checked_fixture(usual, reset, NULL);
	tcase_add_checked_fixture(losses, reset, NULL);
	tcase_set_timeout(usual, 60);
	tcase_set_timeout(losses, 120);
	tcase_add_test(usual, a_put_is_known_at_once_when_somebody_asks);
	tcase_add_test(usual, changes_are_gathered);
	tcase_add_test(usual, the_last_change_counts);
	tcase_add_test(usual, asking);
	tcase_add_test(usual, asking_for_what_goes);
	tcase_add_test(usual, who_asks_is_told_of_the_new_one);
	tcase_add_test(usual, moved_with_a_full_queue);
	tcase_add_loop_test(usual, a_moving_value_has_a_route, 0, 6);
	tcase_add_test(usual, another_was_first);
	tcase_add_test(usual, the_loser_is_told_by_its_heartbeat);
	tcase_add_test(usual, closed_from_inside_a_withdrawal);
	tcase_add_test(usual, leaving);
	tcase_add_test(usual, usages_arrive);
	tcase_add_test(losses, a_master_that_comes_back_empty);
	tcase_add_loop_test(losses, walked_and_put_off, 0, 2);
	tcase_add_test(losses, taken_for_dead);
	tcase_add_loop_test(losses, cut_at_any_time, 0, 16);
	tcase_add_test(losses, a_queue_that_is_too_small);
	tcase_add_test(losses, a_directory_that_is_full);
	suite_add_tcase(suite, usual);
	suite_add_tcase(suite, losses);
	return rig_run(suite);
}
