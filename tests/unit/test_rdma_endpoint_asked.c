/* What peers of every kind ask endpoints for and answer them with: the reference, Neap of another day, and nonsense. */
#include "tests/unit/endpoint_rig.h"

#define HERE "127.0.0.1:7000@rxe0"
#define PEER "127.0.0.1:7001@rxe1"
#define PEER_GID "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02"
#define OWN_GID "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01"

/* --- requests as text */

static char reply_text[4096];
static uint64_t last_ticket;

/* What asked() says; the reply as it would be sent. */
static int ask(const char *json)
{
	struct neap_connection_message request, reply = {0};
	char why[200], *text;
	size_t length;
	ck_assert_msg(neap_connection_decode(json, strlen(json), &request, why, sizeof why) == NEAP_OK, "%s", why);
	int answer = neap_rdma_endpoints_asked(nodes[0].endpoints, ++last_ticket, &request, &reply);
	ck_assert_int_eq(neap_connection_encode(&reply, &text, &length), NEAP_OK);
	(void)snprintf(reply_text, sizeof reply_text, "%s", text);
	free(text);
	neap_connection_free(&request);
	neap_connection_free(&reply);
	return answer;
}

static void ck_reply(const char *json, const char *reply)
{
	ck_assert_int_eq(ask(json), NEAP_OK);
	ck_assert_str_eq(reply_text, reply);
}

#define EMPTY(text)                                                                                                                     \
	"{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"payload\":\"\",\"peer_nic_path\":\"\",\"qp_num\":[],\"reply_msg\":\"" text \
	"\"}\n"
#define FILLED(text)                                                                                                                        \
	"{\"local_gid\":\"" OWN_GID "\",\"local_lid\":0,\"local_nic_path\":\"" HERE "\",\"payload\":\"\",\"peer_nic_path\":\"" PEER "\",\"qp_num\":[]," \
	"\"ready_ack\":false,\"reply_msg\":\"" text "\"}\n"

/* A request of the reference's; `rest` is what else it says. */
static const char *request_of(const char *numbers, const char *rest)
{
	static char text[1024];
	(void)snprintf(text, sizeof text,
	               "{\"local_gid\":\"" PEER_GID "\",\"local_lid\":0,\"local_nic_path\":\"" PEER "\",\"peer_nic_path\":\"" HERE "\",\"qp_num\":[%s]%s}",
	               numbers, rest);
	return text;
}

static const char *of_neap(const char *numbers, uint32_t instance, uint32_t epoch, const char *rest)
{
	static char text[512];
	(void)snprintf(text, sizeof text,
	               ",\"neap\":{\"depth\":8,\"epoch\":%u,\"instance\":\"%032x\",\"mtu\":4096,\"psn\":[1,2,3,4],\"retire\":%s}%s", epoch, instance,
	               rest[0] == 'r' ? "true" : "false", rest + (rest[0] == 'r'));
	return request_of(numbers, text);
}

static struct rdma_endpoint *only(void)
{
	return sole(&nodes[0]);
}

static void until_state(uint8_t state)
{
	for (int i = 0; i < 100000 && (!only() || only()->base.machine.state != state); i++)
		rig_pass(MS / 10);
	ck_assert_uint_eq(only()->base.machine.state, state);
}

static const char own_reply[] =
	"{\"local_gid\":\"" OWN_GID "\",\"local_lid\":0,\"local_nic_path\":\"" HERE "\",\"payload\":\"\",\"peer_nic_path\":\"" PEER "\",\"qp_num\":[16,17],"
	"\"ready_ack\":false,\"reply_msg\":\"\"}\n";

/* The answer that was kept, as it would be sent. Its texts are gone by now; those that are always the same are put back. */
static void ck_kept(const char *reply)
{
	struct neap_connection_message message = nodes[0].kept_answer;
	char *text;
	size_t length;
	message.local_nic_path = (char *)(uintptr_t)(message.has_gid ? HERE : "");
	message.peer_nic_path = (char *)(uintptr_t)(message.has_gid ? PEER : "");
	message.payload = (char *)(uintptr_t)"";
	message.reply_msg = nodes[0].last_answer;
	ck_assert_int_eq(neap_connection_encode(&message, &text, &length), NEAP_OK);
	ck_assert_str_eq(text, reply);
	free(text);
}

/* --- what the reference would say too */

