/* The simulator itself: that its network behaves as Linux does where it matters, that a seed decides a run, and that the checkers of the
 * cluster can fail: each is shown what it is there to find, done by the harness itself. */
#include "reactor/address.h"
#include "tests/sim/md_world.h"
#include "tests/sim/st_world.h"
#include "tests/sim/te_world.h"

#include <check.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define PORT 4000

/* --- two hosts and one connection ---------------------------------------------------------------------------------------------- */

static struct sim *sim;
static struct sim_node *a, *b;
static struct neap_listener *listener;
static struct neap_stream *left, *right;
static uint32_t readies[2]; /* how often each end was told */

static void accept_one(struct neap_listener *from)
{
	int error = 0;
	right = from->ops->accept(from, &error);
	ck_assert_ptr_nonnull(right);
}

static void left_ready(struct neap_stream *stream, unsigned ready)
{
	(void)stream, (void)ready;
	readies[0]++;
	stream->ops->want(stream, 0);
}

static void right_ready(struct neap_stream *stream, unsigned ready)
{
	(void)ready;
	readies[1]++;
	stream->ops->want(stream, 0);
}

static struct neap_stream *dial(struct sim_node *from, uint32_t host)
{
	struct neap_sockaddr address;
	struct neap_socket_options options = {0};
	char text[32];
	int error = 0;
	snprintf(text, sizeof(text), "10.0.0.%u", host + 1);
	ck_assert_int_eq(neap_sockaddr_from_numeric(text, PORT, &address), NEAP_OK);
	struct neap_stream *stream = from->net.connect(&from->net, from->reactor, &address, &options, &error);
	ck_assert_ptr_nonnull(stream);
	stream->ready = left_ready;
	return stream;
}

/* Near, no accidents, windows of 100 bytes. */
static void two_hosts(void)
{
	struct neap_sockaddr address;
	struct neap_socket_options options = {0};
	int error = 0;
	sim = sim_create(7);
	sim->net = (struct sim_net_options){.delay_min_ns = 1000, .delay_max_ns = 900000, .segment_max = 64, .window_min = 100, .window_max = 100};
	sim->host = (struct sim_host_options){.latency_max_ns = 1000};
	a = sim_node_create(sim, 0);
	b = sim_node_create(sim, 1);
	left = right = NULL;
	memset(readies, 0, sizeof(readies));
	ck_assert_int_eq(neap_sockaddr_from_numeric("10.0.0.2", PORT, &address), NEAP_OK);
	listener = b->net.listen(&b->net, b->reactor, &address, &options, &error);
	ck_assert_ptr_nonnull(listener);
	listener->ready = accept_one;
	listener->ops->want(listener, true);
}

static void connected(void)
{
	two_hosts();
	left = dial(a, 1);
	sim_run_for(sim, 10 * MS);
	ck_assert_int_eq(a->net.connect_result(left), 0);
	ck_assert_ptr_nonnull(right);
	right->ready = right_ready;
	left->ops->want(left, 0);
	sim_run_for(sim, 10 * MS);
	memset(readies, 0, sizeof(readies));
}

static void close_left(void)
{
	left->ops->close(left, false);
	left = NULL;
}

static void close_right(bool abortive)
{
	right->ops->close(right, abortive);
	right = NULL;
}

static void over(void)
{
	if (left)
		close_left();
	if (right)
		close_right(false);
	listener->ops->close(listener);
	ck_assert_uint_eq(sim_node_finish(a, NULL, NULL), 0);
	ck_assert_uint_eq(sim_node_finish(b, NULL, NULL), 0);
	sim_destroy(sim);
}

static ssize_t put(struct neap_stream *stream, const void *bytes, size_t length)
{
	struct iovec vector = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
	return stream->ops->writev(stream, &vector, 1);
}

static ssize_t get(struct neap_stream *stream, void *bytes, size_t length)
{
	struct iovec vector = {.iov_base = bytes, .iov_len = length};
	return stream->ops->readv(stream, &vector, 1);
}

static unsigned char scratch[4096];

