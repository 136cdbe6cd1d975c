/* Runs seeds of the simulated cluster of stores. A violation prints the seed, what was wrong, the options the seed had decided, and a smaller
 * set of options that still fails; the latter goes into a file for --replay. */
#include "tests/sim/neap_sim.h"
#include "tests/sim/st_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct option_name {
	const char *name;
	size_t offset;
};

static const struct option_name names[] = {
#define OPTION_NAME(name) {#name, offsetof(struct st_options, name)},
	ST_OPTIONS(OPTION_NAME)
#undef OPTION_NAME
};
#define NAMES (sizeof names / sizeof names[0])

static uint32_t *option_of(struct st_options *options, size_t index)
{
	return (uint32_t *)(void *)((char *)options + names[index].offset);
}

static void print_options(FILE *out, const struct st_options *options)
{
	struct st_options copy = *options;
	for (size_t i = 0; i < NAMES; i++)
		fprintf(out, "%s%s %u", i % 8 ? "  " : "\n  ", names[i].name, *option_of(&copy, i));
	fputc('\n', out);
}

/* --- shrinking ----------------------------------------------------------------------------------------------------------------- */

static bool still_fails(uint64_t seed, const struct st_options *options)
{
	struct st_result result;
	st_run(seed, options, &result);
	return !result.ok;
}

static bool may_be_zero(const char *name)
{
	static const char *const never[] = {"clients",  "tier_bytes", "keys",       "value_bytes", "operations", "inflight", "work_period_us",
	                                    "lease_ms", "stable",     "latency_max_us", "slice_bytes", "pause_max_ms", "remote_per_mille",
	                                    "forward_per_mille"};
	for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
		if (strcmp(never[i], name) == 0)
			return false;
	return true;
}

