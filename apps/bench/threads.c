#include "apps/bench/threads.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void bench_pin(int cpu)
{
	if (cpu < 0)
		return;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
	if (sched_setaffinity(0, sizeof set, &set))
		perror("neap-bench: --pin has no effect: sched_setaffinity");
}

uint64_t bench_host_system_calls(struct app_host *host)
{
	struct neap_reactor_stats stats;
	neap_reactor_stats(host->reactor, &stats);
	/* libev waits once an iteration. */
	return stats.system_calls + ev_iteration(host->loop);
}

/* --- asking all threads ------------------------------------------------------------------------------------ */

static void on_all_answered(void *argument)
{
	struct bench_threads *threads = argument;
	threads->answered = true;
	ev_break(threads->home->loop, EVBREAK_ALL);
}

static void answer(struct bench_thread *thread)
{
	struct bench_threads *threads = thread->all;
	if (atomic_fetch_sub(&threads->awaited, 1) == 1)
		neap_reactor_post(threads->home->reactor, on_all_answered, threads);
}

static void await(struct bench_threads *threads)
{
	threads->answered = false;
	atomic_store(&threads->awaited, threads->count);
}

static void ask(struct bench_threads *threads, neap_message_func *message)
{
	await(threads);
	for (uint32_t i = 0; i < threads->count; i++)
		neap_reactor_post(threads->items[i].host.reactor, message, &threads->items[i]);
}

bool bench_threads_wait(struct bench_threads *threads, double seconds)
{
	return threads->count == 0 || app_host_wait(threads->home, &threads->answered, seconds);
}

/* --- life of a thread -------------------------------------------------------------------------------------- */

static void on_before_sleep(struct ev_loop *loop, ev_prepare *watcher, int events)
{
	(void)loop;
	(void)events;
	struct bench_thread *thread = watcher->data;
	atomic_store_explicit(&thread->system_calls, bench_host_system_calls(&thread->host), memory_order_relaxed);
}

static void run_thread(struct bench_thread *thread)
{
	ev_prepare_init(&thread->before_sleep, on_before_sleep);
	thread->before_sleep.data = thread;
	ev_prepare_start(thread->host.loop, &thread->before_sleep);
	app_host_wait(&thread->host, &thread->leave, 0);
	ev_prepare_stop(thread->host.loop, &thread->before_sleep);
}

static void *thread_main(void *argument)
{
	struct bench_thread *thread = argument;
	struct app_host_options options = {.mode = thread->all->mode, .home = thread->all->home->engine};
	bench_pin(thread->cpu);
	thread->error = app_host_open(&thread->host, &options, thread->why, sizeof thread->why);
	thread->worker.host = &thread->host;
	thread->worker.user = thread;
	answer(thread);
	if (thread->error)
		return NULL;
	run_thread(thread);
	bench_worker_free(&thread->worker);
	app_host_close(&thread->host);
	answer(thread);
	return NULL;
}

static int first_error(const struct bench_threads *threads, char *why, size_t why_size)
{
	for (uint32_t i = 0; i < threads->count; i++)
		if (threads->items[i].error) {
			snprintf(why, why_size, "%s", threads->items[i].why);
			return threads->items[i].error;
		}
	return 0;
}

int bench_threads_start(struct bench_threads *threads, struct app_host *home, uint32_t count, enum neap_reactor_mode mode,
                        int cpu_first, int cpu_step, char *why, size_t why_size)
{
	memset(threads, 0, sizeof *threads);
	threads->home = home;
	threads->mode = mode;
	if (!count)
		return 0;
	threads->items = calloc(count, sizeof *threads->items);
	if (!threads->items) {
		snprintf(why, why_size, "out of memory for %u threads", count);
		return NEAP_ENOMEM;
	}
	threads->count = count;
	await(threads);
	for (uint32_t i = 0; i < count; i++) {
		struct bench_thread *thread = &threads->items[i];
		thread->all = threads;
		thread->index = i;
		thread->cpu = cpu_first < 0 ? -1 : cpu_first + (int)i * cpu_step;
		thread->started = !pthread_create(&thread->thread, NULL, thread_main, thread);
		if (!thread->started) {
			thread->error = NEAP_EAGAIN;
			snprintf(thread->why, sizeof thread->why, "cannot start thread %u of %u; see `ulimit -u`", i + 1, count);
			answer(thread);
		}
	}
	if (!bench_threads_wait(threads, 30)) {
		snprintf(why, why_size, "the threads did not start within 30 s");
		return NEAP_ETIMEDOUT;
	}
	return first_error(threads, why, why_size);
}

