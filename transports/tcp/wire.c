#include "transports/tcp/wire.h"

/* Offsets after the 24 bytes of the plain header. */
enum {
	HELLO_CLIENT = 24,
	HELLO_SERVER = 40,
	HELLO_LANE = 56,
	HELLO_FENCE = 64,
	HELLO_CORE = 72,
	HELLO_FLAGS = 76,
	HELLO_RESERVED = 80,
};
enum {
	REPLY_CODE = 4,
	REPLY_SERVER = 8,
	REPLY_LEVEL = 24,
	REPLY_FLAGS = 28,
	REPLY_FENCED = 32,
};

void neap_hello_put(unsigned char p[NEAP_HELLO_BYTES], const struct neap_hello *hello)
{
	neap_plain_header_put(p, 0, NEAP_WIRE_MAGIC | (uint64_t)hello->level << 32, NEAP_HELLO_OPCODE);
	memcpy(p + HELLO_CLIENT, hello->client, sizeof hello->client);
	memcpy(p + HELLO_SERVER, hello->expected_server, sizeof hello->expected_server);
	neap_put64(p + HELLO_LANE, hello->lane);
	neap_put64(p + HELLO_FENCE, hello->fence_lane);
	neap_put32(p + HELLO_CORE, hello->core);
	neap_put32(p + HELLO_FLAGS, hello->flags);
	memset(p + HELLO_RESERVED, 0, NEAP_HELLO_BYTES - HELLO_RESERVED);
}

/* A higher level may use what level 1 reserves: its hello is read as far as level 1 knows it, and answered with level 1. */
static bool reserved_is_zero(const unsigned char *p, size_t length)
{
	unsigned char seen = 0;
	for (size_t i = 0; i < length; i++)
		seen |= p[i];
	return seen == 0;
}

int neap_hello_get(const unsigned char p[NEAP_HELLO_BYTES], struct neap_hello *hello_p)
{
	struct neap_plain_header header = neap_plain_header_get(p);
	if (!neap_is_hello(&header))
		return NEAP_EPROTO;
	hello_p->level = (uint32_t)(header.address >> 32);
	memcpy(hello_p->client, p + HELLO_CLIENT, sizeof hello_p->client);
	memcpy(hello_p->expected_server, p + HELLO_SERVER, sizeof hello_p->expected_server);
	hello_p->lane = neap_get64(p + HELLO_LANE);
	hello_p->fence_lane = neap_get64(p + HELLO_FENCE);
	hello_p->core = neap_get32(p + HELLO_CORE);
	hello_p->flags = neap_get32(p + HELLO_FLAGS);
	if (hello_p->lane == 0)
		return NEAP_EPROTO;
	if (hello_p->level == NEAP_WIRE_LEVEL && !reserved_is_zero(p + HELLO_RESERVED, NEAP_HELLO_BYTES - HELLO_RESERVED))
		return NEAP_EPROTO;
	return NEAP_OK;
}

void neap_hello_reply_put(unsigned char p[NEAP_HELLO_REPLY_BYTES], const struct neap_hello_reply *reply)
{
	neap_put32(p, NEAP_WIRE_MAGIC);
	neap_put32(p + REPLY_CODE, reply->code);
	memcpy(p + REPLY_SERVER, reply->server, sizeof reply->server);
	neap_put32(p + REPLY_LEVEL, reply->level);
	neap_put32(p + REPLY_FLAGS, reply->flags);
	neap_put64(p + REPLY_FENCED, reply->fenced_lane);
}

int neap_hello_reply_get(const unsigned char p[NEAP_HELLO_REPLY_BYTES], struct neap_hello_reply *reply_p)
{
	if (neap_get64(p) >> 32 == NEAP_PLAIN_MAGIC)
		return NEAP_ENOTSUP;
	if (neap_get32(p) != NEAP_WIRE_MAGIC)
		return NEAP_EPROTO;
	reply_p->code = neap_get32(p + REPLY_CODE);
	memcpy(reply_p->server, p + REPLY_SERVER, sizeof reply_p->server);
	reply_p->level = neap_get32(p + REPLY_LEVEL);
	reply_p->flags = neap_get32(p + REPLY_FLAGS);
	reply_p->fenced_lane = neap_get64(p + REPLY_FENCED);
	return NEAP_OK;
}

void neap_frame_head_put(unsigned char p[NEAP_FRAME_HEAD_BYTES], const struct neap_frame_head *head)
{
	neap_put32(p, NEAP_FRAME_MAGIC);
	neap_put32(p + 4, head->count);
	neap_put32(p + 8, head->grant_count);
	neap_put32(p + 12, 0);
}

int neap_frame_head_get(const unsigned char p[NEAP_FRAME_HEAD_BYTES], struct neap_frame_head *head_p)
{
	head_p->count = neap_get32(p + 4);
	head_p->grant_count = neap_get32(p + 8);
	if (neap_get32(p) != NEAP_FRAME_MAGIC || neap_get32(p + 12) != 0)
		return NEAP_EPROTO;
	if (head_p->count == 0 || head_p->count > NEAP_FRAME_ENTRIES_MAX || head_p->grant_count > NEAP_FRAME_ENTRIES_MAX)
		return NEAP_EPROTO;
	return NEAP_OK;
}

void neap_entry_put(unsigned char p[NEAP_ENTRY_BYTES], const struct neap_entry *entry)
{
	neap_put64(p, entry->address);
	neap_put64(p + 8, entry->length);
	neap_put32(p + 16, entry->opcode);
	neap_put16(p + 20, entry->grant);
	neap_put16(p + 22, 0);
}

void neap_entry_get(const unsigned char p[NEAP_ENTRY_BYTES], struct neap_entry *entry_p)
{
	entry_p->address = neap_get64(p);
	entry_p->length = neap_get64(p + 8);
	entry_p->opcode = p[16];
	entry_p->grant = neap_get16(p + 20);
}
