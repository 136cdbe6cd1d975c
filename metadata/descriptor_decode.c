/* Segment descriptors from outside. Two passes over the text: the first checks all syntax and finds the protocol, because that says
 * what the other fields mean; the second takes the fields. */
#include "metadata/descriptor.h"
#include "metadata/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRIORITY_ROWS_MAX 512u
#define PROTOCOL_MAX 32u

struct decoding {
	struct neap_json json;
	struct neap_descriptor *descriptor;
	uint32_t buffer_capacity;
};

/* --- protocols ---------------------------------------------------------------------------------------------------- */

static const char *const known_protocols[] = {
	"barex", "efa",  "cxi",  "ub",      "nccl",         "ascend", "nvlink", "nvlink_intra",
	"hip",   "maca", "musa", "ubshmem", "sunrise_link", "cxl",    "nvmeof",
};

static bool take_protocol_name(struct neap_json *json, const char *name, size_t length, enum neap_protocol *protocol_p)
{
	char shown[PROTOCOL_MAX];
	if (strcmp(name, "tcp") == 0 || strcmp(name, "rdma") == 0) {
		*protocol_p = name[0] == 't' ? NEAP_PROTOCOL_TCP : NEAP_PROTOCOL_RDMA;
		return true;
	}
	for (size_t i = 0; i < sizeof known_protocols / sizeof *known_protocols; i++)
		if (strcmp(name, known_protocols[i]) == 0)
			return neap_json_fail(json, NEAP_ENOTSUP, "%s is not supported (this build has tcp and rdma)", name);
	return neap_json_fail(json, NEAP_ENOTSUP, "'%s' is not a protocol known here (this build has tcp and rdma)",
	                      neap_json_printable(name, length < PROTOCOL_MAX ? length : strlen(name), shown, sizeof shown));
}

/* Builds for several protocols at once publish an array of names. */
static bool refuse_protocol_list(struct neap_json *json)
{
	char list[96] = "", name[PROTOCOL_MAX], shown[PROTOCOL_MAX];
	size_t at = 0;
	if (!neap_json_enter_array(json))
		return false;
	while (neap_json_next_item(json)) {
		size_t length = 0;
		if (!neap_json_short_string(json, name, sizeof name, &length))
			return false;
		if (at < sizeof list)
			at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "",
			                       neap_json_printable(name, strlen(name), shown, sizeof shown));
	}
	return neap_json_fail(json, NEAP_ENOTSUP, "a descriptor of several protocols (%s) is not supported", list);
}

static bool take_protocol(struct neap_json *json, enum neap_protocol *protocol_p)
{
	char name[PROTOCOL_MAX];
	size_t length = 0;
	if (neap_json_kind(json) == NEAP_JSON_ARRAY)
		return refuse_protocol_list(json);
	return neap_json_short_string(json, name, sizeof name, &length) && take_protocol_name(json, name, length, protocol_p);
}

