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

/* The peer's devices by name: a matrix has up to 65536 names, of a stranger's choice. */
struct remote_names {
	const struct neap_descriptor *descriptor;
	uint32_t count;
	uint8_t sorted[NEAP_DEVICES_MAX]; /* indices of devices; of those with one name the first alone, which is what readers mean */
};

/* Where the name is, or would have to be. */
static uint32_t find_name(const struct remote_names *names, const char *name, bool *found_p)
{
	uint32_t low = 0, high = names->count;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		int order = strcmp(name, names->descriptor->devices[names->sorted[middle]].name);
		if (order == 0) {
			*found_p = true;
			return middle;
		}
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	*found_p = false;
	return low;
}

static void sort_names(const struct neap_descriptor *descriptor, struct remote_names *names)
{
	names->descriptor = descriptor;
	names->count = 0;
	for (uint32_t i = 0; i < descriptor->device_count && i < NEAP_DEVICES_MAX; i++) {
		bool found;
		uint32_t at = find_name(names, descriptor->devices[i].name, &found);
		if (found)
			continue;
		memmove(names->sorted + at + 1, names->sorted + at, names->count - at);
		names->sorted[at] = (uint8_t)i;
		names->count++;
	}
}

static void add_remote(const struct remote_names *names, uint32_t device, struct neap_path_side *side)
{
	if (memchr(side->device, (int)device, side->count))
		return;
	side->names[side->count] = names->descriptor->devices[device].name;
	side->device[side->count++] = (uint8_t)device;
}

static void add_named(const struct remote_names *names, char *const *named, uint32_t count, struct neap_path_side *side)
{
	for (uint32_t i = 0; i < count && side->count < names->count; i++) {
		bool found;
		uint32_t at = find_name(names, named[i], &found);
		if (found)
			add_remote(names, names->sorted[at], side);
	}
}

static void add_all(const struct remote_names *names, struct neap_path_side *side)
{
	for (uint32_t i = 0; i < names->descriptor->device_count && i < NEAP_DEVICES_MAX; i++)
		if (memchr(names->sorted, (int)i, names->count))
			add_remote(names, i, side);
}

static void add_row(const struct remote_names *names, const struct neap_priority_row *row, struct neap_path_side *side)
{
	add_named(names, row->preferred, row->preferred_count, side);
	side->preferred = side->count;
	add_named(names, row->available, row->available_count, side);
}

void neap_path_remote(const struct neap_descriptor *descriptor, const char *location, struct neap_path_side *side)
{
	struct remote_names names;
	sort_names(descriptor, &names);
	side->count = side->preferred = 0;
	for (uint32_t i = 0; i < descriptor->priority_count && side->count == 0; i++)
		if (strcmp(descriptor->priority[i].location, location) == 0)
			add_row(&names, &descriptor->priority[i], side);
	if (side->count > 0)
		return;
	for (uint32_t i = 0; i < descriptor->priority_count && side->count < names.count; i++)
		add_row(&names, &descriptor->priority[i], side);
	if (side->count == 0) /* no matrix that says anything */
		add_all(&names, side);
	side->preferred = side->count;
}
