/* Grants over RDMA between two engines on simulated verbs: keys, ends, fences, and what counts as done. These verbs complete WRITEs before
 * they place them, and call READs done whose region went midway. */
#include "tests/support/rdma_engine_rig.h"
#include "transports/rdma/peer.h"
#include "transports/rdma/rdma_slab_fsm.h"
#include "transports/rdma/token.h"
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS RDMA_RIG_MS
#define SECOND (1000 * MS)
#define SLAB (2u << 20)
#define BYTES (3u * SLAB)
#define ROUNDS 1000u

static struct rdma_engine_rig rig;
static unsigned char ours[BYTES] __attribute__((aligned(4096))), theirs[BYTES] __attribute__((aligned(4096)));
static neap_segment_id segment;
static neap_region_id region;
static uint8_t instance[16];

static struct request {
	struct neap_outcome outcome;
	uint32_t ends, releases;
} requests[8192];
static uint32_t submitted;
static bool look_at_once; /* each is 4 KiB at its number, and there when that is said */

static bool all(const unsigned char *at, uint64_t length, unsigned char value);

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	struct request *request = request_user;
	(void)user, (void)batch, (void)index;
	request->outcome = *outcome;
	request->ends++;
	if (look_at_once && outcome->status == NEAP_COMPLETED)
		ck_assert_msg(all(theirs + (request - requests) * 4096, 4096, 0x5a), "write %zu is not there", (size_t)(request - requests));
}

static void on_released(void *user, neap_batch_id batch, uint32_t index, void *request_user)
{
	(void)user, (void)batch, (void)index;
	((struct request *)request_user)->releases++;
}

static void begin_with(bool plain, uint32_t depth, uint32_t qps)
{
	const struct neap_engine_options options = {.rdma = {.slab_bytes = SLAB, .sends_max = depth, .qps_per_endpoint = qps}, .grants_max = 256},
	                                 of_plain = {.grants_max = 256, .plain_only = true};
	memset(requests, 0, sizeof requests);
	memset(ours, 0x5a, sizeof ours);
	memset(theirs, 0, sizeof theirs);
	submitted = 0;
	rdma_engine_rig_begin(&rig, 4);
	rdma_engine_rig_start(&rig, 0, 3, plain ? &of_plain : &options);
	rdma_engine_rig_start(&rig, 1, 12, &options);
	(void)rdma_engine_rig_register(&rig, 0, ours, sizeof ours, NEAP_CLOSED);
	region = rdma_engine_rig_register(&rig, 1, theirs, sizeof theirs, NEAP_GRANT_ONLY);
	segment = rdma_engine_rig_open(&rig, 0);
	neap_engine_instance(rig.sides[0].engine, instance);
}

static void begin_as(bool plain)
{
	begin_with(plain, 0, 0);
}

static void begin(void)
{
	begin_as(false);
}

static void end(void)
{
	for (uint32_t i = 0; i < submitted; i++)
		ck_assert_msg(requests[i].ends == 1, "request %u ended %u times", i, requests[i].ends);
	rdma_engine_rig_end(&rig);
}

static uint32_t submit(enum neap_opcode opcode, void *source, void *target, uint64_t length, const struct neap_grant_token *token, bool placed)
{
	struct neap_request request = {.opcode = opcode, .source = source, .segment = segment, .target_offset = (uintptr_t)target,
	                               .length = length, .grant = token, .placed = placed, .user = &requests[submitted]};
	struct neap_batch_options options = {.on_request = on_request, .on_released = on_released};
	neap_batch_id batch;
	ck_assert_int_eq(neap_submit(rig.sides[0].engine, &request, 1, &options, &batch), NEAP_OK);
	return submitted++;
}

static const struct neap_outcome *wait_for(uint32_t index)
{
	for (uint32_t i = 0; i < 60000 && !requests[index].ends; i++)
		rdma_engine_rig_pass(&rig, MS);
	ck_assert_msg(requests[index].ends == 1, "request %u does not end; %s", index, rig.log);
	return &requests[index].outcome;
}

static void completes(uint32_t index)
{
	const struct neap_outcome *outcome = wait_for(index);
	ck_assert_msg(outcome->status == NEAP_COMPLETED, "request %u: status %u, cause %u; %s", index, outcome->status, outcome->cause, rig.log);
}

static struct neap_grant_token lend_to(void *address, uint64_t length, unsigned rights, const uint8_t *to)
{
	struct neap_grant_token token;
	ck_assert_int_eq(neap_grant_create(rig.sides[1].engine, address, length, rights, to, &token), NEAP_OK);
	return token;
}

