/* The route cache: exact, bounded, and never right for longer than it may be. */
#include "store/accessor/routes.h"
#include "tests/support/coverage.h"
#include "tests/sim/sim.h"
#include <check.h>
#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)

static struct sim *sim;
static struct sim_node *node;
static struct neap_route_cache *routes;
static struct neap_route found[NEAP_ROUTES_MAX];

static void open_with(struct neap_route_cache_options options)
{
	sim = sim_create(5);
	node = sim_node_create(sim, 0);
	ck_assert_int_eq(neap_route_cache_create(&routes, node->reactor, &options), 0);
}

static void close_it(void)
{
	if (routes)
		neap_route_cache_destroy(routes);
	ck_assert_uint_eq(sim_node_finish(node, NULL, NULL), 0);
	sim_destroy(sim);
}

static struct neap_key key_of(const char *text)
{
	return (struct neap_key){text, (uint32_t)strlen(text)};
}

static struct neap_route route_of(unsigned place, uint64_t size)
{
	struct neap_route route = {.size = size, .generation = size + 1};
	route.place.instance[0] = (uint8_t)(place + 1);
	route.place.instance[1] = (uint8_t)(place >> 8);
	(void)snprintf(route.place.rpc, sizeof route.place.rpc, "10.0.0.%u:1", place);
	(void)snprintf(route.place.engine, sizeof route.place.engine, "10.0.0.%u:2", place);
	return route;
}

static void keep(const char *text, unsigned place, uint64_t size)
{
	struct neap_key key = key_of(text);
	struct neap_route route = route_of(place, size);
	neap_route_cache_keep(routes, &key, &route, 1);
}

static uint32_t find(const char *text)
{
	struct neap_key key = key_of(text);
	return neap_route_cache_find(routes, &key, found);
}

static struct neap_route_cache_stats stats(void)
{
	struct neap_route_cache_stats s;
	neap_route_cache_stats(routes, &s);
	return s;
}

START_TEST(exact)
{
	char text[32];
	open_with((struct neap_route_cache_options){.entries_max = 4000});
	for (unsigned i = 0; i < 4000; i++) {
		(void)snprintf(text, sizeof text, "key %u", i);
		keep(text, i % 7, i + 1);
	}
	for (unsigned i = 0; i < 4000; i++) {
		(void)snprintf(text, sizeof text, "key %u", i);
		ck_assert_uint_eq(find(text), 1);
		ck_assert(found[0].size == i + 1 && found[0].generation == i + 2 && found[0].place.instance[0] == i % 7 + 1);
	}
	ck_assert(find("key") == 0 && find("key 4000") == 0 && find("key 00") == 0);
	ck_assert(stats().entries == 4000 && stats().places == 7 && stats().hits == 4000 && stats().misses == 3 && stats().evicted == 0);
	close_it();
}
END_TEST

START_TEST(replaced_and_dropped)
{
	struct neap_route many[6];
	struct neap_key key = key_of("key");
	open_with((struct neap_route_cache_options){0});
	for (unsigned i = 0; i < 6; i++)
		many[i] = route_of(i, 10 + i);
	neap_route_cache_keep(routes, &key, many, 6);
	ck_assert_uint_eq(find("key"), NEAP_ROUTES_MAX);
	neap_route_cache_drop(routes, &key, &many[1].place);
	ck_assert(find("key") == 3 && found[1].size == 12);
	neap_route_cache_drop(routes, &key, &many[5].place); /* not one of them */
	ck_assert_uint_eq(find("key"), 3);
	keep("key", 9, 99);
	ck_assert(find("key") == 1 && found[0].size == 99 && stats().places == 1);
	neap_route_cache_drop(routes, &key, &found[0].place);
	ck_assert(find("key") == 0 && stats().entries == 0 && stats().places == 0 && stats().bytes == 0);
	neap_route_cache_keep(routes, &key, many, 2);
	neap_route_cache_drop(routes, &key, NULL);
	neap_route_cache_drop(routes, &key, NULL);
	ck_assert(find("key") == 0 && stats().bytes == 0);
	neap_route_cache_keep(routes, &key, many, 0);
	ck_assert_uint_eq(find("key"), 0);
	close_it();
}
END_TEST

