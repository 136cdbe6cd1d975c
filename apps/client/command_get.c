/* get: a value into a file, all of it or nothing, or to standard output. */
#include "apps/client/command.h"
#include "transports/checksum.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WINDOW 8u

/* Where it goes. A file is written under another name and renamed. For anything else the value is collected first: a reader that waits
 * does not keep the neap-client's memory, and gets no half value. */
struct target {
	const char *path; /* NULL: standard output */
	char temporary[4096];
	int fd;
	unsigned char *memory; /* collected here; NULL: into the file */
	uint64_t done;
	uint32_t crc;
	bool sum, failed;
	int error;
};

struct begun {
	uint64_t transfer, frame, size;
	bool has_crc, of_owner;
	uint32_t crc;
	char owner[273];
};

static void on_begun(void *user, const void *reply)
{
	const struct local_get_begin_reply *begin = reply;
	struct begun *begun = user;
	*begun = (struct begun){.transfer = begin->transfer,
	                        .frame = begin->frame_max,
	                        .size = begin->size_bytes,
	                        .has_crc = begin->has_crc,
	                        .of_owner = begin->crc_of_owner,
	                        .crc = (uint32_t)begin->crc32c};
	if (begin->owner.length)
		snprintf(begun->owner, sizeof begun->owner, "%.*s", (int)begin->owner.length, begin->owner.bytes);
}

static bool write_all(struct target *target, const void *bytes, size_t length)
{
	const unsigned char *from = bytes;
	while (length) {
		ssize_t n = write(target->fd, from, length);
		if (n < 0 && errno == EINTR && !client_interrupted())
			continue;
		if (n < 0) {
			target->failed = true;
			target->error = errno;
			return false;
		}
		from += n;
		length -= (size_t)n;
	}
	return true;
}

static void on_data(void *user, const void *reply)
{
	const struct local_get_data_reply *data = reply;
	struct target *target = user;
	if (target->failed)
		return;
	if (target->sum)
		target->crc = neap_crc32c(target->crc, data->data.bytes, data->data.length);
	if (target->memory)
		memcpy(target->memory + target->done, data->data.bytes, data->data.length);
	else if (!write_all(target, data->data.bytes, data->data.length))
		return;
	target->done += data->data.length;
}

static int cannot_write(const struct client_link *link, const struct target *target)
{
	app_error(link->program, "cannot write %s: %s", target->path ? target->path : "to standard output", strerror(target->error));
	return CLIENT_FAILED;
}

static int open_target(const struct client_link *link, struct target *target, uint64_t size)
{
	struct stat status;
	bool is_file = target->path && (stat(target->path, &status) || S_ISREG(status.st_mode));
	size_t length = 0;
	if (!target->path)
		target->fd = STDOUT_FILENO;
	else if (!is_file)
		target->fd = open(target->path, O_WRONLY | O_CLOEXEC);
	else
		length = (size_t)snprintf(target->temporary, sizeof target->temporary, "%s.%ld.part", target->path, (long)getpid());
	if (length >= sizeof target->temporary) {
		target->temporary[0] = 0;
		target->error = ENAMETOOLONG;
		return cannot_write(link, target);
	}
	if (is_file)
		target->fd = open(target->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (target->fd < 0) {
		target->error = errno;
		target->temporary[0] = 0;
		return cannot_write(link, target);
	}
	if (!is_file && !(target->memory = malloc(size))) {
		app_error(link->program, "out of memory for %" PRIu64 " bytes; get it into a file: that needs none", size);
		return CLIENT_FAILED;
	}
	return -1;
}

static void close_target(struct target *target, bool keep)
{
	if (target->fd > STDOUT_FILENO)
		close(target->fd);
	if (target->temporary[0] && !keep)
		unlink(target->temporary);
	free(target->memory);
}

static int take_all(struct client_link *link, const struct begun *begun, struct target *target, const char *what, bool quiet)
{
	static struct client_call calls[WINDOW];
	struct client_progress progress;
	uint64_t frame = begun->frame && begun->frame < LOCAL_FRAME_BYTES ? begun->frame : LOCAL_FRAME_BYTES;
	uint64_t count = (begun->size + frame - 1) / frame;
	client_progress_begin(&progress, what, begun->size, quiet);
	int result = -1;
	for (uint64_t i = 0; i < count + WINDOW && result < 0; i++) {
		struct client_call *call = &calls[i % WINDOW];
		if (i >= WINDOW && i - WINDOW < count) {
			result = client_link_wait(link, call, what);
			client_progress_show(&progress, target->done);
		}
		if (i >= count || result >= 0)
			continue;
		uint64_t offset = i * frame, length = begun->size - offset < frame ? begun->size - offset : frame;
		*call = (struct client_call){.take = on_data, .user = target};
		client_link_begin(link, call, &local_method_get_data,
		                  &(struct local_get_data){.transfer = begun->transfer, .offset = offset, .length = length});
	}
	client_progress_end(&progress);
	if (result < 0 && target->failed)
		return cannot_write(link, target);
	if (result < 0 && target->done != begun->size) {
		app_error(link->program, "%s: %" PRIu64 " of %" PRIu64 " bytes came", what, target->done, begun->size);
		return CLIENT_FAILED;
	}
	return result;
}

/* The bytes are here: looks at their sum, and puts them where they belong. */
static int finish(struct client_link *link, const struct begun *begun, struct target *target, const char *what)
{
	if (target->sum && begun->has_crc && target->crc != begun->crc) {
		app_error(link->program, "%s: the bytes that came have the crc32c %08x, those of the %s have %08x; nothing was written", what,
		          target->crc, begun->of_owner ? "owner" : "neap-client", begun->crc);
		return CLIENT_FAILED;
	}
	if (target->memory && !write_all(target, target->memory, target->done))
		return cannot_write(link, target);
	if (target->temporary[0] && (close(target->fd) || (target->fd = -1, rename(target->temporary, target->path)))) {
		target->error = errno;
		target->fd = -1;
		return cannot_write(link, target);
	}
	return CLIENT_OK;
}

int client_get(struct client_link *link, const struct client_asked *asked)
{
	static struct begun begun;
	static struct target target; /* outlives a wait that a signal ends */
	char what[300];
	const char *path = asked->list.count > 1 && strcmp(asked->words[1], "-") ? asked->words[1] : NULL;
	client_key_text(asked->words[0], strlen(asked->words[0]), what, sizeof what);
	target = (struct target){.path = path, .fd = -1, .sum = strcmp(asked->verify, "none") != 0};
	struct local_get_begin begin = {.key = neap_rpc_view_of(asked->words[0], strlen(asked->words[0])),
	                                .direction = client_direction_of(asked),
	                                .verify = target.sum};
	int result = client_link_ask(link, &local_method_get_begin, &begin, on_begun, &begun, what);
	if (result >= 0)
		return result;
	result = open_target(link, &target, begun.size);
	if (result < 0)
		result = take_all(link, &begun, &target, what, asked->quiet || !path);
	if (result < 0)
		result = finish(link, &begun, &target, what);
	close_target(&target, result == CLIENT_OK);
	if (result == CLIENT_OK && path && !asked->quiet)
		printf("%s: %" PRIu64 " bytes%s%s\n", what, begun.size, begun.owner[0] ? " from " : "", begun.owner);
	return result;
}
