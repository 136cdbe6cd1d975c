/* A run of the cluster from start to end. */
#include "tests/sim/te_inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- failing ----------------------------------------------------------------------------------------------------------------- */

static int write_stderr(void *user, const void *bytes, size_t length)
{
	(void)user;
	return fwrite(bytes, 1, length, stderr) == length ? NEAP_OK : NEAP_ESOCKET;
}

void te_log(const struct te_world *world, const struct te_operation *op, const struct neap_outcome *outcome)
{
	if (!world->logs)
		return;
	fprintf(stderr, "%12.6f %s %u.%u core %u -> %u.%u in %s at 0x%lx+%lu, batch %u.%u%s%s%s", (double)world->sim->now_ns / 1e9,
	        op->request.opcode == NEAP_WRITE ? "write" : "read", op->initiator, op->initiator_incarnation, op->core, op->target,
	        op->target_incarnation, op->where, (unsigned long)op->request.target_offset, (unsigned long)op->request.length, op->batch,
	        op->batch_index, op->cancel_asked ? ", cancel asked" : "", op->deadline ? ", deadline" : "", op->request.grant ? ", grant" : "");
	if (outcome)
		fprintf(stderr, ": status %u effect %u of %lu bytes, cause %u", outcome->status, outcome->effect, (unsigned long)outcome->bytes,
		        outcome->cause);
	fputc('\n', stderr);
}

