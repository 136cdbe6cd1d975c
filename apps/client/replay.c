#include "apps/client/replay.h"
#include "apps/client/link.h"
#include "apps/client/options.h"
#include "apps/common/host.h"
#include "apps/common/memory.h"
#include "apps/common/pattern.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONCURRENCY_MAX 1024u
#define PROGRESS_NS UINT64_C(100000000)

static const char *master = "127.0.0.1:50051", *trace_path, *directions = "reverse,forward", *host_name = "127.0.0.1", *half_file,
				  *prefix = "", *protocol = "tcp", *device_names = "";
static uint64_t block_bytes = 65536, concurrency = 16;
static double minutes = 2, seconds = 20, deadline = 5;
static bool json, quiet;

static const struct app_flag flags[] = {
	{"trace", APP_FLAG_TEXT, &trace_path, NULL, 0, 0, "the trace: a JSON object a line, with `timestamp` (ms) and `hash_ids`"},
	{"minutes", APP_FLAG_SECONDS, &minutes, "=MINUTES", 0, 1000000, "of the trace, from its begin"},
	{"seconds", APP_FLAG_SECONDS, &seconds, NULL, 0, 86400, "time for each direction; then it ends where it is"},
	{"block", APP_FLAG_SIZE, &block_bytes, NULL, 512, UINT64_C(64) << 20, "bytes of each value"},
	{"concurrency", APP_FLAG_NUMBER, &concurrency, NULL, 1, CONCURRENCY_MAX, "blocks under way at once"},
	{"direction", APP_FLAG_CHOICES, &directions, "reverse|forward", 0, 0,
	 "who moves the bytes; each of them plays the trace on keys of its own"},
	{"prefix", APP_FLAG_TEXT, &prefix, NULL, 0, 0, "before all keys"},
	{"deadline", APP_FLAG_SECONDS, &deadline, NULL, 0, 3600, "of each put and get, in seconds"},
	{"master_server_address", APP_FLAG_TEXT, &master, NULL, 0, 0, "HOST:PORT of neap-master"},
	{"host", APP_FLAG_TEXT, &host_name, NULL, 0, 0, "name or address of this machine that the clients use"},
	{"protocol", APP_FLAG_CHOICE, &protocol, "tcp|rdma|auto", 0, 0, "the transport, as of neap-client"},
	{"device_names", APP_FLAG_TEXT, &device_names, NULL, 0, 0,
	 "a comma list of the RDMA devices that may be used; not given: MC_TE_FILTERS, or all"},
	{"half_file", APP_FLAG_TEXT, &half_file, NULL, 0, 0, "made when half of the last direction's blocks are through"},
	{"json", APP_FLAG_SWITCH, &json, NULL, 0, 0, "figures as JSON, one line for each direction"},
	{"quiet", APP_FLAG_SWITCH, &quiet, NULL, 0, 0, "no progress on a terminal"},
};
static const struct app_program program = {
	.name = "neap-client replay",
	.purpose = "Plays the blocks of a trace as a KV cache does: gets each, puts it when it is not there, compares every byte that is\n"
			   "read. It joins the cluster as a process that holds nothing.",
	.usage = "--trace=FILE [--flag=value ...]",
	.flags = flags,
	.flag_count = sizeof flags / sizeof flags[0],
	.exit_status = "0 all bytes were right, 1 some were wrong or nothing worked, 2 a wrong flag, 3 could not start",
};

struct replay;

struct slot { /* a block under way */
	struct replay *replay;
	unsigned char *memory;
	uint64_t began_ns, seed;
	uint32_t key_length;
	bool puts, ended, held; /* puts: it was not there. ended: wants the next one, when not held */
	char key[256];
};

