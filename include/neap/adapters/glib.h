/* Neap in a GLib main context. docs/EMBEDDING.md
 *
 *     GSource *source = neap_glib_start(g_main_context_default(), reactor, ended, user);
 *     g_main_loop_run(loop);
 *
 * Set neap_reactor_options.host_keeps_deadline: the source's ready time keeps it. */
#ifndef NEAP_ADAPTERS_GLIB_H
#define NEAP_ADAPTERS_GLIB_H

#include <glib-unix.h>
#include <glib.h>
#include <neap/reactor.h>

struct neap_glib {
	GSource source; /* first: GLib allocates and frees it */
	struct neap_reactor *reactor;
	const struct neap_budget *budget; /* of each turn; NULL: the default. May be set at any time */
	void (*ended)(void *user, int result); /* once, when the reactor has STOPPED or failed; the source is then removed. May be NULL */
	void *user;
};

static inline gboolean neap_glib_dispatch(GSource *source, GSourceFunc callback, gpointer data)
{
	struct neap_glib *host = (struct neap_glib *)source;
	(void)callback, (void)data;
	int result = neap_reactor_run_once(host->reactor, host->budget);
	if (g_source_is_destroyed(source)) /* neap_glib_stop in a callback of ours */
		return G_SOURCE_REMOVE;
	if (result < 0 || result == NEAP_RUN_STOPPED) {
		g_source_destroy(source);
		if (host->ended)
			host->ended(host->user, result);
		return G_SOURCE_REMOVE;
	}
	uint64_t deadline_ns = result == NEAP_RUN_MORE ? 0 : neap_reactor_deadline_ns(host->reactor);
	/* Microseconds of CLOCK_MONOTONIC, rounded up; 0 is at once, -1 never. */
	g_source_set_ready_time(source, deadline_ns == UINT64_MAX ? -1 : (gint64)(deadline_ns / 1000 + (deadline_ns % 1000 != 0)));
	return G_SOURCE_CONTINUE;
}

/* The source belongs to the context; the caller holds a reference until neap_glib_stop. */
static inline GSource *neap_glib_start(GMainContext *context, struct neap_reactor *reactor,
                                       void (*ended)(void *user, int result), void *user)
{
	static GSourceFuncs functions = {NULL, NULL, neap_glib_dispatch, NULL, NULL, NULL};
	GSource *source = g_source_new(&functions, sizeof(struct neap_glib));
	struct neap_glib *host = (struct neap_glib *)source;
	host->reactor = reactor;
	host->budget = NULL;
	host->ended = ended;
	host->user = user;
	g_source_set_name(source, "neap");
	g_source_add_unix_fd(source, neap_reactor_fd(reactor), G_IO_IN);
	g_source_set_ready_time(source, 0); /* the first turn */
	g_source_attach(source, context);
	return source;
}

/* Before the reactor is destroyed. Allowed in callbacks. */
static inline void neap_glib_stop(GSource *source)
{
	g_source_destroy(source);
	g_source_unref(source);
}

#endif
