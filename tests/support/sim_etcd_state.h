/* What the members of a simulated etcd cluster agree on: keys with their revisions, each change, leases that end by
 * virtual time. sim_etcd_server.h has the members. */
#ifndef SUPPORT_SIM_ETCD_STATE_H
#define SUPPORT_SIM_ETCD_STATE_H

#include "tests/sim/sim.h"

/* A key as it is, or as a change has made it. */
struct sim_etcd_value {
	char *key, *value; /* heap; value NULL: it is gone */
	size_t length;
	uint64_t created, modified, version, lease; /* revisions; how often it was put since; 0: none */
};

struct sim_etcd_list {
	struct sim_etcd_value *values;
	size_t count, capacity;
};

struct sim_etcd_lease {
	struct sim_etcd_lease *next;
	uint64_t id, seconds, ends_ns;
};

struct sim_etcd_state {
	struct sim *sim;
	struct sim_etcd_list keys, changes; /* in the order in which they came */
	struct sim_etcd_lease *leases;
	uint64_t revision, compacted;
	uint64_t term;          /* of its leader */
	uint64_t life;          /* how often it has begun anew, with nothing */
	uint64_t next_lease, leases_ended;
	bool stopped;           /* nobody leads: no lease ends */
	/* Each change, at its moment; value NULL: it is gone. May be NULL */
	void (*changed)(void *user, const char *key, const char *value, size_t length);
	void *user;
	/* There is another revision. May be NULL */
	void (*advanced)(struct sim_etcd_state *state);
};

void sim_etcd_state_init(struct sim_etcd_state *state, struct sim *sim);
void sim_etcd_state_release(struct sim_etcd_state *state); /* without a word to anybody */

const struct sim_etcd_value *sim_etcd_find(const struct sim_etcd_state *state, const char *key);
void sim_etcd_put(struct sim_etcd_state *state, const char *key, const char *value, size_t length, uint64_t lease);
bool sim_etcd_remove(struct sim_etcd_state *state, const char *key);
void sim_etcd_remove_all(struct sim_etcd_state *state); /* in one revision, as a deletion of a range does it */
void sim_etcd_begin_anew(struct sim_etcd_state *state); /* its revisions too */
void sim_etcd_compact(struct sim_etcd_state *state);    /* nothing begins before the newest revision any more */

struct sim_etcd_lease *sim_etcd_lease_find(struct sim_etcd_state *state, uint64_t id);
uint64_t sim_etcd_lease_grant(struct sim_etcd_state *state, uint64_t seconds);
bool sim_etcd_lease_keep(struct sim_etcd_state *state, uint64_t id, uint64_t *seconds_p);
bool sim_etcd_lease_revoke(struct sim_etcd_state *state, uint64_t id); /* with its keys */
void sim_etcd_lead_anew(struct sim_etcd_state *state); /* a new leader gives each its whole time */

#endif
