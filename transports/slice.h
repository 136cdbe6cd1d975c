/* A slice: one request on its way through one transport. For TCP a request is its own slice. Machine: slice.
 *
 * Ownership: the engine's pool. While it is QUEUED or UNDER_WAY the transport that took it may use its `next` and `transport_*` fields. */
#ifndef NEAP_TRANSPORTS_SLICE_H
#define NEAP_TRANSPORTS_SLICE_H

#include "reactor/core.h"
#include <neap/engine.h>

struct neap_engine;
struct neap_segment;

struct neap_slice {
	struct neap_machine machine;
	struct neap_slice *next;    /* of whoever holds it: the peer's queue, a list handed over, the completion list */
	struct neap_slice *previous;
	unsigned char *source;
	uint64_t address;           /* remote */
	uint64_t length;
	uint64_t moved;             /* bytes given to the kernel (WRITE) or stored here (READ) in the present attempt */
	struct neap_segment *segment;
	void *user;
	uint32_t batch;             /* index in the engine's batch pool */
	uint32_t index;             /* in its batch */
	uint32_t grant;             /* index in the engine's token pool + 1; 0: none */
	uint8_t opcode;             /* enum neap_opcode */
	uint8_t attempts;           /* repeats so far */
	uint8_t transport_phase;    /* the transport's own */
	uint8_t cancel_status;      /* enum neap_status wanted by cancel or deadline; 0: none */
	bool placed;                /* of its request */
	struct neap_outcome outcome;
	void *transport_lane;       /* the lane it is on, or NULL */
	uint64_t transport_word;
};

/* --- what a transport tells (owner thread, from handlers or actions) ------------------------------------------------------- */

/* Its first byte was given to the kernel, or its header when it is a READ. */
void neap_slice_begun(struct neap_slice *slice);
/* The attempt ended without effect that matters; it waits in the queue again. attempts was raised. */
void neap_slice_requeued(struct neap_slice *slice);
/* The end, exactly once: fill slice->outcome before. With buffer HELD neap_slice_released must follow. The callback comes later. */
void neap_slice_ended(struct neap_slice *slice);
void neap_slice_released(struct neap_slice *slice);

/* Shorthand for the outcome: error and bytes follow from the arguments. */
void neap_outcome_set(struct neap_outcome *outcome, enum neap_status status, enum neap_effect effect, enum neap_cause cause,
                      int system_errno, uint64_t bytes);

/* The grant token of a slice, or NULL. */
const struct neap_grant_token *neap_slice_grant(const struct neap_slice *slice);

#endif
