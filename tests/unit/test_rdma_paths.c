/* Which paths there are to go over: more than there is room for, and addresses that do not do. */
#include "tests/unit/transfer_rig.h"
#include <unistd.h>

/* --- more paths than room */

/* From one device to 16 peers with four devices each, whose requests all come at once, again and again; with room for a quarter of the
 * paths, or for fewer than there are peers. They take turns, which is said once, and nothing fails. */
START_TEST(sixty_four_paths_and_room_for_few)
{
	enum { PEERS = 16, EACH = BYTES / PEERS };
	static const uint32_t room[] = {16, 5, 1};
	const struct neap_engine_options options = {.connect_timeout_ms = 1000, .rdma = {.endpoints_max = room[_i]}};
	neap_segment_id segments[PEERS];
	begin_with(1, 30, &options);
	/* One of the others may get this one's port, and by a segment that was still open it would be taken for this one at first. */
	ck_assert_int_eq(neap_segment_close(rig.sides[0].engine, segment), NEAP_OK);
	rdma_engine_rig_close(&rig, 1);
	for (uint32_t i = 0; i < PEERS; i++) {
		rdma_engine_rig_start(&rig, 1 + i, 30, NULL);
		(void)enroll(1 + i, theirs + i * EACH, EACH);
		segments[i] = rdma_engine_rig_open_of(&rig, 0, 1 + i);
	}
	fill(ours, BYTES, 7);
	uint64_t began_ns = rig.now_ns;
	for (uint32_t round = 0; round < 4; round++)
		for (uint32_t i = 0; i < PEERS; i++) {
			segment = segments[i];
			submit(NEAP_WRITE, i * EACH, i * EACH, EACH);
		}
	for (uint32_t i = 0; i < submitted; i++)
		completes(i);
	ck_assert_uint_lt(rig.now_ns - began_ns, 20 * SECOND);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert(holds(theirs, BYTES, 7));
	ck_assert_uint_eq(rdma_engine_rig_logged(&rig, "they take turns"), 1);
	ck_assert_uint_eq(rdma_engine_rig_logged(&rig, "bounded queue"), 0);
	ck_assert_uint_eq(stats().rails_paused, 0);
	end();
}
END_TEST

/* Waiting has no end of its own: the request's is enough. */
START_TEST(who_waits_ends_when_asked)
{
	const struct neap_engine_options options = {.rdma = {.endpoints_max = 1}};
	begin_with(1, 4, &options);
	rdma_engine_rig_start(&rig, 2, 8, NULL);
	(void)enroll(2, theirs, sizeof theirs);
	load(1);
	rig.sim.latency_max_ns = 200 * MS; /* the place is taken for a while */
	submit(NEAP_WRITE, 0, 0, BYTES);
	rdma_engine_rig_pass(&rig, MS);
	segment = rdma_engine_rig_open_of(&rig, 0, 2);
	neap_batch_id batch = submit_at(NEAP_WRITE, ours, (uintptr_t)theirs, 4096, _i == 2 ? 20 : 0);
	rdma_engine_rig_pass(&rig, 10 * MS);
	ck_assert(a_rail_is(rdma_rail_WAITING));
	ck_assert_uint_eq(requests[2].ends, 0);
	if (_i == 0)
		ck_assert_int_eq(neap_segment_close(rig.sides[0].engine, segment), NEAP_OK);
	if (_i == 1)
		ck_assert_int_eq(neap_batch_cancel(rig.sides[0].engine, batch), NEAP_OK);
	const struct neap_outcome *outcome = wait_for(2, 50 * MS);
	ck_assert_uint_eq(outcome->status, _i == 2 ? NEAP_TIMEOUT : NEAP_CANCELED);
	ck_assert_uint_eq(outcome->effect, NEAP_EFFECT_NONE);
	rig.sim.latency_max_ns = MS;
	completes(1);
	rdma_engine_rig_pass(&rig, SECOND);
	ck_assert(!a_rail_is(rdma_rail_WAITING));
	end();
}
END_TEST

