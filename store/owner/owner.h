/* The owner: the values that this process holds, and who may reach their memory.
 *
 * A key is written once. A write is a reservation (a pending write, at most one a key), then bytes, then a commit. An accessor moves
 * the bytes itself under a grant with a lease (FORWARD: prewrite, commit, revoke; pin, unpin), or asks the owner to move them between a
 * tier and the accessor's granted buffers (REVERSE: pull, push). docs/LEASES.md has the rules and the reasons.
 *
 * Nothing here knows of RPCs, the directory, or time between machines. Owner thread only. Results are numbers of neap/store_error.h
 * unless a comment says otherwise. Keys and arguments are copied. */
#ifndef NEAP_STORE_OWNER_OWNER_H
#define NEAP_STORE_OWNER_OWNER_H

#include "store/tier/frequency.h"
#include "store/tier/tiers.h"
#include <neap/store.h>

#define NEAP_MOVE_SLICES_MAX NEAP_STORE_SLICES_MAX /* buffers of an accessor in one pull or push */

struct neap_owner;

/* A value, as others are told of it. The key is valid during the call that tells. */
struct neap_owner_value {
	struct neap_key key;
	uint64_t size, generation; /* generations of an owner grow: each of its values has another */
	uint32_t tier;             /* index */
	bool has_crc;
	uint32_t crc;
};

/* A tier on a disk below those in memory. Values reach it from memory only: before eviction would throw them away, and when they are asked
 * for often. docs/TIERS.md tells when a value moves. */
struct neap_owner_lower {
	uint32_t tier;       /* index */
	uint64_t largest;    /* bytes of the largest value that it takes */
	uint32_t moves_max;  /* values on their way between memory and the disk; default 256 */
	uint32_t down_max;   /* of them to the disk; default 16 */
	uint64_t pause_ns;   /* nothing goes down for so long after the disk refused or failed; default 1 s */
	uint64_t bring_ns;   /* how long anybody waits for a value to be read at most; default 10 s */
	uint32_t sketch_keys; /* keys whose frequency is estimated; default 65536 */
	struct neap_move_rules rules;
};

struct neap_owner_options {
	uint32_t shards;           /* power of two; default 1024 */
	uint64_t keys_max;         /* values and pending writes together; default 1 Mi */
	uint64_t key_bytes_max;    /* memory for keys; default 256 MiB */
	uint32_t writes_max;       /* pending ones, those being committed and in quarantine; default 65536 */
	uint32_t pins_max;         /* default 65536 */
	uint32_t moves_max;        /* default 4096 */
	uint64_t lease_ns;         /* of a write and of a pin; default 5 s (p2p_key_lease_duration_ms) */
	uint64_t scan_interval_ns; /* default 1 s (p2p_key_lease_scan_interval_ms) */
	uint64_t move_timeout_ns;  /* of one pull or push; default 30 s */
	uint32_t segments_max;     /* of accessors, kept open for moves; default 256 */
	uint64_t segment_idle_ns;  /* one that was not used for so long is closed; default 60 s */
	bool verify;               /* sum each value when it is committed, also when the accessor sent no crc */
	/* May be NULL. A value can be read from now on; a value cannot be found any more (removed or evicted). Called inside actions: they
	 * may note what they are told and post, not call back into the owner. */
	void (*published)(void *user, const struct neap_owner_value *value);
	void (*withdrawn)(void *user, const struct neap_owner_value *value);
	/* The value is read from another tier from now on, still the same otherwise. May be NULL: it is published there, then withdrawn
	 * here. */
	void (*moved)(void *user, const struct neap_owner_value *value, uint32_t from_tier);
	void *user;
	const struct neap_owner_lower *lower; /* NULL: all tiers are in memory. Copied; rules are as they are given */
};

