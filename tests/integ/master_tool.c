/* A client of neap-master under a test script's control: one command a line on standard input, one call of the directory each, one JSON
 * object a line when it has ended. It does nothing by itself: no heartbeat either. tests/integ/test_master.py drives it. */
#include "apps/common/flags.h"
#include "apps/common/host.h"
#include "apps/common/text.h"
#include "store/master/remote.h"
#include "tests/support/coverage.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS 8
#define CHANGES 2000u
#define REPLICAS 64u
#define PAGE 2000u

static struct master_tool {
	struct app_host host;
	struct neap_remote_directory *remote;
	struct neap_key_call call;
	ev_io input;
	bool done, ended;
	int error;
	char line[65536];
	size_t length;
	/* what calls point to */
	struct neap_key_segment segment;
	struct neap_key_usage usage;
	struct neap_key_change changes[CHANGES];
	struct neap_key_replica replicas[REPLICAS];
	struct neap_key_candidate candidates[REPLICAS];
	struct neap_key_read_item read;
	struct neap_key_write_item write;
	struct neap_key_client_item client;
	struct neap_key_listed listed[PAGE];
	char keys[CHANGES][160], text[262144];
	struct app_text out;
} tool;

static const char *master = "127.0.0.1:50051";
static uint64_t id = 1, port = 12345, capacity = UINT64_C(1) << 30, start = 0, timeout_ms = 3000, memory_type = 0;
static const struct app_flag flags[] = {
	{"master", APP_FLAG_TEXT, &master, NULL, 0, 0, "its address"},
	{"id", APP_FLAG_NUMBER, &id, NULL, 1, 0, "of the client"},
	{"port", APP_FLAG_NUMBER, &port, NULL, 1, 65535, "where its peers would call it"},
	{"capacity", APP_FLAG_SIZE, &capacity, NULL, 1, 0, "of its segment"},
	{"start", APP_FLAG_NUMBER, &start, NULL, 0, 0, "of the client's process"},
	{"timeout_ms", APP_FLAG_NUMBER, &timeout_ms, NULL, 1, 60000, "of calls"},
	{"memory_type", APP_FLAG_NUMBER, &memory_type, NULL, 0, 1, "of its segment"},
};
static const struct app_program program = {
	.name = "master_tool",
	.purpose = "Does what a test script says on standard input.",
	.flags = flags,
	.flag_count = sizeof flags / sizeof flags[0],
};

/* --- calls -------------------------------------------------------------------------------------------------------- */

static struct neap_key_client self(void)
{
	return (struct neap_key_client){.id = {0x1000 + id, 1}, .instance = neap_remote_directory_instance(tool.remote)};
}

static void on_done(struct neap_key_call *call, int error)
{
	(void)call;
	tool.error = error;
	tool.done = true;
}

/* False: it was not even begun. */
static bool run(enum neap_key_op op)
{
	tool.call.op = op;
	tool.call.done = on_done;
	tool.call.deadline_ns = 0;
	tool.done = false;
	tool.error = neap_key_begin(neap_remote_directory_face(tool.remote), &tool.call);
	return !tool.error && app_host_wait(&tool.host, &tool.done, 0);
}

static void open_event(const char *event)
{
	app_text_format(&tool.out, "{\"event\":\"%s\",\"error\":", event);
	const char *name = neap_store_error_name(tool.error);
	if (tool.error <= NEAP_EAGAIN || !name)
		name = neap_error_text(tool.error);
	app_text_json(&tool.out, name, strlen(name));
}

static void close_event(void)
{
	app_text_puts(&tool.out, "}\n");
	(void)fwrite(tool.out.bytes, 1, tool.out.length, stdout);
	(void)fflush(stdout);
	app_text_release(&tool.out);
}

static void simple(const char *event, enum neap_key_op op)
{
	run(op);
	open_event(event);
	close_event();
}

