#include "tests/support/raw_peer.h"
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void set(int fd, int level, int option, int value)
{
	ck_assert_int_eq(setsockopt(fd, level, option, &value, sizeof value), 0);
}

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

int raw_listen(uint16_t *port_p, int backlog, int receive_buffer_bytes)
{
	struct sockaddr_in address = loopback(0);
	socklen_t length = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	if (receive_buffer_bytes)
		set(fd, SOL_SOCKET, SO_RCVBUF, receive_buffer_bytes);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	ck_assert_int_eq(listen(fd, backlog), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	*port_p = ntohs(address.sin_port);
	return fd;
}

static void begin(struct raw_peer *peer, int fd)
{
	*peer = (struct raw_peer){.fd = fd};
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

struct waiting {
	int listener, fd;
};

static bool try_accept(void *user)
{
	struct waiting *waiting = user;
	waiting->fd = accept4(waiting->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	return waiting->fd >= 0;
}

void raw_accept(struct neap_reactor *reactor, int listener, struct raw_peer *peer)
{
	struct waiting waiting = {listener, -1};
	ck_assert_msg(drive_all_until(&reactor, 1, try_accept, &waiting, 5000), "no connection came");
	begin(peer, waiting.fd);
}

void raw_connect(struct raw_peer *peer, uint16_t port, int receive_buffer_bytes)
{
	struct sockaddr_in address = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		ck_abort_msg("socket: %s", strerror(errno));
	if (receive_buffer_bytes)
		set(fd, SOL_SOCKET, SO_RCVBUF, receive_buffer_bytes);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 && errno != EINPROGRESS)
		ck_abort_msg("connect: %s", strerror(errno));
	begin(peer, fd);
}

void raw_send(struct raw_peer *peer, const void *bytes, size_t length)
{
	ssize_t n = send(peer->fd, bytes, length, MSG_NOSIGNAL);
	if (n != (ssize_t)length)
		ck_abort_msg("sent %zd of %zu: %s", n, length, n < 0 ? strerror(errno) : "short");
}

void raw_take(struct raw_peer *peer)
{
	if (!peer->bytes)
		peer->bytes = malloc(RAW_BYTES_MAX);
	while (!peer->ended && !peer->reset && peer->have < RAW_BYTES_MAX) {
		ssize_t n = recv(peer->fd, peer->bytes + peer->have, RAW_BYTES_MAX - peer->have, 0);
		if (n > 0)
			peer->have += (size_t)n;
		else if (n == 0)
			peer->ended = true;
		else if (errno == EAGAIN)
			return;
		else
			peer->reset = true;
	}
}

static bool has_enough(void *user)
{
	struct raw_peer *peer = user;
	raw_take(peer);
	return peer->have >= peer->wanted || peer->ended || peer->reset;
}

bool raw_await(struct neap_reactor *reactor, struct raw_peer *peer, size_t bytes, unsigned limit_ms)
{
	peer->wanted = bytes;
	(void)drive_all_until(&reactor, 1, has_enough, peer, limit_ms);
	return peer->have >= bytes;
}

bool raw_await_end(struct neap_reactor *reactor, struct raw_peer *peer, unsigned limit_ms)
{
	peer->wanted = SIZE_MAX;
	return drive_all_until(&reactor, 1, has_enough, peer, limit_ms);
}

void raw_close(struct raw_peer *peer)
{
	if (peer->fd >= 0)
		close(peer->fd);
	free(peer->bytes);
	*peer = (struct raw_peer){.fd = -1};
}

void raw_reset(struct raw_peer *peer)
{
	struct linger linger = {.l_onoff = 1};
	ck_assert_int_eq(setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
	raw_close(peer);
}

unsigned long raw_descriptors(void)
{
	struct rlimit limit;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	(void)getrlimit(RLIMIT_NOFILE, &limit);
	return (unsigned long)limit.rlim_cur;
}
