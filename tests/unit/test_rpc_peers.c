/* Each side of the RPC against a peer that is spoken byte by byte: cut anywhere, slow, silent, hostile. */
#include "tests/unit/rpc_rig.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t bytes[16384];

/* --- the server and its clients --------------------------------------------------------------------------------------------------- */

static void open_server(void)
{
	rig_open();
	rig.server_options.hello_timeout_ns = 200 * MS;
	rig.server_options.frame_timeout_ns = 100 * MS;
	rig.server_options.leave_timeout_ns = 100 * MS;
	rig.server_options.window_max = 4;
	rig_server();
	rig_raw_connect();
}

static size_t hello_frame(uint8_t *to, size_t size, uint64_t lane)
{
	struct rpc_hello hello = {.instance = {"client instance", 16}, .lane = lane, .epoch = lane ? 1 : 0};
	return rig_raw_encode(to, size, &(struct neap_rpc_head){.type = NEAP_RPC_HELLO}, &neap_rpc_message_rpc_hello, &hello);
}

static size_t call_frame(uint8_t *to, size_t size, uint64_t call, uint64_t number)
{
	struct neap_rpc_head head = {.type = NEAP_RPC_CALL, .method = RIG_ECHO, .call = call, .deadline_us = UINT64_MAX};
	return rig_raw_encode(to, size, &head, &neap_rpc_message_rig_number, &(struct rig_number){.number = number});
}

static void expect_reply(uint64_t call, int status, uint16_t flags)
{
	struct neap_rpc_head head = rig_raw_take(NULL);
	ck_assert_msg(head.type == NEAP_RPC_REPLY && head.call == call && head.status == status && head.flags == flags,
	              "type %u call %llu status %d flags %u", head.type, (unsigned long long)head.call, head.status, head.flags);
}

START_TEST(a_conversation_cut_at_each_byte)
{
	open_server();
	size_t length = hello_frame(bytes, sizeof bytes, 1);
	for (uint64_t i = 0; i < 3; i++)
		length += call_frame(bytes + length, sizeof bytes - length, i + 1, i);
	for (size_t cut = 0; cut <= length; cut++) {
		rig_raw_write(bytes, cut);
		sim_run_for(rig.sim, 100000);
		rig_raw_write(bytes + cut, length - cut);
		ck_assert_int_eq(rig_raw_take(NULL).type, NEAP_RPC_WELCOME);
		for (uint64_t i = 0; i < 3; i++)
			expect_reply(i + 1, 0, 0);
		rig_raw_close(false);
		rig_raw_connect();
	}
	ck_assert_uint_eq(rig_server_stats().broken, 0);
	rig_close();
}
END_TEST

START_TEST(a_conversation_one_byte_at_a_time)
{
	open_server();
	size_t length = hello_frame(bytes, sizeof bytes, 1);
	length += call_frame(bytes + length, sizeof bytes - length, 9, 1);
	for (size_t i = 0; i < length; i++) {
		rig_raw_write(bytes + i, 1);
		sim_run_for(rig.sim, 100000);
	}
	ck_assert_int_eq(rig_raw_take(NULL).type, NEAP_RPC_WELCOME);
	expect_reply(9, 0, 0);
	rig_close();
}
END_TEST

/* The connection ends in the middle, at each byte: nothing is executed that was not whole. */
START_TEST(a_client_that_leaves_in_the_middle)
{
	open_server();
	size_t hello = hello_frame(bytes, sizeof bytes, 1), length = hello + call_frame(bytes + hello, sizeof bytes - hello, 1, 1);
	for (size_t cut = 0; cut < length; cut++) {
		rig_raw_write(bytes, cut);
		rig_for(1);
		rig_raw_close(cut % 2);
		rig_for(1);
		ck_assert_uint_eq(rig_server_stats().connections_now, 0);
		rig_raw_connect();
	}
	ck_assert_uint_eq(rig.executions, 0);
	rig_close();
}
END_TEST

