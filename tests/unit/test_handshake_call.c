/* Handshake calls over real sockets, against peers of every kind of bad manners. */
#include "metadata/handshake.h"
#include "tests/support/fdcheck.h"
#include "tests/support/raw_peer.h"
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)
#define SHORT_NS UINT64_C(150000000)
#define CALLS_MAX 4

static struct {
	struct neap_reactor *reactor;
	struct neap_handshake_caller *caller;
	int listener, fds_before;
	uint16_t port;
	struct fdcheck fds;
} rig;

struct asked {
	bool done;
	int error, times;
	uint64_t call;
	char json[256], why[400];
	void (*then)(struct asked *asked);
};

static void answered(void *user, int error, const char *json, size_t length, const char *why)
{
	struct asked *asked = user;
	asked->done = true;
	asked->times++;
	asked->error = error;
	(void)snprintf(asked->why, sizeof asked->why, "%s", why);
	(void)snprintf(asked->json, sizeof asked->json, "%.*s", (int)length, json ? json : "");
	if (asked->then)
		asked->then(asked);
}

static void open_rig(const struct neap_socket_options *options, int backlog, int receive_buffer_bytes)
{
	memset(&rig, 0, sizeof rig);
	rig.fds_before = fdcheck_count();
	fdcheck_begin(&rig.fds);
	rig.listener = raw_listen(&rig.port, backlog, receive_buffer_bytes);
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, NULL), 0);
	ck_assert_int_eq(neap_handshake_caller_create(&rig.caller, rig.reactor, CALLS_MAX, 1u << 20, options), 0);
}

static void close_rig(void)
{
	fdcheck_assert(&rig.fds);
	neap_handshake_caller_destroy(rig.caller);
	drive_to_end(rig.reactor);
	close(rig.listener);
	ck_assert_int_eq(fdcheck_count(), rig.fds_before);
}

static int try_ask(struct asked *asked, enum neap_handshake_type type, const char *json, size_t length, uint64_t timeout_ns)
{
	struct neap_host_port peer = {.host = "127.0.0.1", .port = rig.port, .has_port = true};
	*asked = (struct asked){.then = asked->then};
	int error = neap_handshake_call(rig.caller, &peer, type, json, length, timeout_ns, answered, asked, &asked->call);
	ck_assert(!asked->done && (error == 0) == (asked->call != 0));
	return error;
}

static void ask(struct asked *asked, uint64_t timeout_ns)
{
	asked->then = NULL;
	ck_assert_int_eq(try_ask(asked, NEAP_HANDSHAKE_PROBE, "{}", 2, timeout_ns), 0);
}

static void await(struct asked *asked, int error, const char *said)
{
	ck_assert_msg(drive_until(rig.reactor, &asked->done, 10000), "no answer");
	ck_assert_msg(asked->error == error, "error %d, wanted %d: %s", asked->error, error, asked->why);
	ck_assert_msg(strstr(asked->why, said) != NULL, "'%s' says nothing of '%s'", asked->why, said);
	ck_assert_int_eq(asked->times, 1);
	char peer[40];
	(void)snprintf(peer, sizeof peer, "127.0.0.1:%u", rig.port);
	ck_assert_msg(error == 0 || strstr(asked->why, peer) != NULL, "'%s' does not name the peer", asked->why);
}

static const char request[] = "\x03\0\0\0\0\0\0\0\x03{}";
static const char reply[] = "\x16\0\0\0\0\0\0\0\x03{\"status\":\"success\"}\n";

/* The peer has the connection and the whole request. */
static void take_request(struct raw_peer *peer)
{
	raw_accept(rig.reactor, rig.listener, peer);
	ck_assert(raw_await(rig.reactor, peer, sizeof request - 1, 5000));
	ck_assert_mem_eq(peer->bytes, request, sizeof request - 1);
}

/* --- good peers --------------------------------------------------------------------------------------------------- */

START_TEST(asks_and_closes_first)
{
	struct asked asked;
	struct raw_peer peer;
	open_rig(NULL, 10, 0);
	ask(&asked, 5 * SECOND_NS);
	take_request(&peer);
	raw_send(&peer, reply, sizeof reply - 1); /* and it does not close */
	await(&asked, 0, "");
	ck_assert_str_eq(asked.json, "{\"status\":\"success\"}\n");
	ck_assert(raw_await_end(rig.reactor, &peer, 1000) && !peer.reset && peer.have == sizeof request - 1);
	raw_close(&peer);
	close_rig();
}
END_TEST

START_TEST(takes_the_reply_in_pieces)
{
	struct asked asked;
	struct raw_peer peer;
	open_rig(NULL, 10, 0);
	ask(&asked, 5 * SECOND_NS);
	take_request(&peer);
	for (size_t i = 0; i < sizeof reply - 1; i++) {
		ck_assert(!asked.done);
		raw_send(&peer, reply + i, 1);
		drive_for(rig.reactor, 1);
	}
	await(&asked, 0, "");
	raw_close(&peer);
	close_rig();
}
END_TEST

