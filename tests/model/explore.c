/* Breadth-first through all worlds that a scenario can come to. Of a visited world a fingerprint of 128 bits is kept, and how it was come
 * to; whole worlds are kept only on the two levels where they are needed. The shortest way to a violation is then followed once more. */
#include "tests/model/world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EVENTS_MAX 128u
#define NO_STATE UINT32_MAX

struct visited {
	uint64_t low, high; /* fingerprint */
	uint32_t parent;
	struct event event;
	bool final;
};

struct level {
	struct world *worlds;
	uint32_t *numbers;
	size_t count, capacity;
};

struct search {
	const struct setting *setting;
	struct visited *states;
	size_t count, capacity;
	uint32_t *buckets; /* number + 1; 0: empty */
	size_t bucket_mask;
	struct level now, next;
	uint32_t *edges; /* of healthy steps: from, to */
	size_t edge_count, edge_capacity;
	uint32_t violating; /* the state before */
	struct event violating_event;
	struct result *result;
	uint64_t states_max;
	struct step step;
	struct world scratch;
};

static void *grown(void *memory, size_t *capacity, size_t size)
{
	*capacity = *capacity ? 2 * *capacity : 1024;
	memory = realloc(memory, *capacity * size);
	if (!memory) {
		fprintf(stderr, "neap-model: no memory\n");
		exit(2);
	}
	return memory;
}

static uint64_t mixed(uint64_t value)
{
	value ^= value >> 32;
	value *= UINT64_C(0xd6e8feb86659fd93);
	value ^= value >> 32;
	value *= UINT64_C(0xd6e8feb86659fd93);
	return value ^ value >> 32;
}

static void absorb(uint64_t sums[2], const void *bytes, size_t left)
{
	const unsigned char *at = bytes;
	uint64_t low = sums[0], high = sums[1];
	while (left > 0) {
		uint64_t word = 0;
		size_t part = left < sizeof word ? left : sizeof word;
		memcpy(&word, at, part);
		low = (low ^ word) * UINT64_C(0x9fb21c651e98df25);
		low ^= low >> 29;
		high = (high + word) * UINT64_C(0xa0761d6478bd642f);
		high ^= high >> 31;
		at += part;
		left -= part;
	}
	sums[0] = low;
	sums[1] = high;
}

/* What is empty at the end of a list, and an owner that the scenario does not have, is alike in all. */
static void fingerprint(const struct world *world, uint8_t owners, uint64_t *low_p, uint64_t *high_p)
{
	uint64_t sums[2] = {UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xc2b2ae3d27d4eb4f)};
	size_t messages = 0, pieces = 0;
	while (messages < MESSAGES && world->messages[messages].type != NO_MESSAGE)
		messages++;
	while (pieces < PIECES && world->pieces[pieces].kind != NO_PIECE)
		pieces++;
	uint64_t counts = messages << 8 | pieces;
	absorb(sums, &counts, sizeof counts);
	absorb(sums, world->budgets, sizeof world->budgets);
	absorb(sums, &world->directory, sizeof world->directory);
	absorb(sums, world->ops, sizeof world->ops);
	absorb(sums, world->owners, owners * sizeof world->owners[0]);
	absorb(sums, world->messages, messages * sizeof world->messages[0]);
	absorb(sums, world->pieces, pieces * sizeof world->pieces[0]);
	*low_p = mixed(sums[0]);
	*high_p = mixed(sums[1]);
}

static void rehash(struct search *search)
{
	size_t size = search->bucket_mask ? 2 * (search->bucket_mask + 1) : 4096;
	free(search->buckets);
	search->buckets = calloc(size, sizeof *search->buckets);
	if (!search->buckets) {
		fprintf(stderr, "neap-model: no memory\n");
		exit(2);
	}
	search->bucket_mask = size - 1;
	for (size_t i = 0; i < search->count; i++) {
		size_t at = search->states[i].low & search->bucket_mask;
		while (search->buckets[at])
			at = (at + 1) & search->bucket_mask;
		search->buckets[at] = (uint32_t)i + 1;
	}
}

static void put_on_level(struct level *level, const struct world *world, uint32_t number)
{
	if (level->count == level->capacity) {
		size_t capacity = level->capacity;
		level->worlds = grown(level->worlds, &capacity, sizeof *level->worlds);
		level->numbers = grown(level->numbers, &level->capacity, sizeof *level->numbers);
	}
	level->worlds[level->count] = *world;
	level->numbers[level->count++] = number;
}

/* The number of the world, new or not. */
static uint32_t visit(struct search *search, const struct world *world, uint32_t parent, const struct event *event)
{
	uint64_t low, high;
	fingerprint(world, search->setting->scenario->owners, &low, &high);
	if (2 * search->count >= search->bucket_mask)
		rehash(search);
	size_t at = low & search->bucket_mask;
	for (; search->buckets[at]; at = (at + 1) & search->bucket_mask) {
		const struct visited *state = &search->states[search->buckets[at] - 1];
		if (state->low == low && state->high == high)
			return search->buckets[at] - 1;
	}
	if (search->count == search->capacity)
		search->states = grown(search->states, &search->capacity, sizeof *search->states);
	uint32_t number = (uint32_t)search->count++;
	search->states[number] = (struct visited){.low = low, .high = high, .parent = parent, .event = *event, .final = world_is_final(world)};
	search->buckets[at] = number + 1;
	put_on_level(&search->next, world, number);
	return number;
}

