/* The rod's serving side. */
#include "tests/bench/rod.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static const uint64_t statuses[8192]; /* zeroes: the rod's initiator does not look */

struct server {
	struct rod *rod;
	int fd, lowat;
	bool ended;
	char *place;   /* of the payload that is arriving */
	uint64_t rest; /* of it */
	uint64_t last_size;
	char *staging;
	uint64_t staged;                          /* bytes of a header that is not whole yet */
	uint64_t owed;                            /* acknowledgements */
	struct rod_header *reads;                 /* ring of READs to answer */
	uint64_t read_head, read_tail, read_sent; /* read_sent: bytes of the first one's answer that are out */
};

static ssize_t counted(struct server *server, ssize_t result)
{
	server->rod->calls++;
	return result;
}

static void acknowledge(struct server *server)
{
	while (server->owed) {
		uint64_t count = server->owed < 8192 ? server->owed : 8192;
		ssize_t sent = counted(server, send(server->fd, statuses, count * ROD_STATUS, MSG_NOSIGNAL));
		if (sent < 0) {
			if (errno == EAGAIN)
				continue;
			server->ended = true;
			return;
		}
		server->owed -= (uint64_t)sent / ROD_STATUS;
	}
}

/* Statuses and payloads of the READs that wait, in one gathered send. Returns the bytes offered. */
static uint64_t gather_reads(struct server *server, struct iovec *vectors, int *count_p)
{
	uint64_t bytes = 0, skip = server->read_sent;
	int count = 0, limit = server->rod->options->naive ? 2 : ROD_VECTORS;
	for (uint64_t i = server->read_head; i != server->read_tail && count + 2 <= limit && bytes < ROD_GATHER; i++) {
		const struct rod_header *read = &server->reads[i % ROD_RING];
		if (skip < ROD_STATUS) {
			vectors[count++] = (struct iovec){(char *)(uintptr_t)statuses + skip, ROD_STATUS - skip};
			bytes += ROD_STATUS - skip;
			skip = 0;
		} else {
			skip -= ROD_STATUS;
		}
		uint64_t length = read->size - skip;
		if (bytes + length > ROD_GATHER && !server->rod->options->naive)
			length = ROD_GATHER - bytes;
		vectors[count++] = (struct iovec){server->rod->memory + read->address + skip, length};
		bytes += length;
		skip = 0;
	}
	*count_p = count;
	return bytes;
}

static void answer_reads(struct server *server)
{
	struct iovec vectors[ROD_VECTORS];
	while (server->read_head != server->read_tail) {
		struct msghdr message = {.msg_iov = vectors};
		int count;
		uint64_t offered = gather_reads(server, vectors, &count);
		message.msg_iovlen = (size_t)count;
		ssize_t sent = counted(server, sendmsg(server->fd, &message, MSG_NOSIGNAL));
		if (sent < 0) {
			server->ended |= errno != EAGAIN;
			return;
		}
		for (uint64_t left = (uint64_t)sent; left;) {
			uint64_t whole = ROD_STATUS + server->reads[server->read_head % ROD_RING].size - server->read_sent;
			if (left < whole) {
				server->read_sent += left;
				break;
			}
			left -= whole;
			server->read_head++;
			server->read_sent = 0;
		}
		if ((uint64_t)sent < offered)
			return;
	}
}

static void take_header(struct server *server, const struct rod_header *header)
{
	if (header->opcode == 1) {
		server->reads[server->read_tail++ % ROD_RING] = *header;
		server->last_size = ROD_HEADER;
		return;
	}
	server->place = server->rod->memory + header->address;
	server->rest = server->last_size = header->size;
}

static void payload_arrived(struct server *server, uint64_t length)
{
	server->place += length;
	server->rest -= length;
	if (!server->rest)
		server->owed++;
}

