/* A cluster of Transfer Engines in simulation: initiators and targets that are each other's peers, a seeded workload, seeded faults,
 * and a shadow model that checks every completion. The engines are the library's own, unchanged.
 *
 * Every (initiator, target) pair owns a stripe of the target's memory, cut in blocks; at most one operation is under way on a block.
 * So what a block may hold is known: its content before the operation, after it, or (effect unknown) a mixture of these two. Beside
 * the stripes each pair has two slots: one in a region that is registered and unregistered again and again, and one in a region that
 * only grants open. What such a slot held when it was taken back is the last that an operation may have done to it. */
#ifndef NEAP_SIM_TE_WORLD_H
#define NEAP_SIM_TE_WORLD_H

#include "tests/sim/sim.h"
#include "tests/support/sim_verbs.h"
#include <neap/engine.h>

/* To show that a checker can fail: the harness itself does what the library must never do. */
enum te_sabotage {
	TE_SABOTAGE_NONE,
	TE_SABOTAGE_CORRUPT_TARGET,  /* a byte of a COMPLETED write is another one */
	TE_SABOTAGE_CORRUPT_LOCAL,   /* a byte of a COMPLETED read is another one */
	TE_SABOTAGE_COMPLETE_TWICE,
	TE_SABOTAGE_NEVER_COMPLETE,
	TE_SABOTAGE_TOUCH_RETURNED,  /* a buffer is written to after its operation has completed */
	TE_SABOTAGE_TOUCH_GUARD,     /* a byte outside the registered regions */
	TE_SABOTAGE_LATE_WRITE,      /* a byte of a block on which nothing is under way */
	TE_SABOTAGE_TOUCH_TAKEN_BACK, /* a byte of a slot after `ended` or `released` */
	TE_SABOTAGE_WRONG_EFFECT,    /* FAILED or CANCELED with effect NONE although it had one, or the other way round */
	TE_SABOTAGE_LEAK,            /* memory of a node that does not come back */
	TE_SABOTAGE_COUNT,
};

/* What a world over devices is made for: its options and faults are such that a mistake of that kind has its occasion many times. */
#define TE_AIMS(A) A(none) A(fences) A(buffers) A(reads) A(placed) A(keys) A(grants) A(queues)
enum te_aim {
#define TE_AIM(name) TE_AIM_##name,
	TE_AIMS(TE_AIM)
#undef TE_AIM
	TE_AIM_COUNT,
};

/* Nodes with RDMA devices, on simulated verbs. */
struct te_rdma_options {
	bool on;
	enum te_aim aim;
	enum sim_mistake mistake; /* of the library, made in its place by devices and harness */
	uint32_t devices_min, devices_max; /* 1..3 a node */
	uint32_t endpoints_max, qps, depth, completions_max, silence_retries, slice_bytes, rail_pause_ms;
	uint64_t region_max_bytes;
	uint32_t latency_max_us, stray_max_us; /* of the network: sim_verbs.h */
	bool faults_port, faults_device, faults_cable; /* ports go down, devices fail or vanish, nothing passes between two of them */
	bool faults_calls, faults_helper; /* calls to verbs fail, or are not answered for a while */
	bool faults_retire;               /* connections are torn down by their owners */
	bool faults_late;                 /* completions come late, and packets later */
	uint32_t again_per_mille;  /* writes to the block whose last write has just ended */
	uint32_t whole_per_mille;  /* operations on all of a block */
	uint32_t read_per_mille;   /* operations that are reads */
	uint32_t placed_per_mille; /* writes that are COMPLETED when their bytes can be seen */
};

