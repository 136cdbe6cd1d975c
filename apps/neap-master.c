/* The master of a store: routes of keys and liveness of clients over the store's RPC, metadata for transfer engines and figures over
 * HTTP. It keeps nothing on disk: owners announce again what they have. */
#include "apps/common/flags.h"
#include "apps/common/memory.h"
#include "apps/common/reach.h"
#include "apps/common/stop_at.h"
#include "apps/master/master.h"
#include "reactor/address.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define LEAVE_SECONDS 3u /* for the goodbyes at the end */

static struct master master;

static struct master_flags {
	const char *deployment_mode, *rpc_address, *metrics_host, *metadata_host, *ready_file, *trace_file;
	uint64_t rpc_port, metrics_port, metadata_port;
	bool metadata, first, quiet;
	double client_ttl, client_crashed_ttl, announce_timeout;
	uint64_t max_client_per_key, keys_max, replicas_max, key_length_max, clients_max, segments_max, connections_max;
	uint64_t http_idle, http_request; /* seconds */
	uint64_t metadata_entries_max, metadata_value_max, metadata_bytes_max;
} given = {
	.deployment_mode = "P2P",
	.rpc_address = "127.0.0.1",
	.metrics_host = "127.0.0.1",
	.metadata_host = "127.0.0.1",
	.rpc_port = 50051,
	.metrics_port = 9003,
	.metadata_port = 8080,
	.client_ttl = 10,
	.announce_timeout = 60,
	.max_client_per_key = 1,
	.keys_max = 1u << 20,
	.key_length_max = 1024,
	.clients_max = 1024,
	.segments_max = 4096,
	.connections_max = 4096,
	.http_idle = 15,
	.http_request = 60,
	.metadata_entries_max = 65536,
	.metadata_value_max = 4u << 20,
	.metadata_bytes_max = 256u << 20,
};

static const struct app_flag flags[] = {
	{"deployment_mode", APP_FLAG_TEXT, &given.deployment_mode, NULL, 0, 0, "P2P: clients hold the values; there is no other mode"},
	{"rpc_address", APP_FLAG_TEXT, &given.rpc_address, NULL, 0, 0, "where clients reach it; 0.0.0.0 or :: for all interfaces"},
	{"rpc_port", APP_FLAG_NUMBER, &given.rpc_port, NULL, 0, 65535, "its port; 0: a free one"},
	{"port", APP_FLAG_NUMBER, &given.rpc_port, NULL, 0, 65535, "the same"},
	{"metrics_host", APP_FLAG_TEXT, &given.metrics_host, NULL, 0, 0, "where /metrics and the rest is served"},
	{"metrics_port", APP_FLAG_NUMBER, &given.metrics_port, NULL, 0, 65535, "its port; 0: not at all"},
	{"enable_http_metadata_server", APP_FLAG_SWITCH, &given.metadata, NULL, 0, 0,
	 "serve metadata of transfer engines at http://HOST:PORT/metadata"},
	{"http_metadata_server_host", APP_FLAG_TEXT, &given.metadata_host, NULL, 0, 0, "where"},
	{"http_metadata_server_port", APP_FLAG_NUMBER, &given.metadata_port, NULL, 0, 65535, "its port; 0: a free one"},
	{"http_metadata_entries_max", APP_FLAG_NUMBER, &given.metadata_entries_max, NULL, 1, 1u << 24, "metadata: keys"},
	{"http_metadata_value_max", APP_FLAG_SIZE, &given.metadata_value_max, NULL, 1024, 1u << 28, "metadata: of one value"},
	{"http_metadata_bytes_max", APP_FLAG_SIZE, &given.metadata_bytes_max, NULL, 4096, UINT64_C(1) << 36, "metadata: of all"},
	{"http_idle_timeout", APP_FLAG_NUMBER, &given.http_idle, NULL, 1, 3600, "HTTP: seconds after which a silent connection ends"},
	{"http_request_timeout", APP_FLAG_NUMBER, &given.http_request, NULL, 1, 3600,
	 "HTTP: seconds after which a request that is not through ends"},
	{"client_ttl", APP_FLAG_SECONDS, &given.client_ttl, NULL, 0, 86400, "a client that is silent for so long is disconnected"},
	{"client_crashed_ttl", APP_FLAG_SECONDS, &given.client_crashed_ttl, NULL, 0, 259200,
	 "a client that is silent for so long has crashed; 0: 3 times client_ttl"},
	{"announce_timeout", APP_FLAG_SECONDS, &given.announce_timeout, NULL, 0, 86400,
	 "how long a recovery waits for clients to announce what they hold"},
	{"max_client_per_key", APP_FLAG_NUMBER, &given.max_client_per_key, NULL, 0, UINT32_MAX - 1, "clients that hold one key; 0: any number"},
	{"first", APP_FLAG_SWITCH, &given.first, NULL, 0, 0, "there was no master before: no recovery, nobody can have values yet"},
	{"keys_max", APP_FLAG_NUMBER, &given.keys_max, NULL, 1, 1u << 28, "keys"},
	{"replicas_max", APP_FLAG_NUMBER, &given.replicas_max, NULL, 0, 1u << 29, "places of keys; 0: keys_max and a quarter"},
	{"key_length_max", APP_FLAG_NUMBER, &given.key_length_max, NULL, 1, 4096, "bytes of a key"},
	{"clients_max", APP_FLAG_NUMBER, &given.clients_max, NULL, 1, 65536, "clients"},
	{"segments_max", APP_FLAG_NUMBER, &given.segments_max, NULL, 1, 1u << 20, "segments of all clients"},
	{"rpc_connections_max", APP_FLAG_NUMBER, &given.connections_max, NULL, 1, 1u << 20, "connections; a client has two"},
	{"ready_file", APP_FLAG_TEXT, &given.ready_file, NULL, 0, 0, "once it serves, write HOST:PORT of the RPC here"},
	{"trace_file", APP_FLAG_TEXT, &given.trace_file, NULL, 0, 0, "where SIGUSR1 writes the trace; not given: as text to standard error"},
	{"quiet", APP_FLAG_SWITCH, &given.quiet, NULL, 0, 0, "print nothing when it is ready"},
};

