/* Bodies of RPC frames: structs there and back; what is refused, by name; hostile lengths, before anything is allocated for them. */
#include "tests/support/coverage.h"
#include "tests/unit/rpc_sample.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

static char why[320];
static struct neap_reactor *reactor;
static struct neap_rpc_decoder decoder;
static uint8_t buffer[1u << 16];

static void open_decoder(void)
{
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), 0);
	ck_assert_int_eq(neap_rpc_decoder_open(&decoder, reactor, 4096), 0);
}

static void close_decoder(void)
{
	neap_rpc_decoder_close(&decoder);
	ck_assert_int_eq(support_reactor_destroy(reactor), 0);
}

static size_t encode(const struct neap_rpc_message *message, const void *data)
{
	struct neap_rpc_writer writer = {buffer, sizeof buffer, 0};
	ck_assert_int_eq(neap_rpc_encode(&writer, message, data, why, sizeof why), 0);
	ck_assert_uint_le(writer.length, sizeof buffer);
	return writer.length;
}

/* From memory of exactly its size, which lives until the next call. */
static uint8_t *body;

static int decode(const struct neap_rpc_message *message, const void *bytes, size_t length, const void **data_p)
{
	free(body);
	body = malloc(length ? length : 1);
	memcpy(body, bytes, length);
	why[0] = '\0';
	return neap_rpc_decode(&decoder, message, body, length, data_p, why, sizeof why);
}

/* --- there and back --------------------------------------------------------------------------------------------------- */

static struct sample whole_sample(struct sample_item items[2])
{
	items[0] = (struct sample_item){.name = {"first", 5}, .size = 7};
	items[1] = (struct sample_item){.name = {"second", 6}};
	return (struct sample){.key = {"k\0ey", 4}, .size = UINT64_MAX, .shift = -1000, .firm = true, .payload = {"\x01\x02\x00\x03", 4},
	                       .items = {items, 2}};
}

START_TEST(comes_back_as_it_went)
{
	struct sample_item items[2];
	struct sample sample = whole_sample(items);
	const void *data;
	size_t length = encode(&neap_rpc_message_sample, &sample);
	ck_assert_int_eq(decode(&neap_rpc_message_sample, buffer, length, &data), 0);
	const struct sample *back = data;
	ck_assert(back->key.length == 4 && memcmp(back->key.bytes, "k\0ey", 4) == 0 && back->size == UINT64_MAX && back->shift == -1000);
	ck_assert(back->firm && back->payload.length == 4 && memcmp(back->payload.bytes, "\x01\x02\x00\x03", 4) == 0);
	ck_assert_uint_eq(back->items.count, 2);
	const struct sample_item *item = back->items.items;
	ck_assert(item[0].size == 7 && item[1].size == 0 && memcmp(item[1].name.bytes, "second", 6) == 0);
	/* views into the body: nothing was copied */
	ck_assert((const uint8_t *)back->key.bytes > body && (const uint8_t *)back->key.bytes < body + length);
	ck_assert((const uint8_t *)item[1].name.bytes > body && (const uint8_t *)item[1].name.bytes < body + length);
}
END_TEST

START_TEST(sends_no_defaults_and_fills_them_in)
{
	struct sample_defaulted same = sample_defaults, other = {.copies = 3, .strict = false, .colour = {"red", 3}};
	const void *data;
	size_t length = encode(&neap_rpc_message_sample_defaulted, &same);
	ck_assert_uint_eq(length, 1);
	ck_assert_int_eq(decode(&neap_rpc_message_sample_defaulted, buffer, length, &data), 0);
	const struct sample_defaulted *back = data;
	ck_assert(back->copies == 2 && back->strict && back->colour.length == 4 && memcmp(back->colour.bytes, "blue", 4) == 0);
	length = encode(&neap_rpc_message_sample_defaulted, &other);
	ck_assert_int_eq(decode(&neap_rpc_message_sample_defaulted, buffer, length, &data), 0);
	back = data;
	ck_assert(back->copies == 3 && !back->strict && memcmp(back->colour.bytes, "red", 3) == 0);
}
END_TEST

