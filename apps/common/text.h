/* Text that grows up to a bound: answers in JSON, metrics. After the bound, or without memory, nothing is added and `full` stays set,
 * so that one look at the end is enough. Zeroed but for `max` before the first use. */
#ifndef APPS_COMMON_TEXT_H
#define APPS_COMMON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct app_text {
	char *bytes; /* a zero byte follows; NULL while there is nothing */
	size_t length, room, max;
	bool full;
};

void app_text_add(struct app_text *text, const char *bytes, size_t length);
void app_text_puts(struct app_text *text, const char *string);
/* At most 1023 bytes at once. */
void app_text_format(struct app_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As a JSON string with its quotes. Bytes that are no UTF-8 become U+FFFD: there is no other way to write them in JSON. */
void app_text_json(struct app_text *text, const char *bytes, size_t length);
/* Length of the UTF-8 character at `bytes`, of which `left` (at least 1) are there; 0 when it is none: too short, overlong, a surrogate,
 * beyond U+10FFFF. */
size_t app_utf8_length(const char *bytes, size_t left);
void app_text_release(struct app_text *text);

#endif
