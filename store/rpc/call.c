/* Calls. A call's events come from the pipe, from its timer and from the channel's pump, never from inside a call of the user: so
 * what a user does in a callback takes effect after it. Every way out takes the call apart first and tells its owner last. */
#include "store/rpc/client_inside.h"
#include "store/rpc/hello.h"
#include <stdio.h>
#include <string.h>

#define PUMP_MAX 256u /* calls a run */

/* --- lists ------------------------------------------------------------------------------------------------------------ */

static void leave_list(struct rpc_call *call)
{
	struct rpc_call_list *list = call->list;
	if (!list)
		return;
	*(call->previous ? &call->previous->next : &list->first) = call->next;
	*(call->next ? &call->next->previous : &list->last) = call->previous;
	call->list = NULL;
}

void rpc_call_move(struct rpc_call *call, struct rpc_call_list *list)
{
	leave_list(call);
	call->previous = list->last;
	call->next = NULL;
	*(list->last ? &list->last->next : &list->first) = call;
	list->last = call;
	call->list = list;
}

void rpc_call_fall(struct rpc_call *call, uint8_t fate, int status)
{
	struct neap_rpc_channel *channel = call->channel;
	if (call->list == &channel->calls && call->machine.state == rpc_call_SENT)
		channel->sent_count--;
	call->fate = fate;
	call->status = status;
	rpc_call_move(call, &channel->falling);
	neap_ready_again(channel->client->room.reactor, &channel->pump);
}

/* --- ends ------------------------------------------------------------------------------------------------------------- */

/* How it left the network: true when no server can have it whole. */
static bool withdraw(struct rpc_call *call)
{
	struct neap_rpc_channel *channel = call->channel;
	bool unsent = call->ordinal == 0 && neap_rpc_pipe_withdraw(&channel->pipe, call->block);
	if (!unsent && channel->machine.state == rpc_channel_OPEN)
		rpc_channel_tell_cancel(channel, neap_pool_handle(&channel->client->calls, call));
	return unsent;
}

void rpc_call_drop(struct rpc_call *call)
{
	struct neap_rpc_channel *channel = call->channel;
	struct neap_rpc_client *client = channel->client;
	/* the machine is in DONE already: a call in `calls` with an ordinal was in SENT */
	if (call->list == &channel->calls && call->ordinal != 0) {
		channel->sent_count--;
		if (channel->sent_count == 0 && channel->machine.state == rpc_channel_LEAVING)
			(void)neap_post(&channel->machine, rpc_channel_on_DRAINED, 0);
	}
	leave_list(call);
	channel->call_count--;
	if (call->own_id)
		rpc_ids_finish(&channel->ids, &call->id);
	if (call->block)
		(void)neap_rpc_pipe_withdraw(&channel->pipe, call->block);
	neap_rpc_block_release(&client->room.blocks, call->block);
	call->block = NULL;
	neap_machine_end(&call->machine);
	neap_pool_give(&client->calls, call);
}

static void end(struct rpc_call *call, const struct neap_rpc_outcome *outcome, const void *reply)
{
	neap_rpc_done_func *done = call->done;
	void *user = call->user;
	rpc_call_drop(call);
	done(user, outcome, reply);
}

static void end_badly(struct rpc_call *call, enum neap_rpc_result result, enum neap_rpc_executed executed, int status, const char *cause)
{
	char why[NEAP_RPC_WHY_MAX + 2 * NEAP_ADDRESS_TEXT_MAX];
	(void)snprintf(why, sizeof why, "%s at %s: %s", call->method->name, call->channel->peer, cause);
	end(call, &(struct neap_rpc_outcome){.result = result, .executed = executed, .status = status, .why = why}, NULL);
}

/* --- actions ---------------------------------------------------------------------------------------------------------- */

/* Whether a refused call can have had an effect. A method's own status means that the method ran. */
static enum neap_rpc_executed executed_of(const struct neap_rpc_head *head)
{
	if (head->flags & NEAP_RPC_UNTOUCHED)
		return NEAP_RPC_NOT_EXECUTED;
	return head->status <= NEAP_EAGAIN ? NEAP_RPC_PERHAPS : NEAP_RPC_EXECUTED;
}

