/* A store from inside. node.c: options and assembly; life.c: drain and close; tiers.c: memory; announce.c: what the directory is told of
 * our values; places.c: what the accessor asks the directory; keys.c, removal.c: what users ask about keys; sweep.c: removal of all that
 * match; metrics.c. Everything else is in the rooms that it puts together. */
#ifndef NEAP_STORE_NODE_INSIDE_H
#define NEAP_STORE_NODE_INSIDE_H

#include "reactor/core.h"
#include "reactor/pool.h"
#include "store/accessor/accessor.h"
#include "store/directory/local.h"
#include "store/master/announcer.h"
#include "store/master/remote.h"
#include "store/node/life_fsm.h"
#include "store/node/places.h"
#include "store/node/removal_fsm.h"
#include "store/peer/service.h"
#include "store/tier/dram_engine.h"
#include "store/tier/storage.h"

#define NODE_WHY_MAX 320u
/* A failed question to the directory, for those who asked the store. */
static inline const char *node_directory_text(int error)
{
	return error == NEAP_STORE_RPC_FAIL ? "the master is not reached" : neap_store_error_text(error);
}
#define NODE_NOT_ALL "the master recovers and does not know all keys yet; say it again when it does"
#define NODE_ASKS_MAX 1024u     /* of users about keys, at once */
#define NODE_REPLICAS_MAX 16u   /* of one key, told or removed */
#define NODE_SWEEP_KEYS 256u    /* of a page of a removal of all that match */
#define NODE_SWEEP_TEXT (256u << 10)

/* A question of a user about keys: stat, exist, list. */
struct node_ask {
	struct neap_store *store;
	struct neap_key_call call;
	void (*answered)(struct node_ask *ask, int error);
	union {
		neap_store_stat_func *stat;
		neap_store_exist_func *exist;
		neap_store_listed_func *listed;
	} done;
	void *user;
	void *memory; /* of keys and answers */
	size_t memory_bytes;
	struct neap_key key; /* stat */
};

struct node_removal {
	struct neap_machine machine;
	struct neap_store *store;
	struct neap_key_call call;
	struct neap_key_read_item item;
	struct neap_key_replica replicas[NODE_REPLICAS_MAX];
	uint64_t deadline_ns, removed;
	uint32_t waiting;
	int error;
	neap_store_removed_func *done;
	void *user;
	char why[NODE_WHY_MAX];
	uint32_t key_length;
	char key[NEAP_KEY_MAX];
};

/* A removal of all that match: a page of keys, their removals, the next page. One at a time. */
struct node_sweep {
	struct neap_store *store;
	struct neap_ready more; /* removals to be begun */
	struct neap_key_call call;
	bool runs;
	uint32_t at, running;
	uint64_t deadline_ns, removed;
	int error;
	neap_store_removed_func *done;
	void *user;
	char why[NODE_WHY_MAX];
	uint32_t pattern_length;
	char *pattern;
	struct neap_key_listed *keys; /* NODE_SWEEP_KEYS */
	char *text;                   /* NODE_SWEEP_TEXT */
};

struct node_tier {
	enum neap_tier_kind kind;
	struct neap_dram dram;
	struct neap_dram_engine binding;
	struct neap_storage *storage; /* of a STORAGE tier; NULL: not, or closed */
	uint64_t capacity;
	bool made;
};

struct neap_store {
	struct neap_machine machine; /* store_life */
	struct neap_timer timer;
	struct neap_timer tick;      /* until `ready` was called, and while draining */
	struct neap_timer probe;     /* of a store without tiers, which has no heartbeats: is the directory there? */
	struct neap_engine *engine;
	struct neap_reactor *reactor;
	struct neap_dependent dependent;
	struct neap_reap reap;

	/* what was asked for */
	char master[NEAP_STORE_ADDRESS_SIZE], host[NEAP_KEY_HOST_SIZE];
	bool has_master, no_inline, verify, early;
	uint32_t operations_max, heartbeat_ms;
	uint64_t deadline_ns;
	struct neap_key_write_config placement;
	void (*ready)(void *user, int error, const char *why);
	void *user;
	uint64_t ready_by_ns;

	/* what it is made of; NULL: not, or no more */
	uint8_t instance[16];
	struct neap_key_client client;
	struct neap_tiers tiers;
	struct node_tier tier[NEAP_TIERS_MAX];
	struct neap_key_segment segments[NEAP_TIERS_MAX];
	uint32_t tier_count, tiers_open;
	struct neap_owner_lower lower; /* largest 0: no tier is on a disk */
	bool has_tiers; /* `tiers` is made */
	struct neap_owner *owner;
	struct neap_peer_service *service;
	struct neap_local_directory *local;
	struct neap_remote_directory *remote;
	struct neap_key_directory directory;
	struct neap_announcer *announcer;
	struct node_places places;
	struct neap_accessor *accessor;
	struct neap_pool asks, removals;
	struct neap_reactor_class *life_class, *removal_class;
	struct node_sweep sweep;
	uint16_t rpc_port;
	bool reached; /* the last call to the directory was answered; of a store without tiers */

	/* how it ends */
	uint64_t drain_until_ns;
	void (*drained)(void *user, int error);
	void *drained_user;
	void (*closed)(void *user);
	void *closed_user;
};

extern const struct neap_machine_kind store_life_kind, key_removal_kind;

static inline bool node_is_open(const struct neap_store *store)
{
	return store->machine.state == store_life_OPEN;
}
/* Operations of its own are taken while it is open or drains. */
static inline bool node_takes(const struct neap_store *store)
{
	return store->machine.state <= store_life_DRAINED;
}
static inline struct neap_key_text node_text(const struct neap_key *key)
{
	return (struct neap_key_text){key->bytes, key->length};
}
/* A client of the directory is an engine's instance, so that who is known by one is known by the other. */
struct neap_key_id node_id(const uint8_t instance[16]);
void node_instance(struct neap_key_id id, uint8_t instance[16]);
void node_place(struct neap_place *place, struct neap_key_id client, const char *host, uint16_t port);

/* --- tiers.c: numbers of neap/error.h, with `why` */
int node_tiers_open(struct neap_store *store, const struct neap_tier_config *config, char *why, size_t why_size);
/* node_life_ended when all are unmapped, maybe from inside. */
void node_tiers_close(struct neap_store *store);

/* --- announce.c */
void node_published(void *user, const struct neap_owner_value *value);
void node_withdrawn(void *user, const struct neap_owner_value *value);
void node_moved(void *user, const struct neap_owner_value *value, uint32_t from_tier);
int node_settle(void *user, struct neap_settle *settle);
void node_forget_settle(void *user, struct neap_settle *settle);
bool node_settled(void *user, const struct neap_key *key, uint32_t tier, uint64_t generation);
int node_announcer_open(struct neap_store *store, uint32_t heartbeat_ms, uint32_t stamps_max);

/* --- life.c */
void node_life_ended(void *store); /* the part that was being closed has */
void node_begin_life(struct neap_store *store);
/* Gives everything back that is there. */
void node_release(struct neap_store *store);

/* --- keys.c, removal.c, sweep.c */
void node_asks_cancel(struct neap_store *store);
void node_removals_cancel(struct neap_store *store);
int node_removal_begin(struct neap_store *store, const struct neap_key *key, uint64_t deadline_ns, neap_store_removed_func *done,
                       void *user);
void node_sweep_look(struct neap_store *store); /* a place for a removal has become free */
void node_sweep_cancel(struct neap_store *store);

#endif