START_TEST(refusals_are_worded_as_the_reference_does)
{
	begin();
	ck_reply(request_of("1,2", ",\"peer_nic_path\":\"127.0.0.1:999@rxe0\""),
	         EMPTY("Invalid argument: peer nic path inconsistency, expect " HERE " + " PEER ", while got 127.0.0.1:999@rxe0 + " PEER));
	ck_reply(request_of("1,2", ",\"peer_nic_path\":\"127.0.0.1:7000@rxe7\""), EMPTY("Local RDMA context not found for handshake NIC: rxe7"));
	ck_reply(request_of("1,2", ",\"peer_nic_path\":\"rxe0\""), EMPTY("Invalid peer_nic_path in handshake: rxe0"));
	ck_reply("{\"qp_num\":[1,2]}", EMPTY("Invalid peer_nic_path in handshake: "));
	ck_reply(request_of("1,2", ",\"local_nic_path\":\"somebody\""), EMPTY("Parse peer nic path failed: somebody"));
	ck_reply(request_of("", ""), FILLED("QP count mismatch in peer and local endpoints, check MC_MAX_EP_PER_CTX"));
	ck_reply(request_of("1", ""), FILLED("QP count mismatch in peer and local endpoints, check MC_MAX_EP_PER_CTX"));
	ck_reply(request_of("1,2,3", ""), FILLED("QP count mismatch in peer and local endpoints, check MC_MAX_EP_PER_CTX"));
	ck_reply(request_of("1,2", ",\"local_gid\":\"zz\""), FILLED("Invalid peer GID: zz"));
	ck_reply(request_of("1,2", ",\"local_gid\":\"::ffff:10.77.0.2\""), FILLED("Invalid peer GID: ::ffff:10.77.0.2"));
	ck_reply(request_of("1,2", ",\"local_gid\":\"\""), EMPTY("Peer nic not found in that server: " PEER));
	ck_reply(request_of("1,2", ",\"ready_ack\":true"), EMPTY("Received RDMA ready ACK for unconnected endpoint"));
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[0].endpoints), 0);
	ck_assert_uint_eq(rig.sim.next_qp, 16); /* nothing was made for any of them */
	sim_verbs_set_port(&rig.sim, rig.rxe0, NEAP_PORT_DOWN);
	rig_pass(10 * MS);
	ck_reply(request_of("1,2", ""), EMPTY("Local RDMA endpoint unavailable for rxe0 <- " PEER));
	neap_rdma_endpoints_close(nodes[0].endpoints, endpoints_closed, &nodes[0]);
	ck_reply(request_of("1,2", ""), EMPTY("Local RDMA endpoint unavailable: the engine closes"));
	rig_pass(10 * MS);
	nodes[0].endpoints = NULL;
	end();
}
END_TEST

START_TEST(refusals_between_neap_peers)
{
	begin();
	ck_reply(of_neap("", 5, 1, ""), FILLED("QP count mismatch in peer and local endpoints, check MC_MAX_EP_PER_CTX"));
	ck_reply(request_of("7,8", ",\"neap\":{\"instance\":\"00000000000000000000000000000005\",\"mtu\":4096,\"psn\":[1]}"),
	         FILLED("neap: a path MTU below 256, or fewer sequence numbers than queue pairs"));
	ck_reply(request_of("7,8", ",\"neap\":{\"instance\":\"00000000000000000000000000000005\",\"mtu\":255,\"psn\":[1,2]}"),
	         FILLED("neap: a path MTU below 256, or fewer sequence numbers than queue pairs"));
	end();
}
END_TEST

/* As the reference asks: two messages, and everything may be said again. */
START_TEST(the_reference_asks)
{
	begin();
	rig.rxe0->port.mtu_bytes = 4096;
	sim_verbs_event(rig.rxe0, (struct neap_verbs_event){.kind = NEAP_VERBS_PORT_ACTIVE, .port = 1});
	rig_pass(10 * MS);
	ck_assert_int_eq(ask(request_of("100,101", ",\"payload\":\"\",\"ready_ack\":false,\"reply_msg\":\"\"")), NEAP_HANDSHAKE_LATER);
	ck_assert_int_eq(ask(request_of("100,101", ",\"ready_ack\":false")), NEAP_HANDSHAKE_LATER); /* again, before the answer */
	rig_pass(50 * MS);
	ck_assert_uint_eq(nodes[0].answers, 2);
	ck_kept(own_reply);
	ck_assert_uint_eq(only()->base.machine.state, rdma_endpoint_AWAITING_ACK);
	ck_assert(!only()->base.peer_is_neap);
	const struct neap_verbs_qp *qp = only()->base.qps[1].qp;
	ck_assert_uint_eq(qp->attributes.peer_qp_number, 101);
	ck_assert_uint_eq(qp->attributes.receive_psn, 0);
	ck_assert_uint_eq(qp->attributes.send_psn, 0);
	ck_assert_uint_eq(qp->attributes.mtu_bytes, 4096);
	ck_reply(request_of("100,101", ",\"ready_ack\":false"), own_reply); /* and after it */
	ck_reply(request_of("100,102", ",\"ready_ack\":true"), EMPTY("Received stale RDMA ready ACK with mismatched peer QP numbers"));
	ck_assert_uint_eq(only()->base.machine.state, rdma_endpoint_AWAITING_ACK);
	ck_reply(request_of("100,101", ",\"ready_ack\":true"), EMPTY(""));
	ck_assert_uint_eq(only()->base.machine.state, rdma_endpoint_READY);
	ck_reply(request_of("100,101", ",\"ready_ack\":true"), EMPTY(""));
	ck_reply(request_of("100,101", ",\"ready_ack\":false"), own_reply);
	ck_assert_uint_eq(rig.sim.next_qp, 18);
	end();
}
END_TEST

/* Without the key there is no second message; the reply carries it all the same. `null`, 1 and "true" are the key. */
START_TEST(the_key_announces_the_ack)
{
	static const char *const rests[] = {"", ",\"ready_ack\":null", ",\"ready_ack\":1", ",\"ready_ack\":\"true\""};
	begin();
	ck_assert_int_eq(ask(request_of("100,101", rests[_i])), NEAP_HANDSHAKE_LATER);
	rig_pass(50 * MS);
	ck_kept(own_reply);
	ck_assert_uint_eq(only()->base.machine.state, _i ? rdma_endpoint_AWAITING_ACK : rdma_endpoint_READY);
	end();
}
END_TEST

