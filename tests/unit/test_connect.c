/* Opening streams: verdicts, deadlines, names, several addresses, cancelling. What needs /etc files or name servers of its own runs
 * in private namespaces, which need root. */
#include "tests/support/stream_rig.h"
#include "tests/support/netns.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void expect(const struct rig *rig, int i, int error, int system_errno, const char *says)
{
	const struct rig_outcome *outcome = &rig->outcomes[i];
	ck_assert_int_eq(outcome->calls, 1);
	ck_assert_msg(outcome->error == error, "%s instead of %s: %s", neap_error_name(outcome->error), neap_error_name(error),
	              outcome->detail);
	ck_assert_int_eq(outcome->system_errno, system_errno);
	ck_assert_int_eq(outcome->stream != NULL, error == 0);
	ck_assert_msg(!says || strstr(outcome->detail, says), "\"%s\" lacks \"%s\"", outcome->detail, says);
}

static void finish(struct rig *rig, int i)
{
	ck_assert(drive_until(rig->reactor, &rig->outcomes[i].done, 10000));
}

static uint16_t free_port(void)
{
	struct neap_sockaddr address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(neap_sockaddr_from_numeric("127.0.0.1", 0, &address), 0);
	ck_assert_int_eq(bind(fd, &address.any, address.length), 0);
	ck_assert_int_eq(getsockname(fd, &address.any, &address.length), 0);
	close(fd);
	return neap_sockaddr_port(&address);
}

/* A listener nobody accepts from, its queue full: the kernel drops each further SYN, as a dead host would. */
struct black_hole {
	int listener, fillers[16], count;
	uint16_t port;
};

static void black_hole_open(struct black_hole *hole, const char *host, uint16_t port)
{
	struct neap_sockaddr address;
	hole->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(neap_sockaddr_from_numeric(host, port, &address), 0);
	ck_assert_int_eq(bind(hole->listener, &address.any, address.length), 0);
	ck_assert_int_eq(listen(hole->listener, 0), 0);
	ck_assert_int_eq(getsockname(hole->listener, &address.any, &address.length), 0);
	hole->port = neap_sockaddr_port(&address);
	for (hole->count = 0; hole->count < 16; hole->count++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		struct pollfd wait = {.fd = fd, .events = POLLOUT};
		hole->fillers[hole->count] = fd;
		ck_assert(connect(fd, &address.any, address.length) == 0 || errno == EINPROGRESS);
		if (poll(&wait, 1, 100) == 0) {
			hole->count++;
			return;
		}
	}
	ck_abort_msg("the queue of a listener with backlog 0 does not fill");
}

static void black_hole_close(struct black_hole *hole)
{
	for (int i = 0; i < hole->count; i++)
		close(hole->fillers[i]);
	close(hole->listener);
}

/* --- verdicts ----------------------------------------------------------------------------------------------------------- */

START_TEST(connected)
{
	struct rig *rig = rig_open(NULL);
	char text[8];
	uint16_t port = rig_listen(rig, _i ? "::1" : "127.0.0.1", 0);
	ck_assert_int_eq(rig_connect(rig, 0, _i ? "::1" : "127.0.0.1", port, 1000), 0);
	finish(rig, 0);
	expect(rig, 0, 0, 0, NULL);
	ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	struct iovec vector = {(char[]){"hello"}, 5};
	ck_assert_int_eq(neap_stream_writev(rig->outcomes[0].stream, &vector, 1), 5);
	vector = (struct iovec){text, sizeof(text)};
	ck_assert_int_eq(neap_stream_readv(rig->accepted[0], &vector, 1), 5);
	drive_for(rig->reactor, 10);
	ck_assert_int_eq(rig->outcomes[0].calls, 1);
	rig_close(rig);
}
END_TEST

START_TEST(refused)
{
	struct rig *rig = rig_open(NULL);
	uint16_t port = free_port();
	char text[64];
	ck_assert_int_eq(rig_connect(rig, 0, "127.0.0.1", port, 1000), 0);
	ck_assert_int_eq(rig_connect(rig, 0, "127.0.0.1", port, 1000), NEAP_EBUSY);
	finish(rig, 0);
	snprintf(text, sizeof(text), "127.0.0.1:%u: Connection refused", port);
	expect(rig, 0, NEAP_ESOCKET, ECONNREFUSED, text);
	rig_close(rig);
}
END_TEST

