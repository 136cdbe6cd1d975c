/* A store put together: what its options mean, and which part is made when. */
#include "store/directory/candidates.h"
#include "store/node/inside.h"
#include "transports/lean.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define LEAVE_NS (3000 * MS)

NEAP_PRINTF(4, 5) static int wrong(int error, char *why, size_t why_size, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	if (why && why_size)
		(void)vsnprintf(why, why_size, format, arguments);
	va_end(arguments);
	return error;
}

struct neap_key_id node_id(const uint8_t instance[16])
{
	struct neap_key_id id;
	memcpy(&id.first, instance, 8);
	memcpy(&id.second, instance + 8, 8);
	return id;
}

void node_instance(struct neap_key_id id, uint8_t instance[16])
{
	memcpy(instance, &id.first, 8);
	memcpy(instance + 8, &id.second, 8);
}

void node_place(struct neap_place *place, struct neap_key_id client, const char *host, uint16_t port)
{
	const char *format = strchr(host, ':') ? "[%s]:%u" : "%s:%u";
	node_instance(client, place->instance);
	(void)snprintf(place->rpc, sizeof place->rpc, format, host, port);
	place->engine[0] = '\0';
}

/* --- options ---------------------------------------------------------------------------------------------------------------- */

struct limits {
	const char *name;
	uint64_t value, least, most;
};

static int check_limits(const struct neap_store_options *o, char *why, size_t why_size)
{
	const struct limits limits[] = {
		{"lease_ms", o->lease_ms, 100, 3600000},
		{"scan_interval_ms", o->scan_interval_ms, 1, 60000},
		{"lock_shards", o->lock_shards, 1, 65536},
		{"keys_max", o->keys_max, 1, UINT32_MAX / 2},
		{"inline_max", o->inline_max, 1, NEAP_INLINE_MAX},
		{"operations_max", o->operations_max, 1, 1u << 20},
		{"deadline_ms", o->deadline_ms, 1, 86400000},
		{"route_cache_bytes", o->route_cache_bytes, 4096, UINT64_C(1) << 40},
		{"route_cache_ttl_ms", o->route_cache_ttl_ms, 1, 86400000},
		{"heartbeat_ms", o->heartbeat_ms, 10, 60000},
		{"placement.candidates_max", o->placement.candidates_max, 1, NEAP_ROUTES_MAX},
		{"placement.tag_count", o->placement.tag_count, 1, NEAP_KEY_TAGS_MAX},
		{"direction", o->direction, NEAP_REVERSE, NEAP_FORWARD},
	};
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
		if (limits[i].value && (limits[i].value < limits[i].least || limits[i].value > limits[i].most))
			return wrong(NEAP_EINVAL, why, why_size, "%s is %llu; it may be %llu to %llu", limits[i].name,
			             (unsigned long long)limits[i].value, (unsigned long long)limits[i].least, (unsigned long long)limits[i].most);
	if (o->lock_shards & (o->lock_shards - 1))
		return wrong(NEAP_EINVAL, why, why_size, "lock_shards is %u; it must be a power of two", o->lock_shards);
	return NEAP_OK;
}

