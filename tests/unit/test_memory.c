/* The registry: what may be registered, what peers may reach, and that memory is given back only when no core can touch it. */
#include "tests/support/coverage.h"
#include "tests/support/drive.h"
#include "transports/memory.h"
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct neap_reactor *reactor;
static struct neap_registry *registry;
static char why[320];

static void make(uint32_t regions_max, uint32_t grants_max)
{
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), 0);
	ck_assert_int_eq(neap_registry_create(&registry, reactor, regions_max, grants_max), 0);
}

static void setup(void)
{
	make(4096, 64);
}

static bool is_idle(void *user)
{
	return neap_registry_idle(user);
}

static void settle(void)
{
	struct neap_reactor *reactors[] = {reactor};
	ck_assert(drive_all_until(reactors, 1, is_idle, registry, 5000));
}

static void teardown(void)
{
	settle();
	ck_assert_int_eq(neap_registry_destroy(registry), 0);
	drive_to_end(reactor);
}

static void *at(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static int put(uint64_t address, uint64_t length, enum neap_access access, neap_region_id *id_p)
{
	struct neap_memory memory = {.address = at(address), .length = length, .location = "cpu:0", .access = access};
	return neap_registry_register(registry, &memory, 1, id_p, why, sizeof why);
}

static bool reachable(uint64_t address, uint64_t length)
{
	struct neap_access_ref ref;
	return neap_registry_check(registry, address, length, &ref) == 0;
}

static void raise_flag(void *user)
{
	*(bool *)user = true;
}

static void count_call(void *user)
{
	++*(unsigned *)user;
}

/* --- what may be registered */

#define BASE UINT64_C(0x7f0000100000)
#define SIZE UINT64_C(0x10000)

static const struct {
	const char *name;
	uint64_t address, length;
	enum neap_access access;
	int error;
} overlaps[] = {
	{"the same range", BASE, SIZE, NEAP_OPEN, NEAP_OK},
	{"the same range with another access", BASE, SIZE, NEAP_CLOSED, NEAP_EOVERLAP},
	{"same start, shorter", BASE, SIZE - 1, NEAP_OPEN, NEAP_EOVERLAP},
	{"same start, longer", BASE, SIZE + 1, NEAP_OPEN, NEAP_EOVERLAP},
	{"inside", BASE + 4096, 4096, NEAP_OPEN, NEAP_EOVERLAP},
	{"around", BASE - 1, SIZE + 2, NEAP_OPEN, NEAP_EOVERLAP},
	{"over the begin", BASE - 10, 11, NEAP_OPEN, NEAP_EOVERLAP},
	{"over the end", BASE + SIZE - 1, 10, NEAP_OPEN, NEAP_EOVERLAP},
	{"its last byte", BASE + SIZE - 1, 1, NEAP_OPEN, NEAP_EOVERLAP},
	{"touching below", BASE - 4096, 4096, NEAP_OPEN, NEAP_OK},
	{"touching above", BASE + SIZE, 1, NEAP_OPEN, NEAP_OK},
	{"one unaligned byte elsewhere", BASE - 4099, 1, NEAP_CLOSED, NEAP_OK},
	{"nothing", BASE + SIZE, 0, NEAP_OPEN, NEAP_EINVAL},
	{"NULL", 0, 10, NEAP_OPEN, NEAP_EINVAL},
	{"past the end of the address space", UINT64_MAX - 5, 10, NEAP_OPEN, NEAP_EINVAL},
	{"up to the end of the address space", UINT64_MAX - 5, 5, NEAP_OPEN, NEAP_OK},
	{"no access that exists", BASE + 2 * SIZE, 10, (enum neap_access)7, NEAP_EINVAL},
};

START_TEST(overlap_is_refused_by_name)
{
	neap_region_id first, second;
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, &first), 0);
	why[0] = 0;
	ck_assert_msg(put(overlaps[_i].address, overlaps[_i].length, overlaps[_i].access, &second) == overlaps[_i].error, "%s",
	              overlaps[_i].name);
	if (overlaps[_i].error == NEAP_EOVERLAP)
		ck_assert_ptr_nonnull(strstr(why, "0x7f0000100000"));
	ck_assert_uint_eq(neap_registry_regions(registry), overlaps[_i].error == 0 && overlaps[_i].address != BASE ? 2 : 1);
}
END_TEST

START_TEST(same_range_is_counted)
{
	neap_region_id first, second;
	struct neap_region_info info;
	bool released = false, released_early = false;
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, &first), 0);
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, &second), 0);
	ck_assert_uint_eq(first, second);
	ck_assert_int_eq(neap_registry_info(registry, first, &info), 0);
	ck_assert_uint_eq(info.references, 2);
	ck_assert_str_eq(info.location, "cpu:0");
	ck_assert_int_eq(neap_registry_unregister(registry, first, raise_flag, &released_early), 0);
	drive_for(reactor, 5);
	ck_assert(!released_early);
	ck_assert(reachable(BASE, SIZE));
	ck_assert_int_eq(neap_registry_unregister(registry, first, raise_flag, &released), 0);
	ck_assert(!reachable(BASE, 1));
	ck_assert(!released);
	settle();
	ck_assert(released);
	ck_assert(released_early);
	ck_assert_int_eq(neap_registry_unregister(registry, first, NULL, NULL), NEAP_ESTALE);
}
END_TEST

