/* Simulated verbs: completion queues and queue pairs. */
#include "tests/support/sim_inside.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct sim_verbs *sim_of(const struct neap_verbs_qp *qp)
{
	return qp->pd->context->sim;
}

/* --- completion queues */

static int create_channel(struct neap_verbs_context *context, struct neap_verbs_channel **channel_p)
{
	int error = context->lost ? -EIO : sim_fails(context->sim, SIM_CREATE_CHANNEL);
	*channel_p = NULL;
	if (error)
		return error;
	struct neap_verbs_channel *channel = sim_new(context, sizeof *channel);
	*channel = (struct neap_verbs_channel){.context = context};
	sim_signal_begin(&channel->signal, context->sim, context->process);
	context->users++;
	*channel_p = channel;
	return 0;
}

static int destroy_channel(struct neap_verbs_channel *channel)
{
	if (channel->users)
		return -EBUSY;
	sim_signal_end(&channel->signal, channel->context->sim);
	channel->context->users--;
	sim_delete(channel->context->sim, channel);
	return 0;
}

static int channel_fd(struct neap_verbs_channel *channel)
{
	return channel->signal.fd;
}

static int take_wakeups(struct neap_verbs_channel *channel)
{
	sim_signal_take(&channel->signal);
	int taken = (int)channel->wakeups;
	channel->wakeups = 0;
	return taken;
}

static int create_cq(struct neap_verbs_context *context, uint32_t entries, struct neap_verbs_channel *channel, struct neap_verbs_cq **cq_p)
{
	int error = context->lost ? -EIO : sim_fails(context->sim, SIM_CREATE_CQ);
	if (!error && (entries == 0 || entries > context->device->limits.cqe_max))
		error = -EINVAL;
	*cq_p = NULL;
	if (error)
		return error;
	struct neap_verbs_cq *cq = sim_new(context, sizeof *cq);
	entries -= entries > 1 && context->sim->mistake == SIM_MISTAKE_small_queue;
	*cq = (struct neap_verbs_cq){.context = context, .channel = channel, .capacity = entries, .ring = sim_room(context, entries * sizeof *cq->ring)};
	context->users++;
	if (channel)
		channel->users++;
	*cq_p = cq;
	return 0;
}

static int destroy_cq(struct neap_verbs_cq *cq)
{
	if (cq->users)
		return -EBUSY;
	if (cq->channel)
		cq->channel->users--;
	cq->context->users--;
	sim_delete(cq->context->sim, cq->ring);
	sim_delete(cq->context->sim, cq);
	return 0;
}

static int arm_cq(struct neap_verbs_cq *cq)
{
	cq->armed = true;
	return cq->channel ? 0 : -EINVAL;
}

static int poll_cq(struct neap_verbs_cq *cq, struct neap_verbs_completion *completions, uint32_t max)
{
	int count = 0;
	while (cq->count && (uint32_t)count < max) {
		completions[count++] = cq->ring[cq->head];
		cq->head = (cq->head + 1) % cq->capacity;
		cq->count--;
	}
	return count;
}

static void wake(struct neap_verbs_cq *cq)
{
	if (!cq->armed || !cq->channel)
		return;
	cq->armed = false;
	cq->channel->wakeups++;
	sim_signal_raise(&cq->channel->signal);
}

void sim_complete(struct neap_verbs_qp *qp, uint64_t id, enum neap_verbs_status status, uint32_t length)
{
	struct neap_verbs_cq *cq = qp->cq;
	if (cq->count == cq->capacity) {
		cq->context->sim->overruns++;
		sim_verbs_event(cq->context->device, (struct neap_verbs_event){.kind = NEAP_VERBS_CQ_ERROR});
		return;
	}
	cq->ring[(cq->head + cq->count++) % cq->capacity] = (struct neap_verbs_completion){id, status, qp->number, length};
	wake(cq);
}

/* What a QP that goes away takes along. */
static void drop_completions(struct neap_verbs_qp *qp)
{
	struct neap_verbs_cq *cq = qp->cq;
	uint32_t kept = 0;
	for (uint32_t i = 0; i < cq->count; i++) {
		struct neap_verbs_completion completion = cq->ring[(cq->head + i) % cq->capacity];
		if (completion.qp_number != qp->number)
			cq->ring[(cq->head + kept++) % cq->capacity] = completion;
	}
	cq->count = kept;
	qp->send_count = qp->receive_count = 0;
}

