/* Further reactors, each on a thread of its own with an engine joined to the home engine. The home thread tells them what to do
 * with messages and waits in its own loop for what they answer. */
#ifndef APPS_BENCH_THREADS_H
#define APPS_BENCH_THREADS_H

#include "apps/bench/worker.h"
#include <pthread.h>
#include <stdatomic.h>

struct bench_thread {
	struct bench_threads *all;
	uint32_t index;
	pthread_t thread;
	bool started;
	int cpu; /* to run on; -1: any */
	struct app_host host;
	struct bench_worker worker;
	bool leave; /* ends the thread's wait */
	int error;  /* of the start */
	char why[512];
	ev_prepare before_sleep;
	atomic_ullong system_calls; /* as of its last sleep */
	const char *segment_name;   /* of an open */
	struct bench_load load;
};

struct bench_threads {
	struct app_host *home;
	enum neap_reactor_mode mode;
	struct bench_thread *items;
	uint32_t count;      /* without the home thread */
	atomic_uint awaited; /* answers still to come; counted down on the threads */
	bool answered;       /* home: all have come */
};

/* Starts `count` threads. `cpu_first` -1: not pinned; otherwise thread i runs on CPU cpu_first + i * cpu_step. */
int bench_threads_start(struct bench_threads *threads, struct app_host *home, uint32_t count, enum neap_reactor_mode mode,
                        int cpu_first, int cpu_step, char *why, size_t why_size);
/* Ends them; their engines are closed when it returns. */
void bench_threads_stop(struct bench_threads *threads);

/* All open the segment. 0, or the first error with its sentence. */
int bench_threads_open(struct bench_threads *threads, const char *segment_name, char *why, size_t why_size);
/* The sum over the threads, as of each one's last sleep. */
uint64_t bench_threads_system_calls(struct bench_threads *threads);
uint64_t bench_host_system_calls(struct app_host *host);

/* Begins the load on all, on the parts of the buffer that follow load->first + load->span, one each; wait answers true when all
 * have ended it. halt: no further submits. */
void bench_threads_run(struct bench_threads *threads, const struct bench_load *load);
bool bench_threads_wait(struct bench_threads *threads, double seconds);
void bench_threads_halt(struct bench_threads *threads);

/* Keeps the calling thread on that CPU; -1 does nothing. */
void bench_pin(int cpu);

#endif
