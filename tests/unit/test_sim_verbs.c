/* Simulated verbs keep what they promise: they are the ground that other tests stand on. */
#include "tests/unit/rdma_rig.h"

#define BYTES 8192u
#define ALL (NEAP_VERBS_LOCAL_WRITE | NEAP_VERBS_REMOTE_WRITE | NEAP_VERBS_REMOTE_READ)

/* One end. */
struct side {
	struct neap_rdma_handle handle;
	struct neap_rdma_view view;
	struct neap_verbs_channel *channel;
	struct neap_verbs_cq *cq;
	struct neap_verbs_qp *qp;
	uint32_t number;
	struct neap_verbs_mr *mr;
	struct neap_verbs_keys keys;
	unsigned char memory[BYTES];
};
static struct side a, b;
static const struct neap_verbs_ops *ops;

static void open_side(struct side *side, const char *name)
{
	char why[256];
	memset(side, 0, sizeof *side);
	ck_assert_int_eq(neap_rdma_open(&rig.sim.verbs, name, 0, &side->handle, why, sizeof why), 0);
	ck_assert_int_eq(neap_rdma_look(&rig.sim.verbs, &side->handle, name, &(struct neap_rdma_wants){0}, &side->view, why, sizeof why), 0);
	ck_assert_int_eq(ops->create_channel(side->handle.context, &side->channel), 0);
	ck_assert_int_eq(ops->create_cq(side->handle.context, 256, side->channel, &side->cq), 0);
	struct neap_verbs_qp_options options = {.cq = side->cq, .send_max = 16, .receive_max = 4};
	ck_assert_int_eq(ops->create_qp(side->handle.pd, &options, &side->qp, &side->number), 0);
	ck_assert_int_eq(ops->register_memory(side->handle.pd, side->memory, BYTES, ALL, &side->mr, &side->keys), 0);
}

static int move(struct side *side, const struct side *peer, enum neap_verbs_qp_state to, uint8_t retry_count)
{
	struct neap_verbs_qp_change change = {
		.to = to, .port = 1, .access = ALL, .mtu_bytes = SIM_MTU_BYTES, .peer_qp_number = peer->number,
		.gid_index = side->view.gid.index, .reads_served_max = 16, .rnr_timer = 12, .hop_limit = 16, .timeout = 8,
		.retry_count = retry_count, .rnr_retry = 7, .reads_max = 16,
	};
	memcpy(change.peer_gid, peer->view.gid.gid, sizeof change.peer_gid);
	return ops->modify_qp(side->qp, &change);
}

static void connect_both(uint8_t retry_count)
{
	for (enum neap_verbs_qp_state to = NEAP_QP_INIT; to <= NEAP_QP_RTS; to++) {
		ck_assert_int_eq(move(&a, &b, to, retry_count), 0);
		ck_assert_int_eq(move(&b, &a, to, retry_count), 0);
	}
}

static void begin(void)
{
	rig_begin();
	ops = rig.sim.verbs.ops;
	open_side(&a, "rxe0");
	open_side(&b, "rxe1");
}

static void close_side(struct side *side)
{
	ck_assert_int_eq(ops->close(side->handle.context), -EBUSY);
	if (side->qp) {
		ck_assert_int_eq(ops->destroy_cq(side->cq), -EBUSY);
		ck_assert_int_eq(ops->destroy_qp(side->qp), 0);
	}
	ck_assert_int_eq(ops->destroy_channel(side->channel), -EBUSY);
	ck_assert_int_eq(ops->destroy_cq(side->cq), 0);
	ck_assert_int_eq(ops->destroy_channel(side->channel), 0);
	if (side->mr) {
		ck_assert_int_eq(ops->free_pd(side->handle.pd), -EBUSY);
		ck_assert_int_eq(ops->deregister_memory(side->mr), 0);
	}
	ck_assert_int_eq(neap_rdma_shut(&rig.sim.verbs, &side->handle), 0);
}

static void end(void)
{
	close_side(&a);
	close_side(&b);
	rig_end();
}

