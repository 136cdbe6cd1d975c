/* A peer: requests come in, lanes are opened and fed, and what goes wrong with lanes is weighed. All of its work is done in one ready
 * source, so that submits of one turn leave together. */
#include "transports/tcp/peer.h"

#define NS_PER_MS 1000000u
#define BACKOFF_DOUBLINGS 5u

static struct neap_tcp_peer *peer_of(struct neap_machine *machine)
{
	return (struct neap_tcp_peer *)(void *)machine;
}

void neap_peer_wake(struct neap_tcp_peer *peer)
{
	neap_ready_again(peer->initiator->reactor, &peer->ready);
}

/* --- feeding -------------------------------------------------------------------------------------------------------------- */

void neap_peer_feed(struct neap_tcp_peer *peer, struct neap_tcp_lane *lane, uint32_t most)
{
	struct neap_slice *slice;
	bool loaded = false;
	uint32_t left = NEAP_PEER_PIECE;
	for (; left > 0 && most > 0 && (slice = peer->queue.first) && neap_lane_has_room(lane, slice->length); left--) {
		if (neap_peer_admit(peer, slice) != NEAP_ADMITTED)
			continue;
		neap_peer_unlink(peer, slice);
		neap_lane_load(lane, slice);
		loaded = true;
		most--;
	}
	if (left == 0)
		neap_peer_wake(peer);
	if (loaded)
		neap_lane_v1_probe(lane);
}

/* What was learned of the peer since may leave a connection without use: it has carried its one request. */
static bool is_used_up(const struct neap_tcp_lane *lane)
{
	return lane->head == lane->tail && !neap_lane_has_room(lane, 0);
}

/* Each lane that takes requests gets its share of what is queued. */
static void feed_lanes(struct neap_tcp_peer *peer)
{
	uint32_t takers = 0;
	for (uint32_t i = 0; i < NEAP_PEER_LANES_MAX && peer->queue.first; i++)
		if (peer->lanes[i] && neap_lane_takes(peer->lanes[i]) && is_used_up(peer->lanes[i]))
			neap_lane_over(peer->lanes[i], NEAP_LANE_DROPPED, 0);
	for (uint32_t i = 0; i < NEAP_PEER_LANES_MAX; i++)
		takers += peer->lanes[i] && neap_lane_takes(peer->lanes[i]);
	for (uint32_t i = 0; i < NEAP_PEER_LANES_MAX && takers > 0; i++) {
		struct neap_tcp_lane *lane = peer->lanes[i];
		if (!lane || !neap_lane_takes(lane))
			continue;
		neap_peer_feed(peer, lane, (peer->queue.count + takers - 1) / takers);
		neap_lane_kick(lane);
		takers--;
	}
}

/* --- opening ---------------------------------------------------------------------------------------------------------------- */

struct lane_count {
	uint32_t opening, live;
};

static struct lane_count count_lanes(const struct neap_tcp_peer *peer)
{
	struct lane_count count = {0};
	for (uint32_t i = 0; i < NEAP_PEER_LANES_MAX; i++) {
		const struct neap_tcp_lane *lane = peer->lanes[i];
		if (lane && !lane->end && lane->live)
			count.live += !lane->cut && !lane->retired;
		else if (lane && !lane->end)
			count.opening++;
	}
	return count;
}

/* A free slot; one whose ended lane must be declared dead comes first. Slots: lanes_per_peer when there is none. */
static uint32_t free_slot(const struct neap_tcp_peer *peer)
{
	uint32_t most = neap_peer_options(peer)->lanes_per_peer, found = most;
	for (uint32_t i = 0; i < most; i++) {
		if (peer->lanes[i])
			continue;
		if (peer->fences[i])
			return i;
		if (found == most)
			found = i;
	}
	return found;
}

static bool open_lane(struct neap_tcp_peer *peer)
{
	uint32_t slot = free_slot(peer);
	if (slot >= neap_peer_options(peer)->lanes_per_peer)
		return false;
	struct neap_tcp_lane *lane = neap_pool_take(&peer->initiator->lanes);
	if (!lane) { /* those that ended in this turn come back at its end */
		neap_peer_wake(peer);
		return false;
	}
	peer->lanes[slot] = lane;
	peer->lane_count++;
	neap_lane_open(lane, peer, slot);
	return true;
}

