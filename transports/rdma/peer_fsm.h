/* Machine rdma_peer: one segment over RDMA: whether there is work for it, and how it is reached again after no rail could carry it. */
#define FSM rdma_peer
#define FSM_PURPOSE "keeps the requests for one segment and the rails their pieces travel on"
#define FSM_TIMEOUTS(T) T(PAUSE)
#define FSM_STATES(S)                                                                                   \
	S(IDLE, WORK, NONE, "a request")                                                                    \
	S(ACTIVE, PARENT, NONE, "its rails (rdma_rail), each of which is bounded")                          \
	S(REFRESHING, PARENT, NONE, "segment_fetch: the descriptor, because no rail to the peer works")     \
	S(BACKOFF, WAIT, PAUSE, "the pause before the peer is tried again")                                 \
	S(LEAVING, PARENT, NONE, "its rails, to be closed; each of their endpoints is bounded")             \
	S(GONE, FINAL, NONE, "nothing: its requests have ended and its rails are closed")
/* TROUBLE: no rail is open or opening. CHANGED, SAME: the descriptor was read, SAME also when it could not be. GIVE_UP: the budget for
 * reaching it is spent. CLOSED: no rail is left. */
#define FSM_EVENTS(E) E(WORK) E(QUIET) E(TROUBLE) E(CHANGED) E(SAME) E(GIVE_UP) E(FORGET) E(CLOSED)
#define FSM_ACTIONS(A) A(refresh) A(stop_refresh) A(pump) A(give_up) A(leave) A(part)
#define FSM_ROWS(R)                                                                                                       \
	/*            TIMEOUT           WORK              QUIET                   TROUBLE                  CHANGED                \
	              SAME              GIVE_UP           FORGET                  CLOSED */                                       \
	R(IDLE,       NEVER,            GO(ACTIVE, none), NEVER,                  NEVER,                   NEVER,                 \
	              NEVER,            NEVER,            GO(LEAVING, leave),     NEVER)                                          \
	R(ACTIVE,     NEVER,            NEVER,            GO(IDLE, none),         GO(REFRESHING, refresh), NEVER,                 \
	              NEVER,            GO(IDLE, give_up), GO(LEAVING, leave),    NEVER)                                          \
	R(REFRESHING, NEVER,            NEVER,            GO(IDLE, stop_refresh), NEVER,                   GO(ACTIVE, pump),      \
	              GO(BACKOFF, none), NEVER,           GO(LEAVING, leave),     NEVER)                                          \
	R(BACKOFF,    GO(ACTIVE, pump), NEVER,            GO(IDLE, none),         NEVER,                   NEVER,                 \
	              NEVER,            NEVER,            GO(LEAVING, leave),     NEVER)                                          \
	R(LEAVING,    NEVER,            NEVER,            NEVER,                  NEVER,                   NEVER,                 \
	              NEVER,            NEVER,            NEVER,                  GO(GONE, part))                                 \
	R(GONE,       NEVER,            NEVER,            NEVER,                  NEVER,                   NEVER,                 \
	              NEVER,            NEVER,            NEVER,                  NEVER)
#include "fsm/declare.h"
