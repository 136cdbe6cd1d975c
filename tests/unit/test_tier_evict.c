/* Eviction and the frequency sketch. */
#include "store/tier/evict.h"
#include "store/tier/frequency.h"
#include "tests/support/coverage.h"
#include <check.h>
#include <stdlib.h>

#define OBJECTS 1000

struct object {
	struct neap_evict_entry entry;
	int number;
	bool gone;
};

static struct object objects[OBJECTS];
static struct neap_evict queue;
static int evicted[OBJECTS], evicted_count;
static bool keep_all;

static uint64_t evict(void *user, struct neap_evict_entry *entry)
{
	struct object *object = (struct object *)(void *)entry;
	ck_assert_ptr_eq(user, &queue);
	ck_assert_uint_eq(entry->pins, 0);
	ck_assert(!object->gone);
	if (keep_all)
		return 0;
	neap_evict_remove(entry);
	object->gone = true;
	evicted[evicted_count++] = object->number;
	return 100;
}

static void setup(void)
{
	neap_evict_init(&queue, 0.7, 0.9, evict, &queue);
	evicted_count = 0;
	keep_all = false;
	for (int i = 0; i < OBJECTS; i++)
		objects[i] = (struct object){.number = i};
}

static void insert(int count)
{
	for (int i = 0; i < count; i++)
		neap_evict_insert(&queue, &objects[i].entry);
}

static uint64_t freed;

static int ahead(void)
{
	struct neap_evict_entry *entry = neap_evict_ahead(&queue);
	return entry ? ((struct object *)(void *)entry)->number : -1;
}

/* A value larger than the high mark is not thrown away because it came; the one behind it that needs the room may. */
START_TEST(the_newest_goes_for_another_and_not_for_a_mark)
{
	insert(1);
	ck_assert_int_eq(neap_evict_run(&queue, 100, true, 1000, &freed), NEAP_EVICT_EXHAUSTED);
	ck_assert(!objects[0].gone && freed == 0);
	neap_evict_insert(&queue, &objects[1].entry);
	neap_evict_access(&objects[0].entry);
	ck_assert_int_eq(neap_evict_run(&queue, 200, true, 1000, &freed), NEAP_EVICT_EXHAUSTED);
	ck_assert(objects[0].gone && !objects[1].gone && freed == 100);
	ck_assert_int_eq(neap_evict_run(&queue, 100, false, 1000, &freed), NEAP_EVICT_DONE);
	ck_assert(objects[1].gone);
}
END_TEST

/* Whoever looks ahead sees what will be chosen before it is, whatever goes meanwhile, and changes nothing. */
START_TEST(the_scout_is_ahead_of_the_hand)
{
	ck_assert_int_eq(ahead(), -1);
	insert(5);
	ck_assert_int_eq(ahead(), -1); /* the end of a round */
	ck_assert_int_eq(ahead(), 0);
	ck_assert_int_eq(ahead(), 1);
	neap_evict_remove(&objects[2].entry); /* where it stood */
	ck_assert_int_eq(ahead(), 3);
	ck_assert_int_eq(ahead(), 4);
	ck_assert_int_eq(ahead(), -1);
	neap_evict_access(&objects[0].entry);
	ck_assert_int_eq(neap_evict_run(&queue, 100, false, 1000, &freed), NEAP_EVICT_DONE); /* passes 0, takes 1 */
	ck_assert_int_eq(evicted[0], 1);
	ck_assert_int_eq(ahead(), 3); /* it was at 0: what the hand has passed is the last that it comes to */
	neap_evict_access(&objects[3].entry);
	ck_assert_int_eq(neap_evict_run(&queue, 100, false, 1000, &freed), NEAP_EVICT_DONE); /* passes 3, takes 4, where it stood */
	ck_assert_int_eq(evicted[1], 4);
	ck_assert_int_eq(ahead(), -1);
	ck_assert_int_eq(ahead(), 0);
	ck_assert_uint_eq(queue.count, 2);
}
END_TEST

