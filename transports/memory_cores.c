/* The cores that read the registry, and what their own requests use of the memory. */
#include "transports/registry.h"

#define NO_USE 0u
#define STRADDLES UINT32_MAX

/* --- cores */

int neap_registry_add_core(struct neap_registry *registry, struct neap_reactor *reactor, uint32_t *core_index_p)
{
	size_t bytes = registry->regions_max * sizeof(_Atomic uint32_t);
	_Atomic uint32_t *uses = neap_allocate(reactor, bytes);
	if (!uses)
		return NEAP_ENOMEM;
	for (uint32_t i = 0; i < NEAP_CORES_MAX; i++) {
		struct neap_registry_core *core = &registry->cores[i];
		uint32_t expected = 0;
		if (!atomic_compare_exchange_strong(&core->taken, &expected, 1))
			continue;
		atomic_store(&core->straddlers, 0);
		atomic_store(&core->uses, uses);
		/* From here on grace periods wait for this core; it has read nothing yet. */
		atomic_store(&core->turns, neap_reactor_turn_counter(reactor));
		*core_index_p = i;
		return NEAP_OK;
	}
	neap_release(reactor, (void *)(uintptr_t)uses, bytes);
	return NEAP_ELIMIT;
}

int neap_registry_remove_core(struct neap_registry *registry, uint32_t core_index, struct neap_reactor *reactor)
{
	struct neap_registry_core *core = &registry->cores[core_index];
	_Atomic uint32_t *uses = atomic_exchange(&core->uses, NULL);
	if (uses)
		core->uses_retired = uses;
	atomic_store(&core->turns, NULL);
	/* The home core may have read the pointers just before. When it is not looking now, it will find NULL. */
	if (atomic_load(&registry->looking) & 1)
		return NEAP_EAGAIN;
	neap_release(reactor, (void *)(uintptr_t)core->uses_retired, registry->regions_max * sizeof *uses);
	core->uses_retired = NULL;
	atomic_store(&core->taken, 0);
	return NEAP_OK;
}

void neap_registry_enter(struct neap_registry *registry, uint32_t core_index)
{
	atomic_fetch_add(&registry->cores[core_index].calls, 1);
}

void neap_registry_leave(struct neap_registry *registry, uint32_t core_index)
{
	atomic_fetch_add(&registry->cores[core_index].calls, 1);
}

/* --- use by local requests */

static void count_up(_Atomic uint32_t *counter)
{
	/* One writer, its core: no read-modify-write needed. */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_release);
}

static void count_down(_Atomic uint32_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) - 1, memory_order_release);
}

/* Fills the cache with the region or the gap that holds `address`. */
static void look_up(struct neap_registry *registry, struct neap_use_cache *cache, uint64_t version, uint64_t address)
{
	const struct neap_index_entry *entry = neap_index_at(atomic_load(&registry->index), address);
	cache->version = version;
	cache->use = NO_USE;
	if (entry && address - entry->address < entry->length && neap_region_live(registry, entry->slot, entry->generation)) {
		cache->from = entry->address;
		cache->to = entry->address + entry->length;
		cache->use = entry->slot + 1;
		return;
	}
	/* A gap: as far as the next live region, found by growing the question. */
	cache->from = address;
	uint64_t reach = UINT64_MAX - address;
	const struct neap_index_entry *next = neap_index_overlap(registry, address, reach);
	cache->to = next ? next->address : UINT64_MAX;
}

static uint32_t straddle(struct neap_registry_core *core, uint64_t from, uint64_t to)
{
	if (atomic_load(&core->straddlers) == 0 || from < atomic_load(&core->straddle_from))
		atomic_store(&core->straddle_from, from);
	if (atomic_load(&core->straddlers) == 0 || to > atomic_load(&core->straddle_to))
		atomic_store(&core->straddle_to, to);
	count_up(&core->straddlers);
	return STRADDLES;
}

uint32_t neap_registry_use(struct neap_registry *registry, uint32_t core_index, struct neap_use_cache *cache, uint64_t address,
                           uint64_t length)
{
	struct neap_registry_core *core = &registry->cores[core_index];
	uint64_t version = atomic_load_explicit(&registry->index_version, memory_order_acquire);
	if (cache->version != version || address < cache->from || address >= cache->to)
		look_up(registry, cache, version, address);
	if (length > cache->to - address)
		return straddle(core, address, address + length);
	if (cache->use != NO_USE)
		count_up(&atomic_load_explicit(&core->uses, memory_order_relaxed)[cache->use - 1]);
	return cache->use;
}

void neap_registry_unuse(struct neap_registry *registry, uint32_t core_index, uint32_t use)
{
	struct neap_registry_core *core = &registry->cores[core_index];
	if (use == STRADDLES)
		count_down(&core->straddlers);
	else if (use != NO_USE)
		count_down(&atomic_load_explicit(&core->uses, memory_order_relaxed)[use - 1]);
}
