/* Puts and gets that do not go as they should: each call lost on either way, leases that run out, buffers that are held, owners that
 * refuse, restart, or answer nonsense, callers that change their mind. */
#include "tests/unit/accessor_rig.h"
#include "transports/slice.h"
#include <check.h>
#include <string.h>

static struct rig_script *on(uint32_t owner, uint32_t method)
{
	return &rig.owners[owner].on[method];
}

static void expect_at(struct rig_op *op, uint32_t owner)
{
	rig_expect(op, NEAP_STORE_SUCCESS, 0);
	ck_assert_str_eq(op->place.rpc, rig.routes[owner].place.rpc);
}

static void expect_put_at(struct rig_op *op, uint32_t owner, const char *key, uint64_t size)
{
	expect_at(op, owner);
	const struct rig_value *value = rig_find(owner, key);
	ck_assert(value && value->exists && value->size == size && rig_filled(key, size, rig.owners[owner].memory + value->at));
}

/* What an UNKNOWN put turns out to be. */
static void resolve(struct rig_op *op, const char *key, const struct neap_unsettled *unsettled)
{
	struct neap_key name = {key, (uint32_t)strlen(key)};
	*op = (struct rig_op){0};
	ck_assert_int_eq(neap_accessor_resolve(rig.accessor, &name, unsettled, 1000 * MS, rig_done, op, &op->id), 0);
}

/* --- each call, lost on either way ----------------------------------------------------------------------------------------------- */

static const struct lossy {
	uint32_t method;
	uint8_t state;
	bool get;
	enum neap_direction direction;
	uint64_t size;
} lossy[] = {
	{PRE_WRITE, store_put_RESERVING, false, NEAP_FORWARD, 50000}, {WRITE_COMMIT, store_put_COMMITTING, false, NEAP_FORWARD, 50000},
	{WRITE_REMOTE, store_put_MOVING, false, NEAP_REVERSE, 50000}, {WRITE_REMOTE, store_put_MOVING, false, NEAP_REVERSE, 500},
	{PIN_KEY, store_get_PINNING, true, NEAP_FORWARD, 50000},      {READ_REMOTE, store_get_MOVING, true, NEAP_REVERSE, 50000},
	{READ_REMOTE, store_get_MOVING, true, NEAP_REVERSE, 500},
};
#define LOSSY (int)(sizeof lossy / sizeof lossy[0])

static void begin_lossy(struct rig_op *op, const struct lossy *way)
{
	struct rig_op warm = {0};
	rig_begin();
	rig_put(&warm, "warm", 100, NEAP_REVERSE); /* connections stand */
	rig_expect(&warm, NEAP_STORE_SUCCESS, 0);
	if (way->get) {
		rig_have(0, "key", way->size);
		rig_have(1, "key", way->size);
		rig_get(op, "key", way->size, way->direction);
	} else {
		rig_put(op, "key", way->size, way->direction);
	}
}

/* Executed once, at the first owner, asked twice. */
START_TEST(a_lost_reply)
{
	const struct lossy *way = &lossy[_i];
	struct rig_op op = {0};
	begin_lossy(&op, way);
	on(0, way->method)->lose = 1;
	expect_at(&op, 0);
	if (!way->get)
		ck_assert(op.outcome.created && rig_find(1, "key") == NULL);
	ck_assert_uint_ge(rig_stats().repeats, 1);
	ck_assert_uint_eq(on(0, way->method)->calls, way->method == READ_REMOTE ? 2 : way->method == WRITE_REMOTE ? 2 : 1);
	rig_end();
}
END_TEST

START_TEST(a_lost_request)
{
	const struct lossy *way = &lossy[_i];
	struct rig_op op = {0};
	begin_lossy(&op, way);
	rig_reach(way->state);
	sim_run_for(rig.sim, 4000); /* sent, and not there yet */
	rig_cut_all(0);
	expect_at(&op, 0);
	if (way->get)
		ck_assert(rig_filled("key", way->size, rig.memory));
	else
		expect_put_at(&op, 0, "key", way->size);
	ck_assert_uint_ge(rig_stats().repeats, 1);
	rig_end();
}
END_TEST

/* No answer at all. What can have been committed is UNKNOWN, and is nowhere else tried; all else goes on at the next owner. */
START_TEST(never_an_answer)
{
	const struct lossy *way = &lossy[_i];
	struct rig_op op = {0}, after = {0};
	begin_lossy(&op, way);
	on(0, way->method)->hold = 99;
	if (way->method != WRITE_COMMIT && way->method != WRITE_REMOTE) {
		expect_at(&op, 1);
		ck_assert(!way->get || rig_filled("key", way->size, rig.memory));
		rig_end();
		return;
	}
	rig_expect(&op, NEAP_STORE_UNKNOWN, way->method == WRITE_COMMIT ? NEAP_STORE_RPC_FAIL : NEAP_ETIMEDOUT);
	ck_assert(rig_find(1, "key") == NULL && rig_find(0, "key")->exists);
	resolve(&after, "key", &op.unsettled);
	expect_at(&after, 0);
	ck_assert(after.outcome.size == way->size && after.outcome.created == (way->method == WRITE_COMMIT));
	rig_end();
}
END_TEST