/* What it waits for room on goes: it hears that by trying, and is as any path that cannot be had. */
START_TEST(who_waits_for_a_device_that_goes)
{
	const struct neap_engine_options options = {.rdma = {.endpoints_max = 1}};
	begin_with(1, 4, &options);
	rdma_engine_rig_start(&rig, 2, 8, NULL);
	(void)enroll(2, theirs, sizeof theirs);
	load(1);
	rig.sim.latency_max_ns = 200 * MS;
	submit(NEAP_WRITE, 0, 0, BYTES);
	rdma_engine_rig_pass(&rig, MS);
	segment = rdma_engine_rig_open_of(&rig, 0, 2);
	submit(NEAP_WRITE, 0, 0, 4096);
	rdma_engine_rig_pass(&rig, 10 * MS);
	ck_assert(a_rail_is(rdma_rail_WAITING));
	sim_verbs_lose(&rig.sim, rig.devices[0]);
	rdma_engine_rig_pass(&rig, 10 * MS);
	ck_assert(!a_rail_is(rdma_rail_WAITING));
	ck_assert_uint_gt(stats().rails_paused, 0);
	rig.sim.latency_max_ns = MS;
	sim_verbs_regain(rig.devices[0]);
	rdma_engine_rig_pass(&rig, 10 * SECOND);
	(void)wait_for(1, 60 * SECOND);
	(void)wait_for(2, 60 * SECOND);
	submit(NEAP_WRITE, 0, 0, 4096);
	completes(3);
	end();
}
END_TEST

/* --- addresses */

static void begin_with_gids(void (*change)(void), const struct neap_engine_options *options)
{
	memset(requests, 0, sizeof requests);
	memset(ours, 0, sizeof ours);
	memset(theirs, 0, sizeof theirs);
	submitted = batches_ended = 0;
	rdma_engine_rig_begin(&rig, 5);
	change();
	rdma_engine_rig_start(&rig, 0, 1, options);
	rdma_engine_rig_start(&rig, 1, 4, NULL);
	(void)enroll(0, ours, sizeof ours);
	their_region = enroll(1, theirs, sizeof theirs);
	segment = rdma_engine_rig_open(&rig, 0);
}

static const struct neap_gid_entry *gid_of(uint32_t which)
{
	return &rdma_engine_rig_of(&rig, which)->queues[0].gid;
}

/* 2001:db8::HOST behind holes and what is not to be used, and a link-local one. */
static void give_v6(struct sim_device *device)
{
	uint8_t host = device->gids[1].gid[15];
	const struct neap_gid_entry gids[] = {
		{.index = 0, .gid = {0}, .type = NEAP_GID_ROCE_V2},
		{.index = 2, .gid = {0x20, 0x01, 0x0d, 0xb8, [15] = host}, .type = NEAP_GID_ROCE_V1},
		{.index = 3, .gid = {0xfe, 0x80, [15] = host}, .type = NEAP_GID_ROCE_V2},
		{.index = 5, .gid = {0x20, 0x01, 0x0d, 0xb8, [15] = host}, .type = NEAP_GID_ROCE_V2},
		{.index = 7, .gid = {0}, .type = NEAP_GID_ROCE_V2},
	};
	memcpy(device->gids, gids, sizeof gids);
	device->gid_count = sizeof gids / sizeof gids[0];
	for (uint32_t i = 0; i < device->gid_count; i++)
		(void)snprintf(device->gids[i].netdev, sizeof device->gids[i].netdev, "nic%u", host - 1u);
}

static void all_have_v6(void)
{
	for (uint32_t i = 0; i < rig.device_count; i++)
		give_v6(rig.devices[i]);
}

START_TEST(ports_with_v6_alone)
{
	begin_with_gids(all_have_v6, NULL);
	ck_assert_uint_eq(gid_of(0)->index, 5);
	load(2);
	fill(ours, BYTES, 3);
	submit(NEAP_WRITE, 0, 0, BYTES);
	completes(2);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert(holds(theirs, BYTES, 3));
	ck_assert_uint_eq(moved(0), (UINT64_C(2) << 20) + BYTES);
	ck_assert_str_eq(rig.log, "");
	end();
}
END_TEST

