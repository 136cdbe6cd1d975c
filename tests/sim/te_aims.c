/* Worlds over devices that are made for one kind of mistake: small clusters with many operations, and the one thing that goes wrong, often. A
 * world with everything in it is at that place at that moment too rarely. What each finds is in docs/SIM.md. */
#include "tests/sim/te_inside.h"

#include <errno.h>
#include <string.h>

static const char *const names[TE_AIM_COUNT] = {
#define TE_AIM(name) #name,
	TE_AIMS(TE_AIM)
#undef TE_AIM
};

const char *te_aim_name(enum te_aim aim)
{
	return names[aim];
}

enum te_aim te_aim_named(const char *name)
{
	uint32_t aim = 0;
	while (aim < TE_AIM_COUNT && strcmp(names[aim], name) != 0)
		aim++;
	return (enum te_aim)aim;
}

static const char *const mistakes[SIM_MISTAKE_COUNT] = {
#define SIM_MISTAKE(name) #name,
	SIM_MISTAKES(SIM_MISTAKE)
#undef SIM_MISTAKE
};

enum sim_mistake te_mistake_named(const char *name)
{
	uint32_t mistake = 0;
	while (mistake < SIM_MISTAKE_COUNT && strcmp(mistakes[mistake], name) != 0)
		mistake++;
	return (enum sim_mistake)mistake;
}

/* --- options ------------------------------------------------------------------------------------------------------------------- */

static uint32_t between(struct sim_random *random, uint32_t least, uint32_t most)
{
	return least + (uint32_t)sim_random_below(random, most - least + 1);
}

/* Two nodes, and nothing goes wrong. Sizes stay small where the network is slow: TCP may have to carry them. */
static void calm(struct te_options *options, struct sim_random *random)
{
	bool slow = options->operations < 100;
	static const uint32_t sizes[] = {4096, 20000, 70000};
	options->nodes = 2;
	options->blocks_per_stripe = 6;
	options->block_bytes = slow ? 1000 : sizes[sim_random_below(random, 3)];
	options->operations = slow ? 200 : 1200;
	options->inflight_max = 16;
	options->plain_per_mille = options->cores_per_mille = options->cancel_per_mille = options->deadline_per_mille = 0;
	options->notify_per_mille = options->slot_per_mille = 0;
	options->faults_pause = options->faults_cut = options->faults_partition = options->faults_crash = false;
	options->faults_leave = options->faults_forget = options->faults_memory = options->checksum = false;
	options->rdma = (struct te_rdma_options){
		.on = true,
		.devices_min = 1,
		.devices_max = 2,
		.endpoints_max = 64,
		.qps = between(random, 1, 2),
		.depth = 64,
		.silence_retries = 1, /* 134 ms of silence */
		.slice_bytes = options->block_bytes > 4096 && sim_random_chance(random, 500) ? 4096 : 65536,
		.rail_pause_ms = 2000,
		.latency_max_us = 200,
		.read_per_mille = 200,
	};
}

/* A WRITE is repeated over another path while what is left of it is in the network, and its block is written again at once. */
static void aim_at_fences(struct te_options *options, struct sim_random *random)
{
	options->work_period_us = 2000;
	options->fault_period_ms = 40;
	options->blocks_per_stripe = 16; /* some are of unknown content in the end */
	options->rdma.devices_min = 2;
	options->rdma.devices_max = 3;
	options->rdma.stray_max_us = 1u << between(random, 16, 20);
	options->rdma.again_per_mille = 600;
	options->rdma.whole_per_mille = 800;
	options->rdma.read_per_mille = 100;
}

/* Operations are canceled, or too late, while nothing moves; what they have is not quiet when their end is told. */
static void aim_at_buffers(struct te_options *options, struct sim_random *random)
{
	options->work_period_us = 2000;
	options->fault_period_ms = 60;
	options->blocks_per_stripe = 24; /* many are of unknown content in the end */
	options->cancel_per_mille = 300;
	options->deadline_per_mille = 300;
	options->rdma.silence_retries = between(random, 1, 7);
	options->rdma.latency_max_us = 1u << between(random, 8, 14);
	options->rdma.stray_max_us = sim_random_chance(random, 500) ? 1u << between(random, 14, 20) : 0;
	options->rdma.read_per_mille = 500;
}

/* Regions and grants end under READs. */
static void aim_at_reads(struct te_options *options, struct sim_random *random)
{
	options->work_period_us = 500;
	options->fault_period_ms = 0;
	options->slot_per_mille = 850;
	options->slot_period_ms = 2;
	options->rdma.latency_max_us = 1u << between(random, 9, 13);
	options->rdma.read_per_mille = 900;
	options->rdma.whole_per_mille = 800;
}

