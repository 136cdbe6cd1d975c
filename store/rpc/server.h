/* The serving side of the store's RPC: a listener, a session for each connection, a table of methods. Machine: rpc_session.
 *
 * A method's handler gets the decoded request and the handle of an incoming call, and answers it at once or later, from the same reactor,
 * exactly once. Views and lists of the request are valid only until the handler returns: what is needed later is copied.
 *
 * Executed at most once: a call of a `once` method carries a request id. Its answer is kept until the client says that it has it; a
 * repeated call gets the answer byte by byte, and one that comes while the first is still under way gets its answer. The memory for the
 * answer is set aside before the method runs: when there is none, or the client's window is full, the call is refused, and never is an
 * answer forgotten that the client may still ask for. A session that was without connection for `session_keep_ns` is forgotten whole;
 * its client is then told NEAP_ENOSESSION.
 *
 * A call whose deadline has passed before its method ran is answered NEAP_ETIMEDOUT and not executed. At calls_max or replies_max a
 * session is not read from until there is room.
 *
 * When a connection ends: resources attached to it are released, each once; calls of `once` methods go on; others lose their handle (an
 * answer to them is NEAP_ESTALE and harmless).
 *
 * Statuses of an answer: 0, a negative number of the store, or of neap/error.h from -2001 down. Owner thread only. */
#ifndef NEAP_STORE_RPC_SERVER_H
#define NEAP_STORE_RPC_SERVER_H

#include "reactor/address.h"
#include "reactor/net.h"
#include "store/rpc/method.h"

struct neap_rpc_server;

struct neap_rpc_server_options {
	uint8_t instance[16];     /* of this process, random at each start; all zero: one is drawn */
	uint64_t epoch;           /* told in the welcome: the owner epoch */
	uint32_t connections_max; /* 0: 1024 */
	uint32_t calls_max;       /* under way of one connection; 0: 256 */
	uint32_t calls_total_max; /* of all; 0: 16384 */
	uint32_t body_max;        /* of a request; 0: 16 MiB; at least 4096 */
	size_t replies_max;       /* bytes that wait for one client to take them; 0: 4 MiB */
	size_t bytes_max;         /* requests that come in, replies that wait and answers that are kept, together; 0: 256 MiB */
	uint32_t lanes_max;       /* clients' lanes remembered; 0: 4096 */
	uint32_t window_max;      /* answers kept for one lane, a power of two; 0: 1024 */
	uint64_t hello_timeout_ns;    /* 0: 5 s */
	uint64_t frame_timeout_ns;    /* 0: 30 s */
	uint64_t progress_timeout_ns; /* 0: 10 s */
	uint64_t leave_timeout_ns;    /* 0: 10 s */
	uint64_t session_keep_ns;     /* 0: 10 min */
};

/* An incoming call as its handler sees it; valid during the handler's run, but for `handle`. */
struct neap_rpc_incoming {
	struct neap_rpc_server *server;
	uint64_t handle;      /* for neap_rpc_answer; 0: no call */
	uint64_t connection;  /* for neap_rpc_attach */
	const uint8_t *instance; /* of the client, 16 bytes */
	uint64_t deadline_ns; /* absolute; UINT64_MAX: none. What is left: deadline_ns - now */
};

struct neap_rpc_handler {
	const struct neap_rpc_method *method;
	void (*handle)(void *user, const struct neap_rpc_incoming *incoming, const void *request);
};

/* Listens. `handlers` stay valid. NEAP_ESOCKET (*system_errno_p), NEAP_ENOMEM, NEAP_EINVAL, with `why`. */
int neap_rpc_server_create(struct neap_rpc_server **server_p, struct neap_reactor *reactor, const struct neap_sockaddr *address,
                           const struct neap_rpc_handler *handlers, uint32_t handler_count,
                           const struct neap_rpc_server_options *options, void *user, int *system_errno_p, char *why,
                           size_t why_size);
uint16_t neap_rpc_server_port(const struct neap_rpc_server *server);
/* Serves a stream that comes from elsewhere (tests, other listeners). False: connections_max, the stream was closed. */
bool neap_rpc_server_serve(struct neap_rpc_server *server, struct neap_stream *stream);
/* Says goodbye to all: no new connection, no new call; answers still owed are sent. `stopped` is called once, with the handlers' user,
 * from a turn, when the last connection has gone, at leave_timeout_ns at the latest. */
void neap_rpc_server_stop(struct neap_rpc_server *server, void (*stopped)(void *user));
/* Ends the connections of one client process, as if they had broken: its heartbeats have stopped. A host that died without a word is found
 * in no other way when it owes nothing. What is remembered of its request ids stays for session_keep_ns. */
void neap_rpc_server_drop(struct neap_rpc_server *server, const uint8_t instance[16]);
/* The same for all instances for which `is_one` answers true. */
void neap_rpc_server_drop_if(struct neap_rpc_server *server, bool (*is_one)(const void *context, const uint8_t instance[16]),
                             const void *context);
/* At once. Resources are released, nothing else is called. */
void neap_rpc_server_destroy(struct neap_rpc_server *server);

/* Answers. `reply`: the struct of the method's reply, or NULL with a status; `why`: a sentence for a status, may be NULL. 0, or
 * NEAP_ESTALE: nobody waits any more. An answer that cannot be encoded (too long, a value over its bound) goes out as a refusal with
 * NEAP_ELIMIT, and so is the return. */
int neap_rpc_answer(struct neap_rpc_server *server, uint64_t handle, int status, const void *reply, const char *why,
                    uint64_t retry_after_ms);

/* Called once, from a turn, when the client cancels, or when the connection of a call that is not `once` has gone. The call is still to
 * be answered in the first case. */
int neap_rpc_on_cancel(struct neap_rpc_server *server, uint64_t handle, void (*canceled)(void *user, uint64_t handle), void *user);

/* Something that belongs to a connection: reservations, pins. The memory is the owner's, zeroed before first use. `release` is called
 * once, from a turn, when the connection has ended, unless it was detached; it may attach and detach others. */
struct neap_rpc_resource {
	struct neap_rpc_resource *next, **slot; /* slot NULL: not attached */
	void (*release)(struct neap_rpc_resource *resource);
};
/* NEAP_ESTALE: the connection has gone; nothing is called. */
int neap_rpc_attach(struct neap_rpc_server *server, uint64_t connection, struct neap_rpc_resource *resource);
void neap_rpc_detach(struct neap_rpc_resource *resource); /* harmless when not attached */

struct neap_rpc_server_stats {
	uint64_t connections, calls, executed, answered_again, attached, expired, canceled, refused, refused_window, refused_memory;
	uint64_t no_session, pauses, broken;
	size_t bytes;
	uint32_t connections_now, calls_now, lanes_now;
};
void neap_rpc_server_stats(const struct neap_rpc_server *server, struct neap_rpc_server_stats *stats_p);

#endif
