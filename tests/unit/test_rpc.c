/* Both machines together, over the simulated network: calls, losses, repeats, deadlines, cancels, stops, bounds. */
#include "tests/unit/rpc_rig.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

/* --- calls ---------------------------------------------------------------------------------------------------------------------- */

START_TEST(a_call_and_its_reply)
{
	struct rig_call call = {0};
	rig_both();
	rig_ask(&call, &rig_echo, 5, 1000);
	rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert(call.number == 5 && rig.welcomes == 1 && rig.epoch == 77);
	rig_ask(&call, &rig_add, 7, 1000);
	rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert(call.number == 7 && rig_client_stats().connects == 1 && rig_client_stats().ok == 2);
	rig_close();
}
END_TEST

START_TEST(a_status_is_the_methods_own)
{
	struct rig_call call = {0};
	rig_both();
	rig_ask(&call, &rig_add, 13, 1000);
	rig_expect(&call, NEAP_RPC_REFUSED, NEAP_RPC_EXECUTED, -200, "Add at 10.0.0.2:4000: refused with -200: thirteen brings bad luck");
	ck_assert_uint_eq(call.outcome.retry_after_ms, 7);
	rig_close();
}
END_TEST

START_TEST(replies_come_in_any_order)
{
	struct rig_call calls[64] = {0};
	rig_both();
	for (unsigned i = 0; i < 64; i++)
		rig_ask(&calls[i], &rig_later, 1, 5000);
	rig_await_later(64);
	for (uint32_t i = 64; i-- > 0;) {
		ck_assert_int_eq(rig_answer(i, 0), 0);
		ck_assert_int_eq(rig_answer(i, 0), NEAP_ESTALE);
		ck_assert(rig_ended(&calls[i], 1000) && (i == 0 || calls[i - 1].times == 0));
	}
	ck_assert_uint_eq(rig_client_stats().ok, 64);
	rig_close();
}
END_TEST

/* Bodies longer than what is read at once, both ways, with the network cutting as it likes. */
START_TEST(long_bodies)
{
	struct rig_call call = {0};
	rig_both();
	rig.sim->net.short_io_per_mille = 200;
	size_t sizes[] = {0, 1, 900, 960, 4000, 65536 - 100, 65536, 65537, 300000, 4000000};
	for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		ck_assert_int_eq(rig_try(&call, &rig_echo, 3, sizes[i], 20000, NULL), 0);
		rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
		ck_assert_uint_eq(call.payload, sizes[i]);
	}
	rig_for(1);
	ck_assert_uint_eq(rig_client_stats().bytes, 0);
	ck_assert_uint_eq(rig_server_stats().bytes, 0);
	rig_close();
}
END_TEST

static struct rig_call second;
static void ask_again(struct rig_call *call)
{
	(void)call;
	rig_ask(&second, &rig_add, 1, 1000);
}

