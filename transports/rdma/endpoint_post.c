/* Sends and their completions: how many there is room for, over which queue pairs they go, and whether any comes back. */
#include "transports/rdma/endpoint_inside.h"

/* --- room ----------------------------------------------------------------------------------------------------------------------- */

static uint32_t room_of(const struct neap_rdma_endpoint *base)
{
	uint64_t own = (uint64_t)base->qp_count * base->depth - base->owed;
	uint32_t entries = base->queue->entries - base->queue->owed;
	if (!base->usable)
		return 0;
	return own < entries ? (uint32_t)own : entries;
}

static void starve(struct rdma_endpoint *endpoint)
{
	if (endpoint->starving || !endpoint->base.usable)
		return;
	endpoint->starving = true;
	endpoint->next_starving = endpoint->place->starving;
	endpoint->place->starving = endpoint;
}

void rdma_starve_end(struct rdma_endpoint *endpoint)
{
	struct rdma_endpoint **at = &endpoint->place->starving;
	if (!endpoint->starving)
		return;
	while (*at != endpoint)
		at = &(*at)->next_starving;
	*at = endpoint->next_starving;
	endpoint->starving = false;
}

uint32_t neap_rdma_endpoint_room(struct neap_rdma_endpoint *base)
{
	struct rdma_endpoint *endpoint = (struct rdma_endpoint *)(void *)base;
	uint32_t room = endpoint->yields ? 0 : room_of(base);
	if (room == 0 && !endpoint->yields)
		starve(endpoint);
	return room;
}

/* Entries of the queue serve everybody on it: all that have room now are told. */
static void feed(struct rdma_place *place)
{
	struct rdma_endpoint **at = &place->starving;
	while (*at) {
		struct rdma_endpoint *endpoint = *at;
		if (room_of(&endpoint->base) == 0) {
			at = &endpoint->next_starving;
			continue;
		}
		*at = endpoint->next_starving;
		endpoint->starving = false;
		endpoint->news_room = true;
		rdma_endpoint_tell_later(endpoint);
	}
}

/* --- posting -------------------------------------------------------------------------------------------------------------------- */

/* How many go to each queue pair: equal parts, as far as they have room, and the rest where there is some. */
static void share(const struct neap_rdma_endpoint *base, uint32_t first, uint32_t count, uint32_t shares[NEAP_RDMA_QPS_MAX])
{
	uint32_t left = count;
	for (uint32_t n = 0; n < base->qp_count; n++) {
		uint32_t i = (first + n) % base->qp_count, fair = (left + base->qp_count - n - 1) / (base->qp_count - n);
		uint32_t room = base->depth - base->qps[i].posted;
		shares[i] = fair < room ? fair : room;
		left -= shares[i];
	}
	for (uint32_t i = 0; i < base->qp_count && left > 0; i++) {
		uint32_t room = base->depth - base->qps[i].posted - shares[i], more = left < room ? left : room;
		shares[i] += more;
		left -= more;
	}
}

static void account(struct rdma_endpoint *endpoint, struct neap_rdma_qp *qp, uint32_t count)
{
	qp->posted += count;
	endpoint->base.owed += count;
}

static void progress_due(struct neap_timer *timer, void *user);

/* The timer looks at the time of the last progress when it fires, so that completions need not move it. */
static void watch_progress(struct rdma_endpoint *endpoint)
{
	struct neap_reactor *reactor = endpoint->base.endpoints->reactor;
	endpoint->progressed_ns = neap_now(reactor);
	if (!neap_timer_active(&endpoint->progress))
		(void)neap_timer_start(reactor, &endpoint->progress,
		                       endpoint->progressed_ns + endpoint->base.endpoints->options.progress_timeout_ns, progress_due, endpoint);
}

static void progress_due(struct neap_timer *timer, void *user)
{
	struct rdma_endpoint *endpoint = user;
	const struct neap_rdma_endpoints *endpoints = endpoint->base.endpoints;
	uint64_t due_ns = endpoint->progressed_ns + endpoints->options.progress_timeout_ns;
	if (endpoint->base.owed == 0)
		return;
	if (neap_now(endpoints->reactor) < due_ns)
		(void)neap_timer_start(endpoints->reactor, timer, due_ns, progress_due, endpoint);
	else
		rdma_endpoint_fail(endpoint, NEAP_CAUSE_NO_PROGRESS, "%s to %s: nothing was done for %llu ms (progress_timeout_ms)",
		                   endpoint->base.queue->device->name, endpoint->base.path,
		                   (unsigned long long)(endpoints->options.progress_timeout_ns / 1000000));
}

