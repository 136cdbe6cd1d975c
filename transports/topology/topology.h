/* The RDMA devices of this machine, and which of them are near which memory: the priority matrix (te spec 2.4, 6).
 *
 * A folder of transports/, not a room: design.md gives path choice to transports/, and this is what it chooses by; a room beside it
 * would be one that only transports/ may enter. It needs metadata/ alone (descriptor.h, json.h) and no libibverbs, so that it is built,
 * tested and fuzzed on machines without a device.
 *
 * A topology is made once (neap_topology_discover, or neap_topology_new and neap_topology_read_file), when a transport is made: reading
 * sysfs and files may wait for a disk, which a turn of a reactor must not. Afterwards it only changes by neap_topology_lose and
 * neap_topology_regain, which touch memory alone.
 *
 * An object belongs to one thread; different ones to any. */
#ifndef NEAP_TRANSPORTS_TOPOLOGY_TOPOLOGY_H
#define NEAP_TRANSPORTS_TOPOLOGY_TOPOLOGY_H

#include "metadata/descriptor.h"
#include "metadata/json.h"

#define NEAP_TOPOLOGY_NAME_SIZE 64u     /* a device's name with its NUL: the kernel's IB_DEVICE_NAME_MAX */
#define NEAP_TOPOLOGY_NETDEV_SIZE 16u   /* the kernel's IFNAMSIZ */
#define NEAP_TOPOLOGY_LOCATION_SIZE 32u /* as regions have it */
#define NEAP_TOPOLOGY_PATH_SIZE 256u    /* of a device in sysfs, below its root */
#define NEAP_TOPOLOGY_PORTS_MAX 8u      /* of one device; known ones have one or two */
#define NEAP_TOPOLOGY_ROWS_MAX 512u     /* what readers of descriptors take */
#define NEAP_TOPOLOGY_FILE_MAX (1u << 20)
#define NEAP_TOPOLOGY_WARNINGS_MAX 16u
#define NEAP_TOPOLOGY_WARNING_SIZE 200u
#define NEAP_ANY_LOCATION "*"
#define NEAP_TOPOLOGY_NO_PORT "no port of it is ACTIVE" /* the one reason to be unusable that passes by itself */

/* The kernel's numbers (enum ib_port_state). */
enum neap_port_state {
	NEAP_PORT_UNKNOWN = 0,
	NEAP_PORT_DOWN = 1,
	NEAP_PORT_INIT = 2,
	NEAP_PORT_ARMED = 3,
	NEAP_PORT_ACTIVE = 4,
	NEAP_PORT_DEFERRED = 5,
};

struct neap_topology_port {
	uint32_t number; /* 1.. */
	enum neap_port_state status;
	bool ethernet;                          /* RoCE or iWARP; false: InfiniBand */
	char netdev[NEAP_TOPOLOGY_NETDEV_SIZE]; /* of its first GID that has one; "": none */
};

struct neap_topology_device {
	char name[NEAP_TOPOLOGY_NAME_SIZE];
	char pci[NEAP_TOPOLOGY_NAME_SIZE];  /* "0000:17:00.0"; "": it hangs on no bus (Soft-RoCE) or that cannot be read */
	char path[NEAP_TOPOLOGY_PATH_SIZE]; /* "/devices/pci0000:16/0000:16:02.0/0000:17:00.0"; "" as above, or too long */
	int32_t numa_node;                  /* -1: none or not known */
	uint32_t port_count;
	struct neap_topology_port ports[NEAP_TOPOLOGY_PORTS_MAX];
	const char *unusable; /* why it takes part in nothing, a constant; NULL: it does */
};

/* Devices for a location, nearest first. `order` holds indices of devices[], each at most once, usable or not: the first `preferred`
 * of them are preferred, the others available. */
struct neap_topology_row {
	char location[NEAP_TOPOLOGY_LOCATION_SIZE];
	uint32_t preferred, count;
	uint8_t order[NEAP_DEVICES_MAX];
};

struct neap_topology {
	uint32_t device_count;
	struct neap_topology_device devices[NEAP_DEVICES_MAX]; /* by name, mlx5_2 before mlx5_10; then a file's */
	uint32_t row_count, row_capacity;
	struct neap_topology_row *rows; /* cpu:N by N, then as they were added */
	uint32_t warning_count, warnings_left_out;
	char warnings[NEAP_TOPOLOGY_WARNINGS_MAX][NEAP_TOPOLOGY_WARNING_SIZE]; /* what was not as it should be, sentences */
};

/* An empty one, the caller's to free; NULL: out of memory. Freeing NULL is fine. */
struct neap_topology *neap_topology_new(void);
void neap_topology_free(struct neap_topology *topology);

/* --- from the system (discover.c, accelerator.c, te spec 6) ----------------------------------------------------------------------- */

/* What `sysfs` ("/sys", or a tree like it) says: the devices of class/infiniband, and a row for each devices/system/node/node<N> with
 * the devices of that node as preferred and all others as available. Without any node (a kernel without NUMA) there is a row cpu:0,
 * because Mooncake's readers cannot use a descriptor without a matrix (rdma-observed 1).
 *
 * `filter` is a comma list of device names, blanks around them ignored; NULL or "": all. A device that it does not name, or that has no
 * ACTIVE port, is listed and unusable.
 *
 * Reads files and waits for them; a bounded number of bounded ones. What cannot be read or makes no sense is a warning and counts as
 * not known. 0 also when there is no device. NEAP_EINVAL: `sysfs` is no directory; NEAP_ENOMEM; then *topology_p is NULL and `why` says
 * so. */
