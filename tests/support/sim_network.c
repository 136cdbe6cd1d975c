/* Simulated verbs: what happens to a posted operation. The head of each QP's queue is on its way; it waits a random while, is judged, and
 * completes. Only the bytes of WRITEs that have completed lag behind: they are placed while what follows is on its way, but before it is
 * judged. */
#include "tests/support/sim_inside.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint64_t delay_ns(struct sim_verbs *sim)
{
	return 1 + sim_random(sim) % sim->latency_max_ns;
}

struct neap_verbs_qp *sim_peer_of(const struct neap_verbs_qp *qp)
{
	for (struct neap_verbs_qp *peer = qp->pd->context->sim->qps; peer; peer = peer->next) {
		const struct sim_device *device = peer->pd->context->device;
		if (peer->number != qp->attributes.peer_qp_number || peer->attributes.peer_qp_number != qp->number)
			continue;
		for (uint32_t i = 0; i < device->gid_count; i++)
			if (memcmp(device->gids[i].gid, qp->attributes.peer_gid, sizeof device->gids[i].gid) == 0)
				return peer;
	}
	return NULL;
}

static uint32_t index_of(const struct sim_verbs *sim, const struct sim_device *device)
{
	return (uint32_t)(device - sim->devices);
}

bool sim_is_cut(const struct sim_verbs *sim, const struct sim_device *a, const struct sim_device *b)
{
	return sim->cut[index_of(sim, a)] >> index_of(sim, b) & 1;
}

static void set_cut(struct sim_verbs *sim, uint32_t a, uint32_t b, bool cut)
{
	sim->cut[a] = (uint16_t)((sim->cut[a] & ~(1u << b)) | (unsigned)cut << b);
}

void sim_verbs_cut(struct sim_verbs *sim, const struct sim_device *a, const struct sim_device *b, bool cut)
{
	set_cut(sim, index_of(sim, a), index_of(sim, b), cut);
	set_cut(sim, index_of(sim, b), index_of(sim, a), cut);
	sim_network_wake(sim);
}

static bool reaches(const struct neap_verbs_qp *qp, const struct neap_verbs_qp *peer)
{
	return peer && (peer->state == NEAP_QP_RTR || peer->state == NEAP_QP_RTS) &&
	       peer->attributes.receive_psn == qp->attributes.send_psn &&
	       !sim_is_cut(qp->pd->context->sim, qp->pd->context->device, peer->pd->context->device) &&
	       qp->pd->context->device->port.status == NEAP_PORT_ACTIVE && peer->pd->context->device->port.status == NEAP_PORT_ACTIVE;
}

/* 4.096 us * 2^timeout for each try. UINT64_MAX: for ever. */
static uint64_t patience_ns(const struct neap_verbs_qp *qp)
{
	if (qp->attributes.retry_count >= 7 || qp->attributes.timeout == 0)
		return UINT64_MAX;
	return (UINT64_C(4096) << qp->attributes.timeout) * (qp->attributes.retry_count + 1u);
}

/* --- bytes */

/* A WRITE is acknowledged: its bytes are at the peer's device, whatever becomes of the buffer they came from, and not in memory yet. */
static void take_off(struct neap_verbs_qp *qp, struct sim_send *send)
{
	send->bytes = malloc(send->what.length);
	assert(send->bytes);
	memcpy(send->bytes, (const void *)(uintptr_t)send->what.local, send->what.length);
	send->target = sim_region(sim_peer_of(qp)->pd, true, send->what.rkey, send->what.remote, send->what.length, NEAP_VERBS_REMOTE_WRITE);
}

/* Some packets of it, if its region is still there. */
static void place(struct sim_send *send, uint32_t packets)
{
	uint32_t left = send->what.length - send->placed, piece = left / SIM_MTU_BYTES < packets ? left : packets * SIM_MTU_BYTES;
	if (send->target)
		sim_land(send->target, send->what.remote + send->placed, send->bytes + send->placed, piece);
	send->placed += piece;
	if (send->placed < send->what.length)
		return;
	free(send->bytes);
	send->bytes = NULL;
	send->target = NULL;
}

