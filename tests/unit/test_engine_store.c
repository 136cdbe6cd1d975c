/* Engines that are published in a store: found by name, told to their owners, taken back, and not held up by a store that is silent. */
#include "metadata/directory.h"
#include "tests/support/drive.h"
#include "tests/support/memory_store.h"
#include "transports/transport.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 65536u

static struct {
	struct neap_reactor *reactor;
	struct memory_store store;
	struct neap_engine *target, *source;
	char why[600];
	bool told, opened, finished, closed;
	int error, open_error;
	neap_segment_id segment;
	struct neap_batch_summary summary;
} rig;

static void told(void *user, int error, const char *why)
{
	(void)user;
	rig.told = true;
	rig.error = error;
	(void)snprintf(rig.why, sizeof rig.why, "%s", why ? why : "");
}

static void opened(void *user, int error, neap_segment_id segment, const char *why)
{
	(void)user;
	rig.opened = true;
	rig.open_error = error;
	rig.segment = segment;
	(void)snprintf(rig.why, sizeof rig.why, "%s", why ? why : "");
}

static void finished(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)user, (void)batch;
	rig.summary = *summary;
	rig.finished = true;
}

static void closed(void *user)
{
	(void)user;
	rig.closed = true;
}

static void await(bool *flag)
{
	ck_assert(drive_until(rig.reactor, flag, 20000));
	*flag = false;
}

static struct neap_engine *make(const char *name)
{
	struct neap_engine *engine;
	struct neap_engine_options options = {.local_name = name,
	                                      .metadata_cluster = "c1",
	                                      .metadata_timeout_ms = 5000,
	                                      .metadata_refresh_ms = 20,
	                                      .drain_timeout_ms = 100};
	int error = neap_engine_create_over(&engine, rig.reactor, &options, neap_tcp_transport_create, memory_store_open, &rig.store, rig.why,
	                                    sizeof rig.why);
	ck_assert_msg(error == 0, "%s", rig.why);
	ck_assert_int_eq(neap_engine_publish_watch(engine, told, NULL), 0);
	return engine;
}

static void end(struct neap_engine *engine)
{
	ck_assert_int_eq(neap_engine_close(engine, closed, NULL), 0);
	await(&rig.closed);
}

static void begin(void)
{
	memset(&rig, 0, sizeof rig);
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, NULL), 0);
}

static void finish(void)
{
	drive_to_end(rig.reactor);
	memory_store_release(&rig.store);
}

static int open_segment(struct neap_engine *engine, const char *name)
{
	ck_assert_int_eq(neap_segment_open(engine, name, opened, NULL), 0);
	await(&rig.opened);
	return rig.open_error;
}

