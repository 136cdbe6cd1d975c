/* The serving half against a raw client: the Neap level. Each test runs over loopback sockets and over memory streams. */
#include "tests/support/session_peer.h"

#include <check.h>
#include <stdlib.h>

#define CLIENT "client instance."
#define OTHER_CLIENT "another instance"

enum { OK, REJECTED, GRANT, CHECKSUM, MALFORMED, REVOKED };
enum { READ, WRITE };

static struct session_rig rig;
static struct peer peer;
static unsigned char buffer[8 * 1024 * 1024];

static void begin(int kind, bool checksum)
{
	session_rig_open(&rig, (enum session_rig_kind)kind);
	rig.options.checksum = checksum;
	session_rig_start(&rig);
	peer_open(&peer, &rig);
	peer_hello(&peer, CLIENT, 1, 0, checksum);
}

static void end(void)
{
	peer_close(&peer, false);
	session_rig_close(&rig);
}

static struct wire_bytes out(void)
{
	return (struct wire_bytes){.at = buffer, .size = sizeof buffer};
}

static uint64_t at(int region, uint64_t offset)
{
	return (uint64_t)(uintptr_t)rig.region[region] + offset;
}

static unsigned char *pattern(size_t length, unsigned seed)
{
	static unsigned char bytes[6 * 1024 * 1024];
	ck_assert_uint_le(length, sizeof bytes);
	for (size_t i = 0; i < length; i++)
		bytes[i] = (unsigned char)(i * 13 + seed + (i >> 8));
	return bytes;
}

static void still_works(void)
{
	struct wire_bytes w = out();
	wire_frame(&w, 1, 0);
	wire_entry(&w, READ, at(RIG_OPEN_B, 100), 4, 0);
	memcpy(rig.region[RIG_OPEN_B] + 100, "well", 4);
	peer_send(&peer, w.at, w.length);
	peer_expect_word(&peer, OK);
	peer_expect(&peer, "well", 4);
}

static void token_of(int region, uint64_t offset, uint64_t length, unsigned rights, const char *client,
                     struct neap_grant_token *token)
{
	int error = neap_registry_grant(rig.registry, rig.region[region] + offset, length, rights, (const uint8_t *)client, token);
	ck_assert_int_eq(error, NEAP_OK);
}

/* --- hello ---------------------------------------------------------------------------------------------------------------- */

START_TEST(hello_agrees_on_checksums)
{
	for (int ours = 0; ours < 2; ours++)
		for (uint32_t theirs = 0; theirs < 2; theirs++) {
			unsigned char bytes[96], reply[40];
			struct wire_bytes w = {.at = bytes, .size = sizeof bytes};
			session_rig_open(&rig, (enum session_rig_kind)_i);
			rig.options.checksum = ours;
			session_rig_start(&rig);
			peer_open(&peer, &rig);
			wire_hello(&w, &(struct wire_hello){CLIENT, (const char *)rig.view.instance, 7, 0, 3, 0, theirs | 0x80});
			for (size_t i = 0; i < w.length; i++)
				peer_send(&peer, bytes + i, 1);
			peer_take(&peer, reply, sizeof reply);
			ck_assert_mem_eq(reply, "NEAP\0\0\0\0", 8);
			ck_assert_mem_eq(reply + 8, rig.view.instance, 16);
			ck_assert_mem_eq(reply + 24, "\1\0\0\0", 4);
			ck_assert_uint_eq(reply[28], ours && theirs);
			ck_assert_mem_eq(reply + 29, "\0\0\0\0\0\0\0\0\0\0\0", 11);
			end();
		}
}
END_TEST

static void refused_hello(const struct wire_hello *hello, uint32_t code)
{
	struct peer refused;
	peer_open(&refused, &rig);
	ck_assert_uint_eq(peer_hello_code(&refused, hello), code);
	ck_assert_int_eq(peer_wait_end(&refused), PEER_FIN);
	peer_close(&refused, false);
}

