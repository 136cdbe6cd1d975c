/* The JSON writer: the compact form that the Mooncake Transfer Engine writes. */
#include "metadata/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void neap_json_writer_init(struct neap_json_writer *writer, size_t max, size_t expected)
{
	*writer = (struct neap_json_writer){.max = max};
	if (expected > max)
		expected = max;
	writer->text = malloc(expected + 1);
	writer->capacity = writer->text ? expected + 1 : 0;
	writer->no_memory = !writer->text;
}

static bool make_room(struct neap_json_writer *writer, size_t length)
{
	size_t needed = writer->length + length + 1;
	if (needed <= writer->capacity)
		return true;
	size_t capacity = writer->capacity * 2 > needed ? writer->capacity * 2 : needed;
	char *text = realloc(writer->text, capacity);
	if (!text) {
		writer->no_memory = true;
		return false;
	}
	writer->text = text;
	writer->capacity = capacity;
	return true;
}

void neap_json_put(struct neap_json_writer *writer, const char *bytes, size_t length)
{
	if (!writer->no_memory && writer->length <= writer->max && length <= writer->max - writer->length && make_room(writer, length))
		memcpy(writer->text + writer->length, bytes, length);
	writer->length += length;
}

void neap_json_put_text(struct neap_json_writer *writer, const char *text)
{
	neap_json_put(writer, text, strlen(text));
}

void neap_json_put_u64(struct neap_json_writer *writer, uint64_t value)
{
	char digits[20];
	size_t at = sizeof digits;
	do {
		digits[--at] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	neap_json_put(writer, digits + at, sizeof digits - at);
}

static void put_escape(struct neap_json_writer *writer, unsigned unit)
{
	char text[8];
	(void)snprintf(text, sizeof text, "\\u%04x", unit & 0xffff);
	neap_json_put(writer, text, 6);
}

static void put_special(struct neap_json_writer *writer, unsigned char c)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *found = strchr(from, c);
	if (found) {
		char text[2] = {'\\', to[found - from]};
		neap_json_put(writer, text, 2);
	} else {
		put_escape(writer, c);
	}
}

/* The code point at *text_p, which moves behind it; 0 when there is no valid UTF-8. */
static unsigned next_point(const unsigned char **text_p)
{
	static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *s = *text_p;
	size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	unsigned point = s[0] & (0xffu >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		point = point << 6 | (s[i] & 0x3f);
	}
	if (point < least[n] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
		return 0;
	*text_p = s + n;
	return point;
}

bool neap_json_put_string(struct neap_json_writer *writer, const char *text)
{
	const unsigned char *s = (const unsigned char *)(text ? text : "");
	neap_json_put(writer, "\"", 1);
	while (*s) {
		const unsigned char *plain = s;
		while (*s >= 0x20 && *s < 0x80 && *s != '"' && *s != '\\')
			s++;
		neap_json_put(writer, (const char *)plain, (size_t)(s - plain));
		if (*s == 0)
			break;
		if (*s < 0x80) {
			put_special(writer, *s++);
			continue;
		}
		unsigned point = next_point(&s);
		if (point == 0)
			return false;
		if (point >= 0x10000) {
			put_escape(writer, 0xd800 + ((point - 0x10000) >> 10));
			put_escape(writer, 0xdc00 + ((point - 0x10000) & 0x3ff));
		} else {
			put_escape(writer, point);
		}
	}
	neap_json_put(writer, "\"", 1);
	return true;
}

int neap_json_writer_take(struct neap_json_writer *writer, char **text_p, size_t *length_p)
{
	if (writer->no_memory || writer->length > writer->max) {
		bool no_memory = writer->no_memory;
		neap_json_writer_drop(writer);
		return no_memory ? NEAP_ENOMEM : NEAP_ELIMIT;
	}
	writer->text[writer->length] = '\0';
	*text_p = writer->text;
	*length_p = writer->length;
	writer->text = NULL;
	return NEAP_OK;
}

void neap_json_writer_drop(struct neap_json_writer *writer)
{
	free(writer->text);
	writer->text = NULL;
	writer->capacity = 0;
}
