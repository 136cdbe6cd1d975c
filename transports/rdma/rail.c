#include "transports/rdma/peer.h"
#include "transports/rdma/rail_fsm.h"
#include <stdio.h>
#include <string.h>

#define NS_PER_MS UINT64_C(1000000)
#define FIRST_PAUSE_MS 100u

static struct neap_rdma_rail *rail_of(const struct neap_machine *machine)
{
	return (struct neap_rdma_rail *)(uintptr_t)((const char *)machine - offsetof(struct neap_rdma_rail, machine));
}

static struct neap_reactor *reactor_of(const struct neap_rdma_rail *rail)
{
	return rail->peer->initiator->reactor;
}

/* --- what its endpoint tells */

static void settled_for(struct neap_rdma_rail *rail)
{
	bool usable = rail->user.endpoint && rail->user.endpoint->usable;
	if (usable && rail->user.endpoint->peer_fence > rail->peer->fence)
		rail->peer->fence = rail->user.endpoint->peer_fence;
	if (usable)
		neap_step(&rail->machine, rail->doubt ? rdma_rail_on_DOUBTED : rdma_rail_on_USABLE, 0);
}

/* WRITEs under way, or as good as that: the peer is asked to destroy its half too, before they are repeated. */
static bool has_writes(const struct neap_rdma_rail *rail)
{
	for (const struct neap_rdma_piece *piece = rail->pieces.first; piece; piece = piece->next)
		if (piece->write)
			return true;
	return false;
}

/* A peer that ends a connection on which nothing is under way has had another use for its place: that is no failure. But one that ends
 * each before it has carried anything that waits for it would be tried without end. */
static bool made_room(const struct neap_rdma_rail *rail)
{
	const struct neap_rdma_peer *peer = rail->peer;
	bool in_vain = !rail->carried && (peer->again.first || peer->queued.first);
	return rail->user.endpoint->cause == NEAP_CAUSE_PEER_CLOSED && neap_rdma_rail_holds(rail) == 0 && !in_vain;
}

static void on_leaving(struct neap_rdma_rail *rail)
{
	struct neap_rdma_endpoint *endpoint = rail->user.endpoint;
	rail->open = false;
	rail->cause = made_room(rail) ? NEAP_CAUSE_NONE : endpoint->cause;
	neap_rdma_checks_drop(rail);
	endpoint->wants_fence |= has_writes(rail);
	if (rail->cause != NEAP_CAUSE_NONE)
		neap_rdma_peer_trouble(rail->peer, endpoint->cause, endpoint->why);
	neap_step(&rail->machine, rdma_rail_on_LEAVE, 0);
}

/* The user is off the endpoint already, which is still there to be read. */
static void on_gone(struct neap_rdma_rail *rail, bool fenced)
{
	bool blame = rail->cause != NEAP_CAUSE_NONE;
	neap_rdma_pieces_settle(rail, fenced);
	if (blame) {
		rail->doubt = true;
		rail->failures = (uint8_t)(rail->failures + (rail->failures < UINT8_MAX));
	}
	neap_step(&rail->machine, blame ? rdma_rail_on_FAILED : rdma_rail_on_GONE, rail->cause);
}

/* Its turn has come. The peer's budget for connecting does not run while others are served. */
static void on_turn(struct neap_rdma_rail *rail)
{
	struct neap_rdma_peer *peer = rail->peer;
	uint64_t now_ns = neap_now(reactor_of(rail)), waited_ns = now_ns - rail->waits_ns;
	/* With another descriptor the rail may be none any more: the peer looks at that first, and asks again. */
	bool seen = peer->seen_refreshed == peer->segment->refreshed && peer->seen == peer->segment->snapshot;
	bool wanted = seen && (peer->again.first || peer->queued.first);
	if (peer->outage_ns > 0)
		peer->outage_ns = peer->outage_ns + waited_ns < now_ns ? peer->outage_ns + waited_ns : now_ns;
	rail->waits_ns = 0;
	neap_step(&rail->machine, wanted ? rdma_rail_on_TURN : rdma_rail_on_GONE, 0);
}

static void told(struct neap_rdma_endpoint_user *user, enum neap_rdma_news news)
{
	struct neap_rdma_rail *rail = (struct neap_rdma_rail *)(void *)((char *)user - offsetof(struct neap_rdma_rail, user));
	switch (news) {
	case NEAP_RDMA_USABLE: settled_for(rail); break;
	case NEAP_RDMA_ROOM: neap_rdma_rail_check(rail); break;
	case NEAP_RDMA_LEAVING: on_leaving(rail); break;
	case NEAP_RDMA_GONE: on_gone(rail, user->fenced); break;
	case NEAP_RDMA_TURN: on_turn(rail); break;
	}
	neap_rdma_peer_wake(rail->peer);
}

