/* What becomes of requests when their lane ends, and when their user lets them go: each combination of status, effect and cause that can
 * occur is here. */
#include "tests/support/lanes_rig.h"
#include "transports/tcp/lane.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static struct lanes_rig rig;

static void start(enum script_speech speech)
{
	lanes_rig_open(&rig, speech);
	lanes_rig_start(&rig);
}

static void finish(void)
{
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_rig_close(&rig);
}

static void settle(void)
{
	ck_assert(lanes_rig_finish(&rig, 10000));
}

/* v1 peers are asked once so that it is known that they keep connections. */
static void get_known(void)
{
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 10);
	settle();
	lanes_expect_done(&rig, rig.submitted - 1, 1);
}

static uint32_t wanted_requests;
static bool requests_came(struct lanes_rig *r)
{
	return r->peer.requests >= wanted_requests;
}
static void await_requests(uint32_t count)
{
	wanted_requests = count;
	ck_assert(lanes_rig_until(&rig, requests_came, 5000));
}

static uint64_t wanted_bytes;
static bool bytes_came(struct lanes_rig *r)
{
	uint64_t bytes = 0;
	for (int i = 0; i < SCRIPT_CONNECTIONS; i++)
		if (r->peer.connections[i].fd >= 0)
			bytes += r->peer.connections[i].total_in;
	return bytes >= wanted_bytes;
}
static void await_bytes(uint64_t count)
{
	wanted_bytes = count;
	ck_assert(lanes_rig_until(&rig, bytes_came, 5000));
}

/* --- the rule itself ------------------------------------------------------------------------------------------------------------ */

static const char *say(struct neap_lane_verdict verdict)
{
	if (verdict.what == NEAP_VERDICT_QUEUE)
		return "queue";
	if (verdict.what == NEAP_VERDICT_REPEAT)
		return "repeat";
	if (verdict.what == NEAP_VERDICT_LIMBO)
		return "limbo";
	return verdict.status == NEAP_FAILED ? "failed" : verdict.status == NEAP_TIMEOUT ? "timeout" : "?";
}

START_TEST(the_rule_by_table)
{
	static const struct {
		uint8_t end, kind;
		bool begun, given, culprit, broken, alone, repeatable;
		const char *verdict;
		uint8_t cause;
	} rows[] = {
		/* end                kind            begun given culprit broken alone repeatable */
		{NEAP_LANE_FIN, NEAP_PEER_V2, 0, 0, 0, 0, 0, 0, "queue", 0},
		{NEAP_LANE_STALLED, NEAP_PEER_NEAP, 0, 0, 0, 0, 0, 1, "queue", 0},
		{NEAP_LANE_FIN, NEAP_PEER_V2, 1, 0, 0, 0, 0, 1, "repeat", 0},
		{NEAP_LANE_FIN, NEAP_PEER_V2, 1, 1, 0, 0, 0, 1, "repeat", 0},
		{NEAP_LANE_RESET, NEAP_PEER_V1, 1, 1, 0, 0, 0, 1, "repeat", 0},
		{NEAP_LANE_FIN, NEAP_PEER_V2, 1, 1, 0, 0, 0, 0, "failed", NEAP_CAUSE_PEER_CLOSED},
		{NEAP_LANE_RESET, NEAP_PEER_V2, 1, 1, 0, 0, 0, 0, "failed", NEAP_CAUSE_PEER_RESET},
		{NEAP_LANE_RESET, NEAP_PEER_V2, 1, 0, 0, 0, 0, 0, "failed", NEAP_CAUSE_PEER_RESET},
		{NEAP_LANE_RESET, NEAP_PEER_V2, 1, 1, 0, 0, 1, 1, "failed", NEAP_CAUSE_PEER_RESET},
		{NEAP_LANE_FIN, NEAP_PEER_V2, 1, 1, 0, 0, 1, 1, "failed", NEAP_CAUSE_PEER_CLOSED},
		{NEAP_LANE_FIN, NEAP_PEER_V1, 1, 1, 0, 0, 1, 1, "failed", NEAP_CAUSE_REFUSED_BY_PEER},
		{NEAP_LANE_RESET, NEAP_PEER_NEAP, 1, 1, 0, 0, 0, 1, "limbo", 0},
		{NEAP_LANE_RESET, NEAP_PEER_NEAP, 1, 1, 0, 0, 0, 0, "timeout", NEAP_CAUSE_PEER_RESET},
		{NEAP_LANE_RESET, NEAP_PEER_NEAP, 1, 0, 0, 0, 0, 1, "repeat", 0},
		{NEAP_LANE_LOST, NEAP_PEER_NEAP, 1, 1, 0, 0, 0, 1, "limbo", 0},
		{NEAP_LANE_LOST, NEAP_PEER_NEAP, 1, 1, 0, 0, 0, 0, "timeout", NEAP_CAUSE_NO_PROGRESS},
		{NEAP_LANE_LOST, NEAP_PEER_V2, 1, 1, 0, 0, 0, 1, "timeout", NEAP_CAUSE_NO_PROGRESS},
		{NEAP_LANE_LOST, NEAP_PEER_V2, 1, 0, 0, 0, 0, 1, "repeat", 0},
		{NEAP_LANE_LOST, NEAP_PEER_V2, 1, 0, 0, 0, 0, 0, "failed", NEAP_CAUSE_NO_PROGRESS},
		{NEAP_LANE_STALLED, NEAP_PEER_V2, 1, 1, 0, 0, 0, 1, "timeout", NEAP_CAUSE_NO_PROGRESS},
		{NEAP_LANE_STALLED, NEAP_PEER_NEAP, 1, 1, 0, 0, 0, 1, "timeout", NEAP_CAUSE_NO_PROGRESS},
		{NEAP_LANE_STALLED, NEAP_PEER_NEAP, 1, 0, 0, 0, 0, 1, "timeout", NEAP_CAUSE_NO_PROGRESS},
		{NEAP_LANE_FIN, NEAP_PEER_V2, 1, 1, 1, 1, 0, 1, "failed", NEAP_CAUSE_PROTOCOL},
		{NEAP_LANE_BROKEN, NEAP_PEER_V2, 1, 1, 1, 1, 0, 1, "timeout", NEAP_CAUSE_PROTOCOL},
		{NEAP_LANE_BROKEN, NEAP_PEER_NEAP, 1, 1, 1, 1, 0, 1, "timeout", NEAP_CAUSE_PROTOCOL},
		{NEAP_LANE_BROKEN, NEAP_PEER_V2, 1, 0, 1, 1, 0, 1, "failed", NEAP_CAUSE_PROTOCOL},
		{NEAP_LANE_BROKEN, NEAP_PEER_V2, 1, 1, 0, 1, 0, 1, "timeout", NEAP_CAUSE_PROTOCOL},
		{NEAP_LANE_BROKEN, NEAP_PEER_V2, 1, 0, 0, 1, 0, 1, "repeat", 0},
		{NEAP_LANE_BROKEN, NEAP_PEER_NEAP, 1, 1, 0, 1, 0, 1, "limbo", 0},
		{NEAP_LANE_DROPPED, NEAP_PEER_V2, 1, 1, 0, 0, 0, 1, "timeout", NEAP_CAUSE_NO_PROGRESS},
		{NEAP_LANE_DROPPED, NEAP_PEER_V2, 1, 0, 0, 0, 0, 1, "repeat", 0},
		{NEAP_LANE_DROPPED, NEAP_PEER_NEAP, 1, 1, 0, 0, 0, 1, "limbo", 0},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct neap_lane_facts facts = {.end = rows[i].end,
		                                .kind = rows[i].kind,
		                                .begun = rows[i].begun,
		                                .given = rows[i].given,
		                                .culprit = rows[i].culprit,
		                                .broken = rows[i].broken,
		                                .suspect_alone = rows[i].alone,
		                                .repeatable = rows[i].repeatable};
		struct neap_lane_verdict verdict = neap_lane_judge(&facts);
		ck_assert_msg(strcmp(say(verdict), rows[i].verdict) == 0, "row %zu: %s instead of %s", i, say(verdict), rows[i].verdict);
		ck_assert_msg(verdict.cause == rows[i].cause, "row %zu: cause %d", i, verdict.cause);
	}
}
END_TEST

