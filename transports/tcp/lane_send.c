/* Sending: one call gathers headers and payloads of many requests.
 *
 * Headers and frame heads are made anew for each call from the ring, which does not change behind what was begun; so nothing has to be
 * kept for a short write but an offset. */
#include "transports/tcp/peer.h"

#include <errno.h>

struct gather {
	struct neap_lane_scratch *scratch;
	int count;
	uint32_t headers;
	uint64_t bytes;
};

static void add(struct gather *gather, const void *bytes, uint64_t length)
{
	struct iovec *vector = &gather->scratch->vector[gather->count++];
	vector->iov_base = (void *)(uintptr_t)bytes;
	vector->iov_len = (size_t)length;
	gather->bytes += length;
}

static bool is_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

static bool frame_is_open(const struct neap_tcp_lane *lane)
{
	return is_before(lane->sent, lane->frame_end);
}

bool neap_lane_begun(const struct neap_tcp_lane *lane, uint32_t index)
{
	if (is_before(index, lane->sent))
		return true;
	if (lane->kind == NEAP_PEER_NEAP)
		return is_before(index, lane->frame_end);
	return index == lane->sent && lane->sent_offset > 0;
}

/* The part of a payload that this call takes, from `offset` on. */
static void add_payload(struct gather *gather, const struct neap_flight *flight, uint64_t offset)
{
	uint64_t length = flight->length - offset, room = NEAP_LANE_CALL_BYTES - gather->bytes;
	if (length > room)
		length = room;
	add(gather, flight->slice->source + offset, length);
}

/* --- plain: header, payload, header, payload ... ------------------------------------------------------------------------- */

static uint8_t plain_opcode(const struct neap_tcp_lane *lane, const struct neap_flight *flight)
{
	uint8_t opcode = flight->kind == NEAP_FLIGHT_WRITE ? NEAP_WRITE : NEAP_READ;
	return lane->kind == NEAP_PEER_V1 ? opcode : (uint8_t)(opcode | NEAP_PLAIN_ACKNOWLEDGED);
}

static void gather_plain(struct neap_tcp_lane *lane, struct gather *gather)
{
	uint64_t offset = lane->sent_offset;
	for (uint32_t i = lane->sent; i != lane->tail; i++, offset = 0) {
		const struct neap_flight *flight = neap_flight_at(lane, i);
		if (flight->kind == NEAP_FLIGHT_VOID)
			continue;
		if (gather->count + 2 > NEAP_LANE_VECTORS || gather->bytes >= NEAP_LANE_CALL_BYTES)
			return;
		if (offset < NEAP_PLAIN_HEADER_BYTES) {
			unsigned char *header = gather->scratch->headers[gather->headers++];
			neap_plain_header_put(header, flight->length, flight->address, plain_opcode(lane, flight));
			add(gather, header + offset, NEAP_PLAIN_HEADER_BYTES - offset);
			offset = NEAP_PLAIN_HEADER_BYTES;
		}
		if (flight->kind == NEAP_FLIGHT_WRITE && gather->bytes < NEAP_LANE_CALL_BYTES)
			add_payload(gather, flight, offset - NEAP_PLAIN_HEADER_BYTES);
		if (lane->lone)
			return;
	}
}

static void wholly_sent(struct neap_tcp_lane *lane)
{
	uint32_t index = lane->sent++;
	lane->sent_offset = 0;
	if (lane->kind == NEAP_PEER_V1)
		neap_lane_v1_sent(lane, index);
}

static void skip_void(struct neap_tcp_lane *lane)
{
	while (lane->sent != lane->tail && lane->sent_offset == 0 && neap_flight_at(lane, lane->sent)->kind == NEAP_FLIGHT_VOID)
		lane->sent++;
}

static void taken_plain(struct neap_tcp_lane *lane, uint64_t bytes)
{
	for (skip_void(lane); bytes > 0; skip_void(lane)) {
		struct neap_flight *flight = neap_flight_at(lane, lane->sent);
		uint64_t whole = NEAP_PLAIN_HEADER_BYTES + (flight->kind == NEAP_FLIGHT_WRITE ? flight->length : 0);
		uint64_t step = whole - lane->sent_offset;
		if (step > bytes)
			step = bytes;
		if (lane->sent_offset == 0 && flight->slice)
			neap_slice_begun(flight->slice);
		lane->sent_offset += step;
		bytes -= step;
		if (flight->kind == NEAP_FLIGHT_WRITE && flight->slice && lane->sent_offset > NEAP_PLAIN_HEADER_BYTES)
			flight->slice->moved = lane->sent_offset - NEAP_PLAIN_HEADER_BYTES;
		if (lane->sent_offset == whole)
			wholly_sent(lane);
	}
}

