/* Verbs that are played, crueller than hardware (models.md D.3): in virtual time, from a seed, over this process's real memory.
 *
 * - A WRITE completes before its bytes are placed, in pieces; a READ, or anything else behind it on the same QP, waits for them. They are
 *   not lost, whatever happens to QPs and regions: those who destroy them wait for what the device has accepted.
 * - A READ whose region goes away midway succeeds with bytes missing (fences.md 4).
 * - Completions are late, in order within a QP and in any order between QPs.
 * - A refused operation moves both QPs of the pair to ERR; what is behind it is flushed.
 * - A QP that its owner moves to ERR may work on its first operation until that is flushed: some packets more are sent from its memory, or come
 *   into it, and the completion says `flushed` all the same.
 * - Of what is on its way to a QP that fails one packet may have been looked at already: it is copied up to 8 ms later, unless the QP is
 *   destroyed or the region deregistered before: these wait for it (fences.md 1).
 * - Sequence numbers that do not fit, and a path MTU that differs, are met as the hardware meets them: with silence and a refusal.
 * - retry_count 7 never gives up (rdma-observed 7); less gives up after its time.
 * - A QP that is reset or destroyed takes along the completions it owes.
 * - A CQ that overruns fails the test, unless `overruns_allowed`.
 * - Packets of a QP that gives up, is taken down, or whose process dies may be in the network for up to stray_max_ns longer, and for as long
 *   as a cable is cut between the devices; they land when what they are for is still there (fences.md 1, 5).
 * - Keys, bounds and rights are enforced; a region that is deregistered is reached by nothing any more.
 * - Whatever stands on another object keeps it from being destroyed (-EBUSY); sim_verbs_end finds what was left.
 *
 * What must not be is asserted: the simulation runs outside of tests too.
 *
 * One thread. Files: sim_verbs.c (devices, memory), sim_process.c (processes, descriptors), sim_queues.c (CQs, QPs), sim_network.c (what
 * happens to a posted operation), sim_strays.c (what is left of it in the network), sim_mistakes.c (what a world must find). */
#ifndef SUPPORT_SIM_VERBS_H
#define SUPPORT_SIM_VERBS_H

#include "reactor/core.h"
#include "transports/rdma/verbs.h"

#define SIM_DEVICES_MAX 16u
#define SIM_MTU_BYTES 1024u

/* The calls that sim_verbs_fail can make fail. */
enum sim_call {
	SIM_LIST,
	SIM_OPEN,
	SIM_QUERY_DEVICE,
	SIM_QUERY_PORT,
	SIM_QUERY_GIDS,
	SIM_ALLOCATE_PD,
	SIM_REGISTER,
	SIM_DEREGISTER,
	SIM_CREATE_CHANNEL,
	SIM_CREATE_CQ,
	SIM_CREATE_QP,
	SIM_MODIFY_QP,
	SIM_DESTROY_QP,
	SIM_POST_SEND,
	SIM_FREE_PD,
	SIM_CLOSE,
	SIM_CALLS,
};

/* Mistakes of who uses the devices, made in its place, to show that a world finds them: queue pairs that are destroyed go on to receive, and
 * regions that are deregistered to be reached, as if nobody had done that, or waited for it; READs of a few bytes succeed, as if nobody had
 * asked; a range that is registered again is said to have the key of its former life; a completion queue has an entry less, as if one too many
 * was owed. gives_buffers is the world's own: what is held is the user's already. */
#define SIM_MISTAKES(M) M(none) M(keeps_halves) M(keeps_regions) M(takes_checks) M(old_keys) M(small_queue) M(gives_buffers)
enum sim_mistake {
#define SIM_MISTAKE(name) SIM_MISTAKE_##name,
	SIM_MISTAKES(SIM_MISTAKE)
#undef SIM_MISTAKE
	SIM_MISTAKE_COUNT,
};
#define SIM_FORMER_KEYS 64u

struct sim_device {
	char name[NEAP_TOPOLOGY_NAME_SIZE];
	bool present, forbidden; /* opening answers -ENODEV, -EACCES */
	bool keeps;              /* it does not let go of regions: -EIO */
	struct neap_verbs_device_limits limits;
	struct neap_verbs_port port;
	struct neap_gid_entry gids[8];
	uint32_t gid_count;
	uint32_t gids_refused; /* by bit of the index: not taken for the move to RTR (-EINVAL), as is one that is not there, or of another family */
	uint64_t locked_bytes, locked_bytes_max; /* RLIMIT_MEMLOCK, in bytes */
	uint32_t regions;
	struct neap_verbs_context *contexts;
};

/* Time that is not a reactor's. */
struct sim_verbs_clock {
	uint64_t (*now_ns)(void *user);
	void (*wake_at)(void *user, uint64_t at_ns); /* sim_verbs_run shall be called then; a later call replaces this one */
	void *user;
};

/* One that uses devices of the network, as others do. */
struct sim_verbs;
struct sim_process {
	struct neap_verbs verbs; /* what it knows of them */
	struct sim_verbs *sim;
	uint32_t devices;              /* it has, by bit */
	void (*signaled)(void *user);  /* a descriptor has become ready that only sim_verbs_ready knows; NULL: they are the system's */
	void *user;
	bool dead, spoiled; /* spoiled: a device has refused ten times to let go of memory of it */
	/* It is stopped in the midst of its `stop_in`th WRITE from now (0: it is not): `stopped` is called, and what it posts from there to the end
	 * of its turn reaches the device `stop_ns` later. */
	uint32_t stop_in;
	uint64_t stop_ns, posts_at_ns;
	void (*stopped)(void *user, uint64_t ns);
};

