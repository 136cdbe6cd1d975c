/* Calls as such: one end each, never from inside begin, deadlines, cancel, bounds, fairness, listing in pages, closing, memory that
 * runs out. */
#include "tests/unit/key_rig.h"

static void fill(uint32_t count)
{
	static struct neap_key_change changes[2000];
	static char keys[2000][64];
	for (uint32_t i = 0; i < count; i++) {
		(void)snprintf(keys[i], sizeof keys[i], i % 2 ? "key-%u" : "a-key-that-is-too-long-to-lie-in-its-record-%u", i);
		changes[i] = adding(1, 10, keys[i]);
	}
	ck_assert_int_eq(announce(1, 0, 0, changes, count), NEAP_OK);
}

static struct neap_key_listed listed[100];
static char page[4000];

static struct waited list_of(const char *pattern)
{
	return (struct waited){
		.call.as.list = {.pattern = text(pattern), .keys = listed, .keys_max = 100, .text = page, .text_size = sizeof page}};
}

/* --- ends -------------------------------------------------------------------------------------------------------------------- */

START_TEST(a_call_that_makes_no_sense)
{
	struct waited waited = {.call = {0}};
	ck_assert_int_eq(rig_begin(&waited, NEAP_KEY_OPS), NEAP_EINVAL);
	ck_assert_int_eq(rig_begin(&waited, (enum neap_key_op) - 1), NEAP_EINVAL);
	waited.call.deadline_ns = rig.now_ns;
	ck_assert_int_eq(rig_begin(&waited, NEAP_KEY_OP_COUNT), NEAP_EINVAL);
	waited.call.deadline_ns = 0;
	ck_assert_int_eq(rig_begin(&waited, NEAP_KEY_OP_COUNT), NEAP_OK);
	ck_assert_int_eq(rig_begin(&waited, NEAP_KEY_OP_COUNT), NEAP_EINVAL); /* it is under way */
	rig_rest();
	waited.call.done = NULL;
	ck_assert_int_eq(neap_key_begin(rig.face, &waited.call), NEAP_EINVAL);
	rig_rest();
}
END_TEST

/* Walks that take more turns than they have time. */
START_TEST(deadlines)
{
	struct waited waited = list_of("^key-1999$"), usual = list_of("^key-1999$");
	rig_close();
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 2000, .slice = 64});
	join(1, MIB);
	fill(2000);
	waited.call.deadline_ns = rig.now_ns + 5 * MS;
	ck_assert_int_eq(rig_begin(&waited, NEAP_KEY_OP_LIST), NEAP_OK);
	ck_assert_int_eq(rig_begin(&usual, NEAP_KEY_OP_LIST), NEAP_OK);
	rig.now_ns += 6 * MS;
	rig_rest();
	ck_assert_int_eq(waited.error, NEAP_ETIMEDOUT);
	ck_assert_int_eq(usual.error, NEAP_OK);
	ck_assert_int_eq(rig_begin(&usual, NEAP_KEY_OP_LIST), NEAP_OK);
	rig.now_ns += 5001 * MS;
	rig_rest();
	ck_assert_int_eq(usual.error, NEAP_ETIMEDOUT);
	struct neap_local_directory_stats stats;
	neap_local_directory_stats(rig.directory, &stats);
	ck_assert_uint_eq(stats.timed_out, 2);
}
END_TEST

START_TEST(a_late_loop_still_does_what_it_can_do_at_once)
{
	struct waited waited = {.call = {0}};
	waited.call.deadline_ns = rig.now_ns + 5 * MS;
	ck_assert_int_eq(rig_begin(&waited, NEAP_KEY_OP_COUNT), NEAP_OK);
	rig.now_ns += 6 * MS;
	rig_rest();
	ck_assert_int_eq(waited.error, NEAP_OK);
}
END_TEST

