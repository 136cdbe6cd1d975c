/* Devices over simulated verbs: each transition, each reason, and what happens while the kernel is slow. */
#include "tests/unit/rdma_rig.h"

static struct neap_topology *topology;
static struct neap_rdma_devices *devices;
static struct neap_rdma_options wants;
static uint32_t told;
static bool ended, hold_on; /* hold_on: the listener keeps what it has when a device goes */
static uint32_t held;

static void changed(void *user, struct neap_rdma_device *device)
{
	(void)user;
	told++;
	if (device->letting_go && device->users > 1 && !hold_on) { /* the device itself counts while it tells */
		neap_rdma_device_unuse(device);
		held--;
	}
}

static void closed(void *user)
{
	(void)user;
	ck_assert(neap_reactor_in_turn(rig.reactor));
	ended = true;
}

static void start(void)
{
	const struct neap_rdma_listener listener = {changed, closed, NULL};
	ck_assert_int_eq(neap_rdma_devices_open(rig.reactor, &rig.sim.verbs, &rig.helper.base, topology, &wants, &listener, &devices), NEAP_OK);
}

static void begin(void)
{
	rig_begin();
	topology = neap_topology_new();
	ck_assert_ptr_nonnull(topology);
	(void)neap_topology_add_device(topology, "rxe0");
	(void)neap_topology_add_device(topology, "rxe1");
	wants = (struct neap_rdma_options){.retry_ns = 100 * MS, .slow_ns = 50 * MS};
	told = held = 0;
	ended = hold_on = false;
	start();
}

static void close_all(void)
{
	neap_rdma_devices_close(devices);
	neap_rdma_devices_close(devices); /* harmless */
	ck_assert(!ended);
	rig_pass(20 * MS);
	ck_assert(ended);
}

static void end(void)
{
	if (!ended)
		close_all();
	neap_topology_free(topology);
	rig_end();
}

static struct neap_rdma_device *rxe0(void)
{
	return neap_rdma_devices_find(devices, "rxe0");
}

static struct neap_rdma_device *rxe1(void)
{
	return neap_rdma_devices_find(devices, "rxe1");
}

static bool takes_part(const char *name)
{
	return !topology->devices[neap_topology_find(topology, name)].unusable;
}

/* --- opening */

START_TEST(devices_are_opened_and_their_address_is_chosen)
{
	ck_assert(!takes_part("rxe0"));
	rig_pass(10 * MS);
	ck_assert_uint_eq(neap_rdma_devices_count(devices), 2);
	ck_assert(neap_rdma_devices_at(devices, 1) == rxe1());
	ck_assert_ptr_null(neap_rdma_devices_find(devices, "rxe2"));
	ck_assert(rxe0()->usable && rxe1()->usable && rxe0()->settled);
	ck_assert_uint_eq(rxe0()->view.port_number, 1);
	ck_assert_uint_eq(rxe0()->view.gid.index, 1); /* IPv4 before link-local */
	ck_assert_uint_eq(rxe1()->view.gid.gid[15], 2);
	ck_assert_uint_eq(rxe0()->handle.limits.cqe_max, 4096);
	ck_assert(takes_part("rxe0") && takes_part("rxe1"));
	ck_assert_str_eq(rig.log, ""); /* a healthy start says nothing */
}
END_TEST

/* What is wrong with rxe0, and what is said; rxe1 works all the same. */
static void refused(const char *part)
{
	rig_pass(10 * MS);
	ck_assert(!rxe0()->usable && rxe0()->settled);
	ck_assert_msg(strstr(rxe0()->why, part), "'%s' is not in '%s'", part, rxe0()->why);
	ck_assert_ptr_nonnull(strstr(rxe0()->why, "rxe0"));
	ck_assert(!takes_part("rxe0"));
	ck_assert(rxe1()->usable);
	ck_assert_uint_eq(rig_logged(rxe0()->why), 1);
	rig_pass(350 * MS); /* tried again, and not said again */
	ck_assert_uint_eq(rig_logged(rxe0()->why), 1);
}

START_TEST(no_permission)
{
	rig.rxe0->forbidden = true;
	refused("no permission: let this user read and write /dev/infiniband/uverbs*");
	rig.rxe0->forbidden = false;
	rig_pass(110 * MS);
	ck_assert(rxe0()->usable && takes_part("rxe0"));
	ck_assert_str_eq(rxe0()->why, "");
}
END_TEST

START_TEST(no_driver)
{
	rig.rxe0->present = false;
	refused("ibverbs-providers");
}
END_TEST