/* One start address, two lengths at different times: removal is by id, and an old id names nothing. */
START_TEST(ids_have_generations)
{
	neap_region_id first, second, found;
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, &first), 0);
	ck_assert_int_eq(neap_registry_unregister(registry, first, NULL, NULL), 0);
	ck_assert_int_eq(neap_registry_find_exact(registry, at(BASE), SIZE, &found), NEAP_ENOTREG);
	settle();
	ck_assert_int_eq(put(BASE, 2 * SIZE, NEAP_OPEN, &second), 0);
	ck_assert_uint_ne(first, second);
	ck_assert_int_eq(neap_registry_unregister(registry, first, NULL, NULL), NEAP_ESTALE);
	ck_assert_int_eq(neap_registry_find_exact(registry, at(BASE), SIZE, &found), NEAP_ENOTREG);
	ck_assert_int_eq(neap_registry_find_exact(registry, at(BASE), 2 * SIZE, &found), 0);
	ck_assert_uint_eq(found, second);
	ck_assert_int_eq(neap_registry_unregister(registry, 0, NULL, NULL), NEAP_ESTALE);
	ck_assert_int_eq(neap_registry_unregister(registry, UINT64_MAX, NULL, NULL), NEAP_ESTALE);
	ck_assert_int_eq(neap_registry_unregister(registry, second, NULL, NULL), 0);
	ck_assert_int_eq(neap_registry_unregister(registry, second, NULL, NULL), NEAP_ESTALE);
}
END_TEST

START_TEST(a_range_freed_may_be_registered_at_once_otherwise)
{
	neap_region_id id, other;
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, &id), 0);
	ck_assert_int_eq(neap_registry_unregister(registry, id, NULL, NULL), 0);
	/* Still fencing: the slot is taken, the addresses are free. */
	ck_assert_int_eq(put(BASE + 100, 50, NEAP_CLOSED, &other), 0);
	ck_assert(!reachable(BASE, 1));
	ck_assert(!reachable(BASE + 100, 1));
	ck_assert(!reachable(BASE + 150, 1));
}
END_TEST

static const struct {
	uint64_t address, length;
	bool reachable;
} reaches[] = {
	{BASE, SIZE, true},          {BASE, 1, true},
	{BASE + SIZE - 1, 1, true},  {BASE, 0, false},
	{BASE - 1, 1, false},        {BASE - 1, 2, false},
	{BASE + SIZE, 1, false},     {BASE + 1, SIZE, false},
	{BASE, UINT64_MAX, false},   {0, UINT64_MAX, false},
	{UINT64_MAX, 1, false},      {BASE + SIZE - 1, 2, false},
};

START_TEST(reach_is_inside_one_open_region)
{
	struct neap_access_ref ref;
	neap_region_id id;
	/* Neighbours on both sides do not add up to one range. */
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, &id), 0);
	ck_assert_int_eq(put(BASE + SIZE, SIZE, NEAP_CLOSED, NULL), 0);
	ck_assert_int_eq(put(BASE - SIZE, SIZE, NEAP_GRANT_ONLY, NULL), 0);
	ck_assert_int_eq(neap_registry_check(registry, reaches[_i].address, reaches[_i].length, &ref) == 0, reaches[_i].reachable);
	if (!reaches[_i].reachable)
		return;
	ck_assert(neap_access_live(registry, &ref));
	ck_assert_int_eq(neap_registry_unregister(registry, id, NULL, NULL), 0);
	ck_assert(!neap_access_live(registry, &ref));
	settle();
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, &id), 0);
	ck_assert(!neap_access_live(registry, &ref));
}
END_TEST

START_TEST(own_requests_reach_every_region)
{
	struct neap_access_ref ref;
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, NULL), 0);
	ck_assert_int_eq(put(BASE + SIZE, SIZE, NEAP_CLOSED, NULL), 0);
	ck_assert_int_eq(put(BASE + 3 * SIZE, SIZE, NEAP_GRANT_ONLY, NULL), 0);
	ck_assert_int_eq(neap_registry_check_local(registry, BASE + SIZE, SIZE, &ref), 0);
	ck_assert_int_eq(neap_registry_check_local(registry, BASE + 3 * SIZE, SIZE, &ref), 0);
	ck_assert_int_eq(neap_registry_check_local(registry, BASE + 3 * SIZE, 0, &ref), 0);
	ck_assert_int_eq(neap_registry_check_local(registry, BASE + 4 * SIZE, 0, &ref), 0);
	ck_assert_int_eq(neap_registry_check_local(registry, BASE + 4 * SIZE + 1, 0, &ref), NEAP_ENOTREG);
	ck_assert_int_eq(neap_registry_check_local(registry, BASE - 1, 0, &ref), NEAP_ENOTREG);
	ck_assert_int_eq(neap_registry_check_local(registry, BASE + SIZE - 1, 2, &ref), NEAP_ENOTREG);
}
END_TEST

/* --- many at once */

