/* One served handshake: a request, a reply, the peer's close. */
#define FSM handshake_session
#define FSM_PURPOSE "serves one handshake connection: whole request, reply, then the peer's close"
#define FSM_TIMEOUTS(T) T(REQUEST) T(REPLY)
#define FSM_STATES(S) \
	S(IDLE, WORK, NONE, "an accepted connection") \
	S(RECEIVING, WAIT, REQUEST, "the rest of the request; one deadline from accept to its last byte") \
	S(REPLYING, WAIT, REPLY, "the peer to take the reply") \
	S(LINGERING, WAIT, REPLY, "the peer to close, as it must be the first to do; the reply's deadline goes on") \
	S(CLOSED, FINAL, NONE, "nothing: the connection is closed")
/* REQUEST: it is whole and there is an answer to it. BROKEN: the connection failed, or what came is not to be answered. */
#define FSM_EVENTS(E) E(ACCEPTED) E(REQUEST) E(SENT) E(PEER_CLOSED) E(BROKEN)
#define FSM_ACTIONS(A) A(receive) A(reply) A(linger) A(close) A(refuse) A(give_up)
#define FSM_ROWS(R)                                                                                   \
	/*           TIMEOUT               ACCEPTED                 REQUEST                              \
	             SENT                  PEER_CLOSED              BROKEN */                            \
	R(IDLE,      NEVER,                GO(RECEIVING, receive),  NEVER,                               \
	             NEVER,                NEVER,                   NEVER)                               \
	R(RECEIVING, GO(CLOSED, give_up),  NEVER,                   GO(REPLYING, reply),                 \
	             NEVER,                GO(CLOSED, close),       GO(CLOSED, refuse))                  \
	R(REPLYING,  GO(CLOSED, give_up),  NEVER,                   NEVER,                               \
	             GO(LINGERING, linger), NEVER,                  GO(CLOSED, refuse))                  \
	R(LINGERING, GO(CLOSED, close),    NEVER,                   NEVER,                               \
	             NEVER,                GO(CLOSED, close),       NEVER)                               \
	R(CLOSED,    NEVER,                NEVER,                   NEVER,                               \
	             NEVER,                NEVER,                   NEVER)
#include "fsm/declare.h"