/* Nothing is FAILED while bytes of it can still become visible, nothing is sent again then either. */
START_TEST(the_rule_never_lies)
{
	for (unsigned i = 0; i < 12u * 3 * 64; i++) {
		struct neap_lane_facts facts = {.end = (uint8_t)(1 + i % 12 % NEAP_LANE_DROPPED),
		                                .kind = (uint8_t)(i / 12 % 3),
		                                .begun = i / 36 & 1,
		                                .given = (i / 36 & 3) == 3,
		                                .culprit = i / 144 & 1,
		                                .broken = i / 144 & 1,
		                                .suspect_alone = false,
		                                .repeatable = i / 288 & 1};
		struct neap_lane_verdict verdict = neap_lane_judge(&facts);
		bool quiet = facts.end == NEAP_LANE_FIN || (facts.end == NEAP_LANE_RESET && facts.kind != NEAP_PEER_NEAP);
		if (facts.given && !quiet) {
			ck_assert(verdict.what != NEAP_VERDICT_REPEAT && verdict.what != NEAP_VERDICT_QUEUE);
			ck_assert(verdict.what != NEAP_VERDICT_END || verdict.status != NEAP_FAILED);
		}
		if (facts.given && facts.kind == NEAP_PEER_NEAP)
			ck_assert(verdict.what != NEAP_VERDICT_REPEAT);
	}
}
END_TEST

/* --- idle lanes ------------------------------------------------------------------------------------------------------------------ */

static bool no_lanes(struct lanes_rig *r)
{
	return lanes_stats(r).lanes == 0;
}

START_TEST(an_idle_lane_that_ends_is_opened_again)
{
	start((enum script_speech)_i);
	for (int round = 0; round < 5; round++) {
		uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 20);
		settle();
		lanes_expect_done(&rig, first, 20);
		script_drop_all(&rig.peer, round % 2);
		ck_assert(lanes_rig_until(&rig, no_lanes, 5000));
	}
	finish();
}
END_TEST

/* --- ends with work under way --------------------------------------------------------------------------------------------------- */

/* The connection is cut while ten are waiting for their answers: all are done in the end, none is told twice. */
START_TEST(a_cut_connection_is_repeated)
{
	bool reset = _i & 1, read = _i & 2;
	enum script_speech speech = (enum script_speech)(_i / 4);
	start(speech);
	get_known();
	uint32_t before = rig.peer.requests;
	rig.peer.act = SCRIPT_HOLD;
	uint32_t first = lanes_submit_many(&rig, read ? NEAP_READ : NEAP_WRITE, 0, 0, 1000, 10);
	await_requests(before + (speech == SCRIPT_V1 && !read ? 11 : 10));
	rig.peer.act = SCRIPT_ANSWER;
	rig.peer.held_count = 0;
	script_drop_all(&rig.peer, reset);
	settle();
	lanes_expect_done(&rig, first, 10);
	ck_assert_uint_ge(lanes_stats(&rig).requests_repeated, 10);
	finish();
}
END_TEST

