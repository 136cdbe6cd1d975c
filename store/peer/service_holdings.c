/* What connections hold. The owner ends an expired lease by itself; here that is noticed when the next one of its kind is asked for, so
 * that no timer runs twice for one lease. */
#include "store/peer/service_inside.h"
#include <string.h>

/* --- tables ------------------------------------------------------------------------------------------------------------- */

static uint32_t mask_of(uint32_t count)
{
	uint32_t size = 16;
	while (size < count)
		size *= 2;
	return size - 1;
}

/* Ids are slot and generation: the slot alone spreads well. */
static uint32_t slot_of(uint64_t id, uint32_t mask)
{
	return (uint32_t)(id ^ id >> 32) & mask;
}

static void line_add(struct peer_line *line, enum peer_line_of of, struct peer_holding *holding)
{
	holding->links[of] = (struct peer_link){.previous = line->last};
	*(line->last ? &line->last->links[of].next : &line->first) = holding;
	line->last = holding;
	line->count++;
}

static void line_remove(struct peer_line *line, enum peer_line_of of, struct peer_holding *holding)
{
	struct peer_link link = holding->links[of];
	*(link.previous ? &link.previous->links[of].next : &line->first) = link.next;
	*(link.next ? &link.next->links[of].previous : &line->last) = link.previous;
	line->count--;
}

static void free_holding(struct peer_holdings *holdings, struct peer_holding *holding)
{
	struct peer_holding **at = &holdings->buckets[slot_of(holding->id, holdings->bucket_mask)];
	while (*at != holding)
		at = &(*at)->next_in_bucket;
	*at = holding->next_in_bucket;
	neap_pool_give(&holdings->pool, holding);
}

static void leave_lines(struct neap_peer_service *service, enum peer_kind kind, struct peer_holding *holding)
{
	line_remove(&service->holdings[kind].line, PEER_OF_ALL, holding);
	line_remove(&holding->connection->lines[kind], PEER_OF_CONNECTION, holding);
	holding->connection = NULL;
}

void peer_let_go(struct neap_peer_service *service, enum peer_kind kind, struct peer_holding *holding)
{
	leave_lines(service, kind, holding);
	free_holding(&service->holdings[kind], holding);
}

static void end(struct neap_peer_service *service, enum peer_kind kind, struct peer_holding *holding)
{
	leave_lines(service, kind, holding);
	line_add(&service->holdings[kind].ended, PEER_OF_ALL, holding);
}

static void end_expired(struct neap_peer_service *service, enum peer_kind kind)
{
	struct peer_holding *oldest;
	uint64_t now_ns = neap_now(service->reactor);
	while ((oldest = service->holdings[kind].line.first) != NULL && oldest->end_ns <= now_ns)
		end(service, kind, oldest);
}

struct peer_holding *peer_held(struct neap_peer_service *service, enum peer_kind kind, uint64_t id)
{
	struct peer_holdings *holdings = &service->holdings[kind];
	end_expired(service, kind);
	struct peer_holding *holding = holdings->buckets[slot_of(id, holdings->bucket_mask)];
	while (holding && holding->id != id)
		holding = holding->next_in_bucket;
	return holding;
}

bool peer_holds(const struct peer_holding *holding, const uint8_t instance[16], const struct neap_key *key)
{
	const struct peer_connection *connection = holding->connection;
	return memcmp(connection->instance, instance, 16) == 0 &&
	       holding->key_hash == neap_key_hash(&connection->service->secret, key->bytes, key->length);
}

/* --- connections -------------------------------------------------------------------------------------------------------- */

static struct peer_connection **connection_at(struct neap_peer_service *service, uint64_t connection)
{
	struct peer_connection **at = &service->connection_buckets[slot_of(connection, service->connection_mask)];
	while (*at && (*at)->connection != connection)
		at = &(*at)->next_in_bucket;
	return at;
}

static void lose(struct peer_connection *connection, enum peer_kind kind)
{
	struct neap_peer_service *service = connection->service;
	struct peer_holding *holding;
	while ((holding = connection->lines[kind].first) != NULL) {
		uint64_t id = holding->id;
		end(service, kind, holding);
		if (kind == PEER_WRITE) {
			service->stats.lost_writes++;
			neap_owner_write_lost(service->owner, id);
		} else {
			service->stats.lost_pins++;
			neap_owner_pin_lost(service->owner, id);
		}
	}
}

static void connection_ended(struct neap_rpc_resource *resource)
{
	struct peer_connection *connection = (struct peer_connection *)resource;
	struct neap_peer_service *service = connection->service;
	for (enum peer_kind kind = PEER_WRITE; kind < PEER_KINDS; kind++)
		end_expired(service, kind);
	lose(connection, PEER_WRITE);
	lose(connection, PEER_PIN);
	*connection_at(service, connection->connection) = connection->next_in_bucket;
	neap_pool_give(&service->connections, connection);
}

/* NULL: it has gone, or there are too many. */
static struct peer_connection *connection_of(struct neap_peer_service *service, const struct peer_call *call)
{
	struct peer_connection **at = connection_at(service, call->connection);
	if (*at)
		return *at;
	struct peer_connection *connection = neap_pool_take(&service->connections);
	if (!connection)
		return NULL;
	*connection = (struct peer_connection){
		.resource = {.release = connection_ended}, .service = service, .connection = call->connection};
	memcpy(connection->instance, call->instance, 16);
	if (neap_rpc_attach(service->rpc, call->connection, &connection->resource)) {
		neap_pool_give(&service->connections, connection);
		return NULL;
	}
	*at = connection;
	return connection;
}

/* --- holding ------------------------------------------------------------------------------------------------------------ */

