/* Machine region: one registered range. What it guards is in transports/registry.h. */
#define FSM region
#define FSM_PURPOSE "one registered range of memory"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                                   \
	S(LIVE, WORK, NONE, "the last unregister call")                                                     \
	S(FENCING, PARENT, NONE, "the end of the turn each core was in: the registry's grace period looks") \
	S(KEPT, PARENT, NONE, "the keeper, which takes it off RDMA devices, to let go of it")               \
	S(GONE, FINAL, NONE, "nothing: the slot may be used for another range")
/* PASSED: the grace period, and no keeper has it. PASSED_KEPT: one still has. LET_GO: that one has not any more. */
#define FSM_EVENTS(E) E(UNREGISTER) E(PASSED) E(PASSED_KEPT) E(LET_GO)
#define FSM_ACTIONS(A) \
	A(fence)           \
	A(release)
/*             TIMEOUT  UNREGISTER      PASSED             PASSED_KEPT     LET_GO */
#define FSM_ROWS(R)                                                                   \
	R(LIVE,    NEVER, GO(FENCING, fence), NEVER,             NEVER,          NEVER)             \
	R(FENCING, NEVER, NEVER,              GO(GONE, release), GO(KEPT, none), SKIP)              \
	R(KEPT,    NEVER, NEVER,              NEVER,             NEVER,          GO(GONE, release)) \
	R(GONE,    NEVER, NEVER,              NEVER,             NEVER,          NEVER)
#include "fsm/declare.h"
