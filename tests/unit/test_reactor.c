/* The embedding contract, call by call: arming and waking, timers, owner and life. */
#include "tests/unit/reactor_rig.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

/* --- arming and waking */

START_TEST(arms_and_sleeps)
{
	ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), 0); /* never run: run now */
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), UINT64_MAX);
	ck_assert(!readable(0));
	ck_assert_int_eq(run(), NEAP_RUN_ARMED); /* an extra run is harmless */
	ck_assert(!readable(0));
	ck_assert_uint_eq(stats().kicks_written, 0);
}
END_TEST

START_TEST(a_kick_between_armed_and_sleep_is_sticky)
{
	run_until_armed();
	for (int i = 0; i < 100; i++)
		neap_reactor_kick(reactor);
	ck_assert_uint_eq(stats().kicks_written, 1); /* the others were free */
	ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), 0);
	ck_assert(readable(0));
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert(!readable(0));
}
END_TEST

static void changed(void *counter)
{
	++*(uint32_t *)counter;
}

START_TEST(touch_wakes_and_tells_the_host_once)
{
	uint32_t changes = 0;
	neap_reactor_destroy(reactor);
	create((struct neap_reactor_options){.on_change = changed, .on_change_user = &changes});
	neap_reactor_touch(reactor);
	ck_assert_uint_eq(changes, 0); /* not armed: the host will run it anyway */
	run_until_armed();
	neap_reactor_touch(reactor);
	neap_reactor_touch(reactor);
	ck_assert_uint_eq(changes, 1);
	ck_assert_uint_eq(stats().kicks_written, 1);
	ck_assert(readable(0));
	run_until_armed();
	ck_assert(!readable(0));
}
END_TEST

static void *kick_it(void *user)
{
	neap_reactor_kick(user);
	return NULL;
}

START_TEST(a_kick_from_a_thread_wakes)
{
	for (int i = 0; i < 200; i++) {
		pthread_t thread;
		run_until_armed();
		ck_assert_int_eq(pthread_create(&thread, NULL, kick_it, reactor), 0);
		ck_assert(readable(5000));
		pthread_join(thread, NULL);
		run_until_armed();
		ck_assert(!readable(0));
	}
}
END_TEST

static void kick_from_handler(int number)
{
	(void)number;
	errno = 77;
	neap_reactor_kick(reactor);
	if (errno != 77)
		_exit(9);
}

START_TEST(a_kick_from_a_signal_handler_wakes)
{
	struct sigaction action = {.sa_handler = kick_from_handler};
	sigaction(SIGUSR1, &action, NULL);
	run_until_armed();
	raise(SIGUSR1);
	ck_assert(readable(0));
	run_until_armed();
	ck_assert(!readable(0));
}
END_TEST

/* A kick during the turn asks for another one. */
static void kick_inside(struct neap_timer *timer, void *user)
{
	(void)timer;
	neap_reactor_kick(user);
}

START_TEST(a_kick_during_a_turn_is_not_lost)
{
	struct neap_timer timer = {0};
	neap_timer_start(reactor, &timer, 1, kick_inside, reactor);
	ck_assert_int_eq(run(), NEAP_RUN_MORE);
	ck_assert(readable(0)); /* a host that sleeps in spite of MORE is woken */
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert(!readable(0));
}
END_TEST

enum { POSTERS = 3, POSTS = 20000 };

static void *post_many(void *counter)
{
	for (uint32_t i = 0; i < POSTS;)
		if (neap_reactor_post(reactor, count, counter) == NEAP_OK)
			i++;
	return NULL;
}

/* Each sleep that begins with messages outstanding must end by itself. */
START_TEST(no_message_is_lost)
{
	pthread_t threads[POSTERS];
	uint32_t got = 0;
	for (uint32_t i = 0; i < POSTERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, post_many, &got), 0);
	while (got < POSTERS * POSTS) {
		int answer = run();
		ck_assert_int_gt(answer, 0);
		if (answer == NEAP_RUN_ARMED && got < POSTERS * POSTS && !readable(10000))
			ck_abort_msg("slept on a message");
	}
	for (uint32_t i = 0; i < POSTERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(stats().messages, POSTERS * POSTS);
}
END_TEST

