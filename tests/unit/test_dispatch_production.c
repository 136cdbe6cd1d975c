/* The dispatcher as production builds have it: an impossible event closes its object and nothing else. It is compiled here without
 * assertions, whatever the library is built with. */
#include <check.h>
#include <stdlib.h>
#ifndef NDEBUG
#define NDEBUG
#endif
#include "fsm/dispatch.c"
#define FSM_DEFINE
#include "tests/unit/toy_fsm.h"

static struct neap_posted queue[64];
static struct neap_trace_record records[2][64];
static struct neap_dispatcher dispatcher;
static struct neap_machine_class class_;
static uint64_t hits[toy_state_count * toy_event_count];
static struct neap_machine a, b;
static uint32_t broken_calls, ran;
static uint8_t broken_event;

static void on_impossible(void *host, struct neap_machine *machine, uint8_t event)
{
	(void)host;
	ck_assert(machine == &a);
	broken_event = event;
	broken_calls++;
}

static void count(struct neap_machine *machine, uint64_t argument)
{
	(void)machine;
	(void)argument;
	ran++;
}

/* More than NEAP_POSTS_PER_ACTION: the queue fills, the poster is told. */
static void flood(struct neap_machine *machine, uint64_t argument)
{
	uint32_t refused = 0;
	(void)argument;
	for (uint32_t i = 0; i < 100; i++)
		refused += neap_post(machine == &a ? &b : &a, toy_on_REPLY, i) == NEAP_EAGAIN;
	refused += neap_post_first(&b, toy_on_REPLY, 0) == NEAP_EAGAIN;
	ck_assert_uint_eq(refused, 101 - 64);
}

static neap_action_func *const actions[] = {
	[toy_do_start] = count, [toy_do_note] = count, [toy_do_fan] = flood, [toy_do_expire] = count};

static void setup(void)
{
	struct neap_dispatch_host host = {.on_impossible = on_impossible};
	ck_assert_int_eq(neap_dispatcher_init(&dispatcher, queue, 64, &host), NEAP_OK);
	ck_assert_int_eq(neap_trace_ring_init(&dispatcher.control_ring, records[0], 64), NEAP_OK);
	ck_assert_int_eq(neap_trace_ring_init(&dispatcher.data_ring, records[1], 64), NEAP_OK);
	ck_assert_int_eq(neap_machine_class_init(&class_, &dispatcher, &neap_fsm_toy, actions, NULL, hits), NEAP_OK);
	neap_machine_begin(&a, &class_);
	neap_machine_begin(&b, &class_);
}

START_TEST(impossible_closes_one_object)
{
	neap_step(&a, toy_on_STOP, 0);
	neap_step(&a, toy_on_START, 7);
	ck_assert_uint_eq(dispatcher.impossible, 1);
	ck_assert_uint_eq(broken_calls, 1);
	ck_assert_uint_eq(broken_event, toy_on_START);
	ck_assert_uint_eq(a.state, toy_DONE);
	ck_assert_uint_eq(hits[toy_DONE * toy_event_count + toy_on_START], 1);
	ck_assert_uint_eq(records[0][1].kind, NEAP_TRACE_IMPOSSIBLE);
	neap_step(&a, toy_on_START, 7); /* counted again, told once */
	ck_assert_uint_eq(dispatcher.impossible, 2);
	ck_assert_uint_eq(broken_calls, 1);
	neap_step(&b, toy_on_START, 0); /* its neighbour goes on */
	ck_assert_uint_eq(b.state, toy_ASKED);
	ck_assert_uint_eq(ran, 1);
	neap_machine_end(&a); /* a new life in the same memory is whole again */
	neap_machine_begin(&a, &class_);
	neap_step(&a, 0, 0);
	ck_assert_uint_eq(broken_calls, 2);
}
END_TEST

START_TEST(an_action_that_posts_too_much_is_refused)
{
	neap_step(&a, toy_on_FAN, 0);
	ck_assert_uint_eq(ran, 64);
	ck_assert_uint_eq(neap_dispatcher_pending(&dispatcher), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dispatch_production");
	TCase *limits = tcase_create("limits");
	tcase_add_checked_fixture(limits, setup, NULL);
	tcase_add_test(limits, impossible_closes_one_object);
	tcase_add_test(limits, an_action_that_posts_too_much_is_refused);
	suite_add_tcase(suite, limits);
	SRunner *runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_FORK); /* each test needs a process of its own */
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
