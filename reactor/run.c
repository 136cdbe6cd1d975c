/* A loop for those who have none: the only place in the library that sleeps, in the reactor's own epoll set. */
#include "reactor/inside.h"
#include <errno.h>

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)
#define HAVE_PWAIT2 1
#else
#define HAVE_PWAIT2 0
#endif

#define NS_PER_MS 1000000u
#define SLEEP_MS_MAX 3600000u

/* `sleep_ns` UINT64_MAX: until something happens. */
static int sleep_in_set(struct neap_reactor *reactor, uint64_t sleep_ns)
{
	reactor->stats.system_calls++;
#if HAVE_PWAIT2
	if (!reactor->no_pwait2 && sleep_ns != 0 && sleep_ns != UINT64_MAX) {
		struct timespec timeout = {(time_t)(sleep_ns / 1000000000u), (long)(sleep_ns % 1000000000u)};
		int count = epoll_pwait2(reactor->epoll_fd, reactor->batch, NEAP_BATCH_MAX, &timeout, NULL);
		if (count >= 0 || errno != ENOSYS)
			return count;
		reactor->no_pwait2 = true;
	}
#endif
	/* Rounded up: waking early would only mean sleeping again. */
	uint64_t ms = sleep_ns / NS_PER_MS + (sleep_ns % NS_PER_MS != 0);
	int timeout_ms = sleep_ns == UINT64_MAX ? -1 : (int)(ms < SLEEP_MS_MAX ? ms : SLEEP_MS_MAX);
	return epoll_wait(reactor->epoll_fd, reactor->batch, NEAP_BATCH_MAX, timeout_ms);
}

/* What the sleep returns is the next turn's batch: no second call is needed to learn what is ready. */
static void next_batch(struct neap_reactor *reactor, int answer)
{
	if (reactor->batch_at < reactor->batch_count)
		return;
	uint64_t sleep_ns = 0;
	if (answer == NEAP_RUN_ARMED) {
		uint64_t deadline_ns = neap_reactor_deadline_ns(reactor);
		uint64_t now_ns = reactor->turn.unit_ns; /* the last look at the clock, after the last handler */
		if (deadline_ns == UINT64_MAX)
			sleep_ns = UINT64_MAX;
		else if (deadline_ns > now_ns)
			sleep_ns = deadline_ns - now_ns;
	}
	int count = sleep_in_set(reactor, sleep_ns);
	reactor->batch_at = 0;
	reactor->batch_count = count > 0 ? (uint32_t)count : 0; /* interrupted: no event */
	reactor->batch_given = true;
}

int neap_reactor_run(struct neap_reactor *reactor)
{
	int answer = neap_turn_may_begin(reactor);
	if (answer)
		return answer;
	if (reactor->simulated)
		return NEAP_ENOTSUP;
	reactor->own_loop = true;
	for (;;) {
		uint64_t now_ns = neap_reactor_refresh(reactor);
		answer = neap_turn_run(reactor, now_ns, now_ns, NULL);
		if (answer == NEAP_RUN_STOPPED)
			break;
		next_batch(reactor, answer);
	}
	reactor->own_loop = false;
	return NEAP_OK;
}
