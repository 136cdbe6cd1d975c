/* The worlds that neap-sim runs. */
#ifndef NEAP_SIM_NEAP_SIM_H
#define NEAP_SIM_NEAP_SIM_H

#include <stdbool.h>
#include <stdint.h>

struct sim_arguments {
	uint64_t first, count;
	double seconds; /* 0: no limit */
	bool verbose, demand_sometimes;
	uint32_t sabotage; /* of stores: enum st_sabotage. It is counted in how many seeds it is found */
	bool brief; /* a failing seed of engines is one line, and the run goes on: to count in how many a mistake is found */
	const char *aim; /* of worlds over devices; NULL: the seed decides */
	const char *mistake; /* that is to be found there; NULL: none */
	const char *save; /* a failing seed is written there, for --replay; NULL: neap-sim-SEED.replay */
};

double sim_seconds_now(void);

/* Number of failures, conditions never met included when they are demanded; 1 when nothing ran. */
int sim_engine_seeds(const struct sim_arguments *arguments);
int sim_rdma_seeds(const struct sim_arguments *arguments); /* engines over devices */
int sim_store_seeds(const struct sim_arguments *arguments);
int sim_store_rdma_seeds(const struct sim_arguments *arguments); /* stores over devices */
int sim_metadata_seeds(const struct sim_arguments *arguments);
/* A file that a failing run of the store's world has written. 0: it runs clean now; 2: it cannot be read. */
int sim_store_replay(const char *path);

#endif
