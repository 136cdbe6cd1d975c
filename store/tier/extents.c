#include "store/tier/extents.h"
#include <assert.h>

#define STEP_BITS 3u
#define FIRST_LOOK 4u  /* extents of a bin that may be large enough, looked at before a larger bin is cut */
#define LAST_LOOK 64u  /* the same, when no larger bin has anything */

enum { SPARE, FREE, USED };

/* Bins by size in units: 0..7 have a bin each; above, the power of two and the next three bits. */
struct bin {
	uint32_t top, step;
};

static struct bin bin_of(uint64_t units)
{
	if (units < NEAP_EXTENTS_STEPS)
		return (struct bin){0, (uint32_t)units};
	uint32_t log = 63u - (uint32_t)__builtin_clzll(units);
	return (struct bin){log - STEP_BITS + 1, (uint32_t)(units >> (log - STEP_BITS)) & (NEAP_EXTENTS_STEPS - 1)};
}

/* The least size in a bin. */
static uint64_t bin_units(struct bin bin)
{
	return bin.top == 0 ? bin.step : (uint64_t)(NEAP_EXTENTS_STEPS + bin.step) << (bin.top - 1);
}

/* The first bin all of whose extents are large enough. */
static struct bin bin_above(uint64_t units)
{
	struct bin bin = bin_of(units);
	if (bin_units(bin) < units && ++bin.step == NEAP_EXTENTS_STEPS)
		bin = (struct bin){bin.top + 1, 0};
	return bin;
}

int neap_extents_create(struct neap_extents *extents, struct neap_reactor *reactor, uint32_t unit, uint32_t nodes_max)
{
	*extents = (struct neap_extents){0};
	if (unit == 0)
		unit = NEAP_EXTENTS_UNIT;
	if ((unit & (unit - 1)) != 0 || nodes_max == 0 || nodes_max == NEAP_NO_NODE)
		return NEAP_EINVAL;
	extents->nodes = neap_allocate(reactor, (size_t)nodes_max * sizeof *extents->nodes);
	if (!extents->nodes)
		return NEAP_ENOMEM;
	extents->reactor = reactor;
	extents->nodes_max = nodes_max;
	extents->spare = NEAP_NO_NODE;
	extents->unit_shift = (uint32_t)__builtin_ctz(unit);
	for (uint32_t top = 0; top < NEAP_EXTENTS_TOPS; top++)
		for (uint32_t step = 0; step < NEAP_EXTENTS_STEPS; step++)
			extents->bins[top][step] = NEAP_NO_NODE;
	return NEAP_OK;
}

void neap_extents_destroy(struct neap_extents *extents)
{
	if (extents->nodes)
		neap_release(extents->reactor, extents->nodes, (size_t)extents->nodes_max * sizeof *extents->nodes);
	*extents = (struct neap_extents){0};
}

/* --- nodes ------------------------------------------------------------------------------------------------------------ */

static uint32_t node_take(struct neap_extents *extents)
{
	uint32_t index = extents->spare;
	if (index != NEAP_NO_NODE)
		extents->spare = extents->nodes[index].next;
	else if (extents->fresh < extents->nodes_max)
		index = extents->fresh++;
	else
		return NEAP_NO_NODE;
	extents->nodes_used++;
	return index;
}

static void node_give(struct neap_extents *extents, uint32_t index)
{
	extents->nodes[index] = (struct neap_extent_node){.next = extents->spare, .phase = SPARE};
	extents->spare = index;
	extents->nodes_used--;
}

/* --- bins ------------------------------------------------------------------------------------------------------------- */

static void bin_insert(struct neap_extents *extents, uint32_t index)
{
	struct neap_extent_node *node = &extents->nodes[index];
	node->phase = FREE;
	extents->free_units += node->units;
	if (node->parked) {
		extents->parked_units += node->units;
		return;
	}
	struct bin bin = bin_of(node->units);
	uint32_t head = extents->bins[bin.top][bin.step];
	node->previous = NEAP_NO_NODE;
	node->next = head;
	if (head != NEAP_NO_NODE)
		extents->nodes[head].previous = index;
	extents->bins[bin.top][bin.step] = index;
	extents->steps[bin.top] |= (uint8_t)(1u << bin.step);
	extents->tops |= UINT64_C(1) << bin.top;
}

