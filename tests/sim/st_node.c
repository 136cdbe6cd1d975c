/* The master and the clients: starting, dying, leaving, and what they have counted. */
#include "tests/sim/st_inside.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MASTER_PORT 50051u
#define RPC_PORT 4000u

/* --- the master --------------------------------------------------------------------------------------------------------------- */

void st_master_start(struct st_world *world, bool first)
{
	struct st_master *master = &world->masters[world->master_count++];
	struct neap_local_directory_options options = {.keys_max = 2048, .clients_max = 64, .segments_max = 64, .first = first,
	                                               .epoch = 1000 * world->master_count};
	struct neap_rpc_server_options server = {.epoch = options.epoch, .connections_max = 64, .lanes_max = 256};
	struct neap_sockaddr address;
	uint32_t count;
	int system_errno;
	char why[320];
	master->node = sim_node_create(world->sim, 0);
	struct neap_reactor *reactor = master->node->reactor;
	const struct neap_rpc_handler *handlers = neap_master_service_handlers(&count);
	(void)neap_sockaddr_from_numeric("10.0.0.1", MASTER_PORT, &address);
	int error = neap_local_directory_create(&master->local, reactor, &options, why, sizeof why);
	if (!error)
		error = neap_master_service_create(&master->service, reactor, neap_local_directory_face(master->local), NULL);
	if (!error)
		error = neap_rpc_server_create(&master->server, reactor, &address, handlers, count, &server, master->service, &system_errno, why,
		                               sizeof why);
	if (error)
		st_violation(world, "a master cannot start: %s", why);
}

void st_master_crash(struct st_world *world)
{
	sim_node_crash(world->masters[world->master_count - 1].node, false);
}

static void close_master(struct sim_node *node, void *user)
{
	struct st_master *master = user;
	struct neap_local_directory_stats stats;
	(void)node;
	neap_local_directory_stats(master->local, &stats);
	neap_rpc_server_destroy(master->server);
	neap_master_service_destroy(master->service);
	neap_local_directory_destroy(master->local);
}

void st_master_finish(struct st_world *world, struct st_master *master)
{
	struct neap_local_directory_stats stats;
	neap_local_directory_stats(master->local, &stats);
	world->result->sometimes.master_recovered += stats.recovered > 0;
	const char *wrong = neap_local_directory_check(master->local);
	if (wrong)
		st_violation(world, "the directory: %s", wrong);
	size_t left = sim_node_finish(master->node, close_master, master);
	if (left)
		st_violation(world, "a master leaves %zu bytes", left);
}

/* --- clients ------------------------------------------------------------------------------------------------------------------ */

static size_t memory_bytes(const struct st_world *world)
{
	return ST_SLOTS * (size_t)world->slot_bytes;
}

static int start_engine(struct st_client *client)
{
	char address[32], why[256];
	sim_node_address(client->node, address, sizeof address);
	struct neap_engine_options options = {
		.local_name = address, .bind_address = address, .handshake_port = 15100, .requests_max = 512, .batches_max = 128, .peers_max = 16,
		.sessions_max = 64, .regions_max = 64, .grants_max = 1024, .handshake_sessions_max = 32, .connect_timeout_ms = 500,
		.handshake_timeout_ms = 500, .progress_timeout_ms = 1500, .drain_timeout_ms = 200};
	int error = client->seat ? st_seat_make_engine(client, &options, why, sizeof why)
	                         : neap_engine_create(&client->engine, client->node->reactor, &options, why, sizeof why);
	struct neap_memory memory = {.address = client->memory, .length = memory_bytes(client->world), .location = "cpu:0",
	                             .access = NEAP_GRANT_ONLY};
	return error ? error : neap_memory_register(client->engine, &memory, 1, NULL, why, sizeof why);
}

