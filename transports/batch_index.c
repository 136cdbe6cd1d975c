/* Index in a batch -> slice: a tree of fixed pages from a pool, so that a batch of any size costs no heap and an index is found in at
 * most three steps. Small batches keep it inline. */
#include "transports/engine_state.h"

#define MASK (NEAP_PAGE_ENTRIES - 1)

static uint32_t depth_for(uint32_t count)
{
	uint32_t depth = 0;
	if (count > NEAP_BATCH_INLINE)
		for (uint64_t room = 1; room < count; room <<= NEAP_PAGE_BITS)
			depth++;
	return depth;
}

uint32_t neap_batch_pages(uint32_t count)
{
	uint32_t pages = 0;
	for (uint32_t depth = depth_for(count); depth > 0; depth--) {
		count = (count + MASK) >> NEAP_PAGE_BITS;
		pages += count;
	}
	return pages;
}

static struct neap_index_page *page_at(const struct neap_batch *batch, uint32_t page)
{
	return neap_pool_at(&batch->engine->pages, page);
}

static uint32_t take_page(struct neap_batch *batch)
{
	struct neap_pool *pages = &batch->engine->pages;
	return neap_pool_index(pages, neap_pool_take(pages)); /* there are enough: submit has looked */
}

void neap_batch_index_begin(struct neap_batch *batch, uint32_t count)
{
	batch->depth = depth_for(count);
	if (batch->depth > 0)
		batch->at[0] = take_page(batch);
}

/* Indices come in order from 0, so a page is taken when its first entry comes. */
void neap_batch_index_set(struct neap_batch *batch, uint32_t index, uint32_t slice)
{
	if (batch->depth == 0) {
		batch->at[index] = slice;
		return;
	}
	uint32_t node = batch->at[0];
	for (uint32_t shift = NEAP_PAGE_BITS * (batch->depth - 1); shift > 0; shift -= NEAP_PAGE_BITS) {
		uint32_t *child = &page_at(batch, node)->at[(index >> shift) & MASK];
		if ((index & ((1u << shift) - 1)) == 0)
			*child = take_page(batch);
		node = *child;
	}
	page_at(batch, node)->at[index & MASK] = slice;
}

uint32_t neap_batch_index_get(const struct neap_batch *batch, uint32_t index)
{
	if (batch->depth == 0)
		return batch->at[index];
	uint32_t node = batch->at[0];
	for (uint32_t shift = NEAP_PAGE_BITS * (batch->depth - 1); shift > 0; shift -= NEAP_PAGE_BITS)
		node = page_at(batch, node)->at[(index >> shift) & MASK];
	return page_at(batch, node)->at[index & MASK];
}

static void give_pages(struct neap_batch *batch, uint32_t node, uint32_t depth, uint32_t count)
{
	struct neap_index_page *page = page_at(batch, node);
	uint32_t shift = NEAP_PAGE_BITS * (depth - 1);
	for (uint32_t i = 0; depth > 1 && i << shift < count; i++) {
		uint32_t left = count - (i << shift);
		give_pages(batch, page->at[i], depth - 1, left < 1u << shift ? left : 1u << shift);
	}
	neap_pool_give(&batch->engine->pages, page);
}

void neap_batch_index_end(struct neap_batch *batch)
{
	if (batch->depth > 0)
		give_pages(batch, batch->at[0], batch->depth, batch->summary.total);
	batch->depth = 0;
}
