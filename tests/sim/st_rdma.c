/* The stores' cluster over RDMA: clients' engines have seats on a network of devices (fabric.h). What goes wrong there that only a store has to
 * stand: who may write is stopped between looking at its deadline and posting, is lost while its packets are held back, and devices do not
 * let go of memory whose grant has ended. */
#include "tests/sim/st_inside.h"
#include "transports/rdma/rdma_inside.h"

#define SLAB_BYTES (UINT64_C(2) << 20) /* the least */
#define CLOSE_LIMIT_NS (60000 * MS)    /* what the kernel refuses to take back is asked for again, for up to 30 s */

void st_fabric_begin(struct st_world *world)
{
	struct st_options *o = &world->options;
	struct sim *sim = world->sim;
	if (!o->devices_max)
		return;
	/* What bytes one by one do is another world's business. */
	sim->net.segment_max = sim->net.segment_max < 1448 ? 1448 : sim->net.segment_max;
	sim->net.window_min = sim->net.window_min < 65536 ? 65536 : sim->net.window_min;
	sim->net.window_max = sim->net.window_max < sim->net.window_min ? sim->net.window_min : sim->net.window_max;
	world->fabric = sim_fabric_new(sim, o->clients, 1, o->devices_max);
	struct sim_verbs *verbs = &world->fabric->verbs;
	verbs->latency_max_ns = o->latency_max_us * UINT64_C(1000);
	verbs->stray_max_ns = o->stray_max_us * UINT64_C(1000);
	verbs->lies = (struct sim_lies){.keys_stay = o->sabotage == ST_SABOTAGE_KEYS_STAY, .reads_empty = o->sabotage == ST_SABOTAGE_READS_EMPTY,
	                                .places_later = o->sabotage == ST_SABOTAGE_PLACES_LATER};
	world->result->sabotaged = verbs->lies.keys_stay || verbs->lies.reads_empty || verbs->lies.places_later;
}

void st_fabric_end(struct st_world *world)
{
	char why[128];
	if (!world->fabric)
		return;
	SIM_FABRIC_COUNT(&world->result->sometimes, world->fabric);
	if (sim_fabric_left(world->fabric, why, sizeof why))
		st_violation(world, "%s", why);
	sim_fabric_free(world->fabric);
	world->fabric = NULL;
}

/* --- a process on it ---------------------------------------------------------------------------------------------------------- */

static void stopped(void *user, uint64_t ns)
{
	const struct sim_seat *seat = user;
	sim_node_pause(seat->node, ns);
}

void st_seat_begin(struct st_client *client)
{
	struct st_world *world = client->world;
	if (!world->fabric || sim_random_chance(st_chance(world), world->options.tcp_per_mille))
		return;
	client->seat = sim_seat_new(world->fabric, client->index, client->node);
	client->seat->process.stopped = stopped;
}

int st_seat_make_engine(struct st_client *client, struct neap_engine_options *options, char *why, size_t why_size)
{
	const struct st_options *o = &client->world->options;
	options->protocol = sim_random_chance(st_chance(client->world), 500) ? "auto" : "rdma";
	options->rdma = (struct neap_rdma_engine_options){
		.endpoints_max = o->endpoints_max, .qps_per_endpoint = o->qps, .sends_max = o->depth, .completions_max = o->completions_max,
		.slab_bytes = SLAB_BYTES, .slice_bytes = o->slice_bytes, .silence_retries = o->silence_retries, .rail_pause_ms = o->rail_pause_ms,
	};
	return sim_seat_make_engine(client->seat, &client->engine, options, why, why_size);
}

static const struct neap_engine *engine_of(const struct st_client *client)
{
	return client->up && client->seat ? client->engine : NULL;
}

void st_seat_count(const struct st_client *client)
{
	const struct neap_rdma *rdma = client->seat ? sim_seat_transport(client->engine) : NULL;
	struct st_sometimes *sometimes = &client->world->result->sometimes;
	struct neap_rdma_initiator_stats stats;
	if (!rdma || !rdma->initiator)
		return;
	neap_rdma_initiator_stats(rdma->initiator, &stats);
	sometimes->piece_posted += stats.pieces_posted;
	sometimes->piece_repeated += stats.pieces_repeated;
	sometimes->peer_fenced += rdma->endpoints ? neap_rdma_endpoints_fences(rdma->endpoints) : 0;
}

/* --- what goes wrong ----------------------------------------------------------------------------------------------------------- */

