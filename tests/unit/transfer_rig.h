/* Two engines over simulated verbs, of which engine 0 asks and engine 1 is asked, and requests between them that are watched. */
#ifndef TESTS_UNIT_TRANSFER_RIG_H
#define TESTS_UNIT_TRANSFER_RIG_H

#include "tests/support/rdma_engine_rig.h"
#include "transports/rdma/peer.h"
#include "transports/rdma/rail_fsm.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define MS RDMA_RIG_MS
#define SECOND (1000 * MS)
#define BYTES (4u << 20)
#define REQUESTS 4096u

static struct rdma_engine_rig rig;
static unsigned char ours[BYTES] __attribute__((aligned(4096))), theirs[BYTES] __attribute__((aligned(4096)));
static neap_segment_id segment;
static neap_region_id their_region;

static struct request {
	struct neap_outcome outcome;
	uint32_t ends, releases;
} requests[REQUESTS];
static uint32_t submitted, batches_ended;

static inline void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	struct request *request = request_user;
	(void)user;
	(void)batch;
	(void)index;
	ck_assert(neap_reactor_in_turn(rig.reactor));
	request->outcome = *outcome;
	request->ends++;
}

static inline void on_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)user;
	(void)batch;
	(void)summary;
	batches_ended++;
}

static inline void on_released(void *user, neap_batch_id batch, uint32_t index, void *request_user)
{
	struct request *request = request_user;
	(void)user;
	(void)batch;
	(void)index;
	request->releases++;
}

static inline void fill(unsigned char *at, size_t length, uint32_t seed)
{
	for (size_t i = 0; i < length; i++)
		at[i] = (unsigned char)((i * 2654435761u + seed * 97u) >> 11);
}

static inline bool holds(const unsigned char *at, size_t length, uint32_t seed)
{
	for (size_t i = 0; i < length; i++)
		if (at[i] != (unsigned char)((i * 2654435761u + seed * 97u) >> 11))
			return false;
	return true;
}

/* Near no device, so that all are equally good. */
static inline neap_region_id enroll(uint32_t which, void *address, uint64_t length)
{
	const struct neap_memory memory = {.address = address, .length = length, .location = "gpu:7", .access = NEAP_OPEN};
	neap_region_id region;
	ck_assert_int_eq(neap_memory_register(rig.sides[which].engine, &memory, 1, &region, rig.why, sizeof rig.why), NEAP_OK);
	ck_assert_int_eq(rdma_engine_rig_settle(&rig, which, region), NEAP_OK);
	return region;
}

/* Engine 0 with some of the devices asks, engine 1 with others is asked. */
static inline void begin_on(uint32_t devices, uint32_t our_devices, uint32_t their_devices, const struct neap_engine_options *options)
{
	memset(requests, 0, sizeof requests);
	memset(ours, 0, sizeof ours);
	memset(theirs, 0, sizeof theirs);
	submitted = batches_ended = 0;
	rdma_engine_rig_begin(&rig, devices);
	rdma_engine_rig_start(&rig, 0, our_devices, options);
	rdma_engine_rig_start(&rig, 1, their_devices, options);
	(void)enroll(0, ours, sizeof ours);
	their_region = enroll(1, theirs, sizeof theirs);
	segment = rdma_engine_rig_open(&rig, 0);
}

static inline void begin_with(uint32_t our_devices, uint32_t their_devices, const struct neap_engine_options *options)
{
	begin_on(5, our_devices, their_devices, options);
}

static inline void begin(void)
{
	begin_with(3, 12, NULL);
}

static inline void end(void)
{
	for (uint32_t i = 0; i < submitted; i++)
		ck_assert_msg(requests[i].ends == 1, "request %u ended %u times", i, requests[i].ends);
	rdma_engine_rig_end(&rig);
	for (uint32_t i = 0; i < submitted; i++)
		ck_assert_uint_eq(requests[i].releases, requests[i].outcome.buffer == NEAP_BUFFER_HELD);
}

