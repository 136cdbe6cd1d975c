/* The figures of a store, under the names that Mooncake Store's have where there is such a one, else neap_store_….
 * docs/OPERATING.md lists them. */
#include "store/node/inside.h"
#include <stdio.h>
#include <string.h>

struct sink {
	neap_metric_func *each;
	void *user;
};

static void say(const struct sink *sink, enum neap_metric_kind kind, const char *name, const char *labels, const char *help, uint64_t value)
{
	struct neap_metric metric = {.name = name, .help = help, .labels = labels, .kind = kind, .value = value};
	sink->each(sink->user, &metric);
}

static void counter(const struct sink *sink, const char *name, const char *labels, const char *help, uint64_t value)
{
	say(sink, NEAP_METRIC_COUNTER, name, labels, help, value);
}

static void gauge(const struct sink *sink, const char *name, const char *labels, const char *help, uint64_t value)
{
	say(sink, NEAP_METRIC_GAUGE, name, labels, help, value);
}

static void histogram(const struct sink *sink, const char *name, const char *labels, const char *help, const struct neap_latency *latency)
{
	struct neap_metric_histogram shape = {.upper = neap_latency_bounds_us, .bounds = NEAP_LATENCY_BUCKETS - 1, .buckets = latency->buckets,
	                                      .count = latency->count, .sum = latency->sum_us};
	struct neap_metric metric = {.name = name, .help = help, .labels = labels, .kind = NEAP_METRIC_HISTOGRAM, .histogram = &shape};
	sink->each(sink->user, &metric);
}

/* --- puts and gets of ours ---------------------------------------------------------------------------------------------------- */

static const char *const ways[NEAP_WAYS] = {
	[NEAP_WAY_NONE] = "way=\"none\"",       [NEAP_WAY_INLINE] = "way=\"inline\"", [NEAP_WAY_REVERSE] = "way=\"reverse\"",
	[NEAP_WAY_FORWARD] = "way=\"forward\"", [NEAP_WAY_LOCAL] = "way=\"local\"",
};

struct way_counter {
	const char *put, *get, *help;
	size_t offset;
};

#define WAY(field) offsetof(struct neap_way_stats, field)
static const struct way_counter way_counters[] = {
	{"mooncake_p2p_put_requests_total", "mooncake_p2p_get_requests_total", "operations that have ended", WAY(operations)},
	{"mooncake_p2p_put_succeeded_total", "mooncake_p2p_get_hits_total", "of them SUCCESS", WAY(succeeded)},
	{"mooncake_p2p_put_failures_total", "mooncake_p2p_get_failures_total", "of them FAILED, misses included", WAY(failed)},
	{"mooncake_p2p_put_unknown_total", "mooncake_p2p_get_unknown_total", "of them UNKNOWN", WAY(unknown)},
	{"mooncake_p2p_put_bytes_total", "mooncake_p2p_get_bytes_total", "bytes of those that succeeded", WAY(bytes)},
};

static void say_ways(const struct sink *sink, const struct neap_way_stats *stats, bool put)
{
	for (size_t i = 0; i < sizeof way_counters / sizeof way_counters[0]; i++)
		for (uint32_t way = 0; way < NEAP_WAYS; way++) {
			uint64_t value;
			memcpy(&value, (const char *)&stats[way] + way_counters[i].offset, sizeof value);
			counter(sink, put ? way_counters[i].put : way_counters[i].get, ways[way], way_counters[i].help, value);
		}
	for (uint32_t way = NEAP_WAY_INLINE; way < NEAP_WAYS; way++)
		histogram(sink, put ? "mooncake_p2p_put_latency_success_us" : "mooncake_p2p_get_latency_success_us", ways[way],
		          "from the call to its outcome, microseconds", &stats[way].latency);
}

static void say_questions(const struct sink *sink, const struct node_places *places)
{
	static const char *const kinds[NODE_ASK_KINDS] = {"kind=\"candidates\"", "kind=\"replicas\""};
	for (uint32_t kind = 0; kind < NODE_ASK_KINDS; kind++)
		counter(sink, "neap_store_directory_questions_total", kinds[kind], "questions to the directory", places->asked[kind]);
	for (uint32_t kind = 0; kind < NODE_ASK_KINDS; kind++)
		counter(sink, "neap_store_directory_calls_total", kinds[kind], "calls they went in", places->batches[kind]);
	counter(sink, "neap_store_hinted_puts_total", "", "puts that went where the last answer had said", places->hinted);
}