static size_t poison_at;
static enum script_act poison_act;
static uint32_t poisoned;

static enum script_act one_poisons(struct script_peer *peer, const struct script_request *request)
{
	size_t at = request->address - (uintptr_t)peer->memory;
	if (at >= poison_at && at < poison_at + 1000) { /* v1: the probe of it too */
		poisoned++;
		return poison_act;
	}
	return SCRIPT_ANSWER;
}

/* A plain peer that answers a bad request by cutting the connection: the others are done, the bad one is found. */
START_TEST(the_one_that_makes_the_peer_cut_is_found)
{
	bool reset = _i & 1, read = _i & 2;
	enum script_speech speech = (enum script_speech)(_i / 4);
	start(speech);
	get_known();
	poisoned = 0;
	poison_at = 5000;
	poison_act = reset ? SCRIPT_RESET : SCRIPT_CLOSE;
	rig.peer.decide = one_poisons;
	uint32_t first = lanes_submit_many(&rig, read ? NEAP_READ : NEAP_WRITE, 0, 0, 1000, 10);
	settle();
	lanes_expect_done(&rig, first, 5);
	lanes_expect_done(&rig, first + 6, 4);
	enum neap_cause cause = speech == SCRIPT_V1 ? NEAP_CAUSE_REFUSED_BY_PEER : reset ? NEAP_CAUSE_PEER_RESET : NEAP_CAUSE_PEER_CLOSED;
	lanes_expect(&rig, first + 5, NEAP_FAILED, read ? NEAP_EFFECT_NONE : NEAP_EFFECT_UNKNOWN, cause);
	ck_assert_uint_le(poisoned, 4);
	finish();
}
END_TEST

/* A Neap peer does not refuse that way: it is repeated as often as allowed. */
START_TEST(repeats_are_limited)
{
	bool reset = _i & 1, read = _i & 2;
	start(SCRIPT_NEAP);
	rig.peer.act = reset ? SCRIPT_RESET : SCRIPT_CLOSE;
	lanes_submit(&rig, read ? NEAP_READ : NEAP_WRITE, 0, 0, 1000);
	settle();
	enum neap_cause cause = reset ? NEAP_CAUSE_PEER_RESET : NEAP_CAUSE_PEER_CLOSED;
	/* A reset may come from anybody between the two ends: without the peer's word its bytes may still land. */
	lanes_expect(&rig, 0, reset && !read ? NEAP_TIMEOUT : NEAP_FAILED, read ? NEAP_EFFECT_NONE : NEAP_EFFECT_UNKNOWN, cause);
	ck_assert_uint_eq(rig.peer.requests, 4);
	finish();
}
END_TEST

START_TEST(a_read_cut_in_the_middle_is_partial)
{
	lanes_rig_open(&rig, (enum script_speech)_i);
	rig.options.retries_max = 1;
	lanes_rig_start(&rig);
	rig.peer.act = SCRIPT_HALF;
	lanes_submit(&rig, NEAP_READ, 0, 0, 100000);
	settle();
	/* The first attempt: nothing moves any more. It is not sent again: that would be the user's decision. */
	lanes_expect(&rig, 0, NEAP_TIMEOUT, NEAP_EFFECT_PARTIAL, NEAP_CAUSE_NO_PROGRESS);
	ck_assert_uint_eq(rig.outcome[0].bytes, 50000);
	ck_assert_mem_eq(rig.local, rig.remote, 50000);
	finish();
}
END_TEST

/* --- no progress ------------------------------------------------------------------------------------------------------------------ */

START_TEST(no_answer)
{
	bool read = _i & 1;
	enum script_speech speech = (enum script_speech)(_i / 2);
	start(speech);
	rig.peer.act = SCRIPT_NEVER;
	uint64_t from_ns = rig.now_ns;
	lanes_submit(&rig, read ? NEAP_READ : NEAP_WRITE, 0, 0, 1000);
	settle();
	lanes_expect(&rig, 0, NEAP_TIMEOUT, read ? NEAP_EFFECT_NONE : NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_NO_PROGRESS);
	ck_assert_uint_ge(rig.now_ns - from_ns, 150000000u);
	ck_assert_uint_eq(lanes_stats(&rig).lanes, 0);
	ck_assert_uint_eq(lanes_stats(&rig).lanes_lost, 1);
	/* What was behind the window, or comes later, goes on. */
	rig.peer.act = SCRIPT_ANSWER;
	uint32_t next = lanes_submit(&rig, NEAP_WRITE, 0, 0, 1000);
	settle();
	lanes_expect_done(&rig, next, 1);
	if (speech == SCRIPT_NEAP && !read)
		ck_assert_uint_ne(rig.peer.last_fence, 0); /* late bytes of the first are kept from landing */
	finish();
}
END_TEST

START_TEST(queued_ones_are_not_touched)
{
	start(SCRIPT_V2);
	get_known();
	rig.peer.act = SCRIPT_NEVER;
	uint32_t first = lanes_submit_many(&rig, NEAP_READ, 0, 0, 1000, 2000);
	await_requests(1 + NEAP_LANE_REQUESTS);
	rig.peer.act = SCRIPT_ANSWER;
	settle();
	for (uint32_t i = 0; i < 2000; i++)
		if (i < NEAP_LANE_REQUESTS)
			lanes_expect(&rig, first + i, NEAP_TIMEOUT, NEAP_EFFECT_NONE, NEAP_CAUSE_NO_PROGRESS);
		else
			lanes_expect(&rig, first + i, NEAP_COMPLETED, NEAP_EFFECT_ALL, NEAP_CAUSE_NONE);
	finish();
}
END_TEST

