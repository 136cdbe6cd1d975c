/* Machine grant: the right of one peer to reach one range. */
#define FSM grant
#define FSM_PURPOSE "the right of a peer to reach one range"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                                   \
	S(LIVE, WORK, NONE, "its owner to end it")                                                          \
	S(FENCING, PARENT, NONE, "the end of the turn each core was in: the registry's grace period looks") \
	S(KEPT, PARENT, NONE, "rdma_slab: what the peer had keys for to be taken off RDMA devices")         \
	S(GONE, FINAL, NONE, "nothing: the slot may be used for another grant")
/* PASSED: the grace period, and no keeper has lent anything for it. PASSED_KEPT: one has, and it may be used. LET_GO: not any more. */
#define FSM_EVENTS(E) E(END) E(PASSED) E(PASSED_KEPT) E(LET_GO)
#define FSM_ACTIONS(A) \
	A(fence)           \
	A(release)
/*             TIMEOUT  END                 PASSED             PASSED_KEPT     LET_GO */
#define FSM_ROWS(R)                                                                             \
	R(LIVE,    NEVER, GO(FENCING, fence), NEVER,             NEVER,          NEVER)             \
	R(FENCING, NEVER, NEVER,              GO(GONE, release), GO(KEPT, none), SKIP)              \
	R(KEPT,    NEVER, NEVER,              NEVER,             NEVER,          GO(GONE, release)) \
	R(GONE,    NEVER, NEVER,              NEVER,             NEVER,          NEVER)
#include "fsm/declare.h"
