/* Batches over a transport that does what the test says: bounds of submit, callbacks, polling, deadlines, cancels, buffers that are
 * held, callbacks that call back, stale handles, a hundred thousand requests. */
#include "tests/support/drive.h"
#include "tests/support/engine_rig.h"
#include "transports/engine_state.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct engine_rig rig;

static void setup(void)
{
	rig_begin(&rig, &(struct neap_engine_options){.requests_max = 131072}); /* some want as many as there are */
}

static void teardown(void)
{
	rig_end(&rig);
}

static struct neap_engine_stats stats_now(void)
{
	struct neap_engine_stats stats;
	neap_engine_stats(rig.engine, &stats);
	return stats;
}

/* --- submit */

static char buffer[64];

START_TEST(bad_requests_are_refused_and_nothing_is_taken)
{
	struct neap_request good = {.opcode = NEAP_WRITE, .source = buffer, .segment = rig.segment, .target_offset = 4096, .length = 8};
	struct neap_request bad[8];
	const int errors[8] = {NEAP_EINVAL, NEAP_EINVAL, NEAP_EINVAL, NEAP_EINVAL, NEAP_ESTALE, NEAP_ESTALE, NEAP_ESTALE, NEAP_EINVAL};
	for (int i = 0; i < 8; i++)
		bad[i] = good;
	bad[0].source = NULL;
	bad[1].opcode = (enum neap_opcode)2;
	bad[2].target_offset = UINT64_MAX - 3;
	bad[3].length = UINT64_MAX;
	bad[4].segment = 12345;
	bad[5].segment = rig.segment + (UINT64_C(1) << 32);
	bad[6].segment = UINT64_MAX;
	bad[7].source = (void *)(UINTPTR_MAX - 3);
	struct neap_request pair[2] = {good, bad[_i]};
	neap_batch_id batch = 7;
	ck_assert_int_eq(neap_submit(rig.engine, pair, 2, NULL, &batch), errors[_i]);
	ck_assert_uint_eq(batch, NEAP_INVALID_BATCH);
	ck_assert_uint_eq(rig.fake->submits, 0);
	ck_assert_uint_eq(stats_now().requests_pending, 0);
	ck_assert_uint_eq(stats_now().batches, 0);
	/* The next one is not hurt by what the refused one had begun. */
	ck_assert_int_eq(neap_submit(rig.engine, &good, 1, NULL, &batch), 0);
	ck_assert_uint_eq(rig.fake->count, 1);
}
END_TEST

START_TEST(an_empty_list_is_refused)
{
	neap_batch_id batch;
	struct neap_request none = {0};
	ck_assert_int_eq(neap_submit(rig.engine, &none, 0, NULL, &batch), NEAP_EINVAL);
	ck_assert_int_eq(neap_submit(rig.engine, NULL, 1, NULL, &batch), NEAP_EINVAL);
	ck_assert_int_eq(neap_submit(NULL, &none, 1, NULL, &batch), NEAP_EINVAL);
	struct neap_batch_options half = {.notify_name = "name only"};
	ck_assert_int_eq(rig_submit(&rig, 1, 8, &half, &batch), NEAP_EINVAL);
}
END_TEST

START_TEST(full_pools_refuse_at_submit)
{
	neap_batch_id batch, other;
	rig_end(&rig);
	rig_begin(&rig, &(struct neap_engine_options){.requests_max = 10, .batches_max = 2});
	ck_assert_int_eq(rig_submit(&rig, 11, 8, NULL, &batch), NEAP_ETOOMANY);
	ck_assert_int_eq(rig_submit(&rig, 6, 8, NULL, &batch), 0);
	ck_assert_int_eq(rig_submit(&rig, 5, 8, NULL, &other), NEAP_EAGAIN);
	ck_assert_int_eq(rig_submit(&rig, 1, 8, NULL, &other), 0);
	ck_assert_int_eq(rig_submit(&rig, 1, 8, NULL, &other), NEAP_EAGAIN);
	rig.fake->room = 2;
	fake_complete_all(rig.fake);
	rig_turn(&rig);
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), 0);
	ck_assert_int_eq(rig_submit(&rig, 3, 8, NULL, &batch), NEAP_EAGAIN);
	ck_assert_int_eq(rig_submit(&rig, 2, 8, NULL, &batch), 0);
}
END_TEST

/* Requests to several segments in one call: each gets its own list, in order. */
START_TEST(requests_are_sorted_by_segment)
{
	char memory[32] = "abcdefgh", copy[32] = "";
	struct neap_memory range = {.address = memory, .length = sizeof memory};
	struct neap_batch_options options = rig_options(&rig, false);
	struct neap_request requests[4];
	neap_batch_id batch;
	ck_assert_int_eq(neap_memory_register(rig.engine, &range, 1, NULL, NULL, 0), 0);
	for (int i = 0; i < 4; i++)
		requests[i] = (struct neap_request){.opcode = NEAP_READ, .source = copy + i, .length = 1, .user = &requests[i],
		                                    .segment = i % 2 ? rig.segment : NEAP_LOCAL_SEGMENT,
		                                    .target_offset = (uintptr_t)memory + (unsigned)i};
	ck_assert_int_eq(neap_submit(rig.engine, requests, 4, &options, &batch), 0);
	ck_assert_uint_eq(rig.requests, 0);
	ck_assert_uint_eq(rig.fake->count, 2);
	ck_assert_uint_eq(fake_slice(rig.fake, 0)->index, 1);
	ck_assert_uint_eq(fake_slice(rig.fake, 1)->index, 3);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.requests, 2);
	fake_complete_all(rig.fake);
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_str_eq(copy, "a");
	ck_assert_int_eq(copy[2], 'c');
	ck_assert_ptr_eq(rig.last_user, &requests[3]);
	ck_assert_uint_eq(rig.summary.completed, 4);
}
END_TEST