/* Between looking at its deadline and telling the device. */
static void stops_at_post(struct st_world *world, struct st_client *client)
{
	struct sim_process *process = &client->seat->process;
	process->stop_in = 1 + (uint32_t)sim_random_below(st_chance(world), 6);
	process->stop_ns = 1 + sim_random_below(st_chance(world), ((uint64_t)world->options.lease_ms + world->options.pause_max_ms) * MS);
	ST_SEEN(world, stopped_at_post);
}

static void set_cables(struct sim_fabric *fabric, uint32_t client, bool cut)
{
	uint32_t first = fabric->first[client], last = first + fabric->count[client];
	for (uint32_t mine = first; mine < last; mine++)
		for (uint32_t k = 0; k < fabric->verbs.device_count; k++)
			if (k < first || k >= last)
				sim_verbs_cut(&fabric->verbs, &fabric->verbs.devices[mine], &fabric->verbs.devices[k], cut);
}

static void cables_are_back(struct sim *sim, void *user, uint64_t client)
{
	struct st_world *world = user;
	if (sim->now_ns >= world->held_until_ns[client])
		set_cables(world->fabric, (uint32_t)client, false);
}

/* All cables of a client: what it has sent is held back, and so it may be when nobody remembers it. */
static void hold_packets_back(struct st_world *world, uint32_t client, uint64_t ns)
{
	uint64_t until_ns = world->sim->now_ns + ns;
	set_cables(world->fabric, client, true);
	if (until_ns > world->held_until_ns[client])
		world->held_until_ns[client] = until_ns;
	sim_at(world->sim, until_ns, cables_are_back, world, client);
}

/* With WRITEs of his held back: then it dies, stands still, or hears of nobody. */
static void lost_with_packets(struct st_world *world, struct st_client *client)
{
	const struct st_options *o = &world->options;
	struct sim_random *random = st_chance(world);
	uint32_t how = (uint32_t)sim_random_below(random, 3);
	hold_packets_back(world, client->index, 1 + sim_random_below(random, (uint64_t)o->pause_max_ms * MS));
	if (how == 0 && o->faults_crash)
		st_fault_when_busy(world, client, ST_LOST_CRASHES);
	else if (how == 1 && o->faults_partition)
		st_fault_when_busy(world, client, ST_LOST_IS_ALONE);
	else
		st_fault_when_busy(world, client, ST_LOST_STOPS);
}

static void lets_go(struct sim *sim, void *user, uint64_t device)
{
	struct st_world *world = user;
	if (sim->now_ns >= world->kept_until_ns[device])
		world->fabric->verbs.devices[device].keeps = false;
}

static void keep(struct st_world *world, uint32_t device, uint64_t ns)
{
	uint64_t until_ns = world->sim->now_ns + ns;
	world->fabric->verbs.devices[device].keeps = true;
	if (until_ns > world->kept_until_ns[device])
		world->kept_until_ns[device] = until_ns;
	sim_at(world->sim, until_ns, lets_go, world, device);
}

/* Memory that a device does not let go of in ten tries stays with its process: a store that has such memory never tells that it has closed. */
bool st_seat_spoiled(const struct st_client *client)
{
	return client->seat && client->seat->process.spoiled;
}

bool st_seat_finish(struct st_client *client)
{
	if (!client->seat)
		return false;
	sim_seat_kill(client->seat);
	sim_seat_let_go(client->seat);
	if (!client->seat->process.spoiled && client->world->result->ok)
		return false;
	sim_node_abandon(client->node);
	sim_process_abandon(&client->seat->process);
	return true;
}

/* From here on no device keeps what is his. */
void st_seat_leaves(const struct st_client *client)
{
	struct sim_fabric *fabric = client->world->fabric;
	if (!client->seat)
		return;
	sim_seat_let_go(client->seat);
	for (uint32_t i = 0; i < fabric->count[client->index]; i++)
		fabric->verbs.devices[fabric->first[client->index] + i].keeps = false;
}

/* Longer than the ten tries that it is asked for, sometimes: then the peer is fenced, and not the memory. */
static void device_keeps(struct st_world *world, const struct st_client *client)
{
	uint32_t device = world->fabric->first[client->index] + (uint32_t)sim_random_below(st_chance(world), world->fabric->count[client->index]);
	uint64_t ns = 1 + sim_random_below(st_chance(world), 40000 * MS);
	keep(world, device, ns);
	ST_SEEN(world, region_kept);
}

/* For so long that those who ask have given up, its packets are held back, and nobody else's device lets go. */
static void lost_for_long(struct st_world *world, struct st_client *client)
{
	struct sim_fabric *fabric = world->fabric;
	if (client->owns || world->sim->now_ns < world->lost_until_ns)
		return; /* the others go on */
	world->lost_until_ns = world->sim->now_ns + ST_KEPT_NS;
	hold_packets_back(world, client->index, ST_KEPT_NS - 1 - sim_random_below(st_chance(world), 10000 * MS));
	st_fault_when_busy(world, client, ST_LOST_STOPS_LONG);
	for (uint32_t i = 0; i < world->options.clients; i++)
		for (uint32_t k = 0; i != client->index && k < fabric->count[i] && !world->clients[i].leaving; k++)
			keep(world, fabric->first[i] + k, ST_KEPT_NS);
	ST_SEEN(world, region_kept);
}

