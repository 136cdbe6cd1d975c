/* Topologies as text. */
#include "transports/topology/topology.h"
#include <string.h>

static void put_names(const struct neap_topology *topology, const uint8_t *order, uint32_t count, struct neap_json_writer *writer)
{
	const char *comma = "";
	neap_json_put_text(writer, "[");
	for (uint32_t i = 0; i < count; i++) {
		const struct neap_topology_device *device = &topology->devices[order[i]];
		if (device->unusable)
			continue;
		neap_json_put_text(writer, comma);
		(void)neap_json_put_string(writer, device->name);
		comma = ", ";
	}
	neap_json_put_text(writer, "]");
}

void neap_topology_put_matrix(const struct neap_topology *topology, struct neap_json_writer *writer)
{
	neap_json_put_text(writer, "{");
	for (uint32_t i = 0; i < topology->row_count; i++) {
		const struct neap_topology_row *row = &topology->rows[i];
		neap_json_put_text(writer, i > 0 ? ",\n  " : "\n  ");
		(void)neap_json_put_string(writer, row->location);
		neap_json_put_text(writer, ": [");
		put_names(topology, row->order, row->preferred, writer);
		neap_json_put_text(writer, ", ");
		put_names(topology, row->order + row->preferred, row->count - row->preferred, writer);
		neap_json_put_text(writer, "]");
	}
	neap_json_put_text(writer, "\n}\n");
}

const char *neap_port_state_name(enum neap_port_state state)
{
	static const char *const names[] = {"unknown", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
	return (uint32_t)state < sizeof names / sizeof *names ? names[state] : names[0];
}
