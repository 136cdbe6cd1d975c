/* Nodes: processes with an engine on one or two reactors, their memory, and what they know of each other. */
#include "tests/sim/te_inside.h"
#include "tests/support/coverage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES (UINT64_C(16) << 20)
#define ARENA_OF_DEVICES_BYTES (UINT64_C(28) << 20)
#define VISITS_AT (UINT64_C(4) << 20)
#define LOANS_AT (UINT64_C(5) << 20)
#define BULK_AT (UINT64_C(8) << 20)
/* From the call until nothing is left of an engine. */
#define LEAVE_LIMIT_NS (2000 * MS)
#define LEAVE_DEVICES_LIMIT_NS (45000 * MS) /* what the kernel refuses to take back is asked for again, for up to 30 s */

/* --- memory ---------------------------------------------------------------------------------------------------------------- */

static void piece_begin(struct te_piece *piece, unsigned char *memory, uint32_t bytes)
{
	*piece = (struct te_piece){.memory = memory, .bytes = bytes, .expected = malloc(bytes)};
	if (!piece->expected)
		abort();
	memcpy(piece->expected, memory, bytes);
}

static void piece_end(struct te_piece *piece)
{
	free(piece->expected);
	free(piece->other);
}

struct te_piece *te_block(struct te_node *target, uint32_t initiator, uint32_t block)
{
	return &target->blocks[initiator * target->world->options.blocks_per_stripe + block];
}

static void memory_begin(struct te_node *node)
{
	const struct te_options *options = &node->world->options;
	uint32_t blocks = options->nodes * options->blocks_per_stripe;
	uint32_t slot_bytes = options->block_bytes < SLOT_BYTES_MAX ? options->block_bytes : SLOT_BYTES_MAX;
	node->memory = node->arena = sim_memory_take(node->world->sim, node->world->fabric ? ARENA_OF_DEVICES_BYTES : ARENA_BYTES);
	node->memory_bytes = (uint64_t)blocks * options->block_bytes + 2 * GUARD_BYTES;
	te_fill(node->memory, node->memory_bytes, (uint64_t)node->index << 32 | node->incarnation);
	node->blocks = calloc(blocks, sizeof(*node->blocks));
	if (!node->blocks)
		abort();
	for (uint32_t i = 0; i < blocks; i++)
		piece_begin(&node->blocks[i], node->memory + GUARD_BYTES + (size_t)i * options->block_bytes, options->block_bytes);
	for (uint32_t i = 0; i < NODES_MAX; i++) {
		node->visits[i] = node->loans[i] = (struct te_slot){.phase = SLOT_AWAY};
		if (i >= options->nodes)
			continue;
		piece_begin(&node->visits[i].piece, node->arena + VISITS_AT + (size_t)i * slot_bytes, slot_bytes);
		piece_begin(&node->loans[i].piece, node->arena + LOANS_AT + (size_t)i * slot_bytes, slot_bytes);
	}
	node->bulk = (struct te_piece){0};
	if (options->bulk_per_mille)
		piece_begin(&node->bulk, node->arena + BULK_AT, BULK_BYTES);
	node->visit_phase = SLOT_AWAY;
	node->visit_region = node->loan_region = 0;
}

static void register_all(struct te_node *node)
{
	char why[256];
	struct neap_memory memory[] = {
		{.address = node->memory + GUARD_BYTES, .length = node->memory_bytes - 2 * GUARD_BYTES, .location = "cpu:0"},
		{.address = node->bulk.memory, .length = node->bulk.bytes, .location = "cpu:0", .access = NEAP_CLOSED},
	};
	int error = neap_memory_register(node->cores[0].engine, memory, node->bulk.bytes ? 2 : 1, NULL, why, sizeof(why));
	if (!error && node->seat) {
		const struct neap_memory buffers = {.address = node->seat->memory, .length = (uint64_t)BUFFERS * BUFFER_STRIDE, .location = "cpu:1",
		                                    .access = NEAP_CLOSED};
		error = neap_memory_register(node->cores[0].engine, &buffers, 1, NULL, why, sizeof(why));
	}
	if (error)
		te_violation(node->world, "memory of node %u: %s", node->index, why);
}

uint64_t te_node_hash(const struct te_node *node)
{
	size_t slots = (size_t)node->visits[0].piece.bytes * node->world->options.nodes;
	return te_hash(node->memory, node->memory_bytes) ^ 3 * te_hash(node->visits[0].piece.memory, slots) ^
	       5 * te_hash(node->loans[0].piece.memory, slots);
}

/* --- starting --------------------------------------------------------------------------------------------------------------- */

