/* Endpoints of two processes over simulated verbs: from the first word to the last completion, and all that may come between. */
#include "tests/unit/endpoint_rig.h"

static struct neap_verbs_qp *qp_of(uint32_t number)
{
	struct neap_verbs_qp *qp = rig.sim.qps;
	while (qp && qp->number != number)
		qp = qp->next;
	ck_assert_ptr_nonnull(qp);
	return qp;
}

static const struct neap_verbs_qp_change *attributes_of(uint32_t number)
{
	return &qp_of(number)->attributes;
}

static void open_both(struct user *here, struct user *there)
{
	use(&nodes[0], here);
	until(here, rdma_endpoint_READY);
	use(&nodes[1], there);
	ck_assert(there->base.endpoint->usable);
}

/* --- opening */

START_TEST(opened_by_one_used_by_both)
{
	struct user here, there;
	begin();
	use(&nodes[0], &here);
	ck_state(&here, rdma_endpoint_MAKING);
	ck_assert(!here.base.endpoint->usable);
	rig_pass(50 * MS);
	ck_assert_uint_eq(here.usable, 1);
	ck_state(&here, rdma_endpoint_READY);
	ck_assert(here.base.endpoint->peer_is_neap && here.base.endpoint->ever_usable);
	ck_assert_mem_eq(here.base.endpoint->peer_instance, nodes[1].instance, 16);
	ck_assert_uint_eq(here.base.endpoint->qp_count, 2);
	ck_assert_uint_eq(here.base.endpoint->mtu_bytes, SIM_MTU_BYTES);
	ck_assert_uint_eq(here.base.endpoint->depth, 8);
	use(&nodes[1], &there); /* the same pair of queue pairs */
	ck_assert(there.base.endpoint->usable);
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[1].endpoints), 1);
	ck_carries(&nodes[0], &here);
	ck_carries(&nodes[1], &there);
	ck_assert_uint_eq(nodes[1].requests, 2); /* the list, and the ack */
	ck_assert_uint_eq(nodes[0].requests, 0);
	ck_assert_uint_eq(rig.sim.next_qp, 16 + 4);
	end();
	ck_assert_uint_eq(here.gone, 1);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_ENGINE_CLOSED);
}
END_TEST

START_TEST(parameters_are_those_of_the_reference)
{
	struct user here;
	begin();
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_READY);
	const struct neap_rdma_endpoint *endpoint = here.base.endpoint;
	const struct neap_verbs_qp_change *own = attributes_of(endpoint->qps[0].number), *second = attributes_of(endpoint->qps[1].number);
	const struct neap_verbs_qp_change *theirs = attributes_of(own->peer_qp_number);
	ck_assert_uint_eq(own->access, 0xf);
	ck_assert_uint_eq(own->port, 1);
	ck_assert_uint_eq(own->gid_index, 1);
	ck_assert_mem_eq(own->peer_gid, nodes[1].queue.gid.gid, 16);
	ck_assert_uint_eq(own->reads_served_max, 16);
	ck_assert_uint_eq(own->reads_max, 16);
	ck_assert_uint_eq(own->rnr_timer, 12);
	ck_assert_uint_eq(own->rnr_retry, 7);
	ck_assert_uint_eq(own->hop_limit, 16);
	ck_assert_uint_eq(own->retry_count, 6);
	ck_assert_uint_eq(own->timeout, 10);
	ck_assert_uint_eq(own->send_psn, theirs->receive_psn);
	ck_assert_uint_eq(own->receive_psn, theirs->send_psn);
	ck_assert(own->send_psn != second->send_psn || own->receive_psn != second->receive_psn);
	ck_assert_uint_eq(theirs->peer_qp_number, endpoint->qps[0].number);
	end();
}
END_TEST