struct replay {
	struct app_host host;
	struct neap_store *store;
	struct client_trace trace;
	struct client_figures figures[2];
	const char *names[2];
	uint32_t runs;
	struct client_figures *now;
	const char *name;
	enum neap_direction direction;
	struct slot slots[CONCURRENCY_MAX];
	unsigned char *memory;
	uint64_t next, until_ns, began_ns, shown_ns;
	uint32_t under_way;
	bool settled, ready, done, closed, last, shows, told_half;
	int ready_error;
	char ready_why[512];
};

/* --- blocks ------------------------------------------------------------------------------------------------------------------------ */

static void begin_next(struct slot *slot);

static void show(struct replay *replay)
{
	uint64_t now_ns = app_now_ns();
	struct client_figures *now = replay->now;
	bool half = now->blocks >= replay->trace.count / 2 || now_ns > replay->began_ns + (replay->until_ns - replay->began_ns) / 2;
	if (half_file && replay->last && half && !replay->told_half) {
		char why[512];
		replay->told_half = true;
		if (app_file_write(half_file, "half\n", why, sizeof why))
			app_error(&program, "%s", why);
	}
	if (!replay->shows || now_ns - replay->shown_ns < PROGRESS_NS)
		return;
	replay->shown_ns = now_ns;
	now->seconds = (double)(now_ns - replay->began_ns) * 1e-9;
	client_figures_progress(now, replay->name, replay->trace.count);
}

static void go_on(struct slot *slot)
{
	if (!slot->ended || slot->held)
		return;
	slot->replay->now->blocks++;
	slot->replay->under_way--;
	show(slot->replay);
	begin_next(slot);
}

static void released(void *user)
{
	struct slot *slot = user;
	slot->held = false;
	go_on(slot);
}

static void end_block(struct slot *slot, const struct neap_store_outcome *outcome)
{
	slot->held = outcome->held;
	slot->ended = true;
	go_on(slot);
}

static void put_done(void *user, const struct neap_store_outcome *outcome)
{
	struct slot *slot = user;
	struct client_figures *now = slot->replay->now;
	if (outcome->status == NEAP_STORE_SUCCESS) {
		histogram_add(&now->puts, app_now_ns() - slot->began_ns);
		now->stored += outcome->created;
		now->present += !outcome->created;
		now->bytes += outcome->created ? block_bytes : 0;
	} else {
		now->unknown += outcome->status == NEAP_STORE_UNKNOWN;
		now->failed_puts += outcome->status == NEAP_STORE_FAILED;
		client_figures_note(now, outcome->error);
	}
	end_block(slot, outcome);
}

static void put(struct slot *slot)
{
	struct neap_key key = {.bytes = slot->key, .length = slot->key_length};
	struct neap_slice_of slice = {.address = slot->memory, .length = block_bytes};
	struct neap_put_options options = {
		.direction = slot->replay->direction, .deadline_ns = (uint64_t)(deadline * 1e9), .released = released};
	app_pattern_fill(slot->memory, 0, block_bytes, slot->seed);
	slot->puts = true;
	slot->began_ns = app_now_ns();
	int error = neap_store_put(slot->replay->store, &key, &slice, 1, &options, put_done, slot, NULL);
	if (error)
		put_done(slot, &(struct neap_store_outcome){.status = NEAP_STORE_FAILED, .error = error, .why = ""});
}

static void get_done(void *user, const struct neap_store_outcome *outcome)
{
	struct slot *slot = user;
	struct client_figures *now = slot->replay->now;
	if (outcome->status == NEAP_STORE_SUCCESS) {
		histogram_add(&now->gets, app_now_ns() - slot->began_ns);
		bool right = outcome->size == block_bytes && app_pattern_check(slot->memory, 0, block_bytes, slot->seed) == UINT64_MAX;
		now->hits += right;
		now->wrong += !right;
		now->bytes += block_bytes;
		end_block(slot, outcome);
		return;
	}
	now->misses += outcome->error == NEAP_STORE_OBJECT_NOT_FOUND;
	now->failed_gets += outcome->error != NEAP_STORE_OBJECT_NOT_FOUND;
	if (outcome->error != NEAP_STORE_OBJECT_NOT_FOUND)
		client_figures_note(now, outcome->error);
	if (outcome->error == NEAP_ECANCELED || outcome->held) /* it ends, or the memory is not ours yet */
		end_block(slot, outcome);
	else
		put(slot);
}

