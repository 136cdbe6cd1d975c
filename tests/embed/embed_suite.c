/* The same tests under every host: what an application sees of Neap must not depend on whose loop it is.
 *
 * A test ends by stopping its reactor from a callback; host_run returns when the adapter has told the host that it STOPPED. A lost
 * wake-up shows as a hang, which Check ends. */
#include "tests/embed/embed_suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fdcheck embed_opened_before; /* the host's own descriptors and Check's */

/* --- a reactor in the host ---------------------------------------------------------------------------------------------- */

static void count_change(void *user)
{
	((struct embedded *)user)->changes++;
}

/* Variants of a loop test: bit 0 the host keeps the deadline, bit 1 a budget of one event and few bytes a turn. */
void embed_begin(struct embedded *e, int variant, enum neap_reactor_mode mode)
{
	static const struct neap_budget smallest = {.events_max = 1, .bytes_max = 4096, .ns_max = 1};
	struct neap_reactor_options options = {
		.mode = mode, .host_keeps_deadline = variant & 1, .on_change = count_change, .on_change_user = e};
	e->changes = 0;
	ck_assert_int_eq(neap_reactor_create(&e->reactor, &options), 0);
	host_attach(e->reactor, variant & 2 ? &smallest : NULL);
}

void embed_run(struct embedded *e)
{
	int result = host_run();
	ck_assert_msg(result == NEAP_RUN_STOPPED, "%s ended with %d", host_name, result);
	fdcheck_assert(&embed_opened_before);
	ck_assert_int_eq(support_reactor_destroy(e->reactor), 0);
}

void embed_stop(void *user)
{
	neap_reactor_stop(((struct embedded *)user)->reactor);
}

static uint64_t random_state = 88172645463325252u;

static uint32_t chance(uint32_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 32) % below;
}

/* --- an echo: `total` patterned bytes there and back ------------------------------------------------------------------------ */

#define CHUNK 65536u

struct echo {
	struct embedded *client, *server;
	struct neap_acceptor acceptor;
	struct neap_connect connect;
	struct neap_stream *ours, *theirs;
	uint64_t total, sent, received;
	unsigned char held[CHUNK]; /* server: read and not yet written back */
	size_t held_at, held_end;
	void (*finished)(struct echo *echo);
	bool done;
};

static unsigned char pattern(uint64_t at)
{
	return (unsigned char)(at * 2654435761u >> 11);
}

static void echo_server_ready(struct neap_stream *stream, unsigned ready)
{
	struct echo *echo = stream->user;
	(void)ready;
	if (echo->held_at == echo->held_end) {
		struct iovec vector = {echo->held, sizeof(echo->held)};
		ssize_t got = neap_stream_readv(stream, &vector, 1);
		if (got == 0) {
			neap_stream_close(stream, false);
			echo->theirs = NULL;
			neap_acceptor_close(&echo->acceptor);
			return;
		}
		if (got < 0)
			return;
		echo->held_at = 0;
		echo->held_end = (size_t)got;
	}
	struct iovec vector = {echo->held + echo->held_at, echo->held_end - echo->held_at};
	ssize_t put = neap_stream_writev(stream, &vector, 1);
	if (put > 0)
		echo->held_at += (size_t)put;
	neap_stream_want(stream, echo->held_at < echo->held_end ? NEAP_WRITABLE : NEAP_READABLE);
}

static void echo_accepted(struct neap_acceptor *acceptor, struct neap_stream *stream)
{
	struct echo *echo = acceptor->user;
	echo->theirs = stream;
	stream->user = echo;
	stream->ready = echo_server_ready;
	neap_stream_want(stream, NEAP_READABLE);
}

static void echo_send(struct echo *echo, struct neap_stream *stream)
{
	unsigned char bytes[20000];
	size_t length = echo->total - echo->sent < sizeof(bytes) ? (size_t)(echo->total - echo->sent) : sizeof(bytes);
	for (size_t i = 0; i < length; i++)
		bytes[i] = pattern(echo->sent + i);
	struct iovec vector = {bytes, length};
	ssize_t put = neap_stream_writev(stream, &vector, 1);
	if (put > 0)
		echo->sent += (uint64_t)put;
}

