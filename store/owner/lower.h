/* The tier on a disk below those in memory: when values go there and come back (lower.c), and how (tier_move.c). */
#ifndef NEAP_STORE_OWNER_LOWER_H
#define NEAP_STORE_OWNER_LOWER_H

#include "store/owner/inside.h"

struct neap_lower_stats {
	uint64_t offloaded, offloaded_bytes, onboarded, served_once, onboarded_bytes, fell_back, evicted_uncopied, too_large, copies_dropped;
	uint64_t disk_full, disk_writes_failed, disk_reads_failed, wrong_copies, brings_late;
};

struct neap_lower {
	struct neap_owner_lower options; /* with defaults filled in */
	struct neap_pool moves;
	struct neap_reactor_class *class_;
	struct neap_frequency frequency;
	/* By tier in memory, rounded: of values that have a copy below, and of those being written. */
	uint64_t copied_bytes[NEAP_TIERS_MAX], going_bytes[NEAP_TIERS_MAX];
	uint64_t copies, copied_all;
	uint64_t disk_bytes;             /* rounded, on the disk: of copies, and of what is being written */
	uint32_t looked[NEAP_TIERS_MAX]; /* objects looked at since one was found that can go down */
	uint32_t down;                   /* moves to the disk */
	uint32_t spared;                 /* uncopied ones passed over since something was evicted from memory */
	uint64_t not_before_ns;          /* nothing goes down */
	bool told_full, told_write, told_read; /* logged */
	struct neap_lower_stats stats;
};

struct neap_tier_move {
	struct neap_machine machine;
	struct neap_owner *owner;
	struct neap_key_entry *entry;        /* NULL: its value went meanwhile */
	struct neap_handle *memory, *disk;   /* held */
	struct neap_bring *waiters;
	struct neap_sum sum;
	bool up;
};

/* --- lower.c */

int neap_lower_create(struct neap_owner *owner, const struct neap_owner_lower *options);
void neap_lower_destroy(struct neap_owner *owner); /* also when there is none */
void neap_lower_close(struct neap_owner *owner);
/* Background work: what goes down, what the watermarks ask for. True: there is more. */
bool neap_lower_tend(struct neap_owner *owner, uint32_t steps);
/* Time has passed, or something has changed: what could not go down is looked at again. */
void neap_lower_again(struct neap_owner *owner);
void neap_lower_access(struct neap_owner *owner, struct neap_key_entry *entry);
/* Eviction has chosen this handle. True: the value itself is to go. */
bool neap_lower_lets_go(struct neap_owner *owner, struct neap_key_entry *entry, struct neap_handle *handle);
/* The value is going: its copy goes, and what moves it stops. */
void neap_lower_forget(struct neap_owner *owner, struct neap_key_entry *entry);
/* Its copy is complete; the reference goes to the index. */
void neap_lower_has_copy(struct neap_owner *owner, struct neap_key_entry *entry, struct neap_handle *disk);
/* Whether what was read is worth a place in memory, `bytes` of which it has already. */
bool neap_lower_keeps(const struct neap_owner *owner, const struct neap_key_entry *entry, const struct neap_handle *memory);
/* From now on the value is in memory, and where it was is its copy. */
void neap_lower_raise(struct neap_owner *owner, struct neap_key_entry *entry, struct neap_handle *memory);
void neap_lower_pause(struct neap_owner *owner);
void neap_lower_count(const struct neap_owner *owner, struct neap_owner_stats *stats_p);
const char *neap_lower_check(const struct neap_owner *owner, uint64_t copies);
static inline uint32_t neap_lower_moves(const struct neap_owner *owner)
{
	return owner->lower ? owner->lower->moves.used : 0;
}

/* --- tier_move.c */

extern const struct neap_machine_kind neap_tier_move_kind;
/* Of a value in memory without a copy: false, not now. */
bool neap_tier_move_down(struct neap_owner *owner, struct neap_key_entry *entry);
/* neap_owner_bring, but no access. */
int neap_lower_bring(struct neap_owner *owner, const struct neap_key *key, struct neap_bring *bring);
/* The value goes: the entry and its move have nothing to do with one another any more. */
void neap_tier_move_gone(struct neap_tier_move *move);
void neap_tier_moves_close(struct neap_owner *owner);

#endif
