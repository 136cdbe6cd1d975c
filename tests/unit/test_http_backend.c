/* The HTTP back-end's machine against a driver that does as it is told, and the driver over curl against a scripted server whose bytes are
 * cut anywhere. */
#include "metadata/http.h"
#include "tests/support/coverage.h"
#include "tests/support/drive.h"
#include "tests/support/fdcheck.h"
#include "tests/support/raw_peer.h"
#include "tests/support/script_http.h"
#include "tests/support/script_names.h"
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS UINT64_C(1000000)

static struct {
	struct script_names names;
	struct neap_reactor *reactor;
	struct neap_backend *backend;
	uint64_t now_ns;
	struct script_http http;
} rig;

static void turn(void)
{
	for (int i = 0; i < 4; i++)
		ck_assert_int_gt(neap_reactor_run_at(rig.reactor, rig.now_ns, NULL), 0);
}

static void open_rig(const char *url, uint32_t calls_max)
{
	char why[300] = "";
	memset(&rig, 0, sizeof rig);
	script_names_open(&rig.names, "meta.test");
	script_http_init(&rig.http);
	rig.now_ns = 1000 * MS;
	struct neap_reactor_options options = {.net = &rig.names.net};
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, &options), 0);
	turn();
	int error = neap_http_create(&rig.backend, rig.reactor, &(struct neap_backend_options){.connection = url, .calls_max = calls_max},
	                             &rig.http.driver,
	                             why, sizeof why);
	ck_assert_msg(error == 0, "%s", why);
}

static void close_rig(void)
{
	if (rig.backend)
		rig.backend->ops->destroy(rig.backend);
	neap_reactor_stop(rig.reactor);
	for (int i = 0; i < 100 && neap_reactor_run_at(rig.reactor, rig.now_ns += MS, NULL) != NEAP_RUN_STOPPED; i++)
		;
	ck_assert(rig.http.closed && !rig.names.resolving && script_http_is_quiet(&rig.http));
	ck_assert_int_eq(support_reactor_destroy(rig.reactor), 0);
}

struct asked {
	int error, times;
	uint64_t call;
	char value[600], why[600];
	bool destroys;
};

static void answered(void *user, int error, const char *value, size_t length, const char *why)
{
	struct asked *asked = user;
	asked->times++;
	asked->error = error;
	(void)snprintf(asked->value, sizeof asked->value, "%.*s", (int)length, value ? value : "");
	(void)snprintf(asked->why, sizeof asked->why, "%s", why);
	if (asked->destroys) {
		rig.backend->ops->destroy(rig.backend);
		rig.backend = NULL;
	}
}

static int ask(struct asked *asked, const char *verb)
{
	const struct neap_backend_ops *ops = rig.backend->ops;
	struct neap_backend_set set = {.key = "k", .value = "{\"a\":1}\n", .length = 8, .create = strcmp(verb, "create") == 0};
	*asked = (struct asked){.destroys = asked->destroys};
	if (strcmp(verb, "get") == 0)
		return ops->get(rig.backend, "k", 3000 * MS, answered, asked, &asked->call);
	if (strcmp(verb, "remove") == 0)
		return ops->remove(rig.backend, "k", 3000 * MS, answered, asked, &asked->call);
	if (strcmp(verb, "touch") == 0)
		return ops->touch(rig.backend, "k", 0, 3000 * MS, answered, asked, &asked->call);
	return ops->set(rig.backend, &set, 3000 * MS, answered, asked, &asked->call);
}

static void begin_asking(struct asked *asked, const char *verb)
{
	ck_assert_int_eq(ask(asked, verb), 0);
	turn();
	ck_assert_int_eq(asked->times, 0);
}

static void answer(long status, const char *body)
{
	script_http_answer(script_http_last(&rig.http), status, body);
	turn();
}

static void resolved(int error, uint32_t count)
{
	struct neap_sockaddr address;
	ck_assert_int_eq(neap_sockaddr_from_numeric("10.0.0.2", 80, &address), 0);
	script_names_answer(&rig.names, error, &address, count);
	turn();
}

/* --- the machine ------------------------------------------------------------------------------------------------------------- */

