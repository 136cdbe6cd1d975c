/* The peer service when things go wrong: calls that are lost and repeated, connections that end in every phase, quotas, callers that ask for
 * what is not theirs, an owner that closes. */
#include "tests/unit/peer_rig.h"
#include "transports/checksum.h"
#include <check.h>
#include <string.h>

static struct rig_call call, other;

static struct rig_peer *first(void)
{
	return &rig.peers[0];
}

static struct rig_peer *second(void)
{
	return &rig.peers[1];
}

static void setup(void)
{
	rig_open(NULL);
}

static uint64_t write_id(const struct rig_call *of)
{
	return of->reply.pre_write.write_operation_id;
}

static uint64_t read_id(const struct rig_call *of)
{
	return of->reply.pin_key.read_operation_id;
}

static uint64_t requests(const struct neap_rpc_method *method)
{
	return rig_stats().methods[method->number - 1].requests;
}

/* --- each call lost before and after it was executed, and repeated ----------------------------------------------------------------- */

enum loss { BEFORE, AFTER };

struct awaited {
	const struct neap_rpc_method *method;
	uint64_t requests;
};

static bool was_executed(void *user)
{
	const struct awaited *awaited = user;
	return requests(awaited->method) > awaited->requests && rig_stats().operations_now == 0;
}

/* The status of the repeated call; it and the first one were executed once together. */
static int lose_and_repeat(enum loss loss, const struct neap_rpc_method *method, const void *request)
{
	struct awaited awaited = {method, requests(method)};
	struct neap_rpc_id id;
	ck_assert_int_eq(neap_rpc_id_take(first()->channel, &id), 0);
	sim_sever(rig.sim, loss == BEFORE ? 0 : 1, loss == BEFORE ? 1 : 0, true);
	rig_ask(first(), &call, method, request, 30000, &id);
	if (loss == AFTER)
		ck_assert(sim_run_until(rig.sim, was_executed, &awaited, 5000 * MS));
	else
		rig_for(2);
	rig_cut(first());
	sim_heal(rig.sim);
	rig_await(&call);
	ck_assert_msg(call.outcome.result == NEAP_RPC_UNKNOWN, "%s: %s", neap_rpc_result_name(call.outcome.result), call.why);
	ck_assert_uint_eq(requests(method) - awaited.requests, loss == AFTER);
	rig_ask(first(), &call, method, request, 30000, &id);
	int status = rig_status(&call);
	ck_assert_uint_eq(requests(method) - awaited.requests, 1);
	neap_rpc_id_finish(first()->channel, &id);
	rig_holds();
	return status;
}

/* What it reserved belonged to the lost connection: that is said, and the key is free. */
START_TEST(pre_write_lost)
{
	struct pre_write request = {.key = rig_text("k"), .size_bytes = 1000, .engine = neap_rpc_view_of(first()->engine_instance, 16)};
	ck_assert_int_eq(lose_and_repeat((enum loss)_i, &neap_method_pre_write, &request), 0);
	ck_assert_int_eq(rig_commit(first(), "k", write_id(&call), 1000, NULL, NULL), _i == BEFORE ? 0 : NEAP_STORE_LEASE_EXPIRED);
	ck_assert_uint_eq(rig_stats().lost_writes, _i == AFTER);
	if (_i == AFTER)
		rig_put(first(), "k", 1000, 1);
}
END_TEST

START_TEST(commit_lost)
{
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, &other), 0);
	struct write_commit request = {.key = rig_text("k"), .write_operation_id = write_id(&other), .size_bytes = 1000};
	/* lost before, its reservation goes with the connection: a definite end */
	ck_assert_int_eq(lose_and_repeat((enum loss)_i, &neap_method_write_commit, &request), _i == BEFORE ? NEAP_STORE_LEASE_EXPIRED : 0);
	ck_assert_int_eq(rig_exists("k"), _i == AFTER);
	ck_assert_int_eq(rig_look_up(second(), "k", write_id(&other), &call), 0);
	ck_assert_int_eq(call.reply.look_up.same_write, _i == AFTER);
}
END_TEST

START_TEST(revoke_lost)
{
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, &other), 0);
	struct write_revoke request = {.key = rig_text("k"), .write_operation_id = write_id(&other)};
	ck_assert_int_eq(lose_and_repeat((enum loss)_i, &neap_method_write_revoke, &request), _i == BEFORE ? NEAP_STORE_LEASE_EXPIRED : 0);
	ck_assert_uint_eq(rig_owner_stats().pending, 0);
	ck_assert_int_eq(rig_pre_write(second(), "k", 1000, NULL), 0);
}
END_TEST

