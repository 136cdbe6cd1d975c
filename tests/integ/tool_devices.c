/* transfer_tool: commands about RDMA devices. */
#include "tests/integ/tool.h"
#include "transports/engine_state.h"
#include "transports/rdma/rdma.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LINE 8192

/* devices: each with its state, and what goes over them. */
static void devices(struct tool *tool)
{
	char list[LINE] = "";
	size_t length = 0;
	struct neap_device_info info;
	struct neap_rdma_stats stats = {0};
	for (uint32_t i = 0; neap_engine_device(tool->engine, i, &info) == NEAP_OK && length < sizeof list - 1024; i++)
		length += (size_t)snprintf(list + length, sizeof list - length,
		                           "%s{\"name\":%s,\"usable\":%s,\"why\":%s,\"address\":%s,\"bytes\":%" PRIu64 ",\"under_way\":%" PRIu64 "}",
		                           i ? "," : "", tool_quote(info.name), info.usable ? "true" : "false", tool_quote(info.why),
		                           tool_quote(info.address), info.bytes_moved, info.bytes_under_way);
	int error = neap_engine_rdma_stats(tool->engine, &stats);
	tool_event("{\"event\":\"devices\",\"error\":%d,\"devices\":[%s],\"sends\":%" PRIu64 ",\"repeats\":%" PRIu64
	           ",\"rails_paused\":%" PRIu64 ",\"probes\":%" PRIu64 ",\"endpoints\":%u,\"rails\":%u,\"rails_open\":%u}",
	           error, list, stats.sends, stats.repeats, stats.rails_paused, stats.probes, stats.endpoints, stats.rails, stats.rails_open);
}

static void on_settled(void *user, int error, const char *why)
{
	const struct tool_buffer *buffer = user;
	tool_event("{\"event\":\"settled\",\"name\":%s,\"error\":%d,\"why\":%s}", tool_quote(buffer->name), error,
	           tool_quote(error ? why : ""));
}

/* settle NAME: when the buffer is on the devices, or cannot be. */
static void settle(struct tool *tool, const char *name)
{
	struct tool_buffer *buffer = tool_buffer_find(tool, name);
	int error = buffer ? neap_memory_settled(tool->engine, buffer->region, on_settled, buffer) : NEAP_ESTALE;
	if (error)
		tool_event("{\"event\":\"settled\",\"name\":%s,\"error\":%d,\"why\":%s}", tool_quote(name), error,
		           tool_quote(neap_error_text(error)));
}

bool tool_devices_command(struct tool *tool, char **words, int count)
{
	if (!strcmp(words[0], "devices"))
		devices(tool);
	else if (!strcmp(words[0], "settle") && count == 2)
		settle(tool, words[1]);
	else if (!strcmp(words[0], "drop_endpoints")) {
		if (neap_engine_rdma_stats(tool->engine, &(struct neap_rdma_stats){0}) == NEAP_OK)
			neap_rdma_transport_retire_endpoints(tool->engine->remote);
		tool_event("{\"event\":\"drop_endpoints\"}");
	} else
		return false;
	return true;
}
