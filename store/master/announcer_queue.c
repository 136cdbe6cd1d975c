/* The changes that wait: one entry for each (key, segment), in the order of their first change. */
#include "store/master/announcer_inside.h"
#include <string.h>

static uint64_t mixed(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 29;
}

/* Seeded: whoever chooses keys does not choose their buckets. */
uint64_t announcer_hash(const struct neap_announcer *announcer, struct neap_key_text key, struct neap_key_id segment)
{
	uint64_t hash = mixed(mixed(mixed(announcer->seed, key.length), segment.first), segment.second), word;
	for (uint32_t at = 0; at < key.length; at += 8) {
		word = 0;
		memcpy(&word, key.text + at, key.length - at < 8 ? key.length - at : 8);
		hash = mixed(hash, word);
	}
	return mixed(hash, hash >> 32);
}

static struct announcer_entry **bucket_of(const struct neap_announcer *announcer, uint64_t hash)
{
	return &announcer->queue.buckets[hash & announcer->queue.bucket_mask];
}

struct announcer_entry *announcer_find(const struct neap_announcer *announcer, uint64_t hash, struct neap_key_text key,
                                       struct neap_key_id segment)
{
	struct announcer_entry *entry = *bucket_of(announcer, hash);
	while (entry && !(entry->hash == hash && entry->value.key.length == key.length &&
	                  neap_key_id_equal(entry->value.segment, segment) && memcmp(entry->value.key.text, key.text, key.length) == 0))
		entry = entry->in_bucket;
	return entry;
}

static void append(struct neap_announcer *announcer, struct announcer_entry *entry, enum announcer_place place)
{
	struct announcer_list *list = &announcer->queue.places[place];
	entry->place = place;
	entry->next = NULL;
	entry->previous = list->last;
	*(list->last ? &list->last->next : &list->first) = entry;
	list->last = entry;
	list->count++;
}

static void take_out(struct neap_announcer *announcer, struct announcer_entry *entry)
{
	struct announcer_list *list = &announcer->queue.places[entry->place];
	*(entry->previous ? &entry->previous->next : &list->first) = entry->next;
	*(entry->next ? &entry->next->previous : &list->last) = entry->previous;
	list->count--;
}

void announcer_move(struct neap_announcer *announcer, struct announcer_entry *entry, enum announcer_place place)
{
	take_out(announcer, entry);
	append(announcer, entry, place);
}

void announcer_put_off(struct neap_announcer *announcer)
{
	while (announcer->queue.places[ANNOUNCER_LATER].first)
		announcer_move(announcer, announcer->queue.places[ANNOUNCER_LATER].first, ANNOUNCER_WAITING);
}

struct announcer_entry *announcer_add(struct neap_announcer *announcer, uint64_t hash, const struct neap_announcement *value,
                                      enum neap_key_change_kind kind, enum announcer_place place)
{
	struct announcer_queue *queue = &announcer->queue;
	bool is_long = value->key.length > ANNOUNCER_INLINE;
	struct announcer_entry *entry = neap_pool_take(&queue->entries);
	char *long_text = entry && is_long ? neap_pool_take(&queue->long_texts) : NULL;
	if (!entry || (is_long && !long_text)) {
		if (entry)
			neap_pool_give(&queue->entries, entry);
		announcer->stats.overflows++;
		announcer_owe(announcer);
		return NULL;
	}
	entry->value = *value;
	entry->value.key.text = is_long ? long_text : entry->text;
	memcpy(is_long ? long_text : entry->text, value->key.text, value->key.length);
	entry->hash = hash;
	entry->kind = kind;
	entry->again = entry->follows = false;
	entry->long_text = long_text;
	entry->in_bucket = *bucket_of(announcer, hash);
	*bucket_of(announcer, hash) = entry;
	append(announcer, entry, place);
	return entry;
}

void announcer_drop(struct neap_announcer *announcer, struct announcer_entry *entry)
{
	struct announcer_entry **at = bucket_of(announcer, entry->hash);
	while (*at != entry)
		at = &(*at)->in_bucket;
	*at = entry->in_bucket;
	take_out(announcer, entry);
	if (entry->long_text)
		neap_pool_give(&announcer->queue.long_texts, entry->long_text);
	neap_pool_give(&announcer->queue.entries, entry);
}

/* --- changes ------------------------------------------------------------------------------------------------------------ */