/* The best one is not taken, at our end or at the peer's: another one is, which is said with both. */
static void ours_is_refused(void)
{
	rig.devices[0]->gids_refused = 1u << 1;
	rig.devices[0]->gids[2] =
		(struct neap_gid_entry){.index = 4, .gid = {[10] = 0xff, [11] = 0xff, 10, 78, 0, 1}, .type = NEAP_GID_ROCE_V2, .netdev = "nic0"};
	rig.devices[0]->gid_count = 3;
}

static void theirs_is_refused(void)
{
	rig.devices[2]->gids_refused = 1u << 1;
	rig.devices[2]->gids[2] =
		(struct neap_gid_entry){.index = 4, .gid = {[10] = 0xff, [11] = 0xff, 10, 78, 0, 3}, .type = NEAP_GID_ROCE_V2, .netdev = "nic2"};
	rig.devices[2]->gid_count = 3;
}

/* We have both families, and prefer the one that the peer has not. */
static void theirs_has_v6(void)
{
	give_v6(rig.devices[2]);
	memcpy(rig.devices[0]->gids[1].gid + 12, "\xc0\x00\x02\x01", 4); /* routed, as the other */
	rig.devices[0]->gids[2] =
		(struct neap_gid_entry){.index = 4, .gid = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}, .type = NEAP_GID_ROCE_V2, .netdev = "nic0"};
	rig.devices[0]->gid_count = 3;
}

static void (*const worlds[])(void) = {ours_is_refused, theirs_is_refused, theirs_has_v6};

START_TEST(another_address_is_tried)
{
	static const char *const said[] = {
		"index 1, 00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01: index 4, 00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4e:00:01 is tried",
		"rxe2: queue pairs cannot be connected with GID index 1,", "rxe0: queue pairs cannot be connected with GID index 1,"};
	begin_with_gids(worlds[_i], NULL);
	fill(ours, BYTES, 3);
	submit(NEAP_WRITE, 0, 0, BYTES);
	completes(0);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert(holds(theirs, BYTES, 3));
	ck_assert_uint_eq(moved(0), BYTES);
	ck_assert_msg(rdma_engine_rig_logged(&rig, said[_i]) >= 1, "%s", rig.log);
	ck_assert_uint_eq(gid_of(_i == 1)->index, 4);
	struct neap_descriptor *descriptor = rdma_engine_rig_describe(&rig, _i == 1);
	ck_assert_mem_eq(descriptor->devices[0].gid, gid_of(_i == 1)->gid, 16); /* peers are told */
	neap_descriptor_free(descriptor);
	end();
}
END_TEST

static void none_is_taken(void)
{
	rig.devices[0]->gids_refused = UINT32_MAX;
}

/* All are tried, a bounded number of times, and the best one stays; a fixed one always does. */
START_TEST(no_address_is_taken)
{
	const struct neap_engine_options options = {.connect_timeout_ms = 3000, .rdma = {.rail_pause_ms = 100, .gid_fixed = _i, .gid_index = 1}};
	begin_with_gids(none_is_taken, &options);
	submit(NEAP_WRITE, 0, 0, 4096);
	ck_assert_uint_eq(wait_for(0, 60 * SECOND)->status, NEAP_FAILED);
	submit(NEAP_WRITE, 0, 0, 4096);
	ck_assert_uint_eq(wait_for(1, 60 * SECOND)->status, NEAP_FAILED);
	ck_assert_uint_le(rdma_engine_rig_logged(&rig, "queue pairs cannot be connected with GID"), _i ? 0 : 2);
	ck_assert_uint_eq(gid_of(0)->index, 1);
	/* The table changes, and with it what is known of its addresses. */
	rig.devices[0]->gids_refused = 1u << 1;
	rig.devices[0]->gids[2] =
		(struct neap_gid_entry){.index = 4, .gid = {[10] = 0xff, [11] = 0xff, 10, 78, 0, 1}, .type = NEAP_GID_ROCE_V2, .netdev = "nic0"};
	rig.devices[0]->gid_count = 3;
	sim_verbs_event(rig.devices[0], (struct neap_verbs_event){.kind = NEAP_VERBS_ADDRESS_CHANGE, .port = 1});
	submit(NEAP_WRITE, 0, 0, 4096);
	ck_assert_uint_eq(wait_for(2, 60 * SECOND)->status, _i ? NEAP_FAILED : NEAP_COMPLETED);
	end();
}
END_TEST

