#include "tests/support/fdcheck.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Calls `see` for each open descriptor but the one of the walk itself. */
static void walk(void (*see)(int fd, void *user), void *user)
{
	DIR *directory = opendir("/proc/self/fd");
	ck_assert_ptr_nonnull(directory);
	const struct dirent *entry;
	while ((entry = readdir(directory)) != NULL) {
		int fd = atoi(entry->d_name);
		if (entry->d_name[0] != '.' && fd != dirfd(directory) && fd < FDCHECK_MAX)
			see(fd, user);
	}
	closedir(directory);
}

static void remember(int fd, void *user)
{
	struct fdcheck *check = user;
	check->inherited[fd / 8] |= (unsigned char)(1u << fd % 8);
}

void fdcheck_begin(struct fdcheck *check)
{
	memset(check, 0, sizeof(*check));
	walk(remember, check);
}

static bool starts(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Which flags a descriptor of this kind must have. */
static unsigned needed_flags(const char *kind)
{
	if (starts(kind, "socket:") || starts(kind, "pipe:") || starts(kind, "anon_inode:[eventfd") ||
	    starts(kind, "anon_inode:[timerfd") || starts(kind, "anon_inode:[infiniband"))
		return O_NONBLOCK | O_CLOEXEC;
	if (starts(kind, "anon_inode:[eventpoll") || starts(kind, "anon_inode:inotify"))
		return O_CLOEXEC;
	return 0;
}

struct findings {
	const struct fdcheck *check;
	char *what;
	size_t size, used;
	int offenders, opened;
};

static void judge(int fd, void *user)
{
	struct findings *findings = user;
	char path[64], kind[128], line[128];
	unsigned flags = 0;

	if (findings->check->inherited[fd / 8] & 1u << fd % 8)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t length = readlink(path, kind, sizeof(kind) - 1);
	if (length < 0)
		return;
	kind[length] = '\0';
	findings->opened++;
	unsigned needed = needed_flags(kind);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	FILE *file = fopen(path, "re");
	if (!file)
		return;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "flags: %o", &flags) == 1)
			break;
	fclose(file);
	if ((flags & needed) == needed)
		return;
	findings->offenders++;
	if (findings->used < findings->size) {
		int n = snprintf(findings->what + findings->used, findings->size - findings->used, "fd %d %s lacks%s%s; ", fd, kind,
		                 needed & ~flags & O_NONBLOCK ? " O_NONBLOCK" : "", needed & ~flags & O_CLOEXEC ? " O_CLOEXEC" : "");
		findings->used += n > 0 ? (size_t)n : 0;
	}
}

int fdcheck_offenders(const struct fdcheck *check, char *what, size_t size, int *opened_p)
{
	struct findings findings = {.check = check, .what = what, .size = size};
	if (size)
		what[0] = '\0';
	walk(judge, &findings);
	if (opened_p)
		*opened_p = findings.opened;
	return findings.offenders;
}

void fdcheck_assert(const struct fdcheck *check)
{
	char what[512];
	int offenders = fdcheck_offenders(check, what, sizeof(what), NULL);
	ck_assert_msg(offenders == 0, "%d descriptors may block or survive exec: %s", offenders, what);
}

static void count(int fd, void *user)
{
	(void)fd;
	++*(int *)user;
}

int fdcheck_count(void)
{
	int n = 0;
	walk(count, &n);
	return n;
}
