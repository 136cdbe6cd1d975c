/* Simulated verbs from inside: shared by their three files, by nobody else. */
#ifndef SUPPORT_SIM_INSIDE_H
#define SUPPORT_SIM_INSIDE_H

#include "tests/support/sim_verbs.h"

#define SIM_EVENTS_MAX 4096u
#define SIM_QUEUE_MAX 1024u
#define SIM_PACKETS_MAX 32u /* placed in one step */

/* A descriptor that is readable while it is raised. */
struct sim_signal {
	struct sim_signal *next; /* of those that the system does not know */
	const struct sim_process *process;
	int fd;
	bool raised;
};

/* Packets of a WRITE whose QP has given up or is gone. */
struct sim_stray {
	struct sim_stray *next;
	const struct sim_device *from, *to;
	uint32_t from_qp, to_qp, psn, rkey, length, placed;
	uint64_t remote, due_ns;
	bool caught; /* its next packet was looked at before its QP failed */
	unsigned char bytes[];
};

struct neap_verbs_context {
	struct neap_verbs_context *next;
	struct sim_verbs *sim;
	struct sim_process *process;
	struct sim_device *device;
	struct sim_signal signal;
	struct neap_verbs_event events[SIM_EVENTS_MAX];
	uint32_t event_head, event_count, users;
	struct neap_verbs_pd *pd; /* the last one made */
	bool lost; /* since it was opened: everything but destroying answers -EIO */
};

struct neap_verbs_pd {
	struct neap_verbs_context *context;
	struct neap_verbs_mr *regions;
	struct neap_verbs_mr *ghosts; /* of lies.keys_stay */
	uint32_t users;
};

struct neap_verbs_mr {
	struct neap_verbs_mr *next;
	struct neap_verbs_pd *pd;
	uint64_t address, length;
	unsigned access;
	struct neap_verbs_keys keys;
	uint32_t refusals;
	bool ghost; /* deregistered, but for a mistake */
};

/* What a queue pair was that is destroyed, but for a mistake. */
struct sim_ghost {
	struct sim_ghost *next;
	const struct neap_verbs_pd *pd;
	uint32_t number, peer_number, psn;
};

struct neap_verbs_channel {
	struct neap_verbs_context *context;
	struct sim_signal signal;
	uint32_t wakeups, users;
};

struct neap_verbs_cq {
	struct neap_verbs_context *context;
	struct neap_verbs_channel *channel;
	uint32_t capacity, head, count, users;
	bool armed;
	struct neap_verbs_completion *ring; /* capacity */
};

/* A posted operation on its way. */
struct sim_send {
	struct neap_verbs_send what;
	bool executed, completed; /* executed: its verdict is known; placed bytes may follow */
	enum neap_verbs_status status;
	uint32_t placed;   /* bytes that have arrived in memory */
	unsigned char *bytes;         /* of a WRITE that has completed and is not in memory yet */
	struct neap_verbs_mr *target; /* where they go; NULL: that is gone */
	uint64_t due_ns;   /* when something happens to it next */
	uint64_t posted_ns; /* its process was stopped before that; 0: it was not */
	uint64_t first_ns; /* when it was first tried without success; 0: not yet */
};

struct neap_verbs_qp {
	struct neap_verbs_qp *next;
	struct neap_verbs_pd *pd;
	struct neap_verbs_cq *cq;
	uint32_t number, send_max, receive_max;
	enum neap_verbs_qp_state state;
	bool lingers; /* in ERR, and its first operation is not flushed yet */
	struct neap_verbs_qp_change attributes; /* as the last changes left them */
	struct sim_send *sends; /* a ring of send_max + 1: the head may have completed, and still have bytes to place */
	uint32_t send_head, send_count;
	struct neap_verbs_receive *receives; /* receive_max: a ring */
	uint32_t receive_head, receive_count;
};

/* In front of what is allocated. */
struct sim_block {
	struct sim_block *next, *previous;
	const struct sim_process *process;
	bool counts; /* as an object */
};

