/* An owner with a disk below its memory: what goes down, what comes up, who waits, and what is left when either fails. The disk is not
 * there, so that every order of things can be had; the peers, their calls and their transfers are the library's own. */
#include "store/owner/lower.h"
#include "store/owner/tier_move_fsm.h"
#include "tests/unit/fake_disk.h"
#include "tests/unit/peer_rig.h"
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS 1000u
#define KIB UINT64_C(1024)
#define BIG (256 * KIB)

static struct fake_disk disk;
static struct neap_owner_lower lower;
/* What a directory would know: routes of each key, by tier. */
static uint8_t routes[KEYS];
static uint32_t vanished, told;

static uint32_t number_of(const struct neap_owner_value *value)
{
	char text[16] = "";
	ck_assert_uint_lt(value->key.length, sizeof text);
	memcpy(text, value->key.bytes, value->key.length);
	return (uint32_t)atoi(text + 1);
}

static void on_published(void *user, const struct neap_owner_value *value)
{
	uint8_t *of = &routes[number_of(value)], bit = (uint8_t)(1u << value->tier);
	(void)user;
	ck_assert_msg(!(*of & bit), "published twice in one tier");
	*of |= bit;
	told++;
}

static void on_withdrawn(void *user, const struct neap_owner_value *value)
{
	uint8_t *of = &routes[number_of(value)], bit = (uint8_t)(1u << value->tier);
	(void)user;
	ck_assert_msg(*of & bit, "withdrawn where it was not");
	*of = (uint8_t)(*of & ~bit);
	vanished += *of == 0;
	told++;
}

static void begun(struct neap_reactor *reactor)
{
	fake_disk_begin(&disk, reactor, rig_below.capacity);
}

static void change(struct neap_owner_options *owner, struct neap_peer_service_options *service)
{
	(void)service;
	owner->published = on_published;
	owner->withdrawn = on_withdrawn;
	owner->lower = &lower;
	owner->segments_max = 16;
}

static void open_with(uint64_t capacity)
{
	memset(routes, 0, sizeof routes);
	vanished = told = 0;
	rig_below = (struct rig_below){.ops = &fake_disk_ops, .backend = &disk, .capacity = capacity, .begun = begun};
	rig_open(change);
}

static void setup(void)
{
	lower = (struct neap_owner_lower){.tier = 1, .largest = 4 * MIB, .moves_max = 32, .down_max = 4, .pause_ns = 50 * MS,
	                                  .bring_ns = 500 * MS, .sketch_keys = 1024, .rules = {15, 15, 0.5}};
	open_with(64 * MIB);
}

static void teardown(void)
{
	fake_disk_let_go(&disk);
	rig_close();
	fake_disk_end(&disk);
	for (uint32_t i = 0; i < KEYS; i++)
		ck_assert_uint_eq(routes[i], 0);
}

/* --- values ---------------------------------------------------------------------------------------------------------------------- */

static struct neap_key key_of(uint32_t number)
{
	static char text[8][16];
	static uint32_t next;
	char *at = text[next++ % 8];
	snprintf(at, sizeof text[0], "k%u", number);
	return (struct neap_key){at, (uint32_t)strlen(at)};
}

static const char *name_of(uint32_t number)
{
	return key_of(number).bytes;
}

static int try_put(uint32_t number, uint64_t size, bool has_crc)
{
	unsigned char *bytes = malloc(size);
	uint64_t generation, retry_after_ns;
	rig_fill(bytes, size, number);
	struct neap_copy copy = {.key = key_of(number), .bytes = bytes, .size = size, .tier = NEAP_TIER_ANY, .has_crc = has_crc,
	                         .crc = has_crc ? neap_crc32c(0, bytes, size) : 0};
	int error = neap_owner_put_copy(rig.owner, &copy, &generation, &retry_after_ns);
	free(bytes);
	return error;
}

static void put(uint32_t number, uint64_t size)
{
	ck_assert_int_eq(try_put(number, size, number % 2), 0);
}

static struct neap_key_facts facts(uint32_t number)
{
	struct neap_key_facts facts;
	struct neap_key key = key_of(number);
	neap_owner_look_up(rig.owner, &key, &facts);
	return facts;
}

static struct neap_owner_stats stats(void)
{
	rig_holds();
	return rig_owner_stats();
}

static bool is_quiet(void *user)
{
	(void)user;
	return neap_lower_moves(rig.owner) == 0;
}

static void quiet(void)
{
	ck_assert(sim_run_until(rig.sim, is_quiet, NULL, 5000 * MS));
	rig_for(1);
	rig_holds();
}