START_TEST(the_mailbox_is_bounded)
{
	uint32_t got = 0, posted = 0;
	neap_reactor_destroy(reactor);
	create((struct neap_reactor_options){.mailbox_slots = 8});
	while (neap_reactor_post(reactor, count, &got) == NEAP_OK)
		posted++;
	ck_assert_uint_eq(posted, 8);
	ck_assert_int_eq(neap_reactor_destroy(reactor), NEAP_EBUSY); /* messages are not dropped */
	run_until_armed();
	ck_assert_uint_eq(got, 8);
}
END_TEST

/* --- timers */

START_TEST(the_fd_alone_keeps_the_deadline)
{
	uint32_t fired = 0;
	struct neap_timer timer = {0};
	run_until_armed();
	uint64_t due_ns = neap_reactor_now_ns(reactor) + 3 * MS;
	ck_assert_int_eq(neap_timer_start(reactor, &timer, due_ns, count_fire, &fired), NEAP_OK);
	ck_assert(readable(0)); /* the deadline moved earlier after ARMED */
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), due_ns);
	while (fired == 0) {
		ck_assert(readable(5000));
		ck_assert_int_gt(run(), 0);
	}
	ck_assert_uint_ge(neap_reactor_now_ns(reactor), due_ns);
	run_until_armed();
	ck_assert(!readable(0));
	ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), UINT64_MAX);
}
END_TEST

START_TEST(a_host_that_keeps_the_deadline_saves_the_timerfd)
{
	uint32_t fired = 0;
	struct neap_timer timer = {0};
	neap_reactor_destroy(reactor);
	create((struct neap_reactor_options){.host_keeps_deadline = true});
	neap_timer_start(reactor, &timer, neap_reactor_now_ns(reactor) + MS, count_fire, &fired);
	run_until_armed();
	uint64_t calls = stats().system_calls;
	ck_assert(!readable(20));
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert_uint_eq(fired, 1);
	ck_assert_uint_eq(stats().system_calls, calls + 1); /* one look into the epoll set */
}
END_TEST

/* Renewals of a timeout that never comes true cost no system calls and no wake-ups; a later start does not touch a sleeping host. */
START_TEST(renewals_are_free)
{
	uint32_t fired = 0;
	struct neap_timer timer = {0}, far = {0};
	neap_timer_start(reactor, &timer, neap_reactor_now_ns(reactor) + 3600 * 1000 * MS, count_fire, &fired);
	run_until_armed();
	struct neap_reactor_stats before = stats();
	for (uint64_t i = 1; i <= 1000; i++) {
		neap_timer_start(reactor, &timer, neap_reactor_now_ns(reactor) + 3600 * 1000 * MS + i * MS, count_fire, &fired);
		ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	}
	neap_timer_start(reactor, &far, UINT64_MAX - 1, count_fire, &fired);
	ck_assert(!readable(0));
	ck_assert_uint_eq(stats().system_calls, before.system_calls + 1000);
	ck_assert_uint_eq(stats().timers_active, 2);
	neap_timer_cancel(reactor, &timer);
	neap_timer_cancel(reactor, &timer);
	neap_timer_cancel(reactor, &far);
	ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), UINT64_MAX);
	ck_assert_uint_eq(fired, 0);
}
END_TEST

START_TEST(a_deadline_in_the_past_is_run_at_once)
{
	uint32_t fired = 0;
	struct neap_timer timer = {0};
	run_until_armed();
	neap_timer_start(reactor, &timer, 0, count_fire, &fired);
	ck_assert(readable(0));
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert_uint_eq(fired, 1);
}
END_TEST

static void run_at(uint64_t now_ns)
{
	int answer;
	do /* a turn that took long on the machine's clock says MORE */
		answer = neap_reactor_run_at(reactor, now_ns, NULL);
	while (answer == NEAP_RUN_MORE);
	ck_assert_int_eq(answer, NEAP_RUN_ARMED);
}

