/* Deterministic simulation: virtual time, seeded chance, and whole processes ("nodes") in one real one.
 *
 * A node is a reactor with its own clock, memory, chance and network, driven by neap_reactor_run_at. The seed alone decides a run: all
 * events lie in one heap ordered by (time, sequence), and each purpose (network, faults, workload, hosts) draws from a random stream
 * of its own, so that one more draw in one does not move the others. sim_hash folds every transition; two runs of a seed must agree.
 *
 * docs/SIM.md tells how to replay a seed. */
#ifndef NEAP_SIM_H
#define NEAP_SIM_H

#include "reactor/net.h"

#define SIM_NODES_MAX 64u

struct sim;
struct sim_node;

struct sim_random {
	uint64_t state[4];
};
uint64_t sim_random_next(struct sim_random *random);
uint64_t sim_random_below(struct sim_random *random, uint64_t bound); /* bound > 0 */
bool sim_random_chance(struct sim_random *random, uint32_t per_mille);

/* How the network behaves, drawn from the seed unless a scenario sets it. */
struct sim_net_options {
	uint64_t delay_min_ns, delay_max_ns;  /* of a segment, one way */
	uint32_t segment_max;                 /* bytes a segment carries */
	uint32_t window_min, window_max;      /* receive buffer of an endpoint, bytes */
	uint32_t short_io_per_mille;          /* a read or write is cut short */
	uint32_t cut_per_million;             /* a delivered segment resets its connection */
	uint32_t reset_loses_data_per_mille;  /* data waiting at the receiver is lost when a reset arrives */
};

struct sim_host_options {
	uint64_t latency_max_ns;              /* from readiness to the node's turn */
	uint32_t tiny_budget_per_mille;       /* a turn gets a budget of one event */
	uint32_t spurious_per_mille;          /* an extra wake-up after a turn */
};

enum sim_stream { SIM_NET, SIM_FAULTS, SIM_WORKLOAD, SIM_HOSTS, SIM_STREAMS };

typedef void sim_event_func(struct sim *sim, void *user, uint64_t argument);

struct sim_event {
	uint64_t at_ns, sequence;
	sim_event_func *run;
	void *user;
	uint64_t argument;
};

struct sim {
	uint64_t seed, now_ns, sequence;
	struct sim_random random[SIM_STREAMS];
	struct sim_net_options net;
	struct sim_host_options host;
	struct sim_event *heap;
	size_t heap_count, heap_capacity;
	struct sim_node *nodes[SIM_NODES_MAX];
	uint32_t node_count;
	bool severed[SIM_NODES_MAX][SIM_NODES_MAX]; /* by host number: nothing passes from row to column */
	uint64_t hash, events_run;
	uint64_t connections, cuts, short_ios;
	uint64_t memory_used; /* bytes of address space, since the run began */
	struct sim_connection *connections_list;
	int32_t drift_ppm;       /* of the clocks of nodes to come: how much faster than the world's they run */
	unsigned (*descriptor_ready)(struct neap_net *net, int fd); /* of nodes to come: reactor/net.h. NULL: they watch none */
	uint64_t fail_create_at; /* the allocation of sim_node_create that fails; UINT64_MAX: none */
	void *user;
};

struct sim_node {
	struct neap_net net; /* first: the reactor's options point here */
	struct sim *sim;
	uint32_t number;          /* index in sim->nodes */
	uint32_t host;            /* address 10.0.0.host+1; several nodes (cores, restarts) may share one */
	struct neap_reactor *reactor;
	int32_t drift_ppm;
	bool crashed;             /* its turns never run again; the network refuses it */
	bool paused;
	bool stopped;             /* its reactor was told to stop and has ended */
	uint64_t paused_until_ns;
	bool run_scheduled;
	uint64_t run_at_ns, run_sequence;
	uint64_t last_control_record, last_data_record; /* of the trace, folded into the hash */
	struct sim_random random;
	/* allocation faults: the countdown reaches 0 at the allocation that fails; UINT64_MAX: never */
	uint64_t allocations, fail_allocation_at;
	size_t bytes_allocated;
	struct sim_small *small;
	struct sim_listener *listeners;
	uint16_t next_port;
};

struct sim *sim_create(uint64_t seed);
/* All nodes' reactors must have been destroyed or be destroyable (sim_node_finish). */
void sim_destroy(struct sim *sim);

/* A process on host `host` (0..). Nodes of one host share addresses. Returns NULL when the reactor cannot be made (allocation fault). */
struct sim_node *sim_node_create(struct sim *sim, uint32_t host);
struct neap_reactor *sim_node_reactor(struct sim_node *node);
void sim_node_address(const struct sim_node *node, char *text, size_t size); /* "10.0.0.1" */

/* The process dies: its sockets are closed by its host (`host_dies`: silently, the peers learn nothing until they send to the host
 * again). Its reactor is never run again until sim_node_finish. */
void sim_node_crash(struct sim_node *node, bool host_dies);
/* It stops for a while; its host still takes bytes up to its windows. */
void sim_node_pause(struct sim_node *node, uint64_t ns);
void sim_node_resume(struct sim_node *node);
/* Runs the reactor apart from the world until it can be destroyed, and does so. Returns the bytes that did not come back. */
size_t sim_node_finish(struct sim_node *node, void (*close_all)(struct sim_node *node, void *user), void *user);

/* The same of one that cannot be finished: its memory goes, whatever is in it. */
void sim_node_abandon(struct sim_node *node);

void sim_sever(struct sim *sim, uint32_t host_a, uint32_t host_b, bool one_way);
void sim_heal(struct sim *sim);
/* Somebody in between resets both ends of a connection between the two hosts, chosen by the fault stream. What has arrived and waits to be
 * read may stay readable (as on Linux), or is lost when `loses`. False when there is none. */
bool sim_cut_one(struct sim *sim, uint32_t host_a, uint32_t host_b, bool loses);

void sim_at(struct sim *sim, uint64_t at_ns, sim_event_func *run, void *user, uint64_t argument);
void sim_after(struct sim *sim, uint64_t delay_ns, sim_event_func *run, void *user, uint64_t argument);

/* Runs the next event. False when nothing is left to happen. */
bool sim_step(struct sim *sim);
/* Until `done` or `limit_ns` of virtual time from now. True when done. */
bool sim_run_until(struct sim *sim, bool (*done)(void *user), void *user, uint64_t limit_ns);
void sim_run_for(struct sim *sim, uint64_t ns);

void sim_fold(struct sim *sim, uint64_t value);
/* The node has something to do: schedules a turn. */
void sim_node_wake(struct sim_node *node);

/* memory.c: zeroed pages, given back when the simulation is destroyed if not before. For all that may be registered, and all that is large. */
void *sim_memory_take(struct sim *sim, size_t bytes);
void sim_memory_return(void *memory, size_t bytes);
void sim_memory_end(struct sim *sim);

/* net.c */
void sim_net_init(struct sim_node *node);
void sim_net_close_node(struct sim_node *node, bool silent);
void sim_net_destroy(struct sim *sim);
void sim_net_resume(struct sim *sim); /* after heal: what was held back goes on */

#endif