START_TEST(requests_and_what_their_answers_mean)
{
	static const struct {
		const char *verb, *said;
		long status;
		int error;
		const char *why;
	} rows[] = {
		{"get", "GET", 200, 0, ""},
		{"get", "GET", 404, NEAP_EMETADATA, "http://10.0.0.1:8080: there is no such key"},
		{"get", "GET", 302, NEAP_EREJECTED, "redirects are not followed"},
		{"get", "GET", 401, NEAP_EREJECTED, "credentials"},
		{"get", "GET", 409, NEAP_EPROTO, "status 409"},
		{"get", "GET", 500, NEAP_EAGAIN, "not well"},
		{"get", "GET", 204, NEAP_EPROTO, "200 is expected"},
		{"touch", "GET", 200, 0, ""},
		{"touch", "GET", 404, NEAP_EMETADATA, ""},
		{"set", "PUT", 200, 0, ""},
		{"set", "PUT", 201, NEAP_EPROTO, "200 is expected"},
		{"set", "PUT", 404, NEAP_EPROTO, "status 404"},
		{"set", "PUT", 400, NEAP_EPROTO, "status 400"},
		{"create", "PUT", 400, NEAP_ETAKEN, ""},
		{"set", "PUT", 413, NEAP_ELIMIT, "raise its limit"},
		{"set", "PUT", 507, NEAP_ELIMIT, "full"},
		{"remove", "DELETE", 200, 0, ""},
		{"remove", "DELETE", 404, 0, ""},
		{"remove", "DELETE", 503, NEAP_EAGAIN, ""},
	};
	struct asked a = {0};
	open_rig("http://10.0.0.1:8080/metadata", 4);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char said[100];
		begin_asking(&a, rows[i].verb);
		(void)snprintf(said, sizeof said, "%s http://10.0.0.1:8080/metadata?key=k", rows[i].said);
		ck_assert_str_eq(script_http_last(&rig.http)->said, said);
		if (strcmp(rows[i].said, "PUT") == 0) /* without the newline */
			ck_assert_str_eq(script_http_last(&rig.http)->body, "{\"a\":1}");
		answer(rows[i].status, "a body");
		ck_assert_msg(a.times == 1 && a.error == rows[i].error, "%zu: %d %s", i, a.error, a.why);
		ck_assert_msg(strstr(a.why, rows[i].why) != NULL, "%s", a.why);
		ck_assert_str_eq(a.value, !a.error && strcmp(rows[i].verb, "get") == 0 ? "a body" : "");
	}
	close_rig();
}
END_TEST

START_TEST(keys_as_everybody_writes_them)
{
	char text[100];
	ck_assert_uint_gt(neap_http_escape("mooncake/ram/nodeA:23456", text, sizeof text), 0);
	ck_assert_str_eq(text, "mooncake%2Fram%2FnodeA%3A23456");
	ck_assert_uint_gt(neap_http_escape("a b%?#&+=..~_-\"\\\n\xc3\xa9", text, sizeof text), 0);
	ck_assert_str_eq(text, "a%20b%25%3F%23%26%2B%3D..~_-%22%5C%0A%C3%A9");
	ck_assert_uint_eq(neap_http_escape("abc", text, 4), 3);
	ck_assert_uint_eq(neap_http_escape("abc", text, 3), 0);
	ck_assert_uint_eq(neap_http_escape("a/", text, 4), 0);
}
END_TEST

START_TEST(names_and_deadlines)
{
	struct asked a = {0};
	open_rig("https://meta.test/metadata", 4);
	ck_assert_str_eq(rig.backend->scheme, "https");
	begin_asking(&a, "get");
	resolved(0, 1);
	ck_assert_str_eq(rig.http.exchanges[0].addresses, "+meta.test:443:10.0.0.2");
	answer(200, "v");
	ck_assert(a.times == 1 && a.error == 0);
	begin_asking(&a, "get");
	resolved(NEAP_EDNS, 0);
	ck_assert_int_eq(a.error, NEAP_EDNS);
	ck_assert_str_eq(a.why, "https://meta.test: 'meta.test': no such name");
	begin_asking(&a, "get");
	resolved(0, 0);
	ck_assert_int_eq(a.error, NEAP_EDNS);
	rig.names.unresolvable = true;
	ck_assert_int_eq(ask(&a, "get"), 0);
	turn();
	ck_assert(a.times == 1 && a.error == NEAP_ELIMIT);
	rig.names.unresolvable = false;
	begin_asking(&a, "get");
	rig.now_ns += 3000 * MS;
	turn();
	ck_assert(a.times == 1 && a.error == NEAP_ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(a.why, "no name server answered within 3000 ms"));
	begin_asking(&a, "get");
	resolved(0, 1);
	rig.now_ns += 3000 * MS;
	turn();
	ck_assert_ptr_nonnull(strstr(a.why, "no whole answer within 3000 ms"));
	ck_assert(!script_http_last(&rig.http)->open);
	close_rig();
}
END_TEST

