/* Endpoints from inside: shared by the files endpoint*.c, by nobody else. */
#ifndef NEAP_TRANSPORTS_RDMA_ENDPOINT_INSIDE_H
#define NEAP_TRANSPORTS_RDMA_ENDPOINT_INSIDE_H

#include "reactor/pool.h"
#include "transports/rdma/endpoint.h"
#include "transports/rdma/endpoint_fsm.h"

#define RDMA_TICKETS_MAX 8u   /* requests that wait for one endpoint; each may be an event posted by one action */
#define RDMA_DESTROY_TRIES 3u
#define RDMA_JOBS_MAX NEAP_RDMA_ENDPOINT_JOBS
#define RDMA_TO_RTR "RTR"      /* the step in which addresses are looked at; part of what is told to peers, as the reference does */
#define RDMA_GUESTS_MAX 32u    /* requests of peers that wait for room */
#define RDMA_CROWDED "too many endpoints here, and all of them have work (MC_MAX_EP_PER_CTX)"
#define RDMA_STALE "Received stale RDMA connection request of an earlier endpoint"
#define RDMA_READS_MAX 16u    /* of one queue pair, both ways */

/* One device's queue, as endpoints need it. */
struct rdma_place {
	struct neap_rdma_queue *queue;
	struct rdma_endpoint *starving; /* those whose user found no room, in no order */
	struct neap_rdma_line line, guests; /* of ours that wait for room, and of peers; served by turns */
	bool guests_next;
	uint32_t staying; /* endpoints on it that do not leave */
};

/* What the peer has told of its half. */
struct rdma_half {
	bool known, is_neap, has_ready_ack, has_gid;
	uint8_t gid[16], instance[16];
	uint16_t lid;
	uint32_t count; /* of its queue pairs: all of them, although only the first NEAP_RDMA_QPS_MAX are kept */
	uint32_t numbers[NEAP_RDMA_QPS_MAX], psns[NEAP_RDMA_QPS_MAX];
	uint32_t mtu_bytes, depth, reads;
	uint64_t epoch;
};

struct rdma_ticket {
	uint64_t id;
	bool retire; /* asks for the end, not for a connection */
};

/* What the helper works on: between submit and done it is the helper's. */
struct rdma_work {
	const struct neap_verbs_ops *ops;
	struct neap_verbs_pd *pd;
	struct neap_verbs_qp_options options;
	struct neap_verbs_qp_change init, rtr, rts;
	struct neap_verbs_qp *qps[NEAP_RDMA_QPS_MAX]; /* NULL: none, or destroyed */
	uint32_t numbers[NEAP_RDMA_QPS_MAX];
	uint32_t peer_numbers[NEAP_RDMA_QPS_MAX], receive_psns[NEAP_RDMA_QPS_MAX], send_psns[NEAP_RDMA_QPS_MAX];
	uint32_t wanted, connected; /* how many to make, and to connect */
	const char *doing;          /* at which step it failed */
	int make_error, connect_error, destroy_error; /* -errno */
};

/* A job waits for its turn when RDMA_JOBS_MAX are with the helper; the order is kept. */
struct rdma_job {
	struct neap_helper_job job; /* first */
	struct rdma_job *next;
	struct rdma_endpoint *endpoint;
	void (*run)(struct rdma_work *work);              /* on the helper's thread */
	void (*then)(struct rdma_endpoint *endpoint); /* from a turn */
};

struct rdma_endpoint {
	struct neap_rdma_endpoint base; /* first */
	struct rdma_place *place;
	struct rdma_endpoint *next_of_bucket;
	struct rdma_endpoint *before, *after; /* of the same path: the one that must be destroyed first, and who waits for that */
	struct rdma_endpoint *newer, *older;  /* SIEVE: those that do not leave */
	struct rdma_endpoint *next_starving;
	bool starving;
	uint8_t chances;       /* rounds of the hand it stays */
	bool yields;           /* it is given no more sends, and makes room for others when it is idle */
	uint64_t begun_ns, usable_ns; /* since when it is there, and usable */
	uint32_t view_changes; /* of the queue, when it was made */

	struct neap_timer progress;
	uint64_t progressed_ns; /* the last completion, or the first post since nothing was owed */
	uint32_t next_qp;       /* which is posted to first */

	struct neap_ready news;
	bool news_usable, news_room, news_leaving, news_gone;

	struct neap_rdma_target target; /* texts are not kept: their pointers are NULL */
	bool has_target;
	bool has_address; /* where the peer takes handshakes: target.address, of the target or as the peer has said */