/* Devices place late what they have acknowledged. */
static void aim_at_placed(struct te_options *options, struct sim_random *random)
{
	options->work_period_us = 1000;
	options->fault_period_ms = 200;
	options->rdma.latency_max_us = 1u << between(random, 8, 14);
	options->rdma.again_per_mille = 300;
	options->rdma.whole_per_mille = 500;
	options->rdma.placed_per_mille = 1000;
}

/* Devices fail and come back, and their regions have other keys then. A device is tried again after 5 s. */
static void aim_at_keys(struct te_options *options, struct sim_random *random)
{
	options->operations /= 2;
	options->work_period_us = 40000;
	options->fault_period_ms = 1500;
	options->slot_per_mille = 300;
	options->slot_period_ms = 100;
	options->faults_crash = sim_random_chance(random, 300);
	options->rdma.devices_min = 1 + sim_random_chance(random, 800); /* where there is another path nobody reads the descriptor anew */
	options->rdma.devices_max = 3;
}

/* Grants end under WRITEs that get stuck, and their memory is used for something else at once. */
static void aim_at_grants(struct te_options *options, struct sim_random *random)
{
	options->work_period_us = 500;
	options->fault_period_ms = 30;
	options->nodes = 2 + (uint32_t)sim_random_below(random, 2);
	options->slot_per_mille = 900;
	options->slot_period_ms = between(random, 2, 20);
	options->rdma.latency_max_us = 1u << between(random, 8, 13);
	options->rdma.stray_max_us = sim_random_chance(random, 500) ? 1u << between(random, 14, 19) : 0;
	options->rdma.whole_per_mille = 800;
	options->rdma.read_per_mille = 100;
}

/* Completion queues are small, and full: turns are late. */
static void aim_at_queues(struct te_options *options, struct sim_random *random)
{
	options->work_period_us = 300;
	options->fault_period_ms = 20;
	options->inflight_max = 32;
	options->block_bytes = options->block_bytes < 4096 ? options->block_bytes : 70000;
	options->batch_max = BATCH_REQUESTS_MAX;
	options->blocks_per_stripe = 24;
	options->rdma.devices_max = 1;
	options->rdma.qps = between(random, 1, 4);
	options->rdma.completions_max = between(random, 8, 24);
	options->rdma.slice_bytes = 4096;
	options->rdma.depth = sim_random_chance(random, 700) ? 256 : 1u << between(random, 0, 3);
	options->rdma.latency_max_us = 1u << between(random, 6, 9);
	options->rdma.whole_per_mille = 700;
}

static void (*const aims[TE_AIM_COUNT])(struct te_options *options, struct sim_random *random) = {
	[TE_AIM_fences] = aim_at_fences, [TE_AIM_buffers] = aim_at_buffers, [TE_AIM_reads] = aim_at_reads,   [TE_AIM_placed] = aim_at_placed,
	[TE_AIM_keys] = aim_at_keys,     [TE_AIM_grants] = aim_at_grants,   [TE_AIM_queues] = aim_at_queues,
};

static void take_aim(enum te_aim aim, struct te_options *options, struct sim_random *random)
{
	if (aim == TE_AIM_none)
		return;
	calm(options, random);
	options->rdma.aim = aim;
	aims[aim](options, random);
}

void te_rdma_options_with_aim(uint64_t seed, enum te_aim aim, struct te_options *options_p)
{
	struct sim *sim = sim_create(seed);
	te_rdma_options_without_aim(seed, options_p);
	take_aim(aim, options_p, &sim->random[SIM_FAULTS]);
	sim_destroy(sim);
}

void te_rdma_options_from_seed(uint64_t seed, struct te_options *options_p)
{
	struct sim *sim = sim_create(seed);
	struct sim_random *random = &sim->random[SIM_WORKLOAD];
	enum te_aim aim = (enum te_aim)(1 + sim_random_below(random, TE_AIM_COUNT - 1));
	te_rdma_options_with_aim(seed, sim_random_chance(random, 500) ? aim : TE_AIM_none, options_p);
	sim_destroy(sim);
}

/* --- what goes wrong ------------------------------------------------------------------------------------------------------------- */

static uint32_t device_of(struct te_world *world, uint32_t node)
{
	const struct sim_fabric *fabric = world->fabric;
	return fabric->first[node] + (uint32_t)sim_random_below(te_chance(world), fabric->count[node]);
}

