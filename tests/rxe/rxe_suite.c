/* The devices and the table of verbs against a kernel: two Soft-RoCE rails, rxe0 on nic0 and rxe1 on nic1. Runs as root in the guest of
 * tools/rxe-run, in one process, in this order. The machine is emulated, perhaps beside other work: PATIENCE is for what never comes. */
#include "tests/support/coverage.h"
#include "tests/support/drive.h"
#include "transports/rdma/rdma_memory.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 65536u
#define MANY_MAX 10000u
#define PATIENCE_MS (getenv("NEAP_FULL") ? 900000 : 120000)
#define ALL (NEAP_VERBS_LOCAL_WRITE | NEAP_VERBS_REMOTE_WRITE | NEAP_VERBS_REMOTE_READ | NEAP_VERBS_RELAXED_ORDERING)

static const struct neap_verbs_ops *ops;
static struct neap_reactor *reactor;
static struct neap_helper *helper;
static struct neap_topology *topology;
static struct neap_rdma_devices *devices;
static bool ended;

static void changed(void *user, struct neap_rdma_device *device)
{
	(void)user;
	(void)device;
}

static void closed(void *user)
{
	(void)user;
	ended = true;
}

static void begin(void)
{
	const struct neap_rdma_options options = {0};
	const struct neap_rdma_listener listener = {changed, closed, NULL};
	char why[256];
	ended = false;
	ops = neap_verbs_system.ops;
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), NEAP_OK);
	ck_assert_int_eq(neap_helper_begin(reactor, 2 * MANY_MAX, &helper, why, sizeof why), NEAP_OK);
	ck_assert_int_eq(neap_topology_discover("/sys", "rxe0,rxe1", &topology, why, sizeof why), NEAP_OK);
	ck_assert_int_eq(neap_rdma_devices_open(reactor, &neap_verbs_system, helper, topology, &options, &listener, &devices), NEAP_OK);
	ck_assert_uint_eq(neap_rdma_devices_count(devices), 2);
}

static void end(void)
{
	neap_rdma_devices_close(devices);
	ck_assert(drive_until(reactor, &ended, PATIENCE_MS));
	neap_helper_end(helper);
	ck_assert_int_eq(support_reactor_destroy(reactor), NEAP_OK);
	neap_topology_free(topology);
}

static struct neap_rdma_device *device(uint32_t index)
{
	return neap_rdma_devices_at(devices, index);
}

static bool both_settled(void *user)
{
	(void)user;
	return device(0)->settled && device(1)->settled;
}

static bool both_usable(void *user)
{
	(void)user;
	return device(0)->usable && device(1)->usable;
}

static bool first_down(void *user)
{
	(void)user;
	return !device(0)->usable && device(1)->usable;
}

static void wait_for(bool (*holds)(void *user), const char *what)
{
	ck_assert_msg(drive_all_until(&reactor, 1, holds, NULL, PATIENCE_MS), "%s: %s; %s", what, device(0)->why, device(1)->why);
}

static void shell(const char *command)
{
	ck_assert_msg(system(command) == 0, "%s", command);
}

START_TEST(devices_are_found_and_their_address_is_chosen)
{
	wait_for(both_usable, "not usable");
	for (uint8_t i = 0; i < 2; i++) {
		const struct neap_rdma_device *at = device(i);
		const uint8_t wanted[6] = {0xff, 0xff, 10, 77, 0, (uint8_t)(i + 1)};
		ck_assert_uint_eq(at->view.gid.index, 1); /* IPv4, RoCE v2 */
		ck_assert_int_eq(at->view.gid.type, NEAP_GID_ROCE_V2);
		ck_assert_mem_eq(at->view.gid.gid + 10, wanted, sizeof wanted);
		ck_assert_uint_eq(at->view.port.mtu_bytes, 4096);
		ck_assert(at->view.port.ethernet);
		ck_assert(strncmp(at->view.gid.netdev, "nic", 3) == 0);
	}
}
END_TEST

START_TEST(a_link_goes_down_and_comes_back)
{
	wait_for(both_usable, "at first");
	shell("ip link set nic0 down");
	wait_for(first_down, "after the link went down");
	ck_assert(strstr(device(0)->why, "rxe0"));
	shell("ip link set nic0 up");
	wait_for(both_usable, "after it came back");
}
END_TEST

/* --- the table: one end of a pair each */