static struct neap_verbs_send operation(enum neap_verbs_opcode opcode, uint64_t id, uint32_t length)
{
	return (struct neap_verbs_send){.id = id, .opcode = opcode, .length = length, .lkey = a.keys.lkey, .rkey = b.keys.rkey,
	                                .local = (uintptr_t)a.memory, .remote = (uintptr_t)b.memory};
}

static int post(struct neap_verbs_send send)
{
	uint32_t posted;
	int error = ops->post_send(a.qp, &send, 1, &posted);
	ck_assert_uint_eq(posted, error ? 0 : 1);
	return error;
}

/* Time passes until the next completion of a. */
static struct neap_verbs_completion next(void)
{
	struct neap_verbs_completion completion;
	for (int i = 0; i < 100000; i++) {
		if (ops->poll_cq(a.cq, &completion, 1) == 1)
			return completion;
		rig_pass(1000);
	}
	ck_abort_msg("no completion");
}

static void completes(uint64_t id, enum neap_verbs_status status)
{
	struct neap_verbs_completion completion = next();
	ck_assert_uint_eq(completion.id, id);
	ck_assert_int_eq(completion.status, status);
	ck_assert_uint_eq(completion.qp_number, a.number);
}

START_TEST(a_write_completes_before_it_is_placed_and_a_read_waits_for_it)
{
	connect_both(6);
	memset(a.memory, 'w', BYTES);
	ck_assert_int_eq(post(operation(NEAP_VERBS_WRITE, 1, BYTES)), 0);
	completes(1, NEAP_WC_SUCCESS);
	ck_assert_int_ne(b.memory[BYTES - 1], 'w');
	a.memory[0] = 'x';
	struct neap_verbs_send fence = operation(NEAP_VERBS_READ, 2, 1);
	fence.remote += BYTES - 1;
	ck_assert_int_eq(post(fence), 0);
	completes(2, NEAP_WC_SUCCESS);
	ck_assert_int_eq(a.memory[0], 'w');
	ck_assert_int_eq(b.memory[BYTES - 1], 'w');
}
END_TEST

START_TEST(a_deregistered_region_is_reached_by_nothing)
{
	connect_both(6);
	memset(a.memory, 'w', BYTES);
	ck_assert_int_eq(post(operation(NEAP_VERBS_WRITE, 1, BYTES)), 0);
	completes(1, NEAP_WC_SUCCESS);
	ck_assert_int_eq(ops->deregister_memory(b.mr), 0);
	b.mr = NULL;
	memset(b.memory, 0, BYTES);
	rig_pass(10 * MS);
	for (uint32_t i = 0; i < BYTES; i++)
		ck_assert_uint_eq(b.memory[i], 0);
	ck_assert_int_eq(post(operation(NEAP_VERBS_WRITE, 2, 1)), 0);
	completes(2, NEAP_WC_REMOTE_ACCESS);
}
END_TEST

START_TEST(keys_bounds_and_rights)
{
	connect_both(6);
	struct neap_verbs_send send = operation(NEAP_VERBS_WRITE, 1, 16);
	enum neap_verbs_status wanted = NEAP_WC_REMOTE_ACCESS;
	if (_i == 0)
		send.rkey++;
	if (_i == 1)
		send.remote += BYTES - 15;
	if (_i == 2)
		send.remote -= 1;
	if (_i == 3)
		send.rkey = b.keys.lkey; /* not the same thing */
	if (_i >= 4)
		wanted = NEAP_WC_LOCAL_PROTECTION;
	if (_i == 4)
		send.lkey++;
	if (_i == 5)
		send.local += BYTES - 15;
	ck_assert_int_eq(post(send), 0);
	ck_assert_int_eq(post(operation(NEAP_VERBS_WRITE, 2, 16)), 0);
	completes(1, wanted);
	completes(2, NEAP_WC_FLUSHED); /* what is behind it */
	enum neap_verbs_qp_state state;
	ck_assert_int_eq(ops->query_qp(a.qp, &state), 0);
	ck_assert_int_eq(state, NEAP_QP_ERR);
	ck_assert_int_eq(ops->query_qp(b.qp, &state), 0);
	ck_assert_int_eq(state, wanted == NEAP_WC_REMOTE_ACCESS ? NEAP_QP_ERR : NEAP_QP_RTS);
}
END_TEST

