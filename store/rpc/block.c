#include "store/rpc/block.h"
#include <stdio.h>

int neap_rpc_blocks_open(struct neap_rpc_blocks *blocks, struct neap_reactor *reactor, uint32_t small_max, size_t bytes_max)
{
	blocks->reactor = reactor;
	blocks->bytes = 0;
	blocks->bytes_max = bytes_max;
	return neap_pool_create(&blocks->pool, reactor, sizeof(struct neap_rpc_block) + NEAP_RPC_SMALL_BYTES, small_max);
}

void neap_rpc_blocks_close(struct neap_rpc_blocks *blocks)
{
	neap_pool_destroy(&blocks->pool);
}

struct neap_rpc_block *neap_rpc_block_take(struct neap_rpc_blocks *blocks, size_t capacity)
{
	bool pooled = capacity <= NEAP_RPC_SMALL_BYTES;
	if (pooled)
		capacity = NEAP_RPC_SMALL_BYTES;
	if (capacity > UINT32_MAX || capacity > blocks->bytes_max - blocks->bytes)
		return NULL;
	struct neap_rpc_block *block = pooled ? neap_pool_take(&blocks->pool) : NULL;
	pooled = block != NULL;
	if (!block)
		block = neap_allocate(blocks->reactor, sizeof *block + capacity);
	if (!block)
		return NULL;
	*block = (struct neap_rpc_block){.refs = 1, .capacity = (uint32_t)capacity, .pooled = pooled};
	blocks->bytes += capacity;
	return block;
}

void neap_rpc_block_release(struct neap_rpc_blocks *blocks, struct neap_rpc_block *block)
{
	if (!block || --block->refs > 0)
		return;
	blocks->bytes -= block->capacity;
	if (block->pooled)
		neap_pool_give(&blocks->pool, block);
	else
		neap_release(blocks->reactor, block, sizeof *block + block->capacity);
}

/* Returns the error of encoding; *needed_p is how many bytes the whole frame has, be they there or not. */
static int encode_into(struct neap_rpc_block *block, struct neap_rpc_head *head, const struct neap_rpc_message *message,
                       const void *data, size_t *needed_p, char *why, size_t why_size)
{
	struct neap_rpc_writer writer = {block->bytes + NEAP_RPC_HEAD_BYTES, block->capacity - NEAP_RPC_HEAD_BYTES, 0};
	int error = message ? neap_rpc_encode(&writer, message, data, why, why_size) : NEAP_OK;
	*needed_p = NEAP_RPC_HEAD_BYTES + writer.length;
	if (error || writer.length > writer.capacity)
		return error;
	head->body_bytes = (uint32_t)writer.length;
	neap_rpc_head_write(block->bytes, head);
	block->length = (uint32_t)*needed_p;
	return NEAP_OK;
}

int neap_rpc_block_fill(struct neap_rpc_block *block, struct neap_rpc_head *head, const struct neap_rpc_message *message,
                        const void *data, char *why, size_t why_size)
{
	size_t needed;
	int error = encode_into(block, head, message, data, &needed, why, why_size);
	if (error || needed <= block->capacity)
		return error;
	(void)snprintf(why, why_size, "`%s` has %zu bytes; there is room for %u", message->name, needed - NEAP_RPC_HEAD_BYTES,
	               block->capacity - NEAP_RPC_HEAD_BYTES);
	return NEAP_ELIMIT;
}

int neap_rpc_block_encode(struct neap_rpc_blocks *blocks, struct neap_rpc_head *head, const struct neap_rpc_message *message,
                          const void *data, uint32_t body_max, struct neap_rpc_block **block_p, char *why, size_t why_size)
{
	size_t needed = NEAP_RPC_SMALL_BYTES;
	*block_p = NULL;
	for (;;) {
		struct neap_rpc_block *block = neap_rpc_block_take(blocks, needed);
		if (!block) {
			(void)snprintf(why, why_size, "%zu bytes of frames are held, and no more than %zu may be", blocks->bytes, blocks->bytes_max);
			return NEAP_EAGAIN;
		}
		int error = encode_into(block, head, message, data, &needed, why, why_size);
		if (!error && needed > NEAP_RPC_HEAD_BYTES + (size_t)body_max) {
			(void)snprintf(why, why_size, "`%s` has %zu bytes; the limit is %u (body_max)", message->name, needed - NEAP_RPC_HEAD_BYTES,
			               body_max);
			error = NEAP_ELIMIT;
		}
		if (!error && needed <= block->capacity) {
			*block_p = block;
			return NEAP_OK;
		}
		neap_rpc_block_release(blocks, block);
		if (error)
			return error;
	}
}
