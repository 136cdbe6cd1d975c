/* bench_extents [OPERATIONS]: what it costs to allocate and free an offset at different fill, beside malloc and free of the same sizes.
 *
 * Sizes are those of a cache's values: uniform 64 KiB blocks, and a mix from 100 bytes to 1 MiB (as many in each power of two). The range is
 * 4 GiB. A pair is: free a random live one, allocate another. For malloc the sizes are the same and nothing is touched; above its mmap
 * threshold it would go to the kernel each time, so the threshold is raised, which favours it. CPU nanoseconds per pair, medians of 3.
 *
 * Then fragmentation: the mix is put in and thrown out at random for a long time, always throwing out until the next one fits; what is in
 * use on average when one does not fit is the fill the allocator reaches. */
#include "store/tier/extents.h"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define RANGE (UINT64_C(4) << 30)
#define REPETITIONS 3
#define LIVE_MAX (1u << 20)

struct bench {
	struct neap_extents extents;
	uint64_t random, operations;
	uint32_t count;
	uint32_t nodes[LIVE_MAX];
	void *blocks[LIVE_MAX];
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

static uint64_t some_size(struct bench *bench, bool mixed)
{
	if (!mixed)
		return 65536;
	uint32_t log = 7 + chance(bench) % 13;
	return (UINT64_C(1) << log) + (chance(bench) & ((1u << log) - 1));
}

static bool put(struct bench *bench, uint64_t size)
{
	if (bench->count == LIVE_MAX || neap_extents_allocate(&bench->extents, size, &bench->nodes[bench->count]) != NEAP_OK)
		return false;
	bench->count++;
	return true;
}

static void fill(struct bench *bench, struct neap_reactor *reactor, double share, bool mixed)
{
	uint32_t region;
	if (neap_extents_create(&bench->extents, reactor, 64, 2 * LIVE_MAX) || neap_extents_add(&bench->extents, 0, RANGE, &region))
		exit(1);
	bench->count = 0;
	while ((double)(bench->extents.total_units - bench->extents.free_units) < share * (double)bench->extents.total_units &&
	       put(bench, some_size(bench, mixed))) {
	}
}

static double pairs_of_extents(struct bench *bench, bool mixed)
{
	uint64_t begin_ns = cpu_ns();
	for (uint64_t i = 0; i < bench->operations; i++) {
		uint32_t at = (uint32_t)((uint64_t)chance(bench) * bench->count >> 32);
		neap_extents_free(&bench->extents, bench->nodes[at], NULL);
		bench->nodes[at] = bench->nodes[--bench->count];
		while (!put(bench, some_size(bench, mixed))) { /* only near 100 % */
			neap_extents_free(&bench->extents, bench->nodes[--bench->count], NULL);
		}
	}
	return (double)(cpu_ns() - begin_ns) / (double)bench->operations;
}

static double pairs_of_malloc(struct bench *bench, bool mixed)
{
	for (uint32_t i = 0; i < bench->count; i++)
		bench->blocks[i] = malloc(some_size(bench, mixed));
	uint64_t begin_ns = cpu_ns();
	for (uint64_t i = 0; i < bench->operations; i++) {
		uint32_t at = (uint32_t)((uint64_t)chance(bench) * bench->count >> 32);
		free(bench->blocks[at]);
		bench->blocks[at] = malloc(some_size(bench, mixed));
	}
	double ns = (double)(cpu_ns() - begin_ns) / (double)bench->operations;
	for (uint32_t i = 0; i < bench->count; i++)
		free(bench->blocks[i]);
	malloc_trim(0);
	return ns;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

static void speed(struct bench *bench, struct neap_reactor *reactor, double share, bool mixed)
{
	double ours[REPETITIONS], theirs[REPETITIONS];
	uint32_t live = 0;
	for (int i = 0; i < REPETITIONS; i++) {
		fill(bench, reactor, share, mixed);
		live = bench->count;
		ours[i] = pairs_of_extents(bench, mixed);
		bench->count = live < LIVE_MAX / 8 ? live : LIVE_MAX / 8;
		theirs[i] = pairs_of_malloc(bench, mixed);
		neap_extents_destroy(&bench->extents);
	}
	qsort(ours, REPETITIONS, sizeof *ours, by_value);
	qsort(theirs, REPETITIONS, sizeof *theirs, by_value);
	printf("%-8s %5.0f %% %8u live  %7.1f ns  malloc+free %7.1f ns\n", mixed ? "mixed" : "64 KiB", 100 * share, live, ours[REPETITIONS / 2],
	       theirs[REPETITIONS / 2]);
}

static void fragmentation(struct bench *bench, struct neap_reactor *reactor, bool mixed)
{
	double sum = 0, least = 1;
	uint64_t failures = 0;
	fill(bench, reactor, 2, mixed);
	for (uint64_t i = 0; i < bench->operations; i++) {
		uint64_t size = some_size(bench, mixed);
		while (!put(bench, size)) {
			double used = (double)bench->extents.requested_bytes / (double)RANGE;
			sum += used;
			failures++;
			if (used < least)
				least = used;
			uint32_t at = (uint32_t)((uint64_t)chance(bench) * bench->count >> 32);
			neap_extents_free(&bench->extents, bench->nodes[at], NULL);
			bench->nodes[at] = bench->nodes[--bench->count];
		}
	}
	struct neap_extents_stats stats;
	neap_extents_stats(&bench->extents, &stats);
	printf("%-8s full at %.1f %% of the range on average, %.1f %% at worst; free pieces %u of %u nodes; rounding %.2f %%\n",
	       mixed ? "mixed" : "64 KiB", 100 * sum / (double)failures, 100 * least, stats.nodes_used - stats.extents, stats.nodes_used,
	       100 * ((double)stats.rounded_bytes / (double)stats.requested_bytes - 1));
	const char *wrong = neap_extents_check(&bench->extents);
	if (wrong)
		printf("BROKEN: %s\n", wrong);
	neap_extents_destroy(&bench->extents);
}

int main(int argc, char **argv)
{
	static struct bench bench;
	struct neap_reactor *reactor;
	bench.operations = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000;
	bench.random = 42;
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, -1);
	if (bench.operations == 0 || neap_reactor_create(&reactor, NULL))
		return 1;
	static const double shares[] = {0.1, 0.5, 0.9, 0.97};
	for (int mixed = 0; mixed < 2; mixed++)
		for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
			speed(&bench, reactor, shares[i], mixed);
	for (int mixed = 0; mixed < 2; mixed++)
		fragmentation(&bench, reactor, mixed);
	return neap_reactor_destroy(reactor) ? 1 : 0;
}
