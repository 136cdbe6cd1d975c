/* A tier in memory: one mapping, cut into slabs.
 *
 * A slab is the unit of registration with the transports and thereby the unit that can be fenced: when a peer that could write
 * into a slab did not end cleanly, the slab is drained (nothing new is given out from it), then renewed (taken from the
 * transports and given to them again under a new key). Objects smaller than a slab never span two; larger ones get a run of
 * whole slabs. Memory is touched when it is first written, and what is stored is used where it lies. Owner thread only. */
#ifndef NEAP_STORE_TIER_DRAM_H
#define NEAP_STORE_TIER_DRAM_H

#include "store/tier/extents.h"

#define NEAP_SLAB_MIN (UINT64_C(2) << 20)
#define NEAP_SLAB_MAX (UINT64_C(64) << 20)
#define NEAP_SLABS_MAX (1u << 20)

enum neap_pages {
	NEAP_PAGES_TRANSPARENT, /* the default: the kernel is asked for huge pages and may or may not give them */
	NEAP_PAGES_NORMAL,
	NEAP_PAGES_RESERVED, /* only huge pages reserved beforehand (vm.nr_hugepages) */
};

/* A piece of a tier. */
struct neap_extent {
	uint64_t offset, size, rounded;
	uint32_t node;
	bool whole; /* of slabs */
};

/* Where slabs are registered. `released` may be called at once or later from a turn: no byte of the slab will be touched any
 * more. */
struct neap_slab_ops {
	int (*attach)(void *user, uint32_t slab, void *address, uint64_t length, char *why, size_t why_size);
	int (*detach)(void *user, uint32_t slab, void (*released)(void *argument), void *argument);
};

struct neap_dram_options {
	uint64_t capacity;    /* bytes; rounded down to pages, at least one */
	uint64_t slab_bytes;  /* power of two in NEAP_SLAB_MIN..NEAP_SLAB_MAX; 0: a 64th of the capacity within these */
	uint32_t extents_max; /* pieces, used and free; 0: one for 4 KiB of capacity, within 1024..4 Mi */
	uint32_t unit;        /* alignment of objects; 0: 64 */
	int numa_node;        /* < 0: where the kernel likes */
	enum neap_pages pages;
};

struct neap_slab {
	struct neap_dram *dram;
	uint32_t owner;    /* node in `whole`; NEAP_NO_NODE: free. Of a run: of each of its slabs */
	uint32_t region;   /* in `small`; NEAP_NO_NODE: free or of a run */
	uint32_t first;    /* of the run; itself otherwise */
	bool attached, detaching, draining;
	bool given_back;   /* the first of a run that was freed while a slab of it was draining */
	void (*renewed)(void *user, uint32_t slab, int error, const char *why);
	void *user;
};

struct neap_dram {
	struct neap_reactor *reactor;
	unsigned char *base;
	uint64_t capacity, slab_bytes;
	uint32_t slab_shift, slab_count; /* the last one may be shorter; it holds small objects only */
	uint32_t whole_count;            /* slabs of full length */
	struct neap_slab *slabs;
	struct neap_extents whole, small;
	uint64_t requested_bytes, rounded_bytes;
	const struct neap_slab_ops *ops;
	void *ops_user;
	uint32_t attached, detaching, renewing, draining;
	void (*closed)(void *user);
	void *closed_user;
	struct neap_ready unmapping; /* of a large one: a slab a turn */
};

struct neap_dram_stats {
	uint64_t capacity, requested_bytes, rounded_bytes;
	uint64_t draining_bytes; /* free, in slabs that drain */
	uint64_t largest_bytes;  /* can be allocated now */
	uint32_t slabs, slabs_used, slabs_draining, extents;
};

/* NEAP_EINVAL, NEAP_ENOMEM, NEAP_ENUMA, with a sentence in `why`. */
int neap_dram_create(struct neap_dram *dram, struct neap_reactor *reactor, const struct neap_dram_options *options, char *why,
                     size_t why_size);
/* Registers all slabs. When that fails some are: neap_dram_close takes them back. */
int neap_dram_attach(struct neap_dram *dram, const struct neap_slab_ops *ops, void *user, char *why, size_t why_size);
/* NEAP_EBUSY while something is allocated or a slab is being renewed; or the error of `detach`, then call it again. `closed`
 * comes when all slabs are released and the mapping is gone: at once or from a turn. Giving back touched memory takes the kernel
 * time, so a mapping larger than NEAP_SLAB_MAX goes slab by slab. */
int neap_dram_close(struct neap_dram *dram, void (*closed)(void *user), void *user);

/* Numbers of neap/store_error.h: INVALID_PARAMS for 0 bytes, NO_AVAILABLE_HANDLE. */
int neap_dram_allocate(struct neap_dram *dram, uint64_t bytes, struct neap_extent *extent_p);
void neap_dram_free(struct neap_dram *dram, const struct neap_extent *extent);

static inline void *neap_dram_address(const struct neap_dram *dram, uint64_t offset)
{
	return dram->base + offset;
}
static inline uint32_t neap_dram_slab(const struct neap_dram *dram, uint64_t offset)
{
	return (uint32_t)(offset >> dram->slab_shift);
}

/* Gives nothing out from this slab until it is renewed. NEAP_EINVAL: nothing is allocated in it, so nobody can have a grant. */
int neap_dram_drain(struct neap_dram *dram, uint32_t slab);
/* To be called when all grants into a draining slab have ended but those the renewal is to end. `renewed` comes at once or from
 * a turn: on 0 the slab is in use again, on an error it still drains. NEAP_EINVAL: it does not drain; NEAP_EBUSY: is being
 * renewed. */
int neap_dram_renew(struct neap_dram *dram, uint32_t slab, void (*renewed)(void *user, uint32_t slab, int error, const char *why),
                    void *user);

void neap_dram_stats(const struct neap_dram *dram, struct neap_dram_stats *stats_p);
const char *neap_dram_check(const struct neap_dram *dram); /* NULL, or what does not hold */

/* dram_map.c: the mapping. In simulation from neap_allocate. */
int neap_dram_map(struct neap_reactor *reactor, const struct neap_dram_options *options, uint64_t capacity, unsigned char **base_p,
                  char *why, size_t why_size);
void neap_dram_unmap(struct neap_reactor *reactor, unsigned char *base, uint64_t capacity);
uint64_t neap_dram_page(const struct neap_reactor *reactor, enum neap_pages pages);

#endif