/* More than the memory takes, each with time to go down. */
static void fill(uint32_t from, uint32_t count, uint64_t size)
{
	for (uint32_t i = from; i < from + count; i++) {
		put(i, size);
		quiet();
	}
}

static int remove_value(uint32_t number)
{
	struct neap_key key = key_of(number);
	return neap_owner_remove(rig.owner, &key);
}

/* The first of `count` values that is not in memory. */
static uint32_t cold_one(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (facts(i).exists && !facts(i).in_memory)
			return i;
	ck_abort_msg("all are in memory");
	return 0;
}

static struct neap_tier_move *a_move(void)
{
	uint32_t index = 0;
	return neap_pool_next(&rig.owner->lower->moves, &index);
}

static bool is_in(void *state)
{
	const struct neap_tier_move *move = a_move();
	return move && move->machine.state == *(uint8_t *)state;
}

static void until(uint8_t state)
{
	ck_assert(sim_run_until(rig.sim, is_in, &state, 1000 * MS));
}

/* All that waits for a value in this process. */
struct waiter {
	struct neap_bring bring; /* first */
	uint32_t times;
	int error;
	uint64_t size;
	bool right;
	struct neap_handle *keep; /* held on */
	bool keeps;
};

static void brought(struct neap_bring *bring, int error, const struct neap_value *value)
{
	struct waiter *waiter = (struct waiter *)(void *)bring;
	waiter->times++;
	waiter->error = error;
	if (error)
		return;
	waiter->size = value->size;
	ck_assert_ptr_nonnull(value->address);
	if (waiter->keeps)
		waiter->keep = neap_handle_hold(value->handle);
}

static int bring(struct waiter *waiter, uint32_t number)
{
	struct neap_key key = key_of(number);
	*waiter = (struct waiter){.bring = {.brought = brought}, .keeps = waiter->keeps};
	return neap_owner_bring(rig.owner, &key, &waiter->bring);
}

/* --- down ------------------------------------------------------------------------------------------------------------------------ */

START_TEST(what_is_above_the_mark_has_a_copy)
{
	fill(0, 20, BIG); /* 5 of 8 MiB */
	ck_assert_uint_eq(stats().offloaded, 0);
	fill(20, 4, BIG); /* 6 */
	struct neap_owner_stats now = stats();
	ck_assert_uint_gt(now.copies, 0);
	ck_assert_uint_eq(now.copies, now.offloaded);
	ck_assert_uint_eq(now.evicted + now.fell_back, 0);
	ck_assert(facts(0).in_memory); /* it is what has the copy */
	ck_assert_uint_eq(now.copied_bytes, now.copies * BIG);
	ck_assert_int_eq(remove_value(0), 0); /* with its copy */
	ck_assert_uint_eq(stats().copies, now.copies - 1);
}
END_TEST

START_TEST(more_than_memory_is_all_there)
{
	fill(0, 100, BIG); /* 25 MiB in 8 */
	struct neap_owner_stats now = stats();
	ck_assert_uint_eq(now.evicted, 0);
	ck_assert_uint_gt(now.fell_back, 60);
	ck_assert_uint_eq(now.keys, 100);
	ck_assert_uint_eq(vanished, 0);
	for (uint32_t i = 0; i < 100; i++)
		ck_assert_uint_eq(routes[i], facts(i).in_memory ? 1 : 2);
	struct rig_call call;
	for (uint32_t i = 0; i < 100; i++) {
		uint64_t generation = facts(i).generation;
		struct rig_peer *peer = &rig.peers[i % 2];
		memset(peer->memory, 0, BIG);
		if (i % 3) { /* the owner brings it */
			ck_assert_int_eq(rig_read_buffers(peer, name_of(i), 0, BIG, 3, &call), 0);
			ck_assert_uint_eq(call.reply.read.generation, generation);
		} else { /* the peer fetches it */
			ck_assert_int_eq(rig_pin(peer, name_of(i), &call), 0);
			ck_assert_uint_eq(call.reply.pin_key.generation, generation);
			ck_assert_uint_eq(rig_transfer(peer, NEAP_READ, &call, peer->memory, BIG), NEAP_COMPLETED);
			ck_assert_int_eq(rig_unpin(peer, name_of(i), call.reply.pin_key.read_operation_id), 0);
		}
		ck_assert(rig_filled(peer->memory, BIG, i));
		rig_holds();
	}
	ck_assert_uint_gt(stats().served_once, 60);
	ck_assert_uint_eq(stats().evicted, 0);
}
END_TEST

