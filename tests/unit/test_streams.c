/* Streams on real sockets under a real reactor. */
#include "tests/support/stream_rig.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a stream has reported, kept for the test to look at. */
struct seen {
	struct neap_stream *stream;
	unsigned all;   /* every bit seen */
	unsigned until; /* `reached` is set when one of these came */
	bool reached;
	int calls;
};

static void note(struct neap_stream *stream, unsigned ready)
{
	struct seen *seen = stream->user;
	seen->all |= ready;
	seen->calls++;
	if (ready & seen->until)
		seen->reached = true;
	neap_stream_want(stream, 0);
}

static void see(struct seen *seen, struct neap_stream *stream, unsigned wanted, unsigned until)
{
	*seen = (struct seen){.stream = stream, .until = until};
	stream->user = seen;
	stream->ready = note;
	neap_stream_want(stream, wanted);
}

static ssize_t put(struct neap_stream *stream, const void *bytes, size_t length)
{
	struct iovec vector = {(void *)(uintptr_t)bytes, length};
	return neap_stream_writev(stream, &vector, 1);
}

static ssize_t get(struct neap_stream *stream, void *bytes, size_t length)
{
	struct iovec vector = {bytes, length};
	return neap_stream_readv(stream, &vector, 1);
}

/* Waits until something is readable and reads it. */
static ssize_t await(struct rig *rig, struct neap_stream *stream, void *bytes, size_t length)
{
	struct seen seen;
	see(&seen, stream, NEAP_READABLE, NEAP_READABLE | NEAP_HANGUP | NEAP_ERROR_READY);
	ck_assert(drive_until(rig->reactor, &seen.reached, 5000));
	return get(stream, bytes, length);
}

/* --- bytes -------------------------------------------------------------------------------------------------------------- */

#define BULK_BYTES (8u << 20)

struct bulk {
	uint64_t sent, received, short_writes, short_reads;
	bool finished;
};

static unsigned char pattern(uint64_t at)
{
	return (unsigned char)(at * 2654435761u >> 13);
}

static void bulk_write(struct neap_stream *stream, unsigned ready)
{
	struct bulk *bulk = stream->user;
	unsigned char bytes[3][7001];
	struct iovec vector[3];
	uint64_t at = bulk->sent;
	size_t total = 0;
	(void)ready;
	for (int i = 0; i < 3; i++) {
		size_t length = BULK_BYTES - at < sizeof(bytes[i]) ? (size_t)(BULK_BYTES - at) : sizeof(bytes[i]);
		for (size_t j = 0; j < length; j++)
			bytes[i][j] = pattern(at + j);
		vector[i] = (struct iovec){bytes[i], length};
		at += length;
		total += length;
	}
	ssize_t n = neap_stream_writev(stream, vector, 3);
	if (n <= 0 && n != -EAGAIN)
		ck_abort_msg("writev: %zd", n);
	if (n > 0)
		bulk->sent += (uint64_t)n;
	if (n < (ssize_t)total)
		bulk->short_writes++;
	if (bulk->sent == BULK_BYTES) {
		neap_stream_want(stream, 0);
		stream->ops->shutdown_write(stream);
	}
}

static void bulk_read(struct neap_stream *stream, unsigned ready)
{
	struct bulk *bulk = stream->user;
	unsigned char a[1], b[3000], c[9000];
	struct iovec vector[3] = {{a, sizeof(a)}, {b, sizeof(b)}, {c, sizeof(c)}};
	(void)ready;
	ssize_t n = neap_stream_readv(stream, vector, 3);
	if (n < 0)
		ck_abort_msg("readv: %zd", n);
	if (n == 0) {
		bulk->finished = true;
		neap_stream_want(stream, 0);
		return;
	}
	if (n < (ssize_t)(sizeof(a) + sizeof(b) + sizeof(c)))
		bulk->short_reads++;
	for (ssize_t i = 0; i < n; i++) {
		const unsigned char byte = i < 1 ? a[i] : i < 3001 ? b[i - 1] : c[i - 3001];
		if (byte != pattern(bulk->received + (uint64_t)i)) /* Check writes to a file at each assertion: too slow per byte */
			ck_abort_msg("byte %llu is wrong", (unsigned long long)bulk->received + (unsigned long long)i);
	}
	bulk->received += (uint64_t)n;
}

