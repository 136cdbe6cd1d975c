/* Taking bytes in. One readv a visit where possible: its vector is [what is still to come of the open frame's payloads, straight
 * into registered memory][staging for the headers behind]. Small requests arrive through the staging, many to a call, at the
 * price of one copy; behind large ones the staging is no longer than the next header, so that no large payload is copied.
 *
 * Memory is touched only after neap_access_live or a registry check in the same visit. */
#include "transports/tcp/session.h"
#include <errno.h>

/* Payload bytes asked for in one call; a short count ends the visit's reading, so it must be more than a socket holds. */
#define PAYLOAD_MAX (8u * 1024u * 1024u)
/* With the kernel full, reading goes on only while there is plenty of room: else few requests a call would be understood. */
#define ROOM_LOW (NEAP_TCP_REPLIES / 4)
#define LOW_WATER_MAX (512u * 1024u)
#define LOW_WATER_FROM (128u * 1024u)
/* No request is shorter on the wire, in either framing, and none has more than one answer. */
#define REQUEST_BYTES_MIN NEAP_ENTRY_BYTES

struct gather {
	struct iovec *vector;
	int count;
	uint64_t bytes, limit;
};

/* Adds up to `length` bytes at `base`; returns how many. Two places stay free, for a trailer and the staging. */
static uint64_t gather_add(struct gather *gather, unsigned char *base, uint64_t length)
{
	if (length > gather->limit - gather->bytes)
		length = gather->limit - gather->bytes;
	if (length == 0 || gather->count > NEAP_TCP_VECTORS - 3)
		return 0;
	gather->vector[gather->count++] = (struct iovec){.iov_base = base, .iov_len = length};
	gather->bytes += length;
	return length;
}

static uint64_t gather_scratch(struct gather *gather, unsigned char *scratch, uint64_t length)
{
	uint64_t added = 0;
	while (added < length) {
		uint64_t piece = length - added < NEAP_TCP_SCRATCH_BYTES ? length - added : NEAP_TCP_SCRATCH_BYTES;
		uint64_t got = gather_add(gather, scratch, piece);
		if (got == 0)
			break;
		added += got;
	}
	return added;
}

static unsigned char *memory_at(uint64_t address)
{
	return (unsigned char *)(uintptr_t)address;
}

static uint32_t trailer_bytes(const struct neap_tcp_session *session)
{
	return session->checksum ? NEAP_TRAILER_BYTES : 0;
}

/* Its memory or grant may have ended since the last visit. What arrived stays stored; nothing more is. */
static bool may_store(struct neap_tcp_session *session, struct neap_tcp_item *item)
{
	if (item->code != NEAP_WORD_OK)
		return false;
	if (neap_access_live(session->server->view->registry, &item->ref))
		return true;
	if (session->level != 0) {
		item->code = NEAP_WORD_REVOKED;
	} else if (session->work->frame.moved > 0) { /* refused means: nothing was stored */
		neap_tcp_session_broken(session, "memory that was being written to was unregistered");
	} else {
		session->ends_by_reset = !item->acknowledged;
		neap_tcp_plain_refuse(session, item->acknowledged);
	}
	return false;
}

/* The open frame's payloads as far as limits allow; true when all of them are covered. *room_p: answers there is room for. */
static bool gather_frame(struct neap_tcp_session *session, struct gather *gather, uint32_t *room_p)
{
	struct neap_tcp_frame *frame = &session->work->frame;
	for (uint32_t i = frame->at; i < frame->count; i++) {
		struct neap_tcp_item *item = &frame->items[i];
		if (*room_p == 0)
			return false;
		--*room_p;
		if (!item->has_payload)
			continue;
		uint64_t from = i == frame->at ? frame->moved : 0;
		if (from < item->length) {
			uint64_t rest = item->length - from;
			uint64_t added = may_store(session, item) ? gather_add(gather, memory_at(item->address + from), rest)
			                                          : gather_scratch(gather, session->server->scratch, rest);
			if (session->fate != NEAP_TCP_GOES_ON || added < rest)
				return false;
			from = item->length;
		}
		uint64_t trailer = item->length + trailer_bytes(session) - from;
		if (trailer && gather_add(gather, item->trailer + (NEAP_TRAILER_BYTES - trailer), trailer) < trailer)
			return false;
	}
	return true;
}

