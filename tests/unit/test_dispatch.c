#include "reactor/core.h"
#include "reactor/net.h"
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#define FSM_DEFINE
#include "tests/unit/toy_fsm.h"

struct toy {
	struct neap_machine machine;
	struct neap_timer timer;
	struct toy *other;
	uint32_t fan; /* how many events the FAN action posts */
	bool first, dispatches;
};

/* What the actions did, in order. */
static uint64_t noted[4096];
static uint32_t notes;

static void do_start(struct neap_machine *machine, uint64_t argument)
{
	(void)machine;
	noted[notes++] = argument;
}

static void do_note(struct neap_machine *machine, uint64_t argument)
{
	(void)machine;
	if (notes < 4096)
		noted[notes++] = argument;
}

static void do_fan(struct neap_machine *machine, uint64_t argument)
{
	struct toy *toy = (struct toy *)machine;
	noted[notes++] = argument;
	if (toy->dispatches)
		ck_assert_uint_eq(neap_dispatch(machine->class_->dispatcher, 0), 0);
	for (uint32_t i = 0; i < toy->fan; i++) {
		int error = toy->first ? neap_post_first(&toy->other->machine, toy_on_REPLY, 1000 + i)
		                       : neap_post(&toy->other->machine, toy_on_REPLY, 1000 + i);
		ck_assert_int_eq(error, NEAP_OK);
	}
}

static void do_expire(struct neap_machine *machine, uint64_t argument)
{
	(void)machine;
	(void)argument;
	noted[notes++] = 777;
}

static neap_action_func *const actions[] = {
	[toy_do_start] = do_start, [toy_do_note] = do_note, [toy_do_fan] = do_fan, [toy_do_expire] = do_expire};

/* --- the bare dispatcher */

#define QUEUE 64u
static struct neap_posted queue[QUEUE];
static struct neap_trace_record records[2][1024];
static struct neap_dispatcher dispatcher;
static struct neap_machine_class class_;
static uint64_t hits[toy_state_count * toy_event_count];
static uint8_t armed[64];
static uint32_t armings;
static struct toy a, b;

static void count_arming(void *host, struct neap_machine *machine, uint8_t timeout_class)
{
	(void)host;
	(void)machine;
	armed[armings++] = timeout_class;
}

static void setup(void)
{
	struct neap_dispatch_host host = {.arm_timeout = count_arming};
	notes = armings = 0;
	memset(hits, 0, sizeof hits);
	a = b = (struct toy){0};
	a.other = &b;
	b.other = &a;
	ck_assert_int_eq(neap_dispatcher_init(&dispatcher, queue, QUEUE, &host), NEAP_OK);
	ck_assert_int_eq(neap_trace_ring_init(&dispatcher.control_ring, records[0], 1024), NEAP_OK);
	ck_assert_int_eq(neap_trace_ring_init(&dispatcher.data_ring, records[1], 1024), NEAP_OK);
	ck_assert_int_eq(neap_machine_class_init(&class_, &dispatcher, &neap_fsm_toy, actions, NULL, hits), NEAP_OK);
	neap_machine_begin(&a.machine, &class_);
	neap_machine_begin(&b.machine, &class_);
}

