/* What an owner answers to accessors, over the simulated network. Most cases follow the list of behaviours that the reference's tests of its
 * data manager, its handlers and its peer client check; where ours is another on purpose, the case says so. */
#include "tests/unit/peer_rig.h"
#include "transports/checksum.h"
#include <check.h>
#include <string.h>

static struct rig_call call, other;

static struct rig_peer *first(void)
{
	return &rig.peers[0];
}

static struct rig_peer *second(void)
{
	return &rig.peers[1];
}

static void setup(void)
{
	rig_open(NULL);
}

static uint64_t write_id(const struct rig_call *of)
{
	return of->reply.pre_write.write_operation_id;
}

static uint64_t read_id(const struct rig_call *of)
{
	return of->reply.pin_key.read_operation_id;
}

/* --- FORWARD writes ----------------------------------------------------------------------------------------------------------- */

START_TEST(a_value_is_written_under_a_grant_and_committed)
{
	static unsigned char bytes[100000];
	rig_fill(bytes, sizeof bytes, 3);
	uint32_t crc = neap_crc32c(0, bytes, sizeof bytes);
	ck_assert_int_eq(rig_pre_write(first(), "k", sizeof bytes, &call), 0);
	ck_assert_uint_eq(call.reply.pre_write.lease_ms, RIG_LEASE_MS);
	ck_assert_uint_eq(call.buffer.length, sizeof bytes);
	ck_assert(!rig_exists("k"));
	ck_assert_int_eq(rig_transfer(first(), NEAP_WRITE, &call, bytes, sizeof bytes), NEAP_COMPLETED);
	ck_assert_int_eq(rig_commit(first(), "k", write_id(&call), sizeof bytes, &crc, &other), 0);
	ck_assert(other.reply.committed.created && other.reply.committed.generation && other.reply.committed.has_crc);
	ck_assert_uint_eq(other.reply.committed.size_bytes, sizeof bytes);
	ck_assert_uint_eq(other.reply.committed.crc32c, crc);
	ck_assert(rig_exists("k"));
	ck_assert_uint_eq(rig_owner_stats().pending + rig_owner_stats().committing, 0);
	ck_assert_uint_eq(rig_stats().writes_now, 0);
	/* the grant is over */
	ck_assert_int_ne(rig_transfer(first(), NEAP_WRITE, &call, bytes, sizeof bytes), NEAP_COMPLETED);
	ck_assert_int_eq(rig_pin(second(), "k", &other), 0);
	ck_assert(other.reply.pin_key.has_crc && other.reply.pin_key.crc32c == crc);
}
END_TEST

START_TEST(a_pre_write_rejects_another)
{
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, &call), 0);
	ck_assert_int_eq(rig_pre_write(second(), "k", 1000, &other), NEAP_STORE_REPLICA_IS_PROCESSING);
	ck_assert(other.outcome.retry_after_ms > 0 && other.outcome.retry_after_ms <= RIG_LEASE_MS);
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, NULL), NEAP_STORE_REPLICA_IS_PROCESSING);
	ck_assert_int_eq(rig_commit(first(), "k", write_id(&call), 1000, NULL, NULL), 0); /* the first one's id still counts */
}
END_TEST

START_TEST(of_two_at_once_one_wins)
{
	struct pre_write request = {.key = rig_text("k"), .size_bytes = 10, .engine = neap_rpc_view_of(first()->engine_instance, 16)};
	rig_ask(first(), &call, &neap_method_pre_write, &request, 5000, NULL);
	request.engine = neap_rpc_view_of(second()->engine_instance, 16);
	rig_ask(second(), &other, &neap_method_pre_write, &request, 5000, NULL);
	int a = rig_status(&call), b = rig_status(&other);
	ck_assert_int_eq(a + b, NEAP_STORE_REPLICA_IS_PROCESSING);
	ck_assert(a == 0 || b == 0);
	struct rig_peer *winner = a == 0 ? first() : second();
	ck_assert_int_eq(rig_commit(winner, "k", write_id(a == 0 ? &call : &other), 10, NULL, NULL), 0);
}
END_TEST

START_TEST(a_key_is_written_once)
{
	rig_put(first(), "k", 1000, 1);
	ck_assert_int_eq(rig_pre_write(second(), "k", 1000, NULL), NEAP_STORE_OBJECT_ALREADY_EXISTS);
	ck_assert_int_eq(rig_pre_write(first(), "k", 10, NULL), NEAP_STORE_OBJECT_ALREADY_EXISTS);
	ck_assert_int_eq(rig_remove(second(), "k", 0), 0);
	rig_put(second(), "k", 500, 2); /* after it was removed it may hold something else */
	ck_assert_int_eq(rig_read_inside(first(), "k", 65536, &call), 0);
	ck_assert(call.reply.read.size_bytes == 500 && rig_filled(call.value, 500, 2));
}
END_TEST

