#include "apps/common/memory.h"
#include "apps/common/flags.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void *app_memory_map(uint64_t bytes, bool touch, char *why, size_t why_size)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (touch ? MAP_POPULATE : 0);
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (memory == MAP_FAILED) {
		char text[32];
		snprintf(why, why_size, "cannot map %s of memory: %s; choose a smaller --buffer_size or raise `ulimit -v`",
		         app_size_format(bytes, text, sizeof text), strerror(errno));
		return NULL;
	}
	return memory;
}

void app_memory_unmap(void *memory, uint64_t bytes)
{
	if (memory)
		munmap(memory, bytes);
}

const void *app_file_map(const char *path, uint64_t *bytes_p, char *why, size_t why_size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	if (fd < 0 || fstat(fd, &status)) {
		snprintf(why, why_size, "cannot open %s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	if (!S_ISREG(status.st_mode) || status.st_size == 0) {
		snprintf(why, why_size, "%s is %s; a regular file with contents is needed", path,
		         status.st_size ? "not a regular file" : "empty");
		close(fd);
		return NULL;
	}
	void *memory = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (memory == MAP_FAILED) {
		snprintf(why, why_size, "cannot map %s: %s", path, strerror(errno));
		return NULL;
	}
	*bytes_p = (uint64_t)status.st_size;
	return memory;
}

int app_file_write(const char *path, const char *text, char *why, size_t why_size)
{
	char temporary[4096];
	if ((size_t)snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid()) >= sizeof temporary) {
		snprintf(why, why_size, "the path %s is too long", path);
		return -1;
	}
	FILE *file = fopen(temporary, "we");
	if (!file) {
		snprintf(why, why_size, "cannot write %s: %s", temporary, strerror(errno));
		return -1;
	}
	bool written = fputs(text, file) >= 0;
	if (fclose(file) || !written || rename(temporary, path)) {
		snprintf(why, why_size, "cannot write %s: %s", path, strerror(errno));
		unlink(temporary);
		return -1;
	}
	return 0;
}
