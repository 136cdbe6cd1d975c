/* Regular expressions over keys: what matches, what is refused and where, that no pattern takes long, and random patterns against
 * the C library's matcher. */
#include "store/directory/match.h"
#include <check.h>
#include <neap/error.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct neap_match match;
static char why[200];

static bool matches_bytes(const char *pattern, const char *text, size_t length)
{
	uint64_t steps = 0;
	ck_assert_msg(neap_match_compile(&match, pattern, strlen(pattern), why, sizeof why) == NEAP_OK, "%s: %s", pattern, why);
	bool matched = neap_match_run(&match, text, length, &steps);
	ck_assert_uint_ge(steps, 1);
	return matched;
}

static bool matches(const char *pattern, const char *text)
{
	return matches_bytes(pattern, text, strlen(text));
}

START_TEST(what_matches)
{
	static const struct {
		const char *pattern, *yes, *no;
	} cases[] = {
		{"abc", "xabcx", "abxc"},
		{"^abc$", "abc", "abcd"},
		{"^abc", "abcd", "xabc"},
		{"abc$", "xabc", "abcx"},
		{"a.c", "xa-c", "a\nc"},
		{"^a*$", "aaaa", "aab"},
		{"^a+$", "a", "b"},
		{"^ab?c$", "ac", "abbc"},
		{"^a{3}$", "aaa", "aa"},
		{"^a{2,3}$", "aaa", "aaaa"},
		{"^a{2,}$", "aaaaa", "a"},
		{"^a{0,2}$", "aa", "aaa"},
		{"^a{0}b$", "b", "ab"},
		{"^(ab|cd)+$", "abcdab", "abc"},
		{"^(?:ab|cd)$", "cd", "abcd"},
		{"^(a|)b$", "b", "aab"},
		{"^[a-c]+$", "abc", "abd"},
		{"^[^a-c]+$", "xyz", "xaz"},
		{"^[]$|^x$", "x", "]"},
		{"^[^]$", "\n", "ab"},
		{"^[a\\]]+$", "a]a", "b"},
		{"^[-a]$", "-", "b"},
		{"^[a-]$", "-", "b"},
		{"^[\\d_]+$", "12_3", "1a"},
		{"^\\d{4}-\\d\\d$", "2024-01", "2024-1"},
		{"^\\w+$", "Ab_9", "a-b"},
		{"^\\W\\D\\S$", "-ax", "aax"},
		{"^a\\sb$", "a\tb", "axb"},
		{"^\\x41\\.$", "A.", "Ax"},
		{"a\\/b", "xa/b", "ab"},
		{"^block_(0|[1-9]\\d*)$", "block_120", "block_012"},
		{"^a+?b*?c??$", "aabb", "c"},
		{"(^|,)x(,|$)", "a,x", "ax"},
		{"^^a$$", "a", "aa"},
		{"^(^a|b)$", "a", "ab"},
		{"^(a*)*$", "aaa", "ab"},
		{"^(a*|b)*c$", "abac", "abad"},
		{"^((a{2}){2}){2}$", "aaaaaaaa", "aaaaaaa"},
		{"}]", "a}]", "a}"},
		{"\xc3\xa9", "caf\xc3\xa9", "caf\xc3\xa8"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		ck_assert_msg(matches(cases[i].pattern, cases[i].yes), "%s does not match %s", cases[i].pattern, cases[i].yes);
		ck_assert_msg(!matches(cases[i].pattern, cases[i].no), "%s matches %s", cases[i].pattern, cases[i].no);
	}
	ck_assert(matches("", "anything"));
	ck_assert(matches("x*", ""));
	ck_assert(matches_bytes("^a\\0b$", "a\0b", 3));
	ck_assert(!matches("^$", "a"));
	ck_assert(matches("^$", ""));
}
END_TEST

START_TEST(what_is_refused)
{
	static const struct {
		const char *pattern;
		unsigned position;
		const char *reason;
	} cases[] = {
		{"ab(c", 3, "group has no end"},
		{"ab)c", 3, "without its ("},
		{"*a", 1, "nothing to repeat"},
		{"a|+", 3, "nothing to repeat"},
		{"a**", 3, "nothing to repeat"},
		{"a{2}{3}", 5, "nothing to repeat"},
		{"{", 1, "nothing to repeat"},
		{"a{", 2, "needs numbers"},
		{"a{x}", 2, "needs numbers"},
		{"a{3", 2, "no end"},
		{"a{3,2}", 2, "second number"},
		{"a{256}", 2, "more than 255"},
		{"a{99999999999999999999}", 2, "more than 255"},
		{"[abc", 1, "class has no end"},
		{"x[z-a]", 3, "ends before it begins"},
		{"[[:alpha:]]", 2, "named classes"},
		{"(a)\\1", 4, "back-references"},
		{"\\bx", 1, "\\b"},
		{"\\y", 1, "not known"},
		{"\\xg1", 1, "hexadecimal"},
		{"ab\\", 3, "at the end"},
		{"(?=a)", 1, "look-around"},
		{"(?<x>a)", 1, "look-around"},
		{"^*", 2, "cannot be repeated"},
		{"(a{100}){3}", 2, "256 positions"},
		{"((((((((((((((((((((((((((((((((((a))))))))))))))))))))))))))))))))))", 33, "32 deep"},
		{"((((){255}){255}){255}){255}", 4, "too large"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char prefix[40];
		ck_assert_msg(neap_match_compile(&match, cases[i].pattern, strlen(cases[i].pattern), why, sizeof why) < 0, "%s",
		              cases[i].pattern);
		(void)snprintf(prefix, sizeof prefix, "position %u: ", cases[i].position);
		ck_assert_msg(strncmp(why, prefix, strlen(prefix)) == 0 && strstr(why, cases[i].reason), "%s: %s", cases[i].pattern, why);
	}
	static char longest[NEAP_MATCH_LENGTH_MAX + 1];
	memset(longest, '|', sizeof longest);
	ck_assert_int_eq(neap_match_compile(&match, longest, sizeof longest - 1, why, sizeof why), NEAP_OK);
	ck_assert_int_eq(neap_match_compile(&match, longest, sizeof longest, why, sizeof why), NEAP_ELIMIT);
	ck_assert_int_eq(neap_match_compile(&match, "(", 1, NULL, 0), NEAP_EINVAL);
	/* bytes that are no text */
	for (unsigned byte = 0; byte < 256; byte++) {
		char one[3] = {'\\', (char)byte, 'a'};
		(void)neap_match_compile(&match, one, 3, why, sizeof why);
		(void)neap_match_compile(&match, one + 1, 2, why, sizeof why);
	}
}
END_TEST

/* The patterns that bring back-tracking matchers down. */
START_TEST(no_pattern_takes_long)
{
	static const char *const patterns[] = {
		"^(a+)+$",  "^(a|aa)+$",         "^(.*)*x$",           "(a*)*(a*)*(a*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$",
		"(x+x+)+y", "^(a?){100}a{100}$", "((a{0,15}){0,15})b", "(.{1,120}){1,2}z"};
	static char text[4096];
	memset(text, 'a', sizeof text);
	for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
		uint64_t steps = 0;
		ck_assert_msg(neap_match_compile(&match, patterns[i], strlen(patterns[i]), why, sizeof why) == NEAP_OK, "%s: %s",
		              patterns[i], why);
		text[sizeof text - 1] = '!';
		(void)neap_match_run(&match, text, sizeof text, &steps);
		ck_assert_uint_le(steps, (sizeof text + 4) * (NEAP_MATCH_POSITIONS + 1));
	}
}
END_TEST

/* --- against the C library --------------------------------------------------------------------------------------------------- */

static uint64_t random_state = 7;

static uint32_t below(uint32_t bound)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((random_state >> 33) % bound);
}