START_TEST(canceling)
{
	struct waited waited[3] = {{.done = false}};
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(rig_begin(&waited[i], NEAP_KEY_OP_COUNT), NEAP_OK);
	neap_key_cancel(rig.face, &waited[1].call);
	neap_key_cancel(rig.face, &waited[1].call);
	rig_rest();
	ck_assert(waited[0].done && !waited[1].done && waited[2].done);
	neap_key_cancel(rig.face, &waited[0].call); /* it has ended: nothing */
	rig_advance(6000);
	ck_assert(!waited[1].done);
}
END_TEST

static struct waited chain[3];

static void cancel_the_next(struct waited *waited)
{
	(void)waited;
	neap_key_cancel(rig.face, &chain[1].call);
	ck_assert_int_eq(rig_begin(&chain[1], NEAP_KEY_OP_COUNT), NEAP_OK);
	ck_assert(!chain[1].done);
}

START_TEST(a_callee_may_cancel_and_begin)
{
	memset(chain, 0, sizeof chain);
	chain[0].then = cancel_the_next;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(rig_begin(&chain[i], NEAP_KEY_OP_COUNT), NEAP_OK);
	rig_rest();
	ck_assert(chain[0].done && chain[1].done && chain[2].done);
}
END_TEST

static void destroy(struct waited *waited)
{
	(void)waited;
	neap_local_directory_destroy(rig.directory);
	rig.directory = NULL;
}

static void begin_after_the_end(struct waited *waited)
{
	ck_assert_int_eq(waited->error, NEAP_ECLOSED);
	ck_assert_int_eq(rig_begin(&chain[0], NEAP_KEY_OP_COUNT), NEAP_ECLOSED);
}

START_TEST(a_callee_may_destroy_the_directory)
{
	memset(chain, 0, sizeof chain);
	join(1, MIB);
	chain[0].then = destroy;
	chain[1].then = begin_after_the_end;
	ck_assert_int_eq(rig_begin(&chain[0], NEAP_KEY_OP_COUNT), NEAP_OK);
	ck_assert_int_eq(rig_begin(&chain[1], NEAP_KEY_OP_COUNT), NEAP_OK);
	ck_assert_int_eq(rig_begin(&chain[2], NEAP_KEY_OP_LIST), NEAP_OK);
	ck_assert_int_eq(neap_reactor_destroy(rig.reactor), NEAP_EBUSY);
	rig_rest();
	ck_assert_int_eq(chain[0].error, NEAP_OK);
	ck_assert_int_eq(chain[1].error, NEAP_ECLOSED);
	ck_assert_int_eq(chain[2].error, NEAP_ECLOSED);
}
END_TEST

START_TEST(a_bound_on_calls)
{
	static struct waited waited[9];
	memset(waited, 0, sizeof waited);
	rig_close();
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 10, .calls_max = 8});
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(rig_begin(&waited[i], NEAP_KEY_OP_COUNT), NEAP_OK);
	ck_assert_int_eq(rig_begin(&waited[8], NEAP_KEY_OP_COUNT), NEAP_EAGAIN);
	rig_rest();
	ck_assert_int_eq(rig_begin(&waited[8], NEAP_KEY_OP_COUNT), NEAP_OK);
	rig_rest();
}
END_TEST

/* A heartbeat does not wait behind data. */
START_TEST(what_keeps_clients_alive_goes_first)
{
	static struct neap_key_read_item items[2000];
	static struct waited many[20];
	rig_close();
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 10, .slice = 32});
	join(1, MIB);
	for (int i = 0; i < 2000; i++)
		items[i].key = text("a");
	for (int i = 0; i < 20; i++) {
		many[i] = (struct waited){.call.as.exist = {.items = items, .count = 2000}};
		ck_assert_int_eq(rig_begin(&many[i], NEAP_KEY_OP_EXIST), NEAP_OK);
	}
	rig_turn();
	struct waited heartbeat = {.call.as.heartbeat.client = self(1)};
	ck_assert_int_eq(rig_begin(&heartbeat, NEAP_KEY_OP_HEARTBEAT), NEAP_OK);
	rig_turn();
	ck_assert(heartbeat.done && !many[0].done);
	rig_rest();
	for (int i = 0; i < 20; i++)
		ck_assert(many[i].done && many[i].error == 0);
}
END_TEST