START_TEST(what_fails_and_what_is_refused)
{
	struct asked a = {0}, b = {0}, c = {0};
	char key[NEAP_BACKEND_KEY_MAX + 1];
	struct neap_backend *backend;
	open_rig("http://10.0.0.1:8080/metadata", 2);
	backend = rig.backend;
	begin_asking(&a, "get");
	begin_asking(&b, "get");
	ck_assert_int_eq(ask(&c, "get"), NEAP_EAGAIN);
	script_http_fail(&rig.http.exchanges[0], NEAP_ESOCKET, "Connection refused");
	turn();
	ck_assert(a.times == 1 && a.error == NEAP_ESOCKET);
	ck_assert_str_eq(a.why, "http://10.0.0.1:8080: Connection refused");
	backend->ops->cancel(backend, b.call);
	backend->ops->cancel(backend, b.call);
	rig.http.refuse = true;
	ck_assert_int_eq(ask(&a, "get"), 0);
	turn();
	ck_assert(a.times == 1 && a.error == NEAP_ENOMEM);
	memset(key, 'k', sizeof key);
	key[NEAP_BACKEND_KEY_MAX] = '\0';
	ck_assert_int_eq(backend->ops->get(backend, key, MS, answered, &a, &a.call), NEAP_ELIMIT);
	ck_assert_int_eq(backend->ops->get(backend, "", MS, answered, &a, &a.call), NEAP_EINVAL);
	struct neap_backend_set set = {.key = "k", .value = "v", .length = NEAP_HTTP_VALUE_MAX + 1};
	ck_assert_int_eq(backend->ops->set(backend, &set, MS, answered, &a, &a.call), NEAP_ELIMIT);
	set = (struct neap_backend_set){.key = "k", .value = "v", .length = 1, .lease_ns = MS};
	ck_assert_int_eq(backend->ops->set(backend, &set, MS, answered, &a, &a.call), NEAP_EINVAL);
	ck_assert_int_eq(backend->ops->touch(backend, "k", MS, MS, answered, &a, &a.call), NEAP_EINVAL);
	ck_assert_int_eq(backend->ops->watch(backend, "k", &(struct neap_backend_watch){0}), NEAP_EAGAIN);
	rig.http.refuse = false;
	begin_asking(&b, "get"); /* under way when all goes, from inside another's callback */
	a.destroys = true;
	begin_asking(&a, "get");
	answer(200, "v");
	ck_assert(a.times == 1 && b.times == 0);
	close_rig();
}
END_TEST

/* --- the driver, over curl, against a scripted server --------------------------------------------------------------------------- */

static struct {
	int listener;
	uint16_t port;
	struct raw_peer peer;
	struct fdcheck fds;
	int fds_before;
} server;

static void open_server(const char *host)
{
	char url[100], why[300] = "";
	memset(&rig, 0, sizeof rig);
	memset(&server, 0, sizeof server);
	ck_assert_int_eq(setenv("http_proxy", "http://127.0.0.1:1", 1), 0); /* must not matter */
	server.fds_before = fdcheck_count();
	server.listener = raw_listen(&server.port, 8, 0);
	server.peer.fd = -1;
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, NULL), 0);
	(void)snprintf(url, sizeof url, "http://%s:%u/metadata", host, server.port);
	int error = neap_http_open(&rig.backend, rig.reactor, &(struct neap_backend_options){.connection = url}, why, sizeof why);
	ck_assert_msg(error == 0, "%s", why);
	fdcheck_begin(&server.fds); /* the pair that curl makes for itself is not ours to judge */
}

