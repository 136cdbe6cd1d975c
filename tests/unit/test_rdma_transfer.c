/* Requests over RDMA between two engines on simulated verbs: pieces, rails, repeats, and how requests end. */
#include "tests/support/sim_inside.h"
#include "tests/unit/transfer_rig.h"
#include "transports/rdma/endpoint_inside.h"
#include "transports/rdma/peer_fsm.h"
#include <errno.h>
#include <unistd.h>

/* --- bytes */

static const uint64_t lengths[] = {1, 4096, 65535, 65536, 65537, 81920, 81921, 131072 + 16384, (1 << 20) + 5, BYTES - 64};

START_TEST(all_lengths_both_ways)
{
	uint64_t length = lengths[_i];
	begin();
	fill(ours + 7, length, 1);
	submit(NEAP_WRITE, 7, 33, length);
	completes(0);
	rdma_engine_rig_pass(&rig, 100 * MS); /* these verbs place late */
	ck_assert(holds(theirs + 33, length, 1));
	ck_assert_uint_eq(theirs[32], 0);
	ck_assert_uint_eq(theirs[33 + length], 0);
	memset(ours, 0, sizeof ours);
	submit(NEAP_READ, 11, 33, length);
	completes(1);
	ck_assert(holds(ours + 11, length, 1));
	ck_assert_uint_eq(ours[10], 0);
	ck_assert_uint_eq(ours[11 + length], 0);
	end();
}
END_TEST

/* te spec 5.4: 64 KiB, and what is left joins the last when it is at most 16 KiB. */
START_TEST(pieces_are_cut_as_mooncake_cuts_them)
{
	static const struct {
		uint64_t length;
		uint32_t pieces;
	} cuts[] = {{4096, 1}, {65536, 1}, {81920, 1}, {81921, 2}, {(1 << 20) + 5, 16}, {131072, 2}, {131072 + 16385, 3}};
	begin();
	for (uint32_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
		uint64_t before = stats().sends;
		submit(NEAP_WRITE, 0, 0, cuts[i].length);
		completes(i);
		ck_assert_uint_eq(stats().sends - before, cuts[i].pieces);
	}
	end();
}
END_TEST

START_TEST(all_rails_carry)
{
	begin();
	for (uint32_t i = 0; i < 8; i++)
		submit(NEAP_WRITE, 0, 0, BYTES);
	for (uint32_t i = 0; i < 8; i++)
		completes(i);
	ck_assert_uint_gt(moved(0), BYTES);
	ck_assert_uint_gt(moved(1), BYTES);
	ck_assert_uint_eq(moved(0) + moved(1), UINT64_C(8) * BYTES);
	end();
}
END_TEST

START_TEST(requests_without_bytes)
{
	begin();
	submit(NEAP_WRITE, 0, 0, 0);
	submit(NEAP_READ, 0, BYTES, 0); /* at the end is inside */
	submit(NEAP_READ, 0, BYTES + 1, 0);
	completes(0);
	completes(1);
	ck_assert_uint_eq(wait_for(2, SECOND)->cause, NEAP_CAUSE_RANGE_NOT_REMOTE);
	ck_assert_uint_eq(stats().sends, 0);
	end();
}
END_TEST

START_TEST(memory_in_pieces_at_both_ends)
{
	const struct neap_engine_options options = {.rdma = {.region_max_bytes = 40960}};
	begin_with(3, 12, &options);
	fill(ours, 1 << 20, 3);
	submit(NEAP_WRITE, 4100, 8204, (1 << 20) - 4100);
	completes(0);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert_int_eq(memcmp(theirs + 8204, ours + 4100, (1 << 20) - 4100), 0);
	submit(NEAP_READ, 1 << 20, 8204, 1 << 20);
	completes(1);
	ck_assert_int_eq(memcmp(ours + (1 << 20), theirs + 8204, 1 << 20), 0);
	end();
}
END_TEST

START_TEST(a_small_depth_and_a_small_queue_are_enough)
{
	const struct neap_engine_options options = {.rdma = {.sends_max = 2, .completions_max = 256, .qps_per_endpoint = 3}};
	begin_with(1, 4, &options);
	fill(ours, BYTES, 4);
	for (uint32_t i = 0; i < 200; i++)
		submit(NEAP_WRITE, i * 4096, i * 4096, 4096);
	for (uint32_t i = 0; i < 200; i++)
		completes(i);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert(holds(theirs, 200 * 4096, 4));
	end();
}
END_TEST

/* All that there are go to one peer when the other's turn comes, which has none under way that would bring it back. */
START_TEST(pieces_that_others_have)
{
	const struct neap_engine_options options = {.rdma = {.sends_max = 64}};
	void *taken[16384];
	uint32_t count = 0;
	begin_with(1, 4, &options);
	rdma_engine_rig_start(&rig, 2, 8, NULL);
	(void)enroll(2, theirs, sizeof theirs);
	neap_segment_id one = segment, other = rdma_engine_rig_open_of(&rig, 0, 2);
	load(1);
	segment = other;
	load(1);
	struct neap_pool *pieces = &rdma_engine_rig_of(&rig, 0)->initiator->pieces;
	while (count + 4 < sizeof taken / sizeof taken[0] && (taken[count] = neap_pool_take(pieces)))
		count++;
	segment = one;
	submit(NEAP_WRITE, 0, 0, 1 << 20);
	rdma_engine_rig_turns(&rig);
	segment = other;
	submit(NEAP_WRITE, 0, 0, 1 << 20);
	completes(2);
	completes(3);
	while (count > 0)
		neap_pool_give(pieces, taken[--count]);
	end();
}
END_TEST