static size_t generate(char *pattern, size_t at, size_t most, int depth);

static size_t generate_atom(char *pattern, size_t at, size_t most, int depth)
{
	static const char *const atoms[] = {"a", "b", "c", ".", "[ab]", "[^a]", "[b-c]", "a", "b"};
	if (depth < 4 && below(4) == 0) {
		pattern[at++] = '(';
		at = generate(pattern, at, most, depth + 1);
		pattern[at++] = ')';
		return at;
	}
	const char *atom = atoms[below(9)];
	memcpy(pattern + at, atom, strlen(atom));
	return at + strlen(atom);
}

static size_t generate(char *pattern, size_t at, size_t most, int depth)
{
	static const char *const repeats[] = {"*", "+", "?", "{2}", "{1,2}", "{0,1}", "{2,}"};
	for (uint32_t terms = 1 + below(3); terms > 0 && at + 20 < most; terms--) {
		at = generate_atom(pattern, at, most, depth);
		if (below(3) == 0) {
			const char *repeat = repeats[below(7)];
			memcpy(pattern + at, repeat, strlen(repeat));
			at += strlen(repeat);
		}
		if (below(5) == 0 && terms > 1)
			pattern[at++] = '|';
	}
	return at;
}

START_TEST(random_patterns_against_the_c_library)
{
	uint32_t agreed[2] = {0};
	for (int round = 0; round < 3000; round++) {
		char pattern[160];
		size_t length = 0;
		bool anchored = below(3) != 0;
		if (anchored)
			pattern[length++] = '^', pattern[length++] = '(';
		length = generate(pattern, length, 100, 0);
		if (anchored)
			pattern[length++] = ')', pattern[length++] = '$';
		pattern[length] = 0;
		regex_t reference;
		if (neap_match_compile(&match, pattern, length, why, sizeof why))
			continue; /* too large when written out */
		ck_assert_msg(regcomp(&reference, pattern, REG_EXTENDED | REG_NOSUB) == 0, "%s", pattern);
		for (int i = 0; i < 40; i++) {
			char text[12] = {0};
			uint64_t steps = 0;
			uint32_t text_length = below(11);
			for (uint32_t j = 0; j < text_length; j++)
				text[j] = "abcd"[below(4)];
			bool expected = regexec(&reference, text, 0, NULL, 0) == 0;
			ck_assert_msg(neap_match_run(&match, text, text_length, &steps) == expected, "%s on \"%s\": expected %d", pattern, text,
			              expected);
			agreed[expected]++;
		}
		regfree(&reference);
	}
	ck_assert(agreed[0] > 10000 && agreed[1] > 10000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store directory: match");
	TCase *tests = tcase_create("match");
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, what_matches);
	tcase_add_test(tests, what_is_refused);
	tcase_add_test(tests, no_pattern_takes_long);
	tcase_add_test(tests, random_patterns_against_the_c_library);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
