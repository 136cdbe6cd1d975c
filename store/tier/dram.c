#include "store/tier/dram.h"
#include <assert.h>
#include <neap/store_error.h>
#include <stdio.h>

#define EXTENTS_MIN 1024u
#define EXTENTS_MAX (4u << 20)

/* --- create ----------------------------------------------------------------------------------------------------------- */

static uint64_t default_slab(uint64_t capacity)
{
	uint64_t slab = NEAP_SLAB_MIN;
	while (slab < NEAP_SLAB_MAX && slab * 2 <= capacity / 64)
		slab *= 2;
	return slab;
}

static uint32_t default_extents(uint64_t capacity)
{
	uint64_t extents = capacity / 4096;
	return extents < EXTENTS_MIN ? EXTENTS_MIN : extents > EXTENTS_MAX ? EXTENTS_MAX : (uint32_t)extents;
}

static int check_options(const struct neap_dram *dram, const struct neap_dram_options *options, uint64_t page, char *why,
                         size_t why_size)
{
	uint64_t slab = dram->slab_bytes;
	if (slab < NEAP_SLAB_MIN || slab > NEAP_SLAB_MAX || (slab & (slab - 1)) != 0) {
		snprintf(why, why_size, "a slab of %llu bytes: it must be a power of two from 2 MiB to 64 MiB", (unsigned long long)slab);
		return NEAP_EINVAL;
	}
	if (options->unit != 0 && (options->unit < 8 || options->unit > page || (options->unit & (options->unit - 1)) != 0)) {
		snprintf(why, why_size, "an alignment of %u bytes: it must be a power of two from 8 to %llu", options->unit,
		         (unsigned long long)page);
		return NEAP_EINVAL;
	}
	if (dram->capacity == 0 || (dram->capacity - 1) / slab >= NEAP_SLABS_MAX) {
		snprintf(why, why_size, "a capacity of %llu bytes: it must be at least a page (%llu) and at most %u slabs of %llu",
		         (unsigned long long)options->capacity, (unsigned long long)page, NEAP_SLABS_MAX, (unsigned long long)slab);
		return NEAP_EINVAL;
	}
	return NEAP_OK;
}

static void release_all(struct neap_dram *dram)
{
	struct neap_reactor *reactor = dram->reactor;
	neap_extents_destroy(&dram->whole);
	neap_extents_destroy(&dram->small);
	neap_dram_unmap(reactor, dram->base, dram->capacity);
	if (dram->slabs)
		neap_release(reactor, dram->slabs, dram->slab_count * sizeof *dram->slabs);
	*dram = (struct neap_dram){0};
}

/* The full slabs are one region of `whole`; the shorter one at the end, if any, is for small objects for ever. */
static int create_extents(struct neap_dram *dram, const struct neap_dram_options *options)
{
	uint32_t extents_max = options->extents_max ? options->extents_max : default_extents(dram->capacity);
	uint32_t region, count = dram->whole_count;
	int error = neap_extents_create(&dram->small, dram->reactor, options->unit, extents_max);
	if (!error)
		error = neap_extents_create(&dram->whole, dram->reactor, (uint32_t)dram->slab_bytes, count + 1);
	if (!error && count > 0)
		error = neap_extents_add(&dram->whole, 0, count * dram->slab_bytes, &region);
	if (!error && dram->slab_count > count)
		error = neap_extents_add(&dram->small, count * dram->slab_bytes, dram->capacity - count * dram->slab_bytes,
		                         &dram->slabs[count].region);
	return error;
}

int neap_dram_create(struct neap_dram *dram, struct neap_reactor *reactor, const struct neap_dram_options *options, char *why,
                     size_t why_size)
{
	uint64_t page = neap_dram_page(reactor, options->pages);
	*dram = (struct neap_dram){.reactor = reactor, .capacity = options->capacity / page * page};
	dram->slab_bytes = options->slab_bytes ? options->slab_bytes : default_slab(dram->capacity);
	int error = check_options(dram, options, page, why, why_size);
	if (error) {
		*dram = (struct neap_dram){0};
		return error;
	}
	dram->slab_shift = (uint32_t)__builtin_ctzll(dram->slab_bytes);
	dram->whole_count = (uint32_t)(dram->capacity >> dram->slab_shift);
	dram->slab_count = (uint32_t)((dram->capacity + dram->slab_bytes - 1) >> dram->slab_shift);
	dram->slabs = neap_allocate(reactor, dram->slab_count * sizeof *dram->slabs);
	for (uint32_t i = 0; dram->slabs && i < dram->slab_count; i++)
		dram->slabs[i] = (struct neap_slab){.dram = dram, .owner = NEAP_NO_NODE, .region = NEAP_NO_NODE, .first = i};
	error = dram->slabs ? create_extents(dram, options) : NEAP_ENOMEM;
	if (error)
		snprintf(why, why_size, "out of memory for the tier's tables");
	else
		error = neap_dram_map(reactor, options, dram->capacity, &dram->base, why, why_size);
	if (error)
		release_all(dram);
	return error;
}

