/* Sends through endpoints: room and shares, completions that are owed, silence, ends and fences; and which endpoints make room for others. */
#include "tests/unit/endpoint_rig.h"

static struct user here, there;

static void open_one(void)
{
	begin();
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_READY);
	node_register(&nodes[0]);
	node_register(&nodes[1]);
}

static struct neap_rdma_endpoint *endpoint(void)
{
	return here.base.endpoint;
}

/* --- room */

START_TEST(contiguous_parts_over_all_queue_pairs)
{
	open_one();
	ck_assert_uint_eq(neap_rdma_endpoint_room(endpoint()), 16);
	ck_assert_uint_eq(post(&nodes[0], &here, 5, NEAP_VERBS_WRITE, 100), 5);
	ck_assert_uint_eq(endpoint()->qps[0].posted, 3);
	ck_assert_uint_eq(endpoint()->qps[1].posted, 2);
	ck_assert_uint_eq(nodes[0].queue.owed, 5);
	ck_assert_uint_eq(neap_rdma_endpoint_room(endpoint()), 11);
	ck_assert_uint_eq(post(&nodes[0], &here, 1, NEAP_VERBS_WRITE, 100), 1); /* the other one first */
	ck_assert_uint_eq(endpoint()->qps[1].posted, 3);
	ck_assert_uint_eq(post(&nodes[0], &here, 20, NEAP_VERBS_WRITE, 100), 10); /* what there is room for */
	ck_assert_uint_eq(endpoint()->qps[0].posted, 8);
	ck_assert_uint_eq(endpoint()->qps[1].posted, 8);
	ck_assert_uint_eq(neap_rdma_endpoint_room(endpoint()), 0);
	ck_assert_uint_eq(post(&nodes[0], &here, 1, NEAP_VERBS_WRITE, 100), 0);
	ck_assert_uint_eq(here.room, 0);
	rig_pass(20 * MS);
	ck_assert_uint_eq(completed_well, 16);
	ck_assert_uint_ge(here.room, 1);
	ck_assert_uint_eq(neap_rdma_endpoint_room(endpoint()), 16);
	ck_assert_uint_eq(nodes[0].queue.owed, 0);
	end();
}
END_TEST

/* One is full, the other has room: the rest goes there. */
START_TEST(parts_are_not_equal_when_they_cannot_be)
{
	open_one();
	uint32_t first = ((struct rdma_endpoint *)(void *)endpoint())->next_qp;
	endpoint()->qps[first].posted = 7;
	endpoint()->owed = 7;
	nodes[0].queue.owed = 7;
	ck_assert_uint_eq(post(&nodes[0], &here, 8, NEAP_VERBS_WRITE, 10), 8);
	ck_assert_uint_eq(endpoint()->qps[first].posted, 8);
	ck_assert_uint_eq(endpoint()->qps[!first].posted, 7);
	endpoint()->qps[first].posted -= 7;
	endpoint()->owed -= 7;
	nodes[0].queue.owed -= 7;
	rig_pass(20 * MS);
	ck_assert_uint_eq(endpoint()->owed, 0);
	end();
}
END_TEST

/* The queue is shared: who found it full is told when others give back. */
START_TEST(room_in_the_queue_is_everybodys)
{
	open_one();
	uint32_t taken = neap_rdma_queue_take(&nodes[0].queue, 1000);
	ck_assert_uint_eq(taken, 300);
	neap_rdma_queue_give(&nodes[0].queue, 3);
	ck_assert_uint_eq(neap_rdma_endpoint_room(endpoint()), 3);
	ck_assert_uint_eq(post(&nodes[0], &here, 3, NEAP_VERBS_WRITE, 10), 3);
	ck_assert_uint_eq(neap_rdma_endpoint_room(endpoint()), 0);
	rig_pass(20 * MS);
	ck_assert_uint_ge(here.room, 1);
	ck_assert_uint_eq(neap_rdma_endpoint_room(endpoint()), 3);
	neap_rdma_queue_give(&nodes[0].queue, 297);
	end();
}
END_TEST