/* Becomes the one whom `tiers` asks to let go of values. `engine` is a home engine; both outlive the owner. Numbers of neap/error.h. */
int neap_owner_create(struct neap_owner **owner_p, struct neap_engine *engine, struct neap_tiers *tiers,
                      const struct neap_owner_options *options);
/* No new operations. Reservations and pins end; `closed` comes from a turn when no peer can reach any memory and all values are gone. */
void neap_owner_close(struct neap_owner *owner, void (*closed)(void *user), void *user);
void neap_owner_destroy(struct neap_owner *owner); /* after `closed` */

/* --- FORWARD ------------------------------------------------------------------------------------------------------------ */

struct neap_write_grant {
	uint64_t write_id; /* write_operation_id; never 0 */
	void *address;
	uint64_t size;
	struct neap_grant_token token;
	uint64_t lease_ns; /* from now on; the accessor counts from when it sent the request */
};

struct neap_prewrite {
	struct neap_key key;
	uint64_t size;             /* bytes, > 0 */
	uint32_t tier;             /* index, or NEAP_TIER_ANY */
	uint64_t peer;             /* the caller's number for the accessor instance */
	const uint8_t *instance;   /* 16 bytes: only that engine may use the grant; NULL: any that knows it */
};

/* INVALID_PARAMS (empty or long key, size 0), REPLICA_IS_PROCESSING (*retry_after_ns_p: until its lease ends), OBJECT_ALREADY_EXISTS,
 * NO_AVAILABLE_HANDLE, TIER_NOT_FOUND (also: none is in memory), SHUTTING_DOWN. A tier on a disk is reached through memory. */
int neap_owner_prewrite(struct neap_owner *owner, const struct neap_prewrite *request, struct neap_write_grant *grant_p,
                        uint64_t *retry_after_ns_p);

struct neap_commit {
	struct neap_key key;
	uint64_t write_id, size;
	bool has_crc;
	uint32_t crc; /* crc32c of the whole value */
};

/* `done` once: OK with the generation, DATA_COPY_FAILED when the bytes are not what the crc says (the reservation is gone).
 * It is called only when this returns OK. A commit of an id that is committed already is
 * `done` with OK again, from inside the call. Refused: INVALID_PARAMS
 * (also a size that is not the reserved one), OBJECT_NOT_FOUND (no such pending write), LEASE_EXPIRED, INVALID_WRITE (another id),
 * REPLICA_IS_PROCESSING (this commit is under way). */
typedef void neap_committed_func(void *user, int error, uint64_t generation);
int neap_owner_commit(struct neap_owner *owner, const struct neap_commit *request, neap_committed_func *done, void *user);

/* `quiet`: the accessor says that nothing of it is under way, and nothing will be. OK when it was revoked, or there is no such write any
 * more. LEASE_EXPIRED: it had ended by itself. INVALID_WRITE: another write is pending, or this one is committed. REPLICA_IS_PROCESSING: is
 * being committed. */
int neap_owner_revoke(struct neap_owner *owner, const struct neap_key *key, uint64_t write_id, bool quiet);

/* Its accessor is gone. Nothing when the write has ended. */
void neap_owner_write_lost(struct neap_owner *owner, uint64_t write_id);

struct neap_read_grant {
	uint64_t read_id; /* read_operation_id; never 0, one for each reader */
	void *address;
	uint64_t size, generation;
	bool has_crc;
	uint32_t crc;
	struct neap_grant_token token;
	uint64_t lease_ns;
};

struct neap_pin {
	struct neap_key key;
	uint64_t peer;
	const uint8_t *instance;
};

/* INVALID_PARAMS, OBJECT_NOT_FOUND, UNAVAILABLE_IN_CURRENT_MODE (the value is in no memory: bring it first), NO_AVAILABLE_HANDLE
 * (pins_max, grants, or quarantine), SHUTTING_DOWN. Counts as an access. */
