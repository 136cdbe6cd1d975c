#include "apps/bench/initiator.h"
#include "apps/bench/figures.h"
#include "apps/bench/report.h"
#include "apps/bench/verify.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOT_SPAN (UINT64_C(1) << 20)

struct bench_initiator {
	const struct bench_options *options;
	struct app_host *host;
	const char *segment_name;
	char *buffer;
	uint64_t remote, span, part; /* span: bytes of buffer on both sides; part: of one thread */
	struct bench_worker worker; /* the home thread's */
	struct bench_threads threads;
	struct bench_questions questions;
	struct bench_verifier verifier;
	struct bench_row rows[BENCH_ROWS_MAX];
	uint32_t row_count;
	bool worker_done, opened, stepped, input_ended;
	ev_timer progress;
	const struct bench_row *current;
	uint64_t shown_bytes, shown_ns;
};

/* --- progress ---------------------------------------------------------------------------------------------- */

static void on_progress(struct ev_loop *loop, ev_timer *timer, int events)
{
	(void)loop;
	(void)events;
	struct bench_initiator *self = timer->data;
	char block[32], share[32] = "";
	uint64_t now_ns = app_now_ns(), bytes = self->worker.count.all_bytes;
	double rate = (double)(bytes - self->shown_bytes) / (double)(now_ns - self->shown_ns + 1);
	double left = self->worker.load.end_ns > now_ns ? (double)(self->worker.load.end_ns - now_ns) * 1e-9 : 0;
	if (self->options->threads > 1)
		snprintf(share, sizeof share, " on the first thread");
	fprintf(stderr, "\r\033[K%s %s x %" PRIu64 ": %.3f GB/s%s, %.1f s left", self->current->operation,
	        app_size_format(self->current->block_size, block, sizeof block), self->current->batch_size, rate, share, left);
	self->shown_bytes = bytes;
	self->shown_ns = now_ns;
}

static void progress_begin(struct bench_initiator *self, const struct bench_row *row)
{
	if (self->options->quiet || !isatty(STDERR_FILENO))
		return;
	self->current = row;
	self->shown_bytes = 0;
	self->shown_ns = app_now_ns();
	ev_now_update(self->host->loop);
	ev_timer_init(&self->progress, on_progress, 0.25, 0.25);
	self->progress.data = self;
	ev_timer_start(self->host->loop, &self->progress);
}

static void progress_end(struct bench_initiator *self)
{
	if (!ev_is_active(&self->progress))
		return;
	ev_timer_stop(self->host->loop, &self->progress);
	fprintf(stderr, "\r\033[K");
}

/* --- opening ----------------------------------------------------------------------------------------------- */

static void on_opened(struct bench_worker *worker)
{
	struct bench_initiator *self = worker->user;
	self->opened = true;
	ev_break(self->host->loop, EVBREAK_ALL);
}

/* The largest buffer of the segment is the one to use. */
static int choose_buffer(struct bench_initiator *self)
{
	uint64_t largest = 0;
	for (uint32_t i = 0; i < self->worker.peer.buffer_count; i++) {
		uint64_t address, length;
		if (!neap_segment_buffer(self->host->engine, self->worker.segment, i, &address, &length) && length > largest) {
			self->remote = address;
			largest = length;
		}
	}
	self->span = largest < self->options->buffer_size ? largest : self->options->buffer_size;
	/* Threads do not share places: what one reads here is not written by another meanwhile. */
	self->part = self->span / self->options->threads / BENCH_PAGE * BENCH_PAGE;
	if (self->options->threads == 1)
		self->part = self->span;
	for (uint32_t i = 0; i < self->options->block_size.count; i++)
		if (self->options->block_size.values[i] > self->part) {
			app_error(&bench_program,
			          "the largest buffer of %s has %" PRIu64 " bytes, which is not enough for --block_size=%" PRIu64
			          " on %" PRIu64 " thread(s); use a larger --buffer_size on both sides",
			          self->segment_name, largest, self->options->block_size.values[i], self->options->threads);
			return APP_START;
		}
	return -1;
}

