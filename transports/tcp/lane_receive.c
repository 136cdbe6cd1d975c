/* Receiving: one readv scatters [status][payload][status]... of many answers straight to where they belong.
 *
 * The vector is planned as if every answer were good. A Neap peer's status that says no has no payload behind it, so what was read
 * behind such a status went to wrong places: it is copied out in the order of the wire and taken from there. A status is looked at
 * before its request ends. */
#include "transports/tcp/peer.h"

#include <errno.h>

/* Where the parts of an answer are, in the order of the wire. `got` of a lane counts through them. */
struct shape {
	uint64_t status, payload, trailer;
};

static struct shape shape_of(const struct neap_tcp_lane *lane, const struct neap_flight *flight)
{
	if (flight->kind == NEAP_FLIGHT_WRITE)
		return (struct shape){.status = lane->kind == NEAP_PEER_V1 ? 0 : NEAP_STATUS_BYTES};
	if (lane->kind == NEAP_PEER_V1)
		return (struct shape){.payload = flight->length};
	return (struct shape){.status = NEAP_STATUS_BYTES, .payload = flight->length, .trailer = lane->checksum ? NEAP_TRAILER_BYTES : 0};
}

static uint64_t whole(const struct shape *shape)
{
	return shape->status + shape->payload + shape->trailer;
}

/* v1 WRITEs have no answer of their own; the void has none at all. */
static bool is_answered(const struct neap_tcp_lane *lane, const struct neap_flight *flight)
{
	return flight->kind != NEAP_FLIGHT_VOID && (flight->kind != NEAP_FLIGHT_WRITE || lane->kind != NEAP_PEER_V1);
}

/* The end of the flights whose answer may come: those wholly sent; a plain peer may also refuse one as soon as it has the header. */
static uint32_t answers_end(const struct neap_tcp_lane *lane)
{
	bool early = lane->kind == NEAP_PEER_V2 && lane->sent_offset >= NEAP_PLAIN_HEADER_BYTES;
	return lane->sent + (early ? 1 : 0);
}

/* --- the plan -------------------------------------------------------------------------------------------------------------- */

struct plan {
	struct neap_lane_scratch *scratch;
	int count;
	uint32_t small; /* bytes of scratch->small in use */
	uint32_t discarded; /* of scratch->discard */
	uint64_t bytes, most;
	struct iovec *run; /* the last vector, when it is one of small bytes */
	bool full;
};

/* Statuses and trailers that follow each other on the wire lie side by side, so one vector takes a run of them. */
static void plan_small(struct plan *plan, uint32_t skip, uint32_t length)
{
	unsigned char *at = plan->scratch->small + plan->small + skip;
	plan->small += length;
	length -= skip;
	plan->bytes += length;
	if (plan->run) {
		plan->run->iov_len += length;
		return;
	}
	plan->run = &plan->scratch->vector[plan->count++];
	*plan->run = (struct iovec){.iov_base = at, .iov_len = length};
}

/* Canceled READs get places of their own: what comes behind a refusal is copied out of all places. */
static void plan_payload(struct plan *plan, const struct neap_flight *flight, uint64_t offset)
{
	uint64_t length = flight->length - offset, room = plan->bytes < plan->most ? plan->most - plan->bytes : 0;
	unsigned char *to = flight->slice ? flight->slice->source + offset : plan->scratch->discard + plan->discarded;
	if (!flight->slice && room > NEAP_LANE_DISCARD_BYTES - plan->discarded)
		room = NEAP_LANE_DISCARD_BYTES - plan->discarded;
	if (length > room) {
		length = room;
		plan->full = true;
	}
	if (length == 0)
		return;
	if (!flight->slice)
		plan->discarded += (uint32_t)length;
	plan->run = NULL;
	plan->scratch->vector[plan->count++] = (struct iovec){.iov_base = to, .iov_len = (size_t)length};
	plan->bytes += length;
}

