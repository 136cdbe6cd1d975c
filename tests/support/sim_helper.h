/* A helper without a thread: jobs run in virtual time, one after the other, each done some time after it was submitted. */
#ifndef SUPPORT_SIM_HELPER_H
#define SUPPORT_SIM_HELPER_H

#include "reactor/helper.h"

#define SIM_HELPER_JOBS 16384u

struct sim_helper {
	struct neap_helper base; /* first */
	struct neap_timer timer;
	struct neap_helper_job *jobs[SIM_HELPER_JOBS]; /* a ring */
	uint32_t head, count;
	uint64_t delay_ns; /* what each job takes */
	bool held;         /* the system does not answer: nothing runs until sim_helper_hold(false) */
	uint64_t runs;
};

void sim_helper_begin(struct sim_helper *helper, struct neap_reactor *reactor, uint64_t delay_ns);
void sim_helper_hold(struct sim_helper *helper, bool held);

#endif