START_TEST(hello_is_refused)
{
	begin(_i, false);
	const char *server = (const char *)rig.view.instance;
	refused_hello(&(struct wire_hello){CLIENT, "of the past     ", 2, 0, 1, 0, 0}, 2);
	refused_hello(&(struct wire_hello){CLIENT, server, 2, 0, 0, 0, 0}, 3);
	refused_hello(&(struct wire_hello){CLIENT, server, 0, 0, 1, 0, 0}, 5);
	refused_hello(&(struct wire_hello){CLIENT, server, 1, 0, 1, 0, 0}, 5);
	refused_hello(&(struct wire_hello){CLIENT, server, 2, 2, 1, 0, 0}, 5);
	end();
}
END_TEST

START_TEST(hello_waits_for_its_answer)
{
	session_rig_open(&rig, (enum session_rig_kind)_i);
	session_rig_start(&rig);
	peer_open(&peer, &rig);
	unsigned char reply[40];
	struct wire_bytes w = out();
	wire_hello(&w, &(struct wire_hello){CLIENT, (const char *)rig.view.instance, 7, 0, 1, 0, 0});
	wire_frame(&w, 1, 0);
	wire_entry(&w, WRITE, at(RIG_OPEN_A, 0), 4, 0);
	wire_put(&w, "fast", 4);
	peer_send(&peer, w.at, w.length);
	peer_take(&peer, reply, sizeof reply);
	ck_assert_uint_eq(reply[4], 5);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	ck_assert_uint_eq(rig.region[RIG_OPEN_A][0], 0);
	end();
}
END_TEST

START_TEST(hello_comes_first_or_not_at_all)
{
	session_rig_open(&rig, (enum session_rig_kind)_i);
	session_rig_start(&rig);
	peer_open(&peer, &rig);
	struct wire_bytes w = out();
	wire_plain(&w, 1, at(RIG_OPEN_A, 0), 0x80);
	wire_hello(&w, &(struct wire_hello){CLIENT, (const char *)rig.view.instance, 7, 0, 1, 0, 0});
	peer_send(&peer, w.at, w.length);
	peer_expect(&peer, PEER_OK "\0" PEER_REJECTED, 17);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	end();
}
END_TEST

START_TEST(hello_to_a_process_that_speaks_plainly)
{
	session_rig_open(&rig, (enum session_rig_kind)_i);
	rig.options.plain_only = true;
	session_rig_start(&rig);
	peer_open(&peer, &rig);
	struct wire_bytes w = out();
	wire_hello(&w, &(struct wire_hello){CLIENT, (const char *)rig.view.instance, 7, 0, 1, 0, 0});
	peer_send(&peer, w.at, w.length);
	peer_expect(&peer, PEER_REJECTED, 8);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	end();
}
END_TEST

/* --- frames --------------------------------------------------------------------------------------------------------------- */

START_TEST(answers_come_in_order)
{
	begin(_i, false);
	struct neap_grant_token token;
	token_of(RIG_GRANTED, 0, 4096, NEAP_MAY_READ | NEAP_MAY_WRITE, CLIENT, &token);
	struct wire_bytes w = out();
	for (unsigned round = 0; round < 3; round++) {
		wire_frame(&w, 5, 1);
		wire_entry(&w, WRITE, at(RIG_OPEN_A, 0), 5, 0);
		wire_entry(&w, READ, at(RIG_OPEN_A, 0), 5, 0);
		wire_entry(&w, WRITE, at(RIG_GRANTED, 10), 6, 1);
		wire_entry(&w, READ, at(RIG_GRANTED, 11), 2, 1);
		wire_entry(&w, WRITE, at(RIG_OPEN_B, 0), 7, 0);
		wire_put(&w, token.bytes, 32);
		wire_put(&w, "first" "second" "thirdly", 18);
	}
	peer_send(&peer, w.at, w.length);
	for (unsigned round = 0; round < 3; round++) {
		peer_expect_words(&peer, OK, 2);
		peer_expect(&peer, "first", 5);
		peer_expect_words(&peer, OK, 2);
		peer_expect(&peer, "ec", 2);
		peer_expect_word(&peer, OK);
	}
	ck_assert_mem_eq(rig.region[RIG_OPEN_B], "thirdly", 7);
	ck_assert_uint_eq(rig.stats.requests_served, 15);
	peer_expect_silence(&peer);
	end();
}
END_TEST

