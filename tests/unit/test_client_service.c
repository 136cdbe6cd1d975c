/* The local service of neap-client over a store that the test plays: memory, its queue, connections that end, what the store says. */
#include "apps/client/methods.h"
#include "apps/client/service.h"
#include "store/rpc/client.h"
#include "tests/support/drive.h"
#include "tests/support/small_engine.h"
#include "tests/unit/fake_store.h"
#include "transports/checksum.h"
#include <check.h>
#include <neap/store_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL (UINT64_C(1) << 20)
#define SECOND UINT64_C(1000000000)
#define CALLS 8u

static struct neap_reactor *reactor;
static struct neap_engine *engine;
static struct neap_store *store;
static struct client_service *service;
static struct neap_rpc_client *client;
static struct neap_rpc_channel *channel, *other;
static _Alignas(65536) unsigned char memory[POOL];
static unsigned char value[POOL], got[POOL];

struct call {
	bool done;
	struct neap_rpc_outcome outcome;
	char why[600];
	uint64_t transfer, size, generation, count;
	uint32_t crc;
	bool flag, has_crc, of_owner;
};
static struct call calls[CALLS];

static void closed(void *user)
{
	*(bool *)user = true;
}

static struct neap_rpc_channel *connect_one(void)
{
	struct neap_rpc_channel_options options = {.server = {.host = "127.0.0.1", .port = client_service_port(service)}};
	struct neap_rpc_channel *made;
	ck_assert_int_eq(neap_rpc_channel_open(&made, client, &options), 0);
	return made;
}

static void open_with(struct client_service_options options)
{
	char why[512] = "";
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), 0);
	const struct neap_engine_options small = small_engine(NULL);
	ck_assert_msg(!neap_engine_create(&engine, reactor, &small, why, sizeof why), "%s", why);
	store = fake_store_open(engine);
	options.memory = memory;
	options.bytes = POOL;
	ck_assert_msg(!client_service_create(&service, store, &options, why, sizeof why), "%s", why);
	ck_assert_int_eq(neap_rpc_client_create(&client, reactor, NULL), 0);
	channel = connect_one();
	other = connect_one();
	memset(calls, 0, sizeof calls);
	for (size_t i = 0; i < sizeof value; i++)
		value[i] = (unsigned char)(i * 7 + i / 251);
}

static void open_plain(void)
{
	open_with((struct client_service_options){0});
}

static struct client_service_stats stats(void)
{
	struct client_service_stats s;
	client_service_stats(service, &s);
	return s;
}

static bool is_quiet(void *user)
{
	(void)user;
	return stats().transfers == 0 && fake_seen.operations == 0;
}

static void close_all(void)
{
	bool stopped = false, gone = false;
	neap_rpc_client_destroy(client);
	ck_assert(drive_all_until(&reactor, 1, is_quiet, NULL, 5000));
	ck_assert_uint_eq(stats().buffer_free_bytes, POOL);
	client_service_stop(service, closed, &stopped);
	ck_assert(drive_until(reactor, &stopped, 5000));
	fake_store_close(store);
	client_service_destroy(service);
	neap_engine_close(engine, closed, &gone);
	ck_assert(drive_until(reactor, &gone, 5000));
	drive_to_end(reactor);
}

/* --- calls ------------------------------------------------------------------------------------------------------------------------ */

static void done(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	(void)reply;
	struct call *call = user;
	call->outcome = *outcome;
	snprintf(call->why, sizeof call->why, "%s", outcome->why);
	call->done = true;
}

static void begun_put(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	if (reply)
		((struct call *)user)->transfer = ((const struct local_put_begin_reply *)reply)->transfer;
	done(user, outcome, reply);
}

static void ended_put(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	const struct local_put_end_reply *end = reply;
	struct call *call = user;
	if (end) {
		call->flag = end->created;
		call->size = end->size_bytes;
		call->generation = end->generation;
		ck_assert(end->owner.length == 14 && !memcmp(end->owner.bytes, "127.0.0.1:4711", 14));
	}
	done(user, outcome, reply);
}

static void begun_get(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	const struct local_get_begin_reply *begin = reply;
	struct call *call = user;
	if (begin) {
		call->transfer = begin->transfer;
		call->size = begin->size_bytes;
		call->has_crc = begin->has_crc;
		call->of_owner = begin->crc_of_owner;
		call->crc = (uint32_t)begin->crc32c;
	}
	done(user, outcome, reply);
}