/* sim_verbs.c */
void *sim_new(const struct neap_verbs_context *context, size_t bytes);  /* an object */
void *sim_room(const struct neap_verbs_context *context, size_t bytes); /* for it */
void sim_delete(struct sim_verbs *sim, void *memory);
uint64_t sim_random(struct sim_verbs *sim);
uint64_t sim_now(const struct sim_verbs *sim);
int sim_fails(struct sim_verbs *sim, enum sim_call call); /* 0, or the error that was asked for */
/* The region of a protection domain that has the key and all of the range, and its rights; NULL: refused. */
struct neap_verbs_mr *sim_region(const struct neap_verbs_pd *pd, bool remote, uint32_t key, uint64_t address, uint64_t length,
                                 unsigned access);
/* sim_mistakes.c: each does something with its mistake alone */
void sim_mistake_keep_half(const struct neap_verbs_qp *qp);
const struct neap_verbs_pd *sim_mistake_half(const struct sim_verbs *sim, const struct sim_stray *stray); /* that still receives; or NULL */
/* Bytes come to a region's memory, which its owner may have given back to the system when it is a ghost. */
void sim_land(const struct neap_verbs_mr *mr, uint64_t to, const unsigned char *bytes, size_t length);
bool sim_mistake_keep_region(struct neap_verbs_mr *mr); /* true: it is a ghost now */
void sim_mistake_forget(struct neap_verbs_pd *pd);      /* all ghosts of a protection domain that goes */
void sim_mistake_rekey(const struct neap_verbs_mr *mr, struct neap_verbs_keys *keys);
bool sim_mistake_take_check(struct neap_verbs_qp *qp, const struct neap_verbs_send *send); /* true: it has succeeded */
/* sim_process.c */
void sim_signal_begin(struct sim_signal *signal, struct sim_verbs *sim, const struct sim_process *process);
void sim_signal_end(struct sim_signal *signal, struct sim_verbs *sim);
void sim_signal_raise(struct sim_signal *signal);
void sim_signal_take(struct sim_signal *signal);
/* sim_queues.c */
extern const struct neap_verbs_ops sim_queue_ops; /* its part of the table */
void sim_complete(struct neap_verbs_qp *qp, uint64_t id, enum neap_verbs_status status, uint32_t length);
void sim_qp_fails(struct neap_verbs_qp *qp); /* to ERR; what it has is flushed as it comes to it */
static inline struct sim_send *sim_head(const struct neap_verbs_qp *qp)
{
	return &qp->sends[qp->send_head % (qp->send_max + 1)];
}
/* sim_network.c */
void sim_network_settle(struct sim_verbs *sim, const struct neap_verbs_mr *region, const struct neap_verbs_qp *of);
void sim_network_wake(struct sim_verbs *sim); /* the timer, at what is due next */
struct neap_verbs_qp *sim_peer_of(const struct neap_verbs_qp *qp); /* NULL: none that knows it */
bool sim_is_cut(const struct sim_verbs *sim, const struct sim_device *a, const struct sim_device *b);
void sim_place_rest(struct sim_send *send);
bool sim_fetch(struct neap_verbs_qp *qp, struct neap_verbs_qp *peer, const struct neap_verbs_send *what);
/* sim_strays.c */
void sim_strays_leave(const struct neap_verbs_qp *qp); /* it is about to be of no use: some of what it has sent is on its way */
void sim_strays_add(struct neap_verbs_qp *qp, const struct sim_send *send); /* a WRITE that is placed when it likes: lies.places_later */
void sim_strays_catch(const struct neap_verbs_qp *qp);  /* it is about to fail */
void sim_strays_settle(struct sim_verbs *sim, const struct neap_verbs_qp *qp, const struct neap_verbs_mr *region); /* what was caught lands */
uint64_t sim_strays_due(const struct sim_verbs *sim);   /* UINT64_MAX: none */
void sim_strays_run(struct sim_verbs *sim, uint64_t now_ns);
void sim_strays_end(struct sim_verbs *sim);

#endif
