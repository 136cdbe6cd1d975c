/* Topologies from sysfs (te spec 6). Devices are kept in the order of their names, which is the same at each start; the kernel's order
 * is the one in which drivers came up. */
#include "transports/topology/sysfs.h"
#include "transports/topology/topology.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILTERED "not named by the device filter"

#define LISTED_MAX 1024u /* devices by name, of which NEAP_DEVICES_MAX are kept */

typedef char sysfs_name[NEAP_SYSFS_NAME_SIZE];

/* --- one device */

/* "4: ACTIVE" */
static enum neap_port_state read_status(const char *sysfs, const char *device, const char *port)
{
	char text[32];
	if (!neap_sysfs_text(text, sizeof text, "%s/class/infiniband/%s/ports/%s/state", sysfs, device, port))
		return NEAP_PORT_UNKNOWN;
	return text[0] >= '1' && text[0] <= '5' && text[1] == ':' ? (enum neap_port_state)(text[0] - '0') : NEAP_PORT_UNKNOWN;
}

/* The interface of the port's first GID that has one. InfiniBand's have none. */
static void read_netdev(const char *sysfs, const char *device, const char *port, char netdev[NEAP_TOPOLOGY_NETDEV_SIZE])
{
	char path[PATH_MAX];
	sysfs_name indices[16];
	int length = snprintf(path, sizeof path, "%s/class/infiniband/%s/ports/%s/gid_attrs/ndevs", sysfs, device, port);
	int32_t count = length > 0 && (size_t)length < sizeof path ? neap_sysfs_list(path, "", indices, 16) : -1;
	netdev[0] = '\0';
	for (int32_t i = 0; i < count && i < 16 && !netdev[0]; i++)
		(void)neap_sysfs_text(netdev, NEAP_TOPOLOGY_NETDEV_SIZE, "%s/%s", path, indices[i]);
}

static void read_port(const char *sysfs, struct neap_topology_device *device, const char *name, uint32_t number)
{
	char layer[32];
	struct neap_topology_port *port = &device->ports[device->port_count++];
	port->number = number;
	port->status = read_status(sysfs, device->name, name);
	port->ethernet = neap_sysfs_text(layer, sizeof layer, "%s/class/infiniband/%s/ports/%s/link_layer", sysfs, device->name, name) &&
	                 strcmp(layer, "Ethernet") == 0;
	read_netdev(sysfs, device->name, name, port->netdev);
}

static void read_ports(struct neap_topology *topology, const char *sysfs, struct neap_topology_device *device)
{
	char path[PATH_MAX];
	sysfs_name ports[NEAP_TOPOLOGY_PORTS_MAX];
	uint32_t number;
	int length = snprintf(path, sizeof path, "%s/class/infiniband/%s/ports", sysfs, device->name);
	int32_t count = length > 0 && (size_t)length < sizeof path ? neap_sysfs_list(path, "", ports, NEAP_TOPOLOGY_PORTS_MAX) : -1;
	if (count > (int32_t)NEAP_TOPOLOGY_PORTS_MAX)
		neap_topology_warn(topology, "%s has %d ports; the first %u are looked at", device->name, count, NEAP_TOPOLOGY_PORTS_MAX);
	for (int32_t i = 0; i < count && i < (int32_t)NEAP_TOPOLOGY_PORTS_MAX; i++)
		if (neap_sysfs_digits(ports[i], &number) && number >= 1 && number <= 255)
			read_port(sysfs, device, ports[i], number);
}

static void read_place(struct neap_topology *topology, const char *sysfs, struct neap_topology_device *device)
{
	char below[sizeof "class/infiniband//device" + NEAP_TOPOLOGY_NAME_SIZE];
	(void)snprintf(below, sizeof below, "class/infiniband/%s/device", device->name);
	if (neap_sysfs_real(device->path, sizeof device->path, sysfs, below) && strncmp(device->path, "/devices/", 9) == 0) {
		const char *last = strrchr(device->path, '/') + 1;
		if (strlen(last) < sizeof device->pci)
			memcpy(device->pci, last, strlen(last) + 1);
	} else {
		device->path[0] = '\0'; /* in a copy without its links it is nowhere */
	}
	if (neap_sysfs_number(-1, NEAP_SYSFS_NODE_MAX, &device->numa_node, "%s/%s/numa_node", sysfs, below) == NEAP_SYSFS_GARBAGE)
		neap_topology_warn(topology, "%s: numa_node is not a number from -1 to %d; it counts as near no memory (%s/%s/numa_node)",
		                   device->name, NEAP_SYSFS_NODE_MAX, sysfs, below);
}

static bool has_active_port(const struct neap_topology_device *device)
{
	for (uint32_t i = 0; i < device->port_count; i++)
		if (device->ports[i].status == NEAP_PORT_ACTIVE)
			return true;
	return false;
}

/* --- the filter */

/* The next word of a comma list, blanks around it left out; false at the end. *list_p goes behind it. */
static bool next_word(const char **list_p, const char **word_p, size_t *length_p)
{
	const char *at = *list_p + strspn(*list_p, ", \t");
	size_t length = strcspn(at, ",");
	*list_p = at + length;
	while (length > 0 && (at[length - 1] == ' ' || at[length - 1] == '\t'))
		length--;
	*word_p = at;
	*length_p = length;
	return length > 0;
}

static bool is_word(const char *name, const char *word, size_t length)
{
	return strlen(name) == length && memcmp(name, word, length) == 0;
}

