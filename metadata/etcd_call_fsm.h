/* Machine etcd_call: one operation, of up to three requests. */
#define FSM etcd_call
#define FSM_PURPOSE "one operation on etcd, within one deadline, on whichever member answers"
#define FSM_TIMEOUTS(T) T(TOTAL) T(PAUSE)
#define FSM_STATES(S)                                                                                        \
	S(IDLE, WORK, NONE, "a call to get, set, remove or touch")                                               \
	S(PLANNING, WORK, NONE, "nothing: what comes next is looked up and posted at once")                      \
	S(AWAITING, WAIT, TOTAL, "the token for our user, which is asked for once for all")                      \
	S(LEASING, WAIT, TOTAL, "a lease to be granted, or the one we have to begin anew")                       \
	S(ASKING, WAIT, TOTAL, "the answer to the operation itself")                                             \
	S(RENEWING, WAIT, TOTAL, "the lease of a key that was found to begin anew")                              \
	S(REVOKING, WAIT, TOTAL, "our lease to end, now that the last key under it is removed")                  \
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
	R(LEASING,  GO(DONE, give_up),   GO(PLANNING, plan), NEVER,               NEVER,              NEVER,                       \
	            NEVER,               NEVER,              NEVER,               GO(PAUSING, pause), GO(DONE, fail))              \
	R(ASKING,   GO(DONE, give_up),   GO(PLANNING, plan), NEVER,               NEVER,              NEVER,                       \
	            GO(RENEWING, renew), GO(REVOKING, revoke), GO(DONE, deliver), GO(PAUSING, pause), GO(DONE, fail))              \
	R(RENEWING, GO(DONE, give_up),   NEVER,              NEVER,               NEVER,              NEVER,                       \
	            NEVER,               NEVER,              GO(DONE, deliver),   GO(PAUSING, pause), GO(DONE, fail))              \
	R(REVOKING, GO(DONE, deliver),   NEVER,              NEVER,               NEVER,              NEVER,                       \
	            NEVER,               NEVER,              GO(DONE, deliver),   NEVER,              NEVER)                       \
	R(PAUSING,  GO(PLANNING, plan),  NEVER,              NEVER,               NEVER,              NEVER,                       \
	            NEVER,               NEVER,              NEVER,               NEVER,              NEVER)                       \
	R(DONE,     NEVER,               NEVER,              NEVER,               NEVER,              NEVER,                       \
	            NEVER,               NEVER,              NEVER,               NEVER,              NEVER)
#include "fsm/declare.h"
