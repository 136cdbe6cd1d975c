/* Requests to etcd, and its answers. */
#include "metadata/etcd_text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- base64 (RFC 4648 §4) -------------------------------------------------------------------------------------------------- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void put_base64(struct neap_json_writer *writer, const char *bytes, size_t length)
{
	char chunk[1024];
	size_t at = 0;
	for (size_t i = 0; i < length; i += 3) {
		size_t left = length - i;
		uint32_t group = (uint32_t)(unsigned char)bytes[i] << 16;
		group |= left > 1 ? (uint32_t)(unsigned char)bytes[i + 1] << 8 : 0;
		group |= left > 2 ? (uint32_t)(unsigned char)bytes[i + 2] : 0;
		chunk[at++] = digits[group >> 18];
		chunk[at++] = digits[group >> 12 & 63];
		chunk[at++] = left > 1 ? digits[group >> 6 & 63] : '=';
		chunk[at++] = left > 2 ? digits[group & 63] : '=';
		if (at == sizeof chunk) {
			neap_json_put(writer, chunk, at);
			at = 0;
		}
	}
	neap_json_put(writer, chunk, at);
}

static int digit_of(char c)
{
	const char *found = c ? strchr(digits, c) : NULL;
	return found ? (int)(found - digits) : -1;
}

/* In place; it only becomes shorter. False: no base64. */
static bool decode_base64(char *text, size_t *length_p)
{
	size_t length = strlen(text), out = 0;
	uint32_t group = 0, bits = 0;
	while (length > 0 && text[length - 1] == '=')
		length--;
	for (size_t i = 0; i < length; i++) {
		int value = digit_of(text[i]);
		if (value < 0)
			return false;
		group = group << 6 | (uint32_t)value;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			text[out++] = (char)(group >> bits & 0xff);
		}
	}
	text[out] = '\0';
	*length_p = out;
	return true;
}

/* --- requests --------------------------------------------------------------------------------------------------------------- */

static void put_member(struct neap_json_writer *writer, const char *name, const char *bytes, size_t length)
{
	neap_json_put_text(writer, name);
	neap_json_put_text(writer, "\"");
	put_base64(writer, bytes, length);
	neap_json_put_text(writer, "\"");
}

void etcd_put_range(struct neap_json_writer *writer, const char *key, bool keys_only)
{
	put_member(writer, "{\"key\":", key, strlen(key));
	neap_json_put_text(writer, keys_only ? ",\"keys_only\":true}" : "}");
}

void etcd_put_value(struct neap_json_writer *writer, const char *key, const char *value, size_t length, uint64_t lease)
{
	put_member(writer, "{\"key\":", key, strlen(key));
	put_member(writer, ",\"value\":", value, length);
	if (lease) {
		neap_json_put_text(writer, ",\"lease\":\"");
		neap_json_put_u64(writer, lease);
		neap_json_put_text(writer, "\"");
	}
	neap_json_put_text(writer, "}");
}

void etcd_put_create(struct neap_json_writer *writer, const char *key, const char *value, size_t length, uint64_t lease)
{
	put_member(writer, "{\"compare\":[{\"key\":", key, strlen(key));
	neap_json_put_text(writer, ",\"target\":\"CREATE\",\"create_revision\":\"0\"}],\"success\":[{\"request_put\":");
	etcd_put_value(writer, key, value, length, lease);
	neap_json_put_text(writer, "}],\"failure\":[{\"request_range\":");
	etcd_put_range(writer, key, false);
	neap_json_put_text(writer, "}]}");
}

void etcd_put_number(struct neap_json_writer *writer, const char *name, uint64_t value)
{
	neap_json_put_text(writer, "{\"");
	neap_json_put_text(writer, name);
	neap_json_put_text(writer, "\":\"");
	neap_json_put_u64(writer, value);
	neap_json_put_text(writer, "\"}");
}

bool etcd_put_user(struct neap_json_writer *writer, const char *username, const char *password)
{
	neap_json_put_text(writer, "{\"name\":");
	bool ok = neap_json_put_string(writer, username);
	neap_json_put_text(writer, ",\"password\":");
	ok = neap_json_put_string(writer, password) && ok;
	neap_json_put_text(writer, "}");
	return ok;
}

