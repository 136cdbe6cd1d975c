/* The half that asks: requests of this process to segments that are reached over RDMA (te spec 5.4 to 5.7; design.md 5, 6). It cuts them
 * in pieces, chooses a path for each, posts, and repeats what failed on another path; machines rdma_peer and rdma_rail.
 *
 * A request ends as the engine wants it: once, and truthfully. Its local buffer is let go when no piece of it can reach it any more: each
 * was completed, or its queue pair is destroyed.
 *
 * Owner thread of the reactor only. */
#ifndef NEAP_TRANSPORTS_RDMA_INITIATOR_H
#define NEAP_TRANSPORTS_RDMA_INITIATOR_H

#include "transports/rdma/endpoint.h"
#include "transports/rdma/rdma_memory.h"
#include "transports/topology/paths.h"
#include "transports/transport.h"

struct neap_rdma_initiator;

/* A registered range of this process. */
struct neap_rdma_local {
	uint64_t memory_id; /* neap_rdma_memory_keys */
	uint64_t from, to;
	const char *location; /* lives as long as the range */
};

/* A few bytes of ours on all devices, where what is read only to be sure is put. They come on devices when they are first wanted. */
enum neap_rdma_scratch_phase { NEAP_RDMA_SCRATCH_NONE, NEAP_RDMA_SCRATCH_COMING, NEAP_RDMA_SCRATCH_THERE, NEAP_RDMA_SCRATCH_REFUSED };
#define NEAP_RDMA_SCRATCH_BYTES 64u
struct neap_rdma_scratch {
	enum neap_rdma_scratch_phase phase;
	uint64_t memory; /* THERE */
	unsigned char *bytes;
};

struct neap_rdma_initiator_options {
	uint32_t pieces_max;       /* under way or waiting to be repeated, of all requests; 0: 16384 */
	uint32_t piece_bytes;      /* MC_SLICE_SIZE; 0: 65536 */
	uint32_t tail_bytes;       /* what is left joins the last piece up to this many bytes: piece_bytes / MC_FRAGMENT_RATIO; 0: 16384 */
	uint32_t tries_max;        /* MC_RETRY_CNT: of one piece; 0: 9 */
	uint32_t rail_pause_ms;    /* MC_RDMA_RAIL_PAUSE_SECONDS: the longest pause of a rail between probes; 0: 30000 */
	uint32_t window_bytes;     /* under way to one device of a peer, before pieces wait; 0: what the local device says */
	bool any_rail;             /* false: of equally near devices those of one name at both ends come first */
};

/* What it stands on; all of it outlasts the initiator. */
struct neap_rdma_ground {
	const struct neap_engine_core_view *view;
	const struct neap_topology *topology;
	struct neap_rdma_queue *queues; /* one per device; queue.device->index is the topology's */
	uint32_t queue_count;
	struct neap_rdma_endpoints *endpoints;
	const struct neap_rdma_memory *memory;
	/* The registered range that holds the address; false: there is none, or its registration has not ended yet. */
	bool (*find_local)(void *user, uint64_t address, struct neap_rdma_local *local_p);
	const struct neap_rdma_scratch *scratch; /* NULL: requests that are to be `placed` fail */
	void (*want_scratch)(void *user);        /* changes the phase, now or later: neap_rdma_initiator_memory_changed then */
	void *user;
	struct neap_rdma_initiator_options options;
};

/* NEAP_ENOMEM, NEAP_ELIMIT. */
int neap_rdma_initiator_create(struct neap_rdma_initiator **initiator_p, const struct neap_rdma_ground *ground);
/* Ends everything as CANCELED, ENGINE_CLOSED; `closed` from a turn when all requests have ended and been let go. */
void neap_rdma_initiator_close(struct neap_rdma_initiator *initiator, void (*closed)(void *user), void *user);
void neap_rdma_initiator_destroy(struct neap_rdma_initiator *initiator);
/* Memory of ours has come on devices or is off them. `wake`: what waits for it may go on. */
void neap_rdma_initiator_memory_changed(struct neap_rdma_initiator *initiator, bool wake);

/* As neap_transport_ops has them. Slices of the initiator have NEAP_RDMA_PLACE in transport_phase. */
#define NEAP_RDMA_PLACE 0x08u
void neap_rdma_initiator_submit(struct neap_rdma_initiator *initiator, struct neap_segment *segment, struct neap_slice *first,
                                uint32_t count);
uint32_t neap_rdma_initiator_room(const struct neap_rdma_initiator *initiator, const struct neap_segment *segment);
void neap_rdma_initiator_cancel(struct neap_rdma_initiator *initiator, struct neap_slice *slice);
/* `forgotten` from a turn, when nothing of the segment is left; at once when nothing was ever submitted for it. */
void neap_rdma_initiator_forget(struct neap_rdma_initiator *initiator, struct neap_segment *segment,
                                void (*forgotten)(void *user, struct neap_segment *segment), void *user);

/* What the queues' listeners are told, passed on. */
void neap_rdma_initiator_completed(struct neap_rdma_initiator *initiator, struct neap_rdma_queue *queue,
                                   const struct neap_verbs_completion *completions, uint32_t count);
void neap_rdma_initiator_queue_changed(struct neap_rdma_initiator *initiator, struct neap_rdma_queue *queue);

/* Its grant has a key for a device that the segment's descriptor has. */
bool neap_rdma_slice_is_lent(const struct neap_segment *segment, const struct neap_slice *slice);

/* Bytes of one device, by the topology's index. */
void neap_rdma_initiator_device(const struct neap_rdma_initiator *initiator, uint32_t device, uint64_t *moved_p, uint64_t *under_way_p);

/* What has happened so far, for statistics and tests. */
struct neap_rdma_initiator_stats {
	uint64_t pieces_posted, pieces_repeated, checks, probes, rails_paused;
	uint32_t peers, rails, rails_open, requests, pieces;
};
void neap_rdma_initiator_stats(const struct neap_rdma_initiator *initiator, struct neap_rdma_initiator_stats *stats_p);

#endif