static void say_accessor(const struct sink *sink, const struct neap_store *store)
{
	struct neap_accessor_stats stats;
	if (!store->accessor)
		return;
	neap_accessor_stats(store->accessor, &stats);
	say_ways(sink, stats.puts, true);
	say_ways(sink, stats.gets, false);
	gauge(sink, "mooncake_p2p_inflight", "", "puts and gets under way", stats.operations_now);
	counter(sink, "mooncake_p2p_put_existed_total", "", "puts of keys that had a value", stats.existed);
	counter(sink, "mooncake_p2p_write_retries_total", "", "puts that went on to another owner", stats.write_retries);
	counter(sink, "mooncake_p2p_read_retries_total", "", "gets that went on to another replica, or asked anew",
	        stats.read_retries);
	counter(sink, "mooncake_p2p_rollback_write_revoke_requests_total", "", "reservations revoked", stats.revokes);
	counter(sink, "mooncake_p2p_rollback_write_revoke_failures_total", "", "revokes given up; the lease ends those", stats.revokes_failed);
	counter(sink, "neap_store_repeated_calls_total", "", "calls repeated at the same owner under the same request id", stats.repeats);
	counter(sink, "neap_store_late_total", "", "grants that came too late to be used, reads that ended too late to be believed",
	        stats.late);
	counter(sink, "neap_store_held_total", "", "outcomes whose buffers came back later", stats.held);
	counter(sink, "neap_store_wrong_sums_total", "", "values whose checksum was wrong when they were read", stats.wrong_sums);
	counter(sink, "neap_store_stale_routes_total", "", "routes that their owner has shown to be wrong", stats.stale_routes);
	counter(sink, "neap_store_unpins_ridden_total", "", "finished pins told along with another request", stats.pins_ridden);
	counter(sink, "neap_store_unpin_calls_total", "", "calls made to tell finished pins", stats.unpin_calls);
	gauge(sink, "neap_store_owners_connected", "", "owners spoken to", stats.peers_now);
	counter(sink, "neap_store_route_cache_hits_total", "", "gets whose routes were remembered", stats.routes.hits);
	counter(sink, "neap_store_route_cache_misses_total", "", "gets whose routes were not", stats.routes.misses);
	gauge(sink, "neap_store_route_cache_keys", "", "keys whose routes are remembered", stats.routes.entries);
	gauge(sink, "neap_store_route_cache_bytes", "", "memory of that", stats.routes.bytes);
	say_questions(sink, &store->places);
}

/* --- what we hold, and serve ---------------------------------------------------------------------------------------------------- */

static void say_tiers(const struct sink *sink, const struct neap_store *store)
{
	static const struct {
		const char *name, *help;
	} names[] = {
		{"mooncake_p2p_tier_key_count", "values in the tier"},
		{"mooncake_p2p_tier_capacity_bytes", "its size"},
		{"mooncake_p2p_tier_used_bytes", "taken, rounding included"},
		{"neap_store_tier_pinned_bytes", "of values that somebody holds"},
		{"neap_store_tier_quarantined_bytes", "that nobody may have before a grant has ended"},
	};
	struct neap_tier_stats stats;
	char labels[64];
	if (!store->has_tiers)
		return;
	for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
		for (uint32_t i = 0; i < store->tiers.count; i++) {
			if (neap_tiers_stats(&store->tiers, i, &stats))
				continue;
			const uint64_t values[] = {stats.counts.committed, stats.capacity, stats.counts.rounded_bytes, stats.counts.pinned_bytes,
			                           stats.counts.quarantined_bytes};
			(void)snprintf(labels, sizeof labels, "tier=\"%u\",kind=\"%s\"", i, stats.kind == NEAP_TIER_DRAM ? "DRAM" : "STORAGE");
			gauge(sink, names[n].name, labels, names[n].help, values[n]);
		}
	for (uint32_t i = 0; i < store->tiers.count; i++) {
		if (neap_tiers_stats(&store->tiers, i, &stats))
			continue;
		(void)snprintf(labels, sizeof labels, "tier=\"%u\",kind=\"%s\"", i, stats.kind == NEAP_TIER_DRAM ? "DRAM" : "STORAGE");
		counter(sink, "mooncake_p2p_tier_evicted_keys_total", labels, "values evicted", stats.evictions.evicted);
	}
}

