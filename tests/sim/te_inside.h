/* The cluster from inside: shared by the te_*.c files, by nobody else.
 *
 * te_world.c: a run from start to end. te_node.c: nodes, their engines, memory and links. te_work.c: operations and batches.
 * te_check.c: the shadow model. te_slots.c: memory that comes and goes. te_faults.c: what goes wrong. te_rdma.c: devices. te_aims.c: worlds
 * over devices that are made for one kind of mistake. */
#ifndef NEAP_SIM_TE_INSIDE_H
#define NEAP_SIM_TE_INSIDE_H

#include "tests/sim/fabric.h"
#include "tests/sim/te_world.h"

#define MS UINT64_C(1000000)
#define NODES_MAX 6u
#define CORES_MAX 2u
#define OPERATIONS_MAX 256u
#define BATCHES_MAX 256u
#define BATCH_REQUESTS_MAX 4u
#define GRAVES_MAX 40u
#define NOTES_MAX 256u
#define CALLS_MAX 1024u
#define GUARD_BYTES 4096u
#define SLOT_BYTES_MAX 70000u
#define BULK_BYTES (UINT64_C(5) << 18) /* more than a local copy moves in one piece */
#define BUFFERS 160u /* of a node with devices, in registered memory */
#define BUFFER_BYTES SLOT_BYTES_MAX
#define BUFFER_STRIDE (BUFFER_BYTES + 104u)
#define BUFFERS_AT (UINT64_C(16) << 20)
#define HANDSHAKE_PORT 15100u
#define DRAIN_MS 200u

enum link_phase { LINK_CLOSED, LINK_OPENING, LINK_OPEN };

/* What an initiator's core knows of a target. */
struct te_link {
	enum link_phase phase;
	neap_segment_id segment;
	uint64_t base;      /* of the target's region, as its descriptor says */
	uint32_t peer_incarnation;
};

struct te_operation;

/* A piece of a target's memory that one initiator alone works on, at most one operation at a time. */
struct te_piece {
	unsigned char *memory;
	unsigned char *expected; /* what it holds, unless tainted or an operation is under way */
	uint32_t bytes;
	unsigned char *other;    /* when tainted: the other content that each byte may be of; NULL: it may be anything */
	struct te_operation *under_way;
	bool tainted;            /* it holds one of two contents, for ever or until it is taken back */
};

enum slot_phase { SLOT_AWAY, SLOT_THERE, SLOT_ENDING };

struct te_slot {
	struct te_piece piece;
	enum slot_phase phase;
	uint64_t version;        /* of the content that the harness has put there */
	bool stale;              /* visits: bytes of an earlier visit may still come when the region is there again */
	/* loans only */
	struct neap_grant_token token;
	unsigned rights;
	uint32_t for_incarnation; /* of the initiator whose instance it names; UINT32_MAX: any */
};

/* What an incarnation of a node has of the network of devices. */
struct te_seat {
	struct sim_seat *of;
	unsigned char *memory; /* buffers */
	uint32_t next_buffer;
	bool used[BUFFERS];
};

struct te_core {
	struct sim_node *sim_node;
	struct neap_engine *engine; /* NULL: there is none */
	struct te_link links[NODES_MAX];
	bool closing;
};

struct te_node {
	struct te_world *world;
	uint32_t index, incarnation, core_count;
	struct te_core cores[CORES_MAX];
	unsigned char *arena;
	unsigned char *memory; /* registered region of this incarnation, between guards */
	uint64_t memory_bytes;
	struct te_piece *blocks; /* [initiator][block] */
	struct te_slot visits[NODES_MAX], loans[NODES_MAX]; /* by initiator */
	enum slot_phase visit_phase;
	neap_region_id visit_region, loan_region;
	struct te_piece bulk;
	uint8_t instance[16];
	uint32_t inflight;
	uint64_t leaving_since_ns;
	uint64_t memory_hash; /* of a node that is gone: nothing changes any more */
	bool up, leaving, gone, hashed;
	struct te_seat *seat; /* NULL: no devices */
	uint8_t dialect; /* 0: Neap, 1: plain v2, 2: plain v1 */
};

