/* Machine rdma_slab: a slab that peers have keys of. It is there from the first grant with keys to the moment when none of them can do
 * harm any more. Time frees nothing here: what it waits for are the ends of grants, which have leases, and answers of the kernel. */
#define FSM rdma_slab
#define FSM_PURPOSE "the keys of a slab, from the first grant that has them to the fence"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                                               \
	S(LENT, WORK, NONE, "the ends of the grants that have its keys; more may get them")                             \
	S(DRAINING, PARENT, NONE, "grant: the others that have its keys to end; nobody gets them any more")             \
	S(RENEWING, PARENT, NONE, "rdma_region: every device to let go of the slab as it was")                          \
	S(FENCING, PARENT, NONE, "rdma_endpoint: a device keeps it, so the queue pairs of the peers to be destroyed")   \
	S(GONE, FINAL, NONE, "nothing: by the keys that were given out nothing reaches the memory, or nobody would")
/* SPOILED: a grant ended of which something may still arrive. EMPTY: no grant that has not ended has keys. OFF: the whole range was taken
 * off the devices. RENEWED: they have let go of the slab. KEPT: one did not. FENCED: the last of the peers cannot reach us any more. */
#define FSM_EVENTS(E) E(SPOILED) E(EMPTY) E(OFF) E(RENEWED) E(KEPT) E(FENCED)
#define FSM_ACTIONS(A) A(renew) A(fence) A(let_go) A(bury)
/*              TIMEOUT  SPOILED             EMPTY                OFF               RENEWED         KEPT                FENCED */
#define FSM_ROWS(R)                                                                                                            \
	R(LENT,     NEVER, GO(DRAINING, none), GO(GONE, bury),      SKIP,             NEVER,          NEVER,              NEVER)   \
	R(DRAINING, NEVER, SKIP,               GO(RENEWING, renew), GO(LENT, let_go), NEVER,          NEVER,              NEVER)   \
	R(RENEWING, NEVER, NEVER,              NEVER,               SKIP,             GO(GONE, bury), GO(FENCING, fence), NEVER)   \
	R(FENCING,  NEVER, NEVER,              NEVER,               SKIP,             NEVER,          NEVER,              GO(GONE, bury)) \
	R(GONE,     NEVER, NEVER,              NEVER,               NEVER,            NEVER,          NEVER,              NEVER)
#include "fsm/declare.h"
