#include "store/tier/handle.h"
#include <assert.h>
#include <neap/store_error.h>

int neap_handles_create(struct neap_handles *handles, struct neap_reactor *reactor, uint32_t handles_max, uint64_t quarantine_limit)
{
	*handles = (struct neap_handles){.quarantine_limit = quarantine_limit};
	return neap_pool_create(&handles->pool, reactor, sizeof(struct neap_handle), handles_max);
}

void neap_handles_destroy(struct neap_handles *handles)
{
	assert(handles->pool.used == 0 && "handles are still held");
	neap_pool_destroy(&handles->pool);
}

int neap_handle_reserve(struct neap_tier *tier, uint64_t bytes, struct neap_handle **handle_p)
{
	struct neap_extent extent;
	*handle_p = NULL;
	int error = tier->ops->reserve(tier->backend, bytes, &extent);
	if (error)
		return error;
	struct neap_handle *handle = neap_pool_take(&tier->handles->pool);
	if (!handle) {
		tier->ops->release(tier->backend, &extent);
		return NEAP_STORE_NO_AVAILABLE_HANDLE;
	}
	*handle = (struct neap_handle){.tier = tier, .extent = extent, .references = 1, .phase = NEAP_HANDLE_RESERVED};
	tier->counts.handles++;
	tier->counts.requested_bytes += extent.size;
	tier->counts.rounded_bytes += extent.rounded;
	*handle_p = handle;
	return NEAP_STORE_OK;
}

static uint64_t give_back(struct neap_handle *handle)
{
	struct neap_tier *tier = handle->tier;
	uint64_t bytes = handle->extent.rounded;
	tier->counts.handles--;
	tier->counts.requested_bytes -= handle->extent.size;
	tier->counts.rounded_bytes -= bytes;
	tier->ops->release(tier->backend, &handle->extent);
	neap_pool_give(&tier->handles->pool, handle);
	return bytes;
}

static void quarantine(struct neap_handle *handle)
{
	struct neap_handles *handles = handle->tier->handles;
	handle->phase = NEAP_HANDLE_QUARANTINED;
	handle->next = handles->quarantine;
	handle->slot = &handles->quarantine;
	if (handle->next)
		handle->next->slot = &handle->next;
	handles->quarantine = handle;
	handles->quarantined++;
	handles->quarantined_ever++;
	handles->quarantined_bytes += handle->extent.rounded;
	handle->tier->counts.quarantined++;
	handle->tier->counts.quarantined_bytes += handle->extent.rounded;
}

static uint64_t leave_quarantine(struct neap_handle *handle)
{
	struct neap_handles *handles = handle->tier->handles;
	*handle->slot = handle->next;
	if (handle->next)
		handle->next->slot = handle->slot;
	handles->quarantined--;
	handles->released_ever++;
	handles->quarantined_bytes -= handle->extent.rounded;
	handle->tier->counts.quarantined--;
	handle->tier->counts.quarantined_bytes -= handle->extent.rounded;
	return give_back(handle);
}

struct neap_handle *neap_handle_hold(struct neap_handle *handle)
{
	assert(handle->references > 0 && "a handle is held again after its end");
	if (handle->references++ == 1 && handle->phase == NEAP_HANDLE_COMMITTED)
		handle->tier->counts.pinned_bytes += handle->extent.rounded;
	neap_evict_pin(&handle->entry);
	return handle;
}

uint64_t neap_handle_drop(struct neap_handle *handle)
{
	assert(handle->references > 0 && "a handle is dropped more often than held");
	if (handle->references == 0)
		return 0;
	if (--handle->references > 0) {
		if (handle->references == 1 && handle->phase == NEAP_HANDLE_COMMITTED)
			handle->tier->counts.pinned_bytes -= handle->extent.rounded;
		neap_evict_unpin(&handle->entry);
		return 0;
	}
	neap_handle_withdraw(handle);
	if (!handle->exposures)
		return give_back(handle);
	quarantine(handle);
	return 0;
}

void neap_handle_commit(struct neap_handle *handle, void *object)
{
	assert(handle->phase == NEAP_HANDLE_RESERVED && "a handle is committed twice");
	if (handle->phase != NEAP_HANDLE_RESERVED)
		return;
	struct neap_tier_counts *counts = &handle->tier->counts;
	handle->phase = NEAP_HANDLE_COMMITTED;
	handle->object = object;
	counts->committed++;
	counts->committed_bytes += handle->extent.rounded;
	if (handle->references > 1)
		counts->pinned_bytes += handle->extent.rounded;
	neap_evict_insert(&handle->tier->eviction, &handle->entry);
}