START_TEST(a_window_is_what_the_receiver_has_room_for)
{
	connected();
	ck_assert_int_eq(put(left, scratch, 1000), 100);
	ck_assert_int_eq(put(left, scratch, 1000), -EAGAIN);
	sim_run_for(sim, 10 * MS);
	ck_assert_int_eq(put(left, scratch, 1000), -EAGAIN); /* nobody has read */
	ck_assert_int_eq(get(right, scratch, 30), 30);
	left->ops->want(left, NEAP_WRITABLE);
	sim_run_for(sim, 10 * MS);
	ck_assert_uint_eq(readies[0], 1);
	ck_assert_int_eq(put(left, scratch, 1000), 30);
	over();
}
END_TEST

/* However delays fall, and across partitions that heal at any moment. */
START_TEST(order_is_kept_within_a_connection)
{
	unsigned char next = 0, expected = 0;
	uint32_t received = 0;
	connected();
	for (int round = 0; round < 2000; round++) {
		unsigned char bytes[7], got[256];
		for (unsigned i = 0; i < sizeof(bytes); i++)
			bytes[i] = (unsigned char)(next + i);
		ssize_t n = put(left, bytes, sizeof(bytes));
		next = (unsigned char)(next + (n > 0 ? n : 0));
		if (round % 50 == 20)
			sim_sever(sim, 0, 1, round % 100 == 20);
		if (round % 50 == 40)
			sim_heal(sim);
		sim_run_for(sim, sim_random_below(&sim->random[SIM_WORKLOAD], MS));
		while ((n = get(right, got, sizeof(got))) > 0)
			for (ssize_t i = 0; i < n; i++, received++)
				ck_assert_uint_eq(got[i], expected++);
	}
	ck_assert_uint_gt(received, 2000);
	over();
}
END_TEST

START_TEST(an_end_of_file_comes_behind_the_bytes)
{
	connected();
	ck_assert_int_eq(put(left, "hello", 5), 5);
	left->ops->shutdown_write(left);
	ck_assert_int_eq(put(left, "more", 4), -EPIPE);
	sim_run_for(sim, 10 * MS);
	ck_assert_int_eq(get(right, scratch, 100), 5);
	ck_assert_int_eq(get(right, scratch, 100), 0);
	ck_assert_int_eq(put(right, "answer", 6), 6); /* the other half is open */
	sim_run_for(sim, 10 * MS);
	ck_assert_int_eq(get(left, scratch, 100), 6);
	ck_assert_int_eq(get(left, scratch, 100), -EAGAIN);
	over();
}
END_TEST

START_TEST(what_the_kernel_has_is_delivered_after_close)
{
	connected();
	ck_assert_int_eq(put(left, "hello", 5), 5);
	close_left();
	sim_run_for(sim, 10 * MS);
	ck_assert_int_eq(get(right, scratch, 100), 5);
	ck_assert_int_eq(get(right, scratch, 100), 0);
	over();
}
END_TEST

START_TEST(closing_with_unread_bytes_is_a_reset)
{
	connected();
	ck_assert_int_eq(put(left, "hello", 5), 5);
	sim_run_for(sim, 10 * MS);
	close_right(false);
	sim_run_for(sim, 10 * MS);
	ck_assert_int_eq(get(left, scratch, 100), -ECONNRESET);
	ck_assert_int_eq(put(left, "x", 1), -ECONNRESET);
	over();
}
END_TEST

START_TEST(bytes_for_a_closed_end_are_answered_by_a_reset)
{
	connected();
	close_right(false);
	sim_run_for(sim, 10 * MS);
	ck_assert_int_eq(get(left, scratch, 100), 0);
	ck_assert_int_eq(put(left, "x", 1), 1);
	sim_run_for(sim, 10 * MS);
	ck_assert_int_eq(put(left, "x", 1), -ECONNRESET);
	ck_assert_int_eq(left->ops->unacknowledged(left), 1);
	over();
}
END_TEST

