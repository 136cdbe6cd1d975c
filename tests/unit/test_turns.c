/* What a turn does: modes, budgets, descriptors, pollers, its end. */
#include "reactor/inside.h"
#include "tests/unit/reactor_rig.h"
#include <sys/eventfd.h>
#include <sys/socket.h>
#define FSM_DEFINE
#include "tests/unit/toy_fsm.h"

/* --- modes */

static uint64_t fake_ns;

static uint64_t fake_clock(void *user)
{
	(void)user;
	return fake_ns;
}

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

/* What a source makes ready runs in the same turn; what always makes itself ready again does not hold the turn. */
START_TEST(a_ready_source_runs_twice_a_turn)
{
	struct loop loop = {.ready.run = run_loop, .limit = 10};
	run_until_armed();
	neap_ready_again(reactor, &loop.ready);
	neap_ready_again(reactor, &loop.ready);
	ck_assert(readable(0));
	for (uint32_t i = 1; i <= 5; i++) {
		ck_assert_int_eq(run(), i < 5 ? NEAP_RUN_MORE : NEAP_RUN_ARMED);
		ck_assert_uint_eq(loop.runs, 2 * i);
	}
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

/* --- what has come and what is late */

/* A call: it ends when its answer can be read, or when its time is over. */
struct call {
	struct neap_watch watch;
	struct neap_timer timer;
	struct neap_ready rest;
	int fd;
	bool answered, late;
};

static void fire_late(struct neap_timer *timer, void *user)
{
	struct call *call = user;
	(void)timer;
	call->late = true;
}

static void answer(struct call *call)
{
	uint64_t value;
	ck_assert_int_eq(read(call->fd, &value, sizeof value), 8);
	call->answered = true;
	neap_timer_cancel(reactor, &call->timer);
}

static void answer_ready(struct neap_watch *watch, unsigned ready)
{
	(void)ready;
	answer((struct call *)watch);
}

static void answer_rest(struct neap_ready *ready)
{
	answer((struct call *)((char *)ready - offsetof(struct call, rest)));
}

/* As a stream does that was stopped by its budget: the answer is in what it goes on with. */
static void begin_answer(struct neap_watch *watch, unsigned ready)
{
	struct call *call = (struct call *)watch;
	(void)ready;
	ck_assert_int_eq(neap_watch_want(reactor, watch, 0), NEAP_OK);
	neap_ready_again(reactor, &call->rest);
}

static void call_begin(struct call *call, uint64_t due_ns, void (*ready)(struct neap_watch *watch, unsigned ready))
{
	*call = (struct call){.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), .rest.run = answer_rest};
	ck_assert_int_ge(call->fd, 0);
	ck_assert_int_eq(neap_watch_start(reactor, &call->watch, call->fd, NEAP_READABLE, ready), NEAP_OK);
	neap_timer_start(reactor, &call->timer, due_ns, fire_late, call);
}

static void call_reply(const struct call *call)
{
	uint64_t one = 1;
	ck_assert_int_eq(write(call->fd, &one, sizeof one), 8);
}

static void call_end(struct call *call)
{
	neap_timer_cancel(reactor, &call->timer);
	neap_watch_stop(reactor, &call->watch);
	close(call->fd);
}

/* The host comes back long after the deadline; the answer had come before. */
START_TEST(an_answer_that_is_there_is_not_late)
{
	struct call call;
	neap_reactor_destroy(reactor);
	fake_ns = 1000 * MS;
	create((struct neap_reactor_options){.clock = {.now_ns = fake_clock}});
	call_begin(&call, 1010 * MS, _i == 0 ? answer_ready : begin_answer);
	run_until_armed();
	call_reply(&call);
	fake_ns = 5000 * MS;
	run_until_armed();
	ck_assert(call.answered && !call.late);
	call_end(&call);
}
END_TEST

START_TEST(a_message_that_is_there_is_not_late)
{
	struct neap_budget one = {.events_max = 1};
	uint32_t fired = 0, messages = 0;
	struct neap_timer timer = {0};
	run_until_armed();
	for (uint32_t i = 0; i < 20; i++)
		ck_assert_int_eq(neap_reactor_post(reactor, count, &messages), NEAP_OK);
	neap_timer_start(reactor, &timer, neap_reactor_now_ns(reactor), count_fire, &fired);
	while (neap_reactor_run_once(reactor, &one) != NEAP_RUN_ARMED)
		ck_assert(!fired || messages == 20);
	ck_assert_uint_eq(fired, 1);
}
END_TEST

/* More answers than the kernel tells of at once, and than a turn may serve. */
static struct call calls[MANY];

