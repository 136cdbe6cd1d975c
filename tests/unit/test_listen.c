/* Accepting on real sockets: shortage of descriptors, limits, ports, closing from inside. */
#include "tests/support/stream_rig.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Blocking clients of the test's own; the connections wait in the listener's queue until the reactor takes them. */
static int raw_client(uint16_t port)
{
	struct neap_sockaddr address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(neap_sockaddr_from_numeric("127.0.0.1", port, &address), 0);
	ck_assert(connect(fd, &address.any, address.length) == 0 || errno == EINPROGRESS);
	return fd;
}

static bool all_accepted(void *user)
{
	const struct rig *rig = &((struct rig *)user)[0];
	return rig->accepted_count >= rig->acceptor.connections_max || rig->accepted_count == 20;
}

static void close_accepted(struct rig *rig, uint32_t i)
{
	neap_stream_close(rig->accepted[i], false);
	rig->accepted[i] = NULL;
	neap_acceptor_released(&rig->acceptor);
}

#define CLIENTS 20

/* Leaves room for `n` more: the limit is on the number of a descriptor, and numbers may have gaps. */
static void limit_descriptors(int n)
{
	struct rlimit limit;
	int fd = 0;
	for (; n > 0 || fcntl(fd, F_GETFD) >= 0; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			n--;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = (rlim_t)fd;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

START_TEST(no_spin_and_no_loss_when_descriptors_are_short)
{
	struct rig *rig = rig_open(NULL);
	struct neap_reactor_stats before, after;
	int clients[CLIENTS];
	struct rlimit original;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &original), 0);
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = raw_client(port);
	limit_descriptors(5);

	drive_for(rig->reactor, 50);
	ck_assert_uint_eq(rig->accepted_count, 5);
	neap_reactor_stats(rig->reactor, &before);
	drive_for(rig->reactor, 1000);
	neap_reactor_stats(rig->reactor, &after);
	ck_assert_uint_eq(rig->accepted_count, 5);
	/* Ten pauses of 100 ms, a few turns each; fewer on a busy machine. */
	ck_assert_msg(after.turns - before.turns <= 60, "%llu turns in a second", (unsigned long long)(after.turns - before.turns));
	ck_assert_uint_ge(rig->acceptor.pauses, 2);
	ck_assert_int_eq(rig->logs, 1); /* once a minute, not once a pause */
	ck_assert_ptr_nonnull(strstr(rig->last_log, "Too many open files"));

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &original), 0);
	ck_assert(drive_all_until(&rig->reactor, 1, all_accepted, rig, 5000));
	ck_assert_uint_eq(rig->acceptor.accepted, CLIENTS);
	for (int i = 0; i < CLIENTS; i++)
		close(clients[i]);
	rig_close(rig);
}
END_TEST

/* A connection of its own that ends makes room at once, without the pause. */
START_TEST(own_end_ends_the_pause)
{
	struct rig *rig = rig_open(NULL);
	int clients[CLIENTS];
	struct rlimit original;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &original), 0);
	rig->acceptor.pause_ns = UINT64_C(3600000000000);
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = raw_client(port);
	limit_descriptors(5);
	drive_for(rig->reactor, 50);
	for (uint32_t i = 0; i < CLIENTS - 5; i++) {
		ck_assert_uint_eq(rig->accepted_count, 5 + i);
		rig->any_accepted = false;
		close_accepted(rig, i);
		ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	}
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &original), 0);
	for (int i = 0; i < CLIENTS; i++)
		close(clients[i]);
	rig_close(rig);
}
END_TEST

/* The reactor's own table is full: the connection already taken from the kernel is kept, not dropped. */
START_TEST(no_loss_when_the_watch_table_is_full)
{
	struct neap_reactor_options options = {.descriptors_max = 6};
	struct rig *rig = rig_open(&options);
	int clients[CLIENTS];

	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = raw_client(port);
	rig->acceptor.pause_ns = 5000000;
	drive_for(rig->reactor, 30);
	ck_assert_uint_eq(rig->accepted_count, 5);
	for (uint32_t i = 0; i < CLIENTS - 1; i++) {
		rig->any_accepted = rig->accepted_count > i + 5;
		close_accepted(rig, i);
		if (i < CLIENTS - 5)
			ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	}
	ck_assert_uint_eq(rig->acceptor.accepted, CLIENTS);
	/* Closing while one is parked leaks nothing: rig_close counts descriptors. */
	int more[8];
	for (int i = 0; i < 8; i++)
		more[i] = raw_client(port);
	drive_for(rig->reactor, 30);
	ck_assert_uint_eq(rig->accepted_count, CLIENTS + 4);
	for (int i = 0; i < CLIENTS; i++)
		close(clients[i]);
	for (int i = 0; i < 8; i++)
		close(more[i]);
	rig_close(rig);
}
END_TEST

