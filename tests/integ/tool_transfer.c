/* transfer_tool: commands that move bytes. */
#include "tests/integ/tool.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const status_names[] = {"WAITING", "PENDING", "INVALID", "CANCELED", "COMPLETED", "TIMEOUT", "FAILED"};
static const char *const effect_names[] = {"NONE", "ALL", "PARTIAL", "UNKNOWN"};
static const char *const buffer_names[] = {"YOURS", "HELD"};

static double milliseconds_since(uint64_t began_ns)
{
	return (double)(tool_now_ns() - began_ns) * 1e-6;
}

static void print_outcome(struct tool_batch *batch, uint32_t index, const struct neap_outcome *outcome, const char *text)
{
	tool_event("{\"event\":\"outcome\",\"tag\":%s,\"index\":%" PRIu32
	           ",\"status\":\"%s\",\"effect\":\"%s\",\"buffer\":\"%s\",\"cause\":%u,"
	           "\"error\":%d,\"errno\":%d,\"bytes\":%" PRIu64 ",\"text\":%s,\"ms\":%.3f}",
	           tool_quote(batch->tag), index, status_names[outcome->status], effect_names[outcome->effect],
	           buffer_names[outcome->buffer], outcome->cause, outcome->error, outcome->system_errno, outcome->bytes,
	           tool_quote(text), milliseconds_since(batch->began_ns));
}

static void on_request(void *user, neap_batch_id id, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	(void)id;
	(void)request_user;
	struct tool_batch *batch = user;
	char text[512] = "";
	if (outcome->buffer == NEAP_BUFFER_HELD)
		batch->held++;
	if (outcome->status != NEAP_COMPLETED)
		neap_outcome_text(batch->tool->engine, &batch->requests[index], outcome, text, sizeof text);
	if (outcome->status != NEAP_COMPLETED && !batch->first_failure[0])
		snprintf(batch->first_failure, sizeof batch->first_failure, "%s", text);
	if (!batch->quiet)
		print_outcome(batch, index, outcome, text);
}

static void batch_free(struct tool_batch *batch)
{
	for (struct tool_batch **link = &batch->tool->batches; *link; link = &(*link)->next)
		if (*link == batch) {
			*link = batch->next;
			break;
		}
	free(batch->requests);
	free(batch);
}

static void on_batch(void *user, neap_batch_id id, const struct neap_batch_summary *summary)
{
	(void)id;
	struct tool_batch *batch = user;
	tool_event("{\"event\":\"batch\",\"tag\":%s,\"total\":%" PRIu32 ",\"completed\":%" PRIu32 ",\"failed\":%" PRIu32
	           ",\"timed_out\":%" PRIu32 ",\"canceled\":%" PRIu32 ",\"bytes\":%" PRIu64 ",\"held\":%" PRIu32
	           ",\"first_failure\":%s,\"ms\":%.3f}",
	           tool_quote(batch->tag), summary->total, summary->completed, summary->failed, summary->timed_out, summary->canceled,
	           summary->bytes, batch->held, tool_quote(batch->first_failure), milliseconds_since(batch->began_ns));
	batch->ended = true;
	if (!batch->held)
		batch_free(batch);
}

static void on_released(void *user, neap_batch_id id, uint32_t index, void *request_user)
{
	(void)id;
	(void)request_user;
	struct tool_batch *batch = user;
	tool_event("{\"event\":\"buffer_released\",\"tag\":%s,\"index\":%" PRIu32 ",\"ms\":%.3f}", tool_quote(batch->tag), index,
	           milliseconds_since(batch->began_ns));
	if (--batch->held == 0 && batch->ended)
		batch_free(batch);
}

struct shape {
	uint64_t count, stride, deadline_ms;
	bool keep;
};

static bool parse_token(const char *text, struct neap_grant_token *token)
{
	for (size_t i = 0; i < sizeof token->bytes; i++) {
		unsigned byte;
		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			return false;
		token->bytes[i] = (uint8_t)byte;
	}
	return true;
}

