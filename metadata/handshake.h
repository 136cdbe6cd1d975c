/* The handshake channel: one framed JSON request and one reply on a TCP connection. docs/WIRE.md "Handshake".
 *
 * Frame: u64 LE length (of type byte and JSON) | u8 type | JSON. The old protocol has no type byte; its type is taken as
 * CONNECTION. Machines: handshake_session (served), handshake_call (made). Owner thread only. */
#ifndef NEAP_METADATA_HANDSHAKE_H
#define NEAP_METADATA_HANDSHAKE_H

#include "reactor/address.h"

enum neap_handshake_type {
	NEAP_HANDSHAKE_CONNECTION = 0,
	NEAP_HANDSHAKE_METADATA = 1,
	NEAP_HANDSHAKE_NOTIFY = 2,
	NEAP_HANDSHAKE_PROBE = 3,
};

#define NEAP_HANDSHAKE_LENGTH_DEFAULT (1024u * 1024u)
#define NEAP_HANDSHAKE_LENGTH_MAX (128u * 1024u * 1024u)

/* --- frames (pure) ------------------------------------------------------------------------------------------------ */

/* Incremental reader: memory grows with what has arrived, never with what was announced. */
struct neap_frame_reader {
	uint32_t length_max;
	uint8_t head[8];
	uint32_t head_have;
	uint64_t length; /* announced */
	char *body;      /* heap, grows by doubling up to `length` */
	size_t body_have, body_capacity;
	size_t capacity_max; /* body_capacity may not pass it: the owner's budget; SIZE_MAX after init */
};
enum neap_frame_state { NEAP_FRAME_MORE, NEAP_FRAME_DONE, NEAP_FRAME_BAD };
void neap_frame_reader_init(struct neap_frame_reader *reader, uint32_t length_max);
void neap_frame_reader_reset(struct neap_frame_reader *reader); /* frees the body */
/* Takes bytes; *used_p how many. BAD: zero or too large length, out of memory; `why` says which limit. */
enum neap_frame_state neap_frame_reader_feed(struct neap_frame_reader *reader, const void *bytes, size_t length, size_t *used_p,
                                             char *why, size_t why_size);
/* After DONE: the type (old protocol: CONNECTION, *old_p true; an unknown type: -1) and the JSON text inside the body. */
int neap_frame_type(const struct neap_frame_reader *reader, bool *old_p, const char **json_p, size_t *json_length_p);
/* Head of a frame around `json_length` bytes of JSON: 9 bytes, or 8 for the old protocol. Returns the size. */
size_t neap_frame_head(uint8_t head[9], int type, bool old, size_t json_length);

/* --- payloads (pure but for malloc) ------------------------------------------------------------------------------- */

/* Encoders write compact JSON with sorted keys and a final newline. NEAP_EINVAL: a text is not UTF-8. Decoders: NEAP_EJSON (not
 * JSON, wrong type), NEAP_ELIMIT, NEAP_ENOMEM; absent fields and null read as empty. */
struct neap_notify_message {
	char *name, *message; /* heap */
};
int neap_notify_decode(const char *json, size_t length, struct neap_notify_message *message_p, char *why, size_t why_size);
int neap_notify_encode(const char *name, const char *message, char **json_p, size_t *length_p);
void neap_notify_free(struct neap_notify_message *message);

#define NEAP_QPS_MAX 256u
#define NEAP_GID_TEXT_MAX 64u
/* What Neap peers tell each other besides (the key "neap", which others ignore). */
struct neap_connection_extra {
	bool present;
	bool retire;          /* asks for the end of the receiver's half of this path; answered when it is destroyed */
	uint8_t instance[16]; /* of the sender's process */
	struct neap_host_port address; /* where the sender takes handshakes; without a host: it has not said */
	uint32_t mtu_bytes, depth;
	uint32_t reads;       /* of the receiver's that one queue pair of the sender's serves at once; 0: it has not said */
	uint64_t epoch;       /* of the sender's endpoint on this path: a later one has a larger number */
	uint32_t fence;       /* how often the sender has fenced a peer: grants from before are not for queue pairs that come after */
	uint32_t psns[NEAP_QPS_MAX]; /* with which each of its queue pairs begins to send */
	uint32_t psn_count;
};
/* Type 0: what two RDMA ends tell each other of their queue pairs. */
struct neap_connection_message {
	char *local_nic_path, *peer_nic_path, *reply_msg, *payload; /* heap, never NULL after decode */
	uint8_t local_gid[16];
	bool has_gid;
	char bad_gid[NEAP_GID_TEXT_MAX]; /* "", or what came instead of a GID, made printable: to be answered with reply_msg */
	uint16_t local_lid;
	uint32_t qp_nums[NEAP_QPS_MAX];
	uint32_t qp_count;
	bool has_ready_ack, ready_ack;
	struct neap_connection_extra neap;
};
/* NEAP_EINVAL: the types are right and a value is not (lid, queue pair numbers, what is in "neap"): to be answered with reply_msg. */
int neap_connection_decode(const char *json, size_t length, struct neap_connection_message *message_p, char *why, size_t why_size);
int neap_connection_encode(const struct neap_connection_message *message, char **json_p, size_t *length_p);
void neap_connection_free(struct neap_connection_message *message);
/* To be freed. NEAP_ENOMEM: *copy_p is empty. */
int neap_connection_copy(const struct neap_connection_message *message, struct neap_connection_message *copy_p);

