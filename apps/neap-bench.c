/* A load generator for the transfer engine, as target, as initiator, or as both in two processes. */
#include "apps/bench/figures.h"
#include "apps/bench/initiator.h"
#include "apps/bench/options.h"
#include "apps/bench/pair.h"
#include "apps/common/memory.h"
#include "apps/common/pattern.h"
#include <string.h>

static int serve(struct app_host *host, const struct bench_options *options, char *buffer)
{
	static struct bench_threads threads; /* both are called back until the engine is closed */
	static struct bench_answers answers;
	char why[512];
	int result = -1;
	if (bench_threads_start(&threads, host, (uint32_t)options->threads - 1, bench_reactor_mode(options), options->pin ? 3 : -1, 2,
	                        why, sizeof why)) {
		app_error(&bench_program, "%s", why);
		result = APP_START;
	} else {
		bench_answers_begin(&answers, host, &threads);
		result = app_publish(&bench_program, host, options->node.publish_seconds);
		if (result < 0)
			result = app_announce(&bench_program, host->engine, buffer, options->buffer_size, options->ready_file);
	}
	if (result < 0) {
		bool never = false;
		app_host_wait(host, &never, 0); /* until a signal */
		result = APP_OK;
	}
	neap_notify_watch(host->engine, NULL, NULL);
	bench_threads_stop(&threads);
	return result;
}

static int run_pair(struct app_host *host, const struct bench_options *options, struct bench_initiator *initiator)
{
	struct bench_pair pair;
	char why[512];
	if (bench_pair_start(&pair, host, options, why, sizeof why)) {
		app_error(&bench_program, "%s", why);
		return APP_START;
	}
	int result = bench_initiate(initiator, pair.segment);
	bench_pair_stop(&pair);
	return result;
}

static char *make_buffer(struct app_host *host, const struct bench_options *options)
{
	char why[512];
	char *buffer = app_memory_map(options->buffer_size, true, why, sizeof why);
	if (!buffer) {
		app_error(&bench_program, "%s", why);
		return NULL;
	}
	app_pattern_fill(buffer, 0, options->buffer_size, 0); /* pages of zeroes would be shared, and cached, as one */
	return app_register(&bench_program, host, &options->node, buffer, options->buffer_size) < 0 ? buffer : NULL;
}

int main(int argc, char **argv)
{
	struct bench_options *options;
	struct neap_engine_options engine = {0};
	struct app_host host;
	char why[512];
	int result = bench_options_parse(&options, argc, argv);
	if (result < 0)
		result = bench_engine_options(options, &engine);
	if (result >= 0)
		return result;
	bool target = !strcmp(options->mode, "target");
	if (options->pin)
		bench_pin(target ? 1 : 0);
	struct app_host_options host_options = {.mode = bench_reactor_mode(options), .engine = &engine};
	if (app_host_open(&host, &host_options, why, sizeof why)) {
		app_error(&bench_program, "%s", why);
		return APP_START;
	}
	char *buffer = make_buffer(&host, options);
	struct bench_initiator *initiator = buffer && !target ? bench_initiator_new(&host, options, buffer) : NULL;
	if (!buffer || (!target && !initiator))
		result = APP_START;
	else if (target)
		result = serve(&host, options, buffer);
	else if (!strcmp(options->mode, "pair"))
		result = run_pair(&host, options, initiator);
	else
		result = bench_initiate(initiator, options->segment_id);
	app_host_close(&host);
	bench_initiator_free(initiator);
	app_memory_unmap(buffer, options->buffer_size);
	return result;
}
