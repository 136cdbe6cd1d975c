/* Puts and gets that go as they should, in every way a value can go: what calls they make, what rides along, what is remembered. */
#include "tests/unit/accessor_rig.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t sizes[] = {1, 4096, 16384, 16385, 65536, 1000000, 3000000};
#define SIZES (int)(sizeof sizes / sizeof sizes[0])

static void put_well(uint64_t size, uint32_t slices, enum neap_direction direction)
{
	struct rig_op op = {0};
	struct neap_put_options options = {.direction = direction};
	ck_assert_int_eq(rig_put_of(&op, "a key", size, slices, &options), 0);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	const struct rig_value *value = rig_find(0, "a key");
	ck_assert(value && value->exists && value->size == size);
	ck_assert(rig_filled("a key", size, rig.owners[0].memory + value->at));
	ck_assert(op.outcome.created && op.outcome.size == size && op.outcome.generation == value->generation && !op.outcome.held);
	ck_assert_str_eq(op.place.rpc, rig.routes[0].place.rpc);
}

static void get_well(uint64_t size, uint32_t slices, enum neap_direction direction)
{
	struct rig_op op = {0};
	struct neap_get_options options = {.direction = direction};
	uint64_t done = 0;
	ck_assert_int_eq(rig_get_of(&op, "a key", size, slices, &options), 0);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	ck_assert(op.outcome.size == size && op.outcome.generation == rig_find(0, "a key")->generation);
	unsigned char *bytes = malloc(size); /* the slices have gaps of 64 bytes, as rig_get_of makes them */
	for (uint32_t i = 0; i < slices; i++) {
		uint64_t length = i + 1 == slices ? size - done : size / slices + (i % 2 ? 0 : 1);
		memcpy(bytes + done, rig.memory + done + i * 64, length);
		done += length;
	}
	ck_assert(rig_filled("a key", size, bytes));
	free(bytes);
}

START_TEST(forward)
{
	rig_begin();
	put_well(sizes[_i], 1, NEAP_FORWARD);
	get_well(sizes[_i], 1, NEAP_FORWARD);
	const struct rig_script *on = rig.owners[0].on;
	ck_assert(on[PRE_WRITE].calls == 1 && on[WRITE_COMMIT].calls == 1 && on[PIN_KEY].calls == 1 && on[WRITE_REMOTE].calls == 0);
	ck_assert(rig_stats().puts[NEAP_WAY_FORWARD].bytes == sizes[_i] && rig_stats().gets[NEAP_WAY_FORWARD].succeeded == 1);
	rig_end();
}
END_TEST

START_TEST(reverse)
{
	rig_begin();
	put_well(sizes[_i], 1, NEAP_DIRECTION_DEFAULT);
	get_well(sizes[_i], 1, NEAP_REVERSE);
	const struct rig_script *on = rig.owners[0].on;
	ck_assert(on[PRE_WRITE].calls == 0 && on[WRITE_REMOTE].calls == 1 && on[READ_REMOTE].calls == 1);
	enum neap_way way = sizes[_i] <= 16384 ? NEAP_WAY_INLINE : NEAP_WAY_REVERSE;
	ck_assert(rig_stats().puts[way].succeeded == 1 && rig_stats().gets[way].succeeded == 1 && rig_stats().gets[way].bytes == sizes[_i]);
	rig_end();
}
END_TEST

START_TEST(many_slices)
{
	enum neap_direction direction = _i % 2 ? NEAP_FORWARD : NEAP_REVERSE;
	uint32_t counts[] = {2, 7, 64};
	rig_open();
	rig.options.no_inline = _i >= 6;
	rig_start();
	put_well(_i < 6 ? 200000 : 5000, counts[_i / 2 % 3], direction);
	get_well(_i < 6 ? 200000 : 5000, counts[(_i / 2 + 1) % 3], direction);
	ck_assert_uint_eq(rig_stats().puts[NEAP_WAY_INLINE].operations, 0);
	rig_end();
}
END_TEST

