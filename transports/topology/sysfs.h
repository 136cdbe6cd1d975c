/* Small files of a tree like /sys, read within bounds whatever lies there: pipes, endless files, loops of links, names that are too
 * long. The root is given, so that a test can make a machine of its own. These calls wait for the file system: not in a turn. */
#ifndef NEAP_TRANSPORTS_TOPOLOGY_SYSFS_H
#define NEAP_TRANSPORTS_TOPOLOGY_SYSFS_H

#include <neap/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_SYSFS_NAME_SIZE 64u
#define NEAP_SYSFS_NODE_MAX 4095      /* NUMA nodes: more than any kernel is built for */
#define NEAP_SYSFS_ENTRIES_MAX 65536u /* of a directory; more are not looked at */

/* The first line of the file whose path `format` makes, without blanks at its ends, NUL-terminated. False: no file, an empty one, or
 * one whose line does not fit or holds anything but printable ASCII; `text` is "" then. */
bool neap_sysfs_text(char *text, size_t size, const char *format, ...) NEAP_PRINTF(3, 4);

enum neap_sysfs_answer { NEAP_SYSFS_READ, NEAP_SYSFS_ABSENT, NEAP_SYSFS_GARBAGE };
/* A whole number as that line. ABSENT: there is no file. GARBAGE: something else is, or it is not in [min, max]. *value_p then stays. */
enum neap_sysfs_answer neap_sysfs_number(int32_t min, int32_t max, int32_t *value_p, const char *format, ...) NEAP_PRINTF(4, 5);

/* Names in the directory `path` that begin with `prefix`, in the order of neap_topology_compare, of which the first `max` are kept. Names
 * that no device has are passed over: "." and "..", those longer than NEAP_SYSFS_NAME_SIZE - 1, those with other bytes than printable
 * ASCII. Their number, also of those not kept; -1: no directory. */
int32_t neap_sysfs_list(const char *path, const char *prefix, char (*names)[NEAP_SYSFS_NAME_SIZE], uint32_t max);

/* Where `root`/`below` really is, as a path below the real root ("/devices/pci0000:16/0000:17:00.0"). False: nowhere, outside of the
 * root, or longer than the room. */
bool neap_sysfs_real(char *text, size_t size, const char *root, const char *below);

/* 1 to 7 digits and nothing else. */
bool neap_sysfs_digits(const char *text, uint32_t *value_p);

#endif
