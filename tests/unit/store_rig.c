#include "tests/unit/store_rig.h"
#include "tests/support/coverage.h"
#include "reactor/core.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MASTER_PORT 50051u

struct store_rig rig;

/* --- time ------------------------------------------------------------------------------------------------------------------- */

static bool is_set(void *flag)
{
	return *(const bool *)flag;
}

bool rig_until(const bool *flag, unsigned ms)
{
	return sim_run_until(rig.sim, is_set, (void *)(uintptr_t)flag, ms * MS);
}

bool rig_until_true(bool (*holds)(void *user), void *user, unsigned ms)
{
	return sim_run_until(rig.sim, holds, user, ms * MS);
}

void rig_for(unsigned ms)
{
	sim_run_for(rig.sim, ms * MS);
}

/* --- the master --------------------------------------------------------------------------------------------------------------- */

void rig_open(void)
{
	memset(&rig, 0, sizeof rig);
	rig.sim = sim_create(23);
	rig.sim->net = (struct sim_net_options){
		.delay_min_ns = 10000, .delay_max_ns = 20000, .segment_max = 65536, .window_min = 1u << 18, .window_max = 1u << 18};
	rig.sim->host = (struct sim_host_options){.latency_max_ns = 1000};
	rig.directory = (struct neap_local_directory_options){.keys_max = 20000, .clients_max = 64, .segments_max = 64};
}

void rig_master_start(bool first)
{
	struct rig_master *master = &rig.masters[rig.master_count++];
	struct neap_local_directory_options options = rig.directory;
	struct neap_rpc_server_options server = {.epoch = 1000 * rig.master_count, .connections_max = 64, .lanes_max = 64};
	struct neap_sockaddr address;
	uint32_t count;
	int system_errno;
	char why[320];
	options.first = first;
	options.epoch = 1000 * rig.master_count;
	master->node = sim_node_create(rig.sim, 0);
	struct neap_reactor *reactor = master->node->reactor;
	ck_assert_int_eq(neap_local_directory_create(&master->local, reactor, &options, why, sizeof why), 0);
	ck_assert_int_eq(neap_master_service_create(&master->service, reactor, neap_local_directory_face(master->local), NULL), 0);
	ck_assert_int_eq(neap_sockaddr_from_numeric("10.0.0.1", MASTER_PORT, &address), 0);
	const struct neap_rpc_handler *handlers = neap_master_service_handlers(&count);
	int error = neap_rpc_server_create(&master->server, reactor, &address, handlers, count, &server, master->service, &system_errno, why,
	                                   sizeof why);
	ck_assert_msg(error == 0, "%s", why);
}

void rig_master_crash(void)
{
	sim_node_crash(rig.masters[rig.master_count - 1].node, false);
}

static void close_master(struct sim_node *node, void *user)
{
	struct rig_master *master = user;
	(void)node;
	neap_rpc_server_destroy(master->server);
	neap_master_service_destroy(master->service);
	neap_local_directory_destroy(master->local);
}

/* --- stores -------------------------------------------------------------------------------------------------------------------- */

static void on_ready(void *user, int error, const char *why)
{
	struct rig_store *store = user;
	ck_assert(!store->ready);
	ck_assert((error == 0) == (*why == '\0'));
	store->ready = true;
	store->ready_error = error;
}

static void start_engine(struct rig_store *store)
{
	char address[32], why[256];
	sim_node_address(store->node, address, sizeof address);
	struct neap_engine_options options = {
		.local_name = address,
		.bind_address = address,
		.handshake_port = 15100,
		.requests_max = 1024,
		.batches_max = rig.batches_max ? rig.batches_max : 256,
		.peers_max = 32,
		.sessions_max = 64,
		.regions_max = 64,
		.grants_max = 2048,
		.handshake_sessions_max = 32,
		.connect_timeout_ms = 500,
		.handshake_timeout_ms = 500,
		.progress_timeout_ms = 1000,
		.drain_timeout_ms = 200,
	};
	int error = neap_engine_create(&store->engine, store->node->reactor, &options, why, sizeof why);
	ck_assert_msg(error == 0, "%s", why);
	store->memory = aligned_alloc(4096, RIG_MEMORY);
	memset(store->memory, 0, RIG_MEMORY);
	struct neap_memory memory = {.address = store->memory, .length = RIG_MEMORY, .location = "cpu:0", .access = NEAP_GRANT_ONLY};
	ck_assert_int_eq(neap_memory_register(store->engine, &memory, 1, NULL, why, sizeof why), 0);
}

