/* The life of a session: phases, deadlines, visits. */
#include "transports/tcp/session.h"
#include "reactor/address.h"
#include "transports/tcp/session_fsm.h"

#include <errno.h>

#define NS_PER_MS 1000000u

static struct neap_tcp_session *session_of(struct neap_machine *machine)
{
	return (struct neap_tcp_session *)(void *)machine;
}

/* --- memory ---------------------------------------------------------------------------------------------------------------- */

struct neap_tcp_work *neap_tcp_session_work(struct neap_tcp_session *session)
{
	struct neap_tcp_work *work = session->work;
	if (work)
		return work;
	work = neap_pool_take(&session->server->works); /* there are as many as sessions */
	work->reply_head = work->reply_tail = 0;
	work->reply_sent = 0;
	work->crc_offset = 0;
	work->spill = NULL;
	work->carry_length = 0;
	work->frame.at = work->frame.count = 0;
	session->work = work;
	return work;
}

static void release_work(struct neap_tcp_session *session)
{
	if (!session->work)
		return;
	if (session->work->spill)
		neap_pool_give(&session->server->spills, session->work->spill);
	neap_pool_give(&session->server->works, session->work);
	session->work = NULL;
}

static bool is_partial(const struct neap_tcp_session *session)
{
	const struct neap_tcp_work *work = session->work;
	return work && (work->carry_length || work->spill || neap_tcp_frame_open(work));
}

static void close_session(struct neap_tcp_session *session, bool abortive)
{
	struct neap_tcp_server *server = session->server;
	neap_ready_cancel(server->reactor, &session->again);
	neap_stream_close(session->stream, abortive);
	session->stream = NULL;
	neap_tcp_lane_unlink(session);
	release_work(session);
	neap_machine_end(&session->machine);
	neap_pool_give(&server->sessions, session);
	server->view->stats->sessions--;
	if (server->listening)
		neap_acceptor_released(&server->acceptor);
}

void neap_tcp_session_broken(struct neap_tcp_session *session, const char *why)
{
	session->fate = NEAP_TCP_BROKEN;
	session->server->view->stats->protocol_errors++;
	struct neap_sockaddr address;
	char text[NEAP_ADDRESS_TEXT_MAX] = "unknown";
	if (session->stream->ops->peer_address(session->stream, &address) == 0)
		neap_sockaddr_format(&address, text, sizeof text);
	neap_log(session->server->reactor, NEAP_LOG_INFO, "tcp", "data connection from %s is reset: %s", text, why);
}

void neap_tcp_session_failed(struct neap_tcp_session *session, int system_errno)
{
	session->fate = NEAP_TCP_BROKEN;
	if (system_errno == EFAULT)
		neap_log(session->server->reactor, NEAP_LOG_WARNING, "tcp",
		         "a data connection is reset: a peer used registered memory that is not mapped; unregister before you unmap");
}

/* --- visits ---------------------------------------------------------------------------------------------------------------- */

/* Which readiness to ask for. A connection whose answers have no room is not read: the peer feels it. */
static void want(struct neap_tcp_session *session, bool held)
{
	uint8_t wanted = 0;
	if (!session->end_of_file && !held)
		wanted |= NEAP_READABLE;
	if (session->blocked)
		wanted |= NEAP_WRITABLE;
	if (wanted == session->wanted)
		return;
	session->wanted = wanted;
	neap_stream_want(session->stream, wanted);
}

/* Takes in and answers in turns until there is nothing more to do now. True: the budget is spent and there is more. */
static bool serve(struct neap_tcp_session *session, struct neap_tcp_visit *visit, bool *held_p)
{
	for (;;) {
		enum neap_tcp_intake intake = neap_tcp_take_in(session, visit);
		neap_tcp_replies_send(session, visit);
		*held_p = intake == NEAP_TCP_HELD && session->blocked;
		if (session->fate == NEAP_TCP_BROKEN)
			return false;
		if (neap_tcp_replies_pending(session) && !session->blocked)
			return true;
		if (intake == NEAP_TCP_DRAINED || intake == NEAP_TCP_DONE || *held_p)
			return false;
		if (neap_tcp_visit_over(visit))
			return true;
	}
}

