/* The two ways to wait for a disk. Shared by the files of the storage tier, by nobody else. */
#ifndef NEAP_STORE_TIER_STORAGE_IO_H
#define NEAP_STORE_TIER_STORAGE_IO_H

#include "store/tier/storage.h"

/* Moved at once: what one read may keep a thread and the page cache busy with. */
#define NEAP_STORAGE_CHUNK (UINT64_C(4) << 20)

enum neap_job_kind { NEAP_JOB_READ, NEAP_JOB_WRITE, NEAP_JOB_PUNCH, NEAP_JOB_CLOSE };

struct neap_job {
	struct neap_job *next;
	struct neap_storage *storage;
	enum neap_job_kind kind;
	int fd;
	uint64_t offset, length, done;
	unsigned char *memory;
	int system_errno;
	neap_storage_func *finished; /* NULL: one of our own */
	void *user;
	uint32_t bucket;
};

struct neap_storage_way {
	/* Takes the job; it ends with neap_job_finish from a turn. Cannot fail: there is room for jobs_max. */
	void (*submit)(void *way, struct neap_job *job);
	/* No job is under way. */
	void (*end)(void *way);
};

/* NEAP_ENOTSUP: not in this kernel or build. *way_p is what the functions get. */
int neap_storage_ring_begin(struct neap_reactor *reactor, uint32_t jobs_max, uint32_t threads, void **way_p,
                            const struct neap_storage_way **ops_p, char *why, size_t why_size);
int neap_storage_threads_begin(struct neap_reactor *reactor, uint32_t jobs_max, uint32_t threads, void **way_p,
                               const struct neap_storage_way **ops_p, char *why, size_t why_size);

/* storage.c: from a turn, system_errno is filled in. */
void neap_job_finish(struct neap_job *job);

#endif
