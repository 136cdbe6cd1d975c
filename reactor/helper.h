/* One thread for calls that the system offers only as blocking ones (design.md 3): registration of memory, what verbs do when they make,
 * connect and destroy. It runs jobs one after the other and hands each back in a turn of the reactor; it never touches a machine.
 *
 * Jobs are taken and given back in the order in which they were submitted. So a job may use what an earlier one has made without the
 * owner's help: closing may be queued behind an opening that is still under way.
 *
 * Owner thread of the reactor only, but for `run`. */
#ifndef NEAP_REACTOR_HELPER_H
#define NEAP_REACTOR_HELPER_H

#include "reactor/core.h"

/* Embedded in the object that waits for it. Between submit and `done` all that `run` touches is the helper's. */
struct neap_helper_job {
	void (*run)(struct neap_helper_job *job);  /* on the helper's thread; may wait */
	void (*done)(struct neap_helper_job *job); /* from a turn, once; may submit the same job again */
	uint64_t number;                           /* the helper's: jobs are counted from 1 */
};

struct neap_helper;
struct neap_helper_ops {
	void (*submit)(struct neap_helper *helper, struct neap_helper_job *job);
	void (*end)(struct neap_helper *helper);
};
/* Has a thread, or in tests a queue in virtual time (tests/support/sim_helper.h). */
struct neap_helper {
	const struct neap_helper_ops *ops;
	struct neap_reactor *reactor;
	uint64_t submitted, returned; /* jobs */
	uint64_t since_ns;            /* the first of those between is being run */
};

/* `jobs_max` are under way at most, which those who submit see to. NEAP_ENOMEM or NEAP_ELIMIT (no thread to be had) with `why`. */
int neap_helper_begin(struct neap_reactor *reactor, uint32_t jobs_max, struct neap_helper **helper_p, char *why, size_t why_size);

/* Cannot fail. */
static inline void neap_helper_submit(struct neap_helper *helper, struct neap_helper_job *job)
{
	if (helper->submitted == helper->returned)
		helper->since_ns = neap_now(helper->reactor);
	job->number = ++helper->submitted;
	helper->ops->submit(helper, job);
}

/* For how long the job is being run; 0: it waits for others, or is not under way. */
static inline uint64_t neap_helper_runs_ns(const struct neap_helper *helper, const struct neap_helper_job *job)
{
	return job->number == helper->returned + 1 ? neap_now(helper->reactor) - helper->since_ns : 0;
}

/* For helpers: hands it back, from a turn. */
static inline void neap_helper_return(struct neap_helper *helper, struct neap_helper_job *job)
{
	helper->returned++;
	helper->since_ns = neap_now(helper->reactor);
	job->done(job);
}

/* No job is under way, so this waits for nothing. */
static inline void neap_helper_end(struct neap_helper *helper)
{
	helper->ops->end(helper);
}

#endif