START_TEST(black_hole_times_out_alone)
{
	struct rig *rig = rig_open(NULL);
	struct black_hole hole;
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	black_hole_open(&hole, "127.0.0.1", 0);

	uint64_t begun_ns = drive_now_ns();
	ck_assert_int_eq(rig_connect(rig, 0, "127.0.0.1", hole.port, 300), 0);
	for (int i = 1; i <= 100; i++) {
		ck_assert_int_eq(rig_connect(rig, i, "127.0.0.1", port, 5000), 0);
		finish(rig, i);
		expect(rig, i, 0, 0, NULL);
	}
	ck_assert(!rig->outcomes[0].done); /* a hundred others did not wait for it */
	finish(rig, 0);
	uint64_t took_ns = drive_now_ns() - begun_ns;
	expect(rig, 0, NEAP_ETIMEDOUT, ETIMEDOUT, "timed out");
	ck_assert_msg(took_ns >= 300000000 && took_ns < 5000000000, "it took %llu ns", (unsigned long long)took_ns);
	fdcheck_assert(&rig->fds);
	black_hole_close(&hole);
	rig_close(rig);
}
END_TEST

START_TEST(no_descriptor_left)
{
	struct rig *rig = rig_open(NULL);
	struct rlimit original, none;
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &original), 0);
	none = original;
	none.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	ck_assert_int_eq(rig_connect(rig, 0, "127.0.0.1", port, 1000), 0);
	finish(rig, 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &original), 0);
	expect(rig, 0, NEAP_ESOCKET, EMFILE, "Too many open files");
	rig_close(rig);
}
END_TEST