START_TEST(tokens_are_copied)
{
	struct neap_grant_token token;
	memset(&token, 0x5a, sizeof token);
	struct neap_request requests[2] = {
		{.opcode = NEAP_WRITE, .source = buffer, .segment = rig.segment, .target_offset = 1, .length = 8, .grant = &token},
		{.opcode = NEAP_WRITE, .source = buffer, .segment = rig.segment, .target_offset = 1, .length = 8}};
	neap_batch_id batch;
	ck_assert_int_eq(neap_submit(rig.engine, requests, 2, NULL, &batch), 0);
	memset(&token, 0, sizeof token);
	ck_assert_uint_eq(neap_slice_grant(fake_slice(rig.fake, 0))->bytes[31], 0x5a);
	ck_assert_ptr_null(neap_slice_grant(fake_slice(rig.fake, 1)));
}
END_TEST

/* --- every outcome that a transport may report */

static const struct {
	enum neap_status status;
	enum neap_effect effect;
	bool held;
	enum neap_cause cause;
	uint64_t bytes, bytes_told;
	int error;
} outcomes[] = {
	{NEAP_COMPLETED, NEAP_EFFECT_ALL, false, NEAP_CAUSE_NONE, 8, 8, 0},
	{NEAP_FAILED, NEAP_EFFECT_NONE, false, NEAP_CAUSE_REFUSED_BY_PEER, 0, 0, NEAP_ENOTREG},
	{NEAP_FAILED, NEAP_EFFECT_PARTIAL, false, NEAP_CAUSE_GRANT_REFUSED, 5, 5, NEAP_EGRANT},
	{NEAP_FAILED, NEAP_EFFECT_UNKNOWN, false, NEAP_CAUSE_PEER_RESET, 3, 0, NEAP_EPEER},
	{NEAP_FAILED, NEAP_EFFECT_UNKNOWN, true, NEAP_CAUSE_NO_PROGRESS, 0, 0, NEAP_ETIMEDOUT},
	{NEAP_TIMEOUT, NEAP_EFFECT_NONE, false, NEAP_CAUSE_BATCH_DEADLINE, 0, 0, NEAP_ETIMEDOUT},
	{NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, true, NEAP_CAUSE_BATCH_DEADLINE, 0, 0, NEAP_ETIMEDOUT},
	{NEAP_TIMEOUT, NEAP_EFFECT_PARTIAL, true, NEAP_CAUSE_BATCH_DEADLINE, 2, 2, NEAP_ETIMEDOUT},
	{NEAP_CANCELED, NEAP_EFFECT_NONE, false, NEAP_CAUSE_CANCELED_BY_USER, 0, 0, NEAP_ECANCELED},
	{NEAP_CANCELED, NEAP_EFFECT_UNKNOWN, true, NEAP_CAUSE_CANCELED_BY_USER, 0, 0, NEAP_ECANCELED},
	{NEAP_CANCELED, NEAP_EFFECT_PARTIAL, false, NEAP_CAUSE_SEGMENT_CLOSED, 1, 1, NEAP_ECLOSED},
};

START_TEST(every_outcome_reaches_the_user)
{
	neap_batch_id batch;
	struct neap_outcome polled;
	struct neap_batch_options options = rig_options(&rig, true);
	ck_assert_int_eq(rig_submit(&rig, 1, 8, &options, &batch), 0);
	struct neap_slice *slice = fake_slice(rig.fake, 0);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 0, &polled), 0);
	ck_assert_uint_eq(polled.status, NEAP_WAITING);
	neap_slice_begun(slice);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 0, &polled), 0);
	ck_assert_uint_eq(polled.status, NEAP_PENDING);
	fake_end(rig.fake, slice, outcomes[_i].status, outcomes[_i].effect, outcomes[_i].cause, outcomes[_i].bytes, outcomes[_i].held);
	ck_assert_uint_eq(rig.requests, 0);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.requests, 1);
	ck_assert_uint_eq(rig.batches, 1);
	ck_assert_uint_eq(rig.outcome.status, outcomes[_i].status);
	ck_assert_uint_eq(rig.outcome.effect, outcomes[_i].effect);
	ck_assert_uint_eq(rig.outcome.buffer, outcomes[_i].held ? NEAP_BUFFER_HELD : NEAP_BUFFER_YOURS);
	ck_assert_uint_eq(rig.outcome.bytes, outcomes[_i].bytes_told);
	ck_assert_int_eq(rig.outcome.error, outcomes[_i].error);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 0, &polled), 0);
	ck_assert_mem_eq(&polled, &rig.outcome, sizeof polled);
	ck_assert_uint_eq(rig.summary.completed + rig.summary.failed + rig.summary.timed_out + rig.summary.canceled, 1);
	if (outcomes[_i].held) {
		ck_assert_int_eq(neap_batch_free(rig.engine, batch), NEAP_EBUSY);
		ck_assert_uint_eq(stats_now().requests_pending, 1);
		fake_release(rig.fake, slice);
		rig_turn(&rig);
		ck_assert_uint_eq(rig.released, 1);
		ck_assert_int_eq(neap_batch_status(rig.engine, batch, 0, &polled), 0);
		ck_assert_uint_eq(polled.buffer, NEAP_BUFFER_YOURS);
	}
	ck_assert_uint_eq(rig.released, outcomes[_i].held);
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), 0);
	ck_assert_uint_eq(stats_now().requests_pending, 0);
	char text[256];
	struct neap_request request = {.opcode = NEAP_WRITE, .length = 8, .segment = rig.segment, .target_offset = 4096};
	ck_assert_int_gt(neap_outcome_text(rig.engine, &request, &rig.outcome, text, sizeof text), 0);
	ck_assert_ptr_nonnull(strstr(text, neap_engine_name(rig.peer)));
}
END_TEST

