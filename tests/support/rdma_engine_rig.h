/* Engines with the RDMA transport over one network of simulated verbs, usually two, on one reactor in virtual time. Their TCP and their
 * handshakes are real, over loopback; so virtual time goes on in steps of a millisecond at most.
 *
 *     rdma_engine_rig_begin(&rig, 2);                        two devices, rxe0 and rxe1
 *     rdma_engine_rig_start(&rig, 0, 1u << 0, NULL);         engine 0 has rxe0
 *     rdma_engine_rig_start(&rig, 1, 1u << 1, NULL);
 *     region = rdma_engine_rig_register(&rig, 1, memory, sizeof memory, NEAP_OPEN);
 *     segment = rdma_engine_rig_open(&rig, 0);               the other's
 *     ...
 *     rdma_engine_rig_end(&rig);                             closes, and finds what was left
 */
#ifndef SUPPORT_RDMA_ENGINE_RIG_H
#define SUPPORT_RDMA_ENGINE_RIG_H

#include "tests/support/sim_helper.h"
#include "tests/support/sim_verbs.h"
#include "transports/engine_state.h"
#include "transports/rdma/rdma_inside.h"

#define RDMA_RIG_MS UINT64_C(1000000)
#define RDMA_RIG_ENGINES 17u

struct rdma_engine_rig_side {
	struct neap_engine *engine; /* NULL: not started, or closed */
	struct neap_topology *topology;
	struct sim_helper helper;
	bool closed;
};

struct rdma_engine_rig {
	struct neap_reactor *reactor;
	uint64_t now_ns, idle_steps;
	struct sim_verbs sim;
	struct sim_device *devices[SIM_DEVICES_MAX];
	uint32_t device_count;
	struct rdma_engine_rig_side sides[RDMA_RIG_ENGINES];
	char log[16384];         /* warnings and errors, a line each */
	uint32_t fail_allocation; /* 0: none; n: the n-th from now fails, once */
	char why[320];
};

/* Devices rxe0 and so on, each with an ACTIVE port; rxeN is on NUMA node N. */
void rdma_engine_rig_begin(struct rdma_engine_rig *rig, uint32_t devices);
/* Engine `which` with the devices whose bits are set, after which a second passes: its devices are looked at. `options` may be NULL; zeroes
 * are those of a small engine, protocol "rdma". */
void rdma_engine_rig_start(struct rdma_engine_rig *rig, uint32_t which, uint32_t devices, const struct neap_engine_options *options);
/* The same without expectations and without a turn. */
int rdma_engine_rig_try(struct rdma_engine_rig *rig, uint32_t which, uint32_t devices, const struct neap_engine_options *options);
/* What remains is closed. Finds what was left, in verbs and in memory. */
void rdma_engine_rig_end(struct rdma_engine_rig *rig);
/* Closes it and lets time pass until it is. */
void rdma_engine_rig_close(struct rdma_engine_rig *rig, uint32_t which);
/* It began to close by itself, or the test called neap_engine_close with rdma_engine_rig_closed and the side. */
void rdma_engine_rig_closed(void *side);

void rdma_engine_rig_turns(struct rdma_engine_rig *rig);             /* until nothing is left for this moment */
void rdma_engine_rig_pass(struct rdma_engine_rig *rig, uint64_t ns); /* virtual time */
/* Time passes until the flag is set, at most so long. */
bool rdma_engine_rig_until(struct rdma_engine_rig *rig, const bool *flag, uint64_t ns);

/* The transport of an engine, which must have RDMA. */
struct neap_rdma *rdma_engine_rig_of(const struct rdma_engine_rig *rig, uint32_t which);
/* Registers, and waits until it has settled with NEAP_OK. */
neap_region_id rdma_engine_rig_register(struct rdma_engine_rig *rig, uint32_t which, void *address, uint64_t length,
                                        enum neap_access access);
/* How it settled, and rig->why. */
int rdma_engine_rig_settle(struct rdma_engine_rig *rig, uint32_t which, neap_region_id region);
/* Opens the other engine's segment, of the first two; or that of `whose`. */
neap_segment_id rdma_engine_rig_open(struct rdma_engine_rig *rig, uint32_t which);
neap_segment_id rdma_engine_rig_open_of(struct rdma_engine_rig *rig, uint32_t which, uint32_t whose);
/* What peers read of it: neap_descriptor_free. */
struct neap_descriptor *rdma_engine_rig_describe(struct rdma_engine_rig *rig, uint32_t which);
/* How often it was said. */
uint32_t rdma_engine_rig_logged(const struct rdma_engine_rig *rig, const char *part);

#endif
