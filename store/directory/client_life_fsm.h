/* A client as the directory sees it: alive as long as it is heard of. */
#define FSM client_life
#define FSM_PURPOSE "follows one registered client: heard of, silent, gone; its routes go with it"
#define FSM_TIMEOUTS(T) T(LIVE) T(CRASH)
#define FSM_STATES(S) \
	S(UNKNOWN, WORK, NONE, "its registration") \
	S(HEALTHY, WAIT, LIVE, "its next heartbeat; each one begins the wait anew") \
	S(DISCONNECTED, WAIT, CRASH, "a heartbeat, until it counts as crashed; its replicas are not given out meanwhile") \
	S(CRASHED, PARENT, NONE, "its routes to be swept, a bounded number each turn") \
	S(LEAVING, PARENT, NONE, "its routes to be swept, a bounded number each turn: it unregistered, or its successor came") \
	S(GONE, FINAL, NONE, "nothing: the record is given back")
/* HEARD: a heartbeat, registration or mount of this very instance. LEFT: it unregistered. REPLACED: a later start of it registered.
 * SWEPT: none of its routes is left. */
#define FSM_EVENTS(E) E(HEARD) E(LEFT) E(REPLACED) E(SWEPT)
#define FSM_ACTIONS(A) A(welcome) A(suspect) A(recover) A(bury) A(depart) A(replace) A(forget)
#define FSM_ROWS(R)                                                                                                          \
	/*              TIMEOUT                   HEARD                 LEFT                 REPLACED              SWEPT */          \
	R(UNKNOWN,      NEVER,                    GO(HEALTHY, welcome), NEVER,               NEVER,                NEVER)            \
	R(HEALTHY,      GO(DISCONNECTED, suspect), GO(HEALTHY, none),   GO(LEAVING, depart), GO(LEAVING, replace), NEVER)            \
	R(DISCONNECTED, GO(CRASHED, bury),        GO(HEALTHY, recover), GO(LEAVING, depart), GO(LEAVING, replace), NEVER)            \
	R(CRASHED,      NEVER,                    NEVER,                NEVER,               NEVER,                GO(GONE, forget)) \
	R(LEAVING,      NEVER,                    NEVER,                NEVER,               NEVER,                GO(GONE, forget)) \
	R(GONE,         NEVER,                    NEVER,                NEVER,               NEVER,                NEVER)
#include "fsm/declare.h"
