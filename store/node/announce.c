/* What the directory is told of the values that are here. */
#include "store/node/inside.h"
#include <stdio.h>
#include <string.h>

/* How long a removal waits for others before the directory hears of them. */
#define GATHER_MS 2u

_Static_assert(sizeof(struct neap_announcer_watch) <= NEAP_SETTLE_ROOM, "a watch fits into the room of a question");

static struct neap_announcement announcement_of(const struct neap_store *store, const struct neap_owner_value *value)
{
	return (struct neap_announcement){
		.key = node_text(&value->key),
		.segment = store->segments[value->tier].id,
		.size = value->size,
		.generation = value->generation,
		.crc = value->crc,
		.has_crc = value->has_crc,
	};
}

void node_published(void *user, const struct neap_owner_value *value)
{
	struct neap_store *store = user;
	struct neap_announcement announcement = announcement_of(store, value);
	if (store->announcer)
		neap_announcer_published(store->announcer, &announcement);
}

void node_withdrawn(void *user, const struct neap_owner_value *value)
{
	struct neap_store *store = user;
	if (store->announcer)
		neap_announcer_withdrawn(store->announcer, node_text(&value->key), store->segments[value->tier].id, value->generation);
}

void node_moved(void *user, const struct neap_owner_value *value, uint32_t from_tier)
{
	struct neap_store *store = user;
	struct neap_announcement announcement = announcement_of(store, value);
	if (store->announcer)
		neap_announcer_moved(store->announcer, &announcement, store->segments[from_tier].id);
}

/* --- "does the directory know it?" ------------------------------------------------------------------------------------------ */

static struct neap_announcer_watch *watch_of(struct neap_settle *settle)
{
	return (struct neap_announcer_watch *)(void *)settle->room.bytes;
}

static void watched(struct neap_announcer_watch *watch, int error)
{
	struct neap_settle *settle = watch->user;
	settle->settled(settle, error);
}

int node_settle(void *user, struct neap_settle *settle)
{
	struct node_places *places = user;
	struct neap_store *store = places->store;
	struct neap_announcer_watch *watch = watch_of(settle);
	if (!store || !store->announcer) /* a peer's call may still come while we close, when `places` is no more */
		return NEAP_ECLOSED;
	*watch = (struct neap_announcer_watch){
		.key = node_text(&settle->key),
		.segment = store->segments[settle->tier].id,
		.generation = settle->generation,
		.deadline_ns = settle->deadline_ns,
		.done = watched,
		.user = settle,
	};
	int error = neap_announcer_ask(store->announcer, watch);
	return error == NEAP_ANNOUNCER_ACCEPTED ? (int)NEAP_STORE_OK : error == 0 ? NEAP_SETTLING : error;
}

void node_forget_settle(void *user, struct neap_settle *settle)
{
	(void)user;
	neap_announcer_forget(watch_of(settle));
}

bool node_settled(void *user, const struct neap_key *key, uint32_t tier, uint64_t generation)
{
	const struct neap_store *store = ((struct node_places *)user)->store;
	return store && store->announcer && neap_announcer_knows(store->announcer, node_text(key), store->segments[tier].id, generation);
}

/* --- the announcer asks ------------------------------------------------------------------------------------------------------- */

static bool next(void *user, struct neap_announcer_cursor *cursor, struct neap_announcement *value_p)
{
	struct neap_store *store = user;
	struct neap_owner_cursor at = {
		.shard = (uint32_t)cursor->first, .changes = (uint32_t)(cursor->first >> 32), .index = cursor->second};
	struct neap_owner_value value;
	if (!neap_owner_next(store->owner, &at, &value))
		return false;
	cursor->first = (uint64_t)at.changes << 32 | at.shard;
	cursor->second = at.index;
	*value_p = announcement_of(store, &value);
	return true;
}

/* Another owner was first, or the directory will never take it. */
static void withdraw(void *user, const struct neap_announcement *value, int why)
{
	struct neap_store *store = user;
	struct neap_key key = {value->key.text, value->key.length};
	struct neap_key_facts facts;
	(void)why;
	neap_owner_look_up(store->owner, &key, &facts);
	if (facts.exists && facts.generation == value->generation)
		(void)neap_owner_remove(store->owner, &key);
}

static void usages(void *user, struct neap_key_usage *usages_p, uint32_t count)
{
	struct neap_store *store = user;
	struct neap_tier_stats stats;
	for (uint32_t i = 0; i < count && i < store->tiers.count; i++)
		if (neap_tiers_stats(&store->tiers, i, &stats) == 0) {
			usages_p[i].used = stats.counts.rounded_bytes;
			usages_p[i].capacity = store->segments[i].capacity;
		}
}

int node_announcer_open(struct neap_store *store, uint32_t heartbeat_ms, uint32_t stamps_max)
{
	struct neap_announcer_options options = {
		.directory = store->directory,
		.at = store->has_master ? store->master : NULL,
		.client = store->client,
		.start = neap_wall_us(store->reactor),
		.port = store->rpc_port,
		.segments = store->segments,
		.segment_count = store->tier_count,
		.next = next,
		.withdraw = withdraw,
		.usages = usages,
		.user = store,
		.heartbeat_ms = heartbeat_ms,
		.stamps_max = stamps_max,
		.gather_ms = GATHER_MS,
	};
	memcpy(options.host, store->host, sizeof options.host);
	return neap_announcer_create(&store->announcer, store->reactor, &options);
}
