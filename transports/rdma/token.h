/* The keys of a grant's token: which of the peer's devices reaches the range by which key. Devices are named by a mark, so that it does not
 * matter which of them the peer has published in which order; the mark is of the process too, so that a successor under the same name is
 * not taken for the one that gave the keys.
 *
 *     fence (4 bytes), then for each device: mark (4), key (4); little endian */
#ifndef NEAP_TRANSPORTS_RDMA_TOKEN_H
#define NEAP_TRANSPORTS_RDMA_TOKEN_H

#include <neap/engine.h>
#include <stddef.h>
#include <string.h>

#define NEAP_RDMA_TOKEN_HEAD_BYTES 4u
#define NEAP_RDMA_TOKEN_ENTRY_BYTES 8u
#define NEAP_RDMA_TOKEN_KEYS_MAX ((NEAP_GRANT_KEYS_BYTES - NEAP_RDMA_TOKEN_HEAD_BYTES) / NEAP_RDMA_TOKEN_ENTRY_BYTES)

static inline uint32_t neap_rdma_token_get(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}
static inline void neap_rdma_token_put(uint8_t *at, uint32_t value)
{
	for (uint32_t i = 0; i < 4; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

/* FNV-1a */
static inline uint32_t neap_rdma_token_mark(const uint8_t instance[16], const char *device)
{
	uint32_t mark = UINT32_C(2166136261);
	for (uint32_t i = 0; i < 16; i++)
		mark = (mark ^ instance[i]) * UINT32_C(16777619);
	for (; *device; device++)
		mark = (mark ^ (unsigned char)*device) * UINT32_C(16777619);
	return mark;
}

static inline bool neap_rdma_token_has_keys(const struct neap_grant_token *token)
{
	return token->keys_length >= NEAP_RDMA_TOKEN_HEAD_BYTES + NEAP_RDMA_TOKEN_ENTRY_BYTES && token->keys_length <= NEAP_GRANT_KEYS_BYTES;
}

/* How often its giver had fenced a peer when it was given. */
static inline uint32_t neap_rdma_token_fence(const struct neap_grant_token *token)
{
	return neap_rdma_token_get(token->keys);
}

static inline bool neap_rdma_token_key(const struct neap_grant_token *token, uint32_t mark, uint32_t *key_p)
{
	uint32_t at = NEAP_RDMA_TOKEN_HEAD_BYTES;
	for (; at + NEAP_RDMA_TOKEN_ENTRY_BYTES <= token->keys_length; at += NEAP_RDMA_TOKEN_ENTRY_BYTES)
		if (neap_rdma_token_get(token->keys + at) == mark) {
			*key_p = neap_rdma_token_get(token->keys + at + 4);
			return true;
		}
	return false;
}

#endif
