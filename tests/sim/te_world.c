#include "tests/sim/te_world.h"
#include "tests/support/coverage.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MS UINT64_C(1000000)
#define NODES_MAX 6u
#define OPERATIONS_MAX 256u
#define ARENA_BASE UINT64_C(0x200000000000)
#define ARENA_BYTES (UINT64_C(4) << 20)
#define GUARD_BYTES 4096u
#define HANDSHAKE_PORT 15100u
#define DECOY_BYTES 4096u /* a second region that comes and goes, only read: what is refused must be refused honestly */

enum link_phase { LINK_CLOSED, LINK_OPENING, LINK_OPEN };

/* What an initiator knows of a target. */
struct te_link {
	enum link_phase phase;
	neap_segment_id segment;
	uint64_t base;      /* of the target's region, as its descriptor says */
	uint32_t peer_incarnation;
};

struct te_node {
	struct te_world *world;
	uint32_t index, incarnation;
	struct sim_node *sim_node;
	struct neap_engine *engine;
	unsigned char *memory; /* registered region of this incarnation */
	uint64_t memory_bytes;
	unsigned char *decoy; /* behind a gap in the same arena */
	neap_region_id decoy_region; /* 0: not registered now */
	struct te_link links[NODES_MAX];
	uint32_t inflight;
	bool up;
	uint8_t dialect; /* 0: Neap, 1: plain v2, 2: plain v1 */
};

struct te_operation {
	bool used, ended;
	uint32_t initiator, initiator_incarnation, target, target_incarnation, block;
	struct neap_request request;
	unsigned char *target_block; /* in this process's memory: the simulation sees everything */
	unsigned char *before, *after, *local, *poison;
	uint32_t offset;
	neap_batch_id batch;
	bool cancel_asked, deadline, decoy;
};

struct te_world {
	struct sim *sim;
	struct te_options options;
	struct te_result *result;
	struct te_node nodes[NODES_MAX];
	struct te_node *graves[SIM_NODES_MAX]; /* crashed incarnations, finished at the end */
	uint32_t grave_count;
	struct te_operation operations[OPERATIONS_MAX];
	uint32_t used_operations, issued;
	uint8_t *block_busy;      /* [target][initiator][block] */
	uint8_t *block_tainted;   /* its content is one of two, for ever */
	uint32_t arenas;
	bool faults, issuing, remote_only;
	uint32_t closed;
};

static int write_stderr(void *user, const void *bytes, size_t length)
{
	(void)user;
	return fwrite(bytes, 1, length, stderr) == length ? NEAP_OK : NEAP_ESOCKET;
}

static void print_operations(const struct te_world *world)
{
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		const struct te_operation *op = &world->operations[i];
		if (op->used && !op->ended)
			fprintf(stderr, "pending: %s of %lu bytes, node %u.%u -> %u.%u, batch %llx%s%s\n", op->request.opcode == NEAP_WRITE ? "write" : "read",
			        (unsigned long)op->request.length, op->initiator, op->initiator_incarnation, op->target, op->target_incarnation,
			        (unsigned long long)op->batch, op->cancel_asked ? ", cancel asked" : "", op->deadline ? ", deadline" : "");
	}
}

/* With NEAP_SIM_LOG, a violation shows what the machines did last. */
static void print_traces(const struct te_world *world)
{
	if (!getenv("NEAP_SIM_LOG"))
		return;
	print_operations(world);
	for (uint32_t i = 0; i < world->options.nodes; i++) {
		const struct te_node *node = &world->nodes[i];
		if (!node->sim_node || !node->sim_node->reactor)
			continue;
		fprintf(stderr, "--- node %u.%u\n", node->index, node->incarnation);
		(void)neap_trace_write_text(neap_reactor_dispatcher(node->sim_node->reactor), write_stderr, NULL);
	}
}

/* --- failing ----------------------------------------------------------------------------------------------------------------- */

static void violation(struct te_world *world, const char *format, ...) NEAP_PRINTF(2, 3);
static void violation(struct te_world *world, const char *format, ...)
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

static struct sim_random *workload(struct te_world *world)
{
	return &world->sim->random[SIM_WORKLOAD];
}

