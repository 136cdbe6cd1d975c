#include "apps/bench/report.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 720.0
#define HEIGHT 420.0
#define LEFT 70.0
#define RIGHT 690.0
#define TOP 40.0
#define BOTTOM 360.0

struct scale {
	double low_log2, high_log2, high; /* of x and y */
};

static double place_x(const struct scale *scale, uint64_t block)
{
	double span = scale->high_log2 - scale->low_log2;
	return LEFT + (span > 0 ? (log2((double)block) - scale->low_log2) / span : 0.5) * (RIGHT - LEFT);
}

static double place_y(const struct scale *scale, double gb_per_s)
{
	return BOTTOM - gb_per_s / scale->high * (BOTTOM - TOP);
}

/* The axis ends at 1, 2 or 5 times a power of ten above the largest value. */
static double round_up(double value)
{
	double power = 1e-3;
	for (;;) {
		static const double steps[] = {1, 2, 5};
		for (int i = 0; i < 3; i++)
			if (steps[i] * power >= value)
				return steps[i] * power;
		power *= 10;
	}
}

static struct scale scale_of(const struct bench_row *rows, uint32_t count)
{
	struct scale scale = {.low_log2 = 64};
	for (uint32_t i = 0; i < count; i++) {
		double x = log2((double)rows[i].block_size);
		scale.low_log2 = fmin(scale.low_log2, x);
		scale.high_log2 = fmax(scale.high_log2, x);
		scale.high = fmax(scale.high, rows[i].gb_per_s);
	}
	scale.high = round_up(scale.high);
	return scale;
}

static int by_block(const void *a, const void *b)
{
	uint64_t x = ((const struct bench_row *)a)->block_size, y = ((const struct bench_row *)b)->block_size;
	return (x > y) - (x < y);
}

static void draw_axes(FILE *file, const struct scale *scale, const struct bench_row *rows, uint32_t count)
{
	for (int i = 0; i <= 5; i++) {
		double value = scale->high * i / 5, y = place_y(scale, value);
		fprintf(file, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='#ddd'/>\n", LEFT, y, RIGHT, y);
		fprintf(file, "<text x='%.1f' y='%.1f' text-anchor='end'>%g</text>\n", LEFT - 8, y + 4, value);
	}
	for (uint32_t i = 0; i < count; i++) {
		bool drawn = false;
		for (uint32_t j = 0; j < i; j++)
			drawn |= rows[j].block_size == rows[i].block_size;
		char text[32];
		if (!drawn)
			fprintf(file, "<text x='%.1f' y='%.1f' text-anchor='middle'>%s</text>\n", place_x(scale, rows[i].block_size),
			        BOTTOM + 20, app_size_format(rows[i].block_size, text, sizeof text));
	}
	fprintf(file, "<text x='%.1f' y='%.1f' text-anchor='middle'>block size</text>\n", (LEFT + RIGHT) / 2, BOTTOM + 44);
	fprintf(file, "<text x='20' y='%.1f' text-anchor='middle' transform='rotate(-90 20 %.1f)'>GB/s</text>\n", (TOP + BOTTOM) / 2,
	        (TOP + BOTTOM) / 2);
}

static void draw_line(FILE *file, const struct scale *scale, const struct bench_row *rows, uint32_t count, const char *operation,
                      int index)
{
	static const char *const colours[] = {"#1f6fb4", "#d1602c"};
	bool any = false;
	fprintf(file, "<polyline fill='none' stroke='%s' stroke-width='2' points='", colours[index]);
	for (uint32_t i = 0; i < count; i++)
		if (!strcmp(rows[i].operation, operation)) {
			fprintf(file, "%.1f,%.1f ", place_x(scale, rows[i].block_size), place_y(scale, rows[i].gb_per_s));
			any = true;
		}
	fprintf(file, "'/>\n");
	for (uint32_t i = 0; i < count; i++)
		if (!strcmp(rows[i].operation, operation))
			fprintf(file, "<circle cx='%.1f' cy='%.1f' r='3.5' fill='%s'><title>%s: %.3f GB/s</title></circle>\n",
			        place_x(scale, rows[i].block_size), place_y(scale, rows[i].gb_per_s), colours[index], operation,
			        rows[i].gb_per_s);
	if (any)
		fprintf(file, "<text x='%.1f' y='%.1f' fill='%s'>%s</text>\n", LEFT + 10 + 70.0 * index, TOP - 14, colours[index],
		        operation);
}

int bench_plot(const char *path, const struct bench_row *measured, uint32_t count, char *why, size_t why_size)
{
	struct bench_row rows[BENCH_ROWS_MAX];
	memcpy(rows, measured, count * sizeof *rows);
	qsort(rows, count, sizeof *rows, by_block);
	FILE *file = fopen(path, "we");
	if (!file) {
		snprintf(why, why_size, "cannot write %s: %s", path, strerror(errno));
		return -1;
	}
	struct scale scale = scale_of(rows, count);
	fprintf(file,
	        "<svg xmlns='http://www.w3.org/2000/svg' width='%g' height='%g' font-family='sans-serif' font-size='13'>\n"
	        "<rect width='100%%' height='100%%' fill='white'/>\n",
	        WIDTH, HEIGHT);
	draw_axes(file, &scale, rows, count);
	draw_line(file, &scale, rows, count, "write", 0);
	draw_line(file, &scale, rows, count, "read", 1);
	fprintf(file, "</svg>\n");
	if (fclose(file)) {
		snprintf(why, why_size, "cannot write %s: %s", path, strerror(errno));
		return -1;
	}
	return 0;
}
