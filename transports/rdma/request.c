/* Requests: where they stand, and how they end. */
#include "transports/rdma/peer.h"

#define NS_PER_MS UINT64_C(1000000)

static struct neap_rdma_request_list *list_of(struct neap_rdma_peer *peer, const struct neap_rdma_request *request)
{
	if (request->stopped)
		return &peer->draining;
	switch ((enum neap_rdma_place)request->place) {
	case NEAP_RDMA_UNSURE: return &peer->unsure;
	case NEAP_RDMA_QUEUED: return &peer->queued;
	case NEAP_RDMA_CUT: return &peer->cut;
	case NEAP_RDMA_NOWHERE: break;
	}
	return NULL;
}

static void take_out(struct neap_rdma_peer *peer, struct neap_rdma_request *request)
{
	struct neap_rdma_request_list *list = list_of(peer, request);
	if (!list)
		return;
	*(request->previous ? &request->previous->next : &list->first) = request->next;
	*(request->next ? &request->next->previous : &list->last) = request->previous;
	request->next = request->previous = NULL;
	list->count--;
	request->place = NEAP_RDMA_NOWHERE;
}

static void append(struct neap_rdma_request_list *list, struct neap_rdma_request *request)
{
	request->next = NULL;
	request->previous = list->last;
	*(list->last ? &list->last->next : &list->first) = request;
	list->last = request;
	list->count++;
}

void neap_rdma_request_put(struct neap_rdma_peer *peer, struct neap_rdma_request *request, enum neap_rdma_place place)
{
	take_out(peer, request);
	request->place = (uint8_t)place;
	request->looked = false;
	append(list_of(peer, request), request);
}

void neap_rdma_request_begin(struct neap_rdma_peer *peer, struct neap_slice *slice)
{
	struct neap_rdma_request *request = neap_pool_take(&peer->initiator->requests); /* room was asked for before */
	*request = (struct neap_rdma_request){.slice = slice, .lent = neap_rdma_slice_is_lent(peer->segment, slice)};
	request->lent = request->lent && !neap_rdma_options_of(peer)->plain_only;
	slice->transport_phase = NEAP_RDMA_PLACE;
	slice->transport_lane = request;
	slice->moved = 0;
	peer->pending++;
	peer->holding++;
	bool known = request->lent || (slice->length > 0 && neap_rdma_peer_covers(peer, slice->address, slice->length));
	neap_rdma_request_put(peer, request, known ? NEAP_RDMA_QUEUED : NEAP_RDMA_UNSURE);
}

/* --- ends */

/* What is known of the bytes. All that was cut has arrived: that is a prefix. */
static enum neap_effect effect_of(const struct neap_rdma_request *request)
{
	if (!request->posted)
		return NEAP_EFFECT_NONE;
	if (request->unsure || request->pieces > 0 || request->done != request->cut)
		return NEAP_EFFECT_UNKNOWN;
	return request->cut > 0 ? NEAP_EFFECT_PARTIAL : NEAP_EFFECT_NONE;
}

/* FAILED is only said when no further byte can become visible. */
static enum neap_status status_of(const struct neap_rdma_request *request)
{
	bool lands = request->may_land || (request->pieces > 0 && request->slice->opcode == NEAP_WRITE);
	return request->status == NEAP_FAILED && lands ? NEAP_TIMEOUT : request->status;
}

static void tell(struct neap_rdma_peer *peer, struct neap_rdma_request *request, bool held)
{
	struct neap_slice *slice = request->slice;
	bool whole = request->done == slice->length && !held && !(request->stopped && slice->length == 0);
	if (whole)
		neap_outcome_set(&slice->outcome, NEAP_COMPLETED, NEAP_EFFECT_ALL, NEAP_CAUSE_NONE, 0, slice->length);
	else
		neap_outcome_set(&slice->outcome, status_of(request), effect_of(request), request->cause, request->system_errno, request->cut);
	if (held)
		slice->outcome.buffer = NEAP_BUFFER_HELD;
	request->told = true;
	peer->pending--;
	neap_slice_ended(slice);
}