struct refusal {
	const char *what;
	unsigned opcode, grant;
	int region;
	uint64_t offset, length;
	uint32_t code;
};

static void try_refusal(const struct refusal *refusal, const struct neap_grant_token tokens[3])
{
	struct wire_bytes w = out();
	bool payload = refusal->opcode == WRITE;
	wire_frame(&w, 3, 3);
	wire_entry(&w, WRITE, at(RIG_OPEN_A, 0), 3, 0);
	wire_entry(&w, refusal->opcode, at(refusal->region, refusal->offset), refusal->length, refusal->grant);
	wire_entry(&w, READ, at(RIG_OPEN_A, 0), 3, 0);
	wire_put(&w, tokens, 3 * 32);
	wire_put(&w, "one", 3);
	if (payload)
		wire_put(&w, pattern(refusal->length, 1), refusal->length);
	uint64_t refused = rig.stats.requests_refused;
	peer_send(&peer, w.at, w.length);
	peer_expect_word(&peer, OK);
	peer_expect_word(&peer, refusal->code);
	peer_expect_word(&peer, OK);
	peer_expect(&peer, "one", 3);
	ck_assert_msg(rig.stats.requests_refused == refused + 1, "%s", refusal->what);
}

START_TEST(refusals_are_words)
{
	static const struct refusal refusals[] = {
		{"write outside", WRITE, 0, RIG_OPEN_B, SESSION_RIG_REGION, 100000, REJECTED},
		{"write to closed", WRITE, 0, RIG_CLOSED, 0, 8, REJECTED},
		{"write to grant-only", WRITE, 0, RIG_GRANTED, 0, 8, REJECTED},
		{"long write to closed", WRITE, 0, RIG_CLOSED, 0, 3000000, REJECTED},
		{"read over two regions", READ, 0, RIG_OPEN_A, SESSION_RIG_REGION - 1, 2, REJECTED},
		{"write of nothing", WRITE, 0, RIG_OPEN_A, 0, 0, MALFORMED},
		{"read of nothing", READ, 0, RIG_OPEN_A, 0, 0, MALFORMED},
		{"opcode 2", 2, 0, RIG_OPEN_A, 0, 4, MALFORMED},
		{"opcode 0x81", 0x81, 0, RIG_OPEN_A, 0, 4, MALFORMED},
		{"opcode 0xff", 0xff, 0, RIG_OPEN_A, 0, 4, MALFORMED},
		{"no such token", WRITE, 4, RIG_GRANTED, 0, 8, MALFORMED},
		{"no such token, far", READ, 65535, RIG_GRANTED, 0, 8, MALFORMED},
		{"read under a write grant", READ, 1, RIG_GRANTED, 0, 8, GRANT},
		{"write before the grant's range", WRITE, 1, RIG_GRANTED, 4, 8, GRANT},
		{"write behind the grant's range", WRITE, 1, RIG_GRANTED, 4090, 10, GRANT},
		{"write elsewhere", WRITE, 1, RIG_OPEN_A, 0, 10, GRANT},
		{"grant for another instance", WRITE, 2, RIG_GRANTED, 0, 8, GRANT},
		{"damaged token", WRITE, 3, RIG_GRANTED, 8, 8, GRANT},
	};
	begin(_i, false);
	struct neap_grant_token tokens[3];
	token_of(RIG_GRANTED, 8, 4000, NEAP_MAY_WRITE, CLIENT, &tokens[0]);
	token_of(RIG_GRANTED, 0, 4000, NEAP_MAY_READ | NEAP_MAY_WRITE, OTHER_CLIENT, &tokens[1]);
	tokens[2] = tokens[0];
	tokens[2].bytes[31] ^= 1;
	for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
		try_refusal(&refusals[i], tokens);
	for (size_t i = 0; i < 8192; i++)
		ck_assert_uint_eq(rig.region[RIG_GRANTED][i], 0);
	end();
}
END_TEST

static void break_it(const unsigned char *bytes, size_t length)
{
	struct peer broken;
	static uint64_t lane = 100;
	uint64_t errors = rig.stats.protocol_errors;
	peer_open(&broken, &rig);
	peer_hello(&broken, CLIENT, lane++, 0, 0);
	peer_send(&broken, bytes, length);
	ck_assert_int_eq(peer_wait_end(&broken), PEER_RESET);
	ck_assert_uint_eq(rig.stats.protocol_errors, errors + 1);
	peer_close(&broken, false);
}

