/* Buffers of the programs: page-aligned memory of its own mapping. */
#ifndef APPS_COMMON_MEMORY_H
#define APPS_COMMON_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL when there is not that much; `why` says what to do. `touch`: every page is there afterwards. */
void *app_memory_map(uint64_t bytes, bool touch, char *why, size_t why_size);
void app_memory_unmap(void *memory, uint64_t bytes);

/* The whole file, read-only. NULL: `why` says why. */
const void *app_file_map(const char *path, uint64_t *bytes_p, char *why, size_t why_size);

/* Writes a small file so that a reader sees all of it or nothing. */
int app_file_write(const char *path, const char *text, char *why, size_t why_size);

#endif
