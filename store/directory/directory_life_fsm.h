/* The life of a directory that begins empty although values may exist. */
#define FSM directory_life
#define FSM_PURPOSE "keeps a directory from saying NOT_FOUND before those who may have the key have been heard"
#define FSM_TIMEOUTS(T) T(RECOVERY) T(ANNOUNCEMENTS)
#define FSM_STATES(S) \
	S(NEW, WORK, NONE, "its start") \
	S(RECOVERING, WAIT, RECOVERY, "the crashed-TTL to pass: whoever lives has registered by then; never ended early") \
	S(HEARING, WAIT, ANNOUNCEMENTS, "the clients that have registered with values to end their full announcements") \
	S(SERVING, WORK, NONE, "calls; what is not known does not exist") \
	S(CLOSED, FINAL, NONE, "nothing: calls are refused")
/* START_EMPTY: nobody was served before. HEARD_ALL: no client owes a full announcement. */
#define FSM_EVENTS(E) E(START) E(START_EMPTY) E(HEARD_ALL) E(CLOSE)
#define FSM_ACTIONS(A) A(recover) A(listen) A(serve) A(give_up) A(close)
#define FSM_ROWS(R)                                                                                                       \
	/*            TIMEOUT               START                    START_EMPTY         HEARD_ALL           CLOSE */            \
	R(NEW,        NEVER,                GO(RECOVERING, recover), GO(SERVING, serve), NEVER,              NEVER)              \
	R(RECOVERING, GO(HEARING, listen),  NEVER,                   NEVER,              SKIP,               GO(CLOSED, close))  \
	R(HEARING,    GO(SERVING, give_up), NEVER,                   NEVER,              GO(SERVING, serve), GO(CLOSED, close))  \
	R(SERVING,    NEVER,                NEVER,                   NEVER,              SKIP,               GO(CLOSED, close))  \
	R(CLOSED,     NEVER,                NEVER,                   NEVER,              SKIP,               NEVER)
#include "fsm/declare.h"