static uint64_t under_way(void)
{
	const struct neap_rdma_initiator *initiator = rdma_engine_rig_of(&rig, 0)->initiator;
	return initiator->device_bytes[0] + initiator->device_bytes[1];
}

/* Nothing comes back while the cables are cut: what is under way is what may be, of either device of the peer, and the rest waits. */
START_TEST(a_window_bounds_what_is_under_way)
{
	const uint32_t window = 3 * 65536;
	const struct neap_engine_options options = {.rdma = {.window_bytes = _i ? window : 0}};
	begin_with(3, 12, &options);
	load(4);
	for (uint32_t i = 0; i < 4; i++)
		sim_verbs_cut(&rig.sim, rig.devices[i & 1], rig.devices[2 + (i >> 1)], true);
	fill(ours, BYTES, 7);
	submit(NEAP_WRITE, 0, 0, BYTES);
	rdma_engine_rig_pass(&rig, 5 * MS);
	ck_assert_uint_eq(under_way(), _i ? 2 * window : BYTES);
	for (uint32_t i = 0; i < 4; i++)
		sim_verbs_cut(&rig.sim, rig.devices[i & 1], rig.devices[2 + (i >> 1)], false);
	completes(4);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert(holds(theirs, BYTES, 7));
	end();
}
END_TEST

START_TEST(memory_that_is_not_registered_goes_over_tcp)
{
	static unsigned char loose[8192];
	begin();
	fill(loose, sizeof loose, 9);
	submit_at(NEAP_WRITE, loose, (uintptr_t)theirs, sizeof loose, 0);
	completes(0);
	ck_assert(holds(theirs, sizeof loose, 9));
	ck_assert_uint_eq(stats().sends, 0);
	end();
}
END_TEST

/* --- ranges */

START_TEST(a_range_that_is_not_there)
{
	begin();
	submit(NEAP_WRITE, 0, BYTES - 4096, 8192);
	const struct neap_outcome *outcome = wait_for(0, SECOND);
	ck_assert_uint_eq(outcome->status, NEAP_FAILED);
	ck_assert_uint_eq(outcome->effect, NEAP_EFFECT_NONE);
	ck_assert_uint_eq(outcome->cause, NEAP_CAUSE_RANGE_NOT_REMOTE);
	end();
}
END_TEST

START_TEST(a_range_that_is_registered_later_is_found)
{
	static unsigned char later[65536] __attribute__((aligned(4096)));
	begin();
	submit(NEAP_WRITE, 0, 0, 4096);
	completes(0);
	(void)enroll(1, later, sizeof later);
	fill(ours, sizeof later, 5);
	submit_at(NEAP_WRITE, ours, (uintptr_t)later, sizeof later, 0);
	completes(1);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert(holds(later, sizeof later, 5));
	end();
}
END_TEST

static void released(void *user)
{
	*(bool *)user = true;
}

/* Its key has ended, and the descriptor that is known still has it. */
START_TEST(a_range_that_was_taken_back)
{
	bool gone = false;
	begin_with(1, 4, NULL);
	submit(NEAP_WRITE, 0, 0, 4096);
	completes(0);
	ck_assert_int_eq(neap_memory_unregister(rig.sides[1].engine, their_region, released, &gone), NEAP_OK);
	ck_assert(rdma_engine_rig_until(&rig, &gone, 10 * SECOND));
	memset(theirs, 0, sizeof theirs);
	fill(ours, 65536, 6);
	submit(_i ? NEAP_READ : NEAP_WRITE, 0, 0, 65536);
	const struct neap_outcome *outcome = wait_for(1, 20 * SECOND);
	ck_assert_uint_eq(outcome->status, NEAP_FAILED);
	ck_assert(outcome->cause == NEAP_CAUSE_REFUSED_BY_PEER || outcome->cause == NEAP_CAUSE_RANGE_NOT_REMOTE);
	wait_released(1, 10 * SECOND);
	for (uint32_t i = 0; i < 65536; i++)
		ck_assert_uint_eq(theirs[i], 0);
	end();
}
END_TEST

/* More than are looked at in one piece of work come while the descriptor is read for another. */
START_TEST(many_ranges_that_are_not_there)
{
	static unsigned char other[4096] __attribute__((aligned(4096)));
	begin_with(1, 4, NULL);
	submit_at(NEAP_WRITE, ours, (uintptr_t)other, sizeof other, 0);
	rdma_engine_rig_turns(&rig);
	for (uint32_t i = 1; i < 2 * NEAP_RDMA_FEED + 2; i++)
		submit_at(NEAP_WRITE, ours, (uintptr_t)other, sizeof other, 0);
	for (uint32_t i = 0; i < submitted; i++) {
		const struct neap_outcome *outcome = wait_for(i, SECOND);
		ck_assert_uint_eq(outcome->status, NEAP_FAILED);
		ck_assert_uint_eq(outcome->cause, NEAP_CAUSE_RANGE_NOT_REMOTE);
	}
	end();
}
END_TEST