/* The ends are not the same: the smaller of each counts. */
START_TEST(neap_peers_agree)
{
	struct user here, there;
	begin();
	rig.rxe0->port.mtu_bytes = 4096;
	rig.rxe1->port.mtu_bytes = 2048;
	for (int i = 0; i < 2; i++)
		sim_verbs_event(i ? rig.rxe1 : rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_PORT_ACTIVE, .port = 1});
	rig_pass(10 * MS);
	nodes[1].endpoints->options.qps = 3;
	nodes[1].endpoints->options.depth = 5;
	nodes[0].queue.device->handle.limits.read_initiator_max = 4;
	nodes[1].queue.device->handle.limits.read_initiator_max = 9;
	nodes[0].queue.device->handle.limits.read_target_max = 6;
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_READY);
	ck_assert_uint_eq(here.base.endpoint->mtu_bytes, 2048);
	ck_assert_uint_eq(here.base.endpoint->depth, 5);
	ck_assert_uint_eq(here.base.endpoint->qp_count, 2);
	ck_assert_uint_eq(sole(&nodes[1])->base.qp_count, 2);
	ck_assert_uint_eq(sole(&nodes[1])->base.mtu_bytes, 2048);
	ck_assert_uint_eq(sole(&nodes[1])->base.depth, 5);
	ck_assert_uint_eq(attributes_of(here.base.endpoint->qps[0].number)->reads_max, 4);
	ck_assert_uint_eq(attributes_of(here.base.endpoint->qps[0].number)->reads_served_max, 6);
	ck_assert_uint_eq(attributes_of(sole(&nodes[1])->base.qps[0].number)->reads_max, 6);
	ck_assert_uint_eq(sole(&nodes[1])->base.reads_max, 6);
	ck_carries(&nodes[0], &here);
	use(&nodes[1], &there);
	uint32_t well = completed_well;
	ck_assert_uint_eq(post(&nodes[1], &there, 2, NEAP_VERBS_READ, 3000), 2);
	rig_pass(20 * MS);
	ck_assert_uint_eq(completed_well, well + 2);
	end();
}
END_TEST

/* --- both at once, over many seeds: one endpoint on each side, and it carries both ways. */

static uint64_t chance(uint64_t *state, uint64_t below)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*state >> 33) % below;
}

#define SEEDS 40

START_TEST(both_at_once)
{
	struct user users[2];
	uint64_t random = (uint64_t)_i + 1;
	begin_seeded((uint64_t)_i + 1);
	net.delay_max_ns = chance(&random, 8) * MS + 1;
	nodes[0].helper.delay_ns = 1 + chance(&random, 5 * MS);
	nodes[1].helper.delay_ns = 1 + chance(&random, 5 * MS);
	use(&nodes[0], &users[0]);
	rig_pass(chance(&random, 16) * MS);
	use(&nodes[1], &users[1]);
	until(&users[0], rdma_endpoint_READY);
	until(&users[1], rdma_endpoint_READY);
	rig_pass(50 * MS); /* late answers */
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[i].endpoints), 1);
		ck_assert_uint_eq(users[i].leaving, 0);
		ck_carries(&nodes[i], &users[i]);
	}
	ck_assert_uint_eq(rig.sim.next_qp, 16 + 4);
	end();
}
END_TEST

static bool is_usable(const struct user *user)
{
	return user->base.endpoint && user->base.endpoint->usable;
}

/* The same, with connections that are cut: in the end it is well, and nothing is left over. */
START_TEST(both_at_once_with_cuts)
{
	struct user users[2];
	uint64_t random = (uint64_t)_i + 1000;
	begin_seeded((uint64_t)_i + 1000);
	net.delay_max_ns = chance(&random, 8) * MS + 1;
	for (int i = 0; i < 2; i++) {
		nodes[i].helper.delay_ns = 1 + chance(&random, 5 * MS);
		use(&nodes[i], &users[i]);
	}
	for (int round = 0; round < 1000 && !(is_usable(&users[0]) && is_usable(&users[1])); round++) {
		if (round < 20 && chance(&random, 3) == 0)
			paired_net_cut(&net);
		rig_pass(1 + chance(&random, 6 * MS));
		for (int i = 0; i < 2; i++)
			if (!users[i].base.endpoint)
				use(&nodes[i], &users[i]);
	}
	ck_assert(is_usable(&users[0]) && is_usable(&users[1]));
	rig_pass(600 * MS); /* who waits for an ack in vain has given up by now */
	for (int i = 0; i < 2; i++) {
		if (!users[i].base.endpoint)
			use(&nodes[i], &users[i]);
		until(&users[i], rdma_endpoint_READY);
		ck_carries(&nodes[i], &users[i]);
	}
	end();
}
END_TEST

