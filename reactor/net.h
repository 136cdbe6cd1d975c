/* Byte streams: what the engine knows of the network. Two implementations: sockets (reactor/socket.c) and the simulated network
 * (tests/sim). Everything above is written against this table and runs unchanged on both.
 *
 * Nothing here waits. Owner thread only. */
#ifndef NEAP_REACTOR_NET_H
#define NEAP_REACTOR_NET_H

#include "reactor/core.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

/* A numeric address with port. */
struct neap_sockaddr {
	socklen_t length;
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	};
};

struct neap_stream;
struct neap_listener;

struct neap_stream_ops {
	/* As readv and sendmsg(MSG_NOSIGNAL): bytes moved, 0 at end of file (readv only), or -errno (-EAGAIN: wait for readiness).
	 * A short count means drained or full: no need to call again to learn -EAGAIN. */
	ssize_t (*readv)(struct neap_stream *stream, const struct iovec *vector, int count);
	ssize_t (*writev)(struct neap_stream *stream, const struct iovec *vector, int count);
	/* Which readiness is reported: NEAP_READABLE | NEAP_WRITABLE. Hang-up and errors are reported while any is wanted. */
	void (*want)(struct neap_stream *stream, unsigned wanted);
	/* Half-close. */
	void (*shutdown_write)(struct neap_stream *stream);
	/* Readable only from this many bytes on (never more than are still to come); 1 is the default. A hint. */
	void (*low_water)(struct neap_stream *stream, uint32_t bytes);
	/* Acknowledge at once what follows: a hint for request-reply traffic. May be NULL */
	void (*no_delay)(struct neap_stream *stream);
	/* Bytes written here that the peer's side has not taken yet (TCP: sent or queued, without acknowledgement), or -errno. After the
	 * peer's end of file, 0 means that it had read all of them. May be NULL */
	int64_t (*unacknowledged)(struct neap_stream *stream);
	/* Gone after this call: no more callbacks, memory freed at the end of the turn. `abortive`: unsent bytes are discarded and
	 * the peer sees a reset. */
	void (*close)(struct neap_stream *stream, bool abortive);
	int (*local_address)(struct neap_stream *stream, struct neap_sockaddr *address_p);
	int (*peer_address)(struct neap_stream *stream, struct neap_sockaddr *address_p);
};

/* The base of every stream. `ready` is called from the reactor's turn, never from inside a call to the stream. */
struct neap_stream {
	const struct neap_stream_ops *ops;
	struct neap_reactor *reactor;
	void (*ready)(struct neap_stream *stream, unsigned ready);
	void *user;
};

struct neap_listener_ops {
	/* A new stream with `ready` NULL and nothing wanted, or NULL with *error_p = -EAGAIN (none waiting) or another -errno
	 * (-EMFILE, -ENFILE, -ENOMEM: pause, see reactor/listen.h). */
	struct neap_stream *(*accept)(struct neap_listener *listener, int *error_p);
	void (*want)(struct neap_listener *listener, bool wanted);
	void (*close)(struct neap_listener *listener);
	int (*local_address)(struct neap_listener *listener, struct neap_sockaddr *address_p);
};

struct neap_listener {
	const struct neap_listener_ops *ops;
	struct neap_reactor *reactor;
	void (*ready)(struct neap_listener *listener);
	void *user;
};

struct neap_socket_options {
	const char *congestion; /* "" or NULL: the system's; "auto": reno for a peer on this host when the system's is bbr */
	uint32_t send_buffer_bytes, receive_buffer_bytes; /* 0: the system's own tuning */
	bool reuse_address;     /* listeners */
	int backlog;            /* listeners; 0 means 128 */
};

/* An answer of the resolver: `count` addresses (at most 16), or an error with count 0. Called from a turn, once. */
struct neap_resolution;
typedef void neap_resolved_func(void *user, int error, const char *detail, const struct neap_sockaddr *addresses, uint32_t count);

struct neap_net {
	/* Begins to connect, NEAP_WRITABLE wanted. The stream reports that when connected, or NEAP_ERROR_READY; connect_result tells
	 * which.
	 * NULL and *error_p = -errno when it cannot even begin. */
	struct neap_stream *(*connect)(struct neap_net *net, struct neap_reactor *reactor, const struct neap_sockaddr *address,
	                               const struct neap_socket_options *options, int *error_p);
	int (*connect_result)(struct neap_stream *stream); /* 0 or -errno */
	struct neap_listener *(*listen)(struct neap_net *net, struct neap_reactor *reactor, const struct neap_sockaddr *address,
	                                const struct neap_socket_options *options, int *error_p);
	/* Names only: numeric hosts never come here. family AF_UNSPEC, AF_INET, AF_INET6. Deadlines are the caller's: cancel ends it
	 * without a callback. NULL: cannot begin, *error_p says why. */
	struct neap_resolution *(*resolve)(struct neap_net *net, struct neap_reactor *reactor, const char *host, uint16_t port,
	                                   int family, neap_resolved_func *resolved, void *user, int *error_p);
	void (*resolve_cancel)(struct neap_resolution *resolution);
	/* Simulated nets: what a descriptor of a simulated device is ready for (NEAP_READABLE and so on). Asked in each turn, for each that is
	 * watched; the host runs a turn when one becomes ready. NULL: a simulated reactor watches no descriptors. */
	unsigned (*descriptor_ready)(struct neap_net *net, int fd);
	/* The per-reactor state of the net, when the reactor goes. May be NULL */
	void (*forget_reactor)(struct neap_net *net, struct neap_reactor *reactor);
};

/* The sockets of this machine. One instance a process, stateless. */
struct neap_net *neap_net_sockets(void);

static inline ssize_t neap_stream_readv(struct neap_stream *stream, const struct iovec *vector, int count)
{
	return stream->ops->readv(stream, vector, count);
}
static inline ssize_t neap_stream_writev(struct neap_stream *stream, const struct iovec *vector, int count)
{
	return stream->ops->writev(stream, vector, count);
}
static inline void neap_stream_want(struct neap_stream *stream, unsigned wanted)
{
	stream->ops->want(stream, wanted);
}
static inline void neap_stream_close(struct neap_stream *stream, bool abortive)
{
	stream->ops->close(stream, abortive);
}

#endif
