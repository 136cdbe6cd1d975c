#include "apps/bench/options.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct bench_options given = {
	.node = APP_NODE_DEFAULTS,
	.mode = "pair",
	.operation = "write,read",
	.block_size = {{4096, 65536, 1048576}, 3},
	.threads = 1,
	.lanes = 1,
	.repeat = 1,
	.buffer_size = UINT64_C(1) << 30,
	.duration = 2,
	.warmup = 0.2,
	.framing = "neap",
	.congestion = "auto",
};

static const struct app_flag flags[] = {
	{"mode", APP_FLAG_CHOICE, &given.mode, "pair|target|initiator", 0, 0, "pair: also start the target, as a second process"},
	APP_NODE_FLAGS(given.node),
	{"segment_id", APP_FLAG_TEXT, &given.segment_id, NULL, 0, 0, "initiator: the segment to open, as the target prints it"},
	{"operation", APP_FLAG_CHOICES, &given.operation, "write|read", 0, 0, "what to measure"},
	{"block_size", APP_FLAG_SIZES, &given.block_size, NULL, 1, UINT64_C(1) << 40, "bytes of one request; several: a row each"},
	{"batch_size", APP_FLAG_SIZES, &given.batch_size, "=N,...", 1, 100000,
	 "requests outstanding, one for all rows or one "
	 "for each block size; not given: 128 up to 16 KiB, 16 above"},
	{"threads", APP_FLAG_NUMBER, &given.threads, NULL, 1, 64, "reactors, each on a thread of its own"},
	{"lanes", APP_FLAG_NUMBER, &given.lanes, NULL, 1, 16, "connections of each reactor to the target"},
	{"duration", APP_FLAG_SECONDS, &given.duration, NULL, 0, 86400, "how long each row is measured"},
	{"warmup", APP_FLAG_SECONDS, &given.warmup, NULL, 0, 3600, "how long each row runs before that"},
	{"buffer_size", APP_FLAG_SIZE, &given.buffer_size, NULL, 4096, UINT64_C(1) << 46, "memory on each side"},
	{"repeat", APP_FLAG_NUMBER, &given.repeat, NULL, 1, 1000000, "run all rows so many times"},
	{"step", APP_FLAG_SWITCH, &given.step, NULL, 0, 0, "wait for a line on standard input before each row"},
	{"wait_batch", APP_FLAG_SWITCH, &given.wait_batch, NULL, 0, 0,
	 "submit a batch, wait for all of it, submit the next, as Mooncake's benchmark does; "
	 "without it each completed request is replaced at once"},
	{"hot", APP_FLAG_SWITCH, &given.hot, NULL, 0, 0, "use a small part of the buffers, which stays in the CPU's caches"},
	{"verify", APP_FLAG_SWITCH, &given.verify, NULL, 0, 0, "compare every byte that was moved, after each row"},
	{"framing", APP_FLAG_CHOICE, &given.framing, "neap|v2|v1", 0, 0,
	 "the wire: Neap's own level, or Mooncake's acknowledged or older framing"},
	{"congestion", APP_FLAG_TEXT, &given.congestion, NULL, 0, 0, "TCP congestion control: auto, system, or a name"},
	{"busy", APP_FLAG_SWITCH, &given.busy, NULL, 0, 0, "never sleep: lower latency for a whole core on each side"},
	{"pin", APP_FLAG_SWITCH, &given.pin, NULL, 0, 0, "keep initiator threads and target threads on CPUs of their own"},
	{"progress_timeout_ms", APP_FLAG_NUMBER, &given.progress_ms, NULL, 0, 3600000,
	 "give up on a peer that moves no byte for so long; "
	 "0: MC_TCP_STATUS_TIMEOUT_SEC or 30000"},
	{"json", APP_FLAG_SWITCH, &given.json, NULL, 0, 0, "print one JSON object for each row instead of the table"},
	{"plot", APP_FLAG_TEXT, &given.plot, NULL, 0, 0, "draw throughput against block size into this SVG file"},
	{"ready_file", APP_FLAG_TEXT, &given.ready_file, NULL, 0, 0, "target: write the segment's name here once it can be opened"},
	{"quiet", APP_FLAG_SWITCH, &given.quiet, NULL, 0, 0, "no progress line"},
};

const struct app_program bench_program = {
	.name = "neap-bench",
	.purpose = "Measures transfers between two processes: throughput, latency, CPU and system calls.",
	.examples = "One command on one machine:\n"
	            "  neap-bench --verify\n"
	            "Two machines:\n"
	            "  a$ neap-bench --mode=target --local_server_name=10.0.0.1\n"
	            "  b$ neap-bench --mode=initiator --local_server_name=10.0.0.2 --segment_id=10.0.0.1:15234\n",
	.flags = flags,
	.flag_count = sizeof flags / sizeof flags[0],
};

/* Better now than after the measurement. */
static bool can_write(const char *path)
{
	FILE *file = fopen(path, "ae");
	if (!file)
		app_error(&bench_program, "--plot=%s cannot be written: %s", path, strerror(errno));
	return file && fclose(file) == 0;
}

static int check(const struct bench_options *o)
{
	if (!strcmp(o->mode, "initiator") && !o->segment_id) {
		app_error(&bench_program, "--mode=initiator needs --segment_id=NAME: the name that the target prints after `segment`; "
		                          "--mode=pair starts a target by itself");
		return APP_USAGE;
	}
	if (strcmp(o->mode, "initiator") && o->segment_id) {
		app_error(&bench_program, "--segment_id=%s is for --mode=initiator; --mode=%s measures a target of its own", o->segment_id,
		          o->mode);
		return APP_USAGE;
	}
	if (o->plot && !can_write(o->plot))
		return APP_USAGE;
	if (o->batch_size.count > 1 && o->batch_size.count != o->block_size.count) {
		app_error(&bench_program,
		          "--batch_size has %" PRIu32 " values for %" PRIu32 " of --block_size; give one, or one for each",
		          o->batch_size.count, o->block_size.count);
		return APP_USAGE;
	}
	for (uint32_t i = 0; i < o->block_size.count; i++)
		if (o->block_size.values[i] > o->buffer_size) {
			app_error(&bench_program, "--block_size=%" PRIu64 " does not fit into --buffer_size=%" PRIu64,
			          o->block_size.values[i], o->buffer_size);
			return APP_USAGE;
		}
	return -1;
}

int bench_options_parse(struct bench_options **options_p, int argc, char **argv)
{
	*options_p = &given;
	int result = app_flags_parse(&bench_program, argc, argv);
	return result >= 0 ? result : check(&given);
}

uint64_t bench_batch_size(const struct bench_options *options, uint32_t row)
{
	if (!options->batch_size.count)
		return options->block_size.values[row] <= 16384 ? 128 : 16;
	return options->batch_size.values[options->batch_size.count == 1 ? 0 : row];
}

int bench_engine_options(struct bench_options *options, struct neap_engine_options *engine)
{
	int result = app_node_options(&bench_program, &options->node, engine);
	if (result >= 0)
		return result;
	engine->lanes_per_peer = (uint32_t)options->lanes;
	engine->congestion = options->congestion;
	if (strcmp(options->framing, "neap"))
		engine->plain_only = true;
	if (!strcmp(options->framing, "v1"))
		engine->v1_only = true;
	if (options->progress_ms)
		engine->progress_timeout_ms = (uint32_t)options->progress_ms;
	return -1;
}

enum neap_reactor_mode bench_reactor_mode(const struct bench_options *options)
{
	return options->busy ? NEAP_MODE_BUSY : NEAP_MODE_EVENT;
}
