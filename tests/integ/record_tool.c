/* Records what a metadata back-end's machines and a real server say to each other, and plays it again without the server: the machines must
 * then do, byte for byte, what they did.
 *
 *   record_tool record LOG CONNECTION [USER PASSWORD]   steps come on stdin; the outcome of each is a line on stdout
 *   record_tool play LOG                                0 when all went as it is written
 *
 * Steps: get KEY, set KEY VALUE, create KEY VALUE, lease KEY MS VALUE, touch KEY MS, remove KEY, watch KEY, changed, run MS. */
#include "metadata/etcd.h"
#include "tests/support/coverage.h"
#include "tests/support/drive.h"
#include "tests/support/record_http.h"
#include "tests/support/record_redis.h"
#include "tests/support/script_names.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define STEP_MS 20000
#define WITHIN (1000 * MS) /* each operation */
#define PLAY_MS 120000u /* of the machines' time, for what comes next */

static struct {
	struct record_log log;
	struct record_http http;
	struct record_redis redis;
	struct script_names names;
	struct neap_reactor *reactor;
	struct neap_backend *backend;
	struct neap_backend_watch watch;
	uint64_t now_ns;
	uint64_t call;
	bool told, changed;
	char line[4096], connection[256], username[64], password[64];
} tool;

static void told(void *user, int error, const char *value, size_t length, const char *why)
{
	(void)user;
	tool.told = true;
	record_did(&tool.log, "told", 0, error, value, length);
	if (!tool.log.plays)
		printf("%d %.*s%s\n", error, (int)length, value ? value : "", error ? why : "");
}

static void changed(struct neap_backend_watch *watch)
{
	(void)watch;
	tool.changed = true;
	record_did(&tool.log, "changed", 0, 0, "", 0);
}

/* --- steps ------------------------------------------------------------------------------------------------------------------- */

static bool try_to_watch(const char *key)
{
	tool.watch.changed = changed;
	if (tool.backend->ops->watch(tool.backend, key, &tool.watch))
		return false;
	tool.told = true;
	tool.changed = false;
	record_did(&tool.log, "watching", 0, 0, key, strlen(key));
	return true;
}

static int set(const char *key, const char *value, uint64_t lease_ms, bool create)
{
	struct neap_backend_set set = {
		.key = key, .value = value, .length = strlen(value), .lease_ns = lease_ms * MS, .create = create};
	return tool.backend->ops->set(tool.backend, &set, WITHIN, told, NULL, &tool.call);
}

/* Begins it. An error of the call itself is an outcome like others. */
static void begin(const char *step)
{
	const struct neap_backend_ops *ops = tool.backend->ops;
	char verb[16] = "", key[128] = "", value[512] = "";
	unsigned ms = 0;
	int error = 0;
	tool.told = false;
	(void)sscanf(step, "%15s %127s %511s", verb, key, value);
	if (strcmp(verb, "get") == 0)
		error = ops->get(tool.backend, key, WITHIN, told, NULL, &tool.call);
	else if (strcmp(verb, "remove") == 0)
		error = ops->remove(tool.backend, key, WITHIN, told, NULL, &tool.call);
	else if (strcmp(verb, "set") == 0 || strcmp(verb, "create") == 0)
		error = set(key, value, 0, verb[0] == 'c');
	else if (sscanf(step, "lease %127s %u %511s", key, &ms, value) == 3)
		error = set(key, value, ms, false);
	else if (sscanf(step, "touch %127s %u", key, &ms) == 2)
		error = ops->touch(tool.backend, key, ms * MS, WITHIN, told, NULL, &tool.call);
	else if (strcmp(verb, "watch") == 0)
		(void)try_to_watch(key);
	else
		tool.told = true;
	if (error)
		told(NULL, error, NULL, 0, neap_error_text(error));
}

/* --- the back-end ------------------------------------------------------------------------------------------------------------- */

