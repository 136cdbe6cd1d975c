#include "apps/client/command.h"
#include "apps/client/options.h"
#include <stdio.h>
#include <string.h>

static struct client_asked asked = {
	.list = {.items = asked.words},
	.port = 50052,
	.limit = 0,
	.spool_max = UINT64_C(1) << 30,
	.deadline = 60,
	.verify = "crc32c",
};

#define COMMON \
	{"port", APP_FLAG_NUMBER, &asked.port, NULL, 1, 65535, "local port of the neap-client to ask: its --port"}, \
	{"deadline", APP_FLAG_SECONDS, &asked.deadline, NULL, 0, 3600, "for all of it, in seconds"}
#define MOVES \
	{"direction", APP_FLAG_CHOICE, &asked.direction, "reverse|forward", 0, 0, \
	 "who moves the bytes; not given: as that neap-client does"}, \
	{"verify", APP_FLAG_CHOICE, &asked.verify, "crc32c|none", 0, 0, "a sum over all of the way, or none"}, \
	{"quiet", APP_FLAG_SWITCH, &asked.quiet, NULL, 0, 0, "no progress, no line about what was done"}

static const struct app_flag put_flags[] = {
	COMMON, MOVES,
	{"spool_max", APP_FLAG_SIZE, &asked.spool_max, NULL, 1, UINT64_C(1) << 40,
	 "memory for what comes from a pipe, whose length is not known"}};
static const struct app_flag get_flags[] = {COMMON, MOVES};
static const struct app_flag rm_flags[] = {
	COMMON,
	{"matching", APP_FLAG_TEXT, &asked.matching, NULL, 0, 0, "all keys that match this pattern, at all clients"},
	{"all", APP_FLAG_SWITCH, &asked.all, NULL, 0, 0, "all keys, at all clients"}};
static const struct app_flag ls_flags[] = {
	COMMON, {"limit", APP_FLAG_NUMBER, &asked.limit, NULL, 0, 0, "keys to show; 0: all"}};
static const struct app_flag plain_flags[] = {COMMON};

#define FLAGS(array) .flags = array, .flag_count = sizeof array / sizeof array[0]
#define EXITS "0 success, 1 failed, 2 a wrong flag or word, 3 no neap-client answers, 4 no such key"

static const struct command {
	const char *word;
	size_t min, max; /* words behind it */
	int (*run)(struct client_link *link, const struct client_asked *asked);
	struct app_program program;
} commands[] = {
	{"put", 1, 2, client_put,
     {.name = "neap-client put", .usage = "KEY [FILE] [--flag=value ...]", FLAGS(put_flags),
      .purpose = "Stores the content of FILE, or of standard input, under KEY. A key's value never changes: the first one stays\n"
                 "until it is removed."}},
	{"get", 1, 2, client_get,
     {.name = "neap-client get", .usage = "KEY [FILE] [--flag=value ...]", FLAGS(get_flags),
      .purpose = "Writes the value of KEY to FILE, all of it or nothing, or to standard output."}},
	{"rm", 0, 1000, client_remove,
     {.name = "neap-client rm", .usage = "KEY ... | --matching=PATTERN | --all [--flag=value ...]", FLAGS(rm_flags),
      .purpose = "Removes keys wherever they lie. Who is reading one finishes reading."}},
	{"exists", 1, 1000, client_exists,
     {.name = "neap-client exists", .usage = "KEY ... [--flag=value ...]", FLAGS(plain_flags),
      .purpose = "Tells which keys have a value."}},
	{"ls", 0, 1, client_list,
     {.name = "neap-client ls", .usage = "[PATTERN] [--flag=value ...]", FLAGS(ls_flags),
      .purpose = "Lists the cluster's keys, or those that match."}},
	{"stat", 1, 1, client_stat,
     {.name = "neap-client stat", .usage = "KEY [--flag=value ...]", FLAGS(plain_flags), .purpose = "Tells where the value of KEY lies."}},
	{"health", 0, 0, client_health,
     {.name = "neap-client health", .usage = "[--flag=value ...]", FLAGS(plain_flags),
      .purpose = "Tells how the neap-client is, and its figures, one `name value` a line."}},
};

const char *client_key_text(const char *bytes, size_t length, char *text, size_t size)
{
	size_t at = 0;
	for (size_t i = 0; i < length && at + 5 < size; i++) {
		unsigned char byte = (unsigned char)bytes[i];
		if (byte < 0x20 || byte == 0x7f || byte == '\\')
			at += (size_t)snprintf(text + at, size - at, "\\x%02x", byte);
		else
			text[at++] = (char)byte;
	}
	text[at] = 0;
	return text;
}

uint64_t client_direction_of(const struct client_asked *what)
{
	if (!what->direction)
		return NEAP_DIRECTION_DEFAULT;
	return strcmp(what->direction, "forward") ? NEAP_REVERSE : NEAP_FORWARD;
}

int client_flush(const struct client_link *link)
{
	if (!fflush(stdout) && !ferror(stdout))
		return -1;
	app_error(link->program, "cannot write to standard output");
	return CLIENT_FAILED;
}

static int run(const struct command *command, int argc, char **argv)
{
	struct app_program program = command->program;
	struct client_link link;
	program.environment = "NEAP_CLIENT_";
	program.exit_status = EXITS;
	program.words = &asked.list;
	asked.list.max = command->max;
	int result = app_flags_parse(&program, argc, argv);
	if (result < 0 && asked.list.count < command->min) {
		app_error(&program, "which key? usage: %s %s", program.name, program.usage);
		result = CLIENT_USAGE;
	}
	for (size_t i = 0; result < 0 && command->run != client_list && i < asked.list.count; i++) {
		size_t length = strlen(asked.words[i]);
		bool is_key = i == 0 || (command->run != client_put && command->run != client_get);
		if (!is_key || (length && length <= NEAP_KEY_MAX))
			continue;
		app_error(&program, "a key has 1 to %u bytes, this one has %zu", NEAP_KEY_MAX, length);
		result = CLIENT_USAGE;
	}
	if (result >= 0)
		return result;
	client_watch_signals();
	result = client_link_open(&link, &program, asked.port, asked.deadline);
	if (result >= 0)
		return result;
	result = command->run(&link, &asked);
	client_link_close(&link);
	return result;
}

bool client_command(int argc, char **argv, int *result_p)
{
	for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof commands[0]; i++)
		if (!strcmp(argv[1], commands[i].word)) {
			*result_p = run(&commands[i], argc - 1, argv + 1);
			return true;
		}
	return false;
}