/* --- all at once, over many seeds: whatever happens, nothing is left over, and in the end it is well again */

#define STEPS 60

static struct user weather_users[2];

static void misfortune(uint64_t *random, struct node *node)
{
	static const enum sim_call calls[] = {SIM_CREATE_QP, SIM_MODIFY_QP, SIM_POST_SEND, SIM_DESTROY_QP};
	switch (chance(random, 7)) {
	case 0: paired_net_cut(&net); break;
	case 1: paired_net_hold(&net, !net.held); break;
	case 2: sim_helper_hold(&node->helper, !node->helper.held); break;
	case 3: sim_verbs_fail(&rig.sim, calls[chance(random, 4)], (uint32_t)chance(random, 6) + 1, chance(random, 2) ? -ETIMEDOUT : -ENOMEM); break;
	case 4: {
		struct sim_device *device = chance(random, 2) ? rig.rxe0 : rig.rxe1;
		sim_verbs_set_port(&rig.sim, device, device->port.status == NEAP_PORT_ACTIVE ? NEAP_PORT_DOWN : NEAP_PORT_ACTIVE);
		break;
	}
	case 5: rig.sim.latency_max_ns = chance(random, 2) ? 50000 : 30 * MS; break;
	default:
		if (!nodes[0].helper.held && !nodes[1].helper.held && chance(random, 3) == 0)
			node_restart(node);
		break;
	}
}

static void act(uint64_t *random, struct node *node, struct user *user)
{
	struct neap_rdma_endpoint *endpoint = user->base.endpoint;
	if (!endpoint) {
		(void)try_use(node, user);
		user->fence = chance(random, 2) == 0;
	} else if (chance(random, 12) == 0) {
		neap_rdma_endpoint_retire(endpoint, NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	} else if (chance(random, 12) == 0 && endpoint->owed == 0) {
		neap_rdma_endpoint_unuse(&user->base);
	} else if (endpoint->usable && sent_count + 8 < SENT_MAX) {
		(void)post(node, user, (uint32_t)chance(random, 6) + 1, chance(random, 2) ? NEAP_VERBS_WRITE : NEAP_VERBS_READ, (uint32_t)chance(random, 4000));
	}
}

static void clear_up(void)
{
	memset(rig.sim.fail_in, 0, sizeof rig.sim.fail_in);
	rig.sim.latency_max_ns = 50000;
	paired_net_hold(&net, false);
	for (int i = 0; i < 2; i++) {
		sim_helper_hold(&nodes[i].helper, false);
		struct sim_device *device = i ? rig.rxe1 : rig.rxe0;
		if (device->port.status != NEAP_PORT_ACTIVE)
			sim_verbs_set_port(&rig.sim, device, NEAP_PORT_ACTIVE);
	}
	rig_pass(3000 * MS);
}

START_TEST(any_weather)
{
	uint64_t random = (uint64_t)_i + 77;
	begin_seeded((uint64_t)_i + 77);
	net.delay_max_ns = chance(&random, 4) * MS + 1;
	node_register(&nodes[0]);
	node_register(&nodes[1]);
	user_begin(&weather_users[0]);
	user_begin(&weather_users[1]);
	for (int step = 0; step < STEPS; step++) {
		int who = (int)chance(&random, 2);
		if (chance(&random, 5) == 0)
			misfortune(&random, &nodes[who]);
		act(&random, &nodes[who], &weather_users[who]);
		rig_pass(1 + chance(&random, chance(&random, 8) ? 3 * MS : 300 * MS));
	}
	clear_up();
	for (int tries = 0; tries < 10 && !(is_usable(&weather_users[0]) && is_usable(&weather_users[1])); tries++) {
		for (int i = 0; i < 2; i++)
			if (!weather_users[i].base.endpoint)
				use(&nodes[i], &weather_users[i]);
		rig_pass(700 * MS);
	}
	for (int i = 0; i < 2; i++) {
		ck_assert(is_usable(&weather_users[i]));
		ck_carries(&nodes[i], &weather_users[i]);
		ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[i].endpoints), 1);
		ck_assert_uint_eq(nodes[i].queue.owed, 0);
	}
	end();
}
END_TEST

