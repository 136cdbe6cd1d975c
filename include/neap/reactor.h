/* The reactor: one event loop per core that never waits, to be driven by a loop that does.
 *
 * A host (libev, libuv, GLib, Asio, plain epoll; adapters in neap/adapters/) does this for ever:
 *
 *     1. call neap_reactor_run_once until it answers NEAP_RUN_ARMED (after MORE do other work first if you like);
 *     2. sleep until neap_reactor_fd is readable, but not past neap_reactor_deadline_ns;
 *     3. go to 1.
 *
 * docs/EMBEDDING.md has the contract with its reasons.
 *
 * Thread rule: the thread that first runs a reactor owns it. Every call but neap_reactor_kick and neap_reactor_post answers
 * NEAP_ETHREAD from another thread, and NEAP_EFORKED in a forked child. */
#ifndef NEAP_REACTOR_H
#define NEAP_REACTOR_H

#include <neap/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct neap_reactor;
struct neap_net; /* reactor/net.h: where byte streams come from; NULL means sockets */

enum neap_reactor_mode {
	NEAP_MODE_EVENT,    /* sleep when there is nothing to do (default) */
	NEAP_MODE_BUSY,     /* never arm: run_once always answers MORE while open, the fd stays readable, the deadline is 0 */
	NEAP_MODE_ADAPTIVE, /* spin for `spin_ns` after the last progress, then arm */
};

/* Time. NULL functions mean CLOCK_MONOTONIC and CLOCK_REALTIME. */
struct neap_clock_ops {
	uint64_t (*now_ns)(void *user);     /* monotonic */
	uint64_t (*wall_us)(void *user);    /* since 1970, for documents people read; never for decisions */
	void *user;
};

/* Memory. NULL means calloc and free. Memory comes zeroed. Called at create and when a pool or buffer is made, never per event. */
struct neap_alloc_ops {
	void *(*allocate)(void *user, size_t bytes);
	void (*release)(void *user, void *memory, size_t bytes);
	void *user;
};

/* Chance. NULL means getrandom. Fills `length` bytes; must not fail. */
struct neap_random_ops {
	void (*fill)(void *user, void *bytes, size_t length);
	void *user;
};

enum neap_log_level { NEAP_LOG_ERROR, NEAP_LOG_WARNING, NEAP_LOG_INFO, NEAP_LOG_DEBUG };

/* `message` is one line without newline, without secrets; valid during the call. */
typedef void neap_log_func(void *user, enum neap_log_level level, const char *component, const char *message);

/* The library's default logger: `time level component message` to stderr, levels up to NEAP_LOG_WARNING unless the environment
 * has MC_LOG_LEVEL. Any thread. */
NEAP_API void neap_log_stderr(void *user, enum neap_log_level level, const char *component, const char *message);

struct neap_reactor_options {
	enum neap_reactor_mode mode;
	uint64_t spin_ns;          /* ADAPTIVE; 0 means 50 us */
	bool host_keeps_deadline;  /* true: the host honours neap_reactor_deadline_ns; saves a timerfd call per arming.
	                              false (default): a timerfd inside makes the fd alone sufficient */
	uint32_t mailbox_slots;    /* power of two; 0 means 1024 */
	uint32_t descriptors_max;  /* watched descriptors; 0 means 16384 */
	uint32_t trace_records;    /* per ring, power of two; 0 means 8192 */
	uint64_t long_turn_ns;     /* a turn longer than this is counted and logged with its machine; 0 means 5 ms */
	struct neap_clock_ops clock;
	struct neap_alloc_ops alloc;
	struct neap_random_ops random;
	struct neap_net *net;      /* NULL: sockets. Otherwise the reactor opens no descriptor at all (neap_reactor_fd answers -1) and
	                              only neap_reactor_run_at drives it: simulation */
	neap_log_func *log;        /* NULL: neap_log_stderr */
	void *log_user;
	/* Called when work appears or the deadline moves earlier outside run_once. It may only schedule a run_once, never call in. */
	void (*on_change)(void *user);
	void *on_change_user;
};

/* How much one turn may do. Zero means the default. */
struct neap_budget {
	uint32_t events_max; /* readiness events, timers and messages; default 256 */
	uint32_t bytes_max;  /* data moved by one stream before the next one's turn; default 4 MiB */
	uint64_t ns_max;     /* stop starting new work after this long; default 2 ms */
};

enum neap_run {
	NEAP_RUN_MORE = 1,    /* work is left: call again soon, do not sleep */
	NEAP_RUN_ARMED = 2,   /* safe to sleep until the fd is readable or the deadline */
	NEAP_RUN_STOPPED = 3, /* neap_reactor_stop was called and everything has ended: destroy it */
};

