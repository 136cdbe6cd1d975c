/* Accepting byte streams. Closing takes effect at once and the machine is told afterwards, so each action first looks whether there
 * still is a listener. */
#include "reactor/listen.h"
#include "reactor/listen_fsm.h"

#include <errno.h>
#include <string.h>

#define PAUSE_NS_DEFAULT UINT64_C(100000000)
#define LOG_EVERY_NS UINT64_C(60000000000)
#define TAKE_MAX NEAP_POSTS_PER_ACTION /* connections a turn: each may post an event. The rest comes in the next one */

static struct neap_acceptor *acceptor_of(const struct neap_machine *machine)
{
	return (struct neap_acceptor *)(uintptr_t)((const char *)machine - offsetof(struct neap_acceptor, machine));
}

static void on_ready(struct neap_listener *listener)
{
	struct neap_acceptor *acceptor = listener->user;
	neap_step(&acceptor->machine, stream_listen_on_READABLE, 0);
}

/* --- actions ---------------------------------------------------------------------------------------------------------- */

static void do_watch(struct neap_machine *machine, uint64_t argument)
{
	struct neap_acceptor *acceptor = acceptor_of(machine);
	(void)argument;
	if (acceptor->listener)
		acceptor->listener->ops->want(acceptor->listener, true);
}

static void do_unwatch(struct neap_machine *machine, uint64_t argument)
{
	struct neap_acceptor *acceptor = acceptor_of(machine);
	(void)argument;
	if (acceptor->listener)
		acceptor->listener->ops->want(acceptor->listener, false);
}

static void do_pause(struct neap_machine *machine, uint64_t system_errno)
{
	struct neap_acceptor *acceptor = acceptor_of(machine);
	uint64_t now_ns = neap_now(acceptor->reactor);
	const char *cause = strerrordesc_np((int)system_errno);

	do_unwatch(machine, 0);
	acceptor->pauses++;
	if (acceptor->last_log_ns != 0 && now_ns - acceptor->last_log_ns < LOG_EVERY_NS)
		return;
	acceptor->last_log_ns = now_ns;
	neap_log(acceptor->reactor, NEAP_LOG_WARNING, acceptor->what,
	         "cannot accept connections: %s; %u are open here; others wait in the queue until one ends (limits: `ulimit -n` and "
	         "descriptors_max)",
	         cause ? cause : "unknown error", (unsigned)acceptor->connections);
}

/* The callee may close the acceptor: then there is no listener to go on with. */
static void do_take(struct neap_machine *machine, uint64_t argument)
{
	struct neap_acceptor *acceptor = acceptor_of(machine);
	(void)argument;
	for (unsigned i = 0; i < TAKE_MAX && acceptor->listener; i++) {
		int error = -EAGAIN;
		if (acceptor->connections >= acceptor->connections_max) {
			(void)neap_post_first(machine, stream_listen_on_LIMIT, acceptor->connections);
			return;
		}
		struct neap_stream *stream = acceptor->listener->ops->accept(acceptor->listener, &error);
		if (!stream) {
			if (error != -EAGAIN)
				(void)neap_post_first(machine, stream_listen_on_SHORT, (uint64_t)-error);
			return;
		}
		acceptor->connections++;
		acceptor->accepted++;
		acceptor->accepted_stream(acceptor, stream);
	}
}

static neap_action_func *const actions[] = {
	[stream_listen_do_watch] = do_watch,
	[stream_listen_do_take] = do_take,
	[stream_listen_do_pause] = do_pause,
	[stream_listen_do_unwatch] = do_unwatch,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_acceptor *acceptor = acceptor_of(machine);
	(void)timeout_class;
	return now_ns + (acceptor->pause_ns ? acceptor->pause_ns : PAUSE_NS_DEFAULT);
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	struct neap_acceptor *acceptor = acceptor_of(machine);
	(void)event;
	if (acceptor->listener)
		acceptor->listener->ops->close(acceptor->listener);
	acceptor->listener = NULL;
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_acceptor *acceptor = acceptor_of(machine);
	(void)from;
	if (machine->state == stream_listen_CLOSED && acceptor->listener)
		return "a listener is left behind the close";
	return NULL;
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_stream_listen,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_acceptor),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls ------------------------------------------------------------------------------------------------------------ */

int neap_acceptor_open(struct neap_acceptor *acceptor, struct neap_reactor *reactor, const struct neap_sockaddr *address,
                       const struct neap_socket_options *options, int *system_errno_p)
{
	struct neap_net *net = neap_reactor_net(reactor);
	struct neap_reactor_class *class_;

	*system_errno_p = 0;
	if (!acceptor->accepted_stream || acceptor->connections_max == 0)
		return NEAP_EINVAL;
	if (acceptor->listener)
		return NEAP_EBUSY;
	int error = neap_reactor_class_of(reactor, &kind, &class_);
	if (error)
		return error;
	struct neap_listener *listener = net->listen(net, reactor, address, options, &error);
	if (!listener) {
		*system_errno_p = -error;
		return error == -ENOMEM ? NEAP_ENOMEM : NEAP_ESOCKET;
	}
	listener->user = acceptor;
	listener->ready = on_ready;
	acceptor->reactor = reactor;
	acceptor->listener = listener;
	acceptor->connections = 0;
	acceptor->pauses = acceptor->accepted = acceptor->last_log_ns = 0;
	neap_machine_begin(&acceptor->machine, &class_->class_);
	neap_step(&acceptor->machine, stream_listen_on_OPENED, 0);
	neap_reactor_touch(reactor);
	return NEAP_OK;
}

int neap_acceptor_open_range(struct neap_acceptor *acceptor, struct neap_reactor *reactor, const struct neap_sockaddr *host,
                             uint16_t port_min, uint16_t port_max, uint32_t attempts, const struct neap_socket_options *options,
                             int *system_errno_p)
{
	struct neap_sockaddr address = *host;
	int error = NEAP_EINVAL;

	*system_errno_p = 0;
	if (port_min == 0 || port_min > port_max || attempts == 0)
		return NEAP_EINVAL;
	/* From a random start through the range: no port is tried twice before all were. */
	uint32_t count = (uint32_t)(port_max - port_min) + 1;
	uint32_t start = (uint32_t)(neap_random_u64(reactor) % count);
	for (uint32_t i = 0; i < attempts && i < count; i++) {
		neap_sockaddr_set_port(&address, (uint16_t)(port_min + (start + i) % count));
		error = neap_acceptor_open(acceptor, reactor, &address, options, system_errno_p);
		if (error != NEAP_ESOCKET || (*system_errno_p != EADDRINUSE && *system_errno_p != EACCES))
			return error;
	}
	return error;
}

void neap_acceptor_released(struct neap_acceptor *acceptor)
{
	if (acceptor->connections > 0)
		acceptor->connections--;
	if (acceptor->listener)
		neap_step(&acceptor->machine, stream_listen_on_RELEASED, acceptor->connections);
}

void neap_acceptor_close(struct neap_acceptor *acceptor)
{
	if (!acceptor->listener)
		return;
	acceptor->listener->ops->close(acceptor->listener);
	acceptor->listener = NULL;
	neap_step(&acceptor->machine, stream_listen_on_CLOSE, 0);
}

uint16_t neap_acceptor_port(const struct neap_acceptor *acceptor)
{
	struct neap_sockaddr address;
	if (!acceptor->listener || acceptor->listener->ops->local_address(acceptor->listener, &address))
		return 0;
	return neap_sockaddr_port(&address);
}