/* Others on the same queue pairs are flushed with it, and go on. */
START_TEST(a_refusal_does_not_harm_others)
{
	static unsigned char other[65536] __attribute__((aligned(4096)));
	bool gone = false;
	begin_with(1, 4, NULL);
	neap_region_id region = enroll(1, other, sizeof other);
	submit_at(NEAP_WRITE, ours, (uintptr_t)other, sizeof other, 0);
	completes(0);
	ck_assert_int_eq(neap_memory_unregister(rig.sides[1].engine, region, released, &gone), NEAP_OK);
	ck_assert(rdma_engine_rig_until(&rig, &gone, 10 * SECOND));
	fill(ours, BYTES, 7);
	for (uint32_t i = 1; i < 40; i++) {
		if (i == 5)
			submit_at(NEAP_WRITE, ours, (uintptr_t)other, sizeof other, 0);
		else
			submit(NEAP_WRITE, i * 65536, i * 65536, 65536);
	}
	for (uint32_t i = 1; i < 40; i++)
		if (i != 5)
			completes(i);
	ck_assert_uint_eq(wait_for(5, 20 * SECOND)->status, NEAP_FAILED);
	rdma_engine_rig_pass(&rig, 100 * MS);
	for (uint32_t i = 1; i < 40; i++)
		if (i != 5)
			ck_assert_int_eq(memcmp(theirs + i * 65536, ours + i * 65536, 65536), 0);
	end();
}
END_TEST

/* The last try of those that are under way and are not refused. */
static void no_more_tries(const void *refused)
{
	struct neap_rdma_initiator *initiator = ((struct neap_rdma *)(void *)rig.sides[0].engine->remote)->initiator;
	uint32_t index = 0, count = 0;
	for (struct neap_rdma_piece *piece; (piece = neap_pool_next(&initiator->pieces, &index));) {
		if (piece->request->slice->address == (uintptr_t)refused)
			continue;
		piece->flushes = NEAP_RDMA_FLUSHES_MAX;
		piece->tries = (uint8_t)(initiator->ground.options.tries_max - 1);
		count++;
	}
	ck_assert_uint_gt(count, 0);
}

START_TEST(a_refusal_is_not_said_of_others)
{
	static unsigned char other[4096] __attribute__((aligned(4096)));
	const struct neap_engine_options options = {.rdma = {.qps_per_endpoint = 1}};
	bool gone = false;
	begin_with(1, 4, &options);
	neap_region_id region = enroll(1, other, sizeof other);
	submit_at(NEAP_WRITE, ours, (uintptr_t)other, sizeof other, 0);
	completes(0);
	ck_assert_int_eq(neap_memory_unregister(rig.sides[1].engine, region, released, &gone), NEAP_OK);
	ck_assert(rdma_engine_rig_until(&rig, &gone, 10 * SECOND));
	submit_at(NEAP_WRITE, ours, (uintptr_t)other, sizeof other, 0);
	submit(NEAP_WRITE, 0, 0, 4096);
	rdma_engine_rig_pass(&rig, 1);
	no_more_tries(other);
	const struct neap_outcome *outcome = wait_for(2, 20 * SECOND);
	ck_assert_uint_eq(outcome->status, NEAP_FAILED);
	ck_assert_uint_eq(outcome->cause, NEAP_CAUSE_PEER_RESET);
	(void)wait_for(1, 20 * SECOND);
	end();
}
END_TEST

/* --- rails */

/* Ours, or the peer's: the other rail carries on, and when it is back both do. */
START_TEST(a_port_goes_down_under_load_and_comes_back)
{
	static const uint32_t ports[] = {1, 2, 4, 8};
	const struct neap_engine_options options = {.rdma = {.rail_pause_ms = 500}};
	begin_with(3, 12, &options);
	load(4);
	fill(ours, 1 << 20, 8);
	submit(NEAP_WRITE, 0, 0, 1 << 20);
	rdma_engine_rig_pass(&rig, 20000);
	set_ports(ports[_i], NEAP_PORT_DOWN);
	completes(4);
	load(4);
	set_ports(ports[_i], NEAP_PORT_ACTIVE);
	rdma_engine_rig_pass(&rig, SECOND); /* more than the longest pause */
	load(2);
	rdma_engine_rig_pass(&rig, SECOND);
	uint64_t before[2] = {moved(0), moved(1)};
	load(8);
	ck_assert_msg(moved(0) > before[0] && moved(1) > before[1], "rail 0: %lu, rail 1: %lu; %s", moved(0) - before[0], moved(1) - before[1],
	              rig.log);
	end();
}
END_TEST