/* What is known of a status, beyond its number. */
struct meaning {
	enum neap_verbs_status status;
	enum neap_cause cause;
	const char *text;
};
static const struct meaning meanings[] = {
	{NEAP_WC_RETRY_EXCEEDED, NEAP_CAUSE_PEER_RESET,
     "no answer (transport retry counter exceeded): its process, device or cable is gone"},
	{NEAP_WC_REMOTE_INVALID_REQUEST, NEAP_CAUSE_PROTOCOL, "the peer's device takes it for an invalid request"},
	{NEAP_WC_REMOTE_ACCESS, NEAP_CAUSE_REFUSED_BY_PEER, "refused there: the key is wrong or has ended"},
	{NEAP_WC_REMOTE_OPERATION, NEAP_CAUSE_PROTOCOL, "the peer's device failed in it"},
	{NEAP_WC_LOCAL_PROTECTION, NEAP_CAUSE_LOCAL_MEMORY, "our own memory is not registered as it was"},
	{NEAP_WC_LOCAL_QP_OPERATION, NEAP_CAUSE_CONNECT_FAILED, "our own device failed in it: is its link up?"},
	{NEAP_WC_FLUSHED, NEAP_CAUSE_PEER_RESET, "the queue pair failed"},
	{NEAP_WC_SUCCESS, NEAP_CAUSE_PEER_RESET, "the device failed in it"}, /* all others */
};

static const struct meaning *meaning_of(enum neap_verbs_status status)
{
	const struct meaning *meaning = meanings;
	while (meaning->status != status && meaning->status != NEAP_WC_SUCCESS)
		meaning++;
	return meaning;
}

/* What there is to look at: Neap peers agree on these, and others are not asked. */
static void explain_invalid(const struct neap_rdma_endpoint *endpoint, char *text, size_t size)
{
	if (endpoint->peer_is_neap)
		snprintf(text, size,
		         "its queue pair was in no state for the request; agreed: an MTU of %u bytes and %u READs at once on each queue pair",
		         endpoint->mtu_bytes, endpoint->reads_max);
	else
		snprintf(text, size,
		         "invalid request: do both ends have one MTU, here %u bytes (MC_MTU, ip link)? Does it serve fewer READs at once than %u?",
		         endpoint->mtu_bytes, endpoint->reads_max);
}

/* What broke it first is to blame; what was behind that is flushed. */
void neap_rdma_rail_broken(struct neap_rdma_rail *rail, enum neap_verbs_status status)
{
	const struct meaning *meaning = meaning_of(status);
	char why[NEAP_RDMA_WHY_SIZE + NEAP_TOPOLOGY_NAME_SIZE], text[NEAP_RDMA_WHY_SIZE];
	if (rail->trouble != NEAP_WC_SUCCESS)
		return;
	rail->trouble = (uint8_t)status;
	rail->open = false;
	snprintf(text, sizeof text, "%s", meaning->text);
	if (status == NEAP_WC_REMOTE_INVALID_REQUEST)
		explain_invalid(rail->user.endpoint, text, sizeof text);
	snprintf(why, sizeof why, "from %s to %.63s: %.200s (status %d)", rail->queue->device->name, rail->nic, text, (int)status);
	neap_rdma_endpoint_retire(rail->user.endpoint, meaning->cause, why);
}

/* --- actions */

static void fill_target(const struct neap_rdma_rail *rail, struct neap_rdma_target *target)
{
	const struct neap_rdma_peer *peer = rail->peer;
	const struct neap_descriptor *descriptor = neap_rdma_descriptor(peer);
	*target = (struct neap_rdma_target){
		.server = descriptor->rdma_server_name ? descriptor->rdma_server_name : descriptor->name,
		.nic = rail->nic,
		.address = peer->segment->snapshot->owner,
		.lid = descriptor->devices[rail->remote].lid,
		.is_neap = peer->is_neap,
	};
	memcpy(target->gid, descriptor->devices[rail->remote].gid, sizeof target->gid);
	memcpy(target->instance, descriptor->neap.instance, sizeof target->instance);
}