#define NO_HA "this master keeps nothing that must be handed over; start it anew and clients announce what they hold"
#define NO_CENTRAL "it belongs to a master that manages memory itself; here clients hold the values"
static const struct app_foreign_flag foreign[] = {
	{"config_path", false, "give flags or NEAP_MASTER_ variables instead"},
	{"enable_ha", true, NO_HA},
	{"enable_oplog", true, NO_HA},
	{"election_backend", false, NO_HA},
	{"etcd_endpoints", false, NO_HA},
	{"redis_endpoint", false, NO_HA},
	{"redis_username", false, NULL},
	{"redis_password", false, NULL},
	{"redis_db_index", false, NULL},
	{"redis_master_view_ttl_sec", false, NULL},
	{"redis_heartbeat_interval_sec", false, NULL},
	{"oplog_store_type", false, NULL},
	{"oplog_data_dir", false, NULL},
	{"oplog_async_queue_max_entries", false, NULL},
	{"oplog_async_queue_overflow_mode", false, NULL},
	{"oplog_best_effort_max_retries", false, NULL},
	{"standby_snapshot_service_port", false, NO_HA},
	{"standby_snapshot_service_endpoint", false, NO_HA},
	{"standby_snapshot_service_sources", false, NO_HA},
	{"standby_snapshot_service_chunk_size", false, NULL},
	{"heartbeat_rpc_port", false, "heartbeats have a connection of their own on the one port"},
	{"heartbeat_rpc_thread_num", false, NULL},
	{"rpc_thread_num", false, NULL},
	{"max_threads", false, NULL},
	{"rpc_conn_timeout_seconds", false, NULL},
	{"rpc_enable_tcp_no_delay", true, NULL},
	{"enable_metric_reporting", true, NULL},
	{"cluster_id", false, NULL},
	{"root_fs_dir", false, NO_CENTRAL},
	{"quota_bytes", false, NO_CENTRAL},
	{"memory_allocator", false, NULL},
	{"default_kv_lease_ttl", false, NULL},
	{"default_kv_soft_pin_ttl", false, NULL},
	{"allow_evict_soft_pinned_objects", true, NULL},
	{"eviction_ratio", false, NULL},
	{"eviction_high_watermark_ratio", false, NULL},
};

