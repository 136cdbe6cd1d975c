/* The server's end of one connection. */
#define FSM rpc_session
#define FSM_PURPOSE "serves one connection of the store's RPC: hello, calls, answers"
#define FSM_TIMEOUTS(T) T(HELLO) T(LEAVE)
#define FSM_STATES(S) \
	S(IDLE, WORK, NONE, "an accepted connection") \
	S(GREETING, WAIT, HELLO, "the client's hello; one deadline from accept") \
	S(OPEN, WORK, NONE, "frames of the client, and answers of handlers; what was begun has a deadline in the pipe") \
	S(FULL, PARENT, NONE, "calls under way to be answered by their handlers, or replies to be taken within the pipe's deadline") \
	S(LEAVING, WAIT, LEAVE, "the client to take the answers that are owed, and to close") \
	S(CLOSED, FINAL, NONE, "nothing: the connection is closed")
/* STRANGER: a hello whose lane is not remembered as it says. REFUSED: a hello that is not welcome. GONE: the client has said goodbye, or
 * closed between two frames. BROKEN: the connection failed, or what came is no RPC. */
#define FSM_EVENTS(E) E(ACCEPTED) E(HELLO) E(STRANGER) E(REFUSED) E(FULL) E(ROOM) E(GONE) E(BROKEN) E(STOP)
#define FSM_ACTIONS(A) A(receive) A(welcome) A(no_session) A(turn_away) A(pause) A(resume) A(goodbye) A(close) A(refuse) A(give_up)
#define FSM_ROWS(R)                                                                                   \
	/*           TIMEOUT               ACCEPTED                HELLO                                 \
	             STRANGER              REFUSED                 FULL                   ROOM           \
	             GONE                  BROKEN                  STOP */                               \
	R(IDLE,      NEVER,                GO(GREETING, receive),  NEVER,                                \
	             NEVER,                NEVER,                  NEVER,                 NEVER,         \
	             NEVER,                NEVER,                  NEVER)                                \
	R(GREETING,  GO(CLOSED, give_up),  NEVER,                  GO(OPEN, welcome),                    \
	             GO(GREETING, no_session), GO(LEAVING, turn_away), NEVER,             NEVER,         \
	             GO(CLOSED, close),    GO(CLOSED, refuse),     GO(CLOSED, close))                    \
	R(OPEN,      NEVER,                NEVER,                  NEVER,                                \
	             NEVER,                NEVER,                  GO(FULL, pause),       NEVER,         \
	             GO(CLOSED, close),    GO(CLOSED, refuse),     GO(LEAVING, goodbye))                 \
	R(FULL,      NEVER,                NEVER,                  NEVER,                                \
	             NEVER,                NEVER,                  NEVER,                 GO(OPEN, resume), \
	             NEVER,                GO(CLOSED, refuse),     GO(LEAVING, goodbye))                 \
	R(LEAVING,   GO(CLOSED, give_up),  NEVER,                  NEVER,                                \
	             NEVER,                NEVER,                  NEVER,                 NEVER,         \
	             GO(CLOSED, close),    GO(CLOSED, refuse),     SKIP)                                 \
	R(CLOSED,    NEVER,                NEVER,                  NEVER,                                \
	             NEVER,                NEVER,                  NEVER,                 NEVER,         \
	             NEVER,                NEVER,                  NEVER)
#include "fsm/declare.h"