static int open_backend(char *why, size_t why_size)
{
	struct neap_backend_options options = {.connection = tool.connection, .etcd_username = tool.username, .etcd_password = tool.password};
	struct neap_redis_options redis = {.username = tool.username, .password = tool.password};
	record_http_init(&tool.http, &tool.log);
	record_redis_init(&tool.redis, &tool.log);
	if (strncmp(tool.connection, "http", 4) == 0)
		return neap_http_create(&tool.backend, tool.reactor, &options, &tool.http.driver, why, why_size);
	if (strncmp(tool.connection, "redis://", 8) != 0)
		return neap_etcd_create(&tool.backend, tool.reactor, &options, &tool.http.driver, why, why_size);
	int error = neap_host_port_parse(tool.connection + 8, 6379, &redis.server, why, why_size);
	return error ? error : neap_redis_create(&tool.backend, tool.reactor, &redis, &tool.redis.driver);
}

/* The same chance at each time. */
static void draw(void *user, void *bytes, size_t length)
{
	uint32_t *state = user;
	for (size_t i = 0; i < length; i++)
		((unsigned char *)bytes)[i] = (unsigned char)((*state = *state * 1664525u + 1013904223u) >> 24);
}

/* When a log is played, time is what it says: from the beginning, also when its first line is of the first millisecond. */
static uint64_t played_ns(void *user)
{
	(void)user;
	return tool.now_ns;
}

static bool open_all(void)
{
	static uint32_t chance = 1;
	char why[300] = "";
	struct neap_reactor_options options = {.net = tool.log.plays ? &tool.names.net : NULL, .random = {.fill = draw, .user = &chance}};
	if (tool.log.plays)
		options.clock.now_ns = played_ns;
	tool.now_ns = 1000 * MS;
	script_names_open(&tool.names, "nobody.asks");
	if (neap_reactor_create(&tool.reactor, &options) || open_backend(why, sizeof why)) {
		fprintf(stderr, "%s: %s\n", tool.connection, why);
		return false;
	}
	return true;
}

static int close_all(void)
{
	struct neap_reactor *reactor = tool.reactor;
	tool.backend->ops->destroy(tool.backend);
	neap_reactor_stop(reactor);
	while (neap_reactor_run_once(reactor, NULL) != NEAP_RUN_STOPPED)
		tool.now_ns += MS;
	(void)support_reactor_destroy(reactor);
	if (tool.log.plays && !tool.log.failed && tool.log.line.what[0]) {
		fprintf(stderr, "line %u: never came: %s %u\n", tool.log.at, tool.log.line.what, tool.log.line.which);
		tool.log.failed = true;
	}
	bool failed = tool.log.failed;
	record_close(&tool.log);
	return failed;
}

/* --- recording ------------------------------------------------------------------------------------------------------------------ */

static bool is_told(void)
{
	char key[128];
	if (sscanf(tool.line, "watch %127s", key) == 1 && !tool.told)
		(void)try_to_watch(key);
	return strcmp(tool.line, "changed") == 0 ? tool.changed : tool.told;
}

/* A host of its own: that of the unit tests answers to Check. True: it is told within the time. */
static bool run_for(unsigned ms, bool until_told)
{
	uint64_t end_ns = drive_now_ns() + ms * MS;
	for (uint64_t now_ns; !(until_told && is_told()) && (now_ns = drive_now_ns()) < end_ns;) {
		struct pollfd fd = {.fd = neap_reactor_fd(tool.reactor), .events = POLLIN};
		if (neap_reactor_run_once(tool.reactor, NULL) != NEAP_RUN_MORE)
			(void)poll(&fd, 1, neap_reactor_deadline_ns(tool.reactor) > now_ns + 5 * MS ? 5 : 0);
	}
	return until_told && is_told();
}

/* The machines go on while nobody asks. False: the input has ended. */
static bool next_step(void)
{
	for (;;) {
		struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = neap_reactor_fd(tool.reactor), .events = POLLIN}};
		(void)poll(fds, 2, neap_reactor_run_once(tool.reactor, NULL) == NEAP_RUN_MORE ? 0 : 5);
		if (fds[0].revents && !fds[1].revents)
			return fgets(tool.line, sizeof tool.line, stdin) != NULL;
	}
}

