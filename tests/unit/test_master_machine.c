/* The announcer with a directory that the test plays: every transition of the machine, and every refusal. */
#include "store/master/announcer.h"
#include "tests/sim/sim.h"
#include "tests/support/coverage.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

static struct machine_rig {
	struct sim *sim;
	struct sim_node *node;
	struct neap_announcer *announcer;
	struct neap_announcer_options options;
	struct neap_key_segment segment;
	struct neap_key_directory face;
	struct neap_key_call *call, *beat; /* under way */
	uint64_t calls, beats, canceled;
	bool refuses; /* begins nothing */
	uint32_t walk_count, withdrawn, closed;
	int why;
	uint64_t generation;
} rig;

/* --- the directory ---------------------------------------------------------------------------------------------------------- */

static int begin(void *directory, struct neap_key_call *call)
{
	ck_assert_ptr_eq(directory, &rig);
	ck_assert_uint_gt(call->deadline_ns, rig.sim->now_ns);
	if (rig.refuses)
		return NEAP_EAGAIN;
	struct neap_key_call **slot = call->op == NEAP_KEY_OP_HEARTBEAT ? &rig.beat : &rig.call;
	ck_assert_ptr_null(*slot); /* one at a time */
	*slot = call;
	*(slot == &rig.beat ? &rig.beats : &rig.calls) += 1;
	return 0;
}

static void cancel(void *directory, struct neap_key_call *call)
{
	ck_assert_ptr_eq(directory, &rig);
	rig.canceled++;
	if (rig.call == call)
		rig.call = NULL;
	if (rig.beat == call)
		rig.beat = NULL;
}

static void run_for(unsigned ms)
{
	sim_node_wake(rig.node);
	sim_run_for(rig.sim, ms * MS);
}

static void answer_event(struct sim *sim, void *user, uint64_t argument)
{
	struct neap_key_call **slot = user, *call = *slot;
	(void)sim;
	*slot = NULL;
	call->done(call, (int)(int64_t)argument);
}

/* The call under way is of this kind; it ends so. */
static void answer(enum neap_key_op op, int error)
{
	ck_assert_ptr_nonnull(rig.call);
	ck_assert_int_eq(rig.call->op, op);
	if (!error && op == NEAP_KEY_OP_ROUND_BEGIN)
		rig.call->as.round.round = 3;
	sim_after(rig.sim, 0, answer_event, &rig.call, (uint64_t)(int64_t)error);
	run_for(1);
}

static struct neap_key_announce *batch(uint32_t count)
{
	ck_assert_ptr_nonnull(rig.call);
	ck_assert_int_eq(rig.call->op, NEAP_KEY_OP_ANNOUNCE);
	ck_assert_uint_eq(rig.call->as.announce.count, count);
	return &rig.call->as.announce;
}

static void answer_items(int error)
{
	struct neap_key_announce *announce = &rig.call->as.announce;
	for (uint32_t i = 0; i < announce->count; i++) {
		announce->changes[i].error = error;
		announce->changes[i].stamp = (struct neap_key_stamp){1, i + 1};
	}
	answer(NEAP_KEY_OP_ANNOUNCE, 0);
}

/* --- the owner -------------------------------------------------------------------------------------------------------------- */

static bool next_value(void *user, struct neap_announcer_cursor *cursor, struct neap_announcement *value_p)
{
	static char key[16];
	(void)user;
	if (cursor->first == rig.walk_count)
		return false;
	key[0] = 'w';
	key[1] = (char)('a' + cursor->first);
	*value_p = (struct neap_announcement){.key = {key, 2}, .segment = rig.segment.id, .size = 1, .generation = 100 + cursor->first};
	cursor->first++;
	return true;
}

static void withdraw(void *user, const struct neap_announcement *value, int why)
{
	(void)user;
	ck_assert_uint_gt(value->key.length, 0);
	rig.withdrawn++;
	rig.why = why;
}

static void closed(void *user)
{
	ck_assert_ptr_eq(user, &rig);
	rig.closed++;
}

