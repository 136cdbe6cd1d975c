/* Completion queues on simulated devices: on and off their devices, polled, armed, never overrun. */
#include "transports/rdma/queue.h"
#include "transports/rdma/queue_fsm.h"
#include "tests/unit/rdma_rig.h"

static struct neap_topology *topology;
static struct neap_rdma_devices *devices;
static struct neap_rdma_queue queue;
static bool begun, closed;
static uint32_t changes, completions_seen;
static uint64_t last_id;

static void completed(void *user, struct neap_rdma_queue *at, const struct neap_verbs_completion *completions, uint32_t count)
{
	(void)user;
	ck_assert_ptr_eq(at, &queue);
	ck_assert(neap_reactor_in_turn(rig.reactor));
	completions_seen += count;
	last_id = completions[count - 1].id;
	neap_rdma_queue_give(&queue, count);
}

static void queue_changed(void *user, struct neap_rdma_queue *at)
{
	(void)user;
	(void)at;
	changes++;
}

static void device_changed(void *user, struct neap_rdma_device *device)
{
	(void)user;
	(void)device;
	if (begun)
		neap_rdma_queue_device_changed(&queue);
}

static void devices_closed(void *user)
{
	(void)user;
	closed = true;
}

static void begin(void)
{
	const struct neap_rdma_options wants = {.retry_ns = 100 * MS, .wants = {.cq_entries = 300}};
	const struct neap_rdma_listener listener = {device_changed, devices_closed, NULL};
	const struct neap_rdma_queue_listener hears = {completed, queue_changed, NULL};
	rig_begin();
	topology = neap_topology_new();
	(void)neap_topology_add_device(topology, "rxe0");
	begun = closed = false;
	changes = completions_seen = 0;
	ck_assert_int_eq(neap_rdma_devices_open(rig.reactor, &rig.sim.verbs, &rig.helper.base, topology, &wants, &listener, &devices), NEAP_OK);
	ck_assert_int_eq(neap_rdma_queue_begin(&queue, rig.reactor, &rig.sim.verbs, neap_rdma_devices_at(devices, 0), &hears), NEAP_OK);
	begun = true;
	rig_pass(10 * MS);
}

static void end(void)
{
	if (!closed)
		neap_rdma_devices_close(devices);
	rig_pass(200 * MS);
	ck_assert(closed);
	neap_rdma_queue_end(&queue);
	neap_topology_free(topology);
	rig_end();
}

START_TEST(serves_when_its_device_is_open)
{
	begin();
	ck_assert(queue.usable);
	ck_assert_uint_eq(changes, 1);
	ck_assert_uint_eq(queue.entries, 300);
	ck_assert_uint_eq(queue.view_changes, 1);
	end();
	ck_assert(!queue.usable);
	ck_assert_uint_eq(changes, 2);
}
END_TEST

START_TEST(never_gives_more_entries_than_it_has)
{
	begin();
	ck_assert_uint_eq(neap_rdma_queue_take(&queue, 200), 200);
	ck_assert_uint_eq(neap_rdma_queue_take(&queue, 200), 100);
	ck_assert_uint_eq(neap_rdma_queue_take(&queue, 1), 0);
	neap_rdma_queue_give(&queue, 300);
	ck_assert_uint_eq(neap_rdma_queue_take(&queue, 1), 1);
	neap_rdma_queue_give(&queue, 1);
	end();
}
END_TEST

/* A queue pair of its own, in ERR: whatever is posted to it is flushed, and so completes. */
START_TEST(completions_wake_it_and_are_told)
{
	const struct neap_verbs_ops *ops;
	struct neap_verbs_qp *qp;
	uint32_t number, posted;
	begin();
	ops = rig.sim.verbs.ops;
	neap_rdma_queue_use(&queue);
	struct neap_verbs_qp_options options = {.cq = queue.device->handle.cq, .send_max = 16, .receive_max = 1};
	ck_assert_int_eq(ops->create_qp(queue.device->handle.pd, &options, &qp, &number), 0);
	ck_assert_int_eq(ops->modify_qp(qp, &(struct neap_verbs_qp_change){.to = NEAP_QP_ERR}), 0);
	rig_turns(); /* armed */
	for (uint64_t id = 1; id <= 16; id++) {
		ck_assert_uint_eq(neap_rdma_queue_take(&queue, 1), 1);
		ck_assert_int_eq(ops->post_send(qp, &(struct neap_verbs_send){.id = id, .opcode = NEAP_VERBS_WRITE}, 1, &posted), 0);
	}
	rig_pass(50 * MS);
	ck_assert_uint_eq(completions_seen, 16);
	ck_assert_uint_eq(last_id, 16);
	ck_assert_uint_eq(queue.owed, 0);
	ck_assert_int_eq(ops->destroy_qp(qp), 0);
	neap_rdma_queue_unuse(&queue);
	end();
}
END_TEST