START_TEST(bad_frames_cost_their_connection)
{
	static const struct {
		uint32_t count, grants;
	} heads[] = {{0, 0}, {257, 0}, {UINT32_MAX, 0}, {1, 257}, {1, UINT32_MAX}};
	begin(_i, false);
	for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
		struct wire_bytes w = out();
		wire_frame(&w, heads[i].count, heads[i].grants);
		break_it(w.at, w.length);
	}
	struct wire_bytes w = out();
	wire_plain(&w, 8, at(RIG_OPEN_A, 0), 0x80);
	break_it(w.at, w.length);
	w = out();
	wire_frame(&w, 2, 0);
	wire_entry(&w, READ, at(RIG_OPEN_A, 0), 8, 0);
	wire_entry(&w, WRITE, at(RIG_OPEN_A, 0), UINT64_C(1) << 63, 0);
	break_it(w.at, w.length);
	still_works();
	end();
}
END_TEST

/* A frame as large as they come, with everything in it: 256 entries, 256 tokens, payloads of all sizes. */
static struct wire_bytes large_frame(const struct neap_grant_token *token, bool checksum, size_t payload)
{
	struct wire_bytes w = out();
	wire_frame(&w, 256, 256);
	for (unsigned i = 0; i < 256; i++)
		wire_entry(&w, i % 4 == 3 ? READ : WRITE, at(i % 2 ? RIG_OPEN_A : RIG_GRANTED, i * payload), payload - i % 7,
		           i % 2 ? 0 : i + 1);
	for (unsigned i = 0; i < 256; i++)
		wire_put(&w, token->bytes, 32);
	for (unsigned i = 0; i < 256; i++)
		if (i % 4 != 3) {
			wire_put(&w, pattern(payload - i % 7, i), payload - i % 7);
			if (checksum)
				wire_trailer(&w, pattern(payload - i % 7, i), payload - i % 7);
		}
	return w;
}

static void expect_large_frame(bool checksum, size_t payload)
{
	for (unsigned i = 0; i < 256; i++) {
		size_t length = payload - i % 7;
		peer_expect_word(&peer, OK);
		if (i % 4 != 3) {
			ck_assert_int_eq(memcmp(rig.region[i % 2 ? RIG_OPEN_A : RIG_GRANTED] + i * payload, pattern(length, i), length), 0);
			continue;
		}
		static unsigned char got[16384];
		unsigned char trailer[8];
		struct wire_bytes w = {.at = trailer, .size = 8};
		peer_take(&peer, got, length);
		ck_assert_int_eq(memcmp(got, rig.region[RIG_OPEN_A] + i * payload, length), 0);
		wire_trailer(&w, got, length);
		if (checksum)
			peer_expect(&peer, trailer, 8);
	}
}

START_TEST(large_frames)
{
	static const size_t payloads[] = {16000, 4096, 100, 8};
	for (unsigned checksum = 0; checksum < 2; checksum++) {
		begin(_i, checksum);
		struct neap_grant_token token;
		session_rig_fill(&rig);
		token_of(RIG_GRANTED, 0, SESSION_RIG_REGION, NEAP_MAY_READ | NEAP_MAY_WRITE, NULL, &token);
		for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++)
			for (unsigned round = 0; round < 3; round++) {
				struct wire_bytes w = large_frame(&token, checksum, payloads[i]);
				peer_send(&peer, w.at, w.length);
				expect_large_frame(checksum, payloads[i]);
			}
		peer_expect_silence(&peer);
		end();
	}
}
END_TEST

START_TEST(small_calls)
{
	static const size_t limits[] = {3, 17, 1000, 14353, 100000};
	for (size_t k = 0; k < sizeof limits / sizeof limits[0]; k++) {
		begin(SESSION_RIG_VIRTUAL, k != 1);
		struct neap_grant_token token;
		token_of(RIG_GRANTED, 0, SESSION_RIG_REGION, NEAP_MAY_READ | NEAP_MAY_WRITE, NULL, &token);
		peer.pair.ends[0].call_max = limits[k];
		for (unsigned round = 0; round < 2; round++) {
			struct wire_bytes w = large_frame(&token, k != 1, 600);
			peer_send(&peer, w.at, w.length);
			expect_large_frame(k != 1, 600);
		}
		end();
	}
}
END_TEST