static void took(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	const struct local_get_data_reply *data = reply;
	struct call *call = user;
	if (data) {
		memcpy(got + call->count, data->data.bytes, data->data.length);
		call->size = data->data.length;
	}
	done(user, outcome, reply);
}

static void ask(struct neap_rpc_channel *through, struct call *call, const struct neap_rpc_method *method, const void *request,
                neap_rpc_done_func *then)
{
	*call = (struct call){.count = call->count};
	ck_assert_int_eq(neap_rpc_call(through, method, request, 5 * SECOND, NULL, then, call, NULL), 0);
}

static void ended(struct call *call, int status)
{
	ck_assert(drive_until(reactor, &call->done, 10000));
	ck_assert_msg(call->outcome.status == status, "%s: %d, %s", neap_rpc_result_name(call->outcome.result), call->outcome.status, call->why);
}

static void begin_put(struct neap_rpc_channel *through, struct call *call, const char *key, uint64_t size)
{
	ask(through, call, &local_method_put_begin, &(struct local_put_begin){neap_rpc_view_of(key, strlen(key)), size}, begun_put);
}

static void supply(struct neap_rpc_channel *through, uint64_t transfer, uint64_t offset, uint64_t length, int status)
{
	struct call *call = &calls[CALLS - 1];
	struct local_put_data data = {.transfer = transfer, .offset = offset, .data = neap_rpc_view_of(value + offset, length)};
	ask(through, call, &local_method_put_data, &data, done);
	ended(call, status);
}

static void finish_put(struct call *call, uint64_t transfer, struct local_put_end end, int status)
{
	end.transfer = transfer;
	ask(channel, call, &local_method_put_end, &end, ended_put);
	ended(call, status);
}

static void put(const char *key, uint64_t size)
{
	begin_put(channel, &calls[0], key, size);
	ended(&calls[0], 0);
	supply(channel, calls[0].transfer, 0, size, 0);
	finish_put(&calls[1], calls[0].transfer, (struct local_put_end){0}, 0);
}

static void begin_get(struct neap_rpc_channel *through, struct call *call, const char *key, bool verify)
{
	struct local_get_begin begin = {.key = neap_rpc_view_of(key, strlen(key)), .verify = verify, .direction = NEAP_FORWARD};
	ask(through, call, &local_method_get_begin, &begin, begun_get);
}

static void take(uint64_t transfer, uint64_t offset, uint64_t length, int status)
{
	struct call *call = &calls[CALLS - 1];
	call->count = offset;
	struct local_get_data data = {.transfer = transfer, .offset = offset, .length = length};
	ask(channel, call, &local_method_get_data, &data, took);
	ended(call, status);
	ck_assert(status || call->size == length);
}

/* --- values ------------------------------------------------------------------------------------------------------------------------- */

START_TEST(a_value_goes_in_and_comes_out)
{
	open_plain();
	begin_put(channel, &calls[0], "key", 700001);
	ended(&calls[0], 0);
	supply(channel, calls[0].transfer, 0, 300000, 0);
	supply(channel, calls[0].transfer, 300000, 400001, 0);
	uint32_t crc = neap_crc32c(0, value, 700001);
	finish_put(&calls[1], calls[0].transfer, (struct local_put_end){.direction = NEAP_FORWARD, .has_crc = true, .crc32c = crc}, 0);
	ck_assert(calls[1].flag && calls[1].size == 700001 && calls[1].generation == 1);
	ck_assert(fake_seen.direction == NEAP_FORWARD && fake_seen.has_crc && fake_seen.crc == crc);
	ck_assert(fake_seen.deadline_ns > 3 * SECOND && fake_seen.deadline_ns < 5 * SECOND);
	uint64_t size = 0;
	const void *stored = fake_store_value(store, "key", &size);
	ck_assert(stored && size == 700001 && !memcmp(stored, value, size));

	begin_get(channel, &calls[2], "key", true);
	ended(&calls[2], 0);
	ck_assert(calls[2].size == 700001 && calls[2].has_crc && calls[2].of_owner && calls[2].crc == crc && fake_seen.verify);
	ck_assert_uint_eq(fake_seen.gets, 2); /* the first told how much memory it takes */
	take(calls[2].transfer, 0, 65537, 0);
	take(calls[2].transfer, 65537, 700001 - 65537, 0);
	ck_assert(!memcmp(got, value, 700001));
	take(calls[2].transfer, 700000, 2, NEAP_STORE_INVALID_PARAMS);
	ask(channel, &calls[3], &local_method_end, &(struct local_end){calls[2].transfer}, done);
	ended(&calls[3], 0);
	ck_assert_uint_eq(stats().transfers, 0);
	take(calls[2].transfer, 0, 1, NEAP_ESTALE);
	close_all();
}
END_TEST

