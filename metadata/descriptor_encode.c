/* Segment descriptors for others: the fields, types and order that the Mooncake Transfer Engine writes. What a consumer would
 * refuse is refused here already, with the place. */
#include "metadata/descriptor.h"
#include "metadata/json.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct encoding {
	const struct neap_descriptor *descriptor;
	struct neap_json_writer writer;
	int error;
	char *why;
	size_t why_size;
};

NEAP_PRINTF(3, 4) static bool refuse(struct encoding *encoding, int error, const char *format, ...)
{
	if (encoding->error)
		return false;
	encoding->error = error;
	if (encoding->why_size) {
		va_list list;
		va_start(list, format);
		(void)vsnprintf(encoding->why, encoding->why_size, format, list);
		va_end(list);
	}
	return false;
}

/* A name as consumers accept it. */
static bool put_name(struct encoding *encoding, const char *name, size_t max, const char *place)
{
	if (!name || !name[0])
		return refuse(encoding, NEAP_EINVAL, "%s: is empty", place);
	if (strlen(name) > max)
		return refuse(encoding, NEAP_ELIMIT, "%s: has %zu bytes, at most %zu are allowed", place, strlen(name), max);
	if (!neap_json_put_string(&encoding->writer, name))
		return refuse(encoding, NEAP_EINVAL, "%s: is not UTF-8", place);
	return true;
}

/* lkeys are of no use to anyone else; their number must match. */
static void put_keys(struct neap_json_writer *writer, const uint32_t *keys, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (i > 0)
			neap_json_put(writer, ",", 1);
		neap_json_put_u64(writer, keys ? keys[i] : 0);
	}
}

static bool put_buffer(struct encoding *encoding, uint32_t index)
{
	const struct neap_descriptor *descriptor = encoding->descriptor;
	const struct neap_buffer_desc *buffer = &descriptor->buffers[index];
	struct neap_json_writer *writer = &encoding->writer;
	bool rdma = descriptor->protocol == NEAP_PROTOCOL_RDMA;
	char place[32];

	(void)snprintf(place, sizeof place, "buffers[%u].name", index);
	if (buffer->address == 0 || buffer->length == 0 || buffer->length - 1 > UINT64_MAX - buffer->address)
		return refuse(encoding, NEAP_EINVAL, "buffers[%u]: address and length must not be 0 or go past the address space", index);
	if (buffer->key_count && buffer->key_count != descriptor->device_count)
		return refuse(encoding, NEAP_EINVAL, "buffers[%u]: %u keys for %u devices", index, buffer->key_count,
		              descriptor->device_count);
	neap_json_put_text(writer, index > 0 ? ",{\"addr\":" : "{\"addr\":");
	neap_json_put_u64(writer, buffer->address);
	neap_json_put_text(writer, ",\"length\":");
	neap_json_put_u64(writer, buffer->length);
	if (rdma) {
		neap_json_put_text(writer, ",\"lkey\":[");
		put_keys(writer, buffer->lkeys, buffer->key_count);
		neap_json_put_text(writer, "]");
	}
	neap_json_put_text(writer, ",\"name\":");
	if (!put_name(encoding, buffer->name, rdma ? NEAP_LOCATION_MAX : NEAP_NAME_MAX, place))
		return false;
	if (rdma) {
		neap_json_put_text(writer, ",\"rkey\":[");
		put_keys(writer, buffer->rkeys, buffer->key_count);
		neap_json_put_text(writer, "]");
	}
	neap_json_put(writer, "}", 1);
	return true;
}

static bool put_buffers(struct encoding *encoding)
{
	neap_json_put_text(&encoding->writer, "{\"buffers\":[");
	if (encoding->descriptor->buffer_count > NEAP_BUFFERS_MAX)
		return refuse(encoding, NEAP_ELIMIT, "%u buffers, at most %u are allowed", encoding->descriptor->buffer_count,
		              NEAP_BUFFERS_MAX);
	for (uint32_t i = 0; i < encoding->descriptor->buffer_count; i++)
		if (!put_buffer(encoding, i))
			return false;
	neap_json_put_text(&encoding->writer, "]");
	return true;
}