static void begin_next(struct slot *slot)
{
	struct replay *replay = slot->replay;
	if (replay->next == replay->trace.count || app_now_ns() > replay->until_ns || replay->host.interrupted) {
		replay->done = !replay->under_way;
		return;
	}
	uint32_t block = replay->trace.blocks[replay->next++];
	struct neap_get_options options = {.direction = replay->direction, .deadline_ns = (uint64_t)(deadline * 1e9), .released = released};
	struct neap_slice_of slice = {.address = slot->memory, .length = block_bytes};
	slot->key_length = (uint32_t)snprintf(slot->key, sizeof slot->key, "%s%s/%" PRIu32, prefix, replay->name, block);
	slot->seed = (uint64_t)block << 1 | (replay->direction == NEAP_FORWARD);
	slot->ended = slot->puts = false;
	slot->began_ns = app_now_ns();
	replay->under_way++;
	memset(slot->memory, 0xA5, block_bytes); /* what was there before must not pass for the value */
	struct neap_key key = {.bytes = slot->key, .length = slot->key_length};
	int error = neap_store_get(replay->store, &key, &slice, 1, &options, get_done, slot, NULL);
	if (!error)
		return;
	client_figures_note(replay->now, error);
	replay->now->failed_gets++;
	replay->now->blocks++;
	replay->under_way--;
	replay->until_ns = 0; /* the store takes nothing: no use in going on */
	replay->done = !replay->under_way;
}

/* --- a run --------------------------------------------------------------------------------------------------------------------------- */

static void play(struct replay *replay, uint32_t run)
{
	struct neap_store_numbers before, after;
	neap_store_numbers(replay->store, &before);
	replay->now = &replay->figures[run];
	replay->name = replay->names[run];
	replay->direction = strcmp(replay->name, "forward") ? NEAP_REVERSE : NEAP_FORWARD;
	replay->last = run + 1 == replay->runs;
	replay->next = 0;
	replay->done = false;
	replay->began_ns = app_now_ns();
	replay->until_ns = replay->began_ns + (uint64_t)(seconds * 1e9);
	for (uint32_t i = 0; i < concurrency; i++)
		begin_next(&replay->slots[i]);
	app_host_wait(&replay->host, &replay->done, seconds + 2 * deadline + 5);
	replay->now->seconds = (double)(app_now_ns() - replay->began_ns) * 1e-9;
	neap_store_numbers(replay->store, &after);
	replay->now->retries = after.retries - before.retries;
	if (replay->shows)
		fprintf(stderr, "\r\033[K");
}

static void on_ready(void *user, int error, const char *why)
{
	struct replay *replay = user;
	replay->ready_error = error;
	snprintf(replay->ready_why, sizeof replay->ready_why, "%s", why ? why : "");
	replay->ready = true;
}

static void set(void *user)
{
	*(bool *)user = true;
}

static void on_settled(void *user, int error, const char *why)
{
	struct replay *replay = user;
	replay->settled = true;
	if (error)
		app_error(&program, "its memory: %s", why);
}