START_TEST(refuses_bad_memory)
{
	struct neap_dispatcher other = {0};
	struct neap_trace_ring ring;
	static neap_action_func *const holes[toy_action_count] = {[toy_do_start] = do_start};
	ck_assert_int_eq(neap_dispatcher_init(&other, queue, 63, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_dispatcher_init(&other, queue, 32, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_trace_ring_init(&ring, records[0], 1000), NEAP_EINVAL);
	ck_assert_int_eq(neap_machine_class_init(&class_, &dispatcher, &neap_fsm_toy, holes, NULL, hits), NEAP_EINVAL);
	static struct neap_machine_class many[NEAP_CLASSES_MAX];
	for (uint32_t i = 1; i < NEAP_CLASSES_MAX; i++)
		ck_assert_int_eq(neap_machine_class_init(&many[i], &dispatcher, &neap_fsm_toy, actions, NULL, hits), NEAP_OK);
	ck_assert_int_eq(neap_machine_class_init(&many[0], &dispatcher, &neap_fsm_toy, actions, NULL, hits), NEAP_ELIMIT);
}
END_TEST

START_TEST(runs_in_the_order_posted)
{
	for (uint64_t i = 0; i < 20; i++)
		ck_assert_int_eq(neap_post(i % 2 ? &a.machine : &b.machine, toy_on_REPLY, i), NEAP_OK);
	ck_assert_uint_eq(notes, 0);
	ck_assert_uint_eq(neap_dispatch(&dispatcher, 5), 5);
	ck_assert_uint_eq(neap_dispatcher_pending(&dispatcher), 15);
	ck_assert_uint_eq(neap_dispatch(&dispatcher, 0), 15);
	for (uint64_t i = 0; i < 20; i++)
		ck_assert_uint_eq(noted[i], i);
}
END_TEST

START_TEST(follow_ups_come_first)
{
	a.fan = 2;
	a.first = true;
	neap_post(&a.machine, toy_on_FAN, 1);
	neap_post(&b.machine, toy_on_REPLY, 2);
	neap_dispatch(&dispatcher, 0);
	static const uint64_t expected[] = {1, 1001, 1000, 2};
	ck_assert_uint_eq(notes, 4);
	ck_assert_mem_eq(noted, expected, sizeof expected);
}
END_TEST

/* An action's posts wait until it has returned; dispatching from it does nothing. */
START_TEST(no_recursion)
{
	a.fan = 3;
	a.dispatches = true;
	neap_step(&a.machine, toy_on_FAN, 5);
	static const uint64_t expected[] = {5, 1000, 1001, 1002};
	ck_assert_uint_eq(notes, 4);
	ck_assert_mem_eq(noted, expected, sizeof expected);
	ck_assert_uint_eq(neap_dispatcher_pending(&dispatcher), 0);
}
END_TEST

START_TEST(events_of_a_former_life_are_dropped)
{
	neap_post(&a.machine, toy_on_REPLY, 1);
	neap_machine_end(&a.machine);
	neap_machine_begin(&a.machine, &class_);
	neap_post(&a.machine, toy_on_REPLY, 2);
	neap_dispatch(&dispatcher, 0);
	ck_assert_uint_eq(notes, 1);
	ck_assert_uint_eq(noted[0], 2);
	ck_assert_uint_eq(dispatcher.stale, 1);
	ck_assert_uint_eq(hits[toy_IDLE * toy_event_count + toy_on_REPLY], 1);
	ck_assert_uint_eq(dispatcher.control_ring.records[0].kind, NEAP_TRACE_STALE);
}
END_TEST

START_TEST(benign_events_are_counted_and_change_nothing)
{
	neap_step(&a.machine, toy_on_START, 1);
	ck_assert_uint_eq(a.machine.state, toy_ASKED);
	neap_step(&a.machine, toy_on_START, 2);
	ck_assert_uint_eq(a.machine.state, toy_ASKED);
	ck_assert_uint_eq(notes, 1);
	ck_assert_uint_eq(dispatcher.ignored, 1);
	ck_assert_uint_eq(hits[toy_ASKED * toy_event_count + toy_on_START], 1);
	ck_assert_str_eq(neap_machine_state_name(&a.machine), "ASKED");
}
END_TEST

/* Armed on entry, afresh on a transition to itself, disarmed on leaving, not touched where neither state has one. */
START_TEST(timeouts_are_armed_by_the_dispatcher)
{
	neap_step(&a.machine, toy_on_REPLY, 0);
	ck_assert_uint_eq(armings, 0);
	neap_step(&a.machine, toy_on_START, 0);
	neap_step(&a.machine, toy_on_FAN, 0);
	neap_step(&a.machine, toy_on_REPLY, 0);
	neap_step(&a.machine, toy_on_STOP, 0);
	neap_step(&a.machine, toy_on_STOP, 0);
	static const uint8_t expected[] = {toy_timeout_SHORT, toy_timeout_SHORT, toy_timeout_LONG, toy_timeout_NONE};
	ck_assert_uint_eq(armings, sizeof expected);
	ck_assert_mem_eq(armed, expected, sizeof expected);
	neap_step(&b.machine, toy_on_START, 0);
	neap_machine_end(&b.machine);
	ck_assert_uint_eq(armed[armings - 1], toy_timeout_NONE);
}
END_TEST

/* Posting from outside never fails: it runs what is queued when room for the actions' own posts gets short. */
START_TEST(room_is_kept_for_actions)
{
	a.fan = NEAP_POSTS_PER_ACTION;
	for (uint64_t i = 0; i < 500; i++) {
		ck_assert_int_eq(neap_post(&b.machine, toy_on_REPLY, i), NEAP_OK);
		ck_assert_uint_lt(neap_dispatcher_pending(&dispatcher), QUEUE - NEAP_POSTS_PER_ACTION);
		if (i % 50 == 49)
			ck_assert_int_eq(neap_post(&a.machine, toy_on_FAN, 1), NEAP_OK);
	}
	neap_dispatch(&dispatcher, 0);
	ck_assert_uint_eq(notes, 500 + 10 + 10 * NEAP_POSTS_PER_ACTION);
}
END_TEST

START_TEST(trace_tells_what_happened)
{
	dispatcher.now_ns = 12345;
	neap_step(&a.machine, toy_on_START, 99);
	const struct neap_trace_record *record = &dispatcher.control_ring.records[0];
	ck_assert_uint_eq(dispatcher.control_ring.count, 1);
	ck_assert_uint_eq(record->now_ns, 12345);
	ck_assert_uint_eq(record->argument, 99);
	ck_assert_uint_eq(record->machine_id, a.machine.id);
	ck_assert_uint_eq(record->kind, NEAP_TRACE_GO);
	ck_assert_uint_eq(record->from, toy_IDLE);
	ck_assert_uint_eq(record->to, toy_ASKED);
	ck_assert_uint_eq(record->event, toy_on_START);
	neap_trace_relate(&a.machine, &b.machine);
	ck_assert_uint_eq(dispatcher.control_ring.records[1].kind, NEAP_TRACE_RELATE);
	ck_assert_uint_eq((uint32_t)dispatcher.control_ring.records[1].argument, b.machine.id);
	ck_assert_ptr_eq(dispatcher.last, &a.machine);
	for (uint64_t i = 0; i < 3000; i++)
		neap_step(&b.machine, toy_on_REPLY, i);
	ck_assert_uint_eq(dispatcher.control_ring.count, 3002);
	ck_assert_uint_eq(records[0][(3002 - 1) & 1023].argument, 2999);
}
END_TEST

/* Builds with assertions stop at an impossible event; tests/unit/test_dispatch_production.c has the other kind. */
#ifndef NDEBUG
START_TEST(impossible_stops_a_debug_build)
{
	neap_step(&a.machine, toy_on_STOP, 0);
	neap_step(&a.machine, toy_on_START, 0);
}
END_TEST

static const char *always_wrong(const struct neap_machine *machine, uint8_t from)
{
	(void)machine;
	return from == toy_IDLE ? "wrong on purpose" : NULL;
}

START_TEST(a_broken_invariant_stops_a_debug_build)
{
	class_.invariant = always_wrong;
	neap_step(&a.machine, toy_on_START, 0);
}
END_TEST
#endif

/* --- timeouts on a reactor's wheel, in simulated time */

static uint64_t toy_due(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)machine;
	return timeout_class == toy_timeout_SHORT ? now_ns + 1000 : UINT64_MAX;
}

START_TEST(timeouts_fire_on_a_reactor)
{
	struct neap_net net = {0};
	struct neap_reactor_options options = {.net = &net};
	struct neap_reactor *reactor;
	static const struct neap_machine_kind forgot = {.fsm = &neap_fsm_toy, .actions = actions, .timer_offset = NEAP_TIMER_OFFSET(struct toy)};
	static const struct neap_machine_kind kind = {
		.fsm = &neap_fsm_toy, .actions = actions, .timer_offset = NEAP_TIMER_OFFSET(struct toy), .due_ns = toy_due};
	struct neap_reactor_class *toys, *again;
	ck_assert_int_eq(neap_reactor_create(&reactor, &options), NEAP_OK);
	ck_assert_int_eq(neap_reactor_class_of(reactor, &forgot, &toys), NEAP_EINVAL);
	ck_assert_int_eq(neap_reactor_class_of(reactor, &kind, &toys), NEAP_OK);
	ck_assert_int_eq(neap_reactor_class_of(reactor, &kind, &again), NEAP_OK);
	ck_assert_ptr_eq(again, toys);
	ck_assert_ptr_eq(neap_machine_reactor(&(struct neap_machine){.class_ = &toys->class_}), reactor);

	neap_machine_begin(&a.machine, &toys->class_);
	neap_machine_begin(&b.machine, &toys->class_);
	ck_assert_int_eq(neap_reactor_run_at(reactor, 5000, NULL), NEAP_RUN_ARMED);
	neap_step(&a.machine, toy_on_START, 0);
	neap_step(&b.machine, toy_on_START, 0);
	ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), 0); /* the host must look again */
	ck_assert_int_eq(neap_reactor_run_at(reactor, 5000, NULL), NEAP_RUN_ARMED);
	ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), 6000);
	neap_step(&b.machine, toy_on_REPLY, 0); /* HELD: its limit is off */
	ck_assert_int_eq(neap_reactor_run_at(reactor, 5999, NULL), NEAP_RUN_ARMED);
	ck_assert_uint_eq(a.machine.state, toy_ASKED);
	ck_assert_int_eq(neap_reactor_run_at(reactor, 6000, NULL), NEAP_RUN_ARMED);
	ck_assert_uint_eq(a.machine.state, toy_DONE);
	ck_assert_uint_eq(b.machine.state, toy_HELD);
	ck_assert_uint_eq(noted[notes - 1], 777);
	ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), UINT64_MAX);
	struct neap_reactor_stats stats;
	neap_reactor_stats(reactor, &stats);
	ck_assert_uint_eq(stats.timers_fired, 1);
	ck_assert_uint_eq(stats.system_calls, 0);
	ck_assert_int_eq(neap_reactor_destroy(reactor), NEAP_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dispatch");
	TCase *bare = tcase_create("bare");
	tcase_add_checked_fixture(bare, setup, NULL);
	tcase_add_test(bare, refuses_bad_memory);
	tcase_add_test(bare, runs_in_the_order_posted);
	tcase_add_test(bare, follow_ups_come_first);
	tcase_add_test(bare, no_recursion);
	tcase_add_test(bare, events_of_a_former_life_are_dropped);
	tcase_add_test(bare, benign_events_are_counted_and_change_nothing);
	tcase_add_test(bare, timeouts_are_armed_by_the_dispatcher);
	tcase_add_test(bare, room_is_kept_for_actions);
	tcase_add_test(bare, trace_tells_what_happened);
#ifndef NDEBUG
	tcase_add_test_raise_signal(bare, impossible_stops_a_debug_build, SIGABRT);
	tcase_add_test_raise_signal(bare, a_broken_invariant_stops_a_debug_build, SIGABRT);
#endif
	suite_add_tcase(suite, bare);
	TCase *timeouts = tcase_create("timeouts");
	tcase_add_test(timeouts, timeouts_fire_on_a_reactor);
	suite_add_tcase(suite, timeouts);
	SRunner *runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_FORK); /* each test needs a process of its own */
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
