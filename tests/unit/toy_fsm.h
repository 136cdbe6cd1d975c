/* A small machine for the tests of dispatcher and reactor. */
#define FSM toy
#define FSM_PURPOSE "is driven through every kind of cell by tests"
#define FSM_TIMEOUTS(T) T(SHORT) T(LONG)
#define FSM_STATES(S)                                        \
	S(IDLE, WORK, NONE, "a START")                           \
	S(ASKED, WAIT, SHORT, "a REPLY")                         \
	S(HELD, WAIT, LONG, "a second REPLY")                    \
	S(DONE, FINAL, NONE, "nothing")
#define FSM_EVENTS(E) E(START) E(REPLY) E(FAN) E(STOP)
#define FSM_ACTIONS(A) A(start) A(note) A(fan) A(expire)
#define FSM_ROWS(R)                                                                          \
	/*       TIMEOUT          START             REPLY            FAN              STOP */    \
	R(IDLE,  NEVER,           GO(ASKED, start), GO(IDLE, note),  GO(IDLE, fan),   GO(DONE, none)) \
	R(ASKED, GO(DONE, expire), SKIP,            GO(HELD, note),  GO(ASKED, fan),  GO(DONE, none)) \
	R(HELD,  GO(DONE, expire), SKIP,            GO(DONE, note),  GO(HELD, fan),   GO(DONE, none)) \
	R(DONE,  SKIP,            NEVER,            SKIP,            SKIP,            SKIP)
#include "fsm/declare.h"