START_TEST(scattered_memory_is_one_value)
{
	open_plain();
	uint64_t transfers[16];
	for (unsigned i = 0; i < 16; i++) {
		char key[8];
		snprintf(key, sizeof key, "k%u", i);
		begin_put(channel, &calls[0], key, CLIENT_CHUNK_BYTES);
		ended(&calls[0], 0);
		transfers[i] = calls[0].transfer;
	}
	ck_assert_uint_eq(stats().buffer_free_bytes, 0);
	for (unsigned i = 0; i < 16; i += 2) { /* every other chunk is free */
		ask(channel, &calls[0], &local_method_end, &(struct local_end){transfers[i]}, done);
		ended(&calls[0], 0);
	}
	begin_put(channel, &calls[0], "scattered", 5 * CLIENT_CHUNK_BYTES - 100);
	ended(&calls[0], 0);
	supply(channel, calls[0].transfer, 0, 5 * CLIENT_CHUNK_BYTES - 100, 0);
	finish_put(&calls[1], calls[0].transfer, (struct local_put_end){0}, 0);
	ck_assert_uint_eq(fake_seen.slices, 5);
	begin_get(channel, &calls[2], "scattered", false);
	ended(&calls[2], 0);
	take(calls[2].transfer, 60000, 200000, 0); /* over the seams */
	ck_assert(!memcmp(got + 60000, value + 60000, 200000));
	close_all();
}
END_TEST

START_TEST(wrong_bytes_do_not_become_a_value)
{
	open_plain();
	begin_put(channel, &calls[0], "key", 1000);
	ended(&calls[0], 0);
	supply(channel, calls[0].transfer, 0, 500, 0);
	supply(channel, calls[0].transfer, 600, 100, NEAP_STORE_INVALID_PARAMS); /* a gap */
	supply(channel, calls[0].transfer, 500, 500, NEAP_ESTALE);               /* and the transfer is over */

	begin_put(channel, &calls[0], "key", 1000);
	ended(&calls[0], 0);
	supply(channel, calls[0].transfer, 0, 1001, NEAP_STORE_INVALID_PARAMS);

	begin_put(channel, &calls[0], "key", 1000);
	ended(&calls[0], 0);
	supply(channel, calls[0].transfer, 0, 999, 0);
	finish_put(&calls[1], calls[0].transfer, (struct local_put_end){0}, NEAP_STORE_INVALID_PARAMS); /* one is missing */

	begin_put(channel, &calls[0], "key", 1000);
	ended(&calls[0], 0);
	supply(channel, calls[0].transfer, 0, 1000, 0);
	finish_put(&calls[1], calls[0].transfer, (struct local_put_end){.has_crc = true, .crc32c = 1}, NEAP_ECORRUPT);

	begin_put(channel, &calls[0], "key", 0);
	ended(&calls[0], NEAP_STORE_INVALID_PARAMS);
	begin_put(channel, &calls[0], "", 1);
	ended(&calls[0], NEAP_STORE_INVALID_KEY);
	ck_assert_uint_eq(fake_seen.puts, 0);
	close_all();
}
END_TEST

START_TEST(a_transfer_belongs_to_its_connection)
{
	open_plain();
	begin_put(channel, &calls[0], "key", 1000);
	ended(&calls[0], 0);
	supply(other, calls[0].transfer, 0, 1000, NEAP_ESTALE);
	ask(other, &calls[1], &local_method_end, &(struct local_end){calls[0].transfer}, done);
	ended(&calls[1], 0);
	ck_assert_uint_eq(stats().transfers, 1); /* it goes on */
	begin_get(other, &calls[1], "none", false);
	ended(&calls[1], NEAP_STORE_OBJECT_NOT_FOUND);
	neap_rpc_channel_close(channel);
	ck_assert(drive_all_until(&reactor, 1, is_quiet, NULL, 5000));
	ck_assert_uint_eq(stats().given_up, 1);
	close_all();
}
END_TEST

