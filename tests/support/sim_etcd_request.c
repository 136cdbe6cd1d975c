#include "tests/support/sim_etcd_request.h"
#include "metadata/json.h"
#include <stdlib.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void sim_etcd_write_base64(FILE *out, const char *bytes, size_t length)
{
	uint32_t bits = 0;
	int held = 0;
	for (size_t i = 0; i < length; i++) {
		bits = bits << 8 | (unsigned char)bytes[i];
		for (held += 8; held >= 6; held -= 6)
			fputc(digits[bits >> (held - 6) & 63], out);
	}
	if (held)
		fputc(digits[bits << (6 - held) & 63], out);
	for (size_t i = length; i % 3; i++)
		fputc('=', out);
}

static size_t from_base64(char *text)
{
	size_t length = 0;
	uint32_t bits = 0;
	int held = 0;
	for (const char *at = text; *at && *at != '='; at++) {
		const char *digit = strchr(digits, *at);
		bits = bits << 6 | (uint32_t)(digit ? digit - digits : 0);
		held += 6;
		if (held >= 8) {
			held -= 8;
			text[length++] = (char)(bits >> held & 255);
		}
	}
	text[length] = '\0';
	return length;
}

/* Of a transaction the last one, which are all the same. */
static bool take_bytes(struct neap_json *json, char **text_p, size_t *length_p)
{
	if (!neap_json_string(json, SIZE_MAX, text_p))
		return false;
	*length_p = from_base64(*text_p);
	return true;
}

static bool take_number(struct neap_json *json, uint64_t *number_p)
{
	char text[32];
	if (!neap_json_short_string(json, text, sizeof text, NULL))
		return false;
	*number_p = strtoull(text, NULL, 10);
	return true;
}

static bool take(struct neap_json *json, struct sim_etcd_request *request);

static bool take_member(struct neap_json *json, struct sim_etcd_request *request)
{
	const struct {
		const char *name;
		uint64_t *number;
	} numbers[] = {{"lease", &request->lease}, {"start_revision", &request->from}, {"ID", &request->id}, {"TTL", &request->ttl}};
	size_t unused;
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (strcmp(json->key, numbers[i].name) == 0)
			return take_number(json, numbers[i].number);
	if (strcmp(json->key, "key") == 0)
		return take_bytes(json, &request->key, &unused);
	if (strcmp(json->key, "value") == 0)
		return take_bytes(json, &request->value, &request->length);
	if (strcmp(json->key, "range_end") == 0)
		return take_bytes(json, &request->end, &unused);
	if (strcmp(json->key, "password") == 0)
		return neap_json_string(json, SIZE_MAX, &request->password);
	if (strcmp(json->key, "keys_only") == 0)
		return neap_json_bool(json, &request->keys_only);
	if (strcmp(json->key, "fragment") == 0)
		return neap_json_bool(json, &request->fragment);
	if (strcmp(json->key, "progress_notify") == 0)
		return neap_json_bool(json, &request->progress);
	request->compares |= strcmp(json->key, "compare") == 0;
	return take(json, request);
}

/* What is not asked for by name is looked into. */
static bool take(struct neap_json *json, struct sim_etcd_request *request)
{
	enum neap_json_kind kind = neap_json_kind(json);
	bool ok = true;
	if (kind == NEAP_JSON_OBJECT) {
		ok = neap_json_enter_object(json);
		while (ok && neap_json_next_key(json))
			ok = take_member(json, request);
	} else if (kind == NEAP_JSON_ARRAY) {
		ok = neap_json_enter_array(json);
		while (ok && neap_json_next_item(json))
			ok = take(json, request);
	} else {
		ok = neap_json_skip(json);
	}
	return ok && !json->error;
}

bool sim_etcd_request_read(struct sim_etcd_request *request, const char *text, size_t length)
{
	struct neap_json json;
	*request = (struct sim_etcd_request){.key = NULL};
	neap_json_init(&json, text ? text : "", length, NULL, 0);
	return take(&json, request) && neap_json_finish(&json);
}

void sim_etcd_request_drop(struct sim_etcd_request *request)
{
	free(request->key);
	free(request->value);
	free(request->end);
	free(request->password);
}
