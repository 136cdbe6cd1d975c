/* The flags of the daemon, and what they become. */
#ifndef APPS_CLIENT_OPTIONS_H
#define APPS_CLIENT_OPTIONS_H

#include "apps/common/flags.h"
#include <neap/store.h>

/* Slabs as large as the buffer of local processes: a value that is moved lies in one. */
#define CLIENT_DEFAULT_TIER \
	"{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": \"1GB\", \"priority\": 100}]}"

struct client_options {
	const char *master, *deployment_mode, *tiers, *direction, *protocol, *device_names, *host, *bind_address, *metadata_server, *verify,
		*remote_weight, *local_write_waterline;
	uint64_t port, client_rpc_port, http_port, handshake_port, data_port;
	uint64_t lease_ms, scan_interval_ms, lock_shards, keys_max, route_cache_bytes, route_cache_ttl_ms, heartbeat_ms, deadline_ms;
	uint64_t buffer_bytes, drain_ms;
	bool http;

	struct neap_engine_options engine;
	struct neap_store_options store;
	char reached[64];
	char *tiers_text; /* of a file; to be freed */
};

/* -1 to go on, or an exit code after an explanation. */
int client_options_parse(struct client_options *options, int argc, char **argv);
void client_options_release(struct client_options *options);
/* For its messages. */
extern const struct app_program client_program;

/* A direction as people write it: "reverse", "FORWARD". False: it is neither. */
bool client_direction_parse(const char *text, enum neap_direction *direction_p);
/* Whose name, for engine options: resolves, blocks. 0, or -1 with a sentence. */
int client_reach(const char *host, char *bind_address, size_t size, char *why, size_t why_size);

#endif