START_TEST(not_to_be_opened)
{
	static const char *const parts[] = {"cannot be opened: No space left on device", "not in /dev/infiniband", "no permission"};
	static const int errors[] = {-ENOSPC, -ENOENT, -EPERM};
	sim_verbs_fail(&rig.sim, SIM_OPEN, 1, errors[_i]);
	rig_pass(10 * MS);
	ck_assert_ptr_nonnull(strstr(rxe0()->why, parts[_i]));
	rig_pass(110 * MS);
	ck_assert(rxe0()->usable);
}
END_TEST

START_TEST(too_small)
{
	static const struct {
		size_t offset;
		uint32_t value;
		const char *part;
	} limits[] = {
		{offsetof(struct neap_verbs_device_limits, cqe_max), 128, "completion queues"},
		{offsetof(struct neap_verbs_device_limits, wr_max), 8, "work requests"},
		{offsetof(struct neap_verbs_device_limits, read_target_max), 0, "RDMA READ"},
		{offsetof(struct neap_verbs_device_limits, mr_max), 0, "registration of memory"},
	};
	memcpy((char *)&rig.rxe0->limits + limits[_i].offset, &limits[_i].value, sizeof limits[_i].value);
	refused(limits[_i].part);
}
END_TEST

START_TEST(calls_that_fail_while_it_is_opened)
{
	static const enum sim_call calls[] = {SIM_QUERY_DEVICE, SIM_ALLOCATE_PD, SIM_QUERY_PORT, SIM_QUERY_GIDS};
	sim_verbs_fail(&rig.sim, calls[_i], 1, -ENOMEM);
	rig_pass(10 * MS);
	ck_assert(!rxe0()->usable);
	ck_assert_ptr_nonnull(strstr(rxe0()->why, "Cannot allocate memory"));
	rig_pass(200 * MS);
	ck_assert_msg(rxe0()->usable, "%s", rxe0()->why);
}
END_TEST

START_TEST(the_port_query_of_the_chosen_port_fails)
{
	sim_verbs_fail(&rig.sim, SIM_QUERY_PORT, 2, -EIO);
	rig_pass(10 * MS);
	ck_assert_ptr_nonnull(strstr(rxe0()->why, "does not answer"));
}
END_TEST

START_TEST(a_port_that_is_down_comes_up)
{
	rig.rxe0->port.status = NEAP_PORT_DOWN;
	refused("ACTIVE");
	sim_verbs_set_port(&rig.sim, rig.rxe0, NEAP_PORT_ACTIVE);
	rig_pass(5 * MS);
	ck_assert(rxe0()->usable && takes_part("rxe0"));
}
END_TEST

START_TEST(no_address_until_one_is_given)
{
	rig.rxe0->gid_count = 0;
	refused("port 1");
	rig.rxe0->gid_count = 2;
	sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_ADDRESS_CHANGE, .port = 1});
	rig_pass(5 * MS);
	ck_assert(rxe0()->usable);
}
END_TEST

START_TEST(the_address_that_is_asked_for)
{
	rig_pass(10 * MS);
	close_all();
	wants.wants = (struct neap_rdma_wants){.port = 1, .gid_fixed = true, .gid_index = 0};
	ended = false;
	neap_topology_regain(topology, 0);
	neap_topology_regain(topology, 1);
	start();
	rig_pass(10 * MS);
	ck_assert(rxe0()->usable);
	ck_assert_uint_eq(rxe0()->view.gid.index, 0);
}
END_TEST

START_TEST(those_that_the_filter_leaves_out_are_not_touched)
{
	rig_pass(10 * MS);
	close_all();
	ended = false;
	neap_topology_lose(topology, 0, "not named by the device filter");
	neap_topology_lose(topology, 1, NEAP_TOPOLOGY_NO_PORT); /* of that kind of reason one gets well */
	uint64_t opens = rig.sim.calls[SIM_OPEN];
	start();
	rig_pass(10 * MS);
	ck_assert_uint_eq(neap_rdma_devices_count(devices), 1);
	ck_assert_uint_eq(rig.sim.calls[SIM_OPEN], opens + 1);
	ck_assert(rxe1()->usable);
}
END_TEST

START_TEST(without_devices_it_ends_as_well)
{
	rig_pass(10 * MS);
	close_all();
	ended = false;
	neap_topology_lose(topology, 0, "x");
	neap_topology_lose(topology, 1, "x");
	start();
	rig_pass(10 * MS);
	ck_assert_uint_eq(neap_rdma_devices_count(devices), 0);
}
END_TEST