START_TEST(time_never_goes_back)
{
	uint32_t fired = 0;
	struct neap_timer timer = {0};
	uint64_t now_ns = neap_reactor_now_ns(reactor);
	run_at(now_ns + 50000 * MS);
	neap_timer_start(reactor, &timer, now_ns + 40000 * MS, count_fire, &fired);
	run_at(now_ns);
	ck_assert_uint_eq(fired, 1);
	ck_assert_uint_ge(neap_now(reactor), now_ns + 50000 * MS);
}
END_TEST

/* --- owner, re-entry, fork, life */

static int reentered[2];

static void reenter(struct neap_timer *timer, void *user)
{
	(void)timer;
	reentered[0] = neap_reactor_run_once(user, NULL);
	reentered[1] = neap_reactor_destroy(user);
}

START_TEST(refuses_to_be_re_entered)
{
	struct neap_timer timer = {0};
	neap_timer_start(reactor, &timer, 0, reenter, reactor);
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert_int_eq(reentered[0], NEAP_EREENTERED);
	ck_assert_int_eq(reentered[1], NEAP_EREENTERED);
}
END_TEST

static void *use_from_thread(void *user)
{
	static struct neap_timer timer;
	int *answers = user;
	answers[0] = neap_reactor_run_once(reactor, NULL);
	answers[1] = neap_timer_start(reactor, &timer, 0, count_fire, NULL);
	answers[2] = neap_reactor_destroy(reactor);
	answers[3] = neap_reactor_run(reactor);
	neap_reactor_stop(reactor);
	return NULL;
}

static void *adopt_and_run(void *user)
{
	int *answers = user;
	answers[0] = neap_reactor_adopt(reactor);
	answers[1] = neap_reactor_run_once(reactor, NULL);
	return NULL;
}

static void *first_run(void *user)
{
	*(int *)user = neap_reactor_run_once(reactor, NULL);
	return NULL;
}

static void in_thread(void *(*body)(void *), void *user)
{
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, body, user), 0);
	pthread_join(thread, NULL);
}

START_TEST(belongs_to_one_thread)
{
	int answers[4] = {0};
	run_until_armed();
	in_thread(use_from_thread, answers);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(answers[i], NEAP_ETHREAD);
	ck_assert(!neap_reactor_stopping(reactor));
	in_thread(adopt_and_run, answers);
	ck_assert_int_eq(answers[0], NEAP_OK);
	ck_assert_int_eq(answers[1], NEAP_RUN_ARMED);
	ck_assert_int_eq(run(), NEAP_ETHREAD);
	ck_assert_int_eq(neap_reactor_adopt(reactor), NEAP_OK);
}
END_TEST

START_TEST(the_first_to_run_it_owns_it)
{
	int answer = 0;
	in_thread(first_run, &answer);
	ck_assert_int_eq(answer, NEAP_RUN_ARMED);
	ck_assert_int_eq(run(), NEAP_ETHREAD);
	ck_assert_int_eq(neap_reactor_adopt(reactor), NEAP_OK);
}
END_TEST

START_TEST(a_forked_child_gets_nothing)
{
	struct neap_timer timer = {0};
	uint32_t fired = 0;
	run_until_armed();
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		int wrong = neap_reactor_run_once(reactor, NULL) != NEAP_EFORKED;
		wrong |= neap_timer_start(reactor, &timer, 0, count_fire, NULL) != NEAP_EFORKED;
		wrong |= neap_reactor_destroy(reactor) != NEAP_EFORKED;
		wrong |= neap_reactor_post(reactor, count, NULL) != NEAP_EFORKED;
		wrong |= neap_reactor_adopt(reactor) != NEAP_EFORKED;
		neap_reactor_kick(reactor);
		_exit(wrong);
	}
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert(!readable(0)); /* the child's kick does not reach the parent */
	neap_timer_start(reactor, &timer, 0, count_fire, &fired);
	run_until_armed();
	ck_assert_uint_eq(fired, 1);
}
END_TEST

static uint32_t stops;

static void on_stop(struct neap_dependent *dependent)
{
	stops++;
	if (strcmp(dependent->what, "leaves at once") == 0)
		neap_reactor_detach(reactor, dependent);
}