static void echo_receive(struct echo *echo, struct neap_stream *stream)
{
	unsigned char bytes[20000];
	struct iovec vector = {bytes, sizeof(bytes)};
	ssize_t got = neap_stream_readv(stream, &vector, 1);
	for (ssize_t i = 0; i < got; i++)
		if (bytes[i] != pattern(echo->received + (uint64_t)i))
			ck_abort_msg("byte %llu is wrong", (unsigned long long)echo->received + (unsigned long long)i);
	if (got > 0)
		echo->received += (uint64_t)got;
}

static void echo_client_ready(struct neap_stream *stream, unsigned ready)
{
	struct echo *echo = stream->user;
	if (ready & NEAP_READABLE)
		echo_receive(echo, stream);
	if (ready & NEAP_WRITABLE && echo->sent < echo->total)
		echo_send(echo, stream);
	if (echo->received == echo->total) {
		neap_stream_close(stream, false); /* inside its own handler */
		echo->ours = NULL;
		echo->done = true;
		echo->finished(echo);
		return;
	}
	neap_stream_want(stream, NEAP_READABLE | (echo->sent < echo->total ? (unsigned)NEAP_WRITABLE : 0));
}

static void echo_connected(struct neap_connect *connect, int error, int system_errno, struct neap_stream *stream)
{
	struct echo *echo = connect->user;
	(void)system_errno;
	ck_assert_msg(error == 0, "%s", connect->detail);
	echo->ours = stream;
	stream->user = echo;
	stream->ready = echo_client_ready;
	neap_stream_want(stream, NEAP_READABLE | NEAP_WRITABLE);
}

static void echo_start(struct echo *echo, struct embedded *client, struct embedded *server, uint64_t total,
                       void (*finished)(struct echo *echo))
{
	struct neap_sockaddr address;
	struct neap_host_port target = {.host = "127.0.0.1"};
	int system_errno;
	memset(echo, 0, sizeof(*echo));
	echo->client = client;
	echo->server = server;
	echo->total = total;
	echo->finished = finished;
	echo->acceptor.connections_max = 1;
	echo->acceptor.accepted_stream = echo_accepted;
	echo->acceptor.user = echo;
	echo->acceptor.what = "echo";
	ck_assert_int_eq(neap_sockaddr_from_numeric("127.0.0.1", 0, &address), 0);
	ck_assert_int_eq(neap_acceptor_open(&echo->acceptor, server->reactor, &address, NULL, &system_errno), 0);
	target.port = neap_acceptor_port(&echo->acceptor);
	ck_assert_int_eq(neap_connect_start(&echo->connect, client->reactor, &target, NULL, 5000000000u, echo_connected, echo), 0);
}

static struct echo echoes[4];

static void stop_both(struct echo *echo)
{
	neap_reactor_stop(echo->client->reactor);
	if (echo->server != echo->client)
		neap_reactor_stop(echo->server->reactor);
}

/* The host is ready when the test begins; its memory is the process's, which Check forks for each test. */
static struct embedded first, second;

#define MEGABYTES(n) ((uint64_t)(n) << 20)

START_TEST(echo_in_one_reactor)
{
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	echo_start(&echoes[0], &first, &first, _i & 2 ? MEGABYTES(1) : MEGABYTES(6), stop_both);
	embed_run(&first);
	ck_assert(echoes[0].done);
}
END_TEST

START_TEST(echo_between_two_reactors)
{
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	embed_begin(&second, _i, NEAP_MODE_EVENT);
	echo_start(&echoes[0], &first, &second, _i & 2 ? MEGABYTES(1) : MEGABYTES(6), stop_both);
	embed_run(&first);
	ck_assert_int_eq(support_reactor_destroy(second.reactor), 0);
	ck_assert(echoes[0].done);
}
END_TEST

START_TEST(echo_busy_and_adaptive)
{
	embed_begin(&first, _i & 1, _i & 2 ? NEAP_MODE_BUSY : NEAP_MODE_ADAPTIVE);
	echo_start(&echoes[0], &first, &first, MEGABYTES(2), stop_both);
	embed_run(&first);
	ck_assert(echoes[0].done);
}
END_TEST