START_TEST(small_values_travel_inside_the_call)
{
	fill(0, 300, 50000); /* 14 MiB */
	struct rig_call call;
	for (uint32_t i = 0; i < 300; i += 7) {
		ck_assert_int_eq(rig_read_inside(&rig.peers[0], name_of(i), 65536, &call), 0);
		ck_assert(rig_filled(call.value, 50000, i));
	}
	ck_assert_uint_gt(stats().served_once, 0);
	ck_assert_int_eq(rig_read_inside(&rig.peers[0], name_of(cold_one(300)), 100, &call), NEAP_STORE_BUFFER_OVERFLOW);
}
END_TEST

START_TEST(an_allocation_does_not_wait_for_the_disk)
{
	disk.held = true;
	for (uint32_t i = 0; i < 64; i++) /* twice the memory */
		put(i, BIG);
	struct neap_owner_stats now = stats();
	ck_assert_uint_gt(now.evicted_uncopied, 0);
	ck_assert_uint_eq(now.evicted, now.evicted_uncopied);
	ck_assert_uint_eq(vanished, now.evicted);
	rig_for(5);
	ck_assert_uint_eq(stats().going_down, 4); /* down_max */
	ck_assert_uint_eq(disk.busy, 4);
	fake_disk_let_go(&disk);
	quiet();
	put(64, BIG);
	ck_assert_uint_eq(stats().evicted, now.evicted); /* one with a copy has made room */
	ck_assert_uint_gt(stats().fell_back, 0);
}
END_TEST

START_TEST(what_is_asked_for_often_gets_a_copy)
{
	struct neap_value value;
	struct neap_key key = key_of(1);
	rig.owner->lower->options.rules.offload_freq = 2;
	put(1, BIG);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_uint_eq(disk.writes, i == 3);
		ck_assert_int_eq(neap_owner_hold(rig.owner, &key, &value), 0);
		neap_handle_drop(value.handle);
		quiet();
	}
	ck_assert_uint_eq(stats().copies, 1);
	ck_assert_uint_eq(told, 1); /* nobody has to know */
}
END_TEST

START_TEST(a_value_that_is_too_large_is_dropped)
{
	rig.owner->lower->options.largest = BIG - 1;
	fill(0, 40, BIG);
	struct neap_owner_stats now = stats();
	ck_assert_uint_eq(disk.writes, 0);
	ck_assert_uint_gt(now.too_large, 0);
	ck_assert_uint_eq(now.too_large, now.evicted);
	ck_assert_uint_eq(vanished, now.evicted);
}
END_TEST

START_TEST(a_full_disk_forgets_its_oldest)
{
	teardown();
	open_with(4 * MIB);
	fill(0, 100, BIG);
	struct neap_owner_stats now = stats();
	ck_assert_uint_gt(now.evicted, 0);
	ck_assert_uint_eq(now.evicted_uncopied, 0);
	ck_assert_uint_eq(now.keys + now.evicted, 100);
	ck_assert_uint_eq(vanished, now.evicted);
	ck_assert(!facts(0).exists);
	/* what is read often and stays in memory loses its copy before others their only one, or not: nothing is lost with it */
	rig.owner->lower->options.rules = (struct neap_move_rules){0, 15, 0.5};
	struct neap_value value;
	for (uint32_t i = 90; i < 100; i++) {
		struct neap_key key = key_of(i);
		if (!facts(i).in_memory)
			continue;
		ck_assert_int_eq(neap_owner_hold(rig.owner, &key, &value), 0);
		neap_handle_drop(value.handle);
		quiet();
	}
	fill(100, 60, BIG);
	ck_assert_uint_eq(stats().keys + stats().evicted, 160);
}
END_TEST

START_TEST(a_copy_can_be_dropped_alone)
{
	struct neap_value value;
	struct neap_key key = key_of(1);
	teardown();
	open_with(MIB);
	rig.owner->lower->options.rules.offload_freq = 0;
	put(1, BIG);
	ck_assert_int_eq(neap_owner_hold(rig.owner, &key, &value), 0);
	quiet();
	ck_assert_uint_eq(stats().copies, 1);
	for (uint32_t i = 2; i < 12; i++) {
		struct neap_value other;
		struct neap_key next = key_of(i);
		put(i, BIG);
		ck_assert_int_eq(neap_owner_hold(rig.owner, &next, &other), 0);
		neap_handle_drop(other.handle);
		quiet();
	}
	ck_assert_uint_gt(stats().copies_dropped, 0);
	ck_assert_uint_eq(stats().evicted, 0);
	ck_assert_uint_eq(vanished, 0);
	neap_handle_drop(value.handle);
}
END_TEST