START_TEST(pin_lost)
{
	unsigned char bytes[1000];
	rig_put(second(), "k", 1000, 1);
	struct pin_key request = {.key = rig_text("k"), .engine = neap_rpc_view_of(first()->engine_instance, 16)};
	ck_assert_int_eq(lose_and_repeat((enum loss)_i, &neap_method_pin_key, &request), 0);
	rig_for(10);
	ck_assert_uint_eq(rig_owner_stats().pins, _i == BEFORE);
	uint8_t status = rig_transfer(first(), NEAP_READ, &call, bytes, sizeof bytes);
	ck_assert_int_eq(status == NEAP_COMPLETED, _i == BEFORE);
	ck_assert(_i == AFTER || rig_filled(bytes, sizeof bytes, 1));
	ck_assert_int_eq(rig_unpin(first(), "k", read_id(&call)), _i == BEFORE ? 0 : NEAP_STORE_LEASE_EXPIRED);
}
END_TEST

START_TEST(unpin_lost)
{
	rig_put(first(), "k", 1000, 1);
	ck_assert_int_eq(rig_pin(second(), "k", NULL), 0); /* another's stays */
	ck_assert_int_eq(rig_pin(first(), "k", &other), 0);
	struct un_pin_key request = {.key = rig_text("k"), .read_operation_id = read_id(&other)};
	ck_assert_int_eq(lose_and_repeat((enum loss)_i, &neap_method_un_pin_key, &request), _i == BEFORE ? NEAP_STORE_LEASE_EXPIRED : 0);
	rig_for(10);
	ck_assert_uint_eq(rig_owner_stats().pins, 1);
}
END_TEST

START_TEST(write_inside_lost)
{
	struct write_remote_data request = {.key = rig_text("k"), .value = rig_text("bytes")};
	ck_assert_int_eq(lose_and_repeat((enum loss)_i, &neap_method_write_remote_data, &request), 0);
	ck_assert(call.reply.committed.created); /* the answer of the execution, not of a second one */
	ck_assert_int_eq(rig_read_inside(second(), "k", 10, &other), 0);
	ck_assert(other.reply.read.generation == call.reply.committed.generation && memcmp(other.value, "bytes", 5) == 0);
}
END_TEST

START_TEST(write_by_pull_lost)
{
	struct rig_slices slices;
	struct write_remote_data request = {.key = rig_text("k")};
	rig_fill(first()->memory, 10000, 4);
	request.src_buffers = rig_grant(first(), &slices, 0, 10000, 3, NEAP_MAY_READ);
	if (_i == AFTER) { /* the owner's own connection to the accessor is to be there: only answers are severed from here on */
		struct write_remote_data warm = {.key = rig_text("warm"), .src_buffers = request.src_buffers};
		rig_ask(first(), &other, &neap_method_write_remote_data, &warm, 5000, NULL);
		ck_assert_int_eq(rig_status(&other), 0);
	}
	if (_i == BEFORE) {
		ck_assert_int_eq(lose_and_repeat(BEFORE, &neap_method_write_remote_data, &request), 0);
		ck_assert(call.reply.committed.created);
	} else { /* the pull needs the network both ways: the connection ends while it is under way */
		struct neap_rpc_id id;
		ck_assert_int_eq(neap_rpc_id_take(first()->channel, &id), 0);
		rig_ask(first(), &call, &neap_method_write_remote_data, &request, 30000, &id);
		rig_await_operation();
		rig_channel_close(first());
		rig_await(&call);
		ck_assert_int_eq(call.outcome.result, NEAP_RPC_CLOSED);
		rig_for(500);
		ck_assert_uint_eq(rig_stats().operations_now, 0);
		rig_channel_open(first());
	}
	rig_for(500);
	ck_assert_int_eq(rig_read_inside(second(), "k", 10000, &other), 0);
	ck_assert(rig_filled(other.value, 10000, 4));
}
END_TEST

START_TEST(remove_lost)
{
	rig_put(first(), "k", 1000, 1);
	ck_assert_int_eq(lose_and_repeat((enum loss)_i, &neap_method_remove_key, &(struct remove_key){.key = rig_text("k")}), 0);
	ck_assert(!rig_exists("k"));
	rig_put(second(), "k", 1000, 2); /* a third time it would find this one */
	rig_for(100);
	ck_assert(rig_exists("k"));
}
END_TEST

