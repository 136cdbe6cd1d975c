#include "store/rpc/pipe.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define VECTOR_MAX 64
#define HELD_LEAST 4096u

static void arm(struct neap_rpc_pipe *pipe);

static void fail(struct neap_rpc_pipe *pipe, int error, const char *why)
{
	pipe->broken(pipe, error, why);
}

static void fail_errno(struct neap_rpc_pipe *pipe, ssize_t error)
{
	char why[NEAP_RPC_WHY_MAX];
	(void)snprintf(why, sizeof why, "the connection failed: %s", strerrordesc_np((int)-error));
	fail(pipe, NEAP_EPEER, why);
}

/* --- deadlines -------------------------------------------------------------------------------------------------------- */

static void stalled(struct neap_timer *timer, void *user)
{
	struct neap_rpc_pipe *pipe = user;
	uint64_t now_ns = neap_now(pipe->room->reactor);
	char why[NEAP_RPC_WHY_MAX];
	(void)timer;
	if (pipe->in_due_ns != 0 && pipe->in_due_ns <= now_ns)
		(void)snprintf(why, sizeof why, "a frame was begun and not whole within %llu ms (frame_timeout_ns)",
		               (unsigned long long)(pipe->room->frame_timeout_ns / 1000000));
	else if (pipe->out_due_ns != 0 && pipe->out_due_ns <= now_ns)
		(void)snprintf(why, sizeof why, "the peer took nothing of %zu bytes within %llu ms (progress_timeout_ns)", pipe->queued_bytes,
		               (unsigned long long)(pipe->room->progress_timeout_ns / 1000000));
	else {
		arm(pipe);
		return;
	}
	fail(pipe, NEAP_ETIMEDOUT, why);
}

/* One timer for both directions. */
static void arm(struct neap_rpc_pipe *pipe)
{
	uint64_t due_ns = pipe->in_due_ns;
	if (due_ns == 0 || (pipe->out_due_ns != 0 && pipe->out_due_ns < due_ns))
		due_ns = pipe->out_due_ns;
	if (due_ns == 0)
		neap_timer_cancel(pipe->room->reactor, &pipe->stall);
	else if (!neap_timer_active(&pipe->stall) || pipe->stall.due_ns != due_ns)
		(void)neap_timer_start(pipe->room->reactor, &pipe->stall, due_ns, stalled, pipe);
}

static void want(struct neap_rpc_pipe *pipe, bool writable)
{
	neap_stream_want(pipe->stream, (pipe->paused ? 0u : NEAP_READABLE) | (writable ? NEAP_WRITABLE : 0u));
}

/* --- out -------------------------------------------------------------------------------------------------------------- */

static void pop(struct neap_rpc_pipe *pipe)
{
	struct neap_rpc_block *block = pipe->first;
	pipe->first = block->next;
	if (!pipe->first)
		pipe->last = NULL;
	pipe->queued_bytes -= block->length;
	pipe->written = 0;
	block->next = NULL;
	block->queued = false;
}

/* Blocks of which the last byte was written leave the queue. False: a callback has closed the pipe. */
static bool advance(struct neap_rpc_pipe *pipe, size_t written)
{
	uint64_t serial = pipe->serial;
	while (pipe->first && written >= pipe->first->length - pipe->written) {
		struct neap_rpc_block *block = pipe->first;
		written -= block->length - pipe->written;
		pop(pipe);
		if (pipe->sent)
			pipe->sent(pipe, block);
		neap_rpc_block_release(&pipe->room->blocks, block);
		if (pipe->serial != serial)
			return false;
	}
	pipe->written += (uint32_t)written;
	return true;
}

static int gather(const struct neap_rpc_pipe *pipe, struct iovec vector[VECTOR_MAX], size_t *bytes_p)
{
	int count = 0;
	uint32_t skip = pipe->written;
	*bytes_p = 0;
	for (struct neap_rpc_block *block = pipe->first; block && count < VECTOR_MAX; block = block->next) {
		vector[count++] = (struct iovec){block->bytes + skip, block->length - skip};
		*bytes_p += block->length - skip;
		skip = 0;
	}
	return count;
}

/* The peer takes nothing any more, but what it said before may still be there to be read: its end is then found by reading, soon. */
static bool stop_writing(struct neap_rpc_pipe *pipe, ssize_t error)
{
	if (pipe->paused) {
		fail_errno(pipe, error);
		return false;
	}
	pipe->deaf = true;
	pipe->out_due_ns = neap_now(pipe->room->reactor) + pipe->room->progress_timeout_ns;
	arm(pipe);
	want(pipe, false);
	return true;
}

