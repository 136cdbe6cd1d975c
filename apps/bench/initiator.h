/* The measuring side: opens the target's segment, runs the rows one after the other and reports them. */
#ifndef APPS_BENCH_INITIATOR_H
#define APPS_BENCH_INITIATOR_H

#include "apps/bench/options.h"
#include "apps/common/host.h"

struct bench_initiator;
struct bench_initiator *bench_initiator_new(struct app_host *host, const struct bench_options *options, char *buffer);
/* Measures against that segment. An exit code. */
int bench_initiate(struct bench_initiator *initiator, const char *segment);
/* After the host is closed: until then the engine may still call back about what a signal has interrupted. */
void bench_initiator_free(struct bench_initiator *initiator);

#endif
