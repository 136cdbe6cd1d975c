#include "store/rpc/hello.h"

#define MESSAGE_DEFINE
#include "tests/unit/rpc_rig.h"

#include "tests/support/coverage.h"
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rpc_rig rig;
static uint8_t instance_a[16] = "client instance", instance_b[16] = "server instance";

const struct neap_rpc_method rig_echo = {RIG_ECHO, "Echo", &neap_rpc_message_rig_number, &neap_rpc_message_rig_number, false, 0};
const struct neap_rpc_method rig_add = {RIG_ADD, "Add", &neap_rpc_message_rig_number, &neap_rpc_message_rig_number, true, 0};
const struct neap_rpc_method rig_later = {RIG_LATER, "Later", &neap_rpc_message_rig_number, &neap_rpc_message_rig_number, false, 0};
const struct neap_rpc_method rig_later_add = {RIG_LATER_ADD, "LaterAdd", &neap_rpc_message_rig_number, &neap_rpc_message_rig_number,
                                              true, 100};

/* --- methods ---------------------------------------------------------------------------------------------------------------- */

static void echo(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	(void)user;
	rig.executions++;
	rig.connection = incoming->connection;
	ck_assert_int_eq(neap_rpc_answer(incoming->server, incoming->handle, 0, request, NULL, 0), 0);
}

static void add(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	const struct rig_number *number = request;
	(void)user;
	rig.executions++;
	rig.connection = incoming->connection;
	rig.total += number->number;
	struct rig_number reply = {.number = rig.total};
	ck_assert_int_eq(neap_rpc_answer(incoming->server, incoming->handle, number->number == 13 ? -200 : 0, number->number == 13 ? NULL : &reply,
	                                 "thirteen brings bad luck", 7), 0);
}

static void on_cancel(void *user, uint64_t handle)
{
	ck_assert_ptr_eq(user, &rig);
	ck_assert_uint_ne(handle, 0);
	rig.canceled++;
}

static void later(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	const struct rig_number *number = request;
	(void)user;
	rig.executions++;
	rig.connection = incoming->connection;
	rig.total += number->number;
	rig.later[rig.later_count] = incoming->handle;
	rig.later_deadline_ns[rig.later_count++ % RIG_LATER_MAX] = incoming->deadline_ns;
	if (rig.watch_cancel)
		ck_assert_int_eq(neap_rpc_on_cancel(incoming->server, incoming->handle, on_cancel, &rig), 0);
}

static const struct neap_rpc_handler handlers[] = {{&rig_echo, echo}, {&rig_add, add}, {&rig_later, later}, {&rig_later_add, later}};

int rig_answer(uint32_t n, int status)
{
	struct rig_number reply = {.number = rig.total};
	return neap_rpc_answer(rig.server, rig.later[n], status, status ? NULL : &reply, "as the test wants", 0);
}

/* --- the world --------------------------------------------------------------------------------------------------------------- */

void rig_open(void)
{
	memset(&rig, 0, sizeof rig);
	rig.sim = sim_create(11);
	rig.sim->net = (struct sim_net_options){.delay_min_ns = 10000, .delay_max_ns = 20000, .segment_max = 65536,
	                                        .window_min = 1u << 18, .window_max = 1u << 18};
	rig.sim->host = (struct sim_host_options){.latency_max_ns = 1000};
	rig.a = sim_node_create(rig.sim, 0);
	rig.b = sim_node_create(rig.sim, 1);
	memcpy(rig.client_options.instance, instance_a, 16);
	memcpy(rig.server_options.instance, instance_b, 16);
	rig.server_options.epoch = 77;
}

static void close_all(struct sim_node *node, void *user)
{
	(void)user;
	if (node == rig.a && rig.client)
		neap_rpc_client_destroy(rig.client);
	if (node == rig.b && rig.server)
		neap_rpc_server_destroy(rig.server);
}

void rig_close(void)
{
	if (rig.raw.stream)
		rig_raw_close(false);
	if (rig.listener)
		rig.listener->ops->close(rig.listener);
	free(rig.raw.bytes);
	free(rig.raw.out);
	support_cover(neap_reactor_dispatcher(rig.a->reactor));
	support_cover(neap_reactor_dispatcher(rig.b->reactor));
	ck_assert_uint_eq(sim_node_finish(rig.a, close_all, NULL), 0);
	ck_assert_uint_eq(sim_node_finish(rig.b, close_all, NULL), 0);
	sim_destroy(rig.sim);
}

