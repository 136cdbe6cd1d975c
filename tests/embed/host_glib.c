#include "tests/embed/host.h"

#include <neap/adapters/glib.h>
#include <stdlib.h>

const char *const host_name = "GLib";
const bool host_is_foreign = true;

static GMainContext *context;
static GMainLoop *loop;
static int running, last;
static GSource *sources[HOST_REACTORS_MAX];

void host_begin(void)
{
	context = g_main_context_new();
	loop = g_main_loop_new(context, FALSE);
	running = 0;
}

void host_end(void)
{
	g_main_loop_unref(loop);
	g_main_context_unref(context);
}

static void on_ended(void *user, int result)
{
	GSource **source = user;
	neap_glib_stop(*source);
	*source = NULL;
	last = result;
	if (--running == 0)
		g_main_loop_quit(loop);
}

void host_attach(struct neap_reactor *reactor, const struct neap_budget *budget)
{
	int i = sources[0] ? 1 : 0;
	sources[i] = neap_glib_start(context, reactor, on_ended, &sources[i]);
	((struct neap_glib *)sources[i])->budget = budget;
	running++;
}

void host_detach(struct neap_reactor *reactor)
{
	for (int i = 0; i < HOST_REACTORS_MAX; i++) {
		if (!sources[i] || ((struct neap_glib *)sources[i])->reactor != reactor)
			continue;
		neap_glib_stop(sources[i]);
		sources[i] = NULL;
		running--;
	}
}

struct host_timer {
	void (*run)(void *user);
	void *user;
};

static gboolean on_timer(gpointer user)
{
	struct host_timer *mine = user;
	mine->run(mine->user);
	return G_SOURCE_REMOVE;
}

void host_after_ms(unsigned ms, void (*run)(void *user), void *user)
{
	struct host_timer *mine = g_new0(struct host_timer, 1);
	GSource *source = g_timeout_source_new(ms);
	mine->run = run;
	mine->user = user;
	g_source_set_callback(source, on_timer, mine, g_free);
	g_source_attach(source, context);
	g_source_unref(source);
}

void host_break(void)
{
	g_main_loop_quit(loop);
}

int host_run(void)
{
	last = 0;
	g_main_loop_run(loop);
	return last;
}