START_TEST(nobody_answers)
{
	connect_both(_i ? 7 : 6);
	ck_assert_int_eq(ops->destroy_qp(b.qp), 0);
	b.qp = NULL;
	ck_assert_int_eq(post(operation(NEAP_VERBS_WRITE, 1, 16)), 0);
	if (_i == 0) {
		completes(1, NEAP_WC_RETRY_EXCEEDED);
		return;
	}
	struct neap_verbs_completion completion;
	rig_pass(2000 * MS);
	ck_assert_int_eq(ops->poll_cq(a.cq, &completion, 1), 0); /* never */
	ck_assert_int_eq(move(&a, &b, NEAP_QP_ERR, 7), 0);
	completes(1, NEAP_WC_FLUSHED);
}
END_TEST

START_TEST(messages_and_wakeups)
{
	struct neap_verbs_completion completion;
	connect_both(6);
	memcpy(a.memory, "hello", 5);
	ck_assert_int_eq(ops->arm_cq(b.cq), 0);
	ck_assert_int_eq(post(operation(NEAP_VERBS_SEND, 1, 5)), 0);
	rig_pass(MS);
	ck_assert_int_eq(ops->poll_cq(a.cq, &completion, 1), 0); /* no receive is there */
	struct neap_verbs_receive receive = {.id = 9, .local = (uintptr_t)b.memory, .length = 64, .lkey = b.keys.lkey};
	ck_assert_int_eq(ops->post_receive(b.qp, &receive), 0);
	completes(1, NEAP_WC_SUCCESS);
	ck_assert_int_eq(ops->take_wakeups(b.channel), 1);
	ck_assert_int_eq(ops->take_wakeups(b.channel), 0);
	ck_assert_int_eq(ops->poll_cq(b.cq, &completion, 1), 1);
	ck_assert_uint_eq(completion.id, 9);
	ck_assert_uint_eq(completion.length, 5);
	ck_assert_int_eq(memcmp(b.memory, "hello", 5), 0);
}
END_TEST

START_TEST(queues_are_bounded_and_states_enforced)
{
	uint32_t posted;
	struct neap_verbs_send sends[20];
	ck_assert_int_eq(post(operation(NEAP_VERBS_WRITE, 1, 1)), -EINVAL);
	ck_assert_int_eq(move(&a, &b, NEAP_QP_RTR, 6), -EINVAL);
	connect_both(6);
	for (uint32_t i = 0; i < 20; i++)
		sends[i] = operation(NEAP_VERBS_WRITE, i, 1);
	ck_assert_int_eq(ops->post_send(a.qp, sends, 20, &posted), -ENOMEM);
	ck_assert_uint_eq(posted, 16);
	for (uint32_t i = 0; i < 16; i++)
		completes(i, NEAP_WC_SUCCESS);
	sim_verbs_fail(&rig.sim, SIM_POST_SEND, 3, -EFAULT);
	ck_assert_int_eq(ops->post_send(a.qp, sends, 8, &posted), -EFAULT);
	ck_assert_uint_eq(posted, 2);
	ck_assert_int_eq(move(&a, &b, NEAP_QP_RESET, 6), 0); /* takes along what it owes */
	struct neap_verbs_completion completion;
	rig_pass(10 * MS);
	ck_assert_int_eq(ops->poll_cq(a.cq, &completion, 1), 0);
}
END_TEST

START_TEST(an_overrun_is_found)
{
	connect_both(6);
	rig.sim.overruns_allowed = true;
	for (uint32_t i = 0; i < 300; i++) {
		rig_pass(MS);
		(void)post(operation(NEAP_VERBS_WRITE, i, 1));
	}
	rig_pass(MS);
	ck_assert_uint_gt(rig.sim.overruns, 0);
}
END_TEST

static bool holds(const struct side *side, unsigned char byte, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		if (side->memory[i] != byte)
			return false;
	return true;
}