static uint32_t asked_times;
static void asked(struct neap_announcer_watch *watch, int error)
{
	(void)watch;
	ck_assert_int_eq(error, 0);
	asked_times++;
}

static struct neap_announcement published(const char *key)
{
	struct neap_announcement value = {.key = {key, (uint32_t)strlen(key)}, .segment = rig.segment.id, .size = 9,
	                                  .generation = ++rig.generation};
	neap_announcer_published(rig.announcer, &value);
	run_for(1);
	return value;
}

static const char *state(void)
{
	return neap_machine_state_name((const struct neap_machine *)(const void *)rig.announcer); /* it lies first */
}

static struct neap_announcer_stats stats(void)
{
	struct neap_announcer_stats now;
	const char *wrong = neap_announcer_check(rig.announcer);
	ck_assert_msg(!wrong, "%s", wrong);
	neap_announcer_stats(rig.announcer, &now);
	return now;
}

/* --- the world -------------------------------------------------------------------------------------------------------------- */

static void open_rig(void)
{
	memset(&rig, 0, sizeof rig);
	rig.sim = sim_create(5);
	rig.sim->host = (struct sim_host_options){.latency_max_ns = 1000};
	rig.node = sim_node_create(rig.sim, 0);
	rig.segment = (struct neap_key_segment){.id = {1, 2}, .capacity = 1000, .used = 5};
	rig.options = (struct neap_announcer_options){
		.directory = {.begin = begin, .cancel = cancel, .directory = &rig},
		.client = {.id = {7, 7}, .instance = 8},
		.host = "here",
		.port = 1,
		.segments = &rig.segment,
		.segment_count = 1,
		.next = next_value,
		.withdraw = withdraw,
		.batch_max = 4,
	};
	ck_assert_int_eq(neap_announcer_create(&rig.announcer, rig.node->reactor, &rig.options), 0);
}

static void close_all(struct sim_node *node, void *user)
{
	(void)node;
	(void)user;
	neap_announcer_destroy(rig.announcer);
}

static void close_rig(void)
{
	support_cover(neap_reactor_dispatcher(rig.node->reactor));
	ck_assert_uint_eq(sim_node_finish(rig.node, close_all, NULL), 0);
	ck_assert(!rig.call && !rig.beat);
	sim_destroy(rig.sim);
}

static void start(void)
{
	neap_announcer_start(rig.announcer);
	run_for(1);
	ck_assert_str_eq(state(), "REGISTERING");
}

static void ready(void)
{
	start();
	answer(NEAP_KEY_OP_REGISTER, 0);
	ck_assert_str_eq(state(), "READY");
}

static void in_round(void)
{
	ready();
	neap_announcer_renew(rig.announcer);
	run_for(1);
	answer(NEAP_KEY_OP_REGISTER, 0);
	ck_assert_str_eq(state(), "BEGINNING");
}

/* All that may come from outside at any time changes nothing while a call is under way. */
static void pester(void)
{
	const char *before = state();
	struct neap_key_call *call = rig.call;
	(void)published("pest 1");
	(void)published("pest 2");
	(void)published("pest 3");
	struct neap_announcement last = published("pest 4");
	neap_announcer_withdrawn(rig.announcer, last.key, last.segment, last.generation);
	neap_announcer_start(rig.announcer);
	run_for(1);
	ck_assert_str_eq(state(), before);
	ck_assert_ptr_eq(rig.call, call);
}

static void leave(int error)
{
	neap_announcer_close(rig.announcer, closed, &rig);
	run_for(1);
	ck_assert_str_eq(state(), "LEAVING");
	neap_announcer_close(rig.announcer, closed, &rig);
	neap_announcer_renew(rig.announcer);
	run_for(1);
	ck_assert_uint_eq(rig.closed, 0);
	answer(NEAP_KEY_OP_UNREGISTER, error);
	ck_assert_str_eq(state(), "CLOSED");
	ck_assert_uint_eq(rig.closed, 1);
	neap_announcer_start(rig.announcer);
	neap_announcer_renew(rig.announcer);
	run_for(2000);
	ck_assert_uint_eq(rig.closed, 1);
	close_rig();
}