/* Copies that push one another out would be written again and again. */
START_TEST(a_small_disk_comes_to_rest)
{
	teardown();
	open_with(MIB);
	fill(0, 31, BIG);
	uint32_t writes = disk.writes;
	rig_for(5000);
	ck_assert_uint_le(disk.writes, writes + 2);
	ck_assert_uint_le(stats().copied_bytes, MIB / 2 + BIG);
	fill(31, 60, BIG);
	writes = disk.writes;
	ck_assert_uint_le(writes, 150);
	rig_for(5000);
	ck_assert_uint_le(disk.writes, writes + 2);
}
END_TEST

START_TEST(no_space_at_all)
{
	disk.full = true;
	fill(0, 40, BIG);
	ck_assert_uint_gt(stats().disk_full, 0);
	ck_assert_uint_eq(disk.writes, 0);
	ck_assert_uint_eq(stats().evicted, stats().evicted_uncopied);
	disk.full = false;
	rig_for(1200); /* the pause, and the next look around */
	ck_assert_uint_gt(stats().offloaded, 0);
}
END_TEST

/* --- up -------------------------------------------------------------------------------------------------------------------------- */

START_TEST(what_is_asked_for_often_stays_in_memory)
{
	fill(0, 60, BIG);
	uint32_t cold = cold_one(60);
	uint64_t generation = facts(cold).generation;
	struct waiter waiter = {0};
	rig.owner->lower->options.rules = (struct neap_move_rules){15, 2, 1.0};
	for (unsigned i = 0; i < 3; i++) {
		ck_assert(!facts(cold).in_memory);
		ck_assert_int_eq(bring(&waiter, cold), 0);
		quiet();
		ck_assert_uint_eq(waiter.times, 1);
		ck_assert_int_eq(waiter.error, 0);
	}
	ck_assert(facts(cold).in_memory);
	ck_assert_uint_eq(facts(cold).generation, generation);
	ck_assert_uint_eq(routes[cold], 1);
	ck_assert_uint_eq(stats().onboarded, 1);
	ck_assert_uint_eq(stats().served_once, 2);
	ck_assert_int_eq(bring(&waiter, cold), NEAP_STORE_UNAVAILABLE_IN_CURRENT_MODE); /* it is up */
	ck_assert_uint_eq(vanished, 0);
}
END_TEST

START_TEST(all_wait_for_one_read)
{
	static struct rig_call calls[3];
	fill(0, 60, 60 * KIB);
	fill(60, 60, BIG);
	uint32_t cold = cold_one(60);
	uint64_t before = disk.reads;
	struct neap_rpc_view engine[2] = {{(const char *)rig.peers[0].engine_instance, 16}, {(const char *)rig.peers[1].engine_instance, 16}};
	disk.held = true;
	struct waiter waiters[3] = {{.keeps = true}, {.keeps = false}, {.keeps = false}};
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(bring(&waiters[i], cold), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct pin_key request = {.key = rig_text(name_of(cold)), .engine = engine[i]};
		rig_ask(&rig.peers[i], &calls[i], &neap_method_pin_key, &request, 1000, NULL);
	}
	struct read_remote_data read = {.key = rig_text(name_of(cold)), .inline_max = 65536};
	rig_ask(&rig.peers[0], &calls[2], &neap_method_read_remote_data, &read, 1000, NULL);
	rig_for(20);
	ck_assert_uint_eq(rig_stats().operations_now, 3);
	ck_assert_uint_eq(disk.reads, before + 1);
	neap_owner_bring_forget(&waiters[2].bring);
	fake_disk_let_go(&disk);
	for (unsigned i = 0; i < 3; i++) {
		rig_await(&calls[i]);
		ck_assert_int_eq(rig_status(&calls[i]), 0);
	}
	ck_assert_uint_eq(disk.reads, before + 1);
	ck_assert(rig_filled(calls[2].value, 60 * KIB, cold));
	ck_assert_uint_eq(waiters[0].times + waiters[1].times + waiters[2].times, 2);
	ck_assert_uint_eq(stats().pins, 2);
	/* Pinned and held is the memory that was read for them, though the index has it no more. */
	ck_assert(!facts(cold).in_memory);
	ck_assert(rig_filled(neap_handle_address(waiters[0].keep), 60 * KIB, cold));
	neap_handle_drop(waiters[0].keep);
	for (unsigned i = 0; i < 2; i++) {
		struct rig_peer *peer = &rig.peers[i];
		ck_assert_uint_eq(rig_transfer(peer, NEAP_READ, &calls[i], peer->memory, 60 * KIB), NEAP_COMPLETED);
		ck_assert(rig_filled(peer->memory, 60 * KIB, cold));
		ck_assert_int_eq(rig_unpin(peer, name_of(cold), calls[i].reply.pin_key.read_operation_id), 0);
	}
	neap_owner_bring_forget(&waiters[2].bring); /* again */
}
END_TEST