static struct sim_node *start_process(struct te_world *world, uint32_t host)
{
	if (world->options.faults_memory && sim_random_chance(te_chance(world), 300)) {
		world->sim->fail_create_at = sim_random_below(te_chance(world), 60);
		struct sim_node *node = sim_node_create(world->sim, host);
		world->sim->fail_create_at = UINT64_MAX;
		if (node)
			return node;
		world->result->sometimes.alloc_failed_create++;
	}
	return sim_node_create(world->sim, host);
}

static int make_engine(struct te_node *node, uint32_t core, char *why, size_t why_size)
{
	const struct te_world *world = node->world;
	struct neap_reactor *reactor = sim_node_reactor(node->cores[core].sim_node);
	char address[32];
	sim_node_address(node->cores[core].sim_node, address, sizeof(address));
	struct neap_engine_options options = {
		.local_name = address,
		.bind_address = address,
		.handshake_port = (uint16_t)(HANDSHAKE_PORT + node->index),
		.lanes_per_peer = world->options.lanes,
		.requests_max = 256,
		.batches_max = 256,
		.peers_max = 8,
		.sessions_max = 48,
		.regions_max = 64,
		.grants_max = 64,
		.handshake_sessions_max = 64,
		.notifies_max = 16,
		.connect_timeout_ms = 500,
		.handshake_timeout_ms = 500,
		.progress_timeout_ms = 1000,
		.first_header_timeout_ms = 1000,
		.drain_timeout_ms = DRAIN_MS,
		.checksum = world->options.checksum,
		.plain_only = node->dialect != 0,
		.v1_only = node->dialect == 2,
	};
	struct neap_engine **engine = &node->cores[core].engine;
	if (core == 0 && node->seat)
		return te_seat_make_engine(node, engine, &options, why, why_size);
	return core == 0 ? neap_engine_create(engine, reactor, &options, why, why_size)
	                 : neap_engine_join(engine, reactor, node->cores[0].engine, why, why_size);
}

/* With memory running out at any allocation it fails cleanly, and succeeds afterwards. */
static bool start_core(struct te_node *node, uint32_t core)
{
	struct te_world *world = node->world;
	struct sim_node *sim_node = node->cores[core].sim_node = start_process(world, node->index);
	char why[256];
	if (core == 0)
		te_seat_begin(node);
	int tries = world->options.faults_memory ? (int)sim_random_below(te_chance(world), 4) : 0;
	int error = NEAP_ENOMEM;
	for (; error && tries > 0; tries--) {
		sim_node->fail_allocation_at = sim_node->allocations + sim_random_below(te_chance(world), 100);
		error = make_engine(node, core, why, sizeof(why));
		sim_node->fail_allocation_at = UINT64_MAX;
		if (error && (error != NEAP_ENOMEM || node->cores[core].engine))
			te_violation(world, "an engine that had no memory says %s: %s", neap_error_name(error), why);
		world->result->sometimes.alloc_failed_create += error != 0;
	}
	if (error)
		error = make_engine(node, core, why, sizeof(why));
	if (error)
		te_violation(world, "engine of node %u did not start: %s: %s", node->index, neap_error_name(error), why);
	return !error;
}

bool te_node_start(struct te_node *node)
{
	struct te_world *world = node->world;
	memset(node->cores, 0, sizeof(node->cores));
	node->core_count = 1 + sim_random_chance(te_chance(world), world->options.cores_per_mille);
	memory_begin(node);
	for (uint32_t i = 0; i < node->core_count; i++)
		if (!start_core(node, i))
			return false;
	neap_engine_instance(node->cores[0].engine, node->instance);
	register_all(node);
	node->inflight = 0;
	node->up = true;
	node->leaving = false;
	te_slots_begin(node);
	te_notify_watch(node);
	return true;
}

bool te_node_awake(const struct te_node *node, uint32_t core)
{
	const struct sim_node *sim_node = node->cores[core].sim_node;
	return node->up && !(sim_node->paused && node->world->sim->now_ns < sim_node->paused_until_ns);
}

bool te_is_current(const struct te_world *world, uint32_t node, uint32_t incarnation)
{
	return world->nodes[node].up && world->nodes[node].incarnation == incarnation;
}

/* --- ending ------------------------------------------------------------------------------------------------------------------- */