/* The end of what begins with the prefix is the prefix with its last byte one higher; ours end in a slash. */
void etcd_put_watch(struct neap_json_writer *writer, const char *prefix, uint64_t from)
{
	char end[NEAP_BACKEND_KEY_MAX];
	size_t length = strlen(prefix);
	memcpy(end, prefix, length);
	end[length - 1]++;
	put_member(writer, "{\"create_request\":{\"key\":", prefix, length);
	put_member(writer, ",\"range_end\":", end, length);
	neap_json_put_text(writer, ",\"fragment\":true,\"progress_notify\":true");
	if (from) {
		neap_json_put_text(writer, ",\"start_revision\":\"");
		neap_json_put_u64(writer, from);
		neap_json_put_text(writer, "\"");
	}
	neap_json_put_text(writer, "}}");
}

/* --- answers ---------------------------------------------------------------------------------------------------------------- */

/* 64-bit numbers come as strings; -1 says "none" of a lease's time. */
static bool take_number(struct neap_json *json, uint64_t *value_p)
{
	char text[24], *end;
	if (neap_json_kind(json) == NEAP_JSON_NUMBER)
		return neap_json_u64(json, 0, UINT64_MAX, value_p);
	if (!neap_json_short_string(json, text, sizeof text, NULL))
		return false;
	if (text[0] == '-') {
		*value_p = 0;
		return true;
	}
	*value_p = strtoull(text, &end, 10);
	return (text[0] && !*end) || neap_json_fail(json, NEAP_EPROTO, "must be a number");
}

static bool take_key_value(struct neap_json *json, struct etcd_answer *answer)
{
	bool ok = neap_json_enter_object(json);
	answer->found = true;
	while (ok && neap_json_next_key(json)) {
		if (strcmp(json->key, "value") == 0)
			ok = neap_json_string(json, SIZE_MAX, &answer->value) &&
			     (decode_base64(answer->value, &answer->length) || neap_json_fail(json, NEAP_EPROTO, "must be base64"));
		else if (strcmp(json->key, "lease") == 0)
			ok = take_number(json, &answer->lease);
		else
			ok = neap_json_skip(json);
	}
	return ok && !json->error;
}

/* Of several keys, which are never asked for, the first. */
static bool take_key_values(struct neap_json *json, struct etcd_answer *answer)
{
	bool ok = neap_json_enter_array(json);
	while (ok && neap_json_next_item(json))
		ok = answer->found ? neap_json_skip(json) : take_key_value(json, answer);
	return ok && !json->error;
}

static bool take_answer(struct neap_json *json, struct etcd_answer *answer);

static bool take_responses(struct neap_json *json, struct etcd_answer *answer)
{
	bool ok = neap_json_enter_array(json);
	while (ok && neap_json_next_item(json))
		ok = take_answer(json, answer);
	return ok && !json->error;
}

static bool take_answer_member(struct neap_json *json, struct etcd_answer *answer)
{
	if (strcmp(json->key, "kvs") == 0)
		return take_key_values(json, answer);
	if (strcmp(json->key, "succeeded") == 0)
		return neap_json_bool(json, &answer->succeeded);
	if (strcmp(json->key, "responses") == 0)
		return take_responses(json, answer);
	if (strcmp(json->key, "response_range") == 0 || strcmp(json->key, "result") == 0)
		return take_answer(json, answer);
	if (strcmp(json->key, "ID") == 0)
		return take_number(json, &answer->id);
	if (strcmp(json->key, "TTL") == 0)
		return take_number(json, &answer->ttl);
	if (strcmp(json->key, "token") == 0)
		return neap_json_short_string(json, answer->token, sizeof answer->token, NULL);
	return neap_json_skip(json);
}

/* Calls itself as deep as the reader goes, NEAP_JSON_DEPTH. */
static bool take_answer(struct neap_json *json, struct etcd_answer *answer)
{
	bool ok = neap_json_enter_object(json);
	while (ok && neap_json_next_key(json))
		ok = take_answer_member(json, answer);
	return ok && !json->error;
}

int etcd_answer_read(const char *text, size_t length, struct etcd_answer *answer, char *why, size_t why_size)
{
	struct neap_json json;
	*answer = (struct etcd_answer){0};
	neap_json_init(&json, text ? text : "", length, why, why_size);
	(void)(take_answer(&json, answer) && neap_json_finish(&json));
	return json.error;
}

void etcd_answer_drop(struct etcd_answer *answer)
{
	free(answer->value);
	answer->value = NULL;
	explicit_bzero(answer->token, sizeof answer->token);
}

/* --- a line of a stream ------------------------------------------------------------------------------------------------------- */

struct reading {
	struct neap_json json;
	struct etcd_notice *notice;
	etcd_changed_func *changed;
	void *user;
};

