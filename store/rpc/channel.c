/* Channels: one connection to one server, and the calls that wait for it or are under way on it. */
#include "store/rpc/client_inside.h"
#include "store/rpc/hello.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct neap_rpc_channel *channel_of(const struct neap_machine *machine)
{
	return (struct neap_rpc_channel *)(uintptr_t)((const char *)machine - offsetof(struct neap_rpc_channel, machine));
}

void rpc_channel_note(struct neap_rpc_channel *channel, int error, const char *format, ...)
{
	va_list list;
	channel->error = error;
	va_start(list, format);
	(void)vsnprintf(channel->why, sizeof channel->why, format, list);
	va_end(list);
}

static int send_frame(struct neap_rpc_channel *channel, struct neap_rpc_head *head, const struct neap_rpc_message *message,
                      const void *data)
{
	struct neap_rpc_room *room = &channel->client->room;
	struct neap_rpc_block *block;
	int error = neap_rpc_block_encode(&room->blocks, head, message, data, NEAP_RPC_BODY_MAX_LEAST, &block, room->why, sizeof room->why);
	if (error)
		return error;
	neap_rpc_pipe_send(&channel->pipe, block);
	neap_rpc_block_release(&room->blocks, block);
	return NEAP_OK;
}

void rpc_channel_tell_cancel(struct neap_rpc_channel *channel, uint64_t call)
{
	/* without room for it the server just works in vain */
	(void)send_frame(channel, &(struct neap_rpc_head){.type = NEAP_RPC_CANCEL, .call = call}, NULL, NULL);
}

/* What only the moment of sending knows: the time left, the id of the present epoch, what is finished by now. */
void rpc_channel_push(struct neap_rpc_channel *channel, struct rpc_call *call)
{
	uint64_t now_ns = neap_now(channel->client->room.reactor);
	struct neap_rpc_head head = {.type = NEAP_RPC_CALL,
	                             .body_bytes = call->block->length - NEAP_RPC_HEAD_BYTES,
	                             .method = call->method->number,
	                             .call = call->block->owner,
	                             .deadline_us = call->deadline_ns > now_ns ? (call->deadline_ns - now_ns) / 1000 : 0};
	if (head.body_bytes > channel->peer_body_max) {
		rpc_channel_note(channel, NEAP_ELIMIT, "the request has %u bytes; the server takes %u (body_max)", head.body_bytes,
		                 channel->peer_body_max);
		rpc_call_fall(call, rpc_call_on_REFUSED, NEAP_ELIMIT);
		return;
	}
	if (call->method->once) {
		head.flags = NEAP_RPC_ONCE;
		head.epoch = call->id.epoch;
		head.sequence = call->id.sequence;
		head.finished_below = channel->ids.finished_below;
	}
	neap_rpc_head_write(call->block->bytes, &head);
	neap_rpc_pipe_send(&channel->pipe, call->block);
}

/* --- facts to events ---------------------------------------------------------------------------------------------------- */

static void connected(struct neap_connect *connect, int error, int system_errno, struct neap_stream *stream)
{
	struct neap_rpc_channel *channel = connect->user;
	if (error) {
		rpc_channel_note(channel, error, "%s", connect->detail);
		neap_step(&channel->machine, rpc_channel_on_UNREACHABLE, (uint64_t)system_errno);
		return;
	}
	neap_rpc_pipe_open(&channel->pipe, stream);
	neap_step(&channel->machine, rpc_channel_on_CONNECTED, 0);
}

static void break_off(struct neap_rpc_channel *channel, int error, const char *why)
{
	rpc_channel_note(channel, error ? error : NEAP_EPEER, "%s", why);
	neap_step(&channel->machine, rpc_channel_on_BROKEN, 0);
}

static void on_broken(struct neap_rpc_pipe *pipe, int error, const char *why)
{
	break_off(pipe->user, error, why);
}