/* --- registration ----------------------------------------------------------------------------------------------------- */

static uint64_t slab_length(const struct neap_dram *dram, uint32_t slab)
{
	uint64_t offset = slab * dram->slab_bytes;
	return dram->capacity - offset < dram->slab_bytes ? dram->capacity - offset : dram->slab_bytes;
}

static int attach_slab(struct neap_dram *dram, uint32_t slab, char *why, size_t why_size)
{
	int error = NEAP_OK;
	if (dram->ops)
		error =
			dram->ops->attach(dram->ops_user, slab, dram->base + slab * dram->slab_bytes, slab_length(dram, slab), why, why_size);
	if (!error) {
		dram->slabs[slab].attached = true;
		dram->attached++;
	}
	return error;
}

int neap_dram_attach(struct neap_dram *dram, const struct neap_slab_ops *ops, void *user, char *why, size_t why_size)
{
	int error = NEAP_OK;
	if (dram->attached > 0)
		return NEAP_EBUSY;
	dram->ops = ops;
	dram->ops_user = user;
	for (uint32_t slab = 0; slab < dram->slab_count && !error; slab++)
		error = attach_slab(dram, slab, why, why_size);
	return error;
}

static int detach_slab(struct neap_dram *dram, uint32_t slab, void (*released)(void *argument))
{
	struct neap_slab *it = &dram->slabs[slab];
	it->attached = false;
	it->detaching = true;
	dram->attached--;
	dram->detaching++;
	int error = NEAP_OK;
	if (dram->ops)
		error = dram->ops->detach(dram->ops_user, slab, released, it);
	else
		released(it);
	if (error) {
		it->attached = true;
		it->detaching = false;
		dram->attached++;
		dram->detaching--;
	}
	return error;
}

static void end_close(struct neap_dram *dram)
{
	void (*closed)(void *user) = dram->closed;
	void *user = dram->closed_user;
	release_all(dram);
	if (closed)
		closed(user);
}

/* From the end. What is mapped still is what `capacity` says. */
static void unmap_piece(struct neap_ready *ready)
{
	struct neap_dram *dram = (struct neap_dram *)(void *)((char *)ready - offsetof(struct neap_dram, unmapping));
	uint64_t left = (dram->capacity - 1) / dram->slab_bytes * dram->slab_bytes;
	if (left == 0) {
		end_close(dram);
		return;
	}
	neap_dram_unmap(dram->reactor, dram->base + left, dram->capacity - left);
	dram->capacity = left;
	neap_ready_again(dram->reactor, ready);
}

static void finish_close(struct neap_dram *dram)
{
	dram->unmapping.run = unmap_piece;
	if (neap_reactor_simulated(dram->reactor) || dram->capacity <= NEAP_SLAB_MAX)
		end_close(dram);
	else
		neap_ready_again(dram->reactor, &dram->unmapping);
}

static void released_to_close(void *argument)
{
	struct neap_slab *slab = argument;
	struct neap_dram *dram = slab->dram;
	slab->detaching = false;
	dram->detaching--;
}

/* The last release ends it; while the loop of neap_dram_close runs, it counts as one more. */
static void released_and_done(void *argument)
{
	struct neap_dram *dram = ((struct neap_slab *)argument)->dram;
	released_to_close(argument);
	if (dram->attached == 0 && dram->detaching == 0)
		finish_close(dram);
}

int neap_dram_close(struct neap_dram *dram, void (*closed)(void *user), void *user)
{
	int error = NEAP_OK;
	if (dram->rounded_bytes > 0 || dram->renewing > 0)
		return NEAP_EBUSY;
	if (dram->unmapping.queued)
		return NEAP_ECLOSED;
	dram->closed = closed;
	dram->closed_user = user;
	dram->detaching++;
	for (uint32_t slab = 0; slab < dram->slab_count; slab++) {
		int failed = dram->slabs[slab].attached ? detach_slab(dram, slab, released_and_done) : NEAP_OK;
		if (failed && !error)
			error = failed;
	}
	dram->detaching--;
	if (dram->attached == 0 && dram->detaching == 0)
		finish_close(dram);
	return error;
}

