/* The RDMA devices of an engine: opened, watched, lost, found again (te spec 5.1, 5.7; design.md 6). Machine: rdma_device.
 *
 * All that waits runs on the helper; the reactor gets the answers, and the devices' asynchronous events from their descriptors. A device
 * that cannot be used says why in one sentence, and harms nobody: the others work, and an engine without any works over TCP. One that
 * failed, or could not be opened, is tried again every `retry_ns`.
 *
 * The topology is kept right: a device that cannot be used is lost there (neap_topology_lose), one that came back regained.
 *
 * Owner thread of the reactor only. */
#ifndef NEAP_TRANSPORTS_RDMA_DEVICE_H
#define NEAP_TRANSPORTS_RDMA_DEVICE_H

#include "reactor/helper.h"
#include "transports/rdma/look.h"

#define NEAP_RDMA_RETRY_NS UINT64_C(5000000000)
#define NEAP_RDMA_SLOW_NS UINT64_C(10000000000)

struct neap_rdma_options {
	struct neap_rdma_wants wants;
	uint64_t retry_ns; /* 0: NEAP_RDMA_RETRY_NS */
	uint64_t slow_ns;  /* after which a call to the kernel is reported as slow, again and again; 0: NEAP_RDMA_SLOW_NS */
	bool quiet;        /* why a device is not usable is information and no warning: nobody insists on it */
	bool owner_closes; /* a reactor that stops does not close them: whoever stands on them does it in its order */
};

struct neap_rdma_devices;

struct neap_rdma_device {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_rdma_devices *devices;
	uint32_t index;  /* in the topology */
	const char *name; /* the topology's */
	bool usable;      /* what stands on it may work */
	bool settled;     /* it was opened, or could not be: `usable` and `why` mean something */
	bool letting_go;  /* it failed or ends: whoever stands on it must let go */
	uint32_t users;   /* who stand on it: neap_rdma_device_use */
	struct neap_rdma_handle handle;
	struct neap_rdma_view view;
	char why[NEAP_RDMA_WHY_SIZE]; /* why it is not usable */
	uint32_t refused_count;       /* addresses that did not do, since its table last changed */
	uint8_t refused[NEAP_RDMA_GID_TRIES][16];
	bool gids_spent;              /* no other did either: the best one stays */

	/* between the reactor and the helper; a job's fields are the helper's while it is under way */
	struct neap_watch watch;
	uint32_t changes, changes_asked; /* events, and how many there were when the last look was asked for */
	struct neap_helper_job look_job, shut_job;
	struct neap_rdma_handle job_handle;
	struct neap_rdma_wants job_wants;
	struct neap_rdma_view job_view;
	char job_why[NEAP_RDMA_WHY_SIZE];
	int job_error, shut_error;
};

struct neap_rdma_listener {
	/* usable, letting_go, view or settled of the device has changed. From a turn. When letting_go: let go of it, now or later. */
	void (*changed)(void *user, struct neap_rdma_device *device);
	/* All are closed and the object is gone at the end of this turn. */
	void (*closed)(void *user);
	void *user;
};

/* How many that would be; only of a topology that was not given to neap_rdma_devices_open. */
uint32_t neap_rdma_devices_wanted(const struct neap_topology *topology);
/* Begins to open the devices of `topology` that take part in it, or would if a port of theirs were ACTIVE. `verbs`, `helper` (which must
 * have room for two jobs of each) and `topology` must last until `closed`. 0 also when there is none. NEAP_ENOMEM, NEAP_ELIMIT. */
int neap_rdma_devices_open(struct neap_reactor *reactor, const struct neap_verbs *verbs, struct neap_helper *helper,
                           struct neap_topology *topology, const struct neap_rdma_options *options,
                           const struct neap_rdma_listener *listener, struct neap_rdma_devices **devices_p);
/* Ends in `closed`, from a turn. Calling it again is harmless until then. */
void neap_rdma_devices_close(struct neap_rdma_devices *devices);

uint32_t neap_rdma_devices_count(const struct neap_rdma_devices *devices);
struct neap_rdma_device *neap_rdma_devices_at(struct neap_rdma_devices *devices, uint32_t index);
/* NULL: there is none of that name. */
struct neap_rdma_device *neap_rdma_devices_find(struct neap_rdma_devices *devices, const char *name);

/* Queue pairs cannot be connected with its present address, with which none ever was: another one of its port is looked for, and when it
 * has been found `changed` is told. Nothing happens when the user has fixed the address, or the others were tried too. */
void neap_rdma_device_next_gid(struct neap_rdma_device *device);

/* Around whatever is made on a device's context or protection domain: it is not closed before the last has let go. Not while
 * letting_go. */
void neap_rdma_device_use(struct neap_rdma_device *device);
void neap_rdma_device_unuse(struct neap_rdma_device *device);

#endif
