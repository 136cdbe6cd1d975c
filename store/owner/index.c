/* Keys of an owner: shards of chained buckets. A shard grows by itself, so no growth takes long. */
#include "store/owner/lower.h"
#include <string.h>

#define BUCKETS_LEAST 8u

uint64_t neap_owner_key_hash(const struct neap_owner *owner, const struct neap_key *key)
{
	return neap_key_hash(&owner->secret, key->bytes, key->length);
}

int neap_index_create(struct neap_owner *owner)
{
	owner->shards = neap_allocate(owner->reactor, owner->options.shards * sizeof *owner->shards);
	return owner->shards ? NEAP_OK : NEAP_ENOMEM;
}

static void release_key(struct neap_owner *owner, struct neap_key_entry *entry)
{
	owner->key_bytes -= entry->key_length;
	if (entry->key_length > NEAP_KEY_INLINE)
		neap_release(owner->reactor, entry->key.outside, entry->key_length);
}

void neap_index_destroy(struct neap_owner *owner)
{
	if (!owner->shards)
		return;
	for (uint32_t i = 0; i < owner->options.shards; i++)
		if (owner->shards[i].buckets)
			neap_release(owner->reactor, owner->shards[i].buckets, owner->shards[i].bucket_count * sizeof(struct neap_key_entry *));
	neap_release(owner->reactor, owner->shards, owner->options.shards * sizeof *owner->shards);
	owner->shards = NULL;
}

/* The shard by the upper bits, the bucket by the lower ones. */
static struct neap_shard *shard_of(const struct neap_owner *owner, uint64_t hash)
{
	return &owner->shards[hash >> 32 & (owner->options.shards - 1)];
}

static struct neap_key_entry **bucket_of(const struct neap_shard *shard, uint64_t hash)
{
	return &shard->buckets[hash & (shard->bucket_count - 1)];
}

struct neap_key neap_key_entry_key(const struct neap_key_entry *entry)
{
	return (struct neap_key){.bytes = entry->key_length > NEAP_KEY_INLINE ? entry->key.outside : entry->key.inside,
	                         .length = entry->key_length};
}

static bool is_of(const struct neap_key_entry *entry, const struct neap_key *key, uint64_t hash)
{
	struct neap_key own = neap_key_entry_key(entry);
	return entry->hash == hash && own.length == key->length && memcmp(own.bytes, key->bytes, own.length) == 0;
}

struct neap_key_entry *neap_key_entry_find(const struct neap_owner *owner, const struct neap_key *key)
{
	uint64_t hash = neap_owner_key_hash(owner, key);
	const struct neap_shard *shard = shard_of(owner, hash);
	if (!shard->buckets)
		return NULL;
	struct neap_key_entry *entry = *bucket_of(shard, hash);
	while (entry && !is_of(entry, key, hash))
		entry = entry->next;
	return entry;
}

/* A shard without memory for more buckets has longer chains. */
static bool grow(struct neap_owner *owner, struct neap_shard *shard)
{
	uint32_t count = shard->buckets ? 2 * shard->bucket_count : BUCKETS_LEAST;
	struct neap_key_entry **buckets = neap_allocate(owner->reactor, count * sizeof *buckets);
	if (!buckets)
		return shard->buckets != NULL;
	struct neap_shard old = *shard;
	shard->changes++;
	shard->buckets = buckets;
	shard->bucket_count = count;
	for (uint32_t i = 0; i < (old.buckets ? old.bucket_count : 0); i++) {
		struct neap_key_entry *next;
		for (struct neap_key_entry *entry = old.buckets[i]; entry; entry = next) {
			struct neap_key_entry **bucket = bucket_of(shard, entry->hash);
			next = entry->next;
			entry->next = *bucket;
			*bucket = entry;
		}
	}
	if (old.buckets)
		neap_release(owner->reactor, old.buckets, old.bucket_count * sizeof *old.buckets);
	return true;
}

static bool copy_key(struct neap_owner *owner, struct neap_key_entry *entry, const struct neap_key *key)
{
	char *to = entry->key.inside;
	if (owner->key_bytes + key->length > owner->options.key_bytes_max)
		return false;
	if (key->length > NEAP_KEY_INLINE) {
		to = neap_allocate(owner->reactor, key->length);
		if (!to)
			return false;
		entry->key.outside = to;
	}
	memcpy(to, key->bytes, key->length);
	entry->key_length = (uint16_t)key->length;
	owner->key_bytes += key->length;
	return true;
}

