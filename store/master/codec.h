/* The operations of a directory as messages and back, for both ends: ask and learn are the caller's, take and answer the server's.
 * Pure: no I/O. */
#ifndef NEAP_STORE_MASTER_CODEC_H
#define NEAP_STORE_MASTER_CODEC_H

#include "store/directory/key_directory.h"
#include "store/master/methods.h"

/* What one call carries at most. */
#define NEAP_MASTER_BATCH_MAX 2000u
#define NEAP_MASTER_SEGMENTS_MAX 64u
#define NEAP_MASTER_LOST_MAX 256u
#define NEAP_MASTER_LOST_TEXT_MAX 65536u
#define NEAP_MASTER_REPLICAS_MAX 1500u /* of one answer; what is beyond is BUFFER_OVERFLOW of its item */
#define NEAP_MASTER_CANDIDATES_MAX 2000u
#define NEAP_MASTER_PAGE_MAX 2000u
#define NEAP_MASTER_PAGE_TEXT_MAX 262144u

/* Memory that is given back all at once. Chunks are taken while the budget lasts; the first piece may be the owner's. */
struct neap_master_chunk {
	struct neap_master_chunk *next;
	size_t bytes;
};

struct neap_master_arena {
	struct neap_reactor *reactor;
	size_t *budget_p; /* bytes that may still be allocated; NULL: none */
	struct neap_master_chunk *chunks;
	unsigned char *at;
	size_t left;
};

/* Zeroed; NULL: no room. `size` 0 is a pointer that is not NULL. */
void *neap_master_take(struct neap_master_arena *arena, size_t count, size_t size);
/* Gives the chunks back; the arena is to be set up anew. */
void neap_master_give(struct neap_master_arena *arena);

union neap_master_body {
	_Alignas(16) unsigned char bytes[NEAP_RPC_STRUCT_MAX];
	uint64_t align;
};

struct neap_master_codec {
	const struct neap_rpc_method *method;
	/* Request of the call. NEAP_EINVAL: beyond what a call carries; NEAP_ELIMIT: the arena is too small. */
	int (*ask)(const struct neap_key_call *call, struct neap_master_arena *arena, void *message);
	/* Call of the request, copied into the arena, with room for its answers. 0, INVALID_PARAMS, NEAP_EAGAIN (no memory). */
	int (*take)(struct neap_key_call *call, struct neap_master_arena *arena, const void *message);
	/* Reply of the call. NEAP_ELIMIT. */
	int (*answer)(const struct neap_key_call *call, struct neap_master_arena *arena, void *message);
	/* Answers of the call from a reply. Its error; RPC_FAIL: the reply does not belong to the call. */
	int (*learn)(struct neap_key_call *call, const void *message);
};

extern const struct neap_master_codec neap_master_codecs[NEAP_KEY_OPS];

/* The client that a call speaks for; NULL: none. */
const struct neap_key_client *neap_master_speaker(const struct neap_key_call *call);

/* --- pieces for the codecs */

static inline struct neap_rpc_view neap_master_id_view(const struct neap_key_id *id)
{
	return neap_rpc_view_of(id, sizeof *id);
}
/* False: not 16 bytes. */
bool neap_master_id(struct neap_rpc_view view, struct neap_key_id *id_p);
/* Terminated copy; false: too long, or bytes that a text does not have. */
bool neap_master_text(struct neap_rpc_view view, char *text, size_t size);
struct neap_rpc_view neap_master_text_view(const char *text, size_t size);
struct neap_rpc_list neap_master_list(const void *items, uint32_t count);
/* False: no room, or more than there may be. */
bool neap_master_tags_out(struct neap_master_arena *arena, const char (*tags)[NEAP_KEY_TAG_SIZE], uint32_t count,
                          struct neap_rpc_list *list_p);
bool neap_master_tags_in(struct neap_rpc_list list, char (*tags)[NEAP_KEY_TAG_SIZE], uint32_t *count_p);
/* A key in the arena; false: no room. */
bool neap_master_key_in(struct neap_master_arena *arena, struct neap_rpc_view view, struct neap_key_text *text_p);

/* Each operation's four; codec_clients.c and codec_keys.c. */
#define NEAP_MASTER_OPS(O)                 \
	O(REGISTER, register, register_client) \
	O(UNREGISTER, unregister, unregister_client) \
	O(HEARTBEAT, heartbeat, heartbeat)     \
	O(MOUNT, mount, mount_segment)         \
	O(UNMOUNT, unmount, unmount_segment)   \
	O(CLIENTS, clients, query_clients)     \
	O(ANNOUNCE, announce, announce)        \
	O(ROUND_BEGIN, round_begin, round_begin) \
	O(ROUND_END, round_end, round_end)     \
	O(WRITE_ROUTES, write_routes, write_routes) \
	O(REPLICAS, replicas, replicas)        \
	O(EXIST, exist, exist)                 \
	O(COUNT, count, count)                 \
	O(LIST, list, list)
#define NEAP_MASTER_DECLARE(op, name, method)                                                                          \
	int neap_master_ask_##name(const struct neap_key_call *call, struct neap_master_arena *arena, void *message);     \
	int neap_master_take_##name(struct neap_key_call *call, struct neap_master_arena *arena, const void *message);    \
	int neap_master_answer_##name(const struct neap_key_call *call, struct neap_master_arena *arena, void *message);  \
	int neap_master_learn_##name(struct neap_key_call *call, const void *message);
NEAP_MASTER_OPS(NEAP_MASTER_DECLARE)
#undef NEAP_MASTER_DECLARE

#endif
