/* Peers: how they are reached and found again, what they speak, how they treat connections, and ranges that change. */
#include "tests/support/lanes_rig.h"
#include "transports/tcp/peer_fsm.h"
#include "transports/tcp/lane.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct lanes_rig rig;

static void start(enum script_speech speech)
{
	lanes_rig_open(&rig, speech);
	lanes_rig_start(&rig);
}

static void settle(void)
{
	ck_assert(lanes_rig_finish(&rig, 20000));
}

static void finish(void)
{
	settle();
	lanes_rig_close(&rig);
}

static void one_more_is_done(void)
{
	uint32_t number = lanes_submit(&rig, NEAP_WRITE, 100, 100, 1000);
	settle();
	lanes_expect_done(&rig, number, 1);
	ck_assert_mem_eq(rig.local + 100, rig.remote + 100, 1000);
}

static bool no_lanes(struct lanes_rig *r)
{
	return lanes_stats(r).lanes == 0;
}

/* The descriptor could not be read or is the same: the peer pauses. Other waits of the test are shorter than its pause. */
static bool pausing(struct lanes_rig *r)
{
	const struct neap_dispatcher *dispatcher = neap_reactor_dispatcher(r->reactor);
	for (uint32_t i = 0; i < dispatcher->class_count; i++) {
		const struct neap_machine_class *class_ = dispatcher->classes[i];
		if (class_->fsm == &neap_fsm_tcp_peer)
			return class_->hits[tcp_peer_REFRESHING * tcp_peer_event_count + tcp_peer_on_SAME] > 0;
	}
	return false;
}

/* --- reaching a peer ---------------------------------------------------------------------------------------------------------- */

START_TEST(nobody_listens)
{
	start((enum script_speech)_i);
	script_refuse_connections(&rig.peer, true);
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 100, 3000);
	settle();
	for (uint32_t i = 0; i < 3000; i++)
		lanes_expect(&rig, first + i, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_CONNECT_FAILED);
	ck_assert_int_eq(rig.outcome[first].system_errno, ECONNREFUSED);
	/* It is back: the next request finds it at once. */
	script_refuse_connections(&rig.peer, false);
	one_more_is_done();
	finish();
}
END_TEST

/* Away for a moment only: nobody notices. */
START_TEST(back_within_the_repeats)
{
	lanes_rig_open(&rig, (enum script_speech)_i);
	rig.options.retry_backoff_ms = 20;
	lanes_rig_start(&rig);
	script_refuse_connections(&rig.peer, true);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	lanes_rig_for(&rig, 30);
	ck_assert(!rig.ended[0]);
	script_refuse_connections(&rig.peer, false);
	settle();
	lanes_expect_done(&rig, 0, 1);
	finish();
}
END_TEST

/* A peer that was restarted with another data port under the same name (also with other memory). */
START_TEST(moved_to_another_port)
{
	bool reset = _i & 1, idle = _i & 2;
	start((enum script_speech)(_i / 4));
	one_more_is_done();
	if (idle)
		ck_assert(!lanes_rig_until(&rig, no_lanes, 60));
	script_move(&rig.peer, reset);
	if (idle)
		ck_assert(lanes_rig_until(&rig, no_lanes, 5000));
	one_more_is_done();
	ck_assert_uint_ge(lanes_stats(&rig).descriptor_refreshes, 1);
	finish();
}
END_TEST

