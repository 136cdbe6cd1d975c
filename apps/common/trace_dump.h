/* SIGUSR1 writes the trace of the process's machines, without stopping it. */
#ifndef APPS_COMMON_TRACE_DUMP_H
#define APPS_COMMON_TRACE_DUMP_H

#include "apps/common/host.h"

struct app_trace {
	struct app_host *host;
	const char *path; /* a dump for `neap-fsm trace`; NULL: as text to standard error */
	ev_signal on_request;
};

void app_trace_start(struct app_trace *trace, struct app_host *host, const char *path);
void app_trace_stop(struct app_trace *trace);

#endif