static void on_sent(struct neap_rpc_pipe *pipe, struct neap_rpc_block *block)
{
	struct neap_rpc_channel *channel = pipe->user;
	struct rpc_call *call = block->owner ? neap_pool_find(&channel->client->calls, block->owner) : NULL;
	if (block->owner)
		channel->ordinals++;
	/* a leaving server does not take it: it waits for the next connection */
	if (!call || channel->machine.state != rpc_channel_OPEN)
		return;
	call->ordinal = channel->ordinals;
	call->sent_ns = neap_now(channel->client->room.reactor);
	channel->sent_count += call->list == &channel->calls;
	neap_rpc_block_release(&channel->client->room.blocks, call->block);
	call->block = NULL;
	neap_step(&call->machine, rpc_call_on_SENT, call->ordinal);
}

static bool all_zero(const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i])
			return false;
	return true;
}

static bool is_expected(const struct neap_rpc_channel *channel, const char *instance)
{
	return all_zero(channel->options.expected, 16) || memcmp(channel->options.expected, instance, 16) == 0;
}

static void welcome_arrived(struct neap_rpc_channel *channel, const struct neap_rpc_head *head, const uint8_t *body)
{
	struct neap_rpc_client *client = channel->client;
	const void *data;
	char why[NEAP_RPC_WHY_MAX];
	int error = neap_rpc_decode(&client->decoder, &neap_rpc_message_rpc_welcome, body, head->body_bytes, &data, why, sizeof why);
	if (error) {
		break_off(channel, error, why);
		return;
	}
	const struct rpc_welcome *welcome = data;
	if (head->status == NEAP_ENOSESSION && channel->resume) {
		neap_step(&channel->machine, rpc_channel_on_STRANGER, channel->ids.epoch);
	} else if (head->status != 0) {
		/* ENOSESSION has a meaning of its own for calls, and nothing was to be resumed here */
		int status = head->status == NEAP_ENOSESSION ? NEAP_EPROTO : head->status;
		rpc_channel_note(channel, status, "the server refused the connection with %d: %.*s", head->status,
		                 (int)welcome->why.length, welcome->why.bytes ? welcome->why.bytes : "");
		neap_step(&channel->machine, rpc_channel_on_REFUSED, (uint64_t)(uint32_t)head->status);
	} else if (welcome->instance.length != 16 || !is_expected(channel, welcome->instance.bytes)) {
		rpc_channel_note(channel, NEAP_EINSTANCE, "%s", neap_error_text(NEAP_EINSTANCE));
		neap_step(&channel->machine, rpc_channel_on_REFUSED, 0);
	} else {
		if (welcome->body_max >= NEAP_RPC_BODY_MAX_LEAST)
			channel->peer_body_max = (uint32_t)welcome->body_max;
		client->reply = welcome;
		neap_step(&channel->machine, rpc_channel_on_WELCOME, welcome->epoch);
	}
}

static void reply_arrived(struct neap_rpc_channel *channel, const struct neap_rpc_head *head, const uint8_t *body)
{
	struct neap_rpc_client *client = channel->client;
	struct rpc_call *call = neap_pool_find(&client->calls, head->call);
	char why[NEAP_RPC_WHY_MAX];
	if (!call || call->channel != channel) {
		client->stats.late_replies++; /* it has ended by its deadline or was canceled */
		return;
	}
	if (call->machine.state != rpc_call_SENT) {
		break_off(channel, NEAP_EPROTO, "a reply to a call that was not sent");
		return;
	}
	const struct neap_rpc_message *message = head->status ? &neap_rpc_message_rpc_refusal : call->method->reply;
	int error = neap_rpc_decode(&client->decoder, message, body, head->body_bytes, &client->reply, why, sizeof why);
	if (error) {
		break_off(channel, error, why);
		return;
	}
	client->reply_head = head;
	neap_step(&call->machine, rpc_call_on_REPLY, (uint64_t)(uint32_t)head->status);
}