/* One connection at a time, the next only after the first was closed by its client: as the reference serves. */
START_TEST(is_patient_with_a_serial_server)
{
	struct asked asked[3];
	open_rig(NULL, 10, 0);
	for (int i = 0; i < 3; i++)
		ask(&asked[i], 5 * SECOND_NS);
	for (int i = 0; i < 3; i++) {
		struct raw_peer peer;
		take_request(&peer);
		raw_send(&peer, reply, sizeof reply - 1);
		ck_assert(raw_await_end(rig.reactor, &peer, 5000) && !peer.reset);
		ck_assert_int_eq(asked[0].done + asked[1].done + asked[2].done, i + 1);
		raw_close(&peer);
	}
	close_rig();
}
END_TEST

/* What follows the reply is nobody's business; a large request goes out whole. */
START_TEST(large_request_and_extra_bytes)
{
	struct asked asked = {0};
	struct raw_peer peer;
	size_t length = 1000000;
	char *json = malloc(length), more[64];
	struct neap_socket_options options = {.send_buffer_bytes = 8192};
	open_rig(&options, 10, 65536);
	memset(json, ' ', length);
	ck_assert_int_eq(try_ask(&asked, NEAP_HANDSHAKE_PROBE, json, length, 10 * SECOND_NS), 0);
	raw_accept(rig.reactor, rig.listener, &peer);
	ck_assert(raw_await(rig.reactor, &peer, length + 9, 10000));
	ck_assert(memcmp(peer.bytes + 9, json, length) == 0);
	memcpy(more, reply, sizeof reply - 1);
	memcpy(more + sizeof reply - 1, "extra", 5);
	raw_send(&peer, more, sizeof reply + 4);
	await(&asked, 0, "");
	raw_close(&peer);
	free(json);
	close_rig();
}
END_TEST

/* --- bad ones ----------------------------------------------------------------------------------------------------- */

START_TEST(nobody_listens)
{
	struct asked asked;
	open_rig(NULL, 10, 0);
	close(rig.listener);
	ask(&asked, 5 * SECOND_NS);
	await(&asked, NEAP_ESOCKET, "refused");
	rig.listener = raw_listen(&(uint16_t){0}, 1, 0);
	close_rig();
}
END_TEST

START_TEST(name_does_not_resolve)
{
	struct asked asked = {0};
	struct neap_host_port peer = {.host = "no-such-host.invalid", .port = 1, .has_port = true};
	open_rig(NULL, 10, 0);
	ck_assert_int_eq(
		neap_handshake_call(rig.caller, &peer, NEAP_HANDSHAKE_PROBE, "{}", 2, 10 * SECOND_NS, answered, &asked, &asked.call), 0);
	ck_assert(drive_until(rig.reactor, &asked.done, 15000));
	ck_assert_msg(asked.error == NEAP_EDNS || asked.error == NEAP_ETIMEDOUT, "%d", asked.error);
	ck_assert_ptr_nonnull(strstr(asked.why, "no-such-host.invalid:1"));
	close_rig();
}
END_TEST

/* The backlog is full, so the connection is never made. */
START_TEST(black_hole)
{
	struct raw_peer filler[3];
	struct asked asked;
	open_rig(NULL, 0, 0);
	for (int i = 0; i < 3; i++)
		raw_connect(&filler[i], rig.port, 0);
	drive_for(rig.reactor, 5);
	uint64_t start_ns = drive_now_ns();
	ask(&asked, SHORT_NS);
	await(&asked, NEAP_ETIMEDOUT, "connecting");
	ck_assert_uint_ge(drive_now_ns() - start_ns, SHORT_NS);
	for (int i = 0; i < 3; i++)
		raw_close(&filler[i]);
	close_rig();
}
END_TEST

START_TEST(silent_server)
{
	struct asked asked;
	struct raw_peer peer;
	open_rig(NULL, 10, 0);
	uint64_t start_ns = drive_now_ns();
	ask(&asked, SHORT_NS);
	take_request(&peer);
	await(&asked, NEAP_ETIMEDOUT, "waiting for the reply");
	ck_assert_uint_ge(drive_now_ns() - start_ns, SHORT_NS);
	ck_assert(raw_await_end(rig.reactor, &peer, 1000));
	raw_close(&peer);
	close_rig();
}
END_TEST

