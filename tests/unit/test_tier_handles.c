/* Handles, quarantine and several tiers together. */
#include "store/tier/tiers.h"
#include "tests/support/coverage.h"
#include <check.h>
#include <neap/store_error.h>
#include <stdlib.h>
#include <string.h>

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define OBJECTS 4096

static struct neap_reactor *reactor;
static struct neap_dram fast, slow;
static struct neap_tiers tiers;
static uint32_t fast_index, slow_index;
static char why[200];

/* An index of the simplest kind: an object is its handle. */
static struct neap_handle *objects[OBJECTS];
static uint32_t evicted, refused;
static bool refuse;

static void evict(void *user, struct neap_handle *handle)
{
	(void)user;
	struct neap_handle **object = handle->object;
	ck_assert_ptr_eq(*object, handle);
	ck_assert_uint_eq(handle->references, 1);
	ck_assert_int_eq(handle->phase, NEAP_HANDLE_COMMITTED);
	if (refuse) {
		refused++;
		return;
	}
	*object = NULL;
	neap_handle_drop(handle);
	evicted++;
}

static struct neap_dram *new_dram(struct neap_dram *dram, uint64_t capacity)
{
	struct neap_dram_options options = {.capacity = capacity, .numa_node = -1};
	ck_assert_int_eq(neap_dram_create(dram, reactor, &options, why, sizeof why), NEAP_OK);
	return dram;
}

static void setup(void)
{
	struct neap_tiers_options options = {.evict = evict, .quarantine_limit = MIB, .handles_max = OBJECTS};
	struct neap_tier_settings settings = {.priority = 10};
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), NEAP_OK);
	ck_assert_int_eq(neap_tiers_create(&tiers, reactor, &options), NEAP_OK);
	memset(objects, 0, sizeof objects);
	evicted = refused = 0;
	refuse = false;
	ck_assert_int_eq(neap_tiers_add(&tiers, &settings, &neap_dram_tier_ops, new_dram(&slow, 8 * MIB), 8 * MIB, &slow_index), NEAP_OK);
	settings = (struct neap_tier_settings){.priority = 100};
	ck_assert_int_eq(neap_tiers_add(&tiers, &settings, &neap_dram_tier_ops, new_dram(&fast, 4 * MIB), 4 * MIB, &fast_index), NEAP_OK);
}

static void teardown(void)
{
	for (int i = 0; i < OBJECTS; i++)
		if (objects[i])
			neap_handle_drop(objects[i]);
	for (uint32_t i = 0; i < tiers.count; i++)
		ck_assert_uint_eq(tiers.tiers[i].tier.counts.rounded_bytes + tiers.tiers[i].tier.counts.handles +
		                          tiers.tiers[i].tier.counts.committed_bytes + tiers.tiers[i].tier.counts.pinned_bytes +
		                          tiers.tiers[i].tier.counts.quarantined_bytes,
		                  0);
	ck_assert_int_eq(neap_tiers_destroy(&tiers), NEAP_OK);
	ck_assert_int_eq(neap_dram_close(&fast, NULL, NULL), NEAP_OK);
	ck_assert_int_eq(neap_dram_close(&slow, NULL, NULL), NEAP_OK);
	ck_assert_int_eq(support_reactor_destroy(reactor), NEAP_OK);
}

static struct neap_tier_stats stats(uint32_t index)
{
	struct neap_tier_stats stats;
	ck_assert_int_eq(neap_tiers_stats(&tiers, index, &stats), NEAP_STORE_OK);
	return stats;
}

static struct neap_handle *take(uint64_t bytes, uint32_t tier)
{
	struct neap_handle *handle;
	int error = neap_tiers_allocate(&tiers, bytes, tier, tier != NEAP_TIER_ANY, &handle);
	ck_assert_msg(error == NEAP_STORE_OK, "%s", neap_store_error_name(error));
	return handle;
}

static void put(int object, uint64_t bytes, uint32_t tier)
{
	objects[object] = take(bytes, tier);
	neap_handle_commit(objects[object], &objects[object]);
}