/* What the seed has decided, printed with a failing seed. */
struct te_options {
	uint32_t nodes;            /* 2..5 */
	uint32_t block_bytes, blocks_per_stripe;
	uint32_t operations;       /* of the safety phase */
	uint32_t inflight_max;     /* per initiator */
	uint32_t work_period_us;   /* mean time between operations of the whole cluster */
	uint32_t lanes;
	uint32_t plain_per_mille;  /* nodes that are plain (v2) or v1 towards others */
	uint32_t cores_per_mille;  /* nodes with a second reactor that joins the first one's engine */
	bool checksum;
	uint32_t cancel_per_mille, deadline_per_mille;
	uint32_t batch_max;        /* requests of one batch */
	uint32_t keep_per_mille;   /* batches that are polled and freed */
	uint32_t slot_per_mille;   /* operations on slots instead of blocks */
	uint32_t bulk_per_mille;   /* local operations that take several turns */
	uint32_t notify_per_mille;
	uint32_t slot_period_ms;   /* mean time between takings and givings of slots; 0: none */
	uint32_t fault_period_ms;  /* mean time between faults; 0: none */
	bool faults_pause, faults_cut, faults_partition, faults_crash;
	bool faults_leave;         /* engines close or reactors stop while others have work with them, and come again */
	bool faults_forget;        /* segments are closed under load */
	bool faults_memory;        /* allocations fail: when engines start and now and then later */
	struct te_rdma_options rdma;
	enum te_sabotage sabotage;
};

/* Conditions that a soak must have seen at least once. */
#define TE_SOMETIMES(S)                                                                                                     \
	S(write_completed) S(read_completed) S(write_effect_unknown) S(write_failed_no_effect)                                  \
	S(timed_out) S(canceled_queued) S(canceled_under_way) S(completed_after_fault) S(peer_restarted) S(request_repeated)    \
	S(descriptor_refreshed) S(range_refused_after_restart) S(node_paused) S(connection_cut) S(partitioned) S(tiny_budget)   \
	S(local_transfer) S(remote_completed) S(neap_lane) S(plain_v2_lane) S(plain_v1_lane) S(refused_by_peer)                 \
	S(close_with_work) S(grant_used) S(grant_refused) S(revoked_under_way) S(alloc_failed_create) S(alloc_failed_later)     \
	S(released_under_load) S(joined_core) S(core_paused_alone) S(one_by_one_repeat) S(fenced_repeat) S(segment_closed)      \
	S(reactor_stopped) S(engine_left) S(local_partial) S(batch_polled) S(batch_of_several) S(notified) S(notify_failed)

/* The same of a soak over devices. */
#define TE_RDMA_SOMETIMES(S)                                                                                                \
	S(piece_posted) S(piece_repeated) S(rail_paused) S(rail_probed) S(buffer_held) S(stray_landed) S(stray_refused)         \
	S(port_down) S(device_lost) S(cable_cut) S(call_failed) S(helper_stalled) S(connections_retired) S(region_came_again) \
	S(lingered) S(packet_caught) S(placed_late)

struct te_sometimes {
#define TE_FIELD(name) uint64_t name;
	TE_SOMETIMES(TE_FIELD)
	TE_RDMA_SOMETIMES(TE_FIELD)
#undef TE_FIELD
};

struct te_result {
	bool ok;
	char what[512];            /* the first violation */
	uint64_t hash, virtual_ns, events, operations, completed, unknown, failed;
	bool sabotaged;            /* the sabotage asked for found its occasion */
	struct te_options options;
	struct te_sometimes sometimes;
};

/* One run: safety phase with faults, liveness phase without, close, leak checks. `options` NULL: all from the seed. */
void te_run(uint64_t seed, const struct te_options *options, struct te_result *result_p);

void te_options_from_seed(uint64_t seed, struct te_options *options_p);
/* The same of a cluster over devices. One seed of two has an aim. */
void te_rdma_options_from_seed(uint64_t seed, struct te_options *options_p);
void te_rdma_options_without_aim(uint64_t seed, struct te_options *options_p);
void te_rdma_options_with_aim(uint64_t seed, enum te_aim aim, struct te_options *options_p);
const char *te_aim_name(enum te_aim aim);
enum te_aim te_aim_named(const char *name); /* TE_AIM_COUNT: none has it */
enum sim_mistake te_mistake_named(const char *name); /* SIM_MISTAKE_COUNT: none has it */

#endif