/* Asking does not prolong. */
START_TEST(its_time_is_over)
{
	open_with((struct neap_route_cache_options){.ttl_ns = 1000 * MS});
	keep("key", 1, 1);
	for (unsigned i = 0; i < 9; i++) {
		ck_assert_uint_eq(find("key"), 1);
		sim_run_for(sim, 100 * MS);
		(void)neap_reactor_run_at(node->reactor, sim->now_ns, NULL);
	}
	sim_run_for(sim, 100 * MS);
	(void)neap_reactor_run_at(node->reactor, sim->now_ns, NULL);
	ck_assert(find("key") == 0 && stats().expired == 1 && stats().entries == 0);
	close_it();
}
END_TEST

START_TEST(bounded_in_entries)
{
	open_with((struct neap_route_cache_options){.entries_max = 3, .places_max = 2});
	keep("a", 1, 1);
	keep("b", 1, 2);
	keep("c", 2, 3);
	ck_assert_uint_eq(find("a"), 1); /* used: b is the oldest now */
	keep("d", 1, 4);
	ck_assert(find("b") == 0 && find("a") == 1 && find("c") == 1 && find("d") == 1 && stats().evicted == 1);
	keep("e", 3, 5); /* a third owner is not remembered; room was made for it all the same */
	ck_assert(find("e") == 0 && stats().entries == 2);
	close_it();
}
END_TEST

START_TEST(bounded_in_bytes)
{
	static char text[3000];
	open_with((struct neap_route_cache_options){.entries_max = 1000, .bytes_max = 20000});
	for (unsigned i = 0; i < 100; i++) {
		memset(text, 'a' + (char)(i % 26), sizeof text - 1);
		keep(text, 1, i);
		ck_assert(stats().bytes <= 20000 && find(text) == 1);
	}
	ck_assert(stats().entries >= 4 && stats().entries <= 6);
	struct neap_key huge = {text, 2999};
	struct neap_route route = route_of(1, 1);
	neap_route_cache_destroy(routes);
	ck_assert_int_eq(neap_route_cache_create(&routes, node->reactor, &(struct neap_route_cache_options){.bytes_max = 1000}), 0);
	neap_route_cache_keep(routes, &huge, &route, 1);
	ck_assert(neap_route_cache_find(routes, &huge, found) == 0 && stats().entries == 0);
	node->fail_allocation_at = node->allocations;
	ck_assert_uint_eq(stats().entries, 0);
	node->fail_allocation_at = UINT64_MAX;
	close_it();
}
END_TEST

START_TEST(without_memory)
{
	static char text[100];
	int error = NEAP_ENOMEM;
	sim = sim_create(5);
	node = sim_node_create(sim, 0);
	for (uint64_t n = 0; error == NEAP_ENOMEM && n < 20; n++) {
		node->fail_allocation_at = node->allocations + n;
		error = neap_route_cache_create(&routes, node->reactor, NULL);
		ck_assert(error == 0 || (error == NEAP_ENOMEM && !routes && n < 19));
	}
	memset(text, 'x', sizeof text - 1);
	node->fail_allocation_at = node->allocations; /* a long key needs some */
	keep(text, 1, 1);
	node->fail_allocation_at = UINT64_MAX;
	ck_assert(find(text) == 0 && stats().entries == 0 && stats().bytes == 0);
	keep(text, 1, 1);
	ck_assert_uint_eq(find(text), 1);
	close_it();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("route cache");
	TCase *cases = tcase_create("routes");
	tcase_add_test(cases, exact);
	tcase_add_test(cases, replaced_and_dropped);
	tcase_add_test(cases, its_time_is_over);
	tcase_add_test(cases, bounded_in_entries);
	tcase_add_test(cases, bounded_in_bytes);
	tcase_add_test(cases, without_memory);
	suite_add_tcase(suite, cases);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