/* False: the pipe is closed. */
static bool write_queue(struct neap_rpc_pipe *pipe)
{
	bool blocked = false;
	if (!pipe->stream)
		return false;
	if (pipe->deaf)
		return true;
	bool began = pipe->out_due_ns != 0;
	while (pipe->first && !blocked) {
		struct iovec vector[VECTOR_MAX];
		size_t bytes;
		int count = gather(pipe, vector, &bytes);
		ssize_t n = neap_stream_writev(pipe->stream, vector, count);
		if (n < 0 && n != -EAGAIN)
			return stop_writing(pipe, n);
		blocked = n < (ssize_t)bytes;
		if (n > 0) {
			pipe->out_due_ns = 0;
			if (!advance(pipe, (size_t)n))
				return false;
		}
	}
	if (blocked && pipe->out_due_ns == 0)
		pipe->out_due_ns = neap_now(pipe->room->reactor) + pipe->room->progress_timeout_ns;
	else if (!blocked)
		pipe->out_due_ns = 0;
	if (blocked || began) {
		want(pipe, blocked);
		arm(pipe);
	}
	return true;
}

static void run_flush(struct neap_ready *ready)
{
	struct neap_rpc_pipe *pipe = (struct neap_rpc_pipe *)(void *)((char *)ready - offsetof(struct neap_rpc_pipe, flush));
	if (write_queue(pipe) && pipe->moved)
		pipe->moved(pipe);
}

void neap_rpc_pipe_flush(struct neap_rpc_pipe *pipe)
{
	struct iovec vector[VECTOR_MAX];
	size_t bytes;
	if (pipe->stream && pipe->first)
		(void)neap_stream_writev(pipe->stream, vector, gather(pipe, vector, &bytes));
}

void neap_rpc_pipe_send(struct neap_rpc_pipe *pipe, struct neap_rpc_block *block)
{
	if (!pipe->stream || block->queued)
		return;
	block->refs++;
	block->queued = true;
	block->next = NULL;
	*(pipe->last ? &pipe->last->next : &pipe->first) = block;
	pipe->last = block;
	pipe->queued_bytes += block->length;
	if (pipe->out_due_ns == 0) /* else it waits for the peer already */
		neap_ready_again(pipe->room->reactor, &pipe->flush);
}

bool neap_rpc_pipe_withdraw(struct neap_rpc_pipe *pipe, struct neap_rpc_block *block)
{
	if (!block->queued || (pipe->first == block && pipe->written > 0))
		return !block->queued;
	struct neap_rpc_block **slot = &pipe->first, *before = NULL;
	while (*slot && *slot != block) {
		before = *slot;
		slot = &before->next;
	}
	if (!*slot)
		return false;
	*slot = block->next;
	if (pipe->last == block)
		pipe->last = before;
	pipe->queued_bytes -= block->length;
	block->next = NULL;
	block->queued = false;
	neap_rpc_block_release(&pipe->room->blocks, block);
	return true;
}

/* --- in --------------------------------------------------------------------------------------------------------------- */

/* The whole length of the frame that begins here, once its head is there; 0: not known yet. The head was accepted before. */
static size_t frame_length(const struct neap_rpc_pipe *pipe, const uint8_t *bytes, size_t length)
{
	struct neap_rpc_head head;
	char why[NEAP_RPC_WHY_MAX];
	if (length < NEAP_RPC_HEAD_BYTES || neap_rpc_head_read(bytes, pipe->room->body_max, &head, why, sizeof why))
		return 0;
	return NEAP_RPC_HEAD_BYTES + (size_t)head.body_bytes;
}