START_TEST(a_callback_may_call)
{
	struct rig_call call = {.then = ask_again};
	rig_both();
	ck_assert_int_eq(rig_try(&call, &rig_echo, 1, 0, 1000, NULL), 0);
	ck_assert(rig_ended(&call, 1000));
	rig_expect(&second, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	rig_close();
}
END_TEST

static void close_channel(struct rig_call *call)
{
	(void)call;
	neap_rpc_channel_close(rig.channel);
}

static void destroy_client(struct rig_call *call)
{
	(void)call;
	neap_rpc_client_destroy(rig.client);
	rig.client = NULL;
}

/* In the callback of the first of several, of which one is in each state. */
START_TEST(a_callback_may_close)
{
	struct rig_call calls[4] = {{.then = _i ? destroy_client : close_channel}};
	rig_both();
	ck_assert_int_eq(rig_try(&calls[0], &rig_later, 1, 0, 5000, NULL), 0);
	rig_ask(&calls[1], &rig_later, 1, 5000);
	rig_await_later(2);
	ck_assert_int_eq(rig_answer(0, 0), 0);
	ck_assert(rig_ended(&calls[0], 1000));
	rig_for(5);
	ck_assert_uint_eq(calls[1].times, _i ? 0 : 1);
	if (!_i) {
		ck_assert_int_eq(calls[1].outcome.result, NEAP_RPC_CLOSED);
		ck_assert_uint_eq(rig_client_stats().channels_now, 0);
	}
	rig_close();
}
END_TEST

START_TEST(closing_ends_every_call_once)
{
	struct rig_call sent = {0}, unsent = {0}, fresh = {0};
	rig_both();
	rig_ask(&sent, &rig_later, 1, 5000);
	rig_await_later(1);
	sim_sever(rig.sim, 0, 1, false);
	unsent.then = NULL; /* more than the windows take, so that its end cannot be given away */
	ck_assert_int_eq(rig_try(&unsent, &rig_echo, 1, 3000000, 5000, NULL), 0);
	rig_for(5);
	rig_ask(&fresh, &rig_echo, 1, 5000);
	neap_rpc_channel_close(rig.channel);
	rig_expect(&sent, NEAP_RPC_CLOSED, NEAP_RPC_PERHAPS, NEAP_ECLOSED, "closed");
	rig_expect(&unsent, NEAP_RPC_CLOSED, NEAP_RPC_PERHAPS, NEAP_ECLOSED, "closed");
	rig_expect(&fresh, NEAP_RPC_CLOSED, NEAP_RPC_NOT_EXECUTED, NEAP_ECLOSED, "closed");
	rig_close();
}
END_TEST

START_TEST(closing_in_every_state)
{
	struct rig_call call = {0};
	rig_open();
	rig_client(1);
	neap_rpc_channel_close(rig.channel); /* IDLE */
	rig_for(1);
	ck_assert_uint_eq(rig_client_stats().channels_now, 0);
	sim_sever(rig.sim, 0, 1, false);
	rig_client(1);
	rig_ask(&call, &rig_echo, 1, 5000);
	rig_for(5);
	neap_rpc_channel_close(rig.channel); /* CONNECTING */
	rig_expect(&call, NEAP_RPC_CLOSED, NEAP_RPC_NOT_EXECUTED, NEAP_ECLOSED, "closed");
	sim_heal(rig.sim);
	rig_client(1);
	rig_ask(&call, &rig_echo, 1, 5000); /* nobody listens */
	rig_expect(&call, NEAP_RPC_NOT_SENT, NEAP_RPC_NOT_EXECUTED, NEAP_ESOCKET, "10.0.0.2:4000");
	neap_rpc_channel_close(rig.channel); /* BACKOFF */
	rig_for(1);
	rig_raw_listen();
	rig_client(1);
	neap_rpc_channel_connect(rig.channel);
	rig_raw_accept();
	rig_for(1);
	neap_rpc_channel_close(rig.channel); /* GREETING */
	ck_assert(rig_raw_ended(100));
	rig_raw_close(false);
	rig_client(1);
	neap_rpc_channel_connect(rig.channel);
	rig_raw_accept();
	rig_raw_welcome(0);
	rig_for(1);
	rig_ask(&call, &rig_echo, 1, 5000);
	rig_for(1);
	rig_raw_frame(&(struct neap_rpc_head){.type = NEAP_RPC_GOODBYE, .call = 1}, NULL, NULL);
	rig_for(1);
	neap_rpc_channel_close(rig.channel); /* LEAVING */
	rig_expect(&call, NEAP_RPC_CLOSED, NEAP_RPC_PERHAPS, NEAP_ECLOSED, "closed");
	rig_close();
}
END_TEST

/* --- what goes wrong ---------------------------------------------------------------------------------------------------------------- */

START_TEST(a_lost_connection_leaves_sent_calls_unknown)
{
	struct rig_call sent = {0}, after = {0};
	rig_both();
	rig_ask(&sent, &rig_later, 1, 5000);
	rig_await_later(1);
	ck_assert(sim_cut_one(rig.sim, 0, 1, true));
	rig_expect(&sent, NEAP_RPC_UNKNOWN, NEAP_RPC_PERHAPS, NEAP_EPEER, "the connection failed");
	rig_ask(&after, &rig_echo, 2, 5000); /* it gets well by itself */
	rig_expect(&after, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert(rig_client_stats().connects == 2 && rig_client_stats().losses == 1);
	ck_assert_int_eq(rig_answer(0, 0), NEAP_ESTALE);
	rig_close();
}
END_TEST

START_TEST(what_was_not_sent_goes_on_the_next_connection)
{
	struct rig_call large = {0};
	rig_both();
	neap_rpc_channel_connect(rig.channel);
	rig_for(5);
	sim_sever(rig.sim, 0, 1, false);
	ck_assert_int_eq(rig_try(&large, &rig_echo, 1, 3000000, 20000, NULL), 0);
	rig_for(5);
	ck_assert(sim_cut_one(rig.sim, 0, 1, true));
	sim_heal(rig.sim);
	rig_expect(&large, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert_uint_eq(rig_client_stats().connects, 2);
	rig_close();
}
END_TEST

/* The request came, its answer was lost: repeated under the same id it is not executed again. */
START_TEST(a_lost_reply_is_answered_from_memory)
{
	struct rig_call call = {0};
	struct neap_rpc_id id;
	rig_both();
	ck_assert_int_eq(neap_rpc_id_take(rig.channel, &id), 0);
	ck_assert_int_eq(rig_try(&call, &rig_later_add, 40, 0, 5000, &id), 0);
	rig_await_later(1);
	ck_assert(sim_cut_one(rig.sim, 0, 1, true));
	rig_expect(&call, NEAP_RPC_UNKNOWN, NEAP_RPC_PERHAPS, NEAP_EPEER, "");
	ck_assert_int_eq(rig_answer(0, 0), 0); /* to nobody: kept */
	rig_ask(&second, &rig_add, 2, 1000);   /* others go on */
	rig_expect(&second, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(rig_try(&call, &rig_later_add, 40, 0, 5000, &id), 0);
		rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
		ck_assert_uint_eq(call.number, 40);
	}
	ck_assert(rig.total == 42 && rig.executions == 2 && rig_server_stats().answered_again == 3);
	neap_rpc_id_finish(rig.channel, &id);
	rig_ask(&second, &rig_add, 0, 1000); /* tells the server */
	rig_expect(&second, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert_int_eq(rig_try(&call, &rig_later_add, 40, 0, 5000, &id), 0);
	rig_expect(&call, NEAP_RPC_REFUSED, NEAP_RPC_NOT_EXECUTED, NEAP_EREQUEST, "");
	rig_close();
}
END_TEST

START_TEST(a_repeat_is_attached_to_the_running_one)
{
	struct rig_call first = {0}, again = {0};
	struct neap_rpc_id id;
	rig_both();
	ck_assert_int_eq(neap_rpc_id_take(rig.channel, &id), 0);
	ck_assert_int_eq(rig_try(&first, &rig_later_add, 1, 0, 50, &id), 0);
	rig_await_later(1);
	rig_expect(&first, NEAP_RPC_DEADLINE, NEAP_RPC_PERHAPS, NEAP_ETIMEDOUT, "no reply within its deadline");
	ck_assert_int_eq(rig_try(&again, &rig_later_add, 1, 0, 5000, &id), 0);
	rig_for(5);
	ck_assert(again.times == 0 && rig.later_count == 1 && rig_server_stats().attached == 1);
	ck_assert_int_eq(rig_answer(0, 0), 0);
	rig_expect(&again, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert(rig.total == 1 && rig.executions == 1);
	rig_close();
}
END_TEST

/* Two who wait for one answer: the latest gets it, the other is told. */
START_TEST(the_latest_repeat_gets_the_answer)
{
	struct rig_call first = {0}, again = {0};
	struct neap_rpc_id id;
	rig_both();
	ck_assert_int_eq(neap_rpc_id_take(rig.channel, &id), 0);
	ck_assert_int_eq(rig_try(&first, &rig_later_add, 1, 0, 5000, &id), 0);
	ck_assert_int_eq(rig_try(&again, &rig_later_add, 1, 0, 5000, &id), 0);
	rig_expect(&first, NEAP_RPC_REFUSED, NEAP_RPC_PERHAPS, NEAP_ECANCELED, "sent again");
	ck_assert_int_eq(rig_answer(0, 0), 0);
	rig_expect(&again, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert_uint_eq(rig.executions, 1);
	rig_close();
}
END_TEST

/* The server starts anew and has lost everything: that is said, and nothing is executed under an old id. */
START_TEST(a_server_without_memory_says_so)
{
	struct rig_call call = {0}, own = {0};
	struct neap_rpc_id id;
	rig_both();
	ck_assert_int_eq(neap_rpc_id_take(rig.channel, &id), 0);
	ck_assert_int_eq(rig_try(&call, &rig_add, 1, 0, 5000, &id), 0);
	rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	neap_rpc_server_destroy(rig.server);
	rig_for(10);
	rig_server();
	ck_assert_int_eq(rig_try(&call, &rig_add, 1, 0, 5000, &id), 0);
	ck_assert_int_eq(rig_try(&own, &rig_add, 10, 0, 5000, NULL), 0);
	rig_expect(&call, NEAP_RPC_REFUSED, NEAP_RPC_NOT_EXECUTED, NEAP_ENOSESSION, "lost its memory");
	rig_expect(&own, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, ""); /* its id was of one attempt: it took a new one */
	ck_assert(rig.executions == 2 && rig.total == 11 && rig_client_stats().sessions_lost == 1);
	ck_assert_int_eq(rig_try(&call, &rig_add, 1, 0, 5000, &id), 0); /* known from here on without asking */
	rig_expect(&call, NEAP_RPC_REFUSED, NEAP_RPC_NOT_EXECUTED, NEAP_ENOSESSION, "lost its memory");
	rig_close();
}
END_TEST

START_TEST(a_forgotten_lane_is_told)
{
	struct rig_call call = {0};
	rig_open();
	rig.server_options.session_keep_ns = 100 * MS;
	rig_server();
	rig_client(1);
	rig_ask(&call, &rig_add, 1, 1000);
	rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert(sim_cut_one(rig.sim, 0, 1, true));
	rig_for(50);
	ck_assert_uint_eq(rig_server_stats().lanes_now, 1);
	rig_for(200);
	ck_assert_uint_eq(rig_server_stats().lanes_now, 0);
	rig_ask(&call, &rig_add, 1, 1000);
	rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert_uint_eq(rig_client_stats().sessions_lost, 1);
	rig_close();
}
END_TEST

START_TEST(heartbeats_have_a_connection_of_their_own)
{
	struct rig_call large = {0}, beat = {0};
	struct neap_rpc_channel *data;
	rig_both();
	data = rig.channel;
	ck_assert_int_eq(rig_try(&large, &rig_echo, 1, 4000000, 20000, NULL), 0);
	rig_client(0);
	rig_ask(&beat, &rig_echo, 1, 1000);
	rig_expect(&beat, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert_uint_eq(large.times, 0);
	/* no request ids there */
	ck_assert_int_eq(rig_try(&beat, &rig_add, 1, 0, 1000, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_rpc_id_take(rig.channel, &(struct neap_rpc_id){0}), NEAP_EINVAL);
	rig.channel = data;
	rig_expect(&large, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	rig_close();
}
END_TEST

/* --- deadlines and cancels ------------------------------------------------------------------------------------------------------------ */

START_TEST(the_deadline_travels)
{
	struct rig_call call = {0};
	rig_both();
	rig_ask(&call, &rig_later, 1, 300);
	rig_await_later(1);
	uint64_t left_ns = rig.later_deadline_ns[0] - rig.sim->now_ns;
	ck_assert_msg(left_ns <= 300 * MS && left_ns >= 298 * MS, "%llu ns left", (unsigned long long)left_ns);
	rig_expect(&call, NEAP_RPC_DEADLINE, NEAP_RPC_PERHAPS, NEAP_ETIMEDOUT, "no reply within its deadline");
	rig_for(1);
	ck_assert_uint_eq(rig_server_stats().canceled, 1); /* the server was told */
	ck_assert_int_eq(rig_answer(0, 0), 0);             /* late */
	rig_for(5);
	ck_assert_uint_eq(rig_client_stats().late_replies, 1);
	ck_assert_uint_eq(rig_client_stats().losses, 0);
	rig_close();
}
END_TEST

/* The client's process stands still until long after its deadline; the reply had come before. */
START_TEST(a_reply_that_is_there_is_not_late)
{
	struct rig_call call = {0};
	rig_both();
	rig_ask(&call, &rig_later, 1, 100);
	rig_await_later(1);
	sim_node_pause(rig.a, 400 * MS);
	ck_assert_int_eq(rig_answer(0, 0), 0);
	rig_for(500);
	rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	rig_close();
}
END_TEST

START_TEST(a_deadline_before_the_server_was_reached)
{
	struct rig_call call = {0};
	rig_both();
	sim_sever(rig.sim, 0, 1, false);
	rig_ask(&call, &rig_add, 1, 50);
	rig_expect(&call, NEAP_RPC_DEADLINE, NEAP_RPC_NOT_EXECUTED, NEAP_ETIMEDOUT, "before the server was reached");
	rig_close();
}
END_TEST

/* It lay in the network for longer than it was wanted, but its sender had lost interest only after it was sent. */
START_TEST(an_expired_call_is_not_executed)
{
	struct rig_call call = {0};
	rig_both();
	neap_rpc_channel_connect(rig.channel);
	rig_for(5);
	for (unsigned i = 0; i < 2; i++) {
		rig_raw_connect();
		ck_assert_int_eq(rig_raw_hello(0, 0, false), 0);
		struct neap_rpc_head head = {.type = NEAP_RPC_CALL, .method = RIG_ECHO, .call = 5};
		rig_raw_frame(&head, &neap_rpc_message_rig_number, &(struct rig_number){.number = 1});
		head = rig_raw_take(NULL);
		ck_assert(head.type == NEAP_RPC_REPLY && head.status == NEAP_ETIMEDOUT && head.flags == NEAP_RPC_UNTOUCHED && head.call == 5);
		rig_raw_close(false);
	}
	ck_assert(rig.executions == 0 && rig_server_stats().expired == 2);
	(void)call;
	rig_close();
}
END_TEST

START_TEST(a_cancel_reaches_the_handler)
{
	struct rig_call call = {0};
	rig_both();
	rig.watch_cancel = true;
	rig_ask(&call, &rig_later, 1, 5000);
	rig_await_later(1);
	neap_rpc_cancel(rig.client, call.handle);
	neap_rpc_cancel(rig.client, call.handle);
	rig_expect(&call, NEAP_RPC_CANCELED, NEAP_RPC_PERHAPS, NEAP_ECANCELED, "canceled by its caller");
	neap_rpc_cancel(rig.client, call.handle);
	rig_for(1);
	ck_assert_uint_eq(rig.canceled, 1);
	ck_assert_int_eq(rig_answer(0, NEAP_ECANCELED), 0);
	rig_ask(&call, &rig_echo, 1, 5000);
	neap_rpc_cancel(rig.client, call.handle); /* before anything was done with it */
	rig_expect(&call, NEAP_RPC_CANCELED, NEAP_RPC_NOT_EXECUTED, NEAP_ECANCELED, "");
	rig_for(5);
	ck_assert_uint_eq(rig.executions, 1);
	rig_close();
}
END_TEST

START_TEST(cancel_while_it_waits_for_a_connection)
{
	struct rig_call call = {0};
	rig_both();
	sim_sever(rig.sim, 0, 1, false);
	rig_ask(&call, &rig_add, 1, 5000);
	rig_for(5);
	neap_rpc_cancel(rig.client, call.handle);
	rig_expect(&call, NEAP_RPC_CANCELED, NEAP_RPC_NOT_EXECUTED, NEAP_ECANCELED, "");
	rig_close();
}
END_TEST

START_TEST(the_handler_learns_of_a_lost_connection)
{
	struct rig_call call = {0};
	rig_both();
	rig.watch_cancel = true;
	rig_ask(&call, &rig_later, 1, 5000);
	rig_await_later(1);
	ck_assert(sim_cut_one(rig.sim, 0, 1, true));
	rig_for(5);
	ck_assert_uint_eq(rig.canceled, 1);
	ck_assert_int_eq(neap_rpc_on_cancel(rig.server, rig.later[0], NULL, NULL), NEAP_ESTALE);
	rig_close();
}
END_TEST

/* A peer that takes everything and says nothing is given up after a while, so that the next call finds another connection. */
START_TEST(silence_ends_a_connection)
{
	struct rig_call call = {0};
	rig_open();
	rig.client_options.silence_ns = 100 * MS;
	rig_server();
	rig_client(1);
	rig_ask(&call, &rig_echo, 1, 50);
	rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	sim_sever(rig.sim, 0, 1, false);
	rig_ask(&call, &rig_echo, 1, 50); /* too short to judge by */
	rig_expect(&call, NEAP_RPC_DEADLINE, NEAP_RPC_PERHAPS, NEAP_ETIMEDOUT, "");
	ck_assert_uint_eq(rig_client_stats().losses, 0);
	rig_ask(&call, &rig_echo, 1, 150);
	rig_expect(&call, NEAP_RPC_DEADLINE, NEAP_RPC_PERHAPS, NEAP_ETIMEDOUT, "");
	ck_assert_uint_eq(rig_client_stats().losses, 1);
	sim_heal(rig.sim);
	rig_ask(&call, &rig_echo, 1, 5000);
	rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	rig_close();
}
END_TEST

/* --- stopping --------------------------------------------------------------------------------------------------------------------------- */

static void stopped(void *user)
{
	ck_assert_ptr_eq(user, &rig);
	ck_assert(!rig.stopped);
	rig.stopped = true;
}

static bool is_stopped(void)
{
	return rig.stopped;
}

START_TEST(a_stopping_server_answers_what_it_took)
{
	struct rig_call call = {0}, after = {0};
	rig_both();
	rig_ask(&call, &rig_later, 1, 5000);
	rig_await_later(1);
	neap_rpc_server_stop(rig.server, stopped);
	rig_for(20);
	ck_assert(!rig.stopped && call.times == 0);
	rig_ask(&after, &rig_echo, 1, 5000); /* it waits, then nobody listens */
	ck_assert_int_eq(rig_answer(0, 0), 0);
	rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert(rig_until(is_stopped, 1000));
	rig_expect(&after, NEAP_RPC_NOT_SENT, NEAP_RPC_NOT_EXECUTED, NEAP_ESOCKET, "");
	rig_close();
}
END_TEST

START_TEST(stopping_without_connections)
{
	rig_open();
	rig_server();
	neap_rpc_server_stop(rig.server, stopped);
	ck_assert(!rig.stopped && rig_until(is_stopped, 10));
	rig_close();
}
END_TEST

START_TEST(a_leaving_server_that_owes_for_ever)
{
	struct rig_call call = {0};
	rig_open();
	rig.client_options.leave_timeout_ns = 50 * MS;
	rig_server();
	rig_client(1);
	rig_ask(&call, &rig_later, 1, 5000);
	rig_await_later(1);
	neap_rpc_server_stop(rig.server, stopped);
	rig_expect(&call, NEAP_RPC_UNKNOWN, NEAP_RPC_PERHAPS, NEAP_ETIMEDOUT, "leave_timeout_ns");
	ck_assert(rig_until(is_stopped, 1000));
	rig_close();
}
END_TEST

/* --- resources ---------------------------------------------------------------------------------------------------------------------------- */

static struct neap_rpc_resource resources[3];

static void release(struct neap_rpc_resource *resource)
{
	ck_assert_ptr_null(resource->slot);
	rig.released++;
	if (resource == &resources[2])
		neap_rpc_detach(&resources[0]); /* takes its neighbour along */
}

START_TEST(a_connections_resources_are_released_once)
{
	struct rig_call call = {0};
	rig_both();
	rig_ask(&call, &rig_echo, 1, 5000);
	rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	for (unsigned i = 0; i < 3; i++) {
		resources[i] = (struct neap_rpc_resource){.release = release};
		ck_assert_int_eq(neap_rpc_attach(rig.server, rig.connection, &resources[i]), 0);
	}
	neap_rpc_detach(&resources[1]);
	neap_rpc_detach(&resources[1]);
	ck_assert(sim_cut_one(rig.sim, 0, 1, true));
	rig_for(5);
	ck_assert_uint_eq(rig.released, 1); /* [2], which took [0] out */
	ck_assert_int_eq(neap_rpc_attach(rig.server, rig.connection, &resources[0]), NEAP_ESTALE);
	rig_ask(&call, &rig_echo, 1, 5000);
	rig_expect(&call, NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	ck_assert_int_eq(neap_rpc_attach(rig.server, rig.connection, &resources[0]), 0);
	neap_rpc_channel_close(rig.channel); /* a friendly end counts too */
	rig_for(5);
	ck_assert_uint_eq(rig.released, 2);
	rig_close();
}
END_TEST

/* The client's host dies without a word: who watches its heartbeats ends its connections. */
START_TEST(a_dead_client_is_dropped)
{
	struct rig_call call = {0};
	static const uint8_t other[16] = "another instance";
	rig_both();
	rig.watch_cancel = true;
	rig_ask(&call, &rig_later, 1, 50000);
	rig_await_later(1);
	resources[0] = (struct neap_rpc_resource){.release = release};
	ck_assert_int_eq(neap_rpc_attach(rig.server, rig.connection, &resources[0]), 0);
	neap_rpc_server_drop(rig.server, other);
	ck_assert(rig.released == 0 && rig_server_stats().connections_now == 1);
	neap_rpc_server_drop(rig.server, rig.server_options.instance);
	ck_assert_uint_eq(rig.released, 0);
	neap_rpc_server_drop(rig.server, rig.client_options.instance);
	ck_assert(rig.released == 1 && rig.canceled == 1 && rig_server_stats().connections_now == 0 && rig_server_stats().lanes_now == 1);
	rig_close();
}
END_TEST

/* --- bounds ---------------------------------------------------------------------------------------------------------------------------------- */

START_TEST(calls_ids_and_bytes_are_bounded)
{
	struct rig_call call = {0};
	struct neap_rpc_id id, first;
	rig_open();
	rig.client_options.bytes_max = 100000;
	rig_client(1);
	ck_assert_int_eq(rig_try(&call, &rig_echo, 1, 200000, 1000, NULL), NEAP_EAGAIN);
	ck_assert_int_eq(rig_try(&call, &rig_echo, 1000001, 0, 1000, NULL), NEAP_EINVAL);
	ck_assert_int_eq(rig_try(&call, &rig_echo, 1, 0, 0, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_rpc_id_take(rig.channel, &first), 0);
	for (unsigned i = 1; i < 1024; i++)
		ck_assert_int_eq(neap_rpc_id_take(rig.channel, &id), 0);
	ck_assert_int_eq(neap_rpc_id_take(rig.channel, &id), NEAP_EAGAIN);
	neap_rpc_id_finish(rig.channel, &id); /* not the oldest */
	ck_assert_int_eq(neap_rpc_id_take(rig.channel, &id), NEAP_EAGAIN);
	neap_rpc_id_finish(rig.channel, &first);
	neap_rpc_id_finish(rig.channel, &first);
	ck_assert_int_eq(neap_rpc_id_take(rig.channel, &id), 0);
	ck_assert_int_eq(neap_rpc_id_take(rig.channel, &id), NEAP_EAGAIN);
	ck_assert_uint_eq(rig_client_stats().calls_now, 0);
	rig_close();
}
END_TEST

static struct rig_call many[300];

static bool all_ended(void)
{
	for (unsigned i = 0; i < 300; i++)
		if (many[i].times == 0)
			return false;
	return true;
}

/* 4 under way, 300 asked: the server reads no further than it can work, and all are served in the end. */
START_TEST(a_full_session_is_not_read_from)
{
	rig_open();
	rig.server_options.calls_max = 4;
	rig_server();
	rig_client(1);
	memset(many, 0, sizeof many);
	for (unsigned i = 0; i < 300; i++)
		rig_ask(&many[i], &rig_later, 1, 60000);
	rig_await_later(4);
	rig_for(20);
	ck_assert(rig.later_count == 4 && rig_server_stats().pauses == 1);
	for (uint32_t i = 0; i < 300; i++) {
		rig_await_later(i + 1);
		ck_assert_int_eq(rig_answer(i, 0), 0);
	}
	ck_assert(rig_until(all_ended, 1000) && rig_client_stats().ok == 300);
	rig_close();
}
END_TEST

/* Stopped, and lost, while full. */
START_TEST(a_full_session_stops)
{
	rig_open();
	rig.server_options.calls_max = 4;
	rig_server();
	rig_client(1);
	memset(many, 0, sizeof many);
	for (unsigned i = 0; i < 6; i++)
		rig_ask(&many[i], &rig_later, 1, 60000);
	rig_await_later(4);
	rig_for(1);
	neap_rpc_server_stop(rig.server, stopped);
	rig_for(1);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(rig_answer(i, 0), 0);
	for (unsigned i = 0; i < 4; i++)
		rig_expect(&many[i], NEAP_RPC_OK, NEAP_RPC_EXECUTED, 0, "");
	for (unsigned i = 4; i < 6; i++) /* sent, and said not to be taken */
		rig_expect(&many[i], NEAP_RPC_NOT_SENT, NEAP_RPC_NOT_EXECUTED, NEAP_ECLOSED, "the server is stopping");
	ck_assert(rig_until(is_stopped, 1000));
	rig_close();
}
END_TEST

START_TEST(replies_that_are_not_taken_stop_the_reading)
{
	rig_open();
	rig.server_options.replies_max = 100000;
	rig_server();
	rig_client(0);
	memset(many, 0, sizeof many);
	sim_run_for(rig.sim, MS);
	rig_raw_connect();
	ck_assert_int_eq(rig_raw_hello(0, 0, false), 0);
	/* the raw client does not read: 1 MiB of replies fills its windows */
	uint8_t *frame = malloc(60000);
	char *payload = calloc(1, 50000);
	struct neap_rpc_head head = {.type = NEAP_RPC_CALL, .method = RIG_ECHO, .call = 1, .deadline_us = UINT64_MAX};
	size_t length = rig_raw_encode(frame, 60000, &head, &neap_rpc_message_rig_number, &(struct rig_number){.payload = {payload, 50000}});
	rig.raw.have = RIG_RAW_MAX; /* no room: reads nothing */
	for (unsigned i = 0; i < 60; i++)
		rig_raw_write(frame, length);
	rig_for(50);
	uint64_t before = rig.executions;
	ck_assert(before < 60 && rig_server_stats().pauses >= 1 && rig_server_stats().bytes < 400000);
	rig_for(50);
	ck_assert_uint_eq(rig.executions, before);
	rig_for(11000); /* progress_timeout_ns */
	ck_assert_uint_eq(rig_server_stats().connections_now, 0);
	free(frame);
	free(payload);
	rig_close();
}
END_TEST

/* --- at most once, whatever happens ------------------------------------------------------------------------------------------------------- */

#define ADDS 60u

static struct add {
	struct rig_call call;
	struct neap_rpc_id id;
	uint32_t attempts;
	bool settled;
} adds[ADDS];
static uint32_t settled, repeated;

static void attempt(struct add *one);

static void attempt_ended(struct rig_call *call)
{
	struct add *one = (struct add *)(void *)call;
	enum neap_rpc_result result = call->outcome.result;
	if (result == NEAP_RPC_OK) {
		one->settled = true;
		settled++;
		neap_rpc_id_finish(rig.channel, &one->id);
		return;
	}
	ck_assert_msg(result == NEAP_RPC_UNKNOWN || result == NEAP_RPC_DEADLINE || result == NEAP_RPC_NOT_SENT ||
	                  call->outcome.status == NEAP_ECANCELED,
	              "%s", call->why);
	repeated++;
	attempt(one);
}

static void attempt(struct add *one)
{
	one->attempts++;
	one->call.then = attempt_ended;
	ck_assert_int_eq(rig_try(&one->call, &rig_add, 1, 0, 40 + one->attempts % 3 * 40, &one->id), 0);
}

static bool all_settled(void)
{
	return settled == ADDS;
}

/* Connections are cut, hosts are paused, requests and replies are lost: each is executed once. */
START_TEST(executed_once_under_faults)
{
	struct sim_random *chance;
	rig_both();
	chance = &rig.sim->random[SIM_FAULTS];
	for (int i = 0; i <= _i; i++)
		(void)sim_random_next(chance);
	chance->state[0] ^= (uint64_t)_i * UINT64_C(0x9e3779b97f4a7c15);
	rig.sim->net.short_io_per_mille = 100;
	rig.sim->net.delay_max_ns = 2 * MS;
	memset(adds, 0, sizeof adds);
	settled = repeated = 0;
	for (unsigned i = 0; i < ADDS; i++) {
		ck_assert_int_eq(neap_rpc_id_take(rig.channel, &adds[i].id), 0);
		attempt(&adds[i]);
		sim_run_for(rig.sim, sim_random_below(chance, 3 * MS));
		if (sim_random_chance(chance, 150))
			(void)sim_cut_one(rig.sim, 0, 1, sim_random_chance(chance, 500));
		if (sim_random_chance(chance, 50))
			sim_node_pause(sim_random_chance(chance, 500) ? rig.a : rig.b, sim_random_below(chance, 100 * MS));
	}
	ck_assert_msg(rig_until(all_settled, 60000), "%u of %u settled", settled, ADDS);
	ck_assert_msg(rig.total == ADDS && rig.executions == ADDS, "%llu executed, %u repeated", (unsigned long long)rig.executions, repeated);
	ck_assert_uint_eq(rig_client_stats().sessions_lost, 0);
	rig_for(10);
	ck_assert_uint_eq(rig_client_stats().bytes, 0);
	rig_close();
}
END_TEST

/* The n-th allocation of a create fails: it says so, and leaves nothing behind (rig_close looks). */
START_TEST(creates_without_memory)
{
	int error = NEAP_ENOMEM;
	char why[320];
	int system_errno;
	rig_open();
	for (uint64_t n = 0; error == NEAP_ENOMEM && n < 100; n++) {
		rig.a->fail_allocation_at = rig.a->allocations + n;
		error = neap_rpc_client_create(&rig.client, rig.a->reactor, NULL);
		ck_assert(error == 0 || (error == NEAP_ENOMEM && !rig.client && n < 99));
	}
	rig.a->fail_allocation_at = UINT64_MAX;
	error = NEAP_ENOMEM;
	for (uint64_t n = 0; error == NEAP_ENOMEM && n < 100; n++) {
		rig.b->fail_allocation_at = rig.b->allocations + n;
		error = neap_rpc_server_create(&rig.server, rig.b->reactor, NULL, NULL, 0, NULL, NULL, &system_errno, why, sizeof why);
		ck_assert(error == 0 || (error == NEAP_ENOMEM && !rig.server && strstr(why, "out of memory") && n < 99));
	}
	rig.b->fail_allocation_at = UINT64_MAX;
	rig_close();
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("rpc");
	TCase *calls = tcase_create("calls"), *wrong = tcase_create("losses"), *time = tcase_create("time"), *stop = tcase_create("stop"),
	      *bounds = tcase_create("bounds");
	tcase_add_test(calls, a_call_and_its_reply);
	tcase_add_test(calls, a_status_is_the_methods_own);
	tcase_add_test(calls, replies_come_in_any_order);
	tcase_add_test(calls, long_bodies);
	tcase_add_test(calls, a_callback_may_call);
	tcase_add_loop_test(calls, a_callback_may_close, 0, 2);
	tcase_add_test(calls, closing_ends_every_call_once);
	tcase_add_test(calls, closing_in_every_state);
	tcase_add_test(wrong, a_lost_connection_leaves_sent_calls_unknown);
	tcase_add_test(wrong, what_was_not_sent_goes_on_the_next_connection);
	tcase_add_test(wrong, a_lost_reply_is_answered_from_memory);
	tcase_add_test(wrong, a_repeat_is_attached_to_the_running_one);
	tcase_add_test(wrong, the_latest_repeat_gets_the_answer);
	tcase_add_test(wrong, a_server_without_memory_says_so);
	tcase_add_test(wrong, a_forgotten_lane_is_told);
	tcase_add_test(wrong, heartbeats_have_a_connection_of_their_own);
	tcase_add_test(time, the_deadline_travels);
	tcase_add_test(time, a_reply_that_is_there_is_not_late);
	tcase_add_test(time, a_deadline_before_the_server_was_reached);
	tcase_add_test(time, an_expired_call_is_not_executed);
	tcase_add_test(time, a_cancel_reaches_the_handler);
	tcase_add_test(time, cancel_while_it_waits_for_a_connection);
	tcase_add_test(time, the_handler_learns_of_a_lost_connection);
	tcase_add_test(time, silence_ends_a_connection);
	tcase_add_test(stop, a_stopping_server_answers_what_it_took);
	tcase_add_test(stop, stopping_without_connections);
	tcase_add_test(stop, a_leaving_server_that_owes_for_ever);
	tcase_add_test(stop, a_connections_resources_are_released_once);
	tcase_add_test(stop, a_dead_client_is_dropped);
	tcase_add_test(bounds, calls_ids_and_bytes_are_bounded);
	tcase_add_test(bounds, a_full_session_is_not_read_from);
	tcase_add_test(bounds, a_full_session_stops);
	tcase_add_test(bounds, replies_that_are_not_taken_stop_the_reading);
	tcase_add_test(bounds, creates_without_memory);
	tcase_add_loop_test(wrong, executed_once_under_faults, 0, 40);
	tcase_set_timeout(wrong, 30);
	suite_add_tcase(suite, calls);
	suite_add_tcase(suite, wrong);
	suite_add_tcase(suite, time);
	suite_add_tcase(suite, stop);
	suite_add_tcase(suite, bounds);
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