static bool take_event_key(struct reading *reading)
{
	struct neap_json *json = &reading->json;
	char key[2 * NEAP_BACKEND_KEY_MAX];
	size_t length;
	if (!neap_json_short_string(json, key, sizeof key, NULL))
		return false;
	if (!decode_base64(key, &length))
		return neap_json_fail(json, NEAP_EPROTO, "must be base64");
	return reading->changed(reading->user, key, length) || neap_json_fail(json, NEAP_ECANCELED, "not wanted any more");
}

static bool take_event_value(struct reading *reading)
{
	struct neap_json *json = &reading->json;
	uint64_t revision = 0;
	bool ok = neap_json_enter_object(json);
	while (ok && neap_json_next_key(json)) {
		if (strcmp(json->key, "key") == 0)
			ok = take_event_key(reading);
		else if (strcmp(json->key, "mod_revision") == 0)
			ok = take_number(json, &revision);
		else
			ok = neap_json_skip(json);
	}
	if (revision > reading->notice->last)
		reading->notice->last = revision;
	reading->notice->events++;
	return ok && !json->error;
}

static bool take_event(struct reading *reading)
{
	struct neap_json *json = &reading->json;
	bool ok = neap_json_enter_object(json);
	while (ok && neap_json_next_key(json))
		ok = strcmp(json->key, "kv") == 0 ? take_event_value(reading) : neap_json_skip(json);
	return ok && !json->error;
}

static bool take_events(struct reading *reading)
{
	bool ok = neap_json_enter_array(&reading->json);
	while (ok && neap_json_next_item(&reading->json))
		ok = take_event(reading);
	return ok && !reading->json.error;
}

static bool take_header(struct reading *reading)
{
	struct neap_json *json = &reading->json;
	struct etcd_notice *notice = reading->notice;
	bool ok = neap_json_enter_object(json);
	while (ok && neap_json_next_key(json)) {
		if (strcmp(json->key, "revision") == 0)
			ok = take_number(json, &notice->revision);
		else if (strcmp(json->key, "cluster_id") == 0)
			ok = take_number(json, &notice->cluster);
		else if (strcmp(json->key, "raft_term") == 0)
			ok = take_number(json, &notice->term);
		else
			ok = neap_json_skip(json);
	}
	return ok && !json->error;
}

static bool take_reason(struct reading *reading)
{
	return neap_json_short_string(&reading->json, reading->notice->reason, sizeof reading->notice->reason, NULL);
}

static bool take_notice(struct reading *reading);

static bool take_notice_member(struct reading *reading)
{
	struct neap_json *json = &reading->json;
	struct etcd_notice *notice = reading->notice;
	uint64_t revision;
	if (strcmp(json->key, "header") == 0)
		return take_header(reading);
	if (strcmp(json->key, "events") == 0)
		return take_events(reading);
	if (strcmp(json->key, "created") == 0)
		return neap_json_bool(json, &notice->created);
	if (strcmp(json->key, "canceled") == 0)
		return neap_json_bool(json, &notice->canceled);
	if (strcmp(json->key, "fragment") == 0)
		return neap_json_bool(json, &notice->fragment);
	if (strcmp(json->key, "compact_revision") == 0)
		return (notice->compacted = true) && take_number(json, &revision);
	if (strcmp(json->key, "cancel_reason") == 0 || strcmp(json->key, "message") == 0)
		return take_reason(reading);
	if (strcmp(json->key, "error") == 0)
		return (notice->failed = true) && (neap_json_kind(json) == NEAP_JSON_OBJECT ? take_notice(reading) : take_reason(reading));
	return strcmp(json->key, "result") == 0 ? take_notice(reading) : neap_json_skip(json);
}

/* Calls itself as deep as the reader goes, NEAP_JSON_DEPTH. */
static bool take_notice(struct reading *reading)
{
	bool ok = neap_json_enter_object(&reading->json);
	while (ok && neap_json_next_key(&reading->json))
		ok = take_notice_member(reading);
	return ok && !reading->json.error;
}

int etcd_notice_read(const char *line, size_t length, struct etcd_notice *notice, etcd_changed_func *changed, void *user)
{
	struct reading reading = {.notice = notice, .changed = changed, .user = user};
	*notice = (struct etcd_notice){0};
	neap_json_init(&reading.json, line, length, NULL, 0);
	(void)(take_notice(&reading) && neap_json_finish(&reading.json));
	return reading.json.error;
}

/* --- refusals ------------------------------------------------------------------------------------------------------------------ */

