/* Grants over devices, at the one who gives them: which keys a token gets, and what is done when a grant ends of which something may still
 * arrive (design.md 7, fences.md). The fence is that every device lets go of the slab; healthy grants on it are waited for, the other
 * slabs go on. Where a device does not let go, the queue pairs of those peers are destroyed. */
#include "transports/rdma/rdma_inside.h"
#include "transports/rdma/rdma_slab_fsm.h"
#include "transports/rdma/token.h"
#include "transports/topology/paths.h"

/* A slab that somebody has keys of. */
struct neap_rdma_slab {
	struct neap_machine machine;
	struct neap_rdma *rdma;
	struct neap_rdma_kept *kept; /* the range it is of; NULL: that was taken off the devices */
	bool off;                    /* and they let go of it */
	uint32_t piece;
	uint32_t lent; /* grants with keys that have not ended */
	struct recalled *recalled;
	struct neap_rdma_renewal renewal;
};

/* A grant that ended, and of which something may still arrive. */
struct recalled {
	struct recalled *next;
	struct neap_rdma_slab *slab;
	uint32_t grant_slot;
	uint8_t peer[16];
	struct neap_rdma_fence fence;
};

static struct neap_rdma_slab *slab_of(const struct neap_machine *machine)
{
	return (struct neap_rdma_slab *)(uintptr_t)((const char *)machine - offsetof(struct neap_rdma_slab, machine));
}

/* --- giving keys */

static struct neap_rdma_slab *take(struct neap_rdma_kept *kept, uint32_t piece)
{
	struct neap_rdma *rdma = kept->rdma;
	struct neap_rdma_slab *slab = neap_pool_take(&rdma->slabs);
	if (!slab)
		return NULL;
	struct neap_machine machine = slab->machine; /* its generation goes on */
	*slab = (struct neap_rdma_slab){.machine = machine, .rdma = rdma, .kept = kept, .piece = piece};
	kept->slab_at[piece] = slab;
	neap_machine_begin(&slab->machine, &rdma->slab_class->class_);
	return slab;
}

static void put_key(struct neap_rdma *rdma, struct neap_grant_token *token, const struct neap_rdma_device *device, uint32_t key)
{
	uint32_t mark = neap_rdma_token_mark(rdma->view->instance, device->name), taken;
	uint8_t *at = token->keys + token->keys_length;
	if (neap_rdma_token_key(token, mark, &taken)) /* two names of one mark: the first one has it */
		return;
	neap_rdma_token_put(at, mark);
	neap_rdma_token_put(at + 4, key);
	token->keys_length += NEAP_RDMA_TOKEN_ENTRY_BYTES;
}

/* Of the devices that are nearest to the memory, as many as have room. */
static void put_keys(struct neap_rdma_kept *kept, const void *address, struct neap_grant_token *token)
{
	struct neap_rdma *rdma = kept->rdma;
	struct neap_path_side side;
	neap_path_local(rdma->topology, neap_registry_location(rdma->view->registry, (uint32_t)(kept - rdma->kept)), -1, &side);
	token->keys_length = NEAP_RDMA_TOKEN_HEAD_BYTES;
	neap_rdma_token_put(token->keys, rdma->endpoints ? neap_rdma_endpoints_fences(rdma->endpoints) : 0);
	for (uint32_t i = 0; i < side.count && token->keys_length + NEAP_RDMA_TOKEN_ENTRY_BYTES <= sizeof token->keys; i++) {
		const struct neap_rdma_device *device = neap_rdma_devices_find(rdma->devices, side.names[i]);
		struct neap_verbs_keys keys;
		uint64_t end;
		if (device && device->usable && !neap_rdma_memory_keys(rdma->memory, kept->slabs, device, address, &keys, &end))
			put_key(rdma, token, device, keys.rkey);
	}
	if (token->keys_length == NEAP_RDMA_TOKEN_HEAD_BYTES)
		token->keys_length = 0;
}