static bool passes(const char *filter, const char *name)
{
	const char *word;
	size_t length;
	while (next_word(&filter, &word, &length))
		if (is_word(name, word, length))
			return true;
	return false;
}

/* A name in the filter that is no device is a typing error more often than not. */
static void warn_of_strangers(struct neap_topology *topology, const char *filter)
{
	const char *word;
	size_t length;
	while (next_word(&filter, &word, &length)) {
		char shown[NEAP_TOPOLOGY_NAME_SIZE];
		bool found = false;
		for (uint32_t i = 0; i < topology->device_count && !found; i++)
			found = is_word(topology->devices[i].name, word, length);
		if (!found)
			neap_topology_warn(topology, "the device filter names %s, which this machine does not have",
			                   neap_json_printable(word, length, shown, sizeof shown));
	}
}

static bool has_words(const char *filter)
{
	return filter && filter[strspn(filter, ", \t")];
}

/* --- all of them */

static void read_device(struct neap_topology *topology, const char *sysfs, const char *name, bool filtered)
{
	int at = neap_topology_add_device(topology, name);
	if (at < 0)
		return;
	struct neap_topology_device *device = &topology->devices[at];
	read_place(topology, sysfs, device);
	read_ports(topology, sysfs, device);
	device->unusable = filtered ? FILTERED : has_active_port(device) ? NULL : NEAP_TOPOLOGY_NO_PORT;
}

/* Those that the filter names come first: a host with many virtual functions has more devices than there are places. */
static bool read_devices(struct neap_topology *topology, const char *sysfs, const char *filter)
{
	char path[PATH_MAX];
	sysfs_name *names = malloc(LISTED_MAX * sizeof *names);
	if (!names)
		return false;
	(void)snprintf(path, sizeof path, "%s/class/infiniband", sysfs);
	int32_t count = neap_sysfs_list(path, "", names, LISTED_MAX), listed = count < (int32_t)LISTED_MAX ? count : (int32_t)LISTED_MAX;
	bool all = !has_words(filter);
	for (int32_t i = 0; i < listed; i++)
		if (all || passes(filter, names[i]))
			read_device(topology, sysfs, names[i], false);
	for (int32_t i = 0; i < listed; i++)
		if (!all && !passes(filter, names[i]))
			read_device(topology, sysfs, names[i], true);
	if (count > (int32_t)NEAP_DEVICES_MAX)
		neap_topology_warn(topology, "there are %d RDMA devices; %u are looked at, the first by name%s", count, NEAP_DEVICES_MAX,
		                   all ? " (a device filter can choose others)" : ", those of the device filter before others");
	if (!all)
		warn_of_strangers(topology, filter);
	free(names);
	return true;
}

static bool add_cpu_row(struct neap_topology *topology, uint32_t node)
{
	char location[NEAP_TOPOLOGY_LOCATION_SIZE];
	(void)snprintf(location, sizeof location, "cpu:%u", node);
	if (neap_topology_row(topology, location)) /* node1 and node01 */
		return true;
	struct neap_topology_row *row = neap_topology_add_row(topology, location);
	if (!row)
		return false;
	for (uint32_t i = 0; i < topology->device_count; i++)
		if (topology->devices[i].numa_node == (int32_t)node)
			row->order[row->count++] = (uint8_t)i;
	row->preferred = row->count;
	for (uint32_t i = 0; i < topology->device_count; i++)
		if (topology->devices[i].numa_node != (int32_t)node)
			row->order[row->count++] = (uint8_t)i;
	return true;
}

/* Nodes need not be numbered without gaps. */
static bool add_cpu_rows(struct neap_topology *topology, const char *sysfs)
{
	char path[PATH_MAX];
	sysfs_name *names = malloc(NEAP_TOPOLOGY_ROWS_MAX * sizeof *names);
	bool ok = names != NULL;
	(void)snprintf(path, sizeof path, "%s/devices/system/node", sysfs);
	int32_t count = ok ? neap_sysfs_list(path, "node", names, NEAP_TOPOLOGY_ROWS_MAX) : 0;
	for (int32_t i = 0; ok && i < count && i < (int32_t)NEAP_TOPOLOGY_ROWS_MAX; i++) {
		uint32_t node;
		if (neap_sysfs_digits(names[i] + strlen("node"), &node) && node <= NEAP_SYSFS_NODE_MAX)
			ok = add_cpu_row(topology, node);
	}
	free(names);
	if (count > (int32_t)NEAP_TOPOLOGY_ROWS_MAX)
		neap_topology_warn(topology, "there are %d NUMA nodes; the first %u have a row", count, NEAP_TOPOLOGY_ROWS_MAX);
	return ok && (topology->row_count > 0 || add_cpu_row(topology, 0));
}

static bool is_directory(const char *path)
{
	struct stat status;
	return path && *path && strlen(path) < PATH_MAX / 2 && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

int neap_topology_discover(const char *sysfs, const char *filter, struct neap_topology **topology_p, char *why, size_t why_size)
{
	*topology_p = NULL;
	if (!is_directory(sysfs)) {
		(void)snprintf(why, why_size, "%.128s is no directory, and tells nothing of this machine's devices; /sys is the usual one",
		               sysfs ? sysfs : "(none)");
		return NEAP_EINVAL;
	}
	struct neap_topology *topology = neap_topology_new();
	if (!topology || !read_devices(topology, sysfs, filter) || !add_cpu_rows(topology, sysfs)) {
		neap_topology_free(topology);
		(void)snprintf(why, why_size, "out of memory (topology)");
		return NEAP_ENOMEM;
	}
	*topology_p = topology;
	return NEAP_OK;
}
