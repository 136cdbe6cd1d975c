/* Memory on devices, over simulated verbs: pieces, roll-back at each of them, devices that come and go, and the end at every moment. */
#include "transports/rdma/rdma_memory.h"
#include "tests/unit/rdma_rig.h"

#define BYTES 40960u
#define MANY 10000u
#define ACCESS (NEAP_VERBS_LOCAL_WRITE | NEAP_VERBS_REMOTE_WRITE | NEAP_VERBS_REMOTE_READ)

static struct neap_topology *topology;
static struct neap_rdma_devices *devices;
static struct neap_rdma_memory *memory;
static unsigned char bytes[BYTES];
static uint32_t registrations, releases;
static int registered_as, released_as;
static char reason[256];
static bool memory_gone, devices_gone;

static void changed(void *user, struct neap_rdma_device *device)
{
	(void)user;
	(void)device;
	if (memory && !memory_gone)
		neap_rdma_memory_devices_changed(memory);
}

static void devices_closed(void *user)
{
	(void)user;
	devices_gone = true;
}

static void memory_closed(void *user)
{
	(void)user;
	ck_assert(neap_reactor_in_turn(rig.reactor));
	memory_gone = true;
}

static void create(uint64_t piece_max_bytes)
{
	struct neap_rdma_memory_options options = {
		.regions_max = MANY, .piece_max_bytes = piece_max_bytes, .slow_ns = 50 * MS, .retry_ns = 20 * MS};
	memory_gone = false;
	ck_assert_int_eq(neap_rdma_memory_create(rig.reactor, &rig.sim.verbs, &rig.helper.base, devices, &options, &memory), NEAP_OK);
}

static void begin(void)
{
	const struct neap_rdma_options wants = {.retry_ns = 100 * MS};
	const struct neap_rdma_listener listener = {changed, devices_closed, NULL};
	rig_begin();
	topology = neap_topology_new();
	(void)neap_topology_add_device(topology, "rxe0");
	(void)neap_topology_add_device(topology, "rxe1");
	memory = NULL;
	registrations = releases = 0;
	registered_as = released_as = 1;
	devices_gone = false;
	ck_assert_int_eq(neap_rdma_devices_open(rig.reactor, &rig.sim.verbs, &rig.helper.base, topology, &wants, &listener, &devices), NEAP_OK);
	rig_pass(10 * MS);
	create(16384); /* three pieces on each device */
}

static void close_memory(void)
{
	neap_rdma_memory_close(memory, memory_closed, NULL);
	ck_assert(!memory_gone);
	rig_pass(500 * MS);
	ck_assert(memory_gone);
}

static void end(void)
{
	if (!memory_gone)
		close_memory();
	if (!devices_gone)
		neap_rdma_devices_close(devices);
	rig_pass(200 * MS);
	ck_assert(devices_gone);
	ck_assert_uint_eq(rig.rxe0->regions + rig.rxe1->regions, 0);
	neap_topology_free(topology);
	rig_end();
}

static void registered(void *user, int error, const char *why)
{
	(void)user;
	registrations++;
	registered_as = error;
	(void)snprintf(reason, sizeof reason, "%s", why);
}

static void released(void *user, int error)
{
	(void)user;
	releases++;
	released_as = error;
}

static uint64_t add(uint64_t length)
{
	uint64_t id = 0;
	ck_assert_int_eq(neap_rdma_memory_register(memory, bytes, length, ACCESS, registered, NULL, &id), NEAP_OK);
	ck_assert_uint_eq(registrations, 0); /* never from inside */
	return id;
}

static uint64_t add_now(uint64_t length)
{
	registrations = 0;
	uint64_t id = add(length);
	rig_pass(20 * MS);
	ck_assert_uint_eq(registrations, 1);
	ck_assert_msg(registered_as == NEAP_OK, "%s", reason);
	return id;
}

