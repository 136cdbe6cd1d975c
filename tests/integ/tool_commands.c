/* transfer_tool: all other commands. */
#include "apps/common/memory.h"
#include "apps/common/pattern.h"
#include "tests/integ/tool.h"
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define LOOP_BYTES (UINT64_C(32) << 20)

/* --- output ------------------------------------------------------------------------------------------------ */

void tool_event(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

const char *tool_quote(const char *text)
{
	static char texts[8][2048];
	static unsigned next;
	char *out = texts[next++ % 8], *p = out;
	*p++ = '"';
	for (; text && *text && p < out + sizeof texts[0] - 8; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\')
			*p++ = '\\';
		if (c < 0x20)
			p += snprintf(p, 8, "\\u%04x", c);
		else
			*p++ = (char)c;
	}
	*p++ = '"';
	*p = 0;
	return out;
}

static void hex(const uint8_t *bytes, size_t count, char *text)
{
	for (size_t i = 0; i < count; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

void tool_ready(struct tool *tool)
{
	uint8_t instance[16];
	char text[33];
	neap_engine_instance(tool->engine, instance);
	hex(instance, 16, text);
	tool_event("{\"event\":\"ready\",\"name\":%s,\"handshake_port\":%u,\"data_port\":%u,\"instance\":\"%s\",\"pid\":%ld}",
	           tool_quote(neap_engine_name(tool->engine)), neap_engine_handshake_port(tool->engine),
	           neap_engine_data_port(tool->engine), text, (long)getpid());
}

/* --- memory ------------------------------------------------------------------------------------------------ */

struct tool_buffer *tool_buffer_find(struct tool *tool, const char *name)
{
	for (int i = 0; i < TOOL_BUFFERS; i++)
		if (tool->buffers[i].memory && !strcmp(tool->buffers[i].name, name))
			return &tool->buffers[i];
	return NULL;
}

static int register_buffer(struct tool *tool, struct tool_buffer *buffer, const char *access, char *why, size_t why_size)
{
	struct neap_memory memory = {.address = buffer->memory, .length = buffer->bytes, .access = NEAP_OPEN};
	if (!strcmp(access, "plain"))
		return 0;
	if (!strcmp(access, "closed"))
		memory.access = NEAP_CLOSED;
	if (!strcmp(access, "grant"))
		memory.access = NEAP_GRANT_ONLY;
	int error = neap_memory_register(tool->engine, &memory, 1, &buffer->region, why, why_size);
	buffer->registered = !error;
	return error;
}

static struct tool_buffer *new_buffer(struct tool *tool, const char *name, const char *bytes)
{
	for (int i = 0; i < TOOL_BUFFERS; i++) {
		struct tool_buffer *buffer = &tool->buffers[i];
		if (buffer->memory)
			continue;
		snprintf(buffer->name, sizeof buffer->name, "%s", name);
		buffer->bytes = strtoull(bytes, NULL, 0);
		return buffer;
	}
	return NULL;
}

static void finish_buffer(struct tool *tool, struct tool_buffer *buffer, const char *access)
{
	char why[512] = "no memory";
	int error = buffer->memory ? register_buffer(tool, buffer, access, why, sizeof why) : NEAP_ENOMEM;
	tool_event("{\"event\":\"buffer\",\"name\":%s,\"error\":%d,\"why\":%s,\"address\":%" PRIuPTR ",\"bytes\":%" PRIu64 "}",
	           tool_quote(buffer->name), error, tool_quote(error ? why : ""), (uintptr_t)buffer->memory, buffer->bytes);
}

/* buffer NAME BYTES [open|closed|grant|plain]: fresh memory. */
static void make_buffer(struct tool *tool, char **words, int count)
{
	char why[512];
	struct tool_buffer *buffer = new_buffer(tool, words[1], words[2]);
	if (!buffer)
		return;
	buffer->memory = app_memory_map(buffer->bytes, false, why, sizeof why);
	finish_buffer(tool, buffer, count > 3 ? words[3] : "open");
}

/* part NAME PARENT OFFSET BYTES ACCESS: some of another buffer's memory, registered by itself. */
static void make_part(struct tool *tool, char **words)
{
	struct tool_buffer *parent = tool_buffer_find(tool, words[2]), *buffer = new_buffer(tool, words[1], words[4]);
	if (!parent || !buffer)
		return;
	buffer->part = true;
	buffer->memory = parent->memory + strtoull(words[3], NULL, 0);
	finish_buffer(tool, buffer, words[5]);
}

/* loop NAME BYTES: that many bytes of address space over one piece of LOOP_BYTES, again and again: size without memory. */
static void make_loop(struct tool *tool, char **words)
{
	struct tool_buffer *buffer = new_buffer(tool, words[1], words[2]);
	int fd = memfd_create("loop", MFD_CLOEXEC);
	if (!buffer || fd < 0 || ftruncate(fd, LOOP_BYTES))
		return;
	char *base = mmap(NULL, buffer->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	for (uint64_t at = 0; base != MAP_FAILED && at < buffer->bytes; at += LOOP_BYTES) {
		uint64_t rest = buffer->bytes - at;
		if (mmap(base + at, rest < LOOP_BYTES ? rest : LOOP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
		         fd, 0) == MAP_FAILED)
			base = MAP_FAILED;
	}
	close(fd);
	buffer->memory = base == MAP_FAILED ? NULL : base;
	finish_buffer(tool, buffer, "open");
}

/* Registers the memory as `count` ranges, `batch` in each call. */
static int register_ranges(struct tool *tool, struct tool_buffer *buffer, uint32_t count, uint32_t batch, bool turns, char *why, size_t why_size)
{
	uint64_t bytes = buffer->bytes / count;
	struct neap_memory *ranges = calloc(batch, sizeof *ranges);
	int error = ranges ? NEAP_OK : NEAP_ENOMEM;
	for (uint32_t done = 0, part; !error && done < count; done += part) {
		part = count - done < batch ? count - done : batch;
		for (uint32_t i = 0; i < part; i++)
			ranges[i] = (struct neap_memory){.address = buffer->memory + (done + i) * bytes, .length = bytes, .access = NEAP_OPEN};
		error = neap_memory_register(tool->engine, ranges, part, NULL, why, why_size);
		if (!error && turns)
			(void)neap_reactor_run_once(tool->reactor, NULL);
	}
	free(ranges);
	return error;
}

/* ranges NAME BYTES COUNT BATCH [turns]: fresh memory, registered as COUNT ranges, BATCH in each call, with a turn of the reactor after each
 * if so wished. Tells what the library took in memory for it. */
static void make_ranges(struct tool *tool, char **words, int count)
{
	char why[512] = "";
	uint32_t ranges = (uint32_t)strtoul(words[3], NULL, 0), batch = (uint32_t)strtoul(words[4], NULL, 0);
	struct tool_buffer *buffer = new_buffer(tool, words[1], words[2]);
	if (!buffer || !ranges || !batch)
		return;
	uint64_t allocated = tool->allocated_bytes, held = tool->held_most_bytes = tool->held_bytes;
	buffer->memory = app_memory_map(buffer->bytes, false, why, sizeof why);
	int error = buffer->memory ? register_ranges(tool, buffer, ranges, batch, count > 5, why, sizeof why) : NEAP_ENOMEM;
	tool_event("{\"event\":\"ranges\",\"name\":%s,\"error\":%d,\"why\":%s,\"address\":%" PRIuPTR ",\"bytes\":%" PRIu64
	           ",\"allocated_bytes\":%" PRIu64 ",\"held_most_bytes\":%" PRIu64 "}",
	           tool_quote(buffer->name), error, tool_quote(why), (uintptr_t)buffer->memory, buffer->bytes,
	           tool->allocated_bytes - allocated, tool->held_most_bytes - held);
}

static void on_region_released(void *user)
{
	struct tool_buffer *buffer = user;
	buffer->registered = false;
	tool_event("{\"event\":\"released\",\"name\":%s}", tool_quote(buffer->name));
}

static void unregister(struct tool *tool, struct tool_buffer *buffer)
{
	int error = neap_memory_unregister(tool->engine, buffer->region, on_region_released, buffer);
	tool_event("{\"event\":\"unregister\",\"error\":%d}", error);
}

/* fill|zero|check|check_zero NAME OFFSET LENGTH [SEED] */
static void touch(struct tool *tool, char **words, int count)
{
	struct tool_buffer *buffer = tool_buffer_find(tool, words[1]);
	uint64_t offset = strtoull(words[2], NULL, 0), length = strtoull(words[3], NULL, 0), at = UINT64_MAX;
	uint64_t seed = count > 4 ? strtoull(words[4], NULL, 0) : 0, origin = count > 5 ? strtoull(words[5], NULL, 0) : offset;
	if (!buffer || offset > buffer->bytes || length > buffer->bytes - offset) {
		tool_event("{\"event\":\"bad_command\"}");
		return;
	}
	if (!strcmp(words[0], "fill"))
		app_pattern_fill(buffer->memory + offset, origin, length, seed);
	else if (!strcmp(words[0], "zero"))
		memset(buffer->memory + offset, 0, length);
	else if (!strcmp(words[0], "check"))
		at = app_pattern_check(buffer->memory + offset, origin, length, seed);
	else
		at = app_zero_check(buffer->memory + offset, length);
	tool_event("{\"event\":\"%s\",\"name\":%s,\"equal\":%s,\"at\":%" PRIu64 "}", words[0], tool_quote(words[1]),
	           at == UINT64_MAX ? "true" : "false", at == UINT64_MAX ? 0 : at);
}

/* --- segments ---------------------------------------------------------------------------------------------- */

struct opening {
	struct tool *tool;
	char name[512];
	uint64_t began_ns;
};

static void on_opened(void *user, int error, neap_segment_id segment, const char *why)
{
	struct opening *opening = user;
	struct neap_segment_info info = {0};
	char buffers[1600] = "";
	size_t length = 0;
	if (!error)
		neap_segment_info(opening->tool->engine, segment, &info);
	for (uint32_t i = 0; i < info.buffer_count && length < sizeof buffers - 64; i++) {
		uint64_t address, bytes;
		if (!neap_segment_buffer(opening->tool->engine, segment, i, &address, &bytes))
			length += (size_t)snprintf(buffers + length, sizeof buffers - length, "%s[%" PRIu64 ",%" PRIu64 "]",
			                           length ? "," : "", address, bytes);
	}
	tool_event("{\"event\":\"opened\",\"name\":%s,\"error\":%d,\"segment\":%" PRIu64
	           ",\"why\":%s,\"is_neap\":%s,\"protocol\":%s,\"version\":%" PRIu32 ",\"refreshed\":%" PRIu64 ",\"ms\":%.3f,\"buffers\":[%s]}",
	           tool_quote(opening->name), error, segment, tool_quote(why), info.is_neap ? "true" : "false",
	           tool_quote(info.protocol ? info.protocol : ""), info.tcp_proto_version, info.refreshed,
	           (double)(tool_now_ns() - opening->began_ns) * 1e-6, buffers);
	free(opening);
}

static void open_segment(struct tool *tool, const char *word, bool refresh)
{
	struct opening *opening = calloc(1, sizeof *opening);
	if (!opening)
		return;
	opening->tool = tool;
	opening->began_ns = tool_now_ns();
	snprintf(opening->name, sizeof opening->name, "%s", word);
	int error = refresh ? neap_segment_refresh(tool->engine, strtoull(word, NULL, 0), on_opened, opening)
	                    : neap_segment_open(tool->engine, word, on_opened, opening);
	if (error) {
		tool_event("{\"event\":\"opened\",\"name\":%s,\"error\":%d,\"segment\":0,\"why\":%s,\"buffers\":[]}", tool_quote(word),
		           error, tool_quote(neap_error_text(error)));
		free(opening);
	}
}

static void on_notified(void *user, int error, const char *why)
{
	(void)user;
	tool_event("{\"event\":\"notified\",\"error\":%d,\"why\":%s}", error, tool_quote(why));
}

static void take_notify(struct tool *tool)
{
	struct neap_notify notify = {0};
	int taken = neap_notify_take(tool->engine, &notify);
	tool_event("{\"event\":\"notify\",\"taken\":%d,\"name\":%s,\"message\":%s}", taken, tool_quote(taken == 1 ? notify.name : ""),
	           tool_quote(taken == 1 ? notify.message : ""));
}

/* --- grants ------------------------------------------------------------------------------------------------ */

static void make_grant(struct tool *tool, char **words)
{
	struct tool_buffer *buffer = tool_buffer_find(tool, words[1]);
	struct neap_grant_token token = {0};
	char text[65];
	int error = NEAP_EINVAL;
	if (buffer)
		error = neap_grant_create(tool->engine, buffer->memory + strtoull(words[2], NULL, 0), strtoull(words[3], NULL, 0),
		                          NEAP_MAY_READ | NEAP_MAY_WRITE, NULL, &token);
	hex(token.bytes, sizeof token.bytes, text);
	tool_event("{\"event\":\"grant\",\"error\":%d,\"token\":\"%s\"}", error, text);
}

static void on_grant_ended(void *user)
{
	(void)user;
	tool_event("{\"event\":\"grant_ended\"}");
}

static void end_grant(struct tool *tool, const char *text)
{
	struct neap_grant_token token;
	for (size_t i = 0; i < sizeof token.bytes; i++) {
		unsigned byte = 0;
		sscanf(text + 2 * i, "%2x", &byte);
		token.bytes[i] = (uint8_t)byte;
	}
	tool_event("{\"event\":\"end_grant\",\"error\":%d}", neap_grant_end(tool->engine, &token, on_grant_ended, NULL));
}

/* --- looking at the process -------------------------------------------------------------------------------- */

static int count_descriptors(void)
{
	int count = 0;
	DIR *directory = opendir("/proc/self/fd");
	while (directory && readdir(directory))
		count++;
	if (directory)
		closedir(directory);
	return count - 3; /* . and .. and the directory itself */
}

static void print_stats(struct tool *tool)
{
	struct neap_engine_stats e;
	struct neap_reactor_stats r;
	struct timespec cpu;
	struct rusage usage;
	neap_engine_stats(tool->engine, &e);
	neap_reactor_stats(tool->reactor, &r);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	getrusage(RUSAGE_SELF, &usage);
	tool_event("{\"event\":\"stats\",\"submitted\":%" PRIu64 ",\"completed\":%" PRIu64 ",\"failed\":%" PRIu64
	           ",\"timed_out\":%" PRIu64 ",\"canceled\":%" PRIu64 ",\"served\":%" PRIu64 ",\"refused\":%" PRIu64
	           ",\"lanes_opened\":%" PRIu64 ",\"lanes_lost\":%" PRIu64 ",\"repeated\":%" PRIu64 ",\"refreshes\":%" PRIu64
	           ",\"sessions_accepted\":%" PRIu64 ",\"sessions_refused\":%" PRIu64 ",\"protocol_errors\":%" PRIu64
	           ",\"handshakes_served\":%" PRIu64 ",\"handshakes_refused\":%" PRIu64 ",\"peers\":%" PRIu32 ",\"lanes\":%" PRIu32
	           ",\"sessions\":%" PRIu32 ",\"pending\":%" PRIu32 ",\"batches\":%" PRIu32 ",\"turns\":%" PRIu64
	           ",\"sleeps\":%" PRIu64 ",\"timers_fired\":%" PRIu64 ",\"impossible\":%" PRIu64 ",\"wakeups\":%" PRIu64
	           ",\"longest_turn_ns\":%" PRIu64 ",\"descriptors\":%d,\"cpu_ns\":%lld,\"max_rss_kb\":%ld}",
	           e.requests_submitted, e.requests_completed, e.requests_failed, e.requests_timed_out, e.requests_canceled,
	           e.requests_served, e.requests_refused, e.lanes_opened, e.lanes_lost, e.requests_repeated, e.descriptor_refreshes,
	           e.sessions_accepted, e.sessions_refused, e.protocol_errors, e.handshakes_served, e.handshakes_refused, e.peers,
	           e.lanes, e.sessions, e.requests_pending, e.batches, r.turns, r.sleeps, r.timers_fired, r.impossible, tool->wakeups,
	           r.longest_turn_ns, count_descriptors(), (long long)cpu.tv_sec * 1000000000 + cpu.tv_nsec, usage.ru_maxrss);
}

/* fork: a child that inherits everything, tries to use it, and stays as long as we do. */
static void fork_child(struct tool *tool)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid) {
		tool_event("{\"event\":\"forked\",\"pid\":%ld}", (long)pid);
		return;
	}
	int run = neap_reactor_run_once(tool->reactor, NULL);
	struct neap_request request = {.source = tool, .length = 1};
	int submit = neap_submit(tool->engine, &request, 1, NULL, NULL);
	tool_event("{\"event\":\"child\",\"run\":%d,\"submit\":%d}", run, submit);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

/* --- the end ----------------------------------------------------------------------------------------------- */

static void on_closed(void *user)
{
	struct tool *tool = user;
	tool->engine = NULL;
	tool_event("{\"event\":\"engine_closed\",\"ms\":%.3f}", (double)(tool_now_ns() - tool->close_began_ns) * 1e-6);
	neap_reactor_stop(tool->reactor);
}

void tool_begin_close(struct tool *tool)
{
	if (tool->closing)
		return;
	tool->closing = true;
	tool->close_began_ns = tool_now_ns();
	int error = neap_engine_close(tool->engine, on_closed, tool);
	if (error)
		tool_event("{\"event\":\"close_failed\",\"error\":%d}", error);
}

void tool_free(struct tool *tool)
{
	for (int i = 0; i < TOOL_BUFFERS; i++)
		if (!tool->buffers[i].part)
			app_memory_unmap(tool->buffers[i].memory, tool->buffers[i].bytes);
	while (tool->batches) {
		struct tool_batch *batch = tool->batches;
		tool->batches = batch->next;
		free(batch->requests);
		free(batch);
	}
}

/* --- commands ---------------------------------------------------------------------------------------------- */

static int split(char *line, char **words)
{
	int count = 0;
	char *rest = NULL;
	for (char *word = strtok_r(line, " ", &rest); word && count < TOOL_WORDS; word = strtok_r(NULL, " ", &rest))
		words[count++] = word;
	return count;
}

static bool memory_command(struct tool *tool, char **words, int count)
{
	const char *verb = words[0];
	if (!strcmp(verb, "buffer") && count >= 3)
		make_buffer(tool, words, count);
	else if (!strcmp(verb, "part") && count == 6)
		make_part(tool, words);
	else if (!strcmp(verb, "loop") && count == 3)
		make_loop(tool, words);
	else if (!strcmp(verb, "ranges") && count >= 5)
		make_ranges(tool, words, count);
	else if (!strcmp(verb, "unregister") && count == 2 && tool_buffer_find(tool, words[1]))
		unregister(tool, tool_buffer_find(tool, words[1]));
	else if ((!strcmp(verb, "fill") || !strcmp(verb, "check") || !strcmp(verb, "zero") || !strcmp(verb, "check_zero")) &&
	         count >= 4)
		touch(tool, words, count);
	else if (!strcmp(verb, "grant") && count == 4)
		make_grant(tool, words);
	else if (!strcmp(verb, "end_grant") && count == 2)
		end_grant(tool, words[1]);
	else
		return false;
	return true;
}

static bool segment_command(struct tool *tool, char **words, int count)
{
	const char *verb = words[0];
	if (!strcmp(verb, "open") && count == 2)
		open_segment(tool, words[1], false);
	else if (!strcmp(verb, "refresh") && count == 2)
		open_segment(tool, words[1], true);
	else if (!strcmp(verb, "close") && count == 2)
		tool_event("{\"event\":\"close\",\"error\":%d}", neap_segment_close(tool->engine, strtoull(words[1], NULL, 0)));
	else if (!strcmp(verb, "notify") && count == 4) {
		int error = neap_notify_send(tool->engine, strtoull(words[1], NULL, 0), words[2], words[3], on_notified, tool);
		if (error)
			on_notified(tool, error, neap_error_text(error));
	} else if (!strcmp(verb, "take"))
		take_notify(tool);
	else
		return false;
	return true;
}

static bool transfer_command(struct tool *tool, char **words, int count)
{
	const char *verb = words[0];
	if (!strcmp(verb, "write"))
		tool_transfer(tool, NEAP_WRITE, words, count);
	else if (!strcmp(verb, "read"))
		tool_transfer(tool, NEAP_READ, words, count);
	else if (!strcmp(verb, "cancel") && count == 2)
		tool_cancel(tool, words[1]);
	else if (!strcmp(verb, "status") && count == 3)
		tool_status(tool, words[1], (uint32_t)strtoul(words[2], NULL, 0));
	else
		return false;
	return true;
}

void tool_command(struct tool *tool, char *line)
{
	char *words[TOOL_WORDS];
	int count = split(line, words);
	if (!count || !tool->engine)
		return;
	if (tool_devices_command(tool, words, count) || memory_command(tool, words, count) || segment_command(tool, words, count) ||
	    transfer_command(tool, words, count))
		return;
	if (!strcmp(words[0], "stats"))
		print_stats(tool);
	else if (!strcmp(words[0], "fork"))
		fork_child(tool);
	else if (!strcmp(words[0], "quit"))
		tool_begin_close(tool);
	else
		tool_event("{\"event\":\"bad_command\"}");
}
