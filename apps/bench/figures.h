/* What a side has used so far: CPU time and system calls. The initiator asks the target for its own over notify messages, so that
 * it works across machines and against a target in a second process alike.
 *
 * Question, sent as notify {name: asker's segment name, message: "neap-bench figures SEQUENCE"}; answer {name: the target's
 * segment, message: "neap-bench figures SEQUENCE cpu_ns N system_calls N requests N"}. */
#ifndef APPS_BENCH_FIGURES_H
#define APPS_BENCH_FIGURES_H

#include "apps/bench/threads.h"

struct bench_figures {
	bool known;
	uint64_t cpu_ns, system_calls, requests;
};

/* This process. `threads` may be NULL when there are none. */
void bench_figures_here(struct app_host *host, struct bench_threads *threads, struct bench_figures *figures_p);

/* Target: answers questions from now on. */
struct bench_answers {
	struct app_host *host;
	struct bench_threads *threads;
	struct bench_answer_pending {
		bool used;
		char message[256];
		struct bench_answers *answers;
	} pending[8];
};
void bench_answers_begin(struct bench_answers *answers, struct app_host *host, struct bench_threads *threads);

/* Initiator: asks and waits. `figures_p->known` is false when the target does not answer within a few seconds (it is no
 * neap-bench, or it cannot reach this process at its --local_server_name). */
struct bench_questions {
	struct app_host *host;
	neap_segment_id target;
	uint32_t sequence;
	bool answered, silent;
	struct bench_figures figures;
};
void bench_questions_begin(struct bench_questions *questions, struct app_host *host, neap_segment_id target);
void bench_figures_ask(struct bench_questions *questions, struct bench_figures *figures_p);

#endif
