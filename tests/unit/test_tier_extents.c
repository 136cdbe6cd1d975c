/* The allocator of offsets against a plain list of intervals. */
#include "store/tier/extents.h"
#include "tests/support/coverage.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct neap_reactor *reactor;
static struct neap_extents extents;

static void setup(void)
{
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), NEAP_OK);
}

static void teardown(void)
{
	neap_extents_destroy(&extents);
	ck_assert_int_eq(support_reactor_destroy(reactor), NEAP_OK);
}

static uint32_t begin(uint32_t unit, uint32_t nodes, uint64_t length)
{
	uint32_t region;
	ck_assert_int_eq(neap_extents_create(&extents, reactor, unit, nodes), NEAP_OK);
	ck_assert_int_eq(neap_extents_add(&extents, 0, length, &region), NEAP_OK);
	return region;
}

static void sound(void)
{
	const char *wrong = neap_extents_check(&extents);
	ck_assert_msg(!wrong, "%s", wrong);
}

static struct neap_extents_stats stats(void)
{
	struct neap_extents_stats stats;
	neap_extents_stats(&extents, &stats);
	return stats;
}

static uint32_t take(uint64_t bytes)
{
	uint32_t node;
	ck_assert_int_eq(neap_extents_allocate(&extents, bytes, &node), NEAP_OK);
	sound();
	return node;
}

START_TEST(what_is_freed_joins_both_neighbours)
{
	uint32_t region = begin(64, 64, 1 << 20), nodes[16], whole;
	static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}};
	for (size_t o = 0; o < 6; o++) {
		for (int i = 0; i < 3; i++)
			nodes[i] = take(1000);
		for (int i = 0; i < 3; i++) {
			ck_assert_uint_eq(neap_extents_free(&extents, nodes[orders[o][i]], &whole), 1024);
			sound();
			ck_assert_uint_eq(whole, i == 2 ? region : NEAP_NO_NODE);
		}
		ck_assert_uint_eq(stats().largest_bytes, 1 << 20);
		ck_assert_uint_eq(stats().nodes_used, 1);
	}
}
END_TEST

START_TEST(bytes_are_counted_exactly)
{
	begin(64, 64, 1 << 20);
	uint32_t a = take(1), b = take(64), c = take(65), whole;
	ck_assert_uint_eq(stats().requested_bytes, 130);
	ck_assert_uint_eq(stats().rounded_bytes, 64 + 64 + 128);
	ck_assert_uint_eq(stats().free_bytes, (1 << 20) - 256);
	ck_assert_uint_eq(stats().extents, 3);
	ck_assert_uint_eq(neap_extents_rounded(&extents, c), 128);
	neap_extents_free(&extents, b, &whole);
	ck_assert_uint_eq(stats().requested_bytes, 66);
	neap_extents_free(&extents, a, NULL);
	neap_extents_free(&extents, c, &whole);
	ck_assert_uint_eq(stats().requested_bytes, 0);
	ck_assert_uint_eq(stats().rounded_bytes, 0);
}
END_TEST

START_TEST(a_size_that_was_freed_fits_again)
{
	/* 4100 units share a bin with 4096..4607: only a look into the bin finds them */
	begin(64, 4096, UINT64_C(64) * 4100 * 8);
	uint32_t nodes[8];
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 8; i++)
			nodes[i] = take(64 * 4100);
		ck_assert_uint_eq(stats().free_bytes, 0);
		for (int i = 1; i < 8; i += 2)
			neap_extents_free(&extents, nodes[i], NULL);
		for (int i = 1; i < 8; i += 2)
			nodes[i] = take(64 * 4100);
		for (int i = 0; i < 8; i++)
			neap_extents_free(&extents, nodes[i], NULL);
	}
}
END_TEST

