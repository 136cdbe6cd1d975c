/* The rules every table is held to. Each rule is a function that reports all its faults. */
#include "fsm/tables.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct audit {
	const struct neap_fsm *fsm;
	neap_fsm_found_func *found;
	void *user;
	unsigned faults;
};

static void fault(struct audit *audit, enum neap_fsm_fault kind, const char *format, ...) NEAP_PRINTF(3, 4);

static void fault(struct audit *audit, enum neap_fsm_fault kind, const char *format, ...)
{
	char message[256];
	const char *name = audit->fsm->name ? audit->fsm->name : "(no name)";
	int start = snprintf(message, sizeof message, "%s: ", name);
	if (start > 0 && (size_t)start < sizeof message) {
		va_list arguments;
		va_start(arguments, format);
		vsnprintf(message + start, sizeof message - (size_t)start, format, arguments);
		va_end(arguments);
	}
	audit->faults++;
	audit->found(audit->user, kind, message);
}

static bool blank(const char *text)
{
	return !text || !text[strspn(text, " \t\n")];
}

static void check_names(struct audit *audit, const char *what, const char *const *names, unsigned count, const char *first)
{
	if (count == 0 || !names) {
		fault(audit, NEAP_FAULT_SHAPE, "there are no %ss", what);
		return;
	}
	for (unsigned i = 0; i < count; i++)
		if (blank(names[i])) {
			fault(audit, NEAP_FAULT_SHAPE, "%s %u has no name", what, i);
			return;
		}
	if (strcmp(names[0], first) != 0)
		fault(audit, NEAP_FAULT_SHAPE, "%s 0 is %s, not %s", what, names[0], first);
}

/* What the other rules rely on. */
static void check_shape(struct audit *audit)
{
	const struct neap_fsm *fsm = audit->fsm;
	if (blank(fsm->name) || blank(fsm->purpose))
		fault(audit, NEAP_FAULT_SHAPE, "a machine has a name and a purpose");
	check_names(audit, "event", fsm->event_names, fsm->event_count, "TIMEOUT");
	check_names(audit, "action", fsm->action_names, fsm->action_count, "none");
	check_names(audit, "timeout class", fsm->timeout_names, fsm->timeout_count, "NONE");
	if (!fsm->cells || !fsm->states || fsm->state_count == 0) {
		fault(audit, NEAP_FAULT_SHAPE, "there are no states or no cells");
		return;
	}
	for (uint8_t s = 0; s < fsm->state_count; s++) {
		const struct neap_state_info *state = &fsm->states[s];
		if (blank(state->name))
			fault(audit, NEAP_FAULT_SHAPE, "state %u has no name", s);
		else if (state->kind > NEAP_STATE_FINAL)
			fault(audit, NEAP_FAULT_SHAPE, "state %s is of no known kind", state->name);
		else if (state->timeout_class >= fsm->timeout_count)
			fault(audit, NEAP_FAULT_SHAPE, "state %s has a timeout class that does not exist", state->name);
	}
}

static void check_cells(struct audit *audit)
{
	const struct neap_fsm *fsm = audit->fsm;
	for (uint8_t s = 0; s < fsm->state_count; s++)
		for (uint8_t e = 0; e < fsm->event_count; e++) {
			const struct neap_cell *cell = neap_fsm_cell(fsm, s, e);
			const char *wrong = NULL;
			if (cell->kind == NEAP_CELL_MISSING)
				wrong = "does not say what happens";
			else if (cell->kind > NEAP_CELL_IMPOSSIBLE)
				wrong = "is of no known kind";
			else if (cell->kind == NEAP_CELL_GO && cell->next >= fsm->state_count)
				wrong = "goes to a state that does not exist";
			else if (cell->kind == NEAP_CELL_GO && cell->action >= fsm->action_count)
				wrong = "has an action that does not exist";
			if (wrong)
				fault(audit, NEAP_FAULT_CELL, "cell %s x %s %s", fsm->states[s].name, fsm->event_names[e], wrong);
		}
}

static void check_texts(struct audit *audit)
{
	for (uint8_t s = 0; s < audit->fsm->state_count; s++)
		if (blank(audit->fsm->states[s].waits_for))
			fault(audit, NEAP_FAULT_TEXT, "state %s does not say what it waits for", audit->fsm->states[s].name);
}

/* Marks what follows from the marked states until nothing is added: along the arrows, or against them. */
static void spread(const struct neap_fsm *fsm, bool marked[], bool against)
{
	for (bool grew = true; grew;) {
		grew = false;
		for (uint8_t s = 0; s < fsm->state_count; s++)
			for (uint8_t e = 0; e < fsm->event_count; e++) {
				const struct neap_cell *cell = neap_fsm_cell(fsm, s, e);
				if (cell->kind != NEAP_CELL_GO)
					continue;
				uint8_t from = against ? cell->next : s, to = against ? s : cell->next;
				if (marked[from] && !marked[to])
					marked[to] = grew = true;
			}
	}
}