START_TEST(questions_about_clients)
{
	join(1, MIB);
	struct neap_key_client_item items[2] = {{.id = id_of(1)}, {.id = id_of(2)}};
	struct waited waited = {.call.as.clients = {.items = items, .count = 2}};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_CLIENTS), NEAP_OK);
	ck_assert_int_eq(items[0].status, NEAP_KEY_HEALTHY);
	ck_assert_str_eq(items[0].host, "10.0.0.1");
	ck_assert_uint_eq(items[0].port, 1001);
	ck_assert_int_eq(items[1].status, NEAP_KEY_UNDEFINED);
	ck_assert(items[1].host[0] == 0 && items[1].port == 0);
}
END_TEST

/* --- listing ------------------------------------------------------------------------------------------------------------------ */

START_TEST(pages)
{
	static bool seen[500];
	memset(seen, 0, sizeof seen);
	join(1, MIB);
	fill(500);
	uint32_t count = 0, pages_ = 0;
	struct waited waited = list_of("^key-\\d*[13579]$");
	do {
		ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_LIST), NEAP_OK);
		pages_++;
		for (uint32_t i = 0; i < waited.call.as.list.count; i++, count++) {
			unsigned number = 0;
			char key[64] = "";
			memcpy(key, page + listed[i].offset, listed[i].length);
			ck_assert_int_eq(sscanf(key, "key-%u", &number), 1);
			ck_assert(number < 500 && !seen[number]);
			seen[number] = true;
		}
		/* what comes and goes between pages does no harm to what stays */
		ck_assert_int_eq(add(1, 10, "another"), NEAP_OK);
		ck_assert_int_eq(take_away(1, 10, "another", 0), NEAP_OK);
	} while (waited.call.as.list.cursor);
	ck_assert_uint_eq(count, 250);
	ck_assert_uint_eq(pages_, 3);
	ck_assert(waited.call.as.list.complete);
	/* the text may be full first; an empty pattern is all */
	waited = list_of("");
	waited.call.as.list.text_size = 150;
	count = 0;
	do {
		ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_LIST), NEAP_OK);
		count += waited.call.as.list.count;
	} while (waited.call.as.list.cursor);
	ck_assert_uint_eq(count, 500);
	waited = list_of("too-long");
	waited.call.as.list.text_size = 10;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_LIST), NEAP_STORE_BUFFER_OVERFLOW);
	waited = list_of("nothing like this");
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_LIST), NEAP_OK);
	ck_assert(waited.call.as.list.count == 0 && waited.call.as.list.cursor == 0);
}
END_TEST

START_TEST(bad_patterns_are_named)
{
	struct waited waited = list_of("ab(c");
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_LIST), NEAP_STORE_INVALID_PARAMS);
	ck_assert_str_eq(waited.call.as.list.why, "position 3: the group has no end");
	waited = list_of("a");
	waited.call.as.list.cursor = UINT64_MAX;
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_LIST), NEAP_STORE_INVALID_PARAMS);
	waited.call.as.list.cursor = 12345678; /* past the end */
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_LIST), NEAP_OK);
	ck_assert(waited.call.as.list.cursor == 0);
}
END_TEST

