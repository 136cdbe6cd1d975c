#include "store/rpc/body.h"
#include <stdio.h>
#include <string.h>

#define ARENA_DEFAULT (256u * 1024u)
#define ZONE_BYTES 8192u
#define ALIGNMENT 16u

struct reading {
	struct neap_rpc_decoder *decoder;
	char *why;
	size_t why_size;
};

int neap_rpc_decoder_open(struct neap_rpc_decoder *decoder, struct neap_reactor *reactor, size_t arena_bytes)
{
	decoder->reactor = reactor;
	decoder->arena_bytes = arena_bytes ? arena_bytes : ARENA_DEFAULT;
	decoder->arena_used = 0;
	decoder->arena = neap_allocate(reactor, decoder->arena_bytes);
	if (decoder->arena && msgpack_zone_init(&decoder->zone, ZONE_BYTES))
		return NEAP_OK;
	neap_release(reactor, decoder->arena, decoder->arena_bytes);
	decoder->arena = NULL;
	return NEAP_ENOMEM;
}

void neap_rpc_decoder_close(struct neap_rpc_decoder *decoder)
{
	if (!decoder->arena)
		return;
	msgpack_zone_destroy(&decoder->zone);
	neap_release(decoder->reactor, decoder->arena, decoder->arena_bytes);
	decoder->arena = NULL;
}

static const char *what_is(const msgpack_object *object)
{
	switch (object->type) {
	case MSGPACK_OBJECT_NIL: return "nil";
	case MSGPACK_OBJECT_BOOLEAN: return "a bool";
	case MSGPACK_OBJECT_POSITIVE_INTEGER: return "an unsigned integer";
	case MSGPACK_OBJECT_NEGATIVE_INTEGER: return "a negative integer";
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64: return "a float";
	case MSGPACK_OBJECT_STR: return "text";
	case MSGPACK_OBJECT_ARRAY: return "an array";
	case MSGPACK_OBJECT_MAP: return "a map";
	case MSGPACK_OBJECT_BIN: return "bytes";
	case MSGPACK_OBJECT_EXT: return "an extension";
	}
	return "something unknown";
}

static int wrong_type(struct reading *reading, const struct neap_rpc_message *message, const struct neap_rpc_field *field,
                      const msgpack_object *object)
{
	static const char *const expected[] = {
		[NEAP_RPC_U64] = "an unsigned integer", [NEAP_RPC_I64] = "an integer", [NEAP_RPC_BOOL] = "a bool",
		[NEAP_RPC_BYTES] = "bytes",             [NEAP_RPC_TEXT] = "text",      [NEAP_RPC_LIST] = "an array",
	};
	(void)snprintf(reading->why, reading->why_size, "field `%s` of `%s`: expected %s, got %s", field->name, message->name,
	               expected[field->kind], what_is(object));
	return NEAP_EREQUEST;
}

static int too_large(struct reading *reading, const struct neap_rpc_message *message, const struct neap_rpc_field *field,
                     uint64_t number)
{
	(void)snprintf(reading->why, reading->why_size, "field `%s` of `%s`: %llu; the limit is %llu", field->name, message->name,
	               (unsigned long long)number, (unsigned long long)field->max);
	return NEAP_EREQUEST;
}

static int read_map(struct reading *reading, const struct neap_rpc_message *message, const msgpack_object *object, void *data);

