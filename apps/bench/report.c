#include "apps/bench/report.h"
#include <inttypes.h>

void bench_table_head(FILE *file, const struct bench_options *o, const char *peer)
{
	char buffer[32];
	fprintf(file,
	        "# %s, framing %s, congestion control %s, %" PRIu64 " thread%s, %" PRIu64
	        " lane%s, %s, %s memory of %s each side%s\n",
	        peer, o->framing, o->congestion, o->threads, o->threads == 1 ? "" : "s", o->lanes, o->lanes == 1 ? "" : "s",
	        o->wait_batch ? "batch and wait" : "pipelined", o->hot ? "hot" : "cold",
	        app_size_format(o->buffer_size, buffer, sizeof buffer), o->busy ? ", busy" : "");
	fprintf(file, "# CPU: seconds per GiB; calls: system calls per request; i/t: initiator / target\n");
	fprintf(file, "%-5s %9s %6s %8s %10s %9s %9s %9s %6s %6s %7s %7s  %s\n", "", "block", "batch", "GB/s", "requests/s", "p50 us",
	        "p99 us", "p99.9 us", "CPU i", "CPU t", "calls i", "calls t", "verified");
	fflush(file);
}

static const char *figure(char *text, size_t size, double value, int digits)
{
	if (value < 0)
		snprintf(text, size, "-");
	else
		snprintf(text, size, "%.*f", digits, value);
	return text;
}

static const char *const verified_words[] = {"-", "equal", "DIFFERENT"};

void bench_table_row(FILE *file, const struct bench_row *row)
{
	char block[32], a[32], b[32], c[32], d[32];
	fprintf(file, "%-5s %9s %6" PRIu64 " %8.3f %10.0f %9.1f %9.1f %9.1f %6s %6s %7s %7s  %s", row->operation,
	        app_size_format(row->block_size, block, sizeof block), row->batch_size, row->gb_per_s, row->requests_per_s,
	        row->p50_us, row->p99_us, row->p999_us, figure(a, sizeof a, row->cpu_initiator, 3),
	        figure(b, sizeof b, row->cpu_target, 3), figure(c, sizeof c, row->calls_initiator, 3),
	        figure(d, sizeof d, row->calls_target, 3), verified_words[row->verified]);
	if (row->failed)
		fprintf(file, "  %" PRIu64 " FAILED", row->failed);
	fputc('\n', file);
	fflush(file);
}

static const char *json_figure(char *text, size_t size, double value)
{
	if (value < 0)
		snprintf(text, size, "null");
	else
		snprintf(text, size, "%.6g", value);
	return text;
}

void bench_json_row(FILE *file, const struct bench_options *o, const struct bench_row *row)
{
	static const char *const verified[] = {"null", "true", "false"};
	char a[32], b[32], c[32], d[32];
	fprintf(file,
	        "{\"operation\":\"%s\",\"block_size\":%" PRIu64 ",\"batch_size\":%" PRIu64 ",\"threads\":%" PRIu64
	        ",\"lanes\":%" PRIu64 ",\"gb_per_s\":%.6g,\"requests_per_s\":%.6g,\"p50_us\":%.6g,\"p99_us\":%.6g,\"p999_us\":%.6g",
	        row->operation, row->block_size, row->batch_size, o->threads, o->lanes, row->gb_per_s, row->requests_per_s,
	        row->p50_us, row->p99_us, row->p999_us);
	fprintf(file,
	        ",\"cpu_s_per_gib_initiator\":%s,\"cpu_s_per_gib_target\":%s,\"syscalls_per_request\":%s,\"syscalls_per_request_"
	        "target\":%s",
	        json_figure(a, sizeof a, row->cpu_initiator), json_figure(b, sizeof b, row->cpu_target),
	        json_figure(c, sizeof c, row->calls_initiator), json_figure(d, sizeof d, row->calls_target));
	fprintf(file,
	        ",\"verified\":%s,\"failed\":%" PRIu64 ",\"requests\":%" PRIu64
	        ",\"seconds\":%.6g,\"framing\":\"%s\",\"wait_batch\":%s}\n",
	        verified[row->verified], row->failed, row->requests, row->seconds, o->framing, o->wait_batch ? "true" : "false");
	fflush(file);
}