static const struct app_program program = {
	.name = "neap-master",
	.purpose = "Knows which client of a store holds which key, and which clients live. Serves metadata for transfer engines too.",
	.examples = "On one machine:\n"
	            "  neap-master\n"
	            "For other machines, with metadata for transfer engines:\n"
	            "  neap-master --rpc_address=10.0.0.1 --enable_http_metadata_server --http_metadata_server_host=10.0.0.1\n"
	            "Each flag can be given as a variable too: NEAP_MASTER_RPC_PORT=50051.\n",
	.flags = flags,
	.flag_count = sizeof flags / sizeof flags[0],
	.foreign = foreign,
	.foreign_count = sizeof foreign / sizeof foreign[0],
	.failure = "it stopped by itself",
	.environment = "NEAP_MASTER_",
};

/* --- flags ------------------------------------------------------------------------------------------------------ */

static uint32_t to_ms(double seconds)
{
	return (uint32_t)(seconds * 1e3 + 0.5);
}

static int check_flags(void)
{
	if (strcasecmp(given.deployment_mode, "P2P")) {
		app_error(&program, "--deployment_mode=%s is not possible here; allowed: P2P (elsewhere the master manages the clients' memory)",
		          given.deployment_mode);
		return APP_USAGE;
	}
	if (to_ms(given.client_ttl) < 1) {
		app_error(&program, "--client_ttl=%g is not valid; allowed: 0.001 to 86400 seconds", given.client_ttl);
		return APP_USAGE;
	}
	if (given.client_crashed_ttl > 0 && to_ms(given.client_crashed_ttl) < to_ms(given.client_ttl)) {
		app_error(&program, "--client_crashed_ttl=%g is not valid; allowed: %g (client_ttl) to 259200 seconds", given.client_crashed_ttl,
		          given.client_ttl);
		return APP_USAGE;
	}
	if (to_ms(given.announce_timeout) < 1) {
		app_error(&program, "--announce_timeout=%g is not valid; allowed: 0.001 to 86400 seconds", given.announce_timeout);
		return APP_USAGE;
	}
	if (given.metadata_value_max > given.metadata_bytes_max) {
		app_error(&program, "--http_metadata_value_max=%" PRIu64 " is not valid; allowed: 1024 to %" PRIu64 " (http_metadata_bytes_max)",
		          given.metadata_value_max, given.metadata_bytes_max);
		return APP_USAGE;
	}
	return -1;
}