START_TEST(a_batch_is_all_or_none)
{
	neap_region_id ids[4] = {0};
	struct neap_memory memory[4] = {
		{.address = at(BASE), .length = 100},
		{.address = at(BASE + 200), .length = 100},
		{.address = at(BASE), .length = 100},
		{.address = at(BASE + 299), .length = 100},
	};
	uint64_t version = neap_registry_version(registry);
	ck_assert_int_eq(neap_registry_register(registry, memory, 4, ids, why, sizeof why), NEAP_EOVERLAP);
	ck_assert_ptr_nonnull(strstr(why, "range 3"));
	ck_assert_uint_eq(neap_registry_regions(registry), 0);
	ck_assert_uint_eq(neap_registry_version(registry), version);
	memory[3].address = at(BASE + 300);
	ck_assert_int_eq(neap_registry_register(registry, memory, 4, ids, why, sizeof why), 0);
	ck_assert_uint_eq(ids[0], ids[2]);
	ck_assert_uint_ne(ids[0], ids[1]);
	ck_assert_uint_eq(neap_registry_regions(registry), 3);
	ck_assert_int_eq(neap_registry_register(registry, memory, 0, ids, why, sizeof why), NEAP_EINVAL);
	ck_assert_int_eq(neap_registry_unregister(registry, ids[0], NULL, NULL), 0);
	ck_assert_int_eq(neap_registry_unregister(registry, ids[0], NULL, NULL), 0);
	ck_assert_int_eq(neap_registry_unregister(registry, ids[0], NULL, NULL), NEAP_ESTALE);
}
END_TEST

START_TEST(the_limits_are_told_before)
{
	struct neap_memory memory[3] = {{.address = at(BASE), .length = 1}, {.address = at(BASE + 8), .length = 1},
	                                {.address = at(BASE + 16), .length = 1}};
	teardown();
	make(2, 1);
	ck_assert_int_eq(neap_registry_register(registry, memory, 3, NULL, why, sizeof why), NEAP_ELIMIT);
	ck_assert_ptr_nonnull(strstr(why, "regions_max"));
	ck_assert_uint_eq(neap_registry_regions(registry), 0);
	ck_assert_int_eq(neap_registry_register(registry, memory, 2, NULL, why, sizeof why), 0);
	struct neap_registry *none;
	ck_assert_int_eq(neap_registry_create(&none, reactor, 0, 1), NEAP_EINVAL);
}
END_TEST

START_TEST(a_document_that_peers_would_refuse_is_refused_here)
{
	neap_region_id id;
	neap_registry_limit_document(registry, 100, 10, 0, 100 + 2 * (10 + 15 + 5), "a test allows");
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, &id), 0);
	ck_assert_int_eq(put(BASE + SIZE, SIZE, NEAP_OPEN, NULL), 0);
	ck_assert_int_eq(put(BASE + 2 * SIZE, SIZE, NEAP_OPEN, NULL), NEAP_ELIMIT);
	ck_assert_ptr_nonnull(strstr(why, "more than the 160 that a test allows"));
	ck_assert_int_eq(put(BASE + 2 * SIZE, SIZE, NEAP_CLOSED, NULL), 0);
	ck_assert_int_eq(neap_registry_unregister(registry, id, NULL, NULL), 0);
	ck_assert_int_eq(put(BASE + 3 * SIZE, SIZE, NEAP_OPEN, NULL), 0);
}
END_TEST

static uint64_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

enum { CELLS = 3000, CELL_BYTES = 64 };

/* Against a plain map of cells: which cell belongs to which region. */
START_TEST(many_changes_against_a_plain_map)
{
	static neap_region_id owner[CELLS];
	static uint32_t first_of[CELLS], length_of[CELLS];
	uint64_t random = 7 + (uint64_t)_i;
	memset(owner, 0, sizeof owner);
	for (uint32_t step = 0; step < 30000; step++) {
		uint32_t cell = (uint32_t)(next_random(&random) % CELLS), cells = 1 + (uint32_t)(next_random(&random) % 4);
		if (cell + cells > CELLS)
			cells = CELLS - cell;
		if (next_random(&random) % 100 < 40 && owner[cell]) {
			uint32_t first = first_of[cell], count = length_of[cell];
			ck_assert_int_eq(neap_registry_unregister(registry, owner[cell], NULL, NULL), 0);
			memset(owner + first, 0, count * sizeof *owner);
		} else {
			bool free_of = true;
			for (uint32_t i = 0; i < cells; i++)
				free_of = free_of && !owner[cell + i];
			bool same = owner[cell] && first_of[cell] == cell && length_of[cell] == cells;
			neap_region_id id = 0;
			int error = put(BASE + cell * CELL_BYTES, cells * CELL_BYTES, NEAP_OPEN, &id);
			ck_assert_int_eq(error, free_of || same ? 0 : NEAP_EOVERLAP);
			if (same)
				ck_assert_int_eq(neap_registry_unregister(registry, id, NULL, NULL), 0);
			for (uint32_t i = 0; free_of && i < cells; i++) {
				owner[cell + i] = id;
				first_of[cell + i] = cell;
				length_of[cell + i] = cells;
			}
		}
		uint32_t probe = (uint32_t)(next_random(&random) % CELLS);
		if (reachable(BASE + probe * CELL_BYTES + 5, 1) != (owner[probe] != 0))
			ck_abort_msg("step %u: cell %u", step, probe);
		if (step % 64 == 0)
			settle();
	}
	struct neap_registry_cursor cursor = {0};
	uint64_t address, length, last_end = 0;
	uint32_t regions = 0;
	while (neap_registry_next_open(registry, &cursor, &address, &length)) {
		ck_assert_uint_ge(address, last_end);
		last_end = address + length;
		regions++;
	}
	ck_assert_uint_eq(regions, neap_registry_regions(registry));
	ck_assert_uint_eq(regions, neap_registry_open_regions(registry));
}
END_TEST

