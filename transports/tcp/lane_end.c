/* What becomes of requests: by their answer, by their user, and when their lane has ended.
 *
 * FAILED is said only when no further byte can become visible. Bytes of a WRITE that were given to the kernel can become visible for as
 * long as the other end of the connection is open: closing ours does not stop them. So it takes the peer's own end of file, a plain
 * peer's reset, or the word of a Neap peer that the lane is dead (its next lane's hello asks for it), before such a WRITE is FAILED or
 * sent again. Without that it ends as TIMEOUT with effect UNKNOWN; that includes connections that the kernel gave up (ETIMEDOUT,
 * EHOSTUNREACH), with the system's error beside it. READs touch local memory alone, and only until their connection is closed here. */
#include "transports/tcp/peer.h"

#include <errno.h>

/* --- answered ------------------------------------------------------------------------------------------------------------- */

void neap_lane_advance(struct neap_tcp_lane *lane)
{
	const struct neap_flight *flight = neap_flight_at(lane, lane->head);
	if (flight->kind != NEAP_FLIGHT_VOID)
		lane->bytes -= flight->length;
	lane->head++;
	lane->got = 0;
}

/* The place has no request any more. */
static struct neap_slice *detach(struct neap_tcp_lane *lane, struct neap_flight *flight)
{
	struct neap_slice *slice = flight->slice;
	flight->slice = NULL;
	lane->requests--;
	slice->transport_lane = NULL;
	return slice;
}

static void learn_manners(struct neap_tcp_lane *lane, bool probe)
{
	struct neap_tcp_peer *peer = lane->peer;
	peer->failures = 0;
	if (lane->answered >= 2 || probe)
		peer->manners = NEAP_MANNERS_KEEPS;
}

void neap_lane_completed(struct neap_tcp_lane *lane, struct neap_flight *flight)
{
	bool probe = flight->kind == NEAP_FLIGHT_PROBE;
	struct neap_slice *slice = flight->slice ? detach(lane, flight) : NULL;
	neap_lane_advance(lane);
	lane->answered++;
	learn_manners(lane, probe);
	if (slice)
		neap_peer_end_with(lane->peer, slice, NEAP_COMPLETED, NEAP_EFFECT_ALL, slice->length, NEAP_CAUSE_NONE, 0);
}

void neap_lane_said_done(struct neap_tcp_lane *lane, struct neap_flight *flight)
{
	struct neap_slice *slice = detach(lane, flight);
	flight->kind = NEAP_FLIGHT_VOID;
	lane->bytes -= flight->length;
	lane->answered++;
	lane->peer->failures = 0;
	neap_peer_end_with(lane->peer, slice, NEAP_COMPLETED, NEAP_EFFECT_ALL, slice->length, NEAP_CAUSE_NONE, 0);
}

/* What a READ has left in local memory. */
static void end_read(struct neap_tcp_lane *lane, struct neap_flight *flight, struct neap_slice *slice, enum neap_status status,
                     enum neap_cause cause, int system_errno)
{
	enum neap_effect effect = NEAP_EFFECT_NONE;
	if ((flight->flags & NEAP_FLIGHT_DIRTY) || (slice->transport_phase & NEAP_MARK_TOUCHED) || (slice->moved && lane->checksum))
		effect = NEAP_EFFECT_UNKNOWN;
	else if (slice->moved)
		effect = NEAP_EFFECT_PARTIAL;
	neap_peer_end_with(lane->peer, slice, status, effect, slice->moved, cause, system_errno);
}

static void end_request(struct neap_tcp_lane *lane, struct neap_flight *flight, struct neap_slice *slice, enum neap_status status,
                        enum neap_cause cause, int system_errno)
{
	if (slice->opcode == NEAP_READ) {
		end_read(lane, flight, slice, status, cause, system_errno);
		return;
	}
	if (slice->moved)
		slice->transport_phase |= NEAP_MARK_TOUCHED;
	neap_peer_end(lane->peer, slice, status, cause, system_errno);
}

void neap_lane_refused(struct neap_tcp_lane *lane, struct neap_flight *flight, enum neap_cause cause, bool stored)
{
	lane->answered++;
	lane->peer->failures = 0;
	if (!flight->slice)
		return;
	struct neap_slice *slice = detach(lane, flight);
	if (slice->opcode == NEAP_WRITE && !stored)
		slice->moved = 0; /* the peer looked at the request before it took any of its bytes */
	if (slice->opcode == NEAP_READ && stored)
		flight->flags |= NEAP_FLIGHT_DIRTY; /* the checksum says that something is wrong with what is there */
	end_request(lane, flight, slice, NEAP_FAILED, cause, 0);
}