/* What landed in the staging buffer: small requests, copied to their places. */
static void take_staged(struct server *server, char *bytes, uint64_t length)
{
	while (length >= ROD_HEADER) {
		struct rod_header header;
		memcpy(&header, bytes, ROD_HEADER);
		bytes += ROD_HEADER;
		length -= ROD_HEADER;
		take_header(server, &header);
		uint64_t here = server->rest < length ? server->rest : length;
		if (!server->rest)
			continue;
		memcpy(server->place, bytes, here);
		bytes += here;
		length -= here;
		payload_arrived(server, here);
		if (server->rest)
			break;
	}
	if (length && bytes != server->staging)
		memmove(server->staging, bytes, length);
	server->staged = length;
}

/* [rest of the payload][staging]: large payloads land in place, small ones come many a call. */
static void receive_best(struct server *server)
{
	for (;;) {
		uint64_t staging = server->last_size >= ROD_LARGE ? ROD_HEADER : ROD_STAGING, wanted = 0;
		struct iovec vectors[2];
		int count = 0;
		if (server->rest) {
			vectors[count++] = (struct iovec){server->place, server->rest};
			wanted += server->rest;
		}
		vectors[count++] = (struct iovec){server->staging + server->staged, staging - server->staged};
		wanted += staging - server->staged;
		ssize_t got = counted(server, readv(server->fd, vectors, count));
		if (got <= 0) {
			server->ended |= got == 0 || errno != EAGAIN;
			break;
		}
		uint64_t left = (uint64_t)got, direct = left < server->rest ? left : server->rest;
		if (direct)
			payload_arrived(server, direct);
		left -= direct;
		if (left)
			take_staged(server, server->staging, server->staged + left);
		acknowledge(server);
		answer_reads(server);
		if ((uint64_t)got < wanted)
			break;
	}
}

static void receive_naive(struct server *server)
{
	for (;;) {
		ssize_t got;
		if (server->rest)
			got = counted(server, recv(server->fd, server->place, server->rest, 0));
		else
			got = counted(server, recv(server->fd, server->staging + server->staged, ROD_HEADER - server->staged, 0));
		if (got <= 0) {
			server->ended |= got == 0 || errno != EAGAIN;
			return;
		}
		if (server->rest) {
			payload_arrived(server, (uint64_t)got);
		} else if ((server->staged += (uint64_t)got) == ROD_HEADER) {
			struct rod_header header;
			memcpy(&header, server->staging, ROD_HEADER);
			server->staged = 0;
			take_header(server, &header);
		}
		acknowledge(server);
		answer_reads(server);
	}
}

/* Large payloads: one wake-up for half a MiB instead of one for each segment. */
static void set_lowat(struct server *server)
{
	int wanted = server->rest == 0 ? 1 : server->rest < ROD_LOWAT ? (int)server->rest : ROD_LOWAT;
	if (wanted == server->lowat || server->last_size < ROD_LOWAT || server->rod->options->naive)
		return;
	counted(server, setsockopt(server->fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted));
	server->lowat = wanted;
}

void rod_target(struct rod *rod)
{
	struct server server = {.rod = rod, .lowat = 1};
	int listener = rod_listen(rod), poller = epoll_create1(EPOLL_CLOEXEC);
	rod_meet(rod);
	server.fd = rod_accept(rod, listener);
	server.staging = malloc(ROD_STAGING);
	server.reads = calloc(ROD_RING, sizeof *server.reads);
	memset(server.staging, 1, ROD_STAGING);
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
	epoll_ctl(poller, EPOLL_CTL_ADD, server.fd, &event);
	double cpu = rod_cpu();
	rod->calls = 0;
	while (!server.ended) {
		if (counted(&server, epoll_wait(poller, &event, 1, rod->options->spin ? 0 : -1)) < 1)
			continue;
		answer_reads(&server);
		if (event.events & (EPOLLIN | EPOLLHUP))
			rod->options->naive ? receive_naive(&server) : receive_best(&server);
		set_lowat(&server);
	}
	rod->shared->cpu[1] = rod_cpu() - cpu;
	rod->shared->calls[1] = rod->calls;
	close(server.fd);
	close(poller);
	free(server.staging);
	free(server.reads);
}
