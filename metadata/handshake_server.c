/* The handshake service. Every connection is a session of its own with a deadline for the whole request and one for the reply, so
 * that a silent, slow or hostile peer delays nobody. What all sessions together hold of requests and replies is bounded. */
#include "metadata/descriptor.h"
#include "metadata/handshake.h"
#include "metadata/handshake_session_fsm.h"
#include "reactor/listen.h"
#include "reactor/pool.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRATCH_BYTES 65536u
#define MEMORY_MAX_LEAST (64u * 1024u * 1024u)
#define BIND_ATTEMPTS 500u
#define SECOND_NS UINT64_C(1000000000)

struct session {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_handshake_service *service;
	struct session *older, *newer; /* in the order of accept */
	struct neap_stream *stream;
	struct neap_frame_reader reader;
	char *reply;               /* heap: the JSON */
	size_t reply_length, sent; /* sent counts head, JSON and newline */
	size_t metered;            /* bytes counted in the service's `memory` for this session */
	uint64_t due_ns;
	uint8_t head[9];
	uint8_t head_length;
	bool newline; /* the JSON came without one */
	bool old;     /* the request was of the old protocol */
	bool held;    /* it is whole, and was left for later */
	int type;
};

struct neap_handshake_service {
	struct neap_reactor *reactor;
	struct neap_reactor_class *class_;
	struct neap_dependent dependent;
	struct neap_reap reap;
	struct neap_acceptor acceptor;
	struct neap_pool pool;
	struct session *oldest, *newest;
	struct neap_handshake_handlers handlers;
	struct neap_handshake_service_options options;
	struct neap_handshake_service_stats stats;
	size_t memory, memory_max;
	bool closing;
	char why[200]; /* of the refusal under way */
	char scratch[SCRATCH_BYTES];
};