/* --- a peer that is silent */

/* Who takes connections and says nothing, as a process that stands still does: with however many paths to it, each of which fails by
 * itself, its requests end when the time for connecting is over. */
START_TEST(who_is_silent_is_given_up)
{
	static const uint32_t theirs_of[] = {1u << 4, 15u << 4}, ours_of[] = {1, 15};
	const struct neap_engine_options options = {.connect_timeout_ms = 3000, .handshake_timeout_ms = 3000};
	begin_on(8, ours_of[_i / 2], theirs_of[_i / 2], &options);
	uint16_t port = neap_engine_handshake_port(rig.sides[1].engine);
	rdma_engine_rig_close(&rig, 1);
	int listener = stranger_at(port);
	uint64_t began_ns = rig.now_ns;
	submit(_i % 2 ? NEAP_READ : NEAP_WRITE, 0, 0, BYTES);
	const struct neap_outcome *outcome = wait_for(0, 600 * SECOND);
	ck_assert_uint_eq(outcome->status, NEAP_FAILED);
	ck_assert_uint_eq(outcome->cause, NEAP_CAUSE_CONNECT_TIMEOUT);
	ck_assert_uint_le(rig.now_ns - began_ns, 13 * SECOND); /* the first failure, the time for connecting, and what was begun in it */
	(void)close(listener);
	end();
}
END_TEST

/* Each of sixteen paths fails with a text of its own, again and again: that does not fill the log. */
START_TEST(many_paths_fail_and_little_is_said)
{
	begin_on(8, 15, 15u << 4, NULL);
	load(8);
	for (uint32_t i = 0; i < 4; i++)
		for (uint32_t k = 4; k < 8; k++)
			sim_verbs_cut(&rig.sim, rig.devices[i], rig.devices[k], true);
	uint64_t began_ns = rig.now_ns;
	for (uint32_t i = 0; i < 8; i++)
		submit(NEAP_READ, 0, 0, BYTES);
	for (uint32_t i = 0; i < 8; i++)
		(void)wait_for(8 + i, 120 * SECOND);
	uint64_t windows = (rig.now_ns - began_ns) / (10 * SECOND) + 1;
	ck_assert_uint_gt(stats().rails_paused, 16);
	ck_assert_uint_ge(rdma_engine_rig_logged(&rig, "no answer"), 1);
	ck_assert_uint_le(rdma_engine_rig_logged(&rig, "\n"), 8 * windows);
	ck_assert_uint_ge(rdma_engine_rig_logged(&rig, "more of that peer is logged as DEBUG"), 1);
	for (uint32_t i = 0; i < 4; i++)
		for (uint32_t k = 4; k < 8; k++)
			sim_verbs_cut(&rig.sim, rig.devices[i], rig.devices[k], false);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rdma paths");
	TCase *tests = tcase_create("paths");
	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, sixty_four_paths_and_room_for_few, 0, 3);
	tcase_add_loop_test(tests, who_waits_ends_when_asked, 0, 3);
	tcase_add_test(tests, who_waits_for_a_device_that_goes);
	tcase_add_test(tests, ports_with_v6_alone);
	tcase_add_loop_test(tests, another_address_is_tried, 0, 3);
	tcase_add_loop_test(tests, no_address_is_taken, 0, 2);
	tcase_add_loop_test(tests, who_is_silent_is_given_up, 0, 4);
	tcase_add_test(tests, many_paths_fail_and_little_is_said);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