START_TEST(a_small_writer_counts_on)
{
	struct sample_item items[2];
	struct sample sample = whole_sample(items);
	size_t length = encode(&neap_rpc_message_sample, &sample);
	for (size_t capacity = 0; capacity < length; capacity++) {
		uint8_t *small = malloc(capacity ? capacity : 1);
		struct neap_rpc_writer writer = {small, capacity, 0};
		ck_assert_int_eq(neap_rpc_encode(&writer, &neap_rpc_message_sample, &sample, why, sizeof why), 0);
		ck_assert_uint_eq(writer.length, length);
		free(small);
	}
}
END_TEST

START_TEST(refuses_to_send_what_would_be_refused)
{
	struct neap_rpc_writer writer = {buffer, sizeof buffer, 0};
	struct sample sample = {.shift = -1001};
	ck_assert_int_eq(neap_rpc_encode(&writer, &neap_rpc_message_sample, &sample, why, sizeof why), NEAP_EINVAL);
	ck_assert_str_eq(why, "field `shift` of `Sample`: 1001; the limit is 1000");
	char text[100] = {0};
	sample = (struct sample){.key = {text, 65}};
	ck_assert_int_eq(neap_rpc_encode(&writer, &neap_rpc_message_sample, &sample, why, sizeof why), NEAP_EINVAL);
	struct sample_item item = {.name = {"too long name", 13}};
	sample = (struct sample){.items = {&item, 1}};
	ck_assert_int_eq(neap_rpc_encode(&writer, &neap_rpc_message_sample, &sample, why, sizeof why), NEAP_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "`name` of `Item`"));
}
END_TEST

/* --- what is not this message --------------------------------------------------------------------------------------------- */

static const struct {
	const char *bytes;
	size_t length;
	int error;
	const char *said;
} cases[] = {
#define CASE(text, error, said) {text, sizeof(text) - 1, error, said}
	CASE("\x82\xa3key\xa1k\xa4size\x05", 0, ""),
	CASE("\x83\xa5other\x93\x01\x02\xc0\xa3key\xa1k\xa4size\x05", 0, ""),             /* an unknown key */
	CASE("\x83\x07\x08\xa3key\xa1k\xa4size\x05", 0, ""),                             /* a key that is no text */
	CASE("\x83\xa4key\0\xa1x\xa3key\xa1k\xa4size\x05", 0, ""),                       /* `key` and a NUL is another key */
	CASE("\x82\xa3key\xa1k\xa4size\xa1x", NEAP_EREQUEST, "field `size` of `Sample`: expected an unsigned integer, got text"),
	CASE("\x82\xa3key\xa1k\xa4size\xff", NEAP_EREQUEST, "expected an unsigned integer, got a negative integer"),
	CASE("\x82\xa3key\xa1k\xa4size\xcb\x7f\xf8\0\0\0\0\0\0", NEAP_EREQUEST, "got a float"), /* NaN */
	CASE("\x82\xa3key\xc4\x01k\xa4size\x05", NEAP_EREQUEST, "field `key` of `Sample`: expected text, got bytes"),
	CASE("\x82\xa3key\xc0\xa4size\x05", NEAP_EREQUEST, "got nil"),
	CASE("\x82\xa3key\xd4\x01\x02\xa4size\x05", NEAP_EREQUEST, "got an extension"),
	CASE("\x81\xa3key\xa1k", NEAP_EREQUEST, "field `size` of `Sample` is missing"),
	CASE("\x80", NEAP_EREQUEST, "field `key` of `Sample` is missing"),
	CASE("\x83\xa3key\xa1k\xa4size\x05\xa4size\x06", NEAP_EREQUEST, "field `size` of `Sample` comes twice"),
	CASE("\x83\xa3key\xa1k\xa4size\x05\xa5shift\xcd\x03\xe9", NEAP_EREQUEST, "field `shift` of `Sample`: 1001; the limit is 1000"),
	CASE("\x83\xa3key\xa1k\xa4size\x05\xa5shift\xd1\xfc\x17", NEAP_EREQUEST, "1001; the limit is 1000"),
	CASE("\x83\xa3key\xa1k\xa4size\x05\xa5shift\xd1\xfc\x18", 0, ""),
	CASE("\x83\xa3key\xa1k\xa4size\x05\xa5shift\xcf\xff\xff\xff\xff\xff\xff\xff\xff", NEAP_EREQUEST, "expected an integer"),
	CASE("\x83\xa3key\xa1k\xa4size\x05\xa5items\x80", NEAP_EREQUEST, "expected an array, got a map"),
	CASE("\x83\xa3key\xa1k\xa4size\x05\xa5items\x91\x01", NEAP_EREQUEST, "`Item`: expected a map, got an unsigned integer"),
	CASE("\x83\xa3key\xa1k\xa4size\x05\xa5items\x91\x80", NEAP_EREQUEST, "field `name` of `Item` is missing"),
	CASE("\x83\xa3key\xa1k\xa4size\x05\xa5items\x91\x81\xa4name\xa9" "123456789", NEAP_EREQUEST, "`name` of `Item`: 9; the limit is 8"),
	/* hostile */
	CASE("", NEAP_EPROTO, "byte 0: nothing"),
	CASE("\x90", NEAP_EPROTO, "an array where a map must be"),
	CASE("\xdd\xff\0\0\0", NEAP_EPROTO, "byte 0"),
	CASE("\xdf\xff\xff\xff\xff", NEAP_EPROTO, "a map of 4294967295, and 0 bytes are left"),
	CASE("\x81\xa1x\xdd\xff\0\0\0", NEAP_EPROTO, "body at byte 3: an array of 4278190080, and 0 bytes are left"),
	CASE("\x81\xa1x\xdb\xff\xff\xff\xff", NEAP_EPROTO, "text of 4294967295"),
	CASE("\x81\xa1x\xc6\xff\xff\xff\xff\x01", NEAP_EPROTO, "bytes of 4294967295, and 1 bytes are left"),
	CASE("\x81\xa1x\xc9\xff\xff\xff\xff\x01", NEAP_EPROTO, "an extension of 4294967295"),
	CASE("\x81\xa1x\xc1", NEAP_EPROTO, "body at byte 3: c1 begins no value"),
	CASE("\x80\x00", NEAP_EPROTO, "1 bytes behind its end"),
	CASE("\x81\xa1x", NEAP_EPROTO, "byte 0: a map of 1, and"), /* see below: 2 bytes are there for 2 values */
};