/* A command takes the value and ends; another one ends in the middle. */
START_TEST(what_was_taken_to_its_end_is_not_given_up)
{
	open_plain();
	put("key", 1000);
	for (uint64_t taken = 999; taken <= 1000; taken++) {
		begin_get(channel, &calls[0], "key", false);
		ended(&calls[0], 0);
		take(calls[0].transfer, 0, taken, 0);
		neap_rpc_channel_close(channel);
		ck_assert(drive_all_until(&reactor, 1, is_quiet, NULL, 5000));
		ck_assert_uint_eq(stats().given_up, 1);
		channel = connect_one();
	}
	close_all();
}
END_TEST

static bool has_operation(void *user)
{
	(void)user;
	return fake_seen.operations == 1;
}

START_TEST(a_connection_that_ends_cancels_what_the_store_does)
{
	open_plain();
	fake_plan.hold = true;
	begin_put(channel, &calls[0], "key", 1000);
	ended(&calls[0], 0);
	supply(channel, calls[0].transfer, 0, 1000, 0);
	ask(channel, &calls[1], &local_method_put_end, &(struct local_put_end){.transfer = calls[0].transfer}, ended_put);
	ck_assert(drive_all_until(&reactor, 1, has_operation, NULL, 5000));
	neap_rpc_channel_close(channel);
	ck_assert(drive_all_until(&reactor, 1, is_quiet, NULL, 5000));
	ck_assert_uint_eq(fake_seen.cancels, 1);
	uint64_t size;
	ck_assert_ptr_null(fake_store_value(store, "key", &size));
	close_all();
}
END_TEST

START_TEST(memory_that_the_store_keeps_comes_back_when_it_lets_go)
{
	open_plain();
	fake_plan.keeps = true;
	put("key", 1000);
	ck_assert_uint_eq(stats().transfers, 1);
	ck_assert_uint_eq(stats().buffer_free_bytes, POOL - CLIENT_CHUNK_BYTES);
	fake_store_release(store);
	ck_assert_uint_eq(stats().transfers, 0);
	close_all();
}
END_TEST

/* --- the queue for memory ------------------------------------------------------------------------------------------------------------ */

static bool waits(void *user)
{
	return stats().waiting == *(const uint32_t *)user;
}

START_TEST(who_finds_no_memory_waits_in_order)
{
	uint32_t one = 1, two = 2;
	open_with((struct client_service_options){.waiting_max = 2});
	begin_put(channel, &calls[0], "a", POOL);
	ended(&calls[0], 0);
	begin_put(channel, &calls[1], "b", POOL);
	ck_assert(drive_all_until(&reactor, 1, waits, &one, 5000));
	begin_put(channel, &calls[2], "c", 1);
	ck_assert(drive_all_until(&reactor, 1, waits, &two, 5000));
	begin_put(other, &calls[3], "d", 1);
	ended(&calls[3], NEAP_EAGAIN);
	ck_assert(strstr(calls[3].why, "--local_buffer_size"));
	begin_put(other, &calls[3], "e", POOL + 1);
	ended(&calls[3], NEAP_ELIMIT);
	ck_assert(strstr(calls[3].why, "--local_buffer_size"));
	ask(channel, &calls[4], &local_method_end, &(struct local_end){calls[0].transfer}, done);
	ended(&calls[1], 0);
	ck_assert(!calls[2].done); /* the small one does not overtake */
	ask(channel, &calls[4], &local_method_end, &(struct local_end){calls[1].transfer}, done);
	ended(&calls[2], 0);
	close_all();
}
END_TEST

