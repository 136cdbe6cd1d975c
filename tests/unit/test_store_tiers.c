/* Stores with a STORAGE tier, for real: real sockets, a real file, more data than memory. One process: a master, a store with two tiers, and
 * one with none that puts and gets. */
#include "store/directory/local.h"
#include "store/master/service.h"
#include "store/node/inside.h"
#include "tests/support/drive.h"
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define KIB UINT64_C(1024)
#define ROOM (4 * MIB)
#define TIERS                                                                                                                     \
	"{\"tiers\":[{\"type\":\"DRAM\",\"capacity\":\"8MB\",\"priority\":100,\"slab_size\":\"2MB\"},"                                \
	"{\"type\":\"STORAGE\",\"capacity\":\"%s\",\"priority\":10,\"storage_filepath\":\"%s\",\"bucket_size_limit\":\"4MB\","        \
	"\"staging_buffer_capacity\":\"1MB\"}]%s}"

struct party {
	struct neap_engine *engine;
	struct neap_store *store; /* NULL: closed */
	unsigned char *memory;    /* ROOM to put from, ROOM to get into */
	bool ready, closed;
	int ready_error;
};

static struct neap_reactor *reactor;
static struct neap_local_directory *local;
static struct neap_master_service *service;
static struct neap_rpc_server *server;
static char master[64], directory[64], tiers[600], why[400];
static struct party owner, user;

static void set(void *flag)
{
	*(bool *)flag = true;
}

static void on_ready(void *to, int error, const char *reason)
{
	struct party *party = to;
	(void)reason;
	party->ready = true;
	party->ready_error = error;
}

static void start_master(void)
{
	struct neap_local_directory_options options = {.first = true, .epoch = 5, .keys_max = 10000, .clients_max = 16, .segments_max = 16};
	struct neap_rpc_server_options rpc = {.epoch = 5, .connections_max = 16, .lanes_max = 16};
	struct neap_sockaddr address;
	uint32_t count;
	int system_errno;
	ck_assert_int_eq(neap_local_directory_create(&local, reactor, &options, why, sizeof why), 0);
	ck_assert_int_eq(neap_master_service_create(&service, reactor, neap_local_directory_face(local), NULL), 0);
	ck_assert_int_eq(neap_sockaddr_from_numeric("127.0.0.1", 0, &address), 0);
	const struct neap_rpc_handler *handlers = neap_master_service_handlers(&count);
	int error = neap_rpc_server_create(&server, reactor, &address, handlers, count, &rpc, service, &system_errno, why, sizeof why);
	ck_assert_msg(error == 0, "%s", why);
	snprintf(master, sizeof master, "127.0.0.1:%u", neap_rpc_server_port(server));
}

static void start_engine(struct party *party)
{
	struct neap_engine_options options = {.requests_max = 1024, .batches_max = 256, .peers_max = 8, .regions_max = 64, .grants_max = 1024};
	*party = (struct party){0};
	ck_assert_msg(neap_engine_create(&party->engine, reactor, &options, why, sizeof why) == 0, "%s", why);
	party->memory = aligned_alloc(4096, 2 * ROOM);
	struct neap_memory memory = {.address = party->memory, .length = 2 * ROOM, .access = NEAP_GRANT_ONLY};
	ck_assert_msg(neap_memory_register(party->engine, &memory, 1, NULL, why, sizeof why) == 0, "%s", why);
}

static int try_store(struct party *party, const char *config)
{
	struct neap_store_options options = {.master = master, .tiers = config, .keys_max = 4096, .operations_max = 64, .heartbeat_ms = 50,
	                                     .ready = on_ready, .user = party};
	return neap_store_create(&party->store, party->engine, &options, why, sizeof why);
}

static void start_store(struct party *party, const char *config)
{
	int error = try_store(party, config);
	ck_assert_msg(error == 0, "%s", why);
	ck_assert(drive_until(reactor, &party->ready, 10000));
	ck_assert_int_eq(party->ready_error, 0);
}

static void setup_with(const char *capacity, const char *scheduler)
{
	snprintf(directory, sizeof directory, "/tmp/neap-tiers-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(tiers, sizeof tiers, TIERS, capacity, directory, scheduler);
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), 0);
	start_master();
	start_engine(&owner);
	start_engine(&user);
	start_store(&owner, tiers);
	start_store(&user, NULL);
}

