#include "tests/support/sim_helper.h"
#include <assert.h>

static void next(struct sim_helper *helper);

static void fire(struct neap_timer *timer, void *user)
{
	struct sim_helper *helper = user;
	(void)timer;
	struct neap_helper_job *job = helper->jobs[helper->head++ % SIM_HELPER_JOBS];
	helper->count--;
	helper->runs++;
	job->run(job);
	neap_helper_return(&helper->base, job);
	next(helper);
}

static void next(struct sim_helper *helper)
{
	if (helper->count == 0 || helper->held || neap_timer_active(&helper->timer))
		return;
	(void)neap_timer_start(helper->base.reactor, &helper->timer, neap_now(helper->base.reactor) + helper->delay_ns, fire, helper);
}

static void submit(struct neap_helper *base, struct neap_helper_job *job)
{
	struct sim_helper *helper = (struct sim_helper *)(void *)base;
	assert(helper->count < SIM_HELPER_JOBS);
	helper->jobs[(helper->head + helper->count++) % SIM_HELPER_JOBS] = job;
	next(helper);
}

static void end(struct neap_helper *base)
{
	struct sim_helper *helper = (struct sim_helper *)(void *)base;
	assert(helper->count == 0);
	neap_timer_cancel(helper->base.reactor, &helper->timer);
}

static const struct neap_helper_ops ops = {submit, end};

void sim_helper_begin(struct sim_helper *helper, struct neap_reactor *reactor, uint64_t delay_ns)
{
	*helper = (struct sim_helper){.base = {.ops = &ops, .reactor = reactor}, .delay_ns = delay_ns};
}

void sim_helper_hold(struct sim_helper *helper, bool held)
{
	helper->held = held;
	if (held)
		neap_timer_cancel(helper->base.reactor, &helper->timer);
	else
		next(helper);
}
