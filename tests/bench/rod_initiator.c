/* The rod's asking side: a window of requests on one connection. */
#include "tests/bench/rod.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct client {
	struct rod *rod;
	int fd;
	bool read, blocked;
	struct rod_header *ring;
	uint64_t head, sent, tail; /* acknowledged, handed over, made */
	uint64_t sent_bytes;       /* of ring[sent] */
	uint64_t got_bytes;        /* of ring[head]'s answer */
	uint64_t status_bytes;     /* of a status that is not whole */
};

static ssize_t counted(struct client *client, ssize_t result)
{
	client->rod->calls++;
	return result;
}

static struct rod_header *at(struct client *client, uint64_t index)
{
	return &client->ring[index % ROD_RING];
}

static void make_requests(struct client *client)
{
	const struct rod_options *options = client->rod->options;
	while (client->tail - client->head < options->window) {
		struct rod_header *header = at(client, client->tail++);
		*header = (struct rod_header){.size = options->block, .address = rod_random_place(client->rod), .opcode = client->read};
	}
}

static uint64_t gather(struct client *client, struct iovec *vectors, int *count_p)
{
	uint64_t bytes = 0, skip = client->sent_bytes;
	int count = 0, limit = client->rod->options->naive ? 2 : ROD_VECTORS;
	for (uint64_t i = client->sent; i != client->tail && count + 2 <= limit && bytes < ROD_GATHER; i++) {
		struct rod_header *header = at(client, i);
		if (skip < ROD_HEADER) {
			vectors[count++] = (struct iovec){(char *)header + skip, ROD_HEADER - skip};
			bytes += ROD_HEADER - skip;
			skip = 0;
		} else {
			skip -= ROD_HEADER;
		}
		if (!client->read) {
			uint64_t length = header->size - skip;
			if (bytes + length > ROD_GATHER && bytes < ROD_GATHER)
				length = ROD_GATHER - bytes;
			vectors[count++] = (struct iovec){client->rod->memory + header->address + skip, length};
			bytes += length;
		}
		skip = 0;
	}
	*count_p = count;
	return bytes;
}

static void send_requests(struct client *client)
{
	struct iovec vectors[ROD_VECTORS];
	while (client->sent != client->tail && !client->blocked) {
		struct msghdr message = {.msg_iov = vectors};
		int count;
		uint64_t offered = gather(client, vectors, &count);
		message.msg_iovlen = (size_t)count;
		ssize_t sent = counted(client, sendmsg(client->fd, &message, MSG_NOSIGNAL));
		if (sent < 0 && errno != EAGAIN)
			rod_die("sendmsg");
		client->blocked = sent < 0 || (uint64_t)sent < offered;
		for (uint64_t left = sent < 0 ? 0 : (uint64_t)sent; left;) {
			uint64_t whole = ROD_HEADER + (client->read ? 0 : at(client, client->sent)->size) - client->sent_bytes;
			if (left < whole) {
				client->sent_bytes += left;
				break;
			}
			left -= whole;
			client->sent++;
			client->sent_bytes = 0;
		}
	}
}

static void receive_statuses(struct client *client)
{
	static char statuses[65536];
	ssize_t got;
	do {
		got = counted(client, recv(client->fd, statuses, client->rod->options->naive ? ROD_STATUS : sizeof statuses, 0));
		if (got == 0 || (got < 0 && errno != EAGAIN))
			rod_die("recv");
		if (got < 0)
			return;
		client->status_bytes += (uint64_t)got;
		client->head += client->status_bytes / ROD_STATUS;
		client->status_bytes %= ROD_STATUS;
	} while (client->rod->options->naive || got == (ssize_t)sizeof statuses);
}

/* [status][payload][status][payload]... of what is outstanding, straight to its place. */
static uint64_t scatter(struct client *client, struct iovec *vectors, int *count_p)
{
	static uint64_t statuses[ROD_VECTORS];
	uint64_t bytes = 0, skip = client->got_bytes;
	int count = 0, limit = client->rod->options->naive ? 2 : ROD_VECTORS;
	for (uint64_t i = client->head; i != client->sent && count + 2 <= limit && bytes < ROD_GATHER; i++) {
		struct rod_header *header = at(client, i);
		if (skip < ROD_STATUS) {
			vectors[count] = (struct iovec){(char *)&statuses[count] + skip, ROD_STATUS - skip};
			bytes += ROD_STATUS - skip;
			count++;
			skip = 0;
		} else {
			skip -= ROD_STATUS;
		}
		vectors[count++] = (struct iovec){client->rod->memory + header->address + skip, header->size - skip};
		bytes += header->size - skip;
		skip = 0;
	}
	*count_p = count;
	return bytes;
}

static void receive_payloads(struct client *client)
{
	struct iovec vectors[ROD_VECTORS];
	for (;;) {
		int count;
		uint64_t wanted = scatter(client, vectors, &count);
		if (!count)
			return;
		ssize_t got = counted(client, readv(client->fd, vectors, count));
		if (got == 0 || (got < 0 && errno != EAGAIN))
			rod_die("readv");
		for (uint64_t left = got < 0 ? 0 : (uint64_t)got; left;) {
			uint64_t whole = ROD_STATUS + at(client, client->head)->size - client->got_bytes;
			if (left < whole) {
				client->got_bytes += left;
				break;
			}
			left -= whole;
			client->head++;
			client->got_bytes = 0;
		}
		if (got < 0 || (uint64_t)got < wanted)
			return;
	}
}

void rod_initiator(struct rod *rod)
{
	struct client client = {.rod = rod, .read = rod->options->what[0] == 'r'};
	int poller = epoll_create1(EPOLL_CLOEXEC);
	rod_meet(rod);
	client.fd = rod_connect(rod);
	client.ring = calloc(ROD_RING, sizeof *client.ring);
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
	epoll_ctl(poller, EPOLL_CTL_ADD, client.fd, &event);
	rod->calls = 0;
	double cpu = rod_cpu(), began = rod_now(), end = began + rod->options->seconds;
	for (;;) {
		if (rod_now() < end)
			make_requests(&client);
		send_requests(&client);
		if (client.head == client.tail)
			break;
		if (counted(&client, epoll_wait(poller, &event, 1, rod->options->spin ? 0 : -1)) < 1)
			continue;
		if (event.events & EPOLLOUT)
			client.blocked = false;
		if (event.events & EPOLLIN)
			client.read ? receive_payloads(&client) : receive_statuses(&client);
	}
	rod->shared->elapsed = rod_now() - began;
	rod->shared->cpu[0] = rod_cpu() - cpu;
	rod->shared->calls[0] = rod->calls;
	rod->shared->requests = client.head;
	close(client.fd);
	close(poller);
	free(client.ring);
}