/* The owner has lost its memory of what we asked; and an executed commit's answer with it. */
START_TEST(no_session)
{
	struct rig_op op = {0}, after = {0};
	begin_lossy(&op, &lossy[_i]);
	on(0, lossy[_i].method)->hold = 1;
	rig_reach(lossy[_i].state);
	rig_for(1);
	ck_assert_uint_eq(rig.owners[0].held_method, lossy[_i].method);
	rig_server_restart(0);
	rig_expect(&op, NEAP_STORE_UNKNOWN, NEAP_STORE_RPC_FAIL);
	resolve(&after, "key", &op.unsettled);
	expect_at(&after, 0);
	rig_end();
}
END_TEST

/* It has lost it between two operations: nothing of ours was in it. */
START_TEST(no_session_before)
{
	struct rig_op op = {0};
	begin_lossy(&op, &lossy[_i]);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	rig_server_restart(0);
	rig_put(&op, "other", lossy[_i].size, lossy[_i].direction);
	expect_put_at(&op, 0, "other", lossy[_i].size);
	rig_end();
}
END_TEST

/* Another process at the owner's address. */
START_TEST(restarted_owner)
{
	struct rig_op op = {0};
	begin_lossy(&op, &lossy[_i]);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	rig_owner_restart(0);
	if (lossy[_i].get) {
		rig_get(&op, "key", lossy[_i].size, lossy[_i].direction);
		expect_at(&op, 1);
	} else {
		rig_put(&op, "new", lossy[_i].size, lossy[_i].direction);
		if (lossy[_i].method == WRITE_REMOTE) /* it went to the old one, whose end nobody had told us of */
			rig_expect(&op, NEAP_STORE_UNKNOWN, NEAP_STORE_RPC_FAIL);
		else
			expect_put_at(&op, 1, "new", lossy[_i].size);
		ck_assert_ptr_null(rig_find(0, "new"));
	}
	rig_end();
}
END_TEST

/* --- refusals -------------------------------------------------------------------------------------------------------------------- */

START_TEST(refused_goes_to_the_next)
{
	static const int statuses[] = {NEAP_STORE_NO_AVAILABLE_HANDLE, NEAP_STORE_REPLICA_IS_PROCESSING, NEAP_STORE_SHUTTING_DOWN,
	                               NEAP_STORE_INVALID_PARAMS};
	struct rig_op op = {0};
	const struct lossy *way = &lossy[_i / 4];
	begin_lossy(&op, way);
	on(0, way->method)->refuse = 1;
	on(0, way->method)->status = statuses[_i % 4];
	if (way->method == WRITE_COMMIT && statuses[_i % 4] == NEAP_STORE_REPLICA_IS_PROCESSING) {
		rig_expect(&op, NEAP_STORE_UNKNOWN, NEAP_STORE_REPLICA_IS_PROCESSING);
	} else {
		expect_at(&op, 1);
		ck_assert(way->get || !rig_find(0, "key"));
		ck_assert_uint_eq(on(0, WRITE_REVOKE)->calls, way->method == WRITE_COMMIT ? 1 : 0);
		ck_assert_uint_eq(way->get ? rig_stats().read_retries : rig_stats().write_retries, 1);
	}
	rig_end();
}
END_TEST

START_TEST(refused_everywhere)
{
	struct rig_op op = {0};
	struct neap_put_options options = {.direction = _i ? NEAP_FORWARD : NEAP_REVERSE, .candidates_max = 1};
	rig_begin();
	for (uint32_t i = 0; i < 2; i++) {
		struct rig_script *script = on(i, _i ? PRE_WRITE : WRITE_REMOTE);
		*script = (struct rig_script){.refuse = 1, .status = i ? NEAP_STORE_NO_AVAILABLE_HANDLE : NEAP_STORE_REPLICA_IS_PROCESSING,
		                              .retry_after_ms = 40 + i};
	}
	rig_put(&op, "key", 50000, options.direction);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert(op.outcome.retry_after_ms == 41 && strstr(op.why, "as the test wants"));
	on(0, _i ? PRE_WRITE : WRITE_REMOTE)->refuse = 1;
	ck_assert_int_eq(rig_put_of(&op, "key", 50000, 1, &options), 0); /* one candidate was allowed */
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_REPLICA_IS_PROCESSING);
	rig_end();
}
END_TEST

/* The commit's refusals: where the reservation went with it, nothing is revoked. */
START_TEST(refused_commits)
{
	static const struct {
		int status;
		uint32_t revokes;
	} cases[] = {{NEAP_STORE_LEASE_EXPIRED, 0}, {NEAP_STORE_OBJECT_NOT_FOUND, 0}, {NEAP_STORE_DATA_COPY_FAILED, 0}, {NEAP_STORE_INVALID_WRITE, 1}};
	struct rig_op op = {0};
	rig_begin();
	on(0, WRITE_COMMIT)->refuse = 1;
	on(0, WRITE_COMMIT)->status = cases[_i].status;
	rig_put(&op, "key", 50000, NEAP_FORWARD);
	expect_put_at(&op, 1, "key", 50000);
	ck_assert_uint_eq(on(0, WRITE_REVOKE)->calls, cases[_i].revokes);
	rig_end();
}
END_TEST

