/* Byte streams on the sockets of this machine.
 *
 * Every descriptor is made non-blocking and close-on-exec by the call that makes it. No call raises SIGPIPE. A watch is stopped
 * before its descriptor is closed, so that a number that comes back at once is never mistaken for the old one. */
#include "reactor/socket.h"
#include "reactor/address.h"

#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define VECTORS_MAX 1024       /* IOV_MAX of Linux */
#define BACKLOG_DEFAULT 128
#define LISTENERS_MAX 1024u
#define ACCEPT_TRIES 16        /* connections that died in the queue, skipped in one call */
#define CONGESTION_NAME_MAX 16 /* TCP_CA_NAME_MAX */

struct socket_stream {
	struct neap_stream base; /* first */
	struct neap_watch watch;
	struct neap_reap reap;
	struct neap_dependent dependent;
	struct neap_socket_room *room;
	uint32_t low_water;
	bool closed;
};

struct socket_listener {
	struct neap_listener base; /* first */
	struct neap_watch watch;
	struct neap_reap reap;
	struct neap_dependent dependent;
	struct neap_socket_room *room;
	struct neap_ready parked_ready; /* the kernel's queue does not show the parked one */
	int parked; /* accepted, but the reactor had no room to watch it: handed out by the next accept. -1: none */
	bool same_host_reno;
	bool closed;
};

static struct socket_stream *stream_of_watch(struct neap_watch *watch)
{
	return (struct socket_stream *)(void *)((char *)watch - offsetof(struct socket_stream, watch));
}

static struct socket_stream *stream_of(struct neap_stream *stream)
{
	return (struct socket_stream *)stream;
}

static struct socket_listener *listener_of(struct neap_listener *listener)
{
	return (struct socket_listener *)listener;
}

/* --- socket options --------------------------------------------------------------------------------------------------- */

static int set_number(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value)) == 0 ? 0 : -errno;
}

static bool means_auto(const struct neap_socket_options *options)
{
	return options && options->congestion && strcmp(options->congestion, "auto") == 0;
}

/* Options for a connecting or listening socket; what it accepts inherits them. A congestion control asked for by name must be had:
 * a refusal is an error. */
static int apply_options(int fd, const struct neap_socket_options *options)
{
	int error = set_number(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (error || !options)
		return error;
	if (options->send_buffer_bytes) {
		uint32_t bytes = options->send_buffer_bytes < INT_MAX ? options->send_buffer_bytes : INT_MAX;
		error = set_number(fd, SOL_SOCKET, SO_SNDBUF, (int)bytes);
	}
	if (!error && options->receive_buffer_bytes) {
		uint32_t bytes = options->receive_buffer_bytes < INT_MAX ? options->receive_buffer_bytes : INT_MAX;
		error = set_number(fd, SOL_SOCKET, SO_RCVBUF, (int)bytes);
	}
	const char *name = options->congestion;
	if (error || !name || !*name || strcmp(name, "system") == 0 || strcmp(name, "auto") == 0)
		return error;
	return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0 ? 0 : -errno;
}

/* BBR paces by measured bandwidth and caps bulk traffic inside one host at about half of what reno moves there. A peer is on this
 * host when its address is loopback or the one our own end has. Refusals are ignored: it is a matter of speed alone. */
static void prefer_reno_on_this_host(int fd, const struct neap_sockaddr *peer)
{
	char name[CONGESTION_NAME_MAX] = "";
	socklen_t length = sizeof(name);
	struct neap_sockaddr local = {.length = sizeof(local.v6)};

	if (!neap_sockaddr_is_loopback(peer)) {
		if (getsockname(fd, &local.any, &local.length) != 0)
			return;
		neap_sockaddr_set_port(&local, neap_sockaddr_port(peer));
		if (!neap_sockaddr_equal(&local, peer))
			return;
	}
	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0 || strncmp(name, "bbr", 3) != 0)
		return;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

/* --- streams ---------------------------------------------------------------------------------------------------------- */

static ssize_t stream_readv(struct neap_stream *base, const struct iovec *vector, int count)
{
	struct socket_stream *stream = stream_of(base);
	if (stream->closed)
		return -EBADF;
	for (;;) {
		neap_count_system_call(base->reactor);
		ssize_t got = count == 1 ? recv(stream->watch.fd, vector->iov_base, vector->iov_len, 0)
		                         : readv(stream->watch.fd, vector, count < VECTORS_MAX ? count : VECTORS_MAX);
		if (got >= 0)
			return got;
		if (errno != EINTR)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	}
}

static ssize_t stream_writev(struct neap_stream *base, const struct iovec *vector, int count)
{
	struct socket_stream *stream = stream_of(base);
	struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)vector,
	                         .msg_iovlen = (size_t)(count < VECTORS_MAX ? count : VECTORS_MAX)};
	if (stream->closed)
		return -EBADF;
	for (;;) {
		neap_count_system_call(base->reactor);
		ssize_t put = sendmsg(stream->watch.fd, &message, MSG_NOSIGNAL);
		if (put >= 0)
			return put;
		if (errno != EINTR)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	}
}

