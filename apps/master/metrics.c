/* The master's figures. Names that begin with master_ or segment_, total_get_nums_ and valid_get_nums_ are those of Mooncake's master. */
#include "apps/common/prometheus.h"
#include "apps/master/master.h"
#include <inttypes.h>
#include <stdio.h>

#define METRICS_MAX ((size_t)16 << 20)
#define MEMORY_TYPE_STORAGE 1u /* enum neap_tier_kind: what owners send */

static void add(struct app_prometheus *out, enum neap_metric_kind kind, const char *name, const char *labels, uint64_t value,
                const char *help)
{
	struct neap_metric metric = {.name = name, .help = help, .labels = labels, .kind = kind, .value = value};
	app_prometheus_add(out, &metric);
}

static void gauge(struct app_prometheus *out, const char *name, uint64_t value, const char *help)
{
	add(out, NEAP_METRIC_GAUGE, name, "", value, help);
}

static void counter(struct app_prometheus *out, const char *name, uint64_t value, const char *help)
{
	add(out, NEAP_METRIC_COUNTER, name, "", value, help);
}

/* --- segments --------------------------------------------------------------------------------------------------- */

struct segment_walk {
	struct app_prometheus *out;
	bool used; /* which of the two figures is written */
	uint64_t capacity[2], allocated[2]; /* memory, files */
};

static void sum_segment(void *user, struct neap_key_client client, const struct neap_key_segment *segment, enum neap_key_status status)
{
	struct segment_walk *walk = user;
	(void)client, (void)status;
	bool file = segment->memory_type == MEMORY_TYPE_STORAGE;
	walk->capacity[file] += segment->capacity;
	walk->allocated[file] += segment->used;
}

static void add_segment(void *user, struct neap_key_client client, const struct neap_key_segment *segment, enum neap_key_status status)
{
	struct segment_walk *walk = user;
	char name[2 * NEAP_KEY_NAME_SIZE], labels[256];
	(void)client, (void)status;
	snprintf(labels, sizeof labels, "segment=\"%s\",id=\"%016" PRIx64 "%016" PRIx64 "\"",
	         app_prometheus_escape(segment->name, name, sizeof name), segment->id.first, segment->id.second);
	if (walk->used)
		add(walk->out, NEAP_METRIC_GAUGE, "segment_allocated_bytes", labels, segment->used,
		    "Bytes in use of a segment, as its owner's last heartbeat said");
	else
		add(walk->out, NEAP_METRIC_GAUGE, "segment_total_capacity_bytes", labels, segment->capacity, "Bytes that a segment has");
}

static void add_segments(struct app_prometheus *out, const struct master *master)
{
	struct segment_walk walk = {.out = out};
	neap_local_directory_segments(master->directory, sum_segment, &walk);
	gauge(out, "master_total_capacity_bytes", walk.capacity[0], "Bytes that all memory segments have");
	gauge(out, "master_allocated_bytes", walk.allocated[0], "Bytes in use of all memory segments");
	gauge(out, "master_total_file_capacity_bytes", walk.capacity[1], "Bytes that all storage segments have");
	gauge(out, "master_allocated_file_size_bytes", walk.allocated[1], "Bytes in use of all storage segments");
	neap_local_directory_segments(master->directory, add_segment, &walk);
	walk.used = true;
	neap_local_directory_segments(master->directory, add_segment, &walk);
}

/* --- methods ---------------------------------------------------------------------------------------------------- */

/* Mooncake's name of an operation; NULL: it has none. `batch`: its items are counted too. */
static const struct {
	enum neap_key_op op;
	bool batch;
	const char *name, *method;
} methods[] = {
	{NEAP_KEY_OP_REGISTER, false, "register_client", "RegisterClient"},
	{NEAP_KEY_OP_UNREGISTER, false, "unregister_client", "UnregisterClient"},
	{NEAP_KEY_OP_HEARTBEAT, false, "heartbeat", "Heartbeat"},
	{NEAP_KEY_OP_MOUNT, false, "mount_segment", "MountSegment"},
	{NEAP_KEY_OP_UNMOUNT, false, "unmount_segment", "UnmountSegment"},
	{NEAP_KEY_OP_LIST, false, "get_replica_list_by_regex", "ListKeys"},
	{NEAP_KEY_OP_CLIENTS, true, "query_ip", "QueryClients"},
	{NEAP_KEY_OP_WRITE_ROUTES, true, "get_write_route", "BatchGetWriteRoute"},
	{NEAP_KEY_OP_REPLICAS, true, "get_replica_list", "BatchGetReplicaList"},
	{NEAP_KEY_OP_EXIST, true, "exist_key", "BatchExistKey"},
	{NEAP_KEY_OP_ANNOUNCE, true, "sync_replica", "BatchSyncReplica"},
	{NEAP_KEY_OP_ROUND_BEGIN, false, NULL, "RoundBegin"},
	{NEAP_KEY_OP_ROUND_END, false, NULL, "SetSyncCompleted"},
	{NEAP_KEY_OP_COUNT, false, NULL, "Count"},
};