/* What a visit has left behind becomes at most one event, and none while the phase stays what it was. */
static void conclude(struct neap_tcp_session *session, const struct neap_tcp_visit *visit)
{
	uint8_t event, phase;
	bool pending = neap_tcp_replies_pending(session);
	bool moved = pending ? visit->sent > 0 : visit->received > 0;
	if (pending) {
		event = tcp_session_on_BLOCKED;
		phase = tcp_session_REPLYING;
	} else if (is_partial(session)) {
		event = tcp_session_on_PARTIAL;
		phase = tcp_session_RECEIVING;
	} else {
		event = tcp_session_on_SETTLED;
		phase = tcp_session_IDLE;
		release_work(session);
	}
	if (moved || session->machine.state != phase) {
		session->progress_ns = neap_now(session->server->reactor);
		session->looked = false;
	}
	if (session->machine.state != phase && session->greeted)
		neap_step(&session->machine, event, 0);
}

static void visit_serving(struct neap_tcp_session *session, struct neap_tcp_visit *visit)
{
	bool held = false;
	bool again = serve(session, visit, &held);
	if (session->fate == NEAP_TCP_BROKEN) {
		neap_step(&session->machine, tcp_session_on_BROKEN, 0);
		return;
	}
	if (session->fate == NEAP_TCP_REFUSED) {
		neap_step(&session->machine, tcp_session_on_REFUSED, 0);
		return;
	}
	if (session->end_of_file && !neap_tcp_replies_pending(session) && !again) {
		neap_step(&session->machine, tcp_session_on_ENDED, 0);
		return;
	}
	if (again)
		neap_ready_again(session->server->reactor, &session->again);
	want(session, held);
	neap_tcp_low_water(session);
	conclude(session, visit);
}

/* The refusal goes out, the rest of what the peer sends goes nowhere, until the peer closes: unread bytes at a close would turn
 * into a reset, and that can overtake the status at the peer. */
static void visit_refusing(struct neap_tcp_session *session, struct neap_tcp_visit *visit)
{
	enum neap_tcp_intake intake;
	do {
		intake = neap_tcp_discard(session, visit);
	} while (intake == NEAP_TCP_TOOK && !neap_tcp_visit_over(visit));
	neap_tcp_replies_send(session, visit);
	bool pending = neap_tcp_replies_pending(session);
	if (session->fate == NEAP_TCP_BROKEN || (!pending && session->ends_by_reset)) {
		neap_step(&session->machine, tcp_session_on_BROKEN, 0);
		return;
	}
	if (!pending && session->end_of_file) {
		neap_step(&session->machine, tcp_session_on_ENDED, 0);
		return;
	}
	if (!pending && !session->half_closed) {
		session->half_closed = true;
		session->stream->ops->shutdown_write(session->stream);
	}
	if (intake == NEAP_TCP_TOOK || (pending && !session->blocked))
		neap_ready_again(session->server->reactor, &session->again);
	want(session, false);
}

static void visit_session(struct neap_tcp_session *session)
{
	struct neap_tcp_visit visit = {.budget = neap_reactor_bytes_budget(session->server->reactor)};
	if (session->machine.state == tcp_session_REFUSING)
		visit_refusing(session, &visit);
	else
		visit_serving(session, &visit);
}

static void stream_ready(struct neap_stream *stream, unsigned ready)
{
	struct neap_tcp_session *session = stream->user;
	if (ready & (NEAP_WRITABLE | NEAP_HANGUP | NEAP_ERROR_READY))
		session->blocked = false;
	visit_session(session);
}

static void run_again(struct neap_ready *ready)
{
	visit_session((struct neap_tcp_session *)(void *)((char *)ready - offsetof(struct neap_tcp_session, again)));
}

/* --- actions --------------------------------------------------------------------------------------------------------------- */

static void do_watch(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_session *session = session_of(machine);
	(void)argument;
	session->stream->user = session;
	session->stream->ready = stream_ready;
	want(session, false);
}

static bool has_stalled(const struct neap_tcp_session *session)
{
	uint64_t limit = (uint64_t)session->server->view->options->progress_timeout_ms * NS_PER_MS;
	return neap_now(session->server->reactor) >= session->progress_ns + limit;
}

