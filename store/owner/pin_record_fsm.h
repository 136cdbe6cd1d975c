/* Machine pin_record: one reader's pin on one version of an object. It holds the memory until its read grant has ended, so that a
 * reader that is late is refused and never given other bytes. */
#define FSM pin_record
#define FSM_PURPOSE "memory an accessor may read from, for a while"
#define FSM_TIMEOUTS(T) T(LEASE)
#define FSM_STATES(S)                                                                                   \
	S(NEW, WORK, NONE, "its grant")                                                                     \
	S(PINNED, WAIT, LEASE, "the accessor's unpin, within the lease")                                    \
	S(RELEASING, PARENT, NONE, "the read grant to end, within the grace period")                        \
	S(GONE, FINAL, NONE, "nothing: the memory is let go of")
#define FSM_EVENTS(E) E(GRANT) E(UNPIN) E(LOST) E(ENDED)
#define FSM_ACTIONS(A) A(expire) A(unpin) A(release)
/*   TIMEOUT, GRANT, UNPIN, LOST, ENDED */
#define FSM_ROWS(R)                                                                                             \
	R(NEW, NEVER, GO(PINNED, none), NEVER, NEVER, NEVER)                                                        \
	R(PINNED, GO(RELEASING, expire), NEVER, GO(RELEASING, unpin), GO(RELEASING, unpin), NEVER)                  \
	R(RELEASING, NEVER, NEVER, NEVER, SKIP, GO(GONE, release))                                                  \
	R(GONE, NEVER, NEVER, NEVER, NEVER, NEVER)
#include "fsm/declare.h"