/* --- events */

START_TEST(a_link_goes_down_and_comes_back)
{
	rig_pass(10 * MS);
	told = 0;
	sim_verbs_set_port(&rig.sim, rig.rxe0, NEAP_PORT_DOWN);
	rig_turns();
	ck_assert(!rxe0()->usable); /* at once, before anybody has looked */
	ck_assert_ptr_nonnull(strstr(rxe0()->why, "rxe0: port 1 went down"));
	ck_assert(!takes_part("rxe0"));
	ck_assert_uint_eq(told, 1);
	rig_pass(5 * MS);
	ck_assert(!rxe0()->usable && !rxe0()->letting_go);
	sim_verbs_set_port(&rig.sim, rig.rxe0, NEAP_PORT_ACTIVE);
	rig_pass(5 * MS);
	ck_assert(rxe0()->usable && rxe1()->usable);
}
END_TEST

START_TEST(a_port_that_flaps_while_it_is_looked_at)
{
	rig_pass(10 * MS);
	sim_verbs_set_port(&rig.sim, rig.rxe0, NEAP_PORT_DOWN);
	rig_turns(); /* the look is under way */
	sim_verbs_set_port(&rig.sim, rig.rxe0, NEAP_PORT_ACTIVE);
	rig_turns();
	uint64_t runs = rig.helper.runs;
	rig_pass(5 * MS);
	ck_assert_uint_eq(rig.helper.runs, runs + 2); /* that one, and one after it */
	ck_assert(rxe0()->usable);
}
END_TEST

START_TEST(another_address)
{
	rig_pass(10 * MS);
	rig.rxe0->gids[1].gid[15] = 77;
	sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_ADDRESS_CHANGE, .port = 1});
	rig_turns();
	ck_assert(rxe0()->usable); /* works until it is known */
	rig_pass(5 * MS);
	ck_assert(rxe0()->usable);
	ck_assert_uint_eq(rxe0()->view.gid.gid[15], 77);
}
END_TEST

START_TEST(events_that_are_nobody_s_business_here)
{
	rig_pass(10 * MS);
	told = 0;
	sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_OTHER});
	sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_QP_FATAL, .qp_number = 17});
	rig_pass(5 * MS);
	ck_assert(rxe0()->usable);
	ck_assert_uint_eq(told, 0);
}
END_TEST

/* --- lost and found */

START_TEST(a_device_is_lost_and_comes_back)
{
	rig_pass(10 * MS);
	neap_rdma_device_use(rxe0());
	held = 1;
	if (_i) { /* its port was down before that */
		sim_verbs_set_port(&rig.sim, rig.rxe0, NEAP_PORT_DOWN);
		rig_pass(5 * MS);
	}
	sim_verbs_lose(&rig.sim, rig.rxe0);
	rig_turns();
	ck_assert(!rxe0()->usable && !takes_part("rxe0"));
	ck_assert_ptr_nonnull(strstr(rxe0()->why, "the device failed"));
	ck_assert_uint_eq(held, 0);
	rig_pass(150 * MS);
	ck_assert_ptr_nonnull(strstr(rxe0()->why, "libibverbs does not know it"));
	sim_verbs_regain(rig.rxe0);
	rig.rxe0->port.status = NEAP_PORT_ACTIVE;
	rig_pass(110 * MS);
	ck_assert(rxe0()->usable && takes_part("rxe0") && rxe1()->usable);
}
END_TEST

START_TEST(who_stands_on_it_keeps_it_open)
{
	hold_on = true;
	rig_pass(10 * MS);
	neap_rdma_device_use(rxe0());
	sim_verbs_lose(&rig.sim, rig.rxe0);
	rig_pass(1000 * MS);
	ck_assert(rxe0()->letting_go);
	ck_assert_ptr_nonnull(rig.rxe0->contexts);
	neap_rdma_device_unuse(rxe0());
	rig_pass(5 * MS);
	ck_assert_ptr_null(rig.rxe0->contexts);
}
END_TEST

START_TEST(lost_while_it_is_looked_at)
{
	rig_pass(10 * MS);
	hold_on = _i;
	if (hold_on)
		neap_rdma_device_use(rxe0());
	sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_ADDRESS_CHANGE, .port = 1});
	rig_turns();
	sim_verbs_lose(&rig.sim, rig.rxe0);
	rig_pass(5 * MS); /* the look comes back late */
	ck_assert(!rxe0()->usable);
	if (hold_on)
		neap_rdma_device_unuse(rxe0());
	rig_pass(5 * MS);
	ck_assert_ptr_null(rig.rxe0->contexts);
}
END_TEST

