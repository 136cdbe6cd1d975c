#include "apps/common/prometheus.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *app_prometheus_escape(const char *value, char *escaped, size_t size)
{
	size_t used = 0, left = strlen(value);
	while (left && used + 4 < size) {
		size_t length = app_utf8_length(value, left);
		if (*value == '\\' || *value == '"' || *value == '\n')
			escaped[used++] = '\\';
		if (length > 1)
			memcpy(escaped + used, value, length);
		else
			escaped[used] = !length ? '?' : *value == '\n' ? 'n' : *value;
		length += !length;
		used += length;
		value += length;
		left -= length;
	}
	escaped[used] = '\0';
	return escaped;
}

static const char *type_word(enum neap_metric_kind kind)
{
	switch (kind) {
	case NEAP_METRIC_COUNTER: return "counter";
	case NEAP_METRIC_GAUGE: return "gauge";
	case NEAP_METRIC_HISTOGRAM: return "histogram";
	}
	return "untyped";
}

static void add_head(struct app_prometheus *prometheus, const struct neap_metric *metric)
{
	app_text_format(&prometheus->text, "# HELP %s ", metric->name);
	for (const char *help = metric->help; help && *help; help++) {
		if (*help == '\n')
			app_text_puts(&prometheus->text, "\\n");
		else if (*help == '\\')
			app_text_puts(&prometheus->text, "\\\\");
		else
			app_text_add(&prometheus->text, help, 1);
	}
	app_text_format(&prometheus->text, "\n# TYPE %s %s\n", metric->name, type_word(metric->kind));
}

/* NAME_suffix{labels,le="bound"} */
static void add_series(struct app_prometheus *prometheus, const struct neap_metric *metric, const char *suffix, const char *bound)
{
	struct app_text *text = &prometheus->text;
	bool labels = metric->labels && metric->labels[0];
	app_text_puts(text, metric->name);
	app_text_puts(text, suffix);
	if (!labels && !bound)
		return;
	app_text_puts(text, "{");
	if (labels)
		app_text_puts(text, metric->labels);
	if (bound)
		app_text_format(text, "%sle=\"%s\"", labels ? "," : "", bound);
	app_text_puts(text, "}");
}

static void add_histogram(struct app_prometheus *prometheus, const struct neap_metric *metric)
{
	const struct neap_metric_histogram *histogram = metric->histogram;
	uint64_t below = 0;
	for (uint32_t i = 0; i <= histogram->bounds; i++) {
		char bound[16] = "+Inf";
		if (i < histogram->bounds)
			snprintf(bound, sizeof bound, "%" PRIu32, histogram->upper[i]);
		below += histogram->buckets[i];
		add_series(prometheus, metric, "_bucket", bound);
		app_text_format(&prometheus->text, " %" PRIu64 "\n", below);
	}
	add_series(prometheus, metric, "_sum", NULL);
	app_text_format(&prometheus->text, " %" PRIu64 "\n", histogram->sum);
	add_series(prometheus, metric, "_count", NULL);
	app_text_format(&prometheus->text, " %" PRIu64 "\n", below);
}

/* The bound below which `percent` of a hundred are; 0: beyond the last bound. */
static uint32_t quantile(const struct neap_metric_histogram *histogram, uint64_t total, uint64_t percent)
{
	uint64_t below = 0;
	for (uint32_t i = 0; i < histogram->bounds; i++) {
		below += histogram->buckets[i];
		if (below * 100 >= total * percent)
			return histogram->upper[i];
	}
	return 0;
}

static void add_quantile(struct app_text *text, const struct neap_metric_histogram *histogram, uint64_t total, uint64_t percent)
{
	uint32_t bound = quantile(histogram, total, percent);
	if (bound)
		app_text_format(text, "  p%" PRIu64 " <= %" PRIu32, percent, bound);
	else
		app_text_format(text, "  p%" PRIu64 " > %" PRIu32, percent, histogram->upper[histogram->bounds - 1]);
}

/* What never happened is left out: a table for people is short. */
static void add_summary(struct app_prometheus *prometheus, const struct neap_metric *metric)
{
	struct app_text *text = &prometheus->text;
	char name[256];
	bool labels = metric->labels && metric->labels[0];
	snprintf(name, sizeof name, "%s%s%s%s", metric->name, labels ? "{" : "", labels ? metric->labels : "", labels ? "}" : "");
	if (metric->kind != NEAP_METRIC_HISTOGRAM) {
		if (metric->value || metric->kind == NEAP_METRIC_GAUGE)
			app_text_format(text, "%-56s %20" PRIu64 "\n", name, metric->value);
		return;
	}
	const struct neap_metric_histogram *histogram = metric->histogram;
	uint64_t total = 0;
	for (uint32_t i = 0; i <= histogram->bounds; i++)
		total += histogram->buckets[i];
	if (!total || !histogram->bounds)
		return;
	app_text_format(text, "%-56s %20" PRIu64 "  mean %" PRIu64, name, total, histogram->sum / total);
	add_quantile(text, histogram, total, 50);
	add_quantile(text, histogram, total, 99);
	app_text_puts(text, "\n");
}

void app_prometheus_add(void *user, const struct neap_metric *metric)
{
	struct app_prometheus *prometheus = user;
	if (prometheus->summary) {
		add_summary(prometheus, metric);
		return;
	}
	if (strcmp(prometheus->name, metric->name)) {
		snprintf(prometheus->name, sizeof prometheus->name, "%s", metric->name);
		add_head(prometheus, metric);
	}
	if (metric->kind == NEAP_METRIC_HISTOGRAM) {
		add_histogram(prometheus, metric);
		return;
	}
	add_series(prometheus, metric, "", NULL);
	app_text_format(&prometheus->text, " %" PRIu64 "\n", metric->value);
}