static void watch_for(struct neap_reactor *reactor, struct neap_watch *watch, unsigned wanted)
{
	int error = neap_watch_want(reactor, watch, wanted);
	if (error) /* the kernel's own limit; whoever waits has a deadline */
		neap_log(reactor, NEAP_LOG_ERROR, "streams", "a descriptor cannot be watched: %s (fs.epoll.max_user_watches, memory)",
		         neap_error_text(error));
}

static void stream_want(struct neap_stream *base, unsigned wanted)
{
	struct socket_stream *stream = stream_of(base);
	if (!stream->closed)
		watch_for(base->reactor, &stream->watch, wanted);
}

static void stream_shutdown_write(struct neap_stream *base)
{
	struct socket_stream *stream = stream_of(base);
	if (stream->closed)
		return;
	neap_count_system_call(base->reactor);
	(void)shutdown(stream->watch.fd, SHUT_WR); /* ENOTCONN: the peer's reset came first and is reported by itself */
}

static void stream_low_water(struct neap_stream *base, uint32_t bytes)
{
	struct socket_stream *stream = stream_of(base);
	if (bytes == 0)
		bytes = 1;
	if (stream->closed || bytes == stream->low_water)
		return;
	neap_count_system_call(base->reactor);
	if (set_number(stream->watch.fd, SOL_SOCKET, SO_RCVLOWAT, bytes < INT_MAX ? (int)bytes : INT_MAX) == 0)
		stream->low_water = bytes;
}

static void stream_no_delay(struct neap_stream *base)
{
	struct socket_stream *stream = stream_of(base);
	if (stream->closed)
		return;
	neap_count_system_call(base->reactor);
	(void)set_number(stream->watch.fd, IPPROTO_TCP, TCP_QUICKACK, 1);
}

static int64_t stream_unacknowledged(struct neap_stream *base)
{
	struct socket_stream *stream = stream_of(base);
	int bytes = 0;
	if (stream->closed)
		return -EBADF;
	neap_count_system_call(base->reactor);
	return ioctl(stream->watch.fd, SIOCOUTQ, &bytes) == 0 ? bytes : -errno;
}

static void stream_reap(struct neap_reap *reap)
{
	struct socket_stream *stream = (struct socket_stream *)(void *)((char *)reap - offsetof(struct socket_stream, reap));
	neap_reactor_detach(stream->base.reactor, &stream->dependent);
	neap_pool_give(&stream->room->streams, stream);
}

/* A forked child of the application may hold a copy of the descriptor: then close alone would neither end the connection nor
 * reset it. */
static void end_connection(int fd, bool abortive)
{
	if (abortive) {
		struct linger linger = {.l_onoff = 1, .l_linger = 0};
		struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
		(void)connect(fd, &nowhere, sizeof(nowhere)); /* dissolves the association: the reset goes out now */
	} else {
		(void)shutdown(fd, SHUT_RDWR);
	}
	(void)close(fd);
}

static void stream_close(struct neap_stream *base, bool abortive)
{
	struct socket_stream *stream = stream_of(base);
	if (stream->closed)
		return;
	stream->closed = true;
	base->ready = NULL;
	int fd = stream->watch.fd;
	neap_watch_stop(base->reactor, &stream->watch);
	neap_count_system_call(base->reactor);
	end_connection(fd, abortive);
	neap_reap_later(base->reactor, &stream->reap);
}

static int socket_local_address(int fd, struct neap_sockaddr *address_p)
{
	*address_p = (struct neap_sockaddr){.length = sizeof(address_p->v6)};
	return getsockname(fd, &address_p->any, &address_p->length) == 0 ? NEAP_OK : NEAP_ESOCKET;
}