static void do_deliver(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_call *call = rpc_call_of(machine);
	struct neap_rpc_client *client = call->channel->client;
	int status = client->reply_head->status;
	(void)argument;
	if (status == 0) {
		client->stats.ok++;
		end(call, &(struct neap_rpc_outcome){.result = NEAP_RPC_OK, .executed = NEAP_RPC_EXECUTED, .why = ""}, client->reply);
		return;
	}
	const struct rpc_refusal *refusal = client->reply;
	char why[NEAP_RPC_WHY_MAX + 2 * NEAP_ADDRESS_TEXT_MAX];
	(void)snprintf(why, sizeof why, "%s at %s: refused with %d: %.*s", call->method->name, call->channel->peer, status,
	               refusal->why.length > NEAP_RPC_WHY_MAX ? (int)NEAP_RPC_WHY_MAX : (int)refusal->why.length,
	               refusal->why.bytes ? refusal->why.bytes : "");
	client->stats.refused++;
	end(call,
	    &(struct neap_rpc_outcome){.result = NEAP_RPC_REFUSED,
	                               .executed = executed_of(client->reply_head),
	                               .status = status,
	                               .retry_after_ms = refusal->retry_after_ms,
	                               .why = why},
	    NULL);
}

static void do_refuse(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_call *call = rpc_call_of(machine);
	struct neap_rpc_client_stats *stats = &call->channel->client->stats;
	(void)argument;
	if (call->status == NEAP_ENOSESSION) {
		stats->refused++;
		end_badly(call, NEAP_RPC_REFUSED, NEAP_RPC_NOT_EXECUTED, call->status,
		          "the server has lost its memory of this request id: nobody can tell whether an earlier attempt was executed");
		return;
	}
	stats->not_sent++;
	end_badly(call, NEAP_RPC_NOT_SENT, NEAP_RPC_NOT_EXECUTED, call->status, call->channel->why);
}

static void do_lose(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_call *call = rpc_call_of(machine);
	(void)argument;
	call->channel->client->stats.unknown++;
	end_badly(call, NEAP_RPC_UNKNOWN, NEAP_RPC_PERHAPS, call->status, call->channel->why);
}

static void do_cancel(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_call *call = rpc_call_of(machine);
	enum neap_rpc_executed executed = withdraw(call) ? NEAP_RPC_NOT_EXECUTED : NEAP_RPC_PERHAPS;
	(void)argument;
	call->channel->client->stats.canceled++;
	end_badly(call, NEAP_RPC_CANCELED, executed, NEAP_ECANCELED, "canceled by its caller");
}

static void do_close(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_call *call = rpc_call_of(machine);
	enum neap_rpc_executed executed = call->ordinal == 0 ? NEAP_RPC_NOT_EXECUTED : NEAP_RPC_PERHAPS;
	(void)argument;
	call->channel->client->stats.closed++;
	end_badly(call, NEAP_RPC_CLOSED, executed, NEAP_ECLOSED, "the channel was closed");
}

/* No answer in time; and when nothing at all came for long, the connection is not believed in any more. */
static void do_expire(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_call *call = rpc_call_of(machine);
	struct neap_rpc_channel *channel = call->channel;
	struct neap_rpc_client *client = channel->client;
	uint64_t now_ns = neap_now(client->room.reactor), silence_ns = client->options.silence_ns;
	bool sent = call->ordinal != 0;
	(void)argument;
	bool silent = sent && channel->machine.state == rpc_channel_OPEN && now_ns - call->sent_ns >= silence_ns &&
	              now_ns - channel->pipe.received_ns >= silence_ns;
	if (silent) {
		rpc_channel_note(channel, NEAP_ETIMEDOUT, "nothing came for %llu ms (silence_ns)", (unsigned long long)(silence_ns / 1000000));
		(void)neap_post(&channel->machine, rpc_channel_on_BROKEN, 0);
	}
	enum neap_rpc_executed executed = withdraw(call) ? NEAP_RPC_NOT_EXECUTED : NEAP_RPC_PERHAPS;
	client->stats.deadline++;
	end_badly(call, NEAP_RPC_DEADLINE, executed, NEAP_ETIMEDOUT,
	          sent ? "no reply within its deadline" : "its deadline passed before the server was reached");
}

static neap_action_func *const actions[] = {
	[rpc_call_do_deliver] = do_deliver, [rpc_call_do_refuse] = do_refuse, [rpc_call_do_lose] = do_lose,
	[rpc_call_do_cancel] = do_cancel,   [rpc_call_do_expire] = do_expire, [rpc_call_do_close] = do_close,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)timeout_class;
	(void)now_ns;
	return rpc_call_of(machine)->deadline_ns;
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)event;
	end_badly(rpc_call_of(machine), NEAP_RPC_UNKNOWN, NEAP_RPC_PERHAPS, NEAP_EINTERNAL, neap_error_text(NEAP_EINTERNAL));
}

const struct neap_machine_kind rpc_call_kind = {
	.fsm = &neap_fsm_rpc_call,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct rpc_call),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- the pump --------------------------------------------------------------------------------------------------------- */

