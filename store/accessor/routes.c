#include "store/accessor/routes.h"
#include "reactor/pool.h"
#include "store/key_hash.h"
#include <string.h>

#define KEY_INSIDE 64u

struct known_place {
	struct neap_place place;
	uint32_t references;
};

struct replica {
	struct known_place *place;
	uint64_t size, generation;
};

struct entry {
	struct entry *next;            /* in its bucket */
	struct entry *older, *younger; /* by last use */
	uint64_t hash, until_ns;
	uint32_t key_length, count;
	struct replica replicas[NEAP_ROUTES_MAX];
	union {
		char inside[KEY_INSIDE];
		char *outside;
	} key;
};

struct neap_route_cache {
	struct neap_reactor *reactor;
	struct neap_route_cache_options options;
	struct neap_pool entries, places;
	struct entry **buckets;
	uint32_t bucket_mask;
	struct entry *oldest, *youngest;
	struct neap_route_cache_stats stats;
	struct neap_key_secret secret;
};

bool neap_place_equal(const struct neap_place *a, const struct neap_place *b)
{
	return memcmp(a->instance, b->instance, sizeof a->instance) == 0 && strcmp(a->rpc, b->rpc) == 0 && strcmp(a->engine, b->engine) == 0;
}

static uint64_t hash_of(const struct neap_route_cache *routes, const struct neap_key *key)
{
	return neap_key_hash(&routes->secret, key->bytes, key->length);
}

int neap_route_cache_create(struct neap_route_cache **routes_p, struct neap_reactor *reactor,
                            const struct neap_route_cache_options *options)
{
	struct neap_route_cache *routes = neap_allocate(reactor, sizeof *routes);
	*routes_p = NULL;
	if (!routes)
		return NEAP_ENOMEM;
	struct neap_route_cache_options *o = &routes->options;
	routes->reactor = reactor;
	if (options)
		*o = *options;
	o->entries_max = o->entries_max ? o->entries_max : 65536;
	o->places_max = o->places_max ? o->places_max : 1024;
	o->bytes_max = o->bytes_max ? o->bytes_max : UINT64_C(32) << 20;
	o->ttl_ns = o->ttl_ns ? o->ttl_ns : UINT64_C(60000000000);
	neap_key_secret_draw(&routes->secret, reactor);
	uint32_t buckets = 64;
	while (buckets < o->entries_max && buckets < 1u << 30)
		buckets *= 2;
	routes->bucket_mask = buckets - 1;
	routes->buckets = neap_allocate(reactor, buckets * sizeof *routes->buckets);
	int error = routes->buckets ? NEAP_OK : NEAP_ENOMEM;
	if (!error)
		error = neap_pool_create(&routes->entries, reactor, sizeof(struct entry), o->entries_max);
	if (!error)
		error = neap_pool_create(&routes->places, reactor, sizeof(struct known_place), o->places_max);
	if (error) {
		neap_route_cache_destroy(routes);
		return error;
	}
	*routes_p = routes;
	return NEAP_OK;
}

static const char *key_of(const struct entry *entry)
{
	return entry->key_length <= KEY_INSIDE ? entry->key.inside : entry->key.outside;
}

static uint64_t bytes_of(uint32_t key_length)
{
	return sizeof(struct entry) + (key_length > KEY_INSIDE ? key_length : 0);
}

static void use_end(struct neap_route_cache *routes, struct entry *entry)
{
	*(entry->older ? &entry->older->younger : &routes->oldest) = entry->younger;
	*(entry->younger ? &entry->younger->older : &routes->youngest) = entry->older;
}

static void use_begin(struct neap_route_cache *routes, struct entry *entry)
{
	entry->older = routes->youngest;
	entry->younger = NULL;
	*(routes->youngest ? &routes->youngest->younger : &routes->oldest) = entry;
	routes->youngest = entry;
}

static void place_unref(struct neap_route_cache *routes, struct known_place *place)
{
	if (--place->references == 0)
		neap_pool_give(&routes->places, place);
}

/* Owners are few: a walk. */
static struct known_place *place_ref(struct neap_route_cache *routes, const struct neap_place *wanted)
{
	struct known_place *place;
	for (uint32_t index = 0; (place = neap_pool_next(&routes->places, &index)) != NULL;)
		if (neap_place_equal(&place->place, wanted)) {
			place->references++;
			return place;
		}
	place = neap_pool_take(&routes->places);
	if (place) {
		place->place = *wanted;
		place->references = 1;
	}
	return place;
}

static void forget(struct neap_route_cache *routes, struct entry *entry)
{
	struct entry **at = &routes->buckets[entry->hash & routes->bucket_mask];
	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	use_end(routes, entry);
	for (uint32_t i = 0; i < entry->count; i++)
		place_unref(routes, entry->replicas[i].place);
	if (entry->key_length > KEY_INSIDE)
		neap_release(routes->reactor, entry->key.outside, entry->key_length);
	routes->stats.bytes -= bytes_of(entry->key_length);
	neap_pool_give(&routes->entries, entry);
}

