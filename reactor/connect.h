/* Opening a byte stream: resolve, then try each address in turn, within one deadline. Machine: stream_connect. */
#ifndef NEAP_REACTOR_CONNECT_H
#define NEAP_REACTOR_CONNECT_H

#include "reactor/address.h"

/* Embedded in the object that wants the stream; memory must be pool memory (neap/fsm.h). */
struct neap_connect {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_reactor *reactor;
	struct neap_host_port target;
	struct neap_socket_options options;
	int family; /* AF_UNSPEC unless told */
	uint64_t deadline_ns;
	struct neap_resolution *resolution;
	struct neap_stream *stream;
	struct neap_sockaddr addresses[16];
	uint32_t address_count, address_next;
	int last_error; /* -errno of the last attempt, or a neap_error of the resolver */
	char detail[96];
	/* Called once from the dispatcher, unless cancelled: error 0 and the stream (now the callee's), or NEAP_EDNS, NEAP_ESOCKET
	 * (system_errno set), NEAP_ETIMEDOUT, NEAP_ENOMEM with stream NULL. `detail` names address and cause. */
	void (*done)(struct neap_connect *connect, int error, int system_errno, struct neap_stream *stream);
	void *user;
};

/* `timeout_ns` covers names and all addresses. `done` is never called from inside. */
int neap_connect_start(struct neap_connect *connect, struct neap_reactor *reactor, const struct neap_host_port *target,
                       const struct neap_socket_options *options, uint64_t timeout_ns,
                       void (*done)(struct neap_connect *, int error, int system_errno, struct neap_stream *), void *user);
/* Ends it without a callback. Harmless when it has ended. */
void neap_connect_cancel(struct neap_connect *connect);

#endif
