/* Registered memory and grants: what peers may reach. One registry per process identity (struct neap_engine's home), read by all its
 * cores, changed by the home core alone.
 *
 * How cores read without locks: slots never move; a slot's fields are written before its generation becomes odd (release) and are not
 * touched again until every core has ended the turn it was in after the generation became even (the grace period). The address index is
 * an immutable sorted array behind one atomic pointer, freed after a grace period. So: find and use within one turn, and ask
 * neap_access_live again in each later turn before another chunk is touched.
 *
 * Machines: region (LIVE, FENCING, KEPT, GONE), grant (the same): memory may go elsewhere when they are GONE. */
#ifndef NEAP_TRANSPORTS_MEMORY_H
#define NEAP_TRANSPORTS_MEMORY_H

#include "reactor/pool.h"
#include <neap/engine.h>

struct neap_registry;

/* What a check has found: enough to ask again later at the cost of two loads. */
struct neap_access_ref {
	uint32_t region_slot, region_generation;
	uint32_t grant_slot, grant_generation; /* grant_slot UINT32_MAX: none */
};

int neap_registry_create(struct neap_registry **registry_p, struct neap_reactor *home, uint32_t regions_max, uint32_t grants_max);
/* NEAP_EBUSY while fences are running. */
int neap_registry_destroy(struct neap_registry *registry);
/* Every core that reads the registry: its turns are what a grace period waits for. Called on the core's own thread, before it reads;
 * create has added the home core as number 0. NEAP_ELIMIT, NEAP_ENOMEM. */
int neap_registry_add_core(struct neap_registry *registry, struct neap_reactor *core, uint32_t *core_index_p);
/* NEAP_EAGAIN: the home core is just reading this core's counters; again in a moment. After 0 the core's reactor may go. */
int neap_registry_remove_core(struct neap_registry *registry, uint32_t core_index, struct neap_reactor *core);
/* Around reads from a public call between turns, when a turn counter guards nothing. Home needs it not. */
void neap_registry_enter(struct neap_registry *registry, uint32_t core_index);
void neap_registry_leave(struct neap_registry *registry, uint32_t core_index);

/* Who has a share in registered memory beside the cores: RDMA devices. Set before anything is registered; home core. */
struct neap_registry_keeper {
	/* A region was registered, and is live. From inside the call. */
	void (*took)(void *user, uint32_t slot, void *address, uint64_t length, enum neap_access access);
	/* It was unregistered. From inside the call. It is not released before neap_registry_let_go, which may be called from here. */
	void (*ended)(void *user, uint32_t slot);
	/* A grant on that region begins: what lets the peer reach its range without us is put into the token's keys. What comes back names it
	 * in `recall`; 0: there is nothing. NULL: never. */
	uint64_t (*lend)(void *user, uint32_t slot, uint64_t address, uint64_t length, struct neap_grant_token *token_p);
	/* A grant that was lent something has ended; with `fence` what the peer has posted may still arrive. From inside the call. It is not
	 * released before neap_registry_grant_let_go, which may be called from here. */
	void (*recall)(void *user, uint64_t lent, uint32_t grant_slot, const uint8_t peer_instance[16], bool fence);
	void *user;
};
void neap_registry_keep(struct neap_registry *registry, const struct neap_registry_keeper *keeper);
/* Once for each region that ended. From a turn. */
void neap_registry_let_go(struct neap_registry *registry, uint32_t slot);
/* Once for each grant that was recalled. */
void neap_registry_grant_let_go(struct neap_registry *registry, uint32_t grant_slot);
const char *neap_registry_location(const struct neap_registry *registry, uint32_t slot); /* "cpu:0" */
/* The slot of a live region; UINT32_MAX: there is none. */
uint32_t neap_registry_slot(const struct neap_registry *registry, neap_region_id region);

/* Home core. Semantics of neap_memory_register / unregister / grant (neap/engine.h). */
int neap_registry_register(struct neap_registry *registry, const struct neap_memory *memory, size_t count, neap_region_id *ids,
                           char *why, size_t why_size);
