/* The owner's side of the peer RPC: what accessors ask for becomes calls of the owner, and what it says becomes their answers.
 *
 * Reservations and pins belong to the connection they were granted on: when it ends they are given up at once, and nobody but the process
 * they were granted to can commit, revoke or unpin them. A commit that was accepted, a pull and a push do not depend on the connection;
 * their answers are dropped when nobody waits any more (a commit's and a pull's are kept for a repeated call).
 *
 * Numbers of neap/error.h are returned; answers carry numbers of neap/store_error.h. docs/WIRE.md lists the methods. Owner thread
 * only. */
#ifndef NEAP_STORE_PEER_SERVICE_H
#define NEAP_STORE_PEER_SERVICE_H

#include "store/latency.h"
#include "store/owner/owner.h"
#include "store/rpc/server.h"
#include "store/settle.h"

struct neap_peer_service;

struct neap_peer_service_options {
	const struct neap_sockaddr *address; /* NULL: no listener; see neap_rpc_server_serve */
	struct neap_rpc_server_options rpc;
	uint32_t writes_per_connection; /* reservations held at once; 0: 1024 */
	uint32_t pins_per_connection;   /* 0: 4096 */
	uint32_t writes_max, pins_max;  /* of all connections; 0: 65536 */
	uint32_t operations_max;        /* commits, pulls and pushes under way; 0: 16384 */
	/* Whether what the process `instance` names is its own: an engine instance (16 bytes) that a grant is to be made for, or a segment
	 * that the owner is to read from or write to. The other one is NULL. is_own NULL: a process shows the instance of its engine, and its
	 * engine is held to it. */
	bool (*is_own)(void *user, const uint8_t instance[16], const char *segment, const uint8_t *engine);
	/* A value is committed, or was there when somebody wanted to put it: its caller is told when the directory knows it. NULL: at once. */
	neap_settle_func *settle;
	neap_settled_func *settled; /* readers are refused until it says so (REPLICA_IS_NOT_READY). NULL: every value is to be read */
	void *user;
};

/* `engine` is the owner's. Both outlive the service. Listens at once. As neap_rpc_server_create. */
int neap_peer_service_create(struct neap_peer_service **service_p, struct neap_reactor *reactor, struct neap_engine *engine,
                             struct neap_owner *owner, const struct neap_peer_service_options *options, int *system_errno_p, char *why,
                             size_t why_size);
/* From now on every call is answered UNAVAILABLE_IN_CURRENT_STATUS; what is under way goes on. */
void neap_peer_service_drain(struct neap_peer_service *service);
/* Drains, says goodbye to all clients, ends their connections and what they hold. `closed` (may be NULL) comes from a turn when no
 * connection is left and nothing of the owner's is under way: the pointer is dead then. */
void neap_peer_service_close(struct neap_peer_service *service, void (*closed)(void *user), void *user);

/* For its statistics, its port, and neap_rpc_server_drop. */
struct neap_rpc_server *neap_peer_service_rpc(struct neap_peer_service *service);

#define NEAP_PEER_METHODS 10u
struct neap_peer_method_stats {
	const char *name; /* "PreWrite" */
	uint64_t requests, failures;
	uint64_t hits, misses; /* PinKey, ReadRemoteData, LookUp; a miss is no failure */
	struct neap_latency success, failure; /* from the request's arrival to its answer; misses count as success */
};

struct neap_peer_service_stats {
	struct neap_peer_method_stats methods[NEAP_PEER_METHODS]; /* by number on the wire, less one */
	uint64_t refused_quota, refused_foreign, refused_draining;
	uint64_t lost_writes, lost_pins; /* given up because their connection ended */
	uint64_t unheard;                /* answers that nobody waited for */
	uint32_t writes_now, pins_now, operations_now;
};
void neap_peer_service_stats(const struct neap_peer_service *service, struct neap_peer_service_stats *stats_p);

/* What does not hold, or NULL: counts and lists of what connections hold. For tests and debug builds. */
const char *neap_peer_service_check(const struct neap_peer_service *service);

#endif
