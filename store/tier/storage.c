#include "store/tier/storage.h"
#include "store/tier/storage_io.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <neap/store_error.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define UNIT 4096u /* pages of the file: no two pieces share one */
#define PIECES_MIN 1024u
#define PIECES_MAX (4u << 20)
#define BUSY_NS UINT64_C(10000000)
#define SPARE_BUCKETS 3u
#define NO_BUCKET UINT32_MAX
#define DATA_NAME "neap.data"
#define LOCK_NAME "neap.lock"

struct neap_storage {
	struct neap_dependent dependent; /* first */
	struct neap_ready ending;
	struct neap_timer again;
	struct neap_reactor *reactor;
	struct neap_storage_options options; /* with defaults filled in */
	int lock_fd, data_fd;
	struct neap_extents extents;
	struct neap_dram staging;
	struct neap_pool jobs;
	const struct neap_storage_way *ops;
	void *way;
	uint32_t *next_bucket;  /* of the lists below; by bucket */
	uint32_t dirty, clean;  /* free buckets that were used: still in the file, punched out of it */
	uint32_t buckets, fresh, buckets_used;
	bool punching;
	struct neap_storage_stats stats;
	bool closing;
	void (*closed)(void *user);
	void *closed_user;
};

/* --- the directory ---------------------------------------------------------------------------------------------------- */

static int system_error(char *why, size_t why_size, const char *what, const char *directory)
{
	int saved = errno;
	snprintf(why, why_size, "storage_filepath %s: %s: %s", directory, what, strerror(saved));
	return NEAP_ESOCKET;
}