/* Who reads does not hear that the owner has given him up, and READs take longer than the new key. */
static void connections_are_lost(struct st_world *world, struct st_client *client)
{
	world->fabric->verbs.latency_max_ns = (UINT64_C(1) << sim_random_below(st_chance(world), 5)) * MS;
	st_fault_when_busy(world, client, ST_LOST_CONNECTIONS);
}

void st_fabric_fault(struct st_world *world, struct st_client *client)
{
	const struct st_options *o = &world->options;
	const struct sim_fabric_faults may = {
		.port = o->faults_port, .device = o->faults_device, .cable = o->faults_cable, .calls = o->faults_calls,
		.helper = o->faults_helper, .retire = o->faults_retire, .late = o->faults_late,
	};
	bool seated = client->up && client->seat;
	switch (sim_random_below(st_chance(world), 8)) {
	case 0:
		if (o->faults_stop && seated)
			stops_at_post(world, client);
		break;
	case 1:
		if (o->faults_lost && seated)
			(o->faults_keep && sim_random_chance(st_chance(world), 500) ? lost_for_long : lost_with_packets)(world, client);
		break;
	case 2:
		if (o->faults_keep && seated && !client->leaving)
			device_keeps(world, client);
		break;
	case 3:
		if (o->faults_cut && o->faults_late && seated)
			connections_are_lost(world, client);
		break;
	default:
		sim_fabric_fault(world->fabric, &may, seated ? client->seat : NULL, st_client_awake(client) ? engine_of(client) : NULL);
		break;
	}
}

/* --- in the end ------------------------------------------------------------------------------------------------------------------ */

void st_fabric_heal(struct st_world *world)
{
	if (!world->fabric)
		return;
	sim_fabric_heal(world->fabric);
	for (uint32_t i = 0; i < world->fabric->verbs.device_count; i++)
		world->fabric->verbs.devices[i].keeps = false;
	for (uint32_t i = 0; i < world->options.clients; i++)
		if (world->clients[i].seat) {
			world->clients[i].seat->process.stop_in = 0;
			sim_seat_let_go(world->clients[i].seat);
		}
}

/* Long enough after the faults for devices to have been tried again; users want nothing. */
void st_fabric_check(struct st_world *world)
{
	char why[128];
	for (uint32_t i = 0; world->fabric && i < world->options.clients; i++) {
		const struct st_client *client = &world->clients[i];
		bool healed = !engine_of(client) || st_seat_spoiled(client) || !sim_seat_healed(client->seat, client->engine, why, sizeof why);
		if (!healed || sim_seat_idle(engine_of(client), why, sizeof why))
			st_violation(world, "client %u: %s", i, why);
	}
}

/* Pieces that have gone over devices; UINT64_MAX: nothing needs to. */
uint64_t st_fabric_posted(const struct st_world *world)
{
	uint64_t posted = 0;
	for (uint32_t i = 0; world->fabric && i < world->options.clients; i++)
		posted += sim_seat_posted(engine_of(&world->clients[i]));
	return posted;
}

bool st_fabric_is_whole(const struct st_world *world)
{
	for (uint32_t i = 0; world->fabric && i < world->options.clients; i++)
		if (!sim_seat_transport(engine_of(&world->clients[i])))
			return false;
	return world->fabric != NULL;
}

static bool all_have_left(void *user)
{
	const struct st_world *world = user;
	for (uint32_t i = 0; i < world->options.clients; i++)
		if (world->clients[i].node && world->clients[i].engine && !world->clients[i].engine_closed && !st_seat_spoiled(&world->clients[i]))
			return !world->result->ok;
	return true;
}

/* Devices end in the world's time: what is under way on them goes on there. */
void st_fabric_leave(struct st_world *world)
{
	if (!world->fabric || !world->result->ok)
		return;
	for (uint32_t i = 0; i < world->options.clients; i++)
		if (world->clients[i].up && !world->clients[i].leaving && !st_seat_spoiled(&world->clients[i])) {
			st_client_count(&world->clients[i]);
			st_client_close(&world->clients[i]);
		}
	if (!sim_run_until(world->sim, all_have_left, world, CLOSE_LIMIT_NS))
		st_violation(world, "not all stores and engines have closed within a minute");
}
