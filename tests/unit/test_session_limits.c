/* Deadlines and bounds of served connections, on virtual time over memory streams: first header 200 ms, progress 300 ms, drain
 * 100 ms. */
#include "tests/support/session_peer.h"
#include "transports/tcp/session.h"
#include "transports/tcp/session_fsm.h"

#include <check.h>
#include <stdlib.h>

static struct session_rig rig;
static struct peer peer;
static unsigned char buffer[4 * 1024 * 1024];

static void begin(void)
{
	session_rig_open(&rig, SESSION_RIG_VIRTUAL);
	session_rig_start(&rig);
	peer_open(&peer, &rig);
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

static void ask(unsigned opcode, uint64_t address, uint64_t size, size_t payload)
{
	struct wire_bytes w = out();
	wire_plain(&w, size, address, opcode);
	w.length += payload;
	peer_send(&peer, w.at, w.length);
}

/* The server has closed this connection; an abortive end is a reset for the peer. */
static void closed_by_server(bool abortive)
{
	ck_assert(peer.pair.ends[0].closed);
	ck_assert_int_eq(peer.pair.ends[0].abortive, abortive);
	ck_assert_uint_eq(neap_tcp_server_sessions(rig.server), 0);
	ck_assert_uint_eq(rig.server->works.used, 0);
	ck_assert_uint_eq(rig.server->spills.used, 0);
}

static uint8_t state_of_only_session(void)
{
	uint32_t index = 0;
	struct neap_tcp_session *session = neap_pool_next(&rig.server->sessions, &index);
	ck_assert_ptr_nonnull(session);
	return session->machine.state;
}

/* --- the first header ------------------------------------------------------------------------------------------------------- */

START_TEST(silence_has_a_deadline)
{
	begin();
	session_rig_pass(&rig, 199);
	ck_assert(!peer.pair.ends[0].closed);
	session_rig_pass(&rig, 2);
	closed_by_server(true);
	end();
}
END_TEST

START_TEST(seventeen_bytes_wait_for_seven)
{
	begin();
	struct wire_bytes w = out();
	wire_plain(&w, 8, at(RIG_OPEN_A, 0), 0x80);
	peer_send(&peer, w.at, 17);
	session_rig_pass(&rig, 199);
	peer_expect_silence(&peer);
	session_rig_pass(&rig, 2);
	closed_by_server(true);
	end();
}
END_TEST

/* One byte now and then does not stretch it. */
START_TEST(first_header_deadline_is_total)
{
	begin();
	for (unsigned i = 0; i < 20; i++) {
		peer_send(&peer, "\1", 1);
		session_rig_pass(&rig, 9);
	}
	ck_assert(!peer.pair.ends[0].closed);
	session_rig_pass(&rig, 21);
	closed_by_server(true);
	end();
}
END_TEST

START_TEST(half_a_hello)
{
	begin();
	struct wire_bytes w = out();
	wire_hello(&w, &(struct wire_hello){"client instance.", (const char *)rig.view.instance, 7, 0, 1, 0, 0});
	peer_send(&peer, w.at, 95);
	session_rig_pass(&rig, 201);
	closed_by_server(true);
	end();
}
END_TEST

START_TEST(ends_before_the_first_header)
{
	begin();
	peer_close(&peer, false);
	ck_assert_uint_eq(neap_tcp_server_sessions(rig.server), 0);
	peer_open(&peer, &rig);
	peer_close(&peer, true);
	ck_assert_uint_eq(neap_tcp_server_sessions(rig.server), 0);
	session_rig_close(&rig);
}
END_TEST

/* The first request already leaves more to send than fits. */
START_TEST(first_request_blocks)
{
	begin();
	ask(0x80, at(RIG_OPEN_A, 0), 1000000, 0);
	ck_assert_uint_eq(state_of_only_session(), tcp_session_REPLYING);
	peer_take(&peer, buffer, 1000008);
	session_rig_settle(&rig);
	ck_assert_uint_eq(state_of_only_session(), tcp_session_IDLE);
	end();
}
END_TEST

/* --- idle ------------------------------------------------------------------------------------------------------------------- */

START_TEST(idle_connections_stay)
{
	begin();
	ask(0x81, at(RIG_OPEN_A, 0), 8, 8);
	peer_expect(&peer, PEER_OK, 8);
	ck_assert_uint_eq(rig.server->works.used, 0);
	ck_assert_uint_eq(neap_reactor_deadline_ns(rig.reactor), UINT64_MAX); /* and cost no wake-up */
	session_rig_pass(&rig, 24 * 3600 * 1000);
	ask(0x81, at(RIG_OPEN_A, 0), 8, 8);
	peer_expect(&peer, PEER_OK, 8);
	peer_close(&peer, true);
	ck_assert_uint_eq(neap_tcp_server_sessions(rig.server), 0);
	session_rig_close(&rig);
}
END_TEST

/* --- progress --------------------------------------------------------------------------------------------------------------- */

START_TEST(payload_progress_slides)
{
	begin();
	ask(0x81, at(RIG_OPEN_A, 0), 100, 1);
	for (unsigned i = 1; i < 50; i++) {
		session_rig_pass(&rig, 250);
		ck_assert(!peer.pair.ends[0].closed);
		peer_send(&peer, "x", 1);
	}
	session_rig_pass(&rig, 299);
	ck_assert(!peer.pair.ends[0].closed);
	session_rig_pass(&rig, 3);
	closed_by_server(true);
	end();
}
END_TEST

/* The mark that saves wake-ups for large payloads hides bytes that do arrive. */
START_TEST(slow_sender_of_a_large_payload)
{
	begin();
	ask(0x81, at(RIG_OPEN_A, 0), 300000, 100);
	for (unsigned i = 0; i < 40; i++) {
		session_rig_pass(&rig, 100);
		ck_assert(!peer.pair.ends[0].closed);
		peer_send(&peer, buffer, 100);
	}
	session_rig_pass(&rig, 603);
	closed_by_server(true);
	end();
}
END_TEST

START_TEST(header_in_the_middle_of_a_connection)
{
	begin();
	ask(0x81, at(RIG_OPEN_A, 0), 8, 8);
	peer_expect(&peer, PEER_OK, 8);
	session_rig_pass(&rig, 5000);
	peer_send(&peer, "\1", 1);
	ck_assert_uint_eq(state_of_only_session(), tcp_session_RECEIVING);
	session_rig_pass(&rig, 302);
	closed_by_server(true);
	end();
}
END_TEST

START_TEST(reader_that_never_reads)
{
	begin();
	for (unsigned i = 0; i < 100; i++)
		ask(0x80, at(RIG_OPEN_A, 0), 100000, 0);
	ck_assert_uint_eq(state_of_only_session(), tcp_session_REPLYING);
	session_rig_pass(&rig, 299);
	ck_assert(!peer.pair.ends[0].closed);
	session_rig_pass(&rig, 3);
	closed_by_server(true);
	end();
}
END_TEST

/* It goes on asking, but what counts is what it takes. */
START_TEST(asking_is_no_progress_while_answers_wait)
{
	begin();
	ask(0x80, at(RIG_OPEN_A, 0), 1000000, 0);
	for (unsigned i = 0; i < 10; i++) {
		session_rig_pass(&rig, 29);
		ask(0x80, at(RIG_OPEN_A, 0), 8, 0);
	}
	ck_assert(!peer.pair.ends[0].closed);
	session_rig_pass(&rig, 15);
	closed_by_server(true);
	end();
}
END_TEST

START_TEST(slow_reader_is_served)
{
	begin();
	ask(0x80, at(RIG_OPEN_A, 0), 1000000, 0);
	for (size_t taken = 0; taken < 1000008;) {
		size_t piece = 1000008 - taken < 50000 ? 1000008 - taken : 50000;
		peer_take(&peer, buffer, piece);
		taken += piece;
		session_rig_pass(&rig, 250);
	}
	ck_assert(!peer.pair.ends[0].closed);
	session_rig_pass(&rig, 5000);
	ck_assert(!peer.pair.ends[0].closed);
	end();
}
END_TEST

/* A reader that never reads and never stops asking: what the server takes on is bounded, then the peer feels it. */
START_TEST(answers_that_wait_are_bounded)
{
	begin();
	struct wire_bytes w = out();
	for (unsigned i = 0; i < 100000; i++)
		wire_plain(&w, 1000, at(RIG_OPEN_A, i), i % 2 ? 0x80 : 0);
	size_t taken = 0;
	for (unsigned idle = 0; idle < 10; idle++) {
		size_t n = peer_send_some(&peer, w.at + taken, w.length - taken);
		taken += n;
		session_rig_settle(&rig);
		if (n)
			idle = 0;
	}
	ck_assert_uint_lt(taken, 600 * 24 + 2 * 64 * 1024 + NEAP_TCP_STAGING_BYTES);
	ck_assert_uint_le(rig.server->spills.used, 1);
	ck_assert_uint_eq(rig.server->works.used, 1);
	/* and nothing is lost */
	for (unsigned i = 0; i < 100000; i++) {
		if (i % 2)
			peer_expect(&peer, PEER_OK, 8);
		peer_expect(&peer, rig.region[RIG_OPEN_A] + i, 1000);
		taken += taken < w.length ? peer_send_some(&peer, w.at + taken, w.length - taken) : 0;
	}
	session_rig_settle(&rig);
	ck_assert_uint_eq(rig.server->works.used, 0);
	end();
}
END_TEST

/* More sessions of that kind than there is memory for what was read ahead: the later ones are read less ahead. */
START_TEST(spills_run_out)
{
	static struct peer peers[40];
	session_rig_open(&rig, SESSION_RIG_VIRTUAL);
	rig.options.sessions_max = 40;
	session_rig_start(&rig);
	session_rig_fill(&rig);
	struct wire_bytes w = out();
	for (unsigned i = 0; i < 2400; i++)
		wire_plain(&w, 100, at(RIG_OPEN_A, i), 0x80);
	for (unsigned p = 0; p < 40; p++) {
		peer_open(&peers[p], &rig);
		peer_send(&peers[p], w.at, w.length);
	}
	ck_assert_uint_eq(rig.server->spills.used, rig.server->spills.capacity);
	for (unsigned p = 0; p < 40; p++) {
		for (unsigned i = 0; i < 2400; i++) {
			peer_expect(&peers[p], PEER_OK, 8);
			peer_expect(&peers[p], rig.region[RIG_OPEN_A] + i, 100);
		}
		peer_close(&peers[p], false);
	}
	ck_assert_uint_eq(rig.server->spills.used, 0);
	session_rig_close(&rig);
}
END_TEST

START_TEST(resets_while_receiving_and_replying)
{
	begin();
	ask(0x81, at(RIG_OPEN_A, 0), 100, 1);
	peer_close(&peer, true);
	ck_assert_uint_eq(neap_tcp_server_sessions(rig.server), 0);
	peer_open(&peer, &rig);
	ask(0x80, at(RIG_OPEN_A, 0), 1000000, 0);
	peer_close(&peer, true);
	ck_assert_uint_eq(neap_tcp_server_sessions(rig.server), 0);
	ck_assert_uint_eq(rig.server->works.used, 0);
	session_rig_close(&rig);
}
END_TEST

/* The phases that follow one another without rest. */
START_TEST(receiving_and_replying_alternate)
{
	begin();
	ask(0x81, at(RIG_OPEN_B, 0), 8, 8);
	peer_expect(&peer, PEER_OK, 8);
	ask(0x81, at(RIG_OPEN_B, 0), 8, 4);
	ck_assert_uint_eq(state_of_only_session(), tcp_session_RECEIVING);
	struct wire_bytes w = out();
	w.length = 4;
	wire_plain(&w, 1000000, at(RIG_OPEN_A, 0), 0x80);
	wire_plain(&w, 8, at(RIG_OPEN_B, 0), 0x81);
	w.length += 2;
	peer_send(&peer, w.at, w.length);
	ck_assert_uint_eq(state_of_only_session(), tcp_session_REPLYING);
	peer_take(&peer, buffer, 8 + 8 + 1000000);
	session_rig_settle(&rig);
	ck_assert_uint_eq(state_of_only_session(), tcp_session_RECEIVING);
	/* in RECEIVING time counts from now, whatever came before */
	session_rig_pass(&rig, 290);
	ck_assert(!peer.pair.ends[0].closed);
	peer_send(&peer, w.at, 6);
	peer_expect(&peer, PEER_OK, 8);
	ck_assert_uint_eq(state_of_only_session(), tcp_session_IDLE);
	/* idle, then at once more answers than fit */
	ask(0x80, at(RIG_OPEN_A, 0), 1000000, 0);
	ck_assert_uint_eq(state_of_only_session(), tcp_session_REPLYING);
	/* end of file while answers wait */
	peer_half_close(&peer);
	peer_take(&peer, buffer, 1000008);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	end();
}
END_TEST

/* --- refusals --------------------------------------------------------------------------------------------------------------- */

/* In each phase: with nothing under way, with half a request, with answers that wait. */
START_TEST(refused_in_each_phase)
{
	begin();
	ask(0x81, at(RIG_OPEN_A, 0), 8, 8);
	peer_expect(&peer, PEER_OK, 8);
	ask(0x80, 0, 8, 0);
	peer_expect(&peer, PEER_REJECTED, 8);
	peer_close(&peer, false);

	peer_open(&peer, &rig);
	ask(0x81, at(RIG_OPEN_A, 0), 8, 8);
	struct wire_bytes w = out();
	wire_plain(&w, 8, 0, 0x80);
	peer_send(&peer, w.at, 20);
	peer_send(&peer, w.at + 20, 4);
	peer_expect(&peer, PEER_OK PEER_REJECTED, 16);
	peer_close(&peer, false);

	peer_open(&peer, &rig);
	ask(0x80, at(RIG_OPEN_A, 0), 150000, 0);
	ask(0x80, 0, 8, 0);
	ck_assert_uint_eq(state_of_only_session(), tcp_session_REFUSING);
	peer_take(&peer, buffer, 150008);
	peer_expect(&peer, PEER_REJECTED, 8);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	end();
}
END_TEST

START_TEST(refused_peer_that_does_not_close)
{
	begin();
	ask(0x80, 0, 8, 0);
	peer_expect(&peer, PEER_REJECTED, 8);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	session_rig_pass(&rig, 90);
	ck_assert(!peer.pair.ends[0].closed);
	session_rig_pass(&rig, 12);
	closed_by_server(false);
	end();
}
END_TEST

START_TEST(refused_peer_that_does_not_stop)
{
	begin();
	ask(0x81, 0, UINT64_C(1) << 40, 0);
	for (unsigned ms = 0; ms < 99; ms++) {
		peer_send(&peer, buffer, 100000);
		session_rig_pass(&rig, 1);
	}
	ck_assert(!peer.pair.ends[0].closed);
	session_rig_pass(&rig, 3);
	closed_by_server(false);
	end();
}
END_TEST

START_TEST(refused_peer_that_does_not_read)
{
	begin();
	ask(0x80, at(RIG_OPEN_A, 0), 150000, 0);
	ask(0x80, 0, 8, 0);
	session_rig_pass(&rig, 102);
	closed_by_server(true);
	end();
}
END_TEST

START_TEST(refused_peer_resets)
{
	begin();
	ask(0x81, 0, 8, 8);
	ck_assert_uint_eq(state_of_only_session(), tcp_session_REFUSING);
	peer_close(&peer, true);
	ck_assert_uint_eq(neap_tcp_server_sessions(rig.server), 0);
	session_rig_close(&rig);
}
END_TEST

/* --- cost ------------------------------------------------------------------------------------------------------------------- */

START_TEST(memory_of_an_idle_session)
{
	ck_assert_uint_le(sizeof(struct neap_tcp_session), 192);
	ck_assert_uint_le(sizeof(struct neap_tcp_work), 40 * 1024);
}
END_TEST

/* What arrives together is taken in with one call and answered with one. */
START_TEST(calls_are_few)
{
	begin();
	struct wire_bytes w = out();
	for (unsigned i = 0; i < 16; i++) {
		wire_plain(&w, 2000, at(RIG_OPEN_A, i * 2000), 0x81);
		w.length += 2000;
	}
	peer_send_some(&peer, w.at, w.length);
	session_rig_settle(&rig);
	ck_assert_uint_eq(peer.pair.ends[0].reads, 1);
	ck_assert_uint_eq(peer.pair.ends[0].writes, 1);
	ck_assert_uint_eq(rig.stats.system_calls_target, 2);
	for (unsigned i = 0; i < 16; i++)
		peer_expect(&peer, PEER_OK, 8);
	w = out();
	for (unsigned i = 0; i < 16; i++)
		wire_plain(&w, 2000, at(RIG_OPEN_A, i * 2000), 0x80);
	peer_send_some(&peer, w.at, w.length);
	session_rig_settle(&rig);
	ck_assert_uint_eq(rig.stats.system_calls_target, 4);
	peer_take(&peer, buffer, 16 * 2008);
	end();
}
END_TEST

/* Behind a large payload the staging is no longer than the next header: what follows goes straight to its place. */
START_TEST(large_payloads_are_not_copied)
{
	begin();
	for (unsigned i = 0; i < 3; i++) {
		ask(0x81, at(RIG_OPEN_A, 0), 40000, 40000);
		peer_expect(&peer, PEER_OK, 8);
		if (i > 0)
			for (size_t k = 24; k < NEAP_TCP_STAGING_BYTES; k++)
				ck_assert_uint_eq(rig.server->staging[k], 0xEE);
		memset(rig.server->staging, 0xEE, NEAP_TCP_STAGING_BYTES);
		memset(buffer, 0x33, 41000);
	}
	/* and small ones are read many at a time again */
	ask(0x80, at(RIG_OPEN_A, 0), 8, 0);
	peer_take(&peer, buffer, 16);
	uint64_t before = peer.pair.ends[0].reads;
	struct wire_bytes w = out();
	for (unsigned i = 0; i < 10; i++) {
		wire_plain(&w, 100, at(RIG_OPEN_A, 0), 0x81);
		w.length += 100;
	}
	peer_send_some(&peer, w.at, w.length);
	session_rig_settle(&rig);
	ck_assert_uint_eq(peer.pair.ends[0].reads, before + 1);
	end();
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("session limits");
	TCase *first = tcase_create("first header"), *progress = tcase_create("progress"), *refusals = tcase_create("refusals"),
	      *cost = tcase_create("cost");
	tcase_add_test(first, silence_has_a_deadline);
	tcase_add_test(first, seventeen_bytes_wait_for_seven);
	tcase_add_test(first, first_header_deadline_is_total);
	tcase_add_test(first, half_a_hello);
	tcase_add_test(first, ends_before_the_first_header);
	tcase_add_test(first, first_request_blocks);
	tcase_add_test(progress, idle_connections_stay);
	tcase_add_test(progress, payload_progress_slides);
	tcase_add_test(progress, slow_sender_of_a_large_payload);
	tcase_add_test(progress, header_in_the_middle_of_a_connection);
	tcase_add_test(progress, reader_that_never_reads);
	tcase_add_test(progress, asking_is_no_progress_while_answers_wait);
	tcase_add_test(progress, slow_reader_is_served);
	tcase_add_test(progress, answers_that_wait_are_bounded);
	tcase_add_test(progress, spills_run_out);
	tcase_add_test(progress, resets_while_receiving_and_replying);
	tcase_add_test(progress, receiving_and_replying_alternate);
	tcase_add_test(refusals, refused_in_each_phase);
	tcase_add_test(refusals, refused_peer_that_does_not_close);
	tcase_add_test(refusals, refused_peer_that_does_not_stop);
	tcase_add_test(refusals, refused_peer_that_does_not_read);
	tcase_add_test(refusals, refused_peer_resets);
	tcase_add_test(cost, memory_of_an_idle_session);
	tcase_add_test(cost, calls_are_few);
	tcase_add_test(cost, large_payloads_are_not_copied);
	TCase *const all[] = {first, progress, refusals, cost};
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