/* As Linux has it: a reset does not empty the receive buffer. Others may lose it. */
START_TEST(a_cut_leaves_what_has_arrived_or_not)
{
	bool loses = _i;
	connected();
	ck_assert_int_eq(put(left, "hello", 5), 5);
	sim_run_for(sim, 10 * MS);
	ck_assert(sim_cut_one(sim, 0, 1, loses));
	if (!loses)
		ck_assert_int_eq(get(right, scratch, 100), 5);
	ck_assert_int_eq(get(right, scratch, 100), -ECONNRESET);
	ck_assert_int_eq(get(left, scratch, 100), -ECONNRESET);
	over();
}
END_TEST

START_TEST(low_water_holds_readiness_back)
{
	connected();
	right->ops->low_water(right, 10);
	right->ops->want(right, NEAP_READABLE);
	ck_assert_int_eq(put(left, "12345", 5), 5);
	sim_run_for(sim, 10 * MS);
	ck_assert_uint_eq(readies[1], 0);
	ck_assert_int_eq(put(left, "67890", 5), 5);
	sim_run_for(sim, 10 * MS);
	ck_assert_uint_eq(readies[1], 1);
	ck_assert_int_eq(get(right, scratch, 100), 10);
	right->ops->want(right, NEAP_READABLE);
	left->ops->shutdown_write(left); /* an end of file is not held back */
	sim_run_for(sim, 10 * MS);
	ck_assert_uint_eq(readies[1], 2);
	over();
}
END_TEST

START_TEST(acknowledged_means_arrived_not_read)
{
	connected();
	ck_assert_int_eq(put(left, "hello", 5), 5);
	ck_assert_int_eq(left->ops->unacknowledged(left), 5);
	sim_run_for(sim, 10 * MS);
	ck_assert_int_eq(left->ops->unacknowledged(left), 0);
	over();
}
END_TEST

START_TEST(a_partition_holds_back_one_way_or_both)
{
	connected();
	sim_sever(sim, 0, 1, true);
	ck_assert_int_eq(put(left, "there", 5), 5);
	ck_assert_int_eq(put(right, "back", 4), 4);
	sim_run_for(sim, 1000 * MS);
	ck_assert_int_eq(get(right, scratch, 100), -EAGAIN);
	ck_assert_int_eq(get(left, scratch, 100), 4);
	sim_heal(sim);
	sim_run_for(sim, 10 * MS);
	ck_assert_int_eq(get(right, scratch, 100), 5);
	over();
}
END_TEST

START_TEST(connecting_fails_as_it_does)
{
	two_hosts();
	left = dial(a, 0); /* nobody listens there */
	sim_run_for(sim, 10 * MS);
	ck_assert_int_eq(a->net.connect_result(left), -ECONNREFUSED);
	close_left();
	sim_sever(sim, 0, 1, false);
	left = dial(a, 1);
	sim_run_for(sim, 1000 * MS);
	ck_assert_int_eq(a->net.connect_result(left), -EINPROGRESS);
	over();
}
END_TEST

/* The host of a process that dies closes its sockets; a host that dies says nothing. */
START_TEST(a_death_is_seen_or_not)
{
	bool host_dies = _i;
	connected();
	sim_node_crash(b, host_dies);
	sim_run_for(sim, 1000 * MS);
	ck_assert_int_eq(get(left, scratch, 100), host_dies ? -EAGAIN : 0);
	ck_assert_int_eq(put(left, "x", 1), 1);
	sim_run_for(sim, 1000 * MS);
	ck_assert_int_eq(get(left, scratch, 100), host_dies ? -EAGAIN : 0);
	over();
}
END_TEST

static uint32_t fired;
static void fire(struct neap_timer *timer, void *user)
{
	(void)timer, (void)user;
	fired++;
}