uint64_t neap_rdma_lend(void *user, uint32_t slot, uint64_t address, uint64_t length, struct neap_grant_token *token_p)
{
	struct neap_rdma *rdma = user;
	struct neap_rdma_kept *kept = &rdma->kept[slot];
	if (!kept->slabs_on_devices || !kept->wanted || rdma->ending || !rdma->initiator)
		return 0;
	uint64_t offset = address - (uintptr_t)kept->address;
	uint64_t piece = offset / kept->slab_bytes;
	if ((offset + length - 1) / kept->slab_bytes != piece)
		return 0;
	struct neap_rdma_slab *slab = kept->slab_at[piece];
	if (slab && slab->machine.state != rdma_slab_LENT)
		return 0;
	put_keys(kept, (const void *)(uintptr_t)address, token_p);
	if (token_p->keys_length && !slab)
		slab = take(kept, (uint32_t)piece);
	if (!token_p->keys_length || !slab) {
		token_p->keys_length = 0;
		return 0;
	}
	slab->lent++;
	return neap_pool_handle(&rdma->slabs, slab);
}

/* --- taking them back */

void neap_rdma_recall(void *user, uint64_t lent, uint32_t grant_slot, const uint8_t peer_instance[16], bool fence)
{
	struct neap_rdma *rdma = user;
	struct neap_rdma_slab *slab = neap_pool_find(&rdma->slabs, lent); /* it waits for this */
	slab->lent--;
	/* There is one for each grant. */
	struct recalled *recalled = fence && !slab->off && !rdma->fenced_all ? neap_pool_take(&rdma->recalls) : NULL;
	if (recalled) {
		*recalled = (struct recalled){.next = slab->recalled, .slab = slab, .grant_slot = grant_slot};
		memcpy(recalled->peer, peer_instance, sizeof recalled->peer);
		slab->recalled = recalled;
		neap_step(&slab->machine, rdma_slab_on_SPOILED, 0);
	} else {
		neap_registry_grant_let_go(rdma->view->registry, grant_slot);
	}
	if (slab->lent == 0)
		neap_step(&slab->machine, rdma_slab_on_EMPTY, 0);
}

static void let_go(struct neap_rdma_slab *slab)
{
	struct neap_rdma *rdma = slab->rdma;
	while (slab->recalled) {
		struct recalled *recalled = slab->recalled;
		slab->recalled = recalled->next;
		neap_registry_grant_let_go(rdma->view->registry, recalled->grant_slot);
		neap_pool_give(&rdma->recalls, recalled);
	}
}

static void renewed(struct neap_rdma_renewal *renewal, int error)
{
	struct neap_rdma_slab *slab = (struct neap_rdma_slab *)(void *)((char *)renewal - offsetof(struct neap_rdma_slab, renewal));
	neap_step(&slab->machine, error ? rdma_slab_on_KEPT : rdma_slab_on_RENEWED, 0);
}

static void do_renew(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_slab *slab = slab_of(machine);
	struct neap_rdma *rdma = slab->rdma;
	(void)argument;
	slab->renewal.done = renewed;
	if (slab->off || rdma->fenced_all)
		(void)neap_post_first(machine, rdma_slab_on_RENEWED, 0);
	else if (!slab->kept || !rdma->memory || neap_rdma_memory_renew(rdma->memory, slab->kept->slabs, slab->piece, &slab->renewal))
		(void)neap_post_first(machine, rdma_slab_on_KEPT, 0);
}

static void fenced(struct neap_rdma_fence *fence)
{
	struct recalled *recalled = (struct recalled *)(void *)((char *)fence - offsetof(struct recalled, fence));
	struct neap_rdma_slab *slab = recalled->slab;
	struct neap_rdma *rdma = slab->rdma;
	struct recalled **at = &slab->recalled;
	while (*at != recalled)
		at = &(*at)->next;
	*at = recalled->next;
	neap_registry_grant_let_go(rdma->view->registry, recalled->grant_slot);
	neap_pool_give(&rdma->recalls, recalled);
	if (!slab->recalled)
		neap_step(&slab->machine, rdma_slab_on_FENCED, 0);
}