/* The same, but somebody else listens at the old port. Nothing is written there. */
START_TEST(a_stranger_at_the_old_port)
{
	static struct script_peer stranger;
	static unsigned char other[4096];
	enum script_speech speech = (enum script_speech)_i;
	start(speech);
	one_more_is_done();
	script_drop_all(&rig.peer, true);
	ck_assert(lanes_rig_until(&rig, no_lanes, 5000));
	script_open(&stranger, speech, other, sizeof other);
	memset(stranger.instance, 0x11, 16);
	if (speech == SCRIPT_NEAP)
		stranger.hello = SCRIPT_HELLO_OTHER;
	uint16_t port = rig.peer.data_port;
	script_move(&rig.peer, false);
	script_take_port(&stranger, port);
	uint32_t number = lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	for (int i = 0; i < 3000 && !rig.ended[number]; i++) {
		lanes_rig_turn(&rig);
		script_pump(&stranger);
	}
	ck_assert_uint_eq(stranger.accepted, 1);
	settle();
	lanes_expect_done(&rig, number, 1);
	ck_assert_uint_eq(stranger.requests, 0);
	script_close(&stranger);
	finish();
}
END_TEST

/* The descriptor cannot be read again: what is known is tried, and a plain peer is not written to without it. */
START_TEST(descriptor_not_to_be_had)
{
	start((enum script_speech)_i);
	rig.peer.handshake_garbage = true;
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	settle();
	if (_i == SCRIPT_NEAP)
		lanes_expect_done(&rig, 0, 1);
	else
		lanes_expect(&rig, 0, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_DESCRIPTOR_FAILED);
	ck_assert_uint_eq(rig.peer.requests, _i == SCRIPT_NEAP);
	rig.peer.handshake_garbage = false;
	one_more_is_done();
	finish();
}
END_TEST

START_TEST(a_plain_lane_is_confirmed_before_it_is_used)
{
	start((enum script_speech)_i);
	ck_assert_uint_eq(rig.peer.fetches, 1);
	rig.peer.handshake_silent = true;
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	lanes_rig_for(&rig, 50);
	ck_assert_uint_eq(rig.peer.accepted, 1);
	ck_assert_uint_eq(rig.peer.requests, 0);
	ck_assert_uint_eq(rig.peer.fetches, 2);
	/* It goes away again before that is known. */
	script_drop_all(&rig.peer, false);
	rig.peer.handshake_silent = false;
	settle();
	lanes_expect_done(&rig, 0, 1);
	finish();
}
END_TEST

/* Connections that nobody accepts look like connections. */
START_TEST(nobody_accepts)
{
	lanes_rig_open(&rig, (enum script_speech)_i);
	rig.peer.unaccepting = true;
	lanes_rig_start(&rig);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	settle();
	if (_i == SCRIPT_NEAP)
		lanes_expect(&rig, 0, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_CONNECT_TIMEOUT);
	else
		lanes_expect(&rig, 0, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_NO_PROGRESS);
	rig.peer.unaccepting = false;
	one_more_is_done();
	finish();
}
END_TEST

/* The request is canceled while the descriptor is read again, and in the pause before the next attempt. */
START_TEST(canceled_on_the_way)
{
	lanes_rig_open(&rig, SCRIPT_V2);
	rig.options.retry_backoff_ms = 100;
	lanes_rig_start(&rig);
	rig.peer.handshake_silent = _i == 0;
	close(rig.peer.data_fd);
	rig.peer.data_fd = -1;
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	lanes_rig_for(&rig, 30);
	ck_assert(!rig.ended[0]);
	lanes_cancel(&rig, 0);
	settle();
	lanes_expect(&rig, 0, NEAP_CANCELED, NEAP_EFFECT_NONE, NEAP_CAUSE_CANCELED_BY_USER);
	rig.peer.handshake_silent = false;
	script_move(&rig.peer, false);
	one_more_is_done();
	finish();
}
END_TEST