static struct sim_random *faults(struct te_world *world)
{
	return &world->sim->random[SIM_FAULTS];
}

/* --- memory ---------------------------------------------------------------------------------------------------------------------- */

/* Addresses are the same in every run of a seed: they go into descriptors and so into the trace. */
static unsigned char *arena(struct te_world *world)
{
	void *at = (void *)(uintptr_t)(ARENA_BASE + world->arenas++ * ARENA_BYTES);
	void *memory = mmap(at, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
	if (memory != at)
		abort();
	return memory;
}

static unsigned char pattern(uint64_t version, uint64_t at)
{
	uint64_t x = (version * 0x9E3779B97F4A7C15u) ^ (at * 0xC2B2AE3D27D4EB4Fu);
	x ^= x >> 31;
	return (unsigned char)(x | 1); /* never zero: untouched memory shows */
}

static void fill(unsigned char *memory, size_t length, uint64_t version)
{
	for (size_t i = 0; i < length; i++)
		memory[i] = pattern(version, i);
}

static size_t block_index(const struct te_world *world, uint32_t target, uint32_t initiator, uint32_t block)
{
	return ((size_t)target * NODES_MAX + initiator) * world->options.blocks_per_stripe + block;
}

static uint64_t block_offset(const struct te_world *world, uint32_t initiator, uint32_t block)
{
	return GUARD_BYTES + ((uint64_t)initiator * world->options.blocks_per_stripe + block) * world->options.block_bytes;
}

/* --- nodes ------------------------------------------------------------------------------------------------------------------------ */

static void register_decoy(struct te_node *node)
{
	char why[128];
	struct neap_memory memory = {.address = node->decoy, .length = DECOY_BYTES, .location = "cpu:0"};
	if (neap_memory_register(node->engine, &memory, 1, &node->decoy_region, why, sizeof(why)) != NEAP_OK)
		violation(node->world, "decoy of node %u: %s", node->index, why);
}

static bool node_start(struct te_node *node)
{
	struct te_world *world = node->world;
	char address[32], why[256];
	node->sim_node = sim_node_create(world->sim, node->index);
	sim_node_address(node->sim_node, address, sizeof(address));
	struct neap_engine_options options = {
		.local_name = address,
		.bind_address = address,
		.handshake_port = (uint16_t)(HANDSHAKE_PORT + node->index),
		.lanes_per_peer = world->options.lanes,
		.requests_max = 1024,
		.batches_max = 1024,
		.peers_max = 64,
		.sessions_max = 64,
		.regions_max = 64,
		.grants_max = 64,
		.connect_timeout_ms = 500,
		.handshake_timeout_ms = 500,
		.progress_timeout_ms = 1000,
		.first_header_timeout_ms = 1000,
		.drain_timeout_ms = 200,
		.checksum = world->options.checksum,
		.plain_only = node->dialect != 0,
		.v1_only = node->dialect == 2,
		.v1_sent_is_done = false,
	};
	int error = neap_engine_create(&node->engine, sim_node_reactor(node->sim_node), &options, why, sizeof(why));
	if (error) {
		violation(world, "engine of node %u did not start: %s: %s", node->index, neap_error_name(error), why);
		return false;
	}
	node->memory = arena(world);
	node->memory_bytes = block_offset(world, world->options.nodes, 0) + GUARD_BYTES;
	fill(node->memory, node->memory_bytes, (uint64_t)node->index << 32 | node->incarnation);
	struct neap_memory memory = {.address = node->memory + GUARD_BYTES, .length = node->memory_bytes - 2 * GUARD_BYTES, .location = "cpu:0"};
	error = neap_memory_register(node->engine, &memory, 1, NULL, why, sizeof(why));
	if (error) {
		violation(world, "memory of node %u: %s", node->index, why);
		return false;
	}
	node->decoy = node->memory + ARENA_BYTES / 2;
	fill(node->decoy, DECOY_BYTES, node->index);
	register_decoy(node);
	memset(node->links, 0, sizeof(node->links));
	node->inflight = 0;
	node->up = true;
	return true;
}

static void engine_closed(void *user)
{
	((struct te_world *)user)->closed++;
}

static void close_engine(struct sim_node *sim_node, void *user)
{
	(void)sim_node;
	struct te_node *node = user;
	if (node->engine && neap_engine_close(node->engine, engine_closed, node->world) != NEAP_OK)
		violation(node->world, "engine of node %u refuses to close", node->index);
}

static void finish_node(struct te_node *node)
{
	if (node->sim_node && node->sim_node->reactor) {
		support_cover(neap_reactor_dispatcher(node->sim_node->reactor));
		sim_node_finish(node->sim_node, node->engine ? close_engine : NULL, node);
	}
}

/* --- opening ------------------------------------------------------------------------------------------------------------------------ */

struct opening {
	struct te_node *node;
	uint32_t target, incarnation;
};

static void learn_base(struct te_node *node, uint32_t target)
{
	struct te_link *link = &node->links[target];
	struct te_node *peer = &node->world->nodes[target];
	uint64_t address, length;
	if (neap_segment_buffer(node->engine, link->segment, 0, &address, &length) != NEAP_OK) {
		link->phase = LINK_CLOSED;
		return;
	}
	link->base = address - GUARD_BYTES;
	link->peer_incarnation = UINT32_MAX; /* an older incarnation's, unless it is where the present one lies */
	if (link->base == (uint64_t)(uintptr_t)peer->memory)
		link->peer_incarnation = peer->incarnation;
	link->phase = LINK_OPEN;
}

static void opened(void *user, int error, neap_segment_id segment, const char *why)
{
	(void)why;
	struct opening *opening = user;
	struct te_node *node = opening->node;
	if (node->incarnation == opening->incarnation && node->up) {
		struct te_link *link = &node->links[opening->target];
		link->phase = LINK_CLOSED;
		if (error == NEAP_OK) {
			link->segment = segment;
			learn_base(node, opening->target);
		}
	}
	free(opening);
}

static void open_link(struct te_node *node, uint32_t target)
{
	struct te_link *link = &node->links[target];
	struct te_world *world = node->world;
	char name[64];
	snprintf(name, sizeof(name), "10.0.0.%u:%u", target + 1, HANDSHAKE_PORT + target);
	struct opening *opening = calloc(1, sizeof(*opening));
	if (!opening)
		abort();
	*opening = (struct opening){.node = node, .target = target, .incarnation = node->incarnation};
	link->phase = LINK_OPENING;
	int error = link->segment && link->peer_incarnation != world->nodes[target].incarnation
	                    ? neap_segment_refresh(node->engine, link->segment, opened, opening)
	                    : neap_segment_open(node->engine, name, opened, opening);
	if (error) {
		link->phase = LINK_CLOSED;
		link->segment = 0;
		free(opening);
	}
}

/* --- checking ------------------------------------------------------------------------------------------------------------------------ */

static void check_block(struct te_world *world, const struct te_operation *op, const struct neap_outcome *outcome, const char *when)
{
	uint32_t length = world->options.block_bytes;
	uint64_t bytes = outcome->effect == NEAP_EFFECT_PARTIAL ? outcome->bytes : 0;
	for (uint32_t i = 0; i < length; i++) {
		unsigned char have = op->target_block[i];
		bool inside = i >= op->offset && i < op->offset + op->request.length;
		bool new_wanted = inside && (outcome->effect == NEAP_EFFECT_ALL || i < op->offset + bytes);
		bool either = inside && outcome->effect == NEAP_EFFECT_UNKNOWN;
		if (have == (new_wanted ? op->after[i] : op->before[i]) || (either && have == op->after[i]))
			continue;
		violation(world, "%s: write %u->%u block %u byte %u of [%u,+%lu): effect %u status %u cause %u, but the byte is %s", when,
		          op->initiator, op->target, op->block, i, op->offset, (unsigned long)op->request.length, outcome->effect,
		          outcome->status, outcome->cause, have == op->after[i] ? "new" : have == op->before[i] ? "old" : "neither");
		return;
	}
}

static void count_outcome(struct te_world *world, const struct te_operation *op, const struct neap_outcome *outcome)
{
	struct te_sometimes *seen = &world->result->sometimes;
	bool write = op->request.opcode == NEAP_WRITE;
	if (outcome->status == NEAP_COMPLETED) {
		world->result->completed++;
		write ? seen->write_completed++ : seen->read_completed++;
		if (op->initiator == op->target)
			seen->local_transfer++;
		else
			seen->remote_completed++;
	} else {
		world->result->failed++;
	}
	if (write && outcome->effect == NEAP_EFFECT_UNKNOWN) {
		world->result->unknown++;
		seen->write_effect_unknown++;
	}
	if (write && outcome->status == NEAP_FAILED && outcome->effect == NEAP_EFFECT_NONE)
		seen->write_failed_no_effect++;
	seen->timed_out += outcome->status == NEAP_TIMEOUT;
	seen->refused_by_peer += outcome->cause == NEAP_CAUSE_REFUSED_BY_PEER;
	seen->range_refused_after_restart += outcome->cause == NEAP_CAUSE_RANGE_NOT_REMOTE;
	if (outcome->status == NEAP_CANCELED && op->cancel_asked)
		outcome->effect == NEAP_EFFECT_NONE ? seen->canceled_queued++ : seen->canceled_under_way++;
}

static void check_outcome_shape(struct te_world *world, const struct te_operation *op, const struct neap_outcome *outcome)
{
	if (outcome->status < NEAP_CANCELED || outcome->status > NEAP_FAILED)
		violation(world, "completion with status %u", outcome->status);
	if (outcome->status == NEAP_COMPLETED && outcome->effect != NEAP_EFFECT_ALL)
		violation(world, "COMPLETED with effect %u", outcome->effect);
	if (outcome->status == NEAP_CANCELED && !op->cancel_asked && world->nodes[op->initiator].up && world->issuing)
		violation(world, "CANCELED, but nobody canceled (cause %u)", outcome->cause);
	if (outcome->cause == NEAP_CAUSE_BATCH_DEADLINE && !op->deadline)
		violation(world, "a deadline nobody set");
	if (outcome->status == NEAP_FAILED && outcome->cause == NEAP_CAUSE_INTERNAL)
		violation(world, "internal cause");
}

static void recycle(struct te_world *world, struct te_operation *op)
{
	free(op->before);
	free(op->after);
	free(op->local);
	free(op->poison);
	op->used = false;
	world->used_operations--;
}

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	(void)batch, (void)index;
	struct te_world *world = user;
	struct te_operation *op = request_user;
	if (!op->used || op->ended) {
		violation(world, "an operation completed twice");
		return;
	}
	op->ended = true;
	struct te_node *initiator = &world->nodes[op->initiator], *target = &world->nodes[op->target];
	if (initiator->incarnation == op->initiator_incarnation)
		initiator->inflight--;
	check_outcome_shape(world, op, outcome);
	count_outcome(world, op, outcome);
	size_t block = block_index(world, op->target, op->initiator, op->block);
	bool same_target = target->incarnation == op->target_incarnation;
	bool initiator_dead = initiator->incarnation != op->initiator_incarnation || !initiator->up;
	if (op->decoy) {
		if (outcome->status == NEAP_COMPLETED && memcmp(op->local, op->target_block + op->offset, op->request.length) != 0)
			violation(world, "a read of the decoy COMPLETED with other bytes");
	} else if (op->request.opcode == NEAP_WRITE) {
		check_block(world, op, outcome, "at completion");
		if (same_target && (outcome->effect == NEAP_EFFECT_UNKNOWN || initiator_dead))
			world->block_tainted[block] = 1;
	} else if (outcome->status == NEAP_COMPLETED &&
	           memcmp(op->local, op->target_block + op->offset, op->request.length) != 0) {
		violation(world, "read %u<-%u block %u: COMPLETED with other bytes", op->initiator, op->target, op->block);
	}
	if (outcome->buffer != NEAP_BUFFER_YOURS)
		violation(world, "TCP and local transports never hold a buffer");
	/* The buffer is the user's again: whoever still reads it sends poison, whoever still writes it is seen at the end. */
	fill(op->local, op->request.length, UINT64_C(0xDEAD0000) + world->issued);
	memcpy(op->poison, op->local, op->request.length);
	if (same_target && !op->decoy)
		world->block_busy[block] = 0;
	if ((outcome->cause == NEAP_CAUSE_RANGE_NOT_REMOTE && !op->decoy) || outcome->cause == NEAP_CAUSE_OTHER_INSTANCE)
		initiator->links[op->target].phase = LINK_CLOSED;
}