static struct neap_grant_token lend(uint32_t at, uint64_t length, unsigned rights)
{
	return lend_to(theirs + at, length, rights, instance);
}

static struct end {
	uint32_t times;
} ends[64];

static void on_ended(void *user)
{
	ck_assert(neap_reactor_in_turn(rig.reactor));
	((struct end *)user)->times++;
}

static struct end *take_back(const struct neap_grant_token *token, bool quiet)
{
	static uint32_t next;
	struct end *told = &ends[next++ % 64];
	*told = (struct end){0};
	ck_assert_int_eq((quiet ? neap_grant_end_quiet : neap_grant_end)(rig.sides[1].engine, token, on_ended, told), NEAP_OK);
	ck_assert_uint_eq(told->times, 0);
	return told;
}

static void wait_ended(const struct end *told)
{
	for (uint32_t i = 0; i < 60000 && !told->times; i++)
		rdma_engine_rig_pass(&rig, MS / 4);
	ck_assert_msg(told->times == 1, "a grant ended %u times; %s", told->times, rig.log);
}

static uint64_t sends(void)
{
	struct neap_rdma_stats stats;
	ck_assert_int_eq(neap_engine_rdma_stats(rig.sides[0].engine, &stats), NEAP_OK);
	return stats.sends;
}

static bool all(const unsigned char *at, uint64_t length, unsigned char value)
{
	for (uint64_t i = 0; i < length; i++)
		if (at[i] != value)
			return false;
	return true;
}

static uint32_t deregistrations(void)
{
	return (uint32_t)rig.sim.calls[SIM_DEREGISTER];
}

/* --- keys ---------------------------------------------------------------------------------------------------------------- */

START_TEST(what_has_keys_goes_over_devices)
{
	begin();
	struct neap_grant_token token = lend(SLAB - 200000, 200000, NEAP_MAY_WRITE | NEAP_MAY_READ);
	ck_assert_uint_eq(token.keys_length, 4 + 2 * 8);
	completes(submit(NEAP_WRITE, ours, theirs + SLAB - 200000, 200000, &token, true));
	ck_assert_uint_eq(sends(), 3);
	ck_assert(all(theirs + SLAB - 200000, 200000, 0x5a));
	ck_assert_uint_eq(theirs[SLAB], 0);
	memset(ours, 0, 200000);
	completes(submit(NEAP_READ, ours, theirs + SLAB - 200000, 200000, &token, false));
	ck_assert_uint_eq(sends(), 6);
	ck_assert(all(ours, 200000, 0x5a));
	end();
}
END_TEST

START_TEST(what_has_none_goes_over_tcp)
{
	begin();
	struct neap_grant_token token[3] = {
		lend(SLAB - 100, 200, NEAP_MAY_WRITE), /* in two slabs */
		lend_to(theirs, 200, NEAP_MAY_WRITE, NULL),
		lend(2 * SLAB, 200, NEAP_MAY_WRITE),
	};
	ck_assert_uint_eq(token[0].keys_length + token[1].keys_length, 0);
	ck_assert_uint_ne(token[2].keys_length, 0);
	token[2].keys_length = 0; /* they were not sent along */
	completes(submit(NEAP_WRITE, ours, theirs + SLAB - 100, 200, &token[0], true));
	completes(submit(NEAP_WRITE, ours, theirs, 200, &token[1], false));
	completes(submit(NEAP_WRITE, ours, theirs + 2 * SLAB, 200, &token[2], false));
	ck_assert_uint_eq(sends(), 0);
	ck_assert(all(theirs + SLAB - 100, 200, 0x5a) && all(theirs, 200, 0x5a) && all(theirs + 2 * SLAB, 200, 0x5a));
	end();
}
END_TEST

START_TEST(keys_of_another_process_are_not_used)
{
	begin();
	struct neap_grant_token token = lend(0, 200, NEAP_MAY_WRITE);
	neap_rdma_token_put(token.keys + 4, neap_rdma_token_mark(instance, "rxe2"));
	neap_rdma_token_put(token.keys + 12, neap_rdma_token_mark(instance, "rxe3"));
	completes(submit(NEAP_WRITE, ours, theirs, 200, &token, false));
	ck_assert_uint_eq(sends(), 0);
	end();
}
END_TEST