struct side {
	struct neap_rdma_device *device;
	struct neap_verbs_channel *channel;
	struct neap_verbs_cq *cq;
	struct neap_verbs_qp *qp;
	struct neap_verbs_mr *mr;
	struct neap_verbs_keys keys;
	uint32_t number;
	unsigned char *memory;
};

static void make(struct side *side, uint32_t index)
{
	struct neap_rdma_device *on = side->device = device(index);
	struct neap_verbs_qp_options options = {.send_max = 64, .receive_max = 4};
	neap_rdma_device_use(on);
	side->memory = aligned_alloc(4096, BYTES);
	ck_assert_ptr_nonnull(side->memory);
	memset(side->memory, (int)index, BYTES);
	ck_assert_int_eq(ops->create_channel(on->handle.context, &side->channel), 0);
	ck_assert_int_eq(ops->create_cq(on->handle.context, 128, side->channel, &side->cq), 0);
	options.cq = side->cq;
	ck_assert_int_eq(ops->create_qp(on->handle.pd, &options, &side->qp, &side->number), 0);
	ck_assert_int_eq(ops->register_memory(on->handle.pd, side->memory, BYTES, ALL, &side->mr, &side->keys), 0);
}

static void move(struct side *side, const struct side *peer, enum neap_verbs_qp_state to)
{
	struct neap_verbs_qp_change change = {
		.to = to, .port = 1, .access = NEAP_VERBS_LOCAL_WRITE | NEAP_VERBS_REMOTE_WRITE | NEAP_VERBS_REMOTE_READ,
		.mtu_bytes = 4096, .peer_qp_number = peer->number, .gid_index = side->device->view.gid.index, .reads_served_max = 16,
		.rnr_timer = 12, .hop_limit = 16, .timeout = 14, .retry_count = 6, .rnr_retry = 7, .reads_max = 16,
	};
	memcpy(change.peer_gid, peer->device->view.gid.gid, sizeof change.peer_gid);
	ck_assert_int_eq(ops->modify_qp(side->qp, &change), 0);
}

static void unmake(struct side *side)
{
	ck_assert_int_eq(ops->destroy_qp(side->qp), 0);
	ck_assert_int_eq(ops->destroy_cq(side->cq), 0);
	ck_assert_int_eq(ops->destroy_channel(side->channel), 0);
	ck_assert_int_eq(ops->deregister_memory(side->mr), 0);
	neap_rdma_device_unuse(side->device);
	free(side->memory);
}

static struct neap_verbs_completion completion_of(struct side *side)
{
	struct neap_verbs_completion completion;
	for (uint64_t until = drive_now_ns() + PATIENCE_MS * UINT64_C(1000000); drive_now_ns() < until;) {
		int count = ops->poll_cq(side->cq, &completion, 1);
		ck_assert_int_ge(count, 0);
		if (count)
			return completion;
	}
	ck_abort_msg("no completion");
}

START_TEST(bytes_go_from_rail_to_rail)
{
	struct side a = {0}, b = {0};
	uint32_t posted;
	enum neap_verbs_qp_state state;
	wait_for(both_usable, "at first");
	make(&a, 0);
	make(&b, 1);
	for (enum neap_verbs_qp_state to = NEAP_QP_INIT; to <= NEAP_QP_RTS; to++) {
		move(&a, &b, to);
		move(&b, &a, to);
	}
	for (uint32_t i = 0; i < BYTES; i++)
		a.memory[i] = (unsigned char)(i * 7);
	ck_assert_int_eq(ops->arm_cq(a.cq), 0);
	struct neap_verbs_send sends[40]; /* more than one chain of the driver */
	for (uint32_t i = 0; i < 40; i++)
		sends[i] = (struct neap_verbs_send){.id = i, .opcode = NEAP_VERBS_WRITE, .length = 1024, .lkey = a.keys.lkey, .rkey = b.keys.rkey,
		                                    .local = (uintptr_t)a.memory + i * 1024, .remote = (uintptr_t)b.memory + i * 1024};
	ck_assert_int_eq(ops->post_send(a.qp, sends, 40, &posted), 0);
	ck_assert_uint_eq(posted, 40);
	for (uint32_t i = 0; i < 40; i++) {
		struct neap_verbs_completion completion = completion_of(&a);
		ck_assert_int_eq(completion.status, NEAP_WC_SUCCESS);
		ck_assert_uint_eq(completion.id, i);
	}
	ck_assert_int_ge(ops->take_wakeups(a.channel), 1);
	ck_assert_mem_eq(a.memory, b.memory, 40 * 1024);

	struct neap_verbs_send wrong = sends[0];
	wrong.rkey ^= 0xff;
	ck_assert_int_eq(ops->post_send(a.qp, &wrong, 1, &posted), 0);
	ck_assert_int_eq(completion_of(&a).status, NEAP_WC_REMOTE_ACCESS);
	ck_assert_int_eq(ops->query_qp(a.qp, &state), 0);
	ck_assert_int_eq(state, NEAP_QP_ERR);
	unmake(&a);
	unmake(&b);
}
END_TEST

