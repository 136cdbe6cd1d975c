/* Two engines with fake transports on one reactor: `engine` submits, `peer` is the segment it opens. And what a test wants to know of
 * callbacks: counts, the last outcome, in what order. */
#ifndef SUPPORT_ENGINE_RIG_H
#define SUPPORT_ENGINE_RIG_H

#include "tests/support/fake_transport.h"

#define RIG_REQUESTS_MAX 200000u

struct engine_rig {
	struct neap_reactor *reactor;
	struct neap_engine *engine, *peer;
	struct fake_transport *fake;
	neap_segment_id segment;
	char why[320];

	/* of the callbacks below; all batches of a test together */
	uint32_t requests, batches, released;
	struct neap_outcome outcome;
	struct neap_batch_summary summary;
	uint32_t last_index;
	neap_batch_id last_batch;
	void *last_user;
	bool finished, closed, opened;
	int opened_error;
	neap_segment_id opened_segment;
	/* Called from inside on_request, on_batch and on_released, after counting. May be NULL */
	void (*inside_request)(struct engine_rig *rig), (*inside_batch)(struct engine_rig *rig), (*inside_released)(struct engine_rig *rig);
	uint8_t seen[RIG_REQUESTS_MAX]; /* how often each index was reported */
};

/* Options may be NULL. Opens the peer. */
void rig_begin(struct engine_rig *rig, const struct neap_engine_options *options);
/* Closes what is open, checks that nothing is left. */
void rig_end(struct engine_rig *rig);
/* A turn or two: what was ended is reported. */
void rig_turn(struct engine_rig *rig);
bool rig_until(struct engine_rig *rig, const bool *flag);

/* Callbacks that write to the rig. */
struct neap_batch_options rig_options(struct engine_rig *rig, bool keep);
void rig_closed(void *rig);
void rig_opened(void *rig, int error, neap_segment_id segment, const char *why);

/* `count` writes of `length` bytes to the peer. */
int rig_submit(struct engine_rig *rig, uint32_t count, uint64_t length, const struct neap_batch_options *options, neap_batch_id *batch_p);

#endif