static void bin_remove(struct neap_extents *extents, uint32_t index)
{
	struct neap_extent_node *node = &extents->nodes[index];
	extents->free_units -= node->units;
	if (node->parked) {
		extents->parked_units -= node->units;
		return;
	}
	if (node->next != NEAP_NO_NODE)
		extents->nodes[node->next].previous = node->previous;
	if (node->previous != NEAP_NO_NODE) {
		extents->nodes[node->previous].next = node->next;
		return;
	}
	struct bin bin = bin_of(node->units);
	extents->bins[bin.top][bin.step] = node->next;
	if (node->next != NEAP_NO_NODE)
		return;
	extents->steps[bin.top] &= (uint8_t)~(1u << bin.step);
	if (extents->steps[bin.top] == 0)
		extents->tops &= ~(UINT64_C(1) << bin.top);
}

/* --- regions ---------------------------------------------------------------------------------------------------------- */

int neap_extents_add(struct neap_extents *extents, uint64_t offset, uint64_t length, uint32_t *region_p)
{
	uint64_t mask = (UINT64_C(1) << extents->unit_shift) - 1;
	*region_p = NEAP_NO_NODE;
	if (length == 0 || ((offset | length) & mask) != 0 || offset > UINT64_MAX - length || length >> 63)
		return NEAP_EINVAL;
	uint32_t index = node_take(extents);
	if (index == NEAP_NO_NODE)
		return NEAP_ELIMIT;
	extents->nodes[index] = (struct neap_extent_node){
		.offset = offset,
		.units = length >> extents->unit_shift,
		.left = NEAP_NO_NODE,
		.right = NEAP_NO_NODE,
	};
	extents->total_units += extents->nodes[index].units;
	extents->regions++;
	bin_insert(extents, index);
	*region_p = index;
	return NEAP_OK;
}

bool neap_extents_region_is_free(const struct neap_extents *extents, uint32_t region)
{
	const struct neap_extent_node *node = &extents->nodes[region];
	return node->phase == FREE && node->left == NEAP_NO_NODE && node->right == NEAP_NO_NODE;
}

int neap_extents_take(struct neap_extents *extents, uint32_t region)
{
	if (!neap_extents_region_is_free(extents, region))
		return NEAP_EBUSY;
	bin_remove(extents, region);
	extents->total_units -= extents->nodes[region].units;
	extents->regions--;
	node_give(extents, region);
	return NEAP_OK;
}

static void set_parked(struct neap_extents *extents, uint32_t region, bool parked)
{
	assert(extents->nodes[region].phase != SPARE && extents->nodes[region].left == NEAP_NO_NODE && "not a region");
	for (uint32_t index = region; index != NEAP_NO_NODE; index = extents->nodes[index].right) {
		struct neap_extent_node *node = &extents->nodes[index];
		if (node->parked == parked)
			continue;
		if (node->phase == FREE)
			bin_remove(extents, index);
		node->parked = parked;
		if (node->phase == FREE)
			bin_insert(extents, index);
	}
}

void neap_extents_park(struct neap_extents *extents, uint32_t region)
{
	set_parked(extents, region, true);
}

void neap_extents_unpark(struct neap_extents *extents, uint32_t region)
{
	set_parked(extents, region, false);
}

/* --- allocate and free ------------------------------------------------------------------------------------------------ */

/* The first of at most `most` extents in the bin that is large enough. */
static uint32_t look_in(const struct neap_extents *extents, struct bin bin, uint64_t units, uint32_t most)
{
	uint32_t index = extents->bins[bin.top][bin.step];
	while (index != NEAP_NO_NODE && extents->nodes[index].units < units)
		index = --most > 0 ? extents->nodes[index].next : NEAP_NO_NODE;
	return index;
}

/* The head of the lowest bin at or above this one that has any. */
static uint32_t lowest_from(const struct neap_extents *extents, struct bin bin)
{
	if (bin.top >= NEAP_EXTENTS_TOPS)
		return NEAP_NO_NODE;
	uint32_t steps = extents->steps[bin.top] & (0xffu << bin.step);
	if (steps == 0) {
		uint64_t tops = bin.top + 1 < NEAP_EXTENTS_TOPS ? extents->tops & (~UINT64_C(0) << (bin.top + 1)) : 0;
		if (tops == 0)
			return NEAP_NO_NODE;
		bin.top = (uint32_t)__builtin_ctzll(tops);
		steps = extents->steps[bin.top];
	}
	return extents->bins[bin.top][__builtin_ctz(steps)];
}

/* Extents of just the wanted size lie in a bin whose others may be smaller: without a look into it, a freed extent would never
 * be used again for a request of its own size. */
