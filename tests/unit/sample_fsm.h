/* A machine small enough to count by hand, for the tests of what reads tables. */
#define FSM sample
#define FSM_PURPOSE "asks once and \"tells\" | listens"
#define FSM_TIMEOUTS(T) T(ANSWER)
#define FSM_STATES(S)                            \
	S(IDLE, WORK, NONE, "a question")            \
	S(ASKED, WAIT, ANSWER, "the answer")         \
	S(RELAYED, PARENT, NONE, "the other sample") \
	S(DONE, FINAL, NONE, "nothing")
#define FSM_EVENTS(E) E(ASK) E(ANSWERED) E(CLOSE)
#define FSM_ACTIONS(A) A(send) A(tell)
#define FSM_ROWS(R)                                                                        \
	/*         TIMEOUT           ASK              ANSWERED            CLOSE */             \
	R(IDLE,    NEVER,            GO(ASKED, send), SKIP,               GO(DONE, none))      \
	R(ASKED,   GO(RELAYED, send), NEVER,          GO(DONE, tell),     GO(DONE, none))      \
	R(RELAYED, NEVER,            NEVER,           GO(DONE, tell),     GO(DONE, none))      \
	R(DONE,    SKIP,             NEVER,           SKIP,               SKIP)
#include "fsm/declare.h"
