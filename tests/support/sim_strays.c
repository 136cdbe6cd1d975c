/* Simulated verbs: packets that are still in the network when their queue pair is of no use any more. They are lost when nobody expects them:
 * the peer's queue pair is gone or failed, or knows another one, or counts from another number. They come in the order in which they were
 * sent, in pieces, and wait for a cable that is cut and a port that is down. */
#include "tests/support/sim_inside.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define STRAYS_A_QP 8u /* sends that a device may have in the network at once */
#define CAUGHT_NS_MAX UINT64_C(8000000)

static uint64_t delay_ns(struct sim_verbs *sim)
{
	return 1 + sim_random(sim) % (sim->stray_max_ns + sim->latency_max_ns);
}

static struct sim_stray *stray_of(const struct neap_verbs_qp *qp, const struct neap_verbs_qp *peer, const struct neap_verbs_send *what)
{
	struct sim_stray *stray = malloc(sizeof *stray + what->length);
	assert(stray);
	*stray = (struct sim_stray){
		.from = qp->pd->context->device, .to = peer->pd->context->device, .from_qp = qp->number, .to_qp = peer->number,
		.psn = qp->attributes.send_psn, .rkey = what->rkey, .length = what->length, .remote = what->remote,
	};
	memcpy(stray->bytes, (const void *)(uintptr_t)what->local, what->length);
	return stray;
}

void sim_strays_leave(const struct neap_verbs_qp *qp)
{
	struct sim_verbs *sim = qp->pd->context->sim;
	const struct neap_verbs_qp *peer = qp->state == NEAP_QP_RTS ? sim_peer_of(qp) : NULL;
	struct sim_stray **tail = &sim->strays;
	if (!peer || qp->pd->context->device->port.status != NEAP_PORT_ACTIVE)
		return;
	if (sim->stray_max_ns == 0 && !sim_is_cut(sim, qp->pd->context->device, peer->pd->context->device))
		return;
	while (*tail)
		tail = &(*tail)->next;
	uint64_t due_ns = sim_now(sim);
	uint32_t most = (uint32_t)(1 + sim_random(sim) % STRAYS_A_QP);
	for (uint32_t i = 0; i < qp->send_count && i < most; i++) {
		const struct sim_send *send = &qp->sends[(qp->send_head + i) % (qp->send_max + 1)];
		const struct neap_verbs_send *what = &send->what;
		if (send->posted_ns > sim_now(sim))
			break;
		if ((send->executed && send->status == NEAP_WC_SUCCESS) || what->opcode != NEAP_VERBS_WRITE ||
		    !sim_region(qp->pd, false, what->lkey, what->local, what->length, 0))
			continue;
		*tail = stray_of(qp, peer, what);
		(*tail)->due_ns = due_ns += delay_ns(sim);
		tail = &(*tail)->next;
	}
}

void sim_strays_add(struct neap_verbs_qp *qp, const struct sim_send *send)
{
	struct sim_verbs *sim = qp->pd->context->sim;
	struct sim_stray **tail = &sim->strays;
	while (*tail)
		tail = &(*tail)->next;
	*tail = stray_of(qp, sim_peer_of(qp), &send->what);
	(*tail)->due_ns = sim_now(sim) + delay_ns(sim);
}

static bool waits(const struct sim_verbs *sim, const struct sim_stray *stray)
{
	return !stray->caught && (sim_is_cut(sim, stray->from, stray->to) || stray->to->port.status != NEAP_PORT_ACTIVE);
}

static struct neap_verbs_qp *expects(const struct sim_verbs *sim, const struct sim_stray *stray)
{
	struct neap_verbs_qp *qp = sim->qps;
	while (qp && qp->number != stray->to_qp)
		qp = qp->next;
	return qp && (qp->state == NEAP_QP_RTR || qp->state == NEAP_QP_RTS) && qp->attributes.peer_qp_number == stray->from_qp &&
	       qp->attributes.receive_psn == stray->psn ? qp : NULL;
}

