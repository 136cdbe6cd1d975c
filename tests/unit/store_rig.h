/* A cluster in the simulator: a master on 10.0.0.1, stores on the hosts after it; all of it the library's own. */
#ifndef UNIT_STORE_RIG_H
#define UNIT_STORE_RIG_H

#include "store/directory/local.h"
#include "store/master/service.h"
#include "store/rpc/server.h"
#include "tests/sim/sim.h"
#include <neap/store.h>

#define RIG_STORES 4u
#define RIG_MASTERS 8u
#define RIG_MEMORY (UINT64_C(8) << 20)
#define MS UINT64_C(1000000)
#define RIG_TIERS "{\"tiers\":[{\"type\":\"DRAM\",\"capacity\":\"8MB\",\"priority\":10}]}"

struct rig_store {
	struct sim_node *node;
	struct neap_engine *engine;
	struct neap_store *store; /* NULL: closed */
	unsigned char *memory;    /* GRANT_ONLY, RIG_MEMORY bytes */
	bool ready, closed, drained;
	int ready_error, drain_error;
};

struct rig_master {
	struct sim_node *node;
	struct neap_local_directory *local;
	struct neap_master_service *service;
	struct neap_rpc_server *server;
};

struct store_rig {
	struct sim *sim;
	struct rig_master masters[RIG_MASTERS];
	struct rig_store stores[32];
	uint32_t master_count, store_count;
	struct neap_local_directory_options directory; /* of masters to come */
	uint32_t batches_max;                          /* of engines to come; 0: 256 */
};
extern struct store_rig rig;

struct rig_outcome {
	bool done, released;
	struct neap_store_outcome outcome;
	struct neap_unsettled unsettled;
	char why[400];
};

void rig_open(void);
/* Closes all stores in order; nothing may be left of any node. */
void rig_close(void);
void rig_master_start(bool first);
void rig_master_crash(void);
/* On host 1 + number; `options` may be NULL: tiers and master are filled in unless they are set. */
struct rig_store *rig_store_start(const struct neap_store_options *options, bool with_tiers);
int rig_store_try(struct rig_store *store, const struct neap_store_options *options, bool with_tiers, char *why, size_t why_size);
void rig_store_crash(struct rig_store *store);
void rig_store_close(struct rig_store *store);

void rig_for(unsigned ms);
bool rig_until(const bool *flag, unsigned ms);
/* Until `holds` says so. */
bool rig_until_true(bool (*holds)(void *user), void *user, unsigned ms);
void rig_holds(void); /* every check of every store that lives */

void rig_fill(void *bytes, uint64_t length, unsigned seed);
bool rig_filled(const void *bytes, uint64_t length, unsigned seed);
struct neap_key rig_key(const char *text);

/* The first half of a store's memory is what it puts, the second what it gets. */
void rig_put_begin(struct rig_store *store, struct rig_outcome *outcome, const char *key, uint64_t size, unsigned seed,
                   const struct neap_put_options *options);
void rig_get_begin(struct rig_store *store, struct rig_outcome *outcome, const char *key, uint64_t room, const struct neap_get_options *options);
void rig_done(void *user, const struct neap_store_outcome *outcome);
void rig_await(struct rig_outcome *outcome);
/* The same and their end. */
void rig_put(struct rig_store *store, struct rig_outcome *outcome, const char *key, uint64_t size, unsigned seed, enum neap_direction direction);
void rig_get(struct rig_store *store, struct rig_outcome *outcome, const char *key, uint64_t room, enum neap_direction direction);
/* It succeeds, with exactly these bytes. */
void rig_must_put(struct rig_store *store, const char *key, uint64_t size, unsigned seed, enum neap_direction direction);
void rig_must_get(struct rig_store *store, const char *key, uint64_t size, unsigned seed, enum neap_direction direction);
int rig_remove(struct rig_store *store, const char *key, uint64_t *removed_p);
int rig_exists(struct rig_store *store, const char *key); /* 1, 0, -1 */

#endif
