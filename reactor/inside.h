/* The reactor from inside: shared by the files that make it up, by nobody else. */
#ifndef NEAP_REACTOR_INSIDE_H
#define NEAP_REACTOR_INSIDE_H

#include "reactor/core.h"
#include "reactor/mailbox.h"
#include "reactor/wheel.h"
#include <sys/epoll.h>
#include <sys/types.h>

/* Readiness events taken from the kernel at once, and the two descriptors of our own among them. */
#define NEAP_BATCH_MAX 128u

/* A slot of the watch table. */
struct neap_watch_slot {
	struct neap_watch *watch; /* NULL: free */
	uint32_t generation, next_free;
};

/* Tells a forked child from its parent without a system call: a page the kernel hands to children zeroed. */
struct neap_fork_guard {
	volatile uint32_t *page; /* NULL: not to be had, compare `pid` */
	pid_t pid;
};

/* The turn that runs: its budget and who took longest. */
struct neap_turn {
	struct neap_budget budget;
	uint32_t left;          /* of events_max */
	bool timed;             /* the clock may be read: not in simulation */
	bool exhausted;         /* a source was stopped by the budget */
	uint64_t begun_ns, unit_ns; /* clock at the turn's begin, at the last look */
	uint64_t done;          /* units */
	uint64_t transitions;   /* the dispatcher's count at the last look */
	uint64_t longest_ns;
	const char *longest_what;
	const struct neap_fsm *longest_fsm; /* NULL: no machine ran. The machine itself may be reaped before the turn is judged */
	uint32_t longest_id;
	uint8_t longest_event;
};

/* A look at what has come, from a moment on. It is done when all that was there at that moment has had its turn, however much comes
 * meanwhile: timers that were due by then may fire. Until then they are held back, because what they wait for may be there. */
struct neap_look {
	uint64_t begun_ns;
	uint32_t messages;    /* how far the mailbox was filled */
	uint32_t ready_round; /* ready sources that were queued have an earlier one */
	uint32_t descriptors; /* that may have been ready and were not served */
	bool fresh;           /* the batch was taken from the kernel since */
	bool held;            /* timers are due before it is done: it goes on in the next turn */
};

struct neap_reactor {
	/* who and when */
	const void *owner; /* thread pointer */
	struct neap_fork_guard guard;
	bool owner_ran, in_turn, stopping, stopped;
	bool own_loop;             /* neap_reactor_run sleeps in the epoll set itself */
	bool simulated;
	bool own_clock;            /* the clock is the user's, not CLOCK_MONOTONIC */
	uint64_t now_ns;           /* never goes back */
	_Atomic uint64_t turn_counter;
	struct neap_turn turn;
	struct neap_look look;
	uint32_t first_source;     /* rotates while the budget ends turns early, so that no source starves */

	/* waking */
	_Atomic uint32_t armed;    /* the host may sleep: whoever changes it to 0 writes the eventfd */
	_Atomic uint32_t kicked;   /* a turn is asked for */
	bool signaled;             /* the eventfd is known to be readable */
	bool timerfd_fired;
	int epoll_fd, event_fd, timer_fd; /* -1 in simulation */
	uint64_t timerfd_ns;       /* what the timerfd is set to; 0: disarmed */
	uint64_t armed_deadline_ns;
	uint64_t progress_ns;      /* ADAPTIVE: of the last turn that did something */
	uint64_t long_log_ns;      /* when a long turn was last logged; at most once a second */
	bool no_pwait2;            /* the kernel lacks epoll_pwait2 */

	/* sources */
	struct neap_mailbox mailbox;
	struct neap_poller *pollers, *poller_next;
	uint32_t poller_count;
	struct neap_wheel wheel;
	struct neap_ready *ready, **ready_tail;
	uint32_t ready_round;
	struct neap_reap *reaps, **reap_tail;
	struct neap_watch_slot *watches;
	uint32_t watch_used, watch_fresh, watch_free;
	struct epoll_event batch[NEAP_BATCH_MAX];
	uint32_t batch_count, batch_at;
	bool batch_given;          /* the batch was filled before the turn, by the call that slept */
	bool batch_full;           /* the kernel may have more */