START_TEST(watch_table_full)
{
	struct neap_reactor_options options = {.descriptors_max = 2};
	struct rig *rig = rig_open(&options);
	struct black_hole hole;
	black_hole_open(&hole, "127.0.0.1", 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(rig_connect(rig, i, "127.0.0.1", hole.port, 10000), 0);
	finish(rig, 2);
	expect(rig, 2, NEAP_ESOCKET, EMFILE, NULL);
	black_hole_close(&hole);
	rig_close(rig);
}
END_TEST

START_TEST(arguments)
{
	struct rig *rig = rig_open(NULL);
	ck_assert_int_eq(rig_connect(rig, 0, "", 1, 1000), NEAP_EINVAL);
	ck_assert_int_eq(rig_connect(rig, 0, "127.0.0.1", 0, 1000), NEAP_EINVAL);
	ck_assert_int_eq(rig_connect(rig, 0, "fe80::1%nosuchif0", 1, 1000), NEAP_EADDRESS);
	drive_for(rig->reactor, 5);
	ck_assert_int_eq(rig->outcomes[0].calls, 0);
	rig_close(rig);
}
END_TEST

/* --- cancelling --------------------------------------------------------------------------------------------------------- */

START_TEST(cancelled)
{
	struct rig *rig = rig_open(NULL);
	struct black_hole hole;
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	black_hole_open(&hole, "127.0.0.1", 0);

	ck_assert_int_eq(rig_connect(rig, 0, "127.0.0.1", port, 1000), 0); /* before it began */
	neap_connect_cancel(&rig->connects[0]);
	ck_assert_int_eq(rig_connect(rig, 1, "127.0.0.1", hole.port, 100), 0); /* in the middle */
	ck_assert_int_eq(rig_connect(rig, 2, "localhost", port, 100), 0); /* with its answer waiting */
	ck_assert_int_gt(neap_reactor_run_once(rig->reactor, &(struct neap_budget){.events_max = 1}), 0);
	neap_connect_cancel(&rig->connects[1]);
	neap_connect_cancel(&rig->connects[1]);
	neap_connect_cancel(&rig->connects[2]);
	drive_for(rig->reactor, 200); /* past their deadlines */
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(rig->outcomes[i].calls, 0);
	/* And again with the same object. */
	ck_assert_int_eq(rig_connect(rig, 1, "127.0.0.1", port, 1000), 0);
	finish(rig, 1);
	expect(rig, 1, 0, 0, NULL);
	neap_connect_cancel(&rig->connects[1]); /* it has ended: harmless */
	black_hole_close(&hole);
	rig_close(rig);
}
END_TEST

struct retry {
	struct rig *rig;
	uint16_t good_port;
	int calls;
	bool done;
};

static void retry_elsewhere(struct neap_connect *connect, int error, int system_errno, struct neap_stream *stream)
{
	struct retry *retry = connect->user;
	struct neap_host_port target = {.host = "127.0.0.1", .port = retry->good_port};
	retry->calls++;
	if (error) {
		ck_assert_int_eq(system_errno, ECONNREFUSED);
		neap_connect_cancel(&retry->rig->connects[1]); /* another one, from inside */
		ck_assert_int_eq(neap_connect_start(connect, retry->rig->reactor, &target, NULL, 1000000000, retry_elsewhere, retry), 0);
		return;
	}
	neap_stream_close(stream, false);
	retry->done = true;
}

START_TEST(started_again_from_its_callback)
{
	struct rig *rig = rig_open(NULL);
	struct retry retry = {.rig = rig, .good_port = rig_listen(rig, "127.0.0.1", 0)};
	struct neap_host_port target = {.host = "127.0.0.1", .port = free_port()};
	struct black_hole hole;
	black_hole_open(&hole, "127.0.0.1", 0);
	ck_assert_int_eq(rig_connect(rig, 1, "127.0.0.1", hole.port, 10000), 0);
	ck_assert_int_eq(neap_connect_start(&rig->connects[0], rig->reactor, &target, NULL, 1000000000, retry_elsewhere, &retry), 0);
	ck_assert(drive_until(rig->reactor, &retry.done, 5000));
	ck_assert_int_eq(retry.calls, 2);
	ck_assert_int_eq(rig->outcomes[1].calls, 0);
	black_hole_close(&hole);
	rig_close(rig);
}
END_TEST

/* --- names -------------------------------------------------------------------------------------------------------------- */

START_TEST(localhost)
{
	struct rig *rig = rig_open(NULL);
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	rig->connects[0].family = AF_INET;
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(rig_connect(rig, i, "localhost", port, 5000), 0);
		finish(rig, i);
		expect(rig, i, 0, 0, NULL);
	}
	rig_close(rig);
}
END_TEST

START_TEST(hosts_file_and_several_addresses)
{
	if (!netns_enter("127.0.0.2 many\n127.0.0.1 many\n127.0.0.3 hole\n127.0.0.1 hole\n127.0.0.4 none\n127.0.0.5 none\n"
	                 "127.0.0.1 four\n::1 six\n", NULL))
		return;
	struct rig *rig = rig_open(NULL);
	struct black_hole hole;
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	black_hole_open(&hole, "127.0.0.3", port);

	ck_assert_int_eq(rig_connect(rig, 0, "many", port, 5000), 0); /* the first is refused */
	finish(rig, 0);
	expect(rig, 0, 0, 0, NULL);
	ck_assert_int_eq(rig_connect(rig, 1, "none", port, 5000), 0); /* both are */
	finish(rig, 1);
	expect(rig, 1, NEAP_ESOCKET, ECONNREFUSED, "127.0.0.5");
	ck_assert_uint_eq(rig->connects[1].address_count, 2);

	uint64_t begun_ns = drive_now_ns();
	ck_assert_int_eq(rig_connect(rig, 2, "hole", port, 2000), 0); /* the first is dead: it gets half of the time */
	finish(rig, 2);
	expect(rig, 2, 0, 0, NULL);
	ck_assert_uint_ge(drive_now_ns() - begun_ns, 1000000000);

	rig->connects[3].family = AF_INET6; /* the name has none of that family */
	ck_assert_int_eq(rig_connect(rig, 3, "four", port, 2000), 0);
	finish(rig, 3);
	expect(rig, 3, NEAP_EDNS, 0, "four: ");
	ck_assert_int_eq(rig_connect(rig, 4, "six", port, 2000), 0); /* nobody listens at ::1 */
	finish(rig, 4);
	expect(rig, 4, NEAP_ESOCKET, ECONNREFUSED, "[::1]");
	black_hole_close(&hole);
	rig_close(rig);
}
END_TEST