static void close_server(void)
{
	fdcheck_assert(&server.fds);
	if (rig.backend)
		rig.backend->ops->destroy(rig.backend);
	drive_to_end(rig.reactor);
	if (server.peer.fd >= 0)
		raw_close(&server.peer);
	close(server.listener);
	ck_assert_int_eq(fdcheck_count(), server.fds_before);
}

static bool is_answered(void *user)
{
	return ((const struct asked *)user)->times > 0;
}

static void await(struct asked *asked)
{
	ck_assert(drive_all_until(&rig.reactor, 1, is_answered, asked, 10000));
}

static bool is_heard(void *user)
{
	const char *end = user;
	raw_take(&server.peer);
	return memmem(server.peer.bytes, server.peer.have, end, strlen(end)) != NULL;
}

/* A whole request has come: it ends like this. It is kept as text. */
static const char *hear(const char *end)
{
	static char text[8192];
	if (server.peer.fd < 0)
		raw_accept(rig.reactor, server.listener, &server.peer);
	ck_assert(drive_all_until(&rig.reactor, 1, is_heard, (void *)(uintptr_t)end, 10000));
	(void)snprintf(text, sizeof text, "%.*s", (int)server.peer.have, server.peer.bytes);
	server.peer.have = 0;
	return text;
}

static void turns(unsigned count)
{
	drive_turns(rig.reactor, count);
}

static void say(const char *text)
{
	raw_send(&server.peer, text, strlen(text));
}

