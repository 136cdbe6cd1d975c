/* What to throw away when a tier fills up: SIEVE (Zhang et al., NSDI'24) over the objects of one tier.
 *
 * New objects come in at one end; an access sets a mark and moves nothing; a hand walks from the oldest to the newest, takes
 * marks away and evicts what has none. Objects someone holds are passed over, and the newest eighth is let alone as long as the others have
 * something to give: who has just put a value finds it. Links lie in the objects, nothing is allocated, and a call does at most as many
 * steps as it was given, so that a large eviction is many short pieces of work. Owner thread only. */
#ifndef NEAP_STORE_TIER_EVICT_H
#define NEAP_STORE_TIER_EVICT_H

#include <stdbool.h>
#include <stdint.h>

struct neap_evict;

struct neap_evict_entry {
	struct neap_evict_entry *newer, *older;
	struct neap_evict *queue; /* NULL: in none */
	uint32_t pins;            /* holders beside the index; not chosen while there is one */
	bool marked;              /* accessed since the hand came by */
	uint64_t born;            /* how many were inserted before it */
};

/* Lets go of the object, and with it of the entry, and returns the bytes that are free in the tier now because of it: 0 for an
 * object that stays, or whose bytes are still held. May insert and remove other entries, may not run the eviction. */
typedef uint64_t neap_evict_func(void *user, struct neap_evict_entry *entry);

struct neap_evict_stats {
	uint64_t evicted, evicted_bytes, refused, steps;
};

struct neap_evict {
	struct neap_evict_entry *newest, *oldest, *hand;
	struct neap_evict_entry *scout; /* walks ahead of the hand; see neap_evict_ahead */
	uint32_t count, pinned;
	uint64_t inserted;   /* ever */
	uint64_t fruitless;  /* steps since something was evicted, inserted or unpinned */
	bool filling;        /* the high mark was passed, and the low one not reached again */
	bool running;
	bool kept;           /* the newest was passed over because it is the newest */
	double low, high;    /* shares of the capacity */
	neap_evict_func *evict;
	void *user;
	struct neap_evict_stats stats;
};

#define NEAP_EVICT_LOW 0.70
#define NEAP_EVICT_HIGH 0.90

/* 0 < low <= high <= 1 */
void neap_evict_init(struct neap_evict *queue, double low, double high, neap_evict_func *evict, void *user);

/* The entry is zeroed, or has the pins it had. Not marked: only what is used again stays for long. */
void neap_evict_insert(struct neap_evict *queue, struct neap_evict_entry *entry);
void neap_evict_remove(struct neap_evict_entry *entry); /* nothing when it is in no queue */

static inline void neap_evict_access(struct neap_evict_entry *entry)
{
	entry->marked = true;
}
void neap_evict_pin(struct neap_evict_entry *entry); /* counts as an access */
void neap_evict_unpin(struct neap_evict_entry *entry);

/* Bytes that should go now. Begins above the high mark and goes on until the low one. */
uint64_t neap_evict_wanted(struct neap_evict *queue, uint64_t used, uint64_t capacity);

/* What the hand will come to, the nearest first, each call one further; from the oldest again after the newest. NULL: at the end of a
 * round, or there is nothing. For those who want to do something about an object before it is chosen; changes nothing. */
struct neap_evict_entry *neap_evict_ahead(struct neap_evict *queue);

enum neap_evict_result {
	NEAP_EVICT_DONE,      /* `bytes` are free */
	NEAP_EVICT_MORE,      /* the steps are used up: call again */
	NEAP_EVICT_EXHAUSTED, /* all that is left is held, or the newest */
};
/* keep_newest: for the sake of a watermark the newest is not given; only a value that needs its room drives it out. *freed_p: what is
 * really free, as told by the function that freed it. */
enum neap_evict_result neap_evict_run(struct neap_evict *queue, uint64_t bytes, bool keep_newest, uint32_t steps, uint64_t *freed_p);

#endif
