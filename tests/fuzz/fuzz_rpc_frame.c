/* Any bytes as what a client of the store's RPC sends, in pieces; and any bytes as a body. The first byte of the input chooses: bit 0:
 * a body alone; bit 1: behind a good hello; bits 2-7: the size of the pieces. Methods 1 (plain) and 2 (once) echo a refusal. */
#include "store/rpc/hello.h"
#include "store/rpc/server.h"
#include "store/rpc/frame.h"
#include "tests/support/memory_stream.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define TURNS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct neap_rpc_method echo = {1, "Echo", &neap_rpc_message_rpc_refusal, &neap_rpc_message_rpc_refusal, false, 0};
static const struct neap_rpc_method once = {2, "Once", &neap_rpc_message_rpc_refusal, &neap_rpc_message_rpc_refusal, true, 0};

static void check(int good)
{
	if (!good)
		__builtin_trap();
}

static void handle(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	(void)user;
	(void)neap_rpc_answer(incoming->server, incoming->handle, 0, request, NULL, 0);
}

static const struct neap_rpc_handler handlers[] = {{&echo, handle}, {&once, handle}};

/* What is accepted can be said again, and then says the same. */
static void try_body(struct neap_reactor *reactor, const struct neap_rpc_message *message, const uint8_t *data, size_t size)
{
	struct neap_rpc_decoder decoder = {0};
	const void *first;
	char why[320];
	check(neap_rpc_decoder_open(&decoder, reactor, 4096) == 0);
	if (neap_rpc_decode(&decoder, message, data, size, &first, why, sizeof why) == 0) {
		uint8_t one[8192], two[8192];
		struct neap_rpc_writer writer = {one, sizeof one, 0}, again = {two, sizeof two, 0};
		check(neap_rpc_encode(&writer, message, first, why, sizeof why) == 0 && writer.length <= sizeof one);
		check(neap_rpc_decode(&decoder, message, one, writer.length, &first, why, sizeof why) == 0);
		check(neap_rpc_encode(&again, message, first, why, sizeof why) == 0 && again.length == writer.length);
		check(memcmp(one, two, again.length) == 0);
	}
	neap_rpc_decoder_close(&decoder);
}

static uint64_t now_ns;

static void turns(struct neap_reactor *reactor)
{
	for (int i = 0; i < TURNS_MAX && neap_reactor_run_at(reactor, now_ns, NULL) == NEAP_RUN_MORE; i++)
		now_ns += 1000;
}

static void say_hello(struct memory_end *end)
{
	uint8_t frame[512];
	char why[320];
	struct neap_rpc_writer writer = {frame + NEAP_RPC_HEAD_BYTES, sizeof frame - NEAP_RPC_HEAD_BYTES, 0};
	struct rpc_hello hello = {.instance = {"sixteen bytes id", 16}, .lane = 1, .epoch = 1};
	check(neap_rpc_encode(&writer, &neap_rpc_message_rpc_hello, &hello, why, sizeof why) == 0);
	neap_rpc_head_write(frame, &(struct neap_rpc_head){.type = NEAP_RPC_HELLO, .body_bytes = (uint32_t)writer.length});
	check(memory_end_write(end, frame, NEAP_RPC_HEAD_BYTES + writer.length) > 0);
}

static void try_conversation(struct neap_reactor *reactor, bool greeted, size_t piece, const uint8_t *data, size_t size)
{
	struct neap_rpc_server_options options = {.connections_max = 2, .calls_max = 8, .calls_total_max = 16, .lanes_max = 2,
	                                          .window_max = 8, .bytes_max = 1u << 20, .body_max = 8192};
	struct neap_rpc_server *server;
	struct memory_pair pair;
	char why[320], answers[4096];
	int system_errno;
	check(neap_rpc_server_create(&server, reactor, NULL, handlers, 2, &options, NULL, &system_errno, why, sizeof why) == 0);
	memory_pair_open(&pair, reactor, 65536);
	check(neap_rpc_server_serve(server, &pair.ends[0].base));
	if (greeted)
		say_hello(&pair.ends[1]);
	turns(reactor);
	for (size_t at = 0; at < size && !pair.ends[0].closed;) {
		size_t n = size - at < piece ? size - at : piece;
		if (memory_end_write(&pair.ends[1], data + at, n) != (ssize_t)n)
			break;
		at += n;
		turns(reactor);
		while (memory_end_read(&pair.ends[1], answers, sizeof answers) > 0)
			;
	}
	now_ns += 60000 * MS; /* whatever was begun ends */
	turns(reactor);
	struct neap_rpc_server_stats stats;
	neap_rpc_server_stats(server, &stats);
	check(stats.calls_now == 0 && stats.bytes <= 1u << 20);
	neap_rpc_server_destroy(server);
	turns(reactor);
	memory_pair_release(&pair);
}

static void quiet(void *user, enum neap_log_level level, const char *component, const char *message)
{
	(void)user, (void)level, (void)component, (void)message;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct neap_reactor_options options = {.net = memory_net(), .trace_records = 64, .log = quiet};
	struct neap_reactor *reactor;
	if (size == 0)
		return 0;
	now_ns = MS;
	check(neap_reactor_create(&reactor, &options) == 0);
	turns(reactor);
	if (data[0] & 1) {
		try_body(reactor, &neap_rpc_message_rpc_refusal, data + 1, size - 1);
		try_body(reactor, &neap_rpc_message_rpc_hello, data + 1, size - 1);
	} else {
		try_conversation(reactor, data[0] & 2, (size_t)(data[0] >> 2) * (data[0] >> 2) + 1, data + 1, size - 1);
	}
	neap_reactor_stop(reactor);
	turns(reactor);
	check(neap_reactor_destroy(reactor) == 0);
	return 0;
}
