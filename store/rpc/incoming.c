/* Calls that came, their handlers, their answers. */
#include "store/rpc/server_inside.h"
#include <stdio.h>
#include <string.h>

#define REPLY_MAX_DEFAULT 512u

/* --- replies without a handler ------------------------------------------------------------------------------------------- */

static struct rpc_refusal refusal_of(const char *why, uint64_t retry_after_ms)
{
	size_t length = why ? strlen(why) : 0;
	return (struct rpc_refusal){.why = neap_rpc_view_of(why, length < 512 ? length : 512), .retry_after_ms = retry_after_ms};
}

static void send_once(struct rpc_session *session, struct neap_rpc_block *block)
{
	neap_rpc_pipe_send(&session->pipe, block);
	neap_rpc_block_release(&session->server->room.blocks, block);
}

static void refuse(struct rpc_session *session, uint64_t call, uint16_t flags, int status, const char *why, uint64_t retry_after_ms)
{
	struct neap_rpc_room *room = &session->server->room;
	struct neap_rpc_head head = {.type = NEAP_RPC_REPLY, .flags = flags, .status = status, .call = call};
	struct rpc_refusal refusal = refusal_of(why, retry_after_ms);
	struct neap_rpc_block *block;
	char cause[NEAP_RPC_WHY_MAX];
	session->server->stats.refused++;
	if (neap_rpc_block_encode(&room->blocks, &head, &neap_rpc_message_rpc_refusal, &refusal, NEAP_RPC_BODY_MAX_LEAST, &block, cause,
	                          sizeof cause))
		rpc_session_break(session, cause);
	else
		send_once(session, block);
}

static void turn_down(struct rpc_session *session, const struct neap_rpc_head *head, int status, const char *why, uint64_t retry_after_ms)
{
	refuse(session, head->call, NEAP_RPC_UNTOUCHED, status, why, retry_after_ms);
}

/* The remembered bytes, under the number of the call that asks for them now. A block that still waits on an older connection is copied. */
static void answer_again(struct rpc_session *session, struct rpc_entry *entry, uint64_t call)
{
	struct neap_rpc_room *room = &session->server->room;
	struct neap_rpc_block *block = entry->block;
	struct neap_rpc_head head;
	session->server->stats.answered_again++;
	if (block->queued) {
		block = neap_rpc_block_take(&room->blocks, entry->block->length);
		if (!block) {
			rpc_session_break(session, "no memory to repeat an answer");
			return;
		}
		memcpy(block->bytes, entry->block->bytes, entry->block->length);
		block->length = entry->block->length;
	} else {
		block->refs++;
	}
	if (neap_rpc_head_read(block->bytes, UINT32_MAX, &head, room->why, sizeof room->why) == NEAP_OK) {
		head.call = call;
		neap_rpc_head_write(block->bytes, &head);
	}
	send_once(session, block);
}

/* --- calls under way ------------------------------------------------------------------------------------------------------ */

static void link_to(struct rpc_incoming *incoming, struct rpc_session *session, uint64_t call)
{
	incoming->session = session;
	incoming->call = call;
	incoming->previous = NULL;
	incoming->next = session->first;
	if (session->first)
		session->first->previous = incoming;
	session->first = incoming;
	session->calls++;
}

static void unlink_from(struct rpc_incoming *incoming)
{
	struct rpc_session *session = incoming->session;
	if (!session)
		return;
	*(incoming->previous ? &incoming->previous->next : &session->first) = incoming->next;
	if (incoming->next)
		incoming->next->previous = incoming->previous;
	incoming->session = NULL;
	session->calls--;
	if (session->machine.state == rpc_session_FULL)
		neap_ready_again(session->server->room.reactor, &session->look);
}

/* A repeated call whose first attempt is still under way: the answer goes to the latest who asks. */
static void attach(struct rpc_session *session, struct rpc_incoming *incoming, uint64_t call)
{
	struct rpc_session *before = incoming->session;
	uint64_t before_call = incoming->call;
	session->server->stats.attached++;
	unlink_from(incoming);
	link_to(incoming, session, call);
	if (before)
		refuse(before, before_call, 0, NEAP_ECANCELED, "the same request was sent again: its answer goes there", 0);
}

void rpc_incoming_orphan(struct rpc_session *session)
{
	struct neap_rpc_server *server = session->server;
	while (session->first) {
		struct rpc_incoming *incoming = session->first;
		uint64_t handle = neap_pool_handle(&server->incoming, incoming);
		void (*canceled)(void *, uint64_t) = incoming->canceled;
		void *user = incoming->user;
		unlink_from(incoming);
		if (incoming->lane)
			continue; /* its answer may still be asked for */
		neap_rpc_block_release(&server->room.blocks, incoming->block);
		neap_pool_give(&server->incoming, incoming);
		if (canceled)
			canceled(user, handle);
	}
}