static int record(void)
{
	(void)setvbuf(stdin, NULL, _IONBF, 0);
	while (next_step()) {
		unsigned ms = 0;
		tool.line[strcspn(tool.line, "\n")] = '\0';
		record_happened(&tool.log, "step", 0, 0, tool.line, strlen(tool.line));
		begin(tool.line);
		if (sscanf(tool.line, "run %u", &ms) == 1)
			(void)run_for(ms, false);
		else if (!run_for(STEP_MS, true))
			printf("late: %s\n", tool.line);
		if (strchr("wcr", tool.line[0]) && strncmp(tool.line, "create", 6) != 0 && strncmp(tool.line, "remove", 6) != 0)
			printf("done\n");
		fflush(stdout);
	}
	record_happened(&tool.log, "end", 0, 0, "", 0);
	return close_all();
}

/* --- playing --------------------------------------------------------------------------------------------------------------------- */

/* What the machines are to do next, they do within some time of theirs. */
static void let_them(void)
{
	unsigned at = tool.log.at;
	for (unsigned ms = 0; ms < PLAY_MS && tool.log.at == at && !tool.log.failed; ms++) {
		for (int i = 0; i < 4 && tool.log.at == at; i++)
			(void)neap_reactor_run_once(tool.reactor, NULL);
		if (tool.log.at == at && strcmp(tool.log.line.what, "watching") == 0)
			(void)try_to_watch(tool.log.line.text);
		tool.now_ns += MS;
	}
	if (tool.log.at == at && !tool.log.failed) {
		fprintf(stderr, "line %u: did not do: %s %u =%.200s\n", at, tool.log.line.what, tool.log.line.which, tool.log.line.text);
		tool.log.failed = true;
	}
}

static bool is_theirs(const char *what)
{
	static const char *const all[] = {"ask", "cancel", "connect", "command", "subscribe", "close", "told", "changed", "watching"};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(what, all[i]) == 0)
			return true;
	return false;
}

/* What happens to them happens when it did. */
static void wait_for(unsigned long at_ms)
{
	while (tool.now_ns < (1000 + at_ms) * MS && !tool.log.failed) {
		(void)neap_reactor_run_once(tool.reactor, NULL);
		tool.now_ns += MS;
	}
}

static int play(void)
{
	while (!tool.log.failed && tool.log.line.what[0] && strcmp(tool.log.line.what, "end") != 0) {
		if (is_theirs(tool.log.line.what)) {
			let_them();
			continue;
		}
		wait_for(tool.log.line.at_ms);
		struct record_line line = record_take(&tool.log);
		if (strcmp(line.what, "step") == 0) {
			begin(line.text);
		} else if (!record_http_play(&tool.http, &line) && !record_redis_play(&tool.redis, &line)) {
			fprintf(stderr, "line %u: %s is nothing that can be played\n", tool.log.at - 1, line.what);
			tool.log.failed = true;
		}
		free(line.text);
	}
	if (strcmp(tool.log.line.what, "end") == 0)
		free(record_take(&tool.log).text);
	return close_all();
}

int main(int argc, char **argv)
{
	bool plays = argc == 3 && strcmp(argv[1], "play") == 0;
	if (!plays && !(argc >= 4 && strcmp(argv[1], "record") == 0)) {
		fprintf(stderr, "usage: record_tool record LOG CONNECTION [USER PASSWORD] | record_tool play LOG\n");
		return 2;
	}
	if (!record_open(&tool.log, argv[2], plays))
		return 2;
	if (plays) {
		struct record_line line = record_take(&tool.log);
		if (strcmp(line.what, "open") != 0 || sscanf(line.text, "%255s %63s %63s", tool.connection, tool.username, tool.password) < 1)
			return fprintf(stderr, "%s: does not begin with what was opened\n", argv[2]), 2;
		free(line.text);
	} else {
		(void)snprintf(tool.connection, sizeof tool.connection, "%s", argv[3]);
		(void)snprintf(tool.username, sizeof tool.username, "%s", argc > 4 ? argv[4] : "");
		(void)snprintf(tool.password, sizeof tool.password, "%s", argc > 5 ? argv[5] : "");
		(void)snprintf(tool.line, sizeof tool.line, "%s %s %s", tool.connection, tool.username, tool.password);
		record_happened(&tool.log, "open", 0, 0, tool.line, strlen(tool.line));
	}
	return !open_all() ? 2 : plays ? play() : record();
}