START_TEST(judges_by_name)
{
	const void *data;
	if (strcmp(cases[_i].said, "byte 0: a map of 1, and") == 0) { /* counts fit, the value does not come */
		ck_assert_int_eq(decode(&neap_rpc_message_sample, cases[_i].bytes, cases[_i].length, &data), NEAP_EPROTO);
		ck_assert_ptr_nonnull(strstr(why, "it ends in the middle"));
		return;
	}
	int error = decode(&neap_rpc_message_sample, cases[_i].bytes, cases[_i].length, &data);
	ck_assert_msg(error == cases[_i].error, "case %d: %d: %s", _i, error, why);
	ck_assert_msg(strstr(why, cases[_i].said) != NULL, "case %d: '%s' does not say '%s'", _i, why, cases[_i].said);
}
END_TEST

START_TEST(every_truncation_is_refused)
{
	struct sample_item items[2];
	struct sample sample = whole_sample(items);
	const void *data;
	size_t length = encode(&neap_rpc_message_sample, &sample);
	for (size_t cut = 0; cut < length; cut++)
		ck_assert_int_eq(decode(&neap_rpc_message_sample, buffer, cut, &data), NEAP_EPROTO);
}
END_TEST

/* Any value of any byte gives an answer, never an access outside. */
START_TEST(every_byte_may_be_anything)
{
	struct sample_item items[2];
	struct sample sample = whole_sample(items);
	const void *data;
	size_t length = encode(&neap_rpc_message_sample, &sample), accepted = 0;
	for (size_t at = 0; at < length; at++) {
		uint8_t saved = buffer[at];
		for (unsigned value = 0; value < 256; value++) {
			buffer[at] = (uint8_t)value;
			int error = decode(&neap_rpc_message_sample, buffer, length, &data);
			ck_assert(error == 0 || error == NEAP_EPROTO || error == NEAP_EREQUEST || error == NEAP_ELIMIT);
			accepted += error == 0;
		}
		buffer[at] = saved;
	}
	ck_assert_uint_ge(accepted, length); /* at least each byte as it was */
}
END_TEST

/* --- bounds ----------------------------------------------------------------------------------------------------------------- */