/* Its kernel goes on; a second, shorter pause does not end the first. */
START_TEST(a_paused_process_still_receives)
{
	struct neap_timer timer = {0};
	fired = 0;
	connected();
	ck_assert_int_eq(neap_timer_start(b->reactor, &timer, sim->now_ns + 5 * MS, fire, NULL), NEAP_OK);
	sim_node_pause(b, 1000 * MS);
	sim_node_pause(b, 10 * MS);
	ck_assert_int_eq(put(left, "hello", 5), 5);
	sim_run_for(sim, 900 * MS);
	ck_assert_uint_eq(fired, 0);
	ck_assert_int_eq(left->ops->unacknowledged(left), 0);
	sim_run_for(sim, 200 * MS);
	ck_assert_uint_eq(fired, 1);
	sim_node_pause(b, 100000 * MS);
	sim_node_resume(b);
	ck_assert_int_eq(neap_timer_start(b->reactor, &timer, sim->now_ns + 5 * MS, fire, NULL), NEAP_OK);
	sim_run_for(sim, 20 * MS);
	ck_assert_uint_eq(fired, 2);
	over();
}
END_TEST

/* Each allocation of a reactor in turn; then it succeeds. */
START_TEST(an_allocation_fails_when_told_to)
{
	struct sim *world = sim_create(1);
	uint32_t failed = 0;
	struct sim_node *node = NULL;
	for (world->fail_create_at = 0; !node; world->fail_create_at++, failed++)
		node = sim_node_create(world, 0);
	ck_assert_uint_gt(failed, 2);
	node->fail_allocation_at = node->allocations + 1;
	void *first = neap_allocate(node->reactor, 10), *second = neap_allocate(node->reactor, 10), *third = neap_allocate(node->reactor, 10);
	ck_assert(first && !second && third);
	neap_release(node->reactor, first, 10);
	ck_assert_uint_eq(sim_node_finish(node, NULL, NULL), 10); /* the third one was not given back */
	sim_node_abandon(node); /* it goes with the node */
	sim_destroy(world);
}
END_TEST

/* --- runs ------------------------------------------------------------------------------------------------------------------------- */

START_TEST(a_seed_decides_a_run)
{
	static struct te_result one, again, other;
	te_run(3, NULL, &one);
	te_run(3, NULL, &again);
	te_run(4, NULL, &other);
	ck_assert_msg(one.ok && other.ok, "%s%s", one.what, other.what);
	ck_assert_uint_eq(one.hash, again.hash);
	ck_assert_uint_eq(one.events, again.events);
	ck_assert_uint_ne(one.hash, other.hash);
	ck_assert_uint_gt(one.completed, 0);
}
END_TEST

/* Each seed draws for itself whether the occasion comes; where it comes the run must fail. */
START_TEST(a_checker_can_fail)
{
	uint32_t occasions = 0;
	for (uint64_t seed = 1; seed < 60 && occasions < 3; seed++) {
		static struct te_result result;
		struct te_options options;
		te_options_from_seed(seed, &options);
		options.slot_per_mille = 400;
		options.operations = options.operations < 120 ? options.operations : 120;
		options.sabotage = (enum te_sabotage)_i;
		te_run(seed, &options, &result);
		if (!result.sabotaged)
			continue;
		occasions++;
		ck_assert_msg(!result.ok, "sabotage %d in seed %llu was not found", _i, (unsigned long long)seed);
	}
	ck_assert_uint_gt(occasions, 0);
}
END_TEST

/* Of the library, made in its place by the devices, in the world that is made for it. docs/SIM.md has in how many seeds each is found. */
static const struct {
	enum sim_mistake mistake;
	enum te_aim aim;
} mistakes[] = {
	{SIM_MISTAKE_keeps_halves, TE_AIM_fences}, {SIM_MISTAKE_keeps_regions, TE_AIM_grants}, {SIM_MISTAKE_takes_checks, TE_AIM_reads},
	{SIM_MISTAKE_takes_checks, TE_AIM_placed}, {SIM_MISTAKE_old_keys, TE_AIM_keys},        {SIM_MISTAKE_small_queue, TE_AIM_queues},
	{SIM_MISTAKE_gives_buffers, TE_AIM_buffers},
};

START_TEST(a_mistake_over_devices_is_found)
{
	static struct te_result result;
	for (uint64_t seed = 1; seed <= 24; seed++) {
		struct te_options options;
		te_rdma_options_with_aim(seed, mistakes[_i].aim, &options);
		options.rdma.mistake = mistakes[_i].mistake;
		te_run(seed, &options, &result);
		if (!result.ok)
			return;
	}
	ck_abort_msg("mistake %d was not found in any seed", mistakes[_i].mistake);
}
END_TEST

