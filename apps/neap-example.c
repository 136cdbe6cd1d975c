/* The smallest useful pair of programs: a target that offers a buffer, and an initiator that writes to it, reads back and
 * compares. */
#include "apps/common/flags.h"
#include "apps/common/host.h"
#include "apps/common/memory.h"
#include "apps/common/pattern.h"
#include "apps/common/serve.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (UINT64_C(1) << 20)
#define SEED 1u

static struct app_node node = APP_NODE_DEFAULTS;
static const char *mode = "target", *segment_id, *ready_file, *file;
static uint64_t buffer_size = UINT64_C(1) << 30, transfer_size = 65536;

static const struct app_flag flags[] = {
	{"mode", APP_FLAG_CHOICE, &mode, "target|initiator", 0, 0, "which of the two to be"},
	APP_NODE_FLAGS(node),
	{"segment_id", APP_FLAG_TEXT, &segment_id, NULL, 0, 0, "initiator: the segment to open, as the target prints it"},
	{"buffer_size", APP_FLAG_SIZE, &buffer_size, NULL, 4096, UINT64_C(1) << 46, "memory to register"},
	{"transfer_size", APP_FLAG_SIZE, &transfer_size, NULL, 1, UINT64_C(1) << 46, "initiator: bytes of test pattern to send"},
	{"file", APP_FLAG_TEXT, &file, NULL, 0, 0, "initiator: send this file instead of a test pattern"},
	{"ready_file", APP_FLAG_TEXT, &ready_file, NULL, 0, 0, "target: write the segment's name here once it can be opened"},
};
static const struct app_program program = {
	.name = "neap-example",
	.purpose = "Offers memory as a target, or as an initiator writes to a target's memory, reads it back and compares.",
	.examples = "Two terminals on one machine:\n"
	            "  neap-example                                   prints `segment 127.0.0.1:15234 ...`\n"
	            "  neap-example --mode=initiator --segment_id=127.0.0.1:15234\n",
	.flags = flags,
	.flag_count = sizeof flags / sizeof flags[0],
};

static void *register_buffer(struct app_host *host)
{
	char why[512];
	void *buffer = app_memory_map(buffer_size, false, why, sizeof why);
	if (!buffer) {
		app_error(&program, "%s", why);
		return NULL;
	}
	return app_register(&program, host, &node, buffer, buffer_size) < 0 ? buffer : NULL;
}

static int serve(struct app_host *host, const void *buffer)
{
	int result = app_publish(&program, host, node.publish_seconds);
	if (result < 0)
		result = app_announce(&program, host->engine, buffer, buffer_size, ready_file);
	if (result >= 0)
		return result;
	bool never = false;
	app_host_wait(host, &never, 0); /* until a signal */
	return APP_OK;
}

/* --- initiator --------------------------------------------------------------------------------------------- */

struct opening {
	bool done;
	int error;
	neap_segment_id segment;
	char why[512];
};

static void on_opened(void *user, int error, neap_segment_id segment, const char *why)
{
	struct opening *opening = user;
	opening->error = error;
	opening->segment = segment;
	snprintf(opening->why, sizeof opening->why, "%s", why ? why : "");
	opening->done = true;
}

/* Opens the segment and finds a buffer of it that is large enough. */
static int open_target(struct app_host *host, uint64_t length, neap_segment_id *segment_p, uint64_t *address_p)
{
	static struct opening opening; /* outlives a wait that a signal ends */
	int error = neap_segment_open(host->engine, segment_id, on_opened, &opening);
	if (error) {
		app_error(&program, "cannot open --segment_id=%s: %s", segment_id, neap_error_text(error));
		return APP_START;
	}
	if (!app_host_wait(host, &opening.done, 0))
		return APP_START;
	if (opening.error) {
		app_error(&program, "cannot open segment %s: %s", segment_id, opening.why);
		return APP_START;
	}
	struct neap_segment_info info;
	neap_segment_info(host->engine, opening.segment, &info);
	uint64_t largest = 0;
	for (uint32_t i = 0; i < info.buffer_count; i++) {
		uint64_t address, size;
		if (neap_segment_buffer(host->engine, opening.segment, i, &address, &size))
			continue;
		if (size >= length) {
			*segment_p = opening.segment;
			*address_p = address;
			return -1;
		}
		if (size > largest)
			largest = size;
	}
	char needed[32], there[32];
	app_error(&program,
	          "segment %s has no buffer of %s (its largest has %s); send less or start the target with a larger --buffer_size",
	          segment_id, app_size_format(length, needed, sizeof needed), app_size_format(largest, there, sizeof there));
	return APP_START;
}

struct transfer {
	struct neap_engine *engine;
	const struct neap_request *requests;
	bool done, failed;
};

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	(void)batch;
	(void)request_user;
	struct transfer *transfer = user;
	if (outcome->status == NEAP_COMPLETED || transfer->failed)
		return;
	char text[512];
	neap_outcome_text(transfer->engine, &transfer->requests[index], outcome, text, sizeof text);
	app_error(&program, "%s", text);
	transfer->failed = true;
}

static void on_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)batch;
	struct transfer *transfer = user;
	transfer->failed |= summary->completed != summary->total;
	transfer->done = true;
}