START_TEST(released_before_it_was_told_is_not_held)
{
	neap_batch_id batch;
	struct neap_batch_options options = rig_options(&rig, false);
	ck_assert_int_eq(rig_submit(&rig, 1, 8, &options, &batch), 0);
	struct neap_slice *slice = fake_slice(rig.fake, 0);
	neap_slice_begun(slice);
	fake_end(rig.fake, slice, NEAP_CANCELED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CANCELED_BY_USER, 0, true);
	fake_release(rig.fake, slice);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.requests, 1);
	ck_assert_uint_eq(rig.outcome.buffer, NEAP_BUFFER_YOURS);
	ck_assert_uint_eq(rig.released, 0);
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), NEAP_ESTALE);
}
END_TEST

/* Not kept and held: the batch has reported, its memory stays until the buffer is free. */
START_TEST(a_held_batch_goes_when_it_is_released)
{
	neap_batch_id batch;
	struct neap_outcome polled;
	struct neap_batch_options options = rig_options(&rig, false);
	ck_assert_int_eq(rig_submit(&rig, 3, 8, &options, &batch), 0);
	struct neap_slice *slices[3] = {fake_slice(rig.fake, 0), fake_slice(rig.fake, 1), fake_slice(rig.fake, 2)};
	for (int i = 0; i < 3; i++) {
		neap_slice_begun(slices[i]);
		fake_end(rig.fake, slices[i], NEAP_CANCELED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CANCELED_BY_USER, 0, i < 2);
	}
	rig_turn(&rig);
	ck_assert_uint_eq(rig.batches, 1);
	fake_release(rig.fake, slices[0]);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.released, 1);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 2, &polled), 0);
	ck_assert_int_eq(neap_batch_cancel(rig.engine, batch), 0);
	fake_release(rig.fake, slices[1]);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.released, 2);
	ck_assert_uint_eq(rig.batches, 1);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 2, &polled), NEAP_ESTALE);
	ck_assert_uint_eq(stats_now().batches, 0);
}
END_TEST

START_TEST(repeats_are_seen)
{
	neap_batch_id batch;
	struct neap_outcome polled;
	ck_assert_int_eq(rig_submit(&rig, 1, 8, NULL, &batch), 0);
	struct neap_slice *slice = fake_slice(rig.fake, 0);
	neap_slice_requeued(slice); /* nothing was sent: benign */
	neap_slice_begun(slice);
	neap_slice_requeued(slice);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 0, &polled), 0);
	ck_assert_uint_eq(polled.status, NEAP_WAITING);
	neap_slice_begun(slice);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 0, &polled), 0);
	ck_assert_uint_eq(polled.status, NEAP_PENDING);
	fake_complete(rig.fake, slice);
	rig_turn(&rig);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 0, &polled), 0);
	ck_assert_uint_eq(polled.status, NEAP_COMPLETED);
}
END_TEST

/* A transport speaks from inside an action, for more slices than an action may post events. */
START_TEST(a_transport_may_speak_from_inside_an_action)
{
	enum { MANY = 100 };
	neap_batch_id batch;
	struct neap_outcome polled;
	struct neap_batch_options options = rig_options(&rig, true);
	ck_assert_int_eq(rig_submit(&rig, MANY, 8, &options, &batch), 0);
	struct neap_dispatcher *dispatcher = neap_reactor_dispatcher(rig.reactor);
	dispatcher->running = true; /* as the dispatcher has it while an action runs */
	for (uint32_t i = 0; i < MANY; i++)
		neap_slice_begun(fake_slice(rig.fake, i));
	neap_slice_requeued(fake_slice(rig.fake, 0));
	neap_slice_requeued(fake_slice(rig.fake, 1));
	neap_slice_begun(fake_slice(rig.fake, 1));
	dispatcher->running = false;
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 0, &polled), 0);
	ck_assert_uint_eq(polled.status, NEAP_WAITING);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 1, &polled), 0);
	ck_assert_uint_eq(polled.status, NEAP_PENDING);
	neap_slice_requeued(fake_slice(rig.fake, 2));
	dispatcher->running = true;
	neap_slice_requeued(fake_slice(rig.fake, 3));
	fake_complete_all(rig.fake);
	dispatcher->running = false;
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_uint_eq(rig.requests, MANY);
	ck_assert_uint_eq(rig.summary.completed, MANY);
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), 0);
}
END_TEST

START_TEST(a_second_end_is_ignored)
{
	neap_batch_id batch;
	struct neap_batch_options options = rig_options(&rig, true);
	ck_assert_int_eq(rig_submit(&rig, 1, 8, &options, &batch), 0);
	struct neap_slice *slice = fake_slice(rig.fake, 0);
	fake_complete(rig.fake, slice);
	neap_slice_ended(slice);
	rig_turn(&rig);
	neap_slice_ended(slice);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.requests, 1);
	ck_assert_uint_eq(rig.batches, 1);
}
END_TEST

/* --- cancel and deadline */

