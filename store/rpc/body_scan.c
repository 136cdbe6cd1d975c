/* The walk over a body before a decoder sees it: every count and length is compared with the bytes that are really there. */
#include "store/rpc/body.h"
#include <stdio.h>

struct scan {
	const uint8_t *bytes;
	size_t length, at;
	uint32_t values, depth;
	uint64_t open[NEAP_RPC_DEPTH_MAX]; /* values still to come in each container */
	char *why;
	size_t why_size;
};

/* What a value's first byte tells: how many bytes of length follow it, what fixed bytes come on top, and what it is. */
struct shape {
	enum { FIXED, SIZED, ARRAY, MAP, BAD } kind;
	uint8_t length_bytes;
	uint32_t count; /* when length_bytes is 0 */
	uint8_t extra;  /* the type byte of an extension */
	const char *name;
};

static struct shape shape_of(uint8_t byte)
{
	static const struct shape high[32] = {
		[0x00] = {FIXED, 0, 0, 0, "nil"},     [0x01] = {BAD, 0, 0, 0, "reserved"},
		[0x02] = {FIXED, 0, 0, 0, "bool"},    [0x03] = {FIXED, 0, 0, 0, "bool"},
		[0x04] = {SIZED, 1, 0, 0, "bytes"},   [0x05] = {SIZED, 2, 0, 0, "bytes"},
		[0x06] = {SIZED, 4, 0, 0, "bytes"},   [0x07] = {SIZED, 1, 0, 1, "an extension"},
		[0x08] = {SIZED, 2, 0, 1, "an extension"}, [0x09] = {SIZED, 4, 0, 1, "an extension"},
		[0x0a] = {FIXED, 0, 4, 0, "a number"}, [0x0b] = {FIXED, 0, 8, 0, "a number"},
		[0x0c] = {FIXED, 0, 1, 0, "a number"}, [0x0d] = {FIXED, 0, 2, 0, "a number"},
		[0x0e] = {FIXED, 0, 4, 0, "a number"}, [0x0f] = {FIXED, 0, 8, 0, "a number"},
		[0x10] = {FIXED, 0, 1, 0, "a number"}, [0x11] = {FIXED, 0, 2, 0, "a number"},
		[0x12] = {FIXED, 0, 4, 0, "a number"}, [0x13] = {FIXED, 0, 8, 0, "a number"},
		[0x14] = {FIXED, 0, 1, 1, "an extension"}, [0x15] = {FIXED, 0, 2, 1, "an extension"},
		[0x16] = {FIXED, 0, 4, 1, "an extension"}, [0x17] = {FIXED, 0, 8, 1, "an extension"},
		[0x18] = {FIXED, 0, 16, 1, "an extension"}, [0x19] = {SIZED, 1, 0, 0, "text"},
		[0x1a] = {SIZED, 2, 0, 0, "text"},    [0x1b] = {SIZED, 4, 0, 0, "text"},
		[0x1c] = {ARRAY, 2, 0, 0, "an array"}, [0x1d] = {ARRAY, 4, 0, 0, "an array"},
		[0x1e] = {MAP, 2, 0, 0, "a map"},     [0x1f] = {MAP, 4, 0, 0, "a map"},
	};
	if (byte < 0x80 || byte >= 0xe0)
		return (struct shape){FIXED, 0, 0, 0, "a number"};
	if (byte < 0x90)
		return (struct shape){MAP, 0, byte & 0x0fu, 0, "a map"};
	if (byte < 0xa0)
		return (struct shape){ARRAY, 0, byte & 0x0fu, 0, "an array"};
	if (byte < 0xc0)
		return (struct shape){FIXED, 0, byte & 0x1fu, 0, "text"};
	return high[byte - 0xc0];
}

static int refuse(struct scan *scan, int error, size_t at, const char *name, uint64_t count)
{
	(void)snprintf(scan->why, scan->why_size, "body at byte %zu: %s of %llu, and %zu bytes are left", at, name,
	               (unsigned long long)count, scan->length - scan->at);
	return error;
}

/* One more container is open. */
static int enter(struct scan *scan, size_t at, const struct shape *shape, uint64_t count)
{
	uint64_t values = shape->kind == MAP ? 2 * count : count;
	if (values > scan->length - scan->at) /* a value has at least one byte */
		return refuse(scan, NEAP_EPROTO, at, shape->name, count);
	if (values > NEAP_RPC_VALUES_MAX - scan->values) {
		(void)snprintf(scan->why, scan->why_size, "body at byte %zu: %s of %llu makes more than %u values in one body", at, shape->name,
		               (unsigned long long)count, NEAP_RPC_VALUES_MAX);
		return NEAP_ELIMIT;
	}
	if (values > 0 && scan->depth == NEAP_RPC_DEPTH_MAX) {
		(void)snprintf(scan->why, scan->why_size, "body at byte %zu: nested deeper than %u", at, NEAP_RPC_DEPTH_MAX);
		return NEAP_ELIMIT;
	}
	scan->values += (uint32_t)values;
	if (values > 0)
		scan->open[scan->depth++] = values;
	return NEAP_OK;
}

static int scan_value(struct scan *scan)
{
	size_t at = scan->at;
	struct shape shape = shape_of(scan->bytes[scan->at++]);
	uint64_t count = shape.count;
	if (shape.kind == BAD) {
		(void)snprintf(scan->why, scan->why_size, "body at byte %zu: %02x begins no value", at, scan->bytes[at]);
		return NEAP_EPROTO;
	}
	if (scan->length - scan->at < shape.length_bytes)
		return refuse(scan, NEAP_EPROTO, at, shape.name, shape.length_bytes);
	for (unsigned i = 0; i < shape.length_bytes; i++) /* msgpack is big-endian */
		count = count << 8 | scan->bytes[scan->at++];
	if (shape.kind == ARRAY || shape.kind == MAP)
		return enter(scan, at, &shape, count);
	if (count + shape.extra > scan->length - scan->at)
		return refuse(scan, NEAP_EPROTO, at, shape.name, count);
	scan->at += (size_t)count + shape.extra;
	return NEAP_OK;
}

int neap_rpc_scan(const void *body, size_t length, char *why, size_t why_size)
{
	struct scan scan = {.bytes = body, .length = length, .values = 1, .why = why, .why_size = why_size};
	if (length == 0 || shape_of(scan.bytes[0]).kind != MAP) {
		(void)snprintf(why, why_size, "body at byte 0: %s where a map must be", length ? shape_of(scan.bytes[0]).name : "nothing");
		return NEAP_EPROTO;
	}
	int error = scan_value(&scan);
	while (!error && scan.depth > 0) {
		if (scan.open[scan.depth - 1] == 0) {
			scan.depth--;
			continue;
		}
		scan.open[scan.depth - 1]--;
		if (scan.at == length) {
			(void)snprintf(why, why_size, "body at byte %zu: it ends in the middle", scan.at);
			return NEAP_EPROTO;
		}
		error = scan_value(&scan);
	}
	if (!error && scan.at != length) {
		(void)snprintf(why, why_size, "body at byte %zu: %zu bytes behind its end", scan.at, length - scan.at);
		return NEAP_EPROTO;
	}
	return error;
}
