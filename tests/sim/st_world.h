/* A cluster of stores in simulation: a master, three to seven clients that own and use values, a seeded workload, seeded faults, and checks
 * of everything that a user is told. All of it the library's own, unchanged.
 *
 * The content of a value tells which put it is of, to the last byte. So whatever a get brings is known to be right, or wrong. Memory that an
 * operation has given back holds a canary until it is used again: a byte that arrives late is seen. */
#ifndef NEAP_SIM_ST_WORLD_H
#define NEAP_SIM_ST_WORLD_H

#include "tests/sim/sim.h"
#include <neap/store.h>

/* To show that a checker can fail: the harness itself does what the library must never do. */
enum st_sabotage {
	ST_SABOTAGE_NONE,
	ST_SABOTAGE_CORRUPT_VALUE,  /* a byte of a value that a get brought is another one */
	ST_SABOTAGE_TOUCH_RETURNED, /* a buffer is written to after its operation has ended */
	ST_SABOTAGE_LOSE_VALUE,     /* an acknowledged value is removed behind everybody's back */
	ST_SABOTAGE_LIE_FAILED,     /* a put that succeeded is reported as FAILED */
	ST_SABOTAGE_NEVER_END,      /* an outcome is swallowed */
	ST_SABOTAGE_END_TWICE,
	ST_SABOTAGE_LEAK,           /* memory of a node does not come back */
	/* Devices that lie (tests/support/sim_verbs.h), all the while: */
	ST_SABOTAGE_KEYS_STAY,      /* what they have let go of can still be written to */
	ST_SABOTAGE_READS_EMPTY,    /* a READ of what is not there any more is done, and brings nothing */
	ST_SABOTAGE_PLACES_LATER,   /* what is read behind a WRITE does not show that it was placed */
	ST_SABOTAGE_COUNT,
};

/* What the seed has decided; printed with a failing seed, and what a replay file holds. */
#define ST_OPTIONS(O)                                                                                            \
	O(clients) O(accessors) O(tier_bytes) O(keys) O(value_bytes) O(operations) O(inflight) O(work_period_us)     \
	O(forward_per_mille) O(remote_per_mille) O(remove_per_mille) O(sweep_per_mille) O(cancel_per_mille)          \
	O(deadline_per_mille) O(batch_per_mille) O(lease_ms) O(verify) O(drift_ppm) O(stable)                        \
	O(fault_period_ms) O(pause_max_ms) O(faults_pause) O(faults_cut) O(faults_partition) O(faults_crash)         \
	O(faults_leave) O(faults_master) O(faults_memory) O(sabotage) O(follow_per_mille)                            \
	O(devices_max) O(tcp_per_mille) O(endpoints_max) O(qps) O(depth) O(completions_max) O(silence_retries)       \
	O(slice_bytes) O(rail_pause_ms) O(latency_max_us) O(stray_max_us) O(faults_port) O(faults_device)            \
	O(faults_cable) O(faults_calls) O(faults_helper) O(faults_retire) O(faults_late) O(faults_stop)              \
	O(faults_lost) O(faults_keep) O(no_inline)

struct st_options {
#define ST_OPTION_FIELD(name) uint32_t name;
	ST_OPTIONS(ST_OPTION_FIELD)
#undef ST_OPTION_FIELD
};

/* Conditions that a soak must have seen at least once. */
#define ST_SOMETIMES(S)                                                                                                        \
	S(put_inline) S(put_reverse) S(put_forward) S(put_local) S(get_inline) S(get_reverse) S(get_forward) S(get_local)          \
	S(put_existed) S(put_differs) S(put_failed) S(put_unknown) S(get_missed) S(get_not_ready) S(get_failed) S(removed)         \
	S(removed_nothing) S(swept) S(resolved_there) S(resolved_gone) S(canceled) S(timed_out) S(held) S(batched)                 \
	S(write_expired) S(pin_expired) S(write_lost) S(pin_lost) S(late) S(repeated) S(retried) S(revoked) S(stale_route)         \
	S(evicted) S(second_version_dropped) S(announced_in_full) S(client_crashed) S(client_left) S(client_restarted)             \
	S(master_restarted) S(master_recovered) S(paused) S(paused_beyond_lease) S(partitioned) S(cut) S(memory_failed)            \
	S(clocks_drift) S(worked_after_faults)

/* The same of a soak over devices. */
#define ST_RDMA_SOMETIMES(S)                                                                                                   \
	S(piece_posted) S(piece_repeated) S(stray_landed) S(stray_refused) S(port_down) S(device_lost) S(cable_cut) S(call_failed) \
	S(helper_stalled) S(connections_retired) S(stopped_at_post) S(lost_with_packets) S(region_kept) S(peer_fenced)

struct st_sometimes {
#define ST_FIELD(name) uint64_t name;
	ST_SOMETIMES(ST_FIELD)
	ST_RDMA_SOMETIMES(ST_FIELD)
#undef ST_FIELD
};

struct st_result {
	bool ok;
	char what[512]; /* the first violation */
	uint64_t hash, virtual_ns, events, operations, succeeded, unknown, failed;
	bool sabotaged; /* the sabotage asked for found its occasion */
	struct st_options options;
	struct st_sometimes sometimes;
};

/* One run: a safety phase with faults, a liveness phase without, close, leak checks. `options` NULL: all from the seed. */
void st_run(uint64_t seed, const struct st_options *options, struct st_result *result_p);
void st_options_from_seed(uint64_t seed, struct st_options *options_p);
/* The same of a cluster over devices. */
void st_rdma_options_from_seed(uint64_t seed, struct st_options *options_p);

#endif
