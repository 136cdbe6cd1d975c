/* Figures of the library, one at a time, for whoever shows them. The shape is Prometheus's, so that a program only has to print. */
#ifndef NEAP_METRICS_H
#define NEAP_METRICS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum neap_metric_kind {
	NEAP_METRIC_COUNTER,
	NEAP_METRIC_GAUGE,
	NEAP_METRIC_HISTOGRAM,
};

/* Counts of a histogram; `upper[i]` bounds bucket i from above, the last bucket (number `bounds`) has no bound. Not cumulative. */
struct neap_metric_histogram {
	const uint32_t *upper;
	uint32_t bounds;
	const uint64_t *buckets; /* bounds + 1 */
	uint64_t count, sum;     /* in the unit of `upper`, which the name ends with */
};

/* Metrics of one name come one after the other, and differ in their labels. All of it is valid during the call. */
struct neap_metric {
	const char *name;   /* "mooncake_p2p_remote_get_requests_total" */
	const char *help;   /* one sentence */
	const char *labels; /* tier="0",kind="DRAM"; "" for none */
	enum neap_metric_kind kind;
	uint64_t value;     /* COUNTER, GAUGE */
	const struct neap_metric_histogram *histogram; /* HISTOGRAM */
};

typedef void neap_metric_func(void *user, const struct neap_metric *metric);

#ifdef __cplusplus
}
#endif
#endif
