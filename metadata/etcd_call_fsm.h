/* Machine etcd_call: one operation, of up to three requests. */
#define FSM etcd_call
#define FSM_PURPOSE "one operation on etcd, within one deadline, on whichever member answers"
#define FSM_TIMEOUTS(T) T(TOTAL) T(PAUSE)
#define FSM_STATES(S)                                                                                        \
	S(IDLE, WORK, NONE, "a call to get, set, remove or touch")                                               \
	S(PLANNING, WORK, NONE, "nothing: what comes next is looked up and posted at once")                      \
	S(AWAITING, WAIT, TOTAL, "the token for our user, which is asked for once for all")                      \
	S(LEASING, PARENT, NONE, "a lease to be granted, or ours to begin anew: http_call has a deadline, here and below") \
	S(ASKING, PARENT, NONE, "the answer to the operation itself")                                             \
	S(RENEWING, PARENT, NONE, "the lease of a key that was found to begin anew")                              \
	S(REVOKING, PARENT, NONE, "our lease to end, now that the last key under it is removed")                  \
	S(PAUSING, WAIT, PAUSE, "the pause before the next attempt: another member at once, all again later") \
	S(DONE, FINAL, NONE, "nothing: the caller was told")
/* PLAN: begin, or begin again. NEED_TOKEN, NEED_LEASE, SEND: what comes next. RENEW, REVOKE: the operation is done but for this. AGAIN:
 * this attempt came to nothing, another may not. FAILED: no other would help. */
#define FSM_EVENTS(E) E(PLAN) E(NEED_TOKEN) E(NEED_LEASE) E(SEND) E(RENEW) E(REVOKE) E(ANSWERED) E(AGAIN) E(FAILED)
#define FSM_ACTIONS(A) A(plan) A(await) A(lease) A(ask) A(renew) A(revoke) A(deliver) A(pause) A(fail) A(give_up)
#define FSM_ROWS(R)                                                                                                            \
	/*          TIMEOUT              PLAN                NEED_TOKEN           NEED_LEASE          SEND                         \
	            RENEW                REVOKE              ANSWERED             AGAIN               FAILED */                    \
	R(IDLE,     NEVER,               GO(PLANNING, plan), NEVER,               NEVER,              NEVER,                       \
	            NEVER,               NEVER,              NEVER,               NEVER,              NEVER)                       \
	R(PLANNING, NEVER,               NEVER,              GO(AWAITING, await), GO(LEASING, lease), GO(ASKING, ask),             \
	            NEVER,               NEVER,              NEVER,               NEVER,              GO(DONE, fail))              \
	R(AWAITING, GO(DONE, give_up),   GO(PLANNING, plan), NEVER,               NEVER,              NEVER,                       \
	            NEVER,               NEVER,              NEVER,               GO(PAUSING, pause), GO(DONE, fail))              \
	R(LEASING,  NEVER,               GO(PLANNING, plan), NEVER,               NEVER,              NEVER,                       \
	            NEVER,               NEVER,              NEVER,               GO(PAUSING, pause), GO(DONE, fail))              \
	R(ASKING,   NEVER,               GO(PLANNING, plan), NEVER,               NEVER,              NEVER,                       \
	            GO(RENEWING, renew), GO(REVOKING, revoke), GO(DONE, deliver), GO(PAUSING, pause), GO(DONE, fail))              \
	R(RENEWING, NEVER,               NEVER,              NEVER,               NEVER,              NEVER,                       \
	            NEVER,               NEVER,              GO(DONE, deliver),   GO(PAUSING, pause), GO(DONE, fail))              \
	R(REVOKING, NEVER,               NEVER,              NEVER,               NEVER,              NEVER,                       \
	            NEVER,               NEVER,              GO(DONE, deliver),   NEVER,              NEVER)                       \
	R(PAUSING,  GO(PLANNING, plan),  NEVER,              NEVER,               NEVER,              NEVER,                       \
	            NEVER,               NEVER,              NEVER,               NEVER,              NEVER)                       \
	R(DONE,     NEVER,               NEVER,              NEVER,               NEVER,              NEVER,                       \
	            NEVER,               NEVER,              NEVER,               NEVER,              NEVER)
#include "fsm/declare.h"
