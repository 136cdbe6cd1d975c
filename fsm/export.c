/* Machines as text, pictures and data. */
#include "fsm/sink.h"
#include "fsm/tables.h"
#include <string.h>

static const char *const kind_names[] = {"WORK", "WAIT", "PARENT", "FINAL"};

const char *neap_fsm_state_kind_name(uint8_t kind)
{
	return kind <= NEAP_STATE_FINAL ? kind_names[kind] : "UNKNOWN";
}

unsigned neap_fsm_count_cells(const struct neap_fsm *fsm, enum neap_cell_kind kind)
{
	unsigned count = 0;
	for (size_t i = 0; i < (size_t)fsm->state_count * fsm->event_count; i++)
		count += fsm->cells[i].kind == kind;
	return count;
}

static int width(const char *const *names, unsigned count)
{
	size_t widest = 0;
	for (unsigned i = 0; i < count; i++)
		if (strlen(names[i]) > widest)
			widest = strlen(names[i]);
	return (int)widest;
}

int neap_fsm_write_list(const struct neap_fsm *const *machines, size_t count, neap_write_func *write, void *user)
{
	struct neap_sink sink;
	neap_sink_begin(&sink, write, user);
	for (size_t i = 0; i < count; i++)
		neap_sink_format(&sink, "%-20s %2u states %2u events %3u transitions  %s\n", machines[i]->name, machines[i]->state_count,
		                 machines[i]->event_count, neap_fsm_count_cells(machines[i], NEAP_CELL_GO), machines[i]->purpose);
	return neap_sink_end(&sink);
}

/* --- text ------------------------------------------------------------------------------------------------------------- */

static void text_cells_of_kind(struct neap_sink *sink, const struct neap_fsm *fsm, uint8_t state, uint8_t kind, const char *title)
{
	bool any = false;
	for (uint8_t e = 0; e < fsm->event_count; e++) {
		if (neap_fsm_cell(fsm, state, e)->kind != kind)
			continue;
		if (!any)
			neap_sink_format(sink, "    %s", title);
		any = true;
		neap_sink_format(sink, " %s", fsm->event_names[e]);
	}
	if (any)
		neap_sink_text(sink, "\n");
}

static void text_state(struct neap_sink *sink, const struct neap_fsm *fsm, uint8_t state)
{
	const struct neap_state_info *info = &fsm->states[state];
	int event_width = width(fsm->event_names, fsm->event_count);
	neap_sink_format(sink, "\n%s (%s", info->name, neap_fsm_state_kind_name(info->kind));
	if (info->timeout_class)
		neap_sink_format(sink, ", timeout %s", fsm->timeout_names[info->timeout_class]);
	neap_sink_format(sink, "): %s\n", info->waits_for);
	for (uint8_t e = 0; e < fsm->event_count; e++) {
		const struct neap_cell *cell = neap_fsm_cell(fsm, state, e);
		if (cell->kind != NEAP_CELL_GO)
			continue;
		neap_sink_format(sink, "    %-*s -> %s", event_width, fsm->event_names[e], fsm->states[cell->next].name);
		if (cell->action)
			neap_sink_format(sink, ", %s", fsm->action_names[cell->action]);
		neap_sink_text(sink, "\n");
	}
	text_cells_of_kind(sink, fsm, state, NEAP_CELL_IGNORE, "ignored:");
	text_cells_of_kind(sink, fsm, state, NEAP_CELL_IMPOSSIBLE, "impossible:");
}

int neap_fsm_write_text(const struct neap_fsm *fsm, neap_write_func *write, void *user)
{
	struct neap_sink sink;
	neap_sink_begin(&sink, write, user);
	neap_sink_format(&sink, "%s: %s\n", fsm->name, fsm->purpose);
	for (uint8_t s = 0; s < fsm->state_count; s++)
		text_state(&sink, fsm, s);
	return neap_sink_end(&sink);
}

/* --- DOT -------------------------------------------------------------------------------------------------------------- */

static void dot_label(struct neap_sink *sink, const char *text)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			neap_sink_text(sink, "\\");
		neap_sink_bytes(sink, text, 1);
	}
}

/* All events that lead from one state to another share one arrow. */
static void dot_edge(struct neap_sink *sink, const struct neap_fsm *fsm, uint8_t from, uint8_t to)
{
	bool any = false;
	for (uint8_t e = 0; e < fsm->event_count; e++) {
		const struct neap_cell *cell = neap_fsm_cell(fsm, from, e);
		if (cell->kind != NEAP_CELL_GO || cell->next != to)
			continue;
		if (!any)
			neap_sink_format(sink, "\t%s -> %s [label=\"", fsm->states[from].name, fsm->states[to].name);
		neap_sink_format(sink, "%s%s", any ? "\\n" : "", fsm->event_names[e]);
		if (cell->action)
			neap_sink_format(sink, " / %s", fsm->action_names[cell->action]);
		any = true;
	}
	if (any)
		neap_sink_text(sink, "\"];\n");
}