struct neap_key_entry *neap_key_entry_get(struct neap_owner *owner, const struct neap_key *key)
{
	struct neap_key_entry *entry = neap_key_entry_find(owner, key);
	if (entry)
		return entry;
	uint64_t hash = neap_owner_key_hash(owner, key);
	struct neap_shard *shard = shard_of(owner, hash);
	if ((!shard->buckets || shard->used >= shard->bucket_count) && !grow(owner, shard))
		return NULL;
	entry = neap_pool_take(&owner->entries);
	if (!entry)
		return NULL;
	*entry = (struct neap_key_entry){.hash = hash};
	if (!copy_key(owner, entry, key)) {
		neap_pool_give(&owner->entries, entry);
		return NULL;
	}
	struct neap_key_entry **bucket = bucket_of(shard, hash);
	entry->next = *bucket;
	*bucket = entry;
	shard->used++;
	shard->changes++;
	return entry;
}

void neap_key_entry_settle(struct neap_owner *owner, struct neap_key_entry *entry)
{
	if (entry->handle || entry->pending)
		return;
	struct neap_shard *shard = shard_of(owner, entry->hash);
	struct neap_key_entry **at = bucket_of(shard, entry->hash);
	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	shard->used--;
	shard->changes++;
	release_key(owner, entry);
	neap_pool_give(&owner->entries, entry);
}

static struct neap_owner_value value_of(const struct neap_owner *owner, const struct neap_key_entry *entry,
                                        const struct neap_handle *handle)
{
	return (struct neap_owner_value){
		.key = neap_key_entry_key(entry),
		.size = handle->extent.size,
		.generation = entry->generation,
		.tier = neap_tiers_index(owner->tiers, handle->tier),
		.has_crc = entry->has_crc,
		.crc = entry->crc,
	};
}

void neap_key_entry_publish(struct neap_owner *owner, struct neap_key_entry *entry, struct neap_handle *handle, uint64_t write_id,
                        const struct neap_sum *sum)
{
	entry->handle = handle;
	entry->generation = ++owner->generation;
	entry->write_id = write_id;
	entry->pending = 0;
	entry->has_crc = sum->wanted;
	entry->crc = sum->crc;
	owner->keys++;
	owner->bytes += handle->extent.size;
	neap_handle_commit(handle, entry);
	if (owner->lower)
		neap_lower_again(owner);
	else
		neap_owner_wake(owner); /* the watermarks may ask for something now */
	if (owner->options.published) {
		struct neap_owner_value value = value_of(owner, entry, handle);
		owner->options.published(owner->options.user, &value);
	}
}

void neap_key_entry_moved(struct neap_owner *owner, const struct neap_key_entry *entry, uint32_t from_tier)
{
	const struct neap_owner_options *options = &owner->options;
	struct neap_owner_value value = value_of(owner, entry, entry->handle);
	if (options->moved) {
		options->moved(options->user, &value, from_tier);
		return;
	}
	if (options->published)
		options->published(options->user, &value);
	value.tier = from_tier;
	if (options->withdrawn)
		options->withdrawn(options->user, &value);
}

uint64_t neap_key_entry_withdraw(struct neap_owner *owner, struct neap_key_entry *entry)
{
	struct neap_handle *handle = entry->handle;
	if (owner->lower)
		neap_lower_forget(owner, entry);
	owner->keys--;
	owner->bytes -= handle->extent.size;
	entry->handle = NULL;
	neap_handle_withdraw(handle);
	if (owner->options.withdrawn) {
		struct neap_owner_value value = value_of(owner, entry, handle);
		owner->options.withdrawn(owner->options.user, &value);
	}
	neap_key_entry_settle(owner, entry);
	return neap_handle_drop(handle);
}

/* `index` is bucket << 16 | place in its chain. Places hold as long as the shard does not change: after that the bucket is walked again
 * from its beginning. A shard that grew has bucket b's keys in b and above, so nothing is missed. */
bool neap_owner_next(const struct neap_owner *owner, struct neap_owner_cursor *cursor, struct neap_owner_value *value_p)
{
	for (; cursor->shard < owner->options.shards; cursor->shard++, cursor->index = 0) {
		const struct neap_shard *shard = &owner->shards[cursor->shard];
		uint64_t begin = cursor->index >> 16, skip = cursor->changes == shard->changes ? cursor->index & UINT16_MAX : 0;
		for (uint64_t bucket = begin; shard->buckets && bucket < shard->bucket_count; bucket++, skip = 0) {
			uint64_t place = 0;
			for (const struct neap_key_entry *entry = shard->buckets[bucket]; entry; entry = entry->next) {
				if (place++ < skip || !entry->handle)
					continue;
				*value_p = value_of(owner, entry, entry->handle);
				cursor->index = bucket << 16 | place;
				cursor->changes = shard->changes;
				return true;
			}
		}
	}
	return false;
}
