/* Neap in a loop of yours around epoll_wait. docs/EMBEDDING.md
 *
 *     neap_epoll_start(&host, reactor, epoll_fd, NULL);
 *     while (host.last != NEAP_RUN_STOPPED) {
 *         int n = epoll_wait(epoll_fd, events, 64, neap_epoll_timeout_ms(&host, -1));
 *         ... your own events; skip the one whose data.ptr is &host ...
 *         neap_epoll_run(&host);
 *     }
 *     neap_epoll_stop(&host); */
#ifndef NEAP_ADAPTERS_EPOLL_H
#define NEAP_ADAPTERS_EPOLL_H

#include <errno.h>
#include <neap/reactor.h>
#include <sys/epoll.h>
#include <time.h>

struct neap_epoll {
	struct neap_reactor *reactor;
	const struct neap_budget *budget; /* of each turn; NULL: the default */
	int epoll_fd;
	int last; /* what the last turn answered: enum neap_run, or an error, after which it runs no more */
};

/* Watches the reactor in `epoll_fd` with data.ptr = host. 0, or NEAP_ESOCKET with errno. */
static inline int neap_epoll_start(struct neap_epoll *host, struct neap_reactor *reactor, int epoll_fd,
                                   const struct neap_budget *budget)
{
	struct epoll_event event;
	event.events = EPOLLIN; /* level-triggered: with EPOLLET what a turn left over would not be reported again */
	event.data.ptr = host;
	host->reactor = reactor;
	host->budget = budget;
	host->epoll_fd = epoll_fd;
	host->last = NEAP_RUN_MORE;
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, neap_reactor_fd(reactor), &event) == 0 ? NEAP_OK : NEAP_ESOCKET;
}

/* How long epoll_wait may sleep: `own_ms` (-1: for ever) or less. Rounded up, so that a deadline is not met by a spin. */
static inline int neap_epoll_timeout_ms(const struct neap_epoll *host, int own_ms)
{
	uint64_t deadline_ns = host->last == NEAP_RUN_MORE ? 0 : neap_reactor_deadline_ns(host->reactor);
	struct timespec now;
	if (host->last < 0 || deadline_ns == UINT64_MAX)
		return own_ms;
	clock_gettime(CLOCK_MONOTONIC, &now);
	uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	uint64_t left_ms = deadline_ns > now_ns ? (deadline_ns - now_ns + 999999) / 1000000 : 0;
	if (own_ms >= 0 && (uint64_t)own_ms < left_ms)
		return own_ms;
	return left_ms < 0x7fffffff ? (int)left_ms : 0x7fffffff;
}

/* One turn. Call it after each epoll_wait, whatever woke it: without work it costs one system call. */
static inline int neap_epoll_run(struct neap_epoll *host)
{
	if (host->last < 0 || host->last == NEAP_RUN_STOPPED)
		return host->last;
	int result = neap_reactor_run_once(host->reactor, host->budget);
	if (host->last != NEAP_RUN_STOPPED) /* neap_epoll_stop in a callback */
		host->last = result;
	return host->last;
}

/* Before the reactor is destroyed. Allowed in callbacks. */
static inline void neap_epoll_stop(struct neap_epoll *host)
{
	(void)epoll_ctl(host->epoll_fd, EPOLL_CTL_DEL, neap_reactor_fd(host->reactor), NULL);
	host->last = NEAP_RUN_STOPPED;
}

#endif
