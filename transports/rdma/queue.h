/* The completion queue of one device: polled while there is work, armed before the reactor sleeps (design.md 3, 6). Machine: rdma_queue.
 *
 * One per device of the topology, for as long as the devices: it takes up work when its device has opened and lets go of it when the
 * device fails or closes, after the last endpoint. The CQ itself is made with the device (look.h).
 *
 * It never overruns: whoever posts takes an entry first (neap_rdma_queue_take), and each completion gives one back. What a destroyed
 * queue pair still owed is given back by its endpoint.
 *
 * Owner thread of the reactor only. */
#ifndef NEAP_TRANSPORTS_RDMA_QUEUE_H
#define NEAP_TRANSPORTS_RDMA_QUEUE_H

#include "transports/rdma/device.h"

struct neap_rdma_queue {
	struct neap_machine machine;
	struct neap_reactor *reactor;
	const struct neap_verbs *verbs;
	struct neap_rdma_device *device;
	bool usable;                  /* endpoints may be made: the device is open and its port works */
	uint32_t entries, owed;       /* of the CQ, and taken */
	uint32_t users;               /* endpoints on it: neap_rdma_queue_use */
	uint64_t bytes;               /* under way through the device, for the choice of paths */
	struct neap_poller poller;
	struct neap_watch watch;      /* of its channel */
	const struct neap_rdma_queue_listener *listener;
};

struct neap_rdma_queue_listener {
	/* Up to 64 completions at once, from a turn; each has been given back already. */
	void (*completed)(void *user, struct neap_rdma_queue *queue, const struct neap_verbs_completion *completions, uint32_t count);
	/* usable has changed. When not: let go of it now or later. */
	void (*changed)(void *user, struct neap_rdma_queue *queue);
	void *user;
};

/* The pool of a reactor's class is made by the first. `listener` must last. NEAP_ENOMEM, NEAP_ELIMIT. */
int neap_rdma_queue_begin(struct neap_rdma_queue *queue, struct neap_reactor *reactor, const struct neap_verbs *verbs,
                          struct neap_rdma_device *device, const struct neap_rdma_queue_listener *listener);
/* The device has changed (its listener's `changed`). */
void neap_rdma_queue_device_changed(struct neap_rdma_queue *queue);
/* When it is off its device: true. */
bool neap_rdma_queue_end(struct neap_rdma_queue *queue);

/* An endpoint on it: the device stays open until the last has gone. */
void neap_rdma_queue_use(struct neap_rdma_queue *queue);
void neap_rdma_queue_unuse(struct neap_rdma_queue *queue);

/* Takes up to `wanted` entries: how many. */
uint32_t neap_rdma_queue_take(struct neap_rdma_queue *queue, uint32_t wanted);
/* Without completions: sends that could not be posted, or that a destroyed queue pair owed. */
void neap_rdma_queue_give(struct neap_rdma_queue *queue, uint32_t count);

#endif