START_TEST(priorities_and_errors)
{
	struct neap_handle *handle, *held[4];
	ck_assert_int_eq(neap_tiers_allocate(&tiers, 0, NEAP_TIER_ANY, false, &handle), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(neap_tiers_allocate(&tiers, 1, NEAP_TIER_ANY, true, &handle), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(neap_tiers_allocate(&tiers, 1, 2, true, &handle), NEAP_STORE_TIER_NOT_FOUND);
	ck_assert_int_eq(neap_tiers_allocate(&tiers, 1, 2, false, &handle), NEAP_STORE_TIER_NOT_FOUND);
	ck_assert_int_eq(neap_tiers_allocate(&tiers, 9 * MIB, NEAP_TIER_ANY, false, &handle), NEAP_STORE_NO_AVAILABLE_HANDLE);
	held[0] = take(2 * MIB, NEAP_TIER_ANY);
	held[1] = take(2 * MIB, NEAP_TIER_ANY);
	held[2] = take(2 * MIB, NEAP_TIER_ANY);
	ck_assert_ptr_eq(held[1]->tier, &tiers.tiers[fast_index].tier);
	ck_assert_ptr_eq(held[2]->tier, &tiers.tiers[slow_index].tier); /* spills over */
	ck_assert_int_eq(neap_tiers_allocate(&tiers, 2 * MIB, fast_index, true, &handle), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_int_eq(neap_tiers_allocate(&tiers, MIB, slow_index, false, &held[3]), NEAP_STORE_OK);
	ck_assert_uint_eq(neap_tiers_index(&tiers, held[3]->tier), slow_index);
	ck_assert_int_eq(neap_tiers_destroy(&tiers), NEAP_EBUSY);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_ge(neap_handle_drop(held[i]), MIB);
	struct neap_tier_stats none;
	ck_assert_int_eq(neap_tiers_stats(&tiers, 2, &none), NEAP_STORE_TIER_NOT_FOUND);
}
END_TEST

START_TEST(dropped_uncommitted_is_free_again)
{
	struct neap_handle *handle = take(100 * KIB + 1, NEAP_TIER_ANY);
	memset(neap_handle_address(handle), 1, handle->extent.size);
	ck_assert_ptr_eq(neap_handle_hold(handle), handle);
	ck_assert_uint_eq(stats(fast_index).counts.requested_bytes, 100 * KIB + 1);
	ck_assert_uint_eq(stats(fast_index).counts.rounded_bytes, 100 * KIB + 64);
	ck_assert_uint_eq(neap_handle_drop(handle), 0);
	ck_assert_uint_eq(neap_handle_drop(handle), 100 * KIB + 64);
	ck_assert_uint_eq(stats(fast_index).counts.requested_bytes, 0);
	ck_assert_uint_eq(fast.rounded_bytes, 0);
}
END_TEST

START_TEST(pinned_bytes_are_those_held_beside_the_index)
{
	put(0, 64 * KIB, fast_index);
	ck_assert_uint_eq(stats(fast_index).counts.committed_bytes, 64 * KIB);
	ck_assert_uint_eq(stats(fast_index).counts.pinned_bytes, 0);
	neap_handle_hold(objects[0]);
	neap_handle_hold(objects[0]);
	ck_assert_uint_eq(stats(fast_index).counts.pinned_bytes, 64 * KIB);
	neap_handle_drop(objects[0]);
	ck_assert_uint_eq(stats(fast_index).counts.pinned_bytes, 64 * KIB);
	struct neap_handle *reader = objects[0];
	neap_handle_withdraw(reader); /* removed while someone reads */
	objects[0] = NULL;
	ck_assert_uint_eq(stats(fast_index).counts.pinned_bytes, 0);
	ck_assert_uint_eq(neap_handle_drop(reader), 0);
	ck_assert_uint_eq(neap_handle_drop(reader), 64 * KIB);
}
END_TEST

/* --- quarantine ------------------------------------------------------------------------------------------------------- */

static uint32_t told;

static void ended(struct neap_exposure *exposure, enum neap_fact_kind fact)
{
	ck_assert_ptr_null(exposure->handle);
	ck_assert(fact == NEAP_FACT_SLAB_FENCED || fact == NEAP_FACT_PEER_FENCED);
	told++;
}

START_TEST(exposed_bytes_wait_for_a_fact)
{
	struct neap_exposure exposure = {.ended = ended};
	struct neap_handle *handle = take(2 * MIB, fast_index), *other;
	struct neap_handle *rest = take(2 * MIB, fast_index);
	tiers.handles.quarantine_limit = 2 * MIB;
	ck_assert_int_eq(neap_exposure_begin(&exposure, handle, 7), NEAP_STORE_OK);
	ck_assert_uint_eq(neap_handle_drop(handle), 0);
	ck_assert_uint_eq(stats(fast_index).counts.quarantined_bytes, 2 * MIB);
	ck_assert_uint_eq(stats(fast_index).counts.rounded_bytes, 4 * MIB);
	ck_assert_int_eq(neap_tiers_allocate(&tiers, 1, fast_index, true, &other), NEAP_STORE_NO_AVAILABLE_HANDLE);
	struct neap_fact wrong = {.kind = NEAP_FACT_PEER_FENCED, .peer = 8};
	ck_assert_uint_eq(neap_quarantine_release(&tiers.handles, &wrong), 0);
	ck_assert_uint_eq(tiers.handles.quarantined, 1);
	ck_assert_uint_eq(neap_exposure_end(&exposure, NEAP_FACT_QUIET), 2 * MIB);
	ck_assert_uint_eq(neap_exposure_end(&exposure, NEAP_FACT_QUIET), 0);
	ck_assert_uint_eq(tiers.handles.quarantined_bytes, 0);
	handle = take(2 * MIB, fast_index);
	neap_handle_drop(handle);
	neap_handle_drop(rest);
}
END_TEST

START_TEST(a_clean_end_needs_no_quarantine)
{
	struct neap_exposure exposure = {0};
	objects[0] = take(4 * KIB, fast_index);
	ck_assert_int_eq(neap_exposure_begin(&exposure, objects[0], 1), NEAP_STORE_OK);
	ck_assert_uint_eq(neap_exposure_end(&exposure, NEAP_FACT_GRANT_ENDED), 0);
	neap_handle_commit(objects[0], &objects[0]);
	ck_assert_uint_eq(neap_handle_drop(objects[0]), 4 * KIB);
	objects[0] = NULL;
	ck_assert_uint_eq(tiers.handles.quarantined_ever, 0);
}
END_TEST

START_TEST(the_last_exposure_decides)
{
	struct neap_exposure exposures[3] = {{.ended = ended}, {.ended = ended}, {.ended = ended}};
	put(0, 4 * KIB, fast_index);
	for (uint64_t i = 0; i < 3; i++)
		ck_assert_int_eq(neap_exposure_begin(&exposures[i], objects[0], i), NEAP_STORE_OK);
	neap_handle_drop(objects[0]); /* readers' grants were still out */
	objects[0] = NULL;
	ck_assert_uint_eq(neap_exposure_end(&exposures[1], NEAP_FACT_QUIET), 0);
	told = 0;
	struct neap_fact fact = {.kind = NEAP_FACT_PEER_FENCED, .peer = 0};
	ck_assert_uint_eq(neap_quarantine_release(&tiers.handles, &fact), 0);
	ck_assert_uint_eq(told, 1);
	fact.peer = 2;
	ck_assert_uint_eq(neap_quarantine_release(&tiers.handles, &fact), 1);
	ck_assert_uint_eq(told, 2);
}
END_TEST

START_TEST(a_fenced_slab_frees_what_lies_in_it)
{
	struct neap_exposure exposures[3] = {{.ended = ended}, {.ended = ended}, {.ended = ended}};
	struct neap_handle *handles[3] = {take(4 * KIB, fast_index), take(4 * KIB, fast_index), take(4 * KIB, slow_index)};
	struct neap_handle *live = take(4 * KIB, fast_index);
	struct neap_exposure used = {.ended = ended};
	ck_assert_int_eq(neap_exposure_begin(&used, live, 5), NEAP_STORE_OK);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(neap_exposure_begin(&exposures[i], handles[i], 5), NEAP_STORE_OK);
		neap_handle_drop(handles[i]);
	}
	told = 0;
	struct neap_fact fact = {.kind = NEAP_FACT_SLAB_FENCED, .tier = &tiers.tiers[fast_index].tier, .offset = 2 * MIB, .length = 2 * MIB};
	ck_assert_uint_eq(neap_quarantine_release(&tiers.handles, &fact), 0);
	fact.offset = 0, fact.length = 6 * KIB; /* covers one as a whole, another in part */
	ck_assert_uint_eq(neap_quarantine_release(&tiers.handles, &fact), 1);
	fact.length = 2 * MIB;
	ck_assert_uint_eq(neap_quarantine_release(&tiers.handles, &fact), 1);
	ck_assert_uint_eq(told, 2);
	ck_assert_ptr_eq(used.handle, live); /* not in quarantine: whoever holds it knows */
	fact.tier = &tiers.tiers[slow_index].tier;
	ck_assert_uint_eq(neap_quarantine_release(&tiers.handles, &fact), 1);
	neap_exposure_end(&used, NEAP_FACT_QUIET);
	neap_handle_drop(live);
}
END_TEST

START_TEST(a_full_quarantine_refuses_new_exposures)
{
	enum { PEERS = 16 };
	struct neap_exposure exposures[PEERS + 1] = {{0}};
	struct neap_handle *handle;
	for (int i = 0; i < PEERS; i++) {
		handle = take(64 * KIB, fast_index);
		ck_assert_int_eq(neap_exposure_begin(&exposures[i], handle, 1), NEAP_STORE_OK);
		neap_handle_drop(handle);
	}
	ck_assert_uint_eq(tiers.handles.quarantined_bytes, MIB);
	handle = take(64 * KIB, fast_index);
	ck_assert_int_eq(neap_exposure_begin(&exposures[PEERS], handle, 1), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_uint_eq(tiers.handles.refused, 1);
	neap_exposure_end(&exposures[3], NEAP_FACT_GRANT_ENDED);
	ck_assert_int_eq(neap_exposure_begin(&exposures[PEERS], handle, 1), NEAP_STORE_OK);
	neap_handle_drop(handle);
	struct neap_fact fact = {.kind = NEAP_FACT_PEER_FENCED, .peer = 1};
	ck_assert_uint_eq(neap_quarantine_release(&tiers.handles, &fact), PEERS);
}
END_TEST

/* --- eviction --------------------------------------------------------------------------------------------------------- */

START_TEST(one_full_tier_evicts_to_make_room)
{
	for (int i = 0; i < 32; i++)
		put(i, 128 * KIB, fast_index);
	ck_assert_uint_eq(evicted, 0);
	neap_evict_access(&objects[0]->entry);
	put(32, 128 * KIB, fast_index);
	ck_assert_uint_eq(evicted, 1);
	ck_assert_ptr_nonnull(objects[0]);
	ck_assert_ptr_null(objects[1]);
	put(33, 512 * KIB, fast_index); /* several, and next to each other */
	ck_assert_uint_eq(stats(fast_index).evictions.evicted, evicted);
	ck_assert_uint_le(stats(fast_index).counts.rounded_bytes, 4 * MIB);
	ck_assert_ptr_eq(objects[33]->tier, &tiers.tiers[fast_index].tier);
	ck_assert_uint_eq(stats(slow_index).counts.handles, 0); /* strict never spills */
}
END_TEST

START_TEST(held_and_quarantined_make_no_room)
{
	struct neap_exposure exposure = {0};
	struct neap_handle *handle;
	for (int i = 0; i < 31; i++)
		put(i, 128 * KIB, fast_index);
	handle = take(128 * KIB, fast_index);
	ck_assert_int_eq(neap_exposure_begin(&exposure, handle, 1), NEAP_STORE_OK);
	neap_handle_drop(handle);
	for (int i = 0; i < 31; i++)
		neap_handle_hold(objects[i]);
	ck_assert_int_eq(neap_tiers_allocate(&tiers, 64, fast_index, true, &handle), NEAP_STORE_NO_AVAILABLE_HANDLE);
	neap_handle_drop(objects[17]);
	/* more than can become free: nothing is thrown away for it */
	ck_assert_int_eq(neap_tiers_allocate(&tiers, 256 * KIB, fast_index, true, &handle), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_uint_eq(evicted, 0);
	put(40, 128 * KIB, fast_index);
	ck_assert_ptr_null(objects[17]);
	ck_assert_uint_eq(evicted, 1);
	for (int i = 0; i < 31; i++)
		if (objects[i])
			neap_handle_drop(objects[i]);
	neap_exposure_end(&exposure, NEAP_FACT_QUIET);
}
END_TEST

START_TEST(an_evicted_one_that_a_peer_may_reach_is_not_counted)
{
	struct neap_exposure exposures[32] = {{0}};
	struct neap_handle *handle;
	tiers.handles.quarantine_limit = 8 * MIB;
	for (int i = 0; i < 32; i++) {
		put(i, 128 * KIB, fast_index);
		ck_assert_int_eq(neap_exposure_begin(&exposures[i], objects[i], 1), NEAP_STORE_OK);
	}
	ck_assert_int_eq(neap_tiers_allocate(&tiers, 128 * KIB, fast_index, true, &handle), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_uint_eq(stats(fast_index).evictions.evicted_bytes, 0);
	ck_assert_uint_eq(fast.rounded_bytes, 4 * MIB);
	for (int i = 0; i < 32; i++)
		neap_exposure_end(&exposures[i], NEAP_FACT_GRANT_ENDED);
	ck_assert_uint_eq(stats(fast_index).counts.quarantined, 0);
}
END_TEST

START_TEST(not_strict_spills_first_and_evicts_last)
{
	int i = 0;
	for (; i < 96; i++)
		put(i, 128 * KIB, NEAP_TIER_ANY);
	ck_assert_uint_eq(evicted, 0);
	ck_assert_uint_eq(stats(slow_index).counts.rounded_bytes, 8 * MIB);
	put(i, 128 * KIB, slow_index);
	ck_assert_ptr_eq(objects[i]->tier, &tiers.tiers[slow_index].tier);
	ck_assert_uint_eq(stats(slow_index).evictions.evicted, 1);
	put(i + 1, 128 * KIB, NEAP_TIER_ANY);
	ck_assert_uint_eq(stats(fast_index).evictions.evicted, 1);
	refuse = true;
	struct neap_handle *handle;
	ck_assert_int_eq(neap_tiers_allocate(&tiers, 128 * KIB, NEAP_TIER_ANY, false, &handle), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_uint_gt(refused, 0);
}
END_TEST

START_TEST(watermarks_in_slices)
{
	for (int i = 0; i < 30; i++) /* 0.94 of the fast tier */
		put(i, 128 * KIB, fast_index);
	uint32_t slices = 0;
	while (neap_tiers_maintain(&tiers, 2)) {
		ck_assert_uint_le(evicted, 2 * (slices + 1));
		ck_assert_uint_lt(++slices, 100);
	}
	ck_assert_uint_ge(slices, 3);
	ck_assert_uint_le(stats(fast_index).counts.rounded_bytes, 4 * MIB * 7 / 10);
	ck_assert_uint_ge(stats(fast_index).counts.rounded_bytes, 4 * MIB * 7 / 10 - 128 * KIB);
	ck_assert(!neap_tiers_maintain(&tiers, 1000));
	ck_assert_uint_eq(stats(slow_index).evictions.steps, 0);
}
END_TEST

/* Random life: the sums always agree with the allocator's own. */
START_TEST(sums_agree)
{
	static struct neap_exposure exposures[OBJECTS];
	static uint32_t holds[OBJECTS];
	memset(exposures, 0, sizeof exposures);
	memset(holds, 0, sizeof holds);
	srand((unsigned)(5 + _i));
	uint64_t puts = 0;
	for (int step = 0; step < 20000; step++) {
		int i = rand() % 600;
		if (!objects[i] && exposures[i].handle) {
			neap_exposure_end(&exposures[i], NEAP_FACT_QUIET);
		} else if (!objects[i]) {
			holds[i] = 0;
			int error = neap_tiers_allocate(&tiers, 1 + (uint64_t)rand() % 60000, rand() % 2 ? fast_index : NEAP_TIER_ANY, false, &objects[i]);
			ck_assert(error == NEAP_STORE_OK || error == NEAP_STORE_NO_AVAILABLE_HANDLE);
			if (objects[i] && rand() % 4 == 0)
				(void)neap_exposure_begin(&exposures[i], objects[i], (uint64_t)i % 5);
			if (objects[i])
				neap_handle_commit(objects[i], &objects[i]);
			puts += objects[i] != NULL;
		} else if (holds[i] == 0 && rand() % 3 == 0) {
			struct neap_handle *handle = objects[i];
			objects[i] = NULL;
			neap_handle_drop(handle);
		} else if (holds[i] > 0 && rand() % 2) {
			holds[i]--;
			neap_handle_drop(objects[i]);
		} else {
			holds[i]++;
			neap_handle_hold(objects[i]);
		}
		neap_tiers_maintain(&tiers, 8);
		if (step % 100 == 0) {
			struct neap_fact fact = {.kind = NEAP_FACT_PEER_FENCED, .peer = (uint64_t)rand() % 5};
			neap_quarantine_release(&tiers.handles, &fact);
		}
		ck_assert_uint_eq(tiers.tiers[fast_index].tier.counts.rounded_bytes, fast.rounded_bytes);
		ck_assert_uint_eq(tiers.tiers[fast_index].tier.counts.requested_bytes, fast.requested_bytes);
		ck_assert_uint_eq(tiers.tiers[slow_index].tier.counts.rounded_bytes, slow.rounded_bytes);
		ck_assert_uint_le(tiers.handles.quarantined_bytes, fast.rounded_bytes + slow.rounded_bytes);
		if (step % 50 == 0)
			ck_assert(!neap_dram_check(&fast) && !neap_dram_check(&slow));
	}
	ck_assert_uint_gt(puts, 1000);
	ck_assert_uint_gt(evicted, 50);
	for (int i = 0; i < OBJECTS; i++)
		while (objects[i] && holds[i]-- > 0)
			neap_handle_drop(objects[i]);
	for (int i = 0; i < OBJECTS; i++)
		neap_exposure_end(&exposures[i], NEAP_FACT_QUIET);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tiers");
	TCase *cases = tcase_create("handles");
	tcase_add_checked_fixture(cases, setup, teardown);
	tcase_add_test(cases, priorities_and_errors);
	tcase_add_test(cases, dropped_uncommitted_is_free_again);
	tcase_add_test(cases, pinned_bytes_are_those_held_beside_the_index);
	suite_add_tcase(suite, cases);
	TCase *quarantine = tcase_create("quarantine");
	tcase_add_checked_fixture(quarantine, setup, teardown);
	tcase_add_test(quarantine, exposed_bytes_wait_for_a_fact);
	tcase_add_test(quarantine, a_clean_end_needs_no_quarantine);
	tcase_add_test(quarantine, the_last_exposure_decides);
	tcase_add_test(quarantine, a_fenced_slab_frees_what_lies_in_it);
	tcase_add_test(quarantine, a_full_quarantine_refuses_new_exposures);
	suite_add_tcase(suite, quarantine);
	TCase *eviction = tcase_create("eviction");
	tcase_add_checked_fixture(eviction, setup, teardown);
	tcase_add_test(eviction, one_full_tier_evicts_to_make_room);
	tcase_add_test(eviction, held_and_quarantined_make_no_room);
	tcase_add_test(eviction, an_evicted_one_that_a_peer_may_reach_is_not_counted);
	tcase_add_test(eviction, not_strict_spills_first_and_evicts_last);
	tcase_add_test(eviction, watermarks_in_slices);
	tcase_add_loop_test(eviction, sums_agree, 0, 3);
	tcase_set_timeout(eviction, 60);
	suite_add_tcase(suite, eviction);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