START_TEST(cancel_of_one)
{
	neap_batch_id batch;
	struct neap_batch_options options = rig_options(&rig, true);
	ck_assert_int_eq(rig_submit(&rig, 3, 8, &options, &batch), 0);
	neap_slice_begun(fake_slice(rig.fake, 1));
	ck_assert_int_eq(neap_request_cancel(rig.engine, batch, 3), NEAP_EINVAL);
	ck_assert_int_eq(neap_request_cancel(rig.engine, batch, 1), 0);
	ck_assert_int_eq(neap_request_cancel(rig.engine, batch, 1), 0);
	ck_assert_uint_eq(rig.requests, 0);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.requests, 1);
	ck_assert_uint_eq(rig.last_index, 1);
	ck_assert_uint_eq(rig.outcome.status, NEAP_CANCELED);
	ck_assert_int_eq(neap_request_cancel(rig.engine, batch, 1), 0);
	ck_assert_uint_eq(rig.fake->cancels, 1);
	fake_complete_all(rig.fake);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.summary.canceled, 1);
	ck_assert_uint_eq(rig.summary.completed, 2);
	ck_assert_uint_eq(rig.summary.bytes, 16);
}
END_TEST

START_TEST(cancel_of_all)
{
	neap_batch_id batch;
	struct neap_batch_options options = rig_options(&rig, true);
	rig.fake->answer = (enum fake_answer)_i;
	ck_assert_int_eq(rig_submit(&rig, 20, 8, &options, &batch), 0);
	for (uint32_t i = 0; i < 20; i++)
		neap_slice_begun(fake_slice(rig.fake, i));
	struct neap_slice *first = fake_slice(rig.fake, 0);
	fake_complete(rig.fake, first); /* it ended before the cancel, though it was not told yet */
	ck_assert_int_eq(neap_batch_cancel(rig.engine, batch), 0);
	ck_assert_int_eq(neap_batch_cancel(rig.engine, batch), 0);
	rig_turn(&rig);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.fake->cancels, 19);
	if (rig.fake->answer == FAKE_LATER) {
		/* Some had happened anyway, some are sent again or begin in vain. */
		ck_assert_uint_eq(rig.requests, 1);
		neap_slice_requeued(fake_slice(rig.fake, 1));
		neap_slice_begun(fake_slice(rig.fake, 1));
		fake_complete_all(rig.fake);
		rig_turn(&rig);
		ck_assert_uint_eq(rig.summary.completed, 20);
	} else {
		ck_assert_uint_eq(rig.summary.completed, 1);
		ck_assert_uint_eq(rig.summary.canceled, 19);
	}
	ck_assert_uint_eq(rig.batches, 1);
	ck_assert_int_eq(neap_batch_cancel(rig.engine, batch), 0);
	ck_assert_int_eq(neap_request_cancel(rig.engine, batch, 3), 0);
	while (rig.fake->held_count)
		fake_release(rig.fake, rig.fake->held[0]);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.released, rig.fake->answer == FAKE_HOLDING ? 19 : 0);
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), 0);
}
END_TEST

START_TEST(cancel_answered_with_a_held_buffer)
{
	neap_batch_id batch;
	struct neap_batch_options options = rig_options(&rig, false);
	rig.fake->answer = FAKE_LATER;
	ck_assert_int_eq(rig_submit(&rig, 1, 8, &options, &batch), 0);
	struct neap_slice *slice = fake_slice(rig.fake, 0);
	neap_slice_begun(slice);
	ck_assert_int_eq(neap_batch_cancel(rig.engine, batch), 0);
	rig_turn(&rig);
	fake_end(rig.fake, slice, NEAP_CANCELED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CANCELED_BY_USER, 0, true);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.outcome.buffer, NEAP_BUFFER_HELD);
	fake_release(rig.fake, slice);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.released, 1);
}
END_TEST

/* All calls are legal inside an action, as rooms above make them: the machines hear of them when it has ended. */
START_TEST(calls_from_inside_an_action)
{
	neap_batch_id batch;
	struct neap_batch_options options = rig_options(&rig, false);
	struct neap_dispatcher *dispatcher = neap_reactor_dispatcher(rig.reactor);
	dispatcher->running = true;
	ck_assert_int_eq(rig_submit(&rig, 3, 8, &options, &batch), 0);
	ck_assert_int_eq(neap_request_cancel(rig.engine, batch, 1), 0);
	ck_assert_int_eq(neap_request_cancel(rig.engine, batch, 1), 0);
	ck_assert_int_eq(neap_batch_cancel(rig.engine, batch), 0);
	ck_assert_int_eq(neap_batch_cancel(rig.engine, batch), 0);
	ck_assert_int_eq(neap_segment_close(rig.engine, rig.segment), 0);
	ck_assert_int_eq(neap_segment_close(rig.engine, rig.segment), 0);
	dispatcher->running = false;
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_uint_eq(rig.summary.canceled, 3);
	rig_turn(&rig);
	ck_assert_uint_eq(stats_now().peers, 0);
	ck_assert_uint_eq(stats_now().batches, 0);
	dispatcher->running = true;
	ck_assert_int_eq(neap_engine_close(rig.engine, rig_closed, &rig), 0);
	ck_assert_int_eq(neap_engine_close(rig.engine, rig_closed, &rig), NEAP_ECLOSED);
	dispatcher->running = false;
	ck_assert(rig_until(&rig, &rig.closed));
	rig.engine = NULL;
}
END_TEST