static int stream_local_address(struct neap_stream *base, struct neap_sockaddr *address_p)
{
	struct socket_stream *stream = stream_of(base);
	return stream->closed ? NEAP_ECLOSED : socket_local_address(stream->watch.fd, address_p);
}

static int stream_peer_address(struct neap_stream *base, struct neap_sockaddr *address_p)
{
	struct socket_stream *stream = stream_of(base);
	if (stream->closed)
		return NEAP_ECLOSED;
	*address_p = (struct neap_sockaddr){.length = sizeof(address_p->v6)};
	return getpeername(stream->watch.fd, &address_p->any, &address_p->length) == 0 ? NEAP_OK : NEAP_ESOCKET;
}

static const struct neap_stream_ops stream_ops = {
	.readv = stream_readv,
	.writev = stream_writev,
	.want = stream_want,
	.shutdown_write = stream_shutdown_write,
	.low_water = stream_low_water,
	.no_delay = stream_no_delay,
	.unacknowledged = stream_unacknowledged,
	.close = stream_close,
	.local_address = stream_local_address,
	.peer_address = stream_peer_address,
};

static void stream_ready(struct neap_watch *watch, unsigned ready)
{
	struct socket_stream *stream = stream_of_watch(watch);
	if (stream->base.ready)
		stream->base.ready(&stream->base, ready);
}

/* Takes over `fd` on success only. */
static struct socket_stream *stream_make(struct neap_socket_room *room, struct neap_reactor *reactor, int fd, unsigned wanted,
                                         int *error_p)
{
	struct socket_stream *stream = neap_pool_take(&room->streams);
	if (!stream) {
		*error_p = -EMFILE;
		return NULL;
	}
	*stream = (struct socket_stream){.base = {.ops = &stream_ops, .reactor = reactor},
	                                 .reap = {.reap = stream_reap},
	                                 .dependent = {.what = "stream"},
	                                 .room = room,
	                                 .low_water = 1};
	int error = neap_watch_start(reactor, &stream->watch, fd, wanted, stream_ready);
	if (error) {
		neap_pool_give(&room->streams, stream);
		*error_p = error == NEAP_ELIMIT ? -EMFILE : -ENOMEM;
		return NULL;
	}
	neap_reactor_attach(reactor, &stream->dependent);
	return stream;
}

/* A non-blocking connect goes on after EINTR: its verdict comes by readiness. */
static int begin_connect(int fd, const struct neap_sockaddr *address)
{
	if (connect(fd, &address->any, address->length) == 0 || errno == EINPROGRESS || errno == EINTR)
		return 0;
	return errno == EAGAIN ? -EADDRNOTAVAIL : -errno; /* EAGAIN: no local port is free */
}

static struct neap_stream *net_connect(struct neap_net *net, struct neap_reactor *reactor, const struct neap_sockaddr *address,
                                       const struct neap_socket_options *options, int *error_p)
{
	(void)net;
	struct neap_socket_room *room = neap_socket_room(reactor);
	if (!room) {
		*error_p = -ENOMEM;
		return NULL;
	}
	neap_count_system_call(reactor);
	int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	if (fd < 0) {
		*error_p = -errno;
		return NULL;
	}
	int error = apply_options(fd, options);
	if (!error)
		error = begin_connect(fd, address);
	struct socket_stream *stream = error ? NULL : stream_make(room, reactor, fd, NEAP_WRITABLE, &error);
	if (!stream) {
		(void)close(fd);
		*error_p = error;
		return NULL;
	}
	if (means_auto(options))
		prefer_reno_on_this_host(fd, address);
	return &stream->base;
}

/* A connect to a free port of the ephemeral range of this host can meet itself (simultaneous open): nobody listens there. */
static bool met_itself(int fd)
{
	struct neap_sockaddr local = {.length = sizeof(local.v6)}, peer = {.length = sizeof(peer.v6)};
	return getsockname(fd, &local.any, &local.length) == 0 && getpeername(fd, &peer.any, &peer.length) == 0 &&
	       neap_sockaddr_equal(&local, &peer);
}