static inline neap_batch_id submit_at(enum neap_opcode opcode, void *source, uint64_t target, uint64_t length, uint64_t deadline_ms)
{
	struct neap_request request = {.opcode = opcode, .source = source, .segment = segment, .target_offset = target, .length = length,
	                               .user = &requests[submitted++]};
	struct neap_batch_options options = {.on_request = on_request, .on_batch = on_batch, .on_released = on_released,
	                                     .deadline_ns = deadline_ms ? rig.now_ns + deadline_ms * MS : 0};
	neap_batch_id batch;
	ck_assert_int_eq(neap_submit(rig.sides[0].engine, &request, 1, &options, &batch), NEAP_OK);
	ck_assert_uint_eq(requests[submitted - 1].ends, 0);
	return batch;
}

static inline neap_batch_id submit(enum neap_opcode opcode, uint64_t our_offset, uint64_t their_offset, uint64_t length)
{
	return submit_at(opcode, ours + our_offset, (uintptr_t)theirs + their_offset, length, 0);
}

static inline const struct neap_outcome *wait_for(uint32_t index, uint64_t ns)
{
	uint64_t until = rig.now_ns + ns;
	while (!requests[index].ends && rig.now_ns < until)
		rdma_engine_rig_pass(&rig, MS);
	ck_assert_msg(requests[index].ends == 1, "request %u does not end; %s", index, rig.log);
	return &requests[index].outcome;
}

static inline void wait_released(uint32_t index, uint64_t ns)
{
	uint64_t until = rig.now_ns + ns;
	while (requests[index].outcome.buffer == NEAP_BUFFER_HELD && !requests[index].releases && rig.now_ns < until)
		rdma_engine_rig_pass(&rig, MS);
	ck_assert_uint_eq(requests[index].releases, requests[index].outcome.buffer == NEAP_BUFFER_HELD);
}

static inline void completes(uint32_t index)
{
	const struct neap_outcome *outcome = wait_for(index, 20 * SECOND);
	ck_assert_msg(outcome->status == NEAP_COMPLETED, "request %u: status %u, cause %u; %s", index, outcome->status, outcome->cause, rig.log);
	ck_assert_uint_eq(outcome->effect, NEAP_EFFECT_ALL);
	ck_assert_uint_eq(outcome->buffer, NEAP_BUFFER_YOURS);
}

static inline uint64_t moved(uint32_t device)
{
	struct neap_device_info info;
	ck_assert_int_eq(neap_engine_device(rig.sides[0].engine, device, &info), NEAP_OK);
	return info.bytes_moved;
}

static inline struct neap_rdma_stats stats(void)
{
	struct neap_rdma_stats now;
	ck_assert_int_eq(neap_engine_rdma_stats(rig.sides[0].engine, &now), NEAP_OK);
	return now;
}

static inline void set_ports(uint32_t devices, enum neap_port_state state)
{
	for (uint32_t i = 0; i < 4; i++)
		if (devices >> i & 1)
			sim_verbs_set_port(&rig.sim, rig.devices[i], state);
}

static inline void load(uint32_t count)
{
	uint32_t first = submitted;
	for (uint32_t i = 0; i < count; i++)
		submit(NEAP_WRITE, 0, 0, 1 << 20);
	for (uint32_t i = 0; i < count; i++)
		completes(first + i);
}

static inline bool a_rail_is(uint8_t state)
{
	uint32_t index = 0;
	for (const struct neap_rdma_rail *rail; (rail = neap_pool_next(&rdma_engine_rig_of(&rig, 0)->initiator->rails, &index));)
		if (rail->machine.state == state)
			return true;
	return false;
}

/* Somebody at that port who takes connections and says nothing, as a process that stands still does. */
static inline int stranger_at(uint16_t port)
{
	const int on = 1;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
	ck_assert_int_eq(listen(listener, 4096), 0);
	return listener;
}

#endif