/* A connection is a descriptor; many systems allow 1024 unless asked. */
static void raise_descriptors(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* --- opening ---------------------------------------------------------------------------------------------------- */

static void on_crashed(void *user, struct neap_key_client client)
{
	(void)user;
	if (master.rpc)
		neap_master_drop(master.rpc, client.instance);
}

static uint64_t wall_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static int open_directory(uint64_t epoch, char *why, size_t why_size)
{
	struct neap_local_directory_options options = {
		.keys_max = (uint32_t)given.keys_max,
		.replicas_max = (uint32_t)given.replicas_max,
		.key_length_max = (uint32_t)given.key_length_max,
		.clients_max = (uint32_t)given.clients_max,
		.segments_max = (uint32_t)given.segments_max,
		.max_client_per_key = given.max_client_per_key ? (uint32_t)given.max_client_per_key : UINT32_MAX,
		.client_ttl_ms = to_ms(given.client_ttl),
		.crashed_ttl_ms = to_ms(given.client_crashed_ttl),
		.announce_timeout_ms = to_ms(given.announce_timeout),
		.epoch = epoch,
		.first = given.first,
		.crashed = on_crashed,
	};
	why[0] = '\0';
	int error = neap_local_directory_create(&master.directory, master.host.reactor, &options, why, why_size);
	if (!error)
		error = neap_master_service_create(&master.service, master.host.reactor, neap_local_directory_face(master.directory), NULL);
	if (error && !why[0])
		snprintf(why, why_size, "cannot make a directory of %" PRIu64 " keys: %s; lower --keys_max", given.keys_max,
		         neap_error_text(error));
	return error;
}

static int open_rpc(uint64_t epoch, char *why, size_t why_size)
{
	struct neap_sockaddr address;
	char reached[64];
	const char *host = given.rpc_address;
	if (neap_sockaddr_from_numeric(host, (uint16_t)given.rpc_port, &address)) {
		char detail[256];
		if (app_reach(host, reached, sizeof reached, detail, sizeof detail) ||
		    neap_sockaddr_from_numeric(reached, (uint16_t)given.rpc_port, &address)) {
			snprintf(why, why_size, "--rpc_address=%s: %s", host, detail);
			return -1;
		}
	}
	struct neap_rpc_server_options options = {
		.epoch = epoch,
		.connections_max = (uint32_t)given.connections_max,
		.lanes_max = (uint32_t)given.connections_max,
		.leave_timeout_ns = LEAVE_SECONDS * UINT64_C(1000000000),
	};
	uint32_t count;
	int system_errno = 0;
	char detail[256] = "";
	const struct neap_rpc_handler *handlers = neap_master_service_handlers(&count);
	int error = neap_rpc_server_create(&master.rpc, master.host.reactor, &address, handlers, count, &options, master.service,
	                                   &system_errno, detail, sizeof detail);
	if (error)
		snprintf(why, why_size, "--rpc_address=%s --rpc_port=%" PRIu64 ": %s%s", host, given.rpc_port,
		         detail[0] ? detail : system_errno ? strerror(system_errno) : neap_error_text(error),
		         system_errno == EADDRINUSE      ? "; is another neap-master running? Choose another port, or 0 for a free one"
		         : system_errno == EADDRNOTAVAIL ? "; name an address of this machine (`ip addr` lists them)"
		                                         : "");
	return error;
}

static void serve_metadata(void *user, struct app_http_request *request)
{
	(void)user;
	master_metadata_serve(master.metadata, request);
}

/* The last three are for the metadata server alone. */
static void fill_routes(void)
{
	const struct app_http_route routes[MASTER_ROUTES] = {
		{"GET", "/metrics", master_serve_metrics, 0},
		{"GET", "/metrics/summary", master_serve_summary, 0},
		{"GET", "/health", master_serve_health, 0},
		{"GET", "/get_all_keys", master_serve_all_keys, 0},
		{"GET", "/get_key_count", master_serve_key_count, 0},
		{"GET", "/batch_query_keys", master_serve_query_keys, 0},
		{"GET", "/metadata", serve_metadata, 0},
		{"PUT", "/metadata", serve_metadata, (size_t)given.metadata_value_max},
		{"DELETE", "/metadata", serve_metadata, 0},
	};
	memcpy(master.routes, routes, sizeof routes);
}

static int open_http(char *why, size_t why_size)
{
	char detail[256];
	struct app_http_options options = {.address = given.metrics_host, .port = (uint16_t)given.metrics_port, .routes = master.routes,
	                                   .route_count = MASTER_ROUTES - 3, .user = &master,
	                                   .idle_seconds = (uint32_t)given.http_idle, .request_seconds = (uint32_t)given.http_request};
	fill_routes();
	if (given.metrics_port && app_http_open(&master.metrics_http, master.host.loop, &options, detail, sizeof detail)) {
		snprintf(why, why_size, "--metrics_port=%" PRIu64 " (0 does without): %s", given.metrics_port, detail);
		return -1;
	}
	if (!given.metadata)
		return 0;
	struct master_metadata_options bounds = {.entries_max = (uint32_t)given.metadata_entries_max,
	                                         .value_max = (size_t)given.metadata_value_max,
	                                         .bytes_max = (size_t)given.metadata_bytes_max};
	master.metadata = master_metadata_create(master.host.reactor, &bounds);
	options.address = given.metadata_host;
	options.port = (uint16_t)given.metadata_port;
	options.route_count = MASTER_ROUTES;
	options.connections_max = 1024; /* each node of a cluster keeps one for a while */
	options.bytes_max = 2 * (size_t)given.metadata_value_max + ((size_t)256 << 20);
	if (master.metadata && !app_http_open(&master.metadata_http, master.host.loop, &options, detail, sizeof detail))
		return 0;
	snprintf(why, why_size, "--http_metadata_server_port=%" PRIu64 ": %s", given.metadata_port, master.metadata ? detail : "out of memory");
	return -1;
}

/* --- life ------------------------------------------------------------------------------------------------------- */

static void url(char *text, size_t size, const char *what, const char *host, const struct app_http *http, const char *path)
{
	bool v6 = strchr(host, ':') != NULL;
	text[0] = '\0';
	if (http)
		snprintf(text, size, ", %s http://%s%s%s:%u%s", what, v6 ? "[" : "", host, v6 ? "]" : "", (unsigned)app_http_port(http), path);
}

static int announce(void)
{
	bool v6 = strchr(given.rpc_address, ':') != NULL;
	char name[320], line[321], metrics[400], metadata[400], why[512];
	snprintf(name, sizeof name, "%s%.255s%s:%u", v6 ? "[" : "", given.rpc_address, v6 ? "]" : "",
	         (unsigned)neap_rpc_server_port(master.rpc));
	snprintf(line, sizeof line, "%s\n", name);
	if (given.ready_file && app_file_write(given.ready_file, line, why, sizeof why)) {
		app_error(&program, "%s", why);
		return APP_START;
	}
	if (given.quiet)
		return -1;
	url(metrics, sizeof metrics, "metrics", given.metrics_host, master.metrics_http, "/metrics");
	url(metadata, sizeof metadata, "metadata", given.metadata_host, master.metadata_http, "/metadata");
	printf("neap-master: serving on %s%s%s\n", name, metrics, metadata);
	if (fflush(stdout)) {
		app_error(&program, "cannot write to standard output; --quiet does without");
		return APP_START;
	}
	return -1;
}

/* `user` is the handlers': the service. */
static void on_stopped(void *user)
{
	(void)user;
	master.stopped = true;
}

/* HTTP first: its questions use the directory. Then everybody on the RPC is told goodbye; those who do not listen get LEAVE_SECONDS. */
static void leave(void)
{
	app_http_close(master.metrics_http);
	app_http_close(master.metadata_http);
	master_metadata_destroy(master.metadata);
	if (master.rpc && !master.host.ended) {
		master.host.interrupted = false; /* a second signal ends the wait */
		neap_rpc_server_stop(master.rpc, on_stopped);
		app_host_wait(&master.host, &master.stopped, 2 * LEAVE_SECONDS);
	}
	neap_rpc_server_destroy(master.rpc);
	master.rpc = NULL;
	neap_master_service_destroy(master.service);
	neap_local_directory_destroy(master.directory);
	app_trace_stop(&master.trace);
	app_host_close(&master.host);
}

static int run(void)
{
	char why[640];
	uint64_t epoch = wall_us();
	if (open_directory(epoch, why, sizeof why) || open_rpc(epoch, why, sizeof why) || open_http(why, sizeof why)) {
		app_error(&program, "%s", why);
		return APP_START;
	}
	int result = app_stop_at(&program, &master.host);
	if (result >= 0)
		return result;
	app_trace_start(&master.trace, &master.host, given.trace_file);
	result = announce();
	if (result >= 0)
		return result;
	app_host_wait(&master.host, &master.host.ended, 0); /* until a signal */
	return master.host.ended ? APP_FAILED : APP_OK;
}

int main(int argc, char **argv)
{
	char why[512];
	int result = app_flags_parse(&program, argc, argv);
	if (result < 0)
		result = check_flags();
	if (result >= 0)
		return result;
	(void)signal(SIGPIPE, SIG_IGN);
	raise_descriptors();
	if (app_host_open(&master.host, &(struct app_host_options){.no_engine = true}, why, sizeof why)) {
		app_error(&program, "%s", why);
		return APP_START;
	}
	result = run();
	leave();
	return result;
}
