/* The life of a lane: phases, deadlines, visits. */
#include "transports/tcp/peer.h"

#include <errno.h>

#define NS_PER_MS 1000000u

static struct neap_tcp_lane *lane_of(struct neap_machine *machine)
{
	return (struct neap_tcp_lane *)(void *)machine;
}

static struct neap_reactor *reactor_of(const struct neap_tcp_lane *lane)
{
	return lane->peer->initiator->reactor;
}

/* --- the end -------------------------------------------------------------------------------------------------------------- */

void neap_lane_over(struct neap_tcp_lane *lane, enum neap_lane_end end, int system_errno)
{
	if (lane->end)
		return;
	lane->end = (uint8_t)end;
	lane->end_errno = system_errno;
	neap_step(&lane->machine, tcp_lane_on_ENDED, end);
}

void neap_lane_stream_failed(struct neap_tcp_lane *lane, int error)
{
	bool reset = error == -ECONNRESET || error == -EPIPE;
	neap_lane_over(lane, reset ? NEAP_LANE_RESET : NEAP_LANE_LOST, -error);
}

/* The system found memory missing (EFAULT). One call has the memory of many requests, so they are tried one by one; then it is the one at
 * `index`. False: the lane cannot go on. */
bool neap_lane_fault(struct neap_tcp_lane *lane, uint32_t index)
{
	struct neap_slice *slice = neap_flight_at(lane, index)->slice;
	if (!lane->lone && index != lane->tail) {
		lane->lone = true;
		return true;
	}
	lane->lone = false;
	if (!slice) {
		neap_lane_over(lane, NEAP_LANE_LOST, EFAULT);
		return false;
	}
	/* Bytes of a WRITE that were given away before can still become visible: that is not a failure yet. */
	bool given = slice->opcode == NEAP_WRITE && slice->moved > 0;
	neap_lane_abandon(lane, slice, given ? NEAP_CANCELED : NEAP_FAILED, NEAP_CAUSE_LOCAL_MEMORY, EFAULT);
	return !lane->end && !lane->cut;
}

/* Requests of which nothing was sent go back to the front of the queue. */
static void return_unbegun(struct neap_tcp_lane *lane)
{
	while (lane->tail != lane->head && !neap_lane_begun(lane, lane->tail - 1)) {
		struct neap_flight *flight = neap_flight_at(lane, --lane->tail);
		if (flight->kind != NEAP_FLIGHT_VOID)
			lane->bytes -= flight->length;
		if (!flight->slice)
			continue;
		lane->requests--;
		flight->slice->transport_lane = NULL;
		neap_peer_put_front(lane->peer, &lane->peer->queue, flight->slice, NEAP_PLACE_QUEUE);
	}
}

static bool awaits_answers(struct neap_tcp_lane *lane)
{
	for (uint32_t i = lane->head; i != lane->sent; i++)
		if (neap_flight_at(lane, i)->slice)
			return true;
	return false;
}

void neap_lane_drain(struct neap_tcp_lane *lane, bool deaf)
{
	if (lane->end)
		return;
	lane->deaf |= deaf;
	if (!lane->cut) {
		lane->cut = true;
		return_unbegun(lane);
		neap_peer_wake(lane->peer);
	}
	if (lane->machine.state == tcp_lane_DRAINING)
		return;
	/* Deaf, the peer's end of file still decides between what may be sent again and what may not. */
	bool worth = deaf ? lane->requests > 0 : awaits_answers(lane);
	if (worth && lane->machine.state == tcp_lane_BUSY)
		neap_step(&lane->machine, tcp_lane_on_DRAIN, 0);
	else
		neap_lane_over(lane, lane->broken ? NEAP_LANE_BROKEN : NEAP_LANE_DROPPED, 0);
}

static void settled(struct neap_tcp_lane *lane)
{
	struct neap_tcp_initiator *initiator = lane->peer->initiator;
	neap_lane_settle(lane);
	neap_peer_lane_gone(lane->peer, lane);
	neap_machine_end(&lane->machine);
	neap_reap_later(initiator->reactor, &lane->reap);
}

static void reap(struct neap_reap *reap)
{
	struct neap_tcp_lane *lane = (struct neap_tcp_lane *)(void *)((char *)reap - offsetof(struct neap_tcp_lane, reap));
	neap_pool_give(&lane->peer->initiator->lanes, lane);
}

/* Closes everything at once; the requests are told in a piece of work of its own. An abortive close keeps what was not sent from being
 * sent, unless its user was already told that it will be. */