/* The same path with other queue pairs is another life: the old ones are destroyed before new ones answer. */
START_TEST(other_queue_pairs_are_another_life)
{
	begin();
	ck_assert_int_eq(ask(request_of("100,101", "")), NEAP_HANDSHAKE_LATER);
	until_state(rdma_endpoint_READY);
	sim_helper_hold(&nodes[0].helper, true);
	ck_assert_int_eq(ask(request_of("200,201", "")), NEAP_HANDSHAKE_LATER);
	rig_pass(20 * MS);
	ck_assert_uint_eq(nodes[0].answers, 1);
	ck_assert_uint_eq(only()->base.machine.state, rdma_endpoint_SUCCEEDING);
	ck_assert_int_eq(ask(request_of("300,301", "")), NEAP_HANDSHAKE_LATER); /* and another, while the second still waits */
	ck_assert_uint_eq(nodes[0].answers, 2);
	ck_assert_str_eq(nodes[0].last_answer, "another request with other queue pairs has come meanwhile");
	sim_helper_hold(&nodes[0].helper, false);
	until_state(rdma_endpoint_READY);
	ck_assert_str_eq(nodes[0].last_answer, "");
	ck_assert_uint_eq(nodes[0].kept_answer.qp_nums[0], 18);
	ck_assert_uint_eq(only()->base.qps[0].qp->attributes.peer_qp_number, 300);
	rig_pass(50 * MS);
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[0].endpoints), 1);
	end();
}
END_TEST

/* In the middle of connecting there is no way back: it leaves, and the next one answers. */
START_TEST(another_life_while_connecting)
{
	begin();
	ck_assert_int_eq(ask(request_of("100,101", "")), NEAP_HANDSHAKE_LATER);
	until_state(rdma_endpoint_CONNECTING);
	ck_assert_int_eq(ask(request_of("200,201", "")), NEAP_HANDSHAKE_LATER);
	rig_turns();
	ck_assert_uint_eq(nodes[0].answers, 1);
	ck_assert_str_eq(nodes[0].last_answer, "the peer asks with other queue pairs: its half is gone");
	until_state(rdma_endpoint_READY);
	ck_assert_uint_eq(nodes[0].answers, 2);
	ck_assert_str_eq(nodes[0].last_answer, "");
	end();
}
END_TEST

START_TEST(too_many_wait)
{
	begin();
	sim_helper_hold(&nodes[0].helper, true);
	for (uint32_t i = 0; i < RDMA_TICKETS_MAX; i++)
		ck_assert_int_eq(ask(request_of("100,101", "")), NEAP_HANDSHAKE_LATER);
	ck_assert_uint_eq(nodes[0].answers, 0);
	ck_assert_int_eq(ask(request_of("100,101", "")), NEAP_HANDSHAKE_LATER);
	ck_assert_uint_eq(nodes[0].answers, 1);
	ck_assert_str_eq(nodes[0].last_answer, "too many handshakes wait for this endpoint; the oldest is given up");
	sim_helper_hold(&nodes[0].helper, false);
	rig_pass(50 * MS);
	ck_assert_uint_eq(nodes[0].answers, 1 + RDMA_TICKETS_MAX);
	end();
}
END_TEST

/* --- requests that find no room */

#define CROWDED EMPTY("too many endpoints here, and all of them have work (MC_MAX_EP_PER_CTX)")
#define ANOTHER ",\"local_nic_path\":\"somebody@else\""

/* One place, and a connection in it that waits for its peer's word: the next one waits. */
static void crowd(uint64_t stay_ns, uint64_t guest_ns)
{
	begin();
	nodes[0].endpoints->options.endpoints_max = 1;
	nodes[0].endpoints->options.ack_timeout_ns = 100000 * MS;
	nodes[0].endpoints->options.stay_ns = stay_ns;
	nodes[0].endpoints->options.guest_ns = guest_ns;
	ck_assert_int_eq(ask(request_of("100,101", ",\"ready_ack\":false")), NEAP_HANDSHAKE_LATER);
	rig_pass(10 * MS);
	ck_assert_uint_eq(nodes[0].endpoints->guest_pool.used, 0);
	ck_assert_int_eq(ask(of_neap("200,201", 9, 3, ANOTHER)), NEAP_HANDSHAKE_LATER);
	ck_assert_uint_eq(nodes[0].endpoints->guest_pool.used, 1);
	ck_assert_uint_eq(nodes[0].endpoints->waiting, 1);
	nodes[0].answers = 0;
}

static void ck_no_guests(const char *last_answer)
{
	ck_assert_uint_eq(nodes[0].endpoints->guest_pool.used, 0);
	ck_assert_uint_eq(nodes[0].endpoints->waiting, 0);
	ck_assert_ptr_null(nodes[0].endpoints->guests);
	ck_assert_msg(strstr(nodes[0].last_answer, last_answer) != NULL, "%s", nodes[0].last_answer);
}

START_TEST(no_room_for_another)
{
	crowd(10000 * MS, 30 * MS);
	rig_pass(20 * MS);
	ck_assert_uint_eq(nodes[0].endpoints->guest_pool.used, 1);
	rig_pass(20 * MS);
	ck_assert_uint_eq(nodes[0].answers, 1);
	ck_no_guests("too many endpoints here, and all of them have work (MC_MAX_EP_PER_CTX)");
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[0].endpoints), 1);
	end();
}
END_TEST

