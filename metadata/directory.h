/* The directory: segment name -> descriptor and the address of its owner, cached, read again when told that it is stale. Where they are
 * read is the business of a back-end (backend.h). Machine: segment_fetch.
 *
 * "Missing" (the source answered: there is no such segment) and "unreachable" (no answer) are different: unreachable never drops
 * what is known. Owner thread only. */
#ifndef NEAP_METADATA_DIRECTORY_H
#define NEAP_METADATA_DIRECTORY_H

#include "metadata/backend.h"
#include "metadata/descriptor.h"
#include "metadata/handshake.h"

/* An immutable snapshot, reference-counted on one core. */
struct neap_snapshot {
	struct neap_descriptor *descriptor;
	struct neap_host_port owner; /* where it takes handshakes; its data ports are at the same host */
	uint32_t references;
	uint64_t fetched_ns; /* when its fetch began: older knowledge cannot be in it */
	struct neap_reactor *reactor;
};
struct neap_snapshot *neap_snapshot_keep(struct neap_snapshot *snapshot);
void neap_snapshot_drop(struct neap_snapshot *snapshot);

struct neap_directory;

/* P2PHANDSHAKE: a name is an address, its process is asked for the descriptor. A back-end that stores: the descriptor and the owner's
 * address are read side by side, under the keys below; leading slashes of a name are passed over, as peers do. `cluster` may be NULL. */
int neap_directory_create(struct neap_directory **directory_p, struct neap_reactor *reactor, struct neap_backend *backend,
                          const char *cluster, uint32_t names_max, uint64_t fetch_timeout_ns);
/* Pending lookups end without callback. The back-end must live until then. */
void neap_directory_destroy(struct neap_directory *directory);

/* The descriptor of `name`, read at `not_before_ns` or later: from the cache when fetched_ns >= not_before_ns, else by a fetch,
 * which several lookups of one name share. `found` once, from a turn, never from inside: the snapshot is the callee's only if it
 * keeps it.
 *
 * Errors: NEAP_EMETADATA (the source says there is no such segment: it is forgotten), NEAP_EADDRESS, NEAP_EJSON, NEAP_ENOTSUP, and
 * what the back-end met on its way (unreachable: what was known stays). */
typedef void neap_found_func(void *user, int error, struct neap_snapshot *snapshot, const char *why);
struct neap_lookup {
	struct neap_lookup *next, **slot;
	bool watched_will_do; /* older knowledge too, as long as the back-end watches that it stays right. Set before neap_directory_lookup */
	neap_found_func *found;
	void *user;
	uint64_t not_before_ns;
};
/* A not_before_ns in the future means now. NEAP_EINVAL: empty or longer than NEAP_NAME_MAX. NEAP_ELIMIT: names_max names are being
 * looked up; else the name that was used longest ago makes room. */
int neap_directory_lookup(struct neap_directory *directory, const char *name, uint64_t not_before_ns, struct neap_lookup *lookup,
                          neap_found_func *found, void *user);
void neap_directory_lookup_cancel(struct neap_directory *directory, struct neap_lookup *lookup);

/* Forgets the cached snapshot of a name (its instance is known to be gone). */
void neap_directory_forget(struct neap_directory *directory, const char *name);
uint64_t neap_directory_fetches(const struct neap_directory *directory);

/* The P2P back-end over a handshake caller. `self` gives our own descriptor's JSON (heap; may be NULL), sent as the request as
 * peers do; "{}" is sent when there is none or it is long, since servers do not look at it and many serve one peer at a time.
 *
 * A peer is reached at the address in the name it was opened by. The name inside its descriptor is the peer's own choice: a process
 * started as 127.0.0.1 or with a name only its host knows would send us elsewhere, and so could a hostile one. It is kept, for it
 * is part of RDMA NIC paths, and never used as an address. */
int neap_p2p_backend_create(struct neap_backend **backend_p, struct neap_handshake_caller *caller,
                            char *(*self)(void *user, size_t *length_p), void *user);
#define NEAP_P2P_PORT_DEFAULT 12001u /* as peers take it when a name has no port */
int neap_p2p_address(const char *name, struct neap_host_port *address_p, char *why, size_t why_size);

/* The segment name of a P2P process: the host of local_name, in brackets when it is IPv6, with the handshake port really bound (a
 * port in local_name is ignored). NEAP_EADDRESS, NEAP_EINVAL with `why`. */
int neap_p2p_name(const char *local_name, uint16_t port, char *name, size_t size, char *why, size_t why_size);

/* Keys of the stores (docs/WIRE.md), used by their back-ends and `neap-example`: prefix rules for cluster ids and slashes.
 * NEAP_EINVAL: empty name. NEAP_ELIMIT: does not fit. */
int neap_directory_segment_key(const char *cluster, const char *name, char *key, size_t size);
int neap_directory_rpc_key(const char *cluster, const char *name, char *key, size_t size);
int neap_directory_prefix(const char *cluster, char *prefix, size_t size); /* what all of a cluster begin with: a slash ends it */

/* What is under an rpc key: {"ip_or_host_name":"10.1.2.3","rpc_port":15733} (rpc_document.c). Pure but for malloc. The encoder's text is
 * the caller's to free(), with a final newline. */
int neap_rpc_document_encode(const struct neap_host_port *address, char **text_p, size_t *length_p);
/* NEAP_EJSON, NEAP_EADDRESS (not a host and a port), NEAP_ELIMIT, with `why`. */
int neap_rpc_document_decode(const char *text, size_t length, struct neap_host_port *address_p, char *why, size_t why_size);

#endif
