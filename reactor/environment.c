/* What the reactor has from the operating system when its options do not say otherwise: clocks, memory, chance, the log on stderr. */
#include "reactor/inside.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_ns(clockid_t which)
{
	struct timespec now;
	clock_gettime(which, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t monotonic_ns(void *user)
{
	(void)user;
	return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t realtime_us(void *user)
{
	(void)user;
	return clock_ns(CLOCK_REALTIME) / 1000;
}

static void *zeroed(void *user, size_t bytes)
{
	(void)user;
	return calloc(1, bytes);
}

static void release(void *user, void *memory, size_t bytes)
{
	(void)user;
	(void)bytes;
	free(memory);
}

/* Only a kernel that has just booted can refuse; then the clock and an address have to do until it has gathered enough. */
static void random_fill(void *user, void *bytes, size_t length)
{
	(void)user;
	unsigned char *at = bytes;
	uint64_t weak = clock_ns(CLOCK_MONOTONIC) ^ (uint64_t)(uintptr_t)&weak;
	while (length > 0) {
		size_t piece = length < 256 ? length : 256;
		if (getrandom(at, piece, GRND_NONBLOCK) != (ssize_t)piece)
			for (size_t i = 0; i < piece; i++) {
				weak = weak * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
				at[i] = (unsigned char)(weak >> 56);
			}
		at += piece;
		length -= piece;
	}
}

void neap_environment_defaults(struct neap_reactor_options *options)
{
	if (!options->clock.now_ns)
		options->clock.now_ns = monotonic_ns;
	if (!options->clock.wall_us)
		options->clock.wall_us = realtime_us;
	if (!options->alloc.allocate || !options->alloc.release)
		options->alloc = (struct neap_alloc_ops){.allocate = zeroed, .release = release};
	if (!options->random.fill)
		options->random.fill = random_fill;
	if (!options->log)
		options->log = neap_log_stderr;
}

#define GUARD_BYTES 4096u

int neap_fork_guard_set(struct neap_fork_guard *guard)
{
	guard->pid = getpid();
	guard->page = NULL;
	void *page = mmap(NULL, GUARD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return NEAP_ENOMEM;
	if (madvise(page, GUARD_BYTES, MADV_WIPEONFORK) != 0) {
		munmap(page, GUARD_BYTES);
		return NEAP_OK;
	}
	guard->page = page;
	*guard->page = 1;
	return NEAP_OK;
}

void neap_fork_guard_release(struct neap_fork_guard *guard)
{
	if (guard->page)
		munmap((void *)(uintptr_t)guard->page, GUARD_BYTES);
	guard->page = NULL;
}

bool neap_fork_guard_by_pid(const struct neap_fork_guard *guard)
{
	return getpid() != guard->pid;
}

static enum neap_log_level level_wanted(void)
{
	static const struct {
		const char *name;
		enum neap_log_level level;
	} names[] = {{"ERROR", NEAP_LOG_ERROR}, {"WARNING", NEAP_LOG_WARNING}, {"INFO", NEAP_LOG_INFO},
	             {"DEBUG", NEAP_LOG_DEBUG}, {"TRACE", NEAP_LOG_DEBUG}};
	const char *wanted = getenv("MC_LOG_LEVEL");
	for (size_t i = 0; wanted && i < sizeof names / sizeof names[0]; i++)
		if (strcasecmp(wanted, names[i].name) == 0)
			return names[i].level;
	return NEAP_LOG_WARNING;
}

void neap_log_stderr(void *user, enum neap_log_level level, const char *component, const char *message)
{
	static const char *const names[] = {"ERROR", "WARNING", "INFO", "DEBUG"};
	char line[1024], when[32];
	struct timespec now;
	struct tm parts;
	(void)user;
	if (level > level_wanted())
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &parts);
	strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
	int length = snprintf(line, sizeof line, "%s.%03ldZ %s %s: %s\n", when, now.tv_nsec / 1000000, names[level], component, message);
	if (length >= (int)sizeof line) {
		length = (int)sizeof line;
		line[length - 1] = '\n';
	}
	/* One write, so that lines of several threads do not mix. Nowhere to report its failure to. */
	ssize_t written = write(STDERR_FILENO, line, (size_t)length);
	(void)written;
}
