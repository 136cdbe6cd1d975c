/* Requests of a process to its own memory: direction, overlap, bounds, zero length, pieces, cancel midway, and who counts as "own". */
#include "tests/support/drive.h"
#include "tests/support/engine_rig.h"
#include "transports/engine_state.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct engine_rig rig;
static unsigned char *memory; /* registered, SIZE bytes */
static neap_region_id region;

#define SIZE ((size_t)8 << 20)

static void fill(void)
{
	uint32_t x = 12345;
	for (size_t i = 0; i < SIZE; i++) {
		x = x * 1664525u + 1013904223u;
		memory[i] = (unsigned char)(x >> 24);
	}
}

static void setup(void)
{
	rig_begin(&rig, NULL);
	memory = malloc(SIZE);
	fill();
	struct neap_memory range = {.address = memory, .length = SIZE, .access = NEAP_CLOSED};
	ck_assert_int_eq(neap_memory_register(rig.engine, &range, 1, &region, NULL, 0), 0);
}

static void teardown(void)
{
	rig_end(&rig);
	free(memory);
}

static int submit(enum neap_opcode opcode, void *source, const void *target, uint64_t length, neap_batch_id *batch_p)
{
	struct neap_batch_options options = rig_options(&rig, true);
	struct neap_request request = {.opcode = opcode, .source = source, .segment = NEAP_LOCAL_SEGMENT,
	                               .target_offset = (uintptr_t)target, .length = length};
	rig.finished = false;
	return neap_submit(rig.engine, &request, 1, &options, batch_p);
}

static int submit_under(const struct neap_grant_token *grant, enum neap_opcode opcode, void *source, neap_batch_id *batch_p)
{
	struct neap_batch_options options = rig_options(&rig, true);
	struct neap_request request = {.opcode = opcode, .source = source, .segment = NEAP_LOCAL_SEGMENT,
	                               .target_offset = (uintptr_t)memory, .length = SIZE, .grant = grant};
	rig.finished = false;
	return neap_submit(rig.engine, &request, 1, &options, batch_p);
}

static void transfer(enum neap_opcode opcode, void *source, const void *target, uint64_t length)
{
	neap_batch_id batch;
	ck_assert_int_eq(submit(opcode, source, target, length, &batch), 0);
	ck_assert(!rig.finished);
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), 0);
}

START_TEST(direction_is_by_opcode)
{
	unsigned char own[100], before[100];
	memset(own, 0x77, sizeof own);
	memcpy(before, memory, sizeof before);
	transfer(NEAP_READ, own, memory, sizeof own);
	ck_assert_uint_eq(rig.outcome.status, NEAP_COMPLETED);
	ck_assert_uint_eq(rig.outcome.effect, NEAP_EFFECT_ALL);
	ck_assert_uint_eq(rig.outcome.bytes, sizeof own);
	ck_assert_mem_eq(own, before, sizeof own);
	ck_assert_mem_eq(memory, before, sizeof own);
	memset(own, 0x55, sizeof own);
	transfer(NEAP_WRITE, own, memory + 1000, sizeof own);
	ck_assert_mem_eq(memory + 1000, own, sizeof own);
	struct neap_engine_stats stats;
	neap_engine_stats(rig.engine, &stats);
	ck_assert_uint_eq(stats.bytes_read, 100);
	ck_assert_uint_eq(stats.bytes_written, 100);
	ck_assert_uint_eq(rig.fake->submits, 0);
}
END_TEST

static const struct {
	size_t source, target, length;
} overlaps[] = {
	{0, 0, 100},
	{0, 1, 100},
	{1, 0, 100},
	{0, 1, 3 << 20},
	{1, 0, 3 << 20},
	{0, 300000, 3 << 20},
	{300000, 0, 3 << 20},
	{0, 262144, 3 << 20},
	{262144, 0, 3 << 20},
	{5, 4 << 20, 4 << 20},
	{0, (3 << 20) - 1, 3 << 20},
	{0, 3 << 20, 3 << 20},
	{4096, 8192, 2000000},
};

