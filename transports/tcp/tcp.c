/* The TCP transport: ties the half that asks (initiator.c) to the half that answers (server.c). */
#include "transports/tcp/initiator.h"
#include "transports/tcp/server.h"

#include <stdio.h>

struct tcp_transport {
	struct neap_transport base; /* first */
	struct neap_tcp_initiator *initiator;
	struct neap_tcp_server *server;
	uint32_t open_halves;
};

static struct tcp_transport *tcp_of(struct neap_transport *transport)
{
	return (struct tcp_transport *)transport;
}

static void submit(struct neap_transport *transport, struct neap_segment *segment, struct neap_slice *first, uint32_t count)
{
	neap_tcp_initiator_submit(tcp_of(transport)->initiator, segment, first, count);
}

static uint32_t room(struct neap_transport *transport, const struct neap_segment *segment)
{
	return neap_tcp_initiator_room(tcp_of(transport)->initiator, segment);
}

static void cancel(struct neap_transport *transport, struct neap_slice *slice)
{
	neap_tcp_initiator_cancel(tcp_of(transport)->initiator, slice);
}

static void forget(struct neap_transport *transport, struct neap_segment *segment)
{
	neap_tcp_initiator_forget(tcp_of(transport)->initiator, segment);
}

static void describe(struct neap_transport *transport, struct neap_descriptor *descriptor)
{
	descriptor->tcp_data_port = neap_tcp_transport_port(transport);
	descriptor->tcp_proto_version = 2;
}

static void half_closed(void *user)
{
	struct tcp_transport *tcp = user;
	if (--tcp->open_halves == 0)
		neap_engine_transport_closed(tcp->base.engine, &tcp->base);
}

static void close_both(struct neap_transport *transport)
{
	struct tcp_transport *tcp = tcp_of(transport);
	tcp->open_halves = 2;
	neap_tcp_server_close(tcp->server, half_closed, tcp);
	neap_tcp_initiator_close(tcp->initiator, half_closed, tcp);
}

static void destroy(struct neap_transport *transport)
{
	struct tcp_transport *tcp = tcp_of(transport);
	struct neap_reactor *reactor = neap_engine_view(tcp->base.engine)->reactor;
	if (tcp->initiator)
		neap_tcp_initiator_destroy(tcp->initiator);
	if (tcp->server)
		neap_tcp_server_destroy(tcp->server);
	neap_release(reactor, tcp, sizeof *tcp);
}

static const struct neap_transport_ops tcp_ops = {
	.name = "tcp",
	.submit = submit,
	.room = room,
	.cancel = cancel,
	.forget = forget,
	.describe = describe,
	.close = close_both,
	.destroy = destroy,
};

int neap_tcp_transport_create(struct neap_transport **transport_p, struct neap_engine *engine, char *why, size_t why_size)
{
	const struct neap_engine_core_view *view = neap_engine_view(engine);
	*transport_p = NULL;
	struct tcp_transport *tcp = neap_allocate(view->reactor, sizeof *tcp);
	if (!tcp)
		return NEAP_ENOMEM;
	tcp->base = (struct neap_transport){.ops = &tcp_ops, .engine = engine};
	int error = neap_tcp_server_create(&tcp->server, view);
	if (!error)
		error = neap_tcp_initiator_create(&tcp->initiator, &tcp->base);
	if (error && why && why_size)
		snprintf(why, why_size, "no memory for the sessions and lanes of the tcp transport: %s; lower sessions_max or peers_max",
		         neap_error_text(error));
	if (!error) /* last: what listens can only be closed in a turn */
		error = neap_tcp_server_listen(tcp->server, why, why_size);
	if (error) {
		destroy(&tcp->base);
		return error;
	}
	*transport_p = &tcp->base;
	return NEAP_OK;
}

uint16_t neap_tcp_transport_port(const struct neap_transport *transport)
{
	return neap_tcp_server_port(((const struct tcp_transport *)(const void *)transport)->server);
}