/* Any head byte changed to anything: an answer or the end of this connection, and the server serves the next one. */
START_TEST(hostile_heads)
{
	static const uint8_t values[] = {0, 1, 2, 3, 4, 5, 6, 7, 0x40, 0x7f, 0x80, 0xff};
	open_server();
	size_t hello = hello_frame(bytes, sizeof bytes, 1), length = hello + call_frame(bytes + hello, sizeof bytes - hello, 1, 1);
	for (size_t at = 0; at < length; at++) {
		uint8_t saved = bytes[at];
		bytes[at] = values[(at + (size_t)_i) % sizeof values];
		rig_raw_write(bytes, length);
		rig_for(1);
		rig_raw_close(true);
		bytes[at] = saved;
		rig_raw_connect();
	}
	ck_assert_int_eq(rig_raw_hello(0, 0, false), 0);
	rig_raw_call(1, RIG_ECHO, 1, 0, 0);
	expect_reply(1, 0, 0);
	rig_close();
}
END_TEST

static void ends_after(const void *what, size_t length, unsigned ms)
{
	uint64_t broken = rig_server_stats().broken;
	rig_raw_write(what, length);
	ck_assert_msg(rig_raw_ended(ms), "it goes on");
	ck_assert_uint_eq(rig_server_stats().broken, broken + 1);
	rig_raw_close(false);
	rig_raw_connect();
}

START_TEST(strangers_and_the_slow_are_sent_away)
{
	open_server();
	ends_after("GET / HTTP/1.1\r\n", 16, 5);
	ends_after("", 0, 250); /* no hello */
	size_t hello = hello_frame(bytes, sizeof bytes, 1);
	ends_after(bytes, hello - 1, 150); /* a frame that does not become whole */
	size_t call = call_frame(bytes, sizeof bytes, 1, 1);
	ends_after(bytes, call, 5); /* no hello first */
	hello = hello_frame(bytes, sizeof bytes, 0);
	memcpy(bytes + hello, bytes, hello);
	ends_after(bytes, 2 * hello, 5); /* two */
	rig_raw_write(bytes, hello);
	ends_after(bytes, 20, 150); /* slow behind the hello */
	struct neap_rpc_head head = {.type = NEAP_RPC_CALL, .body_bytes = NEAP_RPC_BODY_MAX_DEFAULT + 1};
	neap_rpc_head_write(bytes + hello, &head);
	(void)hello_frame(bytes, sizeof bytes, 0);
	ends_after(bytes, hello + NEAP_RPC_HEAD_BYTES, 5);
	ck_assert_uint_eq(rig_server_stats().bytes, 0); /* not allocated for what was announced */
	ck_assert_int_eq(rig_raw_hello(0, 0, false), 0);
	rig_raw_frame(&(struct neap_rpc_head){.type = NEAP_RPC_GOODBYE}, NULL, NULL);
	ck_assert(rig_raw_ended(5) && rig_server_stats().connections_now == 0);
	rig_close();
}
END_TEST

/* Bodies that cannot be: the connection ends before msgpack-c allocates for them. */
START_TEST(hostile_bodies)
{
	static const struct {
		const char *body;
		size_t length;
	} bodies[] = {{"\xdd\xff\0\0\0", 5}, {"\xdf\xff\xff\xff\xff", 5}, {"\x81\xa1x\xdd\xff\0\0\0", 8}, {"\x80\x80", 2}, {"", 0}};
	open_server();
	for (unsigned i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
		struct neap_rpc_head head = {.type = NEAP_RPC_CALL, .method = RIG_ECHO, .call = 1, .deadline_us = UINT64_MAX,
		                             .body_bytes = (uint32_t)bodies[i].length};
		size_t hello = hello_frame(bytes, sizeof bytes, 0);
		neap_rpc_head_write(bytes + hello, &head);
		memcpy(bytes + hello + NEAP_RPC_HEAD_BYTES, bodies[i].body, bodies[i].length);
		ends_after(bytes, hello + NEAP_RPC_HEAD_BYTES + bodies[i].length, 5);
	}
	/* one that is only not this message is answered, and the connection goes on */
	ck_assert_int_eq(rig_raw_hello(0, 0, false), 0);
	struct neap_rpc_head head = {.type = NEAP_RPC_CALL, .method = RIG_ECHO, .call = 2, .deadline_us = UINT64_MAX, .body_bytes = 9};
	neap_rpc_head_write(bytes, &head);
	memcpy(bytes + NEAP_RPC_HEAD_BYTES, "\x81\xa6number\xc3", 9);
	rig_raw_write(bytes, NEAP_RPC_HEAD_BYTES + 9);
	expect_reply(2, NEAP_EREQUEST, NEAP_RPC_UNTOUCHED);
	rig_raw_call(3, RIG_ECHO, 1, 0, 0);
	expect_reply(3, 0, 0);
	rig_close();
}
END_TEST

