#include "apps/client/replay.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void client_figures_note(struct client_figures *figures, int error)
{
	const char *name = error <= NEAP_EAGAIN ? neap_error_name(error) : neap_store_error_name(error);
	for (uint32_t i = 0; i < CLIENT_REASONS_MAX; i++) {
		if (figures->reasons[i].name && strcmp(figures->reasons[i].name, name) != 0)
			continue;
		figures->reasons[i].name = name;
		figures->reasons[i].count++;
		return;
	}
}

static double hit_rate(const struct client_figures *figures)
{
	return figures->blocks ? 100. * (double)figures->hits / (double)figures->blocks : 0;
}

static double gigabytes_a_second(const struct client_figures *figures)
{
	return figures->seconds > 0 ? (double)figures->bytes / figures->seconds * 1e-9 : 0;
}

void client_figures_progress(const struct client_figures *figures, const char *direction, uint64_t total)
{
	fprintf(stderr,
	        "\r%-7s %3u%% %8" PRIu64 " blocks, %4.1f%% hits, %.2f GB/s, p50 get %.0f us put %.0f us, %" PRIu64 " failed, %" PRIu64
	        " wrong\033[K",
	        direction, (unsigned)(figures->blocks * 100 / total), figures->blocks, hit_rate(figures), gigabytes_a_second(figures),
	        histogram_quantile_us(&figures->gets, 0.5), histogram_quantile_us(&figures->puts, 0.5),
	        figures->failed_gets + figures->failed_puts + figures->unknown, figures->wrong);
	fflush(stderr);
}

void client_figures_print(const struct client_figures *figures, const char *const *directions, uint32_t count)
{
	printf("direction   blocks  hit rate   stored  failed get/put  wrong   GB/s  blocks/s  get p50/p99 us   put p50/p99 us\n");
	for (uint32_t i = 0; i < count; i++) {
		const struct client_figures *f = &figures[i];
		printf("%-9s %8" PRIu64 "  %7.1f%% %8" PRIu64 "  %6" PRIu64 " / %-5" PRIu64 " %6" PRIu64 " %6.2f  %8.0f"
		       "  %6.0f / %-6.0f  %6.0f / %-6.0f\n",
		       directions[i], f->blocks, hit_rate(f), f->stored, f->failed_gets, f->failed_puts + f->unknown, f->wrong,
		       gigabytes_a_second(f), f->seconds > 0 ? (double)f->blocks / f->seconds : 0, histogram_quantile_us(&f->gets, 0.5),
		       histogram_quantile_us(&f->gets, 0.99), histogram_quantile_us(&f->puts, 0.5), histogram_quantile_us(&f->puts, 0.99));
	}
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t r = 0; r < CLIENT_REASONS_MAX && figures[i].reasons[r].name; r++)
			printf("%s: %" PRIu64 " times %s\n", directions[i], figures[i].reasons[r].count, figures[i].reasons[r].name);
}

void client_figures_json(const struct client_figures *f, const char *direction)
{
	printf("{\"direction\": \"%s\", \"blocks\": %" PRIu64 ", \"hits\": %" PRIu64 ", \"misses\": %" PRIu64 ", \"stored\": %" PRIu64
	       ", \"present\": %" PRIu64 ", \"failed_gets\": %" PRIu64 ", \"failed_puts\": %" PRIu64 ", \"unknown\": %" PRIu64
	       ", \"wrong\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"seconds\": %.3f, \"get_p50_us\": %.1f, \"get_p99_us\": %.1f"
	       ", \"put_p50_us\": %.1f, \"put_p99_us\": %.1f, \"retries\": %" PRIu64 "}\n",
	       direction, f->blocks, f->hits, f->misses, f->stored, f->present, f->failed_gets, f->failed_puts, f->unknown, f->wrong, f->bytes,
	       f->seconds, histogram_quantile_us(&f->gets, 0.5), histogram_quantile_us(&f->gets, 0.99), histogram_quantile_us(&f->puts, 0.5),
	       histogram_quantile_us(&f->puts, 0.99), f->retries);
}
