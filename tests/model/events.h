/* The events of a world: enum HAPPENS_... */
#ifndef NEAP_TESTS_MODEL_EVENTS_H
#define NEAP_TESTS_MODEL_EVENTS_H

/* Everything that can happen, with the name that a trace uses and a sentence. %u: what it happens to. */
#define EVENTS(E)                                                                                                     \
	E(START, start, "operation %u begins")                                                                            \
	E(ASK_CANCEL, cancel, "the caller of operation %u wants it to end")                                               \
	E(PASS_DEADLINE, deadline, "the deadline of operation %u passes")                                                 \
	E(TIMER, timer, "the timer of operation %u fires")                                                                \
	E(PASS_CLEANUP, cleanup, "the time for cleaning up of operation %u passes")                                       \
	E(PASS_GUARD, guard, "operation %u's lease is near its end, counted from when it asked")                          \
	E(PLACED, placed, "the directory answers operation %u")                                                           \
	E(UNPLACED, unplaced, "the directory has nothing for operation %u")                                               \
	E(REACHED, reached, "operation %u has reached the owner's engine")                                                \
	E(UNREACHED, unreached, "operation %u cannot reach the owner's engine")                                           \
	E(RESUMED, resume, "the pause of operation %u is over")                                                           \
	E(DELIVER, deliver, "message %u arrives")                                                                         \
	E(NO_ANSWER, lost, "operation %u's call ends without an answer: perhaps it was executed")                         \
	E(UNSENT, unsent, "operation %u's call cannot be sent")                                                           \
	E(PIECE, piece, "bytes %u get on")                                                                                \
	E(RUIN, ruin, "bytes %u are damaged on their way")                                                                \
	E(STRAY_WRITE, stray, "operation %u's engine stores other bytes under the same grant")                            \
	E(BATCH_DONE, done, "operation %u's transfer is complete")                                                        \
	E(BATCH_FAILED, failed, "operation %u's transfer fails")                                                          \
	E(BATCH_HELD, held, "operation %u's transfer fails, and the transport keeps the buffer")                          \
	E(BUFFER_RELEASED, released, "the transport lets go of operation %u's buffer")                                    \
	E(GRANT_OVER, grant_over, "operation %u's grant %u on its buffer has ended, with the grace period")               \
	E(SUMMED, summed, "operation %u's bytes are summed")                                                              \
	E(PASS_UNTIL, until, "no call of operation %u can be on its way any more")                                        \
	E(ASK_RESOLVE, resolve, "the caller of operation %u asks what became of it")                                      \
	E(SETTLE_LATE, settle_late, "operation %u has waited for the directory until its deadline")                        \
	E(LEASE_ENDS, lease, "owner %u: the lease of record %u ends")                                                     \
	E(RECORD_TIMER, record_timer, "owner %u: the timer of record %u fires")                                           \
	E(SEALED, sealed, "owner %u: the grant of record %u has ended, with the grace period")                            \
	E(RECORD_SUMMED, record_summed, "owner %u: the bytes of record %u are summed")                                    \
	E(OPENED, opened, "owner %u: record %u has reached the accessor's engine")                                        \
	E(UNOPENED, unopened, "owner %u: record %u cannot reach the accessor's engine")                                   \
	E(MOVED, moved, "owner %u: the transfer of record %u is complete")                                                \
	E(MOVE_FAILED, move_failed, "owner %u: the transfer of record %u fails")                                          \
	E(MOVE_HELD, move_held, "owner %u: the transfer of record %u fails, and the transport keeps the memory")          \
	E(MOVE_RELEASED, move_released, "owner %u: the transport lets go of the memory of record %u")                     \
	E(CONNECTION_LOST, cut, "owner %u loses the connection of operation %u's process")                                \
	E(REMOVED, remove, "owner %u: key %u is removed")                                                                 \
	E(FILLED, fill, "owner %u: another key is put")                                                                   \
	E(RESTARTED, restart, "owner %u dies and starts anew, empty")                                                     \
	E(LEAVES, leave, "owner %u leaves")                                                                               \
	E(SESSION_LOST, forget, "owner %u forgets which calls of operation %u it has executed")                            \
	E(WAIT_LATE, wait_late, "owner %u has waited for the directory as long as the call of operation %u allows")        \
	E(ANNOUNCED, announce, "the directory hears from owner %u of its value")                                           \
	E(ANSWERED, told, "owner %u learns what the directory made of its value")                                          \
	E(ANSWER_LOST, untold, "owner %u does not learn what the directory made of its value")                             \
	E(MASTER_RESTARTED, master, "the directory dies and starts anew, empty")                                           \
	E(RECOVERED, recovered, "the directory has heard from all owners")                                                 \
	E(OPERATIONS_FULL, full, "owner %u has as many commits and transfers under way as it may")                         \
	E(OPERATIONS_ROOM, room, "owner %u has room for operations again")

#define AS_KIND(kind, name, text) HAPPENS_##kind,
enum { EVENTS(AS_KIND) EVENT_KINDS };

#endif