START_TEST(many_answers_that_are_there_are_not_late)
{
	struct neap_budget few = {.events_max = 7}, *budget = _i == 0 ? NULL : &few;
	uint32_t late = 0, answered = 0;
	neap_reactor_destroy(reactor);
	fake_ns = 1000 * MS;
	create((struct neap_reactor_options){.clock = {.now_ns = fake_clock}});
	for (uint32_t i = 0; i < MANY; i++)
		call_begin(&calls[i], (1010 + i % 20) * MS, answer_ready);
	run_until_armed();
	for (uint32_t i = 0; i < MANY; i++)
		if (i % 10)
			call_reply(&calls[i]);
	fake_ns = 5000 * MS;
	while (neap_reactor_run_once(reactor, budget) != NEAP_RUN_ARMED)
		;
	for (uint32_t i = 0; i < MANY; i++) {
		ck_assert(calls[i].answered != calls[i].late);
		late += calls[i].late;
		answered += calls[i].answered;
		call_end(&calls[i]);
	}
	ck_assert_uint_eq(late, MANY / 10);
	ck_assert_uint_eq(answered, MANY - MANY / 10);
}
END_TEST

/* Descriptors that are always ready, more than a batch, and a source that always goes on: a timer waits until each had its turn, not longer,
 * and the next one again. */
START_TEST(a_flood_does_not_hold_timers)
{
	struct loop loop = {.ready.run = run_loop, .limit = UINT32_MAX};
	struct neap_timer timer = {0};
	uint32_t fired = 0, turns = 0;
	for (int i = 0; i < MANY; i++) {
		calls[i].fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
		ck_assert_int_eq(neap_watch_start(reactor, &many_watches[i], calls[i].fd, NEAP_READABLE, serve), NEAP_OK);
	}
	neap_ready_again(reactor, &loop.ready);
	for (uint32_t times = 1; times <= 10; times++) {
		neap_timer_start(reactor, &timer, neap_reactor_now_ns(reactor), count_fire, &fired);
		turns = 0;
		while (fired < times) {
			ck_assert_int_eq(run(), NEAP_RUN_MORE);
			turns++;
		}
		ck_assert_uint_le(turns, 3 * (MANY / 256 + 1));
	}
	neap_ready_cancel(reactor, &loop.ready);
	for (int i = 0; i < MANY; i++) {
		neap_watch_stop(reactor, &many_watches[i]);
		close(calls[i].fd);
	}
}
END_TEST

