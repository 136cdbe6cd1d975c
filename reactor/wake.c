/* How a sleeping host is woken: the epoll set with its eventfd and timerfd, the sticky kick, and the arm protocol.
 *
 * `armed` is 1 only while the host may sleep on work it has not been told of. Whoever finds it 1 sets it to 0 and writes the eventfd:
 * once per sleep, however many kicks. A kick that finds it 0 leaves `kicked`, which the next arming finds. */
#include "reactor/inside.h"
#include <errno.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

static int add_own(struct neap_reactor *reactor, int fd, uint64_t which)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = which};
	return epoll_ctl(reactor->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

int neap_wake_open(struct neap_reactor *reactor)
{
	bool busy = reactor->options.mode == NEAP_MODE_BUSY;
	reactor->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (reactor->epoll_fd < 0)
		return NEAP_ESOCKET;
	reactor->event_fd = eventfd(busy, EFD_NONBLOCK | EFD_CLOEXEC);
	if (reactor->event_fd < 0 || add_own(reactor, reactor->event_fd, NEAP_WAKE_EVENT) != 0)
		return NEAP_ESOCKET;
	reactor->signaled = busy;
	if (reactor->options.host_keeps_deadline)
		return NEAP_OK;
	reactor->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (reactor->timer_fd < 0 || add_own(reactor, reactor->timer_fd, NEAP_WAKE_TIMER) != 0)
		return NEAP_ESOCKET;
	return NEAP_OK;
}

void neap_wake_close(struct neap_reactor *reactor)
{
	if (reactor->timer_fd >= 0)
		close(reactor->timer_fd);
	if (reactor->event_fd >= 0)
		close(reactor->event_fd);
	if (reactor->epoll_fd >= 0)
		close(reactor->epoll_fd);
}

/* Async-signal-safe. A full counter is as readable as one can be, so a failed write is no loss. */
static void write_kick(struct neap_reactor *reactor)
{
	int system_errno = errno;
	uint64_t one = 1;
	ssize_t written = write(reactor->event_fd, &one, sizeof one);
	(void)written;
	errno = system_errno;
	atomic_fetch_add_explicit(&reactor->kicks_written, 1, memory_order_relaxed);
}

/* True: the host may have gone to sleep, and it was for the caller to wake it. */
static bool disarm(struct neap_reactor *reactor)
{
	if (!atomic_load(&reactor->armed) || !atomic_exchange(&reactor->armed, 0))
		return false;
	if (!reactor->simulated)
		write_kick(reactor);
	return true;
}

void neap_reactor_kick(struct neap_reactor *reactor)
{
	if (neap_reactor_forked(reactor))
		return;
	atomic_store(&reactor->kicked, 1);
	disarm(reactor);
}

int neap_reactor_post(struct neap_reactor *reactor, neap_message_func *run, void *argument)
{
	if (neap_reactor_forked(reactor))
		return NEAP_EFORKED;
	int error = neap_mailbox_put(&reactor->mailbox, run, argument);
	if (error)
		return error;
	/* Pairs with the fence of neap_wake_arm: either the owner sees the message or this sees that it is armed. */
	atomic_thread_fence(memory_order_seq_cst);
	disarm(reactor);
	return NEAP_OK;
}

void neap_reactor_touch(struct neap_reactor *reactor)
{
	if (reactor->in_turn || !disarm(reactor))
		return;
	reactor->signaled = !reactor->simulated;
	if (reactor->options.on_change)
		reactor->options.on_change(reactor->options.on_change_user);
}

void neap_wake_begin_turn(struct neap_reactor *reactor)
{
	if (atomic_load_explicit(&reactor->armed, memory_order_relaxed))
		atomic_store(&reactor->armed, 0);
	/* What was published before the kick is seen from here on. */
	if (atomic_load_explicit(&reactor->kicked, memory_order_relaxed))
		atomic_exchange(&reactor->kicked, 0);
}

void neap_wake_seen(struct neap_reactor *reactor, uint64_t which)
{
	if (which == NEAP_WAKE_EVENT)
		reactor->signaled = true;
	else
		reactor->timerfd_fired = true;
}

void neap_wake_keep(struct neap_reactor *reactor)
{
	if (reactor->signaled || reactor->simulated || reactor->own_loop)
		return;
	write_kick(reactor);
	reactor->signaled = true;
}

/* `deadline_ns` UINT64_MAX disarms. A clock of the user's own has no epoch in common with the kernel's, only the distance. */
static void set_timerfd(struct neap_reactor *reactor, uint64_t deadline_ns)
{
	bool own_clock = reactor->own_clock;
	uint64_t at_ns = deadline_ns;
	if (own_clock && deadline_ns != UINT64_MAX)
		at_ns = deadline_ns > reactor->now_ns ? deadline_ns - reactor->now_ns : 1;
	if (at_ns == 0)
		at_ns = 1; /* 0 would disarm */
	struct itimerspec setting = {0};
	if (deadline_ns != UINT64_MAX) {
		setting.it_value.tv_sec = (time_t)(at_ns / 1000000000u);
		setting.it_value.tv_nsec = (long)(at_ns % 1000000000u);
	}
	timerfd_settime(reactor->timer_fd, own_clock ? 0 : TFD_TIMER_ABSTIME, &setting, NULL);
	reactor->stats.system_calls++;
	reactor->timerfd_ns = deadline_ns == UINT64_MAX ? 0 : deadline_ns;
	reactor->timerfd_fired = false;
}

/* A later deadline leaves the timerfd as it is: one early wake-up costs less than a call at each renewal. */
static void follow_deadline(struct neap_reactor *reactor, uint64_t deadline_ns)
{
	if (reactor->timer_fd < 0)
		return;
	if (reactor->own_loop)
		deadline_ns = UINT64_MAX;
	bool passed = reactor->timerfd_fired || (reactor->timerfd_ns && reactor->timerfd_ns <= reactor->now_ns);
	bool earlier = deadline_ns != UINT64_MAX && (!reactor->timerfd_ns || deadline_ns < reactor->timerfd_ns);
	if (passed || earlier)
		set_timerfd(reactor, deadline_ns);
}

bool neap_wake_arm(struct neap_reactor *reactor)
{
	if (reactor->signaled) {
		uint64_t count;
		ssize_t got = read(reactor->event_fd, &count, sizeof count);
		(void)got;
		reactor->stats.system_calls++;
		reactor->signaled = false;
	}
	reactor->armed_deadline_ns = neap_wheel_note_next(&reactor->wheel);
	follow_deadline(reactor, reactor->armed_deadline_ns);
	atomic_store(&reactor->armed, 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (neap_mailbox_empty(&reactor->mailbox) && !atomic_load(&reactor->kicked)) {
		reactor->stats.sleeps++;
		return true;
	}
	atomic_store(&reactor->armed, 0);
	return false;
}

int neap_reactor_fd(const struct neap_reactor *reactor)
{
	return reactor->epoll_fd;
}

uint64_t neap_reactor_deadline_ns(const struct neap_reactor *reactor)
{
	if (reactor->stopped)
		return UINT64_MAX;
	if (!atomic_load_explicit(&reactor->armed, memory_order_relaxed))
		return 0;
	return neap_wheel_next_ns(&reactor->wheel);
}