	struct rdma_half peer;
	bool connected;   /* both halves are: at least ours has reached RTS */
	bool answered;    /* our own call was answered with the list we are connected with */
	bool ack_wanted;  /* by the peer, as that answer said */
	bool fenced;      /* the peer has said that its half is destroyed */
	uint64_t call;    /* handle of the call under way */
	uint64_t epoch;
	uint32_t fences_before; /* it was made after so many of them */
	uint32_t own_mtu_bytes, own_depth, own_reads;
	struct rdma_ticket tickets[RDMA_TICKETS_MAX];
	uint32_t ticket_count;

	struct rdma_job make_job, connect_job, destroy_job;
	struct rdma_work work;
	uint32_t made;          /* queue pairs there are */
	uint32_t destroy_tries; /* that failed */
	bool destroy_again;     /* the last one failed, and none is under way */
};

struct neap_rdma_endpoints {
	struct neap_reactor *reactor;
	struct neap_reactor_class *class_;
	const struct neap_verbs *verbs;
	struct neap_helper *helper;
	struct neap_handshake_caller *caller;
	struct neap_rdma_answers answers;
	struct neap_rdma_endpoint_options options;
	char local_server[NEAP_RDMA_NIC_PATH_MAX];
	uint8_t instance[16];
	struct neap_pool pool;
	struct rdma_endpoint **buckets; /* by queue and path: the latest of each, until its queue pairs are destroyed */
	uint32_t bucket_mask;
	struct rdma_endpoint *newest, *oldest, *hand;
	uint32_t staying; /* in that list: not leaving */
	uint32_t waiting, yielding; /* in the lines, and of those that stay */
	uint32_t turn; /* the place whose line is looked at first */
	struct neap_pool guest_pool;
	struct rdma_guest *guests; /* all of them */
	const struct neap_rdma_endpoint_user *served; /* it is told TURN: nobody goes before it */
	uint64_t crowd_ns; /* when it was last said that there are more paths than places; 0: never */
	struct neap_ready line_due;
	struct neap_timer line_timer;
	struct rdma_place places[NEAP_DEVICES_MAX];
	uint32_t place_count;
	uint64_t last_epoch;
	struct rdma_job *first_job, **last_job; /* that wait */
	uint32_t jobs;                          /* with the helper */
	uint32_t fences_ever;
	struct neap_rdma_fence *fences; /* whose queue pairs are being destroyed */
	struct neap_ready fences_due;
	bool stray; /* a queue pair could not be destroyed */
	bool hurried; /* nobody is asked to end its half */
	bool closing;
	void (*closed)(void *user);
	void *closed_user;
	struct neap_ready ended;
	struct neap_reap reap;
	struct neap_dependent dependent;
};

static inline struct rdma_endpoint *rdma_endpoint_of(const struct neap_machine *machine)
{
	return (struct rdma_endpoint *)(uintptr_t)((const char *)machine - offsetof(struct rdma_endpoint, base.machine));
}

/* endpoint.c */
/* A fresh one on the map, with what follows it; its first event is on its way. NULL: no room (rdma_admit is asked first). */
struct rdma_endpoint *rdma_endpoint_begin(struct neap_rdma_endpoints *endpoints, struct rdma_place *place, const char *path);
/* Marks it as leaving, for a reason; no event. False: it was already. */
bool rdma_endpoint_leave(struct rdma_endpoint *endpoint, enum neap_cause cause, const char *why);
/* The same and the event. From anywhere. */
void rdma_endpoint_fail(struct rdma_endpoint *endpoint, enum neap_cause cause, const char *format, ...) NEAP_PRINTF(3, 4);
const char *rdma_error_text(int error); /* of -errno */
/* The kernel refused the move to RTR, here or at the peer: from our address the peer's may not be reached. */
void rdma_endpoint_doubt_gid(struct rdma_endpoint *endpoint);
void rdma_endpoint_tell_later(struct rdma_endpoint *endpoint);

/* endpoint_cache.c */
struct rdma_place *rdma_place_of(struct neap_rdma_endpoints *endpoints, const struct neap_rdma_queue *queue);
struct rdma_place *rdma_place_named(struct neap_rdma_endpoints *endpoints, const char *nic);
struct rdma_endpoint *rdma_map_find(const struct neap_rdma_endpoints *endpoints, const struct rdma_place *place, const char *path);
void rdma_map_put(struct rdma_endpoint *endpoint); /* in front of the one that is there, which it waits for */
void rdma_map_take(struct rdma_endpoint *endpoint); /* and lets who waits for it go on */
void rdma_list_put(struct rdma_endpoint *endpoint);
void rdma_list_take(struct rdma_endpoint *endpoint);
void rdma_endpoint_makes_room(struct rdma_endpoint *endpoint, const char *whom);
bool rdma_has_room(const struct neap_rdma_endpoints *endpoints, const struct rdma_place *place);
/* The same, or makes some: by the end of one that is idle and has had its time. */
bool rdma_admit(struct neap_rdma_endpoints *endpoints, const struct rdma_place *place);

