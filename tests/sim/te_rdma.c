/* The cluster over RDMA: one network of simulated verbs for all nodes, a process on it for each incarnation, with a topology and a helper of
 * its own; registered memory that buffers come from; what goes wrong with devices; and what must be whole in the end. */
#include "tests/sim/te_inside.h"
#include "transports/engine_state.h"
#include "transports/rdma/rdma_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELPER_NS_MAX (2 * MS)
#define DESTROYS_MAY_FAIL 2u /* after the third time a queue pair is left to the end of the process */

/* --- the network ------------------------------------------------------------------------------------------------------------- */

static void run_fabric(struct sim *sim, void *user, uint64_t sequence)
{
	struct te_fabric *fabric = user;
	(void)sim;
	if (sequence != fabric->sequence)
		return; /* an earlier one was put in its place */
	fabric->armed = false;
	sim_verbs_run(&fabric->verbs);
}

static uint64_t fabric_now_ns(void *user)
{
	return ((struct te_fabric *)user)->sim->now_ns;
}

static void fabric_wake_at(void *user, uint64_t at_ns)
{
	struct te_fabric *fabric = user;
	struct sim *sim = fabric->sim;
	if (fabric->armed && fabric->armed_ns <= at_ns)
		return;
	fabric->armed = true;
	fabric->armed_ns = at_ns;
	sim_at(sim, at_ns > sim->now_ns ? at_ns : sim->now_ns, run_fabric, fabric, ++fabric->sequence);
}

static unsigned descriptor_ready(struct neap_net *net, int fd)
{
	const struct sim_node *node = (const struct sim_node *)(void *)net;
	const struct te_world *world = node->sim->user;
	return sim_verbs_ready(&world->fabric->verbs, fd);
}

static void add_devices(struct te_world *world)
{
	struct te_fabric *fabric = world->fabric;
	for (uint32_t i = 0; i < world->options.nodes; i++) {
		uint32_t count = 1 + (uint32_t)sim_random_below(te_chance(world), world->options.rdma.devices_max);
		fabric->first[i] = fabric->verbs.device_count;
		fabric->count[i] = count;
		for (uint32_t k = 0; k < count; k++) {
			char name[NEAP_TOPOLOGY_NAME_SIZE];
			snprintf(name, sizeof(name), "h%ud%u", i, k);
			sim_verbs_add(&fabric->verbs, name);
		}
	}
}

void te_fabric_begin(struct te_world *world)
{
	if (!world->options.rdma.on)
		return;
	struct te_fabric *fabric = world->fabric = calloc(1, sizeof(*fabric));
	if (!fabric)
		abort();
	fabric->sim = world->sim;
	fabric->clock = (struct sim_verbs_clock){.now_ns = fabric_now_ns, .wake_at = fabric_wake_at, .user = fabric};
	sim_verbs_begin_with(&fabric->verbs, &fabric->clock, sim_random_next(te_chance(world)));
	fabric->verbs.latency_max_ns = world->options.rdma.latency_max_us * UINT64_C(1000);
	fabric->verbs.stray_max_ns = world->options.rdma.stray_max_us * UINT64_C(1000);
	world->sim->user = world;
	world->sim->descriptor_ready = descriptor_ready;
	add_devices(world);
}

void te_fabric_end(struct te_world *world)
{
	struct te_fabric *fabric = world->fabric;
	if (!fabric)
		return;
	world->result->sometimes.stray_landed += fabric->verbs.strays_landed;
	world->result->sometimes.stray_refused += fabric->verbs.strays_refused;
	if (fabric->verbs.overruns)
		te_violation(world, "%u completions did not fit their queue", fabric->verbs.overruns);
	if (fabric->verbs.objects)
		te_violation(world, "%u objects of verbs are left", fabric->verbs.objects);
	fabric->verbs.objects = fabric->verbs.overruns = 0;
	sim_verbs_end(&fabric->verbs);
	free(fabric);
	world->fabric = NULL;
}

/* --- a process on it ---------------------------------------------------------------------------------------------------------- */

