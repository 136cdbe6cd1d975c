/* The rules of the table: which change is taken, who was first, what a sweep drops. */
#include "store/directory/routes.h"
#include "store/directory/routes_table.h"

#define EPOCH_MAX (UINT64_C(1) << 62)

static uint32_t client_of(const struct neap_routes *routes, const struct neap_route_replica *replica)
{
	return neap_routes_segment(routes, replica->segment)->client;
}

/* Stamps that are given grow past each one that was ever seen, also past those of a predecessor whose clock was ahead. */
static void learn(struct neap_routes *routes, struct neap_key_stamp stamp)
{
	if (!neap_key_stamp_before(routes->last, stamp))
		return;
	routes->last = stamp;
	if (stamp.epoch < EPOCH_MAX)
		routes->last = (struct neap_key_stamp){.epoch = stamp.epoch + 1};
}

static struct neap_key_stamp give(struct neap_routes *routes)
{
	routes->last.sequence++;
	return routes->last;
}

/* --- who else has the key --------------------------------------------------------------------------------------------- */

/* The other clients with a replica in sight; of a client counts its earliest stamp. */
struct rivals {
	uint32_t clients;
	uint32_t last_client;       /* the one that came last */
	struct neap_key_stamp last; /* its stamp */
	bool differ;                /* one has another size or checksum */
	struct neap_key_stamp differ_first;
};

static bool contradicts(const struct neap_route_replica *replica, const struct neap_key_change *change)
{
	return replica->size != change->size || (replica->has_crc && change->has_crc && replica->crc != change->crc);
}

/* The earliest stamp among this client's replicas of the key, and whether `replica` is the first of them in the list: so that each
 * client is looked at once. */
static bool speaks_for_client(const struct neap_routes *routes, const struct neap_route_key *key,
                              const struct neap_route_replica *replica, struct neap_key_stamp *stamp_p)
{
	uint32_t client = client_of(routes, replica);
	const struct neap_route_replica *other = neap_routes_replica(routes, key->replicas);
	bool before = true, first = true;
	*stamp_p = replica->stamp;
	for (; other; other = neap_routes_replica(routes, other->next)) {
		if (other == replica)
			before = false;
		if (!neap_routes_visible(routes, other) || client_of(routes, other) != client)
			continue;
		if (before)
			first = false;
		if (neap_key_stamp_before(other->stamp, *stamp_p))
			*stamp_p = other->stamp;
	}
	return first;
}

static struct rivals rivals_of(const struct neap_routes *routes, const struct neap_route_key *key, uint32_t client,
                               const struct neap_key_change *change)
{
	struct rivals rivals = {0};
	const struct neap_route_replica *replica = neap_routes_replica(routes, key->replicas);
	for (; replica; replica = neap_routes_replica(routes, replica->next)) {
		struct neap_key_stamp stamp;
		if (!neap_routes_visible(routes, replica) || client_of(routes, replica) == client)
			continue;
		bool first = speaks_for_client(routes, key, replica, &stamp);
		if (contradicts(replica, change) && (!rivals.differ || neap_key_stamp_before(stamp, rivals.differ_first))) {
			rivals.differ = true;
			rivals.differ_first = stamp;
		}
		if (!first)
			continue;
		if (rivals.clients++ == 0 || neap_key_stamp_before(rivals.last, stamp)) {
			rivals.last = stamp;
			rivals.last_client = client_of(routes, replica);
		}
	}
	return rivals;
}

/* The replicas of one client, or of all that contradict, lose to an earlier claim. */
static void lose(struct neap_routes *routes, const struct neap_route_key *key, uint32_t client,
                 const struct neap_key_change *against, uint32_t winner)
{
	struct neap_route_replica *replica = neap_routes_replica(routes, key->replicas);
	for (; replica; replica = neap_routes_replica(routes, replica->next)) {
		bool meant =
			against ? client_of(routes, replica) != winner && contradicts(replica, against) : client_of(routes, replica) == client;
		if (meant && neap_routes_visible(routes, replica))
			neap_routes_table_lose(routes, replica);
	}
}

