/* The service from inside. service.c: its life; service_calls.c: how a call begins and is answered, statistics; service_holdings.c: what
 * connections hold; service_forward.c, service_reverse.c, service_values.c: the methods. */
#ifndef NEAP_STORE_PEER_SERVICE_INSIDE_H
#define NEAP_STORE_PEER_SERVICE_INSIDE_H

#include "reactor/pool.h"
#include "store/key_hash.h"
#include "store/peer/methods.h"
#include "store/peer/service.h"
#include <neap/store_error.h>

/* Before a full owner or a busy key is worth another try, when nobody knows better. */
#define PEER_RETRY_NS (UINT64_C(50) * 1000000)

struct peer_connection;
struct peer_holding;

/* Oldest first. */
struct peer_line {
	struct peer_holding *first, *last;
	uint32_t count;
};
struct peer_link {
	struct peer_holding *previous, *next;
};
enum peer_line_of { PEER_OF_ALL, PEER_OF_CONNECTION, PEER_LINES };

/* A reservation or a pin that a connection holds: until it is committed, revoked or unpinned. When its lease ends or its connection does,
 * it is remembered as ended, so that whoever asks for it is told LEASE_EXPIRED and not that it never was. */
struct peer_holding {
	struct peer_link links[PEER_LINES];
	struct peer_holding *next_in_bucket;
	struct peer_connection *connection; /* NULL: ended */
	uint64_t id, key_hash, end_ns;
};

enum peer_kind { PEER_WRITE, PEER_PIN, PEER_KINDS };

/* All of a kind. Every lease is equally long, so they end in the order they were granted in. */
struct peer_holdings {
	struct neap_pool pool;
	struct peer_holding **buckets; /* by id */
	uint32_t bucket_mask, per_connection;
	struct peer_line line;
	struct peer_line ended; /* remembered as long as nobody needs the room */
};

struct peer_connection {
	struct neap_rpc_resource resource; /* first */
	struct neap_peer_service *service;
	struct peer_connection *next_in_bucket;
	uint64_t connection;
	uint8_t instance[16];
	struct peer_line lines[PEER_KINDS];
};

/* A call, from its arrival to its answer. */
struct peer_call {
	struct neap_peer_service *service;
	uint64_t handle, connection, begun_ns, deadline_ns;
	const uint8_t *instance; /* during the handler's run */
	uint32_t method;         /* less one */
};

#define PEER_KEY_INSIDE 104u

/* A commit, pull or push of the owner, and whom to answer. Ends with the owner's `done`, or when the value is settled. */
struct peer_operation {
	struct peer_call call;
	uint64_t size;
	uint32_t crc, key_length;
	bool has_crc;
	union {
		struct neap_settle settle;
		struct neap_bring bring; /* of a read whose value lies on a disk */
	} waits;
	bool look; /* LookUp */
	uint8_t instance[16], engine[16]; /* of a read that waits */
	union {    /* what is answered then */
		struct committed_reply committed;
		struct look_up_reply look_up;
	} reply;
	char *key_outside;
	char key_inside[PEER_KEY_INSIDE];
};

struct neap_peer_service {
	struct neap_key_secret secret; /* for what holdings keep of keys */
	struct neap_reactor *reactor;
	struct neap_engine *engine;
	struct neap_owner *owner;
	struct neap_rpc_server *rpc; /* NULL: gone */
	struct neap_peer_service_options options;
	struct neap_dependent dependent;
	struct peer_holdings holdings[PEER_KINDS];
	struct neap_pool connections, operations;
	struct peer_connection **connection_buckets;
	uint32_t connection_mask;
	struct neap_peer_service_stats stats;
	struct neap_ready ending;
	struct neap_reap reap;
	void (*closed)(void *user);
	void *closed_user;
	bool draining, closing;
};

/* --- service_calls.c */

/* False: it was answered, because the service drains. */
bool peer_begin(struct neap_peer_service *service, const struct neap_rpc_incoming *incoming, const struct neap_rpc_method *method,
                struct peer_call *call_p);