START_TEST(stuck_in_the_middle_of_a_write)
{
	lanes_rig_open(&rig, (enum script_speech)_i);
	rig.peer.read_limit = 200000;
	lanes_rig_start(&rig);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, LANES_BYTES);
	settle();
	lanes_expect(&rig, 0, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_NO_PROGRESS);
	finish();
}
END_TEST

/* The deadline slides: a transfer may take many times as long as long as bytes move. */
START_TEST(slow_but_moving)
{
	lanes_rig_open(&rig, (enum script_speech)_i);
	rig.options.progress_timeout_ms = 100;
	lanes_rig_start(&rig);
	rig.peer.piece = 1;
	rig.tick_ns = 1000000;
	uint64_t from_ns = rig.now_ns;
	lanes_submit(&rig, NEAP_READ, 0, 0, 300);
	settle();
	ck_assert_uint_ge(rig.now_ns - from_ns, 100000000u);
	lanes_expect_done(&rig, 0, 1);
	finish();
}
END_TEST

/* The kernel gives a connection up: the peer has not said that it is over. */
START_TEST(a_lost_connection)
{
	static const int errors[] = {-ETIMEDOUT, -EHOSTUNREACH};
	bool read = _i & 1;
	enum script_speech speech = (enum script_speech)(_i / 4);
	start(speech);
	get_known();
	rig.peer.act = SCRIPT_HOLD;
	uint32_t before = rig.peer.requests;
	uint32_t first = lanes_submit_many(&rig, read ? NEAP_READ : NEAP_WRITE, 0, 0, 1000, 3);
	await_requests(before + 3);
	rig.peer.act = SCRIPT_ANSWER;
	ck_assert_uint_eq(lanes_hook(&rig), 1);
	rig.read_error = errors[_i / 2 % 2];
	script_release(&rig.peer); /* wakes it */
	settle();
	rig.read_error = 0;
	for (uint32_t i = 0; i < 3; i++)
		if (read || speech == SCRIPT_NEAP)
			lanes_expect_done(&rig, first + i, 1);
		else
			lanes_expect(&rig, first + i, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_NO_PROGRESS);
	if (!read && speech != SCRIPT_NEAP)
		ck_assert_int_eq(rig.outcome[first].system_errno, -errors[_i / 2 % 2]);
	finish();
}
END_TEST

/* A write that fails is only the messenger: answers that had come before are believed. */
START_TEST(answers_before_a_failed_write_count)
{
	start(_i ? SCRIPT_NEAP : SCRIPT_V2);
	get_known();
	rig.peer.act = SCRIPT_HOLD;
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 3);
	await_requests(4);
	rig.peer.act = SCRIPT_ANSWER;
	script_release(&rig.peer);
	script_pump(&rig.peer);
	ck_assert_uint_eq(lanes_hook(&rig), 1);
	rig.write_error = -EPIPE;
	uint32_t next = lanes_submit(&rig, NEAP_WRITE, 10000, 10000, 1000);
	settle();
	lanes_expect_done(&rig, first, 3);
	lanes_expect_done(&rig, next, 1);
	ck_assert_uint_eq(rig.peer.requests, 5);
	finish();
}
END_TEST

/* --- fences ------------------------------------------------------------------------------------------------------------------------ */

/* Garbage on every connection there is, and no end of file whatever we do. */
static void babble_and_hang(void)
{
	script_babble(&rig.peer);
	for (int i = 0; i < SCRIPT_CONNECTIONS; i++)
		rig.peer.connections[i].stuck = true;
}

static bool second_hello(struct lanes_rig *r)
{
	return r->peer.hellos >= 2;
}

START_TEST(a_fence_lets_a_write_be_repeated)
{
	bool reset = _i & 1;
	start(SCRIPT_NEAP);
	rig.peer.act = SCRIPT_HOLD;
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 10);
	await_requests(10);
	uint64_t lane = rig.peer.last_lane;
	rig.peer.act = SCRIPT_ANSWER;
	rig.peer.held_count = 0;
	rig.peer.fences = _i / 2;
	script_drop_all(&rig.peer, reset);
	ck_assert(lanes_rig_until(&rig, second_hello, 5000));
	ck_assert_uint_eq(rig.peer.last_fence, lane);
	ck_assert_uint_ne(rig.peer.last_lane, lane);
	settle();
	for (uint32_t i = 0; i < 10; i++)
		if (rig.peer.fences || !reset) /* without the fence: the peer's own end of file was seen */
			lanes_expect_done(&rig, first + i, 1);
		else
			lanes_expect(&rig, first + i, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_NO_PROGRESS);
	finish();
}
END_TEST

/* The lane was not seen to end: without the peer's word its writes may still land. */
START_TEST(no_fence_no_repeat)
{
	start(SCRIPT_NEAP);
	rig.peer.act = SCRIPT_HOLD;
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 10);
	await_requests(10);
	uint32_t reads = lanes_submit_many(&rig, NEAP_READ, 20000, 20000, 1000, 10);
	await_requests(20);
	/* The first answer is garbage; the peer does not close. */
	babble_and_hang();
	rig.peer.act = SCRIPT_ANSWER;
	rig.peer.held_count = 0;
	rig.peer.fences = _i;
	settle();
	lanes_expect(&rig, first, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_PROTOCOL);
	for (uint32_t i = 1; i < 10; i++)
		if (_i)
			lanes_expect(&rig, first + i, NEAP_COMPLETED, NEAP_EFFECT_ALL, NEAP_CAUSE_NONE);
		else
			lanes_expect(&rig, first + i, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_NO_PROGRESS);
	lanes_expect_done(&rig, reads, 10);
	finish();
}
END_TEST