/* It could not have the peer's half destroyed, which repeats of writes need. */
START_TEST(keys_are_nothing_for_who_speaks_plainly)
{
	begin_as(true);
	struct neap_grant_token token = lend(0, 200, NEAP_MAY_WRITE);
	ck_assert_uint_ne(wait_for(submit(NEAP_WRITE, ours, theirs, 200, &token, false))->status, NEAP_COMPLETED);
	ck_assert_uint_eq(sends(), 0);
	ck_assert(all(theirs, 200, 0));
	end();
}
END_TEST

/* --- ends ---------------------------------------------------------------------------------------------------------------- */

START_TEST(a_quiet_end_leaves_the_key)
{
	begin();
	struct neap_grant_token first = lend(0, 4096, NEAP_MAY_WRITE), second = lend(4096, 4096, NEAP_MAY_WRITE), third;
	uint32_t before = deregistrations();
	completes(submit(NEAP_WRITE, ours, theirs, 4096, &first, true));
	wait_ended(take_back(&first, true));
	third = lend(8192, 4096, NEAP_MAY_WRITE);
	ck_assert_mem_eq(third.keys, second.keys, third.keys_length);
	wait_ended(take_back(&second, true));
	wait_ended(take_back(&third, true));
	third = lend(8192, 4096, NEAP_MAY_READ);
	ck_assert_mem_eq(third.keys, second.keys, third.keys_length);
	wait_ended(take_back(&third, true));
	ck_assert_uint_eq(deregistrations(), before);
	end();
}
END_TEST

START_TEST(an_end_without_word_waits_for_the_devices)
{
	begin();
	struct neap_grant_token token = lend(0, 4096, NEAP_MAY_WRITE), other = lend(SLAB, 4096, NEAP_MAY_WRITE), later;
	uint32_t before = deregistrations();
	sim_helper_hold(&rig.sides[1].helper, true);
	struct end *told = take_back(&token, false);
	rdma_engine_rig_pass(&rig, 30 * SECOND);
	ck_assert_uint_eq(told->times, 0); /* time frees nothing */
	ck_assert_uint_eq(lend(4096, 100, NEAP_MAY_WRITE).keys_length, 0);
	sim_helper_hold(&rig.sides[1].helper, false);
	wait_ended(told);
	ck_assert_uint_eq(deregistrations(), before + 2);
	rdma_engine_rig_pass(&rig, 100 * MS);
	later = lend(0, 4096, NEAP_MAY_WRITE);
	ck_assert_uint_eq(later.keys_length, token.keys_length);
	ck_assert_mem_ne(later.keys, token.keys, later.keys_length);
	/* With the former key nothing arrives, and the slab beside it has its own. */
	memset(theirs, 7, 4096);
	const struct neap_outcome *outcome = wait_for(submit(NEAP_WRITE, ours, theirs, 4096, &token, true));
	ck_assert_uint_eq(outcome->status, NEAP_FAILED);
	ck_assert_uint_eq(outcome->cause, NEAP_CAUSE_GRANT_REFUSED);
	ck_assert_uint_eq(outcome->effect, NEAP_EFFECT_UNKNOWN);
	ck_assert(all(theirs, 4096, 7));
	completes(submit(NEAP_WRITE, ours, theirs, 4096, &later, true));
	completes(submit(NEAP_WRITE, ours, theirs + SLAB, 4096, &other, true));
	ck_assert(all(theirs, 4096, 0x5a) && all(theirs + SLAB, 4096, 0x5a));
	end();
}
END_TEST

START_TEST(a_spoiled_slab_waits_for_its_other_grants)
{
	begin();
	struct neap_grant_token spoiled = lend(0, 4096, NEAP_MAY_WRITE), writer = lend(4096, 4096, NEAP_MAY_WRITE),
	                        reader = lend(8192, 4096, NEAP_MAY_READ);
	uint32_t before = deregistrations();
	struct end *told = take_back(&spoiled, false);
	rdma_engine_rig_pass(&rig, SECOND);
	struct neap_grant_token keyless = lend(12288, 4096, NEAP_MAY_WRITE);
	ck_assert_uint_eq(keyless.keys_length, 0);
	completes(submit(NEAP_WRITE, ours, theirs + 12288, 4096, &keyless, true)); /* over TCP */
	completes(submit(NEAP_WRITE, ours, theirs + 4096, 4096, &writer, true));
	wait_ended(take_back(&writer, true));
	completes(submit(NEAP_READ, ours, theirs + 8192, 4096, &reader, false));
	ck_assert_uint_eq(told->times, 0);
	ck_assert_uint_eq(deregistrations(), before);
	wait_ended(take_back(&reader, true));
	wait_ended(told);
	wait_ended(take_back(&keyless, false)); /* it had nothing to be fenced */
	ck_assert_uint_eq(deregistrations(), before + 2);
	end();
}
END_TEST