START_TEST(request_ids_are_judged)
{
	open_server();
	ck_assert_int_eq(rig_raw_hello(1, 1, true), NEAP_ENOSESSION);
	ck_assert_int_eq(rig_raw_hello(1, 1, false), 0);
	rig_raw_call(1, 99, 1, 0, 0);
	expect_reply(1, NEAP_ENOMETHOD, NEAP_RPC_UNTOUCHED);
	rig_raw_call(2, RIG_ADD, 1, 0, 0); /* needs an id */
	expect_reply(2, NEAP_EREQUEST, NEAP_RPC_UNTOUCHED);
	rig_raw_call(3, RIG_ECHO, 1, 1, 1); /* takes none */
	expect_reply(3, NEAP_EREQUEST, NEAP_RPC_UNTOUCHED);
	rig_raw_call(4, RIG_ADD, 1, 1, 2); /* finished before it began */
	expect_reply(4, NEAP_EREQUEST, NEAP_RPC_UNTOUCHED);
	for (uint64_t i = 1; i <= 4; i++) {
		rig_raw_call(10 + i, RIG_ADD, 1, i, 1);
		expect_reply(10 + i, 0, 0);
	}
	rig_raw_call(15, RIG_ADD, 1, 5, 1); /* the fifth of a window of four */
	expect_reply(15, NEAP_ELIMIT, NEAP_RPC_UNTOUCHED);
	rig_raw_call(16, RIG_ADD, 1, 5, 3);
	expect_reply(16, 0, 0);
	rig_raw_call(17, RIG_ADD, 1, 2, 1); /* a straggler that was declared finished */
	expect_reply(17, NEAP_EFINISHED, NEAP_RPC_UNTOUCHED);
	rig_raw_call(18, RIG_ADD, 1, 1000, 1000); /* far ahead */
	expect_reply(18, 0, 0);
	ck_assert(rig.total == 6 && rig_server_stats().refused_window == 1);
	rig_close();
}
END_TEST

/* The repeated answer is the first one byte by byte, but for the number of the call that asks. */
START_TEST(a_remembered_answer_is_the_same)
{
	const uint8_t *body;
	open_server();
	ck_assert_int_eq(rig_raw_hello(1, 1, false), 0);
	rig_raw_call(1, RIG_ADD, 13, 1, 1);
	struct neap_rpc_head first = rig_raw_take(&body), again;
	memcpy(bytes, body, first.body_bytes);
	rig_raw_call(2, RIG_ADD, 13, 1, 1);
	rig_raw_call(3, RIG_ADD, 13, 1, 1); /* while the second may still wait */
	for (uint64_t call = 2; call <= 3; call++) {
		again = rig_raw_take(&body);
		ck_assert(again.call == call && again.status == -200 && again.body_bytes == first.body_bytes);
		ck_assert_mem_eq(bytes, body, first.body_bytes);
	}
	ck_assert(rig.executions == 1 && rig_server_stats().answered_again == 2);
	rig_close();
}
END_TEST

START_TEST(a_new_connection_of_a_lane_ends_the_old_one)
{
	struct neap_stream *old;
	open_server();
	ck_assert_int_eq(rig_raw_hello(1, 1, false), 0);
	rig_raw_call(1, RIG_LATER_ADD, 5, 1, 1);
	rig_await_later(1);
	old = rig.raw.stream;
	rig_raw_connect();
	ck_assert_int_eq(rig_raw_hello(1, 1, true), 0);
	ck_assert_uint_eq(rig_server_stats().connections_now, 1);
	rig_raw_call(2, RIG_LATER_ADD, 5, 1, 1);
	rig_for(1);
	ck_assert_int_eq(rig_answer(0, 0), 0);
	expect_reply(2, 0, 0);
	ck_assert(rig.executions == 1 && rig_server_stats().attached == 1);
	neap_stream_close(old, true);
	rig_raw_close(false);
	rig_for(1);
	rig_raw_connect();
	ck_assert_int_eq(rig_raw_hello(1, 2, false), 0); /* a later epoch forgets the first */
	rig_raw_call(3, RIG_LATER_ADD, 5, 1, 1);         /* and its ids are no session's */
	expect_reply(3, NEAP_ENOSESSION, NEAP_RPC_UNTOUCHED);
	rig_raw_close(false);
	rig_for(1);
	rig_raw_connect();
	ck_assert_int_eq(rig_raw_hello(1, 1, false), NEAP_ENOSESSION); /* an epoch of the past */
	rig_close();
}
END_TEST