/* The segment is closed while its peer is idle, active, being asked for its descriptor, and waited for. */
START_TEST(closed_on_the_way)
{
	lanes_rig_open(&rig, SCRIPT_V2);
	rig.options.retry_backoff_ms = 1000;
	lanes_rig_start(&rig);
	one_more_is_done();
	if (_i >= 1)
		rig.peer.act = SCRIPT_NEVER;
	if (_i >= 2) {
		rig.peer.handshake_silent = _i == 2;
		script_drop_all(&rig.peer, false);
		close(rig.peer.data_fd);
		rig.peer.data_fd = -1;
		ck_assert(lanes_rig_until(&rig, no_lanes, 5000));
	}
	if (_i >= 1) {
		lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
		if (_i == 3)
			ck_assert(lanes_rig_until(&rig, pausing, 5000));
		else
			lanes_rig_for(&rig, 30);
	}
	ck_assert_int_eq(neap_segment_close(rig.engine, rig.segment), 0);
	settle();
	if (_i >= 1)
		lanes_expect(&rig, 1, NEAP_CANCELED, _i == 1 ? NEAP_EFFECT_UNKNOWN : NEAP_EFFECT_NONE, NEAP_CAUSE_SEGMENT_CLOSED);
	if (rig.peer.data_fd < 0)
		script_move(&rig.peer, false);
	finish();
}
END_TEST

/* --- hello -------------------------------------------------------------------------------------------------------------------------- */

START_TEST(hellos_that_fail_once)
{
	lanes_rig_open(&rig, SCRIPT_NEAP);
	rig.peer.hello = (enum script_hello)_i;
	rig.peer.hellos_odd = 1;
	lanes_rig_start(&rig);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 1000);
	settle();
	lanes_expect_done(&rig, 0, 1);
	ck_assert_uint_eq(rig.peer.hellos, 2);
	ck_assert_uint_ge(lanes_stats(&rig).descriptor_refreshes, 1);
	finish();
}
END_TEST

/* Connections that fail together, before an answer came over any of them, are one attempt of the three; that the next one is turned away by
 * a process that was started anew is the second. */
START_TEST(cut_off_side_by_side)
{
	lanes_rig_open(&rig, SCRIPT_NEAP);
	rig.options.lanes_per_peer = 4;
	rig.options.retries_max = 2;
	rig.peer.act = SCRIPT_NEVER;
	lanes_rig_start(&rig);
	uint32_t first = lanes_submit_many(&rig, NEAP_READ, 0, 0, 4000, 1000);
	lanes_rig_for(&rig, 50);
	ck_assert_uint_eq(lanes_stats(&rig).lanes, 4);
	rig.peer.act = SCRIPT_ANSWER;
	rig.peer.hello = SCRIPT_HELLO_OTHER;
	rig.peer.hellos_odd = rig.peer.hellos + 1;
	script_drop_all(&rig.peer, true);
	settle();
	lanes_expect_done(&rig, first, 1000);
	finish();
}
END_TEST

START_TEST(hellos_that_fail_for_ever)
{
	static const enum neap_cause causes[] = {
		[SCRIPT_HELLO_OTHER] = NEAP_CAUSE_OTHER_INSTANCE, [SCRIPT_HELLO_LEVEL] = NEAP_CAUSE_PROTOCOL,
		[SCRIPT_HELLO_BUSY] = NEAP_CAUSE_CONNECT_FAILED,  [SCRIPT_HELLO_PLAIN] = NEAP_CAUSE_OTHER_INSTANCE,
		[SCRIPT_HELLO_CLOSE] = NEAP_CAUSE_PEER_CLOSED,    [SCRIPT_HELLO_SILENT] = NEAP_CAUSE_CONNECT_TIMEOUT,
		[SCRIPT_HELLO_GARBAGE] = NEAP_CAUSE_PROTOCOL,     [SCRIPT_HELLO_WRONG_ID] = NEAP_CAUSE_PROTOCOL,
	};
	lanes_rig_open(&rig, SCRIPT_NEAP);
	rig.peer.hello = (enum script_hello)_i;
	lanes_rig_start(&rig);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 1000);
	settle();
	lanes_expect(&rig, 0, NEAP_FAILED, NEAP_EFFECT_NONE, causes[_i]);
	ck_assert_uint_eq(rig.peer.requests, 0);
	ck_assert_uint_le(rig.peer.hellos, 4);
	rig.peer.hello = SCRIPT_HELLO_OK;
	one_more_is_done();
	finish();
}
END_TEST

