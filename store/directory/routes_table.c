/* The table's memory: keys in buckets, their text in cells, replicas in the lists of their key and of their segment. */
#include "store/directory/routes_table.h"
#include <string.h>

#define PIECE_BITS 12u
#define PIECE (1u << PIECE_BITS)

struct cell {
	char text[NEAP_ROUTE_CELL_BYTES];
	uint32_t next;
};

/* Of 64 bits, 32 serve. */
static uint32_t hash(const struct neap_routes *routes, struct neap_key_text key)
{
	return (uint32_t)neap_key_hash(&routes->secret, key.text, key.length);
}

/* --- buckets ---------------------------------------------------------------------------------------------------------- */

static uint32_t bucket_of(const struct neap_routes *routes, uint32_t hash_)
{
	uint32_t base = 1u << routes->level, bucket = hash_ & (base - 1);
	return bucket < routes->bucket_count - base ? hash_ & (2 * base - 1) : bucket;
}

static uint32_t *bucket_at(const struct neap_routes *routes, uint32_t bucket)
{
	return &routes->buckets[bucket >> PIECE_BITS][bucket & (PIECE - 1)];
}

/* One bucket more: the keys of one bucket are shared between it and the new one. Without memory for it the chains get longer, and
 * the next key tries again. */
static void grow(struct neap_routes *routes)
{
	uint32_t base = 1u << routes->level, fresh = routes->bucket_count, piece = fresh >> PIECE_BITS;
	if (piece == routes->piece_count)
		return;
	if (!routes->buckets[piece])
		routes->buckets[piece] = neap_allocate(routes->reactor, PIECE * sizeof(uint32_t));
	if (!routes->buckets[piece])
		return;
	uint32_t *from = bucket_at(routes, fresh - base), *to = bucket_at(routes, fresh);
	while (*from) {
		struct neap_route_key *key = neap_routes_key(routes, *from - 1);
		if ((key->hash & (2 * base - 1)) == fresh) {
			*to = *from;
			to = &key->next;
			*from = key->next;
			*to = 0;
		} else {
			from = &key->next;
		}
	}
	if (++routes->bucket_count == 2 * base)
		routes->level++;
}

/* --- keys ------------------------------------------------------------------------------------------------------------- */

static bool equals(const struct neap_routes *routes, const struct neap_route_key *key, struct neap_key_text text)
{
	uint32_t inside = text.length < NEAP_ROUTE_KEY_INLINE ? text.length : NEAP_ROUTE_KEY_INLINE;
	if (key->length != text.length || memcmp(key->text, text.text, inside) != 0)
		return false;
	uint32_t cell = key->cells;
	for (uint32_t at = inside; at < text.length;) {
		const struct cell *part = neap_pool_at(&routes->cells, cell);
		uint32_t length = text.length - at < NEAP_ROUTE_CELL_BYTES ? text.length - at : NEAP_ROUTE_CELL_BYTES;
		if (memcmp(part->text, text.text + at, length) != 0)
			return false;
		at += length;
		cell = part->next;
	}
	return true;
}

static uint32_t find(const struct neap_routes *routes, struct neap_key_text text, uint32_t hash_)
{
	for (uint32_t link = *bucket_at(routes, bucket_of(routes, hash_)); link;) {
		const struct neap_route_key *key = neap_routes_key(routes, link - 1);
		if (key->hash == hash_ && equals(routes, key, text))
			return link - 1;
		link = key->next;
	}
	return NEAP_ROUTE_NONE;
}

uint32_t neap_routes_find(const struct neap_routes *routes, struct neap_key_text key)
{
	return find(routes, key, hash(routes, key));
}

