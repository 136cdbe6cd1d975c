/* What a transport needs of RDMA verbs, as a table of functions (design.md 2, te spec 5). Two tables exist: libibverbs
 * (verbs_libibverbs.c, the only file that knows infiniband/verbs.h) and simulated verbs (tests/support/sim_verbs.c), so that the same
 * devices, memory and lanes run over both.
 *
 * Objects belong to who made them, and are destroyed in the opposite order: whatever stands on another object goes first. One object is
 * used by one thread at a time; different ones by any.
 *
 * Functions answer 0 or -errno. Those marked WAITS may sleep in the kernel or talk to firmware (ibv_reg_mr pins pages, RTR resolves the
 * neighbour's address for a second, destroying waits for packets that hold a reference: rdma-observed 2, fences.md 1), so they are
 * called on a helper thread alone. The others may be called from a turn of the reactor. */
#ifndef NEAP_TRANSPORTS_RDMA_VERBS_H
#define NEAP_TRANSPORTS_RDMA_VERBS_H

#include "transports/topology/gids.h"

struct neap_verbs_context; /* an open device */
struct neap_verbs_pd;      /* protection domain: memory and QPs that may meet */
struct neap_verbs_mr;      /* registered memory */
struct neap_verbs_channel; /* where armed CQs report */
struct neap_verbs_cq;
struct neap_verbs_qp;

/* --- devices and ports ------------------------------------------------------------------------------------------------------------ */

struct neap_verbs_device_limits {
	uint64_t mr_size_max; /* bytes of one registration */
	uint32_t mr_max, qp_max, cq_max;
	uint32_t cqe_max, wr_max, sge_max;
	uint32_t read_initiator_max, read_target_max; /* RDMA READs under way on one QP */
	uint32_t port_count;
	uint32_t window_bytes; /* more under way to one device of a peer gets lost and is sent again (Soft-RoCE); 0: as much as there is */
	bool reads_doubtful; /* a READ that failed midway is called done (Soft-RoCE, fences.md 4): its queue pair must work afterwards */
	bool places_first; /* the bytes of a WRITE are there when it is completed; of no device that is known */
};

struct neap_verbs_port {
	enum neap_port_state status;
	bool ethernet;
	uint32_t mtu_bytes; /* active: 256 to 4096 */
	uint32_t lid;       /* 0 on Ethernet */
	uint32_t gid_count; /* size of the table, holes included */
};

enum neap_verbs_event_kind {
	NEAP_VERBS_PORT_ACTIVE,
	NEAP_VERBS_PORT_ERROR,
	NEAP_VERBS_ADDRESS_CHANGE, /* GID, LID or P_Key table */
	NEAP_VERBS_DEVICE_FATAL,
	NEAP_VERBS_QP_FATAL,
	NEAP_VERBS_CQ_ERROR, /* overrun */
	NEAP_VERBS_OTHER,
};
struct neap_verbs_event {
	enum neap_verbs_event_kind kind;
	uint32_t port;      /* of the PORT_ and ADDRESS_ events */
	uint32_t qp_number; /* of QP_FATAL */
};

/* --- memory ----------------------------------------------------------------------------------------------------------------------- */

enum {
	NEAP_VERBS_LOCAL_WRITE = 1,
	NEAP_VERBS_REMOTE_WRITE = 2,
	NEAP_VERBS_REMOTE_READ = 4,
	NEAP_VERBS_REMOTE_ATOMIC = 8,     /* only of QPs: Mooncake's have it (rdma-observed 3) */
	NEAP_VERBS_RELAXED_ORDERING = 16, /* a wish: devices without it ignore it */
};
struct neap_verbs_keys {
	uint32_t lkey, rkey;
};

/* --- queues ----------------------------------------------------------------------------------------------------------------------- */

/* The numbers of enum ibv_wc_status. */
enum neap_verbs_status {
	NEAP_WC_SUCCESS = 0,
	NEAP_WC_LOCAL_LENGTH = 1,
	NEAP_WC_LOCAL_QP_OPERATION = 2,
	NEAP_WC_LOCAL_PROTECTION = 4,
	NEAP_WC_FLUSHED = 5,
	NEAP_WC_REMOTE_INVALID_REQUEST = 9,
	NEAP_WC_REMOTE_ACCESS = 10,
	NEAP_WC_REMOTE_OPERATION = 11,
	NEAP_WC_RETRY_EXCEEDED = 12,
	NEAP_WC_RNR_RETRY_EXCEEDED = 13,
	NEAP_WC_FATAL = 19,
	NEAP_WC_GENERAL = 21,
};
struct neap_verbs_completion {
	uint64_t id; /* of the work request */
	enum neap_verbs_status status;
	uint32_t qp_number;
	uint32_t length; /* bytes received; only of a receive that succeeded */
};

/* The numbers of enum ibv_qp_state. */
enum neap_verbs_qp_state { NEAP_QP_RESET, NEAP_QP_INIT, NEAP_QP_RTR, NEAP_QP_RTS, NEAP_QP_SQD, NEAP_QP_SQE, NEAP_QP_ERR };

struct neap_verbs_qp_options {
	struct neap_verbs_cq *cq; /* of sends and receives */
	uint32_t send_max, receive_max, inline_max_bytes;
};
/* To RESET and ERR nothing but `state` is read; to INIT port, P_Key and access; to RTR what is under it, to RTS the last four. */
struct neap_verbs_qp_change {
	enum neap_verbs_qp_state to;
	uint32_t port;
	uint16_t pkey_index;
	unsigned access; /* NEAP_VERBS_* */

