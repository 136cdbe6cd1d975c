/* The RDMA transport from inside: shared by rdma.c, rdma_lanes.c, rdma_regions.c and rdma_publish.c, by nobody else. */
#ifndef NEAP_TRANSPORTS_RDMA_RDMA_INSIDE_H
#define NEAP_TRANSPORTS_RDMA_RDMA_INSIDE_H

#include "reactor/pool.h"
#include "transports/rdma/endpoint.h"
#include "transports/rdma/initiator.h"
#include "transports/rdma/rdma.h"

/* What is known here of each region of the registry, by its slot (rdma_regions.c). */
struct neap_rdma_kept {
	struct neap_rdma *rdma;
	void *address;
	uint64_t length;
	uint64_t memory;            /* id of neap_rdma_memory, when has_memory */
	enum neap_access access;
	bool wanted;                /* registered at the registry, and not unregistered since */
	bool has_memory;            /* being registered, registered, or being taken back */
	bool on_devices;            /* registered: keys can be had */
	bool pending;               /* OPEN, and not known yet whether devices take it */
	bool refused;               /* devices did not take it; tried again when one comes back */
	bool slabs_come, has_slabs, slabs_on_devices; /* the same of its slabs, when it is GRANT_ONLY */
	uint64_t slabs;             /* id of neap_rdma_memory: the same range once more, with remote rights, when has_slabs */
	uint64_t slab_bytes;
	uint32_t slab_count;
	struct neap_rdma_slab **slab_at; /* those that somebody has keys of; NULL: nobody (rdma_grants.c) */
	uint8_t leaving;            /* of the two, how many are being taken back */
	bool stays;                 /* a device did not let go of one */
	int error;                  /* of `refused` */
	char *why;                  /* of that; NULL: out of memory */
	struct neap_settle_call *calls; /* that wait */
};

/* What the document that is being made has got from us, to be taken out again (rdma_publish.c). */
struct neap_rdma_publishing {
	struct neap_device_desc devices[NEAP_DEVICES_MAX];
	struct neap_buffer_desc *buffers;
	uint32_t *keys; /* of each buffer: remote ones, then local ones */
	uint32_t buffers_max, keys_max;
};

struct neap_rdma {
	struct neap_transport base; /* first */
	struct neap_transport *tcp; /* inside */
	const struct neap_engine_core_view *view;
	const struct neap_rdma_engine_options *options;
	struct neap_reactor *reactor;
	bool insists; /* protocol "rdma": it is a warning when there is no device to be used */

	const struct neap_verbs *verbs;
	struct neap_topology *topology;
	struct neap_helper *helper;
	bool owns_topology, owns_helper;
	struct neap_rdma_devices *devices; /* NULL: closed, or not made yet */
	uint32_t device_count;
	uint32_t usable;                /* devices, as they are now */
	uint64_t open;                  /* devices that memory can come on, by bit */
	bool settled;                   /* each device was opened, or could not be */
	bool said_none;                 /* that no device can be used */

	/* rdma_lanes.c */
	char server[NEAP_NAME_MAX];     /* the part of our NIC paths before '@' */
	char server_name[NEAP_NAME_MAX]; /* rdma_server_name of the descriptor; "": none */
	struct neap_rdma_queue *queues; /* of each device; NULL: none */
	uint32_t queues_begun;
	void (*lanes_closed)(struct neap_rdma *rdma);
	struct neap_rdma_endpoints *endpoints; /* NULL: none, or closed */
	struct neap_rdma_initiator *initiator; /* NULL: none; RDMA is that of a target alone then */

	/* rdma_regions.c */
	struct neap_rdma_memory *memory; /* NULL: closed */
	struct neap_rdma_kept *kept;     /* regions_max */
	struct neap_rdma_scratch scratch;
	struct neap_timer scratch_again; /* after a refusal */
	struct neap_ready sweep;         /* looks for regions that are not on devices and could be */
	uint32_t sweep_next, waiting;    /* waiting: wanted, and without memory there, or without slabs */
	uint32_t pending;                /* regions */
	bool plain;                      /* peers read a document as TCP has it */
	bool said_refused;               /* until the next one is taken */

	/* rdma_grants.c */
	struct neap_reactor_class *slab_class;
	struct neap_pool slabs, recalls;
	bool fenced_all; /* no device is left, so nothing needs a fence of its own */