/* Bytes that are still coming for a READ that is on its way: pieces whose region went away are missing. */
bool sim_fetch(struct neap_verbs_qp *qp, struct neap_verbs_qp *peer, const struct neap_verbs_send *what)
{
	bool whole = true;
	for (uint32_t at = 0; at < what->length; at += SIM_MTU_BYTES) {
		uint32_t piece = what->length - at < SIM_MTU_BYTES ? what->length - at : SIM_MTU_BYTES;
		if (sim_region(peer->pd, true, what->rkey, what->remote + at, piece, NEAP_VERBS_REMOTE_READ) &&
		    sim_region(qp->pd, false, what->lkey, what->local + at, piece, NEAP_VERBS_LOCAL_WRITE))
			memcpy((void *)(uintptr_t)(what->local + at), (const void *)(uintptr_t)(what->remote + at), piece);
		else
			whole = false;
	}
	return whole;
}

/* --- verdicts */

static bool receive(struct neap_verbs_qp *qp, struct neap_verbs_qp *peer, const struct neap_verbs_send *what, enum neap_verbs_status *status_p)
{
	if (peer->receive_count == 0)
		return false; /* not ready: tried again */
	struct neap_verbs_receive receive = peer->receives[peer->receive_head++ % peer->receive_max];
	peer->receive_count--;
	if (what->length > receive.length || !sim_region(peer->pd, false, receive.lkey, receive.local, what->length, NEAP_VERBS_LOCAL_WRITE)) {
		sim_complete(peer, receive.id, NEAP_WC_LOCAL_LENGTH, 0);
		*status_p = NEAP_WC_REMOTE_INVALID_REQUEST;
		return true;
	}
	(void)qp;
	memcpy((void *)(uintptr_t)receive.local, (const void *)(uintptr_t)what->local, what->length);
	sim_complete(peer, receive.id, NEAP_WC_SUCCESS, what->length);
	return true;
}

/* False: nobody answers yet. */
static bool judge(struct neap_verbs_qp *qp, const struct neap_verbs_send *what, enum neap_verbs_status *status_p)
{
	struct neap_verbs_qp *peer = sim_peer_of(qp);
	bool reads = what->opcode == NEAP_VERBS_READ;
	unsigned needed = reads ? NEAP_VERBS_REMOTE_READ : NEAP_VERBS_REMOTE_WRITE;
	*status_p = NEAP_WC_SUCCESS;
	if (qp->pd->context->device->port.status != NEAP_PORT_ACTIVE)
		*status_p = NEAP_WC_LOCAL_QP_OPERATION; /* own NIC down, as Soft-RoCE says it */
	else if (what->length && !sim_region(qp->pd, false, what->lkey, what->local, what->length, reads ? NEAP_VERBS_LOCAL_WRITE : 0))
		*status_p = NEAP_WC_LOCAL_PROTECTION;
	else if (!reaches(qp, peer))
		return false;
	else if (peer->attributes.mtu_bytes != qp->attributes.mtu_bytes)
		*status_p = NEAP_WC_REMOTE_INVALID_REQUEST; /* rdma-observed 3 */
	else if (what->opcode == NEAP_VERBS_SEND)
		return receive(qp, peer, what, status_p);
	else if (reads && qp->attributes.reads_max > peer->attributes.reads_served_max)
		*status_p = NEAP_WC_REMOTE_INVALID_REQUEST; /* it may send more at once than there is room for: sooner or later it does */
	else if (!(peer->attributes.access & needed))
		*status_p = NEAP_WC_REMOTE_INVALID_REQUEST;
	else if (reads && qp->pd->context->sim->lies.reads_empty)
		return true;
	else if (what->length && !sim_region(peer->pd, true, what->rkey, what->remote, what->length, needed)) /* without bytes no key is looked at */
		*status_p = NEAP_WC_REMOTE_ACCESS;
	return true;
}

static void refuse(struct neap_verbs_qp *qp, enum neap_verbs_status status)
{
	struct neap_verbs_qp *peer = sim_peer_of(qp);
	bool remote = status == NEAP_WC_REMOTE_ACCESS || status == NEAP_WC_REMOTE_INVALID_REQUEST;
	if (status == NEAP_WC_RETRY_EXCEEDED)
		sim_strays_leave(qp);
	sim_qp_fails(qp);
	if (remote && peer)
		sim_qp_fails(peer);
}