/* Somebody else was faster: told at the commit, or by a status where a reply was due. */
START_TEST(exists_at_the_end)
{
	struct rig_op op = {0};
	rig_begin();
	struct rig_script *script = on(0, _i ? WRITE_COMMIT : WRITE_REMOTE);
	script->refuse = 1;
	script->status = NEAP_STORE_OBJECT_ALREADY_EXISTS;
	rig_put(&op, "key", 50000, _i ? NEAP_FORWARD : NEAP_REVERSE);
	if (_i) {
		rig_reach(store_put_WRITING);
		rig_find(0, "key")->exists = true;
	} else {
		rig_have(0, "key", 50000);
	}
	expect_at(&op, 0);
	ck_assert_uint_eq(on(0, LOOK_UP)->calls, 1);
	rig_end();
}
END_TEST

/* --- what the key has -------------------------------------------------------------------------------------------------------------- */

/* LookUp is lost, refused, never answered; the value has gone again; it is gone and comes back. */
START_TEST(looking)
{
	struct rig_op op = {0};
	rig_begin();
	rig_have(0, "key", 50000);
	switch (_i) {
	case 0: on(0, LOOK_UP)->lose = 1; break;
	case 1: on(0, LOOK_UP)->refuse = 1, on(0, LOOK_UP)->status = NEAP_STORE_SHUTTING_DOWN; break;
	case 2: on(0, LOOK_UP)->hold = 99; break;
	case 3: on(0, LOOK_UP)->twist = 1; break;
	default: on(0, LOOK_UP)->twist = 99; break;
	}
	rig_put(&op, "key", 50000, NEAP_FORWARD);
	if (_i == 0 || _i == 3)
		expect_at(&op, 0);
	else if (_i == 4)
		expect_put_at(&op, 1, "key", 50000); /* it says exists and has nothing: on to the next */
	else
		rig_expect(&op, NEAP_STORE_FAILED, _i == 1 ? NEAP_STORE_SHUTTING_DOWN : NEAP_STORE_RPC_FAIL);
	rig_end();
}
END_TEST

START_TEST(resolving)
{
	struct neap_unsettled unsettled;
	struct rig_op op = {0};
	rig_begin();
	unsettled = (struct neap_unsettled){.place = rig.routes[0].place, .size = 50000};
	resolve(&op, "key", &unsettled);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_OBJECT_NOT_FOUND); /* neither there nor pending: it will not come */
	unsettled.until_ns = rig.sim->now_ns + 100 * MS;
	resolve(&op, "key", &unsettled); /* the call may still be under way */
	rig_expect(&op, NEAP_STORE_UNKNOWN, NEAP_STORE_REPLICA_IS_PROCESSING);
	rig.owners[0].pending_always = true;
	unsettled.write_id = 3;
	resolve(&op, "key", &unsettled);
	rig_expect(&op, NEAP_STORE_UNKNOWN, NEAP_STORE_REPLICA_IS_PROCESSING);
	ck_assert_mem_eq(&op.unsettled.place, &unsettled.place, sizeof unsettled.place);
	uint64_t other = rig_have(0, "key", 50000)->write_id;
	resolve(&op, "key", &unsettled);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	ck_assert(!op.outcome.created);
	unsettled.write_id = other;
	resolve(&op, "key", &unsettled);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	ck_assert(op.outcome.created);
	unsettled.write_id = other + 100;
	unsettled.size = 4;
	resolve(&op, "key", &unsettled);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_OBJECT_ALREADY_EXISTS);
	on(0, LOOK_UP)->refuse = 1;
	on(0, LOOK_UP)->status = NEAP_STORE_SHUTTING_DOWN;
	resolve(&op, "key", &unsettled);
	rig_expect(&op, NEAP_STORE_UNKNOWN, NEAP_STORE_SHUTTING_DOWN);
	on(0, LOOK_UP)->hold = 99;
	resolve(&op, "key", &unsettled);
	neap_accessor_cancel(rig.accessor, op.id); /* before it began */
	rig_expect(&op, NEAP_STORE_UNKNOWN, NEAP_ECANCELED);
	resolve(&op, "key", &unsettled);
	rig_reach(store_put_LOOKING);
	neap_accessor_cancel(rig.accessor, op.id);
	rig_expect(&op, NEAP_STORE_UNKNOWN, NEAP_ECANCELED);
	resolve(&op, "key", &unsettled);
	rig_expect(&op, NEAP_STORE_UNKNOWN, NEAP_STORE_RPC_FAIL);
	rig_end();
}
END_TEST

/* --- leases ------------------------------------------------------------------------------------------------------------------------ */