static int keys(uint64_t id, const char *device, uint64_t offset, struct neap_verbs_keys *keys_p, uint64_t *end_p)
{
	int error = neap_rdma_memory_keys(memory, id, neap_rdma_devices_find(devices, device), bytes + offset, keys_p, end_p);
	if (!error)
		*end_p -= (uintptr_t)bytes;
	return error;
}

/* --- registering */

START_TEST(pieces_are_cut_alike_on_all_devices)
{
	struct neap_verbs_keys first, second, third, other;
	uint64_t end;
	uint64_t id = add_now(BYTES);
	ck_assert_uint_eq(rig.rxe0->regions, 3);
	ck_assert_uint_eq(rig.rxe1->regions, 3);
	ck_assert_int_eq(keys(id, "rxe0", 0, &first, &end), NEAP_OK);
	ck_assert_uint_eq(end, 16384);
	ck_assert_int_eq(keys(id, "rxe0", 16384, &second, &end), NEAP_OK);
	ck_assert_uint_eq(end, 32768);
	ck_assert_int_eq(keys(id, "rxe0", BYTES - 1, &third, &end), NEAP_OK);
	ck_assert_uint_eq(end, BYTES);
	ck_assert_int_eq(keys(id, "rxe1", 16383, &other, &end), NEAP_OK);
	ck_assert_uint_eq(end, 16384);
	ck_assert(first.lkey != second.lkey && second.rkey != third.rkey && first.rkey != other.rkey);
	ck_assert_int_eq(keys(id, "rxe0", BYTES, &first, &end), NEAP_ENOTREG);
	ck_assert_uint_eq(rig.sim.access_seen, ACCESS | NEAP_VERBS_RELAXED_ORDERING);
	ck_assert_uint_eq(neap_rdma_memory_count(memory), 1);
}
END_TEST

START_TEST(the_smallest_limit_of_the_devices_cuts)
{
	close_memory();
	rig.rxe1->limits.mr_size_max = 8192;
	sim_verbs_lose(&rig.sim, rig.rxe1);
	sim_verbs_regain(rig.rxe1);
	rig_pass(200 * MS); /* opened anew, and measured */
	create(0);
	(void)add_now(BYTES);
	ck_assert_uint_eq(rig.rxe0->regions, 5);
	ck_assert_uint_eq(rig.rxe1->regions, 5);
}
END_TEST

START_TEST(what_is_refused_at_the_door)
{
	uint64_t id;
	ck_assert_int_eq(neap_rdma_memory_register(memory, bytes, 0, ACCESS, registered, NULL, &id), NEAP_EINVAL);
	ck_assert_int_eq(neap_rdma_memory_register(memory, bytes, UINT64_MAX, ACCESS, registered, NULL, &id), NEAP_EINVAL);
	ck_assert_int_eq(neap_rdma_memory_register(memory, bytes, UINT64_C(16384) * NEAP_RDMA_PIECES_MAX + 1, ACCESS, registered, NULL, &id),
	                 NEAP_ELIMIT);
	ck_assert_int_eq(neap_rdma_memory_release(memory, 0, released, NULL), NEAP_ESTALE);
	rig.rxe0->present = rig.rxe1->present = false;
	sim_verbs_lose(&rig.sim, rig.rxe0);
	sim_verbs_lose(&rig.sim, rig.rxe1);
	rig_pass(10 * MS);
	ck_assert_int_eq(neap_rdma_memory_register(memory, bytes, BYTES, ACCESS, registered, NULL, &id), NEAP_ENODEV);
	neap_rdma_memory_close(memory, memory_closed, NULL);
	ck_assert_int_eq(neap_rdma_memory_register(memory, bytes, BYTES, ACCESS, registered, NULL, &id), NEAP_ECLOSED);
	rig_pass(10 * MS);
}
END_TEST