static uint64_t until_first_ends(const struct neap_peer_service *service, const struct peer_line *line)
{
	return line->first ? line->first->end_ns - neap_now(service->reactor) : PEER_RETRY_NS;
}

uint64_t peer_wait_for_room(struct neap_peer_service *service, const struct peer_call *call, enum peer_kind kind)
{
	struct peer_holdings *holdings = &service->holdings[kind];
	end_expired(service, kind);
	const struct peer_connection *connection = *connection_at(service, call->connection);
	if (connection && connection->lines[kind].count >= holdings->per_connection)
		return until_first_ends(service, &connection->lines[kind]);
	if (holdings->line.count == holdings->pool.capacity)
		return until_first_ends(service, &holdings->line);
	return connection || service->connections.used < service->connections.capacity ? 0 : PEER_RETRY_NS;
}

static struct peer_holding *take(struct peer_holdings *holdings)
{
	struct peer_holding *oldest = holdings->ended.first;
	if (holdings->pool.used == holdings->pool.capacity && oldest) {
		line_remove(&holdings->ended, PEER_OF_ALL, oldest);
		free_holding(holdings, oldest);
	}
	return neap_pool_take(&holdings->pool);
}

bool peer_hold(struct neap_peer_service *service, const struct peer_call *call, enum peer_kind kind, const struct neap_key *key,
               uint64_t id, uint64_t lease_ns)
{
	struct peer_holdings *holdings = &service->holdings[kind];
	struct peer_connection *connection = connection_of(service, call);
	struct peer_holding *holding = connection ? take(holdings) : NULL;
	if (!holding)
		return false;
	struct peer_holding **bucket = &holdings->buckets[slot_of(id, holdings->bucket_mask)];
	*holding = (struct peer_holding){
		.next_in_bucket = *bucket,
		.connection = connection,
		.id = id,
		.key_hash = neap_key_hash(&service->secret, key->bytes, key->length),
		.end_ns = neap_now(service->reactor) + lease_ns,
	};
	*bucket = holding;
	line_add(&holdings->line, PEER_OF_ALL, holding);
	line_add(&connection->lines[kind], PEER_OF_CONNECTION, holding);
	return true;
}

/* --- life --------------------------------------------------------------------------------------------------------------- */

static int create_kind(struct neap_peer_service *service, enum peer_kind kind, uint32_t count, uint32_t per_connection)
{
	struct peer_holdings *holdings = &service->holdings[kind];
	holdings->per_connection = per_connection;
	holdings->bucket_mask = mask_of(count);
	holdings->buckets = neap_allocate(service->reactor, ((size_t)holdings->bucket_mask + 1) * sizeof *holdings->buckets);
	if (!holdings->buckets)
		return NEAP_ENOMEM;
	return neap_pool_create(&holdings->pool, service->reactor, sizeof(struct peer_holding), count);
}

int peer_holdings_create(struct neap_peer_service *service)
{
	neap_key_secret_draw(&service->secret, service->reactor);
	const struct neap_peer_service_options *o = &service->options;
	uint32_t connections = o->rpc.connections_max ? o->rpc.connections_max : 1024;
	service->connection_mask = mask_of(connections);
	service->connection_buckets = neap_allocate(service->reactor, ((size_t)service->connection_mask + 1) *
	                                                                      sizeof *service->connection_buckets);
	int error = service->connection_buckets ? NEAP_OK : NEAP_ENOMEM;
	if (!error)
		error = neap_pool_create(&service->connections, service->reactor, sizeof(struct peer_connection), connections);
	if (!error)
		error = create_kind(service, PEER_WRITE, o->writes_max, o->writes_per_connection);
	if (!error)
		error = create_kind(service, PEER_PIN, o->pins_max, o->pins_per_connection);
	return error;
}

void peer_holdings_destroy(struct neap_peer_service *service)
{
	struct neap_reactor *reactor = service->reactor;
	for (enum peer_kind kind = PEER_WRITE; kind < PEER_KINDS; kind++) {
		struct peer_holdings *holdings = &service->holdings[kind];
		if (holdings->buckets)
			neap_release(reactor, holdings->buckets, ((size_t)holdings->bucket_mask + 1) * sizeof *holdings->buckets);
		neap_pool_destroy(&holdings->pool);
	}
	if (service->connection_buckets)
		neap_release(reactor, service->connection_buckets, ((size_t)service->connection_mask + 1) * sizeof *service->connection_buckets);
	neap_pool_destroy(&service->connections);
}

static bool lines_agree(const struct neap_peer_service *service, enum peer_kind kind)
{
	const struct peer_holdings *holdings = &service->holdings[kind];
	const struct peer_connection *connection;
	uint32_t index = 0, of_connections = 0;
	while ((connection = neap_pool_next(&service->connections, &index)) != NULL)
		of_connections += connection->lines[kind].count;
	return of_connections == holdings->line.count && holdings->line.count + holdings->ended.count == holdings->pool.used;
}

const char *neap_peer_service_check(const struct neap_peer_service *service)
{
	for (enum peer_kind kind = PEER_WRITE; kind < PEER_KINDS; kind++) {
		const struct peer_holdings *holdings = &service->holdings[kind];
		uint64_t before_ns = 0;
		uint32_t counted = 0;
		if (!lines_agree(service, kind))
			return "what connections hold is not what is held";
		for (const struct peer_holding *holding = holdings->line.first; holding; holding = holding->links[PEER_OF_ALL].next, counted++) {
			if (holding->end_ns < before_ns)
				return "a lease ends before an older one";
			before_ns = holding->end_ns;
		}
		if (counted != holdings->line.count)
			return "a list of what is held is not as long as it says";
	}
	return NULL;
}