static void poke(void *user)
{
	struct embedded *e = user;
	if (echoes[0].done)
		return;
	if (chance(2)) /* a turn out of the blue, as a host may run one at any time */
		ck_assert_int_gt(neap_reactor_run_once(e->reactor, NULL), 0);
	else
		neap_reactor_kick(e->reactor);
	host_after_ms(chance(3), poke, e);
}

START_TEST(extra_wake_ups)
{
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	echo_start(&echoes[0], &first, &first, MEGABYTES(1), stop_both);
	host_after_ms(1, poke, &first);
	embed_run(&first);
	ck_assert(echoes[0].done);
}
END_TEST

/* --- timers --------------------------------------------------------------------------------------------------------------- */

#define TIMERS 300

static struct neap_timer timers[TIMERS];
static struct {
	uint64_t due_ns, fired_ns;
	int fired;
	bool cancelled;
} timer_facts[TIMERS];
static unsigned timers_left;

static void timer_fires(struct neap_timer *timer, void *user)
{
	struct embedded *e = user;
	size_t i = (size_t)(timer - timers);
	timer_facts[i].fired++;
	timer_facts[i].fired_ns = neap_reactor_now_ns(e->reactor);
	if (i % 7 == 0 && i + 1 < TIMERS && timer_facts[i + 1].fired == 0 && !timer_facts[i + 1].cancelled) {
		timer_facts[i + 1].cancelled = true;
		neap_timer_cancel(e->reactor, &timers[i + 1]);
		timers_left--;
	}
	if (i % 5 == 0 && timer_facts[i].fired == 1) { /* once more, from inside */
		timer_facts[i].due_ns = timer_facts[i].fired_ns + chance(30) * 1000000u;
		neap_timer_start(e->reactor, timer, timer_facts[i].due_ns, timer_fires, e);
		return;
	}
	if (--timers_left == 0)
		neap_reactor_stop(e->reactor);
}

START_TEST(timers_on_time)
{
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	uint64_t now_ns = neap_reactor_now_ns(first.reactor);
	for (size_t i = 0; i < TIMERS; i++) {
		timer_facts[i].due_ns = now_ns + chance(100) * 1000000u + chance(1000000);
		ck_assert_int_eq(neap_timer_start(first.reactor, &timers[i], timer_facts[i].due_ns, timer_fires, &first), 0);
	}
	timers_left = TIMERS;
	embed_run(&first);
	for (size_t i = 0; i < TIMERS; i++) {
		ck_assert_int_eq(timer_facts[i].fired, timer_facts[i].cancelled ? 0 : i % 5 == 0 ? 2 : 1);
		if (timer_facts[i].cancelled)
			continue;
		ck_assert_uint_ge(timer_facts[i].fired_ns, timer_facts[i].due_ns); /* never early */
		ck_assert_uint_lt(timer_facts[i].fired_ns - timer_facts[i].due_ns, 5000000000);
	}
}
END_TEST

static void fires_and_stops(struct neap_timer *timer, void *user)
{
	(void)timer;
	embed_stop(user);
}

static void fires_never(struct neap_timer *timer, void *user)
{
	(void)timer, (void)user;
	ck_abort_msg("a timer of an hour fired");
}

static void start_earlier_timer(void *user)
{
	struct embedded *e = user;
	e->changes = 0;
	neap_timer_start(e->reactor, &timers[1], neap_reactor_now_ns(e->reactor) + 20000000, fires_and_stops, e);
	if (host_is_foreign)
		ck_assert_int_eq(e->changes, 1); /* told at once that the deadline is earlier now */
	neap_timer_cancel(e->reactor, &timers[0]);
}

/* The host sleeps on a deadline of an hour; its own timer brings the deadline forward. */
START_TEST(deadline_moved_between_turns)
{
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	neap_timer_start(first.reactor, &timers[0], neap_reactor_now_ns(first.reactor) + 3600000000000u, fires_never, &first);
	host_after_ms(20, start_earlier_timer, &first);
	embed_run(&first);
}
END_TEST

