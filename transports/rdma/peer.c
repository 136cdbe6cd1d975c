/* A peer: requests come in, rails are fed, and what goes wrong with them is weighed. All of its work is done in one ready source, so that
 * submits of one turn leave together. */
#include "transports/rdma/peer.h"
#include "transports/rdma/peer_fsm.h"
#include "transports/rdma/rail_fsm.h"
#include <stdio.h>
#include <string.h>

#define NS_PER_MS UINT64_C(1000000)
#define BACKOFF_DOUBLINGS 7u
#define STOPS_A_PIECE 1024u
#define SAID_MAX 8u /* of one peer in SAID_NS: many paths fail for few reasons, each with its own names in the text */
#define SAID_NS (10 * 1000 * NS_PER_MS)

static struct neap_rdma_peer *peer_of(const struct neap_machine *machine)
{
	return (struct neap_rdma_peer *)(uintptr_t)((const char *)machine - offsetof(struct neap_rdma_peer, machine));
}

void neap_rdma_peer_wake(struct neap_rdma_peer *peer)
{
	neap_ready_again(peer->initiator->reactor, &peer->ready);
}

/* --- what goes wrong */

static void say(struct neap_rdma_peer *peer, const char *why)
{
	uint64_t now_ns = neap_now(peer->initiator->reactor);
	if (peer->said == 0 || now_ns >= peer->said_ns + SAID_NS) {
		peer->said_ns = now_ns;
		peer->said = 0;
	}
	peer->said += peer->said <= SAID_MAX;
	neap_log(peer->initiator->reactor, peer->said <= SAID_MAX ? NEAP_LOG_WARNING : NEAP_LOG_DEBUG, "rdma", "%s: %s%s",
	         peer->segment->name, why, peer->said == SAID_MAX ? "; more of that peer is logged as DEBUG for 10 s" : "");
}

void neap_rdma_peer_trouble(struct neap_rdma_peer *peer, enum neap_cause cause, const char *why)
{
	peer->trouble_cause = (uint8_t)neap_rdma_cause_for_others(cause);
	if (strcmp(peer->trouble, why) == 0)
		return;
	snprintf(peer->trouble, sizeof peer->trouble, "%s", why);
	say(peer, why);
}

/* `begun_late`: rails that are only being opened do not count. */
static bool is_trying(const struct neap_rdma_peer *peer, bool begun_late)
{
	for (const struct neap_rdma_rail *rail = peer->rails; rail; rail = rail->next)
		if (!rail->stale && neap_rdma_rail_is_trying(rail) && !(begun_late && neap_rdma_rail_is_opening(rail)))
			return true;
	return false;
}

void neap_rdma_peer_rail_failed(struct neap_rdma_peer *peer)
{
	if (peer->outage_ns == 0 && !is_trying(peer, true))
		peer->outage_ns = neap_now(peer->initiator->reactor);
}

/* There is work, and no rail that does it or is about to. Of many rails that fail one after the other, each after a while, one would always
 * be about to: what was not begun in the time for connecting is not waited for. */
static void weigh(struct neap_rdma_peer *peer)
{
	const struct neap_engine_options *options = neap_rdma_options_of(peer);
	uint64_t now_ns = neap_now(peer->initiator->reactor), budget_ns = options->connect_timeout_ms * NS_PER_MS;
	bool wants = peer->again.first || peer->queued.first;
	if (peer->machine.state != rdma_peer_ACTIVE || !wants || peer->doomed || peer->keys_doubted)
		return;
	uint64_t attempt_ns = options->handshake_timeout_ms * NS_PER_MS;
	if (is_trying(peer, peer->outage_ns != 0 && now_ns >= peer->outage_ns + budget_ns + attempt_ns))
		return;
	if (!peer->trouble_cause)
		neap_rdma_peer_trouble(peer, NEAP_CAUSE_CONNECT_FAILED,
		                       "no device of ours, or none of the peer's, can be used for this memory now");
	if (peer->outage_ns == 0)
		peer->outage_ns = now_ns;
	bool spent = ++peer->failures > peer->initiator->ground.options.tries_max || now_ns >= peer->outage_ns + budget_ns;
	neap_step(&peer->machine, spent ? rdma_peer_on_GIVE_UP : rdma_peer_on_TROUBLE, peer->trouble_cause);
}

/* --- the one source of work */