/* What a look under way answers late: usable, unusable, failed, overtaken by events. */
static void look_under_way(int kind)
{
	sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_ADDRESS_CHANGE, .port = 1});
	rig_turns();
	if (kind == 1)
		rig.rxe0->gid_count = 0;
	if (kind == 2)
		sim_verbs_fail(&rig.sim, SIM_QUERY_PORT, 1, -EIO);
	if (kind == 3) {
		sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_ADDRESS_CHANGE, .port = 1});
		rig_turns();
	}
}

START_TEST(late_answers_change_nothing)
{
	rig_pass(10 * MS);
	hold_on = _i & 4;
	if (hold_on)
		neap_rdma_device_use(rxe0());
	look_under_way(_i & 3);
	if (_i & 8) {
		neap_rdma_devices_close(devices);
	} else {
		sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_DEVICE_FATAL});
	}
	rig_pass(5 * MS);
	ck_assert(ended || !rxe0()->usable);
	if (hold_on)
		neap_rdma_device_unuse(rxe0());
	rig_pass(5 * MS);
	rig.rxe0->gid_count = 2;
}
END_TEST

START_TEST(a_look_that_fails_loses_the_device)
{
	rig_pass(10 * MS);
	look_under_way(2);
	rig_pass(5 * MS);
	ck_assert_ptr_nonnull(strstr(rxe0()->why, "does not answer"));
	rig_pass(110 * MS);
	ck_assert(rxe0()->usable);
}
END_TEST

START_TEST(an_overrun_queue_loses_the_device)
{
	rig_pass(10 * MS);
	sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_CQ_ERROR});
	rig_pass(5 * MS);
	ck_assert_ptr_nonnull(strstr(rxe0()->why, "a completion queue overran"));
}
END_TEST

START_TEST(a_device_that_says_nothing_and_is_gone)
{
	rig_pass(10 * MS);
	sim_verbs_vanish(&rig.sim, rig.rxe0);
	rig_pass(5 * MS);
	ck_assert(!rxe0()->usable);
	ck_assert_ptr_nonnull(strstr(rxe0()->why, "removal"));
}
END_TEST

START_TEST(one_that_cannot_be_closed)
{
	rig_pass(10 * MS);
	struct neap_verbs_context *context = rig.rxe0->contexts;
	sim_verbs_fail(&rig.sim, SIM_CLOSE, 1, -EBUSY);
	close_all();
	ck_assert_uint_eq(rig_logged("rxe0: cannot be closed"), 1);
	ck_assert_int_eq(rig.sim.ops.close(context), 0);
}
END_TEST

/* --- a slow kernel, and the end at every moment */

START_TEST(a_slow_kernel_is_said)
{
	sim_helper_hold(&rig.helper, true);
	rig_pass(60 * MS);
	ck_assert_uint_eq(rig_logged("rxe0: the kernel has not answered for 50 ms"), 1); /* opening */
	sim_helper_hold(&rig.helper, false);
	rig_pass(10 * MS);
	ck_assert(rxe0()->usable);
	sim_helper_hold(&rig.helper, true);
	look_under_way(0);
	rig_pass(60 * MS);
	ck_assert_uint_eq(rig_logged("rxe0: the kernel"), 2); /* looking */
	sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_DEVICE_FATAL});
	rig_pass(60 * MS);
	ck_assert_uint_eq(rig_logged("rxe0: the kernel"), 3); /* shutting */
	neap_rdma_devices_close(devices);
	rig_pass(60 * MS);
	ck_assert_uint_eq(rig_logged("rxe0: the kernel"), 4); /* closing */
	ck_assert(!ended);
	sim_helper_hold(&rig.helper, false);
	rig_pass(20 * MS);
	ck_assert(ended);
}
END_TEST

START_TEST(late_answers_at_the_end)
{
	static const int kinds[] = {0, 1, 2, 3};
	rig_pass(10 * MS);
	sim_helper_hold(&rig.helper, true);
	look_under_way(kinds[_i & 3]);
	if (_i & 4) {
		sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_DEVICE_FATAL});
		rig_turns();
	}
	neap_rdma_devices_close(devices);
	rig_turns();
	sim_helper_hold(&rig.helper, false);
	rig_pass(20 * MS);
	ck_assert(ended);
}
END_TEST

