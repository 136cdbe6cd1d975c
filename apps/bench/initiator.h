/* The measuring side: opens the target's segment, runs the rows one after the other and reports them. */
#ifndef APPS_BENCH_INITIATOR_H
#define APPS_BENCH_INITIATOR_H

#include "apps/bench/options.h"
#include "apps/common/host.h"

/* Measures against that segment. An exit code. */
int bench_initiate(struct app_host *host, const struct bench_options *options, const char *segment, char *buffer);

#endif
