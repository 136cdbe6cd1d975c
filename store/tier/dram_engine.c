#include "store/tier/dram_engine.h"
#include <stdio.h>

static int attach(void *user, uint32_t slab, void *address, uint64_t length, char *why, size_t why_size)
{
	struct neap_dram_engine *binding = user;
	struct neap_memory memory = {
		.address = address,
		.length = length,
		.location = binding->location[0] ? binding->location : NULL,
		.access = NEAP_GRANT_ONLY,
	};
	return neap_memory_register(binding->engine, &memory, 1, &binding->regions[slab], why, why_size);
}

static int detach(void *user, uint32_t slab, void (*released)(void *argument), void *argument)
{
	struct neap_dram_engine *binding = user;
	return neap_memory_unregister(binding->engine, binding->regions[slab], released, argument);
}

static const struct neap_slab_ops engine_ops = {attach, detach};

int neap_dram_engine_begin(struct neap_dram_engine *binding, struct neap_engine *engine, struct neap_dram *dram, int numa_node,
                           char *why, size_t why_size)
{
	*binding = (struct neap_dram_engine){.engine = engine, .reactor = dram->reactor, .count = dram->slab_count};
	if (numa_node >= 0)
		snprintf(binding->location, sizeof binding->location, "cpu:%d", numa_node);
	binding->regions = neap_allocate(dram->reactor, binding->count * sizeof *binding->regions);
	if (!binding->regions) {
		snprintf(why, why_size, "out of memory");
		return NEAP_ENOMEM;
	}
	return neap_dram_attach(dram, &engine_ops, binding, why, why_size);
}

void neap_dram_engine_end(struct neap_dram_engine *binding)
{
	if (binding->regions)
		neap_release(binding->reactor, binding->regions, binding->count * sizeof *binding->regions);
	*binding = (struct neap_dram_engine){0};
}
