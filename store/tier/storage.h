/* A tier on a disk: one file that has no name, so that nothing of it is left when the process ends, however it ends.
 *
 * Offsets of the file are given out like memory; pieces do not span buckets, and a bucket that becomes empty is punched out of
 * the file. Reads and writes go through io_uring where the kernel has it, otherwise through a few threads; they never take the
 * reactor's time, and their results come from a turn. Bytes pass through the caller's memory or through the tier's staging
 * memory, which is bounded and, being a memory tier of its own, can be registered with an engine. A read or write in the kernel
 * has no deadline: its memory could not be had back before it ends anyway. Owner thread only; not in simulation. */
#ifndef NEAP_STORE_TIER_STORAGE_H
#define NEAP_STORE_TIER_STORAGE_H

#include "store/tier/handle.h"

enum neap_storage_io {
	NEAP_STORAGE_AUTO,    /* io_uring, or threads when there is none */
	NEAP_STORAGE_RING,    /* io_uring or an error */
	NEAP_STORAGE_THREADS,
};

struct neap_storage_options {
	const char *directory;    /* absolute; made with mode 0700 when it is not there, its parent must be */
	uint64_t capacity;        /* bytes; the caller takes the smaller of capacity and total_size_limit */
	uint64_t bucket_bytes;    /* 1 MiB .. 1 TiB; rounded up to 4 KiB; the largest object; 0: 256 MiB */
	uint64_t staging_bytes;   /* 0: 128 MiB */
	uint32_t jobs_max;        /* reads and writes queued and under way, 1..65536; 0: 256 */
	uint32_t threads;         /* that wait for the disk, 1..64; 0: 2 */
	enum neap_storage_io io;
};

struct neap_storage;

struct neap_storage_stats {
	uint64_t capacity, requested_bytes, rounded_bytes;
	uint64_t bytes_read, bytes_written, reads, writes, failures, buckets_punched;
	uint32_t buckets_used, jobs;
	bool is_ring;
};

/* NEAP_EINVAL, NEAP_ENOMEM, NEAP_EBUSY (another process has the directory), NEAP_ENOTSUP, NEAP_ESOCKET (a call to the system),
 * with a sentence in `why`. The directory is on a local disk: opening it is done here and now. */
int neap_storage_create(struct neap_storage **storage_p, struct neap_reactor *reactor, const struct neap_storage_options *options,
                        char *why, size_t why_size);
/* What is under way ends first; then `closed` is called from a turn and the storage is gone. NEAP_EBUSY while space or staging
 * memory is allocated; NEAP_ECLOSED the second time. */
int neap_storage_close(struct neap_storage *storage, void (*closed)(void *user), void *user);

/* Space: numbers of neap/store_error.h. Freed while a job still uses it, the space could be given to another: end the job first. */
int neap_storage_allocate(struct neap_storage *storage, uint64_t bytes, struct neap_extent *extent_p);
void neap_storage_free(struct neap_storage *storage, const struct neap_extent *extent);
extern const struct neap_tier_ops neap_storage_tier_ops; /* backend: struct neap_storage */

/* Memory to read into and write from. Allocate, free and register it like any memory tier. */
struct neap_dram *neap_storage_staging(struct neap_storage *storage);

/* FILE_READ_FAIL, FILE_WRITE_FAIL with the system's errno (ENODATA: never written), or 0. The memory is the caller's again. */
typedef neap_tier_io_func neap_storage_func;
/* Whole or in part, from the piece's `skip` on. TASK_PENDING_LIMIT_EXCEEDED, INVALID_PARAMS, SHUTTING_DOWN; then `finished` is
 * not called. */
int neap_storage_read(struct neap_storage *storage, const struct neap_extent *extent, uint64_t skip, void *memory, uint64_t length,
                      neap_storage_func *finished, void *user);
int neap_storage_write(struct neap_storage *storage, const struct neap_extent *extent, uint64_t skip, const void *memory,
                       uint64_t length, neap_storage_func *finished, void *user);

void neap_storage_stats(const struct neap_storage *storage, struct neap_storage_stats *stats_p);

#endif