/* What is said of an operation before it is submitted. */
enum te_hope { HOPE_ANY, HOPE_NO_SUCCESS };

struct te_operation {
	bool used, ended, held; /* held: ended, and the buffer is not the user's yet */
	uint32_t initiator, initiator_incarnation, core, target, target_incarnation;
	enum te_hope hope;
	struct neap_request request;
	struct neap_grant_token token;
	struct te_piece *piece;      /* NULL: none of its own, or it was taken back */
	const char *where;
	unsigned char *target_memory; /* of the piece, in this process's memory: the simulation sees everything */
	unsigned char *before, *after, *local, *poison;
	struct te_seat *seat;        /* whose buffer `local` is; NULL: none */
	uint32_t buffer;
	unsigned char *frozen;       /* the piece as it was when it was taken back */
	uint32_t bytes, offset;      /* of the piece; of the operation in it */
	uint32_t batch, batch_index, batch_serial;
	bool cancel_asked, deadline, segment_closed;
	bool came_again;             /* its region is there again, at the same place: to the library it is the same */
	bool alone;                  /* its engine had nothing else to do: what was repeated was this */
	uint64_t repeated_before;
};

struct te_batch {
	struct te_world *world;
	bool used, told, keep;
	neap_batch_id id;
	uint32_t initiator, initiator_incarnation, core, count, ended, completed, held, serial;
	struct te_operation *operations[BATCH_REQUESTS_MAX];
	struct neap_outcome outcomes[BATCH_REQUESTS_MAX];
	uint32_t note; /* sent when all are COMPLETED; UINT32_MAX: none */
};

/* A notify message and what became of it. */
struct te_note {
	bool of_batch, sent_told, allowed;
	int sent_error;
	uint32_t sender, sender_incarnation, target, target_incarnation, received;
};

/* A callback that is owed by one incarnation of a node: ended, released. */
struct te_call {
	struct te_world *world;
	uint32_t node, incarnation, slot; /* NODES_MAX: of the visits' region */
	bool used;
};

struct te_world {
	struct sim *sim;
	struct te_options options;
	struct te_result *result;
	struct sim_fabric *fabric; /* NULL: TCP alone */
	struct te_node nodes[NODES_MAX];
	struct te_node *graves[GRAVES_MAX + 2 * NODES_MAX]; /* incarnations that are gone; the rest for those that leave at the end */
	uint32_t grave_count;
	struct te_operation operations[OPERATIONS_MAX];
	struct te_batch batches[BATCHES_MAX];
	struct te_note notes[NOTES_MAX];
	struct te_call calls[CALLS_MAX];
	uint32_t used_operations, issued, batch_serial, note_count;
	uint32_t written[NODES_MAX][NODES_MAX]; /* the block whose last write has just ended, by initiator and target */
	uint64_t slot_version;
	uint64_t quiet_until_ns; /* no fault of its aim until then */
	bool faults, issuing, remote_only, closing, logs;
};

static inline struct sim_random *te_workload(struct te_world *world)
{
	return &world->sim->random[SIM_WORKLOAD];
}
static inline struct sim_random *te_chance(struct te_world *world)
{
	return &world->sim->random[SIM_FAULTS];
}
/* Says so once: the first violation stands. */
void te_violation(struct te_world *world, const char *format, ...) NEAP_PRINTF(2, 3);
/* With NEAP_SIM_LOG: the operation, and its outcome when there is one. */
void te_log(const struct te_world *world, const struct te_operation *op, const struct neap_outcome *outcome);
void te_log_event(const struct te_world *world, const char *format, ...) NEAP_PRINTF(2, 3);
/* True once, when this is the sabotage that was asked for and it is time for it. */
bool te_sabotage(struct te_world *world, enum te_sabotage sabotage);

