/* What goes wrong, and when: drawn from a random stream of its own, so that one more operation does not move the faults. */
#include "tests/sim/te_inside.h"

static void pause_node(struct te_world *world, struct te_node *node)
{
	struct sim_random *random = te_chance(world);
	uint64_t ns = sim_random_below(random, 4000 * MS);
	bool alone = node->core_count > 1 && sim_random_chance(random, 300); /* a thread that gets no processor */
	uint32_t core = (uint32_t)sim_random_below(random, node->core_count);
	for (uint32_t i = 0; i < node->core_count; i++)
		if (!alone || i == core)
			sim_node_pause(node->cores[i].sim_node, ns);
	world->result->sometimes.node_paused++;
	world->result->sometimes.core_paused_alone += alone;
}

static void heal(struct sim *sim, void *user, uint64_t argument)
{
	(void)user, (void)argument;
	sim_heal(sim);
}

static void part(struct te_world *world, uint32_t a, uint32_t b)
{
	struct sim_random *random = te_chance(world);
	sim_sever(world->sim, a, b, sim_random_chance(random, 300));
	sim_after(world->sim, sim_random_below(random, 3000 * MS), heal, world, 0);
	world->result->sometimes.partitioned++;
}

static void forget_segment(struct te_world *world, struct te_node *node, uint32_t target)
{
	uint32_t core = (uint32_t)sim_random_below(te_chance(world), node->core_count);
	struct te_link *link = &node->cores[core].links[target];
	if (!te_node_awake(node, core) || link->phase != LINK_OPEN)
		return;
	int error = neap_segment_close(node->cores[core].engine, link->segment);
	if (error)
		te_violation(world, "close of an open segment: %s", neap_error_name(error));
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		struct te_operation *op = &world->operations[i];
		if (op->used && op->initiator == node->index && op->core == core && op->target == target)
			op->segment_closed = true;
	}
	*link = (struct te_link){0};
}

static void end_node(struct te_world *world, struct te_node *node, bool leave)
{
	struct sim_random *random = te_chance(world);
	bool awake = node->up;
	for (uint32_t i = 0; awake && i < node->core_count; i++)
		awake = te_node_awake(node, i);
	if (!node->up || world->grave_count + world->options.nodes >= GRAVES_MAX ||
	    world->sim->node_count + 2 * world->options.nodes + 2 > SIM_NODES_MAX)
		return;
	if (!leave)
		te_node_crash(node, sim_random_chance(random, 300));
	else if (awake)
		te_node_leave(node, sim_random_chance(random, 300));
}

static void memory_runs_out(struct te_world *world, struct te_node *node)
{
	struct sim_node *sim_node = node->cores[sim_random_below(te_chance(world), node->core_count)].sim_node;
	if (sim_node->fail_allocation_at < sim_node->allocations)
		world->result->sometimes.alloc_failed_later++;
	sim_node->fail_allocation_at = sim_node->allocations + sim_random_below(te_chance(world), 12);
}

void te_fault(struct sim *sim, void *user, uint64_t argument)
{
	struct te_world *world = user;
	const struct te_options *options = &world->options;
	if (!world->faults || !world->result->ok)
		return;
	struct sim_random *random = te_chance(world);
	uint32_t a = (uint32_t)sim_random_below(random, options->nodes), b = (uint32_t)sim_random_below(random, options->nodes);
	struct te_node *node = &world->nodes[a];
	switch (sim_random_below(random, world->fabric ? 24 : 7)) {
	case 0:
		if (options->faults_pause && node->up)
			pause_node(world, node);
		break;
	case 1:
		/* A plain peer cannot be asked what became of a lane: it is spared what only a Neap peer can stand. */
		if (options->faults_cut && sim_cut_one(sim, a, b, node->dialect || world->nodes[b].dialect))
			world->result->sometimes.connection_cut++;
		break;
	case 2:
		if (options->faults_partition && a != b)
			part(world, a, b);
		break;
	case 3:
		if (options->faults_crash)
			end_node(world, node, false);
		break;
	case 4:
		if (options->faults_leave)
			end_node(world, node, true);
		break;
	case 5:
		if (options->faults_forget && node->up && a != b)
			forget_segment(world, node, b);
		break;
	case 6:
		if (options->faults_memory && node->up)
			memory_runs_out(world, node);
		break;
	default:
		te_fabric_fault(world, node);
		break;
	}
	sim_after(sim, 1 + sim_random_below(random, 2 * options->fault_period_ms * MS), te_fault, world, argument);
}
