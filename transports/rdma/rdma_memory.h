/* Memory that RDMA devices reach (te spec 5.9; design.md 6, 7). Machine: rdma_region.
 *
 * A range is registered on every device that is open (its port may be down: it may come up), in pieces no longer than the smallest of
 * their limits allows, cut at the same places on all of them. Either all devices have it, or none, and the reason names the device: what
 * was registered before one refused is taken back before the caller is told. A device that comes back later gets its pieces then; one
 * that fails loses them. When `released` says 0 no device reaches the memory any more: deregistration is the fence (fences.md 1).
 *
 * A range in slabs is cut in pieces of one size, and each of them can get a new key while the others stay as they are: what reached the
 * memory by the former key does not any more.
 *
 * All of it runs on the helper, piece by piece. Owner thread of the reactor only. */
#ifndef NEAP_TRANSPORTS_RDMA_MEMORY_H
#define NEAP_TRANSPORTS_RDMA_MEMORY_H

#include "transports/rdma/device.h"

#define NEAP_RDMA_PIECES_MAX 4096u /* of one range */
#define NEAP_RDMA_RELEASE_TRIES 10u

struct neap_rdma_memory;

struct neap_rdma_memory_options {
	uint32_t regions_max; /* the helper must have room for as many jobs, beside those of the devices */
	uint64_t piece_max_bytes; /* MC_MAX_MR_SIZE; 0: what the devices allow */
	bool strict_ordering;     /* MC_IB_PCI_RELAXED_ORDERING=0: do not ask for relaxed ordering */
	uint64_t slow_ns;  /* as of devices; 0: NEAP_RDMA_SLOW_NS */
	uint64_t retry_ns; /* between tries to deregister; 0: 1 s */
	/* A range of that access has come on devices or is off some, after its `done`; not one in slabs, whose keys are not published. From a
	 * turn. NULL: nobody asks. */
	void (*keys_changed)(void *user, unsigned access);
	void *user;
};

/* NEAP_OK: it is on all devices that are open. NEAP_ECONTEXT: a device refused, or failed and did not let go; `why` names it and the limit
 * to look at. NEAP_ECANCELED: it was released meanwhile. In both cases no device reaches it. */
typedef void neap_rdma_registered(void *user, int error, const char *why);
/* NEAP_OK: no device reaches it. NEAP_EBUSY: a device did not let go of it in NEAP_RDMA_RELEASE_TRIES tries; the memory must not serve
 * anything else before the process ends. */
typedef void neap_rdma_released(void *user, int error);

/* `devices` must last as long as this object. NEAP_ENOMEM, NEAP_ELIMIT. */
int neap_rdma_memory_create(struct neap_reactor *reactor, const struct neap_verbs *verbs, struct neap_helper *helper,
                            struct neap_rdma_devices *devices, const struct neap_rdma_memory_options *options,
                            struct neap_rdma_memory **memory_p);
/* Releases all that is registered. `closed` is called from a turn, at whose end the object is gone. Once. */
void neap_rdma_memory_close(struct neap_rdma_memory *memory, void (*closed)(void *user), void *user);

/* `access`: NEAP_VERBS_LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE. Ends in `done`, from a turn. NEAP_EINVAL (an empty range), NEAP_ENODEV (no
 * device is open), NEAP_ELIMIT (regions_max, or more than NEAP_RDMA_PIECES_MAX pieces), NEAP_ENOMEM, NEAP_ECLOSED. */
int neap_rdma_memory_register(struct neap_rdma_memory *memory, void *address, uint64_t length, unsigned access,
                              neap_rdma_registered *done, void *user, uint64_t *id_p);
/* The same in slabs of `slab_bytes` (a power of two), counted from `address`: of half of that and so on where the devices' limits are
 * smaller, and of twice that and so on where it would be more than NEAP_RDMA_PIECES_MAX. */
int neap_rdma_memory_register_slabs(struct neap_rdma_memory *memory, void *address, uint64_t length, unsigned access, uint64_t slab_bytes,
                                    neap_rdma_registered *done, void *user, uint64_t *id_p);
/* At any time after register, also before its `done`. Ends in `released`, from a turn. NEAP_ESTALE: it is gone. Releasing what is being
 * released is harmless, and only the first call is told. */
int neap_rdma_memory_release(struct neap_rdma_memory *memory, uint64_t id, neap_rdma_released *released, void *user);

/* The piece that holds `address`, on a device: its keys, and where it ends. NEAP_ENOTREG (outside the range), NEAP_ENODEV (the device does
 * not have it, now), NEAP_ESTALE. */
int neap_rdma_memory_keys(const struct neap_rdma_memory *memory, uint64_t id, const struct neap_rdma_device *device, const void *address,
                          struct neap_verbs_keys *keys_p, uint64_t *end_p);

/* Of each piece but the last, which may be shorter. 0: it is gone. */
uint64_t neap_rdma_memory_piece_bytes(const struct neap_rdma_memory *memory, uint64_t id);

/* A new key for one piece. Embedded in the object of who wants it, and his again when `done` is called. */
struct neap_rdma_renewal {
	struct neap_rdma_renewal *next;
	uint32_t piece;
	/* From a turn, once. NEAP_OK: every device has let go of the piece as it was: by its former keys nothing reaches the memory. The new
	 * keys may come later. NEAP_EBUSY: a device did not, in NEAP_RDMA_RELEASE_TRIES tries or ever before. */
	void (*done)(struct neap_rdma_renewal *renewal, int error);
};
/* From here on the piece has no keys until it has new ones. The others keep theirs. Sends of ours that use the piece fail: whoever asks
 * sees to it that there are none. NEAP_ESTALE, NEAP_EINVAL (there is no such piece). */
int neap_rdma_memory_renew(struct neap_rdma_memory *memory, uint64_t id, uint32_t piece, struct neap_rdma_renewal *renewal);

/* A device has come or gone: what the devices' listener passes on. */
void neap_rdma_memory_devices_changed(struct neap_rdma_memory *memory);

uint32_t neap_rdma_memory_count(const struct neap_rdma_memory *memory); /* not GONE */

#endif
