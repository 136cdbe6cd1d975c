/* Transfers under every host: an initiator and a target, on two reactors of the same loop; under neap_reactor_run, which has one,
 * an engine that reaches itself over TCP. */
#include "tests/embed/embed_suite.h"

#include <neap/engine.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 65536u
#define BLOCKS 64u

struct side {
	struct embedded e;
	struct neap_engine *engine;
	bool closed;
};

static struct side near_side, far_side;
static struct side *target; /* near_side or far_side */
static neap_segment_id segment;
static unsigned char source[BLOCKS * BLOCK], remote[BLOCKS * BLOCK], back[BLOCKS * BLOCK];
static void (*when_open)(void);
static bool in_call; /* a call of the API is on the stack: no completion may come now */

static void make_engine(struct side *side, int variant)
{
	/* Small pools: each test is a process of its own, and sanitizers pay for memory that is only reserved. */
	struct neap_engine_options options = {.no_local_path = true, .requests_max = 4096, .batches_max = 64, .peers_max = 16,
	                                      .sessions_max = 16, .regions_max = 16, .grants_max = 16, .handshake_sessions_max = 16};
	char why[256] = "";
	embed_begin(&side->e, variant, NEAP_MODE_EVENT);
	ck_assert_msg(neap_engine_create(&side->engine, side->e.reactor, &options, why, sizeof(why)) == 0, "%s", why);
	side->closed = false;
}

static void on_closed(void *user)
{
	struct side *side = user;
	ck_assert(!in_call && !side->closed);
	side->closed = true;
	neap_reactor_stop(side->e.reactor);
}

static void close_both(void)
{
	in_call = true;
	ck_assert_int_eq(neap_engine_close(near_side.engine, on_closed, &near_side), 0);
	if (target != &near_side)
		ck_assert_int_eq(neap_engine_close(target->engine, on_closed, target), 0);
	in_call = false;
}

static void on_open(void *user, int error, neap_segment_id opened, const char *why)
{
	(void)user;
	ck_assert_msg(error == 0, "%s", why);
	ck_assert(!in_call);
	segment = opened;
	when_open();
}

static void begin(int variant, void (*next)(void))
{
	struct neap_memory memory = {.address = remote, .length = sizeof(remote), .access = NEAP_OPEN};
	char why[256] = "";
	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (unsigned char)(i * 2654435761u >> 13);
	make_engine(&near_side, variant);
	target = &near_side;
	if (host_is_foreign) {
		make_engine(&far_side, variant);
		target = &far_side;
	}
	when_open = next;
	ck_assert_msg(neap_memory_register(target->engine, &memory, 1, NULL, why, sizeof(why)) == 0, "%s", why);
	in_call = true;
	ck_assert_int_eq(neap_segment_open(near_side.engine, neap_engine_name(target->engine), on_open, NULL), 0);
	in_call = false;
}

static void end(void)
{
	embed_run(&near_side.e);
	ck_assert(near_side.closed);
	if (target == &near_side)
		return;
	ck_assert(far_side.closed);
	ck_assert_int_eq(support_reactor_destroy(far_side.e.reactor), 0);
}

static neap_batch_id submit(enum neap_opcode opcode, unsigned char *memory, uint32_t blocks,
                            const struct neap_batch_options *options)
{
	struct neap_request requests[BLOCKS];
	neap_batch_id batch = NEAP_INVALID_BATCH;
	memset(requests, 0, sizeof(requests));
	for (uint32_t i = 0; i < blocks; i++) {
		requests[i].opcode = opcode;
		requests[i].source = memory + i * BLOCK;
		requests[i].segment = segment;
		requests[i].target_offset = (uint64_t)(uintptr_t)remote + i * BLOCK;
		requests[i].length = BLOCK;
	}
	in_call = true;
	int error = neap_submit(near_side.engine, requests, blocks, options, &batch);
	in_call = false;
	ck_assert_msg(error == 0, "submit: %s", neap_error_name(error));
	return batch;
}

/* --- there and back ------------------------------------------------------------------------------------------------------- */

static void on_read(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)user, (void)batch;
	ck_assert(!in_call);
	ck_assert_uint_eq(summary->completed, BLOCKS);
	ck_assert_mem_eq(back, source, sizeof(source));
	close_both();
}

static void on_written(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	struct neap_batch_options options = {.on_batch = on_read};
	(void)user, (void)batch;
	ck_assert(!in_call);
	ck_assert_uint_eq(summary->completed, BLOCKS);
	ck_assert_uint_eq(summary->bytes, sizeof(source));
	ck_assert_mem_eq(remote, source, sizeof(source));
	submit(NEAP_READ, back, BLOCKS, &options);
}

static void write_all(void)
{
	struct neap_batch_options options = {.on_batch = on_written};
	submit(NEAP_WRITE, source, BLOCKS, &options);
}

START_TEST(transfers)
{
	begin(_i, write_all);
	end();
}
END_TEST

static void submit_late(void *user)
{
	(void)user;
	write_all();
}

static void wait_a_moment(void)
{
	host_after_ms(40, submit_late, NULL);
}

