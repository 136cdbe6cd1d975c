/* What the programs are made of, piece by piece: sizes, flags, test pattern, latency histogram. */
#include "apps/bench/histogram.h"
#include "apps/common/flags.h"
#include "apps/common/pattern.h"
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *text;
	bool valid;
	uint64_t bytes;
} sizes[] = {
	{"0", true, 0},
	{"1", true, 1},
	{"4096", true, 4096},
	{"4K", true, 4096},
	{"4k", true, 4096},
	{"4KiB", true, 4096},
	{"3M", true, 3145728},
	{"2G", true, UINT64_C(1) << 31},
	{"1T", true, UINT64_C(1) << 40},
	{"18446744073709551615", true, UINT64_MAX},
	{"", false, 0},
	{"K", false, 0},
	{"-1", false, 0},
	{" 1", false, 0},
	{"+1", false, 0},
	{"1.5M", false, 0},
	{"4Q", false, 0},
	{"4KK", false, 0},
	{"18446744073709551616", false, 0},
	{"16777216T", false, 0},
	{"0x10", false, 0},
};

START_TEST(size_texts)
{
	uint64_t bytes = 0;
	ck_assert_msg(app_size_parse(sizes[_i].text, &bytes) == sizes[_i].valid, "\"%s\"", sizes[_i].text);
	if (sizes[_i].valid)
		ck_assert_msg(bytes == sizes[_i].bytes, "\"%s\"", sizes[_i].text);
}
END_TEST

START_TEST(formatted_sizes_parse_back)
{
	for (unsigned shift = 0; shift < 60; shift++)
		for (uint64_t odd = 1; odd < 8; odd += 2) {
			uint64_t bytes = odd << shift, back = 0;
			char text[32], *space;
			app_size_format(bytes, text, sizeof text);
			space = strchr(text, ' ');
			ck_assert_ptr_nonnull(space);
			memmove(space, space + 1, strlen(space));
			ck_assert_msg(app_size_parse(text, &back) && back == bytes, "%s", text);
		}
}
END_TEST

/* --- flags --------------------------------------------------------------------------------------------------- */

static const char *mode, *list, *word;
static uint64_t number, bytes_flag;
static double seconds;
static bool on;
static struct app_sizes many;
static const struct app_flag flags[] = {
	{"mode", APP_FLAG_CHOICE, &mode, "a|bee", 0, 0, ""},   {"list", APP_FLAG_CHOICES, &list, "a|bee", 0, 0, ""},
	{"a_word", APP_FLAG_TEXT, &word, NULL, 0, 0, ""},      {"number", APP_FLAG_NUMBER, &number, NULL, 2, 9, ""},
	{"bytes", APP_FLAG_SIZE, &bytes_flag, NULL, 0, 0, ""}, {"seconds", APP_FLAG_SECONDS, &seconds, NULL, 1, 5, ""},
	{"on", APP_FLAG_SWITCH, &on, NULL, 0, 0, ""},          {"many", APP_FLAG_SIZES, &many, NULL, 1, 4096, ""},
};
static const struct app_program program = {
	.name = "parts", .purpose = "", .flags = flags, .flag_count = sizeof flags / sizeof flags[0]};

static int parse(const char *first, const char *second)
{
	char *arguments[] = {(char *)"parts", (char *)first, (char *)second, NULL};
	return app_flags_parse(&program, second ? 3 : 2, arguments);
}

START_TEST(flags_that_are_right)
{
	ck_assert_int_eq(parse("--mode=bee", NULL), -1);
	ck_assert_str_eq(mode, "bee");
	ck_assert_int_eq(parse("--a-word", "-"), -1);
	ck_assert_str_eq(word, "-");
	ck_assert_int_eq(parse("-a_word=", NULL), -1);
	ck_assert_str_eq(word, "");
	ck_assert_int_eq(parse("--number=2", "--number=9"), -1);
	ck_assert_uint_eq(number, 9);
	ck_assert_int_eq(parse("--bytes", "1M"), -1);
	ck_assert_uint_eq(bytes_flag, 1048576);
	ck_assert_int_eq(parse("--seconds=1.5", NULL), -1);
	ck_assert(seconds > 1.4 && seconds < 1.6);
	ck_assert_int_eq(parse("--on", "--list=bee,a"), -1);
	ck_assert(on && app_list_has(list, "a") && app_list_has(list, "bee") && !app_list_has(list, "be"));
	ck_assert_int_eq(parse("--on=false", "--many=1,4K,7"), -1);
	ck_assert(!on && many.count == 3 && many.values[1] == 4096 && many.values[2] == 7);
}
END_TEST

static const char *const wrong[] = {
	"--mode=c",
	"--mode=",
	"--mode=a|bee",
	"--mode",
	"--list=a,,bee",
	"--list=a,c",
	"--number=1",
	"--number=10",
	"--number=2x",
	"--number=",
	"--number=-3",
	"--bytes=1X",
	"--seconds=0.5",
	"--seconds=6",
	"--seconds=x",
	"--seconds=",
	"--seconds=nan",
	"--on=maybe",
	"--many=",
	"--many=1,,2",
	"--many=0",
	"--many=1,8K",
	"--nothing",
	"--",
	"-",
	"word",
	"--mod=a",
	"--mode_=a",
	"--many=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
};

