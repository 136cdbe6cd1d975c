/* Machine move_record: the owner moves a value itself, from an accessor's buffers into a tier or back. It has no lease: the owner knows
 * when its own transfer has ended. The accessor's buffers are reached by grants that the accessor alone can end. */
#define FSM move_record
#define FSM_PURPOSE "one value on its way between a tier and an accessor's buffers, moved by the owner"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                                  \
	S(NEW, WORK, NONE, "its order")                                                                    \
	S(BRINGING, PARENT, NONE, "its value to be read from a disk into memory, which has a deadline")         \
	S(OPENING, PARENT, NONE, "the accessor's segment, whose descriptor has a deadline")                \
	S(MOVING, PARENT, NONE, "its batch, which has a deadline")                                         \
	S(CHECKING, WORK, NONE, "its bytes to be summed, a piece a turn")                                  \
	S(HOLDING, PARENT, NONE, "the transport to let go of the memory, within drain_timeout_ms")         \
	S(DONE, FINAL, NONE, "nothing")
#define FSM_EVENTS(E) E(ORDER) E(COLD) E(OPENED) E(MOVED_IN) E(MOVED_OUT) E(FAILED) E(HELD) E(RELEASED) E(RIGHT) E(WRONG)
#define FSM_ACTIONS(A) A(open) A(move) A(check) A(publish) A(finish) A(fail) A(report) A(settle)
/*   TIMEOUT, ORDER, COLD, OPENED, MOVED_IN, MOVED_OUT, FAILED, HELD, RELEASED, RIGHT, WRONG. COLD: the order, and it lies on a disk */
#define FSM_ROWS(R)                                                                                                             \
	R(NEW, NEVER, GO(OPENING, open), GO(BRINGING, none), NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER)                \
	R(BRINGING, NEVER, GO(OPENING, open), NEVER, NEVER, NEVER, NEVER, GO(DONE, fail), NEVER, NEVER, NEVER, NEVER)               \
	R(OPENING, NEVER, NEVER, NEVER, GO(MOVING, move), NEVER, NEVER, GO(DONE, fail), NEVER, NEVER, NEVER, NEVER)                 \
	R(MOVING, NEVER, NEVER, NEVER, NEVER, GO(CHECKING, check), GO(DONE, finish), GO(DONE, fail), GO(HOLDING, report), NEVER, NEVER, \
	  NEVER)                                                                                                                    \
	R(CHECKING, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, GO(DONE, publish), GO(DONE, fail))               \
	R(HOLDING, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, GO(DONE, settle), NEVER, NEVER)                          \
	R(DONE, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER)
#include "fsm/declare.h"
