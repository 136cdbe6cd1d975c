/* Memory tiers: slabs, runs, and what a drained slab gives out. */
#include "reactor/net.h"
#include "store/tier/dram.h"
#include "tests/support/coverage.h"
#include <check.h>
#include <neap/store_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define SLAB (2 * MIB)
#define SLABS_MAX 64

static struct neap_reactor *reactor;
static struct neap_dram dram;
static char why[200];

/* A registration table that can refuse, and that releases when told. */
static struct {
	bool attached[SLABS_MAX];
	uint64_t lengths[SLABS_MAX];
	uint32_t attaches, detaches;
	int refuse_attach, refuse_detach; /* the error; 0: none */
	uint32_t refuse_slab;
	bool later;
	void (*released[SLABS_MAX])(void *argument);
	void *arguments[SLABS_MAX];
	uint32_t waiting;
} table;

static int attach(void *user, uint32_t slab, void *address, uint64_t length, char *reason, size_t size)
{
	(void)size;
	ck_assert_ptr_eq(user, &table);
	ck_assert(!table.attached[slab]);
	ck_assert_ptr_eq(address, (unsigned char *)neap_dram_address(&dram, slab * dram.slab_bytes));
	table.attaches++;
	if (table.refuse_attach && slab == table.refuse_slab) {
		strcpy(reason, "no");
		return table.refuse_attach;
	}
	table.attached[slab] = true;
	table.lengths[slab] = length;
	return NEAP_OK;
}

static int detach(void *user, uint32_t slab, void (*released)(void *argument), void *argument)
{
	(void)user;
	ck_assert(table.attached[slab]);
	if (table.refuse_detach && slab == table.refuse_slab)
		return table.refuse_detach;
	table.attached[slab] = false;
	table.detaches++;
	if (!table.later) {
		released(argument);
		return NEAP_OK;
	}
	table.released[table.waiting] = released;
	table.arguments[table.waiting++] = argument;
	return NEAP_OK;
}

static const struct neap_slab_ops ops = {attach, detach};

static void release_all(void)
{
	uint32_t count = table.waiting;
	table.waiting = 0;
	for (uint32_t i = 0; i < count; i++)
		table.released[i](table.arguments[i]);
}

static void setup(void)
{
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), NEAP_OK);
	memset(&table, 0, sizeof table);
}

static void begin(uint64_t capacity)
{
	struct neap_dram_options options = {.capacity = capacity, .slab_bytes = SLAB, .numa_node = -1};
	ck_assert_msg(neap_dram_create(&dram, reactor, &options, why, sizeof why) == NEAP_OK, "%s", why);
	ck_assert_int_eq(neap_dram_attach(&dram, &ops, &table, why, sizeof why), NEAP_OK);
}

static bool is_closed;

static void closed(void *user)
{
	ck_assert_ptr_eq(user, &dram);
	is_closed = true;
}

static void end(void)
{
	is_closed = false;
	ck_assert_int_eq(neap_dram_close(&dram, closed, &dram), NEAP_OK);
	ck_assert(is_closed);
	ck_assert_ptr_null(dram.base);
	ck_assert_int_eq(support_reactor_destroy(reactor), NEAP_OK);
	for (int i = 0; i < SLABS_MAX; i++)
		ck_assert(!table.attached[i]);
}

static void sound(void)
{
	const char *wrong = neap_dram_check(&dram);
	ck_assert_msg(!wrong, "%s", wrong);
}

static struct neap_extent take(uint64_t bytes)
{
	struct neap_extent extent;
	ck_assert_int_eq(neap_dram_allocate(&dram, bytes, &extent), NEAP_STORE_OK);
	ck_assert_uint_ge(extent.rounded, bytes);
	sound();
	return extent;
}

static struct neap_dram_stats stats(void)
{
	struct neap_dram_stats stats;
	neap_dram_stats(&dram, &stats);
	return stats;
}

