/* Machine redis_link: one connection to a Redis server, made again whenever it ends. */
#define FSM redis_link
#define FSM_PURPOSE "keeps one connection to a Redis server ready, with AUTH and SELECT repeated on each new one"
#define FSM_TIMEOUTS(T) T(CONNECT) T(REPLY) T(PAUSE)
#define FSM_STATES(S)                                                                                                           \
	S(IDLE, WORK, NONE, "the first call, or the first watch")                                                                   \
	S(RESOLVING, WAIT, CONNECT, "the addresses of the server's name")                                                           \
	S(CONNECTING, WAIT, CONNECT, "the connection to the address being tried")                                                   \
	S(AUTHENTICATING, WAIT, REPLY, "the answer to AUTH")                                                                        \
	S(SELECTING, WAIT, REPLY, "the answer to SELECT")                                                                           \
	S(GREETING, WAIT, REPLY, "the answer to PING, or CLIENT ID: says whether the server serves us, and that it is not loading") \
	S(SUBSCRIBING, WAIT, REPLY, "invalidations to be in effect on the connection that is told of changes")                      \
	S(READY, WORK, NONE, "commands and their replies, each with its own deadline, or invalidations")                            \
	S(PAUSING, WAIT, PAUSE, "the pause before the next attempt to end")                                                         \
	S(CLOSED, FINAL, NONE, "nothing: the back-end is destroyed, or cannot watch this server")
/* AUTH, SELECT, GREET, SUBSCRIBE: that is what comes next on this connection. OPENED: nothing more is to come. NEXT: the address failed
 * and another is left. REFUSED: the server answers and will have nothing of us. BROKEN: no use any more, for whatever reason. */
#define FSM_EVENTS(E) \
	E(NEEDED) E(RESOLVED) E(NEXT) E(AUTH) E(SELECT) E(GREET) E(SUBSCRIBE) E(OPENED) E(REFUSED) E(BROKEN) E(CLOSE)
#define FSM_ACTIONS(A)                                                                                                      \
	A(resolve) A(attempt) A(give_up_name) A(give_up_address) A(auth) A(select) A(greet) A(subscribe) A(open) A(give_up) A(refuse) \
	A(fail) A(lose) A(close)
#define FSM_ROWS(R)                                                                                                                  \
	/*                TIMEOUT                          NEEDED                  RESOLVED                 NEXT                             \
	                  AUTH                             SELECT                  GREET                    SUBSCRIBE                        \
	                  OPENED                           REFUSED                 BROKEN                   CLOSE */                         \
	R(IDLE,           NEVER,                           GO(RESOLVING, resolve), NEVER,                   NEVER,                           \
	                  NEVER,                           NEVER,                  NEVER,                   NEVER,                           \
	                  NEVER,                           NEVER,                  NEVER,                   GO(CLOSED, close))               \
	R(RESOLVING,      GO(PAUSING, give_up_name),       NEVER,                  GO(CONNECTING, attempt), NEVER,                           \
	                  NEVER,                           NEVER,                  NEVER,                   NEVER,                           \
	                  NEVER,                           NEVER,                  GO(PAUSING, fail),       GO(CLOSED, close))               \
	R(CONNECTING,     GO(CONNECTING, give_up_address), NEVER,                  NEVER,                   GO(CONNECTING, attempt),         \
	                  GO(AUTHENTICATING, auth),        GO(SELECTING, select),  GO(GREETING, greet),     NEVER,                           \
	                  NEVER,                           NEVER,                  GO(PAUSING, fail),       GO(CLOSED, close))               \
	R(AUTHENTICATING, GO(PAUSING, give_up),            NEVER,                  NEVER,                   NEVER,                           \
	                  NEVER,                           GO(SELECTING, select),  GO(GREETING, greet),     NEVER,                           \
	                  NEVER,                           GO(PAUSING, refuse),    GO(PAUSING, fail),       GO(CLOSED, close))               \
	R(SELECTING,      GO(PAUSING, give_up),            NEVER,                  NEVER,                   NEVER,                           \
	                  NEVER,                           NEVER,                  GO(GREETING, greet),     NEVER,                           \
	                  NEVER,                           GO(PAUSING, refuse),    GO(PAUSING, fail),       GO(CLOSED, close))               \
	R(GREETING,       GO(PAUSING, give_up),            NEVER,                  NEVER,                   NEVER,                           \
	                  NEVER,                           NEVER,                  NEVER,                   GO(SUBSCRIBING, subscribe),      \
	                  GO(READY, open),                 GO(PAUSING, refuse),    GO(PAUSING, fail),       GO(CLOSED, close))               \
	R(SUBSCRIBING,    GO(PAUSING, give_up),            NEVER,                  NEVER,                   NEVER,                           \
	                  NEVER,                           NEVER,                  NEVER,                   NEVER,                           \
	                  GO(READY, open),                 NEVER,                  GO(PAUSING, fail),       GO(CLOSED, close))               \
	R(READY,          NEVER,                           NEVER,                  NEVER,                   NEVER,                           \
	                  NEVER,                           NEVER,                  NEVER,                   NEVER,                           \
	                  NEVER,                           NEVER,                  GO(PAUSING, lose),       GO(CLOSED, close))               \
	R(PAUSING,        GO(RESOLVING, resolve),          NEVER,                  NEVER,                   NEVER,                           \
	                  NEVER,                           NEVER,                  NEVER,                   NEVER,                           \
	                  NEVER,                           NEVER,                  NEVER,                   GO(CLOSED, close))               \
	R(CLOSED,         NEVER,                           NEVER,                  NEVER,                   NEVER,                           \
	                  NEVER,                           NEVER,                  NEVER,                   NEVER,                           \
	                  NEVER,                           NEVER,                  NEVER,                   NEVER)
#include "fsm/declare.h"