/* --- memory */

static struct neap_rdma_memory *memory;
static uint32_t many, registered_ones, released_ones;
static bool memory_gone;

static void registered(void *user, int error, const char *why)
{
	(void)user;
	ck_assert_msg(error == NEAP_OK, "%s", why);
	registered_ones++;
}

static void released(void *user, int error)
{
	(void)user;
	ck_assert_int_eq(error, NEAP_OK);
	released_ones++;
}

static void memory_closed(void *user)
{
	(void)user;
	memory_gone = true;
}

static bool all_registered(void *user)
{
	(void)user;
	return registered_ones == many;
}

static bool half_released(void *user)
{
	(void)user;
	return released_ones == many / 2;
}

/* In pieces of 4096 bytes, so that each is two. */
START_TEST(thousands_of_registrations_on_both)
{
	many = getenv("NEAP_FULL") ? MANY_MAX : 1000;
	struct neap_rdma_memory_options options = {.regions_max = many, .piece_max_bytes = 4096};
	struct neap_verbs_keys keys[2];
	uint64_t ends[2];
	uint64_t *ids = calloc(many, sizeof *ids);
	unsigned char *bytes = aligned_alloc(4096, many * 8192);
	ck_assert(ids && bytes);
	wait_for(both_usable, "at first");
	ck_assert_int_eq(neap_rdma_memory_create(reactor, &neap_verbs_system, helper, devices, &options, &memory), NEAP_OK);
	for (uint32_t i = 0; i < many; i++)
		ck_assert_int_eq(neap_rdma_memory_register(memory, bytes + i * 8192, 8192, ALL, registered, NULL, &ids[i]), NEAP_OK);
	wait_for(all_registered, "not registered");
	for (uint32_t i = 0; i < 2; i++) {
		ck_assert_int_eq(neap_rdma_memory_keys(memory, ids[7], device(i), bytes + 7 * 8192 + 5000, &keys[i], &ends[i]), NEAP_OK);
		ck_assert_uint_eq(ends[i], (uintptr_t)bytes + 8 * 8192);
	}
	for (uint32_t i = 0; i < many / 2; i++)
		ck_assert_int_eq(neap_rdma_memory_release(memory, ids[i], released, NULL), NEAP_OK);
	wait_for(half_released, "not released");
	neap_rdma_memory_close(memory, memory_closed, NULL); /* the other half */
	ck_assert(drive_until(reactor, &memory_gone, PATIENCE_MS));
	free(bytes);
	free(ids);
}
END_TEST

/* --- without permission: a process of its own, because it is for ever */

static void *as_nobody(void)
{
	ck_assert_int_eq(setgid(65534), 0);
	ck_assert_int_eq(setuid(65534), 0);
	begin();
	wait_for(both_settled, "not settled");
	for (uint32_t i = 0; i < 2; i++) {
		ck_assert(!device(i)->usable);
		ck_assert_msg(strstr(device(i)->why, "no permission: let this user read and write"), "%s", device(i)->why);
	}
	end();
	return NULL;
}

START_TEST(without_permission_it_says_so)
{
	int status;
	shell("chmod 600 /dev/infiniband/uverbs*");
	pid_t child = fork();
	if (child == 0) {
		(void)as_nobody();
		_exit(0);
	}
	ck_assert(child > 0 && waitpid(child, &status, 0) == child);
	shell("chmod 666 /dev/infiniband/uverbs*");
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("Soft-RoCE");
	TCase *tests = tcase_create("devices"), *bare = tcase_create("permission");
	tcase_add_checked_fixture(tests, begin, end);
	tcase_set_timeout(tests, 1800);
	tcase_add_test(tests, devices_are_found_and_their_address_is_chosen);
	tcase_add_test(tests, bytes_go_from_rail_to_rail);
	tcase_add_test(tests, thousands_of_registrations_on_both);
	tcase_add_test(tests, a_link_goes_down_and_comes_back);
	tcase_add_test(bare, without_permission_it_says_so);
	suite_add_tcase(suite, tests);
	suite_add_tcase(suite, bare);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_VERBOSE);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
