/* What target modes share: one line that tells where the segment is, a ready file, and the flags of both roles that become engine
 * options. */
#ifndef APPS_COMMON_SERVE_H
#define APPS_COMMON_SERVE_H

#include "apps/common/flags.h"
#include "apps/common/host.h"
#include <neap/engine.h>

/* The flags that every program of the transfer engine has; names and meanings as in Mooncake's example and benchmark. */
struct app_node {
	const char *metadata_server, *local_server_name, *bind_address, *protocol, *device_name;
	char reached[64]; /* the address that local_server_name means here */
	uint64_t handshake_port, data_port;
	double publish_seconds;
};
extern const char app_default_name[]; /* 127.0.0.1 */
#define APP_NODE_DEFAULTS \
	{.metadata_server = "P2PHANDSHAKE", .local_server_name = app_default_name, .protocol = "tcp", .device_name = "", .publish_seconds = 30}
#define APP_NODE_FLAGS(node) \
	{"metadata_server", APP_FLAG_TEXT, &(node).metadata_server, NULL, 0, 0, \
	 "where segments are published: etcd://HOST:PORT,..., redis://HOST:PORT, http(s)://HOST:PORT/PATH; P2PHANDSHAKE: by asking peers"}, \
	{"local_server_name", APP_FLAG_TEXT, &(node).local_server_name, NULL, 0, 0, \
	 "the host (name or address) that peers reach this process at; with a metadata server its segment's name, as it stands"}, \
	{"publish_seconds", APP_FLAG_SECONDS, &(node).publish_seconds, NULL, 0, 86400, \
	 "how long to wait for the metadata server at the start; 0: for ever"}, \
	{"bind_address", APP_FLAG_TEXT, &(node).bind_address, NULL, 0, 0, \
	 "where to listen; not given: at the address that local_server_name means"}, \
	{"protocol", APP_FLAG_CHOICE, &(node).protocol, "tcp|rdma|auto", 0, 0, \
	 "the transport; rdma: over RDMA devices where both sides have them, and over tcp otherwise; auto: without a word when there " \
	 "are none"}, \
	{"device_name", APP_FLAG_TEXT, &(node).device_name, NULL, 0, 0, \
	 "a comma list of the RDMA devices that may be used; not given: MC_TE_FILTERS, or all"}, \
	{"handshake_port", APP_FLAG_NUMBER, &(node).handshake_port, NULL, 0, 65535, "port of the handshake service; 0: a free one"}, \
	{"data_port", APP_FLAG_NUMBER, &(node).data_port, NULL, 0, 65535, "port of the data service; 0: a free one"}

/* Engine options from the MC_* variables and the flags. -1 to go on, or an exit code after an explanation. */
int app_node_options(const struct app_program *program, struct app_node *node, struct neap_engine_options *options);

/* Registers memory that any peer may reach, and waits until the RDMA devices have it, where there are some. What they refuse goes over TCP,
 * but for --protocol=rdma: that was asked for. An exit code after an explanation, or -1. In any case it stays mapped until the host is
 * closed. */
int app_register(const struct app_program *program, struct app_host *host, const struct app_node *node, void *memory, uint64_t bytes);

/* Something else than P2PHANDSHAKE. */
bool app_metadata_stores(const char *metadata_server);

/* Waits until the segment is published, at most `seconds` (0: for ever). An exit code after an explanation, or -1. */
int app_publish(const struct app_program *program, struct app_host *host, double seconds);

/* Prints `segment NAME data_port N buffer ADDRESS size BYTES` and writes the name to `ready_file` (may be NULL). An exit code, or
 * -1. */
int app_announce(const struct app_program *program, struct neap_engine *engine, const void *buffer, uint64_t size,
                 const char *ready_file);

#endif