static int open_target(struct bench_initiator *self)
{
	char why[512];
	self->worker.host = self->host;
	self->worker.user = self;
	int error = bench_worker_open(&self->worker, self->segment_name, on_opened);
	if (error) {
		app_error(&bench_program, "cannot open segment %s: %s", self->segment_name, neap_error_text(error));
		return APP_START;
	}
	if (!app_host_wait(self->host, &self->opened, 0))
		return APP_FAILED;
	if (self->worker.error) {
		app_error(&bench_program, "cannot open segment %s: %s", self->segment_name, self->worker.why);
		return APP_START;
	}
	int result = choose_buffer(self);
	if (result >= 0)
		return result;
	if (bench_threads_start(&self->threads, self->host, (uint32_t)self->options->threads - 1, bench_reactor_mode(self->options),
	                        self->options->pin ? 2 : -1, 2, why, sizeof why) ||
	    bench_threads_open(&self->threads, self->segment_name, why, sizeof why)) {
		app_error(&bench_program, "%s", why);
		return APP_START;
	}
	bench_questions_begin(&self->questions, self->host, self->worker.segment);
	return -1;
}

/* --- one row ----------------------------------------------------------------------------------------------- */

static void on_worker_done(struct bench_worker *worker)
{
	struct bench_initiator *self = worker->user;
	self->worker_done = true;
	ev_break(self->host->loop, EVBREAK_ALL);
}

static struct bench_load make_load(const struct bench_initiator *self, const struct bench_row *row)
{
	uint64_t now_ns = app_now_ns(), span = self->part;
	if (self->options->hot) {
		uint64_t hot = row->block_size > HOT_SPAN ? row->block_size : HOT_SPAN;
		span = hot < span ? hot : span;
	}
	uint64_t measure_ns = now_ns + (uint64_t)(self->options->warmup * 1e9);
	return (struct bench_load){
		.opcode = strcmp(row->operation, "read") ? NEAP_WRITE : NEAP_READ,
		.block = row->block_size,
		.batch = row->batch_size,
		.span = span,
		.measure_ns = measure_ns,
		.end_ns = measure_ns + (uint64_t)(self->options->duration * 1e9),
		.wait_batch = self->options->wait_batch,
		.local = self->buffer,
		.remote = self->remote,
		.touched = self->options->verify ? self->verifier.touched : NULL,
	};
}

/* Runs it on all threads until all have ended. */
static void run_load(struct bench_initiator *self, const struct bench_load *load)
{
	self->worker_done = false;
	bench_threads_run(&self->threads, load);
	if (bench_worker_run(&self->worker, load, on_worker_done)) {
		snprintf(self->worker.count.failure, sizeof self->worker.count.failure, "%s", self->worker.why);
		self->worker.count.failed = 1;
		self->worker_done = true;
	}
	if (app_host_wait(self->host, &self->worker_done, 0) && bench_threads_wait(&self->threads, 0))
		return;
	bench_worker_stop(&self->worker); /* a signal */
	bench_threads_halt(&self->threads);
	self->host->interrupted = false;
	if (app_host_wait(self->host, &self->worker_done, 5))
		bench_threads_wait(&self->threads, 5);
	self->host->interrupted = true;
}

struct totals {
	struct bench_count count;
	struct histogram histogram;
};

static void add_worker(struct totals *totals, const struct bench_worker *worker)
{
	const struct bench_count *count = &worker->count;
	totals->count.requests += count->requests;
	totals->count.bytes += count->bytes;
	totals->count.all_requests += count->all_requests;
	totals->count.all_bytes += count->all_bytes;
	if (count->failed && !totals->count.failed)
		memcpy(totals->count.failure, count->failure, sizeof count->failure);
	totals->count.failed += count->failed;
	if (!totals->count.began_ns || count->began_ns < totals->count.began_ns)
		totals->count.began_ns = count->began_ns;
	if (count->last_ns > totals->count.last_ns)
		totals->count.last_ns = count->last_ns;
	histogram_merge(&totals->histogram, &worker->histogram);
}

