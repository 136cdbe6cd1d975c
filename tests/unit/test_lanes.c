/* Lanes: bytes there and back in the three framings, cut at every place, and what answers other than good ones lead to. */
#include "tests/support/lanes_rig.h"
#include "transports/tcp/lane.h"

#include <check.h>
#include <stdlib.h>
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

/* --- bytes ------------------------------------------------------------------------------------------------------------------ */

START_TEST(writes_and_reads)
{
	static const size_t lengths[] = {1, 7, 8, 9, 4096, 65536, 1000003};
	start((enum script_speech)_i);
	lanes_rig_fill(&rig, 2000000);
	size_t at = 0;
	for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
		lanes_submit(&rig, NEAP_WRITE, at, at, lengths[k]);
		at += lengths[k];
	}
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect_done(&rig, 0, rig.submitted);
	ck_assert_mem_eq(rig.local, rig.remote, at);
	memset(rig.local, 0, at);
	for (size_t k = 0, from = 0; k < sizeof lengths / sizeof lengths[0]; from += lengths[k++])
		lanes_submit(&rig, NEAP_READ, from, from, lengths[k]);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect_done(&rig, 0, rig.submitted);
	ck_assert_mem_eq(rig.local, rig.remote, at);
	finish();
}
END_TEST

/* Many at once, mixed, more than a window. */
START_TEST(a_thousand_mixed)
{
	start((enum script_speech)_i);
	lanes_rig_fill(&rig, LANES_BYTES);
	unsigned char *expected = malloc(LANES_BYTES);
	memcpy(expected, rig.remote, LANES_BYTES);
	for (uint32_t i = 0; i < 2000; i++) {
		size_t at = (size_t)i * 4096, length = 1 + (i * 37) % 4000;
		bool write = i % 3 != 0;
		lanes_submit(&rig, write ? NEAP_WRITE : NEAP_READ, at, at, length);
		if (write)
			memcpy(expected + at, rig.local + at, length);
	}
	ck_assert(lanes_rig_finish(&rig, 20000));
	lanes_expect_done(&rig, 0, rig.submitted);
	ck_assert_mem_eq(expected, rig.remote, LANES_BYTES);
	for (uint32_t i = 0; i < 2000; i += 3)
		ck_assert_mem_eq(rig.local + (size_t)i * 4096, rig.remote + (size_t)i * 4096, 1 + (i * 37) % 4000);
	free(expected);
	finish();
}
END_TEST

/* The peer's answers in two parts, cut at every place; refusals in between have no payload, so what comes behind them is misplaced
 * at first. Neap level, with and without checksums. */
static enum script_act refuse_some(struct script_peer *peer, const struct script_request *request)
{
	size_t at = request->address - (uintptr_t)peer->memory;
	return at / 64 % 5 == 1 || at / 64 % 5 == 4 ? SCRIPT_REFUSE : SCRIPT_ANSWER;
}

static bool has_stopped(struct lanes_rig *r)
{
	return r->peer.stopped_once;
}

static void check_some(uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		bool refused = i % 5 == 1 || i % 5 == 4, write = i % 7 == 2;
		const struct neap_outcome *outcome = &rig.outcome[first + i];
		if (refused) {
			ck_assert_int_eq(outcome->status, NEAP_FAILED);
			ck_assert_int_eq(outcome->cause, NEAP_CAUSE_REFUSED_BY_PEER);
			continue;
		}
		lanes_expect(&rig, first + i, NEAP_COMPLETED, NEAP_EFFECT_ALL, NEAP_CAUSE_NONE);
		if (!write)
			ck_assert_mem_eq(rig.local + i * 64, rig.remote + i * 64, 64 - i % 13);
	}
}