static void plan_answer(struct plan *plan, const struct neap_tcp_lane *lane, const struct neap_flight *flight, uint64_t got)
{
	struct shape shape = shape_of(lane, flight);
	if (got < shape.status) {
		if (got)
			memcpy(plan->scratch->small + plan->small, lane->partial, got);
		plan_small(plan, (uint32_t)got, (uint32_t)shape.status);
		got = shape.status;
	}
	uint64_t trailer = shape.status + shape.payload;
	if (flight->kind == NEAP_FLIGHT_PROBE) {
		plan_small(plan, 0, 1);
		return;
	}
	if (got < trailer) {
		plan_payload(plan, flight, got - shape.status);
		if (plan->full)
			return;
		got = trailer;
	}
	if (shape.trailer) {
		if (got > trailer)
			memcpy(plan->scratch->small + plan->small, lane->partial, got - trailer);
		plan_small(plan, (uint32_t)(got - trailer), (uint32_t)shape.trailer);
	}
}

/* Returns the bytes it asks for; 0: no answer is due. */
static uint64_t make_plan(struct neap_tcp_lane *lane, struct plan *plan)
{
	uint32_t end = answers_end(lane);
	uint64_t got = lane->got;
	*plan = (struct plan){.scratch = lane->peer->initiator->scratch, .most = lane->appetite};
	for (uint32_t i = lane->head; i != end && !plan->full; i++) {
		const struct neap_flight *flight = neap_flight_at(lane, i);
		if (!is_answered(lane, flight))
			continue;
		if (plan->count + 3 > NEAP_LANE_VECTORS || plan->bytes >= plan->most)
			break;
		plan_answer(plan, lane, flight, got);
		got = 0;
		if (lane->lone)
			break;
	}
	return plan->bytes;
}

/* --- taking what has come --------------------------------------------------------------------------------------------------- */

/* Bytes that have come: small ones at `small`, payloads where they belong; or, when `straight`, all of them in a row at `small`. */
struct arrival {
	const unsigned char *small;
	uint64_t left;
	bool straight;
};

/* Answers that come in order: the front of the ring, without places that have no answer. */
static struct neap_flight *front(struct neap_tcp_lane *lane)
{
	uint32_t end = answers_end(lane);
	for (uint32_t i = lane->head; i != end; i++) {
		struct neap_flight *flight = neap_flight_at(lane, i);
		if (is_answered(lane, flight)) {
			if (lane->kind == NEAP_PEER_V1)
				neap_lane_v1_acknowledged(lane, i);
			while (lane->head != i)
				neap_lane_advance(lane);
			return flight;
		}
	}
	return NULL;
}

/* Collects `whole` small bytes over as many calls as it takes. True when they are complete, in lane->partial. */
static bool collect(struct neap_tcp_lane *lane, struct arrival *arrival, uint64_t have, uint64_t length)
{
	uint64_t piece = length - have < arrival->left ? length - have : arrival->left;
	const unsigned char *from = arrival->straight ? arrival->small : arrival->small + have;
	memcpy(lane->partial + have, from, piece);
	lane->got += piece;
	arrival->left -= piece;
	if (arrival->straight)
		arrival->small += piece;
	else if (have + piece == length)
		arrival->small += length;
	return have + piece == length;
}

static enum neap_cause cause_of_word(const struct neap_flight *flight, uint32_t code)
{
	switch (code) {
	case NEAP_WORD_GRANT:
		return NEAP_CAUSE_GRANT_REFUSED;
	case NEAP_WORD_REVOKED:
		return flight->slice && flight->slice->grant ? NEAP_CAUSE_GRANT_REFUSED : NEAP_CAUSE_REFUSED_BY_PEER;
	case NEAP_WORD_CHECKSUM:
		return NEAP_CAUSE_CHECKSUM;
	case NEAP_WORD_MALFORMED:
		return NEAP_CAUSE_PROTOCOL;
	default:
		return NEAP_CAUSE_REFUSED_BY_PEER;
	}
}

/* The peer is not to be understood any more. What was wholly sent may have been done: only its end of file tells that it is over. */
static void broke_protocol(struct neap_tcp_lane *lane, struct neap_flight *flight)
{
	lane->peer->initiator->view->stats->protocol_errors++;
	lane->broken = true;
	if (flight)
		flight->flags |= NEAP_FLIGHT_CULPRIT;
	neap_lane_drain(lane, true);
}

enum word { WORD_OK, WORD_ENDS_ANSWER, WORD_ENDS_LANE };

