/* The segment descriptor: what a process tells others about its memory. JSON as the Mooncake Transfer Engine writes and reads it,
 * with one key of ours, "neap", that others ignore. docs/WIRE.md has every field.
 *
 * Pure but for malloc. Decoding is total: each type, range, depth and size is checked, and the error names the
 * place ("buffers[3].addr: ..."). Any thread. */
#ifndef NEAP_METADATA_DESCRIPTOR_H
#define NEAP_METADATA_DESCRIPTOR_H

#include <neap/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_NAME_MAX 512u /* segment and device names, bytes without NUL */
#define NEAP_LOCATION_MAX 256u
#define NEAP_DEVICES_MAX 64u
#define NEAP_BUFFERS_MAX 1048576u
#define NEAP_CORES_MAX 64u
#define NEAP_DEPTH_MAX 32u /* nesting of a document */

enum neap_protocol { NEAP_PROTOCOL_TCP, NEAP_PROTOCOL_RDMA };

struct neap_buffer_desc {
	uint64_t address, length;
	char *name;              /* tcp: the server's name; rdma: the location */
	uint32_t *rkeys, *lkeys; /* rdma: one per device, or NULL with key_count 0 */
	uint32_t key_count;
};

struct neap_device_desc {
	char *name;
	uint16_t lid;
	uint8_t gid[16];
};

/* One row of the priority matrix: device names preferred and available for a location. */
struct neap_priority_row {
	char *location;
	char **preferred, **available;
	uint32_t preferred_count, available_count;
};

/* The "neap" key. */
struct neap_capability {
	bool present;
	uint8_t instance[16];           /* "instance": 32 hex digits */
	uint8_t boot[16];               /* "boot": this machine's boot id, 32 hex digits; zeroes when unknown */
	uint32_t level;                 /* "level": highest protocol level, 1 */
	uint32_t flags;                 /* "caps": array of names; NEAP_CAP_... of those known here */
	uint16_t ports[NEAP_CORES_MAX]; /* "ports": data port of each core */
	uint32_t port_count;
	uint64_t version; /* "version": raised each time the descriptor changes */
};
enum { NEAP_CAP_CHECKSUM = 1, NEAP_CAP_GRANTS = 2, NEAP_CAP_FENCE = 4 };

struct neap_descriptor {
	char *name;
	enum neap_protocol protocol;
	int32_t tcp_data_port;     /* 0: none */
	int32_t tcp_proto_version; /* 1 when absent */
	char timestamp[32];        /* informational */
	char *rdma_server_name;    /* NULL: absent */
	struct neap_buffer_desc *buffers;
	uint32_t buffer_count;
	struct neap_device_desc *devices;
	uint32_t device_count;
	struct neap_priority_row *priority;
	uint32_t priority_count;
	struct neap_capability neap;
	uint64_t *range_starts, *range_ends; /* made by decode for neap_descriptor_covers; NULL in one built by hand */
};

/* Heap-owned by the caller: neap_descriptor_free. NEAP_EJSON (not JSON, wrong type, out of range), NEAP_ENOTSUP (a protocol that is
 * known but not supported, by name; an unknown one), NEAP_ELIMIT, NEAP_ENOMEM; `why` names the place and the rule. Trailing newline
 * or white space is accepted; unknown keys are ignored; of duplicate keys the last wins. `text` need not end in NUL. A bad buffer
 * or device refuses the whole document; a bad priority_matrix alone is left out, and then `why` says so although 0 is returned. */
int neap_descriptor_decode(const char *text, size_t length, struct neap_descriptor **descriptor_p, char *why, size_t why_size);
/* Every pointer in it was had from malloc on its own, so one built by hand is freed the same way. NULL is fine. */
void neap_descriptor_free(struct neap_descriptor *descriptor);

/* Compact JSON, keys sorted, non-ASCII as \uXXXX, a final newline when `newline`. `wall_us` becomes the timestamp (local time).
 * *text_p is the caller's to free(). NEAP_ELIMIT when it would exceed length_max, naming both figures. */
int neap_descriptor_encode(const struct neap_descriptor *descriptor, uint64_t wall_us, bool newline, size_t length_max,
                           char **text_p, size_t *length_p, char *why, size_t why_size);

/* True when [address, address + length) lies inside one buffer; of a decoded rdma one also inside several that touch. length 0: the
 * address lies inside or at the end of one. Logarithmic for decoded ones. */
bool neap_descriptor_covers(const struct neap_descriptor *descriptor, uint64_t address, uint64_t length);

/* "00:00:..:0a:00:00:05": 16 hex bytes of one or two digits. */
bool neap_gid_parse(const char *text, uint8_t gid[16]);
void neap_gid_format(const uint8_t gid[16], char text[48]);

/* An instance or boot id: 32 lower-case hex digits. */
#define NEAP_ID_TEXT_SIZE 33u
bool neap_id_parse(const char *text, uint8_t id[16]);
void neap_id_format(const uint8_t id[16], char text[NEAP_ID_TEXT_SIZE]);

/* Syntax and nesting depth of a whole JSON text: 0, or NEAP_EJSON/NEAP_ELIMIT with `why`. What every decoder of outside JSON begins
 * with. */
int neap_json_prescan(const char *text, size_t length, uint32_t depth_max, char *why, size_t why_size);

#endif
