/* What must hold of an owner between turns. */
#include "store/owner/lower.h"

static const char *check_entry(const struct neap_owner *owner, const struct neap_key_entry *entry)
{
	if (!entry->handle && !entry->pending)
		return "a key has neither a value nor a pending write";
	if (entry->handle && (entry->handle->phase != NEAP_HANDLE_COMMITTED || entry->handle->object != entry))
		return "a key's value is not the tier's";
	if (entry->below && (!entry->handle || entry->below->phase != NEAP_HANDLE_COMMITTED || entry->below->object != entry ||
	                     !neap_handle_address(entry->handle) || neap_handle_address(entry->below)))
		return "a copy is not of a value in memory";
	if (entry->moving && (!entry->handle || entry->moving->entry != entry))
		return "what moves is another key's";
	if (entry->handle && entry->pending)
		return "a key that has a value is being written";
	if (!entry->pending)
		return NULL;
	if (entry->pending_move) {
		const struct neap_move_record *move = neap_pool_find(&owner->moves, entry->pending);
		return move && move->entry == entry ? NULL : "a key waits for a pull that is not its own";
	}
	const struct neap_write_record *write = neap_pool_find(&owner->writes, entry->pending);
	return write && write->entry == entry ? NULL : "a key waits for a write that is not its own";
}

const char *neap_owner_check(const struct neap_owner *owner)
{
	uint64_t entries = 0, keys = 0, bytes = 0, key_bytes = 0, committed = 0, copies = 0;
	for (uint32_t i = 0; i < owner->options.shards; i++) {
		const struct neap_shard *shard = &owner->shards[i];
		uint32_t used = 0;
		for (uint32_t k = 0; shard->buckets && k < shard->bucket_count; k++) {
			for (const struct neap_key_entry *entry = shard->buckets[k]; entry; entry = entry->next, used++) {
				const char *wrong = check_entry(owner, entry);
				if (wrong)
					return wrong;
				keys += entry->handle != NULL;
				bytes += entry->handle ? entry->handle->extent.size : 0;
				key_bytes += entry->key_length;
				copies += entry->below != NULL;
			}
		}
		if (used != shard->used)
			return "a shard has another number of keys than it counts";
		entries += used;
	}
	for (uint32_t i = 0; i < owner->tiers->count; i++)
		committed += owner->tiers->tiers[i].tier.counts.committed;
	if (entries != owner->entries.used || keys != owner->keys || bytes != owner->bytes || key_bytes != owner->key_bytes)
		return "the index has other keys than the owner counts";
	if (committed != keys + copies)
		return "the tiers have other values than the index";
	return owner->lower ? neap_lower_check(owner, copies) : NULL;
}