static int take_placement(struct neap_store *store, const struct neap_store_placement *placement, char *why, size_t why_size)
{
	static const enum neap_key_strategy strategies[] = {NEAP_KEY_CAPACITY_PRIORITY, NEAP_KEY_ORDERED, NEAP_KEY_RANDOM};
	struct neap_key_write_config config = NEAP_KEY_WRITE_CONFIG;
	if ((unsigned)placement->strategy > NEAP_STORE_RANDOM)
		return wrong(NEAP_EINVAL, why, why_size, "placement.strategy is %u; it may be 0 to 2", placement->strategy);
	config.strategy = strategies[placement->strategy];
	config.candidates_max = placement->candidates_max ? placement->candidates_max : config.candidates_max;
	if (placement->set || placement->remote_weight != 0)
		config.remote_weight = placement->remote_weight;
	if (placement->set || placement->local_write_waterline != 0)
		config.local_write_waterline = placement->local_write_waterline;
	if (!(config.remote_weight >= 0 && config.remote_weight <= 1))
		return wrong(NEAP_EINVAL, why, why_size, "placement.remote_weight is %g; it may be 0 to 1", placement->remote_weight);
	if (!(config.local_write_waterline >= 0 && config.local_write_waterline <= 1))
		return wrong(NEAP_EINVAL, why, why_size, "placement.local_write_waterline is %g; it may be 0 to 1",
		             placement->local_write_waterline);
	config.top_tier_only = !placement->any_tier;
	config.priority_limit = placement->priority_limit;
	config.tag_count = placement->tag_count;
	for (uint32_t i = 0; i < config.tag_count; i++) {
		if (!placement->tags[i] || strlen(placement->tags[i]) >= sizeof config.tags[i])
			return wrong(NEAP_EINVAL, why, why_size, "placement.tags[%u] is longer than %zu bytes", i, sizeof config.tags[i] - 1);
		memcpy(config.tags[i], placement->tags[i], strlen(placement->tags[i]));
	}
	if (neap_candidates_check(&config))
		return wrong(NEAP_EINVAL, why, why_size,
		             "placement: a remote_weight of %g and a local_write_waterline of %g leave no place: with 0 the other must be more "
		             "than 0, with 1 less than 1",
		             config.remote_weight, config.local_write_waterline);
	store->placement = config;
	return NEAP_OK;
}

static int take_addresses(struct neap_store *store, const struct neap_store_options *o, struct neap_sockaddr *bind_p, char *why,
                          size_t why_size)
{
	char reason[NODE_WHY_MAX];
	struct neap_host_port name;
	if (o->master) {
		if (neap_host_port_parse(o->master, 0, &name, reason, sizeof reason) || !name.has_port || strlen(o->master) >= sizeof store->master)
			return wrong(NEAP_EINVAL, why, why_size, "master is '%s'; it must be host:port, as neap-master says when it starts", o->master);
		memcpy(store->master, o->master, strlen(o->master) + 1);
		store->has_master = true;
	}
	const char *host = o->host;
	if (!host && neap_host_port_parse(neap_engine_name(store->engine), 1, &name, reason, sizeof reason) == 0)
		host = name.host;
	if (!host || !*host || strlen(host) >= sizeof store->host)
		return wrong(NEAP_EINVAL, why, why_size, "host is %s; it must have 1 to %zu bytes", host ? host : "not known",
		             sizeof store->host - 1);
	memcpy(store->host, host, strlen(host) + 1);
	const char *at = o->bind_address ? o->bind_address : host;
	if (neap_sockaddr_from_numeric(at, o->rpc_port, bind_p) == 0)
		return NEAP_OK;
	if (o->bind_address)
		return wrong(NEAP_EINVAL, why, why_size, "bind_address is '%s'; it must be a numeric address, such as 127.0.0.1 or 0.0.0.0", at);
	return neap_sockaddr_from_numeric("127.0.0.1", o->rpc_port, bind_p);
}

static int take_options(struct neap_store *store, const struct neap_store_options *o, struct neap_sockaddr *bind_p, char *why,
                        size_t why_size)
{
	int error = check_limits(o, why, why_size);
	if (!error)
		error = take_placement(store, &o->placement, why, why_size);
	if (!error)
		error = take_addresses(store, o, bind_p, why, why_size);
	store->no_inline = o->no_inline;
	store->verify = o->verify;
	store->early = o->early;
	store->operations_max = o->operations_max ? o->operations_max : 4096;
	store->heartbeat_ms = o->heartbeat_ms ? o->heartbeat_ms : 1000;
	store->deadline_ns = (o->deadline_ms ? o->deadline_ms : 30000) * MS;
	store->ready = o->ready;
	store->user = o->user;
	return error;
}

/* --- parts ------------------------------------------------------------------------------------------------------------------ */