/* --- closed in each state ------------------------------------------------------------------------------------------------------ */

START_TEST(closed_before_it_began)
{
	open_rig();
	(void)published("a");
	neap_announcer_renew(rig.announcer);
	run_for(1);
	ck_assert_str_eq(state(), "IDLE");
	neap_announcer_close(rig.announcer, closed, &rig);
	run_for(1);
	ck_assert_uint_eq(rig.closed, 1);
	ck_assert_uint_eq(rig.calls, 0);
	close_rig();
}
END_TEST

START_TEST(closed_while_registering)
{
	open_rig();
	start();
	pester();
	leave(0);
	ck_assert_uint_eq(rig.canceled, 1);
}
END_TEST

START_TEST(closed_when_ready)
{
	open_rig();
	ready();
	leave(NEAP_STORE_RPC_FAIL);
}
END_TEST

START_TEST(closed_while_gathering)
{
	open_rig();
	ready();
	(void)published("a");
	ck_assert_str_eq(state(), "GATHERING");
	leave(0);
}
END_TEST

START_TEST(closed_while_sending)
{
	open_rig();
	ready();
	(void)published("a");
	run_for(25);
	ck_assert_str_eq(state(), "SENDING");
	leave(0);
}
END_TEST

START_TEST(closed_while_beginning)
{
	open_rig();
	in_round();
	leave(0);
}
END_TEST

START_TEST(closed_while_ending)
{
	open_rig();
	in_round();
	answer(NEAP_KEY_OP_ROUND_BEGIN, 0);
	ck_assert_str_eq(state(), "ENDING");
	leave(0);
}
END_TEST

START_TEST(closed_while_paused)
{
	open_rig();
	start();
	answer(NEAP_KEY_OP_REGISTER, NEAP_STORE_RPC_FAIL);
	ck_assert_str_eq(state(), "PAUSED");
	rig.refuses = true; /* and not even a farewell is possible */
	neap_announcer_close(rig.announcer, closed, &rig);
	run_for(1);
	ck_assert_str_eq(state(), "CLOSED");
	ck_assert_uint_eq(rig.closed, 1);
	close_rig();
}
END_TEST

START_TEST(destroyed_in_the_middle)
{
	open_rig();
	ready();
	struct neap_announcement a = published("a");
	struct neap_announcer_watch watch = {.key = a.key, .segment = a.segment, .generation = a.generation,
	                                     .deadline_ns = rig.sim->now_ns + 5000 * MS, .done = NULL};
	ck_assert_int_eq(neap_announcer_ask(rig.announcer, &watch), NEAP_EINVAL);
	run_for(1100);
	ck_assert(rig.call && rig.beat);
	close_rig(); /* both are canceled */
}
END_TEST

/* --- failures in each state ------------------------------------------------------------------------------------------------------ */

START_TEST(a_registration_that_fails)
{
	open_rig();
	start();
	for (int i = 0; i < 10; i++) {
		answer(NEAP_KEY_OP_REGISTER, i % 2 ? NEAP_ETIMEDOUT : NEAP_STORE_ILLEGAL_CLIENT);
		ck_assert_str_eq(state(), "PAUSED");
		pester();
		uint64_t pause = i < 6 ? UINT64_C(20) << i : 1000;
		run_for((unsigned)pause - 10);
		ck_assert_str_eq(state(), "PAUSED");
		run_for(10);
		ck_assert_str_eq(state(), "REGISTERING");
	}
	ck_assert_uint_eq(rig.beats, 0); /* not before it is known */
	answer(NEAP_KEY_OP_REGISTER, 0);
	ck_assert_str_eq(state(), "SENDING");
	ck_assert_uint_eq(stats().failed, 10);
	answer_items(0);
	run_for(1000);
	ck_assert_uint_eq(rig.beats, 1);
	close_rig();
}
END_TEST

