/* The serving half of the TCP transport: a listener and its bounded set of sessions. Owner thread only; one a core.
 *
 * It needs no engine, only the view an engine gives its transports: tests make one of their own. */
#ifndef NEAP_TRANSPORTS_TCP_SERVER_H
#define NEAP_TRANSPORTS_TCP_SERVER_H

#include "reactor/listen.h"
#include "transports/transport.h"

struct neap_tcp_server;

/* `view` must outlive the server. NEAP_ENOMEM, NEAP_ELIMIT. Nothing listens yet. */
int neap_tcp_server_create(struct neap_tcp_server **server_p, const struct neap_engine_core_view *view);

/* Binds view->bind_address with options->data_port, or a random port of [port_min, port_max], and keeps it. `why` (may be NULL)
 * names the address, the cause and what to change. */
int neap_tcp_server_listen(struct neap_tcp_server *server, char *why, size_t why_size);
uint16_t neap_tcp_server_port(const struct neap_tcp_server *server);

/* Serves one stream, whose owner the server becomes. NEAP_ELIMIT at sessions_max, NEAP_ECLOSED when closing: the stream is
 * closed then. */
int neap_tcp_server_serve(struct neap_tcp_server *server, struct neap_stream *stream);

uint32_t neap_tcp_server_sessions(const struct neap_tcp_server *server);

/* Closes the listener at once and the sessions a few a turn: idle ones in order, those with a request under way with a reset.
 * `closed` is called once, from a turn. */
void neap_tcp_server_close(struct neap_tcp_server *server, void (*closed)(void *user), void *user);
/* After that, or when it never served, and not from an action: events may still be queued for the machines inside. */
void neap_tcp_server_destroy(struct neap_tcp_server *server);

#endif