/* 300 ms: the guard is 170 ms after the request. */
START_TEST(a_grant_that_comes_late)
{
	struct rig_op op = {0};
	rig_begin();
	rig.owners[0].lease_ms = 300;
	on(0, PRE_WRITE)->hold = 1;
	rig_put(&op, "key", 50000, NEAP_FORWARD);
	rig_reach(store_put_RESERVING);
	rig_for(_i ? 165 : 175);
	rig_answer(0);
	expect_put_at(&op, _i ? 0 : 1, "key", 50000);
	ck_assert(_i || (on(0, WRITE_REVOKE)->calls == 1 && !rig_find(0, "key")));
	ck_assert_uint_eq(rig_stats().late, _i ? 0 : 1);
	rig_end();
}
END_TEST

START_TEST(a_lease_that_ends_during_the_write)
{
	struct rig_op op = {0};
	rig_begin();
	rig.route_count = 1;
	rig.owners[0].lease_ms = 300;
	rig_put(&op, "key", 4000000, NEAP_FORWARD);
	rig_reach(store_put_WRITING);
	uint64_t asked_ns = rig.sim->now_ns;
	sim_sever(rig.sim, 0, 1, false);
	rig_for(165);
	ck_assert_uint_eq(rig_stats().revokes, 0);
	rig_for(10);
	ck_assert(rig_stats().revokes == 1 || op.times == 0);
	sim_heal(rig.sim);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_LEASE_EXPIRED);
	ck_assert(rig.sim->now_ns > asked_ns && on(0, WRITE_COMMIT)->calls == 0 && on(0, WRITE_REVOKE)->calls == 1);
	ck_assert_ptr_null(rig_find(0, "key"));
	rig_end();
}
END_TEST

START_TEST(a_pin_that_comes_late)
{
	struct rig_op op = {0};
	rig_begin();
	rig.owners[0].lease_ms = 300;
	rig_have(0, "key", 50000);
	on(0, PIN_KEY)->hold = 1;
	rig_get(&op, "key", 50000, NEAP_FORWARD);
	rig_reach(store_get_PINNING);
	rig_for(175);
	rig_answer(0);
	expect_at(&op, 0); /* another pin */
	ck_assert(rig_filled("key", 50000, rig.memory) && rig_stats().late == 1 && on(0, PIN_KEY)->calls == 2);
	ck_assert_uint_eq(rig.owners[0].finished_count, 1); /* the late one rode on the second request */
	rig_end();
}
END_TEST

/* The reader is stopped while it reads, for longer than its pin. Whatever has arrived is not believed. */
START_TEST(a_read_that_ends_late)
{
	struct rig_op op = {0};
	rig_begin();
	rig.route_count = 1;
	rig.owners[0].lease_ms = 300;
	rig_have(0, "key", 4000000);
	rig_get(&op, "key", 4000000, NEAP_FORWARD);
	rig_reach(store_get_READING);
	sim_node_pause(rig.a, 400 * MS);
	expect_at(&op, 0); /* brought by its owner, who needs no lease */
	ck_assert(rig_filled("key", 4000000, rig.memory) && on(0, PIN_KEY)->calls == 1 && on(0, READ_REMOTE)->calls == 1);
	ck_assert_uint_eq(rig_stats().pins, 1);
	rig_end();
}
END_TEST

/* --- transfers that fail ------------------------------------------------------------------------------------------------------------ */

static void refuse_transfers(uint32_t owner, const char *key)
{
	struct rig_value *value = rig_find(owner, key);
	ck_assert_int_eq(neap_grant_end(rig.owners[owner].engine, &value->token, NULL, NULL), 0);
	value->granted = false;
}

/* The write fails; the revoke goes well, is lost, refused for a while, in vain, or for good. The transfer's error is what is told. */
START_TEST(a_failed_write_is_revoked)
{
	static const struct {
		struct rig_script script;
		uint32_t calls, failed;
	} cases[] = {
		{{0}, 1, 0},
		{{.lose = 1}, 1, 0},
		{{.refuse = 2, .status = NEAP_STORE_REPLICA_IS_PROCESSING}, 3, 0},
		{{.refuse = 9, .status = NEAP_STORE_REPLICA_IS_PROCESSING}, 3, 1},
		{{.refuse = 9, .status = NEAP_STORE_INVALID_WRITE}, 1, 1},
		{{.refuse = 9, .status = NEAP_STORE_LEASE_EXPIRED}, 1, 0},
		{{.hold = 9}, 1, 1},
	};
	struct rig_op op = {0};
	rig_begin();
	rig.route_count = 1;
	on(0, WRITE_REVOKE)[0] = cases[_i].script;
	on(0, PRE_WRITE)->hold = 1;
	rig_put(&op, "key", 50000, NEAP_FORWARD);
	rig_reach(store_put_RESERVING);
	rig_for(1);
	refuse_transfers(0, "key"); /* before we have the grant */
	rig_answer(0);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_TRANSFER_FAIL);
	ck_assert_uint_eq(on(0, WRITE_REVOKE)->calls, cases[_i].calls);
	ck_assert_uint_gt(rig.owners[0].quiet_revokes, 0); /* what FAILED leaves nothing under way */
	ck_assert_uint_eq(rig_stats().revokes_failed, cases[_i].failed);
	ck_assert_uint_eq(on(0, WRITE_COMMIT)->calls, 0);
	rig_end();
}
END_TEST