/* The deadline is for everything; bytes that trickle in do not move it. */
START_TEST(trickling_server)
{
	struct asked asked;
	struct raw_peer peer;
	open_rig(NULL, 10, 0);
	ask(&asked, SHORT_NS);
	take_request(&peer);
	raw_send(&peer, "\xff\0\0\0\0\0\0\0\x03", 9);
	for (int i = 0; i < 200 && !asked.done; i++) {
		raw_send(&peer, "{", 1);
		drive_for(rig.reactor, 10);
	}
	ck_assert(asked.done);
	await(&asked, NEAP_ETIMEDOUT, "150 ms (handshake_timeout_ms)");
	raw_close(&peer);
	close_rig();
}
END_TEST

/* It connects, but takes nothing; then one that goes away meanwhile. */
START_TEST(server_that_takes_nothing)
{
	struct neap_socket_options options = {.send_buffer_bytes = 8192};
	struct asked asked = {0};
	struct raw_peer peer;
	char *json = calloc(1, 1000000);
	open_rig(&options, 10, 4096);
	ck_assert_int_eq(try_ask(&asked, NEAP_HANDSHAKE_METADATA, json, 1000000, SHORT_NS), 0);
	raw_accept(rig.reactor, rig.listener, &peer);
	await(&asked, NEAP_ETIMEDOUT, "sending the request");
	raw_close(&peer);
	ck_assert_int_eq(try_ask(&asked, NEAP_HANDSHAKE_METADATA, json, 1000000, 5 * SECOND_NS), 0);
	raw_accept(rig.reactor, rig.listener, &peer);
	drive_for(rig.reactor, 5);
	raw_reset(&peer);
	await(&asked, NEAP_EPEER, "sending the request");
	free(json);
	close_rig();
}
END_TEST

START_TEST(bad_replies)
{
	static const struct {
		int error;
		const char *said, *bytes;
		size_t length;
	} rows[] = {
#define BYTES(text) text, sizeof text - 1
		{NEAP_EREJECTED, "type 3 was answered with type 0x02", BYTES("\x03\0\0\0\0\0\0\0\x02{}")},
		{NEAP_EREJECTED, "0xff", BYTES("\x03\0\0\0\0\0\0\0\xff{}")},
		{NEAP_EREJECTED, "0x7b", BYTES("\x02\0\0\0\0\0\0\0{}")},
		{NEAP_EPROTO, "0 bytes is announced", BYTES("\0\0\0\0\0\0\0\0")},
		{NEAP_ELIMIT, "1048577 bytes is announced, 1 to 1048576", BYTES("\x01\0\x10\0\0\0\0\0")},
		{NEAP_ELIMIT, "MC_HANDSHAKE_MAX_LENGTH", BYTES("\0\0\0\0\0\0\0\x80")},
		{NEAP_ELIMIT, "is announced", BYTES("HTTP/1.1 400 Bad Request\r\n\r\n")},
		{NEAP_EJSON, "the reply is not valid", BYTES("\x03\0\0\0\0\0\0\0\x03{]")},
		{NEAP_EJSON, "the reply is not valid", BYTES("\x01\0\0\0\0\0\0\0\x03")},
		{NEAP_EPEER, "closed without a reply", BYTES("")},
		{NEAP_EPEER, "in the middle of the reply (0 of", BYTES("\x16\0\0")},
		{NEAP_EPEER, "in the middle of the reply (3 of 22 bytes)", BYTES("\x16\0\0\0\0\0\0\0\x03{\"")},
#undef BYTES
	};
	open_rig(NULL, 10, 0);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct asked asked;
		struct raw_peer peer;
		ask(&asked, 5 * SECOND_NS);
		take_request(&peer);
		if (rows[i].length)
			raw_send(&peer, rows[i].bytes, rows[i].length);
		if (rows[i].error == NEAP_EPEER)
			ck_assert_int_eq(shutdown(peer.fd, SHUT_WR), 0);
		await(&asked, rows[i].error, rows[i].said);
		ck_assert(raw_await_end(rig.reactor, &peer, 1000));
		raw_close(&peer);
	}
	struct asked asked;
	struct raw_peer peer;
	ask(&asked, 5 * SECOND_NS);
	take_request(&peer);
	raw_reset(&peer);
	await(&asked, NEAP_EPEER, "reset");
	close_rig();
}
END_TEST

/* --- limits and life ---------------------------------------------------------------------------------------------- */

