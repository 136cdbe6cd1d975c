#include "store/latency.h"

const uint32_t neap_latency_bounds_us[NEAP_LATENCY_BUCKETS - 1] = {
	125, 150, 200, 250, 300, 400, 500, 750, 1000, 1500, 2000, 3000, 5000, 7000, 15000, 20000, 50000, 100000, 200000, 500000, 1000000,
};

void neap_latency_note(struct neap_latency *latency, uint64_t ns)
{
	uint64_t us = ns / 1000;
	uint32_t bucket = 0;
	while (bucket < NEAP_LATENCY_BUCKETS - 1 && us > neap_latency_bounds_us[bucket])
		bucket++;
	latency->count++;
	latency->sum_us += us;
	latency->buckets[bucket]++;
}
