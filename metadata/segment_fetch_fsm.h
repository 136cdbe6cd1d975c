/* One reading of one segment's descriptor. */
#define FSM segment_fetch
#define FSM_PURPOSE "reads the descriptor of one segment from where it is published"
#define FSM_TIMEOUTS(T) T(FETCH)
#define FSM_STATES(S) \
	S(IDLE, WORK, NONE, "a lookup that the cache cannot answer") \
	S(FETCHING, WAIT, FETCH, "the back-end's answer; it has a deadline of its own that should come first") \
	S(DONE, FINAL, NONE, "nothing: the lookups were answered")
/* FOUND: a descriptor that could be read. MISSING: the source says there is none. FAILED: no answer, or none that can be read. */
#define FSM_EVENTS(E) E(START) E(FOUND) E(MISSING) E(FAILED)
#define FSM_ACTIONS(A) A(fetch) A(adopt) A(forget) A(keep) A(give_up)
#define FSM_ROWS(R)                                                                                             \
	/*          TIMEOUT            START                FOUND            MISSING           FAILED */             \
	R(IDLE,     NEVER,             GO(FETCHING, fetch), NEVER,           NEVER,            NEVER)                \
	R(FETCHING, GO(DONE, give_up), NEVER,               GO(DONE, adopt), GO(DONE, forget), GO(DONE, keep))       \
	R(DONE,     NEVER,             NEVER,               NEVER,           NEVER,            NEVER)
#include "fsm/declare.h"
