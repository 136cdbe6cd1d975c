/* What goes wrong in the cluster over a metadata store, and when. */
#include "tests/sim/md_inside.h"

uint64_t md_a_while_ns(struct md_world *world)
{
	return 1 + sim_random_below(md_chance(world), world->options.fault_max_ms * MS);
}

/* --- the store ------------------------------------------------------------------------------------------------------------------ */

static void start_store(struct sim *sim, void *user, uint64_t empty)
{
	struct md_world *world = user;
	md_log(world, "the store starts again%s", empty ? ", empty" : "");
	md_store_start(world, empty);
	world->result->sometimes.server_restarted++;
	world->result->sometimes.server_restarted_empty += empty;
	if (!world->faults || world->options.kind != MD_REDIS || !sim_random_chance(md_chance(world), 300))
		return;
	world->redis.loading_until_ns = sim->now_ns + md_a_while_ns(world);
	MD_SEEN(world, loading);
}

static void stop_store(struct md_world *world)
{
	bool empty = world->options.faults_wipe && sim_random_chance(md_chance(world), 400);
	if (world->memory.down || (world->options.kind == MD_ETCD && md_etcd_stop_one(world, md_a_while_ns(world))))
		return;
	md_log(world, "the store ends");
	md_store_stop(world);
	sim_after(world->sim, md_a_while_ns(world), start_store, world, empty);
}

static void wipe_store(struct md_world *world)
{
	md_log(world, "the store loses everything");
	md_store_wipe(world);
	MD_SEEN(world, wiped);
}

static void light_store(struct sim *sim, void *user, uint64_t argument)
{
	(void)sim;
	(void)argument;
	md_store_light(user);
}

/* Whoever connects hears nothing, and what is connected falls silent. */
static void darken_store(struct md_world *world)
{
	struct sim_server *server = md_store_server(world);
	world->memory.loses_replies = true;
	if (server)
		server->dark = true;
	for (int i = 0; server && i < 6; i++)
		(void)sim_server_silence_one(server);
	sim_after(world->sim, md_a_while_ns(world), light_store, world, 0);
	MD_SEEN(world, server_dark);
}

static void serve_again(struct sim *sim, void *user, uint64_t argument)
{
	struct md_world *world = user;
	(void)sim;
	(void)argument;
	md_store_serve(world);
}

static void refuse_service(struct md_world *world)
{
	static const char *const refusals[] = {"READONLY You can't write against a read only replica.",
	                                       "OOM command not allowed when used memory > 'maxmemory'.",
	                                       "MISCONF Redis is configured to save RDB snapshots, but it can't persist to disk.",
	                                       "NOPERM this user has no permissions to run the command"};
	static const int64_t statuses[] = {500, 503, 507, 302};
	uint64_t which = sim_random_below(md_chance(world), 4);
	world->redis.refusal = refusals[which];
	world->http.refusal = statuses[which];
	world->memory.refuse = which == 0 ? NEAP_EREJECTED : which == 1 ? NEAP_ELIMIT : 0;
	world->memory.busy = which == 2 ? NEAP_EAGAIN : 0;
	md_etcd_refuse(world);
	if (world->options.kind == MD_REDIS && sim_random_chance(md_chance(world), 300)) {
		world->redis.password = "another";
		MD_SEEN(world, locked_out);
	}
	sim_after(world->sim, md_a_while_ns(world), serve_again, world, 0);
	MD_SEEN(world, refused);
}

/* Somebody who knows better. */
static void edit_store(struct md_world *world)
{
	uint64_t name = sim_random_below(md_chance(world), world->name_count);
	const struct md_key *keys = world->names[name].keys;
	uint64_t what = sim_random_below(md_chance(world), 3);
	md_log(world, "somebody edits what is stored of '%s'", world->names[name].text);
	md_store_put(world, keys[what == 0 ? MD_DOCUMENT : MD_OWNER].text,
	             what == 2 ? "{\"ip_or_host_name\":\"10.0.0.64\",\"rpc_port\":1}" : NULL);
	MD_SEEN(world, edited);
}

static void stand_still(struct md_world *world)
{
	struct sim_server *server = md_store_server(world);
	if (!server)
		return;
	sim_server_stand_still(server, md_a_while_ns(world));
	MD_SEEN(world, stood_still);
}

static void cut_one(struct md_world *world)
{
	struct sim_server *server = md_store_server(world);
	world->result->sometimes.cut += server && sim_server_cut_one(server);
}

static void silence_one(struct md_world *world)
{
	struct sim_server *server = md_store_server(world);
	world->result->sometimes.silenced += server && sim_server_silence_one(server);
}

static void forget_tracked(struct md_world *world)
{
	if (world->options.kind != MD_REDIS)
		return;
	sim_redis_server_forget_tracked(&world->redis);
	MD_SEEN(world, forgot_tracked);
}

/* --- the processes --------------------------------------------------------------------------------------------------------------- */

static bool room_for_another(const struct md_world *world)
{
	return world->life_count + world->coming + 1 < MD_LIVES_MAX && world->sim->node_count + world->coming + 1 < SIM_NODES_MAX;
}

static void come_again(struct sim *sim, void *user, uint64_t place);