/* May `client` have the key? If so, those it displaces have lost. */
static int claim(struct neap_routes *routes, const struct neap_route_key *key, uint32_t client, bool has_it,
                 const struct neap_key_change *change)
{
	struct rivals rivals = rivals_of(routes, key, client, change);
	uint32_t max = routes->options.max_client_per_key;
	bool stamped = !neap_key_stamp_none(change->stamp);
	bool full = max && !has_it && rivals.clients >= max;
	if (rivals.differ && !(stamped && neap_key_stamp_before(change->stamp, rivals.differ_first)))
		return NEAP_STORE_OBJECT_ALREADY_EXISTS;
	if (full && !(stamped && neap_key_stamp_before(change->stamp, rivals.last)))
		return NEAP_STORE_REPLICA_NUM_EXCEEDED;
	if (rivals.differ)
		lose(routes, key, 0, change, client);
	else if (full)
		lose(routes, key, rivals.last_client, NULL, client);
	return NEAP_STORE_OK;
}

/* --- changes ---------------------------------------------------------------------------------------------------------- */

static void set(struct neap_route_replica *replica, uint32_t round, const struct neap_key_change *change)
{
	replica->round = round;
	replica->size = change->size;
	replica->generation = change->generation;
	replica->crc = change->crc;
	replica->has_crc = change->has_crc;
	replica->stamp = change->stamp;
}

static struct neap_route_replica *replica_of(const struct neap_routes *routes, const struct neap_route_key *key, uint32_t segment,
                                             uint32_t *count_p)
{
	struct neap_route_replica *found = NULL, *replica = neap_routes_replica(routes, key->replicas);
	for (*count_p = 0; replica; replica = neap_routes_replica(routes, replica->next), ++*count_p)
		if (replica->segment == segment)
			found = replica;
	return found;
}

static bool in_sight(const struct neap_routes *routes, const struct neap_route_key *key, uint32_t client, bool *has_it_p)
{
	bool seen = false;
	*has_it_p = false;
	const struct neap_route_replica *replica = neap_routes_replica(routes, key->replicas);
	for (; replica; replica = neap_routes_replica(routes, replica->next))
		if (neap_routes_visible(routes, replica)) {
			seen = true;
			*has_it_p |= client_of(routes, replica) == client;
		}
	return seen;
}

/* The segment has the key already: the same again, an older one, or a later one in its place. */
static int again(struct neap_routes *routes, struct neap_route_replica *replica, uint32_t round, struct neap_key_change *change)
{
	replica->round = round;
	if (change->generation < replica->generation) {
		change->stamp = replica->stamp;
		return NEAP_STORE_CAS_FAILED;
	}
	bool same = change->generation == replica->generation && !contradicts(replica, change);
	if (!same) {
		if (neap_key_stamp_none(change->stamp))
			change->stamp = give(routes);
		set(replica, round, change);
		return NEAP_STORE_OK;
	}
	if (!neap_key_stamp_none(change->stamp) && neap_key_stamp_before(change->stamp, replica->stamp))
		replica->stamp = change->stamp;
	change->stamp = replica->stamp;
	return NEAP_STORE_REPLICA_ALREADY_EXISTS;
}

static int add_fresh(struct neap_routes *routes, uint32_t key, uint32_t segment, uint32_t round, struct neap_key_change *change)
{
	struct neap_route_replica *replica = neap_routes_table_add(routes, key, segment);
	if (!replica)
		return NEAP_STORE_KEYS_ULTRA_LIMIT;
	if (neap_key_stamp_none(change->stamp))
		change->stamp = give(routes);
	set(replica, round, change);
	return NEAP_STORE_OK;
}