/* The first pass. An error in `protocol` is noted where the last one of several stands. */
static bool find_protocol(struct neap_json *json, enum neap_protocol *protocol_p)
{
	struct neap_json at_protocol;
	bool found = false;
	if (!neap_json_enter_object(json))
		return false;
	while (neap_json_next_key(json)) {
		if (strcmp(json->key, "protocol") == 0) {
			at_protocol = *json;
			found = true;
		}
		if (!neap_json_skip(json))
			return false;
	}
	if (!neap_json_finish(json))
		return false;
	if (!found)
		return neap_json_fail(json, NEAP_EJSON, "has no protocol");
	bool ok = take_protocol(&at_protocol, protocol_p);
	json->error = at_protocol.error;
	return ok;
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

static bool take_name(struct neap_json *json, size_t max, char **name_p)
{
	if (!neap_json_string(json, max, name_p))
		return false;
	return (*name_p)[0] ? true : neap_json_fail(json, NEAP_EJSON, "is empty");
}

/* Keys of one buffer: at most one per device. */
static bool take_keys(struct neap_json *json, uint32_t keys[NEAP_DEVICES_MAX], uint32_t *count_p)
{
	*count_p = 0;
	if (!neap_json_enter_array(json))
		return false;
	while (neap_json_next_item(json)) {
		uint64_t value;
		if (*count_p == NEAP_DEVICES_MAX)
			return neap_json_fail(json, NEAP_ELIMIT, "more than %u keys", NEAP_DEVICES_MAX);
		if (!neap_json_u64(json, 0, UINT32_MAX, &value))
			return false;
		keys[(*count_p)++] = (uint32_t)value;
	}
	return !json->error;
}

struct buffer_keys {
	uint32_t rkeys[NEAP_DEVICES_MAX], lkeys[NEAP_DEVICES_MAX];
	uint32_t rkey_count, lkey_count;
};

static bool store_keys(struct neap_json *json, struct neap_buffer_desc *buffer, const struct buffer_keys *keys)
{
	size_t bytes = keys->rkey_count * sizeof *buffer->rkeys;
	if (keys->rkey_count == 0) /* registered without remote access; its lkeys are nobody's business */
		return true;
	if (keys->rkey_count != keys->lkey_count)
		return neap_json_fail(json, NEAP_EJSON, "has %u rkeys and %u lkeys", keys->rkey_count, keys->lkey_count);
	buffer->rkeys = malloc(bytes);
	buffer->lkeys = malloc(bytes);
	if (!buffer->rkeys || !buffer->lkeys)
		return neap_json_fail(json, NEAP_ENOMEM, "out of memory");
	memcpy(buffer->rkeys, keys->rkeys, bytes);
	memcpy(buffer->lkeys, keys->lkeys, bytes);
	buffer->key_count = keys->rkey_count;
	return true;
}

static bool take_buffer_field(struct neap_json *json, enum neap_protocol protocol, struct neap_buffer_desc *buffer,
                              struct buffer_keys *keys)
{
	bool rdma = protocol == NEAP_PROTOCOL_RDMA;
	if (neap_json_null(json))
		return true;
	if (strcmp(json->key, "addr") == 0)
		return neap_json_u64(json, 1, UINT64_MAX, &buffer->address);
	if (strcmp(json->key, "length") == 0)
		return neap_json_u64(json, 1, UINT64_MAX, &buffer->length);
	if (strcmp(json->key, "name") == 0)
		return take_name(json, rdma ? NEAP_LOCATION_MAX : NEAP_NAME_MAX, &buffer->name);
	if (rdma && strcmp(json->key, "rkey") == 0)
		return take_keys(json, keys->rkeys, &keys->rkey_count);
	if (rdma && strcmp(json->key, "lkey") == 0)
		return take_keys(json, keys->lkeys, &keys->lkey_count);
	return neap_json_skip(json);
}

static bool take_buffer(struct neap_json *json, enum neap_protocol protocol, struct neap_buffer_desc *buffer)
{
	struct buffer_keys keys;
	keys.rkey_count = keys.lkey_count = 0;
	if (!neap_json_enter_object(json))
		return false;
	while (neap_json_next_key(json))
		if (!take_buffer_field(json, protocol, buffer, &keys))
			return false;
	if (json->error)
		return false;
	if (!buffer->name || !buffer->address || !buffer->length)
		return neap_json_fail(json, NEAP_EJSON, "has no %s", !buffer->name ? "name" : !buffer->address ? "addr" : "length");
	if (buffer->length - 1 > UINT64_MAX - buffer->address)
		return neap_json_fail(json, NEAP_EJSON, "goes past the end of the address space");
	return store_keys(json, buffer, &keys);
}

static void free_buffers(struct neap_descriptor *descriptor)
{
	for (uint32_t i = 0; i < descriptor->buffer_count; i++) {
		free(descriptor->buffers[i].name);
		free(descriptor->buffers[i].rkeys);
		free(descriptor->buffers[i].lkeys);
	}
	free(descriptor->buffers);
	descriptor->buffers = NULL;
	descriptor->buffer_count = 0;
}

/* Memory follows what was read, not what was announced. */
static bool grow_buffers(struct decoding *decoding)
{
	struct neap_descriptor *descriptor = decoding->descriptor;
	if (descriptor->buffer_count == NEAP_BUFFERS_MAX)
		return neap_json_fail(&decoding->json, NEAP_ELIMIT, "more than %u buffers", NEAP_BUFFERS_MAX);
	if (descriptor->buffer_count == decoding->buffer_capacity) {
		uint32_t capacity = decoding->buffer_capacity ? decoding->buffer_capacity * 2 : 16;
		struct neap_buffer_desc *buffers = realloc(descriptor->buffers, capacity * sizeof *buffers);
		if (!buffers)
			return neap_json_fail(&decoding->json, NEAP_ENOMEM, "out of memory");
		descriptor->buffers = buffers;
		decoding->buffer_capacity = capacity;
	}
	descriptor->buffers[descriptor->buffer_count++] = (struct neap_buffer_desc){0};
	return true;
}

static bool take_buffers(struct decoding *decoding)
{
	struct neap_json *json = &decoding->json;
	struct neap_descriptor *descriptor = decoding->descriptor;
	free_buffers(descriptor);
	decoding->buffer_capacity = 0;
	if (!neap_json_enter_array(json))
		return false;
	while (neap_json_next_item(json))
		if (!grow_buffers(decoding) || !take_buffer(json, descriptor->protocol, &descriptor->buffers[descriptor->buffer_count - 1]))
			return false;
	return !json->error;
}

static bool take_device(struct neap_json *json, struct neap_device_desc *device)
{
	char gid[64] = "";
	uint64_t lid = 0;
	if (!neap_json_enter_object(json))
		return false;
	while (neap_json_next_key(json)) {
		bool ok;
		if (neap_json_null(json))
			continue;
		if (strcmp(json->key, "name") == 0)
			ok = take_name(json, NEAP_NAME_MAX, &device->name);
		else if (strcmp(json->key, "lid") == 0)
			ok = neap_json_u64(json, 0, UINT16_MAX, &lid);
		else if (strcmp(json->key, "gid") == 0)
			ok = neap_json_short_string(json, gid, sizeof gid, NULL) &&
			     (neap_gid_parse(gid, device->gid) || neap_json_fail(json, NEAP_EJSON, "must be 16 hex bytes joined by colons"));
		else
			ok = neap_json_skip(json);
		if (!ok)
			return false;
	}
	if (json->error)
		return false;
	device->lid = (uint16_t)lid;
	if (!device->name || !gid[0])
		return neap_json_fail(json, NEAP_EJSON, "has no %s", device->name ? "gid" : "name");
	return true;
}

static void free_devices(struct neap_descriptor *descriptor)
{
	for (uint32_t i = 0; i < descriptor->device_count; i++)
		free(descriptor->devices[i].name);
	free(descriptor->devices);
	descriptor->devices = NULL;
	descriptor->device_count = 0;
}

static bool take_devices(struct decoding *decoding)
{
	struct neap_json *json = &decoding->json;
	struct neap_descriptor *descriptor = decoding->descriptor;
	free_devices(descriptor);
	if (!neap_json_enter_array(json))
		return false;
	descriptor->devices = calloc(NEAP_DEVICES_MAX, sizeof *descriptor->devices);
	if (!descriptor->devices)
		return neap_json_fail(json, NEAP_ENOMEM, "out of memory");
	while (neap_json_next_item(json)) {
		if (descriptor->device_count == NEAP_DEVICES_MAX)
			return neap_json_fail(json, NEAP_ELIMIT, "more than %u devices", NEAP_DEVICES_MAX);
		if (!take_device(json, &descriptor->devices[descriptor->device_count++]))
			return false;
	}
	return !json->error;
}

/* --- priority matrix ---------------------------------------------------------------------------------------------- */

static void free_row(struct neap_priority_row *row)
{
	for (uint32_t k = 0; k < row->preferred_count; k++)
		free(row->preferred[k]);
	for (uint32_t k = 0; k < row->available_count; k++)
		free(row->available[k]);
	free(row->preferred);
	free(row->available);
	free(row->location);
	*row = (struct neap_priority_row){0};
}

static void free_priority(struct neap_descriptor *descriptor)
{
	for (uint32_t i = 0; i < descriptor->priority_count; i++)
		free_row(&descriptor->priority[i]);
	free(descriptor->priority);
	descriptor->priority = NULL;
	descriptor->priority_count = 0;
}

static bool take_device_names(struct neap_json *json, char ***names_p, uint32_t *count_p)
{
	if (!neap_json_enter_array(json))
		return false;
	*names_p = calloc(NEAP_DEVICES_MAX, sizeof **names_p);
	if (!*names_p)
		return neap_json_fail(json, NEAP_ENOMEM, "out of memory");
	while (neap_json_next_item(json)) {
		if (*count_p == NEAP_DEVICES_MAX)
			return neap_json_fail(json, NEAP_ELIMIT, "more than %u devices", NEAP_DEVICES_MAX);
		if (!take_name(json, NEAP_NAME_MAX, &(*names_p)[(*count_p)++]))
			return false;
	}
	return !json->error;
}

/* [[preferred...], [available...]] */
static bool take_priority_row(struct neap_json *json, struct neap_priority_row *row)
{
	if (!neap_json_enter_array(json))
		return false;
	for (int i = 0; i < 2; i++) {
		if (!neap_json_next_item(json))
			return neap_json_fail(json, NEAP_EJSON, "must be two lists of device names");
		if (!take_device_names(json, i == 0 ? &row->preferred : &row->available,
		                       i == 0 ? &row->preferred_count : &row->available_count))
			return false;
	}
	return !neap_json_next_item(json) ? !json->error : neap_json_fail(json, NEAP_EJSON, "must not be there: two lists are all");
}

/* The key of the member as a location; the reader keeps short ones only, so it is read again as the string that it is. */
static char *take_location(struct neap_json *json)
{
	const struct neap_json_frame *frame = &json->frames[json->depth - 1];
	struct neap_json key;
	char *location = NULL;
	neap_json_init(&key, frame->key - 1, (size_t)frame->key_length + 2, NULL, 0);
	if (!neap_json_string(&key, NEAP_LOCATION_MAX, &location)) {
		(void)neap_json_fail(json, key.error, key.error == NEAP_ENOMEM ? "out of memory" : "the location's name is too long");
	} else if (!location[0]) {
		(void)neap_json_fail(json, NEAP_EJSON, "a location without a name");
		free(location);
		location = NULL;
	}
	return location;
}

/* The row of this location, emptied when it was there before; the location becomes the row's. */
static struct neap_priority_row *row_for(struct neap_json *json, struct neap_descriptor *descriptor, char *location)
{
	struct neap_priority_row *row = NULL;
	for (uint32_t i = 0; i < descriptor->priority_count && !row; i++)
		if (strcmp(descriptor->priority[i].location, location) == 0)
			free_row(row = &descriptor->priority[i]);
	if (!row && descriptor->priority_count == PRIORITY_ROWS_MAX)
		(void)neap_json_fail(json, NEAP_ELIMIT, "more than %u locations", PRIORITY_ROWS_MAX);
	else if (!row)
		row = &descriptor->priority[descriptor->priority_count++];
	if (row)
		row->location = location;
	else
		free(location);
	return row;
}

static bool take_priority_rows(struct decoding *decoding)
{
	struct neap_json *json = &decoding->json;
	struct neap_descriptor *descriptor = decoding->descriptor;
	if (!neap_json_enter_object(json))
		return false;
	descriptor->priority = calloc(PRIORITY_ROWS_MAX, sizeof *descriptor->priority);
	if (!descriptor->priority)
		return neap_json_fail(json, NEAP_ENOMEM, "out of memory");
	while (neap_json_next_key(json)) {
		char *location = take_location(json);
		struct neap_priority_row *row = location ? row_for(json, descriptor, location) : NULL;
		if (!row || !take_priority_row(json, row))
			return false;
	}
	return !json->error;
}

/* Without a usable matrix the devices can still be used, so a bad one is left out, as other consumers do. */
static bool take_priority(struct decoding *decoding)
{
	struct neap_json *json = &decoding->json;
	size_t at = json->at;
	uint32_t depth = json->depth;
	free_priority(decoding->descriptor);
	if (take_priority_rows(decoding))
		return true;
	if (json->error == NEAP_ENOMEM)
		return false;
	free_priority(decoding->descriptor);
	json->error = 0;
	json->at = at;
	json->depth = depth;
	return neap_json_skip(json);
}

/* --- the neap key ------------------------------------------------------------------------------------------------- */

static bool take_id(struct neap_json *json, uint8_t id[16])
{
	char text[40];
	if (!neap_json_short_string(json, text, sizeof text, NULL))
		return false;
	return neap_id_parse(text, id) || neap_json_fail(json, NEAP_EJSON, "must be 32 lower-case hex digits");
}

static bool take_caps(struct neap_json *json, uint32_t *flags_p)
{
	*flags_p = 0;
	if (!neap_json_enter_array(json))
		return false;
	while (neap_json_next_item(json)) {
		char cap[24];
		if (!neap_json_short_string(json, cap, sizeof cap, NULL))
			return false;
		if (strcmp(cap, "checksum") == 0)
			*flags_p |= NEAP_CAP_CHECKSUM;
		else if (strcmp(cap, "grants") == 0)
			*flags_p |= NEAP_CAP_GRANTS;
		else if (strcmp(cap, "fence") == 0)
			*flags_p |= NEAP_CAP_FENCE;
	}
	return !json->error;
}

static bool take_ports(struct neap_json *json, struct neap_capability *neap)
{
	neap->port_count = 0;
	if (!neap_json_enter_array(json))
		return false;
	while (neap_json_next_item(json)) {
		uint64_t port;
		if (neap->port_count == NEAP_CORES_MAX)
			return neap_json_fail(json, NEAP_ELIMIT, "more than %u ports", NEAP_CORES_MAX);
		if (!neap_json_u64(json, 1, UINT16_MAX, &port))
			return false;
		neap->ports[neap->port_count++] = (uint16_t)port;
	}
	return !json->error;
}

static bool take_neap(struct neap_json *json, struct neap_capability *neap)
{
	bool has_instance = false;
	uint64_t level = 0;
	*neap = (struct neap_capability){0};
	if (!neap_json_enter_object(json))
		return false;
	while (neap_json_next_key(json)) {
		bool ok;
		if (strcmp(json->key, "instance") == 0)
			ok = has_instance = take_id(json, neap->instance);
		else if (strcmp(json->key, "boot") == 0)
			ok = take_id(json, neap->boot);
		else if (strcmp(json->key, "level") == 0)
			ok = neap_json_u64(json, 1, UINT32_MAX, &level);
		else if (strcmp(json->key, "caps") == 0)
			ok = take_caps(json, &neap->flags);
		else if (strcmp(json->key, "ports") == 0)
			ok = take_ports(json, neap);
		else if (strcmp(json->key, "version") == 0)
			ok = neap_json_u64(json, 0, UINT64_MAX, &neap->version);
		else
			ok = neap_json_skip(json);
		if (!ok)
			return false;
	}
	if (json->error)
		return false;
	if (!has_instance || level == 0)
		return neap_json_fail(json, NEAP_EJSON, "has no %s", has_instance ? "level" : "instance");
	neap->level = (uint32_t)level;
	neap->present = true;
	return true;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static bool take_number(struct neap_json *json, uint64_t max, int32_t *value_p)
{
	uint64_t value;
	if (!neap_json_u64(json, 0, max, &value))
		return false;
	*value_p = (int32_t)value;
	return true;
}

static bool take_rdma_field(struct decoding *decoding)
{
	struct neap_json *json = &decoding->json;
	struct neap_descriptor *descriptor = decoding->descriptor;
	if (strcmp(json->key, "devices") == 0)
		return take_devices(decoding);
	if (strcmp(json->key, "priority_matrix") == 0)
		return take_priority(decoding);
	if (strcmp(json->key, "rdma_server_name") == 0) {
		if (!neap_json_string(json, NEAP_NAME_MAX, &descriptor->rdma_server_name))
			return false;
		if (descriptor->rdma_server_name[0] == '\0') {
			free(descriptor->rdma_server_name);
			descriptor->rdma_server_name = NULL;
		}
		return true;
	}
	return neap_json_skip(json);
}

static bool take_field(struct decoding *decoding)
{
	struct neap_json *json = &decoding->json;
	struct neap_descriptor *descriptor = decoding->descriptor;
	if (neap_json_null(json))
		return true;
	if (strcmp(json->key, "name") == 0)
		return take_name(json, NEAP_NAME_MAX, &descriptor->name);
	if (strcmp(json->key, "tcp_data_port") == 0)
		return take_number(json, UINT16_MAX, &descriptor->tcp_data_port);
	if (strcmp(json->key, "tcp_proto_version") == 0)
		return take_number(json, INT32_MAX, &descriptor->tcp_proto_version);
	if (strcmp(json->key, "timestamp") == 0)
		return neap_json_short_string(json, descriptor->timestamp, sizeof descriptor->timestamp, NULL);
	if (strcmp(json->key, "buffers") == 0)
		return take_buffers(decoding);
	if (strcmp(json->key, "neap") == 0)
		return take_neap(json, &descriptor->neap);
	if (descriptor->protocol == NEAP_PROTOCOL_RDMA)
		return take_rdma_field(decoding);
	return neap_json_skip(json);
}

static int by_start(const void *a, const void *b)
{
	const struct neap_buffer_desc *x = *(const struct neap_buffer_desc *const *)a, *y = *(const struct neap_buffer_desc *const *)b;
	return x->address < y->address ? -1 : x->address > y->address;
}

/* Starts in order, and beside each the furthest end of all buffers that start there or before: buffers of a stranger may overlap,
 * and still a range lies inside one of them exactly when that end is not before its own. */
/* Over RDMA a region may be told in pieces, and a request is cut where they meet. */
static void join_touching(struct neap_descriptor *descriptor)
{
	for (uint32_t i = descriptor->buffer_count; i-- > 1;)
		if (descriptor->range_starts[i] - 1 == descriptor->range_ends[i - 1])
			descriptor->range_ends[i - 1] = descriptor->range_ends[i];
}

static bool index_ranges(struct decoding *decoding)
{
	struct neap_descriptor *descriptor = decoding->descriptor;
	uint32_t count = descriptor->buffer_count;
	const struct neap_buffer_desc **order = malloc((count + 1) * sizeof *order);
	descriptor->range_starts = malloc((count + 1) * sizeof *descriptor->range_starts);
	descriptor->range_ends = malloc((count + 1) * sizeof *descriptor->range_ends);
	if (!order || !descriptor->range_starts || !descriptor->range_ends) {
		free(order);
		return neap_json_fail(&decoding->json, NEAP_ENOMEM, "out of memory");
	}
	bool sorted = true;
	for (uint32_t i = 0; i < count; i++) {
		order[i] = &descriptor->buffers[i];
		sorted = sorted && (i == 0 || order[i - 1]->address <= order[i]->address);
	}
	if (!sorted)
		qsort(order, count, sizeof *order, by_start);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t last = order[i]->address + (order[i]->length - 1);
		descriptor->range_starts[i] = order[i]->address;
		descriptor->range_ends[i] = i > 0 && descriptor->range_ends[i - 1] > last ? descriptor->range_ends[i - 1] : last;
	}
	free(order);
	if (descriptor->protocol == NEAP_PROTOCOL_RDMA)
		join_touching(descriptor);
	return true;
}

static bool take_all(struct decoding *decoding)
{
	struct neap_json *json = &decoding->json;
	struct neap_descriptor *descriptor = decoding->descriptor;
	(void)neap_json_enter_object(json);
	while (neap_json_next_key(json))
		if (!take_field(decoding))
			return false;
	if (json->error)
		return false;
	if (!descriptor->name)
		return neap_json_fail(json, NEAP_EJSON, "has no name");
	for (uint32_t i = 0; i < descriptor->buffer_count; i++)
		if (descriptor->buffers[i].key_count && descriptor->buffers[i].key_count != descriptor->device_count)
			return neap_json_fail(json, NEAP_EJSON, "buffers[%u].rkey has %u keys for %u devices", i,
			                      descriptor->buffers[i].key_count, descriptor->device_count);
	return index_ranges(decoding);
}

int neap_descriptor_decode(const char *text, size_t length, struct neap_descriptor **descriptor_p, char *why, size_t why_size)
{
	struct decoding decoding = {.buffer_capacity = 0};
	enum neap_protocol protocol = NEAP_PROTOCOL_TCP;
	*descriptor_p = NULL;
	neap_json_init(&decoding.json, text, length, why, why_size);
	if (!find_protocol(&decoding.json, &protocol))
		return decoding.json.error;
	neap_json_init(&decoding.json, text, length, why, why_size);
	decoding.descriptor = calloc(1, sizeof *decoding.descriptor);
	if (!decoding.descriptor) {
		(void)neap_json_fail(&decoding.json, NEAP_ENOMEM, "out of memory");
		return NEAP_ENOMEM;
	}
	decoding.descriptor->protocol = protocol;
	decoding.descriptor->tcp_proto_version = 1;
	if (!take_all(&decoding)) {
		neap_descriptor_free(decoding.descriptor);
		return decoding.json.error;
	}
	*descriptor_p = decoding.descriptor;
	return NEAP_OK;
}

void neap_descriptor_free(struct neap_descriptor *descriptor)
{
	if (!descriptor)
		return;
	free_buffers(descriptor);
	free_devices(descriptor);
	free_priority(descriptor);
	free(descriptor->name);
	free(descriptor->rdma_server_name);
	free(descriptor->range_starts);
	free(descriptor->range_ends);
	free(descriptor);
}

static bool covers_slowly(const struct neap_descriptor *descriptor, uint64_t address, uint64_t length)
{
	for (uint32_t i = 0; i < descriptor->buffer_count; i++) {
		const struct neap_buffer_desc *buffer = &descriptor->buffers[i];
		if (address >= buffer->address && address - buffer->address <= buffer->length &&
		    length <= buffer->length - (address - buffer->address))
			return true;
	}
	return false;
}

bool neap_descriptor_covers(const struct neap_descriptor *descriptor, uint64_t address, uint64_t length)
{
	if (!descriptor->range_starts)
		return covers_slowly(descriptor, address, length);
	uint32_t low = 0, high = descriptor->buffer_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (descriptor->range_starts[middle] <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return false;
	uint64_t last = descriptor->range_ends[low - 1];
	if (length == 0)
		return address <= last || address - last == 1;
	return address <= last && length - 1 <= last - address;
}
