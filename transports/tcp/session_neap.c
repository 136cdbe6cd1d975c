/* The Neap level: the hello, and frames of up to 256 requests ahead of their payloads. */
#include "transports/tcp/session.h"

/* --- lanes by id --------------------------------------------------------------------------------------------------------- */

static uint32_t bucket_of(const uint8_t client[16], uint64_t lane)
{
	uint64_t mixed;
	memcpy(&mixed, client, sizeof mixed);
	mixed = (mixed ^ lane) * 0x9E3779B97F4A7C15u;
	return (uint32_t)(mixed >> 32) & (NEAP_TCP_LANE_BUCKETS - 1);
}

static struct neap_tcp_session *find_lane(const struct neap_tcp_server *server, const uint8_t client[16], uint64_t lane)
{
	struct neap_tcp_session *session = server->lanes[bucket_of(client, lane)];
	while (session && (session->lane != lane || memcmp(session->client, client, 16) != 0))
		session = session->next_lane;
	return session;
}

static void lane_link(struct neap_tcp_session *session)
{
	struct neap_tcp_session **slot = &session->server->lanes[bucket_of(session->client, session->lane)];
	session->next_lane = *slot;
	session->lane_slot = slot;
	if (*slot)
		(*slot)->lane_slot = &session->next_lane;
	*slot = session;
}

void neap_tcp_lane_unlink(struct neap_tcp_session *session)
{
	struct neap_tcp_server *server = session->server;
	if (!session->lane_slot)
		return;
	*session->lane_slot = session->next_lane;
	if (session->next_lane)
		session->next_lane->lane_slot = session->lane_slot;
	session->lane_slot = NULL;
	struct neap_tcp_ended_lane *ended = &server->ended[server->ended_count++ % NEAP_TCP_ENDED_LANES];
	memcpy(ended->client, session->client, sizeof ended->client);
	ended->lane = session->lane;
}

static bool has_ended(const struct neap_tcp_server *server, const uint8_t client[16], uint64_t lane)
{
	for (uint32_t i = 0; i < NEAP_TCP_ENDED_LANES; i++)
		if (server->ended[i].lane == lane && memcmp(server->ended[i].client, client, 16) == 0)
			return true;
	return false;
}

/* --- hello ---------------------------------------------------------------------------------------------------------------- */

/* The lane to confirm as dead, or 0. Dead means that no byte of it is stored any more: bytes are stored in visits of its
 * session, on this core, and that session is gone. So nothing is said but what is known: the lane was here, and ended now or
 * before. One that was never seen may be with another core, behind another port, or its hello may still lie unread in a socket.
 * One that ended so long ago that it was forgotten is not confirmed either; all its client loses is the certainty. */
static uint64_t fence(struct neap_tcp_server *server, const struct neap_hello *hello)
{
	if (hello->fence_lane == 0)
		return 0;
	struct neap_tcp_session *old = find_lane(server, hello->client, hello->fence_lane);
	if (old) {
		neap_log(server->reactor, NEAP_LOG_INFO, "tcp", "lane %llu is closed: its client asked for that with its new lane %llu",
		         (unsigned long long)hello->fence_lane, (unsigned long long)hello->lane);
		neap_tcp_session_end(old, true);
	}
	bool dead = !find_lane(server, hello->client, hello->fence_lane) && has_ended(server, hello->client, hello->fence_lane);
	return dead ? hello->fence_lane : 0;
}

static uint32_t judge_hello(const struct neap_tcp_server *server, int decoded, const struct neap_hello *hello, bool more)
{
	if (decoded != NEAP_OK || more)
		return NEAP_HELLO_MALFORMED;
	if (hello->level < NEAP_WIRE_LEVEL)
		return NEAP_HELLO_LEVEL;
	if (memcmp(hello->expected_server, server->view->instance, sizeof hello->expected_server) != 0)
		return NEAP_HELLO_OTHER_INSTANCE;
	if (hello->fence_lane == hello->lane || find_lane(server, hello->client, hello->lane))
		return NEAP_HELLO_MALFORMED; /* lane ids are used once */
	return NEAP_HELLO_OK;
}

void neap_tcp_hello(struct neap_tcp_session *session, const unsigned char bytes[NEAP_HELLO_BYTES], bool more)
{
	struct neap_tcp_server *server = session->server;
	struct neap_hello hello = {0};
	int decoded = neap_hello_get(bytes, &hello);
	struct neap_hello_reply reply = {.code = judge_hello(server, decoded, &hello, more), .level = NEAP_WIRE_LEVEL};
	memcpy(reply.server, server->view->instance, sizeof reply.server);
	if (reply.code == NEAP_HELLO_OK) {
		reply.fenced_lane = fence(server, &hello);
		reply.flags = server->view->options->checksum ? hello.flags & NEAP_HELLO_CHECKSUM : 0;
		session->level = NEAP_WIRE_LEVEL;
		session->checksum = (reply.flags & NEAP_HELLO_CHECKSUM) != 0;
		session->lane = hello.lane;
		memcpy(session->client, hello.client, sizeof session->client);
		lane_link(session);
	} else {
		session->fate = NEAP_TCP_REFUSED;
		if (reply.code == NEAP_HELLO_MALFORMED)
			server->view->stats->protocol_errors++;
	}
	neap_hello_reply_put(session->work->hello_reply, &reply);
	neap_tcp_reply_bytes(session->work, session->work->hello_reply, NEAP_HELLO_REPLY_BYTES);
}

