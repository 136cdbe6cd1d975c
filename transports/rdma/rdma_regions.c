/* Regions of the registry on devices. Each that is registered there comes on every device, whatever its access: what is CLOSED or under
 * grants needs local keys as the source of our own transfers. Only OPEN ones may be reached by peers.
 *
 * What is GRANT_ONLY comes on devices twice: whole for our own transfers, and in slabs for those of peers under grants. So a slab's key can
 * be taken back while we use the memory ourselves. Without slabs, grants have no keys, and nothing else is amiss.
 *
 * While no device is open, regions wait. What devices refuse is tried again when one of them comes back, for then it may have been the
 * device's fault. */
#include "transports/rdma/rdma_inside.h"
#include <stdio.h>
#include <string.h>

#define SWEEP_AT_ONCE 128u

/* --- those who wait to be told */

static void answer(struct neap_rdma_kept *kept, int error, const char *why)
{
	while (kept->calls) {
		struct neap_settle_call *call = kept->calls;
		kept->calls = call->next;
		neap_settle_answer(call, error, why);
	}
}

static void answer_as_it_is(struct neap_rdma_kept *kept)
{
	const struct neap_rdma *rdma = kept->rdma;
	if (!kept->wanted)
		answer(kept, NEAP_ECANCELED, "the memory was unregistered");
	else if (rdma->closing)
		answer(kept, NEAP_ECANCELED, "the engine was closed");
	else if (rdma->ending)
		answer(kept, NEAP_OK, NULL); /* there is TCP alone */
	else if (kept->on_devices && !kept->slabs_come)
		answer(kept, NEAP_OK, NULL);
	else if (kept->refused)
		answer(kept, kept->error, kept->why ? kept->why : neap_error_text(kept->error));
	else if (!kept->has_memory && !kept->slabs_come && rdma->settled)
		answer(kept, NEAP_OK, NULL); /* no device is open: all goes over TCP */
}

void neap_rdma_regions_settle(struct neap_rdma *rdma, uint32_t slot, struct neap_settle_call *call)
{
	struct neap_rdma_kept *kept = &rdma->kept[slot];
	call->next = kept->calls;
	kept->calls = call;
	answer_as_it_is(kept);
}

/* --- what peers were told before there were devices */

/* Regions that are told as TCP has them stay told until devices have all of them: no document in between lacks one. */
void neap_rdma_regions_look(struct neap_rdma *rdma)
{
	if (rdma->usable == 0)
		rdma->plain = true;
	else if (rdma->pending == 0)
		rdma->plain = false;
}

static void set_pending(struct neap_rdma_kept *kept, bool pending)
{
	struct neap_rdma *rdma = kept->rdma;
	if (kept->access != NEAP_OPEN || kept->pending == pending)
		return;
	kept->pending = pending;
	rdma->pending += pending ? 1u : -1u;
	neap_rdma_regions_look(rdma);
	if (!pending)
		neap_engine_reach_changed(rdma->base.engine);
}

/* --- refusals */

static size_t why_bytes(const struct neap_rdma_kept *kept)
{
	return kept->why ? strlen(kept->why) + 1 : 0;
}

static void forget_refusal(struct neap_rdma_kept *kept)
{
	if (kept->why)
		neap_release(kept->rdma->reactor, kept->why, why_bytes(kept));
	kept->why = NULL;
	kept->refused = false;
}

/* A thousand regions are refused for one reason: that is said once. */
static void refuse(struct neap_rdma_kept *kept, int error, const char *why)
{
	struct neap_rdma *rdma = kept->rdma;
	forget_refusal(kept);
	kept->refused = true;
	kept->error = error;
	kept->why = neap_allocate(rdma->reactor, strlen(why) + 1);
	if (kept->why)
		memcpy(kept->why, why, strlen(why) + 1);
	if (!rdma->said_refused)
		neap_log(rdma->reactor, rdma->insists ? NEAP_LOG_WARNING : NEAP_LOG_INFO, "rdma",
		         "memory at %p is not on the devices, is not published, and is moved over TCP: %s", kept->address, why);
	rdma->said_refused = true;
	set_pending(kept, false);
	answer_as_it_is(kept);
}