START_TEST(stops_when_all_dependents_have_gone)
{
	struct neap_dependent slow = {.what = "a slow one", .stop = on_stop}, quick = {.what = "leaves at once", .stop = on_stop};
	struct neap_dependent silent = {.what = "without a stop"};
	neap_reactor_attach(reactor, &slow);
	neap_reactor_attach(reactor, &quick);
	neap_reactor_attach(reactor, &silent);
	run_until_armed();
	ck_assert_int_eq(neap_reactor_destroy(reactor), NEAP_EBUSY);
	ck_assert_ptr_nonnull(strstr(last_log, "without a stop"));
	stops = 0;
	neap_reactor_stop(reactor);
	neap_reactor_stop(reactor);
	ck_assert_uint_eq(stops, 2);
	ck_assert(readable(0));
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	neap_reactor_detach(reactor, &silent);
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	neap_reactor_detach(reactor, &slow);
	neap_reactor_detach(reactor, &slow);
	ck_assert(readable(0));
	ck_assert_int_eq(run(), NEAP_RUN_STOPPED);
	ck_assert_int_eq(run(), NEAP_RUN_STOPPED);
	ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), UINT64_MAX);
}
END_TEST

static uint32_t released[2], release_order;

static void on_release(struct neap_resident *resident, struct neap_reactor *of)
{
	ck_assert_ptr_eq(of, reactor);
	released[resident->key == &released[0] ? 0 : 1] = ++release_order;
}

START_TEST(residents_go_with_the_reactor_the_latest_first)
{
	struct neap_resident first = {.key = &released[0], .release = on_release}, second = {.key = &released[1], .release = on_release};
	neap_reactor_house(reactor, &first);
	neap_reactor_house(reactor, &second);
	ck_assert_ptr_eq(neap_reactor_resident(reactor, &released[0]), &first);
	ck_assert_ptr_eq(neap_reactor_resident(reactor, &released[1]), &second);
	ck_assert_ptr_null(neap_reactor_resident(reactor, &release_order));
	ck_assert_int_eq(neap_reactor_destroy(reactor), NEAP_OK);
	ck_assert_uint_eq(released[1], 1);
	ck_assert_uint_eq(released[0], 2);
	setup();
}
END_TEST

static void stop_it(struct neap_timer *timer, void *user)
{
	(void)timer;
	neap_reactor_stop(user);
}

START_TEST(runs_a_loop_of_its_own)
{
	uint32_t got = 0;
	struct neap_timer timer = {0}, stopper = {0};
	pthread_t thread;
	uint64_t begin_ns = neap_reactor_now_ns(reactor);
	neap_timer_start(reactor, &timer, begin_ns + 2 * MS, count_fire, &got);
	neap_timer_start(reactor, &stopper, begin_ns + 20 * MS, stop_it, reactor);
	ck_assert_int_eq(pthread_create(&thread, NULL, kick_it, reactor), 0);
	ck_assert_int_eq(neap_reactor_run(reactor), NEAP_OK);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(got, 1);
	ck_assert_uint_ge(neap_reactor_now_ns(reactor), begin_ns + 20 * MS);
	ck_assert_uint_lt(stats().turns, 12); /* it slept */
}
END_TEST

START_TEST(refuses_bad_options)
{
	struct neap_reactor *bad;
	struct neap_reactor_options options = {.mailbox_slots = 100};
	ck_assert_int_eq(neap_reactor_create(&bad, &options), NEAP_EINVAL);
	options = (struct neap_reactor_options){.trace_records = 3};
	ck_assert_int_eq(neap_reactor_create(&bad, &options), NEAP_EINVAL);
	options = (struct neap_reactor_options){.mode = (enum neap_reactor_mode)9};
	ck_assert_int_eq(neap_reactor_create(&bad, &options), NEAP_EINVAL);
	ck_assert_ptr_null(bad);
}
END_TEST

/* --- simulation */

static uint32_t open_descriptors(void)
{
	uint32_t open = 0;
	for (int fd = 0; fd < 256; fd++)
		open += fcntl(fd, F_GETFD) >= 0;
	return open;
}

