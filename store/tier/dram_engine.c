#include "store/tier/dram_engine.h"
#include <stdio.h>

static int attach(void *user, uint32_t slab, void *address, uint64_t length, char *why, size_t why_size)
{
	struct neap_dram_engine *binding = user;
	struct neap_memory memory = {
		.address = binding->by_slab ? address : binding->base,
		.length = binding->by_slab ? length : binding->length,
		.location = binding->location[0] ? binding->location : NULL,
		.access = NEAP_GRANT_ONLY,
	};
	int error = NEAP_OK;
	if (binding->by_slab || binding->attached == 0)
		error = neap_memory_register(binding->engine, &memory, 1, &binding->regions[binding->by_slab ? slab : 0], why, why_size);
	binding->attached += !error;
	return error;
}

static int detach(void *user, uint32_t slab, void (*released)(void *argument), void *argument)
{
	struct neap_dram_engine *binding = user;
	int error = NEAP_OK;
	if (binding->by_slab || binding->attached == 1)
		error = neap_memory_unregister(binding->engine, binding->regions[binding->by_slab ? slab : 0], released, argument);
	else
		released(argument); /* the last one waits for all */
	binding->attached -= !error;
	return error;
}

static const struct neap_slab_ops engine_ops = {attach, detach};

int neap_dram_engine_begin(struct neap_dram_engine *binding, struct neap_engine *engine, struct neap_dram *dram, int numa_node,
                           bool by_slab, char *why, size_t why_size)
{
	*binding = (struct neap_dram_engine){.engine = engine, .reactor = dram->reactor, .count = dram->slab_count, .by_slab = by_slab,
	                                     .base = dram->base, .length = dram->capacity};
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
