/* The completion queue of one device: polled once a turn, armed before the reactor sleeps (design.md 3, 6). Machine: rdma_queue.
 *
 * One for each device, for as long as the devices: it takes up work when its device has opened, and lets go of it when the device fails
 * or closes, after the last endpoint. The CQ itself is made and ended with the device (look.h).
 *
 * It never overruns: whoever posts takes an entry first, and who recognises a completion as his gives it back. What nobody recognises
 * belonged to a queue pair that was destroyed before it was polled; its endpoint has given back the entry.
 *
 * Owner thread of the reactor only. */
#ifndef NEAP_TRANSPORTS_RDMA_QUEUE_H
#define NEAP_TRANSPORTS_RDMA_QUEUE_H

#include "transports/rdma/device.h"

struct neap_rdma_queue;

struct neap_rdma_queue_listener {
	/* Completions, from a turn, in the order in which the device reported them. */
	void (*completed)(void *user, struct neap_rdma_queue *queue, const struct neap_verbs_completion *completions, uint32_t count);
	/* `usable` has changed, or the device has another port or address than before (view_changes). When not usable: whoever is on it
	 * begins to leave. From a turn, never from an action. */
	void (*changed)(void *user, struct neap_rdma_queue *queue);
	void *user;
};

struct neap_rdma_queue {
	struct neap_machine machine;
	struct neap_reactor *reactor;
	const struct neap_verbs *verbs;
	struct neap_rdma_device *device;
	struct neap_rdma_queue_listener listener;
	bool attached;          /* to its open device */
	bool usable;            /* endpoints may be made and used: the device is open and its port works */
	uint32_t entries, owed; /* of the CQ, and taken */
	uint32_t users;         /* endpoints on it */
	uint32_t view_changes;  /* raised when port or address are other ones: what was connected before cannot go on */
	struct neap_gid_entry gid;
	bool gid_proven; /* queue pairs were connected with it */
	uint32_t port_number;
	struct neap_poller poller;
	struct neap_watch watch; /* of its channel */
	struct neap_ready news;  /* the listener's `changed` is owed */
};

/* NEAP_ENOMEM, NEAP_ELIMIT. */
int neap_rdma_queue_begin(struct neap_rdma_queue *queue, struct neap_reactor *reactor, const struct neap_verbs *verbs,
                          struct neap_rdma_device *device, const struct neap_rdma_queue_listener *listener);
/* The device has changed: what its listener is told, passed on. */
void neap_rdma_queue_device_changed(struct neap_rdma_queue *queue);
/* Its device is GONE: the object's memory may go. */
void neap_rdma_queue_end(struct neap_rdma_queue *queue);

/* An endpoint is on it: the device stays open until the last has gone. use: only while usable. */
void neap_rdma_queue_use(struct neap_rdma_queue *queue);
void neap_rdma_queue_unuse(struct neap_rdma_queue *queue);

/* Takes up to `wanted` entries of the CQ: how many. */
uint32_t neap_rdma_queue_take(struct neap_rdma_queue *queue, uint32_t wanted);
void neap_rdma_queue_give(struct neap_rdma_queue *queue, uint32_t count);

#endif