/* A word with %XX for bytes that words cannot have. */
static struct neap_key_text key_of(char *word)
{
	uint32_t out = 0;
	for (const char *in = word; *in; in++) {
		char digits[3] = {0};
		if (*in == '%' && in[1] && in[2]) {
			memcpy(digits, in + 1, 2);
			word[out++] = (char)strtoul(digits, NULL, 16);
			in += 2;
		} else {
			word[out++] = *in;
		}
	}
	return (struct neap_key_text){.text = word, .length = out};
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

/* register [holds] */
static void do_register(char **words, int count)
{
	(void)words;
	tool.segment = (struct neap_key_segment){
		.id = {id, 7}, .capacity = capacity, .priority = 10, .memory_type = (uint32_t)memory_type};
	(void)snprintf(tool.segment.name, sizeof tool.segment.name, "segment \"%" PRIu64 "\"", id);
	tool.call.as.register_ = (struct neap_key_register){
		.client = self(), .host = "127.0.0.1", .port = (uint16_t)port, .start = start, .holds = count > 1, .segments = &tool.segment,
		.segment_count = 1};
	run(NEAP_KEY_OP_REGISTER);
	open_event("register");
	app_text_format(&tool.out, ",\"epoch\":%" PRIu64 ",\"announce_all\":%d", tool.call.as.register_.epoch,
	                tool.call.as.register_.announce_all);
	close_event();
}

/* heartbeat USED [EPOCH] */
static void do_heartbeat(char **words, int count)
{
	static const char *const names[] = {"UNDEFINED", "HEALTHY", "DISCONNECTED", "CRASHED"};
	tool.usage = (struct neap_key_usage){.segment = {id, 7}, .used = strtoull(words[1], NULL, 10)};
	tool.call.as.heartbeat = (struct neap_key_heartbeat){
		.client = self(), .epoch_known = count > 2 ? strtoull(words[2], NULL, 10) : 0, .usages = &tool.usage, .usage_count = 1};
	run(NEAP_KEY_OP_HEARTBEAT);
	open_event("heartbeat");
	app_text_format(&tool.out, ",\"status\":\"%s\",\"epoch\":%" PRIu64 ",\"announce_all\":%d", names[tool.call.as.heartbeat.status & 3],
	                tool.call.as.heartbeat.epoch, tool.call.as.heartbeat.announce_all);
	close_event();
}

static void finish_announce(uint32_t count)
{
	tool.call.as.announce.changes = tool.changes;
	tool.call.as.announce.count = count;
	tool.call.as.announce.client = self();
	run(NEAP_KEY_OP_ANNOUNCE);
	open_event("announce");
	uint32_t failed = 0;
	for (uint32_t i = 0; i < count; i++)
		failed += tool.changes[i].error != 0;
	app_text_format(&tool.out, ",\"failed\":%" PRIu32 ",\"item\":\"%s\",\"stamp\":[%" PRIu64 ",%" PRIu64 "]", failed,
	                neap_store_error_name(tool.changes[0].error), tool.changes[0].stamp.epoch, tool.changes[0].stamp.sequence);
	close_event();
}

/* add KEY SIZE [EPOCH SEQUENCE], remove KEY */
static void do_change(char **words, int count)
{
	bool add = !strcmp(words[0], "add");
	tool.changes[0] = (struct neap_key_change){
		.kind = add ? NEAP_KEY_ADD : NEAP_KEY_REMOVE, .key = key_of(words[1]), .segment = {id, 7}, .generation = add ? 1 : 0};
	if (add && count > 2)
		tool.changes[0].size = strtoull(words[2], NULL, 10);
	if (count > 4)
		tool.changes[0].stamp =
			(struct neap_key_stamp){.epoch = strtoull(words[3], NULL, 10), .sequence = strtoull(words[4], NULL, 10)};
	tool.call.as.announce = (struct neap_key_announce){0};
	finish_announce(1);
}

/* many PREFIX FIRST COUNT */
static void do_many(char **words, int count)
{
	uint32_t first = (uint32_t)strtoul(words[2], NULL, 10), number = (uint32_t)strtoul(words[3], NULL, 10);
	(void)count;
	for (uint32_t i = 0; i < number && i < CHANGES; i++) {
		int length = snprintf(tool.keys[i], sizeof tool.keys[i], "%s%" PRIu32, words[1], first + i);
		tool.changes[i] = (struct neap_key_change){.kind = NEAP_KEY_ADD,
		                                           .key = {.text = tool.keys[i], .length = (uint32_t)length},
		                                           .segment = {id, 7},
		                                           .size = 100,
		                                           .generation = 1};
	}
	tool.call.as.announce = (struct neap_key_announce){0};
	finish_announce(number < CHANGES ? number : CHANGES);
}

/* begin, end ROUND */
static void do_round(char **words, int count)
{
	bool begin = !strcmp(words[0], "begin");
	tool.call.as.round = (struct neap_key_round){.client = self(), .round = count > 1 ? (uint32_t)strtoul(words[1], NULL, 10) : 0};
	run(begin ? NEAP_KEY_OP_ROUND_BEGIN : NEAP_KEY_OP_ROUND_END);
	open_event(words[0]);
	app_text_format(&tool.out, ",\"round\":%" PRIu32 ",\"dropped\":%" PRIu64, tool.call.as.round.round, tool.call.as.round.dropped);
	close_event();
}

/* replicas KEY */
static void do_replicas(char **words, int count)
{
	(void)count;
	tool.read = (struct neap_key_read_item){.key = key_of(words[1])};
	tool.call.as.replicas = (struct neap_key_replicas){
		.config.priority_limit = INT32_MIN, .items = &tool.read, .count = 1, .replicas = tool.replicas, .replicas_max = REPLICAS};
	run(NEAP_KEY_OP_REPLICAS);
	open_event("replicas");
	app_text_format(&tool.out, ",\"item\":\"%s\",\"count\":%" PRIu32 ",\"port\":%u,\"size\":%" PRIu64,
	                neap_store_error_name(tool.read.error), tool.read.count, (unsigned)tool.replicas[0].port, tool.replicas[0].size);
	close_event();
}

/* exist KEY */
static void do_exist(char **words, int count)
{
	(void)count;
	tool.read = (struct neap_key_read_item){.key = key_of(words[1])};
	tool.call.as.exist = (struct neap_key_exist){.items = &tool.read, .count = 1};
	run(NEAP_KEY_OP_EXIST);
	open_event("exist");
	app_text_format(&tool.out, ",\"item\":\"%s\"", neap_store_error_name(tool.read.error));
	close_event();
}

/* route KEY SIZE */
static void do_route(char **words, int count)
{
	(void)count;
	tool.write = (struct neap_key_write_item){.key = key_of(words[1]), .size = strtoull(words[2], NULL, 10)};
	tool.call.as.write_routes = (struct neap_key_write_routes){.config = NEAP_KEY_WRITE_CONFIG, .items = &tool.write, .count = 1,
	                                                           .candidates = tool.candidates, .candidates_max = REPLICAS};
	run(NEAP_KEY_OP_WRITE_ROUTES);
	open_event("route");
	app_text_format(&tool.out, ",\"item\":\"%s\",\"ports\":[", neap_store_error_name(tool.write.error));
	for (uint32_t i = 0; !tool.error && !tool.write.error && i < tool.write.count; i++)
		app_text_format(&tool.out, "%s%u", i ? "," : "", (unsigned)tool.candidates[tool.write.first + i].port);
	app_text_puts(&tool.out, "]");
	close_event();
}

/* client ID */
static void do_client(char **words, int count)
{
	(void)count;
	tool.client = (struct neap_key_client_item){.id = {0x1000 + strtoull(words[1], NULL, 10), 1}};
	tool.call.as.clients = (struct neap_key_clients){.items = &tool.client, .count = 1};
	run(NEAP_KEY_OP_CLIENTS);
	static const char *const names[] = {"UNDEFINED", "HEALTHY", "DISCONNECTED", "CRASHED"};
	open_event("client");
	app_text_format(&tool.out, ",\"status\":\"%s\"", names[tool.client.status & 3]);
	close_event();
}

/* list PATTERN: all pages, sorted by nobody */
static void do_list(char **words, int count)
{
	struct neap_key_list *list = &tool.call.as.list;
	struct app_text names = {.max = 64u << 20};
	uint32_t keys = 0;
	*list = (struct neap_key_list){.pattern = count > 1 ? key_of(words[1]) : (struct neap_key_text){.text = ""},
	                               .keys = tool.listed,
	                               .keys_max = PAGE,
	                               .text = tool.text,
	                               .text_size = sizeof tool.text};
	do {
		if (!run(NEAP_KEY_OP_LIST) || tool.error)
			break;
		for (uint32_t i = 0; i < list->count; i++, keys++) {
			app_text_puts(&names, keys ? "," : "");
			app_text_json(&names, tool.text + list->keys[i].offset, list->keys[i].length);
		}
	} while (list->cursor);
	open_event("list");
	app_text_puts(&tool.out, ",\"why\":");
	app_text_json(&tool.out, list->why, strnlen(list->why, sizeof list->why));
	app_text_puts(&tool.out, ",\"keys\":[");
	app_text_add(&tool.out, names.bytes ? names.bytes : "", names.length);
	app_text_puts(&tool.out, "]");
	close_event();
	app_text_release(&names);
}

static void do_count(char **words, int count)
{
	(void)words, (void)count;
	tool.call.as.count = (struct neap_key_count){0};
	run(NEAP_KEY_OP_COUNT);
	open_event("count");
	app_text_format(&tool.out, ",\"keys\":%" PRIu64 ",\"replicas\":%" PRIu64 ",\"complete\":%d", tool.call.as.count.keys,
	                tool.call.as.count.replicas, tool.call.as.count.complete);
	close_event();
}

static void do_unregister(char **words, int count)
{
	(void)words, (void)count;
	tool.call.as.unregister = (struct neap_key_unregister){.client = self()};
	simple("unregister", NEAP_KEY_OP_UNREGISTER);
}

/* Speaks for another client, as nobody may. */
static void do_pretend(char **words, int count)
{
	(void)count;
	tool.call.as.unregister = (struct neap_key_unregister){
		.client = {.id = {0x1000 + strtoull(words[1], NULL, 10), 1}, .instance = strtoull(words[2], NULL, 10)}};
	simple("pretend", NEAP_KEY_OP_UNREGISTER);
}

static void do_mount(char **words, int count)
{
	(void)count;
	tool.call.as.mount = (struct neap_key_mount){
		.client = self(), .segment = {.id = {id, strtoull(words[1], NULL, 10)}, .name = "another", .capacity = 1u << 20}};
	simple(words[0], !strcmp(words[0], "mount") ? NEAP_KEY_OP_MOUNT : NEAP_KEY_OP_UNMOUNT);
}

static void do_stats(char **words, int count)
{
	struct neap_remote_directory_stats stats;
	(void)words, (void)count;
	neap_remote_directory_stats(tool.remote, &stats);
	tool.error = 0;
	open_event("stats");
	app_text_format(&tool.out, ",\"welcomes\":%" PRIu64 ",\"masters\":%" PRIu64 ",\"instance\":%" PRIu64, stats.welcomes, stats.masters,
	                neap_remote_directory_instance(tool.remote));
	close_event();
}

static const struct {
	const char *name;
	int words; /* at least */
	void (*run)(char **words, int count);
} commands[] = {
	{"register", 1, do_register}, {"heartbeat", 2, do_heartbeat}, {"add", 3, do_change},   {"remove", 2, do_change},
	{"many", 4, do_many},         {"begin", 1, do_round},         {"end", 2, do_round},    {"replicas", 2, do_replicas},
	{"exist", 2, do_exist},       {"route", 3, do_route},         {"client", 2, do_client}, {"list", 1, do_list},
	{"count", 1, do_count},       {"unregister", 1, do_unregister}, {"pretend", 3, do_pretend}, {"mount", 2, do_mount},
	{"unmount", 2, do_mount},     {"stats", 1, do_stats},
};

static void run_line(char *line)
{
	char *words[WORDS], *rest = line;
	int count = 0;
	while (count < WORDS && (words[count] = strsep(&rest, " ")))
		count++;
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		if (strcmp(words[0], commands[i].name) || count < commands[i].words)
			continue;
		commands[i].run(words, count);
		return;
	}
	if (strcmp(words[0], "quit"))
		printf("{\"event\":\"bad_command\"}\n");
	else
		tool.ended = true;
}