void te_log_event(const struct te_world *world, const char *format, ...)
{
	if (!world->logs)
		return;
	fprintf(stderr, "%12.6f ", (double)world->sim->now_ns / 1e9);
	va_list arguments;
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

/* With NEAP_SIM_LOG, a violation shows what the machines did last. */
static void print_traces(const struct te_world *world)
{
	if (!world->logs)
		return;
	fprintf(stderr, "%12.6f %s; pending:\n", (double)world->sim->now_ns / 1e9, world->result->what);
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
		if (world->operations[i].used && !world->operations[i].ended)
			te_log(world, &world->operations[i], NULL);
	for (uint32_t i = 0; i < world->options.nodes; i++)
		for (uint32_t k = 0; k < world->nodes[i].core_count; k++) {
			const struct te_node *node = &world->nodes[i];
			const struct sim_node *sim_node = node->cores[k].sim_node;
			if (!sim_node || !sim_node->reactor)
				continue;
			fprintf(stderr, "--- node %u.%u core %u\n", node->index, node->incarnation, k);
			(void)neap_trace_write_text(neap_reactor_dispatcher(sim_node->reactor), write_stderr, NULL);
		}
}

void te_violation(struct te_world *world, const char *format, ...)
{
	if (!world->result->ok)
		return;
	world->result->ok = false;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(world->result->what, sizeof(world->result->what), format, arguments);
	va_end(arguments);
	print_traces(world);
}

bool te_sabotage(struct te_world *world, enum te_sabotage sabotage)
{
	if (world->options.sabotage != sabotage || world->result->sabotaged || world->issued < world->options.operations / 4)
		return false;
	world->result->sabotaged = true;
	return true;
}

/* --- a run --------------------------------------------------------------------------------------------------------------------- */

void te_options_from_seed(uint64_t seed, struct te_options *options_p)
{
	struct sim *sim = sim_create(seed); /* for its network options: sizes must suit windows of a byte */
	struct sim_random *random = &sim->random[SIM_WORKLOAD];
	static const uint32_t sizes[] = {64, 1000, 4096, 20000, 70000};
	bool slow = sim->net.window_max < 4096 || sim->net.segment_max < 1000;
	*options_p = (struct te_options){
		.nodes = 2 + (uint32_t)sim_random_below(random, 3),
		.block_bytes = sizes[sim_random_below(random, slow ? 2 : 5)],
		.blocks_per_stripe = 5,
		.operations = slow ? 60 : 250,
		.inflight_max = 1 + (uint32_t)sim_random_below(random, 16),
		.work_period_us = 500 + (uint32_t)sim_random_below(random, 20000),
		.lanes = 1 + (uint32_t)sim_random_below(random, 3),
		.plain_per_mille = sim_random_chance(random, 400) ? 500 : 0,
		.cores_per_mille = sim_random_chance(random, 300) ? 500 : 0,
		.checksum = sim_random_chance(random, 300),
		.cancel_per_mille = sim_random_chance(random, 500) ? 50 : 0,
		.deadline_per_mille = sim_random_chance(random, 500) ? 50 : 0,
		.batch_max = sim_random_chance(random, 400) ? BATCH_REQUESTS_MAX : 1,
		.keep_per_mille = sim_random_chance(random, 300) ? 300 : 0,
		.slot_per_mille = sim_random_chance(random, 600) ? 400 : 0,
		.bulk_per_mille = !slow && sim_random_chance(random, 50) ? 100 : 0,
		.notify_per_mille = sim_random_chance(random, 300) ? 100 : 0,
		.slot_period_ms = 1 + (uint32_t)sim_random_below(random, 60),
		.fault_period_ms = sim_random_chance(random, 800) ? 10 + (uint32_t)sim_random_below(random, 200) : 0,
		.faults_pause = sim_random_chance(random, 600),
		.faults_cut = sim_random_chance(random, 600),
		.faults_partition = sim_random_chance(random, 600),
		.faults_crash = sim_random_chance(random, 400),
		.faults_leave = sim_random_chance(random, 300),
		.faults_forget = sim_random_chance(random, 300),
		.faults_memory = sim_random_chance(random, 300),
	};
	sim_destroy(sim);
}

void te_rdma_options_without_aim(uint64_t seed, struct te_options *options_p)
{
	te_options_from_seed(seed, options_p);
	struct sim *sim = sim_create(seed);
	struct sim_random *random = &sim->random[SIM_FAULTS];
	static const uint32_t depths[] = {1, 2, 8, 64, 256}, slices[] = {4096, 16384, 65536}, sizes[] = {4096, 20000, 70000};
	bool slow = options_p->operations < 100;
	options_p->plain_per_mille /= 4;
	options_p->cores_per_mille /= 2;
	if (!slow) { /* more is under way at a time: what TCP does is another world's business */
		options_p->operations = 600;
		options_p->fault_period_ms = (options_p->fault_period_ms + 3) / 4;
		options_p->blocks_per_stripe = 8;
		options_p->block_bytes = sizes[sim_random_below(random, 3)];
		options_p->inflight_max = 4 + (uint32_t)sim_random_below(random, 28);
		options_p->work_period_us = 100 + (uint32_t)sim_random_below(random, 5000);
	}
	options_p->slot_period_ms *= 1 + (uint32_t)sim_random_below(random, 8); /* registering takes longer than a turn */
	options_p->rdma = (struct te_rdma_options){
		.on = true,
		.devices_min = 1,
		.devices_max = 1 + (uint32_t)sim_random_below(random, 3),
		.endpoints_max = sim_random_chance(random, 300) ? 1 + (uint32_t)sim_random_below(random, 4) : 64,
		.qps = 1 + (uint32_t)sim_random_below(random, 4),
		.depth = depths[sim_random_below(random, 5)],
		.completions_max = sim_random_chance(random, 300) ? 8 + (uint32_t)sim_random_below(random, 60) : 0,
		.silence_retries = 1 + (uint32_t)sim_random_below(random, 7),
		.slice_bytes = slices[sim_random_below(random, 3)],
		.rail_pause_ms = 1 + (uint32_t)sim_random_below(random, 2000),
		.region_max_bytes = sim_random_chance(random, 300) ? UINT64_C(4096) << sim_random_below(random, 8) : 0,
		.latency_max_us = 1u << sim_random_below(random, 14),
		.stray_max_us = sim_random_chance(random, 700) ? 1u << sim_random_below(random, 21) : 0,
		.faults_port = sim_random_chance(random, 600),
		.faults_device = sim_random_chance(random, 400),
		.faults_cable = sim_random_chance(random, 600),
		.faults_calls = sim_random_chance(random, 400),
		.faults_helper = sim_random_chance(random, 300),
		.faults_retire = sim_random_chance(random, 500),
		.faults_late = sim_random_chance(random, 600),
		.read_per_mille = 400,
		.placed_per_mille = sim_random_chance(random, 400) ? 200 : 0,
	};
	sim_destroy(sim);
}

static bool all_ended(void *user)
{
	struct te_world *world = user;
	if (!world->result->ok)
		return true;
	if (world->issuing || te_calls_owed(world) || te_notes_owed(world))
		return false;
	for (uint32_t i = 0; i < world->options.nodes; i++)
		if (!world->nodes[i].up)
			return false;
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		const struct te_operation *op = &world->operations[i];
		if (op->used && (!op->ended || op->held) && te_is_current(world, op->initiator, op->initiator_incarnation))
			return false;
	}
	return true;
}

