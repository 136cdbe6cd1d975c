/* The encoders of the TCP data plane against bytes written by hand and against the independent encoder. */
#include "tests/support/wire_client.h"
#include "transports/tcp/wire.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static void expect(const unsigned char *got, const char *hex, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		unsigned value;
		ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &value), 1);
		ck_assert_msg(got[i] == value, "byte %zu is %02x instead of %02x", i, got[i], value);
	}
}

START_TEST(plain_header_bytes)
{
	unsigned char p[NEAP_PLAIN_HEADER_BYTES];
	neap_plain_header_put(p, 8, 0x7f0123456789u, NEAP_WRITE | NEAP_PLAIN_ACKNOWLEDGED);
	expect(p, "0800000000000000" "8967452301" "7f0000" "81" "00000000000000", sizeof p);
	struct neap_plain_header header = neap_plain_header_get(p);
	ck_assert_uint_eq(header.size, 8);
	ck_assert_uint_eq(header.address, 0x7f0123456789u);
	ck_assert_uint_eq(header.opcode, 0x81);
	ck_assert(!neap_is_hello(&header));
}
END_TEST

START_TEST(plain_status_bytes)
{
	unsigned char p[8];
	neap_put64(p, neap_plain_status(NEAP_PLAIN_OK));
	expect(p, "000000005654434d", 8);
	neap_put64(p, neap_plain_status(NEAP_PLAIN_REJECTED));
	expect(p, "010000005654434d", 8);
	neap_put64(p, neap_word_status(NEAP_WORD_REVOKED));
	expect(p, "05004e5000000000", 8);
}
END_TEST

static struct neap_hello sample_hello(void)
{
	struct neap_hello hello = {.level = 1, .flags = NEAP_HELLO_CHECKSUM, .lane = 0x1122334455667788u, .fence_lane = 7, .core = 3};
	memcpy(hello.client, "client instance.", 16);
	memcpy(hello.expected_server, "server instance.", 16);
	return hello;
}

START_TEST(hello_bytes)
{
	unsigned char p[NEAP_HELLO_BYTES], q[NEAP_HELLO_BYTES];
	struct neap_hello hello = sample_hello(), back;
	neap_hello_put(p, &hello);
	struct wire_bytes w = {.at = q, .size = sizeof q};
	wire_hello(&w, &(struct wire_hello){"client instance.", "server instance.", 0x1122334455667788u, 7, 1, 3, 1});
	ck_assert_uint_eq(w.length, sizeof q);
	ck_assert_mem_eq(p, q, sizeof q);
	struct neap_plain_header header = neap_plain_header_get(p);
	ck_assert(neap_is_hello(&header));
	ck_assert_int_eq(neap_hello_get(p, &back), NEAP_OK);
	ck_assert_uint_eq(back.level, 1);
	ck_assert_uint_eq(back.flags, hello.flags);
	ck_assert_uint_eq(back.lane, hello.lane);
	ck_assert_uint_eq(back.fence_lane, hello.fence_lane);
	ck_assert_uint_eq(back.core, hello.core);
	ck_assert_mem_eq(back.client, hello.client, 16);
	ck_assert_mem_eq(back.expected_server, hello.expected_server, 16);
}
END_TEST

START_TEST(hello_refuses)
{
	unsigned char p[NEAP_HELLO_BYTES];
	struct neap_hello hello = sample_hello(), back;
	for (size_t i = 80; i < NEAP_HELLO_BYTES; i++) {
		neap_hello_put(p, &hello);
		p[i] = 1;
		ck_assert_int_eq(neap_hello_get(p, &back), NEAP_EPROTO);
		p[12] = 2; /* a level that may have given it a meaning */
		ck_assert_int_eq(neap_hello_get(p, &back), NEAP_OK);
		ck_assert_uint_eq(back.level, 2);
	}
	neap_hello_put(p, &hello);
	p[8] ^= 1;
	ck_assert_int_eq(neap_hello_get(p, &back), NEAP_EPROTO);
	hello.lane = 0;
	neap_hello_put(p, &hello);
	ck_assert_int_eq(neap_hello_get(p, &back), NEAP_EPROTO);
}
END_TEST

