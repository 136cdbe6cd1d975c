/* The store: keys and values of a cluster of processes. A process that opens one can hold values for others (when it has tiers), and
 * put and get values wherever they lie. Keys are written once: the first writer wins, a value never changes until it is removed or evicted.
 *
 *     neap_reactor_create → neap_engine_create → neap_store_create → ready → put, get → … → neap_store_close
 *
 * Who moves the bytes:
 *   REVERSE  the owner, out of or into our buffers; values of up to 16 KiB travel inside the call
 *   FORWARD  we, into or out of the owner's memory, under a lease
 *
 * Every call is made on the engine's reactor thread. No call waits; no callback comes from inside a call; every accepted operation ends
 * exactly once. docs/STORE.md tells what outcomes mean, docs/LEASES.md what protects memory, docs/OPERATING.md the settings.
 *
 * Functions return 0 or a number of neap/error.h. Outcomes carry numbers of neap/store_error.h, or NEAP_ETIMEDOUT, NEAP_ECANCELED,
 * NEAP_EAGAIN, NEAP_ECLOSED. */
#ifndef NEAP_STORE_H
#define NEAP_STORE_H

#include <neap/engine.h>
#include <neap/metrics.h>
#include <neap/store_error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct neap_store;

#define NEAP_KEY_MAX 4096u          /* bytes of a key; a master may allow less (1024 unless it was told otherwise) */
#define NEAP_STORE_SLICES_MAX 64u   /* pieces of memory of one put or get */
#define NEAP_STORE_INSTANCE_BYTES 16u
#define NEAP_STORE_ADDRESS_SIZE 272u /* of "host:port" texts, with the end */

struct neap_key {
	const char *bytes; /* any bytes */
	uint32_t length;   /* 1..NEAP_KEY_MAX */
};

/* A piece of the caller's memory. */
struct neap_slice_of {
	void *address;
	uint64_t length; /* > 0 */
};

enum neap_direction {
	NEAP_DIRECTION_DEFAULT, /* of the process */
	NEAP_REVERSE,
	NEAP_FORWARD,
};

/* --- a store ------------------------------------------------------------------------------------------------------------ */

/* How places for new values are chosen; the names and defaults of Mooncake Store V3. */
enum neap_store_strategy { NEAP_STORE_CAPACITY_PRIORITY, NEAP_STORE_ORDERED, NEAP_STORE_RANDOM };

struct neap_store_placement {
	uint32_t candidates_max;      /* 0: 2 */
	enum neap_store_strategy strategy;
	double remote_weight;         /* 0..1: of others; our own is 1 less that. 0: all values stay here. 1: none does. Default 0.5 */
	double local_write_waterline; /* 0..1: below this use of our own tiers a value stays here without a question. Default 0.5 */
	bool set;                     /* the two above are meant, also when they are 0: not both 0, nor both 1, which leaves no place */
	bool any_tier;                /* count all tiers of an owner, not only its best ones */
	int32_t priority_limit;       /* tiers below do not count */
	uint32_t tag_count;           /* tiers with one of these tags do not count */
	const char *const *tags;      /* at most 8, of up to 31 bytes */
};

/* Zero means the default in every field. A value out of range is NEAP_EINVAL, and `why` has the range. Texts are copied. */
struct neap_store_options {
	const char *master;          /* "host:port" of neap-master; NULL: this process is a cluster of its own */
	const char *host;            /* where others reach us; default: that of the engine's local_name */
	const char *bind_address;    /* numeric; default: `host` when it is numeric, else 127.0.0.1 */
	uint16_t rpc_port;           /* where peers call us; 0: any */
	const char *tiers;           /* JSON, docs/TIERS.md; NULL: holds no values */
	uint64_t lease_ms;           /* of a write and of a pin; 5000 (p2p_key_lease_duration_ms); 100..3600000 */
	uint64_t scan_interval_ms;   /* 1000 (p2p_key_lease_scan_interval_ms); 1..60000 */
	uint32_t lock_shards;        /* tables of keys, a power of two; 1024; at most 65536 */
	uint64_t keys_max;           /* values held here; 1 Mi */
	enum neap_direction direction; /* of operations that name none; REVERSE */
	struct neap_store_placement placement;
	uint32_t inline_max;         /* values that travel inside a call; 16 KiB; at most 64 KiB */
	bool no_inline;
	bool verify;                 /* crc32c of every value: kept, and looked at when it is committed and when it is read */
	bool early;                  /* a put ends when the owner has committed: the directory may not know yet */
	uint32_t operations_max;     /* puts and gets under way; 4096 */
	uint64_t deadline_ms;        /* of an operation that names none; 30000 */
	uint64_t route_cache_bytes;  /* 32 MiB */
	uint64_t route_cache_ttl_ms; /* 60000 */
	uint32_t heartbeat_ms;       /* 1000; 10..60000 */