/* master_<prefix><name>_<suffix>_total */
static void method_counter(struct app_prometheus *out, size_t method, const char *suffix, uint64_t value, const char *help)
{
	char name[128];
	snprintf(name, sizeof name, "master_%s%s_%s_total", methods[method].batch ? "batch_" : "", methods[method].name, suffix);
	counter(out, name, value, help);
}

static void add_methods(struct app_prometheus *out, const struct neap_master_service_stats *stats)
{
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
		const struct neap_master_method_stats *method = &stats->methods[methods[i].op];
		if (!methods[i].name)
			continue;
		method_counter(out, i, "requests", method->requests, "Calls that came");
		method_counter(out, i, "failures", method->failures, "Calls that failed, as a whole or with each item");
		if (!methods[i].batch)
			continue;
		method_counter(out, i, "partial_successes", method->partial, "Calls of which some items failed");
		method_counter(out, i, "items", method->items, "Items of these calls");
		method_counter(out, i, "failed_items", method->failed_items, "Items that failed; what is not there is no failure");
	}
	counter(out, "master_add_replica_requests_total", stats->adds, "Replicas announced");
	counter(out, "master_add_replica_failures_total", stats->adds_failed, "Announced replicas that were not accepted");
	counter(out, "master_remove_replica_requests_total", stats->removes, "Removals announced");
	counter(out, "master_remove_replica_failures_total", stats->removes_failed, "Announced removals that were not accepted");
	const struct neap_master_method_stats *gets = &stats->methods[NEAP_KEY_OP_REPLICAS];
	counter(out, "total_get_nums_", gets->items, "Keys that readers asked for");
	counter(out, "valid_get_nums_", gets->items - gets->failed_items - gets->misses, "Of these, keys whose place they were told");
}

static void add_latencies(struct app_prometheus *out, const struct neap_master_service_stats *stats)
{
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
		const struct neap_latency *latency = &stats->methods[methods[i].op].latency;
		char labels[64];
		struct neap_metric_histogram histogram = {.upper = neap_latency_bounds_us, .bounds = NEAP_LATENCY_BUCKETS - 1,
		                                          .buckets = latency->buckets, .count = latency->count, .sum = latency->sum_us};
		struct neap_metric metric = {.name = "neap_master_call_latency_us",
		                             .help = "From a call's arrival to its answer, in microseconds",
		                             .labels = labels,
		                             .kind = NEAP_METRIC_HISTOGRAM,
		                             .histogram = &histogram};
		snprintf(labels, sizeof labels, "method=\"%s\"", methods[i].method);
		app_prometheus_add(out, &metric);
	}
}

/* --- the rest --------------------------------------------------------------------------------------------------- */

static void add_directory(struct app_prometheus *out, const struct master *master)
{
	struct neap_local_directory_stats stats;
	neap_local_directory_stats(master->directory, &stats);
	gauge(out, "master_key_count", stats.keys, "Keys with a place");
	gauge(out, "master_active_clients", stats.clients, "Clients that are registered");
	counter(out, "master_clients_disconnected_total", stats.suspected, "Clients that were silent for client_ttl");
	counter(out, "master_clients_recovered_total", stats.recovered, "Disconnected clients that were heard of again");
	counter(out, "master_clients_crashed_total", stats.crashed, "Clients that were silent for client_crashed_ttl");
	gauge(out, "neap_master_healthy_clients", stats.healthy, "Clients that are registered and not silent");
	gauge(out, "neap_master_recovering", stats.recovering, "1: started not long ago, it cannot yet say of a key that it is not there");
	gauge(out, "neap_master_owing_clients", stats.owing, "Clients that have not announced all their values yet");
	gauge(out, "neap_master_replicas", stats.replicas, "Places of keys");
	gauge(out, "neap_master_lost_replicas", stats.lost, "Replicas that another owner had first and whose owner has not let go yet");
	gauge(out, "neap_master_sweeping", stats.sweeping, "1: routes of clients that left are being dropped");
	counter(out, "neap_master_clients_registered_total", stats.registered, "Registrations of new clients");
	counter(out, "neap_master_clients_left_total", stats.left, "Clients that unregistered");
	counter(out, "neap_master_clients_replaced_total", stats.replaced, "Clients whose successor registered");
	counter(out, "neap_master_announcements_given_up_total", stats.given_up, "Announcements that the recovery did not wait for any longer");
	counter(out, "neap_master_directory_calls_total", stats.calls, "Calls of the directory");
	counter(out, "neap_master_directory_refused_total", stats.refused, "Calls refused: as many as may be were under way");
	counter(out, "neap_master_directory_timed_out_total", stats.timed_out, "Calls whose time ran out");
}