static struct session *session_of(const struct neap_machine *machine)
{
	return (struct session *)(uintptr_t)((const char *)machine - offsetof(struct session, machine));
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Counts what the session holds now. */
static void meter(struct session *session)
{
	size_t held = session->reader.body_capacity + (session->reply ? session->reply_length : 0);
	session->service->memory += held - session->metered;
	session->metered = held;
}

static size_t memory_left(const struct neap_handshake_service *service)
{
	return service->memory < service->memory_max ? service->memory_max - service->memory : 0;
}

/* Takes it out of everything at once: nothing is called back for it any more. */
static void end_session(struct session *session)
{
	struct neap_handshake_service *service = session->service;
	if (session->stream)
		neap_stream_close(session->stream, false);
	session->stream = NULL;
	neap_frame_reader_reset(&session->reader);
	free(session->reply);
	session->reply = NULL;
	meter(session);
	*(session->older ? &session->older->newer : &service->oldest) = session->newer;
	*(session->newer ? &session->newer->older : &service->newest) = session->older;
	neap_machine_end(&session->machine);
	neap_pool_give(&service->pool, session);
	neap_acceptor_released(&service->acceptor);
}

static void peer_text(const struct session *session, char *text, size_t size)
{
	struct neap_sockaddr address;
	if (!session->stream || session->stream->ops->peer_address(session->stream, &address) ||
	    neap_sockaddr_format(&address, text, size) < 0)
		(void)snprintf(text, size, "a peer");
}

static void refuse(struct session *session, const char *why)
{
	char peer[NEAP_ADDRESS_TEXT_MAX];
	peer_text(session, peer, sizeof peer);
	session->service->stats.refused++;
	neap_log(session->service->reactor, NEAP_LOG_INFO, "handshake", "%s: %s; connection closed", peer, why);
	end_session(session);
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* What stands in for a request's JSON that is not looked into: an object it must be. */
static int check_object(struct neap_handshake_service *service, const char *json, size_t length)
{
	int error = neap_json_prescan(json, length, NEAP_DEPTH_MAX, service->why, sizeof service->why);
	size_t at = 0;
	while (!error && (json[at] == ' ' || json[at] == '\n' || json[at] == '\t' || json[at] == '\r'))
		at++;
	if (!error && json[at] != '{') {
		(void)snprintf(service->why, sizeof service->why, "the request is not an object");
		error = NEAP_EJSON;
	}
	return error;
}

static int answer_text(struct session *session, const char *text)
{
	session->reply = strdup(text);
	session->reply_length = strlen(text);
	return session->reply ? NEAP_OK : NEAP_ENOMEM;
}

static int answer_metadata(struct session *session)
{
	struct neap_handshake_service *service = session->service;
	if (service->handlers.describe)
		session->reply = service->handlers.describe(service->handlers.user, &session->reply_length);
	return session->reply || service->closing ? NEAP_OK : answer_text(session, "null\n");
}

static int answer_notify(struct session *session, const char *json, size_t length)
{
	struct neap_handshake_service *service = session->service;
	struct neap_notify_message message;
	int error = neap_notify_decode(json, length, &message, service->why, sizeof service->why);
	if (error)
		return error;
	bool taken = service->handlers.notify && service->handlers.notify(service->handlers.user, message.name, message.message) == 0;
	neap_notify_free(&message);
	service->stats.notifies += taken;
	/* an empty message is how peers are told that theirs was refused */
	return neap_notify_encode("", taken ? "success" : "", &session->reply, &session->reply_length);
}

/* A reply that names the failure; what else it holds stays empty. */
static int refuse_connection(struct session *session, struct neap_connection_message *reply, const char *text)
{
	free(reply->reply_msg);
	reply->reply_msg = strdup(text);
	return reply->reply_msg ? neap_connection_encode(reply, &session->reply, &session->reply_length) : NEAP_ENOMEM;
}

static int answer_connection(struct session *session, const char *json, size_t length)
{
	struct neap_handshake_service *service = session->service;
	struct neap_connection_message request, reply = {0};
	int error = neap_connection_decode(json, length, &request, service->why, sizeof service->why);
	if (error == NEAP_EINVAL)
		error = refuse_connection(session, &reply, service->why);
	else if (!error) {
		uint64_t ticket = neap_pool_handle(&service->pool, session);
		error = service->handlers.connection ? service->handlers.connection(service->handlers.user, ticket, &request, &reply) : NEAP_OK;
		if (error == NEAP_HANDSHAKE_LATER)
			; /* neap_handshake_answer */
		else if (error && !(reply.reply_msg && reply.reply_msg[0]))
			error = refuse_connection(session, &reply, neap_error_text(error));
		else
			error = neap_connection_encode(&reply, &session->reply, &session->reply_length);
		neap_connection_free(&request);
	}
	neap_connection_free(&reply);
	return error;
}

static int answer(struct session *session, int type, const char *json, size_t length)
{
	struct neap_handshake_service *service = session->service;
	int error;
	switch (type) {
	case NEAP_HANDSHAKE_CONNECTION: return answer_connection(session, json, length);
	case NEAP_HANDSHAKE_METADATA:
		error = check_object(service, json, length);
		return error ? error : answer_metadata(session);
	case NEAP_HANDSHAKE_NOTIFY: return answer_notify(session, json, length);
	case NEAP_HANDSHAKE_PROBE:
		error = check_object(service, json, length);
		return error ? error : answer_text(session, "{\"status\":\"success\"}\n");
	default:
		(void)snprintf(service->why, sizeof service->why, "unknown type 0x%02x", (unsigned char)session->reader.body[0]);
		return NEAP_EPROTO;
	}
}

/* Peers refuse a reply that is longer than their limit, which is ours unless somebody set them apart. */
static int check_reply(struct session *session)
{
	struct neap_handshake_service *service = session->service;
	session->newline = session->reply_length == 0 || session->reply[session->reply_length - 1] != '\n';
	size_t length = session->reply_length + session->newline + 1;
	if (length > service->options.length_max) {
		(void)snprintf(service->why, sizeof service->why,
		               "the reply has %zu bytes and the limit is %u (MC_HANDSHAKE_MAX_LENGTH, to be raised on both sides)", length,
		               service->options.length_max);
		neap_log(service->reactor, NEAP_LOG_WARNING, "handshake", "%s", service->why);
		return NEAP_ELIMIT;
	}
	if (session->reply_length > memory_left(service)) {
		(void)snprintf(service->why, sizeof service->why, "%zu bytes of requests and replies are held, and no more may be",
		               service->memory);
		return NEAP_ELIMIT;
	}
	return NEAP_OK;
}

/* A whole frame is there: what it is, and whether there is an answer to it, is found out before the machine is told. */
static void request_arrived(struct session *session)
{
	struct neap_handshake_service *service = session->service;
	const char *json;
	size_t length;
	bool old;

	int type = neap_frame_type(&session->reader, &old, &json, &length);
	session->type = type;
	session->old = old;
	service->why[0] = '\0';
	int error = answer(session, type, json, length);
	if (service->closing) { /* by a handler: the session is gone, and nobody waits for this answer */
		free(session->reply);
		session->reply = NULL;
		return;
	}
	if (error == NEAP_HANDSHAKE_LATER) {
		session->due_ns = neap_now(service->reactor) + service->options.answer_timeout_ns;
		neap_step(&session->machine, handshake_session_on_LATER, (uint64_t)type);
		return;
	}
	if (!error)
		error = check_reply(session);
	if (error) {
		if (!service->why[0])
			(void)snprintf(service->why, sizeof service->why, "%s", neap_error_text(error));
		neap_step(&session->machine, handshake_session_on_BROKEN, 0);
		return;
	}
	session->due_ns = neap_now(service->reactor) + service->options.reply_timeout_ns;
	neap_step(&session->machine, handshake_session_on_REQUEST, (uint64_t)type);
}

int neap_handshake_answer(struct neap_handshake_service *service, uint64_t ticket, const struct neap_connection_message *reply)
{
	struct session *session = neap_pool_find(&service->pool, ticket);
	if (!session || session->machine.state != handshake_session_ANSWERING || session->reply)
		return NEAP_ESTALE;
	service->why[0] = '\0';
	int error = neap_connection_encode(reply, &session->reply, &session->reply_length);
	if (!error)
		error = check_reply(session);
	if (error) {
		refuse(session, service->why[0] ? service->why : neap_error_text(error));
		return error;
	}
	meter(session);
	session->due_ns = neap_now(service->reactor) + service->options.reply_timeout_ns;
	neap_step(&session->machine, handshake_session_on_ANSWERED, 0);
	return NEAP_OK;
}

static ssize_t read_scratch(struct session *session)
{
	struct iovec vector = {session->service->scratch, SCRATCH_BYTES};
	return neap_stream_readv(session->stream, &vector, 1);
}

static void connection_failed(struct session *session, ssize_t error)
{
	(void)snprintf(session->service->why, sizeof session->service->why, "connection failed: %s", strerrordesc_np((int)-error));
	neap_step(&session->machine, handshake_session_on_BROKEN, (uint64_t)-error);
}

static void receive_ready(struct neap_stream *stream, unsigned ready)
{
	struct session *session = stream->user;
	struct neap_handshake_service *service = session->service;
	size_t used;
	(void)ready;

	ssize_t n = read_scratch(session);
	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		if (n == 0)
			neap_step(&session->machine, handshake_session_on_PEER_CLOSED, 0);
		else
			connection_failed(session, n);
		return;
	}
	session->reader.capacity_max = session->reader.body_capacity + memory_left(service);
	enum neap_frame_state state =
		neap_frame_reader_feed(&session->reader, service->scratch, (size_t)n, &used, service->why, sizeof service->why);
	meter(session);
	if (state == NEAP_FRAME_BAD)
		neap_step(&session->machine, handshake_session_on_BROKEN, 0);
	else if (state == NEAP_FRAME_DONE)
		request_arrived(session);
}

/* --- replies ------------------------------------------------------------------------------------------------------ */

/* What is left of head, JSON and newline. */
static int left_to_send(const struct session *session, struct iovec vector[3])
{
	static const char newline[] = "\n";
	const struct iovec whole[3] = {{(void *)(uintptr_t)session->head, session->head_length},
	                               {session->reply, session->reply_length},
	                               {(void *)(uintptr_t)newline, session->newline ? 1 : 0}};
	size_t skip = session->sent;
	int count = 0;
	for (int i = 0; i < 3; i++) {
		size_t skipped = skip < whole[i].iov_len ? skip : whole[i].iov_len;
		skip -= skipped;
		if (skipped < whole[i].iov_len)
			vector[count++] = (struct iovec){(char *)whole[i].iov_base + skipped, whole[i].iov_len - skipped};
	}
	return count;
}

static void send_ready(struct neap_stream *stream, unsigned ready)
{
	struct session *session = stream->user;
	struct iovec vector[3];
	int count = left_to_send(session, vector);
	(void)ready;

	ssize_t n = neap_stream_writev(stream, vector, count);
	if (n < 0 && n != -EAGAIN) {
		connection_failed(session, n);
		return;
	}
	if (n > 0)
		session->sent += (size_t)n;
	if (session->sent == session->head_length + session->reply_length + session->newline)
		neap_step(&session->machine, handshake_session_on_SENT, 0);
	else
		neap_stream_want(stream, NEAP_WRITABLE);
}

/* Whatever the peer still says is thrown away: closing over unread bytes would reset the connection and the reply with it. */
static void linger_ready(struct neap_stream *stream, unsigned ready)
{
	struct session *session = stream->user;
	(void)ready;
	ssize_t n = read_scratch(session);
	if (n == 0 || (n < 0 && n != -EAGAIN))
		neap_step(&session->machine, handshake_session_on_PEER_CLOSED, 0);
}

/* --- actions ------------------------------------------------------------------------------------------------------ */

static void do_receive(struct neap_machine *machine, uint64_t argument)
{
	struct session *session = session_of(machine);
	(void)argument;
	session->stream->ready = receive_ready;
	neap_stream_want(session->stream, NEAP_READABLE);
}

/* What the request was is not needed any more; whether its sender is still there is found out with the reply. */
static void do_hold(struct neap_machine *machine, uint64_t argument)
{
	struct session *session = session_of(machine);
	(void)argument;
	session->held = true;
	neap_frame_reader_reset(&session->reader);
	meter(session);
	neap_stream_want(session->stream, 0);
}

static void do_reply(struct neap_machine *machine, uint64_t argument)
{
	struct session *session = session_of(machine);
	(void)argument;
	neap_frame_reader_reset(&session->reader);
	meter(session);
	session->head_length =
		(uint8_t)neap_frame_head(session->head, session->type, session->old, session->reply_length + session->newline);
	session->stream->ready = send_ready;
	neap_stream_want(session->stream, 0);
	send_ready(session->stream, 0);
}

static void do_linger(struct neap_machine *machine, uint64_t argument)
{
	struct session *session = session_of(machine);
	(void)argument;
	session->service->stats.served++;
	free(session->reply);
	session->reply = NULL;
	meter(session);
	session->stream->ready = linger_ready;
	session->stream->ops->shutdown_write(session->stream);
	neap_stream_want(session->stream, NEAP_READABLE);
}

static void do_close(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	end_session(session_of(machine));
}

static void do_refuse(struct neap_machine *machine, uint64_t argument)
{
	struct session *session = session_of(machine);
	(void)argument;
	refuse(session, session->service->why);
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct session *session = session_of(machine);
	(void)argument;
	refuse(session, session->reply  ? "the reply was not taken in time"
	                : session->held ? "there was no answer to it in time"
	                                : "the request was not whole in time");
}

static neap_action_func *const actions[] = {
	[handshake_session_do_receive] = do_receive, [handshake_session_do_hold] = do_hold,
	[handshake_session_do_reply] = do_reply,     [handshake_session_do_linger] = do_linger,
	[handshake_session_do_close] = do_close,     [handshake_session_do_refuse] = do_refuse,
	[handshake_session_do_give_up] = do_give_up,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)timeout_class;
	(void)now_ns;
	return session_of(machine)->due_ns;
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)event;
	refuse(session_of(machine), neap_error_text(NEAP_EINTERNAL));
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_handshake_session,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct session),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- service ------------------------------------------------------------------------------------------------------ */

