/* The other end of a connection, spoken byte by byte by a test: plain non-blocking sockets on loopback, driven together with the
 * reactor under test. What arrives at them is caused by the reactor's turns, so waiting means running it. */
#ifndef SUPPORT_RAW_PEER_H
#define SUPPORT_RAW_PEER_H

#include "tests/support/drive.h"
#include <stddef.h>
#include <sys/types.h>

#define RAW_BYTES_MAX (2u << 20)

struct raw_peer {
	int fd; /* -1: none */
	char *bytes; /* what it got so far */
	size_t have;
	bool ended, reset; /* end of file; connection reset */
	size_t wanted;
};

int raw_listen(uint16_t *port_p, int backlog, int receive_buffer_bytes);
/* Runs the reactor until a connection is there. */
void raw_accept(struct neap_reactor *reactor, int listener, struct raw_peer *peer);
/* `receive_buffer_bytes` 0: the system's. The connection is made by the kernel; the reactor learns of it in its next turns. */
void raw_connect(struct raw_peer *peer, uint16_t port, int receive_buffer_bytes);
/* All of it must fit the socket's buffer. */
void raw_send(struct raw_peer *peer, const void *bytes, size_t length);
/* Takes what is there. */
void raw_take(struct raw_peer *peer);
/* Runs the reactor until `bytes` are there or the connection ended; true when they are there. */
bool raw_await(struct neap_reactor *reactor, struct raw_peer *peer, size_t bytes, unsigned limit_ms);
/* Runs it until the connection ended; false when it did not. */
bool raw_await_end(struct neap_reactor *reactor, struct raw_peer *peer, unsigned limit_ms);
void raw_close(struct raw_peer *peer);
void raw_reset(struct raw_peer *peer); /* closes with RST */

/* Raises the limit of open descriptors as far as allowed; returns it. */
unsigned long raw_descriptors(void);

#endif
