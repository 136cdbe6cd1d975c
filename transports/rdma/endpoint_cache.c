/* Which endpoint belongs to a path, and which one makes room for others (SIEVE: new ones come in front, a hand walks from the oldest and
 * takes the first that was not used since it passed). */
#include "metadata/backend.h"
#include "transports/rdma/endpoint_inside.h"
#include <string.h>

#define LOOKED_AT_MAX 512u /* by one search for room; the next one goes on from there */

/* --- places --------------------------------------------------------------------------------------------------------------------- */

struct rdma_place *rdma_place_of(struct neap_rdma_endpoints *endpoints, const struct neap_rdma_queue *queue)
{
	for (uint32_t i = 0; i < endpoints->place_count; i++)
		if (endpoints->places[i].queue == queue)
			return &endpoints->places[i];
	return NULL;
}

struct rdma_place *rdma_place_named(struct neap_rdma_endpoints *endpoints, const char *nic)
{
	for (uint32_t i = 0; i < endpoints->place_count; i++)
		if (strcmp(endpoints->places[i].queue->device->name, nic) == 0)
			return &endpoints->places[i];
	return NULL;
}

static bool has_lost_its_ground(const struct rdma_endpoint *endpoint)
{
	const struct neap_rdma_queue *queue = endpoint->base.queue;
	return !queue->usable || queue->view_changes != endpoint->view_changes;
}

int neap_rdma_endpoints_queue_changed(struct neap_rdma_endpoints *endpoints, struct neap_rdma_queue *queue)
{
	struct rdma_place *place = rdma_place_of(endpoints, queue);
	struct rdma_endpoint *older;
	if (!place && endpoints->place_count == NEAP_DEVICES_MAX)
		return NEAP_ELIMIT;
	if (!place) {
		place = &endpoints->places[endpoints->place_count++];
		place->queue = queue;
		place->line = (struct neap_rdma_line){.last = &place->line.first, .endpoints = endpoints};
		place->guests = (struct neap_rdma_line){.last = &place->guests.first, .endpoints = endpoints};
	}
	for (struct rdma_endpoint *endpoint = endpoints->newest; endpoint; endpoint = older) {
		older = endpoint->older;
		if (endpoint->base.queue == queue && has_lost_its_ground(endpoint))
			rdma_endpoint_fail(endpoint, NEAP_CAUSE_CONNECT_FAILED, "%s: %s", queue->device->name,
			                   queue->usable ? "the device has another address now" : "the device is not usable any more");
	}
	rdma_line_look(endpoints);
	neap_reactor_touch(endpoints->reactor);
	return NEAP_OK;
}

/* --- the map -------------------------------------------------------------------------------------------------------------------- */

static struct rdma_endpoint **bucket_of(const struct neap_rdma_endpoints *endpoints, const struct rdma_place *place, const char *path)
{
	uint64_t hash = neap_backend_hash(path, strlen(path)) + (uint64_t)(place - endpoints->places) * UINT64_C(0x9e3779b97f4a7c15);
	return &endpoints->buckets[(hash ^ hash >> 32) & endpoints->bucket_mask];
}

static struct rdma_endpoint **slot_of(const struct neap_rdma_endpoints *endpoints, const struct rdma_place *place, const char *path)
{
	struct rdma_endpoint **slot = bucket_of(endpoints, place, path);
	while (*slot && ((*slot)->place != place || strcmp((*slot)->base.path, path) != 0))
		slot = &(*slot)->next_of_bucket;
	return slot;
}

struct rdma_endpoint *rdma_map_find(const struct neap_rdma_endpoints *endpoints, const struct rdma_place *place, const char *path)
{
	return *slot_of(endpoints, place, path);
}

static void put_in_slot(struct rdma_endpoint **slot, struct rdma_endpoint *endpoint)
{
	endpoint->next_of_bucket = *slot ? (*slot)->next_of_bucket : NULL;
	*slot = endpoint;
}

void rdma_map_put(struct rdma_endpoint *endpoint)
{
	struct rdma_endpoint **slot = slot_of(endpoint->base.endpoints, endpoint->place, endpoint->base.path);
	endpoint->before = *slot;
	if (*slot)
		(*slot)->after = endpoint;
	put_in_slot(slot, endpoint);
}