static void signaled(void *user)
{
	const struct te_seat *seat = user;
	if (seat->sim_node && seat->sim_node->reactor)
		sim_node_wake(seat->sim_node);
}

/* Each device is near one of two NUMA nodes. */
static void add_row(struct neap_topology *topology, uint32_t numa)
{
	char location[NEAP_TOPOLOGY_LOCATION_SIZE];
	snprintf(location, sizeof(location), "cpu:%u", numa);
	struct neap_topology_row *row = neap_topology_add_row(topology, location);
	for (uint32_t pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < topology->device_count; i++) {
			if ((i % 2 == numa) != (pass == 0))
				continue;
			row->order[row->count++] = (uint8_t)i;
			row->preferred += pass == 0;
		}
}

/* The seat outlives the engine: it goes with the world. */
void te_seat_begin(struct te_node *node)
{
	struct te_fabric *fabric = node->world->fabric;
	node->seat = NULL;
	if (!fabric || node->dialect)
		return;
	struct te_seat *seat = node->seat = calloc(1, sizeof(*seat));
	if (!seat)
		abort();
	uint32_t first = fabric->first[node->index], count = fabric->count[node->index];
	seat->memory = node->arena + BUFFERS_AT;
	seat->sim_node = node->cores[0].sim_node;
	seat->topology = neap_topology_new();
	for (uint32_t i = 0; i < count; i++)
		neap_topology_add_device(seat->topology, fabric->verbs.devices[first + i].name);
	for (uint32_t numa = 0; numa < 2; numa++)
		add_row(seat->topology, numa);
	sim_process_begin(&seat->process, &fabric->verbs, ((1u << count) - 1) << first, signaled, seat);
	sim_helper_begin(&seat->helper, sim_node_reactor(seat->sim_node), 1 + sim_random_below(te_chance(node->world), HELPER_NS_MAX));
}

static struct te_seat *seat_of_engine; /* that is being made; NULL: it joins one */

static int make_transport(struct neap_transport **transport_p, struct neap_engine *engine, char *why, size_t why_size)
{
	struct te_seat *seat = seat_of_engine;
	struct neap_rdma_surroundings surroundings = {0};
	if (seat)
		surroundings = (struct neap_rdma_surroundings){.verbs = &seat->process.verbs, .topology = seat->topology, .helper = &seat->helper.base};
	return neap_rdma_transport_create_in(transport_p, engine, &surroundings, why, why_size);
}

int te_seat_make_engine(struct te_node *node, struct neap_engine **engine_p, struct neap_engine_options *options, char *why, size_t why_size)
{
	const struct te_rdma_options *wanted = &node->world->options.rdma;
	options->protocol = "rdma";
	options->rdma = (struct neap_rdma_engine_options){
		.endpoints_max = wanted->endpoints_max,
		.qps_per_endpoint = wanted->qps,
		.sends_max = wanted->depth,
		.completions_max = wanted->completions_max,
		.region_max_bytes = wanted->region_max_bytes,
		.slice_bytes = wanted->slice_bytes,
		.silence_retries = wanted->silence_retries,
		.rail_pause_ms = wanted->rail_pause_ms,
	};
	seat_of_engine = node->seat;
	int error = neap_engine_create_with(engine_p, sim_node_reactor(node->cores[0].sim_node), options, make_transport, why, why_size);
	seat_of_engine = NULL;
	return error;
}

/* NULL: its engine has none, for want of memory when it began. */
static struct neap_rdma *transport_of(const struct te_node *node)
{
	struct neap_engine *engine = node->cores[0].engine;
	struct neap_transport *remote = engine && node->seat ? engine->remote : NULL;
	if (!remote || strcmp(remote->ops->name, "rdma") != 0)
		return NULL;
	struct neap_rdma *rdma = (struct neap_rdma *)(void *)remote;
	return rdma->ending ? NULL : rdma;
}

void te_seat_count(const struct te_node *node)
{
	const struct neap_rdma *rdma = transport_of(node);
	struct neap_rdma_initiator_stats stats;
	if (!rdma || !rdma->initiator)
		return;
	neap_rdma_initiator_stats(rdma->initiator, &stats);
	node->world->result->sometimes.piece_posted += stats.pieces_posted;
	node->world->result->sometimes.piece_repeated += stats.pieces_repeated;
	node->world->result->sometimes.rail_paused += stats.rails_paused;
	node->world->result->sometimes.rail_probed += stats.probes;
}