START_TEST(inline_in_slices)
{
	rig_begin();
	put_well(5000, 7, NEAP_DIRECTION_DEFAULT);
	get_well(5000, 3, NEAP_DIRECTION_DEFAULT);
	ck_assert_uint_eq(rig_stats().gets[NEAP_WAY_INLINE].succeeded, 1);
	rig_end();
}
END_TEST

/* The process's direction, and the request's. */
START_TEST(direction_by_default)
{
	struct rig_op op = {0};
	rig_open();
	rig.options.direction = NEAP_FORWARD;
	rig.options.no_inline = true;
	rig_start();
	rig_put(&op, "x", 5000, NEAP_DIRECTION_DEFAULT);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	rig_put(&op, "y", 5000, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	ck_assert(rig_stats().puts[NEAP_WAY_FORWARD].succeeded == 1 && rig_stats().puts[NEAP_WAY_REVERSE].succeeded == 1);
	rig_end();
}
END_TEST

/* --- the key has a value already ------------------------------------------------------------------------------------------------ */

START_TEST(existing_is_success)
{
	struct rig_op op = {0};
	rig_begin();
	rig.owners[0].with_crc = true;
	const struct rig_value *value = rig_have(0, "a key", 30000);
	rig_put(&op, "a key", 30000, _i ? NEAP_FORWARD : NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	ck_assert(!op.outcome.created && op.outcome.size == 30000 && op.outcome.generation == value->generation && op.outcome.has_crc);
	ck_assert(op.outcome.crc == value->crc && rig_stats().existed == 1);
	ck_assert_uint_eq(rig.owners[0].on[LOOK_UP].calls, _i ? 1 : 0);
	rig_end();
}
END_TEST

START_TEST(existing_of_another_size)
{
	struct rig_op op = {0};
	rig_begin();
	rig_have(0, "a key", 30001);
	rig_put(&op, "a key", 30000, _i ? NEAP_FORWARD : NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_OBJECT_ALREADY_EXISTS);
	ck_assert_uint_eq(op.outcome.size, 30001);
	rig_end();
}
END_TEST

START_TEST(existing_with_other_bytes)
{
	struct rig_op op = {0};
	struct neap_put_options options = {.direction = _i ? NEAP_FORWARD : NEAP_REVERSE, .checksum = true};
	rig_begin();
	rig.owners[0].with_crc = true;
	rig_have(0, "a key", 30000)->crc ^= 1;
	ck_assert_int_eq(rig_put_of(&op, "a key", 30000, 1, &options), 0);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_OBJECT_ALREADY_EXISTS);
	rig_end();
}
END_TEST

/* --- sums ----------------------------------------------------------------------------------------------------------------------- */

START_TEST(sums_travel)
{
	struct rig_op op = {0};
	enum neap_direction direction = _i ? NEAP_FORWARD : NEAP_REVERSE;
	struct neap_put_options right = {.direction = direction, .checksum = true};
	struct neap_put_options wrong = {.direction = direction, .has_crc = true, .crc = 12345, .candidates_max = 1};
	rig_open();
	rig.options.verify = true;
	rig_start();
	rig.owners[0].with_crc = true;
	rig.answers = RIG_LATER;
	ck_assert_int_eq(rig_put_of(&op, "a key", 3000000, 5, &right), 0);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	ck_assert(op.outcome.has_crc && op.outcome.crc == rig_crc("a key", 3000000));
	get_well(3000000, 3, direction);
	ck_assert_int_eq(rig_put_of(&op, "b key", 100000, 1, &wrong), 0);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_DATA_COPY_FAILED);
	ck_assert_ptr_null(rig_find(0, "b key"));
	rig_end();
}
END_TEST