/* --- frames --------------------------------------------------------------------------------------------------------------- */

#define LENGTH_MAX (UINT64_MAX / 512) /* so that the sum over a frame fits, trailers included */

static uint32_t frame_bytes(const struct neap_frame_head *head)
{
	return NEAP_FRAME_HEAD_BYTES + head->count * NEAP_ENTRY_BYTES + head->grant_count * NEAP_TOKEN_BYTES;
}

uint32_t neap_tcp_neap_need(const unsigned char *bytes, size_t length)
{
	struct neap_frame_head head;
	if (length < NEAP_FRAME_HEAD_BYTES || neap_frame_head_get(bytes, &head) != NEAP_OK)
		return NEAP_FRAME_HEAD_BYTES;
	return frame_bytes(&head);
}

static uint8_t check_entry(const struct neap_tcp_session *session, const struct neap_entry *entry, const unsigned char *tokens,
                           uint32_t token_count, struct neap_access_ref *ref_p)
{
	const struct neap_registry *registry = session->server->view->registry;
	if (entry->length == 0 || entry->opcode > NEAP_WRITE || entry->grant > token_count)
		return NEAP_WORD_MALFORMED;
	if (entry->grant == 0)
		return neap_registry_check(registry, entry->address, entry->length, ref_p) == NEAP_OK ? NEAP_WORD_OK : NEAP_WORD_REJECTED;
	struct neap_grant_token token;
	memcpy(token.bytes, tokens + (entry->grant - 1u) * NEAP_TOKEN_BYTES, sizeof token.bytes);
	unsigned right = entry->opcode == NEAP_WRITE ? NEAP_MAY_WRITE : NEAP_MAY_READ;
	int error = neap_registry_check_grant(registry, &token, entry->address, entry->length, right, session->client, ref_p);
	return error == NEAP_OK ? NEAP_WORD_OK : NEAP_WORD_GRANT;
}

/* False: an entry announces more than anybody could send. Its payload cannot be thrown away either. */
static bool open_frame(struct neap_tcp_session *session, const struct neap_frame_head *head, const unsigned char *bytes)
{
	struct neap_tcp_frame *frame = &session->work->frame;
	const unsigned char *entries = bytes + NEAP_FRAME_HEAD_BYTES;
	const unsigned char *tokens = entries + head->count * NEAP_ENTRY_BYTES;
	frame->count = head->count;
	frame->at = 0;
	frame->moved = 0;
	frame->owed = 0;
	frame->crc = 0;
	for (uint32_t i = 0; i < head->count; i++) {
		struct neap_entry entry;
		neap_entry_get(entries + i * NEAP_ENTRY_BYTES, &entry);
		struct neap_tcp_item *item = &frame->items[i];
		item->address = entry.address;
		item->length = entry.length;
		item->opcode = entry.opcode;
		item->acknowledged = true;
		item->has_payload = entry.opcode == NEAP_WRITE && entry.length > 0;
		item->code = check_entry(session, &entry, tokens, head->grant_count, &item->ref);
		if (entry.length > LENGTH_MAX)
			return false;
		if (item->has_payload)
			frame->owed += entry.length + (session->checksum ? NEAP_TRAILER_BYTES : 0);
	}
	session->last_payload = frame->owed < UINT32_MAX ? (uint32_t)frame->owed : UINT32_MAX;
	session->last_head = frame_bytes(head);
	return true;
}

enum neap_tcp_stop neap_tcp_neap_parse(struct neap_tcp_session *session, const unsigned char *bytes, size_t length, size_t *used_p)
{
	struct neap_frame_head head;
	if (length < NEAP_FRAME_HEAD_BYTES)
		return NEAP_TCP_NEEDS_BYTES;
	if (neap_frame_head_get(bytes, &head) != NEAP_OK) {
		neap_tcp_session_broken(session, "what should be a frame of requests does not begin as one");
		return NEAP_TCP_STOPPED;
	}
	if (length < frame_bytes(&head))
		return NEAP_TCP_NEEDS_BYTES;
	neap_tcp_session_work(session);
	if (!open_frame(session, &head, bytes)) {
		neap_tcp_session_broken(session, "a request announces more bytes than an address space has");
		return NEAP_TCP_STOPPED;
	}
	*used_p = frame_bytes(&head);
	return NEAP_TCP_FRAME_READY;
}
