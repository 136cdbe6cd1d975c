/* A private network and private /etc files for one forked test. Needs root; without it the caller skips. */
#ifndef SUPPORT_NETNS_H
#define SUPPORT_NETNS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Moves this process into a network namespace of its own with only lo up, and, when given, puts these texts over /etc/hosts and
 * /etc/resolv.conf in a mount namespace of its own. False with a line "skipped: reason" when that is not allowed. Call it before
 * threads and reactors are made. */
bool netns_enter(const char *hosts, const char *resolv_conf);

/* Writes one file, as under /proc/sys. False with a line "skipped: reason" on failure. */
bool netns_write(const char *path, const char *text);

/* A name server at 127.0.0.1:53 on a thread: good.test is 127.0.0.1, big.test has 30 addresses and comes over TCP only,
 * silent.test gets no answer, anything else does not exist. */
struct name_server {
	pthread_t thread;
	int udp, tcp, stop[2];
	atomic_uint tcp_answers;
};
void name_server_start(struct name_server *server);
void name_server_stop(struct name_server *server);
unsigned name_server_tcp_answers(struct name_server *server);

#endif
