/* Storage tiers on real files, through io_uring and through threads. */
#include "store/tier/storage.h"
#include "store/tier/tiers.h"
#include "tests/support/drive.h"
#include <check.h>
#include <errno.h>
#include <neap/store_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define BUCKET (4 * MIB)
#define LIMIT_MS 20000

static struct neap_reactor *reactor;
static struct neap_storage *storage;
static struct neap_storage_options options;
static char top[200], directory[220], why[300];

/* What a read or write came back with. */
struct outcome {
	bool finished;
	int error, system_errno;
	uint32_t times;
};

static void note(void *user, int error, int system_errno)
{
	struct outcome *outcome = user;
	outcome->finished = true;
	outcome->error = error;
	outcome->system_errno = system_errno;
	outcome->times++;
}

static int create(struct neap_storage **storage_p)
{
	why[0] = '\0';
	return neap_storage_create(storage_p, reactor, &options, why, sizeof why);
}

static bool no_ring;

/* _i: which way */
static bool begin(int way)
{
	const char *parent = getenv("TMPDIR");
	snprintf(top, sizeof top, "%s/neap-tier-XXXXXX", parent ? parent : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(top));
	snprintf(directory, sizeof directory, "%s/store", top);
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), NEAP_OK);
	options = (struct neap_storage_options){
		.directory = directory,
		.capacity = 4 * BUCKET,
		.bucket_bytes = BUCKET,
		.staging_bytes = 16 * MIB,
		.jobs_max = 16,
		.io = way ? NEAP_STORAGE_THREADS : NEAP_STORAGE_RING,
	};
	int error = create(&storage);
	no_ring = error == NEAP_ENOTSUP && way == 0;
	if (no_ring) {
		fprintf(stderr, "skipped: %s\n", why);
		ck_assert_ptr_null(storage);
	} else {
		ck_assert_msg(error == NEAP_OK, "%s", why);
	}
	return !no_ring;
}

static void raise_flag(void *user)
{
	*(bool *)user = true;
}

static void close_storage(struct neap_storage *it)
{
	bool closed = false;
	ck_assert_int_eq(neap_storage_close(it, raise_flag, &closed), NEAP_OK);
	ck_assert_int_eq(neap_storage_close(it, raise_flag, &closed), NEAP_ECLOSED);
	ck_assert(!closed);
	ck_assert(drive_until(reactor, &closed, LIMIT_MS));
}

static void end(void)
{
	char path[300];
	if (storage)
		close_storage(storage);
	storage = NULL;
	drive_to_end(reactor);
	snprintf(path, sizeof path, "%s/neap.lock", directory);
	unlink(path);
	ck_assert_msg(rmdir(directory) == 0, "%s: %s", directory, strerror(errno)); /* nothing else is left in it */
	rmdir(top);
}

static void fill(unsigned char *bytes, size_t length, uint32_t x)
{
	for (size_t i = 0; i < length; i++) {
		x = x * 1664525u + 1013904223u;
		bytes[i] = (unsigned char)(x >> 24);
	}
}

static struct neap_extent take(uint64_t bytes)
{
	struct neap_extent extent;
	ck_assert_int_eq(neap_storage_allocate(storage, bytes, &extent), NEAP_STORE_OK);
	return extent;
}

static struct neap_storage_stats stats(void)
{
	struct neap_storage_stats stats;
	neap_storage_stats(storage, &stats);
	return stats;
}

static struct outcome wait_for(struct outcome *outcome)
{
	ck_assert(drive_until(reactor, &outcome->finished, LIMIT_MS));
	ck_assert_uint_eq(outcome->times, 1);
	struct outcome told = *outcome;
	*outcome = (struct outcome){0};
	return told;
}

