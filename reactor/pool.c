#include "reactor/pool.h"
#include <assert.h>

#define ALIGNMENT 64u

/* The objects begin at an aligned address inside the allocation; the allocation's own address stands right before them. */
static size_t objects_bytes(const struct neap_pool *pool)
{
	return pool->object_bytes * pool->capacity + ALIGNMENT + sizeof(void *);
}

static void *allocation_of(const struct neap_pool *pool)
{
	return ((void **)(void *)pool->objects)[-1];
}

int neap_pool_create(struct neap_pool *pool, struct neap_reactor *reactor, size_t object_bytes, uint32_t capacity)
{
	*pool = (struct neap_pool){0};
	if (object_bytes == 0 || capacity == 0 || capacity >= UINT32_MAX || object_bytes > SIZE_MAX / 2 / capacity - ALIGNMENT)
		return NEAP_EINVAL;
	pool->reactor = reactor;
	pool->object_bytes = (object_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	pool->capacity = capacity;
	pool->free_head = capacity;
	pool->next_free = neap_allocate(reactor, capacity * sizeof *pool->next_free);
	pool->generations = neap_allocate(reactor, capacity * sizeof *pool->generations);
	void *allocation = neap_allocate(reactor, objects_bytes(pool));
	if (!allocation || !pool->next_free || !pool->generations) {
		neap_release(reactor, allocation, objects_bytes(pool));
		neap_pool_destroy(pool);
		return NEAP_ENOMEM;
	}
	uintptr_t first = ((uintptr_t)allocation + sizeof(void *) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	pool->objects = (unsigned char *)allocation + (first - (uintptr_t)allocation);
	((void **)(void *)pool->objects)[-1] = allocation;
	return NEAP_OK;
}

void neap_pool_destroy(struct neap_pool *pool)
{
	if (!pool->reactor)
		return;
	if (pool->objects)
		neap_release(pool->reactor, allocation_of(pool), objects_bytes(pool));
	neap_release(pool->reactor, pool->next_free, pool->capacity * sizeof *pool->next_free);
	neap_release(pool->reactor, pool->generations, pool->capacity * sizeof *pool->generations);
	*pool = (struct neap_pool){0};
}

/* Given-back objects first, then fresh ones in order, so that only what was needed at once is ever touched. */
void *neap_pool_take(struct neap_pool *pool)
{
	uint32_t index = pool->free_head;
	if (index != pool->capacity)
		pool->free_head = pool->next_free[index];
	else if (pool->fresh < pool->capacity)
		index = pool->fresh++;
	else
		return NULL;
	pool->next_free[index] = index;
	pool->generations[index]++;
	pool->used++;
	return neap_pool_at(pool, index);
}

void neap_pool_give(struct neap_pool *pool, void *object)
{
	uint32_t index = neap_pool_index(pool, object);
	bool live = index < pool->fresh && neap_pool_at(pool, index) == object && pool->generations[index] % 2 == 1;
	assert(live && "an object is given back twice, or to the wrong pool");
	if (!live)
		return;
	pool->generations[index]++;
	pool->next_free[index] = pool->free_head;
	pool->free_head = index;
	pool->used--;
}

uint64_t neap_pool_handle(const struct neap_pool *pool, const void *object)
{
	uint32_t index = neap_pool_index(pool, object);
	return (uint64_t)pool->generations[index] << 32 | (index + 1);
}

void *neap_pool_find(const struct neap_pool *pool, uint64_t handle)
{
	uint32_t index = (uint32_t)handle - 1, generation = (uint32_t)(handle >> 32);
	if (index >= pool->fresh || generation % 2 == 0 || pool->generations[index] != generation)
		return NULL;
	return neap_pool_at(pool, index);
}

void *neap_pool_next(const struct neap_pool *pool, uint32_t *index_p)
{
	while (*index_p < pool->fresh) {
		uint32_t index = (*index_p)++;
		if (pool->generations[index] % 2 == 1)
			return neap_pool_at(pool, index);
	}
	return NULL;
}
