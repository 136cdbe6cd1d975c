/* Endpoints: the queue pairs between one device of ours and one of a peer's, from their making to their end (te spec 3.5, 5.3, 5.8;
 * rdma-observed 2, 3; fences.md). Machine: rdma_endpoint. And the cache of them, by device and the peer's NIC path ("server@nic").
 *
 * One endpoint serves both directions, whoever asked first: a peer that knows the other by its NIC path, as Mooncake does, would tear
 * down a second one. Each has its queue pairs from the start and tells them to the peer in whatever message is first, so when both ask at
 * the same time the four messages say the same thing and nobody has to win. A list that differs from the one an endpoint was connected
 * with is another life of the peer: the endpoint is retired, and its successor answers when it is gone. An endpoint that was ever
 * connected is never used again; so an answer that comes late finds nobody (U-06, U-11).
 *
 * Every send that was posted is owed one completion. The owner of the sends hears of each, or that the endpoint is GONE: then its queue
 * pairs are destroyed, no completion comes any more, nothing of it reaches local memory, and, when the user is `fenced`, nothing of it
 * reaches the peer's memory either. (Queue pairs that the kernel refuses to destroy, three times, are reported, and stay in ERR until the
 * process ends.)
 *
 * Owner thread of the reactor only. */
#ifndef NEAP_TRANSPORTS_RDMA_ENDPOINT_H
#define NEAP_TRANSPORTS_RDMA_ENDPOINT_H

#include "metadata/handshake.h"
#include "transports/rdma/queue.h"
#include <neap/engine.h>

#define NEAP_RDMA_QPS_MAX 16u        /* of one endpoint */
#define NEAP_RDMA_ENDPOINT_JOBS 64u  /* of all endpoints together that the helper must have room for */
#define NEAP_RDMA_NIC_PATH_MAX 600u  /* bytes with NUL: a segment's name, '@', a device's name */

struct neap_rdma_endpoints;
struct neap_rdma_endpoint;

struct neap_rdma_endpoint_options {
	uint32_t endpoints_max;     /* MC_MAX_EP_PER_CTX, of all devices together; the least of the devices' limits also counts */
	uint32_t qps;               /* MC_NUM_QP_PER_EP, 1 to NEAP_RDMA_QPS_MAX; 0: 2 */
	uint32_t depth;             /* MC_MAX_WR: sends under way on one queue pair; 0: 256 */
	uint32_t mtu_bytes;         /* MC_MTU; 0: 4096 */
	uint8_t traffic_class, service_level; /* MC_IB_TC, MC_IB_SL */
	uint16_t pkey_index;        /* MC_PKEY_INDEX */
	uint8_t timeout, retry_count; /* of RTS; 0: 14, and 6: with 7 Soft-RoCE never gives up (rdma-observed 7) */
	/* 0: 5 s, 10 s, 30 s, 10 s, 10 s. Of each handshake call; for the peer's ack; without a completion while sends are owed one; for what
	 * is owed once the queue pairs are in ERR; after which a call to the kernel is reported as slow, again and again. */
	uint64_t handshake_timeout_ns, ack_timeout_ns, progress_timeout_ns, drain_timeout_ns, slow_ns;
	struct neap_host_port address; /* where we take handshakes: told to Neap peers; without a host it is not */
	/* While others wait for room: how long an endpoint is used at least before it makes room, and how long one must have been idle that
	 * makes room earlier. 0: 50 ms, and where that is not enough twice as long as connecting took, up to four times 50 ms; 2 ms, in which
	 * one that has work is posted to again. */
	uint64_t stay_ns, idle_ns;
	uint64_t guest_ns; /* how long a peer's request waits for room before it is refused; 0: 500 ms */
};

/* Answers a Connection request that was kept: neap_handshake_answer of the service it came by. From a turn. */
struct neap_rdma_answers {
	void (*answer)(void *user, uint64_t ticket, const struct neap_connection_message *reply);
	void *user;
};

/* What happens to an endpoint, told to those who use it. */
enum neap_rdma_news {
	NEAP_RDMA_USABLE,  /* sends may be posted */
	NEAP_RDMA_ROOM,    /* completions have made room again after there was none */
	NEAP_RDMA_LEAVING, /* no more posts; `cause` and `why` say why. What is owed comes, or GONE */
	NEAP_RDMA_GONE,    /* see above. The user is taken off the endpoint before the call */
	NEAP_RDMA_TURN,    /* who waited no longer does: there is room, or a reason why there will be none. To be used inside the call */
};

