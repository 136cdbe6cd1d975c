/* The target of --mode=pair: this program again, as a child process that ends with us. */
#ifndef APPS_BENCH_PAIR_H
#define APPS_BENCH_PAIR_H

#include "apps/bench/options.h"
#include "apps/common/host.h"

struct bench_pair {
	struct app_host *host;
	pid_t pid;
	int out; /* its standard output */
	ev_io readable;
	ev_child died;
	bool told, ended; /* its `segment` line has come or never will; it is gone */
	char line[1024];
	size_t line_length;
	char segment[512];
};

/* Starts it and waits for its segment line. 0, or -1 with `why`; its own messages have gone to stderr. */
int bench_pair_start(struct bench_pair *pair, struct app_host *host, const struct bench_options *options, char *why,
                     size_t why_size);
/* Ends it and waits for its end. */
void bench_pair_stop(struct bench_pair *pair);

#endif
