/* Threads that wait for the disk. The reactor hands each its jobs through a mailbox and gets them back through another; it never
 * takes a lock. What the threads do is wait: that is what they are for. */
#include "store/tier/storage_io.h"
#include "reactor/mailbox.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct threads;

struct worker {
	struct threads *threads;
	struct neap_mailbox jobs;
	sem_t posted;
	_Atomic bool stop;
	pthread_t thread;
	bool started;
};

struct threads {
	struct neap_poller poller; /* first */
	struct neap_reactor *reactor;
	struct neap_mailbox done;
	struct neap_letter *letters;
	struct worker *workers;
	uint32_t count, next, slots;
};

static ssize_t move(const struct neap_job *job, size_t length)
{
	off_t offset = (off_t)(job->offset + job->done);
	switch (job->kind) {
	case NEAP_JOB_READ: return pread(job->fd, job->memory + job->done, length, offset);
	case NEAP_JOB_WRITE: return pwrite(job->fd, job->memory + job->done, length, offset);
	case NEAP_JOB_PUNCH: break;
	case NEAP_JOB_CLOSE: (void)close(job->fd); return (ssize_t)length;
	}
	int failed = fallocate(job->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, (off_t)length);
	return failed ? -1 : (ssize_t)length;
}

static void run_job(void *argument)
{
	struct neap_job *job = argument;
	while (job->done < job->length && !job->system_errno) {
		uint64_t left = job->length - job->done;
		uint64_t length = job->kind != NEAP_JOB_PUNCH && left > NEAP_STORAGE_CHUNK ? NEAP_STORAGE_CHUNK : left;
		ssize_t n = move(job, length);
		if (n > 0)
			job->done += (uint64_t)n;
		else if (n == 0)
			job->system_errno = ENODATA;
		else if (errno != EINTR)
			job->system_errno = errno;
	}
}

static void *worker_main(void *argument)
{
	struct worker *worker = argument;
	struct threads *threads = worker->threads;
	neap_message_func *run;
	void *job;
	while (!worker->stop) {
		if (sem_wait(&worker->posted))
			continue;
		while (neap_mailbox_take(&worker->jobs, &run, &job)) {
			run(job);
			(void)neap_mailbox_put(&threads->done, run, job); /* has room for all */
			neap_reactor_kick(threads->reactor);
		}
	}
	return NULL;
}

static uint32_t poll_done(struct neap_poller *poller, uint32_t max)
{
	struct threads *threads = (struct threads *)(void *)poller;
	neap_message_func *run;
	void *job;
	uint32_t count = 0;
	while (count < max && neap_mailbox_take(&threads->done, &run, &job)) {
		neap_job_finish(job);
		count++;
	}
	return count;
}

static void submit(void *way, struct neap_job *job)
{
	struct threads *threads = way;
	struct worker *worker = &threads->workers[threads->next++ % threads->count];
	(void)neap_mailbox_put(&worker->jobs, run_job, job); /* has room for all */
	sem_post(&worker->posted);
}

static void end(void *way)
{
	struct threads *threads = way;
	struct neap_reactor *reactor = threads->reactor;
	size_t letters = (size_t)threads->slots * (threads->count + 1);
	neap_poller_remove(reactor, &threads->poller);
	for (uint32_t i = 0; i < threads->count; i++) {
		struct worker *worker = &threads->workers[i];
		if (!worker->started)
			continue;
		worker->stop = true;
		sem_post(&worker->posted);
		pthread_join(worker->thread, NULL); /* it has no job: it only has to leave */
		sem_destroy(&worker->posted);
	}
	neap_release(reactor, threads->letters, letters * sizeof *threads->letters);
	neap_release(reactor, threads->workers, threads->count * sizeof *threads->workers);
	neap_release(reactor, threads, sizeof *threads);
}

static const struct neap_storage_way thread_ops = {submit, end};

/* Signals are for the program's own threads. */
static int start(struct worker *worker)
{
	sigset_t all, old;
	if (sem_init(&worker->posted, 0, 0))
		return errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	worker->started = !failed;
	if (failed)
		sem_destroy(&worker->posted);
	return failed;
}

static struct threads *make(struct neap_reactor *reactor, uint32_t slots, uint32_t count)
{
	struct threads *threads = neap_allocate(reactor, sizeof *threads);
	if (!threads)
		return NULL;
	*threads = (struct threads){.reactor = reactor, .count = count, .slots = slots};
	threads->letters = neap_allocate(reactor, (size_t)slots * (count + 1) * sizeof *threads->letters);
	threads->workers = neap_allocate(reactor, count * sizeof *threads->workers);
	if (threads->letters && threads->workers)
		return threads;
	if (threads->letters)
		neap_release(reactor, threads->letters, (size_t)slots * (count + 1) * sizeof *threads->letters);
	if (threads->workers)
		neap_release(reactor, threads->workers, count * sizeof *threads->workers);
	neap_release(reactor, threads, sizeof *threads);
	return NULL;
}

int neap_storage_threads_begin(struct neap_reactor *reactor, uint32_t jobs_max, uint32_t threads_count, void **way_p,
                               const struct neap_storage_way **ops_p, char *why, size_t why_size)
{
	uint32_t slots = 2;
	while (slots < jobs_max)
		slots *= 2;
	struct threads *threads = make(reactor, slots, threads_count);
	if (!threads) {
		snprintf(why, why_size, "out of memory");
		return NEAP_ENOMEM;
	}
	threads->poller.poll = poll_done;
	neap_poller_add(reactor, &threads->poller);
	neap_mailbox_init(&threads->done, threads->letters, slots);
	for (uint32_t i = 0; i < threads_count; i++) {
		struct worker *worker = &threads->workers[i];
		worker->threads = threads;
		neap_mailbox_init(&worker->jobs, threads->letters + (size_t)slots * (i + 1), slots);
		int failed = start(worker);
		if (failed) {
			snprintf(why, why_size, "thread %u of %u for the disk: %s", i + 1, threads_count, strerror(failed));
			end(threads);
			return NEAP_ELIMIT;
		}
	}
	*way_p = threads;
	*ops_p = &thread_ops;
	return NEAP_OK;
}
