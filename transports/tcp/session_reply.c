/* The answers of one session: a bounded ring in the order of the requests, gathered with the memory of READs into as few sendmsg as
 * possible. A READ's memory is asked about again before each of them. */
#include "transports/tcp/session.h"
#include <errno.h>

#define RING_MASK (NEAP_TCP_REPLIES - 1)

static struct neap_tcp_reply *last_reply(struct neap_tcp_work *work)
{
	return work->reply_head == work->reply_tail ? NULL : &work->replies[(work->reply_tail - 1) & RING_MASK];
}

static struct neap_tcp_reply *new_reply(struct neap_tcp_work *work)
{
	struct neap_tcp_reply *reply = &work->replies[work->reply_tail++ & RING_MASK];
	reply->tail = NEAP_TCP_TAIL_NONE;
	reply->ok_words = 0;
	reply->length = 0;
	reply->crc_done = false;
	return reply;
}

/* The last one when more can be said behind its words, else a new one. */
static struct neap_tcp_reply *open_reply(struct neap_tcp_work *work)
{
	struct neap_tcp_reply *last = last_reply(work);
	return last && last->tail == NEAP_TCP_TAIL_NONE && last->ok_words < UINT32_MAX / 16 ? last : new_reply(work);
}

void neap_tcp_reply_ok(struct neap_tcp_work *work)
{
	open_reply(work)->ok_words++;
}

void neap_tcp_reply_word(struct neap_tcp_work *work, uint64_t word)
{
	struct neap_tcp_reply *reply = open_reply(work);
	reply->tail = NEAP_TCP_TAIL_WORD;
	reply->tail_word = word;
}

void neap_tcp_reply_read(struct neap_tcp_work *work, uint64_t address, uint64_t length, const struct neap_access_ref *ref,
                         bool status)
{
	struct neap_tcp_reply *reply = open_reply(work);
	reply->tail = NEAP_TCP_TAIL_READ;
	reply->address = address;
	reply->length = length;
	reply->ref = *ref;
	reply->has_status = status;
	if (status)
		reply->ok_words++;
}

void neap_tcp_reply_bytes(struct neap_tcp_work *work, const void *bytes, uint32_t length)
{
	struct neap_tcp_reply *reply = open_reply(work);
	reply->tail = NEAP_TCP_TAIL_BYTES;
	reply->address = (uint64_t)(uintptr_t)bytes;
	reply->length = length;
}

static uint64_t words_bytes(const struct neap_tcp_reply *reply)
{
	return (uint64_t)reply->ok_words * NEAP_STATUS_BYTES;
}

static uint64_t reply_bytes(const struct neap_tcp_session *session, const struct neap_tcp_reply *reply)
{
	uint64_t bytes = words_bytes(reply);
	if (reply->tail == NEAP_TCP_TAIL_WORD)
		bytes += NEAP_STATUS_BYTES;
	else if (reply->tail != NEAP_TCP_TAIL_NONE)
		bytes += reply->length;
	if (reply->tail == NEAP_TCP_TAIL_READ && session->checksum)
		bytes += NEAP_TRAILER_BYTES;
	return bytes;
}

/* --- gathering ------------------------------------------------------------------------------------------------------------ */

struct gather {
	struct iovec *vector;
	int count;
	uint64_t bytes;
};

/* False when it did not fit whole. */
static bool gather_add(struct gather *gather, const void *base, uint64_t length)
{
	uint64_t left = NEAP_TCP_REPLY_BYTES_MAX - gather->bytes;
	uint64_t added = length < left ? length : left;
	if (gather->count == NEAP_TCP_VECTORS || added == 0)
		return false;
	gather->vector[gather->count++] = (struct iovec){.iov_base = (void *)(uintptr_t)base, .iov_len = added};
	gather->bytes += added;
	return added == length;
}

/* `skip` bytes of the run have been sent. All words are alike, so any place of the table with the same phase will do. */
static bool gather_words(struct neap_tcp_session *session, struct gather *gather, const struct neap_tcp_reply *reply, uint64_t skip)
{
	const unsigned char *table = (const unsigned char *)session->server->ok_words[session->level ? 1 : 0];
	uint64_t table_bytes = NEAP_TCP_OK_WORDS * NEAP_STATUS_BYTES;
	uint64_t left = words_bytes(reply) - skip;
	uint64_t phase = skip % NEAP_STATUS_BYTES;
	while (left) {
		uint64_t piece = left < table_bytes - phase ? left : table_bytes - phase;
		if (!gather_add(gather, table + phase, piece))
			return false;
		left -= piece;
		phase = 0;
	}
	return true;
}

/* The sum goes over each byte once, before it is handed over for the first time; it may be ahead of what the kernel took. */
static void sum_read(struct neap_tcp_work *work, struct neap_tcp_reply *reply, uint32_t index, uint64_t end)
{
	if (reply->crc_done)
		return;
	if (work->crc_index != index || work->crc_offset == 0) {
		work->crc_index = index;
		work->crc_offset = 0;
		work->crc = 0;
	}
	if (end > work->crc_offset) {
		const unsigned char *from = (const unsigned char *)(uintptr_t)(reply->address + work->crc_offset);
		work->crc = neap_crc32c(work->crc, from, end - work->crc_offset);
		work->crc_offset = end;
	}
	if (end == reply->length) {
		reply->tail_word = work->crc;
		reply->crc_done = true;
		work->crc_offset = 0;
	}
}