/* The cable between devices of two nodes, or the port of one. */
static void silence(struct te_world *world, uint32_t least_ms, uint32_t most_ms)
{
	struct sim_random *random = te_chance(world);
	uint32_t nodes = world->options.nodes, one = (uint32_t)sim_random_below(random, nodes);
	uint32_t other = (one + 1 + (uint32_t)sim_random_below(random, nodes - 1)) % nodes;
	uint32_t here = device_of(world, one), there = device_of(world, other);
	uint64_t ns = between(random, least_ms, most_ms) * MS;
	if (sim_random_chance(random, 750))
		sim_fabric_cut(world->fabric, here, there, ns);
	else
		sim_fabric_port_down(world->fabric, here, ns);
}

static void standstill(struct te_world *world)
{
	struct te_node *node = &world->nodes[sim_random_below(te_chance(world), world->options.nodes)];
	uint64_t ns = sim_random_below(te_chance(world), 100 * MS);
	if (node->up)
		sim_node_pause(node->cores[0].sim_node, ns);
}

static void helper_stalls(struct te_world *world, const struct te_node *node, uint64_t ns)
{
	if (node->up && node->seat)
		sim_fabric_helper_stalls(world->fabric, node->seat->of, ns);
}

static void heal(struct sim *sim, void *user, uint64_t argument)
{
	(void)user, (void)argument;
	sim_heal(sim);
}

/* For longer than a handshake may take the peer cannot be asked either to destroy its half, or its answer does not come. Nothing else happens
 * meanwhile: another path shall carry what is repeated. */
static void cut_off_altogether(struct te_world *world)
{
	struct sim_random *random = te_chance(world);
	uint32_t cut_ms = between(random, 650, 1200), severed_ms = cut_ms + between(random, 100, 500);
	silence(world, cut_ms, cut_ms);
	sim_sever(world->sim, 0, 1, sim_random_chance(random, 500));
	sim_after(world->sim, severed_ms * MS, heal, world, 0);
	world->quiet_until_ns = world->sim->now_ns + severed_ms * MS;
	world->result->sometimes.partitioned++;
}

/* Mended about when it is given up. */
static void cut_off(struct te_world *world)
{
	struct sim_random *random = te_chance(world);
	if (world->sim->now_ns < world->quiet_until_ns)
		return;
	if (sim_random_chance(random, 60)) {
		cut_off_altogether(world);
		return;
	}
	silence(world, 100, 400);
	if (sim_random_chance(random, 200))
		helper_stalls(world, &world->nodes[sim_random_below(random, 2)], between(random, 5, 300) * MS);
	if (sim_random_chance(random, 200)) /* a queue pair stays as it is */
		sim_verbs_fail(&world->fabric->verbs, SIM_MODIFY_QP, between(random, 1, 4), -EINVAL);
}

bool te_aims_fault(struct te_world *world)
{
	switch (world->options.rdma.aim) {
	case TE_AIM_fences: cut_off(world); break;
	case TE_AIM_buffers: silence(world, 50, 900); break; /* before and after the time that an end may take (DRAIN_MS) */
	case TE_AIM_placed: silence(world, 1, 300); break;
	case TE_AIM_grants: silence(world, 1, 300); break;
	case TE_AIM_keys:
		sim_fabric_device_gone(world->fabric, device_of(world, (uint32_t)sim_random_below(te_chance(world), world->options.nodes)), 50 * MS);
		break;
	case TE_AIM_queues: standstill(world); break;
	case TE_AIM_none:
	case TE_AIM_reads:
	case TE_AIM_COUNT: return false;
	}
	return true;
}

/* --- what is worked on -------------------------------------------------------------------------------------------------------------- */

uint32_t te_aims_block(struct te_world *world, const struct te_operation *op, uint32_t drawn)
{
	if (!world->fabric || world->remote_only || !sim_random_chance(te_workload(world), world->options.rdma.again_per_mille))
		return drawn;
	return world->written[op->initiator][op->target];
}

void te_aims_range(struct te_world *world, struct te_operation *op, uint64_t *length_p)
{
	if (!world->fabric || !sim_random_chance(te_workload(world), world->options.rdma.whole_per_mille))
		return;
	op->offset = 0;
	*length_p = op->bytes;
}

void te_aims_ended(struct te_world *world, const struct te_operation *op)
{
	const struct te_node *target = &world->nodes[op->target];
	if (!op->piece || !target->blocks || strcmp(op->where, "a block") != 0 || op->request.opcode != NEAP_WRITE)
		return;
	uint32_t stripe = world->options.blocks_per_stripe, block = (uint32_t)(op->piece - target->blocks) % stripe;
	if (!op->piece->tainted && block + 1 < stripe)
		world->written[op->initiator][op->target] = block;
}