/* What happens between memory and the disk. */
static void say_lower(const struct sink *sink, const struct neap_owner_stats *stats, uint32_t tier)
{
	char labels[64];
	(void)snprintf(labels, sizeof labels, "tier=\"%u\",kind=\"STORAGE\"", tier);
	counter(sink, "mooncake_p2p_tier_offloaded_keys_total", labels, "copies written to the disk", stats->offloaded);
	counter(sink, "mooncake_p2p_tier_onboarded_keys_total", labels, "values read from the disk that stay in memory", stats->onboarded);
	counter(sink, "neap_store_served_once_total", "", "values read from the disk for those who asked, and no longer", stats->served_once);
	counter(sink, "neap_store_offloaded_bytes_total", "", "written to the disk", stats->offloaded_bytes);
	counter(sink, "neap_store_onboarded_bytes_total", "", "read from the disk", stats->onboarded_bytes);
	counter(sink, "neap_store_fell_back_total", "", "values that gave up their memory and are read from the disk now", stats->fell_back);
	counter(sink, "neap_store_evicted_uncopied_total", "", "values evicted from memory that were not on the disk", stats->evicted_uncopied);
	counter(sink, "neap_store_evicted_too_large_total", "", "of them because the disk takes none that large", stats->too_large);
	counter(sink, "neap_store_copies_dropped_total", "", "copies on the disk evicted while the value was in memory", stats->copies_dropped);
	counter(sink, "neap_store_disk_full_total", "", "values that found no room on the disk", stats->disk_full);
	counter(sink, "neap_store_disk_write_errors_total", "", "writes that failed; the value stayed in memory", stats->disk_writes_failed);
	counter(sink, "neap_store_disk_read_errors_total", "", "reads that failed; the value is gone", stats->disk_reads_failed);
	counter(sink, "neap_store_disk_wrong_sums_total", "", "values read whose checksum was wrong; they are gone", stats->wrong_copies);
	counter(sink, "neap_store_disk_late_total", "", "readers that the disk did not answer in time", stats->brings_late);
	gauge(sink, "neap_store_disk_copies", "", "values in memory with a copy on the disk", stats->copies);
	gauge(sink, "neap_store_disk_writes", "", "under way", stats->going_down);
	gauge(sink, "neap_store_disk_reads", "", "under way", stats->going_up);
}

static void say_owner(const struct sink *sink, const struct neap_store *store)
{
	struct neap_owner_stats stats;
	if (!store->owner)
		return;
	neap_owner_stats(store->owner, &stats);
	gauge(sink, "neap_store_keys", "", "values held here", stats.keys);
	gauge(sink, "neap_store_bytes", "", "their bytes", stats.bytes);
	gauge(sink, "neap_store_pending_writes", "", "reservations under a lease", stats.pending);
	gauge(sink, "neap_store_committing_writes", "", "being summed before they are visible", stats.committing);
	gauge(sink, "neap_store_quarantined_writes", "", "ended reservations whose grant has not", stats.quarantined);
	gauge(sink, "neap_store_quarantined_bytes", "", "memory that waits for the end of a grant", stats.quarantined_bytes);
	gauge(sink, "neap_store_pins", "", "readers under a lease", stats.pins);
	gauge(sink, "neap_store_moves", "", "values that the owner is moving", stats.moves);
	counter(sink, "neap_store_prewrites_total", "", "reservations granted", stats.prewrites);
	counter(sink, "neap_store_commits_total", "", "of them committed", stats.commits);
	counter(sink, "neap_store_revokes_total", "", "of them revoked", stats.revokes);
	counter(sink, "neap_store_expired_writes_total", "", "of them ended by their lease", stats.expired_writes);
	counter(sink, "neap_store_lost_writes_total", "", "of them ended because their accessor's connection was", stats.lost_writes);
	counter(sink, "neap_store_pins_total", "", "pins granted", stats.pinned);
	counter(sink, "neap_store_unpins_total", "", "of them unpinned", stats.unpins);
	counter(sink, "neap_store_expired_pins_total", "", "of them ended by their lease", stats.expired_pins);
	counter(sink, "neap_store_lost_pins_total", "", "of them ended because their reader's connection was", stats.lost_pins);
	counter(sink, "neap_store_pulled_bytes_total", "", "taken from accessors' buffers", stats.pulled_bytes);
	counter(sink, "neap_store_pushed_bytes_total", "", "brought to accessors' buffers", stats.pushed_bytes);
	counter(sink, "neap_store_failed_moves_total", "", "transfers of the owner that failed", stats.failed_moves);
	counter(sink, "neap_store_removed_total", "", "values removed", stats.removed);
	counter(sink, "neap_store_evicted_total", "", "values evicted", stats.evicted);
	if (store->lower.largest)
		say_lower(sink, &stats, store->lower.tier);
	counter(sink, "neap_store_refused_no_space_total", "", "writes refused because no tier had room", stats.refused_no_space);
}

struct method_name {
	const char *requests, *failures, *success_us, *failure_us;
};
#define METHOD(name)                                                                                            \
	{                                                                                                           \
		"mooncake_p2p_peer_" name "_requests_total", "mooncake_p2p_peer_" name "_failures_total",               \
			"mooncake_p2p_peer_" name "_latency_success_us", "mooncake_p2p_peer_" name "_latency_failure_us"    \
	}