START_TEST(twenty_thousand_in_one_call)
{
	enum { MANY = 20000 };
	struct neap_memory *memory = calloc(MANY, sizeof *memory);
	neap_region_id *ids = calloc(MANY, sizeof *ids);
	teardown();
	make(65536, 1);
	for (uint32_t i = 0; i < MANY; i++) /* not in address order */
		memory[i] = (struct neap_memory){.address = at(BASE + (i * 7919u % MANY) * 8192u), .length = 4096};
	uint64_t begun_ns = drive_now_ns();
	ck_assert_int_eq(neap_registry_register(registry, memory, MANY, ids, why, sizeof why), 0);
	uint64_t took_ns = drive_now_ns() - begun_ns;
	ck_assert_uint_eq(neap_registry_regions(registry), MANY);
	for (uint32_t i = 0; i < MANY; i++)
		if (!reachable((uintptr_t)memory[i].address, 4096))
			ck_abort_msg("range %u is not reachable", i);
	unsigned calls = 0;
	for (uint32_t i = 0; i < MANY; i++)
		if (neap_registry_unregister(registry, ids[i], count_call, &calls) != 0)
			ck_abort_msg("range %u cannot be unregistered", i);
	settle();
	ck_assert_uint_eq(calls, MANY);
	/* Far above what it takes, far below what copying everything for each would take. */
	ck_assert_uint_lt(took_ns, 2000000000u);
	free(memory);
	free(ids);
}
END_TEST

struct failing {
	uint32_t calls, fail_at;
	int64_t balance;
	uint64_t bytes; /* ever allocated */
};

static void *allocate(void *user, size_t bytes)
{
	struct failing *failing = user;
	if (++failing->calls == failing->fail_at)
		return NULL;
	failing->balance++;
	failing->bytes += bytes;
	return calloc(1, bytes);
}

static void release(void *user, void *memory, size_t bytes)
{
	struct failing *failing = user;
	(void)bytes;
	failing->balance--;
	free(memory);
}

enum { SPREAD = 12000 };

static struct neap_memory page(uint32_t number)
{
	return (struct neap_memory){.address = at(BASE + number * UINT64_C(8192)), .length = 4096, .location = "cpu:0"};
}

/* Calls of one to forty ranges, in no order; some are let go again. All is reachable that should be, and nothing else. */
START_TEST(calls_of_all_sizes)
{
	static neap_region_id ids[SPREAD];
	uint64_t random = 11 + (uint64_t)_i;
	memset(ids, 0, sizeof ids);
	teardown();
	make(SPREAD, 1);
	for (uint32_t done = 0, count; done < SPREAD; done += count) {
		struct neap_memory memory[40];
		count = 1 + (uint32_t)(next_random(&random) % 40);
		if (count > SPREAD - done)
			count = SPREAD - done;
		for (uint32_t i = 0; i < count; i++)
			memory[i] = page((done + i) * 7919u % SPREAD);
		ck_assert_int_eq(neap_registry_register(registry, memory, count, ids + done, why, sizeof why), 0);
		uint32_t gone = (uint32_t)(next_random(&random) % (done + count));
		if (ids[gone] && neap_registry_unregister(registry, ids[gone], NULL, NULL) == 0)
			ids[gone] = 0;
	}
	for (uint32_t i = 0; i < SPREAD; i++)
		if (reachable((uintptr_t)page(i * 7919u % SPREAD).address, 4096) != (ids[i] != 0))
			ck_abort_msg("range %u", i);
	struct neap_registry_cursor cursor = {0};
	uint64_t address, length, last = 0;
	uint32_t regions = 0;
	for (; neap_registry_next_open(registry, &cursor, &address, &length); last = address, regions++)
		ck_assert_uint_gt(address, last);
	ck_assert_uint_eq(regions, neap_registry_regions(registry));
}
END_TEST

/* What one call after the other costs does not grow with what is registered already, in whatever sizes the calls come, when they come in
 * the order of addresses; the last region is behind them all. */
START_TEST(the_cost_of_a_call_does_not_grow)
{
	uint32_t batch = (uint32_t)_i;
	struct failing counted = {0};
	struct neap_reactor_options options = {.alloc = {allocate, release, &counted}};
	teardown();
	ck_assert_int_eq(neap_reactor_create(&reactor, &options), 0);
	ck_assert_int_eq(neap_registry_create(&registry, reactor, 65536, 1), 0);
	struct neap_memory last = page(SPREAD), memory[4];
	ck_assert_int_eq(neap_registry_register(registry, &last, 1, NULL, why, sizeof why), 0);
	counted.bytes = 0;
	for (uint32_t i = 0; i < SPREAD; i += batch) {
		for (uint32_t j = 0; j < batch; j++)
			memory[j] = page(i + j);
		ck_assert_int_eq(neap_registry_register(registry, memory, batch, NULL, why, sizeof why), 0);
	}
	ck_assert_uint_lt(counted.bytes / SPREAD, 600);
	teardown();
	setup();
}
END_TEST

START_TEST(location_of_a_touched_page_is_known)
{
	unsigned char *page = aligned_alloc(4096, 4096);
	neap_region_id id;
	struct neap_region_info info;
	unsigned node;
	page[0] = 1;
	struct neap_memory memory = {.address = page + 5, .length = 100};
	ck_assert_int_eq(neap_registry_register(registry, &memory, 1, &id, why, sizeof why), 0);
	ck_assert_int_eq(neap_registry_info(registry, id, &info), 0);
	/* A kernel without NUMA, or one that refuses, leaves "*". */
	ck_assert(strcmp(info.location, "*") == 0 || sscanf(info.location, "cpu:%u", &node) == 1);
	free(page);
}
END_TEST

