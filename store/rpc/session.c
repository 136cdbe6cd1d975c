/* Sessions: the server's end of a connection. Frames are worked off in the pipe's callbacks, outside of the dispatcher, so that what a
 * frame changes is changed before the next one is looked at. */
#include "store/rpc/server_inside.h"
#include <stdio.h>
#include <string.h>

static struct rpc_session *session_of(const struct neap_machine *machine)
{
	return (struct rpc_session *)(uintptr_t)((const char *)machine - offsetof(struct rpc_session, machine));
}

/* --- life --------------------------------------------------------------------------------------------------------------- */

/* Owners get their resources back; each may take others out while it is told. */
static void release_resources(struct rpc_session *session)
{
	while (session->resources) {
		struct neap_rpc_resource *resource = session->resources;
		neap_rpc_detach(resource);
		resource->release(resource);
	}
}

int neap_rpc_attach(struct neap_rpc_server *server, uint64_t connection, struct neap_rpc_resource *resource)
{
	struct rpc_session *session = neap_pool_find(&server->sessions, connection);
	if (!session || !session->pipe.stream)
		return NEAP_ESTALE;
	resource->next = session->resources;
	resource->slot = &session->resources;
	if (resource->next)
		resource->next->slot = &resource->next;
	session->resources = resource;
	return NEAP_OK;
}

void neap_rpc_detach(struct neap_rpc_resource *resource)
{
	if (!resource->slot)
		return;
	*resource->slot = resource->next;
	if (resource->next)
		resource->next->slot = resource->slot;
	resource->slot = NULL;
	resource->next = NULL;
}

void rpc_session_end(struct rpc_session *session)
{
	struct neap_rpc_server *server = session->server;
	neap_rpc_pipe_close(&session->pipe, false);
	*(session->older ? &session->older->newer : &server->oldest) = session->newer;
	*(session->newer ? &session->newer->older : &server->newest) = session->older;
	if (session->lane)
		rpc_lane_leave(session->lane);
	session->lane = NULL;
	neap_machine_end(&session->machine);
	rpc_incoming_orphan(session);
	release_resources(session);
	neap_ready_cancel(server->room.reactor, &session->look);
	bool accepted = session->accepted;
	neap_pool_give(&server->sessions, session);
	if (accepted && !server->closing)
		neap_acceptor_released(&server->acceptor);
	if (server->stopping && server->sessions.used == 0)
		neap_ready_again(server->room.reactor, &server->halt);
}

void rpc_session_break(struct rpc_session *session, const char *why)
{
	(void)snprintf(session->why, sizeof session->why, "%s", why);
	neap_step(&session->machine, rpc_session_on_BROKEN, 0);
}

bool rpc_session_full(const struct rpc_session *session)
{
	const struct neap_rpc_server_options *options = &session->server->options;
	return session->calls >= options->calls_max || session->pipe.queued_bytes >= options->replies_max;
}

static void look(struct rpc_session *session)
{
	if (session->machine.state == rpc_session_FULL && !rpc_session_full(session))
		neap_step(&session->machine, rpc_session_on_ROOM, session->calls);
}

static void run_look(struct neap_ready *ready)
{
	look((struct rpc_session *)(void *)((char *)ready - offsetof(struct rpc_session, look)));
}

/* --- facts to events ------------------------------------------------------------------------------------------------------ */

static void not_welcome(struct rpc_session *session, int status, const char *why)
{
	session->status = status;
	(void)snprintf(session->why, sizeof session->why, "%s", why);
	neap_step(&session->machine, rpc_session_on_REFUSED, (uint64_t)(uint32_t)status);
}

