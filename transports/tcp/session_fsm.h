#define FSM tcp_session
#define FSM_PURPOSE "serves one data connection: requests in, memory read or written, answers out"

#define FSM_TIMEOUTS(T) T(FIRST_HEADER) T(PROGRESS) T(DRAIN)

#define FSM_STATES(S)                                                                                              \
	S(FIRST_HEADER, WAIT, FIRST_HEADER, "the peer's first whole header; first_header_timeout_ms after the accept") \
	S(IDLE, WORK, NONE, "the next request; a peer may keep its connection for as long as it likes")                \
	S(RECEIVING, WAIT, PROGRESS, "the rest of a header or payload; progress_timeout_ms after its latest byte")     \
	S(REPLYING, WAIT, PROGRESS, "the peer to take its replies; progress_timeout_ms after it last took a byte")     \
	S(REFUSING, WAIT, DRAIN, "the peer to read the refusal and close; what it still sends is thrown away")         \
	S(CLOSED, FINAL, NONE, "nothing")

/* START: the connection was accepted. PARTIAL, BLOCKED, SETTLED: what a visit has left behind, in words of the state it leads to.
 * REFUSED: a request whose answer is the last. STALLED: the timer found no progress. ENDED: the peer closed and has all answers.
 * BROKEN: no use to go on; the peer gets a reset. */
#define FSM_EVENTS(E) E(START) E(PARTIAL) E(BLOCKED) E(SETTLED) E(REFUSED) E(STALLED) E(ENDED) E(BROKEN)

#define FSM_ACTIONS(A) A(watch) A(judge) A(refuse) A(finish) A(abort)

/*    state: TIMEOUT START PARTIAL BLOCKED | SETTLED REFUSED STALLED ENDED BROKEN */
#define FSM_ROWS(R)                                                                                                        \
	R(FIRST_HEADER, GO(CLOSED, abort), GO(FIRST_HEADER, watch), GO(RECEIVING, none), GO(REPLYING, none),                   \
	  GO(IDLE, none), GO(REFUSING, refuse), NEVER, GO(CLOSED, finish), GO(CLOSED, abort))                                  \
	R(IDLE, NEVER, NEVER, GO(RECEIVING, none), GO(REPLYING, none),                                                         \
	  NEVER, GO(REFUSING, refuse), NEVER, GO(CLOSED, finish), GO(CLOSED, abort))                                           \
	R(RECEIVING, GO(RECEIVING, judge), NEVER, NEVER, GO(REPLYING, none),                                                   \
	  GO(IDLE, none), GO(REFUSING, refuse), GO(CLOSED, abort), GO(CLOSED, finish), GO(CLOSED, abort))                      \
	R(REPLYING, GO(REPLYING, judge), NEVER, GO(RECEIVING, none), NEVER,                                                    \
	  GO(IDLE, none), GO(REFUSING, refuse), GO(CLOSED, abort), GO(CLOSED, finish), GO(CLOSED, abort))                      \
	R(REFUSING, GO(CLOSED, finish), NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, GO(CLOSED, finish), GO(CLOSED, abort))       \
	R(CLOSED, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER)

#define FSM_DATA_PATH 1

#include "fsm/declare.h"