/* --- work from outside ---------------------------------------------------------------------------------------------------- */

static void start_late_echo(void *user)
{
	struct embedded *e = user;
	e->changes = 0;
	echo_start(&echoes[0], e, e, MEGABYTES(1), stop_both);
	if (host_is_foreign)
		ck_assert_int_eq(e->changes, 1);
}

START_TEST(work_given_after_armed)
{
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	host_after_ms(30, start_late_echo, &first);
	embed_run(&first);
	ck_assert(echoes[0].done);
}
END_TEST

static void stop_later(void *user)
{
	embed_stop(user);
}

START_TEST(stopped_between_turns)
{
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	host_after_ms(10, stop_later, &first);
	embed_run(&first);
}
END_TEST

#define POSTS 20000

static unsigned posts_seen;

static void posted(void *argument)
{
	struct embedded *e = argument;
	if (++posts_seen == POSTS)
		neap_reactor_stop(e->reactor);
}

static void *post_many(void *user)
{
	struct embedded *e = user;
	for (unsigned i = 0; i < POSTS;) {
		int error = neap_reactor_post(e->reactor, posted, e);
		if (error == 0)
			i++;
		else if (error != NEAP_EAGAIN)
			abort();
		if (i % 1000 == 999)
			sched_yield();
	}
	return NULL;
}

START_TEST(posts_from_a_thread)
{
	pthread_t thread;
	posts_seen = 0;
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	ck_assert_int_eq(pthread_create(&thread, NULL, post_many, &first), 0);
	int result = host_run();
	pthread_join(thread, NULL);
	ck_assert_int_eq(result, NEAP_RUN_STOPPED);
	ck_assert_uint_eq(posts_seen, POSTS);
	ck_assert_int_eq(support_reactor_destroy(first.reactor), 0);
}
END_TEST

static atomic_uint flags_raised, flags_seen;
static struct neap_poller flag_poller;

/* What a kick announces is found by looking, as at a completion queue. */
static uint32_t look_at_flag(struct neap_poller *poller, uint32_t max)
{
	(void)poller, (void)max;
	if (atomic_load(&flags_raised) == atomic_load(&flags_seen))
		return 0;
	atomic_fetch_add(&flags_seen, 1);
	if (atomic_load(&flags_seen) == 500)
		neap_reactor_stop(first.reactor);
	return 1;
}

static void *raise_flags(void *user)
{
	struct embedded *e = user;
	for (unsigned i = 0; i < 500; i++) {
		while (atomic_load(&flags_seen) != i) /* each one is waited for: a kick that is lost hangs here */
			sched_yield();
		atomic_fetch_add(&flags_raised, 1);
		neap_reactor_kick(e->reactor);
	}
	return NULL;
}

START_TEST(kicks_from_a_thread)
{
	pthread_t thread;
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	flag_poller.poll = look_at_flag;
	neap_poller_add(first.reactor, &flag_poller);
	ck_assert_int_eq(pthread_create(&thread, NULL, raise_flags, &first), 0);
	int result = host_run();
	pthread_join(thread, NULL);
	ck_assert_int_eq(result, NEAP_RUN_STOPPED);
	neap_poller_remove(first.reactor, &flag_poller);
	ck_assert_int_eq(support_reactor_destroy(first.reactor), 0);
}
END_TEST

static void kick_in_handler(int number)
{
	(void)number;
	atomic_fetch_add(&flags_raised, 1);
	neap_reactor_kick(first.reactor);
}

static uint32_t look_at_signal(struct neap_poller *poller, uint32_t max)
{
	(void)poller, (void)max;
	if (atomic_load(&flags_raised) >= 20)
		neap_reactor_stop(first.reactor);
	return 0;
}

START_TEST(kicks_from_a_signal_handler)
{
	struct itimerval every = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = kick_in_handler};
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	flag_poller.poll = look_at_signal;
	neap_poller_add(first.reactor, &flag_poller);
	ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
	int result = host_run();
	setitimer(ITIMER_REAL, &never, NULL);
	ck_assert_int_eq(result, NEAP_RUN_STOPPED);
	neap_poller_remove(first.reactor, &flag_poller);
	ck_assert_int_eq(support_reactor_destroy(first.reactor), 0);
}
END_TEST

