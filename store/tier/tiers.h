/* The tiers of a store: which one takes a value, and what goes when they are full. Owner thread only.
 *
 * Results are numbers of neap/store_error.h but where it says otherwise. */
#ifndef NEAP_STORE_TIER_TIERS_H
#define NEAP_STORE_TIER_TIERS_H

#include "store/tier/config.h"
#include "store/tier/handle.h"

#define NEAP_TIER_ANY UINT32_MAX

struct neap_tiers_options {
	uint32_t handles_max;           /* default 1 Mi */
	uint64_t quarantine_limit;      /* bytes; 0: a quarter of all tiers in memory. See neap_exposure_begin */
	uint32_t evict_steps;           /* objects an allocation may look at to make room; default 4096 */
	double watermark_low, watermark_high; /* default 0.70, 0.90 */
	/* The eviction chose this object: forget it and drop the index's reference. Doing nothing keeps it. Not NULL, or nothing is
	 * ever evicted and full is full. */
	void (*evict)(void *user, struct neap_handle *handle);
	void *user;
};

struct neap_tiers_tier {
	struct neap_tier tier; /* first */
	struct neap_tiers *tiers;
	enum neap_tier_kind kind;
	uint64_t capacity;
	int32_t priority;
};

struct neap_tiers {
	struct neap_handles handles;
	struct neap_tiers_options options; /* with defaults filled in */
	uint32_t count;
	struct neap_tiers_tier tiers[NEAP_TIERS_MAX];
	uint32_t order[NEAP_TIERS_MAX]; /* indices, the highest priority first */
};

/* NEAP_EINVAL, NEAP_ENOMEM (neap/error.h). `tiers` does not move. */
int neap_tiers_create(struct neap_tiers *tiers, struct neap_reactor *reactor, const struct neap_tiers_options *options);
int neap_tiers_destroy(struct neap_tiers *tiers); /* NEAP_EBUSY while handles are held or in quarantine */

/* Adds a tier; of equal priority the one added first is preferred. NEAP_ELIMIT beyond NEAP_TIERS_MAX. */
int neap_tiers_add(struct neap_tiers *tiers, const struct neap_tier_settings *settings, const struct neap_tier_ops *ops,
                   void *backend, uint64_t capacity, uint32_t *index_p);
extern const struct neap_tier_ops neap_dram_tier_ops; /* backend: struct neap_dram */

/* A handle with one reference. `preferred`: an index or NEAP_TIER_ANY. Strict: there or nowhere. Otherwise there, then in the
 * others by priority; when all are full, objects of the preferred one (or the first) are evicted. INVALID_PARAMS (0 bytes;
 * strict without a tier), TIER_NOT_FOUND, NO_AVAILABLE_HANDLE. */
int neap_tiers_allocate(struct neap_tiers *tiers, uint64_t bytes, uint32_t preferred, bool strict, struct neap_handle **handle_p);

/* The same among the tiers in memory alone, for what must have an address; a `preferred` one that has none counts as ANY. */
int neap_tiers_allocate_memory(struct neap_tiers *tiers, uint64_t bytes, uint32_t preferred, struct neap_handle **handle_p);

/* Evicts what the watermarks ask for, at most `steps` objects looked at: true when there is more to do. Cheap when there is
 * nothing. */
bool neap_tiers_maintain(struct neap_tiers *tiers, uint32_t steps);
bool neap_tiers_maintain_one(struct neap_tiers *tiers, uint32_t index, uint32_t steps);

static inline bool neap_tiers_in_memory(const struct neap_tiers *tiers, uint32_t index)
{
	return tiers->tiers[index].tier.ops->address != NULL;
}

struct neap_tier_stats {
	enum neap_tier_kind kind;
	int32_t priority;
	uint64_t capacity;
	struct neap_tier_counts counts;
	struct neap_evict_stats evictions;
};
int neap_tiers_stats(const struct neap_tiers *tiers, uint32_t index, struct neap_tier_stats *stats_p); /* TIER_NOT_FOUND */

static inline uint32_t neap_tiers_index(const struct neap_tiers *tiers, const struct neap_tier *tier)
{
	return (uint32_t)((const struct neap_tiers_tier *)(const void *)tier - tiers->tiers);
}

#endif
