/* Text on its way out of an exporter: formatted into a small buffer, handed on when full. The first error sticks and is answered by
 * neap_sink_end, so that exporters read as straight text. No heap. */
#ifndef NEAP_FSM_SINK_H
#define NEAP_FSM_SINK_H

#include <neap/trace.h>

struct neap_sink {
	neap_write_func *write;
	void *user;
	int error;
	size_t used;
	char buffer[1024];
};

void neap_sink_begin(struct neap_sink *sink, neap_write_func *write, void *user);
void neap_sink_bytes(struct neap_sink *sink, const void *bytes, size_t length);
void neap_sink_text(struct neap_sink *sink, const char *text);
/* One piece of at most 511 bytes; longer is NEAP_ELIMIT. */
void neap_sink_format(struct neap_sink *sink, const char *format, ...) NEAP_PRINTF(2, 3);
/* A JSON string with its quotes. */
void neap_sink_json(struct neap_sink *sink, const char *text);
/* Hands on what is left. 0 or the first error. */
int neap_sink_end(struct neap_sink *sink);

#endif