/* Six registrations: three pieces on each of two devices. */
START_TEST(each_piece_that_is_refused_takes_back_all)
{
	sim_verbs_fail(&rig.sim, SIM_REGISTER, (uint32_t)_i + 1, -ENOMEM);
	(void)add(BYTES);
	rig_pass(50 * MS);
	ck_assert_uint_eq(registrations, 1);
	ck_assert_int_eq(registered_as, NEAP_ECONTEXT);
	ck_assert_ptr_nonnull(strstr(reason, _i < 3 ? "rxe0: " : "rxe1: "));
	ck_assert_ptr_nonnull(strstr(reason, "Cannot allocate memory (ulimit -l"));
	ck_assert_uint_eq(rig.rxe0->regions + rig.rxe1->regions, 0);
	ck_assert_uint_eq(neap_rdma_memory_count(memory), 0);
	ck_assert_uint_eq(rig.sim.calls[SIM_DEREGISTER], (uint64_t)_i);
	(void)add_now(BYTES); /* nothing is broken */
}
END_TEST

START_TEST(memory_that_is_not_there_is_named_so)
{
	sim_verbs_fail(&rig.sim, SIM_REGISTER, 1, -EFAULT);
	(void)add(BYTES);
	rig_pass(50 * MS);
	ck_assert_ptr_nonnull(strstr(reason, "Bad address (is all of it mapped, and writable?)"));
}
END_TEST

START_TEST(locked_memory_and_regions_run_out)
{
	if (_i)
		rig.rxe1->locked_bytes_max = 20000;
	else
		rig.rxe1->limits.mr_max = 2;
	(void)add(BYTES);
	rig_pass(50 * MS);
	ck_assert_int_eq(registered_as, NEAP_ECONTEXT);
	ck_assert_uint_eq(rig.rxe0->locked_bytes + rig.rxe1->locked_bytes, 0);
}
END_TEST

START_TEST(ten_thousand)
{
	static uint64_t ids[MANY];
	close_memory();
	create(0);
	for (uint32_t i = 0; i < MANY; i++) {
		ck_assert_int_eq(neap_rdma_memory_register(memory, bytes + i, 1, ACCESS, registered, NULL, &ids[i]), NEAP_OK);
		if (i % 2000 == 1999)
			rig_pass(5000 * MS);
	}
	uint64_t more;
	ck_assert_int_eq(neap_rdma_memory_register(memory, bytes, 1, ACCESS, registered, NULL, &more), NEAP_ELIMIT);
	ck_assert_uint_eq(registrations, MANY);
	ck_assert_uint_eq(rig.rxe1->regions, MANY);
	for (uint32_t i = 0; i < MANY / 2; i += 2) {
		ck_assert_int_eq(neap_rdma_memory_release(memory, ids[i], released, NULL), NEAP_OK);
		if (i % 1000 == 998)
			rig_pass(1200 * MS);
	}
	ck_assert_uint_eq(releases, MANY / 4);
	ck_assert_uint_eq(rig.rxe1->regions, MANY - MANY / 4);
	for (uint32_t i = 0; i < 2; i++) {
		struct sim_device *device = i ? rig.rxe1 : rig.rxe0;
		ck_assert_uint_eq(device->locked_bytes, MANY - MANY / 4);
	}
	rig.helper.delay_ns = 1000; /* the end of the rest: a sweep over all */
}
END_TEST

/* --- releasing */

START_TEST(released_is_the_fence_and_said_once)
{
	struct neap_verbs_keys found;
	uint64_t end, id = add_now(BYTES);
	ck_assert_int_eq(neap_rdma_memory_release(memory, id, released, NULL), NEAP_OK);
	ck_assert_int_eq(neap_rdma_memory_release(memory, id, released, NULL), NEAP_OK); /* harmless */
	rig_turns();
	ck_assert_int_eq(keys(id, "rxe0", 0, &found, &end), NEAP_ENODEV); /* not from here on */
	ck_assert_int_eq(neap_rdma_memory_release(memory, id, released, NULL), NEAP_OK);
	rig_pass(20 * MS);
	ck_assert_uint_eq(releases, 1);
	ck_assert_int_eq(released_as, NEAP_OK);
	ck_assert_uint_eq(rig.rxe0->regions + rig.rxe1->regions, 0);
	ck_assert_int_eq(neap_rdma_memory_release(memory, id, released, NULL), NEAP_ESTALE);
	ck_assert_int_eq(keys(id, "rxe0", 0, &found, &end), NEAP_ESTALE);
}
END_TEST