void neap_route_cache_destroy(struct neap_route_cache *routes)
{
	while (routes->oldest)
		forget(routes, routes->oldest);
	neap_pool_destroy(&routes->entries);
	neap_pool_destroy(&routes->places);
	if (routes->buckets)
		neap_release(routes->reactor, routes->buckets, ((size_t)routes->bucket_mask + 1) * sizeof *routes->buckets);
	neap_release(routes->reactor, routes, sizeof *routes);
}

static struct entry *find(const struct neap_route_cache *routes, const struct neap_key *key, uint64_t hash)
{
	struct entry *entry = routes->buckets[hash & routes->bucket_mask];
	while (entry && !(entry->hash == hash && entry->key_length == key->length && memcmp(key_of(entry), key->bytes, key->length) == 0))
		entry = entry->next;
	return entry;
}

uint32_t neap_route_cache_find(struct neap_route_cache *routes, const struct neap_key *key, struct neap_route *found)
{
	struct entry *entry = find(routes, key, hash_of(routes, key));
	if (entry && entry->until_ns <= neap_now(routes->reactor)) {
		forget(routes, entry);
		routes->stats.expired++;
		entry = NULL;
	}
	if (!entry) {
		routes->stats.misses++;
		return 0;
	}
	routes->stats.hits++;
	use_end(routes, entry);
	use_begin(routes, entry);
	for (uint32_t i = 0; i < entry->count; i++) {
		const struct replica *replica = &entry->replicas[i];
		found[i] = (struct neap_route){.place = replica->place->place, .size = replica->size, .generation = replica->generation};
	}
	return entry->count;
}

/* Room for one more, at the cost of the oldest. */
static struct entry *take(struct neap_route_cache *routes, const struct neap_key *key)
{
	uint64_t bytes = bytes_of(key->length);
	if (bytes > routes->options.bytes_max)
		return NULL;
	while (routes->oldest &&
	       (routes->stats.bytes + bytes > routes->options.bytes_max || routes->entries.used == routes->entries.capacity)) {
		forget(routes, routes->oldest);
		routes->stats.evicted++;
	}
	struct entry *entry = neap_pool_take(&routes->entries);
	if (!entry)
		return NULL;
	*entry = (struct entry){.key_length = key->length};
	if (key->length > KEY_INSIDE && (entry->key.outside = neap_allocate(routes->reactor, key->length)) == NULL) {
		neap_pool_give(&routes->entries, entry);
		return NULL;
	}
	memcpy(key->length > KEY_INSIDE ? entry->key.outside : entry->key.inside, key->bytes, key->length);
	routes->stats.bytes += bytes;
	return entry;
}

void neap_route_cache_keep(struct neap_route_cache *routes, const struct neap_key *key, const struct neap_route *found, uint32_t count)
{
	uint64_t hash = hash_of(routes, key);
	struct entry *entry = find(routes, key, hash);
	if (entry)
		forget(routes, entry);
	entry = take(routes, key);
	if (!entry)
		return;
	entry->hash = hash;
	entry->until_ns = neap_now(routes->reactor) + routes->options.ttl_ns;
	entry->next = routes->buckets[hash & routes->bucket_mask];
	routes->buckets[hash & routes->bucket_mask] = entry;
	use_begin(routes, entry);
	for (uint32_t i = 0; i < count && entry->count < NEAP_ROUTES_MAX; i++) {
		struct known_place *place = place_ref(routes, &found[i].place);
		if (place)
			entry->replicas[entry->count++] = (struct replica){place, found[i].size, found[i].generation};
	}
	if (entry->count == 0)
		forget(routes, entry);
	else
		routes->stats.kept++;
}

void neap_route_cache_drop(struct neap_route_cache *routes, const struct neap_key *key, const struct neap_place *place)
{
	struct entry *entry = find(routes, key, hash_of(routes, key));
	for (uint32_t i = 0; entry && i < entry->count;) {
		if (place && !neap_place_equal(&entry->replicas[i].place->place, place)) {
			i++;
			continue;
		}
		place_unref(routes, entry->replicas[i].place);
		memmove(&entry->replicas[i], &entry->replicas[i + 1], (--entry->count - i) * sizeof entry->replicas[0]);
		routes->stats.dropped++;
	}
	if (entry && entry->count == 0)
		forget(routes, entry);
}

void neap_route_cache_stats(const struct neap_route_cache *routes, struct neap_route_cache_stats *stats_p)
{
	*stats_p = routes->stats;
	stats_p->entries = routes->entries.used;
	stats_p->places = routes->places.used;
}