/* More lists than may be at work: they wait for one another, and for no one else. */
START_TEST(lists_take_turns)
{
	static struct waited lists[5];
	static struct neap_key_listed keys[5][2];
	static char texts[5][20];
	rig_close();
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 2000, .lists_max = 2, .slice = 64});
	join(1, MIB);
	fill(2000);
	for (int i = 0; i < 5; i++) {
		lists[i] = (struct waited){
			.call.as.list = {.pattern = text("^key-1999$"), .keys = keys[i], .keys_max = 2, .text = texts[i], .text_size = 20}};
		ck_assert_int_eq(rig_begin(&lists[i], NEAP_KEY_OP_LIST), NEAP_OK);
	}
	rig_turn();
	rig_turn();
	rig_turn();
	struct neap_key_read_item item = {.key = text("key-1")};
	struct waited question = {.call.as.exist = {.items = &item, .count = 1}};
	ck_assert_int_eq(rig_begin(&question, NEAP_KEY_OP_EXIST), NEAP_OK);
	rig_turn();
	ck_assert(question.done && item.error == NEAP_OK && !lists[0].done);
	neap_key_cancel(rig.face, &lists[0].call);
	rig_rest();
	for (int i = 1; i < 5; i++)
		ck_assert(lists[i].done && lists[i].error == 0 && lists[i].call.as.list.count == 1);
	ck_assert(!lists[0].done);
}
END_TEST

/* A departed client's routes are hidden at once and swept a slice a turn. */
START_TEST(departed_routes_go_in_slices)
{
	rig_close();
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 2000, .slice = 16});
	join(1, MIB);
	fill(1000);
	struct waited leave = {.call.as.unregister.client = self(1)};
	ck_assert_int_eq(rig_begin(&leave, NEAP_KEY_OP_UNREGISTER), NEAP_OK);
	while (!leave.done)
		rig_turn();
	struct neap_key_read_item item = {.key = text("key-1")};
	struct waited question = {.call.as.exist = {.items = &item, .count = 1}};
	ck_assert_int_eq(rig_begin(&question, NEAP_KEY_OP_EXIST), NEAP_OK);
	while (!question.done)
		rig_turn();
	ck_assert_int_eq(item.error, NEAP_STORE_OBJECT_NOT_FOUND);
	struct waited counted = {.call = {0}};
	ck_assert_int_eq(rig_begin(&counted, NEAP_KEY_OP_COUNT), NEAP_OK);
	while (!counted.done)
		rig_turn();
	ck_assert(counted.call.as.count.keys > 500 && !counted.call.as.count.complete);
	struct waited waited = list_of("");
	ck_assert_int_eq(rig_begin(&waited, NEAP_KEY_OP_LIST), NEAP_OK);
	rig_rest();
	ck_assert_uint_eq(waited.call.as.list.count, 0);
	ck_assert_uint_eq(count_keys(), 0);
}
END_TEST

/* --- options and memory ----------------------------------------------------------------------------------------------------------
 * */

START_TEST(options_are_checked)
{
	struct neap_local_directory *directory;
	struct neap_local_directory_options options = {.key_length_max = 4097};
	ck_assert_int_eq(neap_local_directory_create(&directory, rig.reactor, &options, rig.why, sizeof rig.why), NEAP_EINVAL);
	ck_assert_str_eq(rig.why, "key_length_max is 4097; allowed are 1 to 4096");
	options = (struct neap_local_directory_options){.client_ttl_ms = 5000, .crashed_ttl_ms = 4000};
	ck_assert_int_eq(neap_local_directory_create(&directory, rig.reactor, &options, rig.why, sizeof rig.why), NEAP_EINVAL);
	ck_assert_ptr_nonnull(strstr(rig.why, "crashed_ttl_ms is 4000; allowed are 5000"));
	ck_assert_ptr_null(directory);
}
END_TEST