START_TEST(limit_of_connections)
{
	struct rig *rig = rig_open(NULL);
	struct neap_reactor_stats before, after;
	int clients[8];

	rig->acceptor.connections_max = 3;
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	for (int i = 0; i < 8; i++)
		clients[i] = raw_client(port);
	ck_assert(drive_all_until(&rig->reactor, 1, all_accepted, rig, 5000));
	drive_for(rig->reactor, 10);
	neap_reactor_stats(rig->reactor, &before);
	drive_for(rig->reactor, 200);
	neap_reactor_stats(rig->reactor, &after);
	ck_assert_uint_eq(rig->accepted_count, 3);
	ck_assert_uint_le(after.turns - before.turns, 3);
	ck_assert_uint_eq(rig->acceptor.pauses, 0);
	for (uint32_t i = 0; i < 5; i++) {
		rig->any_accepted = false;
		close_accepted(rig, i);
		ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	}
	ck_assert_uint_eq(rig->accepted_count, 8);
	close_accepted(rig, 5); /* while listening: only counted */
	ck_assert_uint_eq(rig->acceptor.connections, 2);
	for (int i = 0; i < 8; i++)
		close(clients[i]);
	rig_close(rig);
}
END_TEST

/* --- closing ------------------------------------------------------------------------------------------------------------ */

static void close_inside(struct neap_acceptor *acceptor, struct neap_stream *stream)
{
	struct rig *rig = acceptor->user;
	rig->accepted[rig->accepted_count++] = stream;
	rig->any_accepted = true;
	neap_acceptor_close(acceptor);
	neap_acceptor_close(acceptor);
}

START_TEST(closed_from_its_callback)
{
	struct rig *rig = rig_open(NULL);
	int clients[4];

	rig->acceptor.accepted_stream = close_inside;
	rig->options.reuse_address = true;
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	for (int i = 0; i < 4; i++)
		clients[i] = raw_client(port);
	ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	drive_for(rig->reactor, 20);
	ck_assert_uint_eq(rig->accepted_count, 1);
	ck_assert_uint_eq(neap_acceptor_port(&rig->acceptor), 0);
	/* The same acceptor opens again, on the same port: nothing of the old one is in the way. */
	ck_assert_uint_eq(rig_listen(rig, "127.0.0.1", port), port);
	rig->any_accepted = false;
	int again = raw_client(port);
	ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	ck_assert_uint_eq(rig->accepted_count, 2);
	close(again);
	for (int i = 0; i < 4; i++)
		close(clients[i]);
	rig_close(rig);
}
END_TEST

/* Closed in each state it can be in. */
START_TEST(closed_while_paused_and_while_full)
{
	struct rig *rig = rig_open(NULL);
	struct rlimit original;
	int clients[4];

	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &original), 0);
	for (int i = 0; i < 2; i++)
		clients[i] = raw_client(port);
	limit_descriptors(0);
	drive_for(rig->reactor, 20);
	ck_assert_uint_eq(rig->acceptor.pauses, 1);
	neap_acceptor_close(&rig->acceptor);
	drive_for(rig->reactor, 150);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &original), 0);
	ck_assert_uint_eq(rig->accepted_count, 0);

	rig->acceptor.connections_max = 1;
	port = rig_listen(rig, "127.0.0.1", 0);
	for (int i = 2; i < 4; i++)
		clients[i] = raw_client(port);
	ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	drive_for(rig->reactor, 10);
	neap_acceptor_close(&rig->acceptor);
	drive_for(rig->reactor, 10);
	ck_assert_uint_eq(rig->accepted_count, 1);
	neap_acceptor_released(&rig->acceptor); /* of one that is closed: no harm */
	for (int i = 0; i < 4; i++)
		close(clients[i]);
	rig_close(rig);
}
END_TEST

/* --- ports and addresses ------------------------------------------------------------------------------------------------ */