static void setup(void)
{
	setup_with("64MB", "");
}

static void end_store(struct party *party)
{
	if (!party->store)
		return;
	const char *wrong = neap_store_check(party->store);
	ck_assert_msg(!wrong, "%s", wrong);
	ck_assert_int_eq(neap_store_close(party->store, set, &party->closed), 0);
	ck_assert_msg(drive_until(reactor, &party->closed, 20000), "the store does not close");
	party->store = NULL;
}

static void end_engine(struct party *party)
{
	bool closed = false;
	ck_assert_int_eq(neap_engine_close(party->engine, set, &closed), 0);
	ck_assert(drive_until(reactor, &closed, 10000));
	free(party->memory);
}

/* Of what the tier had in its directory only the lock is left, without a byte. */
static void end_directory(void)
{
	char path[200];
	unsigned files = 0;
	DIR *listed = opendir(directory);
	for (struct dirent *entry; listed && (entry = readdir(listed));)
		files += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	closedir(listed);
	ck_assert_uint_le(files, 1);
	snprintf(path, sizeof path, "%s/neap.lock", directory);
	(void)unlink(path);
	ck_assert_int_eq(rmdir(directory), 0);
}

static void teardown(void)
{
	end_store(&user);
	end_store(&owner);
	neap_rpc_server_destroy(server);
	neap_master_service_destroy(service);
	neap_local_directory_destroy(local);
	end_engine(&user);
	end_engine(&owner);
	drive_to_end(reactor);
	end_directory();
}

/* --- operations ------------------------------------------------------------------------------------------------------------------ */

struct ended {
	bool done;
	struct neap_store_outcome outcome;
	char why[300];
};

static void on_done(void *to, const struct neap_store_outcome *outcome)
{
	struct ended *ended = to;
	ck_assert(!ended->done);
	ended->done = true;
	ended->outcome = *outcome;
	snprintf(ended->why, sizeof ended->why, "%s", outcome->why);
}

static void fill(unsigned char *bytes, uint64_t length, uint32_t x)
{
	for (uint64_t i = 0; i < length; i++) {
		x = x * 1664525u + 1013904223u;
		bytes[i] = (unsigned char)(x >> 24);
	}
}

static bool filled(const unsigned char *bytes, uint64_t length, uint32_t x)
{
	for (uint64_t i = 0; i < length; i++) {
		x = x * 1664525u + 1013904223u;
		if (bytes[i] != (unsigned char)(x >> 24))
			return false;
	}
	return true;
}

static struct neap_key key_of(uint32_t number)
{
	static char text[16];
	snprintf(text, sizeof text, "k%u", number);
	return (struct neap_key){text, (uint32_t)strlen(text)};
}

/* Small ones travel inside the call, the others do not. */
static uint64_t size_of(uint32_t number)
{
	static const uint64_t sizes[] = {256 * KIB, 10000, 700001, 64 * KIB};
	return sizes[number % 4];
}

static void put(struct party *party, uint32_t number, uint64_t size, enum neap_direction direction)
{
	struct neap_put_options options = {.direction = direction, .checksum = number % 2};
	struct neap_slice_of slice = {party->memory, size};
	struct neap_key key = key_of(number);
	struct ended ended = {0};
	fill(party->memory, size, number);
	ck_assert_int_eq(neap_store_put(party->store, &key, &slice, 1, &options, on_done, &ended, NULL), 0);
	ck_assert(drive_until(reactor, &ended.done, 30000));
	ck_assert_msg(ended.outcome.status == NEAP_STORE_SUCCESS && ended.outcome.created, "put %u: %d %s", number, ended.outcome.error, ended.why);
}

static struct ended get(struct party *party, uint32_t number, uint64_t size, enum neap_direction direction)
{
	struct neap_get_options options = {.direction = direction, .verify = true};
	struct neap_slice_of slice = {party->memory + ROOM, size};
	struct neap_key key = key_of(number);
	struct ended ended = {0};
	memset(slice.address, 0xee, size);
	ck_assert_int_eq(neap_store_get(party->store, &key, &slice, 1, &options, on_done, &ended, NULL), 0);
	ck_assert(drive_until(reactor, &ended.done, 30000));
	return ended;
}

