/* A store in a program of its own, whose host stops the reactor from wherever it happens to be: inside any of the store's callbacks. All
 * ends, and nothing is left. */
#include "tests/support/drive.h"
#include "tests/support/small_engine.h"
#include <check.h>
#include <neap/store.h>
#include <neap/store_error.h>
#include <stdlib.h>
#include <string.h>

#define TIERS "{\"tiers\":[{\"type\":\"DRAM\",\"capacity\":\"8MB\",\"priority\":10}]}"

enum place { IN_READY, IN_PUT, IN_GET, IN_MISS, IN_REMOVE, IN_LIST, IN_EXIST, IN_DRAIN, BEHIND_CREATE, PLACES };

static struct neap_reactor *reactor;
static struct neap_engine *engine;
static struct neap_store *store;
static enum place place;
static bool stopped;
static char value[] = "a value", got[sizeof value], why[400];
static const struct neap_key key = {"here", 4}, none = {"nowhere", 7};

static void stop_in(enum place where)
{
	if (where != place)
		return;
	neap_reactor_stop(reactor);
	stopped = true;
}

static void drained(void *user, int error)
{
	(void)user, (void)error;
	stop_in(IN_DRAIN);
}

static void exists(void *user, int error, const int8_t *found, uint32_t count)
{
	(void)user;
	ck_assert(error == 0 && count == 1 && found[0] >= 0);
	stop_in(IN_EXIST);
	if (!stopped)
		(void)neap_store_drain(store, 1000, drained, NULL);
}

static void listed(void *user, int error, const struct neap_key *keys, uint32_t count, uint64_t next, const char *reason)
{
	(void)user, (void)keys, (void)count, (void)next;
	ck_assert_msg(error == 0, "%s", reason); /* the directory may not have heard of the removal yet */
	stop_in(IN_LIST);
	if (!stopped)
		ck_assert_int_eq(neap_store_exist(store, &key, 1, 0, exists, NULL), 0);
}

static void removed(void *user, int error, uint64_t count, const char *reason)
{
	(void)user;
	ck_assert_msg(error == 0 && count == 1, "%s", reason);
	stop_in(IN_REMOVE);
	if (!stopped)
		ck_assert_int_eq(neap_store_list(store, "", 0, 0, listed, NULL), 0);
}

static void missed(void *user, const struct neap_store_outcome *outcome)
{
	(void)user;
	ck_assert_int_eq(outcome->error, NEAP_STORE_OBJECT_NOT_FOUND);
	stop_in(IN_MISS);
	if (!stopped)
		ck_assert_int_eq(neap_store_remove(store, &key, 0, removed, NULL), 0);
}

static void was_got(void *user, const struct neap_store_outcome *outcome)
{
	const struct neap_slice_of room = {got, sizeof got};
	(void)user;
	ck_assert_msg(outcome->status == NEAP_STORE_SUCCESS && memcmp(got, value, sizeof value) == 0, "%s", outcome->why);
	stop_in(IN_GET);
	if (!stopped)
		ck_assert_int_eq(neap_store_get(store, &none, &room, 1, NULL, missed, NULL, NULL), 0);
}

static void was_put(void *user, const struct neap_store_outcome *outcome)
{
	const struct neap_slice_of room = {got, sizeof got};
	(void)user;
	ck_assert_msg(outcome->status == NEAP_STORE_SUCCESS, "%s", outcome->why);
	stop_in(IN_PUT);
	if (!stopped)
		ck_assert_int_eq(neap_store_get(store, &key, &room, 1, NULL, was_got, NULL, NULL), 0);
}

static void ready(void *user, int error, const char *reason)
{
	const struct neap_slice_of bytes = {value, sizeof value};
	(void)user;
	ck_assert_msg(error == 0, "%s", reason);
	stop_in(IN_READY);
	if (!stopped)
		ck_assert_int_eq(neap_store_put(store, &key, &bytes, 1, NULL, was_put, NULL, NULL), 0);
}

START_TEST(stopped_anywhere)
{
	const struct neap_engine_options small = small_engine(NULL);
	const struct neap_store_options options = {.tiers = TIERS, .ready = ready, .keys_max = 1024, .operations_max = 64};
	place = (enum place)_i;
	stopped = false;
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), 0);
	ck_assert_msg(!neap_engine_create(&engine, reactor, &small, why, sizeof why), "%s", why);
	ck_assert_msg(!neap_store_create(&store, engine, &options, why, sizeof why), "%s", why);
	stop_in(BEHIND_CREATE);
	ck_assert(drive_until(reactor, &stopped, 20000));
	drive_to_end(reactor);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("a store and its host");
	TCase *cases = tcase_create("the end");
	tcase_add_loop_test(cases, stopped_anywhere, 0, PLACES);
	tcase_set_timeout(cases, 60);
	suite_add_tcase(suite, cases);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