static void hello_refused(const struct rpc_hello *hello, int status)
{
	rig_raw_frame(&(struct neap_rpc_head){.type = NEAP_RPC_HELLO}, &neap_rpc_message_rpc_hello, hello);
	struct neap_rpc_head head = rig_raw_take(NULL);
	ck_assert(head.type == NEAP_RPC_WELCOME && head.status == status);
	rig_raw_call(1, RIG_ECHO, 1, 0, 0); /* not taken */
	rig_for(5);
	ck_assert_uint_eq(rig.executions, 0);
}

START_TEST(hellos_that_are_not_welcome)
{
	open_server();
	hello_refused(&(struct rpc_hello){.instance = {"short", 5}}, NEAP_EREQUEST);
	ck_assert(rig_raw_ended(150)); /* we did not close */
	rig_raw_close(false);
	rig_raw_connect();
	hello_refused(&(struct rpc_hello){.instance = {"client instance", 16}, .expected = {"another instance", 16}}, NEAP_EINSTANCE);
	rig_raw_frame(&(struct neap_rpc_head){.type = NEAP_RPC_GOODBYE}, NULL, NULL);
	ck_assert(rig_raw_ended(5));
	rig_raw_close(false);
	rig_raw_connect();
	hello_refused(&(struct rpc_hello){.instance = {"client instance", 16}, .expected = {"another instance", 16}}, NEAP_EINSTANCE);
	neap_rpc_server_stop(rig.server, NULL);
	rig_for(1);
	rig_raw_write("garbage, garbage", 16);
	ck_assert(rig_raw_ended(5));
	rig_close();
}
END_TEST

START_TEST(goodbye_before_hello_and_stop_before_hello)
{
	open_server();
	rig_raw_frame(&(struct neap_rpc_head){.type = NEAP_RPC_GOODBYE}, NULL, NULL);
	ck_assert(rig_raw_ended(5) && !rig.raw.reset);
	rig_raw_close(false);
	rig_raw_connect();
	rig_for(1);
	neap_rpc_server_stop(rig.server, NULL);
	ck_assert(rig_raw_ended(5));
	rig_close();
}
END_TEST

/* The connection of a full session fails; and it says goodbye after its stop. */
START_TEST(losses_of_the_full)
{
	rig_open();
	rig.server_options.calls_max = 2;
	rig_server();
	for (unsigned i = 0; i < 2; i++) {
		rig_raw_connect();
		ck_assert_int_eq(rig_raw_hello(1, 1, i > 0), 0);
		rig_raw_call(1, RIG_LATER, 1, 0, 0);
		rig_raw_call(2, RIG_LATER, 1, 0, 0);
		rig_raw_call(3, RIG_LATER, 1, 0, 0);
		rig_await_later(2 * (i + 1));
		rig_for(1);
		ck_assert_uint_eq(rig_server_stats().calls_now, 2);
		if (i == 0) { /* another connection of its lane ends it */
			struct neap_stream *old = rig.raw.stream;
			rig_raw_connect();
			ck_assert_int_eq(rig_raw_hello(1, 1, true), 0);
			neap_stream_close(old, true);
			rig_raw_close(false);
			rig_for(1);
		}
	}
	neap_rpc_server_stop(rig.server, NULL);
	rig_for(1);
	ck_assert_int_eq(rig_raw_take(NULL).type, NEAP_RPC_GOODBYE);
	rig_raw_frame(&(struct neap_rpc_head){.type = NEAP_RPC_CANCEL, .call = 1}, NULL, NULL);
	rig_raw_frame(&(struct neap_rpc_head){.type = NEAP_RPC_CANCEL, .call = 77}, NULL, NULL);
	rig_for(1);
	ck_assert_uint_eq(rig_server_stats().canceled, 1);
	rig_raw_close(false);
	rig_for(1);
	ck_assert_uint_eq(rig_server_stats().connections_now, 0);
	rig_close();
}
END_TEST

