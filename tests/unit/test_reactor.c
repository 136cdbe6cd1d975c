/* The embedding contract, call by call. */
#include "reactor/core.h"
#include "reactor/net.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#define FSM_DEFINE
#include "tests/unit/toy_fsm.h"

#define MS UINT64_C(1000000)

static struct neap_reactor *reactor;
static char last_log[1024];

static void keep_log(void *user, enum neap_log_level level, const char *component, const char *message)
{
	(void)user;
	(void)level;
	snprintf(last_log, sizeof last_log, "%s: %s", component, message);
}

static void create(struct neap_reactor_options options)
{
	options.log = keep_log;
	ck_assert_int_eq(neap_reactor_create(&reactor, &options), NEAP_OK);
}

static void setup(void)
{
	create((struct neap_reactor_options){0});
}

static void teardown(void)
{
	ck_assert_int_eq(neap_reactor_destroy(reactor), NEAP_OK);
}

/* Whether a host that sleeps on the fd would wake within `ms`. */
static bool readable(int ms)
{
	struct pollfd waiting = {.fd = neap_reactor_fd(reactor), .events = POLLIN};
	int count;
	do
		count = poll(&waiting, 1, ms);
	while (count < 0 && errno == EINTR);
	return count == 1;
}

static int run(void)
{
	return neap_reactor_run_once(reactor, NULL);
}

static void run_until_armed(void)
{
	for (int i = 0; i < 1000; i++)
		if (run() == NEAP_RUN_ARMED)
			return;
	ck_abort_msg("does not come to rest");
}

static struct neap_reactor_stats stats(void)
{
	struct neap_reactor_stats now;
	neap_reactor_stats(reactor, &now);
	return now;
}

static void count(void *counter)
{
	++*(uint32_t *)counter;
}

static void count_fire(struct neap_timer *timer, void *counter)
{
	ck_assert(!neap_timer_active(timer));
	++*(uint32_t *)counter;
}

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