/* --- abandoned ------------------------------------------------------------------------------------------------------------ */

/* Sending cannot go on without it: some of it was sent, or the head of its frame was sent in part and cannot be made again. */
static bool is_needed_to_send(const struct neap_tcp_lane *lane, uint32_t index, const struct neap_flight *flight)
{
	if ((int32_t)(index - lane->sent) < 0)
		return false;
	bool announcing = lane->kind == NEAP_PEER_NEAP && lane->frame_offset < lane->frame_bytes;
	return flight->kind == NEAP_FLIGHT_WRITE || announcing;
}

void neap_lane_abandon(struct neap_tcp_lane *lane, struct neap_slice *slice, enum neap_status status, enum neap_cause cause,
                       int system_errno)
{
	uint32_t index = (uint32_t)slice->transport_word;
	struct neap_flight *flight = neap_flight_at(lane, index);
	bool begun = neap_lane_begun(lane, index);
	bool cuts = begun && is_needed_to_send(lane, index, flight);
	(void)detach(lane, flight);
	if (!begun) {
		flight->kind = NEAP_FLIGHT_VOID;
		lane->bytes -= flight->length;
	}
	end_request(lane, flight, slice, status, cause, system_errno);
	if (lane->end)
		return;
	if (cuts)
		neap_lane_drain(lane, false);
	neap_ready_again(lane->peer->initiator->reactor, &lane->ready);
}

/* --- when a lane has ended -------------------------------------------------------------------------------------------------- */

/* A Neap peer's reset is not believed, because the peer can be asked: whoever stands between may have reset both ends, and what the peer's
 * kernel has taken before is still there to be read. A plain peer's reset is all that there is to go by. */
static bool is_quiet(uint8_t end, uint8_t kind)
{
	return end == NEAP_LANE_FIN || (end == NEAP_LANE_RESET && kind != NEAP_PEER_NEAP);
}

static enum neap_cause cause_of_end(const struct neap_lane_facts *facts)
{
	if (facts->broken)
		return NEAP_CAUSE_PROTOCOL;
	switch (facts->end) {
	case NEAP_LANE_FIN:
		return NEAP_CAUSE_PEER_CLOSED;
	case NEAP_LANE_RESET:
		return NEAP_CAUSE_PEER_RESET;
	default:
		return NEAP_CAUSE_NO_PROGRESS;
	}
}

static struct neap_lane_verdict ends_as(enum neap_status status, enum neap_cause cause)
{
	return (struct neap_lane_verdict){.what = NEAP_VERDICT_END, .status = (uint8_t)status, .cause = (uint8_t)cause};
}

struct neap_lane_verdict neap_lane_judge(const struct neap_lane_facts *facts)
{
	bool quiet = is_quiet(facts->end, facts->kind);
	if (!facts->begun)
		return (struct neap_lane_verdict){.what = NEAP_VERDICT_QUEUE};
	if (facts->end == NEAP_LANE_STALLED)
		return ends_as(NEAP_TIMEOUT, NEAP_CAUSE_NO_PROGRESS);
	if (facts->culprit)
		return ends_as(facts->given && !quiet ? NEAP_TIMEOUT : NEAP_FAILED, NEAP_CAUSE_PROTOCOL);
	if (facts->suspect_alone)
		return ends_as(NEAP_FAILED, facts->kind == NEAP_PEER_V1 ? NEAP_CAUSE_REFUSED_BY_PEER : cause_of_end(facts));
	if (facts->given && facts->kind == NEAP_PEER_NEAP && facts->repeatable)
		return (struct neap_lane_verdict){.what = NEAP_VERDICT_LIMBO};
	if (facts->given && !quiet)
		return ends_as(NEAP_TIMEOUT, cause_of_end(facts));
	if (facts->repeatable)
		return (struct neap_lane_verdict){.what = NEAP_VERDICT_REPEAT};
	return ends_as(NEAP_FAILED, cause_of_end(facts));
}

struct ending {
	struct neap_tcp_lane *lane;
	struct neap_lane_facts facts; /* those common to all */
	uint32_t under_way;           /* begun and not answered, ghosts too */
	bool given;                   /* bytes of a WRITE may still be on their way */
	bool suspicious;              /* a plain peer cut it off and nobody knows why */
};

