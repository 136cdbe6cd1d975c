#include "tests/embed/host.h"

#include <neap/adapters/ev.h>
#include <stdlib.h>

const char *const host_name = "libev";
const bool host_is_foreign = true;

static struct ev_loop *loop;
static int running, last;
static struct neap_ev adapters[HOST_REACTORS_MAX];
static bool attached[HOST_REACTORS_MAX];

void host_begin(void)
{
	loop = ev_loop_new(EVBACKEND_EPOLL);
	running = 0;
	for (int i = 0; i < HOST_REACTORS_MAX; i++)
		attached[i] = false;
}

void host_end(void)
{
	ev_loop_destroy(loop);
}

static void on_ended(void *user, int result)
{
	attached[(struct neap_ev *)user - adapters] = false;
	last = result;
	if (--running == 0)
		ev_break(loop, EVBREAK_ALL);
}

void host_attach(struct neap_reactor *reactor, const struct neap_budget *budget)
{
	int i = attached[0] ? 1 : 0;
	attached[i] = true;
	running++;
	neap_ev_start(&adapters[i], loop, reactor, on_ended, &adapters[i]);
	adapters[i].budget = budget;
}

void host_detach(struct neap_reactor *reactor)
{
	for (int i = 0; i < HOST_REACTORS_MAX; i++) {
		if (!attached[i] || adapters[i].reactor != reactor)
			continue;
		neap_ev_stop(&adapters[i]);
		attached[i] = false;
		running--;
	}
}

static struct host_timer {
	ev_timer timer;
	void (*run)(void *user);
	void *user;
} timers[HOST_TIMERS_MAX];

static void on_timer(struct ev_loop *unused, ev_timer *timer, int events)
{
	struct host_timer *mine = timer->data;
	(void)unused, (void)events;
	mine->run(mine->user);
}

void host_after_ms(unsigned ms, void (*run)(void *user), void *user)
{
	struct host_timer *mine = timers;
	while (ev_is_active(&mine->timer))
		if (++mine == timers + HOST_TIMERS_MAX)
			abort();
	mine->run = run;
	mine->user = user;
	ev_timer_init(&mine->timer, on_timer, ms / 1e3, 0.);
	mine->timer.data = mine;
	ev_timer_start(loop, &mine->timer);
}

void host_break(void)
{
	ev_break(loop, EVBREAK_ALL);
}

int host_run(void)
{
	last = 0;
	ev_run(loop, 0);
	return last;
}