/* Bytes to have in the staging at most, what is carried there from before included. */
static uint32_t staging_length(const struct neap_tcp_session *session, uint32_t room)
{
	const struct neap_tcp_work *work = session->work;
	uint32_t carried = work ? work->carry_length : 0;
	const unsigned char *carry = carried ? work->carry : NULL;
	uint32_t need = session->level ? neap_tcp_neap_need(carry, carried) : neap_tcp_plain_need(session, carry, carried);
	uint32_t length = NEAP_TCP_STAGING_BYTES;
	if (session->last_payload >= NEAP_TCP_LARGE_PAYLOAD)
		length = session->last_head;
	/* What turns out to find no room is kept in a spill; without one no more may be read than there is room for in any case. */
	if (session->server->spills.used == session->server->spills.capacity && length > room * REQUEST_BYTES_MIN)
		length = room * REQUEST_BYTES_MIN;
	return length > need ? length : need;
}

/* --- payloads -------------------------------------------------------------------------------------------------------- */

static void item_done(struct neap_tcp_session *session, struct neap_tcp_item *item)
{
	struct neap_tcp_work *work = session->work;
	struct neap_engine_stats *stats = session->server->view->stats;
	if (item->has_payload && session->checksum && item->code == NEAP_WORD_OK && neap_get32(item->trailer) != work->frame.crc)
		item->code = NEAP_WORD_CHECKSUM;
	if (item->code != NEAP_WORD_OK) {
		stats->requests_refused++;
		neap_tcp_reply_word(work, neap_word_status(item->code));
	} else if (item->opcode == NEAP_READ) {
		neap_tcp_reply_read(work, item->address, item->length, &item->ref, true);
	} else {
		stats->requests_served++;
		stats->bytes_served_written += item->length;
		if (item->acknowledged)
			neap_tcp_reply_ok(work);
	}
	work->frame.at++;
	work->frame.moved = 0;
	work->frame.crc = 0;
}

/* `length` bytes of the item's payload or trailer have arrived: at `bytes`, or where they belong when that is NULL. Returns how
 * many of them were the item's. */
static uint64_t item_take(struct neap_tcp_session *session, struct neap_tcp_item *item, const unsigned char *bytes, uint64_t length)
{
	struct neap_tcp_frame *frame = &session->work->frame;
	uint64_t used = 0;
	if (frame->moved < item->length) {
		uint64_t rest = item->length - frame->moved;
		used = length < rest ? length : rest;
		unsigned char *to = memory_at(item->address + frame->moved);
		if (bytes && used && may_store(session, item))
			memcpy(to, bytes, used);
		if (session->checksum && item->code == NEAP_WORD_OK)
			frame->crc = neap_crc32c(frame->crc, to, used);
		frame->moved += used;
	}
	if (frame->moved >= item->length && session->checksum) {
		uint64_t have = frame->moved - item->length;
		uint64_t piece = NEAP_TRAILER_BYTES - have < length - used ? NEAP_TRAILER_BYTES - have : length - used;
		if (bytes)
			memcpy(item->trailer + have, bytes + used, piece);
		frame->moved += piece;
		used += piece;
	}
	return used;
}

/* Goes through the open frame with the bytes that have arrived; returns how many belonged to it. */
static uint64_t frame_take(struct neap_tcp_session *session, const unsigned char *bytes, uint64_t length)
{
	struct neap_tcp_frame *frame = &session->work->frame;
	uint64_t used = 0;
	while (frame->at < frame->count && neap_tcp_reply_room(session->work) > 0) {
		struct neap_tcp_item *item = &frame->items[frame->at];
		if (item->has_payload) {
			used += item_take(session, item, bytes ? bytes + used : NULL, length - used);
			if (session->fate != NEAP_TCP_GOES_ON || frame->moved < item->length + trailer_bytes(session))
				break;
		}
		item_done(session, item);
	}
	frame->owed -= used;
	return used;
}