/* One batch that moves [source, source + length) to or from the target, in pieces of 1 MiB. */
static int move(struct app_host *host, enum neap_opcode opcode, void *source, neap_segment_id segment, uint64_t address,
                uint64_t length)
{
	size_t count = (size_t)((length + PIECE - 1) / PIECE);
	struct neap_request *requests = calloc(count, sizeof *requests);
	if (!requests) {
		app_error(&program, "out of memory for %zu requests", count);
		return APP_START;
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t offset = i * PIECE;
		requests[i] = (struct neap_request){.opcode = opcode,
		                                    .source = (char *)source + offset,
		                                    .segment = segment,
		                                    .target_offset = address + offset,
		                                    .length = length - offset < PIECE ? length - offset : PIECE};
	}
	static struct transfer transfer; /* as above */
	transfer = (struct transfer){.engine = host->engine, .requests = requests};
	struct neap_batch_options options = {.on_request = on_request, .on_batch = on_batch, .user = &transfer};
	uint64_t began = app_now_ns();
	neap_batch_id batch;
	int error = neap_submit(host->engine, requests, count, &options, &batch);
	if (error)
		app_error(&program, "cannot submit %zu requests: %s", count, neap_error_text(error));
	else
		app_host_wait(host, &transfer.done, 0);
	double seconds = (double)(app_now_ns() - began) * 1e-9;
	if (!error && !transfer.done) { /* a signal: the requests must outlive the engine's use of them */
		neap_batch_cancel(host->engine, batch);
		host->interrupted = false;
		app_host_wait(host, &transfer.done, 10);
		transfer.failed = true;
	}
	if (error || transfer.done)
		free(requests);
	if (error || transfer.failed)
		return APP_FAILED;
	printf("%s %" PRIu64 " bytes in %.3f ms, %.3f GB/s\n", opcode == NEAP_WRITE ? "WRITE" : "READ ", length, seconds * 1e3,
	       (double)length / seconds * 1e-9);
	return -1;
}

static int differs(uint64_t at)
{
	app_error(&program, "the bytes read back differ from what was written, first at byte %" PRIu64, at);
	return APP_FAILED;
}

static int send_pattern(struct app_host *host, char *buffer)
{
	neap_segment_id segment;
	uint64_t address;
	int result = open_target(host, transfer_size, &segment, &address);
	if (result >= 0)
		return result;
	app_pattern_fill(buffer, 0, transfer_size, SEED);
	if ((result = move(host, NEAP_WRITE, buffer, segment, address, transfer_size)) >= 0)
		return result;
	memset(buffer, 0, transfer_size);
	if ((result = move(host, NEAP_READ, buffer, segment, address, transfer_size)) >= 0)
		return result;
	uint64_t at = app_pattern_check(buffer, 0, transfer_size, SEED);
	if (at != UINT64_MAX)
		return differs(at);
	printf("verified: all %" PRIu64 " bytes are equal\n", transfer_size);
	return APP_OK;
}

static int send_file(struct app_host *host, char *buffer)
{
	char why[512];
	uint64_t length, address;
	const char *contents = app_file_map(file, &length, why, sizeof why);
	if (!contents) {
		app_error(&program, "%s", why);
		return APP_START;
	}
	if (length > buffer_size) {
		app_error(&program, "%s has %" PRIu64 " bytes, --buffer_size=%" PRIu64 " is less; raise it", file, length, buffer_size);
		return APP_USAGE;
	}
	neap_segment_id segment;
	int result = open_target(host, length, &segment, &address);
	if (result < 0) /* the engine only reads what a WRITE sends */
		result = move(host, NEAP_WRITE, (void *)(uintptr_t)contents, segment, address, length);
	if (result < 0)
		result = move(host, NEAP_READ, buffer, segment, address, length);
	if (result < 0) {
		uint64_t at = 0;
		while (at < length && buffer[at] == contents[at])
			at++;
		result = at < length ? differs(at) : APP_OK;
		if (result == APP_OK)
			printf("verified: all %" PRIu64 " bytes of %s are equal\n", length, file);
	}
	return result;
}

static int check_flags(void)
{
	if (strcmp(mode, "initiator") && (segment_id || file)) {
		app_error(&program, "--%s is for --mode=initiator; --mode=target (the default) only serves", segment_id ? "segment_id" : "file");
		return APP_USAGE;
	}
	if (strcmp(mode, "initiator"))
		return -1;
	if (!segment_id) {
		app_error(&program, "--mode=initiator needs --segment_id=NAME: the name that the target prints after `segment`");
		return APP_USAGE;
	}
	if (!file && transfer_size > buffer_size) {
		app_error(&program, "--transfer_size=%" PRIu64 " is more than --buffer_size=%" PRIu64 "; raise --buffer_size",
		          transfer_size, buffer_size);
		return APP_USAGE;
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct neap_engine_options options = {0};
	struct app_host host;
	char why[512];
	int result = app_flags_parse(&program, argc, argv);
	if (result < 0)
		result = check_flags();
	if (result < 0)
		result = app_node_options(&program, &node, &options);
	if (result >= 0)
		return result;
	if (app_host_open(&host, &(struct app_host_options){.engine = &options}, why, sizeof why)) {
		app_error(&program, "%s", why);
		return APP_START;
	}
	char *buffer = register_buffer(&host);
	if (!buffer)
		result = APP_START;
	else if (!strcmp(mode, "target"))
		result = serve(&host, buffer);
	else
		result = file ? send_file(&host, buffer) : send_pattern(&host, buffer);
	app_host_close(&host);
	app_memory_unmap(buffer, buffer_size);
	return result;
}
