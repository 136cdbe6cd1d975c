/* bench_timers [REPETITIONS [MAX_LIVE]]: what a timer costs while many others live, beside libev's.
 *
 *   restart: a random one of the live timers is cancelled and started anew, with another timeout (1 to 60 s)
 *   renew:   a random one is moved without cancelling (for libev: stopped and started, it has no other way to a new time)
 *   extend:  a random one is put off to later, as a deadline is with each piece of progress (for libev as renew)
 *   extra:   one more is started and cancelled beside the live ones
 *
 * Each timer has a cache line to itself, as in an object of a pool, and the kernel is asked for huge pages for both kinds. Repetitions
 * are interleaved, Neap first and libev first in turn; medians of CPU nanoseconds per operation and of the paired ratios. */
#include <ev.h>
#include <neap/reactor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define OPERATIONS 1000000u
#define REPETITIONS_MAX 64u

enum { RESTART, RENEW, EXTEND, EXTRA, WORKLOADS };
static const char *const workload_names[] = {"restart", "renew", "extend", "extra"};

struct mine {
	struct neap_timer timer;
};

struct theirs {
	struct ev_timer watcher;
};

struct bench {
	struct neap_reactor *reactor;
	struct ev_loop *loop;
	struct mine *timers; /* live + 1 */
	struct theirs *watchers;
	uint32_t live;
	uint64_t random;
};

static uint64_t cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t chance(struct bench *bench)
{
	bench->random = bench->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(bench->random >> 32);
}

static uint32_t below(struct bench *bench, uint32_t bound)
{
	return (uint32_t)((uint64_t)chance(bench) * bound >> 32);
}

static uint64_t timeout_ns(struct bench *bench)
{
	return 1000000000u + chance(bench) * UINT64_C(14);
}

static void never(struct neap_timer *timer, void *user)
{
	(void)timer;
	(void)user;
}

static void never_ev(struct ev_loop *loop, struct ev_timer *watcher, int events)
{
	(void)loop;
	(void)watcher;
	(void)events;
}

static double run_neap(struct bench *bench, int workload)
{
	uint64_t base_ns = neap_reactor_now_ns(bench->reactor);
	uint64_t begin_ns = cpu_ns();
	for (uint32_t i = 0; i < OPERATIONS; i++) {
		struct neap_timer *timer = &bench->timers[workload == EXTRA ? bench->live : below(bench, bench->live)].timer;
		if (workload == RESTART)
			neap_timer_cancel(bench->reactor, timer);
		uint64_t due_ns = base_ns + timeout_ns(bench);
		if (workload == EXTEND)
			due_ns = timer->due_ns + 1000000000u;
		neap_timer_start(bench->reactor, timer, due_ns, never, NULL);
		if (workload == EXTRA)
			neap_timer_cancel(bench->reactor, timer);
	}
	return (double)(cpu_ns() - begin_ns) / OPERATIONS;
}

static double run_ev(struct bench *bench, int workload)
{
	uint64_t begin_ns = cpu_ns();
	for (uint32_t i = 0; i < OPERATIONS; i++) {
		struct ev_timer *watcher = &bench->watchers[workload == EXTRA ? bench->live : below(bench, bench->live)].watcher;
		if (workload != EXTRA)
			ev_timer_stop(bench->loop, watcher);
		double after = (double)timeout_ns(bench) / 1e9;
		if (workload == EXTEND)
			after = watcher->at - ev_now(bench->loop) + 1.;
		ev_timer_set(watcher, after, 0.);
		ev_timer_start(bench->loop, watcher);
		if (workload == EXTRA)
			ev_timer_stop(bench->loop, watcher);
	}
	return (double)(cpu_ns() - begin_ns) / OPERATIONS;
}

/* Zeroed; NULL: out of memory. */
static void *huge(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return NULL;
	madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

static void give_back(void *memory, size_t bytes)
{
	if (memory)
		munmap(memory, bytes);
}

static int open_bench(struct bench *bench, uint32_t live)
{
	*bench = (struct bench){.live = live, .random = live};
	bench->loop = ev_loop_new(EVFLAG_AUTO);
	bench->timers = huge((live + 1) * sizeof *bench->timers);
	bench->watchers = huge((live + 1) * sizeof *bench->watchers);
	if (!bench->loop || !bench->timers || !bench->watchers || neap_reactor_create(&bench->reactor, NULL))
		return 1;
	uint64_t base_ns = neap_reactor_now_ns(bench->reactor);
	for (uint32_t i = 0; i < live; i++) {
		neap_timer_start(bench->reactor, &bench->timers[i].timer, base_ns + timeout_ns(bench), never, NULL);
		ev_timer_init(&bench->watchers[i].watcher, never_ev, (double)timeout_ns(bench) / 1e9, 0.);
		ev_timer_start(bench->loop, &bench->watchers[i].watcher);
	}
	ev_timer_init(&bench->watchers[live].watcher, never_ev, 1., 0.);
	return 0;
}

static void close_bench(struct bench *bench)
{
	if (bench->timers && bench->reactor)
		for (uint32_t i = 0; i <= bench->live; i++)
			neap_timer_cancel(bench->reactor, &bench->timers[i].timer);
	neap_reactor_destroy(bench->reactor);
	if (bench->loop)
		ev_loop_destroy(bench->loop);
	give_back(bench->timers, (bench->live + 1) * sizeof *bench->timers);
	give_back(bench->watchers, (bench->live + 1) * sizeof *bench->watchers);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(const double *values, uint32_t count)
{
	double sorted[REPETITIONS_MAX];
	memcpy(sorted, values, count * sizeof sorted[0]);
	qsort(sorted, count, sizeof sorted[0], by_value);
	return sorted[count / 2];
}

int main(int argc, char **argv)
{
	unsigned long repetitions = argc > 1 ? strtoul(argv[1], NULL, 10) : 7;
	unsigned long most = argc > 2 ? strtoul(argv[2], NULL, 10) : 10000000;
	if (repetitions < 1 || repetitions > REPETITIONS_MAX || most < 1000 || most > 100000000) {
		fprintf(stderr, "usage: bench_timers [REPETITIONS (1..%u) [MAX_LIVE (1000..100000000)]]\n", REPETITIONS_MAX);
		return 2;
	}
	double first[WORKLOADS] = {0};
	printf("%-9s %9s %10s %10s %8s %12s\n", "workload", "live", "neap ns", "libev ns", "ratio", "vs 10^3 live");
	for (uint32_t live = 1000; live <= most; live *= 10) {
		struct bench bench;
		if (open_bench(&bench, live)) {
			fprintf(stderr, "no memory for %u timers\n", live);
			close_bench(&bench);
			return 1;
		}
		for (int workload = 0; workload < WORKLOADS; workload++) {
			double neap[REPETITIONS_MAX], libev[REPETITIONS_MAX], ratio[REPETITIONS_MAX];
			for (uint32_t i = 0; i < repetitions; i++) {
				if (i % 2)
					libev[i] = run_ev(&bench, workload);
				neap[i] = run_neap(&bench, workload);
				if (i % 2 == 0)
					libev[i] = run_ev(&bench, workload);
				ratio[i] = libev[i] / neap[i];
			}
			double mine = median(neap, (uint32_t)repetitions);
			if (live == 1000)
				first[workload] = mine;
			printf("%-9s %9u %10.1f %10.1f %7.1fx %11.2fx\n", workload_names[workload], live, mine,
			       median(libev, (uint32_t)repetitions), median(ratio, (uint32_t)repetitions), mine / first[workload]);
			fflush(stdout);
		}
		close_bench(&bench);
	}
	return 0;
}
