#include "tests/support/script_http.h"
#include <check.h>
#include <stdio.h>
#include <string.h>

static int open_session(const struct neap_http_driver *driver, struct neap_reactor *reactor, const struct neap_http_files *files,
                        struct neap_http_session **session_p)
{
	(void)reactor, (void)files;
	*session_p = (struct neap_http_session *)(uintptr_t)driver;
	return 0;
}

static struct neap_http_exchange *begin(struct neap_http_session *session, const struct neap_http_request *request,
                                        const struct neap_http_events *events, void *user)
{
	struct script_http *http = (struct script_http *)(void *)session;
	if (http->refuse)
		return NULL;
	ck_assert_uint_lt(http->count, SCRIPT_HTTP_EXCHANGES);
	struct neap_http_exchange *exchange = &http->exchanges[http->count++];
	*exchange = (struct neap_http_exchange){.events = events, .user = user, .open = true, .streams = request->streams};
	(void)snprintf(exchange->addresses, sizeof exchange->addresses, "%s", request->addresses ? request->addresses : "");
	(void)snprintf(exchange->token, sizeof exchange->token, "%s", request->token ? request->token : "");
	(void)snprintf(exchange->said, sizeof exchange->said, "%s %s", request->method, request->url);
	if (request->body)
		(void)snprintf(exchange->body, sizeof exchange->body, "%.*s", (int)request->length, request->body);
	return exchange;
}

static void cancel(struct neap_http_exchange *exchange)
{
	ck_assert(exchange->open);
	exchange->open = false;
}

static void close_session(struct neap_http_session *session)
{
	((struct script_http *)(void *)session)->closed = true;
}

void script_http_init(struct script_http *http)
{
	memset(http, 0, sizeof *http);
	http->driver = (struct neap_http_driver){.open = open_session, .begin = begin, .cancel = cancel, .close = close_session};
}

struct neap_http_exchange *script_http_last(struct script_http *http)
{
	return http->count ? &http->exchanges[http->count - 1] : NULL;
}

static struct neap_http_exchange *newest(struct script_http *http, bool streams)
{
	for (uint32_t i = http->count; i > 0; i--)
		if (http->exchanges[i - 1].streams == streams)
			return &http->exchanges[i - 1];
	return NULL;
}

struct neap_http_exchange *script_http_stream(struct script_http *http)
{
	return newest(http, true);
}

struct neap_http_exchange *script_http_plain(struct script_http *http)
{
	return newest(http, false);
}

bool script_http_is_quiet(const struct script_http *http)
{
	for (uint32_t i = 0; i < http->count; i++)
		if (http->exchanges[i].open)
			return false;
	return true;
}

void script_http_answer(struct neap_http_exchange *exchange, long status, const char *body)
{
	ck_assert(exchange->open);
	exchange->open = false;
	exchange->events->answered(exchange->user, status, body, strlen(body));
}

void script_http_fail(struct neap_http_exchange *exchange, int error, const char *why)
{
	ck_assert(exchange->open);
	exchange->open = false;
	exchange->events->failed(exchange->user, error, why);
}

void script_http_bring(struct neap_http_exchange *exchange, long status, const char *bytes)
{
	ck_assert(exchange->open && exchange->streams);
	exchange->events->received(exchange->user, status, bytes, strlen(bytes));
}
