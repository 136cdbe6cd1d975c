/* A cluster that finds itself through a metadata store, in simulation: processes that publish their segments and read each other's, over the
 * library's own back-ends, publisher and directory, unchanged; and a store behind them that is a Redis server, an HTTP server, an etcd
 * cluster or one in memory, with lag, errors, lost requests and lost replies.
 *
 * Each state that the store's keys were ever in is remembered with its time. So whatever a fetch brings is known to be what was there while
 * the fetch ran, or not. */
#ifndef NEAP_SIM_MD_WORLD_H
#define NEAP_SIM_MD_WORLD_H

#include "tests/sim/sim.h"

/* To show that a checker can fail: the harness itself does what the library must never do. */
enum md_sabotage {
	MD_SABOTAGE_NONE,
	MD_SABOTAGE_HIDE_NAME,      /* a fetch that has found says that there is no such segment */
	MD_SABOTAGE_OTHER_NAME,     /* a fetch brings another segment's document */
	MD_SABOTAGE_OLD_DOCUMENT,   /* a fetch brings what was replaced before it began */
	MD_SABOTAGE_OTHER_OWNER,    /* a fetch brings an address that was never the owner's */
	MD_SABOTAGE_NEVER_END,      /* an outcome is swallowed */
	MD_SABOTAGE_END_TWICE,
	MD_SABOTAGE_END_LATE,       /* an outcome is kept back beyond its deadline */
	MD_SABOTAGE_UNPUBLISH,      /* after everything has healed a key disappears again and again */
	MD_SABOTAGE_TWO_OWNERS,     /* who was told that its name is taken says that it is published */
	MD_SABOTAGE_MISS_NOTICE,    /* the store tells of no change */
	MD_SABOTAGE_LEAVE_BEHIND,   /* what a process has taken back is there again */
	MD_SABOTAGE_DROP_CHANGE,    /* the store tells of all changes but one */
	MD_SABOTAGE_OVERWRITE,      /* a name that somebody has is given to the next who claims it */
	MD_SABOTAGE_LEAK,           /* memory of a node does not come back */
	MD_SABOTAGE_COUNT,
};

enum md_kind { MD_REDIS, MD_HTTP, MD_MEMORY, MD_ETCD, MD_KINDS };

/* What the seed has decided; printed with a failing seed. */
#define MD_OPTIONS(O)                                                                                            \
	O(nodes) O(kind) O(contended) O(cluster) O(operations) O(work_period_us) O(timeout_ms) O(refresh_ms)         \
	O(lease_ms) O(password) O(database) O(old_server)                                                            \
	O(relaxed_per_mille) O(watched_per_mille) O(call_per_mille) O(cancel_per_mille) O(change_per_mille)          \
	O(fault_period_ms) O(fault_max_ms) O(faults_down) O(faults_dark) O(faults_wipe) O(faults_still) O(faults_cut) \
	O(faults_silent) O(faults_refuse) O(faults_forget) O(faults_crash) O(faults_leave) O(faults_part)            \
	O(faults_pause) O(faults_memory) O(faults_edit) O(faults_leader) O(faults_compact) O(faults_users) O(faults_tear)  \
	O(sabotage)

struct md_options {
#define MD_OPTION_FIELD(name) uint32_t name;
	MD_OPTIONS(MD_OPTION_FIELD)
#undef MD_OPTION_FIELD
};

/* Conditions that a soak must have seen at least once. */
#define MD_SOMETIMES(S)                                                                                                  \
	S(redis) S(http) S(memory) S(etcd) S(found) S(missing) S(unreachable) S(found_watched) S(served_from_cache) S(called)        \
	S(call_failed) S(canceled) S(published) S(taken) S(in_the_way) S(took_over) S(changed) S(changed_quietly)            \
	S(server_restarted) S(server_restarted_empty) S(server_dark) S(wiped) S(stood_still) S(cut) S(silenced) S(lost)      \
	S(repeated) S(refused) S(locked_out) S(loading) S(forgot_tracked) S(notified) S(crashed) S(host_died)                \
	S(came_again_there) S(came_again_elsewhere) S(left) S(partitioned) S(paused) S(memory_failed) S(memory_failed_at_start) S(lease_ended)         \
	S(edited) S(repaired) S(worked_after_faults) S(member_stopped) S(leaderless) S(compacted) S(resumed_compacted)       \
	S(users_changed) S(token_refused) S(token_expired) S(stream_resumed) S(stream_resumed_before) S(stream_overtaken) S(stream_torn)

struct md_sometimes {
#define MD_FIELD(name) uint64_t name;
	MD_SOMETIMES(MD_FIELD)
#undef MD_FIELD
};

struct md_result {
	bool ok;
	char what[512]; /* the first violation */
	uint64_t hash, virtual_ns, events, operations, found, missing, failed;
	bool sabotaged; /* the sabotage asked for found its occasion */
	struct md_options options;
	struct md_sometimes sometimes;
};

/* One run: a safety phase with faults, a calm one without, everybody leaves, leak checks. `options` NULL: all from the seed. */
void md_run(uint64_t seed, const struct md_options *options, struct md_result *result_p);
void md_options_from_seed(uint64_t seed, struct md_options *options_p);

#endif