/* --- queue pairs */

static int create_qp(struct neap_verbs_pd *pd, const struct neap_verbs_qp_options *options, struct neap_verbs_qp **qp_p, uint32_t *number_p)
{
	struct sim_verbs *sim = pd->context->sim;
	int error = pd->context->lost ? -EIO : sim_fails(sim, SIM_CREATE_QP);
	if (!error && (options->send_max > SIM_QUEUE_MAX || options->receive_max > SIM_QUEUE_MAX || options->cq->context != pd->context))
		error = -EINVAL;
	*qp_p = NULL;
	if (error)
		return error;
	struct neap_verbs_qp *qp = sim_new(pd->context, sizeof *qp);
	*qp = (struct neap_verbs_qp){.next = sim->qps, .pd = pd, .cq = options->cq, .number = sim->next_qp++, .send_max = options->send_max,
	                             .receive_max = options->receive_max};
	qp->sends = sim_room(pd->context, (options->send_max + 1u) * sizeof *qp->sends);
	qp->receives = sim_room(pd->context, (options->receive_max + 1u) * sizeof *qp->receives);
	sim->qps = qp;
	pd->users++;
	qp->cq->users++;
	*qp_p = qp;
	*number_p = qp->number;
	return 0;
}

/* The moves of a reliable connection; RESET and ERR are always allowed. */
static bool may_move(enum neap_verbs_qp_state from, enum neap_verbs_qp_state to)
{
	return to == NEAP_QP_RESET || to == NEAP_QP_ERR || (from == NEAP_QP_RESET && to == NEAP_QP_INIT) ||
	       (from == NEAP_QP_INIT && (to == NEAP_QP_INIT || to == NEAP_QP_RTR)) || (from == NEAP_QP_RTR && to == NEAP_QP_RTS);
}

static void take_attributes(struct neap_verbs_qp *qp, const struct neap_verbs_qp_change *change)
{
	struct neap_verbs_qp_change merged = *change;
	if (change->to == NEAP_QP_RTR)
		merged.access = qp->attributes.access;
	if (change->to == NEAP_QP_RTS) {
		merged = qp->attributes;
		merged.timeout = change->timeout;
		merged.retry_count = change->retry_count;
		merged.rnr_retry = change->rnr_retry;
		merged.reads_max = change->reads_max;
		merged.send_psn = change->send_psn;
	}
	qp->attributes = merged;
}

/* "state" is a word of machines; this one is the QP's. */
static void set_qp_state(struct neap_verbs_qp *qp, enum neap_verbs_qp_state to)
{
	enum neap_verbs_qp_state *place = &qp->state;
	*place = to;
}

void sim_qp_fails(struct neap_verbs_qp *qp)
{
	sim_strays_catch(qp);
	set_qp_state(qp, NEAP_QP_ERR);
	for (; qp->receive_count; qp->receive_count--)
		sim_complete(qp, qp->receives[qp->receive_head++ % qp->receive_max].id, NEAP_WC_FLUSHED, 0);
	sim_network_wake(sim_of(qp));
}

static bool is_v4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	return memcmp(gid, mapped, sizeof mapped) == 0;
}

/* From an address of one family none of the other is reached. */
static bool may_reach(const struct sim_device *device, const struct neap_verbs_qp_change *change)
{
	for (uint32_t i = 0; i < device->gid_count; i++)
		if (device->gids[i].index == change->gid_index)
			return !(device->gids_refused >> change->gid_index & 1) && is_v4(device->gids[i].gid) == is_v4(change->peer_gid);
	return false;
}

static int modify_qp(struct neap_verbs_qp *qp, const struct neap_verbs_qp_change *change)
{
	int error = sim_fails(sim_of(qp), SIM_MODIFY_QP);
	if (!error && !may_move(qp->state, change->to))
		error = -EINVAL;
	if (!error && change->to == NEAP_QP_RTR && change->mtu_bytes > qp->pd->context->device->port.mtu_bytes)
		error = -EINVAL;
	if (!error && change->to == NEAP_QP_RTR && !may_reach(qp->pd->context->device, change))
		error = -EINVAL;
	if (error)
		return error;
	if (change->to == NEAP_QP_ERR) {
		sim_strays_leave(qp);
		qp->lingers = qp->state == NEAP_QP_RTS && qp->send_count > 0;
		sim_qp_fails(qp);
		return 0;
	}
	if (change->to == NEAP_QP_RESET) {
		sim_network_settle(sim_of(qp), NULL, qp);
		drop_completions(qp);
	} else {
		take_attributes(qp, change);
	}
	set_qp_state(qp, change->to);
	return 0;
}