/* What was sent while the cable was cut comes when it is mended: by the queue pair that goes on, or by itself when that has given up. */
START_TEST(a_cable_that_is_cut_holds_back)
{
	connect_both(_i == 0 ? 7 : 2);
	memset(a.memory, 'w', BYTES);
	sim_verbs_cut(&rig.sim, rig.rxe0, rig.rxe1, true);
	ck_assert_int_eq(post(operation(NEAP_VERBS_WRITE, 1, BYTES)), 0);
	if (_i > 0)
		completes(1, NEAP_WC_RETRY_EXCEEDED);
	else
		rig_pass(1000 * MS);
	memset(a.memory, 'x', BYTES); /* it is ours again after RETRY_EXCEEDED, and before that it would be sent anew */
	ck_assert(!holds(&b, 'w', 1));
	if (_i == 2) { /* nobody expects them any more */
		ck_assert_int_eq(ops->destroy_qp(b.qp), 0);
		b.qp = NULL;
	}
	sim_verbs_cut(&rig.sim, rig.rxe0, rig.rxe1, false);
	rig_pass(100 * MS);
	if (_i == 0)
		completes(1, NEAP_WC_SUCCESS);
	rig_pass(100 * MS);
	ck_assert(holds(&b, _i == 0 ? 'x' : _i == 1 ? 'w' : 0, BYTES));
	ck_assert_uint_eq(rig.sim.strays_landed, _i == 1);
	ck_assert_uint_eq(rig.sim.strays_refused, _i == 2);
}
END_TEST

static void again(uint64_t seed)
{
	end();
	begin();
	rig.sim.random = seed;
}

/* What its owner moves to ERR may go on with its first operation, and says `flushed` of it. When that is polled it is over. */
START_TEST(a_queue_pair_lingers_in_error)
{
	static const unsigned char nothing[BYTES];
	uint32_t moved = 0;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		again(seed);
		connect_both(2);
		memset(_i ? b.memory : a.memory, 'w', BYTES);
		const unsigned char *to = _i ? a.memory : b.memory;
		ck_assert_int_eq(post(operation(_i ? NEAP_VERBS_READ : NEAP_VERBS_WRITE, 1, BYTES)), 0);
		ck_assert_int_eq(ops->modify_qp(a.qp, &(struct neap_verbs_qp_change){.to = NEAP_QP_ERR}), 0);
		completes(1, NEAP_WC_FLUSHED);
		bool moves = memcmp(to, nothing, BYTES) != 0;
		ck_assert_uint_eq(rig.sim.lingered, moves);
		moved += moves;
		memset(_i ? b.memory : a.memory, 'x', BYTES);
		rig_pass(100 * MS);
		ck_assert(!memchr(to, 'x', BYTES));
	}
	ck_assert(moved > 0 && moved < 20);
}
END_TEST

/* ERR does not stop a packet that was looked at before: what destroys the queue pair, or its region, waits for it. */
START_TEST(a_packet_is_caught_by_an_error)
{
	uint32_t caught = 0;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		again(seed);
		connect_both(2);
		memset(a.memory, 'w', BYTES);
		rig.sim.stray_max_ns = MS;
		ck_assert_int_eq(post(operation(NEAP_VERBS_WRITE, 1, BYTES)), 0);
		ck_assert_int_eq(ops->destroy_qp(a.qp), 0); /* the packets are on their way */
		a.qp = NULL;
		ck_assert_int_eq(ops->modify_qp(b.qp, &(struct neap_verbs_qp_change){.to = NEAP_QP_ERR}), 0);
		ck_assert(holds(&b, 0, BYTES));
		if (_i == 1)
			ck_assert_int_eq(ops->destroy_qp(b.qp), 0);
		if (_i == 1)
			b.qp = NULL;
		if (_i == 2)
			ck_assert_int_eq(ops->deregister_memory(b.mr), 0);
		if (_i == 2)
			b.mr = NULL;
		if (_i == 0)
			rig_pass(8 * MS);
		ck_assert(holds(&b, rig.sim.caught ? 'w' : 0, SIM_MTU_BYTES));
		caught += rig.sim.caught > 0;
		memset(b.memory, 0, BYTES);
		rig_pass(100 * MS);
		ck_assert(holds(&b, 0, BYTES));
	}
	ck_assert(caught > 0 && caught < 20);
}
END_TEST

