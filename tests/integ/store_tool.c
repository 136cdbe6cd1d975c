/* store_tool: an accessor without tiers that puts a value and gets it at once, again and again, and compares every byte.
 *
 * It prints a JSON line for each thing that happens: `ready`, `mark` now and then, `ended` with what it has seen. Every value lies in the
 * same two buffers, so a byte that comes late, or goes late, is in the next value. */
#include "apps/common/flags.h"
#include "apps/common/memory.h"
#include "apps/common/pattern.h"
#include "tests/support/coverage.h"
#include <inttypes.h>
#include <neap/store.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	const char *master, *name, *put, *get, *protocol, *device_filter;
	uint64_t size, rounds, marks;
} given = {.name = "v", .put = "reverse", .get = "reverse", .size = 65536, .rounds = 100, .marks = 1};

static const struct app_flag flags[] = {
	{"master", APP_FLAG_TEXT, &given.master, NULL, 0, 0, "HOST:PORT of the neap-master"},
	{"name", APP_FLAG_TEXT, &given.name, NULL, 0, 0, "before all keys"},
	{"put", APP_FLAG_CHOICE, &given.put, "reverse|forward", 0, 0, "the direction of puts"},
	{"get", APP_FLAG_CHOICE, &given.get, "reverse|forward", 0, 0, "the direction of gets"},
	{"size", APP_FLAG_SIZE, &given.size, NULL, 1, 1u << 28, "of a value"},
	{"rounds", APP_FLAG_NUMBER, &given.rounds, NULL, 1, UINT32_MAX, "a put and a get each"},
	{"protocol", APP_FLAG_TEXT, &given.protocol, NULL, 0, 0, "as in neap_engine_options, like the next"},
	{"device_filter", APP_FLAG_TEXT, &given.device_filter, NULL, 0, 0, ""},
	{"marks", APP_FLAG_NUMBER, &given.marks, NULL, 1, UINT32_MAX, "how often on the way it says so"},
};

static const struct app_program program = {
	.name = "store_tool",
	.purpose = "Puts values and gets them at once, for tests.",
	.flags = flags,
	.flag_count = sizeof flags / sizeof flags[0],
};

static struct {
	struct neap_reactor *reactor;
	struct neap_engine *engine;
	struct neap_store *store;
	bool ready, told, held, gone;
	struct neap_store_outcome outcome; /* without what it points to */
	char why[200];
	uint64_t completed, refused, wrong, lost, returned; /* see run_round */
} run;

static void must(int error, const char *what, const char *why)
{
	if (!error)
		return;
	fprintf(stderr, "store_tool: %s: %s\n", what, why ? why : neap_error_text(error));
	exit(APP_FAILED);
}

static void drive(const bool *flag)
{
	struct pollfd fd = {.fd = neap_reactor_fd(run.reactor), .events = POLLIN};
	while (!*flag) {
		int answer = neap_reactor_run_once(run.reactor, NULL);
		must(answer < 0 ? answer : 0, "reactor", NULL);
		if (answer == NEAP_RUN_ARMED && !*flag)
			(void)poll(&fd, 1, -1);
	}
}

static void set(void *user)
{
	*(bool *)user = true;
}

static void on_ready(void *user, int error, const char *why)
{
	(void)user;
	must(error, "no master", why);
	run.ready = true;
}

static void on_outcome(void *user, const struct neap_store_outcome *outcome)
{
	(void)user;
	run.outcome = *outcome;
	if (outcome->status != NEAP_STORE_SUCCESS)
		(void)snprintf(run.why, sizeof run.why, "%s", outcome->why);
	run.told = true;
}

static void on_released(void *user)
{
	(void)user;
	run.held = false;
	run.gone = true;
}

static enum neap_direction direction_of(const char *text)
{
	return strcmp(text, "forward") ? NEAP_REVERSE : NEAP_FORWARD;
}

/* Until the outcome is there, and the buffer is ours again. */
static enum neap_store_status finish(int error)
{
	must(error, "submit", NULL);
	drive(&run.told);
	if (run.outcome.held)
		drive(&run.gone);
	run.told = run.gone = false;
	return run.outcome.status;
}

static void on_removed(void *user, int error, uint64_t count, const char *why)
{
	(void)user, (void)error, (void)count, (void)why;
	run.told = true;
}

/* So that no tier ever has to evict: a value that is not there is lost. What could not be removed, because its owner stands still, is no
 * matter; there is room for many of them. */
static void remove_value(const struct neap_key *key)
{
	must(neap_store_remove(run.store, key, 0, on_removed, NULL), "remove", NULL);
	drive(&run.told);
	run.told = false;
}

/* A get brings the value of its key and no other. After a put that succeeded it may be refused, but the value is not said to be missing;
 * after one that failed it brings nothing. */