static int query_qp(struct neap_verbs_qp *qp, enum neap_verbs_qp_state *state_p)
{
	*state_p = qp->state;
	return 0;
}

static int destroy_qp(struct neap_verbs_qp *qp)
{
	struct sim_verbs *sim = sim_of(qp);
	struct neap_verbs_qp **at = &sim->qps;
	int error = sim_fails(sim, SIM_DESTROY_QP);
	if (error)
		return error;
	sim_strays_leave(qp);
	sim_network_settle(sim, NULL, qp);
	sim_mistake_keep_half(qp);
	while (*at && *at != qp)
		at = &(*at)->next;
	if (*at) /* its process lives */
		*at = qp->next;
	drop_completions(qp);
	qp->pd->users--;
	qp->cq->users--;
	sim_delete(sim, qp->sends);
	sim_delete(sim, qp->receives);
	sim_delete(sim, qp);
	return 0;
}

/* Stopped here, it knows nothing of it: its next turn comes when it goes on. */
static uint64_t perhaps_stop(struct sim_process *process, const struct neap_verbs_send *send)
{
	uint64_t now_ns = sim_now(process->sim);
	bool counts = process->stop_in && send->opcode == NEAP_VERBS_WRITE && send->length > 0;
	if (counts && --process->stop_in == 0) {
		process->posts_at_ns = now_ns + process->stop_ns;
		process->stopped(process->user, process->stop_ns);
	}
	return process->posts_at_ns > now_ns ? process->posts_at_ns : 0;
}

static int post_one(struct neap_verbs_qp *qp, const struct neap_verbs_send *send)
{
	int error = sim_fails(sim_of(qp), SIM_POST_SEND);
	if (error)
		return error;
	if (qp->state < NEAP_QP_RTS || qp->pd->context->process->dead)
		return -EINVAL;
	if (qp->send_count - (qp->send_count && sim_head(qp)->completed) == qp->send_max) {
		sim_of(qp)->refused_sends++;
		return -ENOMEM;
	}
	if (sim_mistake_take_check(qp, send))
		return 0;
	struct sim_send *slot = &qp->sends[(qp->send_head + qp->send_count++) % (qp->send_max + 1)];
	*slot = (struct sim_send){.what = *send};
	slot->due_ns = slot->posted_ns = perhaps_stop(qp->pd->context->process, send);
	return 0;
}

static int post_send(struct neap_verbs_qp *qp, const struct neap_verbs_send *sends, uint32_t count, uint32_t *posted_p)
{
	int error = 0;
	*posted_p = 0;
	while (*posted_p < count && !error) {
		error = post_one(qp, &sends[*posted_p]);
		if (!error)
			++*posted_p;
	}
	sim_network_wake(sim_of(qp));
	return error;
}

static int post_receive(struct neap_verbs_qp *qp, const struct neap_verbs_receive *receive)
{
	if (qp->state == NEAP_QP_RESET)
		return -EINVAL;
	if (qp->receive_count == qp->receive_max)
		return -ENOMEM;
	if (qp->state == NEAP_QP_ERR)
		sim_complete(qp, receive->id, NEAP_WC_FLUSHED, 0);
	else
		qp->receives[(qp->receive_head + qp->receive_count++) % qp->receive_max] = *receive;
	return 0;
}

const struct neap_verbs_ops sim_queue_ops = {
	.create_channel = create_channel,
	.destroy_channel = destroy_channel,
	.channel_fd = channel_fd,
	.take_wakeups = take_wakeups,
	.create_cq = create_cq,
	.destroy_cq = destroy_cq,
	.arm_cq = arm_cq,
	.poll_cq = poll_cq,
	.create_qp = create_qp,
	.modify_qp = modify_qp,
	.query_qp = query_qp,
	.destroy_qp = destroy_qp,
	.post_send = post_send,
	.post_receive = post_receive,
};
