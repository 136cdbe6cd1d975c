/* The JSON reader. Strings are checked when they are passed over, and copied only when someone wants them. */
#include "metadata/descriptor.h"
#include "metadata/json.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void neap_json_init(struct neap_json *json, const char *text, size_t length, char *why, size_t why_size)
{
	json->text = text;
	json->length = length;
	json->at = 0;
	json->depth = 0;
	json->depth_max = NEAP_JSON_DEPTH;
	json->error = 0;
	json->key[0] = '\0';
	json->why = why;
	json->why_size = why ? why_size : 0;
	if (json->why_size)
		why[0] = '\0';
}

const char *neap_json_printable(const char *text, size_t length, char *out, size_t size)
{
	size_t kept = length < size ? length : size - 1;
	for (size_t i = 0; i < kept; i++)
		out[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
	if (kept < length && size > 3)
		memcpy(out + kept - 2, "..", 2);
	out[kept] = '\0';
	return out;
}

/* snprintf that goes on where it stopped and never past the end. */
NEAP_PRINTF(4, 5) static size_t append(char *text, size_t size, size_t at, const char *format, ...)
{
	if (at >= size)
		return at;
	va_list list;
	va_start(list, format);
	int n = vsnprintf(text + at, size - at, format, list);
	va_end(list);
	return n < 0 ? at : at + (size_t)n;
}

/* "buffers[3].addr" of the member being read. */
static size_t put_place(const struct neap_json *json)
{
	size_t at = 0;
	for (uint32_t i = 0; i < json->depth; i++) {
		const struct neap_json_frame *frame = &json->frames[i];
		char key[NEAP_JSON_KEY_MAX];
		if (frame->index == 0)
			break;
		if (frame->is_array)
			at = append(json->why, json->why_size, at, "[%u]", frame->index - 1);
		else
			at = append(json->why, json->why_size, at, "%s%s", at ? "." : "",
			            neap_json_printable(frame->key, frame->key_length, key, sizeof key));
	}
	return append(json->why, json->why_size, at, "%s: ", at ? "" : "document");
}

bool neap_json_fail(struct neap_json *json, int error, const char *format, ...)
{
	if (json->error)
		return false;
	json->error = error;
	if (json->why_size) {
		size_t at = put_place(json);
		if (at < json->why_size) {
			va_list list;
			va_start(list, format);
			(void)vsnprintf(json->why + at, json->why_size - at, format, list);
			va_end(list);
		}
	}
	return false;
}

static bool fail_syntax(struct neap_json *json, const char *wanted)
{
	if (json->at >= json->length)
		return neap_json_fail(json, NEAP_EJSON, "the text ends at byte %zu where %s is due", json->length, wanted);
	return neap_json_fail(json, NEAP_EJSON, "not JSON at byte %zu: %s is due", json->at, wanted);
}

static void skip_space(struct neap_json *json)
{
	while (json->at < json->length) {
		char c = json->text[json->at];
		if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
			break;
		json->at++;
	}
}

static int peek(struct neap_json *json)
{
	skip_space(json);
	return json->at < json->length ? (unsigned char)json->text[json->at] : -1;
}

enum neap_json_kind neap_json_kind(struct neap_json *json)
{
	int c = json->error ? -1 : peek(json);
	switch (c) {
	case '{': return NEAP_JSON_OBJECT;
	case '[': return NEAP_JSON_ARRAY;
	case '"': return NEAP_JSON_STRING;
	case 't':
	case 'f': return NEAP_JSON_BOOL;
	case 'n': return NEAP_JSON_NULL;
	default: return c == '-' || (c >= '0' && c <= '9') ? NEAP_JSON_NUMBER : NEAP_JSON_BAD;
	}
}

static bool wrong_type(struct neap_json *json, const char *wanted)
{
	static const char *const names[] = {
		[NEAP_JSON_BAD] = "",
		[NEAP_JSON_OBJECT] = "an object",
		[NEAP_JSON_ARRAY] = "an array",
		[NEAP_JSON_STRING] = "a string",
		[NEAP_JSON_NUMBER] = "a number",
		[NEAP_JSON_BOOL] = "a boolean",
		[NEAP_JSON_NULL] = "null",
	};
	enum neap_json_kind kind = neap_json_kind(json);
	if (kind == NEAP_JSON_BAD)
		return fail_syntax(json, "a value");
	return neap_json_fail(json, NEAP_EJSON, "is %s and must be %s", names[kind], wanted);
}

/* --- strings ------------------------------------------------------------------------------------------------------ */

static bool hex4(const char *text, unsigned *value_p)
{
	unsigned value = 0;
	for (int i = 0; i < 4; i++) {
		char c = text[i];
		if (c >= '0' && c <= '9')
			value = value << 4 | (unsigned)(c - '0');
		else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
			value = value << 4 | (unsigned)((c | 0x20) - 'a' + 10);
		else
			return false;
	}
	*value_p = value;
	return true;
}

/* Bytes of the UTF-8 sequence at `text`, 0 when it is none: overlong forms, surrogates and values past U+10FFFF are none. */
static size_t utf8_length(const char *text, size_t left)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	if (s[0] < 0xc2 || s[0] > 0xf4 || left < n)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
	    (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

/* \uXXXX, with its second half when it is a surrogate. `text` is behind the u. */
static size_t unicode_escape(const char *text, size_t left, unsigned *point_p)
{
	unsigned low;
	if (left < 4 || !hex4(text, point_p))
		return 0;
	if (*point_p < 0xd800 || *point_p > 0xdfff)
		return 4;
	if (*point_p > 0xdbff || left < 10 || text[4] != '\\' || text[5] != 'u' || !hex4(text + 6, &low) || low < 0xdc00 ||
	    low > 0xdfff)
		return 0;
	*point_p = 0x10000 + ((*point_p - 0xd800) << 10) + (low - 0xdc00);
	return 10;
}

static size_t utf8_put(char *out, unsigned point)
{
	if (point < 0x80) {
		out[0] = (char)point;
		return 1;
	}
	size_t n = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
	for (size_t i = n - 1; i > 0; i--, point >>= 6)
		out[i] = (char)(0x80 | (point & 0x3f));
	static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
	out[0] = (char)(leads[n] | point);
	return n;
}

/* A string as it lies in the text, checked: raw bytes between the quotes, and its decoded size. */
struct span {
	const char *raw;
	size_t raw_length, length;
};

static bool pass_escape(struct neap_json *json, struct span *span)
{
	const char *text = json->text + json->at + 1;
	size_t left = json->length - json->at - 1;
	char utf8[4];
	unsigned point;

	if (left == 0)
		return fail_syntax(json, "an escape");
	if (text[0] != 'u') {
		if (!memchr("\"\\/bfnrt", text[0], 8))
			return fail_syntax(json, "a valid escape");
		json->at += 2;
		span->length++;
		return true;
	}
	size_t n = unicode_escape(text + 1, left - 1, &point);
	if (n == 0)
		return fail_syntax(json, "a valid \\u escape");
	if (point == 0)
		return neap_json_fail(json, NEAP_EJSON, "has a NUL character in a string");
	json->at += 2 + n;
	span->length += utf8_put(utf8, point);
	return true;
}

/* Most strings are plain: no escape, no control character, ASCII. */
static void pass_plain(struct neap_json *json)
{
	size_t at = json->at;
	while (at < json->length) {
		unsigned char c = (unsigned char)json->text[at];
		if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\')
			break;
		at++;
	}
	json->at = at;
}

static bool pass_string(struct neap_json *json, struct span *span)
{
	size_t begin = ++json->at;
	span->length = 0;
	for (;;) {
		size_t plain = json->at;
		pass_plain(json);
		span->length += json->at - plain;
		if (json->at >= json->length)
			return fail_syntax(json, "the end of a string");
		char c = json->text[json->at];
		if (c == '"')
			break;
		if (c == '\\') {
			if (!pass_escape(json, span))
				return false;
			continue;
		}
		size_t n = (unsigned char)c < 0x80 ? 0 : utf8_length(json->text + json->at, json->length - json->at);
		if (n == 0)
			return fail_syntax(json, (unsigned char)c < 0x80 ? "an escape for the control character" : "UTF-8");
		json->at += n;
		span->length += n;
	}
	span->raw = json->text + begin;
	span->raw_length = json->at - begin;
	json->at++;
	return true;
}

static char escaped(char c)
{
	static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
	const char *found = strchr(from, c);
	return found ? to[found - from] : c;
}

/* The span was checked. */
static void copy_string(const struct span *span, char *out)
{
	size_t to = 0;
	if (span->length == span->raw_length) {
		memcpy(out, span->raw, span->length);
		out[span->length] = '\0';
		return;
	}
	for (size_t i = 0; i < span->raw_length;) {
		if (span->raw[i] != '\\') {
			out[to++] = span->raw[i++];
		} else if (span->raw[i + 1] != 'u') {
			out[to++] = escaped(span->raw[i + 1]);
			i += 2;
		} else {
			unsigned point = 0;
			i += 2 + unicode_escape(span->raw + i + 2, span->raw_length - i - 2, &point);
			to += utf8_put(out + to, point);
		}
	}
	out[to] = '\0';
}

static bool next_string(struct neap_json *json, struct span *span)
{
	if (neap_json_kind(json) != NEAP_JSON_STRING)
		return wrong_type(json, "a string");
	return pass_string(json, span);
}

bool neap_json_string(struct neap_json *json, size_t max, char **text_p)
{
	struct span span;
	if (!next_string(json, &span))
		return false;
	if (span.length > max)
		return neap_json_fail(json, NEAP_ELIMIT, "has %zu bytes, at most %zu are allowed", span.length, max);
	char *text = malloc(span.length + 1);
	if (!text)
		return neap_json_fail(json, NEAP_ENOMEM, "out of memory");
	copy_string(&span, text);
	free(*text_p);
	*text_p = text;
	return true;
}

bool neap_json_short_string(struct neap_json *json, char *text, size_t size, size_t *length_p)
{
	struct span span;
	text[0] = '\0';
	if (!next_string(json, &span))
		return false;
	if (length_p)
		*length_p = span.length;
	if (span.length < size)
		copy_string(&span, text);
	return true;
}

/* --- numbers and words -------------------------------------------------------------------------------------------- */

static size_t pass_digits(struct neap_json *json)
{
	size_t begin = json->at;
	while (json->at < json->length && json->text[json->at] >= '0' && json->text[json->at] <= '9')
		json->at++;
	return json->at - begin;
}

/* *integer_p: digits alone, perhaps with a minus. */
static bool pass_number(struct neap_json *json, bool *integer_p)
{
	*integer_p = true;
	if (json->text[json->at] == '-')
		json->at++;
	bool zero = json->at < json->length && json->text[json->at] == '0';
	size_t digits = pass_digits(json);
	if (digits == 0 || (zero && digits > 1))
		return fail_syntax(json, "a number without leading zeros");
	if (json->at < json->length && json->text[json->at] == '.') {
		*integer_p = false;
		json->at++;
		if (pass_digits(json) == 0)
			return fail_syntax(json, "a digit");
	}
	if (json->at < json->length && (json->text[json->at] | 0x20) == 'e') {
		*integer_p = false;
		json->at++;
		if (json->at < json->length && (json->text[json->at] == '+' || json->text[json->at] == '-'))
			json->at++;
		if (pass_digits(json) == 0)
			return fail_syntax(json, "a digit");
	}
	return true;
}

bool neap_json_u64(struct neap_json *json, uint64_t min, uint64_t max, uint64_t *value_p)
{
	bool integer, fits = true;
	uint64_t value = 0;
	if (neap_json_kind(json) != NEAP_JSON_NUMBER)
		return wrong_type(json, "a number");
	size_t begin = json->at;
	if (!pass_number(json, &integer))
		return false;
	for (size_t i = begin; fits && integer && i < json->at; i++) {
		uint64_t digit = (uint64_t)(json->text[i] - '0');
		fits = json->text[i] != '-' && value <= (UINT64_MAX - digit) / 10;
		value = fits ? value * 10 + digit : 0;
	}
	if (!integer || !fits || value < min || value > max) {
		char shown[32];
		return neap_json_fail(json, NEAP_EJSON, "is %s and must be an integer from %llu to %llu",
		                      neap_json_printable(json->text + begin, json->at - begin, shown, sizeof shown),
		                      (unsigned long long)min, (unsigned long long)max);
	}
	*value_p = value;
	return true;
}

static bool pass_word(struct neap_json *json, const char *word)
{
	size_t n = strlen(word);
	if (json->length - json->at < n || memcmp(json->text + json->at, word, n) != 0)
		return fail_syntax(json, "true, false or null");
	json->at += n;
	return true;
}

bool neap_json_bool(struct neap_json *json, bool *value_p)
{
	if (neap_json_kind(json) != NEAP_JSON_BOOL)
		return wrong_type(json, "a boolean");
	*value_p = json->text[json->at] == 't';
	return pass_word(json, *value_p ? "true" : "false");
}

bool neap_json_null(struct neap_json *json)
{
	return neap_json_kind(json) == NEAP_JSON_NULL && pass_word(json, "null");
}

/* --- containers --------------------------------------------------------------------------------------------------- */

static bool enter(struct neap_json *json, bool is_array)
{
	if (json->depth == json->depth_max)
		return neap_json_fail(json, NEAP_ELIMIT, "nested deeper than %u", json->depth_max);
	json->at++;
	json->frames[json->depth++] = (struct neap_json_frame){.is_array = is_array};
	return true;
}

bool neap_json_enter_object(struct neap_json *json)
{
	if (neap_json_kind(json) != NEAP_JSON_OBJECT)
		return wrong_type(json, "an object");
	return enter(json, false);
}

bool neap_json_enter_array(struct neap_json *json)
{
	if (neap_json_kind(json) != NEAP_JSON_ARRAY)
		return wrong_type(json, "an array");
	return enter(json, true);
}

/* To the next member: past a comma, or out of the container. */
static bool next_member(struct neap_json *json, char end)
{
	if (json->error)
		return false;
	struct neap_json_frame *frame = &json->frames[json->depth - 1];
	int c = peek(json);
	if (c == end) {
		json->at++;
		json->depth--;
		return false;
	}
	if (frame->index > 0) {
		if (c != ',')
			return fail_syntax(json, end == '}' ? "a comma or }" : "a comma or ]");
		json->at++;
	}
	if (frame->index == UINT32_MAX)
		return neap_json_fail(json, NEAP_ELIMIT, "too many members");
	return true;
}

bool neap_json_next_item(struct neap_json *json)
{
	if (!next_member(json, ']'))
		return false;
	json->frames[json->depth - 1].index++;
	return true;
}

bool neap_json_next_key(struct neap_json *json)
{
	struct span span;
	if (!next_member(json, '}'))
		return false;
	if (peek(json) != '"')
		return fail_syntax(json, "a key");
	if (!pass_string(json, &span))
		return false;
	struct neap_json_frame *frame = &json->frames[json->depth - 1];
	frame->key = span.raw;
	frame->key_length = (uint32_t)(span.raw_length < UINT32_MAX ? span.raw_length : UINT32_MAX);
	frame->index++;
	json->key[0] = '\0';
	if (span.length < sizeof json->key)
		copy_string(&span, json->key);
	if (peek(json) != ':')
		return fail_syntax(json, "a colon");
	json->at++;
	return true;
}

static bool skip_scalar(struct neap_json *json, enum neap_json_kind kind)
{
	struct span span;
	bool value;
	switch (kind) {
	case NEAP_JSON_STRING: return pass_string(json, &span);
	case NEAP_JSON_NUMBER: return pass_number(json, &value);
	case NEAP_JSON_BOOL: return neap_json_bool(json, &value);
	case NEAP_JSON_NULL: return pass_word(json, "null");
	case NEAP_JSON_OBJECT:
	case NEAP_JSON_ARRAY:
	case NEAP_JSON_BAD: break;
	}
	return fail_syntax(json, "a value");
}

bool neap_json_skip(struct neap_json *json)
{
	uint32_t base = json->depth;
	do {
		enum neap_json_kind kind = neap_json_kind(json);
		bool ok =
			kind == NEAP_JSON_OBJECT || kind == NEAP_JSON_ARRAY ? enter(json, kind == NEAP_JSON_ARRAY) : skip_scalar(json, kind);
		if (!ok)
			return false;
		while (json->depth > base)
			if (json->frames[json->depth - 1].is_array ? neap_json_next_item(json) : neap_json_next_key(json))
				break;
			else if (json->error)
				return false;
	} while (json->depth > base);
	return true;
}

bool neap_json_finish(struct neap_json *json)
{
	if (json->error)
		return false;
	if (peek(json) >= 0)
		return fail_syntax(json, "the end of the text");
	return true;
}

int neap_json_prescan(const char *text, size_t length, uint32_t depth_max, char *why, size_t why_size)
{
	struct neap_json json;
	neap_json_init(&json, text, length, why, why_size);
	json.depth_max = depth_max < NEAP_JSON_DEPTH ? depth_max : NEAP_JSON_DEPTH;
	if (neap_json_skip(&json))
		(void)neap_json_finish(&json);
	return json.error;
}