START_TEST(the_oldest_without_a_mark_goes)
{
	insert(5);
	neap_evict_access(&objects[0].entry);
	neap_evict_access(&objects[2].entry);
	ck_assert_int_eq(neap_evict_run(&queue, 300, false, 1000, &freed), NEAP_EVICT_DONE);
	ck_assert_uint_eq(freed, 300);
	ck_assert_int_eq(evicted[0], 1);
	ck_assert_int_eq(evicted[1], 3);
	ck_assert_int_eq(evicted[2], 4);
	ck_assert_int_eq(neap_evict_run(&queue, 1000, false, 1000, &freed), NEAP_EVICT_EXHAUSTED);
	ck_assert_uint_eq(freed, 200);
	ck_assert_uint_eq(queue.count, 0);
}
END_TEST

START_TEST(the_hand_goes_on_where_it_stopped)
{
	insert(4);
	for (int i = 0; i < 4; i++)
		neap_evict_access(&objects[i].entry);
	ck_assert_int_eq(neap_evict_run(&queue, 100, false, 2, &freed), NEAP_EVICT_MORE); /* marks of 0 and 1 are gone */
	ck_assert_uint_eq(freed, 0);
	neap_evict_access(&objects[0].entry);
	neap_evict_remove(&objects[2].entry); /* the one under the hand */
	ck_assert_int_eq(neap_evict_run(&queue, 100, false, 100, &freed), NEAP_EVICT_DONE);
	ck_assert_int_eq(evicted[0], 1); /* 3 and then 0 lost their marks on the way */
}
END_TEST

START_TEST(what_is_held_is_never_chosen)
{
	insert(OBJECTS);
	for (int i = 0; i < OBJECTS; i += 2)
		neap_evict_pin(&objects[i].entry);
	ck_assert_int_eq(neap_evict_run(&queue, UINT64_MAX, false, 1000000, &freed), NEAP_EVICT_EXHAUSTED);
	ck_assert_int_eq(evicted_count, OBJECTS / 2);
	ck_assert_uint_eq(freed, 100 * OBJECTS / 2);
	for (int i = 0; i < OBJECTS; i++)
		ck_assert_int_eq(objects[i].gone, i % 2);
	uint64_t steps = queue.stats.steps;
	ck_assert_int_eq(neap_evict_run(&queue, 1, false, 1000000, &freed), NEAP_EVICT_EXHAUSTED);
	ck_assert_uint_eq(queue.stats.steps, steps); /* and nothing is spent on looking again */
	neap_evict_unpin(&objects[10].entry);
	ck_assert_int_eq(neap_evict_run(&queue, 1, false, 1000000, &freed), NEAP_EVICT_DONE);
	ck_assert_int_eq(evicted[evicted_count - 1], 10);
}
END_TEST

START_TEST(what_the_owner_keeps_is_not_counted)
{
	insert(10);
	keep_all = true;
	ck_assert_int_eq(neap_evict_run(&queue, 100, false, 1000, &freed), NEAP_EVICT_EXHAUSTED);
	ck_assert_uint_eq(freed, 0);
	ck_assert_uint_eq(queue.count, 10);
	ck_assert_uint_eq(queue.stats.evicted, 0);
	ck_assert_uint_gt(queue.stats.refused, 0);
	keep_all = false;
	neap_evict_insert(&queue, &objects[10].entry); /* something has changed */
	ck_assert_int_eq(neap_evict_run(&queue, 100, false, 1000, &freed), NEAP_EVICT_DONE);
}
END_TEST

START_TEST(a_call_does_so_much_and_no_more)
{
	insert(OBJECTS);
	for (int i = 0; i < OBJECTS; i++)
		neap_evict_access(&objects[i].entry);
	uint64_t total = 0, calls = 0;
	while (total < 100 * OBJECTS) {
		uint64_t before = queue.stats.steps;
		neap_evict_run(&queue, 100 * OBJECTS - total, false, 7, &freed);
		ck_assert_uint_le(queue.stats.steps - before, 7);
		total += freed;
		ck_assert_uint_lt(++calls, 1000);
	}
	ck_assert_int_eq(evicted_count, OBJECTS);
}
END_TEST