/* Whatever allocation fails, a call registers all or nothing, and what was there stays reachable. */
START_TEST(registering_without_memory)
{
	struct failing failing = {0};
	struct neap_memory memory[500];
	uint32_t count = _i == 0 ? 1 : 500, before, k = 0;
	int error;
	teardown();
	struct neap_reactor_options options = {.alloc = {allocate, release, &failing}};
	ck_assert_int_eq(neap_reactor_create(&reactor, &options), 0);
	ck_assert_int_eq(neap_registry_create(&registry, reactor, 4096, 4), 0);
	for (uint32_t i = 0; i < 500; i++)
		memory[i] = (struct neap_memory){.address = at(BASE + i * 4096), .length = 100};
	ck_assert_int_eq(neap_registry_register(registry, memory, 500, NULL, why, sizeof why), 0);
	for (uint32_t i = 0; i < 500; i++)
		memory[i].address = at(BASE + i * 4096 + 100);
	before = neap_registry_regions(registry);
	do {
		failing.calls = 0;
		failing.fail_at = ++k;
		error = neap_registry_register(registry, memory, count, NULL, why, sizeof why);
		failing.fail_at = 0;
		ck_assert(error == 0 || error == NEAP_ENOMEM);
		ck_assert_uint_eq(neap_registry_regions(registry), error ? before : before + count);
		ck_assert(reachable(BASE + 499 * 4096, 100));
		ck_assert_int_eq(reachable((uintptr_t)memory[count - 1].address, 100), error == 0);
	} while (error);
	ck_assert_uint_ge(k, 4);
	teardown();
	ck_assert_int_eq(failing.balance, 0);
	setup();
}
END_TEST

/* --- grants */

static const uint8_t peer[16] = {1, 2, 3}, stranger[16] = {9};

static const struct {
	const char *name;
	uint64_t offset, length;
	unsigned right;
	const uint8_t *who;
	int error;
} uses[] = {
	{"all of it", 0, 1000, NEAP_MAY_WRITE, peer, 0},
	{"its last byte", 999, 1, NEAP_MAY_WRITE, peer, 0},
	{"one byte too many", 0, 1001, NEAP_MAY_WRITE, peer, NEAP_EGRANT},
	{"one byte after", 1000, 1, NEAP_MAY_WRITE, peer, NEAP_EGRANT},
	{"one byte before", UINT64_MAX, 1, NEAP_MAY_WRITE, peer, NEAP_EGRANT},
	{"nothing", 0, 0, NEAP_MAY_WRITE, peer, NEAP_EGRANT},
	{"wrap-around", 10, UINT64_MAX, NEAP_MAY_WRITE, peer, NEAP_EGRANT},
	{"a right not given", 0, 10, NEAP_MAY_READ, peer, NEAP_EGRANT},
	{"no right", 0, 10, 0, peer, NEAP_EGRANT},
	{"another instance", 0, 10, NEAP_MAY_WRITE, stranger, NEAP_EGRANT},
	{"nobody", 0, 10, NEAP_MAY_WRITE, NULL, NEAP_EGRANT},
};

START_TEST(a_grant_allows_what_it_says)
{
	struct neap_grant_token token;
	struct neap_access_ref ref;
	ck_assert_int_eq(put(BASE, SIZE, NEAP_GRANT_ONLY, NULL), 0);
	ck_assert_int_eq(neap_registry_grant(registry, at(BASE + 50), 1000, NEAP_MAY_WRITE, peer, &token), 0);
	ck_assert_msg(neap_registry_check_grant(registry, &token, BASE + 50 + uses[_i].offset, uses[_i].length, uses[_i].right,
	                                        uses[_i].who, &ref) == uses[_i].error,
	              "%s", uses[_i].name);
	ck_assert(!reachable(BASE + 50, 1));
}
END_TEST

START_TEST(every_bit_of_a_token_counts)
{
	struct neap_grant_token token, wrong;
	struct neap_access_ref ref;
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, NULL), 0);
	ck_assert_int_eq(neap_registry_grant(registry, at(BASE), 1000, NEAP_MAY_WRITE | NEAP_MAY_READ, NULL, &token), 0);
	ck_assert_int_eq(neap_registry_check_grant(registry, &token, BASE, 1000, NEAP_MAY_READ, stranger, &ref), 0);
	for (uint32_t bit = 0; bit < 8 * sizeof token.bytes; bit++) {
		wrong = token;
		wrong.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_int_eq(neap_registry_check_grant(registry, &wrong, BASE, 1000, NEAP_MAY_READ, stranger, &ref), NEAP_EGRANT);
		int error = neap_registry_grant_end(registry, &wrong, NULL, NULL);
		ck_assert(error == NEAP_EGRANT || error == NEAP_ESTALE);
	}
	ck_assert_uint_eq(neap_registry_grants(registry), 1);
}
END_TEST