/* Nothing could be begun: as if an endpoint had been there and had gone. */
static void not_to_be_had(struct neap_rdma_rail *rail, int error)
{
	rail->cause = NEAP_CAUSE_CONNECT_FAILED;
	neap_rdma_peer_trouble(rail->peer, NEAP_CAUSE_CONNECT_FAILED, neap_error_text(error));
	(void)neap_post_first(&rail->machine, rdma_rail_on_FAILED, NEAP_CAUSE_CONNECT_FAILED);
}

static void wait_for_room(struct neap_rdma_rail *rail)
{
	neap_rdma_endpoint_wait(rail->peer->initiator->ground.endpoints, rail->queue, &rail->user);
	rail->waits_ns = neap_now(reactor_of(rail));
	(void)neap_post_first(&rail->machine, rdma_rail_on_WAIT, 0);
}

static void do_open(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_rail *rail = rail_of(machine);
	struct neap_rdma_target target;
	(void)argument;
	rail->trouble = NEAP_WC_SUCCESS;
	rail->cause = NEAP_CAUSE_NONE;
	rail->carried = false;
	fill_target(rail, &target);
	int error = neap_rdma_endpoint_use(rail->peer->initiator->ground.endpoints, rail->queue, &target, &rail->user);
	if (error == NEAP_EAGAIN)
		wait_for_room(rail);
	else if (error)
		not_to_be_had(rail, error);
	else
		settled_for(rail);
}

static void do_serve(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_rail *rail = rail_of(machine);
	(void)argument;
	rail->open = rail->user.endpoint && rail->user.endpoint->usable;
	neap_rdma_peer_wake(rail->peer);
}

/* A WRITE of no bytes goes to the peer's queue pair and back and touches nothing. */
static void do_probe(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_rail *rail = rail_of(machine);
	struct neap_rdma_initiator *initiator = rail->peer->initiator;
	struct neap_rdma_endpoint *endpoint = rail->user.endpoint;
	(void)argument;
	struct neap_rdma_piece *piece = neap_rdma_endpoint_room(endpoint) > 0 ? neap_rdma_piece_take(rail->peer, NULL, 0, 0) : NULL;
	if (!piece) { /* others prove it just now */
		(void)neap_post_first(machine, rdma_rail_on_PROVEN, 0);
		return;
	}
	piece->rail = rail;
	neap_rdma_piece_append(&rail->pieces, piece);
	initiator->stats.probes++;
	const struct neap_verbs_send probe = {.id = neap_pool_handle(&initiator->pieces, piece), .opcode = NEAP_VERBS_WRITE};
	if (neap_rdma_endpoint_post(endpoint, &probe, 1) == 0) { /* the endpoint leaves */
		neap_rdma_piece_unlink(&rail->pieces, piece);
		neap_rdma_piece_drop(rail->peer, piece);
	}
}

static void do_prove(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_rail *rail = rail_of(machine);
	rail->doubt = false;
	do_serve(machine, argument);
}

static void do_rest(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	neap_rdma_peer_wake(rail_of(machine)->peer);
}

static void do_pause(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_rail *rail = rail_of(machine);
	(void)argument;
	rail->paused = true;
	rail->peer->initiator->stats.rails_paused++;
	neap_rdma_peer_rail_failed(rail->peer);
	neap_rdma_peer_wake(rail->peer);
}

static void do_wake(struct neap_machine *machine, uint64_t argument)
{
	rail_of(machine)->paused = false;
	do_rest(machine, argument);
}

static void unlink_rail(struct neap_rdma_rail *rail)
{
	struct neap_rdma_rail **at = &rail->peer->rails;
	while (*at != rail)
		at = &(*at)->next;
	*at = rail->next;
	rail->peer->rail_count--;
}

static void do_end(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_rail *rail = rail_of(machine);
	(void)argument;
	rail->open = false;
	if (rail->user.endpoint || rail->user.line)
		neap_rdma_endpoint_unuse(&rail->user);
	unlink_rail(rail);
	neap_rdma_peer_wake(rail->peer);
	neap_machine_end(machine);
	neap_reap_later(reactor_of(rail), &rail->reap);
}

static neap_action_func *const actions[] = {
	[rdma_rail_do_open] = do_open,   [rdma_rail_do_serve] = do_serve, [rdma_rail_do_probe] = do_probe, [rdma_rail_do_prove] = do_prove,
	[rdma_rail_do_rest] = do_rest,   [rdma_rail_do_pause] = do_pause, [rdma_rail_do_wake] = do_wake,   [rdma_rail_do_end] = do_end,
};

