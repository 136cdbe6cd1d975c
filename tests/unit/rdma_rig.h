/* What the suites about RDMA share: a reactor on virtual time, simulated verbs with two devices, a helper without a thread. */
#ifndef UNIT_RDMA_RIG_H
#define UNIT_RDMA_RIG_H

#include "tests/support/coverage.h"
#include "tests/support/sim_helper.h"
#include "tests/support/sim_verbs.h"
#include "transports/rdma/device.h"
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

static struct {
	struct neap_reactor *reactor;
	struct sim_verbs sim;
	struct sim_helper helper;
	struct sim_device *rxe0, *rxe1;
	uint64_t now_ns;
	char log[4096]; /* all lines, warnings and errors only */
} rig;

static inline uint64_t rig_clock(void *user)
{
	(void)user;
	return rig.now_ns;
}

static inline void rig_log(void *user, enum neap_log_level level, const char *component, const char *message)
{
	size_t used = strlen(rig.log);
	(void)user;
	(void)component;
	if (level <= NEAP_LOG_WARNING)
		(void)snprintf(rig.log + used, sizeof rig.log - used, "%s\n", message);
}

/* How often it was said. */
static inline uint32_t rig_logged(const char *part)
{
	uint32_t count = 0;
	for (const char *at = rig.log; (at = strstr(at, part)); at++)
		count++;
	return count;
}

static inline void rig_begin(void)
{
	memset(&rig, 0, sizeof rig);
	rig.now_ns = MS;
	struct neap_reactor_options options = {.clock = {.now_ns = rig_clock}, .log = rig_log};
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, &options), NEAP_OK);
	(void)neap_reactor_run_at(rig.reactor, rig.now_ns, NULL);
	sim_helper_begin(&rig.helper, rig.reactor, MS);
	sim_verbs_begin(&rig.sim, rig.reactor, 7);
	rig.rxe0 = sim_verbs_add(&rig.sim, "rxe0");
	rig.rxe1 = sim_verbs_add(&rig.sim, "rxe1");
}

static inline void rig_end(void)
{
	neap_helper_end(&rig.helper.base);
	sim_verbs_end(&rig.sim);
	ck_assert_int_eq(support_reactor_destroy(rig.reactor), NEAP_OK);
}

/* Turns until nothing is left for this moment. */
static inline void rig_turns(void)
{
	for (int i = 0; i < 10000; i++)
		if (neap_reactor_run_at(rig.reactor, rig.now_ns, NULL) != NEAP_RUN_MORE)
			return;
	ck_abort_msg("does not come to rest");
}

/* Virtual time passes: from deadline to deadline. */
static inline void rig_pass(uint64_t ns)
{
	uint64_t end = rig.now_ns + ns;
	rig_turns();
	while (rig.now_ns < end) {
		uint64_t due = neap_reactor_deadline_ns(rig.reactor);
		rig.now_ns = due <= rig.now_ns ? rig.now_ns + 1 : due < end ? due : end;
		rig_turns();
	}
}

static inline int rig_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