void te_seat_kill(struct te_node *node)
{
	if (node->seat && !node->seat->process.dead)
		sim_process_kill(&node->seat->process);
}

/* Closing waits for the system: it answers from now on. */
void te_seat_let_go(const struct te_node *node)
{
	if (node->seat && node->seat->helper.held && node->cores[0].sim_node->reactor)
		sim_helper_hold(&node->seat->helper, false);
}

void te_seat_free(struct te_node *node)
{
	if (!node->seat)
		return;
	neap_topology_free(node->seat->topology);
	free(node->seat);
	node->seat = NULL;
}

/* --- buffers ---------------------------------------------------------------------------------------------------------------------- */

/* Most lie in memory that devices have; NULL: none is free, or this one shall not. */
unsigned char *te_buffer_take(struct te_node *node, struct te_operation *op, size_t bytes)
{
	struct te_seat *seat = node->seat;
	op->seat = NULL;
	if (!seat || bytes == 0 || bytes > BUFFER_BYTES || sim_random_chance(te_workload(node->world), 100))
		return NULL;
	for (uint32_t i = 0; i < BUFFERS; i++) {
		uint32_t slot = (seat->next_buffer + i) % BUFFERS;
		if (seat->used[slot])
			continue;
		seat->used[slot] = true;
		seat->next_buffer = slot + 1;
		op->seat = seat;
		op->buffer = slot;
		return seat->memory + (size_t)slot * BUFFER_STRIDE;
	}
	return NULL;
}

void te_buffer_give(const struct te_operation *op)
{
	op->seat->used[op->buffer] = false;
}

/* --- what goes wrong ----------------------------------------------------------------------------------------------------------------- */

static void port_is_back(struct sim *sim, void *user, uint64_t argument)
{
	struct te_world *world = user;
	(void)sim;
	if (world->fabric && world->faults)
		sim_verbs_set_port(&world->fabric->verbs, &world->fabric->verbs.devices[argument], NEAP_PORT_ACTIVE);
}

static void device_is_back(struct sim *sim, void *user, uint64_t argument)
{
	struct te_world *world = user;
	(void)sim;
	sim_verbs_regain(&world->fabric->verbs.devices[argument]);
}

static void cable_is_back(struct sim *sim, void *user, uint64_t argument)
{
	struct sim_verbs *verbs = &((struct te_world *)user)->fabric->verbs;
	(void)sim;
	sim_verbs_cut(verbs, &verbs->devices[argument >> 8], &verbs->devices[argument & 0xff], false);
}

static void helper_is_back(struct sim *sim, void *user, uint64_t incarnation)
{
	struct te_node *node = user;
	(void)sim;
	if (node->incarnation == incarnation && node->up)
		te_seat_let_go(node);
}

static void port_goes_down(struct te_world *world, uint32_t device, uint64_t ns)
{
	struct sim_verbs *verbs = &world->fabric->verbs;
	sim_verbs_set_port(verbs, &verbs->devices[device], NEAP_PORT_DOWN);
	sim_after(world->sim, ns, port_is_back, world, device);
	world->result->sometimes.port_down++;
}

static void device_goes(struct te_world *world, uint32_t device, uint64_t ns)
{
	struct sim_verbs *verbs = &world->fabric->verbs;
	if (sim_random_chance(te_chance(world), 500))
		sim_verbs_lose(verbs, &verbs->devices[device]);
	else
		sim_verbs_vanish(verbs, &verbs->devices[device]);
	sim_after(world->sim, ns, device_is_back, world, device);
	world->result->sometimes.device_lost++;
}

static void cable_is_cut(struct te_world *world, uint32_t a, uint32_t b, uint64_t ns)
{
	struct sim_verbs *verbs = &world->fabric->verbs;
	if (a == b)
		return;
	sim_verbs_cut(verbs, &verbs->devices[a], &verbs->devices[b], true);
	sim_after(world->sim, ns, cable_is_back, world, (uint64_t)a << 8 | b);
	world->result->sometimes.cable_cut++;
}