START_TEST(bulk_through_small_buffers)
{
	struct rig *rig = rig_open(NULL);
	struct neap_stream *ours, *theirs;
	struct bulk bulk = {0};

	rig->options.send_buffer_bytes = 8192;
	rig->options.receive_buffer_bytes = 32768;
	rig_pair(rig, &ours, &theirs);
	ours->user = theirs->user = &bulk;
	ours->ready = bulk_write;
	theirs->ready = bulk_read;
	neap_stream_want(ours, NEAP_WRITABLE);
	neap_stream_want(theirs, NEAP_READABLE);
	ck_assert(drive_until(rig->reactor, &bulk.finished, 30000));
	ck_assert_uint_eq(bulk.received, BULK_BYTES);
	ck_assert_uint_gt(bulk.short_writes, 0);
	ck_assert_uint_gt(bulk.short_reads, 0);
	rig_close(rig);
}
END_TEST

START_TEST(more_vectors_than_the_kernel_takes)
{
	struct rig *rig = rig_open(NULL);
	struct neap_stream *ours, *theirs;
	static unsigned char out[3000], in[3000];
	static struct iovec vector[1500];
	size_t got = 0;

	rig_pair(rig, &ours, &theirs);
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = pattern(i);
	for (size_t i = 0; i < 1500; i++)
		vector[i] = (struct iovec){out + 2 * i, 2};
	ssize_t n = neap_stream_writev(ours, vector, 1500);
	ck_assert_int_eq(n, 2048);
	n = neap_stream_writev(ours, vector + 1024, 1500 - 1024);
	ck_assert_int_eq(n, 952);
	while (got < sizeof(in)) {
		for (size_t i = got; i < sizeof(in); i++)
			vector[(i - got) / 2] = (struct iovec){in + got + (i - got) / 2 * 2, 2};
		struct seen seen;
		see(&seen, theirs, NEAP_READABLE, NEAP_READABLE);
		ck_assert(drive_until(rig->reactor, &seen.reached, 5000));
		size_t left = (sizeof(in) - got) / 2;
		n = neap_stream_readv(theirs, vector, (int)left);
		ck_assert_int_gt(n, 0);
		got += (size_t)n;
	}
	ck_assert_mem_eq(in, out, sizeof(in));
	ck_assert_int_eq(get(theirs, in, 1), -EAGAIN);
	rig_close(rig);
}
END_TEST

/* --- ends --------------------------------------------------------------------------------------------------------------- */

START_TEST(half_close)
{
	struct rig *rig = rig_open(NULL);
	struct neap_stream *ours, *theirs;
	char text[16];

	rig_pair(rig, &ours, &theirs);
	ck_assert_int_eq(put(ours, "question", 8), 8);
	ours->ops->shutdown_write(ours);
	ck_assert_int_eq(await(rig, theirs, text, sizeof(text)), 8);
	ck_assert_int_eq(await(rig, theirs, text, sizeof(text)), 0);
	/* The other direction is still open. */
	ck_assert_int_eq(put(theirs, "answer", 6), 6);
	ck_assert_int_eq(await(rig, ours, text, sizeof(text)), 6);
	ck_assert_mem_eq(text, "answer", 6);
	ck_assert_int_eq(put(ours, "x", 1), -EPIPE); /* and no SIGPIPE */
	neap_stream_close(theirs, false);
	rig->accepted[0] = NULL;
	ck_assert_int_eq(await(rig, ours, text, sizeof(text)), 0);
	rig_close(rig);
}
END_TEST

