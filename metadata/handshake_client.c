/* Handshake calls. A caller is a pool of them. Every way out takes the call apart first and tells its owner last, so that the owner
 * may call again, cancel others or destroy the caller. */
#include "metadata/descriptor.h"
#include "metadata/handshake.h"
#include "metadata/handshake_call_fsm.h"
#include "reactor/connect.h"
#include "reactor/pool.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRATCH_BYTES 65536u
#define MEMORY_MAX_LEAST (64u * 1024u * 1024u)
#define WHY_MAX 384u

struct call {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_handshake_caller *caller;
	struct neap_connect connect;
	struct neap_stream *stream;
	struct neap_frame_reader reader;
	char *request; /* heap: the JSON */
	size_t request_length, sent, metered;
	uint64_t started_ns, deadline_ns;
	const char *doing; /* for messages */
	neap_handshake_done_func *done;
	void *user;
	int error;
	enum neap_handshake_type type;
	uint8_t head[9];
	uint8_t head_length;
	char peer[NEAP_ADDRESS_TEXT_MAX];
	char why[WHY_MAX];
};

struct neap_handshake_caller {
	struct neap_reactor *reactor;
	struct neap_reactor_class *class_;
	struct neap_dependent dependent;
	struct neap_reap reap;
	struct neap_pool pool;
	struct neap_socket_options options;
	uint32_t length_max;
	size_t memory, memory_max;
	bool closing;
	char scratch[SCRATCH_BYTES];
};

static struct call *call_of(const struct neap_machine *machine)
{
	return (struct call *)(uintptr_t)((const char *)machine - offsetof(struct call, machine));
}

static void meter(struct call *call)
{
	size_t held = call->reader.body_capacity + (call->request ? call->request_length : 0);
	call->caller->memory += held - call->metered;
	call->metered = held;
}

static size_t memory_left(const struct neap_handshake_caller *caller)
{
	return caller->memory < caller->memory_max ? caller->memory_max - caller->memory : 0;
}

/* Nothing is called back for it any more. */
static void end_call(struct call *call)
{
	struct neap_handshake_caller *caller = call->caller;
	neap_connect_cancel(&call->connect);
	if (call->stream)
		neap_stream_close(call->stream, false);
	call->stream = NULL;
	neap_frame_reader_reset(&call->reader);
	free(call->request);
	call->request = NULL;
	meter(call);
	neap_machine_end(&call->machine);
	neap_pool_give(&caller->pool, call);
}

/* Notes what ends the call: the machine's BROKEN and its timeout report it. */
NEAP_PRINTF(3, 4) static void note(struct call *call, int error, const char *format, ...)
{
	va_list list;
	int n = snprintf(call->why, sizeof call->why, "handshake with %s: %s: ", call->peer, call->doing);
	call->error = error;
	if (n < 0 || (size_t)n >= sizeof call->why)
		return;
	va_start(list, format);
	(void)vsnprintf(call->why + n, sizeof call->why - (size_t)n, format, list);
	va_end(list);
}

static void report(struct call *call)
{
	neap_handshake_done_func *done = call->done;
	void *user = call->user;
	int error = call->error;
	char why[WHY_MAX];
	memcpy(why, call->why, sizeof why);
	end_call(call);
	done(user, error, NULL, 0, why);
}

/* --- facts to events ---------------------------------------------------------------------------------------------- */

static void connected(struct neap_connect *connect, int error, int system_errno, struct neap_stream *stream)
{
	struct call *call = connect->user;
	if (error) {
		note(call, error, "%s", connect->detail);
		neap_step(&call->machine, handshake_call_on_BROKEN, (uint64_t)system_errno);
		return;
	}
	call->stream = stream;
	stream->user = call;
	neap_step(&call->machine, handshake_call_on_CONNECTED, 0);
}

static void connection_failed(struct call *call, ssize_t error)
{
	note(call, NEAP_EPEER, "%s", strerrordesc_np((int)-error));
	neap_step(&call->machine, handshake_call_on_BROKEN, (uint64_t)-error);
}

static void send_ready(struct neap_stream *stream, unsigned ready)
{
	struct call *call = stream->user;
	size_t of_head = call->sent < call->head_length ? call->sent : call->head_length;
	size_t of_request = call->sent - of_head;
	const struct iovec vector[2] = {{call->head + of_head, call->head_length - of_head},
	                                {call->request + of_request, call->request_length - of_request}};
	(void)ready;

	int first = of_head == call->head_length ? 1 : 0;
	ssize_t n = neap_stream_writev(stream, vector + first, 2 - first);
	if (n < 0 && n != -EAGAIN) {
		connection_failed(call, n);
		return;
	}
	if (n > 0)
		call->sent += (size_t)n;
	if (call->sent == call->head_length + call->request_length)
		neap_step(&call->machine, handshake_call_on_SENT, 0);
	else
		neap_stream_want(stream, NEAP_WRITABLE);
}