START_TEST(an_aim_is_found_by_its_name)
{
	for (uint32_t aim = 0; aim < TE_AIM_COUNT; aim++)
		ck_assert_uint_eq(te_aim_named(te_aim_name((enum te_aim)aim)), aim);
	ck_assert_uint_eq(te_aim_named("moon"), TE_AIM_COUNT);
	ck_assert_uint_eq(te_mistake_named("old_keys"), SIM_MISTAKE_old_keys);
	ck_assert_uint_eq(te_mistake_named("moon"), SIM_MISTAKE_COUNT);
}
END_TEST

START_TEST(a_seed_decides_a_run_of_stores)
{
	static struct st_result one, again, other;
	st_run(3, NULL, &one);
	st_run(3, NULL, &again);
	st_run(4, NULL, &other);
	ck_assert_msg(one.ok && other.ok, "%s%s", one.what, other.what);
	ck_assert_uint_eq(one.hash, again.hash);
	ck_assert_uint_eq(one.events, again.events);
	ck_assert_uint_ne(one.hash, other.hash);
	ck_assert_uint_gt(one.succeeded, 0);
}
END_TEST

/* In one run the system's allocator answers from mappings, which grow downwards, in the other from its heap, which lies below them: what is
 * allocated first is above the rest, then below. That decides whether an index of addresses is copied or added to, and must come from the seed. */
START_TEST(a_seed_decides_where_memory_of_stores_lies)
{
	static struct st_result mapped, heap;
	struct st_options options;
	st_options_from_seed(3, &options);
	options.value_bytes = 160 << 10; /* a client's buffers are larger than a hole that is left in the heap */
	bool can = mallopt(M_MMAP_THRESHOLD, 4096) == 1;
	st_run(3, &options, &mapped);
	if (!can || mallopt(M_MMAP_THRESHOLD, 32 << 20) != 1)
		printf("the allocator cannot be told where to take memory (a sanitizer's): both runs have it from the same place\n");
	st_run(3, &options, &heap);
	ck_assert_msg(heap.ok && mapped.ok, "%s%s", heap.what, mapped.what);
	ck_assert_uint_eq(heap.hash, mapped.hash);
}
END_TEST

START_TEST(a_checker_of_stores_can_fail)
{
	uint32_t occasions = 0;
	for (uint64_t seed = 1; seed < 60 && occasions < 2; seed++) {
		static struct st_result result;
		struct st_options options;
		st_options_from_seed(seed, &options);
		if (!options.stable)
			continue;
		options.operations = options.operations < 100 ? options.operations : 100;
		options.sabotage = (uint32_t)_i;
		st_run(seed, &options, &result);
		if (!result.sabotaged)
			continue;
		occasions++;
		ck_assert_msg(!result.ok, "sabotage %d in seed %llu was not found", _i, (unsigned long long)seed);
	}
	ck_assert_uint_gt(occasions, 0);
}
END_TEST

START_TEST(a_seed_decides_a_run_of_stores_over_devices)
{
	static struct st_result one, again, other;
	struct st_options options;
	st_rdma_options_from_seed(3, &options);
	st_run(3, &options, &one);
	st_run(3, &options, &again);
	st_rdma_options_from_seed(4, &options);
	st_run(4, &options, &other);
	ck_assert_msg(one.ok && other.ok, "%s%s", one.what, other.what);
	ck_assert_uint_eq(one.hash, again.hash);
	ck_assert_uint_eq(one.events, again.events);
	ck_assert_uint_ne(one.hash, other.hash);
	ck_assert_uint_gt(one.sometimes.piece_posted + other.sometimes.piece_posted, 0);
}
END_TEST

/* What no device may do is seen by users of stores, sooner or later. */
START_TEST(devices_that_lie_are_found)
{
	static struct st_result result = {.ok = true};
	for (uint64_t seed = 1; seed < 600 && result.ok; seed++) {
		struct st_options options;
		st_rdma_options_from_seed(seed, &options);
		if (!options.faults_late || !options.faults_cut || options.faults_keep) /* those are slow to find something */
			continue;
		options.sabotage = (uint32_t)_i;
		st_run(seed, &options, &result);
	}
	ck_assert_msg(!result.ok, "sabotage %d was not found", _i);
}
END_TEST