/* What one memmove would do, however many pieces it takes. */
START_TEST(overlap_is_as_memmove)
{
	size_t source = overlaps[_i / 2].source, target = overlaps[_i / 2].target, length = overlaps[_i / 2].length;
	enum neap_opcode opcode = _i % 2 ? NEAP_READ : NEAP_WRITE;
	unsigned char *expected = malloc(SIZE);
	memcpy(expected, memory, SIZE);
	if (opcode == NEAP_WRITE)
		memmove(expected + target, expected + source, length);
	else
		memmove(expected + source, expected + target, length);
	transfer(opcode, memory + source, memory + target, length);
	ck_assert_uint_eq(rig.outcome.status, NEAP_COMPLETED);
	ck_assert(memcmp(memory, expected, SIZE) == 0);
	free(expected);
}
END_TEST

static const struct {
	int64_t offset; /* from the begin of the region */
	uint64_t length;
	bool valid;
} ranges[] = {
	{0, SIZE, true}, {(int64_t)SIZE - 1, 1, true}, {-1, 1, false}, {-1, 2, false}, {(int64_t)SIZE, 1, false},
	{1, SIZE, false}, {0, SIZE + 1, false},
	{0, 0, true}, {5, 0, true}, {(int64_t)SIZE, 0, true}, {(int64_t)SIZE + 1, 0, false}, {-1, 0, false},
};

START_TEST(ranges_are_checked)
{
	unsigned char *own = calloc(1, SIZE + 1);
	transfer(NEAP_READ, own, memory + ranges[_i].offset, ranges[_i].length);
	ck_assert_uint_eq(rig.outcome.status, ranges[_i].valid ? NEAP_COMPLETED : NEAP_FAILED);
	if (ranges[_i].valid) {
		ck_assert_uint_eq(rig.outcome.bytes, ranges[_i].length);
		ck_assert_uint_eq(rig.outcome.effect, NEAP_EFFECT_ALL);
	} else {
		ck_assert_uint_eq(rig.outcome.cause, NEAP_CAUSE_RANGE_NOT_REMOTE);
		ck_assert_uint_eq(rig.outcome.effect, NEAP_EFFECT_NONE);
		ck_assert_int_eq(rig.outcome.error, NEAP_ENOTREG);
		char text[256];
		struct neap_request request = {.opcode = NEAP_READ, .length = ranges[_i].length};
		neap_outcome_text(rig.engine, &request, &rig.outcome, text, sizeof text);
		ck_assert_ptr_nonnull(strstr(text, "registered"));
	}
	free(own);
}
END_TEST

START_TEST(a_zero_among_others)
{
	unsigned char own[8];
	struct neap_batch_options options = rig_options(&rig, false);
	struct neap_request requests[3];
	for (unsigned i = 0; i < 3; i++)
		requests[i] = (struct neap_request){.opcode = NEAP_READ, .source = own, .target_offset = (uintptr_t)memory,
		                                    .length = i == 1 ? 0 : 8};
	ck_assert_int_eq(neap_submit(rig.engine, requests, 3, &options, NULL), 0);
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_uint_eq(rig.summary.completed, 3);
	ck_assert_uint_eq(rig.summary.bytes, 16);
}
END_TEST

START_TEST(large_copies_take_several_turns)
{
	unsigned char *own = malloc(SIZE);
	neap_batch_id batch;
	ck_assert_int_eq(submit(NEAP_READ, own, memory, SIZE, &batch), 0);
	unsigned turns = 0;
	while (!rig.finished) {
		const struct neap_budget one = {.events_max = 1}; /* in the time of a whole turn a fast machine copies more */
		ck_assert_int_gt(neap_reactor_run_once(rig.reactor, &one), 0);
		turns++;
	}
	ck_assert_uint_ge(turns, SIZE >> 20);
	ck_assert(memcmp(own, memory, SIZE) == 0);
	struct neap_reactor_stats stats;
	neap_reactor_stats(rig.reactor, &stats);
	free(own);
}
END_TEST

/* Turns until a copy has come to `at`, where `before` stood: how much a turn does depends on the machine's load. */
static void turn_until_stored(const unsigned char *at, const unsigned char before[8])
{
	while (memcmp(at, before, 8) == 0)
		drive_turns(rig.reactor, 1);
}