/* A Neap process was replaced by one that speaks the plain framings only, or the other way round. */
START_TEST(another_kind_of_peer)
{
	start((enum script_speech)(_i / 3));
	one_more_is_done();
	script_drop_all(&rig.peer, false);
	rig.peer.speech = (enum script_speech)(_i % 3);
	rig.peer.hello = rig.peer.speech == SCRIPT_NEAP ? SCRIPT_HELLO_OK : SCRIPT_HELLO_PLAIN;
	ck_assert(lanes_rig_until(&rig, no_lanes, 5000));
	one_more_is_done();
	finish();
}
END_TEST

static void on_refreshed(void *user, int error, neap_segment_id segment, const char *why)
{
	(void)segment;
	(void)why;
	ck_assert_int_eq(error, 0);
	*(bool *)user = true;
}

static bool refreshed;
static bool is_refreshed(struct lanes_rig *r)
{
	(void)r;
	return refreshed;
}

static void refresh(void)
{
	refreshed = false;
	ck_assert_int_eq(neap_segment_refresh(rig.engine, rig.segment, on_refreshed, &refreshed), 0);
	ck_assert(lanes_rig_until(&rig, is_refreshed, 5000));
}

/* A refresh tells that the lanes there are go to somebody else now: they take no more requests. */
START_TEST(lanes_retire)
{
	bool busy = _i & 1;
	start((enum script_speech)(_i / 2));
	one_more_is_done();
	lanes_rig_for(&rig, 60);
	uint32_t held = 0, before = rig.peer.requests;
	if (busy) {
		rig.peer.act = SCRIPT_HOLD;
		held = lanes_submit(&rig, NEAP_READ, 5000, 5000, 100);
		while (rig.peer.requests == before)
			lanes_rig_turn(&rig);
		rig.peer.act = SCRIPT_ANSWER;
	}
	memset(rig.peer.instance, 0x33, 16);
	close(rig.peer.data_fd);
	rig.peer.data_port = 0;
	struct script_peer copy = rig.peer;
	script_open(&copy, rig.peer.speech, rig.remote, LANES_BYTES);
	close(rig.peer.data_fd = copy.data_fd);
	close(copy.handshake_fd);
	rig.peer.data_fd = -1;
	rig.peer.data_port = copy.data_port;
	script_refuse_connections(&rig.peer, true);
	script_refuse_connections(&rig.peer, false);
	refresh();
	uint32_t number = lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	if (busy) {
		lanes_rig_for(&rig, 10);
		script_release(&rig.peer);
	}
	settle();
	lanes_expect_done(&rig, number, 1);
	if (busy)
		lanes_expect_done(&rig, held, 1);
	ck_assert_uint_eq(rig.peer.accepted, 2);
	ck_assert_uint_eq(rig.peer.history[rig.peer.requests - 1].connection, 1);
	ck_assert_uint_eq(lanes_stats(&rig).lanes, 1);
	finish();
}
END_TEST

/* --- ranges --------------------------------------------------------------------------------------------------------------------------- */

START_TEST(a_range_that_is_registered_later)
{
	lanes_rig_open(&rig, (enum script_speech)_i);
	rig.peer.memory_bytes = 4096;
	lanes_rig_start(&rig);
	uint32_t bad = lanes_submit(&rig, NEAP_WRITE, 0, 4000, 200);
	uint32_t good = lanes_submit(&rig, NEAP_WRITE, 0, 0, 200);
	settle();
	lanes_expect(&rig, bad, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_RANGE_NOT_REMOTE);
	lanes_expect_done(&rig, good, 1);
	rig.peer.memory_bytes = LANES_BYTES;
	uint32_t late = lanes_submit_many(&rig, NEAP_WRITE, 4096, 4096, 1000, 1000);
	settle();
	lanes_expect_done(&rig, late, 1000);
	ck_assert_uint_le(rig.peer.fetches, 6);
	/* And one that is unregistered while requests for it wait. */
	rig.peer.memory_bytes = 4096;
	refresh();
	bad = lanes_submit_many(&rig, NEAP_READ, 0, 4096, 100, 10);
	settle();
	for (uint32_t i = 0; i < 10; i++)
		lanes_expect(&rig, bad + i, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_RANGE_NOT_REMOTE);
	finish();
}
END_TEST

