/* What goes wrong in the store's cluster, and when. */
#include "tests/sim/st_inside.h"

static void heal(struct sim *sim, void *user, uint64_t argument)
{
	(void)user;
	(void)argument;
	sim_heal(sim);
}

static void pause_one(struct st_world *world, struct st_client *client)
{
	uint64_t ns = sim_random_below(st_chance(world), (uint64_t)world->options.pause_max_ms * MS);
	if (!client->up)
		return;
	sim_node_pause(client->node, ns);
	ST_SEEN(world, paused);
	world->result->sometimes.paused_beyond_lease += ns > (uint64_t)world->options.lease_ms * MS;
}

static void part(struct st_world *world, uint32_t a, uint32_t b)
{
	struct sim_random *random = st_chance(world);
	sim_sever(world->sim, a, b, sim_random_chance(random, 300));
	sim_after(world->sim, sim_random_below(random, (uint64_t)world->options.pause_max_ms * MS), heal, world, 0);
	ST_SEEN(world, partitioned);
}

static bool room_for_another(const struct st_world *world)
{
	return world->grave_count + 2 < ST_GRAVES_MAX && world->sim->node_count + ST_CLIENTS_MAX + 2 < SIM_NODES_MAX;
}

static void master_again(struct sim *sim, void *user, uint64_t argument)
{
	struct st_world *world = user;
	(void)sim;
	(void)argument;
	st_master_start(world, false);
	ST_SEEN(world, master_restarted);
}

static void end_master(struct st_world *world)
{
	if (world->master_count + 1 >= ST_MASTERS_MAX || !room_for_another(world) || world->masters[world->master_count - 1].node->crashed)
		return;
	st_master_crash(world);
	sim_after(world->sim, (1 + sim_random_below(st_chance(world), 3000)) * MS, master_again, world, 0);
}

static void memory_runs_out(struct st_world *world, struct st_client *client)
{
	if (!client->up)
		return;
	world->result->sometimes.memory_failed += client->node->fail_allocation_at < client->node->allocations;
	client->node->fail_allocation_at = client->node->allocations + sim_random_below(st_chance(world), 12);
}

/* --- what comes to one with packets under way -------------------------------------------------------------------------------- */

static void stand_alone(struct st_world *world, uint32_t client)
{
	for (uint32_t i = 0; i <= world->options.clients; i++)
		if (i != client + 1)
			sim_sever(world->sim, client + 1, i, false);
	sim_after(world->sim, sim_random_below(st_chance(world), (uint64_t)world->options.pause_max_ms * MS), heal, world, 0);
	ST_SEEN(world, partitioned);
}

#define CUTS 3u /* there are connections for calls both ways, and of engines */

static void lose_connections(struct st_world *world, uint32_t client)
{
	for (uint32_t i = 0; i < CUTS * world->options.clients; i++) {
		uint32_t other = i % world->options.clients;
		if (other != client && sim_cut_one(world->sim, client + 1, other + 1, true))
			ST_SEEN(world, cut);
	}
}

static void lose_client(struct st_world *world, struct st_client *client, enum st_lost how)
{
	switch (how) {
	case ST_LOST_STOPS:
		pause_one(world, client);
		break;
	case ST_LOST_STOPS_LONG:
		sim_node_pause(client->node, ST_KEPT_NS);
		break;
	case ST_LOST_IS_ALONE:
		stand_alone(world, client->index);
		break;
	case ST_LOST_CRASHES:
		if (!client->leaving && room_for_another(world))
			st_client_crash(client, sim_random_chance(st_chance(world), 300));
		break;
	case ST_LOST_CONNECTIONS:
		lose_connections(world, client->index);
		break;
	}
	st_log(world, "client %u is lost with packets on their way, way %u", client->index, (unsigned)how);
	ST_SEEN(world, lost_with_packets);
}

#define LOOKS_MAX 3000u
#define LOOK_NS MS

static void look_whether_busy(struct sim *sim, void *user, uint64_t argument)
{
	struct st_client *client = user;
	struct st_world *world = client->world;
	enum st_lost how = (enum st_lost)(argument & 0xff);
	if (!client->up || client->incarnation != argument >> 32 || !world->faults || !world->result->ok)
		return;
	if (how == ST_LOST_CONNECTIONS ? sim_process_reads(&client->seat->process) : sim_process_writes(&client->seat->process))
		lose_client(world, client, how);
	else if ((argument >> 8 & 0xffff) < LOOKS_MAX)
		sim_after(sim, LOOK_NS, look_whether_busy, client, argument + 256);
}

void st_fault_when_busy(struct st_world *world, struct st_client *client, enum st_lost how)
{
	sim_after(world->sim, 1 + sim_random_below(st_chance(world), MS), look_whether_busy, client, (uint64_t)client->incarnation << 32 | how);
}

/* --- one thing after the other ------------------------------------------------------------------------------------------------ */

void st_fault(struct sim *sim, void *user, uint64_t argument)
{
	struct st_world *world = user;
	const struct st_options *o = &world->options;
	if (!world->faults || !world->result->ok)
		return;
	struct sim_random *random = st_chance(world);
	uint32_t a = (uint32_t)sim_random_below(random, o->clients), b = (uint32_t)sim_random_below(random, o->clients + 1);
	struct st_client *client = &world->clients[a];
	switch (sim_random_below(random, world->fabric ? 20 : 8)) {
	case 0:
		if (o->faults_pause)
			pause_one(world, client);
		break;
	case 1:
	case 2:
		if (o->faults_cut && sim_cut_one(sim, a + 1, b, sim_random_chance(random, 500)))
			ST_SEEN(world, cut);
		break;
	case 3:
		if (o->faults_partition && a + 1 != b)
			part(world, a + 1, b);
		break;
	case 4:
		if (o->faults_crash && client->up && !client->leaving && room_for_another(world))
			st_client_crash(client, sim_random_chance(random, 300));
		break;
	case 5:
		if (o->faults_leave && st_client_awake(client) && room_for_another(world) && !st_seat_spoiled(client))
			st_client_leave(client);
		break;
	case 6:
		if (o->faults_master)
			end_master(world);
		break;
	case 7:
		if (o->faults_memory)
			memory_runs_out(world, client);
		break;
	default:
		st_fabric_fault(world, client);
		break;
	}
	sim_after(sim, 1 + sim_random_below(random, 2 * (uint64_t)o->fault_period_ms * MS), st_fault, world, argument);
}
