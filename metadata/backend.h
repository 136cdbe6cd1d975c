/* The one interface to where segments are published: small documents under keys. Implementations: P2PHANDSHAKE (metadata/p2p.c: it can
 * only be read), Redis (redis.h), etcd (etcd.h), HTTP (http.h), and one in memory for tests and simulation
 * (tests/support/memory_store.h). Another one is a file with
 * these operations and a line in metadata/connection.c.
 *
 * No call waits. Each accepted call ends once: with its callback, from a turn and never from inside a call, or with cancel, without
 * callback. Owner thread only. */
#ifndef NEAP_METADATA_BACKEND_H
#define NEAP_METADATA_BACKEND_H

#include "reactor/core.h"

#define NEAP_BACKEND_KEY_MAX 1024u /* bytes with the final NUL */

/* What a back-end can do beyond get. */
enum {
	NEAP_BACKEND_STORES = 1,  /* set, remove, touch: keys are those of neap_directory_segment_key. Without it a key is a segment's name */
	NEAP_BACKEND_WATCHES = 2, /* watch */
	NEAP_BACKEND_LEASES = 4,  /* lease_ns in set and touch */
};

/* error 0: get brings the value (valid during the call; need not end in NUL). NEAP_EMETADATA: the source answered that there is nothing
 * under this key. NEAP_ETAKEN: set with `create` found another value. Anything else: it is not known what is there, and `why`, one
 * sentence that names the server, says what to do. */
typedef void neap_backend_done_func(void *user, int error, const char *value, size_t length, const char *why);

struct neap_backend_set {
	const char *key;
	const void *value; /* copied */
	size_t length;     /* at most value_max */
	uint64_t lease_ns; /* the value goes so long after its last set or touch, or that of another key of ours with the same lease (etcd, in
	                    * whole seconds); 0: never. At least 1 ms */
	bool create;       /* only where nothing is, or (back-ends may) the same value: else NEAP_ETAKEN */
};

/* The memory is the watcher's and must be zeroed at first. */
struct neap_backend_watch {
	struct neap_backend_watch *next, **slot; /* slot NULL: not watching */
	uint64_t hash;                           /* of the key */
	void (*changed)(struct neap_backend_watch *watch);
};

struct neap_backend;
struct neap_backend_ops {
	unsigned capabilities;
	/* Errors of the calls themselves: NEAP_EAGAIN (a bound is reached; nothing was taken), NEAP_EINVAL, NEAP_ELIMIT (key or value too
	 * long), NEAP_EADDRESS (P2P: the name is no address), NEAP_ENOMEM, NEAP_ECLOSED. *call_p is for cancel. */
	int (*get)(struct neap_backend *backend, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
	           uint64_t *call_p);
	int (*set)(struct neap_backend *backend, const struct neap_backend_set *set, uint64_t timeout_ns, neap_backend_done_func *done,
	           void *user, uint64_t *call_p);
	/* To remove what is not there is success. */
	int (*remove)(struct neap_backend *backend, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
	              uint64_t *call_p);
	/* Is it there? And its lease, if lease_ns is not 0, begins anew. No value is brought. */
	int (*touch)(struct neap_backend *backend, const char *key, uint64_t lease_ns, uint64_t timeout_ns, neap_backend_done_func *done,
	             void *user, uint64_t *call_p);
	void (*cancel)(struct neap_backend *backend, uint64_t call);
	/* To be called before the get whose answer is to stay right: `changed` is called once, from a turn, when the value under the key may
	 * be another than a get that was begun later would have brought: it changed, or the back-end cannot tell any more. The watch has
	 * ended then. Our own sets need not be told. NEAP_EAGAIN: cannot watch at present (that is no reason to wait). */
	int (*watch)(struct neap_backend *backend, const char *key, struct neap_backend_watch *watch);
	/* Pending calls and watches end without callback. Frees it at the end of the turn. */
	void (*destroy)(struct neap_backend *backend);
};

/* The base of each. */
struct neap_backend {
	const struct neap_backend_ops *ops;
	const char *scheme; /* "P2PHANDSHAKE", "redis", ... */
	size_t value_max;   /* bytes */
	char where[320];    /* for messages: the server, without secrets */
	bool local;         /* on loopback: what is published there is for this machine alone */
};

static inline bool neap_backend_can(const struct neap_backend *backend, unsigned capability)
{
	return (backend->ops->capabilities & capability) == capability;
}
/* Ends a watch; harmless when it has ended. */
void neap_backend_unwatch(struct neap_backend_watch *watch);

/* --- opening (connection.c) ------------------------------------------------------------------------------------------- */

/* Texts are copied. */
struct neap_backend_options {
	const char *connection;     /* "redis://host:6379", "http://host:8080/metadata" */
	const char *redis_username; /* NULL or "": the default user */
	const char *redis_password; /* NULL or "": none is sent */
	uint32_t redis_database;
	const char *ca_file;        /* TLS: certificates to trust instead of the system's; NULL: the system's */
	const char *certificate_file, *key_file; /* TLS: our own, PEM; NULL: none is shown */
	const char *etcd_username, *etcd_password; /* NULL or "": no user */
	const char *prefix;         /* what all keys begin with; NULL: "mooncake/". What may be watched */
	uint32_t calls_max;         /* at once; 0 means 4096 */
};

/* What a connection string asks for: "P2PHANDSHAKE", "redis", "http", "https", "etcd", "rediss". NEAP_ENOTSUP for what is known and not
 * in this build, NEAP_EINVAL (*scheme_p NULL) for what is not known; `why` lists what there is. Pure. */
int neap_backend_scheme(const char *connection, const char **scheme_p, char *why, size_t why_size);

/* Opens one that has a server (not P2PHANDSHAKE). Nothing is sent yet. NEAP_EINVAL, NEAP_EADDRESS, NEAP_ENOTSUP, NEAP_ENOMEM, with
 * `why`. */
int neap_backend_open(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                      char *why, size_t why_size);

/* --- the watches of a back-end (watches.c) ----------------------------------------------------------------------------- */

/* Who wants to know of which key. A key is its hash here: that two keys share one makes a notice too many, never one too few. */
#define NEAP_WATCH_BUCKETS 1024u
struct neap_watches {
	struct neap_backend_watch *buckets[NEAP_WATCH_BUCKETS];
};
bool neap_watches_any(const struct neap_watches *watches, const char *key);
void neap_watches_add(struct neap_watches *watches, const char *key, struct neap_backend_watch *watch);
void neap_watches_tell(struct neap_watches *watches, const char *key, size_t length);
void neap_watches_tell_all(struct neap_watches *watches);
void neap_watches_drop_all(struct neap_watches *watches);
uint64_t neap_backend_hash(const char *text, size_t length); /* FNV-1a */

/* --- what back-ends have in common (connection.c) ------------------------------------------------------------------------ */

/* The pause after so many failures in a row: doubled with each up to the most, and a quarter more or less, so that a thousand clients do
 * not come back at once. */
uint64_t neap_backend_pause_ns(struct neap_reactor *reactor, uint32_t failures, uint64_t least_ns, uint64_t most_ns);

#endif