/* --- connections that end ------------------------------------------------------------------------------------------------------------ */

/* How the connection ends: reset, orderly, or given up by the owner. */
static void end_connection(int how)
{
	if (how == 0) {
		rig_cut(first());
	} else if (how == 1) {
		rig_channel_close(first());
		rig_channel_open(first());
	} else {
		neap_rpc_server_drop(neap_peer_service_rpc(rig.service), first()->instance);
	}
	rig_for(5);
	rig_holds();
}

START_TEST(it_ends_with_reservations_and_pins)
{
	static unsigned char bytes[1000];
	rig_put(first(), "v", 1000, 1);
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, &call), 0);
	ck_assert_int_eq(rig_pre_write(first(), "l", 1000, NULL), 0);
	ck_assert_int_eq(rig_pin(first(), "v", &other), 0);
	ck_assert_int_eq(rig_pre_write(second(), "m", 1000, NULL), 0);
	ck_assert_int_eq(rig_pin(second(), "v", NULL), 0);
	end_connection(_i);
	/* at once, not when their leases end; another's stay */
	ck_assert_uint_eq(rig_owner_stats().pending, 1);
	ck_assert_uint_eq(rig_owner_stats().pins, 1);
	ck_assert_uint_eq(rig_owner_stats().quarantined, 0);
	ck_assert(rig_stats().lost_writes == 2 && rig_stats().lost_pins == 1);
	ck_assert(rig_stats().writes_now == 1 && rig_stats().pins_now == 1);
	ck_assert_int_ne(rig_transfer(first(), NEAP_WRITE, &call, bytes, sizeof bytes), NEAP_COMPLETED);
	ck_assert_int_ne(rig_transfer(first(), NEAP_READ, &other, bytes, sizeof bytes), NEAP_COMPLETED);
	ck_assert_int_eq(rig_commit(first(), "k", write_id(&call), 1000, NULL, NULL), NEAP_STORE_LEASE_EXPIRED);
	ck_assert_int_eq(rig_unpin(first(), "v", read_id(&other)), NEAP_STORE_LEASE_EXPIRED);
	rig_put(second(), "k", 1000, 3);
	rig_put(first(), "l", 1000, 4); /* a new connection is as good as the old one */
}
END_TEST

struct transfer {
	bool ended;
	uint8_t status;
};

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	(void)batch, (void)index, (void)request_user;
	((struct transfer *)user)->status = outcome->status;
}

static void on_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)batch, (void)summary;
	((struct transfer *)user)->ended = true;
}

/* The memory is in quarantine while bytes come, and no byte of the lost write is found in what others have written since. */
START_TEST(it_ends_while_bytes_come)
{
	struct transfer transfer = {0};
	neap_batch_id batch;
	ck_assert_int_eq(rig_pre_write(first(), "k", MIB, &call), 0);
	memset(first()->memory, 0xee, MIB);
	struct neap_request request = {.opcode = NEAP_WRITE, .source = first()->memory, .segment = first()->owner,
	                               .target_offset = call.buffer.address, .length = MIB, .grant = &call.token};
	struct neap_batch_options options = {.on_request = on_request, .on_batch = on_batch, .user = &transfer};
	ck_assert_int_eq(neap_submit(first()->engine, &request, 1, &options, &batch), 0);
	sim_run_for(rig.sim, 60000);
	rig_channel_close(first());
	rig_channel_open(first());
	sim_run_for(rig.sim, 100000);
	ck_assert_uint_eq(rig_owner_stats().pending, 0);
	for (unsigned i = 0; i < 4; i++) /* memory of all the tier, the lost write's too */
		ck_assert_int_eq(rig_write_buffers(second(), (const char *[]){"k", "l", "m", "n"}[i], MIB, MIB, 1, &other), 0);
	ck_assert(rig_until_set(&transfer.ended, 10000));
	ck_assert_int_ne(transfer.status, NEAP_COMPLETED);
	for (unsigned i = 0; i < 4; i++) {
		memset(second()->memory, 0x55, MIB);
		ck_assert_int_eq(rig_read_buffers(second(), (const char *[]){"k", "l", "m", "n"}[i], 0, MIB, 1, &other), 0);
		size_t wrong = 0;
		for (size_t k = 0; k < MIB; k++)
			wrong += second()->memory[k] != 0;
		ck_assert_uint_eq(wrong, 0);
	}
}
END_TEST