static void give_back(struct neap_rdma_peer *peer, struct neap_rdma_request *request)
{
	take_out(peer, request);
	request->slice->transport_lane = NULL;
	request->slice->transport_phase = 0;
	peer->holding--;
	neap_pool_give(&peer->initiator->requests, request);
}

void neap_rdma_request_rest(struct neap_rdma_peer *peer, struct neap_rdma_request *request)
{
	struct neap_slice *slice = request->slice;
	if (request->pieces > 0 || !(request->stopped || request->done == slice->length))
		return;
	bool told = request->told;
	if (!told)
		tell(peer, request, false);
	give_back(peer, request);
	if (told)
		neap_slice_released(slice);
}

/* --- stopped */

/* Pieces of it that wait to be posted again are not. */
static void drop_waiting(struct neap_rdma_peer *peer, struct neap_rdma_request *request)
{
	struct neap_rdma_piece *next;
	for (struct neap_rdma_piece *piece = peer->again.first; piece && request->pieces > 0; piece = next) {
		next = piece->next;
		if (piece->request != request)
			continue;
		neap_rdma_piece_unlink(&peer->again, piece);
		neap_rdma_piece_free(peer, piece);
	}
}

static void wait_for_drain(struct neap_rdma_peer *peer)
{
	const struct neap_rdma_request *first = peer->draining.first;
	while (first && first->told)
		first = first->next;
	if (first)
		(void)neap_timer_start(peer->initiator->reactor, &peer->drain, first->drain_ns, neap_rdma_peer_drain_due, peer);
	else
		neap_timer_cancel(peer->initiator->reactor, &peer->drain);
}

void neap_rdma_request_stop(struct neap_rdma_peer *peer, struct neap_rdma_request *request, enum neap_status status, enum neap_cause cause,
                            int system_errno)
{
	if (request->stopped)
		return;
	take_out(peer, request);
	request->stopped = true;
	request->status = (uint8_t)status;
	request->cause = (uint8_t)cause;
	request->system_errno = (int16_t)system_errno;
	request->drain_ns = neap_now(peer->initiator->reactor) + neap_rdma_options_of(peer)->drain_timeout_ms * NS_PER_MS;
	append(&peer->draining, request);
	drop_waiting(peer, request);
	if (request->pieces > 0)
		wait_for_drain(peer);
	else
		neap_rdma_request_rest(peer, request);
}

static bool is_in(const struct neap_rdma_piece_list *list, const struct neap_rdma_request *request)
{
	const struct neap_rdma_piece *piece = list->first;
	while (piece && piece->request != request)
		piece = piece->next;
	return piece != NULL;
}

/* What still carries pieces of it has not moved for drain_timeout_ms: it is given up, and with it what else it carries. */
static void break_rails(struct neap_rdma_peer *peer, const struct neap_rdma_request *request)
{
	for (struct neap_rdma_rail *rail = peer->rails; rail; rail = rail->next)
		if (rail->user.endpoint && (is_in(&rail->pieces, request) || is_in(&rail->unchecked, request) || is_in(&rail->covered, request)))
			neap_rdma_endpoint_retire(rail->user.endpoint, NEAP_CAUSE_NO_PROGRESS, "a canceled request did not end in drain_timeout_ms");
}

void neap_rdma_peer_drain_due(struct neap_timer *timer, void *user)
{
	struct neap_rdma_peer *peer = user;
	uint64_t now_ns = neap_now(peer->initiator->reactor);
	(void)timer;
	for (struct neap_rdma_request *request = peer->draining.first; request && request->drain_ns <= now_ns; request = request->next) {
		if (request->told)
			continue;
		tell(peer, request, true);
		break_rails(peer, request);
	}
	wait_for_drain(peer);
	neap_rdma_peer_wake(peer);
}