/* All places are taken, perhaps by connections that only sit there: the one that has been waited for longest makes room for the
 * next. An honest peer needs a round trip, so it is never that one unless sessions_max others came meanwhile. */
static void make_room(struct neap_handshake_service *service)
{
	for (struct session *session = service->oldest; session && session != service->newest; session = session->newer)
		if (session->machine.state != handshake_session_IDLE && session->machine.state != handshake_session_REPLYING) {
			refuse(session, "it was the oldest of too many");
			return;
		}
}

static void accepted(struct neap_acceptor *acceptor, struct neap_stream *stream)
{
	struct neap_handshake_service *service = acceptor->user;
	struct session *session = neap_pool_take(&service->pool); /* connections_max is the pool's size */

	struct neap_machine machine = session->machine;
	struct neap_timer timer = session->timer;
	*session = (struct session){.machine = machine, .timer = timer, .service = service, .older = service->newest, .stream = stream};
	*(service->newest ? &service->newest->newer : &service->oldest) = session;
	service->newest = session;
	neap_frame_reader_init(&session->reader, service->options.length_max);
	stream->user = session;
	session->due_ns = neap_now(service->reactor) + service->options.request_timeout_ns;
	neap_machine_begin(&session->machine, &service->class_->class_);
	neap_step(&session->machine, handshake_session_on_ACCEPTED, 0);
	if (service->pool.used == service->options.sessions_max)
		make_room(service);
}