/* Nobody answers: patience, then RETRY_EXCEEDED. */
static void wait_on(struct neap_verbs_qp *qp, struct sim_send *send, uint64_t now_ns)
{
	uint64_t patience = patience_ns(qp);
	if (send->first_ns == 0)
		send->first_ns = now_ns;
	if (patience != UINT64_MAX && now_ns - send->first_ns >= patience) {
		send->executed = true;
		send->status = NEAP_WC_RETRY_EXCEEDED;
	}
	send->due_ns = now_ns + 20 * delay_ns(qp->pd->context->sim); /* it is sent again less and less often */
}

/* --- one step of one QP */

static struct sim_send *head_of(struct neap_verbs_qp *qp)
{
	return qp->send_count ? sim_head(qp) : NULL;
}

static void pop(struct neap_verbs_qp *qp)
{
	qp->send_head++;
	qp->send_count--;
}

static void complete_head(struct neap_verbs_qp *qp, struct sim_send *send)
{
	bool failed = send->status != NEAP_WC_SUCCESS && send->status != NEAP_WC_FLUSHED;
	bool written = send->status == NEAP_WC_SUCCESS && send->what.opcode == NEAP_VERBS_WRITE && send->what.length > 0;
	bool later = written && qp->pd->context->sim->lies.places_later;
	sim_complete(qp, send->what.id, send->status, 0);
	send->completed = true;
	if (later)
		sim_strays_add(qp, send);
	else if (written)
		take_off(qp, send);
	if (failed)
		refuse(qp, send->status);
	if (!written || later)
		pop(qp);
}

static bool succeeds(const struct sim_send *send)
{
	return send->status == NEAP_WC_SUCCESS;
}

/* What acknowledges it: the peer's queue pair, and for a WRITE the region too. Of a READ the region may go midway. */
static bool still_there(const struct neap_verbs_qp *qp, const struct neap_verbs_send *what)
{
	const struct neap_verbs_qp *peer = sim_peer_of(qp);
	if (!peer || what->opcode != NEAP_VERBS_WRITE || what->length == 0)
		return peer != NULL;
	return sim_region(peer->pd, true, what->rkey, what->remote, what->length, NEAP_VERBS_REMOTE_WRITE) != NULL;
}

/* Some packets of the operation that a queue pair was at when its owner moved it to ERR. Nobody will tell of them. */
static void linger(struct neap_verbs_qp *qp, const struct neap_verbs_send *what)
{
	struct sim_verbs *sim = qp->pd->context->sim;
	const struct neap_verbs_qp *peer = qp->lingers ? sim_peer_of(qp) : NULL;
	bool reads = what->opcode == NEAP_VERBS_READ, both = what->opcode != NEAP_VERBS_SEND && what->length > 0;
	qp->lingers = false;
	if (!peer || !both || !(reads || reaches(qp, peer)) || sim_random(sim) % 2) /* what has been answered has come */
		return;
	uint32_t packets = 1 + (uint32_t)(sim_random(sim) % SIM_PACKETS_MAX);
	uint32_t length = what->length / SIM_MTU_BYTES < packets ? what->length : packets * SIM_MTU_BYTES;
	if (!sim_region(qp->pd, false, what->lkey, what->local, length, reads ? NEAP_VERBS_LOCAL_WRITE : 0) ||
	    !sim_region(peer->pd, true, what->rkey, what->remote, length, reads ? NEAP_VERBS_REMOTE_READ : NEAP_VERBS_REMOTE_WRITE))
		return;
	void *here = (void *)(uintptr_t)what->local, *there = (void *)(uintptr_t)what->remote;
	memcpy(reads ? here : there, reads ? there : here, length);
	sim->lingered++;
}

/* A READ is called done even with bytes missing, by a pair of queue pairs that has failed by then. */
static void acknowledge(struct neap_verbs_qp *qp, struct sim_send *send)
{
	struct neap_verbs_qp *peer = sim_peer_of(qp);
	bool reads = succeeds(send) && send->what.opcode == NEAP_VERBS_READ;
	bool whole = !reads || sim_fetch(qp, peer, &send->what);
	bool honest = qp->pd->context->sim->reads_are_honest, empty = qp->pd->context->sim->lies.reads_empty;
	bool lies = !whole && !honest && !empty;
	if (!whole && honest)
		send->status = NEAP_WC_REMOTE_ACCESS;
	complete_head(qp, send);
	if (!lies)
		return;
	sim_qp_fails(qp);
	sim_qp_fails(peer);
}

