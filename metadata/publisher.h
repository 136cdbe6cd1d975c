/* The publisher: keeps what one process tells others about itself in a metadata store. Machine: publisher.
 *
 * The address under rpc_meta/NAME is the claim to the name: it is written only where there is none. Another process' address is looked at
 * through a handshake call: if a process of our name answers there, the name is taken, and the owner is told; if nobody does, it is what a
 * crash has left behind, and is replaced. The descriptor under ram/NAME follows, whole, each time it has changed; changes that come while
 * one is being written are written together.
 *
 * What is in the store is looked at again after a notice from the back-end, and every refresh_ns: a store that came back empty is filled
 * anew, and a descriptor that is not the one we wrote last is replaced, for a write that was given up may be done late. A store that cannot
 * be reached is tried again for ever, with pauses. Owner thread only. */
#ifndef NEAP_METADATA_PUBLISHER_H
#define NEAP_METADATA_PUBLISHER_H

#include "metadata/backend.h"
#include "metadata/handshake.h"

struct neap_publisher;

struct neap_publisher_options {
	struct neap_backend *backend;          /* that stores; outlives the publisher */
	struct neap_handshake_caller *caller;  /* outlives it too */
	const char *cluster, *name;            /* copied; cluster may be NULL */
	struct neap_host_port address;         /* where we take handshakes */
	uint64_t timeout_ns;                   /* of each call to the back-end and each probe */
	uint64_t refresh_ns;
	uint64_t lease_ns;                     /* 0: what we write stays until it is removed. The back-end must have leases */
	uint64_t pause_min_ns, pause_max_ns;   /* between attempts; 0: 100 ms, 5 s */
	/* The descriptor as it is now: heap (malloc), or NULL: not to be had. */
	char *(*describe)(void *user, size_t *length_p);
	bool (*is_old)(void *user); /* it has changed since, although neap_publisher_changed was not called. May be NULL */
	const uint8_t *instance;    /* 16 bytes of ours: an address that leads to ourselves is nobody else's. Outlives the publisher */
	/* From a turn. 0: published (again); NEAP_ETAKEN: another process lives under our name; else what is in the way, and it is tried
	 * again. Only told when it is news. The callee must not destroy the publisher. */
	void (*told)(void *user, int error, const char *why);
	void *user;
};

/* Begins to publish. NEAP_EINVAL: the name is empty. NEAP_ELIMIT: too long for a key. NEAP_ENOMEM. */
int neap_publisher_create(struct neap_publisher **publisher_p, struct neap_reactor *reactor, const struct neap_publisher_options *options);

/* The descriptor has changed. Cheap. */
void neap_publisher_changed(struct neap_publisher *publisher);

/* Removes what is ours. `done` once, from a turn: also when it could not be removed. It takes at most three times timeout_ns. */
void neap_publisher_withdraw(struct neap_publisher *publisher, void (*done)(void *user), void *user);

/* At once; what is published stays. NULL is fine. */
void neap_publisher_destroy(struct neap_publisher *publisher);

bool neap_publisher_is_published(const struct neap_publisher *publisher);

#endif