/* The reference answers a repeated commit with OBJECT_NOT_FOUND, and the accessor then writes a second copy elsewhere. */
START_TEST(a_repeated_commit_is_a_commit)
{
	uint64_t id = rig_put(first(), "k", 1000, 1);
	ck_assert_int_eq(rig_commit(first(), "k", id, 1000, NULL, &call), 0);
	ck_assert_int_eq(rig_commit(first(), "k", id, 1000, NULL, &other), 0);
	ck_assert_uint_eq(call.reply.committed.generation, other.reply.committed.generation);
	ck_assert_int_eq(rig_revoke(first(), "k", id), NEAP_STORE_INVALID_WRITE);
	ck_assert(rig_exists("k"));
	ck_assert_int_eq(rig_remove(first(), "k", 0), 0);
	ck_assert_int_eq(rig_commit(first(), "k", id, 1000, NULL, NULL), NEAP_STORE_OBJECT_NOT_FOUND);
}
END_TEST

START_TEST(commits_are_checked_in_order)
{
	ck_assert_int_eq(rig_commit(first(), "", 5, 1000, NULL, NULL), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(rig_commit(first(), "k", 0, 1000, NULL, NULL), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(rig_commit(first(), "k", 5, 1000, NULL, NULL), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, &call), 0);
	ck_assert_int_eq(rig_commit(first(), "k", write_id(&call) + (UINT64_C(1) << 40), 1000, NULL, NULL), NEAP_STORE_INVALID_WRITE);
	ck_assert_int_eq(rig_commit(first(), "k", write_id(&call), 999, NULL, NULL), NEAP_STORE_INVALID_PARAMS);
	ck_assert_uint_eq(rig_owner_stats().pending, 1); /* it is kept */
	ck_assert_uint_eq(rig_stats().writes_now, 1);
	ck_assert_int_eq(rig_commit(first(), "k", write_id(&call), 1000, NULL, NULL), 0);
}
END_TEST

START_TEST(wrong_bytes_are_not_committed)
{
	uint32_t crc = 0x12345678;
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, &call), 0);
	ck_assert_int_eq(rig_commit(first(), "k", write_id(&call), 1000, &crc, NULL), NEAP_STORE_DATA_COPY_FAILED);
	ck_assert(!rig_exists("k"));
	ck_assert_int_eq(rig_pre_write(second(), "k", 1000, NULL), 0); /* the reservation is gone */
}
END_TEST

START_TEST(revokes_are_checked_in_order)
{
	ck_assert_int_eq(rig_revoke(first(), "", 5), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(rig_revoke(first(), "k", 0), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(rig_revoke(first(), "k", 5), 0); /* there is none: done */
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, &call), 0);
	ck_assert_int_eq(rig_revoke(first(), "k", write_id(&call) + (UINT64_C(1) << 40)), NEAP_STORE_INVALID_WRITE);
	ck_assert_uint_eq(rig_owner_stats().pending, 1);
	ck_assert_int_eq(rig_revoke(first(), "k", write_id(&call)), 0);
	ck_assert_uint_eq(rig_owner_stats().pending, 0);
	ck_assert_uint_eq(rig_stats().writes_now, 0);
	/* The reference answers OBJECT_NOT_FOUND and LEASE_EXPIRED to the second of these by chance of time. */
	ck_assert_int_eq(rig_revoke(first(), "k", write_id(&call)), 0);
	ck_assert_int_eq(rig_pre_write(second(), "k", 1000, NULL), 0); /* what it blocked goes on */
}
END_TEST

START_TEST(a_late_commit_is_told_so_and_the_key_is_free)
{
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, &call), 0);
	rig_for(RIG_LEASE_MS + 100);
	ck_assert_int_eq(rig_commit(first(), "k", write_id(&call), 1000, NULL, NULL), NEAP_STORE_LEASE_EXPIRED);
	ck_assert_int_eq(rig_revoke(first(), "k", write_id(&call)), NEAP_STORE_LEASE_EXPIRED);
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, &other), 0);
	ck_assert_int_eq(rig_commit(first(), "k", write_id(&call), 1000, NULL, NULL), NEAP_STORE_LEASE_EXPIRED);
	ck_assert_int_eq(rig_commit(first(), "k", write_id(&other), 1000, NULL, NULL), 0);
	ck_assert_uint_eq(rig_owner_stats().expired_writes, 1);
}
END_TEST

