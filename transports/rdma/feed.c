/* Cutting requests in pieces, choosing a path for each, posting (te spec 5.4, 5.5). */
#include "transports/rdma/peer.h"
#include <string.h>

/* --- the sends of one endpoint, together */

/* What was not posted waits again, in its order, without having cost a try. */
static void take_back(struct neap_rdma_peer *peer, struct neap_rdma_gather *gather, uint32_t posted)
{
	for (uint32_t i = posted; i < gather->count; i++) {
		struct neap_rdma_piece *piece = gather->pieces[i];
		neap_rdma_piece_unlink(&gather->rail->pieces, piece);
		peer->initiator->device_bytes[gather->rail->local] -= piece->length;
		peer->remote_bytes[gather->rail->remote] -= piece->length;
		piece->rail = NULL;
		if (piece->request->stopped)
			neap_rdma_piece_drop(peer, piece);
		else
			neap_rdma_piece_append(&peer->again, piece);
	}
}

static void begun(struct neap_rdma_gather *gather, uint32_t posted)
{
	for (uint32_t i = 0; i < posted; i++) {
		struct neap_rdma_request *request = gather->pieces[i]->request;
		gather->pieces[i]->posted = true;
		if (request->posted)
			continue;
		request->posted = true;
		neap_slice_begun(request->slice);
	}
}

static void flush(struct neap_rdma_peer *peer, struct neap_rdma_gather *gather)
{
	if (gather->count == 0)
		return;
	uint32_t posted = neap_rdma_endpoint_post(gather->rail->user.endpoint, gather->sends, gather->count);
	peer->initiator->stats.pieces_posted += posted;
	begun(gather, posted);
	if (posted < gather->count)
		take_back(peer, gather, posted);
	gather->count = 0;
	gather->rail = NULL;
}

static void flush_all(struct neap_rdma_peer *peer)
{
	for (uint32_t i = 0; i < NEAP_RDMA_GATHERS; i++)
		flush(peer, &peer->initiator->gathers[i]);
}

static struct neap_rdma_gather *gather_for(struct neap_rdma_peer *peer, struct neap_rdma_rail *rail)
{
	struct neap_rdma_gather *gathers = peer->initiator->gathers, *free_one = NULL;
	for (uint32_t i = 0; i < NEAP_RDMA_GATHERS; i++) {
		if (gathers[i].rail == rail)
			return &gathers[i];
		if (!gathers[i].rail)
			free_one = &gathers[i];
	}
	if (!free_one) {
		flush(peer, &gathers[0]);
		free_one = &gathers[0];
	}
	free_one->rail = rail;
	return free_one;
}

static uint32_t gathered_for(const struct neap_rdma_peer *peer, const struct neap_rdma_rail *rail)
{
	const struct neap_rdma_gather *gathers = peer->initiator->gathers;
	for (uint32_t i = 0; i < NEAP_RDMA_GATHERS; i++)
		if (gathers[i].rail == rail)
			return gathers[i].count;
	return 0;
}

/* --- paths */

/* A piece in search of a path. */
struct search {
	struct neap_rdma_peer *peer;
	const struct neap_rdma_hot *here, *there;
	const struct neap_rdma_piece *piece;
	bool now; /* only rails that take one more send at once */
};

static bool is_window_full(const struct neap_rdma_peer *peer, const struct neap_rdma_rail *rail)
{
	uint32_t window = peer->initiator->ground.options.window_bytes;
	if (!window)
		window = rail->queue->device->handle.limits.window_bytes;
	return window && peer->remote_bytes[rail->remote] >= window;
}

static bool can_carry(const struct search *search, const struct neap_rdma_rail *rail)
{
	const struct neap_rdma_peer *peer = search->peer;
	bool placed = search->piece->request->slice->placed;
	return rail->open && !is_window_full(peer, rail) && neap_rdma_endpoint_room(rail->user.endpoint) > gathered_for(peer, rail) &&
	       (!placed || neap_rdma_can_check(peer->initiator, rail->queue));
}

static bool is_no_path(void *user, struct neap_path path)
{
	const struct search *search = user;
	const struct neap_rdma_peer *peer = search->peer;
	const struct neap_rdma_queue *queue = peer->initiator->queue_of[path.local];
	const struct neap_rdma_rail *rail = neap_rdma_rail_of(peer, path);
	if (!queue || !queue->usable)
		return true;
	if (!search->now)
		return rail && rail->paused;
	return !rail || !can_carry(search, rail);
}

