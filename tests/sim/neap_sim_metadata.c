/* Runs seeds of the simulated cluster over a metadata store. A violation prints the seed, what was wrong, the options the seed had decided,
 * and a smaller set of options that still fails. */
#include "tests/sim/md_world.h"
#include "tests/sim/neap_sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	size_t offset;
} names[] = {
#define OPTION_NAME(name) {#name, offsetof(struct md_options, name)},
	MD_OPTIONS(OPTION_NAME)
#undef OPTION_NAME
};
#define NAMES (sizeof names / sizeof names[0])

static uint32_t *option_of(struct md_options *options, size_t index)
{
	return (uint32_t *)(void *)((char *)options + names[index].offset);
}

static void print_options(const struct md_options *options)
{
	struct md_options copy = *options;
	for (size_t i = 0; i < NAMES; i++)
		printf("%s%s %u", i % 8 ? "  " : "\n  ", names[i].name, *option_of(&copy, i));
	putchar('\n');
}

static bool still_fails(uint64_t seed, const struct md_options *options)
{
	struct md_result result;
	md_run(seed, options, &result);
	return !result.ok;
}

static bool may_be_zero(const char *name)
{
	return strncmp(name, "faults_", 7) == 0 || strstr(name, "_per_mille") || strcmp(name, "contended") == 0 || strcmp(name, "lease_ms") == 0 ||
	       strcmp(name, "password") == 0 || strcmp(name, "database") == 0 || strcmp(name, "cluster") == 0 ||
	       strcmp(name, "fault_period_ms") == 0;
}

/* Greedy: each simplification is kept when the seed still fails with it. */
static void shrink(uint64_t seed, struct md_options *options)
{
	struct md_options smaller = *options;
	while (options->operations > 4) {
		smaller.operations /= 2;
		if (!still_fails(seed, &smaller))
			break;
		*options = smaller;
	}
	for (size_t i = 0; i < NAMES; i++) {
		smaller = *options;
		if (!may_be_zero(names[i].name) || *option_of(options, i) == 0)
			continue;
		*option_of(&smaller, i) = 0;
		if (still_fails(seed, &smaller))
			*options = smaller;
	}
}

static void report_failure(uint64_t seed, const struct md_result *result)
{
	struct md_options options = result->options;
	struct md_result small;
	printf("seed %" PRIu64 " FAILED: %s", seed, result->what);
	print_options(&result->options);
	shrink(seed, &options);
	md_run(seed, &options, &small);
	printf(" smallest that still fails: %s", small.what);
	print_options(&options);
	printf(" replay: neap-sim --world metadata --seed %" PRIu64 "   (NEAP_SIM_LOG=1 shows what happened)\n", seed);
}

static void look_twice(uint64_t seed, struct md_result *result)
{
	struct md_result again;
	if (!result->ok || seed % 20 != 0)
		return;
	md_run(seed, NULL, &again);
	if (again.hash == result->hash)
		return;
	result->ok = false;
	(void)snprintf(result->what, sizeof result->what, "two runs differ: trace hash %016" PRIx64 " and %016" PRIx64, result->hash, again.hash);
}

static int missing(const struct md_sometimes *total, bool demand)
{
	int count = 0;
#define MD_REPORT(name)                           \
	if (total->name == 0) {                       \
		printf("never seen: " #name "\n");        \
		count++;                                  \
	}
	MD_SOMETIMES(MD_REPORT)
#undef MD_REPORT
	return demand ? count : 0;
}

static void print_run(uint64_t seed, const struct md_result *result)
{
	printf("seed %" PRIu64 ": %s, hash %016" PRIx64 ", %" PRIu64 " operations, %" PRIu64 " found, %" PRIu64 " missing, %.3f virtual s, %" PRIu64
	       " events", seed, result->ok ? "ok" : result->what, result->hash, result->operations, result->found, result->missing,
	       (double)result->virtual_ns / 1e9, result->events);
	print_options(&result->options);
}

int sim_metadata_seeds(const struct sim_arguments *arguments)
{
	double end = sim_seconds_now() + arguments->seconds, virtual_seconds = 0;
	struct md_sometimes sometimes = {0};
	uint64_t ran = 0, found = 0, missed = 0, unreachable = 0;
	int failed = 0;
	for (uint64_t seed = arguments->first; ran < arguments->count && (arguments->seconds <= 0 || sim_seconds_now() < end); seed++, ran++) {
		struct md_result result;
		md_run(seed, NULL, &result);
		look_twice(seed, &result);
		if (arguments->verbose)
			print_run(seed, &result);
		if (!result.ok) {
			report_failure(seed, &result);
			if (++failed >= 5)
				break;
		}
#define MD_ADD(name) sometimes.name += result.sometimes.name;
		MD_SOMETIMES(MD_ADD)
#undef MD_ADD
		found += result.found;
		missed += result.missing;
		unreachable += result.failed;
		virtual_seconds += (double)result.virtual_ns / 1e9;
	}
	printf("simulation, metadata: %" PRIu64 " seeds from %" PRIu64 ", %d failed; %" PRIu64 " segments found, %" PRIu64 " missing, %" PRIu64
	       " out of reach; %.0f virtual seconds\n", ran, arguments->first, failed, found, missed, unreachable, virtual_seconds);
	return failed + missing(&sometimes, arguments->demand_sometimes) + (ran == 0);
}