/* The instance that a write in limbo was for is gone: it is never sent to its successor unseen. */
START_TEST(another_instance_ends_limbo)
{
	start(SCRIPT_NEAP);
	rig.peer.act = SCRIPT_HOLD;
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 3);
	await_requests(3);
	rig.peer.act = SCRIPT_ANSWER;
	rig.peer.held_count = 0;
	memset(rig.peer.instance, 0x77, 16);
	rig.peer.hello = SCRIPT_HELLO_OTHER;
	rig.peer.hellos_odd = 2;
	script_drop_all(&rig.peer, false);
	if (_i) /* its successor has other memory */
		rig.peer.memory += LANES_BYTES / 2, rig.peer.memory_bytes /= 2;
	settle();
	for (uint32_t i = 0; i < 3; i++)
		if (_i)
			lanes_expect(&rig, first + i, NEAP_FAILED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_RANGE_NOT_REMOTE);
		else
			lanes_expect(&rig, first + i, NEAP_COMPLETED, NEAP_EFFECT_ALL, NEAP_CAUSE_NONE);
	finish();
}
END_TEST

START_TEST(limbo_without_a_word_ends_with_another_instance)
{
	start(SCRIPT_NEAP);
	rig.peer.act = SCRIPT_HOLD;
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 3);
	await_requests(3);
	rig.peer.act = SCRIPT_ANSWER;
	rig.peer.held_count = 0;
	babble_and_hang();
	memset(rig.peer.instance, 0x77, 16);
	rig.peer.hello = SCRIPT_HELLO_OTHER;
	rig.peer.hellos_odd = 2;
	settle();
	lanes_expect(&rig, first, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_PROTOCOL);
	lanes_expect(&rig, first + 1, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_OTHER_INSTANCE);
	finish();
}
END_TEST

START_TEST(limbo_ends_when_the_peer_cannot_be_reached)
{
	start(SCRIPT_NEAP);
	rig.peer.act = SCRIPT_HOLD;
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 3);
	await_requests(3);
	rig.peer.held_count = 0;
	script_refuse_connections(&rig.peer, true);
	if (_i) {
		script_drop_all(&rig.peer, false);
	} else {
		babble_and_hang();
	}
	settle();
	/* Its end of file was seen: no byte can become visible any more. Or not. */
	lanes_expect(&rig, first + 1, _i ? NEAP_FAILED : NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CONNECT_FAILED);
	script_refuse_connections(&rig.peer, false);
	finish();
}
END_TEST

/* --- canceled ------------------------------------------------------------------------------------------------------------------------ */

START_TEST(cancel_in_the_queue)
{
	start((enum script_speech)_i);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	lanes_cancel(&rig, 0);
	settle();
	lanes_expect(&rig, 0, NEAP_CANCELED, NEAP_EFFECT_NONE, NEAP_CAUSE_CANCELED_BY_USER);
	ck_assert_uint_eq(rig.peer.requests, 0);
	finish();
}
END_TEST

static bool all_are(const unsigned char *bytes, unsigned char value, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (bytes[i] != value)
			return false;
	return true;
}

/* The buffer of a canceled READ is the user's at once: what comes late does not touch it, and the others are not disturbed. */
START_TEST(cancel_a_read_under_way)
{
	start((enum script_speech)_i);
	get_known();
	rig.peer.act = SCRIPT_HOLD;
	uint32_t before = rig.peer.requests;
	uint32_t first = lanes_submit_many(&rig, NEAP_READ, 0, 0, 10000, 5);
	await_requests(before + 5);
	lanes_cancel(&rig, first + 2);
	for (int i = 0; i < 3 && !rig.ended[first + 2]; i++)
		lanes_rig_turn(&rig);
	lanes_expect(&rig, first + 2, NEAP_CANCELED, NEAP_EFFECT_NONE, NEAP_CAUSE_CANCELED_BY_USER);
	memset(rig.local + 20000, 0xab, 10000);
	script_release(&rig.peer);
	settle();
	lanes_expect_done(&rig, first, 2);
	lanes_expect_done(&rig, first + 3, 2);
	ck_assert(all_are(rig.local + 20000, 0xab, 10000));
	ck_assert_mem_eq(rig.local + 30000, rig.remote + 30000, 20000);
	ck_assert_uint_eq(lanes_stats(&rig).lanes_opened, 1);
	finish();
}
END_TEST

static enum script_act refuse_the_first(struct script_peer *peer, const struct script_request *request)
{
	return request->address == (uintptr_t)peer->memory ? SCRIPT_REFUSE : SCRIPT_ANSWER;
}

/* What comes behind a refusal lands a payload too early, also what nobody wants any more: it is put right from there. */
START_TEST(cancel_two_reads_behind_a_refusal)
{
	start(SCRIPT_NEAP);
	get_known();
	rig.peer.act = SCRIPT_HOLD;
	uint32_t before = rig.peer.requests;
	uint32_t first = lanes_submit_many(&rig, NEAP_READ, 0, 0, 10000, 6);
	await_requests(before + 6);
	lanes_cancel(&rig, first + 2);
	lanes_cancel(&rig, first + 3);
	for (int i = 0; i < 3 && !rig.ended[first + 3]; i++)
		lanes_rig_turn(&rig);
	memset(rig.local + 20000, 0xab, 20000);
	rig.peer.decide = refuse_the_first;
	script_release(&rig.peer);
	settle();
	ck_assert_int_eq(rig.outcome[first].status, NEAP_FAILED); /* its buffer was passed through */
	ck_assert_int_eq(rig.outcome[first].cause, NEAP_CAUSE_REFUSED_BY_PEER);
	lanes_expect_done(&rig, first + 1, 1);
	lanes_expect_done(&rig, first + 4, 2);
	ck_assert_mem_eq(rig.local + 10000, rig.remote + 10000, 10000);
	ck_assert(all_are(rig.local + 20000, 0xab, 20000));
	ck_assert_mem_eq(rig.local + 40000, rig.remote + 40000, 20000);
	ck_assert_uint_eq(lanes_stats(&rig).lanes_opened, 1);
	finish();
}
END_TEST