/* Everything sleeps when the host's own timer submits. */
START_TEST(submitted_just_before_sleep)
{
	begin(_i, wait_a_moment);
	end();
}
END_TEST

/* --- cancel and close from completion callbacks ------------------------------------------------------------------------------ */

#define BATCHES 6

static neap_batch_id batches[BATCHES];
static unsigned told[BATCHES], ended_batches, completed, canceled;
static bool acted;

static void count_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	(void)batch, (void)index, (void)request_user;
	ck_assert(!in_call);
	told[(size_t)user]++;
	if (outcome->status == NEAP_COMPLETED)
		completed++;
	else if (outcome->status == NEAP_CANCELED)
		canceled++;
	else
		ck_abort_msg("status %u, cause %u", (unsigned)outcome->status, (unsigned)outcome->cause);
}

static void cancel_the_others(void *user, neap_batch_id batch, uint32_t index, void *request_user,
                              const struct neap_outcome *outcome)
{
	count_request(user, batch, index, request_user, outcome);
	if (acted)
		return;
	acted = true;
	in_call = true;
	for (size_t i = 0; i < BATCHES; i++)
		if (i != (size_t)user)
			ck_assert_int_eq(neap_batch_cancel(near_side.engine, batches[i]), 0);
	in_call = false;
}

static void close_at_last_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)batch;
	ck_assert_uint_eq(told[(size_t)user], summary->total);
	if (++ended_batches == BATCHES)
		close_both();
}

static void start_to_cancel(void)
{
	for (size_t i = 0; i < BATCHES; i++) {
		struct neap_batch_options options = {
			.on_request = cancel_the_others, .on_batch = close_at_last_batch, .user = (void *)i};
		batches[i] = submit(i % 2 ? NEAP_READ : NEAP_WRITE, i % 2 ? back : source, BLOCKS, &options);
	}
}

START_TEST(cancelled_inside_a_completion)
{
	begin(_i, start_to_cancel);
	end();
	ck_assert_uint_eq(ended_batches, BATCHES);
	ck_assert_uint_eq(completed + canceled, BATCHES * BLOCKS);
	ck_assert_uint_gt(canceled, 0);
	ck_assert_uint_gt(completed, 0);
}
END_TEST

static void close_at_once(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	count_request(user, batch, index, request_user, outcome);
	if (acted)
		return;
	acted = true;
	close_both();
}

static void count_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)batch;
	ck_assert_uint_eq(told[(size_t)user], summary->total);
	ck_assert(!near_side.closed); /* no completion after the close has ended */
	ended_batches++;
}

static void start_to_close(void)
{
	for (size_t i = 0; i < BATCHES; i++) {
		struct neap_batch_options options = {.on_request = close_at_once, .on_batch = count_batch, .user = (void *)i};
		batches[i] = submit(NEAP_WRITE, source, BLOCKS, &options);
	}
}

START_TEST(closed_inside_a_completion)
{
	begin(_i, start_to_close);
	end();
	ck_assert_uint_eq(ended_batches, BATCHES);
	ck_assert_uint_eq(completed + canceled, BATCHES * BLOCKS);
	ck_assert_uint_gt(canceled, 0);
}
END_TEST

/* --- deadlines -------------------------------------------------------------------------------------------------------------- */

static uint64_t submitted_ns;

static void on_late(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	uint64_t took_ns = neap_reactor_now_ns(near_side.e.reactor) - submitted_ns;
	(void)user, (void)batch;
	ck_assert_uint_eq(summary->timed_out, BLOCKS);
	ck_assert_msg(took_ns >= 100000000 && took_ns < 10000000000, "it took %llu ns", (unsigned long long)took_ns);
	host_attach(far_side.e.reactor, NULL);
	close_both();
}

/* The target does not run: nothing can be acknowledged, and nothing but the deadline wakes the initiator. */
static void write_into_silence(void)
{
	struct neap_batch_options options = {.on_batch = on_late};
	host_detach(far_side.e.reactor);
	submitted_ns = neap_reactor_now_ns(near_side.e.reactor);
	options.deadline_ns = submitted_ns + 100000000;
	submit(NEAP_WRITE, source, BLOCKS, &options);
}

START_TEST(deadline_of_a_batch)
{
	begin(_i, write_into_silence);
	end();
}
END_TEST

void embed_add_engine_tests(Suite *suite)
{
	TCase *engine = tcase_create("engine");
	const int variants = host_is_foreign ? 4 : 2;
	tcase_add_checked_fixture(engine, embed_fresh_host, host_end);
	tcase_set_timeout(engine, 30);
	tcase_add_loop_test(engine, transfers, 0, variants);
	tcase_add_loop_test(engine, submitted_just_before_sleep, 0, variants);
	tcase_add_loop_test(engine, cancelled_inside_a_completion, 0, variants);
	tcase_add_loop_test(engine, closed_inside_a_completion, 0, variants);
	if (host_is_foreign)
		tcase_add_loop_test(engine, deadline_of_a_batch, 0, variants);
	suite_add_tcase(suite, engine);
}
