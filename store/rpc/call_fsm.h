/* One call made. */
#define FSM rpc_call
#define FSM_PURPOSE "makes one call of the store's RPC: waits for the channel, for the network to take it, for the reply"
#define FSM_DATA_PATH 1
#define FSM_TIMEOUTS(T) T(DEADLINE)
#define FSM_STATES(S) \
	S(NEW, WORK, NONE, "a call to neap_rpc_call") \
	S(QUEUED, WAIT, DEADLINE, "its channel to be open and the network to take the last byte of the request") \
	S(SENT, WAIT, DEADLINE, "the reply") \
	S(DONE, FINAL, NONE, "nothing: the caller was told")
/* REFUSED: it was certainly not executed and will not be sent. LOST: the connection that had taken it is gone. */
#define FSM_EVENTS(E) E(START) E(SENT) E(REPLY) E(REFUSED) E(LOST) E(CANCEL) E(CLOSE)
#define FSM_ACTIONS(A) A(deliver) A(refuse) A(lose) A(cancel) A(expire) A(close)
#define FSM_ROWS(R)                                                                              \
	/*         TIMEOUT            START               SENT              REPLY                    \
	           REFUSED            LOST                CANCEL            CLOSE */                 \
	R(NEW,     NEVER,             GO(QUEUED, none),   NEVER,            NEVER,                   \
	           NEVER,             NEVER,              NEVER,            NEVER)                   \
	R(QUEUED,  GO(DONE, expire),  NEVER,              GO(SENT, none),   NEVER,                   \
	           GO(DONE, refuse),  NEVER,              GO(DONE, cancel), GO(DONE, close))         \
	R(SENT,    GO(DONE, expire),  NEVER,              NEVER,            GO(DONE, deliver),       \
	           GO(DONE, refuse),  GO(DONE, lose),     GO(DONE, cancel), GO(DONE, close))         \
	R(DONE,    NEVER,             NEVER,              NEVER,            NEVER,                   \
	           NEVER,             NEVER,              NEVER,            NEVER)
#include "fsm/declare.h"