int neap_owner_pin(struct neap_owner *owner, const struct neap_pin *request, struct neap_read_grant *grant_p);
struct neap_value;
/* The same for a value in memory that the caller was told of (neap_owner_bring). */
int neap_owner_pin_value(struct neap_owner *owner, const struct neap_pin *request, const struct neap_value *value,
                         struct neap_read_grant *grant_p);
/* OK when it was unpinned, or there is no such pin any more; LEASE_EXPIRED: it is ending by itself; INVALID_READ: of another key. */
int neap_owner_unpin(struct neap_owner *owner, const struct neap_key *key, uint64_t read_id);
void neap_owner_pin_lost(struct neap_owner *owner, uint64_t read_id);

/* --- REVERSE, and local ------------------------------------------------------------------------------------------------- */

/* A buffer of an accessor. */
struct neap_remote_slice {
	const char *segment; /* engine name; NULL: this process */
	uint64_t address, length;
	struct neap_grant_token token; /* segment NULL: none is needed */
};

struct neap_move {
	struct neap_key key;
	const struct neap_remote_slice *slices; /* all of one segment */
	uint32_t count;                         /* 1..NEAP_MOVE_SLICES_MAX */
	const uint8_t *instance;                /* 16 bytes: the process that the segment must be of; NULL: whoever has it */
	uint32_t tier;                          /* of a pull: index or NEAP_TIER_ANY */
	bool sum;                               /* of a pull: sum it in any case */
	bool has_crc;                           /* of a pull: what the value must be */
	uint32_t crc;
};

struct neap_moved {
	int error;
	struct neap_outcome outcome; /* of the first request that failed, when error is TRANSFER_FAIL */
	uint64_t size, generation;
	bool has_crc;
	uint32_t crc;
	bool held; /* a byte may still move; `released` follows */
};

/* Reads the value from the accessor's buffers and commits it. `done` once, from a turn, when this returns OK: OK, TRANSFER_FAIL,
 * DATA_COPY_FAILED, ILLEGAL_CLIENT (the segment is another process's). Refused as prewrite. `released` (may be NULL) once after a `done`
 * with held. */
int neap_owner_pull(struct neap_owner *owner, const struct neap_move *request,
                    void (*done)(void *user, const struct neap_moved *moved), void (*released)(void *user), void *user,
                    uint64_t *retry_after_ns_p);

/* Writes the value into the accessor's buffers, which together must be exactly as long; one that lies on a disk is read first. Refused:
 * INVALID_PARAMS, OBJECT_NOT_FOUND, NO_AVAILABLE_HANDLE, ... */
int neap_owner_push(struct neap_owner *owner, const struct neap_move *request,
                    void (*done)(void *user, const struct neap_moved *moved), void (*released)(void *user), void *user);

/* --- values ------------------------------------------------------------------------------------------------------------- */

struct neap_value {
	struct neap_handle *handle; /* held for the caller: neap_handle_drop */
	void *address;              /* NULL: not in memory */
	uint64_t size, generation;
	bool has_crc;
	uint32_t crc;
};

/* For small values and local readers: the value, held, wherever it lies. OBJECT_NOT_FOUND, SHUTTING_DOWN. Counts as an access. */
int neap_owner_hold(struct neap_owner *owner, const struct neap_key *key, struct neap_value *value_p);

/* Somebody who needs a value in memory that lies on a disk. The memory is the caller's until `brought`; zeroed before the first use. */
struct neap_bring {
	/* Once, from a turn. OK: the value, held for as long as the call runs, whether or not it stays in memory afterwards. OBJECT_NOT_FOUND
	 * (removed meanwhile, or the disk has lost it), UNAVAILABLE_IN_CURRENT_MODE (the disk did not answer in time), SHUTTING_DOWN. */
	void (*brought)(struct neap_bring *bring, int error, const struct neap_value *value);
	uint64_t deadline_ns; /* absolute; 0: bring_ns from now */
	/* The owner's. */
	struct neap_owner *owner;
	struct neap_bring *next, **slot;
	struct neap_timer timer;
};
/* All who ask for one key wait for one read. Refused: OBJECT_NOT_FOUND, NO_AVAILABLE_HANDLE (moves_max, or no room in memory),
 * UNAVAILABLE_IN_CURRENT_MODE (it is not on a disk), SHUTTING_DOWN. Counts as an access. */