START_TEST(refusals_cut_everywhere)
{
	enum { COUNT = 14 };
	lanes_rig_open(&rig, SCRIPT_NEAP);
	rig.options.checksum = rig.peer.checksum = _i == 1;
	rig.peer.decide = refuse_some;
	lanes_rig_start(&rig);
	for (size_t cut = 1; cut < 14 * (64 + 16); cut += _i ? 3 : 1) {
		uint32_t first = rig.submitted % (LANES_REQUESTS - COUNT);
		rig.submitted = rig.ends = first;
		memset(rig.ended, 0, sizeof rig.ended);
		memset(rig.local, 0xee, COUNT * 64);
		/* The output of the connection counts up for ever: the cut is relative to what was sent. */
		size_t sent = 0;
		for (int i = 0; i < SCRIPT_CONNECTIONS; i++)
			if (rig.peer.connections[i].fd >= 0)
				sent = rig.peer.connections[i].out_have;
		rig.peer.stopped_once = false;
		rig.peer.split_at = (sent ? sent : NEAP_HELLO_REPLY_BYTES) + cut;
		for (uint32_t i = 0; i < COUNT; i++)
			lanes_submit(&rig, i % 7 == 2 ? NEAP_WRITE : NEAP_READ, i * 64, i * 64, 64 - i % 13);
		lanes_rig_until(&rig, has_stopped, 20);
		lanes_rig_turn(&rig);
		script_go_on(&rig.peer);
		ck_assert_msg(lanes_rig_finish(&rig, 10000), "cut at %zu", cut);
		check_some(first, COUNT);
	}
	ck_assert_uint_eq(lanes_stats(&rig).lanes_opened, 1);
	finish();
}
END_TEST

/* Two READs into one buffer: what a refusal has displaced there cannot be had back. Nobody is told a lie. */
START_TEST(reads_that_share_a_buffer)
{
	start(SCRIPT_NEAP);
	rig.peer.decide = refuse_some;
	for (int round = 0; round < 20; round++) {
		uint32_t first = rig.submitted;
		for (uint32_t i = 0; i < 30; i++)
			lanes_submit(&rig, i % 7 == 2 ? NEAP_WRITE : NEAP_READ, i % 7 == 2 ? 4096 : (i * (uint32_t)round) % 96, i * 64, 60);
		ck_assert(lanes_rig_finish(&rig, 10000));
		for (uint32_t i = 0; i < 30; i++) {
			bool refused = i % 5 == 1 || i % 5 == 4;
			ck_assert_int_eq(rig.outcome[first + i].status, refused ? NEAP_FAILED : NEAP_COMPLETED);
			if (!refused && i % 7 == 2)
				ck_assert_mem_eq(rig.local + 4096, rig.remote + i * 64, 60);
		}
	}
	finish();
}
END_TEST

/* Byte by byte. */
START_TEST(answers_in_single_bytes)
{
	lanes_rig_open(&rig, (enum script_speech)_i);
	rig.peer.piece = 1;
	lanes_rig_start(&rig);
	lanes_submit(&rig, NEAP_READ, 0, 0, 50);
	lanes_submit(&rig, NEAP_WRITE, 100, 100, 50);
	lanes_submit(&rig, NEAP_READ, 200, 200, 33);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect_done(&rig, 0, 3);
	ck_assert_mem_eq(rig.local, rig.remote, 50);
	ck_assert_mem_eq(rig.local + 100, rig.remote + 100, 50);
	ck_assert_mem_eq(rig.local + 200, rig.remote + 200, 33);
	finish();
}
END_TEST

START_TEST(checksums)
{
	lanes_rig_open(&rig, SCRIPT_NEAP);
	rig.options.checksum = rig.peer.checksum = true;
	lanes_rig_start(&rig);
	lanes_rig_fill(&rig, LANES_BYTES);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 3000000); /* the peer checks the sum, which goes over several calls */
	lanes_submit_many(&rig, NEAP_WRITE, 3000000, 3000000, 1000, 700);
	lanes_submit(&rig, NEAP_READ, 4000000, 4000000, 2500000);
	ck_assert(lanes_rig_finish(&rig, 20000));
	lanes_expect_done(&rig, 0, rig.submitted);
	ck_assert_mem_eq(rig.local, rig.remote, 3700000);
	ck_assert_mem_eq(rig.local + 4000000, rig.remote + 4000000, 2500000);
	rig.peer.act = SCRIPT_BAD_TRAILER;
	uint32_t bad = lanes_submit(&rig, NEAP_READ, 0, 0, 100);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect(&rig, bad, NEAP_FAILED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CHECKSUM);
	rig.peer.act = SCRIPT_REFUSE;
	rig.peer.word = NEAP_WORD_CHECKSUM;
	bad = lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect(&rig, bad, NEAP_FAILED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_CHECKSUM);
	rig.peer.act = SCRIPT_ANSWER;
	bad = lanes_submit(&rig, NEAP_READ, 0, 0, 100);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect_done(&rig, bad, 1);
	ck_assert_uint_eq(lanes_stats(&rig).lanes_opened, 1);
	finish();
}
END_TEST