/* An interface without any route: the kernel says no at once, inside the call. */
START_TEST(unreachable)
{
	if (!netns_enter("10.9.9.9 far\n127.0.0.1 far\n", NULL))
		return;
	struct rig *rig = rig_open(NULL);
	ck_assert_int_eq(rig_connect(rig, 0, "10.9.9.9", 9, 1000), 0);
	finish(rig, 0);
	expect(rig, 0, NEAP_ESOCKET, ENETUNREACH, "10.9.9.9:9: Network is unreachable");
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	ck_assert_int_eq(rig_connect(rig, 1, "far", port, 1000), 0);
	finish(rig, 1);
	expect(rig, 1, 0, 0, NULL);
	rig_close(rig);
}
END_TEST

/* One port is all the kernel may choose from: a connect to it can only meet itself. */
START_TEST(meeting_itself_is_refused)
{
	if (!netns_enter(NULL, NULL) || !netns_write("/proc/sys/net/ipv4/ip_local_port_range", "40001 40001\n"))
		return;
	struct rig *rig = rig_open(NULL);
	ck_assert_int_eq(rig_connect(rig, 0, "127.0.0.1", 40001, 1000), 0);
	finish(rig, 0);
	expect(rig, 0, NEAP_ESOCKET, ECONNREFUSED, "127.0.0.1:40001");
	/* While a connection holds the port there is none for another. */
	uint16_t port = rig_listen(rig, "127.0.0.1", 50000);
	ck_assert_int_eq(rig_connect(rig, 1, "127.0.0.1", port, 1000), 0);
	finish(rig, 1);
	expect(rig, 1, 0, 0, NULL);
	ck_assert_int_eq(rig_connect(rig, 2, "127.0.0.1", port, 1000), 0);
	finish(rig, 2);
	expect(rig, 2, NEAP_ESOCKET, EADDRNOTAVAIL, NULL);
	rig_close(rig);
}
END_TEST

/* --- a name server of our own --------------------------------------------------------------------------------------------- */

