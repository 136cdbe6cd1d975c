/* Who waits for room: more paths are wanted than there may be endpoints. They take turns: two lines for each device, ours and the peers'
 * (endpoint_guests.c), all of them served in turn. Ours are embedded in their owners, which are bounded; what they wait for is bounded by
 * stay_ns and by what bounds the sends of those that are there. */
#include "transports/rdma/endpoint_inside.h"

#define SERVED_AT_ONCE 64u
#define LOOKED_AT_MAX 512u
#define STAY_FACTOR 2u     /* times as long as connecting took, */
#define STAY_FACTOR_MAX 4u /* but at most this many times stay_ns */
#define CROWD_NS UINT64_C(60000000000) /* between two lines of the log */

/* --- in and out ----------------------------------------------------------------------------------------------------------------- */

static void say_crowded(struct neap_rdma_endpoints *endpoints, const struct neap_rdma_queue *queue)
{
	uint64_t now_ns = neap_now(endpoints->reactor);
	if (endpoints->crowd_ns && now_ns < endpoints->crowd_ns + CROWD_NS)
		return;
	endpoints->crowd_ns = now_ns;
	neap_log(endpoints->reactor, NEAP_LOG_WARNING, "rdma",
	         "%s: more connections are wanted than there is room for, and they take turns: rdma.endpoints_max (MC_MAX_EP_PER_CTX) is %u, "
	         "and the device has %u queue pairs",
	         queue->device->name, endpoints->options.endpoints_max, queue->device->handle.limits.qp_max);
}

void rdma_line_join(struct neap_rdma_line *line, const struct rdma_place *place, struct neap_rdma_endpoint_user *user)
{
	struct neap_rdma_endpoints *endpoints = line->endpoints;
	user->line = line;
	user->next = NULL;
	user->slot = line->last;
	*line->last = user;
	line->last = &user->next;
	line->count++;
	endpoints->waiting++;
	say_crowded(endpoints, place->queue);
	rdma_line_look(endpoints);
	neap_reactor_touch(endpoints->reactor);
}

void neap_rdma_endpoint_wait(struct neap_rdma_endpoints *endpoints, struct neap_rdma_queue *queue, struct neap_rdma_endpoint_user *user)
{
	struct rdma_place *place = rdma_place_of(endpoints, queue);
	rdma_line_join(&place->line, place, user);
}

void rdma_line_leave(struct neap_rdma_endpoint_user *user)
{
	struct neap_rdma_line *line = user->line;
	*user->slot = user->next;
	if (user->next)
		user->next->slot = user->slot;
	else
		line->last = user->slot;
	user->slot = NULL;
	user->line = NULL;
	line->count--;
	line->endpoints->waiting--;
	rdma_line_look(line->endpoints);
}

/* --- making room ---------------------------------------------------------------------------------------------------------------- */

/* Longer where connecting takes long: else most of the time would go by in it. */
static uint64_t stay_of(const struct rdma_endpoint *endpoint)
{
	uint64_t least_ns = endpoint->base.endpoints->options.stay_ns, most_ns = STAY_FACTOR_MAX * least_ns;
	uint64_t wanted_ns = STAY_FACTOR * (endpoint->usable_ns - endpoint->begun_ns);
	return wanted_ns < least_ns ? least_ns : wanted_ns < most_ns ? wanted_ns : most_ns;
}

uint64_t rdma_may_go_ns(const struct rdma_endpoint *endpoint)
{
	const struct neap_rdma_endpoint_options *options = &endpoint->base.endpoints->options;
	uint64_t stayed_ns = endpoint->usable_ns + stay_of(endpoint), rested_ns = endpoint->progressed_ns + options->idle_ns;
	if (!endpoint->base.usable)
		return UINT64_MAX;
	bool rests = endpoint->base.owed == 0 && endpoint->progressed_ns > 0; /* and was used at all */
	return rests && rested_ns < stayed_ns ? rested_ns : stayed_ns;
}

static void line_timer_due(struct neap_timer *timer, void *user)
{
	(void)timer;
	rdma_line_look(user);
}