static void hello_arrived(struct rpc_session *session, const struct neap_rpc_head *head, const uint8_t *body)
{
	struct neap_rpc_server *server = session->server;
	const void *data;
	char why[NEAP_RPC_WHY_MAX];
	if (neap_rpc_decode(&server->decoder, &neap_rpc_message_rpc_hello, body, head->body_bytes, &data, why, sizeof why)) {
		rpc_session_break(session, why);
		return;
	}
	const struct rpc_hello *hello = data;
	if (hello->instance.length != 16) {
		not_welcome(session, NEAP_EREQUEST, "an instance id has 16 bytes");
		return;
	}
	if (hello->expected.length > 0 &&
	    (hello->expected.length != 16 || memcmp(hello->expected.bytes, server->options.instance, 16) != 0)) {
		not_welcome(session, NEAP_EINSTANCE, neap_error_text(NEAP_EINSTANCE));
		return;
	}
	memcpy(session->instance, hello->instance.bytes, sizeof session->instance);
	session->peer_body_max = hello->body_max >= NEAP_RPC_BODY_MAX_LEAST ? (uint32_t)hello->body_max : NEAP_RPC_BODY_MAX_DEFAULT;
	int error = hello->lane ? rpc_lane_join(server, hello, session) : NEAP_OK;
	if (error == NEAP_ENOSESSION)
		neap_step(&session->machine, rpc_session_on_STRANGER, hello->epoch);
	else if (error)
		not_welcome(session, error, error == NEAP_ELIMIT ? "too many clients are connected (lanes_max)" : neap_error_text(error));
	else
		neap_step(&session->machine, rpc_session_on_HELLO, hello->epoch);
}

static void frame_while_open(struct rpc_session *session, const struct neap_rpc_head *head, const uint8_t *body)
{
	char why[160];
	/* behind our goodbye nothing is taken any more */
	bool leaving = session->machine.state == rpc_session_LEAVING;
	if (head->type == NEAP_RPC_CALL && leaving)
		return;
	if (head->type == NEAP_RPC_CALL) {
		rpc_call_arrived(session, head, body);
	} else if (head->type == NEAP_RPC_CANCEL) {
		rpc_cancel_arrived(session, head->call);
	} else if (head->type == NEAP_RPC_GOODBYE) {
		neap_step(&session->machine, rpc_session_on_GONE, head->call);
	} else {
		(void)snprintf(why, sizeof why, "a frame of type %u from a client in state %s", head->type,
		               neap_machine_state_name(&session->machine));
		rpc_session_break(session, why);
	}
}

static void on_frame(struct neap_rpc_pipe *pipe, const struct neap_rpc_head *head, const uint8_t *body)
{
	struct rpc_session *session = pipe->user;
	uint64_t serial = pipe->serial;
	if (session->machine.state != rpc_session_GREETING)
		frame_while_open(session, head, body);
	else if (head->type == NEAP_RPC_HELLO)
		hello_arrived(session, head, body);
	else if (head->type == NEAP_RPC_GOODBYE)
		neap_step(&session->machine, rpc_session_on_GONE, 0);
	else
		rpc_session_break(session, "a connection begins with a hello");
	if (pipe->serial == serial && session->machine.state == rpc_session_OPEN && rpc_session_full(session))
		neap_step(&session->machine, rpc_session_on_FULL, session->calls);
}

static void on_moved(struct neap_rpc_pipe *pipe)
{
	look(pipe->user);
}

static void on_broken(struct neap_rpc_pipe *pipe, int error, const char *why)
{
	struct rpc_session *session = pipe->user;
	if (error == NEAP_OK && session->machine.state != rpc_session_FULL)
		neap_step(&session->machine, rpc_session_on_GONE, 0);
	else
		rpc_session_break(session, why);
}

/* --- actions -------------------------------------------------------------------------------------------------------------- */

static void do_receive(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_session *session = session_of(machine);
	(void)argument;
	session->server->stats.connections++;
}

static void send_welcome(struct rpc_session *session, int status, const char *why)
{
	struct neap_rpc_server *server = session->server;
	struct rpc_welcome welcome = {.instance = neap_rpc_view_of(server->options.instance, 16),
	                              .epoch = server->options.epoch,
	                              .body_max = server->room.body_max,
	                              .calls_max = server->options.calls_max,
	                              .why = neap_rpc_view_of(why, strlen(why))};
	struct neap_rpc_head head = {.type = NEAP_RPC_WELCOME, .status = status};
	struct neap_rpc_block *block;
	/* without memory for it the client's deadline ends the attempt */
	if (neap_rpc_block_encode(&server->room.blocks, &head, &neap_rpc_message_rpc_welcome, &welcome, NEAP_RPC_BODY_MAX_LEAST, &block,
	                          server->room.why, sizeof server->room.why))
		return;
	neap_rpc_pipe_send(&session->pipe, block);
	neap_rpc_block_release(&server->room.blocks, block);
}

static void do_welcome(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	send_welcome(session_of(machine), NEAP_OK, "");
}