START_TEST(port_ranges)
{
	struct rig *rig = rig_open(NULL);
	static struct neap_acceptor others[3];
	struct neap_sockaddr host;
	int system_errno = 0;

	uint16_t taken = rig_listen(rig, "127.0.0.1", 0);
	ck_assert_int_eq(neap_sockaddr_from_numeric("127.0.0.1", 0, &host), 0);
	for (int i = 0; i < 3; i++)
		others[i] = (struct neap_acceptor){.connections_max = 1, .accepted_stream = close_inside, .what = "other"};
	ck_assert_int_eq(neap_acceptor_open_range(&others[0], rig->reactor, &host, taken, taken, 500, NULL, &system_errno), NEAP_ESOCKET);
	ck_assert_int_eq(system_errno, EADDRINUSE);
	ck_assert_int_eq(neap_acceptor_open_range(&others[0], rig->reactor, &host, 0, 9, 500, NULL, &system_errno), NEAP_EINVAL);
	ck_assert_int_eq(neap_acceptor_open_range(&others[0], rig->reactor, &host, 9, 8, 500, NULL, &system_errno), NEAP_EINVAL);
	/* Three in a range of three, whatever the random start; then there is none left. */
	for (uint16_t base = 15000; base < 60000; base = (uint16_t)(base + 3)) {
		for (int i = 0; i < 3; i++)
			if (neap_acceptor_open_range(&others[i], rig->reactor, &host, base, (uint16_t)(base + 2), 500, NULL, &system_errno))
				break;
		if (neap_acceptor_port(&others[2]))
			break;
		for (int i = 0; i < 3; i++)
			neap_acceptor_close(&others[i]);
	}
	unsigned seen = 0;
	for (int i = 0; i < 3; i++)
		seen |= 1u << neap_acceptor_port(&others[i]) % 3;
	ck_assert_uint_eq(seen, 7);
	struct neap_acceptor fourth = {.connections_max = 1, .accepted_stream = close_inside, .what = "other"};
	uint16_t low = neap_acceptor_port(&others[0]);
	for (int i = 1; i < 3; i++)
		low = neap_acceptor_port(&others[i]) < low ? neap_acceptor_port(&others[i]) : low;
	ck_assert_int_eq(neap_acceptor_open_range(&fourth, rig->reactor, &host, low, (uint16_t)(low + 2), 500, NULL, &system_errno),
	                 NEAP_ESOCKET);
	for (int i = 0; i < 3; i++)
		neap_acceptor_close(&others[i]);
	ck_assert_int_eq(neap_sockaddr_from_numeric("192.0.2.77", 0, &host), 0); /* not an address of this machine */
	ck_assert_int_eq(neap_acceptor_open_range(&others[0], rig->reactor, &host, 15000, 17000, 500, NULL, &system_errno), NEAP_ESOCKET);
	ck_assert_int_eq(system_errno, EADDRNOTAVAIL);
	rig_close(rig);
}
END_TEST

static void expect_reachable(const char *bound, const char *host)
{
	struct rig *rig = rig_open(NULL);
	struct neap_sockaddr peer;
	uint16_t port = rig_listen(rig, bound, 0);
	ck_assert_int_eq(rig_connect(rig, 0, host, port, 5000), 0);
	ck_assert(drive_until(rig->reactor, &rig->outcomes[0].done, 5000));
	ck_assert_msg(rig->outcomes[0].error == 0, "%s at %s: %s", host, bound, rig->outcomes[0].detail);
	ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	ck_assert_int_eq(rig->outcomes[0].stream->ops->peer_address(rig->outcomes[0].stream, &peer), 0);
	ck_assert_uint_eq(neap_sockaddr_port(&peer), port);
	rig_close(rig);
}

START_TEST(families)
{
	expect_reachable("127.0.0.1", "127.0.0.1");
	expect_reachable("0.0.0.0", "127.0.0.9");
	expect_reachable("::1", "::1");
	expect_reachable("::", "::1");
	expect_reachable("::", "127.0.0.1"); /* both families, whatever net.ipv6.bindv6only says */
	expect_reachable("127.0.0.1", "::ffff:127.0.0.1");
	expect_reachable("::ffff:127.0.0.1", "127.0.0.1");
}
END_TEST

/* The text of an address of this machine: `link_local` asks for fe80::...%name. */
static bool own_address(bool link_local, int family, char *text, size_t size)
{
	struct ifaddrs *list, *entry;
	bool found = false;
	ck_assert_int_eq(getifaddrs(&list), 0);
	for (entry = list; entry && !found; entry = entry->ifa_next) {
		struct neap_sockaddr address = {0};
		char formatted[NEAP_ADDRESS_TEXT_MAX];
		if (!entry->ifa_addr || entry->ifa_addr->sa_family != family || !(entry->ifa_flags & IFF_UP))
			continue;
		memcpy(&address.any, entry->ifa_addr, family == AF_INET ? sizeof(address.v4) : sizeof(address.v6));
		bool is_link_local = family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address.v6.sin6_addr);
		if (neap_sockaddr_is_loopback(&address) || is_link_local != link_local)
			continue;
		ck_assert_int_gt(neap_sockaddr_format(&address, formatted, sizeof(formatted)), 0);
		char *host = formatted[0] == '[' ? formatted + 1 : formatted;
		host[strcspn(host, formatted[0] == '[' ? "]%" : ":")] = '\0';
		snprintf(text, size, link_local ? "%s%%%s" : "%s", host, entry->ifa_name);
		found = true;
	}
	freeifaddrs(list);
	return found;
}

