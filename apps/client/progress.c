#include "apps/client/command.h"
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LARGE (UINT64_C(8) << 20)
#define EVERY_NS UINT64_C(100000000)

static uint64_t monotonic_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void client_progress_begin(struct client_progress *progress, const char *what, uint64_t size, bool quiet)
{
	bool on = !quiet && size >= LARGE && isatty(STDERR_FILENO);
	*progress = (struct client_progress){.what = what, .size = size, .on = on, .began_ns = on ? monotonic_ns() : 0};
}

void client_progress_show(struct client_progress *progress, uint64_t done)
{
	uint64_t now_ns = progress->on ? monotonic_ns() : 0;
	if (!progress->on || now_ns - progress->shown_ns < EVERY_NS)
		return;
	progress->shown_ns = now_ns;
	double seconds = (double)(now_ns - progress->began_ns) * 1e-9;
	fprintf(stderr, "\r%s %3u%% %.1f of %.1f MiB, %.0f MiB/s\033[K", progress->what, (unsigned)(done * 100 / progress->size),
	        (double)done / 1048576, (double)progress->size / 1048576, seconds > 0 ? (double)done / 1048576 / seconds : 0);
	fflush(stderr);
}

void client_progress_end(struct client_progress *progress)
{
	if (progress->on && progress->shown_ns)
		fprintf(stderr, "\r\033[K");
	progress->on = false;
}
