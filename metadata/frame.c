/* Handshake frames. Pure. */
#include "metadata/handshake.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 1024u

void neap_frame_reader_init(struct neap_frame_reader *reader, uint32_t length_max)
{
	*reader = (struct neap_frame_reader){.length_max = length_max, .capacity_max = SIZE_MAX};
}

void neap_frame_reader_reset(struct neap_frame_reader *reader)
{
	free(reader->body);
	neap_frame_reader_init(reader, reader->length_max);
}

static uint64_t little_endian_u64(const uint8_t bytes[8])
{
	uint64_t value = 0;
	for (int i = 7; i >= 0; i--)
		value = value << 8 | bytes[i];
	return value;
}

/* Room for `more` bytes: doubled, never past what the frame needs nor what is allowed. False: not allowed or no memory. */
static bool grow(struct neap_frame_reader *reader, size_t more)
{
	size_t needed = reader->body_have + more;
	if (needed <= reader->body_capacity)
		return true;
	size_t capacity = reader->body_capacity ? reader->body_capacity * 2 : FIRST_CAPACITY;
	if (capacity < needed)
		capacity = needed;
	if (capacity > reader->length)
		capacity = (size_t)reader->length;
	if (capacity > reader->capacity_max)
		capacity = reader->capacity_max;
	if (capacity < needed)
		return false;
	char *body = realloc(reader->body, capacity);
	if (!body)
		return false;
	reader->body = body;
	reader->body_capacity = capacity;
	return true;
}

enum neap_frame_state neap_frame_reader_feed(struct neap_frame_reader *reader, const void *bytes, size_t length, size_t *used_p,
                                             char *why, size_t why_size)
{
	const uint8_t *from = bytes;
	size_t left = length;

	*used_p = 0;
	while (left > 0 && reader->head_have < 8) {
		reader->head[reader->head_have++] = *from++;
		left--;
	}
	*used_p = length - left;
	if (reader->head_have < 8)
		return NEAP_FRAME_MORE;
	reader->length = little_endian_u64(reader->head);
	if (reader->length == 0 || reader->length > reader->length_max) {
		(void)snprintf(why, why_size, "a frame of %llu bytes is announced, 1 to %u are allowed", (unsigned long long)reader->length,
		               reader->length_max);
		return NEAP_FRAME_BAD;
	}
	uint64_t missing = reader->length - reader->body_have;
	size_t take = left < missing ? left : (size_t)missing;
	if (!grow(reader, take)) {
		(void)snprintf(why, why_size, "no room for %zu bytes of a frame of %llu", reader->body_have + take,
		               (unsigned long long)reader->length);
		return NEAP_FRAME_BAD;
	}
	if (take > 0)
		memcpy(reader->body + reader->body_have, from, take);
	reader->body_have += take;
	*used_p += take;
	return reader->body_have == reader->length ? NEAP_FRAME_DONE : NEAP_FRAME_MORE;
}

/* Peers compare the first byte as a signed char: 0 to 3 is a type, a printable one begins the JSON of the old protocol, and what
 * has the top bit set is neither. */
int neap_frame_type(const struct neap_frame_reader *reader, bool *old_p, const char **json_p, size_t *json_length_p)
{
	uint8_t first = (uint8_t)reader->body[0];
	*old_p = first > NEAP_HANDSHAKE_PROBE && first < 0x80;
	*json_p = reader->body + (*old_p ? 0 : 1);
	*json_length_p = reader->body_have - (*old_p ? 0 : 1);
	if (*old_p)
		return NEAP_HANDSHAKE_CONNECTION;
	return first <= NEAP_HANDSHAKE_PROBE ? (int)first : -1;
}

size_t neap_frame_head(uint8_t head[9], int type, bool old, size_t json_length)
{
	uint64_t length = (uint64_t)json_length + (old ? 0 : 1);
	for (int i = 0; i < 8; i++)
		head[i] = (uint8_t)(length >> (8 * i));
	head[8] = (uint8_t)type;
	return old ? 8 : 9;
}
