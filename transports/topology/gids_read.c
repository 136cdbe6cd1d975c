/* GID tables from sysfs: ports/<p>/gids/<index>, and beside it gid_attrs/types and gid_attrs/ndevs, which are absent for holes. */
#include "transports/topology/gids.h"
#include "transports/topology/sysfs.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INTERFACE_UP 1 /* IFF_UP of class/net/<netdev>/flags, "0x1003" */

/* "fe80:0000:0000:0000:0000:0000:0000:0001": eight groups of four digits. */
static bool parse_gid(const char *text, uint8_t gid[16])
{
	for (int i = 0; i < 8; i++, text += 5) {
		if (strspn(text, "0123456789abcdefABCDEF") != 4 || text[4] != (i < 7 ? ':' : '\0'))
			return false;
		unsigned long group = strtoul(text, NULL, 16);
		gid[2 * i] = (uint8_t)(group >> 8);
		gid[2 * i + 1] = (uint8_t)group;
	}
	return true;
}

/* The kernel says "IB/RoCE v1" for both of these; which it is, is a question of the port. */
static enum neap_gid_type read_type(const char *port, uint32_t index, bool ethernet)
{
	char text[32];
	if (!neap_sysfs_text(text, sizeof text, "%s/gid_attrs/types/%u", port, index))
		return ethernet ? NEAP_GID_OTHER : NEAP_GID_INFINIBAND;
	if (strcmp(text, "RoCE v2") == 0)
		return NEAP_GID_ROCE_V2;
	return strcmp(text, "IB/RoCE v1") != 0 ? NEAP_GID_OTHER : ethernet ? NEAP_GID_ROCE_V1 : NEAP_GID_INFINIBAND;
}

/* Known to be down; what cannot be asked counts as up. */
static bool is_down(const char *sysfs, const char *netdev)
{
	char text[32];
	if (neap_sysfs_text(text, sizeof text, "%s/class/net/%s/flags", sysfs, netdev) && strncmp(text, "0x", 2) == 0 &&
	    !(strtoul(text, NULL, 16) & INTERFACE_UP))
		return true;
	return neap_sysfs_text(text, sizeof text, "%s/class/net/%s/operstate", sysfs, netdev) &&
	       (strcmp(text, "down") == 0 || strcmp(text, "lowerlayerdown") == 0 || strcmp(text, "notpresent") == 0);
}

static bool read_entry(const char *sysfs, const char *port, uint32_t index, bool ethernet, struct neap_gid_entry *entry)
{
	char text[64];
	static const uint8_t hole[16];
	*entry = (struct neap_gid_entry){.index = index};
	if (!neap_sysfs_text(text, sizeof text, "%s/gids/%u", port, index) || !parse_gid(text, entry->gid) ||
	    memcmp(entry->gid, hole, sizeof hole) == 0)
		return false;
	entry->type = read_type(port, index, ethernet);
	if (neap_sysfs_text(entry->netdev, sizeof entry->netdev, "%s/gid_attrs/ndevs/%u", port, index))
		entry->netdev_down = ethernet && !strchr(entry->netdev, '/') && is_down(sysfs, entry->netdev);
	return true;
}

uint32_t neap_gids_read(const char *sysfs, const char *device, uint32_t port, struct neap_gid_entry entries[NEAP_GIDS_MAX])
{
	char path[PATH_MAX], layer[32];
	uint32_t count = 0;
	int length = snprintf(path, sizeof path, "%s/class/infiniband/%s/ports/%u", sysfs, device, port);
	if (length < 0 || (size_t)length >= sizeof path - NEAP_SYSFS_NAME_SIZE)
		return 0;
	bool ethernet = neap_sysfs_text(layer, sizeof layer, "%s/link_layer", path) && strcmp(layer, "Ethernet") == 0;
	for (uint32_t index = 0; index < NEAP_GIDS_MAX; index++)
		if (read_entry(sysfs, path, index, ethernet, &entries[count]))
			count++;
	return count;
}