START_TEST(names_from_a_server)
{
	struct name_server server;
	if (!netns_enter("127.0.0.1 localhost\n", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"))
		return;
	name_server_start(&server);
	struct rig *rig = rig_open(NULL);
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	for (int i = 0; i < 40; i++) /* many at a time */
		ck_assert_int_eq(rig_connect(rig, i, "good.test", port, 5000), 0);
	ck_assert_int_eq(rig_connect(rig, 40, "absent.test", port, 5000), 0);
	ck_assert_int_eq(rig_connect(rig, 41, "big.test", port, 5000), 0); /* truncated: asked again over TCP, 30 addresses */
	for (int i = 0; i < 42; i++)
		finish(rig, i);
	for (int i = 0; i < 40; i++)
		expect(rig, i, 0, 0, NULL);
	expect(rig, 40, NEAP_EDNS, 0, "absent.test: ");
	expect(rig, 41, NEAP_ESOCKET, ECONNREFUSED, "127.1.0.");
	ck_assert_uint_eq(rig->connects[41].address_count, 16);
	ck_assert_uint_gt(name_server_tcp_answers(&server), 0);
	rig_close(rig);
	name_server_stop(&server);
}
END_TEST

START_TEST(silent_name_server)
{
	struct name_server server;
	if (!netns_enter("127.0.0.1 localhost\n", "nameserver 127.0.0.1\n"))
		return;
	name_server_start(&server);
	struct rig *rig = rig_open(NULL);
	struct neap_reactor_stats stats;
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	ck_assert_int_eq(rig_connect(rig, 0, "silent.test", port, 200), 0);
	finish(rig, 0);
	expect(rig, 0, NEAP_ETIMEDOUT, ETIMEDOUT, "silent.test: no name server answered");
	/* Others are served meanwhile. */
	ck_assert_int_eq(rig_connect(rig, 1, "localhost", port, 2000), 0);
	finish(rig, 1);
	expect(rig, 1, 0, 0, NULL);
	/* The bound on questions asked at a time, cancelled ones among them. */
	for (int i = 2; i < 300; i++)
		ck_assert_int_eq(rig_connect(rig, i, "silent.test", port, 60000), 0);
	finish(rig, 299);
	expect(rig, 299, NEAP_ELIMIT, 0, "silent.test");
	ck_assert(!rig->outcomes[100].done);
	fdcheck_assert(&rig->fds);
	for (int i = 2; i < 300; i++)
		neap_connect_cancel(&rig->connects[i]);
	neap_reactor_stats(rig->reactor, &stats);
	ck_assert_uint_gt(stats.descriptors, 2); /* c-ares still asks */
	rig_close(rig); /* and the reactor goes all the same */
	name_server_stop(&server);
}
END_TEST

START_TEST(no_name_server)
{
	if (!netns_enter("127.0.0.1 localhost\n", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"))
		return;
	struct rig *rig = rig_open(NULL);
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	ck_assert_int_eq(rig_connect(rig, 0, "good.test", port, 5000), 0); /* port unreachable comes back */
	finish(rig, 0);
	expect(rig, 0, NEAP_EDNS, 0, "good.test: ");
	/* Idle afterwards: no descriptor and no timer stay behind. */
	struct neap_reactor_stats stats;
	drive_for(rig->reactor, 10);
	neap_reactor_stats(rig->reactor, &stats);
	ck_assert_uint_eq(stats.descriptors, 1);
	ck_assert_uint_eq(stats.timers_active, 0);
	rig_close(rig);
}
END_TEST

/* resolv.conf may change while the process lives: an idle channel is made anew after a minute. */
START_TEST(changed_resolv_conf)
{
	struct name_server server;
	if (!netns_enter("127.0.0.1 localhost\n", "nameserver 127.0.0.2\noptions timeout:1 attempts:1\n"))
		return;
	name_server_start(&server);
	struct rig *rig = rig_open(NULL);
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	ck_assert_int_eq(rig_connect(rig, 0, "good.test", port, 5000), 0);
	finish(rig, 0);
	expect(rig, 0, NEAP_EDNS, 0, NULL);
	ck_assert(netns_write("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"));
	ck_assert_int_gt(neap_reactor_run_at(rig->reactor, drive_now_ns() + UINT64_C(61000000000), NULL), 0);
	ck_assert_int_eq(rig_connect(rig, 1, "good.test", port, 5000), 0);
	finish(rig, 1);
	expect(rig, 1, 0, 0, NULL);
	rig_close(rig);
	name_server_stop(&server);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("connect");
	TCase *verdicts = tcase_create("verdicts"), *cancels = tcase_create("cancelling"), *names = tcase_create("names");
	tcase_set_timeout(verdicts, 30);
	tcase_set_timeout(names, 30);
	tcase_add_loop_test(verdicts, connected, 0, 2);
	tcase_add_test(verdicts, refused);
	tcase_add_test(verdicts, black_hole_times_out_alone);
	tcase_add_test(verdicts, no_descriptor_left);
	tcase_add_test(verdicts, watch_table_full);
	tcase_add_test(verdicts, arguments);
	tcase_add_test(verdicts, unreachable);
	tcase_add_test(verdicts, meeting_itself_is_refused);
	tcase_add_test(cancels, cancelled);
	tcase_add_test(cancels, started_again_from_its_callback);
	tcase_add_test(names, localhost);
	tcase_add_test(names, hosts_file_and_several_addresses);
	tcase_add_test(names, names_from_a_server);
	tcase_add_test(names, silent_name_server);
	tcase_add_test(names, no_name_server);
	tcase_add_test(names, changed_resolv_conf);
	suite_add_tcase(suite, verdicts);
	suite_add_tcase(suite, cancels);
	suite_add_tcase(suite, names);
	SRunner *runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_FORK); /* each test needs a process of its own */
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
