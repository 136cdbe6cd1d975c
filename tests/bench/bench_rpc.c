/* bench_rpc [SECONDS]: calls a second of the store's RPC over loopback, between two processes with one reactor each, and system calls a
 * call on each side. The request is the size of a PreWrite (a 64-byte key and some numbers), the reply that of its answer.
 *
 *   plain: a method that is repeated freely     once: one with a request id and a remembered answer */
#include "store/rpc/client.h"
#include "store/rpc/server.h"
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_DEFINE
#define MESSAGE bench_request
#define MESSAGE_NAME "BenchRequest"
#define MESSAGE_FIELDS(F, L)           \
	F(TEXT, key, REQUIRED, 4096)       \
	F(U64, size, REQUIRED, UINT64_MAX) \
	F(U64, epoch, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"
#define MESSAGE bench_reply
#define MESSAGE_NAME "BenchReply"
#define MESSAGE_FIELDS(F, L)              \
	F(TEXT, endpoint, REQUIRED, 255)      \
	F(U64, address, REQUIRED, UINT64_MAX) \
	F(U64, size, REQUIRED, UINT64_MAX)    \
	F(U64, operation, REQUIRED, UINT64_MAX)
#include "store/rpc/declare.h"

#define OUTSTANDING_MAX 64u
#define SAMPLES_MAX (1u << 22)

static const struct neap_rpc_method plain = {1, "Plain", &neap_rpc_message_bench_request, &neap_rpc_message_bench_reply, false, 0};
static const struct neap_rpc_method once = {2, "Once", &neap_rpc_message_bench_request, &neap_rpc_message_bench_reply, true, 0};
/* ends the server and tells its system calls */
static const struct neap_rpc_method count = {3, "Count", &neap_rpc_message_bench_request, &neap_rpc_message_bench_reply, false, 0};

static uint64_t clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- the server ------------------------------------------------------------------------------------------------------------ */

static void serve(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct bench_reply reply = {.endpoint = {"127.0.0.1:15234", 15}, .address = 0x7f0000000000, .size = 4096, .operation = 17};
	(void)user;
	(void)request;
	(void)neap_rpc_answer(incoming->server, incoming->handle, 0, &reply, NULL, 0);
}

static void tell(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct neap_reactor_stats stats;
	(void)request;
	neap_reactor_stats(user, &stats);
	struct bench_reply reply = {.size = stats.system_calls};
	(void)neap_rpc_answer(incoming->server, incoming->handle, 0, &reply, NULL, 0);
}

static int run_server(int port_fd)
{
	static const struct neap_rpc_handler handlers[] = {{&plain, serve}, {&once, serve}, {&count, tell}};
	struct neap_reactor *reactor;
	struct neap_rpc_server *server;
	struct neap_sockaddr address;
	char why[320];
	int system_errno;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (neap_reactor_create(&reactor, NULL) || neap_sockaddr_from_numeric("127.0.0.1", 0, &address))
		return 1;
	if (neap_rpc_server_create(&server, reactor, &address, handlers, 3, NULL, reactor, &system_errno, why, sizeof why)) {
		fprintf(stderr, "bench_rpc: %s\n", why);
		return 1;
	}
	uint16_t port = neap_rpc_server_port(server);
	if (write(port_fd, &port, sizeof port) != sizeof port)
		return 1;
	return neap_reactor_run(reactor) != 0;
}

/* --- the client ------------------------------------------------------------------------------------------------------------ */

static struct {
	struct neap_rpc_channel *channel;
	const struct neap_rpc_method *method;
	uint64_t calls, errors, end_ns, began_ns[OUTSTANDING_MAX];
	uint32_t under_way, sample_count;
	uint32_t *samples; /* ns */
	uint64_t server_calls, sleeps;
} run;

static void done(void *user, const struct neap_rpc_outcome *outcome, const void *reply);

static void ask(uint64_t *began_p)
{
	struct bench_request request = {.key = {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 64}, .size = 65536, .epoch = 5};
	*began_p = clock_ns();
	run.under_way++;
	if (neap_rpc_call(run.channel, run.method, &request, UINT64_C(5000000000), NULL, done, began_p, NULL)) {
		run.under_way--;
		run.errors++;
	}
}

static void done(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	uint64_t *began_p = user, now_ns = clock_ns();
	(void)reply;
	run.under_way--;
	run.calls++;
	run.errors += outcome->result != NEAP_RPC_OK;
	if (run.sample_count < SAMPLES_MAX)
		run.samples[run.sample_count++] = (uint32_t)(now_ns - *began_p);
	if (now_ns < run.end_ns && outcome->result == NEAP_RPC_OK)
		ask(began_p);
}

static void told(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	const struct bench_reply *numbers = reply;
	(void)outcome;
	run.under_way--;
	run.server_calls = numbers ? numbers->size : 0;
	*(bool *)user = true;
}

/* As a host would: runs, sleeps. */
static void drive(struct neap_reactor *reactor, const bool *flag)
{
	struct pollfd fd = {.fd = neap_reactor_fd(reactor), .events = POLLIN};
	while (flag ? !*flag : run.under_way > 0) {
		int answer = neap_reactor_run_once(reactor, NULL);
		if (answer < 0)
			exit(1);
		if (answer == NEAP_RUN_ARMED && (flag ? !*flag : run.under_way > 0)) { /* its timerfd keeps the deadline */
			(void)poll(&fd, 1, -1);
			run.sleeps++;
		}
	}
}

static uint64_t server_system_calls(struct neap_reactor *reactor)
{
	struct bench_request request = {.key = {"k", 1}};
	bool flag = false;
	run.under_way++;
	if (neap_rpc_call(run.channel, &count, &request, UINT64_C(5000000000), NULL, told, &flag, NULL))
		exit(1);
	drive(reactor, &flag);
	return run.server_calls;
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static void measure(struct neap_reactor *reactor, const char *name, const struct neap_rpc_method *method, uint32_t outstanding,
                    double seconds)
{
	struct neap_reactor_stats before, after;
	run.method = method;
	uint64_t server_before = server_system_calls(reactor);
	neap_reactor_stats(reactor, &before);
	run.calls = run.errors = run.sleeps = 0;
	run.sample_count = 0;
	uint64_t began_ns = clock_ns();
	run.end_ns = began_ns + (uint64_t)(seconds * 1e9);
	for (uint32_t i = 0; i < outstanding; i++)
		ask(&run.began_ns[i]);
	drive(reactor, NULL);
	double took = (double)(clock_ns() - began_ns) / 1e9;
	neap_reactor_stats(reactor, &after);
	uint64_t server_after = server_system_calls(reactor);
	qsort(run.samples, run.sample_count, sizeof *run.samples, by_size);
	double calls = run.calls ? (double)run.calls : 1;
	printf("%-6s %3u outstanding: %9.0f calls/s  p50 %6.1f us  p99 %6.1f us  system calls a call: client %.2f server %.2f  errors %llu\n",
	       name, outstanding, (double)run.calls / took, run.sample_count ? run.samples[run.sample_count / 2] / 1e3 : 0.0,
	       run.sample_count ? run.samples[(size_t)run.sample_count * 99 / 100] / 1e3 : 0.0,
	       (double)(after.system_calls - before.system_calls + run.sleeps) / calls, (double)(server_after - server_before) / calls,
	       (unsigned long long)run.errors);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? strtod(argv[1], NULL) : 2;
	struct neap_reactor *reactor;
	struct neap_rpc_client *client;
	int ports[2];
	uint16_t port;
	if (pipe(ports))
		return 1;
	pid_t child = fork();
	if (child == 0)
		_exit(run_server(ports[1]));
	if (child < 0 || read(ports[0], &port, sizeof port) != sizeof port)
		return 1;
	struct neap_rpc_channel_options options = {.server = {.host = "127.0.0.1", .port = port, .has_port = true}, .lane = 1};
	run.samples = malloc(SAMPLES_MAX * sizeof *run.samples);
	if (!run.samples || neap_reactor_create(&reactor, NULL) || neap_rpc_client_create(&client, reactor, NULL) ||
	    neap_rpc_channel_open(&run.channel, client, &options))
		return 1;
	measure(reactor, "plain", &plain, 1, seconds);
	measure(reactor, "plain", &plain, OUTSTANDING_MAX, seconds);
	measure(reactor, "once", &once, 1, seconds);
	measure(reactor, "once", &once, OUTSTANDING_MAX, seconds);
	neap_rpc_client_destroy(client);
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	free(run.samples);
	return run.errors != 0;
}