/* A loop that sleeps in the set brings its batch along: what comes between its sleep and the turn is not in it. */
START_TEST(a_batch_from_before_is_no_proof)
{
	struct call call;
	call_begin(&call, neap_reactor_now_ns(reactor), answer_ready);
	call_reply(&call);
	reactor->batch_given = true; /* an empty one */
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert(call.answered && !call.late);
	call_end(&call);
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

/* The last look before sleeping is into the mailbox: a message that came after all sources had their turn ends the arming. */
static void post_while_arming(struct neap_poller *poller)
{
	struct device *device = (struct device *)poller;
	if (device->arms++ == 0)
		ck_assert_int_eq(neap_reactor_post(reactor, count, &device->on_arm), NEAP_OK);
}

START_TEST(a_message_that_comes_while_arming_is_found)
{
	struct device device = {.poller = {.poll = poll_device, .arm = post_while_arming}};
	neap_poller_add(reactor, &device.poller);
	ck_assert_int_eq(run(), NEAP_RUN_MORE);
	ck_assert_uint_eq(device.on_arm, 0);
	ck_assert(readable(0));
	ck_assert_int_eq(run(), NEAP_RUN_ARMED);
	ck_assert_uint_eq(device.on_arm, 1);
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

static struct neap_ready canceling, canceled, ending;
static uint32_t ending_ran;

static void cancel_the_other(struct neap_ready *ready)
{
	(void)ready;
	neap_ready_cancel(reactor, &canceled);
}

static void reap_ending(struct neap_reap *item)
{
	(void)item;
	neap_ready_cancel(reactor, &ending);
}

/* Wakes itself in its last run, as one does whose parts end one after the other. */
static void end_itself(struct neap_ready *ready)
{
	static struct neap_reap item = {.reap = reap_ending};
	ending_ran++;
	neap_ready_again(reactor, ready);
	neap_reap_later(reactor, &item);
}

START_TEST(nobody_runs_again_before_it_is_reaped)
{
	run_until_armed();
	canceling = (struct neap_ready){.run = cancel_the_other};
	canceled = (struct neap_ready){.run = end_itself};
	ending = (struct neap_ready){.run = end_itself};
	ending_ran = 0;
	neap_ready_again(reactor, &canceling);
	neap_ready_again(reactor, &canceled);
	neap_ready_again(reactor, &ending);
	run_until_armed();
	ck_assert_uint_eq(ending_ran, 1);
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

static void step_in_reap(struct neap_reap *item)
{
	(void)item;
	neap_step(&slow_machine, toy_on_REPLY, 0);
}

static void slow_piece(struct neap_ready *ready)
{
	(void)ready;
	fake_ns += 8 * MS;
}

/* What ran in a reap may be gone by the time that somebody is blamed. */
START_TEST(the_reaped_are_not_blamed)
{
	static neap_action_func *const actions[] = {
		[toy_do_start] = slow_action, [toy_do_note] = slow_action, [toy_do_fan] = slow_action, [toy_do_expire] = slow_action};
	static const struct neap_machine_kind kind = {.fsm = &neap_fsm_toy, .actions = actions};
	struct neap_reap item = {.reap = step_in_reap};
	struct neap_ready piece = {.run = slow_piece};
	struct neap_reactor_class *class_;
	neap_reactor_destroy(reactor);
	fake_ns = MS;
	create((struct neap_reactor_options){.clock = {.now_ns = fake_clock}});
	ck_assert_int_eq(neap_reactor_class_of(reactor, &kind, &class_), NEAP_OK);
	neap_machine_begin(&slow_machine, &class_->class_);
	run_until_armed();
	last_log[0] = 0;
	neap_reap_later(reactor, &item);
	neap_ready_again(reactor, &piece);
	run_until_armed();
	ck_assert_uint_eq(stats().long_turns, 1);
	ck_assert_ptr_nonnull(strstr(last_log, "a ready source"));
	ck_assert_ptr_null(strstr(last_log, "toy"));
	ck_assert_ptr_null(neap_reactor_dispatcher(reactor)->last);
	neap_machine_end(&slow_machine);
}
END_TEST

START_TEST(a_long_turn_names_its_machine)
{
	static neap_action_func *const actions[] = {
		[toy_do_start] = slow_action, [toy_do_note] = slow_action, [toy_do_fan] = slow_action, [toy_do_expire] = slow_action};
	static const struct neap_machine_kind kind = {.fsm = &neap_fsm_toy, .actions = actions};
	struct neap_reactor_class *class_;
	struct neap_timer timer = {0};
	uint64_t cost_ns = 7 * MS;
	neap_reactor_destroy(reactor);
	fake_ns = MS;
	create((struct neap_reactor_options){.clock = {.now_ns = fake_clock}});
	ck_assert_int_eq(neap_reactor_class_of(reactor, &kind, &class_), NEAP_OK);
	neap_machine_begin(&slow_machine, &class_->class_);
	neap_timer_start(reactor, &timer, 0, step_slow, &cost_ns);
	last_log[0] = 0;
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

int main(void)
{
	Suite *suite = suite_create("turns");
	TCase *turns = group(suite, "turns");
	tcase_add_test(turns, busy_never_arms);
	tcase_add_test(turns, adaptive_spins_then_arms);
	tcase_add_test(turns, a_budget_of_one_starves_nobody);
	tcase_add_test(turns, a_ready_source_runs_twice_a_turn);
	tcase_add_test(turns, the_time_budget_ends_a_turn);
	tcase_add_test(turns, what_comes_while_arming_is_found);
	tcase_add_test(turns, a_message_that_comes_while_arming_is_found);
	tcase_add_test(turns, reaps_at_the_end_of_the_turn);
	tcase_add_test(turns, a_long_turn_names_its_machine);
	tcase_add_test(turns, nobody_runs_again_before_it_is_reaped);
	tcase_add_test(turns, the_reaped_are_not_blamed);
	TCase *descriptors = group(suite, "descriptors");
	tcase_add_test(descriptors, one_combined_event_level_triggered);
	tcase_add_test(descriptors, a_hang_up_nobody_wants_does_not_spin);
	tcase_add_test(descriptors, stale_events_of_a_batch_are_dropped);
	tcase_add_test(descriptors, many_descriptors_all_get_served);
	tcase_add_test(descriptors, a_bad_descriptor_is_refused);
	TCase *late = group(suite, "late");
	tcase_add_loop_test(late, an_answer_that_is_there_is_not_late, 0, 2);
	tcase_add_test(late, a_message_that_is_there_is_not_late);
	tcase_add_loop_test(late, many_answers_that_are_there_are_not_late, 0, 2);
	tcase_add_test(late, a_flood_does_not_hold_timers);
	tcase_add_test(late, a_batch_from_before_is_no_proof);
	return run_suite(suite);
}