/* --- service ------------------------------------------------------------------------------------------------------ */

struct neap_handshake_service;

#define NEAP_HANDSHAKE_LATER 1

struct neap_handshake_handlers {
	/* The reply for a METADATA request: JSON of the local descriptor, heap (malloc), or NULL for the literal null. */
	char *(*describe)(void *user, size_t *length_p);
	/* A notify arrived (strings valid during the call). NEAP_EAGAIN: the queue is full, the peer is told so. */
	int (*notify)(void *user, const char *name, const char *message);
	/* A CONNECTION request: fill *reply (zeroed strings are "" in the reply). NULL handler: the all-empty reply of a TCP-only node.
	 * An error gives a reply with reply_msg. NEAP_HANDSHAKE_LATER: neap_handshake_answer follows, with this ticket, after the
	 * handler has returned. */
	int (*connection)(void *user, uint64_t ticket, const struct neap_connection_message *request,
	                  struct neap_connection_message *reply);
	void *user;
};

struct neap_handshake_service_options {
	uint32_t sessions_max;       /* default 1024 */
	uint32_t length_max;         /* default 1 MiB */
	uint64_t request_timeout_ns; /* from accept to the whole request; default 5 s */
	uint64_t answer_timeout_ns;  /* until a handler that said LATER has answered; default 20 s */
	uint64_t reply_timeout_ns;   /* until the peer has taken the reply and closed; default 5 s */
};

/* Listens at `address` (port 0: a random one of [port_min, port_max], bound and kept). */
int neap_handshake_service_create(struct neap_handshake_service **service_p, struct neap_reactor *reactor,
                                  const struct neap_sockaddr *address, uint16_t port_min, uint16_t port_max,
                                  const struct neap_handshake_service_options *options,
                                  const struct neap_handshake_handlers *handlers, int *system_errno_p, char *why, size_t why_size);
/* The answer to a CONNECTION request that was left for later; `reply` is encoded at once. NEAP_ESTALE: nobody waits for it any more (the
 * session ran out of time or made room for others, or was answered before), which is harmless. Not from inside the handler. */
int neap_handshake_answer(struct neap_handshake_service *service, uint64_t ticket, const struct neap_connection_message *reply);
uint16_t neap_handshake_service_port(const struct neap_handshake_service *service);
struct neap_handshake_service_stats {
	uint64_t served, refused, notifies;
	uint32_t sessions;
};
void neap_handshake_service_stats(const struct neap_handshake_service *service, struct neap_handshake_service_stats *stats_p);
/* Closes listener and sessions at once; memory goes at the end of the turn. */
void neap_handshake_service_destroy(struct neap_handshake_service *service);

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* One request to a peer's handshake port, with one deadline over everything. `done` once, from a turn: error 0 and the reply's JSON
 * (valid during the call), or an error and a sentence that names the peer, the step and the cause. */
struct neap_handshake_caller; /* a pool of calls on a reactor */
typedef void neap_handshake_done_func(void *user, int error, const char *json, size_t length, const char *why);

int neap_handshake_caller_create(struct neap_handshake_caller **caller_p, struct neap_reactor *reactor, uint32_t calls_max,
                                 uint32_t length_max, const struct neap_socket_options *options);
void neap_handshake_caller_destroy(struct neap_handshake_caller *caller); /* pending calls end without callback */
/* `json` is copied. *call_p: a handle for cancel. NEAP_EAGAIN when calls_max are under way. */
int neap_handshake_call(struct neap_handshake_caller *caller, const struct neap_host_port *peer, enum neap_handshake_type type,
                        const char *json, size_t length, uint64_t timeout_ns, neap_handshake_done_func *done, void *user,
                        uint64_t *call_p);
void neap_handshake_cancel(struct neap_handshake_caller *caller, uint64_t call);

#endif