int neap_owner_bring(struct neap_owner *owner, const struct neap_key *key, struct neap_bring *bring);
void neap_owner_bring_forget(struct neap_bring *bring); /* harmless when it has ended */

/* Copies a whole value in and commits it at once: for small ones that came inside a request. Errors as prewrite. */
struct neap_copy {
	struct neap_key key;
	const void *bytes;
	uint64_t size;
	uint32_t tier; /* index, or NEAP_TIER_ANY */
	bool has_crc;  /* known to be right: kept with the value */
	uint32_t crc;
};
int neap_owner_put_copy(struct neap_owner *owner, const struct neap_copy *request, uint64_t *generation_p, uint64_t *retry_after_ns_p);

/* What is known of a key. No access: what is looked up is not used. */
struct neap_key_facts {
	bool exists;       /* it has a value */
	bool pending;      /* it has none, and a write or a pull is under way */
	bool in_memory;    /* of the value */
	uint64_t write_id; /* of the write that put the value there, or is under way; 0: not a write by grant */
	uint64_t size, generation; /* of the value */
	uint32_t tier;             /* of the value: index */
	bool has_crc;
	uint32_t crc;
};
void neap_owner_look_up(struct neap_owner *owner, const struct neap_key *key, struct neap_key_facts *facts_p);

bool neap_owner_exists(const struct neap_owner *owner, const struct neap_key *key);
int neap_owner_remove(struct neap_owner *owner, const struct neap_key *key); /* OBJECT_NOT_FOUND */

/* Walks the values, a shard after the other: begin with a zeroed cursor, false at the end. What is there from begin to end is seen, some
 * of it perhaps twice; what is added or removed meanwhile may be seen or not. */
struct neap_owner_cursor {
	uint32_t shard, changes;
	uint64_t index;
};
bool neap_owner_next(const struct neap_owner *owner, struct neap_owner_cursor *cursor, struct neap_owner_value *value_p);

struct neap_owner_stats {
	uint64_t keys, bytes;                      /* values */
	uint32_t pending, committing, quarantined; /* writes */
	uint32_t pins, moves;
	uint64_t quarantined_bytes;
	uint64_t prewrites, commits, revokes, expired_writes, lost_writes, wrong_sums;
	uint64_t pinned, unpins, expired_pins, lost_pins;
	uint64_t pulls, pushes, failed_moves, pulled_bytes, pushed_bytes;
	uint64_t removed, evicted, refused_no_space;
	/* between memory and a disk; zero without one */
	uint64_t offloaded, offloaded_bytes; /* copies written */
	uint64_t onboarded, served_once;     /* values read: kept in memory, or for those who waited alone */
	uint64_t onboarded_bytes;            /* of both */
	uint64_t fell_back;                  /* evicted from memory, and still there below */
	uint64_t evicted_uncopied;           /* of `evicted`: from memory, because there was no time or room to write them */
	uint64_t too_large;                  /* of those: the tier below takes none that large */
	uint64_t copies_dropped;             /* below, while the value stayed in memory */
	uint64_t disk_full, disk_writes_failed, disk_reads_failed, wrong_copies, brings_late;
	uint64_t copies, copied_bytes;       /* now: values in memory that have one below */
	uint32_t going_down, going_up;       /* now */
};
void neap_owner_stats(const struct neap_owner *owner, struct neap_owner_stats *stats_p);

/* What does not hold, or NULL: counts of the index against records, handles and tiers. For tests and debug builds. */
const char *neap_owner_check(const struct neap_owner *owner);

#endif
