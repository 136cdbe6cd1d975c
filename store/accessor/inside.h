/* The accessor from inside: accessor.c (the room), ask.c (calls to owners), bytes.c (transfers, grants, sums), put.c and get.c (the
 * machines), here.c (values of this process), batch.c. */
#ifndef NEAP_STORE_ACCESSOR_INSIDE_H
#define NEAP_STORE_ACCESSOR_INSIDE_H

#include "reactor/core.h"
#include "reactor/pool.h"
#include "store/accessor/accessor.h"
#include "store/accessor/get_fsm.h"
#include "store/accessor/peers.h"
#include "store/accessor/put_fsm.h"
#include "store/peer/token.h"

struct accessor_op;

/* A call to an owner, as an operation makes it: again and again with one request id while its fate is not known. */
struct ask {
	const struct neap_rpc_method *method;
	void (*answered)(struct accessor_op *op, const void *reply);
	/* The owner's own answer: not done. `status` is a number of the store. */
	void (*refused)(struct accessor_op *op, int status);
	/* To be asked again after a pause. NULL: an event, `lost` */
	void (*lost)(struct accessor_op *op);
	/* No answer will come. `perhaps`: it may have been executed. */
	void (*given_up)(struct accessor_op *op, bool perhaps);
	uint8_t lost_event;
	bool insist;      /* an owner that cannot be reached is asked again: something of ours is there */
	bool blameless;   /* its failure is not why the operation failed */
	bool moves;       /* it takes as long as the bytes take */
	bool cleans;      /* within the time for that, the operation's own may be over */
};

enum accessor_kind { ACCESSOR_PUT, ACCESSOR_GET, ACCESSOR_RESOLVE };

/* A put, a get, or a resolve: one object, so that one pool bounds them all. */
struct accessor_op {
	struct neap_machine machine;
	struct neap_timer timer, pause;
	struct neap_ready work; /* sums, a piece at a time */
	struct neap_store_peer_waiter waiter;
	struct neap_accessor *accessor;
	struct accessor_op *todo_next;
	uint64_t handle;
	uint8_t kind; /* enum accessor_kind */
	uint8_t todo_event, pause_event;
	bool todo, fresh, cancel_asked; /* in the accessor's list; to be started; its caller wants it to end */
	bool told, asking;              /* its outcome was told; the directory owes an answer */

	/* what was asked */
	enum neap_direction direction;
	bool inline_allowed, verify;
	uint32_t slice_count, key_length, routes_max;
	uint64_t total, began_ns, deadline_ns;
	neap_store_done_func *done;
	void (*released)(void *user);
	void *user;

	/* where it is */
	struct neap_route routes[NEAP_ROUTES_MAX];
	uint32_t route_count, next_route, tries; /* tries: owners, the same one again included */
	bool placed, exists, summed, asked_directory, asked_anew, from_cache;
	struct neap_store_peer *peer;
	const struct neap_route *route; /* of `peer` */
	enum neap_way way;

	/* the call under way */
	const struct ask *ask;
	uint64_t call, asked_ns, cleanup_ns;
	struct neap_rpc_id id;
	bool has_id, perhaps, cut;
	uint32_t attempts, revokes, agains;
	struct neap_finished_list riding;

	/* what the owner has granted */
	uint64_t owner_id; /* write or read operation */
	uint64_t remote_address, guard_ns;
	struct neap_grant_token remote_token;

	/* bytes on their way */
	neap_batch_id batch;
	bool batch_runs;
	uint32_t held;
	uint64_t length; /* of the value, as far as it concerns the slices */
	struct neap_outcome failure;
	uint32_t failed_slice;
	bool failed;
	bool loose; /* bytes that we wrote may still arrive */
	bool quiet; /* who was lent to has said that he is through, or never heard of it */
	uint32_t lent, recalling; /* our grants: made, and being ended */
	uint8_t verdict;          /* the event when none is left */
	uint64_t lent_bytes;
	bool has_expected;
	uint32_t sum, expected;
	uint32_t sum_slice;
	uint64_t sum_offset, sum_left;