START_TEST(hello_reply_bytes)
{
	unsigned char p[NEAP_HELLO_REPLY_BYTES];
	struct neap_hello_reply reply = {.code = NEAP_HELLO_OTHER_INSTANCE, .level = 1, .flags = 1, .fenced_lane = 0x0102}, back;
	memcpy(reply.server, "server instance.", 16);
	neap_hello_reply_put(p, &reply);
	expect(p, "4e454150" "02000000" "73657276657220696e7374616e63652e" "01000000" "01000000" "0201000000000000", sizeof p);
	ck_assert_int_eq(neap_hello_reply_get(p, &back), NEAP_OK);
	ck_assert_uint_eq(back.code, reply.code);
	ck_assert_uint_eq(back.level, 1);
	ck_assert_uint_eq(back.flags, 1);
	ck_assert_uint_eq(back.fenced_lane, 0x0102);
	ck_assert_mem_eq(back.server, reply.server, 16);

	memset(p, 0xEE, sizeof p);
	neap_put64(p, neap_plain_status(NEAP_PLAIN_REJECTED));
	ck_assert_int_eq(neap_hello_reply_get(p, &back), NEAP_ENOTSUP);
	neap_put64(p, 0x4154205454544820u);
	ck_assert_int_eq(neap_hello_reply_get(p, &back), NEAP_EPROTO);
}
END_TEST

START_TEST(frame_bytes)
{
	unsigned char p[NEAP_FRAME_HEAD_BYTES + NEAP_ENTRY_BYTES], q[sizeof p];
	struct neap_frame_head head = {.count = 256, .grant_count = 2};
	struct neap_entry entry = {.address = 0x7fee00001000u, .length = 1u << 20, .opcode = NEAP_WRITE, .grant = 256}, back;
	neap_frame_head_put(p, &head);
	neap_entry_put(p + NEAP_FRAME_HEAD_BYTES, &entry);
	struct wire_bytes w = {.at = q, .size = sizeof q};
	wire_frame(&w, 256, 2);
	wire_entry(&w, 1, 0x7fee00001000u, 1u << 20, 256);
	ck_assert_uint_eq(w.length, sizeof q);
	ck_assert_mem_eq(p, q, sizeof q);
	ck_assert_int_eq(neap_frame_head_get(p, &head), NEAP_OK);
	ck_assert_uint_eq(head.count, 256);
	ck_assert_uint_eq(head.grant_count, 2);
	neap_entry_get(p + NEAP_FRAME_HEAD_BYTES, &back);
	ck_assert_uint_eq(back.address, entry.address);
	ck_assert_uint_eq(back.length, entry.length);
	ck_assert_uint_eq(back.opcode, NEAP_WRITE);
	ck_assert_uint_eq(back.grant, 256);
}
END_TEST

START_TEST(frame_head_refuses)
{
	static const struct {
		uint32_t count, grants;
	} bad[] = {{0, 0}, {257, 0}, {UINT32_MAX, 0}, {1, 257}, {1, UINT32_MAX}};
	unsigned char p[NEAP_FRAME_HEAD_BYTES];
	struct neap_frame_head head;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct wire_bytes w = {.at = p, .size = sizeof p};
		wire_frame(&w, bad[i].count, bad[i].grants);
		ck_assert_int_eq(neap_frame_head_get(p, &head), NEAP_EPROTO);
	}
	for (size_t i = 0; i < sizeof p; i++) { /* any other byte of magic or reserve */
		if (i >= 4 && i < 12)
			continue;
		struct wire_bytes w = {.at = p, .size = sizeof p};
		wire_frame(&w, 1, 0);
		p[i] ^= 0x40;
		ck_assert_int_eq(neap_frame_head_get(p, &head), NEAP_EPROTO);
	}
}
END_TEST

START_TEST(checksums)
{
	unsigned char bytes[3001];
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)(i * 131 + 17);
	ck_assert_uint_eq(neap_crc32c(0, "123456789", 9), 0xE3069283u);
	ck_assert_uint_eq(wire_crc32c((const unsigned char *)"123456789", 9), 0xE3069283u);
	ck_assert_uint_eq(neap_crc32c(0, bytes, 0), 0);
	for (size_t cut = 0; cut <= sizeof bytes; cut += 61) {
		uint32_t crc = neap_crc32c(neap_crc32c(0, bytes, cut), bytes + cut, sizeof bytes - cut);
		ck_assert_uint_eq(crc, wire_crc32c(bytes, sizeof bytes));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wire");
	TCase *plain = tcase_create("plain"), *neap = tcase_create("neap");
	tcase_add_test(plain, plain_header_bytes);
	tcase_add_test(plain, plain_status_bytes);
	tcase_add_test(neap, hello_bytes);
	tcase_add_test(neap, hello_refuses);
	tcase_add_test(neap, hello_reply_bytes);
	tcase_add_test(neap, frame_bytes);
	tcase_add_test(neap, frame_head_refuses);
	tcase_add_test(neap, checksums);
	suite_add_tcase(suite, plain);
	suite_add_tcase(suite, neap);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
