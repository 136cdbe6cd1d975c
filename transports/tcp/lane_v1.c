/* The plain v1 framing has no acknowledgement of a WRITE, and servers differ in what they do after one.
 *
 * Current ones keep the connection: a READ of the range's last byte behind the WRITE is answered after the WRITE was stored. Older ones
 * serve one request a connection and close it when the last byte is stored: their end of file acknowledges, if all that was sent has been
 * taken (had they closed with something unread, it would have been a reset). To such a server the READ would turn the end of file into
 * a reset, so a peer that is not known yet gets a moment to close first. What was learned stays with the peer. */
#include "transports/tcp/peer.h"

#define NS_PER_MS 1000000u
#define MOMENT_NS (50u * (uint64_t)NS_PER_MS)
/* A peer that has closed after each request so far does so when it has stored the bytes, which may take it a while. */
#define LONG_MOMENT_NS (2000u * (uint64_t)NS_PER_MS)

static bool sent_is_done(const struct neap_tcp_lane *lane)
{
	return neap_peer_options(lane->peer)->v1_sent_is_done;
}

/* One WRITE, wholly sent, and nothing else is on the lane. */
static struct neap_flight *lone_write(struct neap_tcp_lane *lane)
{
	if (lane->kind != NEAP_PEER_V1 || lane->tail - lane->head != 1 || lane->sent != lane->tail)
		return NULL;
	struct neap_flight *flight = neap_flight_at(lane, lane->head);
	return flight->kind == NEAP_FLIGHT_WRITE ? flight : NULL;
}

void neap_lane_v1_sent(struct neap_tcp_lane *lane, uint32_t index)
{
	struct neap_flight *flight = neap_flight_at(lane, index);
	if (flight->kind == NEAP_FLIGHT_WRITE && flight->slice && sent_is_done(lane))
		neap_lane_said_done(lane, flight);
}

static void push_probe(struct neap_tcp_lane *lane, const struct neap_flight *write)
{
	struct neap_flight *probe = neap_flight_at(lane, lane->tail++);
	*probe = (struct neap_flight){.address = write->address + write->length - 1, .length = 1, .kind = NEAP_FLIGHT_PROBE};
	lane->bytes += probe->length;
}

void neap_lane_v1_probe(struct neap_tcp_lane *lane)
{
	if (lane->kind != NEAP_PEER_V1 || lane->peer->manners != NEAP_MANNERS_KEEPS || sent_is_done(lane) || lane->head == lane->tail)
		return;
	const struct neap_flight *last = neap_flight_at(lane, lane->tail - 1);
	if (last->kind == NEAP_FLIGHT_WRITE && lane->tail - lane->head < NEAP_LANE_REQUESTS)
		push_probe(lane, last);
}

void neap_lane_v1_acknowledged(struct neap_tcp_lane *lane, uint32_t index)
{
	while (lane->head != index) {
		struct neap_flight *flight = neap_flight_at(lane, lane->head);
		if (flight->kind == NEAP_FLIGHT_WRITE)
			neap_lane_completed(lane, flight);
		else
			neap_lane_advance(lane);
	}
}

bool neap_lane_v1_end_of_file(struct neap_tcp_lane *lane)
{
	struct neap_flight *flight = lone_write(lane);
	if (!flight || !lane->stream->ops->unacknowledged || lane->stream->ops->unacknowledged(lane->stream) != 0)
		return false;
	neap_lane_completed(lane, flight);
	neap_lane_over(lane, NEAP_LANE_FIN, 0);
	return true;
}

bool neap_lane_parts(const struct neap_tcp_lane *lane)
{
	uint8_t manners = lane->peer->manners;
	if (lane->kind == NEAP_PEER_NEAP || manners == NEAP_MANNERS_KEEPS || lane->moment_over)
		return false;
	if (lane->head == lane->tail)
		return lane->answered > 0 && (lane->kind == NEAP_PEER_V1 || manners == NEAP_MANNERS_CLOSES);
	return lone_write((struct neap_tcp_lane *)(uintptr_t)lane) != NULL;
}

uint64_t neap_lane_moment_ns(const struct neap_tcp_lane *lane)
{
	bool owes = lane->head != lane->tail;
	return owes && lane->peer->manners == NEAP_MANNERS_CLOSES ? LONG_MOMENT_NS : MOMENT_NS;
}

void neap_lane_moment_passed(struct neap_tcp_lane *lane)
{
	const struct neap_flight *write = lone_write(lane);
	lane->moment_over = true;
	if (write)
		push_probe(lane, write);
	else if (lane->head == lane->tail)
		lane->peer->manners = NEAP_MANNERS_KEEPS;
}
