/* Tables that break one rule each are refused, for that reason. */
#include "fsm/tables.h"
#include "tests/unit/sample_fsm.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

/* A copy of the sample that a test may damage. */
struct copy {
	struct neap_fsm fsm;
	struct neap_cell cells[sample_state_count][sample_event_count];
	struct neap_state_info states[sample_state_count];
	const char *events[sample_event_count], *actions[sample_action_count], *timeouts[sample_timeout_count];
};

static void copy_sample(struct copy *copy)
{
	const struct neap_fsm *from = &neap_fsm_sample;
	memcpy(copy->cells, from->cells, sizeof copy->cells);
	memcpy(copy->states, from->states, sizeof copy->states);
	memcpy(copy->events, from->event_names, sizeof copy->events);
	memcpy(copy->actions, from->action_names, sizeof copy->actions);
	memcpy(copy->timeouts, from->timeout_names, sizeof copy->timeouts);
	copy->fsm = *from;
	copy->fsm.cells = &copy->cells[0][0];
	copy->fsm.states = copy->states;
	copy->fsm.event_names = copy->events;
	copy->fsm.action_names = copy->actions;
	copy->fsm.timeout_names = copy->timeouts;
}

struct findings {
	unsigned of[NEAP_FAULT_COUNT], all;
	char last[256];
};

static void note(void *user, enum neap_fsm_fault fault, const char *message)
{
	struct findings *findings = user;
	ck_assert_int_gt(fault, 0);
	ck_assert_int_lt(fault, NEAP_FAULT_COUNT);
	findings->of[fault]++;
	findings->all++;
	ck_assert_uint_lt(strlen(message), sizeof findings->last);
	strcpy(findings->last, message);
}

static void check_is(struct copy *copy, enum neap_fsm_fault fault, const char *says)
{
	struct findings findings = {{0}, 0, ""};
	unsigned count = neap_fsm_check(&copy->fsm, note, &findings);
	ck_assert_uint_eq(count, findings.all);
	ck_assert_msg(count == 1 && findings.of[fault] == 1, "%u faults, %u of the kind expected; last: %s", count, findings.of[fault],
	              findings.last);
	ck_assert_msg(strstr(findings.last, says), "`%s` does not say `%s`", findings.last, says);
}

static const struct neap_cell never = {NEAP_CELL_IMPOSSIBLE, 0, 0, 0};

START_TEST(sound_table_passes)
{
	struct findings findings = {{0}, 0, ""};
	ck_assert_uint_eq(neap_fsm_check(&neap_fsm_sample, note, &findings), 0);
	ck_assert_uint_eq(findings.all, 0);
}
END_TEST

START_TEST(catalog_passes)
{
	size_t count;
	const struct neap_fsm *const *machines = neap_fsm_catalog(&count);
	struct findings findings = {{0}, 0, ""};
	ck_assert_uint_gt(count, 0);
	ck_assert_msg(neap_fsm_check_all(machines, count, note, &findings) == 0, "%s", findings.last);
}
END_TEST

START_TEST(missing_cell)
{
	struct copy copy;
	copy_sample(&copy);
	copy.cells[sample_DONE][sample_on_ASK].kind = NEAP_CELL_MISSING;
	check_is(&copy, NEAP_FAULT_CELL, "sample: cell DONE x ASK does not say what happens");
}
END_TEST

START_TEST(cell_outside)
{
	struct copy copy;
	copy_sample(&copy);
	copy.cells[sample_IDLE][sample_on_ASK].next = sample_state_count;
	check_is(&copy, NEAP_FAULT_CELL, "IDLE x ASK goes to a state that does not exist");
	copy_sample(&copy);
	copy.cells[sample_IDLE][sample_on_ASK].action = sample_action_count;
	check_is(&copy, NEAP_FAULT_CELL, "has an action that does not exist");
	copy_sample(&copy);
	copy.cells[sample_IDLE][sample_on_ASK].kind = 9;
	check_is(&copy, NEAP_FAULT_CELL, "is of no known kind");
}
END_TEST