START_TEST(end_is_seen_on_an_idle_stream)
{
	struct rig *rig = rig_open(NULL);
	struct neap_stream *ours, *theirs;
	struct seen seen;
	char byte;

	rig_pair(rig, &ours, &theirs);
	ours->ops->low_water(ours, 100000); /* even with a high mark */
	see(&seen, ours, NEAP_READABLE, NEAP_HANGUP);
	drive_for(rig->reactor, 20);
	ck_assert_int_eq(seen.calls, 0);
	neap_stream_close(theirs, false);
	rig->accepted[0] = NULL;
	ck_assert(drive_until(rig->reactor, &seen.reached, 5000));
	ck_assert_int_eq(get(ours, &byte, 1), 0);
	rig_close(rig);
}
END_TEST

START_TEST(reset_by_peer)
{
	struct rig *rig = rig_open(NULL);
	struct neap_stream *ours, *theirs;
	struct seen seen;
	char byte;

	rig_pair(rig, &ours, &theirs);
	ck_assert_int_eq(put(theirs, "x", 1), 1); /* an abortive close takes back what is not read yet */
	see(&seen, ours, NEAP_READABLE, NEAP_HANGUP | NEAP_ERROR_READY);
	neap_stream_close(theirs, true);
	rig->accepted[0] = NULL;
	ck_assert(drive_until(rig->reactor, &seen.reached, 5000));
	ssize_t n = get(ours, &byte, 1);
	if (n == 1)
		n = get(ours, &byte, 1);
	ck_assert_int_eq(n, -ECONNRESET);
	ck_assert_int_eq(put(ours, "x", 1), -EPIPE); /* and no SIGPIPE, whose default action would end this process */
	rig_close(rig);
}
END_TEST

START_TEST(wanting_nothing_is_quiet)
{
	struct rig *rig = rig_open(NULL);
	struct neap_stream *ours, *theirs;
	struct seen seen;
	struct neap_reactor_stats before, after;
	char byte;

	rig_pair(rig, &ours, &theirs);
	see(&seen, ours, 0, NEAP_HANGUP);
	ck_assert_int_eq(put(theirs, "x", 1), 1);
	neap_stream_close(theirs, false);
	rig->accepted[0] = NULL;
	drive_for(rig->reactor, 10);
	neap_reactor_stats(rig->reactor, &before);
	drive_for(rig->reactor, 100);
	neap_reactor_stats(rig->reactor, &after);
	ck_assert_int_eq(seen.calls, 0);
	ck_assert_uint_le(after.turns - before.turns, 3); /* a hang-up that nobody wants does not spin the host */
	neap_stream_want(ours, NEAP_READABLE);
	ck_assert(drive_until(rig->reactor, &seen.reached, 5000));
	ck_assert_int_eq(get(ours, &byte, 1), 1);
	ck_assert_int_eq(get(ours, &byte, 1), 0);
	rig_close(rig);
}
END_TEST

static void close_all(struct neap_stream *stream, unsigned ready)
{
	struct rig *rig = stream->user;
	(void)ready;
	for (uint32_t i = 0; i < rig->accepted_count; i++)
		if (rig->accepted[i])
			neap_stream_close(rig->accepted[i], i % 2);
	memset(rig->accepted, 0, sizeof(rig->accepted));
	rig->any_accepted = true;
}