/* A process that dies: its memory is reached by nothing, its packets are on their way, its owner can put away what is left. */
START_TEST(a_process_dies)
{
	struct neap_verbs_completion completion;
	connect_both(2);
	memset(a.memory, 'w', BYTES);
	rig.sim.stray_max_ns = 1;
	ck_assert_int_eq(post(operation(NEAP_VERBS_WRITE, 1, BYTES)), 0);
	ck_assert_int_eq(post(operation(NEAP_VERBS_WRITE, 2, BYTES)), 0);
	sim_process_kill(&rig.sim.process);
	rig_pass(100 * MS);
	ck_assert(holds(&b, 0, BYTES));
	ck_assert_int_eq(ops->poll_cq(a.cq, &completion, 1), 1);
	ck_assert_int_eq(completion.status, NEAP_WC_FLUSHED);
	ck_assert_int_eq(post(operation(NEAP_VERBS_WRITE, 3, 1)), -EINVAL);
	ck_assert_uint_eq(rig.rxe0->regions, 0);
	struct neap_verbs_context *context;
	ck_assert_int_eq(ops->open(rig.sim.verbs.user, "rxe0", &context), -ENODEV);
}
END_TEST

static uint32_t signals;

static void signaled(void *user)
{
	(void)user;
	signals++;
}

/* Each process has its devices, and descriptors that the test itself can ask. */
START_TEST(processes_have_devices_of_their_own)
{
	struct sim_process process;
	struct neap_verbs_context *context;
	struct neap_verbs_event event;
	sim_process_begin(&process, &rig.sim, 2, signaled, NULL);
	ck_assert_int_eq(ops->open(process.verbs.user, "rxe0", &context), -ENODEV);
	ck_assert_int_eq(ops->open(process.verbs.user, "rxe1", &context), 0);
	int fd = ops->event_fd(context);
	ck_assert_uint_eq(sim_verbs_ready(&rig.sim, fd), 0);
	signals = 0;
	sim_verbs_set_port(&rig.sim, rig.rxe1, NEAP_PORT_DOWN);
	ck_assert_uint_eq(signals, 1);
	ck_assert_uint_ne(sim_verbs_ready(&rig.sim, fd), 0);
	ck_assert_int_eq(ops->next_event(context, &event), 1);
	ck_assert_int_eq(ops->next_event(context, &event), 0);
	ck_assert_uint_eq(sim_verbs_ready(&rig.sim, fd), 0);
	ck_assert_int_eq(ops->close(context), 0);
}
END_TEST

START_TEST(limits_of_registration)
{
	struct neap_verbs_mr *mr;
	struct neap_verbs_keys keys;
	rig.rxe0->limits.mr_size_max = 4096;
	ck_assert_int_eq(ops->register_memory(a.handle.pd, a.memory, BYTES, ALL, &mr, &keys), -EINVAL);
	ck_assert_int_eq(ops->register_memory(a.handle.pd, a.memory, 16, NEAP_VERBS_REMOTE_WRITE, &mr, &keys), -EINVAL);
	rig.rxe0->locked_bytes_max = BYTES + 15;
	ck_assert_int_eq(ops->register_memory(a.handle.pd, a.memory, 16, ALL, &mr, &keys), -ENOMEM);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated verbs");
	TCase *tests = tcase_create("verbs");
	tcase_add_checked_fixture(tests, begin, end);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, a_write_completes_before_it_is_placed_and_a_read_waits_for_it);
	tcase_add_test(tests, a_deregistered_region_is_reached_by_nothing);
	tcase_add_loop_test(tests, keys_bounds_and_rights, 0, 6);
	tcase_add_loop_test(tests, nobody_answers, 0, 2);
	tcase_add_test(tests, messages_and_wakeups);
	tcase_add_test(tests, queues_are_bounded_and_states_enforced);
	tcase_add_test(tests, an_overrun_is_found);
	tcase_add_test(tests, limits_of_registration);
	tcase_add_loop_test(tests, a_cable_that_is_cut_holds_back, 0, 3);
	tcase_add_loop_test(tests, a_queue_pair_lingers_in_error, 0, 2);
	tcase_add_loop_test(tests, a_packet_is_caught_by_an_error, 0, 3);
	tcase_add_test(tests, a_process_dies);
	tcase_add_test(tests, processes_have_devices_of_their_own);
	suite_add_tcase(suite, tests);
	return rig_run(suite);
}