	/* how it ends */
	int stopped; /* NEAP_ETIMEDOUT, NEAP_ECANCELED: no other owner is tried */
	bool final;  /* nor is one when this error cannot be another's fault */
	struct neap_store_outcome outcome;
	struct neap_unsettled unsettled;
	struct neap_settle settle;
	char why[400];

	struct neap_slice_of slices[NEAP_MOVE_SLICES_MAX];
	struct neap_grant_token tokens[NEAP_MOVE_SLICES_MAX];
	char key[NEAP_KEY_MAX];
};

struct accessor_batch {
	struct neap_accessor *accessor;
	struct accessor_batch *previous, *next; /* that may have something to start */
	const struct neap_batch_item *items;
	struct neap_store_batch_options options;
	uint32_t count, started, running, ended, succeeded;
	uint64_t deadline_ns;
	bool get, canceled, queued;
};

/* An item under way. */
struct accessor_slot {
	struct accessor_batch *batch;
	uint32_t index;
	neap_operation_id operation; /* 0: its outcome is known */
	struct neap_store_outcome outcome; /* of one whose buffers are held */
	struct neap_unsettled unsettled;
};

/* An owner that is being asked to remove a key. */
struct accessor_removal {
	struct neap_accessor *accessor;
	struct neap_store_peer *peer;
	struct neap_rpc_id id;
	uint64_t call, deadline_ns;
	uint32_t attempts, key_length;
	void (*done)(void *user, int error, const char *why);
	void *user;
	char key[NEAP_KEY_MAX];
};

struct neap_accessor {
	struct neap_engine *engine;
	struct neap_reactor *reactor;
	struct neap_places places;
	struct neap_accessor_options options;
	struct neap_rpc_client *client;
	struct neap_peers peers;
	struct neap_route_cache *routes;
	struct neap_reactor_class *put_class, *get_class;
	struct neap_pool ops, batches, slots, removals;
	struct neap_dependent dependent;
	struct neap_reap reap;
	struct neap_ready pump;
	struct accessor_op *todo_first, **todo_end;
	struct accessor_batch *batch_first, *batch_last;
	struct neap_accessor_stats stats;
	uint8_t instance[16];
	uint32_t broken;
	bool closing, leaving, gone;
	void (*closed)(void *user);
	void *closed_user;
};

extern const struct neap_machine_kind store_put_kind, store_get_kind;

static inline struct accessor_op *accessor_op_of(const struct neap_machine *machine)
{
	return (struct accessor_op *)(uintptr_t)((const char *)machine - offsetof(struct accessor_op, machine));
}
static inline struct neap_key accessor_key(const struct accessor_op *op)
{
	return (struct neap_key){op->key, op->key_length};
}
static inline struct neap_rpc_view accessor_key_view(const struct accessor_op *op)
{
	return (struct neap_rpc_view){op->key, op->key_length};
}
static inline uint64_t accessor_now(const struct accessor_op *op)
{
	return neap_now(op->accessor->reactor);
}
static inline void accessor_step(struct accessor_op *op, uint8_t event)
{
	neap_step(&op->machine, event, 0);
}

/* --- accessor.c */

