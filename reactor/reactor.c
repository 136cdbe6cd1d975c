/* Life of a reactor: create, owner, what hangs on it, stop, destroy. */
#include "reactor/inside.h"
#include "reactor/net.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define MAILBOX_SLOTS 1024u
#define DESCRIPTORS_MAX 16384u
#define TRACE_RECORDS 8192u
#define SPIN_NS 50000u
#define LONG_TURN_NS 5000000u

static bool is_power_of_two(uint32_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

static int fill_options(struct neap_reactor_options *filled, const struct neap_reactor_options *given)
{
	*filled = given ? *given : (struct neap_reactor_options){0};
	if (!filled->spin_ns)
		filled->spin_ns = SPIN_NS;
	if (!filled->mailbox_slots)
		filled->mailbox_slots = MAILBOX_SLOTS;
	if (!filled->descriptors_max)
		filled->descriptors_max = DESCRIPTORS_MAX;
	if (!filled->trace_records)
		filled->trace_records = TRACE_RECORDS;
	if (!filled->long_turn_ns)
		filled->long_turn_ns = LONG_TURN_NS;
	if ((unsigned)filled->mode > NEAP_MODE_ADAPTIVE || filled->mailbox_slots < 2 || filled->mailbox_slots > UINT32_C(1) << 30 ||
	    !is_power_of_two(filled->mailbox_slots) || !is_power_of_two(filled->trace_records) ||
	    filled->trace_records > UINT32_C(1) << 26 || filled->descriptors_max > UINT32_C(1) << 26)
		return NEAP_EINVAL;
	/* Simulated time is what run_at is told, unless the simulation brings a clock. */
	struct neap_clock_ops clock = filled->clock;
	neap_environment_defaults(filled);
	if (filled->net)
		filled->clock = clock;
	else
		filled->net = neap_net_sockets();
	return NEAP_OK;
}

static int open_parts(struct neap_reactor *reactor)
{
	uint32_t slots = reactor->options.mailbox_slots;
	struct neap_letter *letters = neap_allocate(reactor, slots * sizeof *letters);
	if (!letters)
		return NEAP_ENOMEM;
	neap_mailbox_init(&reactor->mailbox, letters, slots);
	int error = neap_machines_open(reactor);
	if (!error)
		error = neap_watches_open(reactor);
	if (!error && !reactor->simulated)
		error = neap_fork_guard_set(&reactor->guard);
	if (!error && !reactor->simulated)
		error = neap_wake_open(reactor);
	return error;
}

static void close_parts(struct neap_reactor *reactor)
{
	if (!reactor->simulated)
		neap_wake_close(reactor);
	neap_fork_guard_release(&reactor->guard);
	neap_watches_close(reactor);
	neap_machines_close(reactor);
	if (reactor->mailbox.letters)
		neap_release(reactor, reactor->mailbox.letters, reactor->options.mailbox_slots * sizeof *reactor->mailbox.letters);
	struct neap_alloc_ops alloc = reactor->options.alloc;
	alloc.release(alloc.user, reactor, sizeof *reactor);
}

int neap_reactor_create(struct neap_reactor **reactor_p, const struct neap_reactor_options *options)
{
	struct neap_reactor_options filled;
	*reactor_p = NULL;
	int error = fill_options(&filled, options);
	if (error)
		return error;
	struct neap_reactor *reactor = filled.alloc.allocate(filled.alloc.user, sizeof *reactor);
	if (!reactor)
		return NEAP_ENOMEM;
	reactor->options = filled;
	reactor->simulated = options && options->net;
	reactor->own_clock = options && options->clock.now_ns;
	reactor->owner = neap_thread();
	reactor->epoll_fd = reactor->event_fd = reactor->timer_fd = -1;
	reactor->ready_tail = &reactor->ready;
	reactor->reap_tail = &reactor->reaps;
	atomic_init(&reactor->turn_counter, 0);
	atomic_init(&reactor->armed, 0);
	atomic_init(&reactor->kicked, 0);
	atomic_init(&reactor->kicks_written, 0);
	neap_reactor_refresh(reactor);
	neap_wheel_init(&reactor->wheel, reactor->now_ns);
	error = open_parts(reactor);
	if (error) {
		int system_errno = errno;
		close_parts(reactor);
		errno = system_errno;
		return error;
	}
	*reactor_p = reactor;
	return NEAP_OK;
}

/* --- owner */

int neap_reactor_check(const struct neap_reactor *reactor)
{
	return neap_reactor_check_inline(reactor);
}

int neap_reactor_adopt(struct neap_reactor *reactor)
{
	if (neap_reactor_forked(reactor))
		return NEAP_EFORKED;
	if (reactor->in_turn)
		return NEAP_EREENTERED;
	reactor->owner = neap_thread();
	reactor->owner_ran = true;
	return NEAP_OK;
}

bool neap_reactor_in_turn(const struct neap_reactor *reactor)
{
	return reactor->in_turn;
}

/* --- what hangs on it */

void neap_reactor_attach(struct neap_reactor *reactor, struct neap_dependent *dependent)
{
	dependent->next = reactor->dependents;
	if (dependent->next)
		dependent->next->slot = &dependent->next;
	dependent->slot = &reactor->dependents;
	reactor->dependents = dependent;
}

void neap_reactor_detach(struct neap_reactor *reactor, struct neap_dependent *dependent)
{
	if (!dependent->slot)
		return;
	*dependent->slot = dependent->next;
	if (dependent->next)
		dependent->next->slot = dependent->slot;
	dependent->slot = NULL;
	if (reactor->stopping && !reactor->dependents)
		neap_reactor_touch(reactor);
}

bool neap_reactor_stopping(const struct neap_reactor *reactor)
{
	return reactor->stopping;
}

void neap_reactor_house(struct neap_reactor *reactor, struct neap_resident *resident)
{
	resident->next = reactor->residents;
	reactor->residents = resident;
}

struct neap_resident *neap_reactor_resident(const struct neap_reactor *reactor, const void *key)
{
	struct neap_resident *resident = reactor->residents;
	while (resident && resident->key != key)
		resident = resident->next;
	return resident;
}

/* --- stop and destroy */

void neap_reactor_stop(struct neap_reactor *reactor)
{
	int error = neap_reactor_check_inline(reactor);
	if (error) {
		neap_log(reactor, NEAP_LOG_ERROR, "reactor", "stop refused: %s", neap_error_text(error));
		return;
	}
	if (reactor->stopping)
		return;
	reactor->stopping = true;
	/* Each is moved to the live list before it is told, so that it may detach itself or a neighbour. */
	struct neap_dependent *waiting = reactor->dependents;
	reactor->dependents = NULL;
	if (waiting)
		waiting->slot = &waiting;
	while (waiting) {
		struct neap_dependent *dependent = waiting;
		waiting = dependent->next;
		if (waiting)
			waiting->slot = &waiting;
		neap_reactor_attach(reactor, dependent);
		if (dependent->stop)
			dependent->stop(dependent);
	}
	neap_reactor_touch(reactor);
}

static void run_reaps(struct neap_reactor *reactor)
{
	reactor->in_turn = true;
	while (reactor->reaps)
		neap_reap_now(reactor);
	reactor->in_turn = false;
}

int neap_reactor_destroy(struct neap_reactor *reactor)
{
	if (!reactor)
		return NEAP_OK;
	int error = neap_reactor_check_inline(reactor);
	if (error)
		return error;
	if (reactor->in_turn)
		return NEAP_EREENTERED;
	run_reaps(reactor);
	if (reactor->dependents) {
		neap_log(reactor, NEAP_LOG_WARNING, "reactor", "destroy refused: %s still hangs on it", reactor->dependents->what);
		return NEAP_EBUSY;
	}
	if (!neap_mailbox_empty(&reactor->mailbox)) {
		neap_log(reactor, NEAP_LOG_WARNING, "reactor", "destroy refused: messages wait in the mailbox; run it once more");
		return NEAP_EBUSY;
	}
	if (reactor->options.net->forget_reactor)
		reactor->options.net->forget_reactor(reactor->options.net, reactor);
	while (reactor->residents) {
		struct neap_resident *resident = reactor->residents;
		reactor->residents = resident->next;
		resident->release(resident, reactor);
	}
	run_reaps(reactor);
	close_parts(reactor);
	return NEAP_OK;
}

/* --- time, memory, chance, log */

uint64_t neap_reactor_refresh(struct neap_reactor *reactor)
{
	if (reactor->options.clock.now_ns) {
		uint64_t now_ns = reactor->options.clock.now_ns(reactor->options.clock.user);
		if (now_ns > reactor->now_ns)
			reactor->now_ns = now_ns;
	}
	reactor->dispatcher.now_ns = reactor->now_ns;
	return reactor->now_ns;
}

uint64_t neap_now(const struct neap_reactor *reactor)
{
	if (reactor->in_turn)
		return reactor->now_ns;
	/* Between turns the last turn may be long ago; a deadline reckoned from it would be in the past. */
	return neap_reactor_refresh((struct neap_reactor *)(uintptr_t)reactor);
}

uint64_t neap_reactor_now_ns(struct neap_reactor *reactor)
{
	return neap_now(reactor);
}

uint64_t neap_wall_us(const struct neap_reactor *reactor)
{
	const struct neap_clock_ops *clock = &reactor->options.clock;
	return clock->wall_us ? clock->wall_us(clock->user) : reactor->now_ns / 1000;
}

void neap_random_fill(const struct neap_reactor *reactor, void *bytes, size_t length)
{
	reactor->options.random.fill(reactor->options.random.user, bytes, length);
}

uint64_t neap_random_u64(const struct neap_reactor *reactor)
{
	uint64_t value;
	neap_random_fill(reactor, &value, sizeof value);
	return value;
}

void *neap_allocate(struct neap_reactor *reactor, size_t bytes)
{
	return reactor->options.alloc.allocate(reactor->options.alloc.user, bytes);
}

void neap_release(struct neap_reactor *reactor, void *memory, size_t bytes)
{
	if (memory)
		reactor->options.alloc.release(reactor->options.alloc.user, memory, bytes);
}

void neap_log(const struct neap_reactor *reactor, enum neap_log_level level, const char *component, const char *format, ...)
{
	char message[768];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(message, sizeof message, format, arguments);
	va_end(arguments);
	reactor->options.log(reactor->options.log_user, level, component, message);
}

/* --- what others ask about it */

void neap_count_system_call(struct neap_reactor *reactor)
{
	reactor->stats.system_calls++;
}

struct neap_net *neap_reactor_net(const struct neap_reactor *reactor)
{
	return reactor->options.net;
}

bool neap_reactor_simulated(const struct neap_reactor *reactor)
{
	return reactor->simulated;
}

const _Atomic uint64_t *neap_reactor_turn_counter(const struct neap_reactor *reactor)
{
	return &reactor->turn_counter;
}

struct neap_dispatcher *neap_reactor_dispatcher(struct neap_reactor *reactor)
{
	return &reactor->dispatcher;
}

uint32_t neap_reactor_descriptors_max(const struct neap_reactor *reactor)
{
	return reactor->options.descriptors_max;
}

uint32_t neap_reactor_bytes_budget(const struct neap_reactor *reactor)
{
	return reactor->turn.budget.bytes_max ? reactor->turn.budget.bytes_max : NEAP_BYTES_BUDGET;
}

void neap_reactor_stats(const struct neap_reactor *reactor, struct neap_reactor_stats *stats_p)
{
	uint64_t kicks = atomic_load_explicit(&reactor->kicks_written, memory_order_relaxed);
	*stats_p = reactor->stats;
	stats_p->kicks_written = kicks;
	stats_p->system_calls += kicks;
	stats_p->timers_active = reactor->wheel.active;
	stats_p->descriptors = reactor->watch_used;
	stats_p->transitions = reactor->dispatcher.transitions;
	stats_p->ignored = reactor->dispatcher.ignored;
	stats_p->impossible = reactor->dispatcher.impossible;
}
