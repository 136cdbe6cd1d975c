/* Machine store_put: one value on its way to an owner, and what became of it. A candidate after the other; the same one again while it
 * is not known whether it has done what it was asked. It is FAILED only when no commit of it can ever be executed. */
#define FSM store_put
#define FSM_PURPOSE "puts one value: candidates, reservation, transfer, commit; or one call in which the owner takes it"
#define FSM_DATA_PATH 1
#define FSM_TIMEOUTS(T) T(DEADLINE) T(CLEANUP)
#define FSM_STATES(S) \
	S(NEW, WORK, NONE, "its turn to begin") \
	S(PLACING, WAIT, DEADLINE, "the directory's candidates, and its bytes to be summed if they are to be") \
	S(REACHING, WAIT, DEADLINE, "the next candidate's segment to be open") \
	S(RESERVING, WAIT, DEADLINE, "the answer to PreWrite") \
	S(WRITING, PARENT, NONE, "the engine's batch, which ends with the lease at the latest") \
	S(COMMITTING, WAIT, DEADLINE, "the answer to WriteCommit") \
	S(REVOKING, WAIT, CLEANUP, "the answer to WriteRevoke") \
	S(MOVING, WAIT, DEADLINE, "the answer to WriteRemoteData: the owner takes the bytes itself") \
	S(LOOKING, WAIT, DEADLINE, "the answer to LookUp: what the key has already") \
	S(KEEPING, PARENT, NONE, "the owner of this process to copy the value in, which has a deadline") \
	S(SETTLING, PARENT, NONE, "the directory to know the value that was put here, until the operation's deadline") \
	S(ENDING, PARENT, NONE, "the grants on the caller's slices to end, within the engine's grace period") \
	S(HOLDING, PARENT, NONE, "the transport to let go of the caller's slices; the outcome was told") \
	S(DONE, FINAL, NONE, "nothing: the caller was told")
/* ANSWERED: what was waited for is there. LATE: a grant came when its lease was almost over. LOST: an answer that is worth repeating the
 * question. REFUSED: certainly not done, on to the next. BROKEN: certainly not done, and a reservation is left behind. UNSURE: whether it
 * was done will not be learnt. EMPTY: no candidate is left, or the key has no value after all. HERE: it is to stay in this process. */
#define FSM_EVENTS(E) \
	E(START) E(ANSWERED) E(FORWARD) E(REVERSE) E(EMPTY) E(LATE) E(EXISTS) E(LOST) E(RESUME) E(REFUSED) E(BROKEN) E(UNSURE) \
	E(QUIET) E(HELD) E(CANCEL) E(HERE)
#define FSM_ACTIONS(A) \
	A(place) A(next) A(reserve) A(write) A(commit) A(revoke) A(move) A(look) A(pause) A(stop) A(halt) A(cut) A(expire) A(give_up) A(again) \
	A(unsure) A(end) A(tell) A(tell_held) A(release) A(keep) A(settle) A(forget)
#define FSM_ROWS(R)                                                                                                         \
	/*            TIMEOUT                START                 ANSWERED               FORWARD                REVERSE        \
	              EMPTY                  LATE                  EXISTS                 LOST                   RESUME         \
	              REFUSED                BROKEN                UNSURE                 QUIET                  HELD           \
	              CANCEL                 HERE */                                                                            \
	R(NEW,        NEVER,                 GO(PLACING, place),   NEVER,                 NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                GO(LOOKING, look),     NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              NEVER,                 GO(KEEPING, keep))                                                                 \
	R(PLACING,    GO(ENDING, expire),    NEVER,                GO(REACHING, next),    NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                GO(LOOKING, look),     NEVER,                 NEVER, \
	              GO(ENDING, end),       NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              GO(ENDING, end), NEVER)                                                                                   \
	R(REACHING,   GO(ENDING, expire),    NEVER,                NEVER,                 GO(RESERVING, reserve), GO(MOVING, move), \
	              GO(ENDING, end),       NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              GO(REACHING, next),    NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              GO(ENDING, end), NEVER)                                                                                   \
	R(RESERVING,  GO(RESERVING, halt),   NEVER,                GO(WRITING, write),    NEVER,                 NEVER,         \
	              NEVER,                 GO(REVOKING, revoke), GO(LOOKING, look),     GO(RESERVING, pause),  GO(RESERVING, reserve), \
	              GO(REACHING, next),    NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              GO(RESERVING, stop), NEVER)                                                                               \
	R(WRITING,    NEVER,                 NEVER,                GO(COMMITTING, commit), NEVER,                NEVER,         \
	              NEVER,                 NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              NEVER,                 GO(REVOKING, revoke), NEVER,                 NEVER,                 NEVER,         \
	              GO(WRITING, stop), NEVER)                                                                                 \
	R(COMMITTING, GO(COMMITTING, halt),  NEVER,                GO(ENDING, end),       NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                GO(LOOKING, look),     GO(COMMITTING, pause), GO(COMMITTING, commit), \
	              GO(REACHING, next),    GO(REVOKING, revoke), GO(ENDING, unsure),    NEVER,                 NEVER,         \
	              SKIP, NEVER)                                                                                              \
	R(REVOKING,   GO(REVOKING, cut),     NEVER,                GO(REACHING, next),    NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                NEVER,                 GO(REVOKING, pause),   GO(REVOKING, revoke), \
	              GO(REACHING, give_up), NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              SKIP, NEVER)                                                                                              \
	R(MOVING,     GO(MOVING, halt),      NEVER,                GO(ENDING, end),       NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                GO(LOOKING, look),     GO(MOVING, pause),     GO(MOVING, move), \
	              GO(REACHING, next),    NEVER,                GO(ENDING, unsure),    NEVER,                 NEVER,         \
	              GO(MOVING, stop), NEVER)                                                                                  \
	R(LOOKING,    GO(LOOKING, halt),     NEVER,                GO(ENDING, end),       NEVER,                 NEVER,         \
	              GO(REACHING, again),   NEVER,                NEVER,                 GO(LOOKING, pause),    GO(LOOKING, look), \
	              GO(ENDING, end),       NEVER,                GO(ENDING, unsure),    NEVER,                 NEVER,         \
	              GO(LOOKING, stop), NEVER)                                                                                 \
	R(KEEPING,    NEVER,                 NEVER,                GO(SETTLING, settle),  NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              GO(PLACING, place),    GO(ENDING, end),      NEVER,                 NEVER,                 NEVER,         \
	              SKIP,                  NEVER)                                                                             \
	R(SETTLING,   NEVER,                 NEVER,                GO(ENDING, end),       NEVER,                 NEVER,         \
	              GO(PLACING, place),    NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              GO(ENDING, end),       NEVER,                GO(ENDING, unsure),    NEVER,                 NEVER,         \
	              GO(ENDING, forget),    NEVER)                                                                             \
	R(ENDING,     NEVER,                 NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                NEVER,                 GO(DONE, tell),        GO(HOLDING, tell_held), \
	              SKIP, NEVER)                                                                                              \
	R(HOLDING,    NEVER,                 NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                NEVER,                 GO(DONE, release),     NEVER,         \
	              SKIP, NEVER)                                                                                              \
	R(DONE,       NEVER,                 NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              NEVER,                 NEVER,                NEVER,                 NEVER,                 NEVER,         \
	              NEVER, NEVER)
#include "fsm/declare.h"