/* A reader that was lost may go on, and would take for the value what comes then. */
START_TEST(a_right_to_read_is_fenced_too)
{
	begin();
	struct neap_grant_token token = lend(0, 4096, NEAP_MAY_READ);
	wait_ended(take_back(&token, false));
	memset(theirs, 7, 4096);
	const struct neap_outcome *outcome = wait_for(submit(NEAP_READ, ours, theirs, 4096, &token, false));
	ck_assert_uint_eq(outcome->cause, NEAP_CAUSE_GRANT_REFUSED);
	ck_assert(all(ours, 4096, 0x5a));
	end();
}
END_TEST

/* A device that is lost has let go by that; one that comes back gets the slab anew. */
START_TEST(devices_that_come_and_go_meanwhile)
{
	begin();
	struct neap_grant_token token = lend(0, 4096, NEAP_MAY_WRITE);
	sim_verbs_lose(&rig.sim, rig.devices[2]);
	struct end *told = take_back(&token, false);
	wait_ended(told);
	rdma_engine_rig_pass(&rig, SECOND);
	token = lend(0, 4096, NEAP_MAY_WRITE);
	ck_assert_uint_eq(token.keys_length, 4 + 8);
	sim_verbs_regain(rig.devices[2]);
	rdma_engine_rig_pass(&rig, 10 * SECOND);
	completes(submit(NEAP_WRITE, ours, theirs, 4096, &token, true));
	wait_ended(take_back(&token, true));
	token = lend(0, 4096, NEAP_MAY_WRITE);
	ck_assert_uint_eq(token.keys_length, 4 + 2 * 8);
	end();
}
END_TEST

START_TEST(memory_that_goes_under_its_grants)
{
	begin();
	struct neap_grant_token spoiled = lend(0, 4096, NEAP_MAY_WRITE), other = lend(4096, 4096, NEAP_MAY_WRITE);
	struct end *told = take_back(&spoiled, false), released = {0};
	ck_assert_int_eq(neap_memory_unregister(rig.sides[1].engine, region, on_ended, &released), NEAP_OK);
	wait_ended(&released);
	wait_ended(told);
	ck_assert_uint_eq(rig.devices[2]->regions + rig.devices[3]->regions, 0);
	wait_ended(take_back(&other, false));
	end();
}
END_TEST

/* The engine ends with grants in every state. */
START_TEST(the_end_of_all)
{
	begin();
	struct neap_grant_token tokens[4] = {lend(0, 4096, NEAP_MAY_WRITE), lend(4096, 4096, NEAP_MAY_WRITE), lend(SLAB, 4096, NEAP_MAY_WRITE),
	                                     lend(2 * SLAB, 4096, NEAP_MAY_WRITE)};
	struct end *draining = take_back(&tokens[0], false), *renewing = take_back(&tokens[2], false);
	(void)tokens;
	rdma_engine_rig_close(&rig, 1);
	ck_assert_uint_eq(draining->times + renewing->times, 2);
	end();
}
END_TEST

/* --- a device that does not let go ------------------------------------------------------------------------------------------ */

static void take_back_from_a_device_that_keeps(const struct neap_grant_token *token)
{
	struct end *told = take_back(token, false);
	for (uint32_t tries = 0; tries < NEAP_RDMA_RELEASE_TRIES; tries++) {
		ck_assert_uint_eq(told->times, 0);
		uint64_t calls = rig.sim.calls[SIM_DEREGISTER];
		sim_verbs_fail(&rig.sim, SIM_DEREGISTER, 1, -EBUSY);
		while (rig.sim.calls[SIM_DEREGISTER] == calls)
			rdma_engine_rig_pass(&rig, MS);
	}
	wait_ended(told);
}

static void end_with_a_region_that_is_kept(void)
{
	ck_assert_int_eq(neap_memory_unregister(rig.sides[1].engine, region, NULL, NULL), NEAP_OK);
	rdma_engine_rig_pass(&rig, SECOND);
	ck_assert_int_eq(sim_verbs_force(rig.devices[2]) + sim_verbs_force(rig.devices[3]), 1);
	end();
}