/* --- bytes that are not understood yet ----------------------------------------------------------------------------------- */

static void spill_release(struct neap_tcp_session *session)
{
	neap_pool_give(&session->server->spills, session->work->spill);
	session->work->spill = NULL;
}

static void keep_rest(struct neap_tcp_session *session, const unsigned char *bytes, size_t length, enum neap_tcp_stop stop)
{
	struct neap_tcp_work *work = session->work;
	if (length == 0) {
		if (work && work->spill)
			spill_release(session);
		return;
	}
	work = neap_tcp_session_work(session);
	if (stop == NEAP_TCP_NEEDS_BYTES) {
		memcpy(work->carry, bytes, length);
		work->carry_length = (uint32_t)length;
		if (work->spill)
			spill_release(session);
	} else if (work->spill) {
		work->spill_at = work->spill_end - (uint32_t)length;
	} else {
		work->spill = neap_pool_take(&session->server->spills);
		if (!work->spill) {
			neap_tcp_session_broken(session, "more was read than there was room for");
			return;
		}
		work->spill_at = 0;
		work->spill_end = (uint32_t)length;
		memcpy(work->spill, bytes, length);
	}
}

static void understand(struct neap_tcp_session *session, const unsigned char *bytes, size_t length)
{
	size_t at = 0;
	enum neap_tcp_stop stop;
	for (;;) {
		size_t used = 0;
		stop = session->level ? neap_tcp_neap_parse(session, bytes + at, length - at, &used)
		                      : neap_tcp_plain_parse(session, bytes + at, length - at, &used);
		at += used;
		if (stop != NEAP_TCP_FRAME_READY)
			break;
		at += frame_take(session, bytes + at, length - at);
		stop = NEAP_TCP_NEEDS_ROOM; /* or bytes, and then none is left to keep */
		if (session->fate != NEAP_TCP_GOES_ON || neap_tcp_frame_open(session->work))
			break;
	}
	if (session->fate != NEAP_TCP_GOES_ON)
		at = length;
	keep_rest(session, bytes + at, length - at, stop);
}

static enum neap_tcp_intake take_spill(struct neap_tcp_session *session)
{
	struct neap_tcp_work *work = session->work;
	unsigned char *bytes = work->spill + work->spill_at;
	size_t length = work->spill_end - work->spill_at;
	size_t used = 0;
	if (neap_tcp_frame_open(work))
		used = frame_take(session, bytes, length);
	if (session->fate == NEAP_TCP_GOES_ON && !neap_tcp_frame_open(work))
		understand(session, bytes + used, length - used);
	else
		keep_rest(session, bytes + used, session->fate == NEAP_TCP_GOES_ON ? length - used : 0, NEAP_TCP_NEEDS_ROOM);
	return NEAP_TCP_TOOK;
}

/* --- reading ----------------------------------------------------------------------------------------------------------- */

static ssize_t read_stream(struct neap_tcp_session *session, const struct iovec *vector, int count)
{
	session->server->view->stats->system_calls_target++;
	ssize_t n = neap_stream_readv(session->stream, vector, count);
	if (n == 0)
		session->end_of_file = true;
	else if (n < 0 && n != -EAGAIN)
		neap_tcp_session_failed(session, (int)-n);
	return n;
}

/* What to read, as a vector; the carried front of a header goes to the head of the staging. Returns the bytes asked for. */
static uint64_t plan(struct neap_tcp_session *session, struct neap_tcp_visit *visit, struct gather *gather)
{
	struct neap_tcp_work *work = session->work;
	uint32_t room = work ? neap_tcp_reply_room(work) : NEAP_TCP_REPLIES;
	uint64_t left = visit->budget > visit->received + visit->sent ? visit->budget - visit->received - visit->sent : 1;
	*gather = (struct gather){.vector = session->server->vector, .limit = left < PAYLOAD_MAX ? left : PAYLOAD_MAX};
	if (work && neap_tcp_frame_open(work) && !gather_frame(session, gather, &room))
		return gather->bytes;
	if (room == 0)
		return gather->bytes;
	uint32_t carried = work ? work->carry_length : 0;
	if (carried)
		memcpy(session->server->staging, work->carry, carried);
	uint32_t staged = staging_length(session, room) - carried;
	gather->vector[gather->count++] = (struct iovec){.iov_base = session->server->staging + carried, .iov_len = staged};
	return gather->bytes + staged;
}