/* Its room would be somebody's. */
static bool helps(const struct rdma_endpoint *endpoint)
{
	const struct neap_rdma_endpoints *endpoints = endpoint->base.endpoints;
	return endpoints->staying >= endpoints->options.endpoints_max || endpoint->place->line.first ||
	       endpoint->place->guests.first;
}

static void yield(struct rdma_endpoint *endpoint)
{
	endpoint->base.endpoints->yielding += !endpoint->yields;
	endpoint->yields = true;
	if (endpoint->base.owed == 0)
		rdma_endpoint_makes_room(endpoint, "others that wait");
}

/* As many as wait, of those that have had their time, the eldest first. */
static void ask_for_room(struct neap_rdma_endpoints *endpoints)
{
	uint32_t wanted = endpoints->waiting, looked = 0;
	uint64_t now_ns = neap_now(endpoints->reactor), next_ns = UINT64_MAX;
	struct rdma_endpoint *newer;
	for (struct rdma_endpoint *endpoint = endpoints->oldest; endpoint && wanted > 0 && looked < LOOKED_AT_MAX; endpoint = newer, looked++) {
		uint64_t at_ns = rdma_may_go_ns(endpoint);
		newer = endpoint->newer;
		if (!helps(endpoint))
			continue;
		if (at_ns <= now_ns)
			yield(endpoint);
		else if (at_ns < next_ns)
			next_ns = at_ns;
		wanted -= at_ns <= now_ns;
	}
	if (next_ns != UINT64_MAX)
		(void)neap_timer_start(endpoints->reactor, &endpoints->line_timer, next_ns, line_timer_due, endpoints);
}

/* Nobody waits any more: those that were to make room are posted to again. */
static void relent(struct neap_rdma_endpoints *endpoints)
{
	for (struct rdma_endpoint *endpoint = endpoints->oldest; endpoint && endpoints->yielding > 0; endpoint = endpoint->newer) {
		if (!endpoint->yields)
			continue;
		endpoints->yielding--;
		endpoint->yields = false;
		endpoint->news_room = true;
		rdma_endpoint_tell_later(endpoint);
	}
}

/* --- turns ---------------------------------------------------------------------------------------------------------------------- */

static struct neap_rdma_endpoint_user *first_of(const struct rdma_place *place)
{
	const struct neap_rdma_line *line = place->guests_next ? &place->guests : &place->line;
	const struct neap_rdma_line *other = place->guests_next ? &place->line : &place->guests;
	return line->first ? line->first : other->first;
}

/* Where nothing can be had any more they hear it by trying. */
static bool serve(struct neap_rdma_endpoints *endpoints, struct rdma_place *place)
{
	struct neap_rdma_endpoint_user *user = first_of(place);
	if (!user || (place->queue->usable && !endpoints->closing && !rdma_has_room(endpoints, place)))
		return false;
	place->guests_next = user->line == &place->line;
	rdma_line_leave(user);
	endpoints->served = user;
	user->told(user, NEAP_RDMA_TURN);
	endpoints->served = NULL;
	return true;
}

static bool serve_next(struct neap_rdma_endpoints *endpoints)
{
	for (uint32_t i = 0; i < endpoints->place_count; i++) {
		uint32_t at = (endpoints->turn + i) % endpoints->place_count;
		if (!serve(endpoints, &endpoints->places[at]))
			continue;
		endpoints->turn = at + 1;
		return true;
	}
	return false;
}

void rdma_line_run(struct neap_ready *ready)
{
	struct neap_rdma_endpoints *endpoints =
		(struct neap_rdma_endpoints *)(void *)((char *)ready - offsetof(struct neap_rdma_endpoints, line_due));
	uint32_t left = SERVED_AT_ONCE;
	while (left > 0 && serve_next(endpoints))
		left--;
	if (left == 0)
		rdma_line_look(endpoints);
	else if (endpoints->waiting > 0)
		ask_for_room(endpoints);
	else
		relent(endpoints);
}