static int add(struct neap_routes *routes, uint32_t segment, uint32_t round, bool recovering, struct neap_key_change *change)
{
	uint32_t client = neap_routes_segment(routes, segment)->client, count = 0;
	bool stamped = !neap_key_stamp_none(change->stamp), has_it = false;
	if (change->stamp.epoch > EPOCH_MAX || change->stamp.sequence > EPOCH_MAX)
		return NEAP_STORE_INVALID_PARAMS;
	learn(routes, change->stamp);
	uint32_t index = neap_routes_table_key(routes, change->key);
	if (index == NEAP_ROUTE_NONE)
		return NEAP_STORE_KEYS_ULTRA_LIMIT;
	struct neap_route_key *key = neap_routes_key(routes, index);
	struct neap_route_replica *replica = replica_of(routes, key, segment, &count);
	int error = NEAP_STORE_OK;
	if (!in_sight(routes, key, client, &has_it) && recovering && !stamped)
		error = NEAP_STORE_REPLICA_IS_NOT_READY;
	else
		error = claim(routes, key, client, has_it, change);
	if (!error && replica && !replica->lost)
		error = again(routes, replica, round, change);
	else if (!error && !replica && count >= NEAP_ROUTE_REPLICAS_MAX)
		error = NEAP_STORE_REPLICA_NUM_EXCEEDED;
	else if (!error)
		error = add_fresh(routes, index, segment, round, change);
	/* Refused or taken: its owner knows now. */
	if (replica && replica->lost && error != NEAP_STORE_KEYS_ULTRA_LIMIT)
		neap_routes_table_remove(routes, replica);
	else
		neap_routes_table_tidy(routes, index);
	return error;
}

static int remove_(struct neap_routes *routes, uint32_t segment, const struct neap_key_change *change)
{
	uint32_t index = neap_routes_find(routes, change->key), count;
	if (index == NEAP_ROUTE_NONE)
		return NEAP_STORE_OBJECT_NOT_FOUND;
	struct neap_route_replica *replica = replica_of(routes, neap_routes_key(routes, index), segment, &count);
	if (!replica)
		return NEAP_STORE_REPLICA_NOT_FOUND;
	if (change->generation && change->generation < replica->generation)
		return NEAP_STORE_CAS_FAILED;
	neap_routes_table_remove(routes, replica);
	return NEAP_STORE_OK;
}

void neap_routes_change(struct neap_routes *routes, uint32_t segment, uint32_t round, bool recovering,
                        struct neap_key_change *change)
{
	change->error =
		change->kind == NEAP_KEY_ADD ? add(routes, segment, round, recovering, change) : remove_(routes, segment, change);
}

/* --- sweeps ----------------------------------------------------------------------------------------------------------- */

void neap_routes_sweep_begin(struct neap_routes *routes, uint32_t segment)
{
	struct neap_route_segment *swept = neap_routes_segment(routes, segment);
	swept->cursor = swept->here.newest;
	swept->cursor_in_lost = false;
}

static bool sweep_all(struct neap_routes *routes, struct neap_route_segment *segment, uint32_t *budget_p, uint64_t *dropped_p)
{
	for (; *budget_p; --*budget_p, ++*dropped_p) {
		const struct neap_route_list *list = segment->here.count ? &segment->here : &segment->lost;
		if (!list->count)
			return true;
		neap_routes_table_remove(routes, neap_routes_replica(routes, list->newest));
	}
	return false;
}

bool neap_routes_sweep(struct neap_routes *routes, uint32_t segment, uint32_t round, uint32_t *budget_p, uint64_t *dropped_p)
{
	struct neap_route_segment *swept = neap_routes_segment(routes, segment);
	if (swept->gone)
		return sweep_all(routes, swept, budget_p, dropped_p);
	for (; *budget_p; --*budget_p) {
		if (swept->cursor == NEAP_ROUTE_NONE && !swept->cursor_in_lost) {
			swept->cursor = swept->lost.newest;
			swept->cursor_in_lost = true;
		}
		if (swept->cursor == NEAP_ROUTE_NONE)
			return true;
		struct neap_route_replica *replica = neap_routes_replica(routes, swept->cursor);
		swept->cursor = replica->older;
		if (replica->round < round) {
			*dropped_p += !replica->lost;
			neap_routes_table_remove(routes, replica);
		}
	}
	return false;
}