static bool has_work(const struct neap_rdma_peer *peer)
{
	return peer->again.first || peer->queued.first || peer->cut.first;
}

static void rest(struct neap_rdma_peer *peer)
{
	uint8_t state = peer->machine.state;
	if (!has_work(peer) && state != rdma_peer_IDLE && state != rdma_peer_LEAVING && state != rdma_peer_GONE)
		neap_step(&peer->machine, rdma_peer_on_QUIET, 0);
}

/* What the peer was given up with; pieces that are under way have their own end. */
static void tell_doomed(struct neap_rdma_peer *peer)
{
	struct neap_rdma_request_list *lists[] = {&peer->queued, &peer->cut};
	uint32_t left = STOPS_A_PIECE;
	for (uint32_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
		for (; lists[i]->first && left > 0; left--)
			neap_rdma_request_stop(peer, lists[i]->first, NEAP_FAILED, peer->doom_cause, 0);
	peer->doomed = left == 0;
	if (peer->doomed)
		neap_rdma_peer_wake(peer);
}

static void resume_rails(struct neap_rdma_peer *peer)
{
	for (struct neap_rdma_rail *rail = peer->rails; rail; rail = rail->next)
		neap_rdma_rail_resume(rail);
	peer->resume = false;
}

static void work(struct neap_rdma_peer *peer)
{
	if (peer->doomed)
		tell_doomed(peer);
	if (peer->resume)
		resume_rails(peer);
	neap_rdma_peer_look(peer);
	neap_rdma_peer_look_at_unsure(peer);
	if (peer->machine.state == rdma_peer_IDLE && has_work(peer)) {
		peer->outage_ns = 0; /* of work that has gone */
		peer->failures = 0;
		neap_step(&peer->machine, rdma_peer_on_WORK, 0);
	}
	if (peer->machine.state == rdma_peer_ACTIVE)
		neap_rdma_peer_feed(peer);
	neap_rdma_peer_ask_for_ranges(peer);
	weigh(peer);
	rest(peer);
}

/* Some in each piece of work; true: all were. */
static bool stop_all(struct neap_rdma_peer *peer)
{
	struct neap_rdma_request_list *lists[] = {&peer->unsure, &peer->queued, &peer->cut};
	uint32_t left = STOPS_A_PIECE;
	for (uint32_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
		for (; lists[i]->first && left > 0; left--)
			neap_rdma_request_stop(peer, lists[i]->first, NEAP_CANCELED, peer->leave_cause, 0);
	return left > 0;
}

static void leave(struct neap_rdma_peer *peer)
{
	struct neap_rdma_rail *next;
	if (!stop_all(peer)) {
		neap_rdma_peer_wake(peer);
		return;
	}
	for (struct neap_rdma_rail *rail = peer->rails; rail; rail = next) {
		next = rail->next;
		(void)neap_rdma_rail_end(rail);
	}
	if (peer->rail_count == 0 && peer->holding == 0 && peer->machine.state == rdma_peer_LEAVING)
		neap_step(&peer->machine, rdma_peer_on_CLOSED, 0);
}

static void run(struct neap_ready *ready)
{
	struct neap_rdma_peer *peer = (struct neap_rdma_peer *)(void *)((char *)ready - offsetof(struct neap_rdma_peer, ready));
	if (peer->machine.state == rdma_peer_GONE)
		return;
	if (peer->leaving && peer->machine.state != rdma_peer_LEAVING)
		neap_step(&peer->machine, rdma_peer_on_FORGET, 0);
	if (peer->leaving)
		leave(peer);
	else
		work(peer);
}

/* --- actions */

static void refreshed(struct neap_segment_waiter *waiter, int error, const char *why)
{
	struct neap_rdma_peer *peer = (struct neap_rdma_peer *)(void *)((char *)waiter - offsetof(struct neap_rdma_peer, fresh));
	(void)why;
	peer->fresh_waiting = false;
	bool changed = !error && !neap_rdma_peer_is_as_seen(peer);
	neap_step(&peer->machine, changed ? rdma_peer_on_CHANGED : rdma_peer_on_SAME, 0);
}

static void do_refresh(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_peer *peer = peer_of(machine);
	(void)argument;
	peer->fresh_waiting = true;
	int error = neap_segment_want_fresh(peer->segment, &peer->fresh, neap_now(peer->initiator->reactor), refreshed);
	if (error)
		refreshed(&peer->fresh, error, NULL);
}

static void stop_waiting(struct neap_rdma_peer *peer)
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

/* Nothing works: so what was to be left alone for a while is tried. From the turn, as there may be many. */
static void do_pump(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_peer *peer = peer_of(machine);
	(void)argument;
	peer->resume = true;
	neap_rdma_peer_wake(peer);
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_peer *peer = peer_of(machine);
	(void)argument;
	peer->doomed = true;
	peer->doom_cause = peer->trouble_cause;
	peer->failures = 0;
	peer->outage_ns = 0;
	peer->trouble_cause = NEAP_CAUSE_NONE;
	peer->trouble[0] = '\0';
	neap_rdma_peer_wake(peer);
}

static void do_leave(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_peer *peer = peer_of(machine);
	(void)argument;
	stop_waiting(peer);
	if (peer->range_waiting)
		neap_segment_waiter_cancel(peer->segment, &peer->range);
	peer->range_waiting = false;
	neap_rdma_peer_wake(peer);
}

/* The segment and this peer part. */
static void do_part(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_peer *peer = peer_of(machine);
	struct neap_segment *segment = peer->segment;
	void (*forgotten)(void *user, struct neap_segment *segment) = peer->forgotten;
	(void)argument;
	segment->rdma_peer = NULL;
	neap_rdma_peer_forget_buffers(peer);
	neap_timer_cancel(peer->initiator->reactor, &peer->drain);
	neap_machine_end(machine);
	neap_reap_later(peer->initiator->reactor, &peer->reap);
	if (forgotten)
		forgotten(peer->forgotten_user, segment);
}

static neap_action_func *const actions[] = {
	[rdma_peer_do_refresh] = do_refresh, [rdma_peer_do_stop_refresh] = do_stop_refresh, [rdma_peer_do_pump] = do_pump,
	[rdma_peer_do_give_up] = do_give_up, [rdma_peer_do_leave] = do_leave,               [rdma_peer_do_part] = do_part,
};

/* --- class */

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_rdma_peer *peer = peer_of(machine);
	uint32_t doublings = peer->failures > 0 ? peer->failures - 1 : 0;
	(void)timeout_class;
	return now_ns + ((neap_rdma_options_of(peer)->retry_backoff_ms * NS_PER_MS) << (doublings < BACKOFF_DOUBLINGS
	                                                                                ? doublings : BACKOFF_DOUBLINGS));
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)event;
	neap_rdma_peer_leave(peer_of(machine), NEAP_CAUSE_INTERNAL);
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_rdma_peer *peer = peer_of(machine);
	(void)from;
	if (machine->state == rdma_peer_GONE && (peer->fresh_waiting || peer->range_waiting || peer->holding))
		return "a peer that is gone waits for nothing and holds nothing";
	if (peer->unsure.count + peer->queued.count + peer->cut.count + peer->draining.count != peer->holding)
		return "a request stands nowhere, or twice";
	return NULL;
}

