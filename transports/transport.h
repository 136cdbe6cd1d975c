/* What the engine asks of a transport. Three today: local (memory of this process), tcp, and rdma, which has a tcp inside. A transport
 * knows slices, segments and the registry; it never knows batches or users. Owner thread only; one instance per engine (core). */
#ifndef NEAP_TRANSPORTS_TRANSPORT_H
#define NEAP_TRANSPORTS_TRANSPORT_H

#include "metadata/directory.h"
#include "metadata/handshake.h"
#include "transports/memory.h"
#include "transports/slice.h"

struct neap_transport;

/* A call to neap_memory_settled on its way to its callback. */
struct neap_settle_call {
	struct neap_settle_call *next; /* of whoever has it */
	struct neap_engine *engine;
	neap_memory_settled_func *settled;
	void *user;
	int error;
	char why[320];
};

struct neap_transport_ops {
	const char *name;
	/* Takes a list (linked by next) of `count` QUEUED slices for one segment. Cannot fail: room was asked before. Never ends a slice
	 * from inside the call. A slice of length 0 comes too: it ends as COMPLETED with 0 bytes when the descriptor covers its address
	 * (neap_descriptor_covers), like any other as RANGE_NOT_REMOTE when the refreshed one does not. */
	void (*submit)(struct neap_transport *transport, struct neap_segment *segment, struct neap_slice *first, uint32_t count);
	/* How many more slices the segment's queue takes. */
	uint32_t (*room)(struct neap_transport *transport, const struct neap_segment *segment);
	/* slice->cancel_status is set: end it with that status (or with what has happened meanwhile) within drain_timeout_ms. */
	void (*cancel)(struct neap_transport *transport, struct neap_slice *slice);
	/* The segment goes: end what is left of it as CANCELED, close its lanes, then call neap_segment_forgotten. */
	void (*forget)(struct neap_transport *transport, struct neap_segment *segment);
	/* Fills what the transport publishes (ports, versions). */
	void (*describe)(struct neap_transport *transport, struct neap_descriptor *descriptor);
	/* Begins to close everything: ends what is left as CANCELED (cause ENGINE_CLOSED), releases what is held, and then calls
	 * neap_engine_transport_closed once. Bounded by drain_timeout_ms. */
	void (*close)(struct neap_transport *transport);
	/* After that: frees it. */
	void (*destroy)(struct neap_transport *transport);

	/* --- of transports with devices; NULL where there is nothing to say */

	/* Whether a segment that is described so can be reached. NULL: over TCP alone. */
	bool (*reaches)(const struct neap_transport *transport, const struct neap_descriptor *descriptor);
	/* Where requests to the segment go. NULL: tcp. */
	const char *(*protocol)(const struct neap_transport *transport, const struct neap_segment *segment);
	/* Adds to the most that a document takes without its buffers, and sets what each buffer takes beside its numbers, and its longest
	 * length, when longer regions are told in pieces. Before anything is registered. */
	void (*document_bytes)(const struct neap_transport *transport, uint64_t *fixed_p, uint64_t *each_p, uint64_t *piece_bytes_p);
	/* Makes what peers read of a descriptor that has neither devices nor buffers: devices, and with `buffers` also those. NEAP_ENODEV:
	 * it has nothing to add, and the descriptor is that of TCP. What it put in is taken out by `unpublish`. */
	int (*publish)(struct neap_transport *transport, struct neap_descriptor *descriptor, bool buffers, char *why, size_t why_size);
	void (*unpublish)(struct neap_transport *transport, struct neap_descriptor *descriptor);
	/* Answers with neap_settle_answer when that region of the registry is where it belongs. NULL: it is. */
	void (*settle)(struct neap_transport *transport, uint32_t slot, struct neap_settle_call *call);
	/* What users are told of devices and what goes over them (neap/engine.h). NULL: there are none. */
	int (*device)(const struct neap_transport *transport, uint32_t index, struct neap_device_info *info_p);
	void (*rdma_stats)(const struct neap_transport *transport, struct neap_rdma_stats *stats_p);
	/* A peer asks to connect queue pairs: neap_handshake_handlers.connection, and neap_engine_connection_answer for what comes later.
	 * NULL: the empty answer of a node without devices. */
	int (*asked)(struct neap_transport *transport, uint64_t ticket, const struct neap_connection_message *request,
	             struct neap_connection_message *reply);
};

struct neap_transport {
	const struct neap_transport_ops *ops;
	struct neap_engine *engine;
	/* Set by a transport that has this one inside: it is told of the end, and the engine is not. */
	void (*closed)(void *user);
	void *closed_user;
};

