/* An application under a test script's control: a poll() loop that embeds a reactor and an engine, takes commands as lines on
 * standard input and prints one JSON object a line for each event. It is target and initiator at once. tests/integ/tool.py drives
 * it. */
#include "apps/common/stop_at.h"
#include "tests/integ/tool.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct tool tool;
static const char *local_name = "127.0.0.1", *bind_address, *congestion, *metadata, *metadata_cluster, *metadata_ca_file,
	*metadata_certificate_file, *metadata_key_file;
static uint64_t metadata_ms, metadata_refresh_ms, metadata_lease_ms;
static uint64_t progress_ms, connect_ms, handshake_ms, drain_ms, first_header_ms, lanes, retries, retries_backoff_ms;
static uint64_t handshake_port, data_port, port_min, port_max, requests_max, sessions_max, handshake_sessions_max,
	requests_per_peer;
static const char *protocol, *device_filter;
static uint64_t silence_retries, endpoints_max, mtu_bytes, region_max_bytes;
static bool plain, v1, v1_sent, checksum, no_local;

static const struct app_flag flags[] = {
	{"local_name", APP_FLAG_TEXT, &local_name, NULL, 0, 0, "as in neap_engine_options, like all that follow"},
	{"bind_address", APP_FLAG_TEXT, &bind_address, NULL, 0, 0, ""},
	{"congestion", APP_FLAG_TEXT, &congestion, NULL, 0, 0, ""},
	{"metadata", APP_FLAG_TEXT, &metadata, NULL, 0, 0, ""},
	{"metadata_cluster", APP_FLAG_TEXT, &metadata_cluster, NULL, 0, 0, ""},
	{"metadata_ca_file", APP_FLAG_TEXT, &metadata_ca_file, NULL, 0, 0, ""},
	{"metadata_certificate_file", APP_FLAG_TEXT, &metadata_certificate_file, NULL, 0, 0, ""},
	{"metadata_key_file", APP_FLAG_TEXT, &metadata_key_file, NULL, 0, 0, ""},
	{"metadata_ms", APP_FLAG_NUMBER, &metadata_ms, NULL, 0, 0, ""},
	{"metadata_refresh_ms", APP_FLAG_NUMBER, &metadata_refresh_ms, NULL, 0, 0, ""},
	{"metadata_lease_ms", APP_FLAG_NUMBER, &metadata_lease_ms, NULL, 0, 0, ""},
	{"progress_ms", APP_FLAG_NUMBER, &progress_ms, NULL, 0, 0, ""},
	{"connect_ms", APP_FLAG_NUMBER, &connect_ms, NULL, 0, 0, ""},
	{"handshake_ms", APP_FLAG_NUMBER, &handshake_ms, NULL, 0, 0, ""},
	{"drain_ms", APP_FLAG_NUMBER, &drain_ms, NULL, 0, 0, ""},
	{"first_header_ms", APP_FLAG_NUMBER, &first_header_ms, NULL, 0, 0, ""},
	{"lanes", APP_FLAG_NUMBER, &lanes, NULL, 0, 16, ""},
	{"retries", APP_FLAG_NUMBER, &retries, NULL, 0, 0, ""},
	{"retry_backoff_ms", APP_FLAG_NUMBER, &retries_backoff_ms, NULL, 0, 0, ""},
	{"handshake_port", APP_FLAG_NUMBER, &handshake_port, NULL, 0, 65535, ""},
	{"data_port", APP_FLAG_NUMBER, &data_port, NULL, 0, 65535, ""},
	{"port_min", APP_FLAG_NUMBER, &port_min, NULL, 0, 65535, ""},
	{"port_max", APP_FLAG_NUMBER, &port_max, NULL, 0, 65535, ""},
	{"requests_max", APP_FLAG_NUMBER, &requests_max, NULL, 0, 0, ""},
	{"requests_per_peer", APP_FLAG_NUMBER, &requests_per_peer, NULL, 0, 0, ""},
	{"sessions_max", APP_FLAG_NUMBER, &sessions_max, NULL, 0, 0, ""},
	{"handshake_sessions_max", APP_FLAG_NUMBER, &handshake_sessions_max, NULL, 0, 0, ""},
	{"plain", APP_FLAG_SWITCH, &plain, NULL, 0, 0, ""},
	{"v1", APP_FLAG_SWITCH, &v1, NULL, 0, 0, ""},
	{"v1_sent", APP_FLAG_SWITCH, &v1_sent, NULL, 0, 0, ""},
	{"checksum", APP_FLAG_SWITCH, &checksum, NULL, 0, 0, ""},
	{"no_local", APP_FLAG_SWITCH, &no_local, NULL, 0, 0, ""},
	{"protocol", APP_FLAG_TEXT, &protocol, NULL, 0, 0, ""},
	{"device_filter", APP_FLAG_TEXT, &device_filter, NULL, 0, 0, ""},
	{"silence_retries", APP_FLAG_NUMBER, &silence_retries, NULL, 0, 7, ""},
	{"endpoints_max", APP_FLAG_NUMBER, &endpoints_max, NULL, 0, 65535, ""},
	{"mtu_bytes", APP_FLAG_NUMBER, &mtu_bytes, NULL, 0, 4096, ""},
	{"region_max_bytes", APP_FLAG_NUMBER, &region_max_bytes, NULL, 0, 0, ""},
};
static const struct app_program program = {
	.name = "transfer_tool",
	.purpose = "Does what a test script says on standard input.",
	.flags = flags,
	.flag_count = sizeof flags / sizeof flags[0],
};