/* The first packet of those on their way to a queue pair that fails. */
void sim_strays_catch(const struct neap_verbs_qp *qp)
{
	struct sim_verbs *sim = qp->pd->context->sim;
	for (struct sim_stray *stray = sim->strays; stray; stray = stray->next) {
		if (stray->caught || stray->to_qp != qp->number || expects(sim, stray) != qp || waits(sim, stray))
			continue;
		stray->caught = sim_random(sim) % 2;
		if (stray->caught)
			stray->due_ns = sim_now(sim) + 1 + sim_random(sim) % CAUGHT_NS_MAX;
		return;
	}
}

/* It holds the queue pair and the region until it is copied. */
static void land_caught(struct sim_verbs *sim, struct sim_stray *stray)
{
	uint32_t left = stray->length - stray->placed, piece = left < SIM_MTU_BYTES ? left : SIM_MTU_BYTES;
	const struct neap_verbs_qp *qp = sim->qps;
	while (qp && qp->number != stray->to_qp)
		qp = qp->next;
	const struct neap_verbs_mr *mr =
		qp ? sim_region(qp->pd, true, stray->rkey, stray->remote, stray->length, NEAP_VERBS_REMOTE_WRITE) : NULL;
	if (!mr)
		return;
	sim_land(mr, stray->remote + stray->placed, stray->bytes + stray->placed, piece);
	sim->caught++;
}

void sim_strays_settle(struct sim_verbs *sim, const struct neap_verbs_qp *qp, const struct neap_verbs_mr *region)
{
	for (struct sim_stray **at = &sim->strays; *at;) {
		struct sim_stray *stray = *at;
		bool holds = stray->caught && ((qp && stray->to_qp == qp->number) || (region && stray->rkey == region->keys.rkey));
		if (!holds) {
			at = &stray->next;
			continue;
		}
		land_caught(sim, stray);
		*at = stray->next;
		free(stray);
	}
}

/* One packet. False: nothing more of it comes. */
static bool land(struct sim_verbs *sim, struct sim_stray *stray)
{
	struct neap_verbs_qp *qp = expects(sim, stray);
	uint32_t left = stray->length - stray->placed, piece = left < SIM_MTU_BYTES ? left : SIM_MTU_BYTES;
	const struct neap_verbs_pd *pd = qp ? qp->pd : sim_mistake_half(sim, stray);
	if (stray->caught) {
		land_caught(sim, stray);
		return false;
	}
	const struct neap_verbs_mr *mr = pd ? sim_region(pd, true, stray->rkey, stray->remote, stray->length, NEAP_VERBS_REMOTE_WRITE) : NULL;
	if (!mr) {
		sim->strays_refused++;
		if (qp)
			sim_qp_fails(qp);
		return false;
	}
	sim_land(mr, stray->remote + stray->placed, stray->bytes + stray->placed, piece);
	stray->placed += piece;
	sim->strays_landed += stray->placed == stray->length;
	return stray->placed < stray->length;
}

/* The first of those of its queue pair. */
static bool is_first(const struct sim_verbs *sim, const struct sim_stray *stray)
{
	for (const struct sim_stray *other = sim->strays; other != stray; other = other->next)
		if (other->from_qp == stray->from_qp && !stray->caught)
			return false;
	return true;
}

uint64_t sim_strays_due(const struct sim_verbs *sim)
{
	uint64_t due_ns = UINT64_MAX;
	for (const struct sim_stray *stray = sim->strays; stray; stray = stray->next)
		if (!waits(sim, stray) && stray->due_ns < due_ns && is_first(sim, stray))
			due_ns = stray->due_ns;
	return due_ns;
}

void sim_strays_run(struct sim_verbs *sim, uint64_t now_ns)
{
	for (struct sim_stray **at = &sim->strays; *at;) {
		struct sim_stray *stray = *at;
		if (stray->due_ns > now_ns || waits(sim, stray) || !is_first(sim, stray)) {
			at = &stray->next;
		} else if (land(sim, stray)) {
			stray->due_ns = now_ns + 1 + sim_random(sim) % sim->latency_max_ns;
			at = &stray->next;
		} else {
			*at = stray->next;
			free(stray);
		}
	}
}

void sim_strays_end(struct sim_verbs *sim)
{
	for (struct sim_stray *stray; (stray = sim->strays);) {
		sim->strays = stray->next;
		free(stray);
	}
}
