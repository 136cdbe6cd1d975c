/* Neap in a libuv loop. docs/EMBEDDING.md
 *
 *     neap_uv_start(&host, uv_loop, reactor, ended, user);
 *     uv_run(uv_loop, UV_RUN_DEFAULT);
 *
 * Set neap_reactor_options.host_keeps_deadline: the adapter keeps it. */
#ifndef NEAP_ADAPTERS_UV_H
#define NEAP_ADAPTERS_UV_H

#include <neap/reactor.h>
#include <uv.h>

struct neap_uv {
	struct neap_reactor *reactor;
	const struct neap_budget *budget; /* of each turn; NULL: the default. May be set at any time */
	/* Once, when libuv has let go of the adapter's memory: NEAP_RUN_STOPPED, an error, or 0 after neap_uv_stop. May be NULL */
	void (*ended)(void *user, int result);
	void *user;
	int result, handles;
	uv_poll_t poll;
	uv_timer_t timer;
};

static inline void neap_uv_on_close(uv_handle_t *handle)
{
	struct neap_uv *host = (struct neap_uv *)handle->data;
	if (--host->handles == 0 && host->ended)
		host->ended(host->user, host->result);
}

/* Before the reactor is destroyed; `host` must stay until `ended`. Allowed in callbacks. */
static inline void neap_uv_stop(struct neap_uv *host)
{
	if (uv_is_closing((uv_handle_t *)&host->poll))
		return;
	uv_close((uv_handle_t *)&host->poll, neap_uv_on_close);
	uv_close((uv_handle_t *)&host->timer, neap_uv_on_close);
}

static inline void neap_uv_on_timer(uv_timer_t *timer)
{
	struct neap_uv *host = (struct neap_uv *)timer->data;
	int result = neap_reactor_run_once(host->reactor, host->budget);
	if (uv_is_closing((uv_handle_t *)&host->poll)) /* neap_uv_stop in a callback */
		return;
	if (result < 0 || result == NEAP_RUN_STOPPED) {
		host->result = result;
		neap_uv_stop(host);
		return;
	}
	uint64_t deadline_ns = result == NEAP_RUN_MORE ? 0 : neap_reactor_deadline_ns(host->reactor);
	uv_update_time(host->timer.loop); /* its milliseconds are cached, and we round up from them */
	uint64_t now_ns = uv_hrtime();    /* CLOCK_MONOTONIC */
	if (deadline_ns == UINT64_MAX)
		(void)uv_timer_stop(&host->timer);
	else
		(void)uv_timer_start(&host->timer, neap_uv_on_timer, deadline_ns > now_ns ? (deadline_ns - now_ns + 999999) / 1000000 : 0, 0);
}

static inline void neap_uv_on_poll(uv_poll_t *poll, int status, int events)
{
	(void)status, (void)events;
	neap_uv_on_timer(&((struct neap_uv *)poll->data)->timer);
}

/* 0, or libuv's error. */
static inline int neap_uv_start(struct neap_uv *host, uv_loop_t *loop, struct neap_reactor *reactor,
                                void (*ended)(void *user, int result), void *user)
{
	int error = uv_poll_init(loop, &host->poll, neap_reactor_fd(reactor));
	if (error)
		return error;
	(void)uv_timer_init(loop, &host->timer); /* cannot fail */
	host->reactor = reactor, host->budget = NULL, host->ended = ended, host->user = user, host->result = 0, host->handles = 2;
	host->poll.data = host->timer.data = host;
	(void)uv_timer_start(&host->timer, neap_uv_on_timer, 0, 0); /* the first turn */
	return uv_poll_start(&host->poll, UV_READABLE, neap_uv_on_poll);
}

#endif