/* An accepted commit depends on nobody. */
START_TEST(it_ends_while_committing)
{
	static unsigned char bytes[2 * MIB];
	uint32_t crc = neap_crc32c(0, bytes, sizeof bytes);
	ck_assert_int_eq(rig_pre_write(first(), "k", sizeof bytes, &other), 0);
	ck_assert_int_eq(rig_transfer(first(), NEAP_WRITE, &other, bytes, sizeof bytes), NEAP_COMPLETED);
	struct write_commit request = {.key = rig_text("k"), .write_operation_id = write_id(&other), .size_bytes = sizeof bytes, .has_crc = true,
	                               .crc32c = crc};
	rig_ask(first(), &call, &neap_method_write_commit, &request, 5000, NULL);
	rig_await_operation();
	neap_rpc_server_drop(neap_peer_service_rpc(rig.service), first()->instance);
	rig_await(&call);
	rig_for(50);
	ck_assert_int_eq(call.outcome.result, NEAP_RPC_UNKNOWN);
	ck_assert(rig_exists("k"));
	ck_assert(rig_stats().operations_now == 0 && rig_stats().lost_writes == 0 && rig_owner_stats().commits == 1);
	ck_assert_int_eq(rig_look_up(first(), "k", write_id(&other), &call), 0);
	ck_assert(call.reply.look_up.exists && call.reply.look_up.same_write && call.reply.look_up.crc32c == crc);
}
END_TEST

START_TEST(it_ends_while_bytes_are_pulled_or_pushed)
{
	struct rig_slices slices;
	rig_fill(second()->memory, MIB, 8);
	ck_assert_int_eq(rig_write_buffers(second(), "pushed", 0, MIB, 1, NULL), 0);
	rig_fill(first()->memory, MIB, 7);
	struct write_remote_data pull = {.key = rig_text("pulled"), .src_buffers = rig_grant(first(), &slices, 0, MIB, 2, NEAP_MAY_READ)};
	rig_ask(first(), &call, &neap_method_write_remote_data, &pull, 5000, NULL);
	rig_await_operation();
	neap_rpc_server_drop(neap_peer_service_rpc(rig.service), first()->instance);
	rig_await(&call);
	rig_for(500);
	ck_assert(rig_exists("pulled") && rig_stats().operations_now == 0);
	ck_assert_int_eq(rig_read_buffers(second(), "pulled", 0, MIB, 1, NULL), 0);
	ck_assert(rig_filled(second()->memory, MIB, 7));

	uint64_t unheard = rig_stats().unheard;
	struct read_remote_data push = {.key = rig_text("pushed"), .dest_buffers = rig_grant(first(), &slices, MIB, MIB, 2, NEAP_MAY_WRITE)};
	rig_ask(first(), &call, &neap_method_read_remote_data, &push, 5000, NULL);
	rig_await_operation();
	neap_rpc_server_drop(neap_peer_service_rpc(rig.service), first()->instance);
	rig_await(&call);
	rig_for(500);
	ck_assert_uint_eq(rig_stats().operations_now, 0);
	ck_assert_uint_eq(rig_stats().unheard, unheard + 1);
	ck_assert(rig_filled(first()->memory + MIB, MIB, 8));
}
END_TEST

START_TEST(a_canceled_call_leaves_its_operation_to_end)
{
	struct rig_slices slices;
	rig_put(second(), "k", MIB, 8);
	struct read_remote_data push = {.key = rig_text("k"), .dest_buffers = rig_grant(first(), &slices, MIB, MIB, 2, NEAP_MAY_WRITE)};
	rig_ask(first(), &call, &neap_method_read_remote_data, &push, 5000, NULL);
	rig_await_operation();
	neap_rpc_cancel(first()->client, call.handle);
	rig_await(&call);
	ck_assert_int_eq(call.outcome.result, NEAP_RPC_CANCELED);
	rig_for(500);
	ck_assert_uint_eq(rig_stats().operations_now, 0);
	ck_assert_uint_eq(rig_owner_stats().moves, 0);
	/* its grants are ended by the accessor while the owner moves: it fails, and that is all */
	rig_ask(first(), &call, &neap_method_read_remote_data, &push, 5000, NULL);
	rig_await_operation();
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(neap_grant_end(first()->engine, &slices.tokens[i], NULL, NULL), 0);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_TRANSFER_FAIL);
	ck_assert_uint_eq(rig_owner_stats().moves, 0);
}
END_TEST

