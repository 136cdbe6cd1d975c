#include "tests/support/session_peer.h"
#include "tests/support/drive.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <unistd.h>

static void connect_socket(struct peer *peer)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(neap_tcp_server_port(peer->rig->server)),
	                              .sin_addr = {htonl(INADDR_LOOPBACK)}};
	peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(peer->fd, 0);
	int error = connect(peer->fd, (struct sockaddr *)&address, sizeof address);
	ck_assert(error == 0 || errno == EINPROGRESS);
}

void peer_open(struct peer *peer, struct session_rig *rig)
{
	peer->rig = rig;
	peer->fd = -1;
	if (rig->kind == SESSION_RIG_SOCKETS) {
		connect_socket(peer);
		return;
	}
	memory_pair_open(&peer->pair, rig->reactor, 64 * 1024);
	(void)neap_tcp_server_serve(rig->server, &peer->pair.ends[0].base);
}

static ssize_t try_write(struct peer *peer, const void *bytes, size_t length)
{
	if (peer->fd < 0)
		return memory_end_write(&peer->pair.ends[1], bytes, length);
	ssize_t n = send(peer->fd, bytes, length, MSG_NOSIGNAL);
	return n < 0 ? (errno == ENOTCONN ? -EAGAIN : -errno) : n;
}

static ssize_t try_read(struct peer *peer, void *bytes, size_t length)
{
	if (peer->fd < 0)
		return memory_end_read(&peer->pair.ends[1], bytes, length);
	ssize_t n = recv(peer->fd, bytes, length, 0);
	return n < 0 ? (errno == ENOTCONN ? -EAGAIN : -errno) : n;
}

/* One round of the reactor, and a sleep until something happens to either side. */
static void wait_a_bit(struct peer *peer, short events, uint64_t limit_ns)
{
	ck_assert_msg(drive_now_ns() < limit_ns, "nothing more came or went in time");
	session_rig_settle(peer->rig);
	if (peer->fd < 0)
		return;
	struct pollfd fds[2] = {{.fd = peer->fd, .events = events}, {.fd = neap_reactor_fd(peer->rig->reactor), .events = POLLIN}};
	(void)poll(fds, 2, 20);
}

static uint64_t limit_from_now(void)
{
	return drive_now_ns() + PEER_WAIT_MS * UINT64_C(1000000);
}

size_t peer_send_some(struct peer *peer, const void *bytes, size_t length)
{
	ssize_t n = try_write(peer, bytes, length);
	ck_assert_msg(n >= 0 || n == -EAGAIN, "sending failed: %zd", n);
	return n < 0 ? 0 : (size_t)n;
}

void peer_send(struct peer *peer, const void *bytes, size_t length)
{
	uint64_t limit_ns = limit_from_now();
	for (size_t at = 0; at < length;) {
		size_t n = peer_send_some(peer, (const unsigned char *)bytes + at, length - at);
		at += n;
		if (n == 0)
			wait_a_bit(peer, POLLOUT, limit_ns);
	}
	session_rig_settle(peer->rig);
}

void peer_take(struct peer *peer, void *bytes, size_t length)
{
	uint64_t limit_ns = limit_from_now();
	for (size_t at = 0; at < length;) {
		ssize_t n = try_read(peer, (unsigned char *)bytes + at, length - at);
		ck_assert_msg(n > 0 || n == -EAGAIN, "%zd instead of byte %zu of %zu", n, at, length);
		if (n > 0)
			at += (size_t)n;
		else
			wait_a_bit(peer, POLLIN, limit_ns);
	}
}

void peer_expect(struct peer *peer, const void *bytes, size_t length)
{
	static unsigned char got[16 * 1024 * 1024];
	ck_assert_uint_le(length, sizeof got);
	peer_take(peer, got, length);
	for (size_t i = 0; i < length; i++)
		if (got[i] != ((const unsigned char *)bytes)[i])
			ck_abort_msg("byte %zu of %zu is %02x instead of %02x", i, length, got[i], ((const unsigned char *)bytes)[i]);
}

void peer_expect_silence(struct peer *peer)
{
	unsigned char byte;
	session_rig_settle(peer->rig);
	ssize_t n = try_read(peer, &byte, 1);
	ck_assert_msg(n == -EAGAIN, "%zd instead of silence", n);
}

enum peer_end peer_wait_end(struct peer *peer)
{
	unsigned char byte;
	uint64_t limit_ns = limit_from_now();
	for (;;) {
		ssize_t n = try_read(peer, &byte, 1);
		if (n == 0)
			return PEER_FIN;
		if (n == -ECONNRESET || n == -EPIPE)
			return PEER_RESET;
		ck_assert_msg(n == -EAGAIN, "a byte %02x (%zd) instead of the end", byte, n);
		if (peer->fd < 0)
			session_rig_pass(peer->rig, 1);
		wait_a_bit(peer, POLLIN, limit_ns);
	}
}

void peer_half_close(struct peer *peer)
{
	if (peer->fd < 0)
		peer->pair.ends[1].base.ops->shutdown_write(&peer->pair.ends[1].base);
	else
		shutdown(peer->fd, SHUT_WR);
	session_rig_settle(peer->rig);
}

void peer_close(struct peer *peer, bool abortive)
{
	if (peer->fd >= 0) {
		struct linger linger = {.l_onoff = abortive, .l_linger = 0};
		setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
		close(peer->fd);
		session_rig_settle(peer->rig);
		return;
	}
	neap_stream_close(&peer->pair.ends[1].base, abortive);
	session_rig_settle(peer->rig);
	if (!peer->pair.ends[0].closed) /* a session that still has something to say to us: let it find out */
		session_rig_pass(peer->rig, 1000);
	ck_assert(peer->pair.ends[0].closed);
	memory_pair_release(&peer->pair);
}

uint32_t peer_hello_code(struct peer *peer, const struct wire_hello *hello)
{
	unsigned char bytes[96], reply[40];
	struct wire_bytes w = {.at = bytes, .size = sizeof bytes};
	wire_hello(&w, hello);
	peer_send(peer, bytes, w.length);
	peer_take(peer, reply, sizeof reply);
	ck_assert_mem_eq(reply, "NEAP", 4);
	ck_assert_mem_eq(reply + 8, peer->rig->view.instance, 16);
	return reply[4];
}

uint64_t peer_hello(struct peer *peer, const char *client, uint64_t lane, uint64_t fence, uint32_t flags)
{
	unsigned char bytes[96], reply[40];
	struct wire_bytes w = {.at = bytes, .size = sizeof bytes};
	wire_hello(&w, &(struct wire_hello){client, (const char *)peer->rig->view.instance, lane, fence, 1, 0, flags});
	peer_send(peer, bytes, w.length);
	peer_take(peer, reply, sizeof reply);
	ck_assert_mem_eq(reply, "NEAP\0\0\0\0", 8);
	ck_assert_mem_eq(reply + 8, peer->rig->view.instance, 16);
	ck_assert_mem_eq(reply + 24, "\1\0\0\0", 4);
	uint64_t fenced;
	memcpy(&fenced, reply + 32, 8);
	return fenced;
}

void peer_expect_words(struct peer *peer, uint32_t code, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		peer_expect_word(peer, code);
}

void peer_expect_word(struct peer *peer, uint32_t code)
{
	unsigned char word[8] = {(unsigned char)code, 0, 'N', 'P', 0, 0, 0, 0}, got[8];
	peer_take(peer, got, 8);
	ck_assert_msg(memcmp(got, word, 8) == 0, "word %02x%02x%02x%02x instead of code %u", got[0], got[1], got[2], got[3], code);
}