START_TEST(closed_while_it_is_being_opened)
{
	if (_i == 1)
		rig.rxe0->forbidden = true;
	if (_i == 2)
		rig.rxe0->gid_count = 0;
	rig_turns();
	close_all();
}
END_TEST

START_TEST(closed_while_it_is_down_or_away_or_lost)
{
	if (_i == 0)
		rig.rxe0->port.status = NEAP_PORT_DOWN;
	if (_i == 1)
		rig.rxe0->present = false;
	rig_pass(10 * MS);
	if (_i == 2) {
		hold_on = true;
		neap_rdma_device_use(rxe0());
		sim_verbs_lose(&rig.sim, rig.rxe0);
		rig_turns();
		neap_rdma_devices_close(devices);
		rig_pass(10 * MS);
		ck_assert(!ended);
		neap_rdma_device_unuse(rxe0());
		rig_pass(10 * MS);
		ck_assert(ended);
		return;
	}
	close_all();
}
END_TEST

START_TEST(a_reactor_that_stops_closes_them)
{
	rig_pass(10 * MS);
	neap_reactor_stop(rig.reactor);
	rig_pass(20 * MS);
	ck_assert(ended);
}
END_TEST

START_TEST(no_room_for_a_descriptor)
{
	rig_pass(10 * MS);
	close_all();
	neap_helper_end(&rig.helper.base);
	ck_assert_int_eq(support_reactor_destroy(rig.reactor), NEAP_OK);
	struct neap_reactor_options options = {.clock = {.now_ns = rig_clock}, .log = rig_log, .descriptors_max = 1};
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, &options), NEAP_OK);
	rig.sim.reactor = rig.helper.base.reactor = rig.reactor;
	(void)neap_reactor_run_at(rig.reactor, rig.now_ns, NULL);
	ended = false;
	neap_topology_regain(topology, 0);
	neap_topology_regain(topology, 1);
	start();
	rig_pass(10 * MS);
	ck_assert(rxe0()->usable != rxe1()->usable);
	ck_assert_uint_eq(rig_logged("raise descriptors_max"), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rdma devices");
	TCase *tests = tcase_create("devices");
	tcase_add_checked_fixture(tests, begin, end);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, devices_are_opened_and_their_address_is_chosen);
	tcase_add_test(tests, no_permission);
	tcase_add_test(tests, no_driver);
	tcase_add_loop_test(tests, not_to_be_opened, 0, 3);
	tcase_add_loop_test(tests, too_small, 0, 4);
	tcase_add_loop_test(tests, calls_that_fail_while_it_is_opened, 0, 4);
	tcase_add_test(tests, the_port_query_of_the_chosen_port_fails);
	tcase_add_test(tests, a_port_that_is_down_comes_up);
	tcase_add_test(tests, no_address_until_one_is_given);
	tcase_add_test(tests, the_address_that_is_asked_for);
	tcase_add_test(tests, those_that_the_filter_leaves_out_are_not_touched);
	tcase_add_test(tests, without_devices_it_ends_as_well);
	tcase_add_test(tests, a_link_goes_down_and_comes_back);
	tcase_add_test(tests, a_port_that_flaps_while_it_is_looked_at);
	tcase_add_test(tests, another_address);
	tcase_add_test(tests, events_that_are_nobody_s_business_here);
	tcase_add_loop_test(tests, a_device_is_lost_and_comes_back, 0, 2);
	tcase_add_test(tests, who_stands_on_it_keeps_it_open);
	tcase_add_loop_test(tests, lost_while_it_is_looked_at, 0, 2);
	tcase_add_loop_test(tests, late_answers_change_nothing, 0, 16);
	tcase_add_test(tests, a_look_that_fails_loses_the_device);
	tcase_add_test(tests, an_overrun_queue_loses_the_device);
	tcase_add_test(tests, a_device_that_says_nothing_and_is_gone);
	tcase_add_test(tests, one_that_cannot_be_closed);
	tcase_add_test(tests, a_slow_kernel_is_said);
	tcase_add_loop_test(tests, late_answers_at_the_end, 0, 8);
	tcase_add_loop_test(tests, closed_while_it_is_being_opened, 0, 3);
	tcase_add_loop_test(tests, closed_while_it_is_down_or_away_or_lost, 0, 3);
	tcase_add_test(tests, a_reactor_that_stops_closes_them);
	tcase_add_test(tests, no_room_for_a_descriptor);
	suite_add_tcase(suite, tests);
	return rig_run(suite);
}
