/* The calling side of the store's RPC. A client is a process's room for calls on one reactor; a channel is one connection to one
 * server, made when there is something to say and made anew after a loss. Machines: rpc_channel, rpc_call.
 *
 * Every call that was accepted ends once, from a turn, never from inside neap_rpc_call, with an outcome that says what is known:
 *
 *   OK         the reply is there
 *   REFUSED    the server answered with a status: a number of the store, or of neap/error.h from -2001 down
 *   DEADLINE   no answer in time            \
 *   CANCELED   the caller asked             |  `executed` says whether it can have been executed
 *   CLOSED     the channel was closed       /
 *   NOT_SENT   the server was not reached, or has said that it does not take it: definitely not executed
 *   UNKNOWN    the whole request was given to the network and the connection was lost: perhaps executed
 *
 * Repeating. A method that changes something (`once`) carries a request id, and the server executes each id at most once. Who wants to
 * repeat a call takes an id himself (neap_rpc_id_take), passes it with each attempt, and gives it back (neap_rpc_id_finish) when he
 * needs the answer no more: only then does the server forget it. Without one the channel takes an id for the single attempt. When
 * the server has lost its memory of our ids, calls with an older id end REFUSED with NEAP_ENOSESSION, without being executed now;
 * whether an earlier attempt was, nobody can tell.
 *
 * Heartbeats: give them a channel of their own, with `lane` 0. Nothing queues before them then.
 *
 * Owner thread only. Times in nanoseconds. */
#ifndef NEAP_STORE_RPC_CLIENT_H
#define NEAP_STORE_RPC_CLIENT_H

#include "reactor/address.h"
#include "reactor/net.h"
#include "store/rpc/method.h"

struct neap_rpc_client;
struct neap_rpc_channel;

struct neap_rpc_client_options {
	uint8_t instance[16];  /* of this process, random at each start; all zero: one is drawn */
	uint32_t channels_max; /* 0: 256 */
	uint32_t calls_max;    /* of all channels; 0: 4096 */
	uint32_t body_max;     /* of a reply; 0: 16 MiB; at least 4096 */
	size_t bytes_max;      /* requests that wait and replies that come in, together; 0: 64 MiB */
	uint64_t connect_timeout_ns;  /* 0: 3 s */
	uint64_t hello_timeout_ns;    /* from connected to welcome; 0: 3 s */
	uint64_t frame_timeout_ns;    /* 0: 30 s */
	uint64_t progress_timeout_ns; /* 0: 10 s */
	uint64_t leave_timeout_ns;    /* for the answers that a leaving server still owes; 0: 10 s */
	uint64_t silence_ns;          /* a connection from which nothing came for so long, while a call ran out, is given up; 0: 10 s */
	uint64_t backoff_min_ns, backoff_max_ns; /* pause after a failure, doubling; 0: 20 ms, 1 s */
};

/* `options` may be NULL. NEAP_ENOMEM, NEAP_EINVAL (body_max), NEAP_ELIMIT. */
int neap_rpc_client_create(struct neap_rpc_client **client_p, struct neap_reactor *reactor,
                           const struct neap_rpc_client_options *options);
/* Ends all channels and calls at once, without callbacks. */
void neap_rpc_client_destroy(struct neap_rpc_client *client);

struct neap_rpc_channel_options {
	struct neap_host_port server;
	/* Number of the request id space, unlike that of every other channel of this process to the same server. 0: none; calls of `once`
	 * methods are then refused. */
	uint64_t lane;
	uint8_t expected[16]; /* instance of the server that is meant; all zero: whoever answers */
	uint32_t calls_max;   /* waiting and under way; 0: 1024 */
	/* The server has welcomed us (first and after each reconnect): its instance and owner epoch. May be NULL */
	void (*welcomed)(void *user, const uint8_t instance[16], uint64_t epoch);
	void *user;
};

/* Connects with the first call, or with neap_rpc_channel_connect. NEAP_EAGAIN: channels_max. NEAP_EINVAL. */
int neap_rpc_channel_open(struct neap_rpc_channel **channel_p, struct neap_rpc_client *client,
                          const struct neap_rpc_channel_options *options);
void neap_rpc_channel_connect(struct neap_rpc_channel *channel);
/* Calls end with CLOSED in a later turn. The pointer is dead from here on. */
void neap_rpc_channel_close(struct neap_rpc_channel *channel);

enum neap_rpc_result {
	NEAP_RPC_OK,
	NEAP_RPC_REFUSED,
	NEAP_RPC_DEADLINE,
	NEAP_RPC_CANCELED,
	NEAP_RPC_NOT_SENT,
	NEAP_RPC_UNKNOWN,
	NEAP_RPC_CLOSED,
};
const char *neap_rpc_result_name(enum neap_rpc_result result);

enum neap_rpc_executed { NEAP_RPC_NOT_EXECUTED, NEAP_RPC_EXECUTED, NEAP_RPC_PERHAPS };

struct neap_rpc_outcome {
	enum neap_rpc_result result;
	/* OK: EXECUTED. REFUSED: EXECUTED when it was the method that answered so, NOT_EXECUTED when the RPC refused it before. */
	enum neap_rpc_executed executed;
	int status;              /* 0, what the server said, or the NEAP_E number of what happened here */
	uint64_t retry_after_ms; /* REFUSED: when the server said so */
	const char *why;         /* "" for OK; else names the peer and the cause; valid during the callback */
};

/* `reply`: the struct of the method's reply, valid during the callback; NULL unless OK. */
typedef void neap_rpc_done_func(void *user, const struct neap_rpc_outcome *outcome, const void *reply);

struct neap_rpc_id {
	uint64_t epoch, sequence;
};
/* NEAP_EAGAIN: 1024 ids from the oldest unfinished one are out. NEAP_EINVAL: the channel has no lane. */
int neap_rpc_id_take(struct neap_rpc_channel *channel, struct neap_rpc_id *id_p);
void neap_rpc_id_finish(struct neap_rpc_channel *channel, const struct neap_rpc_id *id);

/* `request` is encoded before the call returns. `id` NULL: a single attempt. `timeout_ns` travels along; there is no call
 * without one. *call_p (may be NULL): a handle for cancel. Not accepted, no callback: NEAP_EAGAIN (calls_max, bytes_max or ids: try
 * again when something has ended), NEAP_EINVAL, NEAP_ELIMIT (the server takes no body that long), NEAP_ECLOSED. */
int neap_rpc_call(struct neap_rpc_channel *channel, const struct neap_rpc_method *method, const void *request, uint64_t timeout_ns,
                  const struct neap_rpc_id *id, neap_rpc_done_func *done, void *user, uint64_t *call_p);
/* It ends CANCELED in this or a later turn, unless it ends otherwise before. The server is told. Harmless when it has ended. */
void neap_rpc_cancel(struct neap_rpc_client *client, uint64_t call);

struct neap_rpc_client_stats {
	uint64_t calls, ok, refused, deadline, canceled, not_sent, unknown, closed;
	uint64_t connects, losses, sessions_lost, late_replies; /* late: to a call that had ended */
	size_t bytes; /* held now */
	uint32_t calls_now, channels_now;
};
void neap_rpc_client_stats(const struct neap_rpc_client *client, struct neap_rpc_client_stats *stats_p);

#endif