/* True when it is the answer to what was asked. */
static bool reply_fits(struct call *call)
{
	char why[160];
	const char *json;
	size_t length;
	bool old;

	int type = neap_frame_type(&call->reader, &old, &json, &length);
	if (old || type != (int)call->type) {
		note(call, NEAP_EREJECTED, "a request of type %d was answered with type 0x%02x", (int)call->type,
		     (unsigned char)call->reader.body[0]);
		return false;
	}
	/* descriptors are large and their decoder checks them anyway */
	int error = call->type == NEAP_HANDSHAKE_METADATA ? 0 : neap_json_prescan(json, length, NEAP_DEPTH_MAX, why, sizeof why);
	if (error)
		note(call, error, "the reply is not valid: %s", why);
	return !error;
}

static void stream_ended(struct call *call)
{
	const struct neap_frame_reader *reader = &call->reader;
	if (reader->head_have == 0)
		note(call, NEAP_EPEER, "the peer closed without a reply");
	else
		note(call, NEAP_EPEER, "the peer closed in the middle of the reply (%zu of %llu bytes)", reader->body_have,
		     (unsigned long long)reader->length);
	neap_step(&call->machine, handshake_call_on_BROKEN, 0);
}

static void await_ready(struct neap_stream *stream, unsigned ready)
{
	struct call *call = stream->user;
	struct iovec vector = {call->caller->scratch, SCRATCH_BYTES};
	char why[160];
	size_t used;
	(void)ready;

	ssize_t n = neap_stream_readv(stream, &vector, 1);
	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		if (n == 0)
			stream_ended(call);
		else
			connection_failed(call, n);
		return;
	}
	call->reader.capacity_max = call->reader.body_capacity + memory_left(call->caller);
	enum neap_frame_state state = neap_frame_reader_feed(&call->reader, vector.iov_base, (size_t)n, &used, why, sizeof why);
	meter(call);
	if (state == NEAP_FRAME_BAD) {
		note(call, call->reader.length == 0 ? NEAP_EPROTO : NEAP_ELIMIT, "%s (MC_HANDSHAKE_MAX_LENGTH)", why);
		neap_step(&call->machine, handshake_call_on_BROKEN, 0);
	} else if (state == NEAP_FRAME_DONE) {
		neap_step(&call->machine, reply_fits(call) ? handshake_call_on_REPLY : handshake_call_on_BROKEN, 0);
	}
}

/* --- actions ------------------------------------------------------------------------------------------------------ */

static void do_send(struct neap_machine *machine, uint64_t argument)
{
	struct call *call = call_of(machine);
	(void)argument;
	call->doing = "sending the request";
	call->stream->ready = send_ready;
	send_ready(call->stream, 0);
}

static void do_await(struct neap_machine *machine, uint64_t argument)
{
	struct call *call = call_of(machine);
	(void)argument;
	call->doing = "waiting for the reply";
	free(call->request);
	call->request = NULL;
	meter(call);
	call->stream->ready = await_ready;
	neap_stream_want(call->stream, NEAP_READABLE);
}

/* The body outlives the call, which is given back before its owner is told. */
static void do_deliver(struct neap_machine *machine, uint64_t argument)
{
	struct call *call = call_of(machine);
	neap_handshake_done_func *done = call->done;
	void *user = call->user;
	const char *json;
	size_t length;
	bool old;
	(void)argument;

	(void)neap_frame_type(&call->reader, &old, &json, &length);
	char *body = call->reader.body;
	call->reader.body = NULL;
	end_call(call);
	done(user, NEAP_OK, json, length, "");
	free(body);
}

static void do_fail(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	report(call_of(machine));
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct call *call = call_of(machine);
	(void)argument;
	note(call, NEAP_ETIMEDOUT, "the peer did not do its part within %llu ms (handshake_timeout_ms)",
	     (unsigned long long)((call->deadline_ns - call->started_ns) / 1000000));
	report(call);
}

static neap_action_func *const actions[] = {
	[handshake_call_do_send] = do_send, [handshake_call_do_await] = do_await,     [handshake_call_do_deliver] = do_deliver,
	[handshake_call_do_fail] = do_fail, [handshake_call_do_give_up] = do_give_up,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)timeout_class;
	(void)now_ns;
	return call_of(machine)->deadline_ns;
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	struct call *call = call_of(machine);
	(void)event;
	note(call, NEAP_EINTERNAL, "%s", neap_error_text(NEAP_EINTERNAL));
	report(call);
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_handshake_call,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct call),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- caller ------------------------------------------------------------------------------------------------------- */

