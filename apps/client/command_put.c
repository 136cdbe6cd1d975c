/* put: a file or a pipe into the cluster. */
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

struct source {
	const char *name;
	int fd;
	uint64_t size;
	unsigned char *spooled; /* all of it; NULL: it is read as it goes */
};

static int cannot_read(const struct client_link *link, const struct source *source)
{
	app_error(link->program, "cannot read %s: %s", source->name, strerror(errno));
	return CLIENT_FAILED;
}

/* What has no length is read to its end first. */
static int spool(const struct client_link *link, struct source *source, uint64_t max)
{
	size_t room = 1u << 20;
	for (;;) {
		if (!source->spooled || source->size == room) {
			room = source->spooled ? room * 2 : room;
			unsigned char *larger = realloc(source->spooled, room);
			if (!larger) {
				app_error(link->program, "out of memory after %" PRIu64 " bytes of %s", source->size, source->name);
				return CLIENT_FAILED;
			}
			source->spooled = larger;
		}
		ssize_t n = read(source->fd, source->spooled + source->size, room - source->size);
		if (n < 0 && errno == EINTR && !client_interrupted())
			continue;
		if (n < 0)
			return cannot_read(link, source);
		if (!n)
			return -1;
		source->size += (uint64_t)n;
		if (source->size > max) {
			app_error(link->program, "%s has more than %" PRIu64 " bytes (--spool_max); raise it, or put a file: that needs no memory here",
			          source->name, max);
			return CLIENT_FAILED;
		}
	}
}

static int open_source(const struct client_link *link, const struct client_asked *asked, struct source *source)
{
	struct stat status;
	const char *path = asked->list.count > 1 ? asked->words[1] : "-";
	bool is_input = !strcmp(path, "-");
	*source = (struct source){.name = is_input ? "standard input" : path};
	source->fd = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (source->fd < 0 || fstat(source->fd, &status)) {
		app_error(link->program, "cannot open %s: %s", source->name, strerror(errno));
		return CLIENT_FAILED;
	}
	if (S_ISDIR(status.st_mode)) {
		app_error(link->program, "%s is a directory; a value is the content of one file", source->name);
		return CLIENT_FAILED;
	}
	int result = -1;
	if (S_ISREG(status.st_mode) && !lseek(source->fd, 0, SEEK_CUR))
		source->size = (uint64_t)status.st_size;
	else
		result = spool(link, source, asked->spool_max);
	if (result < 0 && !source->size) {
		app_error(link->program, "%s is empty; a value has at least one byte", source->name);
		return CLIENT_FAILED;
	}
	return result;
}

static void close_source(struct source *source)
{
	free(source->spooled);
	if (source->fd > STDIN_FILENO)
		close(source->fd);
}

/* The next `length` bytes, in `room` or where they are. NULL after a message. */
static const unsigned char *take(const struct client_link *link, const struct source *source, uint64_t offset, size_t length,
                                 unsigned char *room)
{
	if (source->spooled)
		return source->spooled + offset;
	for (size_t have = 0; have < length;) {
		ssize_t n = read(source->fd, room + have, length - have);
		if (n < 0 && errno == EINTR && !client_interrupted())
			continue;
		if (n < 0) {
			cannot_read(link, source);
			return NULL;
		}
		if (!n) {
			app_error(link->program, "%s became shorter while it was read: nothing was stored", source->name);
			return NULL;
		}
		have += (size_t)n;
	}
	return room;
}

struct begun {
	uint64_t transfer, frame;
};

static void on_begun(void *user, const void *reply)
{
	const struct local_put_begin_reply *begin = reply;
	*(struct begun *)user = (struct begun){begin->transfer, begin->frame_max};
}

/* Frames, WINDOW of them on their way. */
static int send_all(struct client_link *link, const struct source *source, const struct begun *begun, uint32_t *crc_p, bool sum,
                    struct client_progress *progress)
{
	static struct client_call calls[WINDOW];
	static unsigned char room[LOCAL_FRAME_BYTES];
	uint64_t frame = begun->frame && begun->frame < LOCAL_FRAME_BYTES ? begun->frame : LOCAL_FRAME_BYTES;
	uint64_t count = (source->size + frame - 1) / frame;
	for (uint64_t i = 0; i < count + WINDOW; i++) {
		struct client_call *call = &calls[i % WINDOW];
		if (i >= WINDOW && i - WINDOW < count) {
			int result = client_link_wait(link, call, source->name);
			if (result >= 0)
				return result;
			client_progress_show(progress, (i - WINDOW) * frame);
		}
		if (i >= count)
			continue;
		uint64_t offset = i * frame, length = source->size - offset < frame ? source->size - offset : frame;
		const unsigned char *bytes = take(link, source, offset, length, room);
		if (!bytes)
			return CLIENT_FAILED;
		if (sum)
			*crc_p = neap_crc32c(*crc_p, bytes, length);
		client_link_begin(link, call, &local_method_put_data,
		                  &(struct local_put_data){.transfer = begun->transfer, .offset = offset, .data = neap_rpc_view_of(bytes, length)});
	}
	return -1;
}

struct stored {
	bool created;
	uint64_t size, generation;
	char owner[273];
};

static void on_stored(void *user, const void *reply)
{
	const struct local_put_end_reply *end = reply;
	struct stored *stored = user;
	*stored = (struct stored){.created = end->created, .size = end->size_bytes, .generation = end->generation};
	if (end->owner.length)
		snprintf(stored->owner, sizeof stored->owner, "%.*s", (int)end->owner.length, end->owner.bytes);
}

static int send_value(struct client_link *link, const struct client_asked *asked, const struct source *source, const char *what)
{
	struct client_progress progress;
	static struct begun begun;
	static struct stored stored;
	uint32_t crc = 0;
	bool sum = strcmp(asked->verify, "none") != 0;
	struct local_put_begin begin = {.key = neap_rpc_view_of(asked->words[0], strlen(asked->words[0])), .size_bytes = source->size};
	int result = client_link_ask(link, &local_method_put_begin, &begin, on_begun, &begun, what);
	if (result >= 0)
		return result;
	client_progress_begin(&progress, what, source->size, asked->quiet);
	result = send_all(link, source, &begun, &crc, sum, &progress);
	client_progress_end(&progress);
	if (result >= 0)
		return result;
	struct local_put_end end = {.transfer = begun.transfer, .direction = client_direction_of(asked), .has_crc = sum, .crc32c = crc};
	result = client_link_ask(link, &local_method_put_end, &end, on_stored, &stored, what);
	if (result >= 0)
		return result;
	if (!asked->quiet)
		printf("%s: %s, %" PRIu64 " bytes%s%s\n", what, stored.created ? "stored" : "was there already", stored.size,
		       stored.owner[0] ? " at " : "", stored.owner);
	return client_flush(link) < 0 ? CLIENT_OK : CLIENT_FAILED;
}

int client_put(struct client_link *link, const struct client_asked *asked)
{
	struct source source;
	char what[300];
	client_key_text(asked->words[0], strlen(asked->words[0]), what, sizeof what);
	int result = open_source(link, asked, &source);
	if (result < 0)
		result = send_value(link, asked, &source, what);
	close_source(&source);
	return result;
}
