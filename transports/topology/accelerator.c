/* Rows of accelerators: what is near a GPU by way of the PCI tree (te spec 6). */
#include "transports/topology/sysfs.h"
#include "transports/topology/topology.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* As the others measure it: the number of slashes in what is left of both paths behind the characters that they share. */
static uint32_t pci_distance(const char *a, const char *b)
{
	uint32_t distance = 0;
	while (*a && *a == *b)
		a++, b++;
	for (; *a; a++)
		distance += *a == '/';
	for (; *b; b++)
		distance += *b == '/';
	return distance;
}

/* Those on the node; when there are none, or it is not known, all. */
static uint64_t candidates(const struct neap_topology *topology, int32_t numa_node)
{
	uint64_t near = 0, all = 0;
	for (uint32_t i = 0; i < topology->device_count; i++) {
		const struct neap_topology_device *device = &topology->devices[i];
		if (device->unusable || !device->path[0])
			continue;
		all |= UINT64_C(1) << i;
		if (numa_node >= 0 && device->numa_node == numa_node)
			near |= UINT64_C(1) << i;
	}
	return near ? near : all;
}

static uint64_t nearest(const struct neap_topology *topology, const char *path, uint64_t among)
{
	uint32_t least = UINT32_MAX;
	uint64_t found = 0;
	for (uint32_t i = 0; i < topology->device_count; i++) {
		if (!(among >> i & 1))
			continue;
		uint32_t distance = pci_distance(topology->devices[i].path, path);
		if (distance < least) {
			least = distance;
			found = 0;
		}
		if (distance == least)
			found |= UINT64_C(1) << i;
	}
	return found;
}

static void fill_accelerator(const struct neap_topology *topology, struct neap_topology_row *row, uint64_t preferred)
{
	for (uint32_t i = 0; i < topology->device_count; i++)
		if (preferred >> i & 1)
			row->order[row->count++] = (uint8_t)i;
	row->preferred = row->count;
	for (uint32_t i = 0; i < topology->device_count; i++)
		if (!(preferred >> i & 1))
			row->order[row->count++] = (uint8_t)i;
}

static bool lower_bdf(const char *bdf, char lower[16])
{
	size_t length = strnlen(bdf, 16);
	if (length == 0 || length == 16 || strspn(bdf, "0123456789abcdefABCDEF:.") != length || strstr(bdf, ".."))
		return false;
	for (size_t i = 0; i <= length; i++)
		lower[i] = (char)tolower((unsigned char)bdf[i]);
	return true;
}

int neap_topology_add_accelerator(struct neap_topology *topology, const char *sysfs, const char *location, const char *bdf, char *why,
                                  size_t why_size)
{
	char below[64], path[NEAP_TOPOLOGY_PATH_SIZE], lower[16];
	int32_t numa_node = -1;
	size_t length = strnlen(location, NEAP_TOPOLOGY_LOCATION_SIZE);
	if (length == 0 || length == NEAP_TOPOLOGY_LOCATION_SIZE || neap_topology_row(topology, location) || !lower_bdf(bdf, lower)) {
		(void)snprintf(why, why_size,
		               "accelerator %.40s at %.40s: a location of 1 to %u bytes that has no row yet and a PCI address such as 0000:3b:00.0 "
		               "are needed", location, bdf, NEAP_TOPOLOGY_LOCATION_SIZE - 1);
		return NEAP_EINVAL;
	}
	(void)snprintf(below, sizeof below, "bus/pci/devices/%s", lower);
	if (!neap_sysfs_real(path, sizeof path, sysfs, below)) {
		(void)snprintf(why, why_size, "accelerator %s: there is no PCI device %s (%.128s/%s)", location, lower, sysfs, below);
		return NEAP_ENODEV;
	}
	(void)neap_sysfs_number(-1, NEAP_SYSFS_NODE_MAX, &numa_node, "%s/%s/numa_node", sysfs, below);
	struct neap_topology_row *row = neap_topology_add_row(topology, location);
	if (!row) {
		bool full = topology->row_count == NEAP_TOPOLOGY_ROWS_MAX;
		(void)snprintf(why, why_size, full ? "accelerator %s: there are %u locations already" : "accelerator %s: out of memory", location,
		               NEAP_TOPOLOGY_ROWS_MAX);
		return full ? NEAP_ELIMIT : NEAP_ENOMEM;
	}
	fill_accelerator(topology, row, nearest(topology, path, candidates(topology, numa_node)));
	return NEAP_OK;
}