/* More than are looked at in one piece of work come while the descriptor is read for another. */
#define MANY_BAD 2500u /* NEAP_PEER_PIECE is 1024 */
START_TEST(many_bad_ranges)
{
	lanes_rig_open(&rig, (enum script_speech)_i);
	rig.peer.memory_bytes = 4096;
	lanes_rig_start(&rig);
	uint32_t bad = lanes_submit(&rig, NEAP_WRITE, 0, 8192, 200);
	(void)neap_reactor_run_once(rig.reactor, NULL);
	lanes_submit_many(&rig, NEAP_WRITE, 4096, 8192, 1, MANY_BAD);
	settle();
	for (uint32_t i = 0; i <= MANY_BAD; i++)
		lanes_expect(&rig, bad + i, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_RANGE_NOT_REMOTE);
	finish();
}
END_TEST

START_TEST(a_bad_range_and_nobody_to_ask)
{
	start(SCRIPT_V2);
	script_refuse_connections(&rig.peer, true);
	lanes_submit_at(&rig, NEAP_WRITE, rig.local, 4096, 100);
	settle();
	lanes_expect(&rig, 0, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_RANGE_NOT_REMOTE);
	script_refuse_connections(&rig.peer, false);
	finish();
}
END_TEST

/* Requests that wait are looked at again when the peer was restarted with other memory. */
START_TEST(other_memory_after_a_restart)
{
	start((enum script_speech)_i);
	one_more_is_done();
	script_move(&rig.peer, true);
	memset(rig.peer.instance, 0x44, 16);
	rig.peer.memory += 65536;
	rig.peer.memory_bytes -= 65536;
	ck_assert(lanes_rig_until(&rig, no_lanes, 5000));
	uint32_t before = rig.peer.requests;
	uint32_t number = lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	uint32_t good = lanes_submit(&rig, NEAP_WRITE, 70000, 70000, 100);
	settle();
	lanes_expect(&rig, number, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_RANGE_NOT_REMOTE);
	lanes_expect_done(&rig, good, 1);
	ck_assert_uint_le(rig.peer.requests - before, 2);
	finish();
}
END_TEST

/* --- manners ------------------------------------------------------------------------------------------------------------------------- */

/* Servers that close after each request, as older ones do: nothing fails, v1 WRITEs are acknowledged by the end of file. */
START_TEST(a_peer_that_closes_after_each_request)
{
	bool read = _i & 1;
	if (_i == 4) /* a v1 WRITE and a reset: see v1_reset_says_nothing */
		return;
	start((enum script_speech)(_i / 2 % 2));
	rig.peer.act = _i / 4 ? SCRIPT_ANSWER_AND_RESET : SCRIPT_ANSWER_AND_CLOSE;
	uint32_t first = lanes_submit_many(&rig, read ? NEAP_READ : NEAP_WRITE, 0, 0, 1000, 30);
	settle();
	lanes_expect_done(&rig, first, 30);
	ck_assert_mem_eq(rig.local, rig.remote, 30000);
	/* It is known by now: none is sent in vain. */
	uint32_t before = rig.peer.requests;
	first = lanes_submit_many(&rig, read ? NEAP_READ : NEAP_WRITE, 30000, 30000, 1000, 10);
	settle();
	lanes_expect_done(&rig, first, 10);
	if (_i / 4 == 0)
		ck_assert_uint_eq(rig.peer.requests - before, 10);
	/* And it has changed its ways. */
	rig.peer.act = SCRIPT_ANSWER;
	first = lanes_submit_many(&rig, read ? NEAP_READ : NEAP_WRITE, 0, 0, 1000, 100);
	settle();
	lanes_expect_done(&rig, first, 100);
	ck_assert_uint_eq(script_open_connections(&rig.peer), 1);
	finish();
}
END_TEST