void neap_routes_copy_key(const struct neap_routes *routes, uint32_t index, char *text)
{
	const struct neap_route_key *key = neap_routes_key(routes, index);
	uint32_t inside = key->length < NEAP_ROUTE_KEY_INLINE ? key->length : NEAP_ROUTE_KEY_INLINE, cell = key->cells;
	memcpy(text, key->text, inside);
	for (uint32_t at = inside; at < key->length;) {
		const struct cell *part = neap_pool_at(&routes->cells, cell);
		uint32_t length = key->length - at < NEAP_ROUTE_CELL_BYTES ? key->length - at : NEAP_ROUTE_CELL_BYTES;
		memcpy(text + at, part->text, length);
		at += length;
		cell = part->next;
	}
}

static void give_cells(struct neap_routes *routes, uint32_t cell)
{
	while (cell != NEAP_ROUTE_NONE) {
		struct cell *part = neap_pool_at(&routes->cells, cell);
		cell = part->next;
		neap_pool_give(&routes->cells, part);
	}
}

static bool keep_text(struct neap_routes *routes, struct neap_route_key *key, struct neap_key_text text)
{
	uint32_t inside = text.length < NEAP_ROUTE_KEY_INLINE ? text.length : NEAP_ROUTE_KEY_INLINE;
	memcpy(key->text, text.text, inside);
	key->length = (uint16_t)text.length;
	key->cells = NEAP_ROUTE_NONE;
	uint32_t *slot = &key->cells;
	for (uint32_t at = inside; at < text.length;) {
		struct cell *part = neap_pool_take(&routes->cells);
		if (!part) {
			give_cells(routes, key->cells);
			return false;
		}
		uint32_t length = text.length - at < NEAP_ROUTE_CELL_BYTES ? text.length - at : NEAP_ROUTE_CELL_BYTES;
		memcpy(part->text, text.text + at, length);
		part->next = NEAP_ROUTE_NONE;
		*slot = neap_pool_index(&routes->cells, part);
		slot = &part->next;
		at += length;
	}
	return true;
}

uint32_t neap_routes_table_key(struct neap_routes *routes, struct neap_key_text text)
{
	uint32_t hash_ = hash(routes, text), index = find(routes, text, hash_);
	if (index != NEAP_ROUTE_NONE)
		return index;
	struct neap_route_key *key = neap_pool_take(&routes->keys);
	if (!key)
		return NEAP_ROUTE_NONE;
	if (!keep_text(routes, key, text)) {
		neap_pool_give(&routes->keys, key);
		return NEAP_ROUTE_NONE;
	}
	if (routes->keys.used > routes->bucket_count)
		grow(routes);
	uint32_t *bucket = bucket_at(routes, bucket_of(routes, hash_));
	index = neap_pool_index(&routes->keys, key);
	key->hash = hash_;
	key->next = *bucket;
	key->replicas = NEAP_ROUTE_NONE;
	key->standing = 0;
	*bucket = index + 1;
	return index;
}

void neap_routes_table_tidy(struct neap_routes *routes, uint32_t index)
{
	struct neap_route_key *key = neap_routes_key(routes, index);
	if (key->replicas != NEAP_ROUTE_NONE)
		return;
	uint32_t *slot = bucket_at(routes, bucket_of(routes, key->hash));
	while (*slot != index + 1)
		slot = &neap_routes_key(routes, *slot - 1)->next;
	*slot = key->next;
	give_cells(routes, key->cells);
	neap_pool_give(&routes->keys, key);
}

/* --- replicas --------------------------------------------------------------------------------------------------------- */

static struct neap_route_list *list_of(const struct neap_routes *routes, const struct neap_route_replica *replica)
{
	struct neap_route_segment *segment = neap_routes_segment(routes, replica->segment);
	return replica->lost ? &segment->lost : &segment->here;
}

static void link_to_segment(const struct neap_routes *routes, struct neap_route_replica *replica)
{
	struct neap_route_list *list = list_of(routes, replica);
	uint32_t index = neap_pool_index(&routes->replicas, replica);
	replica->newer = NEAP_ROUTE_NONE;
	replica->older = list->newest;
	if (list->newest != NEAP_ROUTE_NONE)
		neap_routes_replica(routes, list->newest)->newer = index;
	list->newest = index;
	list->count++;
}