/* An opened segment: the engine's object, with the transport's state hung on it. Machine: segment. */
struct neap_segment {
	struct neap_machine machine;
	struct neap_engine *engine;
	char *name;                     /* as opened; also what refresh asks for */
	struct neap_snapshot *snapshot; /* what is known of it now; never NULL while OPEN */
	struct neap_transport *transport;
	void *peer;                     /* tcp's state; NULL until it makes one */
	void *rdma_peer;                /* rdma's */
	uint64_t looked_ns;             /* by rdma: when it last asked whether the peer has devices now */
	uint32_t holders;               /* how many have been asked to forget it, when it is more than one */
	uint32_t slices;                /* not done yet: not ended, held, or ended and not reported */
	uint64_t refreshed;
	uint32_t opens; /* that were answered and not closed yet */
	struct neap_lookup lookup;
	uint64_t lookup_not_before_ns;
	bool looking;                   /* a lookup is under way */
	bool forgotten;                 /* the transport has let go; the last slices may still have to be reported */
	struct neap_segment_waiter *waiters;
	struct neap_segment *next_by_name;
	/* of neap_submit while it sorts requests by segment */
	struct neap_slice *submit_first, **submit_tail;
	uint32_t submit_count;
	struct neap_segment *submit_next;
	struct neap_segment *tend_next; /* to be told to its transport, or given back */
	bool tended;
};
uint64_t neap_segment_handle(const struct neap_segment *segment);

/* A transport wants the descriptor as it is at `not_before_ns` or later; the segment's snapshot is replaced before `done`. Several may
 * wait. Ends by cancel without callback. */
struct neap_segment_waiter {
	struct neap_segment_waiter *next, **slot;
	void (*done)(struct neap_segment_waiter *waiter, int error, const char *why);
	uint64_t not_before_ns;
};
int neap_segment_want_fresh(struct neap_segment *segment, struct neap_segment_waiter *waiter, uint64_t not_before_ns,
                            void (*done)(struct neap_segment_waiter *, int error, const char *why));
void neap_segment_waiter_cancel(struct neap_segment *segment, struct neap_segment_waiter *waiter);
/* True when the peer is a Neap process of the known snapshot. */
bool neap_segment_is_neap(const struct neap_segment *segment);

/* Reads the descriptor again, if nobody is at it; nobody is told, the snapshot is another one then. */
void neap_segment_look_again(struct neap_segment *segment);

/* The transport's answer to ops->forget; of one that has another inside, each gives its own. */
void neap_segment_forgotten(struct neap_segment *segment);
/* The transport's answer to ops->close. */
void neap_engine_transport_closed(struct neap_engine *engine, struct neap_transport *transport);
/* The transport's answer to an ops->asked that was left for later. */
void neap_engine_connection_answer(struct neap_engine *engine, uint64_t ticket, const struct neap_connection_message *reply);
/* The transport's answer to ops->settle: from a turn or from inside; the callback comes later. */
void neap_settle_answer(struct neap_settle_call *call, int error, const char *why);
/* What ops->publish puts in has changed: stores are told, and peers that ask read it anew. */
void neap_engine_reach_changed(struct neap_engine *engine);

/* --- what transports may use of their engine --------------------------------------------------------------------------------- */

struct neap_engine_core_view {
	struct neap_reactor *reactor;
	struct neap_registry *registry;
	const struct neap_engine_options *options; /* defaults filled in */
	struct neap_engine_stats *stats;           /* counters the transport raises itself */
	uint8_t instance[16];
	uint32_t core_index;                       /* 0: home */
	const char *name;                          /* of our segment */
	const char *host;                          /* that peers are told, with the port below */
	uint16_t handshake_port;
	struct neap_handshake_caller *caller;
	struct neap_sockaddr bind_address;         /* port 0 */
	struct neap_socket_options socket_options;
};
const struct neap_engine_core_view *neap_engine_view(const struct neap_engine *engine);

/* Who makes the transport to other processes; tests bring their own. */
typedef int neap_transport_maker(struct neap_transport **transport_p, struct neap_engine *engine, char *why, size_t why_size);
/* Who makes the metadata back-end, when it is not to be what options.metadata says. */
typedef int neap_backend_maker(struct neap_backend **backend_p, struct neap_reactor *reactor, void *user);
int neap_engine_create_over(struct neap_engine **engine_p, struct neap_reactor *reactor, const struct neap_engine_options *options,
                            neap_transport_maker *make_remote, neap_backend_maker *make_backend, void *user, char *why, size_t why_size);
int neap_engine_create_with(struct neap_engine **engine_p, struct neap_reactor *reactor, const struct neap_engine_options *options,
                            neap_transport_maker *make_remote, char *why, size_t why_size);

/* --- makers ------------------------------------------------------------------------------------------------------------------ */

int neap_local_transport_create(struct neap_transport **transport_p, struct neap_engine *engine);
/* Listens on the data port (options->data_port or a random one of the range, bound and kept). */
int neap_tcp_transport_create(struct neap_transport **transport_p, struct neap_engine *engine, char *why, size_t why_size);
uint16_t neap_tcp_transport_port(const struct neap_transport *transport);
/* What options->protocol says: RDMA with a TCP transport inside, or TCP alone when no device is there or the core is not the home. */
int neap_rdma_transport_create(struct neap_transport **transport_p, struct neap_engine *engine, char *why, size_t why_size);

#endif