/* A receiver with a small window: short writes, also within frame heads. */
START_TEST(short_writes)
{
	lanes_rig_open(&rig, (enum script_speech)_i);
	rig.peer.read_limit = 1;
	lanes_rig_start(&rig);
	lanes_rig_fill(&rig, LANES_BYTES);
	lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 700, 3000);
	lanes_submit(&rig, NEAP_WRITE, 4000000, 4000000, 3000000);
	for (uint64_t limit = 50; limit < 400000 && rig.ends < rig.submitted; limit += 4013) {
		rig.peer.read_limit = limit;
		lanes_rig_turn(&rig);
	}
	rig.peer.read_limit = 0;
	ck_assert(lanes_rig_finish(&rig, 20000));
	lanes_expect_done(&rig, 0, rig.submitted);
	ck_assert_mem_eq(rig.local, rig.remote, 700 * 3000);
	ck_assert_mem_eq(rig.local + 4000000, rig.remote + 4000000, 3000000);
	finish();
}
END_TEST

START_TEST(nothing_to_move)
{
	start((enum script_speech)_i);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 0);
	lanes_submit(&rig, NEAP_READ, 0, LANES_BYTES, 0); /* at the end of a buffer */
	lanes_submit_at(&rig, NEAP_READ, rig.local, 16, 0);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 10);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect_done(&rig, 0, 2);
	ck_assert_uint_eq(rig.outcome[0].bytes, 0);
	lanes_expect(&rig, 2, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_RANGE_NOT_REMOTE);
	lanes_expect_done(&rig, 3, 1);
	ck_assert_uint_eq(rig.peer.requests - (_i == SCRIPT_V1), 1);
	finish();
}
END_TEST

START_TEST(no_connection_is_made_for_nothing)
{
	start(SCRIPT_V2);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 0);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect_done(&rig, 0, 1);
	ck_assert_uint_eq(rig.peer.accepted, 0);
	finish();
}
END_TEST

/* --- answers that say no ------------------------------------------------------------------------------------------------------ */

static size_t wanted_at;
static enum script_act wanted_act;

static enum script_act one_of_them(struct script_peer *peer, const struct script_request *request)
{
	return request->address == (uintptr_t)peer->memory + wanted_at ? wanted_act : SCRIPT_ANSWER;
}

/* A batch of which the peer treats the sixth in its own way. */
static uint32_t submit_with_odd_one(enum neap_opcode opcode, enum script_act act)
{
	wanted_at = 5 * 1000;
	wanted_act = act;
	rig.peer.decide = one_of_them;
	return lanes_submit_many(&rig, opcode, 0, 0, 1000, 10);
}

static void expect_others_done(uint32_t first)
{
	lanes_expect_done(&rig, first, 5);
	lanes_expect_done(&rig, first + 6, 4);
}

START_TEST(plain_refusal)
{
	enum neap_opcode opcode = _i % 2 ? NEAP_READ : NEAP_WRITE;
	start(SCRIPT_V2);
	uint32_t first = submit_with_odd_one(opcode, _i / 2 ? SCRIPT_REFUSE_OPEN : SCRIPT_REFUSE);
	ck_assert(lanes_rig_finish(&rig, 10000));
	/* One that says no and goes on has written what was for others where this one's bytes were expected. */
	lanes_expect(&rig, first + 5, NEAP_FAILED, _i == 3 ? NEAP_EFFECT_UNKNOWN : NEAP_EFFECT_NONE, NEAP_CAUSE_REFUSED_BY_PEER);
	/* One that says no and keeps its connection: the writes behind it have been sent, and nobody knows. */
	if (_i / 2 == 0 || opcode == NEAP_READ)
		expect_others_done(first);
	finish();
}
END_TEST