/* Why the present attempt failed: `error`, a number of the outcome. The last one counts. */
NEAP_PRINTF(3, 4) void accessor_blame(struct accessor_op *op, int error, const char *format, ...);
/* It ends because of its caller or its deadline: that is its error from now on. */
void accessor_stop(struct accessor_op *op, int error);
/* Actions of both machines. */
void accessor_do_stop(struct neap_machine *machine, uint64_t argument);
void accessor_do_halt(struct neap_machine *machine, uint64_t argument);
/* Tells the outcome; the machine is in DONE or HOLDING. Without `held` the operation is gone afterwards. */
void accessor_tell(struct accessor_op *op, bool held);
/* The transport has let go after an outcome with held. The operation is gone afterwards. */
void accessor_release(struct accessor_op *op);
/* One more owner: makes it the present one, with its connection; way and route are set. False: none is left. */
bool accessor_next_owner(struct accessor_op *op);
/* Opens its segment; the machine hears of it with `reached` or `refused`, if need be later. */
void accessor_reach(struct accessor_op *op);
void accessor_leave_owner(struct accessor_op *op);
/* The directory; put_placed or get_placed follows, maybe from inside. */
void accessor_ask_directory(struct accessor_op *op);
/* An event that cannot happen: its outcome is told, its memory is not used again. */
void accessor_broken(struct neap_machine *machine, uint8_t event);
/* The owner has shown that the route is wrong. */
void accessor_stale(struct accessor_op *op);
/* It was of no use now; whether it is wrong is not known. */
void accessor_forget_route(struct accessor_op *op);

/* --- ask.c */

/* From an action. `request` NULL: none could be made (op->why says why). */
void accessor_ask(struct accessor_op *op, const struct ask *ask, const void *request);
/* Makes its end come now: the call under way is canceled, a pause ends. */
void accessor_cut(struct accessor_op *op);
/* The pause before the same question; then `event`. */
void accessor_pause(struct accessor_op *op, uint8_t event);
/* Pins for the request that is being made: none when it is a repeated one. */
struct neap_rpc_list accessor_ride(struct accessor_op *op, const struct ask *ask, struct finished_pin *items);

/* --- bytes.c */

/* Takes a lease that was granted for `lease_ms` to whoever asked at asked_ns. False: too little of it is left to begin. */
bool accessor_take_lease(struct accessor_op *op, uint64_t lease_ms);
/* The first `length` bytes of the slices, from or to the remote range, until the guard or the deadline. */
int accessor_transfer(struct accessor_op *op, enum neap_opcode opcode);
/* Grants on the slices for `length` bytes. Fills `slices`; 0, or a number for the outcome, with everything taken back. */
int accessor_lend(struct accessor_op *op, unsigned rights, struct remote_slice *slices, uint32_t *count_p);
/* Ends them; accessor_quiet is called in the end, at once when there are none. */
void accessor_recall(struct accessor_op *op);
/* Sums `length` bytes; accessor_summed is called in the end. */
void accessor_sum(struct accessor_op *op);
void accessor_copy_in(struct accessor_op *op, const void *bytes, uint64_t length);
void accessor_copy_out(const struct accessor_op *op, void *bytes);

/* --- remove.c */

void accessor_removals_cancel(struct neap_accessor *accessor);

/* --- here.c */

/* Its value is in this process, or is to stay here. */
bool accessor_begins_here(struct accessor_op *op);
void accessor_do_keep(struct neap_machine *machine, uint64_t argument);
void accessor_do_settle(struct neap_machine *machine, uint64_t argument);
void accessor_do_fetch(struct neap_machine *machine, uint64_t argument);
void accessor_forget_settling(struct accessor_op *op);

/* What the two machines make of it: put.c, get.c. */
/* The key has this value. */
void put_conclude(struct accessor_op *op, bool created, uint64_t size, uint64_t generation, bool has_crc, uint32_t crc);
/* Another owner had the key first, and its value is not known to differ from ours. */
void put_there_elsewhere(struct accessor_op *op);
void put_transferred(struct accessor_op *op, bool completed);
void put_quiet(struct accessor_op *op);
void put_summed(struct accessor_op *op);
void put_placed(struct accessor_op *op);
void get_transferred(struct accessor_op *op, bool completed);
void get_quiet(struct accessor_op *op);
void get_summed(struct accessor_op *op);
void get_placed(struct accessor_op *op);

/* --- batch.c */

void accessor_batches_run(struct neap_accessor *accessor);
void accessor_batches_cancel(struct neap_accessor *accessor);

#endif