int neap_registry_unregister(struct neap_registry *registry, neap_region_id region, void (*released)(void *user), void *user);
int neap_registry_find_exact(struct neap_registry *registry, const void *address, uint64_t length, neap_region_id *id_p);
int neap_registry_info(struct neap_registry *registry, neap_region_id region, struct neap_region_info *info_p);
int neap_registry_grant(struct neap_registry *registry, const void *address, uint64_t length, unsigned rights,
                        const uint8_t peer_instance[16], struct neap_grant_token *token_p);
int neap_registry_grant_end(struct neap_registry *registry, const struct neap_grant_token *token, void (*ended)(void *user), void *user);
/* `quiet`: neap_grant_end_quiet. */
int neap_registry_grant_end_as(struct neap_registry *registry, const struct neap_grant_token *token, bool quiet,
                               void (*ended)(void *user), void *user);
uint32_t neap_registry_regions(const struct neap_registry *registry);
uint32_t neap_registry_grants(const struct neap_registry *registry);
bool neap_registry_idle(const struct neap_registry *registry); /* no fence is running */
uint64_t neap_registry_version(const struct neap_registry *registry); /* raised by each change of what is published */
uint32_t neap_registry_open_regions(const struct neap_registry *registry);
/* OPEN regions in address order, for the descriptor: a zeroed cursor begins; false at the end. Within one turn. */
struct neap_registry_cursor {
	uint32_t leaf, entry;
	uint32_t slot;        /* of the region that was found */
	const char *location; /* of it: "cpu:0" */
};
bool neap_registry_next_open(const struct neap_registry *registry, struct neap_registry_cursor *cursor, uint64_t *address_p,
                             uint64_t *length_p);
/* Registering more than fits one document is refused: it takes `fixed` bytes, and each OPEN region the digits of its two numbers and
 * `each` bytes; one of more than `piece_bytes` (0: any) does so for each piece. `whose`, which is not copied, says whose limit it is and
 * what to do, behind "more than the N that". To be called before anything is registered. */
void neap_registry_limit_document(struct neap_registry *registry, uint64_t fixed, uint64_t each, uint64_t piece_bytes,
                                  uint64_t bytes_max, const char *whose);

/* Any core, inside a turn. The range must lie in one OPEN region (size 0: refused, as the plain wire wants). NEAP_ENOTREG. */
int neap_registry_check(const struct neap_registry *registry, uint64_t address, uint64_t length, struct neap_access_ref *ref_p);
/* The same under a grant: range inside the granted one, rights, instance of the peer on this connection. Compares the secret in constant
 * time. NEAP_EGRANT. A region that is OPEN needs no grant, but a grant given is checked. */
int neap_registry_check_grant(const struct neap_registry *registry, const struct neap_grant_token *token, uint64_t address,
                              uint64_t length, unsigned right, const uint8_t peer_instance[16], struct neap_access_ref *ref_p);
/* For requests of this process to itself: any registered range, whatever its access. Length 0: inside or at the end of one. */
int neap_registry_check_local(const struct neap_registry *registry, uint64_t address, uint64_t length, struct neap_access_ref *ref_p);
/* The same owner asks in a later turn: may it still be touched? */
bool neap_access_live(const struct neap_registry *registry, const struct neap_access_ref *ref);

/* Local requests use memory too: a region that one of them uses is NEAP_EBUSY for unregister. The cache makes the usual request (same
 * region as the one before) cost three compares. The answer goes back to neap_registry_unuse when the request has let go. */
struct neap_use_cache {
	uint64_t version, from, to; /* one region or one gap between regions */
	uint32_t use;
};
uint32_t neap_registry_use(struct neap_registry *registry, uint32_t core_index, struct neap_use_cache *cache, uint64_t address,
                           uint64_t length);
void neap_registry_unuse(struct neap_registry *registry, uint32_t core_index, uint32_t use);

#endif