static void on_frame(struct neap_rpc_pipe *pipe, const struct neap_rpc_head *head, const uint8_t *body)
{
	struct neap_rpc_channel *channel = pipe->user;
	uint8_t state = channel->machine.state;
	char why[NEAP_RPC_WHY_MAX];
	if (head->type == NEAP_RPC_WELCOME && state == rpc_channel_GREETING) {
		welcome_arrived(channel, head, body);
	} else if (head->type == NEAP_RPC_REPLY && state != rpc_channel_GREETING) {
		reply_arrived(channel, head, body);
	} else if (head->type == NEAP_RPC_GOODBYE && state == rpc_channel_OPEN) {
		channel->goodbye_taken = head->call;
		neap_step(&channel->machine, rpc_channel_on_GOODBYE, head->call);
	} else {
		(void)snprintf(why, sizeof why, "a frame of type %u in state %s", head->type, neap_machine_state_name(&channel->machine));
		break_off(channel, NEAP_EPROTO, why);
	}
}

/* --- actions ------------------------------------------------------------------------------------------------------------ */

static void do_connect(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rpc_channel *channel = channel_of(machine);
	struct neap_rpc_client *client = channel->client;
	(void)argument;
	client->stats.connects++;
	int error = neap_connect_start(&channel->connect, client->room.reactor, &channel->options.server, NULL,
	                               client->options.connect_timeout_ns, connected, channel);
	if (error) {
		rpc_channel_note(channel, error, "%s", neap_error_text(error));
		(void)neap_post(machine, rpc_channel_on_UNREACHABLE, 0);
	}
}

static void do_greet(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rpc_channel *channel = channel_of(machine);
	const struct neap_rpc_client *client = channel->client;
	bool any = all_zero(channel->options.expected, 16);
	struct rpc_hello hello = {.instance = neap_rpc_view_of(client->options.instance, 16),
	                          .expected = neap_rpc_view_of(any ? NULL : channel->options.expected, any ? 0 : 16),
	                          .lane = channel->options.lane,
	                          .epoch = channel->options.lane ? channel->ids.epoch : 0,
	                          .resume = channel->resume,
	                          .body_max = client->room.body_max};
	struct neap_rpc_head head = {.type = NEAP_RPC_HELLO};
	(void)argument;
	channel->ordinals = 0;
	/* when there is no memory for it, the server's silence ends the attempt */
	(void)send_frame(channel, &head, &neap_rpc_message_rpc_hello, &hello);
}

/* The server has forgotten our ids. A call that has an id of its own takes a new one; an attempt of a user's id is over. */
static void do_greet_anew(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rpc_channel *channel = channel_of(machine);
	struct rpc_call *call, *next;
	channel->client->stats.sessions_lost++;
	channel->resume = false;
	rpc_ids_begin(&channel->ids, channel->ids.epoch + 1);
	for (call = channel->calls.first; call; call = next) {
		next = call->next;
		if (call->method->once && (!call->own_id || rpc_ids_take(&channel->ids, &call->id)))
			rpc_call_fall(call, rpc_call_on_REFUSED, NEAP_ENOSESSION);
	}
	for (call = channel->fresh.first; call; call = next) {
		next = call->next;
		if (call->method->once && (!call->own_id || rpc_ids_take(&channel->ids, &call->id)))
			rpc_call_fall(call, rpc_call_on_REFUSED, NEAP_ENOSESSION);
	}
	do_greet(machine, argument);
}

/* Requests go out in the order in which they were made; those in the pipe already are skipped there. */
static void do_send(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rpc_channel *channel = channel_of(machine);
	struct rpc_call *call = channel->calls.last, *next;
	(void)argument;
	while (call && call->previous && call->previous->block && !call->previous->block->queued)
		call = call->previous;
	for (; call; call = next) {
		next = call->next;
		if (call->block && !call->block->queued)
			rpc_channel_push(channel, call);
	}
}

static void do_begin(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rpc_channel *channel = channel_of(machine);
	const struct rpc_welcome *welcome = channel->client->reply;
	uint8_t instance[16];
	memcpy(instance, welcome->instance.bytes, sizeof instance);
	channel->backoff_ns = 0;
	channel->resume = channel->options.lane != 0;
	do_send(machine, 0);
	if (channel->options.welcomed)
		channel->options.welcomed(channel->options.user, instance, argument);
}