void peer_answer(const struct peer_call *call, const void *reply);
/* `error` of the store; `why` NULL: what the error's name says. */
void peer_refuse(const struct peer_call *call, int error, const char *why, uint64_t retry_after_ns);
/* Of that key. NULL: it was refused. */
struct peer_operation *peer_operation_begin(const struct peer_call *call, const struct neap_key *key);
/* Its call, for the answer. */
struct peer_call peer_operation_end(struct peer_operation *operation);

static inline struct neap_key peer_key(struct neap_rpc_view view)
{
	return (struct neap_key){view.bytes, view.length};
}

/* --- service_settle.c */

/* A value is there: the reply, when the directory has heard of it. Ends the operation. */
void peer_settle(struct peer_operation *operation, const struct committed_reply *reply);
/* Of a LookUp: a value that is not settled is pending. */
void peer_settle_look(const struct peer_call *call, const struct neap_key *key, const struct look_up_reply *reply);
/* Whether a value may be read. False: it was refused. */
bool peer_is_settled(const struct peer_call *call, const struct neap_key *key, const struct neap_key_facts *facts);
/* How long an answer can wait and still be in time. */
uint64_t peer_until(const struct peer_call *call);
/* The same for a call that has no operation yet. */
void peer_settle_call(const struct peer_call *call, const struct neap_key *key, const struct committed_reply *reply);

/* --- service_holdings.c */

int peer_holdings_create(struct neap_peer_service *service);
void peer_holdings_destroy(struct neap_peer_service *service);
/* 0, or how long until the connection may hold another one. Unknown to the connection: UINT64_MAX, there is no room at all. */
uint64_t peer_wait_for_room(struct neap_peer_service *service, const struct peer_call *call, enum peer_kind kind);
/* After peer_wait_for_room has said 0. False: the connection has gone. */
bool peer_hold(struct neap_peer_service *service, const struct peer_call *call, enum peer_kind kind, const struct neap_key *key,
               uint64_t id, uint64_t lease_ns);
/* NULL: committed, revoked, unpinned, forgotten, or never there. */
struct peer_holding *peer_held(struct neap_peer_service *service, enum peer_kind kind, uint64_t id);
/* Of one that has not ended: whether it is that process's, for that key. */
bool peer_holds(const struct peer_holding *holding, const uint8_t instance[16], const struct neap_key *key);
/* Its connection has it no longer, and nobody will ask for it. Of one that has not ended. */
void peer_let_go(struct neap_peer_service *service, enum peer_kind kind, struct peer_holding *holding);

/* --- service_forward.c */

void peer_pre_write(void *user, const struct neap_rpc_incoming *incoming, const void *request);
void peer_write_commit(void *user, const struct neap_rpc_incoming *incoming, const void *request);
void peer_write_revoke(void *user, const struct neap_rpc_incoming *incoming, const void *request);
void peer_pin_key(void *user, const struct neap_rpc_incoming *incoming, const void *request);
void peer_un_pin_key(void *user, const struct neap_rpc_incoming *incoming, const void *request);
/* The pins of readers that have finished, told along with another request. */
void peer_finish_pins(struct neap_peer_service *service, const uint8_t instance[16], const struct neap_rpc_list *finished);

/* --- service_reverse.c */

void peer_write_remote_data(void *user, const struct neap_rpc_incoming *incoming, const void *request);
void peer_read_remote_data(void *user, const struct neap_rpc_incoming *incoming, const void *request);

/* --- service_cold.c: the value lies on a disk and is read first */

void peer_pin_cold(const struct peer_call *call, const struct neap_key *key, const uint8_t engine[16]);
void peer_read_cold(const struct peer_call *call, const struct neap_key *key);
/* The end of both, with the value in memory; on any error it is refused. */
void peer_answer_pin(const struct peer_call *call, const struct neap_pin *pin, const struct neap_value *value);
void peer_answer_inside(const struct peer_call *call, const struct neap_value *value);

/* --- service_values.c */

void peer_look_up(void *user, const struct neap_rpc_incoming *incoming, const void *request);
void peer_remove_key(void *user, const struct neap_rpc_incoming *incoming, const void *request);
void peer_describe(void *user, const struct neap_rpc_incoming *incoming, const void *request);

#endif