static enum word take_plain_word(struct neap_tcp_lane *lane, struct neap_flight *flight, uint64_t status)
{
	bool early = lane->head == lane->sent; /* before its payload was sent */
	if (status == neap_plain_status(NEAP_PLAIN_OK) && !early)
		return WORD_OK;
	if (status >> 32 != NEAP_PLAIN_MAGIC || (uint32_t)status == NEAP_PLAIN_OK) {
		broke_protocol(lane, flight);
		return WORD_ENDS_LANE;
	}
	/* The peer looks at the address before it takes the payload, and closes now. Its place stays: the ring is not gone on with. */
	lane->refused = true;
	neap_lane_refused(lane, flight, NEAP_CAUSE_REFUSED_BY_PEER, false);
	neap_lane_drain(lane, true);
	return WORD_ENDS_LANE;
}

static bool is_neap_word(uint64_t status)
{
	return status >> 16 == NEAP_WORD_MAGIC && (status & 0xffff) <= NEAP_WORD_REVOKED;
}

static enum word take_neap_word(struct neap_tcp_lane *lane, struct neap_flight *flight, uint64_t status)
{
	uint32_t code = (uint32_t)status & 0xffff;
	if (code == NEAP_WORD_OK && is_neap_word(status))
		return WORD_OK;
	if (!is_neap_word(status)) {
		broke_protocol(lane, flight);
		return WORD_ENDS_LANE;
	}
	bool stored = code == NEAP_WORD_CHECKSUM || code == NEAP_WORD_REVOKED;
	neap_lane_refused(lane, flight, cause_of_word(flight, code), stored);
	neap_lane_advance(lane);
	return WORD_ENDS_ANSWER;
}

static void take_payload(struct neap_tcp_lane *lane, struct neap_flight *flight, const struct shape *shape, struct arrival *arrival)
{
	uint64_t offset = lane->got - shape->status, piece = shape->payload - offset;
	if (piece > arrival->left)
		piece = arrival->left;
	lane->got += piece;
	arrival->left -= piece;
	if (flight->slice) {
		unsigned char *to = flight->slice->source + offset;
		if (arrival->straight)
			memcpy(to, arrival->small, piece);
		flight->slice->moved = offset + piece;
		if (shape->trailer)
			lane->got_crc = neap_crc32c(offset ? lane->got_crc : 0, to, piece);
	}
	if (arrival->straight)
		arrival->small += piece;
}

/* Users may let READs share a buffer. What was put to one place twice is gone. The usual order, upwards, is seen at once. */
static bool overlaps(const struct iovec *vector, int count)
{
	bool upwards = true;
	for (int i = 1; i < count && upwards; i++)
		upwards = (char *)vector[i - 1].iov_base + vector[i - 1].iov_len <= (char *)vector[i].iov_base;
	if (upwards)
		return false;
	for (int i = 0; i < count; i++)
		for (int k = 0; k < i; k++)
			if ((char *)vector[k].iov_base < (char *)vector[i].iov_base + vector[i].iov_len &&
			    (char *)vector[i].iov_base < (char *)vector[k].iov_base + vector[k].iov_len)
				return true;
	return false;
}

/* The bytes behind a refusal were read as if its payload had come: they lie in the vector from `skip` on, in buffers of this request and
 * of later ones. Copied out in the order of the wire. False: they cannot be had any more. */
static bool straighten(struct neap_tcp_lane *lane, struct arrival *arrival, uint64_t skip)
{
	struct neap_lane_scratch *scratch = lane->peer->initiator->scratch;
	const struct iovec *vector = scratch->vector, *first;
	unsigned char *to = scratch->straight;
	uint64_t left = arrival->left;
	for (; skip >= vector->iov_len; vector++)
		skip -= vector->iov_len;
	for (first = vector; left > 0; vector++, skip = 0) {
		uint64_t piece = vector->iov_len - skip < left ? vector->iov_len - skip : left;
		memcpy(to, (const unsigned char *)vector->iov_base + skip, piece);
		to += piece;
		left -= piece;
	}
	arrival->small = scratch->straight;
	arrival->straight = true;
	return !overlaps(first, (int)(vector - first));
}

/* Requests whose buffers misplaced bytes went through: what is in them is unknown until their own bytes have come. The first of them is
 * the one that was refused, behind whose status its payload was expected. */