/* Poisoned buffers stay for a while, then are compared and freed. */
static void sweep(struct te_world *world, bool all)
{
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		struct te_operation *op = &world->operations[i];
		if (!op->used || !op->ended || (!all && world->used_operations < OPERATIONS_MAX / 2))
			continue;
		if (memcmp(op->local, op->poison, op->request.length) != 0)
			violation(world, "a buffer changed after its operation had completed");
		recycle(world, op);
	}
}

/* --- workload ------------------------------------------------------------------------------------------------------------------------- */

static struct te_operation *free_operation(struct te_world *world)
{
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
		if (!world->operations[i].used)
			return &world->operations[i];
	return NULL;
}

static void cancel_later(struct sim *sim, void *user, uint64_t argument)
{
	(void)sim;
	struct te_world *world = user;
	struct te_operation *op = &world->operations[argument & 0xffff];
	struct te_node *node = &world->nodes[op->initiator];
	if (!op->used || op->ended || (uint32_t)(argument >> 16) != (uint32_t)op->batch || !node->up ||
	    node->incarnation != op->initiator_incarnation)
		return;
	op->cancel_asked = true;
	if (neap_request_cancel(node->engine, op->batch, 0) != NEAP_OK)
		violation(world, "cancel of a pending request failed");
}

static void prepare_operation(struct te_world *world, struct te_operation *op, struct te_node *node, struct te_node *target,
                              uint32_t block)
{
	struct sim_random *random = workload(world);
	uint32_t bytes = world->options.block_bytes;
	op->offset = (uint32_t)sim_random_below(random, bytes);
	uint64_t length = sim_random_chance(random, 30) ? 0 : 1 + sim_random_below(random, bytes - op->offset);
	op->target_block = target->memory + block_offset(world, node->index, block);
	op->before = malloc(bytes);
	op->after = malloc(bytes);
	op->local = malloc(length + 1);
	op->poison = malloc(length + 1);
	if (!op->before || !op->after || !op->local || !op->poison)
		abort();
	memcpy(op->before, op->target_block, bytes);
	memcpy(op->after, op->before, bytes);
	fill(op->local, length, UINT64_C(1) << 40 | world->issued);
	op->decoy = bytes <= DECOY_BYTES && sim_random_chance(random, 100);
	if (op->decoy)
		op->target_block = target->decoy;
	bool write = !op->decoy && sim_random_chance(random, 600);
	if (write)
		memcpy(op->after + op->offset, op->local, length);
	op->request = (struct neap_request){
		.opcode = write ? NEAP_WRITE : NEAP_READ,
		.source = op->local,
		.segment = node->index == target->index ? NEAP_LOCAL_SEGMENT : node->links[target->index].segment,
		.target_offset = (uint64_t)(uintptr_t)(op->target_block + op->offset),
		.length = length,
		.user = op,
	};
}