/* --- allocate and free ------------------------------------------------------------------------------------------------ */

static int store_error(int error)
{
	return error == NEAP_OK ? NEAP_STORE_OK : error == NEAP_EINVAL ? NEAP_STORE_INVALID_PARAMS : NEAP_STORE_NO_AVAILABLE_HANDLE;
}

static void own_slabs(struct neap_dram *dram, uint32_t node, uint32_t owner)
{
	uint32_t first = neap_dram_slab(dram, neap_extents_offset(&dram->whole, node));
	uint32_t count = (uint32_t)(neap_extents_rounded(&dram->whole, node) >> dram->slab_shift);
	for (uint32_t i = first; i < first + count; i++) {
		dram->slabs[i].owner = owner;
		dram->slabs[i].first = owner == NEAP_NO_NODE ? i : first;
	}
}

static int allocate_run(struct neap_dram *dram, uint64_t bytes, uint32_t *node_p)
{
	int error = neap_extents_allocate(&dram->whole, bytes, node_p);
	if (!error)
		own_slabs(dram, *node_p, *node_p);
	return error;
}

static void free_run(struct neap_dram *dram, uint32_t node)
{
	own_slabs(dram, node, NEAP_NO_NODE);
	neap_extents_free(&dram->whole, node, NULL);
}

/* One more slab for small objects. */
static int grow(struct neap_dram *dram)
{
	uint32_t node, region;
	int error = allocate_run(dram, dram->slab_bytes, &node);
	if (error)
		return error;
	uint64_t offset = neap_extents_offset(&dram->whole, node);
	error = neap_extents_add(&dram->small, offset, dram->slab_bytes, &region);
	if (error)
		free_run(dram, node);
	else
		dram->slabs[neap_dram_slab(dram, offset)].region = region;
	return error;
}

static int allocate_small(struct neap_dram *dram, uint64_t bytes, uint32_t *node_p)
{
	int error = neap_extents_allocate(&dram->small, bytes, node_p);
	if (error != NEAP_EAGAIN)
		return error;
	error = grow(dram);
	return error ? error : neap_extents_allocate(&dram->small, bytes, node_p);
}

int neap_dram_allocate(struct neap_dram *dram, uint64_t bytes, struct neap_extent *extent_p)
{
	bool whole = bytes >= dram->slab_bytes;
	uint32_t node = NEAP_NO_NODE;
	*extent_p = (struct neap_extent){.node = NEAP_NO_NODE};
	int error = whole ? allocate_run(dram, bytes, &node) : allocate_small(dram, bytes, &node);
	if (error)
		return store_error(error);
	const struct neap_extents *extents = whole ? &dram->whole : &dram->small;
	*extent_p = (struct neap_extent){
		.offset = neap_extents_offset(extents, node),
		.size = bytes,
		.rounded = neap_extents_rounded(extents, node),
		.node = node,
		.whole = whole,
	};
	dram->requested_bytes += bytes;
	dram->rounded_bytes += extent_p->rounded;
	return NEAP_STORE_OK;
}

static bool run_drains(const struct neap_dram *dram, uint32_t node)
{
	uint32_t first = neap_dram_slab(dram, neap_extents_offset(&dram->whole, node));
	uint32_t count = (uint32_t)(neap_extents_rounded(&dram->whole, node) >> dram->slab_shift);
	for (uint32_t i = first; i < first + count; i++)
		if (dram->slabs[i].draining)
			return true;
	return false;
}

/* A slab whose small objects are all gone can be anything again. */
static void give_back_slab(struct neap_dram *dram, uint32_t slab)
{
	struct neap_slab *it = &dram->slabs[slab];
	if (it->draining || it->owner == NEAP_NO_NODE || !neap_extents_region_is_free(&dram->small, it->region))
		return;
	neap_extents_take(&dram->small, it->region);
	it->region = NEAP_NO_NODE;
	free_run(dram, it->owner);
}

void neap_dram_free(struct neap_dram *dram, const struct neap_extent *extent)
{
	uint32_t slab = neap_dram_slab(dram, extent->offset), region;
	dram->requested_bytes -= extent->size;
	dram->rounded_bytes -= extent->rounded;
	if (!extent->whole) {
		neap_extents_free(&dram->small, extent->node, &region);
		if (region != NEAP_NO_NODE)
			give_back_slab(dram, slab);
	} else if (run_drains(dram, extent->node)) {
		dram->slabs[slab].given_back = true;
	} else {
		free_run(dram, extent->node);
	}
}

/* --- fencing ---------------------------------------------------------------------------------------------------------- */