START_TEST(the_device_refuses_a_send)
{
	open_one();
	sim_verbs_fail(&rig.sim, SIM_POST_SEND, (uint32_t)_i, -ENOMEM);
	ck_assert_uint_eq(post(&nodes[0], &here, 6, NEAP_VERBS_WRITE, 100), (uint32_t)_i - 1);
	ck_assert(endpoint()->leaving);
	ck_assert_uint_eq(endpoint()->owed, (uint32_t)_i - 1);
	ck_assert_uint_eq(post(&nodes[0], &here, 1, NEAP_VERBS_WRITE, 100), 0);
	until_gone(&here);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_CONNECT_FAILED);
	ck_assert_str_eq(here.why, "rxe0 to 127.0.0.1:7001@rxe1: the device does not take a send: Cannot allocate memory");
	ck_assert_uint_eq(completed_well + completed_badly, (uint32_t)_i - 1); /* each that was posted came back */
	ck_assert_uint_eq(nodes[0].queue.owed, 0);
	end();
}
END_TEST

/* --- silence */

/* retry_count 7 never gives up on Soft-RoCE: our own clock does. */
START_TEST(nothing_is_done)
{
	begin();
	nodes[0].endpoints->options.retry_count = 7;
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_READY);
	node_register(&nodes[0]);
	node_register(&nodes[1]);
	ck_assert_uint_eq(post(&nodes[0], &here, 2, NEAP_VERBS_WRITE, 10), 2);
	rig_pass(300 * MS); /* idle time does not count */
	sim_verbs_set_port(&rig.sim, rig.rxe1, NEAP_PORT_DOWN); /* its endpoint goes, and nobody says so */
	rig_pass(50 * MS);
	ck_assert_uint_eq(post(&nodes[0], &here, 2, NEAP_VERBS_WRITE, 10), 2);
	rig_pass(390 * MS);
	ck_assert_uint_eq(here.leaving, 0);
	rig_pass(20 * MS);
	ck_assert_uint_eq(here.leaving, 1);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_NO_PROGRESS);
	ck_assert_str_eq(here.why, "rxe0 to 127.0.0.1:7001@rxe1: nothing was done for 400 ms (progress_timeout_ms)");
	until_gone(&here);
	ck_assert_uint_eq(completed_badly, 2); /* flushed */
	end();
}
END_TEST

/* Slow is not silent: each completion counts. */
START_TEST(slow_is_not_silent)
{
	open_one();
	rig.sim.latency_max_ns = 150 * MS;
	for (int i = 0; i < 8; i++) {
		ck_assert_uint_eq(post(&nodes[0], &here, 2, NEAP_VERBS_WRITE, 10), 2);
		rig_pass(150 * MS);
	}
	ck_assert_uint_eq(here.leaving, 0);
	end();
}
END_TEST

/* --- the end */

START_TEST(what_is_owed_is_waited_for)
{
	open_one();
	rig.sim.latency_max_ns = 20 * MS;
	ck_assert_uint_eq(post(&nodes[0], &here, 10, NEAP_VERBS_WRITE, 100), 10);
	neap_rdma_endpoint_retire(endpoint(), NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	ck_state(&here, rdma_endpoint_DRAINING);
	until_gone(&here);
	ck_assert_uint_eq(completed_well + completed_badly, 10);
	ck_assert_uint_eq(nodes[0].queue.owed, 0);
	end();
}
END_TEST

/* Some never come: their places in the queue are given back once the queue pairs are destroyed. */
START_TEST(what_does_not_come_is_given_up)
{
	open_one();
	rig.sim.latency_max_ns = 100000 * MS;
	ck_assert_uint_eq(post(&nodes[0], &here, 10, NEAP_VERBS_WRITE, 100), 10);
	neap_rdma_endpoint_retire(endpoint(), NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	rig_pass(190 * MS);
	ck_state(&here, rdma_endpoint_DRAINING);
	until_gone(&here);
	ck_assert_uint_lt(completed_well + completed_badly, 10);
	ck_assert_uint_eq(nodes[0].queue.owed, 0);
	ck_assert_uint_eq(nodes[0].queue.owed, 0);
	rig.sim.latency_max_ns = 50000;
	end();
}
END_TEST

START_TEST(a_send_that_fails_ends_it)
{
	open_one();
	nodes[1].keys.rkey ^= 0x1000;
	here.fence = true;
	ck_assert_uint_eq(post(&nodes[0], &here, 4, NEAP_VERBS_WRITE, 100), 4);
	until_gone(&here);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_PEER_RESET);
	ck_assert_uint_eq(completed_well, 0);
	ck_assert_uint_eq(completed_badly, 4);
	ck_assert(here.base.fenced);
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[1].endpoints), 0); /* so it is */
	nodes[1].keys.rkey ^= 0x1000;
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_READY);
	ck_carries(&nodes[0], &here);
	end();
}
END_TEST