static void must_get(struct party *party, uint32_t number, enum neap_direction direction)
{
	uint64_t size = size_of(number);
	struct ended ended = get(party, number, size, direction);
	ck_assert_msg(ended.outcome.status == NEAP_STORE_SUCCESS, "get %u: %d %s", number, ended.outcome.error, ended.why);
	ck_assert_uint_eq(ended.outcome.size, size);
	ck_assert_msg(filled(party->memory + ROOM, size, number), "get %u: wrong bytes", number);
}

static struct neap_owner_stats stats(void)
{
	struct neap_owner_stats stats;
	neap_owner_stats(owner.store->owner, &stats);
	return stats;
}

static bool at_rest(void *unused)
{
	(void)unused;
	return stats().going_down + stats().going_up == 0;
}

static void rest(void)
{
	ck_assert_msg(drive_all_until(&reactor, 1, at_rest, NULL, 20000), "the disk does not come to rest");
	drive_for(reactor, 1);
}

static void fill_store(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		put(&user, i, size_of(i), i % 3 ? NEAP_REVERSE : NEAP_FORWARD);
		rest();
	}
}

struct found {
	bool done;
	int error;
	uint32_t in_memory, on_disk;
};

static void on_stat(void *to, int error, const struct neap_store_replica *replicas, uint32_t count, const char *reason)
{
	struct found *found = to;
	(void)reason;
	found->done = true;
	found->error = error;
	for (uint32_t i = 0; i < count; i++) {
		found->in_memory += replicas[i].in_memory;
		found->on_disk += !replicas[i].in_memory;
	}
}

static struct found stat_of(uint32_t number)
{
	struct neap_key key = key_of(number);
	struct found found = {0};
	ck_assert_int_eq(neap_store_stat(user.store, &key, 0, on_stat, &found), 0);
	ck_assert(drive_until(reactor, &found.done, 10000));
	return found;
}

/* --- */

START_TEST(more_than_memory_in_every_way)
{
	const uint32_t count = 120; /* 30 MiB in 8 */
	fill_store(count);
	struct neap_owner_stats now = stats();
	ck_assert_uint_eq(now.keys, count);
	ck_assert_uint_eq(now.evicted, 0);
	ck_assert_uint_gt(now.fell_back, count / 2);
	ck_assert_uint_gt(now.bytes, 24 * MIB);
	for (uint32_t i = 0; i < count; i++) {
		must_get(&user, i, NEAP_REVERSE);
		must_get(&user, i, NEAP_FORWARD);
		must_get(&owner, i, NEAP_REVERSE); /* no call */
	}
	now = stats();
	ck_assert_uint_eq(now.keys, count);
	ck_assert_uint_eq(now.evicted + now.disk_reads_failed + now.disk_writes_failed + now.wrong_copies, 0);
	ck_assert_uint_gt(now.served_once + now.onboarded, count);
	const char *wrong = neap_store_check(owner.store);
	ck_assert_msg(!wrong, "%s", wrong);
}
END_TEST

static uint64_t metric_value;
static const char *metric_name;
static void each_metric(void *unused, const struct neap_metric *metric)
{
	(void)unused;
	if (strcmp(metric->name, metric_name) == 0 && metric->kind != NEAP_METRIC_HISTOGRAM && strstr(metric->labels, "STORAGE"))
		metric_value += metric->value;
}

static uint64_t metric(const char *name)
{
	metric_name = name;
	metric_value = 0;
	neap_store_metrics(owner.store, each_metric, NULL);
	return metric_value;
}

START_TEST(the_directory_says_where_it_lies)
{
	const uint32_t count = 60;
	uint32_t cold = 0;
	fill_store(count);
	drive_for(reactor, 300); /* changes are gathered for a while */
	for (uint32_t i = 0; i < count; i++) {
		struct neap_key key = key_of(i);
		struct neap_key_facts facts;
		neap_owner_look_up(owner.store->owner, &key, &facts);
		struct found found = stat_of(i);
		ck_assert_int_eq(found.error, 0);
		ck_assert_uint_eq(found.in_memory, facts.in_memory);
		ck_assert_uint_eq(found.on_disk, !facts.in_memory);
		cold += !facts.in_memory;
	}
	ck_assert_uint_gt(cold, 0);
	ck_assert_uint_eq(metric("mooncake_p2p_tier_offloaded_keys_total"), stats().offloaded);
	ck_assert_uint_eq(metric("mooncake_p2p_tier_onboarded_keys_total"), 0);
	ck_assert_uint_eq(metric("mooncake_p2p_tier_key_count"), cold + stats().copies);
	ck_assert_uint_gt(metric("mooncake_p2p_tier_used_bytes"), MIB);
	ck_assert_uint_eq(metric("mooncake_p2p_tier_capacity_bytes"), 64 * MIB);
}
END_TEST

