/* Bodies of the store's RPC: one msgpack map, and how a C struct becomes one and comes out of one.
 *
 * A message is declared once, as a list of its fields (store/rpc/declare.h); struct and table are made from that list, so they cannot
 * differ. Rules of decoding: unknown keys are ignored; an absent OPTIONAL field has its default (0, false, empty, or what the message's
 * `defaults` say); an absent REQUIRED one, a wrong type, a value over its bound and a key that comes twice are refused by name.
 * OPTIONAL fields that have their default are not sent.
 *
 * Decoding copies no text and no bytes: views point into the body, lists into the decoder's arena. Both are valid until the decoder's
 * next use, and no longer than the body.
 *
 * Hostile lengths: neap_rpc_scan walks the body first and refuses it when a count or length is larger than the bytes behind it can
 * hold, when it nests too deep or has too many values. Only then does msgpack-c, which allocates by the counts it reads, see it.
 * Owner thread only. */
#ifndef NEAP_STORE_RPC_BODY_H
#define NEAP_STORE_RPC_BODY_H

#include "reactor/core.h"
#include <msgpack.h>

#define NEAP_RPC_DEPTH_MAX 16u
#define NEAP_RPC_VALUES_MAX 65536u /* of one body: what msgpack-c takes for them is at most 3 MiB */
#define NEAP_RPC_FIELDS_MAX 64u    /* of one message */
#define NEAP_RPC_STRUCT_MAX 512u   /* bytes of one message's struct */

/* --- what messages are made of -------------------------------------------------------------------------------------- */

struct neap_rpc_view {
	const char *bytes; /* not terminated; NULL only with length 0 */
	uint32_t length;
};

struct neap_rpc_list {
	const void *items; /* structs of the field's `of` */
	uint32_t count;
};

enum neap_rpc_kind {
	NEAP_RPC_U64,   /* uint64_t */
	NEAP_RPC_I64,   /* int64_t */
	NEAP_RPC_BOOL,  /* bool */
	NEAP_RPC_BYTES, /* struct neap_rpc_view, msgpack bin */
	NEAP_RPC_TEXT,  /* struct neap_rpc_view, msgpack str */
	NEAP_RPC_LIST,  /* struct neap_rpc_list, msgpack array of maps */
};

struct neap_rpc_message;

struct neap_rpc_field {
	const char *name;
	uint8_t kind; /* enum neap_rpc_kind */
	bool required;
	uint16_t offset; /* in the struct */
	uint64_t max;    /* U64: the value; I64: its magnitude; BYTES, TEXT: bytes; LIST: items */
	const struct neap_rpc_message *of; /* LIST */
};

struct neap_rpc_message {
	const char *name;
	uint16_t size, field_count;
	const struct neap_rpc_field *fields;
	const void *defaults; /* a struct of it, or NULL: all zero */
};

static inline struct neap_rpc_view neap_rpc_view_of(const void *bytes, size_t length)
{
	return (struct neap_rpc_view){bytes, (uint32_t)length};
}

/* --- encoding --------------------------------------------------------------------------------------------------------- */

/* Where a body goes. What does not fit is counted and not stored. */
struct neap_rpc_writer {
	uint8_t *bytes;
	size_t capacity, length; /* length > capacity: that much would have been needed */
};

/* Appends one map. NEAP_EINVAL: a value is over its field's bound (`why` names it; nothing that was appended is of use). A writer that
 * is too small is no error: look at its length. */
int neap_rpc_encode(struct neap_rpc_writer *writer, const struct neap_rpc_message *message, const void *data, char *why,
                    size_t why_size);

/* --- decoding --------------------------------------------------------------------------------------------------------- */

/* Pure. NEAP_EPROTO: not one well-formed map, or bytes behind it. NEAP_ELIMIT: too deep, too many values. `why`: what, where, limit. */
int neap_rpc_scan(const void *body, size_t length, char *why, size_t why_size);

/* What decoding needs, kept for the next time. msgpack-c's own chunk (8 KiB, more for bodies of many values until the next use) comes
 * from malloc. */
struct neap_rpc_decoder {
	struct neap_reactor *reactor;
	msgpack_zone zone;
	unsigned char *arena; /* for lists */
	size_t arena_bytes, arena_used;
	_Alignas(16) unsigned char data[NEAP_RPC_STRUCT_MAX];
};

/* `arena_bytes` bounds the structs of all lists of one body; 0 means 256 KiB. NEAP_ENOMEM. */
int neap_rpc_decoder_open(struct neap_rpc_decoder *decoder, struct neap_reactor *reactor, size_t arena_bytes);
void neap_rpc_decoder_close(struct neap_rpc_decoder *decoder);

/* Scans, decodes and checks. *data_p points into the decoder. NEAP_EPROTO, NEAP_ELIMIT: the scan refuses it. NEAP_EREQUEST: it is well
 * formed and not this message. NEAP_ENOMEM. Each with `why`. */
int neap_rpc_decode(struct neap_rpc_decoder *decoder, const struct neap_rpc_message *message, const void *body, size_t length,
                    const void **data_p, char *why, size_t why_size);

#endif