static void set_options(struct neap_handshake_service *service, const struct neap_handshake_service_options *options)
{
	if (options)
		service->options = *options;
	if (service->options.sessions_max == 0)
		service->options.sessions_max = 1024;
	if (service->options.length_max == 0)
		service->options.length_max = NEAP_HANDSHAKE_LENGTH_DEFAULT;
	if (service->options.request_timeout_ns == 0)
		service->options.request_timeout_ns = 5 * SECOND_NS;
	if (service->options.answer_timeout_ns == 0)
		service->options.answer_timeout_ns = 20 * SECOND_NS;
	if (service->options.reply_timeout_ns == 0)
		service->options.reply_timeout_ns = 5 * SECOND_NS;
	/* two of the longest fit in any case */
	service->memory_max = 2 * (size_t)service->options.length_max;
	if (service->memory_max < MEMORY_MAX_LEAST)
		service->memory_max = MEMORY_MAX_LEAST;
}

static int open_listener(struct neap_handshake_service *service, const struct neap_sockaddr *address, uint16_t port_min,
                         uint16_t port_max, int *system_errno_p)
{
	struct neap_acceptor *acceptor = &service->acceptor;
	/* Our half-close comes first, so it is our end that stays in TIME_WAIT: without this a restart could not have its port back.
	 * Two listeners on one port are refused all the same. */
	struct neap_socket_options options = {.reuse_address = true};
	acceptor->connections_max = service->options.sessions_max;
	acceptor->accepted_stream = accepted;
	acceptor->user = service;
	acceptor->what = "handshake";
	if (neap_sockaddr_port(address) == 0 && port_min != 0)
		return neap_acceptor_open_range(acceptor, service->reactor, address, port_min, port_max, BIND_ATTEMPTS, &options,
		                                system_errno_p);
	return neap_acceptor_open(acceptor, service->reactor, address, &options, system_errno_p);
}

