#include "store/tier/tiers.h"
#include <neap/store_error.h>

#define HANDLES_DEFAULT (1u << 20)
#define STEPS_DEFAULT 4096u
#define ROUNDS_MAX 8u

/* --- tiers in memory -------------------------------------------------------------------------------------------------- */

static int dram_reserve(void *backend, uint64_t bytes, struct neap_extent *extent_p)
{
	return neap_dram_allocate(backend, bytes, extent_p);
}

static void dram_release(void *backend, const struct neap_extent *extent)
{
	neap_dram_free(backend, extent);
}

static void *dram_address(void *backend, uint64_t offset)
{
	return neap_dram_address(backend, offset);
}

const struct neap_tier_ops neap_dram_tier_ops = {.reserve = dram_reserve, .release = dram_release, .address = dram_address};

/* --- create ----------------------------------------------------------------------------------------------------------- */

int neap_tiers_create(struct neap_tiers *tiers, struct neap_reactor *reactor, const struct neap_tiers_options *options)
{
	*tiers = (struct neap_tiers){.options = *options};
	struct neap_tiers_options *mine = &tiers->options;
	if (mine->handles_max == 0)
		mine->handles_max = HANDLES_DEFAULT;
	if (mine->evict_steps == 0)
		mine->evict_steps = STEPS_DEFAULT;
	if (!(mine->watermark_low > 0))
		mine->watermark_low = NEAP_EVICT_LOW;
	if (!(mine->watermark_high > 0))
		mine->watermark_high = NEAP_EVICT_HIGH;
	if (mine->watermark_low > mine->watermark_high || mine->watermark_high > 1)
		return NEAP_EINVAL;
	return neap_handles_create(&tiers->handles, reactor, mine->handles_max, mine->quarantine_limit);
}

int neap_tiers_destroy(struct neap_tiers *tiers)
{
	if (tiers->handles.pool.used > 0)
		return NEAP_EBUSY;
	neap_handles_destroy(&tiers->handles);
	*tiers = (struct neap_tiers){0};
	return NEAP_OK;
}

/* Called by the queue; what counts is what the tier has free afterwards, not what the owner says. */
static uint64_t evict_one(void *user, struct neap_evict_entry *entry)
{
	struct neap_tiers_tier *it = user;
	struct neap_handle *handle = (struct neap_handle *)(void *)entry;
	uint64_t before = it->tier.counts.rounded_bytes;
	if (!it->tiers->options.evict)
		return 0;
	it->tiers->options.evict(it->tiers->options.user, handle);
	uint64_t after = it->tier.counts.rounded_bytes;
	return before > after ? before - after : 0;
}

static void put_in_order(struct neap_tiers *tiers, uint32_t index)
{
	uint32_t at = tiers->count++;
	while (at > 0 && tiers->tiers[tiers->order[at - 1]].priority < tiers->tiers[index].priority) {
		tiers->order[at] = tiers->order[at - 1];
		at--;
	}
	tiers->order[at] = index;
}

int neap_tiers_add(struct neap_tiers *tiers, const struct neap_tier_settings *settings, const struct neap_tier_ops *ops,
                   void *backend, uint64_t capacity, uint32_t *index_p)
{
	*index_p = NEAP_TIER_ANY;
	if (tiers->count == NEAP_TIERS_MAX)
		return NEAP_ELIMIT;
	struct neap_tiers_tier *it = &tiers->tiers[tiers->count];
	*it = (struct neap_tiers_tier){
		.tier = {.handles = &tiers->handles, .ops = ops, .backend = backend},
		.tiers = tiers,
		.kind = settings->kind,
		.capacity = capacity,
		.priority = settings->priority,
	};
	neap_evict_init(&it->tier.eviction, tiers->options.watermark_low, tiers->options.watermark_high, evict_one, it);
	if (tiers->options.quarantine_limit == 0 && ops->address)
		tiers->handles.quarantine_limit += capacity / 4;
	*index_p = tiers->count;
	put_in_order(tiers, tiers->count);
	return NEAP_OK;
}

/* --- allocate --------------------------------------------------------------------------------------------------------- */

/* Room may come in pieces too small for the value: a few rounds, all of them together within the steps of one call. What is held
 * or in quarantine cannot make room, so a value larger than the rest is not worth an eviction. */
static int evict_and_reserve(struct neap_tiers *tiers, struct neap_tiers_tier *it, uint64_t bytes, struct neap_handle **handle_p)
{
	struct neap_evict *queue = &it->tier.eviction;
	int error = NEAP_STORE_NO_AVAILABLE_HANDLE;
	const struct neap_tier_counts *counts = &it->tier.counts;
	uint64_t held = counts->rounded_bytes - (counts->committed_bytes - counts->pinned_bytes);
	if (held > it->capacity || bytes > it->capacity - held)
		return error;
	uint64_t before = queue->stats.steps, done = 0;
	for (uint32_t round = 0; round < ROUNDS_MAX && error == NEAP_STORE_NO_AVAILABLE_HANDLE; round++) {
		uint64_t freed;
		enum neap_evict_result result = neap_evict_run(queue, bytes, false, tiers->options.evict_steps - (uint32_t)done, &freed);
		done = queue->stats.steps - before;
		if (freed > 0)
			error = neap_handle_reserve(&it->tier, bytes, handle_p);
		if (result != NEAP_EVICT_DONE || done >= tiers->options.evict_steps)
			break;
	}
	return error;
}