/* Those who wait for room on one device, the first first. */
struct neap_rdma_line {
	struct neap_rdma_endpoint_user *first, **last;
	struct neap_rdma_endpoints *endpoints;
	uint32_t count;
};

/* Whoever uses an endpoint, or waits for it: embedded in its own object, found by what is told. */
struct neap_rdma_endpoint_user {
	struct neap_rdma_endpoint_user *next, **slot;
	struct neap_rdma_endpoint *endpoint; /* NULL: none */
	struct neap_rdma_line *line;         /* it waits in; NULL: in none */
	bool fenced; /* GONE: the peer has said that its half is destroyed too: no send of ours reaches its memory any more */
	void (*told)(struct neap_rdma_endpoint_user *user, enum neap_rdma_news news); /* from a turn; may use and unuse endpoints */
};

struct neap_rdma_qp {
	struct neap_verbs_qp *qp;
	uint32_t number, posted; /* sends that are owed a completion */
};

/* What users may read. */
struct neap_rdma_endpoint {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_rdma_endpoints *endpoints;
	struct neap_rdma_queue *queue;  /* of its device */
	char path[NEAP_RDMA_NIC_PATH_MAX]; /* the peer's */
	bool usable;                    /* sends may be posted, as far as there is room */
	bool leaving;
	bool peer_is_neap;
	bool wants_fence;               /* the peer is asked to end its half; set by users at LEAVING when WRITEs are to be repeated */
	bool ever_usable;
	uint8_t peer_instance[16];      /* when it is Neap and has been heard of */
	uint32_t peer_fence;            /* fences of the peer's before it was connected: grants from before the latest are not for it */
	uint8_t cause;                  /* enum neap_cause; why it leaves */
	char why[NEAP_RDMA_WHY_SIZE];
	uint32_t qp_count;              /* connected ones */
	struct neap_rdma_qp qps[NEAP_RDMA_QPS_MAX];
	uint32_t depth;                 /* of each, agreed */
	uint32_t mtu_bytes;             /* of the path; with Mooncake, whose MTU is not told, a guess by its own rule */
	uint32_t reads_max;             /* of ours that a queue pair has under way at once */
	uint32_t owed;                  /* sends under way, of all its queue pairs */
	struct neap_rdma_endpoint_user *users;
};

/* Where the peer is, for the one who asks. Texts are copied. */
struct neap_rdma_target {
	const char *server; /* the part of the NIC path before '@': the peer's rdma_server_name or name */
	const char *nic;
	struct neap_host_port address; /* of its handshake service */
	uint8_t gid[16];               /* from its descriptor, for replies without one */
	uint16_t lid;
	bool is_neap;
	uint8_t instance[16];          /* of the process the descriptor is of, when it is Neap */
};

/* `caller` makes handshake calls, `answers` answers those that came; `local_server` (copied) is the part of our NIC paths before '@'. All
 * must last until `closed`. NEAP_ENOMEM, NEAP_ELIMIT. */
int neap_rdma_endpoints_create(struct neap_reactor *reactor, const struct neap_verbs *verbs, struct neap_helper *helper,
                               struct neap_handshake_caller *caller, const struct neap_rdma_answers *answers, const char *local_server,
                               const uint8_t instance[16], const struct neap_rdma_endpoint_options *options,
                               struct neap_rdma_endpoints **endpoints_p);
/* Retires all; `closed` from a turn, at whose end the object is gone. */
void neap_rdma_endpoints_close(struct neap_rdma_endpoints *endpoints, void (*closed)(void *user), void *user);
/* A device's queue has come (it may carry endpoints), or its `changed`: its endpoints retire when it is not usable or has another address.
 * Queues last until `closed`. Not from an action. NEAP_ELIMIT: more than NEAP_DEVICES_MAX of them. */
int neap_rdma_endpoints_queue_changed(struct neap_rdma_endpoints *endpoints, struct neap_rdma_queue *queue);

/* Puts `user` on the endpoint between that queue's device and the target, which is made and connected when there is none; one that leaves
 * is waited for by its successor. Nothing is told from inside the call: look at endpoint->usable. NEAP_EAGAIN: endpoints_max are there and
 * all have work, or the device has no queue pairs left until some that leave are destroyed, or others wait: neap_rdma_endpoint_wait;
 * NEAP_ENODEV: the queue is not usable; NEAP_ESTALE: it works, with another process than the target's: the target is out of date, or that
 * one is dead and will be noticed; NEAP_ECLOSED, NEAP_EINVAL (the path is too long).
 *
 * endpoints_max are kept by SIEVE: the one that is retired to make room is usable, has nothing under way and was not posted to for
 * longest; what the peer opened gets one more round. Users do not hold it: they are told LEAVING and GONE, and use it again when they
 * need to. What the peer has under way on it cannot be known: it fails there, and is sent again over a new one. */