START_TEST(who_waits_goes_with_his_connection_or_his_deadline)
{
	uint32_t one = 1, none = 0;
	open_with((struct client_service_options){.idle_ms = 1000});
	fake_plan.hold = true;
	begin_put(channel, &calls[0], "a", POOL);
	ended(&calls[0], 0);
	supply(channel, calls[0].transfer, 0, POOL, 0);
	ask(channel, &calls[3], &local_method_put_end, &(struct local_put_end){.transfer = calls[0].transfer}, ended_put);
	begin_put(other, &calls[1], "b", 1);
	ck_assert(drive_all_until(&reactor, 1, waits, &one, 5000));
	neap_rpc_channel_close(other);
	ck_assert(drive_all_until(&reactor, 1, waits, &none, 5000));
	begin_put(channel, &calls[2], "c", POOL);
	ended(&calls[2], NEAP_ETIMEDOUT);
	fake_plan.hold = false;
	fake_store_go(store);
	ended(&calls[3], 0);
	begin_put(channel, &calls[0], "d", POOL); /* and one that is left alone */
	ended(&calls[0], 0);
	ck_assert(drive_all_until(&reactor, 1, is_quiet, NULL, 5000));
	ck_assert_uint_eq(stats().idle, 1);
	close_all();
}
END_TEST

/* --- what the store says -------------------------------------------------------------------------------------------------------------- */