/* 4 MiB are on their way to a READ that nobody wants any more: the connection is given up for a new one. */
START_TEST(cancel_a_large_read_halfway)
{
	start((enum script_speech)_i);
	get_known();
	rig.peer.piece = 100000;
	uint32_t first = lanes_submit(&rig, NEAP_READ, 0, 0, 4000000);
	lanes_rig_for(&rig, 5);
	ck_assert(!rig.ended[first]);
	lanes_cancel(&rig, first);
	lanes_rig_turn(&rig);
	lanes_rig_turn(&rig);
	ck_assert(rig.ended[first]);
	ck_assert_int_eq(rig.outcome[first].status, NEAP_CANCELED);
	ck_assert(rig.outcome[first].effect == NEAP_EFFECT_PARTIAL || rig.outcome[first].effect == NEAP_EFFECT_NONE);
	size_t moved = rig.outcome[first].bytes;
	ck_assert_mem_eq(rig.local, rig.remote, moved);
	memset(rig.local, 0xab, 4000000);
	uint32_t next = lanes_submit(&rig, NEAP_READ, 5000000, 5000000, 1000);
	rig.peer.piece = 0;
	settle();
	lanes_expect_done(&rig, next, 1);
	ck_assert(all_are(rig.local, 0xab, 4000000));
	ck_assert_uint_eq(lanes_stats(&rig).lanes_opened, 2);
	finish();
}
END_TEST

START_TEST(cancel_a_write_that_waits_for_its_answer)
{
	start((enum script_speech)_i);
	get_known();
	rig.peer.act = SCRIPT_HOLD;
	uint32_t before = rig.peer.requests;
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 5);
	await_requests(before + 5 + (_i == SCRIPT_V1));
	lanes_cancel(&rig, first + 2);
	lanes_rig_turn(&rig);
	lanes_rig_turn(&rig);
	lanes_expect(&rig, first + 2, NEAP_CANCELED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CANCELED_BY_USER);
	script_release(&rig.peer);
	settle();
	lanes_expect_done(&rig, first, 2);
	lanes_expect_done(&rig, first + 3, 2);
	ck_assert_uint_eq(lanes_stats(&rig).lanes_opened, 1);
	finish();
}
END_TEST

/* A WRITE stops where it is. Those before it are answered on the old connection, those behind it go over a new one. */
START_TEST(cancel_a_write_in_the_middle)
{
	start((enum script_speech)_i);
	get_known();
	rig.peer.read_limit = 200000;
	uint32_t before = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 5);
	uint32_t big = lanes_submit(&rig, NEAP_WRITE, 100000, 100000, 8000000);
	uint32_t after = lanes_submit_many(&rig, NEAP_WRITE, 10000, 10000, 1000, 5);
	uint32_t reads = lanes_submit_many(&rig, NEAP_READ, 20000, 20000, 1000, 5);
	await_bytes(200000);
	lanes_rig_turn(&rig);
	lanes_cancel(&rig, big);
	lanes_rig_turn(&rig);
	lanes_rig_turn(&rig);
	lanes_expect(&rig, big, NEAP_CANCELED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CANCELED_BY_USER);
	rig.peer.read_limit = 0;
	settle();
	lanes_expect_done(&rig, before, 5);
	lanes_expect_done(&rig, after, 5);
	lanes_expect_done(&rig, reads, 5);
	ck_assert_uint_eq(lanes_stats(&rig).lanes_opened, 2);
	finish();
}
END_TEST

/* The same when the peer takes nothing and ends nothing: the drain has its deadline. */
START_TEST(a_drain_that_does_not_end)
{
	start((enum script_speech)_i);
	get_known();
	rig.peer.act = SCRIPT_HOLD;
	uint32_t came = rig.peer.requests;
	rig.peer.read_limit = 200000;
	uint32_t before = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 5);
	await_requests(came + 5);
	uint32_t big = lanes_submit(&rig, NEAP_WRITE, 100000, 100000, 8000000);
	await_bytes(200000);
	rig.peer.held_count = 0;
	rig.peer.act = SCRIPT_ANSWER;
	lanes_cancel(&rig, big);
	lanes_cancel(&rig, before); /* another one on a lane that drains */
	for (int i = 0; i < SCRIPT_CONNECTIONS; i++)
		rig.peer.connections[i].stuck = true;
	rig.peer.read_limit = 0;
	settle();
	lanes_expect(&rig, big, NEAP_CANCELED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CANCELED_BY_USER);
	lanes_expect(&rig, before, NEAP_CANCELED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CANCELED_BY_USER);
	for (uint32_t i = 1; i < 5; i++)
		if (_i == SCRIPT_NEAP)
			lanes_expect(&rig, before + i, NEAP_COMPLETED, NEAP_EFFECT_ALL, NEAP_CAUSE_NONE);
		else
			lanes_expect(&rig, before + i, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_NO_PROGRESS);
	finish();
}
END_TEST

