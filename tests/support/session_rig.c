#include "tests/support/session_rig.h"
#include "tests/support/coverage.h"
#include "reactor/address.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE 4096u
#define MS 1000000u
#define FIXED_ADDRESS ((void *)0x200000000000)

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "session rig: %s\n", what);
	abort();
}

static uint64_t rig_now(void *user)
{
	return ((struct session_rig *)user)->now_ns;
}

static uint64_t rig_wall(void *user)
{
	return ((struct session_rig *)user)->now_ns / 1000;
}

static void rig_random(void *user, void *bytes, size_t length)
{
	(void)user;
	memset(bytes, 0x5C, length);
}

static void rig_log(void *user, enum neap_log_level level, const char *component, const char *message)
{
	struct session_rig *rig = user;
	(void)component;
	rig->log_lines++;
	if (level <= NEAP_LOG_WARNING || getenv("NEAP_RIG_LOG"))
		fprintf(stderr, "session rig: %s\n", message);
}

static void make_memory(struct session_rig *rig)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	rig->memory_bytes = 4 * PAGE + RIG_REGIONS * rig->region_bytes;
	rig->memory = mmap(FIXED_ADDRESS, rig->memory_bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0);
	if (rig->memory == MAP_FAILED)
		rig->memory = mmap(NULL, rig->memory_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	must(rig->memory != MAP_FAILED, "no memory");
	static const unsigned guards_before[RIG_REGIONS] = {1, 1, 2, 3};
	for (unsigned i = 0; i < RIG_REGIONS; i++)
		rig->region[i] = rig->memory + guards_before[i] * PAGE + i * rig->region_bytes;
	memset(rig->memory, SESSION_RIG_GUARD, PAGE);
	for (unsigned i = RIG_OPEN_B; i < RIG_REGIONS; i++)
		memset(rig->region[i] + rig->region_bytes, SESSION_RIG_GUARD, PAGE);
	memset(rig->region[RIG_CLOSED], SESSION_RIG_GUARD, rig->region_bytes);
	if (rig->granted_is_guard)
		memset(rig->region[RIG_GRANTED], SESSION_RIG_GUARD, rig->region_bytes);
}

static void make_reactor(struct session_rig *rig)
{
	struct neap_reactor_options options = {.log = rig_log, .log_user = rig, .trace_records = 256};
	if (rig->kind == SESSION_RIG_VIRTUAL) {
		rig->now_ns = 1000 * (uint64_t)MS;
		options.net = memory_net();
		options.clock = (struct neap_clock_ops){.now_ns = rig_now, .wall_us = rig_wall, .user = rig};
		options.random = (struct neap_random_ops){.fill = rig_random};
	}
	must(neap_reactor_create(&rig->reactor, &options) == NEAP_OK, "no reactor");
}

static void register_all(struct session_rig *rig)
{
	static const enum neap_access access[RIG_REGIONS] = {NEAP_OPEN, NEAP_OPEN, NEAP_CLOSED, NEAP_GRANT_ONLY};
	struct neap_memory memory[RIG_REGIONS];
	char why[256] = "";
	for (unsigned i = 0; i < RIG_REGIONS; i++)
		memory[i] = (struct neap_memory){
			.address = rig->region[i], .length = rig->region_bytes, .location = "*", .access = access[i]};
	must(neap_registry_register(rig->registry, memory, RIG_REGIONS, rig->ids, why, sizeof why) == NEAP_OK, why);
}

void session_rig_open_small(struct session_rig *rig, enum session_rig_kind kind, size_t region_bytes)
{
	*rig = (struct session_rig){.kind = kind, .region_bytes = region_bytes, .granted_is_guard = region_bytes < SESSION_RIG_REGION};
	make_memory(rig);
	make_reactor(rig);
	must(neap_registry_create(&rig->registry, rig->reactor, 64, 64) == NEAP_OK, "no registry");
	register_all(rig);
	unsigned slow = kind == SESSION_RIG_SOCKETS ? 10 : 1;
	rig->options = (struct neap_engine_options){
		.port_min = 15000,
		.port_max = 17000,
		.sessions_max = 16,
		.first_header_timeout_ms = 200 * slow,
		.progress_timeout_ms = 300 * slow,
		.drain_timeout_ms = 100 * slow,
	};
	rig->view = (struct neap_engine_core_view){.reactor = rig->reactor, .registry = rig->registry, .options = &rig->options,
	                                           .stats = &rig->stats, .instance = "server instance"};
	must(neap_sockaddr_from_numeric("127.0.0.1", 0, &rig->view.bind_address) == NEAP_OK, "no loopback");
}

void session_rig_open(struct session_rig *rig, enum session_rig_kind kind)
{
	session_rig_open_small(rig, kind, SESSION_RIG_REGION);
}

void session_rig_start(struct session_rig *rig)
{
	char why[256] = "";
	must(neap_tcp_server_create(&rig->server, &rig->view) == NEAP_OK, "no server");
	if (rig->kind == SESSION_RIG_SOCKETS)
		must(neap_tcp_server_listen(rig->server, why, sizeof why) == NEAP_OK, why);
}