static void bury(struct neap_tcp_lane *lane)
{
	struct neap_tcp_initiator *initiator = lane->peer->initiator;
	if (lane->buried)
		return;
	lane->buried = true;
	neap_connect_cancel(&lane->connect);
	if (lane->waiting)
		neap_segment_waiter_cancel(lane->peer->segment, &lane->waiter);
	lane->waiting = false;
	if (lane->stream) {
		bool promised = lane->kind == NEAP_PEER_V1 && neap_peer_options(lane->peer)->v1_sent_is_done;
		neap_stream_close(lane->stream, lane->head != lane->tail && !promised);
		lane->stream = NULL;
		initiator->connected--;
		initiator->view->stats->lanes = initiator->connected;
	}
	neap_ready_again(initiator->reactor, &lane->ready);
}

/* --- visits ----------------------------------------------------------------------------------------------------------------- */

void neap_lane_want(struct neap_tcp_lane *lane, unsigned wanted)
{
	if (lane->wanted == wanted)
		return;
	lane->wanted = (uint8_t)wanted;
	neap_stream_want(lane->stream, wanted);
}

/* Canceled READs whose bytes are not worth waiting for: a new connection is cheaper. */
static bool only_ghosts_to_come(struct neap_tcp_lane *lane)
{
	uint64_t bytes = 0;
	if (lane->requests > 0 || lane->head == lane->tail)
		return false;
	for (uint32_t i = lane->head; i != lane->tail; i++)
		if (neap_flight_at(lane, i)->kind == NEAP_FLIGHT_READ)
			bytes += neap_flight_at(lane, i)->length;
	return bytes > lane->got && bytes - lane->got > NEAP_LANE_GHOST_BYTES;
}

/* What is left of places at the front that have no answer: canceled before they were sent, or v1 WRITEs that were said to be done. */
static void clear_front(struct neap_tcp_lane *lane)
{
	while (lane->head != lane->sent && neap_flight_at(lane, lane->head)->kind == NEAP_FLIGHT_VOID)
		neap_lane_advance(lane);
}

/* What a visit has left behind becomes at most one event. */
static void conclude(struct neap_tcp_lane *lane)
{
	uint8_t state = lane->machine.state;
	clear_front(lane);
	bool empty = lane->head == lane->tail;
	if (empty)
		lane->lone = false;
	if (only_ghosts_to_come(lane) || (empty && lane->retired)) {
		neap_lane_over(lane, NEAP_LANE_DROPPED, 0);
		return;
	}
	if (state == tcp_lane_BUSY && neap_lane_parts(lane))
		neap_step(&lane->machine, tcp_lane_on_PART, 0);
	else if (state == tcp_lane_BUSY && empty)
		neap_step(&lane->machine, tcp_lane_on_EMPTIED, 0);
	else if (state == tcp_lane_DRAINING && !lane->deaf && !awaits_answers(lane))
		neap_step(&lane->machine, tcp_lane_on_EMPTIED, 0);
	if (!lane->end && !lane->buried)
		neap_lane_want(lane, NEAP_READABLE | (lane->blocked && !lane->cut ? (unsigned)NEAP_WRITABLE : 0));
}

static void judge_progress(struct neap_tcp_lane *lane)
{
	uint64_t limit_ns = (uint64_t)neap_peer_options(lane->peer)->progress_timeout_ms * NS_PER_MS;
	lane->looking = false;
	if (lane->machine.state == tcp_lane_BUSY && neap_now(reactor_of(lane)) - lane->moved_ns >= limit_ns)
		neap_lane_over(lane, NEAP_LANE_STALLED, 0);
}

static void visit(struct neap_tcp_lane *lane)
{
	uint64_t budget = neap_reactor_bytes_budget(reactor_of(lane));
	neap_lane_receive(lane, &budget);
	if (!lane->end && neap_lane_takes(lane))
		neap_peer_feed(lane->peer, lane, UINT32_MAX);
	if (!lane->end)
		neap_lane_send(lane, &budget);
	if (!lane->end && lane->looking)
		judge_progress(lane);
	if (!lane->end)
		conclude(lane);
	if (!lane->end && budget == 0)
		neap_ready_again(reactor_of(lane), &lane->ready);
	neap_peer_rest(lane->peer);
}

static bool is_connected(const struct neap_tcp_lane *lane)
{
	uint8_t state = lane->machine.state;
	return state == tcp_lane_READY || state == tcp_lane_BUSY || state == tcp_lane_PARTING || state == tcp_lane_DRAINING;
}

