#include "reactor/mailbox.h"
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define SLOTS 64u
#define PRODUCERS 4u
#define EACH 20000u

struct producer {
	struct neap_mailbox *mailbox;
	uintptr_t number;
	uint64_t refused;
};

static void nothing(void *argument)
{
	(void)argument;
}

static void *produce(void *user)
{
	struct producer *producer = user;
	for (uintptr_t i = 0; i < EACH;) {
		if (neap_mailbox_put(producer->mailbox, nothing, (void *)(producer->number << 32 | i)) == NEAP_OK) {
			i++;
		} else {
			producer->refused++;
			sched_yield();
		}
	}
	return NULL;
}

/* Each message arrives once, and those of one thread in its order. */
START_TEST(many_threads_to_one)
{
	static struct neap_letter letters[SLOTS];
	struct neap_mailbox mailbox;
	struct producer producers[PRODUCERS];
	pthread_t threads[PRODUCERS];
	uintptr_t expected[PRODUCERS] = {0};
	neap_mailbox_init(&mailbox, letters, SLOTS);
	for (uintptr_t i = 0; i < PRODUCERS; i++) {
		producers[i] = (struct producer){&mailbox, i, 0};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
	}
	uint32_t wrong = 0;
	for (uint32_t taken = 0; taken < PRODUCERS * EACH;) {
		neap_message_func *run;
		void *argument;
		if (!neap_mailbox_take(&mailbox, &run, &argument)) {
			sched_yield();
			continue;
		}
		uintptr_t from = (uintptr_t)argument >> 32, number = (uintptr_t)argument & UINT32_MAX;
		if (run != nothing || from >= PRODUCERS || number != expected[from]++)
			wrong++;
		taken++;
	}
	ck_assert_uint_eq(wrong, 0);
	for (uint32_t i = 0; i < PRODUCERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert(neap_mailbox_empty(&mailbox));
}
END_TEST

START_TEST(refuses_when_full)
{
	struct neap_letter letters[4];
	struct neap_mailbox mailbox;
	neap_message_func *run;
	void *argument;
	neap_mailbox_init(&mailbox, letters, 4);
	for (uintptr_t round = 0; round < 10; round++) {
		for (uintptr_t i = 0; i < 4; i++)
			ck_assert_int_eq(neap_mailbox_put(&mailbox, nothing, (void *)(round * 4 + i)), NEAP_OK);
		ck_assert_int_eq(neap_mailbox_put(&mailbox, nothing, NULL), NEAP_EAGAIN);
		for (uintptr_t i = 0; i < 4; i++) {
			ck_assert(neap_mailbox_take(&mailbox, &run, &argument));
			ck_assert_uint_eq((uintptr_t)argument, round * 4 + i);
		}
		ck_assert(!neap_mailbox_take(&mailbox, &run, &argument));
	}
}
END_TEST

/* Positions are 32 bits and wrap. */
START_TEST(positions_wrap)
{
	struct neap_letter letters[4];
	struct neap_mailbox mailbox;
	neap_message_func *run;
	void *argument;
	neap_mailbox_init(&mailbox, letters, 4);
	uint32_t begin = UINT32_MAX - 5;
	mailbox.head = begin;
	atomic_store(&mailbox.tail, begin);
	for (uint32_t i = 0; i < 4; i++)
		atomic_store(&letters[(begin + i) & 3].sequence, begin + i);
	for (uintptr_t i = 0; i < 20; i++) {
		ck_assert_int_eq(neap_mailbox_put(&mailbox, nothing, (void *)i), NEAP_OK);
		ck_assert_int_eq(neap_mailbox_put(&mailbox, nothing, (void *)(i + 100)), NEAP_OK);
		ck_assert(neap_mailbox_take(&mailbox, &run, &argument));
		ck_assert_uint_eq((uintptr_t)argument, i);
		ck_assert(neap_mailbox_take(&mailbox, &run, &argument));
		ck_assert_uint_eq((uintptr_t)argument, i + 100);
	}
	ck_assert(neap_mailbox_empty(&mailbox));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mailbox");
	TCase *ring = tcase_create("ring");
	tcase_set_timeout(ring, 60);
	tcase_add_test(ring, refuses_when_full);
	tcase_add_test(ring, positions_wrap);
	tcase_add_test(ring, many_threads_to_one);
	suite_add_tcase(suite, ring);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
