/* Machine publisher: what one process has in a metadata store: its address under rpc_meta/NAME, which is the claim to the name, and its
 * descriptor under ram/NAME. */
#define FSM publisher
#define FSM_PURPOSE "keeps one process' address and descriptor in a metadata store, and takes them back at the end"
#define FSM_TIMEOUTS(T) T(CALL) T(REFRESH) T(PAUSE)
#define FSM_STATES(S)                                                                                                        \
	S(IDLE, WORK, NONE, "to be started")                                                                                     \
	S(CHECKING, WAIT, CALL, "what the store has as the address of our name; the back-end's deadline comes first, here and below") \
	S(PROBING, PARENT, NONE, "a handshake call to the other process that has our name; it has a deadline of its own")        \
	S(CLEARING, WAIT, CALL, "the removal of an address where nobody of our name lives")                                      \
	S(ANNOUNCING, WAIT, CALL, "our address to be stored, unless somebody else's comes first")                                \
	S(WRITING, WAIT, CALL, "our descriptor to be stored")                                                                    \
	S(CONFIRMING, WAIT, CALL, "whether both are still there, and the descriptor is ours; their leases begin anew")           \
	S(PUBLISHED, WORK, REFRESH, "a change of the descriptor, a notice that something changed in the store, or the time to look") \
	S(PAUSING, WAIT, PAUSE, "the pause before the next attempt to end")                                                      \
	S(TAKEN, WORK, REFRESH, "the time to look whether the other process still has our name")                                 \
	S(PARTING, WAIT, CALL, "what the store has as the address of our name, before it is taken back")                         \
	S(WITHDRAWING, WAIT, CALL, "both to be removed")                                                                         \
	S(GONE, FINAL, NONE, "nothing: the owner was told")
/* PUBLISH: begin, or look again. OURS, OURS_OLD: the address is ours, and the descriptor is as we wrote it, or has changed since. OTHER: it
 * is somebody else's. ALIVE, DEAD: that process. LOST: one of both is not there, or the descriptor not
 * what we wrote. FAILED: not known, or refused; `why` is noted. */
#define FSM_EVENTS(E) \
	E(PUBLISH) E(NONE) E(OURS) E(OURS_OLD) E(OTHER) E(ALIVE) E(DEAD) E(DONE) E(LOST) E(FAILED) E(WITHDRAW)
#define FSM_ACTIONS(A) \
	A(check) A(probe) A(clear) A(announce) A(write) A(confirm) A(rewrite) A(settle) A(fail) A(give_up) A(conflict) A(part) A(remove) A(end)
#define FSM_ROWS(R)                                                                                                                  \
	/*             TIMEOUT               PUBLISH              NONE                      OURS                     OURS_OLD               \
	               OTHER                 ALIVE                DEAD                      DONE                     LOST                   \
	               FAILED                WITHDRAW */                                                                                    \
	R(IDLE,        NEVER,                GO(CHECKING, check), NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                NEVER)                                                                                         \
	R(CHECKING,    GO(PAUSING, give_up), SKIP,                GO(ANNOUNCING, announce), GO(CONFIRMING, confirm), GO(WRITING, write),    \
	               GO(PROBING, probe),   NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               GO(PAUSING, fail),    GO(PARTING, part))                                                                             \
	R(PROBING,     NEVER,                NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                GO(TAKEN, conflict), GO(CLEARING, clear),      NEVER,                   NEVER,                 \
	               GO(PAUSING, fail),    GO(GONE, end))                                                                                 \
	R(CLEARING,    GO(PAUSING, give_up), NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                NEVER,               NEVER,                    GO(ANNOUNCING, announce), NEVER,                \
	               GO(PAUSING, fail),    GO(GONE, end))                                                                                 \
	R(ANNOUNCING,  GO(PAUSING, give_up), NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                NEVER,               NEVER,                    GO(WRITING, write),      NEVER,                 \
	               GO(PAUSING, fail),    GO(PARTING, part))                                                                             \
	R(WRITING,     GO(PAUSING, give_up), NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                NEVER,               NEVER,                    GO(PUBLISHED, settle),   NEVER,                 \
	               GO(PAUSING, fail),    GO(PARTING, part))                                                                             \
	R(CONFIRMING,  GO(PAUSING, give_up), NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                NEVER,               NEVER,                    GO(PUBLISHED, settle),   GO(CHECKING, rewrite), \
	               GO(PAUSING, fail),    GO(PARTING, part))                                                                             \
	R(PUBLISHED,   GO(CHECKING, check),  GO(CHECKING, check), NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                GO(PARTING, part))                                                                             \
	R(PAUSING,     GO(CHECKING, check),  NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                GO(PARTING, part))                                                                             \
	R(TAKEN,       GO(CHECKING, check),  NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                GO(GONE, end))                                                                                 \
	R(PARTING,     GO(GONE, end),        NEVER,               GO(WITHDRAWING, remove),  GO(WITHDRAWING, remove), NEVER,                 \
	               GO(GONE, end),        NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               GO(GONE, end),        NEVER)                                                                                         \
	R(WITHDRAWING, GO(GONE, end),        NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                NEVER,               NEVER,                    GO(GONE, end),           NEVER,                 \
	               GO(GONE, end),        NEVER)                                                                                         \
	R(GONE,        NEVER,                NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                NEVER,               NEVER,                    NEVER,                   NEVER,                 \
	               NEVER,                NEVER)
#include "fsm/declare.h"