int rig_store_try(struct rig_store *store, const struct neap_store_options *options, bool with_tiers, char *why, size_t why_size)
{
	struct neap_store_options o = options ? *options : (struct neap_store_options){0};
	if (!o.master)
		o.master = "10.0.0.1:50051";
	else if (!*o.master)
		o.master = NULL; /* alone */
	if (with_tiers && !o.tiers)
		o.tiers = RIG_TIERS;
	o.rpc_port = o.rpc_port ? o.rpc_port : 4000;
	o.keys_max = o.keys_max ? o.keys_max : 4096;
	o.operations_max = o.operations_max ? o.operations_max : 128;
	o.deadline_ms = o.deadline_ms ? o.deadline_ms : 20000;
	o.ready = on_ready;
	o.user = store;
	return neap_store_create(&store->store, store->engine, &o, why, why_size);
}

struct rig_store *rig_store_start(const struct neap_store_options *options, bool with_tiers)
{
	struct rig_store *store = &rig.stores[rig.store_count];
	char why[400];
	store->node = sim_node_create(rig.sim, 1 + rig.store_count++ % RIG_STORES);
	start_engine(store);
	int error = rig_store_try(store, options, with_tiers, why, sizeof why);
	ck_assert_msg(error == 0, "%s", why);
	return store;
}

static void on_closed(void *user)
{
	struct rig_store *store = user;
	ck_assert(!store->closed);
	store->closed = true;
	store->store = NULL;
	(void)neap_engine_close(store->engine, NULL, NULL);
}

void rig_store_close(struct rig_store *store)
{
	ck_assert_int_eq(neap_store_close(store->store, on_closed, store), 0);
	ck_assert_msg(rig_until(&store->closed, 40000), "a store does not close");
}

void rig_store_crash(struct rig_store *store)
{
	sim_node_crash(store->node, false);
}

static void close_store(struct sim_node *node, void *user)
{
	struct rig_store *store = user;
	(void)node;
	if (store->store && !store->closed)
		(void)neap_store_close(store->store, on_closed, store);
	else if (!store->closed)
		(void)neap_engine_close(store->engine, NULL, NULL);
}

void rig_close(void)
{
	for (uint32_t i = 0; i < rig.store_count; i++) {
		struct rig_store *store = &rig.stores[i];
		support_cover(neap_reactor_dispatcher(store->node->reactor));
		if (store->store && !store->node->crashed)
			rig_store_close(store);
		ck_assert_uint_eq(sim_node_finish(store->node, close_store, store), 0);
		free(store->memory);
	}
	for (uint32_t i = 0; i < rig.master_count; i++) {
		support_cover(neap_reactor_dispatcher(rig.masters[i].node->reactor));
		ck_assert_uint_eq(sim_node_finish(rig.masters[i].node, close_master, &rig.masters[i]), 0);
	}
	sim_destroy(rig.sim);
}

void rig_holds(void)
{
	for (uint32_t i = 0; i < rig.store_count; i++) {
		struct rig_store *store = &rig.stores[i];
		const char *wrong = store->store && !store->node->crashed ? neap_store_check(store->store) : NULL;
		ck_assert_msg(!wrong, "store %u: %s", i, wrong);
	}
}

/* --- values -------------------------------------------------------------------------------------------------------------------- */

void rig_fill(void *bytes, uint64_t length, unsigned seed)
{
	unsigned char *at = bytes;
	for (uint64_t i = 0; i < length; i++)
		at[i] = (unsigned char)(i * 31 + i / 251 + seed * 97 + 13);
}

bool rig_filled(const void *bytes, uint64_t length, unsigned seed)
{
	const unsigned char *at = bytes;
	for (uint64_t i = 0; i < length; i++)
		if (at[i] != (unsigned char)(i * 31 + i / 251 + seed * 97 + 13))
			return false;
	return true;
}

struct neap_key rig_key(const char *text)
{
	return (struct neap_key){text, (uint32_t)strlen(text)};
}

void rig_done(void *user, const struct neap_store_outcome *outcome)
{
	struct rig_outcome *to = user;
	ck_assert(!to->done);
	to->done = true;
	to->outcome = *outcome;
	to->outcome.place = NULL;
	if (outcome->unsettled)
		to->unsettled = *outcome->unsettled;
	(void)snprintf(to->why, sizeof to->why, "%s", outcome->why);
}

