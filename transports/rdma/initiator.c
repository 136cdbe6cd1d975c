/* The door of the initiator: what the engine and the devices' queues ask of it, handed to peers. */
#include "transports/rdma/peer.h"
#include "transports/rdma/peer_fsm.h"
#include "transports/rdma/rail_fsm.h"

#define PIECES 16384u
#define PIECE_BYTES 65536u
#define TAIL_BYTES 16384u
#define TRIES 9u
#define RAIL_PAUSE_MS 30000u
#define RAILS_SHARE 4u /* rails of the pool for each peer there may be */

static void fill_options(struct neap_rdma_initiator_options *options)
{
	options->pieces_max = options->pieces_max ? options->pieces_max : PIECES;
	options->piece_bytes = options->piece_bytes ? options->piece_bytes : PIECE_BYTES;
	options->tail_bytes = options->tail_bytes ? options->tail_bytes : TAIL_BYTES;
	options->tries_max = options->tries_max ? options->tries_max : TRIES;
	options->rail_pause_ms = options->rail_pause_ms ? options->rail_pause_ms : RAIL_PAUSE_MS;
}

static void run(struct neap_ready *ready)
{
	struct neap_rdma_initiator *initiator =
		(struct neap_rdma_initiator *)(void *)((char *)ready - offsetof(struct neap_rdma_initiator, ready));
	if (!initiator->closing || initiator->peers.used > 0 || !initiator->closed)
		return;
	void (*closed)(void *user) = initiator->closed;
	initiator->closed = NULL;
	closed(initiator->closed_user);
}

static int make_pools(struct neap_rdma_initiator *initiator)
{
	const struct neap_engine_options *options = initiator->ground.view->options;
	struct neap_reactor *reactor = initiator->reactor;
	uint64_t share = (uint64_t)options->peers_max * RAILS_SHARE;
	uint32_t rails = share < UINT32_MAX / 2 ? (uint32_t)share : UINT32_MAX / 2;
	int error = neap_pool_create(&initiator->peers, reactor, sizeof(struct neap_rdma_peer), options->peers_max);
	if (!error)
		error = neap_pool_create(&initiator->rails, reactor, sizeof(struct neap_rdma_rail), rails);
	if (!error)
		error = neap_pool_create(&initiator->requests, reactor, sizeof(struct neap_rdma_request), options->requests_max);
	if (!error)
		error = neap_pool_create(&initiator->pieces, reactor, sizeof(struct neap_rdma_piece), initiator->ground.options.pieces_max);
	return error;
}

int neap_rdma_initiator_create(struct neap_rdma_initiator **initiator_p, const struct neap_rdma_ground *ground)
{
	struct neap_reactor *reactor = ground->view->reactor;
	struct neap_rdma_initiator *initiator = neap_allocate(reactor, sizeof *initiator);
	*initiator_p = NULL;
	if (!initiator)
		return NEAP_ENOMEM;
	initiator->ground = *ground;
	initiator->reactor = reactor;
	initiator->ready.run = run;
	initiator->lot = neap_random_u64(reactor);
	fill_options(&initiator->ground.options);
	for (uint32_t i = 0; i < ground->queue_count; i++)
		initiator->queue_of[ground->queues[i].device->index] = &ground->queues[i];
	int error = neap_reactor_class_of(reactor, &neap_rdma_peer_kind, &initiator->peer_class);
	if (!error)
		error = neap_reactor_class_of(reactor, &neap_rdma_rail_kind, &initiator->rail_class);
	if (!error)
		error = make_pools(initiator);
	if (error)
		neap_rdma_initiator_destroy(initiator);
	else
		*initiator_p = initiator;
	return error;
}

void neap_rdma_initiator_destroy(struct neap_rdma_initiator *initiator)
{
	struct neap_reactor *reactor = initiator->reactor;
	neap_ready_cancel(reactor, &initiator->ready);
	neap_pool_destroy(&initiator->pieces);
	neap_pool_destroy(&initiator->requests);
	neap_pool_destroy(&initiator->rails);
	neap_pool_destroy(&initiator->peers);
	neap_release(reactor, initiator, sizeof *initiator);
}

void neap_rdma_initiator_memory_changed(struct neap_rdma_initiator *initiator, bool wake)
{
	uint32_t index = 0;
	initiator->version++;
	for (struct neap_rdma_peer *peer; wake && (peer = neap_pool_next(&initiator->peers, &index));)
		neap_rdma_peer_wake(peer);
}

/* --- of the engine */

static struct neap_rdma_peer *peer_for(struct neap_rdma_initiator *initiator, struct neap_segment *segment)
{
	if (!segment->rdma_peer) {
		struct neap_rdma_peer *peer = neap_pool_take(&initiator->peers);
		if (peer)
			neap_rdma_peer_begin(peer, initiator, segment);
	}
	return segment->rdma_peer;
}

