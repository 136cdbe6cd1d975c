#include "apps/client/link.h"
#include <errno.h>
#include <neap/store_error.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = number;
}

bool client_interrupted(void)
{
	return interrupted != 0;
}

void client_watch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigaction(SIGPIPE, &ignore, NULL); /* a reader that leaves is an error of write() */
}

static void quiet(void *user, enum neap_log_level level, const char *component, const char *message)
{
	(void)user, (void)level, (void)component, (void)message; /* outcomes say it */
}

static uint64_t monotonic_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int client_link_open(struct client_link *link, const struct app_program *program, uint64_t port, double seconds)
{
	struct neap_reactor_options reactor = {.host_keeps_deadline = true, .long_turn_ns = 60000000000u, .log = quiet};
	struct neap_rpc_client_options client = {
		.channels_max = 1, .calls_max = 64, .body_max = LOCAL_BODY_MAX, .connect_timeout_ns = 2000000000u};
	struct neap_rpc_channel_options channel = {.server = {.host = "127.0.0.1", .port = (uint16_t)port, .has_port = true}};
	memset(link, 0, sizeof *link);
	link->program = program;
	link->port = (uint16_t)port;
	link->deadline_ns = monotonic_ns() + (uint64_t)(seconds * 1e9);
	int error = neap_reactor_create(&link->reactor, &reactor);
	if (!error)
		error = neap_rpc_client_create(&link->client, link->reactor, &client);
	if (!error)
		error = neap_rpc_channel_open(&link->channel, link->client, &channel);
	if (!error)
		return -1;
	app_error(program, "cannot prepare a connection: %s; see `ulimit -n`", neap_error_text(error));
	client_link_close(link);
	return CLIENT_FAILED;
}

/* Sleeps until there is something to do, unless something was asked since the last turn, and does it. */
static int turn(struct client_link *link)
{
	if (link->armed) {
		uint64_t deadline_ns = neap_reactor_deadline_ns(link->reactor), now_ns = monotonic_ns();
		int wait_ms = deadline_ns == UINT64_MAX ? 1000 : deadline_ns <= now_ns ? 0 : (int)((deadline_ns - now_ns) / 1000000 % 1000000 + 1);
		struct pollfd waiting = {.fd = neap_reactor_fd(link->reactor), .events = POLLIN};
		(void)poll(&waiting, 1, wait_ms);
	}
	int result = neap_reactor_run_once(link->reactor, NULL);
	link->armed = result == NEAP_RUN_ARMED;
	return result;
}

void client_link_close(struct client_link *link)
{
	if (!link->reactor)
		return;
	if (link->client)
		neap_rpc_client_destroy(link->client);
	neap_reactor_stop(link->reactor);
	link->armed = false;
	for (int i = 0, result = 0; i < 1000 && result >= 0 && result != NEAP_RUN_STOPPED; i++)
		result = turn(link);
	neap_reactor_destroy(link->reactor);
	link->reactor = NULL;
}

static void on_done(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	struct client_call *call = user;
	call->done = true;
	call->result = outcome->result;
	call->status = outcome->status;
	if (outcome->result == NEAP_RPC_OK || outcome->result == NEAP_RPC_REFUSED)
		call->link->reached = true;
	snprintf(call->why, sizeof call->why, "%s", outcome->why);
	if (reply && call->take)
		call->take(call->user, reply);
}

void client_link_begin(struct client_link *link, struct client_call *call, const struct neap_rpc_method *method, const void *request)
{
	uint64_t now_ns = monotonic_ns();
	uint64_t left_ns = link->deadline_ns > now_ns ? link->deadline_ns - now_ns : 1;
	call->link = link;
	call->done = false;
	call->why[0] = 0;
	link->armed = false;
	int error = neap_rpc_call(link->channel, method, request, left_ns, NULL, on_done, call, NULL);
	if (!error)
		return;
	call->done = true;
	call->result = NEAP_RPC_CLOSED;
	call->status = error;
	snprintf(call->why, sizeof call->why, "%s", neap_error_text(error));
}

static int unreached(const struct client_link *link, const struct client_call *call, const char *what)
{
	app_error(link->program,
	          "%s: no neap-client answers at 127.0.0.1:%u (%s); is it running? Start one with `neap-client --port %u`, or say with --port "
	          "(NEAP_CLIENT_PORT) where it is",
	          what, link->port, call->why, link->port);
	return CLIENT_UNREACHED;
}

static int explain(const struct client_link *link, const struct client_call *call, const char *what)
{
	const char *name = call->status <= NEAP_EAGAIN ? neap_error_name(call->status) : neap_store_error_name(call->status);
	switch (call->result) {
	case NEAP_RPC_OK: return -1;
	case NEAP_RPC_REFUSED:
		if (call->status == NEAP_STORE_OBJECT_NOT_FOUND) {
			app_error(link->program, "%s: there is no such key", what);
			return CLIENT_NO_KEY;
		}
		app_error(link->program, "%s: %s (%s)", what, call->why, name);
		return CLIENT_FAILED;
	case NEAP_RPC_NOT_SENT:
		if (!link->reached)
			return unreached(link, call, what);
		app_error(link->program, "%s: the neap-client at 127.0.0.1:%u ends or is gone (%s); this was not done", what, link->port,
		          call->why);
		return CLIENT_FAILED;
	case NEAP_RPC_UNKNOWN:
		app_error(link->program,
		          "%s: the connection to the neap-client at 127.0.0.1:%u was lost (%s); whether it was done is not known", what, link->port,
		          call->why);
		return CLIENT_FAILED;
	case NEAP_RPC_DEADLINE:
		if (interrupted)
			break;
		app_error(link->program, "%s: no answer in time; --deadline sets how long to wait. A put or rm may have been done or yet be",
		          what);
		return CLIENT_FAILED;
	case NEAP_RPC_CANCELED:
	case NEAP_RPC_CLOSED: break;
	}
	app_error(link->program, "%s: %s", what, interrupted ? "interrupted" : call->why);
	return CLIENT_FAILED;
}

int client_link_wait(struct client_link *link, struct client_call *call, const char *what)
{
	int result = 0;
	while (!call->done && !interrupted && result >= 0)
		result = turn(link);
	if (!call->done) {
		app_error(link->program, "%s: %s", what, interrupted ? "interrupted" : neap_error_text(result));
		return CLIENT_FAILED;
	}
	return explain(link, call, what);
}

int client_link_ask(struct client_link *link, const struct neap_rpc_method *method, const void *request,
                    void (*take)(void *user, const void *reply), void *user, const char *what)
{
	static struct client_call call; /* outlives a wait that a signal ends */
	call.take = take;
	call.user = user;
	client_link_begin(link, &call, method, request);
	return client_link_wait(link, &call, what);
}
