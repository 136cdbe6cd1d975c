/* What the files of transfer_tool share. */
#ifndef TESTS_INTEG_TOOL_H
#define TESTS_INTEG_TOOL_H

#include "apps/common/flags.h"
#include "tests/support/coverage.h"
#include <neap/engine.h>

#define TOOL_BUFFERS 1024
#define TOOL_WORDS 24

struct tool_buffer {
	char name[32];
	char *memory;
	uint64_t bytes;
	neap_region_id region;
	bool registered, part; /* part: of another buffer's memory */
};

/* One command's batch. */
struct tool_batch {
	struct tool *tool;
	struct tool_batch *next;
	char tag[32];
	neap_batch_id id;
	struct neap_request *requests;
	uint32_t count;
	uint64_t began_ns;
	bool quiet, ended;
	uint32_t held;
	char first_failure[512];
	struct neap_grant_token grant;
};

struct tool {
	struct neap_reactor *reactor;
	struct neap_engine *engine;
	struct tool_buffer buffers[TOOL_BUFFERS];
	struct tool_batch *batches;
	char input[65536];
	size_t input_length;
	bool script_ended, closing;
	uint64_t close_began_ns, wakeups;
	uint64_t allocated_bytes, held_bytes, held_most_bytes; /* by the library: ever, now, and the most at once since the last `ranges` */
};

/* One line to standard output, at once. */
void tool_event(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The text as a JSON string in a buffer that stays valid for seven further calls. */
const char *tool_quote(const char *text);
uint64_t tool_now_ns(void);

void tool_ready(struct tool *tool);
void tool_command(struct tool *tool, char *line);
void tool_begin_close(struct tool *tool);
void tool_free(struct tool *tool);

/* tool_transfer.c */
struct tool_buffer *tool_buffer_find(struct tool *tool, const char *name);
void tool_transfer(struct tool *tool, enum neap_opcode opcode, char **words, int count);
void tool_cancel(struct tool *tool, const char *tag);
void tool_status(struct tool *tool, const char *tag, uint32_t index);

/* tool_devices.c: commands about RDMA devices; false: it is another one. */
bool tool_devices_command(struct tool *tool, char **words, int count);

#endif