START_TEST(every_split)
{
	begin(_i, true);
	struct neap_grant_token token;
	token_of(RIG_GRANTED, 0, 4096, NEAP_MAY_WRITE, CLIENT, &token);
	struct wire_bytes w = out();
	wire_frame(&w, 4, 1);
	wire_entry(&w, WRITE, at(RIG_OPEN_A, 0), 5, 0);
	wire_entry(&w, READ, at(RIG_OPEN_A, 0), 5, 0);
	wire_entry(&w, WRITE, at(RIG_CLOSED, 0), 6, 0);
	wire_entry(&w, WRITE, at(RIG_GRANTED, 0), 40, 1);
	wire_put(&w, token.bytes, 32);
	wire_put(&w, "first", 5);
	wire_trailer(&w, (const unsigned char *)"first", 5);
	wire_put(&w, "lost..", 6);
	wire_trailer(&w, (const unsigned char *)"lost..", 6);
	wire_put(&w, pattern(40, 3), 40);
	wire_trailer(&w, pattern(40, 3), 40);
	for (size_t cut = 0; cut <= w.length; cut++) {
		memset(rig.region[RIG_OPEN_A], 0, 8);
		memset(rig.region[RIG_GRANTED], 0, 64);
		peer_send(&peer, w.at, cut);
		peer_send(&peer, w.at + cut, w.length - cut);
		peer_expect_words(&peer, OK, 2);
		unsigned char trailer[8];
		struct wire_bytes t = {.at = trailer, .size = 8};
		wire_trailer(&t, (const unsigned char *)"first", 5);
		peer_expect(&peer, "first", 5);
		peer_expect(&peer, trailer, 8);
		peer_expect_word(&peer, REJECTED);
		peer_expect_word(&peer, OK);
		ck_assert_mem_eq(rig.region[RIG_GRANTED], pattern(40, 3), 40);
	}
	end();
}
END_TEST

START_TEST(damaged_payloads_are_found)
{
	begin(_i, true);
	struct wire_bytes w = out();
	unsigned char *payload = pattern(100000, 1);
	for (unsigned round = 0; round < 2; round++) {
		wire_frame(&w, 2, 0);
		wire_entry(&w, WRITE, at(RIG_OPEN_A, 0), 100000, 0);
		wire_entry(&w, WRITE, at(RIG_OPEN_B, 0), 100000, 0);
		for (unsigned i = 0; i < 2; i++) {
			wire_put(&w, payload, 100000);
			wire_trailer(&w, payload, 100000);
		}
		w.at[w.length - (round ? 7 : 50000)] ^= 0x10; /* the sum itself; the bytes */
	}
	peer_send(&peer, w.at, w.length);
	peer_expect_word(&peer, OK);
	peer_expect_word(&peer, CHECKSUM);
	peer_expect_word(&peer, OK);
	peer_expect_word(&peer, CHECKSUM);
	ck_assert_uint_eq(rig.stats.requests_served, 2);
	end();
}
END_TEST

/* Far more answers than there is room for: all arrive, in order, whatever the reader's pace. */
START_TEST(more_requests_than_room)
{
	begin(_i, false);
	session_rig_fill(&rig);
	size_t sent = 0, taken = 0;
	struct wire_bytes w = out();
	for (unsigned f = 0; f < 40; f++) {
		wire_frame(&w, 256, 0);
		for (unsigned i = 0; i < 256; i++)
			wire_entry(&w, READ, at(RIG_OPEN_A, f * 256 + i), 700, 0);
	}
	for (unsigned answer = 0; answer < 40 * 256; answer++) {
		while (sent < w.length) {
			size_t n = peer_send_some(&peer, w.at + sent, w.length - sent);
			sent += n;
			if (n == 0)
				break;
		}
		peer_expect_word(&peer, OK);
		peer_expect(&peer, rig.region[RIG_OPEN_A] + answer, 700);
		taken++;
	}
	ck_assert_uint_eq(taken, 40 * 256);
	peer_expect_silence(&peer);
	still_works();
	end();
}
END_TEST