/* The one that is there, which is not posted to here, has had its time: it goes, and the request is looked at. */
START_TEST(a_guest_has_its_turn)
{
	crowd(500 * MS, 5000 * MS);
	ck_assert_int_eq(ask(request_of("100,101", ",\"ready_ack\":true")), NEAP_OK);
	ck_assert(nodes[0].endpoints->oldest->base.usable);
	rig_pass(400 * MS);
	ck_assert_uint_eq(nodes[0].endpoints->guest_pool.used, 1);
	rig_pass(200 * MS);
	ck_assert_uint_eq(nodes[0].endpoints->staying, 1);
	ck_assert_str_eq(nodes[0].endpoints->newest->base.path, "somebody@else");
	ck_assert_uint_eq(nodes[0].endpoints->newest->peer.numbers[0], 200);
	ck_assert_uint_eq(nodes[0].kept_answer.qp_count, 2);
	ck_no_guests("");
	end();
}
END_TEST

/* What a peer does over it is not seen here: it has as much time as one of ours. */
START_TEST(who_has_just_come_stays)
{
	begin();
	nodes[0].endpoints->options.endpoints_max = 1;
	nodes[0].endpoints->options.stay_ns = 500 * MS;
	nodes[0].endpoints->options.guest_ns = 5000 * MS;
	ck_assert_int_eq(ask(request_of("100,101", "")), NEAP_HANDSHAKE_LATER);
	until_state(rdma_endpoint_READY);
	ck_assert_int_eq(ask(of_neap("200,201", 9, 3, ANOTHER)), NEAP_HANDSHAKE_LATER);
	rig_pass(400 * MS);
	ck_assert_uint_eq(nodes[0].endpoints->guest_pool.used, 1);
	ck_assert_uint_eq(only()->peer.numbers[0], 100);
	rig_pass(200 * MS);
	ck_assert_uint_eq(only()->peer.numbers[0], 200);
	end();
}
END_TEST

static uint32_t turns_before_the_guest;

static void note_turn(struct user *user, enum neap_rdma_news news)
{
	(void)user;
	if (news == NEAP_RDMA_TURN && nodes[0].endpoints->guest_pool.used > 0)
		turns_before_the_guest++;
}

/* Ours and theirs by turns, however many of ours wait. These let their turns pass. */
START_TEST(guests_and_our_own_take_turns)
{
	enum { OURS = 4 };
	struct user users[OURS];
	crowd(10000 * MS, 5000 * MS);
	struct neap_rdma_target target = target_of(&nodes[1]);
	target.nic = "another";
	for (int i = 0; i < OURS; i++) {
		user_begin(&users[i]);
		users[i].then = note_turn;
		ck_assert_int_eq(neap_rdma_endpoint_use(nodes[0].endpoints, &nodes[0].queue, &target, &users[i].base), NEAP_EAGAIN);
		neap_rdma_endpoint_wait(nodes[0].endpoints, &nodes[0].queue, &users[i].base);
	}
	ck_assert_uint_eq(nodes[0].endpoints->waiting, 1 + OURS);
	turns_before_the_guest = 0;
	nodes[0].endpoints->options.endpoints_max = 2;
	rdma_line_look(nodes[0].endpoints);
	rig_pass(10 * MS);
	ck_assert_uint_eq(nodes[0].endpoints->guest_pool.used, 0);
	ck_assert_uint_eq(turns_before_the_guest, 1);
	ck_assert_uint_eq(nodes[0].endpoints->waiting, OURS - 1);
	for (int i = 1; i < OURS; i++)
		neap_rdma_endpoint_unuse(&users[i].base);
	end();
}
END_TEST

/* 0: the same again, 1: a later one, 2: the end of it is asked for, 3: the end of a later one, 4: we close, 5: the device goes. */
START_TEST(a_guest_that_is_not_wanted_any_more)
{
	static const char *const answers[] = {"later request", "later request", "later request", "later request", "the engine closes", "unavailable"};
	crowd(10000 * MS, 5000 * MS);
	switch (_i) {
	case 0: ck_assert_int_eq(ask(of_neap("200,201", 9, 3, ANOTHER)), NEAP_HANDSHAKE_LATER); break;
	case 1: ck_assert_int_eq(ask(of_neap("300,301", 9, 4, ANOTHER)), NEAP_HANDSHAKE_LATER); break;
	case 2: ck_assert_int_eq(ask(of_neap("200,201", 9, 3, "r" ANOTHER)), NEAP_OK); break;
	case 3: ck_assert_int_eq(ask(of_neap("200,201", 9, 4, "r" ANOTHER)), NEAP_OK); break;
	case 4: node_die(&nodes[0]); break;
	default: sim_verbs_lose(&rig.sim, rig.rxe0); rig_pass(10 * MS); break;
	}
	ck_assert_uint_ge(nodes[0].answers, 1);
	ck_assert_msg(strstr(nodes[0].last_answer, answers[_i]) != NULL, "%s", nodes[0].last_answer);
	if (_i < 2)
		ck_assert_uint_eq(nodes[0].endpoints->guest_pool.used, 1);
	else if (_i != 4)
		ck_no_guests(answers[_i]);
	end();
}
END_TEST