START_TEST(nobody_waits_for_ever)
{
	struct rig_call call;
	struct waiter waiter = {0};
	fill(0, 60, BIG);
	uint32_t cold = cold_one(60);
	disk.held = true;
	ck_assert_int_eq(bring(&waiter, cold), 0);
	ck_assert_int_eq(rig_pin(&rig.peers[0], name_of(cold), &call), NEAP_STORE_UNAVAILABLE_IN_CURRENT_MODE);
	ck_assert_uint_gt(call.outcome.retry_after_ms, 0);
	ck_assert_int_eq(rig_read_buffers(&rig.peers[0], name_of(cold), 0, BIG, 1, &call), NEAP_STORE_UNAVAILABLE_IN_CURRENT_MODE);
	ck_assert_int_eq(waiter.error, NEAP_STORE_UNAVAILABLE_IN_CURRENT_MODE);
	ck_assert_uint_eq(stats().brings_late, 3);
	fake_disk_let_go(&disk);
	quiet();
	ck_assert_int_eq(rig_pin(&rig.peers[0], name_of(cold), &call), 0); /* nothing is lost */
}
END_TEST

START_TEST(pins_that_came_meanwhile_count)
{
	struct rig_call call;
	struct rig_peer *peer = &rig.peers[0];
	fill(0, 60, BIG);
	uint32_t cold = cold_one(60);
	rig_channel_close(peer);
	rig_channel_open(peer);
	rig_for(20);
	disk.held = true;
	struct pin_key request = {.key = rig_text(name_of(cold)), .engine = {(const char *)peer->engine_instance, 16}};
	rig_ask(peer, &call, &neap_method_pin_key, &request, 1000, NULL);
	rig_await_operation();
	rig_cut(peer); /* nobody is left to hold it */
	fake_disk_let_go(&disk);
	quiet();
	ck_assert_uint_eq(stats().pins, 0);
	rig_for(1000);
}
END_TEST

START_TEST(too_many_moves)
{
	struct waiter waiters[33];
	fill(0, 90, BIG);
	disk.held = true;
	uint32_t begun_now = 0, refused = 0;
	memset(waiters, 0, sizeof waiters);
	for (uint32_t i = 0; i < 90 && begun_now < 33; i++) {
		if (!facts(i).exists || facts(i).in_memory)
			continue;
		int error = bring(&waiters[begun_now], i);
		ck_assert(error == 0 || error == NEAP_STORE_NO_AVAILABLE_HANDLE);
		refused += error != 0;
		begun_now += error == 0;
	}
	ck_assert_uint_gt(refused, 0);
	ck_assert_uint_le(begun_now, 32);
	fake_disk_let_go(&disk);
	quiet();
	for (uint32_t i = 0; i < begun_now; i++)
		ck_assert_int_eq(waiters[i].error, 0);
	ck_assert_uint_eq(stats().evicted, stats().evicted_uncopied);
}
END_TEST