int neap_topology_discover(const char *sysfs, const char *filter, struct neap_topology **topology_p, char *why, size_t why_size);

/* Adds the row of an accelerator: which PCI device "cuda:3" is only CUDA knows, so the one who asked it says so. Preferred are, of the
 * usable devices on its NUMA node (all, when there are none), those at the least distance in the PCI tree; all others are available.
 * `bdf` is "0000:3b:00.0", in any case. NEAP_EINVAL (a name or address that cannot be), NEAP_ENODEV (no such PCI device), NEAP_ELIMIT,
 * NEAP_ENOMEM with `why`. Reads files. */
int neap_topology_add_accelerator(struct neap_topology *topology, const char *sysfs, const char *location, const char *bdf, char *why,
                                  size_t why_size);

/* --- from a file (topology_file.c): MC_CUSTOM_TOPO_JSON ---------------------------------------------------------------------------- */

/* Replaces the rows by those of a document {"cpu:0": [["mlx5_0"], ["mlx5_1"]], ...}. Devices that are not in topology->devices are
 * added as unusable ones; those that no row names become unusable; each is a warning. A row for "*" counts for memory whose location is
 * not known, and is never published. NEAP_EJSON, NEAP_ELIMIT or NEAP_ENOMEM: `topology` is as before, and `why` names place and rule
 * ("cpu:0[1][3]: is a number and must be a string"). Pure but for malloc. */
int neap_topology_read(struct neap_topology *topology, const char *text, size_t length, char *why, size_t why_size);

/* The same from a file of at most NEAP_TOPOLOGY_FILE_MAX bytes; `why` begins with its name. NEAP_EINVAL: it cannot be read. Waits for
 * the disk. */
int neap_topology_read_file(struct neap_topology *topology, const char *path, char *why, size_t why_size);

/* --- asking and changing (topology.c) ------------------------------------------------------------------------------------------------ */

/* -1: there is none. */
int neap_topology_find(const struct neap_topology *topology, const char *name);
/* NULL: there is none. */
const struct neap_topology_row *neap_topology_row(const struct neap_topology *topology, const char *location);
/* Some row names it. */
bool neap_topology_places(const struct neap_topology *topology, uint32_t device);

/* A device that was closed, has failed or cannot be opened takes part in nothing from here on; `reason` is a constant. */
void neap_topology_lose(struct neap_topology *topology, uint32_t device, const char *reason);
void neap_topology_regain(struct neap_topology *topology, uint32_t device);

/* For those that make one. A new device at its place in the order: its index, or -1 when there are NEAP_DEVICES_MAX. Not after rows were
 * made: they hold indices. */
int neap_topology_add_device(struct neap_topology *topology, const char *name);
/* A new row without devices; NULL: out of memory, or NEAP_TOPOLOGY_ROWS_MAX are there. */
struct neap_topology_row *neap_topology_add_row(struct neap_topology *topology, const char *location);
void neap_topology_warn(struct neap_topology *topology, const char *format, ...) NEAP_PRINTF(2, 3);
/* The order of device names: bytes, but numbers in them as numbers. */
int neap_topology_compare(const char *a, const char *b);

/* --- to others (topology_publish.c, te spec 2.4) -------------------------------------------------------------------------------------- */

/* Makes an RDMA descriptor say what this topology says: fills `priority`, and brings `devices` with every buffer's rkeys and lkeys into
 * the order in which Mooncake's readers number them. A device that is unusable, not known here or in no row goes from all of them at
 * once; one that is not in `devices` (nobody could open it) does not come into the matrix; a location that is left without devices has no
 * row (Mooncake would divide by its number). No device left: no devices, no matrix.
 *
 * Before, `devices` and the keys of each buffer are in one order, any; a buffer has as many keys as there are devices, or none.
 * NEAP_EINVAL (they do not, two devices of one name) or NEAP_ENOMEM: the descriptor is as before, and `why` says why. Pure but for
 * malloc. */
int neap_topology_publish(const struct neap_topology *topology, struct neap_descriptor *descriptor, char *why, size_t why_size);

/* Frees the names of `devices` and all of `priority`, and leaves none there: for a descriptor that was built by hand around them. */
void neap_topology_unpublish(struct neap_descriptor *descriptor);

/* The order in which a std::unordered_map<std::string, T> of libstdc++ (64 bit) walks over `count` different keys that were inserted as
 * they stand here: order[0] is the index of the first. At most NEAP_TOPOLOGY_ROWS_MAX keys. */
void neap_unordered_walk(const char *const *keys, uint32_t count, uint32_t *order);

/* --- to people (topology_json.c) ------------------------------------------------------------------------------------------------------ */

/* The usable part of the matrix as a document that neap_topology_read and Mooncake take, a row a line. */
void neap_topology_put_matrix(const struct neap_topology *topology, struct neap_json_writer *writer);
/* "ACTIVE" */
const char *neap_port_state_name(enum neap_port_state state);

#endif