/* Callbacks may close the channel, which stays until its last call has ended, or destroy the client, which drops all at once. */
void rpc_channel_pump(struct neap_ready *ready)
{
	struct neap_rpc_channel *channel = (struct neap_rpc_channel *)(void *)((char *)ready - offsetof(struct neap_rpc_channel, pump));
	struct neap_rpc_client *client = channel->client;
	bool started = channel->connect_wanted;
	for (uint32_t i = 0; i < PUMP_MAX && channel->fresh.first; i++) {
		struct rpc_call *call = channel->fresh.first;
		rpc_call_move(call, &channel->calls);
		neap_step(&call->machine, rpc_call_on_START, call->method->number);
		started = true;
	}
	channel->connect_wanted = false;
	if (started && !channel->closed)
		neap_step(&channel->machine, rpc_channel_on_CALL, 0);
	for (uint32_t i = 0; i < PUMP_MAX && channel->falling.first; i++) {
		struct rpc_call *call = channel->falling.first;
		if (call->machine.state == rpc_call_NEW)
			neap_step(&call->machine, rpc_call_on_START, call->method->number);
		neap_step(&call->machine, call->fate, 0);
		if (client->closing)
			return;
	}
	if (channel->fresh.first || channel->falling.first)
		neap_ready_again(client->room.reactor, &channel->pump);
	else if (channel->closed)
		rpc_channel_drop(channel);
}

/* --- calls ------------------------------------------------------------------------------------------------------------ */

int neap_rpc_id_take(struct neap_rpc_channel *channel, struct neap_rpc_id *id_p)
{
	return channel->options.lane ? rpc_ids_take(&channel->ids, id_p) : NEAP_EINVAL;
}

void neap_rpc_id_finish(struct neap_rpc_channel *channel, const struct neap_rpc_id *id)
{
	rpc_ids_finish(&channel->ids, id);
}

static int take_id(struct rpc_call *call, const struct neap_rpc_id *id)
{
	call->own_id = call->method->once && !id;
	call->id = id ? *id : (struct neap_rpc_id){0};
	return call->own_id ? neap_rpc_id_take(call->channel, &call->id) : NEAP_OK;
}

int neap_rpc_call(struct neap_rpc_channel *channel, const struct neap_rpc_method *method, const void *request, uint64_t timeout_ns,
                  const struct neap_rpc_id *id, neap_rpc_done_func *done, void *user, uint64_t *call_p)
{
	struct neap_rpc_client *client = channel->client;
	uint64_t now_ns = neap_now(client->room.reactor);
	if (call_p)
		*call_p = 0;
	if (client->closing || channel->closing)
		return NEAP_ECLOSED;
	if (!done || timeout_ns == 0 || timeout_ns >= UINT64_MAX - now_ns || (method->once && !channel->options.lane))
		return NEAP_EINVAL;
	if (channel->call_count == channel->options.calls_max)
		return NEAP_EAGAIN;
	struct rpc_call *call = neap_pool_take(&client->calls);
	if (!call)
		return NEAP_EAGAIN;
	struct neap_machine machine = call->machine;
	struct neap_timer timer = call->timer;
	*call = (struct rpc_call){.machine = machine, .timer = timer, .channel = channel, .method = method, .done = done, .user = user,
	                          .deadline_ns = now_ns + timeout_ns};
	struct neap_rpc_head head = {.type = NEAP_RPC_CALL};
	int error = neap_rpc_block_encode(&client->room.blocks, &head, method->request, request, channel->peer_body_max, &call->block,
	                                  client->room.why, sizeof client->room.why);
	if (!error)
		error = take_id(call, id);
	if (error) {
		neap_rpc_block_release(&client->room.blocks, call->block);
		neap_pool_give(&client->calls, call);
		return error;
	}
	call->block->owner = neap_pool_handle(&client->calls, call);
	channel->call_count++;
	client->stats.calls++;
	neap_machine_begin(&call->machine, &client->call_class->class_);
	rpc_call_move(call, &channel->fresh);
	neap_ready_again(client->room.reactor, &channel->pump);
	if (method->once && call->id.epoch != channel->ids.epoch)
		rpc_call_fall(call, rpc_call_on_REFUSED, NEAP_ENOSESSION);
	if (call_p)
		*call_p = call->block->owner;
	return NEAP_OK;
}

void neap_rpc_cancel(struct neap_rpc_client *client, uint64_t handle)
{
	struct rpc_call *call = neap_pool_find(&client->calls, handle);
	if (call && call->list != &call->channel->falling)
		rpc_call_fall(call, rpc_call_on_CANCEL, NEAP_ECANCELED);
}