static bool limbo_needs_lane(const struct neap_tcp_peer *peer)
{
	uint32_t slot = free_slot(peer);
	return peer->limbo.first && slot < neap_peer_options(peer)->lanes_per_peer && peer->fences[slot];
}

static void pause_over(struct neap_timer *timer, void *user)
{
	(void)timer;
	neap_peer_wake(user);
}

/* The first lane alone finds out whether the peer is there; then as many as there are requests to share, up to the limit. */
static void open_lanes(struct neap_tcp_peer *peer, uint32_t wanted)
{
	struct lane_count count = count_lanes(peer);
	if (count.live == 0) {
		if (count.opening == 0 && (peer->queue.first || peer->limbo.first))
			(void)open_lane(peer);
		return;
	}
	if (neap_now(peer->initiator->reactor) < peer->pause_until_ns) {
		if (limbo_needs_lane(peer) || (count.live + count.opening < wanted && free_slot(peer) < neap_peer_options(peer)->lanes_per_peer))
			(void)neap_timer_start(peer->initiator->reactor, &peer->pause, peer->pause_until_ns, pause_over, peer);
		return;
	}
	while (limbo_needs_lane(peer))
		if (!open_lane(peer))
			return;
	for (uint32_t have = count.live + count.opening; have < wanted; have++)
		if (!open_lane(peer))
			return;
}

/* --- the one source of work -------------------------------------------------------------------------------------------------- */

void neap_peer_rest(struct neap_tcp_peer *peer)
{
	uint8_t state = peer->machine.state;
	if (peer->pending == 0 && state != tcp_peer_IDLE && state != tcp_peer_GONE)
		neap_step(&peer->machine, tcp_peer_on_QUIET, 0);
}

static uint32_t under_way(const struct neap_tcp_peer *peer)
{
	return peer->pending - peer->doomed.count - peer->unsure.count;
}

static void work(struct neap_tcp_peer *peer)
{
	neap_peer_look(peer);
	neap_peer_look_at_unsure(peer);
	if (peer->machine.state == tcp_peer_IDLE && under_way(peer) > 0)
		neap_step(&peer->machine, peer->mistrust ? tcp_peer_on_TROUBLE : tcp_peer_on_WORK, 0);
	if (peer->machine.state == tcp_peer_ACTIVE) {
		/* What was there before the lanes took their share. */
		uint32_t wanted = under_way(peer);
		feed_lanes(peer);
		open_lanes(peer, wanted);
	}
	neap_peer_ask_for_ranges(peer);
	neap_peer_rest(peer);
}

/* Everything is told and closed: the segment and this peer part. */
static void finish_leaving(struct neap_tcp_peer *peer)
{
	struct neap_segment *segment = peer->segment;
	bool asked = peer->forget_asked;
	segment->peer = NULL;
	neap_timer_cancel(peer->initiator->reactor, &peer->pause);
	neap_machine_end(&peer->machine);
	neap_reap_later(peer->initiator->reactor, &peer->reap);
	if (asked)
		neap_segment_forgotten(segment);
}

static void leave_lanes(struct neap_tcp_peer *peer)
{
	for (uint32_t i = 0; i < NEAP_PEER_LANES_MAX; i++) {
		struct neap_tcp_lane *lane = peer->lanes[i];
		if (!lane)
			continue;
		for (uint32_t k = lane->head; k != lane->tail && lane->requests > 0; k++) {
			struct neap_slice *slice = neap_flight_at(lane, k)->slice;
			if (slice)
				neap_lane_abandon(lane, slice, NEAP_CANCELED, peer->leave_cause, 0);
		}
		neap_lane_over(lane, NEAP_LANE_DROPPED, 0);
	}
}

static void run(struct neap_ready *ready)
{
	struct neap_tcp_peer *peer = (struct neap_tcp_peer *)(void *)((char *)ready - offsetof(struct neap_tcp_peer, ready));
	if (peer->leaving && peer->machine.state != tcp_peer_GONE)
		neap_step(&peer->machine, tcp_peer_on_FORGET, 0);
	if (peer->leaving) {
		leave_lanes(peer);
		if (!neap_peer_tell_leaving(peer))
			neap_peer_wake(peer);
		else if (peer->lane_count == 0)
			finish_leaving(peer);
		return;
	}
	if (!neap_peer_tell_doomed(peer))
		neap_peer_wake(peer);
	work(peer);
}