START_TEST(the_peer_is_fenced_when_a_device_is_not)
{
	begin();
	struct neap_grant_token token = lend(0, 4096, NEAP_MAY_WRITE), before = lend(SLAB, 4096, NEAP_MAY_WRITE), after;
	completes(submit(NEAP_WRITE, ours, theirs, 4096, &token, true));
	struct neap_rdma_stats stats;
	take_back_from_a_device_that_keeps(&token);
	ck_assert_int_eq(neap_engine_rdma_stats(rig.sides[1].engine, &stats), NEAP_OK);
	ck_assert_uint_eq(rdma_engine_rig_logged(&rig, "all connections of that peer are ended"), 1);
	rdma_engine_rig_pass(&rig, SECOND);
	/* The old key is still good at that device: it is not used over what was connected since. */
	memset(theirs, 7, 4096);
	after = lend(SLAB, 4096, NEAP_MAY_WRITE);
	completes(submit(NEAP_WRITE, ours, theirs + SLAB, 4096, &after, true));
	uint32_t late = submit(NEAP_WRITE, ours, theirs, 4096, &token, false), healthy = submit(NEAP_WRITE, ours, theirs + SLAB, 4096, &before, false);
	ck_assert_uint_eq(wait_for(late)->cause, NEAP_CAUSE_GRANT_REFUSED);
	ck_assert_uint_eq(wait_for(healthy)->cause, NEAP_CAUSE_GRANT_REFUSED); /* and neither is what else was given before */
	rdma_engine_rig_pass(&rig, SECOND);
	ck_assert(all(theirs, 4096, 7));
	end_with_a_region_that_is_kept();
}
END_TEST

/* A device that keeps memory keeps it for good, and each grant there that ends without word fences the peer again. What the peer then
 * does under a new one takes as long as connecting does, not as long as silence, which may be longer than the grant. */
START_TEST(who_is_fenced_again_and_again_works_on)
{
	begin();
	struct neap_grant_token token = lend(0, 4096, NEAP_MAY_WRITE);
	completes(submit(NEAP_WRITE, ours, theirs, 4096, &token, true));
	take_back_from_a_device_that_keeps(&token);
	for (uint32_t round = 0; round < 5; round++) {
		rdma_engine_rig_pass(&rig, SECOND);
		token = lend(0, 4096, NEAP_MAY_WRITE);
		uint64_t begun_ns = rig.now_ns, sent = sends();
		completes(submit(NEAP_WRITE, ours, theirs, 4096, &token, true));
		ck_assert_uint_lt(rig.now_ns - begun_ns, 50 * MS);
		ck_assert_uint_gt(sends(), sent);
		wait_ended(take_back(&token, false));
	}
	ck_assert_uint_eq(rdma_engine_rig_logged(&rig, "all connections of that peer are ended"), 6);
	end_with_a_region_that_is_kept();
}
END_TEST

/* --- late bytes ------------------------------------------------------------------------------------------------------------- */

/* The writer has looked at its grant, and is stopped before it posts. */
START_TEST(a_writer_that_wakes_too_late)
{
	begin();
	struct neap_grant_token token = lend(0, SLAB / 2, NEAP_MAY_WRITE), healthy = lend(SLAB, SLAB, NEAP_MAY_WRITE);
	completes(submit(NEAP_WRITE, ours, theirs, 4096, &token, true));
	for (uint32_t i = 0; i < 2; i++)
		sim_verbs_set_port(&rig.sim, rig.devices[2 + i], NEAP_PORT_DOWN); /* what is posted does not arrive */
	uint32_t posted = submit(NEAP_WRITE, ours, theirs, SLAB / 2, &token, false);
	rdma_engine_rig_pass(&rig, MS);
	struct end *told = take_back(&token, false);
	wait_ended(told);
	memset(theirs, 7, SLAB); /* somebody else's */
	uint32_t stopped = submit(NEAP_WRITE, ours, theirs, SLAB / 2, &token, false);
	for (uint32_t i = 0; i < 2; i++)
		sim_verbs_set_port(&rig.sim, rig.devices[2 + i], NEAP_PORT_ACTIVE);
	uint32_t other = submit(NEAP_WRITE, ours, theirs + SLAB, SLAB, &healthy, true);
	ck_assert_uint_ne(wait_for(posted)->status, NEAP_COMPLETED);
	ck_assert_uint_ne(wait_for(stopped)->status, NEAP_COMPLETED);
	completes(other);
	ck_assert(all(theirs, SLAB, 7));
	ck_assert(all(theirs + SLAB, SLAB, 0x5a));
	end();
}
END_TEST

