/* The cluster over RDMA: each node has a seat on a network of devices (fabric.h), and registered memory that buffers come from. */
#include "tests/sim/te_inside.h"
#include "transports/rdma/rdma_inside.h"

#include <stdlib.h>

void te_fabric_begin(struct te_world *world)
{
	const struct te_rdma_options *options = &world->options.rdma;
	if (!options->on)
		return;
	world->fabric = sim_fabric_new(world->sim, world->options.nodes, options->devices_min, options->devices_max);
	world->fabric->verbs.mistake = options->mistake;
	world->fabric->verbs.latency_max_ns = options->latency_max_us * UINT64_C(1000);
	world->fabric->verbs.stray_max_ns = options->stray_max_us * UINT64_C(1000);
}

static void count(struct te_sometimes *sometimes, const struct sim_fabric *fabric)
{
	SIM_FABRIC_COUNT(sometimes, fabric);
	sometimes->lingered += fabric->verbs.lingered;
	sometimes->packet_caught += fabric->verbs.caught;
}

void te_fabric_end(struct te_world *world)
{
	char why[128];
	if (!world->fabric)
		return;
	count(&world->result->sometimes, world->fabric);
	if (sim_fabric_left(world->fabric, why, sizeof(why)))
		te_violation(world, "%s", why);
	sim_fabric_free(world->fabric);
	world->fabric = NULL;
}

/* --- a process on it ---------------------------------------------------------------------------------------------------------- */

/* It outlives the engine: it goes with the world. */
void te_seat_begin(struct te_node *node)
{
	struct sim_fabric *fabric = node->world->fabric;
	node->seat = NULL;
	if (!fabric || node->dialect)
		return;
	struct te_seat *seat = node->seat = calloc(1, sizeof(*seat));
	if (!seat)
		abort();
	seat->memory = node->arena + BUFFERS_AT;
	seat->of = sim_seat_new(fabric, node->index, node->cores[0].sim_node);
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
	return sim_seat_make_engine(node->seat->of, engine_p, options, why, why_size);
}

/* NULL: it has none to look at. */
static const struct neap_engine *engine_of(const struct te_node *node)
{
	return node->seat && node->up ? node->cores[0].engine : NULL;
}

void te_seat_count(const struct te_node *node)
{
	const struct neap_rdma *rdma = node->seat ? sim_seat_transport(node->cores[0].engine) : NULL;
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
	if (node->seat)
		sim_seat_kill(node->seat->of);
}

void te_seat_let_go(const struct te_node *node)
{
	if (node->seat)
		sim_seat_let_go(node->seat->of);
}

void te_seat_free(struct te_node *node)
{
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

/* --- what goes wrong, and what must be whole in the end ------------------------------------------------------------------------------- */

void te_fabric_fault(struct te_world *world, struct te_node *node)
{
	const struct te_rdma_options *options = &world->options.rdma;
	if (te_aims_fault(world))
		return;
	const struct sim_fabric_faults may = {
		.port = options->faults_port, .device = options->faults_device, .cable = options->faults_cable, .calls = options->faults_calls,
		.helper = options->faults_helper, .retire = options->faults_retire, .late = options->faults_late,
	};
	sim_fabric_fault(world->fabric, &may, node->up && node->seat ? node->seat->of : NULL,
	                 te_node_awake(node, 0) ? engine_of(node) : NULL);
}

void te_fabric_heal(struct te_world *world)
{
	if (!world->fabric)
		return;
	sim_fabric_heal(world->fabric);
	for (uint32_t i = 0; i < world->options.nodes; i++)
		if (world->nodes[i].up)
			te_seat_let_go(&world->nodes[i]);
}

/* Long enough after the faults for devices to have been tried again. */
void te_fabric_check_healed(struct te_world *world)
{
	char why[128];
	for (uint32_t i = 0; world->fabric && i < world->options.nodes; i++)
		if (engine_of(&world->nodes[i]) && sim_seat_healed(world->nodes[i].seat->of, engine_of(&world->nodes[i]), why, sizeof(why)))
			te_violation(world, "node %u: %s", i, why);
}

/* Nothing is asked for any more. */
void te_fabric_check_idle(struct te_world *world)
{
	char why[128];
	for (uint32_t i = 0; world->fabric && i < world->options.nodes; i++)
		if (sim_seat_idle(engine_of(&world->nodes[i]), why, sizeof(why)))
			te_violation(world, "node %u: %s", i, why);
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
		if (!world->nodes[i].up || world->nodes[i].core_count > 1 || !sim_seat_transport(engine_of(&world->nodes[i])))
			return false;
	return world->fabric != NULL;
}

uint64_t te_fabric_posted(const struct te_world *world)
{
	uint64_t posted = 0;
	for (uint32_t i = 0; world->fabric && i < world->options.nodes; i++)
		posted += sim_seat_posted(engine_of(&world->nodes[i]));
	return posted;
}

/* Devices have told of the end of these WRITEs, not of their arrival. */
void te_fabric_place(const struct te_world *world, const struct te_operation *op)
{
	if (world->fabric && op->target_memory)
		sim_verbs_place(&world->fabric->verbs, op->target_memory, op->bytes);
}
