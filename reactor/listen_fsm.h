/* Accepts byte streams, and stops for a while when descriptors are short. */
#define FSM stream_listen
#define FSM_PURPOSE "accepts byte streams; pauses instead of spinning when descriptors are short"
#define FSM_TIMEOUTS(T) T(PAUSE)
#define FSM_STATES(S) \
	S(IDLE, WORK, NONE, "a call to neap_acceptor_open") \
	S(LISTENING, WORK, NONE, "a connection") \
	S(PAUSED, WAIT, PAUSE, "a descriptor to come free: one of its own connections to end, or the pause to pass") \
	S(FULL, PARENT, NONE, "one of its connections_max connections to end; the owner's sessions have deadlines") \
	S(CLOSED, FINAL, NONE, "nothing")
#define FSM_EVENTS(E) E(OPENED) E(READABLE) E(SHORT) E(LIMIT) E(RELEASED) E(CLOSE)
#define FSM_ACTIONS(A) A(watch) A(take) A(pause) A(unwatch)
#define FSM_ROWS(R)                                                                                                          \
	/*           TIMEOUT               OPENED                READABLE             SHORT                                      \
	             LIMIT                 RELEASED              CLOSE */                                                        \
	R(IDLE,      NEVER,                GO(LISTENING, watch), NEVER,               NEVER,                                     \
	             NEVER,                NEVER,                NEVER)                                                          \
	R(LISTENING, NEVER,                NEVER,                GO(LISTENING, take), GO(PAUSED, pause),                         \
	             GO(FULL, unwatch),    SKIP,                 GO(CLOSED, none))                                               \
	R(PAUSED,    GO(LISTENING, watch), NEVER,                SKIP,                NEVER,                                     \
	             NEVER,                GO(LISTENING, watch), GO(CLOSED, none))                                               \
	R(FULL,      NEVER,                NEVER,                SKIP,                NEVER,                                     \
	             NEVER,                GO(LISTENING, watch), GO(CLOSED, none))                                               \
	R(CLOSED,    NEVER,                NEVER,                SKIP,                NEVER,                                     \
	             NEVER,                SKIP,                 NEVER)
#include "fsm/declare.h"
