/* The address index: which region holds an address. Lookups are two binary searches without locks. What comes in address order is added
 * at the end of its leaf; any other change copies the leaves that it falls into, and the top. Dead entries stay until a copy leaves them
 * out, so that unregister allocates nothing and cannot fail. Entries never overlap, the dead ones included: that is what makes the entry
 * before an address the only candidate. */
#include "transports/registry.h"
#include <string.h>

#define LEAF_FILL 192u      /* entries a leaf gets when all are written anew: room to grow */
#define DEAD_TOLERATED 1024u

static size_t top_bytes(uint32_t leaves)
{
	return sizeof(struct neap_index) + leaves * sizeof(struct neap_index_reference);
}

static bool entry_live(const struct neap_registry *registry, const struct neap_index_entry *entry)
{
	return neap_region_live(registry, entry->slot, entry->generation);
}

static void top_passed(struct neap_registry *registry, struct neap_grace_item *item)
{
	struct neap_index *index = (struct neap_index *)(void *)item;
	neap_release(registry->home, index, top_bytes(index->count));
}

static void leaf_passed(struct neap_registry *registry, struct neap_grace_item *item)
{
	neap_release(registry->home, item, sizeof(struct neap_index_leaf));
}

static void retire_leaf(struct neap_registry *registry, struct neap_index_leaf *leaf)
{
	leaf->grace.passed = leaf_passed;
	neap_grace_add(registry, &leaf->grace);
}

static void retire_top(struct neap_registry *registry, struct neap_index *index)
{
	index->grace.passed = top_passed;
	neap_grace_add(registry, &index->grace);
}

static uint32_t count_of(const struct neap_index_leaf *leaf)
{
	return atomic_load_explicit(&leaf->count, memory_order_acquire);
}

/* Who sees the count sees the entry. */
static void add_entry(struct neap_index_leaf *leaf, const struct neap_index_entry *entry)
{
	uint32_t count = count_of(leaf);
	leaf->entries[count] = *entry;
	atomic_store_explicit(&leaf->count, count + 1, memory_order_release);
}