START_TEST(shapes)
{
	struct copy copy;
	copy_sample(&copy);
	copy.events[0] = "ASK";
	check_is(&copy, NEAP_FAULT_SHAPE, "event 0 is ASK, not TIMEOUT");
	copy_sample(&copy);
	copy.actions[0] = "send";
	check_is(&copy, NEAP_FAULT_SHAPE, "action 0 is send, not none");
	copy_sample(&copy);
	copy.timeouts[0] = "ANSWER";
	check_is(&copy, NEAP_FAULT_SHAPE, "timeout class 0 is ANSWER, not NONE");
	copy_sample(&copy);
	copy.events[1] = "";
	check_is(&copy, NEAP_FAULT_SHAPE, "event 1 has no name");
	copy_sample(&copy);
	copy.states[1].name = NULL;
	check_is(&copy, NEAP_FAULT_SHAPE, "state 1 has no name");
	copy_sample(&copy);
	copy.states[1].kind = 4;
	check_is(&copy, NEAP_FAULT_SHAPE, "state ASKED is of no known kind");
	copy_sample(&copy);
	copy.states[1].timeout_class = sample_timeout_count;
	check_is(&copy, NEAP_FAULT_SHAPE, "timeout class that does not exist");
	copy_sample(&copy);
	copy.fsm.purpose = "";
	check_is(&copy, NEAP_FAULT_SHAPE, "a purpose");
	copy_sample(&copy);
	copy.fsm.state_count = 0;
	check_is(&copy, NEAP_FAULT_SHAPE, "no states");
}
END_TEST

START_TEST(silent_state)
{
	struct copy copy;
	copy_sample(&copy);
	copy.states[sample_RELAYED].waits_for = " ";
	check_is(&copy, NEAP_FAULT_TEXT, "state RELAYED does not say what it waits for");
}
END_TEST

START_TEST(unreachable_state)
{
	struct copy copy;
	copy_sample(&copy);
	copy.cells[sample_ASKED][sample_on_TIMEOUT].next = sample_DONE;
	check_is(&copy, NEAP_FAULT_UNREACHABLE, "state RELAYED cannot be reached from IDLE");
}
END_TEST

START_TEST(endless_state)
{
	struct copy copy;
	copy_sample(&copy);
	copy.cells[sample_RELAYED][sample_on_ANSWERED].next = sample_RELAYED;
	copy.cells[sample_RELAYED][sample_on_CLOSE] = never;
	check_is(&copy, NEAP_FAULT_ENDLESS, "state RELAYED cannot reach a FINAL state");
}
END_TEST

START_TEST(wait_without_timeout)
{
	struct copy copy;
	copy_sample(&copy);
	copy.states[sample_RELAYED].kind = NEAP_STATE_WAIT;
	check_is(&copy, NEAP_FAULT_NO_TIMEOUT, "state RELAYED waits for an answer but has no timeout class");
	copy.states[sample_RELAYED].timeout_class = sample_timeout_ANSWER;
	check_is(&copy, NEAP_FAULT_NO_TIMEOUT, "state RELAYED waits for an answer but its TIMEOUT leads nowhere");
}
END_TEST

START_TEST(timeout_unheard)
{
	struct copy copy;
	copy_sample(&copy);
	copy.states[sample_RELAYED].timeout_class = sample_timeout_ANSWER;
	check_is(&copy, NEAP_FAULT_TIMEOUT_UNHEARD, "state RELAYED has timeout class ANSWER but its TIMEOUT leads nowhere");
}
END_TEST

START_TEST(timeout_dead)
{
	struct copy copy;
	copy_sample(&copy);
	copy.cells[sample_IDLE][sample_on_TIMEOUT] = copy.cells[sample_IDLE][sample_on_CLOSE];
	check_is(&copy, NEAP_FAULT_TIMEOUT_DEAD, "state IDLE takes TIMEOUT but has no timeout class");
}
END_TEST