static int start_store(struct st_client *client)
{
	const struct st_options *o = &client->world->options;
	char tiers[160], why[400];
	(void)snprintf(tiers, sizeof tiers, "{\"tiers\":[{\"type\":\"DRAM\",\"capacity\":%u,\"priority\":10}]}", o->tier_bytes);
	struct neap_store_options options = {
		.master = "10.0.0.1:50051",
		.rpc_port = RPC_PORT,
		.tiers = client->owns ? tiers : NULL,
		.lease_ms = o->lease_ms,
		.scan_interval_ms = 200,
		.lock_shards = 16,
		.keys_max = 1024,
		.direction = o->forward_per_mille > 500 ? NEAP_FORWARD : NEAP_REVERSE,
		.placement = {.set = true, .remote_weight = o->remote_per_mille / 1000.0, .local_write_waterline = 0.5},
		.verify = o->verify,
		.no_inline = o->no_inline,
		.operations_max = 64,
		.deadline_ms = 8000,
		.route_cache_bytes = 65536,
		.heartbeat_ms = 500,
	};
	return neap_store_create(&client->store, client->engine, &options, why, sizeof why);
}

static void engine_over(void *user)
{
	struct st_client *client = user;
	client->engine = NULL;
	client->engine_closed = true;
}

static void store_over(void *user)
{
	struct st_client *client = user;
	client->store = NULL;
	client->closed = true;
	if (client->engine && neap_engine_close(client->engine, engine_over, client))
		client->engine_closed = true;
}

/* Closes what there is, in the order that an application would. */
void st_client_close(struct st_client *client)
{
	if (client->store && !client->closed)
		(void)neap_store_close(client->store, store_over, client);
	else if (client->engine && !client->closed)
		(void)neap_engine_close(client->engine, engine_over, client);
}

static void close_client(struct sim_node *node, void *user)
{
	(void)node;
	st_client_close(user);
}

void st_client_finish(struct st_client *client)
{
	struct st_world *world = client->world;
	if (!client->node)
		return;
	if (st_sabotage(world, ST_SABOTAGE_LEAK))
		client->node->bytes_allocated += 8;
	size_t left = st_seat_finish(client) ? 0 : sim_node_finish(client->node, close_client, client);
	st_slots_check(client); /* also what came while it closed */
	if (left)
		st_violation(world, "client %u.%u leaves %zu bytes", client->index, client->incarnation, left);
	sim_memory_return(client->memory, memory_bytes(world));
	client->memory = NULL;
	client->node = NULL;
}

static void try_again(struct sim *sim, void *user, uint64_t index)
{
	struct st_world *world = user;
	if (world->closing || world->clients[index].up || st_client_start(world, (uint32_t)index))
		return;
	sim_after(sim, 100 * MS, try_again, world, index);
}

bool st_client_start(struct st_world *world, uint32_t index)
{
	struct st_client *client = &world->clients[index];
	uint32_t incarnation = client->incarnation + 1;
	bool owns = client->owns;
	*client = (struct st_client){.world = world, .index = index, .incarnation = incarnation, .owns = owns};
	world->sim->drift_ppm = (int32_t)world->options.drift_ppm * ((int32_t)(index % 3) - 1);
	client->node = sim_node_create(world->sim, 1 + index);
	world->sim->drift_ppm = 0;
	if (!client->node)
		return false;
	client->memory = sim_memory_take(world->sim, memory_bytes(world));
	for (uint32_t slot = 0; slot < ST_SLOTS; slot++)
		st_slot_return(client, slot);
	st_seat_begin(client);
	int error = start_engine(client);
	if (!error)
		error = start_store(client);
	if (error)
		st_violation(world, "client %u cannot start: %s", index, neap_error_name(error));
	client->up = true;
	world->result->sometimes.client_restarted += incarnation > 1;
	world->result->sometimes.clocks_drift += client->node->drift_ppm != 0;
	return true;
}

bool st_client_awake(const struct st_client *client)
{
	return client->up && !client->leaving && client->store && !client->node->paused && !client->node->crashed;
}

/* --- its end ------------------------------------------------------------------------------------------------------------------ */

static void bury(struct st_client *client)
{
	struct st_world *world = client->world;
	struct st_client *grave = malloc(sizeof *grave);
	if (!grave)
		abort();
	*grave = *client;
	world->graves[world->grave_count++] = grave;
	client->node = NULL;
	client->memory = NULL;
	client->store = NULL;
	client->engine = NULL;
	client->seat = NULL;
}

