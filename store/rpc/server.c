#include "store/rpc/server_inside.h"
#include <stdio.h>
#include <string.h>

#define MS_NS UINT64_C(1000000)

static void accepted(struct neap_acceptor *acceptor, struct neap_stream *stream)
{
	rpc_session_begin(acceptor->user, stream, true); /* connections_max is the pool's size */
}

bool neap_rpc_server_serve(struct neap_rpc_server *server, struct neap_stream *stream)
{
	if (server->stopping || server->closing || server->sessions.used == server->sessions.capacity) {
		neap_stream_close(stream, true);
		return false;
	}
	rpc_session_begin(server, stream, false);
	return true;
}

static int set_options(struct neap_rpc_server *server, const struct neap_rpc_server_options *options)
{
	struct neap_rpc_server_options *o = &server->options;
	uint8_t any = 0;
	if (options)
		*o = *options;
	for (unsigned i = 0; i < sizeof o->instance; i++)
		any |= o->instance[i];
	if (!any)
		neap_random_fill(server->room.reactor, o->instance, sizeof o->instance);
	o->connections_max = o->connections_max ? o->connections_max : 1024;
	o->calls_max = o->calls_max ? o->calls_max : 256;
	o->calls_total_max = o->calls_total_max ? o->calls_total_max : 16384;
	o->body_max = o->body_max ? o->body_max : NEAP_RPC_BODY_MAX_DEFAULT;
	o->replies_max = o->replies_max ? o->replies_max : (size_t)4 << 20;
	o->bytes_max = o->bytes_max ? o->bytes_max : (size_t)256 << 20;
	o->lanes_max = o->lanes_max ? o->lanes_max : 4096;
	o->window_max = o->window_max ? o->window_max : 1024;
	o->hello_timeout_ns = o->hello_timeout_ns ? o->hello_timeout_ns : 5000 * MS_NS;
	o->frame_timeout_ns = o->frame_timeout_ns ? o->frame_timeout_ns : 30000 * MS_NS;
	o->progress_timeout_ns = o->progress_timeout_ns ? o->progress_timeout_ns : 10000 * MS_NS;
	o->leave_timeout_ns = o->leave_timeout_ns ? o->leave_timeout_ns : 10000 * MS_NS;
	o->session_keep_ns = o->session_keep_ns ? o->session_keep_ns : 600000 * MS_NS;
	server->room.body_max = o->body_max;
	server->room.frame_timeout_ns = o->frame_timeout_ns;
	server->room.progress_timeout_ns = o->progress_timeout_ns;
	return o->body_max < NEAP_RPC_BODY_MAX_LEAST || (o->window_max & (o->window_max - 1)) ? NEAP_EINVAL : NEAP_OK;
}

static void release(struct neap_rpc_server *server)
{
	struct neap_reactor *reactor = server->room.reactor;
	neap_rpc_decoder_close(&server->decoder);
	neap_pool_destroy(&server->sessions);
	neap_pool_destroy(&server->incoming);
	neap_pool_destroy(&server->lanes);
	neap_rpc_blocks_close(&server->room.blocks);
	neap_release(reactor, server, sizeof *server);
}

static int build(struct neap_rpc_server *server)
{
	struct neap_reactor *reactor = server->room.reactor;
	const struct neap_rpc_server_options *o = &server->options;
	int error = neap_reactor_class_of(reactor, &rpc_session_kind, &server->session_class);
	if (!error)
		error = neap_rpc_blocks_open(&server->room.blocks, reactor, o->calls_total_max + 2 * o->connections_max, o->bytes_max);
	if (!error)
		error = neap_pool_create(&server->sessions, reactor, sizeof(struct rpc_session), o->connections_max);
	if (!error)
		error = neap_pool_create(&server->incoming, reactor, sizeof(struct rpc_incoming), o->calls_total_max);
	if (!error)
		error = neap_pool_create(&server->lanes, reactor, sizeof(struct rpc_lane), o->lanes_max);
	if (!error)
		error = neap_rpc_decoder_open(&server->decoder, reactor, 0);
	return error;
}

static int open_listener(struct neap_rpc_server *server, const struct neap_sockaddr *address, int *system_errno_p)
{
	struct neap_acceptor *acceptor = &server->acceptor;
	/* a restarted server gets its port back at once; two listeners on one port are refused all the same */
	struct neap_socket_options options = {.reuse_address = true};
	acceptor->connections_max = server->options.connections_max;
	acceptor->accepted_stream = accepted;
	acceptor->user = server;
	acceptor->what = "rpc";
	return neap_acceptor_open(acceptor, server->room.reactor, address, &options, system_errno_p);
}

