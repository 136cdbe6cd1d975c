/* A plain loop around epoll_wait, as an application without a library has it. */
#include "tests/embed/host.h"

#include <neap/adapters/epoll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const host_name = "epoll";
const bool host_is_foreign = true;

static int epoll_fd;
static bool broken;
static int running;
static struct neap_epoll adapters[HOST_REACTORS_MAX];
static bool attached[HOST_REACTORS_MAX];
static struct {
	uint64_t due_ns;
	void (*run)(void *user);
	void *user;
} timers[HOST_TIMERS_MAX];

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void host_begin(void)
{
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	memset(timers, 0, sizeof(timers));
	memset(attached, 0, sizeof(attached));
	running = 0;
}

void host_end(void)
{
	close(epoll_fd);
}

void host_attach(struct neap_reactor *reactor, const struct neap_budget *budget)
{
	for (int i = 0; i < HOST_REACTORS_MAX; i++) {
		if (attached[i])
			continue;
		attached[i] = true;
		running++;
		if (neap_epoll_start(&adapters[i], reactor, epoll_fd, budget))
			abort();
		return;
	}
	abort();
}

void host_detach(struct neap_reactor *reactor)
{
	for (int i = 0; i < HOST_REACTORS_MAX; i++) {
		if (!attached[i] || adapters[i].reactor != reactor)
			continue;
		neap_epoll_stop(&adapters[i]);
		attached[i] = false;
		running--;
	}
}

void host_after_ms(unsigned ms, void (*run)(void *user), void *user)
{
	int i = 0;
	while (timers[i].run)
		if (++i == HOST_TIMERS_MAX)
			abort();
	timers[i].due_ns = now_ns() + ms * UINT64_C(1000000);
	timers[i].run = run;
	timers[i].user = user;
}

static int timers_ms(void)
{
	uint64_t first_ns = UINT64_MAX, now = now_ns();
	for (int i = 0; i < HOST_TIMERS_MAX; i++)
		if (timers[i].run && timers[i].due_ns < first_ns)
			first_ns = timers[i].due_ns;
	return first_ns == UINT64_MAX ? -1 : first_ns <= now ? 0 : (int)((first_ns - now + 999999) / 1000000);
}

static void run_timers(void)
{
	for (int i = 0; i < HOST_TIMERS_MAX; i++) {
		if (!timers[i].run || timers[i].due_ns > now_ns())
			continue;
		void (*run)(void *) = timers[i].run;
		timers[i].run = NULL;
		run(timers[i].user);
	}
}

void host_break(void)
{
	broken = true;
}

/* Runs what is attached; false when the last one has ended. */
static bool run_reactors(int *last_p)
{
	bool ended = false;
	for (int i = 0; i < HOST_REACTORS_MAX; i++) {
		if (!attached[i])
			continue;
		int answer = neap_epoll_run(&adapters[i]);
		if (!attached[i] || answer == NEAP_RUN_MORE || answer == NEAP_RUN_ARMED)
			continue;
		host_detach(adapters[i].reactor);
		*last_p = answer;
		ended = true;
	}
	return !ended || running > 0;
}

/* The order is what makes this host hard: reactors run, then its own timers give them work, then it sleeps as long as it had found
 * right before. */
int host_run(void)
{
	struct epoll_event events[16];
	int last = 0;
	for (broken = false; !broken && run_reactors(&last);) {
		int timeout_ms = timers_ms();
		for (int i = 0; i < HOST_REACTORS_MAX; i++)
			if (attached[i])
				timeout_ms = neap_epoll_timeout_ms(&adapters[i], timeout_ms);
		run_timers();
		if (!broken)
			(void)epoll_wait(epoll_fd, events, 16, timeout_ms);
	}
	return last;
}