START_TEST(a_batch_that_fails)
{
	open_rig();
	ready();
	(void)published("a");
	run_for(25);
	ck_assert_uint_eq(batch(1)->number, 1);
	pester();
	answer(NEAP_KEY_OP_ANNOUNCE, NEAP_STORE_RPC_FAIL);
	ck_assert_str_eq(state(), "PAUSED");
	ck_assert_uint_eq(stats().queued, 5);
	run_for(25);
	ck_assert_uint_eq(batch(4)->number, 2); /* another number: it is no echo */
	answer_items(0);
	ck_assert_str_eq(state(), "GATHERING"); /* the fifth */
	run_for(25);
	(void)batch(1);
	answer(NEAP_KEY_OP_ANNOUNCE, NEAP_STORE_INVALID_VERSION);
	run_for(50); /* the pause, and it gathers again */
	ck_assert_uint_eq(batch(1)->number, 4);
	answer_items(0);
	ck_assert_uint_eq(stats().queued, 0);
	close_rig();
}
END_TEST

START_TEST(calls_that_cannot_be_begun)
{
	open_rig();
	ready();
	rig.refuses = true;
	(void)published("a");
	run_for(25);
	ck_assert_str_eq(state(), "PAUSED");
	ck_assert_uint_eq(stats().queued, 1);
	run_for(2000);
	ck_assert_uint_gt(stats().beats_failed, 0);
	rig.refuses = false;
	run_for(1100);
	(void)batch(1);
	answer_items(0);
	ck_assert_uint_eq(stats().queued, 0);
	close_rig();
}
END_TEST

START_TEST(a_round_that_fails)
{
	open_rig();
	rig.walk_count = 6;
	in_round();
	pester();
	answer(NEAP_KEY_OP_ROUND_BEGIN, NEAP_STORE_RPC_FAIL);
	ck_assert_str_eq(state(), "PAUSED");
	run_for(25);
	answer(NEAP_KEY_OP_ROUND_BEGIN, 0);
	ck_assert_uint_eq(batch(4)->round, 3); /* two from the queue, two from the walk */
	ck_assert_uint_eq(batch(4)->changes[2].generation, 100);
	answer(NEAP_KEY_OP_ANNOUNCE, NEAP_ETIMEDOUT);
	run_for(25);
	ck_assert_uint_eq(batch(4)->changes[2].generation, 100); /* again from where it was */
	answer_items(0);
	ck_assert_uint_eq(batch(4)->changes[2].generation, 102);
	answer_items(0);
	ck_assert_uint_eq(batch(2)->changes[0].generation, 104);
	answer_items(0);
	ck_assert_str_eq(state(), "ENDING");
	pester();
	answer(NEAP_KEY_OP_ROUND_END, NEAP_STORE_RPC_FAIL);
	run_for(25);
	answer(NEAP_KEY_OP_ROUND_END, NEAP_STORE_INVALID_VERSION); /* it is not the present one: anew */
	run_for(45);
	answer(NEAP_KEY_OP_ROUND_BEGIN, 0);
	ck_assert_uint_eq(batch(4)->changes[2].generation, 100);
	ck_assert_uint_eq(batch(4)->changes[2].stamp.sequence, 3); /* as it was told */
	answer(NEAP_KEY_OP_ANNOUNCE, NEAP_STORE_CLIENT_NOT_FOUND);
	run_for(25);
	answer(NEAP_KEY_OP_REGISTER, 0);
	answer(NEAP_KEY_OP_ROUND_BEGIN, 0);
	for (int i = 0; i < 3 && rig.call && rig.call->op == NEAP_KEY_OP_ANNOUNCE; i++)
		answer_items(NEAP_STORE_REPLICA_ALREADY_EXISTS);
	answer(NEAP_KEY_OP_ROUND_END, 0);
	ck_assert_str_eq(state(), "READY");
	ck_assert_uint_eq(stats().rounds, 1);
	close_rig();
}
END_TEST

