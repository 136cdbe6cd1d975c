#include "apps/bench/histogram.h"

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		into->counts[i] += from->counts[i];
	into->total += from->total;
}

/* The middle of a bucket. */
static double bucket_ns(uint32_t bucket)
{
	if (bucket < 2 * HISTOGRAM_STEPS)
		return bucket;
	uint32_t shift = bucket / HISTOGRAM_STEPS - 1;
	uint64_t low = (uint64_t)(HISTOGRAM_STEPS + bucket % HISTOGRAM_STEPS) << shift;
	return (double)low + (double)(UINT64_C(1) << shift) / 2;
}

double histogram_quantile_us(const struct histogram *histogram, double fraction)
{
	uint64_t seen = 0;
	double wanted = (double)histogram->total * fraction;
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += histogram->counts[i];
		if (histogram->counts[i] && (double)seen >= wanted)
			return bucket_ns(i) / 1e3;
	}
	return 0;
}