static const struct {
	uint64_t code;    /* of gRPC; 0: any */
	const char *said; /* a part of its words; NULL: any */
	enum etcd_remedy remedy;
	int error;
	const char *advice;
} refusals[] = {
	{0, "auth store is old", ETCD_TOKEN, NEAP_EREJECTED, "its users change"},
	{0, "invalid auth token", ETCD_TOKEN, NEAP_EREJECTED, "it does not take the token it gave"},
	{16, NULL, ETCD_TOKEN, NEAP_EREJECTED, "it does not take the token it gave"},
	{0, "user name is empty", ETCD_TOKEN, NEAP_EREJECTED, "it wants a user: set MC_ETCD_USERNAME and MC_ETCD_PASSWORD"},
	{0, "authentication failed", ETCD_FAIL, NEAP_EREJECTED, "MC_ETCD_USERNAME or MC_ETCD_PASSWORD is not right"},
	{0, "authentication is not enabled", ETCD_NO_AUTH, NEAP_EREJECTED, "it has no users: unset MC_ETCD_USERNAME"},
	{0, "permission denied", ETCD_FAIL, NEAP_EREJECTED, "the user's role needs readwrite on the keys that begin with mooncake/"},
	{7, NULL, ETCD_FAIL, NEAP_EREJECTED, "the user's role needs readwrite on the keys that begin with mooncake/"},
	{0, "request is too large", ETCD_FAIL, NEAP_ELIMIT, "raise its --max-request-bytes"},
	{0, "space exceeded", ETCD_FAIL, NEAP_ELIMIT, "its database is full: compact and defragment it, or raise its --quota-backend-bytes"},
	{0, "lease not found", ETCD_LEASE, NEAP_EAGAIN, "the lease has ended"},
	{14, NULL, ETCD_AGAIN, NEAP_EAGAIN, "it is not well; see its log"},
	{13, NULL, ETCD_AGAIN, NEAP_EAGAIN, "it is not well; see its log"},
	{10, NULL, ETCD_AGAIN, NEAP_EAGAIN, "it is not well; see its log"},
	{8, NULL, ETCD_AGAIN, NEAP_EAGAIN, "it has too much to do"},
	{4, NULL, ETCD_AGAIN, NEAP_EAGAIN, "it is not well; see its log"},
	{2, NULL, ETCD_AGAIN, NEAP_EAGAIN, "it is not well; see its log"},
	{1, NULL, ETCD_AGAIN, NEAP_EAGAIN, "it is not well; see its log"},
};

/* {"error":TEXT,"message":TEXT,"code":N}, or with the three in an object called "error". */
static bool take_refusal(struct neap_json *json, uint64_t *code_p, char *said, size_t size)
{
	bool ok = neap_json_enter_object(json);
	while (ok && neap_json_next_key(json)) {
		enum neap_json_kind kind = neap_json_kind(json);
		if (strcmp(json->key, "code") == 0 || strcmp(json->key, "grpc_code") == 0)
			ok = neap_json_u64(json, 0, 1000, code_p);
		else if (strcmp(json->key, "error") == 0 && kind == NEAP_JSON_OBJECT)
			ok = take_refusal(json, code_p, said, size);
		else if (strcmp(json->key, "error") == 0 || strcmp(json->key, "message") == 0)
			ok = neap_json_short_string(json, said, size, NULL);
		else
			ok = neap_json_skip(json);
	}
	return ok && !json->error;
}

static void judge_status(long status, struct etcd_refusal *refusal)
{
	refusal->remedy = status >= 500 ? ETCD_AGAIN : ETCD_FAIL;
	refusal->error = status >= 500 ? NEAP_EAGAIN : status >= 300 && status < 400 ? NEAP_EREJECTED : NEAP_EPROTO;
	refusal->advice = status >= 500  ? "it is not well; see its log"
	                  : status == 404 ? "is this etcd 3.4 or later, with its gRPC gateway?"
	                  : status < 400  ? "it points elsewhere; give that address, redirects are not followed"
	                                  : "this is no answer of etcd 3.4 or later";
}

void etcd_refusal_read(long status, const char *text, size_t length, struct etcd_refusal *refusal)
{
	struct neap_json json;
	char said[sizeof refusal->said] = "";
	uint64_t code = 0;
	text = text ? text : "";
	neap_json_init(&json, text, length, NULL, 0);
	bool understood = take_refusal(&json, &code, said, sizeof said);
	(void)neap_json_printable(understood ? said : text, understood ? strlen(said) : length, refusal->said, sizeof refusal->said);
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
		if (refusals[i].code ? understood && code == refusals[i].code : strstr(refusal->said, refusals[i].said) != NULL) {
			refusal->remedy = refusals[i].remedy;
			refusal->error = refusals[i].error;
			refusal->advice = refusals[i].advice;
			return;
		}
	judge_status(status, refusal);
}
