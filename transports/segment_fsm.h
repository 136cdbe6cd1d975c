/* Machine segment: an opened peer. Refreshing its descriptor is no state: requests go on meanwhile with what is known. */
#define FSM segment
#define FSM_PURPOSE "an opened segment"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                              \
	S(OPENING, PARENT, NONE, "its descriptor from the directory, which bounds the fetch")          \
	S(OPEN, WORK, NONE, "requests, or to be closed")                                               \
	S(CLOSING, PARENT, NONE, "its transport to end what is left, within drain_timeout_ms")         \
	S(GONE, FINAL, NONE, "nothing: the id is stale")
#define FSM_EVENTS(E) \
	E(FOUND)          \
	E(NOT_FOUND)      \
	E(CLOSE)          \
	E(FORGOTTEN)
#define FSM_ACTIONS(A) \
	A(abandon)         \
	A(forget)          \
	A(bury)
/*             TIMEOUT  FOUND             NOT_FOUND         CLOSE                  FORGOTTEN */
#define FSM_ROWS(R)                                                                           \
	R(OPENING, NEVER, GO(OPEN, none), GO(GONE, bury), GO(GONE, abandon), NEVER)               \
	R(OPEN, NEVER, NEVER, NEVER, GO(CLOSING, forget), NEVER)                                  \
	R(CLOSING, NEVER, NEVER, NEVER, SKIP, GO(GONE, bury))                                     \
	R(GONE, NEVER, NEVER, NEVER, NEVER, NEVER)
#include "fsm/declare.h"
