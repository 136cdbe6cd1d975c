/* Pieces: what a completion, or the end of their endpoint, makes of them (te spec 5.7). */
#include "transports/rdma/peer.h"
#include "transports/rdma/rail_fsm.h"

struct neap_rdma_piece *neap_rdma_piece_take(struct neap_rdma_peer *peer, struct neap_rdma_request *request, uint64_t offset,
                                             uint32_t length)
{
	struct neap_rdma_piece *piece = neap_pool_take(&peer->initiator->pieces);
	peer->initiator->short_of_pieces |= !piece;
	if (!piece)
		return NULL;
	*piece = (struct neap_rdma_piece){.request = request, .offset = offset, .length = length};
	peer->pieces++;
	if (request) {
		request->pieces++;
		piece->write = request->slice->opcode == NEAP_WRITE;
	}
	return piece;
}

void neap_rdma_piece_append(struct neap_rdma_piece_list *list, struct neap_rdma_piece *piece)
{
	piece->next = NULL;
	piece->previous = list->last;
	*(list->last ? &list->last->next : &list->first) = piece;
	list->last = piece;
	list->count++;
}

void neap_rdma_piece_unlink(struct neap_rdma_piece_list *list, struct neap_rdma_piece *piece)
{
	*(piece->previous ? &piece->previous->next : &list->first) = piece->next;
	*(piece->next ? &piece->next->previous : &list->last) = piece->previous;
	piece->next = piece->previous = NULL;
	list->count--;
}

/* Others may have all pieces under way, so that none of their own brings those who found none back to work. */
static void wake_all(struct neap_rdma_initiator *initiator)
{
	uint32_t index = 0;
	initiator->short_of_pieces = false;
	for (struct neap_rdma_peer *peer; (peer = neap_pool_next(&initiator->peers, &index));)
		neap_rdma_peer_wake(peer);
}

void neap_rdma_piece_free(struct neap_rdma_peer *peer, struct neap_rdma_piece *piece)
{
	if (piece->request)
		piece->request->pieces--;
	peer->pieces--;
	neap_pool_give(&peer->initiator->pieces, piece);
	if (peer->initiator->short_of_pieces)
		wake_all(peer->initiator);
}

void neap_rdma_piece_drop(struct neap_rdma_peer *peer, struct neap_rdma_piece *piece)
{
	struct neap_rdma_request *request = piece->request;
	neap_rdma_piece_free(peer, piece);
	if (request)
		neap_rdma_request_rest(peer, request);
}

/* --- completions */

static void off_the_device(struct neap_rdma_rail *rail, const struct neap_rdma_piece *piece)
{
	rail->peer->initiator->device_bytes[rail->local] -= piece->length;
	rail->peer->remote_bytes[rail->remote] -= piece->length;
}

void neap_rdma_piece_succeeded(struct neap_rdma_rail *rail, struct neap_rdma_piece_list *list, struct neap_rdma_piece *piece)
{
	struct neap_rdma_peer *peer = rail->peer;
	neap_rdma_piece_unlink(list, piece);
	off_the_device(rail, piece);
	peer->initiator->device_moved[rail->local] += piece->length;
	rail->failures = 0;
	if (!piece->request) {
		neap_rdma_piece_free(peer, piece);
		neap_step(&rail->machine, rdma_rail_on_PROVEN, 0);
		return;
	}
	rail->carried = true;
	peer->failures = 0;
	peer->outage_ns = 0;
	piece->request->done += piece->length;
	neap_rdma_piece_drop(peer, piece);
}

/* A queue pair on its way to ERR may call a READ done that lacks bytes (fences.md 4), and nothing can be checked on it any more: what is
 * done there in doubt is done again. */
static bool counts(const struct neap_rdma_piece *piece, const struct neap_rdma_endpoint *endpoint)
{
	bool reads = piece->request && (!piece->write || piece->checking);
	return !endpoint->leaving || !(reads || neap_rdma_piece_needs_check(piece));
}

static void succeeded(struct neap_rdma_rail *rail, struct neap_rdma_piece *piece, uint32_t qp_number)
{
	if (piece->checking)
		neap_rdma_check_passed(piece);
	else if (neap_rdma_piece_needs_check(piece))
		neap_rdma_piece_to_check(piece, qp_number);
	else
		neap_rdma_piece_succeeded(rail, &rail->pieces, piece);
}

void neap_rdma_piece_completed(struct neap_rdma_piece *piece, const struct neap_verbs_completion *completion)
{
	struct neap_rdma_rail *rail = piece->rail;
	struct neap_rdma_endpoint *endpoint = rail->user.endpoint;
	if (completion->status == NEAP_WC_SUCCESS && counts(piece, endpoint)) {
		succeeded(rail, piece, completion->qp_number);
	} else { /* it stays on the rail until the endpoint is gone */
		piece->status = completion->status == NEAP_WC_SUCCESS ? NEAP_WC_FLUSHED : (uint8_t)completion->status;
		neap_rdma_rail_broken(rail, piece->status);
	}
	neap_rdma_endpoint_completed(endpoint, completion->qp_number);
	neap_rdma_checks_wanted(rail);
}