/* Sending has stopped in the middle; answers to what was sent before still count, and then it is over. */
START_TEST(answers_after_the_cut)
{
	start((enum script_speech)_i);
	get_known();
	rig.peer.act = SCRIPT_HOLD;
	uint32_t came = rig.peer.requests;
	rig.peer.read_limit = 200000;
	uint32_t before = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 5);
	await_requests(came + 5 + (_i == SCRIPT_V1));
	uint32_t big = lanes_submit(&rig, NEAP_WRITE, 100000, 100000, 8000000);
	await_bytes(200000);
	lanes_cancel(&rig, big);
	lanes_rig_for(&rig, 10);
	rig.peer.act = SCRIPT_ANSWER;
	script_release(&rig.peer);
	settle();
	lanes_expect(&rig, big, NEAP_CANCELED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CANCELED_BY_USER);
	lanes_expect_done(&rig, before, 5);
	ck_assert_uint_eq(rig.peer.requests, came + 5 + (_i == SCRIPT_V1));
	finish();
}
END_TEST

/* Behind a large WRITE, nothing of them was sent yet. */
START_TEST(cancel_behind_a_large_write)
{
	start((enum script_speech)_i);
	get_known();
	rig.peer.read_limit = 200000;
	uint32_t big = lanes_submit(&rig, NEAP_WRITE, 100000, 100000, 8000000);
	await_bytes(200000);
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 5);
	lanes_rig_turn(&rig);
	lanes_rig_turn(&rig);
	lanes_cancel(&rig, first + 1);
	lanes_cancel(&rig, first + 3);
	lanes_rig_turn(&rig);
	lanes_rig_turn(&rig);
	lanes_expect(&rig, first + 1, NEAP_CANCELED, NEAP_EFFECT_NONE, NEAP_CAUSE_CANCELED_BY_USER);
	lanes_expect(&rig, first + 3, NEAP_CANCELED, NEAP_EFFECT_NONE, NEAP_CAUSE_CANCELED_BY_USER);
	rig.peer.read_limit = 0;
	settle();
	lanes_expect_done(&rig, big, 1);
	lanes_expect_done(&rig, first, 1);
	lanes_expect_done(&rig, first + 2, 1);
	lanes_expect_done(&rig, first + 4, 1);
	ck_assert_uint_eq(lanes_stats(&rig).lanes_opened, 1);
	finish();
}
END_TEST

/* A request is canceled when any number of bytes of a batch has been sent: in the middle of a frame's head, which cannot be made again
 * without it, between payloads, within one. */
START_TEST(cancel_wherever_sending_has_stopped)
{
	struct neap_grant_token token = {.bytes = {1}};
	bool read = _i & 1;
	lanes_rig_open(&rig, (enum script_speech)(_i / 2 % 3));
	rig.options.checksum = rig.peer.checksum = _i >= 6;
	if (_i >= 6)
		rig.peer.speech = SCRIPT_NEAP;
	lanes_rig_start(&rig);
	get_known();
	for (uint64_t cut = 0; cut < 560; cut += 1 + cut % 4) {
		lanes_submit(&rig, NEAP_WRITE, 0, 0, 10); /* there is a lane again */
		settle();
		ck_assert_uint_eq(lanes_hook(&rig), 1);
		rig.write_quota = cut;
		memset(rig.remote, 0, 1000);
		uint32_t first = rig.submitted;
		for (uint32_t i = 0; i < 6; i++) {
			rig.grant = rig.peer.speech == SCRIPT_NEAP && i == 3 ? &token : NULL;
			lanes_submit(&rig, (i == 2) == read ? NEAP_READ : NEAP_WRITE, i * 100, i * 100, 70);
		}
		rig.grant = NULL;
		for (int i = 0; i < 3; i++)
			lanes_rig_turn(&rig);
		if (!rig.ended[first + 2])
			lanes_cancel(&rig, first + 2);
		lanes_rig_turn(&rig);
		rig.write_quota = UINT64_MAX;
		settle();
		lanes_expect_done(&rig, first, 2);
		lanes_expect_done(&rig, first + 3, 3);
		for (uint32_t i = 0; i < 6; i++)
			if (i != 2)
				ck_assert_msg(memcmp(rig.local + i * 100, rig.remote + i * 100, 70) == 0, "cut %u, request %u", (unsigned)cut, i);
		if (rig.outcome[first + 2].effect == NEAP_EFFECT_NONE && !read)
			ck_assert(all_are(rig.remote + 200, 0, 70));
	}
	finish();
}
END_TEST

START_TEST(a_deadline_ends_as_timeout)
{
	start((enum script_speech)_i);
	get_known();
	rig.peer.act = SCRIPT_NEVER;
	uint32_t before = rig.peer.requests;
	rig.deadline_ns = rig.now_ns + 60000000u;
	uint32_t write = lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	uint32_t read = lanes_submit(&rig, NEAP_READ, 0, 0, 100);
	await_requests(before + 2);
	settle();
	lanes_expect(&rig, write, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_BATCH_DEADLINE);
	lanes_expect(&rig, read, NEAP_TIMEOUT, NEAP_EFFECT_NONE, NEAP_CAUSE_BATCH_DEADLINE);
	finish();
}
END_TEST

/* Canceled while it waits for the fence. */
START_TEST(cancel_in_limbo)
{
	start(SCRIPT_NEAP);
	rig.peer.act = SCRIPT_HOLD;
	uint32_t first = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 1000, 3);
	await_requests(3);
	rig.peer.held_count = 0;
	rig.peer.hello = SCRIPT_HELLO_SILENT;
	script_drop_all(&rig.peer, false);
	ck_assert(lanes_rig_until(&rig, second_hello, 5000));
	lanes_cancel(&rig, first + 1);
	lanes_rig_turn(&rig);
	lanes_rig_turn(&rig);
	lanes_expect(&rig, first + 1, NEAP_CANCELED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CANCELED_BY_USER);
	settle();
	lanes_expect(&rig, first, NEAP_FAILED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CONNECT_TIMEOUT);
	finish();
}
END_TEST