START_TEST(destroyed_while_full)
{
	rig_open();
	rig.server_options.calls_max = 2;
	rig_server();
	rig_raw_connect();
	ck_assert_int_eq(rig_raw_hello(1, 1, false), 0);
	rig_raw_call(1, RIG_LATER_ADD, 1, 1, 1);
	rig_raw_call(2, RIG_LATER, 1, 0, 0);
	rig_raw_call(3, RIG_LATER, 1, 0, 0);
	rig_await_later(2);
	rig_for(1);
	rig_close();
}
END_TEST

/* --- the client and its servers -------------------------------------------------------------------------------------------------------- */

static void open_client(void)
{
	rig_open();
	rig.client_options.hello_timeout_ns = 100 * MS;
	rig.client_options.frame_timeout_ns = 100 * MS;
	rig_raw_listen();
	rig_client(1);
}

/* The call's connection, welcomed; its frame taken. */
static uint64_t take_call(struct rig_call *call, const struct neap_rpc_method *method)
{
	rig_ask(call, method, 1, 5000);
	rig_raw_accept();
	ck_assert_int_eq(rig_raw_take(NULL).type, NEAP_RPC_HELLO);
	rig_raw_welcome(0);
	struct neap_rpc_head head = rig_raw_take(NULL);
	ck_assert(head.type == NEAP_RPC_CALL && head.method == method->number && head.flags == (method->once ? NEAP_RPC_ONCE : 0));
	return head.call;
}

static size_t reply_frame(uint8_t *to, size_t size, uint64_t call, uint64_t number)
{
	struct neap_rpc_head head = {.type = NEAP_RPC_REPLY, .call = call};
	return rig_raw_encode(to, size, &head, &neap_rpc_message_rig_number, &(struct rig_number){.number = number});
}

START_TEST(a_reply_cut_at_each_byte)
{
	struct rig_call call = {0};
	open_client();
	uint64_t number = take_call(&call, &rig_echo);
	size_t length = reply_frame(bytes, sizeof bytes, number, 4);
	for (size_t cut = 0;; cut++) {
		rig_raw_write(bytes, cut);
		sim_run_for(rig.sim, 100000);
		rig_raw_write(bytes + cut, length - cut);
		rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
		ck_assert_uint_eq(call.number, 4);
		if (cut == length)
			break;
		rig_ask(&call, &rig_echo, 1, 5000);
		length = reply_frame(bytes, sizeof bytes, rig_raw_take(NULL).call, 4);
	}
	rig_close();
}
END_TEST

/* The server goes in the middle of its reply, at each byte: UNKNOWN, and the next connection serves. */
START_TEST(a_server_that_leaves_in_the_middle)
{
	struct rig_call call = {0};
	open_client();
	rig.client_options.backoff_max_ns = MS;
	size_t length = NEAP_RPC_HEAD_BYTES + 1;
	for (size_t cut = 0; cut < length; cut++) {
		uint64_t number = take_call(&call, &rig_echo);
		length = reply_frame(bytes, sizeof bytes, number, 4);
		rig_raw_write(bytes, cut);
		rig_for(1);
		rig_raw_close(false);
		rig_expect(&call, NEAP_RPC_UNKNOWN, NEAP_RPC_PERHAPS, NEAP_EPEER, cut ? "in the middle" : "closed the connection");
	}
	rig_close();
}
END_TEST

static void breaks(const void *what, size_t length, int status, const char *said)
{
	struct rig_call call = {0};
	(void)take_call(&call, &rig_echo);
	rig_raw_write(what, length);
	rig_expect(&call, NEAP_RPC_UNKNOWN, NEAP_RPC_PERHAPS, status, said);
	rig_raw_close(true);
	rig_for(1);
}

static size_t bare(uint8_t type, uint64_t call, uint32_t body_bytes)
{
	neap_rpc_head_write(bytes, &(struct neap_rpc_head){.type = type, .call = call, .body_bytes = body_bytes});
	return NEAP_RPC_HEAD_BYTES;
}