/* A completion that the queue still held when its queue pair was destroyed: its place was given back already. */
START_TEST(a_completion_of_what_is_destroyed)
{
	open_one();
	here.fence = true;
	paired_net_hold(&net, true);
	neap_rdma_endpoint_retire(endpoint(), NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	until(&here, rdma_endpoint_FENCING);
	neap_rdma_endpoint_completed(endpoint(), endpoint()->qps[0].number);
	ck_assert_uint_eq(endpoint()->owed + nodes[0].queue.owed, 0);
	ck_assert_uint_eq(nodes[0].queue.owed, 0);
	paired_net_hold(&net, false);
	until_gone(&here);
	end();
}
END_TEST

/* Both want the other's half gone at the same time: neither waits for the other's fence. */
START_TEST(both_fence_each_other)
{
	open_one();
	use(&nodes[1], &there);
	here.fence = there.fence = true;
	ck_assert_uint_eq(post(&nodes[0], &here, 4, NEAP_VERBS_WRITE, 100), 4);
	ck_assert_uint_eq(post(&nodes[1], &there, 4, NEAP_VERBS_WRITE, 100), 4);
	neap_rdma_endpoint_retire(here.base.endpoint, NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	neap_rdma_endpoint_retire(there.base.endpoint, NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	uint64_t begun_ns = rig.now_ns;
	until_gone(&here);
	until_gone(&there);
	ck_assert_uint_lt(rig.now_ns - begun_ns, 100 * MS);
	ck_assert(here.base.fenced && there.base.fenced);
	end();
}
END_TEST

START_TEST(a_fence_that_is_not_to_be_had)
{
	open_one();
	here.fence = true;
	if (_i == 0) {
		neap_handshake_service_destroy(nodes[1].service); /* the peer is not there any more */
		rig_pass(MS);
	} else if (_i == 1) {
		nodes[1].deaf = true;
	} else {
		node_deregister(&nodes[1]);
		node_restart(&nodes[1]); /* another process cannot speak for the one that has died */
	}
	neap_rdma_endpoint_retire(endpoint(), NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	until_gone(&here);
	ck_assert(!here.base.fenced);
	if (_i == 0)
		node_serve(&nodes[1]);
	end();
}
END_TEST

static void count_fence(struct neap_rdma_fence *fence)
{
	fence->number = 0;
}

/* Who is fenced is told, also when it was the one that asked for the connection. Nobody waits for that. */
START_TEST(a_peer_is_told_that_it_is_fenced)
{
	struct neap_rdma_fence fence = {.done = count_fence};
	bool tells = _i != 1, hears = _i == 0;
	char why[NEAP_RDMA_WHY_SIZE];
	begin();
	if (tells)
		ck_assert_int_eq(neap_host_port_parse(nodes[0].server, 0, &nodes[0].endpoints->options.address, why, sizeof why), NEAP_OK);
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_READY);
	nodes[0].deaf = _i == 2;
	memcpy(fence.instance, nodes[0].instance, sizeof fence.instance);
	neap_rdma_endpoints_fence(nodes[1].endpoints, &fence);
	for (int i = 0; i < 50 && fence.number; i++)
		rig_pass(MS);
	ck_assert_uint_eq(fence.number, 0);
	rig_pass(50 * MS);
	ck_assert_uint_eq(here.gone, hears);
	if (hears)
		ck_assert_uint_eq(here.cause, NEAP_CAUSE_PEER_CLOSED);
	nodes[0].deaf = false;
	end();
}
END_TEST

START_TEST(a_fence_without_a_place_for_the_call)
{
	open_one();
	here.fence = true;
	neap_handshake_caller_destroy(nodes[0].caller);
	rig_pass(MS);
	ck_assert_int_eq(neap_handshake_caller_create(&nodes[0].caller, rig.reactor, 1, 0, NULL), NEAP_OK);
	nodes[0].endpoints->caller = nodes[0].caller;
	struct neap_rdma_target target = target_of(&nodes[1]);
	uint64_t call;
	nodes[1].deaf = true;
	ck_assert_int_eq(neap_handshake_call(nodes[0].caller, &target.address, NEAP_HANDSHAKE_CONNECTION, "{}", 2, 1000 * MS, NULL, NULL, &call), NEAP_OK);
	neap_rdma_endpoint_retire(endpoint(), NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	until_gone(&here);
	ck_assert(!here.base.fenced);
	neap_handshake_cancel(nodes[0].caller, call);
	end();
}
END_TEST

/* --- users */

static struct user many[3];
static struct user *reused;

static void unuse_all(struct user *user, enum neap_rdma_news news)
{
	if (news != NEAP_RDMA_LEAVING)
		return;
	for (int i = 0; i < 3; i++)
		if (&many[i] != user && many[i].base.endpoint)
			neap_rdma_endpoint_unuse(&many[i].base);
}

static void use_again(struct user *user, enum neap_rdma_news news)
{
	if (news != NEAP_RDMA_GONE)
		return;
	reused = user;
	use(&nodes[0], user);
}

/* Who hears of the end takes the others off, or begins anew from inside. */
START_TEST(users_come_and_go_from_inside)
{
	open_one();
	for (int i = 0; i < 3; i++) {
		use(&nodes[0], &many[i]);
		many[i].then = unuse_all;
	}
	here.then = use_again;
	neap_rdma_endpoint_retire(endpoint(), NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	rig_pass(50 * MS);
	ck_assert_uint_eq(many[0].leaving + many[1].leaving + many[2].leaving, 1);
	ck_assert_uint_eq(many[0].gone + many[1].gone + many[2].gone, 1);
	ck_assert_ptr_eq(reused, &here);
	ck_assert(endpoint()->usable);
	ck_carries(&nodes[0], &here);
	end();
}
END_TEST

/* Several wait for the one that leaves. */
START_TEST(successors_are_shared)
{
	open_one();
	neap_rdma_endpoint_retire(endpoint(), NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	use(&nodes[0], &many[0]);
	use(&nodes[0], &many[1]);
	ck_assert_ptr_eq(many[0].base.endpoint, many[1].base.endpoint);
	ck_state(&many[0], rdma_endpoint_SUCCEEDING);
	neap_rdma_endpoint_retire(many[0].base.endpoint, NEAP_CAUSE_CANCELED_BY_USER, "neither is this");
	use(&nodes[0], &many[2]); /* waits for the first, though the second is between */
	ck_state(&many[2], rdma_endpoint_SUCCEEDING);
	until(&many[2], rdma_endpoint_READY);
	ck_assert_uint_eq(many[0].gone + many[1].gone + here.gone, 3);
	end();
}
END_TEST

/* --- who makes room */

static int use_path(struct user *user, uint32_t n)
{
	static char nic[16];
	struct neap_rdma_target target = target_of(&nodes[1]);
	(void)snprintf(nic, sizeof nic, "other%u", n);
	if (n > 0)
		target.nic = nic;
	user_begin(user);
	return neap_rdma_endpoint_use(nodes[0].endpoints, &nodes[0].queue, &target, &user->base);
}

#define PRETENDED_MAX 1024u
static bool pretend_and_connect; /* so that what is sent arrives */
static uint32_t pretended_ends;  /* asked for */

static void connect_pretended(struct neap_verbs_qp *qp, const struct neap_connection_message *request, uint32_t i)
{
	struct neap_verbs_qp_change change = {.to = NEAP_QP_INIT, .port = 1, .access = NEAP_VERBS_REMOTE_WRITE};
	ck_assert_int_eq(rig.sim.ops.modify_qp(qp, &change), 0);
	change = (struct neap_verbs_qp_change){.to = NEAP_QP_RTR, .port = 1, .mtu_bytes = SIM_MTU_BYTES, .gid_index = 1,
	                                       .peer_qp_number = request->qp_nums[i], .receive_psn = request->neap.psns[i], .reads_served_max = 1};
	memcpy(change.peer_gid, request->local_gid, sizeof change.peer_gid);
	ck_assert_int_eq(rig.sim.ops.modify_qp(qp, &change), 0);
}

/* Peers of many NICs: every path is taken for this one. */
static int pretend(struct node *node, uint64_t ticket, const struct neap_connection_message *request, struct neap_connection_message *reply)
{
	static struct neap_verbs_qp *qps[PRETENDED_MAX];
	static uint32_t count;
	(void)ticket;
	if (!node) { /* the end */
		for (; count > 0; count--)
			ck_assert_int_eq(rig.sim.ops.destroy_qp(qps[count - 1]), 0);
		pretended_ends = 0;
		return 0;
	}
	reply->local_nic_path = strdup(request->peer_nic_path);
	reply->peer_nic_path = strdup(request->local_nic_path);
	reply->neap.present = true;
	memcpy(reply->neap.instance, node->instance, sizeof node->instance);
	if (request->neap.retire) {
		pretended_ends++;
		return NEAP_OK;
	}
	reply->has_gid = true;
	memcpy(reply->local_gid, node->queue.gid.gid, sizeof reply->local_gid);
	reply->neap.mtu_bytes = 4096;
	reply->neap.depth = 8;
	reply->neap.psn_count = reply->qp_count = request->qp_count;
	for (uint32_t i = 0; i < request->qp_count; i++) {
		const struct neap_verbs_qp_options options = {.cq = node->queue.device->handle.cq, .send_max = 1, .receive_max = 1};
		ck_assert_uint_lt(count, PRETENDED_MAX);
		ck_assert_int_eq(rig.sim.ops.create_qp(node->queue.device->handle.pd, &options, &qps[count], &reply->qp_nums[i]), 0);
		if (pretend_and_connect)
			connect_pretended(qps[count], request, i);
		count++;
	}
	return NEAP_OK;
}

static void end_pretending(void)
{
	node_die(&nodes[0]);
	pretend(NULL, 0, NULL, NULL);
	end();
}

/* Whoever made room says so: the other end does not wait for packets that nobody answers. */
START_TEST(the_peer_of_one_that_made_room_is_told)
{
	struct user other;
	begin();
	nodes[0].endpoints->options.endpoints_max = 1;
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_READY);
	use(&nodes[1], &there);
	until(&there, rdma_endpoint_READY);
	((struct rdma_endpoint *)(void *)here.base.endpoint)->chances = 0;
	rig_pass(MS);
	ck_assert_int_eq(use_path(&other, 1), NEAP_OK);
	rig_pass(50 * MS);
	ck_assert_uint_eq(here.gone, 1);
	ck_assert(here.base.fenced);
	ck_assert_uint_eq(there.gone, 1);
	ck_assert_uint_eq(there.cause, NEAP_CAUSE_PEER_CLOSED);
	end();
}
END_TEST

START_TEST(the_idle_one_makes_room)
{
	struct user users[9];
	begin();
	nodes[0].endpoints->options.endpoints_max = 4;
	nodes[1].instead = pretend;
	for (uint32_t n = 0; n < 4; n++) {
		ck_assert_int_eq(use_path(&users[n], n), NEAP_OK);
		until(&users[n], rdma_endpoint_READY);
	}
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[0].endpoints), 4);
	rig.sim.latency_max_ns = 100000 * MS;
	node_register(&nodes[0]);
	for (uint32_t n = 0; n < 4; n++) /* all but number 2 have work */
		if (n != 2)
			ck_assert_uint_eq(post(&nodes[0], &users[n], 1, NEAP_VERBS_WRITE, 10), 1);
	ck_assert_int_eq(use_path(&users[4], 4), NEAP_OK);
	rig_pass(50 * MS);
	ck_assert_uint_eq(users[2].gone, 1);
	ck_assert_uint_eq(users[2].cause, NEAP_CAUSE_NONE);
	ck_assert_uint_eq(pretended_ends, 1);
	ck_assert_uint_eq(users[0].leaving + users[1].leaving + users[3].leaving, 0);
	until(&users[4], rdma_endpoint_READY);
	ck_assert_uint_eq(post(&nodes[0], &users[4], 1, NEAP_VERBS_WRITE, 10), 1);
	ck_assert_int_eq(use_path(&users[5], 5), NEAP_EAGAIN); /* nothing in flight is ever evicted */
	ck_assert_uint_eq(users[0].leaving + users[1].leaving + users[3].leaving + users[4].leaving, 0);
	rig.sim.latency_max_ns = 50000;
	end_pretending();
}
END_TEST

/* One that was used since the hand passed stays; what the peer opened stays one round more. */
START_TEST(used_ones_stay)
{
	struct user users[9];
	begin();
	nodes[0].endpoints->options.endpoints_max = 3;
	nodes[1].instead = pretend;
	for (uint32_t n = 1; n < 4; n++) {
		ck_assert_int_eq(use_path(&users[n], n), NEAP_OK);
		until(&users[n], rdma_endpoint_READY);
		((struct rdma_endpoint *)(void *)users[n].base.endpoint)->chances = n == 1 ? 3 : n == 2 ? 1 : 0;
	}
	rig_pass(MS);
	ck_assert_int_eq(use_path(&users[4], 4), NEAP_OK);
	ck_assert_uint_eq(users[3].base.endpoint->leaving, 1);
	ck_assert_int_eq(use_path(&users[5], 5), NEAP_OK);
	ck_assert_uint_eq(users[2].base.endpoint->leaving, 1);
	rig_pass(50 * MS);
	ck_assert_uint_eq(users[1].leaving, 0);
	ck_assert_uint_eq(users[2].gone + users[3].gone, 2);
	end_pretending();
}
END_TEST

/* More paths than places, all with work without end: each posts again whenever one of its sends is done. */
enum { CROWD = 12 };
static struct user crowd[CROWD];
static uint32_t crowd_turns[CROWD], crowd_turn_count;

static void join(uint32_t n)
{
	int error = use_path(&crowd[n], n + 1);
	crowd[n].then = NULL;
	if (error == NEAP_EAGAIN)
		neap_rdma_endpoint_wait(nodes[0].endpoints, &nodes[0].queue, &crowd[n].base);
	else
		ck_assert_int_eq(error, NEAP_OK);
}

static void crowd_told(struct user *user, enum neap_rdma_news news)
{
	uint32_t n = (uint32_t)(user - crowd);
	if (news == NEAP_RDMA_USABLE) {
		crowd_turns[n]++;
		crowd_turn_count++;
	}
	if (news == NEAP_RDMA_TURN || news == NEAP_RDMA_GONE)
		join(n);
	user->then = crowd_told;
}

static void crowd_works(uint64_t ns)
{
	for (uint64_t until_ns = rig.now_ns + ns; rig.now_ns < until_ns; rig_pass(MS))
		for (uint32_t n = 0; n < CROWD; n++)
			if (crowd[n].base.endpoint && crowd[n].base.endpoint->usable && neap_rdma_endpoint_room(crowd[n].base.endpoint) > 4)
				(void)post(&nodes[0], &crowd[n], 1, NEAP_VERBS_WRITE, 10);
}

static void crowd_begins(void)
{
	memset(crowd_turns, 0, sizeof crowd_turns);
	crowd_turn_count = 0;
	nodes[1].instead = pretend;
	pretend_and_connect = true;
	rig.sim.latency_max_ns = 3 * MS; /* so that none is ever idle */
	node_register(&nodes[0]);
	node_register(&nodes[1]);
	for (uint32_t n = 0; n < CROWD; n++) {
		join(n);
		crowd[n].then = crowd_told;
	}
}

static void crowd_ends(void)
{
	for (uint32_t n = 0; n < CROWD; n++)
		crowd[n].then = NULL;
	for (uint32_t n = 0; n < CROWD; n++)
		if (crowd[n].base.line)
			neap_rdma_endpoint_unuse(&crowd[n].base);
	node_die(&nodes[0]);
	pretend_and_connect = false;
	pretend(NULL, 0, NULL, NULL);
	end();
}

START_TEST(each_gets_its_turn)
{
	begin();
	nodes[0].endpoints->options.endpoints_max = 4;
	nodes[0].endpoints->options.stay_ns = 20 * MS;
	if (_i)
		nodes[0].queue.device->handle.limits.qp_max = 8; /* the device is what has no room */
	if (_i)
		nodes[0].endpoints->options.endpoints_max = 64;
	crowd_begins();
	crowd_works(500 * MS);
	ck_assert_uint_gt(crowd_turn_count, 3 * CROWD);
	for (uint32_t n = 0; n < CROWD; n++)
		ck_assert_msg(crowd_turns[n] + 1 >= crowd_turn_count / CROWD, "path %u had %u turns of %u", n, crowd_turns[n], crowd_turn_count);
	ck_assert_uint_eq(completed_badly, 0);
	crowd_ends();
}
END_TEST

/* It is given no more while others wait; when they are gone it goes on. */
START_TEST(nobody_waits_any_more)
{
	struct user users[2];
	begin();
	nodes[0].endpoints->options.endpoints_max = 1;
	nodes[1].instead = pretend;
	node_register(&nodes[0]);
	ck_assert_int_eq(use_path(&users[0], 1), NEAP_OK);
	until(&users[0], rdma_endpoint_READY);
	rig.sim.latency_max_ns = 100000 * MS;
	ck_assert_uint_eq(post(&nodes[0], &users[0], 1, NEAP_VERBS_WRITE, 10), 1);
	ck_assert_int_eq(use_path(&users[1], 2), NEAP_EAGAIN);
	neap_rdma_endpoint_wait(nodes[0].endpoints, &nodes[0].queue, &users[1].base);
	rig_pass(5 * MS);
	ck_assert_uint_eq(neap_rdma_endpoint_room(users[0].base.endpoint), 0);
	ck_assert_uint_eq(post(&nodes[0], &users[0], 1, NEAP_VERBS_WRITE, 10), 0);
	neap_rdma_endpoint_unuse(&users[1].base);
	rig_pass(5 * MS);
	ck_assert_uint_gt(neap_rdma_endpoint_room(users[0].base.endpoint), 0);
	ck_assert_uint_eq(users[0].room, 1);
	ck_assert_uint_eq(users[0].leaving, 0);
	rig.sim.latency_max_ns = 50000;
	end_pretending();
}
END_TEST

/* The device goes: who waits for it hears it by trying. */
START_TEST(what_they_wait_for_is_gone)
{
	struct user users[2];
	begin();
	nodes[0].endpoints->options.endpoints_max = 1;
	nodes[1].instead = pretend;
	ck_assert_int_eq(use_path(&users[0], 1), NEAP_OK);
	ck_assert_int_eq(use_path(&users[1], 2), NEAP_EAGAIN); /* the other is not connected yet */
	neap_rdma_endpoint_wait(nodes[0].endpoints, &nodes[0].queue, &users[1].base);
	sim_verbs_lose(&rig.sim, rig.rxe0);
	rig_pass(10 * MS);
	ck_assert_uint_eq(users[1].turns, 1);
	ck_assert_ptr_null(users[1].base.line);
	end_pretending();
}
END_TEST

/* The device has no queue pairs left: those that leave count until they are destroyed. */
START_TEST(the_device_has_no_more)
{
	struct user users[4];
	begin();
	nodes[1].instead = pretend;
	nodes[0].queue.device->handle.limits.qp_max = 4;
	for (uint32_t n = 1; n < 3; n++) {
		ck_assert_int_eq(use_path(&users[n], n), NEAP_OK);
		until(&users[n], rdma_endpoint_READY);
		((struct rdma_endpoint *)(void *)users[n].base.endpoint)->chances = 0;
	}
	ck_assert_int_eq(use_path(&users[3], 3), NEAP_EAGAIN);
	until_gone(&users[1]);
	ck_assert_int_eq(use_path(&users[3], 3), NEAP_OK);
	until(&users[3], rdma_endpoint_READY);
	ck_assert_uint_eq(users[2].leaving, 0);
	end_pretending();
}
END_TEST

/* The helper is given so many jobs at once; the others wait here, in order. */
START_TEST(many_at_once)
{
	enum { MANY = 70 };
	static struct user users[MANY + 1];
	begin();
	node_die(&nodes[0]);
	endpoint_options.endpoints_max = MANY;
	node_live(&nodes[0]);
	neap_handshake_service_destroy(nodes[1].service);
	sim_helper_hold(&nodes[0].helper, true);
	for (uint32_t n = 1; n <= MANY; n++)
		ck_assert_int_eq(use_path(&users[n], n), NEAP_OK);
	rig_pass(10 * MS);
	ck_assert_uint_eq(nodes[0].helper.count, NEAP_RDMA_ENDPOINT_JOBS);
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[0].endpoints), MANY);
	neap_rdma_endpoint_retire(users[MANY].base.endpoint, NEAP_CAUSE_CANCELED_BY_USER, "before its turn");
	sim_helper_hold(&nodes[0].helper, false);
	rig_pass(500 * MS);
	for (uint32_t n = 1; n <= MANY; n++)
		ck_assert_uint_eq(users[n].gone, 1);
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[0].endpoints), 0);
	node_serve(&nodes[1]);
	end();
}
END_TEST

