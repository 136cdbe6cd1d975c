/* The report of `neap-fsm coverage FILE`. */
#ifndef APPS_FSM_COVERAGE_H
#define APPS_FSM_COVERAGE_H

#include <neap/fsm.h>
#include <stdio.h>

/* Adds up the lines `machine STATE EVENT count` of `file` and reports to `out` what was never taken. Returns how many GO cells that is;
 * an IMPOSSIBLE cell that was hit counts too. -1 when a line cannot be understood (the reason is on `out`). */
int fsm_coverage(FILE *file, const struct neap_fsm *const *machines, size_t count, FILE *out);

#endif