static void run(struct neap_ready *ready)
{
	struct neap_tcp_lane *lane = (struct neap_tcp_lane *)(void *)((char *)ready - offsetof(struct neap_tcp_lane, ready));
	if (lane->buried) {
		settled(lane);
		return;
	}
	if (lane->moment_passed) {
		lane->moment_passed = false;
		neap_lane_moment_passed(lane);
	}
	if (!lane->end && is_connected(lane))
		visit(lane);
}

void neap_lane_stream_ready(struct neap_stream *stream, unsigned ready)
{
	struct neap_tcp_lane *lane = stream->user;
	if (ready & (NEAP_WRITABLE | NEAP_HANGUP | NEAP_ERROR_READY))
		lane->blocked = false;
	if (lane->machine.state == tcp_lane_HELLO) {
		neap_lane_greeting_ready(lane);
	} else if (lane->machine.state == tcp_lane_CONFIRMING) {
		uint64_t budget = 1;
		neap_lane_receive(lane, &budget); /* nothing is due: it finds the end of file */
	} else if (is_connected(lane)) {
		visit(lane);
	}
}

/* --- actions ------------------------------------------------------------------------------------------------------------------ */

/* Nothing has moved since the timer was armed, as far as was noticed. A process that was stopped finds its timers due before it has seen
 * what came meanwhile: so look first. */
static void do_look(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_lane *lane = lane_of(machine);
	(void)argument;
	lane->looking = true;
	neap_ready_again(reactor_of(lane), &lane->ready);
}

static void do_moment_over(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_lane *lane = lane_of(machine);
	(void)argument;
	lane->moment_passed = true;
	lane->moved_ns = neap_now(reactor_of(lane));
	neap_ready_again(reactor_of(lane), &lane->ready);
}

static void do_half_close(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_lane *lane = lane_of(machine);
	(void)argument;
	lane->stream->ops->shutdown_write(lane->stream);
	neap_ready_again(reactor_of(lane), &lane->ready);
}

static void do_silent(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_lane *lane = lane_of(machine);
	(void)argument;
	if (!lane->end)
		lane->end = NEAP_LANE_SILENT;
	bury(lane);
}

static void do_drained(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_lane *lane = lane_of(machine);
	(void)argument;
	if (!lane->end)
		lane->end = lane->broken ? NEAP_LANE_BROKEN : NEAP_LANE_DROPPED;
	bury(lane);
}

static void do_bury(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	bury(lane_of(machine));
}

static neap_action_func *const actions[] = {
	[tcp_lane_do_connect] = neap_lane_do_connect,
	[tcp_lane_do_greet] = neap_lane_do_greet,
	[tcp_lane_do_confirm] = neap_lane_do_confirm,
	[tcp_lane_do_serve] = neap_lane_do_serve,
	[tcp_lane_do_look] = do_look,
	[tcp_lane_do_moment_over] = do_moment_over,
	[tcp_lane_do_half_close] = do_half_close,
	[tcp_lane_do_silent] = do_silent,
	[tcp_lane_do_drained] = do_drained,
	[tcp_lane_do_bury] = do_bury,
};

/* --- class ---------------------------------------------------------------------------------------------------------------------- */

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_tcp_lane *lane = (const struct neap_tcp_lane *)(const void *)machine;
	const struct neap_engine_options *options = neap_peer_options(lane->peer);
	switch (timeout_class) {
	case tcp_lane_timeout_HELLO: /* a peer that says nothing must leave time to try it as a plain one */
		return now_ns + neap_lane_connect_timeout_ns(lane) / 2;
	case tcp_lane_timeout_PROGRESS:
		return lane->moved_ns + (uint64_t)options->progress_timeout_ms * NS_PER_MS;
	case tcp_lane_timeout_MOMENT:
		return now_ns + neap_lane_moment_ns(lane);
	case tcp_lane_timeout_DRAIN:
		return now_ns + (uint64_t)options->drain_timeout_ms * NS_PER_MS;
	default:
		return UINT64_MAX;
	}
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	struct neap_tcp_lane *lane = lane_of(machine);
	(void)event;
	if (!lane->end)
		lane->end = NEAP_LANE_DROPPED;
	bury(lane);
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_tcp_lane *lane = (const struct neap_tcp_lane *)(const void *)machine;
	(void)from;
	bool open = machine->state != tcp_lane_CLOSED && machine->state != tcp_lane_CONNECTING && machine->state != tcp_lane_DEAD;
	if (open != (lane->stream != NULL))
		return "a lane has a stream from its connection to its end";
	if (machine->state == tcp_lane_READY && lane->head != lane->tail)
		return "a ready lane has nothing under way";
	if (machine->state == tcp_lane_DRAINING && !lane->cut)
		return "a draining lane sends nothing more";
	if (machine->state == tcp_lane_DEAD && !lane->end)
		return "a dead lane has a reason";
	return NULL;
}

