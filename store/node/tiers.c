/* The memory of a store: its tiers, made of what the configuration says and registered with the engine. */
#include "store/node/inside.h"
#include <stdio.h>
#include <string.h>

static int open_dram(struct neap_store *store, struct node_tier *tier, const struct neap_tier_settings *settings, char *why,
                     size_t why_size)
{
	struct neap_dram_options options = {
		.capacity = settings->capacity,
		.slab_bytes = settings->slab_bytes,
		.numa_node = settings->numa_node,
		.pages = settings->pages,
	};
	int error = neap_dram_create(&tier->dram, store->reactor, &options, why, why_size);
	if (error)
		return error;
	tier->made = true;
	store->tiers_open++;
	return neap_dram_engine_begin(&tier->binding, store->engine, &tier->dram, settings->numa_node, false, why, why_size);
}

static void describe(struct neap_store *store, uint32_t index, const struct neap_tier_settings *settings)
{
	struct neap_key_segment *segment = &store->segments[index];
	segment->id = (struct neap_key_id){neap_random_u64(store->reactor), neap_random_u64(store->reactor) | 1};
	(void)snprintf(segment->name, sizeof segment->name, "tier_%016llx_%016llx", (unsigned long long)segment->id.first,
	               (unsigned long long)segment->id.second);
	segment->capacity = store->tier[index].dram.capacity;
	segment->priority = settings->priority;
	segment->memory_type = settings->kind;
	segment->tag_count = settings->tag_count;
	memcpy(segment->tags, settings->tags, sizeof segment->tags);
}

static int open_tier(struct neap_store *store, uint32_t index, const struct neap_tier_settings *settings, char *why, size_t why_size)
{
	struct node_tier *tier = &store->tier[index];
	char reason[NODE_WHY_MAX] = "";
	uint32_t added;
	tier->kind = settings->kind;
	if (settings->kind != NEAP_TIER_DRAM) {
		(void)snprintf(why, why_size,
		               "tiers[%u]: a STORAGE tier cannot be served yet: values reach it only from a faster one, and they stay where they "
		               "are put; leave it out",
		               index);
		return NEAP_ENOTSUP;
	}
	int error = open_dram(store, tier, settings, reason, sizeof reason);
	if (!error)
		error = neap_tiers_add(&store->tiers, settings, &neap_dram_tier_ops, &tier->dram, tier->dram.capacity, &added);
	if (error) {
		(void)snprintf(why, why_size, "tiers[%u]: %s", index, *reason ? reason : neap_error_text(error));
		return error;
	}
	describe(store, index, settings);
	return NEAP_OK;
}

int node_tiers_open(struct neap_store *store, const struct neap_tier_config *config, char *why, size_t why_size)
{
	const struct neap_scheduler_settings *scheduler = &config->scheduler;
	struct neap_tiers_options options = {.watermark_low = scheduler->watermark_low, .watermark_high = scheduler->watermark_high};
	int error = neap_tiers_create(&store->tiers, store->reactor, &options);
	if (error) {
		(void)snprintf(why, why_size, "tiers: %s", neap_error_text(error));
		return error;
	}
	store->has_tiers = true;
	for (uint32_t i = 0; i < config->tier_count; i++) {
		store->tier_count = i + 1;
		error = open_tier(store, i, &config->tiers[i], why, why_size);
		if (error)
			return error;
	}
	return NEAP_OK;
}

static void unmapped(void *user)
{
	struct neap_store *store = user;
	if (--store->tiers_open == 0)
		node_life_ended(store);
}

void node_tiers_close(struct neap_store *store)
{
	if (store->has_tiers)
		(void)neap_tiers_destroy(&store->tiers); /* nothing is in them: the owner has closed */
	store->has_tiers = false;
	if (store->tiers_open == 0) {
		node_life_ended(store);
		return;
	}
	for (uint32_t i = 0; i < store->tier_count; i++)
		if (store->tier[i].made)
			(void)neap_dram_close(&store->tier[i].dram, unmapped, store);
}