START_TEST(limits_are_answers)
{
	uint32_t node, region, first;
	ck_assert_int_eq(neap_extents_create(&extents, reactor, 48, 8), NEAP_EINVAL);
	ck_assert_int_eq(neap_extents_create(&extents, reactor, 64, 0), NEAP_EINVAL);
	first = begin(64, 3, 1024);
	ck_assert_int_eq(neap_extents_add(&extents, 1030, 64, &region), NEAP_EINVAL);
	ck_assert_int_eq(neap_extents_add(&extents, 2048, 0, &region), NEAP_EINVAL);
	ck_assert_int_eq(neap_extents_allocate(&extents, 0, &node), NEAP_EINVAL);
	ck_assert_int_eq(neap_extents_allocate(&extents, 1025, &node), NEAP_EAGAIN);
	ck_assert_int_eq(neap_extents_allocate(&extents, UINT64_MAX, &node), NEAP_EAGAIN);
	uint32_t a = take(64), b = take(64);
	ck_assert_int_eq(neap_extents_allocate(&extents, 64, &node), NEAP_ELIMIT); /* no node for the rest */
	sound();
	uint32_t rest = take(1024 - 128);
	ck_assert_int_eq(neap_extents_add(&extents, 4096, 64, &region), NEAP_ELIMIT);
	ck_assert_int_eq(neap_extents_take(&extents, first), NEAP_EBUSY);
	neap_extents_free(&extents, a, NULL);
	neap_extents_free(&extents, b, NULL);
	neap_extents_free(&extents, rest, NULL);
	ck_assert_int_eq(neap_extents_take(&extents, first), NEAP_OK);
	sound();
	ck_assert_uint_eq(stats().total_bytes, 0);
	ck_assert_int_eq(neap_extents_allocate(&extents, 64, &node), NEAP_EAGAIN);
}
END_TEST

START_TEST(offsets_are_64_bit)
{
	uint64_t tier = UINT64_C(1) << 44;
	begin(64, 16, tier);
	uint32_t low = take(tier - (UINT64_C(5) << 30)), high = take(UINT64_C(5) << 30);
	ck_assert_uint_eq(neap_extents_offset(&extents, high), tier - (UINT64_C(5) << 30));
	ck_assert_uint_eq(stats().free_bytes, 0);
	neap_extents_free(&extents, low, NULL);
	neap_extents_free(&extents, high, NULL);
	sound();
	ck_assert_uint_eq(stats().largest_bytes, tier);
}
END_TEST

START_TEST(no_extent_spans_two_regions)
{
	uint32_t first = begin(64, 64, 4096), second, node, nodes[2];
	ck_assert_int_eq(neap_extents_add(&extents, 4096, 4096, &second), NEAP_OK);
	ck_assert_int_eq(neap_extents_allocate(&extents, 4160, &node), NEAP_EAGAIN);
	nodes[0] = take(4096);
	nodes[1] = take(4096);
	neap_extents_free(&extents, nodes[0], NULL);
	neap_extents_free(&extents, nodes[1], NULL);
	sound();
	ck_assert(neap_extents_region_is_free(&extents, first) && neap_extents_region_is_free(&extents, second));
}
END_TEST

START_TEST(a_parked_region_gives_nothing)
{
	uint32_t first = begin(64, 64, 4096), second, node, a = take(100), b = take(100), whole;
	ck_assert_int_eq(neap_extents_add(&extents, 1 << 20, 4096, &second), NEAP_OK);
	neap_extents_free(&extents, a, NULL);
	neap_extents_park(&extents, first);
	sound();
	ck_assert_uint_eq(stats().parked_bytes, 4096 - 128);
	node = take(64);
	ck_assert_uint_ge(neap_extents_offset(&extents, node), 1 << 20);
	ck_assert_int_eq(neap_extents_allocate(&extents, 4096 - 32, &a), NEAP_EAGAIN);
	neap_extents_free(&extents, b, &whole);
	ck_assert_uint_eq(whole, first);
	sound();
	ck_assert_int_eq(neap_extents_allocate(&extents, 4096, &a), NEAP_EAGAIN);
	neap_extents_unpark(&extents, first);
	sound();
	a = take(4096);
	ck_assert_uint_eq(neap_extents_offset(&extents, a), 0);
}
END_TEST

START_TEST(a_broken_invariant_is_found)
{
	begin(64, 64, 1 << 20);
	uint32_t a = take(1000), b = take(1000);
	struct neap_extents good = extents;
	extents.tops = 0;
	ck_assert_ptr_nonnull(neap_extents_check(&extents));
	extents = good;
	extents.free_units--;
	ck_assert_ptr_nonnull(neap_extents_check(&extents));
	extents = good;
	extents.nodes[b].offset += 64;
	ck_assert_ptr_nonnull(neap_extents_check(&extents));
	extents.nodes[b].offset -= 64;
	extents.nodes[a].right = NEAP_NO_NODE;
	ck_assert_ptr_nonnull(neap_extents_check(&extents));
	extents.nodes[a].right = b;
	sound();
}
END_TEST

/* --- random operations against a plain model -------------------------------------------------------------------------- */

#define MODEL_BYTES (UINT64_C(4) << 20)
#define MODEL_MAX 2048u

struct interval {
	uint64_t offset, requested, rounded;
	uint32_t node;
};

struct model {
	struct interval live[MODEL_MAX];
	uint32_t count;
	uint64_t requested, rounded;
};

