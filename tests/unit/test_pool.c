#include "reactor/pool.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A heap that counts, and refuses from the n-th allocation on. */
struct heap {
	uint64_t allowed;
	uint64_t live_bytes, allocations;
};

static void *allocate(void *user, size_t bytes)
{
	struct heap *heap = user;
	if (heap->allocations >= heap->allowed)
		return NULL;
	heap->allocations++;
	heap->live_bytes += bytes;
	return calloc(1, bytes);
}

static void release(void *user, void *memory, size_t bytes)
{
	struct heap *heap = user;
	heap->live_bytes -= bytes;
	free(memory);
}

static struct heap heap;
static struct neap_reactor *reactor;

static void setup(void)
{
	heap = (struct heap){.allowed = UINT64_MAX};
	struct neap_reactor_options options = {.alloc = {allocate, release, &heap}};
	ck_assert_int_eq(neap_reactor_create(&reactor, &options), NEAP_OK);
}

static void teardown(void)
{
	ck_assert_int_eq(neap_reactor_destroy(reactor), NEAP_OK);
	ck_assert_uint_eq(heap.live_bytes, 0);
}

struct thing {
	uint64_t number;
	char rest[60]; /* 68 bytes: not a multiple of the alignment */
};

START_TEST(takes_all_gives_all)
{
	enum { CAPACITY = 100 };
	struct neap_pool pool;
	struct thing *things[CAPACITY];
	uint64_t handles[CAPACITY];
	ck_assert_int_eq(neap_pool_create(&pool, reactor, sizeof(struct thing), CAPACITY), NEAP_OK);
	for (uint64_t round = 0; round < 3; round++) {
		for (uint64_t i = 0; i < CAPACITY; i++) {
			things[i] = neap_pool_take(&pool);
			ck_assert_ptr_nonnull(things[i]);
			ck_assert_uint_eq((uintptr_t)things[i] % 64, 0);
			if (round == 0)
				ck_assert_uint_eq(things[i]->number, 0);
			things[i]->number = round * CAPACITY + i + 1;
			handles[i] = neap_pool_handle(&pool, things[i]);
			ck_assert_uint_ne(handles[i], 0);
			ck_assert_ptr_eq(neap_pool_find(&pool, handles[i]), things[i]);
		}
		ck_assert_ptr_null(neap_pool_take(&pool));
		ck_assert_uint_eq(pool.used, CAPACITY);
		for (uint64_t i = 0; i < CAPACITY; i++) {
			ck_assert_uint_eq(things[i]->number, round * CAPACITY + i + 1);
			neap_pool_give(&pool, things[i]);
			ck_assert_ptr_null(neap_pool_find(&pool, handles[i]));
		}
		ck_assert_uint_eq(pool.used, 0);
	}
	neap_pool_destroy(&pool);
}
END_TEST

START_TEST(a_handle_outlives_its_object)
{
	struct neap_pool pool;
	ck_assert_int_eq(neap_pool_create(&pool, reactor, 8, 4), NEAP_OK);
	void *object = neap_pool_take(&pool);
	uint64_t old = neap_pool_handle(&pool, object);
	neap_pool_give(&pool, object);
	ck_assert_ptr_eq(neap_pool_take(&pool), object); /* the same memory */
	ck_assert_ptr_null(neap_pool_find(&pool, old));
	ck_assert_ptr_eq(neap_pool_find(&pool, neap_pool_handle(&pool, object)), object);
	static const uint64_t malformed[] = {0, 1, 4, 5, UINT64_MAX, UINT64_C(1) << 32, UINT64_C(1) << 32 | 3, UINT64_C(2) << 32 | 1};
	for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++)
		ck_assert_ptr_null(neap_pool_find(&pool, malformed[i]));
	neap_pool_give(&pool, object);
	neap_pool_destroy(&pool);
}
END_TEST