static void issue(struct te_world *world, struct te_node *node)
{
	struct sim_random *random = workload(world);
	struct te_node *target = &world->nodes[sim_random_below(random, world->options.nodes)];
	/* the last block is kept for the time after the faults: others may be of unknown content for ever */
	uint32_t last = world->options.blocks_per_stripe - 1;
	uint32_t block = world->remote_only ? last : (uint32_t)sim_random_below(random, last);
	size_t index = block_index(world, target->index, node->index, block);
	struct te_link *link = &node->links[target->index];
	if (target == node && world->remote_only)
		return;
	if (target != node) {
		if (link->phase == LINK_CLOSED)
			open_link(node, target->index);
		if (link->phase != LINK_OPEN)
			return;
		if (link->peer_incarnation != target->incarnation) {
			link->phase = LINK_CLOSED;
			return;
		}
	}
	struct te_operation *op = free_operation(world);
	if (!op || world->block_busy[index] || world->block_tainted[index])
		return;
	*op = (struct te_operation){.used = true, .initiator = node->index, .initiator_incarnation = node->incarnation,
	                            .target = target->index, .target_incarnation = target->incarnation, .block = block};
	world->used_operations++;
	prepare_operation(world, op, node, target, block);
	op->deadline = sim_random_chance(random, world->options.deadline_per_mille);
	struct neap_batch_options options = {
		.on_request = on_request,
		.user = world,
		.deadline_ns = op->deadline ? world->sim->now_ns + sim_random_below(random, 300 * MS) : 0,
	};
	int error = neap_submit(node->engine, &op->request, 1, &options, &op->batch);
	if (error) {
		if (error != NEAP_EAGAIN && error != NEAP_ESTALE)
			violation(world, "submit: %s", neap_error_name(error));
		if (error == NEAP_ESTALE)
			*link = (struct te_link){0};
		recycle(world, op);
		return;
	}
	if (!op->decoy)
		world->block_busy[index] = 1;
	world->issued++;
	node->inflight++;
	if (sim_random_chance(random, world->options.cancel_per_mille))
		sim_after(world->sim, sim_random_below(random, 20 * MS), cancel_later, world,
		          (uint64_t)(uint32_t)op->batch << 16 | (uint64_t)(op - world->operations));
}

