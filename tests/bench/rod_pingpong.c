/* The rod's latency: the bytes of one request and of its answer, back and forth between two processes, with nothing around. And
 * what a copy costs without any socket. */
#include "tests/bench/rod.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SAMPLES 4000000u

/* Waits for `length` bytes. False when the other side has closed. */
static bool receive(struct rod *rod, int poller, int fd, char *bytes, uint64_t length)
{
	for (uint64_t have = 0; have < length;) {
		struct epoll_event event;
		if (!rod->options->spin) {
			rod->calls++;
			epoll_wait(poller, &event, 1, -1);
		}
		ssize_t got = recv(fd, bytes + have, length - have, 0);
		rod->calls++;
		if (got == 0 || (got < 0 && errno != EAGAIN))
			return false;
		have += got < 0 ? 0 : (uint64_t)got;
	}
	return true;
}

static void transmit(struct rod *rod, int fd, const char *bytes, uint64_t length)
{
	for (uint64_t done = 0; done < length;) {
		ssize_t sent = send(fd, bytes + done, length - done, MSG_NOSIGNAL);
		rod->calls++;
		if (sent < 0 && errno != EAGAIN)
			rod_die("send");
		done += sent < 0 ? 0 : (uint64_t)sent;
	}
}

static int poll_readable(int fd)
{
	int poller = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN};
	epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
	return poller;
}

void rod_pong(struct rod *rod)
{
	int listener = rod_listen(rod);
	rod_meet(rod);
	int fd = rod_accept(rod, listener), poller = poll_readable(fd);
	double cpu = rod_cpu();
	rod->calls = 0;
	while (receive(rod, poller, fd, rod->memory, ROD_HEADER + rod->options->block))
		transmit(rod, fd, rod->memory, ROD_STATUS);
	rod->shared->cpu[1] = rod_cpu() - cpu;
	rod->shared->calls[1] = rod->calls;
	close(fd);
	close(poller);
}

static int by_time(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

void rod_ping(struct rod *rod)
{
	float *samples = malloc(SAMPLES * sizeof *samples);
	uint64_t count = 0;
	char status[ROD_STATUS];
	rod_meet(rod);
	int fd = rod_connect(rod), poller = poll_readable(fd);
	if (!samples)
		rod_die("malloc");
	rod->calls = 0;
	double cpu = rod_cpu(), began = rod_now(), end = began + rod->options->seconds, before = began;
	while (before < end && count < SAMPLES) {
		transmit(rod, fd, rod->memory, ROD_HEADER + rod->options->block);
		if (!receive(rod, poller, fd, status, ROD_STATUS))
			rod_die("recv");
		double now = rod_now();
		samples[count++] = (float)((now - before) * 1e6);
		before = now;
	}
	rod->shared->elapsed = rod_now() - began;
	rod->shared->cpu[0] = rod_cpu() - cpu;
	rod->shared->calls[0] = rod->calls;
	rod->shared->requests = count;
	qsort(samples, count, sizeof *samples, by_time);
	rod->shared->p50_us = (double)samples[count / 2];
	rod->shared->p99_us = (double)samples[count * 99 / 100];
	free(samples);
	close(fd);
	close(poller);
}

void rod_memcpy(struct rod *rod)
{
	const struct rod_options *options = rod->options;
	rod->random = 88172645463325252u;
	double cpu = rod_cpu(), began = rod_now(), end = began + options->seconds, now;
	do {
		for (uint64_t done = 0; done < (1u << 16); done += options->block) {
			memcpy(rod->second + rod_random_place(rod), rod->memory + rod_random_place(rod), options->block);
			rod->shared->requests++;
		}
		now = rod_now();
	} while (now < end);
	rod->shared->elapsed = now - began;
	rod->shared->cpu[0] = rod_cpu() - cpu;
}
