/* Neap in a libev loop. docs/EMBEDDING.md
 *
 *     neap_ev_start(&host, loop, reactor, ended, user);
 *     ev_run(loop, 0);
 *
 * Set neap_reactor_options.host_keeps_deadline: the adapter keeps it, and the reactor saves its timerfd. */
#ifndef NEAP_ADAPTERS_EV_H
#define NEAP_ADAPTERS_EV_H

#include <ev.h>
#include <neap/reactor.h>
#include <time.h>

struct neap_ev {
	struct neap_reactor *reactor;
	struct ev_loop *loop;
	const struct neap_budget *budget; /* of each turn; NULL: the default. May be set at any time */
	void (*ended)(void *user, int result); /* once, when the reactor has STOPPED or failed; the adapter has stopped. May be NULL */
	void *user;
	ev_io io;
	ev_timer timer;
};

/* Before the reactor is destroyed. Allowed in callbacks. */
static inline void neap_ev_stop(struct neap_ev *host)
{
	ev_io_stop(host->loop, &host->io);
	ev_timer_stop(host->loop, &host->timer);
}

static inline void neap_ev_turn(struct neap_ev *host)
{
	struct timespec now;
	int result = neap_reactor_run_once(host->reactor, host->budget);
	if (!ev_is_active(&host->io)) /* neap_ev_stop in a callback */
		return;
	ev_timer_stop(host->loop, &host->timer);
	if (result < 0 || result == NEAP_RUN_STOPPED) {
		neap_ev_stop(host);
		if (host->ended)
			host->ended(host->user, result);
		return;
	}
	uint64_t deadline_ns = result == NEAP_RUN_MORE ? 0 : neap_reactor_deadline_ns(host->reactor);
	if (deadline_ns == UINT64_MAX)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	double left = ((double)deadline_ns - (double)now.tv_sec * 1e9 - (double)now.tv_nsec) / 1e9;
	ev_timer_set(&host->timer, left > 0. ? left : 0., 0.);
	ev_timer_start(host->loop, &host->timer);
}

static inline void neap_ev_on_io(struct ev_loop *loop, ev_io *io, int events)
{
	(void)loop, (void)events;
	neap_ev_turn((struct neap_ev *)io->data);
}

static inline void neap_ev_on_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
	(void)loop, (void)events;
	neap_ev_turn((struct neap_ev *)timer->data);
}

static inline void neap_ev_start(struct neap_ev *host, struct ev_loop *loop, struct neap_reactor *reactor,
                                 void (*ended)(void *user, int result), void *user)
{
	host->reactor = reactor;
	host->loop = loop;
	host->budget = NULL;
	host->ended = ended;
	host->user = user;
	ev_io_init(&host->io, neap_ev_on_io, neap_reactor_fd(reactor), EV_READ);
	ev_timer_init(&host->timer, neap_ev_on_timer, 0., 0.); /* the first turn */
	host->io.data = host->timer.data = host;
	ev_io_start(loop, &host->io);
	ev_timer_start(loop, &host->timer);
}

#endif