START_TEST(small_ones_never_span_slabs)
{
	begin(4 * SLAB);
	struct neap_extent extents[16];
	uint32_t count = 0;
	while (neap_dram_allocate(&dram, 700 * 1024, &extents[count]) == NEAP_STORE_OK) {
		ck_assert_uint_eq(neap_dram_slab(&dram, extents[count].offset),
		                  neap_dram_slab(&dram, extents[count].offset + extents[count].rounded - 1));
		sound();
		count++;
	}
	ck_assert_uint_eq(count, 8); /* two a slab: a third would reach into the next */
	ck_assert_uint_eq(stats().extents, 8);
	ck_assert_uint_eq(stats().requested_bytes, 8 * 700 * 1024);
	ck_assert_uint_eq(stats().slabs_used, 4);
	while (count > 0)
		neap_dram_free(&dram, &extents[--count]);
	sound();
	ck_assert_uint_eq(stats().slabs_used, 0);
	ck_assert_uint_eq(stats().largest_bytes, 4 * SLAB);
	end();
}
END_TEST

START_TEST(large_ones_get_runs_of_whole_slabs)
{
	begin(5 * SLAB);
	struct neap_extent small = take(100), large = take(2 * SLAB + 1), one = take(SLAB), none;
	ck_assert(large.whole && one.whole && !small.whole);
	ck_assert_uint_eq(large.rounded, 3 * SLAB);
	ck_assert_uint_eq(large.offset % SLAB, 0);
	ck_assert_int_eq(neap_dram_allocate(&dram, SLAB, &none), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_int_eq(neap_dram_allocate(&dram, 0, &none), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(neap_dram_allocate(&dram, UINT64_MAX, &none), NEAP_STORE_NO_AVAILABLE_HANDLE);
	memset(neap_dram_address(&dram, large.offset), 0x5a, large.size); /* it is memory */
	memset(neap_dram_address(&dram, small.offset), 0xa5, small.size);
	ck_assert_int_eq(*(unsigned char *)neap_dram_address(&dram, large.offset + large.size - 1), 0x5a);
	ck_assert_int_eq(neap_dram_close(&dram, closed, &dram), NEAP_EBUSY);
	neap_dram_free(&dram, &large);
	neap_dram_free(&dram, &small);
	neap_dram_free(&dram, &one);
	sound();
	end();
}
END_TEST

START_TEST(the_last_slab_may_be_shorter)
{
	begin(SLAB + 12345);
	ck_assert_uint_eq(dram.capacity, SLAB + 12288);
	ck_assert_uint_eq(table.lengths[1], 12288);
	struct neap_extent tail = take(12288), whole = take(SLAB), none;
	ck_assert_uint_eq(tail.offset, SLAB);
	ck_assert_int_eq(neap_dram_allocate(&dram, 1, &none), NEAP_STORE_NO_AVAILABLE_HANDLE);
	neap_dram_free(&dram, &tail);
	neap_dram_free(&dram, &whole);
	end();
}
END_TEST

START_TEST(a_tier_smaller_than_a_slab)
{
	begin(64 * 1024);
	struct neap_extent extent = take(60000);
	neap_dram_free(&dram, &extent);
	end();
}
END_TEST

static int renewed_error;
static uint32_t renewed_count;

static void renewed(void *user, uint32_t slab, int error, const char *reason)
{
	ck_assert_ptr_eq(user, &dram);
	ck_assert_uint_lt(slab, dram.slab_count);
	ck_assert(error == NEAP_OK || strcmp(reason, "no") == 0);
	renewed_error = error;
	renewed_count++;
}

START_TEST(a_draining_slab_gives_nothing_until_it_is_renewed)
{
	begin(2 * SLAB);
	struct neap_extent a = take(1000), b = take(1000), c, none;
	uint32_t slab = neap_dram_slab(&dram, a.offset);
	ck_assert_int_eq(neap_dram_drain(&dram, 1 - slab), NEAP_EINVAL); /* nothing in it */
	ck_assert_int_eq(neap_dram_drain(&dram, 2), NEAP_EINVAL);
	ck_assert_int_eq(neap_dram_renew(&dram, slab, renewed, &dram), NEAP_EINVAL);
	ck_assert_int_eq(neap_dram_drain(&dram, slab), NEAP_OK);
	ck_assert_int_eq(neap_dram_drain(&dram, slab), NEAP_OK);
	sound();
	c = take(1000);
	ck_assert_uint_ne(neap_dram_slab(&dram, c.offset), slab);
	neap_dram_free(&dram, &b);
	ck_assert_uint_eq(stats().slabs_draining, 1);
	ck_assert_uint_eq(stats().draining_bytes, SLAB - 1024);
	ck_assert_int_eq(neap_dram_allocate(&dram, SLAB, &none), NEAP_STORE_NO_AVAILABLE_HANDLE);
	table.later = true;
	renewed_count = 0;
	ck_assert_int_eq(neap_dram_renew(&dram, slab, renewed, &dram), NEAP_OK);
	ck_assert_int_eq(neap_dram_renew(&dram, slab, renewed, &dram), NEAP_EBUSY);
	ck_assert_int_eq(neap_dram_close(&dram, closed, &dram), NEAP_EBUSY);
	ck_assert_uint_eq(renewed_count, 0);
	release_all();
	ck_assert_uint_eq(renewed_count, 1);
	ck_assert_int_eq(renewed_error, NEAP_OK);
	ck_assert(table.attached[slab]);
	sound();
	ck_assert_uint_eq(stats().draining_bytes, 0);
	neap_dram_free(&dram, &a);
	a = take(SLAB); /* whole again */
	neap_dram_free(&dram, &a);
	neap_dram_free(&dram, &c);
	table.later = false;
	end();
}
END_TEST

START_TEST(a_slab_that_empties_while_it_drains_waits_too)
{
	begin(2 * SLAB);
	struct neap_extent a = take(1000), run, none;
	ck_assert_int_eq(neap_dram_drain(&dram, 0), NEAP_OK);
	neap_dram_free(&dram, &a);
	sound();
	ck_assert_int_eq(neap_dram_allocate(&dram, 2 * SLAB, &none), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_int_eq(neap_dram_renew(&dram, 0, renewed, &dram), NEAP_OK);
	run = take(2 * SLAB);
	ck_assert_int_eq(neap_dram_drain(&dram, 0), NEAP_OK);
	ck_assert_int_eq(neap_dram_drain(&dram, 1), NEAP_OK);
	neap_dram_free(&dram, &run);
	sound();
	ck_assert_int_eq(neap_dram_allocate(&dram, 1, &none), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_int_eq(neap_dram_renew(&dram, 1, renewed, &dram), NEAP_OK);
	ck_assert_int_eq(neap_dram_allocate(&dram, 1, &none), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_int_eq(neap_dram_renew(&dram, 0, NULL, NULL), NEAP_OK);
	sound();
	run = take(2 * SLAB);
	neap_dram_free(&dram, &run);
	end();
}
END_TEST

START_TEST(a_renewal_that_fails_can_be_repeated)
{
	begin(2 * SLAB);
	struct neap_extent a = take(1000);
	ck_assert_int_eq(neap_dram_drain(&dram, 0), NEAP_OK);
	table.refuse_detach = NEAP_EBUSY;
	ck_assert_int_eq(neap_dram_renew(&dram, 0, renewed, &dram), NEAP_EBUSY);
	table.refuse_detach = 0;
	table.refuse_attach = NEAP_ENOMEM;
	ck_assert_int_eq(neap_dram_renew(&dram, 0, renewed, &dram), NEAP_OK);
	ck_assert_int_eq(renewed_error, NEAP_ENOMEM);
	ck_assert_uint_eq(stats().slabs_draining, 1);
	table.refuse_attach = 0;
	ck_assert_int_eq(neap_dram_renew(&dram, 0, renewed, &dram), NEAP_OK);
	ck_assert_int_eq(renewed_error, NEAP_OK);
	ck_assert_uint_eq(stats().slabs_draining, 0);
	neap_dram_free(&dram, &a);
	end();
}
END_TEST

START_TEST(registration_that_fails_is_taken_back)
{
	struct neap_dram_options options = {.capacity = 6 * SLAB, .slab_bytes = SLAB, .numa_node = -1};
	ck_assert_int_eq(neap_dram_create(&dram, reactor, &options, why, sizeof why), NEAP_OK);
	table.refuse_attach = NEAP_ELIMIT;
	table.refuse_slab = 4;
	ck_assert_int_eq(neap_dram_attach(&dram, &ops, &table, why, sizeof why), NEAP_ELIMIT);
	table.later = true;
	table.refuse_detach = NEAP_EBUSY;
	table.refuse_slab = 1;
	is_closed = false;
	ck_assert_int_eq(neap_dram_close(&dram, closed, &dram), NEAP_EBUSY);
	release_all();
	ck_assert(!is_closed);
	table.refuse_detach = 0;
	ck_assert_int_eq(neap_dram_close(&dram, closed, &dram), NEAP_OK);
	ck_assert(!is_closed);
	release_all();
	ck_assert(is_closed);
	ck_assert_uint_eq(table.detaches, 4);
	ck_assert_int_eq(support_reactor_destroy(reactor), NEAP_OK);
}
END_TEST

START_TEST(bad_options_are_named)
{
	static const struct {
		struct neap_dram_options options;
		int error;
		const char *says;
	} bad[] = {
		{{.capacity = 100, .numa_node = -1}, NEAP_EINVAL, "at least a page"},
		{{.capacity = MIB, .slab_bytes = 3 * MIB, .numa_node = -1}, NEAP_EINVAL, "power of two from 2 MiB to 64 MiB"},
		{{.capacity = MIB, .slab_bytes = 128 * MIB, .numa_node = -1}, NEAP_EINVAL, "power of two from 2 MiB to 64 MiB"},
		{{.capacity = MIB, .unit = 48, .numa_node = -1}, NEAP_EINVAL, "an alignment of 48"},
		{{.capacity = UINT64_C(1) << 52, .numa_node = -1}, NEAP_EINVAL, "at most 1048576 slabs"},
		{{.capacity = MIB, .numa_node = 999}, NEAP_ENUMA, "numa_node 999"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		int error = neap_dram_create(&dram, reactor, &bad[i].options, why, sizeof why);
		ck_assert_msg(error == bad[i].error && strstr(why, bad[i].says), "%zu: %d %s", i, error, why);
		ck_assert_ptr_null(dram.base);
	}
	ck_assert_int_eq(support_reactor_destroy(reactor), NEAP_OK);
}
END_TEST

/* Whether the mapping that holds `address` has this flag in the kernel's list. */
static bool is_mapped_with(const void *address, const char *flag)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[512];
	bool inside = false, found = false;
	ck_assert_ptr_nonnull(file);
	while (!found && fgets(line, sizeof line, file)) {
		unsigned long first, end;
		if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
			inside = (uintptr_t)address >= first && (uintptr_t)address < end;
		found = inside && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, flag);
	}
	fclose(file);
	return found;
}

/* Huge pages are asked for unless the configuration says no. */
START_TEST(huge_pages_are_the_default)
{
	struct neap_dram_options options = {.capacity = 8 * MIB, .numa_node = -1};
	if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK)) {
		printf("skipped: this kernel has no transparent huge pages\n");
	} else {
		for (int off = 0; off < 2; off++) {
			options.pages = off ? NEAP_PAGES_NORMAL : options.pages;
			ck_assert_int_eq(neap_dram_create(&dram, reactor, &options, why, sizeof why), NEAP_OK);
			ck_assert_int_eq(is_mapped_with(dram.base, " hg"), !off);
			ck_assert_int_eq(neap_dram_close(&dram, NULL, NULL), NEAP_OK);
		}
	}
	ck_assert_int_eq(support_reactor_destroy(reactor), NEAP_OK);
}
END_TEST

/* Where the machine has them: node 0, transparent huge pages. Reserved ones are there or are refused with what to do. */
START_TEST(placement)
{
	struct neap_dram_options options = {.capacity = 8 * MIB, .numa_node = 0, .pages = NEAP_PAGES_TRANSPARENT};
	int error = neap_dram_create(&dram, reactor, &options, why, sizeof why);
	ck_assert_msg(error == NEAP_OK || (error == NEAP_ENUMA && strstr(why, "no NUMA support")), "%s", why);
	if (!error) {
		ck_assert_uint_eq((uintptr_t)dram.base % SLAB, 0);
		memset(dram.base, 1, dram.capacity);
		ck_assert_int_eq(neap_dram_close(&dram, NULL, NULL), NEAP_OK);
	}
	options.pages = NEAP_PAGES_RESERVED;
	error = neap_dram_create(&dram, reactor, &options, why, sizeof why);
	ck_assert_msg(error == NEAP_OK || strstr(why, "sysctl vm.nr_hugepages=4") || error == NEAP_ENUMA, "%s", why);
	if (!error)
		ck_assert_int_eq(neap_dram_close(&dram, NULL, NULL), NEAP_OK);
	ck_assert_int_eq(support_reactor_destroy(reactor), NEAP_OK);
}
END_TEST

/* Random sizes, frees, drains and renewals: each live piece keeps its bytes. */
START_TEST(what_is_stored_stays)
{
	enum { LIVE = 200 };
	static struct neap_extent live[LIVE];
	static unsigned char marks[LIVE];
	memset(live, 0, sizeof live);
	srand((unsigned)(77 + _i));
	begin(24 * SLAB + 4096);
	uint32_t taken = 0;
	for (int step = 0; step < 6000; step++) {
		int i = rand() % LIVE;
		if (live[i].rounded) {
			unsigned char *bytes = neap_dram_address(&dram, live[i].offset);
			ck_assert_int_eq(bytes[0], marks[i]);
			ck_assert_int_eq(bytes[live[i].size - 1], marks[i]);
			neap_dram_free(&dram, &live[i]);
			live[i].rounded = 0;
		} else if (neap_dram_allocate(&dram, rand() % 50 ? 1 + (uint64_t)rand() % 300000 : SLAB + (uint64_t)rand() % (2 * SLAB), &live[i]) ==
		           NEAP_STORE_OK) {
			unsigned char *bytes = neap_dram_address(&dram, live[i].offset);
			ck_assert(!dram.slabs[neap_dram_slab(&dram, live[i].offset)].draining);
			marks[i] = (unsigned char)step;
			bytes[0] = bytes[live[i].size - 1] = marks[i];
			taken++;
		}
		if (rand() % 40 == 0)
			neap_dram_drain(&dram, (uint32_t)rand() % dram.slab_count);
		for (uint32_t slab = 0; slab < dram.slab_count && step % 50 == 0; slab++)
			if (dram.slabs[slab].draining && rand() % 2)
				ck_assert_int_eq(neap_dram_renew(&dram, slab, NULL, NULL), NEAP_OK);
		if (step % 16 == 0)
			sound();
	}
	ck_assert_uint_gt(taken, 1000);
	for (int i = 0; i < LIVE; i++)
		if (live[i].rounded)
			neap_dram_free(&dram, &live[i]);
	for (uint32_t slab = 0; slab < dram.slab_count; slab++)
		if (dram.slabs[slab].draining)
			ck_assert_int_eq(neap_dram_renew(&dram, slab, NULL, NULL), NEAP_OK);
	sound();
	ck_assert_uint_eq(stats().largest_bytes, 24 * SLAB);
	end();
}
END_TEST

START_TEST(a_large_mapping_goes_slab_by_slab)
{
	struct neap_dram_options large = {.capacity = 200 * MIB, .slab_bytes = 64 * MIB, .numa_node = -1};
	ck_assert_int_eq(neap_dram_create(&dram, reactor, &large, why, sizeof why), NEAP_OK);
	is_closed = false;
	ck_assert_int_eq(neap_dram_close(&dram, closed, &dram), NEAP_OK);
	ck_assert(!is_closed);
	ck_assert_int_eq(neap_dram_close(&dram, closed, &dram), NEAP_ECLOSED);
	for (int turn = 0; !is_closed; turn++) {
		ck_assert_int_lt(turn, 100);
		ck_assert_int_gt(neap_reactor_run_once(reactor, NULL), 0);
	}
	ck_assert_int_eq(support_reactor_destroy(reactor), NEAP_OK);
}
END_TEST

/* A heap that counts, and refuses one allocation. */
static struct {
	uint64_t live_bytes, count, refused;
} heap;

static void *heap_allocate(void *user, size_t bytes)
{
	(void)user;
	if (heap.count++ == heap.refused)
		return NULL;
	heap.live_bytes += bytes;
	return calloc(1, bytes);
}

static void heap_release(void *user, void *memory, size_t bytes)
{
	(void)user;
	heap.live_bytes -= memory ? bytes : 0;
	free(memory);
}

START_TEST(simulated_memory_is_the_reactors_and_may_be_refused)
{
	static struct neap_net net;
	struct neap_reactor_options simulated = {.net = &net, .alloc = {heap_allocate, heap_release, NULL}};
	struct neap_dram_options small = {.capacity = 5 * MIB, .slab_bytes = SLAB, .numa_node = 3, .pages = NEAP_PAGES_RESERVED};
	struct neap_reactor *simulation;
	heap.refused = UINT64_MAX;
	heap.count = heap.live_bytes = 0;
	ck_assert_int_eq(neap_reactor_create(&simulation, &simulated), NEAP_OK);
	uint64_t before = heap.live_bytes, begin_count = heap.count;
	ck_assert_int_eq(neap_dram_create(&dram, simulation, &small, why, sizeof why), NEAP_OK);
	uint64_t allocations = heap.count - begin_count;
	ck_assert_uint_gt(heap.live_bytes - before, 5 * MIB);
	ck_assert_uint_eq((uintptr_t)dram.base % 4096, 0);
	memset(dram.base, 1, dram.capacity);
	ck_assert_int_eq(neap_dram_close(&dram, NULL, NULL), NEAP_OK);
	ck_assert_uint_eq(heap.live_bytes, before);
	for (uint64_t i = 0; i < allocations; i++) { /* each in turn */
		heap.refused = heap.count + i;
		ck_assert_int_eq(neap_dram_create(&dram, simulation, &small, why, sizeof why), NEAP_ENOMEM);
		ck_assert_ptr_nonnull(strstr(why, "memory"));
		ck_assert_uint_eq(heap.live_bytes, before);
	}
	ck_assert_int_eq(support_reactor_destroy(simulation), NEAP_OK);
	ck_assert_uint_eq(heap.live_bytes, 0);
	ck_assert_int_eq(support_reactor_destroy(reactor), NEAP_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory tier");
	TCase *cases = tcase_create("slabs");
	tcase_add_checked_fixture(cases, setup, NULL);
	tcase_add_test(cases, small_ones_never_span_slabs);
	tcase_add_test(cases, large_ones_get_runs_of_whole_slabs);
	tcase_add_test(cases, the_last_slab_may_be_shorter);
	tcase_add_test(cases, a_tier_smaller_than_a_slab);
	tcase_add_test(cases, a_draining_slab_gives_nothing_until_it_is_renewed);
	tcase_add_test(cases, a_slab_that_empties_while_it_drains_waits_too);
	tcase_add_test(cases, a_renewal_that_fails_can_be_repeated);
	tcase_add_test(cases, registration_that_fails_is_taken_back);
	tcase_add_test(cases, bad_options_are_named);
	tcase_add_test(cases, huge_pages_are_the_default);
	tcase_add_test(cases, placement);
	tcase_add_test(cases, a_large_mapping_goes_slab_by_slab);
	tcase_add_test(cases, simulated_memory_is_the_reactors_and_may_be_refused);
	tcase_add_loop_test(cases, what_is_stored_stays, 0, 3);
	tcase_set_timeout(cases, 60);
	suite_add_tcase(suite, cases);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