static void settle_one(struct ending *ending, uint32_t index, struct neap_flight *flight)
{
	struct neap_tcp_lane *lane = ending->lane;
	struct neap_tcp_peer *peer = lane->peer;
	struct neap_slice *slice = detach(lane, flight);
	struct neap_lane_facts facts = ending->facts;
	bool ours = lane->end == NEAP_LANE_DROPPED; /* not the request's fault, nor the peer's */

	facts.begun = neap_lane_begun(lane, index);
	facts.given = slice->opcode == NEAP_WRITE && slice->moved > 0;
	facts.culprit = (flight->flags & NEAP_FLIGHT_CULPRIT) != 0;
	facts.suspect_alone = ending->suspicious && ending->under_way == 1 && lane->answered == 0 &&
	                      (slice->transport_phase & NEAP_MARK_SUSPECT);
	facts.repeatable = ours || slice->attempts < neap_peer_options(peer)->retries_max;
	struct neap_lane_verdict verdict = neap_lane_judge(&facts);

	if (verdict.what == NEAP_VERDICT_END) {
		end_request(lane, flight, slice, verdict.status, verdict.cause, lane->end_errno);
		return;
	}
	if (slice->moved || (flight->flags & NEAP_FLIGHT_DIRTY))
		slice->transport_phase |= NEAP_MARK_TOUCHED;
	slice->moved = 0;
	if (verdict.what == NEAP_VERDICT_QUEUE) {
		neap_peer_put_front(peer, &peer->queue, slice, NEAP_PLACE_QUEUE);
	} else if (verdict.what == NEAP_VERDICT_REPEAT) {
		if (ending->suspicious)
			neap_peer_suspect(peer, slice);
		neap_peer_repeat(peer, slice, !ours);
	} else {
		slice->transport_word = lane->id;
		neap_peer_put_front(peer, &peer->limbo, slice, NEAP_PLACE_LIMBO);
		if (is_quiet(lane->end, lane->kind))
			slice->transport_phase |= NEAP_MARK_QUIET;
	}
}

/* A peer that ends connections after one answer closes after each request; one whose end came while a probe was out, too. */
static void learn_from_end(struct neap_tcp_lane *lane, bool probed)
{
	struct neap_tcp_peer *peer = lane->peer;
	if (lane->kind == NEAP_PEER_NEAP || !lane->live || !is_quiet(lane->end, lane->kind) || lane->refused || lane->broken)
		return;
	bool soon = lane->head != lane->tail || neap_now(peer->initiator->reactor) - lane->moved_ns < 1000000000u;
	if ((lane->answered == 1 && soon) || (probed && peer->manners == NEAP_MANNERS_UNKNOWN))
		peer->manners = NEAP_MANNERS_CLOSES;
}

static void survey(struct ending *ending)
{
	struct neap_tcp_lane *lane = ending->lane;
	bool probed = false;
	for (uint32_t i = lane->head; i != lane->tail && neap_lane_begun(lane, i); i++) {
		const struct neap_flight *flight = neap_flight_at(lane, i);
		probed |= flight->kind == NEAP_FLIGHT_PROBE;
		if (flight->kind != NEAP_FLIGHT_READ && flight->kind != NEAP_FLIGHT_WRITE)
			continue;
		ending->under_way++;
		ending->given |= flight->kind == NEAP_FLIGHT_WRITE && (!flight->slice || flight->slice->moved > 0);
	}
	learn_from_end(lane, probed);
	ending->suspicious = lane->kind != NEAP_PEER_NEAP && is_quiet(lane->end, lane->kind) && !lane->refused && !lane->broken &&
	                     lane->peer->manners != NEAP_MANNERS_CLOSES;
}

void neap_lane_settle(struct neap_tcp_lane *lane)
{
	struct ending ending = {.lane = lane, .facts = {.end = lane->end, .kind = lane->kind, .broken = lane->broken}};
	survey(&ending);
	/* From the back, so that what goes to the front of the queue keeps its order. */
	for (uint32_t i = lane->tail; i != lane->head; i--) {
		struct neap_flight *flight = neap_flight_at(lane, i - 1);
		if (flight->slice)
			settle_one(&ending, i - 1, flight);
	}
	if (lane->kind == NEAP_PEER_NEAP && lane->live && ending.given) {
		lane->peer->fences[lane->slot] = lane->id;
		lane->peer->fenced_from_ns[lane->slot] = neap_now(lane->peer->initiator->reactor);
	}
}