int neap_handshake_caller_create(struct neap_handshake_caller **caller_p, struct neap_reactor *reactor, uint32_t calls_max,
                                 uint32_t length_max, const struct neap_socket_options *options)
{
	*caller_p = NULL;
	struct neap_reactor_class *class_ = NULL;
	int error = neap_reactor_class_of(reactor, &kind, &class_);
	if (error)
		return error;
	struct neap_handshake_caller *caller = neap_allocate(reactor, sizeof *caller);
	if (!caller)
		return NEAP_ENOMEM;
	caller->reactor = reactor;
	caller->class_ = class_;
	caller->length_max = length_max ? length_max : NEAP_HANDSHAKE_LENGTH_DEFAULT;
	caller->memory_max = 2 * (size_t)caller->length_max < MEMORY_MAX_LEAST ? MEMORY_MAX_LEAST : 2 * (size_t)caller->length_max;
	if (options)
		caller->options = *options;
	error = neap_pool_create(&caller->pool, reactor, sizeof(struct call), calls_max);
	if (error) {
		neap_release(reactor, caller, sizeof *caller);
		return error;
	}
	caller->dependent.what = "a handshake caller";
	neap_reactor_attach(reactor, &caller->dependent);
	*caller_p = caller;
	return NEAP_OK;
}

static void reap_caller(struct neap_reap *reap)
{
	struct neap_handshake_caller *caller =
		(struct neap_handshake_caller *)(void *)((char *)reap - offsetof(struct neap_handshake_caller, reap));
	struct neap_reactor *reactor = caller->reactor;
	neap_reactor_detach(reactor, &caller->dependent);
	neap_pool_destroy(&caller->pool);
	neap_release(reactor, caller, sizeof *caller);
}

void neap_handshake_caller_destroy(struct neap_handshake_caller *caller)
{
	struct call *call;
	uint32_t index = 0;
	if (!caller || caller->closing)
		return;
	caller->closing = true;
	while ((call = neap_pool_next(&caller->pool, &index)) != NULL)
		end_call(call);
	caller->reap.reap = reap_caller;
	neap_reap_later(caller->reactor, &caller->reap);
}

/* A fresh call over memory that may have held one before. */
static struct call *take_call(struct neap_handshake_caller *caller, const char *json, size_t length)
{
	struct call *call = neap_pool_take(&caller->pool);
	if (!call)
		return NULL;
	call->caller = caller;
	call->stream = NULL;
	call->sent = call->metered = 0;
	call->error = 0;
	call->why[0] = '\0';
	call->doing = "connecting";
	neap_frame_reader_init(&call->reader, caller->length_max);
	call->request_length = length;
	call->request = malloc(length ? length : 1);
	if (call->request)
		memcpy(call->request, json, length);
	meter(call);
	return call;
}

int neap_handshake_call(struct neap_handshake_caller *caller, const struct neap_host_port *peer, enum neap_handshake_type type,
                        const char *json, size_t length, uint64_t timeout_ns, neap_handshake_done_func *done, void *user,
                        uint64_t *call_p)
{
	*call_p = 0;
	if (caller->closing)
		return NEAP_ECLOSED;
	if (length >= caller->length_max)
		return NEAP_ELIMIT;
	if (length > memory_left(caller))
		return NEAP_EAGAIN;
	struct call *call = take_call(caller, json, length);
	if (!call)
		return NEAP_EAGAIN;
	call->type = type;
	call->done = done;
	call->user = user;
	call->head_length = (uint8_t)neap_frame_head(call->head, (int)type, false, length);
	call->started_ns = neap_now(caller->reactor);
	call->deadline_ns = timeout_ns < UINT64_MAX - call->started_ns ? call->started_ns + timeout_ns : UINT64_MAX;
	if (neap_host_port_format(peer, call->peer, sizeof call->peer) < 0)
		call->peer[0] = '\0';
	neap_machine_begin(&call->machine, &caller->class_->class_);
	int error = call->request ? neap_post(&call->machine, handshake_call_on_START, type) : NEAP_ENOMEM;
	if (!error)
		error = neap_connect_start(&call->connect, caller->reactor, peer, &caller->options, timeout_ns, connected, call);
	if (error) {
		end_call(call);
		return error;
	}
	*call_p = neap_pool_handle(&caller->pool, call);
	return NEAP_OK;
}

void neap_handshake_cancel(struct neap_handshake_caller *caller, uint64_t handle)
{
	struct call *call = neap_pool_find(&caller->pool, handle);
	if (call)
		end_call(call);
}
