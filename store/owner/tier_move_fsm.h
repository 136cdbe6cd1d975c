/* Machine tier_move: one value on its way to the tier on a disk, or from there into memory. It holds both places until the disk is done
 * with them; a read or write in the kernel has no deadline, because its memory could not be had back before it ends anyway. Those who
 * wait for the value have one. */
#define FSM tier_move
#define FSM_PURPOSE "a value on its way between memory and a disk"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                                          \
	S(NEW, WORK, NONE, "its order")                                                                            \
	S(WRITING, PARENT, NONE, "the disk to have written the value, which stays readable in memory")             \
	S(READING, PARENT, NONE, "the disk to have read the value into memory")                                    \
	S(CHECKING, WORK, NONE, "its bytes to be summed, a piece a turn")                                          \
	S(LEAVING, PARENT, NONE, "the disk to let go of both places: the value was removed meanwhile")             \
	S(DONE, FINAL, NONE, "nothing")
#define FSM_EVENTS(E) E(DOWN) E(UP) E(MOVED) E(FAILED) E(GONE) E(RIGHT) E(WRONG)
#define FSM_ACTIONS(A) A(keep) A(spoil) A(check) A(serve) A(lose) A(abandon) A(stop) A(finish)
/*   TIMEOUT, DOWN, UP, MOVED, FAILED, GONE, RIGHT, WRONG */
#define FSM_ROWS(R)                                                                                                             \
	R(NEW, NEVER, GO(WRITING, none), GO(READING, none), NEVER, NEVER, NEVER, NEVER, NEVER)                                      \
	R(WRITING, NEVER, NEVER, NEVER, GO(DONE, keep), GO(DONE, spoil), GO(LEAVING, abandon), NEVER, NEVER)                        \
	R(READING, NEVER, NEVER, NEVER, GO(CHECKING, check), GO(DONE, lose), GO(LEAVING, abandon), NEVER, NEVER)                    \
	R(CHECKING, NEVER, NEVER, NEVER, NEVER, NEVER, GO(DONE, stop), GO(DONE, serve), GO(DONE, lose))                             \
	R(LEAVING, NEVER, NEVER, NEVER, GO(DONE, finish), GO(DONE, finish), NEVER, NEVER, NEVER)                                    \
	R(DONE, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER)
#include "fsm/declare.h"
