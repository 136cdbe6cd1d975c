/* Machine redis_call: one command. */
#define FSM redis_call
#define FSM_PURPOSE "one command to a Redis server, within one deadline, repeated once when its connection was lost"
#define FSM_TIMEOUTS(T) T(TOTAL)
#define FSM_STATES(S)                                                                                    \
	S(IDLE, WORK, NONE, "a call to get, set, remove or touch")                                           \
	S(QUEUED, WAIT, TOTAL, "the connection to be ready")                                                 \
	S(SENT, WAIT, TOTAL, "its reply; those of the commands before it come first")                        \
	S(ABANDONED, WAIT, TOTAL, "its reply too, which nobody wants any more but which keeps its place")    \
	S(DONE, FINAL, NONE, "nothing: the caller was told")
/* LOST_ONCE: the connection was lost for the first time since it was sent, LOST: again. REFUSED: the server will have nothing of us. */
#define FSM_EVENTS(E) E(HOLD) E(SEND) E(REPLY) E(LOST_ONCE) E(LOST) E(REFUSED) E(CANCEL)
#define FSM_ACTIONS(A) A(hold) A(send) A(deliver) A(fail) A(give_up) A(give_up_on_server) A(drop)
#define FSM_ROWS(R)                                                                                                   \
	/*           TIMEOUT                      HOLD              SEND            REPLY                                 \
	             LOST_ONCE                    LOST              REFUSED         CANCEL */                             \
	R(IDLE,      NEVER,                       GO(QUEUED, hold), NEVER,          NEVER,                                \
	             NEVER,                       NEVER,            NEVER,          NEVER)                                \
	R(QUEUED,    GO(DONE, give_up),           NEVER,            GO(SENT, send), NEVER,                                \
	             NEVER,                       NEVER,            GO(DONE, fail), GO(DONE, drop))                       \
	R(SENT,      GO(DONE, give_up_on_server), NEVER,            NEVER,          GO(DONE, deliver),                    \
	             GO(QUEUED, hold),            GO(DONE, fail),   NEVER,          GO(ABANDONED, none))                  \
	R(ABANDONED, GO(DONE, give_up_on_server), NEVER,            NEVER,          GO(DONE, drop),                       \
	             NEVER,                       GO(DONE, drop),   NEVER,          NEVER)                                \
	R(DONE,      NEVER,                       NEVER,            NEVER,          NEVER,                                \
	             NEVER,                       NEVER,            NEVER,          NEVER)
#include "fsm/declare.h"
