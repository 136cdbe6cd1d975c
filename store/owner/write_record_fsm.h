/* Machine write_record: one reservation, from the grant to the commit or to the return of its memory. A commit first ends the write
 * grant, so that nothing can be stored any more, then looks at the bytes, then publishes them: expiry cannot touch a record that is
 * being committed. Without a commit the memory waits in quarantine for the same fact. Time alone frees nothing. */
#define FSM write_record
#define FSM_PURPOSE "memory an accessor may write into, and what becomes of it"
#define FSM_TIMEOUTS(T) T(LEASE)
#define FSM_STATES(S)                                                                                       \
	S(NEW, WORK, NONE, "its grant")                                                                         \
	S(GRANTED, WAIT, LEASE, "the accessor's commit or revoke, within the lease")                            \
	S(SEALING, PARENT, NONE, "the write grant to end, within the grace period; the accessor has committed") \
	S(CHECKING, WORK, NONE, "its bytes to be summed, a piece a turn")                                       \
	S(QUARANTINED, PARENT, NONE, "the write grant to end: until then its bytes may still be written")       \
	S(COMMITTED, FINAL, NONE, "nothing: the object has the memory")                                         \
	S(GONE, FINAL, NONE, "nothing: the memory is given back")
#define FSM_EVENTS(E) E(GRANT) E(COMMIT) E(REVOKE) E(LOST) E(SEALED) E(RIGHT) E(WRONG)
#define FSM_ACTIONS(A) A(seal) A(expire) A(revoke) A(check) A(publish) A(discard) A(release)
/*   TIMEOUT, GRANT, COMMIT, REVOKE, LOST, SEALED, RIGHT, WRONG */
#define FSM_ROWS(R)                                                                                                     \
	R(NEW, NEVER, GO(GRANTED, none), NEVER, NEVER, NEVER, NEVER, NEVER, NEVER)                                          \
	R(GRANTED, GO(QUARANTINED, expire), NEVER, GO(SEALING, seal), GO(QUARANTINED, revoke), GO(QUARANTINED, revoke),     \
	  NEVER, NEVER, NEVER)                                                                                              \
	R(SEALING, NEVER, NEVER, NEVER, NEVER, SKIP, GO(CHECKING, check), NEVER, NEVER)                                     \
	R(CHECKING, NEVER, NEVER, NEVER, NEVER, SKIP, NEVER, GO(COMMITTED, publish), GO(GONE, discard))                     \
	R(QUARANTINED, NEVER, NEVER, NEVER, NEVER, SKIP, GO(GONE, release), NEVER, NEVER)                                   \
	R(COMMITTED, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER)                                                \
	R(GONE, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER)
#include "fsm/declare.h"