START_TEST(released_while_it_is_being_registered)
{
	uint64_t id = add(BYTES);
	rig_pass((uint64_t)_i * MS);
	if (_i == 3)
		sim_verbs_fail(&rig.sim, SIM_REGISTER, 1, -ENOMEM); /* and that one fails */
	ck_assert_int_eq(neap_rdma_memory_release(memory, id, released, NULL), NEAP_OK);
	rig_pass(50 * MS);
	ck_assert_uint_eq(registrations, 1);
	ck_assert_uint_eq(releases, 1);
	ck_assert_int_eq(registered_as, _i < 6 ? NEAP_ECANCELED : NEAP_OK); /* six pieces, 1 ms each */
	ck_assert_int_eq(released_as, NEAP_OK);
	ck_assert_uint_eq(rig.rxe0->regions + rig.rxe1->regions, 0);
}
END_TEST

START_TEST(released_while_it_is_rolled_back)
{
	sim_verbs_fail(&rig.sim, SIM_REGISTER, 4, -ENOMEM);
	uint64_t id = add(BYTES);
	while (rig.sim.calls[SIM_REGISTER] < 4)
		rig_pass(MS);
	ck_assert_int_eq(neap_rdma_memory_release(memory, id, released, NULL), NEAP_OK);
	rig_pass(50 * MS);
	ck_assert_int_eq(registered_as, NEAP_ECONTEXT);
	ck_assert_uint_eq(releases, 1);
}
END_TEST

START_TEST(a_kernel_that_does_not_deregister_is_asked_again)
{
	uint64_t id = add_now(BYTES);
	sim_verbs_fail(&rig.sim, SIM_DEREGISTER, (uint32_t)_i + 1, -EBUSY);
	ck_assert_int_eq(neap_rdma_memory_release(memory, id, released, NULL), NEAP_OK);
	rig_pass(10 * MS);
	ck_assert_uint_eq(releases, 0);
	neap_rdma_memory_devices_changed(memory); /* changes nothing */
	rig_pass(50 * MS);
	ck_assert_uint_eq(releases, 1);
	ck_assert_int_eq(released_as, NEAP_OK);
	ck_assert_uint_eq(rig_logged("cannot be deregistered yet"), 1);
}
END_TEST

START_TEST(released_while_a_roll_back_is_stuck)
{
	sim_verbs_fail(&rig.sim, SIM_REGISTER, 3, -ENOMEM);
	sim_verbs_fail(&rig.sim, SIM_DEREGISTER, 1, -EBUSY);
	uint64_t id = add(BYTES);
	while (rig_logged("cannot be deregistered yet") == 0)
		rig_pass(MS);
	ck_assert_int_eq(neap_rdma_memory_release(memory, id, released, NULL), NEAP_OK);
	rig_pass(100 * MS);
	ck_assert_int_eq(registered_as, NEAP_ECONTEXT);
	ck_assert_int_eq(released_as, NEAP_OK);
}
END_TEST

