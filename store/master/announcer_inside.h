/* The announcer from inside: announcer.c (machine, calls, answers), announcer_queue.c (changes that wait), announcer_stamps.c (what was
 * accepted, and who asks), announcer_beat.c (heartbeats). */
#ifndef NEAP_STORE_MASTER_ANNOUNCER_INSIDE_H
#define NEAP_STORE_MASTER_ANNOUNCER_INSIDE_H

#include "reactor/pool.h"
#include "store/master/announcer.h"
#include "store/master/announcer_fsm.h"
#include "store/master/codec.h"

#define ANNOUNCER_KEY_MAX 4096u
#define ANNOUNCER_INLINE 88u

enum announcer_place { ANNOUNCER_WAITING, ANNOUNCER_LATER, ANNOUNCER_SENT, ANNOUNCER_PLACES };

/* The last change of a (key, segment) that the directory does not have yet. */
struct announcer_entry {
	struct announcer_entry *in_bucket, *next, *previous;
	struct neap_announcement value; /* its key's text lies in `text` or `long_text` */
	uint64_t hash;
	enum neap_key_change_kind kind;
	enum announcer_place place;
	bool again; /* changed since it was sent */
	bool follows; /* a removal that waits until the same value is announced on segment `to` */
	struct neap_key_id to;
	char *long_text;
	char text[ANNOUNCER_INLINE];
};

struct announcer_list {
	struct announcer_entry *first, *last;
	uint32_t count;
};

struct announcer_queue {
	struct neap_pool entries, long_texts;
	struct announcer_entry **buckets;
	uint32_t bucket_mask;
	struct announcer_list places[ANNOUNCER_PLACES];
};

/* generation 0: free. */
struct announcer_stamp {
	uint64_t hash, generation;
	struct neap_key_stamp stamp;
};

struct announcer_stamps {
	struct announcer_stamp *slots;
	uint32_t mask, used, max;
};

/* What one heartbeat may be told of lost values: more comes with the next. */
#define LOST_A_BEAT 64u
#define LOST_TEXT_A_BEAT 8192u

struct announcer_beat {
	struct neap_timer timer;
	struct neap_key_call call;
	struct neap_key_usage usages[NEAP_MASTER_SEGMENTS_MAX];
	struct neap_key_lost lost[LOST_A_BEAT];
	char lost_text[LOST_TEXT_A_BEAT];
	uint64_t registrations, rounds; /* when it was sent: what it says of an earlier time is passed over */
	bool under_way, begun;
};

struct neap_announcer {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_reactor *reactor;
	struct neap_announcer_options options;
	struct neap_announcer_stats stats;
	struct announcer_queue queue;
	struct announcer_stamps stamps;
	struct announcer_beat beat;
	uint64_t seed;

	struct neap_key_call call; /* of the machine; one at a time */
	bool under_way;
	struct neap_key_change *changes; /* batch_max, of the call */
	bool *walked;                    /* of each: it comes from the walk, not from the queue */
	char *text;                      /* batch_bytes: the keys of the call */
	uint32_t text_used, count;

	uint64_t epoch, number;
	uint32_t round, failures;
	struct neap_announcer_cursor cursor, cursor_before; /* of the walk; and when the batch under way was filled */
	bool exhausted; /* the walk is through */
	bool unknown;   /* the directory does not know us: register */
	bool owed;      /* a full announcement */
	bool urgent;    /* someone waits for something in the queue */
	uint64_t round_after_ns;
	int complained_of; /* the last error that was logged, and when it may be again */
	uint64_t quiet_until_ns;

	struct neap_timer later;
	bool later_runs;
	struct neap_announcer_watch **watches; /* buckets */
	uint32_t watch_mask;
	struct neap_announcer_watch *ended;
	struct neap_ready look;
	struct neap_dependent dependent;
	struct neap_reap reap;
	void (*closed)(void *user);
	void *closed_user;
	bool leaving, left, gone; /* closing; that has ended; destroyed */
};

/* --- announcer.c */
/* Looks in a turn soon whether the machine has something to do. */
void announcer_look(struct neap_announcer *announcer);
void announcer_owe(struct neap_announcer *announcer);
/* The directory does not know us. */
void announcer_stranger(struct neap_announcer *announcer);
/* Logs what the directory does not do for us: at once, and then each minute, for it is tried every second at least. */
void announcer_complain(struct neap_announcer *announcer, const char *what_not, int error);
/* It does again. */
void announcer_relieved(struct neap_announcer *announcer);
static inline uint64_t announcer_after(const struct neap_announcer *announcer, uint32_t ms)
{
	return neap_now(announcer->reactor) + ms * UINT64_C(1000000);
}

/* --- announcer_queue.c */
int announcer_queue_open(struct neap_announcer *announcer);
void announcer_queue_close(struct neap_announcer *announcer);
uint64_t announcer_hash(const struct neap_announcer *announcer, struct neap_key_text key, struct neap_key_id segment);
struct announcer_entry *announcer_find(const struct neap_announcer *announcer, uint64_t hash, struct neap_key_text key,
                                       struct neap_key_id segment);
/* NULL: there is no room; a full announcement is owed then. */
struct announcer_entry *announcer_add(struct neap_announcer *announcer, uint64_t hash, const struct neap_announcement *value,
                                      enum neap_key_change_kind kind, enum announcer_place place);
void announcer_move(struct neap_announcer *announcer, struct announcer_entry *entry, enum announcer_place place);
void announcer_drop(struct neap_announcer *announcer, struct announcer_entry *entry);
/* What was put off waits again. */
void announcer_put_off(struct neap_announcer *announcer);

/* --- announcer_stamps.c */
int announcer_stamps_open(struct neap_announcer *announcer);
void announcer_stamps_close(struct neap_announcer *announcer);
const struct announcer_stamp *announcer_stamp_of(const struct neap_announcer *announcer, uint64_t hash, uint64_t generation);
void announcer_stamp_keep(struct neap_announcer *announcer, uint64_t hash, uint64_t generation, struct neap_key_stamp stamp);
void announcer_stamp_forget(struct neap_announcer *announcer, uint64_t hash, uint64_t generation);
/* Those who ask for this value ask for it there from now on. */
void announcer_redirect(struct neap_announcer *announcer, const struct neap_announcement *value, struct neap_key_id from);
/* Those who ask for this value, or with `older` for one before it too, are told. */
void announcer_tell(struct neap_announcer *announcer, uint64_t hash, struct neap_key_text key, struct neap_key_id segment,
                    uint64_t generation, bool older, int error);
void announcer_tell_all(struct neap_announcer *announcer, int error);
/* Calls back those who were told. */
void announcer_run_ended(struct neap_announcer *announcer);

/* --- announcer_beat.c */
void announcer_beat_begin(struct neap_announcer *announcer);
void announcer_beat_end(struct neap_announcer *announcer);

#endif