static void welcomed(void *user, const uint8_t instance[16], uint64_t epoch)
{
	ck_assert_ptr_eq(user, &rig);
	ck_assert_mem_eq(instance, instance_b, 16);
	rig.welcomes++;
	rig.epoch = epoch;
}

void rig_client(uint64_t lane)
{
	struct neap_rpc_channel_options options = {.server = {.host = "10.0.0.2", .port = RIG_PORT, .has_port = true},
	                                           .lane = lane, .welcomed = welcomed, .user = &rig};
	if (!rig.client)
		ck_assert_int_eq(neap_rpc_client_create(&rig.client, rig.a->reactor, &rig.client_options), 0);
	ck_assert_int_eq(neap_rpc_channel_open(&rig.channel, rig.client, &options), 0);
}

void rig_server(void)
{
	struct neap_sockaddr address;
	int system_errno;
	char why[320];
	ck_assert_int_eq(neap_sockaddr_from_numeric("10.0.0.2", RIG_PORT, &address), 0);
	int error = neap_rpc_server_create(&rig.server, rig.b->reactor, &address, handlers, 4, &rig.server_options, &rig, &system_errno, why,
	                                   sizeof why);
	ck_assert_msg(error == 0, "%s", why);
	ck_assert_uint_eq(neap_rpc_server_port(rig.server), RIG_PORT);
}

void rig_both(void)
{
	rig_open();
	rig_server();
	rig_client(1);
}

bool rig_until(bool (*holds)(void), unsigned ms)
{
	uint64_t limit_ns = rig.sim->now_ns + ms * MS;
	while (!holds() && rig.sim->now_ns < limit_ns)
		sim_run_for(rig.sim, 5000);
	return holds();
}

void rig_for(unsigned ms)
{
	sim_run_for(rig.sim, ms * MS);
}

bool rig_ended(const struct rig_call *call, unsigned ms)
{
	uint64_t limit_ns = rig.sim->now_ns + ms * MS;
	while (call->times == 0 && rig.sim->now_ns < limit_ns)
		sim_run_for(rig.sim, 5000);
	return call->times > 0;
}

/* --- calls --------------------------------------------------------------------------------------------------------------------- */

static void done(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	struct rig_call *call = user;
	const struct rig_number *number = reply;
	ck_assert((reply != NULL) == (outcome->result == NEAP_RPC_OK));
	call->times++;
	call->outcome = *outcome;
	(void)snprintf(call->why, sizeof call->why, "%s", outcome->why);
	call->number = number ? number->number : 0;
	call->payload = number ? number->payload.length : 0;
	size_t wrong = 0; /* not an assertion each: Check writes to a file at each */
	for (size_t i = 0; i < call->payload; i++)
		wrong += (uint8_t)number->payload.bytes[i] != (uint8_t)(i * 7);
	ck_assert_uint_eq(wrong, 0);
	if (call->then)
		call->then(call);
}

int rig_try(struct rig_call *call, const struct neap_rpc_method *method, uint64_t number, size_t payload, unsigned timeout_ms,
            const struct neap_rpc_id *id)
{
	char *bytes = malloc(payload ? payload : 1);
	for (size_t i = 0; i < payload; i++)
		bytes[i] = (char)(uint8_t)(i * 7);
	struct rig_number request = {.number = number, .payload = {bytes, (uint32_t)payload}};
	*call = (struct rig_call){.then = call->then};
	int error = neap_rpc_call(rig.channel, method, &request, timeout_ms * MS, id, done, call, &call->handle);
	free(bytes);
	ck_assert(call->times == 0 && (error == 0) == (call->handle != 0));
	return error;
}

void rig_ask(struct rig_call *call, const struct neap_rpc_method *method, uint64_t number, unsigned timeout_ms)
{
	call->then = NULL;
	ck_assert_int_eq(rig_try(call, method, number, 0, timeout_ms, NULL), 0);
}

