/* Machine store_life: a store from open to gone. What belongs to it ends in the order in which it leans on one another. */
#define FSM store_life
#define FSM_PURPOSE "a store's life: open, drained if its host wants, then each of its parts closed in turn"
#define FSM_TIMEOUTS(T) T(DRAIN)
#define FSM_STATES(S)                                                                                    \
	S(OPEN, WORK, NONE, "operations, and its host's word to drain or close")                             \
	S(DRAINING, WAIT, DRAIN, "the directory to hear that we leave, and what peers have begun to end")    \
	S(DRAINED, WORK, NONE, "its host's word to close")                                                   \
	S(LEAVING, PARENT, NONE, "the accessor's operations to end, which were canceled")                    \
	S(UNANNOUNCING, PARENT, NONE, "the announcer to tell the directory, which has a deadline")           \
	S(UNSERVING, PARENT, NONE, "the peers' connections to end, which has a deadline")                    \
	S(EMPTYING, PARENT, NONE, "the owner's grants and moves to end")                                     \
	S(UNMAPPING, PARENT, NONE, "the engine to let go of the tiers' memory, within its grace period")     \
	S(GONE, FINAL, NONE, "nothing")
#define FSM_EVENTS(E) E(DRAIN) E(QUIET) E(CLOSE) E(ENDED)
#define FSM_ACTIONS(A) A(drain) A(drained) A(late) A(leave) A(unannounce) A(unserve) A(empty) A(unmap) A(finish)
/*   TIMEOUT, DRAIN, QUIET, CLOSE, ENDED */
#define FSM_ROWS(R)                                                                                    \
	R(OPEN, NEVER, GO(DRAINING, drain), SKIP, GO(LEAVING, leave), NEVER)                               \
	R(DRAINING, GO(DRAINED, late), SKIP, GO(DRAINED, drained), GO(LEAVING, leave), NEVER)              \
	R(DRAINED, NEVER, SKIP, SKIP, GO(LEAVING, leave), NEVER)                                           \
	R(LEAVING, NEVER, SKIP, SKIP, SKIP, GO(UNANNOUNCING, unannounce))                                  \
	R(UNANNOUNCING, NEVER, SKIP, SKIP, SKIP, GO(UNSERVING, unserve))                                   \
	R(UNSERVING, NEVER, SKIP, SKIP, SKIP, GO(EMPTYING, empty))                                         \
	R(EMPTYING, NEVER, SKIP, SKIP, SKIP, GO(UNMAPPING, unmap))                                         \
	R(UNMAPPING, NEVER, SKIP, SKIP, SKIP, GO(GONE, finish))                                            \
	R(GONE, NEVER, SKIP, SKIP, SKIP, NEVER)
#include "fsm/declare.h"