/* Two writers under two grants, one of which is taken back wherever it is; its memory serves somebody else at once. */
START_TEST(revoked_under_running_traffic)
{
	begin();
	rig.sim.latency_max_ns = MS; /* so that taking back is as fast as writing */
	unsigned short random[3] = {1, 2, 3};
	uint32_t healthy_index = UINT32_MAX, healthy_done = 0, cut_short = 0;
	struct neap_grant_token healthy = lend(SLAB, SLAB, NEAP_MAY_WRITE);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t at = (uint32_t)(nrand48(random) % 8) * (SLAB / 8), length = 1 + (uint32_t)(nrand48(random) % 150000);
		struct neap_grant_token token = lend(at, length, NEAP_MAY_WRITE);
		ck_assert_uint_ne(token.keys_length, 0);
		uint32_t index = submit(NEAP_WRITE, ours, theirs + at, length, &token, round % 3 == 0);
		if (healthy_index == UINT32_MAX || requests[healthy_index].ends) {
			healthy_done += healthy_index != UINT32_MAX && requests[healthy_index].outcome.status == NEAP_COMPLETED;
			ck_assert_uint_eq(healthy_index == UINT32_MAX || requests[healthy_index].outcome.status == NEAP_COMPLETED, 1);
			healthy_index = submit(NEAP_WRITE, ours, theirs + SLAB, 300000, &healthy, true);
		}
		rdma_engine_rig_pass(&rig, (uint64_t)nrand48(random) % (3 * MS));
		wait_ended(take_back(&token, false));
		unsigned char foreign = (unsigned char)(round % 80);
		memset(theirs + at, foreign, length);
		cut_short += wait_for(index)->status != NEAP_COMPLETED;
		rdma_engine_rig_pass(&rig, 5 * MS);
		ck_assert_msg(all(theirs + at, length, foreign), "round %u: a late byte", round);
	}
	completes(healthy_index);
	ck_assert_uint_gt(cut_short, ROUNDS / 10);
	ck_assert_uint_gt(healthy_done, ROUNDS / 100);
	end();
}
END_TEST

/* --- what counts as done -------------------------------------------------------------------------------------------------------- */

START_TEST(placed_is_there)
{
	uint32_t late = 0;
	begin();
	struct neap_grant_token token = lend(0, SLAB, NEAP_MAY_WRITE);
	for (uint32_t i = 0; i < 200; i++) {
		bool placed = i >= 100;
		uint64_t length = 1 + i * 977;
		memset(theirs, 0, SLAB);
		uint32_t index = submit(NEAP_WRITE, ours, theirs, length, &token, placed);
		while (!requests[index].ends)
			rdma_engine_rig_pass(&rig, 10000);
		completes(index);
		late += !placed && !all(theirs, length, 0x5a);
		ck_assert_msg(!placed || all(theirs, length, 0x5a), "write %u is not there", i);
		rdma_engine_rig_pass(&rig, 10 * MS);
	}
	ck_assert_uint_gt(late, 10); /* these verbs are worth it */
	end();
}
END_TEST

/* What is needed to be sure of a placement is wanted when the first write asks for it: no memory, or a device in trouble at that moment, is
 * not the end of such writes. */
START_TEST(placed_is_possible_again_after_a_refusal)
{
	begin();
	struct neap_grant_token token = lend(0, SLAB, NEAP_MAY_WRITE);
	completes(submit(NEAP_WRITE, ours, theirs, 100, &token, false)); /* all else is there */
	rdma_engine_rig_pass(&rig, 100 * MS);
	if (_i == 0)
		sim_verbs_fail(&rig.sim, SIM_REGISTER, 1, -ENOMEM);
	else
		rig.fail_allocation = (uint32_t)_i;
	uint32_t refused = submit(NEAP_WRITE, ours, theirs, 100, &token, true);
	(void)wait_for(refused);
	rig.fail_allocation = 0;
	rdma_engine_rig_pass(&rig, 2000 * MS);
	completes(submit(NEAP_WRITE, ours, theirs, 100, &token, true));
	end();
}
END_TEST

static uint64_t checks(void)
{
	struct neap_rdma_initiator_stats stats;
	neap_rdma_initiator_stats(rdma_engine_rig_of(&rig, 0)->initiator, &stats);
	return stats.checks;
}

/* What has succeeded when a check is posted needs no other: on each of four rails' two queue pairs one for the first, one or two for the
 * rest. Each is there when it is said to be. */