/* --- after the end of the endpoint */

/* The peer's NIC has answered no: the operation is over, and nothing behind it was begun. */
static bool was_refused(enum neap_verbs_status status)
{
	return status == NEAP_WC_REMOTE_ACCESS || status == NEAP_WC_REMOTE_INVALID_REQUEST || status == NEAP_WC_REMOTE_OPERATION;
}

enum neap_cause neap_rdma_cause_for_others(enum neap_cause cause)
{
	switch ((int)cause) {
	case NEAP_CAUSE_REFUSED_BY_PEER:
	case NEAP_CAUSE_GRANT_REFUSED:
	case NEAP_CAUSE_LOCAL_MEMORY: return NEAP_CAUSE_PEER_RESET;
	default: return cause;
	}
}

static enum neap_cause cause_of(const struct neap_rdma_rail *rail, const struct neap_rdma_piece *piece)
{
	if (piece->status == NEAP_WC_REMOTE_ACCESS)
		return piece->request->lent ? NEAP_CAUSE_GRANT_REFUSED : NEAP_CAUSE_REFUSED_BY_PEER;
	if (piece->status == NEAP_WC_LOCAL_PROTECTION)
		return NEAP_CAUSE_LOCAL_MEMORY;
	if (was_refused(piece->status))
		return NEAP_CAUSE_PROTOCOL;
	return rail->cause ? neap_rdma_cause_for_others(rail->cause) : NEAP_CAUSE_NO_PROGRESS;
}

/* A key may be another one by now: the descriptor is read again, and only what is refused after that is refused. */
static bool may_have_new_key(struct neap_rdma_peer *peer, const struct neap_rdma_piece *piece)
{
	struct neap_rdma_request *request = piece->request;
	if (request->fresh_from && piece->seen >= request->fresh_from)
		return false;
	if (!request->fresh_from)
		request->fresh_from = (uint32_t)peer->segment->refreshed + 1;
	peer->keys_doubted = true;
	return true;
}

/* It costs one of its tries, unless it was only behind another that failed. */
static bool may_be_repeated(struct neap_rdma_peer *peer, struct neap_rdma_piece *piece)
{
	if (piece->status == NEAP_WC_REMOTE_ACCESS && (piece->request->lent || !may_have_new_key(peer, piece)))
		return false; /* of a grant there is no other key */
	if (piece->status == NEAP_WC_FLUSHED && piece->flushes < NEAP_RDMA_FLUSHES_MAX) {
		piece->flushes++;
		return true;
	}
	return ++piece->tries < peer->initiator->ground.options.tries_max;
}

/* One piece that had not succeeded when its endpoint ended. */
static void settle(struct neap_rdma_rail *rail, struct neap_rdma_piece *piece, bool fenced)
{
	struct neap_rdma_peer *peer = rail->peer;
	struct neap_rdma_request *request = piece->request;
	bool quiet = !piece->write || fenced || was_refused(piece->status);
	request->unsure = true;
	request->may_land |= !quiet;
	if (!request->stopped && peer->leaving)
		neap_rdma_request_stop(peer, request, NEAP_CANCELED, peer->leave_cause, 0);
	if (!request->stopped && !quiet && peer->is_neap)
		neap_rdma_request_stop(peer, request, NEAP_TIMEOUT, cause_of(rail, piece), 0);
	else if (!request->stopped && !may_be_repeated(peer, piece))
		neap_rdma_request_stop(peer, request, NEAP_FAILED, cause_of(rail, piece), 0);
	if (request->stopped) {
		neap_rdma_piece_drop(peer, piece);
		return;
	}
	piece->rail = NULL;
	piece->checking = false;
	piece->status = NEAP_WC_SUCCESS;
	neap_rdma_piece_append(&peer->again, piece);
	peer->initiator->stats.pieces_repeated++;
	peer->initiator->ground.view->stats->requests_repeated++;
	request->slice->attempts = (uint8_t)(request->slice->attempts + (request->slice->attempts < UINT8_MAX));
}

void neap_rdma_pieces_settle(struct neap_rdma_rail *rail, bool fenced)
{
	struct neap_rdma_piece *piece;
	while ((piece = rail->pieces.first)) {
		neap_rdma_piece_unlink(&rail->pieces, piece);
		off_the_device(rail, piece);
		if (piece->request)
			settle(rail, piece, fenced);
		else
			neap_rdma_piece_free(rail->peer, piece);
	}
	neap_rdma_peer_wake(rail->peer);
}
