/* Machine slice: one request on its way through a transport. Without a timer of its own: lane and batch have the deadlines. */
#define FSM slice
#define FSM_PURPOSE "one request on its way through a transport"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                                      \
	S(QUEUED, PARENT, NONE, "a lane that takes it; the transport bounds connecting, the batch the whole")  \
	S(UNDER_WAY, PARENT, NONE, "its bytes and the peer's answer; the lane has the progress deadline")      \
	S(CANCELING, PARENT, NONE, "the transport to let go of it, within drain_timeout_ms")                   \
	S(HELD, PARENT, NONE, "the transport to let go of the local buffer; the outcome is known")             \
	S(DONE, FINAL, NONE, "nothing: its batch gives it back")
#define FSM_EVENTS(E) \
	E(BEGUN)          \
	E(REQUEUED)       \
	E(ENDED)          \
	E(ENDED_HELD)     \
	E(CANCEL)         \
	E(RELEASED)
#define FSM_ACTIONS(A) \
	A(ask_cancel)
#define FSM_DATA_PATH 1
/*               TIMEOUT BEGUN                REQUEUED          ENDED           ENDED_HELD      CANCEL                     RELEASED */
#define FSM_ROWS(R)                                                                                                               \
	R(QUEUED,    NEVER, GO(UNDER_WAY, none), SKIP,             GO(DONE, none), NEVER,          GO(CANCELING, ask_cancel), NEVER) \
	R(UNDER_WAY, NEVER, NEVER,               GO(QUEUED, none), GO(DONE, none), GO(HELD, none), GO(CANCELING, ask_cancel), NEVER) \
	R(CANCELING, NEVER, SKIP,                SKIP,             GO(DONE, none), GO(HELD, none), NEVER,                     NEVER) \
	R(HELD,      NEVER, NEVER,               NEVER,            NEVER,          NEVER,          NEVER,                     GO(DONE, none)) \
	R(DONE,      NEVER, NEVER,               NEVER,            NEVER,          NEVER,          NEVER,                     NEVER)
#include "fsm/declare.h"
