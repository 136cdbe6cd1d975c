/* Machine rdma_region: one range of memory on every device that is open. Its pieces are registered and deregistered one after the other by
 * the helper, so that other jobs get in between. What the kernel was asked has no deadline (pinning takes what it takes); the timeout of
 * that wait only says so in the log. */
#define FSM rdma_region
#define FSM_PURPOSE "one range of memory, registered on every RDMA device"
#define FSM_TIMEOUTS(T) T(SLOW) T(RETRY)
#define FSM_STATES(S)                                                                                            \
	S(IDLE, WORK, NONE, "its registration")                                                                      \
	S(REGISTERING, WAIT, SLOW, "the helper to register a piece on a device, for the first time")                 \
	S(LIVE, WORK, NONE, "its release, or devices that come and go")                                              \
	S(CHANGING, WAIT, SLOW, "the helper to register a piece on a device that came back, or to deregister one") \
	S(STUCK, WAIT, RETRY, "the time to try again what the kernel refused to deregister")                         \
	S(GONE, FINAL, NONE, "nothing: no device reaches the memory, and its owner was told")
/* MORE: the helper has answered and there is more to do. SETTLED: there is not. FREED: nothing is left, and it was to end. REFUSED: a
 * piece cannot be registered. BLOCKED: one cannot be deregistered. RAILS: a device has come or gone, or a piece is to have a new key. */
#define FSM_EVENTS(E) E(START) E(MORE) E(SETTLED) E(FREED) E(REFUSED) E(BLOCKED) E(RAILS) E(RELEASE)
#define FSM_ACTIONS(A) A(step) A(complain) A(tell) A(settle) A(roll_back) A(leave_out) A(lament) A(end) A(unwind) A(bury)
/*               TIMEOUT                     START                   MORE                   SETTLED
                 FREED           REFUSED                  BLOCKED             RAILS              RELEASE */
#define FSM_ROWS(R)                                                                                                         \
	R(IDLE,        NEVER,                      GO(REGISTERING, step), NEVER,                 NEVER,                         \
	               NEVER,          NEVER,                   NEVER,              NEVER,              NEVER)                  \
	R(REGISTERING, GO(REGISTERING, complain),  NEVER,                 GO(REGISTERING, step), GO(LIVE, tell),                \
	               NEVER,          GO(CHANGING, roll_back), GO(CHANGING, roll_back), SKIP,          GO(CHANGING, end))      \
	R(LIVE,        NEVER,                      NEVER,                 NEVER,                 NEVER,                         \
	               NEVER,          NEVER,                   NEVER,              GO(CHANGING, step), GO(CHANGING, unwind))   \
	R(CHANGING,    GO(CHANGING, complain),     NEVER,                 GO(CHANGING, step),    GO(LIVE, settle),              \
	               GO(GONE, bury), GO(CHANGING, leave_out), GO(STUCK, lament),  SKIP,               GO(CHANGING, end))      \
	R(STUCK,       GO(CHANGING, step),         NEVER,                 NEVER,                 NEVER,                         \
	               NEVER,          NEVER,                   NEVER,              SKIP,               GO(STUCK, end))         \
	R(GONE,        NEVER,                      NEVER,                 NEVER,                 NEVER,                         \
	               NEVER,          NEVER,                   NEVER,              NEVER,              NEVER)
#include "fsm/declare.h"
