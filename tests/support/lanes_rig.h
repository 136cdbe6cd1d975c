/* One engine of the library towards one scripted peer, both driven by the test: real sockets, but a clock of its own that goes on by a
 * millisecond when nothing happens. Timeouts are short; waiting means running both. */
#ifndef SUPPORT_LANES_RIG_H
#define SUPPORT_LANES_RIG_H

#include "tests/support/script_peer.h"
#include <neap/engine.h>

#define LANES_REQUESTS 8192u
#define LANES_BYTES ((size_t)8 << 20)
#define LANES_FILLED ((size_t)128 << 10) /* with a pattern, at first; the rest is zeroes */

struct lanes_rig {
	struct neap_reactor *reactor;
	struct neap_engine *engine;
	struct neap_engine_options options; /* change before lanes_rig_start */
	struct script_peer peer;
	unsigned char *remote, *local; /* LANES_BYTES each */
	neap_segment_id segment;
	struct neap_outcome outcome[LANES_REQUESTS]; /* by the order of submission */
	bool ended[LANES_REQUESTS];
	neap_batch_id batch[LANES_REQUESTS];
	uint32_t index[LANES_REQUESTS];
	uint32_t submitted, ends;
	uint64_t now_ns, tick_ns; /* tick: time that passes in every turn, whatever happens */
	uint64_t write_quota;     /* hooked streams: bytes they still take; UINT64_MAX: no limit */
	int write_error, read_error; /* hooked streams: what calls answer instead, or 0 */
	uint64_t deadline_ns;             /* of the batches submitted from now on; 0: none */
	const struct neap_grant_token *grant;
	bool opened, open_failed, closed;
};

/* connect 400 ms, handshake 400, progress 150, drain 100, 3 repeats, pause 2 ms; no local path. */
void lanes_rig_open(struct lanes_rig *rig, enum script_speech speech);
void lanes_rig_fill(struct lanes_rig *rig, size_t bytes); /* from the front of both */
void lanes_rig_start(struct lanes_rig *rig); /* makes the engine, opens the segment */
/* Closes what is open, checks that nothing is left: no descriptor, no lane, no pending request. */
void lanes_rig_close(struct lanes_rig *rig);

/* One round of both. */
void lanes_rig_turn(struct lanes_rig *rig);
void lanes_rig_for(struct lanes_rig *rig, unsigned ms);
bool lanes_rig_until(struct lanes_rig *rig, bool (*holds)(struct lanes_rig *rig), unsigned limit_ms);
/* All that were submitted have ended. */
bool lanes_rig_finish(struct lanes_rig *rig, unsigned limit_ms);

/* Returns its number. Offsets are into local and remote. */
uint32_t lanes_submit(struct lanes_rig *rig, enum neap_opcode opcode, size_t local, size_t remote, size_t length);
/* The same for raw addresses. */
uint32_t lanes_submit_at(struct lanes_rig *rig, enum neap_opcode opcode, void *source, uint64_t address, uint64_t length);
/* `count` requests in one batch, each `length` long, side by side from `local` and `remote` on. */
uint32_t lanes_submit_many(struct lanes_rig *rig, enum neap_opcode opcode, size_t local, size_t remote, size_t length, uint32_t count);
void lanes_cancel(struct lanes_rig *rig, uint32_t number);

/* The streams of the lanes there are obey write_quota, write_error and read_error from now on. Returns how many. */
unsigned lanes_hook(struct lanes_rig *rig);

struct neap_engine_stats lanes_stats(struct lanes_rig *rig);
/* Fails the test with a sentence when the outcome differs. */
void lanes_expect(struct lanes_rig *rig, uint32_t number, enum neap_status status, enum neap_effect effect, enum neap_cause cause);
void lanes_expect_done(struct lanes_rig *rig, uint32_t first, uint32_t count);

#endif
