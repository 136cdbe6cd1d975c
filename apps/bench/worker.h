/* One reactor's share of the load: keeps a number of requests outstanding until a time, and counts what came of them. */
#ifndef APPS_BENCH_WORKER_H
#define APPS_BENCH_WORKER_H

#include "apps/bench/histogram.h"
#include "apps/common/host.h"

enum bench_touch {
	BENCH_UNTOUCHED,
	BENCH_BEGUN, /* the first block % page bytes were moved */
	BENCH_WHOLE,
};

struct bench_load {
	enum neap_opcode opcode;
	uint64_t block, batch;
	uint64_t first, span;        /* offsets are chosen in [first, first + span) */
	uint64_t measure_ns, end_ns; /* absolute: completions before measure_ns are warm-up */
	bool wait_batch;
	char *local; /* offset o of local memory goes to remote + o, and back */
	uint64_t remote;
	unsigned char *touched; /* enum bench_touch of each page of the buffer; or NULL */
};

struct bench_count {
	uint64_t requests, bytes;         /* completed while measuring */
	uint64_t all_requests, all_bytes; /* completed, warm-up and end included */
	uint64_t began_ns, last_ns;       /* first submit, last completion */
	uint64_t failed;
	char failure[512]; /* of the first failed request */
};

struct bench_worker {
	struct app_host *host;
	struct neap_segment_info peer;
	neap_segment_id segment;
	struct bench_load load;
	struct bench_count count;
	struct histogram histogram;
	/* slots of outstanding requests */
	struct neap_request *requests;
	uint64_t *submitted_ns;
	uint32_t *free_slots, free_count, slot_count, chunk;
	uint32_t outstanding;
	struct neap_request *submission; /* scratch of one submit */
	uint64_t random;
	bool precise; /* few requests: read the clock for each */
	bool stopping, submitting;
	void (*finished)(struct bench_worker *worker);
	void *user;
	/* opening */
	void (*opened)(struct bench_worker *worker);
	int error;
	char why[512];
};

/* Opens the segment on this worker's engine; `opened` is called from a turn with worker->error set. */
int bench_worker_open(struct bench_worker *worker, const char *name, void (*opened)(struct bench_worker *worker));

/* Begins; `finished` is called from a turn when the last request has ended. Worker's own thread. 0 or an error with worker->why.
 */
int bench_worker_run(struct bench_worker *worker, const struct bench_load *load, void (*finished)(struct bench_worker *worker));

/* No further submits; `finished` comes when what is outstanding has ended. */
void bench_worker_stop(struct bench_worker *worker);
void bench_worker_free(struct bench_worker *worker);

#endif
