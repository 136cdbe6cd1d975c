/* Machine rdma_device: one device from its opening to its end, through all that its ports and its hardware do meanwhile. It waits for the
 * helper thread, which asks the kernel; that has no deadline (te spec 5, rdma-observed 2), so the timeouts of those waits only say so in
 * the log. What was asked before a device failed comes back after it and is passed over: jobs end in the order they were given. */
#define FSM rdma_device
#define FSM_PURPOSE "one RDMA device: opened, watched, lost, found again, closed"
#define FSM_TIMEOUTS(T) T(SLOW) T(RETRY)
#define FSM_STATES(S)                                                                                          \
	S(IDLE, WORK, NONE, "its first opening")                                                                   \
	S(OPENING, WAIT, SLOW, "the helper to open the device and to look at its port and address")                \
	S(READY, WORK, NONE, "an event of the device; what stands on it works")                                    \
	S(DOWN, WORK, NONE, "an event that may bring back its port or address")                                    \
	S(LOOKING, WAIT, SLOW, "the helper to look at port and address again")                                     \
	S(LOSING, PARENT, NONE, "memory and endpoints to let go of a device that failed; each has its own bounds") \
	S(SHUTTING, WAIT, SLOW, "the helper to close a device that failed")                                        \
	S(AWAY, WAIT, RETRY, "the time to try again to open it")                                                   \
	S(LEAVING, PARENT, NONE, "memory and endpoints to let go before the end; each has its own bounds")         \
	S(CLOSING, WAIT, SLOW, "the helper to close it for good")                                                  \
	S(GONE, FINAL, NONE, "nothing: its owner was told")
/* OUTDATED: the answer to a look that an event overtook. FREE: nothing stands on the device any more. CLOSED: the helper closed it. */
#define FSM_EVENTS(E) E(OPEN) E(USABLE) E(UNUSABLE) E(OUTDATED) E(FAILED) E(CHANGED) E(FATAL) E(FREE) E(CLOSED) E(CLOSE)
#define FSM_ACTIONS(A) A(open) A(complain) A(begin) A(report) A(look) A(tell) A(lose) A(leave) A(shut) A(rest) A(bury)
/*            TIMEOUT                OPEN               USABLE            UNUSABLE         OUTDATED
              FAILED                 CHANGED            FATAL             FREE             CLOSED             CLOSE */
#define FSM_ROWS(R)                                                                                                    \
	R(IDLE,     NEVER,                 GO(OPENING, open), NEVER,            NEVER,           NEVER,                    \
	            NEVER,                 NEVER,             NEVER,            NEVER,           NEVER,             NEVER)              \
	R(OPENING,  GO(OPENING, complain), NEVER,             GO(READY, begin), GO(DOWN, begin), NEVER,                    \
	            GO(AWAY, report),      NEVER,             NEVER,            NEVER,           NEVER,             GO(CLOSING, shut))  \
	R(READY,    NEVER,                 NEVER,             NEVER,            NEVER,           NEVER,                    \
	            NEVER,                 GO(LOOKING, look), GO(LOSING, lose), NEVER,           NEVER,             GO(LEAVING, leave)) \
	R(DOWN,     NEVER,                 NEVER,             NEVER,            NEVER,           NEVER,                    \
	            NEVER,                 GO(LOOKING, look), GO(LOSING, lose), NEVER,           NEVER,             GO(LEAVING, leave)) \
	R(LOOKING,  GO(LOOKING, complain), NEVER,             GO(READY, tell),  GO(DOWN, tell),  GO(LOOKING, look),        \
	            GO(LOSING, lose),      SKIP,              GO(LOSING, lose), NEVER,           NEVER,             GO(LEAVING, leave)) \
	R(LOSING,   NEVER,                 NEVER,             SKIP,             SKIP,            SKIP,                     \
	            SKIP,                  NEVER,             NEVER,            GO(SHUTTING, shut), NEVER,          GO(LEAVING, none))  \
	R(SHUTTING, GO(SHUTTING, complain), NEVER,            SKIP,             SKIP,            SKIP,                     \
	            SKIP,                  NEVER,             NEVER,            NEVER,           GO(AWAY, rest),    GO(CLOSING, none))  \
	R(AWAY,     GO(OPENING, open),     NEVER,             NEVER,            NEVER,           NEVER,                    \
	            NEVER,                 NEVER,             NEVER,            NEVER,           NEVER,             GO(GONE, bury))     \
	R(LEAVING,  NEVER,                 NEVER,             SKIP,             SKIP,            SKIP,                     \
	            SKIP,                  NEVER,             NEVER,            GO(CLOSING, shut), NEVER,           NEVER)              \
	R(CLOSING,  GO(CLOSING, complain), NEVER,             SKIP,             SKIP,            SKIP,                     \
	            SKIP,                  NEVER,             NEVER,            NEVER,           GO(GONE, bury),    NEVER)              \
	R(GONE,     NEVER,                 NEVER,             NEVER,            NEVER,           NEVER,                    \
	            NEVER,                 NEVER,             NEVER,            NEVER,           NEVER,             NEVER)
#include "fsm/declare.h"