START_TEST(neap_refusals)
{
	static const struct {
		uint32_t word;
		enum neap_cause cause;
		enum neap_effect write_effect;
	} rows[] = {
		{NEAP_WORD_REJECTED, NEAP_CAUSE_REFUSED_BY_PEER, NEAP_EFFECT_NONE},
		{NEAP_WORD_GRANT, NEAP_CAUSE_GRANT_REFUSED, NEAP_EFFECT_NONE},
		{NEAP_WORD_CHECKSUM, NEAP_CAUSE_CHECKSUM, NEAP_EFFECT_UNKNOWN},
		{NEAP_WORD_MALFORMED, NEAP_CAUSE_PROTOCOL, NEAP_EFFECT_NONE},
		{NEAP_WORD_REVOKED, NEAP_CAUSE_REFUSED_BY_PEER, NEAP_EFFECT_UNKNOWN},
	};
	start(SCRIPT_NEAP);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		rig.peer.word = rows[i].word;
		uint32_t first = submit_with_odd_one(NEAP_WRITE, SCRIPT_REFUSE);
		ck_assert(lanes_rig_finish(&rig, 10000));
		lanes_expect(&rig, first + 5, NEAP_FAILED, rows[i].write_effect, rows[i].cause);
		expect_others_done(first);
		first = submit_with_odd_one(NEAP_READ, SCRIPT_REFUSE);
		ck_assert(lanes_rig_finish(&rig, 10000));
		ck_assert_int_eq(rig.outcome[first + 5].status, NEAP_FAILED);
		ck_assert_int_eq(rig.outcome[first + 5].cause, rows[i].cause);
		expect_others_done(first);
		ck_assert_mem_eq(rig.local, rig.remote, 5000);
		ck_assert_mem_eq(rig.local + 6000, rig.remote + 6000, 4000);
	}
	ck_assert_uint_eq(lanes_stats(&rig).lanes_opened, 1);
	finish();
}
END_TEST

START_TEST(revoked_grant_names_the_grant)
{
	struct neap_grant_token token = {.bytes = {1}};
	start(SCRIPT_NEAP);
	rig.grant = &token;
	rig.peer.act = SCRIPT_REFUSE;
	rig.peer.word = NEAP_WORD_REVOKED;
	uint32_t first = lanes_submit_at(&rig, NEAP_WRITE, rig.local, (uintptr_t)rig.remote, 100);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect(&rig, first, NEAP_FAILED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_GRANT_REFUSED);
	ck_assert_uint_eq(rig.peer.history[0].grant, 1);
	finish();
}
END_TEST

START_TEST(plain_peers_know_no_grants)
{
	struct neap_grant_token token = {.bytes = {1}};
	start(SCRIPT_V2);
	rig.grant = &token;
	lanes_submit_at(&rig, NEAP_WRITE, rig.local, (uintptr_t)rig.remote, 100);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect(&rig, 0, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_GRANT_REFUSED);
	ck_assert_uint_eq(rig.peer.requests, 0);
	finish();
}
END_TEST

/* Requests under one grant share its token in a frame; the range is not looked up in the descriptor. */
START_TEST(grants_are_carried)
{
	struct neap_grant_token first = {.bytes = {1}}, second = {.bytes = {2}};
	start(SCRIPT_NEAP);
	for (int i = 0; i < 6; i++) {
		rig.grant = i % 3 == 0 ? NULL : i % 3 == 1 ? &first : &second;
		lanes_submit_at(&rig, NEAP_READ, rig.local + i * 100, (uintptr_t)rig.remote + (size_t)i * 100, 100);
	}
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect_done(&rig, 0, 6);
	for (uint32_t i = 0; i < 6; i++)
		ck_assert_int_eq(rig.peer.history[i].grant != 0, i % 3 != 0);
	ck_assert_uint_ne(rig.peer.history[1].grant, rig.peer.history[2].grant);
	finish();
}
END_TEST

/* A status before the payload was sent. */
START_TEST(early_status)
{
	lanes_rig_open(&rig, SCRIPT_V2);
	rig.peer.early = _i;
	lanes_rig_start(&rig);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, LANES_BYTES);
	ck_assert(lanes_rig_finish(&rig, 10000));
	if (_i == 1)
		lanes_expect(&rig, 0, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_REFUSED_BY_PEER);
	else
		lanes_expect(&rig, 0, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_PROTOCOL);
	finish();
}
END_TEST