static int open_tiers(struct neap_store *store, const struct neap_store_options *o, char *why, size_t why_size)
{
	char reason[NODE_WHY_MAX] = "";
	if (!o->tiers)
		return NEAP_OK;
	struct neap_tier_config *config = neap_allocate(store->reactor, sizeof *config);
	if (!config)
		return wrong(NEAP_ENOMEM, why, why_size, "no memory to read the tiers");
	int error = neap_tier_config_read(o->tiers, strlen(o->tiers), config, reason, sizeof reason);
	if (!error)
		error = node_tiers_open(store, config, reason, sizeof reason);
	neap_release(store->reactor, config, sizeof *config);
	return error ? wrong(error, why, why_size, "tiers: %s", reason) : NEAP_OK;
}

static int open_owner(struct neap_store *store, const struct neap_store_options *o, const struct neap_sockaddr *address, char *why,
                      size_t why_size)
{
	char reason[NODE_WHY_MAX] = "";
	int system_errno = 0;
	if (!store->has_tiers)
		return NEAP_OK;
	struct neap_owner_options options = {
		.shards = o->lock_shards,
		.keys_max = o->keys_max,
		.lease_ns = o->lease_ms * MS,
		.scan_interval_ns = o->scan_interval_ms * MS,
		.verify = o->verify,
		.published = node_published,
		.withdrawn = node_withdrawn,
		.moved = node_moved,
		.lower = store->lower.largest ? &store->lower : NULL,
		.user = store,
	};
	int error = neap_owner_create(&store->owner, store->engine, &store->tiers, &options);
	if (error)
		return wrong(error, why, why_size, "owner: %s", neap_error_text(error));
	struct neap_peer_service_options service = {
		.address = address,
		/* a peer that is stopped shall not keep a process that ends for longer than whoever ends it waits */
		.rpc = {.epoch = neap_random_u64(store->reactor), .leave_timeout_ns = LEAVE_NS},
		.settle = o->early ? NULL : node_settle,
		.settled = o->early ? NULL : node_settled,
		.user = &store->places,
	};
	memcpy(service.rpc.instance, store->instance, sizeof store->instance);
	error = neap_peer_service_create(&store->service, store->reactor, store->engine, store->owner, &service, &system_errno, reason,
	                                 sizeof reason);
	if (error)
		return wrong(error, why, why_size, "rpc_port: %s; choose another, or 0 for a free one", reason);
	store->rpc_port = neap_rpc_server_port(neap_peer_service_rpc(store->service));
	return NEAP_OK;
}

static void welcomed(void *user, bool another, uint64_t epoch)
{
	struct neap_store *store = user;
	(void)another;
	(void)epoch;
	if (store->announcer)
		neap_announcer_renew(store->announcer);
}

static int open_directory(struct neap_store *store, char *why, size_t why_size)
{
	char reason[NODE_WHY_MAX] = "";
	int error;
	store->client.id = node_id(store->instance);
	if (!store->has_master) {
		const struct neap_local_directory_options options = {.first = true, .key_length_max = NEAP_KEY_MAX};
		error = neap_local_directory_create(&store->local, store->reactor, &options, reason, sizeof reason);
		if (error)
			return wrong(error, why, why_size, "directory: %s", *reason ? reason : neap_error_text(error));
		store->directory = *neap_local_directory_face(store->local);
		store->client.instance = neap_random_u64(store->reactor) | 1;
		return NEAP_OK;
	}
	struct neap_remote_directory_options options = {.lane = neap_random_u64(store->reactor) | 1, .welcomed = welcomed, .user = store};
	memcpy(options.rpc.instance, store->instance, sizeof store->instance);
	(void)neap_host_port_parse(store->master, 0, &options.master, reason, sizeof reason); /* looked at before */
	error = neap_remote_directory_create(&store->remote, store->reactor, &options);
	if (error)
		return wrong(error, why, why_size, "master: %s", neap_error_text(error));
	store->directory = *neap_remote_directory_face(store->remote);
	store->client.instance = neap_remote_directory_instance(store->remote);
	return NEAP_OK;
}

static int open_accessor(struct neap_store *store, const struct neap_store_options *o, char *why, size_t why_size)
{
	struct neap_places face = node_places_face(&store->places);
	struct neap_accessor_options options = {
		.operations_max = store->operations_max,
		.inline_max = o->inline_max,
		.no_inline = o->no_inline,
		.verify = o->verify,
		.direction = o->direction,
		.deadline_ns = store->deadline_ns,
		.routes = {.bytes_max = o->route_cache_bytes, .ttl_ns = o->route_cache_ttl_ms * MS},
		.owner = store->owner,
	};
	node_place(&options.here, store->client.id, store->host, store->rpc_port);
	int error = neap_accessor_create(&store->accessor, store->engine, &face, &options);
	return error ? wrong(error, why, why_size, "accessor: %s", neap_error_text(error)) : NEAP_OK;
}