/* Longer with each failure in a row. */
static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_rdma_rail *rail = rail_of(machine);
	uint64_t most = rail->peer->initiator->ground.options.rail_pause_ms, doublings = rail->failures > 1 ? rail->failures - 1u : 0;
	uint64_t pause_ms = (uint64_t)FIRST_PAUSE_MS << (doublings < 12 ? doublings : 12);
	(void)timeout_class;
	return now_ns + (pause_ms < most ? pause_ms : most) * NS_PER_MS;
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	struct neap_rdma_rail *rail = rail_of(machine);
	neap_log(reactor_of(rail), NEAP_LOG_ERROR, "rdma", "the rail from %s to %s at %s met %s, which cannot happen",
	         rail->queue->device->name, rail->nic, rail->peer->segment->name, machine->class_->fsm->event_names[event]);
	rail->open = false;
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_rdma_rail *rail = rail_of(machine);
	bool rests = machine->state == rdma_rail_CLOSED || machine->state == rdma_rail_PAUSED || machine->state == rdma_rail_ENDED ||
	             machine->state == rdma_rail_WAITING;
	(void)from;
	if (rests && neap_rdma_rail_holds(rail) > 0)
		return "pieces on a rail that is not open";
	if ((machine->state == rdma_rail_WAITING) != (rail->user.line != NULL) && machine->state != rdma_rail_OPENING)
		return "waiting is being in the line";
	return rail->open && !rail->user.endpoint ? "open without an endpoint" : NULL;
}

const struct neap_machine_kind neap_rdma_rail_kind = {
	.fsm = &neap_fsm_rdma_rail,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_rdma_rail),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls */

struct neap_rdma_rail *neap_rdma_rail_of(const struct neap_rdma_peer *peer, struct neap_path path)
{
	struct neap_rdma_rail *rail = peer->rails;
	while (rail && (rail->local != path.local || rail->remote != path.remote || rail->stale))
		rail = rail->next;
	return rail;
}

static void reap(struct neap_reap *reap)
{
	struct neap_rdma_rail *rail = (struct neap_rdma_rail *)(void *)((char *)reap - offsetof(struct neap_rdma_rail, reap));
	neap_pool_give(&rail->peer->initiator->rails, rail);
}

struct neap_rdma_rail *neap_rdma_rail_make(struct neap_rdma_peer *peer, struct neap_path path)
{
	struct neap_rdma_initiator *initiator = peer->initiator;
	const char *nic = neap_rdma_descriptor(peer)->devices[path.remote].name;
	struct neap_rdma_rail *rail = NULL;
	if (peer->rail_count < NEAP_RDMA_RAILS_MAX && strlen(nic) < sizeof rail->nic)
		rail = neap_pool_take(&initiator->rails);
	if (!rail)
		return NULL;
	struct neap_machine machine = rail->machine; /* its generation goes on */
	*rail = (struct neap_rdma_rail){
		.machine = machine,
		.user.told = told,
		.peer = peer,
		.next = peer->rails,
		.queue = initiator->queue_of[path.local],
		.reap.reap = reap,
		.local = path.local,
		.remote = path.remote,
	};
	snprintf(rail->nic, sizeof rail->nic, "%s", nic);
	peer->rails = rail;
	peer->rail_count++;
	neap_machine_begin(&rail->machine, &initiator->rail_class->class_);
	return rail;
}

void neap_rdma_rail_want(struct neap_rdma_rail *rail)
{
	neap_step(&rail->machine, rdma_rail_on_WANTED, 0);
}

bool neap_rdma_rail_is_trying(const struct neap_rdma_rail *rail)
{
	return rail->machine.state != rdma_rail_CLOSED && rail->machine.state != rdma_rail_PAUSED;
}

bool neap_rdma_rail_is_opening(const struct neap_rdma_rail *rail)
{
	uint8_t state = rail->machine.state;
	return state == rdma_rail_OPENING || (state == rdma_rail_LEAVING && neap_rdma_rail_holds(rail) == 0);
}

void neap_rdma_rail_resume(struct neap_rdma_rail *rail)
{
	neap_step(&rail->machine, rdma_rail_on_RESUME, 0);
}

bool neap_rdma_rail_end(struct neap_rdma_rail *rail)
{
	uint8_t state = rail->machine.state;
	if (neap_rdma_rail_holds(rail) > 0 || state == rdma_rail_PROBING || state == rdma_rail_LEAVING)
		return false;
	neap_step(&rail->machine, rdma_rail_on_END, 0);
	return true;
}