/* Another master is there while the round of the one before is under way. */
START_TEST(renewed_in_the_middle_of_a_round)
{
	open_rig();
	rig.walk_count = 6;
	in_round();
	neap_announcer_renew(rig.announcer);
	run_for(1);
	answer(NEAP_KEY_OP_ROUND_BEGIN, 0); /* of the time before */
	answer(NEAP_KEY_OP_REGISTER, 0);
	answer(NEAP_KEY_OP_ROUND_BEGIN, 0);
	(void)batch(4);
	neap_announcer_renew(rig.announcer);
	run_for(1);
	answer_items(NEAP_STORE_REPLICA_IS_NOT_READY); /* walked again anyway */
	ck_assert_uint_eq(stats().queued, 0);
	answer(NEAP_KEY_OP_REGISTER, 0);
	answer(NEAP_KEY_OP_ROUND_BEGIN, 0);
	answer_items(0);
	answer_items(0);
	ck_assert_str_eq(state(), "ENDING");
	close_rig();
}
END_TEST

/* The walk ends exactly with a batch: the next finds nothing, and the round ends without it. */
START_TEST(a_walk_that_fills_its_last_batch)
{
	open_rig();
	rig.walk_count = 4;
	in_round();
	answer(NEAP_KEY_OP_ROUND_BEGIN, 0);
	(void)batch(4);
	answer_items(0);
	answer(NEAP_KEY_OP_ROUND_END, 0);
	ck_assert_str_eq(state(), "READY");
	ck_assert_uint_eq(stats().batches, 1);
	close_rig();
}
END_TEST

/* A batch's worth, or someone who asks, ends the gathering. */
START_TEST(gathering_is_cut_short)
{
	open_rig();
	ready();
	(void)published("a");
	(void)published("b");
	(void)published("c");
	ck_assert_str_eq(state(), "GATHERING");
	(void)published("d");
	(void)batch(4);
	answer_items(0);
	struct neap_announcement e = published("e");
	ck_assert_str_eq(state(), "GATHERING");
	struct neap_announcer_watch watch = {.key = e.key, .segment = e.segment, .generation = e.generation,
	                                     .deadline_ns = rig.sim->now_ns + 5000 * MS, .done = asked};
	ck_assert_int_eq(neap_announcer_ask(rig.announcer, &watch), 0);
	run_for(1);
	(void)batch(1);
	ck_assert_uint_eq(asked_times, 0);
	answer_items(0);
	ck_assert_uint_eq(asked_times, 1);
	close_rig();
}
END_TEST

/* --- items ------------------------------------------------------------------------------------------------------------------------ */

START_TEST(refusals_of_items)
{
	static const int finals[] = {NEAP_STORE_REPLICA_NUM_EXCEEDED, NEAP_STORE_OBJECT_ALREADY_EXISTS, NEAP_STORE_INVALID_KEY,
	                             NEAP_STORE_INVALID_PARAMS};
	static const int laters[] = {NEAP_STORE_REPLICA_IS_NOT_READY, NEAP_STORE_CLIENT_UNHEALTHY, NEAP_STORE_KEYS_ULTRA_LIMIT};
	open_rig();
	ready();
	for (uint32_t i = 0; i < 4; i++) {
		(void)published("a");
		run_for(25);
		answer_items(finals[i]);
		ck_assert_uint_eq(rig.withdrawn, i + 1);
		ck_assert_int_eq(rig.why, finals[i]);
	}
	(void)published("a");
	run_for(25);
	answer_items(NEAP_STORE_CAS_FAILED); /* a later one is there: nothing to do */
	ck_assert_uint_eq(rig.withdrawn, 4);
	ck_assert_uint_eq(stats().queued, 0);
	(void)published("b");
	run_for(25);
	for (uint32_t i = 0; i < 3; i++) {
		answer_items(laters[i]);
		ck_assert_str_eq(state(), "READY");
		ck_assert_uint_eq(stats().queued, 1);
		run_for(190);
		ck_assert_ptr_null(rig.call);
		run_for(35);
		(void)batch(1);
	}
	answer_items(NEAP_STORE_SEGMENT_NOT_FOUND); /* registering mounts it */
	answer(NEAP_KEY_OP_REGISTER, 0);
	run_for(225);
	answer_items(0);
	ck_assert_uint_eq(stats().queued, 0);
	ck_assert_uint_eq(stats().stamps, 1);
	close_rig();
}
END_TEST