/* The answers come later, from turns of their own. */
static void do_fence(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_slab *slab = slab_of(machine);
	struct neap_rdma *rdma = slab->rdma;
	(void)argument;
	neap_log(rdma->reactor, NEAP_LOG_ERROR, "rdma",
	         "a device does not let go of memory that a peer may still write to: all connections of that peer are ended");
	for (struct recalled *recalled = slab->recalled; recalled; recalled = recalled->next) {
		recalled->fence.done = fenced;
		memcpy(recalled->fence.instance, recalled->peer, sizeof recalled->peer);
		neap_rdma_endpoints_fence(rdma->endpoints, &recalled->fence);
	}
}

static void do_let_go(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	let_go(slab_of(machine));
}

static void do_bury(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_slab *slab = slab_of(machine);
	(void)argument;
	let_go(slab);
	if (slab->kept)
		slab->kept->slab_at[slab->piece] = NULL;
	neap_machine_end(machine);
	neap_pool_give(&slab->rdma->slabs, slab);
}

static neap_action_func *const actions[] = {
	[rdma_slab_do_renew] = do_renew,
	[rdma_slab_do_fence] = do_fence,
	[rdma_slab_do_let_go] = do_let_go,
	[rdma_slab_do_bury] = do_bury,
};

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_rdma_slab *slab = slab_of(machine);
	(void)from;
	if (machine->state == rdma_slab_RENEWING && slab->lent)
		return "a key is taken from a grant that has not ended";
	if (machine->state == rdma_slab_GONE && slab->recalled)
		return "gone, and a grant waits for it";
	return NULL;
}

static const struct neap_machine_kind kind = {.fsm = &neap_fsm_rdma_slab, .actions = actions, .invariant = invariant};

/* --- a range that comes and goes */

int neap_rdma_slabs_come(struct neap_rdma_kept *kept)
{
	struct neap_rdma *rdma = kept->rdma;
	kept->slab_bytes = neap_rdma_memory_piece_bytes(rdma->memory, kept->slabs);
	kept->slab_count = (uint32_t)((kept->length - 1) / kept->slab_bytes + 1);
	kept->slab_at = neap_allocate(rdma->reactor, kept->slab_count * sizeof *kept->slab_at);
	return kept->slab_at ? NEAP_OK : NEAP_ENOMEM;
}

void neap_rdma_slabs_go(struct neap_rdma_kept *kept, bool off)
{
	for (uint32_t i = 0; kept->slab_at && i < kept->slab_count; i++) {
		struct neap_rdma_slab *slab = kept->slab_at[i];
		if (!slab)
			continue;
		slab->kept = NULL;
		slab->off = off;
		if (off)
			neap_step(&slab->machine, rdma_slab_on_OFF, 0);
	}
	if (kept->slab_at)
		neap_release(kept->rdma->reactor, kept->slab_at, kept->slab_count * sizeof *kept->slab_at);
	kept->slab_at = NULL;
	kept->slabs_on_devices = false;
}

/* --- begin and end */

int neap_rdma_grants_begin(struct neap_rdma *rdma)
{
	uint32_t most = rdma->view->options->grants_max;
	int error = neap_reactor_class_of(rdma->reactor, &kind, &rdma->slab_class);
	if (!error)
		error = neap_pool_create(&rdma->slabs, rdma->reactor, sizeof(struct neap_rdma_slab), most);
	if (!error)
		error = neap_pool_create(&rdma->recalls, rdma->reactor, sizeof(struct recalled), most);
	return error;
}

void neap_rdma_grants_fenced_all(struct neap_rdma *rdma)
{
	struct neap_rdma_slab *slab;
	uint32_t index = 0;
	rdma->fenced_all = true;
	while ((slab = neap_pool_next(&rdma->slabs, &index)))
		let_go(slab);
}

void neap_rdma_grants_free(struct neap_rdma *rdma)
{
	neap_pool_destroy(&rdma->recalls);
	neap_pool_destroy(&rdma->slabs);
}