static void refuse_at_once(struct neap_rdma_kept *kept, int error)
{
	char why[NEAP_RDMA_WHY_SIZE];
	if (error == NEAP_ELIMIT)
		(void)snprintf(why, sizeof why,
		               "%llu bytes would be more than %u pieces of what the devices register at once: register less at a time, or raise "
		               "rdma.region_max_bytes (MC_MAX_MR_SIZE)",
		               (unsigned long long)kept->length, NEAP_RDMA_PIECES_MAX);
	else
		(void)snprintf(why, sizeof why, "%s", neap_error_text(error));
	refuse(kept, error, why);
}

/* --- slabs */

static bool is_slabless(const struct neap_rdma_kept *kept)
{
	return kept->access == NEAP_GRANT_ONLY && !kept->has_slabs;
}

static void refuse_slabs(struct neap_rdma_kept *kept, const char *why)
{
	struct neap_rdma *rdma = kept->rdma;
	if (!rdma->said_refused)
		neap_log(rdma->reactor, rdma->insists ? NEAP_LOG_WARNING : NEAP_LOG_INFO, "rdma",
		         "memory at %p is not on the devices for peers, and what they move under grants goes over TCP: %s", kept->address, why);
	rdma->said_refused = true;
}

static void slabs_registered(void *user, int error, const char *why)
{
	struct neap_rdma_kept *kept = user;
	if (error == NEAP_ECANCELED && !kept->wanted)
		return; /* `released` follows */
	kept->slabs_come = false;
	if (!error)
		kept->slabs_on_devices = neap_rdma_slabs_come(kept) == NEAP_OK;
	if (error) {
		kept->has_slabs = false;
		kept->rdma->waiting += kept->wanted;
	}
	if (error && error != NEAP_ECANCELED)
		refuse_slabs(kept, why);
	answer_as_it_is(kept);
}

/* Once the memory itself is there. */
static void bring_slabs_on(struct neap_rdma_kept *kept)
{
	struct neap_rdma *rdma = kept->rdma;
	const unsigned access = NEAP_VERBS_LOCAL_WRITE | NEAP_VERBS_REMOTE_READ | NEAP_VERBS_REMOTE_WRITE;
	int error = neap_rdma_memory_register_slabs(rdma->memory, kept->address, kept->length, access, rdma->options->slab_bytes,
	                                            slabs_registered, kept, &kept->slabs);
	kept->has_slabs = kept->slabs_come = !error;
	rdma->waiting -= !error;
	if (error && error != NEAP_ENODEV && error != NEAP_ECLOSED)
		refuse_slabs(kept, neap_error_text(error));
}

/* --- coming on */

static void registered(void *user, int error, const char *why)
{
	struct neap_rdma_kept *kept = user;
	struct neap_rdma *rdma = kept->rdma;
	if (error == NEAP_ECANCELED && kept->wanted == false)
		return; /* `released` follows */
	if (error) {
		kept->has_memory = false;
		rdma->waiting += kept->wanted;
		if (kept->wanted && error != NEAP_ECANCELED)
			refuse(kept, error, why);
		else
			answer_as_it_is(kept);
		return;
	}
	kept->on_devices = true;
	rdma->said_refused = false;
	if (rdma->initiator)
		neap_rdma_initiator_memory_changed(rdma->initiator, false);
	set_pending(kept, false);
	if (is_slabless(kept) && kept->wanted && !rdma->ending)
		bring_slabs_on(kept);
	answer_as_it_is(kept);
}

