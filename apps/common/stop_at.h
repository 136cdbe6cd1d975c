/* A process that stops or dies when one of its machines enters a state, for tests of what others make of it:
 *
 *     NEAP_STOP_AT=MACHINE.STATE[+][:N]    SIGSTOP
 *     NEAP_KILL_AT=MACHINE.STATE[+][:N]    SIGKILL
 *
 * when a machine of that kind enters that state from another for the N-th time (1 unless said): before it does what belongs to the
 * transition, or with a + once the turn is over in which it did, and what it had to send has been given to the network.
 * `neap-fsm list` and `neap-fsm show MACHINE` have the names. */
#ifndef APPS_COMMON_STOP_AT_H
#define APPS_COMMON_STOP_AT_H

#include "apps/common/flags.h"
#include "apps/common/host.h"

/* Once all that has machines is open, before the loop runs. Without the variables nothing is done and nothing costs anything. -1, or
 * APP_USAGE after a message when a variable cannot be followed. Once in a process. */
int app_stop_at(const struct app_program *program, struct app_host *host);

#endif
