#include "apps/bench/verify.h"
#include "apps/bench/options.h"
#include "apps/common/memory.h"
#include "apps/common/pattern.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (UINT64_C(1) << 20)
#define SCRATCH (UINT64_C(16) << 20)
#define RUNS_MAX 4096u

int bench_verifier_open(struct bench_verifier *verifier, struct app_host *host, neap_segment_id segment, char *local,
                        uint64_t remote, uint64_t span)
{
	memset(verifier, 0, sizeof *verifier);
	verifier->host = host;
	verifier->segment = segment;
	verifier->local = local;
	verifier->remote = remote;
	verifier->span = span;
	verifier->touched = calloc((span + BENCH_PAGE - 1) / BENCH_PAGE, 1);
	verifier->scratch = app_memory_map(SCRATCH, true, verifier->why, sizeof verifier->why);
	if (!verifier->touched || !verifier->scratch) {
		bench_verifier_close(verifier);
		return -1;
	}
	return 0;
}

void bench_verifier_close(struct bench_verifier *verifier)
{
	free(verifier->touched);
	app_memory_unmap(verifier->scratch, SCRATCH);
	verifier->touched = NULL;
	verifier->scratch = NULL;
}

/* --- moving without measuring ------------------------------------------------------------------------------ */

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	(void)batch;
	(void)request_user;
	struct bench_verifier *verifier = user;
	if (outcome->status == NEAP_COMPLETED || verifier->failed)
		return;
	verifier->failed = true;
	if (verifier->requests)
		neap_outcome_text(verifier->host->engine, &verifier->requests[index], outcome, verifier->why, sizeof verifier->why);
}

static void on_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)batch;
	(void)summary;
	struct bench_verifier *verifier = user;
	verifier->done = true;
	ev_break(verifier->host->loop, EVBREAK_ALL);
}

static int move(struct bench_verifier *verifier, const struct neap_request *requests, size_t count)
{
	struct neap_batch_options options = {.on_request = on_request, .on_batch = on_batch, .user = verifier};
	verifier->done = verifier->failed = false;
	verifier->requests = requests;
	neap_batch_id batch;
	int error = neap_submit(verifier->host->engine, requests, count, &options, &batch);
	if (error) {
		snprintf(verifier->why, sizeof verifier->why, "submit for verification: %s", neap_error_text(error));
		return -1;
	}
	if (!app_host_wait(verifier->host, &verifier->done, 0)) { /* interrupted: the requests must end before their memory does */
		neap_batch_cancel(verifier->host->engine, batch);
		verifier->host->interrupted = false;
		app_host_wait(verifier->host, &verifier->done, 10);
		verifier->host->interrupted = true;
		snprintf(verifier->why, sizeof verifier->why, "interrupted");
		verifier->requests = NULL;
		return -1;
	}
	return verifier->failed ? -1 : 0;
}

static int move_all(struct bench_verifier *verifier, enum neap_opcode opcode)
{
	struct neap_request requests[64];
	for (uint64_t offset = 0; offset < verifier->span;) {
		size_t count = 0;
		for (; count < 64 && offset < verifier->span; count++) {
			uint64_t length = verifier->span - offset < PIECE ? verifier->span - offset : PIECE;
			requests[count] = (struct neap_request){.opcode = opcode,
			                                        .source = verifier->local + offset,
			                                        .segment = verifier->segment,
			                                        .target_offset = verifier->remote + offset,
			                                        .length = length};
			offset += length;
		}
		if (move(verifier, requests, count))
			return -1;
	}
	return 0;
}

int bench_verifier_settle(struct bench_verifier *verifier)
{
	return move_all(verifier, NEAP_WRITE) || move_all(verifier, NEAP_READ) ? -1 : 0;
}

int bench_verify_prepare(struct bench_verifier *verifier, enum neap_opcode opcode)
{
	verifier->seed++;
	memset(verifier->touched, BENCH_UNTOUCHED, (verifier->span + BENCH_PAGE - 1) / BENCH_PAGE);
	app_pattern_fill(verifier->local, 0, verifier->span, verifier->seed);
	if (opcode == NEAP_WRITE)
		return 0;
	if (move_all(verifier, NEAP_WRITE))
		return -1;
	memset(verifier->local, 0, verifier->span);
	return 0;
}

