/* The JSON inside handshake frames: notify and connection messages. */
#include "metadata/descriptor.h"
#include "metadata/handshake.h"
#include "metadata/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NIC_PATH_MAX (2 * NEAP_NAME_MAX + 1u)
#define QP_NUMBER_MAX 0xffffffu

/* Texts are bounded by the frame they came in. */
static bool take_text(struct neap_json *json, char **text_p)
{
	return neap_json_null(json) || neap_json_string(json, SIZE_MAX, text_p);
}

static bool make_empty(struct neap_json *json, char **text_p)
{
	if (*text_p)
		return true;
	*text_p = calloc(1, 1);
	return *text_p || neap_json_fail(json, NEAP_ENOMEM, "out of memory");
}

/* --- notify ------------------------------------------------------------------------------------------------------- */

int neap_notify_decode(const char *text, size_t length, struct neap_notify_message *message_p, char *why, size_t why_size)
{
	struct neap_json json;
	bool ok = true;

	*message_p = (struct neap_notify_message){0};
	neap_json_init(&json, text, length, why, why_size);
	(void)neap_json_enter_object(&json);
	while (ok && neap_json_next_key(&json)) {
		if (strcmp(json.key, "name") == 0)
			ok = take_text(&json, &message_p->name);
		else if (strcmp(json.key, "notify_msg") == 0)
			ok = take_text(&json, &message_p->message);
		else
			ok = neap_json_skip(&json);
	}
	if (!neap_json_finish(&json) || !make_empty(&json, &message_p->name) || !make_empty(&json, &message_p->message))
		neap_notify_free(message_p);
	return json.error;
}

/* Takes the text, or says that a string was not UTF-8. */
static int finish(struct neap_json_writer *writer, bool ok, char **json_p, size_t *length_p)
{
	*json_p = NULL;
	*length_p = 0;
	if (ok)
		return neap_json_writer_take(writer, json_p, length_p);
	neap_json_writer_drop(writer);
	return NEAP_EINVAL;
}

int neap_notify_encode(const char *name, const char *message, char **json_p, size_t *length_p)
{
	struct neap_json_writer writer;
	neap_json_writer_init(&writer, NEAP_HANDSHAKE_LENGTH_MAX, 64);
	neap_json_put_text(&writer, "{\"name\":");
	bool ok = neap_json_put_string(&writer, name);
	neap_json_put_text(&writer, ",\"notify_msg\":");
	ok = ok && neap_json_put_string(&writer, message);
	neap_json_put_text(&writer, "}\n");
	return finish(&writer, ok, json_p, length_p);
}

void neap_notify_free(struct neap_notify_message *message)
{
	free(message->name);
	free(message->message);
	*message = (struct neap_notify_message){0};
}

/* --- connection --------------------------------------------------------------------------------------------------- */

static bool take_path(struct neap_json *json, char **path_p)
{
	return neap_json_null(json) || neap_json_string(json, NIC_PATH_MAX, path_p);
}

static bool take_gid(struct neap_json *json, struct neap_connection_message *message)
{
	char text[NEAP_GID_TEXT_MAX];
	size_t length = 0;
	message->has_gid = false;
	message->bad_gid[0] = '\0';
	if (neap_json_null(json))
		return true;
	if (!neap_json_short_string(json, text, sizeof text, &length))
		return false;
	if (length == 0)
		return true;
	message->has_gid = length < sizeof text && neap_gid_parse(text, message->local_gid);
	if (!message->has_gid)
		(void)neap_json_printable(length < sizeof text ? text : "too long", length < sizeof text ? length : 8, message->bad_gid,
		                          sizeof message->bad_gid);
	return true;
}

/* A number that is one but too large is answered with a refusal; the reader's own errors close the connection. */
static bool take_value(struct neap_json *json, uint64_t max, uint64_t *value_p)
{
	if (!neap_json_u64(json, 0, UINT64_MAX, value_p))
		return false;
	return *value_p <= max || neap_json_fail(json, NEAP_EINVAL, "is %llu, at most %llu is possible", (unsigned long long)*value_p,
	                                         (unsigned long long)max);
}

/* Peers ignore a lid that is no number. */
static bool take_lid(struct neap_json *json, struct neap_connection_message *message)
{
	uint64_t lid = 0;
	if (neap_json_kind(json) != NEAP_JSON_NUMBER)
		return neap_json_skip(json);
	if (!take_value(json, UINT16_MAX, &lid))
		return false;
	message->local_lid = (uint16_t)lid;
	return true;
}

static bool take_qps(struct neap_json *json, struct neap_connection_message *message)
{
	message->qp_count = 0;
	if (neap_json_null(json))
		return true;
	if (!neap_json_enter_array(json))
		return false;
	while (neap_json_next_item(json)) {
		uint64_t number = 0;
		if (message->qp_count == NEAP_QPS_MAX)
			return neap_json_fail(json, NEAP_EINVAL, "more than %u queue pairs", NEAP_QPS_MAX);
		if (!take_value(json, QP_NUMBER_MAX, &number))
			return false;
		message->qp_nums[message->qp_count++] = (uint32_t)number;
	}
	return !json->error;
}