/* Midway: from the front it is known how much; from the end it is not. */
START_TEST(canceled_midway)
{
	bool backward = _i == 1;
	neap_batch_id batch;
	unsigned char *source = backward ? memory : memory + 100;
	const unsigned char *target = backward ? memory + 100 : memory;
	struct neap_batch_options options = rig_options(&rig, true);
	struct neap_request requests[2] = {
		{.opcode = NEAP_WRITE, .source = source, .target_offset = (uintptr_t)target, .length = SIZE - 100},
		{.opcode = NEAP_WRITE, .source = source, .target_offset = (uintptr_t)target, .length = 10}};
	const unsigned char *first_stored = backward ? memory + SIZE - 8 : memory;
	unsigned char before[8];
	memcpy(before, first_stored, 8);
	ck_assert_int_eq(neap_submit(rig.engine, requests, 2, &options, &batch), 0);
	turn_until_stored(first_stored, before);
	ck_assert_int_eq(neap_request_cancel(rig.engine, batch, 0), 0);
	while (rig.requests == 0)
		rig_turn(&rig);
	struct neap_outcome outcome;
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 0, &outcome), 0);
	ck_assert_uint_eq(outcome.status, NEAP_CANCELED);
	ck_assert_uint_eq(outcome.effect, backward ? NEAP_EFFECT_UNKNOWN : NEAP_EFFECT_PARTIAL);
	ck_assert(backward ? outcome.bytes == 0 : outcome.bytes > 0 && outcome.bytes < SIZE - 100);
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_uint_eq(rig.summary.completed, 1);
}
END_TEST

START_TEST(canceled_before_it_began)
{
	neap_batch_id batch;
	unsigned char before = memory[0], own = (unsigned char)~memory[0];
	ck_assert_int_eq(submit(NEAP_WRITE, &own, memory, 1, &batch), 0);
	ck_assert_int_eq(neap_batch_cancel(rig.engine, batch), 0);
	ck_assert(rig_until(&rig, &rig.finished));
	if (rig.outcome.status == NEAP_CANCELED)
		ck_assert_uint_eq(memory[0], before);
	ck_assert(rig.outcome.status == NEAP_CANCELED || rig.outcome.status == NEAP_COMPLETED);
}
END_TEST

START_TEST(unregistered_midway)
{
	unsigned char *own = calloc(1, SIZE);
	neap_batch_id batch;
	ck_assert_int_eq(submit(NEAP_READ, own, memory, SIZE, &batch), 0);
	turn_until_stored(own, (unsigned char[8]){0});
	/* `own` is not registered: the region is used as the target alone, and each chunk asks. */
	ck_assert_int_eq(neap_memory_unregister(rig.engine, region, rig_closed, &rig), 0);
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_uint_eq(rig.outcome.status, NEAP_FAILED);
	ck_assert_uint_eq(rig.outcome.effect, NEAP_EFFECT_PARTIAL);
	ck_assert(memcmp(own, memory, rig.outcome.bytes) == 0);
	ck_assert(rig_until(&rig, &rig.closed));
	free(own);
}
END_TEST

/* A grant that is given counts, also within the process: what was lent is not touched when it was taken back. */
START_TEST(a_grant_counts_for_ourselves_too)
{
	unsigned char *own = calloc(1, SIZE);
	struct neap_grant_token grant;
	neap_batch_id batch;
	uint8_t mine[16], other[16] = "somebody else";
	neap_engine_instance(rig.engine, mine);
	struct neap_memory range = {.address = own, .length = SIZE, .access = NEAP_GRANT_ONLY};
	ck_assert_int_eq(neap_memory_register(rig.engine, &range, 1, NULL, NULL, 0), 0);
	unsigned char *lent = own;
	own = memory; /* the other way round: `memory` is CLOSED and can be lent to nobody */
	memory = lent;
	/* _i: 0 good, 1 ended before, 2 ended midway, 3 for reading alone, 4 somebody else's */
	unsigned rights = _i == 3 ? NEAP_MAY_READ : NEAP_MAY_READ | NEAP_MAY_WRITE;
	ck_assert_int_eq(neap_grant_create(rig.engine, lent, SIZE, rights, _i == 4 ? other : mine, &grant), 0);
	ck_assert_int_eq(submit_under(&grant, NEAP_WRITE, own, &batch), 0);
	if (_i == 2)
		turn_until_stored(lent, (unsigned char[8]){0});
	if (_i == 1 || _i == 2)
		ck_assert_int_eq(neap_grant_end(rig.engine, &grant, NULL, NULL), 0);
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_uint_eq(rig.outcome.status, _i == 0 ? NEAP_COMPLETED : NEAP_FAILED);
	ck_assert_uint_eq(rig.outcome.cause, _i == 0 ? NEAP_CAUSE_NONE : NEAP_CAUSE_GRANT_REFUSED);
	ck_assert_uint_eq(rig.outcome.effect, _i == 0 ? NEAP_EFFECT_ALL : _i == 2 ? NEAP_EFFECT_PARTIAL : NEAP_EFFECT_NONE);
	for (uint64_t at = rig.outcome.bytes; at < SIZE; at++)
		if (lent[at])
			ck_abort_msg("byte %lu was written", (unsigned long)at);
	ck_assert(memcmp(lent, own, rig.outcome.bytes) == 0);
	neap_batch_free(rig.engine, batch);
	memory = own;
	rig_end(&rig);
	rig_begin(&rig, NULL); /* for the teardown */
	free(lent);
}
END_TEST