/* The time for the revoke is over before its attempts are. */
START_TEST(a_revoke_has_its_time)
{
	struct rig_op op = {0};
	rig_open();
	rig.options.cleanup_timeout_ns = 100 * MS;
	rig.options.revokes_max = 50;
	rig_start();
	rig.route_count = 1;
	on(0, WRITE_REVOKE)->refuse = 99;
	on(0, WRITE_REVOKE)->status = NEAP_STORE_REPLICA_IS_PROCESSING;
	on(0, PRE_WRITE)->hold = 1;
	rig_put(&op, "key", 50000, NEAP_FORWARD);
	rig_reach(store_put_RESERVING);
	rig_for(1);
	refuse_transfers(0, "key");
	rig_answer(0);
	rig_reach(store_put_REVOKING);
	neap_accessor_cancel(rig.accessor, op.id); /* it is ending anyway */
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_ECANCELED);
	ck_assert_ptr_nonnull(strstr(op.why, "before: "));
	ck_assert(rig_stats().revokes_failed == 1 && on(0, WRITE_REVOKE)->calls >= 5 && on(0, WRITE_REVOKE)->calls < 20);
	rig_end();
}
END_TEST

START_TEST(a_failed_read_goes_to_the_next)
{
	struct rig_op op = {0};
	rig_begin();
	rig_have(0, "key", 50000);
	rig_have(1, "key", 50000);
	on(0, PIN_KEY)->hold = 1;
	rig_get(&op, "key", 50000, NEAP_FORWARD);
	rig_reach(store_get_PINNING);
	rig_for(1);
	refuse_transfers(0, "key");
	rig_answer(0);
	expect_at(&op, 1);
	ck_assert(rig_filled("key", 50000, rig.memory));
	rig_for(200);
	ck_assert_uint_eq(rig.owners[0].unpin_items, 1); /* a failed one is finished too */
	rig_end();
}
END_TEST

/* The owner's own transfer fails, or its answer cannot be right. */
START_TEST(nonsense)
{
	static const struct {
		uint32_t method;
		bool get;
		enum neap_direction direction;
		uint64_t size;
	} cases[] = {{PRE_WRITE, false, NEAP_FORWARD, 50000}, {PIN_KEY, true, NEAP_FORWARD, 50000}, {READ_REMOTE, true, NEAP_REVERSE, 500},
	             {READ_REMOTE, true, NEAP_REVERSE, 50000}};
	struct rig_op op = {0};
	rig_begin();
	on(0, cases[_i].method)->twist = 1;
	rig_have(1, "have", cases[_i].size);
	rig_have(0, "have", cases[_i].size);
	if (cases[_i].get) {
		rig_get(&op, "have", cases[_i].size + 1, cases[_i].direction);
		rig.routes[0].size = rig.routes[1].size = cases[_i].size;
	} else {
		rig_put(&op, "key", cases[_i].size, cases[_i].direction);
	}
	expect_at(&op, 1);
	rig_end();
}
END_TEST

static neap_segment_id other_segment;
static bool other_open;
static void other_opened(void *user, int error, neap_segment_id segment, const char *why)
{
	(void)user;
	ck_assert_msg(!error, "%s", why);
	other_segment = segment;
	other_open = true;
}
static bool is_other_open(void)
{
	return other_open;
}

/* The engine has no room for the transfer: others wait for a peer that does not answer. */
START_TEST(no_room_for_the_transfer)
{
	static struct neap_request requests[512];
	static const struct neap_batch_options plain;
	static char byte;
	struct rig_op op = {0};
	neap_batch_id batch;
	rig_begin();
	rig.route_count = 1;
	rig_have(0, "have", 50000);
	rig_put(&op, "warm", 50000, NEAP_FORWARD);
	rig_expect(&op, NEAP_STORE_SUCCESS, 0);
	other_open = false;
	ck_assert_int_eq(neap_segment_open(rig.engine, neap_engine_name(rig.owners[1].engine), other_opened, NULL), 0);
	ck_assert(rig_until(is_other_open, 1000));
	sim_sever(rig.sim, 0, 2, false);
	for (unsigned i = 0; i < 512; i++)
		requests[i] = (struct neap_request){.opcode = NEAP_WRITE, .source = &byte, .segment = other_segment, .target_offset = 4096, .length = 1};
	ck_assert_int_eq(neap_submit(rig.engine, requests, 512, &plain, &batch), 0);
	if (_i)
		rig_get(&op, "have", 50000, NEAP_FORWARD);
	else
		rig_put(&op, "key", 50000, NEAP_FORWARD);
	rig_expect(&op, NEAP_STORE_FAILED, NEAP_EAGAIN);
	ck_assert_uint_eq(on(0, WRITE_REVOKE)->calls, _i ? 0 : 1);
	sim_heal(rig.sim);
	rig_end();
}
END_TEST

