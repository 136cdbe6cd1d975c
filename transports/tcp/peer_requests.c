/* Where a peer's requests stand, and the ends that are not a lane's affair. */
#include "transports/tcp/peer.h"

static void mark_place(struct neap_slice *slice, enum neap_place place)
{
	if (place == NEAP_PLACE_UNSURE)
		slice->transport_word = false;
	slice->transport_phase = (uint8_t)((slice->transport_phase & ~(unsigned)NEAP_MARK_PLACE) | (unsigned)place);
}

void neap_peer_put(struct neap_tcp_peer *peer, struct neap_slice_list *list, struct neap_slice *slice, enum neap_place place)
{
	(void)peer;
	slice->next = NULL;
	slice->previous = list->last;
	if (list->last)
		list->last->next = slice;
	else
		list->first = slice;
	list->last = slice;
	list->count++;
	mark_place(slice, place);
}

void neap_peer_put_front(struct neap_tcp_peer *peer, struct neap_slice_list *list, struct neap_slice *slice, enum neap_place place)
{
	(void)peer;
	slice->previous = NULL;
	slice->next = list->first;
	if (list->first)
		list->first->previous = slice;
	else
		list->last = slice;
	list->first = slice;
	list->count++;
	mark_place(slice, place);
}

static struct neap_slice_list *list_of(struct neap_tcp_peer *peer, const struct neap_slice *slice)
{
	switch ((enum neap_place)(slice->transport_phase & NEAP_MARK_PLACE)) {
	case NEAP_PLACE_QUEUE:
		return &peer->queue;
	case NEAP_PLACE_UNSURE:
		return &peer->unsure;
	case NEAP_PLACE_LIMBO:
		return &peer->limbo;
	case NEAP_PLACE_DOOMED:
		return &peer->doomed;
	case NEAP_PLACE_NONE:
	case NEAP_PLACE_LANE:
		break;
	}
	return NULL;
}

void neap_peer_unlink(struct neap_tcp_peer *peer, struct neap_slice *slice)
{
	struct neap_slice_list *list = list_of(peer, slice);
	if (slice->previous)
		slice->previous->next = slice->next;
	else
		list->first = slice->next;
	if (slice->next)
		slice->next->previous = slice->previous;
	else
		list->last = slice->previous;
	list->count--;
	slice->next = slice->previous = NULL;
	mark_place(slice, NEAP_PLACE_NONE);
}

/* --- ends ---------------------------------------------------------------------------------------------------------------- */

void neap_peer_end_with(struct neap_tcp_peer *peer, struct neap_slice *slice, enum neap_status status, enum neap_effect effect,
                        uint64_t bytes, enum neap_cause cause, int system_errno)
{
	peer->pending--;
	if (slice->transport_phase & NEAP_MARK_SUSPECT)
		peer->suspects--;
	slice->transport_phase = 0;
	slice->transport_lane = NULL;
	neap_outcome_set(&slice->outcome, status, effect, cause, system_errno, bytes);
	neap_slice_ended(slice);
}

void neap_peer_end(struct neap_tcp_peer *peer, struct neap_slice *slice, enum neap_status status, enum neap_cause cause, int system_errno)
{
	bool touched = (slice->transport_phase & NEAP_MARK_TOUCHED) != 0;
	neap_peer_end_with(peer, slice, status, touched ? NEAP_EFFECT_UNKNOWN : NEAP_EFFECT_NONE, 0, cause, system_errno);
}

/* Its earlier lane was not seen to be dead: bytes of it may still become visible, so it is not FAILED. */
static void end_in_limbo(struct neap_tcp_peer *peer, struct neap_slice *slice, enum neap_cause cause, int system_errno)
{
	bool quiet = (slice->transport_phase & NEAP_MARK_QUIET) != 0;
	neap_peer_end(peer, slice, quiet ? NEAP_FAILED : NEAP_TIMEOUT, cause, system_errno);
}

void neap_peer_suspect(struct neap_tcp_peer *peer, struct neap_slice *slice)
{
	if (!(slice->transport_phase & NEAP_MARK_SUSPECT))
		peer->suspects++;
	slice->transport_phase |= NEAP_MARK_SUSPECT;
}

void neap_peer_repeat(struct neap_tcp_peer *peer, struct neap_slice *slice, bool counted)
{
	if (counted)
		slice->attempts++;
	slice->transport_phase &= (uint8_t)~NEAP_MARK_QUIET;
	neap_peer_put_front(peer, &peer->queue, slice, NEAP_PLACE_QUEUE);
	peer->initiator->view->stats->requests_repeated++;
	neap_slice_requeued(slice);
}