/* --- trouble -------------------------------------------------------------------------------------------------------------------- */

static enum neap_cause cause_of(const struct neap_tcp_lane *lane)
{
	static const uint8_t causes[] = {
		[NEAP_LANE_SILENT] = NEAP_CAUSE_CONNECT_TIMEOUT,
		[NEAP_LANE_FIN] = NEAP_CAUSE_PEER_CLOSED,
		[NEAP_LANE_RESET] = NEAP_CAUSE_PEER_RESET,
		[NEAP_LANE_BROKEN] = NEAP_CAUSE_PROTOCOL,
		[NEAP_LANE_DROPPED] = NEAP_CAUSE_NONE,
	};
	enum neap_cause cause = lane->cause ? lane->cause : causes[lane->end];
	return cause ? cause : NEAP_CAUSE_NO_PROGRESS;
}

static uint64_t pause_ns(const struct neap_tcp_peer *peer)
{
	uint32_t doublings = peer->failures > 0 ? peer->failures - 1 : 0;
	if (doublings > BACKOFF_DOUBLINGS)
		doublings = BACKOFF_DOUBLINGS;
	return ((uint64_t)neap_peer_options(peer)->retry_backoff_ms * NS_PER_MS) << doublings;
}

/* A lane brought no answer. While another one works it is only a reason to wait a little. */
static void weigh(struct neap_tcp_peer *peer, const struct neap_tcp_lane *lane)
{
	const struct neap_engine_options *options = neap_peer_options(peer);
	struct lane_count count = count_lanes(peer);
	uint64_t now_ns = neap_now(peer->initiator->reactor);
	if (peer->failures == 0)
		peer->outage_ns = lane->end == NEAP_LANE_STALLED ? now_ns : lane->started_ns;
	/* Lanes that were opened side by side fail for one reason: they are one attempt. */
	peer->failures += peer->failures == 0 || lane->started_ns >= peer->weighed_ns;
	peer->weighed_ns = now_ns;
	peer->trouble_cause = (uint8_t)cause_of(lane);
	peer->trouble_errno = lane->end_errno;
	peer->pause_until_ns = now_ns + pause_ns(peer);
	/* Other lanes may work for ever, to another core perhaps: what waits for this slot alone is not kept waiting with them. */
	if (lane->fence && lane->fence == peer->fences[lane->slot] &&
	    now_ns >= peer->fenced_from_ns[lane->slot] + (uint64_t)options->connect_timeout_ms * NS_PER_MS)
		neap_peer_fenced(peer, lane->slot, false);
	if (count.live + count.opening > 0 || peer->machine.state != tcp_peer_ACTIVE)
		return;
	bool spent = peer->failures > options->retries_max || now_ns >= peer->outage_ns + (uint64_t)options->connect_timeout_ms * NS_PER_MS;
	neap_step(&peer->machine, spent ? tcp_peer_on_GIVE_UP : tcp_peer_on_TROUBLE, peer->trouble_cause);
}

void neap_peer_lane_gone(struct neap_tcp_peer *peer, struct neap_tcp_lane *lane)
{
	bool under_way = lane->head != lane->tail;
	peer->lanes[lane->slot] = NULL;
	peer->lane_count--;
	if (lane->live && (lane->end != NEAP_LANE_DROPPED && (lane->end != NEAP_LANE_FIN || under_way)))
		peer->initiator->view->stats->lanes_lost++;
	/* An idle connection that the peer closes is no failure; one that was never of use is. */
	if (!peer->leaving && lane->end != NEAP_LANE_DROPPED && (!lane->live || (lane->answered == 0 && under_way)))
		weigh(peer, lane);
	neap_peer_wake(peer);
}

/* --- actions ---------------------------------------------------------------------------------------------------------------------- */

