/* The transition trace: a ring of 32-byte records, always on.
 *
 * A record is written for each transition and each ignored, stale or impossible event. Two rings per reactor keep the data path
 * from pushing out the control path. A dump is a file with a self-describing header (names of machines, states and events), made
 * from a ring at any time; `neap-fsm trace FILE` decodes it to text or to Chrome trace-event JSON.
 *
 * Thread rule: a ring belongs to its dispatcher's thread. */
#ifndef NEAP_TRACE_H
#define NEAP_TRACE_H

#include <neap/error.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum neap_trace_kind {
	NEAP_TRACE_GO = 1,
	NEAP_TRACE_IGNORED,
	NEAP_TRACE_STALE,
	NEAP_TRACE_IMPOSSIBLE,
	NEAP_TRACE_RELATE, /* argument: class index << 32 | id of the child */
};

struct neap_trace_record {
	uint64_t now_ns;
	uint64_t argument;
	uint32_t machine_id;
	uint16_t class_index;
	uint16_t generation;
	uint8_t kind, from, event, to;
	uint32_t sequence; /* low 32 bits of the count of records so far */
};

struct neap_trace_ring {
	struct neap_trace_record *records; /* mask + 1 */
	uint64_t count;                    /* records written since the start; the newest is at (count - 1) & mask */
	uint32_t mask;
};

/* `records` is the caller's, a power-of-two count. NEAP_EINVAL otherwise. */
NEAP_API int neap_trace_ring_init(struct neap_trace_ring *ring, struct neap_trace_record *records, uint32_t count);

struct neap_dispatcher;
struct neap_machine;

/* Notes that `child` works for `parent`: an arrow between two tracks of the viewer. */
NEAP_API void neap_trace_relate(const struct neap_machine *parent, const struct neap_machine *child);

/* Where exporters write: returns 0, or a negative error that ends the export. */
typedef int neap_write_func(void *user, const void *bytes, size_t length);

/* Both rings, oldest first, as text: one line a record. */
NEAP_API int neap_trace_write_text(const struct neap_dispatcher *dispatcher, neap_write_func *write, void *user);

/* Both rings as Chrome trace-event JSON (an object with "traceEvents"): one track per machine instance, a slice per state. */
NEAP_API int neap_trace_write_chrome(const struct neap_dispatcher *dispatcher, neap_write_func *write, void *user);

/* The binary dump: header with names, then records. */
NEAP_API int neap_trace_write_dump(const struct neap_dispatcher *dispatcher, neap_write_func *write, void *user);

/* Decodes a dump. `chrome` 0: text, 1: Chrome JSON. NEAP_EPROTO with nothing written when the dump is damaged. */
NEAP_API int neap_trace_decode(const void *dump, size_t length, int chrome, neap_write_func *write, void *user);

#ifdef __cplusplus
}
#endif
#endif
