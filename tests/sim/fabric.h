/* Devices of a simulated cluster: one network of simulated verbs for all nodes, a process on it ("seat") for each incarnation of a node, with a
 * topology and a helper of its own, what goes wrong with devices, and what must be whole in the end. Worlds stand on it: te_rdma.c,
 * st_rdma.c. */
#ifndef NEAP_SIM_FABRIC_H
#define NEAP_SIM_FABRIC_H

#include "tests/sim/sim.h"
#include "tests/support/sim_helper.h"
#include "tests/support/sim_verbs.h"
#include <neap/engine.h>

#define SIM_FABRIC_HOSTS_MAX 8u

struct neap_rdma;

/* What may go wrong, and how often it did. */
struct sim_fabric_faults {
	bool port, device, cable; /* ports go down, devices fail or vanish, nothing passes between two of them */
	bool calls, helper;       /* calls to verbs fail, or are not answered for a while */
	bool retire;              /* connections are torn down by their owners */
	bool late;                /* completions come late, and packets later */
};

struct sim_fabric_seen {
	uint64_t port_down, device_lost, cable_cut, call_failed, helper_stalled, connections_retired;
};

/* Adds it to the counters of a world, which have the same names. */
#define SIM_FABRIC_COUNT(sometimes, fabric)                                      \
	do {                                                                         \
		(sometimes)->stray_landed += (fabric)->verbs.strays_landed;              \
		(sometimes)->stray_refused += (fabric)->verbs.strays_refused;            \
		(sometimes)->port_down += (fabric)->seen.port_down;                      \
		(sometimes)->device_lost += (fabric)->seen.device_lost;                  \
		(sometimes)->cable_cut += (fabric)->seen.cable_cut;                      \
		(sometimes)->call_failed += (fabric)->seen.call_failed;                  \
		(sometimes)->helper_stalled += (fabric)->seen.helper_stalled;            \
		(sometimes)->connections_retired += (fabric)->seen.connections_retired;  \
	} while (0)

struct sim_seat;
struct sim_fabric {
	struct sim *sim;
	struct sim_verbs verbs;
	struct sim_verbs_clock clock;
	bool armed, healed;
	uint64_t armed_ns, sequence;
	uint32_t destroys_failed;
	uint32_t first[SIM_FABRIC_HOSTS_MAX], count[SIM_FABRIC_HOSTS_MAX]; /* devices of each host */
	struct sim_fabric_seen seen;
	struct sim_seat *seats;
};

/* What an incarnation of a node has of it. It outlives the engine: it goes with the fabric. */
struct sim_seat {
	struct sim_seat *next;
	struct sim_fabric *fabric;
	struct sim_process process;
	struct sim_helper helper;
	struct neap_topology *topology;
	struct sim_node *node; /* whose turns its devices wake */
	uint32_t devices;
};

/* Before the nodes. Each host has `devices_min` to `devices_max` devices. It has sim->user and sim->descriptor_ready. */
struct sim_fabric *sim_fabric_new(struct sim *sim, uint32_t hosts, uint32_t devices_min, uint32_t devices_max);
/* When all engines are gone: says what is left over, or NULL, in `why`. */
const char *sim_fabric_left(const struct sim_fabric *fabric, char *why, size_t why_size);
void sim_fabric_free(struct sim_fabric *fabric);

struct sim_seat *sim_seat_new(struct sim_fabric *fabric, uint32_t host, struct sim_node *node);
/* The process dies, or is about to be finished apart from the world. */
void sim_seat_kill(struct sim_seat *seat);
/* The system answers from now on: closing waits for that. */
void sim_seat_let_go(struct sim_seat *seat);
/* neap_engine_create over these devices; options->protocol is the caller's. */
int sim_seat_make_engine(struct sim_seat *seat, struct neap_engine **engine_p, struct neap_engine_options *options, char *why,
                         size_t why_size);
/* The transport of an engine that has been made so. NULL: it has none, for want of memory when it began, or it ends. */
struct neap_rdma *sim_seat_transport(const struct neap_engine *engine);

/* One thing of seven goes wrong, if it may. `seat` NULL: the node is not up; `engine` NULL: nothing can be asked of it now. */
void sim_fabric_fault(struct sim_fabric *fabric, const struct sim_fabric_faults *may, struct sim_seat *seat,
                      const struct neap_engine *engine);
/* One of them, for that long. */
void sim_fabric_port_down(struct sim_fabric *fabric, uint32_t device, uint64_t ns);
void sim_fabric_device_gone(struct sim_fabric *fabric, uint32_t device, uint64_t ns);
void sim_fabric_cut(struct sim_fabric *fabric, uint32_t a, uint32_t b, uint64_t ns);
void sim_fabric_helper_stalls(struct sim_fabric *fabric, struct sim_seat *seat, uint64_t ns);
void sim_fabric_heal(struct sim_fabric *fabric);
/* Long enough after that for devices to have been tried again. NULL: it has all its devices, and they have its memory. */
const char *sim_seat_healed(const struct sim_seat *seat, const struct neap_engine *engine, char *why, size_t why_size);
/* Nothing is asked for any more. NULL: nothing is under way either. */
const char *sim_seat_idle(const struct neap_engine *engine, char *why, size_t why_size);
uint64_t sim_seat_posted(const struct neap_engine *engine); /* pieces */

#endif
