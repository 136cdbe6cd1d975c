/* Opening a byte stream. Every way out ends the machine first, so that what is still queued for it is stale, and then tells the
 * caller: `done` may start the same object again. */
#include "reactor/connect.h"
#include "reactor/connect_fsm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ADDRESSES_MAX (sizeof(((struct neap_connect *)0)->addresses) / sizeof(struct neap_sockaddr))

static struct neap_connect *connect_of(const struct neap_machine *machine)
{
	return (struct neap_connect *)(uintptr_t)((const char *)machine - offsetof(struct neap_connect, machine));
}

static struct neap_net *net_of(const struct neap_connect *connect)
{
	return neap_reactor_net(connect->reactor);
}

static void set_detail(struct neap_connect *connect, const char *what, const char *cause)
{
	if (snprintf(connect->detail, sizeof(connect->detail), "%s: %s", what, cause) < 0)
		connect->detail[0] = '\0';
}

static void let_go(struct neap_connect *connect)
{
	if (connect->resolution)
		net_of(connect)->resolve_cancel(connect->resolution);
	connect->resolution = NULL;
	if (connect->stream)
		neap_stream_close(connect->stream, true);
	connect->stream = NULL;
}

static void finish(struct neap_connect *connect, int error, int system_errno)
{
	void (*done)(struct neap_connect *, int, int, struct neap_stream *) = connect->done;
	struct neap_stream *stream = NULL;

	if (!error) {
		stream = connect->stream;
		connect->stream = NULL;
		stream->ready = NULL;
		neap_stream_want(stream, 0);
	}
	let_go(connect);
	connect->done = NULL;
	neap_machine_end(&connect->machine);
	done(connect, error, system_errno, stream);
}

/* --- events from facts ------------------------------------------------------------------------------------------------ */

/* The address being tried is out: on to the next one while there is one and time. */
static void address_failed(struct neap_connect *connect, int error)
{
	char text[NEAP_ADDRESS_TEXT_MAX];
	bool more = connect->address_next < connect->address_count && neap_now(connect->reactor) < connect->deadline_ns;

	connect->last_error = error;
	if (neap_sockaddr_format(&connect->addresses[connect->address_next - 1], text, sizeof(text)) < 0)
		text[0] = '\0';
	set_detail(connect, text, strerrordesc_np(-error) ? strerrordesc_np(-error) : "unknown error");
	if (connect->stream)
		neap_stream_close(connect->stream, true);
	connect->stream = NULL;
	neap_step(&connect->machine, more ? stream_connect_on_FAILED : stream_connect_on_EXHAUSTED, (uint64_t)-error);
}

static void on_ready(struct neap_stream *stream, unsigned ready)
{
	struct neap_connect *connect = stream->user;
	int error = net_of(connect)->connect_result(stream);
	(void)ready;
	if (error == -EINPROGRESS)
		return;
	if (error)
		address_failed(connect, error);
	else
		neap_step(&connect->machine, stream_connect_on_CONNECTED, 0);
}

static void on_resolved(void *user, int error, const char *detail, const struct neap_sockaddr *addresses, uint32_t count)
{
	struct neap_connect *connect = user;
	connect->resolution = NULL;
	if (error || count == 0) {
		connect->last_error = error ? error : NEAP_EDNS;
		set_detail(connect, connect->target.host, detail ? detail : "has no address");
		neap_step(&connect->machine, stream_connect_on_UNRESOLVED, (uint64_t)-(int64_t)connect->last_error);
		return;
	}
	connect->address_count = count < ADDRESSES_MAX ? count : (uint32_t)ADDRESSES_MAX;
	memcpy(connect->addresses, addresses, connect->address_count * sizeof(*addresses));
	neap_step(&connect->machine, stream_connect_on_RESOLVED, count);
}

/* --- actions ---------------------------------------------------------------------------------------------------------- */

static void do_resolve(struct neap_machine *machine, uint64_t argument)
{
	struct neap_connect *connect = connect_of(machine);
	int error = NEAP_EDNS;
	(void)argument;
	connect->resolution = net_of(connect)->resolve(net_of(connect), connect->reactor, connect->target.host, connect->target.port,
	                                               connect->family, on_resolved, connect, &error);
	if (connect->resolution)
		return;
	connect->last_error = error;
	set_detail(connect, connect->target.host, neap_error_text(error));
	(void)neap_post_first(machine, stream_connect_on_UNRESOLVED, (uint64_t)-(int64_t)error);
}

