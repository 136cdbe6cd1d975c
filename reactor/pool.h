/* Fixed pools of equal objects with generation handles. Memory is taken once at create; objects stay valid memory until destroy, so a
 * late event finds a generation, never a dangling pointer. Owner thread only. */
#ifndef NEAP_REACTOR_POOL_H
#define NEAP_REACTOR_POOL_H

#include "reactor/core.h"

struct neap_pool {
	unsigned char *objects;
	uint32_t *next_free;    /* free list by index; entry of a live object: its own index */
	uint32_t *generations;  /* odd while live */
	size_t object_bytes;
	uint32_t capacity, free_head, used; /* free_head is capacity when the list is empty */
	uint32_t fresh;         /* objects from this index on were never taken */
	struct neap_reactor *reactor;
};

/* Untouched capacity costs address space only. NEAP_ENOMEM, NEAP_EINVAL. */
int neap_pool_create(struct neap_pool *pool, struct neap_reactor *reactor, size_t object_bytes, uint32_t capacity);
void neap_pool_destroy(struct neap_pool *pool);

/* NULL when exhausted. A reused object keeps the content its last life left; a first one is zeroed. Objects are 64-byte aligned. */
void *neap_pool_take(struct neap_pool *pool);
void neap_pool_give(struct neap_pool *pool, void *object);

/* Handle: generation << 32 | index + 1; never 0. */
uint64_t neap_pool_handle(const struct neap_pool *pool, const void *object);
/* NULL when stale or malformed. */
void *neap_pool_find(const struct neap_pool *pool, uint64_t handle);
static inline uint32_t neap_pool_index(const struct neap_pool *pool, const void *object)
{
	return (uint32_t)(((const unsigned char *)object - pool->objects) / (ptrdiff_t)pool->object_bytes);
}
static inline void *neap_pool_at(const struct neap_pool *pool, uint32_t index)
{
	return pool->objects + (size_t)index * pool->object_bytes;
}
/* Walk of the live objects: start with index 0; returns NULL at the end. */
void *neap_pool_next(const struct neap_pool *pool, uint32_t *index_p);

#endif
