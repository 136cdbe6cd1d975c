/* What a peer's descriptor says: what it speaks, where its data ports are, which ranges it offers. */
#include "transports/tcp/peer.h"

static const struct neap_descriptor *descriptor_of(const struct neap_tcp_peer *peer)
{
	return peer->segment->snapshot->descriptor;
}

static enum neap_peer_kind kind_of(const struct neap_tcp_peer *peer)
{
	const struct neap_descriptor *descriptor = descriptor_of(peer);
	const struct neap_engine_options *options = neap_peer_options(peer);
	if (descriptor->neap.present && descriptor->neap.level >= NEAP_WIRE_LEVEL && !options->plain_only && !options->v1_only)
		return NEAP_PEER_NEAP;
	return descriptor->tcp_proto_version >= 2 && !options->v1_only ? NEAP_PEER_V2 : NEAP_PEER_V1;
}

/* The port of a slot's lanes: Neap peers have one for each core, and lanes spread over them. 0: none. */
static uint16_t port_of(const struct neap_tcp_peer *peer, enum neap_peer_kind kind, uint32_t slot, uint32_t *core_p)
{
	const struct neap_descriptor *descriptor = descriptor_of(peer);
	uint32_t count = descriptor->neap.port_count < NEAP_CORES_MAX ? descriptor->neap.port_count : NEAP_CORES_MAX;
	*core_p = 0;
	if (kind == NEAP_PEER_NEAP && count > 0) {
		*core_p = (peer->initiator->view->core_index + slot) % count;
		return descriptor->neap.ports[*core_p];
	}
	return descriptor->tcp_data_port > 0 && descriptor->tcp_data_port <= UINT16_MAX ? (uint16_t)descriptor->tcp_data_port : 0;
}

bool neap_peer_target(const struct neap_tcp_peer *peer, uint32_t slot, struct neap_host_port *target_p, uint32_t *core_p)
{
	/* The host that the directory found it at: what the peer calls itself in its descriptor may mean another machine here. */
	*target_p = peer->segment->snapshot->owner;
	target_p->port = port_of(peer, peer->kind, slot, core_p);
	target_p->has_port = true;
	return target_p->port != 0;
}

bool neap_lane_still_right(const struct neap_tcp_lane *lane)
{
	const struct neap_tcp_peer *peer = lane->peer;
	uint32_t core;
	if (lane->kind != kind_of(peer))
		return false;
	if (lane->kind == NEAP_PEER_NEAP)
		return memcmp(lane->instance, descriptor_of(peer)->neap.instance, sizeof lane->instance) == 0;
	return lane->port == port_of(peer, lane->kind, lane->slot, &core);
}

/* Lanes to what the peer was take no more requests; those under way are answered or not. */
static void retire_wrong_lanes(struct neap_tcp_peer *peer)
{
	for (uint32_t i = 0; i < NEAP_PEER_LANES_MAX; i++) {
		struct neap_tcp_lane *lane = peer->lanes[i];
		if (!lane || lane->end || !lane->live || neap_lane_still_right(lane))
			continue;
		lane->retired = true;
		neap_lane_kick(lane);
	}
}

bool neap_peer_is_as_seen(const struct neap_tcp_peer *peer)
{
	uint32_t core;
	return peer->seen && peer->kind == kind_of(peer) && peer->port == port_of(peer, peer->kind, 0, &core) &&
	       memcmp(peer->instance, descriptor_of(peer)->neap.instance, sizeof peer->instance) == 0;
}

void neap_peer_look(struct neap_tcp_peer *peer)
{
	if (peer->seen_refreshed == peer->segment->refreshed && peer->seen == peer->segment->snapshot)
		return;
	bool first = peer->seen == NULL;
	const struct neap_descriptor *descriptor = descriptor_of(peer);
	enum neap_peer_kind kind = kind_of(peer);
	uint32_t core;
	bool other = !first && (kind != peer->kind || memcmp(peer->instance, descriptor->neap.instance, sizeof peer->instance) != 0);
	bool moved = !first && port_of(peer, kind, 0, &core) != peer->port;
	peer->seen = peer->segment->snapshot;
	peer->seen_refreshed = peer->segment->refreshed;
	peer->kind = (uint8_t)kind;
	peer->port = port_of(peer, kind, 0, &core);
	memcpy(peer->instance, descriptor->neap.instance, sizeof peer->instance);
	peer->hot_from = peer->hot_to = 0;
	if (other || moved)
		peer->manners = NEAP_MANNERS_UNKNOWN;
	if (other)
		neap_peer_other_instance(peer);
	if (!first)
		retire_wrong_lanes(peer);
}

/* --- admission -------------------------------------------------------------------------------------------------------------- */

