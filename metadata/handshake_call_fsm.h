/* One handshake made: connect, request, reply. */
#define FSM handshake_call
#define FSM_PURPOSE "makes one handshake call: connect, send the request, take the reply, all within one deadline"
#define FSM_TIMEOUTS(T) T(CALL)
#define FSM_STATES(S) \
	S(IDLE, WORK, NONE, "a call to neap_handshake_call") \
	S(CONNECTING, PARENT, NONE, "its stream_connect, which has the call's deadline") \
	S(SENDING, WAIT, CALL, "the peer to take the request") \
	S(AWAITING, WAIT, CALL, "the reply's last byte; the peer may be serving others first") \
	S(DONE, FINAL, NONE, "nothing: the caller was told")
/* REPLY: a whole frame came and it answers the request. BROKEN: anything else; call->error says what. */
#define FSM_EVENTS(E) E(START) E(CONNECTED) E(SENT) E(REPLY) E(BROKEN)
#define FSM_ACTIONS(A) A(send) A(await) A(deliver) A(fail) A(give_up)
#define FSM_ROWS(R)                                                                         \
	/*            TIMEOUT             START                  CONNECTED                          \
	              SENT                REPLY                  BROKEN */                          \
	R(IDLE,       NEVER,              GO(CONNECTING, none),  NEVER,                             \
	              NEVER,              NEVER,                 NEVER)                             \
	R(CONNECTING, NEVER,              NEVER,                 GO(SENDING, send),                 \
	              NEVER,              NEVER,                 GO(DONE, fail))                    \
	R(SENDING,    GO(DONE, give_up),  NEVER,                 NEVER,                             \
	              GO(AWAITING, await), NEVER,                GO(DONE, fail))                    \
	R(AWAITING,   GO(DONE, give_up),  NEVER,                 NEVER,                             \
	              NEVER,              GO(DONE, deliver),     GO(DONE, fail))                    \
	R(DONE,       NEVER,              NEVER,                 NEVER,                             \
	              NEVER,              NEVER,                 NEVER)
#include "fsm/declare.h"