	/* Once, from a turn: the master knows us (0), or it was not reached for 5 s and we go on trying (NEAP_EPEER). May be NULL.
	 * Operations are accepted before. */
	void (*ready)(void *user, int error, const char *why);
	void *user;
};

/* Registers the tiers' memory with the engine, binds the port, and begins to register with the master. The engine outlives the store.
 * On failure *store_p is NULL and `why` (may be NULL) says what and what to do. */
NEAP_API int neap_store_create(struct neap_store **store_p, struct neap_engine *engine, const struct neap_store_options *options,
                               char *why, size_t why_size);
/* Takes nothing new from peers, and leaves the master, so that nobody is sent here any more; what peers have begun goes on, with its
 * deadlines. `drained` once, from a turn, when nothing of peers is under way, or the deadline passed (NEAP_ETIMEDOUT). */
NEAP_API int neap_store_drain(struct neap_store *store, uint64_t deadline_ms, void (*drained)(void *user, int error), void *user);
/* Our operations end with NEAP_ECANCELED, values held here go. `closed` once, from a turn: no peer can reach any memory of the store, and
 * the pointer is dead. Allowed from callbacks. Then neap_engine_close; or neap_reactor_stop, which does both. */
NEAP_API int neap_store_close(struct neap_store *store, void (*closed)(void *user), void *user);

NEAP_API struct neap_engine *neap_store_engine(const struct neap_store *store);
NEAP_API uint16_t neap_store_rpc_port(const struct neap_store *store);

enum neap_store_health {
	NEAP_STORE_FULL,       /* the master knows us and all that we hold */
	NEAP_STORE_SYNCING,    /* it is being told */
	NEAP_STORE_DEGRADED,   /* it is not reached: what is here or remembered can be got; puts become UNKNOWN */
	NEAP_STORE_LOCAL_ONLY, /* there is none, or we have left it */
	NEAP_STORE_DRAINING,
};
NEAP_API enum neap_store_health neap_store_health(const struct neap_store *store);
NEAP_API const char *neap_store_health_name(enum neap_store_health health); /* "FULL" */

/* --- outcomes ----------------------------------------------------------------------------------------------------------- */

enum neap_store_status {
	NEAP_STORE_SUCCESS, /* the value is there: created by this operation, or another's that is not known to differ */
	NEAP_STORE_FAILED,  /* put: it will never become visible through this operation. get: nothing can be said about the buffer */
	NEAP_STORE_UNKNOWN, /* put: whether it was committed could not be learnt in time; neap_store_resolve settles it */
};

/* An owner, as others reach it. */
struct neap_place {
	uint8_t instance[NEAP_STORE_INSTANCE_BYTES]; /* of its engine; its RPC server shows the same. Not all zero */
	char rpc[NEAP_STORE_ADDRESS_SIZE];           /* "host:port" */
	char engine[NEAP_STORE_ADDRESS_SIZE];        /* the engine's published name; "": the owner is asked when it is needed */
};

/* What is to be asked, of whom, about an UNKNOWN put. Keep it as it is. */
struct neap_unsettled {
	struct neap_place place;
	uint64_t write_id; /* 0: the owner gave none (REVERSE) */
	uint64_t size;
	uint64_t until_ns; /* without a write id: before this time the call may still be executed */
	bool has_crc;
	uint32_t crc;
};