/* The timer was armed when the phase began and has not been touched since: was there progress meanwhile? Readiness comes late on slow
 * links: not before the low-water mark is reached, or a good part of the send buffer is free. So before the peer is given up, one more
 * visit looks for itself. */
static void do_judge(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_session *session = session_of(machine);
	(void)argument;
	if (!has_stalled(session))
		return;
	if (!session->looked) {
		session->looked = true;
		session->blocked = false;
		neap_ready_again(session->server->reactor, &session->again);
		return;
	}
	neap_log(session->server->reactor, NEAP_LOG_INFO, "tcp",
	         "a data connection is reset: no byte moved for %u ms (progress_timeout_ms)",
	         session->server->view->options->progress_timeout_ms);
	neap_post_first(machine, tcp_session_on_STALLED, 0);
}

static void do_refuse(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_session *session = session_of(machine);
	(void)argument;
	if (session->work && session->work->spill) {
		neap_pool_give(&session->server->spills, session->work->spill);
		session->work->spill = NULL;
	}
	neap_tcp_low_water(session);
	neap_ready_again(session->server->reactor, &session->again);
}

static void do_finish(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	close_session(session_of(machine), neap_tcp_replies_pending(session_of(machine)));
}

static void do_abort(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	close_session(session_of(machine), true);
}

static neap_action_func *const actions[] = {
	[tcp_session_do_watch] = do_watch,   [tcp_session_do_judge] = do_judge, [tcp_session_do_refuse] = do_refuse,
	[tcp_session_do_finish] = do_finish, [tcp_session_do_abort] = do_abort,
};

/* --- class ----------------------------------------------------------------------------------------------------------------- */

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_tcp_session *session = (const struct neap_tcp_session *)(const void *)machine;
	const struct neap_engine_options *options = session->server->view->options;
	switch (timeout_class) {
	case tcp_session_timeout_FIRST_HEADER:
		return now_ns + (uint64_t)options->first_header_timeout_ms * NS_PER_MS;
	case tcp_session_timeout_PROGRESS: { /* the past: a last look is being taken */
		uint64_t due = session->progress_ns + (uint64_t)options->progress_timeout_ms * NS_PER_MS;
		return due > now_ns ? due : now_ns + NS_PER_MS;
	}
	case tcp_session_timeout_DRAIN:
		return now_ns + (uint64_t)options->drain_timeout_ms * NS_PER_MS;
	default:
		return UINT64_MAX;
	}
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)event;
	struct neap_tcp_session *session = session_of(machine);
	if (session->stream)
		close_session(session, true);
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_tcp_session *session = (const struct neap_tcp_session *)(const void *)machine;
	(void)from;
	if ((machine->state == tcp_session_CLOSED) != (session->stream == NULL))
		return "a session has a stream until it is closed, and none after";
	if (machine->state == tcp_session_IDLE && session->work)
		return "an idle session holds no work";
	if (machine->state == tcp_session_RECEIVING && !is_partial(session))
		return "a receiving session has a request that is not complete";
	if (machine->state == tcp_session_REPLYING && !neap_tcp_replies_pending(session))
		return "a replying session has replies to send";
	return NULL;
}

const struct neap_machine_kind neap_tcp_session_kind = {
	.fsm = &neap_fsm_tcp_session,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_tcp_session),
	.due_ns = due_ns,
	.broken = broken,
};

void neap_tcp_session_open(struct neap_tcp_session *session, struct neap_tcp_server *server, struct neap_stream *stream)
{
	struct neap_machine machine = session->machine; /* its generation goes on */
	*session = (struct neap_tcp_session){
		.machine = machine,
		.server = server,
		.stream = stream,
		.again = {.run = run_again},
		.low_water = 1,
		.last_head = NEAP_PLAIN_HEADER_BYTES,
		.progress_ns = neap_now(server->reactor),
	};
	neap_machine_begin(&session->machine, &server->class_->class_);
	server->view->stats->sessions++;
	neap_step(&session->machine, tcp_session_on_START, 0);
}

void neap_tcp_session_end(struct neap_tcp_session *session, bool abortive)
{
	bool in_order = !abortive && session->machine.state == tcp_session_IDLE;
	neap_step(&session->machine, in_order ? tcp_session_on_ENDED : tcp_session_on_BROKEN, 0);
}