START_TEST(an_ended_grant_is_dead_at_once_and_for_good)
{
	struct neap_grant_token token, next;
	struct neap_access_ref ref;
	bool ended = false;
	neap_region_id id;
	ck_assert_int_eq(put(BASE, SIZE, NEAP_GRANT_ONLY, &id), 0);
	ck_assert_int_eq(neap_registry_grant(registry, at(BASE), 1000, NEAP_MAY_WRITE, NULL, &token), 0);
	ck_assert_int_eq(neap_registry_check_grant(registry, &token, BASE, 10, NEAP_MAY_WRITE, NULL, &ref), 0);
	ck_assert(neap_access_live(registry, &ref));
	ck_assert_int_eq(neap_registry_grant_end(registry, &token, raise_flag, &ended), 0);
	ck_assert(!neap_access_live(registry, &ref));
	ck_assert_int_eq(neap_registry_check_grant(registry, &token, BASE, 10, NEAP_MAY_WRITE, NULL, &ref), NEAP_EGRANT);
	ck_assert(!ended);
	settle();
	ck_assert(ended);
	ck_assert_int_eq(neap_registry_grant_end(registry, &token, NULL, NULL), NEAP_ESTALE);
	/* The slot again: the old token opens nothing. */
	ck_assert_int_eq(neap_registry_grant(registry, at(BASE), 1000, NEAP_MAY_WRITE, NULL, &next), 0);
	ck_assert_int_ne(memcmp(token.bytes + 8, next.bytes + 8, 24), 0);
	ck_assert_int_eq(neap_registry_check_grant(registry, &token, BASE, 10, NEAP_MAY_WRITE, NULL, &ref), NEAP_EGRANT);
	ck_assert_int_eq(neap_registry_grant_end(registry, &token, NULL, NULL), NEAP_ESTALE);
	/* The region goes: its grants reach nothing. */
	ck_assert_int_eq(neap_registry_check_grant(registry, &next, BASE, 10, NEAP_MAY_WRITE, NULL, &ref), 0);
	ck_assert_int_eq(neap_registry_unregister(registry, id, NULL, NULL), 0);
	ck_assert(!neap_access_live(registry, &ref));
	ck_assert_int_eq(neap_registry_check_grant(registry, &next, BASE, 10, NEAP_MAY_WRITE, NULL, &ref), NEAP_EGRANT);
	ck_assert_int_eq(neap_registry_grant_end(registry, &next, NULL, NULL), 0);
}
END_TEST

START_TEST(grants_need_memory_that_may_be_granted)
{
	struct neap_grant_token token;
	ck_assert_int_eq(put(BASE, SIZE, NEAP_CLOSED, NULL), 0);
	ck_assert_int_eq(put(BASE + SIZE, SIZE, NEAP_OPEN, NULL), 0);
	ck_assert_int_eq(neap_registry_grant(registry, at(BASE), 10, NEAP_MAY_READ, NULL, &token), NEAP_EINVAL);
	ck_assert_int_eq(neap_registry_grant(registry, at(BASE + SIZE), SIZE + 1, NEAP_MAY_READ, NULL, &token), NEAP_ENOTREG);
	ck_assert_int_eq(neap_registry_grant(registry, at(BASE + SIZE), 0, NEAP_MAY_READ, NULL, &token), NEAP_EINVAL);
	ck_assert_int_eq(neap_registry_grant(registry, at(BASE + SIZE), 1, 0, NULL, &token), NEAP_EINVAL);
	ck_assert_int_eq(neap_registry_grant(registry, at(BASE + SIZE), 1, 8, NULL, &token), NEAP_EINVAL);
	for (uint32_t i = 0; i < 64; i++)
		ck_assert_int_eq(neap_registry_grant(registry, at(BASE + SIZE), 1, NEAP_MAY_READ, NULL, &token), 0);
	ck_assert_int_eq(neap_registry_grant(registry, at(BASE + SIZE), 1, NEAP_MAY_READ, NULL, &token), NEAP_ELIMIT);
	ck_assert_int_eq(neap_registry_grant_end(registry, &token, NULL, NULL), 0);
	settle();
	ck_assert_int_eq(neap_registry_grant(registry, at(BASE + SIZE), 1, NEAP_MAY_READ, NULL, &token), 0);
}
END_TEST

/* --- local use */

START_TEST(what_own_requests_use_is_busy)
{
	struct neap_use_cache cache = {0};
	neap_region_id low, high;
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, &low), 0);
	ck_assert_int_eq(put(BASE + SIZE, SIZE, NEAP_OPEN, &high), 0);
	uint32_t use = neap_registry_use(registry, 0, &cache, BASE + 10, 100), again = neap_registry_use(registry, 0, &cache, BASE, SIZE);
	uint32_t nowhere = neap_registry_use(registry, 0, &cache, BASE - 1000, 10);
	ck_assert_int_eq(neap_registry_unregister(registry, low, NULL, NULL), NEAP_EBUSY);
	neap_registry_unuse(registry, 0, use);
	ck_assert_int_eq(neap_registry_unregister(registry, low, NULL, NULL), NEAP_EBUSY);
	neap_registry_unuse(registry, 0, again);
	neap_registry_unuse(registry, 0, nowhere);
	/* Over the border of two regions, and from a gap into one. */
	uint32_t both = neap_registry_use(registry, 0, &cache, BASE + SIZE - 1, 2);
	ck_assert_int_eq(neap_registry_unregister(registry, low, NULL, NULL), NEAP_EBUSY);
	ck_assert_int_eq(neap_registry_unregister(registry, high, NULL, NULL), NEAP_EBUSY);
	neap_registry_unuse(registry, 0, both);
	uint32_t into = neap_registry_use(registry, 0, &cache, BASE - 1, 2);
	ck_assert_int_eq(neap_registry_unregister(registry, low, NULL, NULL), NEAP_EBUSY);
	ck_assert_int_eq(neap_registry_unregister(registry, high, NULL, NULL), 0);
	neap_registry_unuse(registry, 0, into);
	ck_assert_int_eq(neap_registry_unregister(registry, low, NULL, NULL), 0);
	ck_assert_uint_eq(neap_registry_use(registry, 0, &cache, BASE, 10), 0);
}
END_TEST

/* --- grace periods with a second core */

