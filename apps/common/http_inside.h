/* What http.c (libmicrohttpd and the loop) and http_request.c (a request and its answer) share. */
#ifndef APPS_COMMON_HTTP_INSIDE_H
#define APPS_COMMON_HTTP_INSIDE_H

#include "apps/common/http.h"
#include <microhttpd.h>

#define HTTP_ARGUMENTS_MAX 16u
#define HTTP_SWALLOW_MAX (1u << 20) /* of a body that is refused: read, so that the client sees the answer */

struct http_connection {
	struct http_connection *next, **slot;
	int fd;
	double deadline; /* of the loop's clock; 0: its socket was shut */
};

struct http_argument {
	const char *name, *value;
	size_t name_length, value_length;
};

struct app_http_request {
	struct app_http_request *next, **slot; /* of http->waiting; slot NULL: not in it */
	struct app_http *http;
	struct MHD_Connection *connection;
	const struct app_http_route *route;
	char *target;    /* path, a zero byte, the query decoded in place; NULL: no memory */
	char *query;     /* in it; NULL: none */
	struct http_argument arguments[HTTP_ARGUMENTS_MAX];
	uint32_t argument_count;
	char method[8];
	char *body;
	size_t body_length, body_room, swallowed;
	unsigned refusal; /* status; 0: none */
	bool begun;       /* its head was looked at */
	bool handed;      /* its handler was called */
	bool suspended;
	struct MHD_Response *response;
	unsigned status;
	void (*canceled)(void *user);
	void *canceled_user;
};

struct app_http {
	struct ev_loop *loop;
	struct MHD_Daemon *daemon;
	struct app_http_options options;
	struct http_connection *connections;
	struct app_http_request *waiting; /* for their handlers */
	size_t bytes;
	uint16_t port;
	ev_io io;
	ev_timer timer; /* libmicrohttpd's */
	ev_timer watch; /* looks for connections that take too long; runs while there are any */
};

/* libmicrohttpd's callbacks. */
void *http_on_target(void *user, const char *target, struct MHD_Connection *connection);
enum MHD_Result http_on_access(void *user, struct MHD_Connection *connection, const char *path, const char *method,
                               const char *version, const char *bytes, size_t *length_p, void **request_p);
void http_on_completed(void *user, struct MHD_Connection *connection, void **request_p, enum MHD_RequestTerminationCode code);
/* Something was resumed: libmicrohttpd is to be called soon, it does not wake the loop itself. */
void http_kick(struct app_http *http);
/* Its handler has it no more. */
void http_cancel(struct app_http_request *request);

#endif
