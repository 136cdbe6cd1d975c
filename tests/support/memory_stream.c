#include "tests/support/memory_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct memory_end *end_of(struct neap_stream *stream)
{
	return (struct memory_end *)(void *)stream;
}

static struct memory_end *other_of(struct memory_end *end)
{
	return &end->pair->ends[end == &end->pair->ends[0]];
}

static size_t space(const struct memory_queue *queue)
{
	return queue->size - queue->used;
}

static unsigned readiness(struct memory_end *end)
{
	unsigned ready = 0;
	if (end->reset)
		return NEAP_READABLE | NEAP_WRITABLE | NEAP_ERROR_READY | NEAP_HANGUP;
	/* As a kernel does: a mark above what the buffer can hold is met by a full buffer. */
	size_t mark = end->low_water < end->in.size ? end->low_water : end->in.size;
	if (end->in.finished || (end->in.used > 0 && end->in.used >= mark))
		ready |= NEAP_READABLE;
	if (space(&other_of(end)->in) > 0)
		ready |= NEAP_WRITABLE;
	return ready;
}

static unsigned due(struct memory_end *end)
{
	if (end->closed || !end->wanted || !end->base.ready)
		return 0;
	return readiness(end) & (end->wanted | NEAP_ERROR_READY | NEAP_HANGUP);
}

static void notice(struct memory_end *end)
{
	if (due(end))
		neap_ready_again(end->base.reactor, &end->notice);
}

static void run_notice(struct neap_ready *ready)
{
	struct memory_end *end = (struct memory_end *)(void *)((char *)ready - offsetof(struct memory_end, notice));
	unsigned set = due(end);
	if (set)
		end->base.ready(&end->base, set);
	notice(end);
}

/* --- the queue ---------------------------------------------------------------------------------------------------------- */

static void take_out(struct memory_queue *queue, unsigned char *to, size_t length)
{
	size_t first = queue->size - queue->head < length ? queue->size - queue->head : length;
	memcpy(to, queue->bytes + queue->head, first);
	memcpy(to + first, queue->bytes, length - first);
	queue->head = (queue->head + length) % queue->size;
	queue->used -= length;
}

static void put_in(struct memory_queue *queue, const unsigned char *from, size_t length)
{
	size_t at = (queue->head + queue->used) % queue->size;
	size_t first = queue->size - at < length ? queue->size - at : length;
	memcpy(queue->bytes + at, from, first);
	memcpy(queue->bytes, from + first, length - first);
	queue->used += length;
}

/* --- the stream ----------------------------------------------------------------------------------------------------------- */

static ssize_t end_readv(struct neap_stream *stream, const struct iovec *vector, int count)
{
	struct memory_end *end = end_of(stream);
	size_t left = end->in.used < end->call_max ? end->in.used : end->call_max, moved = 0;
	end->reads++;
	if (end->closed)
		return -EBADF;
	if (end->reset)
		return -ECONNRESET;
	if (end->in.used == 0)
		return end->in.finished ? 0 : -EAGAIN;
	for (int i = 0; i < count && left > 0; i++) {
		size_t piece = vector[i].iov_len < left ? vector[i].iov_len : left;
		take_out(&end->in, vector[i].iov_base, piece);
		moved += piece;
		left -= piece;
	}
	end->read_bytes += moved;
	notice(other_of(end));
	return (ssize_t)moved;
}

static ssize_t end_writev(struct neap_stream *stream, const struct iovec *vector, int count)
{
	struct memory_end *end = end_of(stream), *other = other_of(end);
	size_t left = space(&other->in) < end->call_max ? space(&other->in) : end->call_max, moved = 0;
	end->writes++;
	if (end->closed)
		return -EBADF;
	if (end->reset || other->closed || other->in.finished)
		return end->reset ? -ECONNRESET : -EPIPE;
	if (space(&other->in) == 0)
		return -EAGAIN;
	for (int i = 0; i < count && left > 0; i++) {
		size_t piece = vector[i].iov_len < left ? vector[i].iov_len : left;
		put_in(&other->in, vector[i].iov_base, piece);
		moved += piece;
		left -= piece;
	}
	end->written_bytes += moved;
	notice(other);
	return (ssize_t)moved;
}

static void end_want(struct neap_stream *stream, unsigned wanted)
{
	end_of(stream)->wanted = wanted;
	notice(end_of(stream));
}

static void end_shutdown_write(struct neap_stream *stream)
{
	struct memory_end *other = other_of(end_of(stream));
	other->in.finished = true;
	notice(other);
}

