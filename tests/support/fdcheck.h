/* Descriptors must not block and must not survive exec: a walk over /proc/self/fdinfo. */
#ifndef SUPPORT_FDCHECK_H
#define SUPPORT_FDCHECK_H

#include <stddef.h>

#define FDCHECK_MAX 65536

struct fdcheck {
	unsigned char inherited[FDCHECK_MAX / 8]; /* open before the test began: not ours to judge */
};

/* Remembers what is open now (standard streams, the pipes of Check). */
void fdcheck_begin(struct fdcheck *check);

/* Looks at every descriptor opened since: sockets, pipes, eventfds, timerfds and verbs events must have O_NONBLOCK, these and epoll
 * sets and inotify must have O_CLOEXEC. Returns the number of offenders; `what` names the first ones. `opened_p` (may be NULL) gets
 * the number of descriptors opened since. */
int fdcheck_offenders(const struct fdcheck *check, char *what, size_t size, int *opened_p);

/* Fails the running Check test when there is an offender. */
void fdcheck_assert(const struct fdcheck *check);

/* Descriptors open now in this process: for leak checks. */
int fdcheck_count(void);

#endif