struct core {
	pthread_t thread;
	struct neap_reactor *reactor;
	struct neap_registry *registry;
	unsigned char *target;   /* what its long turn writes */
	uint32_t core_index;
	_Atomic bool in_turn, leave_turn, quit, ready;
	_Atomic uint64_t stored; /* how often it stored under a check */
	_Atomic int *revoked;    /* set by home when `released` was called */
	_Atomic bool late;       /* it stored after that */
};

/* A turn as a lane has it: check, store, look, store; and it may be held in the middle. */
static void long_turn(void *argument)
{
	struct core *core = argument;
	struct neap_access_ref ref;
	int error = neap_registry_check(core->registry, (uintptr_t)core->target, 64, &ref);
	atomic_store(&core->in_turn, true);
	while (!atomic_load(&core->leave_turn))
		;
	/* The range was live when this turn looked: until its end it may be touched. */
	if (error == 0) {
		memset(core->target, 0xee, 64);
		atomic_fetch_add(&core->stored, 1);
	}
}

static void *run_core(void *argument)
{
	struct core *core = argument;
	ck_assert_int_eq(neap_reactor_adopt(core->reactor), 0);
	ck_assert_int_eq(neap_registry_add_core(core->registry, core->reactor, &core->core_index), 0);
	atomic_store(&core->ready, true);
	while (!atomic_load(&core->quit))
		neap_reactor_run_once(core->reactor, NULL);
	while (neap_registry_remove_core(core->registry, core->core_index, core->reactor) != 0)
		;
	return NULL;
}

static void core_start(struct core *core, unsigned char *target)
{
	*core = (struct core){.registry = registry, .target = target};
	struct neap_reactor_options options = {.mode = NEAP_MODE_BUSY};
	ck_assert_int_eq(neap_reactor_create(&core->reactor, &options), 0);
	ck_assert_int_eq(pthread_create(&core->thread, NULL, run_core, core), 0);
	while (!atomic_load(&core->ready))
		;
}

static void core_end(struct core *core)
{
	atomic_store(&core->quit, true);
	ck_assert_int_eq(pthread_join(core->thread, NULL), 0);
	ck_assert_int_eq(neap_reactor_adopt(core->reactor), 0);
	drive_to_end(core->reactor);
}

START_TEST(memory_is_held_until_the_other_core_has_ended_its_turn)
{
	static unsigned char target[64];
	struct core core;
	neap_region_id id;
	bool released = false;
	ck_assert_int_eq(put((uintptr_t)target, sizeof target, NEAP_OPEN, &id), 0);
	core_start(&core, target);
	ck_assert_int_eq(neap_reactor_post(core.reactor, long_turn, &core), 0);
	while (!atomic_load(&core.in_turn))
		;
	ck_assert_int_eq(neap_registry_unregister(registry, id, raise_flag, &released), 0);
	drive_for(reactor, 30);
	ck_assert(!released);
	ck_assert_int_eq(neap_registry_destroy(registry), NEAP_EBUSY);
	atomic_store(&core.leave_turn, true);
	ck_assert(drive_until(reactor, &released, 5000));
	/* Ours again: what the turn stored is there, and nothing comes later. */
	ck_assert_uint_eq(atomic_load(&core.stored), 1);
	ck_assert_uint_eq(target[63], 0xee);
	memset(target, 0x11, sizeof target);
	atomic_store(&core.in_turn, false);
	ck_assert_int_eq(neap_reactor_post(core.reactor, long_turn, &core), 0);
	while (!atomic_load(&core.in_turn))
		;
	core_end(&core);
	ck_assert_uint_eq(atomic_load(&core.stored), 1);
	ck_assert_uint_eq(target[0], 0x11);
}
END_TEST

START_TEST(a_long_turn_is_complained_about)
{
	static unsigned char target[64];
	struct core core;
	neap_region_id id;
	bool released = false;
	ck_assert_int_eq(put((uintptr_t)target, sizeof target, NEAP_OPEN, &id), 0);
	core_start(&core, target);
	ck_assert_int_eq(neap_reactor_post(core.reactor, long_turn, &core), 0);
	while (!atomic_load(&core.in_turn))
		;
	ck_assert_int_eq(neap_registry_unregister(registry, id, raise_flag, &released), 0);
	drive_for(reactor, 1100);
	ck_assert(!released);
	struct neap_reactor_stats stats;
	neap_reactor_stats(reactor, &stats);
	/* It looks every millisecond and does not spin. */
	ck_assert_uint_lt(stats.turns, 3000);
	atomic_store(&core.leave_turn, true);
	ck_assert(drive_until(reactor, &released, 5000));
	core_end(&core);
}
END_TEST

/* The stress: the core checks and stores in turn after turn while home registers, revokes and writes the memory itself when it was
 * released. TSan sees a race when a store comes late; without it the pattern does. */
static void store_turn(void *argument)
{
	struct core *core = argument;
	struct neap_access_ref ref;
	if (neap_registry_check(core->registry, (uintptr_t)core->target, 64, &ref) == 0 && neap_access_live(core->registry, &ref)) {
		memset(core->target, 0xee, 64);
		atomic_fetch_add(&core->stored, 1);
	}
	if (!atomic_load(&core->leave_turn))
		(void)neap_reactor_post(core->reactor, store_turn, core);
}

