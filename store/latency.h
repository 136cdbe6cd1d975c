/* How long things took, in the buckets that the store's metrics have. */
#ifndef NEAP_STORE_LATENCY_H
#define NEAP_STORE_LATENCY_H

#include <stdint.h>

#define NEAP_LATENCY_BUCKETS 22u /* the last one: everything above */
/* Upper bounds of all but the last, in microseconds. */
extern const uint32_t neap_latency_bounds_us[NEAP_LATENCY_BUCKETS - 1];

struct neap_latency {
	uint64_t count, sum_us, buckets[NEAP_LATENCY_BUCKETS]; /* not cumulative */
};

void neap_latency_note(struct neap_latency *latency, uint64_t ns);

#endif