static void engine_options(struct neap_engine_options *o)
{
	o->local_name = local_name;
	o->bind_address = bind_address;
	o->congestion = congestion;
	o->metadata = metadata;
	o->metadata_cluster = metadata_cluster;
	o->metadata_ca_file = metadata_ca_file;
	o->metadata_certificate_file = metadata_certificate_file;
	o->metadata_key_file = metadata_key_file;
	o->metadata_timeout_ms = (uint32_t)metadata_ms;
	o->metadata_refresh_ms = (uint32_t)metadata_refresh_ms;
	o->metadata_lease_ms = (uint32_t)metadata_lease_ms;
	o->progress_timeout_ms = (uint32_t)progress_ms;
	o->connect_timeout_ms = (uint32_t)connect_ms;
	o->handshake_timeout_ms = (uint32_t)handshake_ms;
	o->drain_timeout_ms = (uint32_t)drain_ms;
	o->first_header_timeout_ms = (uint32_t)first_header_ms;
	o->lanes_per_peer = (uint32_t)lanes;
	o->retries_max = (uint32_t)retries;
	o->retry_backoff_ms = (uint32_t)retries_backoff_ms;
	o->handshake_port = (uint16_t)handshake_port;
	o->data_port = (uint16_t)data_port;
	o->port_min = (uint16_t)port_min;
	o->port_max = (uint16_t)port_max;
	o->requests_max = (uint32_t)requests_max;
	o->requests_per_peer_max = (uint32_t)requests_per_peer;
	o->sessions_max = (uint32_t)sessions_max;
	o->handshake_sessions_max = (uint32_t)handshake_sessions_max;
	o->plain_only = plain;
	o->v1_only = v1;
	o->v1_sent_is_done = v1_sent;
	o->checksum = checksum;
	o->no_local_path = no_local;
	o->protocol = protocol;
	o->device_filter = device_filter;
	o->rdma.silence_retries = (uint32_t)silence_retries;
	o->rdma.endpoints_max = (uint32_t)endpoints_max;
	o->rdma.mtu_bytes = (uint32_t)mtu_bytes;
	o->rdma.region_max_bytes = region_max_bytes;
}

/* --- the loop ---------------------------------------------------------------------------------------------- */

