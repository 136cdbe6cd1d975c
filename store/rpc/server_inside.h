/* The server from inside: server.c (listener, life), session.c (a connection), incoming.c (calls and their answers), lanes.c (what is
 * remembered of clients). */
#ifndef NEAP_STORE_RPC_SERVER_INSIDE_H
#define NEAP_STORE_RPC_SERVER_INSIDE_H

#include "reactor/listen.h"
#include "store/rpc/hello.h"
#include "store/rpc/pipe.h"
#include "store/rpc/server.h"
#include "store/rpc/session_fsm.h"

struct rpc_session;
struct rpc_lane;

/* A call that its handler has not answered yet. */
struct rpc_incoming {
	struct rpc_session *session; /* who waits; NULL: nobody now */
	struct rpc_incoming *previous, *next; /* in the session's list */
	const struct neap_rpc_handler *handler;
	uint64_t call;               /* the client's number of it, on that session */
	struct rpc_lane *lane;       /* NULL: its answer is not kept */
	uint64_t sequence;
	struct neap_rpc_block *block; /* set aside for the answer, `once` only */
	void (*canceled)(void *user, uint64_t handle);
	void *user;
};

struct rpc_session {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_rpc_server *server;
	struct rpc_session *older, *newer;
	struct neap_rpc_pipe pipe;
	struct neap_ready look;       /* whether there is room again */
	uint8_t instance[16];
	struct rpc_lane *lane;
	struct rpc_incoming *first;
	struct neap_rpc_resource *resources;
	uint64_t taken;               /* calls of this connection */
	uint64_t handle;
	uint32_t calls, peer_body_max;
	bool accepted;                /* counted by the acceptor */
	int status;                   /* of a hello that is refused */
	char why[NEAP_RPC_WHY_MAX];
};

/* A request id: nothing there; an incoming call; or its answer. */
struct rpc_entry {
	struct neap_rpc_block *block;
	uint64_t incoming;
};

/* A client's request ids, over its connections. */
struct rpc_lane {
	struct neap_rpc_server *server;
	struct rpc_session *session;
	struct neap_timer forget;     /* runs while there is no session */
	uint64_t lane, epoch, finished_below, idle_since_ns;
	struct rpc_entry *entries;    /* window_max, by sequence */
	uint8_t instance[16];
};

struct neap_rpc_server {
	struct neap_rpc_room room; /* first */
	struct neap_reactor_class *session_class;
	struct neap_dependent dependent;
	struct neap_reap reap;
	struct neap_acceptor acceptor;
	struct neap_pool sessions, incoming, lanes;
	struct neap_rpc_decoder decoder;
	struct neap_rpc_server_options options;
	struct neap_rpc_server_stats stats;
	const struct neap_rpc_handler *handlers;
	uint32_t handler_count;
	void *user;
	struct rpc_session *oldest, *newest;
	struct neap_ready halt;
	void (*stopped)(void *user);
	bool stopping, told, closing;
};

extern const struct neap_machine_kind rpc_session_kind;

/* --- session.c */
void rpc_session_begin(struct neap_rpc_server *server, struct neap_stream *stream, bool accepted);
/* Takes it out of everything; releases its resources. */
void rpc_session_end(struct rpc_session *session);
void rpc_session_break(struct rpc_session *session, const char *why);
bool rpc_session_full(const struct rpc_session *session);

/* --- incoming.c */
void rpc_call_arrived(struct rpc_session *session, const struct neap_rpc_head *head, const uint8_t *body);
void rpc_cancel_arrived(struct rpc_session *session, uint64_t call);
/* The session ends: nobody waits for its calls now. */
void rpc_incoming_orphan(struct rpc_session *session);
void rpc_incoming_drop_all(struct neap_rpc_server *server);

/* --- lanes.c */
/* Finds, makes or renews it. 0; NEAP_ENOSESSION; NEAP_ELIMIT; NEAP_ENOMEM. */
int rpc_lane_join(struct neap_rpc_server *server, const struct rpc_hello *hello, struct rpc_session *session);
void rpc_lane_leave(struct rpc_lane *lane);
void rpc_lane_drop(struct rpc_lane *lane);
/* The client has the answers to all below. */
void rpc_lane_finish(struct rpc_lane *lane, uint64_t below);
static inline struct rpc_entry *rpc_lane_entry(const struct rpc_lane *lane, uint64_t sequence)
{
	return &lane->entries[sequence & (lane->server->options.window_max - 1)];
}

#endif
