/* Simulated verbs: mistakes of who uses them, made in its place (sim_verbs.h). */
#include "tests/support/sim_inside.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHECK_BYTES_MAX 8u

static bool makes(struct sim_verbs *sim, enum sim_mistake mistake)
{
	if (sim->mistake != mistake)
		return false;
	sim->mistakes++;
	return true;
}

void sim_mistake_keep_half(const struct neap_verbs_qp *qp)
{
	struct sim_verbs *sim = qp->pd->context->sim;
	if (qp->attributes.peer_qp_number == 0 || !makes(sim, SIM_MISTAKE_keeps_halves))
		return;
	struct sim_ghost *ghost = malloc(sizeof *ghost);
	assert(ghost);
	*ghost = (struct sim_ghost){sim->ghosts, qp->pd, qp->number, qp->attributes.peer_qp_number, qp->attributes.receive_psn};
	sim->ghosts = ghost;
}

const struct neap_verbs_pd *sim_mistake_half(const struct sim_verbs *sim, const struct sim_stray *stray)
{
	const struct sim_ghost *ghost = sim->ghosts;
	while (ghost && (ghost->number != stray->to_qp || ghost->peer_number != stray->from_qp || ghost->psn != stray->psn))
		ghost = ghost->next;
	return ghost ? ghost->pd : NULL;
}

bool sim_mistake_keep_region(struct neap_verbs_mr *mr)
{
	struct neap_verbs_pd *pd = mr->pd;
	if (!(mr->access & NEAP_VERBS_REMOTE_WRITE) || !makes(pd->context->sim, SIM_MISTAKE_keeps_regions))
		return false;
	mr->ghost = true;
	pd->users--;
	pd->context->device->regions--;
	pd->context->device->locked_bytes -= mr->length;
	return true;
}

void sim_mistake_forget(struct neap_verbs_pd *pd)
{
	struct sim_verbs *sim = pd->context->sim;
	for (struct neap_verbs_mr *mr; (mr = pd->regions);) { /* none but ghosts */
		pd->regions = mr->next;
		sim_delete(sim, mr);
	}
	for (struct sim_ghost **at = &sim->ghosts; *at;) {
		struct sim_ghost *ghost = *at;
		if (ghost->pd != pd) {
			at = &ghost->next;
			continue;
		}
		*at = ghost->next;
		free(ghost);
	}
}

void sim_mistake_rekey(const struct neap_verbs_mr *mr, struct neap_verbs_keys *keys)
{
	struct sim_verbs *sim = mr->pd->context->sim;
	const struct sim_device *device = mr->pd->context->device;
	struct sim_former *former = sim->former, *end = sim->former + sim->former_count;
	if (sim->mistake != SIM_MISTAKE_old_keys)
		return;
	while (former < end && (former->device != device || former->address != mr->address || former->length != mr->length))
		former++;
	if (former < end) {
		sim->mistakes++;
		keys->rkey = former->rkey;
	} else if (sim->former_count < SIM_FORMER_KEYS) {
		sim->former_count++;
	} else {
		return;
	}
	*former = (struct sim_former){device, mr->address, mr->length, mr->keys.rkey};
}

bool sim_mistake_take_check(struct neap_verbs_qp *qp, const struct neap_verbs_send *send)
{
	struct sim_verbs *sim = qp->pd->context->sim;
	struct neap_verbs_qp *peer = sim_peer_of(qp);
	if (send->opcode != NEAP_VERBS_READ || send->length > CHECK_BYTES_MAX || !makes(sim, SIM_MISTAKE_takes_checks))
		return false;
	if (peer)
		(void)sim_fetch(qp, peer, send); /* it may be a user's */
	sim_complete(qp, send->id, NEAP_WC_SUCCESS, 0);
	return true;
}

/* The system's way of copying refuses what is not mapped. */
void sim_land(const struct neap_verbs_mr *mr, uint64_t to, const unsigned char *bytes, size_t length)
{
	const struct iovec from = {(void *)(uintptr_t)bytes, length}, there = {(void *)(uintptr_t)to, length};
	if (mr->ghost)
		(void)!process_vm_writev(getpid(), &from, 1, &there, 1, 0);
	else
		memcpy((void *)(uintptr_t)to, bytes, length);
}