const struct neap_machine_kind neap_lane_kind = {
	.fsm = &neap_fsm_tcp_lane,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_tcp_lane),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls ---------------------------------------------------------------------------------------------------------------------- */

/* Everything but the ring, which is written before it is read, and the machines, whose generations go on. */
static void clear(struct neap_tcp_lane *lane)
{
	struct neap_machine machine = lane->machine, connect = lane->connect.machine;
	memset(lane, 0, offsetof(struct neap_tcp_lane, ring));
	lane->machine = machine;
	lane->connect.machine = connect;
	lane->ready.run = run;
	lane->reap.reap = reap;
	lane->low_water = 1;
	lane->appetite = NEAP_LANE_APPETITE;
	lane->sum_index = UINT32_MAX;
}

void neap_lane_open(struct neap_tcp_lane *lane, struct neap_tcp_peer *peer, uint32_t slot)
{
	struct neap_tcp_initiator *initiator = peer->initiator;
	clear(lane);
	lane->peer = peer;
	lane->slot = (uint8_t)slot;
	lane->kind = peer->kind;
	lane->id = (uint64_t)initiator->view->core_index << 48 | ++initiator->lane_ids;
	lane->fence = lane->kind == NEAP_PEER_NEAP ? peer->fences[slot] : 0;
	lane->started_ns = neap_now(initiator->reactor);
	memcpy(lane->instance, peer->instance, sizeof lane->instance);
	neap_machine_begin(&lane->machine, &initiator->lane_class->class_);
	neap_trace_relate(&peer->machine, &lane->machine);
	neap_step(&lane->machine, tcp_lane_on_OPEN, 0);
}

bool neap_lane_takes(const struct neap_tcp_lane *lane)
{
	return !lane->end && !lane->cut && !lane->retired && (lane->machine.state == tcp_lane_READY || lane->machine.state == tcp_lane_BUSY);
}

/* One at a time: to a peer that closes after each request or may do so, and while it is looked for which request made the peer cut a
 * connection off. */
static bool goes_alone(const struct neap_tcp_lane *lane)
{
	const struct neap_tcp_peer *peer = lane->peer;
	if (lane->kind == NEAP_PEER_NEAP)
		return false;
	return peer->suspects > 0 || peer->manners == NEAP_MANNERS_CLOSES ||
	       (lane->kind == NEAP_PEER_V1 && peer->manners == NEAP_MANNERS_UNKNOWN);
}

bool neap_lane_has_room(const struct neap_tcp_lane *lane, uint64_t length)
{
	const struct neap_tcp_peer *peer = lane->peer;
	uint32_t places = lane->tail - lane->head;
	if (goes_alone(lane)) {
		bool parts = peer->manners == NEAP_MANNERS_CLOSES || lane->kind == NEAP_PEER_V1;
		return places == 0 && (lane->answered == 0 || !parts || peer->manners == NEAP_MANNERS_KEEPS);
	}
	if (lane->kind == NEAP_PEER_V1)
		places++; /* for the probe */
	return places < NEAP_LANE_REQUESTS && (lane->bytes == 0 || lane->bytes + length <= NEAP_LANE_BYTES);
}

void neap_lane_load(struct neap_tcp_lane *lane, struct neap_slice *slice)
{
	uint32_t index = lane->tail++;
	*neap_flight_at(lane, index) = (struct neap_flight){
		.slice = slice,
		.address = slice->address,
		.length = slice->length,
		.kind = slice->opcode == NEAP_WRITE ? NEAP_FLIGHT_WRITE : NEAP_FLIGHT_READ,
	};
	slice->transport_lane = lane;
	slice->transport_word = index;
	slice->transport_phase = (uint8_t)((slice->transport_phase & ~(unsigned)NEAP_MARK_PLACE) | NEAP_PLACE_LANE);
	slice->moved = 0;
	lane->requests++;
	lane->bytes += slice->length;
	if (lane->machine.state == tcp_lane_READY) {
		lane->moved_ns = neap_now(reactor_of(lane));
		neap_step(&lane->machine, tcp_lane_on_LOADED, 0);
	}
}

void neap_lane_kick(struct neap_tcp_lane *lane)
{
	if (!lane->end && is_connected(lane) && neap_lane_unsent(lane)) {
		uint64_t budget = neap_reactor_bytes_budget(reactor_of(lane));
		neap_lane_send(lane, &budget);
		if (!lane->end && budget == 0)
			neap_ready_again(reactor_of(lane), &lane->ready);
	}
	if (!lane->end && is_connected(lane))
		conclude(lane);
}