/* --- from inside callbacks ------------------------------------------------------------------------------------------------- */

static void try_what_is_refused(struct neap_timer *timer, void *user)
{
	struct embedded *e = user;
	(void)timer;
	ck_assert_int_eq(neap_reactor_run_once(e->reactor, NULL), NEAP_EREENTERED);
	ck_assert_int_eq(neap_reactor_run_at(e->reactor, 1, NULL), NEAP_EREENTERED);
	ck_assert_int_eq(neap_reactor_destroy(e->reactor), NEAP_EREENTERED);
	neap_reactor_kick(e->reactor);
	neap_reactor_stop(e->reactor);
	neap_reactor_stop(e->reactor);
}

START_TEST(re_entry_is_refused)
{
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	neap_timer_start(first.reactor, &timers[0], neap_reactor_now_ns(first.reactor) + 5000000, try_what_is_refused, &first);
	embed_run(&first);
}
END_TEST

#define CONNECTS 50

static struct neap_connect connects[CONNECTS];
static struct neap_acceptor crowd;
static int connects_ended;

static void crowd_accepted(struct neap_acceptor *acceptor, struct neap_stream *stream)
{
	neap_stream_close(stream, acceptor->accepted % 2);
	neap_acceptor_released(acceptor);
	if (acceptor->accepted == 10)
		neap_acceptor_close(acceptor);
}

/* The first to arrive cancels all others and closes everything. */
static void one_connected(struct neap_connect *connect, int error, int system_errno, struct neap_stream *stream)
{
	struct embedded *e = connect->user;
	(void)error, (void)system_errno;
	if (stream)
		neap_stream_close(stream, true);
	if (++connects_ended < 5)
		return;
	ck_assert_int_eq(connects_ended, 5); /* none of the cancelled is told */
	for (int i = 0; i < CONNECTS; i++)
		neap_connect_cancel(&connects[i]);
	neap_acceptor_close(&crowd);
	neap_timer_start(e->reactor, &timers[0], neap_reactor_now_ns(e->reactor) + 20000000, fires_and_stops, e);
}

START_TEST(cancel_and_close_inside_callbacks)
{
	struct neap_sockaddr address;
	struct neap_host_port target = {.host = "127.0.0.1"};
	int system_errno;
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	crowd = (struct neap_acceptor){.connections_max = 4, .accepted_stream = crowd_accepted, .what = "crowd"};
	ck_assert_int_eq(neap_sockaddr_from_numeric("127.0.0.1", 0, &address), 0);
	ck_assert_int_eq(neap_acceptor_open(&crowd, first.reactor, &address, NULL, &system_errno), 0);
	target.port = neap_acceptor_port(&crowd);
	for (int i = 0; i < CONNECTS; i++)
		ck_assert_int_eq(neap_connect_start(&connects[i], first.reactor, &target, NULL, 5000000000u, one_connected, &first), 0);
	embed_run(&first);
}
END_TEST

static struct neap_reactor_stats at_detach;

static void attach_again(void *user)
{
	struct embedded *e = user;
	struct neap_reactor_stats stats;
	neap_reactor_stats(e->reactor, &stats);
	ck_assert_uint_eq(stats.turns, at_detach.turns);
	host_attach(e->reactor, NULL);
	neap_timer_start(e->reactor, &timers[1], neap_reactor_now_ns(e->reactor) + 5000000, fires_and_stops, e);
}

static void detach_inside(struct neap_timer *timer, void *user)
{
	struct embedded *e = user;
	(void)timer;
	host_detach(e->reactor);
	neap_reactor_stats(e->reactor, &at_detach); /* this turn is counted already */
	host_after_ms(30, attach_again, e);
}

/* The adapter is stopped by a callback of the reactor it runs, and another one takes over later. */
START_TEST(adapter_stopped_inside_a_callback)
{
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	neap_timer_start(first.reactor, &timers[0], neap_reactor_now_ns(first.reactor) + 5000000, detach_inside, &first);
	embed_run(&first);
}
END_TEST

