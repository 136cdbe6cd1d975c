/* The route cache: which owners had a key, for a while. Exact: a route is found under the whole key, and only until its time is over;
 * being asked for does not prolong it, so that a stale one cannot live on. Bounded in entries and in bytes; the one that was not asked
 * for the longest goes. Owner thread only. */
#ifndef NEAP_STORE_ACCESSOR_ROUTES_H
#define NEAP_STORE_ACCESSOR_ROUTES_H

#include "store/accessor/places.h"

struct neap_route_cache;

struct neap_route_cache_options {
	uint32_t entries_max; /* keys; 0: 65536 */
	uint32_t places_max;  /* different owners; 0: 1024 */
	uint64_t bytes_max;   /* keys and entries; 0: 32 MiB */
	uint64_t ttl_ns;      /* 0: 60 s */
};

struct neap_route_cache_stats {
	uint64_t hits, misses, kept, dropped, evicted, expired;
	uint64_t bytes;
	uint32_t entries, places;
};

int neap_route_cache_create(struct neap_route_cache **routes_p, struct neap_reactor *reactor,
                            const struct neap_route_cache_options *options);
void neap_route_cache_destroy(struct neap_route_cache *routes);

/* Fills at most NEAP_ROUTES_MAX; returns how many. */
uint32_t neap_route_cache_find(struct neap_route_cache *routes, const struct neap_key *key, struct neap_route *found);
/* Replaces what is known of the key. It may be forgotten at once when there is no room: a cache promises nothing. */
void neap_route_cache_keep(struct neap_route_cache *routes, const struct neap_key *key, const struct neap_route *found, uint32_t count);
/* This place does not have it, or not as was said; NULL: no place has. */
void neap_route_cache_drop(struct neap_route_cache *routes, const struct neap_key *key, const struct neap_place *place);
void neap_route_cache_stats(const struct neap_route_cache *routes, struct neap_route_cache_stats *stats_p);

bool neap_place_equal(const struct neap_place *a, const struct neap_place *b);

#endif