static int open_pools(struct neap_store *store)
{
	struct node_sweep *sweep = &store->sweep;
	int error = neap_reactor_class_of(store->reactor, &key_removal_kind, &store->removal_class);
	if (!error)
		error = neap_pool_create(&store->asks, store->reactor, sizeof(struct node_ask), NODE_ASKS_MAX);
	if (!error)
		error = neap_pool_create(&store->removals, store->reactor, sizeof(struct node_removal), NODE_ASKS_MAX);
	if (!error)
		error = node_places_create(&store->places, store, store->operations_max);
	sweep->store = store;
	sweep->keys = neap_allocate(store->reactor, NODE_SWEEP_KEYS * sizeof *sweep->keys);
	sweep->text = neap_allocate(store->reactor, NODE_SWEEP_TEXT);
	return error ? error : sweep->keys && sweep->text ? NEAP_OK : NEAP_ENOMEM;
}

static int open_all(struct neap_store *store, const struct neap_store_options *o, char *why, size_t why_size)
{
	struct neap_sockaddr address;
	int error = take_options(store, o, &address, why, why_size);
	if (!error && (error = open_pools(store)) != NEAP_OK)
		return wrong(error, why, why_size, "%s", neap_error_text(error));
	if (!error)
		error = open_directory(store, why, why_size);
	if (!error)
		error = open_tiers(store, o, why, why_size);
	if (!error)
		error = open_owner(store, o, &address, why, why_size);
	if (!error)
		error = open_accessor(store, o, why, why_size);
	if (!error && store->owner && (error = node_announcer_open(store, o->heartbeat_ms, (uint32_t)o->keys_max)) != NEAP_OK)
		return wrong(error, why, why_size, "announcer: %s", neap_error_text(error));
	return error;
}

void node_release(struct neap_store *store)
{
	struct neap_reactor *reactor = store->reactor;
	struct node_sweep *sweep = &store->sweep;
	struct node_ask *ask;
	struct node_removal *removal;
	node_places_destroy(&store->places);
	for (uint32_t i = 0; i < store->tier_count; i++)
		neap_dram_engine_end(&store->tier[i].binding);
	for (uint32_t index = 0; (ask = neap_pool_next(&store->asks, &index)) != NULL;) {
		neap_key_cancel(&store->directory, &ask->call);
		if (ask->memory)
			neap_release(reactor, ask->memory, ask->memory_bytes);
	}
	for (uint32_t index = 0; (removal = neap_pool_next(&store->removals, &index)) != NULL;) {
		neap_key_cancel(&store->directory, &removal->call);
		neap_machine_end(&removal->machine);
	}
	if (store->remote)
		neap_remote_directory_destroy(store->remote);
	if (store->local)
		neap_local_directory_destroy(store->local);
	neap_pool_destroy(&store->asks);
	neap_pool_destroy(&store->removals);
	if (sweep->keys)
		neap_release(reactor, sweep->keys, NODE_SWEEP_KEYS * sizeof *sweep->keys);
	if (sweep->text)
		neap_release(reactor, sweep->text, NODE_SWEEP_TEXT);
	neap_engine_let_go(store->engine);
	neap_release(reactor, store, sizeof *store);
}