/* The connection is gone. What its server may have stays in the order of its sending; what it cannot have waits for the next one. */
static void lose_connection(struct neap_rpc_channel *channel)
{
	const struct neap_rpc_client_options *options = &channel->client->options;
	struct rpc_call *call, *next;
	channel->client->stats.losses += channel->pipe.stream != NULL;
	neap_rpc_pipe_close(&channel->pipe, false);
	for (call = channel->calls.first; call; call = next) {
		next = call->next;
		if (call->machine.state == rpc_call_SENT)
			rpc_call_fall(call, rpc_call_on_LOST, channel->error);
	}
	channel->backoff_ns = channel->backoff_ns == 0 ? options->backoff_min_ns : 2 * channel->backoff_ns;
	if (channel->backoff_ns > options->backoff_max_ns)
		channel->backoff_ns = options->backoff_max_ns;
}

static void do_lose(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	lose_connection(channel_of(machine));
}

/* The server cannot be had: nobody waits for it who could ask another one. */
static void do_turn_away(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rpc_channel *channel = channel_of(machine);
	(void)argument;
	lose_connection(channel);
	while (channel->calls.first)
		rpc_call_fall(channel->calls.first, rpc_call_on_REFUSED, channel->error);
}

static void do_silent(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rpc_channel *channel = channel_of(machine);
	rpc_channel_note(channel, NEAP_ETIMEDOUT, "no welcome within %llu ms (hello_timeout_ns): perhaps it is no server of the store's RPC",
	                 (unsigned long long)(channel->client->options.hello_timeout_ns / 1000000));
	do_turn_away(machine, argument);
}

static void do_overdue(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rpc_channel *channel = channel_of(machine);
	rpc_channel_note(channel, NEAP_ETIMEDOUT, "the leaving server did not answer within %llu ms (leave_timeout_ns)",
	                 (unsigned long long)(channel->client->options.leave_timeout_ns / 1000000));
	do_lose(machine, argument);
}

/* Calls behind those that the server says it took are not executed: the same request may go elsewhere at once. */
static void do_leave(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rpc_channel *channel = channel_of(machine);
	struct rpc_call *call, *next;
	(void)argument;
	rpc_channel_note(channel, NEAP_ECLOSED, "the server is stopping");
	for (call = channel->calls.first; call; call = next) {
		next = call->next;
		if (call->machine.state == rpc_call_SENT && call->ordinal > channel->goodbye_taken)
			rpc_call_fall(call, rpc_call_on_REFUSED, NEAP_ECLOSED);
		else if (call->block)
			(void)neap_rpc_pipe_withdraw(&channel->pipe, call->block);
	}
	if (channel->sent_count == 0)
		(void)neap_post(machine, rpc_channel_on_DRAINED, 0);
}

static void do_resume(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rpc_channel *channel = channel_of(machine);
	(void)argument;
	if (channel->calls.first)
		(void)neap_post(machine, rpc_channel_on_CALL, 0);
}

static void do_close(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rpc_channel *channel = channel_of(machine);
	(void)argument;
	neap_connect_cancel(&channel->connect);
	for (struct rpc_call *call = channel->calls.first; call; call = call->next)
		if (call->block && !neap_rpc_pipe_withdraw(&channel->pipe, call->block))
			call->ordinal = channel->ordinals + 1; /* begun: its rest goes out with the last words */
	if (channel->pipe.stream) {
		(void)send_frame(channel, &(struct neap_rpc_head){.type = NEAP_RPC_GOODBYE}, NULL, NULL);
		neap_rpc_pipe_flush(&channel->pipe);
	}
	neap_rpc_pipe_close(&channel->pipe, false);
	while (channel->calls.first)
		rpc_call_fall(channel->calls.first, rpc_call_on_CLOSE, NEAP_ECLOSED);
	while (channel->fresh.first)
		rpc_call_fall(channel->fresh.first, rpc_call_on_CLOSE, NEAP_ECLOSED);
	channel->closed = true;
	neap_ready_again(channel->client->room.reactor, &channel->pump);
}

