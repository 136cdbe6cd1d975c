/* Frames of the store's RPC: a head of fixed size and a body. docs/WIRE.md "Store RPC". Pure: no memory, no clock.
 *
 * Integers are little-endian. Nothing is allocated for a body before its head was accepted. */
#ifndef NEAP_STORE_RPC_FRAME_H
#define NEAP_STORE_RPC_FRAME_H

#include <neap/error.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_RPC_HEAD_BYTES 56u
#define NEAP_RPC_VERSION 1u
#define NEAP_RPC_BODY_MAX_DEFAULT (16u * 1024u * 1024u)
#define NEAP_RPC_BODY_MAX_LEAST 4096u /* no limit may be set below it: hello, welcome and refusals fit */

enum neap_rpc_type {
	NEAP_RPC_CALL = 1,    /* method, call, deadline_us; with ONCE also epoch, sequence, finished_below. Body: the request */
	NEAP_RPC_REPLY = 2,   /* status, call. Body: the reply, or with status != 0 a refusal */
	NEAP_RPC_CANCEL = 3,  /* call. No body */
	NEAP_RPC_HELLO = 4,   /* the client's first frame */
	NEAP_RPC_WELCOME = 5, /* status. The answer to it */
	NEAP_RPC_GOODBYE = 6, /* call: how many CALLs of this connection were taken; those behind are not executed. No body */
};

enum {
	NEAP_RPC_ONCE = 1,      /* of a CALL: it has a request id and is executed at most once */
	NEAP_RPC_UNTOUCHED = 2, /* of a REPLY: the RPC refused the call before its method saw it */
};

/* What a type does not use is 0. */
struct neap_rpc_head {
	uint8_t type; /* enum neap_rpc_type */
	uint16_t flags;
	uint32_t body_bytes;
	uint32_t method;      /* CALL */
	int32_t status;       /* REPLY, WELCOME: 0, a number of the store, or of neap/error.h from -2001 down */
	uint64_t call;        /* chosen by the client; a reply carries it back */
	uint64_t deadline_us; /* CALL: what was left when it was sent; UINT64_MAX: no deadline */
	uint64_t epoch, sequence; /* CALL with ONCE: the request id within the client's lane */
	uint64_t finished_below;  /* CALL with ONCE: the client has the answers to all sequences below */
};

void neap_rpc_head_write(uint8_t bytes[NEAP_RPC_HEAD_BYTES], const struct neap_rpc_head *head);

/* NEAP_EPROTO: not our magic, another version, an unknown type or flag, a body where none belongs. NEAP_ELIMIT: a body longer than
 * `body_max`. `why` says what, where and which limit. */
int neap_rpc_head_read(const uint8_t bytes[NEAP_RPC_HEAD_BYTES], uint32_t body_max, struct neap_rpc_head *head_p, char *why,
                       size_t why_size);

/* The first `have` bytes of what may become a head: NEAP_EPROTO as soon as it cannot. */
int neap_rpc_head_begins(const uint8_t *bytes, size_t have, char *why, size_t why_size);

#endif