/* The key alone announces the capability; anything but true reads as false. */
static bool take_ready_ack(struct neap_json *json, struct neap_connection_message *message)
{
	message->has_ready_ack = true;
	message->ready_ack = false;
	if (neap_json_kind(json) == NEAP_JSON_BOOL)
		return neap_json_bool(json, &message->ready_ack);
	return neap_json_skip(json);
}

/* --- what Neap peers add */

static bool take_instance(struct neap_json *json, uint8_t instance[16])
{
	char text[40];
	if (!neap_json_short_string(json, text, sizeof text, NULL))
		return false;
	return neap_id_parse(text, instance) || neap_json_fail(json, NEAP_EINVAL, "must be 32 lower-case hex digits");
}

static bool take_address(struct neap_json *json, struct neap_host_port *address)
{
	char text[NEAP_ADDRESS_TEXT_MAX], why[NEAP_ADDRESS_TEXT_MAX + 120];
	size_t length = 0;
	if (!neap_json_short_string(json, text, sizeof text, &length))
		return false;
	if (length < sizeof text && neap_host_port_parse(text, 0, address, why, sizeof why) == NEAP_OK && address->has_port)
		return true;
	return neap_json_fail(json, NEAP_EINVAL, "must be host:port");
}

static bool take_u32(struct neap_json *json, uint32_t max, uint32_t *value_p)
{
	uint64_t value = 0;
	if (!take_value(json, max, &value))
		return false;
	*value_p = (uint32_t)value;
	return true;
}

static bool take_psns(struct neap_json *json, struct neap_connection_extra *neap)
{
	neap->psn_count = 0;
	if (!neap_json_enter_array(json))
		return false;
	while (neap_json_next_item(json)) {
		if (neap->psn_count == NEAP_QPS_MAX)
			return neap_json_fail(json, NEAP_EINVAL, "more than %u sequence numbers", NEAP_QPS_MAX);
		if (!take_u32(json, QP_NUMBER_MAX, &neap->psns[neap->psn_count++]))
			return false;
	}
	return !json->error;
}

static bool take_extra(struct neap_json *json, struct neap_connection_extra *neap)
{
	bool ok = true, has_instance = false;
	*neap = (struct neap_connection_extra){0};
	if (neap_json_null(json))
		return true;
	if (!neap_json_enter_object(json))
		return false;
	while (ok && neap_json_next_key(json)) {
		if (strcmp(json->key, "address") == 0)
			ok = take_address(json, &neap->address);
		else if (strcmp(json->key, "instance") == 0)
			ok = has_instance = take_instance(json, neap->instance);
		else if (strcmp(json->key, "mtu") == 0)
			ok = take_u32(json, UINT32_MAX, &neap->mtu_bytes);
		else if (strcmp(json->key, "depth") == 0)
			ok = take_u32(json, UINT32_MAX, &neap->depth);
		else if (strcmp(json->key, "reads") == 0)
			ok = take_u32(json, UINT32_MAX, &neap->reads);
		else if (strcmp(json->key, "psn") == 0)
			ok = take_psns(json, neap);
		else if (strcmp(json->key, "epoch") == 0)
			ok = neap_json_u64(json, 0, UINT64_MAX, &neap->epoch);
		else if (strcmp(json->key, "fence") == 0)
			ok = take_u32(json, UINT32_MAX, &neap->fence);
		else if (strcmp(json->key, "retire") == 0)
			ok = neap_json_bool(json, &neap->retire);
		else
			ok = neap_json_skip(json);
	}
	if (json->error)
		return false;
	neap->present = has_instance;
	return has_instance || neap_json_fail(json, NEAP_EINVAL, "has no instance");
}

static bool take_connection_field(struct neap_json *json, struct neap_connection_message *message)
{
	if (strcmp(json->key, "local_nic_path") == 0)
		return take_path(json, &message->local_nic_path);
	if (strcmp(json->key, "peer_nic_path") == 0)
		return take_path(json, &message->peer_nic_path);
	if (strcmp(json->key, "reply_msg") == 0)
		return take_text(json, &message->reply_msg);
	if (strcmp(json->key, "payload") == 0)
		return take_text(json, &message->payload);
	if (strcmp(json->key, "local_gid") == 0)
		return take_gid(json, message);
	if (strcmp(json->key, "local_lid") == 0)
		return take_lid(json, message);
	if (strcmp(json->key, "qp_num") == 0)
		return take_qps(json, message);
	if (strcmp(json->key, "ready_ack") == 0)
		return take_ready_ack(json, message);
	if (strcmp(json->key, "neap") == 0)
		return take_extra(json, &message->neap);
	return neap_json_skip(json);
}