START_TEST(the_deadline_ends_what_is_left)
{
	neap_batch_id batch;
	struct neap_batch_options options = rig_options(&rig, true);
	options.deadline_ns = neap_reactor_now_ns(rig.reactor) + 20000000;
	ck_assert_int_eq(rig_submit(&rig, 300, 8, &options, &batch), 0);
	neap_slice_begun(fake_slice(rig.fake, 0));
	fake_complete(rig.fake, fake_slice(rig.fake, 0));
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_uint_ge(neap_reactor_now_ns(rig.reactor), options.deadline_ns);
	ck_assert_uint_eq(rig.summary.completed, 1);
	ck_assert_uint_eq(rig.summary.timed_out, 299);
	ck_assert_uint_eq(rig.outcome.status, NEAP_TIMEOUT);
	ck_assert_uint_eq(rig.outcome.cause, NEAP_CAUSE_BATCH_DEADLINE);
	ck_assert_int_eq(neap_batch_cancel(rig.engine, batch), 0);
}
END_TEST

START_TEST(a_deadline_in_the_past_ends_at_once)
{
	struct neap_batch_options options = rig_options(&rig, false);
	options.deadline_ns = 1;
	ck_assert_int_eq(rig_submit(&rig, 2, 8, &options, NULL), 0);
	ck_assert_uint_eq(rig.requests, 0);
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_uint_eq(rig.summary.timed_out, 2);
}
END_TEST

/* --- callbacks that call back */

static neap_batch_id other_batch;

static void submit_more(struct engine_rig *r)
{
	struct neap_batch_options options = rig_options(r, false);
	if (r->requests < 10)
		ck_assert_int_eq(rig_submit(r, 1, 8, &options, NULL), 0);
}

START_TEST(callbacks_may_submit)
{
	rig.inside_request = submit_more;
	submit_more(&rig);
	while (rig.requests < 10) {
		fake_complete_all(rig.fake);
		rig_turn(&rig);
	}
	ck_assert_uint_eq(rig.batches, 10);
}
END_TEST

static void cancel_other(struct engine_rig *r)
{
	ck_assert_int_eq(neap_batch_cancel(r->engine, other_batch), 0);
	ck_assert_int_eq(neap_batch_cancel(r->engine, r->last_batch), 0);
	ck_assert_int_eq(neap_request_cancel(r->engine, r->last_batch, 1), 0);
}

START_TEST(callbacks_may_cancel)
{
	struct neap_batch_options options = rig_options(&rig, false);
	ck_assert_int_eq(rig_submit(&rig, 5, 8, &options, &other_batch), 0);
	ck_assert_int_eq(rig_submit(&rig, 5, 8, &options, NULL), 0);
	rig.inside_request = cancel_other;
	fake_complete(rig.fake, fake_slice(rig.fake, 5));
	rig.batches = 0;
	for (int i = 0; i < 5; i++)
		rig_turn(&rig);
	ck_assert_uint_eq(rig.batches, 2);
	ck_assert_uint_eq(rig.requests, 10);
}
END_TEST

static void free_itself(struct engine_rig *r)
{
	ck_assert_int_eq(neap_batch_free(r->engine, r->last_batch), 0);
	ck_assert_int_eq(neap_batch_free(r->engine, r->last_batch), NEAP_ESTALE);
	ck_assert_int_eq(rig_submit(r, 7, 8, NULL, &other_batch), 0);
}

static void free_too_early(struct engine_rig *r)
{
	ck_assert_int_eq(neap_batch_free(r->engine, r->last_batch), NEAP_EBUSY);
}

START_TEST(callbacks_may_free)
{
	struct neap_batch_options options = rig_options(&rig, true);
	rig.inside_batch = free_itself;
	rig.inside_request = free_too_early;
	ck_assert_int_eq(rig_submit(&rig, 5, 8, &options, NULL), 0);
	fake_complete_all(rig.fake);
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_uint_eq(rig.fake->count, 7);
}
END_TEST

static void close_segment(struct engine_rig *r)
{
	int error = neap_segment_close(r->engine, r->segment);
	ck_assert_int_eq(error, r->requests == 1 ? 0 : NEAP_ESTALE);
}

START_TEST(callbacks_may_close_the_segment)
{
	struct neap_batch_options options = rig_options(&rig, false);
	rig.inside_request = close_segment;
	ck_assert_int_eq(rig_submit(&rig, 5, 8, &options, NULL), 0);
	fake_complete(rig.fake, fake_slice(rig.fake, 0));
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_uint_eq(rig.summary.completed, 1);
	ck_assert_uint_eq(rig.summary.canceled, 4);
	ck_assert_uint_eq(rig.outcome.cause, NEAP_CAUSE_SEGMENT_CLOSED);
	rig_turn(&rig);
	ck_assert_uint_eq(stats_now().peers, 0);
	ck_assert_int_eq(rig_submit(&rig, 1, 8, NULL, NULL), NEAP_ESTALE);
}
END_TEST

static void close_engine(struct engine_rig *r)
{
	int error = neap_engine_close(r->engine, rig_closed, r);
	ck_assert_int_eq(error, r->requests == 1 ? 0 : NEAP_ECLOSED);
	ck_assert_int_eq(rig_submit(r, 1, 8, NULL, NULL), NEAP_ECLOSED);
}

START_TEST(callbacks_may_close_the_engine)
{
	struct neap_batch_options options = rig_options(&rig, false);
	rig.inside_request = close_engine;
	ck_assert_int_eq(rig_submit(&rig, 5, 8, &options, NULL), 0);
	ck_assert_int_eq(rig_submit(&rig, 3, 8, NULL, NULL), 0);
	fake_complete(rig.fake, fake_slice(rig.fake, 0));
	ck_assert(rig_until(&rig, &rig.closed));
	rig.engine = NULL;
	ck_assert_uint_eq(rig.requests, 5);
	ck_assert_uint_eq(rig.summary.canceled, 4);
	ck_assert_uint_eq(rig.outcome.cause, NEAP_CAUSE_ENGINE_CLOSED);
}
END_TEST