int neap_rdma_endpoint_use(struct neap_rdma_endpoints *endpoints, struct neap_rdma_queue *queue, const struct neap_rdma_target *target,
                           struct neap_rdma_endpoint_user *user);
/* After NEAP_EAGAIN: puts `user` at the end of the line for that queue's device. TURN is told when it is its turn. Until then who has had
 * an endpoint for stay_ns is given no more sends, and makes room when what it has under way is over; so each gets its turn, however much
 * work the others have, and none waits for longer than their progress timeouts. */
void neap_rdma_endpoint_wait(struct neap_rdma_endpoints *endpoints, struct neap_rdma_queue *queue, struct neap_rdma_endpoint_user *user);
/* Also of one that waits. Not while it has sends under way there. */
void neap_rdma_endpoint_unuse(struct neap_rdma_endpoint_user *user);

/* How many sends may be posted now: depths and the entries of the device's completion queue. After 0 of a usable one, ROOM is told, or it
 * leaves, because others wait for its place. */
uint32_t neap_rdma_endpoint_room(struct neap_rdma_endpoint *endpoint);
/* Posts `count` (at most the room) over its queue pairs, each a contiguous part. Returns how many were posted, in order of `sends`; fewer
 * only when the device refused: then the endpoint leaves. Each posted one is owed a completion. */
uint32_t neap_rdma_endpoint_post(struct neap_rdma_endpoint *endpoint, const struct neap_verbs_send *sends, uint32_t count);
/* Posts one on the queue pair of that number, behind what was posted there, also when it is to make room for others. NEAP_EAGAIN: no room
 * there; something is under way on it, or ROOM is told. NEAP_ECLOSED: the endpoint leaves. */
int neap_rdma_endpoint_post_on(struct neap_rdma_endpoint *endpoint, uint32_t qp_number, const struct neap_verbs_send *send);
/* A completion of one of its sends came: makes room, and gives the entry back to its queue. Not a failure by itself: the owner
 * of the sends decides. Until it is GONE, also while it leaves. */
void neap_rdma_endpoint_completed(struct neap_rdma_endpoint *endpoint, uint32_t qp_number);
/* It has failed, or is not wanted any more. `cause`, `why`: the first one counts. */
void neap_rdma_endpoint_retire(struct neap_rdma_endpoint *endpoint, enum neap_cause cause, const char *why);

/* The same for all that there are, without blame. */
void neap_rdma_endpoints_retire(struct neap_rdma_endpoints *endpoints, const char *why);

/* What was under way will not be repeated: no peer is asked to end its half any more, and answers are not waited for. */
void neap_rdma_endpoints_hurry(struct neap_rdma_endpoints *endpoints);

/* Keeps a peer from reaching us by what it has: all endpoints of that process are retired, and `done` is called from a turn when their
 * queue pairs are destroyed. Then it is told, if it can be, so that it does not find one path after the other dead. It may connect anew;
 * it learns then that grants of ours from before do not go over what comes after (peer_fence).
 * Never done when a queue pair cannot be destroyed. */
struct neap_rdma_fence {
	struct neap_rdma_fence *next;
	uint8_t instance[16];
	uint32_t number;
	void (*done)(struct neap_rdma_fence *fence);
};
void neap_rdma_endpoints_fence(struct neap_rdma_endpoints *endpoints, struct neap_rdma_fence *fence);
uint32_t neap_rdma_endpoints_fences(const struct neap_rdma_endpoints *endpoints); /* so far */

/* A type-0 request came; `ticket` is the handshake service's for the answer. Called by the engine's handshake handler, which answers as
 * this does: 0 with *reply filled, or NEAP_HANDSHAKE_LATER. */
int neap_rdma_endpoints_asked(struct neap_rdma_endpoints *endpoints, uint64_t ticket, const struct neap_connection_message *request,
                              struct neap_connection_message *reply);

uint32_t neap_rdma_endpoints_count(const struct neap_rdma_endpoints *endpoints); /* not GONE */

#endif
