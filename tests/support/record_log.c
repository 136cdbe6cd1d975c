#include "tests/support/record_log.h"
#include "tests/support/drive.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void write_text(FILE *file, const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)text[i];
		if (c > ' ' && c < 0x7f && c != '%')
			fputc(c, file);
		else
			fprintf(file, "%%%02x", c);
	}
}

static size_t read_text(char *text)
{
	size_t out = 0;
	for (char *in = text; *in; in++) {
		unsigned value;
		if (*in == '%' && isxdigit((unsigned char)in[1]) && isxdigit((unsigned char)in[2]) && sscanf(in + 1, "%2x", &value) == 1) {
			text[out++] = (char)value;
			in += 2;
		} else {
			text[out++] = *in;
		}
	}
	text[out] = '\0';
	return out;
}

/* A line that cannot be read is the end. */
static void read_next(struct record_log *log)
{
	char *line = NULL;
	size_t capacity = 0;
	ssize_t length = getline(&line, &capacity, log->file);
	long long number;
	int at = 0;
	memset(&log->line, 0, sizeof log->line);
	log->at++;
	while (length > 0 && line[length - 1] == '\n')
		line[--length] = '\0';
	if (length > 0 && sscanf(line, "%lu %23s %u %lld =%n", &log->line.at_ms, log->line.what, &log->line.which, &number, &at) == 4 && at > 0) {
		log->line.number = number;
		log->line.text = strdup(line + at);
		log->line.length = read_text(log->line.text);
	} else {
		log->line.what[0] = '\0';
	}
	free(line);
}

bool record_open(struct record_log *log, const char *path, bool plays)
{
	memset(log, 0, sizeof *log);
	log->plays = plays;
	log->began_ns = drive_now_ns();
	log->file = fopen(path, plays ? "r" : "w");
	if (!log->file)
		perror(path);
	else if (plays)
		read_next(log);
	return log->file != NULL;
}

void record_close(struct record_log *log)
{
	free(log->line.text);
	if (log->file)
		fclose(log->file);
	log->file = NULL;
}

void record_happened(struct record_log *log, const char *what, uint32_t which, int64_t number, const char *text, size_t length)
{
	if (log->plays)
		return;
	fprintf(log->file, "%lu %s %u %lld =", (unsigned long)((drive_now_ns() - log->began_ns) / 1000000), what, which, (long long)number);
	write_text(log->file, text, length);
	fputc('\n', log->file);
	fflush(log->file);
}

struct record_line record_take(struct record_log *log)
{
	struct record_line line = log->line;
	read_next(log);
	return line;
}

void record_did(struct record_log *log, const char *what, uint32_t which, int64_t number, const char *text, size_t length)
{
	const struct record_line *line = &log->line;
	if (!log->plays) {
		record_happened(log, what, which, number, text, length);
		return;
	}
	if (log->failed)
		return;
	log->failed = strcmp(line->what, what) != 0 || line->which != which || line->number != number || line->length != length ||
	              (length && memcmp(line->text, text, length) != 0);
	if (log->failed)
		fprintf(stderr, "line %u: expected: %s %u %lld =%.200s\n         but did: %s %u %lld =%.*s\n", log->at, line->what, line->which,
		        (long long)line->number, line->text ? line->text : "", what, which, (long long)number, (int)(length < 200 ? length : 200),
		        text ? text : "");
	else
		free(record_take(log).text);
}