/* --- quotas ---------------------------------------------------------------------------------------------------------------------------- */

static void narrow(struct neap_owner_options *owner, struct neap_peer_service_options *service)
{
	(void)owner;
	service->writes_per_connection = 3;
	service->pins_per_connection = 2;
	service->writes_max = 4;
	service->pins_max = 3;
	service->operations_max = 1;
}

START_TEST(reservations_have_a_quota)
{
	static const char *const keys[] = {"a", "b", "c"};
	uint64_t ids[3];
	rig_open(narrow);
	rig_put(second(), "v", 10, 1);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(rig_pre_write(first(), keys[i], 10, &call), 0);
		ids[i] = write_id(&call);
		rig_for(1000);
	}
	ck_assert_int_eq(rig_pre_write(first(), "d", 10, &call), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert(call.outcome.retry_after_ms > 1000 && call.outcome.retry_after_ms <= 2000); /* the oldest one's lease ends */
	ck_assert_int_eq(rig_pre_write(first(), "a", 10, NULL), NEAP_STORE_REPLICA_IS_PROCESSING);
	ck_assert_int_eq(rig_pre_write(first(), "v", 10, NULL), NEAP_STORE_OBJECT_ALREADY_EXISTS);
	ck_assert_uint_eq(rig_stats().refused_quota, 1);
	ck_assert_int_eq(rig_pre_write(second(), "d", 10, NULL), 0); /* another has its own */
	ck_assert_int_eq(rig_pre_write(second(), "e", 10, NULL), NEAP_STORE_NO_AVAILABLE_HANDLE); /* of all: writes_max */
	ck_assert_int_eq(rig_commit(first(), "a", ids[0], 10, NULL, NULL), 0);
	ck_assert_int_eq(rig_pre_write(second(), "e", 10, NULL), 0);
	ck_assert_int_eq(rig_revoke(first(), "b", ids[1]), 0);
	ck_assert_int_eq(rig_pre_write(first(), "f", 10, NULL), 0);
	ck_assert_int_eq(rig_pre_write(first(), "g", 10, NULL), NEAP_STORE_NO_AVAILABLE_HANDLE);
	rig_for(RIG_LEASE_MS);
	ck_assert_int_eq(rig_commit(first(), "c", ids[2], 10, NULL, NULL), NEAP_STORE_LEASE_EXPIRED); /* remembered */
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(rig_pre_write(first(), (const char *[]){"g", "h", "i"}[i], 10, NULL), 0);
	ck_assert_int_eq(rig_pre_write(second(), "k", 10, NULL), 0); /* what ended makes room, the oldest first */
	ck_assert_int_eq(rig_commit(first(), "c", ids[2], 10, NULL, NULL), NEAP_STORE_OBJECT_NOT_FOUND);
	ck_assert_uint_eq(rig_stats().writes_now, 4);
	rig_close();
}
END_TEST

START_TEST(pins_have_a_quota)
{
	rig_open(narrow);
	rig_put(second(), "v", 10, 1);
	ck_assert_int_eq(rig_pin(first(), "v", &other), 0);
	ck_assert_int_eq(rig_pin(first(), "v", NULL), 0);
	ck_assert_int_eq(rig_pin(first(), "v", &call), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert(call.outcome.retry_after_ms > 4900 && call.outcome.retry_after_ms <= RIG_LEASE_MS);
	ck_assert_int_eq(rig_pin(first(), "nothing", NULL), NEAP_STORE_OBJECT_NOT_FOUND);
	/* what has finished is unpinned before the new one is counted */
	struct finished_pin pin = {.key = rig_text("v"), .read_operation_id = read_id(&other)};
	struct pin_key request = {.key = rig_text("v"), .engine = neap_rpc_view_of(first()->engine_instance, 16), .finished = {&pin, 1}};
	rig_ask(first(), &call, &neap_method_pin_key, &request, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), 0);
	ck_assert_int_eq(rig_pin(second(), "v", NULL), 0);
	ck_assert_int_eq(rig_pin(second(), "v", NULL), NEAP_STORE_NO_AVAILABLE_HANDLE); /* of all: pins_max */
	rig_for(RIG_LEASE_MS);
	ck_assert_int_eq(rig_pin(second(), "v", NULL), 0);
	rig_close();
}
END_TEST