START_TEST(v1_write_is_acknowledged_by_a_read)
{
	start(SCRIPT_V1);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 1000);
	settle();
	lanes_expect_done(&rig, 0, 1);
	ck_assert_uint_eq(rig.peer.requests, 2);
	ck_assert_uint_eq(rig.peer.history[1].opcode, NEAP_READ);
	ck_assert_uint_eq(rig.peer.history[1].address, (uintptr_t)rig.remote + 999);
	ck_assert_uint_eq(rig.peer.history[1].length, 1);
	/* From now on many at once, with one probe behind them. */
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 100);
	settle();
	lanes_expect_done(&rig, first, 100);
	ck_assert_uint_le(rig.peer.requests, 2 + 100 + 4);
	/* A READ behind them is as good. */
	uint32_t before = rig.peer.requests;
	first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 10);
	lanes_submit(&rig, NEAP_READ, 20000, 20000, 1000);
	settle();
	lanes_expect_done(&rig, first, 11);
	ck_assert_uint_eq(rig.peer.requests - before, 11);
	finish();
}
END_TEST

/* The peer closes with the probe unread: the WRITE is repeated, and the peer gets more time. */
START_TEST(v1_peer_that_closes_late)
{
	start(SCRIPT_V1);
	rig.peer.act = SCRIPT_HOLD;
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 1000);
	while (rig.peer.requests < 2)
		lanes_rig_turn(&rig);
	rig.peer.held_count = 0;
	rig.peer.act = SCRIPT_ANSWER_AND_CLOSE;
	script_drop_all(&rig.peer, _i);
	settle();
	lanes_expect_done(&rig, 0, 1);
	ck_assert_uint_eq(rig.peer.requests, 3);
	finish();
}
END_TEST

START_TEST(v1_reset_says_nothing)
{
	start(SCRIPT_V1);
	rig.peer.act = SCRIPT_RESET;
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 1000);
	settle();
	ck_assert_int_eq(rig.outcome[0].status, NEAP_FAILED);
	ck_assert_int_eq(rig.outcome[0].effect, NEAP_EFFECT_UNKNOWN);
	finish();
}
END_TEST

START_TEST(v1_sent_is_done)
{
	lanes_rig_open(&rig, SCRIPT_V1);
	rig.options.v1_sent_is_done = true;
	rig.peer.act = _i ? SCRIPT_ANSWER_AND_CLOSE : SCRIPT_ANSWER;
	lanes_rig_start(&rig);
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 50);
	settle();
	lanes_expect_done(&rig, first, 50);
	first = lanes_submit_many(&rig, NEAP_READ, 100000, 100000, 1000, 50);
	settle();
	lanes_expect_done(&rig, first, 50);
	ck_assert_mem_eq(rig.local, rig.remote, 50000);
	ck_assert_mem_eq(rig.local + 100000, rig.remote + 100000, 50000);
	ck_assert_uint_eq(rig.peer.requests, 100);
	finish();
}
END_TEST

/* The options of the initiator decide what is spoken to a peer that can do more. */
START_TEST(what_options_say)
{
	lanes_rig_open(&rig, SCRIPT_NEAP);
	rig.options.plain_only = _i == 0;
	rig.options.v1_only = _i == 1;
	lanes_rig_start(&rig);
	rig.peer.speech = SCRIPT_V2; /* it understands what comes, whatever its descriptor says */
	rig.peer.hello = SCRIPT_HELLO_CLOSE;
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 1000);
	settle();
	lanes_expect_done(&rig, 0, 1);
	ck_assert_uint_eq(rig.peer.hellos, 0);
	ck_assert_int_eq(rig.peer.history[0].acknowledged, _i == 0);
	finish();
}
END_TEST