START_TEST(what_was_put_off_and_changes)
{
	open_rig();
	ready();
	struct neap_announcement a = published("a");
	run_for(25);
	answer_items(NEAP_STORE_REPLICA_IS_NOT_READY);
	neap_announcer_withdrawn(rig.announcer, a.key, a.segment, a.generation);
	run_for(1);
	ck_assert_str_eq(state(), "GATHERING"); /* a change does not wait with what it replaces */
	run_for(25);
	ck_assert_int_eq(batch(1)->changes[0].kind, NEAP_KEY_REMOVE);
	answer_items(NEAP_STORE_CLIENT_NOT_FOUND); /* of an item: again later */
	run_for(225);
	(void)batch(1);
	answer_items(NEAP_STORE_OBJECT_NOT_FOUND); /* as was wanted */
	ck_assert_uint_eq(stats().queued, 0);
	/* accepted on its way, withdrawn meanwhile: its stamp is not kept */
	a = published("a");
	run_for(25);
	neap_announcer_withdrawn(rig.announcer, a.key, a.segment, a.generation);
	answer_items(0);
	ck_assert_uint_eq(stats().stamps, 0);
	run_for(25);
	answer_items(0);
	close_rig();
}
END_TEST

/* --- heartbeats --------------------------------------------------------------------------------------------------------------------- */

static void answer_beat(enum neap_key_status status, uint64_t epoch, bool announce_all, int error)
{
	ck_assert_ptr_nonnull(rig.beat);
	ck_assert_uint_eq(rig.beat->as.heartbeat.usages[0].used, 5);
	rig.beat->as.heartbeat.status = status;
	rig.beat->as.heartbeat.epoch = epoch;
	rig.beat->as.heartbeat.announce_all = announce_all;
	sim_after(rig.sim, 0, answer_event, &rig.beat, (uint64_t)(int64_t)error);
	run_for(1);
}

START_TEST(heartbeats)
{
	open_rig();
	ready();
	run_for(1000);
	answer_beat(NEAP_KEY_HEALTHY, 0, false, 0);
	ck_assert_str_eq(state(), "READY");
	run_for(1000);
	answer_beat(NEAP_KEY_HEALTHY, 0, false, NEAP_STORE_RPC_FAIL);
	ck_assert_uint_eq(stats().beats_failed, 1);
	run_for(1000);
	(void)published("a");
	ck_assert_str_eq(state(), "GATHERING");
	answer_beat(NEAP_KEY_HEALTHY, 0, true, 0); /* LOOK while it gathers */
	answer(NEAP_KEY_OP_ROUND_BEGIN, 0);
	answer_items(0);
	run_for(1000);
	answer_beat(NEAP_KEY_HEALTHY, 0, true, 0); /* it is being done */
	answer(NEAP_KEY_OP_ROUND_END, 0);
	ck_assert_str_eq(state(), "READY");
	run_for(1000);
	answer_beat(NEAP_KEY_HEALTHY, 99, false, 0); /* another directory */
	answer(NEAP_KEY_OP_ROUND_BEGIN, 0);
	answer(NEAP_KEY_OP_ROUND_END, 0);
	run_for(1000);
	ck_assert_uint_eq(rig.beat->as.heartbeat.epoch_known, 99);
	neap_announcer_renew(rig.announcer); /* registered after the heartbeat was sent, which comes too late */
	run_for(1);
	answer(NEAP_KEY_OP_REGISTER, 0);
	answer(NEAP_KEY_OP_ROUND_BEGIN, 0);
	answer(NEAP_KEY_OP_ROUND_END, 0);
	answer_beat(NEAP_KEY_UNDEFINED, 99, false, 0);
	ck_assert_str_eq(state(), "READY");
	run_for(1000);
	answer_beat(NEAP_KEY_UNDEFINED, 99, false, 0);
	answer(NEAP_KEY_OP_REGISTER, 0);
	answer(NEAP_KEY_OP_ROUND_BEGIN, 0);
	close_rig();
}
END_TEST