static void call_fails(struct te_world *world)
{
	static const struct {
		enum sim_call call;
		int error;
		uint32_t within;
	} calls[] = {
		{SIM_POST_SEND, -ENOMEM, 40},   {SIM_POST_SEND, -EINVAL, 40},  {SIM_MODIFY_QP, -EINVAL, 8},    {SIM_MODIFY_QP, -ETIMEDOUT, 8},
		{SIM_CREATE_QP, -ENOMEM, 4},    {SIM_REGISTER, -ENOMEM, 4},    {SIM_DEREGISTER, -EIO, 4},      {SIM_CREATE_CQ, -ENOMEM, 2},
		{SIM_CREATE_CHANNEL, -EMFILE, 2}, {SIM_QUERY_PORT, -EIO, 3},   {SIM_QUERY_GIDS, -EIO, 3},      {SIM_OPEN, -EIO, 2},
		{SIM_DESTROY_QP, -EIO, 4},      {SIM_ALLOCATE_PD, -ENOMEM, 2}, {SIM_QUERY_DEVICE, -EIO, 2},    {SIM_LIST, -EIO, 2},
	};
	uint32_t which = (uint32_t)sim_random_below(te_chance(world), sizeof(calls) / sizeof(calls[0]));
	if (calls[which].call == SIM_DESTROY_QP && world->fabric->destroys_failed++ >= DESTROYS_MAY_FAIL)
		return;
	sim_verbs_fail(&world->fabric->verbs, calls[which].call, 1 + (uint32_t)sim_random_below(te_chance(world), calls[which].within),
	               calls[which].error);
	world->result->sometimes.call_failed++;
}

static void helper_stalls(struct te_world *world, struct te_node *node, uint64_t ns)
{
	if (!node->up || !node->seat)
		return;
	sim_helper_hold(&node->seat->helper, true);
	sim_after(world->sim, ns, helper_is_back, node, node->incarnation);
	world->result->sometimes.helper_stalled++;
}

static void connections_retire(struct te_world *world, struct te_node *node)
{
	struct neap_rdma *rdma = node->up && te_node_awake(node, 0) ? transport_of(node) : NULL;
	if (!rdma)
		return;
	neap_rdma_transport_retire_endpoints(&rdma->base);
	world->result->sometimes.connections_retired++;
}

void te_fabric_fault(struct te_world *world, struct te_node *node)
{
	const struct te_rdma_options *options = &world->options.rdma;
	struct te_fabric *fabric = world->fabric;
	struct sim_random *random = te_chance(world);
	uint32_t device = (uint32_t)sim_random_below(random, fabric->verbs.device_count);
	uint32_t other = (uint32_t)sim_random_below(random, fabric->verbs.device_count);
	uint64_t ns = 1 + sim_random_below(random, sim_random_chance(random, 700) ? 20 * MS : 2000 * MS);
	switch (sim_random_below(random, 7)) {
	case 0:
		if (options->faults_port)
			port_goes_down(world, device, ns);
		break;
	case 1:
		if (options->faults_device && sim_random_chance(random, 200)) /* it is tried again after 5 s alone */
			device_goes(world, device, ns);
		break;
	case 2:
		if (options->faults_cable)
			cable_is_cut(world, device, other, ns);
		break;
	case 3:
		if (options->faults_calls)
			call_fails(world);
		break;
	case 4:
		if (options->faults_helper)
			helper_stalls(world, node, ns);
		break;
	case 5:
		if (options->faults_retire)
			connections_retire(world, node);
		break;
	default:
		if (options->faults_late) {
			fabric->verbs.latency_max_ns = UINT64_C(1000) << sim_random_below(random, 14);
			fabric->verbs.stray_max_ns = sim_random_chance(random, 500) ? UINT64_C(1000) << sim_random_below(random, 21) : 0;
		}
		break;
	}
}

/* --- in the end ------------------------------------------------------------------------------------------------------------------------ */