/* `before` and `after` frame the whole load, so they are divided by all of it. */
static void set_costs(struct bench_row *row, const struct totals *totals, const struct bench_figures before[2],
                      const struct bench_figures after[2])
{
	double gib = (double)totals->count.all_bytes / (double)(1u << 30), requests = (double)totals->count.all_requests;
	double cpu[2] = {-1, -1}, calls[2] = {-1, -1};
	for (int side = 0; side < 2; side++)
		if (before[side].known && after[side].known && requests > 0) {
			cpu[side] = (double)(after[side].cpu_ns - before[side].cpu_ns) * 1e-9 / gib;
			calls[side] = (double)(after[side].system_calls - before[side].system_calls) / requests;
		}
	row->cpu_initiator = cpu[0];
	row->cpu_target = cpu[1];
	row->calls_initiator = calls[0];
	row->calls_target = calls[1];
}

static void set_speed(struct bench_row *row, const struct bench_load *load, struct totals *totals)
{
	row->requests = totals->count.requests;
	row->seconds = (double)(load->end_ns - load->measure_ns) * 1e-9;
	uint64_t bytes = totals->count.bytes;
	if (row->requests < 2 * load->batch && totals->count.last_ns > totals->count.began_ns) {
		/* Too few completions for a time cut out of their middle: take all of them and all of the time. */
		row->requests = totals->count.all_requests;
		row->seconds = (double)(totals->count.last_ns - totals->count.began_ns) * 1e-9;
		bytes = totals->count.all_bytes;
	}
	row->gb_per_s = row->seconds > 0 ? (double)bytes / row->seconds * 1e-9 : 0;
	row->requests_per_s = row->seconds > 0 ? (double)row->requests / row->seconds : 0;
	row->p50_us = histogram_quantile_us(&totals->histogram, 0.5);
	row->p99_us = histogram_quantile_us(&totals->histogram, 0.99);
	row->p999_us = histogram_quantile_us(&totals->histogram, 0.999);
	row->failed = totals->count.failed;
}

/* The row's data is laid out before and compared after; both outside the measured time. */
static int verify_prepare(struct bench_initiator *self, const struct bench_row *row)
{
	if (!self->options->verify || !bench_verify_prepare(&self->verifier, strcmp(row->operation, "read") ? NEAP_WRITE : NEAP_READ))
		return -1;
	app_error(&bench_program, "cannot lay out the data to verify: %s", self->verifier.why);
	return APP_FAILED;
}

static int verify_check(struct bench_initiator *self, struct bench_row *row, const struct bench_load *load)
{
	if (!self->options->verify || row->failed)
		return -1;
	row->verified = BENCH_EQUAL;
	if (!bench_verify_row(&self->verifier, load->opcode, load->block % BENCH_PAGE))
		return -1;
	row->verified = BENCH_DIFFERENT;
	app_error(&bench_program, "%s of %" PRIu64 " bytes: %s", row->operation, row->block_size, self->verifier.why);
	return APP_FAILED;
}

static int run_row(struct bench_initiator *self, struct bench_row *row)
{
	static struct totals totals;
	struct bench_figures before[2], after[2];
	int result = verify_prepare(self, row);
	if (result >= 0)
		return result;
	bench_figures_ask(&self->questions, &before[1]);
	bench_figures_here(self->host, &self->threads, &before[0]);
	struct bench_load load = make_load(self, row);
	progress_begin(self, row);
	run_load(self, &load);
	progress_end(self);
	bench_figures_here(self->host, &self->threads, &after[0]);
	bench_figures_ask(&self->questions, &after[1]);
	memset(&totals, 0, sizeof totals);
	add_worker(&totals, &self->worker);
	for (uint32_t i = 0; i < self->threads.count; i++)
		add_worker(&totals, &self->threads.items[i].worker);
	set_speed(row, &load, &totals);
	set_costs(row, &totals, before, after);
	if (self->host->interrupted)
		return APP_FAILED;
	if (row->failed)
		app_error(&bench_program, "%" PRIu64 " request%s failed; the first: %s", row->failed, row->failed == 1 ? "" : "s",
		          totals.count.failure);
	result = verify_check(self, row, &load);
	return row->failed ? APP_FAILED : result;
}

/* --- all rows ---------------------------------------------------------------------------------------------- */

static void print_row(const struct bench_initiator *self, const struct bench_row *row)
{
	if (self->options->json)
		bench_json_row(stdout, self->options, row);
	else
		bench_table_row(stdout, row);
}