START_TEST(the_heartbeat_names_losers)
{
	open_rig();
	ready();
	run_for(1000);
	struct neap_key_heartbeat *beat = &rig.beat->as.heartbeat;
	ck_assert_uint_ge(beat->lost_max, 2);
	memcpy(beat->lost_text, "onetwo", 6);
	beat->lost[0] = (struct neap_key_lost){.segment = rig.segment.id, .generation = 4, .offset = 0, .length = 3};
	beat->lost[1] = (struct neap_key_lost){.segment = rig.segment.id, .generation = 5, .offset = 3, .length = 3};
	beat->lost_count = 2;
	answer_beat(NEAP_KEY_HEALTHY, 0, false, 0);
	ck_assert_uint_eq(rig.withdrawn, 2);
	run_for(25);
	ck_assert_int_eq(batch(2)->changes[1].kind, NEAP_KEY_REMOVE);
	ck_assert_uint_eq(batch(2)->changes[1].generation, 5);
	close_rig();
}
END_TEST

/* --- options, memory ------------------------------------------------------------------------------------------------------------------ */

START_TEST(options_beyond_their_bounds)
{
	open_rig();
	struct neap_announcer *other;
	struct neap_announcer_options options = rig.options;
	options.batch_max = 2001;
	ck_assert_int_eq(neap_announcer_create(&other, rig.node->reactor, &options), NEAP_EINVAL);
	options = rig.options;
	options.batch_bytes = 100;
	ck_assert_int_eq(neap_announcer_create(&other, rig.node->reactor, &options), NEAP_EINVAL);
	options = rig.options;
	options.next = NULL;
	ck_assert_int_eq(neap_announcer_create(&other, rig.node->reactor, &options), NEAP_EINVAL);
	close_rig();
}
END_TEST

START_TEST(memory_that_runs_out)
{
	open_rig();
	struct neap_announcer *other = NULL;
	for (uint64_t n = 0; !other; n++) {
		rig.node->fail_allocation_at = rig.node->allocations + n;
		int error = neap_announcer_create(&other, rig.node->reactor, &rig.options);
		ck_assert(error == NEAP_ENOMEM || (error == 0 && other));
		ck_assert_uint_lt(n, 40);
	}
	rig.node->fail_allocation_at = UINT64_MAX;
	neap_announcer_destroy(other);
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("master_machine");
	TCase *all = tcase_create("all");
	tcase_add_test(all, closed_before_it_began);
	tcase_add_test(all, closed_while_registering);
	tcase_add_test(all, closed_when_ready);
	tcase_add_test(all, closed_while_gathering);
	tcase_add_test(all, closed_while_sending);
	tcase_add_test(all, closed_while_beginning);
	tcase_add_test(all, closed_while_ending);
	tcase_add_test(all, closed_while_paused);
	tcase_add_test(all, destroyed_in_the_middle);
	tcase_add_test(all, a_registration_that_fails);
	tcase_add_test(all, a_batch_that_fails);
	tcase_add_test(all, calls_that_cannot_be_begun);
	tcase_add_test(all, a_round_that_fails);
	tcase_add_test(all, renewed_in_the_middle_of_a_round);
	tcase_add_test(all, a_walk_that_fills_its_last_batch);
	tcase_add_test(all, gathering_is_cut_short);
	tcase_add_test(all, refusals_of_items);
	tcase_add_test(all, what_was_put_off_and_changes);
	tcase_add_test(all, heartbeats);
	tcase_add_test(all, the_heartbeat_names_losers);
	tcase_add_test(all, options_beyond_their_bounds);
	tcase_add_test(all, memory_that_runs_out);
	suite_add_tcase(suite, all);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