START_TEST(as_many_clients_as_there_may_be)
{
	rig_close();
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 10, .clients_max = 2, .segments_max = 3});
	join(1, MIB);
	ck_assert_int_eq(do_register(2, MIB, MIB), NEAP_OK);
	ck_assert_int_eq(do_register(3, MIB, 0), NEAP_STORE_KEYS_ULTRA_LIMIT);
	ck_assert_int_eq(do_mount(1, 20, MIB), NEAP_STORE_KEYS_ULTRA_LIMIT);
	ck_assert_int_eq(do_unregister(1), NEAP_OK);
	ck_assert_int_eq(do_register(3, MIB, MIB), NEAP_STORE_KEYS_ULTRA_LIMIT); /* one segment is left: it is not half registered */
	ck_assert_int_eq(status_of(3), NEAP_KEY_UNDEFINED);
	ck_assert_int_eq(do_register(3, MIB, 0), NEAP_OK);
}
END_TEST

START_TEST(memory_that_runs_out_at_create)
{
	struct neap_local_directory_options options = {.first = true, .keys_max = 100};
	neap_local_directory_destroy(rig.directory);
	rig.directory = NULL;
	rig_rest();
	int error = NEAP_ENOMEM;
	uint32_t allocations = 0;
	for (; error; allocations++) {
		size_t before = rig.allocated;
		rig.allocations_left = allocations;
		error = neap_local_directory_create(&rig.directory, rig.reactor, &options, rig.why, sizeof rig.why);
		ck_assert(error == 0 || error == NEAP_ENOMEM);
		if (error)
			ck_assert_uint_eq(rig.allocated, before);
	}
	ck_assert_uint_gt(allocations, 10);
	rig.allocations_left = UINT32_MAX;
	rig.face = neap_local_directory_face(rig.directory);
	join(1, MIB);
}
END_TEST

/* The table cannot grow: chains get longer, and nothing is lost. */
START_TEST(memory_that_runs_out_later)
{
	static struct neap_key_change changes[2000];
	static char keys[12000][16];
	rig_close();
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 20000});
	join(1, MIB);
	rig.allocations_left = 0;
	for (uint32_t done = 0; done < 12000; done += 2000) {
		for (uint32_t i = 0; i < 2000; i++) {
			(void)snprintf(keys[done + i], sizeof keys[0], "key-%u", done + i);
			changes[i] = adding(1, 10, keys[done + i]);
		}
		ck_assert_int_eq(announce(1, 0, 0, changes, 2000), NEAP_OK);
		for (uint32_t i = 0; i < 2000; i++)
			ck_assert_int_eq(changes[i].error, NEAP_OK);
		if (done == 8000)
			rig.allocations_left = UINT32_MAX; /* and grows when it can again */
	}
	for (uint32_t i = 0; i < 12000; i += 7)
		ck_assert_int_eq(exists(keys[i]), NEAP_OK);
	ck_assert_uint_eq(count_keys(), 12000);
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
	Suite *suite = suite_create("store directory: calls");
	TCase *ends = group(suite, "ends");
	tcase_add_test(ends, a_call_that_makes_no_sense);
	tcase_add_test(ends, deadlines);
	tcase_add_test(ends, a_late_loop_still_does_what_it_can_do_at_once);
	tcase_add_test(ends, canceling);
	tcase_add_test(ends, a_callee_may_cancel_and_begin);
	tcase_add_test(ends, a_callee_may_destroy_the_directory);
	tcase_add_test(ends, a_bound_on_calls);
	tcase_add_test(ends, what_keeps_clients_alive_goes_first);
	tcase_add_test(ends, questions_about_clients);
	TCase *lists = group(suite, "lists");
	tcase_add_test(lists, pages);
	tcase_add_test(lists, bad_patterns_are_named);
	tcase_add_test(lists, lists_take_turns);
	tcase_add_test(lists, departed_routes_go_in_slices);
	TCase *memory = group(suite, "options and memory");
	tcase_add_test(memory, options_are_checked);
	tcase_add_test(memory, as_many_clients_as_there_may_be);
	tcase_add_test(memory, memory_that_runs_out_at_create);
	tcase_add_test(memory, memory_that_runs_out_later);
	return run_suite(suite);
}
