/* Handles: who holds a piece of a tier, and when its bytes may go elsewhere.
 *
 * A handle is counted by its holders, on one core. When the last one lets go, its bytes are free again, unless a peer might
 * still reach them: then it stays in quarantine until someone who knows states a fact. Time frees nothing. The quarantine does
 * not know how facts come about; its owner does (a peer said that nothing is under way, a grant's end has passed its grace
 * period, a slab was registered anew, a peer's queue pairs are gone).
 *
 * Each way by which a peer can reach a handle is an exposure. It lies in the object that stands for it with the owner (a pending
 * write, a pin) and lives until it was ended. Owner thread only. */
#ifndef NEAP_STORE_TIER_HANDLE_H
#define NEAP_STORE_TIER_HANDLE_H

#include "reactor/pool.h"
#include "store/tier/dram.h"
#include "store/tier/evict.h"

struct neap_tier;
struct neap_handle;

/* Why no byte of it can be reached any more. */
enum neap_fact_kind {
	NEAP_FACT_QUIET,       /* the peer said: nothing posted, nothing will be */
	NEAP_FACT_GRANT_ENDED, /* its grant has ended, with the grace period */
	NEAP_FACT_SLAB_FENCED, /* the memory was taken from the transports; for a range of a tier */
	NEAP_FACT_PEER_FENCED, /* nothing of that peer can arrive any more; for a whole peer */
};

struct neap_fact {
	enum neap_fact_kind kind;
	const struct neap_tier *tier; /* SLAB_FENCED: handles that lie in the range as a whole */
	uint64_t offset, length;
	uint64_t peer; /* PEER_FENCED */
};

struct neap_exposure {
	struct neap_exposure *next, **slot;
	struct neap_handle *handle; /* NULL: not begun, or ended */
	uint64_t peer;              /* the owner's number for the peer */
	/* A fact about a slab or a peer ended it. May free the exposure, may not state facts. May be NULL. */
	void (*ended)(struct neap_exposure *exposure, enum neap_fact_kind fact);
};

enum neap_handle_phase { NEAP_HANDLE_RESERVED, NEAP_HANDLE_COMMITTED, NEAP_HANDLE_QUARANTINED };

struct neap_handle {
	struct neap_evict_entry entry; /* its pins are the references beyond the first */
	struct neap_tier *tier;
	struct neap_extent extent;
	uint32_t references;
	uint8_t phase;
	struct neap_exposure *exposures;
	struct neap_handle *next, **slot; /* in quarantine */
	void *object;                     /* the owner's: what goes when this is evicted */
};

struct neap_handles {
	struct neap_pool pool;
	struct neap_handle *quarantine;
	uint64_t quarantined_bytes, quarantine_limit;
	uint32_t quarantined;
	uint64_t quarantined_ever, released_ever, refused;
};

/* A read or a write has ended: 0 or FILE_READ_FAIL, FILE_WRITE_FAIL, with the system's errno. */
typedef void neap_tier_io_func(void *user, int error, int system_errno);

/* What a tier consists of. */
struct neap_tier_ops {
	/* NEAP_STORE_INVALID_PARAMS, NEAP_STORE_NO_AVAILABLE_HANDLE */
	int (*reserve)(void *backend, uint64_t bytes, struct neap_extent *extent_p);
	void (*release)(void *backend, const struct neap_extent *extent);
	void *(*address)(void *backend, uint64_t offset); /* NULL: not in memory */
	/* Of a tier that is not in memory: whole pieces, from and into memory that stays until `finished`, which comes from a turn, once, when
	 * this returns OK. Others: NULL. */
	int (*read)(void *backend, const struct neap_extent *extent, void *memory, neap_tier_io_func *finished, void *user);
	int (*write)(void *backend, const struct neap_extent *extent, const void *memory, neap_tier_io_func *finished, void *user);
};

struct neap_tier_counts {
	uint64_t requested_bytes, rounded_bytes; /* of all its handles */
	uint64_t committed_bytes;                /* rounded, of what is visible */
	uint64_t quarantined_bytes;              /* rounded */
	uint64_t pinned_bytes;                   /* rounded, committed and held by someone beside the index */
	uint32_t handles, committed, quarantined;
};

struct neap_tier {
	struct neap_handles *handles;
	const struct neap_tier_ops *ops;
	void *backend;
	struct neap_evict eviction;
	struct neap_tier_counts counts;
};

int neap_handles_create(struct neap_handles *handles, struct neap_reactor *reactor, uint32_t handles_max,
                        uint64_t quarantine_limit);
void neap_handles_destroy(struct neap_handles *handles); /* when none is left */

/* A reserved one with one reference. NEAP_STORE_NO_AVAILABLE_HANDLE, NEAP_STORE_INVALID_PARAMS. */
int neap_handle_reserve(struct neap_tier *tier, uint64_t bytes, struct neap_handle **handle_p);

struct neap_handle *neap_handle_hold(struct neap_handle *handle); /* counts as an access */
/* Lets go of one reference. Returns the bytes that are free because of it: 0 while others hold it, and in quarantine. */
uint64_t neap_handle_drop(struct neap_handle *handle);
/* It is an object now: the eviction may choose it, and `object` is what it is told. */
void neap_handle_commit(struct neap_handle *handle, void *object);
/* It is not any more: removed, or replaced. The reference of the index is dropped by whoever had it. */
void neap_handle_withdraw(struct neap_handle *handle);
void *neap_handle_address(const struct neap_handle *handle); /* NULL: not in memory */

/* A peer is about to be told how to reach it. NEAP_STORE_NO_AVAILABLE_HANDLE when something is in quarantine, and with this one it would be
 * over its limit: until facts come, no new ones. */
int neap_exposure_begin(struct neap_exposure *exposure, struct neap_handle *handle, uint64_t peer);
/* A fact about this one. Nothing when it has ended before. Returns the bytes that are free because of it. */
uint64_t neap_exposure_end(struct neap_exposure *exposure, enum neap_fact_kind fact);

/* A fact about a slab or a peer: ends the exposures it speaks of, of handles in quarantine only; whoever holds a handle knows
 * its exposures itself. Costs a step for each handle in quarantine. Returns how many handles are free now. */
uint32_t neap_quarantine_release(struct neap_handles *handles, const struct neap_fact *fact);

#endif
