/* The store that the cluster shares: one of four kinds. */
#include "tests/sim/md_inside.h"
#include <string.h>

void md_store_init(struct md_world *world)
{
	const struct md_options *o = &world->options;
	sim_redis_server_init(&world->redis, world->sim);
	sim_http_server_init(&world->http, world->sim, sim_http_metadata);
	world->redis.password = o->password ? MD_SECRET : NULL;
	world->redis.old = o->old_server;
	world->redis.keys.changed = world->http.keys.changed = world->memory.changed = md_truth_changed;
	world->redis.keys.user = world->http.keys.user = world->memory.user = world;
	world->memory.delay_ns = world->redis.server.delay_max_ns;
	md_etcd_init(world);
	world->result->sometimes.etcd = o->kind == MD_ETCD;
	world->result->sometimes.redis = o->kind == MD_REDIS;
	world->result->sometimes.http = o->kind == MD_HTTP;
	world->result->sometimes.memory = o->kind == MD_MEMORY;
}

void md_store_release(struct md_world *world)
{
	world->memory.changed = NULL;
	sim_redis_server_release(&world->redis);
	sim_http_server_release(&world->http);
	sim_etcd_server_release(&world->etcd);
	memory_store_release(&world->memory);
}

struct sim_server *md_store_server(struct md_world *world)
{
	switch (world->options.kind) {
	case MD_REDIS:
		return &world->redis.server;
	case MD_HTTP:
		return &world->http.server;
	case MD_ETCD:
		return &world->etcd.members[sim_random_below(md_chance(world), world->etcd.member_count)].http.server;
	default:
		return NULL;
	}
}

void md_store_died(struct md_world *world, const struct sim_node *node, bool host_dies)
{
	sim_server_node_died(&world->redis.server, node, host_dies);
	sim_server_node_died(&world->http.server, node, host_dies);
	for (uint32_t i = 0; i < world->etcd.member_count; i++)
		sim_server_node_died(&world->etcd.members[i].http.server, node, host_dies);
}

bool md_store_tells(const struct md_world *world)
{
	uint32_t kind = world->options.kind;
	return kind == MD_MEMORY || kind == MD_ETCD || (kind == MD_REDIS && !world->options.old_server);
}

/* One way, and until the process has its turns. */
uint64_t md_store_notice_ns(const struct md_world *world)
{
	const struct md_options *o = &world->options;
	const struct sim_server *server = &world->redis.server;
	if (!world->calm && o->faults_pause)
		return UINT64_MAX;
	if (o->kind == MD_ETCD)
		return md_etcd_notice_ns(world);
	uint64_t silence_ns = !world->calm && (o->faults_silent || o->faults_dark) ? SIM_KEEPALIVE_NS : 0;
	return silence_ns + server->delay_max_ns + (server->lag_per_mille ? server->lag_max_ns : 0) + 20 * MS + 100 * world->sim->host.latency_max_ns;
}

uint32_t md_store_open_ends(struct md_world *world, const struct sim_node *node)
{
	return sim_server_lines_of(&world->redis.server, node) + sim_server_lines_of(&world->http.server, node) +
	       md_etcd_open_ends(world, node);
}

static int open_redis(struct md_node *node)
{
	const struct md_options *o = &node->world->options;
	struct neap_redis_options options = {.server = {.host = "10.9.9.9", .port = 6379, .has_port = true},
	                                     .password = o->password ? MD_SECRET : NULL,
	                                     .database = o->database,
	                                     .calls_max = 64,
	                                     .reply_timeout_ns = o->timeout_ms * MS};
	sim_redis_driver_init(&node->redis, &node->world->redis, node->node);
	return neap_redis_create(&node->backend, node->node->reactor, &options, &node->redis.driver);
}

static int open_http(struct md_node *node)
{
	struct neap_backend_options options = {.connection = "http://10.9.9.9:8080/metadata", .calls_max = 64};
	char why[200];
	sim_http_driver_init(&node->http, &node->world->http, node->node);
	return neap_http_create(&node->backend, node->node->reactor, &options, &node->http.driver, why, sizeof why);
}

int md_store_open(struct md_node *node)
{
	struct md_world *world = node->world;
	if (world->options.kind == MD_REDIS)
		return open_redis(node);
	if (world->options.kind == MD_ETCD)
		return md_etcd_open(node);
	return world->options.kind == MD_HTTP ? open_http(node)
	                                      : memory_store_open(&node->backend, node->node->reactor, &world->memory);
}

void md_store_put(struct md_world *world, const char *key, const char *value)
{
	world->editing = true;
	if (world->options.kind == MD_REDIS)
		sim_redis_server_put(&world->redis, key, value);
	else if (world->options.kind == MD_MEMORY)
		memory_store_put(&world->memory, key, value);
	else if (world->options.kind == MD_ETCD)
		sim_etcd_server_put(&world->etcd, key, value);
	else if (!value)
		(void)sim_keys_remove(&world->http.keys, key);
	else
		sim_keys_set(&world->http.keys, key, value, strlen(value), 0);
	world->editing = false;
}

/* --- faults -------------------------------------------------------------------------------------------------------------------- */

void md_store_stop(struct md_world *world)
{
	world->memory.down = true;
	sim_server_stop(&world->redis.server);
	sim_server_stop(&world->http.server);
	sim_etcd_server_stop(&world->etcd);
}

/* What its watchers do not know they are told when they are back: the store in memory has no connection that could end. */
void md_store_start(struct md_world *world, bool empty)
{
	world->memory.down = world->redis.server.down = world->http.server.down = false;
	sim_etcd_server_start(&world->etcd, empty);
	if (!empty)
		return;
	sim_keys_wipe(&world->redis.keys);
	sim_keys_wipe(&world->http.keys);
	memory_store_wipe(&world->memory);
	memory_store_tell_all(&world->memory);
}

void md_store_wipe(struct md_world *world)
{
	sim_redis_server_flush(&world->redis);
	sim_etcd_remove_all(&world->etcd.state);
	sim_keys_wipe(&world->http.keys);
	memory_store_wipe(&world->memory);
	memory_store_tell_all(&world->memory);
}

void md_store_light(struct md_world *world)
{
	world->memory.loses_replies = world->redis.server.dark = world->http.server.dark = false;
	md_etcd_light(world);
}

static void heal_server(struct sim_server *server)
{
	server->down = server->dark = false;
	server->still_until_ns = 0;
	server->lag_per_mille = 0;
}

void md_store_serve(struct md_world *world)
{
	world->redis.password = world->options.password ? MD_SECRET : NULL;
	world->redis.refusal = NULL;
	world->http.refusal = 0;
	world->memory.refuse = world->memory.busy = 0;
	md_etcd_serve(world);
}

void md_store_heal(struct md_world *world)
{
	heal_server(&world->redis.server);
	heal_server(&world->http.server);
	md_etcd_heal(world);
	md_store_serve(world);
	world->memory.down = world->memory.loses_replies = false;
}

void md_store_count(struct md_world *world)
{
	struct md_sometimes *sometimes = &world->result->sometimes;
	sometimes->lost += world->redis.server.lost + world->http.server.lost;
	sometimes->repeated += world->http.server.repeated;
	sometimes->notified += world->redis.notices;
	sometimes->lease_ended += world->redis.keys.ended;
	md_etcd_count(world);
}
