/* An HTTP driver that does as the test says: each request is kept as text, and answered, failed or streamed when the test does it. */
#ifndef SUPPORT_SCRIPT_HTTP_H
#define SUPPORT_SCRIPT_HTTP_H

#include "metadata/http.h"

#define SCRIPT_HTTP_EXCHANGES 256u

struct neap_http_exchange {
	const struct neap_http_events *events;
	void *user;
	char said[4096]; /* "GET http://host/path" */
	char body[1024], addresses[100], token[64];
	bool open, streams;
};

struct script_http {
	struct neap_http_driver driver; /* first */
	struct neap_http_exchange exchanges[SCRIPT_HTTP_EXCHANGES];
	uint32_t count;
	bool refuse, closed; /* refuse: a request cannot even begin */
};

void script_http_init(struct script_http *http);
/* The newest one, or the newest that streams or does not. NULL: none. */
struct neap_http_exchange *script_http_last(struct script_http *http);
struct neap_http_exchange *script_http_stream(struct script_http *http);
struct neap_http_exchange *script_http_plain(struct script_http *http);
/* None is open any more? */
bool script_http_is_quiet(const struct script_http *http);

void script_http_answer(struct neap_http_exchange *exchange, long status, const char *body);
void script_http_fail(struct neap_http_exchange *exchange, int error, const char *why);
void script_http_bring(struct neap_http_exchange *exchange, long status, const char *bytes);

#endif