static bool put_devices(struct encoding *encoding)
{
	const struct neap_descriptor *descriptor = encoding->descriptor;
	struct neap_json_writer *writer = &encoding->writer;
	if (descriptor->device_count > NEAP_DEVICES_MAX)
		return refuse(encoding, NEAP_ELIMIT, "%u devices, at most %u are allowed", descriptor->device_count, NEAP_DEVICES_MAX);
	neap_json_put_text(writer, ",\"devices\":[");
	for (uint32_t i = 0; i < descriptor->device_count; i++) {
		char gid[48], place[32];
		(void)snprintf(place, sizeof place, "devices[%u].name", i);
		neap_gid_format(descriptor->devices[i].gid, gid);
		neap_json_put_text(writer, i > 0 ? ",{\"gid\":\"" : "{\"gid\":\"");
		neap_json_put_text(writer, gid);
		neap_json_put_text(writer, "\",\"lid\":");
		neap_json_put_u64(writer, descriptor->devices[i].lid);
		neap_json_put_text(writer, ",\"name\":");
		if (!put_name(encoding, descriptor->devices[i].name, NEAP_NAME_MAX, place))
			return false;
		neap_json_put_text(writer, "}");
	}
	neap_json_put_text(writer, "]");
	return true;
}

static bool put_device_names(struct encoding *encoding, char *const *names, uint32_t count)
{
	neap_json_put_text(&encoding->writer, "[");
	for (uint32_t i = 0; i < count; i++) {
		if (i > 0)
			neap_json_put_text(&encoding->writer, ",");
		if (!put_name(encoding, names[i], NEAP_NAME_MAX, "priority_matrix"))
			return false;
	}
	neap_json_put_text(&encoding->writer, "]");
	return true;
}

static int by_location(const void *a, const void *b)
{
	return strcmp((*(const struct neap_priority_row *const *)a)->location, (*(const struct neap_priority_row *const *)b)->location);
}

static bool put_priority(struct encoding *encoding)
{
	const struct neap_descriptor *descriptor = encoding->descriptor;
	struct neap_json_writer *writer = &encoding->writer;
	uint32_t count = descriptor->priority_count;
	bool ok = true;

	if (count == 0) {
		neap_json_put_text(writer, ",\"priority_matrix\":null");
		return true;
	}
	const struct neap_priority_row **rows = malloc(count * sizeof *rows);
	if (!rows)
		return refuse(encoding, NEAP_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < count; i++)
		rows[i] = &descriptor->priority[i];
	qsort(rows, count, sizeof *rows, by_location);
	neap_json_put_text(writer, ",\"priority_matrix\":{");
	for (uint32_t i = 0; ok && i < count; i++) {
		if (i > 0)
			neap_json_put_text(writer, ",");
		ok = put_name(encoding, rows[i]->location, NEAP_LOCATION_MAX, "priority_matrix");
		neap_json_put_text(writer, ":[");
		ok = ok && put_device_names(encoding, rows[i]->preferred, rows[i]->preferred_count);
		neap_json_put_text(writer, ",");
		ok = ok && put_device_names(encoding, rows[i]->available, rows[i]->available_count);
		neap_json_put_text(writer, "]");
	}
	free(rows);
	neap_json_put_text(writer, "}");
	return ok;
}

static void put_id(struct neap_json_writer *writer, const char *before, const uint8_t id[16])
{
	char text[NEAP_ID_TEXT_SIZE];
	neap_id_format(id, text);
	neap_json_put_text(writer, before);
	neap_json_put_text(writer, text);
}

static bool put_neap(struct encoding *encoding)
{
	const struct neap_capability *neap = &encoding->descriptor->neap;
	struct neap_json_writer *writer = &encoding->writer;
	static const struct {
		uint32_t flag;
		const char *name;
	} caps[] = {{NEAP_CAP_CHECKSUM, "\"checksum\""}, {NEAP_CAP_FENCE, "\"fence\""}, {NEAP_CAP_GRANTS, "\"grants\""}};
	const char *comma = "";

	if (!neap->present)
		return true;
	if (neap->level == 0 || neap->port_count > NEAP_CORES_MAX)
		return refuse(encoding, NEAP_EINVAL, "neap: level must not be 0 and at most %u ports are allowed", NEAP_CORES_MAX);
	put_id(writer, ",\"neap\":{\"boot\":\"", neap->boot);
	neap_json_put_text(writer, "\",\"caps\":[");
	for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
		if (!(neap->flags & caps[i].flag))
			continue;
		neap_json_put_text(writer, comma);
		neap_json_put_text(writer, caps[i].name);
		comma = ",";
	}
	put_id(writer, "],\"instance\":\"", neap->instance);
	neap_json_put_text(writer, "\",\"level\":");
	neap_json_put_u64(writer, neap->level);
	neap_json_put_text(writer, ",\"ports\":[");
	for (uint32_t i = 0; i < neap->port_count; i++) {
		if (i > 0)
			neap_json_put_text(writer, ",");
		neap_json_put_u64(writer, neap->ports[i]);
	}
	neap_json_put_text(writer, "],\"version\":");
	neap_json_put_u64(writer, neap->version);
	neap_json_put_text(writer, "}");
	return true;
}