static void unlink_from_segment(const struct neap_routes *routes, struct neap_route_replica *replica)
{
	struct neap_route_segment *segment = neap_routes_segment(routes, replica->segment);
	struct neap_route_list *list = list_of(routes, replica);
	if (segment->cursor == neap_pool_index(&routes->replicas, replica))
		segment->cursor = replica->older;
	if (replica->newer == NEAP_ROUTE_NONE)
		list->newest = replica->older;
	else
		neap_routes_replica(routes, replica->newer)->older = replica->older;
	if (replica->older != NEAP_ROUTE_NONE)
		neap_routes_replica(routes, replica->older)->newer = replica->newer;
	list->count--;
}

static void stands(struct neap_routes *routes, struct neap_route_key *key, int by)
{
	if (by > 0 && key->standing++ == 0)
		routes->standing_keys++;
	else if (by < 0 && --key->standing == 0)
		routes->standing_keys--;
}

struct neap_route_replica *neap_routes_table_add(struct neap_routes *routes, uint32_t key_index, uint32_t segment)
{
	struct neap_route_replica *replica = neap_pool_take(&routes->replicas);
	if (!replica)
		return NULL;
	struct neap_route_key *key = neap_routes_key(routes, key_index);
	*replica = (struct neap_route_replica){.key = key_index, .next = key->replicas, .segment = segment};
	key->replicas = neap_pool_index(&routes->replicas, replica);
	link_to_segment(routes, replica);
	stands(routes, key, 1);
	return replica;
}

void neap_routes_table_lose(struct neap_routes *routes, struct neap_route_replica *replica)
{
	unlink_from_segment(routes, replica);
	replica->lost = true;
	link_to_segment(routes, replica);
	stands(routes, neap_routes_key(routes, replica->key), -1);
	routes->replicas_lost++;
}

void neap_routes_table_remove(struct neap_routes *routes, struct neap_route_replica *replica)
{
	struct neap_route_key *key = neap_routes_key(routes, replica->key);
	uint32_t index = neap_pool_index(&routes->replicas, replica), key_index = replica->key, *slot = &key->replicas;
	while (*slot != index)
		slot = &neap_routes_replica(routes, *slot)->next;
	*slot = replica->next;
	unlink_from_segment(routes, replica);
	if (replica->lost)
		routes->replicas_lost--;
	else
		stands(routes, key, -1);
	neap_pool_give(&routes->replicas, replica);
	neap_routes_table_tidy(routes, key_index);
}

void neap_route_segment_begin(struct neap_route_segment *segment, uint32_t client)
{
	*segment = (struct neap_route_segment){
		.here.newest = NEAP_ROUTE_NONE, .lost.newest = NEAP_ROUTE_NONE, .client = client, .cursor = NEAP_ROUTE_NONE};
}

/* --- life ------------------------------------------------------------------------------------------------------------- */

int neap_routes_create(struct neap_routes *routes, struct neap_reactor *reactor, const struct neap_routes_options *options,
                       const struct neap_pool *segments)
{
	*routes = (struct neap_routes){.reactor = reactor, .options = *options, .segments = segments};
	if (options->keys_max == 0 || options->keys_max > 1u << 30 || options->replicas_max == 0 || options->replicas_max > 1u << 30)
		return NEAP_EINVAL;
	routes->last.epoch = options->epoch;
	neap_key_secret_draw(&routes->secret, reactor);
	routes->level = PIECE_BITS;
	routes->bucket_count = PIECE;
	routes->piece_count = (options->keys_max + PIECE - 1) >> PIECE_BITS;
	int error = neap_pool_create(&routes->keys, reactor, sizeof(struct neap_route_key), options->keys_max);
	if (!error)
		error = neap_pool_create(&routes->replicas, reactor, sizeof(struct neap_route_replica), options->replicas_max);
	if (!error)
		error = neap_pool_create(&routes->cells, reactor, sizeof(struct cell), options->cells_max ? options->cells_max : 1);
	if (!error) {
		routes->buckets = neap_allocate(reactor, routes->piece_count * sizeof(uint32_t *));
		if (routes->buckets)
			routes->buckets[0] = neap_allocate(reactor, PIECE * sizeof(uint32_t));
		error = routes->buckets && routes->buckets[0] ? NEAP_OK : NEAP_ENOMEM;
	}
	if (error)
		neap_routes_destroy(routes);
	return error;
}

