#include "transports/tcp/server.h"
#include "transports/tcp/session.h"
#include <errno.h>
#include <stdio.h>

#define BIND_ATTEMPTS 64u
#define BACKLOG 1024
#define CLOSES_A_TURN 64u

static void release_buffers(struct neap_tcp_server *server)
{
	neap_pool_destroy(&server->spills);
	neap_pool_destroy(&server->works);
	neap_pool_destroy(&server->sessions);
	if (server->scratch)
		neap_release(server->reactor, server->scratch, NEAP_TCP_SCRATCH_BYTES);
	if (server->staging)
		neap_release(server->reactor, server->staging, NEAP_TCP_STAGING_BYTES);
}

static int make_buffers(struct neap_tcp_server *server)
{
	uint32_t sessions_max = server->view->options->sessions_max;
	struct neap_reactor *reactor = server->reactor;
	int error = neap_pool_create(&server->sessions, reactor, sizeof(struct neap_tcp_session), sessions_max);
	if (!error)
		error = neap_pool_create(&server->works, reactor, sizeof(struct neap_tcp_work), sessions_max);
	if (!error)
		error = neap_pool_create(&server->spills, reactor, NEAP_TCP_STAGING_BYTES, NEAP_TCP_SPILLS);
	if (error)
		return error;
	server->staging = neap_allocate(reactor, NEAP_TCP_STAGING_BYTES);
	server->scratch = neap_allocate(reactor, NEAP_TCP_SCRATCH_BYTES);
	return server->staging && server->scratch ? NEAP_OK : NEAP_ENOMEM;
}

int neap_tcp_server_create(struct neap_tcp_server **server_p, const struct neap_engine_core_view *view)
{
	*server_p = NULL;
	struct neap_tcp_server *server = neap_allocate(view->reactor, sizeof *server);
	if (!server)
		return NEAP_ENOMEM;
	server->view = view;
	server->reactor = view->reactor;
	int error = neap_reactor_class_of(view->reactor, &neap_tcp_session_kind, &server->class_);
	if (!error)
		error = make_buffers(server);
	if (error) {
		release_buffers(server);
		neap_release(view->reactor, server, sizeof *server);
		return error;
	}
	for (uint32_t i = 0; i < NEAP_TCP_OK_WORDS; i++) {
		server->ok_words[0][i] = neap_plain_status(NEAP_PLAIN_OK);
		server->ok_words[1][i] = neap_word_status(NEAP_WORD_OK);
	}
	*server_p = server;
	return NEAP_OK;
}

int neap_tcp_server_serve(struct neap_tcp_server *server, struct neap_stream *stream)
{
	struct neap_tcp_session *session = server->closing ? NULL : neap_pool_take(&server->sessions);
	if (!session) {
		server->view->stats->sessions_refused++;
		neap_stream_close(stream, true);
		return server->closing ? NEAP_ECLOSED : NEAP_ELIMIT;
	}
	server->view->stats->sessions_accepted++;
	neap_tcp_session_open(session, server, stream);
	return NEAP_OK;
}

static void accepted(struct neap_acceptor *acceptor, struct neap_stream *stream)
{
	struct neap_tcp_server *server = acceptor->user;
	if (neap_tcp_server_serve(server, stream) != NEAP_OK)
		neap_acceptor_released(acceptor);
}

static bool is_about_ports(int system_errno)
{
	return system_errno == EADDRINUSE || system_errno == EACCES;
}

static const char *advice_for(int system_errno, bool one_port)
{
	if (is_about_ports(system_errno))
		return one_port ? "choose another data_port, or 0 for a free one" : "widen port_min..port_max";
	switch (system_errno) {
	case ENOENT:
		return "the kernel does not have this congestion control (it has those in "
		       "/proc/sys/net/ipv4/tcp_available_congestion_control)";
	case EMFILE: return "more descriptors are needed; raise `ulimit -n`";
	case EADDRNOTAVAIL: return "choose an address of this host (bind_address)";
	default: return "see docs/OPERATING.md";
	}
}

static void explain(char *why, size_t why_size, const struct neap_tcp_server *server, int system_errno)
{
	if (!why || why_size == 0)
		return;
	const struct neap_engine_options *options = server->view->options;
	char host[NEAP_ADDRESS_TEXT_MAX] = "?";
	struct neap_sockaddr address = server->view->bind_address;
	neap_sockaddr_set_port(&address, options->data_port);
	neap_sockaddr_format(&address, host, sizeof host);
	const char *advice = advice_for(system_errno, options->data_port != 0), *cause = strerror(system_errno);
	if (options->data_port || !is_about_ports(system_errno))
		snprintf(why, why_size, "cannot listen for data on %s: %s; %s", host, cause, advice);
	else
		snprintf(why, why_size, "cannot listen for data on %s with any of the ports %u..%u tried: %s; %s", host, options->port_min,
		         options->port_max, cause, advice);
}

int neap_tcp_server_listen(struct neap_tcp_server *server, char *why, size_t why_size)
{
	const struct neap_engine_options *options = server->view->options;
	struct neap_socket_options socket_options = server->view->socket_options;
	socket_options.reuse_address = true;
	socket_options.backlog = BACKLOG;
	struct neap_acceptor *acceptor = &server->acceptor;
	/* One more than there are sessions: it is refused at once instead of waiting in the backlog. */
	acceptor->connections_max = options->sessions_max + 1;
	acceptor->accepted_stream = accepted;
	acceptor->user = server;
	acceptor->what = "tcp data";
	int error, system_errno = 0;
	struct neap_sockaddr address = server->view->bind_address;
	if (options->data_port) {
		neap_sockaddr_set_port(&address, options->data_port);
		error = neap_acceptor_open(acceptor, server->reactor, &address, &socket_options, &system_errno);
	} else {
		error = neap_acceptor_open_range(acceptor, server->reactor, &address, options->port_min, options->port_max, BIND_ATTEMPTS,
		                                 &socket_options, &system_errno);
	}
	if (error) {
		explain(why, why_size, server, system_errno);
		return error;
	}
	server->listening = true;
	return NEAP_OK;
}

uint16_t neap_tcp_server_port(const struct neap_tcp_server *server)
{
	return server->listening ? neap_acceptor_port(&server->acceptor) : 0;
}

uint32_t neap_tcp_server_sessions(const struct neap_tcp_server *server)
{
	return server->sessions.used;
}

static void close_some(struct neap_ready *ready)
{
	void *container = (char *)ready - offsetof(struct neap_tcp_server, close_some);
	struct neap_tcp_server *server = container;
	struct neap_tcp_session *session = NULL;
	for (uint32_t i = 0; i < CLOSES_A_TURN && (session = neap_pool_next(&server->sessions, &server->close_next)) != NULL; i++)
		neap_tcp_session_end(session, false);
	if (session)
		neap_ready_again(server->reactor, ready);
	else
		server->closed(server->closed_user);
}

void neap_tcp_server_close(struct neap_tcp_server *server, void (*closed)(void *user), void *user)
{
	if (server->closing)
		return;
	server->closing = true;
	if (server->listening)
		neap_acceptor_close(&server->acceptor);
	server->listening = false;
	server->closed = closed;
	server->closed_user = user;
	server->close_some.run = close_some;
	neap_ready_again(server->reactor, &server->close_some);
}

void neap_tcp_server_destroy(struct neap_tcp_server *server)
{
	struct neap_reactor *reactor = server->reactor;
	neap_ready_cancel(reactor, &server->close_some);
	release_buffers(server);
	neap_release(reactor, server, sizeof *server);
}