static void leave(void *argument)
{
	struct bench_thread *thread = argument;
	thread->leave = true;
	ev_break(thread->host.loop, EVBREAK_ALL);
}

void bench_threads_stop(struct bench_threads *threads)
{
	if (!threads->count)
		return;
	uint32_t running = 0;
	for (uint32_t i = 0; i < threads->count; i++)
		running += threads->items[i].started && !threads->items[i].error;
	threads->answered = running == 0;
	atomic_store(&threads->awaited, running);
	for (uint32_t i = 0; i < threads->count; i++)
		if (threads->items[i].started && !threads->items[i].error)
			neap_reactor_post(threads->items[i].host.reactor, leave, &threads->items[i]);
	bool interrupted = threads->home->interrupted;
	threads->home->interrupted = false;
	bool ended = bench_threads_wait(threads, 30);
	threads->home->interrupted = interrupted;
	for (uint32_t i = 0; ended && i < threads->count; i++)
		if (threads->items[i].started)
			pthread_join(threads->items[i].thread, NULL);
	if (ended)
		free(threads->items);
	threads->items = NULL;
	threads->count = 0;
}

/* --- what they are asked ----------------------------------------------------------------------------------- */

static void on_worker_opened(struct bench_worker *worker)
{
	struct bench_thread *thread = worker->user;
	thread->error = worker->error;
	snprintf(thread->why, sizeof thread->why, "%s", worker->why);
	answer(thread);
}

static void open_segment(void *argument)
{
	struct bench_thread *thread = argument;
	thread->error = bench_worker_open(&thread->worker, thread->segment_name, on_worker_opened);
	if (thread->error) {
		snprintf(thread->why, sizeof thread->why, "%s", neap_error_text(thread->error));
		answer(thread);
	}
}

int bench_threads_open(struct bench_threads *threads, const char *segment_name, char *why, size_t why_size)
{
	for (uint32_t i = 0; i < threads->count; i++)
		threads->items[i].segment_name = segment_name;
	ask(threads, open_segment);
	if (!bench_threads_wait(threads, 60)) {
		snprintf(why, why_size, "the threads did not open the segment within 60 s");
		return NEAP_ETIMEDOUT;
	}
	return first_error(threads, why, why_size);
}

uint64_t bench_threads_system_calls(struct bench_threads *threads)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < threads->count; i++)
		sum += atomic_load_explicit(&threads->items[i].system_calls, memory_order_relaxed);
	return sum;
}

static void on_worker_finished(struct bench_worker *worker)
{
	answer(worker->user);
}

static void run_load(void *argument)
{
	struct bench_thread *thread = argument;
	thread->error = bench_worker_run(&thread->worker, &thread->load, on_worker_finished);
	if (thread->error)
		answer(thread);
}

void bench_threads_run(struct bench_threads *threads, const struct bench_load *load)
{
	for (uint32_t i = 0; i < threads->count; i++) {
		threads->items[i].load = *load;
		threads->items[i].load.first += (i + 1) * load->span;
	}
	ask(threads, run_load);
}

static void halt(void *argument)
{
	struct bench_thread *thread = argument;
	bench_worker_stop(&thread->worker);
}

void bench_threads_halt(struct bench_threads *threads)
{
	for (uint32_t i = 0; i < threads->count; i++)
		neap_reactor_post(threads->items[i].host.reactor, halt, &threads->items[i]);
}
