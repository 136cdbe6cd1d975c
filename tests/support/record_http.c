#include "tests/support/record_http.h"
#include <stdlib.h>
#include <string.h>

static uint32_t index_of(const struct record_request *request)
{
	return (uint32_t)(request - request->http->requests);
}

static void answered(void *user, long status, const char *body, size_t length)
{
	struct record_request *request = user;
	record_happened(request->http->log, "answered", index_of(request), status, body, length);
	request->real = NULL;
	request->events->answered(request->user, status, body, length);
}

static void failed(void *user, int error, const char *why)
{
	struct record_request *request = user;
	record_happened(request->http->log, "failed", index_of(request), error, why, strlen(why));
	request->real = NULL;
	request->events->failed(request->user, error, why);
}

static void received(void *user, long status, const char *bytes, size_t length)
{
	struct record_request *request = user;
	record_happened(request->http->log, "received", index_of(request), status, bytes, length);
	request->events->received(request->user, status, bytes, length);
}

static const struct neap_http_events events = {.answered = answered, .failed = failed, .received = received};

static int do_open(const struct neap_http_driver *driver, struct neap_reactor *reactor, const struct neap_http_files *files,
                   struct neap_http_session **session_p)
{
	struct record_http *http = (struct record_http *)(uintptr_t)driver;
	*session_p = (struct neap_http_session *)(void *)http;
	return http->log->plays ? 0 : neap_http_curl()->open(neap_http_curl(), reactor, files, &http->session);
}

/* Method, url, token and body, with NUL between them. */
static char *describe(const struct neap_http_request *request, size_t *length_p)
{
	const char *token = request->token ? request->token : "";
	size_t size = strlen(request->method) + strlen(request->url) + strlen(token) + request->length + 8;
	char *text = malloc(size);
	int at = snprintf(text, size, "%s%c%s%c%s%c", request->method, 0, request->url, 0, token, 0);
	if (request->body)
		memcpy(text + at, request->body, request->length);
	*length_p = (size_t)at + (request->body ? request->length : 0);
	return text;
}

static struct neap_http_exchange *do_begin(struct neap_http_session *session, const struct neap_http_request *wanted,
                                           const struct neap_http_events *told, void *user)
{
	struct record_http *http = (struct record_http *)(void *)session;
	if (http->count == RECORD_HTTP_REQUESTS)
		return NULL;
	struct record_request *request = &http->requests[http->count++];
	size_t length;
	char *text = describe(wanted, &length);
	*request = (struct record_request){.http = http, .events = told, .user = user};
	record_did(http->log, "ask", index_of(request), wanted->streams, text, length);
	free(text);
	if (http->session)
		request->real = neap_http_curl()->begin(http->session, wanted, &events, request);
	return (struct neap_http_exchange *)(void *)request;
}

static void do_cancel(struct neap_http_exchange *exchange)
{
	struct record_request *request = (struct record_request *)(void *)exchange;
	record_did(request->http->log, "cancel", index_of(request), 0, "", 0);
	if (request->real)
		neap_http_curl()->cancel(request->real);
	request->real = NULL;
}

static void do_close(struct neap_http_session *session)
{
	struct record_http *http = (struct record_http *)(void *)session;
	if (http->session)
		neap_http_curl()->close(http->session);
}

void record_http_init(struct record_http *http, struct record_log *log)
{
	memset(http, 0, sizeof *http);
	http->log = log;
	http->driver = (struct neap_http_driver){.open = do_open, .begin = do_begin, .cancel = do_cancel, .close = do_close};
}

bool record_http_play(struct record_http *http, const struct record_line *line)
{
	if (line->which >= http->count)
		return false;
	struct record_request *request = &http->requests[line->which];
	if (strcmp(line->what, "answered") == 0)
		answered(request, line->number, line->text, line->length);
	else if (strcmp(line->what, "failed") == 0)
		failed(request, (int)line->number, line->text);
	else if (strcmp(line->what, "received") == 0)
		received(request, line->number, line->text, line->length);
	else
		return false;
	return true;
}
