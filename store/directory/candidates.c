/* The choice of places: docs/DIRECTORY.md has the rules in words. */
#include "store/directory/candidates.h"
#include <float.h>
#include <string.h>

static bool tagged(const struct neap_key_segment *segment, const char (*tags)[NEAP_KEY_TAG_SIZE], uint32_t count)
{
	for (uint32_t i = 0; i < segment->tag_count; i++)
		for (uint32_t j = 0; j < count; j++)
			if (strncmp(segment->tags[i], tags[j], NEAP_KEY_TAG_SIZE) == 0)
				return true;
	return false;
}

int neap_candidates_check(const struct neap_key_write_config *config)
{
	double weight = config->remote_weight, waterline = config->local_write_waterline;
	/* Written so that NaN is refused. */
	if (!(weight >= 0 && weight <= 1 && waterline >= 0 && waterline <= 1))
		return NEAP_STORE_INVALID_PARAMS;
	if ((waterline <= 0 && weight <= 0) || (waterline >= 1 && weight >= 1)) /* nowhere; or here and not here */
		return NEAP_STORE_INVALID_PARAMS;
	if (config->tag_count > NEAP_KEY_TAGS_MAX || (unsigned)config->strategy > NEAP_KEY_CAPACITY_PRIORITY)
		return NEAP_STORE_INVALID_PARAMS;
	return NEAP_STORE_OK;
}

/* --- one client ------------------------------------------------------------------------------------------------------- */

static bool eligible(const struct neap_client_segment *segment, const struct neap_key_write_config *config)
{
	return segment->info.priority >= config->priority_limit && !tagged(&segment->info, config->tags, config->tag_count);
}

static uint64_t room(const struct neap_client_segment *segment)
{
	uint64_t free = segment->info.capacity - segment->info.used;
	return free > segment->given ? free - segment->given : 0;
}

static bool consider(const struct neap_client *client, const struct neap_key_write_config *config, uint64_t size, double weight,
                     struct neap_candidate_pick *pick)
{
	int32_t top = INT32_MIN;
	double total = 0;
	*pick = (struct neap_candidate_pick){.client = client};
	if (config->top_tier_only)
		for (const struct neap_client_segment *segment = client->segments; segment; segment = segment->next)
			if (segment->info.priority > top && eligible(segment, config))
				top = segment->info.priority;
	for (struct neap_client_segment *segment = client->segments; segment; segment = segment->next) {
		if (segment->info.priority < top || !eligible(segment, config))
			continue;
		uint64_t free = room(segment);
		pick->available = free > UINT64_MAX - pick->available ? UINT64_MAX : pick->available + free;
		total += (double)segment->info.capacity;
		if (!pick->segment || free > room(pick->segment))
			pick->segment = segment;
	}
	/* A value lies in one segment: many small rests do not make a place. Owners evict: a full one is a place after all others. */
	if (total <= 0 || !pick->segment || pick->segment->info.capacity < size)
		return false;
	pick->crowded = room(pick->segment) < size;
	pick->score = pick->crowded ? 0 : (double)pick->available / total * weight;
	return true;
}

/* --- the best of them ------------------------------------------------------------------------------------------------- */

static bool better(const struct neap_candidate_pick *a, const struct neap_candidate_pick *b)
{
	return a->order > b->order || (a->order == b->order && a->available > b->available);
}

/* A heap with the worst on top. */
static void sink(struct neap_candidate_pick *picks, uint32_t count, uint32_t at)
{
	for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && better(&picks[child], &picks[child + 1]))
			child++;
		if (!better(&picks[at], &picks[child]))
			return;
		struct neap_candidate_pick swapped = picks[at];
		picks[at] = picks[child];
		picks[child] = swapped;
	}
}

static void sort(struct neap_candidate_pick *picks, uint32_t count)
{
	for (uint32_t i = count / 2; i-- > 0;)
		sink(picks, count, i);
	while (count > 1) {
		struct neap_candidate_pick worst = picks[0];
		picks[0] = picks[--count];
		picks[count] = worst;
		sink(picks, count, 0);
	}
}

struct collection {
	struct neap_candidate_pick *picks;
	uint32_t count, max, seen; /* max 0: all */
	bool crowded;              /* one of them is */
	const struct neap_key_write_config *config;
	struct neap_reactor *reactor;
};

