/* Machine store_get: one value on its way from an owner. Two things keep a late byte out of the caller's buffers: a transfer of ours
 * ends with the pin's lease and is not begun anew while the transport holds the buffer; and grants given to an owner have ended before
 * anything else is done with the buffer, be it another attempt. */
#define FSM store_get
#define FSM_PURPOSE "gets one value: replicas, pin, transfer; or one call in which the owner brings it; then looks whether it is right"
#define FSM_DATA_PATH 1
#define FSM_TIMEOUTS(T) T(DEADLINE)
#define FSM_STATES(S) \
	S(NEW, WORK, NONE, "its turn to begin") \
	S(FINDING, WAIT, DEADLINE, "routes, from the cache or the directory") \
	S(REACHING, WAIT, DEADLINE, "the next replica's segment to be open") \
	S(PINNING, WAIT, DEADLINE, "the answer to PinKey") \
	S(READING, PARENT, NONE, "the engine's batch, which ends with the pin's lease at the latest") \
	S(MOVING, WAIT, DEADLINE, "the answer to ReadRemoteData: the owner brings the bytes itself") \
	S(RECALLING, PARENT, NONE, "the grants on the caller's slices to end, within the engine's grace period") \
	S(CHECKING, WORK, NONE, "its bytes to be summed, a piece a turn") \
	S(FETCHING, PARENT, NONE, "the owner of this process to copy the value out, which has a deadline") \
	S(HOLDING, PARENT, NONE, "the transport to let go of the caller's slices; the outcome was told") \
	S(DONE, FINAL, NONE, "nothing: the caller was told")
/* ANEW: the cached routes were of no use, the directory is asked. OVER: the owner's call has ended; what it means comes as another event
 * when no grant is left. BROKEN: the bytes are not there, or not the right ones. HELD: so, and the transport has the buffer.
 * HERE: the value is in this process. */
#define FSM_EVENTS(E) \
	E(START) E(ANSWERED) E(FORWARD) E(REVERSE) E(EMPTY) E(ANEW) E(LOST) E(RESUME) E(REFUSED) E(OVER) E(BROKEN) E(QUIET) E(HELD) \
	E(CANCEL) E(HERE)
#define FSM_ACTIONS(A) \
	A(find) A(next) A(pin) A(read) A(move) A(recall) A(check) A(pause) A(stop) A(halt) A(expire) A(tell) A(tell_held) A(release) \
	A(fetch)
#define FSM_ROWS(R)                                                                                                         \
	/*           TIMEOUT               START              ANSWERED              FORWARD            REVERSE                  \
	             EMPTY                 ANEW               LOST                  RESUME             REFUSED                  \
	             OVER                  BROKEN             QUIET                 HELD               CANCEL                   \
	             HERE */                                                                                                    \
	R(NEW,       NEVER,                GO(FINDING, find), NEVER,                NEVER,             NEVER,                   \
	             NEVER,                NEVER,             NEVER,                NEVER,             NEVER,                   \
	             NEVER,                NEVER,             NEVER,                NEVER,             NEVER,                   \
	             GO(FETCHING, fetch))                                                                                       \
	R(FINDING,   GO(DONE, expire),     NEVER,             GO(REACHING, next),   NEVER,             NEVER,                   \
	             NEVER,                NEVER,             NEVER,                NEVER,             GO(DONE, tell),          \
	             NEVER,                NEVER,             NEVER,                NEVER,             GO(DONE, tell),          \
	             NEVER)                                                                                                     \
	R(REACHING,  GO(DONE, expire),     NEVER,             NEVER,                GO(PINNING, pin),  GO(MOVING, move),        \
	             GO(DONE, tell),       GO(FINDING, find), NEVER,                NEVER,             GO(REACHING, next),      \
	             NEVER,                NEVER,             NEVER,                NEVER,             GO(DONE, tell),          \
	             NEVER)                                                                                                     \
	R(PINNING,   GO(PINNING, halt),    NEVER,             GO(READING, read),    NEVER,             NEVER,                   \
	             NEVER,                NEVER,             GO(PINNING, pause),   GO(PINNING, pin),  GO(REACHING, next),      \
	             NEVER,                NEVER,             NEVER,                NEVER,             GO(PINNING, stop),       \
	             NEVER)                                                                                                     \
	R(READING,   NEVER,                NEVER,             GO(CHECKING, check),  NEVER,             NEVER,                   \
	             NEVER,                NEVER,             NEVER,                NEVER,             NEVER,                   \
	             NEVER,                GO(REACHING, next), NEVER,               GO(HOLDING, tell_held), GO(READING, stop),  \
	             NEVER)                                                                                                     \
	R(MOVING,    GO(MOVING, halt),     NEVER,             NEVER,                NEVER,             NEVER,                   \
	             NEVER,                NEVER,             NEVER,                NEVER,             NEVER,                   \
	             GO(RECALLING, recall), NEVER,            NEVER,                NEVER,             GO(MOVING, stop),        \
	             NEVER)                                                                                                     \
	R(RECALLING, NEVER,                NEVER,             GO(CHECKING, check),  NEVER,             NEVER,                   \
	             NEVER,                NEVER,             NEVER,                GO(MOVING, move),  GO(REACHING, next),      \
	             NEVER,                NEVER,             NEVER,                NEVER,             SKIP,                    \
	             NEVER)                                                                                                     \
	R(CHECKING,  NEVER,                NEVER,             GO(DONE, tell),       NEVER,             NEVER,                   \
	             NEVER,                NEVER,             NEVER,                NEVER,             NEVER,                   \
	             NEVER,                GO(REACHING, next), NEVER,               NEVER,             SKIP,                    \
	             NEVER)                                                                                                     \
	R(FETCHING,  NEVER,                NEVER,             GO(CHECKING, check),  NEVER,             NEVER,                   \
	             GO(DONE, tell),       NEVER,             NEVER,                NEVER,             GO(FINDING, find),       \
	             NEVER,                NEVER,             NEVER,                NEVER,             SKIP,                    \
	             NEVER)                                                                                                     \
	R(HOLDING,   NEVER,                NEVER,             NEVER,                NEVER,             NEVER,                   \
	             NEVER,                NEVER,             NEVER,                NEVER,             NEVER,                   \
	             NEVER,                NEVER,             GO(DONE, release),    NEVER,             SKIP,                    \
	             NEVER)                                                                                                     \
	R(DONE,      NEVER,                NEVER,             NEVER,                NEVER,             NEVER,                   \
	             NEVER,                NEVER,             NEVER,                NEVER,             NEVER,                   \
	             NEVER,                NEVER,             NEVER,                NEVER,             NEVER,                   \
	             NEVER)
#include "fsm/declare.h"
