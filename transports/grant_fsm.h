/* Machine grant: the right of one peer to reach one range. */
#define FSM grant
#define FSM_PURPOSE "the right of a peer to reach one range"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                                   \
	S(LIVE, WORK, NONE, "its owner to end it")                                                          \
	S(FENCING, PARENT, NONE, "the end of the turn each core was in: the registry's grace period looks") \
	S(GONE, FINAL, NONE, "nothing: the slot may be used for another grant")
#define FSM_EVENTS(E) \
	E(END)            \
	E(PASSED)
#define FSM_ACTIONS(A) \
	A(fence)           \
	A(release)
/*          TIMEOUT  END                 PASSED */
#define FSM_ROWS(R)                             \
	R(LIVE, NEVER, GO(FENCING, fence), NEVER)   \
	R(FENCING, NEVER, NEVER, GO(GONE, release)) \
	R(GONE, NEVER, NEVER, NEVER)
#include "fsm/declare.h"
