/* The Redis driver over hiredis against a scripted server: bytes cut anywhere, servers of every kind of bad manners. */
#include "metadata/redis.h"
#include "tests/support/fdcheck.h"
#include "tests/support/raw_peer.h"
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS UINT64_C(1000000)

static struct {
	struct neap_reactor *reactor;
	struct neap_backend *backend;
} rig;

struct asked {
	int error, times;
	uint64_t call;
	char value[600];
};

static void answered(void *user, int error, const char *value, size_t length, const char *why)
{
	struct asked *asked = user;
	(void)why;
	asked->times++;
	asked->error = error;
	memset(asked->value, 0, sizeof asked->value);
	if (length)
		memcpy(asked->value, value, length < sizeof asked->value ? length : sizeof asked->value);
}

static int try_get(struct asked *asked, const char *key)
{
	asked->times = 0;
	return rig.backend->ops->get(rig.backend, key, 3000 * MS, answered, asked, &asked->call);
}

static int notices;

static void changed(struct neap_backend_watch *watch)
{
	(void)watch;
	notices++;
}

static struct {
	int listener, fd;
	uint16_t port;
	struct fdcheck fds;
	int fds_before;
} server;

static void open_server(const struct neap_redis_options *given)
{
	struct neap_redis_options options = *given;
	memset(&rig, 0, sizeof rig);
	server.fds_before = fdcheck_count();
	fdcheck_begin(&server.fds);
	server.listener = raw_listen(&server.port, 8, 0);
	server.fd = -1;
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, NULL), 0);
	options.server = (struct neap_host_port){.host = "127.0.0.1", .port = server.port, .has_port = true};
	options.calls_max = 8;
	options.pause_min_ns = options.pause_max_ns = MS;
	ck_assert_int_eq(neap_redis_create(&rig.backend, rig.reactor, &options, neap_redis_hiredis()), 0);
}

static void close_server(void)
{
	fdcheck_assert(&server.fds);
	rig.backend->ops->destroy(rig.backend);
	drive_to_end(rig.reactor);
	if (server.fd >= 0)
		close(server.fd);
	close(server.listener);
	ck_assert_int_eq(fdcheck_count(), server.fds_before);
}