static bool search(struct search *what, struct neap_path *path_p)
{
	struct neap_rdma_initiator *initiator = what->peer->initiator;
	const struct neap_path tried = {what->piece->local, what->piece->remote};
	const struct neap_path_question question = {
		.local = &what->here->side,
		.remote = &what->there->side,
		.local_bytes = initiator->device_bytes,
		.remote_bytes = what->peer->remote_bytes,
		.random = initiator->lot += UINT64_C(0x9e3779b97f4a7c15), /* a system call for each piece would cost ten times the rest */
		.same_name = !initiator->ground.options.any_rail,
		.tried = &tried,
		.tried_count = what->piece->posted ? 1 : 0,
		.paused = is_no_path,
		.user = what,
	};
	return neap_path_choose(&question, path_p);
}

/* The best path is opened when nobody has opened it yet; meanwhile the best of those that are open is taken, but not for everything: there
 * shall be work for the best one when it is open. NULL: none, now. */
static struct neap_rdma_rail *choose(struct search *what)
{
	struct neap_rdma_peer *peer = what->peer;
	struct neap_path path;
	what->now = false;
	if (!search(what, &path))
		return NULL;
	struct neap_rdma_rail *rail = neap_rdma_rail_of(peer, path);
	if (!rail)
		rail = neap_rdma_rail_make(peer, path);
	if (rail && !neap_rdma_rail_is_trying(rail))
		peer->wishes = rail->wished = true;
	if (rail && can_carry(what, rail))
		return rail;
	bool opens = rail && !rail->open && !rail->waits_ns;
	what->now = true;
	if (!search(what, &path))
		return NULL;
	rail = neap_rdma_rail_of(peer, path);
	return opens && neap_rdma_rail_holds(rail) >= NEAP_RDMA_AHEAD ? NULL : rail;
}

/* --- pieces */