/* --- te_node.c */
bool te_node_start(struct te_node *node);
bool te_node_awake(const struct te_node *node, uint32_t core);
/* Takes it out of the world at once, or lets it run out; both end in a grave. */
void te_node_crash(struct te_node *node, bool host_dies);
void te_node_leave(struct te_node *node, bool stop_reactors);
void te_node_finish(struct te_node *node);
/* Its engines' statistics go into the result. */
void te_node_count(struct te_node *node);
uint64_t te_node_hash(const struct te_node *node);
void te_node_free(struct te_node *node);
void te_link_open(struct te_node *node, uint32_t core, uint32_t target);
struct te_piece *te_block(struct te_node *target, uint32_t initiator, uint32_t block);
/* The incarnation of a node that a callback is for: the node itself while it lives, a grave, or NULL. */
bool te_is_current(const struct te_world *world, uint32_t node, uint32_t incarnation);

/* --- te_check.c */
void te_fill(unsigned char *memory, size_t length, uint64_t version);
bool te_is_filled(const unsigned char *memory, size_t from, size_t to, uint64_t version);
uint64_t te_hash(const unsigned char *memory, size_t length);
void te_check_end(struct te_world *world, struct te_operation *op, const struct neap_outcome *outcome);
void te_poison(struct te_world *world, struct te_operation *op);
/* Nothing is under way on it: it holds what is expected. */
void te_check_piece(struct te_world *world, const struct te_piece *piece, const char *where);
/* It holds its content or another (NULL: nobody knows which), or a mixture; and it is known again. */
void te_taint(struct te_piece *piece, const unsigned char *other);
void te_untaint(struct te_piece *piece);
void te_check_node(struct te_world *world, struct te_node *node);
void te_count(struct te_world *world, const struct te_operation *op, const struct neap_outcome *outcome);

/* --- te_work.c */
void te_work(struct sim *sim, void *user, uint64_t argument);
/* Ended operations and their poisoned buffers stay for a while, then they are compared and freed. */
void te_sweep(struct te_world *world, bool all);
bool te_work_pending(const struct te_world *world, uint32_t node, uint32_t incarnation);
void te_notify_watch(struct te_node *node);
bool te_notes_owed(const struct te_world *world);
void te_check_notes(struct te_world *world);

/* --- te_slots.c */
void te_slots_begin(struct te_node *node);
/* Over devices the end of a grant waits for those that have keys of the same slab. */
void te_slots_end_loans(struct te_world *world);
void te_slots_turn(struct sim *sim, void *user, uint64_t argument);
/* The memory goes elsewhere, as far as its owner is concerned: later changes are violations. */
void te_slot_take_back(struct te_world *world, struct te_slot *slot);
/* The owner is gone: what is under way on its memory is judged by what is there. */
void te_piece_detach(struct te_piece *piece);
bool te_calls_owed(const struct te_world *world);

/* --- te_faults.c */
void te_fault(struct sim *sim, void *user, uint64_t argument);

/* --- te_aims.c */
bool te_aims_fault(struct te_world *world); /* one of the faults of its aim */
uint32_t te_aims_block(struct te_world *world, const struct te_operation *op, uint32_t drawn); /* of those that are worked on */
void te_aims_range(struct te_world *world, struct te_operation *op, uint64_t *length_p);
void te_aims_ended(struct te_world *world, const struct te_operation *op);

/* --- te_rdma.c: nothing to do in a world without devices */
void te_fabric_begin(struct te_world *world);
void te_fabric_end(struct te_world *world);
void te_fabric_fault(struct te_world *world, struct te_node *node);
void te_fabric_heal(struct te_world *world);
void te_fabric_check_healed(struct te_world *world);
void te_fabric_check_idle(struct te_world *world);
void te_fabric_look_again(struct te_world *world); /* what peers say of their devices is read anew */
bool te_fabric_is_whole(const struct te_world *world); /* each node has devices and nothing else */
uint64_t te_fabric_posted(const struct te_world *world); /* by the nodes that are up */
void te_fabric_place(const struct te_world *world, const struct te_operation *op);
void te_seat_begin(struct te_node *node);
int te_seat_make_engine(struct te_node *node, struct neap_engine **engine_p, struct neap_engine_options *options, char *why, size_t why_size);
void te_seat_count(const struct te_node *node);
void te_seat_kill(struct te_node *node);
void te_seat_let_go(const struct te_node *node);
void te_seat_free(struct te_node *node);
unsigned char *te_buffer_take(struct te_node *node, struct te_operation *op, size_t bytes);
void te_buffer_give(const struct te_operation *op);

#endif
