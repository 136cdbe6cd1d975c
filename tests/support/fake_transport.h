/* A transport that moves nothing: it keeps the slices it is given, and the test says how each ends. It can be told to misbehave as far
 * as the contract allows: hold buffers, answer cancels late or with success, close slowly, speak from inside an action.
 *
 *     neap_engine_create_with(&engine, reactor, NULL, fake_transport_make, why, sizeof why);
 *     struct fake_transport *fake = fake_transport_of(engine);
 */
#ifndef SUPPORT_FAKE_TRANSPORT_H
#define SUPPORT_FAKE_TRANSPORT_H

#include "transports/transport.h"

enum fake_answer {
	FAKE_AT_ONCE, /* cancel and forget are obeyed at once */
	FAKE_LATER,   /* when the test says so */
	FAKE_HOLDING, /* cancel: the outcome at once, the buffer when the test says so */
};

struct fake_transport {
	struct neap_transport base; /* first */
	struct neap_slice *first, *last; /* linked both ways */
	uint32_t count, submits, cancels, room;
	enum fake_answer answer;
	bool slow_close, closing;
	struct neap_segment *forgetting; /* FAKE_LATER: the one that waits for fake_forgotten */
	struct neap_slice *held[64];
	uint32_t held_count;
};

int fake_transport_make(struct neap_transport **transport_p, struct neap_engine *engine, char *why, size_t why_size);
struct fake_transport *fake_transport_of(struct neap_engine *engine);

/* The n-th of those it has; NULL: fewer. */
struct neap_slice *fake_slice(struct fake_transport *fake, uint32_t n);

/* Ends it with this outcome; held: it stays in held[] until fake_release. */
void fake_end(struct fake_transport *fake, struct neap_slice *slice, enum neap_status status, enum neap_effect effect,
              enum neap_cause cause, uint64_t bytes, bool held);
void fake_complete(struct fake_transport *fake, struct neap_slice *slice);
void fake_complete_all(struct fake_transport *fake);
void fake_release(struct fake_transport *fake, struct neap_slice *slice);
/* With FAKE_LATER */
void fake_forgotten(struct fake_transport *fake);
void fake_close_now(struct fake_transport *fake);

#endif