START_TEST(wrong_bytes_are_not_success)
{
	struct rig_op op = {0};
	struct neap_get_options options = {.direction = _i ? NEAP_FORWARD : NEAP_REVERSE, .verify = true};
	rig_begin();
	rig_have(0, "a key", 100000);
	rig_have(1, "a key", 100000);
	rig.owners[0].with_crc = rig.owners[0].wrong_crc = rig.owners[1].with_crc = true;
	ck_assert_int_eq(rig_get_of(&op, "a key", 100000, 1, &options), 0);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0); /* the other replica has it right */
	ck_assert_str_eq(op.place.rpc, rig.routes[1].place.rpc);
	rig.owners[1].wrong_crc = true;
	ck_assert_int_eq(rig_get_of(&op, "a key", 100000, 1, &options), 0);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_DATA_COPY_FAILED);
	ck_assert_uint_ge(rig_stats().wrong_sums, 3);
	options.no_verify = true;
	ck_assert_int_eq(rig_get_of(&op, "a key", 100000, 1, &options), 0);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	rig_end();
}
END_TEST

/* --- gets: sizes and routes ------------------------------------------------------------------------------------------------------ */

START_TEST(longer_slices)
{
	struct rig_op op = {0};
	rig_begin();
	rig_have(0, "a key", 40000);
	rig.routes[0].size = 40000;
	rig_get(&op, "a key", 50000, _i ? NEAP_FORWARD : NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	ck_assert(op.outcome.size == 40000 && rig_filled("a key", 40000, rig.memory) && rig.memory[40000] == 0);
	rig_end();
}
END_TEST

START_TEST(too_short_slices)
{
	struct rig_op op = {0};
	rig_begin();
	rig_have(0, "a key", 40000);
	rig_get(&op, "a key", 30000, NEAP_FORWARD);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_BUFFER_OVERFLOW);
	ck_assert_uint_eq(op.outcome.size, 40000);
	rig_have(0, "b", 400);
	rig_get(&op, "b", 300, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_BUFFER_OVERFLOW);
	ck_assert_uint_eq(op.outcome.size, 400);
	rig_end();
}
END_TEST

START_TEST(routes_are_remembered)
{
	rig_begin();
	put_well(50000, 1, _i ? NEAP_FORWARD : NEAP_REVERSE); /* a put knows the route too */
	get_well(50000, 1, _i ? NEAP_FORWARD : NEAP_REVERSE);
	get_well(50000, 1, _i ? NEAP_FORWARD : NEAP_REVERSE);
	ck_assert(rig.asked_replicas == 0 && rig_stats().routes.hits == 2 && rig.asked_candidates == 1);
	rig_end();
}
END_TEST

/* The cached route is wrong: its size, or its owner has nothing. The directory is asked again, and told. */
START_TEST(a_stale_route_is_dropped)
{
	struct rig_op op = {0};
	rig_begin();
	put_well(50000, 1, NEAP_REVERSE);
	struct rig_value *value = rig_find(0, "a key");
	if (_i == 0) {
		value->exists = false;
		rig_have(1, "a key", 50000);
	} else {
		value->size = 40000;
	}
	rig.routes[0].size = _i == 0 ? 0 : 40000;
	rig_get(&op, "a key", 60000, _i == 2 ? NEAP_FORWARD : NEAP_REVERSE);
	if (_i == 0) {
		rig.routes[1].size = 50000;
		rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	} else {
		rig_expect(&op, NEAP_STORE_SUCCESS, 0);
		ck_assert_uint_eq(op.outcome.size, 40000);
	}
	ck_assert_uint_ge(rig.stale, 1);
	ck_assert_uint_eq(rig.asked_replicas, _i == 2 ? 0 : 1);
	rig_end();
}
END_TEST

