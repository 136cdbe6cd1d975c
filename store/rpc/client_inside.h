/* The client from inside: client.c (the room), channel.c (the connection), call.c (a call), ids.c (request ids). */
#ifndef NEAP_STORE_RPC_CLIENT_INSIDE_H
#define NEAP_STORE_RPC_CLIENT_INSIDE_H

#include "reactor/connect.h"
#include "store/rpc/call_fsm.h"
#include "store/rpc/channel_fsm.h"
#include "store/rpc/client.h"
#include "store/rpc/pipe.h"

#define RPC_IDS_MAX 1024u /* from the oldest unfinished to the newest */

/* Which ids of a lane's epoch are out. */
struct rpc_ids {
	uint64_t epoch, next, finished_below;
	uint64_t finished[RPC_IDS_MAX / 64]; /* by sequence, those at or above finished_below */
};
void rpc_ids_begin(struct rpc_ids *ids, uint64_t epoch);
int rpc_ids_take(struct rpc_ids *ids, struct neap_rpc_id *id_p); /* NEAP_EAGAIN */
void rpc_ids_finish(struct rpc_ids *ids, const struct neap_rpc_id *id);

struct rpc_call;

struct rpc_call_list {
	struct rpc_call *first, *last;
};

struct rpc_call {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_rpc_channel *channel;
	struct rpc_call *previous, *next;
	struct rpc_call_list *list;         /* the one it is in */
	const struct neap_rpc_method *method;
	struct neap_rpc_block *block;       /* the request, until its last byte was given to the network */
	struct neap_rpc_id id;              /* of `once` methods */
	bool own_id;                        /* taken for this attempt alone */
	uint8_t fate;                       /* in the list `falling`: the event that ends it */
	int status;                         /* of fate REFUSED: 0 or a NEAP_E number */
	uint64_t deadline_ns, sent_ns;
	uint64_t ordinal;                   /* among the calls of this connection, from 1; 0: not sent */
	neap_rpc_done_func *done;
	void *user;
};

struct neap_rpc_channel {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_rpc_client *client;
	struct neap_rpc_channel_options options;
	struct neap_connect connect;
	struct neap_rpc_pipe pipe;
	struct neap_ready pump;
	struct rpc_call_list fresh, calls, falling; /* to be started; waiting and under way; to be ended */
	struct rpc_ids ids;
	uint32_t call_count, sent_count; /* all; of `calls` those in SENT */
	uint64_t ordinals;               /* calls given to this connection */
	uint64_t goodbye_taken;
	uint64_t backoff_ns, greeted_ns;
	uint32_t peer_body_max;
	bool resume, closed, closing, connect_wanted;
	int error;                       /* of what ended the last connection, with why */
	char peer[NEAP_ADDRESS_TEXT_MAX];
	char why[NEAP_RPC_WHY_MAX + NEAP_ADDRESS_TEXT_MAX + 8];
};

struct neap_rpc_client {
	struct neap_rpc_room room; /* first */
	struct neap_reactor_class *call_class, *channel_class;
	struct neap_dependent dependent;
	struct neap_reap reap;
	struct neap_pool calls, channels;
	struct neap_rpc_decoder decoder;
	struct neap_rpc_client_options options;
	struct neap_rpc_client_stats stats;
	bool closing;
	/* of the reply that is being delivered */
	const struct neap_rpc_head *reply_head;
	const void *reply;
};

extern const struct neap_machine_kind rpc_call_kind, rpc_channel_kind;

/* --- call.c */
static inline struct rpc_call *rpc_call_of(const struct neap_machine *machine)
{
	return (struct rpc_call *)(uintptr_t)((const char *)machine - offsetof(struct rpc_call, machine));
}
void rpc_call_move(struct rpc_call *call, struct rpc_call_list *list);
/* It ends with this event, outside of actions, soon. */
void rpc_call_fall(struct rpc_call *call, uint8_t fate, int status);
/* Runs what `fresh` and `falling` hold. */
void rpc_channel_pump(struct neap_ready *ready);
/* Without callback. */
void rpc_call_drop(struct rpc_call *call);

/* --- channel.c */
/* Queues its request on the open connection, with what only now is known. */
void rpc_channel_push(struct neap_rpc_channel *channel, struct rpc_call *call);
/* Takes it apart without callbacks. */
void rpc_channel_drop(struct neap_rpc_channel *channel);
/* Tells the server that nobody waits any more. */
void rpc_channel_tell_cancel(struct neap_rpc_channel *channel, uint64_t call);
NEAP_PRINTF(3, 4) void rpc_channel_note(struct neap_rpc_channel *channel, int error, const char *format, ...);

#endif