uint32_t neap_rdma_endpoint_post(struct neap_rdma_endpoint *base, const struct neap_verbs_send *sends, uint32_t count)
{
	struct rdma_endpoint *endpoint = (struct rdma_endpoint *)(void *)base;
	const struct neap_verbs_ops *ops = base->endpoints->verbs->ops;
	uint32_t shares[NEAP_RDMA_QPS_MAX] = {0}, done = 0, first = endpoint->next_qp;
	uint32_t room = endpoint->yields ? 0 : room_of(base);
	int error = 0;
	if (count > room)
		count = room;
	if (count == 0)
		return 0;
	if (base->owed == 0)
		watch_progress(endpoint);
	endpoint->chances |= 1;
	endpoint->next_qp = (first + 1) % base->qp_count;
	(void)neap_rdma_queue_take(base->queue, count);
	share(base, first, count, shares);
	for (uint32_t n = 0; n < base->qp_count && !error; n++) {
		struct neap_rdma_qp *qp = &base->qps[(first + n) % base->qp_count];
		uint32_t part = shares[(first + n) % base->qp_count], posted = 0;
		if (part > 0)
			error = ops->post_send(qp->qp, sends + done, part, &posted);
		account(endpoint, qp, posted);
		done += posted;
	}
	neap_rdma_queue_give(base->queue, count - done);
	if (error)
		rdma_endpoint_fail(endpoint, NEAP_CAUSE_CONNECT_FAILED, "%s to %s: the device does not take a send: %s", base->queue->device->name,
		                   base->path, rdma_error_text(error));
	else if (room_of(base) == 0)
		starve(endpoint);
	return done;
}

int neap_rdma_endpoint_post_on(struct neap_rdma_endpoint *base, uint32_t qp_number, const struct neap_verbs_send *send)
{
	struct rdma_endpoint *endpoint = (struct rdma_endpoint *)(void *)base;
	struct neap_rdma_qp *qp = NULL;
	uint32_t posted = 0;
	for (uint32_t i = 0; i < base->qp_count; i++)
		if (base->qps[i].number == qp_number)
			qp = &base->qps[i];
	if (!qp || !base->usable)
		return NEAP_ECLOSED;
	if (room_of(base) == 0)
		starve(endpoint);
	if (qp->posted == base->depth || room_of(base) == 0)
		return NEAP_EAGAIN;
	if (base->owed == 0)
		watch_progress(endpoint);
	endpoint->chances |= 1;
	(void)neap_rdma_queue_take(base->queue, 1);
	int error = base->endpoints->verbs->ops->post_send(qp->qp, send, 1, &posted);
	account(endpoint, qp, posted);
	neap_rdma_queue_give(base->queue, 1 - posted);
	if (error)
		rdma_endpoint_fail(endpoint, NEAP_CAUSE_CONNECT_FAILED, "%s to %s: the device does not take a send: %s", base->queue->device->name,
		                   base->path, rdma_error_text(error));
	return error ? NEAP_ECLOSED : NEAP_OK;
}

/* --- completions ---------------------------------------------------------------------------------------------------------------- */

void neap_rdma_endpoint_completed(struct neap_rdma_endpoint *base, uint32_t qp_number)
{
	struct rdma_endpoint *endpoint = (struct rdma_endpoint *)(void *)base;
	if (base->owed == 0) /* its queue pair is destroyed, and the place was given back with it */
		return;
	for (uint32_t i = 0; i < endpoint->made; i++)
		if (base->qps[i].number == qp_number && base->qps[i].posted > 0)
			base->qps[i].posted--;
	base->owed--;
	neap_rdma_queue_give(base->queue, 1);
	endpoint->progressed_ns = neap_now(base->endpoints->reactor);
	if (endpoint->place->starving)
		feed(endpoint->place);
	if (base->owed > 0)
		return;
	rdma_line_look(base->endpoints);
	if (base->machine.state == rdma_endpoint_DRAINING)
		neap_step(&base->machine, rdma_endpoint_on_DRAINED, 0);
}

void rdma_forget_owed(struct rdma_endpoint *endpoint)
{
	struct neap_rdma_endpoint *base = &endpoint->base;
	neap_rdma_queue_give(base->queue, base->owed);
	base->owed = 0;
	for (uint32_t i = 0; i < endpoint->made; i++)
		base->qps[i].posted = 0;
	endpoint->made = 0;
	if (endpoint->place->starving)
		feed(endpoint->place);
}