	struct neap_rdma_publishing publishing;

	bool ending;          /* nothing new begins: the transport closes, or could not be made; TCP may go on */
	bool closing;
	uint32_t open_halves; /* while closing: ours and TCP's */
};

/* --- regions */

/* Ranges on devices: regions, twice when they have slabs, and what READs that only ask go to. */
uint32_t neap_rdma_ranges_max(const struct neap_engine_options *options);

/* Devices are there, and none of them has changed yet. NEAP_ENOMEM, NEAP_ELIMIT. */
int neap_rdma_regions_begin(struct neap_rdma *rdma);
void neap_rdma_regions_free(struct neap_rdma *rdma);
/* A device came, went, or is known to be unusable. `more`: one is open that was not, or all are known now. */
void neap_rdma_regions_devices_changed(struct neap_rdma *rdma, bool more);
/* After `usable` has changed: what kind of document peers read. */
void neap_rdma_regions_look(struct neap_rdma *rdma);
/* The end begins: no region comes on any more, and those who wait for that are told. */
void neap_rdma_regions_stop(struct neap_rdma *rdma);
void neap_rdma_regions_settle(struct neap_rdma *rdma, uint32_t slot, struct neap_settle_call *call);

/* All of the local range is in one region, and a device that can be used has that. */
bool neap_rdma_is_on_devices(const struct neap_rdma *rdma, const void *address, uint64_t length);
/* For the initiator (struct neap_rdma_ground): the region on devices that holds the address. */
bool neap_rdma_find_local(void *rdma, uint64_t address, struct neap_rdma_local *local_p);

/* For the initiator: brings the scratch bytes on devices. */
void neap_rdma_want_scratch(void *rdma);

/* --- grants (rdma_grants.c) */

int neap_rdma_grants_begin(struct neap_rdma *rdma);
void neap_rdma_grants_free(struct neap_rdma *rdma);
/* struct neap_registry_keeper */
uint64_t neap_rdma_lend(void *rdma, uint32_t slot, uint64_t address, uint64_t length, struct neap_grant_token *token_p);
void neap_rdma_recall(void *rdma, uint64_t lent, uint32_t grant_slot, const uint8_t peer_instance[16], bool fence);
/* The slabs of a region are on devices; they are off (or a device kept one of them). NEAP_ENOMEM. */
int neap_rdma_slabs_come(struct neap_rdma_kept *kept);
void neap_rdma_slabs_go(struct neap_rdma_kept *kept, bool off);
/* The devices are gone: whatever waits for a fence has it. */
void neap_rdma_grants_fenced_all(struct neap_rdma *rdma);

/* --- what peers read */

/* Of the engine's document, at most: all but buffers, and each buffer beside its numbers. */
void neap_rdma_publish_bytes(const struct neap_rdma *rdma, uint64_t *fixed_p, uint64_t *each_p, uint64_t *piece_bytes_p);
int neap_rdma_publish(struct neap_rdma *rdma, struct neap_descriptor *descriptor, bool buffers, char *why, size_t why_size);
void neap_rdma_unpublish(struct neap_rdma *rdma, struct neap_descriptor *descriptor);

/* --- what users are told (rdma_info.c) */

int neap_rdma_device_info(const struct neap_transport *transport, uint32_t index, struct neap_device_info *info_p);
void neap_rdma_fill_stats(const struct neap_transport *transport, struct neap_rdma_stats *stats_p);

/* --- lanes: queues, endpoints, the initiator (rdma_lanes.c) */

/* Devices are there, and none of them has changed yet. NEAP_ENOMEM, NEAP_ELIMIT. */
int neap_rdma_lanes_begin(struct neap_rdma *rdma);
/* The devices are gone, or were never opened. */
void neap_rdma_lanes_free(struct neap_rdma *rdma);
void neap_rdma_lanes_device_changed(struct neap_rdma *rdma, struct neap_rdma_device *device);
/* The initiator, then the endpoints; `closed` from a turn. */
void neap_rdma_lanes_close(struct neap_rdma *rdma, void (*closed)(struct neap_rdma *rdma));
int neap_rdma_lanes_asked(struct neap_rdma *rdma, uint64_t ticket, const struct neap_connection_message *request,
                          struct neap_connection_message *reply);

#endif