/* --- Neap: a frame of up to 256 entries, then their payloads ------------------------------------------------------------- */

/* Entries for the flights from `first` on, at most up to `limit`; returns the bytes. Neighbours with one grant share its token. */
static uint32_t put_frame(struct neap_tcp_lane *lane, uint32_t first, uint32_t limit, unsigned char *out, uint32_t *end_p)
{
	const struct neap_grant_token *tokens[NEAP_FRAME_ENTRIES_MAX], *last = NULL;
	struct neap_frame_head head = {0};
	unsigned char *at = out + NEAP_FRAME_HEAD_BYTES;
	uint32_t last_grant = 0, i;

	for (i = first; i != limit && head.count < NEAP_FRAME_ENTRIES_MAX; i++) {
		const struct neap_flight *flight = neap_flight_at(lane, i);
		if (flight->kind == NEAP_FLIGHT_VOID)
			continue;
		struct neap_entry entry = {.address = flight->address,
		                           .length = flight->length,
		                           .opcode = flight->kind == NEAP_FLIGHT_WRITE ? NEAP_WRITE : NEAP_READ};
		if (flight->slice->grant != 0) {
			if (!last || flight->slice->grant != last_grant) {
				const struct neap_grant_token *token = neap_slice_grant(flight->slice);
				if (!last || memcmp(token, last, sizeof *token) != 0)
					tokens[head.grant_count++] = token;
				last = token;
				last_grant = flight->slice->grant;
			}
			entry.grant = (uint16_t)head.grant_count;
		}
		neap_entry_put(at, &entry);
		at += NEAP_ENTRY_BYTES;
		head.count++;
	}
	for (uint32_t k = 0; k < head.grant_count; k++, at += NEAP_TOKEN_BYTES)
		memcpy(at, tokens[k], NEAP_TOKEN_BYTES);
	neap_frame_head_put(out, &head);
	*end_p = i;
	return (uint32_t)(at - out);
}

/* The checksum of the payload up to `upto`. A payload larger than a call is summed as it is gathered. */
static void sum_payload(struct neap_tcp_lane *lane, uint32_t index, struct neap_flight *flight, uint64_t upto)
{
	if (flight->flags & NEAP_FLIGHT_SUMMED)
		return;
	if (lane->sum_index != index) {
		lane->sum_index = index;
		lane->summed = 0;
		flight->crc = 0;
	}
	if (upto > lane->summed) {
		flight->crc = neap_crc32c(flight->crc, flight->slice->source + lane->summed, (size_t)(upto - lane->summed));
		lane->summed = upto;
	}
	if (upto == flight->length)
		flight->flags |= NEAP_FLIGHT_SUMMED;
}

static void add_trailer(struct neap_tcp_lane *lane, struct gather *gather, uint32_t index, uint64_t offset)
{
	unsigned char *trailer = gather->scratch->trailers[index % NEAP_LANE_REQUESTS];
	neap_put32(trailer, neap_flight_at(lane, index)->crc);
	neap_put32(trailer + 4, 0);
	add(gather, trailer + offset, NEAP_TRAILER_BYTES - offset);
}

static void add_neap_payload(struct neap_tcp_lane *lane, struct gather *gather, uint32_t index, uint64_t offset)
{
	struct neap_flight *flight = neap_flight_at(lane, index);
	if (flight->kind != NEAP_FLIGHT_WRITE)
		return;
	uint64_t before = gather->bytes;
	if (offset < flight->length) {
		add_payload(gather, flight, offset);
		offset += gather->bytes - before;
	}
	if (!lane->checksum)
		return;
	sum_payload(lane, index, flight, offset < flight->length ? offset : flight->length);
	if (offset >= flight->length)
		add_trailer(lane, gather, index, offset - flight->length);
}

/* A frame not yet begun: what is queued now. */
static bool add_frame(struct neap_tcp_lane *lane, struct gather *gather, uint32_t first, uint32_t *end_p)
{
	struct neap_lane_scratch *scratch = gather->scratch;
	if (scratch->frame_count == NEAP_LANE_FRAMES)
		return false;
	struct neap_lane_frame *frame = &scratch->frame[scratch->frame_count];
	frame->first = first;
	uint32_t limit = lane->lone ? first + 1 : lane->tail;
	frame->bytes = put_frame(lane, first, limit, scratch->frames[scratch->frame_count], &frame->end);
	add(gather, scratch->frames[scratch->frame_count++], frame->bytes);
	*end_p = frame->end;
	return true;
}