START_TEST(what_is_written_is_read)
{
	static const uint64_t sizes[] = {1, 4095, 4096, 100000, BUCKET};
	static unsigned char in[BUCKET], out[BUCKET];
	struct outcome outcome = {0};
	if (!begin(_i)) {
		end();
		return;
	}
	ck_assert_int_eq(stats().is_ring, _i == 0);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct neap_extent extent = take(sizes[i]);
		ck_assert_uint_eq(extent.offset % 4096, 0);
		fill(in, sizes[i], (uint32_t)i + 1);
		memset(out, 0, sizes[i]);
		ck_assert_int_eq(neap_storage_write(storage, &extent, 0, in, sizes[i], note, &outcome), NEAP_STORE_OK);
		ck_assert(!outcome.finished); /* never from inside the call */
		ck_assert_int_eq(wait_for(&outcome).error, NEAP_STORE_OK);
		ck_assert_int_eq(neap_storage_read(storage, &extent, 0, out, sizes[i], note, &outcome), NEAP_STORE_OK);
		ck_assert_int_eq(wait_for(&outcome).error, NEAP_STORE_OK);
		ck_assert_int_eq(memcmp(in, out, sizes[i]), 0);
		if (sizes[i] > 5000) { /* a part of it */
			ck_assert_int_eq(neap_storage_read(storage, &extent, 4321, out, 600, note, &outcome), NEAP_STORE_OK);
			wait_for(&outcome);
			ck_assert_int_eq(memcmp(in + 4321, out, 600), 0);
		}
		neap_storage_free(storage, &extent);
	}
	ck_assert_uint_eq(stats().writes, 5);
	ck_assert_uint_eq(stats().failures, 0);
	end();
}
END_TEST

START_TEST(mistakes_and_limits_are_answers)
{
	static unsigned char bytes[8192];
	struct outcome outcomes[16] = {{0}}, outcome = {0};
	struct neap_extent extent, other;
	if (!begin(_i)) {
		end();
		return;
	}
	ck_assert_int_eq(neap_storage_allocate(storage, 0, &other), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(neap_storage_allocate(storage, BUCKET + 1, &other), NEAP_STORE_NO_AVAILABLE_HANDLE);
	extent = take(8192);
	ck_assert_int_eq(neap_storage_close(storage, NULL, NULL), NEAP_EBUSY);
	ck_assert_int_eq(neap_storage_write(storage, &extent, 1, bytes, 8192, note, &outcome), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(neap_storage_write(storage, &extent, 8193, bytes, 1, note, &outcome), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(neap_storage_write(storage, &extent, UINT64_MAX, bytes, 2, note, &outcome), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(neap_storage_read(storage, &extent, 0, bytes, 0, note, &outcome), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(neap_storage_read(storage, &extent, 0, NULL, 1, note, &outcome), NEAP_STORE_INVALID_PARAMS);
	ck_assert_int_eq(neap_storage_read(storage, &extent, 0, bytes, 100, note, &outcome), NEAP_STORE_OK); /* never written */
	struct outcome told = wait_for(&outcome);
	ck_assert_int_eq(told.error, NEAP_STORE_FILE_READ_FAIL);
	ck_assert_int_eq(told.system_errno, ENODATA);
	ck_assert_int_eq(neap_storage_write(storage, &extent, 0, (void *)8, 8192, note, &outcome), NEAP_STORE_OK); /* not memory */
	told = wait_for(&outcome);
	ck_assert_int_eq(told.error, NEAP_STORE_FILE_WRITE_FAIL);
	ck_assert_int_eq(told.system_errno, EFAULT);
	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(neap_storage_write(storage, &extent, 0, bytes, 8192, note, &outcomes[i]), NEAP_STORE_OK);
	ck_assert_int_eq(neap_storage_write(storage, &extent, 0, bytes, 1, note, &outcome), NEAP_STORE_TASK_PENDING_LIMIT_EXCEEDED);
	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(wait_for(&outcomes[i]).error, NEAP_STORE_OK);
	ck_assert_uint_eq(stats().jobs, 0);
	neap_storage_free(storage, &extent);
	end();
}
END_TEST

static bool is_punched(void *user)
{
	(void)user;
	return stats().jobs == 0;
}

START_TEST(space_is_bounded_and_comes_back)
{
	static unsigned char bytes[BUCKET];
	struct neap_extent extents[4], other;
	struct outcome outcome = {0};
	if (!begin(_i)) {
		end();
		return;
	}
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 4; i++) {
			extents[i] = take(BUCKET - 5000);
			ck_assert_int_eq(neap_storage_write(storage, &extents[i], 0, bytes, BUCKET - 5000, note, &outcome), NEAP_STORE_OK);
			ck_assert_int_eq(wait_for(&outcome).error, NEAP_STORE_OK);
		}
		ck_assert_uint_eq(stats().buckets_used, 4);
		ck_assert_int_eq(neap_storage_allocate(storage, 8192, &other), NEAP_STORE_NO_AVAILABLE_HANDLE); /* never across buckets */
		for (int i = 0; i < 4; i++)
			neap_storage_free(storage, &extents[i]);
		ck_assert(drive_all_until(&reactor, 1, is_punched, NULL, LIMIT_MS));
		ck_assert_uint_eq(stats().rounded_bytes, 0);
		ck_assert_uint_eq(stats().buckets_used, 0);
	}
	end();
}
END_TEST

START_TEST(a_directory_belongs_to_one)
{
	struct neap_storage *second;
	struct stat info;
	if (!begin(_i)) {
		end();
		return;
	}
	ck_assert_int_eq(stat(directory, &info), 0);
	ck_assert_uint_eq(info.st_mode & 07777, 0700);
	ck_assert_int_eq(create(&second), NEAP_EBUSY);
	ck_assert_msg(strstr(why, "another process uses it"), "%s", why);
	close_storage(storage);
	ck_assert_msg(create(&storage) == NEAP_OK, "%s", why); /* and the lock is gone with it */
	end();
}
END_TEST

START_TEST(nothing_is_left_of_a_killed_process)
{
	if (!begin(_i)) {
		end();
		return;
	}
	close_storage(storage);
	storage = NULL;
	drive_to_end(reactor);
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		struct neap_extent extent;
		struct outcome outcome = {0};
		static unsigned char bytes[65536];
		if (neap_reactor_create(&reactor, NULL) || create(&storage) || neap_storage_allocate(storage, sizeof bytes, &extent) ||
		    neap_storage_write(storage, &extent, 0, bytes, sizeof bytes, note, &outcome) ||
		    !drive_until(reactor, &outcome.finished, LIMIT_MS) || outcome.error)
			_exit(2);
		_exit(0); /* as if killed: nothing is closed */
	}
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), NEAP_OK);
	ck_assert_msg(create(&storage) == NEAP_OK, "%s", why);
	end(); /* checks that the directory is empty */
}
END_TEST

