#include "tests/support/lanes_rig.h"
#include "reactor/core.h"
#include "tests/support/coverage.h"
#include "tests/support/small_engine.h"
#include "transports/engine_state.h"
#include "transports/tcp/peer.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NS_PER_MS UINT64_C(1000000)
#define IDLE_NS 200000 /* real time without an event that counts as a virtual millisecond */

static unsigned char *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	return memory;
}

void lanes_rig_fill(struct lanes_rig *rig, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
		neap_put64(rig->remote + i, i * UINT64_C(0x9E3779B97F4A7C15) + 1);
		neap_put64(rig->local + i, ~(i * UINT64_C(0x9E3779B97F4A7C15)));
	}
}

static uint64_t virtual_ns(void *user)
{
	return ((struct lanes_rig *)user)->now_ns;
}

static uint64_t wall_us(void *user)
{
	return ((struct lanes_rig *)user)->now_ns / 1000;
}

void lanes_rig_open(struct lanes_rig *rig, enum script_speech speech)
{
	memset(rig, 0, sizeof *rig);
	rig->remote = map(LANES_BYTES);
	rig->local = map(LANES_BYTES);
	lanes_rig_fill(rig, LANES_FILLED);
	script_open(&rig->peer, speech, rig->remote, LANES_BYTES);
	rig->options = (struct neap_engine_options){
		.connect_timeout_ms = 400, .handshake_timeout_ms = 400, .progress_timeout_ms = 150, .drain_timeout_ms = 100,
		.retries_max = 3, .retry_backoff_ms = 2, .requests_max = LANES_REQUESTS, .no_local_path = true,
		.peers_max = 64, .sessions_max = 64,
	};
	rig->now_ns = 1000 * NS_PER_MS;
	rig->write_quota = UINT64_MAX;
	struct neap_reactor_options reactor = {.host_keeps_deadline = true, .clock = {.now_ns = virtual_ns, .wall_us = wall_us, .user = rig}};
	ck_assert_int_eq(neap_reactor_create(&rig->reactor, &reactor), 0);
}

/* Time passes only when nothing else happens, so that a busy machine does not make deadlines pass. */
void lanes_rig_turn(struct lanes_rig *rig)
{
	int answer = NEAP_RUN_MORE;
	for (int i = 0; i < 16 && answer == NEAP_RUN_MORE; i++)
		answer = neap_reactor_run_once(rig->reactor, NULL);
	ck_assert_int_ge(answer, 0);
	script_pump(&rig->peer);
	rig->now_ns += rig->tick_ns;
	if (answer != NEAP_RUN_ARMED)
		return;
	struct pollfd wait = {.fd = neap_reactor_fd(rig->reactor), .events = POLLIN};
	if (ppoll(&wait, 1, &(struct timespec){.tv_nsec = IDLE_NS}, NULL) == 0)
		rig->now_ns += NS_PER_MS;
}

void lanes_rig_for(struct lanes_rig *rig, unsigned ms)
{
	uint64_t end_ns = rig->now_ns + ms * NS_PER_MS;
	while (rig->now_ns < end_ns)
		lanes_rig_turn(rig);
}

bool lanes_rig_until(struct lanes_rig *rig, bool (*holds)(struct lanes_rig *rig), unsigned limit_ms)
{
	uint64_t end_ns = rig->now_ns + limit_ms * NS_PER_MS;
	while (!holds(rig) && rig->now_ns < end_ns)
		lanes_rig_turn(rig);
	return holds(rig);
}

static bool all_ended(struct lanes_rig *rig)
{
	return rig->ends == rig->submitted;
}

bool lanes_rig_finish(struct lanes_rig *rig, unsigned limit_ms)
{
	return lanes_rig_until(rig, all_ended, limit_ms);
}

static void on_opened(void *user, int error, neap_segment_id segment, const char *why)
{
	struct lanes_rig *rig = user;
	rig->opened = error == 0;
	rig->open_failed = error != 0;
	rig->segment = segment;
	if (error)
		fprintf(stderr, "open: %s\n", why);
}

static bool is_opened(struct lanes_rig *rig)
{
	return rig->opened || rig->open_failed;
}

void lanes_rig_start(struct lanes_rig *rig)
{
	char why[256] = "";
	const struct neap_engine_options filled = small_engine(&rig->options);
	ck_assert_msg(neap_engine_create(&rig->engine, rig->reactor, &filled, why, sizeof why) == 0, "%s", why);
	ck_assert_int_eq(neap_segment_open(rig->engine, rig->peer.name, on_opened, rig), 0);
	ck_assert(lanes_rig_until(rig, is_opened, 10000));
	ck_assert(rig->opened);
}

static void on_closed(void *user)
{
	((struct lanes_rig *)user)->closed = true;
}

static bool is_closed(struct lanes_rig *rig)
{
	return rig->closed;
}

void lanes_rig_close(struct lanes_rig *rig)
{
	struct neap_reactor_stats stats;
	ck_assert_int_eq(neap_engine_close(rig->engine, on_closed, rig), 0);
	ck_assert(lanes_rig_until(rig, is_closed, 10000));
	ck_assert_uint_eq(rig->ends, rig->submitted);
	neap_reactor_stats(rig->reactor, &stats);
	ck_assert_uint_eq(stats.impossible, 0);
	neap_reactor_stop(rig->reactor);
	for (int i = 0; i < 1000 && neap_reactor_run_once(rig->reactor, NULL) != NEAP_RUN_STOPPED; i++)
		;
	ck_assert_int_eq(support_reactor_destroy(rig->reactor), 0);
	script_close(&rig->peer);
	munmap(rig->remote, LANES_BYTES);
	munmap(rig->local, LANES_BYTES);
}