static bool is_accepted(void *user)
{
	int *fd_p = user;
	*fd_p = accept4(server.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	return *fd_p >= 0;
}

static void accept_one(int *fd_p)
{
	ck_assert(drive_all_until(&rig.reactor, 1, is_accepted, fd_p, 10000));
}

struct wait_for {
	int fd;
	const char *text;
	char have[4096];
	size_t length;
};

static bool is_heard(void *user)
{
	struct wait_for *wait = user;
	ssize_t n = recv(wait->fd, wait->have + wait->length, sizeof wait->have - wait->length - 1, 0);
	if (n > 0)
		wait->length += (size_t)n;
	wait->have[wait->length] = '\0';
	return strcmp(wait->have, wait->text) == 0;
}

static void hear(int fd, const char *text)
{
	struct wait_for wait = {.fd = fd, .text = text};
	ck_assert_msg(drive_all_until(&rig.reactor, 1, is_heard, &wait, 10000), "heard \"%s\", not \"%s\"", wait.have, text);
}

static void send_bytes(int fd, const char *bytes, size_t length)
{
	ck_assert_int_eq(send(fd, bytes, length, MSG_NOSIGNAL), (ssize_t)length);
}

static void send_text(int fd, const char *text)
{
	send_bytes(fd, text, strlen(text));
}

static bool is_answered(void *user)
{
	return ((const struct asked *)user)->times > 0;
}

static void await(struct asked *asked)
{
	ck_assert(drive_all_until(&rig.reactor, 1, is_answered, asked, 10000));
}

static bool is_ended(void *user)
{
	char byte;
	ssize_t n = recv(*(int *)user, &byte, 1, 0);
	return n == 0 || (n < 0 && errno != EAGAIN);
}

static void greet(void)
{
	accept_one(&server.fd);
	hear(server.fd, "*1\r\n$4\r\nPING\r\n");
	send_text(server.fd, "+PONG\r\n");
}

static void turns(unsigned count)
{
	drive_turns(rig.reactor, count);
}

/* Each reply cut at each of its bytes; binary values come through as they are. */
START_TEST(cut_at_every_byte)
{
	static const struct {
		const char *bytes;
		size_t length;
		int error;
	} replies[] = {{"$7\r\na\r\n\0b c\r\n", 13, 0}, {"$-1\r\n", 5, NEAP_EMETADATA}, {"$0\r\n\r\n", 6, 0}, {"-LOADING wait\r\n", 15, NEAP_EAGAIN}};
	struct asked a = {0};
	open_server(&(struct neap_redis_options){0});
	ck_assert_int_eq(try_get(&a, "first"), 0);
	greet();
	hear(server.fd, "*2\r\n$3\r\nGET\r\n$5\r\nfirst\r\n");
	send_text(server.fd, "$1\r\n1\r\n");
	await(&a);
	for (size_t r = 0; r < sizeof replies / sizeof *replies; r++)
		for (size_t cut = 0; cut <= replies[r].length; cut++) {
			ck_assert_int_eq(try_get(&a, "k"), 0);
			hear(server.fd, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
			send_bytes(server.fd, replies[r].bytes, cut);
			turns(3);
			ck_assert(cut == replies[r].length || a.times == 0);
			send_bytes(server.fd, replies[r].bytes + cut, replies[r].length - cut);
			await(&a);
			ck_assert_int_eq(a.error, replies[r].error);
			ck_assert_int_eq(a.times, 1);
			if (r == 0)
				ck_assert(memcmp(a.value, "a\r\n\0b c", 7) == 0);
		}
	/* and what we say is binary too */
	struct neap_backend_set set = {.key = "%b", .value = "x\0\r\n%s", .length = 6};
	a.times = 0;
	ck_assert_int_eq(rig.backend->ops->set(rig.backend, &set, 3000 * MS, answered, &a, &a.call), 0);
	char said[64] = {0};
	size_t have = 0;
	while (have < 33) {
		turns(1);
		ssize_t n = recv(server.fd, said + have, sizeof said - have, 0);
		have += n > 0 ? (size_t)n : 0;
	}
	ck_assert(memcmp(said, "*3\r\n$3\r\nSET\r\n$2\r\n%b\r\n$6\r\nx\0\r\n%s\r\n", 33) == 0);
	send_text(server.fd, "+OK\r\n");
	await(&a);
	ck_assert_int_eq(a.error, 0);
	close_server();
}
END_TEST

/* What no server sends. The worst it gets is the end of its connection. */
START_TEST(hostile_replies)
{
	static const char *const replies[] = {
		"*2\r\n$1\r\na\r\n$1\r\nb\r\n", "*0\r\n",       "$99999999999999999999\r\n", "garbage\r\n", "\r\n",
		"*1000000000\r\n",             ":",       "$-2\r\nxx\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n",      "*1\r\n*1\r\n*1\r\n",
		"$1\r\nv\r\n$1\r\nw\r\n",
	};
	struct asked a = {0};
	open_server(&(struct neap_redis_options){0});
	ck_assert_int_eq(try_get(&a, "k"), 0);
	greet();
	hear(server.fd, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
	send_text(server.fd, replies[_i]);
	if (strcmp(replies[_i], ":") == 0)
		shutdown(server.fd, SHUT_WR);
	ck_assert(drive_all_until(&rig.reactor, 1, is_ended, &server.fd, 10000));
	close(server.fd);
	greet();
	if (!a.times) {
		hear(server.fd, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
		send_text(server.fd, "$1\r\nv\r\n");
		await(&a);
	}
	ck_assert(a.times == 1 && (a.error == 0 || a.error == NEAP_EPROTO));
	close_server();
}
END_TEST

/* Nobody listens; then somebody does, hangs up at once, and resets. A peer that is gone while we write is no signal to us. */
START_TEST(servers_that_come_and_go)
{
	struct asked a = {0};
	struct linger now = {.l_onoff = 1};
	open_server(&(struct neap_redis_options){0});
	close(server.listener);
	ck_assert_int_eq(try_get(&a, "k"), 0);
	drive_for(rig.reactor, 10);
	ck_assert_int_eq(a.times, 0);
	server.listener = raw_listen(&server.port, 8, 0);
	rig.backend->ops->destroy(rig.backend);
	struct neap_redis_options options = {.server = {.host = "127.0.0.1", .port = server.port, .has_port = true},
	                                     .calls_max = 8,
	                                     .pause_min_ns = MS,
	                                     .pause_max_ns = MS};
	ck_assert_int_eq(neap_redis_create(&rig.backend, rig.reactor, &options, neap_redis_hiredis()), 0);
	ck_assert_int_eq(try_get(&a, "k"), 0);
	for (int i = 0; i < 4; i++) {
		accept_one(&server.fd);
		if (i % 2)
			ck_assert_int_eq(setsockopt(server.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
		close(server.fd);
	}
	greet();
	hear(server.fd, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
	send_text(server.fd, "$1\r\nv\r\n");
	await(&a);
	ck_assert_int_eq(a.error, 0);
	/* it goes between two commands; the first write after that finds nobody, and the command is sent on a new connection */
	ck_assert_int_eq(setsockopt(server.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
	close(server.fd);
	ck_assert_int_eq(try_get(&a, "k"), 0);
	greet();
	hear(server.fd, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
	send_text(server.fd, "$1\r\nw\r\n");
	await(&a);
	ck_assert_int_eq(a.error, 0);
	close_server();
}
END_TEST

static bool is_noticed(void *user)
{
	(void)user;
	return notices > 0;
}

/* Invalidations, cut at each byte, and what is none of them. */
START_TEST(invalidations_cut_at_every_byte)
{
	static const char one[] = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*2\r\n$1\r\nx\r\n$1\r\nk\r\n";
	static const char all[] = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*-1\r\n";
	static const char *const wrong[] = {"+OK\r\n", "*2\r\n$1\r\na\r\n$1\r\nb\r\n", "*3\r\n:1\r\n:2\r\n:3\r\n", "*3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n",
	                                    "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n$1\r\nb\r\n", "-ERR gone\r\n",
	                                    "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n:5\r\n"};
	struct asked a = {0};
	struct neap_backend_watch watch = {.changed = changed};
	struct neap_backend *b;
	int tracker;
	open_server(&(struct neap_redis_options){0});
	b = rig.backend;
	ck_assert_int_eq(try_get(&a, "k"), 0);
	greet();
	hear(server.fd, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
	send_text(server.fd, "$1\r\nv\r\n");
	await(&a);
	for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
		ck_assert_int_eq(b->ops->watch(b, "k", &watch), NEAP_EAGAIN);
		accept_one(&tracker);
		hear(tracker, "*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n");
		send_text(tracker, ":5\r\n");
		hear(tracker, "*2\r\n$9\r\nSUBSCRIBE\r\n$20\r\n__redis__:invalidate\r\n");
		send_text(tracker, "*3\r\n$9\r\nsubscribe\r\n$20\r\n__redis__:invalidate\r\n:1\r\n");
		hear(server.fd, "*6\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\nON\r\n$8\r\nREDIRECT\r\n$1\r\n5\r\n$6\r\nNOLOOP\r\n");
		send_text(server.fd, "+OK\r\n");
		while (b->ops->watch(b, "k", &watch))
			turns(1);
		for (size_t cut = 0; w == 0 && cut < 2 * sizeof one; cut++) {
			const char *message = cut < sizeof one ? one : all;
			size_t length = strlen(message), first = cut % sizeof one < length ? cut % sizeof one : length;
			notices = 0;
			ck_assert_int_eq(b->ops->watch(b, "k", &watch), 0);
			send_bytes(tracker, message, first);
			turns(3);
			send_bytes(tracker, message + first, length - first);
			ck_assert(drive_all_until(&rig.reactor, 1, is_noticed, NULL, 10000));
			ck_assert_int_eq(notices, 1);
		}
		notices = 0;
		ck_assert_int_eq(b->ops->watch(b, "k", &watch), 0);
		send_text(tracker, wrong[w]);
		ck_assert(drive_all_until(&rig.reactor, 1, is_ended, &tracker, 10000));
		ck_assert(drive_all_until(&rig.reactor, 1, is_noticed, NULL, 10000)); /* nobody can tell any more */
		close(tracker);
	}
	close_server();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("redis driver");
	TCase *scripted = tcase_create("scripted server");
	tcase_add_test(scripted, cut_at_every_byte);
	tcase_add_loop_test(scripted, hostile_replies, 0, 11);
	tcase_add_test(scripted, servers_that_come_and_go);
	tcase_add_test(scripted, invalidations_cut_at_every_byte);
	tcase_set_timeout(scripted, 120);
	suite_add_tcase(suite, scripted);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