static void remember_edge(struct search *search, uint32_t from, uint32_t to)
{
	if (search->edge_count + 2 > search->edge_capacity)
		search->edges = grown(search->edges, &search->edge_capacity, sizeof *search->edges);
	search->edges[search->edge_count++] = from;
	search->edges[search->edge_count++] = to;
}

/* L2: nobody holds anything any more, so memory is that of values or free. */
static const char *look_at_end(const struct world *world)
{
	for (uint32_t i = 0; i < OWNERS; i++)
		for (uint8_t k = 0; k < SLOTS; k++)
			if (world->owners[i].slots[k].phase != FREE && world->owners[i].keys[0].value != k && world->owners[i].keys[1].value != k &&
			    world->owners[i].filler != k)
				return "memory is lost: nobody holds it and it is not free";
	for (uint32_t i = 0; i < OPS; i++)
		if (is_lent_or_recalling(&world->ops[i]))
			return "a grant on a caller's buffer stands after everything has ended";
	return NULL;
}

static bool expand(struct search *search, const struct world *world, uint32_t number)
{
	struct event events[EVENTS_MAX];
	uint32_t count = events_of(world, search->setting, events, EVENTS_MAX);
	struct step *step = &search->step;
	if (count > EVENTS_MAX)
		count = EVENTS_MAX;
	for (uint32_t i = 0; i < count; i++) {
		search->scratch = *world;
		step->head = step->tail = 0;
		step->fault = false;
		step->wrong = NULL;
		event_apply(step, &events[i]);
		search->result->transitions++;
		if (!step->wrong && world_is_final(&search->scratch)) {
			step->wrong = look_at_end(&search->scratch);
			step->invariant = "L2";
		}
		if (step->wrong) {
			search->violating = number;
			search->violating_event = events[i];
			search->result->wrong = step->wrong;
			search->result->invariant = step->invariant;
			search->result->violated = true;
			return false;
		}
		uint32_t to = visit(search, &search->scratch, number, &events[i]);
		if (!step->fault && to != number)
			remember_edge(search, number, to);
	}
	return true;
}

static void trace_to(struct search *search, uint32_t number, const struct event *last)
{
	struct result *result = search->result;
	uint32_t length = last != NULL;
	for (uint32_t at = number; search->states[at].parent != NO_STATE; at = search->states[at].parent)
		length++;
	result->trace = calloc(length + 1, sizeof *result->trace);
	result->trace_length = length;
	if (!result->trace)
		exit(2);
	if (last)
		result->trace[--length] = *last;
	for (uint32_t at = number; search->states[at].parent != NO_STATE; at = search->states[at].parent)
		result->trace[--length] = search->states[at].event;
}

/* L1: backwards from the final worlds along the healthy steps. Most lead to later worlds, so a few rounds do. */
static void look_whether_all_can_end(struct search *search)
{
	bool again = true;
	while (again) {
		again = false;
		for (size_t i = search->edge_count; i > 0; i -= 2) {
			struct visited *from = &search->states[search->edges[i - 2]];
			if (!from->final && search->states[search->edges[i - 1]].final)
				from->final = again = true;
		}
	}
	for (uint32_t i = 0; i < search->count; i++) {
		if (search->states[i].final)
			continue;
		search->result->violated = true;
		search->result->invariant = "L1";
		search->result->wrong = "from here on something can never come to its end";
		trace_to(search, i, NULL);
		return;
	}
}

static double seconds_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void end(struct search *search)
{
	free(search->states);
	free(search->buckets);
	free(search->now.worlds);
	free(search->now.numbers);
	free(search->next.worlds);
	free(search->next.numbers);
	free(search->edges);
	free(search);
}

void explore(const struct setting *setting, uint64_t states_max, struct result *result_p)
{
	struct search *search = calloc(1, sizeof *search);
	struct world first;
	double began = seconds_now();
	if (!search)
		exit(2);
	memset(result_p, 0, sizeof *result_p);
	search->setting = setting;
	search->result = result_p;
	search->states_max = states_max;
	search->step.setting = setting;
	search->step.world = &search->scratch;
	world_begin(&first, setting);
	(void)visit(search, &first, NO_STATE, &(struct event){0});
	bool goes_on = true;
	while (goes_on && search->next.count > 0 && search->count < states_max) {
		struct level level = search->now;
		search->now = search->next;
		search->next = level;
		search->next.count = 0;
		result_p->depth++;
		for (size_t i = 0; goes_on && i < search->now.count; i++)
			goes_on = expand(search, &search->now.worlds[i], search->now.numbers[i]);
	}
	result_p->complete = goes_on && search->next.count == 0;
	result_p->states = search->count;
	for (size_t i = 0; i < search->count; i++)
		result_p->finals += search->states[i].final;
	if (result_p->violated)
		trace_to(search, search->violating, &search->violating_event);
	else if (result_p->complete)
		look_whether_all_can_end(search);
	result_p->bytes = search->capacity * sizeof *search->states + (search->bucket_mask + 1) * sizeof *search->buckets +
	                  search->edge_capacity * sizeof *search->edges +
	                  (search->now.capacity + search->next.capacity) * (sizeof(struct world) + sizeof(uint32_t));
	result_p->seconds = seconds_now() - began;
	end(search);
}
