/* Opens one byte stream: a name to addresses, then the addresses one after the other. */
#define FSM stream_connect
#define FSM_PURPOSE "opens one byte stream to a host within one deadline, trying its addresses in turn"
#define FSM_TIMEOUTS(T) T(NAME) T(ATTEMPT)
#define FSM_STATES(S) \
	S(IDLE, WORK, NONE, "a call to neap_connect_start") \
	S(RESOLVING, WAIT, NAME, "the resolver's answer for the name") \
	S(CONNECTING, WAIT, ATTEMPT, "the verdict on the address being tried; its share of the time ends it") \
	S(DONE, FINAL, NONE, "nothing: the caller was told")
/* FAILED: the address failed and another is left. EXHAUSTED: it was the last one. */
#define FSM_EVENTS(E) E(NAME) E(NUMERIC) E(RESOLVED) E(UNRESOLVED) E(CONNECTED) E(FAILED) E(EXHAUSTED)
#define FSM_ACTIONS(A) A(resolve) A(attempt) A(give_up_name) A(give_up_address) A(report) A(deliver)
#define FSM_ROWS(R)                                                                                                          \
	/*            TIMEOUT                          NAME                    NUMERIC                  RESOLVED                 \
	              UNRESOLVED          CONNECTED           FAILED                    EXHAUSTED */                              \
	R(IDLE,       NEVER,                           GO(RESOLVING, resolve), GO(CONNECTING, attempt), NEVER,                   \
	              NEVER,              NEVER,              NEVER,                    NEVER)                                   \
	R(RESOLVING,  GO(DONE, give_up_name),          NEVER,                  NEVER,                   GO(CONNECTING, attempt), \
	              GO(DONE, report),   NEVER,              NEVER,                    NEVER)                                   \
	R(CONNECTING, GO(CONNECTING, give_up_address), NEVER,                  NEVER,                   NEVER,                   \
	              NEVER,              GO(DONE, deliver),  GO(CONNECTING, attempt),  GO(DONE, report))                        \
	R(DONE,       NEVER,                           NEVER,                  NEVER,                   NEVER,                   \
	              NEVER,              NEVER,              NEVER,                    NEVER)
#include "fsm/declare.h"