static bool safety_over(void *user)
{
	struct te_world *world = user;
	return !world->issuing || !world->result->ok;
}

static void end_faults(struct te_world *world)
{
	world->faults = false;
	sim_heal(world->sim);
	te_fabric_heal(world);
	for (uint32_t i = 0; i < world->options.nodes; i++)
		for (uint32_t k = 0; k < world->nodes[i].core_count; k++)
			if (world->nodes[i].cores[k].sim_node) {
				sim_node_resume(world->nodes[i].cores[k].sim_node);
				world->nodes[i].cores[k].sim_node->fail_allocation_at = UINT64_MAX;
			}
	if (world->fabric)
		te_slots_end_loans(world);
}

/* Devices that failed are tried again every 5 s, queue pairs that are not destroyed every 10 s, three times. */
#define DEVICES_BACK_NS (40000 * MS)

static bool never(void *user)
{
	(void)user;
	return false;
}

/* Faults stop, everything heals; each operation must end, and work must be done again. */
static void liveness(struct te_world *world)
{
	struct sim *sim = world->sim;
	end_faults(world);
	if (!sim_run_until(sim, all_ended, world, 120000 * MS))
		te_violation(world, "an operation did not end within 120 virtual seconds after everything had healed");
	if (world->result->ok && world->fabric) {
		(void)sim_run_until(sim, never, world, DEVICES_BACK_NS);
		te_fabric_check_healed(world);
		te_fabric_check_idle(world);
	}
	if (!world->result->ok || world->options.fault_period_ms == 0)
		return;
	uint64_t completed = world->result->sometimes.remote_completed, posted = te_fabric_posted(world);
	te_fabric_look_again(world);
	world->options.operations = world->issued + 20;
	world->remote_only = true;
	world->options.cancel_per_mille = world->options.deadline_per_mille = 0;
	world->issuing = true;
	sim_after(sim, 1, te_work, world, 0);
	if (!sim_run_until(sim, safety_over, world, 600000 * MS) || !sim_run_until(sim, all_ended, world, 120000 * MS))
		te_violation(world, "the healed cluster does no work");
	if (world->result->ok && world->result->sometimes.remote_completed == completed)
		te_violation(world, "nothing between peers succeeds after everything has healed");
	if (te_fabric_is_whole(world) && te_fabric_posted(world) == posted)
		te_violation(world, "nothing goes over devices after everything has healed");
	if (world->fabric) { /* a path may be probed still */
		(void)sim_run_until(sim, never, world, 5000 * MS);
		te_fabric_check_idle(world);
	}
	world->result->sometimes.completed_after_fault++;
}

static bool all_have_left(void *user)
{
	const struct te_world *world = user;
	for (uint32_t i = 0; i < world->options.nodes; i++)
		if (world->nodes[i].leaving)
			return !world->result->ok;
	return true;
}

/* Devices end in the world's time: what is under way on them goes on there. */
static void leave_all(struct te_world *world)
{
	for (uint32_t i = 0; i < world->options.nodes; i++)
		if (world->nodes[i].up)
			te_node_leave(&world->nodes[i], sim_random_chance(te_chance(world), 300));
	(void)sim_run_until(world->sim, all_have_left, world, 60000 * MS);
}