/* --- comparing --------------------------------------------------------------------------------------------- */

static int compare(struct bench_verifier *verifier, const char *memory, uint64_t offset, uint64_t length, const char *whose)
{
	uint64_t at = app_pattern_check(memory, offset, length, verifier->seed);
	if (at == UINT64_MAX)
		return 0;
	snprintf(verifier->why, sizeof verifier->why, "byte %" PRIu64 " of the %s buffer is not what was sent", offset + at, whose);
	return -1;
}

static uint64_t touched_bytes(const struct bench_verifier *verifier, uint64_t page, uint64_t tail)
{
	uint64_t rest = verifier->span - page * BENCH_PAGE;
	uint64_t bytes = verifier->touched[page] == BENCH_WHOLE ? BENCH_PAGE : verifier->touched[page] == BENCH_BEGUN ? tail : 0;
	return bytes < rest ? bytes : rest;
}

static int check_local(struct bench_verifier *verifier, uint64_t tail)
{
	for (uint64_t page = 0; page * BENCH_PAGE < verifier->span; page++) {
		const char *memory = verifier->local + page * BENCH_PAGE;
		uint64_t bytes = touched_bytes(verifier, page, tail), rest = verifier->span - page * BENCH_PAGE;
		if (bytes && compare(verifier, memory, page * BENCH_PAGE, bytes, "local"))
			return -1;
		uint64_t at = app_zero_check(memory + bytes, (rest < BENCH_PAGE ? rest : BENCH_PAGE) - bytes);
		if (at != UINT64_MAX) {
			snprintf(verifier->why, sizeof verifier->why,
			         "byte %" PRIu64 " of the local buffer was written although no request covers it",
			         page * BENCH_PAGE + bytes + at);
			return -1;
		}
	}
	return 0;
}

/* From *page_p on, the next stretch of moved bytes, at most PIECE long. 0: none is left. */
static uint64_t next_run(const struct bench_verifier *verifier, uint64_t *page_p, uint64_t *offset_p, uint64_t tail)
{
	uint64_t page = *page_p, length = 0;
	while (page * BENCH_PAGE < verifier->span && !touched_bytes(verifier, page, tail))
		page++;
	*offset_p = page * BENCH_PAGE;
	while (page * BENCH_PAGE < verifier->span && length + BENCH_PAGE <= PIECE) {
		uint64_t bytes = touched_bytes(verifier, page, tail);
		if (!bytes)
			break;
		length += bytes;
		page++;
		if (bytes < BENCH_PAGE)
			break;
	}
	*page_p = page;
	return length;
}

static int check_remote(struct bench_verifier *verifier, uint64_t tail)
{
	static struct neap_request requests[RUNS_MAX];
	uint64_t page = 0;
	for (;;) {
		size_t count = 0;
		for (uint64_t used = 0; count < RUNS_MAX && used + PIECE <= SCRATCH; count++) {
			uint64_t offset, length = next_run(verifier, &page, &offset, tail);
			if (!length)
				break;
			requests[count] = (struct neap_request){.opcode = NEAP_READ,
			                                        .source = verifier->scratch + used,
			                                        .segment = verifier->segment,
			                                        .target_offset = verifier->remote + offset,
			                                        .length = length};
			used += length;
		}
		if (!count)
			return 0;
		if (move(verifier, requests, count))
			return -1;
		for (size_t i = 0; i < count; i++)
			if (compare(verifier, requests[i].source, requests[i].target_offset - verifier->remote, requests[i].length,
			            "target's"))
				return -1;
	}
}

int bench_verify_row(struct bench_verifier *verifier, enum neap_opcode opcode, uint64_t tail)
{
	return opcode == NEAP_READ ? check_local(verifier, tail) : check_remote(verifier, tail);
}