/* endpoint_line.c: who waits for room */
void rdma_line_run(struct neap_ready *ready);
void rdma_line_join(struct neap_rdma_line *line, const struct rdma_place *place, struct neap_rdma_endpoint_user *user);
void rdma_line_leave(struct neap_rdma_endpoint_user *user);
/* From when on it may make room for others, as far as is known now; UINT64_MAX: it cannot. */
uint64_t rdma_may_go_ns(const struct rdma_endpoint *endpoint);
/* There may be room for those who wait. Not at once: what is told of the endpoint is done first. */
static inline void rdma_line_look(struct neap_rdma_endpoints *endpoints)
{
	if (endpoints->waiting || endpoints->yielding)
		neap_ready_again(endpoints->reactor, &endpoints->line_due);
}

/* endpoint_guests.c: requests of peers that wait for room */
int rdma_guests_create(struct neap_rdma_endpoints *endpoints);
/* False: there are too many, and it is to be refused. True: its ticket will be answered. */
bool rdma_guest_wait(struct neap_rdma_endpoints *endpoints, struct rdma_place *place, uint64_t ticket,
                     const struct neap_connection_message *request);
/* Refuses those of the request's path that it is later than. False: there is one that is later than the request. */
bool rdma_guests_drop(struct neap_rdma_endpoints *endpoints, const struct neap_connection_message *request);
void rdma_guests_end(struct neap_rdma_endpoints *endpoints, const char *why);

/* endpoint_work.c: the helper's part */
void rdma_work_submit(struct rdma_endpoint *endpoint, struct rdma_job *job);
/* For how long the kernel is at a job of the endpoint; 0: it is not. */
uint64_t rdma_work_runs_ns(const struct rdma_endpoint *endpoint);
void rdma_work_make(struct rdma_endpoint *endpoint);
void rdma_work_connect(struct rdma_endpoint *endpoint);
void rdma_work_destroy(struct rdma_endpoint *endpoint);

/* endpoint_handshake.c: what is told to the peer, and its answers */
struct rdma_message {
	struct neap_connection_message message; /* points into this, and is not to be freed */
	char local_path[NEAP_RDMA_NIC_PATH_MAX];
	char empty[1];
};
void rdma_local_path(const struct rdma_endpoint *endpoint, char path[NEAP_RDMA_NIC_PATH_MAX]);
/* Everything empty, and the text. */
void rdma_message_empty(struct rdma_message *message, const char *reply_msg);
/* All of our half. `neap`: the peer is Neap, or may be. */
void rdma_message_of(struct rdma_endpoint *endpoint, bool neap, struct rdma_message *message);
/* True: `message` tells of what the endpoint knows as its peer's half. */
bool rdma_half_same(const struct rdma_half *peer, const struct neap_connection_message *message);
/* Takes it, or says what is wrong with it; UNKNOWN: it has no GID, and nobody has told us. */
enum rdma_verdict { RDMA_TAKEN, RDMA_WRONG, RDMA_UNKNOWN };
enum rdma_verdict rdma_half_take(struct rdma_endpoint *endpoint, const struct neap_connection_message *message, char *why, size_t why_size);
void rdma_call_ask(struct rdma_endpoint *endpoint);
void rdma_call_ack(struct rdma_endpoint *endpoint);
void rdma_call_fence(struct rdma_endpoint *endpoint);
void rdma_hang_up(struct rdma_endpoint *endpoint);

/* endpoint_asked.c: what the peer asks */
void rdma_answer_connected(struct rdma_endpoint *endpoint);                  /* all that ask for a connection, with our half */
void rdma_answer_refused(struct rdma_endpoint *endpoint, const char *text, bool filled); /* the same, with a refusal */
void rdma_answer_retired(struct rdma_endpoint *endpoint);                    /* all that asked for the end: it is destroyed */

/* endpoint_fence.c */
void rdma_fences_look(struct neap_rdma_endpoints *endpoints); /* queue pairs are destroyed, or were never made */
void rdma_fences_run(struct neap_ready *ready);

/* endpoint_post.c */
void rdma_forget_owed(struct rdma_endpoint *endpoint); /* its queue pairs are destroyed: entries go back */
void rdma_starve_end(struct rdma_endpoint *endpoint);

#endif