void neap_rdma_initiator_submit(struct neap_rdma_initiator *initiator, struct neap_segment *segment, struct neap_slice *first,
                                uint32_t count)
{
	struct neap_rdma_peer *peer = peer_for(initiator, segment);
	struct neap_slice *next;
	for (struct neap_slice *slice = first; count > 0; slice = next, count--) {
		next = slice->next;
		neap_rdma_request_begin(peer, slice);
	}
	neap_rdma_peer_wake(peer);
}

uint32_t neap_rdma_initiator_room(const struct neap_rdma_initiator *initiator, const struct neap_segment *segment)
{
	const struct neap_rdma_peer *peer = segment->rdma_peer;
	uint32_t most = initiator->ground.view->options->requests_per_peer_max, left = initiator->requests.capacity - initiator->requests.used;
	if (initiator->closing || (!peer && initiator->peers.used == initiator->peers.capacity))
		return 0;
	if (peer)
		most = peer->leaving || peer->pending >= most ? 0 : most - peer->pending;
	return most < left ? most : left;
}

void neap_rdma_initiator_cancel(struct neap_rdma_initiator *initiator, struct neap_slice *slice)
{
	struct neap_rdma_request *request = slice->transport_lane;
	struct neap_rdma_peer *peer = slice->segment->rdma_peer;
	enum neap_status status = slice->cancel_status == NEAP_TIMEOUT ? NEAP_TIMEOUT : NEAP_CANCELED;
	(void)initiator;
	if (!request || !peer)
		return;
	neap_rdma_request_stop(peer, request, status, status == NEAP_TIMEOUT ? NEAP_CAUSE_BATCH_DEADLINE : NEAP_CAUSE_CANCELED_BY_USER, 0);
	neap_rdma_peer_wake(peer);
}

void neap_rdma_initiator_forget(struct neap_rdma_initiator *initiator, struct neap_segment *segment,
                                void (*forgotten)(void *user, struct neap_segment *segment), void *user)
{
	struct neap_rdma_peer *peer = segment->rdma_peer;
	(void)initiator;
	if (!peer) {
		forgotten(user, segment);
		return;
	}
	peer->forgotten = forgotten;
	peer->forgotten_user = user;
	neap_rdma_peer_leave(peer, NEAP_CAUSE_SEGMENT_CLOSED);
}

void neap_rdma_initiator_close(struct neap_rdma_initiator *initiator, void (*closed)(void *user), void *user)
{
	uint32_t index = 0;
	initiator->closing = true;
	initiator->closed = closed;
	initiator->closed_user = user;
	for (struct neap_rdma_peer *peer; (peer = neap_pool_next(&initiator->peers, &index));)
		if (peer->machine.state != rdma_peer_GONE)
			neap_rdma_peer_leave(peer, NEAP_CAUSE_ENGINE_CLOSED);
	neap_ready_again(initiator->reactor, &initiator->ready);
}

/* --- of the queues */

void neap_rdma_initiator_completed(struct neap_rdma_initiator *initiator, struct neap_rdma_queue *queue,
                                   const struct neap_verbs_completion *completions, uint32_t count)
{
	(void)queue;
	for (uint32_t i = 0; i < count; i++) {
		struct neap_rdma_piece *piece = neap_pool_find(&initiator->pieces, completions[i].id);
		if (!piece || !piece->rail) /* of a queue pair that was destroyed before it was polled */
			continue;
		struct neap_rdma_peer *peer = piece->rail->peer;
		neap_rdma_piece_completed(piece, &completions[i]);
		neap_rdma_peer_wake(peer);
	}
	neap_rdma_checks_post(initiator);
}

/* A port that is back is tried at once, and memory may be on other devices now. */
void neap_rdma_initiator_queue_changed(struct neap_rdma_initiator *initiator, struct neap_rdma_queue *queue)
{
	uint32_t index = 0;
	initiator->version++;
	for (struct neap_rdma_peer *peer; (peer = neap_pool_next(&initiator->peers, &index));) {
		for (struct neap_rdma_rail *rail = peer->rails; rail && queue->usable; rail = rail->next)
			if (rail->queue == queue)
				neap_rdma_rail_resume(rail);
		neap_rdma_peer_wake(peer);
	}
}

void neap_rdma_initiator_device(const struct neap_rdma_initiator *initiator, uint32_t device, uint64_t *moved_p, uint64_t *under_way_p)
{
	*moved_p = initiator->device_moved[device];
	*under_way_p = initiator->device_bytes[device];
}

void neap_rdma_initiator_stats(const struct neap_rdma_initiator *initiator, struct neap_rdma_initiator_stats *stats_p)
{
	uint32_t index = 0;
	*stats_p = initiator->stats;
	stats_p->peers = initiator->peers.used;
	stats_p->rails = initiator->rails.used;
	stats_p->requests = initiator->requests.used;
	stats_p->pieces = initiator->pieces.used;
	for (const struct neap_rdma_rail *rail; (rail = neap_pool_next(&initiator->rails, &index));)
		stats_p->rails_open += rail->open;
}