/* A connection without work whose place the peer needs: not a failure, and not missed. */
START_TEST(the_peer_makes_room_for_others)
{
	struct rdma_endpoint *endpoint;
	uint32_t index = 0, ended = 0;
	begin_with(1, 4, NULL);
	load(1);
	while ((endpoint = neap_pool_next(&rdma_engine_rig_of(&rig, 1)->endpoints->pool, &index)) != NULL) {
		rdma_endpoint_makes_room(endpoint, "a test");
		ended++;
	}
	ck_assert_uint_gt(ended, 0);
	rdma_engine_rig_pass(&rig, SECOND);
	ck_assert_uint_eq(neap_rdma_endpoints_count(rdma_engine_rig_of(&rig, 0)->endpoints), 0);
	ck_assert_uint_eq(rdma_engine_rig_of(&rig, 0)->initiator->stats.rails_paused, 0);
	uint64_t begun_ns = rig.now_ns;
	load(1);
	ck_assert_uint_lt(rig.now_ns - begun_ns, SECOND / 5); /* nobody finds out by silence */
	end();
}
END_TEST

/* A peer that takes each connection and ends it before a piece has gone over it: the time for connecting bounds that too. */
START_TEST(the_peer_makes_room_again_and_again)
{
	const struct neap_engine_options options = {.connect_timeout_ms = 3000};
	begin_with(1, 4, &options);
	submit(NEAP_WRITE, 0, 0, 4096);
	for (uint64_t until = rig.now_ns + 30 * SECOND; !requests[0].ends && rig.now_ns < until; rdma_engine_rig_pass(&rig, MS / 20)) {
		struct rdma_endpoint *endpoint;
		uint32_t index = 0;
		while ((endpoint = neap_pool_next(&rdma_engine_rig_of(&rig, 1)->endpoints->pool, &index)) != NULL)
			if (endpoint->connected)
				rdma_endpoint_makes_room(endpoint, "a test");
	}
	ck_assert_msg(requests[0].ends == 1, "it goes on for ever; %s", rig.log);
	ck_assert_uint_eq(requests[0].outcome.status, NEAP_FAILED);
	end();
}
END_TEST

/* Status 9 has other reasons where the MTU is agreed. */
START_TEST(an_invalid_request_is_explained)
{
	uint32_t index = 0;
	begin_with(1, 4, NULL);
	load(1);
	for (struct neap_rdma_rail *rail; (rail = neap_pool_next(&rdma_engine_rig_of(&rig, 0)->initiator->rails, &index));)
		rail->user.endpoint->peer_is_neap = !_i;
	for (struct neap_verbs_qp *qp = rig.sim.qps; qp; qp = qp->next)
		qp->attributes.access = NEAP_VERBS_LOCAL_WRITE;
	submit(NEAP_READ, 0, 0, 4096);
	completes(1); /* over other queue pairs */
	ck_assert_msg(rdma_engine_rig_logged(&rig, "an MTU of 1024 bytes and 16 READs at once on each queue pair (status 9)") == !_i, "%s", rig.log);
	ck_assert_msg(rdma_engine_rig_logged(&rig, "do both ends have one MTU, here 1024 bytes (MC_MTU, ip link)?") == (uint32_t)_i, "%s", rig.log);
	end();
}
END_TEST

START_TEST(a_rail_that_failed_is_probed_before_it_carries)
{
	const struct neap_engine_options options = {.rdma = {.rail_pause_ms = 500}};
	begin_with(1, 12, &options);
	load(8);
	set_ports(4, NEAP_PORT_DOWN);
	load(4);
	ck_assert_uint_gt(stats().rails_paused, 0);
	set_ports(4, NEAP_PORT_ACTIVE);
	for (uint32_t i = 0; i < 40 && stats().probes == 0; i++) {
		rdma_engine_rig_pass(&rig, SECOND);
		load(1);
	}
	ck_assert_uint_gt(stats().probes, 0);
	rdma_engine_rig_pass(&rig, SECOND);
	ck_assert_uint_eq(stats().rails_open, 2);
	end();
}
END_TEST

START_TEST(a_device_is_lost_under_load)
{
	begin();
	load(2);
	submit(NEAP_WRITE, 0, 0, BYTES);
	rdma_engine_rig_pass(&rig, 20000);
	if (_i < 2)
		sim_verbs_lose(&rig.sim, rig.devices[_i ? 2 : 0]);
	else
		sim_verbs_vanish(&rig.sim, rig.devices[_i == 2 ? 0 : 2]);
	completes(2);
	load(2);
	sim_verbs_regain(rig.devices[_i % 2 ? 2 : 0]);
	rdma_engine_rig_pass(&rig, 6 * SECOND);
	load(2);
	end();
}
END_TEST

START_TEST(connections_that_are_torn_down_are_made_again)
{
	begin();
	fill(ours, BYTES, 2);
	for (uint32_t i = 0; i < 10; i++) {
		submit(NEAP_WRITE, 0, 0, BYTES);
		rdma_engine_rig_pass(&rig, 10000 * (i + 1));
		neap_rdma_transport_retire_endpoints(rig.sides[i % 2].engine->remote);
	}
	for (uint32_t i = 0; i < 10; i++)
		completes(i);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert(holds(theirs, BYTES, 2));
	end();
}
END_TEST

START_TEST(more_peers_than_endpoints)
{
	const struct neap_engine_options options = {.rdma = {.endpoints_max = 2}};
	begin_with(3, 12, &options); /* four paths */
	for (uint32_t i = 0; i < 4; i++)
		load(4);
	ck_assert_uint_le(stats().endpoints, 4); /* those that leave have successors */
	end();
}
END_TEST