START_TEST(segment_and_engine_close)
{
	start((enum script_speech)(_i % 3));
	get_known();
	rig.peer.act = SCRIPT_HOLD;
	uint32_t before = rig.peer.requests;
	uint32_t write = lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	uint32_t read = lanes_submit(&rig, NEAP_READ, 0, 0, 100);
	await_requests(before + 2);
	uint32_t queued = lanes_submit_many(&rig, NEAP_READ, 0, 0, 100, 3000);
	enum neap_cause cause = _i / 3 ? NEAP_CAUSE_ENGINE_CLOSED : NEAP_CAUSE_SEGMENT_CLOSED;
	if (_i / 3) {
		lanes_rig_close(&rig);
	} else {
		ck_assert_int_eq(neap_segment_close(rig.engine, rig.segment), 0);
		settle();
	}
	lanes_expect(&rig, write, NEAP_CANCELED, NEAP_EFFECT_UNKNOWN, cause);
	lanes_expect(&rig, read, NEAP_CANCELED, NEAP_EFFECT_NONE, cause);
	lanes_expect(&rig, queued + 2999, NEAP_CANCELED, NEAP_EFFECT_NONE, cause);
	if (_i / 3 == 0)
		finish();
}
END_TEST

/* Closing while a lane is in each of the phases of its life. */
START_TEST(close_in_every_phase)
{
	lanes_rig_open(&rig, _i < 3 ? SCRIPT_NEAP : SCRIPT_V2);
	rig.peer.hello = SCRIPT_HELLO_SILENT;
	lanes_rig_start(&rig);
	if (_i == 4)
		rig.peer.handshake_silent = true;
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	if (_i == 0) /* connecting, or not even that */
		(void)neap_reactor_run_once(rig.reactor, NULL);
	if (_i == 1 || _i == 3 || _i == 4)
		lanes_rig_for(&rig, 20);
	if (_i == 2) /* the hello was not answered: the descriptor is read again */
		lanes_rig_for(&rig, 230);
	lanes_rig_close(&rig);
	ck_assert_int_ne(rig.outcome[0].status, NEAP_WAITING);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("lanes_end");
	TCase *rule = tcase_create("the rule");
	tcase_add_test(rule, the_rule_by_table);
	tcase_add_test(rule, the_rule_never_lies);
	suite_add_tcase(s, rule);
	TCase *ends = tcase_create("ends");
	tcase_set_timeout(ends, 30);
	tcase_add_loop_test(ends, an_idle_lane_that_ends_is_opened_again, 0, 3);
	tcase_add_loop_test(ends, a_cut_connection_is_repeated, 0, 12);
	tcase_add_loop_test(ends, the_one_that_makes_the_peer_cut_is_found, 0, 8);
	tcase_add_loop_test(ends, repeats_are_limited, 0, 4);
	tcase_add_loop_test(ends, a_read_cut_in_the_middle_is_partial, 0, 3);
	suite_add_tcase(s, ends);
	TCase *progress = tcase_create("progress");
	tcase_set_timeout(progress, 30);
	tcase_add_loop_test(progress, no_answer, 0, 6);
	tcase_add_test(progress, queued_ones_are_not_touched);
	tcase_add_loop_test(progress, stuck_in_the_middle_of_a_write, 0, 3);
	tcase_add_loop_test(progress, slow_but_moving, 0, 3);
	tcase_add_loop_test(progress, a_lost_connection, 0, 12);
	tcase_add_loop_test(progress, answers_before_a_failed_write_count, 0, 2);
	suite_add_tcase(s, progress);
	TCase *fences = tcase_create("fences");
	tcase_set_timeout(fences, 30);
	tcase_add_loop_test(fences, a_fence_lets_a_write_be_repeated, 0, 4);
	tcase_add_loop_test(fences, no_fence_no_repeat, 0, 2);
	tcase_add_loop_test(fences, another_instance_ends_limbo, 0, 2);
	tcase_add_test(fences, limbo_without_a_word_ends_with_another_instance);
	tcase_add_loop_test(fences, limbo_ends_when_the_peer_cannot_be_reached, 0, 2);
	suite_add_tcase(s, fences);
	TCase *canceled = tcase_create("canceled");
	tcase_set_timeout(canceled, 30);
	tcase_add_loop_test(canceled, cancel_in_the_queue, 0, 3);
	tcase_add_loop_test(canceled, cancel_a_read_under_way, 0, 3);
	tcase_add_test(canceled, cancel_two_reads_behind_a_refusal);
	tcase_add_loop_test(canceled, cancel_a_large_read_halfway, 0, 3);
	tcase_add_loop_test(canceled, cancel_a_write_that_waits_for_its_answer, 0, 3);
	tcase_add_loop_test(canceled, cancel_a_write_in_the_middle, 0, 3);
	tcase_add_loop_test(canceled, a_drain_that_does_not_end, 0, 3);
	tcase_add_loop_test(canceled, answers_after_the_cut, 0, 3);
	tcase_add_loop_test(canceled, cancel_behind_a_large_write, 0, 3);
	tcase_add_loop_test(canceled, cancel_wherever_sending_has_stopped, 0, 8);
	tcase_add_loop_test(canceled, a_deadline_ends_as_timeout, 0, 3);
	tcase_add_test(canceled, cancel_in_limbo);
	tcase_add_loop_test(canceled, segment_and_engine_close, 0, 6);
	tcase_add_loop_test(canceled, close_in_every_phase, 0, 5);
	suite_add_tcase(s, canceled);
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