START_TEST(the_stores_refusal_is_passed_on)
{
	open_plain();
	fake_plan.put_error = NEAP_STORE_NO_AVAILABLE_HANDLE;
	begin_put(channel, &calls[0], "key", 1000);
	ended(&calls[0], 0);
	supply(channel, calls[0].transfer, 0, 1000, 0);
	finish_put(&calls[1], calls[0].transfer, (struct local_put_end){0}, NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_str_eq(calls[1].why + strlen(calls[1].why) - strlen("the test says so"), "the test says so");
	fake_plan.get_error = NEAP_STORE_REPLICA_IS_NOT_READY;
	begin_get(channel, &calls[2], "key", false);
	ended(&calls[2], NEAP_STORE_REPLICA_IS_NOT_READY);
	close_all();
}
END_TEST

START_TEST(an_unknown_put_is_asked_for)
{
	open_plain();
	fake_plan.unknown_puts = 1;
	put("key", 1000);
	ck_assert(calls[1].flag && fake_seen.resolves == 1);
	close_all();
}
END_TEST

static void removed(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	if (reply)
		((struct call *)user)->size = ((const struct local_removed *)reply)->removed;
	done(user, outcome, reply);
}

static void asked_many(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	struct call *call = user;
	if (reply && call->count == 1)
		call->size = (uint64_t)((const struct local_exist_reply *)reply)->found.bytes[0];
	if (reply && call->count == 2) {
		const struct local_replica *replica = ((const struct local_stat_reply *)reply)->replicas.items;
		ck_assert(replica->priority == -3 && replica->in_memory && !replica->local);
		call->size = replica->size_bytes;
	}
	if (reply && call->count == 3)
		call->size = ((const struct local_list_reply *)reply)->keys.count;
	done(user, outcome, reply);
}

START_TEST(questions_about_keys)
{
	open_plain();
	put("a", 10);
	put("b", 20);
	struct local_key key = {neap_rpc_view_of("a", 1)}, none = {neap_rpc_view_of("none", 4)};
	calls[0].count = 1;
	ask(channel, &calls[0], &local_method_exist, &(struct local_exist){{&key, 1}}, asked_many);
	ended(&calls[0], 0);
	ck_assert_uint_eq(calls[0].size, 1);
	calls[0].count = 2;
	ask(channel, &calls[0], &local_method_stat, &key, asked_many);
	ended(&calls[0], 0);
	ck_assert_uint_eq(calls[0].size, 10);
	ask(channel, &calls[0], &local_method_stat, &none, asked_many);
	ended(&calls[0], NEAP_STORE_OBJECT_NOT_FOUND);
	calls[0].count = 3;
	ask(channel, &calls[0], &local_method_list, &(struct local_list){0}, asked_many);
	ended(&calls[0], 0);
	ck_assert_uint_eq(calls[0].size, 2);
	ask(channel, &calls[0], &local_method_remove, &key, removed);
	ended(&calls[0], 0);
	ck_assert_uint_eq(calls[0].size, 1);
	ask(channel, &calls[0], &local_method_remove, &key, removed);
	ended(&calls[0], NEAP_STORE_OBJECT_NOT_FOUND);
	ask(channel, &calls[0], &local_method_remove_matching, &(struct local_remove_matching){neap_rpc_view_of("a\0b", 3)}, removed);
	ended(&calls[0], NEAP_STORE_INVALID_PARAMS);
	ask(channel, &calls[0], &local_method_remove_matching, &(struct local_remove_matching){{NULL, 0}}, removed);
	ended(&calls[0], 0);
	ck_assert_uint_eq(calls[0].size, 1);
	ask(channel, &calls[0], &local_method_health, &(struct local_health){0}, done);
	ended(&calls[0], 0);
	close_all();
}
END_TEST

START_TEST(a_drain_lets_transfers_end_and_takes_no_more)
{
	bool idle = false;
	open_plain();
	begin_put(channel, &calls[0], "key", 1000);
	ended(&calls[0], 0);
	client_service_drain(service, closed, &idle);
	begin_put(channel, &calls[1], "other", 1);
	ended(&calls[1], NEAP_STORE_UNAVAILABLE_IN_CURRENT_STATUS);
	supply(channel, calls[0].transfer, 0, 1000, 0);
	ck_assert(!idle);
	finish_put(&calls[1], calls[0].transfer, (struct local_put_end){0}, 0);
	ck_assert(drive_until(reactor, &idle, 5000));
	close_all();
}
END_TEST

/* --- memory by itself ------------------------------------------------------------------------------------------------------------------ */

START_TEST(memory_is_given_out_once_and_comes_back_whole)
{
	static uint8_t used[POOL / CLIENT_CHUNK_BYTES];
	struct client_buffers buffers;
	struct client_pieces pieces[8], all;
	unsigned seed = 1;
	memset(used, 0, sizeof used);
	memset(pieces, 0, sizeof pieces);
	client_buffers_open(&buffers, memory, POOL, used);
	for (unsigned round = 0; round < 10000; round++) {
		seed = seed * 1103515245u + 12345u;
		struct client_pieces *one = &pieces[seed >> 16 & 7];
		uint64_t bytes = (seed >> 8) % (POOL / 2) + 1;
		if (one->count) {
			client_buffers_give(&buffers, one);
		} else if (client_buffers_take(&buffers, bytes, one)) {
			ck_assert_uint_eq(one->bytes, bytes);
			for (unsigned other_one = 0; other_one < 8; other_one++)
				for (uint32_t a = 0; &pieces[other_one] != one && a < pieces[other_one].count; a++)
					for (uint32_t b = 0; b < one->count; b++) {
						const struct neap_slice_of *x = &pieces[other_one].slices[a], *y = &one->slices[b];
						ck_assert((char *)x->address + x->length <= (char *)y->address || (char *)y->address + y->length <= (char *)x->address);
					}
		}
	}
	for (unsigned i = 0; i < 8; i++)
		client_buffers_give(&buffers, &pieces[i]);
	ck_assert(client_buffers_take(&buffers, POOL, &all));
	ck_assert_uint_eq(all.count, 1);
	ck_assert(!client_buffers_take(&buffers, 1, &pieces[0]));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_service");
	TCase *values = tcase_create("values"), *queue = tcase_create("queue"), *says = tcase_create("store"), *alone = tcase_create("memory");
	tcase_add_test(values, a_value_goes_in_and_comes_out);
	tcase_add_test(values, scattered_memory_is_one_value);
	tcase_add_test(values, wrong_bytes_do_not_become_a_value);
	tcase_add_test(values, a_transfer_belongs_to_its_connection);
	tcase_add_test(values, what_was_taken_to_its_end_is_not_given_up);
	tcase_add_test(values, a_connection_that_ends_cancels_what_the_store_does);
	tcase_add_test(values, memory_that_the_store_keeps_comes_back_when_it_lets_go);
	tcase_add_test(queue, who_finds_no_memory_waits_in_order);
	tcase_add_test(queue, who_waits_goes_with_his_connection_or_his_deadline);
	tcase_add_test(says, the_stores_refusal_is_passed_on);
	tcase_add_test(says, an_unknown_put_is_asked_for);
	tcase_add_test(says, questions_about_keys);
	tcase_add_test(says, a_drain_lets_transfers_end_and_takes_no_more);
	tcase_add_test(alone, memory_is_given_out_once_and_comes_back_whole);
	suite_add_tcase(suite, values);
	suite_add_tcase(suite, queue);
	suite_add_tcase(suite, says);
	suite_add_tcase(suite, alone);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
