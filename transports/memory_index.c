/* The address index: which region holds an address. Lookups are two binary searches without locks; a change copies one leaf and the
 * top. Dead entries stay until a copy leaves them out, so that unregister allocates nothing and cannot fail. Entries never overlap, the
 * dead ones included: that is what makes the entry before an address the only candidate. */
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
	uint32_t low = 0, high = leaf->count;
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
		for (; i < leaf->count; i++) {
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

/* --- all anew: live entries and new ones merged into fresh leaves */

struct writer {
	struct neap_registry *registry;
	struct neap_index *top;
	struct neap_index_leaf *leaf;
	uint32_t leaves_allowed, total;
};

static int write_entry(struct writer *writer, const struct neap_index_entry *entry)
{
	if (!writer->leaf || writer->leaf->count == LEAF_FILL) {
		writer->leaf = neap_allocate(writer->registry->home, sizeof *writer->leaf);
		if (!writer->leaf)
			return NEAP_ENOMEM;
		writer->top->leaves[writer->top->count++] =
			(struct neap_index_reference){.first = entry->address, .leaf = writer->leaf};
	}
	writer->leaf->entries[writer->leaf->count++] = *entry;
	writer->total++;
	return NEAP_OK;
}

static int write_merged(struct writer *writer, const struct neap_index *old, const struct neap_index_entry *entries, uint32_t count)
{
	uint32_t next = 0;
	int error = NEAP_OK;
	for (uint32_t at = 0; old && at < old->count; at++) {
		const struct neap_index_leaf *leaf = old->leaves[at].leaf;
		for (uint32_t i = 0; !error && i < leaf->count; i++) {
			if (!entry_live(writer->registry, &leaf->entries[i]))
				continue;
			while (!error && next < count && entries[next].address < leaf->entries[i].address)
				error = write_entry(writer, &entries[next++]);
			if (!error)
				error = write_entry(writer, &leaf->entries[i]);
		}
	}
	while (!error && next < count)
		error = write_entry(writer, &entries[next++]);
	return error;
}

static void discard(struct neap_registry *registry, struct neap_index *top, uint32_t leaves_allowed)
{
	for (uint32_t i = 0; i < top->count; i++)
		neap_release(registry->home, top->leaves[i].leaf, sizeof *top->leaves[i].leaf);
	neap_release(registry->home, top, top_bytes(leaves_allowed));
}

static void publish(struct neap_registry *registry, struct neap_index *top)
{
	atomic_store(&registry->index, top);
}

static int write_all(struct neap_registry *registry, const struct neap_index_entry *entries, uint32_t count)
{
	struct neap_index *old = atomic_load(&registry->index);
	/* The top is sized exactly, so that its size is known again when it is freed. */
	uint32_t leaves = (registry->index_live + count + LEAF_FILL - 1) / LEAF_FILL;
	struct writer writer = {.registry = registry, .top = neap_allocate(registry->home, top_bytes(leaves))};
	if (!writer.top)
		return NEAP_ENOMEM;
	int error = write_merged(&writer, old, entries, count);
	if (error) {
		discard(registry, writer.top, leaves);
		return error;
	}
	publish(registry, writer.top);
	for (uint32_t i = 0; old && i < old->count; i++)
		retire_leaf(registry, old->leaves[i].leaf);
	if (old)
		retire_top(registry, old);
	registry->index_total = registry->index_live = writer.total;
	return NEAP_OK;
}

/* --- one entry: its leaf and the top are copied */

/* The leaf's live entries with the new one among them. Returns the count, at most NEAP_LEAF_ENTRIES + 1. */
static uint32_t merge_leaf(const struct neap_registry *registry, const struct neap_index_leaf *leaf,
                           const struct neap_index_entry *entry, struct neap_index_entry *merged)
{
	uint32_t count = 0;
	bool placed = false;
	for (uint32_t i = 0; i < leaf->count; i++) {
		if (!entry_live(registry, &leaf->entries[i]))
			continue;
		if (!placed && entry->address < leaf->entries[i].address) {
			merged[count++] = *entry;
			placed = true;
		}
		merged[count++] = leaf->entries[i];
	}
	if (!placed)
		merged[count++] = *entry;
	return count;
}

static struct neap_index_leaf *make_leaf(struct neap_registry *registry, const struct neap_index_entry *entries, uint32_t count)
{
	struct neap_index_leaf *leaf = neap_allocate(registry->home, sizeof *leaf);
	if (leaf) {
		memcpy(leaf->entries, entries, count * sizeof *entries);
		leaf->count = count;
	}
	return leaf;
}

static int write_one(struct neap_registry *registry, const struct neap_index_entry *entry)
{
	struct neap_index *old = atomic_load(&registry->index);
	uint32_t at = leaf_at(old, entry->address);
	struct neap_index_leaf *leaf = old->leaves[at].leaf;
	struct neap_index_entry merged[NEAP_LEAF_ENTRIES + 1];
	uint32_t count = merge_leaf(registry, leaf, entry, merged);
	uint32_t pieces = count > NEAP_LEAF_ENTRIES ? 2 : 1, first = pieces == 2 ? count / 2 : count;
	struct neap_index *top = neap_allocate(registry->home, top_bytes(old->count + pieces - 1));
	struct neap_index_leaf *left = make_leaf(registry, merged, first);
	struct neap_index_leaf *right = pieces == 2 ? make_leaf(registry, merged + first, count - first) : NULL;
	if (!top || !left || (pieces == 2 && !right)) {
		neap_release(registry->home, left, sizeof *left);
		neap_release(registry->home, right, sizeof *right);
		neap_release(registry->home, top, top_bytes(old->count + pieces - 1));
		return NEAP_ENOMEM;
	}
	top->count = old->count + pieces - 1;
	memcpy(top->leaves, old->leaves, at * sizeof *old->leaves);
	top->leaves[at] = (struct neap_index_reference){.first = left->entries[0].address, .leaf = left};
	if (right)
		top->leaves[at + 1] = (struct neap_index_reference){.first = right->entries[0].address, .leaf = right};
	memcpy(top->leaves + at + pieces, old->leaves + at + 1, (old->count - at - 1) * sizeof *old->leaves);
	publish(registry, top);
	registry->index_total += count - leaf->count;
	registry->index_live++;
	retire_leaf(registry, leaf);
	retire_top(registry, old);
	return NEAP_OK;
}

int neap_index_insert(struct neap_registry *registry, const struct neap_index_entry *entries, uint32_t count)
{
	const struct neap_index *index = atomic_load(&registry->index);
	bool all = !index || index->count == 0 || count > 1 || registry->index_total > registry->index_live + DEAD_TOLERATED;
	if (!all) {
		/* Dead entries under the new range must go, and they may lie in the next leaf. */
		uint32_t at = leaf_at(index, entries->address);
		all = at + 1 < index->count && index->leaves[at + 1].first - entries->address < entries->length;
	}
	return all ? write_all(registry, entries, count) : write_one(registry, entries);
}

void neap_index_free(struct neap_registry *registry)
{
	struct neap_index *index = atomic_load(&registry->index);
	if (!index)
		return;
	atomic_store(&registry->index, NULL);
	discard(registry, index, index->count);
}