/* `options` may be NULL. On failure *reactor_p is NULL and the error says why (NEAP_EINVAL, NEAP_ENOMEM, NEAP_ESOCKET when epoll or
 * eventfd are not to be had: errno tells). The calling thread becomes the owner until the first run. */
NEAP_API int neap_reactor_create(struct neap_reactor **reactor_p, const struct neap_reactor_options *options);

/* Refuses new work and begins to close what hangs on the reactor. run_once answers STOPPED when done. */
NEAP_API void neap_reactor_stop(struct neap_reactor *reactor);

/* Frees it. NEAP_EBUSY while an engine or stream still hangs on it, NEAP_EREENTERED from a callback; nothing is freed then. */
NEAP_API int neap_reactor_destroy(struct neap_reactor *reactor);

/* For readability, level-triggered; never epoll_ctl into it, never read it. */
NEAP_API int neap_reactor_fd(const struct neap_reactor *reactor);

/* CLOCK_MONOTONIC; the longest the host may sleep. 0: run now. UINT64_MAX: no deadline. */
NEAP_API uint64_t neap_reactor_deadline_ns(const struct neap_reactor *reactor);

/* One turn; never blocks. enum neap_run, or NEAP_EREENTERED, NEAP_ETHREAD, NEAP_EFORKED. `budget` may be NULL. */
NEAP_API int neap_reactor_run_once(struct neap_reactor *reactor, const struct neap_budget *budget);

/* The same with the time passed in. */
NEAP_API int neap_reactor_run_at(struct neap_reactor *reactor, uint64_t now_ns, const struct neap_budget *budget);

/* For those without a loop: runs and sleeps until neap_reactor_stop has taken effect (0) or an error. */
NEAP_API int neap_reactor_run(struct neap_reactor *reactor);

/* Wakes the host. Any thread, signal handlers too. Sticky: a kick before the sleep ends the sleep. */
NEAP_API void neap_reactor_kick(struct neap_reactor *reactor);

/* A message to another core: `run(argument)` is called on its thread in a later turn. Any thread. NEAP_EAGAIN when the mailbox is
 * full; the caller keeps the message and its own bound. */
typedef void neap_message_func(void *argument);
NEAP_API int neap_reactor_post(struct neap_reactor *reactor, neap_message_func *run, void *argument);

/* The owner changes to the calling thread: for a reactor made on one thread and run on another. Only between turns. */
NEAP_API int neap_reactor_adopt(struct neap_reactor *reactor);

/* Timers for applications, on the reactor's wheel. The memory is the caller's and must be zeroed before the first start. Resolution
 * 1 ms; never early, and not before what had come by then was looked at, however late the turn: an answer that is there has been told
 * when its deadline fires. The callback may start, cancel and free the timer. */
struct neap_timer {
	struct neap_timer *next, **slot; /* in the wheel; slot NULL: not started */
	uint64_t due_ns;
	void (*fire)(struct neap_timer *timer, void *user);
	void *user;
};
/* Starts, or moves a started one. */
NEAP_API int neap_timer_start(struct neap_reactor *reactor, struct neap_timer *timer, uint64_t due_ns,
                              void (*fire)(struct neap_timer *timer, void *user), void *user);
NEAP_API void neap_timer_cancel(struct neap_reactor *reactor, struct neap_timer *timer);
static inline bool neap_timer_active(const struct neap_timer *timer)
{
	return timer->slot != NULL;
}

/* The reactor's cached time: of this turn, or of now when called between turns. */
NEAP_API uint64_t neap_reactor_now_ns(struct neap_reactor *reactor);

struct neap_reactor_stats {
	uint64_t turns, events, messages, timers_fired, sleeps, kicks_written;
	uint64_t long_turns, longest_turn_ns;
	uint64_t stale_events;  /* readiness for a descriptor that had changed hands */
	uint64_t system_calls;  /* made by the reactor and its streams: epoll, eventfd, timerfd, socket I/O */
	uint64_t timers_active, descriptors;
	uint64_t transitions, ignored, impossible;
};
NEAP_API void neap_reactor_stats(const struct neap_reactor *reactor, struct neap_reactor_stats *stats_p);

/* The dispatcher that drives this reactor's machines: for neap/trace.h and coverage. */
struct neap_dispatcher;
NEAP_API struct neap_dispatcher *neap_reactor_dispatcher(struct neap_reactor *reactor);

#ifdef __cplusplus
}
#endif
#endif