static void work(struct sim *sim, void *user, uint64_t argument)
{
	struct te_world *world = user;
	if (!world->result->ok)
		return;
	sweep(world, false);
	struct te_node *node = &world->nodes[sim_random_below(workload(world), world->options.nodes)];
	bool awake = node->up && !(node->sim_node->paused && sim->now_ns < node->sim_node->paused_until_ns);
	if (awake && node->inflight < world->options.inflight_max && world->issuing)
		issue(world, node);
	if (world->issuing && world->issued < world->options.operations)
		sim_after(sim, 1 + sim_random_below(workload(world), UINT64_C(2000) * world->options.work_period_us), work, world, argument);
	else
		world->issuing = false;
}

/* --- faults ------------------------------------------------------------------------------------------------------------------------------ */

static void toggle_decoy(struct te_node *node)
{
	if (!node->up || node->sim_node->paused)
		return;
	if (!node->decoy_region) {
		register_decoy(node);
	} else {
		if (neap_memory_unregister(node->engine, node->decoy_region, NULL, NULL) == NEAP_OK)
			node->decoy_region = 0;
	}
}

static void forget_target(struct te_world *world, uint32_t target)
{
	for (uint32_t initiator = 0; initiator < NODES_MAX; initiator++)
		for (uint32_t block = 0; block < world->options.blocks_per_stripe; block++) {
			size_t index = block_index(world, target, initiator, block);
			world->block_busy[index] = world->block_tainted[index] = 0;
		}
}

