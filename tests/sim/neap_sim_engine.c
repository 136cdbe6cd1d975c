/* Runs seeds of the simulated Transfer Engine cluster.
 *
 * A violation prints the seed, what was wrong, the options the seed had decided, and a smaller set of options that still fails. Each
 * 20th seed is run twice and must give the same trace hash. At the end of a soak every condition of TE_SOMETIMES must have been seen. */
#include "tests/sim/neap_sim.h"
#include "tests/sim/te_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_options(const struct te_options *o)
{
	printf("  nodes %u, blocks %u x %u bytes, operations %u, in flight %u, one each %u us, lanes %u, plain %u/1000, two cores %u/1000, "
	       "checksum %d, cancel %u/1000, deadline %u/1000\n", o->nodes, o->blocks_per_stripe, o->block_bytes, o->operations, o->inflight_max,
	       o->work_period_us, o->lanes, o->plain_per_mille, o->cores_per_mille, o->checksum, o->cancel_per_mille, o->deadline_per_mille);
	printf("  batches up to %u, kept %u/1000, slots %u/1000 changing every %u ms, bulk %u/1000, notify %u/1000, faults every %u ms:"
	       "%s%s%s%s%s%s%s\n", o->batch_max, o->keep_per_mille, o->slot_per_mille, o->slot_period_ms, o->bulk_per_mille,
	       o->notify_per_mille, o->fault_period_ms, o->faults_pause ? " pause" : "", o->faults_cut ? " cut" : "",
	       o->faults_partition ? " partition" : "", o->faults_crash ? " crash" : "", o->faults_leave ? " leave" : "",
	       o->faults_forget ? " forget" : "", o->faults_memory ? " memory" : "");
	const struct te_rdma_options *r = &o->rdma;
	if (r->on)
		printf("  aim %s: again %u/1000, whole %u/1000, reads %u/1000, placed %u/1000\n", te_aim_name(r->aim), r->again_per_mille,
		       r->whole_per_mille, r->read_per_mille, r->placed_per_mille);
	if (r->on)
		printf("  latency up to %u us, strays %u us; up to %u devices, %u endpoints of %u x %u sends, completions %u, silence %u, slices of %u, "
		       "rails pause %u ms, regions of %" PRIu64 ":%s%s%s%s%s%s%s\n", r->latency_max_us, r->stray_max_us, r->devices_max,
		       r->endpoints_max, r->qps, r->depth, r->completions_max, r->silence_retries, r->slice_bytes, r->rail_pause_ms,
		       r->region_max_bytes, r->faults_port ? " port" : "", r->faults_device ? " device" : "", r->faults_cable ? " cable" : "",
		       r->faults_calls ? " calls" : "", r->faults_helper ? " helper" : "", r->faults_retire ? " retire" : "",
		       r->faults_late ? " late" : "");
}

static bool still_fails(uint64_t seed, const struct te_options *options)
{
	struct te_result result;
	te_run(seed, options, &result);
	return !result.ok;
}

/* Greedy: each simplification is kept when the seed still fails with it. */
static void shrink(uint64_t seed, struct te_options *options)
{
	struct te_options smaller = *options;
	while (options->operations > 4) {
		smaller = *options;
		smaller.operations /= 2;
		if (!still_fails(seed, &smaller))
			break;
		*options = smaller;
	}
#define SHRINK(field, value)                                         \
	do {                                                             \
		smaller = *options;                                          \
		smaller.field = (value);                                     \
		if (still_fails(seed, &smaller))                             \
			*options = smaller;                                      \
	} while (0)
	SHRINK(faults_memory, false);
	SHRINK(rdma.placed_per_mille, 0);
	SHRINK(rdma.faults_late, false);
	SHRINK(rdma.faults_retire, false);
	SHRINK(rdma.faults_helper, false);
	SHRINK(rdma.faults_calls, false);
	SHRINK(rdma.faults_cable, false);
	SHRINK(rdma.faults_device, false);
	SHRINK(rdma.faults_port, false);
	SHRINK(rdma.stray_max_us, 0);
	SHRINK(rdma.devices_min, 1);
	if (options->rdma.devices_min <= 1)
		SHRINK(rdma.devices_max, 1);
	SHRINK(rdma.region_max_bytes, 0);
	SHRINK(rdma.completions_max, 0);
	SHRINK(rdma.endpoints_max, 64);
	SHRINK(faults_forget, false);
	SHRINK(faults_leave, false);
	SHRINK(faults_crash, false);
	SHRINK(faults_partition, false);
	SHRINK(faults_cut, false);
	SHRINK(faults_pause, false);
	SHRINK(fault_period_ms, 0);
	SHRINK(cancel_per_mille, 0);
	SHRINK(deadline_per_mille, 0);
	SHRINK(notify_per_mille, 0);
	SHRINK(keep_per_mille, 0);
	SHRINK(bulk_per_mille, 0);
	SHRINK(batch_max, 1);
	SHRINK(slot_per_mille, 0);
	SHRINK(cores_per_mille, 0);
	SHRINK(checksum, false);
	SHRINK(plain_per_mille, 0);
	SHRINK(lanes, 1);
	SHRINK(nodes, 2);
	SHRINK(inflight_max, 1);
#undef SHRINK
}