START_TEST(bad_options_are_named)
{
	struct neap_storage *none;
	begin(1);
	struct neap_storage_options good = options;
	static const char *const says[] = {"absolute path", "at least one bucket", "from 1 MiB to 1 TiB", "make the directory", "at most 65536"};
	for (int i = 0; i < 5; i++) {
		options = good;
		if (i == 0)
			options.directory = "here";
		else if (i == 1)
			options.capacity = BUCKET - 1;
		else if (i == 2)
			options.bucket_bytes = 4096;
		else if (i == 3)
			options.directory = "/proc/nowhere/at/all";
		else
			options.jobs_max = 100000;
		ck_assert_int_ne(create(&none), NEAP_OK);
		ck_assert_msg(strstr(why, says[i]), "%s", why);
		ck_assert_ptr_null(none);
	}
	options = good;
	end();
}
END_TEST

/* Many at once, random sizes, through the staging memory; every byte is compared. */
#define LIVE 64
static struct piece {
	struct neap_extent extent;
	struct neap_extent stage;
	struct outcome outcome;
	uint32_t seed;
	enum { EMPTY, WRITING, STORED, READING } phase;
} pieces[LIVE];

static void start_write(struct piece *piece, uint64_t size)
{
	struct neap_dram *staging = neap_storage_staging(storage);
	if (neap_storage_allocate(storage, size, &piece->extent) != NEAP_STORE_OK)
		return;
	int error = neap_dram_allocate(staging, size, &piece->stage);
	unsigned char *bytes = neap_dram_address(staging, piece->stage.offset);
	if (!error) {
		piece->seed = (uint32_t)rand();
		fill(bytes, size, piece->seed);
		error = neap_storage_write(storage, &piece->extent, 0, bytes, size, note, &piece->outcome);
		if (error)
			neap_dram_free(staging, &piece->stage);
	}
	if (error)
		neap_storage_free(storage, &piece->extent);
	else
		piece->phase = WRITING;
}

static void start_read(struct piece *piece)
{
	struct neap_dram *staging = neap_storage_staging(storage);
	if (neap_dram_allocate(staging, piece->extent.size, &piece->stage) != NEAP_STORE_OK)
		return;
	unsigned char *bytes = neap_dram_address(staging, piece->stage.offset);
	memset(bytes, 0, piece->extent.size);
	if (neap_storage_read(storage, &piece->extent, 0, bytes, piece->extent.size, note, &piece->outcome))
		neap_dram_free(staging, &piece->stage);
	else
		piece->phase = READING;
}

