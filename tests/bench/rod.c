#include "tests/bench/rod.h"
#include "apps/common/flags.h"
#include "apps/common/memory.h"
#include "apps/common/pattern.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct rod_options given = {.buffer = UINT64_C(1) << 30, .seconds = 0.3};
static const char *run_what = "write", *run_congestion = "reno";
static uint64_t block = 4096;
static bool step;

static const struct app_flag flags[] = {
	{"what", APP_FLAG_CHOICE, &run_what, "write|read|pingpong|memcpy", 0, 0, "what to measure"},
	{"block_size", APP_FLAG_SIZE, &block, NULL, 1, 1u << 30, "bytes of one request"},
	{"window", APP_FLAG_NUMBER, &given.window, NULL, 0, ROD_RING, "requests outstanding; 0: by block size, 512 to 16, naive 128"},
	{"buffer_size", APP_FLAG_SIZE, &given.buffer, NULL, 1 << 20, UINT64_C(1) << 40, "memory on each side"},
	{"seconds", APP_FLAG_SECONDS, &given.seconds, NULL, 0, 3600, "how long"},
	{"congestion", APP_FLAG_TEXT, &run_congestion, NULL, 0, 0, "TCP congestion control"},
	{"naive", APP_FLAG_SWITCH, &given.naive, NULL, 0, 0, "one request a call, one acknowledgement a request"},
	{"spin", APP_FLAG_SWITCH, &given.spin, NULL, 0, 0, "never sleep"},
	{"pin", APP_FLAG_SWITCH, &given.pin, NULL, 0, 0, "initiator on CPU 0, target on CPU 1"},
	{"verify", APP_FLAG_SWITCH, &given.verify, NULL, 0, 0, "look at every page that arrived"},
	{"step", APP_FLAG_SWITCH, &step, NULL, 0, 0,
	 "a run for each line `what best|naive block_size window congestion sleep|spin` of standard input"},
};
static const struct app_program program = {
	.name = "rod",
	.purpose = "Measures what two bare processes reach over loopback TCP.",
	.flags = flags,
	.flag_count = sizeof flags / sizeof flags[0],
};

void rod_die(const char *what)
{
	perror(what);
	_exit(3);
}

void rod_meet(struct rod *rod)
{
	pthread_barrier_wait(&rod->shared->barrier);
}

static double seconds_of(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double rod_now(void)
{
	return seconds_of(CLOCK_MONOTONIC);
}

double rod_cpu(void)
{
	return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t rod_random_place(struct rod *rod)
{
	uint64_t x = rod->random;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	rod->random = x;
	return x % ((rod->options->buffer - rod->options->block) / 4096 + 1) * 4096;
}

/* --- sockets ----------------------------------------------------------------------------------------------- */

static void set_options(const struct rod *rod, int fd)
{
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	const char *congestion = rod->options->congestion;
	if (*congestion && strcmp(congestion, "system") &&
	    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)))
		rod_die(congestion);
}

int rod_listen(struct rod *rod)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		rod_die("socket");
	set_options(rod, fd);
	if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1) || getsockname(fd, (struct sockaddr *)&address, &size))
		rod_die("listen");
	rod->shared->port = ntohs(address.sin_port);
	return fd;
}

int rod_accept(struct rod *rod, int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		rod_die("accept");
	set_options(rod, fd);
	close(listener);
	return fd;
}