static void count_core(struct te_node *node, const struct te_core *core)
{
	struct te_sometimes *seen = &node->world->result->sometimes;
	struct neap_engine_stats stats;
	neap_engine_stats(core->engine, &stats);
	seen->request_repeated += stats.requests_repeated;
	seen->one_by_one_repeat += node->dialect ? stats.requests_repeated : 0; /* plain peers are sent them alone */
	seen->descriptor_refreshed += stats.descriptor_refreshes;
	if (stats.requests_completed == 0)
		return;
	seen->neap_lane += node->dialect == 0;
	seen->plain_v2_lane += node->dialect == 1;
	seen->plain_v1_lane += node->dialect == 2;
	seen->joined_core += core != &node->cores[0];
}

void te_node_count(struct te_node *node)
{
	te_seat_count(node);
	for (uint32_t i = 0; i < node->core_count; i++)
		if (node->cores[i].engine)
			count_core(node, &node->cores[i]);
}

static void engine_closed(void *user)
{
	((struct te_core *)user)->engine = NULL;
}

struct finishing {
	struct te_node *node;
	struct te_core *core;
};

static void close_engine(struct sim_node *sim_node, void *user)
{
	(void)sim_node;
	struct finishing *finishing = user;
	int error = neap_engine_close(finishing->core->engine, engine_closed, finishing->core);
	if (error && !(finishing->node->leaving && error == NEAP_ECLOSED))
		te_violation(finishing->node->world, "engine of node %u refuses to close: %s", finishing->node->index, neap_error_name(error));
}

/* The joined core first: its home must outlive it. */
void te_node_finish(struct te_node *node)
{
	struct te_world *world = node->world;
	for (uint32_t i = node->core_count; i-- > 0;) {
		struct te_core *core = &node->cores[i];
		if (!core->sim_node || !core->sim_node->reactor)
			continue;
		core->sim_node->fail_allocation_at = UINT64_MAX;
		if (i == 0) {
			te_seat_kill(node);
			te_seat_let_go(node);
		}
		bool close = core->engine && (node->leaving || !sim_random_chance(te_chance(world), 300));
		if (core->engine && !close)
			world->result->sometimes.reactor_stopped++;
		support_cover(neap_reactor_dispatcher(core->sim_node->reactor));
		struct finishing finishing = {.node = node, .core = core};
		if (te_sabotage(world, TE_SABOTAGE_LEAK))
			core->sim_node->bytes_allocated++;
		size_t leaked = sim_node_finish(core->sim_node, close ? close_engine : NULL, &finishing);
		if (leaked)
			te_violation(world, "node %u.%u leaks %zu bytes", node->index, node->incarnation, leaked);
		if (close && core->engine)
			te_violation(world, "engine of node %u did not say that it has closed", node->index);
		core->engine = NULL;
	}
}

void te_node_free(struct te_node *node)
{
	for (uint32_t i = 0; node->blocks && i < node->world->options.nodes * node->world->options.blocks_per_stripe; i++)
		piece_end(&node->blocks[i]);
	for (uint32_t i = 0; i < NODES_MAX; i++) {
		piece_end(&node->visits[i].piece);
		piece_end(&node->loans[i].piece);
	}
	piece_end(&node->bulk);
	free(node->blocks);
	te_seat_free(node);
}

static void detach_all(struct te_node *node)
{
	const struct te_options *options = &node->world->options;
	for (uint32_t i = 0; i < options->nodes * options->blocks_per_stripe; i++)
		te_piece_detach(&node->blocks[i]);
	for (uint32_t i = 0; i < options->nodes; i++) {
		te_piece_detach(&node->visits[i].piece);
		te_piece_detach(&node->loans[i].piece);
	}
	te_piece_detach(&node->bulk);
}

/* A new process with the same name, at another place in memory. */
static void restart(struct sim *sim, void *user, uint64_t argument)
{
	(void)sim;
	struct te_world *world = user;
	struct te_node *node = &world->nodes[argument];
	if (world->closing)
		return;
	node->incarnation++;
	if (te_node_start(node))
		world->result->sometimes.peer_restarted++;
}

/* A crash that comes between the pieces of a copy is not simulated: the copy goes on when the grave is cleared. */
static bool copies_within(const struct te_node *node)
{
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		const struct te_operation *op = &node->world->operations[i];
		if (op->used && !op->ended && op->initiator == node->index && op->target == node->index)
			return true;
	}
	return false;
}

static void bury(struct te_node *node)
{
	struct te_world *world = node->world;
	struct te_node *grave = malloc(sizeof(*grave));
	if (!grave)
		abort();
	te_check_node(world, node);
	node->memory_hash = te_node_hash(node);
	node->hashed = !copies_within(node);
	node->gone = true;
	detach_all(node);
	*grave = *node;
	node->blocks = NULL;
	node->seat = NULL;
	node->gone = false;
	node->bulk = (struct te_piece){0};
	memset(node->visits, 0, sizeof(node->visits));
	memset(node->loans, 0, sizeof(node->loans));
	memset(node->cores, 0, sizeof(node->cores));
	world->graves[world->grave_count++] = grave;
	sim_after(world->sim, 1 + sim_random_below(te_chance(world), 2000 * MS), restart, world, node->index);
}

