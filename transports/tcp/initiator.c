/* The door of the initiator half: what the engine asks of it, handed to peers. */
#include "transports/tcp/peer.h"

/* Slots of all peers; lanes that ended in a turn are given back at its end. */
static uint32_t lanes_max(const struct neap_engine_options *options)
{
	uint64_t lanes = (uint64_t)options->peers_max * options->lanes_per_peer;
	return lanes < UINT32_MAX / 2 ? (uint32_t)lanes : UINT32_MAX / 2;
}

static void run(struct neap_ready *ready)
{
	struct neap_tcp_initiator *initiator =
		(struct neap_tcp_initiator *)(void *)((char *)ready - offsetof(struct neap_tcp_initiator, ready));
	if (!initiator->closing || initiator->peers.used > 0 || !initiator->closed)
		return;
	void (*closed)(void *user) = initiator->closed;
	initiator->closed = NULL;
	closed(initiator->closed_user);
}

int neap_tcp_initiator_create(struct neap_tcp_initiator **initiator_p, struct neap_transport *transport)
{
	const struct neap_engine_core_view *view = neap_engine_view(transport->engine);
	struct neap_reactor *reactor = view->reactor;
	struct neap_tcp_initiator *initiator = neap_allocate(reactor, sizeof *initiator);

	*initiator_p = NULL;
	if (!initiator)
		return NEAP_ENOMEM;
	initiator->transport = transport;
	initiator->view = view;
	initiator->reactor = reactor;
	initiator->ready.run = run;
	int error = neap_reactor_class_of(reactor, &neap_peer_kind, &initiator->peer_class);
	if (!error)
		error = neap_reactor_class_of(reactor, &neap_lane_kind, &initiator->lane_class);
	if (!error)
		error = neap_pool_create(&initiator->peers, reactor, sizeof(struct neap_tcp_peer), view->options->peers_max);
	if (!error)
		error = neap_pool_create(&initiator->lanes, reactor, sizeof(struct neap_tcp_lane), lanes_max(view->options));
	if (!error) {
		initiator->scratch = neap_allocate(reactor, sizeof *initiator->scratch);
		error = initiator->scratch ? NEAP_OK : NEAP_ENOMEM;
	}
	if (error) {
		neap_tcp_initiator_destroy(initiator);
		return error;
	}
	*initiator_p = initiator;
	return NEAP_OK;
}

void neap_tcp_initiator_destroy(struct neap_tcp_initiator *initiator)
{
	struct neap_reactor *reactor = initiator->reactor;
	neap_ready_cancel(reactor, &initiator->ready);
	if (initiator->scratch)
		neap_release(reactor, initiator->scratch, sizeof *initiator->scratch);
	neap_pool_destroy(&initiator->lanes);
	neap_pool_destroy(&initiator->peers);
	neap_release(reactor, initiator, sizeof *initiator);
}

/* There are as many as segments can be open; one that is leaving is not given to its segment's successor. */
static struct neap_tcp_peer *peer_for(struct neap_tcp_initiator *initiator, struct neap_segment *segment)
{
	if (!segment->peer) {
		struct neap_tcp_peer *peer = neap_pool_take(&initiator->peers);
		if (peer)
			neap_peer_begin(peer, initiator, segment);
	}
	return segment->peer;
}

void neap_tcp_initiator_submit(struct neap_tcp_initiator *initiator, struct neap_segment *segment, struct neap_slice *first,
                               uint32_t count)
{
	struct neap_tcp_peer *peer = peer_for(initiator, segment);
	struct neap_slice *next;
	for (struct neap_slice *slice = first; count > 0; slice = next, count--) {
		next = slice->next;
		slice->transport_phase = 0;
		slice->transport_lane = NULL;
		slice->moved = 0;
		peer->pending++;
		if (neap_peer_is_unsure(peer, slice))
			neap_peer_put(peer, &peer->unsure, slice, NEAP_PLACE_UNSURE);
		else
			neap_peer_put(peer, &peer->queue, slice, NEAP_PLACE_QUEUE);
	}
	neap_peer_wake(peer);
}

uint32_t neap_tcp_initiator_room(const struct neap_tcp_initiator *initiator, const struct neap_segment *segment)
{
	const struct neap_tcp_peer *peer = segment->peer;
	uint32_t most = initiator->view->options->requests_per_peer_max;
	if (initiator->closing || (!peer && initiator->peers.used == initiator->peers.capacity))
		return 0;
	if (!peer)
		return most;
	return peer->leaving || peer->pending >= most ? 0 : most - peer->pending;
}

void neap_tcp_initiator_cancel(struct neap_tcp_initiator *initiator, struct neap_slice *slice)
{
	(void)initiator;
	if (slice->segment->peer)
		neap_peer_cancel(slice->segment->peer, slice);
}

void neap_tcp_initiator_forget(struct neap_tcp_initiator *initiator, struct neap_segment *segment)
{
	struct neap_tcp_peer *peer = peer_for(initiator, segment);
	peer->forget_asked = true;
	neap_peer_leave(peer, NEAP_CAUSE_SEGMENT_CLOSED);
}

void neap_tcp_initiator_close(struct neap_tcp_initiator *initiator, void (*closed)(void *user), void *user)
{
	uint32_t index = 0;
	initiator->closing = true;
	initiator->closed = closed;
	initiator->closed_user = user;
	for (struct neap_tcp_peer *peer; (peer = neap_pool_next(&initiator->peers, &index));)
		if (peer->machine.state != tcp_peer_GONE)
			neap_peer_leave(peer, NEAP_CAUSE_ENGINE_CLOSED);
	neap_ready_again(initiator->reactor, &initiator->ready);
}

uint32_t neap_tcp_initiator_lanes(const struct neap_tcp_initiator *initiator)
{
	return initiator->connected;
}