/* Six with no end of work, and places for two: all get on, by turns, and most of the time is not spent connecting. */
#define CROWD 6u
static struct member {
	neap_segment_id segment;
	uint32_t which, completed, failed;
	bool busy;
} crowd[CROWD];

static void on_crowd(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	struct member *member = user;
	(void)batch;
	member->completed += summary->completed;
	member->failed += 1 - summary->completed;
	member->busy = false;
}

static void crowd_begin(uint64_t kernel_ns)
{
	const struct neap_engine_options few = {.rdma = {.endpoints_max = 2}};
	rdma_engine_rig_begin(&rig, CROWD + 2);
	rdma_engine_rig_start(&rig, 1, 2, &few);
	(void)enroll(1, theirs, sizeof theirs);
	for (uint32_t i = 0; i < CROWD; i++) {
		crowd[i] = (struct member){.which = i + (i > 0)};
		rdma_engine_rig_start(&rig, crowd[i].which, 1u << crowd[i].which, NULL);
		(void)enroll(crowd[i].which, ours, sizeof ours);
		crowd[i].segment = rdma_engine_rig_open_of(&rig, crowd[i].which, 1);
		rig.sides[crowd[i].which].helper.delay_ns = kernel_ns;
	}
	rig.sides[1].helper.delay_ns = kernel_ns;
}

static void crowd_works(void)
{
	for (struct member *member = crowd; member < crowd + CROWD; member++) {
		const struct neap_request request = {.opcode = NEAP_WRITE, .source = ours, .segment = member->segment,
		                                     .target_offset = (uintptr_t)theirs, .length = 16384};
		const struct neap_batch_options options = {.on_batch = on_crowd, .user = member};
		neap_batch_id batch;
		if (member->busy)
			continue;
		member->busy = true;
		ck_assert_int_eq(neap_submit(rig.sides[member->which].engine, &request, 1, &options, &batch), NEAP_OK);
	}
}

START_TEST(a_crowd_at_a_peer_with_few_places)
{
	uint32_t completed = 0, failed = 0, least = UINT32_MAX;
	crowd_begin((_i ? 20 : 1) * MS);
	for (uint64_t until = rig.now_ns + 10 * SECOND; rig.now_ns < until; rdma_engine_rig_pass(&rig, MS / 2))
		crowd_works();
	for (uint32_t i = 0; i < CROWD; i++) {
		completed += crowd[i].completed;
		failed += crowd[i].failed;
		least = crowd[i].completed < least ? crowd[i].completed : least;
	}
	ck_assert_msg(failed == 0, "%u of %u failed", failed, completed);
	ck_assert_msg(least > completed / CROWD / 2, "one had %u of %u", least, completed);
	ck_assert_uint_gt(completed, _i ? 18000 : 25000); /* of 40,000 that two connections carry, with no time spent on others */
	rdma_engine_rig_end(&rig);
}
END_TEST

/* --- ends */

/* Nobody answers on any rail. */
START_TEST(a_deadline_ends_it_and_the_buffer_is_let_go)
{
	const struct neap_engine_options options = {.drain_timeout_ms = 100, .rdma = {.silence_retries = _i ? 7 : 6}};
	begin_with(3, 12, &options);
	load(1);
	set_ports(12, NEAP_PORT_DOWN);
	submit_at(NEAP_READ, ours, (uintptr_t)theirs, BYTES, 50);
	const struct neap_outcome *outcome = wait_for(1, 2 * SECOND);
	ck_assert_uint_eq(outcome->status, NEAP_TIMEOUT);
	ck_assert_uint_ne(outcome->effect, NEAP_EFFECT_ALL);
	wait_released(1, 30 * SECOND);
	fill(ours, BYTES, 1);
	set_ports(12, NEAP_PORT_ACTIVE);
	rdma_engine_rig_pass(&rig, 5 * SECOND);
	ck_assert(holds(ours, BYTES, 1)); /* what comes late does not reach it */
	end();
}
END_TEST

/* No deadline, and a device that never gives up: the progress timeout does, and in the end connecting. */
START_TEST(it_ends_by_itself)
{
	const struct neap_engine_options options = {.progress_timeout_ms = 500, .connect_timeout_ms = 1000, .drain_timeout_ms = 100,
	                                            .rdma = {.silence_retries = 7}};
	begin_with(1, 4, &options);
	load(1);
	set_ports(4, NEAP_PORT_DOWN);
	submit(_i ? NEAP_WRITE : NEAP_READ, 0, 0, BYTES);
	const struct neap_outcome *outcome = wait_for(1, 60 * SECOND);
	ck_assert(outcome->status == NEAP_TIMEOUT || outcome->status == NEAP_FAILED);
	wait_released(1, 30 * SECOND);
	end();
}
END_TEST