static uint32_t find(const struct neap_extents *extents, uint64_t units)
{
	struct bin own = bin_of(units);
	bool exact = bin_units(own) == units;
	uint32_t index = exact ? NEAP_NO_NODE : look_in(extents, own, units, FIRST_LOOK);
	if (index == NEAP_NO_NODE)
		index = lowest_from(extents, bin_above(units));
	if (index == NEAP_NO_NODE && !exact)
		index = look_in(extents, own, units, LAST_LOOK);
	return index;
}

/* The rest of a node that is larger than needed becomes a free extent to its right. */
static bool split(struct neap_extents *extents, uint32_t index, uint64_t units)
{
	uint32_t rest = node_take(extents);
	if (rest == NEAP_NO_NODE)
		return false;
	struct neap_extent_node *node = &extents->nodes[index];
	extents->nodes[rest] = (struct neap_extent_node){
		.offset = node->offset + (units << extents->unit_shift),
		.units = node->units - units,
		.left = index,
		.right = node->right,
	};
	if (node->right != NEAP_NO_NODE)
		extents->nodes[node->right].left = rest;
	node->right = rest;
	node->units = units;
	bin_insert(extents, rest);
	return true;
}

int neap_extents_allocate(struct neap_extents *extents, uint64_t bytes, uint32_t *node_p)
{
	uint64_t mask = (UINT64_C(1) << extents->unit_shift) - 1;
	*node_p = NEAP_NO_NODE;
	if (bytes == 0)
		return NEAP_EINVAL;
	if (bytes >> 63)
		return NEAP_EAGAIN;
	uint64_t units = (bytes + mask) >> extents->unit_shift;
	uint32_t index = find(extents, units);
	if (index == NEAP_NO_NODE)
		return NEAP_EAGAIN;
	bin_remove(extents, index);
	if (extents->nodes[index].units > units && !split(extents, index, units)) {
		bin_insert(extents, index);
		return NEAP_ELIMIT;
	}
	struct neap_extent_node *node = &extents->nodes[index];
	node->phase = USED;
	node->slack = (uint32_t)((units << extents->unit_shift) - bytes);
	extents->requested_bytes += bytes;
	extents->extents++;
	*node_p = index;
	return NEAP_OK;
}

/* `index` swallows its right neighbour. The left one survives, so that the first node of a region is always the same. */
static void join(struct neap_extents *extents, uint32_t index, uint32_t right)
{
	struct neap_extent_node *node = &extents->nodes[index];
	node->units += extents->nodes[right].units;
	node->right = extents->nodes[right].right;
	if (node->right != NEAP_NO_NODE)
		extents->nodes[node->right].left = index;
	node_give(extents, right);
}

uint64_t neap_extents_free(struct neap_extents *extents, uint32_t index, uint32_t *region_p)
{
	if (region_p)
		*region_p = NEAP_NO_NODE;
	bool used = index < extents->fresh && extents->nodes[index].phase == USED;
	assert(used && "an extent is freed twice");
	if (!used)
		return 0;
	struct neap_extent_node *node = &extents->nodes[index];
	uint64_t bytes = node->units << extents->unit_shift;
	uint32_t left = node->left, right = node->right;
	extents->requested_bytes -= bytes - node->slack;
	extents->extents--;
	node->slack = 0;
	if (right != NEAP_NO_NODE && extents->nodes[right].phase == FREE) {
		bin_remove(extents, right);
		join(extents, index, right);
	}
	if (left != NEAP_NO_NODE && extents->nodes[left].phase == FREE) {
		bin_remove(extents, left);
		join(extents, left, index);
		index = left;
	}
	bin_insert(extents, index);
	if (region_p && neap_extents_region_is_free(extents, index))
		*region_p = index;
	return bytes;
}

/* --- looking at it ---------------------------------------------------------------------------------------------------- */

static uint64_t largest_units(const struct neap_extents *extents)
{
	if (extents->tops == 0)
		return 0;
	uint32_t top = 63u - (uint32_t)__builtin_clzll(extents->tops);
	uint32_t step = 31u - (uint32_t)__builtin_clz(extents->steps[top]);
	uint64_t largest = 0;
	uint32_t seen = 0, index = extents->bins[top][step];
	for (; index != NEAP_NO_NODE && seen < LAST_LOOK; index = extents->nodes[index].next, seen++)
		if (extents->nodes[index].units > largest)
			largest = extents->nodes[index].units;
	return largest;
}

