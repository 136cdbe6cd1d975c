/* Rows: what was measured, as a table, as JSON and as a picture. */
#ifndef APPS_BENCH_REPORT_H
#define APPS_BENCH_REPORT_H

#include "apps/bench/options.h"
#include <stdio.h>

enum bench_verified { BENCH_NOT_VERIFIED, BENCH_EQUAL, BENCH_DIFFERENT };

struct bench_row {
	const char *operation;
	uint64_t block_size, batch_size;
	double seconds;
	uint64_t requests; /* completed in `seconds` */
	double gb_per_s, requests_per_s;
	double p50_us, p99_us, p999_us;
	double cpu_initiator, cpu_target;     /* CPU seconds per GiB; negative: not known */
	double calls_initiator, calls_target; /* system calls per request; negative: not known */
	enum bench_verified verified;
	uint64_t failed;
};

#define BENCH_ROWS_MAX (2u * APP_LIST_MAX)

void bench_table_head(FILE *file, const struct bench_options *options, const char *peer);
void bench_table_row(FILE *file, const struct bench_row *row);
void bench_json_row(FILE *file, const struct bench_options *options, const struct bench_row *row);

/* 0, or -1 with `why`. */
int bench_plot(const char *path, const struct bench_row *measured, uint32_t count, char *why, size_t why_size);

#endif