uint64_t tool_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void run_lines(void)
{
	char *begin = tool.input, *end;
	while ((end = memchr(begin, '\n', tool.input_length - (size_t)(begin - tool.input)))) {
		*end = 0;
		tool_command(&tool, begin);
		begin = end + 1;
	}
	tool.input_length -= (size_t)(begin - tool.input);
	memmove(tool.input, begin, tool.input_length);
}

static void read_input(void)
{
	ssize_t got = read(STDIN_FILENO, tool.input + tool.input_length, sizeof tool.input - tool.input_length);
	if (got > 0) {
		tool.input_length += (size_t)got;
		run_lines();
	} else if (got == 0 || errno != EINTR) {
		tool.script_ended = true;
		tool_begin_close(&tool);
	}
}

/* How long poll may sleep, in milliseconds; the reactor's own timer keeps the rest of the precision. */
static int patience(int answer)
{
	if (answer == NEAP_RUN_MORE)
		return 0;
	uint64_t deadline_ns = neap_reactor_deadline_ns(tool.reactor), now_ns = tool_now_ns();
	if (deadline_ns == UINT64_MAX)
		return -1;
	if (deadline_ns <= now_ns)
		return 0;
	uint64_t ms = (deadline_ns - now_ns + 999999) / 1000000;
	return ms > 60000 ? 60000 : (int)ms;
}

static void run(void)
{
	for (;;) {
		int answer = neap_reactor_run_once(tool.reactor, NULL);
		if (answer < 0 || answer == NEAP_RUN_STOPPED) {
			tool_event("{\"event\":\"reactor_ended\",\"answer\":%d}", answer);
			return;
		}
		struct pollfd wait[2] = {{.fd = neap_reactor_fd(tool.reactor), .events = POLLIN},
		                         {.fd = tool.script_ended ? -1 : STDIN_FILENO, .events = POLLIN}};
		if (poll(wait, 2, patience(answer)) > 0 && wait[1].revents)
			read_input();
		tool.wakeups++;
	}
}

/* The library's memory, counted. */
static void *allocate(void *user, size_t bytes)
{
	(void)user;
	void *memory = calloc(1, bytes);
	if (!memory)
		return NULL;
	tool.allocated_bytes += bytes;
	tool.held_bytes += bytes;
	if (tool.held_bytes > tool.held_most_bytes)
		tool.held_most_bytes = tool.held_bytes;
	return memory;
}

static void release(void *user, void *memory, size_t bytes)
{
	(void)user;
	if (memory)
		tool.held_bytes -= bytes;
	free(memory);
}

static void on_publication(void *user, int error, const char *why)
{
	(void)user;
	tool_event("{\"event\":\"publication\",\"error\":%d,\"why\":%s}", error, tool_quote(why ? why : ""));
}

int main(int argc, char **argv)
{
	char why[512] = "no reactor";
	struct neap_engine_options options = {0};
	int result = app_flags_parse(&program, argc, argv);
	if (result >= 0)
		return result;
	if (neap_engine_options_from_environment(&options, why, sizeof why)) {
		app_error(&program, "%s", why);
		return APP_USAGE;
	}
	engine_options(&options);
	int error = neap_reactor_create(&tool.reactor, &(struct neap_reactor_options){.alloc = {.allocate = allocate, .release = release}});
	if (!error)
		error = neap_engine_create(&tool.engine, tool.reactor, &options, why, sizeof why);
	if (error) {
		tool_event("{\"event\":\"failed\",\"error\":%d,\"why\":%s}", error, tool_quote(why));
		if (tool.reactor)
			neap_reactor_destroy(tool.reactor);
		return APP_START;
	}
	struct app_host host = {.reactor = tool.reactor}; /* and no libev: "at the end of the turn" is not for us */
	int stops = app_stop_at(&program, &host);
	if (stops >= 0)
		return stops;
	tool_ready(&tool);
	(void)neap_engine_publish_watch(tool.engine, on_publication, NULL);
	run();
	support_reactor_destroy(tool.reactor);
	tool_free(&tool);
	return APP_OK;
}