/* What comes late is not taken for the latest; another process is somebody else. */
START_TEST(a_guest_that_is_later)
{
	crowd(10000 * MS, 5000 * MS);
	ck_reply(of_neap("190,191", 9, 2, ANOTHER), EMPTY("Received stale RDMA connection request of an earlier endpoint"));
	ck_assert_uint_eq(nodes[0].answers, 0);
	ck_assert_int_eq(ask(of_neap("400,401", 10, 1, ANOTHER)), NEAP_HANDSHAKE_LATER);
	ck_assert_uint_eq(nodes[0].answers, 1);
	ck_assert_uint_eq(nodes[0].endpoints->guest_pool.used, 1);
	end();
}
END_TEST

START_TEST(too_many_guests)
{
	char rest[64];
	crowd(10000 * MS, 5000 * MS);
	for (uint32_t i = 1; i < RDMA_GUESTS_MAX; i++) {
		(void)snprintf(rest, sizeof rest, ",\"local_nic_path\":\"guest%u@else\"", i);
		ck_assert_int_eq(ask(of_neap("300,301", 20 + i, 1, rest)), NEAP_HANDSHAKE_LATER);
	}
	ck_reply(of_neap("300,301", 19, 1, ",\"local_nic_path\":\"one_more@else\""), CROWDED);
	ck_assert_uint_eq(nodes[0].endpoints->guest_pool.used, RDMA_GUESTS_MAX);
	rig_pass(6000 * MS);
	ck_assert_uint_eq(nodes[0].answers, RDMA_GUESTS_MAX);
	ck_no_guests("too many endpoints here");
	end();
}
END_TEST

/* It waits while the device goes. */
START_TEST(the_device_goes_meanwhile)
{
	begin();
	sim_helper_hold(&nodes[0].helper, true);
	ck_assert_int_eq(ask(request_of("100,101", "")), NEAP_HANDSHAKE_LATER);
	sim_verbs_lose(&rig.sim, rig.rxe0);
	rig_pass(10 * MS);
	ck_assert_uint_eq(nodes[0].answers, 1);
	ck_kept(EMPTY("rxe0: the device is not usable any more"));
	sim_helper_hold(&nodes[0].helper, false);
	rig_pass(50 * MS);
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[0].endpoints), 0);
	end();
}
END_TEST

/* --- between Neap peers */

START_TEST(earlier_endpoints_are_out_of_date)
{
	begin();
	ck_assert_int_eq(ask(of_neap("100,101", 5, 7, "")), NEAP_HANDSHAKE_LATER);
	until_state(rdma_endpoint_READY);
	ck_reply(of_neap("90,91", 5, 6, ""), EMPTY("Received stale RDMA connection request of an earlier endpoint"));
	ck_assert_uint_eq(only()->base.qps[0].qp->attributes.peer_qp_number, 100);
	ck_assert_uint_eq(only()->base.qps[0].qp->attributes.receive_psn, 1);
	ck_assert_int_eq(ask(of_neap("90,91", 6, 1, "")), NEAP_HANDSHAKE_LATER); /* another process counts anew */
	until_state(rdma_endpoint_READY);
	ck_assert_uint_eq(only()->base.qps[0].qp->attributes.peer_qp_number, 90);
	ck_assert_int_eq(ask(of_neap("92,93,94", 6, 2, "")), NEAP_HANDSHAKE_LATER);
	until_state(rdma_endpoint_READY);
	ck_assert_uint_eq(only()->base.qp_count, 2);
	ck_assert_int_eq(ask(of_neap("95", 6, 3, "")), NEAP_HANDSHAKE_LATER);
	until_state(rdma_endpoint_READY);
	ck_assert_uint_eq(only()->base.qp_count, 1);
	ck_assert_uint_eq(nodes[0].kept_answer.qp_count, 2); /* all are told */
	end();
}
END_TEST

static const char end_reply[] =
	"{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"neap\":{\"depth\":0,\"epoch\":0,\"instance\":\"58000000000000000000000000000001\","
	"\"mtu\":0,\"psn\":[],\"retire\":false},\"payload\":\"\",\"peer_nic_path\":\"\",\"qp_num\":[],\"reply_msg\":\"\"}\n";

START_TEST(the_end_is_asked_for)
{
	begin();
	ck_reply(of_neap("1,2", 5, 7, "r"), end_reply); /* there is none */
	ck_assert_int_eq(ask(of_neap("100,101", 5, 7, "")), NEAP_HANDSHAKE_LATER);
	until_state(rdma_endpoint_READY);
	ck_reply(of_neap("1,2", 5, 6, "r"), end_reply); /* that one is long gone */
	ck_reply(of_neap("1,2", 6, 9, "r"), end_reply); /* another process's is not */
	ck_assert(!only()->base.leaving);
	sim_helper_hold(&nodes[0].helper, true);
	uint32_t answers = nodes[0].answers;
	ck_assert_int_eq(ask(of_neap("1,2", 5, 7, "r")), NEAP_HANDSHAKE_LATER);
	ck_assert_int_eq(ask(of_neap("1,2", 5, 8, "r")), NEAP_HANDSHAKE_LATER);
	rig_pass(20 * MS);
	ck_assert_uint_eq(nodes[0].answers, answers); /* not before it is destroyed */
	ck_assert_int_eq(ask(of_neap("110,111", 5, 9, "")), NEAP_HANDSHAKE_LATER);
	ck_assert_int_eq(ask(of_neap("1,2", 5, 8, "r")), NEAP_HANDSHAKE_LATER); /* the successor is not meant */
	ck_assert(!only()->base.leaving);
	sim_helper_hold(&nodes[0].helper, false);
	until_state(rdma_endpoint_READY);
	ck_assert_uint_eq(nodes[0].answers, answers + 4);
	ck_assert_uint_eq(only()->peer.epoch, 9);
	end();
}
END_TEST

