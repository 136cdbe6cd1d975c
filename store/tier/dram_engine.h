/* A DRAM tier's slabs as regions of a transfer engine: each is a region of its own that peers reach with a grant only. */
#ifndef NEAP_STORE_TIER_DRAM_ENGINE_H
#define NEAP_STORE_TIER_DRAM_ENGINE_H

#include "store/tier/dram.h"
#include <neap/engine.h>

struct neap_dram_engine {
	struct neap_engine *engine;
	struct neap_reactor *reactor;
	neap_region_id *regions; /* one a slab */
	uint32_t count;
	char location[32];       /* "cpu:N"; empty: the engine finds out */
};

/* The home engine; it outlives the binding. numa_node < 0: not known. NEAP_ENOMEM, and what registration says. On failure use
 * neap_dram_close, then neap_dram_engine_end. */
int neap_dram_engine_begin(struct neap_dram_engine *binding, struct neap_engine *engine, struct neap_dram *dram, int numa_node,
                           char *why, size_t why_size);
/* After the tier has closed. */
void neap_dram_engine_end(struct neap_dram_engine *binding);

#endif
