/* One connection to a peer, from its opening to the verdict on each of its requests. Bytes move in the readiness handler; the machine
 * knows the phases. */
#define FSM tcp_lane
#define FSM_PURPOSE "carries requests to one peer over one connection"
#define FSM_TIMEOUTS(T) T(HELLO) T(PROGRESS) T(MOMENT) T(DRAIN)
#define FSM_STATES(S) \
	S(CLOSED, WORK, NONE, "its peer to open it") \
	S(CONNECTING, PARENT, NONE, "stream_connect, which has the connect deadline") \
	S(HELLO, WAIT, HELLO, "a Neap peer's reply to the hello") \
	S(CONFIRMING, PARENT, NONE, "segment_fetch: what a plain peer says of itself now that the connection stands") \
	S(READY, WORK, NONE, "a request; the peer's end of file shows at once") \
	S(BUSY, WAIT, PROGRESS, "bytes to move: answers that are due, requests to be sent") \
	S(PARTING, WAIT, MOMENT, "the end of file of a peer that may close after each request") \
	S(DRAINING, WAIT, DRAIN, "answers to what was wholly sent, or the peer's end of file, after sending has stopped") \
	S(DEAD, FINAL, NONE, "nothing: its requests are told what became of them")
/* ACCEPTED: the hello was answered well, or the descriptor confirms the peer. PART: the peer may close now, see what it does. DRAIN:
 * nothing more may be sent. ENDED: argument says how (enum neap_lane_end). */
#define FSM_EVENTS(E) \
	E(OPEN) E(CONNECTED_NEAP) E(CONNECTED_PLAIN) E(ACCEPTED) E(LOADED) E(EMPTIED) E(PART) E(DRAIN) E(ENDED)
#define FSM_ACTIONS(A) A(connect) A(greet) A(confirm) A(serve) A(look) A(moment_over) A(half_close) A(silent) A(drained) A(bury)
#define FSM_ROWS(R)                                                                                                         \
	/*            TIMEOUT               OPEN                     CONNECTED_NEAP    CONNECTED_PLAIN          ACCEPTED            \
	              LOADED                EMPTIED                  PART              DRAIN                    ENDED */            \
	R(CLOSED,     NEVER,                GO(CONNECTING, connect), NEVER,            NEVER,                   NEVER,              \
	              NEVER,                NEVER,                   NEVER,            NEVER,                   NEVER)              \
	R(CONNECTING, NEVER,                NEVER,                   GO(HELLO, greet), GO(CONFIRMING, confirm), NEVER,              \
	              NEVER,                NEVER,                   NEVER,            NEVER,                   GO(DEAD, bury))     \
	R(HELLO,      GO(DEAD, silent),     NEVER,                   NEVER,            NEVER,                   GO(READY, serve),   \
	              NEVER,                NEVER,                   NEVER,            NEVER,                   GO(DEAD, bury))     \
	R(CONFIRMING, NEVER,                NEVER,                   NEVER,            NEVER,                   GO(READY, serve),   \
	              NEVER,                NEVER,                   NEVER,            NEVER,                   GO(DEAD, bury))     \
	R(READY,      NEVER,                NEVER,                   NEVER,            NEVER,                   NEVER,              \
	              GO(BUSY, none),       NEVER,                   NEVER,            NEVER,                   GO(DEAD, bury))     \
	R(BUSY,       GO(BUSY, look),       NEVER,                   NEVER,            NEVER,                   NEVER,              \
	              NEVER,                GO(READY, none),         GO(PARTING, none), GO(DRAINING, half_close), GO(DEAD, bury))   \
	R(PARTING,    GO(BUSY, moment_over), NEVER,                  NEVER,            NEVER,                   NEVER,              \
	              NEVER,                NEVER,                   NEVER,            NEVER,                   GO(DEAD, bury))     \
	R(DRAINING,   GO(DEAD, drained),    NEVER,                   NEVER,            NEVER,                   NEVER,              \
	              NEVER,                GO(DEAD, drained),       NEVER,            NEVER,                   GO(DEAD, bury))     \
	R(DEAD,       NEVER,                NEVER,                   NEVER,            NEVER,                   NEVER,              \
	              NEVER,                NEVER,                   NEVER,            NEVER,                   NEVER)
#include "fsm/declare.h"