START_TEST(a_disk_that_takes_no_more)
{
	struct waiter waiter = {0};
	struct rig_call call;
	fill(0, 60, BIG);
	uint32_t cold = cold_one(60);
	disk.refuses = true;
	ck_assert_int_eq(bring(&waiter, cold), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_int_eq(rig_pin(&rig.peers[0], name_of(cold), &call), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_int_eq(rig_read_buffers(&rig.peers[0], name_of(cold), 0, BIG, 1, &call), NEAP_STORE_NO_AVAILABLE_HANDLE);
	uint32_t writes = disk.writes;
	for (uint32_t i = 60; i < 80; i++)
		put(i, BIG);
	rig_for(1200);
	ck_assert_uint_eq(disk.writes, writes);
	disk.refuses = false;
	rig_for(1200);
	ck_assert_uint_gt(disk.writes, writes);
	ck_assert_int_eq(bring(&waiter, cold), 0);
	quiet();
}
END_TEST

START_TEST(no_way_up)
{
	struct waiter waiter = {0};
	struct neap_key none = key_of(7), empty = {"", 0};
	ck_assert_int_eq(bring(&waiter, 7), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(neap_owner_bring(rig.owner, &empty, &waiter.bring), NEAP_STORE_INVALID_PARAMS);
	put(7, BIG);
	ck_assert_int_eq(neap_owner_bring(rig.owner, &none, &waiter.bring), NEAP_STORE_UNAVAILABLE_IN_CURRENT_MODE);
	fill(8, 60, BIG);
	/* all memory is held: there is no room for a read */
	struct neap_handle *held[64];
	uint32_t count = 0;
	while (neap_tiers_allocate_memory(&rig.tiers, BIG, 1, &held[count]) == 0)
		ck_assert_uint_lt(++count, 64);
	ck_assert_int_eq(bring(&waiter, cold_one(68)), NEAP_STORE_NO_AVAILABLE_HANDLE);
	while (count > 0)
		neap_handle_drop(held[--count]);
}
END_TEST

/* --- errors ---------------------------------------------------------------------------------------------------------------------- */

START_TEST(a_failed_write_loses_nothing)
{
	disk.write_errno = ENOSPC;
	fill(0, 24, BIG);
	ck_assert_uint_gt(stats().disk_writes_failed, 0);
	ck_assert_uint_eq(stats().copies, 0);
	ck_assert_uint_eq(stats().keys, 24);
	uint64_t failed = stats().disk_writes_failed;
	rig_for(20);
	ck_assert_uint_eq(stats().disk_writes_failed, failed); /* not at once again */
	disk.write_errno = 0;
	rig_for(1200);
	ck_assert_uint_gt(stats().copies, 0);
	ck_assert_uint_eq(vanished, 0);
}
END_TEST

START_TEST(a_failed_read_is_the_end_of_the_value)
{
	struct rig_call call;
	fill(0, 60, BIG);
	uint32_t first = cold_one(60);
	disk.read_errno = EIO;
	ck_assert_int_eq(rig_read_buffers(&rig.peers[0], name_of(first), 0, BIG, 1, &call), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert(!facts(first).exists);
	ck_assert_uint_eq(routes[first], 0);
	uint32_t second = cold_one(60);
	ck_assert_int_eq(rig_pin(&rig.peers[0], name_of(second), &call), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_uint_eq(stats().disk_reads_failed, 2);
	ck_assert_uint_eq(stats().keys, 58);
	put(first, BIG); /* it can be put again */
}
END_TEST

START_TEST(what_is_read_is_what_was_written)
{
	struct rig_call call;
	fill(0, 60, 50000);
	fill(60, 60, BIG);
	uint32_t cold = cold_one(60);
	cold += cold % 2 == 0; /* one with a sum */
	ck_assert(facts(cold).has_crc && !facts(cold).in_memory);
	disk.forgets = true;
	ck_assert_int_eq(rig_read_inside(&rig.peers[0], name_of(cold), 65536, &call), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_uint_eq(stats().wrong_copies, 1);
	ck_assert(!facts(cold).exists);
	disk.forgets = false;
}
END_TEST

/* --- removal and the end ---------------------------------------------------------------------------------------------------------- */

START_TEST(removed_on_its_way_down)
{
	disk.held = true;
	for (uint32_t i = 0; i < 24; i++)
		put(i, BIG);
	until(tier_move_WRITING);
	struct neap_key key = neap_key_entry_key(a_move()->entry);
	uint64_t used = rig.tiers.tiers[0].tier.counts.rounded_bytes;
	ck_assert_int_eq(neap_owner_remove(rig.owner, &key), 0);
	until(tier_move_LEAVING);
	ck_assert_uint_eq(rig.tiers.tiers[0].tier.counts.rounded_bytes, used); /* the disk still reads it */
	for (uint32_t i = 0; i < 24; i++)
		(void)remove_value(i);
	rig_for(1);
	fake_disk_let_go(&disk);
	quiet();
	ck_assert_uint_eq(rig.tiers.tiers[0].tier.counts.handles + rig.tiers.tiers[1].tier.counts.handles, 0);
	ck_assert_uint_eq(stats().offloaded, 0);
}
END_TEST

START_TEST(removed_on_its_way_down_and_the_write_fails)
{
	disk.held = true;
	for (uint32_t i = 0; i < 24; i++)
		put(i, BIG);
	until(tier_move_WRITING);
	for (uint32_t i = 0; i < 24; i++)
		(void)remove_value(i);
	until(tier_move_LEAVING);
	disk.write_errno = EIO;
	fake_disk_let_go(&disk);
	quiet();
	ck_assert_uint_eq(rig.tiers.tiers[1].tier.counts.handles, 0);
}
END_TEST

START_TEST(removed_on_its_way_up)
{
	static struct rig_call call;
	struct waiter waiter = {0};
	fill(0, 60, BIG);
	uint32_t cold = cold_one(60);
	disk.held = true;
	ck_assert_int_eq(bring(&waiter, cold), 0);
	struct pin_key request = {.key = rig_text(name_of(cold)), .engine = {(const char *)rig.peers[0].engine_instance, 16}};
	rig_ask(&rig.peers[0], &call, &neap_method_pin_key, &request, 1000, NULL);
	rig_await_operation();
	ck_assert_int_eq(remove_value(cold), 0);
	ck_assert_uint_eq(waiter.times, 0); /* from a turn */
	rig_await(&call);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_int_eq(waiter.error, NEAP_STORE_OBJECT_NOT_FOUND);
	put(cold, BIG); /* another one, while the disk still reads */
	fake_disk_let_go(&disk);
	quiet();
	ck_assert(facts(cold).in_memory);
}
END_TEST

START_TEST(removed_while_it_is_summed)
{
	struct waiter waiter = {0};
	ck_assert_int_eq(try_put(0, 4 * MIB, true), 0);
	fill(1, 20, BIG);
	ck_assert(!facts(0).in_memory);
	ck_assert_int_eq(bring(&waiter, 0), 0);
	until(tier_move_CHECKING);
	ck_assert_int_eq(remove_value(0), 0);
	quiet();
	ck_assert_uint_eq(waiter.times, 1);
	ck_assert_int_eq(waiter.error, NEAP_STORE_OBJECT_NOT_FOUND);
}
END_TEST

START_TEST(the_owner_closes_under_way)
{
	static struct waiter waiter;
	fill(0, 60, BIG);
	disk.delay_ns = 50 * MS;
	memset(&waiter, 0, sizeof waiter);
	ck_assert_int_eq(bring(&waiter, cold_one(60)), 0);
	for (uint32_t i = 60; i < 64; i++)
		put(i, BIG);
	rig_for(1);
	ck_assert_uint_gt(stats().going_down + stats().going_up, 1);
	/* the rest is the teardown's */
}
END_TEST

START_TEST(a_close_tells_those_who_wait)
{
	static struct waiter waiter;
	bool closed = false;
	fill(0, 60, BIG);
	disk.held = true;
	memset(&waiter, 0, sizeof waiter);
	ck_assert_int_eq(bring(&waiter, cold_one(60)), 0);
	neap_owner_close(rig.owner, rig_set, &closed);
	rig_for(100);
	ck_assert_uint_eq(waiter.times, 1);
	ck_assert_int_eq(waiter.error, NEAP_STORE_SHUTTING_DOWN);
	ck_assert(!closed); /* the disk is not done */
	ck_assert_int_eq(bring(&waiter, 1), NEAP_STORE_SHUTTING_DOWN);
	fake_disk_let_go(&disk);
	ck_assert(rig_until_set(&closed, 1000));
}
END_TEST

START_TEST(each_allocation_may_fail)
{
	struct neap_tiers tiers;
	struct neap_tiers_options options = {.handles_max = 64};
	struct neap_tier_settings settings = {.kind = NEAP_TIER_STORAGE};
	struct neap_owner *other;
	uint32_t index;
	ck_assert_int_eq(neap_tiers_create(&tiers, rig.node->reactor, &options), 0);
	ck_assert_int_eq(neap_tiers_add(&tiers, &settings, &fake_disk_ops, &disk, 64 * MIB, &index), 0);
	struct neap_owner_lower below = lower;
	struct neap_owner_options owner = {.shards = 4, .keys_max = 64, .writes_max = 8, .pins_max = 8, .moves_max = 8, .segments_max = 4,
	                                   .lower = &below};
	below.tier = 3;
	ck_assert_int_eq(neap_owner_create(&other, rig.engine, &tiers, &owner), NEAP_EINVAL);
	below.tier = 0;
	int error = NEAP_ENOMEM;
	unsigned failed = 0;
	for (; error && failed < 100; failed++) {
		rig.node->fail_allocation_at = rig.node->allocations + failed;
		error = neap_owner_create(&other, rig.engine, &tiers, &owner);
		rig.node->fail_allocation_at = UINT64_MAX;
		ck_assert(error == 0 || error == NEAP_ENOMEM);
	}
	ck_assert_uint_gt(failed, 8);
	ck_assert_int_eq(error, 0);
	neap_owner_destroy(other);
	ck_assert_int_eq(neap_tiers_destroy(&tiers), 0);
}
END_TEST

/* Whatever comes in whatever order: what holds holds, and what is read is right. */
START_TEST(anything)
{
	static struct rig_call call;
	srand(4711 + (unsigned)_i);
	teardown();
	lower.rules = (struct neap_move_rules){3, 1, 0.9};
	open_with(12 * MIB);
	for (unsigned step = 0; step < 1500; step++) {
		uint32_t number = (uint32_t)rand() % 120;
		uint64_t size = facts(number).size;
		struct rig_peer *peer = &rig.peers[rand() % 2];
		switch (rand() % 9) {
		case 0: (void)remove_value(number); break;
		case 1: rig_for(1); break;
		case 2: disk.write_errno = rand() % 4 ? 0 : EIO; break;
		case 3: disk.read_errno = rand() % 8 ? 0 : EIO; break;
		case 4: disk.delay_ns = (uint64_t)(rand() % 3) * MS; break;
		case 5:
			if (facts(number).exists && rig_read_buffers(peer, name_of(number), 0, size, 2, &call) == 0)
				ck_assert(rig_filled(peer->memory, size, number));
			break;
		case 6:
			if (rig_pin(peer, name_of(number), &call) == 0) {
				ck_assert_uint_eq(rig_transfer(peer, NEAP_READ, &call, peer->memory, size), NEAP_COMPLETED);
				ck_assert(rig_filled(peer->memory, size, number));
				ck_assert_int_eq(rig_unpin(peer, name_of(number), call.reply.pin_key.read_operation_id), 0);
			}
			break;
		default: {
			int error = try_put(number, 1 + (uint64_t)rand() % (400 * KIB), rand() % 2);
			ck_assert(error == 0 || error == NEAP_STORE_OBJECT_ALREADY_EXISTS || error == NEAP_STORE_NO_AVAILABLE_HANDLE);
		}
		}
		rig_holds();
	}
	quiet();
	for (uint32_t i = 0; i < 120; i++)
		ck_assert_uint_eq(routes[i], !facts(i).exists ? 0 : facts(i).in_memory ? 1 : 2);
	ck_assert_uint_gt(stats().offloaded, 0);
	ck_assert_uint_gt(stats().fell_back + stats().copies, 0);
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *const *tests, size_t count, void (*end)(void))
{
	TCase *tcase = tcase_create(name);
	tcase_add_checked_fixture(tcase, setup, end);
	tcase_set_timeout(tcase, 120);
	for (size_t i = 0; i < count; i++)
		tcase_add_test(tcase, tests[i]);
	suite_add_tcase(suite, tcase);
}
#define ADD(suite, name, end, ...) \
	add(suite, name, (const TTest *const[]){__VA_ARGS__}, sizeof((const TTest *const[]){__VA_ARGS__}) / sizeof(const TTest *), end)

int main(void)
{
	Suite *suite = suite_create("an owner with a disk");
	ADD(suite, "down", teardown, what_is_above_the_mark_has_a_copy, more_than_memory_is_all_there, small_values_travel_inside_the_call,
	    an_allocation_does_not_wait_for_the_disk, what_is_asked_for_often_gets_a_copy, a_value_that_is_too_large_is_dropped,
	    a_full_disk_forgets_its_oldest, a_copy_can_be_dropped_alone, a_small_disk_comes_to_rest, no_space_at_all);
	ADD(suite, "up", teardown, what_is_asked_for_often_stays_in_memory, all_wait_for_one_read, nobody_waits_for_ever,
	    pins_that_came_meanwhile_count, too_many_moves, a_disk_that_takes_no_more, no_way_up);
	ADD(suite, "errors", teardown, a_failed_write_loses_nothing, a_failed_read_is_the_end_of_the_value, what_is_read_is_what_was_written);
	ADD(suite, "the end", teardown, removed_on_its_way_down, removed_on_its_way_down_and_the_write_fails, removed_on_its_way_up,
	    removed_while_it_is_summed, the_owner_closes_under_way, a_close_tells_those_who_wait, each_allocation_may_fail);
	TCase *random = tcase_create("anything");
	tcase_add_checked_fixture(random, setup, teardown);
	tcase_set_timeout(random, 120);
	tcase_add_loop_test(random, anything, 0, 4);
	suite_add_tcase(suite, random);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