static void refreshed(struct neap_segment_waiter *waiter, int error, const char *why)
{
	struct neap_tcp_peer *peer = (struct neap_tcp_peer *)(void *)((char *)waiter - offsetof(struct neap_tcp_peer, fresh));
	(void)why;
	peer->fresh_waiting = false;
	peer->mistrust = false;
	bool changed = !error && !neap_peer_is_as_seen(peer);
	neap_step(&peer->machine, changed ? tcp_peer_on_CHANGED : tcp_peer_on_SAME, 0);
}

static void do_refresh(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_peer *peer = peer_of(machine);
	(void)argument;
	peer->fresh_waiting = true;
	int error = neap_segment_want_fresh(peer->segment, &peer->fresh, neap_now(peer->initiator->reactor), refreshed);
	if (error)
		refreshed(&peer->fresh, error, NULL);
}

static void stop_waiting(struct neap_tcp_peer *peer)
{
	if (peer->fresh_waiting)
		neap_segment_waiter_cancel(peer->segment, &peer->fresh);
	peer->fresh_waiting = false;
}

static void do_stop_refresh(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	stop_waiting(peer_of(machine));
}

static void do_pump(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	neap_peer_wake(peer_of(machine));
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_peer *peer = peer_of(machine);
	(void)argument;
	neap_peer_doom_all(peer, peer->trouble_cause, peer->trouble_errno);
	peer->failures = 0;
	peer->mistrust = true;
	neap_peer_wake(peer);
}

static void do_leave(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_peer *peer = peer_of(machine);
	(void)argument;
	stop_waiting(peer);
	if (peer->range_waiting)
		neap_segment_waiter_cancel(peer->segment, &peer->range);
	peer->range_waiting = false;
	neap_peer_wake(peer);
}

static neap_action_func *const actions[] = {
	[tcp_peer_do_refresh] = do_refresh, [tcp_peer_do_stop_refresh] = do_stop_refresh, [tcp_peer_do_pump] = do_pump,
	[tcp_peer_do_give_up] = do_give_up, [tcp_peer_do_leave] = do_leave,
};

/* --- class ------------------------------------------------------------------------------------------------------------------------ */

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)timeout_class;
	return now_ns + pause_ns((const struct neap_tcp_peer *)(const void *)machine);
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)event;
	neap_peer_leave(peer_of(machine), NEAP_CAUSE_INTERNAL);
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_tcp_peer *peer = (const struct neap_tcp_peer *)(const void *)machine;
	(void)from;
	if (machine->state == tcp_peer_GONE && (peer->fresh_waiting || peer->range_waiting))
		return "a peer that is gone waits for nothing";
	if (peer->suspects > peer->pending || peer->queue.count + peer->limbo.count + peer->unsure.count + peer->doomed.count > peer->pending)
		return "more requests in lists than there are";
	return NULL;
}

const struct neap_machine_kind neap_peer_kind = {
	.fsm = &neap_fsm_tcp_peer,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_tcp_peer),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls ------------------------------------------------------------------------------------------------------------------------ */

static void reap(struct neap_reap *reap_)
{
	struct neap_tcp_peer *peer = (struct neap_tcp_peer *)(void *)((char *)reap_ - offsetof(struct neap_tcp_peer, reap));
	struct neap_tcp_initiator *initiator = peer->initiator;
	neap_ready_cancel(initiator->reactor, &peer->ready);
	neap_pool_give(&initiator->peers, peer);
	if (initiator->closing)
		neap_ready_again(initiator->reactor, &initiator->ready);
}

void neap_peer_begin(struct neap_tcp_peer *peer, struct neap_tcp_initiator *initiator, struct neap_segment *segment)
{
	struct neap_machine machine = peer->machine; /* its generation goes on */
	*peer = (struct neap_tcp_peer){
		.machine = machine,
		.initiator = initiator,
		.segment = segment,
		.ready = {.run = run},
		.reap = {.reap = reap},
	};
	segment->peer = peer;
	neap_machine_begin(&peer->machine, &initiator->peer_class->class_);
}

void neap_peer_leave(struct neap_tcp_peer *peer, enum neap_cause cause)
{
	if (!peer->leaving)
		peer->leave_cause = (uint8_t)cause;
	peer->leaving = true;
	neap_peer_wake(peer);
}