void te_fabric_heal(struct te_world *world)
{
	struct te_fabric *fabric = world->fabric;
	if (!fabric)
		return;
	struct sim_verbs *verbs = &fabric->verbs;
	memset(verbs->fail_in, 0, sizeof(verbs->fail_in));
	verbs->latency_max_ns = UINT64_C(50000);
	for (uint32_t i = 0; i < verbs->device_count; i++) {
		for (uint32_t k = 0; k < i; k++)
			sim_verbs_cut(verbs, &verbs->devices[i], &verbs->devices[k], false);
		sim_verbs_regain(&verbs->devices[i]);
		sim_verbs_set_port(verbs, &verbs->devices[i], NEAP_PORT_ACTIVE);
	}
	for (uint32_t i = 0; i < world->options.nodes; i++)
		if (world->nodes[i].up)
			te_seat_let_go(&world->nodes[i]);
}

static void check_devices(struct te_world *world, const struct te_node *node, const struct neap_rdma *rdma)
{
	if (rdma->usable != world->fabric->count[node->index])
		te_violation(world, "node %u has %u of its %u devices back after everything has healed", node->index, rdma->usable,
		             world->fabric->count[node->index]);
	for (uint32_t i = 0; i < node->cores[0].engine->options.regions_max; i++)
		if (rdma->kept[i].wanted && !rdma->kept[i].on_devices && !rdma->kept[i].refused)
			te_violation(world, "a region of node %u is not on its devices after everything has healed", node->index);
}

/* Long enough after the faults for devices to have been tried again. */
void te_fabric_check_healed(struct te_world *world)
{
	for (uint32_t i = 0; world->fabric && i < world->options.nodes; i++) {
		const struct neap_rdma *rdma = world->nodes[i].up ? transport_of(&world->nodes[i]) : NULL;
		if (rdma)
			check_devices(world, &world->nodes[i], rdma);
	}
}

/* Nothing is asked for any more. */
void te_fabric_check_idle(struct te_world *world)
{
	for (uint32_t i = 0; world->fabric && i < world->options.nodes; i++) {
		const struct neap_rdma *rdma = world->nodes[i].up ? transport_of(&world->nodes[i]) : NULL;
		struct neap_rdma_initiator_stats stats;
		if (!rdma || !rdma->initiator)
			continue;
		neap_rdma_initiator_stats(rdma->initiator, &stats);
		if (stats.requests || stats.pieces)
			te_violation(world, "node %u is idle, and has %u requests and %u pieces under way", i, stats.requests, stats.pieces);
	}
}

void te_fabric_look_again(struct te_world *world)
{
	for (uint32_t i = 0; world->fabric && i < world->options.nodes; i++)
		for (uint32_t k = 0; k < world->options.nodes; k++) {
			struct te_link *link = &world->nodes[i].cores[0].links[k];
			if (link->phase != LINK_OPEN)
				continue;
			link->phase = LINK_CLOSED;
			link->peer_incarnation = UINT32_MAX;
		}
}

bool te_fabric_is_whole(const struct te_world *world)
{
	for (uint32_t i = 0; i < world->options.nodes; i++)
		if (!world->nodes[i].up || world->nodes[i].core_count > 1 || !transport_of(&world->nodes[i]))
			return false;
	return world->fabric != NULL;
}

uint64_t te_fabric_posted(const struct te_world *world)
{
	uint64_t posted = 0;
	for (uint32_t i = 0; world->fabric && i < world->options.nodes; i++) {
		const struct neap_rdma *rdma = world->nodes[i].up ? transport_of(&world->nodes[i]) : NULL;
		struct neap_rdma_initiator_stats stats;
		if (!rdma || !rdma->initiator)
			continue;
		neap_rdma_initiator_stats(rdma->initiator, &stats);
		posted += stats.pieces_posted;
	}
	return posted;
}

/* Devices have told of the end of these WRITEs, not of their arrival. */
void te_fabric_place(const struct te_world *world, const struct te_operation *op)
{
	if (world->fabric && op->target_memory)
		sim_verbs_place(&world->fabric->verbs, op->target_memory, op->bytes);
}
