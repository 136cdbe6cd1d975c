#include "apps/client/options.h"
#include "apps/common/reach.h"
#include "reactor/address.h"
#include "store/tier/config.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIERS_FILE_MAX (1u << 20)

/* The table of flags needs places whose addresses are constant; a process parses once. */
static struct client_options o = {
	.master = "127.0.0.1:50051",
	.deployment_mode = "P2P",
	.direction = "reverse",
	.protocol = "tcp",
	.device_names = "",
	.host = "127.0.0.1",
	.metadata_server = "P2PHANDSHAKE",
	.verify = "none",
	.remote_weight = "0.5",
	.local_write_waterline = "0.5",
	.port = 50052,
	.client_rpc_port = 12345,
	.http_port = 9003,
	.lease_ms = 5000,
	.scan_interval_ms = 1000,
	.lock_shards = 1024,
	.keys_max = UINT64_C(1) << 20,
	.route_cache_bytes = UINT64_C(32) << 20,
	.route_cache_ttl_ms = 60000,
	.heartbeat_ms = 1000,
	.deadline_ms = 30000,
	.buffer_bytes = UINT64_C(64) << 20,
	.drain_ms = 10000,
	.http = true,
};

#define LEASE "how long a reservation or a pin of another process lasts, in ms; 0: 5000"
static const struct app_flag flags[] = {
	{"master_server_address", APP_FLAG_TEXT, &o.master, NULL, 0, 0,
	 "HOST:PORT of neap-master; none: this process is a cluster of its own"},
	{"port", APP_FLAG_NUMBER, &o.port, NULL, 0, 65535, "of 127.0.0.1, for local processes and the command line; 0: a free one"},
	{"client_rpc_port", APP_FLAG_NUMBER, &o.client_rpc_port, NULL, 0, 65535, "where other clients call this one; 0: a free one"},
	{"http_port", APP_FLAG_NUMBER, &o.http_port, NULL, 0, 65535, "of 127.0.0.1, for metrics and health; 0: a free one"},
	{"enable_http_server", APP_FLAG_SWITCH, &o.http, NULL, 0, 0, "false: no HTTP"},
	{"tiered_backend_config", APP_FLAG_TEXT, &o.tiers, NULL, 0, 0,
	 "tiers: a file, or JSON that begins with {; none: holds no values. Not given: a DRAM tier of 1 GiB"},
	{"p2p_transfer_direction_mode", APP_FLAG_TEXT, &o.direction, NULL, 0, 0,
	 "reverse: owners move the bytes of our puts and gets; forward: we do"},
	{"p2p_key_lease_duration_ms", APP_FLAG_NUMBER, &o.lease_ms, NULL, 0, 3600000, LEASE},
	{"p2p_key_lease_scan_interval_ms", APP_FLAG_NUMBER, &o.scan_interval_ms, NULL, 0, 60000,
	 "how often expired ones are looked for; 0: 1000"},
	{"host", APP_FLAG_TEXT, &o.host, NULL, 0, 0, "name or address of this machine that other clients use"},
	{"bind_address", APP_FLAG_TEXT, &o.bind_address, NULL, 0, 0,
	 "where to listen for them; not given: at the address that host means"},
	{"protocol", APP_FLAG_TEXT, &o.protocol, NULL, 0, 0,
	 "the transport of values: tcp; rdma: over RDMA devices where both sides have them; auto: without a word when there are none"},
	{"device_names", APP_FLAG_TEXT, &o.device_names, NULL, 0, 0,
	 "a comma list of the RDMA devices that may be used; not given: MC_TE_FILTERS, or all; not used with tcp"},
	{"metadata_server", APP_FLAG_TEXT, &o.metadata_server, NULL, 0, 0,
	 "where segments are published: etcd://HOST:PORT,..., redis://HOST:PORT, http(s)://HOST:PORT/PATH; P2PHANDSHAKE: by asking peers"},
	{"handshake_port", APP_FLAG_NUMBER, &o.handshake_port, NULL, 0, 65535, "of the transfer engine; 0: a free one"},
	{"data_port", APP_FLAG_NUMBER, &o.data_port, NULL, 0, 65535, "of the transfer engine; 0: a free one"},
	{"deployment_mode", APP_FLAG_TEXT, &o.deployment_mode, NULL, 0, 0, "P2P is the only one"},
	{"verify", APP_FLAG_CHOICE, &o.verify, "none|crc32c", 0, 0,
	 "crc32c: a sum is kept with every value, and compared at commits and reads"},
	{"lock_shard_count", APP_FLAG_NUMBER, &o.lock_shards, NULL, 1, 65536,
	 "tables of keys, a power of two; also MOONCAKE_DM_LOCK_SHARD_COUNT"},
	{"keys_max", APP_FLAG_NUMBER, &o.keys_max, NULL, 1, UINT64_C(1) << 30, "values held here"},
	{"remote_weight", APP_FLAG_TEXT, &o.remote_weight, NULL, 0, 0, "0 to 1, for new values: 0: all stay here; 1: all go to others"},
	{"local_write_waterline", APP_FLAG_TEXT, &o.local_write_waterline, NULL, 0, 0,
	 "0 to 1: below this use of our own tiers new values stay here"},
	{"route_cache_max_memory", APP_FLAG_SIZE, &o.route_cache_bytes, NULL, 65536, UINT64_C(1) << 40, "for where values lie"},
	{"route_cache_ttl_ms", APP_FLAG_NUMBER, &o.route_cache_ttl_ms, NULL, 1, 86400000, "how long that is believed"},
	{"heartbeat_ms", APP_FLAG_NUMBER, &o.heartbeat_ms, NULL, 10, 60000, "how often the master hears of us"},
	{"operation_deadline_ms", APP_FLAG_NUMBER, &o.deadline_ms, NULL, 10, 3600000, "of a put or get that names none"},
	{"local_buffer_size", APP_FLAG_SIZE, &o.buffer_bytes, NULL, 1u << 20, UINT64_C(4) << 30,
	 "memory that values of local processes pass through: the largest value, and all that is under way"},
	{"drain_timeout_ms", APP_FLAG_NUMBER, &o.drain_ms, NULL, 0, 600000, "after SIGTERM, for what others have begun"},
};
/* Flags of Mooncake's client that mean nothing here. */
#define BY_ADDRESS "this build finds its master by --master_server_address=HOST:PORT alone"
static const struct app_foreign_flag foreign[] = {
	{"threads", false, NULL},
	{"rpc_thread_num", false, NULL},
	{"async_sender_thread_count", false, NULL},
	{"async_max_batch_size", false, NULL},
	{"async_route_queue_size", false, NULL},
	{"p2p_local_transfer_mode", false, NULL},
	{"local_memcpy_async_worker_num", false, NULL},
	{"enable_client_metric_collection", true, NULL},
	{"metric_report_interval_seconds", false, NULL},
	{"heartbeat_rpc_port", false, NULL},
	{"global_segment_size", false, "memory is given by tiers: --tiered_backend_config"},
	{"enable_offload", true, "what a STORAGE tier in --tiered_backend_config does"},
	{"runtime_config", false, "placement is set by --remote_weight and --local_write_waterline"},
	{"redis_cluster_id", false, BY_ADDRESS},
	{"redis_username", false, BY_ADDRESS},
	{"redis_password", false, BY_ADDRESS},
	{"redis_db_index", false, BY_ADDRESS},
	{"redis_master_view_ttl_sec", false, BY_ADDRESS},
	{"redis_heartbeat_interval_sec", false, BY_ADDRESS},
};

