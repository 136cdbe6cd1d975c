#include "tests/sim/sim.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- chance: xoshiro256**, seeded by splitmix64 ------------------------------------------------------------------------- */

static uint64_t splitmix(uint64_t *state)
{
	uint64_t z = (*state += 0x9E3779B97F4A7C15u);
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

static void random_seed(struct sim_random *random, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		random->state[i] = splitmix(&seed);
}

static uint64_t rotate_left(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

uint64_t sim_random_next(struct sim_random *random)
{
	uint64_t *s = random->state;
	uint64_t result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate_left(s[3], 45);
	return result;
}

uint64_t sim_random_below(struct sim_random *random, uint64_t bound)
{
	return sim_random_next(random) % bound;
}

bool sim_random_chance(struct sim_random *random, uint32_t per_mille)
{
	return per_mille != 0 && sim_random_below(random, 1000) < per_mille;
}

/* --- events: a binary heap by (time, sequence) --------------------------------------------------------------------------- */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->sequence < b->sequence;
}

static void swap_events(struct sim_event *a, struct sim_event *b)
{
	struct sim_event t = *a;
	*a = *b;
	*b = t;
}

void sim_at(struct sim *sim, uint64_t at_ns, sim_event_func *run, void *user, uint64_t argument)
{
	if (sim->heap_count == sim->heap_capacity) {
		sim->heap_capacity = sim->heap_capacity ? 2 * sim->heap_capacity : 1024;
		sim->heap = realloc(sim->heap, sim->heap_capacity * sizeof(*sim->heap));
		if (!sim->heap)
			abort();
	}
	size_t i = sim->heap_count++;
	sim->heap[i] = (struct sim_event){.at_ns = at_ns < sim->now_ns ? sim->now_ns : at_ns,
	                                  .sequence = sim->sequence++, .run = run, .user = user, .argument = argument};
	while (i > 0 && earlier(&sim->heap[i], &sim->heap[(i - 1) / 2])) {
		swap_events(&sim->heap[i], &sim->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
}

void sim_after(struct sim *sim, uint64_t delay_ns, sim_event_func *run, void *user, uint64_t argument)
{
	sim_at(sim, sim->now_ns + delay_ns, run, user, argument);
}

static struct sim_event heap_pop(struct sim *sim)
{
	struct sim_event first = sim->heap[0];
	sim->heap[0] = sim->heap[--sim->heap_count];
	for (size_t i = 0;;) {
		size_t least = i, left = 2 * i + 1, right = 2 * i + 2;
		if (left < sim->heap_count && earlier(&sim->heap[left], &sim->heap[least]))
			least = left;
		if (right < sim->heap_count && earlier(&sim->heap[right], &sim->heap[least]))
			least = right;
		if (least == i)
			return first;
		swap_events(&sim->heap[i], &sim->heap[least]);
		i = least;
	}
}

bool sim_step(struct sim *sim)
{
	if (sim->heap_count == 0)
		return false;
	struct sim_event event = heap_pop(sim);
	sim->now_ns = event.at_ns;
	sim->events_run++;
	event.run(sim, event.user, event.argument);
	return true;
}

bool sim_run_until(struct sim *sim, bool (*done)(void *user), void *user, uint64_t limit_ns)
{
	uint64_t end_ns = sim->now_ns + limit_ns;
	while (!done(user)) {
		if (sim->heap_count == 0 || sim->heap[0].at_ns > end_ns)
			return false;
		sim_step(sim);
	}
	return true;
}

void sim_run_for(struct sim *sim, uint64_t ns)
{
	uint64_t end_ns = sim->now_ns + ns;
	while (sim->heap_count != 0 && sim->heap[0].at_ns <= end_ns)
		sim_step(sim);
	sim->now_ns = end_ns;
}

void sim_fold(struct sim *sim, uint64_t value)
{
	sim->hash = (sim->hash ^ value) * 0x100000001B3u;
	sim->hash ^= sim->hash >> 29;
}

/* --- world --------------------------------------------------------------------------------------------------------------- */

#define MS 1000000u

struct sim *sim_create(uint64_t seed)
{
	struct sim *sim = calloc(1, sizeof(*sim));
	if (!sim)
		abort();
	sim->seed = seed;
	sim->fail_create_at = UINT64_MAX;
	sim->now_ns = 1000 * (uint64_t)MS;
	uint64_t state = seed;
	for (int i = 0; i < SIM_STREAMS; i++)
		random_seed(&sim->random[i], splitmix(&state));
	struct sim_random *net = &sim->random[SIM_NET];
	static const uint32_t segments[] = {1, 7, 64, 1448, 16384, 65536};
	static const uint32_t windows[] = {1, 100, 4096, 65536, 1u << 20};
	uint64_t scale = UINT64_C(1) << sim_random_below(net, 12); /* 1 us .. 2 ms */
	sim->net.delay_min_ns = 500 * scale;
	sim->net.delay_max_ns = 1000 * scale * (1 + sim_random_below(net, 8));
	/* segments of a byte and windows of a byte find parser faults; they are rare because they are slow */
	sim->net.segment_max = segments[sim_random_chance(net, 100) ? sim_random_below(net, 3) : 3 + sim_random_below(net, 3)];
	sim->net.window_min = windows[sim_random_chance(net, 100) ? sim_random_below(net, 2) : 2 + sim_random_below(net, 2)];
	sim->net.window_max = sim->net.window_min * (uint32_t)(1 + sim_random_below(net, 8));
	if (sim->net.segment_max < 1000 || sim->net.window_min < 4096) { /* bytes one by one: near, or nothing is ever done in time */
		sim->net.delay_min_ns = 1000;
		sim->net.delay_max_ns = 1000 + sim_random_below(net, 10000);
	}
	sim->net.short_io_per_mille = sim_random_chance(net, 500) ? (uint32_t)sim_random_below(net, 300) : 0;
	sim->net.reset_loses_data_per_mille = (uint32_t)sim_random_below(net, 1000);
	struct sim_random *hosts = &sim->random[SIM_HOSTS];
	sim->host.latency_max_ns = 1 + sim_random_below(hosts, 200 * 1000);
	sim->host.tiny_budget_per_mille = sim_random_chance(hosts, 300) ? (uint32_t)sim_random_below(hosts, 1000) : 0;
	sim->host.spurious_per_mille = (uint32_t)sim_random_below(hosts, 50);
	return sim;
}

void sim_destroy(struct sim *sim)
{
	for (uint32_t i = 0; i < sim->node_count; i++) {
		assert(!sim->nodes[i]->reactor && "sim_node_finish every node first");
		free(sim->nodes[i]);
	}
	sim_net_destroy(sim);
	sim_memory_end(sim);
	free(sim->heap);
	free(sim);
}

/* --- a node's surroundings ------------------------------------------------------------------------------------------------ */

/* What a node's clock shows, and when it will show that. */
static uint64_t node_time(const struct sim_node *node, uint64_t world_ns)
{
	return node->drift_ppm ? world_ns + (uint64_t)((int64_t)(world_ns / 1000) * node->drift_ppm / 1000) : world_ns;
}

static uint64_t world_time(const struct sim_node *node, uint64_t node_ns)
{
	if (node->drift_ppm == 0)
		return node_ns;
	uint64_t world_ns = (uint64_t)((double)node_ns / (1 + node->drift_ppm / 1e6));
	while (node_time(node, world_ns) < node_ns)
		world_ns += 1000;
	return world_ns;
}

static uint64_t node_now_ns(void *user)
{
	const struct sim_node *node = user;
	return node_time(node, node->sim->now_ns);
}

static uint64_t node_wall_us(void *user)
{
	return UINT64_C(1700000000000000) + ((struct sim_node *)user)->sim->now_ns / 1000;
}

static void node_fill(void *user, void *bytes, size_t length)
{
	struct sim_node *node = user;
	unsigned char *out = bytes;
	while (length > 0) {
		uint64_t word = sim_random_next(&node->random);
		size_t n = length < sizeof(word) ? length : sizeof(word);
		memcpy(out, &word, n);
		out += n;
		length -= n;
	}
}

/* What is large, so what may be registered, lies where the run decides. Engines make large pools and a run touches little of them: clearing
 * them would cost more than the run, and pages come cleared. */
#define LARGE_BYTES ((size_t)64 << 10)

/* In front of what is small: of a node that is abandoned it goes with the node. */
struct sim_small {
	_Alignas(64) struct sim_small *next; /* as reactors are */
	struct sim_small *previous;
};

static void *take_small(struct sim_node *node, size_t bytes)
{
	size_t whole = (sizeof(struct sim_small) + bytes + 63) & ~(size_t)63;
	struct sim_small *small = aligned_alloc(64, whole);
	if (!small)
		return NULL;
	memset(small, 0, whole);
	small->next = node->small;
	if (small->next)
		small->next->previous = small;
	node->small = small;
	return small + 1;
}

static void return_small(struct sim_node *node, void *memory)
{
	struct sim_small *small = (struct sim_small *)memory - 1;
	if (small->next)
		small->next->previous = small->previous;
	*(small->previous ? &small->previous->next : &node->small) = small->next;
	free(small);
}

static void *node_allocate(void *user, size_t bytes)
{
	struct sim_node *node = user;
	if (node->allocations++ == node->fail_allocation_at)
		return NULL;
	node->bytes_allocated += bytes;
	return bytes < LARGE_BYTES ? take_small(node, bytes) : sim_memory_take(node->sim, bytes);
}

static void node_release(void *user, void *memory, size_t bytes)
{
	struct sim_node *node = user;
	if (!memory)
		return;
	node->bytes_allocated -= bytes;
	if (bytes < LARGE_BYTES)
		return_small(node, memory);
	else
		sim_memory_return(memory, bytes);
}

static void node_changed(void *user)
{
	sim_node_wake(user);
}

static void node_log(void *user, enum neap_log_level level, const char *component, const char *message)
{
	struct sim_node *node = user;
	static int verbose = -1;
	if (verbose < 0)
		verbose = getenv("NEAP_SIM_LOG") != NULL;
	if (verbose)
		fprintf(stderr, "%12.6f node %u %d %s: %s\n", (double)node->sim->now_ns / 1e9, node->number, level, component, message);
}

struct sim_node *sim_node_create(struct sim *sim, uint32_t host)
{
	assert(sim->node_count < SIM_NODES_MAX && host < SIM_NODES_MAX);
	struct sim_node *node = calloc(1, sizeof(*node));
	if (!node)
		abort();
	node->sim = sim;
	node->number = sim->node_count;
	node->host = host;
	node->drift_ppm = sim->drift_ppm;
	node->fail_allocation_at = sim->fail_create_at;
	node->next_port = (uint16_t)(20000 + 500 * (sim->node_count % 64));
	random_seed(&node->random, sim_random_next(&sim->random[SIM_HOSTS]));
	sim_net_init(node);
	struct neap_reactor_options options = {
		.clock = {.now_ns = node_now_ns, .wall_us = node_wall_us, .user = node},
		.alloc = {.allocate = node_allocate, .release = node_release, .user = node},
		.random = {.fill = node_fill, .user = node},
		.net = &node->net,
		.log = node_log,
		.log_user = node,
		.on_change = node_changed,
		.on_change_user = node,
		.trace_records = 1024,
		.long_turn_ns = UINT64_MAX,
	};
	if (neap_reactor_create(&node->reactor, &options) != NEAP_OK) {
		assert(!node->reactor && node->bytes_allocated == 0 && "what could not be made leaves nothing");
		free(node);
		return NULL;
	}
	node->fail_allocation_at = UINT64_MAX;
	sim->nodes[sim->node_count++] = node;
	sim_node_wake(node); /* a reactor tells of changes only once it has been armed */
	return node;
}

struct neap_reactor *sim_node_reactor(struct sim_node *node)
{
	return node->reactor;
}

void sim_node_address(const struct sim_node *node, char *text, size_t size)
{
	snprintf(text, size, "10.0.0.%u", node->host + 1);
}

/* --- turns ------------------------------------------------------------------------------------------------------------------ */

static void fold_ring(struct sim *sim, const struct neap_trace_ring *ring, uint64_t *last)
{
	uint64_t from = ring->count - *last > ring->mask ? ring->count - ring->mask - 1 : *last;
	for (uint64_t i = from; i != ring->count; i++) {
		const struct neap_trace_record *record = &ring->records[i & ring->mask];
		/* not the argument: it may be an address */
		sim_fold(sim, record->now_ns);
		sim_fold(sim, (uint64_t)record->machine_id << 32 | (uint64_t)record->class_index << 16 | record->kind);
		sim_fold(sim, (uint64_t)record->from << 16 | (uint64_t)record->event << 8 | record->to);
	}
	*last = ring->count;
}

static void run_node(struct sim *sim, void *user, uint64_t sequence);

static void schedule_run(struct sim_node *node, uint64_t at_ns)
{
	if (node->run_scheduled && node->run_at_ns <= at_ns)
		return;
	node->run_scheduled = true;
	node->run_at_ns = at_ns;
	sim_at(node->sim, at_ns, run_node, node, ++node->run_sequence);
}

void sim_node_wake(struct sim_node *node)
{
	struct sim *sim = node->sim;
	if (!node->crashed)
		schedule_run(node, sim->now_ns + sim_random_below(&sim->random[SIM_HOSTS], sim->host.latency_max_ns));
}

static void run_node(struct sim *sim, void *user, uint64_t sequence)
{
	struct sim_node *node = user;
	if (!node->reactor || node->crashed || node->stopped || !node->run_scheduled || sequence != node->run_sequence)
		return; /* an earlier run was put in its place */
	if (node->paused && sim->now_ns < node->paused_until_ns) {
		node->run_scheduled = false;
		schedule_run(node, node->paused_until_ns);
		return;
	}
	node->paused = false;
	node->run_scheduled = false;
	struct sim_random *hosts = &sim->random[SIM_HOSTS];
	struct neap_budget budget = {0};
	if (sim_random_chance(hosts, sim->host.tiny_budget_per_mille))
		budget = (struct neap_budget){.events_max = 1, .bytes_max = 1 + (uint32_t)sim_random_below(hosts, 70000)};
	int result = neap_reactor_run_at(node->reactor, node_time(node, sim->now_ns), &budget);
	assert(result > 0 && "a turn may not fail in simulation");
	struct neap_dispatcher *dispatcher = neap_reactor_dispatcher(node->reactor);
	fold_ring(sim, &dispatcher->control_ring, &node->last_control_record);
	fold_ring(sim, &dispatcher->data_ring, &node->last_data_record);
	if (result == NEAP_RUN_MORE) {
		schedule_run(node, sim->now_ns + 1000 + sim_random_below(hosts, 1000));
	} else if (result == NEAP_RUN_ARMED) {
		uint64_t deadline_ns = neap_reactor_deadline_ns(node->reactor);
		if (deadline_ns != UINT64_MAX)
			deadline_ns = world_time(node, deadline_ns);
		if (deadline_ns != UINT64_MAX) /* hosts wake late, never early; time must move even for a deadline that has passed */
			schedule_run(node, (deadline_ns <= sim->now_ns ? sim->now_ns + 1000 : deadline_ns) +
			                           sim_random_below(hosts, sim->host.latency_max_ns));
		if (sim_random_chance(hosts, sim->host.spurious_per_mille))
			sim_node_wake(node);
	} else {
		node->stopped = true;
	}
}

/* --- faults -------------------------------------------------------------------------------------------------------------------- */

void sim_node_pause(struct sim_node *node, uint64_t ns)
{
	uint64_t until_ns = node->sim->now_ns + ns;
	if (!node->paused || until_ns > node->paused_until_ns)
		node->paused_until_ns = until_ns;
	node->paused = true;
}

void sim_node_resume(struct sim_node *node)
{
	if (!node->paused)
		return;
	node->paused = false;
	sim_node_wake(node);
}

void sim_node_crash(struct sim_node *node, bool host_dies)
{
	node->crashed = true;
	sim_net_close_node(node, host_dies);
}

void sim_sever(struct sim *sim, uint32_t host_a, uint32_t host_b, bool one_way)
{
	sim->severed[host_a][host_b] = true;
	if (!one_way)
		sim->severed[host_b][host_a] = true;
}

void sim_heal(struct sim *sim)
{
	memset(sim->severed, 0, sizeof(sim->severed));
	sim_net_resume(sim);
}

size_t sim_node_finish(struct sim_node *node, void (*close_all)(struct sim_node *node, void *user), void *user)
{
	struct sim *sim = node->sim;
	if (!node->reactor)
		return 0;
	node->crashed = true; /* the world's heap no longer runs it */
	sim_net_close_node(node, true);
	if (close_all)
		close_all(node, user);
	neap_reactor_stop(node->reactor);
	uint64_t saved_ns = sim->now_ns;
	for (int turns = 0; turns < 1000000; turns++) {
		int result = neap_reactor_run_at(node->reactor, node_time(node, sim->now_ns), NULL);
		if (result == NEAP_RUN_STOPPED || result < 0)
			break;
		uint64_t deadline_ns = neap_reactor_deadline_ns(node->reactor);
		if (deadline_ns != UINT64_MAX)
			deadline_ns = world_time(node, deadline_ns);
		sim->now_ns = result == NEAP_RUN_ARMED && deadline_ns != UINT64_MAX && deadline_ns > sim->now_ns ? deadline_ns
		                                                                                                : sim->now_ns + 1000;
	}
	sim->now_ns = saved_ns;
	int error = neap_reactor_destroy(node->reactor);
	if (error) {
		fprintf(stderr, "sim: node %u cannot be destroyed: %s\n", node->number, neap_error_name(error));
		abort();
	}
	node->reactor = NULL;
	return node->bytes_allocated;
}

void sim_node_abandon(struct sim_node *node)
{
	node->crashed = true;
	sim_net_close_node(node, true);
	node->reactor = NULL;
	while (node->small)
		return_small(node, node->small + 1);
}
