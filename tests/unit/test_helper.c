/* The helper's thread: jobs run elsewhere, in order, and come back in a turn. */
#include "reactor/helper.h"
#include "tests/support/drive.h"
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#define JOBS 2000u

struct counted {
	struct neap_helper_job job; /* first */
	uint32_t number;
	bool ran;
};

static struct {
	struct neap_reactor *reactor;
	struct neap_helper *helper;
	pthread_t owner;
	struct counted jobs[JOBS];
	uint32_t runs; /* the helper's */
	uint32_t done;
	uint32_t again;
	bool all;
} rig;

static void run(struct neap_helper_job *job)
{
	struct counted *counted = (struct counted *)(void *)job;
	ck_assert(!pthread_equal(pthread_self(), rig.owner));
	ck_assert_uint_eq(counted->number % JOBS, rig.runs++ % JOBS);
	counted->ran = true;
}

static void done(struct neap_helper_job *job)
{
	struct counted *counted = (struct counted *)(void *)job;
	ck_assert(pthread_equal(pthread_self(), rig.owner));
	ck_assert(neap_reactor_in_turn(rig.reactor));
	ck_assert(counted->ran);
	ck_assert_uint_eq(counted->number, rig.done % JOBS);
	counted->ran = false;
	if (rig.again) {
		rig.again--;
		neap_helper_submit(rig.helper, job);
	}
	rig.all = ++rig.done == 2 * JOBS;
}

START_TEST(jobs_run_elsewhere_in_order_and_may_be_given_again)
{
	char why[128];
	rig.owner = pthread_self();
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, NULL), NEAP_OK);
	ck_assert_int_eq(neap_helper_begin(rig.reactor, JOBS, &rig.helper, why, sizeof why), NEAP_OK);
	rig.again = JOBS;
	for (uint32_t i = 0; i < JOBS; i++) {
		rig.jobs[i] = (struct counted){.job = {.run = run, .done = done}, .number = i};
		neap_helper_submit(rig.helper, &rig.jobs[i].job);
	}
	ck_assert_uint_eq(rig.done, 0); /* never from inside */
	ck_assert(drive_until(rig.reactor, &rig.all, 20000));
	neap_helper_end(rig.helper);
	drive_to_end(rig.reactor);
}
END_TEST

static void *refuse(void *user, size_t bytes)
{
	uint32_t *left = user;
	if (*left == 0)
		return NULL;
	--*left;
	return calloc(1, bytes);
}

static void release(void *user, void *memory, size_t bytes)
{
	(void)user;
	(void)bytes;
	free(memory);
}

START_TEST(without_memory_there_is_none)
{
	uint32_t left = UINT32_MAX;
	char why[128];
	struct neap_reactor_options options = {.alloc = {refuse, release, &left}};
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, &options), NEAP_OK);
	for (left = 0; left < 2; left++) {
		uint32_t kept = left;
		ck_assert_int_eq(neap_helper_begin(rig.reactor, 8, &rig.helper, why, sizeof why), NEAP_ENOMEM);
		ck_assert_str_eq(why, "out of memory");
		left = kept;
	}
	left = UINT32_MAX;
	drive_to_end(rig.reactor);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("helper");
	TCase *tests = tcase_create("helper");
	tcase_add_test(tests, jobs_run_elsewhere_in_order_and_may_be_given_again);
	tcase_add_test(tests, without_memory_there_is_none);
	tcase_set_timeout(tests, 60);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