	uint32_t mtu_bytes, peer_qp_number, peer_lid, receive_psn;
	uint8_t peer_gid[16];
	uint32_t gid_index;
	uint8_t reads_served_max, rnr_timer, hop_limit, traffic_class, service_level;

	uint32_t send_psn;
	uint8_t timeout, retry_count, rnr_retry, reads_max; /* retry_count 7 is for ever on Soft-RoCE (rdma-observed 7) */
};

/* One piece of local memory each, always with a completion. Of length 0: none, and no key is looked at. */
enum neap_verbs_opcode { NEAP_VERBS_WRITE, NEAP_VERBS_READ, NEAP_VERBS_SEND };
struct neap_verbs_send {
	uint64_t id;
	enum neap_verbs_opcode opcode;
	uint32_t length, lkey, rkey;
	uint64_t local, remote; /* addresses */
};
struct neap_verbs_receive {
	uint64_t id;
	uint64_t local;
	uint32_t length, lkey;
};

/* --- the table -------------------------------------------------------------------------------------------------------------------- */

struct neap_verbs_ops {
	/* Names of the devices that can be opened, at most `capacity`. None is no error, whatever is missing. WAITS */
	int (*list)(void *user, char (*names)[NEAP_TOPOLOGY_NAME_SIZE], uint32_t capacity, uint32_t *count_p);
	/* -ENODEV: not among them; -ENOENT: its file in /dev/infiniband is not there; -EACCES: it may not be used. WAITS */
	int (*open)(void *user, const char *name, struct neap_verbs_context **context_p);
	int (*close)(struct neap_verbs_context *context); /* WAITS */
	/* The descriptor on which next_event has something, non-blocking and close-on-exec; the context's. */
	int (*event_fd)(struct neap_verbs_context *context);
	/* 1: *event_p is the next one, already acknowledged; 0: none; -EIO: the device is gone. */
	int (*next_event)(struct neap_verbs_context *context, struct neap_verbs_event *event_p);
	int (*query_device)(struct neap_verbs_context *context, struct neap_verbs_device_limits *limits_p);                 /* WAITS */
	int (*query_port)(struct neap_verbs_context *context, uint32_t port, struct neap_verbs_port *port_p);               /* WAITS */
	/* The entries of a port's table that are no holes, by index. WAITS */
	int (*query_gids)(struct neap_verbs_context *context, uint32_t port, struct neap_gid_entry entries[NEAP_GIDS_MAX], uint32_t *count_p);

	int (*allocate_pd)(struct neap_verbs_context *context, struct neap_verbs_pd **pd_p); /* WAITS */
	int (*free_pd)(struct neap_verbs_pd *pd); /* -EBUSY: something stands on it. WAITS */

	/* WAITS. -ENOMEM also for the limits of locked memory and of the device. */
	int (*register_memory)(struct neap_verbs_pd *pd, void *address, uint64_t length, unsigned access, struct neap_verbs_mr **mr_p,
	                       struct neap_verbs_keys *keys_p);
	/* After 0 no peer reaches the memory any more: the fence that held in every round of fences.md 1. WAITS */
	int (*deregister_memory)(struct neap_verbs_mr *mr);

	int (*create_channel)(struct neap_verbs_context *context, struct neap_verbs_channel **channel_p); /* WAITS */
	int (*destroy_channel)(struct neap_verbs_channel *channel);                                       /* WAITS */
	int (*channel_fd)(struct neap_verbs_channel *channel); /* as event_fd */
	/* Takes and acknowledges all that its CQs reported: how many, or -errno. */
	int (*take_wakeups)(struct neap_verbs_channel *channel);
	int (*create_cq)(struct neap_verbs_context *context, uint32_t entries, struct neap_verbs_channel *channel,
	                 struct neap_verbs_cq **cq_p); /* channel NULL: polled only. WAITS */
	int (*destroy_cq)(struct neap_verbs_cq *cq);   /* WAITS */
	int (*arm_cq)(struct neap_verbs_cq *cq);       /* one report, for the next completion; poll once more after it */
	int (*poll_cq)(struct neap_verbs_cq *cq, struct neap_verbs_completion *completions, uint32_t max); /* how many, or -errno */

	int (*create_qp)(struct neap_verbs_pd *pd, const struct neap_verbs_qp_options *options, struct neap_verbs_qp **qp_p,
	                 uint32_t *number_p); /* reliable connection. WAITS */
	int (*modify_qp)(struct neap_verbs_qp *qp, const struct neap_verbs_qp_change *change); /* to RTR: WAITS, for a second */
	int (*query_qp)(struct neap_verbs_qp *qp, enum neap_verbs_qp_state *state_p);          /* WAITS */
	/* Completions that it still owes are lost: not before it is in ERR and all were polled. WAITS */
	int (*destroy_qp)(struct neap_verbs_qp *qp);
	/* Posts them in order. *posted_p of them are under way whatever the answer. */
	int (*post_send)(struct neap_verbs_qp *qp, const struct neap_verbs_send *sends, uint32_t count, uint32_t *posted_p);
	int (*post_receive)(struct neap_verbs_qp *qp, const struct neap_verbs_receive *receive);
};

struct neap_verbs {
	const struct neap_verbs_ops *ops;
	void *user; /* for list and open */
};

/* The system's. */
extern const struct neap_verbs neap_verbs_system;

#endif