/* --- in every state */

enum { TO_SUCCEED, TO_MAKE, TO_ASK, TO_CONNECT, TO_ACK, TO_AWAIT, TO_READY, TO_DRAIN, TO_DESTROY, TO_FENCE, TO_COUNT };
static const uint8_t states_of[TO_COUNT] = {
	rdma_endpoint_SUCCEEDING, rdma_endpoint_MAKING, rdma_endpoint_ASKING, rdma_endpoint_CONNECTING, rdma_endpoint_ACKING,
	rdma_endpoint_AWAITING_ACK, rdma_endpoint_READY, rdma_endpoint_DRAINING, rdma_endpoint_DESTROYING, rdma_endpoint_FENCING};

/* As passive side, whose peer's ack does not come. */
static void await_ack(struct user *user, struct user *peer)
{
	use(&nodes[1], peer);
	until(peer, rdma_endpoint_CONNECTING);
	paired_net_hold(&net, true);
	use(&nodes[0], user);
	until(user, rdma_endpoint_AWAITING_ACK);
	ck_assert(!user->base.endpoint->usable);
}

/* As the one that ends, with sends under way. */
static void end_it(struct user *user, uint8_t state)
{
	use(&nodes[0], user);
	until(user, rdma_endpoint_READY);
	node_register(&nodes[0]);
	node_register(&nodes[1]);
	user->fence = state == rdma_endpoint_FENCING;
	if (state == rdma_endpoint_DRAINING)
		rig.sim.latency_max_ns = 100 * MS;
	ck_assert_uint_eq(post(&nodes[0], user, 3, NEAP_VERBS_WRITE, 100), 3);
	if (state == rdma_endpoint_FENCING)
		paired_net_hold(&net, true);
	neap_rdma_endpoint_retire(user->base.endpoint, NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	if (state == rdma_endpoint_DESTROYING) {
		sim_helper_hold(&nodes[0].helper, true);
		rig_pass(5 * MS);
	}
	until(user, state);
}

/* `before` is the user of the endpoint before it, for SUCCEEDING; `peer` that of the other process. */
static void lead_to(int to, struct user *user, struct user *before, struct user *peer)
{
	user_begin(before);
	user_begin(peer);
	switch (to) {
	case TO_SUCCEED:
		use(&nodes[0], before);
		until(before, rdma_endpoint_READY);
		sim_helper_hold(&nodes[0].helper, true);
		neap_rdma_endpoint_retire(before->base.endpoint, NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
		use(&nodes[0], user);
		break;
	case TO_MAKE:
		sim_helper_hold(&nodes[0].helper, true);
		use(&nodes[0], user);
		break;
	case TO_ASK:
		paired_net_hold(&net, true);
		use(&nodes[0], user);
		break;
	case TO_CONNECT:
		use(&nodes[0], user);
		until(user, rdma_endpoint_CONNECTING);
		sim_helper_hold(&nodes[0].helper, true);
		break;
	case TO_ACK:
		use(&nodes[0], user);
		until(user, rdma_endpoint_CONNECTING);
		paired_net_hold(&net, true);
		break;
	case TO_AWAIT: await_ack(user, peer); break;
	case TO_READY: use(&nodes[0], user); break;
	default: end_it(user, states_of[to]); break;
	}
	until(user, states_of[to]);
}

static void let_go_on(void)
{
	rig.sim.latency_max_ns = 50000;
	sim_helper_hold(&nodes[0].helper, false);
	paired_net_hold(&net, false);
}

START_TEST(retired_in_every_state)
{
	struct user user, before, peer;
	begin();
	lead_to(_i, &user, &before, &peer);
	neap_rdma_endpoint_retire(user.base.endpoint, NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	neap_rdma_endpoint_retire(user.base.endpoint, NEAP_CAUSE_INTERNAL, "the first one counts");
	ck_assert(user.base.endpoint->leaving && !user.base.endpoint->usable);
	ck_assert_uint_eq(user.gone, 0);
	rig_pass(5 * MS);
	let_go_on();
	until_gone(&user);
	ck_assert_uint_eq(user.cause, NEAP_CAUSE_CANCELED_BY_USER);
	ck_assert_str_eq(user.why, "not wanted");
	ck_assert_uint_eq(user.base.fenced, _i == TO_FENCE);
	rig_pass(700 * MS);
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[0].endpoints), 0);
	ck_assert_uint_eq(nodes[0].queue.owed, 0);
	ck_assert_uint_eq(nodes[0].queue.owed, 0);
	ck_assert_uint_eq(nodes[0].queue.users, 0);
	/* a new one comes about */
	use(&nodes[0], &user);
	until(&user, rdma_endpoint_READY);
	ck_carries(&nodes[0], &user);
	end();
}
END_TEST

START_TEST(closed_in_every_state)
{
	struct user user, before, peer;
	begin();
	lead_to(_i, &user, &before, &peer);
	neap_rdma_endpoints_close(nodes[0].endpoints, endpoints_closed, &nodes[0]);
	neap_rdma_endpoints_close(nodes[0].endpoints, endpoints_closed, &nodes[0]); /* harmless */
	ck_assert(!nodes[0].endpoints_closed);
	struct user late;
	ck_assert_int_eq(try_use(&nodes[0], &late), NEAP_ECLOSED);
	rig_pass(5 * MS);
	let_go_on();
	until_gone(&user);
	rig_pass(10 * MS);
	ck_assert(nodes[0].endpoints_closed);
	nodes[0].endpoints = NULL;
	end();
}
END_TEST

START_TEST(its_device_fails_in_every_state)
{
	struct user user, before, peer;
	begin();
	lead_to(_i, &user, &before, &peer);
	node_deregister(&nodes[0]);
	sim_verbs_lose(&rig.sim, rig.rxe0);
	rig_pass(5 * MS);
	ck_assert(user.leaving || user.gone);
	struct user late;
	ck_assert_int_eq(try_use(&nodes[0], &late), NEAP_ENODEV);
	let_go_on();
	until_gone(&user);
	rig_pass(20 * MS);
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[0].endpoints), 0);
	sim_verbs_regain(rig.rxe0);
	rig_pass(700 * MS);
	ck_assert(nodes[0].queue.usable);
	use(&nodes[0], &user);
	until(&user, rdma_endpoint_READY);
	ck_carries(&nodes[0], &user);
	end();
}
END_TEST