static void bring_on(struct neap_rdma_kept *kept)
{
	struct neap_rdma *rdma = kept->rdma;
	unsigned access = NEAP_VERBS_LOCAL_WRITE;
	if (kept->access == NEAP_OPEN)
		access |= NEAP_VERBS_REMOTE_READ | NEAP_VERBS_REMOTE_WRITE;
	int error = neap_rdma_memory_register(rdma->memory, kept->address, kept->length, access, registered, kept, &kept->memory);
	if (error == NEAP_ENODEV)
		return;
	if (error) {
		refuse_at_once(kept, error);
		return;
	}
	forget_refusal(kept);
	set_pending(kept, true);
	kept->has_memory = true;
	rdma->waiting--;
}

static void bring_on_what_lacks(struct neap_rdma_kept *kept)
{
	if (!kept->has_memory)
		bring_on(kept);
	else if (kept->on_devices && is_slabless(kept))
		bring_slabs_on(kept);
}

static bool can_take(const struct neap_rdma *rdma)
{
	return rdma->memory && !rdma->ending;
}

static void took(void *user, uint32_t slot, void *address, uint64_t length, enum neap_access access)
{
	struct neap_rdma *rdma = user;
	struct neap_rdma_kept *kept = &rdma->kept[slot];
	*kept = (struct neap_rdma_kept){.rdma = rdma, .address = address, .length = length, .access = access, .wanted = true};
	rdma->waiting += 1 + is_slabless(kept);
	set_pending(kept, true);
	if (can_take(rdma))
		bring_on(kept);
}

/* --- going off */

static void let_go(struct neap_rdma_kept *kept)
{
	struct neap_rdma *rdma = kept->rdma;
	neap_registry_let_go(rdma->view->registry, (uint32_t)(kept - rdma->kept));
}

static void one_is_off(struct neap_rdma_kept *kept, int error)
{
	kept->stays |= error != NEAP_OK;
	if (--kept->leaving > 0)
		return;
	if (!kept->stays) {
		let_go(kept);
		return;
	}
	neap_log(kept->rdma->reactor, NEAP_LOG_ERROR, "rdma",
	         "memory at %p cannot be taken off a device: it must stay as it is until this process ends, and its release is not told",
	         kept->address);
}

static void released(void *user, int error)
{
	struct neap_rdma_kept *kept = user;
	kept->has_memory = false;
	one_is_off(kept, error);
}

static void slabs_released(void *user, int error)
{
	struct neap_rdma_kept *kept = user;
	kept->has_slabs = kept->slabs_come = false;
	neap_rdma_slabs_go(kept, error == NEAP_OK);
	one_is_off(kept, error);
}

static bool release(struct neap_rdma_kept *kept, uint64_t memory, neap_rdma_released *told)
{
	const struct neap_rdma *rdma = kept->rdma;
	return rdma->memory && !neap_rdma_memory_release(rdma->memory, memory, told, kept);
}

static void ended(void *user, uint32_t slot)
{
	struct neap_rdma *rdma = user;
	struct neap_rdma_kept *kept = &rdma->kept[slot];
	kept->wanted = kept->on_devices = false;
	forget_refusal(kept);
	set_pending(kept, false);
	if (rdma->initiator)
		neap_rdma_initiator_memory_changed(rdma->initiator, false);
	answer_as_it_is(kept);
	rdma->waiting -= (uint32_t)!kept->has_memory + is_slabless(kept);
	kept->has_memory = kept->has_memory && release(kept, kept->memory, released);
	if (kept->has_slabs && !release(kept, kept->slabs, slabs_released)) {
		kept->has_slabs = false;
		neap_rdma_slabs_go(kept, true);
	}
	kept->leaving = (uint8_t)(kept->has_memory + kept->has_slabs);
	if (!kept->leaving)
		let_go(kept);
}

/* --- scratch */

#define SCRATCH_AGAIN_NS UINT64_C(1000000000)

static void forget_scratch(struct neap_timer *timer, void *user)
{
	struct neap_rdma *rdma = user;
	(void)timer;
	if (rdma->scratch.phase == NEAP_RDMA_SCRATCH_REFUSED)
		rdma->scratch.phase = NEAP_RDMA_SCRATCH_NONE; /* tried again when it is wanted */
}