START_TEST(flags_that_are_wrong)
{
	ck_assert_msg(parse(wrong[_i], NULL) == APP_USAGE, "%s", wrong[_i]);
}
END_TEST

/* --- pattern ------------------------------------------------------------------------------------------------- */

START_TEST(pattern_is_found_and_every_damage_is)
{
	static unsigned char memory[8192];
	for (uint64_t offset = 0; offset < 1100; offset += 37) {
		app_pattern_fill(memory, offset, 4000, 5);
		ck_assert(app_pattern_check(memory, offset, 4000, 5) == UINT64_MAX);
		ck_assert(app_pattern_check(memory, offset, 4000, 6) != UINT64_MAX);
		ck_assert(app_pattern_check(memory, offset + 512, 4000, 5) != UINT64_MAX);
		ck_assert(app_pattern_check(memory, offset + 1, 4000, 5) != UINT64_MAX);
	}
	app_pattern_fill(memory, 100, 4000, 5);
	for (uint64_t at = 0; at < 4000; at++) {
		memory[at] ^= 1;
		ck_assert_uint_eq(app_pattern_check(memory, 100, 4000, 5), at);
		memory[at] ^= 1;
	}
}
END_TEST

START_TEST(pattern_of_a_part_is_a_part_of_the_pattern)
{
	static unsigned char whole[4096], part[700];
	app_pattern_fill(whole, 0, sizeof whole, 9);
	for (uint64_t offset = 0; offset + sizeof part <= sizeof whole; offset += 101) {
		app_pattern_fill(part, offset, sizeof part, 9);
		ck_assert_mem_eq(part, whole + offset, sizeof part);
	}
}
END_TEST

START_TEST(zeroes)
{
	static unsigned char memory[5000];
	ck_assert(app_zero_check(memory, 0) == UINT64_MAX && app_zero_check(memory, 1) == UINT64_MAX);
	ck_assert(app_zero_check(memory, sizeof memory) == UINT64_MAX);
	for (uint64_t at = 0; at < sizeof memory; at += 7) {
		memory[at] = 1;
		ck_assert_uint_eq(app_zero_check(memory, sizeof memory), at);
		memory[at] = 0;
	}
}
END_TEST

/* --- histogram ----------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

START_TEST(quantiles_are_those_of_a_sorted_list)
{
	enum { COUNT = 20000 };
	static struct histogram histogram, half;
	static uint64_t values[COUNT];
	uint64_t random = 12345;
	for (int i = 0; i < COUNT; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		values[i] = (random >> 20) >> (random % 40);
		histogram_add(i % 2 ? &histogram : &half, values[i]);
	}
	histogram_merge(&histogram, &half);
	ck_assert_uint_eq(histogram.total, COUNT);
	qsort(values, COUNT, sizeof *values, by_value);
	static const double fractions[] = {0.01, 0.5, 0.9, 0.99, 0.999, 1};
	for (size_t i = 0; i < sizeof fractions / sizeof fractions[0]; i++) {
		double expected = (double)values[(size_t)ceil(fractions[i] * COUNT) - 1],
			   got = histogram_quantile_us(&histogram, fractions[i]) * 1e3;
		ck_assert_msg(fabs(got - expected) <= expected / 64 + 1, "%g: %g is not %g", fractions[i], got, expected);
	}
}
END_TEST

START_TEST(histogram_takes_anything)
{
	static struct histogram histogram;
	ck_assert(histogram_quantile_us(&histogram, 0.5) <= 0);
	for (unsigned shift = 0; shift < 64; shift++)
		histogram_add(&histogram, UINT64_C(1) << shift);
	histogram_add(&histogram, UINT64_MAX);
	histogram_add(&histogram, 0);
	ck_assert_uint_eq(histogram.total, 66);
	ck_assert(histogram_quantile_us(&histogram, 1) > 1e11);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("program parts");
	TCase *texts = tcase_create("sizes and flags"), *data = tcase_create("pattern"), *times = tcase_create("histogram");
	tcase_add_loop_test(texts, size_texts, 0, (int)(sizeof sizes / sizeof sizes[0]));
	tcase_add_test(texts, formatted_sizes_parse_back);
	tcase_add_test(texts, flags_that_are_right);
	tcase_add_loop_test(texts, flags_that_are_wrong, 0, (int)(sizeof wrong / sizeof wrong[0]));
	tcase_add_test(data, pattern_is_found_and_every_damage_is);
	tcase_add_test(data, pattern_of_a_part_is_a_part_of_the_pattern);
	tcase_add_test(data, zeroes);
	tcase_add_test(times, quantiles_are_those_of_a_sorted_list);
	tcase_add_test(times, histogram_takes_anything);
	suite_add_tcase(suite, texts);
	suite_add_tcase(suite, data);
	suite_add_tcase(suite, times);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