void rig_put_begin(struct rig_store *store, struct rig_outcome *outcome, const char *key, uint64_t size, unsigned seed,
                   const struct neap_put_options *options)
{
	struct neap_key of = rig_key(key);
	uint64_t first = size / 3 + 1;
	struct neap_slice_of slices[2] = {{store->memory, first}, {store->memory + first, size - first}};
	*outcome = (struct rig_outcome){0};
	rig_fill(store->memory, size, seed);
	ck_assert_int_eq(neap_store_put(store->store, &of, slices, first < size ? 2 : 1, options, rig_done, outcome, NULL), 0);
}

void rig_get_begin(struct rig_store *store, struct rig_outcome *outcome, const char *key, uint64_t room, const struct neap_get_options *options)
{
	struct neap_key of = rig_key(key);
	struct neap_slice_of slice = {store->memory + RIG_MEMORY / 2, room};
	*outcome = (struct rig_outcome){0};
	memset(slice.address, 0xee, room);
	ck_assert_int_eq(neap_store_get(store->store, &of, &slice, 1, options, rig_done, outcome, NULL), 0);
}

void rig_await(struct rig_outcome *outcome)
{
	ck_assert_msg(rig_until(&outcome->done, 60000), "an operation does not end");
}

void rig_put(struct rig_store *store, struct rig_outcome *outcome, const char *key, uint64_t size, unsigned seed, enum neap_direction direction)
{
	struct neap_put_options options = {.direction = direction, .checksum = true};
	rig_put_begin(store, outcome, key, size, seed, &options);
	rig_await(outcome);
}

void rig_get(struct rig_store *store, struct rig_outcome *outcome, const char *key, uint64_t room, enum neap_direction direction)
{
	struct neap_get_options options = {.direction = direction, .verify = true};
	rig_get_begin(store, outcome, key, room, &options);
	rig_await(outcome);
}

void rig_must_put(struct rig_store *store, const char *key, uint64_t size, unsigned seed, enum neap_direction direction)
{
	struct rig_outcome outcome;
	rig_put(store, &outcome, key, size, seed, direction);
	ck_assert_msg(outcome.outcome.status == NEAP_STORE_SUCCESS, "put of %s: %d %s", key, outcome.outcome.error, outcome.why);
	ck_assert_msg(outcome.outcome.created, "put of %s: it was there", key);
	ck_assert_uint_eq(outcome.outcome.size, size);
	memset(store->memory, 0x55, size); /* it is ours again */
}

void rig_must_get(struct rig_store *store, const char *key, uint64_t size, unsigned seed, enum neap_direction direction)
{
	struct rig_outcome outcome;
	rig_get(store, &outcome, key, size + 100 < RIG_MEMORY / 2 ? size + 100 : size, direction);
	ck_assert_msg(outcome.outcome.status == NEAP_STORE_SUCCESS, "get of %s: %d %s", key, outcome.outcome.error, outcome.why);
	ck_assert_uint_eq(outcome.outcome.size, size);
	ck_assert_msg(rig_filled(store->memory + RIG_MEMORY / 2, size, seed), "get of %s: wrong bytes reported as right", key);
}

/* --- keys ----------------------------------------------------------------------------------------------------------------------- */

struct removed {
	bool done;
	int error;
	uint64_t count;
};

static void on_removed(void *user, int error, uint64_t count, const char *why)
{
	ck_assert((error == 0) == (*why == '\0'));
	*(struct removed *)user = (struct removed){true, error, count};
}

int rig_remove(struct rig_store *store, const char *key, uint64_t *removed_p)
{
	struct removed removed = {0};
	struct neap_key of = rig_key(key);
	ck_assert_int_eq(neap_store_remove(store->store, &of, 0, on_removed, &removed), 0);
	ck_assert(rig_until(&removed.done, 30000));
	if (removed_p)
		*removed_p = removed.count;
	return removed.error;
}

struct existing {
	bool done;
	int8_t found;
};

static void on_exist(void *user, int error, const int8_t *found, uint32_t count)
{
	ck_assert_uint_eq(count, 1);
	ck_assert((error != 0) == (found[0] < 0));
	*(struct existing *)user = (struct existing){true, found[0]};
}

int rig_exists(struct rig_store *store, const char *key)
{
	struct existing existing = {0};
	struct neap_key of = rig_key(key);
	ck_assert_int_eq(neap_store_exist(store->store, &of, 1, 0, on_exist, &existing), 0);
	ck_assert(rig_until(&existing.done, 30000));
	return existing.found;
}
