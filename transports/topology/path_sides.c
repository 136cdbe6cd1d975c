/* The two ends of a path: devices near a piece of memory, here and at the peer. */
#include "transports/topology/paths.h"
#include <stdio.h>
#include <string.h>

#define SEGMENTS "segments:"
#define DIGITS "0123456789"
#define NODES_MAX NEAP_LOCATION_MAX

/* --- where memory lies */

/* The nodes of "0,1,,3"; as Mooncake reads them, empty ones are passed over. 0: that is no such list. */
static uint32_t read_nodes(const char *list, uint32_t nodes[NODES_MAX])
{
	uint32_t count = 0;
	while (*list) {
		size_t digits = strspn(list, DIGITS);
		uint32_t node = 0;
		if (digits > 6 || (list[digits] && list[digits] != ','))
			return 0;
		for (size_t i = 0; i < digits; i++)
			node = node * 10 + (uint32_t)(list[i] - '0');
		if (digits && count == NODES_MAX)
			return 0;
		if (digits)
			nodes[count++] = node;
		list += digits + (list[digits] == ',');
	}
	return count;
}

void neap_location_at(const char *name, uint64_t offset, uint64_t length, char location[NEAP_TOPOLOGY_LOCATION_SIZE])
{
	uint32_t nodes[NODES_MAX];
	size_t prefix = strlen(SEGMENTS);
	memcpy(location, NEAP_ANY_LOCATION, sizeof NEAP_ANY_LOCATION);
	if (strncmp(name, SEGMENTS, prefix) != 0) {
		if (strnlen(name, NEAP_TOPOLOGY_LOCATION_SIZE) < NEAP_TOPOLOGY_LOCATION_SIZE)
			memcpy(location, name, strlen(name) + 1);
		return;
	}
	size_t digits = strspn(name + prefix, DIGITS);
	if (digits == 0 || name[prefix + digits] != ':')
		return;
	uint32_t count = read_nodes(name + prefix + digits + 1, nodes);
	uint64_t part = count ? length / count : 0;
	if (part == 0)
		return;
	uint64_t at = offset / part;
	(void)snprintf(location, NEAP_TOPOLOGY_LOCATION_SIZE, "cpu:%u", nodes[at < count ? at : count - 1]); /* the last one has the rest */
}

/* --- ours */

static void add_local(const struct neap_topology *topology, uint32_t device, struct neap_path_side *side)
{
	if (topology->devices[device].unusable)
		return;
	side->names[side->count] = topology->devices[device].name;
	side->device[side->count++] = (uint8_t)device;
}

static bool take_row(const struct neap_topology *topology, const char *location, struct neap_path_side *side)
{
	const struct neap_topology_row *row = neap_topology_row(topology, location);
	side->count = side->preferred = 0;
	for (uint32_t i = 0; row && i < row->count; i++) {
		add_local(topology, row->order[i], side);
		if (i < row->preferred)
			side->preferred = side->count;
	}
	return side->count > 0;
}

void neap_path_local(const struct neap_topology *topology, const char *location, int32_t numa_node, struct neap_path_side *side)
{
	char node[NEAP_TOPOLOGY_LOCATION_SIZE];
	(void)snprintf(node, sizeof node, "cpu:%d", numa_node);
	if (strcmp(location, NEAP_ANY_LOCATION) != 0 && take_row(topology, location, side))
		return;
	if ((numa_node >= 0 && take_row(topology, node, side)) || take_row(topology, NEAP_ANY_LOCATION, side))
		return;
	for (uint32_t i = 0; i < topology->device_count; i++)
		add_local(topology, i, side);
	side->preferred = side->count;
}

/* --- the peer's */

static void add_remote(const struct neap_descriptor *descriptor, uint32_t device, struct neap_path_side *side)
{
	if (memchr(side->device, (int)device, side->count))
		return;
	side->names[side->count] = descriptor->devices[device].name;
	side->device[side->count++] = (uint8_t)device;
}

static void add_named(const struct neap_descriptor *descriptor, char *const *names, uint32_t count, struct neap_path_side *side)
{
	uint32_t devices = descriptor->device_count < NEAP_DEVICES_MAX ? descriptor->device_count : NEAP_DEVICES_MAX;
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < devices; k++)
			if (strcmp(descriptor->devices[k].name, names[i]) == 0) {
				add_remote(descriptor, k, side);
				break; /* of two devices of one name readers mean the first */
			}
}

static void add_all(const struct neap_descriptor *descriptor, struct neap_path_side *side)
{
	for (uint32_t i = 0; i < descriptor->device_count && i < NEAP_DEVICES_MAX; i++)
		add_remote(descriptor, i, side);
}

static void add_row(const struct neap_descriptor *descriptor, const struct neap_priority_row *row, struct neap_path_side *side)
{
	add_named(descriptor, row->preferred, row->preferred_count, side);
	side->preferred = side->count;
	add_named(descriptor, row->available, row->available_count, side);
}

void neap_path_remote(const struct neap_descriptor *descriptor, const char *location, struct neap_path_side *side)
{
	side->count = side->preferred = 0;
	for (uint32_t i = 0; i < descriptor->priority_count; i++)
		if (strcmp(descriptor->priority[i].location, location) == 0)
			add_row(descriptor, &descriptor->priority[i], side);
	if (side->count > 0)
		return;
	for (uint32_t i = 0; i < descriptor->priority_count; i++)
		add_row(descriptor, &descriptor->priority[i], side);
	if (side->count == 0) /* no matrix that says anything */
		add_all(descriptor, side);
	side->preferred = side->count;
}
