/* Registered memory and grants: what peers may reach. One registry per process identity (struct neap_engine's home), read by all its
 * cores, changed by the home core alone.
 *
 * How cores read without locks: slots never move; a slot's fields are written before its generation becomes odd (release) and are not
 * touched again until every core has ended the turn it was in after the generation became even (the grace period). The address index is
 * an immutable sorted array behind one atomic pointer, freed after a grace period. So: find and use within one turn, and ask
 * neap_access_live again in each later turn before another chunk is touched.
 *
 * Machines: region (LIVE, FENCING, GONE), grant (LIVE, FENCING, GONE): memory may go elsewhere when they are GONE. */
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
/* Every core that reads the registry: its turns are what a grace period waits for. Home core only, before that core starts. */
int neap_registry_add_core(struct neap_registry *registry, struct neap_reactor *core);
void neap_registry_remove_core(struct neap_registry *registry, struct neap_reactor *core);

/* Home core. Semantics of neap_memory_register / unregister / grant (neap/engine.h). */
int neap_registry_register(struct neap_registry *registry, const struct neap_memory *memory, size_t count, neap_region_id *ids,
                           char *why, size_t why_size);
int neap_registry_unregister(struct neap_registry *registry, neap_region_id region, void (*released)(void *user), void *user);
int neap_registry_find_exact(struct neap_registry *registry, const void *address, uint64_t length, neap_region_id *id_p);
int neap_registry_info(struct neap_registry *registry, neap_region_id region, struct neap_region_info *info_p);
int neap_registry_grant(struct neap_registry *registry, const void *address, uint64_t length, unsigned rights,
                        const uint8_t peer_instance[16], struct neap_grant_token *token_p);
int neap_registry_grant_end(struct neap_registry *registry, const struct neap_grant_token *token, void (*ended)(void *user), void *user);
uint32_t neap_registry_regions(const struct neap_registry *registry);
uint32_t neap_registry_grants(const struct neap_registry *registry);
bool neap_registry_idle(const struct neap_registry *registry); /* no fence is running */
/* OPEN regions in address order, for the descriptor: index from 0; false at the end. */
bool neap_registry_open_region(const struct neap_registry *registry, uint32_t index, uint64_t *address_p, uint64_t *length_p,
                               const char **location_p);
uint64_t neap_registry_version(const struct neap_registry *registry); /* raised by each change of what is published */

/* Any core, inside a turn. The range must lie in one OPEN region (size 0: refused, as the plain wire wants). NEAP_ENOTREG. */
int neap_registry_check(const struct neap_registry *registry, uint64_t address, uint64_t length, struct neap_access_ref *ref_p);
/* The same under a grant: range inside the granted one, rights, instance of the peer on this connection. Compares the secret in constant
 * time. NEAP_EGRANT. A region that is OPEN needs no grant, but a grant given is checked. */
int neap_registry_check_grant(const struct neap_registry *registry, const struct neap_grant_token *token, uint64_t address,
                              uint64_t length, unsigned right, const uint8_t peer_instance[16], struct neap_access_ref *ref_p);
/* The same owner asks in a later turn: may it still be touched? */
bool neap_access_live(const struct neap_registry *registry, const struct neap_access_ref *ref);

#endif