/* What cannot be destroyed is no fence. */
START_TEST(the_end_cannot_be_had)
{
	begin();
	ck_assert_int_eq(ask(of_neap("100,101", 5, 7, "")), NEAP_HANDSHAKE_LATER);
	until_state(rdma_endpoint_READY);
	struct neap_verbs_qp *qp = only()->base.qps[1].qp;
	ck_assert_int_eq(ask(of_neap("1,2", 5, 7, "r")), NEAP_HANDSHAKE_LATER);
	sim_verbs_fail(&rig.sim, SIM_DESTROY_QP, 2, -EBUSY);
	rig_pass(10 * MS);
	for (uint32_t i = 0; i < 2; i++) { /* one is left */
		sim_verbs_fail(&rig.sim, SIM_DESTROY_QP, 1, -EBUSY);
		rig_pass(50 * MS);
	}
	ck_assert_uint_eq(nodes[0].answers, 2);
	ck_assert_str_eq(nodes[0].last_answer, "a queue pair cannot be destroyed here: it stays until the process ends");
	ck_assert_int_eq(rig.sim.ops.destroy_qp(qp), 0);
	end();
}
END_TEST

/* A request that waits is not connected any more once its sender has asked for the end. */
START_TEST(the_end_is_asked_for_before_the_beginning)
{
	begin();
	ck_assert_int_eq(ask(of_neap("100,101", 5, 7, "")), NEAP_HANDSHAKE_LATER);
	until_state(rdma_endpoint_READY);
	sim_helper_hold(&nodes[0].helper, true);
	ck_assert_int_eq(ask(of_neap("110,111", 5, 8, "")), NEAP_HANDSHAKE_LATER);
	uint32_t answers = nodes[0].answers;
	ck_assert_int_eq(ask(of_neap("1,2", 5, 8, "r")), NEAP_HANDSHAKE_LATER);
	rig_turns();
	ck_assert_uint_eq(nodes[0].answers, answers + 1);
	ck_assert_str_eq(nodes[0].last_answer, "the peer has ended its half and asked for the end of ours");
	ck_assert_ptr_null(only());
	sim_helper_hold(&nodes[0].helper, false);
	rig_pass(50 * MS);
	ck_kept(end_reply);
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[0].endpoints), 0);
	ck_assert_uint_eq(rig.sim.next_qp, 18);
	/* one that waits for nobody goes at once */
	sim_helper_hold(&nodes[0].helper, true);
	ck_assert_int_eq(ask(of_neap("120,121", 5, 9, "")), NEAP_HANDSHAKE_LATER);
	ck_assert_int_eq(ask(of_neap("1,2", 5, 9, "r")), NEAP_HANDSHAKE_LATER);
	sim_helper_hold(&nodes[0].helper, false);
	rig_pass(50 * MS);
	ck_kept(end_reply);
	end();
}
END_TEST

/* --- answers to our own requests */

static const char *answer_text;
static struct neap_connection_message last_request; /* without its texts */

static int answer_as_told(struct node *node, uint64_t ticket, const struct neap_connection_message *request, struct neap_connection_message *reply)
{
	char why[200];
	(void)ticket;
	(void)node;
	last_request = *request;
	if (request->ready_ack)
		return NEAP_OK;
	ck_assert_msg(neap_connection_decode(answer_text, strlen(answer_text), reply, why, sizeof why) == NEAP_OK, "%s", why);
	return NEAP_OK;
}

static struct user here;

/* One attempt to reach a peer that is not Neap, and what came of it. */
static void reach(const char *text)
{
	struct neap_rdma_target target = target_of(&nodes[1]);
	target.is_neap = false;
	answer_text = text;
	nodes[1].instead = answer_as_told;
	user_begin(&here);
	ck_assert_int_eq(neap_rdma_endpoint_use(nodes[0].endpoints, &nodes[0].queue, &target, &here.base), NEAP_OK);
	for (int i = 0; i < 500 && !here.gone && !here.usable; i++)
		rig_pass(MS);
}

static void ck_fails(const char *text, enum neap_cause cause, const char *why)
{
	reach(text);
	ck_assert_uint_eq(here.gone, 1);
	ck_assert_uint_eq(here.usable, 0);
	ck_assert_str_eq(here.why, why);
	ck_assert_uint_eq(here.cause, cause);
}

#define ANSWER(rest) "{\"local_nic_path\":\"" PEER "\",\"peer_nic_path\":\"" HERE "\",\"local_gid\":\"" PEER_GID "\",\"qp_num\":[100,101]" rest "}"

