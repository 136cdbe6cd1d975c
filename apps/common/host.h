/* What every program is: an application that owns a libev loop and embeds a reactor and an engine in it. */
#ifndef APPS_COMMON_HOST_H
#define APPS_COMMON_HOST_H

#include <ev.h>
#include <neap/adapters/ev.h>
#include <neap/engine.h>
#include <neap/reactor.h>
#include <stdbool.h>

struct app_host {
	struct ev_loop *loop;
	struct neap_reactor *reactor;
	struct neap_engine *engine;
	struct neap_ev adapter;
	ev_signal on_interrupt, on_terminate;
	bool watches_signals;
	bool opening;       /* what goes wrong now is said by the caller */
	bool interrupted;   /* SIGINT or SIGTERM came */
	bool closed, ended; /* engine, reactor */
	bool expired;       /* app_host_wait's time was up */
	ev_timer patience;
};

struct app_host_options {
	enum neap_reactor_mode mode;
	const struct neap_engine_options *engine; /* for the first engine of a process ... */
	struct neap_engine *home;                 /* ... or its home, for a further one on a thread of its own */
	bool no_engine;                           /* ... or none: a program that moves no values */
};

/* 0, or a negative error with a sentence in `why` that says what to do. The first host of a process handles SIGINT and SIGTERM.
 */
int app_host_open(struct app_host *host, const struct app_host_options *options, char *why, size_t why_size);

/* Runs the loop until *done, a signal, or `seconds` (0: no limit) have passed. True when *done. Not from callbacks. */
bool app_host_wait(struct app_host *host, const bool *done, double seconds);

/* Closes the engine and the rest, in the order they need. */
void app_host_close(struct app_host *host);

/* CPU seconds of this process so far, and CLOCK_MONOTONIC in nanoseconds. */
double app_cpu_seconds(void);
uint64_t app_now_ns(void);

#endif