START_TEST(nowhere)
{
	struct rig_op op = {0};
	rig_begin();
	rig_get(&op, "no key", 50000, _i ? NEAP_FORWARD : NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_uint_eq(rig.asked_replicas, 2); /* once more, in case it has moved */
	rig.places_error = NEAP_STORE_REPLICA_IS_NOT_READY;
	rig_get(&op, "no key", 50000, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_REPLICA_IS_NOT_READY);
	rig_put(&op, "no key", 50000, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_REPLICA_IS_NOT_READY);
	rig.places_error = 0;
	rig.route_count = 0;
	rig_put(&op, "no key", 50000, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_NO_AVAILABLE_HANDLE);
	rig_end();
}
END_TEST

/* --- pins ------------------------------------------------------------------------------------------------------------------------ */

START_TEST(finished_pins_ride)
{
	struct rig_op op = {0};
	struct rig_owner *owner = &rig.owners[0];
	rig_begin();
	rig_have(0, "a key", 30000);
	rig_get(&op, "a key", 30000, NEAP_FORWARD);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	uint64_t first = owner->pin.read_operation_id;
	ck_assert(owner->finished_count == 0 && rig_stats().pins_now == 1);
	if (_i == 0)
		rig_get(&op, "a key", 30000, NEAP_FORWARD);
	else if (_i == 1)
		rig_get(&op, "a key", 30000, NEAP_REVERSE);
	else
		rig_put(&op, "b", 100, _i == 2 ? NEAP_REVERSE : NEAP_FORWARD);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	ck_assert(owner->finished_count == 1 && owner->finished[0] == first && rig_stats().pins_ridden == 1);
	ck_assert_uint_eq(owner->on[UN_PIN_KEY].calls, 0);
	rig_end();
}
END_TEST

START_TEST(finished_pins_go_by_themselves)
{
	struct rig_op op = {0};
	struct rig_owner *owner = &rig.owners[0];
	rig_begin();
	rig_have(0, "a key", 30000);
	rig_get(&op, "a key", 30000, NEAP_FORWARD);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	rig_for(50);
	ck_assert_uint_eq(owner->on[UN_PIN_KEY].calls, 0);
	owner->on[UN_PIN_KEY].refuse = _i == 1;
	owner->on[UN_PIN_KEY].status = NEAP_STORE_LEASE_EXPIRED; /* heard: that is an end too */
	owner->on[UN_PIN_KEY].lose = _i == 2 ? 1 : _i == 3 ? 9 : 0;
	rig_for(2000);
	ck_assert_uint_eq(owner->on[UN_PIN_KEY].calls, _i == 2 ? 2 : _i == 3 ? 3 : 1);
	ck_assert(rig_stats().pins_now == 0 && rig_stats().pins_dropped == (_i == 3 ? 1 : 0));
	if (_i == 0)
		ck_assert_uint_eq(owner->finished[0], owner->pin.read_operation_id);
	rig_end();
}
END_TEST

/* More than one request carries, and more than the accessor remembers. */
START_TEST(many_pins)
{
	struct neap_place place;
	struct neap_key key = {"k", 1};
	int error;
	rig_open();
	rig.options.pins_max = 100;
	rig_start();
	place = rig.routes[0].place;
	struct neap_store_peer *peer = neap_store_peer_get(&rig.accessor->peers, &place, &error);
	for (uint64_t i = 1; i <= 120; i++)
		neap_store_peer_finished(peer, &key, i);
	ck_assert(rig_stats().pins_dropped == 20 && rig_stats().unpin_calls == 1);
	rig_for(500);
	neap_store_peer_put(peer);
	ck_assert(rig.owners[0].unpin_items == 100 && rig_stats().unpin_calls == 2 && rig_stats().pins_now == 0);
	rig_end();
}
END_TEST

START_TEST(pins_are_told_at_the_end)
{
	struct rig_op op = {0};
	rig_begin();
	rig_have(0, "a key", 30000);
	rig_get(&op, "a key", 30000, NEAP_FORWARD);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	neap_accessor_close(rig.accessor, NULL, NULL);
	rig.accessor = NULL;
	rig_for(10);
	ck_assert_uint_eq(rig.owners[0].unpin_items, 1);
	rig_end();
}
END_TEST

/* --- peers ------------------------------------------------------------------------------------------------------------------------ */

START_TEST(idle_peers_are_closed)
{
	struct rig_op op = {0};
	rig_open();
	rig.options.peer_idle_ns = 100 * MS;
	rig_start();
	rig_put(&op, "a", 100, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	ck_assert_uint_eq(rig_stats().peers_now, 1);
	rig_for(150);
	ck_assert_uint_eq(rig_stats().peers_now, 0);
	rig_put(&op, "b", 100, NEAP_FORWARD);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	rig_end();
}
END_TEST

START_TEST(peers_are_bounded)
{
	struct rig_op op = {0};
	rig_open();
	rig.options.peers_max = 1;
	rig_start();
	rig_put(&op, "a", 100, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	struct neap_route first = rig.routes[0];
	rig.routes[0] = rig.routes[1]; /* an idle one makes room */
	rig_put(&op, "b", 100, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	ck_assert(rig_find(1, "b") && rig_stats().peers_now == 1);
	struct rig_op slow = {0};
	rig.owners[1].on[WRITE_REMOTE].hold = 1;
	rig_put(&slow, "c", 100, NEAP_REVERSE); /* one in use does not */
	rig_reach(store_put_MOVING);
	rig_for(1);
	rig.routes[0] = first;
	rig.route_count = 1;
	rig_put(&op, "d", 100, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_EAGAIN);
	rig_answer(1);
	rig_expect(&slow, NEAP_STORE_SUCCESS, 0);
	rig_end();
}
END_TEST

START_TEST(malformed_places)
{
	struct rig_op op = {0};
	rig_begin();
	rig.route_count = 1;
	rig.routes[0].place.rpc[0] = '\0';
	rig_put(&op, "a", 100, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_INVALID_REPLICA);
	memset(&rig.routes[1].place.instance, 0, 16);
	rig.routes[0] = rig.routes[1];
	rig_get(&op, "a", 100, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_INVALID_REPLICA);
	rig_end();
}
END_TEST

/* --- the API ---------------------------------------------------------------------------------------------------------------------- */

START_TEST(arguments)
{
	struct neap_slice_of slice = {rig.memory, 100}, empty = {NULL, 100}, none = {(void *)1, 0}, huge[2] = {{(void *)1, UINT64_MAX}, {(void *)1, UINT64_MAX}};
	struct neap_key key = {"k", 1}, no_key = {"", 0}, long_key = {"k", NEAP_KEY_MAX + 1};
	struct neap_accessor *other;
	struct neap_places places = {0};
	struct rig_op op = {0};
	rig_begin();
	slice.address = rig.memory;
	ck_assert_int_eq(neap_accessor_put(rig.accessor, &no_key, &slice, 1, NULL, rig_done, &op, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_accessor_get(rig.accessor, &long_key, &slice, 1, NULL, rig_done, &op, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_accessor_put(rig.accessor, &key, &slice, 0, NULL, rig_done, &op, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_accessor_put(rig.accessor, &key, &slice, 65, NULL, rig_done, &op, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_accessor_get(rig.accessor, &key, &empty, 1, NULL, rig_done, &op, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_accessor_put(rig.accessor, &key, &none, 1, NULL, rig_done, &op, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_accessor_get(rig.accessor, &key, huge, 2, NULL, rig_done, &op, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_accessor_get(rig.accessor, &key, &slice, 1, NULL, NULL, &op, NULL), NEAP_EINVAL);
	ck_assert_uint_eq(rig_stats().operations_now, 0);
	struct neap_accessor_options wrong = {.inline_max = NEAP_INLINE_MAX + 1};
	ck_assert_int_eq(neap_accessor_create(&other, rig.engine, &places, &wrong), NEAP_EINVAL);
	for (uint32_t i = 0; i < 32; i++)
		ck_assert_int_eq(neap_accessor_get(rig.accessor, &key, &slice, 1, NULL, rig_done, &op, NULL), 0);
	ck_assert_int_eq(neap_accessor_get(rig.accessor, &key, &slice, 1, NULL, rig_done, &op, NULL), NEAP_EAGAIN);
	rig_for(100);
	ck_assert_uint_eq(op.times, 32);
	neap_accessor_close(rig.accessor, NULL, NULL);
	ck_assert_int_eq(neap_accessor_get(rig.accessor, &key, &slice, 1, NULL, rig_done, &op, NULL), NEAP_ECLOSED);
	rig.accessor = NULL;
	rig_for(10);
	rig_end();
}
END_TEST

/* REVERSE needs memory that can be granted. */
START_TEST(memory_without_grants)
{
	struct neap_key key = {"k", 1};
	static char bytes[50000];
	struct neap_slice_of slices[2] = {{rig.memory, 20000}, {bytes, sizeof bytes}};
	struct rig_op op = {0};
	rig_begin();
	slices[0].address = rig.memory;
	if (_i)
		ck_assert_int_eq(neap_accessor_get(rig.accessor, &key, slices, 2, NULL, rig_done, &op, NULL), 0);
	else
		ck_assert_int_eq(neap_accessor_put(rig.accessor, &key, slices, 2, NULL, rig_done, &op, NULL), 0);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_INVALID_PARAMS);
	rig_end();
}
END_TEST

static struct rig_op inner;
static void put_more(struct rig_op *op)
{
	neap_accessor_cancel(rig.accessor, op->id); /* has ended */
	rig_put(&inner, "inner", 40000, NEAP_FORWARD);
}

static void close_it(struct rig_op *op)
{
	(void)op;
	neap_accessor_close(rig.accessor, NULL, NULL);
	rig.accessor = NULL;
}

START_TEST(callbacks_may_call)
{
	struct rig_op op = {.then = put_more};
	rig_begin();
	memset(&inner, 0, sizeof inner);
	rig_put(&op, "outer", 40000, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	rig_expect(&inner, NEAP_STORE_SUCCESS, 0);
	op.then = close_it;
	rig_put(&op, "last", 40000, NEAP_REVERSE);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	rig_for(10);
	rig_end();
}
END_TEST

/* The n-th allocation of a create fails: it says so, and leaves nothing behind (rig_end looks). */
START_TEST(creates_without_memory)
{
	struct neap_places places = {0};
	int error = NEAP_ENOMEM;
	rig_begin();
	neap_accessor_close(rig.accessor, NULL, NULL);
	rig.accessor = NULL;
	rig_for(10);
	for (uint64_t n = 0; error == NEAP_ENOMEM && n < 100; n++) {
		rig.a->fail_allocation_at = rig.a->allocations + n;
		error = neap_accessor_create(&rig.accessor, rig.engine, &places, &rig.options);
		ck_assert(error == 0 || (error == NEAP_ENOMEM && !rig.accessor && n < 99));
	}
	rig.a->fail_allocation_at = UINT64_MAX;
	rig_end();
}
END_TEST

/* A reactor that stops takes the accessor with it. */
START_TEST(stops_with_its_reactor)
{
	struct rig_op op = {0};
	rig_begin();
	rig.answers = RIG_NEVER;
	rig_put(&op, "a", 100, NEAP_REVERSE);
	rig_reach(store_put_PLACING);
	neap_reactor_stop(rig.a->reactor);
	rig.engine = NULL;
	rig.accessor = NULL;
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_ECANCELED);
	rig_end();
}
END_TEST

/* --- batches ---------------------------------------------------------------------------------------------------------------------- */

#define ITEMS 40u
static struct {
	struct neap_batch_item items[ITEMS];
	struct neap_slice_of slices[ITEMS];
	char keys[ITEMS][16];
	uint32_t times[ITEMS], finished, succeeded, most;
	struct neap_store_outcome outcomes[ITEMS];
} batch;

static void item_done(void *user, uint32_t index, void *item_user, const struct neap_store_outcome *outcome)
{
	ck_assert(user == &batch && item_user == &batch.times[index]);
	batch.times[index]++;
	batch.outcomes[index] = *outcome;
	uint32_t now = rig.accessor ? rig_stats().operations_now : 0;
	batch.most = now > batch.most ? now : batch.most;
}

static void batch_finished(void *user, uint32_t succeeded, uint32_t count)
{
	ck_assert(user == &batch && count == ITEMS);
	batch.finished++;
	batch.succeeded = succeeded;
}

static bool batch_over(void)
{
	return batch.finished > 0;
}

static struct neap_store_batch_options batch_of(uint64_t size, enum neap_direction direction, uint32_t concurrency)
{
	memset(&batch, 0, sizeof batch);
	for (uint32_t i = 0; i < ITEMS; i++) {
		(void)snprintf(batch.keys[i], sizeof batch.keys[i], "key %u", i);
		batch.slices[i] = (struct neap_slice_of){rig.memory + i * size, size};
		batch.items[i] = (struct neap_batch_item){.key = {batch.keys[i], (uint32_t)strlen(batch.keys[i])}, .slices = &batch.slices[i],
		                                          .count = 1, .user = &batch.times[i]};
		rig_fill(batch.keys[i], size, i * size);
	}
	return (struct neap_store_batch_options){.concurrency = concurrency, .put = {.direction = direction}, .get = {.direction = direction},
	                                         .done = item_done, .finished = batch_finished, .user = &batch};
}

START_TEST(batches)
{
	rig_begin();
	struct neap_store_batch_options options = batch_of(20000, _i ? NEAP_FORWARD : NEAP_REVERSE, 5);
	ck_assert_int_eq(neap_accessor_put_batch(rig.accessor, batch.items, ITEMS, &options, NULL), 0);
	ck_assert(rig_until(batch_over, 10000));
	ck_assert(batch.succeeded == ITEMS && batch.most <= 5 && batch.most >= 3);
	for (uint32_t i = 0; i < ITEMS; i++)
		ck_assert(batch.times[i] == 1 && rig_filled(batch.keys[i], 20000, rig.owners[0].memory + rig_find(0, batch.keys[i])->at));
	rig_find(0, "key 7")->exists = false;
	options = batch_of(20000, _i ? NEAP_FORWARD : NEAP_REVERSE, 0);
	memset(rig.memory, 0, ITEMS * 20000);
	ck_assert_int_eq(neap_accessor_get_batch(rig.accessor, batch.items, ITEMS, &options, NULL), 0);
	ck_assert(rig_until(batch_over, 10000));
	ck_assert(batch.succeeded == ITEMS - 1 && batch.outcomes[7].error == NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert(rig_filled("key 39", 20000, rig.memory + 39 * 20000) && batch.finished == 1);
	ck_assert_uint_eq(batch.most, 32); /* operations_max: the rest waits for room */
	rig_end();
}
END_TEST

START_TEST(canceled_batches)
{
	uint64_t id = 0;
	rig_begin();
	struct neap_store_batch_options options = batch_of(20000, NEAP_REVERSE, 4);
	rig.owners[0].on[WRITE_REMOTE].skip = 10;
	rig.owners[0].on[WRITE_REMOTE].hold = 100;
	rig.route_count = 1;
	options.put.deadline_ns = _i == 2 ? 300 * MS : 0;
	batch.items[ITEMS - 1].count = 0; /* not well formed, and the last */
	ck_assert_int_eq(neap_accessor_put_batch(rig.accessor, batch.items, ITEMS, &options, &id), 0);
	rig_for(100);
	ck_assert_uint_eq(batch.finished, 0);
	if (_i == 0)
		neap_accessor_cancel_batch(rig.accessor, id);
	if (_i == 1) {
		neap_accessor_close(rig.accessor, NULL, NULL);
		rig.accessor = NULL;
	}
	ck_assert(rig_until(batch_over, 2000));
	for (uint32_t i = 0; i < ITEMS; i++)
		ck_assert_uint_eq(batch.times[i], 1);
	ck_assert(batch.succeeded >= 10 && batch.succeeded < 20);
	ck_assert_int_eq(batch.outcomes[ITEMS - 2].error, _i == 2 ? NEAP_ETIMEDOUT : NEAP_ECANCELED);
	if (_i == 0)
		neap_accessor_cancel_batch(rig.accessor, id);
	rig_for(10);
	rig_end();
}
END_TEST

START_TEST(batches_are_bounded)
{
	rig_begin();
	struct neap_store_batch_options options = batch_of(100, NEAP_REVERSE, 4);
	rig.answers = RIG_NEVER;
	options.finished = NULL;
	options.done = NULL;
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(neap_accessor_put_batch(rig.accessor, batch.items, ITEMS, &options, NULL), 0);
	ck_assert_int_eq(neap_accessor_put_batch(rig.accessor, batch.items, ITEMS, &options, NULL), NEAP_EAGAIN);
	ck_assert_int_eq(neap_accessor_put_batch(rig.accessor, batch.items, 0, &options, NULL), NEAP_EINVAL);
	rig_end();
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("accessor");
	TCase *ways = tcase_create("ways"), *values = tcase_create("values"), *pins = tcase_create("pins"), *peers = tcase_create("peers"),
	      *api = tcase_create("api"), *batches_ = tcase_create("batches");
	tcase_add_loop_test(ways, forward, 0, SIZES);
	tcase_add_loop_test(ways, reverse, 0, SIZES);
	tcase_add_loop_test(ways, many_slices, 0, 12);
	tcase_add_test(ways, inline_in_slices);
	tcase_add_test(ways, direction_by_default);
	tcase_add_loop_test(values, existing_is_success, 0, 2);
	tcase_add_loop_test(values, existing_of_another_size, 0, 2);
	tcase_add_loop_test(values, existing_with_other_bytes, 0, 2);
	tcase_add_loop_test(values, sums_travel, 0, 2);
	tcase_add_loop_test(values, wrong_bytes_are_not_success, 0, 2);
	tcase_add_loop_test(values, longer_slices, 0, 2);
	tcase_add_test(values, too_short_slices);
	tcase_add_loop_test(values, routes_are_remembered, 0, 2);
	tcase_add_loop_test(values, a_stale_route_is_dropped, 0, 3);
	tcase_add_loop_test(values, nowhere, 0, 2);
	tcase_add_loop_test(pins, finished_pins_ride, 0, 4);
	tcase_add_loop_test(pins, finished_pins_go_by_themselves, 0, 4);
	tcase_add_test(pins, many_pins);
	tcase_add_test(pins, pins_are_told_at_the_end);
	tcase_add_test(peers, idle_peers_are_closed);
	tcase_add_test(peers, peers_are_bounded);
	tcase_add_test(peers, malformed_places);
	tcase_add_test(api, arguments);
	tcase_add_loop_test(api, memory_without_grants, 0, 2);
	tcase_add_test(api, callbacks_may_call);
	tcase_add_test(api, creates_without_memory);
	tcase_add_test(api, stops_with_its_reactor);
	tcase_add_loop_test(batches_, batches, 0, 2);
	tcase_add_loop_test(batches_, canceled_batches, 0, 3);
	tcase_add_test(batches_, batches_are_bounded);
	TCase *const cases[] = {ways, values, pins, peers, api, batches_};
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		tcase_set_timeout(cases[i], 30);
		suite_add_tcase(suite, cases[i]);
	}
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(make_suite());
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