START_TEST(pre_writes_are_checked)
{
	struct pre_write request = {.key = rig_text("k"), .size_bytes = 1000, .engine = neap_rpc_view_of(first()->engine_instance, 15)};
	ck_assert_int_eq(rig_pre_write(first(), "", 1000, NULL), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(rig_pre_write(first(), "k", 0, NULL), NEAP_STORE_INVALID_PARAMS);
	rig_ask(first(), &call, &neap_method_pre_write, &request, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_INVALID_PARAMS);
	request.engine.length = 16;
	request.has_tier = true;
	request.target_tier = 5;
	rig_ask(first(), &call, &neap_method_pre_write, &request, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_TIER_NOT_FOUND);
	request.target_tier = 0;
	rig_ask(first(), &call, &neap_method_pre_write, &request, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), 0);
	ck_assert_int_eq(rig_pre_write(first(), "large", 64 * MIB, &call), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_uint_gt(call.outcome.retry_after_ms, 0);
	ck_assert_int_eq(rig_pre_write(first(), "huge", UINT64_MAX, NULL), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_uint_eq(rig_owner_stats().pending, 1);
}
END_TEST

/* --- FORWARD reads ------------------------------------------------------------------------------------------------------------ */

START_TEST(a_pinned_value_is_read_under_a_grant)
{
	static unsigned char bytes[100000];
	rig_put(first(), "k", sizeof bytes, 5);
	ck_assert_int_eq(rig_pin(second(), "k", &call), 0);
	ck_assert_uint_eq(call.reply.pin_key.lease_ms, RIG_LEASE_MS);
	ck_assert_uint_eq(call.buffer.length, sizeof bytes);
	ck_assert_int_eq(rig_transfer(second(), NEAP_READ, &call, bytes, sizeof bytes), NEAP_COMPLETED);
	ck_assert(rig_filled(bytes, sizeof bytes, 5));
	ck_assert_int_ne(rig_transfer(second(), NEAP_WRITE, &call, bytes, sizeof bytes), NEAP_COMPLETED); /* it is for reading */
	ck_assert_int_eq(rig_unpin(second(), "k", read_id(&call)), 0);
	rig_for(10);
	ck_assert_int_ne(rig_transfer(second(), NEAP_READ, &call, bytes, sizeof bytes), NEAP_COMPLETED);
}
END_TEST

/* The reference gives all readers one id and counts them; a repeated unpin of one then takes away another's. */
START_TEST(each_reader_has_a_pin_of_its_own)
{
	rig_put(first(), "k", 1000, 5);
	ck_assert_int_eq(rig_pin(first(), "k", &call), 0);
	ck_assert_int_eq(rig_pin(second(), "k", &other), 0);
	ck_assert_uint_ne(read_id(&call), read_id(&other));
	ck_assert_uint_eq(rig_owner_stats().pins, 2);
	ck_assert_uint_eq(rig_stats().pins_now, 2);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(rig_unpin(first(), "k", read_id(&call)), 0);
	rig_for(10);
	ck_assert_uint_eq(rig_owner_stats().pins, 1);
	unsigned char bytes[1000];
	ck_assert_int_eq(rig_transfer(second(), NEAP_READ, &other, bytes, sizeof bytes), NEAP_COMPLETED);
	ck_assert_int_eq(rig_unpin(second(), "k", read_id(&other)), 0);
	rig_for(10);
	ck_assert_uint_eq(rig_owner_stats().pins, 0);
	ck_assert_int_eq(rig_pin(first(), "k", &other), 0);
	ck_assert_uint_ne(read_id(&call), read_id(&other)); /* after an unpin it is a new one */
}
END_TEST

START_TEST(pins_are_checked_in_order)
{
	rig_put(first(), "k", 1000, 5);
	ck_assert_int_eq(rig_pin(first(), "", NULL), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(rig_pin(first(), "nothing", NULL), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(rig_pin(first(), "k", &call), 0);
	ck_assert_int_eq(rig_unpin(first(), "", read_id(&call)), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(rig_unpin(first(), "k", 0), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(rig_unpin(first(), "other", read_id(&call)), NEAP_STORE_INVALID_READ);
	ck_assert_int_eq(rig_unpin(first(), "k", read_id(&call) + (UINT64_C(1) << 40)), 0); /* there is no such pin (any more) */
	ck_assert_uint_eq(rig_owner_stats().pins, 1);
	ck_assert_int_eq(rig_unpin(first(), "k", read_id(&call)), 0);
}
END_TEST

START_TEST(an_expired_pin_is_told_so)
{
	unsigned char bytes[1000];
	rig_put(first(), "k", 1000, 5);
	ck_assert_int_eq(rig_pin(first(), "k", &call), 0);
	rig_for(RIG_LEASE_MS + 100);
	ck_assert_int_eq(rig_unpin(first(), "k", read_id(&call)), NEAP_STORE_LEASE_EXPIRED);
	ck_assert_uint_eq(rig_owner_stats().pins, 0);
	ck_assert_uint_eq(rig_stats().pins_now, 0);
	ck_assert_int_ne(rig_transfer(first(), NEAP_READ, &call, bytes, sizeof bytes), NEAP_COMPLETED);
	ck_assert_int_eq(rig_remove(first(), "k", 0), 0);
	ck_assert(!rig_exists("k"));
}
END_TEST

START_TEST(a_pin_keeps_the_version_that_it_is_of)
{
	unsigned char bytes[1000];
	rig_put(first(), "k", 1000, 5);
	ck_assert_int_eq(rig_pin(second(), "k", &call), 0);
	ck_assert_int_eq(rig_remove(first(), "k", 0), 0);
	rig_put(first(), "k", 1000, 6);
	ck_assert_int_eq(rig_pin(second(), "k", &other), 0);
	ck_assert_uint_ne(call.reply.pin_key.generation, other.reply.pin_key.generation);
	ck_assert_int_eq(rig_transfer(second(), NEAP_READ, &call, bytes, sizeof bytes), NEAP_COMPLETED);
	ck_assert(rig_filled(bytes, sizeof bytes, 5));
	ck_assert_int_eq(rig_transfer(second(), NEAP_READ, &other, bytes, sizeof bytes), NEAP_COMPLETED);
	ck_assert(rig_filled(bytes, sizeof bytes, 6));
}
END_TEST

/* After a read no UnPinKey is sent: what has finished rides on the next request, whatever that one's fate. */
START_TEST(finished_pins_ride_on_requests)
{
	struct finished_pin pins[3] = {{.key = rig_text("k")}, {.key = rig_text("k")}, {.key = rig_text("wrong")}};
	struct neap_rpc_list finished = {pins, 3};
	rig_put(first(), "k", 1000, 5);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(rig_pin(first(), "k", &call), 0);
		pins[i].read_operation_id = read_id(&call);
	}
	ck_assert_int_eq(rig_pin(second(), "k", &other), 0);
	pins[1].read_operation_id = read_id(&other); /* is not the first one's to end */
	struct pin_key pin = {.key = rig_text("nothing"), .engine = neap_rpc_view_of(first()->engine_instance, 16), .finished = finished};
	rig_ask(first(), &call, &neap_method_pin_key, &pin, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_OBJECT_NOT_FOUND);
	rig_for(10);
	ck_assert_uint_eq(rig_owner_stats().pins, 3);
	ck_assert_uint_eq(rig_stats().pins_now, 3);
	pins[0] = (struct finished_pin){.key = rig_text("k"), .read_operation_id = pins[2].read_operation_id};
	struct read_remote_data read = {.key = rig_text("k"), .inline_max = 1000, .finished = {pins, 1}};
	rig_ask(first(), &call, &neap_method_read_remote_data, &read, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), 0);
	pins[0].read_operation_id = read_id(&other);
	struct write_remote_data write = {.key = rig_text("w"), .value = rig_text("bytes"), .finished = {pins, 1}};
	rig_ask(second(), &call, &neap_method_write_remote_data, &write, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), 0);
	rig_for(10);
	ck_assert_uint_eq(rig_owner_stats().pins, 1);
	ck_assert_uint_eq(rig_stats().pins_now, 1);
}
END_TEST

/* --- REVERSE ------------------------------------------------------------------------------------------------------------------- */

START_TEST(values_go_both_ways_in_pieces)
{
	static const size_t sizes[] = {1, 64, 65536, 65537, 100003, 1u << 20};
	char key[16] = "k0";
	for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++, key[1]++) {
		uint32_t pieces = sizes[i] > 64 ? 1 + i * 12 : 1;
		rig_fill(first()->memory, sizes[i], i);
		ck_assert_int_eq(rig_write_buffers(first(), key, 0, sizes[i], pieces, &call), 0);
		ck_assert(call.reply.committed.created && call.reply.committed.size_bytes == sizes[i] && call.reply.committed.generation);
		memset(second()->memory, 0, sizes[i] + 1);
		ck_assert_int_eq(rig_read_buffers(second(), key, 0, sizes[i], 1 + pieces / 2, &other), 0);
		ck_assert(rig_filled(second()->memory, sizes[i], i) && second()->memory[sizes[i]] == 0);
		ck_assert(!other.reply.read.is_inline && other.reply.read.size_bytes == sizes[i]);
		ck_assert_uint_eq(other.reply.read.generation, call.reply.committed.generation);
	}
	ck_assert_uint_eq(rig_owner_stats().pulls, 6);
	ck_assert_uint_eq(rig_owner_stats().pushes, 6);
	ck_assert_uint_eq(rig_stats().operations_now, 0);
}
END_TEST

START_TEST(small_values_travel_inside_the_call)
{
	static unsigned char bytes[65536];
	rig_fill(bytes, sizeof bytes, 9);
	ck_assert_int_eq(rig_write_inside(first(), "one", "x", 1, &call), 0);
	ck_assert(call.reply.committed.created && call.reply.committed.size_bytes == 1);
	ck_assert_int_eq(rig_write_inside(first(), "most", bytes, sizeof bytes, &call), 0);
	ck_assert_int_eq(rig_read_inside(second(), "one", 65536, &other), 0);
	ck_assert(other.reply.read.is_inline && other.reply.read.value.length == 1 && other.value[0] == 'x');
	ck_assert_int_eq(rig_read_inside(second(), "most", 65536, &other), 0);
	ck_assert(other.reply.read.is_inline && other.reply.read.value.length == sizeof bytes && rig_filled(other.value, sizeof bytes, 9));
	ck_assert_uint_eq(other.reply.read.generation, call.reply.committed.generation);
	ck_assert_int_eq(rig_read_inside(second(), "most", 65535, &other), NEAP_STORE_BUFFER_OVERFLOW);
	ck_assert_int_eq(rig_read_inside(second(), "nothing", 65536, &other), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_uint_eq(rig_owner_stats().pulls + rig_owner_stats().pushes, 0);
	/* with both, the shorter way */
	struct rig_slices slices;
	struct read_remote_data both = {
		.key = rig_text("most"), .inline_max = 65536, .dest_buffers = rig_grant(second(), &slices, 0, sizeof bytes, 2, NEAP_MAY_WRITE)};
	rig_ask(second(), &other, &neap_method_read_remote_data, &both, 5000, NULL);
	ck_assert_int_eq(rig_status(&other), 0);
	ck_assert(other.reply.read.is_inline);
	both.inline_max = 65535;
	rig_ask(second(), &other, &neap_method_read_remote_data, &both, 5000, NULL);
	ck_assert_int_eq(rig_status(&other), 0);
	ck_assert(!other.reply.read.is_inline && rig_filled(second()->memory, sizeof bytes, 9));
}
END_TEST

/* A put on a key that has a value changes nothing, and says what is there. */
START_TEST(an_existing_value_is_told_of)
{
	uint32_t crc = neap_crc32c(0, "bytes", 5);
	struct write_remote_data request = {.key = rig_text("k"), .value = rig_text("bytes"), .has_crc = true, .crc32c = crc};
	rig_ask(first(), &call, &neap_method_write_remote_data, &request, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), 0);
	ck_assert(call.reply.committed.created && call.reply.committed.has_crc && call.reply.committed.crc32c == crc);
	rig_ask(second(), &other, &neap_method_write_remote_data, &request, 5000, NULL);
	ck_assert_int_eq(rig_status(&other), 0);
	ck_assert(!other.reply.committed.created && other.reply.committed.size_bytes == 5);
	ck_assert_uint_eq(other.reply.committed.generation, call.reply.committed.generation);
	ck_assert_int_eq(rig_write_inside(second(), "k", "longer", 6, NULL), NEAP_STORE_OBJECT_ALREADY_EXISTS); /* known to be another */
	request.value = rig_text("other");
	rig_ask(second(), &other, &neap_method_write_remote_data, &request, 5000, NULL);
	ck_assert_int_eq(rig_status(&other), NEAP_STORE_DATA_COPY_FAILED); /* not what its own crc says */
	/* by buffers */
	uint64_t generation = call.reply.committed.generation;
	ck_assert_int_eq(rig_write_buffers(second(), "k", 0, 5, 1, &other), 0);
	ck_assert(!other.reply.committed.created && other.reply.committed.generation == generation);
	ck_assert_int_eq(rig_write_buffers(second(), "k", 0, 7, 2, &other), NEAP_STORE_OBJECT_ALREADY_EXISTS);
}
END_TEST

static void verified(struct neap_owner_options *owner, struct neap_peer_service_options *service)
{
	(void)service;
	owner->verify = true;
}

START_TEST(with_sums_another_value_is_known)
{
	rig_open(verified);
	ck_assert_int_eq(rig_write_inside(first(), "k", "bytes", 5, &call), 0);
	ck_assert(call.reply.committed.has_crc && call.reply.committed.crc32c == neap_crc32c(0, "bytes", 5));
	ck_assert_int_eq(rig_write_inside(second(), "k", "bytes", 5, &other), 0);
	ck_assert(!other.reply.committed.created && other.reply.committed.has_crc);
	ck_assert_int_eq(rig_write_inside(second(), "k", "other", 5, NULL), NEAP_STORE_OBJECT_ALREADY_EXISTS);
	rig_fill(first()->memory, 1000, 1);
	ck_assert_int_eq(rig_write_buffers(first(), "pulled", 0, 1000, 3, &call), 0);
	ck_assert(call.reply.committed.has_crc && call.reply.committed.crc32c == neap_crc32c(0, first()->memory, 1000));
	ck_assert_int_eq(rig_read_buffers(second(), "pulled", 0, 1000, 3, &other), 0);
	ck_assert(other.reply.read.has_crc && other.reply.read.crc32c == call.reply.committed.crc32c);
	rig_close();
}
END_TEST

START_TEST(a_pull_of_wrong_bytes_leaves_no_key)
{
	struct rig_slices slices;
	struct write_remote_data request = {.key = rig_text("k"), .has_crc = true, .crc32c = 1};
	request.src_buffers = rig_grant(first(), &slices, 0, 1000, 1, NEAP_MAY_READ);
	rig_ask(first(), &call, &neap_method_write_remote_data, &request, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_DATA_COPY_FAILED);
	ck_assert(!rig_exists("k"));
	/* a grant that is none: the transfer fails, and leaves no key */
	slices.tokens[0].bytes[7] ^= 1;
	request.has_crc = false;
	rig_ask(first(), &call, &neap_method_write_remote_data, &request, 20000, NULL);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_TRANSFER_FAIL);
	ck_assert(!rig_exists("k"));
	rig_put(first(), "k", 1000, 1);
	struct read_remote_data read = {.key = rig_text("k"), .dest_buffers = request.src_buffers};
	rig_ask(first(), &call, &neap_method_read_remote_data, &read, 20000, NULL);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_TRANSFER_FAIL);
	ck_assert_uint_eq(rig_stats().operations_now, 0);
}
END_TEST