/* --- life ----------------------------------------------------------------------------------------------------------- */

static void on_input(struct ev_loop *loop, ev_io *watcher, int events)
{
	(void)events;
	ssize_t got = read(STDIN_FILENO, tool.line + tool.length, sizeof tool.line - tool.length);
	if (got > 0) {
		tool.length += (size_t)got;
	} else if (got == 0 || errno != EAGAIN) {
		tool.ended = true;
		ev_io_stop(loop, watcher);
	}
}

/* Lines are run outside the loop's callbacks, since each waits for its call in the loop. */
static void serve(void)
{
	ev_io_init(&tool.input, on_input, STDIN_FILENO, EV_READ);
	ev_io_start(tool.host.loop, &tool.input);
	while (!tool.host.interrupted) {
		char *end = memchr(tool.line, '\n', tool.length);
		if (end) {
			size_t used = (size_t)(end - tool.line) + 1;
			char line[4096];
			*end = '\0';
			(void)snprintf(line, sizeof line, "%.*s", (int)sizeof line - 1, tool.line);
			memmove(tool.line, tool.line + used, tool.length -= used);
			run_line(line);
		} else if (tool.ended) {
			break;
		} else {
			ev_run(tool.host.loop, EVRUN_ONCE);
		}
	}
	ev_io_stop(tool.host.loop, &tool.input);
}

int main(int argc, char **argv)
{
	char why[512];
	struct neap_remote_directory_options options = {0};
	int result = app_flags_parse(&program, argc, argv);
	if (result >= 0)
		return result;
	options.call_timeout_ms = (uint32_t)timeout_ms;
	tool.out.max = 65u << 20;
	if (neap_host_port_parse(master, 50051, &options.master, why, sizeof why) ||
	    app_host_open(&tool.host, &(struct app_host_options){.no_engine = true}, why, sizeof why)) {
		app_error(&program, "%s", why);
		return APP_START;
	}
	if (neap_remote_directory_create(&tool.remote, tool.host.reactor, &options))
		return APP_START;
	printf("{\"event\":\"ready\",\"pid\":%ld}\n", (long)getpid());
	(void)fflush(stdout);
	serve();
	support_cover(neap_reactor_dispatcher(tool.host.reactor));
	neap_remote_directory_destroy(tool.remote);
	app_host_close(&tool.host);
	return APP_OK;
}