/* A new process with the same name, at another place in memory. */
static void restart(struct sim *sim, void *user, uint64_t argument)
{
	(void)sim;
	struct te_world *world = user;
	struct te_node *node = &world->nodes[argument];
	node->incarnation++;
	if (node_start(node))
		world->result->sometimes.peer_restarted++;
	for (uint32_t target = 0; target < world->options.nodes; target++) /* what the dead one had under way on others is unknown */
		for (uint32_t block = 0; block < world->options.blocks_per_stripe; block++) {
			size_t index = block_index(world, target, node->index, block);
			if (world->block_busy[index] && target != node->index)
				world->block_tainted[index] = 1;
			world->block_busy[index] = 0;
		}
	forget_target(world, node->index);
}

static void crash(struct te_world *world, struct te_node *node)
{
	if (!node->up || world->grave_count == 16)
		return;
	struct te_node *grave = malloc(sizeof(*grave));
	if (!grave)
		abort();
	*grave = *node;
	world->graves[world->grave_count++] = grave;
	node->up = false;
	sim_node_crash(node->sim_node, sim_random_chance(faults(world), 300));
	sim_after(world->sim, 1 + sim_random_below(faults(world), 2000 * MS), restart, world, node->index);
}

static void heal(struct sim *sim, void *user, uint64_t argument)
{
	(void)user, (void)argument;
	sim_heal(sim);
}

