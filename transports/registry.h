/* The registry from inside: shared by memory.c, memory_index.c, memory_use.c, grant.c and grace.c, by nobody else. */
#ifndef NEAP_TRANSPORTS_REGISTRY_H
#define NEAP_TRANSPORTS_REGISTRY_H

#include "metadata/descriptor.h"
#include "transports/memory.h"
#include <stdatomic.h>

/* --- grace periods (grace.c) */

/* Something that may be released when every core has ended the turn it is in now. */
struct neap_grace_item {
	struct neap_grace_item *next;
	void (*passed)(struct neap_registry *registry, struct neap_grace_item *item);
};

struct neap_grace_list {
	struct neap_grace_item *first, **tail;
};

struct neap_grace {
	struct neap_grace_list open;    /* the next period's */
	struct neap_grace_list waiting; /* the present period's */
	struct neap_grace_list due;     /* its period has passed */
	uint64_t turns[NEAP_CORES_MAX], calls[NEAP_CORES_MAX]; /* odd: what the period still waits for; 0: passed */
	uint64_t begun_ns;
	uint32_t looks;
	bool complained;
	struct neap_ready ready;
	struct neap_timer timer;
};

void neap_grace_init(struct neap_registry *registry);
void neap_grace_add(struct neap_registry *registry, struct neap_grace_item *item);
bool neap_grace_idle(const struct neap_registry *registry);

/* --- the address index (memory_index.c): a sorted array cut in leaves. Tops are immutable once published, and of leaves what is counted */

struct neap_index_entry {
	uint64_t address, length;
	uint32_t slot : 24, access : 8;
	uint32_t generation;
};

#define NEAP_LEAF_ENTRIES 256u

struct neap_index_leaf {
	struct neap_grace_item grace;
	_Atomic uint32_t count;
	struct neap_index_entry entries[NEAP_LEAF_ENTRIES];
};

struct neap_index_reference {
	uint64_t first;
	struct neap_index_leaf *leaf;
};

struct neap_index {
	struct neap_grace_item grace;
	uint32_t count;
	struct neap_index_reference leaves[];
};

/* The entry with the greatest address <= `address`, dead or live; NULL: none. */
const struct neap_index_entry *neap_index_at(const struct neap_index *index, uint64_t address);
/* The live entry that overlaps [address, address + length), or NULL. */
const struct neap_index_entry *neap_index_overlap(const struct neap_registry *registry, uint64_t address, uint64_t length);
/* Publishes an index with `count` new entries, sorted, overlapping no live one. NEAP_ENOMEM: nothing has changed. */
int neap_index_insert(struct neap_registry *registry, const struct neap_index_entry *entries, uint32_t count);
void neap_index_free(struct neap_registry *registry);

/* --- slots */

/* Told when a fence has ended: called from the grace period's turn, after the machine is GONE. */
struct neap_note {
	struct neap_note *next;
	void (*call)(void *user);
	void *user;
};

struct neap_region {
	struct neap_machine machine;
	struct neap_registry *registry;
	struct neap_grace_item grace;
	_Atomic uint32_t generation; /* odd: live */
	uint32_t references;
	uint64_t address, length;
	enum neap_access access;
	struct neap_note *notes;
	struct neap_region *next_free;
	bool kept; /* the keeper has not let go of it */
	char location[32];
};

#define NEAP_SECRET_BYTES 24u

struct neap_grant {
	struct neap_machine machine;
	struct neap_registry *registry;
	struct neap_grace_item grace;
	_Atomic uint32_t generation; /* odd: live */
	uint32_t region_slot, region_generation;
	uint32_t rights;
	uint64_t address, length;
	bool any_peer;
	uint8_t peer[16];
	uint8_t secret[NEAP_SECRET_BYTES];
	struct neap_note *notes;
	struct neap_grant *next_free;
	uint64_t lent; /* by the keeper; 0: nothing */
	bool kept;     /* the keeper has not let go of it */
};

/* --- cores */

struct neap_registry_core {
	_Atomic(const _Atomic uint64_t *) turns; /* NULL: no core here */
	_Atomic uint64_t calls;                  /* odd: a public call between turns reads the registry */
	_Atomic(_Atomic uint32_t *) uses;        /* local requests that use each region, by slot */
	_Atomic uint32_t straddlers;             /* local requests whose memory is not inside one region or one gap */
	_Atomic uint64_t straddle_from, straddle_to; /* a hull of theirs; meaningful while there are any */
	_Atomic uint32_t taken;
	_Atomic uint32_t *uses_retired;          /* the core's own: taken out of `uses`, to be freed when nobody looks */
};

struct neap_registry {
	struct neap_reactor *home;
	_Atomic(struct neap_index *) index;
	_Atomic uint64_t index_version; /* raised by each register and unregister */
	_Atomic uint32_t looking;       /* odd while the home core reads other cores' counters */
	struct neap_registry_core cores[NEAP_CORES_MAX];

	struct neap_region *regions;
	struct neap_region *free_regions;
	uint32_t regions_max, regions_fresh, regions_used, regions_fencing;
	struct neap_grant *grants;
	struct neap_grant *free_grants;
	uint32_t grants_max, grants_fresh, grants_used, grants_fencing;
	uint32_t index_total, index_live;

	/* what is published: OPEN regions */
	uint64_t version;
	uint32_t open_regions;
	uint64_t published_bytes, published_bytes_max, published_overhead, published_piece_bytes;
	const char *published_max_whose;

	struct neap_grace grace;
	struct neap_pool notes;
	struct neap_note *due_notes, **due_notes_tail;
	struct neap_machine_class *region_class, *grant_class;
	struct neap_registry_keeper keeper; /* zeroes: none */
};

static inline bool neap_region_live(const struct neap_registry *registry, uint32_t slot, uint32_t generation)
{
	return atomic_load(&registry->regions[slot].generation) == generation;
}

/* Between these two the home core may read other cores' counters: a core that leaves waits until the second was called. */
static inline void neap_registry_look_begin(struct neap_registry *registry)
{
	atomic_fetch_add(&registry->looking, 1);
}
static inline void neap_registry_look_end(struct neap_registry *registry)
{
	atomic_fetch_add(&registry->looking, 1);
}

/* notes.c */
int neap_note_take(struct neap_registry *registry, struct neap_note **list, void (*call)(void *user), void *user);
void neap_notes_due(struct neap_registry *registry, struct neap_note **list);
void neap_notes_call(struct neap_registry *registry);
/* memory.c */
extern neap_action_func *const neap_region_actions[];
/* grant.c */
extern neap_action_func *const neap_grant_actions[];
/* location.c: "cpu:N" of the first page of each range, "*" when it is not known */
void neap_location_find(struct neap_reactor *reactor, void *const *addresses, uint32_t count, char (*locations)[32]);

#endif