START_TEST(operations_have_a_limit)
{
	struct rig_slices slices;
	rig_open(narrow);
	rig_put(second(), "v", 1000, 1);
	ck_assert_int_eq(rig_pre_write(second(), "w", 10, &other), 0);
	uint64_t id = write_id(&other);
	struct write_remote_data pull = {.key = rig_text("k"), .src_buffers = rig_grant(first(), &slices, 0, MIB, 1, NEAP_MAY_READ)};
	rig_ask(first(), &call, &neap_method_write_remote_data, &pull, 5000, NULL);
	rig_await_operation();
	struct write_commit commit = {.key = rig_text("w"), .write_operation_id = id, .size_bytes = 10};
	rig_ask(second(), &other, &neap_method_write_commit, &commit, 5000, NULL);
	ck_assert_int_eq(rig_status(&other), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_uint_gt(other.outcome.retry_after_ms, 0);
	ck_assert_int_eq(rig_status(&call), 0);
	ck_assert_int_eq(rig_commit(second(), "w", id, 10, NULL, NULL), 0); /* it was not touched */
	rig_close();
}
END_TEST

static int settle_at_once(void *user, struct neap_settle *settle)
{
	(void)user;
	(void)settle;
	return NEAP_STORE_OK;
}

static void narrow_with_directory(struct neap_owner_options *owner, struct neap_peer_service_options *service)
{
	narrow(owner, service);
	service->settle = settle_at_once;
}

/* What is refused for want of room to wait for the directory is not there. */
START_TEST(no_room_is_said_before_the_value_is_there)
{
	struct rig_slices slices;
	rig_open(narrow_with_directory);
	struct write_remote_data pull = {.key = rig_text("k"), .src_buffers = rig_grant(first(), &slices, 0, MIB, 1, NEAP_MAY_READ)};
	rig_ask(first(), &call, &neap_method_write_remote_data, &pull, 5000, NULL);
	rig_await_operation();
	ck_assert_int_eq(rig_write_inside(second(), "x", "value", 5, NULL), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert(!rig_exists("x"));
	ck_assert_int_eq(rig_status(&call), 0);
	ck_assert_int_eq(rig_write_inside(second(), "x", "value", 5, NULL), 0);
	ck_assert_int_eq(rig_write_inside(second(), "x", "value", 5, NULL), 0); /* the same again */
	rig_close();
}
END_TEST

/* --- what is not theirs ---------------------------------------------------------------------------------------------------------------- */

START_TEST(grants_are_for_ones_own_engine)
{
	struct pre_write write = {.key = rig_text("k"), .size_bytes = 10, .engine = neap_rpc_view_of(second()->engine_instance, 16)};
	struct pin_key pin = {.key = rig_text("v"), .engine = neap_rpc_view_of(second()->engine_instance, 16)};
	rig_put(first(), "v", 10, 1);
	rig_ask(first(), &call, &neap_method_pre_write, &write, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_ILLEGAL_CLIENT);
	rig_ask(first(), &call, &neap_method_pin_key, &pin, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_ILLEGAL_CLIENT);
	ck_assert(rig_owner_stats().pending == 0 && rig_owner_stats().pins == 0 && rig_stats().refused_foreign == 2);
	/* and of no use to others */
	unsigned char bytes[10] = {0};
	ck_assert_int_eq(rig_pre_write(first(), "k", 10, &call), 0);
	ck_assert_int_ne(rig_transfer(second(), NEAP_WRITE, &call, bytes, sizeof bytes), NEAP_COMPLETED);
	ck_assert_int_eq(rig_pin(first(), "v", &call), 0);
	ck_assert_int_ne(rig_transfer(second(), NEAP_READ, &call, bytes, sizeof bytes), NEAP_COMPLETED);
}
END_TEST

START_TEST(buffers_are_in_ones_own_segment)
{
	struct rig_slices slices;
	rig_put(first(), "v", 1000, 1);
	/* a grant that is right, of somebody else's memory: the owner would be the one to use it */
	struct write_remote_data pull = {.key = rig_text("k"), .src_buffers = rig_grant(second(), &slices, 0, 1000, 1, NEAP_MAY_READ)};
	rig_ask(first(), &call, &neap_method_write_remote_data, &pull, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_ILLEGAL_CLIENT);
	struct read_remote_data push = {.key = rig_text("v"), .dest_buffers = rig_grant(second(), &slices, 0, 1000, 1, NEAP_MAY_WRITE)};
	rig_ask(first(), &call, &neap_method_read_remote_data, &push, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_ILLEGAL_CLIENT);
	slices.slices[0].segment = rig_text(neap_engine_name(rig.engine)); /* nor the owner's own */
	rig_ask(first(), &call, &neap_method_read_remote_data, &push, 5000, NULL);
	ck_assert_int_eq(rig_status(&call), NEAP_STORE_ILLEGAL_CLIENT);
	ck_assert(rig_owner_stats().pulls + rig_owner_stats().pushes == 0 && second()->memory[0] == 0);
}
END_TEST

START_TEST(others_operations_are_not_touched)
{
	rig_put(first(), "v", 1000, 1);
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, &call), 0);
	uint64_t id = write_id(&call);
	ck_assert_int_eq(rig_commit(second(), "k", id, 1000, NULL, NULL), NEAP_STORE_INVALID_WRITE);
	ck_assert_int_eq(rig_revoke(second(), "k", id), NEAP_STORE_INVALID_WRITE);
	ck_assert_int_eq(rig_revoke(first(), "other", id), NEAP_STORE_INVALID_WRITE);
	ck_assert_int_eq(rig_pin(first(), "v", &other), 0);
	ck_assert_int_eq(rig_unpin(second(), "v", read_id(&other)), NEAP_STORE_INVALID_READ);
	ck_assert(rig_owner_stats().pending == 1 && rig_owner_stats().pins == 1 && rig_stats().refused_foreign == 4);
	ck_assert(rig_stats().writes_now == 1 && rig_stats().pins_now == 1);
	ck_assert_int_eq(rig_commit(first(), "k", id, 1000, NULL, NULL), 0);
	ck_assert_int_eq(rig_unpin(first(), "v", read_id(&other)), 0);
}
END_TEST

