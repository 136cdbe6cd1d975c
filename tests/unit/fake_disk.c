#include "tests/unit/fake_disk.h"
#include "reactor/core.h"
#include <check.h>
#include <neap/store_error.h>
#include <stdlib.h>
#include <string.h>

static uint32_t units_of(uint64_t bytes)
{
	return (uint32_t)((bytes + FAKE_UNIT - 1) / FAKE_UNIT);
}

static int reserve(void *backend, uint64_t bytes, struct neap_extent *extent_p)
{
	struct fake_disk *disk = backend;
	uint32_t wanted = units_of(bytes), all = units_of(disk->capacity), run = 0;
	for (uint32_t i = 0; i < all && !disk->full; i++) {
		run = disk->used[i] ? 0 : run + 1;
		if (run < wanted)
			continue;
		uint32_t first = i + 1 - wanted;
		memset(disk->used + first, 1, wanted);
		*extent_p = (struct neap_extent){
			.offset = (uint64_t)first * FAKE_UNIT, .size = bytes, .rounded = (uint64_t)wanted * FAKE_UNIT, .node = first};
		return NEAP_STORE_OK;
	}
	return NEAP_STORE_NO_AVAILABLE_HANDLE;
}

static void release(void *backend, const struct neap_extent *extent)
{
	struct fake_disk *disk = backend;
	for (uint32_t i = 0; i < FAKE_JOBS; i++)
		ck_assert_msg(!disk->jobs[i].busy || disk->jobs[i].extent.node != extent->node, "space is given back while a job uses it");
	memset(disk->used + extent->node, 0, units_of(extent->rounded));
	memset(disk->bytes + extent->offset, 0xdd, extent->rounded);
}

static void end(struct fake_job *job)
{
	struct fake_disk *disk = job->disk;
	int system_errno = job->write ? disk->write_errno : disk->read_errno;
	unsigned char *place = disk->bytes + job->extent.offset;
	if (!system_errno && job->write)
		memcpy(place, job->memory, job->extent.size);
	else if (!system_errno)
		memcpy(job->memory, place, job->extent.size);
	if (!job->write && disk->forgets)
		job->memory[job->extent.size / 2] ^= 1;
	job->busy = false;
	disk->busy--;
	int error = job->write ? NEAP_STORE_FILE_WRITE_FAIL : NEAP_STORE_FILE_READ_FAIL;
	job->finished(job->user, system_errno ? error : NEAP_STORE_OK, system_errno);
}

static void on_time(struct neap_timer *timer, void *user)
{
	struct fake_job *job = user;
	(void)timer;
	job->waits = job->disk->held;
	if (!job->waits)
		end(job);
}

static int begin(struct fake_disk *disk, const struct fake_job *wanted)
{
	if (disk->refuses)
		return NEAP_STORE_TASK_PENDING_LIMIT_EXCEEDED;
	for (uint32_t i = 0; i < FAKE_JOBS; i++) {
		struct fake_job *job = &disk->jobs[i];
		if (job->busy)
			continue;
		*job = *wanted;
		job->disk = disk;
		job->busy = true;
		disk->busy++;
		disk->writes += job->write;
		disk->reads += !job->write;
		ck_assert_int_eq(neap_timer_start(disk->reactor, &job->timer, neap_now(disk->reactor) + disk->delay_ns, on_time, job), 0);
		return NEAP_STORE_OK;
	}
	return NEAP_STORE_TASK_PENDING_LIMIT_EXCEEDED;
}

static int read_(void *backend, const struct neap_extent *extent, void *memory, neap_tier_io_func *finished, void *user)
{
	return begin(backend, &(struct fake_job){.extent = *extent, .memory = memory, .finished = finished, .user = user});
}

static int write_(void *backend, const struct neap_extent *extent, const void *memory, neap_tier_io_func *finished, void *user)
{
	struct fake_job job = {.write = true, .extent = *extent, .finished = finished, .user = user};
	memcpy(&job.memory, &memory, sizeof memory); /* only read */
	return begin(backend, &job);
}

const struct neap_tier_ops fake_disk_ops = {.reserve = reserve, .release = release, .read = read_, .write = write_};

void fake_disk_begin(struct fake_disk *disk, struct neap_reactor *reactor, uint64_t capacity)
{
	memset(disk, 0, sizeof *disk);
	disk->reactor = reactor;
	disk->capacity = capacity;
	disk->delay_ns = 100000;
	disk->bytes = malloc(capacity);
}

void fake_disk_end(struct fake_disk *disk)
{
	ck_assert_uint_eq(disk->busy, 0);
	for (uint32_t i = 0; i < FAKE_UNITS; i++)
		ck_assert_msg(!disk->used[i], "space on the disk was not given back");
	free(disk->bytes);
}

void fake_disk_let_go(struct fake_disk *disk)
{
	disk->held = false;
	for (uint32_t i = 0; i < FAKE_JOBS; i++) {
		struct fake_job *job = &disk->jobs[i];
		if (!job->busy || !job->waits)
			continue;
		job->waits = false;
		(void)neap_timer_start(disk->reactor, &job->timer, neap_now(disk->reactor), on_time, job);
	}
}