/* By number, less one. */
static const struct method_name methods[NEAP_PEER_METHODS] = {
	METHOD("prewrite"),         METHOD("write_commit"),      METHOD("write_revoke"),     METHOD("pin_key"),    METHOD("unpin_key"),
	METHOD("write_remote_data"), METHOD("read_remote_data"), METHOD("look_up"),          METHOD("remove_key"), METHOD("describe"),
};

static void say_service(const struct sink *sink, const struct neap_store *store)
{
	struct neap_peer_service_stats stats;
	if (!store->service)
		return;
	neap_peer_service_stats(store->service, &stats);
	for (uint32_t i = 0; i < NEAP_PEER_METHODS; i++) {
		counter(sink, methods[i].requests, "", "calls of peers", stats.methods[i].requests);
		counter(sink, methods[i].failures, "", "calls of peers that were refused or failed", stats.methods[i].failures);
		histogram(sink, methods[i].success_us, "", "from a call's arrival to its answer, microseconds", &stats.methods[i].success);
		histogram(sink, methods[i].failure_us, "", "from a call's arrival to its refusal, microseconds", &stats.methods[i].failure);
	}
	gauge(sink, "mooncake_p2p_peer_inflight", "", "commits and transfers for peers under way", stats.operations_now);
	counter(sink, "neap_store_refused_quota_total", "", "calls over a connection's quota", stats.refused_quota);
	counter(sink, "neap_store_refused_foreign_total", "", "calls that named what is not the caller's", stats.refused_foreign);
}

static void say_announcer(const struct sink *sink, const struct neap_store *store)
{
	struct neap_announcer_stats stats;
	gauge(sink, "neap_store_health", "", "0 FULL, 1 SYNCING, 2 DEGRADED, 3 LOCAL_ONLY, 4 DRAINING", neap_store_health(store));
	if (!store->announcer)
		return;
	neap_announcer_stats(store->announcer, &stats);
	gauge(sink, "neap_store_announcements_queued", "", "changes that the directory has still to hear of", stats.queued);
	counter(sink, "neap_store_announcements_total", "", "changes told to the directory", stats.items);
	counter(sink, "neap_store_announce_calls_total", "", "calls they went in", stats.batches);
	counter(sink, "neap_store_full_announcements_total", "", "times that everything was announced", stats.rounds);
	counter(sink, "neap_store_heartbeats_total", "", "heartbeats sent", stats.beats);
	counter(sink, "neap_store_heartbeats_failed_total", "", "of them without an answer", stats.beats_failed);
	counter(sink, "neap_store_lost_values_total", "", "values dropped because another owner had the key first", stats.lost);
}

void neap_store_metrics(const struct neap_store *store, neap_metric_func *each, void *user)
{
	const struct sink sink = {each, user};
	say_accessor(&sink, store);
	say_tiers(&sink, store);
	say_owner(&sink, store);
	say_service(&sink, store);
	say_announcer(&sink, store);
}

void neap_store_numbers(const struct neap_store *store, struct neap_store_numbers *numbers_p)
{
	struct neap_accessor_stats accessor = {0};
	struct neap_owner_stats owner = {0};
	struct neap_tier_stats tier;
	*numbers_p = (struct neap_store_numbers){0};
	if (store->accessor)
		neap_accessor_stats(store->accessor, &accessor);
	if (store->owner)
		neap_owner_stats(store->owner, &owner);
	for (uint32_t i = 0; store->has_tiers && i < store->tiers.count; i++) {
		if (neap_tiers_stats(&store->tiers, i, &tier))
			continue;
		numbers_p->capacity_bytes += tier.capacity;
		numbers_p->used_bytes += tier.counts.rounded_bytes;
	}
	for (uint32_t way = 0; way < NEAP_WAYS; way++) {
		numbers_p->puts += accessor.puts[way].operations;
		numbers_p->gets += accessor.gets[way].operations;
		numbers_p->hits += accessor.gets[way].succeeded;
		numbers_p->misses += accessor.gets[way].failed;
	}
	numbers_p->keys = owner.keys;
	numbers_p->bytes = owner.bytes;
	numbers_p->quarantined_bytes = owner.quarantined_bytes;
	numbers_p->pending_writes = owner.pending;
	numbers_p->pins = owner.pins;
	numbers_p->quarantined_writes = owner.quarantined;
	numbers_p->operations = accessor.operations_now;
	numbers_p->evicted = owner.evicted;
	numbers_p->expired_writes = owner.expired_writes;
	numbers_p->expired_pins = owner.expired_pins;
	numbers_p->retries = accessor.write_retries + accessor.read_retries;
}