static void gather_neap(struct neap_tcp_lane *lane, struct gather *gather)
{
	uint32_t end = lane->sent;
	uint64_t offset = lane->sent_offset;

	gather->scratch->frame_count = 0;
	if (frame_is_open(lane)) {
		end = lane->frame_end;
		if (lane->frame_offset < lane->frame_bytes) {
			uint32_t again;
			unsigned char *head = gather->scratch->frames[NEAP_LANE_FRAMES];
			(void)put_frame(lane, lane->frame_first, lane->frame_end, head, &again);
			add(gather, head + lane->frame_offset, lane->frame_bytes - lane->frame_offset);
		}
	}
	for (uint32_t i = lane->sent; i != lane->tail; i++, offset = 0) {
		if (neap_flight_at(lane, i)->kind == NEAP_FLIGHT_VOID)
			continue;
		if (gather->count + 3 > NEAP_LANE_VECTORS || gather->bytes >= NEAP_LANE_CALL_BYTES)
			return;
		if (!is_before(i, end) && !add_frame(lane, gather, i, &end))
			return;
		if (gather->bytes >= NEAP_LANE_CALL_BYTES)
			return;
		add_neap_payload(lane, gather, i, offset);
		if (lane->lone)
			return;
	}
}

static void begin_frame(struct neap_tcp_lane *lane, const struct neap_lane_frame *frame)
{
	lane->frame_first = frame->first;
	lane->frame_end = frame->end;
	lane->frame_bytes = frame->bytes;
	lane->frame_offset = 0;
	for (uint32_t i = frame->first; i != frame->end; i++) {
		const struct neap_flight *flight = neap_flight_at(lane, i);
		if (flight->kind != NEAP_FLIGHT_VOID)
			neap_slice_begun(flight->slice);
	}
}

static uint64_t take(uint64_t *bytes, uint64_t most)
{
	uint64_t taken = *bytes < most ? *bytes : most;
	*bytes -= taken;
	return taken;
}

static void taken_neap(struct neap_tcp_lane *lane, uint64_t bytes)
{
	const struct neap_lane_scratch *scratch = lane->peer->initiator->scratch;
	uint32_t next = 0;
	for (skip_void(lane); bytes > 0 || frame_is_open(lane); skip_void(lane)) {
		if (!frame_is_open(lane))
			begin_frame(lane, &scratch->frame[next++]);
		lane->frame_offset += (uint32_t)take(&bytes, lane->frame_bytes - lane->frame_offset);
		if (lane->frame_offset < lane->frame_bytes)
			return;
		struct neap_flight *flight = neap_flight_at(lane, lane->sent);
		if (flight->kind == NEAP_FLIGHT_WRITE) {
			uint64_t whole = flight->length + (lane->checksum ? NEAP_TRAILER_BYTES : 0);
			lane->sent_offset += take(&bytes, whole - lane->sent_offset);
			if (flight->slice)
				flight->slice->moved = lane->sent_offset < flight->length ? lane->sent_offset : flight->length;
			if (lane->sent_offset < whole)
				return;
		}
		wholly_sent(lane);
	}
}

/* --- both ------------------------------------------------------------------------------------------------------------------- */

void neap_lane_send(struct neap_tcp_lane *lane, uint64_t *budget)
{
	struct neap_tcp_initiator *initiator = lane->peer->initiator;
	for (skip_void(lane); !lane->end && !lane->cut && !lane->blocked && neap_lane_unsent(lane) && *budget > 0;) {
		struct gather gather = {.scratch = initiator->scratch};
		if (lane->kind == NEAP_PEER_NEAP)
			gather_neap(lane, &gather);
		else
			gather_plain(lane, &gather);
		ssize_t put = neap_stream_writev(lane->stream, gather.scratch->vector, gather.count);
		initiator->view->stats->system_calls_initiator++;
		if (put == -EAGAIN) {
			lane->blocked = true;
			return;
		}
		if (put == -EFAULT && neap_lane_fault(lane, lane->sent))
			continue;
		if (put == -EFAULT)
			return;
		if (put < 0) {
			/* Answers that arrived before the peer went are read first: they are true. */
			uint64_t rest = UINT64_MAX;
			neap_lane_receive(lane, &rest);
			neap_lane_stream_failed(lane, (int)put);
			return;
		}
		lane->moved_ns = neap_now(initiator->reactor);
		if (lane->kind == NEAP_PEER_NEAP)
			taken_neap(lane, (uint64_t)put);
		else
			taken_plain(lane, (uint64_t)put);
		lane->blocked = (uint64_t)put < gather.bytes;
		*budget -= (uint64_t)put < *budget ? (uint64_t)put : *budget;
	}
}