START_TEST(and_left_with_it_in_the_end)
{
	close_memory();
	create(0);
	uint64_t id = add_now(BYTES);
	ck_assert_int_eq(neap_rdma_memory_release(memory, id, released, NULL), NEAP_OK);
	for (uint32_t tries = 0; tries < NEAP_RDMA_RELEASE_TRIES; tries++) {
		uint64_t calls = rig.sim.calls[SIM_DEREGISTER];
		sim_verbs_fail(&rig.sim, SIM_DEREGISTER, 1, -EBUSY);
		while (rig.sim.calls[SIM_DEREGISTER] == calls)
			rig_pass(MS);
	}
	rig_pass(50 * MS);
	ck_assert_uint_eq(releases, 1);
	ck_assert_int_eq(released_as, NEAP_EBUSY);
	ck_assert_uint_eq(rig_logged("rxe0: does not let go of memory"), 1);
	ck_assert_uint_eq(rig.rxe0->regions, 1);
	ck_assert_int_eq(sim_verbs_force(rig.rxe0), 1); /* what the end of the process would do */
}
END_TEST

/* --- devices that come and go */

START_TEST(a_device_that_fails_loses_it_and_gets_it_again)
{
	struct neap_verbs_keys before, found;
	uint64_t end, id = add_now(BYTES);
	ck_assert_int_eq(keys(id, "rxe0", 0, &before, &end), NEAP_OK);
	sim_verbs_lose(&rig.sim, rig.rxe0);
	rig_pass(20 * MS);
	ck_assert_uint_eq(rig.rxe0->regions, 0);
	ck_assert_ptr_null(rig.rxe0->contexts); /* it could be closed */
	ck_assert_int_eq(keys(id, "rxe0", 0, &found, &end), NEAP_ENODEV);
	ck_assert_int_eq(keys(id, "rxe1", 0, &found, &end), NEAP_OK);
	sim_verbs_regain(rig.rxe0);
	rig_pass(200 * MS);
	ck_assert_uint_eq(rig.rxe0->regions, 3);
	ck_assert_int_eq(keys(id, "rxe0", 0, &found, &end), NEAP_OK);
	ck_assert_uint_ne(found.rkey, before.rkey);
	ck_assert_uint_eq(registrations, 1);
}
END_TEST

START_TEST(one_that_comes_back_and_refuses_goes_without_it)
{
	struct neap_verbs_keys found;
	uint64_t end, id = add_now(BYTES);
	sim_verbs_lose(&rig.sim, rig.rxe0);
	sim_verbs_regain(rig.rxe0);
	rig.rxe0->locked_bytes_max = 20000; /* one piece */
	rig_pass(300 * MS);
	ck_assert_uint_eq(rig.rxe0->regions, 0);
	ck_assert_uint_eq(rig_logged("the device goes without it"), 1);
	ck_assert_int_eq(keys(id, "rxe1", 0, &found, &end), NEAP_OK);
	rig.rxe0->locked_bytes_max = UINT64_MAX;
	sim_verbs_lose(&rig.sim, rig.rxe0); /* once more */
	sim_verbs_regain(rig.rxe0);
	rig_pass(300 * MS);
	ck_assert_uint_eq(rig.rxe0->regions, 3);
}
END_TEST

START_TEST(lost_while_it_is_being_registered)
{
	(void)add(BYTES);
	rig_pass((uint64_t)_i * MS);
	sim_verbs_lose(&rig.sim, _i & 1 ? rig.rxe0 : rig.rxe1);
	if (_i == 9)
		sim_verbs_lose(&rig.sim, rig.rxe1);
	rig_pass(50 * MS);
	ck_assert_uint_eq(registrations, 1);
	ck_assert_uint_eq((_i & 1 ? rig.rxe0 : rig.rxe1)->regions, 0);
	ck_assert_ptr_null((_i & 1 ? rig.rxe0 : rig.rxe1)->contexts);
}
END_TEST

START_TEST(lost_while_it_is_being_registered_and_it_does_not_let_go)
{
	(void)add(BYTES);
	rig_pass(4 * MS); /* rxe0 has all, rxe1 one piece */
	sim_verbs_fail(&rig.sim, SIM_DEREGISTER, 1, -EBUSY);
	sim_verbs_lose(&rig.sim, rig.rxe0);
	rig_pass(100 * MS);
	ck_assert_int_eq(registered_as, NEAP_ECONTEXT);
	ck_assert_ptr_nonnull(strstr(reason, "rxe0: failed, and does not let go of memory"));
	ck_assert_uint_eq(rig.rxe0->regions + rig.rxe1->regions, 0);
}
END_TEST