static void mark_dirty(struct neap_tcp_lane *lane, uint64_t misplaced)
{
	uint32_t end = answers_end(lane);
	for (uint32_t i = lane->head; i != end && misplaced > 0; i++) {
		struct neap_flight *flight = neap_flight_at(lane, i);
		struct shape shape = shape_of(lane, flight);
		if (!is_answered(lane, flight))
			continue;
		uint64_t before = i == lane->head ? 0 : shape.status;
		if (flight->kind == NEAP_FLIGHT_READ && misplaced > before)
			flight->flags |= NEAP_FLIGHT_DIRTY;
		uint64_t bytes = before + shape.payload + shape.trailer;
		misplaced -= bytes < misplaced ? bytes : misplaced;
	}
}

/* The status is complete. When it is not good, what came behind it was put where a payload was expected. If it cannot be had back the
 * connection ends here: answers are missing, and all that is under way is repeated, but for the one that was refused. */
static enum word take_word(struct neap_tcp_lane *lane, struct neap_flight *flight, struct arrival *arrival, uint64_t came)
{
	uint64_t status = neap_get64(lane->partial);
	bool neap = lane->kind == NEAP_PEER_NEAP, whole_again = true;
	bool good = status == (neap ? neap_word_status(NEAP_WORD_OK) : neap_plain_status(NEAP_PLAIN_OK));
	bool displaces = flight->kind == NEAP_FLIGHT_READ || !neap || !is_neap_word(status);
	if (!good && displaces && !arrival->straight && arrival->left > 0) {
		mark_dirty(lane, arrival->left);
		whole_again = straighten(lane, arrival, came - arrival->left);
	}
	enum word word = neap ? take_neap_word(lane, flight, status) : take_plain_word(lane, flight, status);
	if (word != WORD_ENDS_ANSWER || whole_again)
		return word;
	neap_lane_over(lane, NEAP_LANE_DROPPED, 0);
	return WORD_ENDS_LANE;
}

static bool trailer_is_right(const struct neap_tcp_lane *lane)
{
	return neap_get32(lane->partial) == lane->got_crc && neap_get32(lane->partial + 4) == 0;
}

/* One answer, or the part of it that has come. False: stop. */
static bool take_answer(struct neap_tcp_lane *lane, struct neap_flight *flight, struct arrival *arrival, uint64_t came)
{
	struct shape shape = shape_of(lane, flight);
	if (lane->got < shape.status) {
		if (!collect(lane, arrival, lane->got, shape.status))
			return false;
		enum word word = take_word(lane, flight, arrival, came);
		if (word != WORD_OK)
			return word == WORD_ENDS_ANSWER;
	}
	if (flight->kind == NEAP_FLIGHT_PROBE) {
		arrival->small++;
		arrival->left--;
		neap_lane_completed(lane, flight);
		return true;
	}
	if (lane->got < shape.status + shape.payload) {
		take_payload(lane, flight, &shape, arrival);
		if (lane->got < shape.status + shape.payload)
			return false;
	}
	if (shape.trailer) {
		if (!collect(lane, arrival, lane->got - shape.status - shape.payload, shape.trailer))
			return false;
		if (flight->slice && !trailer_is_right(lane)) {
			neap_lane_refused(lane, flight, NEAP_CAUSE_CHECKSUM, true);
			neap_lane_advance(lane);
			return true;
		}
	}
	neap_lane_completed(lane, flight);
	return true;
}

/* A run of good statuses is most of what comes for WRITEs. */
static void take_good_statuses(struct neap_tcp_lane *lane, struct arrival *arrival)
{
	uint64_t good = lane->kind == NEAP_PEER_NEAP ? neap_word_status(NEAP_WORD_OK) : neap_plain_status(NEAP_PLAIN_OK);
	while (lane->got == 0 && arrival->left >= NEAP_STATUS_BYTES && lane->head != lane->sent) {
		struct neap_flight *flight = neap_flight_at(lane, lane->head);
		if (flight->kind != NEAP_FLIGHT_WRITE || neap_get64(arrival->small) != good)
			return;
		arrival->small += NEAP_STATUS_BYTES;
		arrival->left -= NEAP_STATUS_BYTES;
		neap_lane_completed(lane, flight);
	}
}

static void take_arrival(struct neap_tcp_lane *lane, uint64_t bytes)
{
	struct arrival arrival = {.small = lane->peer->initiator->scratch->small, .left = bytes};
	while (arrival.left > 0 && !lane->end && !lane->deaf) {
		if (lane->kind != NEAP_PEER_V1)
			take_good_statuses(lane, &arrival);
		struct neap_flight *flight = arrival.left > 0 ? front(lane) : NULL;
		if (!flight || !take_answer(lane, flight, &arrival, bytes))
			return;
	}
}

