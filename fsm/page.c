/* docs/fsm: one Markdown page a machine, and the index. */
#include "fsm/sink.h"
#include "fsm/tables.h"

#define GENERATED "<!-- Made by `neap-fsm docs`. Change the table in the machine's _fsm.h instead. -->\n\n"

/* A bar would end the table's column. */
static void cell_text(struct neap_sink *sink, const char *text)
{
	for (; *text; text++)
		if (*text == '|')
			neap_sink_text(sink, "\\|");
		else
			neap_sink_bytes(sink, text, 1);
}

static void page_states(struct neap_sink *sink, const struct neap_fsm *fsm)
{
	neap_sink_text(sink, "## States\n\n| state | kind | timeout | waits for |\n| --- | --- | --- | --- |\n");
	for (uint8_t s = 0; s < fsm->state_count; s++) {
		const struct neap_state_info *info = &fsm->states[s];
		neap_sink_format(sink, "| %s | %s | %s | ", info->name, neap_fsm_state_kind_name(info->kind),
		                 info->timeout_class ? fsm->timeout_names[info->timeout_class] : "");
		cell_text(sink, info->waits_for);
		neap_sink_text(sink, " |\n");
	}
}

static void page_cell(struct neap_sink *sink, const struct neap_fsm *fsm, const struct neap_cell *cell)
{
	if (cell->kind == NEAP_CELL_IGNORE) {
		neap_sink_text(sink, " ignored |");
	} else if (cell->kind == NEAP_CELL_IMPOSSIBLE) {
		neap_sink_text(sink, " |");
	} else {
		neap_sink_format(sink, " **%s**", fsm->states[cell->next].name);
		if (cell->action)
			neap_sink_format(sink, "<br>%s", fsm->action_names[cell->action]);
		neap_sink_text(sink, " |");
	}
}

static void page_events(struct neap_sink *sink, const struct neap_fsm *fsm)
{
	neap_sink_text(sink, "\n## Events\n\nNext state and action. An empty cell cannot happen.\n\n| event |");
	for (uint8_t s = 0; s < fsm->state_count; s++)
		neap_sink_format(sink, " %s |", fsm->states[s].name);
	neap_sink_text(sink, "\n| --- |");
	for (uint8_t s = 0; s < fsm->state_count; s++)
		neap_sink_text(sink, " --- |");
	for (uint8_t e = 0; e < fsm->event_count; e++) {
		neap_sink_format(sink, "\n| %s |", fsm->event_names[e]);
		for (uint8_t s = 0; s < fsm->state_count; s++)
			page_cell(sink, fsm, neap_fsm_cell(fsm, s, e));
	}
	neap_sink_text(sink, "\n");
}

/* Writes into the sink's stream, between two of its pieces. */
static int forward(void *user, const void *bytes, size_t length)
{
	struct neap_sink *sink = user;
	neap_sink_bytes(sink, bytes, length);
	return sink->error;
}

int neap_fsm_write_page(const struct neap_fsm *fsm, neap_write_func *write, void *user)
{
	struct neap_sink sink;
	neap_sink_begin(&sink, write, user);
	neap_sink_format(&sink, "# %s\n\n" GENERATED, fsm->name);
	neap_sink_text(&sink, fsm->purpose);
	neap_sink_format(&sink, ".\n\n%u states, %u events, %u transitions; traced to the %s ring. [All machines](README.md)\n\n```mermaid\n",
	                 fsm->state_count, fsm->event_count, neap_fsm_count_cells(fsm, NEAP_CELL_GO),
	                 fsm->data_path ? "data-path" : "control");
	(void)neap_fsm_write_mermaid(fsm, forward, &sink);
	neap_sink_text(&sink, "```\n\n");
	page_states(&sink, fsm);
	page_events(&sink, fsm);
	return neap_sink_end(&sink);
}

int neap_fsm_write_index(const struct neap_fsm *const *machines, size_t count, neap_write_func *write, void *user)
{
	struct neap_sink sink;
	neap_sink_begin(&sink, write, user);
	neap_sink_text(&sink, "# Machines\n\n" GENERATED
	                      "What the words mean is in [FSM.md](../FSM.md).\n\n"
	                      "| machine | purpose | states | events | transitions |\n| --- | --- | --- | --- | --- |\n");
	for (size_t i = 0; i < count; i++) {
		const struct neap_fsm *fsm = machines[i];
		neap_sink_format(&sink, "| [%s](%s.md) | ", fsm->name, fsm->name);
		cell_text(&sink, fsm->purpose);
		neap_sink_format(&sink, " | %u | %u | %u |\n", fsm->state_count, fsm->event_count, neap_fsm_count_cells(fsm, NEAP_CELL_GO));
	}
	return neap_sink_end(&sink);
}