START_TEST(a_seed_decides_a_run_over_metadata)
{
	static struct md_result one, again, other;
	md_run(3, NULL, &one);
	md_run(3, NULL, &again);
	md_run(4, NULL, &other);
	ck_assert_msg(one.ok && other.ok, "%s%s", one.what, other.what);
	ck_assert_uint_eq(one.hash, again.hash);
	ck_assert_uint_eq(one.events, again.events);
	ck_assert_uint_ne(one.hash, other.hash);
	ck_assert_uint_gt(one.found, 0);
}
END_TEST

START_TEST(a_checker_of_metadata_can_fail)
{
	uint32_t occasions = 0;
	for (uint64_t seed = 1; seed < 200 && occasions < 5; seed++) {
		static struct md_result result;
		struct md_options options;
		md_options_from_seed(seed, &options);
		options.sabotage = (uint32_t)_i;
		md_run(seed, &options, &result);
		if (!result.sabotaged)
			continue;
		occasions++;
		ck_assert_msg(!result.ok, "sabotage %d in seed %llu was not found", _i, (unsigned long long)seed);
	}
	ck_assert_uint_gt(occasions, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulator");
	TCase *net = tcase_create("net");
	tcase_add_test(net, a_window_is_what_the_receiver_has_room_for);
	tcase_add_test(net, order_is_kept_within_a_connection);
	tcase_add_test(net, an_end_of_file_comes_behind_the_bytes);
	tcase_add_test(net, what_the_kernel_has_is_delivered_after_close);
	tcase_add_test(net, closing_with_unread_bytes_is_a_reset);
	tcase_add_test(net, bytes_for_a_closed_end_are_answered_by_a_reset);
	tcase_add_loop_test(net, a_cut_leaves_what_has_arrived_or_not, 0, 2);
	tcase_add_test(net, low_water_holds_readiness_back);
	tcase_add_test(net, acknowledged_means_arrived_not_read);
	tcase_add_test(net, a_partition_holds_back_one_way_or_both);
	tcase_add_test(net, connecting_fails_as_it_does);
	suite_add_tcase(suite, net);
	TCase *nodes = tcase_create("nodes");
	tcase_add_loop_test(nodes, a_death_is_seen_or_not, 0, 2);
	tcase_add_test(nodes, a_paused_process_still_receives);
	tcase_add_test(nodes, an_allocation_fails_when_told_to);
	suite_add_tcase(suite, nodes);
	TCase *runs = tcase_create("runs");
	tcase_set_timeout(runs, 60);
	tcase_add_test(runs, a_seed_decides_a_run);
	tcase_add_loop_test(runs, a_checker_can_fail, TE_SABOTAGE_NONE + 1, TE_SABOTAGE_COUNT);
	tcase_add_loop_test(runs, a_mistake_over_devices_is_found, 0, (int)(sizeof mistakes / sizeof mistakes[0]));
	tcase_add_test(runs, an_aim_is_found_by_its_name);
	tcase_add_test(runs, a_seed_decides_a_run_of_stores);
	tcase_add_test(runs, a_seed_decides_where_memory_of_stores_lies);
	tcase_add_loop_test(runs, a_checker_of_stores_can_fail, ST_SABOTAGE_NONE + 1, ST_SABOTAGE_KEYS_STAY);
	tcase_add_test(runs, a_seed_decides_a_run_of_stores_over_devices);
	tcase_add_loop_test(runs, devices_that_lie_are_found, ST_SABOTAGE_KEYS_STAY, ST_SABOTAGE_COUNT);
	tcase_add_test(runs, a_seed_decides_a_run_over_metadata);
	tcase_add_loop_test(runs, a_checker_of_metadata_can_fail, MD_SABOTAGE_NONE + 1, MD_SABOTAGE_COUNT);
	suite_add_tcase(suite, runs);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