static int open_all(struct replay *replay)
{
	neap_region_id region = 0;
	char why[600], reached[64];
	struct neap_engine_options engine = {0};
	if (neap_engine_options_from_environment(&engine, why, sizeof why) ||
	    client_trace_load(&replay->trace, trace_path, minutes, why, sizeof why)) {
		app_error(&program, "%s", why);
		return APP_USAGE;
	}
	engine.local_name = host_name;
	engine.protocol = protocol;
	if (*device_names)
		engine.device_filter = device_names;
	int error = client_reach(host_name, reached, sizeof reached, why, sizeof why);
	engine.bind_address = reached[0] ? reached : NULL;
	if (!error)
		error = app_host_open(&replay->host, &(struct app_host_options){.engine = &engine}, why, sizeof why);
	replay->memory = error ? NULL : app_memory_map(block_bytes * concurrency, false, why, sizeof why);
	struct neap_memory memory = {.address = replay->memory, .length = block_bytes * concurrency, .access = NEAP_GRANT_ONLY};
	if (!error)
		error = replay->memory ? neap_memory_register(replay->host.engine, &memory, 1, &region, why, sizeof why) : -1;
	if (!error) /* what devices do not have is granted without keys */
		error = neap_memory_settled(replay->host.engine, region, on_settled, replay);
	if (!error && !app_host_wait(&replay->host, &replay->settled, 60))
		error = snprintf(why, sizeof why, "the RDMA devices did not take its memory within 60 s");
	struct neap_store_options options = {
		.master = master, .host = host_name, .bind_address = engine.bind_address, .ready = on_ready, .user = replay};
	if (!error)
		error = neap_store_create(&replay->store, replay->host.engine, &options, why, sizeof why);
	if (!error && !app_host_wait(&replay->host, &replay->ready, 10))
		error = snprintf(why, sizeof why, "the master at %s did not answer within 10 s", master);
	if (!error && replay->ready_error)
		error = snprintf(why, sizeof why, "the master at %s is not reached: %.400s; start one with `neap-master`, or say with "
		                                  "--master_server_address where it is", master, replay->ready_why);
	if (error)
		app_error(&program, "%s", why);
	return error ? APP_START : -1;
}

static void close_all(struct replay *replay)
{
	replay->host.interrupted = false;
	if (replay->store && !neap_store_close(replay->store, set, &replay->closed))
		app_host_wait(&replay->host, &replay->closed, 10);
	if (replay->host.loop)
		app_host_close(&replay->host);
	app_memory_unmap(replay->memory, block_bytes * concurrency);
	client_trace_release(&replay->trace);
}

static int report(const struct replay *replay)
{
	uint64_t wrong = 0, worked = 0;
	for (uint32_t i = 0; i < replay->runs; i++) {
		const struct client_figures *figures = &replay->figures[i];
		wrong += figures->wrong;
		worked += figures->hits + figures->stored;
		if (json)
			client_figures_json(figures, replay->names[i]);
	}
	if (!json)
		client_figures_print(replay->figures, replay->names, replay->runs);
	if (wrong)
		app_error(&program, "%" PRIu64 " values were not what was put", wrong);
	return wrong || !worked || fflush(stdout) ? APP_FAILED : APP_OK;
}

int client_replay(int argc, char **argv)
{
	static struct replay replay; /* outlives a wait that a signal ends */
	int result = app_flags_parse(&program, argc, argv);
	if (result >= 0)
		return result;
	if (!trace_path) {
		app_error(&program, "--trace=FILE is needed: a JSON object a line, with `timestamp` (ms) and `hash_ids`");
		return APP_USAGE;
	}
	if (strlen(prefix) > 128) {
		app_error(&program, "--prefix is longer than 128 bytes");
		return APP_USAGE;
	}
	if (app_list_has(directions, "reverse"))
		replay.names[replay.runs++] = "reverse";
	if (app_list_has(directions, "forward"))
		replay.names[replay.runs++] = "forward";
	replay.shows = !quiet && isatty(STDERR_FILENO);
	result = open_all(&replay);
	for (uint32_t i = 0; i < concurrency; i++) {
		replay.slots[i].replay = &replay;
		replay.slots[i].memory = replay.memory + i * block_bytes;
	}
	bool interrupted = false;
	for (uint32_t i = 0; i < replay.runs && result < 0 && !interrupted; i++) {
		play(&replay, i);
		interrupted = replay.host.interrupted;
	}
	if (result < 0)
		result = report(&replay);
	close_all(&replay);
	return interrupted ? APP_FAILED : result;
}