static uint32_t allocations_left;
static struct neap_alloc_ops alloc;

static void *allocate(void *user, size_t bytes)
{
	return allocations_left-- ? alloc.allocate(user, bytes) : NULL;
}

/* No memory: nothing is kept of what was begun. */
START_TEST(cannot_be_created)
{
	struct neap_rdma_endpoints *endpoints = NULL;
	const struct neap_rdma_answers answers = {answer_kept, &nodes[0]};
	int error = NEAP_ENOMEM;
	begin();
	alloc = rig.reactor->options.alloc;
	for (uint32_t fails_at = 0; error; fails_at++) {
		allocations_left = fails_at;
		rig.reactor->options.alloc.allocate = allocate;
		error = neap_rdma_endpoints_create(rig.reactor, &rig.sim.verbs, &nodes[0].helper.base, nodes[0].caller, &answers, "here", nodes[0].instance,
		                                   &endpoint_options, &endpoints);
		rig.reactor->options.alloc = alloc;
		ck_assert(error == NEAP_OK || error == NEAP_ENOMEM);
		ck_assert_uint_lt(fails_at, 20);
		ck_assert(error || fails_at >= 3);
	}
	bool closed = nodes[0].endpoints_closed;
	neap_rdma_endpoints_close(endpoints, endpoints_closed, &nodes[0]); /* with none */
	rig_turns();
	ck_assert(nodes[0].endpoints_closed && !closed);
	nodes[0].endpoints_closed = false;
	end();
}
END_TEST