void rig_expect(struct rig_call *call, enum neap_rpc_result result, enum neap_rpc_executed executed, int status, const char *said)
{
	ck_assert_msg(rig_ended(call, 60000), "no outcome");
	ck_assert_msg(call->outcome.result == result && call->outcome.executed == executed && call->outcome.status == status,
	              "%s executed %d status %d: %s", neap_rpc_result_name(call->outcome.result), (int)call->outcome.executed,
	              call->outcome.status, call->why);
	ck_assert_msg(strstr(call->why, said) != NULL, "'%s' does not say '%s'", call->why, said);
	ck_assert_uint_eq(call->times, 1);
}

static uint32_t later_wanted;
static bool later_there(void)
{
	return rig.later_count >= later_wanted;
}

void rig_await_later(uint32_t count)
{
	later_wanted = count;
	ck_assert_msg(rig_until(later_there, 10000), "%u of %u calls came", rig.later_count, count);
}

/* --- a peer spoken by the test --------------------------------------------------------------------------------------------------- */

static void raw_ready(struct neap_stream *stream, unsigned ready)
{
	struct rig_raw *raw = &rig.raw;
	(void)ready;
	while (raw->out_sent < raw->out_length) {
		struct iovec vector = {raw->out + raw->out_sent, raw->out_length - raw->out_sent};
		ssize_t n = neap_stream_writev(stream, &vector, 1);
		if (n <= 0)
			break;
		raw->out_sent += (size_t)n;
	}
	struct iovec vector = {raw->bytes + raw->have, RIG_RAW_MAX - raw->have};
	ssize_t n = vector.iov_len ? neap_stream_readv(stream, &vector, 1) : -EAGAIN;
	if (n > 0)
		raw->have += (size_t)n;
	raw->ended = raw->ended || n == 0 || (n < 0 && n != -EAGAIN);
	raw->reset = raw->reset || (n < 0 && n != -EAGAIN);
	unsigned wanted = (raw->have < RIG_RAW_MAX ? NEAP_READABLE : 0u) | (raw->out_sent < raw->out_length ? NEAP_WRITABLE : 0u);
	neap_stream_want(stream, raw->ended ? 0 : wanted);
}

static void raw_begin(struct neap_stream *stream)
{
	struct rig_raw *raw = &rig.raw;
	if (!raw->bytes) {
		raw->bytes = malloc(RIG_RAW_MAX);
		raw->out = malloc(8 * RIG_RAW_MAX);
	}
	raw->have = raw->at = raw->out_length = raw->out_sent = 0;
	raw->ended = raw->reset = false;
	raw->stream = stream;
	stream->ready = raw_ready;
	neap_stream_want(stream, NEAP_READABLE);
}

static void raw_accepted(struct neap_listener *listener)
{
	int error = 0;
	raw_begin(listener->ops->accept(listener, &error));
	listener->ops->want(listener, false);
}

void rig_raw_listen(void)
{
	struct neap_sockaddr address;
	struct neap_socket_options options = {0};
	int error = 0;
	ck_assert_int_eq(neap_sockaddr_from_numeric("10.0.0.2", RIG_PORT, &address), 0);
	rig.listener = rig.b->net.listen(&rig.b->net, rig.b->reactor, &address, &options, &error);
	ck_assert_ptr_nonnull(rig.listener);
	rig.listener->ready = raw_accepted;
}

static bool raw_there(void)
{
	return rig.raw.stream != NULL;
}

void rig_raw_accept(void)
{
	ck_assert_ptr_null(rig.raw.stream);
	rig.listener->ops->want(rig.listener, true);
	ck_assert(rig_until(raw_there, 5000));
}

void rig_raw_connect(void)
{
	struct neap_sockaddr address;
	struct neap_socket_options options = {0};
	int error = 0;
	ck_assert_int_eq(neap_sockaddr_from_numeric("10.0.0.2", RIG_PORT, &address), 0);
	if (rig.raw.stream) /* the test keeps it */
		neap_stream_want(rig.raw.stream, 0);
	raw_begin(rig.a->net.connect(&rig.a->net, rig.a->reactor, &address, &options, &error));
	rig_for(1);
}

void rig_raw_close(bool abortive)
{
	neap_stream_close(rig.raw.stream, abortive);
	rig.raw.stream = NULL;
}