const struct app_program client_program = {
	.name = "neap-client",
	.purpose = "Holds values for a cluster, and lets processes of this machine put and get values wherever they lie.\n"
			   "With a command it asks one that runs: put, get, rm, exists, ls, stat, health (`neap-client put --help`).\n"
			   "`neap-client replay` plays a trace, `neap-client topology` shows the RDMA devices of this machine.",
	.examples = "A cluster on one machine, in a terminal each (--first: no values can be anywhere yet):\n"
				"  neap-master --first\n"
				"  neap-client --http_port 9004\n"
				"  neap-client --http_port 9005 --port 50053 --client_rpc_port 12346\n"
				"  echo hello | neap-client put greeting\n"
				"  neap-client get greeting --port 50053\n"
				"Each flag can be given as a variable too: NEAP_CLIENT_PORT=50053.\n",
	.flags = flags,
	.flag_count = sizeof flags / sizeof flags[0],
	.foreign = foreign,
	.foreign_count = sizeof foreign / sizeof foreign[0],
	.usage = "[--flag=value ...] | neap-client COMMAND ...",
	.environment = "NEAP_CLIENT_",
	.exit_status = "0 ended by a signal, 1 a wait for others ended early, 2 a wrong flag or variable, 3 could not start",
};

/* --- checks ----------------------------------------------------------------------------------------------------------------------- */

static int wrong(const char *flag, const char *value, const char *allowed)
{
	app_error(&client_program, "--%s=%s is not valid; allowed: %s", flag, value, allowed);
	return APP_USAGE;
}

