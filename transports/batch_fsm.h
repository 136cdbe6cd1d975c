/* Machine batch: requests that were submitted together. */
#define FSM batch
#define FSM_PURPOSE "requests that were submitted together"
#define FSM_TIMEOUTS(T) T(DEADLINE)
#define FSM_STATES(S)                                                                                            \
	S(NEW, WORK, NONE, "its requests to be taken in")                                                            \
	S(RUNNING, WAIT, DEADLINE, "the end of its last request, or its deadline")                                   \
	S(CANCELING, PARENT, NONE, "the end of its last request, which transports bring about within drain_timeout_ms") \
	S(HOLDING, PARENT, NONE, "transports to let go of buffers; every outcome was reported")                      \
	S(FINISHED, WORK, NONE, "its owner to free it")                                                              \
	S(GONE, FINAL, NONE, "nothing: its requests are given back")
#define FSM_EVENTS(E) \
	E(SUBMITTED)      \
	E(CANCEL)         \
	E(ENDED)          \
	E(ENDED_KEPT)     \
	E(ENDED_HELD)     \
	E(RELEASED)       \
	E(RELEASED_KEPT)  \
	E(FREE)
#define FSM_ACTIONS(A) \
	A(expire)          \
	A(cancel)
#define FSM_DATA_PATH 1
/*                TIMEOUT                SUBMITTED             CANCEL                 ENDED           ENDED_KEPT */
/*                ENDED_HELD         RELEASED        RELEASED_KEPT       FREE */
#define FSM_ROWS(R)                                                                                        \
	R(NEW,       NEVER,                 GO(RUNNING, none),    NEVER,                 NEVER,          NEVER,              \
	             NEVER,             NEVER,          NEVER,              NEVER)                                \
	R(RUNNING,   GO(CANCELING, expire), NEVER,                GO(CANCELING, cancel), GO(GONE, none), GO(FINISHED, none), \
	             GO(HOLDING, none), NEVER,          NEVER,              NEVER)                                \
	R(CANCELING, NEVER,                 NEVER,                SKIP,                  GO(GONE, none), GO(FINISHED, none), \
	             GO(HOLDING, none), NEVER,          NEVER,              NEVER)                                \
	R(HOLDING,   NEVER,                 NEVER,                NEVER,                 NEVER,          NEVER,              \
	             NEVER,             GO(GONE, none), GO(FINISHED, none), NEVER)                                \
	R(FINISHED,  NEVER,                 NEVER,                NEVER,                 NEVER,          NEVER,              \
	             NEVER,             NEVER,          NEVER,              GO(GONE, none))                       \
	R(GONE,      NEVER,                 NEVER,                NEVER,                 NEVER,          NEVER,              \
	             NEVER,             NEVER,          NEVER,              NEVER)
#include "fsm/declare.h"
