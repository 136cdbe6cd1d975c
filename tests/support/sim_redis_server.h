/* A Redis server in simulation, as a driver for metadata/redis.h: keys that end, connections that log in and choose a database, CLIENT
 * TRACKING as Redis does it: a key is remembered for those who read it, told once when it changes, and forgotten then, also for who has
 * changed it and said NOLOOP; FLUSHALL tells NULL. What lies in between is that of sim_server.h. */
#ifndef SUPPORT_SIM_REDIS_SERVER_H
#define SUPPORT_SIM_REDIS_SERVER_H

#include "metadata/redis.h"
#include "tests/support/sim_keys.h"
#include "tests/support/sim_server.h"

struct sim_redis_client;

struct sim_redis_server {
	struct sim_server server; /* first */
	struct sim_keys keys;
	/* set by the test */
	const char *password; /* NULL: none */
	const char *refusal;  /* the error that writes are answered with; NULL: none */
	uint64_t loading_until_ns;
	bool old;             /* knows nothing of tracking */
	bool deaf;            /* changes are not told: what a check must find */

	uint64_t next_id, commands, notices;
	struct sim_redis_client *clients;
	struct sim_redis_tracked *tracked;
	uint32_t wires; /* of drivers, not closed yet */
};

void sim_redis_server_init(struct sim_redis_server *redis, struct sim *sim);
void sim_redis_server_release(struct sim_redis_server *redis);
/* FLUSHALL by somebody else: those who track are told that anything may have changed. */
void sim_redis_server_flush(struct sim_redis_server *redis);
/* Its table of what is tracked is full: it tells of keys that have not changed. */
void sim_redis_server_forget_tracked(struct sim_redis_server *redis);
/* A change by another program. value NULL: removed. */
void sim_redis_server_put(struct sim_redis_server *redis, const char *key, const char *value);

/* A node's way to it. */
struct sim_redis_driver {
	struct neap_redis_driver driver; /* first */
	struct sim_redis_server *redis;
	struct sim_node *node;
};
void sim_redis_driver_init(struct sim_redis_driver *driver, struct sim_redis_server *redis, struct sim_node *node);

#endif