/* --- the helper */

START_TEST(a_slow_kernel_is_reported_and_waited_for)
{
	static const int steps[] = {TO_MAKE, TO_CONNECT, TO_DESTROY};
	struct user user, before, peer;
	begin();
	lead_to(steps[_i], &user, &before, &peer);
	sim_helper_hold(&nodes[0].helper, true);
	rig_pass(160 * MS);
	ck_assert_uint_eq(rig_logged("rxe0 to 127.0.0.1:7001@rxe1: the kernel has not answered for "), 3);
	sim_helper_hold(&nodes[0].helper, false);
	if (steps[_i] == TO_DESTROY)
		until_gone(&user);
	else
		until(&user, rdma_endpoint_READY);
	end();
}
END_TEST

START_TEST(queue_pairs_cannot_be_made)
{
	struct user here;
	begin();
	sim_verbs_fail(&rig.sim, _i < 2 ? SIM_CREATE_QP : SIM_MODIFY_QP, _i < 2 ? (uint32_t)_i + 1 : (uint32_t)_i - 1, -ENOMEM);
	use(&nodes[0], &here);
	until_gone(&here);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_CONNECT_FAILED);
	ck_assert_str_eq(here.why, "rxe0: queue pairs cannot be made: Cannot allocate memory (rdma resource show; MC_MAX_EP_PER_CTX, ulimit -l)");
	ck_assert_uint_eq(nodes[1].requests, 0);
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_READY);
	end();
}
END_TEST

