/* io_uring. Each operation goes to the kernel's own worker threads: otherwise a read from the page cache would be copied in the
 * reactor's time. What a turn submits goes to the kernel in one call. */
#include "store/tier/storage_io.h"
#include <stdio.h>

#ifdef HAVE_LIBURING
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <string.h>

#define ENTRIES_MAX 256u

struct ring {
	struct neap_watch watch; /* first: `arrived` finds the ring by it */
	struct neap_ready flush;
	struct neap_reactor *reactor;
	struct io_uring uring;
	struct neap_job *queued, **queued_tail;
	uint32_t in_kernel, entries;
};

static struct ring *ring_of(struct neap_ready *ready)
{
	return (struct ring *)(void *)((char *)ready - offsetof(struct ring, flush));
}

static void append(struct ring *ring, struct neap_job *job)
{
	job->next = NULL;
	*ring->queued_tail = job;
	ring->queued_tail = &job->next;
	neap_ready_again(ring->reactor, &ring->flush);
}

static void prepare(struct io_uring_sqe *sqe, struct neap_job *job)
{
	uint64_t left = job->length - job->done, offset = job->offset + job->done;
	unsigned length = (unsigned)(left > NEAP_STORAGE_CHUNK ? NEAP_STORAGE_CHUNK : left);
	switch (job->kind) {
	case NEAP_JOB_READ: io_uring_prep_read(sqe, job->fd, job->memory + job->done, length, offset); break;
	case NEAP_JOB_WRITE: io_uring_prep_write(sqe, job->fd, job->memory + job->done, length, offset); break;
	case NEAP_JOB_PUNCH:
		io_uring_prep_fallocate(sqe, job->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)left);
		break;
	case NEAP_JOB_CLOSE: io_uring_prep_close(sqe, job->fd); break;
	}
	io_uring_sqe_set_data(sqe, job);
	io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
}

/* Never more than `entries` in the kernel, so that its completions fit as well. */
static void flush(struct neap_ready *ready)
{
	struct ring *ring = ring_of(ready);
	while (ring->queued && ring->in_kernel < ring->entries) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
		if (!sqe)
			break;
		struct neap_job *job = ring->queued;
		ring->queued = job->next;
		if (!ring->queued)
			ring->queued_tail = &ring->queued;
		prepare(sqe, job);
		ring->in_kernel++;
	}
	if (io_uring_sq_ready(&ring->uring) == 0)
		return;
	neap_count_system_call(ring->reactor);
	(void)io_uring_submit(&ring->uring);
	if (io_uring_sq_ready(&ring->uring) > 0)
		neap_ready_again(ring->reactor, &ring->flush); /* the kernel is short of memory: again */
}

static void completed(struct ring *ring, struct neap_job *job, int result)
{
	ring->in_kernel--;
	if ((result == -EINTR && job->kind != NEAP_JOB_CLOSE) || result == -EAGAIN) {
		append(ring, job);
		return;
	}
	if (result < 0)
		job->system_errno = -result;
	else if (job->kind == NEAP_JOB_PUNCH || job->kind == NEAP_JOB_CLOSE)
		job->done = job->length;
	else if (result == 0)
		job->system_errno = ENODATA;
	else
		job->done += (uint64_t)result;
	if (job->done < job->length && !job->system_errno)
		append(ring, job);
	else
		neap_job_finish(job);
}

static void arrived(struct neap_watch *watch, unsigned ready)
{
	struct ring *ring = (struct ring *)(void *)watch;
	struct io_uring_cqe *cqe;
	(void)ready;
	for (uint32_t i = 0; i < ring->entries && io_uring_peek_cqe(&ring->uring, &cqe) == 0; i++) {
		struct neap_job *job = io_uring_cqe_get_data(cqe);
		int result = cqe->res;
		io_uring_cqe_seen(&ring->uring, cqe);
		completed(ring, job, result);
	}
	if (ring->queued)
		neap_ready_again(ring->reactor, &ring->flush);
}

static void submit(void *way, struct neap_job *job)
{
	append(way, job);
}

static void end(void *way)
{
	struct ring *ring = way;
	neap_ready_cancel(ring->reactor, &ring->flush);
	neap_watch_stop(ring->reactor, &ring->watch);
	io_uring_queue_exit(&ring->uring);
	neap_release(ring->reactor, ring, sizeof *ring);
}

static const struct neap_storage_way ring_ops = {submit, end};

static bool has_operations(struct io_uring *uring)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(uring);
	bool has = probe && io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_WRITE) &&
	           io_uring_opcode_supported(probe, IORING_OP_FALLOCATE) && io_uring_opcode_supported(probe, IORING_OP_CLOSE);
	if (probe)
		io_uring_free_probe(probe);
	return has;
}

int neap_storage_ring_begin(struct neap_reactor *reactor, uint32_t jobs_max, uint32_t threads, void **way_p,
                            const struct neap_storage_way **ops_p, char *why, size_t why_size)
{
	unsigned workers[2] = {threads, threads};
	struct ring *ring = neap_allocate(reactor, sizeof *ring);
	if (!ring) {
		snprintf(why, why_size, "out of memory");
		return NEAP_ENOMEM;
	}
	ring->reactor = reactor;
	ring->queued_tail = &ring->queued;
	ring->flush.run = flush;
	ring->entries = jobs_max < ENTRIES_MAX ? jobs_max : ENTRIES_MAX;
	int failed = io_uring_queue_init(ring->entries, &ring->uring, 0);
	if (failed) {
		snprintf(why, why_size, "io_uring: %s (sysctl kernel.io_uring_disabled?)", strerror(-failed));
		neap_release(reactor, ring, sizeof *ring);
		return NEAP_ENOTSUP;
	}
	(void)io_uring_register_iowq_max_workers(&ring->uring, workers); /* older kernels have limits of their own */
	int error = has_operations(&ring->uring) ? NEAP_OK : NEAP_ENOTSUP;
	if (error)
		snprintf(why, why_size, "io_uring: this kernel's cannot read, write, punch and close files");
	else
		error = neap_watch_start(reactor, &ring->watch, ring->uring.ring_fd, NEAP_READABLE, arrived);
	if (error) {
		io_uring_queue_exit(&ring->uring);
		neap_release(reactor, ring, sizeof *ring);
		return error;
	}
	*way_p = ring;
	*ops_p = &ring_ops;
	return NEAP_OK;
}

#else

int neap_storage_ring_begin(struct neap_reactor *reactor, uint32_t jobs_max, uint32_t threads, void **way_p,
                            const struct neap_storage_way **ops_p, char *why, size_t why_size)
{
	(void)reactor, (void)jobs_max, (void)threads, (void)way_p, (void)ops_p;
	snprintf(why, why_size, "io_uring: this build has no liburing");
	return NEAP_ENOTSUP;
}

#endif