static int by_offset(const void *a, const void *b)
{
	const struct interval *x = a, *y = b;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Nothing overlaps; what is not in the list is free; and the largest gap is what the allocator says. */
static void compare(struct model *model, uint32_t unit)
{
	struct neap_extents_stats now = stats();
	uint64_t at = 0, largest = 0;
	qsort(model->live, model->count, sizeof *model->live, by_offset);
	for (uint32_t i = 0; i <= model->count; i++) {
		uint64_t next = i < model->count ? model->live[i].offset : MODEL_BYTES;
		ck_assert_uint_ge(next, at);
		ck_assert_uint_eq(next % unit, 0);
		if (next - at > largest)
			largest = next - at;
		at = i < model->count ? next + model->live[i].rounded : next;
	}
	ck_assert_uint_eq(at, MODEL_BYTES);
	ck_assert_uint_eq(now.requested_bytes, model->requested);
	ck_assert_uint_eq(now.rounded_bytes, model->rounded);
	ck_assert_uint_eq(now.free_bytes, MODEL_BYTES - model->rounded);
	ck_assert_uint_eq(now.extents, model->count);
	ck_assert_uint_le(now.largest_bytes, largest);
	ck_assert_uint_ge(now.largest_bytes + now.largest_bytes / 8, largest);
}

static uint64_t some_size(void)
{
	switch (rand() % 4) {
	case 0: return 1 + (uint64_t)rand() % 200;
	case 1: return 1 + (uint64_t)rand() % 9000;
	case 2: return UINT64_C(1) << rand() % 17;
	default: return 1 + (uint64_t)rand() % 200000;
	}
}

static void model_allocate(struct model *model, uint32_t unit)
{
	uint32_t node;
	uint64_t bytes = some_size(), largest = stats().largest_bytes;
	int error = neap_extents_allocate(&extents, bytes, &node);
	uint64_t rounded = (bytes + unit - 1) / unit * unit;
	if (error != NEAP_OK) {
		ck_assert_int_eq(error, NEAP_EAGAIN);
		ck_assert_uint_gt(rounded, largest); /* what it calls its largest can be had */
		return;
	}
	model->live[model->count++] = (struct interval){neap_extents_offset(&extents, node), bytes, rounded, node};
	ck_assert_uint_eq(neap_extents_rounded(&extents, node), rounded);
	model->requested += bytes;
	model->rounded += rounded;
}

static void model_free(struct model *model)
{
	uint32_t index = (uint32_t)rand() % model->count;
	struct interval gone = model->live[index];
	model->live[index] = model->live[--model->count];
	ck_assert_uint_eq(neap_extents_free(&extents, gone.node, NULL), gone.rounded);
	model->requested -= gone.requested;
	model->rounded -= gone.rounded;
}

START_TEST(agrees_with_a_plain_model)
{
	static struct model model;
	static const uint32_t units[] = {64, 1, 64, 4096, 256};
	uint32_t unit = units[_i];
	srand((unsigned)(1000 + _i));
	memset(&model, 0, sizeof model);
	begin(unit, 2 * MODEL_MAX + 2, MODEL_BYTES);
	for (int step = 0; step < 40000; step++) {
		int fill = step / 4000 % 2 ? 40 : 60; /* waves of growth and of decline */
		if (model.count > 0 && (rand() % 100 >= fill || model.count == MODEL_MAX))
			model_free(&model);
		else
			model_allocate(&model, unit);
		if (step % 64 == 0) {
			sound();
			compare(&model, unit);
		}
	}
	while (model.count > 0)
		model_free(&model);
	sound();
	ck_assert_uint_eq(stats().largest_bytes, MODEL_BYTES);
	ck_assert_uint_eq(stats().nodes_used, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tier extents");
	TCase *cases = tcase_create("extents");
	tcase_add_checked_fixture(cases, setup, teardown);
	tcase_add_test(cases, what_is_freed_joins_both_neighbours);
	tcase_add_test(cases, bytes_are_counted_exactly);
	tcase_add_test(cases, a_size_that_was_freed_fits_again);
	tcase_add_test(cases, limits_are_answers);
	tcase_add_test(cases, offsets_are_64_bit);
	tcase_add_test(cases, no_extent_spans_two_regions);
	tcase_add_test(cases, a_parked_region_gives_nothing);
	tcase_add_test(cases, a_broken_invariant_is_found);
	suite_add_tcase(suite, cases);
	TCase *model = tcase_create("model");
	tcase_add_checked_fixture(model, setup, teardown);
	tcase_set_timeout(model, 60);
	tcase_add_loop_test(model, agrees_with_a_plain_model, 0, 5);
	suite_add_tcase(suite, model);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