/* What was in its way may have been there for a moment only: no memory, a device in trouble. */
static void refuse_scratch(struct neap_rdma *rdma)
{
	rdma->scratch.phase = NEAP_RDMA_SCRATCH_REFUSED;
	if (!rdma->ending && !neap_timer_active(&rdma->scratch_again))
		(void)neap_timer_start(rdma->reactor, &rdma->scratch_again, neap_now(rdma->reactor) + SCRATCH_AGAIN_NS, forget_scratch, rdma);
}

static void scratch_came(void *user, int error, const char *why)
{
	struct neap_rdma *rdma = user;
	rdma->scratch.phase = NEAP_RDMA_SCRATCH_THERE;
	if (error)
		refuse_scratch(rdma);
	if (error && error != NEAP_ECANCELED)
		neap_log(rdma->reactor, NEAP_LOG_WARNING, "rdma", "writes whose placement is to be sure fail: %s", why);
	if (rdma->initiator)
		neap_rdma_initiator_memory_changed(rdma->initiator, true);
}

void neap_rdma_want_scratch(void *user)
{
	struct neap_rdma *rdma = user;
	struct neap_rdma_scratch *scratch = &rdma->scratch;
	if (!scratch->bytes)
		scratch->bytes = neap_allocate(rdma->reactor, NEAP_RDMA_SCRATCH_BYTES);
	int error = scratch->bytes && can_take(rdma) ? neap_rdma_memory_register(rdma->memory, scratch->bytes, NEAP_RDMA_SCRATCH_BYTES,
	                                                                         NEAP_VERBS_LOCAL_WRITE, scratch_came, rdma, &scratch->memory)
	                                             : NEAP_ENOMEM;
	if (error && error != NEAP_ENODEV)
		refuse_scratch(rdma);
	else if (!error)
		scratch->phase = NEAP_RDMA_SCRATCH_COMING;
}

/* --- devices that come and go */

static void run_sweep(struct neap_ready *ready)
{
	struct neap_rdma *rdma = (struct neap_rdma *)(void *)((char *)ready - offsetof(struct neap_rdma, sweep));
	uint32_t most = rdma->view->options->regions_max, i = 0;
	for (; i < SWEEP_AT_ONCE && rdma->sweep_next < most; i++) {
		struct neap_rdma_kept *kept = &rdma->kept[rdma->sweep_next++];
		if (!kept->rdma)
			continue; /* never used */
		if (kept->wanted && can_take(rdma))
			bring_on_what_lacks(kept);
		answer_as_it_is(kept);
	}
	if (rdma->sweep_next < most)
		neap_ready_again(rdma->reactor, &rdma->sweep);
}

/* From the beginning, also when it was under way. */
static void sweep(struct neap_rdma *rdma)
{
	rdma->sweep_next = 0;
	neap_ready_again(rdma->reactor, &rdma->sweep);
	neap_reactor_touch(rdma->reactor);
}

void neap_rdma_regions_devices_changed(struct neap_rdma *rdma, bool more)
{
	if (!rdma->memory)
		return;
	neap_rdma_memory_devices_changed(rdma->memory);
	if (more && rdma->scratch.phase == NEAP_RDMA_SCRATCH_REFUSED)
		rdma->scratch.phase = NEAP_RDMA_SCRATCH_NONE; /* tried again when it is wanted */
	if (more && rdma->waiting)
		sweep(rdma);
}

void neap_rdma_regions_stop(struct neap_rdma *rdma)
{
	neap_timer_cancel(rdma->reactor, &rdma->scratch_again);
	if (rdma->kept)
		sweep(rdma);
}

/* A region has come on a device that came back, or is off one that failed. */
static void keys_changed(void *user, unsigned access)
{
	struct neap_rdma *rdma = user;
	if (rdma->initiator)
		neap_rdma_initiator_memory_changed(rdma->initiator, true);
	if (access & NEAP_VERBS_REMOTE_WRITE)
		neap_engine_reach_changed(rdma->base.engine);
}