/* What is left joins the last piece, if it is not much more than one. */
static uint64_t cut_length(const struct neap_rdma_initiator_options *options, uint64_t left)
{
	return left <= (uint64_t)options->piece_bytes + options->tail_bytes ? left : options->piece_bytes;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static bool find_keys(const struct search *what, const struct neap_rdma_rail *rail, const void *address, struct neap_verbs_keys *keys_p,
                      uint64_t *end_p)
{
	struct neap_rdma_initiator *initiator = what->peer->initiator;
	if (!neap_rdma_memory_keys(initiator->ground.memory, what->here->memory_id, rail->queue->device, address, keys_p, end_p))
		return true;
	initiator->version++; /* the device has lost it since it was looked at */
	return false;
}

/* Appends a send of the piece to what the rail is given. */
static void load(const struct search *what, struct neap_rdma_rail *rail, struct neap_rdma_piece *piece, uint32_t lkey)
{
	struct neap_rdma_peer *peer = what->peer;
	struct neap_rdma_initiator *initiator = peer->initiator;
	const struct neap_slice *slice = piece->request->slice;
	struct neap_rdma_gather *gather = gather_for(peer, rail);
	piece->rail = rail;
	piece->local = rail->local;
	piece->remote = rail->remote;
	piece->seen = (uint32_t)peer->segment->refreshed;
	piece->rkey = piece->request->lent ? neap_rdma_lent_key(rail, neap_slice_grant(slice))
	                                   : neap_rdma_descriptor(peer)->buffers[what->there->buffer].rkeys[rail->remote];
	gather->pieces[gather->count] = piece;
	gather->sends[gather->count++] = (struct neap_verbs_send){
		.id = neap_pool_handle(&initiator->pieces, piece),
		.opcode = piece->write ? NEAP_VERBS_WRITE : NEAP_VERBS_READ,
		.length = piece->length,
		.lkey = lkey,
		.rkey = piece->rkey,
		.local = (uintptr_t)slice->source + piece->offset,
		.remote = slice->address + piece->offset,
	};
	neap_rdma_piece_append(&rail->pieces, piece);
	initiator->device_bytes[rail->local] += piece->length;
	peer->remote_bytes[rail->remote] += piece->length;
	if (gather->count == NEAP_RDMA_GATHER)
		flush(peer, gather);
}

static const struct neap_rdma_hot *find_there(struct neap_rdma_peer *peer, const struct neap_rdma_request *request, uint64_t offset)
{
	const struct neap_slice *slice = request->slice;
	return request->lent ? neap_rdma_peer_lent(peer, neap_slice_grant(slice)) : neap_rdma_peer_there(peer, slice->address + offset);
}

static enum neap_cause cause_without(const struct neap_rdma_request *request)
{
	return request->lent ? NEAP_CAUSE_GRANT_REFUSED : NEAP_CAUSE_RANGE_NOT_REMOTE;
}

/* Where the bytes of a request from `offset` on lie, at both ends. When one of them does not: it ends, or waits for a fresh descriptor. */
static bool find_ends(struct search *what, struct neap_rdma_request *request, uint64_t offset)
{
	struct neap_rdma_peer *peer = what->peer;
	struct neap_slice *slice = request->slice;
	what->here = neap_rdma_peer_here(peer, (uintptr_t)slice->source + offset);
	what->there = find_there(peer, request, offset);
	if (!what->here)
		neap_rdma_request_stop(peer, request, NEAP_FAILED, NEAP_CAUSE_LOCAL_MEMORY, 0);
	else if (!what->there && (request->checked || request->lent))
		neap_rdma_request_stop(peer, request, NEAP_FAILED, cause_without(request), 0);
	else if (!what->there)
		neap_rdma_request_put(peer, request, NEAP_RDMA_UNSURE);
	return what->here && what->there;
}

/* The next piece of the first queued request. False: nothing can be done now. */
static bool feed_queued(struct neap_rdma_peer *peer)
{
	struct neap_rdma_initiator *initiator = peer->initiator;
	struct neap_rdma_request *request = peer->queued.first;
	struct neap_slice *slice = request->slice;
	struct neap_rdma_piece blank = {.request = request, .offset = request->cut};
	struct search what = {.peer = peer, .piece = &blank};
	if (!find_ends(&what, request, request->cut))
		return true;
	if (slice->placed && neap_rdma_scratch_of(initiator) == NEAP_RDMA_SCRATCH_REFUSED) {
		neap_rdma_request_stop(peer, request, NEAP_FAILED, NEAP_CAUSE_LOCAL_MEMORY, 0);
		return true;
	}
	struct neap_rdma_rail *rail = choose(&what);
	if (!rail)
		return false;
	unsigned char *address = slice->source + request->cut;
	struct neap_verbs_keys keys;
	uint64_t end, length = cut_length(&initiator->ground.options, slice->length - request->cut);
	if (!find_keys(&what, rail, address, &keys, &end))
		return false;
	length = least(length, end - (uintptr_t)address);
	length = least(length, what.there->to - (slice->address + request->cut));
	struct neap_rdma_piece *piece = neap_rdma_piece_take(peer, request, request->cut, (uint32_t)length);
	if (!piece)
		return false;
	load(&what, rail, piece, keys.lkey);
	request->cut += length;
	if (request->cut == slice->length)
		neap_rdma_request_put(peer, request, NEAP_RDMA_CUT);
	return true;
}

/* The first of those that are posted again. Its length stays: only what it lies in at the peer may have become smaller. */
static bool feed_again(struct neap_rdma_peer *peer)
{
	struct neap_rdma_piece *piece = peer->again.first;
	struct neap_rdma_request *request = piece->request;
	struct neap_slice *slice = request->slice;
	struct search what = {.peer = peer, .piece = piece};
	what.here = neap_rdma_peer_here(peer, (uintptr_t)slice->source + piece->offset);
	what.there = find_there(peer, request, piece->offset);
	if (!what.here || !what.there || piece->length > what.there->to - (slice->address + piece->offset)) {
		neap_rdma_request_stop(peer, request, NEAP_FAILED, what.here ? cause_without(request) : NEAP_CAUSE_LOCAL_MEMORY, 0);
		return true;
	}
	struct neap_rdma_rail *rail = choose(&what);
	if (!rail)
		return false;
	struct neap_verbs_keys keys;
	uint64_t end;
	if (!find_keys(&what, rail, slice->source + piece->offset, &keys, &end))
		return false;
	neap_rdma_piece_unlink(&peer->again, piece);
	load(&what, rail, piece, keys.lkey);
	return true;
}

/* After the posts: a rail that opens may take the endpoint of one that has nothing under way, and where there is room for fewer endpoints
 * than there are good paths, each would end the other before a piece had gone over it. */
static void open_wished(struct neap_rdma_peer *peer)
{
	if (!peer->wishes)
		return;
	peer->wishes = false;
	for (struct neap_rdma_rail *rail = peer->rails, *next; rail; rail = next) {
		next = rail->next;
		if (rail->wished && !neap_rdma_rail_is_trying(rail))
			neap_rdma_rail_want(rail);
		rail->wished = false;
	}
}

void neap_rdma_peer_feed(struct neap_rdma_peer *peer)
{
	bool more = true;
	uint32_t left = NEAP_RDMA_FEED;
	if (peer->keys_doubted)
		return;
	while (more && left > 0 && (peer->again.first || peer->queued.first)) {
		more = peer->again.first ? feed_again(peer) : feed_queued(peer);
		left--;
	}
	flush_all(peer);
	open_wished(peer);
	if (left == 0)
		neap_rdma_peer_wake(peer);
}
