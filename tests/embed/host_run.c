/* neap_reactor_run: the loop for those who have none. */
#include "tests/embed/host.h"

#include <stdlib.h>
#include <string.h>

const char *const host_name = "neap_reactor_run";
const bool host_is_foreign = false;

static struct neap_reactor *reactor;
static struct {
	struct neap_timer timer;
	void (*run)(void *user);
	void *user;
} timers[HOST_TIMERS_MAX];
static unsigned timer_count;

void host_begin(void)
{
	memset(timers, 0, sizeof(timers));
	timer_count = 0;
}

void host_end(void)
{
	reactor = NULL;
}

void host_attach(struct neap_reactor *attached, const struct neap_budget *budget)
{
	(void)budget;
	reactor = attached;
}

void host_detach(struct neap_reactor *detached)
{
	(void)detached;
	abort();
}

void host_break(void)
{
	abort();
}

static void fire(struct neap_timer *timer, void *user)
{
	unsigned i = *(unsigned *)user;
	(void)timer;
	free(user);
	timers[i].run(timers[i].user);
}

void host_after_ms(unsigned ms, void (*run)(void *user), void *user)
{
	unsigned *i = malloc(sizeof(*i));
	if (!i || timer_count == HOST_TIMERS_MAX)
		abort();
	*i = timer_count++;
	timers[*i].run = run;
	timers[*i].user = user;
	neap_timer_start(reactor, &timers[*i].timer, neap_reactor_now_ns(reactor) + ms * UINT64_C(1000000), fire, i);
}

int host_run(void)
{
	int error = neap_reactor_run(reactor);
	return error ? error : NEAP_RUN_STOPPED;
}