/* --- buffers that the transport holds -------------------------------------------------------------------------------------------------- */

static bool slice_there(void)
{
	return rig.fake->count > 0;
}

static void begin_held(struct rig_op *op, bool get)
{
	rig_open();
	rig.use_fake = true;
	rig_start();
	rig_have(0, "have", 50000);
	if (get)
		rig_get(op, "have", 50000, NEAP_FORWARD);
	else
		rig_put(op, "key", 50000, NEAP_FORWARD);
	ck_assert(rig_until(slice_there, 1000));
}

START_TEST(a_held_buffer)
{
	struct rig_op op = {0};
	bool get = _i % 2;
	rig.route_count = 1;
	begin_held(&op, get);
	rig.route_count = 1;
	neap_slice_begun(fake_slice(rig.fake, 0));
	fake_end(rig.fake, fake_slice(rig.fake, 0), NEAP_FAILED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_PEER_RESET, 0, true);
	sim_node_wake(rig.a);
	if (get) { /* no other replica is tried: the buffer is not free */
		rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_TRANSFER_FAIL);
		ck_assert_uint_eq(on(1, PIN_KEY)->calls, 0);
	} else { /* another owner may be given what is only read */
		ck_assert(rig_until(slice_there, 1000));
		fake_end(rig.fake, fake_slice(rig.fake, 0), NEAP_FAILED, NEAP_EFFECT_NONE, NEAP_CAUSE_PEER_RESET, 0, false);
		sim_node_wake(rig.a);
		rig_expect(&op, NEAP_STORE_FAILED, NEAP_STORE_TRANSFER_FAIL);
		ck_assert_uint_eq(on(0, WRITE_REVOKE)->calls, 1);
	}
	ck_assert(op.outcome.held && op.released == 0 && rig_stats().held == 1);
	neap_accessor_cancel(rig.accessor, op.id); /* was told */
	rig_for(10);
	ck_assert(op.released == 0 && (!get || rig_stats().pins == 0));
	if (_i >= 2) {
		neap_accessor_close(rig.accessor, NULL, NULL);
		rig_for(10);
		ck_assert_uint_eq(op.released, 0);
	}
	fake_release(rig.fake, rig.fake->held[0]);
	sim_node_wake(rig.a);
	if (_i >= 2)
		rig.accessor = NULL;
	rig_for(10);
	ck_assert(op.released == 1 && op.times == 1);
	if (_i < 2)
		ck_assert(rig_stats().operations_now == 0 && rig_stats().pins == (get ? 1 : 0));
	rig_end();
}
END_TEST

/* Free before the operation has ended: nothing is said of it. */
START_TEST(held_for_a_while)
{
	struct rig_op op = {0};
	begin_held(&op, false);
	neap_slice_begun(fake_slice(rig.fake, 0));
	fake_end(rig.fake, fake_slice(rig.fake, 0), NEAP_FAILED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_PEER_RESET, 0, true);
	sim_node_wake(rig.a);
	rig_reach(store_put_REVOKING);
	fake_release(rig.fake, rig.fake->held[0]);
	sim_node_wake(rig.a);
	ck_assert(rig_until(slice_there, 1000)); /* at the other owner */
	fake_complete(rig.fake, fake_slice(rig.fake, 0));
	sim_node_wake(rig.a);
	expect_at(&op, 1);
	ck_assert(!op.outcome.held && op.released == 0);
	rig_end();
}
END_TEST

static uint32_t items_ended, batches_ended;
static void item_ended(void *user, uint32_t index, void *item_user, const struct neap_store_outcome *outcome)
{
	(void)user, (void)index, (void)item_user;
	ck_assert(!outcome->held && outcome->status == NEAP_STORE_FAILED);
	items_ended++;
}
static void batch_ended(void *user, uint32_t succeeded, uint32_t count)
{
	(void)user;
	ck_assert(succeeded == 0 && count == 1);
	batches_ended++;
}

START_TEST(held_in_a_batch)
{
	struct neap_slice_of slice = {NULL, 50000};
	struct neap_batch_item item = {.key = {"have", 4}, .slices = &slice, .count = 1};
	struct neap_store_batch_options options = {.get = {.direction = NEAP_FORWARD}, .done = item_ended, .finished = batch_ended};
	rig_open();
	rig.use_fake = true;
	rig_start();
	rig_have(0, "have", 50000);
	slice.address = rig.memory;
	items_ended = batches_ended = 0;
	ck_assert_int_eq(neap_accessor_get_batch(rig.accessor, &item, 1, &options, NULL), 0);
	ck_assert(rig_until(slice_there, 1000));
	neap_slice_begun(fake_slice(rig.fake, 0));
	fake_end(rig.fake, fake_slice(rig.fake, 0), NEAP_FAILED, NEAP_EFFECT_UNKNOWN, NEAP_CAUSE_PEER_RESET, 0, true);
	sim_node_wake(rig.a);
	rig_for(10);
	ck_assert_uint_eq(items_ended, 0);
	fake_release(rig.fake, rig.fake->held[0]);
	sim_node_wake(rig.a);
	rig_for(10);
	ck_assert(items_ended == 1 && batches_ended == 1);
	rig_end();
}
END_TEST