static void step(struct neap_verbs_qp *qp, struct sim_send *send, uint64_t now_ns)
{
	struct sim_verbs *sim = qp->pd->context->sim;
	send->due_ns = now_ns + delay_ns(sim);
	if (send->completed) { /* a WRITE: its bytes */
		if (send->bytes)
			place(send, 1 + (uint32_t)(sim_random(sim) % SIM_PACKETS_MAX));
		if (send->placed == send->what.length)
			pop(qp);
	} else if (send->executed && succeeds(send) && !still_there(qp, &send->what)) {
		send->executed = false; /* its acknowledgement will never come: it is judged anew */
	} else if (send->executed) {
		acknowledge(qp, send);
	} else if (qp->state == NEAP_QP_ERR) {
		linger(qp, &send->what);
		send->executed = true;
		send->status = NEAP_WC_FLUSHED;
	} else if (judge(qp, &send->what, &send->status)) {
		send->executed = true;
	} else {
		wait_on(qp, send, now_ns);
	}
}

void sim_place_rest(struct sim_send *send)
{
	while (send && send->completed && send->bytes)
		place(send, SIM_PACKETS_MAX);
}

/* Devices wait for what they have accepted before they let go of a region or a queue pair. */
void sim_network_settle(struct sim_verbs *sim, const struct neap_verbs_mr *region, const struct neap_verbs_qp *of)
{
	sim_strays_settle(sim, of, region);
	for (struct neap_verbs_qp *qp = sim->qps; qp; qp = qp->next) {
		struct sim_send *send = head_of(qp);
		if (send && send->completed && ((region && send->target == region) || qp == of || (of && sim_peer_of(qp) == of)))
			sim_place_rest(send);
	}
}

static struct neap_verbs_qp *earliest(struct sim_verbs *sim)
{
	struct neap_verbs_qp *first = NULL;
	for (struct neap_verbs_qp *qp = sim->qps; qp; qp = qp->next) {
		struct sim_send *send = head_of(qp);
		if (send && send->due_ns == 0)
			send->due_ns = sim_now(sim) + delay_ns(sim);
		if (send && (!first || send->due_ns < head_of(first)->due_ns))
			first = qp;
	}
	return first;
}

void sim_verbs_run(struct sim_verbs *sim)
{
	uint64_t now_ns = sim_now(sim);
	sim_strays_run(sim, now_ns);
	for (struct neap_verbs_qp *qp = earliest(sim); qp && head_of(qp)->due_ns <= now_ns; qp = earliest(sim))
		step(qp, head_of(qp), now_ns);
	sim_network_wake(sim);
}

void sim_verbs_place(struct sim_verbs *sim, const void *memory, uint64_t bytes)
{
	uint64_t from = (uintptr_t)memory;
	for (struct neap_verbs_qp *qp = sim->qps; qp; qp = qp->next) {
		struct sim_send *send = head_of(qp);
		if (send && send->completed && send->bytes && send->what.remote < from + bytes && from < send->what.remote + send->what.length)
			sim_place_rest(send);
	}
}

static void fire(struct neap_timer *timer, void *user)
{
	(void)timer;
	sim_verbs_run(user);
}

void sim_network_wake(struct sim_verbs *sim)
{
	struct neap_verbs_qp *qp = earliest(sim);
	uint64_t due_ns = sim_strays_due(sim);
	if (qp && head_of(qp)->due_ns < due_ns)
		due_ns = head_of(qp)->due_ns;
	if (sim->clock) {
		if (due_ns != UINT64_MAX)
			sim->clock->wake_at(sim->clock->user, due_ns);
		return;
	}
	neap_timer_cancel(sim->reactor, &sim->timer);
	if (due_ns != UINT64_MAX)
		(void)neap_timer_start(sim->reactor, &sim->timer, due_ns, fire, sim);
}
