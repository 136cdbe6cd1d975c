/* Questions about keys, and removal: passed on to the store, and its answers back. */
#include "apps/client/service_inside.h"
#include <string.h>
#include <unistd.h>

static struct local_query *ask(struct client_service *service, const struct neap_rpc_incoming *incoming)
{
	struct local_query *query = neap_pool_take(&service->queries);
	if (!query) {
		service->stats.refused_busy++;
		local_refuse(service, incoming->handle, NEAP_EAGAIN, "%u questions are under way already; try again", service->queries.used);
		return NULL;
	}
	*query = (struct local_query){.service = service, .call = incoming->handle};
	return query;
}

/* What the query was for; it has ended. */
static struct local_query answered(struct local_query *query)
{
	struct local_query copy = *query;
	neap_pool_give(&copy.service->queries, query);
	return copy;
}

/* The store did not take the question. */
static void not_taken(struct local_query *query, int error)
{
	struct local_query ended = answered(query);
	if (error == NEAP_EAGAIN)
		local_refuse(ended.service, ended.call, error, "another such operation runs; try again");
	else
		local_refuse(ended.service, ended.call, local_status_of(error), "%s", neap_error_text(error));
}

static void refused(const struct local_query *query, int error, const char *why)
{
	(void)neap_rpc_answer(query->service->rpc, query->call, error, NULL, why && *why ? why : neap_store_error_text(error), 0);
}

/* --- removal ------------------------------------------------------------------------------------------------------------------- */

static void removed(void *user, int error, uint64_t count, const char *why)
{
	struct local_query query = answered(user);
	if (!error)
		local_answer(query.service, query.call, &(struct local_removed){.removed = count});
	else if (count)
		local_refuse(query.service, query.call, error, "%llu went, others did not: %s", (unsigned long long)count,
		             why && *why ? why : neap_store_error_text(error));
	else
		refused(&query, error, why);
}

void local_on_remove(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct client_service *service = user;
	const struct local_key *remove = request;
	struct neap_key key = local_key_of(remove->key);
	struct local_query *query = ask(service, incoming);
	if (!query)
		return;
	int error = neap_store_remove(service->store, &key, local_time_left(service, incoming->deadline_ns), removed, query);
	if (error)
		not_taken(query, error);
}

/* The store wants a text with an end. NULL after a refusal. */
static const char *pattern_of(struct client_service *service, const struct neap_rpc_incoming *incoming, struct neap_rpc_view view,
                              char text[4097])
{
	if (view.length && memchr(view.bytes, 0, view.length)) {
		local_refuse(service, incoming->handle, NEAP_STORE_INVALID_PARAMS, "a pattern has no zero bytes");
		return NULL;
	}
	if (view.length)
		memcpy(text, view.bytes, view.length);
	text[view.length] = 0;
	return text;
}

void local_on_remove_matching(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct client_service *service = user;
	const struct local_remove_matching *remove = request;
	char text[4097];
	const char *pattern = pattern_of(service, incoming, remove->pattern, text);
	struct local_query *query = pattern ? ask(service, incoming) : NULL;
	if (!query)
		return;
	int error = neap_store_remove_matching(service->store, pattern, local_time_left(service, incoming->deadline_ns), removed, query);
	if (error)
		not_taken(query, error);
}

/* --- questions ------------------------------------------------------------------------------------------------------------------ */