void neap_handle_withdraw(struct neap_handle *handle)
{
	struct neap_tier_counts *counts = &handle->tier->counts;
	if (handle->phase != NEAP_HANDLE_COMMITTED)
		return;
	neap_evict_remove(&handle->entry);
	handle->phase = NEAP_HANDLE_RESERVED;
	handle->object = NULL;
	counts->committed--;
	counts->committed_bytes -= handle->extent.rounded;
	if (handle->references > 1)
		counts->pinned_bytes -= handle->extent.rounded;
}

void *neap_handle_address(const struct neap_handle *handle)
{
	const struct neap_tier *tier = handle->tier;
	return tier->ops->address ? tier->ops->address(tier->backend, handle->extent.offset) : NULL;
}

/* --- exposures -------------------------------------------------------------------------------------------------------- */

int neap_exposure_begin(struct neap_exposure *exposure, struct neap_handle *handle, uint64_t peer)
{
	struct neap_handles *handles = handle->tier->handles;
	assert(!exposure->handle && handle->references > 0 && "an exposure is begun twice, or of nothing");
	/* An object larger than the limit is let alone into an empty quarantine: otherwise nobody could ever reach it. */
	if (handles->quarantined_bytes > 0 && (handle->extent.rounded > handles->quarantine_limit ||
	                                       handles->quarantined_bytes > handles->quarantine_limit - handle->extent.rounded)) {
		handles->refused++;
		return NEAP_STORE_NO_AVAILABLE_HANDLE;
	}
	exposure->handle = handle;
	exposure->peer = peer;
	exposure->next = handle->exposures;
	exposure->slot = &handle->exposures;
	if (exposure->next)
		exposure->next->slot = &exposure->next;
	handle->exposures = exposure;
	return NEAP_STORE_OK;
}

static struct neap_handle *unlink_exposure(struct neap_exposure *exposure)
{
	struct neap_handle *handle = exposure->handle;
	*exposure->slot = exposure->next;
	if (exposure->next)
		exposure->next->slot = exposure->slot;
	exposure->next = NULL;
	exposure->slot = NULL;
	exposure->handle = NULL;
	return handle;
}

uint64_t neap_exposure_end(struct neap_exposure *exposure, enum neap_fact_kind fact)
{
	(void)fact; /* each of them ends one exposure; the caller names what it knows */
	if (!exposure->handle)
		return 0;
	struct neap_handle *handle = unlink_exposure(exposure);
	return handle->phase == NEAP_HANDLE_QUARANTINED && !handle->exposures ? leave_quarantine(handle) : 0;
}

static bool speaks_of(const struct neap_fact *fact, const struct neap_exposure *exposure)
{
	const struct neap_handle *handle = exposure->handle;
	const struct neap_extent *extent = &handle->extent;
	switch (fact->kind) {
	case NEAP_FACT_SLAB_FENCED:
		return handle->tier == fact->tier && extent->offset >= fact->offset && extent->rounded <= fact->length &&
		       extent->offset - fact->offset <= fact->length - extent->rounded;
	case NEAP_FACT_PEER_FENCED: return exposure->peer == fact->peer;
	case NEAP_FACT_QUIET:
	case NEAP_FACT_GRANT_ENDED: break; /* neap_exposure_end */
	}
	return false;
}

static void end_exposures(struct neap_handle *handle, const struct neap_fact *fact)
{
	struct neap_exposure *next;
	for (struct neap_exposure *exposure = handle->exposures; exposure; exposure = next) {
		next = exposure->next;
		if (!speaks_of(fact, exposure))
			continue;
		unlink_exposure(exposure);
		if (exposure->ended)
			exposure->ended(exposure, fact->kind);
	}
}

uint32_t neap_quarantine_release(struct neap_handles *handles, const struct neap_fact *fact)
{
	uint32_t released = 0;
	struct neap_handle *next;
	for (struct neap_handle *handle = handles->quarantine; handle; handle = next) {
		next = handle->next;
		end_exposures(handle, fact);
		if (handle->exposures)
			continue;
		leave_quarantine(handle);
		released++;
	}
	return released;
}
