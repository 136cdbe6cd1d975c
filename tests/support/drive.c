#include "tests/support/drive.h"
#include "tests/support/coverage.h"

#include <check.h>
#include <poll.h>
#include <time.h>

#define REACTORS_MAX 64

uint64_t drive_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* True: one of them had more to do. */
static bool run_each(struct neap_reactor *const *reactors, size_t count, uint64_t *wake_ns)
{
	bool more = false;
	for (size_t i = 0; i < count; i++) {
		int answer = neap_reactor_run_once(reactors[i], NULL);
		if (answer <= 0) /* not an assertion: Check writes to a file at each */
			ck_abort_msg("run_once: %s", neap_error_name(answer));
		more = more || answer == NEAP_RUN_MORE;
	}
	/* A later one of them may have given work to an earlier one: the deadline is asked when all have run. */
	for (size_t i = 0; i < count; i++)
		if (neap_reactor_deadline_ns(reactors[i]) < *wake_ns)
			*wake_ns = neap_reactor_deadline_ns(reactors[i]);
	return more;
}

static void sleep_until(struct neap_reactor *const *reactors, size_t count, uint64_t wake_ns)
{
	struct pollfd fds[REACTORS_MAX];
	uint64_t now_ns = drive_now_ns();
	uint64_t left_ns = wake_ns > now_ns ? wake_ns - now_ns : 0;
	struct timespec timeout = {(time_t)(left_ns / 1000000000u), (long)(left_ns % 1000000000u)};
	for (size_t i = 0; i < count; i++)
		fds[i] = (struct pollfd){.fd = neap_reactor_fd(reactors[i]), .events = POLLIN};
	(void)ppoll(fds, (nfds_t)count, &timeout, NULL);
}

bool drive_all_until(struct neap_reactor *const *reactors, size_t count, bool (*holds)(void *user), void *user, unsigned limit_ms)
{
	uint64_t limit_ns = drive_now_ns() + limit_ms * UINT64_C(1000000);
	ck_assert_uint_le(count, REACTORS_MAX);
	while (!holds(user)) {
		uint64_t wake_ns = limit_ns;
		bool more = run_each(reactors, count, &wake_ns);
		if (holds(user))
			return true;
		if (drive_now_ns() >= limit_ns)
			return false;
		if (!more)
			sleep_until(reactors, count, wake_ns);
	}
	return true;
}

static bool flag_holds(void *user)
{
	return *(const bool *)user;
}

bool drive_until(struct neap_reactor *reactor, const bool *flag, unsigned limit_ms)
{
	return drive_all_until(&reactor, 1, flag_holds, (void *)(uintptr_t)flag, limit_ms);
}

void drive_for(struct neap_reactor *reactor, unsigned ms)
{
	bool never = false;
	(void)drive_until(reactor, &never, ms);
}

void drive_turns(struct neap_reactor *reactor, unsigned count)
{
	const struct neap_budget untimed = {.ns_max = UINT64_MAX};
	while (count-- > 0)
		ck_assert_int_gt(neap_reactor_run_once(reactor, &untimed), 0);
}

void drive_to_end(struct neap_reactor *reactor)
{
	uint64_t limit_ns = drive_now_ns() + UINT64_C(30000000000);
	neap_reactor_stop(reactor);
	for (;;) {
		uint64_t wake_ns = limit_ns;
		int answer = neap_reactor_run_once(reactor, NULL);
		if (answer == NEAP_RUN_STOPPED)
			break;
		ck_assert_msg(answer > 0, "run_once: %s", neap_error_name(answer));
		ck_assert_msg(drive_now_ns() < limit_ns, "the reactor does not stop");
		if (answer == NEAP_RUN_ARMED) {
			if (neap_reactor_deadline_ns(reactor) < wake_ns)
				wake_ns = neap_reactor_deadline_ns(reactor);
			sleep_until(&reactor, 1, wake_ns);
		}
	}
	int error = support_reactor_destroy(reactor);
	ck_assert_msg(error == 0, "destroy: %s", neap_error_name(error));
}