START_TEST(a_device_waits_for_its_users)
{
	begin();
	neap_rdma_queue_use(&queue);
	sim_verbs_lose(&rig.sim, rig.rxe0);
	rig_pass(MS);
	ck_assert(!queue.usable);
	ck_assert_uint_eq(queue.machine.state, rdma_queue_LEAVING);
	neap_rdma_queue_device_changed(&queue); /* said again: nothing */
	ck_assert_uint_eq(queue.machine.state, rdma_queue_LEAVING);
	neap_rdma_queue_unuse(&queue);
	rig_pass(20 * MS);
	ck_assert_uint_eq(queue.machine.state, rdma_queue_AWAY);
	sim_verbs_regain(rig.rxe0);
	rig_pass(300 * MS);
	ck_assert(queue.usable);
	ck_assert_uint_eq(changes, 3);
	end();
}
END_TEST

START_TEST(a_port_that_goes_and_comes_is_told)
{
	begin();
	sim_verbs_set_port(&rig.sim, rig.rxe0, NEAP_PORT_DOWN);
	rig_pass(20 * MS);
	ck_assert(!queue.usable);
	ck_assert_uint_eq(queue.machine.state, rdma_queue_SERVING);
	sim_verbs_set_port(&rig.sim, rig.rxe0, NEAP_PORT_ACTIVE);
	rig_pass(20 * MS);
	ck_assert(queue.usable);
	ck_assert_uint_eq(queue.view_changes, 1);
	end();
}
END_TEST

START_TEST(another_address_is_told)
{
	begin();
	rig.rxe0->gids[1].gid[15] ^= 0x55;
	sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_ADDRESS_CHANGE, .port = 1});
	rig_pass(20 * MS);
	ck_assert(queue.usable);
	ck_assert_uint_eq(queue.view_changes, 2);
	ck_assert_uint_eq(changes, 2);
	end();
}
END_TEST

/* A device that never opens: the queue has nothing to let go of. */
START_TEST(a_device_that_cannot_be_opened)
{
	const struct neap_rdma_options wants = {.retry_ns = 100 * MS};
	const struct neap_rdma_listener listener = {device_changed, devices_closed, NULL};
	const struct neap_rdma_queue_listener hears = {completed, queue_changed, NULL};
	rig_begin();
	rig.rxe0->forbidden = true;
	topology = neap_topology_new();
	(void)neap_topology_add_device(topology, "rxe0");
	begun = closed = false;
	ck_assert_int_eq(neap_rdma_devices_open(rig.reactor, &rig.sim.verbs, &rig.helper.base, topology, &wants, &listener, &devices), NEAP_OK);
	ck_assert_int_eq(neap_rdma_queue_begin(&queue, rig.reactor, &rig.sim.verbs, neap_rdma_devices_at(devices, 0), &hears), NEAP_OK);
	begun = true;
	rig_pass(10 * MS);
	ck_assert(!queue.usable);
	end();
}
END_TEST

/* No CQ to be had is no device. */
START_TEST(no_completion_queue_to_be_had)
{
	rig_begin();
	char why[256];
	struct neap_rdma_handle handle;
	sim_verbs_fail(&rig.sim, SIM_CREATE_CQ, 1, -ENOMEM);
	ck_assert_int_eq(neap_rdma_open(&rig.sim.verbs, "rxe0", 0, &handle, why, sizeof why), NEAP_ECONTEXT);
	ck_assert_ptr_nonnull(strstr(why, "rxe0: no completion queue to be had"));
	sim_verbs_fail(&rig.sim, SIM_CREATE_CHANNEL, 1, -EMFILE);
	ck_assert_int_eq(neap_rdma_open(&rig.sim.verbs, "rxe0", 0, &handle, why, sizeof why), NEAP_ECONTEXT);
	ck_assert_ptr_nonnull(strstr(why, "rxe0: no completion channel to be had"));
	rig_end();
}
END_TEST

int main(void)
{
	TCase *all = tcase_create("queue");
	tcase_add_test(all, serves_when_its_device_is_open);
	tcase_add_test(all, never_gives_more_entries_than_it_has);
	tcase_add_test(all, completions_wake_it_and_are_told);
	tcase_add_test(all, a_device_waits_for_its_users);
	tcase_add_test(all, a_port_that_goes_and_comes_is_told);
	tcase_add_test(all, another_address_is_told);
	tcase_add_test(all, a_device_that_cannot_be_opened);
	tcase_add_test(all, no_completion_queue_to_be_had);
	Suite *suite = suite_create("rdma_queue");
	suite_add_tcase(suite, all);
	return rig_run(suite);
}
