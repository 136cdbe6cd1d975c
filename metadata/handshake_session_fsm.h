/* One served handshake: a request, a reply, the peer's close. */
#define FSM handshake_session
#define FSM_PURPOSE "serves one handshake connection: whole request, reply, then the peer's close"
#define FSM_TIMEOUTS(T) T(REQUEST) T(ANSWER) T(REPLY)
#define FSM_STATES(S) \
	S(IDLE, WORK, NONE, "an accepted connection") \
	S(RECEIVING, WAIT, REQUEST, "the rest of the request; one deadline from accept to its last byte") \
	S(ANSWERING, WAIT, ANSWER, "rdma_endpoint: the answer, which may take a second of the helper's; it has bounds of its own") \
	S(REPLYING, WAIT, REPLY, "the peer to take the reply") \
	S(LINGERING, WAIT, REPLY, "the peer to close, as it must be the first to do; the reply's deadline goes on") \
	S(CLOSED, FINAL, NONE, "nothing: the connection is closed")
/* REQUEST: it is whole and there is an answer to it. LATER: it is whole and will be answered. ANSWERED: that has come.
 * BROKEN: the connection failed, or what came is not to be answered. */
#define FSM_EVENTS(E) E(ACCEPTED) E(REQUEST) E(LATER) E(ANSWERED) E(SENT) E(PEER_CLOSED) E(BROKEN)
#define FSM_ACTIONS(A) A(receive) A(hold) A(reply) A(linger) A(close) A(refuse) A(give_up)
#define FSM_ROWS(R)                                                                                   \
	/*           TIMEOUT               ACCEPTED                 REQUEST              LATER                \
	             ANSWERED              SENT                     PEER_CLOSED          BROKEN */            \
	R(IDLE,      NEVER,                GO(RECEIVING, receive),  NEVER,               NEVER,               \
	             NEVER,                NEVER,                   NEVER,               NEVER)               \
	R(RECEIVING, GO(CLOSED, give_up),  NEVER,                   GO(REPLYING, reply), GO(ANSWERING, hold), \
	             NEVER,                NEVER,                   GO(CLOSED, close),   GO(CLOSED, refuse))  \
	R(ANSWERING, GO(CLOSED, give_up),  NEVER,                   NEVER,               NEVER,               \
	             GO(REPLYING, reply),  NEVER,                   NEVER,               NEVER)               \
	R(REPLYING,  GO(CLOSED, give_up),  NEVER,                   NEVER,               NEVER,               \
	             NEVER,                GO(LINGERING, linger),   NEVER,               GO(CLOSED, refuse))  \
	R(LINGERING, GO(CLOSED, close),    NEVER,                   NEVER,               NEVER,               \
	             NEVER,                NEVER,                   GO(CLOSED, close),   NEVER)               \
	R(CLOSED,    NEVER,                NEVER,                   NEVER,               NEVER,               \
	             NEVER,                NEVER,                   NEVER,               NEVER)
#include "fsm/declare.h"