static int turn(struct session_rig *rig)
{
	struct neap_budget budget = {.bytes_max = rig->bytes_budget};
	int answer = rig->kind == SESSION_RIG_VIRTUAL ? neap_reactor_run_at(rig->reactor, rig->now_ns, &budget)
	                                              : neap_reactor_run_once(rig->reactor, &budget);
	must(answer > 0, neap_error_name(answer));
	return answer;
}

void session_rig_settle(struct session_rig *rig)
{
	for (unsigned turns = 0; turn(rig) == NEAP_RUN_MORE; turns++)
		must(turns < 1000000, "the reactor does not come to rest");
}

static void stopped(void *user)
{
	((struct session_rig *)user)->stopped = true;
}

void session_rig_stop(struct session_rig *rig)
{
	rig->stopped = false;
	neap_tcp_server_close(rig->server, stopped, rig);
	session_rig_settle(rig);
	must(rig->stopped, "the server does not close");
	must(neap_tcp_server_sessions(rig->server) == 0 && rig->stats.sessions == 0, "a session outlived its server");
	neap_tcp_server_destroy(rig->server);
	rig->server = NULL;
	session_rig_check_guards(rig);
}

void session_rig_again(struct session_rig *rig)
{
	session_rig_stop(rig);
	session_rig_start(rig);
}

static uint64_t real_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void wait_for_real(struct session_rig *rig, unsigned ms)
{
	uint64_t until_ns = real_now_ns() + ms * (uint64_t)MS, now_ns;
	while ((now_ns = real_now_ns()) < until_ns) {
		struct pollfd readable = {.fd = neap_reactor_fd(rig->reactor), .events = POLLIN};
		uint64_t left_ns = until_ns - now_ns;
		struct timespec timeout = {(time_t)(left_ns / 1000000000u), (long)(left_ns % 1000000000u)};
		(void)ppoll(&readable, 1, &timeout, NULL);
		session_rig_settle(rig);
	}
}

void session_rig_pass(struct session_rig *rig, unsigned ms)
{
	session_rig_settle(rig);
	if (rig->kind == SESSION_RIG_SOCKETS) {
		wait_for_real(rig, ms);
		return;
	}
	uint64_t until_ns = rig->now_ns + ms * (uint64_t)MS;
	while (neap_reactor_deadline_ns(rig->reactor) <= until_ns) {
		uint64_t due_ns = neap_reactor_deadline_ns(rig->reactor);
		rig->now_ns = due_ns > rig->now_ns ? due_ns : rig->now_ns + 1;
		session_rig_settle(rig);
	}
	rig->now_ns = until_ns;
	session_rig_settle(rig);
}

void session_rig_close(struct session_rig *rig)
{
	if (rig->server)
		session_rig_stop(rig);
	for (unsigned i = 0; i < RIG_REGIONS; i++)
		(void)neap_registry_unregister(rig->registry, rig->ids[i], NULL, NULL);
	for (unsigned turns = 0; !neap_registry_idle(rig->registry); turns++) {
		must(turns < 100000, "a fence does not end");
		rig->now_ns += MS;
		(void)turn(rig);
	}
	must(neap_registry_destroy(rig->registry) == NEAP_OK, "the registry is in use");
	neap_reactor_stop(rig->reactor);
	for (unsigned turns = 0; turn(rig) != NEAP_RUN_STOPPED; turns++) {
		must(turns < 100000, "the reactor does not stop");
		rig->now_ns += MS;
	}
	must(support_reactor_destroy(rig->reactor) == NEAP_OK, "something still hangs on the reactor");
	munmap(rig->memory, rig->memory_bytes);
}

static void check_guard(const unsigned char *bytes, size_t length)
{
	static unsigned char expected[PAGE];
	if (expected[0] != SESSION_RIG_GUARD)
		memset(expected, SESSION_RIG_GUARD, PAGE);
	for (size_t i = 0; i < length; i += PAGE)
		must(memcmp(bytes + i, expected, PAGE) == 0, "a byte outside of the regions was written");
}

void session_rig_check_guards(const struct session_rig *rig)
{
	check_guard(rig->memory, PAGE);
	for (unsigned i = RIG_OPEN_B; i < RIG_REGIONS; i++)
		check_guard(rig->region[i] + rig->region_bytes, PAGE);
	check_guard(rig->region[RIG_CLOSED], rig->region_bytes);
	if (rig->granted_is_guard)
		check_guard(rig->region[RIG_GRANTED], rig->region_bytes);
}

void session_rig_fill(struct session_rig *rig)
{
	for (unsigned i = 0; i < RIG_REGIONS; i++)
		for (size_t k = 0; i != RIG_CLOSED && k < rig->region_bytes; k++)
			rig->region[i][k] = (unsigned char)(k * 7 + i);
}
