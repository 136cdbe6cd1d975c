#include "store/rpc/client_inside.h"

void rpc_ids_begin(struct rpc_ids *ids, uint64_t epoch)
{
	*ids = (struct rpc_ids){.epoch = epoch, .next = 1, .finished_below = 1};
}

static uint64_t *word_of(struct rpc_ids *ids, uint64_t sequence)
{
	return &ids->finished[sequence % RPC_IDS_MAX / 64];
}

int rpc_ids_take(struct rpc_ids *ids, struct neap_rpc_id *id_p)
{
	if (ids->next - ids->finished_below >= RPC_IDS_MAX)
		return NEAP_EAGAIN;
	*id_p = (struct neap_rpc_id){ids->epoch, ids->next++};
	return NEAP_OK;
}

/* Ids of an earlier epoch are finished with it. */
void rpc_ids_finish(struct rpc_ids *ids, const struct neap_rpc_id *id)
{
	if (id->epoch != ids->epoch || id->sequence < ids->finished_below || id->sequence >= ids->next)
		return;
	*word_of(ids, id->sequence) |= UINT64_C(1) << id->sequence % 64;
	while (ids->finished_below < ids->next && (*word_of(ids, ids->finished_below) >> ids->finished_below % 64 & 1)) {
		*word_of(ids, ids->finished_below) &= ~(UINT64_C(1) << ids->finished_below % 64);
		ids->finished_below++;
	}
}
