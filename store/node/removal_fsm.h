/* Machine key_removal: a key is removed at all its owners. */
#define FSM key_removal
#define FSM_PURPOSE "removes one key at every owner that the directory knows, and in this process"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                              \
	S(NEW, WORK, NONE, "its turn to begin")                                                        \
	S(FINDING, PARENT, NONE, "the directory's replicas, for which there is a deadline")            \
	S(REMOVING, PARENT, NONE, "the owners' answers, for which there is a deadline")                \
	S(DONE, FINAL, NONE, "nothing")
#define FSM_EVENTS(E) E(START) E(FOUND) E(NONE) E(ANSWERED)
#define FSM_ACTIONS(A) A(find) A(remove) A(finish)
/*   TIMEOUT, START, FOUND, NONE, ANSWERED */
#define FSM_ROWS(R)                                                                                \
	R(NEW, NEVER, GO(FINDING, find), NEVER, NEVER, NEVER)                                          \
	R(FINDING, NEVER, NEVER, GO(REMOVING, remove), GO(DONE, finish), NEVER)                        \
	R(REMOVING, NEVER, NEVER, NEVER, NEVER, GO(DONE, finish))                                      \
	R(DONE, NEVER, NEVER, NEVER, NEVER, NEVER)
#include "fsm/declare.h"
