/* Requests under grants that have keys: which devices of the peer can be reached by them (design.md 7). */
#include "transports/rdma/peer.h"
#include "transports/rdma/token.h"
#include <string.h>

/* --- the peer's end */

static void put_side(const struct neap_descriptor *descriptor, const struct neap_grant_token *token, struct neap_path_side *side)
{
	uint32_t key;
	*side = (struct neap_path_side){.count = 0};
	for (uint32_t i = 0; i < descriptor->device_count && i < NEAP_DEVICES_MAX; i++) {
		const char *name = descriptor->devices[i].name;
		if (!neap_rdma_token_key(token, neap_rdma_token_mark(descriptor->neap.instance, name), &key))
			continue;
		side->names[side->count] = name;
		side->device[side->count++] = (uint8_t)i;
	}
	side->preferred = side->count;
}

bool neap_rdma_slice_is_lent(const struct neap_segment *segment, const struct neap_slice *slice)
{
	const struct neap_descriptor *descriptor = segment->snapshot->descriptor;
	const struct neap_grant_token *token = neap_slice_grant(slice);
	struct neap_path_side side;
	if (!token || slice->length == 0 || !neap_rdma_token_has_keys(token) || !descriptor->neap.present)
		return false;
	put_side(descriptor, token, &side);
	return side.count > 0;
}

/* Where its memory lies is not published: any device that has a key is as good as another. */
const struct neap_rdma_hot *neap_rdma_peer_lent(struct neap_rdma_peer *peer, const struct neap_grant_token *token)
{
	struct neap_rdma_hot *hot = &peer->lent;
	bool same = peer->lent_refreshed == peer->segment->refreshed && peer->lent_token.keys_length == token->keys_length &&
	            memcmp(peer->lent_token.keys, token->keys, token->keys_length) == 0;
	if (neap_rdma_token_fence(token) < peer->fence)
		return NULL;
	if (!same || hot->to == 0) {
		put_side(neap_rdma_descriptor(peer), token, &hot->side);
		hot->to = hot->until = UINT64_MAX;
		peer->lent_token = *token;
		peer->lent_refreshed = peer->segment->refreshed;
	}
	return hot->side.count ? hot : NULL;
}

uint32_t neap_rdma_lent_key(const struct neap_rdma_rail *rail, const struct neap_grant_token *token)
{
	uint32_t key = 0;
	(void)neap_rdma_token_key(token, neap_rdma_token_mark(neap_rdma_descriptor(rail->peer)->neap.instance, rail->nic), &key);
	return key;
}