bool client_direction_parse(const char *text, enum neap_direction *direction_p)
{
	bool reverse = !strcasecmp(text, "reverse");
	*direction_p = reverse ? NEAP_REVERSE : NEAP_FORWARD;
	return reverse || !strcasecmp(text, "forward");
}

static bool share_parse(const char *text, double *share_p)
{
	char *end;
	errno = 0;
	*share_p = strtod(text, &end);
	return *text && !*end && !errno && *share_p >= 0 && *share_p <= 1;
}

static bool is_alone(void)
{
	return !*o.master || !strcasecmp(o.master, "none");
}

static int check_modes(void)
{
	if (!strcasecmp(o.deployment_mode, "Centralization")) {
		app_error(&client_program, "--deployment_mode=%s: neap-client has P2P alone, where each client owns what it holds",
		          o.deployment_mode);
		return APP_USAGE;
	}
	if (strcasecmp(o.deployment_mode, "P2P"))
		return wrong("deployment_mode", o.deployment_mode, "P2P");
	if (strcasecmp(o.protocol, "tcp") && strcasecmp(o.protocol, "rdma") && strcasecmp(o.protocol, "auto"))
		return wrong("protocol", o.protocol, "tcp, rdma, auto");
	if (*o.device_names && !strcasecmp(o.protocol, "tcp"))
		app_error(&client_program, "warning: --device_names=%s is ignored: tcp has no devices", o.device_names);
	if (!client_direction_parse(o.direction, &o.store.direction))
		return wrong("p2p_transfer_direction_mode", o.direction, "reverse, forward");
	if (o.lock_shards & (o.lock_shards - 1)) {
		char value[24];
		snprintf(value, sizeof value, "%llu", (unsigned long long)o.lock_shards);
		return wrong("lock_shard_count", value, "a power of two, 1 to 65536");
	}
	if (strstr(o.master, "://")) {
		app_error(&client_program, "--master_server_address=%s: this build finds its master by HOST:PORT alone", o.master);
		return APP_USAGE;
	}
	char why[160];
	struct neap_host_port master;
	if (!is_alone() && (neap_host_port_parse(o.master, 0, &master, why, sizeof why) || !master.has_port))
		return wrong("master_server_address", o.master, "HOST:PORT, as neap-master says when it starts, or none");
	return -1;
}

static int check_numbers(void)
{
	struct neap_store_placement *placement = &o.store.placement;
	if (!share_parse(o.remote_weight, &placement->remote_weight))
		return wrong("remote_weight", o.remote_weight, "0 to 1");
	if (!share_parse(o.local_write_waterline, &placement->local_write_waterline))
		return wrong("local_write_waterline", o.local_write_waterline, "0 to 1");
	placement->set = true;
	if (o.lease_ms && o.lease_ms < 100) {
		char value[24];
		snprintf(value, sizeof value, "%llu", (unsigned long long)o.lease_ms);
		return wrong("p2p_key_lease_duration_ms", value, "0 (5000), 100 to 3600000");
	}
	uint64_t ports[] = {o.port, o.client_rpc_port, o.http ? o.http_port : 0, o.handshake_port, o.data_port};
	static const char *const names[] = {"port", "client_rpc_port", "http_port", "handshake_port", "data_port"};
	for (size_t i = 0; i < 5; i++)
		for (size_t k = 0; k < i; k++)
			if (ports[i] && ports[i] == ports[k]) {
				app_error(&client_program, "--%s and --%s are both %llu; a port serves one of them", names[k], names[i],
				          (unsigned long long)ports[i]);
				return APP_USAGE;
			}
	return -1;
}

/* MOONCAKE_DM_LOCK_SHARD_COUNT: below NEAP_CLIENT_LOCK_SHARD_COUNT and the flag. */
static int shards_from_environment(void)
{
	const char *text = getenv("MOONCAKE_DM_LOCK_SHARD_COUNT");
	char *end;
	if (!text || !*text)
		return -1;
	unsigned long long value = strtoull(text, &end, 10);
	if (*end || *text == '-' || !value || value > 65536 || (value & (value - 1))) {
		app_error(&client_program, "MOONCAKE_DM_LOCK_SHARD_COUNT=%s is not valid; allowed: a power of two, 1 to 65536", text);
		return APP_USAGE;
	}
	o.lock_shards = value;
	return -1;
}

/* --- tiers -------------------------------------------------------------------------------------------------------------------------- */