START_TEST(exact_requests)
{
	struct asked a = {0};
	char host[64];
	open_server("127.0.0.1");
	(void)snprintf(host, sizeof host, "Host: 127.0.0.1:%u\r\n", server.port);
	ck_assert_int_eq(ask(&a, "get"), 0);
	const char *said = hear("\r\n\r\n");
	ck_assert_msg(strncmp(said, "GET /metadata?key=k HTTP/1.1\r\n", 30) == 0 && strstr(said, host), "%s", said);
	say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
	await(&a);
	ck_assert(a.error == 0 && strcmp(a.value, "{}") == 0);
	/* all on one connection, which is kept */
	ck_assert_int_eq(ask(&a, "set"), 0);
	said = hear("{\"a\":1}");
	ck_assert_msg(strncmp(said, "PUT /metadata?key=k HTTP/1.1\r\n", 30) == 0 && strstr(said, "Content-Type: application/json\r\n") &&
	              strstr(said, "Content-Length: 7\r\n") && !strstr(said, "Expect"), "%s", said);
	say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	await(&a);
	ck_assert_int_eq(a.error, 0);
	ck_assert_int_eq(ask(&a, "remove"), 0);
	said = hear("\r\n\r\n");
	ck_assert_msg(strncmp(said, "DELETE /metadata?key=k HTTP/1.1\r\n", 33) == 0 && !strstr(said, "Content-Length"), "%s", said);
	say("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
	await(&a);
	ck_assert_int_eq(a.error, 0);
	close_server();
}
END_TEST

START_TEST(cut_at_every_byte)
{
	static const char *const answers[] = {
		"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"b\":2}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"b\r\n4\r\n\":2}\r\n0\r\n\r\n",
		"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone",
	};
	struct asked a = {0};
	open_server("127.0.0.1");
	for (size_t i = 0; i < 3; i++) {
		size_t length = strlen(answers[i]);
		for (size_t cut = 0; cut < length; cut++) {
			ck_assert_int_eq(ask(&a, "get"), 0);
			(void)hear("\r\n\r\n");
			raw_send(&server.peer, answers[i], cut);
			turns(3);
			ck_assert_int_eq(a.times, 0);
			raw_send(&server.peer, answers[i] + cut, length - cut);
			await(&a);
			ck_assert_int_eq(a.error, i == 2 ? NEAP_EMETADATA : 0);
			ck_assert_str_eq(a.value, i == 2 ? "" : "{\"b\":2}");
		}
	}
	close_server();
}
END_TEST

/* What is no whole answer is an error, never a short value. */
START_TEST(broken_answers)
{
	static const char *const answers[] = {
		"", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"b\"", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"b\r\n", "HTTP/1.1 200 O",
		"garbage\r\n\r\n", "+PONG\r\n"};
	struct asked a = {0};
	open_server("127.0.0.1");
	ck_assert_int_eq(ask(&a, "get"), 0);
	(void)hear("\r\n\r\n");
	say(answers[_i]);
	raw_close(&server.peer);
	server.peer.fd = -1;
	await(&a);
	ck_assert_msg(a.error == NEAP_EPEER, "%d %s", a.error, a.why);
	ck_assert_str_eq(a.value, "");
	close_server();
}
END_TEST

START_TEST(servers_that_come_and_go)
{
	struct asked a = {0}, b = {0};
	open_server("localhost");
	ck_assert_int_eq(ask(&a, "get"), 0);
	(void)hear("\r\n\r\n");
	say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1");
	await(&a);
	ck_assert_int_eq(a.error, 0);
	/* the kept connection is closed; the next request goes over another */
	raw_close(&server.peer);
	server.peer.fd = -1;
	ck_assert_int_eq(ask(&a, "get"), 0);
	(void)hear("\r\n\r\n");
	say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n2");
	await(&a);
	ck_assert_str_eq(a.value, "2");
	raw_close(&server.peer);
	server.peer.fd = -1;
	/* canceled in the middle, and the end of all while one is under way */
	ck_assert_int_eq(ask(&a, "get"), 0);
	(void)hear("\r\n\r\n");
	rig.backend->ops->cancel(rig.backend, a.call);
	ck_assert(raw_await_end(rig.reactor, &server.peer, 10000));
	raw_close(&server.peer);
	server.peer.fd = -1;
	/* nobody listens */
	close(server.listener);
	ck_assert_int_eq(ask(&a, "get"), 0);
	await(&a);
	ck_assert_msg(a.error == NEAP_ESOCKET, "%d %s", a.error, a.why);
	server.listener = raw_listen(&server.port, 8, 0);
	rig.backend->ops->destroy(rig.backend);
	char url[100], why[300];
	(void)snprintf(url, sizeof url, "http://127.0.0.1:%u/metadata", server.port);
	fdcheck_assert(&server.fds);
	ck_assert_int_eq(neap_http_open(&rig.backend, rig.reactor, &(struct neap_backend_options){.connection = url}, why, sizeof why), 0);
	fdcheck_begin(&server.fds);
	ck_assert_int_eq(ask(&b, "get"), 0);
	a.destroys = true;
	ck_assert_int_eq(ask(&a, "get"), 0);
	(void)hear("\r\n\r\n");
	say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n3");
	(void)drive_all_until(&rig.reactor, 1, is_answered, &b, 10000);
	ck_assert_int_eq(b.times, 1);
	close_server();
	ck_assert_int_eq(a.times, 0);
}
END_TEST

/* An answer that never ends is refused at its bound, whatever it announces. */
START_TEST(longer_than_any_value)
{
	struct asked a = {0};
	static char zeroes[65536];
	open_server("127.0.0.1");
	ck_assert_int_eq(ask(&a, "get"), 0);
	(void)hear("\r\n\r\n");
	say("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n");
	for (int i = 0; i < 100000 && !a.times; i++) {
		(void)!send(server.peer.fd, zeroes, sizeof zeroes, MSG_NOSIGNAL | MSG_DONTWAIT);
		turns(1);
	}
	ck_assert_msg(a.times == 1 && a.error == NEAP_ELIMIT, "%d %s", a.error, a.why);
	ck_assert_ptr_nonnull(strstr(a.why, "longer than any value"));
	close_server();
}
END_TEST

/* --- streams, which other back-ends have of it ------------------------------------------------------------------------------------ */

struct streamed {
	struct neap_http_caller *caller;
	uint64_t call;
	char bytes[200];
	size_t length, cancels_at;
	long status;
	int error, ends;
};

static void came(void *user, long status, const char *bytes, size_t length)
{
	struct streamed *streamed = user;
	ck_assert_uint_lt(streamed->length + length, sizeof streamed->bytes);
	memcpy(streamed->bytes + streamed->length, bytes, length);
	streamed->length += length;
	streamed->status = status;
	if (streamed->cancels_at && streamed->length >= streamed->cancels_at) {
		neap_http_cancel(streamed->caller, streamed->call);
		streamed->ends++;
	}
}

static void ended(void *user, int error, long status, const char *body, size_t length, const char *why)
{
	struct streamed *streamed = user;
	(void)body, (void)why, (void)status;
	ck_assert_uint_eq(length, 0);
	streamed->error = error;
	streamed->ends++;
}

static bool has_come(void *user)
{
	return ((struct streamed *)user)->length > 0;
}

static bool has_ended(void *user)
{
	return ((struct streamed *)user)->ends > 0;
}

START_TEST(streams)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n";
	struct neap_http_server to;
	char url[100], why[200];
	open_server("127.0.0.1");
	(void)snprintf(url, sizeof url, "http://127.0.0.1:%u/stream", server.port);
	ck_assert_int_eq(neap_http_server_parse("x", url, sizeof url, 80, &to, why, sizeof why), 0);
	struct streamed streamed = {0};
	fdcheck_assert(&server.fds);
	ck_assert_int_eq(neap_http_caller_open(&streamed.caller, rig.reactor, neap_http_curl(), &(struct neap_http_files){0}, 2), 0);
	fdcheck_begin(&server.fds);
	struct neap_http_ask asks = {.server = &to, .method = "POST", .url = url, .body = "{}", .length = 2, .token = "a token", .answer_max = 100,
	                             .timeout_ns = 10000 * MS, .done = ended, .received = came, .user = &streamed};
	for (size_t cut = 1; cut < sizeof answer - 1; cut++) {
		streamed = (struct streamed){.caller = streamed.caller};
		ck_assert_int_eq(neap_http_ask(streamed.caller, &asks, &streamed.call), 0);
		ck_assert_ptr_nonnull(strstr(hear("\r\n\r\n{}"), "Authorization: a token\r\n"));
		raw_send(&server.peer, answer, cut);
		if (cut >= 55) /* the first piece is told before the second comes */
			ck_assert(drive_all_until(&rig.reactor, 1, has_come, &streamed, 10000));
		raw_send(&server.peer, answer + cut, sizeof answer - 1 - cut);
		ck_assert(drive_all_until(&rig.reactor, 1, has_ended, &streamed, 10000));
		ck_assert(streamed.ends == 1 && streamed.error == 0 && streamed.status == 200);
		ck_assert_msg(streamed.length == 8 && memcmp(streamed.bytes, "one\ntwo\n", 8) == 0, "%zu", cut);
	}
	/* ended from inside of what brings its bytes */
	streamed = (struct streamed){.caller = streamed.caller, .cancels_at = 1};
	ck_assert_int_eq(neap_http_ask(streamed.caller, &asks, &streamed.call), 0);
	(void)hear("\r\n\r\n{}");
	raw_send(&server.peer, answer, sizeof answer - 8);
	ck_assert(drive_all_until(&rig.reactor, 1, has_ended, &streamed, 10000));
	ck_assert(raw_await_end(rig.reactor, &server.peer, 10000));
	neap_http_caller_close(streamed.caller);
	close_server();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("http back-end");
	TCase *cases[] = {tcase_create("machine"), tcase_create("driver")};
	tcase_add_test(cases[0], requests_and_what_their_answers_mean);
	tcase_add_test(cases[0], keys_as_everybody_writes_them);
	tcase_add_test(cases[0], names_and_deadlines);
	tcase_add_test(cases[0], what_fails_and_what_is_refused);
	tcase_add_test(cases[1], exact_requests);
	tcase_add_test(cases[1], cut_at_every_byte);
	tcase_add_loop_test(cases[1], broken_answers, 0, 6);
	tcase_add_test(cases[1], servers_that_come_and_go);
	tcase_add_test(cases[1], longer_than_any_value);
	tcase_add_test(cases[1], streams);
	for (int i = 0; i < 2; i++) {
		tcase_set_timeout(cases[i], 120);
		suite_add_tcase(suite, cases[i]);
	}
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