/* Modified are: RESET and INIT of two here and two there, then RTR and RTS of the passive side's, then of ours. */
START_TEST(queue_pairs_cannot_be_connected)
{
	static const char *const texts[] = {
		"Failed to modify QP to RTR, check mtu, gid, peer lid, peer qp num: Connection timed out", "Failed to modify QP to RTS: Connection timed out"};
	bool passive = _i < 4;
	char wanted[200];
	struct user here;
	begin();
	sim_verbs_fail(&rig.sim, SIM_MODIFY_QP, 9 + (uint32_t)_i, -ETIMEDOUT);
	use(&nodes[0], &here);
	until_gone(&here);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_CONNECT_FAILED);
	(void)snprintf(wanted, sizeof wanted, "%s%s", passive ? "the peer refused the handshake: " : "", texts[_i % 2]);
	ck_assert_str_eq(here.why, wanted);
	if (passive) {
		ck_assert_str_eq(nodes[1].last_answer, texts[_i % 2]);
		ck_assert(nodes[1].kept_answer.has_gid && nodes[1].kept_answer.has_ready_ack); /* the filled shape */
		ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[1].endpoints), 0);
	}
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_READY);
	ck_carries(&nodes[0], &here);
	end();
}
END_TEST

START_TEST(queue_pairs_cannot_be_destroyed)
{
	struct user here;
	begin();
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_READY);
	uint32_t number = here.base.endpoint->qps[1].number;
	sim_verbs_fail(&rig.sim, SIM_DESTROY_QP, 2, -EBUSY);
	neap_rdma_endpoint_retire(here.base.endpoint, NEAP_CAUSE_NONE, "");
	rig_pass(10 * MS);
	for (uint32_t i = 0; i < (_i ? 2 : 0); i++) { /* one is left */
		sim_verbs_fail(&rig.sim, SIM_DESTROY_QP, 1, -EBUSY);
		ck_assert_uint_eq(here.gone, 0);
		rig_pass(50 * MS);
	}
	until_gone(&here);
	ck_assert_uint_eq(rig_logged("a queue pair cannot be destroyed: Device or resource busy"), _i ? 3 : 1);
	ck_assert_uint_eq(rig_logged("it stays until the process ends"), _i ? 1 : 0);
	if (_i) /* as the end of the process does */
		ck_assert_int_eq(rig.sim.ops.destroy_qp(qp_of(number)), 0);
	end();
}
END_TEST

/* --- the peer */

START_TEST(nobody_is_there)
{
	struct user here;
	begin();
	neap_handshake_service_destroy(nodes[1].service);
	rig_pass(MS);
	use(&nodes[0], &here);
	until_gone(&here);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_CONNECT_FAILED);
	ck_assert_ptr_nonnull(strstr(here.why, "handshake with 127.0.0.1:7001: connecting"));
	node_serve(&nodes[1]);
	end();
}
END_TEST

START_TEST(nobody_answers)
{
	struct user here;
	begin();
	nodes[1].deaf = true;
	use(&nodes[0], &here);
	rig_pass(250 * MS);
	ck_state(&here, rdma_endpoint_ASKING);
	until_gone(&here);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_CONNECT_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(here.why, "the peer did not do its part within 300 ms"));
	end();
}
END_TEST