void rig_raw_write(const void *bytes, size_t length)
{
	ck_assert_uint_le(rig.raw.out_length + length, 8 * RIG_RAW_MAX);
	memcpy(rig.raw.out + rig.raw.out_length, bytes, length);
	rig.raw.out_length += length;
	raw_ready(rig.raw.stream, 0);
}

size_t rig_raw_encode(uint8_t *bytes, size_t size, const struct neap_rpc_head *head, const struct neap_rpc_message *message, const void *data)
{
	struct neap_rpc_writer writer = {bytes + NEAP_RPC_HEAD_BYTES, size - NEAP_RPC_HEAD_BYTES, 0};
	struct neap_rpc_head full = *head;
	char why[320];
	if (message)
		ck_assert_int_eq(neap_rpc_encode(&writer, message, data, why, sizeof why), 0);
	full.body_bytes = (uint32_t)writer.length;
	neap_rpc_head_write(bytes, &full);
	return NEAP_RPC_HEAD_BYTES + writer.length;
}

void rig_raw_frame(const struct neap_rpc_head *head, const struct neap_rpc_message *message, const void *data)
{
	uint8_t bytes[8192];
	rig_raw_write(bytes, rig_raw_encode(bytes, sizeof bytes, head, message, data));
}

static bool raw_frame_there(void)
{
	struct neap_rpc_head head;
	char why[320];
	size_t left = rig.raw.have - rig.raw.at;
	if (left < NEAP_RPC_HEAD_BYTES)
		return false;
	ck_assert_int_eq(neap_rpc_head_read(rig.raw.bytes + rig.raw.at, UINT32_MAX, &head, why, sizeof why), 0);
	return left >= NEAP_RPC_HEAD_BYTES + head.body_bytes;
}

struct neap_rpc_head rig_raw_take(const uint8_t **body_p)
{
	struct neap_rpc_head head;
	char why[320];
	ck_assert_msg(rig_until(raw_frame_there, 5000), "no frame came");
	ck_assert_int_eq(neap_rpc_head_read(rig.raw.bytes + rig.raw.at, UINT32_MAX, &head, why, sizeof why), 0);
	if (body_p)
		*body_p = rig.raw.bytes + rig.raw.at + NEAP_RPC_HEAD_BYTES;
	rig.raw.at += NEAP_RPC_HEAD_BYTES + head.body_bytes;
	return head;
}

static bool raw_over(void)
{
	return rig.raw.ended;
}

bool rig_raw_ended(unsigned ms)
{
	return rig_until(raw_over, ms);
}

int rig_raw_hello(uint64_t lane, uint64_t epoch, bool resume)
{
	struct rpc_hello hello = {.instance = {(const char *)instance_a, 16}, .lane = lane, .epoch = epoch, .resume = resume};
	rig_raw_frame(&(struct neap_rpc_head){.type = NEAP_RPC_HELLO}, &neap_rpc_message_rpc_hello, &hello);
	struct neap_rpc_head head = rig_raw_take(NULL);
	ck_assert_int_eq(head.type, NEAP_RPC_WELCOME);
	return head.status;
}

void rig_raw_welcome(int status)
{
	struct rpc_welcome welcome = {.instance = {(const char *)instance_b, 16}, .epoch = 77, .why = {"because", 7}};
	rig_raw_frame(&(struct neap_rpc_head){.type = NEAP_RPC_WELCOME, .status = status}, &neap_rpc_message_rpc_welcome, &welcome);
}

void rig_raw_call(uint64_t call, uint32_t method, uint64_t number, uint64_t sequence, uint64_t finished_below)
{
	struct neap_rpc_head head = {.type = NEAP_RPC_CALL, .method = method, .call = call, .deadline_us = UINT64_MAX};
	struct rig_number request = {.number = number};
	if (sequence) {
		head.flags = NEAP_RPC_ONCE;
		head.epoch = 1;
		head.sequence = sequence;
		head.finished_below = finished_below;
	}
	rig_raw_frame(&head, &neap_rpc_message_rig_number, &request);
}

struct neap_rpc_client_stats rig_client_stats(void)
{
	struct neap_rpc_client_stats stats;
	neap_rpc_client_stats(rig.client, &stats);
	return stats;
}

struct neap_rpc_server_stats rig_server_stats(void)
{
	struct neap_rpc_server_stats stats;
	neap_rpc_server_stats(rig.server, &stats);
	return stats;
}