START_TEST(canceled_before_and_amid)
{
	begin();
	neap_batch_id batch = submit(NEAP_WRITE, 0, 0, BYTES);
	ck_assert_int_eq(neap_batch_cancel(rig.sides[0].engine, batch), NEAP_OK);
	ck_assert_uint_eq(wait_for(0, SECOND)->status, NEAP_CANCELED);
	ck_assert_uint_eq(requests[0].outcome.effect, NEAP_EFFECT_NONE);
	load(1);
	fill(ours, BYTES, 3);
	batch = submit(NEAP_WRITE, 0, 0, BYTES);
	rdma_engine_rig_pass(&rig, 10000);
	ck_assert_int_eq(neap_batch_cancel(rig.sides[0].engine, batch), NEAP_OK);
	const struct neap_outcome *outcome = wait_for(2, 5 * SECOND);
	ck_assert(outcome->status == NEAP_CANCELED || outcome->status == NEAP_COMPLETED);
	wait_released(2, 5 * SECOND);
	rdma_engine_rig_pass(&rig, SECOND);
	if (outcome->effect == NEAP_EFFECT_PARTIAL)
		ck_assert_int_eq(memcmp(theirs, ours, outcome->bytes), 0);
	end();
}
END_TEST

START_TEST(the_segment_or_an_engine_is_closed_amid)
{
	begin();
	load(1);
	for (uint32_t i = 0; i < 4; i++)
		submit(NEAP_WRITE, 0, 0, BYTES);
	rdma_engine_rig_pass(&rig, 10000);
	if (_i == 0)
		ck_assert_int_eq(neap_segment_close(rig.sides[0].engine, segment), NEAP_OK);
	else
		rdma_engine_rig_close(&rig, _i == 1 ? 0 : 1);
	for (uint32_t i = 1; i < 5; i++) {
		const struct neap_outcome *outcome = wait_for(i, 60 * SECOND);
		ck_assert(outcome->status != NEAP_WAITING);
		if (_i < 2 && outcome->status != NEAP_COMPLETED)
			ck_assert_uint_eq(outcome->status, NEAP_CANCELED);
		wait_released(i, 10 * SECOND);
	}
	end();
}
END_TEST

/* Another process at the same address: what was under way is not sent to it; what comes later is. */
START_TEST(the_peer_is_restarted)
{
	const struct neap_engine_options options = {.connect_timeout_ms = 3000};
	struct neap_engine_options same = options;
	begin_with(1, 4, &options);
	load(1);
	same.handshake_port = neap_engine_handshake_port(rig.sides[1].engine);
	submit(NEAP_WRITE, 0, 0, BYTES);
	rdma_engine_rig_pass(&rig, 5000);
	rdma_engine_rig_close(&rig, 1);
	memset(theirs, 0, sizeof theirs);
	rdma_engine_rig_start(&rig, 1, 4, &same);
	their_region = enroll(1, theirs, sizeof theirs);
	(void)wait_for(1, 60 * SECOND);
	fill(ours, 65536, 5);
	submit(NEAP_WRITE, 0, 0, 65536);
	completes(2);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert(holds(theirs, 65536, 5));
	end();
}
END_TEST

START_TEST(nobody_is_there)
{
	const struct neap_engine_options options = {.connect_timeout_ms = 500};
	begin_with(1, 4, &options);
	load(1);
	rdma_engine_rig_close(&rig, 1);
	rdma_engine_rig_pass(&rig, SECOND);
	submit(NEAP_WRITE, 0, 0, 4096);
	const struct neap_outcome *outcome = wait_for(1, 60 * SECOND);
	ck_assert(outcome->status == NEAP_FAILED || outcome->status == NEAP_TIMEOUT);
	wait_released(1, 10 * SECOND);
	end();
}
END_TEST

/* Its descriptor cannot be read either: pauses, and in the end it is given up. What happens meanwhile finds it in each of its states. */
START_TEST(nobody_answers_for_a_while)
{
	const struct neap_engine_options options = {.connect_timeout_ms = 3000, .handshake_timeout_ms = 400, .retry_backoff_ms = 100};
	struct neap_engine_options same = options;
	begin_with(1, 4, &options);
	load(1);
	same.handshake_port = neap_engine_handshake_port(rig.sides[1].engine);
	rdma_engine_rig_close(&rig, 1);
	neap_rdma_transport_retire_endpoints(rig.sides[0].engine->remote);
	rdma_engine_rig_pass(&rig, SECOND);
	neap_batch_id batch = submit(NEAP_WRITE, 0, 0, 4096);
	rdma_engine_rig_pass(&rig, (uint64_t)_i * 37 * MS);
	switch (_i % 4) {
	case 0: /* given up */
		ck_assert_uint_eq(wait_for(1, 60 * SECOND)->status, NEAP_FAILED);
		break;
	case 1: /* its last request goes */
		ck_assert_int_eq(neap_batch_cancel(rig.sides[0].engine, batch), NEAP_OK);
		(void)wait_for(1, SECOND);
		break;
	case 2:
		ck_assert_int_eq(neap_segment_close(rig.sides[0].engine, segment), NEAP_OK);
		(void)wait_for(1, 5 * SECOND);
		break;
	default: /* it is there again, as another process with other keys */
		rdma_engine_rig_start(&rig, 1, 4, &same);
		their_region = enroll(1, theirs, sizeof theirs);
		(void)wait_for(1, 60 * SECOND);
		submit(NEAP_WRITE, 0, 0, 4096);
		completes(2);
		break;
	}
	ck_assert_uint_eq(requests[1].outcome.effect == NEAP_EFFECT_NONE || requests[1].outcome.status == NEAP_COMPLETED, 1);
	end();
}
END_TEST