/* key=value words after the fixed ones. */
static bool parse_shape(char **words, int count, struct shape *shape, struct tool_batch *batch, bool *granted)
{
	for (int i = 0; i < count; i++) {
		char *value = strchr(words[i], '=');
		if (!value)
			return false;
		*value++ = 0;
		if (!strcmp(words[i], "count"))
			shape->count = strtoull(value, NULL, 0);
		else if (!strcmp(words[i], "stride"))
			shape->stride = strtoull(value, NULL, 0);
		else if (!strcmp(words[i], "deadline_ms"))
			shape->deadline_ms = strtoull(value, NULL, 0);
		else if (!strcmp(words[i], "quiet"))
			batch->quiet = true;
		else if (!strcmp(words[i], "keep"))
			shape->keep = true;
		else if (!strcmp(words[i], "grant"))
			*granted = parse_token(value, &batch->grant);
		else
			return false;
	}
	return true;
}

static void submit(struct tool_batch *batch, const struct shape *shape)
{
	struct neap_batch_options options = {
		.on_request = on_request, .on_batch = on_batch, .on_released = on_released, .user = batch, .keep = shape->keep};
	batch->began_ns = tool_now_ns();
	if (shape->deadline_ms)
		options.deadline_ns = batch->began_ns + shape->deadline_ms * 1000000;
	batch->next = batch->tool->batches;
	batch->tool->batches = batch;
	int error = neap_submit(batch->tool->engine, batch->requests, batch->count, &options, &batch->id);
	tool_event("{\"event\":\"submitted\",\"tag\":%s,\"error\":%d,\"ms\":%.3f}", tool_quote(batch->tag), error,
	           milliseconds_since(batch->began_ns));
	if (error)
		batch_free(batch);
}

/* write|read TAG SEGMENT ADDRESS BUFFER OFFSET LENGTH [count=N] [stride=N] [deadline_ms=N] [grant=HEX] [quiet=1] [keep=1] */
void tool_transfer(struct tool *tool, enum neap_opcode opcode, char **words, int count)
{
	struct shape shape = {.count = 1};
	bool granted = false;
	struct tool_buffer *buffer = count >= 7 ? tool_buffer_find(tool, words[4]) : NULL;
	struct tool_batch *batch = calloc(1, sizeof *batch);
	if (!batch || !buffer || !parse_shape(words + 7, count - 7, &shape, batch, &granted)) {
		free(batch);
		tool_event("{\"event\":\"bad_command\"}");
		return;
	}
	uint64_t segment = strtoull(words[2], NULL, 0), address = strtoull(words[3], NULL, 0), offset = strtoull(words[5], NULL, 0);
	uint64_t length = strtoull(words[6], NULL, 0);
	batch->tool = tool;
	snprintf(batch->tag, sizeof batch->tag, "%s", words[1]);
	batch->count = (uint32_t)shape.count;
	batch->requests = calloc(shape.count ? shape.count : 1, sizeof *batch->requests);
	for (uint64_t i = 0; batch->requests && i < shape.count; i++)
		batch->requests[i] = (struct neap_request){.opcode = opcode,
		                                           .source = buffer->memory + offset + i * shape.stride,
		                                           .segment = segment,
		                                           .target_offset = address + i * shape.stride,
		                                           .length = length,
		                                           .grant = granted ? &batch->grant : NULL};
	submit(batch, &shape);
}

static struct tool_batch *find_batch(struct tool *tool, const char *tag)
{
	for (struct tool_batch *batch = tool->batches; batch; batch = batch->next)
		if (!strcmp(batch->tag, tag))
			return batch;
	return NULL;
}

void tool_cancel(struct tool *tool, const char *tag)
{
	struct tool_batch *batch = find_batch(tool, tag);
	int error = batch ? neap_batch_cancel(tool->engine, batch->id) : NEAP_ESTALE;
	tool_event("{\"event\":\"cancel\",\"tag\":%s,\"error\":%d}", tool_quote(tag), error);
}

void tool_status(struct tool *tool, const char *tag, uint32_t index)
{
	struct tool_batch *batch = find_batch(tool, tag);
	struct neap_outcome outcome = {0};
	int error = batch ? neap_batch_status(tool->engine, batch->id, index, &outcome) : NEAP_ESTALE;
	tool_event("{\"event\":\"status\",\"tag\":%s,\"error\":%d,\"status\":\"%s\",\"bytes\":%" PRIu64 "}", tool_quote(tag), error,
	           error ? "" : status_names[outcome.status], outcome.bytes);
}