static void check_ended(struct piece *piece)
{
	static unsigned char wanted[MIB];
	struct neap_dram *staging = neap_storage_staging(storage);
	ck_assert_int_eq(piece->outcome.error, NEAP_STORE_OK);
	ck_assert_uint_eq(piece->outcome.times, 1);
	if (piece->phase == READING) {
		fill(wanted, piece->extent.size, piece->seed);
		ck_assert_int_eq(memcmp(neap_dram_address(staging, piece->stage.offset), wanted, piece->extent.size), 0);
	}
	neap_dram_free(staging, &piece->stage);
	piece->outcome = (struct outcome){0};
	if (piece->phase == READING && rand() % 2) {
		neap_storage_free(storage, &piece->extent);
		piece->phase = EMPTY;
	} else {
		piece->phase = STORED;
	}
}

START_TEST(many_at_once)
{
	srand((unsigned)(9 + _i));
	memset(pieces, 0, sizeof pieces);
	if (!begin(_i)) {
		end();
		return;
	}
	uint64_t deadline_ns = drive_now_ns() + UINT64_C(60000000000);
	bool draining = false, busy = true;
	for (uint32_t step = 0; busy; step++) {
		draining |= stats().reads >= 400;
		busy = false;
		for (int i = 0; i < LIVE; i++) {
			struct piece *piece = &pieces[i];
			if (piece->outcome.finished)
				check_ended(piece);
			if (piece->phase == EMPTY && !draining)
				start_write(piece, 1 + (uint64_t)rand() % (rand() % 4 ? 20000 : MIB - 1));
			else if (piece->phase == STORED && !draining)
				start_read(piece);
			busy |= piece->phase == WRITING || piece->phase == READING;
		}
		ck_assert_uint_lt(drive_now_ns(), deadline_ns);
		ck_assert_int_ge(neap_reactor_run_once(reactor, NULL), 0);
	}
	for (int i = 0; i < LIVE; i++)
		if (pieces[i].phase == STORED)
			neap_storage_free(storage, &pieces[i].extent);
	ck_assert_uint_ge(stats().reads, 400);
	end();
}
END_TEST

START_TEST(is_a_tier_like_others)
{
	struct neap_tiers tiers;
	struct neap_tiers_options tiers_options = {.handles_max = 64};
	struct neap_tier_settings settings = {.kind = NEAP_TIER_STORAGE, .priority = 1};
	struct neap_handle *handle, *other;
	uint32_t index;
	begin(1);
	ck_assert_int_eq(neap_tiers_create(&tiers, reactor, &tiers_options), NEAP_OK);
	ck_assert_int_eq(neap_tiers_add(&tiers, &settings, &neap_storage_tier_ops, storage, 4 * BUCKET, &index), NEAP_OK);
	ck_assert_int_eq(neap_tiers_allocate(&tiers, 3 * MIB, NEAP_TIER_ANY, false, &handle), NEAP_STORE_OK);
	ck_assert_ptr_null(neap_handle_address(handle));
	ck_assert_int_eq(neap_tiers_allocate(&tiers, BUCKET + 1, NEAP_TIER_ANY, false, &other), NEAP_STORE_NO_AVAILABLE_HANDLE);
	ck_assert_int_eq(neap_tiers_allocate_memory(&tiers, 4096, NEAP_TIER_ANY, &other), NEAP_STORE_TIER_NOT_FOUND); /* none is in memory */
	ck_assert_int_eq(neap_tiers_allocate_memory(&tiers, 4096, index, &other), NEAP_STORE_TIER_NOT_FOUND);
	ck_assert_int_eq(neap_tiers_allocate_memory(&tiers, 4096, 7, &other), NEAP_STORE_TIER_NOT_FOUND);
	ck_assert_int_eq(neap_tiers_allocate_memory(&tiers, 0, NEAP_TIER_ANY, &other), NEAP_STORE_INVALID_PARAMS);
	ck_assert_uint_eq(neap_handle_drop(handle), 3 * MIB);
	ck_assert_int_eq(neap_tiers_destroy(&tiers), NEAP_OK);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("storage tier");
	TCase *cases = tcase_create("io_uring, threads");
	tcase_add_loop_test(cases, what_is_written_is_read, 0, 2);
	tcase_add_loop_test(cases, mistakes_and_limits_are_answers, 0, 2);
	tcase_add_loop_test(cases, space_is_bounded_and_comes_back, 0, 2);
	tcase_add_loop_test(cases, a_directory_belongs_to_one, 0, 2);
	tcase_add_loop_test(cases, nothing_is_left_of_a_killed_process, 0, 2);
	tcase_add_loop_test(cases, many_at_once, 0, 2);
	tcase_add_test(cases, bad_options_are_named);
	tcase_add_test(cases, is_a_tier_like_others);
	tcase_set_timeout(cases, 90);
	suite_add_tcase(suite, cases);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
