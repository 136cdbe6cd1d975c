/* Which port of a device is used, and which of its addresses (te spec 5.1, 5.2). Pure, but for neap_gids_read; any thread. */
#ifndef NEAP_TRANSPORTS_TOPOLOGY_GIDS_H
#define NEAP_TRANSPORTS_TOPOLOGY_GIDS_H

#include "transports/topology/topology.h"

#define NEAP_GIDS_MAX 256u /* of a port: what MC_GID_INDEX can name */
#define NEAP_GID_TEXT_SIZE 48u

enum neap_gid_type { NEAP_GID_OTHER, NEAP_GID_INFINIBAND, NEAP_GID_ROCE_V1, NEAP_GID_ROCE_V2 };

/* An entry of a port's GID table. Entries that are empty need not be in the list: their indices are holes. */
struct neap_gid_entry {
	uint32_t index;
	uint8_t gid[16];
	enum neap_gid_type type;
	char netdev[NEAP_TOPOLOGY_NETDEV_SIZE]; /* "": none, or not known */
	bool netdev_down;                       /* known to be down: what is sent from that address goes nowhere */
};

/* Ranks what can be used, best first: positions of `entries` into `order`, which has room for `count`. Their number.
 *
 * 1. Usable are InfiniBand's and RoCE v2's; others (RoCE v1) only behind all of these. All zeroes is a hole. An entry whose interface
 *    is down is not usable.
 * 2. By class: 0 has an interface and an address that is routed; 1 routed, without interface; 2 private IPv4 (10/8, 172.16/12,
 *    100.64/10) with an interface; 3 degraded, with one; 4 private, without; 5 degraded, without. Degraded is an IPv6 link-local
 *    address, and RoCE v2 on the interface of an overlay: flannel*, cni*, calico*, vxlan*, docker*, tunl0.
 * 3. Within a class: IPv4 before IPv6, because both ends of a fabric have it more often; then the lower index, as Mooncake does. */
uint32_t neap_gids_rank(const struct neap_gid_entry *entries, uint32_t count, uint32_t *order);

/* The entry to use: that with index `wanted` (MC_GID_INDEX), whatever it is, or with -1 the best one. 0 and its position, or NEAP_EINVAL
 * (`wanted` is a hole) or NEAP_ENODEV (none can be used) and a sentence that names device and port, and what there is. */
int neap_gids_choose(const char *device, uint32_t port, const struct neap_gid_entry *entries, uint32_t count, int32_t wanted,
                     uint32_t *position_p, char *why, size_t why_size);

/* The table of a port as sysfs has it, by index; at most NEAP_GIDS_MAX entries that are no holes. Reads files: not in a turn. Their
 * number; 0 also when there is no such table. */
uint32_t neap_gids_read(const char *sysfs, const char *device, uint32_t port, struct neap_gid_entry entries[NEAP_GIDS_MAX]);

/* Port `wanted` (MC_IB_PORT), or with 0 the lowest ACTIVE one. NEAP_ENODEV with a sentence that names the device when it is not there or
 * not ACTIVE. */
int neap_port_choose(const struct neap_topology_device *device, uint32_t wanted, uint32_t *port_p, char *why, size_t why_size);

#endif