/* --- requests ------------------------------------------------------------------------------------------------------------- */

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	struct lanes_rig *rig = user;
	uint32_t number = (uint32_t)(uintptr_t)request_user;
	(void)batch;
	(void)index;
	ck_assert_msg(!rig->ended[number], "request %u ended twice", number);
	rig->ended[number] = true;
	rig->outcome[number] = *outcome;
	rig->ends++;
}

static uint32_t submit(struct lanes_rig *rig, const struct neap_request *requests, uint32_t count)
{
	struct neap_batch_options options = {.on_request = on_request, .user = rig, .deadline_ns = rig->deadline_ns};
	uint32_t first = rig->submitted;
	neap_batch_id batch;
	ck_assert_int_eq(neap_submit(rig->engine, requests, count, &options, &batch), 0);
	for (uint32_t i = 0; i < count; i++) {
		rig->batch[first + i] = batch;
		rig->index[first + i] = i;
	}
	rig->submitted += count;
	return first;
}

static struct neap_request request_of(struct lanes_rig *rig, enum neap_opcode opcode, void *source, uint64_t address, uint64_t length,
                                      uint32_t number)
{
	return (struct neap_request){.opcode = opcode,
	                             .source = source,
	                             .segment = rig->segment,
	                             .target_offset = address,
	                             .length = length,
	                             .grant = rig->grant,
	                             .user = (void *)(uintptr_t)number};
}

uint32_t lanes_submit_at(struct lanes_rig *rig, enum neap_opcode opcode, void *source, uint64_t address, uint64_t length)
{
	struct neap_request request = request_of(rig, opcode, source, address, length, rig->submitted);
	return submit(rig, &request, 1);
}

uint32_t lanes_submit(struct lanes_rig *rig, enum neap_opcode opcode, size_t local, size_t remote, size_t length)
{
	return lanes_submit_at(rig, opcode, rig->local + local, (uintptr_t)rig->remote + remote, length);
}

uint32_t lanes_submit_many(struct lanes_rig *rig, enum neap_opcode opcode, size_t local, size_t remote, size_t length, uint32_t count)
{
	struct neap_request *requests = calloc(count, sizeof *requests);
	for (uint32_t i = 0; i < count; i++)
		requests[i] = request_of(rig, opcode, rig->local + local + i * length, (uintptr_t)rig->remote + remote + i * length, length,
		                         rig->submitted + i);
	uint32_t first = submit(rig, requests, count);
	free(requests);
	return first;
}

void lanes_cancel(struct lanes_rig *rig, uint32_t number)
{
	ck_assert_int_eq(neap_request_cancel(rig->engine, rig->batch[number], rig->index[number]), 0);
}

/* --- hooks ------------------------------------------------------------------------------------------------------------------ */

static struct neap_stream_ops hooked_ops;
static const struct neap_stream_ops *real_ops;
static struct lanes_rig *hooked_rig;

static ssize_t hooked_writev(struct neap_stream *stream, const struct iovec *vector, int count)
{
	struct lanes_rig *rig = hooked_rig;
	struct iovec cut[1024];
	uint64_t left = rig->write_quota;
	int n = 0;
	if (rig->write_error)
		return rig->write_error;
	if (left == UINT64_MAX)
		return real_ops->writev(stream, vector, count);
	for (; n < count && left > 0; n++) {
		cut[n] = vector[n];
		if (cut[n].iov_len > left)
			cut[n].iov_len = left;
		left -= cut[n].iov_len;
	}
	ssize_t put = n ? real_ops->writev(stream, cut, n) : -EAGAIN;
	if (put > 0)
		rig->write_quota -= (uint64_t)put;
	return put;
}

static ssize_t hooked_readv(struct neap_stream *stream, const struct iovec *vector, int count)
{
	return hooked_rig->read_error ? hooked_rig->read_error : real_ops->readv(stream, vector, count);
}

unsigned lanes_hook(struct lanes_rig *rig)
{
	struct neap_segment *segment = neap_segment_find(rig->engine, rig->segment);
	struct neap_tcp_peer *peer = segment ? segment->peer : NULL;
	unsigned hooked = 0;
	hooked_rig = rig;
	for (uint32_t i = 0; peer && i < NEAP_PEER_LANES_MAX; i++) {
		struct neap_tcp_lane *lane = peer->lanes[i];
		if (!lane || !lane->stream)
			continue;
		hooked++;
		if (lane->stream->ops == &hooked_ops)
			continue;
		real_ops = lane->stream->ops;
		hooked_ops = *real_ops;
		hooked_ops.writev = hooked_writev;
		hooked_ops.readv = hooked_readv;
		lane->stream->ops = &hooked_ops;
	}
	return hooked;
}

struct neap_engine_stats lanes_stats(struct lanes_rig *rig)
{
	struct neap_engine_stats stats;
	neap_engine_stats(rig->engine, &stats);
	return stats;
}

void lanes_expect(struct lanes_rig *rig, uint32_t number, enum neap_status status, enum neap_effect effect, enum neap_cause cause)
{
	const struct neap_outcome *outcome = &rig->outcome[number];
	ck_assert_msg(rig->ended[number], "request %u has not ended", number);
	ck_assert_msg(outcome->status == status && outcome->effect == effect && outcome->cause == cause &&
	                  outcome->buffer == NEAP_BUFFER_YOURS,
	              "request %u: status %d effect %d cause %d buffer %d errno %d instead of status %d effect %d cause %d", number,
	              outcome->status, outcome->effect, outcome->cause, outcome->buffer, outcome->system_errno, status, effect, cause);
}

void lanes_expect_done(struct lanes_rig *rig, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		lanes_expect(rig, first + i, NEAP_COMPLETED, NEAP_EFFECT_ALL, NEAP_CAUSE_NONE);
}
