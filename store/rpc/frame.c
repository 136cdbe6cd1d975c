#include "store/rpc/frame.h"
#include <stdio.h>
#include <string.h>

static const uint8_t opening[5] = {'N', 'R', 'P', 'C', NEAP_RPC_VERSION};

static void put(uint8_t *bytes, uint64_t value, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		bytes[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *bytes, unsigned count)
{
	uint64_t value = 0;
	for (unsigned i = 0; i < count; i++)
		value |= (uint64_t)bytes[i] << 8 * i;
	return value;
}

static int has_status(uint8_t type)
{
	return type == NEAP_RPC_REPLY || type == NEAP_RPC_WELCOME;
}

void neap_rpc_head_write(uint8_t bytes[NEAP_RPC_HEAD_BYTES], const struct neap_rpc_head *head)
{
	memcpy(bytes, opening, sizeof opening);
	put(bytes + 5, head->type, 1);
	put(bytes + 6, head->flags, 2);
	put(bytes + 8, head->body_bytes, 4);
	put(bytes + 12, has_status(head->type) ? (uint32_t)head->status : head->method, 4);
	put(bytes + 16, head->call, 8);
	put(bytes + 24, head->deadline_us, 8);
	put(bytes + 32, head->epoch, 8);
	put(bytes + 40, head->sequence, 8);
	put(bytes + 48, head->finished_below, 8);
}

int neap_rpc_head_begins(const uint8_t *bytes, size_t have, char *why, size_t why_size)
{
	size_t magic = have < 4 ? have : 4;
	if (memcmp(bytes, opening, magic) != 0) {
		(void)snprintf(why, why_size, "head at byte 0: %02x.. is not the magic \"NRPC\": the peer does not speak the store's RPC",
		               bytes[0]);
		return NEAP_EPROTO;
	}
	if (have > 4 && bytes[4] != NEAP_RPC_VERSION) {
		(void)snprintf(why, why_size, "head at byte 4: version %u; this side speaks version %u", bytes[4], NEAP_RPC_VERSION);
		return NEAP_EPROTO;
	}
	return NEAP_OK;
}

static int check_body(const struct neap_rpc_head *head, uint32_t body_max, char *why, size_t why_size)
{
	if (head->body_bytes > 0 && (head->type == NEAP_RPC_CANCEL || head->type == NEAP_RPC_GOODBYE)) {
		(void)snprintf(why, why_size, "head at byte 8: a body of %u bytes on a frame of type %u, which has none", head->body_bytes,
		               head->type);
		return NEAP_EPROTO;
	}
	if (head->type == NEAP_RPC_HELLO || head->type == NEAP_RPC_WELCOME)
		body_max = NEAP_RPC_BODY_MAX_LEAST;
	if (head->body_bytes > body_max) {
		(void)snprintf(why, why_size, "head at byte 8: a body of %u bytes; the limit for type %u is %u (body_max)", head->body_bytes,
		               head->type, body_max);
		return NEAP_ELIMIT;
	}
	return NEAP_OK;
}

int neap_rpc_head_read(const uint8_t bytes[NEAP_RPC_HEAD_BYTES], uint32_t body_max, struct neap_rpc_head *head_p, char *why,
                       size_t why_size)
{
	int error = neap_rpc_head_begins(bytes, NEAP_RPC_HEAD_BYTES, why, why_size);
	if (error)
		return error;
	uint32_t code = (uint32_t)get(bytes + 12, 4);
	*head_p = (struct neap_rpc_head){.type = bytes[5],
	                                 .flags = (uint16_t)get(bytes + 6, 2),
	                                 .body_bytes = (uint32_t)get(bytes + 8, 4),
	                                 .call = get(bytes + 16, 8),
	                                 .deadline_us = get(bytes + 24, 8),
	                                 .epoch = get(bytes + 32, 8),
	                                 .sequence = get(bytes + 40, 8),
	                                 .finished_below = get(bytes + 48, 8)};
	if (head_p->type < NEAP_RPC_CALL || head_p->type > NEAP_RPC_GOODBYE) {
		(void)snprintf(why, why_size, "head at byte 5: unknown type %u; types are 1 to %d", head_p->type, NEAP_RPC_GOODBYE);
		return NEAP_EPROTO;
	}
	if (has_status(head_p->type))
		head_p->status = (int32_t)code;
	else
		head_p->method = code;
	unsigned known = head_p->type == NEAP_RPC_CALL ? NEAP_RPC_ONCE : head_p->type == NEAP_RPC_REPLY ? NEAP_RPC_UNTOUCHED : 0;
	if (head_p->flags & ~known) {
		(void)snprintf(why, why_size, "head at byte 6: flags %04x are not known on type %u", head_p->flags, head_p->type);
		return NEAP_EPROTO;
	}
	return check_body(head_p, body_max, why, why_size);
}
