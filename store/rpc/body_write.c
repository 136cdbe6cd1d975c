#include "store/rpc/body.h"
#include <stdio.h>
#include <string.h>

static int append(void *data, const char *bytes, size_t length)
{
	struct neap_rpc_writer *writer = data;
	if (length > 0 && writer->length <= writer->capacity && length <= writer->capacity - writer->length)
		memcpy(writer->bytes + writer->length, bytes, length);
	writer->length += length;
	return 0;
}

/* The packer is told that writing never fails, and so it does not. */
static void pack_text(msgpack_packer *packer, const char *text, size_t length)
{
	(void)msgpack_pack_str(packer, length);
	(void)msgpack_pack_str_body(packer, text, length);
}

static const unsigned char *member(const struct neap_rpc_field *field, const void *data)
{
	return (const unsigned char *)data + field->offset;
}

/* A field's value as far as it can be compared: a number, or a count and where it begins. */
struct value {
	uint64_t number;
	const void *bytes;
};

static struct value value_of(const struct neap_rpc_field *field, const void *data)
{
	const void *at = member(field, data);
	switch ((enum neap_rpc_kind)field->kind) {
	case NEAP_RPC_U64: return (struct value){*(const uint64_t *)at, NULL};
	case NEAP_RPC_I64: return (struct value){(uint64_t) * (const int64_t *)at, NULL};
	case NEAP_RPC_BOOL: return (struct value){*(const bool *)at, NULL};
	case NEAP_RPC_BYTES:
	case NEAP_RPC_TEXT: return (struct value){((const struct neap_rpc_view *)at)->length, ((const struct neap_rpc_view *)at)->bytes};
	case NEAP_RPC_LIST: return (struct value){((const struct neap_rpc_list *)at)->count, ((const struct neap_rpc_list *)at)->items};
	}
	return (struct value){0, NULL};
}

static bool is_default(const struct neap_rpc_message *message, const struct neap_rpc_field *field, struct value value)
{
	struct value plain = message->defaults ? value_of(field, message->defaults) : (struct value){0, NULL};
	if (value.number != plain.number)
		return false;
	if (field->kind != NEAP_RPC_BYTES && field->kind != NEAP_RPC_TEXT && field->kind != NEAP_RPC_LIST)
		return true;
	return value.number == 0 || value.bytes == plain.bytes;
}

static int check(const struct neap_rpc_message *message, const struct neap_rpc_field *field, struct value value, char *why,
                 size_t why_size)
{
	uint64_t number = value.number;
	if (field->kind == NEAP_RPC_I64 && (int64_t)number < 0)
		number = 0 - number;
	if (field->kind == NEAP_RPC_BOOL || number <= field->max)
		return NEAP_OK;
	(void)snprintf(why, why_size, "field `%s` of `%s`: %llu; the limit is %llu", field->name, message->name,
	               (unsigned long long)number, (unsigned long long)field->max);
	return NEAP_EINVAL;
}

static int pack_map(msgpack_packer *packer, const struct neap_rpc_message *message, const void *data, char *why, size_t why_size);

static int pack_list(msgpack_packer *packer, const struct neap_rpc_field *field, struct value value, char *why, size_t why_size)
{
	const unsigned char *item = value.bytes;
	int error = NEAP_OK;
	(void)msgpack_pack_array(packer, (size_t)value.number);
	for (uint64_t i = 0; i < value.number && !error; i++)
		error = pack_map(packer, field->of, item + i * field->of->size, why, why_size);
	return error;
}

static int pack_value(msgpack_packer *packer, const struct neap_rpc_field *field, struct value value, char *why, size_t why_size)
{
	switch ((enum neap_rpc_kind)field->kind) {
	case NEAP_RPC_U64: (void)msgpack_pack_uint64(packer, value.number); break;
	case NEAP_RPC_I64: (void)msgpack_pack_int64(packer, (int64_t)value.number); break;
	case NEAP_RPC_BOOL: (void)(value.number ? msgpack_pack_true(packer) : msgpack_pack_false(packer)); break;
	case NEAP_RPC_TEXT: pack_text(packer, value.bytes, (size_t)value.number); break;
	case NEAP_RPC_BYTES:
		(void)msgpack_pack_bin(packer, (size_t)value.number);
		(void)msgpack_pack_bin_body(packer, value.bytes, (size_t)value.number);
		break;
	case NEAP_RPC_LIST: return pack_list(packer, field, value, why, why_size);
	}
	return NEAP_OK;
}

static int pack_map(msgpack_packer *packer, const struct neap_rpc_message *message, const void *data, char *why, size_t why_size)
{
	uint64_t sent = 0;
	uint32_t count = 0;
	for (uint16_t i = 0; i < message->field_count; i++) {
		const struct neap_rpc_field *field = &message->fields[i];
		struct value value = value_of(field, data);
		int error = check(message, field, value, why, why_size);
		if (error)
			return error;
		if (!field->required && is_default(message, field, value))
			continue;
		sent |= UINT64_C(1) << i;
		count++;
	}
	(void)msgpack_pack_map(packer, count);
	for (uint16_t i = 0; i < message->field_count; i++) {
		const struct neap_rpc_field *field = &message->fields[i];
		if (!(sent >> i & 1))
			continue;
		pack_text(packer, field->name, strlen(field->name));
		int error = pack_value(packer, field, value_of(field, data), why, why_size);
		if (error)
			return error;
	}
	return NEAP_OK;
}

int neap_rpc_encode(struct neap_rpc_writer *writer, const struct neap_rpc_message *message, const void *data, char *why,
                    size_t why_size)
{
	msgpack_packer packer;
	msgpack_packer_init(&packer, writer, append);
	return pack_map(&packer, message, data, why, why_size);
}
