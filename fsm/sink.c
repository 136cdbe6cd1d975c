#include "fsm/sink.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void neap_sink_begin(struct neap_sink *sink, neap_write_func *write, void *user)
{
	sink->write = write;
	sink->user = user;
	sink->error = NEAP_OK;
	sink->used = 0;
}

static void flush(struct neap_sink *sink)
{
	if (!sink->error && sink->used)
		sink->error = sink->write(sink->user, sink->buffer, sink->used);
	sink->used = 0;
}

void neap_sink_bytes(struct neap_sink *sink, const void *bytes, size_t length)
{
	if (length > sizeof sink->buffer - sink->used)
		flush(sink);
	if (length > sizeof sink->buffer) {
		if (!sink->error)
			sink->error = sink->write(sink->user, bytes, length);
		return;
	}
	memcpy(sink->buffer + sink->used, bytes, length);
	sink->used += length;
}

void neap_sink_text(struct neap_sink *sink, const char *text)
{
	neap_sink_bytes(sink, text, strlen(text));
}

void neap_sink_format(struct neap_sink *sink, const char *format, ...)
{
	char piece[512];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(piece, sizeof piece, format, arguments);
	va_end(arguments);
	if (length < 0 || (size_t)length >= sizeof piece)
		sink->error = sink->error ? sink->error : NEAP_ELIMIT;
	else
		neap_sink_bytes(sink, piece, (size_t)length);
}

void neap_sink_json(struct neap_sink *sink, const char *text)
{
	neap_sink_text(sink, "\"");
	for (const char *at = text; *at; at++) {
		unsigned char c = (unsigned char)*at;
		if (c == '"' || c == '\\')
			neap_sink_format(sink, "\\%c", c);
		else if (c < 0x20)
			neap_sink_format(sink, "\\u%04x", c);
		else
			neap_sink_bytes(sink, at, 1);
	}
	neap_sink_text(sink, "\"");
}

int neap_sink_end(struct neap_sink *sink)
{
	flush(sink);
	return sink->error;
}
