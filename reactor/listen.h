/* Accepting byte streams. Machine: stream_listen (LISTENING, PAUSED while descriptors are short, CLOSED).
 *
 * On EMFILE, ENFILE, ENOBUFS, ENOMEM or at `connections_max` the listener is unwatched and tried again after a pause: no spinning,
 * no connection lost from the backlog. */
#ifndef NEAP_REACTOR_LISTEN_H
#define NEAP_REACTOR_LISTEN_H

#include "reactor/address.h"

struct neap_acceptor {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_reactor *reactor;
	struct neap_listener *listener;
	uint32_t connections, connections_max; /* the owner calls neap_acceptor_released for each that ends */
	uint64_t pause_ns;                     /* 0 means 100 ms */
	uint64_t pauses;                       /* how often descriptors were short; logged once a minute */
	uint64_t accepted;
	uint64_t last_log_ns;
	void (*accepted_stream)(struct neap_acceptor *acceptor, struct neap_stream *stream); /* the callee owns the stream */
	void *user;
	const char *what; /* for log lines: "handshake", "tcp data" */
};

/* Binds and listens at once. NEAP_ESOCKET with errno in *system_errno_p (EADDRINUSE...). Fill connections_max, accepted_stream, user,
 * what before. */
int neap_acceptor_open(struct neap_acceptor *acceptor, struct neap_reactor *reactor, const struct neap_sockaddr *address,
                       const struct neap_socket_options *options, int *system_errno_p);

/* Binds to a port of [min, max], chosen at random and kept (te spec 1.8): `attempts` tries. Never closes and re-binds. */
int neap_acceptor_open_range(struct neap_acceptor *acceptor, struct neap_reactor *reactor, const struct neap_sockaddr *host,
                             uint16_t port_min, uint16_t port_max, uint32_t attempts, const struct neap_socket_options *options,
                             int *system_errno_p);
void neap_acceptor_released(struct neap_acceptor *acceptor); /* one of its connections has ended */
void neap_acceptor_close(struct neap_acceptor *acceptor);
uint16_t neap_acceptor_port(const struct neap_acceptor *acceptor);

#endif
