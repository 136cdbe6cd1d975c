#include "tests/support/netns.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static bool skip(const char *what)
{
	printf("skipped: %s: %s\n", what, strerror(errno));
	return false;
}

bool netns_write(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	if (!file)
		return skip(path);
	bool written = fputs(text, file) >= 0;
	return (fclose(file) == 0 && written) || skip(path);
}

static bool lay_over(const char *path, const char *text)
{
	char name[] = "/tmp/neap-test-XXXXXX";
	int fd = mkstemp(name);
	if (fd < 0)
		return skip(name);
	bool done = write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, 0644) == 0 &&
	            mount(name, path, NULL, MS_BIND, NULL) == 0;
	close(fd);
	if (!done)
		skip(path);
	unlink(name);
	return done;
}

static bool loopback_up(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
	if (!up)
		skip("lo up");
	if (fd >= 0)
		close(fd);
	return up;
}

bool netns_enter(const char *hosts, const char *resolv_conf)
{
	if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0)
		return skip("a network of its own (needs root)");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return skip("private mounts");
	return loopback_up() && (!hosts || lay_over("/etc/hosts", hosts)) && (!resolv_conf || lay_over("/etc/resolv.conf", resolv_conf));
}

/* --- the name server ------------------------------------------------------------------------------------------------------ */

#define MESSAGE_MAX 1500

static int bound_socket(int type)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int one = 1, fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_ge(fd, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	ck_assert_msg(bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0, "port 53: %s", strerror(errno));
	return fd;
}

/* "\4good\4test\0" as it stands in a question. */
static bool asks_for(const unsigned char *question, const char *label)
{
	return question[0] == strlen(label) && strncasecmp((const char *)question + 1, label, question[0]) == 0;
}

static size_t add_address(unsigned char *message, size_t length, unsigned char third, unsigned char fourth)
{
	/* a pointer to the question's name, type A, class IN, TTL 60, 4 bytes */
	const unsigned char record[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, third, 0, fourth};
	memcpy(message + length, record, sizeof(record));
	message[7]++;
	return length + sizeof(record);
}

/* Turns a question into its answer in place. 0: none. */
static size_t answer(unsigned char *message, size_t length, bool over_tcp)
{
	if (length < 18 || length > 512)
		return 0;
	const unsigned char *question = message + 12;
	size_t name = 0;
	while (12 + name < length && question[name] != 0)
		name += question[name] + 1u;
	size_t end = 12 + name + 5;
	if (end > length || asks_for(question, "silent"))
		return 0;
	bool asks_a = message[end - 3] == 1;
	message[2] |= 0x80; /* an answer */
	message[3] = 0;
	memset(message + 6, 0, 6);
	if (asks_for(question, "good"))
		return asks_a ? add_address(message, end, 0, 1) : end;
	if (!asks_for(question, "big")) {
		message[3] = 3; /* no such name */
		return end;
	}
	if (!over_tcp) {
		message[2] |= 2; /* truncated */
		return end;
	}
	for (unsigned char i = 0; asks_a && i < 30; i++)
		end = add_address(message, end, 1, (unsigned char)(i + 1));
	return end;
}

static void serve_udp(struct name_server *server)
{
	unsigned char message[MESSAGE_MAX];
	struct sockaddr_in peer;
	socklen_t peer_length = sizeof(peer);
	ssize_t got = recvfrom(server->udp, message, sizeof(message), 0, (struct sockaddr *)&peer, &peer_length);
	size_t length = got > 0 ? answer(message, (size_t)got, false) : 0;
	if (length)
		(void)sendto(server->udp, message, length, 0, (const struct sockaddr *)&peer, peer_length);
}

/* The descriptor is non-blocking, because tests look whether all of the process are; the thread may wait. */
static bool receive_all(int fd, unsigned char *bytes, size_t length)
{
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	for (size_t have = 0; have < length;) {
		ssize_t got = recv(fd, bytes + have, length - have, 0);
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
			return false;
		if (got < 0 && poll(&readable, 1, 10000) == 0)
			return false;
		have += got > 0 ? (size_t)got : 0;
	}
	return true;
}

static void serve_tcp(struct name_server *server)
{
	unsigned char message[MESSAGE_MAX + 2];
	int fd = accept4(server->tcp, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	/* c-ares asks for both families over one connection */
	while (receive_all(fd, message, 2)) {
		size_t length = (size_t)message[0] << 8 | message[1];
		if (length > MESSAGE_MAX || !receive_all(fd, message + 2, length))
			break;
		length = answer(message + 2, length, true);
		if (!length)
			break;
		message[0] = (unsigned char)(length >> 8);
		message[1] = (unsigned char)length;
		if (send(fd, message, length + 2, MSG_NOSIGNAL) < 0)
			break;
		atomic_fetch_add(&server->tcp_answers, 1);
	}
	close(fd);
}

static void *serve(void *user)
{
	struct name_server *server = user;
	struct pollfd fds[] = {{.fd = server->udp, .events = POLLIN}, {.fd = server->tcp, .events = POLLIN},
	                       {.fd = server->stop[0], .events = POLLIN}};
	while (poll(fds, 3, -1) > 0 && !fds[2].revents) {
		if (fds[0].revents)
			serve_udp(server);
		if (fds[1].revents)
			serve_tcp(server);
	}
	return NULL;
}

void name_server_start(struct name_server *server)
{
	server->udp = bound_socket(SOCK_DGRAM);
	server->tcp = bound_socket(SOCK_STREAM);
	atomic_init(&server->tcp_answers, 0);
	ck_assert_int_eq(listen(server->tcp, 16), 0);
	ck_assert_int_eq(pipe2(server->stop, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert_int_eq(pthread_create(&server->thread, NULL, serve, server), 0);
}

void name_server_stop(struct name_server *server)
{
	close(server->stop[1]);
	pthread_join(server->thread, NULL);
	close(server->stop[0]);
	close(server->udp);
	close(server->tcp);
}

unsigned name_server_tcp_answers(struct name_server *server)
{
	return atomic_load(&server->tcp_answers);
}