/* More handshakes at once than there is room for: said, and tried again by who wants it. */
START_TEST(no_room_for_a_handshake)
{
	struct user here;
	begin();
	neap_handshake_caller_destroy(nodes[0].caller);
	rig_pass(MS);
	ck_assert_int_eq(neap_handshake_caller_create(&nodes[0].caller, rig.reactor, 1, 0, NULL), NEAP_OK);
	nodes[0].endpoints->caller = nodes[0].caller;
	struct neap_rdma_target target = target_of(&nodes[1]);
	uint64_t call;
	nodes[1].deaf = true;
	ck_assert_int_eq(neap_handshake_call(nodes[0].caller, &target.address, NEAP_HANDSHAKE_CONNECTION, "{}", 2, 1000 * MS, NULL, NULL, &call), NEAP_OK);
	use(&nodes[0], &here);
	until_gone(&here);
	ck_assert_ptr_nonnull(strstr(here.why, "the handshake cannot begin: "));
	neap_handshake_cancel(nodes[0].caller, call);
	end();
}
END_TEST

static int refuse_acks(struct node *node, uint64_t ticket, const struct neap_connection_message *request, struct neap_connection_message *reply)
{
	if (!request->ready_ack)
		return neap_rdma_endpoints_asked(node->endpoints, ticket, request, reply);
	reply->reply_msg = strdup("Received stale RDMA ready ACK with mismatched peer QP numbers");
	return NEAP_OK;
}

static int keep_acks(struct node *node, uint64_t ticket, const struct neap_connection_message *request, struct neap_connection_message *reply)
{
	return request->ready_ack ? NEAP_HANDSHAKE_LATER : neap_rdma_endpoints_asked(node->endpoints, ticket, request, reply);
}

START_TEST(the_ack_is_refused_or_lost)
{
	struct user here;
	begin();
	nodes[1].instead = _i ? keep_acks : refuse_acks;
	use(&nodes[0], &here);
	until_gone(&here);
	ck_assert_uint_eq(here.usable, 0);
	ck_assert_uint_eq(here.cause, _i ? NEAP_CAUSE_CONNECT_TIMEOUT : NEAP_CAUSE_CONNECT_FAILED);
	/* the other end waits for it, and gives up */
	rig_pass(600 * MS);
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[1].endpoints), 0);
	nodes[1].instead = NULL;
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_READY);
	ck_carries(&nodes[0], &here);
	end();
}
END_TEST

START_TEST(the_ack_does_not_come)
{
	struct user here, there;
	begin();
	await_ack(&here, &there);
	ck_assert_uint_eq(neap_rdma_endpoint_room(here.base.endpoint), 0);
	until_gone(&here);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_CONNECT_TIMEOUT);
	ck_assert_str_eq(here.why, "the peer did not say within 500 ms that it is connected");
	paired_net_hold(&net, false);
	end();
}
END_TEST

/* Our own call's answer takes the place of the ack: it says the same. */
START_TEST(an_answer_is_as_good_as_an_ack)
{
	struct user here, there;
	begin();
	paired_net_hold(&net, true);
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_ASKING);
	struct paired_link *own = net.links; /* our call, which is held */
	(void)own;
	use(&nodes[1], &there);
	until(&there, rdma_endpoint_ASKING);
	paired_net_hold(&net, false);
	until(&here, rdma_endpoint_READY);
	until(&there, rdma_endpoint_READY);
	ck_carries(&nodes[0], &here);
	ck_carries(&nodes[1], &there);
	end();
}
END_TEST

