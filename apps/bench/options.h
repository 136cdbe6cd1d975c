/* What neap-bench was asked to do. */
#ifndef APPS_BENCH_OPTIONS_H
#define APPS_BENCH_OPTIONS_H

#include "apps/common/flags.h"
#include "apps/common/serve.h"
#include <neap/reactor.h>

#define BENCH_PAGE UINT64_C(4096) /* random offsets are multiples of it */

struct bench_options {
	struct app_node node;
	const char *mode; /* target, initiator, pair */
	const char *segment_id;
	const char *operation; /* comma list */
	struct app_sizes block_size, batch_size;
	uint64_t threads, lanes, buffer_size, progress_ms, repeat;
	double duration, warmup;
	bool wait_batch, verify, json, hot, busy, pin, quiet, step;
	const char *framing, *congestion, *plot, *ready_file;
};

extern const struct app_program bench_program;

/* -1 to go on, or an exit code. */
int bench_options_parse(struct bench_options **options_p, int argc, char **argv);
uint64_t bench_batch_size(const struct bench_options *options, uint32_t row);
int bench_engine_options(struct bench_options *options, struct neap_engine_options *engine);
enum neap_reactor_mode bench_reactor_mode(const struct bench_options *options);

#endif