START_TEST(a_source_in_use_is_busy)
{
	static unsigned char target[100];
	neap_batch_id batch;
	struct neap_memory range = {.address = target, .length = sizeof target};
	ck_assert_int_eq(neap_memory_register(rig.engine, &range, 1, NULL, NULL, 0), 0);
	ck_assert_int_eq(submit(NEAP_WRITE, memory + 50, target, 100, &batch), 0);
	ck_assert_int_eq(neap_memory_unregister(rig.engine, region, NULL, NULL), NEAP_EBUSY);
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_int_eq(neap_memory_unregister(rig.engine, region, NULL, NULL), 0);
	ck_assert_mem_eq(target, memory + 50, 100);
}
END_TEST

/* --- who is local */

/* Another process on the same address is not us: its descriptor has another instance. The peer of the rig is such a one. */
START_TEST(the_same_address_is_not_the_same_process)
{
	struct neap_segment_info info;
	ck_assert_int_eq(neap_segment_info(rig.engine, rig.segment, &info), 0);
	ck_assert_str_eq(info.protocol, "tcp");
	uint8_t mine[16];
	neap_engine_instance(rig.engine, mine);
	ck_assert(memcmp(mine, info.instance, 16) != 0);
	neap_engine_instance(rig.peer, mine);
	ck_assert_mem_eq(mine, info.instance, 16);
	ck_assert_int_eq(rig_submit(&rig, 1, 8, NULL, NULL), 0);
	ck_assert_uint_eq(rig.fake->submits, 1);
}
END_TEST

START_TEST(the_own_name_is_the_local_segment)
{
	struct neap_segment_info info;
	uint64_t address, length;
	ck_assert_int_eq(neap_segment_open(rig.engine, neap_engine_name(rig.engine), rig_opened, &rig), 0);
	ck_assert(!rig.opened);
	ck_assert(rig_until(&rig, &rig.opened));
	ck_assert_uint_eq(rig.opened_segment, NEAP_LOCAL_SEGMENT);
	ck_assert_int_eq(neap_segment_info(rig.engine, NEAP_LOCAL_SEGMENT, &info), 0);
	ck_assert_str_eq(info.protocol, "local");
	ck_assert_uint_eq(info.buffer_count, 0);
	struct neap_memory range = {.address = &info, .length = sizeof info};
	ck_assert_int_eq(neap_memory_register(rig.engine, &range, 1, NULL, NULL, 0), 0);
	ck_assert_int_eq(neap_segment_info(rig.engine, NEAP_LOCAL_SEGMENT, &info), 0);
	ck_assert_uint_eq(info.buffer_count, 1);
	ck_assert_int_eq(neap_segment_buffer(rig.engine, NEAP_LOCAL_SEGMENT, 0, &address, &length), 0);
	ck_assert_uint_eq(address, (uintptr_t)&info);
	ck_assert_uint_eq(length, sizeof info);
	ck_assert_int_eq(neap_segment_buffer(rig.engine, NEAP_LOCAL_SEGMENT, 1, &address, &length), NEAP_EINVAL);
	rig.opened = false;
	ck_assert_int_eq(neap_segment_refresh(rig.engine, NEAP_LOCAL_SEGMENT, rig_opened, &rig), 0);
	ck_assert(rig_until(&rig, &rig.opened));
}
END_TEST

