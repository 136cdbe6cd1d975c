#include "apps/common/host.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static void on_log(void *user, enum neap_log_level level, const char *component, const char *message)
{
	const struct app_host *host = user;
	if (!host->opening || level != NEAP_LOG_ERROR)
		neap_log_stderr(NULL, level, component, message);
}

static void on_signal(struct ev_loop *loop, ev_signal *watcher, int events)
{
	(void)events;
	struct app_host *host = watcher->data;
	host->interrupted = true;
	ev_break(loop, EVBREAK_ALL);
}

static void on_patience(struct ev_loop *loop, ev_timer *watcher, int events)
{
	(void)events;
	struct app_host *host = watcher->data;
	host->expired = true;
	ev_break(loop, EVBREAK_ALL);
}

static void watch_signals(struct app_host *host)
{
	ev_signal_init(&host->on_interrupt, on_signal, SIGINT);
	ev_signal_init(&host->on_terminate, on_signal, SIGTERM);
	host->on_interrupt.data = host->on_terminate.data = host;
	ev_signal_start(host->loop, &host->on_interrupt);
	ev_signal_start(host->loop, &host->on_terminate);
	/* The loop runs for its other watchers; these alone shall not keep it. */
	ev_unref(host->loop);
	ev_unref(host->loop);
	host->watches_signals = true;
}

static void unwatch_signals(struct app_host *host)
{
	if (!host->watches_signals)
		return;
	ev_ref(host->loop);
	ev_ref(host->loop);
	ev_signal_stop(host->loop, &host->on_interrupt);
	ev_signal_stop(host->loop, &host->on_terminate);
	host->watches_signals = false;
}

static void on_ended(void *user, int result)
{
	struct app_host *host = user;
	if (result < 0)
		fprintf(stderr, "the reactor stopped: %s\n", neap_error_text(result));
	host->ended = true;
	ev_break(host->loop, EVBREAK_ALL);
}

static int open_engine(struct app_host *host, const struct app_host_options *options, char *why, size_t why_size)
{
	if (options->home)
		return neap_engine_join(&host->engine, host->reactor, options->home, why, why_size);
	return neap_engine_create(&host->engine, host->reactor, options->engine, why, why_size);
}

int app_host_open(struct app_host *host, const struct app_host_options *options, char *why, size_t why_size)
{
	memset(host, 0, sizeof *host);
	host->opening = true;
	host->loop = options->home ? ev_loop_new(EVFLAG_AUTO) : ev_default_loop(EVFLAG_AUTO);
	if (!host->loop) {
		snprintf(why, why_size, "libev cannot make an event loop; see `ulimit -n` and LIBEV_FLAGS");
		return NEAP_ESOCKET;
	}
	/* A turn of these programs may well wait for a page or for a busy CPU; that is no news to whoever runs them. */
	struct neap_reactor_options reactor = {
		.mode = options->mode, .host_keeps_deadline = true, .long_turn_ns = 1000000000, .log = on_log, .log_user = host};
	int error = neap_reactor_create(&host->reactor, &reactor);
	if (error) {
		snprintf(why, why_size, "cannot make a reactor: %s; see `ulimit -n`", neap_error_text(error));
		return error;
	}
	neap_ev_start(&host->adapter, host->loop, host->reactor, on_ended, host);
	error = options->no_engine ? 0 : open_engine(host, options, why, why_size);
	if (error) {
		host->engine = NULL;
		app_host_close(host);
		return error;
	}
	host->opening = false;
	if (!options->home)
		watch_signals(host);
	return 0;
}

bool app_host_wait(struct app_host *host, const bool *done, double seconds)
{
	host->expired = false;
	if (seconds > 0) {
		ev_now_update(host->loop);
		ev_timer_init(&host->patience, on_patience, seconds, 0);
		host->patience.data = host;
		ev_timer_start(host->loop, &host->patience);
	}
	while (!*done && !host->interrupted && !host->expired)
		ev_run(host->loop, EVRUN_ONCE);
	if (seconds > 0)
		ev_timer_stop(host->loop, &host->patience);
	return *done;
}

static void on_closed(void *user)
{
	struct app_host *host = user;
	host->engine = NULL;
	host->closed = true;
}

void app_host_close(struct app_host *host)
{
	host->interrupted = false; /* a second signal ends the wait and with it the process */
	if (host->engine && !neap_engine_close(host->engine, on_closed, host))
		app_host_wait(host, &host->closed, 10);
	if (host->reactor) {
		neap_reactor_stop(host->reactor);
		if (!app_host_wait(host, &host->ended, 10))
			neap_ev_stop(&host->adapter);
		neap_reactor_destroy(host->reactor);
		host->reactor = NULL;
	}
	unwatch_signals(host);
	if (host->loop && !ev_is_default_loop(host->loop))
		ev_loop_destroy(host->loop);
	host->loop = NULL;
}

double app_cpu_seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

uint64_t app_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