static void fault(struct sim *sim, void *user, uint64_t argument)
{
	struct te_world *world = user;
	const struct te_options *options = &world->options;
	if (!world->faults || !world->result->ok)
		return;
	struct sim_random *random = faults(world);
	uint32_t a = (uint32_t)sim_random_below(random, options->nodes), b = (uint32_t)sim_random_below(random, options->nodes);
	if (sim_random_chance(random, 300))
		toggle_decoy(&world->nodes[sim_random_below(random, options->nodes)]);
	switch (sim_random_below(random, 4)) {
	case 0:
		if (options->faults_pause && world->nodes[a].up) {
			sim_node_pause(world->nodes[a].sim_node, sim_random_below(random, 4000 * MS));
			world->result->sometimes.node_paused++;
		}
		break;
	case 1:
		if (options->faults_cut && sim_cut_one(sim, a, b))
			world->result->sometimes.connection_cut++;
		break;
	case 2:
		if (options->faults_partition && a != b) {
			sim_sever(sim, a, b, sim_random_chance(random, 300));
			sim_after(sim, sim_random_below(random, 3000 * MS), heal, world, 0);
			world->result->sometimes.partitioned++;
		}
		break;
	default:
		if (options->faults_crash)
			crash(world, &world->nodes[a]);
		break;
	}
	sim_after(sim, 1 + sim_random_below(random, 2 * options->fault_period_ms * MS), fault, world, argument);
}

/* --- a run ---------------------------------------------------------------------------------------------------------------------------------- */

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
		.plain_per_mille = sim_random_chance(random, 500) ? 500 : 0,
		.checksum = sim_random_chance(random, 300),
		.cancel_per_mille = sim_random_chance(random, 500) ? 50 : 0,
		.deadline_per_mille = sim_random_chance(random, 500) ? 50 : 0,
		.fault_period_ms = sim_random_chance(random, 800) ? 10 + (uint32_t)sim_random_below(random, 300) : 0,
		.faults_pause = sim_random_chance(random, 700),
		.faults_cut = sim_random_chance(random, 700),
		.faults_partition = sim_random_chance(random, 700),
		.faults_crash = sim_random_chance(random, 500),
	};
	sim_destroy(sim);
}

static bool all_ended(void *user)
{
	struct te_world *world = user;
	if (!world->result->ok)
		return true;
	if (world->issuing)
		return false;
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		const struct te_operation *op = &world->operations[i];
		if (op->used && !op->ended && world->nodes[op->initiator].up &&
		    world->nodes[op->initiator].incarnation == op->initiator_incarnation)
			return false;
	}
	for (uint32_t i = 0; i < world->options.nodes; i++)
		if (!world->nodes[i].up)
			return false;
	return true;
}

static bool safety_over(void *user)
{
	struct te_world *world = user;
	return !world->issuing || !world->result->ok;
}

static void check_guards(struct te_world *world, const struct te_node *node)
{
	uint64_t version = (uint64_t)node->index << 32 | node->incarnation;
	for (uint64_t i = 0; i < node->memory_bytes; i++) {
		if (i == GUARD_BYTES)
			i = node->memory_bytes - GUARD_BYTES;
		if (node->memory[i] != pattern(version, i)) {
			violation(world, "a byte outside the registered region of node %u was changed", node->index);
			return;
		}
	}
}

static void add_engine_statistics(struct te_world *world, struct te_node *node)
{
	struct neap_engine_stats stats;
	neap_engine_stats(node->engine, &stats);
	world->result->sometimes.request_repeated += stats.requests_repeated;
	world->result->sometimes.descriptor_refreshed += stats.descriptor_refreshes;
	if (stats.requests_completed > 0 && node->dialect == 0)
		world->result->sometimes.neap_lane++;
	if (stats.requests_completed > 0 && node->dialect == 1)
		world->result->sometimes.plain_v2_lane++;
	if (stats.requests_completed > 0 && node->dialect == 2)
		world->result->sometimes.plain_v1_lane++;
}