void rpc_incoming_drop_all(struct neap_rpc_server *server)
{
	struct rpc_incoming *incoming;
	uint32_t index = 0;
	while ((incoming = neap_pool_next(&server->incoming, &index)) != NULL) {
		unlink_from(incoming);
		neap_rpc_block_release(&server->room.blocks, incoming->block);
		neap_pool_give(&server->incoming, incoming);
	}
}

void rpc_cancel_arrived(struct rpc_session *session, uint64_t call)
{
	struct rpc_incoming *incoming = session->first;
	while (incoming && incoming->call != call)
		incoming = incoming->next;
	if (!incoming)
		return; /* answered already */
	session->server->stats.canceled++;
	void (*canceled)(void *, uint64_t) = incoming->canceled;
	incoming->canceled = NULL;
	if (canceled)
		canceled(incoming->user, neap_pool_handle(&session->server->incoming, incoming));
}

int neap_rpc_on_cancel(struct neap_rpc_server *server, uint64_t handle, void (*canceled)(void *user, uint64_t handle), void *user)
{
	struct rpc_incoming *incoming = neap_pool_find(&server->incoming, handle);
	if (!incoming)
		return NEAP_ESTALE;
	incoming->canceled = canceled;
	incoming->user = user;
	return NEAP_OK;
}

/* --- arrival -------------------------------------------------------------------------------------------------------------- */

static const struct neap_rpc_handler *find_handler(const struct neap_rpc_server *server, uint32_t number)
{
	for (uint32_t i = 0; i < server->handler_count; i++)
		if (server->handlers[i].method->number == number)
			return &server->handlers[i];
	return NULL;
}

/* Counted from when its bytes were read: it may have been held back since. */
static uint64_t deadline_of(const struct rpc_session *session, const struct neap_rpc_head *head)
{
	uint64_t came_ns = session->pipe.received_ns;
	return head->deadline_us < (UINT64_MAX - came_ns) / 1000 ? came_ns + 1000 * head->deadline_us : UINT64_MAX;
}

/* A request id decides first. True: the call is to be executed. */
static bool admit(struct rpc_session *session, const struct neap_rpc_head *head)
{
	struct neap_rpc_server *server = session->server;
	struct rpc_lane *lane = session->lane;
	char why[160];
	if (!lane || head->epoch != lane->epoch) {
		server->stats.no_session++;
		turn_down(session, head, NEAP_ENOSESSION, neap_error_text(NEAP_ENOSESSION), 0);
		return false;
	}
	if (head->finished_below > head->sequence) {
		turn_down(session, head, NEAP_EREQUEST, "the request id is below what the request itself calls finished", 0);
		return false;
	}
	rpc_lane_finish(lane, head->finished_below);
	if (head->sequence < lane->finished_below) {
		turn_down(session, head, NEAP_EFINISHED, neap_error_text(NEAP_EFINISHED), 0);
		return false;
	}
	if (head->sequence - lane->finished_below >= server->options.window_max) {
		server->stats.refused_window++;
		(void)snprintf(why, sizeof why, "request id %llu: answers are kept for %u ids from the oldest unfinished, %llu (window_max)",
		               (unsigned long long)head->sequence, server->options.window_max, (unsigned long long)lane->finished_below);
		turn_down(session, head, NEAP_ELIMIT, why, 0);
		return false;
	}
	struct rpc_entry *entry = rpc_lane_entry(lane, head->sequence);
	if (entry->block)
		answer_again(session, entry, head->call);
	else if (entry->incoming)
		attach(session, neap_pool_find(&server->incoming, entry->incoming), head->call);
	return !entry->block && !entry->incoming;
}

/* Decodes; an answer goes out when that is not possible. */
static const void *request_of(struct rpc_session *session, const struct neap_rpc_method *method, const struct neap_rpc_head *head,
                              const uint8_t *body)
{
	struct neap_rpc_server *server = session->server;
	const void *request = NULL;
	char why[NEAP_RPC_WHY_MAX];
	int error = neap_rpc_decode(&server->decoder, method->request, body, head->body_bytes, &request, why, sizeof why);
	if (error == NEAP_EPROTO || error == NEAP_ELIMIT)
		rpc_session_break(session, why);
	else if (error)
		turn_down(session, head, error == NEAP_ENOMEM ? NEAP_EAGAIN : error, why, 0);
	return error ? NULL : request;
}