/* --- garbage ------------------------------------------------------------------------------------------------------------------ */

START_TEST(garbage_for_a_write)
{
	start(_i / 2 ? SCRIPT_NEAP : SCRIPT_V2);
	uint32_t first = submit_with_odd_one(NEAP_WRITE, _i % 2 ? SCRIPT_BAD_AND_CLOSE : SCRIPT_BAD_MAGIC);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect_done(&rig, first, 5);
	/* The peer's end of file makes it certain that no further byte becomes visible. A peer that only half understands ours does not
	 * close: the script's does, on our half-close. */
	lanes_expect(&rig, first + 5, NEAP_FAILED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_PROTOCOL);
	lanes_expect_done(&rig, first + 6, 4);
	ck_assert_uint_eq(lanes_stats(&rig).protocol_errors, 1);
	finish();
}
END_TEST

START_TEST(garbage_and_no_end)
{
	start(_i ? SCRIPT_NEAP : SCRIPT_V2);
	lanes_submit(&rig, NEAP_READ, 0, 0, 10);
	ck_assert(lanes_rig_finish(&rig, 10000));
	uint32_t first = submit_with_odd_one(NEAP_WRITE, SCRIPT_BAD_MAGIC);
	for (int i = 0; i < SCRIPT_CONNECTIONS; i++)
		rig.peer.connections[i].stuck = false;
	while (rig.peer.requests < 7)
		lanes_rig_turn(&rig);
	rig.peer.deaf = true; /* the end of file that we send is not seen */
	lanes_rig_for(&rig, 30);
	ck_assert(!rig.ended[first + 5]);
	rig.peer.deaf = false;
	for (int i = 0; i < SCRIPT_CONNECTIONS; i++)
		rig.peer.connections[i].stuck = true;
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect_done(&rig, first, 5);
	lanes_expect(&rig, first + 5, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_PROTOCOL);
	for (uint32_t i = 6; i < 10; i++)
		if (_i) /* a Neap peer says in the next hello that the lane is dead: they are sent again */
			lanes_expect(&rig, first + i, NEAP_COMPLETED, NEAP_EFFECT_ALL, NEAP_CAUSE_NONE);
		else
			lanes_expect(&rig, first + i, NEAP_TIMEOUT, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_PROTOCOL);
	finish();
}
END_TEST

START_TEST(garbage_for_a_read)
{
	start(_i / 2 ? SCRIPT_NEAP : SCRIPT_V2);
	uint32_t first = submit_with_odd_one(NEAP_READ, _i % 2 ? SCRIPT_BAD_AND_CLOSE : SCRIPT_BAD_MAGIC);
	ck_assert(lanes_rig_finish(&rig, 10000));
	expect_others_done(first);
	ck_assert_int_eq(rig.outcome[first + 5].status, NEAP_FAILED);
	ck_assert_int_eq(rig.outcome[first + 5].cause, NEAP_CAUSE_PROTOCOL);
	for (uint32_t i = 0; i < 10; i++)
		if (i != 5)
			ck_assert_mem_eq(rig.local + i * 1000, rig.remote + i * 1000, 1000);
	finish();
}
END_TEST

static bool no_lanes(struct lanes_rig *r)
{
	return lanes_stats(r).lanes == 0;
}

START_TEST(unasked_bytes_end_an_idle_lane)
{
	start((enum script_speech)_i);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	lanes_submit(&rig, NEAP_READ, 0, 0, 100);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_rig_for(&rig, 70); /* v1: the moment in which the peer might have closed */
	ck_assert_uint_eq(lanes_stats(&rig).lanes, 1);
	script_babble(&rig.peer);
	ck_assert(lanes_rig_until(&rig, no_lanes, 5000));
	ck_assert_uint_eq(lanes_stats(&rig).protocol_errors, 1);
	uint32_t next = lanes_submit(&rig, NEAP_WRITE, 0, 0, 100);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect_done(&rig, next, 1);
	finish();
}
END_TEST

