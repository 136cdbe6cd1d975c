/* An HTTP driver that records what passes through the one over curl, or plays it again. */
#ifndef SUPPORT_RECORD_HTTP_H
#define SUPPORT_RECORD_HTTP_H

#include "metadata/http.h"
#include "tests/support/record_log.h"

#define RECORD_HTTP_REQUESTS 512u

struct record_http {
	struct neap_http_driver driver; /* first */
	struct record_log *log;
	struct neap_http_session *session; /* of curl; NULL: playing */
	struct record_request {
		struct record_http *http;
		const struct neap_http_events *events;
		void *user;
		struct neap_http_exchange *real; /* NULL: playing, or ended */
	} requests[RECORD_HTTP_REQUESTS];
	uint32_t count;
};

void record_http_init(struct record_http *http, struct record_log *log);
/* Playing: an event of this driver is told. False: it is none. */
bool record_http_play(struct record_http *http, const struct record_line *line);

#endif