static struct rpc_incoming *take_incoming(struct rpc_session *session, const struct neap_rpc_handler *handler,
                                          const struct neap_rpc_head *head)
{
	struct neap_rpc_server *server = session->server;
	const struct neap_rpc_method *method = handler->method;
	size_t reply_bytes = NEAP_RPC_HEAD_BYTES + (size_t)(method->reply_max ? method->reply_max : REPLY_MAX_DEFAULT);
	struct rpc_incoming *incoming = neap_pool_take(&server->incoming);
	struct neap_rpc_block *block = incoming && method->once ? neap_rpc_block_take(&server->room.blocks, reply_bytes) : NULL;
	if (!incoming || (method->once && !block)) {
		server->stats.refused_memory++;
		if (incoming)
			neap_pool_give(&server->incoming, incoming);
		turn_down(session, head, NEAP_EAGAIN, incoming ? "no memory to keep the answer in (bytes_max)" : "too many calls (calls_total_max)",
		          1);
		return NULL;
	}
	*incoming = (struct rpc_incoming){.handler = handler, .block = block};
	link_to(incoming, session, head->call);
	if (method->once) {
		incoming->lane = session->lane;
		incoming->sequence = head->sequence;
		rpc_lane_entry(session->lane, head->sequence)->incoming = neap_pool_handle(&server->incoming, incoming);
	}
	return incoming;
}

void rpc_call_arrived(struct rpc_session *session, const struct neap_rpc_head *head, const uint8_t *body)
{
	struct neap_rpc_server *server = session->server;
	const struct neap_rpc_handler *handler = find_handler(server, head->method);
	char why[160];
	server->stats.calls++;
	session->taken++;
	if (!handler) {
		(void)snprintf(why, sizeof why, "there is no method %u", head->method);
		turn_down(session, head, NEAP_ENOMETHOD, why, 0);
		return;
	}
	if (handler->method->once != ((head->flags & NEAP_RPC_ONCE) != 0)) {
		(void)snprintf(why, sizeof why, "%s %s a request id", handler->method->name, handler->method->once ? "needs" : "takes no");
		turn_down(session, head, NEAP_EREQUEST, why, 0);
		return;
	}
	if (handler->method->once && !admit(session, head))
		return;
	uint64_t deadline_ns = deadline_of(session, head);
	if (neap_now(server->room.reactor) >= deadline_ns) {
		server->stats.expired++;
		turn_down(session, head, NEAP_ETIMEDOUT, "its deadline had passed before it was begun; it is not executed", 0);
		return;
	}
	const void *request = request_of(session, handler->method, head, body);
	struct rpc_incoming *incoming = request ? take_incoming(session, handler, head) : NULL;
	if (!incoming)
		return;
	server->stats.executed++;
	handler->handle(server->user,
	                &(struct neap_rpc_incoming){.server = server,
	                                            .handle = neap_pool_handle(&server->incoming, incoming),
	                                            .connection = session->handle,
	                                            .instance = session->instance,
	                                            .deadline_ns = deadline_ns},
	                request);
}

/* --- answers -------------------------------------------------------------------------------------------------------------- */

/* The frame of an answer: into the block that was set aside, or into a new one. */
static int encode(struct neap_rpc_server *server, struct rpc_incoming *incoming, struct neap_rpc_head *head,
                  const struct neap_rpc_message *message, const void *data, char *why, size_t why_size)
{
	if (incoming->block)
		return neap_rpc_block_fill(incoming->block, head, message, data, why, why_size);
	uint32_t body_max = incoming->session ? incoming->session->peer_body_max : NEAP_RPC_BODY_MAX_DEFAULT;
	return neap_rpc_block_encode(&server->room.blocks, head, message, data, body_max, &incoming->block, why, why_size);
}

int neap_rpc_answer(struct neap_rpc_server *server, uint64_t handle, int status, const void *reply, const char *why,
                    uint64_t retry_after_ms)
{
	struct rpc_incoming *incoming = neap_pool_find(&server->incoming, handle);
	char cause[NEAP_RPC_WHY_MAX];
	if (!incoming)
		return NEAP_ESTALE;
	struct rpc_session *session = incoming->session;
	struct neap_rpc_head head = {.type = NEAP_RPC_REPLY, .status = status, .call = incoming->call};
	struct rpc_refusal refusal = refusal_of(why, retry_after_ms);
	int error = encode(server, incoming, &head, status ? &neap_rpc_message_rpc_refusal : incoming->handler->method->reply,
	                   status ? &refusal : reply, cause, sizeof cause);
	if (error) {
		head.status = NEAP_ELIMIT;
		refusal = refusal_of(cause, 0);
		if (encode(server, incoming, &head, &neap_rpc_message_rpc_refusal, &refusal, cause, sizeof cause) && session)
			rpc_session_break(session, cause);
	}
	struct neap_rpc_block *block = incoming->block;
	if (incoming->lane) {
		struct rpc_entry *entry = rpc_lane_entry(incoming->lane, incoming->sequence);
		*entry = (struct rpc_entry){.block = block};
		if (block)
			block->refs++;
	}
	unlink_from(incoming);
	neap_pool_give(&server->incoming, incoming);
	if (session && block)
		neap_rpc_pipe_send(&session->pipe, block);
	neap_rpc_block_release(&server->room.blocks, block);
	return error ? NEAP_ELIMIT : NEAP_OK;
}