/* Many are ready in one turn; the first handler closes them all: no other handler may run, and none may be taken for another. */
START_TEST(closed_by_another_handler)
{
	struct rig *rig = rig_open(NULL);
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	const int n = 20;

	for (int i = 0; i < n; i++)
		ck_assert_int_eq(rig_connect(rig, i, "127.0.0.1", port, 5000), 0);
	for (int i = 0; i < n; i++)
		ck_assert(drive_until(rig->reactor, &rig->outcomes[i].done, 5000) && rig->outcomes[i].stream);
	while (rig->accepted_count < (uint32_t)n) {
		rig->any_accepted = false;
		ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	}
	for (int i = 0; i < n; i++) {
		rig->accepted[i]->user = rig;
		rig->accepted[i]->ready = close_all;
		neap_stream_want(rig->accepted[i], NEAP_READABLE);
		ck_assert_int_eq(put(rig->outcomes[i].stream, "x", 1), 1);
	}
	rig->any_accepted = false;
	ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	rig->any_accepted = false;
	drive_for(rig->reactor, 20);
	ck_assert(!rig->any_accepted);
	rig_close(rig);
}
END_TEST

START_TEST(calls_after_close)
{
	struct rig *rig = rig_open(NULL);
	struct neap_stream *ours, *theirs;
	struct neap_sockaddr address;
	char byte;

	rig_pair(rig, &ours, &theirs);
	neap_stream_close(ours, false);
	neap_stream_close(ours, true);
	rig->outcomes[0].stream = NULL;
	neap_stream_want(ours, NEAP_READABLE);
	ours->ops->low_water(ours, 5);
	ours->ops->no_delay(ours);
	ours->ops->shutdown_write(ours);
	ck_assert_int_eq(get(ours, &byte, 1), -EBADF);
	ck_assert_int_eq(put(ours, "x", 1), -EBADF);
	ck_assert_int_eq(ours->ops->local_address(ours, &address), NEAP_ECLOSED);
	ck_assert_int_eq(ours->ops->peer_address(ours, &address), NEAP_ECLOSED);
	rig_close(rig);
}
END_TEST

/* The application forks and the child lives on without exec, holding copies of everything: peers see the ends all the same. */
START_TEST(ends_in_spite_of_a_forked_child)
{
	struct rig *rig = rig_open(NULL);
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	int gate[2];
	char byte;

	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(rig_connect(rig, i, "127.0.0.1", port, 5000), 0);
		ck_assert(drive_until(rig->reactor, &rig->outcomes[i].done, 5000) && rig->outcomes[i].stream);
	}
	while (rig->accepted_count < 4) {
		rig->any_accepted = false;
		ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	}
	ck_assert_int_eq(pipe2(gate, O_CLOEXEC | O_NONBLOCK), 0);
	pid_t child = fork();
	if (child == 0) {
		struct pollfd wait = {.fd = gate[0], .events = POLLIN};
		close(gate[1]);
		poll(&wait, 1, 20000);
		_exit(0);
	}
	for (uint32_t i = 0; i < 4; i++) {
		neap_stream_close(rig->accepted[i], i % 2);
		rig->accepted[i] = NULL;
	}
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(await(rig, rig->outcomes[i].stream, &byte, 1), i % 2 ? -ECONNRESET : 0);
	/* The port does not go on taking connections that nobody will serve. */
	neap_acceptor_close(&rig->acceptor);
	ck_assert_int_eq(rig_connect(rig, 4, "127.0.0.1", port, 5000), 0);
	ck_assert(drive_until(rig->reactor, &rig->outcomes[4].done, 5000));
	ck_assert_int_eq(rig->outcomes[4].system_errno, ECONNREFUSED);
	close(gate[0]);
	close(gate[1]);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	rig_close(rig);
}
END_TEST

START_TEST(reactor_outlives_its_streams)
{
	struct rig *rig = rig_open(NULL);
	struct neap_stream *ours, *theirs;
	rig_pair(rig, &ours, &theirs);
	ck_assert_int_eq(neap_reactor_destroy(rig->reactor), NEAP_EBUSY);
	rig_close(rig);
}
END_TEST

/* --- options ------------------------------------------------------------------------------------------------------------ */