static void close_when_released(struct engine_rig *r)
{
	ck_assert_int_eq(neap_engine_close(r->engine, rig_closed, r), 0);
}

START_TEST(the_second_notice_may_close_the_engine)
{
	struct neap_batch_options options = rig_options(&rig, true);
	rig.inside_released = close_when_released;
	ck_assert_int_eq(rig_submit(&rig, 1, 8, &options, NULL), 0);
	struct neap_slice *slice = fake_slice(rig.fake, 0);
	neap_slice_begun(slice);
	fake_end(rig.fake, slice, NEAP_FAILED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_PEER_RESET, 0, true);
	rig_turn(&rig);
	fake_release(rig.fake, slice);
	ck_assert(rig_until(&rig, &rig.closed));
	rig.engine = NULL;
}
END_TEST

/* --- handles */

START_TEST(handles_are_stale_and_never_another)
{
	struct neap_outcome outcome;
	struct neap_batch_summary summary;
	bool finished;
	neap_batch_id batch, next;
	const neap_batch_id wrong[] = {0, 1, NEAP_INVALID_BATCH, UINT64_C(1) << 32, 0xffffffffu};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		ck_assert_int_eq(neap_batch_status(rig.engine, wrong[i], 0, &outcome), NEAP_ESTALE);
		ck_assert_int_eq(neap_batch_summary(rig.engine, wrong[i], &summary, &finished), NEAP_ESTALE);
		ck_assert_int_eq(neap_batch_cancel(rig.engine, wrong[i]), NEAP_ESTALE);
		ck_assert_int_eq(neap_request_cancel(rig.engine, wrong[i], 0), NEAP_ESTALE);
		ck_assert_int_eq(neap_batch_free(rig.engine, wrong[i]), NEAP_ESTALE);
	}
	struct neap_batch_options options = rig_options(&rig, true);
	ck_assert_int_eq(rig_submit(&rig, 2, 8, &options, &batch), 0);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 2, &outcome), NEAP_EINVAL);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, UINT32_MAX, &outcome), NEAP_EINVAL);
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), NEAP_EBUSY);
	ck_assert_int_eq(neap_batch_summary(rig.engine, batch, &summary, &finished), 0);
	ck_assert(!finished);
	ck_assert_uint_eq(summary.total, 2);
	fake_complete_all(rig.fake);
	rig_turn(&rig);
	ck_assert_int_eq(neap_batch_summary(rig.engine, batch, &summary, &finished), 0);
	ck_assert(finished);
	ck_assert_uint_eq(summary.completed, 2);
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), 0);
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), NEAP_ESTALE);
	/* The same slot again, another generation: the old handle does not touch it. */
	ck_assert_int_eq(rig_submit(&rig, 2, 8, &options, &next), 0);
	ck_assert_uint_eq((uint32_t)next, (uint32_t)batch);
	ck_assert_uint_ne(next, batch);
	ck_assert_int_eq(neap_batch_cancel(rig.engine, batch), NEAP_ESTALE);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 0, &outcome), NEAP_ESTALE);
	rig_turn(&rig);
	ck_assert_uint_eq(rig.fake->cancels, 0);
}
END_TEST

START_TEST(a_batch_that_is_not_kept_goes_by_itself)
{
	neap_batch_id batch;
	struct neap_outcome outcome;
	struct neap_batch_options options = rig_options(&rig, false);
	ck_assert_int_eq(rig_submit(&rig, 2, 8, &options, &batch), 0);
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), NEAP_EBUSY);
	fake_complete_all(rig.fake);
	rig_turn(&rig);
	ck_assert_int_eq(neap_batch_status(rig.engine, batch, 0, &outcome), NEAP_ESTALE);
	ck_assert_uint_eq(stats_now().batches, 0);
}
END_TEST

/* --- size */

static uint64_t cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Submits so many, ends them all, looks at each, and frees them. Returns what the submission and their ends took of the processor. */
static uint64_t run_many(uint32_t count, bool cancels)
{
	neap_batch_id batch;
	struct neap_outcome outcome;
	struct neap_batch_options options = rig_options(&rig, true);
	int error;
	uint64_t begun_ns = cpu_ns();
	while ((error = rig_submit(&rig, count, 8, &options, &batch)) == NEAP_EAGAIN) { /* those before are given back in pieces */
		rig_turn(&rig);
		begun_ns = cpu_ns();
	}
	ck_assert_int_eq(error, 0);
	rig.finished = false;
	memset(rig.seen, 0, sizeof rig.seen);
	if (!cancels)
		fake_complete_all(rig.fake);
	else
		ck_assert_int_eq(neap_batch_cancel(rig.engine, batch), 0);
	ck_assert(drive_until(rig.reactor, &rig.finished, 60000));
	uint64_t took_ns = cpu_ns() - begun_ns;
	ck_assert_uint_eq(cancels ? rig.summary.canceled : rig.summary.completed, count);
	for (uint32_t i = 0; i < count; i++)
		if (rig.seen[i] != 1)
			ck_abort_msg("request %u was reported %u times", i, rig.seen[i]);
	for (uint32_t i = 0; i < count; i += 7)
		if (neap_batch_status(rig.engine, batch, i, &outcome) != 0 || outcome.status != (cancels ? NEAP_CANCELED : NEAP_COMPLETED))
			ck_abort_msg("request %u polls %u", i, outcome.status);
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), 0);
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), NEAP_ESTALE);
	return took_ns;
}