/* Delivers the whole frames among these bytes; *used_p: how many bytes they had. False: the pipe is closed or broken. */
static bool deliver(struct neap_rpc_pipe *pipe, const uint8_t *bytes, size_t length, size_t *used_p)
{
	uint64_t serial = pipe->serial;
	char why[NEAP_RPC_WHY_MAX];
	size_t at = 0;
	while (at < length && !pipe->paused) {
		struct neap_rpc_head head;
		size_t left = length - at;
		int error = left < NEAP_RPC_HEAD_BYTES ? neap_rpc_head_begins(bytes + at, left, why, sizeof why)
		                                       : neap_rpc_head_read(bytes + at, pipe->room->body_max, &head, why, sizeof why);
		if (error) {
			fail(pipe, error, why);
			return false;
		}
		if (left < NEAP_RPC_HEAD_BYTES || left - NEAP_RPC_HEAD_BYTES < head.body_bytes)
			break;
		pipe->frame(pipe, &head, bytes + at + NEAP_RPC_HEAD_BYTES);
		if (pipe->serial != serial)
			return false;
		at += NEAP_RPC_HEAD_BYTES + head.body_bytes;
	}
	*used_p = at;
	return true;
}

/* Keeps what is not a whole frame yet. Its deadline runs from its own first byte: `fresh` when frames before it were delivered. */
static bool hold(struct neap_rpc_pipe *pipe, const uint8_t *bytes, size_t length, bool fresh)
{
	struct neap_rpc_block *held = pipe->held;
	if (held && (length == 0 || length > held->capacity)) {
		neap_rpc_block_release(&pipe->room->blocks, held);
		held = pipe->held = NULL;
	}
	if (length > 0 && !held)
		held = pipe->held = neap_rpc_block_take(&pipe->room->blocks, length < HELD_LEAST ? length : HELD_LEAST + length);
	if (length > 0 && !held) {
		fail(pipe, NEAP_ENOMEM, "no memory for a frame that is not whole yet");
		return false;
	}
	if (length > 0) {
		memcpy(held->bytes, bytes, length);
		held->length = (uint32_t)length;
	}
	if (length == 0 || pipe->paused)
		pipe->in_due_ns = 0;
	else if (fresh || pipe->in_due_ns == 0)
		pipe->in_due_ns = neap_now(pipe->room->reactor) + pipe->room->frame_timeout_ns;
	if (pipe->in_due_ns != 0 || neap_timer_active(&pipe->stall))
		arm(pipe);
	return true;
}

static bool cut(struct neap_rpc_pipe *pipe, const uint8_t *bytes, size_t length)
{
	size_t used = 0;
	if (!deliver(pipe, bytes, length, &used))
		return false;
	return hold(pipe, bytes + used, length - used, used > 0);
}

static void read_failed(struct neap_rpc_pipe *pipe, ssize_t n)
{
	char why[NEAP_RPC_WHY_MAX];
	if (n < 0) {
		fail_errno(pipe, n);
	} else if (pipe->held) {
		(void)snprintf(why, sizeof why, "the peer closed in the middle of a frame, after %u bytes of it", pipe->held->length);
		fail(pipe, NEAP_EPEER, why);
	} else {
		fail(pipe, NEAP_OK, "the peer closed the connection");
	}
}

/* A frame longer than the scratch buffer is collected in memory of its own, which doubles as it fills. */
static bool grow(struct neap_rpc_pipe *pipe, size_t whole)
{
	struct neap_rpc_block *held = pipe->held;
	if (held->length < held->capacity)
		return true;
	size_t capacity = 2 * (size_t)held->capacity < whole ? 2 * (size_t)held->capacity : whole;
	struct neap_rpc_block *larger = neap_rpc_block_take(&pipe->room->blocks, capacity);
	if (!larger) {
		fail(pipe, NEAP_ENOMEM, "no memory for a frame that is not whole yet");
		return false;
	}
	memcpy(larger->bytes, held->bytes, held->length);
	larger->length = held->length;
	neap_rpc_block_release(&pipe->room->blocks, held);
	pipe->held = larger;
	return true;
}

static bool receive_long(struct neap_rpc_pipe *pipe, size_t whole)
{
	if (!grow(pipe, whole))
		return false;
	struct neap_rpc_block *held = pipe->held;
	size_t room = (held->capacity < whole ? held->capacity : whole) - held->length;
	struct iovec vector = {held->bytes + held->length, room};
	ssize_t n = neap_stream_readv(pipe->stream, &vector, 1);
	if (n <= 0) {
		if (n != -EAGAIN)
			read_failed(pipe, n);
		return n == -EAGAIN;
	}
	pipe->received_ns = neap_now(pipe->room->reactor);
	held->length += (uint32_t)n;
	if (held->length < whole)
		return true;
	pipe->held = NULL;
	bool open = cut(pipe, held->bytes, held->length);
	neap_rpc_block_release(&pipe->room->blocks, held);
	return open;
}