START_TEST(low_water)
{
	struct rig *rig = rig_open(NULL);
	struct neap_stream *ours, *theirs;
	struct neap_reactor_stats before, after;
	struct seen seen;
	char bytes[2000];
	int value = 0;
	socklen_t length = sizeof(value);

	rig_pair(rig, &ours, &theirs);
	neap_reactor_stats(rig->reactor, &before);
	theirs->ops->low_water(theirs, 1);
	theirs->ops->low_water(theirs, 0);
	neap_reactor_stats(rig->reactor, &after);
	ck_assert_uint_eq(after.system_calls, before.system_calls); /* it was 1 already */
	theirs->ops->low_water(theirs, 1000);
	theirs->ops->low_water(theirs, 1000);
	neap_reactor_stats(rig->reactor, &after);
	ck_assert_uint_eq(after.system_calls, before.system_calls + 1);
	ck_assert_int_eq(getsockopt(rig_descriptor(theirs), SOL_SOCKET, SO_RCVLOWAT, &value, &length), 0);
	ck_assert_int_eq(value, 1000);

	memset(bytes, 'x', sizeof(bytes));
	ck_assert_int_eq(put(ours, bytes, 999), 999);
	see(&seen, theirs, NEAP_READABLE, NEAP_READABLE);
	drive_for(rig->reactor, 30);
	ck_assert_int_eq(seen.calls, 0);
	ck_assert_int_eq(put(ours, bytes, 1), 1);
	ck_assert(drive_until(rig->reactor, &seen.reached, 5000));
	ck_assert_int_eq(get(theirs, bytes, sizeof(bytes)), 1000);
	/* Lowering the mark under what has come makes it readable. */
	ck_assert_int_eq(put(ours, bytes, 10), 10);
	see(&seen, theirs, NEAP_READABLE, NEAP_READABLE);
	drive_for(rig->reactor, 30);
	ck_assert_int_eq(seen.calls, 0);
	theirs->ops->low_water(theirs, 10);
	ck_assert(drive_until(rig->reactor, &seen.reached, 5000));
	rig_close(rig);
}
END_TEST

static int number_option(int fd, int level, int option)
{
	int value = -1;
	socklen_t length = sizeof(value);
	ck_assert_int_eq(getsockopt(fd, level, option, &value, &length), 0);
	return value;
}

START_TEST(no_delay_on_both_ends)
{
	struct rig *rig = rig_open(NULL);
	struct neap_stream *ours, *theirs;
	rig_pair(rig, &ours, &theirs);
	ck_assert_int_eq(number_option(rig_descriptor(ours), IPPROTO_TCP, TCP_NODELAY), 1);
	ck_assert_int_eq(number_option(rig_descriptor(theirs), IPPROTO_TCP, TCP_NODELAY), 1);
	ours->ops->no_delay(ours);
	rig_close(rig);
}
END_TEST

START_TEST(buffers_on_both_ends)
{
	struct rig *rig = rig_open(NULL);
	struct neap_stream *ours, *theirs;
	rig->options.send_buffer_bytes = 20000;
	rig->options.receive_buffer_bytes = 30000;
	rig_pair(rig, &ours, &theirs);
	ck_assert_int_eq(number_option(rig_descriptor(ours), SOL_SOCKET, SO_SNDBUF), 40000); /* Linux doubles them */
	ck_assert_int_eq(number_option(rig_descriptor(theirs), SOL_SOCKET, SO_SNDBUF), 40000);
	ck_assert_int_eq(number_option(rig_descriptor(ours), SOL_SOCKET, SO_RCVBUF), 60000);
	ck_assert_int_eq(number_option(rig_descriptor(theirs), SOL_SOCKET, SO_RCVBUF), 60000);
	rig_close(rig);
}
END_TEST