START_TEST(a_burst_is_checked_at_once)
{
	begin();
	struct neap_grant_token token = lend(0, SLAB, NEAP_MAY_WRITE);
	completes(submit(NEAP_WRITE, ours, theirs, 300000, &token, true));
	rdma_engine_rig_pass(&rig, SECOND);
	memset(theirs, 0, SLAB);
	submitted = 0;
	memset(requests, 0, sizeof requests);
	look_at_once = true;
	uint64_t before = checks();
	for (uint32_t i = 0; i < SLAB / 4096; i++)
		(void)submit(NEAP_WRITE, ours, theirs + i * 4096, 4096, &token, true);
	for (uint32_t i = 0; i < SLAB / 4096; i++)
		completes(i);
	look_at_once = false;
	ck_assert_uint_gt(checks(), before);
	ck_assert_uint_le(checks() - before, 4 * 2 * 4);
	end();
}
END_TEST

/* Queue pairs that are always full: checks find their room, and the end is soon. */
START_TEST(checks_find_room)
{
	begin_with(false, (uint32_t)_i + 1, 1);
	struct neap_grant_token token = lend(0, SLAB, NEAP_MAY_WRITE | NEAP_MAY_READ);
	look_at_once = true;
	for (uint32_t i = 0; i < SLAB / 4096; i++)
		(void)submit(NEAP_WRITE, ours, theirs + i * 4096, 4096, &token, true);
	for (uint32_t i = 0; i < SLAB / 4096; i++)
		completes(i);
	look_at_once = false;
	memset(ours, 0, sizeof ours);
	uint32_t first = submit(NEAP_READ, ours, theirs, 200000, &token, false);
	completes(first);
	ck_assert(all(ours, 200000, 0x5a));
	end();
}
END_TEST

/* A queue pair is full again before its check is posted, of WRITEs that need none: the end of those makes room for the check. */
START_TEST(checks_find_room_among_others)
{
	begin_with(false, 1, 2);
	struct neap_grant_token token = lend(0, SLAB, NEAP_MAY_WRITE);
	for (uint32_t round = 0; round < 50; round++) {
		uint32_t first = submitted;
		for (uint32_t i = 0; i < 24; i++)
			(void)submit(NEAP_WRITE, ours, theirs + i * 4096, 4096, &token, i < 12 && i % 3 != 2);
		for (uint32_t i = first; i < submitted; i++)
			completes(i);
	}
	end();
}
END_TEST

/* Many at once, under one key and under another, one of which ends: what is said to be read was read. */
START_TEST(bursts_of_reads_that_are_revoked_midway)
{
	enum { BURST = 32 };
	uint32_t failed = 0, done = 0;
	unsigned short random[3] = {7, 8, (unsigned short)_i};
	begin_with(false, 0, 1 + (uint32_t)_i % 2);
	memset(theirs, 0x33, sizeof theirs);
	rig.sim.latency_max_ns = MS / 4;
	for (uint32_t round = 0; round < 40; round++) {
		struct neap_grant_token token = lend(0, 200000, NEAP_MAY_READ), spoiler = lend(0, 100, NEAP_MAY_WRITE),
		                        healthy = lend(SLAB, 200000, NEAP_MAY_READ);
		memset(ours, 0, BURST * 4096);
		uint32_t first = submitted;
		for (uint32_t i = 0; i < BURST; i++)
			(void)submit(NEAP_READ, ours + i * 4096, i % 4 ? theirs : theirs + SLAB, 4096, i % 4 ? &token : &healthy, false);
		rdma_engine_rig_pass(&rig, (uint64_t)nrand48(random) % (4 * MS));
		(void)take_back(&spoiler, false);
		wait_ended(take_back(&token, false));
		for (uint32_t i = 0; i < BURST; i++) {
			bool complete = wait_for(first + i)->status == NEAP_COMPLETED;
			failed += !complete;
			done += complete;
			ck_assert_msg(complete || i % 4, "round %u: a healthy one failed", round);
			ck_assert_msg(!complete || all(ours + i * 4096, 4096, 0x33), "round %u: bytes are missing", round);
		}
		wait_ended(take_back(&healthy, true));
		rdma_engine_rig_pass(&rig, 20 * MS);
	}
	ck_assert_uint_gt(failed, 10);
	ck_assert_uint_gt(done, 10 * BURST / 4);
	end();
}
END_TEST