START_TEST(a_port_that_is_down_keeps_its_memory)
{
	struct neap_verbs_keys found;
	uint64_t end, id = add_now(BYTES);
	sim_verbs_set_port(&rig.sim, rig.rxe0, NEAP_PORT_DOWN);
	rig_pass(20 * MS);
	ck_assert_int_eq(keys(id, "rxe0", 0, &found, &end), NEAP_OK);
	id = add_now(100); /* and gets new memory: it may come up */
	ck_assert_int_eq(keys(id, "rxe0", 0, &found, &end), NEAP_OK);
}
END_TEST

/* --- a slow kernel, and the end */

START_TEST(a_slow_kernel_is_said)
{
	sim_helper_hold(&rig.helper, true);
	uint64_t id = add(BYTES);
	for (uint32_t i = 0; i < 20; i++)
		(void)add(100);
	rig_pass(60 * MS);
	ck_assert_uint_eq(rig_logged("rxe0: the kernel has been at 16384 bytes of memory for 5"), 1);
	ck_assert_uint_eq(rig_logged("the kernel has been at"), 1); /* those that wait behind it have nothing to say */
	sim_helper_hold(&rig.helper, false);
	rig_pass(500 * MS);
	sim_helper_hold(&rig.helper, true);
	ck_assert_int_eq(neap_rdma_memory_release(memory, id, released, NULL), NEAP_OK);
	rig_pass(60 * MS);
	ck_assert_uint_eq(rig_logged("the kernel has been at"), 2);
	neap_rdma_memory_devices_changed(memory);
	rig_turns();
	sim_helper_hold(&rig.helper, false);
	rig_pass(20 * MS);
	ck_assert_uint_eq(releases, 1);
}
END_TEST

START_TEST(closed_at_every_moment)
{
	(void)add(BYTES);
	rig_pass((uint64_t)_i * MS);
	neap_rdma_memory_close(memory, memory_closed, NULL);
	if (_i & 1)
		sim_verbs_lose(&rig.sim, rig.rxe0);
	if (_i & 2)
		neap_rdma_devices_close(devices); /* they wait for it */
	rig_pass(100 * MS);
	ck_assert(memory_gone);
	ck_assert_uint_eq(registrations, 1);
	ck_assert_uint_eq(rig.rxe0->regions + rig.rxe1->regions, 0);
}
END_TEST

START_TEST(closed_while_the_kernel_refuses)
{
	(void)add_now(BYTES);
	sim_verbs_fail(&rig.sim, SIM_DEREGISTER, 2, -EBUSY);
	neap_rdma_memory_close(memory, memory_closed, NULL);
	rig_pass(100 * MS);
	ck_assert(memory_gone);
}
END_TEST

/* --- slabs that get new keys */

static struct renewal_told {
	struct neap_rdma_renewal renewal;
	uint32_t times;
	int error;
} renewals[3];

static void renewed(struct neap_rdma_renewal *renewal, int error)
{
	struct renewal_told *told = (struct renewal_told *)(void *)renewal;
	ck_assert(neap_reactor_in_turn(rig.reactor));
	told->times++;
	told->error = error;
}

static void renew(uint64_t id, uint32_t piece)
{
	renewals[piece] = (struct renewal_told){.renewal.done = renewed, .error = 1};
	ck_assert_int_eq(neap_rdma_memory_renew(memory, id, piece, &renewals[piece].renewal), NEAP_OK);
	ck_assert_uint_eq(renewals[piece].times, 0); /* never from inside */
}

static uint64_t add_slabs(void)
{
	uint64_t id = 0;
	registrations = 0;
	ck_assert_int_eq(neap_rdma_memory_register_slabs(memory, bytes, BYTES, ACCESS, 16384, registered, NULL, &id), NEAP_OK);
	rig_pass(20 * MS);
	ck_assert_int_eq(registered_as, NEAP_OK);
	return id;
}