static int net_connect_result(struct neap_stream *base)
{
	struct socket_stream *stream = stream_of(base);
	struct neap_sockaddr peer;
	int error = 0;
	socklen_t length = sizeof(error);

	if (stream->closed)
		return -EBADF;
	if (getsockopt(stream->watch.fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
		return -errno;
	if (error)
		return -error;
	if (stream_peer_address(base, &peer))
		return -EINPROGRESS;
	return met_itself(stream->watch.fd) ? -ECONNREFUSED : 0;
}

/* --- listeners -------------------------------------------------------------------------------------------------------- */

static struct neap_stream *adopt_accepted(struct socket_listener *listener, int fd, int *error_p)
{
	struct socket_stream *stream = stream_make(listener->room, listener->base.reactor, fd, 0, error_p);
	if (!stream) {
		listener->parked = fd;
		return NULL;
	}
	return &stream->base;
}

/* accept(2) passes on errors that belong to one waiting connection, not to the listener. */
static bool concerns_one_connection(int error)
{
	switch (error) {
	case ECONNABORTED: case EPERM: case EPROTO: case ENOPROTOOPT: case EHOSTDOWN: case ENONET: case EHOSTUNREACH: case EOPNOTSUPP:
	case ENETUNREACH: case ENETDOWN: case EINTR: case ECONNRESET: case ETIMEDOUT:
		return true;
	default:
		return false;
	}
}

static struct neap_stream *listener_accept(struct neap_listener *base, int *error_p)
{
	struct socket_listener *listener = listener_of(base);
	if (listener->closed) {
		*error_p = -EBADF;
		return NULL;
	}
	if (listener->parked >= 0) {
		int fd = listener->parked;
		listener->parked = -1;
		return adopt_accepted(listener, fd, error_p);
	}
	for (int i = 0; i < ACCEPT_TRIES; i++) {
		struct neap_sockaddr peer = {.length = sizeof(peer.v6)};
		neap_count_system_call(base->reactor);
		int fd = accept4(listener->watch.fd, &peer.any, &peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			if (listener->same_host_reno)
				prefer_reno_on_this_host(fd, &peer);
			return adopt_accepted(listener, fd, error_p);
		}
		if (!concerns_one_connection(errno)) {
			*error_p = errno == EWOULDBLOCK ? -EAGAIN : -errno;
			return NULL;
		}
	}
	*error_p = -EAGAIN; /* level-triggered: what else waits is told again */
	return NULL;
}

static void listener_want(struct neap_listener *base, bool wanted)
{
	struct socket_listener *listener = listener_of(base);
	if (listener->closed)
		return;
	watch_for(base->reactor, &listener->watch, wanted ? NEAP_READABLE : 0);
	if (wanted && listener->parked >= 0)
		neap_ready_again(base->reactor, &listener->parked_ready);
	else
		neap_ready_cancel(base->reactor, &listener->parked_ready);
}

static void listener_parked_ready(struct neap_ready *ready)
{
	struct socket_listener *listener =
		(struct socket_listener *)(void *)((char *)ready - offsetof(struct socket_listener, parked_ready));
	if (listener->base.ready)
		listener->base.ready(&listener->base);
}

static void listener_reap(struct neap_reap *reap)
{
	struct socket_listener *listener = (struct socket_listener *)(void *)((char *)reap - offsetof(struct socket_listener, reap));
	neap_reactor_detach(listener->base.reactor, &listener->dependent);
	neap_pool_give(&listener->room->listeners, listener);
}

static void listener_close(struct neap_listener *base)
{
	struct socket_listener *listener = listener_of(base);
	if (listener->closed)
		return;
	listener->closed = true;
	base->ready = NULL;
	int fd = listener->watch.fd;
	neap_watch_stop(base->reactor, &listener->watch);
	neap_ready_cancel(base->reactor, &listener->parked_ready);
	if (listener->parked >= 0)
		(void)close(listener->parked);
	listener->parked = -1;
	(void)shutdown(fd, SHUT_RDWR); /* a child's copy would go on listening */
	(void)close(fd);
	neap_reap_later(base->reactor, &listener->reap);
}

static int listener_local_address(struct neap_listener *base, struct neap_sockaddr *address_p)
{
	struct socket_listener *listener = listener_of(base);
	return listener->closed ? NEAP_ECLOSED : socket_local_address(listener->watch.fd, address_p);
}

static const struct neap_listener_ops listener_ops = {
	.accept = listener_accept,
	.want = listener_want,
	.close = listener_close,
	.local_address = listener_local_address,
};

static void listener_ready(struct neap_watch *watch, unsigned ready)
{
	struct socket_listener *listener = (struct socket_listener *)(void *)((char *)watch - offsetof(struct socket_listener, watch));
	(void)ready;
	if (listener->base.ready)
		listener->base.ready(&listener->base);
}

static int bind_and_listen(int fd, const struct neap_sockaddr *address, const struct neap_socket_options *options)
{
	int error = apply_options(fd, options);
	if (!error && options && options->reuse_address)
		error = set_number(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (!error && address->any.sa_family == AF_INET6) /* "::" serves IPv4 too, whatever the default of the system is */
		error = set_number(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	if (error)
		return error;
	if (bind(fd, &address->any, address->length) != 0)
		return -errno;
	return listen(fd, options && options->backlog > 0 ? options->backlog : BACKLOG_DEFAULT) == 0 ? 0 : -errno;
}

static struct neap_listener *net_listen(struct neap_net *net, struct neap_reactor *reactor, const struct neap_sockaddr *address,
                                        const struct neap_socket_options *options, int *error_p)
{
	(void)net;
	struct neap_socket_room *room = neap_socket_room(reactor);
	struct socket_listener *listener = room ? neap_pool_take(&room->listeners) : NULL;
	if (!listener) {
		*error_p = room ? -EMFILE : -ENOMEM;
		return NULL;
	}
	*listener = (struct socket_listener){.base = {.ops = &listener_ops, .reactor = reactor},
	                                     .reap = {.reap = listener_reap},
	                                     .dependent = {.what = "listener"},
	                                     .room = room,
	                                     .parked_ready = {.run = listener_parked_ready},
	                                     .parked = -1,
	                                     .same_host_reno = means_auto(options)};
	int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	int error = fd < 0 ? -errno : bind_and_listen(fd, address, options);
	if (!error && neap_watch_start(reactor, &listener->watch, fd, 0, listener_ready))
		error = -EMFILE;
	if (error) {
		if (fd >= 0)
			(void)close(fd);
		neap_pool_give(&room->listeners, listener);
		*error_p = error;
		return NULL;
	}
	neap_reactor_attach(reactor, &listener->dependent);
	return &listener->base;
}

/* --- the net ---------------------------------------------------------------------------------------------------------- */

static const struct neap_net sockets;

static void room_release(struct neap_resident *resident, struct neap_reactor *reactor)
{
	struct neap_socket_room *room = (struct neap_socket_room *)resident;
	if (room->resolver)
		neap_resolver_destroy(room->resolver);
	neap_pool_destroy(&room->streams);
	neap_pool_destroy(&room->listeners);
	neap_release(reactor, room, sizeof(*room));
}

struct neap_socket_room *neap_socket_room(struct neap_reactor *reactor)
{
	struct neap_resident *resident = neap_reactor_resident(reactor, &sockets);
	if (resident)
		return (struct neap_socket_room *)resident;
	struct neap_socket_room *room = neap_allocate(reactor, sizeof(*room));
	if (!room)
		return NULL;
	if (neap_pool_create(&room->streams, reactor, sizeof(struct socket_stream), neap_reactor_descriptors_max(reactor)))
		goto no_streams;
	if (neap_pool_create(&room->listeners, reactor, sizeof(struct socket_listener), LISTENERS_MAX))
		goto no_listeners;
	room->resident = (struct neap_resident){.key = &sockets, .release = room_release};
	neap_reactor_house(reactor, &room->resident);
	return room;
no_listeners:
	neap_pool_destroy(&room->streams);
no_streams:
	neap_release(reactor, room, sizeof(*room));
	return NULL;
}

static void net_forget_reactor(struct neap_net *net, struct neap_reactor *reactor)
{
	struct neap_socket_room *room = (struct neap_socket_room *)neap_reactor_resident(reactor, net);
	if (room && room->resolver) {
		neap_resolver_destroy(room->resolver);
		room->resolver = NULL;
	}
}

static const struct neap_net sockets = {
	.connect = net_connect,
	.connect_result = net_connect_result,
	.listen = net_listen,
	.resolve = neap_resolver_begin,
	.resolve_cancel = neap_resolver_cancel,
	.forget_reactor = net_forget_reactor,
};

struct neap_net *neap_net_sockets(void)
{
	return (struct neap_net *)(uintptr_t)&sockets; /* nobody writes to a net's table */
}
