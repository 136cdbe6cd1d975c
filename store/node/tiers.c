/* The memory of a store: its tiers, made of what the configuration says and registered with the engine. */
#include "store/node/inside.h"
#include <stdio.h>
#include <string.h>

#define MOVES_MAX 256u /* values between memory and the disk at once */

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
	tier->capacity = tier->dram.capacity;
	return neap_dram_engine_begin(&tier->binding, store->engine, &tier->dram, settings->numa_node, false, why, why_size);
}

/* The smaller of the two sizes counts, and a tier that is smaller than a bucket has one bucket. */
static int open_storage(struct neap_store *store, struct node_tier *tier, const struct neap_tier_settings *settings, char *why,
                        size_t why_size)
{
	uint64_t capacity = settings->capacity < settings->total_size_limit ? settings->capacity : settings->total_size_limit;
	struct neap_storage_options options = {
		.directory = settings->storage_filepath,
		.capacity = capacity,
		.bucket_bytes = settings->bucket_size_limit < capacity ? settings->bucket_size_limit : capacity & ~UINT64_C(4095),
		.staging_bytes = settings->staging_buffer_capacity,
		.jobs_max = MOVES_MAX + 8, /* and its own */
	};
	struct neap_storage_stats stats;
	int error = neap_storage_create(&tier->storage, store->reactor, &options, why, why_size);
	if (error)
		return error;
	tier->made = true;
	store->tiers_open++;
	neap_storage_stats(tier->storage, &stats);
	tier->capacity = stats.capacity;
	store->lower.largest = options.bucket_bytes;
	return NEAP_OK;
}

static void describe(struct neap_store *store, uint32_t index, const struct neap_tier_settings *settings)
{
	struct neap_key_segment *segment = &store->segments[index];
	segment->id = (struct neap_key_id){neap_random_u64(store->reactor), neap_random_u64(store->reactor) | 1};
	(void)snprintf(segment->name, sizeof segment->name, "tier_%016llx_%016llx", (unsigned long long)segment->id.first,
	               (unsigned long long)segment->id.second);
	segment->capacity = store->tier[index].capacity;
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
	bool disk = settings->kind == NEAP_TIER_STORAGE;
	int error = disk ? open_storage(store, tier, settings, reason, sizeof reason) : open_dram(store, tier, settings, reason, sizeof reason);
	if (!error)
		error = neap_tiers_add(&store->tiers, settings, disk ? &neap_storage_tier_ops : &neap_dram_tier_ops,
		                       disk ? (void *)tier->storage : &tier->dram, tier->capacity, &added);
	if (error) {
		(void)snprintf(why, why_size, "tiers[%u]: %s", index, *reason ? reason : neap_error_text(error));
		return error;
	}
	describe(store, index, settings);
	return NEAP_OK;
}

/* What a tier on a disk asks of the others. */
static int check_order(const struct neap_tier_config *config, char *why, size_t why_size)
{
	const struct neap_tier_settings *disk = NULL;
	bool memory = false;
	for (uint32_t i = 0; i < config->tier_count; i++) {
		const struct neap_tier_settings *tier = &config->tiers[i];
		memory |= tier->kind == NEAP_TIER_DRAM;
		if (tier->kind == NEAP_TIER_STORAGE && disk) {
			(void)snprintf(why, why_size, "tiers[%u]: a store has one STORAGE tier at most; leave one out", i);
			return NEAP_EINVAL;
		}
		disk = tier->kind == NEAP_TIER_STORAGE ? tier : disk;
	}
	for (uint32_t i = 0; disk && i < config->tier_count; i++)
		if (&config->tiers[i] != disk && config->tiers[i].priority <= disk->priority) {
			(void)snprintf(why, why_size, "tiers[%u]: its priority must be higher than that of the STORAGE tier, which is read through it",
			               i);
			return NEAP_EINVAL;
		}
	if (disk && !memory) {
		(void)snprintf(why, why_size, "a STORAGE tier needs a DRAM tier above it: values are put there and read from there");
		return NEAP_EINVAL;
	}
	return NEAP_OK;
}

/* Roles given by tags must be those that the tiers have: values are put where the priority is highest, and move down to the disk alone. */
static int check_roles(const struct neap_tier_config *config, char *why, size_t why_size)
{
	const struct neap_scheduler_settings *scheduler = &config->scheduler;
	if (scheduler->role_mode != NEAP_ROLES_MANUAL)
		return NEAP_OK;
	const struct neap_tier_settings *fast = neap_tier_config_tagged(config, scheduler->fast_tier_tag);
	const struct neap_tier_settings *slow = neap_tier_config_tagged(config, scheduler->slow_tier_tag);
	for (uint32_t i = 0; i < config->tier_count; i++) {
		const struct neap_tier_settings *tier = &config->tiers[i];
		if (tier->priority > fast->priority) {
			(void)snprintf(why, why_size, "scheduler.fast_tier_tag: \"%s\" must be a tag of tiers[%u], whose priority is higher",
			               scheduler->fast_tier_tag, i);
			return NEAP_EINVAL;
		}
		if ((tier == slow) != (tier->kind == NEAP_TIER_STORAGE)) {
			(void)snprintf(why, why_size,
			               "scheduler.slow_tier_tag: \"%s\" must be a tag of the STORAGE tier and of no other; tiers[%u] is %s",
			               scheduler->slow_tier_tag, i, tier == slow ? "memory" : "one without it");
			return NEAP_EINVAL;
		}
	}
	return NEAP_OK;
}

static uint32_t within(uint64_t value, uint32_t least, uint32_t most)
{
	return value < least ? least : value > most ? most : (uint32_t)value;
}

static void take_scheduler(struct neap_store *store, const struct neap_scheduler_settings *scheduler)
{
	for (uint32_t i = 0; i < store->tier_count; i++)
		if (store->tier[i].storage)
			store->lower.tier = i;
	store->lower.moves_max = MOVES_MAX;
	store->lower.sketch_keys = within(scheduler->sketch_capacity, 16, 1u << 30);
	store->lower.rules = (struct neap_move_rules){
		.offload_freq = within(scheduler->offload_freq_threshold, 0, NEAP_FREQUENCY_MAX),
		.onboard_freq = within(scheduler->onboard_freq_threshold, 0, NEAP_FREQUENCY_MAX),
		.onboard_usage = scheduler->onboard_fast_threshold,
	};
}

int node_tiers_open(struct neap_store *store, const struct neap_tier_config *config, char *why, size_t why_size)
{
	const struct neap_scheduler_settings *scheduler = &config->scheduler;
	struct neap_tiers_options options = {.watermark_low = scheduler->watermark_low, .watermark_high = scheduler->watermark_high};
	int error = check_order(config, why, why_size);
	if (!error)
		error = check_roles(config, why, why_size);
	if (error)
		return error;
	error = neap_tiers_create(&store->tiers, store->reactor, &options);
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
	take_scheduler(store, scheduler);
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
		if (store->tier[i].storage)
			(void)neap_storage_close(store->tier[i].storage, unmapped, store);
		else if (store->tier[i].made)
			(void)neap_dram_close(&store->tier[i].dram, unmapped, store);
}