START_TEST(asked_for_often_it_comes_to_stay)
{
	end_store(&user);
	end_store(&owner);
	snprintf(tiers, sizeof tiers, TIERS, "64MB", directory,
	         ",\"scheduler\":{\"onboard_freq_threshold\":2,\"onboard_fast_threshold\":1.0,\"offload_freq_threshold\":15}");
	owner.ready = user.ready = owner.closed = user.closed = false;
	start_store(&owner, tiers);
	start_store(&user, NULL);
	fill_store(60);
	uint32_t cold = 60;
	for (uint32_t i = 0; i < 60 && cold == 60; i++) {
		struct neap_key key = key_of(i);
		struct neap_key_facts facts;
		neap_owner_look_up(owner.store->owner, &key, &facts);
		cold = facts.in_memory ? 60 : i;
	}
	for (unsigned i = 0; i < 5; i++)
		must_get(&user, cold, NEAP_REVERSE);
	ck_assert_uint_ge(metric("mooncake_p2p_tier_onboarded_keys_total"), 1);
	must_get(&user, cold, NEAP_FORWARD);
	drive_for(reactor, 300);
	ck_assert_uint_eq(stat_of(cold).in_memory, 1);
	must_get(&user, cold, NEAP_FORWARD);
}
END_TEST

struct removed {
	bool done;
	int error;
	uint64_t count;
};

static void on_removed(void *to, int error, uint64_t count, const char *reason)
{
	(void)reason;
	*(struct removed *)to = (struct removed){true, error, count};
}

START_TEST(removal_takes_both)
{
	fill_store(60);
	uint64_t used = metric("mooncake_p2p_tier_used_bytes");
	ck_assert_uint_gt(used, 0);
	struct removed removed = {0};
	drive_for(reactor, 300);
	ck_assert_int_eq(neap_store_remove_matching(user.store, "", 0, on_removed, &removed), 0);
	ck_assert(drive_until(reactor, &removed.done, 20000));
	ck_assert_int_eq(removed.error, 0);
	ck_assert_uint_eq(removed.count, 60);
	rest();
	ck_assert_uint_eq(metric("mooncake_p2p_tier_used_bytes"), 0);
	ck_assert_uint_eq(stats().keys, 0);
	ck_assert_int_eq(get(&user, 1, size_of(1), NEAP_REVERSE).outcome.error, NEAP_STORE_OBJECT_NOT_FOUND);
	put(&user, 1, size_of(1), NEAP_REVERSE);
	must_get(&user, 1, NEAP_FORWARD);
}
END_TEST

/* Writes and reads are under way, and are ended or left. */
START_TEST(closed_under_way)
{
	static struct ended ended[8];
	fill_store(60);
	memset(ended, 0, sizeof ended);
	for (uint32_t i = 0; i < 8; i++) {
		struct neap_slice_of slice = {user.memory + ROOM, size_of(4 * i)};
		struct neap_get_options options = {.direction = i % 2 ? NEAP_REVERSE : NEAP_FORWARD, .deadline_ns = UINT64_C(2000000000)};
		struct neap_key key = key_of(4 * i);
		ck_assert_int_eq(neap_store_get(user.store, &key, &slice, 1, &options, on_done, &ended[i], NULL), 0);
	}
	for (uint32_t i = 100; i < 110; i++)
		put(&owner, i, size_of(0), NEAP_REVERSE);
	end_store(&owner);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert(drive_until(reactor, &ended[i].done, 10000));
}
END_TEST

