/* Machine http_call: one request. */
#define FSM http_call
#define FSM_PURPOSE "one request to an HTTP metadata server, within one deadline"
#define FSM_TIMEOUTS(T) T(TOTAL)
#define FSM_STATES(S)                                                                   \
	S(IDLE, WORK, NONE, "a call to get, set, remove or touch")                          \
	S(RESOLVING, WAIT, TOTAL, "the addresses of the server's name")                     \
	S(ASKING, WAIT, TOTAL, "the whole answer, on a new connection or a kept one")       \
	S(DONE, FINAL, NONE, "nothing: the caller was told")
/* ANSWERED: whatever the status says. FAILED: no whole answer. */
#define FSM_EVENTS(E) E(NAME) E(NUMERIC) E(RESOLVED) E(FAILED) E(ANSWERED)
#define FSM_ACTIONS(A) A(resolve) A(ask) A(deliver) A(fail) A(give_up)
#define FSM_ROWS(R)                                                                                                  \
	/*           TIMEOUT            NAME                    NUMERIC          RESOLVED         FAILED        ANSWERED */      \
	R(IDLE,      NEVER,             GO(RESOLVING, resolve), GO(ASKING, ask), NEVER,           NEVER,          NEVER)             \
	R(RESOLVING, GO(DONE, give_up), NEVER,                  NEVER,           GO(ASKING, ask), GO(DONE, fail), NEVER)             \
	R(ASKING,    GO(DONE, give_up), NEVER,                  NEVER,           NEVER,           GO(DONE, fail), GO(DONE, deliver)) \
	R(DONE,      NEVER,             NEVER,                  NEVER,           NEVER,           NEVER,          NEVER)
#include "fsm/declare.h"