struct neap_store_outcome {
	enum neap_store_status status;
	int error;        /* 0, or why: neap_store_error_text knows all of them */
	bool created;     /* put */
	bool has_crc;
	bool held;        /* the transport may still touch the slices: `released` follows */
	bool stopped;     /* by its deadline or its caller: it might have gone better with more time */
	bool local;       /* the value lies in this process */
	uint32_t crc;     /* crc32c of the value */
	uint64_t size;    /* of the value; get with BUFFER_OVERFLOW: what it needs */
	uint64_t generation;
	uint64_t retry_after_ms;                /* FAILED: when the owner said so */
	const struct neap_place *place;         /* the last owner spoken to; NULL: none. Valid in the callback, as the two below */
	const struct neap_unsettled *unsettled; /* UNKNOWN */
	const char *why;                        /* "" with SUCCESS */
};

typedef void neap_store_done_func(void *user, const struct neap_store_outcome *outcome);

/* --- put and get -------------------------------------------------------------------------------------------------------- */

/* Zero means the default in every field; options may be NULL. */
struct neap_put_options {
	enum neap_direction direction;
	uint32_t candidates_max; /* owners tried; 0: all that the directory names, at most 4 */
	uint64_t deadline_ns;    /* from now */
	bool has_crc;            /* crc32c of the value, known to the caller */
	uint32_t crc;
	bool checksum;           /* it is summed here; as with `verify` */
	void (*released)(void *user); /* after an outcome with `held`; may be NULL */
};

struct neap_get_options {
	enum neap_direction direction;
	uint32_t replicas_max;
	uint64_t deadline_ns;
	bool verify, no_verify;  /* no_verify wins, also over the process's */
	void (*released)(void *user);
};

typedef uint64_t neap_operation_id;

/* Key and slices are copied, the memory is not: it stays with the store until the outcome, and if that says `held`, until `released`.
 * Except for values that travel inside the call, it must be registered with the engine and not CLOSED; GRANT_ONLY is what it should be.
 * *operation_p may be NULL. NEAP_EINVAL (key, slices, their number, options), NEAP_EAGAIN (operations_max), NEAP_ECLOSED. */
NEAP_API int neap_store_put(struct neap_store *store, const struct neap_key *key, const struct neap_slice_of *slices, uint32_t count,
                            const struct neap_put_options *options, neap_store_done_func *done, void *user,
                            neap_operation_id *operation_p);
/* The slices together may be longer than the value. */
NEAP_API int neap_store_get(struct neap_store *store, const struct neap_key *key, const struct neap_slice_of *slices, uint32_t count,
                            const struct neap_get_options *options, neap_store_done_func *done, void *user,
                            neap_operation_id *operation_p);
/* It ends CANCELED from a later turn, unless it ends otherwise: what has been committed meanwhile is. Harmless when it has ended. */
NEAP_API void neap_store_cancel(struct neap_store *store, neap_operation_id operation);
/* Asks the owner what became of a put: SUCCESS (`created` when the value is known to be of that write), FAILED, or still UNKNOWN. */
NEAP_API int neap_store_resolve(struct neap_store *store, const struct neap_key *key, const struct neap_unsettled *unsettled,
                                uint64_t deadline_ns, neap_store_done_func *done, void *user, neap_operation_id *operation_p);

struct neap_batch_item {
	struct neap_key key;
	const struct neap_slice_of *slices;
	uint32_t count;
	void *user;
};

struct neap_store_batch_options {
	uint32_t concurrency; /* at once; 0: 64 */
	struct neap_put_options put; /* of a put batch; `released` is not looked at */
	struct neap_get_options get; /* of a get batch */
	/* Once for each item; its outcome is never `held`: it is told when the transport has let go. */
	void (*done)(void *user, uint32_t index, void *item_user, const struct neap_store_outcome *outcome);
	/* Once, after all. `succeeded` of them. */
	void (*finished)(void *user, uint32_t succeeded, uint32_t count);
	void *user;
};

/* `items`, keys and slices stay with the store until `finished`. The deadline of options counts from here for all. An item that is not
 * well formed fails alone (INVALID_PARAMS). NEAP_EINVAL (count 0), NEAP_EAGAIN (too many batches), NEAP_ECLOSED. */
NEAP_API int neap_store_put_batch(struct neap_store *store, const struct neap_batch_item *items, uint32_t count,
                                  const struct neap_store_batch_options *options, uint64_t *batch_p);
