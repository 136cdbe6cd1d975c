/* One peer: whether there is work for it, and how it is reached again after it could not be. */
#define FSM tcp_peer
#define FSM_PURPOSE "keeps the requests for one segment and the lanes they travel on"
#define FSM_TIMEOUTS(T) T(PAUSE)
#define FSM_STATES(S) \
	S(IDLE, WORK, NONE, "a request") \
	S(ACTIVE, PARENT, NONE, "its lanes (tcp_lane), each of which is bounded") \
	S(REFRESHING, PARENT, NONE, "segment_fetch: the descriptor, because the peer is not what it was") \
	S(BACKOFF, WAIT, PAUSE, "the pause before the peer is tried again") \
	S(GONE, FINAL, NONE, "nothing: its requests are canceled and its lanes closed")
/* QUIET: nothing is queued or under way. TROUBLE: no lane could be had, or its descriptor was found wrong before. CHANGED, SAME: the
 * descriptor was read, SAME also when it could not be. GIVE_UP: the budget for reaching it is spent. */
#define FSM_EVENTS(E) E(WORK) E(QUIET) E(TROUBLE) E(CHANGED) E(SAME) E(GIVE_UP) E(FORGET)
#define FSM_ACTIONS(A) A(refresh) A(stop_refresh) A(pump) A(give_up) A(leave)
#define FSM_ROWS(R)                                                                                                        \
	/*            TIMEOUT           WORK              QUIET                   TROUBLE                  CHANGED                 \
	              SAME              GIVE_UP           FORGET */                                                                \
	R(IDLE,       NEVER,            GO(ACTIVE, none), NEVER,                  GO(REFRESHING, refresh), NEVER,                  \
	              NEVER,            NEVER,            GO(GONE, leave))                                                         \
	R(ACTIVE,     NEVER,            NEVER,            GO(IDLE, none),         GO(REFRESHING, refresh), NEVER,                  \
	              NEVER,            GO(IDLE, give_up), GO(GONE, leave))                                                        \
	R(REFRESHING, NEVER,            NEVER,            GO(IDLE, stop_refresh), NEVER,                   GO(ACTIVE, pump),       \
	              GO(BACKOFF, none), NEVER,           GO(GONE, leave))                                                         \
	R(BACKOFF,    GO(ACTIVE, pump), NEVER,            GO(IDLE, none),         NEVER,                   NEVER,                  \
	              NEVER,            NEVER,            GO(GONE, leave))                                                         \
	R(GONE,       NEVER,            NEVER,            NEVER,                  NEVER,                   NEVER,                  \
	              NEVER,            NEVER,            NEVER)
#include "fsm/declare.h"
