/* What tools and tests do with machines as tables: hold them to the rules, draw them, list them. Pure: any thread, no heap. */
#ifndef NEAP_FSM_TABLES_H
#define NEAP_FSM_TABLES_H

#include <neap/fsm.h>

/* --- rules (fsm/check.c; docs/FSM.md has the reason for each) ---------------------------------------------------------- */

enum neap_fsm_fault {
	NEAP_FAULT_SHAPE = 1,       /* a count of zero, a missing name, event 0 that is not TIMEOUT */
	NEAP_FAULT_CELL,            /* a cell that is missing or points outside the table */
	NEAP_FAULT_TEXT,            /* a state that does not say what it waits for */
	NEAP_FAULT_UNREACHABLE,     /* a state that no path from state 0 enters */
	NEAP_FAULT_ENDLESS,         /* a state from which no path leads to a FINAL one */
	NEAP_FAULT_NO_TIMEOUT,      /* a WAIT state without timeout class or without a GO for TIMEOUT */
	NEAP_FAULT_TIMEOUT_UNHEARD, /* a timeout class in a state whose TIMEOUT cell cannot take it */
	NEAP_FAULT_TIMEOUT_DEAD,    /* a GO for TIMEOUT in a state that has no timeout class */
	NEAP_FAULT_FINAL_LEAVES,    /* a GO or a timeout class in a FINAL state */
	NEAP_FAULT_UNUSED,          /* an event without GO, an action or timeout class that nothing uses */
	NEAP_FAULT_NAME_TWICE,      /* two machines of one name */
	NEAP_FAULT_COUNT,
};

/* `message` is one line that starts with the machine's name. */
typedef void neap_fsm_found_func(void *user, enum neap_fsm_fault fault, const char *message);

/* Calls `found` for each fault; returns how many. */
unsigned neap_fsm_check(const struct neap_fsm *fsm, neap_fsm_found_func *found, void *user);
unsigned neap_fsm_check_all(const struct neap_fsm *const *machines, size_t count, neap_fsm_found_func *found, void *user);

/* --- pictures and lists (fsm/export.c, fsm/page.c) ------------------------------------------------------------------------ */

/* Each answers 0 or the error of `write`. */
int neap_fsm_write_list(const struct neap_fsm *const *machines, size_t count, neap_write_func *write, void *user);
int neap_fsm_write_text(const struct neap_fsm *fsm, neap_write_func *write, void *user);
int neap_fsm_write_dot(const struct neap_fsm *fsm, neap_write_func *write, void *user);
int neap_fsm_write_mermaid(const struct neap_fsm *fsm, neap_write_func *write, void *user);
int neap_fsm_write_json(const struct neap_fsm *const *machines, size_t count, neap_write_func *write, void *user);
int neap_fsm_write_page(const struct neap_fsm *fsm, neap_write_func *write, void *user);  /* docs/fsm/NAME.md */
int neap_fsm_write_index(const struct neap_fsm *const *machines, size_t count, neap_write_func *write, void *user);

/* "WORK", "WAIT", "PARENT", "FINAL". */
const char *neap_fsm_state_kind_name(uint8_t kind);
unsigned neap_fsm_count_cells(const struct neap_fsm *fsm, enum neap_cell_kind kind);

#endif