START_TEST(slabs_are_cut_to_fit)
{
	uint64_t id = 0, end;
	struct neap_verbs_keys found;
	id = add_slabs();
	ck_assert_uint_eq(neap_rdma_memory_piece_bytes(memory, id), 16384);
	ck_assert_uint_eq(neap_rdma_memory_piece_bytes(memory, 0), 0);
	close_memory();
	create(8191); /* and no power of two */
	id = add_slabs();
	ck_assert_uint_eq(neap_rdma_memory_piece_bytes(memory, id), 4096);
	ck_assert_int_eq(keys(id, "rxe1", 4096, &found, &end), NEAP_OK);
	ck_assert_uint_eq(end, 8192);
	ck_assert_int_eq(neap_rdma_memory_register_slabs(memory, bytes, BYTES, ACCESS, 1, registered, NULL, &id), NEAP_OK);
	ck_assert_uint_eq(neap_rdma_memory_piece_bytes(memory, id), 16); /* or they were too many */
	close_memory();
	create(0);
}
END_TEST

START_TEST(a_renewed_slab_has_other_keys_and_the_others_theirs)
{
	struct neap_verbs_keys before[3], after;
	uint64_t end, id = add_slabs();
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(keys(id, "rxe1", i * 16384u, &before[i], &end), NEAP_OK);
	renew(id, 1);
	ck_assert_int_eq(keys(id, "rxe1", 16384, &after, &end), NEAP_ENODEV); /* at once */
	ck_assert_int_eq(keys(id, "rxe1", 0, &after, &end), NEAP_OK);
	while (!renewals[1].times)
		rig_pass(MS / 10);
	ck_assert_uint_eq(rig.sim.calls[SIM_DEREGISTER], 2);
	ck_assert_uint_eq(rig.rxe0->regions + rig.rxe1->regions, 4); /* off all devices when it is told */
	ck_assert_int_eq(renewals[1].error, NEAP_OK);
	rig_pass(20 * MS);
	ck_assert_int_eq(keys(id, "rxe1", 16384, &after, &end), NEAP_OK);
	ck_assert_uint_ne(after.rkey, before[1].rkey);
	ck_assert_int_eq(keys(id, "rxe1", 0, &after, &end), NEAP_OK);
	ck_assert_uint_eq(after.rkey, before[0].rkey);
	ck_assert_int_eq(keys(id, "rxe1", 32768, &after, &end), NEAP_OK);
	ck_assert_uint_eq(after.rkey, before[2].rkey);
	ck_assert_uint_eq(renewals[1].times, 1);
	ck_assert_int_eq(neap_rdma_memory_renew(memory, id, 3, &renewals[0].renewal), NEAP_EINVAL);
	ck_assert_int_eq(neap_rdma_memory_renew(memory, 0, 0, &renewals[0].renewal), NEAP_ESTALE);
}
END_TEST

/* A device is lost, comes back, the range is released, another slab is renewed: at each moment of a renewal. */
START_TEST(renewals_go_along_with_all_else)
{
	uint64_t id = add_slabs();
	uint32_t moment = (uint32_t)_i / 4, what = (uint32_t)_i % 4;
	renew(id, 1);
	rig_pass(moment * MS / 2);
	if (what == 0)
		ck_assert_int_eq(neap_rdma_memory_release(memory, id, released, NULL), NEAP_OK);
	if (what == 1 || what == 2)
		sim_verbs_lose(&rig.sim, rig.rxe0);
	if (what == 2)
		sim_verbs_regain(rig.rxe0);
	if (what == 3) {
		renew(id, 0);
		renew(id, 2);
	}
	rig_pass(300 * MS);
	ck_assert_uint_eq(renewals[1].times, 1);
	ck_assert_int_eq(renewals[1].error, NEAP_OK);
	ck_assert_uint_eq(rig.rxe0->regions, what < 2 ? 0 : 3);
	ck_assert_uint_eq(rig.rxe1->regions, what == 0 ? 0 : 3);
	if (what == 0)
		ck_assert_int_eq(released_as, NEAP_OK);
	for (uint32_t i = 0; what == 3 && i < 3; i += 2)
		ck_assert(renewals[i].times == 1 && renewals[i].error == NEAP_OK);
}
END_TEST

