/* HTTP for the programs: a table of routes, served by libmicrohttpd inside the program's libev loop. Nothing waits: libmicrohttpd runs
 * without threads on its own epoll set, which the loop watches.
 *
 * A handler is called when the request is complete, body included, and answers it at once or later, exactly once: until it has answered,
 * or its `canceled` was called, the request is its own. A handler that asks something else first keeps the request and tells with
 * app_http_on_cancel how to stop (only app_http_close does that: a client that went away is found when the answer is written).
 *
 * Bounds: connections, bytes of a request's head, of a body (each route's), of all bodies and answers together; a connection that is
 * silent ends after idle_seconds, a request that is not through after request_seconds ends with its connection, however busy it is. What
 * is refused: 400 broken head or arguments, 404 no such path, 405 no such method there, 413 body too long, 431 and 414 head too long, 503
 * too much at once. HEAD is answered wherever GET is. */
#ifndef APPS_COMMON_HTTP_H
#define APPS_COMMON_HTTP_H

#include "apps/common/text.h"
#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct app_http;
struct app_http_request;

struct app_http_route {
	const char *method; /* "GET", "PUT", "POST", "DELETE" */
	const char *path;   /* whole: "/metrics" */
	void (*handle)(void *user, struct app_http_request *request);
	size_t body_max; /* 0: a body is refused */
};

/* Zero means the default. */
struct app_http_options {
	const char *address; /* where to listen: an address or a name of this machine; 127.0.0.1 */
	uint16_t port;       /* 0: any */
	const struct app_http_route *routes; /* stay valid */
	size_t route_count;
	void *user;               /* of the handlers */
	uint32_t connections_max; /* 128 */
	size_t head_max;          /* 32 KiB */
	size_t bytes_max;         /* of bodies and answers; 256 MiB */
	uint32_t idle_seconds;    /* 15 */
	uint32_t request_seconds; /* 60 */
};

/* 0, or -1 with a sentence in `why` that says what to do. A name is resolved: blocks, for use before the loop runs. */
int app_http_open(struct app_http **http_p, struct ev_loop *loop, const struct app_http_options *options, char *why, size_t why_size);
uint16_t app_http_port(const struct app_http *http);
/* Ends all: handlers that have not answered are canceled. Not from a handler. NULL is fine. */
void app_http_close(struct app_http *http);

/* --- a request ------------------------------------------------------------------------------------------------- */

/* An argument of the query, decoded, with a zero byte behind it (and perhaps some inside). NULL: it is not there. "+" stays "+". A
 * query that is not encoded well does not come to a handler. */
const char *app_http_argument(const struct app_http_request *request, const char *name, size_t *length_p);
const char *app_http_body(const struct app_http_request *request, size_t *length_p);
/* "GET", ... as it was asked. */
const char *app_http_method(const struct app_http_request *request);

/* Answers with a copy of the bytes. `type`: "text/plain", ... */
void app_http_answer(struct app_http_request *request, unsigned status, const char *type, const void *bytes, size_t length);
/* A sentence, as text with a line end. */
void app_http_say(struct app_http_request *request, unsigned status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Takes the text over; one that is full is answered with 503. */
void app_http_answer_text(struct app_http_request *request, unsigned status, const char *type, struct app_text *text);
/* Answers from memory that stays as it is until `release` is called, which may be at once. */
void app_http_answer_from(struct app_http_request *request, unsigned status, const char *type, const void *bytes, size_t length,
                          void (*release)(void *user), void *user);
/* For handlers that answer later. */
void app_http_on_cancel(struct app_http_request *request, void (*canceled)(void *user), void *user);

/* "text/plain; charset=utf-8" and "application/json" */
#define APP_HTTP_TEXT "text/plain; charset=utf-8"
#define APP_HTTP_JSON "application/json"

#endif