int neap_fsm_write_dot(const struct neap_fsm *fsm, neap_write_func *write, void *user)
{
	static const char *const shapes[] = {"box,style=rounded", "box", "hexagon", "doubleoctagon"};
	struct neap_sink sink;
	neap_sink_begin(&sink, write, user);
	neap_sink_format(&sink, "digraph %s {\n\tlabel=\"", fsm->name);
	dot_label(&sink, fsm->name);
	neap_sink_text(&sink, ": ");
	dot_label(&sink, fsm->purpose);
	neap_sink_format(&sink, "\";\n\tnode [fontname=sans,fontsize=11];\n\tedge [fontname=sans,fontsize=9];\n"
	                        "\tbegin [shape=point];\n\tbegin -> %s;\n", fsm->states[0].name);
	for (uint8_t s = 0; s < fsm->state_count; s++) {
		const struct neap_state_info *info = &fsm->states[s];
		neap_sink_format(&sink, "\t%s [shape=%s,tooltip=\"", info->name, shapes[info->kind & 3]);
		dot_label(&sink, info->waits_for);
		neap_sink_text(&sink, "\"];\n");
	}
	for (uint8_t from = 0; from < fsm->state_count; from++)
		for (uint8_t to = 0; to < fsm->state_count; to++)
			dot_edge(&sink, fsm, from, to);
	neap_sink_text(&sink, "}\n");
	return neap_sink_end(&sink);
}

/* --- Mermaid ------------------------------------------------------------------------------------------------------------ */

int neap_fsm_write_mermaid(const struct neap_fsm *fsm, neap_write_func *write, void *user)
{
	struct neap_sink sink;
	neap_sink_begin(&sink, write, user);
	neap_sink_format(&sink, "stateDiagram-v2\n    [*] --> %s\n", fsm->states[0].name);
	for (uint8_t s = 0; s < fsm->state_count; s++) {
		for (uint8_t e = 0; e < fsm->event_count; e++) {
			const struct neap_cell *cell = neap_fsm_cell(fsm, s, e);
			if (cell->kind != NEAP_CELL_GO)
				continue;
			neap_sink_format(&sink, "    %s --> %s : %s", fsm->states[s].name, fsm->states[cell->next].name, fsm->event_names[e]);
			if (cell->action)
				neap_sink_format(&sink, " / %s", fsm->action_names[cell->action]);
			neap_sink_text(&sink, "\n");
		}
		if (fsm->states[s].kind == NEAP_STATE_FINAL)
			neap_sink_format(&sink, "    %s --> [*]\n", fsm->states[s].name);
	}
	return neap_sink_end(&sink);
}

/* --- JSON --------------------------------------------------------------------------------------------------------------- */

static void json_names(struct neap_sink *sink, const char *key, const char *const *names, unsigned count)
{
	neap_sink_format(sink, "   \"%s\": [", key);
	for (unsigned i = 0; i < count; i++) {
		neap_sink_text(sink, i ? ", " : "");
		neap_sink_json(sink, names[i]);
	}
	neap_sink_text(sink, "],\n");
}

static void json_cell(struct neap_sink *sink, const struct neap_fsm *fsm, const struct neap_cell *cell)
{
	if (cell->kind == NEAP_CELL_GO)
		neap_sink_format(sink, "{\"go\": \"%s\", \"action\": \"%s\"}", fsm->states[cell->next].name,
		                 fsm->action_names[cell->action]);
	else
		neap_sink_text(sink, cell->kind == NEAP_CELL_IGNORE ? "\"ignore\"" : "\"impossible\"");
}

static void json_state(struct neap_sink *sink, const struct neap_fsm *fsm, uint8_t state)
{
	const struct neap_state_info *info = &fsm->states[state];
	neap_sink_format(sink, "    {\"name\": \"%s\", \"kind\": \"%s\", \"timeout\": \"%s\", \"waits_for\": ", info->name,
	                 neap_fsm_state_kind_name(info->kind), fsm->timeout_names[info->timeout_class]);
	neap_sink_json(sink, info->waits_for);
	neap_sink_text(sink, ", \"cells\": [");
	for (uint8_t e = 0; e < fsm->event_count; e++) {
		neap_sink_text(sink, e ? ", " : "");
		json_cell(sink, fsm, neap_fsm_cell(fsm, state, e));
	}
	neap_sink_text(sink, "]}");
}

static void json_machine(struct neap_sink *sink, const struct neap_fsm *fsm)
{
	neap_sink_format(sink, "  {\"name\": \"%s\", \"purpose\": ", fsm->name);
	neap_sink_json(sink, fsm->purpose);
	neap_sink_format(sink, ", \"data_path\": %s,\n", fsm->data_path ? "true" : "false");
	json_names(sink, "events", fsm->event_names, fsm->event_count);
	json_names(sink, "actions", fsm->action_names, fsm->action_count);
	json_names(sink, "timeouts", fsm->timeout_names, fsm->timeout_count);
	neap_sink_text(sink, "   \"states\": [\n");
	for (uint8_t s = 0; s < fsm->state_count; s++) {
		json_state(sink, fsm, s);
		neap_sink_text(sink, s + 1 < fsm->state_count ? ",\n" : "\n");
	}
	neap_sink_text(sink, "   ]}");
}

int neap_fsm_write_json(const struct neap_fsm *const *machines, size_t count, neap_write_func *write, void *user)
{
	struct neap_sink sink;
	neap_sink_begin(&sink, write, user);
	neap_sink_text(&sink, "{\"machines\": [\n");
	for (size_t i = 0; i < count; i++) {
		json_machine(&sink, machines[i]);
		neap_sink_text(&sink, i + 1 < count ? ",\n" : "\n");
	}
	neap_sink_text(&sink, "]}\n");
	return neap_sink_end(&sink);
}