START_TEST(nests_only_so_deep)
{
	/* maps in maps under an unknown key; the outermost is the first level */
	for (unsigned depth = 1; depth <= NEAP_RPC_DEPTH_MAX + 1; depth++) {
		size_t length = 0;
		for (unsigned i = 0; i < depth; i++) {
			memcpy(buffer + length, "\x81\xa1x", 3);
			length += 3;
		}
		buffer[length++] = 0xc0;
		int error = neap_rpc_scan(buffer, length, why, sizeof why);
		ck_assert_int_eq(error, depth <= NEAP_RPC_DEPTH_MAX ? 0 : NEAP_ELIMIT);
	}
	ck_assert_ptr_nonnull(strstr(why, "nested deeper than 16"));
}
END_TEST

/* What killed decoders elsewhere: thousands of nested arrays that each announce 65535. */
START_TEST(an_avalanche_is_refused_at_its_start)
{
	size_t length = 3;
	memcpy(buffer, "\x81\xa1x", 3);
	for (unsigned i = 0; i < 20000; i++) {
		memcpy(buffer + length, "\xdc\xff\xff", 3);
		length += 3;
	}
	ck_assert_int_eq(neap_rpc_scan(buffer, length, why, sizeof why), NEAP_EPROTO);
	ck_assert_ptr_nonnull(strstr(why, "array of 65535"));
}
END_TEST

START_TEST(has_only_so_many_values)
{
	size_t length = (size_t)NEAP_RPC_VALUES_MAX + 16;
	uint8_t *large = calloc(1, length);
	memcpy(large, "\x81\xa1x\xdd\x00\x01\x00\x00", 8); /* 65536 small numbers, and the map's three values */
	ck_assert_int_eq(neap_rpc_scan(large, 8 + 65536, why, sizeof why), NEAP_ELIMIT);
	ck_assert_ptr_nonnull(strstr(why, "65536 values"));
	memcpy(large, "\x81\xa1x\xdd\x00\x00\xff\xfd", 8);
	ck_assert_int_eq(neap_rpc_scan(large, 8 + 65533, why, sizeof why), 0);
	free(large);
}
END_TEST

START_TEST(lists_fit_into_the_arena)
{
	struct sample_item items[200];
	for (unsigned i = 0; i < 200; i++)
		items[i] = (struct sample_item){.name = {"n", 1}};
	unsigned fits = 4096 / sizeof(struct sample_item);
	struct sample sample = {.key = {"k", 1}, .items = {items, fits}};
	const void *data;
	size_t length = encode(&neap_rpc_message_sample, &sample);
	ck_assert_int_eq(decode(&neap_rpc_message_sample, buffer, length, &data), 0);
	sample.items.count = fits + 1;
	length = encode(&neap_rpc_message_sample, &sample);
	ck_assert_int_eq(decode(&neap_rpc_message_sample, buffer, length, &data), NEAP_EREQUEST);
	ck_assert_ptr_nonnull(strstr(why, "arena_bytes"));
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("rpc body");
	TCase *there = tcase_create("there and back"), *names = tcase_create("judgement"), *bounds = tcase_create("bounds");
	tcase_add_checked_fixture(there, open_decoder, close_decoder);
	tcase_add_checked_fixture(names, open_decoder, close_decoder);
	tcase_add_checked_fixture(bounds, open_decoder, close_decoder);
	tcase_add_test(there, comes_back_as_it_went);
	tcase_add_test(there, sends_no_defaults_and_fills_them_in);
	tcase_add_test(there, a_small_writer_counts_on);
	tcase_add_test(there, refuses_to_send_what_would_be_refused);
	tcase_add_loop_test(names, judges_by_name, 0, sizeof cases / sizeof cases[0]);
	tcase_add_test(names, every_truncation_is_refused);
	tcase_add_test(names, every_byte_may_be_anything);
	tcase_add_test(bounds, nests_only_so_deep);
	tcase_add_test(bounds, an_avalanche_is_refused_at_its_start);
	tcase_add_test(bounds, has_only_so_many_values);
	tcase_add_test(bounds, lists_fit_into_the_arena);
	suite_add_tcase(suite, there);
	suite_add_tcase(suite, names);
	suite_add_tcase(suite, bounds);
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(make_suite());
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	free(body);
	return failed != 0;
}