/* What no device does: with one of them, whoever stands on what devices promise must be seen to fail. */
struct sim_lies {
	bool keys_stay;    /* a region that was deregistered can be written to */
	bool reads_empty;  /* a READ of a region that is not there any more is done, and the queue pair works on */
	bool places_later; /* what is behind a WRITE does not wait for its placement */
};

struct sim_stray;
struct sim_signal;
struct sim_block;
struct sim_ghost;
struct sim_verbs {
	enum sim_mistake mistake;
	uint64_t mistakes;           /* made: how often */
	struct sim_ghost *ghosts;    /* of queue pairs that were destroyed by mistake only */
	struct sim_former {
		const struct sim_device *device;
		uint64_t address, length;
		uint32_t rkey;
	} former[SIM_FORMER_KEYS];   /* the keys that ranges had */
	uint32_t former_count;
	struct neap_verbs verbs;     /* the one process of tests that have no others: it has all devices */
	struct sim_process process;
	struct neap_verbs_ops ops;
	struct neap_reactor *reactor;
	struct neap_timer timer;
	const struct sim_verbs_clock *clock; /* NULL: the reactor's */
	uint64_t stray_max_ns;               /* 0: no packet outlives its QP, unless a cable is cut */
	struct sim_stray *strays;            /* in the order in which they were sent */
	struct sim_signal *signals;
	int next_signal;
	uint16_t cut[SIM_DEVICES_MAX];       /* cables, by bit of the other device */
	uint64_t strays_landed, strays_refused;
	uint64_t random; /* state */
	uint64_t latency_max_ns;
	struct sim_device devices[SIM_DEVICES_MAX];
	uint32_t device_count;
	uint32_t fail_in[SIM_CALLS]; /* 0: none; 1: the next call */
	int fail_with[SIM_CALLS];
	uint64_t calls[SIM_CALLS];
	uint32_t objects; /* alive */
	struct sim_block *blocks; /* and what they consist of */
	uint32_t next_key, next_qp;
	struct neap_verbs_qp *qps;
	struct sim_lies lies;
	bool reads_are_honest; /* a READ whose region goes midway is refused, as InfiniBand has it; Soft-RoCE calls it done (fences.md 4) */
	uint32_t overruns;
	uint32_t refused_sends; /* posted to a QP that had no room for it */
	uint64_t lingered, caught; /* operations that a QP has worked on in ERR; packets that were copied into what had failed */
	bool overruns_allowed;
	unsigned access_seen; /* of the last registration */
};

/* `seed` decides delays and orders. */
void sim_verbs_begin(struct sim_verbs *sim, struct neap_reactor *reactor, uint64_t seed);
/* The same without a reactor. */
void sim_verbs_begin_with(struct sim_verbs *sim, const struct sim_verbs_clock *clock, uint64_t seed);
void sim_verbs_run(struct sim_verbs *sim); /* all that is due */
/* Another process: it has the devices whose bits are set. The object lasts until all that it made is destroyed. */
void sim_process_begin(struct sim_process *process, struct sim_verbs *sim, uint32_t devices, void (*signaled)(void *user), void *user);
/* It dies, and the kernel takes what it had: queue pairs and regions are gone for everybody else. To what the dead one still calls it is as
 * if its devices were lost: what its sends were owed has come, and all can be destroyed. */
void sim_process_kill(struct sim_process *process);
/* It is dead, and will not destroy what it had: that does not count as left. */
void sim_process_abandon(struct sim_process *process);
bool sim_process_writes(const struct sim_process *process); /* WRITEs of its are on their way */
bool sim_process_reads(const struct sim_process *process);
unsigned sim_verbs_ready(const struct sim_verbs *sim, int fd); /* NEAP_READABLE, or 0 */
/* The cable between two devices: what is sent while it is cut is held back, by the device or on the way. */
void sim_verbs_cut(struct sim_verbs *sim, const struct sim_device *a, const struct sim_device *b, bool cut);
/* WRITEs into the range that have completed are placed now. */
void sim_verbs_place(struct sim_verbs *sim, const void *memory, uint64_t bytes);
/* Fails the test when an object was left, or a CQ overran. */
void sim_verbs_end(struct sim_verbs *sim);
/* A device with one ACTIVE Ethernet port, whose GID index 1 is 10.77.0.<n + 1>, RoCE v2. */
struct sim_device *sim_verbs_add(struct sim_verbs *sim, const char *name);
/* The `nth` call from now (1: the next) answers `error`, once. */
void sim_verbs_fail(struct sim_verbs *sim, enum sim_call call, uint32_t nth, int error);
/* The port's state, with its event; packets of a port that is down are held back. */
void sim_verbs_set_port(struct sim_verbs *sim, struct sim_device *device, enum neap_port_state status);
void sim_verbs_event(struct sim_device *device, struct neap_verbs_event event);
/* It fails: DEVICE_FATAL, and it cannot be opened until sim_verbs_regain. */
void sim_verbs_lose(struct sim_verbs *sim, struct sim_device *device);
/* The same without the event: its descriptor answers errors. */
void sim_verbs_vanish(struct sim_verbs *sim, struct sim_device *device);
void sim_verbs_regain(struct sim_device *device);
/* Takes every region off it, as the end of the process would. How many there were. */
int sim_verbs_force(struct sim_device *device);

#endif