static void check_paths(struct audit *audit)
{
	const struct neap_fsm *fsm = audit->fsm;
	bool reached[256] = {false}, ends[256] = {false};
	reached[0] = true;
	for (uint8_t s = 0; s < fsm->state_count; s++)
		ends[s] = fsm->states[s].kind == NEAP_STATE_FINAL;
	spread(fsm, reached, false);
	spread(fsm, ends, true);
	for (uint8_t s = 0; s < fsm->state_count; s++) {
		if (!reached[s])
			fault(audit, NEAP_FAULT_UNREACHABLE, "state %s cannot be reached from %s", fsm->states[s].name, fsm->states[0].name);
		if (!ends[s])
			fault(audit, NEAP_FAULT_ENDLESS, "state %s cannot reach a FINAL state", fsm->states[s].name);
	}
}

static void check_waiting(struct audit *audit, const struct neap_state_info *state, const struct neap_cell *timeout)
{
	if (state->timeout_class == 0)
		fault(audit, NEAP_FAULT_NO_TIMEOUT, "state %s waits for an answer but has no timeout class", state->name);
	else if (timeout->kind != NEAP_CELL_GO)
		fault(audit, NEAP_FAULT_NO_TIMEOUT, "state %s waits for an answer but its TIMEOUT leads nowhere", state->name);
}

static void check_timeouts(struct audit *audit)
{
	const struct neap_fsm *fsm = audit->fsm;
	for (uint8_t s = 0; s < fsm->state_count; s++) {
		const struct neap_state_info *state = &fsm->states[s];
		const struct neap_cell *timeout = neap_fsm_cell(fsm, s, 0);
		if (state->kind == NEAP_STATE_FINAL)
			continue;
		if (state->kind == NEAP_STATE_WAIT)
			check_waiting(audit, state, timeout);
		else if (state->timeout_class != 0 && timeout->kind != NEAP_CELL_GO)
			fault(audit, NEAP_FAULT_TIMEOUT_UNHEARD, "state %s has timeout class %s but its TIMEOUT leads nowhere", state->name,
			      fsm->timeout_names[state->timeout_class]);
		if (state->timeout_class == 0 && timeout->kind == NEAP_CELL_GO)
			fault(audit, NEAP_FAULT_TIMEOUT_DEAD, "state %s takes TIMEOUT but has no timeout class: it never comes", state->name);
	}
}

static void check_finals(struct audit *audit)
{
	const struct neap_fsm *fsm = audit->fsm;
	for (uint8_t s = 0; s < fsm->state_count; s++) {
		const struct neap_state_info *state = &fsm->states[s];
		if (state->kind != NEAP_STATE_FINAL)
			continue;
		if (state->timeout_class != 0)
			fault(audit, NEAP_FAULT_FINAL_LEAVES, "state %s is FINAL and has a timeout class", state->name);
		for (uint8_t e = 0; e < fsm->event_count; e++)
			if (neap_fsm_cell(fsm, s, e)->kind == NEAP_CELL_GO)
				fault(audit, NEAP_FAULT_FINAL_LEAVES, "state %s is FINAL but %s leaves it", state->name, fsm->event_names[e]);
	}
}

static void check_use(struct audit *audit)
{
	const struct neap_fsm *fsm = audit->fsm;
	bool events[256] = {false}, actions[256] = {false}, timeouts[256] = {false};
	for (uint8_t s = 0; s < fsm->state_count; s++) {
		timeouts[fsm->states[s].timeout_class] = true;
		for (uint8_t e = 0; e < fsm->event_count; e++) {
			const struct neap_cell *cell = neap_fsm_cell(fsm, s, e);
			if (cell->kind == NEAP_CELL_GO)
				events[e] = actions[cell->action] = true;
		}
	}
	/* TIMEOUT, none and NONE, number 0 of each, are there whether needed or not. */
	for (uint8_t i = 1; i < fsm->event_count; i++)
		if (!events[i])
			fault(audit, NEAP_FAULT_UNUSED, "event %s moves nothing in any state", fsm->event_names[i]);
	for (uint8_t i = 1; i < fsm->action_count; i++)
		if (!actions[i])
			fault(audit, NEAP_FAULT_UNUSED, "action %s is in no cell", fsm->action_names[i]);
	for (uint8_t i = 1; i < fsm->timeout_count; i++)
		if (!timeouts[i])
			fault(audit, NEAP_FAULT_UNUSED, "timeout class %s belongs to no state", fsm->timeout_names[i]);
}

unsigned neap_fsm_check(const struct neap_fsm *fsm, neap_fsm_found_func *found, void *user)
{
	struct audit audit = {.fsm = fsm, .found = found, .user = user};
	check_shape(&audit);
	if (audit.faults)
		return audit.faults;
	check_cells(&audit);
	if (audit.faults)
		return audit.faults;
	check_texts(&audit);
	check_paths(&audit);
	check_timeouts(&audit);
	check_finals(&audit);
	check_use(&audit);
	return audit.faults;
}

unsigned neap_fsm_check_all(const struct neap_fsm *const *machines, size_t count, neap_fsm_found_func *found, void *user)
{
	unsigned faults = 0;
	for (size_t i = 0; i < count; i++) {
		faults += neap_fsm_check(machines[i], found, user);
		for (size_t other = 0; other < i; other++)
			if (machines[i]->name && machines[other]->name && strcmp(machines[i]->name, machines[other]->name) == 0) {
				struct audit audit = {.fsm = machines[i], .found = found, .user = user};
				fault(&audit, NEAP_FAULT_NAME_TWICE, "another machine has this name too");
				faults += audit.faults;
			}
	}
	return faults;
}
