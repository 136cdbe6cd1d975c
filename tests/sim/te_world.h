/* A cluster of Transfer Engines in simulation: initiators and targets that are each other's peers, a seeded workload, seeded faults,
 * and a shadow model that checks every completion. The engines are the library's own, unchanged.
 *
 * Every (initiator, target) pair owns a stripe of the target's memory, cut in blocks; at most one operation is under way on a block.
 * So what a block may hold is known: its content before the operation, after it, or (effect unknown) a mixture of these two. */
#ifndef NEAP_SIM_TE_WORLD_H
#define NEAP_SIM_TE_WORLD_H

#include "tests/sim/sim.h"
#include <neap/engine.h>

struct te_world;

/* What the seed has decided, printed with a failing seed. */
struct te_options {
	uint32_t nodes;            /* 2..5 */
	uint32_t block_bytes, blocks_per_stripe;
	uint32_t operations;       /* of the safety phase */
	uint32_t inflight_max;     /* per initiator */
	uint32_t work_period_us;   /* mean time between operations of the whole cluster */
	uint32_t lanes;
	uint32_t plain_per_mille;  /* nodes that are plain (v2) or v1 towards others */
	bool checksum;
	uint32_t cancel_per_mille, deadline_per_mille;
	uint32_t fault_period_ms;  /* mean time between faults; 0: none */
	bool faults_pause, faults_cut, faults_partition, faults_crash;
	bool sent_is_done;
};

/* Conditions that a soak must have seen at least once. */
#define TE_SOMETIMES(S)                                                                                                     \
	S(write_completed) S(read_completed) S(write_effect_unknown) S(write_failed_no_effect)                  \
	S(timed_out) S(canceled_queued) S(canceled_under_way) S(completed_after_fault) S(peer_restarted) S(request_repeated)     \
	S(descriptor_refreshed) S(range_refused_after_restart) S(node_paused) S(connection_cut) S(partitioned) S(tiny_budget)      \
	S(local_transfer) S(remote_completed) S(neap_lane) S(plain_v2_lane) S(plain_v1_lane) S(refused_by_peer) S(close_with_work)

struct te_sometimes {
#define TE_FIELD(name) uint64_t name;
	TE_SOMETIMES(TE_FIELD)
#undef TE_FIELD
};

struct te_result {
	bool ok;
	char what[512];            /* the first violation */
	uint64_t hash, virtual_ns, events, operations, completed, unknown, failed;
	struct te_options options;
	struct te_sometimes sometimes;
};

/* One run: safety phase with faults, liveness phase without, close, leak checks. `options` NULL: all from the seed. */
void te_run(uint64_t seed, const struct te_options *options, struct te_result *result_p);

void te_options_from_seed(uint64_t seed, struct te_options *options_p);

#endif
