#include "apps/common/serve.h"
#include "apps/common/memory.h"
#include "apps/common/reach.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char app_default_name[] = "127.0.0.1";

bool app_metadata_stores(const char *metadata_server)
{
	return strcmp(metadata_server, "P2PHANDSHAKE") != 0;
}

/* In a store local_server_name is the segment's name, as it stands, and may be no host at all; the default would be everybody's. */
static int find_address(const struct app_program *program, struct app_node *node, const char *name)
{
	char why[512];
	if (node->bind_address || !app_reach(name, node->reached, sizeof node->reached, why, sizeof why))
		return -1;
	node->reached[0] = 0;
	if (app_metadata_stores(node->metadata_server))
		return -1;
	app_error(program, "%s", why);
	return APP_START;
}

int app_node_options(const struct app_program *program, struct app_node *node, struct neap_engine_options *options)
{
	char why[512];
	if (neap_engine_options_from_environment(options, why, sizeof why)) {
		app_error(program, "%s", why);
		return APP_USAGE;
	}
	bool by_default = node->local_server_name == app_default_name;
	const char *name = by_default && options->local_name ? options->local_name : node->local_server_name; /* MC_USE_IPV6 */
	int result = find_address(program, node, name);
	if (result >= 0)
		return result;
	node->local_server_name = name;
	options->bind_address = node->bind_address ? node->bind_address : node->reached[0] ? node->reached : NULL;
	options->metadata = node->metadata_server;
	options->local_name = by_default && app_metadata_stores(node->metadata_server) ? NULL : name;
	options->protocol = node->protocol;
	if (*node->device_name)
		options->device_filter = node->device_name;
	options->handshake_port = (uint16_t)node->handshake_port;
	options->data_port = (uint16_t)node->data_port;
	return -1;
}

/* --- memory */

struct settling {
	bool told;
	int error;
	char why[512];
};

static void on_settled(void *user, int error, const char *why)
{
	struct settling *settling = user;
	settling->error = error;
	snprintf(settling->why, sizeof settling->why, "%s", why ? why : "");
	settling->told = true;
}

int app_register(const struct app_program *program, struct app_host *host, const struct app_node *node, void *memory, uint64_t bytes)
{
	static struct settling settling; /* a signal may come before it is told */
	const struct neap_memory range = {.address = memory, .length = bytes, .access = NEAP_OPEN};
	neap_region_id region;
	int error = neap_memory_register(host->engine, &range, 1, &region, settling.why, sizeof settling.why);
	settling.told = false;
	settling.error = NEAP_OK;
	if (!error)
		error = neap_memory_settled(host->engine, region, on_settled, &settling);
	if (error) {
		app_error(program, "cannot register the buffer: %s", *settling.why ? settling.why : neap_error_text(error));
		return APP_START;
	}
	if (!app_host_wait(host, &settling.told, 0))
		return APP_START;
	if (!settling.error || strcmp(node->protocol, "rdma") != 0)
		return -1;
	app_error(program, "--protocol=rdma: %s", settling.why);
	return APP_START;
}

/* --- publishing */

struct publication {
	bool told;
	int error;
	char why[512];
};

/* What can get well by itself is waited for. */
static void on_publication(void *user, int error, const char *why)
{
	struct publication *publication = user;
	publication->error = error;
	snprintf(publication->why, sizeof publication->why, "%s", why ? why : "");
	publication->told = !error || error == NEAP_ETAKEN;
}

int app_publish(const struct app_program *program, struct app_host *host, double seconds)
{
	static struct publication publication; /* the engine may tell more */
	publication = (struct publication){.error = NEAP_ETIMEDOUT};
	int error = neap_engine_publish_watch(host->engine, on_publication, &publication);
	if (error) {
		app_error(program, "%s", neap_error_text(error));
		return APP_START;
	}
	bool told = app_host_wait(host, &publication.told, seconds);
	if (!host->interrupted && told && !publication.error)
		return -1;
	if (host->interrupted)
		return APP_START;
	const char *why = publication.why[0] ? publication.why : "the segment is not published: the metadata server has not answered yet";
	if (told)
		app_error(program, "%s", why);
	else
		app_error(program, "%s; waited %g s for it (--publish_seconds, --metadata_server)", why, seconds);
	return APP_START;
}

int app_announce(const struct app_program *program, struct neap_engine *engine, const void *buffer, uint64_t size,
                 const char *ready_file)
{
	const char *name = neap_engine_name(engine);
	char line[600], why[512];
	snprintf(line, sizeof line, "%s\n", name);
	if (ready_file && app_file_write(ready_file, line, why, sizeof why)) {
		app_error(program, "%s", why);
		return APP_START;
	}
	printf("segment %s data_port %u buffer 0x%" PRIxPTR " size %" PRIu64 "\n", name, (unsigned)neap_engine_data_port(engine),
	       (uintptr_t)buffer, size);
	if (fflush(stdout)) {
		app_error(program, "cannot write to standard output; nobody would learn the segment's name");
		return APP_START;
	}
	return -1;
}