int neap_connection_decode(const char *text, size_t length, struct neap_connection_message *message_p, char *why, size_t why_size)
{
	struct neap_json json;
	*message_p = (struct neap_connection_message){0};
	int error = neap_json_prescan(text, length, NEAP_DEPTH_MAX, why, why_size); /* so that EINVAL is said of whole documents only */
	if (error)
		return error;
	neap_json_init(&json, text, length, why, why_size);
	(void)neap_json_enter_object(&json);
	while (neap_json_next_key(&json))
		if (!take_connection_field(&json, message_p))
			break;
	if (json.error || !make_empty(&json, &message_p->local_nic_path) || !make_empty(&json, &message_p->peer_nic_path) ||
	    !make_empty(&json, &message_p->reply_msg) || !make_empty(&json, &message_p->payload))
		neap_connection_free(message_p);
	return json.error;
}

static void put_key_u64(struct neap_json_writer *writer, const char *key, uint64_t value)
{
	neap_json_put_text(writer, key);
	neap_json_put_u64(writer, value);
}

static void put_numbers(struct neap_json_writer *writer, const char *key, const uint32_t *numbers, uint32_t count)
{
	neap_json_put_text(writer, key);
	for (uint32_t i = 0; i < count; i++) {
		if (i > 0)
			neap_json_put_text(writer, ",");
		neap_json_put_u64(writer, numbers[i]);
	}
	neap_json_put_text(writer, "]");
}

static bool put_address(struct neap_json_writer *writer, const struct neap_host_port *address)
{
	char text[NEAP_ADDRESS_TEXT_MAX];
	if (!address->host[0])
		return true;
	if (neap_host_port_format(address, text, sizeof text) < 0)
		return false;
	neap_json_put_text(writer, "\"address\":");
	bool ok = neap_json_put_string(writer, text);
	neap_json_put_text(writer, ",");
	return ok;
}

static bool put_extra(struct neap_json_writer *writer, const struct neap_connection_extra *neap)
{
	char instance[NEAP_ID_TEXT_SIZE];
	neap_id_format(neap->instance, instance);
	neap_json_put_text(writer, ",\"neap\":{");
	bool ok = put_address(writer, &neap->address);
	put_key_u64(writer, "\"depth\":", neap->depth);
	put_key_u64(writer, ",\"epoch\":", neap->epoch);
	if (neap->fence)
		put_key_u64(writer, ",\"fence\":", neap->fence);
	neap_json_put_text(writer, ",\"instance\":\"");
	neap_json_put_text(writer, instance);
	put_key_u64(writer, "\",\"mtu\":", neap->mtu_bytes);
	put_numbers(writer, ",\"psn\":[", neap->psns, neap->psn_count);
	if (neap->reads)
		put_key_u64(writer, ",\"reads\":", neap->reads);
	neap_json_put_text(writer, neap->retire ? ",\"retire\":true}" : ",\"retire\":false}");
	return ok;
}

int neap_connection_encode(const struct neap_connection_message *message, char **json_p, size_t *length_p)
{
	struct neap_json_writer writer;
	char gid[48] = "";

	if (message->qp_count > NEAP_QPS_MAX || message->neap.psn_count > NEAP_QPS_MAX)
		return NEAP_EINVAL;
	if (message->has_gid)
		neap_gid_format(message->local_gid, gid);
	neap_json_writer_init(&writer, NEAP_HANDSHAKE_LENGTH_MAX, 512);
	neap_json_put_text(&writer, "{\"local_gid\":\"");
	neap_json_put_text(&writer, gid);
	neap_json_put_text(&writer, "\",\"local_lid\":");
	neap_json_put_u64(&writer, message->local_lid);
	neap_json_put_text(&writer, ",\"local_nic_path\":");
	bool ok = neap_json_put_string(&writer, message->local_nic_path);
	if (message->neap.present)
		ok = put_extra(&writer, &message->neap) && ok;
	neap_json_put_text(&writer, ",\"payload\":");
	ok = ok && neap_json_put_string(&writer, message->payload);
	neap_json_put_text(&writer, ",\"peer_nic_path\":");
	ok = ok && neap_json_put_string(&writer, message->peer_nic_path);
	put_numbers(&writer, ",\"qp_num\":[", message->qp_nums, message->qp_count);
	if (message->has_ready_ack)
		neap_json_put_text(&writer, message->ready_ack ? ",\"ready_ack\":true" : ",\"ready_ack\":false");
	neap_json_put_text(&writer, ",\"reply_msg\":");
	ok = ok && neap_json_put_string(&writer, message->reply_msg);
	neap_json_put_text(&writer, "}\n");
	return finish(&writer, ok, json_p, length_p);
}

void neap_connection_free(struct neap_connection_message *message)
{
	free(message->local_nic_path);
	free(message->peer_nic_path);
	free(message->reply_msg);
	free(message->payload);
	*message = (struct neap_connection_message){0};
}

int neap_connection_copy(const struct neap_connection_message *message, struct neap_connection_message *copy_p)
{
	*copy_p = *message;
	copy_p->local_nic_path = strdup(message->local_nic_path);
	copy_p->peer_nic_path = strdup(message->peer_nic_path);
	copy_p->reply_msg = strdup(message->reply_msg);
	copy_p->payload = strdup(message->payload);
	if (copy_p->local_nic_path && copy_p->peer_nic_path && copy_p->reply_msg && copy_p->payload)
		return NEAP_OK;
	neap_connection_free(copy_p);
	return NEAP_ENOMEM;
}
