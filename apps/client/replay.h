/* `neap-client replay`: a KV cache's day in a few seconds. An accessor without tiers plays the blocks of a trace: each is got, and put when
 * it is not there; every byte that is read is compared. */
#ifndef APPS_CLIENT_REPLAY_H
#define APPS_CLIENT_REPLAY_H

#include "apps/bench/histogram.h"
#include <neap/store.h>

int client_replay(int argc, char **argv); /* an exit code */

/* --- a trace: one JSON object a line, with `timestamp` (ms) and `hash_ids` */

struct client_trace {
	uint32_t *blocks; /* ids, in the order of requests */
	uint64_t count;
	uint64_t requests;
};
/* The requests of its first `minutes`. 0, or -1 with a sentence. */
int client_trace_load(struct client_trace *trace, const char *path, double minutes, char *why, size_t why_size);
void client_trace_release(struct client_trace *trace);

/* --- what came out */

#define CLIENT_REASONS_MAX 16u

struct client_figures {
	uint64_t blocks, hits, misses, stored, present, failed_gets, failed_puts, unknown, wrong, bytes, retries;
	double seconds;
	struct histogram gets, puts; /* of those that succeeded */
	struct {
		const char *name; /* of an error */
		uint64_t count;
	} reasons[CLIENT_REASONS_MAX];
};
void client_figures_note(struct client_figures *figures, int error);
void client_figures_progress(const struct client_figures *figures, const char *direction, uint64_t total);
void client_figures_print(const struct client_figures *figures, const char *const *directions, uint32_t count);
void client_figures_json(const struct client_figures *figures, const char *direction);

#endif