START_TEST(simulation_touches_nothing_of_the_machine)
{
	static struct neap_net net; /* outlives this function: the fixture destroys the reactor */
	struct neap_watch watch = {0};
	struct neap_timer timer = {0};
	uint32_t fired = 0, before = open_descriptors();
	neap_reactor_destroy(reactor);
	before -= before - open_descriptors();
	create((struct neap_reactor_options){.net = &net});
	ck_assert_uint_eq(open_descriptors(), before);
	ck_assert_int_eq(neap_reactor_fd(reactor), -1);
	ck_assert_int_eq(neap_watch_start(reactor, &watch, 0, NEAP_READABLE, NULL), NEAP_ENOTSUP);
	ck_assert_int_eq(run(), NEAP_ENOTSUP);
	ck_assert_int_eq(neap_reactor_run(reactor), NEAP_ENOTSUP);
	ck_assert_int_eq(neap_reactor_run_at(reactor, 100, NULL), NEAP_RUN_ARMED);
	ck_assert_uint_eq(neap_reactor_now_ns(reactor), 100);
	neap_timer_start(reactor, &timer, 5000, count_fire, &fired);
	ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), 0);
	ck_assert_int_eq(neap_reactor_run_at(reactor, 4999, NULL), NEAP_RUN_ARMED);
	ck_assert_uint_eq(fired, 0);
	ck_assert_int_eq(neap_reactor_run_at(reactor, 5000, NULL), NEAP_RUN_ARMED);
	ck_assert_uint_eq(fired, 1);
	neap_reactor_kick(reactor);
	ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), 0);
	ck_assert_int_eq(neap_reactor_run_at(reactor, 5000, NULL), NEAP_RUN_ARMED);
	ck_assert_uint_eq(stats().system_calls, 0);
	ck_assert(neap_reactor_simulated(reactor));
}
END_TEST

START_TEST(errors_have_names)
{
	ck_assert_str_eq(neap_error_name(NEAP_OK), "NEAP_OK");
	ck_assert_str_eq(neap_error_name(NEAP_ETIMEDOUT), "NEAP_ETIMEDOUT");
	ck_assert_str_eq(neap_error_name(-5), "NEAP_UNKNOWN");
	ck_assert_str_eq(neap_error_text(NEAP_ENOTREG), "the range is not inside one registered region");
	ck_assert_ptr_nonnull(neap_error_text(12345));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reactor");
	TCase *waking = group(suite, "waking");
	tcase_add_test(waking, arms_and_sleeps);
	tcase_add_test(waking, a_kick_between_armed_and_sleep_is_sticky);
	tcase_add_test(waking, touch_wakes_and_tells_the_host_once);
	tcase_add_test(waking, a_kick_from_a_thread_wakes);
	tcase_add_test(waking, a_kick_from_a_signal_handler_wakes);
	tcase_add_test(waking, a_kick_during_a_turn_is_not_lost);
	tcase_add_test(waking, no_message_is_lost);
	tcase_add_test(waking, the_mailbox_is_bounded);
	TCase *timers = group(suite, "timers");
	tcase_add_test(timers, the_fd_alone_keeps_the_deadline);
	tcase_add_test(timers, a_host_that_keeps_the_deadline_saves_the_timerfd);
	tcase_add_test(timers, renewals_are_free);
	tcase_add_test(timers, a_deadline_in_the_past_is_run_at_once);
	tcase_add_test(timers, time_never_goes_back);
	TCase *life = group(suite, "life");
	tcase_add_test(life, refuses_to_be_re_entered);
	tcase_add_test(life, belongs_to_one_thread);
	tcase_add_test(life, the_first_to_run_it_owns_it);
	tcase_add_test(life, a_forked_child_gets_nothing);
	tcase_add_test(life, stops_when_all_dependents_have_gone);
	tcase_add_test(life, residents_go_with_the_reactor_the_latest_first);
	tcase_add_test(life, runs_a_loop_of_its_own);
	tcase_add_test(life, refuses_bad_options);
	tcase_add_test(life, errors_have_names);
	tcase_add_test(life, simulation_touches_nothing_of_the_machine);
	return run_suite(suite);
}
