/* What the suites about a bare reactor share: one reactor a test, its log, and a look at its descriptor as a host would. */
#ifndef UNIT_REACTOR_RIG_H
#define UNIT_REACTOR_RIG_H

#include "reactor/core.h"
#include "reactor/net.h"
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS UINT64_C(1000000)

static struct neap_reactor *reactor;
static char last_log[1024];

static inline void keep_log(void *user, enum neap_log_level level, const char *component, const char *message)
{
	(void)user;
	(void)level;
	snprintf(last_log, sizeof last_log, "%s: %s", component, message);
}

static inline void create(struct neap_reactor_options options)
{
	options.log = keep_log;
	ck_assert_int_eq(neap_reactor_create(&reactor, &options), NEAP_OK);
}

static inline void setup(void)
{
	create((struct neap_reactor_options){0});
}

static inline void teardown(void)
{
	ck_assert_int_eq(neap_reactor_destroy(reactor), NEAP_OK);
}

/* Whether a host that sleeps on the fd would wake within `ms`. */
static inline bool readable(int ms)
{
	struct pollfd waiting = {.fd = neap_reactor_fd(reactor), .events = POLLIN};
	int count;
	do
		count = poll(&waiting, 1, ms);
	while (count < 0 && errno == EINTR);
	return count == 1;
}

static inline int run(void)
{
	return neap_reactor_run_once(reactor, NULL);
}

static inline void run_until_armed(void)
{
	for (int i = 0; i < 1000; i++)
		if (run() == NEAP_RUN_ARMED)
			return;
	ck_abort_msg("does not come to rest");
}

static inline struct neap_reactor_stats stats(void)
{
	struct neap_reactor_stats now;
	neap_reactor_stats(reactor, &now);
	return now;
}

static inline void count(void *counter)
{
	++*(uint32_t *)counter;
}

static inline void count_fire(struct neap_timer *timer, void *counter)
{
	ck_assert(!neap_timer_active(timer));
	++*(uint32_t *)counter;
}

static inline TCase *group(Suite *suite, const char *name)
{
	TCase *tests = tcase_create(name);
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_set_timeout(tests, 60);
	suite_add_tcase(suite, tests);
	return tests;
}

static inline int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
