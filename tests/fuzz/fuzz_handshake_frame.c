/* Any bytes as what arrives on the handshake port, in pieces of any size: the first byte of the input chooses them. Whole frames go
 * on to the decoders of their type. */
#include "metadata/handshake.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int good)
{
	if (!good)
		__builtin_trap();
}

static void try_connection(const char *json, size_t length)
{
	struct neap_connection_message message, back;
	char why[200], *text;
	size_t text_length;
	if (neap_connection_decode(json, length, &message, why, sizeof why))
		return;
	check(neap_connection_encode(&message, &text, &text_length) == 0);
	check(neap_connection_decode(text, text_length, &back, why, sizeof why) == 0);
	check(strcmp(message.payload, back.payload) == 0 && strcmp(message.local_nic_path, back.local_nic_path) == 0);
	check(message.qp_count == back.qp_count && message.has_gid == back.has_gid && message.has_ready_ack == back.has_ready_ack);
	check(message.neap.present == back.neap.present && message.neap.retire == back.neap.retire &&
	      message.neap.epoch == back.neap.epoch && message.neap.psn_count == back.neap.psn_count);
	neap_connection_free(&message);
	neap_connection_free(&back);
	free(text);
}

static void try_notify(const char *json, size_t length)
{
	struct neap_notify_message message, back;
	char why[200], *text;
	size_t text_length;
	if (neap_notify_decode(json, length, &message, why, sizeof why))
		return;
	check(neap_notify_encode(message.name, message.message, &text, &text_length) == 0);
	check(neap_notify_decode(text, text_length, &back, why, sizeof why) == 0);
	check(strcmp(message.name, back.name) == 0 && strcmp(message.message, back.message) == 0);
	neap_notify_free(&message);
	neap_notify_free(&back);
	free(text);
}

static void try_frame(const struct neap_frame_reader *reader)
{
	const char *json;
	size_t length;
	uint8_t head[9];
	bool old;
	int type = neap_frame_type(reader, &old, &json, &length);
	if (type < 0)
		return;
	size_t head_length = neap_frame_head(head, type, old, length);
	check(memcmp(head, reader->head, 8) == 0 && (old || head[8] == (uint8_t)reader->body[0]) && head_length == (old ? 8 : 9));
	if (type == NEAP_HANDSHAKE_CONNECTION)
		try_connection(json, length);
	else if (type == NEAP_HANDSHAKE_NOTIFY)
		try_notify(json, length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct neap_frame_reader reader;
	enum neap_frame_state state = NEAP_FRAME_MORE;
	char why[200];

	if (size == 0)
		return 0;
	size_t piece = data[0] ? data[0] : size;
	neap_frame_reader_init(&reader, LIMIT);
	for (size_t at = 1; at < size && state == NEAP_FRAME_MORE;) {
		size_t used, length = size - at < piece ? size - at : piece;
		state = neap_frame_reader_feed(&reader, data + at, length, &used, why, sizeof why);
		check(used <= length && (state != NEAP_FRAME_MORE || used == length));
		check(reader.body_have <= reader.body_capacity && reader.body_capacity <= 2 * (reader.body_have + 1024));
		at += used;
	}
	if (state == NEAP_FRAME_DONE)
		try_frame(&reader);
	neap_frame_reader_reset(&reader);
	return 0;
}