/* --- canceled ------------------------------------------------------------------------------------------------------------- */

void neap_peer_cancel(struct neap_tcp_peer *peer, struct neap_slice *slice)
{
	enum neap_status status = slice->cancel_status == NEAP_TIMEOUT ? NEAP_TIMEOUT : NEAP_CANCELED;
	enum neap_cause cause = status == NEAP_TIMEOUT ? NEAP_CAUSE_BATCH_DEADLINE : NEAP_CAUSE_CANCELED_BY_USER;
	switch ((enum neap_place)(slice->transport_phase & NEAP_MARK_PLACE)) {
	case NEAP_PLACE_LANE:
		neap_lane_abandon(slice->transport_lane, slice, status, cause, 0);
		break;
	case NEAP_PLACE_QUEUE:
	case NEAP_PLACE_UNSURE:
	case NEAP_PLACE_LIMBO:
		neap_peer_unlink(peer, slice);
		neap_peer_end(peer, slice, status, cause, 0);
		break;
	case NEAP_PLACE_DOOMED: /* it ends in a moment, with the cause that it has */
	case NEAP_PLACE_NONE:
		break;
	}
	neap_peer_wake(peer);
}

/* --- limbo ----------------------------------------------------------------------------------------------------------------- */

/* From the back, so that the front of the queue keeps their order. */
static void leave_limbo(struct neap_tcp_peer *peer, uint64_t lane_id, bool confirmed, enum neap_cause cause)
{
	struct neap_slice *previous;
	for (struct neap_slice *slice = peer->limbo.last; slice; slice = previous) {
		previous = slice->previous;
		if (lane_id != 0 && slice->transport_word != lane_id)
			continue;
		bool quiet = confirmed || (slice->transport_phase & NEAP_MARK_QUIET);
		neap_peer_unlink(peer, slice);
		if (quiet)
			neap_peer_repeat(peer, slice, true);
		else
			neap_peer_end(peer, slice, NEAP_TIMEOUT, cause, 0);
	}
}

void neap_peer_fenced(struct neap_tcp_peer *peer, uint32_t slot, bool confirmed)
{
	uint64_t lane_id = peer->fences[slot];
	peer->fences[slot] = 0;
	leave_limbo(peer, lane_id, confirmed, NEAP_CAUSE_NO_PROGRESS);
}

void neap_peer_other_instance(struct neap_tcp_peer *peer)
{
	for (uint32_t i = 0; i < NEAP_PEER_LANES_MAX; i++)
		peer->fences[i] = 0;
	leave_limbo(peer, 0, false, NEAP_CAUSE_OTHER_INSTANCE);
}

/* --- told of their end, some per piece of work ---------------------------------------------------------------------------------- */

void neap_peer_doom_all(struct neap_tcp_peer *peer, enum neap_cause cause, int system_errno)
{
	struct neap_slice_list *lists[] = {&peer->queue, &peer->unsure, &peer->limbo};
	peer->doom_cause = (uint8_t)cause;
	peer->doom_errno = system_errno;
	for (uint32_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		struct neap_slice *slice;
		while ((slice = lists[i]->first)) {
			neap_peer_unlink(peer, slice);
			neap_peer_put(peer, &peer->doomed, slice, NEAP_PLACE_DOOMED);
			if (lists[i] != &peer->limbo)
				slice->transport_phase |= NEAP_MARK_QUIET;
		}
	}
}

bool neap_peer_tell_doomed(struct neap_tcp_peer *peer)
{
	struct neap_slice *slice;
	for (uint32_t left = NEAP_PEER_PIECE; left > 0 && (slice = peer->doomed.first); left--) {
		neap_peer_unlink(peer, slice);
		end_in_limbo(peer, slice, peer->doom_cause, peer->doom_errno);
	}
	return peer->doomed.first == NULL;
}

bool neap_peer_tell_leaving(struct neap_tcp_peer *peer)
{
	struct neap_slice_list *lists[] = {&peer->queue, &peer->unsure, &peer->limbo, &peer->doomed};
	uint32_t left = NEAP_PEER_PIECE;
	for (uint32_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
		for (struct neap_slice *slice; left > 0 && (slice = lists[i]->first); left--) {
			neap_peer_unlink(peer, slice);
			neap_peer_end(peer, slice, NEAP_CANCELED, peer->leave_cause, 0);
		}
	return left > 0;
}