int rod_connect(struct rod *rod)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(rod->shared->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		rod_die("socket");
	set_options(rod, fd);
	if (connect(fd, (struct sockaddr *)&address, sizeof address))
		rod_die("connect");
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

/* --- one run ----------------------------------------------------------------------------------------------- */

static bool is(const struct rod *rod, const char *word)
{
	return !strcmp(rod->options->what, word);
}

/* Every page of the receiving side is as it was, zero, or holds what belongs there. */
static uint64_t count_wrong(const struct rod *rod)
{
	uint64_t wrong = 0;
	for (uint64_t offset = 0; offset + 4096 <= rod->options->buffer; offset += 4096) {
		const char *page = rod->memory + offset;
		if (app_zero_check(page, 4096) != UINT64_MAX && app_pattern_check(page, offset, 4096, 1) != UINT64_MAX)
			wrong++;
	}
	return wrong;
}

static void run_side(struct rod *rod, bool target)
{
	bool checks = rod->options->verify && target == is(rod, "write") && !is(rod, "pingpong") && !is(rod, "memcpy");
	if (checks)
		memset(rod->memory, 0, rod->options->buffer);
	rod_meet(rod);
	if (is(rod, "pingpong"))
		target ? rod_pong(rod) : rod_ping(rod);
	else if (is(rod, "memcpy"))
		target ? (void)0 : rod_memcpy(rod);
	else
		target ? rod_target(rod) : rod_initiator(rod);
	if (checks) {
		rod->shared->wrong = count_wrong(rod);
		app_pattern_fill(rod->memory, 0, rod->options->buffer, 1);
	}
	rod_meet(rod);
}

static int report(const struct rod *rod)
{
	const struct rod_shared *s = rod->shared;
	double bytes = (double)s->requests * (double)rod->options->block, gib = bytes / (double)(1u << 30),
		   requests = (double)s->requests;
	printf("{\"what\":\"%s\",\"way\":\"%s\",\"block_size\":%llu,\"window\":%llu,\"congestion\":\"%s\",\"gb_per_s\":%.6g,"
	       "\"requests_per_s\":%.6g",
	       rod->options->what, rod->options->naive ? "naive" : "best", (unsigned long long)rod->options->block,
	       (unsigned long long)rod->options->window, rod->options->congestion, bytes / s->elapsed * 1e-9, requests / s->elapsed);
	printf(",\"syscalls_per_request\":%.6g,\"syscalls_per_request_target\":%.6g,\"cpu_s_per_gib_initiator\":%.6g,\"cpu_s_per_gib_"
	       "target\":%.6g",
	       (double)s->calls[0] / requests, (double)s->calls[1] / requests, s->cpu[0] / gib, s->cpu[1] / gib);
	printf(",\"p50_us\":%.6g,\"p99_us\":%.6g,\"verified\":%s}\n", s->p50_us, s->p99_us,
	       !rod->options->verify ? "null"
	       : s->wrong            ? "false"
	                             : "true");
	fflush(stdout);
	return s->wrong ? APP_FAILED : APP_OK;
}

/* --- two processes ----------------------------------------------------------------------------------------- */

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
	sched_setaffinity(0, sizeof set, &set);
}

static void choose_window(struct rod_options *options)
{
	if (!options->window)
		options->window = options->naive ? 128 : options->block <= 16384 ? 512 : options->block < (1 << 20) ? 64 : 16;
}

/* The options of the next run from standard input. False at its end. */
static bool next_step(struct rod_options *options)
{
	char line[256], way[16], wait[16];
	unsigned long long size, window;
	if (!fgets(line, sizeof line, stdin))
		return false;
	if (sscanf(line, "%15s %15s %llu %llu %15s %15s", options->what, way, &size, &window, options->congestion, wait) != 6) {
		app_error(&program, "not a run: %s", line);
		return false;
	}
	options->block = size;
	options->window = window;
	options->naive = !strcmp(way, "naive");
	options->spin = !strcmp(wait, "spin");
	choose_window(options);
	return true;
}

static void make_memory(struct rod *rod, bool target)
{
	char why[256];
	if (given.pin)
		pin(target);
	rod->random = target ? 88172645463325252u : 2463534242u;
	rod->memory = app_memory_map(given.buffer, true, why, sizeof why);
	if (!rod->memory)
		rod_die(why);
	/* Not zero and not alike: pages that are may be one page behind the scenes. */
	app_pattern_fill(rod->memory, 0, given.buffer, 1);
	if (target || (!step && strcmp(run_what, "memcpy")))
		return;
	rod->second = app_memory_map(given.buffer, true, why, sizeof why);
	if (!rod->second)
		rod_die(why);
	app_pattern_fill(rod->second, 0, given.buffer, 2);
}

static void serve(struct rod *rod)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	make_memory(rod, true);
	for (;;) {
		rod_meet(rod);
		if (rod->shared->ended)
			_exit(0);
		run_side(rod, true);
	}
}

static int lead(struct rod *rod)
{
	int result = APP_OK;
	make_memory(rod, false);
	while (result == APP_OK && (!step || next_step(&rod->shared->options))) {
		rod->shared->requests = rod->shared->calls[0] = rod->shared->calls[1] = 0;
		rod->shared->cpu[1] = rod->shared->p50_us = rod->shared->p99_us = 0;
		rod_meet(rod);
		run_side(rod, false);
		result = report(rod);
		if (!step)
			break;
	}
	rod->shared->ended = true;
	rod_meet(rod);
	return result;
}

int main(int argc, char **argv)
{
	int result = app_flags_parse(&program, argc, argv);
	if (result >= 0)
		return result;
	snprintf(given.what, sizeof given.what, "%s", run_what);
	snprintf(given.congestion, sizeof given.congestion, "%s", run_congestion);
	given.block = block;
	choose_window(&given);
	struct rod rod = {0};
	rod.shared = mmap(NULL, sizeof *rod.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (rod.shared == MAP_FAILED)
		rod_die("mmap");
	rod.shared->options = given;
	rod.options = &rod.shared->options;
	pthread_barrierattr_t attribute;
	pthread_barrierattr_init(&attribute);
	pthread_barrierattr_setpshared(&attribute, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&rod.shared->barrier, &attribute, 2);
	pid_t child = fork();
	if (child < 0)
		rod_die("fork");
	if (!child)
		serve(&rod);
	result = lead(&rod);
	waitpid(child, NULL, 0);
	return result;
}
