/* The owner's side of the directory: tells it what values this process has, and keeps that right whatever happens to the directory or
 * the way to it. Machine: announcer.
 *
 * What is published or withdrawn waits in a bounded queue with one entry for each (key, segment): the last change counts, nothing cancels
 * anything. Batches go out one at a time; what failed goes again. A full queue loses nothing: a full announcement is owed then. So it is
 * after a lost connection, when the directory is another one, and when it asks for it: all values are walked, a page at a time, between
 * the begin and the end of a round, with the stamps that the directory gave them before.
 *
 * Heartbeats go each second beside all that. An owner that the directory does not know registers again. A value that another owner had
 * first is handed to `withdraw`.
 *
 * Works on any directory: a remote one (then call neap_announcer_renew from its `welcomed`) or the local one. Owner thread only. */
#ifndef NEAP_STORE_MASTER_ANNOUNCER_H
#define NEAP_STORE_MASTER_ANNOUNCER_H

#include "store/directory/key_directory.h"

struct neap_announcer;

/* One value on one segment. */
struct neap_announcement {
	struct neap_key_text key;
	struct neap_key_id segment;
	uint64_t size, generation; /* the generations of an owner grow: each value has another */
	uint32_t crc;
	bool has_crc;
};

/* Where a walk over all values is; begins zeroed. */
struct neap_announcer_cursor {
	uint64_t first, second;
};

struct neap_announcer_options {
	struct neap_key_directory directory;
	const char *at; /* HOST:PORT of the directory, for the log; NULL: not known; stays valid */
	struct neap_key_client client;
	uint64_t start;
	char host[NEAP_KEY_HOST_SIZE];
	uint16_t port;
	const struct neap_key_segment *segments; /* stay valid; at most 64 */
	uint32_t segment_count;
	/* The next value, false at the end; the key's text stays until the next call. What is there from begin to end of a walk is seen. */
	bool (*next)(void *user, struct neap_announcer_cursor *cursor, struct neap_announcement *value_p);
	/* This value of ours is not to be: another owner was first, or the directory will never take it (`why`, a number of the store). Remove
	 * it, unless it is gone already. From a turn; it may call neap_announcer_withdrawn. */
	void (*withdraw)(void *user, const struct neap_announcement *value, int why);
	/* Sets `used` (and `capacity`, when it changes) of each segment, in the order of `segments`. May be NULL. */
	void (*usages)(void *user, struct neap_key_usage *usages, uint32_t count);
	void *user;
	/* Zero means the default. */
	uint32_t batch_max;     /* items; 2000, the most there may be */
	uint32_t batch_bytes;   /* of keys in a batch; 1 MiB, at least 4096 */
	uint32_t queue_max;     /* entries; 65536 */
	uint32_t long_keys_max; /* of them with more than 88 bytes; 4096 */
	uint32_t stamps_max;    /* values whose stamps are kept; 1 Mi. One without is announced as if it were new */
	uint32_t gather_ms;     /* how long a change waits for others at most, when nobody asked for it; 20 */
	uint32_t heartbeat_ms;  /* 1000 */
	uint32_t call_ms;       /* deadline of each call; 5000 */
	uint32_t pause_min_ms, pause_max_ms; /* after a failure, doubling; 20, 1000 */
	uint32_t later_ms;      /* what the directory put off goes again after; 200 */
};

struct neap_announcer_stats {
	uint64_t registrations, batches, items, accepted, removed, put_off, lost, failed; /* failed: calls */
	uint64_t rounds_begun, rounds, overflows, replaced; /* replaced: entries by later changes */
	uint64_t beats, beats_failed;
	uint32_t queued, stamps;
	bool owes_all; /* a full announcement is owed or under way */
	bool registered;
	bool reached; /* the last heartbeat was answered */
};

/* NEAP_EINVAL, NEAP_ENOMEM, NEAP_ELIMIT. */
int neap_announcer_create(struct neap_announcer **announcer_p, struct neap_reactor *reactor,
                          const struct neap_announcer_options *options);
/* Registers and goes on for ever. */
void neap_announcer_start(struct neap_announcer *announcer);
/* Unregisters; `closed` once, from a turn: destroy it then, or there. Watches end with NEAP_ECLOSED before. */
void neap_announcer_close(struct neap_announcer *announcer, void (*closed)(void *user), void *user);
/* At once, without a word to anybody. */
void neap_announcer_destroy(struct neap_announcer *announcer);

/* A value can be read from now on; a value cannot be found any more. They note and post: safe inside actions of the owner. */
void neap_announcer_published(struct neap_announcer *announcer, const struct neap_announcement *value);
void neap_announcer_withdrawn(struct neap_announcer *announcer, struct neap_key_text key, struct neap_key_id segment,
                              uint64_t generation);

/* It is on `value->segment` from now on and was on `from`, in every other way the same. What the directory has accepted it has accepted,
 * whoever asks waits for the new route, and the old one goes only after the new one is there. */
void neap_announcer_moved(struct neap_announcer *announcer, const struct neap_announcement *value, struct neap_key_id from);

/* The connection was lost and made anew, or the directory is another: announce all. */
void neap_announcer_renew(struct neap_announcer *announcer);

/* "Is this value's route accepted?" The memory is the caller's, zeroed before the first use; key and all stay until the end. */
struct neap_announcer_watch {
	struct neap_key_text key;
	struct neap_key_id segment;
	uint64_t generation;
	uint64_t deadline_ns; /* absolute; required */
	/* Once, from a turn: OK; REPLICA_NUM_EXCEEDED, OBJECT_ALREADY_EXISTS, INVALID_KEY, ... (refused for good, the value goes);
	 * OBJECT_NOT_FOUND (withdrawn before); NEAP_ETIMEDOUT (not known yet; it is still being tried); NEAP_ECLOSED. */
	void (*done)(struct neap_announcer_watch *watch, int error);
	void *user;
	/* The announcer's. */
	struct neap_announcer *announcer;
	struct neap_announcer_watch *next, **slot;
	struct neap_timer timer;
	uint64_t hash;
	int error;
};
#define NEAP_ANNOUNCER_ACCEPTED 1
/* NEAP_ANNOUNCER_ACCEPTED: it is, and `done` is not called. 0: `done` will be. NEAP_ETIMEDOUT: it is not, and the deadline has passed;
 * NEAP_EINVAL, NEAP_ECLOSED. */
int neap_announcer_ask(struct neap_announcer *announcer, struct neap_announcer_watch *watch);
void neap_announcer_forget(struct neap_announcer_watch *watch); /* harmless when it has ended */
/* The directory, this one or one before it, has accepted this value. */
bool neap_announcer_knows(const struct neap_announcer *announcer, struct neap_key_text key, struct neap_key_id segment,
                          uint64_t generation);

void neap_announcer_stats(const struct neap_announcer *announcer, struct neap_announcer_stats *stats_p);
/* What does not hold, or NULL: for tests. */
const char *neap_announcer_check(const struct neap_announcer *announcer);

#endif