/* Nobody has used anything, and the hand has come far: what was just put stays all the same, as long as there is something else. */
START_TEST(the_newest_are_let_alone)
{
	insert(100);
	ck_assert_int_eq(neap_evict_run(&queue, 6000, false, 1000, &freed), NEAP_EVICT_DONE);
	for (int i = 0; i < 40; i++) { /* the hand stands behind 60 of 100: it meets the newest in each round */
		neap_evict_insert(&queue, &objects[100 + i].entry);
		ck_assert_int_eq(neap_evict_run(&queue, 100, false, 1000, &freed), NEAP_EVICT_DONE);
		ck_assert(!objects[100 + i].gone && !objects[99 + i].gone);
	}
	for (int i = 0; i < OBJECTS; i++)
		if (objects[i].entry.queue && i < 139)
			neap_evict_pin(&objects[i].entry);
	ck_assert_int_eq(neap_evict_run(&queue, 100, false, 1000, &freed), NEAP_EVICT_DONE); /* all others are held */
	ck_assert(objects[139].gone);
}
END_TEST

START_TEST(watermarks_begin_high_and_end_low)
{
	ck_assert_uint_eq(neap_evict_wanted(&queue, 0, 1000), 0);
	ck_assert_uint_eq(neap_evict_wanted(&queue, 900, 1000), 0);
	ck_assert_uint_eq(neap_evict_wanted(&queue, 901, 1000), 201);
	ck_assert_uint_eq(neap_evict_wanted(&queue, 800, 1000), 100);
	ck_assert_uint_eq(neap_evict_wanted(&queue, 700, 1000), 0);
	ck_assert_uint_eq(neap_evict_wanted(&queue, 800, 1000), 0);
}
END_TEST

/* Many are read once, few again and again: the few stay. */
START_TEST(a_scan_does_not_wash_out_what_is_used)
{
	insert(100);
	for (int i = 100; i < OBJECTS; i++) {
		for (int hot = 0; hot < 20; hot++)
			neap_evict_access(&objects[hot].entry);
		neap_evict_run(&queue, 100, false, 1000, &freed);
		ck_assert_uint_eq(freed, 100);
		neap_evict_insert(&queue, &objects[i].entry);
	}
	for (int hot = 0; hot < 20; hot++)
		ck_assert(!objects[hot].gone);
	ck_assert_uint_eq(queue.count, 100);
}
END_TEST

/* --- frequency -------------------------------------------------------------------------------------------------------- */

static uint64_t mixed(uint64_t i)
{
	i = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
	return (i ^ i >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

static struct neap_reactor *reactor;
static struct neap_frequency frequency;

static void setup_frequency(void)
{
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), NEAP_OK);
	ck_assert_int_eq(neap_frequency_create(&frequency, reactor, 4096), NEAP_OK);
}

static void teardown_frequency(void)
{
	neap_frequency_destroy(&frequency);
	ck_assert_int_eq(support_reactor_destroy(reactor), NEAP_OK);
}

START_TEST(counts_and_saturates)
{
	for (uint32_t i = 0; i < 40; i++) {
		ck_assert_uint_eq(neap_frequency_of(&frequency, mixed(7)), i < 15 ? i : 15);
		neap_frequency_add(&frequency, mixed(7));
	}
	ck_assert_uint_eq(neap_frequency_of(&frequency, mixed(8)), 0);
	struct neap_frequency other;
	ck_assert_int_eq(neap_frequency_create(&other, reactor, 0), NEAP_EINVAL);
}
END_TEST

START_TEST(tells_the_frequent_from_the_rare)
{
	for (uint64_t round = 0; round < 8; round++)
		for (uint64_t key = 0; key < 200; key++)
			neap_frequency_add(&frequency, mixed(key));
	for (uint64_t key = 10000; key < 14000; key++)
		neap_frequency_add(&frequency, mixed(key));
	uint32_t wrong = 0;
	for (uint64_t key = 0; key < 200; key++)
		ck_assert_uint_ge(neap_frequency_of(&frequency, mixed(key)), 8);
	for (uint64_t key = 10000; key < 14000; key++)
		wrong += neap_frequency_of(&frequency, mixed(key)) > 4;
	ck_assert_uint_lt(wrong, 200);
}
END_TEST