/* Ten times as many cost ten times as much; a search for each would cost a hundred times as much. */
START_TEST(a_hundred_thousand)
{
	uint64_t few_ns = run_many(10000, _i), many_ns = run_many(100000, _i);
	ck_assert_msg(many_ns < 40 * few_ns, "%lu ns against %lu", many_ns, few_ns);
	(void)run_many(100000, _i); /* the places of the first are given back */
}
END_TEST

/* Sizes around the borders of the index pages. */
START_TEST(every_size_finds_its_requests)
{
	static const uint32_t sizes[] = {1, 7, 8, 9, 127, 128, 129, 255, 257, 16383, 16384, 16385, 40000};
	uint32_t count = sizes[_i];
	neap_batch_id batch;
	ck_assert_int_eq(rig_submit(&rig, count, 8, NULL, &batch), 0);
	for (uint32_t i = 0; rig.fake->first; i++) {
		struct neap_slice *slice = rig.fake->first;
		if (slice->index != i)
			ck_abort_msg("slice %u says %u", i, slice->index);
		fake_end(rig.fake, slice, i % 2 ? NEAP_COMPLETED : NEAP_FAILED, i % 2 ? NEAP_EFFECT_ALL : NEAP_EFFECT_NONE,
		         i % 2 ? NEAP_CAUSE_NONE : NEAP_CAUSE_PEER_RESET, 8, false);
	}
	bool finished = false;
	struct neap_batch_summary summary;
	while (!finished) {
		rig_turn(&rig);
		ck_assert_int_eq(neap_batch_summary(rig.engine, batch, &summary, &finished), 0);
	}
	for (uint32_t i = 0; i < count; i++) {
		struct neap_outcome outcome;
		if (neap_batch_status(rig.engine, batch, i, &outcome) != 0 || outcome.status != (i % 2 ? NEAP_COMPLETED : NEAP_FAILED))
			ck_abort_msg("request %u", i);
	}
	ck_assert_int_eq(neap_batch_free(rig.engine, batch), 0);
	for (int i = 0; i < 60; i++)
		rig_turn(&rig);
	ck_assert_uint_eq(stats_now().batches, 0);
	ck_assert_uint_eq(rig.engine->pages.used, 0);
	ck_assert_uint_eq(rig.engine->slices.used, 0);
}
END_TEST

/* A turn with many completions takes its share and leaves the rest for the next. */
START_TEST(completions_come_in_pieces)
{
	struct neap_batch_options options = rig_options(&rig, false);
	ck_assert_int_eq(rig_submit(&rig, 5000, 8, &options, NULL), 0);
	fake_complete_all(rig.fake);
	/* On a busy machine a turn's time may be up before it comes to them. */
	for (int turn = 0; turn < 1000 && rig.requests == 0; turn++)
		ck_assert_int_eq(neap_reactor_run_once(rig.reactor, NULL), NEAP_RUN_MORE);
	ck_assert_uint_gt(rig.requests, 0);
	ck_assert_uint_lt(rig.requests, 1000);
	ck_assert(rig_until(&rig, &rig.finished));
}
END_TEST

/* --- segments */

START_TEST(a_segment_that_closes_slowly)
{
	struct neap_batch_options options = rig_options(&rig, false);
	rig.fake->answer = FAKE_LATER;
	ck_assert_int_eq(rig_submit(&rig, 3, 8, &options, NULL), 0);
	ck_assert_int_eq(neap_segment_close(rig.engine, rig.segment), 0);
	ck_assert_int_eq(neap_segment_close(rig.engine, rig.segment), NEAP_ESTALE);
	ck_assert_int_eq(neap_segment_close(rig.engine, NEAP_LOCAL_SEGMENT), NEAP_EINVAL);
	rig_turn(&rig);
	/* The name may be opened again meanwhile, as another segment. */
	ck_assert_int_eq(neap_segment_open(rig.engine, neap_engine_name(rig.peer), rig_opened, &rig), 0);
	ck_assert(rig_until(&rig, &rig.opened));
	ck_assert_int_eq(rig.opened_error, 0);
	ck_assert_uint_ne(rig.opened_segment, rig.segment);
	fake_forgotten(rig.fake);
	ck_assert(rig_until(&rig, &rig.finished));
	ck_assert_uint_eq(rig.summary.canceled, 3);
	rig_turn(&rig);
	ck_assert_uint_eq(stats_now().peers, 1);
}
END_TEST

START_TEST(a_closed_engine_waits_for_held_buffers)
{
	struct neap_batch_options options = rig_options(&rig, false);
	ck_assert_int_eq(rig_submit(&rig, 2, 8, &options, NULL), 0);
	struct neap_slice *slice = fake_slice(rig.fake, 0);
	neap_slice_begun(slice);
	fake_end(rig.fake, slice, NEAP_FAILED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_NO_PROGRESS, 0, true);
	rig.fake->slow_close = true;
	ck_assert_int_eq(neap_engine_close(rig.engine, rig_closed, &rig), 0);
	drive_for(rig.reactor, 10);
	ck_assert(!rig.closed);
	ck_assert(rig.fake->closing);
	fake_close_now(rig.fake);
	ck_assert(rig_until(&rig, &rig.closed));
	rig.engine = NULL;
	ck_assert_uint_eq(rig.requests, 2);
	ck_assert_uint_eq(rig.released, 1);
	ck_assert_uint_eq(rig.batches, 1);
}
END_TEST

/* --- notify with a batch */