START_TEST(what_cannot_be_used)
{
	struct user user;
	char longer[NEAP_RDMA_NIC_PATH_MAX];
	begin();
	struct neap_rdma_target target = target_of(&nodes[1]);
	memset(longer, 'x', sizeof longer);
	longer[sizeof longer - 1] = '\0';
	target.nic = longer;
	user_begin(&user);
	ck_assert_int_eq(neap_rdma_endpoint_use(nodes[0].endpoints, &nodes[0].queue, &target, &user.base), NEAP_EINVAL);
	target.nic = "rxe1";
	ck_assert_int_eq(neap_rdma_endpoint_use(nodes[0].endpoints, &nodes[1].queue, &target, &user.base), NEAP_ENODEV); /* not one of its queues */
	nodes[0].endpoints->pool.used += nodes[0].endpoints->pool.capacity;
	ck_assert_int_eq(try_use(&nodes[0], &user), NEAP_EAGAIN);
	nodes[0].endpoints->pool.used -= nodes[0].endpoints->pool.capacity;
	end();
}
END_TEST

int main(void)
{
	TCase *posting = tcase_create("posting"), *ending = tcase_create("ending"), *cache = tcase_create("cache");
	tcase_add_test(posting, contiguous_parts_over_all_queue_pairs);
	tcase_add_test(posting, parts_are_not_equal_when_they_cannot_be);
	tcase_add_test(posting, room_in_the_queue_is_everybodys);
	tcase_add_loop_test(posting, the_device_refuses_a_send, 1, 7);
	tcase_add_test(posting, nothing_is_done);
	tcase_add_test(posting, slow_is_not_silent);
	tcase_add_test(ending, what_is_owed_is_waited_for);
	tcase_add_test(ending, what_does_not_come_is_given_up);
	tcase_add_test(ending, a_send_that_fails_ends_it);
	tcase_add_test(ending, a_completion_of_what_is_destroyed);
	tcase_add_test(ending, both_fence_each_other);
	tcase_add_loop_test(ending, a_fence_that_is_not_to_be_had, 0, 3);
	tcase_add_test(ending, a_fence_without_a_place_for_the_call);
	tcase_add_loop_test(ending, a_peer_is_told_that_it_is_fenced, 0, 3);
	tcase_add_test(ending, users_come_and_go_from_inside);
	tcase_add_test(ending, successors_are_shared);
	tcase_add_test(cache, the_idle_one_makes_room);
	tcase_add_test(cache, the_peer_of_one_that_made_room_is_told);
	tcase_add_test(cache, used_ones_stay);
	tcase_add_test(cache, the_device_has_no_more);
	tcase_add_loop_test(cache, each_gets_its_turn, 0, 2);
	tcase_add_test(cache, nobody_waits_any_more);
	tcase_add_test(cache, what_they_wait_for_is_gone);
	tcase_add_test(cache, many_at_once);
	tcase_add_test(cache, cannot_be_created);
	tcase_add_test(cache, what_cannot_be_used);
	TCase *cases[] = {posting, ending, cache};
	Suite *suite = suite_create("rdma_endpoint_post");
	for (int i = 0; i < 3; i++) {
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(suite, cases[i]);
	}
	return rig_run(suite);
}
