/* Heads of RPC frames: every field there and back, and every byte that must be refused. */
#include "store/rpc/frame.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

static char why[320];
static uint8_t bytes[NEAP_RPC_HEAD_BYTES];

static struct neap_rpc_head full_call(void)
{
	return (struct neap_rpc_head){.type = NEAP_RPC_CALL,
	                              .flags = NEAP_RPC_ONCE,
	                              .body_bytes = 0x00030201,
	                              .method = 0x0a0b0c0d,
	                              .call = UINT64_C(0x1112131415161718),
	                              .deadline_us = UINT64_C(0x2122232425262728),
	                              .epoch = UINT64_C(0x3132333435363738),
	                              .sequence = UINT64_C(0x4142434445464748),
	                              .finished_below = UINT64_C(0x5152535455565758)};
}

START_TEST(is_little_endian_at_its_places)
{
	static const uint8_t expected[NEAP_RPC_HEAD_BYTES] = {
		'N',  'R',  'P',  'C',  1,    1,    1,    0,    0x01, 0x02, 0x03, 0x00, 0x0d, 0x0c, 0x0b, 0x0a, 0x18, 0x17, 0x16,
		0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33,
		0x32, 0x31, 0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, 0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51};
	struct neap_rpc_head head = full_call(), back;
	neap_rpc_head_write(bytes, &head);
	ck_assert_mem_eq(bytes, expected, sizeof expected);
	ck_assert_int_eq(neap_rpc_head_read(bytes, NEAP_RPC_BODY_MAX_DEFAULT, &back, why, sizeof why), 0);
	ck_assert(back.type == head.type && back.flags == head.flags && back.body_bytes == head.body_bytes && back.method == head.method);
	ck_assert(back.call == head.call && back.deadline_us == head.deadline_us && back.epoch == head.epoch);
	ck_assert(back.sequence == head.sequence && back.finished_below == head.finished_below && back.status == 0);
}
END_TEST

START_TEST(carries_a_negative_status)
{
	struct neap_rpc_head head = {.type = NEAP_RPC_REPLY, .status = -704, .call = 1}, back;
	neap_rpc_head_write(bytes, &head);
	ck_assert_int_eq(neap_rpc_head_read(bytes, 4096, &back, why, sizeof why), 0);
	ck_assert(back.status == -704 && back.method == 0);
}
END_TEST

/* Refuses, and says the byte and the words. */
static void refused(int error, const char *where, const char *word)
{
	struct neap_rpc_head head;
	why[0] = '\0';
	ck_assert_int_eq(neap_rpc_head_read(bytes, 4096, &head, why, sizeof why), error);
	ck_assert_msg(strstr(why, where) && strstr(why, word), "'%s' says nothing of '%s' and '%s'", why, where, word);
}

static void fresh(uint8_t type, uint32_t body_bytes)
{
	neap_rpc_head_write(bytes, &(struct neap_rpc_head){.type = type, .body_bytes = body_bytes});
}

START_TEST(refuses_what_it_must)
{
	for (unsigned i = 0; i < 4; i++) {
		fresh(NEAP_RPC_CALL, 0);
		bytes[i] ^= 0x20;
		refused(NEAP_EPROTO, "byte 0", "magic");
	}
	fresh(NEAP_RPC_CALL, 0);
	bytes[4] = 2;
	refused(NEAP_EPROTO, "byte 4", "version 2");
	for (unsigned type = 0; type < 256; type++) {
		fresh((uint8_t)type, 0);
		struct neap_rpc_head head;
		int error = neap_rpc_head_read(bytes, 4096, &head, why, sizeof why);
		ck_assert_int_eq(error, type >= 1 && type <= 6 ? 0 : NEAP_EPROTO);
	}
	fresh(7, 0);
	refused(NEAP_EPROTO, "byte 5", "type 7");
	fresh(NEAP_RPC_CALL, 0);
	bytes[6] = 2; /* UNTOUCHED belongs to replies */
	refused(NEAP_EPROTO, "byte 6", "0002");
	fresh(NEAP_RPC_REPLY, 0);
	bytes[7] = 0x80;
	refused(NEAP_EPROTO, "byte 6", "8000");
	fresh(NEAP_RPC_CALL, 4097);
	refused(NEAP_ELIMIT, "byte 8", "4096");
	fresh(NEAP_RPC_CALL, UINT32_MAX);
	refused(NEAP_ELIMIT, "byte 8", "4294967295");
	fresh(NEAP_RPC_CANCEL, 1);
	refused(NEAP_EPROTO, "byte 8", "none");
	fresh(NEAP_RPC_GOODBYE, 1);
	refused(NEAP_EPROTO, "byte 8", "none");
}
END_TEST

START_TEST(a_hello_is_short_whatever_the_limit)
{
	struct neap_rpc_head head;
	fresh(NEAP_RPC_HELLO, NEAP_RPC_BODY_MAX_LEAST + 1);
	ck_assert_int_eq(neap_rpc_head_read(bytes, UINT32_MAX, &head, why, sizeof why), NEAP_ELIMIT);
	fresh(NEAP_RPC_HELLO, NEAP_RPC_BODY_MAX_LEAST);
	ck_assert_int_eq(neap_rpc_head_read(bytes, UINT32_MAX, &head, why, sizeof why), 0);
}
END_TEST

/* A stranger is recognised by its first byte, from memory of exactly the size that came. */
START_TEST(knows_strangers_early)
{
	fresh(NEAP_RPC_CALL, 0);
	for (size_t have = 1; have < NEAP_RPC_HEAD_BYTES; have++) {
		uint8_t *some = malloc(have);
		memcpy(some, bytes, have);
		ck_assert_int_eq(neap_rpc_head_begins(some, have, why, sizeof why), 0);
		if (have > 4) {
			some[4] = 9;
			ck_assert_int_eq(neap_rpc_head_begins(some, have, why, sizeof why), NEAP_EPROTO);
		}
		some[0] = 'G';
		ck_assert_int_eq(neap_rpc_head_begins(some, have, why, sizeof why), NEAP_EPROTO);
		free(some);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc frame");
	TCase *tcase = tcase_create("heads");
	tcase_add_test(tcase, is_little_endian_at_its_places);
	tcase_add_test(tcase, carries_a_negative_status);
	tcase_add_test(tcase, refuses_what_it_must);
	tcase_add_test(tcase, a_hello_is_short_whatever_the_limit);
	tcase_add_test(tcase, knows_strangers_early);
	suite_add_tcase(suite, tcase);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