/* Position of the leaf whose range holds `address`; the first one for addresses before all. Needs at least one leaf. */
static uint32_t leaf_at(const struct neap_index *index, uint64_t address)
{
	uint32_t low = 0, high = index->count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (index->leaves[middle].first <= address)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* How many entries of the leaf begin at or before `address`. */
static uint32_t entries_until(const struct neap_index_leaf *leaf, uint64_t address)
{
	uint32_t low = 0, high = count_of(leaf);
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (leaf->entries[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct neap_index_entry *neap_index_at(const struct neap_index *index, uint64_t address)
{
	if (!index || index->count == 0)
		return NULL;
	const struct neap_index_leaf *leaf = index->leaves[leaf_at(index, address)].leaf;
	uint32_t until = entries_until(leaf, address);
	return until ? &leaf->entries[until - 1] : NULL;
}

const struct neap_index_entry *neap_index_overlap(const struct neap_registry *registry, uint64_t address, uint64_t length)
{
	const struct neap_index *index = atomic_load(&registry->index);
	if (!index || index->count == 0)
		return NULL;
	uint32_t at = leaf_at(index, address);
	uint32_t i = entries_until(index->leaves[at].leaf, address);
	if (i > 0)
		i--;
	for (; at < index->count; at++, i = 0) {
		const struct neap_index_leaf *leaf = index->leaves[at].leaf;
		for (; i < count_of(leaf); i++) {
			const struct neap_index_entry *entry = &leaf->entries[i];
			if (entry->address >= address && entry->address - address >= length)
				return NULL;
			bool reaches = entry->address >= address || address - entry->address < entry->length;
			if (reaches && entry_live(registry, entry))
				return entry;
		}
	}
	return NULL;
}

/* --- writing fresh leaves: nobody sees them before their top is published */

struct writer {
	struct neap_registry *registry;
	struct neap_index *top;
	struct neap_index_leaf *leaf;  /* the one being filled */
	struct neap_grace_item *fresh; /* all that were made, for the case that memory ends */
	uint32_t fill, total;          /* entries a leaf gets; entries written */
	uint64_t cut;                  /* what begins here or later begins a leaf */
};

static int begin(struct writer *writer, struct neap_registry *registry, uint32_t leaves)
{
	/* The top is sized exactly, so that its size is known again when it is freed. */
	*writer = (struct writer){.registry = registry, .top = neap_allocate(registry->home, top_bytes(leaves)), .fill = LEAF_FILL,
	                          .cut = UINT64_MAX};
	return writer->top ? NEAP_OK : NEAP_ENOMEM;
}

static void discard(struct writer *writer, uint32_t leaves)
{
	for (struct neap_grace_item *item = writer->fresh, *next; item; item = next) {
		next = item->next;
		leaf_passed(writer->registry, item);
	}
	neap_release(writer->registry->home, writer->top, top_bytes(leaves));
}

static int write_entry(struct writer *writer, const struct neap_index_entry *entry)
{
	if (entry->address >= writer->cut) {
		writer->leaf = NULL;
		writer->cut = UINT64_MAX;
		writer->fill = NEAP_LEAF_ENTRIES; /* they were in one leaf before */
	}
	if (!writer->leaf || count_of(writer->leaf) == writer->fill) {
		writer->leaf = neap_allocate(writer->registry->home, sizeof *writer->leaf);
		if (!writer->leaf)
			return NEAP_ENOMEM;
		writer->leaf->grace.next = writer->fresh;
		writer->fresh = &writer->leaf->grace;
		writer->top->leaves[writer->top->count++] =
			(struct neap_index_reference){.first = entry->address, .leaf = writer->leaf};
	}
	add_entry(writer->leaf, entry);
	writer->total++;
	return NEAP_OK;
}

/* The leaf's live entries, and the new ones among them. */
static int write_leaf(struct writer *writer, const struct neap_index_leaf *leaf, const struct neap_index_entry *entries, uint32_t count)
{
	uint32_t next = 0;
	int error = NEAP_OK;
	for (uint32_t i = 0; leaf && !error && i < count_of(leaf); i++) {
		if (!entry_live(writer->registry, &leaf->entries[i]))
			continue;
		while (!error && next < count && entries[next].address < leaf->entries[i].address)
			error = write_entry(writer, &entries[next++]);
		if (!error)
			error = write_entry(writer, &leaf->entries[i]);
	}
	while (!error && next < count)
		error = write_entry(writer, &entries[next++]);
	return error;
}

static void publish(struct neap_registry *registry, struct neap_index *top)
{
	struct neap_index *old = atomic_exchange(&registry->index, top);
	if (old)
		retire_top(registry, old);
}

/* How many of the sorted entries fall into this leaf; what lies before all leaves falls into the first. */
static uint32_t entries_for(const struct neap_index *index, uint32_t at, const struct neap_index_entry *entries, uint32_t count)
{
	uint32_t taken = 0;
	if (at + 1 == index->count)
		return count;
	while (taken < count && entries[taken].address < index->leaves[at + 1].first)
		taken++;
	return taken;
}

/* --- all anew */

static int write_all(struct neap_registry *registry, const struct neap_index_entry *entries, uint32_t count)
{
	const struct neap_index *old = atomic_load(&registry->index);
	uint32_t leaves = (registry->index_live + count + LEAF_FILL - 1) / LEAF_FILL, next = 0;
	struct writer writer;
	int error = begin(&writer, registry, leaves);
	if (error)
		return error;
	if (!old || old->count == 0)
		error = write_leaf(&writer, NULL, entries, count);
	for (uint32_t at = 0, here; old && !error && at < old->count; at++, next += here) {
		here = entries_for(old, at, entries + next, count - next);
		error = write_leaf(&writer, old->leaves[at].leaf, entries + next, here);
	}
	if (error) {
		discard(&writer, leaves);
		return error;
	}
	for (uint32_t at = 0; old && at < old->count; at++)
		retire_leaf(registry, old->leaves[at].leaf);
	publish(registry, writer.top);
	registry->index_total = registry->index_live = writer.total;
	return NEAP_OK;
}

/* --- some: the leaves that they fall into are written anew, the others are shared with the old top */

/* Where a leaf is cut that cannot hold them all: behind the last new entry, so that the next one in address order can be added at the end.
 * Returns how many are before the cut, *after_p how many of the old ones are behind it. */
static uint32_t divide(const struct neap_registry *registry, const struct neap_index_leaf *leaf, const struct neap_index_entry *entries,
                       uint32_t count, uint32_t *after_p)
{
	uint32_t all = count, after = 0;
	for (uint32_t i = 0; i < count_of(leaf); i++) {
		if (!entry_live(registry, &leaf->entries[i]))
			continue;
		all++;
		after += leaf->entries[i].address > entries[count - 1].address;
	}
	*after_p = all > NEAP_LEAF_ENTRIES ? after : 0;
	return all - *after_p;
}

static uint32_t fill_for(uint32_t entries)
{
	return entries <= NEAP_LEAF_ENTRIES ? NEAP_LEAF_ENTRIES : LEAF_FILL;
}

static uint32_t leaves_with(const struct neap_registry *registry, const struct neap_index *old, const struct neap_index_entry *entries,
                            uint32_t count)
{
	uint32_t leaves = 0, next = 0;
	for (uint32_t at = 0, here; at < old->count; at++, next += here) {
		here = entries_for(old, at, entries + next, count - next);
		uint32_t after = 0, before = here ? divide(registry, old->leaves[at].leaf, entries + next, here, &after) : 1;
		leaves += (before + fill_for(before) - 1) / fill_for(before) + (after > 0);
	}
	return leaves;
}

static int rewrite_leaf(struct writer *writer, const struct neap_index_leaf *leaf, const struct neap_index_entry *entries, uint32_t count)
{
	uint32_t after, before = divide(writer->registry, leaf, entries, count, &after);
	writer->leaf = NULL;
	writer->fill = fill_for(before);
	writer->cut = after ? entries[count - 1].address + 1 : UINT64_MAX;
	return write_leaf(writer, leaf, entries, count);
}

static int write_some(struct neap_registry *registry, const struct neap_index_entry *entries, uint32_t count)
{
	const struct neap_index *old = atomic_load(&registry->index);
	uint32_t leaves = leaves_with(registry, old, entries, count), next = 0;
	struct writer writer;
	int error = begin(&writer, registry, leaves);
	for (uint32_t at = 0, here; !error && at < old->count; at++, next += here) {
		here = entries_for(old, at, entries + next, count - next);
		if (here > 0)
			error = rewrite_leaf(&writer, old->leaves[at].leaf, entries + next, here);
		else
			writer.top->leaves[writer.top->count++] = old->leaves[at];
	}
	if (error) {
		discard(&writer, leaves);
		return error;
	}
	next = 0;
	for (uint32_t at = 0, here; at < old->count; at++, next += here) {
		here = entries_for(old, at, entries + next, count - next);
		if (here == 0)
			continue;
		registry->index_total -= count_of(old->leaves[at].leaf);
		retire_leaf(registry, old->leaves[at].leaf);
	}
	publish(registry, writer.top);
	registry->index_total += writer.total;
	registry->index_live += count;
	return NEAP_OK;
}

/* --- at the end of a leaf, where there is room: nothing is copied */

static bool append(struct neap_registry *registry, struct neap_index_leaf *leaf, const struct neap_index_entry *entries, uint32_t count)
{
	uint32_t used = count_of(leaf);
	const struct neap_index_entry *last = used ? &leaf->entries[used - 1] : NULL;
	if (!last || used + count > NEAP_LEAF_ENTRIES || entries->address < last->address ||
	    entries->address - last->address < last->length)
		return false;
	for (uint32_t i = 0; i < count; i++)
		add_entry(leaf, &entries[i]);
	registry->index_total += count;
	registry->index_live += count;
	return true;
}

/* Dead entries under a new range must go, and they may lie in the next leaf. */
static bool reaches_next_leaf(const struct neap_index *index, const struct neap_index_entry *entry)
{
	uint32_t next = leaf_at(index, entry->address) + 1;
	return next < index->count && index->leaves[next].first - entry->address < entry->length;
}

int neap_index_insert(struct neap_registry *registry, const struct neap_index_entry *entries, uint32_t count)
{
	const struct neap_index *index = atomic_load(&registry->index);
	bool all = !index || index->count == 0 || registry->index_total > registry->index_live + DEAD_TOLERATED;
	for (uint32_t i = 0; !all && i < count; i++)
		all = reaches_next_leaf(index, &entries[i]);
	if (all)
		return write_all(registry, entries, count);
	uint32_t first = leaf_at(index, entries[0].address), last = leaf_at(index, entries[count - 1].address);
	if (first == last && append(registry, index->leaves[first].leaf, entries, count))
		return NEAP_OK;
	return write_some(registry, entries, count);
}

void neap_index_free(struct neap_registry *registry)
{
	struct neap_index *index = atomic_load(&registry->index);
	if (!index)
		return;
	atomic_store(&registry->index, NULL);
	for (uint32_t at = 0; at < index->count; at++)
		leaf_passed(registry, &index->leaves[at].leaf->grace);
	top_passed(registry, &index->grace);
}