void neap_routes_destroy(struct neap_routes *routes)
{
	for (uint32_t i = 0; routes->buckets && i < routes->piece_count; i++)
		if (routes->buckets[i])
			neap_release(routes->reactor, routes->buckets[i], PIECE * sizeof(uint32_t));
	if (routes->buckets)
		neap_release(routes->reactor, routes->buckets, routes->piece_count * sizeof(uint32_t *));
	routes->buckets = NULL;
	neap_pool_destroy(&routes->cells);
	neap_pool_destroy(&routes->replicas);
	neap_pool_destroy(&routes->keys);
}

/* --- check ------------------------------------------------------------------------------------------------------------ */

static const char *check_key(const struct neap_routes *routes, uint32_t index, uint32_t *replicas_p)
{
	const struct neap_route_key *key = neap_routes_key(routes, index);
	uint32_t link = *bucket_at(routes, bucket_of(routes, key->hash)), standing = 0;
	while (link && link != index + 1)
		link = neap_routes_key(routes, link - 1)->next;
	if (!link)
		return "a key is not in its bucket";
	if (key->replicas == NEAP_ROUTE_NONE)
		return "a key has no replica";
	const struct neap_route_replica *replica = neap_routes_replica(routes, key->replicas);
	for (; replica; replica = neap_routes_replica(routes, replica->next)) {
		if (replica->key != index)
			return "a replica does not belong to the key that has it";
		standing += !replica->lost;
		++*replicas_p;
	}
	return standing != key->standing ? "a key's count of standing replicas is wrong" : NULL;
}

static const char *check_list(const struct neap_routes *routes, const struct neap_route_list *list, uint32_t segment, bool lost)
{
	uint32_t count = 0, newer = NEAP_ROUTE_NONE;
	for (uint32_t i = list->newest; i != NEAP_ROUTE_NONE; newer = i, i = neap_routes_replica(routes, i)->older, count++) {
		const struct neap_route_replica *replica = neap_routes_replica(routes, i);
		if (replica->segment != segment || replica->lost != lost || replica->newer != newer)
			return "a segment's list is broken";
	}
	return count != list->count ? "a segment's count is wrong" : NULL;
}

const char *neap_routes_check(const struct neap_routes *routes)
{
	uint32_t at = 0, replicas = 0, listed = 0;
	uint64_t standing = 0;
	for (const struct neap_route_key *key; (key = neap_pool_next(&routes->keys, &at));) {
		const char *wrong = check_key(routes, neap_pool_index(&routes->keys, key), &replicas);
		if (wrong)
			return wrong;
		standing += key->standing > 0;
	}
	at = 0;
	for (const struct neap_route_segment *segment; (segment = neap_pool_next(routes->segments, &at));) {
		uint32_t index = neap_pool_index(routes->segments, segment);
		const char *wrong = check_list(routes, &segment->here, index, false);
		if (!wrong)
			wrong = check_list(routes, &segment->lost, index, true);
		if (wrong)
			return wrong;
		listed += segment->here.count + segment->lost.count;
	}
	if (replicas != routes->replicas.used || listed != replicas)
		return "replicas are in no list";
	return standing != routes->standing_keys ? "the count of keys is wrong" : NULL;
}