static void end_low_water(struct neap_stream *stream, uint32_t bytes)
{
	end_of(stream)->low_water = bytes;
	notice(end_of(stream));
}

static void end_no_delay(struct neap_stream *stream)
{
	(void)stream;
}

static int64_t end_unacknowledged(struct neap_stream *stream)
{
	return (int64_t)other_of(end_of(stream))->in.used;
}

/* As a socket: an abortive close, or one with unread bytes, resets the other end. */
static void end_close(struct neap_stream *stream, bool abortive)
{
	struct memory_end *end = end_of(stream), *other = other_of(end);
	if (end->closed)
		return;
	end->closed = true;
	end->abortive = abortive;
	end->base.ready = NULL;
	neap_ready_cancel(end->base.reactor, &end->notice);
	if (abortive || end->in.used > 0) {
		other->reset = true;
		other->in.used = 0;
	}
	other->in.finished = true;
	notice(other);
}

static int end_address(struct neap_stream *stream, struct neap_sockaddr *address_p)
{
	(void)stream;
	*address_p = (struct neap_sockaddr){.length = sizeof address_p->v4,
	                                    .v4 = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr = {htonl(INADDR_LOOPBACK)}}};
	return NEAP_OK;
}

static const struct neap_stream_ops end_ops = {
	.readv = end_readv,
	.writev = end_writev,
	.want = end_want,
	.shutdown_write = end_shutdown_write,
	.low_water = end_low_water,
	.no_delay = end_no_delay,
	.unacknowledged = end_unacknowledged,
	.close = end_close,
	.local_address = end_address,
	.peer_address = end_address,
};

void memory_pair_open(struct memory_pair *pair, struct neap_reactor *reactor, size_t capacity)
{
	for (int i = 0; i < 2; i++) {
		pair->ends[i] = (struct memory_end){.base = {.ops = &end_ops, .reactor = reactor},
		                                    .pair = pair,
		                                    .in = {.bytes = malloc(capacity), .size = capacity},
		                                    .notice = {.run = run_notice},
		                                    .low_water = 1,
		                                    .call_max = SIZE_MAX};
		if (!pair->ends[i].in.bytes)
			abort();
	}
}

void memory_pair_release(struct memory_pair *pair)
{
	for (int i = 0; i < 2; i++) {
		struct memory_end *end = &pair->ends[i];
		end->closed = true;
		neap_ready_cancel(end->base.reactor, &end->notice);
		free(end->in.bytes);
		end->in.bytes = NULL;
	}
}

ssize_t memory_end_write(struct memory_end *end, const void *bytes, size_t length)
{
	struct iovec vector = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
	return neap_stream_writev(&end->base, &vector, 1);
}

ssize_t memory_end_read(struct memory_end *end, void *bytes, size_t length)
{
	struct iovec vector = {.iov_base = bytes, .iov_len = length};
	return neap_stream_readv(&end->base, &vector, 1);
}

/* --- a net without a network ---------------------------------------------------------------------------------------------- */

static struct neap_stream *no_connect(struct neap_net *net, struct neap_reactor *reactor, const struct neap_sockaddr *address,
                                      const struct neap_socket_options *options, int *error_p)
{
	(void)net, (void)reactor, (void)address, (void)options;
	*error_p = -ENETUNREACH;
	return NULL;
}

static int no_connect_result(struct neap_stream *stream)
{
	(void)stream;
	return -ENETUNREACH;
}

static struct neap_listener *no_listen(struct neap_net *net, struct neap_reactor *reactor, const struct neap_sockaddr *address,
                                       const struct neap_socket_options *options, int *error_p)
{
	(void)net, (void)reactor, (void)address, (void)options;
	*error_p = -EADDRNOTAVAIL;
	return NULL;
}

static struct neap_resolution *no_resolve(struct neap_net *net, struct neap_reactor *reactor, const char *host, uint16_t port,
                                          int family, neap_resolved_func *resolved, void *user, int *error_p)
{
	(void)net, (void)reactor, (void)host, (void)port, (void)family, (void)resolved, (void)user;
	*error_p = NEAP_EDNS;
	return NULL;
}

static void no_resolve_cancel(struct neap_resolution *resolution)
{
	(void)resolution;
}

struct neap_net *memory_net(void)
{
	static struct neap_net net = {.connect = no_connect,
	                              .connect_result = no_connect_result,
	                              .listen = no_listen,
	                              .resolve = no_resolve,
	                              .resolve_cancel = no_resolve_cancel};
	return &net;
}
