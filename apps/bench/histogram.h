/* Latencies: logarithmic buckets with 64 steps per octave (0.8 % wide on average), so that a quantile costs no memory per
 * request. */
#ifndef APPS_BENCH_HISTOGRAM_H
#define APPS_BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEPS 64u
#define HISTOGRAM_BUCKETS (HISTOGRAM_STEPS * 44u) /* up to 2^49 ns */

struct histogram {
	uint64_t counts[HISTOGRAM_BUCKETS];
	uint64_t total;
};

static inline uint32_t histogram_bucket(uint64_t ns)
{
	if (ns < 2 * HISTOGRAM_STEPS)
		return (uint32_t)ns;
	uint32_t shift = 57u - (uint32_t)__builtin_clzll(ns); /* leaves 7 significant bits: 64..127 */
	uint32_t bucket = shift * HISTOGRAM_STEPS + (uint32_t)(ns >> shift);
	return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static inline void histogram_add(struct histogram *histogram, uint64_t ns)
{
	histogram->counts[histogram_bucket(ns)]++;
	histogram->total++;
}

void histogram_merge(struct histogram *into, const struct histogram *from);
/* The latency, in microseconds, that `fraction` of all stay at or below. 0 when empty. */
double histogram_quantile_us(const struct histogram *histogram, double fraction);

#endif
