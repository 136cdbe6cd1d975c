/* Machine etcd_watch: the one stream that tells of changes under our prefix. */
#define FSM etcd_watch
#define FSM_PURPOSE "keeps one stream of changes from etcd open for all that watch, and takes it up again where it ended"
#define FSM_TIMEOUTS(T) T(REPLY) T(RENEW) T(PAUSE)
#define FSM_STATES(S)                                                                                          \
	S(IDLE, WORK, NONE, "the first watch")                                                                     \
	S(OPENING, WORK, NONE, "nothing: what comes next is looked up and posted at once")                         \
	S(AWAITING, PARENT, NONE, "the token, from etcd_token, which has a deadline of its own")                   \
	S(CREATING, WAIT, REPLY, "the word that the stream has begun")                                             \
	S(WATCHING, WORK, RENEW, "changes; after a while another member-side stream takes over, for this one may have died in silence") \
	S(PAUSING, WAIT, PAUSE, "the pause before the next attempt to end")                                        \
	S(CLOSED, FINAL, NONE, "nothing: the back-end is destroyed")
/* COMPACTED: what came since we looked is forgotten there. EXPIRED: the token is not taken. ENDED: the stream did, in its prime. BROKEN: it
 * will not do, for now. */
#define FSM_EVENTS(E) E(NEEDED) E(NEED_TOKEN) E(READY) E(CREATED) E(COMPACTED) E(EXPIRED) E(ENDED) E(BROKEN) E(CLOSE)
#define FSM_ACTIONS(A) A(open) A(await) A(create) A(begin) A(resume) A(restart) A(expire) A(lose) A(give_up) A(close)
#define FSM_ROWS(R)                                                                                                               \
	/*          TIMEOUT               NEEDED                NEED_TOKEN            READY                CREATED                        \
	            COMPACTED             EXPIRED               ENDED                 BROKEN               CLOSE */                        \
	R(IDLE,     NEVER,                GO(OPENING, open),    NEVER,                NEVER,               NEVER,                         \
	            NEVER,                NEVER,                NEVER,                NEVER,               GO(CLOSED, close))             \
	R(OPENING,  NEVER,                NEVER,                GO(AWAITING, await),  GO(CREATING, create), NEVER,                        \
	            NEVER,                NEVER,                NEVER,                NEVER,               NEVER)                         \
	R(AWAITING, NEVER,                NEVER,                NEVER,                GO(CREATING, create), NEVER,                        \
	            NEVER,                NEVER,                NEVER,                GO(PAUSING, lose),   GO(CLOSED, close))             \
	R(CREATING, GO(PAUSING, give_up), NEVER,                NEVER,                NEVER,               GO(WATCHING, begin),           \
	            GO(OPENING, restart), GO(OPENING, expire),  NEVER,                GO(PAUSING, lose),   GO(CLOSED, close))             \
	R(WATCHING, GO(OPENING, resume),  NEVER,                NEVER,                NEVER,               NEVER,                         \
	            GO(OPENING, restart), NEVER,                GO(OPENING, resume),  GO(PAUSING, lose),   GO(CLOSED, close))             \
	R(PAUSING,  GO(OPENING, open),    NEVER,                NEVER,                NEVER,               NEVER,                         \
	            NEVER,                NEVER,                NEVER,                NEVER,               GO(CLOSED, close))             \
	R(CLOSED,   NEVER,                NEVER,                NEVER,                NEVER,               NEVER,                         \
	            NEVER,                NEVER,                NEVER,                NEVER,               NEVER)
#include "fsm/declare.h"