START_TEST(the_disk_is_smaller_than_what_is_put)
{
	end_store(&user);
	end_store(&owner);
	snprintf(tiers, sizeof tiers, TIERS, "8MB", directory, "");
	owner.ready = user.ready = owner.closed = user.closed = false;
	start_store(&owner, tiers);
	start_store(&user, NULL);
	fill_store(160); /* 40 MiB in 16 */
	uint32_t there = 0;
	drive_for(reactor, 300);
	for (uint32_t i = 0; i < 160; i++) {
		struct ended ended = get(&user, i, size_of(i), i % 2 ? NEAP_REVERSE : NEAP_FORWARD);
		ck_assert(ended.outcome.status == NEAP_STORE_SUCCESS || ended.outcome.error == NEAP_STORE_OBJECT_NOT_FOUND);
		if (ended.outcome.status == NEAP_STORE_SUCCESS) {
			ck_assert(filled(user.memory + ROOM, size_of(i), i));
			there++;
		}
	}
	ck_assert_uint_gt(there, 20);
	ck_assert_uint_lt(there, 160);
	ck_assert_uint_eq(stats().disk_reads_failed, 0);
}
END_TEST

/* --- what cannot be --------------------------------------------------------------------------------------------------------------- */

#define DISK "{\"type\":\"STORAGE\",\"capacity\":\"8MB\",\"priority\":%d,\"storage_filepath\":\"%s\"}"
#define MEMORY_TAGGED "{\"type\":\"DRAM\",\"capacity\":\"8MB\",\"priority\":10,\"tags\":[\"%s\"]}"
#define LESSER_MEMORY "{\"type\":\"DRAM\",\"capacity\":\"8MB\",\"priority\":7,\"tags\":[\"s\"]}"
#define ROLES "\"scheduler\":{\"tier_role_mode\":\"manual\",\"fast_tier_tag\":\"%s\",\"slow_tier_tag\":\"%s\"}"
#define MEMORY "{\"type\":\"DRAM\",\"capacity\":\"8MB\",\"priority\":10}"

static void refused(const char *config, const char *says)
{
	end_store(&user);
	ck_assert_int_ne(try_store(&user, config), 0);
	ck_assert_ptr_null(user.store);
	ck_assert_msg(strstr(why, says) != NULL, "%s", why);
}

START_TEST(configurations_that_cannot_be)
{
	char config[800], other[100];
	snprintf(other, sizeof other, "%s/other", directory);
	snprintf(config, sizeof config, "{\"tiers\":[" DISK "]}", 5, other);
	refused(config, "needs a DRAM tier");
	snprintf(config, sizeof config, "{\"tiers\":[" MEMORY "," DISK "]}", 10, other);
	refused(config, "priority must be higher");
	snprintf(config, sizeof config, "{\"tiers\":[" MEMORY "," DISK "," DISK "]}", 5, other, 4, other);
	refused(config, "one STORAGE tier");
	snprintf(config, sizeof config, "{\"tiers\":[" MEMORY "," LESSER_MEMORY "]," ROLES "}", "s", "");
	refused(config, "fast_tier_tag: \"s\" must be a tag of tiers[0]");
	snprintf(config, sizeof config, "{\"tiers\":[" MEMORY_TAGGED "," DISK "]," ROLES "}", "m", 5, other, "m", "");
	refused(config, "must be a tag of the STORAGE tier and of no other; tiers[1] is one without it");
	snprintf(config, sizeof config, "{\"tiers\":[" MEMORY_TAGGED "," LESSER_MEMORY "," DISK "]," ROLES "}", "m", 5, other, "m", "s");
	refused(config, "must be a tag of the STORAGE tier and of no other; tiers[1] is memory");
	snprintf(config, sizeof config, "{\"tiers\":[" MEMORY "," DISK "]}", 5, directory);
	refused(config, "another process uses it");
	snprintf(config, sizeof config, "{\"tiers\":[" MEMORY "," DISK "]}", 5, "/nonexistent/neap");
	refused(config, "storage_filepath");
	drive_for(reactor, 100); /* what had been made is closed */
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stores with a disk");
	TCase *tcase = tcase_create("real");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, more_than_memory_in_every_way);
	tcase_add_test(tcase, the_directory_says_where_it_lies);
	tcase_add_test(tcase, asked_for_often_it_comes_to_stay);
	tcase_add_test(tcase, removal_takes_both);
	tcase_add_test(tcase, closed_under_way);
	tcase_add_test(tcase, the_disk_is_smaller_than_what_is_put);
	tcase_add_test(tcase, configurations_that_cannot_be);
	suite_add_tcase(suite, tcase);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