static int ask_slices(bool write, const char *key, struct remote_slice *slices, uint32_t count)
{
	struct write_remote_data to = {.key = rig_text(key), .src_buffers = {slices, count}};
	struct read_remote_data from = {.key = rig_text(key), .dest_buffers = {slices, count}};
	rig_ask(first(), &call, write ? &neap_method_write_remote_data : &neap_method_read_remote_data, write ? (void *)&to : (void *)&from,
	        5000, NULL);
	return rig_status(&call);
}

START_TEST(buffers_are_checked)
{
	struct rig_slices good;
	struct remote_slice bad[2];
	rig_put(second(), "k", 1000, 1);
	ck_assert_int_eq(rig_write_inside(first(), "", "x", 1, NULL), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(rig_read_inside(first(), "", 10, NULL), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(rig_read_inside(first(), "k", 0, NULL), NEAP_STORE_INVALID_PARAMS); /* nowhere to */
	for (unsigned write = 0; write < 2; write++) {
		const char *key = write ? "new" : "k";
		(void)rig_grant(first(), &good, 0, 1000, 2, write ? NEAP_MAY_READ : NEAP_MAY_WRITE);
		ck_assert_int_eq(ask_slices(write, key, NULL, 0), NEAP_STORE_INVALID_PARAMS);
		ck_assert_int_eq(ask_slices(write, "", good.slices, 2), NEAP_STORE_INVALID_PARAMS);
		for (unsigned fault = 0; fault < 8; fault++) {
			memcpy(bad, good.slices, sizeof bad);
			switch (fault) {
			case 0: bad[1].address = 0; break;
			case 1: bad[1].length = 0; break;
			case 2: bad[1].address = UINT64_MAX - 3; break;
			case 3: bad[0].length = bad[1].length = UINT64_MAX - 5; bad[0].address = bad[1].address = 1; break;
			case 4: bad[1].token.length = 31; break;
			case 5: bad[1].segment.length = 0; break;
			case 6: bad[1].segment.length--; break; /* two segments */
			default: bad[0].segment = bad[1].segment = (struct neap_rpc_view){"10.0.0.1:15100\0x", 16}; break;
			}
			ck_assert_msg(ask_slices(write, key, bad, 2) == NEAP_STORE_INVALID_PARAMS, "%s, fault %u: %d", write ? "write" : "read", fault,
			              call.outcome.status);
		}
	}
	ck_assert_int_eq(ask_slices(false, "nothing", good.slices, 2), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(ask_slices(false, "k", good.slices, 1), NEAP_STORE_INVALID_PARAMS); /* too small */
	ck_assert_int_eq(rig_read_buffers(first(), "k", 0, 1001, 1, NULL), NEAP_STORE_INVALID_PARAMS);
	ck_assert(!rig_exists("new"));
	struct write_remote_data both = {.key = rig_text("new"), .value = rig_text("x"), .src_buffers = {good.slices, 2}};
	rig_ask(first(), &call, &neap_method_write_remote_data, &both, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_INVALID_PARAMS);
	ck_assert_uint_eq(rig_owner_stats().pulls + rig_owner_stats().pushes, 0);
}
END_TEST

START_TEST(a_pull_blocks_the_key_like_a_write)
{
	struct rig_slices slices;
	struct write_remote_data request = {.key = rig_text("k")};
	request.src_buffers = rig_grant(first(), &slices, 0, MIB, 1, NEAP_MAY_READ);
	rig_ask(first(), &call, &neap_method_write_remote_data, &request, 20000, NULL);
	rig_ask(second(), &other, &neap_method_look_up, &(struct look_up){.key = rig_text("k")}, 5000, NULL);
	ck_assert_int_eq(rig_status(&other), 0);
	ck_assert(other.reply.look_up.pending && !other.reply.look_up.exists && !other.reply.look_up.same_write);
	ck_assert_int_eq(rig_pre_write(second(), "k", 10, &other), NEAP_STORE_REPLICA_IS_PROCESSING);
	ck_assert_uint_gt(other.outcome.retry_after_ms, 0);
	ck_assert_int_eq(rig_write_inside(second(), "k", "x", 1, &other), NEAP_STORE_REPLICA_IS_PROCESSING);
	ck_assert_uint_gt(other.outcome.retry_after_ms, 0);
	ck_assert_int_eq(rig_status(&call), 0);
}
END_TEST

/* --- LookUp, RemoveKey ------------------------------------------------------------------------------------------------------- */

START_TEST(a_look_up_settles_what_became_of_a_write)
{
	ck_assert_int_eq(rig_look_up(first(), "", 0, NULL), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(rig_look_up(first(), "k", 5, &other), 0);
	ck_assert(!other.reply.look_up.exists && !other.reply.look_up.pending && !other.reply.look_up.same_write);
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, &call), 0);
	ck_assert_int_eq(rig_look_up(first(), "k", write_id(&call), &other), 0);
	ck_assert(!other.reply.look_up.exists && other.reply.look_up.pending && other.reply.look_up.same_write);
	ck_assert_int_eq(rig_look_up(first(), "k", write_id(&call) + 1, &other), 0);
	ck_assert(other.reply.look_up.pending && !other.reply.look_up.same_write);
	ck_assert_int_eq(rig_commit(first(), "k", write_id(&call), 1000, NULL, NULL), 0);
	ck_assert_int_eq(rig_look_up(first(), "k", write_id(&call), &other), 0);
	ck_assert(other.reply.look_up.exists && !other.reply.look_up.pending && other.reply.look_up.same_write);
	ck_assert(other.reply.look_up.size_bytes == 1000 && other.reply.look_up.generation);
	ck_assert_int_eq(rig_look_up(first(), "k", write_id(&call) + 1, &other), 0);
	ck_assert(other.reply.look_up.exists && !other.reply.look_up.same_write);
	ck_assert_int_eq(rig_look_up(first(), "k", 0, &other), 0);
	ck_assert(other.reply.look_up.exists && !other.reply.look_up.same_write);
}
END_TEST

START_TEST(a_version_is_removed_or_whatever_there_is)
{
	ck_assert_int_eq(rig_remove(first(), "", 0), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(rig_remove(first(), "k", 0), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(rig_write_inside(first(), "k", "bytes", 5, &call), 0);
	ck_assert_int_eq(rig_remove(first(), "k", call.reply.committed.generation + 1), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert(rig_exists("k"));
	ck_assert_int_eq(rig_remove(first(), "k", call.reply.committed.generation), 0);
	ck_assert(!rig_exists("k"));
	ck_assert_int_eq(rig_pre_write(first(), "k", 10, NULL), 0);
	ck_assert_int_eq(rig_remove(first(), "k", 0), NEAP_STORE_OBJECT_NOT_FOUND); /* pending is not there yet */
}
END_TEST

/* --- keys, space, life ------------------------------------------------------------------------------------------------------- */

START_TEST(keys_are_any_bytes)
{
	static char longest[4096];
	const struct neap_rpc_view keys[] = {{" ", 1}, {"a\0b", 3}, {"a\0c", 3}, {"/../x y\n", 8}, {"\xff\xfe", 2}, {longest, sizeof longest}};
	memset(longest, 'k', sizeof longest);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < sizeof keys / sizeof keys[0]; i++) {
			struct write_remote_data write = {.key = keys[i], .value = neap_rpc_view_of(&"0123456789"[i], 1)};
			rig_ask(first(), &call, &neap_method_write_remote_data, &write, 5000, NULL);
			ck_assert_int_eq(rig_status(&call), 0);
			ck_assert(call.reply.committed.created == (round == 0));
			rig_ask(second(), &other, &neap_method_read_remote_data, &(struct read_remote_data){.key = keys[i], .inline_max = 1}, 5000, NULL);
			ck_assert_int_eq(rig_status(&other), 0);
			ck_assert_int_eq(other.value[0], '0' + (int)i);
		}
	ck_assert_uint_eq(rig_owner_stats().keys, 6);
}
END_TEST

START_TEST(memory_comes_back)
{
	for (unsigned i = 0; i < 40; i++) {
		rig_put(first(), "k", MIB, i);
		ck_assert_int_eq(rig_remove(second(), "k", 0), 0);
		ck_assert_int_eq(rig_pre_write(first(), "k", 3 * MIB / 2, &call), 0);
		ck_assert_int_eq(rig_revoke(first(), "k", write_id(&call)), 0);
	}
	rig_for(10);
	ck_assert_uint_eq(rig.tiers.tiers[0].tier.counts.handles, 0);
	ck_assert_uint_eq(rig_owner_stats().evicted, 0);
}
END_TEST

START_TEST(a_leaving_owner_takes_nothing_new)
{
	struct rig_slices slices;
	struct write_remote_data pull = {.key = rig_text("pulled")};
	rig_put(first(), "k", 1000, 1);
	ck_assert_int_eq(rig_pre_write(first(), "w", 1000, &other), 0);
	ck_assert_int_eq(rig_pin(first(), "k", &call), 0);
	uint64_t pinned = read_id(&call);
	pull.src_buffers = rig_grant(first(), &slices, 0, MIB, 1, NEAP_MAY_READ);
	rig_ask(first(), &call, &neap_method_write_remote_data, &pull, 20000, NULL);
	rig_await_operation();
	neap_peer_service_drain(rig.service);
	const int refused = NEAP_STORE_UNAVAILABLE_IN_CURRENT_STATUS;
	ck_assert_int_eq(rig_pre_write(first(), "x", 1000, NULL), refused);
	ck_assert_int_eq(rig_commit(first(), "w", write_id(&other), 1000, NULL, NULL), refused);
	ck_assert_int_eq(rig_revoke(first(), "w", write_id(&other)), refused);
	ck_assert_int_eq(rig_pin(first(), "k", NULL), refused);
	ck_assert_int_eq(rig_unpin(first(), "k", pinned), refused);
	ck_assert_int_eq(rig_write_inside(first(), "x", "x", 1, NULL), refused);
	ck_assert_int_eq(rig_read_inside(first(), "k", 1000, NULL), refused);
	ck_assert_int_eq(rig_look_up(first(), "k", 0, NULL), refused);
	ck_assert_int_eq(rig_remove(first(), "k", 0), refused);
	ck_assert_int_eq(rig_pre_write(first(), "", 0, NULL), refused); /* before anything else */
	ck_assert_uint_eq(rig_stats().refused_draining, 10);
	ck_assert_int_eq(rig_status(&call), 0); /* what was under way went on */
	ck_assert(rig_exists("pulled"));
}
END_TEST

START_TEST(calls_are_counted)
{
	struct neap_peer_service_stats stats;
	rig_put(first(), "k", 1000, 1);
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, NULL), NEAP_STORE_OBJECT_ALREADY_EXISTS);
	(void)rig_read_inside(first(), "k", 1000, NULL);
	(void)rig_read_inside(first(), "nothing", 1000, NULL);
	(void)rig_read_inside(first(), "k", 10, NULL);
	(void)rig_look_up(first(), "nothing", 0, NULL);
	(void)rig_look_up(first(), "k", 0, NULL);
	ck_assert_int_eq(rig_write_buffers(first(), "large", 0, MIB, 1, NULL), 0);
	stats = rig_stats();
	const struct neap_peer_method_stats *pre_write = &stats.methods[0], *read = &stats.methods[6], *look_up = &stats.methods[7];
	ck_assert_str_eq(pre_write->name, "PreWrite");
	ck_assert(pre_write->requests == 2 && pre_write->failures == 1 && pre_write->success.count == 1 && pre_write->failure.count == 1);
	ck_assert_str_eq(read->name, "ReadRemoteData");
	ck_assert(read->requests == 3 && read->hits == 1 && read->misses == 1 && read->failures == 1 && read->success.count == 2);
	ck_assert(look_up->requests == 2 && look_up->hits == 1 && look_up->misses == 1 && look_up->failures == 0);
	ck_assert_uint_eq(read->success.buckets[0], 2); /* at once */
	const struct neap_latency *pulled = &stats.methods[5].success;
	ck_assert(pulled->count == 1 && pulled->sum_us > 0 && pulled->buckets[0] == 0); /* several turns of the network */
	uint64_t in_buckets = 0;
	for (uint32_t i = 0; i < NEAP_LATENCY_BUCKETS; i++)
		in_buckets += pulled->buckets[i];
	ck_assert_uint_eq(in_buckets, 1);
}
END_TEST

static void add_suite(Suite *suite, const char *name, const TTest *const *tests, size_t count)
{
	TCase *cases = tcase_create(name);
	tcase_add_checked_fixture(cases, setup, rig_close);
	tcase_set_timeout(cases, 60);
	for (size_t i = 0; i < count; i++)
		tcase_add_test(cases, tests[i]);
	suite_add_tcase(suite, cases);
}

int main(void)
{
	const TTest *const writes[] = {
		a_value_is_written_under_a_grant_and_committed, a_pre_write_rejects_another, of_two_at_once_one_wins, a_key_is_written_once,
		a_repeated_commit_is_a_commit, commits_are_checked_in_order, wrong_bytes_are_not_committed, revokes_are_checked_in_order,
		a_late_commit_is_told_so_and_the_key_is_free, pre_writes_are_checked,
	};
	const TTest *const reads[] = {a_pinned_value_is_read_under_a_grant, each_reader_has_a_pin_of_its_own, pins_are_checked_in_order,
	                              an_expired_pin_is_told_so, a_pin_keeps_the_version_that_it_is_of, finished_pins_ride_on_requests};
	const TTest *const reverse[] = {values_go_both_ways_in_pieces, small_values_travel_inside_the_call, an_existing_value_is_told_of,
	                                a_pull_of_wrong_bytes_leaves_no_key, buffers_are_checked, a_pull_blocks_the_key_like_a_write};
	const TTest *const values[] = {a_look_up_settles_what_became_of_a_write, a_version_is_removed_or_whatever_there_is, keys_are_any_bytes,
	                               memory_comes_back, a_leaving_owner_takes_nothing_new, calls_are_counted};
	Suite *suite = suite_create("peer service");
	add_suite(suite, "forward writes", writes, sizeof writes / sizeof writes[0]);
	add_suite(suite, "forward reads", reads, sizeof reads / sizeof reads[0]);
	add_suite(suite, "reverse", reverse, sizeof reverse / sizeof reverse[0]);
	add_suite(suite, "values", values, sizeof values / sizeof values[0]);
	TCase *others = tcase_create("other owners");
	tcase_add_test(others, with_sums_another_value_is_known);
	suite_add_tcase(suite, others);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
