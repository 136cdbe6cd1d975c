#include "apps/common/serve.h"
#include "apps/common/memory.h"
#include "apps/common/reach.h"
#include <inttypes.h>
#include <stdio.h>

const char app_default_name[] = "127.0.0.1";

int app_node_options(const struct app_program *program, struct app_node *node, struct neap_engine_options *options)
{
	char why[512];
	if (neap_engine_options_from_environment(options, why, sizeof why)) {
		app_error(program, "%s", why);
		return APP_USAGE;
	}
	if (node->local_server_name == app_default_name && options->local_name)
		node->local_server_name = options->local_name; /* MC_USE_IPV6 */
	if (!node->bind_address && app_reach(node->local_server_name, node->reached, sizeof node->reached, why, sizeof why)) {
		app_error(program, "%s", why);
		return APP_START;
	}
	options->bind_address = node->bind_address ? node->bind_address : node->reached[0] ? node->reached : NULL;
	options->metadata = node->metadata_server;
	options->local_name = node->local_server_name;
	options->handshake_port = (uint16_t)node->handshake_port;
	options->data_port = (uint16_t)node->data_port;
	return -1;
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