START_TEST(a_notify_follows_a_completed_batch)
{
	struct neap_batch_options options = rig_options(&rig, false);
	struct neap_notify notify;
	options.notify_name = "layer";
	options.notify_message = "42 is there";
	ck_assert_int_eq(rig_submit(&rig, 2, 8, &options, NULL), 0);
	ck_assert_int_eq(neap_notify_take(rig.peer, &notify), 0);
	fake_complete(rig.fake, fake_slice(rig.fake, 0));
	if (_i == 0)
		fake_complete(rig.fake, fake_slice(rig.fake, 0));
	else
		fake_end(rig.fake, fake_slice(rig.fake, 0), NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_REFUSED_BY_PEER, 0, false);
	ck_assert(rig_until(&rig, &rig.finished));
	bool arrived = false;
	for (int i = 0; i < 100 && !arrived; i++) {
		drive_for(rig.reactor, 2);
		arrived = neap_notify_take(rig.peer, &notify) == 1;
		if (_i != 0 && i == 10)
			break;
	}
	ck_assert_int_eq(arrived, _i == 0);
	if (arrived) {
		ck_assert_str_eq(notify.name, "layer");
		ck_assert_str_eq(notify.message, "42 is there");
	}
}
END_TEST

/* --- cost: reported, not judged (a limit far away) */

static uint64_t cpu_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

START_TEST(cost_of_a_request)
{
	enum { ROUNDS = 2000, BATCH = 128 };
	struct neap_request requests[BATCH];
	struct neap_batch_options options = {.keep = false};
	for (uint32_t i = 0; i < BATCH; i++)
		requests[i] = (struct neap_request){.opcode = NEAP_WRITE, .source = buffer, .segment = rig.segment, .target_offset = 4096,
		                                    .length = 8};
	uint64_t begun_ns = cpu_now_ns(), inside_ns = 0;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint64_t from_ns = cpu_now_ns();
		if (neap_submit(rig.engine, requests, BATCH, &options, NULL) != 0)
			ck_abort_msg("submit");
		for (struct neap_slice *slice = rig.fake->first; slice; slice = slice->next)
			neap_slice_begun(slice);
		fake_complete_all(rig.fake);
		while (rig.engine->ended.first)
			neap_engine_tend(&rig.engine->work);
		inside_ns += cpu_now_ns() - from_ns;
		rig_turn(&rig);
	}
	printf("%.1f ns a request inside the engine, %.1f with two turns a batch of %d\n",
	       (double)inside_ns / (ROUNDS * BATCH), (double)(cpu_now_ns() - begun_ns) / (ROUNDS * BATCH), BATCH);
	ck_assert_uint_lt(inside_ns / (ROUNDS * BATCH), 20000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("batch");
	TCase *submit = tcase_create("submit"), *ends = tcase_create("outcomes"), *cancel = tcase_create("cancel and deadline"),
	      *callbacks = tcase_create("callbacks"), *handles = tcase_create("handles"), *size = tcase_create("size"),
	      *segments = tcase_create("segments");
	TCase *const cases[] = {submit, ends, cancel, callbacks, handles, size, segments};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		tcase_add_checked_fixture(cases[i], setup, teardown);
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(suite, cases[i]);
	}
	tcase_add_loop_test(submit, bad_requests_are_refused_and_nothing_is_taken, 0, 8);
	tcase_add_test(submit, an_empty_list_is_refused);
	tcase_add_test(submit, full_pools_refuse_at_submit);
	tcase_add_test(submit, requests_are_sorted_by_segment);
	tcase_add_test(submit, tokens_are_copied);
	tcase_add_loop_test(ends, every_outcome_reaches_the_user, 0, sizeof outcomes / sizeof outcomes[0]);
	tcase_add_test(ends, released_before_it_was_told_is_not_held);
	tcase_add_test(ends, a_held_batch_goes_when_it_is_released);
	tcase_add_test(ends, repeats_are_seen);
	tcase_add_test(ends, a_transport_may_speak_from_inside_an_action);
	tcase_add_test(ends, a_second_end_is_ignored);
	tcase_add_test(cancel, cancel_of_one);
	tcase_add_loop_test(cancel, cancel_of_all, 0, 3);
	tcase_add_test(cancel, cancel_answered_with_a_held_buffer);
	tcase_add_test(cancel, calls_from_inside_an_action);
	tcase_add_test(cancel, the_deadline_ends_what_is_left);
	tcase_add_test(cancel, a_deadline_in_the_past_ends_at_once);
	tcase_add_test(callbacks, callbacks_may_submit);
	tcase_add_test(callbacks, callbacks_may_cancel);
	tcase_add_test(callbacks, callbacks_may_free);
	tcase_add_test(callbacks, callbacks_may_close_the_segment);
	tcase_add_test(callbacks, callbacks_may_close_the_engine);
	tcase_add_test(callbacks, the_second_notice_may_close_the_engine);
	tcase_add_test(handles, handles_are_stale_and_never_another);
	tcase_add_test(handles, a_batch_that_is_not_kept_goes_by_itself);
	tcase_add_loop_test(size, a_hundred_thousand, 0, 2);
	tcase_add_loop_test(size, every_size_finds_its_requests, 0, 13);
	tcase_add_test(size, completions_come_in_pieces);
	tcase_add_test(size, cost_of_a_request);
	tcase_add_test(segments, a_segment_that_closes_slowly);
	tcase_add_test(segments, a_closed_engine_waits_for_held_buffers);
	tcase_add_loop_test(segments, a_notify_follows_a_completed_batch, 0, 2);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