/* One read. False: the pipe is closed. */
static bool receive(struct neap_rpc_pipe *pipe)
{
	struct neap_rpc_room *room = pipe->room;
	size_t before = pipe->held ? pipe->held->length : 0;
	size_t whole = pipe->held ? frame_length(pipe, pipe->held->bytes, before) : 0;
	if (whole > NEAP_RPC_SCRATCH_BYTES)
		return receive_long(pipe, whole);
	if (before > 0)
		memcpy(room->scratch, pipe->held->bytes, before);
	struct iovec vector = {room->scratch + before, NEAP_RPC_SCRATCH_BYTES - before};
	ssize_t n = neap_stream_readv(pipe->stream, &vector, 1);
	if (n <= 0) {
		if (n != -EAGAIN)
			read_failed(pipe, n);
		return n == -EAGAIN;
	}
	pipe->received_ns = neap_now(room->reactor);
	return cut(pipe, room->scratch, before + (size_t)n);
}

static void on_ready(struct neap_stream *stream, unsigned ready)
{
	struct neap_rpc_pipe *pipe = stream->user;
	uint64_t serial = pipe->serial;
	bool failed = ready & (NEAP_HANGUP | NEAP_ERROR_READY);
	if (!pipe->paused && !pipe->more.queued && (ready & NEAP_READABLE || failed) && !receive(pipe))
		return;
	if (pipe->serial != serial || ((ready & NEAP_WRITABLE || failed) && pipe->first && !write_queue(pipe)))
		return;
	if (pipe->moved)
		pipe->moved(pipe);
}

/* What was held back while paused. */
static void run_more(struct neap_ready *ready)
{
	struct neap_rpc_pipe *pipe = (struct neap_rpc_pipe *)(void *)((char *)ready - offsetof(struct neap_rpc_pipe, more));
	struct neap_rpc_block *held = pipe->held;
	if (!pipe->stream || pipe->paused)
		return;
	if (held && held->length <= NEAP_RPC_SCRATCH_BYTES) {
		uint8_t *scratch = pipe->room->scratch;
		memcpy(scratch, held->bytes, held->length);
		if (!cut(pipe, scratch, held->length))
			return;
	}
	if (pipe->moved)
		pipe->moved(pipe);
}

void neap_rpc_pipe_pause(struct neap_rpc_pipe *pipe)
{
	if (!pipe->stream || pipe->paused)
		return;
	pipe->paused = true;
	pipe->in_due_ns = 0;
	arm(pipe);
	want(pipe, pipe->out_due_ns != 0);
}

void neap_rpc_pipe_resume(struct neap_rpc_pipe *pipe)
{
	if (!pipe->stream || !pipe->paused)
		return;
	pipe->paused = false;
	if (pipe->held) {
		pipe->in_due_ns = neap_now(pipe->room->reactor) + pipe->room->frame_timeout_ns;
		arm(pipe);
		neap_ready_again(pipe->room->reactor, &pipe->more);
	}
	want(pipe, pipe->out_due_ns != 0);
}

/* --- life ------------------------------------------------------------------------------------------------------------- */

void neap_rpc_pipe_open(struct neap_rpc_pipe *pipe, struct neap_stream *stream)
{
	pipe->stream = stream;
	pipe->serial++;
	pipe->flush.run = run_flush;
	pipe->more.run = run_more;
	pipe->received_ns = neap_now(pipe->room->reactor);
	pipe->in_due_ns = pipe->out_due_ns = 0;
	pipe->paused = pipe->deaf = false;
	stream->user = pipe;
	stream->ready = on_ready;
	want(pipe, false);
}

void neap_rpc_pipe_close(struct neap_rpc_pipe *pipe, bool abortive)
{
	struct neap_rpc_blocks *blocks = &pipe->room->blocks;
	if (!pipe->stream)
		return;
	neap_stream_close(pipe->stream, abortive);
	pipe->stream = NULL;
	pipe->serial++;
	neap_timer_cancel(pipe->room->reactor, &pipe->stall);
	neap_ready_cancel(pipe->room->reactor, &pipe->flush);
	neap_ready_cancel(pipe->room->reactor, &pipe->more);
	while (pipe->first) {
		struct neap_rpc_block *block = pipe->first;
		pop(pipe);
		neap_rpc_block_release(blocks, block);
	}
	neap_rpc_block_release(blocks, pipe->held);
	pipe->held = NULL;
}