START_TEST(final_leaves)
{
	struct copy copy;
	copy_sample(&copy);
	copy.cells[sample_DONE][sample_on_CLOSE] = copy.cells[sample_IDLE][sample_on_CLOSE];
	check_is(&copy, NEAP_FAULT_FINAL_LEAVES, "state DONE is FINAL but CLOSE leaves it");
	copy_sample(&copy);
	copy.states[sample_DONE].timeout_class = sample_timeout_ANSWER;
	check_is(&copy, NEAP_FAULT_FINAL_LEAVES, "state DONE is FINAL and has a timeout class");
}
END_TEST

START_TEST(unused_event)
{
	struct copy copy;
	copy_sample(&copy);
	for (int s = 0; s < sample_state_count; s++)
		copy.cells[s][sample_on_CLOSE] = never;
	check_is(&copy, NEAP_FAULT_UNUSED, "event CLOSE moves nothing in any state");
}
END_TEST

START_TEST(unused_action)
{
	struct copy copy;
	copy_sample(&copy);
	copy.cells[sample_ASKED][sample_on_ANSWERED].action = sample_do_none;
	copy.cells[sample_RELAYED][sample_on_ANSWERED].action = sample_do_none;
	check_is(&copy, NEAP_FAULT_UNUSED, "action tell is in no cell");
}
END_TEST

START_TEST(unused_timeout)
{
	struct copy copy;
	copy_sample(&copy);
	copy.states[sample_ASKED].kind = NEAP_STATE_PARENT;
	copy.states[sample_ASKED].timeout_class = 0;
	copy.cells[sample_ASKED][sample_on_TIMEOUT] = never;
	copy.cells[sample_ASKED][sample_on_ASK] = (struct neap_cell){NEAP_CELL_GO, sample_RELAYED, sample_do_send, 0};
	check_is(&copy, NEAP_FAULT_UNUSED, "timeout class ANSWER belongs to no state");
}
END_TEST

START_TEST(name_twice)
{
	const struct neap_fsm *twice[] = {&neap_fsm_sample, &neap_fsm_sample};
	struct findings findings = {{0}, 0, ""};
	ck_assert_uint_eq(neap_fsm_check_all(twice, 2, note, &findings), 1);
	ck_assert_uint_eq(findings.of[NEAP_FAULT_NAME_TWICE], 1);
}
END_TEST

START_TEST(all_faults_are_told)
{
	struct copy copy;
	struct findings findings = {{0}, 0, ""};
	copy_sample(&copy);
	copy.states[sample_IDLE].waits_for = NULL;
	copy.states[sample_ASKED].waits_for = NULL;
	copy.cells[sample_DONE][sample_on_CLOSE] = copy.cells[sample_IDLE][sample_on_CLOSE];
	ck_assert_uint_eq(neap_fsm_check(&copy.fsm, note, &findings), 3);
	ck_assert_uint_eq(findings.of[NEAP_FAULT_TEXT], 2);
	ck_assert_uint_eq(findings.of[NEAP_FAULT_FINAL_LEAVES], 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fsm check");
	TCase *sound = tcase_create("sound"), *shape = tcase_create("shape"), *rules = tcase_create("rules");
	tcase_add_test(sound, sound_table_passes);
	tcase_add_test(sound, catalog_passes);
	tcase_add_test(shape, missing_cell);
	tcase_add_test(shape, cell_outside);
	tcase_add_test(shape, shapes);
	tcase_add_test(rules, silent_state);
	tcase_add_test(rules, unreachable_state);
	tcase_add_test(rules, endless_state);
	tcase_add_test(rules, wait_without_timeout);
	tcase_add_test(rules, timeout_unheard);
	tcase_add_test(rules, timeout_dead);
	tcase_add_test(rules, final_leaves);
	tcase_add_test(rules, unused_event);
	tcase_add_test(rules, unused_action);
	tcase_add_test(rules, unused_timeout);
	tcase_add_test(rules, name_twice);
	tcase_add_test(rules, all_faults_are_told);
	suite_add_tcase(suite, sound);
	suite_add_tcase(suite, shape);
	suite_add_tcase(suite, rules);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