START_TEST(walks_the_live_ones)
{
	struct neap_pool pool;
	void *objects[10];
	ck_assert_int_eq(neap_pool_create(&pool, reactor, 40, 16), NEAP_OK);
	for (uint32_t i = 0; i < 10; i++)
		objects[i] = neap_pool_take(&pool);
	for (uint32_t i = 0; i < 10; i += 2)
		neap_pool_give(&pool, objects[i]);
	uint32_t index = 0, seen = 0;
	for (void *object; (object = neap_pool_next(&pool, &index)); seen++)
		ck_assert_ptr_eq(object, objects[2 * seen + 1]);
	ck_assert_uint_eq(seen, 5);
	neap_pool_destroy(&pool);
}
END_TEST

START_TEST(refuses_nonsense_and_survives_a_full_heap)
{
	struct neap_pool pool;
	ck_assert_int_eq(neap_pool_create(&pool, reactor, 0, 1), NEAP_EINVAL);
	ck_assert_int_eq(neap_pool_create(&pool, reactor, 1, 0), NEAP_EINVAL);
	ck_assert_int_eq(neap_pool_create(&pool, reactor, SIZE_MAX / 4, 4), NEAP_EINVAL);
	uint64_t before = heap.live_bytes;
	for (uint64_t n = 0; n < 3; n++) {
		heap.allowed = heap.allocations + n;
		ck_assert_int_eq(neap_pool_create(&pool, reactor, 64, 10), NEAP_ENOMEM);
		ck_assert_uint_eq(heap.live_bytes, before);
	}
	heap.allowed = UINT64_MAX;
	neap_pool_destroy(&pool); /* harmless after a failed create */
}
END_TEST

/* A large pool of which little is used must not cost what it could hold. */
START_TEST(untouched_capacity_costs_no_memory)
{
	enum { CAPACITY = 1 << 16 };
	struct neap_pool pool;
	ck_assert_int_eq(neap_pool_create(&pool, reactor, 256, CAPACITY), NEAP_OK);
	for (uint32_t i = 0; i < 10; i++)
		ck_assert_ptr_nonnull(neap_pool_take(&pool));
	unsigned char *page = (unsigned char *)(((uintptr_t)pool.objects + (size_t)CAPACITY * 128) & ~(uintptr_t)4095);
	unsigned char resident = 1;
	ck_assert_int_eq(mincore(page, 4096, &resident), 0);
	ck_assert_uint_eq(resident & 1, 0);
	neap_pool_destroy(&pool);
}
END_TEST

/* Creating a reactor with the n-th allocation refused, for every n: an error and nothing leaked, or success. */
START_TEST(a_reactor_survives_a_full_heap)
{
	int error = NEAP_ENOMEM;
	uint64_t refused = 0;
	for (uint64_t n = 0; error == NEAP_ENOMEM; n++) {
		struct heap small = {.allowed = n};
		struct neap_reactor_options options = {.alloc = {allocate, release, &small}};
		struct neap_reactor *made;
		error = neap_reactor_create(&made, &options);
		if (error == NEAP_OK) {
			ck_assert_int_eq(neap_reactor_destroy(made), NEAP_OK);
		} else {
			ck_assert_ptr_null(made);
			refused++;
		}
		ck_assert_uint_eq(small.live_bytes, 0);
	}
	ck_assert_int_eq(error, NEAP_OK);
	ck_assert_uint_ge(refused, 3);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool");
	TCase *pool = tcase_create("pool");
	tcase_add_checked_fixture(pool, setup, teardown);
	tcase_add_test(pool, takes_all_gives_all);
	tcase_add_test(pool, a_handle_outlives_its_object);
	tcase_add_test(pool, walks_the_live_ones);
	tcase_add_test(pool, refuses_nonsense_and_survives_a_full_heap);
	tcase_add_test(pool, untouched_capacity_costs_no_memory);
	tcase_add_test(pool, a_reactor_survives_a_full_heap);
	suite_add_tcase(suite, pool);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