static int read_list(struct reading *reading, const struct neap_rpc_field *field, const msgpack_object *object,
                     struct neap_rpc_list *list)
{
	struct neap_rpc_decoder *decoder = reading->decoder;
	uint32_t count = object->via.array.size;
	size_t item_bytes = field->of->size, at = (decoder->arena_used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	if (count > 0 && (at > decoder->arena_bytes || count > (decoder->arena_bytes - at) / item_bytes)) {
		(void)snprintf(reading->why, reading->why_size, "field `%s`: the lists of one body may take %zu bytes (arena_bytes)", field->name,
		               decoder->arena_bytes);
		return NEAP_EREQUEST;
	}
	unsigned char *items = decoder->arena + at;
	*list = (struct neap_rpc_list){count ? items : NULL, count};
	if (count > 0)
		decoder->arena_used = at + count * item_bytes;
	for (uint32_t i = 0; i < count; i++) {
		int error = read_map(reading, field->of, &object->via.array.ptr[i], items + i * item_bytes);
		if (error)
			return error;
	}
	return NEAP_OK;
}

/* What an object holds as a field of this kind; false: it is of another type. */
static bool number_of(const struct neap_rpc_field *field, const msgpack_object *object, uint64_t *number_p)
{
	bool positive = object->type == MSGPACK_OBJECT_POSITIVE_INTEGER;
	switch ((enum neap_rpc_kind)field->kind) {
	case NEAP_RPC_U64: *number_p = object->via.u64; return positive;
	case NEAP_RPC_I64:
		if (object->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
			*number_p = 0 - (uint64_t)object->via.i64;
		else
			*number_p = object->via.u64;
		return object->type == MSGPACK_OBJECT_NEGATIVE_INTEGER || (positive && object->via.u64 <= INT64_MAX);
	case NEAP_RPC_BOOL: *number_p = 0; return object->type == MSGPACK_OBJECT_BOOLEAN;
	case NEAP_RPC_BYTES: *number_p = object->via.bin.size; return object->type == MSGPACK_OBJECT_BIN;
	case NEAP_RPC_TEXT: *number_p = object->via.str.size; return object->type == MSGPACK_OBJECT_STR;
	case NEAP_RPC_LIST: *number_p = object->via.array.size; return object->type == MSGPACK_OBJECT_ARRAY;
	}
	return false;
}

static int read_field(struct reading *reading, const struct neap_rpc_message *message, const struct neap_rpc_field *field,
                      const msgpack_object *object, void *data)
{
	void *at = (unsigned char *)data + field->offset;
	uint64_t number = 0;
	if (!number_of(field, object, &number))
		return wrong_type(reading, message, field, object);
	if (number > field->max && field->kind != NEAP_RPC_BOOL)
		return too_large(reading, message, field, number);
	switch ((enum neap_rpc_kind)field->kind) {
	case NEAP_RPC_U64: *(uint64_t *)at = object->via.u64; break;
	case NEAP_RPC_I64: *(int64_t *)at = object->via.i64; break;
	case NEAP_RPC_BOOL: *(bool *)at = object->via.boolean; break;
	case NEAP_RPC_BYTES: *(struct neap_rpc_view *)at = (struct neap_rpc_view){object->via.bin.ptr, object->via.bin.size}; break;
	case NEAP_RPC_TEXT: *(struct neap_rpc_view *)at = (struct neap_rpc_view){object->via.str.ptr, object->via.str.size}; break;
	case NEAP_RPC_LIST: return read_list(reading, field, object, at);
	}
	return NEAP_OK;
}

/* Peers send fields in the table's order, so the search begins where the last one ended. */
static int find_field(const struct neap_rpc_message *message, const msgpack_object_str *key, unsigned from)
{
	for (unsigned i = 0; i < message->field_count; i++) {
		unsigned at = (from + i) % message->field_count;
		const char *name = message->fields[at].name;
		if (strlen(name) == key->size && memcmp(name, key->ptr, key->size) == 0)
			return (int)at;
	}
	return -1;
}

static int check_required(struct reading *reading, const struct neap_rpc_message *message, uint64_t seen)
{
	for (uint16_t i = 0; i < message->field_count; i++) {
		if (!message->fields[i].required || (seen >> i & 1))
			continue;
		(void)snprintf(reading->why, reading->why_size, "field `%s` of `%s` is missing", message->fields[i].name, message->name);
		return NEAP_EREQUEST;
	}
	return NEAP_OK;
}

static int read_map(struct reading *reading, const struct neap_rpc_message *message, const msgpack_object *object, void *data)
{
	uint64_t seen = 0;
	unsigned next = 0;
	if (message->defaults)
		memcpy(data, message->defaults, message->size);
	else
		memset(data, 0, message->size);
	if (object->type != MSGPACK_OBJECT_MAP) {
		(void)snprintf(reading->why, reading->why_size, "`%s`: expected a map, got %s", message->name, what_is(object));
		return NEAP_EREQUEST;
	}
	for (uint32_t i = 0; i < object->via.map.size; i++) {
		const msgpack_object_kv *pair = &object->via.map.ptr[i];
		int at = pair->key.type == MSGPACK_OBJECT_STR ? find_field(message, &pair->key.via.str, next) : -1;
		if (at < 0)
			continue; /* of a newer peer */
		if (seen >> at & 1) {
			(void)snprintf(reading->why, reading->why_size, "field `%s` of `%s` comes twice", message->fields[at].name, message->name);
			return NEAP_EREQUEST;
		}
		seen |= UINT64_C(1) << at;
		next = (unsigned)at + 1;
		int error = read_field(reading, message, &message->fields[at], &pair->val, data);
		if (error)
			return error;
	}
	return check_required(reading, message, seen);
}

int neap_rpc_decode(struct neap_rpc_decoder *decoder, const struct neap_rpc_message *message, const void *body, size_t length,
                    const void **data_p, char *why, size_t why_size)
{
	struct reading reading = {decoder, why, why_size};
	msgpack_object object;
	size_t used = 0;
	int error = neap_rpc_scan(body, length, why, why_size);
	if (error)
		return error;
	msgpack_zone_clear(&decoder->zone);
	decoder->arena_used = 0;
	msgpack_unpack_return answer = msgpack_unpack(body, length, &used, &decoder->zone, &object);
	if (answer == MSGPACK_UNPACK_NOMEM_ERROR) {
		(void)snprintf(why, why_size, "body: out of memory");
		return NEAP_ENOMEM;
	}
	if (answer != MSGPACK_UNPACK_SUCCESS || used != length) {
		(void)snprintf(why, why_size, "body: not valid msgpack (%d)", (int)answer);
		return NEAP_EPROTO;
	}
	*data_p = decoder->data;
	return read_map(&reading, message, &object, decoder->data);
}