/* The last one counts; an echo of an older generation does not. */
static void change(struct neap_announcer *announcer, uint64_t hash, const struct neap_announcement *value,
                   enum neap_key_change_kind kind)
{
	struct announcer_entry *entry = announcer_find(announcer, hash, value->key, value->segment);
	if (!entry) {
		(void)announcer_add(announcer, hash, value, kind, ANNOUNCER_WAITING);
	} else if (value->generation >= entry->value.generation) {
		struct neap_key_text text = entry->value.key;
		announcer->stats.replaced++;
		entry->value = *value;
		entry->value.key = text;
		entry->kind = kind;
		entry->again = entry->place == ANNOUNCER_SENT;
		entry->follows = false;
		if (entry->place == ANNOUNCER_LATER)
			announcer_move(announcer, entry, ANNOUNCER_WAITING);
	}
	announcer_look(announcer);
}

static bool sensible(const struct neap_announcer *announcer, struct neap_key_text key)
{
	return !announcer->leaving && key.text && key.length > 0 && key.length <= ANNOUNCER_KEY_MAX;
}

void neap_announcer_published(struct neap_announcer *announcer, const struct neap_announcement *value)
{
	if (sensible(announcer, value->key))
		change(announcer, announcer_hash(announcer, value->key, value->segment), value, NEAP_KEY_ADD);
}

void neap_announcer_withdrawn(struct neap_announcer *announcer, struct neap_key_text key, struct neap_key_id segment,
                              uint64_t generation)
{
	struct neap_announcement value = {.key = key, .segment = segment, .generation = generation};
	if (!sensible(announcer, key))
		return;
	uint64_t hash = announcer_hash(announcer, key, segment);
	announcer_stamp_forget(announcer, hash, generation);
	announcer_tell(announcer, hash, key, segment, generation, true, NEAP_STORE_OBJECT_NOT_FOUND);
	change(announcer, hash, &value, NEAP_KEY_REMOVE);
}

void neap_announcer_moved(struct neap_announcer *announcer, const struct neap_announcement *value, struct neap_key_id from)
{
	if (!sensible(announcer, value->key))
		return;
	uint64_t hash = announcer_hash(announcer, value->key, value->segment), old = announcer_hash(announcer, value->key, from);
	const struct announcer_stamp *stamp = announcer_stamp_of(announcer, old, value->generation);
	struct neap_key_stamp accepted = stamp ? stamp->stamp : (struct neap_key_stamp){0, 0};
	announcer_stamp_forget(announcer, old, value->generation);
	if (stamp)
		announcer_stamp_keep(announcer, hash, value->generation, accepted);
	announcer_redirect(announcer, value, from);
	change(announcer, hash, value, NEAP_KEY_ADD);
	/* The queue was full: the announcement of all that is owed now brings the new route, and the end of it drops the old one. */
	if (!announcer_find(announcer, hash, value->key, value->segment) && !announcer_find(announcer, old, value->key, from))
		return;
	neap_announcer_withdrawn(announcer, value->key, from, value->generation);
	struct announcer_entry *removal = announcer_find(announcer, old, value->key, from);
	if (removal && removal->kind == NEAP_KEY_REMOVE) {
		removal->follows = true;
		removal->to = value->segment;
	}
}

/* --- life --------------------------------------------------------------------------------------------------------------- */

static uint32_t power_of_two(uint32_t least)
{
	uint32_t power = 16;
	while (power < least)
		power *= 2;
	return power;
}

int announcer_queue_open(struct neap_announcer *announcer)
{
	struct announcer_queue *queue = &announcer->queue;
	const struct neap_announcer_options *options = &announcer->options;
	uint32_t buckets = power_of_two(options->queue_max);
	int error = neap_pool_create(&queue->entries, announcer->reactor, sizeof(struct announcer_entry), options->queue_max);
	if (!error)
		error = neap_pool_create(&queue->long_texts, announcer->reactor, ANNOUNCER_KEY_MAX, options->long_keys_max);
	if (!error && !(queue->buckets = neap_allocate(announcer->reactor, buckets * sizeof *queue->buckets)))
		error = NEAP_ENOMEM;
	queue->bucket_mask = buckets - 1;
	return error;
}

void announcer_queue_close(struct neap_announcer *announcer)
{
	struct announcer_queue *queue = &announcer->queue;
	neap_pool_destroy(&queue->entries);
	neap_pool_destroy(&queue->long_texts);
	if (queue->buckets)
		neap_release(announcer->reactor, queue->buckets, (queue->bucket_mask + (size_t)1) * sizeof *queue->buckets);
}