START_TEST(the_reference_answers)
{
	begin();
	reach(ANSWER(",\"ready_ack\":false"));
	ck_assert_uint_eq(here.usable, 1);
	ck_assert_uint_eq(nodes[1].requests, 2);
	ck_assert(last_request.ready_ack && last_request.has_gid && last_request.neap.present && !last_request.neap.retire);
	ck_assert_uint_eq(last_request.qp_count, 2);
	ck_assert(!here.base.endpoint->peer_is_neap);
	ck_assert_uint_eq(here.base.endpoint->qps[0].qp->attributes.send_psn, 0);
	ck_assert_uint_eq(here.base.endpoint->qps[0].qp->attributes.receive_psn, 0);
	ck_assert_uint_eq(here.base.endpoint->qps[1].qp->attributes.peer_qp_number, 101);
	here.fence = true; /* there is nobody who understands it */
	neap_rdma_endpoint_retire(here.base.endpoint, NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	rig_pass(50 * MS);
	ck_assert_uint_eq(here.gone, 1);
	ck_assert(!here.base.fenced);
	ck_assert_uint_eq(nodes[1].requests, 2);
	end();
}
END_TEST

/* No key: data follows at once. No GID: the descriptor's. */
START_TEST(an_old_one_answers)
{
	begin();
	reach("{\"local_nic_path\":\"" PEER "\",\"peer_nic_path\":\"" HERE "\",\"qp_num\":[100,101]}");
	ck_assert_uint_eq(here.usable, 1);
	ck_assert_uint_eq(nodes[1].requests, 1);
	ck_assert_mem_eq(here.base.endpoint->qps[0].qp->attributes.peer_gid, nodes[1].queue.gid.gid, 16);
	end();
}
END_TEST

START_TEST(answers_that_are_none)
{
	begin();
	ck_fails(ANSWER(",\"reply_msg\":\"no\\u0007\""), NEAP_CAUSE_CONNECT_FAILED, "the peer refused the handshake: no?");
	ck_fails("{}", NEAP_CAUSE_PROTOCOL, "the handshake's reply is about other paths: is RDMA switched on there?");
	ck_fails(ANSWER(",\"peer_nic_path\":\"x\""), NEAP_CAUSE_PROTOCOL, "the handshake's reply is about other paths: is RDMA switched on there?");
	ck_fails(ANSWER(",\"qp_num\":[1]"), NEAP_CAUSE_CONNECT_FAILED, "QP count mismatch in peer and local endpoints, check MC_MAX_EP_PER_CTX");
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[0].endpoints), 0);
	ck_assert_uint_eq(nodes[0].queue.users, 0);
	end();
}
END_TEST

/* The descriptor said Neap, and who answers is not, or is another one. */
START_TEST(not_whom_the_descriptor_told_of)
{
	begin();
	answer_text = ANSWER("");
	nodes[1].instead = answer_as_told;
	use(&nodes[0], &here);
	until_gone(&here);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_OTHER_INSTANCE);
	end();
}
END_TEST

/* --- both at once, step by step: our own call is still under way when the peer's request has connected us */

static uint64_t kept_ticket;

static int keep_request(struct node *node, uint64_t ticket, const struct neap_connection_message *request, struct neap_connection_message *reply)
{
	(void)node;
	(void)reply;
	if (request->ready_ack)
		return NEAP_OK;
	kept_ticket = ticket;
	return NEAP_HANDSHAKE_LATER;
}

/* The endpoint is in ASKING, and its request is kept. */
static void begin_asking(void)
{
	begin();
	struct neap_rdma_target target = target_of(&nodes[1]);
	target.is_neap = false;
	nodes[1].instead = keep_request;
	user_begin(&here);
	ck_assert_int_eq(neap_rdma_endpoint_use(nodes[0].endpoints, &nodes[0].queue, &target, &here.base), NEAP_OK);
	until(&here, rdma_endpoint_ASKING);
	rig_pass(5 * MS);
}

static void answer_kept_request(const char *text)
{
	struct neap_connection_message reply;
	char why[200];
	ck_assert_int_eq(neap_connection_decode(text, strlen(text), &reply, why, sizeof why), NEAP_OK);
	ck_assert_int_eq(neap_handshake_answer(nodes[1].service, kept_ticket, &reply), NEAP_OK);
	neap_connection_free(&reply);
	rig_pass(5 * MS);
}

START_TEST(a_late_answer_that_says_the_same)
{
	begin_asking();
	ck_assert_int_eq(ask(request_of("100,101", ",\"ready_ack\":false")), NEAP_HANDSHAKE_LATER);
	if (_i < 3)
		until(&here, rdma_endpoint_AWAITING_ACK);
	else
		until(&here, rdma_endpoint_CONNECTING);
	switch (_i) {
	case 0: /* then its ack is not needed */
		answer_kept_request(ANSWER(",\"ready_ack\":false"));
		ck_assert_uint_eq(nodes[1].requests, 2); /* but it may wait for ours */
		break;
	case 1: answer_kept_request(ANSWER("")); break;
	case 2: /* its ack was first */
		ck_reply(request_of("100,101", ",\"ready_ack\":true"), EMPTY(""));
		answer_kept_request(ANSWER(",\"ready_ack\":false"));
		ck_assert_uint_eq(nodes[1].requests, 1);
		break;
	case 3: /* while the queue pairs are being connected */
		sim_helper_hold(&nodes[0].helper, true);
		answer_kept_request(ANSWER(",\"ready_ack\":false"));
		ck_state(&here, rdma_endpoint_CONNECTING);
		sim_helper_hold(&nodes[0].helper, false);
		rig_pass(10 * MS);
		ck_assert_uint_eq(nodes[1].requests, 2);
		break;
	default: break;
	}
	rig_pass(5 * MS);
	ck_state(&here, rdma_endpoint_READY);
	ck_assert_uint_eq(here.usable, 1);
	end();
}
END_TEST

