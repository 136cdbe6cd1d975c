/* Keeps the directory right about the values of one owner. */
#define FSM announcer
#define FSM_PURPOSE "registers an owner at the directory and announces what it has: changes in batches, everything after a loss"
#define FSM_TIMEOUTS(T) T(GATHER) T(PAUSE)
#define FSM_STATES(S) \
	S(IDLE, WORK, NONE, "to be started") \
	S(REGISTERING, PARENT, NONE, "the directory's answer to the registration; the call has a deadline") \
	S(CHOOSING, PARENT, NONE, "its own next step, which is posted with the entry") \
	S(READY, WORK, NONE, "a change to announce; nothing is under way") \
	S(GATHERING, WAIT, GATHER, "more changes for the batch, or someone who waits for one of them") \
	S(SENDING, PARENT, NONE, "the directory's answer to a batch; the call has a deadline") \
	S(BEGINNING, PARENT, NONE, "the directory's answer to the begin of a full announcement; the call has a deadline") \
	S(ENDING, PARENT, NONE, "the directory's answer to the end of a full announcement; the call has a deadline") \
	S(PAUSED, WAIT, PAUSE, "the pause after a failure to be over") \
	S(LEAVING, PARENT, NONE, "the directory's answer to the farewell; the call has a deadline") \
	S(CLOSED, FINAL, NONE, "nothing: it announces no more")
/* From outside: CHANGED: something waits; NOW: a batch's worth waits, or someone waits for it; LOOK: a registration or a full announcement
 * is owed. The end of a call: ANSWERED, FAILED. Chosen next: QUIET, CHANGED, BATCH, ROUND (a full announcement), WALKED (all is
 * announced in it), REGISTER. */
#define FSM_EVENTS(E) \
	E(START) E(CHANGED) E(NOW) E(LOOK) E(ANSWERED) E(FAILED) E(QUIET) E(BATCH) E(ROUND) E(WALKED) E(REGISTER) E(CLOSE)
#define FSM_ACTIONS(A) A(enroll) A(choose) A(send) A(begin_round) A(end_round) A(leave) A(close)
#define FSM_ROWS(R)                                                                                                              \
	/*             TIMEOUT               START                     CHANGED              NOW                LOOK                  \
	               ANSWERED              FAILED                    QUIET                BATCH              ROUND                 \
	               WALKED                REGISTER                  CLOSE */                                                      \
	R(IDLE,        NEVER,                GO(REGISTERING, enroll),  SKIP,                SKIP,              SKIP,                 \
	               NEVER,                NEVER,                    NEVER,               NEVER,             NEVER,                \
	               NEVER,                NEVER,                    GO(CLOSED, close))                                            \
	R(REGISTERING, NEVER,                SKIP,                     SKIP,                SKIP,              SKIP,                 \
	               GO(CHOOSING, choose), GO(PAUSED, none),         NEVER,               NEVER,             NEVER,                \
	               NEVER,                NEVER,                    GO(LEAVING, leave))                                           \
	R(CHOOSING,    NEVER,                NEVER,                    GO(GATHERING, none), NEVER,             NEVER,                \
	               NEVER,                NEVER,                    GO(READY, none),     GO(SENDING, send), GO(BEGINNING, begin_round), \
	               GO(ENDING, end_round), GO(REGISTERING, enroll), NEVER)                                                        \
	R(READY,       NEVER,                SKIP,                     GO(GATHERING, none), GO(SENDING, send), GO(CHOOSING, choose), \
	               NEVER,                NEVER,                    NEVER,               NEVER,             NEVER,                \
	               NEVER,                NEVER,                    GO(LEAVING, leave))                                           \
	R(GATHERING,   GO(SENDING, send),    SKIP,                     SKIP,                GO(SENDING, send), GO(CHOOSING, choose), \
	               NEVER,                NEVER,                    NEVER,               NEVER,             NEVER,                \
	               NEVER,                NEVER,                    GO(LEAVING, leave))                                           \
	R(SENDING,     NEVER,                SKIP,                     SKIP,                SKIP,              SKIP,                 \
	               GO(CHOOSING, choose), GO(PAUSED, none),         NEVER,               NEVER,             NEVER,                \
	               NEVER,                NEVER,                    GO(LEAVING, leave))                                           \
	R(BEGINNING,   NEVER,                SKIP,                     SKIP,                SKIP,              SKIP,                 \
	               GO(CHOOSING, choose), GO(PAUSED, none),         NEVER,               NEVER,             NEVER,                \
	               NEVER,                NEVER,                    GO(LEAVING, leave))                                           \
	R(ENDING,      NEVER,                SKIP,                     SKIP,                SKIP,              SKIP,                 \
	               GO(CHOOSING, choose), GO(PAUSED, none),         NEVER,               NEVER,             NEVER,                \
	               NEVER,                NEVER,                    GO(LEAVING, leave))                                           \
	R(PAUSED,      GO(CHOOSING, choose), SKIP,                     SKIP,                SKIP,              SKIP,                 \
	               NEVER,                NEVER,                    NEVER,               NEVER,             NEVER,                \
	               NEVER,                NEVER,                    GO(LEAVING, leave))                                           \
	R(LEAVING,     NEVER,                SKIP,                     SKIP,                SKIP,              SKIP,                 \
	               GO(CLOSED, close),    GO(CLOSED, close),        NEVER,               NEVER,             NEVER,                \
	               NEVER,                NEVER,                    SKIP)                                                         \
	R(CLOSED,      NEVER,                SKIP,                     SKIP,                SKIP,              SKIP,                 \
	               NEVER,                NEVER,                    NEVER,               NEVER,             NEVER,                \
	               NEVER,                NEVER,                    SKIP)
#include "fsm/declare.h"