/* "2026-08-22 10:00:00.000001", local time, as the others write it. */
static void put_timestamp(struct neap_json_writer *writer, uint64_t wall_us)
{
	char text[64];
	struct tm tm;
	time_t seconds = (time_t)(wall_us / 1000000);
	if (!localtime_r(&seconds, &tm))
		tm = (struct tm){.tm_year = 70, .tm_mday = 1};
	(void)snprintf(text, sizeof text, ",\"timestamp\":\"%04d-%02d-%02d %02d:%02d:%02d.%06u\"", tm.tm_year + 1900, tm.tm_mon + 1,
	               tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (unsigned)(wall_us % 1000000));
	neap_json_put_text(writer, text);
}

static bool put_numbers(struct encoding *encoding)
{
	const struct neap_descriptor *descriptor = encoding->descriptor;
	if (descriptor->tcp_data_port < 0 || descriptor->tcp_data_port > UINT16_MAX || descriptor->tcp_proto_version < 0)
		return refuse(encoding, NEAP_EINVAL, "tcp_data_port %d or tcp_proto_version %d is out of range", descriptor->tcp_data_port,
		              descriptor->tcp_proto_version);
	neap_json_put_text(&encoding->writer, ",\"tcp_data_port\":");
	neap_json_put_u64(&encoding->writer, (uint64_t)descriptor->tcp_data_port);
	neap_json_put_text(&encoding->writer, ",\"tcp_proto_version\":");
	neap_json_put_u64(&encoding->writer, (uint64_t)descriptor->tcp_proto_version);
	return true;
}

/* Keys in order, as every reader of such documents is used to. */
static bool put_all(struct encoding *encoding, uint64_t wall_us, bool newline)
{
	const struct neap_descriptor *descriptor = encoding->descriptor;
	struct neap_json_writer *writer = &encoding->writer;
	bool rdma = descriptor->protocol == NEAP_PROTOCOL_RDMA;

	if (!put_buffers(encoding) || (rdma && !put_devices(encoding)))
		return false;
	neap_json_put_text(writer, ",\"name\":");
	if (!put_name(encoding, descriptor->name, NEAP_NAME_MAX, "name") || !put_neap(encoding) || (rdma && !put_priority(encoding)))
		return false;
	neap_json_put_text(writer, rdma ? ",\"protocol\":\"rdma\"" : ",\"protocol\":\"tcp\"");
	if (rdma && descriptor->rdma_server_name) {
		neap_json_put_text(writer, ",\"rdma_server_name\":");
		if (!put_name(encoding, descriptor->rdma_server_name, NEAP_NAME_MAX, "rdma_server_name"))
			return false;
	}
	if (!put_numbers(encoding))
		return false;
	put_timestamp(writer, wall_us);
	neap_json_put_text(writer, newline ? "}\n" : "}");
	return true;
}

int neap_descriptor_encode(const struct neap_descriptor *descriptor, uint64_t wall_us, bool newline, size_t length_max,
                           char **text_p, size_t *length_p, char *why, size_t why_size)
{
	struct encoding encoding = {.descriptor = descriptor, .why = why, .why_size = why ? why_size : 0};
	*text_p = NULL;
	*length_p = 0;
	if (encoding.why_size)
		why[0] = '\0';
	neap_json_writer_init(&encoding.writer, length_max, 512 + (size_t)descriptor->buffer_count * 96);
	if (!put_all(&encoding, wall_us, newline)) {
		neap_json_writer_drop(&encoding.writer);
		return encoding.error;
	}
	size_t length = encoding.writer.length;
	int error = neap_json_writer_take(&encoding.writer, text_p, length_p);
	if (error == NEAP_ELIMIT)
		(void)refuse(&encoding, error, "the descriptor has %zu bytes (%u buffers) and the limit is %zu", length,
		             descriptor->buffer_count, length_max);
	else if (error)
		(void)refuse(&encoding, error, "out of memory for %zu bytes", length);
	return error;
}