/* A stranger listens at its port. */
START_TEST(the_descriptor_is_not_answered)
{
	const struct neap_engine_options options = {.connect_timeout_ms = 3000, .handshake_timeout_ms = 400};
	begin_with(1, 4, &options);
	load(1);
	uint16_t port = neap_engine_handshake_port(rig.sides[1].engine);
	rdma_engine_rig_close(&rig, 1);
	rdma_engine_rig_pass(&rig, SECOND);
	int listener = stranger_at(port);
	neap_batch_id batch = submit(NEAP_READ, 0, 0, 4096);
	rdma_engine_rig_pass(&rig, 450 * MS + (uint64_t)_i * 90 * MS);
	if (_i % 2)
		ck_assert_int_eq(neap_batch_cancel(rig.sides[0].engine, batch), NEAP_OK);
	else
		ck_assert_int_eq(neap_segment_close(rig.sides[0].engine, segment), NEAP_OK);
	(void)wait_for(1, 5 * SECOND);
	(void)close(listener);
	end();
}
END_TEST

/* Who was to be told of the end of a connection does not answer, and the engine is closed: nothing depends on the answer any more. */
START_TEST(the_end_is_not_answered)
{
	const struct neap_engine_options options = {.handshake_timeout_ms = 20000, .drain_timeout_ms = 200};
	struct rdma_endpoint *endpoint;
	uint32_t index = 0;
	begin_with(1, 4, &options);
	load(1);
	uint16_t port = neap_engine_handshake_port(rig.sides[1].engine);
	rdma_engine_rig_close(&rig, 1);
	int listener = stranger_at(port);
	while ((endpoint = neap_pool_next(&rdma_engine_rig_of(&rig, 0)->endpoints->pool, &index)) != NULL)
		rdma_endpoint_makes_room(endpoint, "a test");
	if (_i)
		rdma_engine_rig_pass(&rig, 100 * MS);
	uint64_t begun_ns = rig.now_ns;
	rdma_engine_rig_close(&rig, 0);
	ck_assert_uint_le(rig.now_ns - begun_ns, 200 * MS);
	end();
	(void)close(listener);
}
END_TEST

START_TEST(a_probe_that_fails)
{
	const struct neap_engine_options options = {.rdma = {.rail_pause_ms = 500}};
	begin_with(1, 12, &options);
	load(8);
	set_ports(4, NEAP_PORT_DOWN);
	load(4);
	set_ports(4, NEAP_PORT_ACTIVE);
	for (uint32_t i = 0; i < 10000 && stats().probes == 0; i++) {
		if (batches_ended == submitted)
			submit(NEAP_WRITE, 0, 0, 4096);
		rdma_engine_rig_pass(&rig, a_rail_is(rdma_rail_OPENING) ? 20000 : MS);
	}
	ck_assert_uint_eq(stats().probes, 1);
	set_ports(4, NEAP_PORT_DOWN);
	load(2);
	set_ports(4, NEAP_PORT_ACTIVE);
	rdma_engine_rig_pass(&rig, 2 * SECOND);
	load(4);
	end();
}
END_TEST

/* --- anything */

static uint64_t chance(uint64_t *state, uint64_t below)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*state >> 33) % below;
}

static void fault(uint64_t *state, uint32_t *down)
{
	uint32_t device = (uint32_t)chance(state, 4);
	switch (chance(state, 6)) {
	case 0:
	case 1:
		*down ^= 1u << device;
		set_ports(1u << device, *down >> device & 1 ? NEAP_PORT_DOWN : NEAP_PORT_ACTIVE);
		break;
	case 2:
		neap_rdma_transport_retire_endpoints(rig.sides[chance(state, 2)].engine->remote);
		break;
	case 3:
		sim_verbs_lose(&rig.sim, rig.devices[device]);
		sim_verbs_regain(rig.devices[device]);
		break;
	case 4:
		sim_verbs_fail(&rig.sim, SIM_POST_SEND, 1 + (uint32_t)chance(state, 20), -ENOMEM);
		break;
	default:
		sim_verbs_fail(&rig.sim, SIM_MODIFY_QP, 1 + (uint32_t)chance(state, 4), -EINVAL);
		break;
	}
}

/* Requests to places of their own while everything breaks and mends; then all is mended. What was COMPLETED is there, what was said to
 * have had no effect had none, and afterwards everything works. */
