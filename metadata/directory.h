/* The directory: segment name -> descriptor, cached, read again when told that it is stale. One back-end each for the ways a
 * descriptor is published; today P2P (the name is the address of the owner's handshake port). Machine: segment_fetch.
 *
 * "Missing" (the source answered: there is no such segment) and "unreachable" (no answer) are different: unreachable never drops
 * what is known. Owner thread only. */
#ifndef NEAP_METADATA_DIRECTORY_H
#define NEAP_METADATA_DIRECTORY_H

#include "metadata/descriptor.h"
#include "metadata/handshake.h"

/* An immutable snapshot, reference-counted on one core. */
struct neap_snapshot {
	struct neap_descriptor *descriptor;
	uint32_t references;
	uint64_t fetched_ns; /* when its fetch began: older knowledge cannot be in it */
	struct neap_reactor *reactor;
};
struct neap_snapshot *neap_snapshot_keep(struct neap_snapshot *snapshot);
void neap_snapshot_drop(struct neap_snapshot *snapshot);

struct neap_directory;

/* A back-end reads one descriptor. `done` once from a turn, never from inside fetch and not after cancel: 0 with text (null:
 * missing), NEAP_EMETADATA "missing", or another error: unreachable. */
struct neap_directory_backend {
	const char *scheme; /* "P2PHANDSHAKE", "etcd", "redis", "http" */
	int (*fetch)(void *backend, const char *name, uint64_t timeout_ns, neap_handshake_done_func *done, void *user,
	             uint64_t *call_p);
	void (*cancel)(void *backend, uint64_t call);
	/* Where the owner of a segment takes handshakes: host and port. P2P: the name itself. Same completion style is not needed: the
	 * back-end answers from what fetch brought. `descriptor` may be NULL: then only the name is judged. */
	int (*handshake_address)(void *backend, const char *name, const struct neap_descriptor *descriptor,
	                         struct neap_host_port *address_p, char *why, size_t why_size);
	void *backend;
};

/* Splits a connection string (docs/WIRE.md): the scheme and the rest. NEAP_ENOTSUP for a scheme this build does not have,
 * NEAP_EINVAL for an unknown one; `why` lists what is built in. */
int neap_directory_scheme(const char *connection, const char **scheme_p, char *why, size_t why_size);

int neap_directory_create(struct neap_directory **directory_p, struct neap_reactor *reactor,
                          const struct neap_directory_backend *backend, uint32_t names_max, uint64_t fetch_timeout_ns);
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
int neap_directory_handshake_address(struct neap_directory *directory, const char *name, const struct neap_descriptor *descriptor,
                                     struct neap_host_port *address_p, char *why, size_t why_size);
uint64_t neap_directory_fetches(const struct neap_directory *directory);

/* The P2P back-end over a handshake caller. `self` gives our own descriptor's JSON (heap; may be NULL), sent as the request as
 * peers do; "{}" is sent when there is none or it is long, since servers do not look at it and many serve one peer at a time.
 *
 * A peer is reached at the address in the name it was opened by. The name inside its descriptor is the peer's own choice: a process
 * started as 127.0.0.1 or with a name only its host knows would send us elsewhere, and so could a hostile one. It is kept, for it
 * is part of RDMA NIC paths, and never used as an address. */
int neap_p2p_backend_create(struct neap_directory_backend *backend_p, struct neap_handshake_caller *caller,
                            char *(*self)(void *user, size_t *length_p), void *user);
void neap_p2p_backend_destroy(struct neap_directory_backend *backend);

/* The segment name of a P2P process: the host of local_name, in brackets when it is IPv6, with the handshake port really bound (a
 * port in local_name is ignored). NEAP_EADDRESS, NEAP_EINVAL with `why`. */
int neap_p2p_name(const char *local_name, uint16_t port, char *name, size_t size, char *why, size_t why_size);

/* Keys of the stores (docs/WIRE.md), used by their back-ends and `neap-example`: prefix rules for cluster ids and slashes.
 * NEAP_EINVAL: empty name. NEAP_ELIMIT: does not fit. */
int neap_directory_segment_key(const char *cluster, const char *name, char *key, size_t size);
int neap_directory_rpc_key(const char *cluster, const char *name, char *key, size_t size);

#endif
