/* The owners that an accessor speaks to: for each one RPC channel, the engine's segment, and the pins of finished reads that it has still
 * to be told of. Bounded; one that nobody has used for a while is closed. Owner thread only. */
#ifndef NEAP_STORE_ACCESSOR_PEERS_H
#define NEAP_STORE_ACCESSOR_PEERS_H

#include "reactor/pool.h"
#include "store/accessor/places.h"
#include "store/peer/methods.h"
#include "store/rpc/client.h"

#define NEAP_STORE_PEER_PINS_MAX 64u /* that ride on one request */

struct neap_peers_options {
	uint32_t peers_max, pins_max, unpins_max;
	uint64_t unpin_after_ns, idle_ns, call_timeout_ns, backoff_ns;
};

struct neap_peers_stats {
	uint64_t pins, ridden, unpin_calls, dropped;
};

/* A read that has finished. */
struct neap_finished {
	struct neap_finished *next;
	uint64_t read_id;
	uint32_t attempts;
	uint16_t key_length;
	char key[NEAP_KEY_MAX];
};

struct neap_finished_list {
	struct neap_finished *first, **end;
	uint32_t count;
};

struct neap_store_peer_waiter {
	struct neap_store_peer_waiter *next, **slot; /* slot NULL: does not wait */
	void (*reached)(struct neap_store_peer_waiter *waiter, int error, const char *why);
};

enum neap_store_peer_phase { NEAP_STORE_PEER_UNKNOWN, NEAP_STORE_PEER_OPENING, NEAP_STORE_PEER_OPEN };

struct neap_store_peer {
	struct neap_peers *peers;
	struct neap_place place;
	struct neap_rpc_channel *channel;
	neap_segment_id segment;
	enum neap_store_peer_phase phase; /* of the segment */
	bool refreshed;             /* the descriptor was read anew, because another instance was in it */
	bool has_segment;           /* to be closed in the end */
	char engine[NEAP_STORE_ADDRESS_SIZE]; /* its name, from the place or from the owner; "": not known yet */
	struct neap_store_peer_waiter *waiters;
	struct neap_finished_list pins, telling; /* to be told; in the UnPinKey that is under way */
	struct neap_timer unpin, idle;
	uint32_t references, failures;
	uint64_t idle_since_ns;
};

struct neap_peers {
	struct neap_engine *engine;
	struct neap_reactor *reactor;
	struct neap_rpc_client *client;
	struct neap_peers_options options;
	struct neap_pool pool, pins;
	struct neap_peers_stats stats;
	uint32_t opening, telling; /* callbacks that are owed to us */
	bool closing;
	void (*idle)(void *user); /* while closing: nothing is owed any more */
	void *user;
};

int neap_peers_create(struct neap_peers *peers, struct neap_engine *engine, struct neap_rpc_client *client,
                      const struct neap_peers_options *options);
/* No peer is referenced any more. Tells what is to be told once more; `idle` is called when nothing is owed, maybe from inside. */
void neap_peers_close(struct neap_peers *peers, void (*idle)(void *user), void *user);
void neap_peers_destroy(struct neap_peers *peers); /* after that, or when nothing was ever asked of it */

/* With a reference. NULL, *error_p: NEAP_EAGAIN (peers_max, all in use), NEAP_EADDRESS (the place is malformed), NEAP_ECLOSED. */
struct neap_store_peer *neap_store_peer_get(struct neap_peers *peers, const struct neap_place *place, int *error_p);
void neap_store_peer_put(struct neap_store_peer *peer);

/* 0: the segment is open, and of the instance that is meant. NEAP_EAGAIN: `waiter` is told, once, from a turn. Else why not. */
int neap_store_peer_reach(struct neap_store_peer *peer, struct neap_store_peer_waiter *waiter);
void neap_store_peer_wait_no_more(struct neap_store_peer_waiter *waiter);

/* A read has finished: its pin is told with the next request, or by itself. */
void neap_store_peer_finished(struct neap_store_peer *peer, const struct neap_key *key, uint64_t read_id);
/* Takes them for a request: fills `items` (room for NEAP_STORE_PEER_PINS_MAX), which point into `list`. */
uint32_t neap_store_peer_take_pins(struct neap_store_peer *peer, struct finished_pin *items, struct neap_finished_list *list);
/* Of the request's end: were they heard? */
void neap_store_peer_pins_told(struct neap_store_peer *peer, struct neap_finished_list *list, bool heard);

#endif