START_TEST(found_by_name_and_written_to)
{
	static unsigned char mine[SIZE], theirs[SIZE];
	begin();
	rig.target = make("any name");
	await(&rig.told);
	ck_assert_int_eq(rig.error, 0);
	ck_assert_str_eq(neap_engine_name(rig.target), "any name");
	rig.source = make(NULL);
	await(&rig.told);
	ck_assert_msg(strchr(neap_engine_name(rig.source), ':') != NULL, "%s", neap_engine_name(rig.source));
	/* whoever asks later is told too */
	ck_assert_int_eq(neap_engine_publish_watch(rig.target, told, NULL), 0);
	await(&rig.told);
	ck_assert_int_eq(rig.error, 0);
	struct neap_memory memory = {.address = theirs, .length = SIZE, .access = NEAP_OPEN};
	neap_region_id region;
	ck_assert_int_eq(neap_memory_register(rig.target, &memory, 1, &region, rig.why, sizeof rig.why), 0);
	char address[32];
	(void)snprintf(address, sizeof address, "\"addr\":%llu", (unsigned long long)(uintptr_t)theirs);
	for (int i = 0; i < 1000 && !strstr(memory_store_value(&rig.store, "mooncake/c1/ram/any name"), address); i++)
		drive_for(rig.reactor, 2);
	ck_assert_msg(open_segment(rig.source, "any name") == 0, "%s", rig.why);
	neap_segment_id segment = rig.segment;
	memset(mine, 7, SIZE);
	struct neap_request request = {.opcode = NEAP_WRITE, .source = mine, .segment = segment, .target_offset = (uintptr_t)theirs, .length = SIZE};
	neap_batch_id batch;
	ck_assert_int_eq(neap_submit(rig.source, &request, 1, &(struct neap_batch_options){.on_batch = finished}, &batch), 0);
	await(&rig.finished);
	ck_assert_uint_eq(rig.summary.completed, 1);
	ck_assert(memcmp(mine, theirs, SIZE) == 0);
	ck_assert_int_eq(open_segment(rig.source, "nobody"), NEAP_EMETADATA);
	ck_assert_int_eq(neap_memory_unregister(rig.target, region, NULL, NULL), 0);
	end(rig.target);
	ck_assert_ptr_null(memory_store_value(&rig.store, "mooncake/c1/ram/any name"));
	ck_assert_ptr_null(memory_store_value(&rig.store, "mooncake/c1/rpc_meta/any name"));
	end(rig.source);
	finish();
}
END_TEST

START_TEST(a_store_that_lost_everything)
{
	begin();
	rig.target = make("a");
	await(&rig.told);
	memory_store_wipe(&rig.store);
	memory_store_tell_all(&rig.store);
	for (int i = 0; i < 1000 && !memory_store_value(&rig.store, "mooncake/c1/ram/a"); i++)
		drive_for(rig.reactor, 2);
	ck_assert_ptr_nonnull(memory_store_value(&rig.store, "mooncake/c1/rpc_meta/a"));
	/* or without a word */
	rig.store.blind = true;
	memory_store_wipe(&rig.store);
	for (int i = 0; i < 1000 && !memory_store_value(&rig.store, "mooncake/c1/ram/a"); i++)
		drive_for(rig.reactor, 2);
	ck_assert_ptr_nonnull(memory_store_value(&rig.store, "mooncake/c1/ram/a"));
	ck_assert(!rig.told);
	end(rig.target);
	finish();
}
END_TEST

START_TEST(a_name_that_is_taken)
{
	begin();
	rig.target = make("a");
	await(&rig.told);
	rig.source = make("a");
	await(&rig.told);
	ck_assert_int_eq(rig.error, NEAP_ETAKEN);
	ck_assert_msg(strstr(rig.why, "has this name, and lives") != NULL, "%s", rig.why);
	end(rig.target);
	await(&rig.told); /* its name is free now */
	ck_assert_int_eq(rig.error, 0);
	end(rig.source);
	finish();
}
END_TEST

/* The end does not wait for a store that does not answer. */
START_TEST(a_store_that_is_silent)
{
	begin();
	rig.target = make("a");
	await(&rig.told);
	rig.store.down = true;
	end(rig.target);
	ck_assert_ptr_nonnull(memory_store_value(&rig.store, "mooncake/c1/ram/a"));
	rig.store.down = false;
	rig.store.refuse = NEAP_EPEER;
	rig.target = make("b");
	await(&rig.told);
	ck_assert_int_eq(rig.error, NEAP_EPEER);
	ck_assert_int_eq(open_segment(rig.target, "a"), NEAP_EPEER);
	rig.store.refuse = 0;
	rig.store.loses_replies = true;
	end(rig.target);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("engine in a store");
	TCase *all = tcase_create("all");
	tcase_add_test(all, found_by_name_and_written_to);
	tcase_add_test(all, a_store_that_lost_everything);
	tcase_add_test(all, a_name_that_is_taken);
	tcase_add_test(all, a_store_that_is_silent);
	tcase_set_timeout(all, 120);
	suite_add_tcase(suite, all);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