static void on_standard_input(struct ev_loop *loop, ev_io *watcher, int events)
{
	(void)events;
	struct bench_initiator *self = watcher->data;
	char byte = 0;
	ssize_t got = read(STDIN_FILENO, &byte, 1);
	if (got == 1 && byte != '\n')
		return;
	self->input_ended = got <= 0;
	self->stepped = true;
	ev_break(loop, EVBREAK_ALL);
}

/* False when there will be no further line, or a signal came. */
static bool wait_for_step(struct bench_initiator *self)
{
	if (!self->options->step)
		return true;
	ev_io input;
	ev_io_init(&input, on_standard_input, STDIN_FILENO, EV_READ);
	input.data = self;
	self->stepped = false;
	ev_io_start(self->host->loop, &input);
	bool stepped = app_host_wait(self->host, &self->stepped, 0);
	ev_io_stop(self->host->loop, &input);
	return stepped && !self->input_ended;
}

static int run_operation(struct bench_initiator *self, const char *operation)
{
	for (uint32_t i = 0; i < self->options->block_size.count; i++) {
		if (!wait_for_step(self))
			return APP_OK;
		struct bench_row *row = &self->rows[self->row_count++];
		*row = (struct bench_row){.operation = operation,
		                          .block_size = self->options->block_size.values[i],
		                          .batch_size = bench_batch_size(self->options, i)};
		int result = run_row(self, row);
		if (!self->host->interrupted && (result < 0 || row->requests || row->failed))
			print_row(self, row);
		if (result >= 0)
			return result;
	}
	return -1;
}

static int run_rows(struct bench_initiator *self)
{
	static const char *const operations[] = {"write", "read"};
	if (!self->options->json)
		bench_table_head(stdout, self->options, self->segment_name);
	for (uint64_t round = 0; round < self->options->repeat; round++) {
		self->row_count = 0;
		for (int i = 0; i < 2; i++) {
			int result = app_list_has(self->options->operation, operations[i]) ? run_operation(self, operations[i]) : -1;
			if (result >= 0)
				return result;
		}
	}
	return APP_OK;
}

static void note_silent_target(const struct bench_initiator *self)
{
	if (self->questions.silent)
		fprintf(stderr,
		        "%s: the target does not answer questions, so its CPU and system calls are not known: it has ended or is stopped, it is "
		        "no neap-bench, or it cannot reach %s (see --local_server_name)\n",
		        bench_program.name, neap_engine_name(self->host->engine));
}

struct bench_initiator *bench_initiator_new(struct app_host *host, const struct bench_options *options, char *buffer)
{
	struct bench_initiator *self = calloc(1, sizeof *self);
	if (!self) {
		app_error(&bench_program, "out of memory");
		return NULL;
	}
	self->host = host;
	self->options = options;
	self->buffer = buffer;
	return self;
}

static int prepare_memory(struct bench_initiator *self)
{
	struct bench_verifier *verifier = &self->verifier;
	if (bench_verifier_open(verifier, self->host, self->worker.segment, self->buffer, self->remote, self->span)) {
		app_error(&bench_program, "cannot verify: %s", verifier->why);
		return APP_START;
	}
	if (self->options->warmup > 0 && bench_verifier_settle(verifier)) {
		app_error(&bench_program, "cannot move the buffer once before measuring: %s", verifier->why);
		return APP_FAILED;
	}
	return -1;
}

int bench_initiate(struct bench_initiator *self, const char *segment)
{
	const struct bench_options *options = self->options;
	char why[512];
	self->segment_name = segment;
	int result = open_target(self);
	if (result < 0)
		result = prepare_memory(self);
	if (result < 0) {
		result = run_rows(self);
		note_silent_target(self);
	}
	if (result == APP_OK && options->plot && bench_plot(options->plot, self->rows, self->row_count, why, sizeof why)) {
		app_error(&bench_program, "%s", why);
		result = APP_FAILED;
	}
	bench_threads_stop(&self->threads);
	return result;
}

void bench_initiator_free(struct bench_initiator *self)
{
	if (!self)
		return;
	bench_verifier_close(&self->verifier);
	bench_worker_free(&self->worker);
	free(self);
}