void rdma_map_take(struct rdma_endpoint *endpoint)
{
	struct rdma_endpoint *before = endpoint->before, *after = endpoint->after;
	struct rdma_endpoint **slot = slot_of(endpoint->base.endpoints, endpoint->place, endpoint->base.path);
	endpoint->before = endpoint->after = NULL;
	if (before)
		before->after = after;
	if (after)
		after->before = before;
	if (*slot == endpoint && before)
		put_in_slot(slot, before);
	else if (*slot == endpoint)
		*slot = endpoint->next_of_bucket;
	if (after && !before)
		neap_step(&after->base.machine, rdma_endpoint_on_FREE, 0);
}

/* --- the sieve ------------------------------------------------------------------------------------------------------------------ */

void rdma_list_put(struct rdma_endpoint *endpoint)
{
	struct neap_rdma_endpoints *endpoints = endpoint->base.endpoints;
	endpoint->older = endpoints->newest;
	*(endpoint->older ? &endpoint->older->newer : &endpoints->oldest) = endpoint;
	endpoints->newest = endpoint;
	endpoints->staying++;
	endpoint->place->staying++;
}

void rdma_list_take(struct rdma_endpoint *endpoint)
{
	struct neap_rdma_endpoints *endpoints = endpoint->base.endpoints;
	if (endpoints->hand == endpoint)
		endpoints->hand = endpoint->newer;
	*(endpoint->newer ? &endpoint->newer->older : &endpoints->newest) = endpoint->older;
	*(endpoint->older ? &endpoint->older->newer : &endpoints->oldest) = endpoint->newer;
	endpoint->newer = endpoint->older = NULL;
	endpoints->staying--;
	endpoint->place->staying--;
	endpoints->yielding -= endpoint->yields;
	rdma_line_look(endpoints);
}

/* Its peer is told: else it would learn of it by silence, when it next posts. */
void rdma_endpoint_makes_room(struct rdma_endpoint *endpoint, const char *whom)
{
	endpoint->base.wants_fence = true;
	rdma_endpoint_fail(endpoint, NEAP_CAUSE_NONE, "it made room for %s (MC_MAX_EP_PER_CTX)", whom);
}

/* `place`: only of that one; NULL: of any. */
static bool retire_one(struct neap_rdma_endpoints *endpoints, const struct rdma_place *place)
{
	uint64_t now_ns = neap_now(endpoints->reactor);
	uint32_t steps = 4 * endpoints->staying < LOOKED_AT_MAX ? 4 * endpoints->staying : LOOKED_AT_MAX;
	for (; steps > 0; steps--) {
		struct rdma_endpoint *at = endpoints->hand ? endpoints->hand : endpoints->oldest;
		endpoints->hand = at->newer;
		if ((place && at->place != place) || !at->base.usable || at->base.owed || rdma_may_go_ns(at) > now_ns)
			continue;
		if (at->chances) {
			at->chances >>= 1;
			continue;
		}
		rdma_endpoint_makes_room(at, "another one");
		return true;
	}
	return false;
}

/* The device counts queue pairs until they are destroyed; the set counts who stays. */
static bool has_queue_pairs(const struct neap_rdma_endpoints *endpoints, const struct rdma_place *place)
{
	const struct neap_rdma_queue *queue = place->queue;
	return ((uint64_t)queue->users + 1) * endpoints->options.qps <= queue->device->handle.limits.qp_max;
}

bool rdma_has_room(const struct neap_rdma_endpoints *endpoints, const struct rdma_place *place)
{
	return has_queue_pairs(endpoints, place) && endpoints->staying < endpoints->options.endpoints_max &&
	       endpoints->pool.used < endpoints->pool.capacity;
}

bool rdma_admit(struct neap_rdma_endpoints *endpoints, const struct rdma_place *place)
{
	if (!has_queue_pairs(endpoints, place))
		(void)retire_one(endpoints, place);
	else if (endpoints->staying >= endpoints->options.endpoints_max)
		(void)retire_one(endpoints, NULL);
	return rdma_has_room(endpoints, place);
}
