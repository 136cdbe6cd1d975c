#include "apps/common/trace_dump.h"
#include <neap/trace.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int write_file(void *user, const void *bytes, size_t length)
{
	return fwrite(bytes, 1, length, user) == length ? 0 : NEAP_ESOCKET;
}

static void dump(struct ev_loop *loop, ev_signal *watcher, int events)
{
	const struct app_trace *trace = watcher->data;
	const struct neap_dispatcher *dispatcher = neap_reactor_dispatcher(trace->host->reactor);
	(void)loop, (void)events;
	if (!trace->path) {
		(void)neap_trace_write_text(dispatcher, write_file, stderr);
		return;
	}
	FILE *file = fopen(trace->path, "wbe");
	int error = file ? neap_trace_write_dump(dispatcher, write_file, file) : NEAP_ESOCKET;
	if (file && fclose(file))
		error = NEAP_ESOCKET;
	if (error)
		fprintf(stderr, "cannot write the trace to %s\n", trace->path);
	else
		fprintf(stderr, "trace written to %s; `neap-fsm trace %s` shows it\n", trace->path, trace->path);
}

void app_trace_start(struct app_trace *trace, struct app_host *host, const char *path)
{
	trace->host = host;
	trace->path = path;
	ev_signal_init(&trace->on_request, dump, SIGUSR1);
	trace->on_request.data = trace;
	ev_signal_start(host->loop, &trace->on_request);
	ev_unref(host->loop); /* it alone shall not keep the loop */
}

void app_trace_stop(struct app_trace *trace)
{
	if (!trace->host)
		return;
	ev_ref(trace->host->loop);
	ev_signal_stop(trace->host->loop, &trace->on_request);
	trace->host = NULL;
}
