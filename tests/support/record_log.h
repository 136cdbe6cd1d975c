/* A log of all that a back-end's machines asked of their driver, were told by it and told their owner, in one order: written against a real
 * server, and played again without one. A line is: milliseconds since the beginning, what, which connection or request, a number, and
 * '=' with the text (other than printable bytes as %XX). */
#ifndef SUPPORT_RECORD_LOG_H
#define SUPPORT_RECORD_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct record_line {
	unsigned long at_ms;
	char what[24];
	uint32_t which;
	int64_t number;
	char *text; /* heap; ends in NUL */
	size_t length;
};

struct record_log {
	FILE *file;
	bool plays;              /* false: records */
	bool failed;             /* playing: the machines did something else. It is said on stderr */
	unsigned at;             /* line number */
	uint64_t began_ns;
	struct record_line line; /* playing: the one that comes next; what "": the end */
};

bool record_open(struct record_log *log, const char *path, bool plays);
void record_close(struct record_log *log);

/* What the machines do: it is written down, or has to be what comes next. */
void record_did(struct record_log *log, const char *what, uint32_t which, int64_t number, const char *text, size_t length);
/* What is done to them, when recording. */
void record_happened(struct record_log *log, const char *what, uint32_t which, int64_t number, const char *text, size_t length);
/* Playing: goes to the next line and hands out the present one, whose text is the caller's to free. */
struct record_line record_take(struct record_log *log);

#endif
