#include "apps/common/text.h"
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool make_room(struct app_text *text, size_t length)
{
	if (text->full || text->length > text->max || length > text->max - text->length) {
		text->full = true;
		return false;
	}
	size_t needed = text->length + length + 1, room = text->room ? text->room : 256;
	while (room < needed)
		room *= 2;
	if (room == text->room)
		return true;
	char *bytes = realloc(text->bytes, room);
	if (!bytes) {
		text->full = true;
		return false;
	}
	text->bytes = bytes;
	text->room = room;
	return true;
}

void app_text_add(struct app_text *text, const char *bytes, size_t length)
{
	if (!make_room(text, length))
		return;
	if (length)
		memcpy(text->bytes + text->length, bytes, length);
	text->length += length;
	text->bytes[text->length] = '\0';
}

void app_text_puts(struct app_text *text, const char *string)
{
	app_text_add(text, string, strlen(string));
}

void app_text_format(struct app_text *text, const char *format, ...)
{
	char line[1024];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	if (length < 0 || (size_t)length >= sizeof line)
		text->full = true;
	else
		app_text_add(text, line, (size_t)length);
}

/* --- JSON --------------------------------------------------------------------------------------------------- */

size_t app_utf8_length(const char *string, size_t left)
{
	const unsigned char *bytes = (const unsigned char *)string;
	unsigned char lead = bytes[0];
	if (lead < 0x80)
		return 1;
	size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
	if (lead < 0xc2 || lead > 0xf4 || left < length)
		return 0;
	uint32_t point = lead & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
		point = point << 6 | (bytes[i] & 0x3fu);
	}
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	bool surrogate = point >= 0xd800 && point <= 0xdfff;
	return point < least[length] || point > 0x10ffff || surrogate ? 0 : length;
}

void app_text_json(struct app_text *text, const char *string, size_t length)
{
	const unsigned char *bytes = (const unsigned char *)string;
	app_text_puts(text, "\"");
	for (size_t i = 0; i < length;) {
		size_t plain = i;
		while (plain < length && bytes[plain] >= 0x20 && bytes[plain] < 0x7f && bytes[plain] != '"' && bytes[plain] != '\\')
			plain++;
		app_text_add(text, string + i, plain - i);
		if ((i = plain) == length)
			break;
		size_t character = app_utf8_length(string + i, length - i);
		if (bytes[i] == '"' || bytes[i] == '\\')
			app_text_format(text, "\\%c", bytes[i]);
		else if (character == 1)
			app_text_format(text, "\\u%04x", bytes[i]);
		else if (character)
			app_text_add(text, string + i, character);
		else
			app_text_puts(text, "\\ufffd");
		i += character ? character : 1;
	}
	app_text_puts(text, "\"");
}

void app_text_release(struct app_text *text)
{
	free(text->bytes);
	*text = (struct app_text){.max = text->max};
}
