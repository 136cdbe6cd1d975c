/* Grants: a secret for {range, rights, peer instance}. Ending one takes effect at once; the memory may go elsewhere after the grace
 * period, and when who lent the peer something for it has let go. A token is slot (4 bytes), generation (4), secret (24); the keys are
 * the keeper's. */
#include "transports/grant_fsm.h"
#include "transports/registry.h"
#include <string.h>

static struct neap_grant *take_slot(struct neap_registry *registry)
{
	struct neap_grant *grant = registry->free_grants;
	if (grant)
		registry->free_grants = grant->next_free;
	else if (registry->grants_fresh < registry->grants_max)
		grant = &registry->grants[registry->grants_fresh++];
	else
		return NULL;
	registry->grants_used++;
	return grant;
}

int neap_registry_grant(struct neap_registry *registry, const void *address, uint64_t length, unsigned rights,
                        const uint8_t peer_instance[16], struct neap_grant_token *token_p)
{
	uint64_t from = (uintptr_t)address;
	struct neap_access_ref ref;
	if (length == 0 || rights == 0 || (rights & ~(unsigned)(NEAP_MAY_READ | NEAP_MAY_WRITE)) || !token_p)
		return NEAP_EINVAL;
	if (neap_registry_check_local(registry, from, length, &ref))
		return NEAP_ENOTREG;
	if (registry->regions[ref.region_slot].access == NEAP_CLOSED)
		return NEAP_EINVAL;
	struct neap_grant *grant = take_slot(registry);
	if (!grant)
		return NEAP_ELIMIT;
	uint32_t slot = (uint32_t)(grant - registry->grants), generation = atomic_load(&grant->generation) + 1;
	grant->registry = registry;
	grant->region_slot = ref.region_slot;
	grant->region_generation = ref.region_generation;
	grant->rights = rights;
	grant->address = from;
	grant->length = length;
	grant->any_peer = !peer_instance;
	grant->notes = NULL;
	if (peer_instance)
		memcpy(grant->peer, peer_instance, sizeof grant->peer);
	neap_random_fill(registry->home, grant->secret, sizeof grant->secret);
	*token_p = (struct neap_grant_token){0};
	memcpy(token_p->bytes, &slot, 4);
	memcpy(token_p->bytes + 4, &generation, 4);
	memcpy(token_p->bytes + 8, grant->secret, NEAP_SECRET_BYTES);
	/* What anybody may use is fenced for nobody: it lends nothing. */
	bool lends = registry->keeper.lend && peer_instance;
	grant->lent = lends ? registry->keeper.lend(registry->keeper.user, ref.region_slot, from, length, token_p) : 0;
	grant->kept = false;
	neap_machine_begin(&grant->machine, registry->grant_class);
	atomic_store(&grant->generation, generation);
	return NEAP_OK;
}

static void recall(struct neap_grant *grant, bool quiet)
{
	const struct neap_registry_keeper *keeper = &grant->registry->keeper;
	uint32_t slot = (uint32_t)(grant - grant->registry->grants);
	grant->kept = true;
	keeper->recall(keeper->user, grant->lent, slot, grant->peer, !quiet);
}

int neap_registry_grant_end(struct neap_registry *registry, const struct neap_grant_token *token, void (*ended)(void *user), void *user)
{
	return neap_registry_grant_end_as(registry, token, false, ended, user);
}

int neap_registry_grant_end_as(struct neap_registry *registry, const struct neap_grant_token *token, bool quiet,
                               void (*ended)(void *user), void *user)
{
	uint32_t slot, generation;
	memcpy(&slot, token->bytes, 4);
	memcpy(&generation, token->bytes + 4, 4);
	if (slot >= registry->grants_fresh || !(generation & 1))
		return NEAP_EGRANT;
	struct neap_grant *grant = &registry->grants[slot];
	uint32_t present = atomic_load(&grant->generation);
	if (present != generation)
		return (int32_t)(present - generation) > 0 ? NEAP_ESTALE : NEAP_EGRANT;
	if (memcmp(grant->secret, token->bytes + 8, NEAP_SECRET_BYTES) != 0)
		return NEAP_EGRANT;
	int error = neap_note_take(registry, &grant->notes, ended, user);
	if (error)
		return error;
	/* Here and now, not in the machine's action: from this return on no chunk begins under it. */
	atomic_fetch_add(&grant->generation, 1);
	registry->grants_fencing++;
	neap_step(&grant->machine, grant_on_END, 0);
	if (grant->lent)
		recall(grant, quiet);
	return NEAP_OK;
}

void neap_registry_grant_let_go(struct neap_registry *registry, uint32_t grant_slot)
{
	struct neap_grant *grant = &registry->grants[grant_slot];
	grant->kept = false;
	neap_step(&grant->machine, grant_on_LET_GO, 0);
}

uint32_t neap_registry_grants(const struct neap_registry *registry)
{
	return registry->grants_used - registry->grants_fencing;
}

static struct neap_grant *grant_of_machine(struct neap_machine *machine)
{
	return (struct neap_grant *)(void *)((unsigned char *)machine - offsetof(struct neap_grant, machine));
}

static void passed(struct neap_registry *registry, struct neap_grace_item *item)
{
	(void)registry;
	struct neap_grant *grant = (struct neap_grant *)(void *)((unsigned char *)item - offsetof(struct neap_grant, grace));
	neap_step(&grant->machine, grant->kept ? grant_on_PASSED_KEPT : grant_on_PASSED, 0);
}

static void do_fence(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	struct neap_grant *grant = grant_of_machine(machine);
	grant->grace.passed = passed;
	neap_grace_add(grant->registry, &grant->grace);
}

static void do_release(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	struct neap_grant *grant = grant_of_machine(machine);
	struct neap_registry *registry = grant->registry;
	registry->grants_fencing--;
	registry->grants_used--;
	/* Notes are called from the grace period's turn, outside of actions. */
	if (grant->notes)
		neap_ready_again(registry->home, &registry->grace.ready);
	neap_notes_due(registry, &grant->notes);
	memset(grant->secret, 0, sizeof grant->secret);
	grant->next_free = registry->free_grants;
	registry->free_grants = grant;
}

neap_action_func *const neap_grant_actions[] = {
	[grant_do_fence] = do_fence,
	[grant_do_release] = do_release,
};