START_TEST(servers_that_break_the_protocol)
{
	open_client();
	breaks("HTTP/1.1 400 Bad Request\r\n", 26, NEAP_EPROTO, "magic");
	breaks(bytes, bare(NEAP_RPC_CALL, 1, 0), NEAP_EPROTO, "a frame of type 1 in state OPEN");
	breaks(bytes, bare(NEAP_RPC_WELCOME, 0, 0), NEAP_EPROTO, "a frame of type 5 in state OPEN");
	breaks(bytes, bare(NEAP_RPC_REPLY, 1, NEAP_RPC_BODY_MAX_DEFAULT + 1), NEAP_ELIMIT, "body_max");
	breaks(bytes, bare(NEAP_RPC_REPLY, 1, 3), NEAP_ETIMEDOUT, "frame_timeout_ns");
	rig_close();
}
END_TEST

START_TEST(replies_that_make_no_sense)
{
	struct rig_call call = {0};
	open_client();
	uint64_t number = take_call(&call, &rig_echo);
	rig_raw_write(bytes, bare(NEAP_RPC_REPLY, number + 1, 0)); /* nobody's: passed over */
	rig_raw_write(bytes, bare(NEAP_RPC_REPLY, 0, 0));
	rig_for(1);
	ck_assert(call.times == 0 && rig_client_stats().late_replies == 2);
	rig_raw_write(bytes, bare(NEAP_RPC_REPLY, number, 0)); /* no body */
	rig_expect(&call, NEAP_RPC_UNKNOWN, NEAP_RPC_PERHAPS, NEAP_EPROTO, "body at byte 0");
	rig_raw_close(false);
	number = take_call(&call, &rig_echo);
	neap_rpc_head_write(bytes, &(struct neap_rpc_head){.type = NEAP_RPC_REPLY, .call = number, .body_bytes = 9});
	memcpy(bytes + NEAP_RPC_HEAD_BYTES, "\x81\xa6number\xc3", 9);
	rig_raw_write(bytes, NEAP_RPC_HEAD_BYTES + 9);
	rig_expect(&call, NEAP_RPC_UNKNOWN, NEAP_RPC_PERHAPS, NEAP_EREQUEST, "field `number` of `Number`");
	rig_close();
}
END_TEST

START_TEST(a_reply_before_its_request_was_sent)
{
	struct rig_call first = {0}, large = {0};
	open_client();
	(void)take_call(&first, &rig_echo);
	sim_sever(rig.sim, 0, 1, true); /* what we send does not arrive; what it says does */
	ck_assert_int_eq(rig_try(&large, &rig_echo, 1, 3000000, 5000, NULL), 0);
	rig_for(1);
	rig_raw_write(bytes, bare(NEAP_RPC_REPLY, large.handle, 0));
	rig_expect(&first, NEAP_RPC_UNKNOWN, NEAP_RPC_PERHAPS, NEAP_EPROTO, "a reply to a call that was not sent");
	ck_assert_uint_eq(large.times, 0);
	rig_close();
}
END_TEST

static void greeted_with(struct rig_call *call)
{
	rig_ask(call, &rig_add, 1, 5000);
	rig_raw_accept();
	ck_assert_int_eq(rig_raw_take(NULL).type, NEAP_RPC_HELLO);
}

START_TEST(welcomes_that_are_none)
{
	struct rig_call call = {0};
	open_client();
	greeted_with(&call);
	rig_expect(&call, NEAP_RPC_NOT_SENT, NEAP_RPC_NOT_EXECUTED, NEAP_ETIMEDOUT, "hello_timeout_ns");
	rig_raw_close(false);
	greeted_with(&call);
	neap_rpc_channel_connect(rig.channel); /* it does already */
	rig_for(1);
	rig_raw_welcome(NEAP_EINSTANCE);
	rig_expect(&call, NEAP_RPC_NOT_SENT, NEAP_RPC_NOT_EXECUTED, NEAP_EINSTANCE, "refused the connection with -2012: because");
	rig_raw_close(false);
	greeted_with(&call);
	rig_raw_close(true);
	rig_expect(&call, NEAP_RPC_NOT_SENT, NEAP_RPC_NOT_EXECUTED, NEAP_EPEER, "");
	greeted_with(&call);
	rig_raw_write(bytes, bare(NEAP_RPC_GOODBYE, 0, 0));
	rig_expect(&call, NEAP_RPC_NOT_SENT, NEAP_RPC_NOT_EXECUTED, NEAP_EPROTO, "type 6 in state GREETING");
	rig_raw_close(false);
	greeted_with(&call);
	rig_raw_write(bytes, bare(NEAP_RPC_WELCOME, 0, 0));
	rig_expect(&call, NEAP_RPC_NOT_SENT, NEAP_RPC_NOT_EXECUTED, NEAP_EPROTO, "body at byte 0");
	rig_raw_close(false);
	greeted_with(&call);
	rig_raw_welcome(NEAP_ENOSESSION); /* although we did not ask to resume */
	rig_expect(&call, NEAP_RPC_NOT_SENT, NEAP_RPC_NOT_EXECUTED, NEAP_EPROTO, "refused the connection with -2016");
	rig_close();
}
END_TEST

