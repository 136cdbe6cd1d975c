/* Blocks: the bytes of frames that wait to be sent, to be remembered or to become whole. Small ones come from a pool; larger ones are
 * allocated, and all together are bounded. Owner thread only. */
#ifndef NEAP_STORE_RPC_BLOCK_H
#define NEAP_STORE_RPC_BLOCK_H

#include "reactor/pool.h"
#include "store/rpc/body.h"
#include "store/rpc/frame.h"

#define NEAP_RPC_SMALL_BYTES 960u /* capacity of a pooled block */

struct neap_rpc_block {
	struct neap_rpc_block *next; /* in a pipe's queue */
	uint64_t owner;              /* of the client's calls: whose request it is; 0: nobody's */
	uint32_t refs, length, capacity;
	bool queued, pooled;
	uint8_t bytes[];
};

struct neap_rpc_blocks {
	struct neap_reactor *reactor;
	struct neap_pool pool;
	size_t bytes, bytes_max; /* capacity of all that are out */
};

/* `small_max` blocks in the pool. NEAP_ENOMEM. */
int neap_rpc_blocks_open(struct neap_rpc_blocks *blocks, struct neap_reactor *reactor, uint32_t small_max, size_t bytes_max);
void neap_rpc_blocks_close(struct neap_rpc_blocks *blocks); /* all blocks were released */

/* With one reference and length 0. NULL: bytes_max would be passed, or out of memory. */
struct neap_rpc_block *neap_rpc_block_take(struct neap_rpc_blocks *blocks, size_t capacity);
void neap_rpc_block_release(struct neap_rpc_blocks *blocks, struct neap_rpc_block *block); /* NULL is allowed */

/* Encodes `data` behind a head's space; head.body_bytes is set, the head is written. `message` NULL: no body. NEAP_EINVAL (a value over
 * its bound), NEAP_ELIMIT (longer than body_max), NEAP_EAGAIN (bytes_max), each with `why`. */
int neap_rpc_block_encode(struct neap_rpc_blocks *blocks, struct neap_rpc_head *head, const struct neap_rpc_message *message,
                          const void *data, uint32_t body_max, struct neap_rpc_block **block_p, char *why, size_t why_size);

/* The same into a block that is there: NEAP_ELIMIT when it is too small. */
int neap_rpc_block_fill(struct neap_rpc_block *block, struct neap_rpc_head *head, const struct neap_rpc_message *message,
                        const void *data, char *why, size_t why_size);

#endif