	struct neap_dependent *dependents;
	struct neap_resident *residents;

	/* machines */
	struct neap_dispatcher dispatcher;
	struct neap_posted *posted;
	struct neap_trace_record *records; /* of both rings */

	struct neap_reactor_options options; /* with defaults filled in */
	struct neap_reactor_stats stats;
	_Atomic uint64_t kicks_written;
};

#define NEAP_NO_SLOT UINT32_MAX
#define NEAP_POSTED_COUNT 1024u
#define NEAP_BYTES_BUDGET (4u << 20)

/* environment.c: the defaults of clock, memory, chance; and the fork guard */
void neap_environment_defaults(struct neap_reactor_options *options);
int neap_fork_guard_set(struct neap_fork_guard *guard);
void neap_fork_guard_release(struct neap_fork_guard *guard);
bool neap_fork_guard_by_pid(const struct neap_fork_guard *guard);
/* Unique among live threads, and one instruction: pthread_self is a call. */
static inline const void *neap_thread(void)
{
	return __builtin_thread_pointer();
}
static inline bool neap_reactor_forked(const struct neap_reactor *reactor)
{
	if (reactor->simulated)
		return false;
	return reactor->guard.page ? *reactor->guard.page == 0 : neap_fork_guard_by_pid(&reactor->guard);
}
static inline int neap_reactor_check_inline(const struct neap_reactor *reactor)
{
	if (neap_reactor_forked(reactor))
		return NEAP_EFORKED;
	return reactor->owner == neap_thread() ? NEAP_OK : NEAP_ETHREAD;
}

/* reactor.c */
uint64_t neap_reactor_refresh(struct neap_reactor *reactor); /* reads the clock into the cache */

/* wake.c: the descriptors that end a sleep, and the arm protocol */
int neap_wake_open(struct neap_reactor *reactor);
void neap_wake_close(struct neap_reactor *reactor);
void neap_wake_begin_turn(struct neap_reactor *reactor);
void neap_wake_seen(struct neap_reactor *reactor, uint64_t which); /* epoll reported one of ours */
bool neap_wake_arm(struct neap_reactor *reactor);                  /* false: something came in between */
void neap_wake_keep(struct neap_reactor *reactor);                 /* the turn ends with work left: the fd stays readable */

/* epoll data of our own two descriptors; watches have a generation that is never 0 in the upper half */
enum { NEAP_WAKE_EVENT = 1, NEAP_WAKE_TIMER = 2 };

/* watch.c */
int neap_watches_open(struct neap_reactor *reactor);
void neap_watches_close(struct neap_reactor *reactor);
/* Of a simulated reactor: the next one that is ready, from *slot on. NULL: none. */
struct neap_watch *neap_watch_simulated(const struct neap_reactor *reactor, uint32_t *slot, unsigned *ready_p);
void neap_watch_dispatch(struct neap_reactor *reactor, const struct epoll_event *event);

/* turn.c */
void neap_reap_now(struct neap_reactor *reactor); /* what is queued now; not what that queues */
int neap_turn_may_begin(struct neap_reactor *reactor); /* 0, or why not; the first caller becomes the owner */
/* `clock_ns` is the clock now, 0 when it must not be read (simulation). */
int neap_turn_run(struct neap_reactor *reactor, uint64_t now_ns, uint64_t clock_ns, const struct neap_budget *budget);

/* timer.c: neap_timer_start for callers that were checked */
void neap_timer_set(struct neap_reactor *reactor, struct neap_timer *timer, uint64_t due_ns,
                    void (*fire)(struct neap_timer *timer, void *user), void *user);

/* machine.c */
int neap_machines_open(struct neap_reactor *reactor);
void neap_machines_close(struct neap_reactor *reactor);

#endif