/* Two were sent, one was taken: the other is definitely not executed, and may go elsewhere at once. */
START_TEST(a_goodbye_counts_what_was_taken)
{
	struct rig_call first = {0}, behind = {0}, waits = {0};
	open_client();
	uint64_t number = take_call(&first, &rig_echo);
	rig_ask(&behind, &rig_echo, 2, 5000);
	(void)rig_raw_take(NULL);
	rig_raw_write(bytes, bare(NEAP_RPC_GOODBYE, 1, 0));
	rig_expect(&behind, NEAP_RPC_NOT_SENT, NEAP_RPC_NOT_EXECUTED, NEAP_ECLOSED, "the server is stopping");
	rig_ask(&waits, &rig_echo, 3, 5000);
	rig_for(5);
	ck_assert(first.times == 0 && waits.times == 0);
	rig_raw_write(bytes, reply_frame(bytes, sizeof bytes, number, 4));
	rig_expect(&first, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert(rig_raw_ended(5));
	rig_raw_close(false);
	rig_raw_accept(); /* for the one that waits */
	ck_assert_int_eq(rig_raw_take(NULL).type, NEAP_RPC_HELLO);
	rig_raw_welcome(0);
	rig_raw_write(bytes, reply_frame(bytes, sizeof bytes, rig_raw_take(NULL).call, 5));
	rig_expect(&waits, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	rig_raw_write(bytes, bare(NEAP_RPC_GOODBYE, 1, 0)); /* nothing is owed */
	ck_assert(rig_raw_ended(5));
	rig_close();
}
END_TEST

START_TEST(a_leaving_server_that_breaks_off)
{
	struct rig_call call = {0};
	open_client();
	(void)take_call(&call, &rig_echo);
	rig_raw_write(bytes, bare(NEAP_RPC_GOODBYE, 1, 0));
	rig_for(1);
	rig_raw_close(true);
	rig_expect(&call, NEAP_RPC_UNKNOWN, NEAP_RPC_PERHAPS, NEAP_EPEER, "");
	rig_close();
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("rpc peers");
	TCase *server = tcase_create("server"), *client = tcase_create("client");
	tcase_set_timeout(server, 30);
	tcase_set_timeout(client, 30);
	tcase_add_test(server, a_conversation_cut_at_each_byte);
	tcase_add_test(server, a_conversation_one_byte_at_a_time);
	tcase_add_test(server, a_client_that_leaves_in_the_middle);
	tcase_add_loop_test(server, hostile_heads, 0, 12);
	tcase_add_test(server, strangers_and_the_slow_are_sent_away);
	tcase_add_test(server, hostile_bodies);
	tcase_add_test(server, request_ids_are_judged);
	tcase_add_test(server, a_remembered_answer_is_the_same);
	tcase_add_test(server, a_new_connection_of_a_lane_ends_the_old_one);
	tcase_add_test(server, hellos_that_are_not_welcome);
	tcase_add_test(server, goodbye_before_hello_and_stop_before_hello);
	tcase_add_test(server, losses_of_the_full);
	tcase_add_test(server, destroyed_while_full);
	tcase_add_test(client, a_reply_cut_at_each_byte);
	tcase_add_test(client, a_server_that_leaves_in_the_middle);
	tcase_add_test(client, servers_that_break_the_protocol);
	tcase_add_test(client, replies_that_make_no_sense);
	tcase_add_test(client, a_reply_before_its_request_was_sent);
	tcase_add_test(client, welcomes_that_are_none);
	tcase_add_test(client, a_goodbye_counts_what_was_taken);
	tcase_add_test(client, a_leaving_server_that_breaks_off);
	suite_add_tcase(suite, server);
	suite_add_tcase(suite, client);
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(make_suite());
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