static double order_of(struct collection *collection, const struct neap_candidate_pick *pick)
{
	if (pick->crowded)
		return -DBL_MAX;
	if (!collection->config->early_return)
		return pick->score;
	switch (collection->config->strategy) {
	case NEAP_KEY_ORDERED:
		return -(double)collection->seen;
	case NEAP_KEY_RANDOM:
		return (double)(neap_random_u64(collection->reactor) >> 11);
	case NEAP_KEY_CAPACITY_PRIORITY:
		break;
	}
	return (double)pick->available;
}

/* Keeps the best `max`. True: no later one can be better. */
static bool collect(struct collection *collection, struct neap_candidate_pick *pick)
{
	pick->order = order_of(collection, pick);
	collection->seen++;
	collection->crowded = collection->crowded || pick->crowded;
	if (collection->max && collection->count == collection->max) {
		if (better(pick, &collection->picks[0])) {
			collection->picks[0] = *pick;
			sink(collection->picks, collection->count, 0);
		}
	} else {
		collection->picks[collection->count++] = *pick;
		if (collection->count == collection->max)
			for (uint32_t i = collection->count / 2; i-- > 0;)
				sink(collection->picks, collection->count, i);
	}
	return collection->config->early_return && collection->config->strategy == NEAP_KEY_ORDERED &&
	       collection->count == collection->max && !collection->crowded;
}

static bool owns(const struct neap_clients *clients, uint32_t key, const struct neap_client *client)
{
	const struct neap_routes *routes = clients->routes;
	if (key == NEAP_ROUTE_NONE)
		return false;
	const struct neap_route_replica *replica = neap_routes_replica(routes, neap_routes_key(routes, key)->replicas);
	while (replica && !(neap_routes_visible(routes, replica) && neap_client_of_segment(clients, replica->segment) == client))
		replica = neap_routes_replica(routes, replica->next);
	return replica != NULL;
}

uint32_t neap_candidates_owners(const struct neap_clients *clients, uint32_t key)
{
	const struct neap_routes *routes = clients->routes;
	const struct neap_client *seen[NEAP_ROUTE_REPLICAS_MAX];
	uint32_t count = 0;
	if (key == NEAP_ROUTE_NONE)
		return 0;
	const struct neap_route_replica *replica = neap_routes_replica(routes, neap_routes_key(routes, key)->replicas);
	for (; replica; replica = neap_routes_replica(routes, replica->next)) {
		uint32_t at = 0;
		if (!neap_routes_visible(routes, replica))
			continue;
		seen[count] = neap_client_of_segment(clients, replica->segment);
		while (seen[at] != seen[count])
			at++;
		count += at == count;
	}
	return count;
}

static void collect_all(const struct neap_clients *clients, struct collection *collection, struct neap_key_id requester,
                        uint32_t key, uint64_t size)
{
	const struct neap_key_write_config *config = collection->config;
	const struct neap_client *own = neap_key_id_none(requester) ? NULL : neap_clients_find_id(clients, requester);
	struct neap_candidate_pick pick;
	bool early = config->early_return;
	uint32_t kept = 0;
	/* The caller's own place is looked at first: what stops early has it. */
	if (own && early && config->remote_weight < 1 && neap_client_status(own) == NEAP_KEY_HEALTHY && !owns(clients, key, own) &&
	    consider(own, config, size, 1 - config->remote_weight, &pick) && !pick.crowded) {
		collection->picks[0] = pick;
		kept = 1;
		if (collection->max == 1) {
			collection->count = 1;
			return;
		}
		collection->picks++;
		collection->max -= collection->max > 0;
	}
	for (const struct neap_client *client = clients->first; client; client = client->next) {
		double weight = client == own ? 1 - config->remote_weight : config->remote_weight;
		if ((client == own && kept) || weight <= 0 || neap_client_status(client) != NEAP_KEY_HEALTHY)
			continue;
		if (!owns(clients, key, client) && consider(client, config, size, weight, &pick) && collect(collection, &pick))
			break;
	}
	collection->picks -= kept;
	collection->count += kept;
}

