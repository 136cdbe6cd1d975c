/* Machine engine_life: a Transfer Engine on one core. */
#define FSM engine_life
#define FSM_PURPOSE "a Transfer Engine on one core"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                                              \
	S(RUNNING, WORK, NONE, "work, or to be closed")                                                                \
	S(CLOSING, PARENT, NONE, "its transports to end what is left within drain_timeout_ms, and the grace periods") \
	S(CLOSED, FINAL, NONE, "nothing: its memory is given back at the end of the turn")
#define FSM_EVENTS(E) \
	E(CLOSE)          \
	E(DRAINED)
#define FSM_ACTIONS(A) \
	A(begin_close)     \
	A(finish)
/*             TIMEOUT  CLOSE                     DRAINED */
#define FSM_ROWS(R)                                     \
	R(RUNNING, NEVER, GO(CLOSING, begin_close), NEVER)  \
	R(CLOSING, NEVER, NEVER, GO(CLOSED, finish))         \
	R(CLOSED, NEVER, NEVER, NEVER)
#include "fsm/declare.h"
