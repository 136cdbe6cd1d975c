/* A tier on a disk that is not there: it ends what it was given when the test says so, or after a time, well or badly. Bytes are copied when
 * a job ends, so that memory which was given away too early shows. */
#ifndef UNIT_FAKE_DISK_H
#define UNIT_FAKE_DISK_H

#include "store/tier/handle.h"
#include <neap/reactor.h>

#define FAKE_JOBS 64u
#define FAKE_UNIT 4096u
#define FAKE_UNITS 16384u /* 64 MiB at most */

struct fake_job {
	struct neap_timer timer;
	struct fake_disk *disk;
	bool busy, write, waits; /* waits: for the test */
	struct neap_extent extent;
	unsigned char *memory;
	neap_tier_io_func *finished;
	void *user;
};

struct fake_disk {
	struct neap_reactor *reactor;
	uint64_t capacity, delay_ns;
	bool held;                    /* jobs wait until fake_disk_let_go */
	bool full, refuses, forgets;  /* no space; takes no job; one bit of what is read is wrong */
	int write_errno, read_errno;  /* of all jobs while it is set */
	uint32_t writes, reads, busy; /* begun; now */
	struct fake_job jobs[FAKE_JOBS];
	bool used[FAKE_UNITS];
	unsigned char *bytes;
};

extern const struct neap_tier_ops fake_disk_ops;

void fake_disk_begin(struct fake_disk *disk, struct neap_reactor *reactor, uint64_t capacity);
void fake_disk_end(struct fake_disk *disk); /* nothing may be left on it */
void fake_disk_let_go(struct fake_disk *disk); /* of all that it holds, and of what comes */

#endif