int neap_candidates_choose(struct neap_clients *clients, struct neap_candidate_pick *picks, uint32_t key,
                           struct neap_key_write_routes *call, struct neap_key_write_item *item)
{
	struct collection collection = {
		.picks = picks, .max = call->config.candidates_max, .config = &call->config, .reactor = clients->reactor};
	collect_all(clients, &collection, call->requester, key, item->size);
	if (collection.count == 0)
		return NEAP_STORE_NO_AVAILABLE_CANDIDATE;
	if (collection.count > call->candidates_max - call->candidates_used)
		return NEAP_STORE_BUFFER_OVERFLOW;
	for (uint32_t i = 0; i < collection.count; i++)
		picks[i].order = picks[i].score;
	sort(picks, collection.count);
	item->first = call->candidates_used;
	item->count = collection.count;
	for (uint32_t i = 0; i < collection.count; i++) {
		struct neap_key_candidate *candidate = &call->candidates[call->candidates_used++];
		candidate->client = picks[i].client->self.id;
		memcpy(candidate->host, picks[i].client->host, sizeof candidate->host);
		candidate->port = picks[i].client->port;
		candidate->available = picks[i].available;
		candidate->score = picks[i].score;
	}
	picks[0].segment->given += item->size;
	return NEAP_STORE_OK;
}

/* --- readers ---------------------------------------------------------------------------------------------------------- */

struct choice {
	const struct neap_route_replica *replica;
	const struct neap_client_segment *segment;
};

static bool preferred(const struct choice *a, const struct choice *b)
{
	if (a->segment->info.priority != b->segment->info.priority)
		return a->segment->info.priority > b->segment->info.priority;
	return neap_key_stamp_before(a->replica->stamp, b->replica->stamp);
}

/* Sorted, one for each client. */
static uint32_t choose_replicas(const struct neap_clients *clients, uint32_t key, const struct neap_key_read_config *config,
                                struct choice *choices, bool *seen_p)
{
	const struct neap_routes *routes = clients->routes;
	uint32_t count = 0;
	const struct neap_route_replica *replica = neap_routes_replica(routes, neap_routes_key(routes, key)->replicas);
	for (; replica; replica = neap_routes_replica(routes, replica->next)) {
		if (!neap_routes_visible(routes, replica))
			continue;
		*seen_p = true;
		struct choice choice = {replica, neap_pool_at(&clients->segments, replica->segment)};
		if (neap_client_status(choice.segment->client) != NEAP_KEY_HEALTHY ||
		    choice.segment->info.priority < config->priority_limit ||
		    tagged(&choice.segment->info, config->tags, config->tag_count))
			continue;
		uint32_t at = 0;
		while (at < count && choices[at].segment->client != choice.segment->client)
			at++;
		if (at < count && !preferred(&choice, &choices[at]))
			continue;
		if (at == count)
			count++;
		for (; at > 0 && preferred(&choice, &choices[at - 1]); at--)
			choices[at] = choices[at - 1];
		choices[at] = choice;
	}
	return count;
}

int neap_candidates_replicas(const struct neap_clients *clients, uint32_t key, struct neap_key_replicas *call,
                             struct neap_key_read_item *item)
{
	struct choice choices[NEAP_ROUTE_REPLICAS_MAX];
	bool seen = false;
	uint32_t count = key == NEAP_ROUTE_NONE ? 0 : choose_replicas(clients, key, &call->config, choices, &seen);
	if (count == 0)
		return seen ? NEAP_STORE_REPLICA_IS_NOT_READY : NEAP_STORE_OBJECT_NOT_FOUND;
	if (call->config.replicas_max && count > call->config.replicas_max)
		count = call->config.replicas_max;
	if (count > call->replicas_max - call->replicas_used)
		return NEAP_STORE_BUFFER_OVERFLOW;
	item->first = call->replicas_used;
	item->count = count;
	for (uint32_t i = 0; i < count; i++) {
		const struct neap_route_replica *replica = choices[i].replica;
		const struct neap_client *client = choices[i].segment->client;
		struct neap_key_replica *answer = &call->replicas[call->replicas_used++];
		*answer = (struct neap_key_replica){
			.client = client->self.id,
			.segment = choices[i].segment->info.id,
			.port = client->port,
			.size = replica->size,
			.generation = replica->generation,
			.crc = replica->crc,
			.has_crc = replica->has_crc,
			.priority = choices[i].segment->info.priority,
			.memory_type = choices[i].segment->info.memory_type,
			.stamp = replica->stamp,
		};
		memcpy(answer->host, client->host, sizeof answer->host);
	}
	return NEAP_STORE_OK;
}
