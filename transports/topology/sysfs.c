/* Reading sysfs. */
#include "transports/topology/sysfs.h"
#include "transports/topology/topology.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 256u

bool neap_sysfs_digits(const char *text, uint32_t *value_p)
{
	uint32_t value = 0;
	size_t length = strnlen(text, 8);
	if (length == 0 || length > 7)
		return false;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (uint32_t)(text[i] - '0');
	}
	*value_p = value;
	return true;
}

/* The begin of the file, or -1 with errno. O_NONBLOCK: a pipe in the place of a file must not hold us. */
static ssize_t read_begin(const char *path, char *bytes, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -1;
	ssize_t got = read(fd, bytes, size);
	int error = errno;
	(void)close(fd);
	errno = error;
	return got;
}

/* The line in `bytes`, trimmed in place; NULL when it holds what no such file holds. */
static char *trim_line(char *bytes, size_t length)
{
	char *begin = bytes, *end = memchr(bytes, '\n', length);
	if (!end)
		end = bytes + length;
	while (begin < end && (*begin == ' ' || *begin == '\t'))
		begin++;
	while (end > begin && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
		end--;
	*end = '\0';
	for (const char *c = begin; c < end; c++)
		if (*c < 0x20 || *c > 0x7e)
			return NULL;
	return begin < end ? begin : NULL;
}

static bool read_text(char *text, size_t size, const char *path)
{
	char bytes[LINE_MAX_BYTES + 1];
	text[0] = '\0';
	ssize_t got = read_begin(path, bytes, LINE_MAX_BYTES);
	if (got <= 0)
		return false;
	errno = 0;
	const char *line = trim_line(bytes, (size_t)got);
	if (!line || strlen(line) >= size)
		return false;
	memcpy(text, line, strlen(line) + 1);
	return true;
}

NEAP_PRINTF(2, 0) static bool make_path(char path[PATH_MAX], const char *format, va_list list)
{
	int length = vsnprintf(path, PATH_MAX, format, list);
	return length > 0 && length < PATH_MAX;
}

bool neap_sysfs_text(char *text, size_t size, const char *format, ...)
{
	char path[PATH_MAX];
	va_list list;
	text[0] = '\0';
	va_start(list, format);
	bool ok = make_path(path, format, list);
	va_end(list);
	return ok && read_text(text, size, path);
}

enum neap_sysfs_answer neap_sysfs_number(int32_t min, int32_t max, int32_t *value_p, const char *format, ...)
{
	char path[PATH_MAX], text[16];
	uint32_t magnitude;
	va_list list;
	va_start(list, format);
	bool ok = make_path(path, format, list);
	va_end(list);
	if (!ok || access(path, F_OK) != 0)
		return NEAP_SYSFS_ABSENT;
	if (!read_text(text, sizeof text, path) || !neap_sysfs_digits(text + (text[0] == '-'), &magnitude))
		return NEAP_SYSFS_GARBAGE;
	int32_t value = text[0] == '-' ? -(int32_t)magnitude : (int32_t)magnitude;
	if (value < min || value > max)
		return NEAP_SYSFS_GARBAGE;
	*value_p = value;
	return NEAP_SYSFS_READ;
}

/* Keeps the first `max` names in order: one that comes later pushes out the last one. */
static void keep_name(char (*names)[NEAP_SYSFS_NAME_SIZE], uint32_t max, uint32_t kept, const char *name)
{
	uint32_t at = kept < max ? kept : max;
	while (at > 0 && neap_topology_compare(name, names[at - 1]) < 0)
		at--;
	if (at == max)
		return;
	uint32_t moved = (kept < max ? kept : max - 1) - at;
	memmove(names + at + 1, names + at, moved * sizeof *names);
	memcpy(names[at], name, strlen(name) + 1);
}

static bool is_name(const char *name)
{
	size_t length = strnlen(name, NEAP_SYSFS_NAME_SIZE);
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || length == NEAP_SYSFS_NAME_SIZE)
		return false;
	for (size_t i = 0; i < length; i++)
		if (name[i] <= 0x20 || name[i] > 0x7e)
			return false;
	return true;
}

int32_t neap_sysfs_list(const char *path, const char *prefix, char (*names)[NEAP_SYSFS_NAME_SIZE], uint32_t max)
{
	DIR *directory = opendir(path);
	const struct dirent *entry;
	uint32_t count = 0;
	if (!directory)
		return -1;
	for (uint32_t looked = 0; looked < NEAP_SYSFS_ENTRIES_MAX && (entry = readdir(directory)); looked++) {
		if (is_name(entry->d_name) && strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
			keep_name(names, max, count++, entry->d_name);
	}
	(void)closedir(directory);
	return (int32_t)count;
}

bool neap_sysfs_real(char *text, size_t size, const char *root, const char *below)
{
	char path[PATH_MAX], real_root[PATH_MAX], real[PATH_MAX];
	int length = snprintf(path, sizeof path, "%s/%s", root, below);
	text[0] = '\0';
	if (length < 0 || (size_t)length >= sizeof path || !realpath(root, real_root) || !realpath(path, real))
		return false;
	size_t root_length = strlen(real_root);
	if (strncmp(real, real_root, root_length) != 0 || real[root_length] != '/' || strlen(real + root_length) >= size)
		return false;
	memcpy(text, real + root_length, strlen(real + root_length) + 1);
	return true;
}