int neap_dram_drain(struct neap_dram *dram, uint32_t slab)
{
	if (slab >= dram->slab_count)
		return NEAP_EINVAL;
	struct neap_slab *it = &dram->slabs[slab];
	bool used = it->region != NEAP_NO_NODE ? !neap_extents_region_is_free(&dram->small, it->region) : it->owner != NEAP_NO_NODE;
	if (it->draining)
		return NEAP_OK;
	if (!used)
		return NEAP_EINVAL;
	it->draining = true;
	dram->draining++;
	if (it->region != NEAP_NO_NODE)
		neap_extents_park(&dram->small, it->region);
	return NEAP_OK;
}

static void back_in_use(struct neap_dram *dram, uint32_t slab)
{
	struct neap_slab *it = &dram->slabs[slab];
	it->draining = false;
	dram->draining--;
	if (it->region != NEAP_NO_NODE) {
		neap_extents_unpark(&dram->small, it->region);
		give_back_slab(dram, slab);
	} else if (dram->slabs[it->first].given_back && !run_drains(dram, it->owner)) {
		dram->slabs[it->first].given_back = false;
		free_run(dram, it->owner);
	}
}

static void released_to_renew(void *argument)
{
	struct neap_slab *it = argument;
	struct neap_dram *dram = it->dram;
	uint32_t slab = (uint32_t)(it - dram->slabs);
	char why[160] = "";
	it->detaching = false;
	dram->detaching--;
	dram->renewing--;
	int error = attach_slab(dram, slab, why, sizeof why);
	if (!error)
		back_in_use(dram, slab);
	if (it->renewed)
		it->renewed(it->user, slab, error, why);
}

int neap_dram_renew(struct neap_dram *dram, uint32_t slab, void (*renewed)(void *user, uint32_t slab, int error, const char *why),
                    void *user)
{
	if (slab >= dram->slab_count || !dram->slabs[slab].draining)
		return NEAP_EINVAL;
	struct neap_slab *it = &dram->slabs[slab];
	if (it->detaching)
		return NEAP_EBUSY;
	it->renewed = renewed;
	it->user = user;
	dram->renewing++;
	if (it->attached) {
		int error = detach_slab(dram, slab, released_to_renew);
		if (error)
			dram->renewing--;
		return error;
	}
	it->detaching = true; /* the last attempt took it away and could not bring it back */
	dram->detaching++;
	released_to_renew(it);
	return NEAP_OK;
}

/* --- looking at it ---------------------------------------------------------------------------------------------------- */

void neap_dram_stats(const struct neap_dram *dram, struct neap_dram_stats *stats_p)
{
	struct neap_extents_stats small, whole;
	neap_extents_stats(&dram->small, &small);
	neap_extents_stats(&dram->whole, &whole);
	*stats_p = (struct neap_dram_stats){
		.capacity = dram->capacity,
		.requested_bytes = dram->requested_bytes,
		.rounded_bytes = dram->rounded_bytes,
		.draining_bytes = small.parked_bytes,
		.largest_bytes = whole.largest_bytes > small.largest_bytes ? whole.largest_bytes : small.largest_bytes,
		.slabs = dram->slab_count,
		.slabs_used = (uint32_t)(whole.rounded_bytes >> dram->slab_shift) + (dram->slab_count - dram->whole_count),
		.slabs_draining = dram->draining,
		.extents = small.extents + whole.extents - (small.regions - (dram->slab_count - dram->whole_count)),
	};
}

const char *neap_dram_check(const struct neap_dram *dram)
{
	const char *wrong = neap_extents_check(&dram->small);
	uint64_t runs = 0;
	uint32_t regions = 0, draining = 0;
	if (!wrong)
		wrong = neap_extents_check(&dram->whole);
	for (uint32_t i = 0; i < dram->slab_count && !wrong; i++) {
		const struct neap_slab *slab = &dram->slabs[i];
		regions += slab->region != NEAP_NO_NODE;
		draining += slab->draining;
		runs += slab->region == NEAP_NO_NODE && slab->owner != NEAP_NO_NODE && !dram->slabs[slab->first].given_back;
		if (slab->region != NEAP_NO_NODE && neap_dram_slab(dram, neap_extents_offset(&dram->small, slab->region)) != i)
			wrong = "a slab with another one's region";
	}
	if (wrong)
		return wrong;
	if (regions != dram->small.regions || draining != dram->draining)
		return "wrong counts of slabs";
	struct neap_extents_stats small;
	neap_extents_stats(&dram->small, &small);
	return runs * dram->slab_bytes + small.rounded_bytes != dram->rounded_bytes ? "wrong sum of bytes" : NULL;
}