START_TEST(limits)
{
	struct asked asked[CALLS_MAX + 1] = {0};
	char *json = calloc(1, 1u << 20);
	open_rig(NULL, 10, 0);
	ck_assert_int_eq(try_ask(&asked[0], NEAP_HANDSHAKE_PROBE, json, 1u << 20, SECOND_NS), NEAP_ELIMIT);
	for (int i = 0; i < CALLS_MAX; i++)
		ask(&asked[i], 5 * SECOND_NS);
	ck_assert_int_eq(try_ask(&asked[CALLS_MAX], NEAP_HANDSHAKE_PROBE, "{}", 2, SECOND_NS), NEAP_EAGAIN);
	neap_handshake_cancel(rig.caller, asked[0].call);
	ck_assert_int_eq(try_ask(&asked[CALLS_MAX], NEAP_HANDSHAKE_PROBE, "{}", 2, SECOND_NS), 0);
	struct neap_host_port nowhere = {.host = "127.0.0.1"};
	ck_assert_int_eq(
		neap_handshake_call(rig.caller, &nowhere, NEAP_HANDSHAKE_PROBE, "{}", 2, 1, answered, &asked[0], &asked[0].call),
		NEAP_EAGAIN);
	neap_handshake_cancel(rig.caller, asked[1].call);
	ck_assert_int_eq(
		neap_handshake_call(rig.caller, &nowhere, NEAP_HANDSHAKE_PROBE, "{}", 2, 1, answered, &asked[0], &asked[0].call),
		NEAP_EINVAL);
	ck_assert_uint_eq(asked[0].call, 0);
	free(json);
	close_rig(); /* with calls under way */
	for (int i = 0; i <= CALLS_MAX; i++)
		ck_assert(!asked[i].done);
}
END_TEST

/* Cancelled in each state: nothing is said, the peer sees the connection go, and the handle is dead. */
START_TEST(cancel)
{
	struct asked asked;
	struct raw_peer peer;
	open_rig(NULL, 10, 0);
	ask(&asked, 5 * SECOND_NS);
	neap_handshake_cancel(rig.caller, asked.call);
	neap_handshake_cancel(rig.caller, asked.call);
	drive_for(rig.reactor, 5);
	ask(&asked, 5 * SECOND_NS);
	take_request(&peer);
	neap_handshake_cancel(rig.caller, asked.call);
	ck_assert(raw_await_end(rig.reactor, &peer, 1000));
	raw_close(&peer);
	uint64_t old = asked.call;
	ask(&asked, 5 * SECOND_NS);
	neap_handshake_cancel(rig.caller, old);
	take_request(&peer);
	raw_send(&peer, reply, sizeof reply - 1);
	await(&asked, 0, "");
	raw_close(&peer);
	close_rig();
}
END_TEST

static struct asked follow_up;

static void ask_again(struct asked *asked)
{
	(void)asked;
	ask(&follow_up, 5 * SECOND_NS);
}

static void cancel_other(struct asked *asked)
{
	(void)asked;
	neap_handshake_cancel(rig.caller, follow_up.call);
}

static void destroy_caller(struct asked *asked)
{
	(void)asked;
	neap_handshake_caller_destroy(rig.caller);
	rig.caller = NULL;
}

START_TEST(callbacks_may_do_anything)
{
	struct asked asked;
	struct raw_peer first, second;
	open_rig(NULL, 10, 0);
	ask(&asked, 5 * SECOND_NS);
	asked.then = ask_again;
	take_request(&first);
	raw_send(&first, reply, sizeof reply - 1);
	await(&asked, 0, "");
	take_request(&second);
	raw_close(&first);
	ask(&asked, 5 * SECOND_NS);
	asked.then = cancel_other;
	take_request(&first);
	raw_send(&first, reply, sizeof reply - 1);
	await(&asked, 0, "");
	ck_assert(raw_await_end(rig.reactor, &second, 1000));
	ck_assert(!follow_up.done);
	raw_close(&first);
	raw_close(&second);
	ask(&asked, 5 * SECOND_NS);
	ask(&follow_up, 5 * SECOND_NS);
	asked.then = follow_up.then = destroy_caller;
	take_request(&first);
	take_request(&second);
	raw_send(&first, reply, sizeof reply - 1);
	raw_reset(&second);
	ck_assert(raw_await_end(rig.reactor, &first, 1000));
	ck_assert_int_eq(asked.done + follow_up.done, 1);
	raw_close(&first);
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("handshake call");
	TCase *good = tcase_create("good peers"), *bad = tcase_create("bad peers"), *life = tcase_create("limits and life");
	tcase_add_test(good, asks_and_closes_first);
	tcase_add_test(good, takes_the_reply_in_pieces);
	tcase_add_test(good, is_patient_with_a_serial_server);
	tcase_add_test(good, large_request_and_extra_bytes);
	tcase_add_test(bad, nobody_listens);
	tcase_add_test(bad, name_does_not_resolve);
	tcase_add_test(bad, black_hole);
	tcase_add_test(bad, silent_server);
	tcase_add_test(bad, trickling_server);
	tcase_add_test(bad, server_that_takes_nothing);
	tcase_add_test(bad, bad_replies);
	tcase_add_test(life, limits);
	tcase_add_test(life, cancel);
	tcase_add_test(life, callbacks_may_do_anything);
	TCase *cases[] = {good, bad, life};
	for (int i = 0; i < 3; i++) {
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(suite, cases[i]);
	}
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