static void run_round(uint64_t number, void *from, void *to)
{
	char text[128];
	struct neap_key key = {text, (uint32_t)snprintf(text, sizeof text, "%s/%" PRIu64, given.name, number)};
	struct neap_slice_of put_slice = {from, given.size}, get_slice = {to, given.size};
	const struct neap_put_options put = {.direction = direction_of(given.put), .released = on_released};
	const struct neap_get_options get = {.direction = direction_of(given.get), .released = on_released};
	app_pattern_fill(from, 0, given.size, number);
	enum neap_store_status stored = finish(neap_store_put(run.store, &key, &put_slice, 1, &put, on_outcome, NULL, NULL));
	memset(from, 0xdd, given.size);
	memset(to, 0xee, given.size);
	enum neap_store_status got = finish(neap_store_get(run.store, &key, &get_slice, 1, &get, on_outcome, NULL, NULL));
	bool right = run.outcome.size == given.size && app_pattern_check(to, 0, given.size, number) == UINT64_MAX;
	run.completed += stored == NEAP_STORE_SUCCESS && got == NEAP_STORE_SUCCESS;
	run.refused += stored != NEAP_STORE_SUCCESS || got != NEAP_STORE_SUCCESS;
	run.wrong += got == NEAP_STORE_SUCCESS && !right;
	run.lost += stored == NEAP_STORE_SUCCESS && got != NEAP_STORE_SUCCESS && run.outcome.error == NEAP_STORE_OBJECT_NOT_FOUND;
	run.returned += stored == NEAP_STORE_FAILED && got == NEAP_STORE_SUCCESS;
	remove_value(&key);
}

static void on_settled(void *user, int error, const char *why)
{
	(void)user;
	must(error, "memory on the devices", why);
	run.told = true;
}

static void *make_memory(void)
{
	char why[300];
	uint64_t region;
	void *memory = app_memory_map(given.size, true, why, sizeof why);
	must(!memory, "memory", why);
	struct neap_memory range = {.address = memory, .length = given.size, .access = NEAP_GRANT_ONLY};
	must(neap_memory_register(run.engine, &range, 1, &region, why, sizeof why), "memory", why);
	must(neap_memory_settled(run.engine, region, on_settled, NULL), "memory on the devices", NULL);
	drive(&run.told);
	run.told = false;
	return memory;
}

static uint64_t bytes_on_devices(void)
{
	struct neap_device_info info;
	uint64_t bytes = 0;
	for (uint32_t i = 0; neap_engine_device(run.engine, i, &info) == NEAP_OK; i++)
		bytes += info.bytes_moved;
	return bytes;
}

static void begin(void)
{
	char why[400];
	const struct neap_engine_options options = {
		.local_name = "127.0.0.1", .protocol = given.protocol, .device_filter = given.device_filter};
	const struct neap_store_options store = {.master = given.master, .no_inline = true, .ready = on_ready};
	must(neap_reactor_create(&run.reactor, NULL), "reactor", NULL);
	must(neap_engine_create(&run.engine, run.reactor, &options, why, sizeof why), "engine", why);
	must(neap_store_create(&run.store, run.engine, &store, why, sizeof why), "store", why);
	drive(&run.ready);
	printf("{\"event\":\"ready\",\"pid\":%d}\n", (int)getpid());
}

static void end(void)
{
	bool closed = false;
	must(neap_store_close(run.store, set, &closed), "close", NULL);
	drive(&closed);
	closed = false;
	must(neap_engine_close(run.engine, set, &closed), "close", NULL);
	drive(&closed);
	neap_reactor_stop(run.reactor);
	must(neap_reactor_run(run.reactor) < 0, "reactor", NULL);
	must(support_reactor_destroy(run.reactor), "reactor", NULL);
}

int main(int argc, char **argv)
{
	int result = app_flags_parse(&program, argc, argv);
	if (result >= 0)
		return result;
	must(!given.master, "--master", "is needed");
	setvbuf(stdout, NULL, _IOLBF, 0);
	begin();
	void *from = make_memory(), *to = make_memory();
	for (uint64_t i = 0; i < given.rounds; i++) {
		if (i * given.marks % given.rounds < given.marks)
			printf("{\"event\":\"mark\",\"round\":%" PRIu64 "}\n", i);
		run_round(i, from, to);
	}
	printf("{\"event\":\"ended\",\"completed\":%" PRIu64 ",\"refused\":%" PRIu64 ",\"wrong\":%" PRIu64 ",\"lost\":%" PRIu64
	       ",\"returned\":%" PRIu64 ",\"on_devices\":%" PRIu64 ",\"why\":\"%s\"}\n", run.completed, run.refused, run.wrong, run.lost,
	       run.returned, bytes_on_devices(), run.why);
	end();
	return run.wrong || run.lost || run.returned ? APP_FAILED : APP_OK;
}
