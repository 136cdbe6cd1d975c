/* The clients: who is registered, at what address, with what segments, and since when nothing was heard of it. Machine:
 * client_life. When a client ends, its segments are hidden at once and its routes swept in slices. Owner thread only. */
#ifndef NEAP_STORE_CLIENTS_H
#define NEAP_STORE_CLIENTS_H

#include "store/directory/recovery.h"
#include "store/directory/routes.h"

struct neap_clients;

struct neap_client_segment {
	struct neap_route_segment routes; /* first */
	struct neap_client_segment *next; /* of its client; of those to be swept */
	struct neap_client *client;
	struct neap_key_segment info;
	uint32_t swept, sweeping_round; /* full announcements: the last that is through with it; the one under way */
	uint64_t given; /* bytes that writers were sent here for since its last heartbeat */
};

/* Between the registration and the last route. */
struct neap_client {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_clients *clients;
	struct neap_client *next_in_bucket;
	struct neap_client *next, *previous; /* in the order of registration */
	struct neap_key_client self;
	uint64_t start;
	char host[NEAP_KEY_HOST_SIZE];
	uint16_t port;
	bool owes;             /* a full announcement */
	struct neap_client_segment *segments;
	uint32_t segment_count, sweeping; /* segments it has; and of those gone, with routes left */
	uint32_t round;        /* of its latest full announcement; adds between them bear it too */
	uint32_t round_open;   /* the one under way, or 0 */
	uint64_t number;       /* of the last batch taken */
};

struct neap_clients_options {
	uint32_t clients_max, segments_max, segments_per_client_max;
	uint64_t live_ns, crashed_ns; /* both counted from the last sign of life */
	uint32_t sweep_slice;         /* replicas a turn */
	void (*crashed)(void *user, struct neap_key_client client); /* from a turn; may be NULL */
	void *user;
};

struct neap_clients_stats {
	uint64_t registered, recovered, suspected, crashed, left, replaced;
};

struct neap_clients {
	struct neap_reactor *reactor;
	struct neap_clients_options options;
	struct neap_reactor_class *class_;
	struct neap_routes *routes;
	struct neap_recovery *recovery;
	struct neap_pool pool, segments;
	struct neap_client **buckets;
	uint32_t bucket_count;
	struct neap_client *first, *last;
	struct neap_client_segment *sweeping; /* gone ones with routes left */
	struct neap_ready sweep;
	uint32_t live, healthy;
	struct neap_clients_stats stats;
};

/* `routes` is made with the pool `clients->segments`, so this comes first and neap_routes_create between it and the first register.
 * */
int neap_clients_create(struct neap_clients *clients, struct neap_reactor *reactor, const struct neap_clients_options *options,
                        struct neap_routes *routes, struct neap_recovery *recovery);
/* All end at once. */
void neap_clients_destroy(struct neap_clients *clients);

/* Registered, of this very instance; NULL otherwise. */
struct neap_client *neap_clients_find(const struct neap_clients *clients, struct neap_key_client self);
struct neap_client *neap_clients_find_id(const struct neap_clients *clients, struct neap_key_id id);
enum neap_key_status neap_client_status(const struct neap_client *client);
struct neap_client_segment *neap_client_segment(const struct neap_client *client, struct neap_key_id id);

/* Each is the call of key_directory.h, done at once. */
int neap_clients_register(struct neap_clients *clients, struct neap_key_register *call);
void neap_clients_heartbeat(struct neap_clients *clients, struct neap_key_heartbeat *call);
int neap_clients_mount(struct neap_clients *clients, struct neap_key_mount *call);
int neap_clients_unmount(struct neap_clients *clients, const struct neap_key_mount *call);
void neap_clients_unregister(struct neap_clients *clients, const struct neap_key_unregister *call);

/* The end of its full announcement: what was not named since `round` began is dropped, at most *budget_p replicas a call. True when
 * through: then it owes nothing. */
bool neap_client_sweep_round(struct neap_client *client, uint32_t round, uint32_t *budget_p, uint64_t *dropped_p);

static inline struct neap_client *neap_client_of_segment(const struct neap_clients *clients, uint32_t segment)
{
	return ((struct neap_client_segment *)neap_pool_at(&clients->segments, segment))->client;
}

#endif