/* --- questions */

/* One that came back may go without it, and be the only one. */
static bool a_device_has(const struct neap_rdma *rdma, const struct neap_rdma_kept *kept, const void *address)
{
	for (uint32_t i = 0; kept->on_devices && rdma->memory && i < rdma->device_count; i++) {
		const struct neap_rdma_device *device = neap_rdma_devices_at(rdma->devices, i);
		struct neap_verbs_keys keys;
		uint64_t end;
		if (device->usable && !neap_rdma_memory_keys(rdma->memory, kept->memory, device, address, &keys, &end))
			return true;
	}
	return false;
}

bool neap_rdma_is_on_devices(const struct neap_rdma *rdma, const void *address, uint64_t length)
{
	struct neap_access_ref ref;
	return neap_registry_check_local(rdma->view->registry, (uintptr_t)address, length, &ref) == NEAP_OK &&
	       a_device_has(rdma, &rdma->kept[ref.region_slot], address);
}

bool neap_rdma_find_local(void *user, uint64_t address, struct neap_rdma_local *local_p)
{
	const struct neap_rdma *rdma = user;
	struct neap_access_ref ref;
	if (neap_registry_check_local(rdma->view->registry, address, 1, &ref) != NEAP_OK)
		return false;
	const struct neap_rdma_kept *kept = &rdma->kept[ref.region_slot];
	uint64_t from = (uintptr_t)kept->address;
	*local_p = (struct neap_rdma_local){.memory_id = kept->memory, .from = from, .to = from + kept->length,
	                                    .location = neap_registry_location(rdma->view->registry, ref.region_slot)};
	return kept->on_devices;
}

/* --- begin and end */

/* Devices are there. */
int neap_rdma_regions_begin(struct neap_rdma *rdma)
{
	const struct neap_rdma_memory_options options = {
		.regions_max = neap_rdma_ranges_max(rdma->view->options),
		.piece_max_bytes = rdma->options->region_max_bytes,
		.strict_ordering = rdma->options->strict_ordering,
		.keys_changed = keys_changed,
		.user = rdma,
	};
	const struct neap_registry_keeper keeper = {
		.took = took, .ended = ended, .lend = neap_rdma_lend, .recall = neap_rdma_recall, .user = rdma};
	rdma->sweep.run = run_sweep;
	rdma->kept = neap_allocate(rdma->reactor, rdma->view->options->regions_max * sizeof *rdma->kept);
	if (!rdma->kept)
		return NEAP_ENOMEM;
	int error = neap_rdma_grants_begin(rdma);
	if (!error)
		error = neap_rdma_memory_create(rdma->reactor, rdma->verbs, rdma->helper, rdma->devices, &options, &rdma->memory);
	if (error)
		neap_rdma_regions_free(rdma);
	else
		neap_registry_keep(rdma->view->registry, &keeper);
	return error;
}

void neap_rdma_regions_free(struct neap_rdma *rdma)
{
	uint32_t most = rdma->view->options->regions_max;
	neap_ready_cancel(rdma->reactor, &rdma->sweep);
	for (uint32_t i = 0; rdma->kept && i < most; i++) {
		struct neap_rdma_kept *kept = &rdma->kept[i];
		if (kept->why)
			neap_release(rdma->reactor, kept->why, why_bytes(kept));
		if (kept->slab_at)
			neap_release(rdma->reactor, kept->slab_at, kept->slab_count * sizeof *kept->slab_at);
	}
	neap_rdma_grants_free(rdma);
	neap_timer_cancel(rdma->reactor, &rdma->scratch_again);
	if (rdma->scratch.bytes)
		neap_release(rdma->reactor, rdma->scratch.bytes, NEAP_RDMA_SCRATCH_BYTES);
	rdma->scratch.bytes = NULL;
	if (rdma->kept)
		neap_release(rdma->reactor, rdma->kept, most * sizeof *rdma->kept);
	rdma->kept = NULL;
}
