/* A machine of one's own: a tree like /sys in a temporary folder, made by calls that say what hangs where. */
#ifndef TESTS_UNIT_SYSFS_RIG_H
#define TESTS_UNIT_SYSFS_RIG_H

#include <stdbool.h>
#include <stddef.h>

extern char sysfs_root[256];

void sysfs_begin(void); /* an empty machine */
void sysfs_end(void);   /* removes it */

/* A file with that text, and the folders above it. */
void sysfs_put(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sysfs_folder(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A link to `target`, as it stands. */
void sysfs_link(const char *target, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A pipe, which holds up who opens it without care. */
void sysfs_pipe(const char *format, ...) __attribute__((format(printf, 1, 2)));

void sysfs_node(int node);
/* A PCI device below devices/, such as "pci0000:16/0000:16:02.0/0000:17:00.0"; node: the text of its numa_node, NULL: none. */
void sysfs_pci(const char *path, const char *node);
/* An RDMA device on it, one port with that state ("4: ACTIVE"). */
void sysfs_rdma(const char *name, const char *pci_path, const char *port_state);
/* An entry of its GID table; type NULL: a hole. */
void sysfs_gid(const char *name, unsigned index, const char *gid, const char *type, const char *netdev);
void sysfs_netdev(const char *name, bool up);

/* 2 sockets with 8 NICs each, mlx5_0 to mlx5_15, and an accelerator beside each: 0000:XX:00.0 and 0000:XX:01.0 below one switch. */
void sysfs_two_sockets(void);

#endif
