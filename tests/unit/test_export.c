/* Lists, pictures and data made from a table say what the table says. */
#include "fsm/sink.h"
#include "fsm/tables.h"
#include "tests/unit/sample_fsm.h"
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct text {
	char bytes[65536];
	size_t length;
	int calls_left; /* then writing fails; negative: never */
};

static int to_text(void *user, const void *bytes, size_t length)
{
	struct text *text = user;
	if (text->calls_left == 0)
		return NEAP_ESOCKET;
	text->calls_left -= text->calls_left > 0;
	ck_assert_uint_lt(text->length + length, sizeof text->bytes);
	memcpy(text->bytes + text->length, bytes, length);
	text->length += length;
	text->bytes[text->length] = 0;
	return NEAP_OK;
}

static struct text out;
static const struct neap_fsm *const sample_only[] = {&neap_fsm_sample};

static void clear(void)
{
	out.length = 0;
	out.bytes[0] = 0;
	out.calls_left = -1;
}

#define HAS(piece) ck_assert_msg(strstr(out.bytes, piece) != NULL, "no `%s` in:\n%s", piece, out.bytes)

START_TEST(counts)
{
	ck_assert_uint_eq(neap_fsm_count_cells(&neap_fsm_sample, NEAP_CELL_GO), 7);
	ck_assert_uint_eq(neap_fsm_count_cells(&neap_fsm_sample, NEAP_CELL_IGNORE), 4);
	ck_assert_uint_eq(neap_fsm_count_cells(&neap_fsm_sample, NEAP_CELL_IMPOSSIBLE), 5);
	ck_assert_uint_eq(neap_fsm_count_cells(&neap_fsm_sample, NEAP_CELL_MISSING), 0);
	ck_assert_str_eq(neap_fsm_state_kind_name(NEAP_STATE_PARENT), "PARENT");
	ck_assert_str_eq(neap_fsm_state_kind_name(200), "UNKNOWN");
}
END_TEST

START_TEST(list)
{
	ck_assert_int_eq(neap_fsm_write_list(sample_only, 1, to_text, &out), 0);
	HAS("sample ");
	HAS(" 4 states  4 events   7 transitions  asks once");
}
END_TEST

START_TEST(show)
{
	ck_assert_int_eq(neap_fsm_write_text(&neap_fsm_sample, to_text, &out), 0);
	HAS("\nASKED (WAIT, timeout ANSWER): the answer\n"
	    "    TIMEOUT  -> RELAYED, send\n"
	    "    ANSWERED -> DONE, tell\n"
	    "    CLOSE    -> DONE\n"
	    "    impossible: ASK\n");
	HAS("\nDONE (FINAL): nothing\n    ignored: TIMEOUT ANSWERED CLOSE\n    impossible: ASK\n");
}
END_TEST

START_TEST(dot)
{
	ck_assert_int_eq(neap_fsm_write_dot(&neap_fsm_sample, to_text, &out), 0);
	HAS("digraph sample {");
	HAS("asks once and \\\"tells\\\" | listens");
	HAS("begin -> IDLE;");
	HAS("ASKED -> DONE [label=\"ANSWERED / tell\\nCLOSE\"];");
	HAS("DONE [shape=doubleoctagon");
	ck_assert_ptr_null(strstr(out.bytes, "DONE -> "));
}
END_TEST

START_TEST(mermaid)
{
	ck_assert_int_eq(neap_fsm_write_mermaid(&neap_fsm_sample, to_text, &out), 0);
	HAS("stateDiagram-v2\n    [*] --> IDLE\n    IDLE --> ASKED : ASK / send\n    IDLE --> DONE : CLOSE\n");
	HAS("    DONE --> [*]\n");
}
END_TEST

static const json_t *state_of(const json_t *machine, size_t index)
{
	return json_array_get(json_object_get(machine, "states"), index);
}