/* The lock file stays: whoever removes one that another process has just opened breaks the lock. */
static int lock_directory(struct neap_storage *storage, int directory_fd, char *why, size_t why_size)
{
	const char *directory = storage->options.directory;
	storage->lock_fd = openat(directory_fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (storage->lock_fd < 0)
		return system_error(why, why_size, "open " LOCK_NAME, directory);
	if (flock(storage->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return NEAP_OK;
	if (errno != EWOULDBLOCK)
		return system_error(why, why_size, "lock " LOCK_NAME, directory);
	snprintf(why, why_size, "storage_filepath %s: another process uses it; give each its own", directory);
	return NEAP_EBUSY;
}

/* Without a name from the start, or where the file system cannot do that, without one right after. */
static int open_data(struct neap_storage *storage, int directory_fd, char *why, size_t why_size)
{
	storage->data_fd = openat(directory_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (storage->data_fd >= 0)
		return NEAP_OK;
	(void)unlinkat(directory_fd, DATA_NAME, 0); /* of a process that was killed between the two */
	storage->data_fd = openat(directory_fd, DATA_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (storage->data_fd < 0)
		return system_error(why, why_size, "create " DATA_NAME, storage->options.directory);
	(void)unlinkat(directory_fd, DATA_NAME, 0);
	return NEAP_OK;
}

static int open_directory(struct neap_storage *storage, char *why, size_t why_size)
{
	const char *directory = storage->options.directory;
	if (mkdir(directory, 0700) && errno != EEXIST)
		return system_error(why, why_size, "make the directory", directory);
	int directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory_fd < 0)
		return system_error(why, why_size, "open the directory", directory);
	int error = lock_directory(storage, directory_fd, why, why_size);
	if (!error)
		error = open_data(storage, directory_fd, why, why_size);
	close(directory_fd);
	return error;
}

/* --- create and close ------------------------------------------------------------------------------------------------- */

static int check_options(struct neap_storage_options *options, char *why, size_t why_size)
{
	options->bucket_bytes = options->bucket_bytes ? (options->bucket_bytes + UNIT - 1) / UNIT * UNIT : 256 * MIB;
	options->staging_bytes = options->staging_bytes ? options->staging_bytes : 128 * MIB;
	options->jobs_max = options->jobs_max ? options->jobs_max : 256;
	options->threads = options->threads ? options->threads : 2;
	const char *wrong = NULL;
	if (!options->directory || options->directory[0] != '/')
		wrong = "storage_filepath must be an absolute path";
	else if (options->bucket_bytes < MIB || options->bucket_bytes > MIB * MIB)
		wrong = "bucket_size_limit must be from 1 MiB to 1 TiB";
	else if (options->capacity < options->bucket_bytes)
		wrong = "the capacity must be at least one bucket (bucket_size_limit)";
	else if (options->capacity / options->bucket_bytes > UINT32_MAX / 8)
		wrong = "capacity / bucket_size_limit is too large; raise bucket_size_limit";
	else if (options->jobs_max > 65536 || options->threads > 64)
		wrong = "jobs_max must be at most 65536, threads at most 64";
	if (wrong)
		snprintf(why, why_size, "%s", wrong);
	return wrong ? NEAP_EINVAL : NEAP_OK;
}

static int begin_io(struct neap_storage *storage, char *why, size_t why_size)
{
	const struct neap_storage_options *options = &storage->options;
	int error = NEAP_ENOTSUP;
	if (options->io != NEAP_STORAGE_THREADS)
		error = neap_storage_ring_begin(storage->reactor, options->jobs_max, options->threads, &storage->way, &storage->ops, why,
		                                why_size);
	storage->stats.is_ring = !error;
	if (error == NEAP_ENOTSUP && options->io != NEAP_STORAGE_RING)
		error = neap_storage_threads_begin(storage->reactor, options->jobs_max, options->threads, &storage->way, &storage->ops,
		                                   why, why_size);
	return error;
}

static int make_tables(struct neap_storage *storage, char *why, size_t why_size)
{
	const struct neap_storage_options *options = &storage->options;
	struct neap_dram_options staging = {.capacity = options->staging_bytes, .unit = UNIT, .numa_node = -1};
	uint64_t pieces = options->capacity / 65536;
	uint32_t pieces_max = pieces < PIECES_MIN ? PIECES_MIN : pieces > PIECES_MAX ? PIECES_MAX : (uint32_t)pieces;
	storage->buckets = (uint32_t)(options->capacity / options->bucket_bytes);
	storage->dirty = storage->clean = NO_BUCKET;
	storage->next_bucket = neap_allocate(storage->reactor, storage->buckets * sizeof *storage->next_bucket);
	int error = storage->next_bucket ? NEAP_OK : NEAP_ENOMEM;
	if (!error)
		error = neap_extents_create(&storage->extents, storage->reactor, UNIT, pieces_max);
	if (!error)
		error = neap_pool_create(&storage->jobs, storage->reactor, sizeof(struct neap_job), options->jobs_max);
	if (error) {
		snprintf(why, why_size, "out of memory for the storage tier's tables");
		return error;
	}
	return neap_dram_create(&storage->staging, storage->reactor, &staging, why, why_size);
}

static void close_files(struct neap_storage *storage)
{
	if (storage->data_fd >= 0)
		close(storage->data_fd);
	if (storage->lock_fd >= 0)
		close(storage->lock_fd);
	storage->data_fd = storage->lock_fd = -1;
}

/* All but the staging memory, which may still be registered somewhere. */
static void release(struct neap_storage *storage)
{
	struct neap_reactor *reactor = storage->reactor;
	if (storage->ops)
		storage->ops->end(storage->way);
	close_files(storage);
	neap_pool_destroy(&storage->jobs);
	neap_extents_destroy(&storage->extents);
	if (storage->next_bucket)
		neap_release(reactor, storage->next_bucket, storage->buckets * sizeof *storage->next_bucket);
	neap_release(reactor, storage, sizeof *storage);
}

static void staging_closed(void *user)
{
	struct neap_storage *storage = user;
	void (*closed)(void *user) = storage->closed;
	void *closed_user = storage->closed_user;
	neap_reactor_detach(storage->reactor, &storage->dependent);
	release(storage);
	if (closed)
		closed(closed_user);
}

static void end_again(struct neap_timer *timer, void *user);

/* A file without a name goes with its last descriptor, and a large one takes the file system a while. True: comes back when
 * done. */
static bool close_data(struct neap_storage *storage)
{
	struct neap_job *job = storage->data_fd >= 0 ? neap_pool_take(&storage->jobs) : NULL;
	if (!job)
		return false;
	*job = (struct neap_job){.storage = storage, .kind = NEAP_JOB_CLOSE, .fd = storage->data_fd, .length = 1};
	storage->data_fd = -1;
	storage->ops->submit(storage->way, job);
	return true;
}

static void end_now(struct neap_ready *ready)
{
	struct neap_storage *storage = (struct neap_storage *)(void *)((char *)ready - offsetof(struct neap_storage, ending));
	if (close_data(storage))
		return;
	/* refused when its slabs are busy in the engine: local requests that use them must end first */
	if (neap_dram_close(&storage->staging, staging_closed, storage))
		(void)neap_timer_start(storage->reactor, &storage->again, neap_now(storage->reactor) + BUSY_NS, end_again, storage);
}

static void end_again(struct neap_timer *timer, void *user)
{
	(void)timer;
	end_now(&((struct neap_storage *)user)->ending);
}

int neap_storage_create(struct neap_storage **storage_p, struct neap_reactor *reactor, const struct neap_storage_options *options,
                        char *why, size_t why_size)
{
	*storage_p = NULL;
	if (neap_reactor_simulated(reactor)) {
		snprintf(why, why_size, "a storage tier needs a real disk: not in simulation");
		return NEAP_ENOTSUP;
	}
	struct neap_storage *storage = neap_allocate(reactor, sizeof *storage);
	if (!storage) {
		snprintf(why, why_size, "out of memory");
		return NEAP_ENOMEM;
	}
	storage->reactor = reactor;
	storage->options = *options;
	storage->lock_fd = storage->data_fd = -1;
	storage->ending.run = end_now;
	int error = check_options(&storage->options, why, why_size);
	if (!error)
		error = make_tables(storage, why, why_size);
	if (!error)
		error = open_directory(storage, why, why_size);
	if (!error)
		error = begin_io(storage, why, why_size);
	storage->options.directory = NULL; /* the caller's */
	if (error && !storage->staging.base) {
		release(storage);
		return error;
	}
	storage->dependent.what = "storage tier";
	neap_reactor_attach(reactor, &storage->dependent);
	if (error) { /* a large mapping goes a piece a turn */
		close_files(storage);
		(void)neap_dram_close(&storage->staging, staging_closed, storage);
		return error;
	}
	*storage_p = storage;
	return NEAP_OK;
}

int neap_storage_close(struct neap_storage *storage, void (*closed)(void *user), void *user)
{
	if (storage->closing)
		return NEAP_ECLOSED;
	if (storage->extents.extents > 0 || storage->staging.rounded_bytes > 0)
		return NEAP_EBUSY;
	storage->closing = true;
	storage->closed = closed;
	storage->closed_user = user;
	if (storage->jobs.used == 0)
		neap_ready_again(storage->reactor, &storage->ending);
	return NEAP_OK;
}

/* --- space ------------------------------------------------------------------------------------------------------------ */

static void push(struct neap_storage *storage, uint32_t *list, uint32_t bucket)
{
	storage->next_bucket[bucket] = *list;
	*list = bucket;
}

/* One more bucket: rather one that has its blocks on the disk. */
static bool grow(struct neap_storage *storage)
{
	uint32_t *list = storage->dirty != NO_BUCKET ? &storage->dirty : &storage->clean, bucket = *list, region;
	if (bucket == NO_BUCKET && storage->fresh == storage->buckets)
		return false;
	if (bucket == NO_BUCKET)
		bucket = storage->fresh;
	uint64_t length = storage->options.bucket_bytes;
	if (neap_extents_add(&storage->extents, bucket * length, length, &region))
		return false;
	if (*list == bucket)
		*list = storage->next_bucket[bucket];
	else
		storage->fresh++;
	storage->buckets_used++;
	return true;
}

int neap_storage_allocate(struct neap_storage *storage, uint64_t bytes, struct neap_extent *extent_p)
{
	uint32_t node;
	*extent_p = (struct neap_extent){.node = NEAP_NO_NODE};
	if (storage->closing)
		return NEAP_STORE_SHUTTING_DOWN;
	if (bytes == 0)
		return NEAP_STORE_INVALID_PARAMS;
	if (bytes > storage->options.bucket_bytes)
		return NEAP_STORE_NO_AVAILABLE_HANDLE;
	int error = neap_extents_allocate(&storage->extents, bytes, &node);
	if (error == NEAP_EAGAIN && grow(storage))
		error = neap_extents_allocate(&storage->extents, bytes, &node);
	if (error)
		return NEAP_STORE_NO_AVAILABLE_HANDLE;
	*extent_p = (struct neap_extent){
		.offset = neap_extents_offset(&storage->extents, node),
		.size = bytes,
		.rounded = neap_extents_rounded(&storage->extents, node),
		.node = node,
	};
	return NEAP_STORE_OK;
}

/* Empty buckets leave the file, so that the disk is free for others: one at a time and while there are others to give out,
 * because one that is being punched cannot be. */
static void punch(struct neap_storage *storage)
{
	uint32_t bucket = storage->dirty;
	if (bucket == NO_BUCKET || storage->punching || storage->closing || storage->buckets - storage->buckets_used < SPARE_BUCKETS)
		return;
	struct neap_job *job = neap_pool_take(&storage->jobs);
	if (!job)
		return; /* the next one that ends comes back to it */
	storage->dirty = storage->next_bucket[bucket];
	storage->punching = true;
	*job = (struct neap_job){
		.storage = storage,
		.kind = NEAP_JOB_PUNCH,
		.fd = storage->data_fd,
		.offset = bucket * storage->options.bucket_bytes,
		.length = storage->options.bucket_bytes,
		.bucket = bucket,
	};
	storage->ops->submit(storage->way, job);
}

void neap_storage_free(struct neap_storage *storage, const struct neap_extent *extent)
{
	uint32_t region, bucket = (uint32_t)(extent->offset / storage->options.bucket_bytes);
	neap_extents_free(&storage->extents, extent->node, &region);
	if (region == NEAP_NO_NODE)
		return;
	neap_extents_take(&storage->extents, region);
	storage->buckets_used--;
	push(storage, &storage->dirty, bucket);
	punch(storage);
}

static int tier_reserve(void *backend, uint64_t bytes, struct neap_extent *extent_p)
{
	return neap_storage_allocate(backend, bytes, extent_p);
}

static void tier_release(void *backend, const struct neap_extent *extent)
{
	neap_storage_free(backend, extent);
}

struct neap_dram *neap_storage_staging(struct neap_storage *storage)
{
	return &storage->staging;
}

/* --- reads and writes ------------------------------------------------------------------------------------------------- */

static int begin_job(struct neap_storage *storage, const struct neap_extent *extent, const struct neap_job *wanted)
{
	uint64_t skip = wanted->offset - extent->offset;
	if (storage->closing)
		return NEAP_STORE_SHUTTING_DOWN;
	if (wanted->length == 0 || !wanted->memory || !wanted->finished || skip > extent->size || wanted->length > extent->size - skip)
		return NEAP_STORE_INVALID_PARAMS;
	struct neap_job *job = neap_pool_take(&storage->jobs);
	if (!job)
		return NEAP_STORE_TASK_PENDING_LIMIT_EXCEEDED;
	*job = *wanted;
	job->storage = storage;
	job->fd = storage->data_fd;
	storage->ops->submit(storage->way, job);
	return NEAP_STORE_OK;
}

int neap_storage_read(struct neap_storage *storage, const struct neap_extent *extent, uint64_t skip, void *memory, uint64_t length,
                      neap_storage_func *finished, void *user)
{
	struct neap_job wanted = {.kind = NEAP_JOB_READ, .offset = extent->offset + skip, .length = length, .memory = memory,
	                          .finished = finished, .user = user};
	return begin_job(storage, extent, &wanted);
}

int neap_storage_write(struct neap_storage *storage, const struct neap_extent *extent, uint64_t skip, const void *memory,
                       uint64_t length, neap_storage_func *finished, void *user)
{
	struct neap_job wanted = {.kind = NEAP_JOB_WRITE, .offset = extent->offset + skip, .length = length, .finished = finished,
	                          .user = user};
	memcpy(&wanted.memory, &memory, sizeof memory); /* only read */
	return begin_job(storage, extent, &wanted);
}

static int tier_read(void *backend, const struct neap_extent *extent, void *memory, neap_tier_io_func *finished, void *user)
{
	return neap_storage_read(backend, extent, 0, memory, extent->size, finished, user);
}

static int tier_write(void *backend, const struct neap_extent *extent, const void *memory, neap_tier_io_func *finished, void *user)
{
	return neap_storage_write(backend, extent, 0, memory, extent->size, finished, user);
}

const struct neap_tier_ops neap_storage_tier_ops = {
	.reserve = tier_reserve, .release = tier_release, .read = tier_read, .write = tier_write};

static void count(struct neap_storage_stats *stats, const struct neap_job *job)
{
	switch (job->kind) {
	case NEAP_JOB_READ:
		stats->reads++;
		stats->bytes_read += job->done;
		break;
	case NEAP_JOB_WRITE:
		stats->writes++;
		stats->bytes_written += job->done;
		break;
	case NEAP_JOB_PUNCH: stats->buckets_punched += job->system_errno == 0; return;
	case NEAP_JOB_CLOSE: return;
	}
	stats->failures += job->system_errno != 0;
}

void neap_job_finish(struct neap_job *job)
{
	struct neap_storage *storage = job->storage;
	struct neap_job ended = *job;
	count(&storage->stats, job);
	neap_pool_give(&storage->jobs, job);
	if (ended.kind == NEAP_JOB_PUNCH) {
		storage->punching = false;
		push(storage, &storage->clean, ended.bucket); /* also where the file system cannot punch */
	}
	punch(storage);
	if (storage->closing && storage->jobs.used == 0)
		neap_ready_again(storage->reactor, &storage->ending);
	int error = ended.kind == NEAP_JOB_READ ? NEAP_STORE_FILE_READ_FAIL : NEAP_STORE_FILE_WRITE_FAIL;
	if (ended.finished)
		ended.finished(ended.user, ended.system_errno ? error : NEAP_STORE_OK, ended.system_errno);
}

void neap_storage_stats(const struct neap_storage *storage, struct neap_storage_stats *stats_p)
{
	struct neap_extents_stats extents;
	neap_extents_stats(&storage->extents, &extents);
	*stats_p = storage->stats;
	stats_p->capacity = storage->buckets * storage->options.bucket_bytes;
	stats_p->requested_bytes = extents.requested_bytes;
	stats_p->rounded_bytes = extents.rounded_bytes;
	stats_p->buckets_used = storage->buckets_used;
	stats_p->jobs = storage->jobs.used;
}
