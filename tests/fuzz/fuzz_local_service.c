/* Any process of the machine may speak to a neap-client's local service. The input is a plan for the store behind it and steps: calls of
 * its methods with any bytes as their bodies, connections that end, time that passes, the store that goes on. Whatever was said: no
 * memory of the pool is lost, no transfer stays.
 *
 * Byte 0: bit 0 the store waits for a step to go on; bit 1 it keeps the caller's memory until a step; bit 2 puts end unknown. Then steps:
 * a byte for its kind, two for the length of its bytes (little-endian), the bytes. */
#include "apps/client/service_inside.h"
#include "store/rpc/frame.h"
#include "store/rpc/hello.h"
#include "tests/support/fake_transport.h"
#include "tests/support/memory_stream.h"
#include "tests/unit/fake_store.h"
#include <errno.h>
#include <stdint.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define TURNS_MAX 64
#define CONNECTIONS 2u
#define POOL (16u * CLIENT_CHUNK_BYTES)
#define METHODS 12u
#define FIRST_METHOD 200u

enum step { STEP_OTHER_CONNECTION = METHODS, STEP_HANG_UP, STEP_WAIT, STEP_STORE_GOES, STEP_STORE_RELEASES, STEP_DRAIN, STEPS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t now_ns, calls;
static struct neap_reactor *reactor;
static struct client_service *service;
static struct neap_store *store;
static struct memory_pair pairs[CONNECTIONS];
static uint32_t at;
static _Alignas(4096) unsigned char pool[POOL];

static void check(int good)
{
	if (!good)
		__builtin_trap();
}

/* --- a net where one can listen and nobody comes ---------------------------------------------------------------------------------- */

static void no_want(struct neap_listener *listener, bool wanted)
{
	(void)listener, (void)wanted;
}

static struct neap_stream *no_accept(struct neap_listener *listener, int *error_p)
{
	(void)listener;
	*error_p = -EAGAIN;
	return NULL;
}

static void no_close(struct neap_listener *listener)
{
	(void)listener;
}

static int some_address(struct neap_listener *listener, struct neap_sockaddr *address_p)
{
	(void)listener;
	return neap_sockaddr_from_numeric("127.0.0.1", 50052, address_p);
}

static struct neap_listener *listen_for_nobody(struct neap_net *net, struct neap_reactor *of, const struct neap_sockaddr *address,
                                               const struct neap_socket_options *options, int *error_p)
{
	static const struct neap_listener_ops ops = {no_accept, no_want, no_close, some_address};
	static struct neap_listener listener;
	(void)net, (void)address, (void)options, (void)error_p;
	listener = (struct neap_listener){.ops = &ops, .reactor = of};
	return &listener;
}

/* --- steps -------------------------------------------------------------------------------------------------------------------------- */

static void turns(void)
{
	char answers[4096];
	for (int i = 0; i < TURNS_MAX && neap_reactor_run_at(reactor, now_ns, NULL) == NEAP_RUN_MORE; i++)
		now_ns += 1000;
	for (uint32_t i = 0; i < CONNECTIONS; i++)
		while (pairs[i].ends[1].in.bytes && memory_end_read(&pairs[i].ends[1], answers, sizeof answers) > 0)
			;
}

static void send_frame(struct neap_rpc_head head, const uint8_t *body, size_t length)
{
	uint8_t bytes[NEAP_RPC_HEAD_BYTES];
	struct memory_end *end = &pairs[at].ends[1];
	head.body_bytes = (uint32_t)length;
	neap_rpc_head_write(bytes, &head);
	if (memory_end_write(end, bytes, sizeof bytes) > 0 && length > 0)
		(void)memory_end_write(end, body, length);
}

static void connect_anew(void)
{
	uint8_t body[512];
	char why[320];
	struct neap_rpc_writer writer = {body, sizeof body, 0};
	struct rpc_hello hello = {.instance = {at ? "sixteen bytes id" : "Sixteen bytes id", 16}, .lane = 1, .epoch = 1};
	memory_pair_open(&pairs[at], reactor, 1u << 18);
	(void)neap_rpc_server_serve(service->rpc, &pairs[at].ends[0].base);
	check(neap_rpc_encode(&writer, &neap_rpc_message_rpc_hello, &hello, why, sizeof why) == 0);
	send_frame((struct neap_rpc_head){.type = NEAP_RPC_HELLO}, body, writer.length);
	turns();
}

static void hang_up(void)
{
	pairs[at].ends[1].base.ops->close(&pairs[at].ends[1].base, false);
	now_ns += 20000 * MS; /* what the server still had to send is given up */
	turns();
	memory_pair_release(&pairs[at]);
}

static void drained(void *user)
{
	(void)user;
}

static void take_step(uint8_t kind, const uint8_t *bytes, size_t length)
{
	if (kind < METHODS) {
		struct neap_rpc_head head = {.type = NEAP_RPC_CALL, .method = FIRST_METHOD + kind, .call = ++calls, .deadline_us = 5000000};
		send_frame(head, bytes, length);
	} else if (kind == STEP_OTHER_CONNECTION) {
		at = (at + 1) % CONNECTIONS;
	} else if (kind == STEP_HANG_UP) {
		hang_up();
		connect_anew();
	} else if (kind == STEP_WAIT) {
		now_ns += (length ? bytes[0] * 200u : 1000u) * MS;
	} else if (kind == STEP_STORE_GOES) {
		fake_plan.hold = !fake_plan.hold;
		fake_store_go(store);
	} else if (kind == STEP_STORE_RELEASES) {
		fake_store_release(store);
	} else {
		client_service_drain(service, drained, NULL);
	}
	turns();
}

static void take_steps(const uint8_t *data, size_t size)
{
	for (size_t i = 0; i + 3 <= size;) {
		size_t length = data[i + 1] | (size_t)data[i + 2] << 8;
		uint8_t kind = data[i] % STEPS;
		i += 3;
		length = length < size - i ? length : size - i;
		take_step(kind, data + i, length);
		i += length;
	}
}

/* --- before and after --------------------------------------------------------------------------------------------------------------- */

static void quiet(void *user, enum neap_log_level level, const char *component, const char *message)
{
	(void)user, (void)level, (void)component, (void)message;
}

static void noted(void *user)
{
	*(bool *)user = true;
}

static struct neap_engine *open_all(uint8_t plan)
{
	static struct neap_net net;
	net = *memory_net();
	net.listen = listen_for_nobody;
	struct neap_reactor_options options = {.net = &net, .trace_records = 64, .log = quiet};
	struct client_service_options service_options = {.memory = pool, .bytes = POOL, .transfers_max = 8, .waiting_max = 4};
	struct neap_engine_options small = {.requests_max = 16, .batches_max = 4, .peers_max = 4, .sessions_max = 4, .regions_max = 16,
	                                    .grants_max = 16, .handshake_sessions_max = 4, .notifies_max = 4};
	struct neap_engine *engine;
	char why[512];
	now_ns = MS;
	calls = 0;
	check(neap_reactor_create(&reactor, &options) == 0);
	check(neap_engine_create_with(&engine, reactor, &small, fake_transport_make, why, sizeof why) == 0);
	store = fake_store_open(engine);
	fake_plan = (struct fake_store_plan){.hold = plan & 1, .keeps = plan & 2, .unknown_puts = plan & 4 ? 2 : 0};
	check(client_service_create(&service, store, &service_options, why, sizeof why) == 0);
	for (at = CONNECTIONS; at-- > 0;)
		connect_anew();
	at = 0;
	return engine;
}

static void close_all(struct neap_engine *engine)
{
	struct client_service_stats stats;
	bool gone = false;
	for (at = 0; at < CONNECTIONS; at++)
		hang_up();
	fake_plan.hold = fake_plan.keeps = false;
	fake_store_go(store);
	turns();
	fake_store_release(store);
	turns();
	client_service_stats(service, &stats);
	check(stats.transfers == 0 && stats.waiting == 0 && stats.buffer_free_bytes == POOL && fake_seen.operations == 0);
	client_service_destroy(service);
	fake_store_close(store);
	neap_engine_close(engine, noted, &gone);
	turns();
	check(gone);
	neap_reactor_stop(reactor);
	turns();
	check(neap_reactor_destroy(reactor) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	struct neap_engine *engine = open_all(data[0]);
	take_steps(data + 1, size - 1);
	close_all(engine);
	return 0;
}