static bool gather_read(struct neap_tcp_session *session, struct gather *gather, struct neap_tcp_reply *reply, uint32_t index,
                        uint64_t skip)
{
	if (skip < reply->length) {
		uint64_t before = gather->bytes;
		bool whole = gather_add(gather, (const void *)(uintptr_t)(reply->address + skip), reply->length - skip);
		if (session->checksum && gather->bytes > before)
			sum_read(session->work, reply, index, skip + (gather->bytes - before));
		if (!whole)
			return false;
		skip = reply->length;
	}
	if (!session->checksum)
		return true;
	skip -= reply->length;
	return gather_add(gather, (const unsigned char *)&reply->tail_word + skip, NEAP_TRAILER_BYTES - skip);
}

/* The READ's memory may not be read any more. Before its status was begun another status takes its place; once it was begun nothing
 * but a reset can tell the peer. */
static void revoke_read(struct neap_tcp_session *session, struct neap_tcp_reply *reply, uint32_t index, uint64_t sent)
{
	struct neap_tcp_work *work = session->work;
	uint64_t begun_at = words_bytes(reply) - (reply->has_status ? NEAP_STATUS_BYTES : 0);
	if (sent > begun_at) {
		neap_tcp_session_broken(session, "memory that was being read from was unregistered or its grant ended");
		return;
	}
	session->server->view->stats->requests_refused++;
	if (reply->has_status)
		reply->ok_words--;
	reply->tail = reply->has_status ? NEAP_TCP_TAIL_WORD : NEAP_TCP_TAIL_NONE;
	reply->tail_word = session->level ? neap_word_status(NEAP_WORD_REVOKED) : neap_plain_status(NEAP_PLAIN_REJECTED);
	if (session->level == 0) { /* as for any refused plain request: nothing behind it is answered */
		work->reply_tail = index + 1;
		work->frame.at = work->frame.count;
		session->fate = NEAP_TCP_REFUSED;
	}
}

static bool gather_reply(struct neap_tcp_session *session, struct gather *gather, uint32_t index, uint64_t skip)
{
	struct neap_tcp_reply *reply = &session->work->replies[index & RING_MASK];
	if (reply->tail == NEAP_TCP_TAIL_READ && !neap_access_live(session->server->view->registry, &reply->ref)) {
		revoke_read(session, reply, index, skip);
		if (session->fate == NEAP_TCP_BROKEN)
			return false;
	}
	uint64_t words = words_bytes(reply);
	if (skip < words) {
		if (!gather_words(session, gather, reply, skip))
			return false;
		skip = words;
	}
	skip -= words;
	switch ((enum neap_tcp_reply_tail)reply->tail) {
	case NEAP_TCP_TAIL_NONE:
		return true;
	case NEAP_TCP_TAIL_WORD:
		return gather_add(gather, (const unsigned char *)&reply->tail_word + skip, NEAP_STATUS_BYTES - skip);
	case NEAP_TCP_TAIL_READ:
		return gather_read(session, gather, reply, index, skip);
	case NEAP_TCP_TAIL_BYTES:
		return gather_add(gather, (const void *)(uintptr_t)(reply->address + skip), reply->length - skip);
	}
	return false;
}

/* --- sending -------------------------------------------------------------------------------------------------------------- */

static void reply_done(struct neap_tcp_session *session, const struct neap_tcp_reply *reply)
{
	if (reply->tail != NEAP_TCP_TAIL_READ)
		return;
	session->server->view->stats->requests_served++;
	session->server->view->stats->bytes_served_read += reply->length;
}

static void replies_advance(struct neap_tcp_session *session, uint64_t bytes)
{
	struct neap_tcp_work *work = session->work;
	while (work->reply_head != work->reply_tail) {
		const struct neap_tcp_reply *reply = &work->replies[work->reply_head & RING_MASK];
		uint64_t left = reply_bytes(session, reply) - work->reply_sent;
		if (bytes < left)
			break;
		bytes -= left;
		reply_done(session, reply);
		work->reply_head++;
		work->reply_sent = 0;
	}
	work->reply_sent += bytes;
}

static bool send_once(struct neap_tcp_session *session, struct neap_tcp_visit *visit)
{
	struct neap_tcp_work *work = session->work;
	struct gather gather = {.vector = session->server->vector};
	for (uint32_t i = work->reply_head; i != work->reply_tail; i++)
		if (!gather_reply(session, &gather, i, i == work->reply_head ? work->reply_sent : 0))
			break;
	if (session->fate == NEAP_TCP_BROKEN)
		return false;
	if (gather.bytes == 0) { /* what is left has no bytes: a v1 READ that was revoked */
		replies_advance(session, 0);
		return true;
	}
	session->server->view->stats->system_calls_target++;
	ssize_t n = neap_stream_writev(session->stream, gather.vector, gather.count);
	if (n < 0 && n != -EAGAIN) {
		neap_tcp_session_failed(session, (int)-n);
		return false;
	}
	uint64_t sent = n > 0 ? (uint64_t)n : 0;
	visit->sent += sent;
	replies_advance(session, sent);
	session->blocked = sent < gather.bytes;
	return !session->blocked;
}

void neap_tcp_replies_send(struct neap_tcp_session *session, struct neap_tcp_visit *visit)
{
	if (session->blocked || session->fate == NEAP_TCP_BROKEN)
		return;
	while (neap_tcp_replies_pending(session) && send_once(session, visit))
		if (neap_tcp_visit_over(visit))
			break;
}
