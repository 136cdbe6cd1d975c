/* The helper with a thread. Reactor and thread meet in two mailboxes and a semaphore, and share nothing else. */
#include "reactor/helper.h"
#include "reactor/mailbox.h"
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

struct helper {
	struct neap_helper base; /* first */
	struct neap_poller poller;
	struct neap_mailbox jobs, done;
	struct neap_letter *letters; /* 2 * slots */
	uint32_t slots;
	sem_t posted;
	_Atomic bool stop;
	pthread_t thread;
};

static void run_job(void *argument)
{
	struct neap_helper_job *job = argument;
	job->run(job);
}

static void *helper_main(void *argument)
{
	struct helper *helper = argument;
	neap_message_func *run;
	void *job;
	while (!helper->stop) {
		if (sem_wait(&helper->posted))
			continue;
		while (neap_mailbox_take(&helper->jobs, &run, &job)) {
			run(job);
			(void)neap_mailbox_put(&helper->done, run, job); /* has room for all */
			neap_reactor_kick(helper->base.reactor);
		}
	}
	return NULL;
}

static uint32_t poll_done(struct neap_poller *poller, uint32_t max)
{
	struct helper *helper = (struct helper *)(void *)((char *)poller - offsetof(struct helper, poller));
	neap_message_func *run;
	void *argument;
	uint32_t count = 0;
	while (count < max && neap_mailbox_take(&helper->done, &run, &argument)) {
		struct neap_helper_job *job = argument;
		neap_helper_return(&helper->base, job);
		count++;
	}
	return count;
}

static void submit(struct neap_helper *base, struct neap_helper_job *job)
{
	struct helper *helper = (struct helper *)(void *)base;
	(void)neap_mailbox_put(&helper->jobs, run_job, job); /* has room for all */
	sem_post(&helper->posted);
}

static void release(struct helper *helper)
{
	if (helper->letters)
		neap_release(helper->base.reactor, helper->letters, 2 * (size_t)helper->slots * sizeof *helper->letters);
	neap_release(helper->base.reactor, helper, sizeof *helper);
}

static void end(struct neap_helper *base)
{
	struct helper *helper = (struct helper *)(void *)base;
	neap_poller_remove(helper->base.reactor, &helper->poller);
	helper->stop = true;
	sem_post(&helper->posted);
	pthread_join(helper->thread, NULL); /* it has no job: it only has to leave */
	sem_destroy(&helper->posted);
	release(helper);
}

static const struct neap_helper_ops thread_ops = {submit, end};

/* Signals are for the program's own threads. */
static int start(struct helper *helper)
{
	sigset_t all, old;
	if (sem_init(&helper->posted, 0, 0))
		return errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int failed = pthread_create(&helper->thread, NULL, helper_main, helper);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (failed)
		sem_destroy(&helper->posted);
	return failed;
}

static struct helper *make(struct neap_reactor *reactor, uint32_t jobs_max)
{
	struct helper *helper = neap_allocate(reactor, sizeof *helper);
	if (!helper)
		return NULL;
	*helper = (struct helper){.base = {.ops = &thread_ops, .reactor = reactor}, .poller.poll = poll_done, .slots = 2};
	while (helper->slots < jobs_max)
		helper->slots *= 2;
	helper->letters = neap_allocate(reactor, 2 * (size_t)helper->slots * sizeof *helper->letters);
	if (!helper->letters) {
		release(helper);
		return NULL;
	}
	neap_mailbox_init(&helper->jobs, helper->letters, helper->slots);
	neap_mailbox_init(&helper->done, helper->letters + helper->slots, helper->slots);
	return helper;
}

int neap_helper_begin(struct neap_reactor *reactor, uint32_t jobs_max, struct neap_helper **helper_p, char *why, size_t why_size)
{
	struct helper *helper = make(reactor, jobs_max);
	if (!helper) {
		snprintf(why, why_size, "out of memory");
		return NEAP_ENOMEM;
	}
	int failed = start(helper);
	if (failed) {
		snprintf(why, why_size, "a helper thread cannot be started: %s", strerror(failed));
		release(helper);
		return NEAP_ELIMIT;
	}
	neap_poller_add(reactor, &helper->poller);
	*helper_p = &helper->base;
	return NEAP_OK;
}