/* --- memory that goes --------------------------------------------------------------------------------------------------- */

static bool gone;

static void note_gone(void *user)
{
	(void)user;
	gone = true;
}

static void wait_gone(void)
{
	for (unsigned i = 0; i < 1000 && !gone; i++)
		session_rig_pass(&rig, 1);
	ck_assert(gone);
	gone = false;
}

START_TEST(grant_ends_in_the_middle_of_a_payload)
{
	begin(_i, false);
	struct neap_grant_token token;
	token_of(RIG_GRANTED, 0, SESSION_RIG_REGION, NEAP_MAY_WRITE, CLIENT, &token);
	struct wire_bytes w = out();
	wire_frame(&w, 2, 1);
	wire_entry(&w, WRITE, at(RIG_GRANTED, 0), 1000000, 1);
	wire_entry(&w, WRITE, at(RIG_GRANTED, 2000000), 1000000, 1);
	wire_put(&w, token.bytes, 32);
	size_t head = w.length;
	memset(w.at + w.length, 0x77, 2000000);
	w.length += 2000000;
	peer_send(&peer, w.at, head + 300000);
	session_rig_pass(&rig, 5);
	ck_assert_int_eq(neap_registry_grant_end(rig.registry, &token, note_gone, NULL), NEAP_OK);
	wait_gone();
	memset(rig.region[RIG_GRANTED], 0x11, SESSION_RIG_REGION); /* it belongs to somebody else now */
	peer_send(&peer, w.at + head + 300000, 1700000);
	peer_expect_words(&peer, REVOKED, 2);
	for (size_t i = 0; i < SESSION_RIG_REGION; i++)
		if (rig.region[RIG_GRANTED][i] != 0x11)
			ck_abort_msg("byte %zu was stored late", i);
	still_works();
	end();
}
END_TEST

START_TEST(region_goes_in_the_middle_of_a_plain_payload)
{
	for (unsigned opcode = 1; opcode <= 0x81; opcode += 0x80) {
		session_rig_open(&rig, (enum session_rig_kind)_i);
		session_rig_start(&rig);
		peer_open(&peer, &rig);
		struct wire_bytes w = out();
		wire_plain(&w, 2000000, at(RIG_OPEN_A, 0), opcode);
		size_t head = w.length;
		memset(w.at + w.length, 0x77, 2000000);
		peer_send(&peer, w.at, head + 300000);
		session_rig_pass(&rig, 5);
		ck_assert_int_eq(neap_registry_unregister(rig.registry, rig.ids[RIG_OPEN_A], note_gone, NULL), NEAP_OK);
		wait_gone();
		memset(rig.region[RIG_OPEN_A], 0x11, SESSION_RIG_REGION);
		(void)peer_send_some(&peer, w.at + head + 300000, 1700000);
		ck_assert_int_eq(peer_wait_end(&peer), PEER_RESET); /* "refused" would mean that nothing was stored */
		for (size_t i = 0; i < SESSION_RIG_REGION; i++)
			if (rig.region[RIG_OPEN_A][i] != 0x11)
				ck_abort_msg("byte %zu was stored late", i);
		end();
	}
}
END_TEST

START_TEST(region_goes_before_a_plain_payload)
{
	for (unsigned opcode = 1; opcode <= 0x81; opcode += 0x80) {
		session_rig_open(&rig, (enum session_rig_kind)_i);
		session_rig_start(&rig);
		peer_open(&peer, &rig);
		struct wire_bytes w = out();
		wire_plain(&w, 50000, at(RIG_OPEN_A, 0), opcode);
		peer_send(&peer, w.at, w.length);
		session_rig_pass(&rig, 5);
		ck_assert_int_eq(neap_registry_unregister(rig.registry, rig.ids[RIG_OPEN_A], note_gone, NULL), NEAP_OK);
		wait_gone();
		memset(buffer, 0x77, 50000);
		(void)peer_send_some(&peer, buffer, 50000);
		if (opcode & 0x80)
			peer_expect(&peer, PEER_REJECTED, 8);
		ck_assert_int_eq(peer_wait_end(&peer), opcode & 0x80 ? PEER_FIN : PEER_RESET);
		ck_assert_uint_eq(rig.region[RIG_OPEN_A][0], 0);
		end();
	}
}
END_TEST

