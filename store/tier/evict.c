#include "store/tier/evict.h"
#include <assert.h>
#include <stddef.h>

void neap_evict_init(struct neap_evict *queue, double low, double high, neap_evict_func *evict, void *user)
{
	*queue = (struct neap_evict){.low = low, .high = high, .evict = evict, .user = user};
}

void neap_evict_insert(struct neap_evict *queue, struct neap_evict_entry *entry)
{
	assert(!entry->queue && "an entry is inserted twice");
	if (entry->queue)
		return;
	entry->queue = queue;
	entry->marked = false;
	entry->born = queue->inserted++;
	entry->newer = NULL;
	entry->older = queue->newest;
	if (queue->newest)
		queue->newest->newer = entry;
	else
		queue->oldest = entry;
	queue->newest = entry;
	queue->count++;
	queue->pinned += entry->pins > 0;
	queue->fruitless = 0;
}

void neap_evict_remove(struct neap_evict_entry *entry)
{
	struct neap_evict *queue = entry->queue;
	if (!queue)
		return;
	if (queue->hand == entry)
		queue->hand = entry->newer;
	if (queue->scout == entry)
		queue->scout = entry->newer;
	if (entry->newer)
		entry->newer->older = entry->older;
	else
		queue->newest = entry->older;
	if (entry->older)
		entry->older->newer = entry->newer;
	else
		queue->oldest = entry->newer;
	queue->count--;
	queue->pinned -= entry->pins > 0;
	entry->queue = NULL;
	entry->newer = entry->older = NULL;
}

void neap_evict_pin(struct neap_evict_entry *entry)
{
	entry->marked = true;
	if (entry->pins++ == 0 && entry->queue)
		entry->queue->pinned++;
}

void neap_evict_unpin(struct neap_evict_entry *entry)
{
	assert(entry->pins > 0 && "unpinned more often than pinned");
	if (entry->pins == 0 || --entry->pins > 0 || !entry->queue)
		return;
	entry->queue->pinned--;
	entry->queue->fruitless = 0;
}

uint64_t neap_evict_wanted(struct neap_evict *queue, uint64_t used, uint64_t capacity)
{
	uint64_t low = (uint64_t)(queue->low * (double)capacity), high = (uint64_t)(queue->high * (double)capacity);
	if (used > high)
		queue->filling = true;
	if (used <= low)
		queue->filling = false;
	return queue->filling ? used - low : 0;
}

/* After two rounds without a find, the first of which took the marks away, everything is held. */
static bool exhausted(const struct neap_evict *queue)
{
	return queue->pinned == queue->count || queue->fruitless > 2 * (uint64_t)queue->count;
}

struct neap_evict_entry *neap_evict_ahead(struct neap_evict *queue)
{
	struct neap_evict_entry *entry = queue->scout;
	queue->scout = entry ? entry->newer : queue->oldest;
	return entry;
}

#define YOUNG_SHARE 8u

/* Not when a whole round of the others had nothing to give. */
static bool is_spared(const struct neap_evict *queue, const struct neap_evict_entry *entry)
{
	return queue->inserted - entry->born <= queue->count / YOUNG_SHARE && queue->fruitless <= queue->count;
}

static uint64_t step(struct neap_evict *queue, bool keep_newest)
{
	struct neap_evict_entry *entry = queue->hand ? queue->hand : queue->oldest;
	if (is_spared(queue, entry))
		entry = queue->oldest;
	if (queue->scout == entry)
		queue->scout = entry->newer; /* what the hand has passed is the last that it comes to */
	queue->hand = entry->newer;
	queue->fruitless++;
	queue->stats.steps++;
	if (entry->pins > 0)
		return 0;
	if (keep_newest && entry == queue->newest) {
		queue->kept = true;
		return 0;
	}
	if (entry->marked) {
		entry->marked = false;
		return 0;
	}
	uint32_t count = queue->count;
	uint64_t freed = queue->evict(queue->user, entry);
	if (queue->count < count) {
		queue->fruitless = 0;
		queue->stats.evicted++;
		queue->stats.evicted_bytes += freed;
	} else {
		queue->stats.refused++;
	}
	return freed;
}

enum neap_evict_result neap_evict_run(struct neap_evict *queue, uint64_t bytes, bool keep_newest, uint32_t steps, uint64_t *freed_p)
{
	enum neap_evict_result result = NEAP_EVICT_MORE;
	*freed_p = 0;
	assert(!queue->running && "the eviction runs inside itself");
	if (queue->running)
		return NEAP_EVICT_EXHAUSTED;
	queue->running = true;
	if (queue->kept && !keep_newest) {
		queue->kept = false; /* there may be something to find after all */
		queue->fruitless = 0;
	}
	while (result == NEAP_EVICT_MORE) {
		if (*freed_p >= bytes)
			result = NEAP_EVICT_DONE;
		else if (exhausted(queue))
			result = NEAP_EVICT_EXHAUSTED;
		else if (steps-- == 0)
			break;
		else
			*freed_p += step(queue, keep_newest);
	}
	queue->running = false;
	return result;
}