void neap_extents_stats(const struct neap_extents *extents, struct neap_extents_stats *stats_p)
{
	*stats_p = (struct neap_extents_stats){
		.total_bytes = extents->total_units << extents->unit_shift,
		.free_bytes = extents->free_units << extents->unit_shift,
		.parked_bytes = extents->parked_units << extents->unit_shift,
		.requested_bytes = extents->requested_bytes,
		.rounded_bytes = (extents->total_units - extents->free_units) << extents->unit_shift,
		.largest_bytes = largest_units(extents) << extents->unit_shift,
		.extents = extents->extents,
		.regions = extents->regions,
		.nodes_used = extents->nodes_used,
		.nodes_max = extents->nodes_max,
	};
}

struct sums {
	uint64_t total, free, parked, requested;
	uint32_t nodes, extents, regions, binned;
};

static const char *check_node(const struct neap_extents *extents, uint32_t index, struct sums *sums)
{
	const struct neap_extent_node *node = &extents->nodes[index];
	sums->nodes++;
	sums->total += node->units;
	if (node->units == 0)
		return "an extent of no length";
	if (node->phase == FREE) {
		sums->free += node->units;
		sums->parked += node->parked ? node->units : 0;
		sums->binned += node->parked ? 0 : 1;
	} else {
		sums->requested += (node->units << extents->unit_shift) - node->slack;
		sums->extents++;
		if (node->slack >> extents->unit_shift)
			return "more slack than a unit";
	}
	if (node->left == NEAP_NO_NODE)
		sums->regions++;
	else if (extents->nodes[node->left].right != index)
		return "a left neighbour that does not know it";
	if (node->right == NEAP_NO_NODE)
		return NULL;
	if (node->right >= extents->fresh)
		return "a neighbour that is no node";
	const struct neap_extent_node *right = &extents->nodes[node->right];
	if (right->phase == SPARE || right->left != index)
		return "a right neighbour that does not know it";
	if (right->offset != node->offset + (node->units << extents->unit_shift))
		return "neighbours that do not touch";
	if (right->phase == FREE && node->phase == FREE)
		return "two free neighbours";
	return right->parked != node->parked ? "a region parked in part" : NULL;
}

static const char *check_bin(const struct neap_extents *extents, struct bin bin, uint32_t *count)
{
	uint32_t previous = NEAP_NO_NODE, index = extents->bins[bin.top][bin.step];
	bool step_set = extents->steps[bin.top] >> bin.step & 1;
	if (step_set != (index != NEAP_NO_NODE))
		return "a bitmap that does not agree with its bin";
	for (; index != NEAP_NO_NODE; index = extents->nodes[index].next) {
		const struct neap_extent_node *node = &extents->nodes[index];
		struct bin own = bin_of(node->units);
		if (node->phase != FREE || node->parked)
			return "an extent in a bin that is not to be had";
		if (own.top != bin.top || own.step != bin.step)
			return "an extent in the wrong bin";
		if (node->previous != previous)
			return "a broken list";
		if (++*count > extents->nodes_used)
			return "a list that does not end";
		previous = index;
	}
	return NULL;
}

const char *neap_extents_check(const struct neap_extents *extents)
{
	struct sums sums = {0};
	uint32_t binned = 0, spare = 0;
	const char *wrong = NULL;
	for (uint32_t i = 0; i < extents->fresh && !wrong; i++)
		if (extents->nodes[i].phase != SPARE)
			wrong = check_node(extents, i, &sums);
	for (uint32_t top = 0; top < NEAP_EXTENTS_TOPS && !wrong; top++) {
		if ((extents->steps[top] != 0) != (extents->tops >> top & 1))
			return "two bitmaps that do not agree";
		for (uint32_t step = 0; step < NEAP_EXTENTS_STEPS && !wrong; step++)
			wrong = check_bin(extents, (struct bin){top, step}, &binned);
	}
	if (wrong)
		return wrong;
	for (uint32_t i = extents->spare; i != NEAP_NO_NODE && spare <= extents->fresh; i = extents->nodes[i].next)
		spare++;
	if (sums.nodes != extents->nodes_used || sums.nodes + spare != extents->fresh)
		return "lost nodes";
	if (binned != sums.binned)
		return "free extents in no bin";
	if (sums.total != extents->total_units || sums.free != extents->free_units || sums.parked != extents->parked_units)
		return "wrong sums of units";
	if (sums.requested != extents->requested_bytes || sums.extents != extents->extents || sums.regions != extents->regions)
		return "wrong counts";
	return NULL;
}