/* Requests that have arrived whole and could go on as soon as answers have been sent. */
static bool waits_for_room(const struct neap_tcp_session *session)
{
	const struct neap_tcp_work *work = session->work;
	if (!work || work->spill)
		return work != NULL;
	return neap_tcp_frame_open(work) && !work->frame.items[work->frame.at].has_payload;
}

static enum neap_tcp_intake read_more(struct neap_tcp_session *session, struct neap_tcp_visit *visit)
{
	struct neap_tcp_work *work = session->work;
	struct gather gather;
	uint64_t asked = plan(session, visit, &gather);
	if (session->fate != NEAP_TCP_GOES_ON)
		return NEAP_TCP_DONE;
	ssize_t n = read_stream(session, gather.vector, gather.count);
	if (n <= 0)
		return n == -EAGAIN ? NEAP_TCP_DRAINED : NEAP_TCP_DONE;
	visit->received += (uint64_t)n;

	uint64_t got = (uint64_t)n, used = 0;
	uint32_t carried = work ? work->carry_length : 0;
	if (carried) {
		work->carry_length = 0;
		work->frame.at = work->frame.count = 0;
	} else if (work && neap_tcp_frame_open(work)) {
		used = frame_take(session, NULL, got);
	}
	if (session->fate == NEAP_TCP_GOES_ON && got > used)
		understand(session, session->server->staging, carried + (size_t)(got - used));
	if (session->fate != NEAP_TCP_GOES_ON)
		return NEAP_TCP_DONE;
	return got < asked && !waits_for_room(session) ? NEAP_TCP_DRAINED : NEAP_TCP_TOOK;
}

enum neap_tcp_intake neap_tcp_take_in(struct neap_tcp_session *session, struct neap_tcp_visit *visit)
{
	struct neap_tcp_work *work = session->work;
	if (session->fate != NEAP_TCP_GOES_ON)
		return NEAP_TCP_DONE;
	if (work && neap_tcp_reply_room(work) < (session->blocked ? ROOM_LOW : 1))
		return NEAP_TCP_HELD;
	if (work && work->spill)
		return take_spill(session);
	if (work && neap_tcp_frame_open(work)) {
		frame_take(session, NULL, 0); /* requests without payload may have waited for room alone */
		if (neap_tcp_reply_room(work) == 0)
			return NEAP_TCP_HELD;
	}
	if (session->end_of_file)
		return NEAP_TCP_DONE;
	return read_more(session, visit);
}

enum neap_tcp_intake neap_tcp_discard(struct neap_tcp_session *session, struct neap_tcp_visit *visit)
{
	if (session->end_of_file || session->fate == NEAP_TCP_BROKEN)
		return NEAP_TCP_DONE;
	struct iovec vector = {.iov_base = session->server->scratch, .iov_len = NEAP_TCP_SCRATCH_BYTES};
	ssize_t n = read_stream(session, &vector, 1);
	if (n <= 0)
		return n == -EAGAIN ? NEAP_TCP_DRAINED : NEAP_TCP_DONE;
	visit->received += (uint64_t)n;
	return (size_t)n < vector.iov_len ? NEAP_TCP_DRAINED : NEAP_TCP_TOOK;
}

void neap_tcp_low_water(struct neap_tcp_session *session)
{
	const struct neap_tcp_work *work = session->work;
	bool owing = session->fate == NEAP_TCP_GOES_ON && work && !work->spill && neap_tcp_frame_open(work);
	uint64_t owed = owing ? work->frame.owed : 0;
	uint32_t bytes = owed < LOW_WATER_FROM ? 1 : owed < LOW_WATER_MAX ? (uint32_t)owed : LOW_WATER_MAX;
	if (bytes == session->low_water)
		return;
	session->low_water = bytes;
	session->server->view->stats->system_calls_target++;
	session->stream->ops->low_water(session->stream, bytes);
}