/* How far a READ whose answer has not been sent at all, or in part, when its memory goes. */
static void ask_more_than_fits(void)
{
	struct wire_bytes w = out();
	wire_frame(&w, 3, 0);
	wire_entry(&w, READ, at(RIG_OPEN_B, 0), SESSION_RIG_REGION, 0);
	wire_entry(&w, READ, at(RIG_OPEN_A, 0), 8, 0);
	wire_entry(&w, READ, at(RIG_OPEN_B, 0), 4, 0);
	peer_send(&peer, w.at, w.length);
	session_rig_pass(&rig, 5);
}

static void unregister(int region)
{
	ck_assert_int_eq(neap_registry_unregister(rig.registry, rig.ids[region], note_gone, NULL), NEAP_OK);
	wait_gone();
}

START_TEST(read_is_revoked_before_its_answer)
{
	begin(SESSION_RIG_VIRTUAL, false);
	session_rig_fill(&rig);
	ask_more_than_fits();
	unregister(RIG_OPEN_A);
	peer_expect_word(&peer, OK);
	peer_expect(&peer, rig.region[RIG_OPEN_B], SESSION_RIG_REGION);
	peer_expect_word(&peer, REVOKED);
	peer_expect_word(&peer, OK);
	peer_expect(&peer, rig.region[RIG_OPEN_B], 4);
	still_works();
	end();
}
END_TEST

START_TEST(read_is_revoked_in_the_middle)
{
	begin(SESSION_RIG_VIRTUAL, false);
	ask_more_than_fits();
	unregister(RIG_OPEN_B);
	peer_take(&peer, buffer, 1000);
	ck_assert_int_eq(peer.pair.ends[1].reset, 0);
	session_rig_pass(&rig, 1);
	ck_assert(peer.pair.ends[0].closed && peer.pair.ends[0].abortive);
	end();
}
END_TEST

/* Plain: another status in its place and the end, or in v1 the end alone. */
START_TEST(plain_read_is_revoked)
{
	for (unsigned v2 = 0; v2 < 2; v2++) {
		session_rig_open(&rig, SESSION_RIG_VIRTUAL);
		session_rig_start(&rig);
		peer_open(&peer, &rig);
		struct wire_bytes w = out();
		wire_plain(&w, SESSION_RIG_REGION, at(RIG_OPEN_B, 0), 0x80);
		wire_plain(&w, 8, at(RIG_OPEN_A, 0), v2 ? 0x80 : 0);
		wire_plain(&w, 8, at(RIG_OPEN_B, 0), 0x80);
		peer_send(&peer, w.at, w.length);
		session_rig_pass(&rig, 5);
		unregister(RIG_OPEN_A);
		peer_expect(&peer, PEER_OK, 8);
		peer_expect(&peer, rig.region[RIG_OPEN_B], SESSION_RIG_REGION);
		if (v2)
			peer_expect(&peer, PEER_REJECTED, 8);
		ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
		end();
	}
}
END_TEST

/* --- fencing ---------------------------------------------------------------------------------------------------------------- */

START_TEST(new_lane_fences_the_old)
{
	begin(_i, false);
	struct wire_bytes w = out();
	wire_frame(&w, 1, 0);
	wire_entry(&w, WRITE, at(RIG_OPEN_A, 0), 3000000, 0);
	memset(w.at + w.length, 0x77, 1000000);
	w.length += 1000000;
	peer_send(&peer, w.at, w.length);
	session_rig_pass(&rig, 5);
	struct peer fresh;
	peer_open(&fresh, &rig);
	ck_assert_uint_eq(peer_hello(&fresh, CLIENT, 2, 1, 0), 1);
	memset(rig.region[RIG_OPEN_A], 0x11, SESSION_RIG_REGION); /* what is repeated on the new lane */
	ck_assert_int_eq(peer_wait_end(&peer), PEER_RESET);
	session_rig_pass(&rig, 5);
	for (size_t i = 0; i < SESSION_RIG_REGION; i++)
		if (rig.region[RIG_OPEN_A][i] != 0x11)
			ck_abort_msg("byte %zu was stored by the fenced lane", i);
	ck_assert_uint_eq(neap_tcp_server_sessions(rig.server), 1);
	peer_close(&fresh, false);
	end();
}
END_TEST