static int read_tiers(const char *path)
{
	FILE *file = fopen(path, "re");
	if (!file) {
		app_error(&client_program,
		          "--tiered_backend_config=%s: %s; give a file, JSON text that begins with {, or `none` to hold no values", path,
		          strerror(errno));
		return APP_USAGE;
	}
	o.tiers_text = malloc(TIERS_FILE_MAX + 1);
	size_t length = o.tiers_text ? fread(o.tiers_text, 1, TIERS_FILE_MAX + 1, file) : 0;
	bool bad = !o.tiers_text || ferror(file);
	fclose(file);
	if (bad || !length || length > TIERS_FILE_MAX) {
		app_error(&client_program, "--tiered_backend_config=%s: the file %s", path,
		          bad ? "cannot be read" : length ? "is longer than 1 MiB" : "is empty");
		return APP_USAGE;
	}
	o.tiers_text[length] = 0;
	o.store.tiers = o.tiers_text;
	return -1;
}

static int choose_tiers(void)
{
	if (!o.tiers || !*o.tiers)
		o.store.tiers = CLIENT_DEFAULT_TIER;
	else if (!strcasecmp(o.tiers, "none"))
		o.store.tiers = NULL;
	else if (neap_tier_config_is_inline(o.tiers))
		o.store.tiers = o.tiers;
	else
		return read_tiers(o.tiers);
	return -1;
}

/* --- what they become --------------------------------------------------------------------------------------------------------------- */

int client_reach(const char *host, char *bind_address, size_t size, char *why, size_t why_size)
{
	static const char said[] = "--local_server_name"; /* what other programs call it */
	if (!strcmp(host, "0.0.0.0") || !strcmp(host, "::")) {
		snprintf(why, why_size, "--host=%s: nobody can connect to that; name an address of this machine, and say --bind_address=%s to "
		                        "listen everywhere", host, host);
		return -1;
	}
	char reason[512];
	int error = app_reach(host, bind_address, size, reason, sizeof reason);
	if (error)
		snprintf(why, why_size, "%s%s", strncmp(reason, said, sizeof said - 1) ? "" : "--host",
		         strncmp(reason, said, sizeof said - 1) ? reason : reason + sizeof said - 1);
	return error;
}

static int set_engine(void)
{
	char why[600];
	if (neap_engine_options_from_environment(&o.engine, why, sizeof why)) {
		app_error(&client_program, "%s", why);
		return APP_USAGE;
	}
	if (!o.bind_address && client_reach(o.host, o.reached, sizeof o.reached, why, sizeof why)) {
		app_error(&client_program, "%s", why);
		return APP_START;
	}
	o.engine.bind_address = o.bind_address ? o.bind_address : o.reached[0] ? o.reached : NULL;
	o.engine.metadata = o.metadata_server;
	o.engine.protocol = !strcasecmp(o.protocol, "rdma") ? "rdma" : !strcasecmp(o.protocol, "auto") ? "auto" : "tcp";
	o.engine.device_filter = *o.device_names ? o.device_names : o.engine.device_filter;
	if (strcmp(o.metadata_server, "P2PHANDSHAKE") == 0)
		o.engine.local_name = o.host;
	else /* the name in the store must be this client's alone: host and port */
		o.engine.advertised_host = o.engine.advertised_host ? o.engine.advertised_host : o.host;
	o.engine.handshake_port = (uint16_t)o.handshake_port;
	o.engine.data_port = (uint16_t)o.data_port;
	return -1;
}

static void set_store(void)
{
	struct neap_store_options *store = &o.store;
	store->master = is_alone() ? NULL : o.master;
	store->host = o.host;
	store->bind_address = o.engine.bind_address;
	store->rpc_port = (uint16_t)o.client_rpc_port;
	store->lease_ms = o.lease_ms;
	store->scan_interval_ms = o.scan_interval_ms;
	store->lock_shards = (uint32_t)o.lock_shards;
	store->keys_max = o.keys_max;
	store->verify = !strcmp(o.verify, "crc32c");
	store->deadline_ms = o.deadline_ms;
	store->route_cache_bytes = o.route_cache_bytes;
	store->route_cache_ttl_ms = o.route_cache_ttl_ms;
	store->heartbeat_ms = (uint32_t)o.heartbeat_ms;
}

int client_options_parse(struct client_options *options, int argc, char **argv)
{
	int result = shards_from_environment();
	if (result < 0)
		result = app_flags_parse(&client_program, argc, argv);
	if (result < 0)
		result = check_modes();
	if (result < 0)
		result = check_numbers();
	if (result < 0)
		result = choose_tiers();
	if (result < 0)
		result = set_engine();
	if (result < 0)
		set_store();
	*options = o;
	return result;
}

void client_options_release(struct client_options *options)
{
	free(options->tiers_text);
}