START_TEST(forgets_half_now_and_then)
{
	for (int i = 0; i < 12; i++)
		neap_frequency_add(&frequency, mixed(1));
	for (uint64_t key = 100; frequency.added < frequency.age_after - 1; key++)
		neap_frequency_add(&frequency, mixed(key));
	uint32_t before = neap_frequency_of(&frequency, mixed(1));
	for (uint64_t key = 0; key < 200; key++) /* the sweep is 1024 words, 8 a call */
		neap_frequency_add(&frequency, mixed(1000000 + key));
	ck_assert_uint_eq(frequency.aging, 0);
	ck_assert_uint_lt(neap_frequency_of(&frequency, mixed(1)), before);
	ck_assert_uint_ge(neap_frequency_of(&frequency, mixed(1)), before / 2);
}
END_TEST

START_TEST(where_an_object_should_lie)
{
	struct neap_move_rules rules = NEAP_MOVE_RULES;
	struct neap_move_facts fast = {.frequency = 3, .in_fast = true, .bytes = 10, .fast_used = 10, .fast_capacity = 100, .slow_free = 50};
	ck_assert_int_eq(neap_move_on_access(&rules, &fast), NEAP_MOVE_COPY_DOWN);
	fast.frequency = 2;
	ck_assert_int_eq(neap_move_on_access(&rules, &fast), NEAP_MOVE_NONE);
	fast.frequency = 9, fast.slow_free = 9;
	ck_assert_int_eq(neap_move_on_access(&rules, &fast), NEAP_MOVE_NONE);
	fast.slow_free = 50, fast.in_slow = true;
	ck_assert_int_eq(neap_move_on_access(&rules, &fast), NEAP_MOVE_NONE);
	struct neap_move_facts slow = {.frequency = 5, .in_slow = true, .bytes = 10, .fast_used = 49, .fast_capacity = 100};
	ck_assert_int_eq(neap_move_on_access(&rules, &slow), NEAP_MOVE_UP);
	slow.fast_used = 50;
	ck_assert_int_eq(neap_move_on_access(&rules, &slow), NEAP_MOVE_NONE);
	slow.fast_used = 49, slow.frequency = 4;
	ck_assert_int_eq(neap_move_on_access(&rules, &slow), NEAP_MOVE_NONE);
	slow.frequency = 5, slow.bytes = 60;
	ck_assert_int_eq(neap_move_on_access(&rules, &slow), NEAP_MOVE_NONE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tier eviction");
	TCase *sieve = tcase_create("sieve");
	tcase_add_checked_fixture(sieve, setup, NULL);
	tcase_add_test(sieve, the_oldest_without_a_mark_goes);
	tcase_add_test(sieve, the_hand_goes_on_where_it_stopped);
	tcase_add_test(sieve, the_scout_is_ahead_of_the_hand);
	tcase_add_test(sieve, the_newest_goes_for_another_and_not_for_a_mark);
	tcase_add_test(sieve, what_is_held_is_never_chosen);
	tcase_add_test(sieve, what_the_owner_keeps_is_not_counted);
	tcase_add_test(sieve, a_call_does_so_much_and_no_more);
	tcase_add_test(sieve, the_newest_are_let_alone);
	tcase_add_test(sieve, watermarks_begin_high_and_end_low);
	tcase_add_test(sieve, a_scan_does_not_wash_out_what_is_used);
	suite_add_tcase(suite, sieve);
	TCase *sketch = tcase_create("frequency");
	tcase_add_checked_fixture(sketch, setup_frequency, teardown_frequency);
	tcase_add_test(sketch, counts_and_saturates);
	tcase_add_test(sketch, tells_the_frequent_from_the_rare);
	tcase_add_test(sketch, forgets_half_now_and_then);
	tcase_add_test(sketch, where_an_object_should_lie);
	suite_add_tcase(suite, sketch);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