static void report_failure(uint64_t seed, const struct te_result *result)
{
	printf("seed %" PRIu64 " FAILED: %s\n", seed, result->what);
	print_options(&result->options);
	struct te_options options = result->options;
	shrink(seed, &options);
	struct te_result small;
	te_run(seed, &options, &small);
	printf(" smallest that still fails: %s\n", small.what);
	print_options(&options);
	printf(" replay: neap-sim --world %s%s%s --seed %" PRIu64 "   (NEAP_SIM_LOG=1 shows the engines' log)\n",
	       options.rdma.on ? "rdma" : "engine", options.rdma.on ? " --aim " : "", options.rdma.on ? te_aim_name(options.rdma.aim) : "", seed);
}

static void add_sometimes(struct te_sometimes *total, const struct te_sometimes *one)
{
#define TE_ADD(name) total->name += one->name;
	TE_SOMETIMES(TE_ADD)
	TE_RDMA_SOMETIMES(TE_ADD)
#undef TE_ADD
}

/* How often each was seen. */
static void print_sometimes(const struct te_sometimes *total)
{
#define TE_PRINT(name) printf("  " #name " %" PRIu64 "\n", total->name);
	TE_SOMETIMES(TE_PRINT)
	TE_RDMA_SOMETIMES(TE_PRINT)
#undef TE_PRINT
}

static int report_sometimes(const struct te_sometimes *total, bool devices, bool demand)
{
	int missing = 0;
#define TE_REPORT(name)                                              \
	if (total->name == 0) {                                          \
		printf("never seen: " #name "\n");                           \
		missing++;                                                   \
	}
	TE_SOMETIMES(TE_REPORT)
	if (devices) {
		TE_RDMA_SOMETIMES(TE_REPORT)
	}
#undef TE_REPORT
	return demand ? missing : 0;
}

static void run_seed(uint64_t seed, bool devices, const struct sim_arguments *arguments, struct te_result *result)
{
	struct te_options options;
	if (devices && arguments->aim)
		te_rdma_options_with_aim(seed, te_aim_named(arguments->aim), &options);
	else if (devices)
		te_rdma_options_from_seed(seed, &options);
	else
		te_options_from_seed(seed, &options);
	if (devices && arguments->mistake)
		options.rdma.mistake = te_mistake_named(arguments->mistake);
	te_run(seed, &options, result);
}

static int run_seeds(const struct sim_arguments *arguments, bool devices)
{
	double end = sim_seconds_now() + arguments->seconds;
	struct te_sometimes sometimes = {0};
	uint64_t ran = 0, failed = 0, operations = 0, completed = 0, unknown = 0;
	double virtual_seconds = 0;
	for (uint64_t seed = arguments->first; ran < arguments->count && (arguments->seconds <= 0 || sim_seconds_now() < end); seed++, ran++) {
		struct te_result result, again;
		run_seed(seed, devices, arguments, &result);
		if (result.ok && seed % 20 == 0) {
			run_seed(seed, devices, arguments, &again);
			if (again.hash != result.hash) {
				result.ok = false;
				snprintf(result.what, sizeof(result.what), "two runs differ: trace hash %016" PRIx64 " and %016" PRIx64, result.hash,
				         again.hash);
			}
		}
		if (arguments->verbose) {
			printf("seed %" PRIu64 ": %s, hash %016" PRIx64 ", %" PRIu64 " operations, %" PRIu64 " completed, %.3f virtual s, %" PRIu64
			       " events\n", seed, result.ok ? "ok" : result.what, result.hash, result.operations, result.completed,
			       (double)result.virtual_ns / 1e9, result.events);
			print_options(&result.options);
		}
		if (!result.ok && arguments->brief) {
			failed++;
			printf("seed %" PRIu64 " FAILED (%s): %s\n", seed, te_aim_name(result.options.rdma.aim), result.what);
		} else if (!result.ok) {
			failed++;
			report_failure(seed, &result);
			if (failed >= 5)
				break;
		}
		add_sometimes(&sometimes, &result.sometimes);
		operations += result.operations;
		completed += result.completed;
		unknown += result.unknown;
		virtual_seconds += (double)result.virtual_ns / 1e9;
	}
	printf("simulation, engines%s: %" PRIu64 " seeds from %" PRIu64 ", %" PRIu64 " failed; %" PRIu64 " operations, %" PRIu64 " completed, %" PRIu64
	       " of unknown effect; %.0f virtual seconds\n", devices ? " over devices" : "", ran, arguments->first, failed, operations, completed,
	       unknown, virtual_seconds);
	if (arguments->verbose && ran > 1)
		print_sometimes(&sometimes);
	int missing = report_sometimes(&sometimes, devices, arguments->demand_sometimes);
	return failed || missing || ran == 0 ? 1 : 0;
}

int sim_engine_seeds(const struct sim_arguments *arguments)
{
	return run_seeds(arguments, false);
}

int sim_rdma_seeds(const struct sim_arguments *arguments)
{
	return run_seeds(arguments, true);
}