/* --- life -------------------------------------------------------------------------------------------------------------------------------- */

START_TEST(it_closes_with_everything_under_way)
{
	struct rig_slices slices;
	bool closed = false;
	rig_put(first(), "v", 1000, 1);
	ck_assert_int_eq(rig_pre_write(first(), "k", 1000, NULL), 0);
	ck_assert_int_eq(rig_pin(second(), "v", NULL), 0);
	struct write_remote_data pull = {.key = rig_text("pulled"), .src_buffers = rig_grant(first(), &slices, 0, MIB, 1, NEAP_MAY_READ)};
	rig_ask(first(), &call, &neap_method_write_remote_data, &pull, 5000, NULL);
	rig_await_operation();
	neap_peer_service_close(rig.service, rig_set, &closed);
	neap_peer_service_close(rig.service, NULL, NULL); /* said already */
	ck_assert(!closed);
	ck_assert_int_eq(rig_status(&call), 0); /* what was owed is answered */
	ck_assert(rig_until_set(&closed, 20000));
	rig.service = NULL;
	rig_for(10);
	ck_assert(rig_exists("pulled"));
	ck_assert(rig_owner_stats().pending == 0 && rig_owner_stats().pins == 0 && rig_owner_stats().quarantined == 0);
	rig_ask(first(), &call, &neap_method_look_up, &(struct look_up){.key = rig_text("v")}, 2000, NULL);
	rig_await(&call);
	ck_assert_int_eq(call.outcome.executed, NEAP_RPC_NOT_EXECUTED);
}
END_TEST

/* The accessor stops in the middle of what the owner does for it. */
START_TEST(it_closes_when_a_peer_says_nothing_more)
{
	struct rig_slices slices;
	bool closed = false;
	struct write_remote_data pull = {.key = rig_text("pulled"), .src_buffers = rig_grant(first(), &slices, 0, MIB, 1, NEAP_MAY_READ)};
	rig_ask(first(), &call, &neap_method_write_remote_data, &pull, 5000, NULL);
	rig_await_operation();
	sim_sever(rig.sim, 0, 1, false);
	neap_peer_service_close(rig.service, rig_set, &closed);
	ck_assert(rig_until_set(&closed, 30000));
	rig.service = NULL;
	sim_heal(rig.sim);
	rig_await(&call);
	ck_assert_int_ne(call.outcome.result, NEAP_RPC_OK);
	ck_assert_uint_eq(rig_owner_stats().moves, 0);
}
END_TEST

