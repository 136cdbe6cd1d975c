/* Successes that do not count yet (design.md 7; fences.md 4, 5).
 *
 * A WRITE's completion does not say that its bytes are placed, and a READ's not that its region was there all the time. So a small READ
 * follows on the same queue pair, by the same key: it waits for the placement of what was before it, and it fails when the key is not good
 * any more, or when the queue pair is not. What had succeeded before it was posted counts when it has come back.
 *
 * Checks go in rounds, a rail at a time: one READ for each queue pair and key of those that wait, posted when all completions at hand
 * were looked at. What succeeds while a round is under way is for the next one. A round that fails is the end of the endpoint, with all
 * of it. */
#include "transports/rdma/peer.h"

#define CHECK_BYTES 8u
#define ROUND_MAX 32u /* checks of one; what has another queue pair or key waits for the next round */

static bool places_late(const struct neap_rdma_queue *queue)
{
	return !queue->device->handle.limits.places_first;
}

bool neap_rdma_piece_needs_check(const struct neap_rdma_piece *piece)
{
	const struct neap_rdma_request *request = piece->request;
	if (!request)
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

/* Reads the last bytes of a piece again. */
static int post_check(struct neap_rdma_piece *leader)
{
	uint64_t tail = leader->offset + leader->length - check_bytes(leader);
	struct neap_verbs_send send = {
		.id = neap_pool_handle(&leader->rail->peer->initiator->pieces, leader),
		.opcode = NEAP_VERBS_READ,
		.length = check_bytes(leader),
		.rkey = leader->rkey,
		.remote = leader->request->slice->address + tail,
	};
	if (!find_place(leader, tail, &send))
		return NEAP_ENODEV;
	return neap_rdma_endpoint_post_on(leader->rail->user.endpoint, leader->qp_number, &send);
}

/* --- rounds */

static void look_later(struct neap_rdma_rail *rail)
{
	struct neap_rdma_initiator *initiator = rail->peer->initiator;
	if (rail->to_check)
		return;
	rail->to_check = true;
	rail->next_to_check = initiator->to_check;
	initiator->to_check = rail;
}

void neap_rdma_piece_to_check(struct neap_rdma_piece *piece, uint32_t qp_number)
{
	struct neap_rdma_rail *rail = piece->rail;
	piece->qp_number = qp_number;
	neap_rdma_piece_unlink(&rail->pieces, piece);
	neap_rdma_piece_append(&rail->unchecked, piece);
	look_later(rail);
}

void neap_rdma_checks_wanted(struct neap_rdma_rail *rail)
{
	if (rail->unchecked.first)
		look_later(rail);
}

/* Who leads the check for each queue pair and key. */
struct round {
	struct neap_rdma_piece *leaders[ROUND_MAX];
	uint32_t count;
};

static bool is_covered(const struct round *round, const struct neap_rdma_piece *piece)
{
	for (uint32_t i = round->count; i-- > 0;)
		if (round->leaders[i]->qp_number == piece->qp_number && round->leaders[i]->rkey == piece->rkey)
			return true;
	return false;
}

/* True: a check covers it that was posted now. */
static bool cover(struct round *round, struct neap_rdma_piece *piece, int *error_p)
{
	if (is_covered(round, piece))
		return true;
	if (round->count == ROUND_MAX)
		return false;
	*error_p = post_check(piece);
	if (*error_p)
		return false;
	piece->checking = true;
	round->leaders[round->count++] = piece;
	return true;
}

/* No room is no failure: something is under way there, whose completion brings us here again, or ROOM does. */
void neap_rdma_rail_check(struct neap_rdma_rail *rail)
{
	struct round round = {.count = 0};
	struct neap_rdma_piece *next;
	int error = NEAP_OK;
	if (rail->checks > 0 || !rail->user.endpoint || rail->user.endpoint->leaving)
		return;
	for (struct neap_rdma_piece *piece = rail->unchecked.first; piece && !error; piece = next) {
		next = piece->next;
		if (!cover(&round, piece, &error))
			continue;
		neap_rdma_piece_unlink(&rail->unchecked, piece);
		neap_rdma_piece_append(&rail->covered, piece);
	}
	rail->checks = round.count;
	rail->peer->initiator->stats.checks += round.count;
	if (error && error != NEAP_EAGAIN)
		neap_rdma_rail_broken(rail, NEAP_WC_FLUSHED);
}

void neap_rdma_checks_post(struct neap_rdma_initiator *initiator)
{
	struct neap_rdma_rail *rail;
	while ((rail = initiator->to_check)) {
		initiator->to_check = rail->next_to_check;
		rail->to_check = false;
		neap_rdma_rail_check(rail);
	}
}

void neap_rdma_check_passed(struct neap_rdma_piece *leader)
{
	struct neap_rdma_rail *rail = leader->rail;
	leader->checking = false;
	if (--rail->checks > 0)
		return;
	while (rail->covered.first)
		neap_rdma_piece_succeeded(rail, &rail->covered, rail->covered.first);
	look_later(rail);
}

static void flush(struct neap_rdma_rail *rail, struct neap_rdma_piece_list *list)
{
	struct neap_rdma_piece *piece;
	while ((piece = list->first)) {
		neap_rdma_piece_unlink(list, piece);
		neap_rdma_piece_append(&rail->pieces, piece);
		if (piece->status == NEAP_WC_SUCCESS)
			piece->status = NEAP_WC_FLUSHED;
	}
}

void neap_rdma_checks_drop(struct neap_rdma_rail *rail)
{
	flush(rail, &rail->covered);
	flush(rail, &rail->unchecked);
	rail->checks = 0;
}