/* A device that came back and did not take our memory goes without it. When it is the only one, TCP is what is left. */
START_TEST(memory_that_no_device_has_goes_over_tcp)
{
	begin();
	struct neap_grant_token token = lend(0, SLAB, NEAP_MAY_WRITE);
	completes(submit(NEAP_WRITE, ours, theirs, 100, &token, false));
	sim_verbs_lose(&rig.sim, rig.devices[0]);
	sim_verbs_lose(&rig.sim, rig.devices[1]);
	rdma_engine_rig_pass(&rig, 1000 * MS);
	ck_assert_uint_eq(rdma_engine_rig_of(&rig, 0)->usable, 0);
	sim_verbs_fail(&rig.sim, SIM_REGISTER, 1, -ENOMEM);
	sim_verbs_regain(rig.devices[0]);
	rdma_engine_rig_pass(&rig, 6000 * MS);
	ck_assert_uint_eq(rdma_engine_rig_of(&rig, 0)->usable, 1);
	ck_assert_uint_eq(rdma_engine_rig_logged(&rig, "the device goes without it"), 1);
	completes(submit(NEAP_WRITE, ours, theirs, 100, &token, false));
	end();
}
END_TEST

/* A reader may be told success with bytes missing: it is not told so on. */
START_TEST(a_read_that_was_revoked_midway_is_no_success)
{
	uint32_t failed = 0;
	unsigned short random[3] = {4, 5, 6};
	begin();
	memset(theirs, 0x33, sizeof theirs);
	rig.sim.latency_max_ns = 4 * MS;
	for (uint32_t round = 0; round < 100; round++) {
		struct neap_grant_token token = lend(0, 200000, NEAP_MAY_READ), spoiler = lend(0, 100, NEAP_MAY_WRITE);
		memset(ours, 0, 200000);
		uint32_t index = submit(NEAP_READ, ours, theirs, 200000, &token, false);
		rdma_engine_rig_pass(&rig, (uint64_t)nrand48(random) % (6 * MS));
		(void)take_back(&spoiler, false);
		wait_ended(take_back(&token, false));
		bool complete = wait_for(index)->status == NEAP_COMPLETED;
		failed += !complete;
		ck_assert_msg(!complete || all(ours, 200000, 0x33), "round %u: bytes are missing", round);
		rdma_engine_rig_pass(&rig, 20 * MS);
	}
	ck_assert_uint_gt(failed, 10);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("grants over RDMA");
	TCase *tests = tcase_create("all"), *done = tcase_create("what counts as done"), *late = tcase_create("late bytes");
	tcase_set_timeout(tests, 300);
	tcase_set_timeout(done, 300);
	tcase_set_timeout(late, 300);
	tcase_add_test(tests, what_has_keys_goes_over_devices);
	tcase_add_test(tests, what_has_none_goes_over_tcp);
	tcase_add_test(tests, keys_of_another_process_are_not_used);
	tcase_add_test(tests, keys_are_nothing_for_who_speaks_plainly);
	tcase_add_test(tests, a_quiet_end_leaves_the_key);
	tcase_add_test(tests, an_end_without_word_waits_for_the_devices);
	tcase_add_test(tests, a_spoiled_slab_waits_for_its_other_grants);
	tcase_add_test(tests, a_right_to_read_is_fenced_too);
	tcase_add_test(tests, devices_that_come_and_go_meanwhile);
	tcase_add_test(tests, memory_that_goes_under_its_grants);
	tcase_add_test(tests, the_end_of_all);
	tcase_add_test(tests, the_peer_is_fenced_when_a_device_is_not);
	tcase_add_test(tests, who_is_fenced_again_and_again_works_on);
	tcase_add_test(late, a_writer_that_wakes_too_late);
	tcase_add_test(late, revoked_under_running_traffic);
	tcase_add_test(done, placed_is_there);
	tcase_add_test(done, memory_that_no_device_has_goes_over_tcp);
	tcase_add_loop_test(done, placed_is_possible_again_after_a_refusal, 0, 4);
	tcase_add_test(done, a_burst_is_checked_at_once);
	tcase_add_loop_test(done, checks_find_room, 0, 3);
	tcase_add_test(done, checks_find_room_among_others);
	tcase_add_loop_test(done, bursts_of_reads_that_are_revoked_midway, 0, getenv("NEAP_RDMA_SEEDS") ? atoi(getenv("NEAP_RDMA_SEEDS")) : 4);
	tcase_add_test(done, a_read_that_was_revoked_midway_is_no_success);
	suite_add_tcase(suite, tests);
	suite_add_tcase(suite, late);
	suite_add_tcase(suite, done);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
