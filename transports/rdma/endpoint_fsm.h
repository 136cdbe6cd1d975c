/* Machine rdma_endpoint: the queue pairs of one path, made, told to the peer, connected, used, drained, destroyed. Facts are sorted out by
 * the code that learns them, and answers that come after the endpoint began to leave are passed over there: so nothing is skipped here. */
#define FSM rdma_endpoint
#define FSM_PURPOSE "the queue pairs between one device of ours and one of a peer's"
#define FSM_TIMEOUTS(T) T(SLOW) T(ACK) T(DRAIN)
#define FSM_STATES(S)                                                                                               \
	S(IDLE, WORK, NONE, "its first event, at once")                                                                 \
	S(SUCCEEDING, PARENT, NONE, "rdma_endpoint: the one before it on this path to be destroyed, so that an answer says that") \
	S(MAKING, WAIT, SLOW, "the helper to make its queue pairs and move them to INIT")                               \
	S(ASKING, PARENT, NONE, "handshake_call: the peer's queue pairs, or the peer to ask first")                     \
	S(CONNECTING, WAIT, SLOW, "the helper to move its queue pairs to RTR, which asks for the neighbour, and RTS")   \
	S(ACKING, PARENT, NONE, "handshake_call: the peer to hear that this half is connected")                         \
	S(AWAITING_ACK, WAIT, ACK, "the peer to say that its half is connected; it is served, and nothing is posted")   \
	S(READY, WORK, NONE, "sends and their completions")                                                             \
	S(DRAINING, WAIT, DRAIN, "the completions that its sends are owed, now that its queue pairs are in ERR")        \
	S(DESTROYING, WAIT, SLOW, "the helper to destroy its queue pairs, behind what it does with them")               \
	S(FENCING, PARENT, NONE, "handshake_call: the peer to destroy its half, which may still receive")               \
	S(GONE, FINAL, NONE, "nothing: its users are told")
/* FOLLOW: START while one before it is left; FREE: that was destroyed. MADE_TOLD: made, and the peer's queue pairs are known already; TOLD:
 * the peer asked first. ANSWERED: our call's answer, with the peer's queue pairs. CONNECTED: and nobody waits for a word; _ACK: the peer
 * does; _AWAIT: we do. ACKED: the word has come. CALLED: the call of FENCING has ended. */
#define FSM_EVENTS(E)                                                                                         \
	E(START) E(FOLLOW) E(FREE) E(MADE) E(MADE_TOLD) E(TOLD) E(ANSWERED) E(CONNECTED) E(CONNECTED_ACK)         \
	E(CONNECTED_AWAIT) E(ACKED) E(FAILED) E(DRAINED) E(DESTROYED) E(DESTROYED_FENCE) E(CALLED) E(RETIRE)
#define FSM_ACTIONS(A) A(make) A(ask) A(connect) A(ack) A(ready) A(drain) A(give_up) A(destroy) A(fence) A(warn) A(persist) A(bury)
#define FSM_ROWS(R) \
	/*             TIMEOUT                  START                    FOLLOW                   FREE                     MADE             \
	               MADE_TOLD                TOLD                     ANSWERED                 CONNECTED                CONNECTED_ACK    \
	               CONNECTED_AWAIT          ACKED                    FAILED                   DRAINED                  DESTROYED        \
	               DESTROYED_FENCE          CALLED                   RETIRE */                                                          \
	R(IDLE,        NEVER,                   GO(MAKING, make),        GO(SUCCEEDING, none),    NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER)                                                             \
	R(SUCCEEDING,  NEVER,                   NEVER,                   NEVER,                   GO(MAKING, make),        NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   GO(GONE, bury))                                                    \
	R(MAKING,      GO(MAKING, warn),        NEVER,                   NEVER,                   NEVER,                   GO(ASKING, ask), \
	               GO(CONNECTING, connect), NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   GO(DESTROYING, destroy), NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   GO(DESTROYING, destroy))                                           \
	R(ASKING,      NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   GO(CONNECTING, connect), GO(CONNECTING, connect), NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   GO(DESTROYING, destroy), NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   GO(DESTROYING, destroy))                                           \
	R(CONNECTING,  GO(CONNECTING, warn),    NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   GO(READY, ready),        GO(ACKING, ack), \
	               GO(AWAITING_ACK, none),  NEVER,                   GO(DESTROYING, destroy), NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   GO(DESTROYING, destroy))                                           \
	R(ACKING,      NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   GO(READY, ready),        GO(DRAINING, drain),     NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   GO(DRAINING, drain))                                               \
	R(AWAITING_ACK,GO(DRAINING, give_up),   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   GO(ACKING, ack),         NEVER,                   NEVER,           \
	               NEVER,                   GO(READY, ready),        NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   GO(DRAINING, drain))                                               \
	R(READY,       NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   GO(DRAINING, drain))                                               \
	R(DRAINING,    GO(DESTROYING, destroy), NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   GO(DESTROYING, destroy), NEVER,           \
	               NEVER,                   NEVER,                   NEVER)                                                             \
	R(DESTROYING,  GO(DESTROYING, persist), NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   GO(GONE, bury),  \
	               GO(FENCING, fence),      NEVER,                   NEVER)                                                             \
	R(FENCING,     NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   GO(GONE, bury),          NEVER)                                                             \
	R(GONE,        NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER,                   NEVER,                   NEVER,           \
	               NEVER,                   NEVER,                   NEVER)
#include "fsm/declare.h"