/* --- reading ------------------------------------------------------------------------------------------------------------------ */

static void read_failed(struct neap_tcp_lane *lane, ssize_t got)
{
	if (got < 0)
		neap_lane_stream_failed(lane, (int)got);
	else if (!neap_lane_v1_end_of_file(lane))
		neap_lane_over(lane, NEAP_LANE_FIN, 0);
}

/* Nothing is due, or nothing is believed any more: only the peer's end is of interest. False: stop. */
static bool read_nothing_due(struct neap_tcp_lane *lane)
{
	struct neap_lane_scratch *scratch = lane->peer->initiator->scratch;
	struct iovec vector = {.iov_base = scratch->discard, .iov_len = lane->deaf ? NEAP_LANE_DISCARD_BYTES : 1};
	ssize_t got = neap_stream_readv(lane->stream, &vector, 1);
	lane->peer->initiator->view->stats->system_calls_initiator++;
	if (got == -EAGAIN)
		return false;
	if (got <= 0) {
		read_failed(lane, got);
		return false;
	}
	if (lane->deaf)
		return (size_t)got == vector.iov_len;
	broke_protocol(lane, NULL);
	return true;
}

static uint32_t first_due(struct neap_tcp_lane *lane)
{
	uint32_t i = lane->head;
	while (i != lane->sent && !is_answered(lane, neap_flight_at(lane, i)))
		i++;
	return i;
}

/* Never more than is certainly still to come: the rest of a payload whose good status is here. */
static void set_low_water(struct neap_tcp_lane *lane)
{
	uint64_t rest = 0;
	uint32_t bytes = 1;
	if (lane->got >= NEAP_STATUS_BYTES && lane->head != lane->sent && !lane->deaf) {
		const struct neap_flight *flight = neap_flight_at(lane, lane->head);
		struct shape shape = shape_of(lane, flight);
		rest = whole(&shape) - lane->got;
	}
	if (rest >= NEAP_LANE_LOW_WATER_FROM)
		bytes = rest < NEAP_LANE_LOW_WATER ? (uint32_t)rest : NEAP_LANE_LOW_WATER;
	if (bytes == lane->low_water)
		return;
	lane->low_water = bytes;
	lane->peer->initiator->view->stats->system_calls_initiator++;
	lane->stream->ops->low_water(lane->stream, bytes);
}

/* How much is planned for: a plan for far more than comes is work in vain, one for less costs a call. */
static void set_appetite(struct neap_tcp_lane *lane, uint64_t asked, uint64_t got)
{
	uint64_t wish = got < asked ? 2 * got : 2 * (uint64_t)lane->appetite;
	if (wish < lane->appetite / 2)
		wish = lane->appetite / 2;
	if (wish < NEAP_LANE_APPETITE)
		wish = NEAP_LANE_APPETITE;
	lane->appetite = wish < NEAP_LANE_CALL_BYTES ? (uint32_t)wish : NEAP_LANE_CALL_BYTES;
}

void neap_lane_receive(struct neap_tcp_lane *lane, uint64_t *budget)
{
	struct neap_tcp_initiator *initiator = lane->peer->initiator;
	while (!lane->end && *budget > 0) {
		struct plan plan;
		uint64_t asked = lane->deaf ? 0 : make_plan(lane, &plan);
		if (asked == 0) {
			if (!read_nothing_due(lane))
				break;
			continue;
		}
		ssize_t got = neap_stream_readv(lane->stream, initiator->scratch->vector, plan.count);
		initiator->view->stats->system_calls_initiator++;
		if (got == -EAGAIN)
			break;
		if (got == -EFAULT && neap_lane_fault(lane, first_due(lane)))
			continue;
		if (got <= 0) {
			read_failed(lane, got);
			break;
		}
		lane->moved_ns = neap_now(initiator->reactor);
		set_appetite(lane, asked, (uint64_t)got);
		take_arrival(lane, (uint64_t)got);
		*budget -= (uint64_t)got < *budget ? (uint64_t)got : *budget;
		/* Less than asked: drained. All that was asked and nothing more is due: readiness will tell what comes unasked. */
		if ((uint64_t)got < asked || lane->head == answers_end(lane))
			break;
	}
	if (!lane->end)
		set_low_water(lane);
}
