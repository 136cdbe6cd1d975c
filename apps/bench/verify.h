/* Comparing what was moved, outside the measured time. Remote byte `o` of the span corresponds to local byte `o` throughout. */
#ifndef APPS_BENCH_VERIFY_H
#define APPS_BENCH_VERIFY_H

#include "apps/bench/worker.h"

struct bench_verifier {
	struct app_host *host;
	neap_segment_id segment;
	char *local;
	uint64_t remote, span;
	unsigned char *touched; /* one per page of the span */
	char *scratch;
	uint64_t seed; /* of this row's data */
	char why[512]; /* after a failure */
	/* a batch under way */
	bool done, failed;
	const struct neap_request *requests;
};

/* 0, or -1 with `why`. */
int bench_verifier_open(struct bench_verifier *verifier, struct app_host *host, neap_segment_id segment, char *local,
                        uint64_t remote, uint64_t span);
void bench_verifier_close(struct bench_verifier *verifier);

/* Moves the whole span there and back once: pages that a machine, or the machine under a virtual one, has only promised are there
 * afterwards, on both sides. */
int bench_verifier_settle(struct bench_verifier *verifier);

/* Lays out this row's data: for a write row locally, for a read row at the target, with zeroes here. */
int bench_verify_prepare(struct bench_verifier *verifier, enum neap_opcode opcode);

/* Compares every byte the row moved, and for a read row that nothing else was touched. `tail` is block % page. 0: equal. */
int bench_verify_row(struct bench_verifier *verifier, enum neap_opcode opcode, uint64_t tail);

#endif
