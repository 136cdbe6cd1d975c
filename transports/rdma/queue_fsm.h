/* Machine rdma_queue: the completion queue of one device, on and off its device. Without a timer: it waits for work, for its device, or
 * for endpoints that have bounds of their own. */
#define FSM rdma_queue
#define FSM_PURPOSE "the completion queue of one RDMA device: polled, armed, let go of"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                            \
	S(AWAY, WORK, NONE, "its device to be open")                                                 \
	S(SERVING, WORK, NONE, "completions, or its device to fail or close")                        \
	S(LEAVING, PARENT, NONE, "rdma_endpoint: those on it to end, so that its device can close")  \
	S(ENDED, FINAL, NONE, "nothing: its device is gone")
/* OPEN: the device has opened. LEAVE: it wants to be let go of. FREE: no endpoint is on it any more. */
#define FSM_EVENTS(E) E(OPEN) E(LEAVE) E(FREE) E(END)
#define FSM_ACTIONS(A) A(attach) A(leave) A(detach)
#define FSM_ROWS(R)                                                                      \
	/*          TIMEOUT OPEN                 LEAVE             FREE              END */  \
	R(AWAY,     NEVER,  GO(SERVING, attach), SKIP,             NEVER,            GO(ENDED, none)) \
	R(SERVING,  NEVER,  NEVER,               GO(LEAVING, leave), NEVER,           NEVER)  \
	R(LEAVING,  NEVER,  NEVER,               SKIP,             GO(AWAY, detach), NEVER)  \
	R(ENDED,    NEVER,  NEVER,               NEVER,            NEVER,            NEVER)
#include "fsm/declare.h"