static const char *congestion_of(struct neap_stream *stream)
{
	static char name[32];
	socklen_t length = sizeof(name) - 1;
	memset(name, 0, sizeof(name));
	ck_assert_int_eq(getsockopt(rig_descriptor(stream), IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
	return name;
}

/* `list` of /proc/sys/net/ipv4 has `name`. */
static bool kernel_has(const char *list, const char *name)
{
	char path[96], text[256] = "";
	snprintf(path, sizeof(path), "/proc/sys/net/ipv4/%s", list);
	FILE *file = fopen(path, "r");
	if (!file || !fgets(text, sizeof(text), file))
		text[0] = '\0';
	if (file)
		fclose(file);
	return strstr(text, name) != NULL;
}

static void expect_congestion(const char *setting, const char *name)
{
	struct rig *rig = rig_open(NULL);
	struct neap_stream *ours, *theirs;
	rig->options.congestion = setting;
	rig_pair(rig, &ours, &theirs);
	ck_assert_msg(strncmp(congestion_of(ours), name, strlen(name)) == 0, "%s: ours is %s", setting, congestion_of(ours));
	ck_assert_msg(strncmp(congestion_of(theirs), name, strlen(name)) == 0, "%s: theirs is %s", setting, congestion_of(theirs));
	rig_close(rig);
}

START_TEST(congestion)
{
	char standard[64] = "";
	FILE *file = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "r");
	ck_assert(file && fscanf(file, "%63s", standard) == 1);
	fclose(file);
	if (strcmp(standard, "bbr") != 0)
		printf("note: the system's congestion control is %s, so \"auto\" has nothing to change here\n", standard);
	bool changes = strcmp(standard, "bbr") == 0 && kernel_has("tcp_allowed_congestion_control", "reno");
	expect_congestion("auto", changes ? "reno" : standard);
	expect_congestion("system", standard);
	expect_congestion("", standard);
	expect_congestion("reno", "reno");
}
END_TEST

START_TEST(unknown_congestion_is_an_error)
{
	struct rig *rig = rig_open(NULL);
	struct neap_sockaddr address;
	int system_errno = 0;
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	rig->options.congestion = "nosuch";
	ck_assert_int_eq(rig_connect(rig, 0, "127.0.0.1", port, 1000), 0);
	ck_assert(drive_until(rig->reactor, &rig->outcomes[0].done, 5000));
	ck_assert_int_eq(rig->outcomes[0].error, NEAP_ESOCKET);
	ck_assert_int_eq(rig->outcomes[0].system_errno, ENOENT);
	neap_acceptor_close(&rig->acceptor);
	ck_assert_int_eq(neap_sockaddr_from_numeric("127.0.0.1", 0, &address), 0);
	ck_assert_int_eq(neap_acceptor_open(&rig->acceptor, rig->reactor, &address, &rig->options, &system_errno), NEAP_ESOCKET);
	ck_assert_int_eq(system_errno, ENOENT);
	rig_close(rig);
}
END_TEST

static void add_cases(Suite *suite)
{
	TCase *bytes = tcase_create("bytes"), *ends = tcase_create("ends"), *options = tcase_create("options");
	tcase_set_timeout(bytes, 60);
	tcase_add_test(bytes, bulk_through_small_buffers);
	tcase_add_test(bytes, more_vectors_than_the_kernel_takes);
	tcase_add_test(ends, half_close);
	tcase_add_test(ends, end_is_seen_on_an_idle_stream);
	tcase_add_test(ends, reset_by_peer);
	tcase_add_test(ends, wanting_nothing_is_quiet);
	tcase_add_test(ends, closed_by_another_handler);
	tcase_add_test(ends, calls_after_close);
	tcase_add_test(ends, ends_in_spite_of_a_forked_child);
	tcase_add_test(ends, reactor_outlives_its_streams);
	tcase_add_test(options, low_water);
	tcase_add_test(options, no_delay_on_both_ends);
	tcase_add_test(options, buffers_on_both_ends);
	tcase_add_test(options, congestion);
	tcase_add_test(options, unknown_congestion_is_an_error);
	suite_add_tcase(suite, bytes);
	suite_add_tcase(suite, ends);
	suite_add_tcase(suite, options);
}

int main(void)
{
	Suite *suite = suite_create("streams");
	add_cases(suite);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