const struct neap_machine_kind neap_rdma_peer_kind = {
	.fsm = &neap_fsm_rdma_peer,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_rdma_peer),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls */

static void reap(struct neap_reap *reap_)
{
	struct neap_rdma_peer *peer = (struct neap_rdma_peer *)(void *)((char *)reap_ - offsetof(struct neap_rdma_peer, reap));
	struct neap_rdma_initiator *initiator = peer->initiator;
	neap_ready_cancel(initiator->reactor, &peer->ready);
	neap_pool_give(&initiator->peers, peer);
	if (initiator->closing)
		neap_ready_again(initiator->reactor, &initiator->ready);
}

void neap_rdma_peer_begin(struct neap_rdma_peer *peer, struct neap_rdma_initiator *initiator, struct neap_segment *segment)
{
	struct neap_machine machine = peer->machine; /* its generation goes on */
	*peer = (struct neap_rdma_peer){
		.machine = machine,
		.initiator = initiator,
		.segment = segment,
		.ready = {.run = run},
		.reap = {.reap = reap},
	};
	segment->rdma_peer = peer;
	neap_machine_begin(&peer->machine, &initiator->peer_class->class_);
}

void neap_rdma_peer_leave(struct neap_rdma_peer *peer, enum neap_cause cause)
{
	if (!peer->leaving)
		peer->leave_cause = (uint8_t)cause;
	peer->leaving = true;
	neap_rdma_peer_wake(peer);
}