/* Faults stop, everything heals; each operation must end, and a fresh one to every peer must succeed. */
static void liveness(struct te_world *world)
{
	struct sim *sim = world->sim;
	world->faults = false;
	sim_heal(sim);
	for (uint32_t i = 0; i < world->options.nodes; i++)
		world->nodes[i].sim_node->paused_until_ns = sim->now_ns;
	if (!sim_run_until(sim, all_ended, world, 120000 * MS))
		violation(world, "an operation did not end within 120 virtual seconds after everything had healed");
	if (world->options.fault_period_ms == 0)
		return;
	uint64_t completed = world->result->sometimes.remote_completed;
	world->options.operations = world->issued + 20;
	world->remote_only = true;
	world->options.cancel_per_mille = world->options.deadline_per_mille = 0;
	world->issuing = true;
	sim_after(sim, 1, work, world, 0);
	if (!sim_run_until(sim, safety_over, world, 600000 * MS) || !sim_run_until(sim, all_ended, world, 120000 * MS))
		violation(world, "the healed cluster does no work");
	if (world->result->ok && world->result->sometimes.remote_completed == completed)
		violation(world, "nothing between peers succeeds after everything has healed");
	world->result->sometimes.completed_after_fault++;
}

static void close_all(struct te_world *world)
{
	bool work_left = world->result->ok && sim_random_chance(workload(world), 300);
	if (work_left) { /* engines that close with work under way */
		world->issuing = true;
		world->options.operations = world->issued + 20;
		sim_after(world->sim, 1, work, world, 0);
		(void)sim_run_until(world->sim, safety_over, world, 10000 * MS);
		world->issuing = false;
		world->result->sometimes.close_with_work++;
	}
	for (uint32_t i = 0; i < world->options.nodes; i++) {
		struct te_node *node = &world->nodes[i];
		if (node->up)
			add_engine_statistics(world, node);
		node->up = false;
		finish_node(node);
	}
	for (uint32_t i = 0; i < world->grave_count; i++) {
		finish_node(world->graves[i]);
		if (world->result->ok)
			check_guards(world, world->graves[i]);
		free(world->graves[i]);
	}
	for (uint32_t i = 0; i < world->options.nodes && world->result->ok; i++)
		check_guards(world, &world->nodes[i]);
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
		if (world->operations[i].used && !world->operations[i].ended) {
			violation(world, "an operation never completed, not even when its engine closed");
			world->operations[i].ended = true;
		}
	if (world->result->ok)
		sweep(world, true);
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
		if (world->operations[i].used)
			recycle(world, &world->operations[i]);
}

void te_run(uint64_t seed, const struct te_options *options, struct te_result *result_p)
{
	struct te_world *world = calloc(1, sizeof(*world));
	if (!world)
		abort();
	memset(result_p, 0, sizeof(*result_p));
	result_p->ok = true;
	world->result = result_p;
	if (options)
		world->options = *options;
	else
		te_options_from_seed(seed, &world->options);
	result_p->options = world->options;
	struct sim *sim = world->sim = sim_create(seed);
	size_t blocks = (size_t)NODES_MAX * NODES_MAX * world->options.blocks_per_stripe;
	world->block_busy = calloc(blocks, 1);
	world->block_tainted = calloc(blocks, 1);
	if (!world->block_busy || !world->block_tainted)
		abort();
	for (uint32_t i = 0; i < world->options.nodes; i++) {
		struct te_node *node = &world->nodes[i];
		node->world = world;
		node->index = i;
		if (sim_random_chance(workload(world), world->options.plain_per_mille))
			node->dialect = (uint8_t)(1 + sim_random_below(workload(world), 2));
		if (!node_start(node))
			break;
	}
	if (result_p->ok) {
		world->issuing = world->faults = true;
		sim_after(sim, 1, work, world, 0);
		if (world->options.fault_period_ms)
			sim_after(sim, 100 * MS, fault, world, 0);
		(void)sim_run_until(sim, safety_over, world, 600000 * MS);
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
	for (uint32_t i = 0; i < world->arenas; i++)
		munmap((void *)(uintptr_t)(ARENA_BASE + i * ARENA_BYTES), ARENA_BYTES);
	sim_destroy(sim);
	free(world->block_busy);
	free(world->block_tainted);
	free(world);
}