START_TEST(scopes)
{
	char host[NEAP_HOST_MAX];
	if (!own_address(true, AF_INET6, host, sizeof(host))) {
		printf("skipped: no interface with an IPv6 link-local address here\n");
		return;
	}
	expect_reachable(host, host);
	/* The number of the interface does as well as its name. */
	char by_number[NEAP_HOST_MAX + 12];
	char *scope = strchr(host, '%');
	snprintf(by_number, sizeof(by_number), "%.*s%%%u", (int)(scope - host), host, if_nametoindex(scope + 1));
	expect_reachable(host, by_number);
}
END_TEST

START_TEST(own_address_counts_as_this_host)
{
	char host[NEAP_HOST_MAX], name[32] = "", standard[64] = "";
	socklen_t length = sizeof(name) - 1;
	FILE *file = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "r");
	ck_assert(file && fscanf(file, "%63s", standard) == 1);
	fclose(file);
	if (strcmp(standard, "bbr") != 0 || !own_address(false, AF_INET, host, sizeof(host))) {
		printf("skipped: the system's congestion control is %s, or lo is the only interface\n", standard);
		return;
	}
	struct rig *rig = rig_open(NULL);
	rig->options.congestion = "auto";
	uint16_t port = rig_listen(rig, "0.0.0.0", 0);
	ck_assert_int_eq(rig_connect(rig, 0, host, port, 5000), 0);
	ck_assert(drive_until(rig->reactor, &rig->outcomes[0].done, 5000));
	ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	ck_assert_int_eq(getsockopt(rig_descriptor(rig->outcomes[0].stream), IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
	ck_assert_str_eq(name, "reno");
	ck_assert_int_eq(getsockopt(rig_descriptor(rig->accepted[0]), IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
	ck_assert_str_eq(name, "reno");
	rig_close(rig);
}
END_TEST

START_TEST(arguments)
{
	struct rig *rig = rig_open(NULL);
	static struct neap_acceptor acceptor;
	struct neap_sockaddr address;
	int system_errno = 0;
	ck_assert_int_eq(neap_sockaddr_from_numeric("127.0.0.1", 0, &address), 0);
	ck_assert_int_eq(neap_acceptor_open(&acceptor, rig->reactor, &address, NULL, &system_errno), NEAP_EINVAL);
	acceptor.accepted_stream = close_inside;
	ck_assert_int_eq(neap_acceptor_open(&acceptor, rig->reactor, &address, NULL, &system_errno), NEAP_EINVAL);
	acceptor.connections_max = 1;
	ck_assert_int_eq(neap_acceptor_open(&acceptor, rig->reactor, &address, NULL, &system_errno), 0);
	ck_assert_int_eq(neap_acceptor_open(&acceptor, rig->reactor, &address, NULL, &system_errno), NEAP_EBUSY);
	neap_acceptor_close(&acceptor);
	ck_assert_int_eq(rig->logs, 0);
	rig_close(rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("listen");
	TCase *shortage = tcase_create("shortage"), *closing = tcase_create("closing"), *places = tcase_create("places");
	tcase_set_timeout(shortage, 30);
	tcase_add_test(shortage, no_spin_and_no_loss_when_descriptors_are_short);
	tcase_add_test(shortage, own_end_ends_the_pause);
	tcase_add_test(shortage, no_loss_when_the_watch_table_is_full);
	tcase_add_test(shortage, limit_of_connections);
	tcase_add_test(closing, closed_from_its_callback);
	tcase_add_test(closing, closed_while_paused_and_while_full);
	tcase_add_test(places, port_ranges);
	tcase_add_test(places, families);
	tcase_add_test(places, scopes);
	tcase_add_test(places, own_address_counts_as_this_host);
	tcase_add_test(places, arguments);
	suite_add_tcase(suite, shortage);
	suite_add_tcase(suite, closing);
	suite_add_tcase(suite, places);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
