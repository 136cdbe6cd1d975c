/* Where in a range of bytes is room: an allocator of offsets that never touches the bytes themselves.
 *
 * Free extents lie in bins by size, two levels of them: a power of two, and eighths of it. A bitmap for each level finds a bin
 * that is large enough in two instructions, so allocating and freeing cost the same at any fill. Neighbours know each other, and
 * a freed extent joins both at once. All nodes are made at create.
 *
 * The range may consist of several regions that are added and taken away again (a tier's slabs): no extent spans two of them.
 * The first node of a region stays the same for the region's life, so it names it. Owner thread only. */
#ifndef NEAP_STORE_TIER_EXTENTS_H
#define NEAP_STORE_TIER_EXTENTS_H

#include "reactor/core.h"

#define NEAP_NO_NODE UINT32_MAX
#define NEAP_EXTENTS_UNIT 64u /* default */
#define NEAP_EXTENTS_STEPS 8u /* bins to a power of two */
#define NEAP_EXTENTS_TOPS 62u

struct neap_extent_node {
	uint64_t offset, units;     /* bytes; units */
	uint32_t left, right;       /* neighbours in the region */
	uint32_t previous, next;    /* in the bin; a spare node: next is the free list */
	uint32_t slack;             /* of a used one: bytes allocated beyond what was asked for, less than a unit */
	uint8_t phase;              /* spare, free, used */
	bool parked;                /* its region gives nothing out for now */
};

struct neap_extents_stats {
	uint64_t total_bytes;     /* of all regions */
	uint64_t free_bytes;      /* parked ones too */
	uint64_t parked_bytes;    /* free, but in a parked region */
	uint64_t requested_bytes; /* what the users asked for */
	uint64_t rounded_bytes;   /* what that took: total - free */
	uint64_t largest_bytes; /* an allocation of this size succeeds. Exact while at most 64 extents share the largest bin, at most an
	                           eighth too small beyond that */
	uint32_t extents, regions, nodes_used, nodes_max;
};

struct neap_extents {
	struct neap_reactor *reactor;
	struct neap_extent_node *nodes;
	uint32_t nodes_max, fresh, spare, nodes_used;
	uint32_t regions, extents;
	uint32_t unit_shift;
	uint64_t total_units, free_units, parked_units, requested_bytes;
	uint64_t tops;                      /* which powers of two have a free extent */
	uint8_t steps[NEAP_EXTENTS_TOPS];   /* which eighths of each */
	uint32_t bins[NEAP_EXTENTS_TOPS][NEAP_EXTENTS_STEPS];
};

/* `unit` is a power of two up to 2^31, 0: NEAP_EXTENTS_UNIT; all offsets and lengths are multiples of it. nodes_max: free and
 * used extents together. NEAP_EINVAL, NEAP_ENOMEM. */
int neap_extents_create(struct neap_extents *extents, struct neap_reactor *reactor, uint32_t unit, uint32_t nodes_max);
void neap_extents_destroy(struct neap_extents *extents);

/* A region of room, both multiples of the unit. It must not overlap another one. NEAP_ELIMIT when the nodes are used up. */
int neap_extents_add(struct neap_extents *extents, uint64_t offset, uint64_t length, uint32_t *region_p);
/* Takes a region away, which must be free as a whole: NEAP_EBUSY. */
int neap_extents_take(struct neap_extents *extents, uint32_t region);
bool neap_extents_region_is_free(const struct neap_extents *extents, uint32_t region);

/* NEAP_EINVAL for 0 bytes, NEAP_EAGAIN when no free extent is large enough, NEAP_ELIMIT when the nodes are used up. */
int neap_extents_allocate(struct neap_extents *extents, uint64_t bytes, uint32_t *node_p);
/* Returns the bytes given back. *region_p (may be NULL): the region when it is free as a whole now, else NEAP_NO_NODE. */
uint64_t neap_extents_free(struct neap_extents *extents, uint32_t node, uint32_t *region_p);

static inline uint64_t neap_extents_offset(const struct neap_extents *extents, uint32_t node)
{
	return extents->nodes[node].offset;
}
static inline uint64_t neap_extents_rounded(const struct neap_extents *extents, uint32_t node)
{
	return extents->nodes[node].units << extents->unit_shift;
}

/* From now on nothing is given out from the region; what is used in it can be freed. Costs a step for each of its extents. */
void neap_extents_park(struct neap_extents *extents, uint32_t region);
void neap_extents_unpark(struct neap_extents *extents, uint32_t region);

void neap_extents_stats(const struct neap_extents *extents, struct neap_extents_stats *stats_p);

/* Verifies all that must hold: links, bins, bitmaps, neighbours that touch and are not both free, sums. NULL, or what does not.
 * Costs a step for each node; for tests and debugging. */
const char *neap_extents_check(const struct neap_extents *extents);

#endif