static void say_why(const struct neap_sockaddr *address, int error, int system_errno, char *why, size_t why_size)
{
	char text[NEAP_ADDRESS_TEXT_MAX];
	if (!address || neap_sockaddr_format(address, text, sizeof text) < 0)
		text[0] = '\0';
	(void)snprintf(why, why_size, "rpc server at %s: %s", text,
	               error == NEAP_ESOCKET ? strerrordesc_np(system_errno) : neap_error_text(error));
}

/* Tells all sessions once, then the owner when the last one has gone. A resource that is released may destroy the server. */
static void run_halt(struct neap_ready *ready)
{
	struct neap_rpc_server *server = (struct neap_rpc_server *)(void *)((char *)ready - offsetof(struct neap_rpc_server, halt));
	struct rpc_session *session;
	uint32_t index = 0;
	while (!server->told && (session = neap_pool_next(&server->sessions, &index)) != NULL) {
		neap_step(&session->machine, rpc_session_on_STOP, session->taken);
		if (server->closing)
			return;
	}
	server->told = true;
	void (*stopped)(void *) = server->stopped;
	if (server->sessions.used > 0 || !stopped)
		return;
	server->stopped = NULL;
	stopped(server->user);
}

int neap_rpc_server_create(struct neap_rpc_server **server_p, struct neap_reactor *reactor, const struct neap_sockaddr *address,
                           const struct neap_rpc_handler *handlers, uint32_t handler_count,
                           const struct neap_rpc_server_options *options, void *user, int *system_errno_p, char *why, size_t why_size)
{
	*server_p = NULL;
	*system_errno_p = 0;
	struct neap_rpc_server *server = neap_allocate(reactor, sizeof *server);
	int error = NEAP_ENOMEM;
	if (server) {
		server->room.reactor = reactor;
		server->handlers = handlers;
		server->handler_count = handler_count;
		server->user = user;
		server->halt.run = run_halt;
		error = set_options(server, options);
		if (!error)
			error = build(server);
		if (!error && address)
			error = open_listener(server, address, system_errno_p);
	}
	if (error) {
		say_why(address, error, *system_errno_p, why, why_size);
		if (server)
			release(server);
		return error;
	}
	server->dependent.what = "an RPC server";
	neap_reactor_attach(reactor, &server->dependent);
	*server_p = server;
	return NEAP_OK;
}

uint16_t neap_rpc_server_port(const struct neap_rpc_server *server)
{
	return neap_acceptor_port(&server->acceptor);
}

void neap_rpc_server_stop(struct neap_rpc_server *server, void (*stopped)(void *user))
{
	if (server->stopping || server->closing)
		return;
	server->stopping = true;
	server->stopped = stopped;
	neap_acceptor_close(&server->acceptor);
	neap_ready_again(server->room.reactor, &server->halt);
}

void neap_rpc_server_drop_if(struct neap_rpc_server *server, bool (*is_one)(const void *context, const uint8_t instance[16]),
                             const void *context)
{
	struct rpc_session *session;
	uint32_t index = 0;
	while (!server->closing && (session = neap_pool_next(&server->sessions, &index)) != NULL)
		if (is_one(context, session->instance))
			rpc_session_break(session, "its client is given up");
}

static bool is_same(const void *context, const uint8_t instance[16])
{
	return memcmp(context, instance, 16) == 0;
}

void neap_rpc_server_drop(struct neap_rpc_server *server, const uint8_t instance[16])
{
	neap_rpc_server_drop_if(server, is_same, instance);
}

static void reap_server(struct neap_reap *reap)
{
	struct neap_rpc_server *server = (struct neap_rpc_server *)(void *)((char *)reap - offsetof(struct neap_rpc_server, reap));
	neap_reactor_detach(server->room.reactor, &server->dependent);
	release(server);
}

void neap_rpc_server_destroy(struct neap_rpc_server *server)
{
	struct rpc_lane *lane;
	uint32_t index = 0;
	if (!server || server->closing)
		return;
	server->closing = true;
	neap_acceptor_close(&server->acceptor);
	while (server->oldest)
		rpc_session_end(server->oldest);
	while ((lane = neap_pool_next(&server->lanes, &index)) != NULL)
		rpc_lane_drop(lane);
	rpc_incoming_drop_all(server);
	neap_ready_cancel(server->room.reactor, &server->halt);
	server->reap.reap = reap_server;
	neap_reap_later(server->room.reactor, &server->reap);
}

void neap_rpc_server_stats(const struct neap_rpc_server *server, struct neap_rpc_server_stats *stats_p)
{
	*stats_p = server->stats;
	stats_p->bytes = server->room.blocks.bytes;
	stats_p->connections_now = server->sessions.used;
	stats_p->calls_now = server->incoming.used;
	stats_p->lanes_now = server->lanes.used;
}