/* Another name of ours: the instance in the descriptor tells. */
START_TEST(another_name_of_ours_is_local_too)
{
	char name[64];
	struct neap_segment_info info;
	unsigned char own[10];
	snprintf(name, sizeof name, "localhost:%u", neap_engine_handshake_port(rig.engine));
	ck_assert_int_eq(neap_segment_open(rig.engine, name, rig_opened, &rig), 0);
	ck_assert(rig_until(&rig, &rig.opened));
	ck_assert_msg(rig.opened_error == 0, "%s", rig.why);
	ck_assert_uint_ne(rig.opened_segment, NEAP_LOCAL_SEGMENT);
	ck_assert_int_eq(neap_segment_info(rig.engine, rig.opened_segment, &info), 0);
	ck_assert_str_eq(info.protocol, "local");
	struct neap_batch_options options = rig_options(&rig, false);
	struct neap_request request = {.opcode = NEAP_READ, .source = own, .segment = rig.opened_segment,
	                               .target_offset = (uintptr_t)memory, .length = sizeof own};
	ck_assert_int_eq(neap_submit(rig.engine, &request, 1, &options, NULL), 0);
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_mem_eq(own, memory, sizeof own);
	ck_assert_uint_eq(rig.fake->submits, 0);
	/* And it closes like any other, with what is left of it. */
	request.length = 0;
	rig.finished = false;
	ck_assert_int_eq(neap_submit(rig.engine, &request, 1, &options, NULL), 0);
	ck_assert_int_eq(neap_segment_close(rig.engine, rig.opened_segment), 0);
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_int_eq(neap_segment_info(rig.engine, rig.opened_segment, &info), NEAP_ESTALE);
}
END_TEST

START_TEST(closing_the_engine_ends_a_copy)
{
	unsigned char *own = malloc(SIZE);
	ck_assert_int_eq(submit(NEAP_READ, own, memory, SIZE, NULL), 0);
	ck_assert_int_gt(neap_reactor_run_once(rig.reactor, NULL), 0);
	ck_assert_int_eq(neap_engine_close(rig.engine, rig_closed, &rig), 0);
	ck_assert(rig_until(&rig, &rig.closed));
	rig.engine = NULL;
	ck_assert_uint_eq(rig.outcome.status, NEAP_CANCELED);
	ck_assert_uint_eq(rig.outcome.cause, NEAP_CAUSE_ENGINE_CLOSED);
	free(own);
}
END_TEST

/* For tests: our own segment through the other transport, under a name. */
START_TEST(no_local_path)
{
	rig_end(&rig);
	rig_begin(&rig, &(struct neap_engine_options){.no_local_path = true});
	ck_assert_int_eq(neap_segment_open(rig.engine, neap_engine_name(rig.engine), rig_opened, &rig), 0);
	ck_assert(rig_until(&rig, &rig.opened));
	ck_assert_int_eq(rig.opened_error, 0);
	rig.segment = rig.opened_segment;
	ck_assert_int_eq(rig_submit(&rig, 1, 8, NULL, NULL), 0);
	ck_assert_uint_eq(rig.fake->submits, 1);
	rig.segment = NEAP_LOCAL_SEGMENT;
	ck_assert_int_eq(rig_submit(&rig, 1, 8, NULL, NULL), NEAP_ESTALE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("local");
	TCase *copies = tcase_create("copies"), *ends = tcase_create("ends"), *who = tcase_create("who is local");
	TCase *const cases[] = {copies, ends, who};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		tcase_add_checked_fixture(cases[i], setup, teardown);
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(suite, cases[i]);
	}
	tcase_add_test(copies, direction_is_by_opcode);
	tcase_add_loop_test(copies, overlap_is_as_memmove, 0, 2 * (int)(sizeof overlaps / sizeof overlaps[0]));
	tcase_add_loop_test(copies, ranges_are_checked, 0, sizeof ranges / sizeof ranges[0]);
	tcase_add_test(copies, a_zero_among_others);
	tcase_add_test(copies, large_copies_take_several_turns);
	tcase_add_loop_test(ends, canceled_midway, 0, 2);
	tcase_add_test(ends, canceled_before_it_began);
	tcase_add_test(ends, unregistered_midway);
	tcase_add_loop_test(ends, a_grant_counts_for_ourselves_too, 0, 5);
	tcase_add_test(ends, a_source_in_use_is_busy);
	tcase_add_test(ends, closing_the_engine_ends_a_copy);
	tcase_add_test(who, the_same_address_is_not_the_same_process);
	tcase_add_test(who, the_own_name_is_the_local_segment);
	tcase_add_test(who, another_name_of_ours_is_local_too);
	tcase_add_test(who, no_local_path);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
