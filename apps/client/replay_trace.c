#include "apps/client/replay.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS_MAX (UINT64_C(64) << 20)

static int add(struct client_trace *trace, const json_t *ids, uint64_t *room)
{
	size_t count = json_array_size(ids);
	if (trace->count + count > BLOCKS_MAX)
		return -1;
	while (trace->count + count > *room) {
		*room = *room ? *room * 2 : 4096;
		uint32_t *larger = realloc(trace->blocks, *room * sizeof *larger);
		if (!larger)
			return -1;
		trace->blocks = larger;
	}
	for (size_t i = 0; i < count; i++)
		trace->blocks[trace->count++] = (uint32_t)json_integer_value(json_array_get(ids, i));
	trace->requests++;
	return 0;
}

/* 1: go on, 0: later than `until_ms`, -1: no such line belongs into a trace, or it is too long. */
static int read_line(struct client_trace *trace, const char *line, double until_ms, uint64_t *room)
{
	json_t *request = json_loads(line, 0, NULL);
	const json_t *at = json_object_get(request, "timestamp"), *ids = json_object_get(request, "hash_ids");
	int result = -1;
	if (json_is_number(at) && json_is_array(ids))
		result = json_number_value(at) > until_ms ? 0 : add(trace, ids, room) ? -1 : 1;
	json_decref(request);
	return result;
}

int client_trace_load(struct client_trace *trace, const char *path, double minutes, char *why, size_t why_size)
{
	char *line = NULL;
	size_t line_room = 0, number = 0;
	uint64_t room = 0;
	int result = 1;
	FILE *file = fopen(path, "re");
	*trace = (struct client_trace){.count = 0};
	if (!file) {
		snprintf(why, why_size, "cannot open --trace=%s: %s", path, strerror(errno));
		return -1;
	}
	while (result > 0 && getline(&line, &line_room, file) >= 0) {
		number++;
		result = read_line(trace, line, minutes * 60000, &room);
	}
	free(line);
	fclose(file);
	if (result >= 0 && trace->count)
		return 0;
	if (result < 0)
		snprintf(why, why_size, "--trace=%s: line %zu is not an object with `timestamp` and `hash_ids`, or it is too long", path, number);
	else
		snprintf(why, why_size, "--trace=%s has no request within --minutes=%g", path, minutes);
	client_trace_release(trace);
	return -1;
}

void client_trace_release(struct client_trace *trace)
{
	free(trace->blocks);
	trace->blocks = NULL;
}