NEAP_API int neap_store_get_batch(struct neap_store *store, const struct neap_batch_item *items, uint32_t count,
                                  const struct neap_store_batch_options *options, uint64_t *batch_p);
/* What runs is canceled, what has not begun fails with NEAP_ECANCELED. */
NEAP_API void neap_store_cancel_batch(struct neap_store *store, uint64_t batch);

/* --- keys --------------------------------------------------------------------------------------------------------------- */

/* The deadlines below, as that of neap_store_resolve, count from now; 0: the store's `deadline_ms`. */

struct neap_store_replica {
	struct neap_place place; /* `engine` is "" */
	uint64_t size, generation;
	bool has_crc;
	uint32_t crc;
	int32_t priority;        /* of its tier */
	bool in_memory, local;
};

/* What the cluster knows of a key: 0 with its replicas, OBJECT_NOT_FOUND, REPLICA_IS_NOT_READY (the directory cannot say yet). */
typedef void neap_store_stat_func(void *user, int error, const struct neap_store_replica *replicas, uint32_t count, const char *why);
NEAP_API int neap_store_stat(struct neap_store *store, const struct neap_key *key, uint64_t deadline_ns, neap_store_stat_func *done,
                             void *user);

/* Which of many keys exist: `found[i]` 1, 0, or -1 (not known; `error` has a reason). At most NEAP_STORE_EXIST_MAX keys, copied. */
#define NEAP_STORE_EXIST_MAX 1000u
typedef void neap_store_exist_func(void *user, int error, const int8_t *found, uint32_t count);
NEAP_API int neap_store_exist(struct neap_store *store, const struct neap_key *keys, uint32_t count, uint64_t deadline_ns,
                              neap_store_exist_func *done, void *user);

/* Removes a key at all its owners: 0 with how many replicas went; OBJECT_NOT_FOUND; or the last error, and how many went nevertheless.
 * Readers that have begun keep the bytes until they have ended or their lease has. */
typedef void neap_store_removed_func(void *user, int error, uint64_t removed, const char *why);
NEAP_API int neap_store_remove(struct neap_store *store, const struct neap_key *key, uint64_t deadline_ns, neap_store_removed_func *done,
                               void *user);
/* Removes all keys that match the pattern (docs/DIRECTORY.md has the syntax; linear time), "" for all, of the whole cluster. `removed`
 * counts keys. Keys put meanwhile may be seen or not. REPLICA_IS_NOT_READY: the master recovers and does not know all keys yet; those it
 * knew are gone, say it again later. NEAP_EAGAIN: another one runs. */
NEAP_API int neap_store_remove_matching(struct neap_store *store, const char *pattern, uint64_t deadline_ns,
                                        neap_store_removed_func *done, void *user);

/* Keys that match, a page at a time: begin with cursor 0, go on with `next` until it is 0. REPLICA_IS_NOT_READY comes with the keys that
 * are known: the master recovers, there may be more. */
typedef void neap_store_listed_func(void *user, int error, const struct neap_key *keys, uint32_t count, uint64_t next, const char *why);
NEAP_API int neap_store_list(struct neap_store *store, const char *pattern, uint64_t cursor, uint64_t deadline_ns,
                             neap_store_listed_func *done, void *user);

/* --- figures ------------------------------------------------------------------------------------------------------------ */

/* All metrics of the store, from inside the call; `help` tells what each is. */
NEAP_API void neap_store_metrics(const struct neap_store *store, neap_metric_func *each, void *user);

struct neap_store_numbers { /* the most wanted ones */
	uint64_t keys, bytes, capacity_bytes, used_bytes, quarantined_bytes; /* held here */
	uint32_t pending_writes, pins, quarantined_writes, operations;       /* now */
	uint64_t puts, gets, hits, misses;                                   /* ended ones of our own */
	uint64_t evicted, expired_writes, expired_pins, retries;
};
NEAP_API void neap_store_numbers(const struct neap_store *store, struct neap_store_numbers *numbers_p);

/* What does not hold, or NULL: for tests and debug builds. */
NEAP_API const char *neap_store_check(const struct neap_store *store);

#ifdef __cplusplus
}
#endif
#endif