/* A peer that has died and come back asks: its request waits until what its last life may still reach is destroyed. */
START_TEST(a_restarted_peer_is_answered_behind_a_fence)
{
	struct user here, there;
	begin();
	open_both(&here, &there);
	rig.sim.latency_max_ns = 20 * MS; /* what is under way takes its time */
	node_register(&nodes[0]);
	node_register(&nodes[1]);
	ck_assert_uint_eq(post(&nodes[0], &here, 4, NEAP_VERBS_WRITE, 100), 4);
	uint32_t old = here.base.endpoint->qps[0].number;
	node_restart(&nodes[1]);
	use(&nodes[1], &there);
	until(&there, rdma_endpoint_READY);
	for (const struct neap_verbs_qp *qp = rig.sim.qps; qp; qp = qp->next)
		ck_assert_uint_ne(qp->number, old);
	until_gone(&here);
	use(&nodes[0], &here);
	ck_assert(here.base.endpoint->usable);
	rig.sim.latency_max_ns = 50000;
	ck_carries(&nodes[1], &there);
	ck_carries(&nodes[0], &here);
	end();
}
END_TEST

/* The descriptor is newer than the endpoint, or the endpoint newer than the descriptor. */
START_TEST(another_process_is_there_than_was_wanted)
{
	struct user here, again;
	begin();
	use(&nodes[0], &here);
	until(&here, rdma_endpoint_READY);
	node_register(&nodes[0]);
	node_register(&nodes[1]);
	nodes[1].instance[0] ^= 0xff;
	ck_assert_uint_eq(post(&nodes[0], &here, 1, NEAP_VERBS_WRITE, 100), 1);
	ck_assert_int_eq(try_use(&nodes[0], &again), NEAP_ESTALE);
	rig_pass(20 * MS);
	use(&nodes[0], &again);
	ck_assert_ptr_ne(again.base.endpoint, here.base.endpoint);
	until_gone(&here);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_OTHER_INSTANCE);
	until_gone(&again); /* the one that answers is not whom it was told of */
	ck_assert_uint_eq(again.cause, NEAP_CAUSE_OTHER_INSTANCE);
	ck_assert_str_eq(again.why, "another process answers at the peer's address");
	end();
}
END_TEST

static void add_endpoint_tests(TCase *opening, TCase *states, TCase *peers)
{
	tcase_add_test(opening, opened_by_one_used_by_both);
	tcase_add_test(opening, parameters_are_those_of_the_reference);
	tcase_add_test(opening, neap_peers_agree);
	tcase_add_loop_test(opening, both_at_once, 0, SEEDS);
	tcase_add_loop_test(opening, both_at_once_with_cuts, 0, SEEDS);
	tcase_add_loop_test(opening, any_weather, 0, SEEDS);
	tcase_add_test(opening, an_answer_is_as_good_as_an_ack);
	tcase_add_loop_test(states, retired_in_every_state, 0, TO_COUNT);
	tcase_add_loop_test(states, closed_in_every_state, 0, TO_COUNT);
	tcase_add_loop_test(states, its_device_fails_in_every_state, 0, TO_COUNT);
	tcase_add_loop_test(states, a_slow_kernel_is_reported_and_waited_for, 0, 3);
	tcase_add_loop_test(states, queue_pairs_cannot_be_made, 0, 6);
	tcase_add_loop_test(states, queue_pairs_cannot_be_connected, 0, 8);
	tcase_add_loop_test(states, queue_pairs_cannot_be_destroyed, 0, 2);
	tcase_add_test(peers, nobody_is_there);
	tcase_add_test(peers, nobody_answers);
	tcase_add_test(peers, no_room_for_a_handshake);
	tcase_add_loop_test(peers, the_ack_is_refused_or_lost, 0, 2);
	tcase_add_test(peers, the_ack_does_not_come);
	tcase_add_test(peers, a_restarted_peer_is_answered_behind_a_fence);
	tcase_add_test(peers, another_process_is_there_than_was_wanted);
}

int main(void)
{
	TCase *opening = tcase_create("opening"), *states = tcase_create("states"), *peers = tcase_create("peers");
	TCase *cases[] = {opening, states, peers};
	Suite *suite = suite_create("rdma_endpoint");
	add_endpoint_tests(opening, states, peers);
	for (int i = 0; i < 3; i++) {
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(suite, cases[i]);
	}
	return rig_run(suite);
}
