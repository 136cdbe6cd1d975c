#include "tests/unit/sysfs_rig.h"
#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char sysfs_root[256];

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status, (void)type, (void)walk;
	return remove(path);
}

void sysfs_begin(void)
{
	const char *place = getenv("TMPDIR");
	snprintf(sysfs_root, sizeof sysfs_root, "%s/neap-sysfs-XXXXXX", place && *place ? place : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(sysfs_root));
}

void sysfs_end(void)
{
	nftw(sysfs_root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_folders(char *path)
{
	for (char *slash = path + strlen(sysfs_root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		ck_assert_msg(mkdir(path, 0755) == 0 || errno == EEXIST, "%s: %s", path, strerror(errno));
		*slash = '/';
	}
}

static void make_path(char path[1024], const char *format, va_list list)
{
	int at = snprintf(path, 1024, "%s/", sysfs_root);
	vsnprintf(path + at, 1024 - (size_t)at, format, list);
	make_folders(path);
}

#define PATH(path, format)            \
	char path[1024];                  \
	va_list list;                     \
	va_start(list, format);           \
	make_path(path, format, list);    \
	va_end(list)

void sysfs_put(const char *text, const char *format, ...)
{
	PATH(path, format);
	FILE *file = fopen(path, "w");
	ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
	fputs(text, file);
	fclose(file);
}

void sysfs_folder(const char *format, ...)
{
	PATH(path, format);
	ck_assert(mkdir(path, 0755) == 0 || errno == EEXIST);
}

void sysfs_link(const char *target, const char *format, ...)
{
	PATH(path, format);
	ck_assert_int_eq(symlink(target, path), 0);
}

void sysfs_pipe(const char *format, ...)
{
	PATH(path, format);
	ck_assert_int_eq(mkfifo(path, 0644), 0);
}

void sysfs_node(int node)
{
	sysfs_folder("devices/system/node/node%d", node);
}

void sysfs_pci(const char *path, const char *node)
{
	char target[512];
	sysfs_folder("devices/%s", path);
	if (node)
		sysfs_put(node, "devices/%s/numa_node", path);
	snprintf(target, sizeof target, "../../../devices/%s", path);
	sysfs_link(target, "bus/pci/devices/%s", strrchr(path, '/') + 1);
}

void sysfs_rdma(const char *name, const char *pci_path, const char *port_state)
{
	char target[512];
	sysfs_put("Ethernet\n", "devices/%s/infiniband/%s/ports/1/link_layer", pci_path, name);
	sysfs_link("../..", "devices/%s/infiniband/%s/device", pci_path, name);
	if (port_state)
		sysfs_put(port_state, "devices/%s/infiniband/%s/ports/1/state", pci_path, name);
	snprintf(target, sizeof target, "../../devices/%s/infiniband/%s", pci_path, name);
	sysfs_link(target, "class/infiniband/%s", name);
}

void sysfs_gid(const char *name, unsigned index, const char *gid, const char *type, const char *netdev)
{
	sysfs_put(gid, "class/infiniband/%s/ports/1/gids/%u", name, index);
	if (type)
		sysfs_put(type, "class/infiniband/%s/ports/1/gid_attrs/types/%u", name, index);
	if (netdev)
		sysfs_put(netdev, "class/infiniband/%s/ports/1/gid_attrs/ndevs/%u", name, index);
}

void sysfs_netdev(const char *name, bool up)
{
	sysfs_put(up ? "0x1003\n" : "0x1002\n", "class/net/%s/flags", name);
	sysfs_put(up ? "up\n" : "down\n", "class/net/%s/operstate", name);
}

void sysfs_two_sockets(void)
{
	sysfs_node(0);
	sysfs_node(1);
	for (int i = 0; i < 16; i++) {
		char path[128], name[16];
		int bus = (i < 8 ? 0x10 : 0x80) + 2 * i;
		snprintf(path, sizeof path, "pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0", bus, bus, bus + 1);
		snprintf(name, sizeof name, "mlx5_%d", i);
		sysfs_pci(path, i < 8 ? "0\n" : "1\n");
		sysfs_rdma(name, path, "4: ACTIVE\n");
		snprintf(path, sizeof path, "pci0000:%02x/0000:%02x:01.0/0000:%02x:01.0", bus, bus, bus + 1);
		sysfs_pci(path, i < 8 ? "0\n" : "1\n");
	}
}