static int allocate_in(struct neap_tiers *tiers, struct neap_tiers_tier *it, uint64_t bytes, struct neap_handle **handle_p)
{
	int error = neap_handle_reserve(&it->tier, bytes, handle_p);
	return error == NEAP_STORE_NO_AVAILABLE_HANDLE ? evict_and_reserve(tiers, it, bytes, handle_p) : error;
}

static int allocate_from(struct neap_tiers *tiers, uint32_t first, bool memory, uint64_t bytes, struct neap_handle **handle_p)
{
	int error = neap_handle_reserve(&tiers->tiers[first].tier, bytes, handle_p);
	for (uint32_t i = 0; i < tiers->count && error == NEAP_STORE_NO_AVAILABLE_HANDLE; i++)
		if (tiers->order[i] != first && (!memory || neap_tiers_in_memory(tiers, tiers->order[i])))
			error = neap_handle_reserve(&tiers->tiers[tiers->order[i]].tier, bytes, handle_p);
	return error == NEAP_STORE_NO_AVAILABLE_HANDLE ? evict_and_reserve(tiers, &tiers->tiers[first], bytes, handle_p) : error;
}

int neap_tiers_allocate(struct neap_tiers *tiers, uint64_t bytes, uint32_t preferred, bool strict, struct neap_handle **handle_p)
{
	*handle_p = NULL;
	if (bytes == 0 || (strict && preferred == NEAP_TIER_ANY))
		return NEAP_STORE_INVALID_PARAMS;
	if (tiers->count == 0 || (preferred != NEAP_TIER_ANY && preferred >= tiers->count))
		return NEAP_STORE_TIER_NOT_FOUND;
	uint32_t first = preferred == NEAP_TIER_ANY ? tiers->order[0] : preferred;
	if (strict)
		return allocate_in(tiers, &tiers->tiers[first], bytes, handle_p);
	return allocate_from(tiers, first, false, bytes, handle_p);
}

int neap_tiers_allocate_memory(struct neap_tiers *tiers, uint64_t bytes, uint32_t preferred, struct neap_handle **handle_p)
{
	*handle_p = NULL;
	if (bytes == 0)
		return NEAP_STORE_INVALID_PARAMS;
	if (preferred != NEAP_TIER_ANY && preferred >= tiers->count)
		return NEAP_STORE_TIER_NOT_FOUND;
	uint32_t first = preferred;
	if (first == NEAP_TIER_ANY || !neap_tiers_in_memory(tiers, first)) {
		first = NEAP_TIER_ANY;
		for (uint32_t i = tiers->count; i > 0; i--)
			if (neap_tiers_in_memory(tiers, tiers->order[i - 1]))
				first = tiers->order[i - 1];
	}
	return first == NEAP_TIER_ANY ? NEAP_STORE_TIER_NOT_FOUND : allocate_from(tiers, first, true, bytes, handle_p);
}

/* *steps_p: what is left. */
static bool maintain(struct neap_tiers_tier *it, uint32_t *steps_p)
{
	struct neap_evict *queue = &it->tier.eviction;
	uint64_t wanted = neap_evict_wanted(queue, it->tier.counts.rounded_bytes, it->capacity), freed, before = queue->stats.steps;
	if (wanted == 0)
		return false;
	bool more = neap_evict_run(queue, wanted, true, *steps_p, &freed) == NEAP_EVICT_MORE;
	uint64_t done = queue->stats.steps - before;
	*steps_p -= done < *steps_p ? (uint32_t)done : *steps_p;
	return more;
}

bool neap_tiers_maintain(struct neap_tiers *tiers, uint32_t steps)
{
	bool more = false;
	for (uint32_t i = 0; i < tiers->count; i++)
		more |= maintain(&tiers->tiers[i], &steps);
	return more;
}

bool neap_tiers_maintain_one(struct neap_tiers *tiers, uint32_t index, uint32_t steps)
{
	return maintain(&tiers->tiers[index], &steps);
}

int neap_tiers_stats(const struct neap_tiers *tiers, uint32_t index, struct neap_tier_stats *stats_p)
{
	*stats_p = (struct neap_tier_stats){0};
	if (index >= tiers->count)
		return NEAP_STORE_TIER_NOT_FOUND;
	const struct neap_tiers_tier *it = &tiers->tiers[index];
	*stats_p = (struct neap_tier_stats){it->kind, it->priority, it->capacity, it->tier.counts, it->tier.eviction.stats};
	return NEAP_STORE_OK;
}