START_TEST(json)
{
	ck_assert_int_eq(neap_fsm_write_json(sample_only, 1, to_text, &out), 0);
	json_error_t error;
	json_t *root = json_loads(out.bytes, JSON_REJECT_DUPLICATES, &error);
	ck_assert_msg(root != NULL, "line %d: %s", error.line, error.text);
	const json_t *machine = json_array_get(json_object_get(root, "machines"), 0);
	ck_assert_str_eq(json_string_value(json_object_get(machine, "purpose")), neap_fsm_sample.purpose);
	ck_assert_uint_eq(json_array_size(json_object_get(machine, "states")), 4);
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(machine, "events"), 2)), "ANSWERED");
	const json_t *asked = state_of(machine, sample_ASKED);
	ck_assert_str_eq(json_string_value(json_object_get(asked, "timeout")), "ANSWER");
	const json_t *cells = json_object_get(asked, "cells");
	ck_assert_uint_eq(json_array_size(cells), sample_event_count);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(cells, 0), "go")), "RELAYED");
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(cells, 0), "action")), "send");
	ck_assert_str_eq(json_string_value(json_array_get(cells, sample_on_ASK)), "impossible");
	json_decref(root);
}
END_TEST

START_TEST(page)
{
	ck_assert_int_eq(neap_fsm_write_page(&neap_fsm_sample, to_text, &out), 0);
	HAS("# sample\n");
	HAS("```mermaid\nstateDiagram-v2\n");
	HAS("| RELAYED | PARENT |  | the other sample |\n");
	HAS("| event | IDLE | ASKED | RELAYED | DONE |\n| --- | --- | --- | --- | --- |\n");
	HAS("| TIMEOUT | | **RELAYED**<br>send | | ignored |\n");
	clear();
	ck_assert_int_eq(neap_fsm_write_index(sample_only, 1, to_text, &out), 0);
	HAS("| [sample](sample.md) | asks once and \"tells\" \\| listens | 4 | 4 | 7 |\n");
}
END_TEST

/* Every exporter answers the writer's error and stops writing. */
START_TEST(errors_come_back)
{
	out.calls_left = 0;
	ck_assert_int_eq(neap_fsm_write_list(sample_only, 1, to_text, &out), NEAP_ESOCKET);
	ck_assert_int_eq(neap_fsm_write_text(&neap_fsm_sample, to_text, &out), NEAP_ESOCKET);
	ck_assert_int_eq(neap_fsm_write_dot(&neap_fsm_sample, to_text, &out), NEAP_ESOCKET);
	ck_assert_int_eq(neap_fsm_write_mermaid(&neap_fsm_sample, to_text, &out), NEAP_ESOCKET);
	ck_assert_int_eq(neap_fsm_write_json(sample_only, 1, to_text, &out), NEAP_ESOCKET);
	ck_assert_int_eq(neap_fsm_write_index(sample_only, 1, to_text, &out), NEAP_ESOCKET);
	out.calls_left = 1;
	ck_assert_int_eq(neap_fsm_write_page(&neap_fsm_sample, to_text, &out), NEAP_ESOCKET);
	ck_assert_uint_gt(out.length, 0);
}
END_TEST

START_TEST(sink_bounds)
{
	struct neap_sink sink;
	static char big[3000];
	memset(big, 'x', sizeof big - 1);
	neap_sink_begin(&sink, to_text, &out);
	neap_sink_text(&sink, "a");
	neap_sink_text(&sink, big);
	neap_sink_json(&sink, "q\"b\\n\n\x01");
	ck_assert_int_eq(neap_sink_end(&sink), 0);
	ck_assert_uint_eq(out.length, 1 + strlen(big) + strlen("\"q\\\"b\\\\n\\u000a\\u0001\""));
	ck_assert_str_eq(out.bytes + 1 + strlen(big), "\"q\\\"b\\\\n\\u000a\\u0001\"");
	neap_sink_format(&sink, "%s", big);
	ck_assert_int_eq(neap_sink_end(&sink), NEAP_ELIMIT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fsm export");
	TCase *table = tcase_create("table");
	tcase_add_checked_fixture(table, clear, NULL);
	tcase_add_test(table, counts);
	tcase_add_test(table, list);
	tcase_add_test(table, show);
	tcase_add_test(table, dot);
	tcase_add_test(table, mermaid);
	tcase_add_test(table, json);
	tcase_add_test(table, page);
	tcase_add_test(table, errors_come_back);
	tcase_add_test(table, sink_bounds);
	suite_add_tcase(suite, table);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