START_TEST(whatever_happens)
{
	const struct neap_engine_options options = {.drain_timeout_ms = 200, .progress_timeout_ms = 1000, .connect_timeout_ms = 2000,
	                                            .rdma = {.rail_pause_ms = 500}};
	uint64_t state = (uint64_t)_i * 7919 + 1;
	uint32_t down = 0;
	begin_with(3, 12, &options);
	for (uint32_t i = 0; i < 64; i++) {
		fill(ours + i * 65536, 65536, i + 1);
		submit_at(NEAP_WRITE, ours + i * 65536, (uintptr_t)theirs + i * 65536, 1 + chance(&state, 65536), chance(&state, 4) ? 0 : 1 + chance(&state, 400));
		if (chance(&state, 3) == 0)
			fault(&state, &down);
		rdma_engine_rig_pass(&rig, chance(&state, 40) * MS);
	}
	for (uint32_t i = 0; i < 4; i++)
		sim_verbs_regain(rig.devices[i]);
	memset(rig.sim.fail_in, 0, sizeof rig.sim.fail_in);
	set_ports(15, NEAP_PORT_ACTIVE);
	for (uint32_t i = 0; i < 64; i++) {
		(void)wait_for(i, 60 * SECOND);
		wait_released(i, 60 * SECOND);
	}
	rdma_engine_rig_pass(&rig, 2 * SECOND);
	for (uint32_t i = 0; i < 64; i++) {
		const struct neap_outcome *outcome = &requests[i].outcome;
		if (outcome->status == NEAP_COMPLETED)
			ck_assert_msg(holds(theirs + i * 65536, outcome->bytes, i + 1), "request %u", i);
		if (outcome->effect == NEAP_EFFECT_NONE)
			for (uint32_t k = 0; k < 65536; k++)
				ck_assert_uint_eq(theirs[i * 65536 + k], 0);
	}
	memset(ours, 0x55, sizeof ours);
	rdma_engine_rig_pass(&rig, 6 * SECOND); /* devices are tried again each 5 s */
	submit(NEAP_WRITE, 0, 0, BYTES);
	completes(64);
	rdma_engine_rig_pass(&rig, SECOND);
	ck_assert_int_eq(memcmp(ours, theirs, BYTES), 0);
	end();
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("transfers");
	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, all_lengths_both_ways, 0, (int)(sizeof lengths / sizeof lengths[0]));
	tcase_add_test(tests, pieces_are_cut_as_mooncake_cuts_them);
	tcase_add_test(tests, all_rails_carry);
	tcase_add_test(tests, requests_without_bytes);
	tcase_add_test(tests, memory_in_pieces_at_both_ends);
	tcase_add_test(tests, a_small_depth_and_a_small_queue_are_enough);
	tcase_add_test(tests, pieces_that_others_have);
	tcase_add_loop_test(tests, a_window_bounds_what_is_under_way, 0, 2);
	tcase_add_test(tests, memory_that_is_not_registered_goes_over_tcp);
	tcase_add_test(tests, a_range_that_is_not_there);
	tcase_add_test(tests, many_ranges_that_are_not_there);
	tcase_add_test(tests, a_range_that_is_registered_later_is_found);
	tcase_add_loop_test(tests, a_range_that_was_taken_back, 0, 2);
	tcase_add_test(tests, a_refusal_does_not_harm_others);
	tcase_add_test(tests, a_refusal_is_not_said_of_others);
	tcase_add_loop_test(tests, a_port_goes_down_under_load_and_comes_back, 0, 4);
	tcase_add_loop_test(tests, an_invalid_request_is_explained, 0, 2);
	tcase_add_test(tests, the_peer_makes_room_for_others);
	tcase_add_test(tests, the_peer_makes_room_again_and_again);
	tcase_add_loop_test(tests, a_crowd_at_a_peer_with_few_places, 0, 2);
	tcase_add_test(tests, a_rail_that_failed_is_probed_before_it_carries);
	tcase_add_loop_test(tests, a_device_is_lost_under_load, 0, 4);
	tcase_add_test(tests, connections_that_are_torn_down_are_made_again);
	tcase_add_test(tests, more_peers_than_endpoints);
	tcase_add_loop_test(tests, a_deadline_ends_it_and_the_buffer_is_let_go, 0, 2);
	tcase_add_loop_test(tests, it_ends_by_itself, 0, 2);
	tcase_add_test(tests, canceled_before_and_amid);
	tcase_add_loop_test(tests, the_segment_or_an_engine_is_closed_amid, 0, 3);
	tcase_add_test(tests, the_peer_is_restarted);
	tcase_add_test(tests, nobody_is_there);
	tcase_add_loop_test(tests, nobody_answers_for_a_while, 0, 16);
	tcase_add_loop_test(tests, the_descriptor_is_not_answered, 0, 10);
	tcase_add_loop_test(tests, the_end_is_not_answered, 0, 2);
	tcase_add_test(tests, a_probe_that_fails);
	const char *seeds = getenv("NEAP_RDMA_SEEDS");
	bool full = getenv("NEAP_FULL") != NULL, slow = getenv("CK_TIMEOUT_MULTIPLIER") != NULL;
	int usual = slow ? (full ? 40 : 6) : full ? 400 : 20;
	const char *first = getenv("NEAP_RDMA_FIRST_SEED");
	TCase *anything = tcase_create("anything");
	tcase_set_timeout(anything, 120);
	tcase_add_loop_test(anything, whatever_happens, first ? atoi(first) : 0, (first ? atoi(first) : 0) + (seeds ? atoi(seeds) : usual));
	Suite *suite = suite_create("rdma transfers");
	suite_add_tcase(suite, tests);
	suite_add_tcase(suite, anything);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