void st_client_crash(struct st_client *client, bool host_dies)
{
	struct st_world *world = client->world;
	st_client_count(client);
	st_client_gone(world, client);
	sim_node_crash(client->node, host_dies);
	if (client->seat)
		sim_seat_kill(client->seat);
	client->up = false;
	bury(client);
	ST_SEEN(world, client_crashed);
	sim_after(world->sim, (1 + sim_random_below(st_chance(world), 4000)) * MS, try_again, world, client->index);
}

static void left(struct sim *sim, void *user, uint64_t argument)
{
	struct st_client *client = user;
	struct st_world *world = client->world;
	(void)argument;
	if (!client->leaving || world->closing)
		return;
	if (!client->engine_closed) {
		sim_after(sim, 50 * MS, left, client, 0);
		return;
	}
	client->leaving = client->up = false;
	st_client_finish(client);
	sim_after(sim, (1 + sim_random_below(st_chance(world), 1000)) * MS, try_again, world, client->index);
}

static void drained(void *user, int error)
{
	struct st_client *client = user;
	if (error != NEAP_ECANCELED)
		(void)neap_store_close(client->store, store_over, client);
}

void st_client_leave(struct st_client *client)
{
	struct st_world *world = client->world;
	st_client_count(client);
	st_seat_leaves(client);
	client->leaving = true;
	if (sim_random_chance(st_chance(world), 500))
		(void)neap_store_drain(client->store, 1000, drained, client);
	else
		(void)neap_store_close(client->store, store_over, client);
	ST_SEEN(world, client_left);
	sim_after(world->sim, 50 * MS, left, client, 0);
}

/* --- what it has counted ------------------------------------------------------------------------------------------------------ */

struct counted {
	const char *name, *labels;
	size_t offset;
};

#define AT(field) offsetof(struct st_sometimes, field)
static const struct counted counted[] = {
	{"mooncake_p2p_put_succeeded_total", "way=\"inline\"", AT(put_inline)},
	{"mooncake_p2p_put_succeeded_total", "way=\"reverse\"", AT(put_reverse)},
	{"mooncake_p2p_put_succeeded_total", "way=\"forward\"", AT(put_forward)},
	{"mooncake_p2p_put_succeeded_total", "way=\"local\"", AT(put_local)},
	{"mooncake_p2p_get_hits_total", "way=\"inline\"", AT(get_inline)},
	{"mooncake_p2p_get_hits_total", "way=\"reverse\"", AT(get_reverse)},
	{"mooncake_p2p_get_hits_total", "way=\"forward\"", AT(get_forward)},
	{"mooncake_p2p_get_hits_total", "way=\"local\"", AT(get_local)},
	{"mooncake_p2p_rollback_write_revoke_requests_total", "", AT(revoked)},
	{"mooncake_p2p_write_retries_total", "", AT(retried)},
	{"neap_store_repeated_calls_total", "", AT(repeated)},
	{"neap_store_late_total", "", AT(late)},
	{"neap_store_held_total", "", AT(held)},
	{"neap_store_stale_routes_total", "", AT(stale_route)},
	{"neap_store_expired_writes_total", "", AT(write_expired)},
	{"neap_store_lost_writes_total", "", AT(write_lost)},
	{"neap_store_expired_pins_total", "", AT(pin_expired)},
	{"neap_store_lost_pins_total", "", AT(pin_lost)},
	{"neap_store_evicted_total", "", AT(evicted)},
	{"neap_store_full_announcements_total", "", AT(announced_in_full)},
	{"neap_store_lost_values_total", "", AT(second_version_dropped)},
};

static void count(void *user, const struct neap_metric *metric)
{
	struct st_world *world = user;
	struct st_sometimes *sometimes = &world->result->sometimes;
	/* Whoever counts on sums has found what nothing else has: here nothing changes bytes but mistakes. */
	if (strcmp(metric->name, "neap_store_wrong_sums_total") == 0 && metric->value > 0)
		st_violation(world, "a value was read whose checksum was wrong");
	for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++)
		if (strcmp(counted[i].name, metric->name) == 0 && strcmp(counted[i].labels, metric->labels) == 0)
			*(uint64_t *)(void *)((char *)sometimes + counted[i].offset) += metric->value;
}

void st_client_count(struct st_client *client)
{
	if (client->store)
		neap_store_metrics(client->store, count, client->world);
	st_seat_count(client);
}