static void do_no_session(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_session *session = session_of(machine);
	(void)argument;
	session->server->stats.no_session++;
	send_welcome(session, NEAP_ENOSESSION, neap_error_text(NEAP_ENOSESSION));
}

static void say(const struct rpc_session *session, const char *what)
{
	struct neap_sockaddr address;
	char peer[NEAP_ADDRESS_TEXT_MAX];
	const struct neap_stream *stream = session->pipe.stream;
	if (!stream || stream->ops->peer_address(session->pipe.stream, &address) || neap_sockaddr_format(&address, peer, sizeof peer) < 0)
		(void)snprintf(peer, sizeof peer, "a client");
	neap_log(session->server->room.reactor, NEAP_LOG_INFO, "rpc", "%s: %s; connection closed", peer, what);
}

static void do_turn_away(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_session *session = session_of(machine);
	(void)argument;
	send_welcome(session, session->status, session->why);
}

static void do_pause(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_session *session = session_of(machine);
	(void)argument;
	session->server->stats.pauses++;
	neap_rpc_pipe_pause(&session->pipe);
}

static void do_resume(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	neap_rpc_pipe_resume(&session_of(machine)->pipe);
}

static void do_goodbye(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_session *session = session_of(machine);
	struct neap_rpc_room *room = &session->server->room;
	struct neap_rpc_head head = {.type = NEAP_RPC_GOODBYE, .call = session->taken};
	struct neap_rpc_block *block;
	(void)argument;
	if (neap_rpc_block_encode(&room->blocks, &head, NULL, NULL, 0, &block, room->why, sizeof room->why) == NEAP_OK) {
		neap_rpc_pipe_send(&session->pipe, block);
		neap_rpc_block_release(&room->blocks, block);
	}
	neap_rpc_pipe_resume(&session->pipe); /* to see the client's end */
}

static void do_close(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	rpc_session_end(session_of(machine));
}

static void do_refuse(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_session *session = session_of(machine);
	(void)argument;
	session->server->stats.broken++;
	say(session, session->why);
	rpc_session_end(session);
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct rpc_session *session = session_of(machine);
	(void)argument;
	session->server->stats.broken++;
	say(session, session->lane || session->taken ? "the client did not close in time" : "no hello in time, or the client did not close");
	rpc_session_end(session);
}

static neap_action_func *const actions[] = {
	[rpc_session_do_receive] = do_receive, [rpc_session_do_welcome] = do_welcome, [rpc_session_do_no_session] = do_no_session,
	[rpc_session_do_turn_away] = do_turn_away, [rpc_session_do_pause] = do_pause, [rpc_session_do_resume] = do_resume,
	[rpc_session_do_goodbye] = do_goodbye, [rpc_session_do_close] = do_close,     [rpc_session_do_refuse] = do_refuse,
	[rpc_session_do_give_up] = do_give_up,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_rpc_server_options *options = &session_of(machine)->server->options;
	return now_ns + (timeout_class == rpc_session_timeout_HELLO ? options->hello_timeout_ns : options->leave_timeout_ns);
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)event;
	rpc_session_end(session_of(machine));
}

const struct neap_machine_kind rpc_session_kind = {
	.fsm = &neap_fsm_rpc_session,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct rpc_session),
	.due_ns = due_ns,
	.broken = broken,
};

void rpc_session_begin(struct neap_rpc_server *server, struct neap_stream *stream, bool accepted)
{
	struct rpc_session *session = neap_pool_take(&server->sessions);
	struct neap_machine machine = session->machine;
	uint64_t serial = session->pipe.serial;
	*session = (struct rpc_session){.machine = machine, .server = server, .older = server->newest, .accepted = accepted,
	                                .handle = neap_pool_handle(&server->sessions, session)};
	*(server->newest ? &server->newest->newer : &server->oldest) = session;
	server->newest = session;
	session->look.run = run_look;
	session->pipe = (struct neap_rpc_pipe){.room = &server->room, .serial = serial, .frame = on_frame, .moved = on_moved,
	                                       .broken = on_broken, .user = session};
	neap_machine_begin(&session->machine, &server->session_class->class_);
	neap_rpc_pipe_open(&session->pipe, stream);
	neap_step(&session->machine, rpc_session_on_ACCEPTED, 0);
}