/* --- several lanes --------------------------------------------------------------------------------------------------------------------- */

START_TEST(many_lanes)
{
	lanes_rig_open(&rig, (enum script_speech)(_i));
	rig.options.lanes_per_peer = 4;
	lanes_rig_start(&rig);
	for (int round = 0; round < 5; round++) {
		uint32_t first = lanes_submit_many(&rig, round % 2 ? NEAP_READ : NEAP_WRITE, 0, 0, 4000, 1000);
		settle();
		lanes_expect_done(&rig, first, 1000);
		ck_assert_mem_eq(rig.local, rig.remote, 4000000);
	}
	ck_assert_uint_eq(lanes_stats(&rig).lanes, 4);
	ck_assert_uint_eq(rig.peer.accepted, 4);
	uint32_t seen[4] = {0};
	for (uint32_t i = 0; i < rig.peer.requests && i < SCRIPT_HISTORY; i++)
		seen[rig.peer.history[i].connection]++;
	for (int i = 0; i < 4; i++)
		ck_assert_uint_gt(seen[i], 100);
	/* All are cut: all come back. */
	script_drop_all(&rig.peer, true);
	uint32_t first = lanes_submit_many(&rig, NEAP_READ, 0, 0, 4000, 1000);
	settle();
	lanes_expect_done(&rig, first, 1000);
	finish();
}
END_TEST

/* Writes that were under way on all of them are fenced one by one. */
START_TEST(many_fences)
{
	lanes_rig_open(&rig, SCRIPT_NEAP);
	rig.options.lanes_per_peer = 4;
	lanes_rig_start(&rig);
	for (int i = 0; i < 3; i++)
		lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 1000), settle();
	ck_assert_uint_eq(lanes_stats(&rig).lanes, 4);
	rig.peer.act = SCRIPT_HOLD;
	uint32_t before = rig.peer.requests;
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 400);
	while (rig.peer.requests < before + 400)
		lanes_rig_turn(&rig);
	rig.peer.act = SCRIPT_ANSWER;
	rig.peer.held_count = 0;
	script_drop_all(&rig.peer, true);
	settle();
	lanes_expect_done(&rig, first, 400);
	ck_assert_uint_eq(rig.peer.hellos, 8);
	finish();
}
END_TEST

/* Only one of four connections is to be had: it is enough. */
START_TEST(fewer_lanes_than_wanted)
{
	lanes_rig_open(&rig, SCRIPT_NEAP);
	rig.options.lanes_per_peer = 4;
	lanes_rig_start(&rig);
	one_more_is_done();
	rig.peer.hello = SCRIPT_HELLO_BUSY;
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 5000);
	settle();
	lanes_expect_done(&rig, first, 5000);
	ck_assert_uint_eq(lanes_stats(&rig).lanes, 1);
	ck_assert_uint_le(rig.peer.hellos, 200);
	finish();
}
END_TEST

/* Ports of several cores: slots spread over them, each lane names the core it goes to. */
START_TEST(cores)
{
	char ports[64];
	lanes_rig_open(&rig, SCRIPT_NEAP);
	snprintf(ports, sizeof ports, "%u,%u", rig.peer.data_port, rig.peer.data_port);
	rig.peer.neap_ports = ports;
	rig.options.lanes_per_peer = 2;
	lanes_rig_start(&rig);
	one_more_is_done();
	ck_assert_uint_eq(rig.peer.last_core, 0);
	lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 1000);
	settle();
	lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 1000);
	settle();
	ck_assert_uint_eq(rig.peer.hellos, 2);
	ck_assert_uint_eq(rig.peer.last_core, 1);
	finish();
}
END_TEST

