/* What a device is good for, asked of verbs: opened, measured, its port and address chosen. These functions wait, so they run on a
 * helper thread (device.c) or in a program that asks for nothing else (neap-client topology). Each failure is one sentence that names the
 * device and says what to do. */
#ifndef NEAP_TRANSPORTS_RDMA_LOOK_H
#define NEAP_TRANSPORTS_RDMA_LOOK_H

#include "transports/rdma/verbs.h"

#define NEAP_RDMA_WHY_SIZE 256u
#define NEAP_RDMA_CQ_ENTRIES 4096u
#define NEAP_RDMA_GID_TRIES 2u /* other addresses that are tried after the best one, as Mooncake does (te spec 3.5) */

/* What is asked for. Zeroes: the lowest ACTIVE port, its best address. */
struct neap_rdma_wants {
	uint32_t port; /* MC_IB_PORT; 0: any */
	bool gid_fixed;
	uint32_t gid_index; /* MC_GID_INDEX, when gid_fixed */
	/* Addresses that did not do, passed over while there are others; not when gid_fixed. */
	uint32_t refused_count;
	uint8_t refused[NEAP_RDMA_GID_TRIES][16];
	uint32_t cq_entries; /* MC_MAX_CQE_PER_CTX; 0: NEAP_RDMA_CQ_ENTRIES; the device's limit also counts */
};

/* An open device, with the one completion queue of all that is sent through it. */
struct neap_rdma_handle {
	struct neap_verbs_context *context;
	struct neap_verbs_pd *pd;
	struct neap_verbs_channel *channel;
	struct neap_verbs_cq *cq;
	uint32_t cq_entries;
	struct neap_verbs_device_limits limits;
};

/* Its port and address, as they were when it was looked at. */
struct neap_rdma_view {
	uint32_t port_number;
	struct neap_verbs_port port;
	struct neap_gid_entry gid;
};

/* NEAP_ENODEV: verbs do not have it; NEAP_ECONTEXT: it cannot be opened, or has not what a transport needs. Nothing is open then. */
int neap_rdma_open(const struct neap_verbs *verbs, const char *name, uint32_t cq_entries, struct neap_rdma_handle *handle, char *why,
                   size_t why_size);
/* NEAP_ENODEV: it has no port or address to use, now; NEAP_ECONTEXT: it does not answer. */
int neap_rdma_look(const struct neap_verbs *verbs, const struct neap_rdma_handle *handle, const char *name,
                   const struct neap_rdma_wants *wants, struct neap_rdma_view *view, char *why, size_t why_size);
/* Whatever its answer, the handle is empty. NEAP_EBUSY: something still stands on it, which stays until the process ends. */
int neap_rdma_shut(const struct neap_verbs *verbs, struct neap_rdma_handle *handle);

#endif
