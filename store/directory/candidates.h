/* Which clients are offered a new value, and which replicas a reader. Owner thread only. */
#ifndef NEAP_STORE_CANDIDATES_H
#define NEAP_STORE_CANDIDATES_H

#include "store/directory/clients.h"

/* A client that could take the value. */
struct neap_candidate_pick {
	const struct neap_client *client;
	struct neap_client_segment *segment; /* with the most room */
	uint64_t available;
	bool crowded;        /* it would have to evict */
	double score, order; /* order: by which it is kept or dropped */
};

/* INVALID_PARAMS: weight and waterline contradict each other, or a value out of range. */
int neap_candidates_check(const struct neap_key_write_config *config);

/* Chooses for one item whose key may get another place: not where `key` is already (NEAP_ROUTE_NONE: nowhere yet). `picks` has room
 * for all clients. Appends to the call's candidates. */
int neap_candidates_choose(struct neap_clients *clients, struct neap_candidate_pick *picks, uint32_t key,
                           struct neap_key_write_routes *call, struct neap_key_write_item *item);

/* How many clients have the key in sight. */
uint32_t neap_candidates_owners(const struct neap_clients *clients, uint32_t key);

/* Appends the replicas of a key that is known; NEAP_ROUTE_NONE: OBJECT_NOT_FOUND. */
int neap_candidates_replicas(const struct neap_clients *clients, uint32_t key, struct neap_key_replicas *call,
                             struct neap_key_read_item *item);

#endif