static void add_rpc(struct app_prometheus *out, const struct master *master, const struct neap_master_service_stats *service)
{
	struct neap_rpc_server_stats stats;
	neap_rpc_server_stats(master->rpc, &stats);
	gauge(out, "neap_master_rpc_connections", stats.connections_now, "Connections of clients");
	gauge(out, "neap_master_rpc_calls", stats.calls_now, "Calls under way");
	gauge(out, "neap_master_rpc_bytes", stats.bytes, "Memory of requests and answers");
	counter(out, "neap_master_rpc_connections_total", stats.connections, "Connections so far");
	counter(out, "neap_master_rpc_calls_total", stats.calls, "Calls that came");
	counter(out, "neap_master_rpc_expired_total", stats.expired, "Calls whose deadline had passed when they came");
	counter(out, "neap_master_rpc_refused_total", stats.refused + stats.refused_window + stats.refused_memory,
	        "Calls refused before a method ran");
	counter(out, "neap_master_rpc_broken_total", stats.broken, "Connections that ended without a goodbye");
	counter(out, "neap_master_service_refused_total", service->refused, "Calls that the service refused");
	counter(out, "neap_master_service_strangers_total", service->strangers, "Calls that spoke for another client than their own");
	counter(out, "neap_master_service_canceled_total", service->canceled, "Calls that nobody waited for any more");
}

static void add_metadata(struct app_prometheus *out, const struct master *master)
{
	struct master_metadata_stats stats;
	if (!master->metadata)
		return;
	master_metadata_stats(master->metadata, &stats);
	gauge(out, "neap_master_metadata_entries", stats.entries, "Keys of the HTTP metadata server");
	gauge(out, "neap_master_metadata_bytes", stats.bytes, "Bytes of its keys and values");
	counter(out, "neap_master_metadata_gets_total", stats.gets, "GET requests for metadata");
	counter(out, "neap_master_metadata_puts_total", stats.puts, "PUT requests for metadata");
	counter(out, "neap_master_metadata_deletes_total", stats.deletes, "DELETE requests for metadata");
	counter(out, "neap_master_metadata_misses_total", stats.misses, "Keys asked for or deleted that were not there");
	counter(out, "neap_master_metadata_refused_total", stats.refused, "PUT requests refused: a node's name is taken, or a bound");
}

static void add_process(struct app_prometheus *out, const struct master *master)
{
	struct neap_reactor_stats stats;
	neap_reactor_stats(master->host.reactor, &stats);
	counter(out, "neap_reactor_turns_total", stats.turns, "Turns of the reactor");
	counter(out, "neap_reactor_long_turns_total", stats.long_turns, "Turns that took too long");
	gauge(out, "neap_reactor_longest_turn_ns", stats.longest_turn_ns, "The longest turn so far, in nanoseconds");
	gauge(out, "neap_reactor_timers", stats.timers_active, "Timers that run");
	counter(out, "neap_reactor_impossible_total", stats.impossible, "Events that no table expected");
	counter(out, "neap_master_http_questions_total", master->questions, "Questions to the directory that came over HTTP");
}

static void serve(const struct master *master, struct app_http_request *request, bool summary)
{
	struct app_prometheus out = {.text.max = METRICS_MAX, .summary = summary};
	struct neap_master_service_stats service;
	neap_master_service_stats(master->service, &service);
	add_directory(&out, master);
	add_segments(&out, master);
	add_methods(&out, &service);
	add_latencies(&out, &service);
	add_rpc(&out, master, &service);
	add_metadata(&out, master);
	add_process(&out, master);
	app_http_answer_text(request, 200, summary ? APP_HTTP_TEXT : APP_PROMETHEUS_TYPE, &out.text);
}

void master_serve_metrics(void *user, struct app_http_request *request)
{
	serve(user, request, false);
}

void master_serve_summary(void *user, struct app_http_request *request)
{
	serve(user, request, true);
}