/* --- deadlines and cancels, in every state ------------------------------------------------------------------------------------------------ */

static const struct stage {
	bool get;
	enum neap_direction direction;
	uint8_t state;
	uint32_t held; /* the method that is not answered; RIG_METHODS: none */
	enum neap_store_status status;
	int error; /* of a cancel; 0: as it would be without */
} stages[] = {
	{false, NEAP_FORWARD, store_put_NEW, RIG_METHODS, NEAP_STORE_FAILED, NEAP_ECANCELED},
	{false, NEAP_FORWARD, store_put_PLACING, RIG_METHODS, NEAP_STORE_FAILED, NEAP_ECANCELED},
	{false, NEAP_FORWARD, store_put_REACHING, RIG_METHODS, NEAP_STORE_FAILED, NEAP_ECANCELED},
	{false, NEAP_FORWARD, store_put_RESERVING, PRE_WRITE, NEAP_STORE_FAILED, NEAP_ECANCELED},
	{false, NEAP_FORWARD, store_put_WRITING, RIG_METHODS, NEAP_STORE_FAILED, NEAP_ECANCELED},
	{false, NEAP_REVERSE, store_put_MOVING, WRITE_REMOTE, NEAP_STORE_UNKNOWN, NEAP_ECANCELED},
	{true, NEAP_FORWARD, store_get_NEW, RIG_METHODS, NEAP_STORE_FAILED, NEAP_ECANCELED},
	{true, NEAP_FORWARD, store_get_FINDING, RIG_METHODS, NEAP_STORE_FAILED, NEAP_ECANCELED},
	{true, NEAP_FORWARD, store_get_REACHING, RIG_METHODS, NEAP_STORE_FAILED, NEAP_ECANCELED},
	{true, NEAP_FORWARD, store_get_PINNING, PIN_KEY, NEAP_STORE_FAILED, NEAP_ECANCELED},
	{true, NEAP_FORWARD, store_get_READING, RIG_METHODS, NEAP_STORE_FAILED, NEAP_ECANCELED},
	{true, NEAP_REVERSE, store_get_MOVING, READ_REMOTE, NEAP_STORE_FAILED, NEAP_ECANCELED},
	{false, NEAP_FORWARD, store_put_COMMITTING, WRITE_COMMIT, NEAP_STORE_UNKNOWN, 0}, /* from here on a cancel is too late */
	{false, NEAP_FORWARD, store_put_LOOKING, LOOK_UP, NEAP_STORE_FAILED, 0},
};
#define STAGES (int)(sizeof stages / sizeof stages[0])

static void begin_stage(struct rig_op *op, const struct stage *stage, uint64_t deadline_ns)
{
	struct neap_put_options put = {.direction = stage->direction, .deadline_ns = deadline_ns};
	struct neap_get_options get = {.direction = stage->direction, .deadline_ns = deadline_ns};
	rig_begin();
	rig_have(0, "have", 4000000);
	if (stage->held < RIG_METHODS)
		on(0, stage->held)->hold = 99;
	if (stage->state == (stage->get ? (uint8_t)store_get_FINDING : (uint8_t)store_put_PLACING))
		rig.answers = RIG_NEVER;
	if (stage->state == (stage->get ? (uint8_t)store_get_REACHING : (uint8_t)store_put_REACHING))
		sim_sever(rig.sim, 0, 1, false);
	if (stage->get)
		ck_assert_int_eq(rig_get_of(op, "have", 4000000, 1, &get), 0);
	else
		ck_assert_int_eq(rig_put_of(op, stage->held == LOOK_UP ? "have" : "key", 4000000, 1, &put), 0);
	if (stage->state)
		rig_reach(stage->state);
}

START_TEST(canceled)
{
	const struct stage *stage = &stages[_i];
	struct rig_op op = {0};
	begin_stage(&op, stage, 0);
	if (stage->held < RIG_METHODS)
		rig_for(1); /* it is there */
	neap_accessor_cancel(rig.accessor, op.id);
	neap_accessor_cancel(rig.accessor, op.id);
	ck_assert_uint_eq(op.times, 0);
	uint64_t at_ns = rig.sim->now_ns;
	rig_expect(&op, stage->status, NEAP_ECANCELED);
	ck_assert(op.outcome.stopped && (stage->error == 0 || rig.sim->now_ns - at_ns < 300 * MS));
	if (stage->state == store_put_WRITING && !stage->get)
		ck_assert_uint_eq(on(0, WRITE_REVOKE)->calls, 1);
	rig_end();
}
END_TEST