static void do_attempt(struct neap_machine *machine, uint64_t argument)
{
	struct neap_connect *connect = connect_of(machine);
	int error = -EINVAL;
	(void)argument;
	const struct neap_sockaddr *address = &connect->addresses[connect->address_next++];
	connect->stream = net_of(connect)->connect(net_of(connect), connect->reactor, address, &connect->options, &error);
	if (!connect->stream) {
		address_failed(connect, error);
		return;
	}
	connect->stream->user = connect;
	connect->stream->ready = on_ready;
}

static void do_give_up_name(struct neap_machine *machine, uint64_t argument)
{
	struct neap_connect *connect = connect_of(machine);
	(void)argument;
	set_detail(connect, connect->target.host, "no name server answered in time");
	finish(connect, NEAP_ETIMEDOUT, ETIMEDOUT);
}

static void do_give_up_address(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	address_failed(connect_of(machine), -ETIMEDOUT);
}

static void do_report(struct neap_machine *machine, uint64_t argument)
{
	struct neap_connect *connect = connect_of(machine);
	(void)argument;
	if (connect->address_count == 0) /* it was the name */
		finish(connect, connect->last_error, 0);
	else if (connect->last_error == -ETIMEDOUT)
		finish(connect, NEAP_ETIMEDOUT, ETIMEDOUT);
	else
		finish(connect, connect->last_error == -ENOMEM ? NEAP_ENOMEM : NEAP_ESOCKET, -connect->last_error);
}

static void do_deliver(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	finish(connect_of(machine), NEAP_OK, 0);
}

static neap_action_func *const actions[] = {
	[stream_connect_do_resolve] = do_resolve,
	[stream_connect_do_attempt] = do_attempt,
	[stream_connect_do_give_up_name] = do_give_up_name,
	[stream_connect_do_give_up_address] = do_give_up_address,
	[stream_connect_do_report] = do_report,
	[stream_connect_do_deliver] = do_deliver,
};

/* An address gets an even share of the time that is left, so that one black hole does not use up what others would need. */
static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_connect *connect = connect_of(machine);
	uint32_t left = connect->address_count - connect->address_next;
	if (timeout_class == stream_connect_timeout_NAME || left <= 1 || connect->deadline_ns <= now_ns)
		return connect->deadline_ns;
	return now_ns + (connect->deadline_ns - now_ns) / left;
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	struct neap_connect *connect = connect_of(machine);
	(void)event;
	if (!connect->done)
		return;
	set_detail(connect, connect->target.host, neap_error_text(NEAP_EINTERNAL));
	finish(connect, NEAP_EINTERNAL, 0);
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_connect *connect = connect_of(machine);
	(void)from;
	if (machine->state == stream_connect_RESOLVING && connect->stream)
		return "a stream before there is an address";
	if (machine->state == stream_connect_CONNECTING && connect->resolution)
		return "a resolution beside an attempt";
	return NULL;
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_stream_connect,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_connect),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls ------------------------------------------------------------------------------------------------------------ */

int neap_connect_start(struct neap_connect *connect, struct neap_reactor *reactor, const struct neap_host_port *target,
                       const struct neap_socket_options *options, uint64_t timeout_ns,
                       void (*done)(struct neap_connect *, int error, int system_errno, struct neap_stream *), void *user)
{
	uint64_t now_ns = neap_now(reactor);
	struct neap_reactor_class *class_;

	if (!done || target->host[0] == '\0' || target->port == 0)
		return NEAP_EINVAL;
	if (connect->done)
		return NEAP_EBUSY;
	int error = neap_reactor_class_of(reactor, &kind, &class_);
	if (error)
		return error;
	bool numeric = neap_sockaddr_from_numeric(target->host, target->port, &connect->addresses[0]) == NEAP_OK;
	if (!numeric && target->is_v6)
		return NEAP_EADDRESS; /* its scope names no interface of this host */
	connect->reactor = reactor;
	connect->target = *target;
	connect->options = options ? *options : (struct neap_socket_options){0};
	connect->deadline_ns = timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX;
	connect->resolution = NULL;
	connect->stream = NULL;
	connect->address_count = numeric ? 1 : 0;
	connect->address_next = 0;
	connect->last_error = 0;
	connect->detail[0] = '\0';
	connect->done = done;
	connect->user = user;
	neap_machine_begin(&connect->machine, &class_->class_);
	error = neap_post(&connect->machine, numeric ? stream_connect_on_NUMERIC : stream_connect_on_NAME, 0);
	if (error) {
		connect->done = NULL;
		return error;
	}
	neap_reactor_touch(reactor);
	return NEAP_OK;
}

void neap_connect_cancel(struct neap_connect *connect)
{
	if (!connect->done)
		return;
	connect->done = NULL;
	neap_machine_end(&connect->machine);
	let_go(connect);
}