/* Greedy: each simplification is kept when the seed still fails with it. */
static void shrink(uint64_t seed, struct st_options *options)
{
	struct st_options smaller;
	while (options->operations > 4) {
		smaller = *options;
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
	smaller = *options;
	smaller.clients = 3;
	if (still_fails(seed, &smaller))
		*options = smaller;
	smaller = *options;
	smaller.keys = 2;
	if (still_fails(seed, &smaller))
		*options = smaller;
}

/* --- replay files: "seed N", then a line for each option ------------------------------------------------------------------------ */

static void save(const struct sim_arguments *arguments, uint64_t seed, const struct st_options *options)
{
	struct st_options copy = *options;
	char path[64];
	(void)snprintf(path, sizeof path, "neap-sim-%" PRIu64 ".replay", seed);
	const char *to = arguments->save ? arguments->save : path;
	FILE *file = fopen(to, "w");
	if (!file) {
		perror(to);
		return;
	}
	fprintf(file, "seed %" PRIu64 "\n", seed);
	for (size_t i = 0; i < NAMES; i++)
		fprintf(file, "%s %u\n", names[i].name, *option_of(&copy, i));
	(void)fclose(file);
	printf(" replay: neap-sim --replay %s   (NEAP_SIM_LOG=1 shows what happened)\n", to);
}

static bool read_line(const char *line, uint64_t *seed_p, struct st_options *options)
{
	char name[40];
	uint64_t value;
	if (sscanf(line, "%39s %" SCNu64, name, &value) != 2)
		return false;
	if (strcmp(name, "seed") == 0) {
		*seed_p = value;
		return true;
	}
	for (size_t i = 0; i < NAMES; i++)
		if (strcmp(name, names[i].name) == 0) {
			*option_of(options, i) = (uint32_t)value;
			return true;
		}
	return false;
}

int sim_store_replay(const char *path)
{
	struct st_options options = {0};
	struct st_result result;
	uint64_t seed = 0;
	char line[128];
	FILE *file = fopen(path, "r");
	if (!file) {
		perror(path);
		return 2;
	}
	bool good = true;
	while (good && fgets(line, sizeof line, file))
		good = read_line(line, &seed, &options);
	(void)fclose(file);
	if (!good || seed == 0 || options.clients == 0) {
		fprintf(stderr, "%s: '%.60s': this is not a file that neap-sim has written\n", path, line);
		return 2;
	}
	st_run(seed, &options, &result);
	printf("seed %" PRIu64 ": %s, hash %016" PRIx64 ", %.3f virtual s", seed, result.ok ? "ok" : result.what, result.hash,
	       (double)result.virtual_ns / 1e9);
	print_options(stdout, &options);
	return result.ok ? 0 : 1;
}

/* --- runs ------------------------------------------------------------------------------------------------------------------------ */

static void report_failure(const struct sim_arguments *arguments, uint64_t seed, const struct st_result *result)
{
	printf("seed %" PRIu64 " FAILED: %s", seed, result->what);
	print_options(stdout, &result->options);
	struct st_options options = result->options;
	struct st_result small;
	shrink(seed, &options);
	st_run(seed, &options, &small);
	printf(" smallest that still fails: %s", small.ok ? "(it ran clean this time)" : small.what);
	print_options(stdout, &options);
	save(arguments, seed, &options);
}

static void look_twice(uint64_t seed, struct st_result *result)
{
	struct st_result again;
	if (!result->ok || seed % 20 != 0)
		return;
	struct st_options options = result->options;
	st_run(seed, &options, &again);
	if (again.hash == result->hash)
		return;
	result->ok = false;
	(void)snprintf(result->what, sizeof result->what, "two runs differ: trace hash %016" PRIx64 " and %016" PRIx64, result->hash, again.hash);
}

static int missing(const struct st_sometimes *total, bool devices, bool demand)
{
	int count = 0;
#define ST_REPORT(name)                           \
	if (total->name == 0) {                       \
		printf("never seen: " #name "\n");        \
		count++;                                  \
	}
	ST_SOMETIMES(ST_REPORT)
	if (devices) {
		ST_RDMA_SOMETIMES(ST_REPORT)
	}
#undef ST_REPORT
	return demand ? count : 0;
}

static void print_sometimes(const struct st_sometimes *total)
{
#define ST_PRINT(name) printf(" " #name " %" PRIu64, total->name);
	ST_SOMETIMES(ST_PRINT)
	ST_RDMA_SOMETIMES(ST_PRINT)
#undef ST_PRINT
	putchar('\n');
}

/* How many seeds find a mistake that is made on purpose. ST_SABOTAGE_COUNT or more: it is in the library that was built. */
static int run_sabotaged(const struct sim_arguments *arguments, bool devices)
{
	double end = sim_seconds_now() + arguments->seconds;
	uint64_t ran = 0, occasions = 0, found = 0;
	for (uint64_t seed = arguments->first; ran < arguments->count && (arguments->seconds <= 0 || sim_seconds_now() < end); seed++, ran++) {
		struct st_result result;
		struct st_options options;
		(devices ? st_rdma_options_from_seed : st_options_from_seed)(seed, &options);
		options.sabotage = arguments->sabotage;
		st_run(seed, &options, &result);
		bool occasion = result.sabotaged || arguments->sabotage >= ST_SABOTAGE_COUNT;
		occasions += occasion;
		found += occasion && !result.ok;
		if (arguments->verbose || (occasion && !result.ok && found < 4))
			printf("seed %" PRIu64 ": %s\n", seed, result.ok ? "not found" : result.what);
	}
	printf("simulation, stores%s, sabotage %u: found in %" PRIu64 " of %" PRIu64 " seeds that had an occasion, of %" PRIu64 "\n",
	       devices ? " over devices" : "", arguments->sabotage, found, occasions, ran);
	return found == 0;
}

static int run_seeds(const struct sim_arguments *arguments, bool devices)
{
	if (arguments->sabotage)
		return run_sabotaged(arguments, devices);
	double end = sim_seconds_now() + arguments->seconds, virtual_seconds = 0;
	struct st_sometimes sometimes = {0};
	uint64_t ran = 0, operations = 0, succeeded = 0, unknown = 0;
	int failed = 0;
	for (uint64_t seed = arguments->first; ran < arguments->count && (arguments->seconds <= 0 || sim_seconds_now() < end); seed++, ran++) {
		struct st_result result;
		struct st_options options;
		(devices ? st_rdma_options_from_seed : st_options_from_seed)(seed, &options);
		st_run(seed, &options, &result);
		look_twice(seed, &result);
		if (arguments->verbose) {
			printf("seed %" PRIu64 ": %s, hash %016" PRIx64 ", %" PRIu64 " operations, %" PRIu64 " succeeded, %.3f virtual s, %" PRIu64
			       " events", seed, result.ok ? "ok" : result.what, result.hash, result.operations, result.succeeded,
			       (double)result.virtual_ns / 1e9, result.events);
			print_options(stdout, &result.options);
		}
		if (!result.ok) {
			report_failure(arguments, seed, &result);
			if (++failed >= 5)
				break;
		}
#define ST_ADD(name) sometimes.name += result.sometimes.name;
		ST_SOMETIMES(ST_ADD)
		ST_RDMA_SOMETIMES(ST_ADD)
#undef ST_ADD
		operations += result.operations;
		succeeded += result.succeeded;
		unknown += result.unknown;
		virtual_seconds += (double)result.virtual_ns / 1e9;
	}
	if (arguments->verbose)
		print_sometimes(&sometimes);
	printf("simulation, stores%s: %" PRIu64 " seeds from %" PRIu64 ", %d failed; %" PRIu64 " operations, %" PRIu64 " succeeded, %" PRIu64
	       " of unknown outcome; %.0f virtual seconds\n",
	       devices ? " over devices" : "", ran, arguments->first, failed, operations, succeeded, unknown, virtual_seconds);
	if (devices)
		sometimes.evicted++; /* so many values are the other world's */
	return failed + missing(&sometimes, devices, arguments->demand_sometimes) + (ran == 0);
}

int sim_store_seeds(const struct sim_arguments *arguments)
{
	return run_seeds(arguments, false);
}

int sim_store_rdma_seeds(const struct sim_arguments *arguments)
{
	return run_seeds(arguments, true);
}