void te_node_crash(struct te_node *node, bool host_dies)
{
	te_node_count(node);
	for (uint32_t i = 0; i < node->core_count; i++)
		sim_node_crash(node->cores[i].sim_node, host_dies);
	te_seat_kill(node);
	node->up = false;
	bury(node);
}

static bool has_left(const struct te_node *node)
{
	for (uint32_t i = 0; i < node->core_count; i++)
		if (node->cores[i].engine && !node->cores[i].sim_node->stopped)
			return false;
	return true;
}

static void watch_leaving(struct sim *sim, void *user, uint64_t argument)
{
	struct te_node *node = user;
	struct te_world *world = node->world;
	if (!node->leaving || node->incarnation != argument || (world->closing && !world->fabric) || !world->result->ok)
		return;
	if (node->core_count > 1 && !node->cores[1].engine && node->cores[0].engine && !node->cores[0].closing) {
		node->cores[0].closing = true;
		struct finishing finishing = {.node = node, .core = &node->cores[0]};
		close_engine(NULL, &finishing);
	}
	if (!has_left(node)) {
		if (sim->now_ns - node->leaving_since_ns > (node->seat ? LEAVE_DEVICES_LIMIT_NS : LEAVE_LIMIT_NS))
			te_violation(world, "an engine did not close in time");
		else
			sim_after(sim, MS, watch_leaving, node, argument);
		return;
	}
	if (te_work_pending(world, node->index, node->incarnation))
		te_violation(world, "an engine closed with operations that have not ended");
	for (uint32_t i = 0; i < node->core_count; i++)
		node->cores[i].engine = NULL;
	te_node_finish(node);
	node->leaving = false;
	bury(node);
	world->result->sometimes.engine_left++;
}

void te_node_leave(struct te_node *node, bool stop_reactors)
{
	struct te_world *world = node->world;
	node->up = false;
	node->leaving = true;
	node->leaving_since_ns = world->sim->now_ns;
	te_seat_let_go(node);
	te_node_count(node);
	uint32_t last = node->core_count - 1;
	if (stop_reactors) {
		for (uint32_t i = 0; i < node->core_count; i++)
			neap_reactor_stop(node->cores[i].sim_node->reactor);
		world->result->sometimes.reactor_stopped++;
	} else {
		node->cores[last].closing = true;
		struct finishing finishing = {.node = node, .core = &node->cores[last]};
		close_engine(NULL, &finishing);
	}
	sim_after(world->sim, MS, watch_leaving, node, node->incarnation);
}

/* --- links --------------------------------------------------------------------------------------------------------------------- */

struct opening {
	struct te_node *node;
	uint32_t core, target, incarnation;
};

static void learn_base(struct te_node *node, struct te_core *core, uint32_t target)
{
	struct te_link *link = &core->links[target];
	struct te_node *peer = &node->world->nodes[target];
	uint64_t address, length;
	if (neap_segment_buffer(core->engine, link->segment, 0, &address, &length) != NEAP_OK) {
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
		struct te_core *core = &node->cores[opening->core];
		struct te_link *link = &core->links[opening->target];
		link->phase = LINK_CLOSED;
		if (error == NEAP_OK) {
			link->segment = segment;
			learn_base(node, core, opening->target);
		}
	}
	free(opening);
}

void te_link_open(struct te_node *node, uint32_t core, uint32_t target)
{
	struct te_link *link = &node->cores[core].links[target];
	struct te_world *world = node->world;
	struct neap_engine *engine = node->cores[core].engine;
	char name[64];
	snprintf(name, sizeof(name), "10.0.0.%u:%u", target + 1, HANDSHAKE_PORT + target);
	struct opening *opening = calloc(1, sizeof(*opening));
	if (!opening)
		abort();
	*opening = (struct opening){.node = node, .core = core, .target = target, .incarnation = node->incarnation};
	link->phase = LINK_OPENING;
	int error = link->segment && link->peer_incarnation != world->nodes[target].incarnation
	                    ? neap_segment_refresh(engine, link->segment, opened, opening)
	                    : neap_segment_open(engine, name, opened, opening);
	if (error) {
		link->phase = LINK_CLOSED;
		link->segment = 0;
		free(opening);
	}
}
