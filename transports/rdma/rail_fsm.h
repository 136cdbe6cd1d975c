/* Machine rdma_rail: one path of a peer, between a device of ours and one of the peer's. It is opened by the first piece that wants it,
 * paused when it has failed, and proven by a probe without user data before pieces go over it again. */
#define FSM rdma_rail
#define FSM_PURPOSE "one path to a peer: opened when wanted, paused after a failure, probed before it is used again"
#define FSM_TIMEOUTS(T) T(PAUSE)
#define FSM_STATES(S)                                                                                     \
	S(CLOSED, WORK, NONE, "a piece that wants this path")                                                 \
	S(OPENING, PARENT, NONE, "rdma_endpoint: to be connected, which it bounds")                           \
	S(WAITING, PARENT, NONE, "rdma_endpoint: its turn in the line for room, behind others that are bounded") \
	S(PROBING, PARENT, NONE, "the probe's completion; rdma_endpoint bounds it by its progress timeout")   \
	S(OPEN, WORK, NONE, "pieces")                                                                         \
	S(LEAVING, PARENT, NONE, "rdma_endpoint: to be gone, its queue pairs destroyed")                      \
	S(PAUSED, WAIT, PAUSE, "the pause before the path is tried again")                                    \
	S(ENDED, FINAL, NONE, "nothing: the peer does not know it any more")
/* USABLE: its endpoint carries sends, and has no failure behind it. DOUBTED: it does, after a failure. (Either is told once more to a
 * rail that came to its endpoint while the news was on its way.) PROVEN: the probe came back. LEAVE: its endpoint leaves. GONE: it is
 * gone without blame; of one that waits: nothing is left for it when its turn comes. FAILED: it is gone, and the path is not to be used
 * for a while; also: it could not be had. WAIT: there is no room for an endpoint. TURN: now there is. RESUME: what kept it from working
 * is said to be over. END: its peer goes, or has lost the device; nothing is under way on it. */
#define FSM_EVENTS(E) E(WANTED) E(USABLE) E(DOUBTED) E(PROVEN) E(LEAVE) E(GONE) E(FAILED) E(WAIT) E(TURN) E(RESUME) E(END)
#define FSM_ACTIONS(A) A(open) A(serve) A(probe) A(prove) A(rest) A(pause) A(wake) A(end)
#define FSM_ROWS(R)                                                                                                             \
	/*          TIMEOUT           WANTED             USABLE            DOUBTED             PROVEN                               \
	            LEAVE             GONE               FAILED            WAIT                TURN                                 \
	            RESUME            END */                                                                                        \
	R(CLOSED,   NEVER,            GO(OPENING, open), NEVER,            NEVER,              NEVER,                               \
	            NEVER,            NEVER,             NEVER,            NEVER,              NEVER,                               \
	            SKIP,             GO(ENDED, end))                                                                               \
	R(OPENING,  NEVER,            SKIP,              GO(OPEN, serve),  GO(PROBING, probe), NEVER,                               \
	            GO(LEAVING, none), NEVER,            GO(PAUSED, pause), GO(WAITING, rest), NEVER,                               \
	            SKIP,             GO(ENDED, end))                                                                               \
	R(WAITING,  NEVER,            SKIP,              NEVER,            NEVER,              NEVER,                               \
	            NEVER,            GO(CLOSED, rest),  NEVER,            NEVER,              GO(OPENING, open),                   \
	            SKIP,             GO(ENDED, end))                                                                               \
	R(PROBING,  NEVER,            SKIP,              NEVER,            SKIP,               GO(OPEN, prove),                     \
	            GO(LEAVING, none), NEVER,            NEVER,            NEVER,              NEVER,                               \
	            SKIP,             NEVER)                                                                                        \
	R(OPEN,     NEVER,            SKIP,              SKIP,             NEVER,              NEVER,                               \
	            GO(LEAVING, none), NEVER,            NEVER,            NEVER,              NEVER,                               \
	            SKIP,             GO(ENDED, end))                                                                               \
	R(LEAVING,  NEVER,            SKIP,              NEVER,            NEVER,              SKIP,                                \
	            NEVER,            GO(CLOSED, rest),  GO(PAUSED, pause), NEVER,             NEVER,                               \
	            SKIP,             NEVER)                                                                                        \
	R(PAUSED,   GO(CLOSED, wake), SKIP,              NEVER,            NEVER,              NEVER,                               \
	            NEVER,            NEVER,             NEVER,            NEVER,              NEVER,                               \
	            GO(CLOSED, wake), GO(ENDED, end))                                                                               \
	R(ENDED,    NEVER,            NEVER,             NEVER,            NEVER,              NEVER,                               \
	            NEVER,            NEVER,             NEVER,            NEVER,              NEVER,                               \
	            NEVER,            NEVER)
#include "fsm/declare.h"
