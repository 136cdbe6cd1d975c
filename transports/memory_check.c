/* What peers may reach: asked by every core, before each chunk, without a lock. */
#include "transports/registry.h"
#include <string.h>

static bool inside(uint64_t address, uint64_t length, uint64_t from, uint64_t size)
{
	return address >= from && address - from <= size && length <= size - (address - from);
}

static void refer(struct neap_access_ref *ref_p, uint32_t region_slot, uint32_t region_generation)
{
	*ref_p = (struct neap_access_ref){.region_slot = region_slot, .region_generation = region_generation, .grant_slot = UINT32_MAX};
}

int neap_registry_check(const struct neap_registry *registry, uint64_t address, uint64_t length, struct neap_access_ref *ref_p)
{
	const struct neap_index_entry *entry = neap_index_at(atomic_load(&registry->index), address);
	if (length == 0 || !entry || entry->access != NEAP_OPEN || !inside(address, length, entry->address, entry->length) ||
	    !neap_region_live(registry, entry->slot, entry->generation))
		return NEAP_ENOTREG;
	refer(ref_p, entry->slot, entry->generation);
	return NEAP_OK;
}

int neap_registry_check_local(const struct neap_registry *registry, uint64_t address, uint64_t length, struct neap_access_ref *ref_p)
{
	const struct neap_index *index = atomic_load(&registry->index);
	const struct neap_index_entry *entry = neap_index_at(index, address);
	/* The end of one region may be the begin of a gap's dead entry: for nothing at all, the byte before decides as well. */
	if (length == 0 && address > 0 && (!entry || !neap_region_live(registry, entry->slot, entry->generation)))
		entry = neap_index_at(index, address - 1);
	if (!entry || !inside(address, length, entry->address, entry->length) ||
	    !neap_region_live(registry, entry->slot, entry->generation))
		return NEAP_ENOTREG;
	refer(ref_p, entry->slot, entry->generation);
	return NEAP_OK;
}

/* Takes as long for a wrong secret as for a right one. */
static bool equal_secret(const uint8_t *a, const uint8_t *b, size_t length)
{
	unsigned difference = 0;
	for (size_t i = 0; i < length; i++)
		difference |= (unsigned)(a[i] ^ b[i]);
	return difference == 0;
}

int neap_registry_check_grant(const struct neap_registry *registry, const struct neap_grant_token *token, uint64_t address,
                              uint64_t length, unsigned right, const uint8_t peer_instance[16], struct neap_access_ref *ref_p)
{
	uint32_t slot, generation;
	memcpy(&slot, token->bytes, 4);
	memcpy(&generation, token->bytes + 4, 4);
	if (slot >= registry->grants_max || !(generation & 1))
		return NEAP_EGRANT;
	const struct neap_grant *grant = &registry->grants[slot];
	if (atomic_load(&grant->generation) != generation)
		return NEAP_EGRANT;
	/* Live when looked at, so its fields stay as they are for the rest of this turn. */
	bool secret = equal_secret(token->bytes + 8, grant->secret, NEAP_SECRET_BYTES);
	bool allowed = (grant->rights & right) == right && right != 0 && length > 0 &&
	               inside(address, length, grant->address, grant->length) &&
	               (grant->any_peer || (peer_instance && memcmp(grant->peer, peer_instance, sizeof grant->peer) == 0));
	if (!secret || !allowed || !neap_region_live(registry, grant->region_slot, grant->region_generation))
		return NEAP_EGRANT;
	*ref_p = (struct neap_access_ref){.region_slot = grant->region_slot, .region_generation = grant->region_generation,
	                                  .grant_slot = slot, .grant_generation = generation};
	return NEAP_OK;
}

bool neap_access_live(const struct neap_registry *registry, const struct neap_access_ref *ref)
{
	return neap_region_live(registry, ref->region_slot, ref->region_generation) &&
	       (ref->grant_slot == UINT32_MAX || atomic_load(&registry->grants[ref->grant_slot].generation) == ref->grant_generation);
}