START_TEST(a_slab_that_is_refused_again_and_again_is_not_renewed)
{
	uint64_t id = add_slabs();
	renew(id, 1);
	for (uint32_t tries = 0; tries < NEAP_RDMA_RELEASE_TRIES; tries++) {
		ck_assert_uint_eq(renewals[1].times, 0);
		sim_verbs_fail(&rig.sim, SIM_DEREGISTER, 1, -EBUSY);
		rig_pass(20 * MS);
	}
	rig_pass(50 * MS);
	ck_assert_uint_eq(renewals[1].times, 1);
	ck_assert_int_eq(renewals[1].error, NEAP_EBUSY);
	renew(id, 1); /* what it kept once it has still */
	renew(id, 0);
	rig_pass(50 * MS);
	ck_assert_int_eq(renewals[1].error, NEAP_EBUSY);
	ck_assert_int_eq(renewals[0].error, NEAP_OK);
	ck_assert_int_eq(neap_rdma_memory_release(memory, id, released, NULL), NEAP_OK);
	rig_pass(50 * MS);
	ck_assert_int_eq(released_as, NEAP_EBUSY);
	ck_assert_int_eq(sim_verbs_force(rig.rxe0), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rdma memory");
	TCase *tests = tcase_create("memory");
	tcase_add_checked_fixture(tests, begin, end);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, pieces_are_cut_alike_on_all_devices);
	tcase_add_test(tests, the_smallest_limit_of_the_devices_cuts);
	tcase_add_test(tests, what_is_refused_at_the_door);
	tcase_add_loop_test(tests, each_piece_that_is_refused_takes_back_all, 0, 6);
	tcase_add_test(tests, memory_that_is_not_there_is_named_so);
	tcase_add_loop_test(tests, locked_memory_and_regions_run_out, 0, 2);
	tcase_add_test(tests, ten_thousand);
	tcase_add_test(tests, released_is_the_fence_and_said_once);
	tcase_add_loop_test(tests, released_while_it_is_being_registered, 0, 8);
	tcase_add_test(tests, released_while_it_is_rolled_back);
	tcase_add_loop_test(tests, a_kernel_that_does_not_deregister_is_asked_again, 0, 6);
	tcase_add_test(tests, released_while_a_roll_back_is_stuck);
	tcase_add_test(tests, and_left_with_it_in_the_end);
	tcase_add_test(tests, a_device_that_fails_loses_it_and_gets_it_again);
	tcase_add_test(tests, one_that_comes_back_and_refuses_goes_without_it);
	tcase_add_loop_test(tests, lost_while_it_is_being_registered, 0, 10);
	tcase_add_test(tests, lost_while_it_is_being_registered_and_it_does_not_let_go);
	tcase_add_test(tests, a_port_that_is_down_keeps_its_memory);
	tcase_add_test(tests, a_slow_kernel_is_said);
	tcase_add_loop_test(tests, closed_at_every_moment, 0, 10);
	tcase_add_test(tests, closed_while_the_kernel_refuses);
	tcase_add_test(tests, slabs_are_cut_to_fit);
	tcase_add_test(tests, a_renewed_slab_has_other_keys_and_the_others_theirs);
	tcase_add_loop_test(tests, renewals_go_along_with_all_else, 0, 4 * 10);
	tcase_add_test(tests, a_slab_that_is_refused_again_and_again_is_not_renewed);
	suite_add_tcase(suite, tests);
	return rig_run(suite);
}