static void existed(void *user, int error, const int8_t *found, uint32_t count)
{
	struct local_query query = answered(user);
	char bytes[NEAP_STORE_EXIST_MAX];
	if (!found || count > sizeof bytes) {
		refused(&query, error ? error : NEAP_STORE_INTERNAL_ERROR, NULL);
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		bytes[i] = found[i] < 0 ? 2 : found[i] > 0;
	local_answer(query.service, query.call, &(struct local_exist_reply){.found = neap_rpc_view_of(bytes, count), .error = error});
}

void local_on_exist(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct client_service *service = user;
	const struct local_exist *exist = request;
	const struct local_key *from = exist->keys.items;
	struct neap_key keys[NEAP_STORE_EXIST_MAX];
	struct local_query *query = ask(service, incoming);
	if (!query)
		return;
	for (uint32_t i = 0; i < exist->keys.count; i++)
		keys[i] = local_key_of(from[i].key);
	int error = neap_store_exist(service->store, keys, exist->keys.count, local_time_left(service, incoming->deadline_ns), existed, query);
	if (error)
		not_taken(query, error);
}

#define REPLICAS_MAX 256u

static void stat_known(void *user, int error, const struct neap_store_replica *replicas, uint32_t count, const char *why)
{
	struct local_query query = answered(user);
	struct local_replica out[REPLICAS_MAX];
	if (error) {
		refused(&query, error, why);
		return;
	}
	count = count < REPLICAS_MAX ? count : REPLICAS_MAX;
	for (uint32_t i = 0; i < count; i++)
		out[i] = (struct local_replica){
			.owner = neap_rpc_view_of(replicas[i].place.rpc, strlen(replicas[i].place.rpc)),
			.size_bytes = replicas[i].size,
			.generation = replicas[i].generation,
			.has_crc = replicas[i].has_crc,
			.crc32c = replicas[i].crc,
			.priority = replicas[i].priority,
			.in_memory = replicas[i].in_memory,
			.local = replicas[i].local,
		};
	local_answer(query.service, query.call, &(struct local_stat_reply){.replicas = {out, count}});
}

void local_on_stat(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct client_service *service = user;
	const struct local_key *stat = request;
	struct neap_key key = local_key_of(stat->key);
	struct local_query *query = ask(service, incoming);
	if (!query)
		return;
	int error = neap_store_stat(service->store, &key, local_time_left(service, incoming->deadline_ns), stat_known, query);
	if (error)
		not_taken(query, error);
}

#define LISTED_MAX 8192u

static void listed(void *user, int error, const struct neap_key *keys, uint32_t count, uint64_t next, const char *why)
{
	struct local_query query = answered(user);
	struct client_service *service = query.service;
	struct local_key *out = service->scratch;
	_Static_assert(LISTED_MAX * sizeof *out <= LOCAL_FRAME_BYTES, "a page fits into the scratch memory");
	bool partial = error == NEAP_STORE_REPLICA_IS_NOT_READY && (count > 0 || next);
	if ((error && !partial) || count > LISTED_MAX) {
		refused(&query, error ? error : NEAP_STORE_INTERNAL_ERROR, why);
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		out[i] = (struct local_key){.key = neap_rpc_view_of(keys[i].bytes, keys[i].length)};
	local_answer(service, query.call, &(struct local_list_reply){.keys = {out, count}, .next = next, .partial = partial});
}

void local_on_list(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct client_service *service = user;
	const struct local_list *list = request;
	char text[4097];
	const char *pattern = pattern_of(service, incoming, list->pattern, text);
	struct local_query *query = pattern ? ask(service, incoming) : NULL;
	if (!query)
		return;
	int error = neap_store_list(service->store, pattern, list->cursor, local_time_left(service, incoming->deadline_ns), listed, query);
	if (error)
		not_taken(query, error);
}

/* --- health ---------------------------------------------------------------------------------------------------------------------- */

void local_on_health(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	(void)request;
	struct client_service *service = user;
	struct neap_store_numbers n;
	struct client_service_stats s;
	neap_store_numbers(service->store, &n);
	client_service_stats(service, &s);
	const char *health = neap_store_health_name(client_service_health(service));
	const char *segment = neap_engine_name(neap_store_engine(service->store));
	local_answer(service, incoming->handle,
	             &(struct local_health_reply){
					 .health = neap_rpc_view_of(health, strlen(health)),
					 .segment = neap_rpc_view_of(segment, strlen(segment)),
					 .client_rpc_port = neap_store_rpc_port(service->store),
					 .pid = (uint64_t)getpid(),
					 .uptime_ms = (neap_now(service->reactor) - service->options.now_ns) / 1000000,
					 .keys = n.keys,
					 .bytes = n.bytes,
					 .capacity_bytes = n.capacity_bytes,
					 .used_bytes = n.used_bytes,
					 .quarantined_bytes = n.quarantined_bytes,
					 .pending_writes = n.pending_writes,
					 .pins = n.pins,
					 .quarantined_writes = n.quarantined_writes,
					 .operations = n.operations,
					 .puts = n.puts,
					 .gets = n.gets,
					 .hits = n.hits,
					 .misses = n.misses,
					 .evicted = n.evicted,
					 .expired_writes = n.expired_writes,
					 .expired_pins = n.expired_pins,
					 .retries = n.retries,
					 .buffer_bytes = s.buffer_bytes,
					 .buffer_free_bytes = s.buffer_free_bytes,
					 .transfers = s.transfers,
					 .waiting = s.waiting,
					 .given_up = s.given_up,
				 });
}