static void comes_again_perhaps(struct md_world *world, const struct md_node *node)
{
	uint64_t after_ns = md_a_while_ns(world);
	if (!sim_random_chance(md_chance(world), 750) || !room_for_another(world))
		return;
	world->coming++;
	sim_after(world->sim, after_ns, come_again, world, node->place);
}

/* At the same address, at another port, on another host. */
static void come_again(struct sim *sim, void *user, uint64_t place)
{
	struct md_world *world = user;
	const struct md_node *old = world->places[place];
	if (old->up) { /* still leaving */
		sim_after(sim, 50 * MS, come_again, world, place);
		return;
	}
	uint64_t where = sim_random_below(md_chance(world), 3);
	uint32_t host = where == 2 && world->next_host + 1 < SIM_NODES_MAX ? world->next_host++ : old->node->host;
	uint16_t port = where == 0 ? old->address.port : world->next_port++;
	world->coming--;
	world->result->sometimes.came_again_there += where == 0;
	world->result->sometimes.came_again_elsewhere += where != 0;
	if (!md_node_start(world, (uint32_t)place, host, port) && world->result->ok)
		comes_again_perhaps(world, world->places[place]);
}

static void heal(struct sim *sim, void *user, uint64_t argument)
{
	(void)user;
	(void)argument;
	sim_heal(sim);
}

static void part(struct md_world *world, struct md_node *node)
{
	const struct md_node *other = world->places[sim_random_below(md_chance(world), world->options.nodes)];
	if (other->node->host == node->node->host)
		return;
	sim_sever(world->sim, node->node->host, other->node->host, sim_random_chance(md_chance(world), 300));
	sim_after(world->sim, md_a_while_ns(world), heal, world, 0);
	MD_SEEN(world, partitioned);
}

static void pause_process(struct md_world *world, struct md_node *node)
{
	uint64_t ns = md_a_while_ns(world);
	world->paused_ns[node->place] += ns;
	sim_node_pause(node->node, ns);
	MD_SEEN(world, paused);
}

static void memory_runs_out(struct md_world *world, struct md_node *node)
{
	world->result->sometimes.memory_failed += node->node->fail_allocation_at < node->node->allocations;
	node->node->fail_allocation_at = node->node->allocations + sim_random_below(md_chance(world), 6);
}

static void crash(struct md_world *world, struct md_node *node)
{
	md_node_crash(node, sim_random_chance(md_chance(world), 300));
	comes_again_perhaps(world, node);
}

static void leave(struct md_world *world, struct md_node *node)
{
	md_node_leave(node);
	comes_again_perhaps(world, node);
	MD_SEEN(world, left);
}

/* --- all of them ------------------------------------------------------------------------------------------------------------------ */

static const struct {
	size_t option;
	void (*to_store)(struct md_world *world);
	void (*to_process)(struct md_world *world, struct md_node *node);
} faults[] = {
	{offsetof(struct md_options, faults_down), stop_store, NULL},       {offsetof(struct md_options, faults_wipe), wipe_store, NULL},
	{offsetof(struct md_options, faults_dark), darken_store, NULL},     {offsetof(struct md_options, faults_refuse), refuse_service, NULL},
	{offsetof(struct md_options, faults_still), stand_still, NULL},     {offsetof(struct md_options, faults_cut), cut_one, NULL},
	{offsetof(struct md_options, faults_silent), silence_one, NULL},    {offsetof(struct md_options, faults_forget), forget_tracked, NULL},
	{offsetof(struct md_options, faults_leader), md_etcd_lose_leader, NULL}, {offsetof(struct md_options, faults_compact), md_etcd_compact, NULL},
	{offsetof(struct md_options, faults_users), md_etcd_change_users, NULL}, {offsetof(struct md_options, faults_tear), md_etcd_tear, NULL},
	{offsetof(struct md_options, faults_edit), edit_store, NULL},       {offsetof(struct md_options, faults_crash), NULL, crash},
	{offsetof(struct md_options, faults_leave), NULL, leave},           {offsetof(struct md_options, faults_part), NULL, part},
	{offsetof(struct md_options, faults_pause), NULL, pause_process},   {offsetof(struct md_options, faults_memory), NULL, memory_runs_out},
};

static bool is_wanted(const struct md_world *world, size_t which)
{
	const char *options = (const char *)&world->options;
	return *(const uint32_t *)(const void *)(options + faults[which].option) != 0;
}

void md_fault(struct sim *sim, void *user, uint64_t argument)
{
	struct md_world *world = user;
	if (!world->faults || !world->result->ok)
		return;
	uint64_t which = sim_random_below(md_chance(world), sizeof faults / sizeof *faults);
	struct md_node *node = world->places[sim_random_below(md_chance(world), world->options.nodes)];
	if (is_wanted(world, which) && faults[which].to_store)
		faults[which].to_store(world);
	else if (is_wanted(world, which) && md_node_is_awake(node))
		faults[which].to_process(world, node);
	sim_after(sim, 1 + sim_random_below(md_chance(world), 2 * world->options.fault_period_ms * MS), md_fault, world, argument);
}

void md_end_faults(struct md_world *world)
{
	md_log(world, "the faults end");
	world->faults = false;
	md_store_heal(world);
	sim_heal(world->sim);
	for (uint32_t i = 0; i < world->life_count; i++) {
		struct sim_node *node = world->lives[i]->node;
		node->fail_allocation_at = UINT64_MAX;
		if (!node->crashed)
			sim_node_resume(node);
	}
}
