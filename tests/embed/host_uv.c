#include "tests/embed/host.h"

#include <neap/adapters/uv.h>
#include <stdlib.h>

const char *const host_name = "libuv";
const bool host_is_foreign = true;

static uv_loop_t loop;
static int running, last;
static struct neap_uv *adapters[HOST_REACTORS_MAX];

void host_begin(void)
{
	if (uv_loop_init(&loop))
		abort();
	running = 0;
}

static void close_handle(uv_handle_t *handle, void *unused)
{
	(void)unused;
	if (!uv_is_closing(handle)) /* timers of the test that did not fire */
		uv_close(handle, (uv_close_cb)free);
}

void host_end(void)
{
	uv_walk(&loop, close_handle, NULL);
	while (uv_run(&loop, UV_RUN_DEFAULT) != 0)
		;
	if (uv_loop_close(&loop)) /* EBUSY: the adapter left a handle behind */
		abort();
}

static void on_ended(void *user, int result)
{
	struct neap_uv *adapter = user;
	for (int i = 0; i < HOST_REACTORS_MAX; i++)
		if (adapters[i] == adapter)
			adapters[i] = NULL;
	free(adapter);
	if (result == 0) /* detached */
		return;
	last = result;
	if (--running == 0)
		uv_stop(&loop);
}

void host_attach(struct neap_reactor *reactor, const struct neap_budget *budget)
{
	int i = adapters[0] ? 1 : 0;
	adapters[i] = calloc(1, sizeof(*adapters[i]));
	running++;
	if (neap_uv_start(adapters[i], &loop, reactor, on_ended, adapters[i]))
		abort();
	adapters[i]->budget = budget;
}

void host_detach(struct neap_reactor *reactor)
{
	for (int i = 0; i < HOST_REACTORS_MAX; i++) {
		if (!adapters[i] || adapters[i]->reactor != reactor)
			continue;
		running--;
		neap_uv_stop(adapters[i]);
		adapters[i] = NULL; /* on_ended frees it */
	}
}

struct host_timer {
	uv_timer_t timer; /* first: freed by its handle */
	void (*run)(void *user);
	void *user;
};

static void on_timer(uv_timer_t *timer)
{
	struct host_timer *mine = (struct host_timer *)timer;
	mine->run(mine->user);
	uv_close((uv_handle_t *)timer, (uv_close_cb)free);
}

void host_after_ms(unsigned ms, void (*run)(void *user), void *user)
{
	struct host_timer *mine = calloc(1, sizeof(*mine));
	mine->run = run;
	mine->user = user;
	uv_timer_init(&loop, &mine->timer);
	uv_update_time(&loop);
	uv_timer_start(&mine->timer, on_timer, ms, 0);
}

void host_break(void)
{
	uv_stop(&loop);
}

int host_run(void)
{
	last = 0;
	uv_run(&loop, UV_RUN_DEFAULT);
	return last;
}