START_TEST(time_never_goes_back)
{
	uint32_t fired = 0;
	struct neap_timer timer = {0};
	uint64_t now_ns = neap_reactor_now_ns(reactor);
	ck_assert_int_eq(neap_reactor_run_at(reactor, now_ns + 50000 * MS, NULL), NEAP_RUN_ARMED);
	neap_timer_start(reactor, &timer, now_ns + 40000 * MS, count_fire, &fired);
	ck_assert_int_eq(neap_reactor_run_at(reactor, now_ns, NULL), NEAP_RUN_ARMED);
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

/* --- modes */

START_TEST(busy_never_arms)
{
	neap_reactor_destroy(reactor);
	create((struct neap_reactor_options){.mode = NEAP_MODE_BUSY});
	for (int i = 0; i < 10; i++) {
		ck_assert(readable(0));
		ck_assert_uint_eq(neap_reactor_deadline_ns(reactor), 0);
		ck_assert_int_eq(run(), NEAP_RUN_MORE);
	}
	ck_assert_uint_eq(stats().kicks_written, 0);
	neap_reactor_stop(reactor);
	ck_assert_int_eq(run(), NEAP_RUN_STOPPED);
}
END_TEST

static uint64_t fake_ns;

static uint64_t fake_clock(void *user)
{
	(void)user;
	return fake_ns;
}

START_TEST(adaptive_spins_then_arms)
{
	uint32_t fired = 0;
	struct neap_timer timer = {0};
	neap_reactor_destroy(reactor);
	fake_ns = 1000 * MS;
	create((struct neap_reactor_options){.mode = NEAP_MODE_ADAPTIVE, .spin_ns = 1000, .clock = {.now_ns = fake_clock}});
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	neap_timer_start(reactor, &timer, 0, count_fire, &fired);
	ck_assert_int_eq(run(), NEAP_RUN_MORE);
	fake_ns += 999;
	ck_assert_int_eq(run(), NEAP_RUN_MORE);
	ck_assert(readable(0));
	fake_ns += 1;
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert(!readable(0));
}
END_TEST

/* --- budgets and fairness */

struct loop {
	struct neap_ready ready;
	struct neap_timer timer;
	uint32_t runs, limit;
};

static void run_loop(struct neap_ready *ready)
{
	struct loop *loop = (struct loop *)ready;
	if (++loop->runs < loop->limit)
		neap_ready_again(reactor, ready);
}

static void fire_loop(struct neap_timer *timer, void *user)
{
	struct loop *loop = user;
	if (++loop->runs < loop->limit)
		neap_timer_start(reactor, timer, 0, fire_loop, loop);
}

static void post_loop(void *user)
{
	struct loop *loop = user;
	if (++loop->runs < loop->limit)
		neap_reactor_post(reactor, post_loop, loop);
}

static uint32_t poll_loop_runs;

static uint32_t poll_loop(struct neap_poller *poller, uint32_t max)
{
	(void)poller;
	ck_assert_uint_ge(max, 1);
	if (poll_loop_runs == 100)
		return 0;
	poll_loop_runs++;
	return 1;
}

static struct neap_watch loop_watch;
static uint32_t watch_runs;

static void watch_loop(struct neap_watch *watch, unsigned ready)
{
	uint64_t value;
	ck_assert_uint_eq(ready, NEAP_READABLE);
	if (++watch_runs == 100)
		ck_assert_int_eq(read(watch->fd, &value, sizeof value), 8);
}

/* Five sources that each always have work: with one event a turn they all finish, at about the same time. */
START_TEST(a_budget_of_one_starves_nobody)
{
	struct loop ready = {.ready.run = run_loop, .limit = 100}, timed = {.limit = 100}, posted = {.limit = 100};
	struct neap_poller poller = {.poll = poll_loop};
	struct neap_budget one = {.events_max = 1};
	uint32_t turns = 0;
	poll_loop_runs = watch_runs = 0;
	int fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
	neap_poller_add(reactor, &poller);
	neap_ready_again(reactor, &ready.ready);
	neap_timer_start(reactor, &timed.timer, 0, fire_loop, &timed);
	neap_reactor_post(reactor, post_loop, &posted);
	ck_assert_int_eq(neap_watch_start(reactor, &loop_watch, fd, NEAP_READABLE, watch_loop), NEAP_OK);
	while (neap_reactor_run_once(reactor, &one) == NEAP_RUN_MORE || readable(0)) {
		ck_assert_uint_lt(++turns, 2000);
		if (turns == 100) {
			ck_assert_uint_ge(ready.runs, 10);
			ck_assert_uint_ge(timed.runs, 10);
			ck_assert_uint_ge(posted.runs, 10);
			ck_assert_uint_ge(poll_loop_runs, 10);
			ck_assert_uint_ge(watch_runs, 10);
		}
	}
	ck_assert_uint_eq(ready.runs, 100);
	ck_assert_uint_eq(timed.runs, 100);
	ck_assert_uint_eq(posted.runs, 100);
	ck_assert_uint_eq(poll_loop_runs, 100);
	ck_assert_uint_eq(watch_runs, 100);
	ck_assert(!readable(0));
	neap_watch_stop(reactor, &loop_watch);
	neap_poller_remove(reactor, &poller);
	close(fd);
}
END_TEST

static void spend(struct neap_ready *ready)
{
	struct loop *loop = (struct loop *)ready;
	loop->runs++;
	fake_ns += 600000;
}

START_TEST(the_time_budget_ends_a_turn)
{
	struct loop loops[10] = {0};
	neap_reactor_destroy(reactor);
	fake_ns = MS;
	create((struct neap_reactor_options){.clock = {.now_ns = fake_clock}});
	for (int i = 0; i < 10; i++) {
		loops[i].ready.run = spend;
		neap_ready_again(reactor, &loops[i].ready);
	}
	neap_ready_cancel(reactor, &loops[9].ready);
	neap_ready_cancel(reactor, &loops[9].ready);
	neap_ready_cancel(reactor, &loops[2].ready);
	ck_assert_int_eq(run(), NEAP_RUN_MORE);
	ck_assert_uint_eq(loops[4].runs, 1); /* 0 1 3 4: four times 0.6 ms reach 2 ms */
	ck_assert_uint_eq(loops[5].runs, 0);
	run_until_armed();
	for (int i = 0; i < 10; i++)
		ck_assert_uint_eq(loops[i].runs, i == 2 || i == 9 ? 0 : 1);
}
END_TEST

/* --- descriptors */

static unsigned seen_ready;
static uint32_t seen_count;

static void see(struct neap_watch *watch, unsigned ready)
{
	(void)watch;
	seen_ready = ready;
	seen_count++;
}

static void pair(int fds[2])
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
}