int neap_store_create(struct neap_store **store_p, struct neap_engine *engine, const struct neap_store_options *options, char *why,
                      size_t why_size)
{
	static const struct neap_store_options defaults = {0};
	if (why && why_size)
		why[0] = '\0';
	if (!store_p || !engine)
		return wrong(NEAP_EINVAL, why, why_size, "a store needs an engine, and a place for the answer");
	*store_p = NULL;
	struct neap_reactor *reactor = neap_engine_reactor(engine);
	struct neap_store *store = neap_allocate(reactor, sizeof *store);
	if (!store)
		return wrong(NEAP_ENOMEM, why, why_size, "no memory for a store");
	store->engine = engine;
	store->reactor = reactor;
	neap_engine_instance(engine, store->instance);
	int error = neap_reactor_class_of(reactor, &store_life_kind, &store->life_class);
	if (!error)
		error = neap_engine_lean(engine);
	if (error) {
		neap_release(reactor, store, sizeof *store);
		return wrong(error, why, why_size, "%s", neap_error_text(error));
	}
	error = open_all(store, options ? options : &defaults, why, why_size);
	if (error) { /* what was made is closed in the turns to come */
		store->ready = NULL;
		node_begin_life(store);
		(void)neap_store_close(store, NULL, NULL);
		return error;
	}
	node_begin_life(store);
	*store_p = store;
	neap_reactor_touch(reactor);
	return NEAP_OK;
}

struct neap_engine *neap_store_engine(const struct neap_store *store)
{
	return store->engine;
}

uint16_t neap_store_rpc_port(const struct neap_store *store)
{
	return store->rpc_port;
}

/* --- put and get ------------------------------------------------------------------------------------------------------------ */

int neap_store_put(struct neap_store *store, const struct neap_key *key, const struct neap_slice_of *slices, uint32_t count,
                   const struct neap_put_options *options, neap_store_done_func *done, void *user, neap_operation_id *operation_p)
{
	int error = node_takes(store) ? neap_accessor_put(store->accessor, key, slices, count, options, done, user, operation_p) : NEAP_ECLOSED;
	neap_reactor_touch(store->reactor);
	return error;
}

int neap_store_get(struct neap_store *store, const struct neap_key *key, const struct neap_slice_of *slices, uint32_t count,
                   const struct neap_get_options *options, neap_store_done_func *done, void *user, neap_operation_id *operation_p)
{
	int error = node_takes(store) ? neap_accessor_get(store->accessor, key, slices, count, options, done, user, operation_p) : NEAP_ECLOSED;
	neap_reactor_touch(store->reactor);
	return error;
}

void neap_store_cancel(struct neap_store *store, neap_operation_id operation)
{
	if (store->accessor)
		neap_accessor_cancel(store->accessor, operation);
	neap_reactor_touch(store->reactor);
}

int neap_store_resolve(struct neap_store *store, const struct neap_key *key, const struct neap_unsettled *unsettled, uint64_t deadline_ns,
                       neap_store_done_func *done, void *user, neap_operation_id *operation_p)
{
	int error = node_takes(store)
	                ? neap_accessor_resolve(store->accessor, key, unsettled, deadline_ns, done, user, operation_p)
	                : NEAP_ECLOSED;
	neap_reactor_touch(store->reactor);
	return error;
}

int neap_store_put_batch(struct neap_store *store, const struct neap_batch_item *items, uint32_t count,
                         const struct neap_store_batch_options *options, uint64_t *batch_p)
{
	int error = node_takes(store) ? neap_accessor_put_batch(store->accessor, items, count, options, batch_p) : NEAP_ECLOSED;
	neap_reactor_touch(store->reactor);
	return error;
}

int neap_store_get_batch(struct neap_store *store, const struct neap_batch_item *items, uint32_t count,
                         const struct neap_store_batch_options *options, uint64_t *batch_p)
{
	int error = node_takes(store) ? neap_accessor_get_batch(store->accessor, items, count, options, batch_p) : NEAP_ECLOSED;
	neap_reactor_touch(store->reactor);
	return error;
}

void neap_store_cancel_batch(struct neap_store *store, uint64_t batch)
{
	if (store->accessor)
		neap_accessor_cancel_batch(store->accessor, batch);
	neap_reactor_touch(store->reactor);
}

const char *neap_store_check(const struct neap_store *store)
{
	const char *what = store->owner ? neap_owner_check(store->owner) : NULL;
	if (!what && store->service)
		what = neap_peer_service_check(store->service);
	if (!what && store->announcer)
		what = neap_announcer_check(store->announcer);
	if (!what && store->local)
		what = neap_local_directory_check(store->local);
	return what;
}
