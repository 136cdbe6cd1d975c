/* Fences against a whole peer: for memory that a device does not let go of. Destroying a queue pair waits for the packets that hold it
 * (fences.md 1); ERR alone does not.
 *
 * The peer is told of each that is destroyed. Else it would find out path by path, each time by silence, which may take longer than a
 * lease: then the grant that it could not use ends without word, and that fences the peer again, with all that it has connected
 * meanwhile. */
#include "transports/rdma/endpoint_inside.h"
#include <string.h>

static bool is_of(const struct rdma_endpoint *endpoint, const uint8_t instance[16])
{
	if (endpoint->peer.known)
		return endpoint->peer.is_neap && memcmp(endpoint->peer.instance, instance, sizeof endpoint->peer.instance) == 0;
	if (endpoint->has_target && endpoint->target.is_neap)
		return memcmp(endpoint->target.instance, instance, sizeof endpoint->target.instance) == 0;
	return true; /* nobody knows yet */
}

static bool has_queue_pairs(const struct rdma_endpoint *endpoint)
{
	switch (endpoint->base.machine.state) {
	case rdma_endpoint_IDLE:
	case rdma_endpoint_SUCCEEDING:
	case rdma_endpoint_FENCING:
	case rdma_endpoint_GONE: return false;
	default: return true;
	}
}

static bool is_done(const struct neap_rdma_endpoints *endpoints, const struct neap_rdma_fence *fence)
{
	const struct rdma_endpoint *endpoint;
	uint32_t index = 0;
	while ((endpoint = neap_pool_next(&endpoints->pool, &index)) != NULL)
		if (endpoint->fences_before < fence->number && has_queue_pairs(endpoint) && is_of(endpoint, fence->instance))
			return false;
	return true;
}

/* Costs a look at each endpoint for each fence under way: there are hardly ever any. */
void rdma_fences_run(struct neap_ready *ready)
{
	struct neap_rdma_endpoints *endpoints =
		(struct neap_rdma_endpoints *)(void *)((char *)ready - offsetof(struct neap_rdma_endpoints, fences_due));
	struct neap_rdma_fence **at = &endpoints->fences, *due = NULL;
	while (*at && !endpoints->stray) {
		struct neap_rdma_fence *fence = *at;
		if (!is_done(endpoints, fence)) {
			at = &fence->next;
			continue;
		}
		*at = fence->next;
		fence->next = due;
		due = fence;
	}
	for (struct neap_rdma_fence *next; due; due = next) {
		next = due->next;
		due->done(due);
	}
}

void rdma_fences_look(struct neap_rdma_endpoints *endpoints)
{
	if (endpoints->fences)
		neap_ready_again(endpoints->reactor, &endpoints->fences_due);
}

void neap_rdma_endpoints_fence(struct neap_rdma_endpoints *endpoints, struct neap_rdma_fence *fence)
{
	struct rdma_endpoint *endpoint;
	uint32_t index = 0;
	fence->number = ++endpoints->fences_ever;
	fence->next = endpoints->fences;
	endpoints->fences = fence;
	while ((endpoint = neap_pool_next(&endpoints->pool, &index)) != NULL)
		if (is_of(endpoint, fence->instance)) {
			endpoint->base.wants_fence = true;
			rdma_endpoint_fail(endpoint, NEAP_CAUSE_GRANT_REFUSED, "a grant of the peer's ended, and nothing else fences its memory");
		}
	rdma_fences_look(endpoints);
	neap_reactor_touch(endpoints->reactor);
}

uint32_t neap_rdma_endpoints_fences(const struct neap_rdma_endpoints *endpoints)
{
	return endpoints->fences_ever;
}