static neap_action_func *const actions[] = {
	[rpc_channel_do_connect] = do_connect,     [rpc_channel_do_greet] = do_greet, [rpc_channel_do_greet_anew] = do_greet_anew,
	[rpc_channel_do_begin] = do_begin,         [rpc_channel_do_send] = do_send,   [rpc_channel_do_turn_away] = do_turn_away,
	[rpc_channel_do_leave] = do_leave,         [rpc_channel_do_lose] = do_lose,   [rpc_channel_do_silent] = do_silent,
	[rpc_channel_do_overdue] = do_overdue,     [rpc_channel_do_resume] = do_resume, [rpc_channel_do_close] = do_close,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_rpc_channel *channel = channel_of(machine);
	const struct neap_rpc_client_options *options = &channel->client->options;
	if (timeout_class == rpc_channel_timeout_HELLO)
		return now_ns + options->hello_timeout_ns;
	if (timeout_class == rpc_channel_timeout_LEAVE)
		return now_ns + options->leave_timeout_ns;
	/* the dispatcher asks before the action has doubled it */
	uint64_t pause_ns = channel->backoff_ns ? 2 * channel->backoff_ns : options->backoff_min_ns;
	return now_ns + (pause_ns < options->backoff_max_ns ? pause_ns : options->backoff_max_ns);
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)event;
	rpc_channel_note(channel_of(machine), NEAP_EINTERNAL, "%s", neap_error_text(NEAP_EINTERNAL));
	do_close(machine, 0);
}

const struct neap_machine_kind rpc_channel_kind = {
	.fsm = &neap_fsm_rpc_channel,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_rpc_channel),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- life --------------------------------------------------------------------------------------------------------------- */

int neap_rpc_channel_open(struct neap_rpc_channel **channel_p, struct neap_rpc_client *client,
                          const struct neap_rpc_channel_options *options)
{
	*channel_p = NULL;
	if (client->closing)
		return NEAP_ECLOSED;
	if (options->server.host[0] == '\0' || options->server.port == 0)
		return NEAP_EINVAL;
	struct neap_rpc_channel *channel = neap_pool_take(&client->channels);
	if (!channel)
		return NEAP_EAGAIN;
	struct neap_machine machine = channel->machine, connecting = channel->connect.machine;
	uint64_t serial = channel->pipe.serial;
	*channel = (struct neap_rpc_channel){.machine = machine, .client = client, .options = *options, .peer_body_max = UINT32_MAX};
	channel->connect.machine = connecting;
	channel->pipe = (struct neap_rpc_pipe){.room = &client->room, .serial = serial, .frame = on_frame, .sent = on_sent,
	                                       .broken = on_broken, .user = channel};
	channel->pump.run = rpc_channel_pump;
	if (channel->options.calls_max == 0)
		channel->options.calls_max = 1024;
	rpc_ids_begin(&channel->ids, 1);
	if (neap_host_port_format(&options->server, channel->peer, sizeof channel->peer) < 0)
		channel->peer[0] = '\0';
	neap_machine_begin(&channel->machine, &client->channel_class->class_);
	*channel_p = channel;
	return NEAP_OK;
}

void neap_rpc_channel_connect(struct neap_rpc_channel *channel)
{
	channel->connect_wanted = true;
	neap_ready_again(channel->client->room.reactor, &channel->pump);
}

void neap_rpc_channel_close(struct neap_rpc_channel *channel)
{
	if (!channel || channel->closing)
		return;
	channel->closing = true;
	neap_step(&channel->machine, rpc_channel_on_CLOSE, 0);
}

void rpc_channel_drop(struct neap_rpc_channel *channel)
{
	struct neap_rpc_client *client = channel->client;
	neap_connect_cancel(&channel->connect);
	neap_rpc_pipe_close(&channel->pipe, false);
	neap_ready_cancel(client->room.reactor, &channel->pump);
	neap_machine_end(&channel->machine);
	neap_pool_give(&client->channels, channel);
}