START_TEST(one_combined_event_level_triggered)
{
	int fds[2];
	struct neap_watch watch = {0};
	pair(fds);
	ck_assert_int_eq(neap_watch_start(reactor, &watch, fds[0], NEAP_READABLE | NEAP_WRITABLE, see), NEAP_OK);
	ck_assert_int_eq(write(fds[1], "x", 1), 1);
	seen_count = 0;
	run_until_armed();
	ck_assert_uint_eq(seen_count, 1);
	ck_assert_uint_eq(seen_ready, NEAP_READABLE | NEAP_WRITABLE);
	ck_assert_int_eq(neap_watch_want(reactor, &watch, NEAP_READABLE), NEAP_OK);
	for (uint32_t i = 2; i < 5; i++) { /* not read: reported again, and the host is woken for it */
		ck_assert(readable(0));
		run_until_armed();
		ck_assert_uint_eq(seen_count, i);
		ck_assert_uint_eq(seen_ready, NEAP_READABLE);
	}
	ck_assert_uint_eq(stats().descriptors, 1);
	neap_watch_stop(reactor, &watch);
	neap_watch_stop(reactor, &watch);
	ck_assert(!readable(0));
	ck_assert_uint_eq(stats().descriptors, 0);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

START_TEST(a_hang_up_nobody_wants_does_not_spin)
{
	int fds[2];
	struct neap_watch watch = {0};
	pair(fds);
	ck_assert_int_eq(neap_watch_start(reactor, &watch, fds[0], NEAP_READABLE, see), NEAP_OK);
	run_until_armed();
	ck_assert_int_eq(neap_watch_want(reactor, &watch, 0), NEAP_OK);
	close(fds[1]);
	seen_count = 0;
	run_until_armed();
	ck_assert(!readable(0));
	ck_assert_uint_eq(seen_count, 0);
	ck_assert_int_eq(neap_watch_want(reactor, &watch, NEAP_READABLE), NEAP_OK);
	ck_assert(readable(0));
	run_until_armed();
	ck_assert_uint_eq(seen_count, 1);
	ck_assert_uint_eq(seen_ready, NEAP_READABLE | NEAP_HANGUP);
	neap_watch_stop(reactor, &watch);
	close(fds[0]);
}
END_TEST

/* Two descriptors are ready in one batch; the handler of whichever comes first closes the other and opens a new one, which gets the
 * same number and the same slot. The old one's event must not reach it. */
static struct neap_watch batch_watches[2], newcomer;
static int batch_fds[2], new_fd;
static uint32_t old_calls, new_calls;

static void newcomer_ready(struct neap_watch *watch, unsigned ready)
{
	(void)watch;
	(void)ready;
	new_calls++;
}

static void replace_other(struct neap_watch *watch, unsigned ready)
{
	(void)ready;
	uint64_t value;
	int mine = watch == &batch_watches[0] ? 0 : 1, other = 1 - mine;
	old_calls++;
	ck_assert_int_eq(read(watch->fd, &value, sizeof value), 8);
	uint32_t slot = batch_watches[other].slot;
	neap_watch_stop(reactor, &batch_watches[other]);
	close(batch_fds[other]);
	new_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	ck_assert_int_eq(new_fd, batch_fds[other]);
	ck_assert_int_eq(neap_watch_start(reactor, &newcomer, new_fd, NEAP_READABLE, newcomer_ready), NEAP_OK);
	ck_assert_uint_eq(newcomer.slot, slot);
	batch_fds[other] = -1;
}

START_TEST(stale_events_of_a_batch_are_dropped)
{
	old_calls = new_calls = 0;
	for (int i = 0; i < 2; i++) {
		batch_fds[i] = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
		ck_assert_int_eq(neap_watch_start(reactor, &batch_watches[i], batch_fds[i], NEAP_READABLE, replace_other), NEAP_OK);
	}
	run_until_armed();
	ck_assert_uint_eq(old_calls, 1);
	ck_assert_uint_eq(new_calls, 0);
	ck_assert_uint_eq(stats().stale_events, 1);
	neap_watch_stop(reactor, &newcomer);
	close(new_fd);
	for (int i = 0; i < 2; i++)
		if (batch_fds[i] >= 0) {
			neap_watch_stop(reactor, &batch_watches[i]);
			close(batch_fds[i]);
		}
}
END_TEST

/* More ready descriptors than one batch holds, and a budget smaller than either: each gets its turn. */
enum { MANY = 300 };
static struct neap_watch many_watches[MANY];
static uint32_t served[MANY];

static void serve(struct neap_watch *watch, unsigned ready)
{
	(void)ready;
	served[watch - many_watches]++;
}

START_TEST(many_descriptors_all_get_served)
{
	struct neap_budget few = {.events_max = 7};
	struct neap_watch extra = {0};
	int fds[MANY];
	uint32_t unserved = 0;
	neap_reactor_destroy(reactor);
	create((struct neap_reactor_options){.descriptors_max = MANY});
	for (int i = 0; i < MANY; i++) {
		fds[i] = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
		ck_assert_int_eq(neap_watch_start(reactor, &many_watches[i], fds[i], NEAP_READABLE, serve), NEAP_OK);
	}
	ck_assert_int_eq(neap_watch_start(reactor, &extra, 0, NEAP_READABLE, see), NEAP_ELIMIT);
	for (int i = 0; i < MANY / 7 + 6; i++)
		ck_assert_int_gt(neap_reactor_run_once(reactor, &few), 0);
	for (int i = 0; i < MANY; i++) {
		unserved += served[i] == 0;
		neap_watch_stop(reactor, &many_watches[i]);
		close(fds[i]);
	}
	ck_assert_uint_eq(unserved, 0);
	run_until_armed();
	ck_assert(!readable(0));
}
END_TEST

START_TEST(a_bad_descriptor_is_refused)
{
	struct neap_watch watch = {0};
	ck_assert_int_eq(neap_watch_start(reactor, &watch, -1, NEAP_READABLE, see), NEAP_ESOCKET);
	ck_assert_uint_eq(stats().descriptors, 0);
	neap_watch_stop(reactor, &watch);
}
END_TEST

/* --- pollers */

struct device {
	struct neap_poller poller;
	uint32_t completions, on_arm, arms;
};

static uint32_t poll_device(struct neap_poller *poller, uint32_t max)
{
	struct device *device = (struct device *)poller;
	uint32_t taken = device->completions < max ? device->completions : max;
	device->completions -= taken;
	return taken;
}

static void arm_device(struct neap_poller *poller)
{
	struct device *device = (struct device *)poller;
	device->arms++;
	device->completions += device->on_arm; /* it came between the last poll and the arming: no wake-up will tell */
	device->on_arm = 0;
}

START_TEST(what_comes_while_arming_is_found)
{
	struct device device = {.poller = {.poll = poll_device, .arm = arm_device}, .completions = 5, .on_arm = 3};
	neap_poller_add(reactor, &device.poller);
	ck_assert_int_eq(run(), NEAP_RUN_MORE);
	ck_assert_uint_eq(device.completions, 0);
	ck_assert_uint_eq(device.arms, 1);
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert_uint_eq(device.arms, 2);
	device.completions = 1000; /* more than one share */
	ck_assert_int_eq(run(), NEAP_RUN_MORE);
	run_until_armed();
	ck_assert_uint_eq(device.completions, 0);
	neap_poller_remove(reactor, &device.poller);
	neap_poller_remove(reactor, &device.poller);
}
END_TEST

/* --- end of turn, long turns, grace */

static uint32_t reaped;

static void reap(struct neap_reap *item)
{
	(void)item;
	reaped++;
}

static void reap_in_handler(struct neap_timer *timer, void *user)
{
	(void)timer;
	neap_reap_later(reactor, user);
	neap_reap_later(reactor, user);
	ck_assert_uint_eq(reaped, 0);
	ck_assert_uint_eq(atomic_load(neap_reactor_turn_counter(reactor)) % 2, 1);
	ck_assert(neap_reactor_in_turn(reactor));
}

START_TEST(reaps_at_the_end_of_the_turn)
{
	struct neap_reap item = {.reap = reap};
	struct neap_timer timer = {0};
	reaped = 0;
	run_until_armed();
	uint64_t counter = atomic_load(neap_reactor_turn_counter(reactor));
	ck_assert_uint_eq(counter % 2, 0);
	neap_timer_start(reactor, &timer, 0, reap_in_handler, &item);
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert_uint_eq(reaped, 1);
	ck_assert_uint_eq(atomic_load(neap_reactor_turn_counter(reactor)), counter + 2);
	neap_reap_later(reactor, &item); /* between turns: the next turn, and destroy too */
	ck_assert(readable(0));
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert_uint_eq(reaped, 2);
	neap_reap_later(reactor, &item);
	ck_assert_int_eq(neap_reactor_destroy(reactor), NEAP_OK);
	ck_assert_uint_eq(reaped, 3);
	setup();
}
END_TEST

static struct neap_machine slow_machine;

static void slow_action(struct neap_machine *machine, uint64_t argument)
{
	(void)machine;
	fake_ns += argument;
}

static void step_slow(struct neap_timer *timer, void *user)
{
	(void)timer;
	neap_step(&slow_machine, toy_on_REPLY, *(uint64_t *)user);
}

START_TEST(a_long_turn_names_its_machine)
{
	static neap_action_func *const actions[] = {
		[toy_do_start] = slow_action, [toy_do_note] = slow_action, [toy_do_fan] = slow_action, [toy_do_expire] = slow_action};
	static struct neap_reactor_class class_;
	struct neap_timer timer = {0};
	uint64_t cost_ns = 7 * MS;
	neap_reactor_destroy(reactor);
	fake_ns = MS;
	create((struct neap_reactor_options){.clock = {.now_ns = fake_clock}});
	ck_assert_int_eq(neap_reactor_class_init(&class_, reactor, &neap_fsm_toy, actions, NULL), NEAP_OK);
	neap_machine_begin(&slow_machine, &class_.class_);
	neap_timer_start(reactor, &timer, 0, step_slow, &cost_ns);
	last_log[0] = 0;
	ck_assert_int_eq(run(), NEAP_RUN_MORE); /* its time was up before it had looked everywhere */
	run_until_armed();
	ck_assert_uint_eq(stats().long_turns, 1);
	ck_assert_uint_eq(stats().longest_turn_ns, 7 * MS);
	ck_assert_ptr_nonnull(strstr(last_log, "toy#1"));
	ck_assert_ptr_nonnull(strstr(last_log, "REPLY"));
	ck_assert_ptr_nonnull(strstr(last_log, "7000 us"));
	cost_ns = 4 * MS; /* not long */
	neap_timer_start(reactor, &timer, 0, step_slow, &cost_ns);
	run_until_armed();
	ck_assert_uint_eq(stats().long_turns, 1);
	cost_ns = 6 * MS; /* counted, but the log has one line a second */
	last_log[0] = 0;
	neap_timer_start(reactor, &timer, 0, step_slow, &cost_ns);
	run_until_armed();
	ck_assert_uint_eq(stats().long_turns, 2);
	ck_assert_str_eq(last_log, "");
	ck_assert_uint_eq(stats().transitions, 3);
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
	ck_assert_int_eq(neap_watch_start(reactor, &watch, 0, NEAP_READABLE, see), NEAP_ENOTSUP);
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

static TCase *group(Suite *suite, const char *name)
{
	TCase *tests = tcase_create(name);
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_set_timeout(tests, 60);
	suite_add_tcase(suite, tests);
	return tests;
}

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
	TCase *turns = group(suite, "turns");
	tcase_add_test(turns, busy_never_arms);
	tcase_add_test(turns, adaptive_spins_then_arms);
	tcase_add_test(turns, a_budget_of_one_starves_nobody);
	tcase_add_test(turns, the_time_budget_ends_a_turn);
	tcase_add_test(turns, what_comes_while_arming_is_found);
	tcase_add_test(turns, reaps_at_the_end_of_the_turn);
	tcase_add_test(turns, a_long_turn_names_its_machine);
	tcase_add_test(turns, simulation_touches_nothing_of_the_machine);
	TCase *descriptors = group(suite, "descriptors");
	tcase_add_test(descriptors, one_combined_event_level_triggered);
	tcase_add_test(descriptors, a_hang_up_nobody_wants_does_not_spin);
	tcase_add_test(descriptors, stale_events_of_a_batch_are_dropped);
	tcase_add_test(descriptors, many_descriptors_all_get_served);
	tcase_add_test(descriptors, a_bad_descriptor_is_refused);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
