/* Machine region: one registered range. What it guards is in transports/registry.h. */
#define FSM region
#define FSM_PURPOSE "one registered range of memory"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                                   \
	S(LIVE, WORK, NONE, "the last unregister call")                                                     \
	S(FENCING, PARENT, NONE, "the end of the turn each core was in: the registry's grace period looks") \
	S(GONE, FINAL, NONE, "nothing: the slot may be used for another range")
#define FSM_EVENTS(E) \
	E(UNREGISTER)     \
	E(PASSED)
#define FSM_ACTIONS(A) \
	A(fence)           \
	A(release)
/*          TIMEOUT  UNREGISTER          PASSED */
#define FSM_ROWS(R)                                   \
	R(LIVE, NEVER, GO(FENCING, fence), NEVER)         \
	R(FENCING, NEVER, NEVER, GO(GONE, release))       \
	R(GONE, NEVER, NEVER, NEVER)
#include "fsm/declare.h"
