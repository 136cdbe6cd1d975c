/* The choice of ports and GIDs. */
#include "transports/topology/gids.h"
#include <stdio.h>
#include <string.h>

enum gid_class { ROUTED, ROUTED_WITHOUT, PRIVATE, DEGRADED, PRIVATE_WITHOUT, DEGRADED_WITHOUT, LAST_RESORT, UNUSABLE };

/* --- what an address is */

static bool is_null(const uint8_t gid[16])
{
	static const uint8_t zeroes[16];
	return memcmp(gid, zeroes, sizeof zeroes) == 0;
}

static bool is_v4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	return memcmp(gid, mapped, sizeof mapped) == 0;
}

static bool is_private_v4(const uint8_t gid[16])
{
	const uint8_t *v4 = gid + 12;
	return is_v4(gid) && (v4[0] == 10 || (v4[0] == 172 && (v4[1] & 0xf0) == 16) || (v4[0] == 100 && (v4[1] & 0xc0) == 64));
}

static bool is_link_local(const uint8_t gid[16])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

static bool is_overlay(const char *netdev)
{
	static const char *const prefixes[] = {"flannel", "cni", "calico", "vxlan", "docker"};
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		if (strncmp(netdev, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return strcmp(netdev, "tunl0") == 0;
}

/* InfiniBand's are link-local by nature (fe80::/64 is the default subnet), and good. */
static bool is_degraded(const struct neap_gid_entry *entry)
{
	return entry->type == NEAP_GID_ROCE_V2 && (is_link_local(entry->gid) || is_overlay(entry->netdev));
}

static enum gid_class class_of(const struct neap_gid_entry *entry)
{
	bool without = !entry->netdev[0];
	if (is_null(entry->gid) || entry->netdev_down)
		return UNUSABLE;
	if (entry->type != NEAP_GID_ROCE_V2 && entry->type != NEAP_GID_INFINIBAND)
		return LAST_RESORT;
	if (is_degraded(entry))
		return without ? DEGRADED_WITHOUT : DEGRADED;
	if (is_private_v4(entry->gid))
		return without ? PRIVATE_WITHOUT : PRIVATE;
	return without ? ROUTED_WITHOUT : ROUTED;
}

/* --- the choice */

static bool is_before(const struct neap_gid_entry *a, const struct neap_gid_entry *b)
{
	enum gid_class a_class = class_of(a), b_class = class_of(b);
	if (a_class != b_class)
		return a_class < b_class;
	if (is_v4(a->gid) != is_v4(b->gid))
		return is_v4(a->gid);
	return a->index < b->index;
}

uint32_t neap_gids_rank(const struct neap_gid_entry *entries, uint32_t count, uint32_t *order)
{
	uint32_t ranked = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (class_of(&entries[i]) == UNUSABLE)
			continue;
		uint32_t at = ranked++;
		for (; at > 0 && is_before(&entries[i], &entries[order[at - 1]]); at--)
			order[at] = order[at - 1];
		order[at] = i;
	}
	return ranked;
}

/* "0, 1, 4" */
static void list_indices(const struct neap_gid_entry *entries, uint32_t count, char *text, size_t size)
{
	size_t at = 0;
	(void)snprintf(text, size, "none");
	for (uint32_t i = 0; i < count && at < size; i++)
		if (!is_null(entries[i].gid))
			at += (size_t)snprintf(text + at, size - at, at ? ", %u" : "%u", entries[i].index);
}

static int choose_wanted(const char *device, uint32_t port, const struct neap_gid_entry *entries, uint32_t count, uint32_t wanted,
                         uint32_t *position_p, char *why, size_t why_size)
{
	char there[128];
	for (uint32_t i = 0; i < count; i++)
		if (entries[i].index == wanted && !is_null(entries[i].gid)) {
			*position_p = i;
			return NEAP_OK;
		}
	list_indices(entries, count, there, sizeof there);
	(void)snprintf(why, why_size, "%.63s port %u has no GID at index %u (MC_GID_INDEX); it has: %s", device, port, wanted, there);
	return NEAP_EINVAL;
}

/* The interface that would have served, had it been up. */
static const struct neap_gid_entry *find_down(const struct neap_gid_entry *entries, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!is_null(entries[i].gid) && entries[i].netdev_down)
			return &entries[i];
	return NULL;
}

int neap_gids_choose(const char *device, uint32_t port, const struct neap_gid_entry *entries, uint32_t count, int32_t wanted,
                     uint32_t *position_p, char *why, size_t why_size)
{
	bool found = false;
	if (wanted >= 0)
		return choose_wanted(device, port, entries, count, (uint32_t)wanted, position_p, why, why_size);
	for (uint32_t i = 0; i < count; i++)
		if (class_of(&entries[i]) != UNUSABLE && (!found || is_before(&entries[i], &entries[*position_p]))) {
			*position_p = i;
			found = true;
		}
	if (found)
		return NEAP_OK;
	const struct neap_gid_entry *down = find_down(entries, count);
	if (down)
		(void)snprintf(why, why_size, "%.63s port %u: the interface of its GIDs is down (ip link set %.15s up)", device, port,
		               down->netdev);
	else
		(void)snprintf(why, why_size, "%.63s port %u has no GID; on RoCE its interface needs an address (ip address add)", device, port);
	return NEAP_ENODEV;
}

/* --- ports */

static const struct neap_topology_port *find_port(const struct neap_topology_device *device, uint32_t wanted)
{
	for (uint32_t i = 0; i < device->port_count; i++)
		if (wanted ? device->ports[i].number == wanted : device->ports[i].status == NEAP_PORT_ACTIVE)
			return &device->ports[i];
	return NULL;
}

/* "1 DOWN, 2 INIT" */
static void list_ports(const struct neap_topology_device *device, char *text, size_t size)
{
	size_t at = 0;
	(void)snprintf(text, size, "no ports");
	for (uint32_t i = 0; i < device->port_count && at < size; i++)
		at += (size_t)snprintf(text + at, size - at, "%s%u %s", at ? ", " : "", device->ports[i].number,
		                       neap_port_state_name(device->ports[i].status));
}

int neap_port_choose(const struct neap_topology_device *device, uint32_t wanted, uint32_t *port_p, char *why, size_t why_size)
{
	char there[128];
	const struct neap_topology_port *port = find_port(device, wanted);
	if (port && port->status == NEAP_PORT_ACTIVE) {
		*port_p = port->number;
		return NEAP_OK;
	}
	list_ports(device, there, sizeof there);
	if (!wanted)
		(void)snprintf(why, why_size, "%s has no ACTIVE port (it has: %s); look at its cable and interface", device->name, there);
	else if (!port)
		(void)snprintf(why, why_size, "%s has no port %u (MC_IB_PORT); it has: %s", device->name, wanted, there);
	else
		(void)snprintf(why, why_size, "%s port %u (MC_IB_PORT) is %s, not ACTIVE (it has: %s)", device->name, wanted,
		               neap_port_state_name(port->status), there);
	return NEAP_ENODEV;
}