/* Only what is known is confirmed: not the same lane number of another client, not a lane that never was here. */
START_TEST(fences_are_the_clients_own)
{
	begin(_i, false);
	struct peer other, third;
	peer_open(&other, &rig);
	ck_assert_uint_eq(peer_hello(&other, OTHER_CLIENT, 2, 1, 0), 0);
	still_works();
	peer_open(&third, &rig);
	ck_assert_uint_eq(peer_hello(&third, CLIENT, 3, 77, 0), 0);
	still_works();
	peer_close(&third, false);
	peer_close(&other, false);
	end();
}
END_TEST

START_TEST(lanes_that_ended_by_themselves)
{
	begin(SESSION_RIG_VIRTUAL, false);
	struct peer fresh;
	peer_close(&peer, true);
	session_rig_pass(&rig, 5);
	peer_open(&fresh, &rig);
	ck_assert_uint_eq(peer_hello(&fresh, CLIENT, 2, 1, 0), 1);
	peer_close(&fresh, false);
	/* a thousand lanes later the first is forgotten, the latest are not */
	for (uint64_t lane = 3; lane < 1100; lane++) {
		peer_open(&fresh, &rig);
		ck_assert_uint_eq(peer_hello(&fresh, CLIENT, lane, lane - 1, 0), lane - 1);
		peer_close(&fresh, false);
		session_rig_pass(&rig, 1);
	}
	peer_open(&peer, &rig);
	ck_assert_uint_eq(peer_hello(&peer, CLIENT, 2000, 1, 0), 0);
	end();
}
END_TEST

START_TEST(idle_lane_is_fenced_too)
{
	begin(_i, false);
	struct peer fresh;
	peer_open(&fresh, &rig);
	ck_assert_uint_eq(peer_hello(&fresh, CLIENT, 9, 1, 0), 1);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_RESET);
	peer_close(&fresh, false);
	end();
}
END_TEST

static void add_both(TCase *tcase, const TTest *test)
{
	tcase_add_loop_test(tcase, test, SESSION_RIG_SOCKETS, SESSION_RIG_VIRTUAL + 1);
}

static Suite *make_suite(void)
{
	Suite *suite = suite_create("session, Neap level");
	TCase *hello = tcase_create("hello"), *frames = tcase_create("frames"), *going = tcase_create("going"),
	      *fences = tcase_create("fences");
	add_both(hello, hello_agrees_on_checksums);
	add_both(hello, hello_is_refused);
	add_both(hello, hello_waits_for_its_answer);
	add_both(hello, hello_comes_first_or_not_at_all);
	add_both(hello, hello_to_a_process_that_speaks_plainly);
	add_both(frames, answers_come_in_order);
	add_both(frames, refusals_are_words);
	add_both(frames, bad_frames_cost_their_connection);
	add_both(frames, large_frames);
	tcase_add_test(frames, small_calls);
	add_both(frames, every_split);
	add_both(frames, damaged_payloads_are_found);
	add_both(frames, more_requests_than_room);
	add_both(going, grant_ends_in_the_middle_of_a_payload);
	add_both(going, region_goes_before_a_plain_payload);
	add_both(going, region_goes_in_the_middle_of_a_plain_payload);
	tcase_add_test(going, read_is_revoked_before_its_answer);
	tcase_add_test(going, read_is_revoked_in_the_middle);
	tcase_add_test(going, plain_read_is_revoked);
	add_both(fences, new_lane_fences_the_old);
	add_both(fences, fences_are_the_clients_own);
	add_both(fences, idle_lane_is_fenced_too);
	tcase_add_test(fences, lanes_that_ended_by_themselves);
	TCase *const all[] = {hello, frames, going, fences};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		tcase_set_timeout(all[i], 60);
		suite_add_tcase(suite, all[i]);
	}
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(make_suite());
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
