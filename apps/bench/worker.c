#include "apps/bench/worker.h"
#include "apps/bench/options.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next_random(struct bench_worker *worker)
{
	uint64_t x = worker->random;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return worker->random = x;
}

static void on_opened(void *user, int error, neap_segment_id segment, const char *why)
{
	struct bench_worker *worker = user;
	worker->error = error;
	worker->segment = segment;
	snprintf(worker->why, sizeof worker->why, "%s", why ? why : "");
	if (!error)
		neap_segment_info(worker->host->engine, segment, &worker->peer);
	worker->opened(worker);
}

int bench_worker_open(struct bench_worker *worker, const char *name, void (*opened)(struct bench_worker *worker))
{
	worker->opened = opened;
	return neap_segment_open(worker->host->engine, name, on_opened, worker);
}

/* --- the load ---------------------------------------------------------------------------------------------- */

static bool may_go_on(const struct bench_worker *worker, uint64_t now_ns)
{
	return !worker->stopping && !worker->count.failed && now_ns < worker->load.end_ns;
}

static void fill_request(struct bench_worker *worker, uint32_t slot)
{
	const struct bench_load *load = &worker->load;
	uint64_t places = (load->span - load->block) / BENCH_PAGE + 1;
	uint64_t offset = load->first + next_random(worker) % places * BENCH_PAGE;
	worker->requests[slot] = (struct neap_request){
		.opcode = load->opcode,
		.source = load->local + offset,
		.segment = worker->segment,
		.target_offset = load->remote + offset,
		.length = load->block,
		.user = (void *)(uintptr_t)slot,
	};
}

static void note_failure(struct bench_worker *worker, const char *text)
{
	if (!worker->count.failed)
		snprintf(worker->count.failure, sizeof worker->count.failure, "%s", text);
	worker->count.failed++;
}

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome);
static void on_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary);

/* Submits every free slot as one batch. */
static void submit_free(struct bench_worker *worker, uint64_t now_ns)
{
	uint32_t count = worker->free_count;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t slot = worker->free_slots[i];
		fill_request(worker, slot);
		worker->submission[i] = worker->requests[slot];
		worker->submitted_ns[slot] = now_ns;
	}
	struct neap_batch_options options = {.on_request = on_request, .on_batch = on_batch, .user = worker};
	worker->free_count = 0;
	worker->outstanding += count;
	int error = neap_submit(worker->host->engine, worker->submission, count, &options, NULL);
	if (error) {
		char text[256];
		snprintf(text, sizeof text, "submit of %u requests: %s", count, neap_error_text(error));
		worker->outstanding -= count;
		note_failure(worker, text);
	}
}

static void end_when_idle(struct bench_worker *worker)
{
	if (worker->outstanding || !worker->finished)
		return;
	void (*finished)(struct bench_worker *worker) = worker->finished;
	worker->finished = NULL;
	finished(worker);
}

/* The rest of a last page that the block does not fill is only marked as begun. */
static void touch(const struct bench_load *load, uint64_t offset)
{
	unsigned char *page = load->touched + offset / BENCH_PAGE;
	uint64_t whole = load->block / BENCH_PAGE;
	memset(page, BENCH_WHOLE, whole);
	if (load->block % BENCH_PAGE && page[whole] != BENCH_WHOLE)
		page[whole] = BENCH_BEGUN;
}

static void count_completed(struct bench_worker *worker, uint32_t slot, uint64_t now_ns)
{
	const struct bench_load *load = &worker->load;
	const struct neap_request *request = &worker->requests[slot];
	if (load->touched)
		touch(load, (uint64_t)((char *)request->source - load->local));
	worker->count.all_requests++;
	worker->count.all_bytes += load->block;
	worker->count.last_ns = now_ns;
	if (now_ns < load->measure_ns)
		return;
	histogram_add(&worker->histogram, now_ns - worker->submitted_ns[slot]);
	if (now_ns > load->end_ns)
		return;
	worker->count.requests++;
	worker->count.bytes += load->block;
}

static uint64_t time_now(struct bench_worker *worker)
{
	return worker->precise ? app_now_ns() : neap_reactor_now_ns(worker->host->reactor);
}

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	(void)batch;
	(void)index;
	struct bench_worker *worker = user;
	uint32_t slot = (uint32_t)(uintptr_t)request_user;
	uint64_t now_ns = time_now(worker);
	worker->outstanding--;
	worker->free_slots[worker->free_count++] = slot;
	if (outcome->status == NEAP_COMPLETED) {
		count_completed(worker, slot, now_ns);
	} else {
		char text[512];
		neap_outcome_text(worker->host->engine, &worker->requests[slot], outcome, text, sizeof text);
		note_failure(worker, text);
	}
	if (!worker->load.wait_batch && worker->free_count >= worker->chunk && may_go_on(worker, now_ns))
		submit_free(worker, now_ns);
}

static void on_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)batch;
	(void)summary;
	struct bench_worker *worker = user;
	uint64_t now_ns = time_now(worker);
	if (!worker->outstanding && worker->free_count && may_go_on(worker, now_ns))
		submit_free(worker, now_ns);
	end_when_idle(worker);
}

static int make_slots(struct bench_worker *worker, uint64_t count)
{
	bench_worker_free(worker);
	worker->requests = calloc(count, sizeof *worker->requests);
	worker->submission = calloc(count, sizeof *worker->submission);
	worker->submitted_ns = calloc(count, sizeof *worker->submitted_ns);
	worker->free_slots = calloc(count, sizeof *worker->free_slots);
	if (!worker->requests || !worker->submission || !worker->submitted_ns || !worker->free_slots) {
		snprintf(worker->why, sizeof worker->why, "out of memory for %llu requests", (unsigned long long)count);
		return NEAP_ENOMEM;
	}
	worker->slot_count = worker->free_count = (uint32_t)count;
	for (uint32_t i = 0; i < count; i++)
		worker->free_slots[i] = i;
	return 0;
}

int bench_worker_run(struct bench_worker *worker, const struct bench_load *load, void (*finished)(struct bench_worker *worker))
{
	int error = make_slots(worker, load->batch);
	if (error)
		return error;
	worker->load = *load;
	worker->finished = finished;
	worker->stopping = false;
	worker->precise = load->batch <= 8;
	/* Completions come in groups. A new batch for each group of at least a quarter of the window keeps most of it outstanding
	 * without a batch object for each request. */
	worker->chunk = (uint32_t)(load->batch / 4 ? load->batch / 4 : 1);
	if (worker->chunk > 128)
		worker->chunk = 128;
	memset(&worker->count, 0, sizeof worker->count);
	memset(&worker->histogram, 0, sizeof worker->histogram);
	if (!worker->random)
		worker->random = 88172645463325252u ^ (uint64_t)(uintptr_t)worker;
	worker->count.began_ns = app_now_ns();
	submit_free(worker, worker->count.began_ns);
	if (worker->count.failed && !worker->outstanding) {
		snprintf(worker->why, sizeof worker->why, "%s", worker->count.failure);
		worker->finished = NULL;
		return NEAP_EAGAIN;
	}
	return 0;
}

void bench_worker_stop(struct bench_worker *worker)
{
	worker->stopping = true;
}

void bench_worker_free(struct bench_worker *worker)
{
	free(worker->requests);
	free(worker->submission);
	free(worker->submitted_ns);
	free(worker->free_slots);
	worker->requests = worker->submission = NULL;
	worker->submitted_ns = NULL;
	worker->free_slots = NULL;
}