static void say_why(const struct neap_sockaddr *address, uint16_t port_min, uint16_t port_max, int error, int system_errno,
                    char *why, size_t why_size)
{
	char text[NEAP_ADDRESS_TEXT_MAX];
	const char *cause = error == NEAP_ESOCKET ? strerrordesc_np(system_errno) : neap_error_text(error);
	if (neap_sockaddr_format(address, text, sizeof text) < 0)
		text[0] = '\0';
	if (neap_sockaddr_port(address) == 0 && port_min != 0)
		(void)snprintf(why, why_size, "handshake port: no port from %u to %u could be bound at %s: %s", port_min, port_max, text,
		               cause);
	else
		(void)snprintf(why, why_size, "handshake port: cannot listen at %s: %s", text, cause);
}

int neap_handshake_service_create(struct neap_handshake_service **service_p, struct neap_reactor *reactor,
                                  const struct neap_sockaddr *address, uint16_t port_min, uint16_t port_max,
                                  const struct neap_handshake_service_options *options,
                                  const struct neap_handshake_handlers *handlers, int *system_errno_p, char *why, size_t why_size)
{
	*service_p = NULL;
	*system_errno_p = 0;
	struct neap_reactor_class *class_ = NULL;
	int error = neap_reactor_class_of(reactor, &kind, &class_);
	struct neap_handshake_service *service = error ? NULL : neap_allocate(reactor, sizeof *service);
	if (!service) {
		(void)snprintf(why, why_size, "handshake port: %s", neap_error_text(error ? error : NEAP_ENOMEM));
		return error ? error : NEAP_ENOMEM;
	}
	service->reactor = reactor;
	service->class_ = class_;
	service->handlers = *handlers;
	set_options(service, options);
	error = neap_pool_create(&service->pool, reactor, sizeof(struct session), service->options.sessions_max);
	if (!error)
		error = open_listener(service, address, port_min, port_max, system_errno_p);
	if (error) {
		say_why(address, port_min, port_max, error, *system_errno_p, why, why_size);
		neap_pool_destroy(&service->pool);
		neap_release(reactor, service, sizeof *service);
		return error;
	}
	service->dependent.what = "a handshake service";
	neap_reactor_attach(reactor, &service->dependent);
	*service_p = service;
	return NEAP_OK;
}

uint16_t neap_handshake_service_port(const struct neap_handshake_service *service)
{
	return neap_acceptor_port(&service->acceptor);
}

void neap_handshake_service_stats(const struct neap_handshake_service *service, struct neap_handshake_service_stats *stats_p)
{
	*stats_p = service->stats;
	stats_p->sessions = service->pool.used;
}

static void reap_service(struct neap_reap *reap)
{
	struct neap_handshake_service *service =
		(struct neap_handshake_service *)(void *)((char *)reap - offsetof(struct neap_handshake_service, reap));
	struct neap_reactor *reactor = service->reactor;
	neap_reactor_detach(reactor, &service->dependent);
	neap_pool_destroy(&service->pool);
	neap_release(reactor, service, sizeof *service);
}

void neap_handshake_service_destroy(struct neap_handshake_service *service)
{
	if (!service || service->closing)
		return;
	service->closing = true;
	neap_acceptor_close(&service->acceptor);
	while (service->oldest)
		end_session(service->oldest);
	service->reap.reap = reap_service;
	neap_reap_later(service->reactor, &service->reap);
}