START_TEST(unasked_bytes_while_sending)
{
	lanes_rig_open(&rig, SCRIPT_NEAP);
	rig.peer.read_limit = 100000;
	lanes_rig_start(&rig);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, LANES_BYTES);
	lanes_rig_for(&rig, 20);
	script_babble(&rig.peer);
	ck_assert(lanes_rig_finish(&rig, 10000));
	ck_assert_int_ne(rig.outcome[0].status, NEAP_COMPLETED);
	ck_assert_int_eq(rig.outcome[0].effect, NEAP_EFFECT_UNKNOWN);
	finish();
}
END_TEST

/* --- memory that is not there -------------------------------------------------------------------------------------------------- */

START_TEST(missing_source_costs_its_request_alone)
{
	void *nowhere = (void *)(uintptr_t)4096;
	start((enum script_speech)_i);
	lanes_submit(&rig, NEAP_WRITE, 0, 0, 10); /* v1: gets the peer known */
	ck_assert(lanes_rig_finish(&rig, 10000));
	uint32_t before = lanes_submit_many(&rig, NEAP_WRITE, 0, 0, 100, 5);
	uint32_t bad = lanes_submit_at(&rig, NEAP_WRITE, nowhere, (uintptr_t)rig.remote, 100);
	uint32_t after = lanes_submit_many(&rig, NEAP_WRITE, 1000, 1000, 100, 5);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect_done(&rig, before, 5);
	lanes_expect_done(&rig, after, 5);
	lanes_expect(&rig, bad, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_LOCAL_MEMORY);
	before = lanes_submit_many(&rig, NEAP_READ, 0, 0, 100, 5);
	bad = lanes_submit_at(&rig, NEAP_READ, nowhere, (uintptr_t)rig.remote, 100);
	after = lanes_submit_many(&rig, NEAP_READ, 1000, 1000, 100, 5);
	ck_assert(lanes_rig_finish(&rig, 10000));
	lanes_expect_done(&rig, before, 5);
	lanes_expect_done(&rig, after, 5);
	lanes_expect(&rig, bad, NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_LOCAL_MEMORY);
	finish();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("lanes");
	TCase *bytes = tcase_create("bytes");
	tcase_set_timeout(bytes, 60);
	tcase_add_loop_test(bytes, writes_and_reads, 0, 3);
	tcase_add_loop_test(bytes, a_thousand_mixed, 0, 3);
	tcase_add_loop_test(bytes, refusals_cut_everywhere, 0, 2);
	tcase_add_test(bytes, reads_that_share_a_buffer);
	tcase_add_loop_test(bytes, answers_in_single_bytes, 0, 3);
	tcase_add_test(bytes, checksums);
	tcase_add_loop_test(bytes, short_writes, 0, 3);
	tcase_add_loop_test(bytes, nothing_to_move, 0, 3);
	tcase_add_test(bytes, no_connection_is_made_for_nothing);
	suite_add_tcase(s, bytes);
	TCase *no = tcase_create("answers that say no");
	tcase_set_timeout(no, 30);
	tcase_add_loop_test(no, plain_refusal, 0, 4);
	tcase_add_test(no, neap_refusals);
	tcase_add_test(no, revoked_grant_names_the_grant);
	tcase_add_test(no, plain_peers_know_no_grants);
	tcase_add_test(no, grants_are_carried);
	tcase_add_loop_test(no, early_status, 1, 3);
	suite_add_tcase(s, no);
	TCase *garbage = tcase_create("garbage");
	tcase_set_timeout(garbage, 30);
	tcase_add_loop_test(garbage, garbage_for_a_write, 0, 4);
	tcase_add_loop_test(garbage, garbage_and_no_end, 0, 2);
	tcase_add_loop_test(garbage, garbage_for_a_read, 0, 4);
	tcase_add_loop_test(garbage, unasked_bytes_end_an_idle_lane, 0, 3);
	tcase_add_test(garbage, unasked_bytes_while_sending);
	suite_add_tcase(s, garbage);
	TCase *memory = tcase_create("memory that is not there");
	tcase_set_timeout(memory, 30);
	tcase_add_loop_test(memory, missing_source_costs_its_request_alone, 0, 3);
	suite_add_tcase(s, memory);
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
