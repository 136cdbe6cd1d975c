/* The client's end of one connection, over all the connections it has in its life. */
#define FSM rpc_channel
#define FSM_PURPOSE "keeps one connection to a server of the store's RPC: connects when there are calls, greets, carries, connects again"
#define FSM_TIMEOUTS(T) T(HELLO) T(LEAVE) T(BACKOFF)
#define FSM_STATES(S) \
	S(IDLE, WORK, NONE, "a call to carry") \
	S(CONNECTING, PARENT, NONE, "its stream_connect, which has a deadline") \
	S(GREETING, WAIT, HELLO, "the server's welcome") \
	S(OPEN, WORK, NONE, "calls, and frames of the server; each call has a deadline of its own") \
	S(LEAVING, WAIT, LEAVE, "the answers that the server still owes: it takes no more calls on this connection") \
	S(BACKOFF, WAIT, BACKOFF, "the pause after a failure to be over") \
	S(CLOSED, FINAL, NONE, "nothing: the channel is closed")
/* STRANGER: the server does not know our lane's epoch. REFUSED: it will not have us. BROKEN: the connection is of no more use; channel->why
 * says why. DRAINED: the last answer came, or none was owed. */
#define FSM_EVENTS(E) \
	E(CALL) E(CONNECTED) E(UNREACHABLE) E(WELCOME) E(STRANGER) E(REFUSED) E(GOODBYE) E(DRAINED) E(BROKEN) E(CLOSE)
#define FSM_ACTIONS(A) A(connect) A(greet) A(greet_anew) A(begin) A(send) A(turn_away) A(leave) A(lose) A(silent) A(overdue) \
	A(resume) A(close)
#define FSM_ROWS(R)                                                                                            \
	/*             TIMEOUT                 CALL                     CONNECTED             UNREACHABLE             \
	               WELCOME                 STRANGER                 REFUSED               GOODBYE                 \
	               DRAINED                 BROKEN                   CLOSE */                                      \
	R(IDLE,        NEVER,                  GO(CONNECTING, connect), NEVER,                NEVER,                  \
	               NEVER,                  NEVER,                   NEVER,                NEVER,                  \
	               NEVER,                  NEVER,                   GO(CLOSED, close))                            \
	R(CONNECTING,  NEVER,                  SKIP,                    GO(GREETING, greet),  GO(BACKOFF, turn_away), \
	               NEVER,                  NEVER,                   NEVER,                NEVER,                  \
	               NEVER,                  NEVER,                   GO(CLOSED, close))                            \
	R(GREETING,    GO(BACKOFF, silent),    SKIP,                    NEVER,                NEVER,                  \
	               GO(OPEN, begin),        GO(GREETING, greet_anew), GO(BACKOFF, turn_away), NEVER,               \
	               NEVER,                  GO(BACKOFF, turn_away),  GO(CLOSED, close))                            \
	R(OPEN,        NEVER,                  GO(OPEN, send),          NEVER,                NEVER,                  \
	               NEVER,                  NEVER,                   NEVER,                GO(LEAVING, leave),     \
	               NEVER,                  GO(BACKOFF, lose),       GO(CLOSED, close))                            \
	R(LEAVING,     GO(BACKOFF, overdue),   SKIP,                    NEVER,                NEVER,                  \
	               NEVER,                  NEVER,                   NEVER,                NEVER,                  \
	               GO(BACKOFF, lose),      GO(BACKOFF, lose),       GO(CLOSED, close))                            \
	R(BACKOFF,     GO(IDLE, resume),       SKIP,                    NEVER,                NEVER,                  \
	               NEVER,                  NEVER,                   NEVER,                NEVER,                  \
	               NEVER,                  NEVER,                   GO(CLOSED, close))                            \
	R(CLOSED,      NEVER,                  NEVER,                   NEVER,                NEVER,                  \
	               NEVER,                  NEVER,                   NEVER,                NEVER,                  \
	               NEVER,                  NEVER,                   NEVER)
#include "fsm/declare.h"
