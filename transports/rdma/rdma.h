/* The RDMA transport: what an engine has when options.protocol says "rdma" or "auto". It has a TCP transport inside, which serves peers
 * without devices and carries what devices cannot: requests under a grant without keys, requests from memory that is not
 * registered, and all of it while no device can be used.
 *
 * The usual maker is neap_rdma_transport_create (transports/transport.h). This one takes its surroundings from the caller, so that tests
 * and the simulation run the same code over simulated verbs. */
#ifndef NEAP_TRANSPORTS_RDMA_RDMA_H
#define NEAP_TRANSPORTS_RDMA_RDMA_H

#include "reactor/helper.h"
#include "transports/rdma/verbs.h"
#include "transports/transport.h"

/* NULL: the system's. What is given is the caller's and must last until the engine is closed; each engine needs a topology of its own,
 * because devices that come and go are noted in it. A simulated reactor has no system: without surroundings it has TCP alone. */
struct neap_rdma_surroundings {
	const struct neap_verbs *verbs;
	struct neap_topology *topology; /* given: topology_file and device_filter do not count */
	struct neap_helper *helper;     /* with room for neap_rdma_jobs_max */
};

/* As neap_rdma_transport_create. */
int neap_rdma_transport_create_in(struct neap_transport **transport_p, struct neap_engine *engine,
                                  const struct neap_rdma_surroundings *surroundings, char *why, size_t why_size);

/* Tears down every connection in a proper way; what is under way is repeated over new ones. For tests. */
void neap_rdma_transport_retire_endpoints(struct neap_transport *transport);

/* Jobs that the transport of an engine may have under way. */
uint32_t neap_rdma_jobs_max(const struct neap_engine_options *options, uint32_t devices);

#endif