static void close_all(struct te_world *world)
{
	if (world->result->ok) { /* what was sent has time to arrive */
		(void)sim_run_until(world->sim, never, world, 20 * MS);
		te_check_notes(world);
	}
	if (world->result->ok && sim_random_chance(te_workload(world), 300)) { /* engines that close with work under way */
		world->issuing = true;
		world->options.operations = world->issued + 20;
		sim_after(world->sim, 1, te_work, world, 0);
		(void)sim_run_until(world->sim, safety_over, world, 10000 * MS);
		world->issuing = false;
		world->result->sometimes.close_with_work++;
	}
	world->closing = true;
	if (world->result->ok && world->fabric)
		leave_all(world);
	for (uint32_t i = 0; i < world->options.nodes; i++) {
		struct te_node *node = &world->nodes[i];
		if (node->up)
			te_node_count(node);
		node->up = false;
		te_node_finish(node);
	}
	for (uint32_t i = 0; i < world->grave_count; i++)
		te_node_finish(world->graves[i]);
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
		if (world->operations[i].used && !world->operations[i].ended) {
			te_violation(world, "an operation never completed, not even when its engine closed");
			world->operations[i].ended = true;
		} else if (world->operations[i].used && world->operations[i].held) {
			te_violation(world, "a buffer was never given back, not even when its engine closed");
			world->operations[i].held = false;
		}
	for (uint32_t i = 0; i < world->options.nodes && world->result->ok; i++)
		if (world->nodes[i].blocks)
			te_check_node(world, &world->nodes[i]);
	for (uint32_t i = 0; i < world->grave_count && world->result->ok; i++)
		te_check_node(world, world->graves[i]);
	te_sweep(world, true);
	te_fabric_end(world);
}

static void free_world(struct te_world *world)
{
	for (uint32_t i = 0; i < world->options.nodes; i++)
		te_node_free(&world->nodes[i]);
	for (uint32_t i = 0; i < world->grave_count; i++) {
		te_node_free(world->graves[i]);
		free(world->graves[i]);
	}
	sim_destroy(world->sim);
	free(world);
}

static bool start_all(struct te_world *world)
{
	for (uint32_t i = 0; i < world->options.nodes; i++) {
		struct te_node *node = &world->nodes[i];
		node->world = world;
		node->index = i;
		if (sim_random_chance(te_workload(world), world->options.plain_per_mille))
			node->dialect = (uint8_t)(1 + sim_random_below(te_workload(world), 2));
		if (!te_node_start(node))
			return false;
	}
	return true;
}

void te_run(uint64_t seed, const struct te_options *options, struct te_result *result_p)
{
	struct te_world *world = calloc(1, sizeof(*world));
	if (!world)
		abort();
	memset(result_p, 0, sizeof(*result_p));
	result_p->ok = true;
	world->result = result_p;
	world->logs = getenv("NEAP_SIM_LOG") != NULL;
	if (options)
		world->options = *options;
	else
		te_options_from_seed(seed, &world->options);
	result_p->options = world->options;
	struct sim *sim = world->sim = sim_create(seed);
	te_fabric_begin(world);
	if (start_all(world)) {
		world->issuing = world->faults = true;
		sim_after(sim, 1, te_work, world, 0);
		if (world->options.fault_period_ms)
			sim_after(sim, 100 * MS, te_fault, world, 0);
		if (world->options.slot_per_mille && world->options.slot_period_ms)
			sim_after(sim, 1, te_slots_turn, world, 0);
		(void)sim_run_until(sim, safety_over, world, 60000 * MS);
		world->issuing = false;
		if (result_p->ok)
			liveness(world);
	}
	result_p->sometimes.tiny_budget += sim->host.tiny_budget_per_mille > 0;
	close_all(world);
	result_p->hash = sim->hash;
	result_p->virtual_ns = sim->now_ns;
	result_p->events = sim->events_run;
	result_p->operations = world->issued;
	free_world(world);
}