static bool own(void *user, const uint8_t instance[16], const char *segment, const uint8_t *engine)
{
	(void)user, (void)instance, (void)segment, (void)engine;
	return true;
}

START_TEST(it_starts_or_says_why_not)
{
	struct neap_peer_service *service;
	struct neap_sockaddr address;
	struct neap_peer_service_options options = {.address = &address, .rpc = {.connections_max = 4, .calls_total_max = 16, .lanes_max = 4},
	                                            .writes_max = 16, .pins_max = 16, .operations_max = 4};
	int system_errno;
	char why[320] = "";
	ck_assert_int_eq(neap_sockaddr_from_numeric("10.0.0.2", RIG_PORT, &address), 0);
	options.is_own = own;
	ck_assert_int_eq(neap_peer_service_create(&service, rig.node->reactor, rig.engine, rig.owner, &options, &system_errno, why, sizeof why),
	                 NEAP_ESOCKET);
	ck_assert(service == NULL && strstr(why, "10.0.0.2:4000"));
	options.address = NULL;
	size_t before = rig.node->bytes_allocated;
	int error = NEAP_ENOMEM;
	unsigned failed = 0;
	for (; error && failed < 200; failed++) { /* each allocation in turn */
		rig.node->fail_allocation_at = rig.node->allocations + failed;
		error = neap_peer_service_create(&service, rig.node->reactor, rig.engine, rig.owner, &options, &system_errno, why, sizeof why);
		rig.node->fail_allocation_at = UINT64_MAX;
		ck_assert(error == 0 || (error == NEAP_ENOMEM && service == NULL));
		ck_assert(error == 0 || rig.node->bytes_allocated == before);
	}
	ck_assert_int_eq(error, 0);
	ck_assert_uint_gt(failed, 8);
	neap_peer_service_close(service, NULL, NULL);
	rig_for(10);
	ck_assert_uint_eq(rig.node->bytes_allocated, before);
}
END_TEST

/* --- the list ------------------------------------------------------------------------------------------------------------------------------ */

static TCase *add_case(Suite *suite, const char *name)
{
	TCase *cases = tcase_create(name);
	tcase_set_timeout(cases, 60);
	suite_add_tcase(suite, cases);
	return cases;
}

int main(void)
{
	const TTest *const lost[] = {pre_write_lost, commit_lost, revoke_lost, pin_lost, unpin_lost, write_inside_lost, write_by_pull_lost, remove_lost};
	Suite *suite = suite_create("peer service, faults");
	TCase *cases = add_case(suite, "lost calls");
	tcase_add_checked_fixture(cases, setup, rig_close);
	for (size_t i = 0; i < sizeof lost / sizeof lost[0]; i++)
		tcase_add_loop_test(cases, lost[i], BEFORE, AFTER + 1);
	cases = add_case(suite, "ended connections");
	tcase_add_checked_fixture(cases, setup, rig_close);
	tcase_add_loop_test(cases, it_ends_with_reservations_and_pins, 0, 3);
	tcase_add_test(cases, it_ends_while_bytes_come);
	tcase_add_test(cases, it_ends_while_committing);
	tcase_add_test(cases, it_ends_while_bytes_are_pulled_or_pushed);
	tcase_add_test(cases, a_canceled_call_leaves_its_operation_to_end);
	cases = add_case(suite, "quotas");
	tcase_add_test(cases, reservations_have_a_quota);
	tcase_add_test(cases, pins_have_a_quota);
	tcase_add_test(cases, operations_have_a_limit);
	tcase_add_test(cases, no_room_is_said_before_the_value_is_there);
	cases = add_case(suite, "what is not theirs");
	tcase_add_checked_fixture(cases, setup, rig_close);
	tcase_add_test(cases, grants_are_for_ones_own_engine);
	tcase_add_test(cases, buffers_are_in_ones_own_segment);
	tcase_add_test(cases, others_operations_are_not_touched);
	cases = add_case(suite, "life");
	tcase_add_checked_fixture(cases, setup, rig_close);
	tcase_add_test(cases, it_closes_with_everything_under_way);
	tcase_add_test(cases, it_closes_when_a_peer_says_nothing_more);
	tcase_add_test(cases, it_starts_or_says_why_not);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