/* Room is per peer; a batch that does not fit is refused as a whole. */
START_TEST(a_bounded_queue)
{
	lanes_rig_open(&rig, SCRIPT_V2);
	rig.options.requests_per_peer_max = 100;
	lanes_rig_start(&rig);
	rig.peer.act = SCRIPT_HOLD;
	lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 100, 60);
	struct neap_request requests[41];
	for (int i = 0; i < 41; i++)
		requests[i] = (struct neap_request){
			.opcode = NEAP_WRITE, .source = rig.local, .segment = rig.segment, .target_offset = (uintptr_t)rig.remote, .length = 10};
	ck_assert_int_eq(neap_submit(rig.engine, requests, 41, NULL, NULL), NEAP_EAGAIN);
	lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 100, 40);
	rig.peer.act = SCRIPT_ANSWER;
	lanes_rig_for(&rig, 20);
	script_release(&rig.peer);
	settle();
	lanes_expect_done(&rig, 0, 100);
	finish();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("lanes_peer");
	TCase *reach = tcase_create("reaching");
	tcase_set_timeout(reach, 60);
	tcase_add_loop_test(reach, nobody_listens, 0, 3);
	tcase_add_loop_test(reach, back_within_the_repeats, 0, 3);
	tcase_add_loop_test(reach, moved_to_another_port, 0, 12);
	tcase_add_loop_test(reach, a_stranger_at_the_old_port, 0, 3);
	tcase_add_loop_test(reach, descriptor_not_to_be_had, 0, 3);
	tcase_add_loop_test(reach, a_plain_lane_is_confirmed_before_it_is_used, 0, 2);
	tcase_add_loop_test(reach, nobody_accepts, 0, 3);
	tcase_add_loop_test(reach, canceled_on_the_way, 0, 2);
	tcase_add_loop_test(reach, closed_on_the_way, 0, 4);
	suite_add_tcase(s, reach);
	TCase *hello = tcase_create("hello");
	tcase_set_timeout(hello, 60);
	tcase_add_loop_test(hello, hellos_that_fail_once, 1, 9);
	tcase_add_test(hello, cut_off_side_by_side);
	tcase_add_loop_test(hello, hellos_that_fail_for_ever, 1, 9);
	tcase_add_loop_test(hello, another_kind_of_peer, 0, 9);
	tcase_add_loop_test(hello, lanes_retire, 0, 6);
	suite_add_tcase(s, hello);
	TCase *ranges = tcase_create("ranges");
	tcase_set_timeout(ranges, 60);
	tcase_add_loop_test(ranges, a_range_that_is_registered_later, 0, 3);
	tcase_add_loop_test(ranges, many_bad_ranges, 0, 3);
	tcase_add_test(ranges, a_bad_range_and_nobody_to_ask);
	tcase_add_loop_test(ranges, other_memory_after_a_restart, 0, 3);
	suite_add_tcase(s, ranges);
	TCase *manners = tcase_create("manners");
	tcase_set_timeout(manners, 60);
	tcase_add_loop_test(manners, a_peer_that_closes_after_each_request, 0, 8);
	tcase_add_test(manners, v1_write_is_acknowledged_by_a_read);
	tcase_add_loop_test(manners, v1_peer_that_closes_late, 0, 2);
	tcase_add_test(manners, v1_reset_says_nothing);
	tcase_add_loop_test(manners, v1_sent_is_done, 0, 2);
	tcase_add_loop_test(manners, what_options_say, 0, 2);
	suite_add_tcase(s, manners);
	TCase *lanes = tcase_create("several lanes");
	tcase_set_timeout(lanes, 60);
	tcase_add_loop_test(lanes, many_lanes, 0, 3);
	tcase_add_test(lanes, many_fences);
	tcase_add_test(lanes, fewer_lanes_than_wanted);
	tcase_add_test(lanes, cores);
	tcase_add_test(lanes, a_bounded_queue);
	suite_add_tcase(s, lanes);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