START_TEST(no_store_after_release)
{
	static unsigned char target[64];
	struct core core;
	memset(target, 0, sizeof target);
	core_start(&core, target);
	ck_assert_int_eq(neap_reactor_post(core.reactor, store_turn, &core), 0);
	for (uint32_t round = 0; round < 60; round++) {
		neap_region_id id;
		bool released = false;
		uint64_t stored = atomic_load(&core.stored);
		ck_assert_int_eq(put((uintptr_t)target, sizeof target, NEAP_OPEN, &id), 0);
		while (atomic_load(&core.stored) < stored + 3)
			;
		ck_assert_int_eq(neap_registry_unregister(registry, id, raise_flag, &released), 0);
		ck_assert(drive_until(reactor, &released, 5000));
		memset(target, (int)(round & 0x7f), sizeof target);
		drive_for(reactor, 0);
		for (uint32_t i = 0; i < sizeof target; i++)
			ck_assert_uint_eq(target[i], round & 0x7f);
	}
	atomic_store(&core.leave_turn, true);
	core_end(&core);
}
END_TEST

START_TEST(no_store_under_an_ended_grant)
{
	static unsigned char target[64];
	struct core core;
	neap_region_id id;
	struct neap_grant_token token;
	bool ended = false;
	ck_assert_int_eq(put((uintptr_t)target, sizeof target, NEAP_OPEN, &id), 0);
	ck_assert_int_eq(neap_registry_grant(registry, target, 64, NEAP_MAY_WRITE, NULL, &token), 0);
	core_start(&core, target);
	ck_assert_int_eq(neap_reactor_post(core.reactor, long_turn, &core), 0);
	while (!atomic_load(&core.in_turn))
		;
	ck_assert_int_eq(neap_registry_grant_end(registry, &token, raise_flag, &ended), 0);
	drive_for(reactor, 10);
	ck_assert(!ended);
	atomic_store(&core.leave_turn, true);
	ck_assert(drive_until(reactor, &ended, 5000));
	core_end(&core);
}
END_TEST

/* A public call between turns is not covered by the turn counter. */
START_TEST(calls_between_turns_are_waited_for)
{
	neap_region_id id;
	bool released = false;
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, &id), 0);
	neap_registry_enter(registry, 0);
	ck_assert_int_eq(neap_registry_unregister(registry, id, raise_flag, &released), 0);
	drive_for(reactor, 10);
	ck_assert(!released);
	neap_registry_leave(registry, 0);
	ck_assert(drive_until(reactor, &released, 1000));
}
END_TEST

struct own_turn {
	neap_region_id id;
	bool released, seen_in_turn, done;
	struct neap_ready ready;
};

static void unregister_in_turn(void *argument)
{
	struct own_turn *own = argument;
	ck_assert_int_eq(neap_registry_unregister(registry, own->id, raise_flag, &own->released), 0);
	own->done = true;
}

/* Home's own turn counts: a handler further up the stack may hold what it has checked. */
START_TEST(the_own_turn_is_waited_for)
{
	struct own_turn own = {0};
	ck_assert_int_eq(put(BASE, SIZE, NEAP_OPEN, &own.id), 0);
	ck_assert_int_eq(neap_reactor_post(reactor, unregister_in_turn, &own), 0);
	while (!own.done)
		ck_assert_int_gt(neap_reactor_run_once(reactor, NULL), 0);
	ck_assert(!own.released);
	ck_assert(drive_until(reactor, &own.released, 1000));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory");
	TCase *ranges = tcase_create("ranges"), *many = tcase_create("many"), *grants = tcase_create("grants"),
	      *grace = tcase_create("grace");
	TCase *const cases[] = {ranges, many, grants, grace};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		tcase_add_checked_fixture(cases[i], setup, teardown);
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(suite, cases[i]);
	}
	tcase_add_loop_test(ranges, overlap_is_refused_by_name, 0, sizeof overlaps / sizeof overlaps[0]);
	tcase_add_test(ranges, same_range_is_counted);
	tcase_add_test(ranges, ids_have_generations);
	tcase_add_test(ranges, a_range_freed_may_be_registered_at_once_otherwise);
	tcase_add_loop_test(ranges, reach_is_inside_one_open_region, 0, sizeof reaches / sizeof reaches[0]);
	tcase_add_test(ranges, own_requests_reach_every_region);
	tcase_add_test(ranges, what_own_requests_use_is_busy);
	tcase_add_test(ranges, location_of_a_touched_page_is_known);
	tcase_add_test(many, a_batch_is_all_or_none);
	tcase_add_test(many, the_limits_are_told_before);
	tcase_add_test(many, a_document_that_peers_would_refuse_is_refused_here);
	tcase_add_loop_test(many, many_changes_against_a_plain_map, 0, 4);
	tcase_add_test(many, twenty_thousand_in_one_call);
	tcase_add_loop_test(many, calls_of_all_sizes, 0, 3);
	tcase_add_loop_test(many, the_cost_of_a_call_does_not_grow, 1, 4);
	tcase_add_loop_test(many, registering_without_memory, 0, 2);
	tcase_add_loop_test(grants, a_grant_allows_what_it_says, 0, sizeof uses / sizeof uses[0]);
	tcase_add_test(grants, every_bit_of_a_token_counts);
	tcase_add_test(grants, an_ended_grant_is_dead_at_once_and_for_good);
	tcase_add_test(grants, grants_need_memory_that_may_be_granted);
	tcase_add_test(grace, memory_is_held_until_the_other_core_has_ended_its_turn);
	tcase_add_test(grace, a_long_turn_is_complained_about);
	tcase_add_test(grace, no_store_after_release);
	tcase_add_test(grace, no_store_under_an_ended_grant);
	tcase_add_test(grace, calls_between_turns_are_waited_for);
	tcase_add_test(grace, the_own_turn_is_waited_for);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