START_TEST(a_late_answer_that_is_a_refusal)
{
	begin_asking();
	ck_assert_int_eq(ask(request_of("100,101", ",\"ready_ack\":false")), NEAP_HANDSHAKE_LATER);
	until(&here, rdma_endpoint_AWAITING_ACK);
	answer_kept_request(ANSWER(",\"reply_msg\":\"no\"")); /* the peer's own request has connected us: it stays */
	ck_state(&here, rdma_endpoint_AWAITING_ACK);
	ck_reply(request_of("100,101", ",\"ready_ack\":true"), EMPTY(""));
	ck_state(&here, rdma_endpoint_READY);
	end();
}
END_TEST

START_TEST(a_late_answer_of_another_life)
{
	begin_asking();
	ck_assert_int_eq(ask(request_of("200,201", ",\"ready_ack\":false")), NEAP_HANDSHAKE_LATER);
	until(&here, rdma_endpoint_AWAITING_ACK);
	answer_kept_request(ANSWER(",\"ready_ack\":false"));
	until_gone(&here);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_PEER_RESET);
	ck_assert_str_eq(here.why, "the peer asked with other queue pairs than it answered with");
	end();
}
END_TEST

/* The answer comes after the endpoint has gone, and its memory serves another one. */
START_TEST(an_answer_that_comes_too_late)
{
	begin_asking();
	neap_rdma_endpoint_retire(here.base.endpoint, NEAP_CAUSE_CANCELED_BY_USER, "not wanted");
	until_gone(&here);
	ck_assert_int_eq(ask(request_of("200,201", "")), NEAP_HANDSHAKE_LATER);
	until_state(rdma_endpoint_READY);
	answer_kept_request(ANSWER(",\"ready_ack\":false"));
	ck_assert(!only()->base.leaving);
	ck_assert_uint_eq(only()->base.qps[0].qp->attributes.peer_qp_number, 200);
	end();
}
END_TEST

/* To oneself: the request comes back to who sent it, and each queue pair is connected with itself. */
START_TEST(asking_oneself)
{
	begin();
	struct neap_rdma_target target = target_of(&nodes[0]);
	user_begin(&here);
	ck_assert_int_eq(neap_rdma_endpoint_use(nodes[0].endpoints, &nodes[0].queue, &target, &here.base), NEAP_OK);
	until(&here, rdma_endpoint_READY);
	rig_pass(50 * MS);
	ck_state(&here, rdma_endpoint_READY);
	const struct neap_rdma_qp *qp = &here.base.endpoint->qps[1];
	ck_assert_uint_eq(qp->qp->attributes.peer_qp_number, qp->number);
	end();
}
END_TEST

int main(void)
{
	TCase *asked = tcase_create("asked"), *neap = tcase_create("neap"), *answers = tcase_create("answers"), *late = tcase_create("late");
	tcase_add_test(asked, refusals_are_worded_as_the_reference_does);
	tcase_add_test(asked, the_reference_asks);
	tcase_add_loop_test(asked, the_key_announces_the_ack, 0, 4);
	tcase_add_test(asked, other_queue_pairs_are_another_life);
	tcase_add_test(asked, another_life_while_connecting);
	tcase_add_test(asked, too_many_wait);
	tcase_add_test(asked, no_room_for_another);
	tcase_add_test(asked, a_guest_has_its_turn);
	tcase_add_test(asked, who_has_just_come_stays);
	tcase_add_test(asked, guests_and_our_own_take_turns);
	tcase_add_test(asked, a_guest_that_is_later);
	tcase_add_test(asked, too_many_guests);
	tcase_add_loop_test(asked, a_guest_that_is_not_wanted_any_more, 0, 6);
	tcase_add_test(asked, the_device_goes_meanwhile);
	tcase_add_test(neap, refusals_between_neap_peers);
	tcase_add_test(neap, earlier_endpoints_are_out_of_date);
	tcase_add_test(neap, the_end_is_asked_for);
	tcase_add_test(neap, the_end_cannot_be_had);
	tcase_add_test(neap, the_end_is_asked_for_before_the_beginning);
	tcase_add_test(answers, the_reference_answers);
	tcase_add_test(answers, an_old_one_answers);
	tcase_add_test(answers, answers_that_are_none);
	tcase_add_test(answers, not_whom_the_descriptor_told_of);
	tcase_add_loop_test(late, a_late_answer_that_says_the_same, 0, 4);
	tcase_add_test(late, a_late_answer_that_is_a_refusal);
	tcase_add_test(late, a_late_answer_of_another_life);
	tcase_add_test(late, an_answer_that_comes_too_late);
	tcase_add_test(late, asking_oneself);
	TCase *cases[] = {asked, neap, answers, late};
	Suite *suite = suite_create("rdma_endpoint_asked");
	for (int i = 0; i < 4; i++) {
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(suite, cases[i]);
	}
	return rig_run(suite);
}
