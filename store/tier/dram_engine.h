/* A DRAM tier's memory as regions of a transfer engine, which peers reach with a grant only.
 *
 * Where ending a grant is enough to keep a peer out (TCP: it is looked at before each piece) the tier is one region, so that a grant may
 * cover any object. Where only taking the memory from the transport does, each slab is a region, and the unit of that; an object of more
 * than one slab is then out of reach of a single grant. */
#ifndef NEAP_STORE_TIER_DRAM_ENGINE_H
#define NEAP_STORE_TIER_DRAM_ENGINE_H

#include "store/tier/dram.h"
#include <neap/engine.h>

struct neap_dram_engine {
	struct neap_engine *engine;
	struct neap_reactor *reactor;
	neap_region_id *regions; /* one a slab, or one */
	uint32_t count;
	bool by_slab;
	uint32_t attached;       /* slabs; not by slab: the region goes with the last */
	unsigned char *base;
	uint64_t length;
	char location[32];       /* "cpu:N"; empty: the engine finds out */
};

/* The home engine; it outlives the binding. numa_node < 0: not known. NEAP_ENOMEM, and what registration says. On failure use
 * neap_dram_close, then neap_dram_engine_end. */
int neap_dram_engine_begin(struct neap_dram_engine *binding, struct neap_engine *engine, struct neap_dram *dram, int numa_node,
                           bool by_slab, char *why, size_t why_size);
/* After the tier has closed. */
void neap_dram_engine_end(struct neap_dram_engine *binding);

#endif
