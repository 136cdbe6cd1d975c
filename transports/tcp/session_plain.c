/* The plain framing, as Mooncake processes speak it: headers of 24 bytes, v1 and v2 in any mixture. Bit 7 of the opcode asks for a
 * status whatever was advertised; any other opcode than WRITE is READ; the padding is not looked at. */
#include "transports/tcp/session.h"

#define OPCODE_BITS 0x7Fu

/* Only a connection's first header can be one. To a process that is to speak plainly it is a request of size 0 like to any plain
 * server. */
static bool begins_hello(const struct neap_tcp_session *session, const unsigned char *bytes)
{
	struct neap_plain_header header = neap_plain_header_get(bytes);
	return !session->greeted && neap_is_hello(&header) && !session->server->view->options->plain_only;
}

uint32_t neap_tcp_plain_need(const struct neap_tcp_session *session, const unsigned char *bytes, size_t length)
{
	if (session->greeted || length < NEAP_PLAIN_HEADER_BYTES)
		return NEAP_PLAIN_HEADER_BYTES;
	return begins_hello(session, bytes) ? NEAP_HELLO_BYTES : NEAP_PLAIN_HEADER_BYTES;
}

void neap_tcp_plain_refuse(struct neap_tcp_session *session, bool acknowledged)
{
	session->server->view->stats->requests_refused++;
	session->work->frame.at = session->work->frame.count; /* the rest of its payload is thrown away with all that follows */
	if (acknowledged)
		neap_tcp_reply_word(session->work, neap_plain_status(NEAP_PLAIN_REJECTED));
	session->fate = NEAP_TCP_REFUSED;
}

static void open_frame(struct neap_tcp_session *session, const struct neap_plain_header *header, const struct neap_access_ref *ref)
{
	struct neap_tcp_frame *frame = &session->work->frame;
	frame->count = 1;
	frame->at = 0;
	frame->moved = 0;
	frame->owed = header->size;
	struct neap_tcp_item *item = &frame->items[0];
	item->address = header->address;
	item->length = header->size;
	item->ref = *ref;
	item->opcode = NEAP_WRITE;
	item->code = NEAP_WORD_OK;
	item->has_payload = true;
	item->acknowledged = (header->opcode & NEAP_PLAIN_ACKNOWLEDGED) != 0;
}

/* A WRITE whose whole payload is in the staging already: no frame, one copy. */
static void write_now(struct neap_tcp_session *session, const struct neap_plain_header *header, const unsigned char *payload)
{
	struct neap_engine_stats *stats = session->server->view->stats;
	memcpy((void *)(uintptr_t)header->address, payload, header->size);
	stats->requests_served++;
	stats->bytes_served_written += header->size;
	if (header->opcode & NEAP_PLAIN_ACKNOWLEDGED)
		neap_tcp_reply_ok(session->work);
}

static enum neap_tcp_stop take_hello(struct neap_tcp_session *session, const unsigned char *bytes, size_t length, size_t *used_p)
{
	if (length < NEAP_HELLO_BYTES)
		return NEAP_TCP_NEEDS_BYTES;
	neap_tcp_session_work(session);
	session->greeted = true;
	neap_tcp_hello(session, bytes, length > NEAP_HELLO_BYTES);
	*used_p += NEAP_HELLO_BYTES;
	return session->fate == NEAP_TCP_GOES_ON ? NEAP_TCP_NEEDS_BYTES : NEAP_TCP_STOPPED;
}

enum neap_tcp_stop neap_tcp_plain_parse(struct neap_tcp_session *session, const unsigned char *bytes, size_t length, size_t *used_p)
{
	const struct neap_registry *registry = session->server->view->registry;
	size_t used = 0;
	enum neap_tcp_stop stop = NEAP_TCP_NEEDS_BYTES;
	while (length - used >= NEAP_PLAIN_HEADER_BYTES) {
		struct neap_plain_header header = neap_plain_header_get(bytes + used);
		if (begins_hello(session, bytes + used)) {
			stop = take_hello(session, bytes + used, length - used, &used);
			break;
		}
		struct neap_tcp_work *work = neap_tcp_session_work(session);
		if (neap_tcp_reply_room(work) == 0) {
			stop = NEAP_TCP_NEEDS_ROOM;
			break;
		}
		session->greeted = true;
		used += NEAP_PLAIN_HEADER_BYTES;
		struct neap_access_ref ref;
		bool acknowledged = (header.opcode & NEAP_PLAIN_ACKNOWLEDGED) != 0;
		if (header.size == 0 || neap_registry_check(registry, header.address, header.size, &ref) != NEAP_OK) {
			session->ends_by_reset = !acknowledged && (header.opcode & OPCODE_BITS) == NEAP_WRITE;
			neap_tcp_plain_refuse(session, acknowledged);
			stop = NEAP_TCP_STOPPED;
			break;
		}
		if ((header.opcode & OPCODE_BITS) != NEAP_WRITE) {
			session->last_payload = 0;
			neap_tcp_reply_read(work, header.address, header.size, &ref, acknowledged);
			continue;
		}
		session->last_payload = header.size < UINT32_MAX ? (uint32_t)header.size : UINT32_MAX;
		session->last_head = NEAP_PLAIN_HEADER_BYTES;
		if (header.size > length - used) {
			open_frame(session, &header, &ref);
			stop = NEAP_TCP_FRAME_READY;
			break;
		}
		write_now(session, &header, bytes + used);
		used += header.size;
	}
	*used_p = used;
	return stop;
}