/* --- rest ----------------------------------------------------------------------------------------------------------------- */

static struct neap_reactor_stats idle_before;

static void idle_ends(void *user)
{
	struct embedded *e = user;
	struct neap_reactor_stats stats;
	neap_reactor_stats(e->reactor, &stats);
	/* One timer of the reactor in between, with its arming, and what wakes us for this callback. */
	if (stats.turns - idle_before.turns > 8)
		ck_abort_msg("%llu turns while idle", (unsigned long long)(stats.turns - idle_before.turns));
	neap_reactor_stop(e->reactor);
}

static void fires_once(struct neap_timer *timer, void *user)
{
	(void)timer, (void)user;
}

static void idle_begins(void *user)
{
	struct embedded *e = user;
	neap_reactor_stats(e->reactor, &idle_before);
	neap_timer_start(e->reactor, &timers[0], neap_reactor_now_ns(e->reactor) + 250000000, fires_once, e);
	host_after_ms(500, idle_ends, e);
}

START_TEST(idle_sleeps)
{
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	host_after_ms(20, idle_begins, &first);
	embed_run(&first);
}
END_TEST

static void fork_inside(struct neap_timer *timer, void *user)
{
	struct embedded *e = user;
	int status = -1;
	(void)timer;
	pid_t child = fork();
	if (child == 0) {
		bool refused = neap_reactor_run_once(e->reactor, NULL) == NEAP_EFORKED &&
		               neap_reactor_post(e->reactor, posted, e) == NEAP_EFORKED && neap_reactor_destroy(e->reactor) == NEAP_EFORKED;
		neap_reactor_kick(e->reactor);
		_exit(refused ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

START_TEST(forked_child_is_refused)
{
	embed_begin(&first, _i, NEAP_MODE_EVENT);
	neap_timer_start(first.reactor, &timers[0], neap_reactor_now_ns(first.reactor) + 1000000, fork_inside, &first);
	echo_start(&echoes[0], &first, &first, MEGABYTES(2), stop_both);
	embed_run(&first);
	ck_assert(echoes[0].done);
}
END_TEST

void embed_fresh_host(void)
{
	host_begin();
	fdcheck_begin(&embed_opened_before);
}

int main(void)
{
	char title[64];
	snprintf(title, sizeof(title), "embed under %s", host_name);
	Suite *suite = suite_create(title);
	TCase *core = tcase_create("reactor");
	const int variants = host_is_foreign ? 4 : 2;
	tcase_add_checked_fixture(core, embed_fresh_host, host_end);
	tcase_set_timeout(core, 30);
	tcase_add_loop_test(core, echo_in_one_reactor, 0, variants);
	tcase_add_loop_test(core, echo_busy_and_adaptive, 0, 4);
	tcase_add_loop_test(core, timers_on_time, 0, variants);
	tcase_add_loop_test(core, deadline_moved_between_turns, 0, variants);
	tcase_add_loop_test(core, work_given_after_armed, 0, variants);
	tcase_add_loop_test(core, stopped_between_turns, 0, variants);
	tcase_add_loop_test(core, posts_from_a_thread, 0, variants);
	tcase_add_loop_test(core, kicks_from_a_thread, 0, variants);
	tcase_add_loop_test(core, kicks_from_a_signal_handler, 0, variants);
	tcase_add_loop_test(core, re_entry_is_refused, 0, variants);
	tcase_add_loop_test(core, cancel_and_close_inside_callbacks, 0, variants);
	tcase_add_loop_test(core, idle_sleeps, 0, 2);
	tcase_add_loop_test(core, forked_child_is_refused, 0, variants);
	if (host_is_foreign) {
		tcase_add_loop_test(core, echo_between_two_reactors, 0, variants);
		tcase_add_loop_test(core, extra_wake_ups, 0, variants);
		tcase_add_loop_test(core, adapter_stopped_inside_a_callback, 0, variants);
	}
	suite_add_tcase(suite, core);
	embed_add_engine_tests(suite);
	SRunner *runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_FORK); /* each test needs a process of its own */
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
