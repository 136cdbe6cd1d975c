/* Successes that do not count yet (design.md 7; fences.md 4, 5).
 *
 * A WRITE's completion does not say that its bytes are placed, and a READ's not that its region was there all the time. So a small READ of
 * the last bytes follows on the same queue pair, by the same key: it waits for the placement of what was before it, and it fails when the
 * key is not good any more, or when the queue pair is not. The piece counts when that has come back. */
#include "transports/rdma/peer.h"

#define CHECK_BYTES 8u

static bool places_late(const struct neap_rdma_queue *queue)
{
	return !queue->device->handle.limits.places_first;
}

bool neap_rdma_piece_needs_check(const struct neap_rdma_piece *piece)
{
	const struct neap_rdma_request *request = piece->request;
	if (!request || piece->checking)
		return false;
	const struct neap_rdma_queue *queue = piece->rail->queue;
	if (piece->write)
		return request->slice->placed && places_late(queue);
	return request->lent || queue->device->handle.limits.reads_doubtful;
}

static bool find_scratch(const struct neap_rdma_initiator *initiator, const struct neap_rdma_queue *queue, struct neap_verbs_keys *keys_p)
{
	const struct neap_rdma_scratch *scratch = initiator->ground.scratch;
	uint64_t end;
	return scratch && scratch->phase == NEAP_RDMA_SCRATCH_THERE &&
	       !neap_rdma_memory_keys(initiator->ground.memory, scratch->memory, queue->device, scratch->bytes, keys_p, &end);
}

bool neap_rdma_can_check(const struct neap_rdma_initiator *initiator, const struct neap_rdma_queue *queue)
{
	struct neap_verbs_keys keys;
	return !places_late(queue) || find_scratch(initiator, queue, &keys);
}

enum neap_rdma_scratch_phase neap_rdma_scratch_of(const struct neap_rdma_initiator *initiator)
{
	const struct neap_rdma_scratch *scratch = initiator->ground.scratch;
	if (!scratch)
		return NEAP_RDMA_SCRATCH_REFUSED;
	if (scratch->phase == NEAP_RDMA_SCRATCH_NONE)
		initiator->ground.want_scratch(initiator->ground.user);
	return scratch->phase;
}

/* What a READ has brought is read again to where it is; a WRITE's bytes to where nobody looks. */
static bool find_place(const struct neap_rdma_piece *piece, uint64_t tail, struct neap_verbs_send *send)
{
	const struct neap_rdma_initiator *initiator = piece->rail->peer->initiator;
	unsigned char *to = piece->request->slice->source + tail;
	struct neap_rdma_local local;
	struct neap_verbs_keys keys;
	uint64_t end;
	if (piece->write) {
		if (!find_scratch(initiator, piece->rail->queue, &keys))
			return false;
		to = initiator->ground.scratch->bytes;
	} else if (!initiator->ground.find_local(initiator->ground.user, (uintptr_t)to, &local) ||
	           neap_rdma_memory_keys(initiator->ground.memory, local.memory_id, piece->rail->queue->device, to, &keys, &end) ||
	           end - (uintptr_t)to < send->length) {
		return false;
	}
	send->local = (uintptr_t)to;
	send->lkey = keys.lkey;
	return true;
}

static uint32_t check_bytes(const struct neap_rdma_piece *piece)
{
	return piece->length < CHECK_BYTES ? piece->length : CHECK_BYTES;
}

bool neap_rdma_piece_check(struct neap_rdma_piece *piece, uint32_t qp_number)
{
	uint64_t tail = piece->offset + piece->length - check_bytes(piece);
	struct neap_verbs_send send = {
		.id = neap_pool_handle(&piece->rail->peer->initiator->pieces, piece),
		.opcode = NEAP_VERBS_READ,
		.length = check_bytes(piece),
		.rkey = piece->rkey,
		.remote = piece->request->slice->address + tail,
	};
	piece->checking = find_place(piece, tail, &send) && neap_rdma_endpoint_post_on(piece->rail->user.endpoint, qp_number, &send);
	return piece->checking;
}