START_TEST(its_deadline_passes)
{
	const struct stage *stage = &stages[_i];
	struct rig_op op = {0};
	begin_stage(&op, stage, 100 * MS);
	if (stage->state == store_put_WRITING || stage->state == store_get_READING)
		if (stage->held == RIG_METHODS && stage->direction == NEAP_FORWARD && stage->state != store_put_REACHING)
			sim_sever(rig.sim, 0, 1, false);
	uint64_t at_ns = rig.sim->now_ns;
	rig_expect(&op, stage->status, NEAP_ETIMEDOUT);
	ck_assert(op.outcome.stopped && rig.sim->now_ns - at_ns < 900 * MS);
	sim_heal(rig.sim);
	rig_end();
}
END_TEST

/* Canceled while it pauses before the next attempt. */
START_TEST(canceled_in_a_pause)
{
	static const struct {
		bool get;
		enum neap_direction direction;
		uint32_t method;
		uint8_t state;
	} cases[] = {{false, NEAP_FORWARD, PRE_WRITE, store_put_RESERVING}, {false, NEAP_REVERSE, WRITE_REMOTE, store_put_MOVING},
	             {true, NEAP_FORWARD, PIN_KEY, store_get_PINNING}, {true, NEAP_REVERSE, READ_REMOTE, store_get_RECALLING}};
	struct rig_op op = {0};
	rig_open();
	rig.options.backoff_ns = 500 * MS;
	rig_start();
	rig_have(0, "have", 50000);
	on(0, cases[_i].method)->lose = 1;
	if (cases[_i].get)
		rig_get(&op, "have", 50000, cases[_i].direction);
	else
		rig_put(&op, "key", 50000, cases[_i].direction);
	rig_reach(cases[_i].state);
	rig_for(50);
	neap_accessor_cancel(rig.accessor, op.id);
	rig_expect(&op, _i == 1 ? NEAP_STORE_UNKNOWN : NEAP_STORE_FAILED, NEAP_ECANCELED);
	rig_end();
}
END_TEST

/* The owner is not there at all: neither its RPC nor its engine. */
START_TEST(unreachable)
{
	struct rig_op op = {0};
	rig_begin();
	rig_have(1, "key", 50000);
	sim_sever(rig.sim, 0, 1, false);
	if (_i < 2) {
		rig_get(&op, "key", 50000, _i ? NEAP_FORWARD : NEAP_REVERSE);
		expect_at(&op, 1);
	} else {
		rig_put(&op, "new", 50000, _i == 3 ? NEAP_FORWARD : NEAP_REVERSE);
		expect_put_at(&op, 1, "new", 50000);
	}
	sim_heal(rig.sim);
	rig_end();
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("accessor in trouble");
	TCase *loss = tcase_create("losses"), *refusal = tcase_create("refusals"), *lease = tcase_create("leases"),
	      *transfer = tcase_create("transfers"), *time = tcase_create("time");
	tcase_add_loop_test(loss, a_lost_reply, 0, LOSSY);
	tcase_add_loop_test(loss, a_lost_request, 0, LOSSY);
	tcase_add_loop_test(loss, never_an_answer, 0, LOSSY);
	tcase_add_loop_test(loss, no_session, 1, 2);
	tcase_add_loop_test(loss, no_session, 3, 4);
	tcase_add_loop_test(loss, no_session_before, 0, 4);
	tcase_add_loop_test(loss, restarted_owner, 0, LOSSY);
	tcase_add_loop_test(loss, unreachable, 0, 4);
	tcase_add_loop_test(refusal, refused_goes_to_the_next, 0, 4 * LOSSY);
	tcase_add_loop_test(refusal, refused_everywhere, 0, 2);
	tcase_add_loop_test(refusal, refused_commits, 0, 4);
	tcase_add_loop_test(refusal, exists_at_the_end, 0, 2);
	tcase_add_loop_test(refusal, looking, 0, 5);
	tcase_add_test(refusal, resolving);
	tcase_add_loop_test(lease, a_grant_that_comes_late, 0, 2);
	tcase_add_test(lease, a_lease_that_ends_during_the_write);
	tcase_add_test(lease, a_pin_that_comes_late);
	tcase_add_test(lease, a_read_that_ends_late);
	tcase_add_loop_test(transfer, a_failed_write_is_revoked, 0, 7);
	tcase_add_test(transfer, a_revoke_has_its_time);
	tcase_add_test(transfer, a_failed_read_goes_to_the_next);
	tcase_add_loop_test(transfer, nonsense, 0, 4);
	tcase_add_loop_test(transfer, no_room_for_the_transfer, 0, 2);
	tcase_add_loop_test(transfer, a_held_buffer, 0, 4);
	tcase_add_test(transfer, held_for_a_while);
	tcase_add_test(transfer, held_in_a_batch);
	tcase_add_loop_test(time, canceled, 0, STAGES);
	tcase_add_loop_test(time, its_deadline_passes, 1, 6);
	tcase_add_loop_test(time, its_deadline_passes, 7, STAGES);
	tcase_add_loop_test(time, canceled_in_a_pause, 0, 4);
	TCase *const cases[] = {loss, refusal, lease, transfer, time};
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		tcase_set_timeout(cases[i], 30);
		suite_add_tcase(suite, cases[i]);
	}
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(make_suite());
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
