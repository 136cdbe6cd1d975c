/* Metrics as text: Prometheus's format 0.0.4 for machines, a table for people. */
#ifndef APPS_COMMON_PROMETHEUS_H
#define APPS_COMMON_PROMETHEUS_H

#include "apps/common/text.h"
#include <neap/metrics.h>

#define APP_PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct app_prometheus {
	struct app_text text; /* set text.max, zero the rest */
	char name[128];       /* of the metric before */
	bool summary;         /* the table for people instead */
};

/* A neap_metric_func; `user` is the struct app_prometheus. */
void app_prometheus_add(void *user, const struct neap_metric *metric);

/* A label's value: what must be escaped in it is; what is no UTF-8 becomes "?". Returns `escaped`, cut when it does not fit. */
const char *app_prometheus_escape(const char *value, char *escaped, size_t size);

#endif