static bool covers(struct neap_tcp_peer *peer, uint64_t address, uint64_t length)
{
	bool seen = peer->seen_refreshed == peer->segment->refreshed;
	if (seen && address >= peer->hot_from && address <= peer->hot_to && length <= peer->hot_to - address)
		return true;
	const struct neap_descriptor *descriptor = descriptor_of(peer);
	if (!neap_descriptor_covers(descriptor, address, length))
		return false;
	if (!seen)
		return true;
	for (uint32_t i = 0; i < descriptor->buffer_count && i < NEAP_PEER_HOT_SEARCH; i++) {
		const struct neap_buffer_desc *buffer = &descriptor->buffers[i];
		if (address >= buffer->address && address - buffer->address < buffer->length) {
			peer->hot_from = buffer->address;
			peer->hot_to = buffer->address + buffer->length;
			break;
		}
	}
	return true;
}

static void range_read(struct neap_segment_waiter *waiter, int error, const char *why)
{
	struct neap_tcp_peer *peer = (struct neap_tcp_peer *)(void *)((char *)waiter - offsetof(struct neap_tcp_peer, range));
	(void)error; /* unreachable: what is known stays what is known */
	(void)why;
	peer->range_waiting = false;
	peer->recheck = true;
	neap_peer_wake(peer);
}

/* A peer may have registered ranges after its descriptor was read: it is read once more before requests are refused. Those that come while
 * it is being read need a reading of their own. */
void neap_peer_ask_for_ranges(struct neap_tcp_peer *peer)
{
	if (peer->range_waiting || peer->recheck || !peer->unsure.first)
		return;
	for (struct neap_slice *slice = peer->unsure.first; slice; slice = slice->next)
		slice->transport_phase |= NEAP_MARK_CHECKED;
	peer->range_waiting = true;
	int error = neap_segment_want_fresh(peer->segment, &peer->range, neap_now(peer->initiator->reactor), range_read);
	if (error)
		range_read(&peer->range, error, NULL);
}

bool neap_peer_is_unsure(struct neap_tcp_peer *peer, const struct neap_slice *slice)
{
	if (slice->length == 0)
		return true;
	return slice->grant ? kind_of(peer) != NEAP_PEER_NEAP : !covers(peer, slice->address, slice->length);
}

/* In a first look those without bytes end, and those that the descriptor turns out to cover join the queue. When it was read anew, all
 * that had waited for that are settled. */
void neap_peer_look_at_unsure(struct neap_tcp_peer *peer)
{
	bool recheck = peer->recheck;
	struct neap_slice *next;
	uint32_t left = NEAP_PEER_PIECE;
	for (struct neap_slice *slice = peer->unsure.first; slice; slice = next) {
		next = slice->next;
		if (slice->transport_phase & NEAP_MARK_CHECKED ? !recheck : slice->transport_word)
			continue;
		if (left-- == 0) {
			neap_peer_wake(peer);
			return;
		}
		slice->transport_word = true;
		if (neap_peer_admit(peer, slice) != NEAP_ADMITTED)
			continue;
		neap_peer_unlink(peer, slice);
		neap_peer_put(peer, &peer->queue, slice, NEAP_PLACE_QUEUE);
	}
	peer->recheck = false;
}

enum neap_admission neap_peer_admit(struct neap_tcp_peer *peer, struct neap_slice *slice)
{
	enum neap_cause cause = NEAP_CAUSE_RANGE_NOT_REMOTE;
	if (slice->grant != 0 && peer->kind != NEAP_PEER_NEAP) {
		cause = NEAP_CAUSE_GRANT_REFUSED; /* a plain peer knows no grants, so it is not the one that this was given for */
	} else if (slice->grant != 0 || covers(peer, slice->address, slice->length)) {
		if (slice->length > 0)
			return NEAP_ADMITTED;
		neap_peer_unlink(peer, slice);
		neap_peer_end_with(peer, slice, NEAP_COMPLETED, NEAP_EFFECT_ALL, 0, NEAP_CAUSE_NONE, 0);
		return NEAP_ENDED;
	} else if (!(slice->transport_phase & NEAP_MARK_CHECKED)) {
		if ((slice->transport_phase & NEAP_MARK_PLACE) == NEAP_PLACE_UNSURE)
			return NEAP_NOT_NOW;
		neap_peer_unlink(peer, slice);
		neap_peer_put(peer, &peer->unsure, slice, NEAP_PLACE_UNSURE);
		neap_peer_wake(peer);
		return NEAP_NOT_NOW;
	}
	neap_peer_unlink(peer, slice);
	neap_peer_end(peer, slice, NEAP_FAILED, cause, 0);
	return NEAP_ENDED;
}
