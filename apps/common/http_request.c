#include "apps/common/http_inside.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the query -------------------------------------------------------------------------------------------------- */

static int hex(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	digit = (char)(digit | 0x20);
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* In place. False: a % without two digits. */
static bool decode(char *text, size_t length, size_t *length_p)
{
	size_t out = 0;
	for (size_t i = 0; i < length; i++) {
		char byte = text[i];
		if (byte == '%') {
			if (length - i < 3 || hex(text[i + 1]) < 0 || hex(text[i + 2]) < 0)
				return false;
			byte = (char)(hex(text[i + 1]) << 4 | hex(text[i + 2]));
			i += 2;
		}
		text[out++] = byte;
	}
	text[out] = '\0'; /* in the place of a & or = or the end */
	*length_p = out;
	return true;
}

static bool parse_query(struct app_http_request *request)
{
	for (char *item = request->query; item && *item;) {
		char *end = strchr(item, '&'), *next = end ? end + 1 : NULL;
		size_t length = end ? (size_t)(end - item) : strlen(item);
		char *equals = memchr(item, '=', length);
		size_t name_length = equals ? (size_t)(equals - item) : length;
		if (request->argument_count == HTTP_ARGUMENTS_MAX)
			return false;
		struct http_argument *argument = &request->arguments[request->argument_count++];
		char *value = equals ? equals + 1 : item + length;
		size_t value_length = equals ? length - name_length - 1 : 0;
		if (equals && !decode(value, value_length, &argument->value_length))
			return false;
		if (!decode(item, name_length, &argument->name_length))
			return false;
		argument->name = item;
		argument->value = equals ? value : "";
		item = next;
	}
	return true;
}

const char *app_http_argument(const struct app_http_request *request, const char *name, size_t *length_p)
{
	size_t length = strlen(name);
	for (uint32_t i = 0; i < request->argument_count; i++) {
		const struct http_argument *argument = &request->arguments[i];
		if (argument->name_length == length && !memcmp(argument->name, name, length)) {
			*length_p = argument->value_length;
			return argument->value;
		}
	}
	*length_p = 0;
	return NULL;
}

const char *app_http_body(const struct app_http_request *request, size_t *length_p)
{
	*length_p = request->body_length;
	return request->body ? request->body : "";
}

const char *app_http_method(const struct app_http_request *request)
{
	return request->method;
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

/* A buffer that counts in http->bytes until libmicrohttpd has sent it. */
struct answer {
	struct app_http *http;
	size_t length;
	void (*release)(void *user);
	void *user;
};

static void answer_sent(void *user)
{
	struct answer *answer = user;
	answer->http->bytes -= answer->length;
	if (answer->release)
		answer->release(answer->user);
	free(answer);
}

static void leave_waiting(struct app_http_request *request)
{
	if (!request->slot)
		return;
	*request->slot = request->next;
	if (request->next)
		request->next->slot = request->slot;
	request->slot = NULL;
}

static void set_answer(struct app_http_request *request, unsigned status, const char *type, struct MHD_Response *response)
{
	if (response)
		(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	request->response = response; /* NULL, without memory: the connection is closed */
	request->status = status;
	request->canceled = NULL;
	leave_waiting(request);
	if (request->suspended) {
		request->suspended = false;
		MHD_resume_connection(request->connection);
		http_kick(request->http);
	}
}

static void answer_static(struct app_http_request *request, unsigned status, const char *sentence)
{
	set_answer(request, status, APP_HTTP_TEXT,
	           MHD_create_response_from_buffer(strlen(sentence), (void *)(uintptr_t)sentence, MHD_RESPMEM_PERSISTENT));
}

void app_http_answer_from(struct app_http_request *request, unsigned status, const char *type, const void *bytes, size_t length,
                          void (*release)(void *user), void *user)
{
	struct app_http *http = request->http;
	struct answer *answer = length <= http->options.bytes_max - http->bytes ? malloc(sizeof *answer) : NULL;
	if (!answer) {
		if (release)
			release(user);
		answer_static(request, MHD_HTTP_SERVICE_UNAVAILABLE, "too many answers are on their way, try again later\n");
		return;
	}
	*answer = (struct answer){.http = http, .length = length, .release = release, .user = user};
	http->bytes += length;
	struct MHD_Response *response =
		MHD_create_response_from_buffer_with_free_callback_cls(length, (void *)(uintptr_t)bytes, answer_sent, answer);
	if (!response)
		answer_sent(answer);
	set_answer(request, status, type, response);
}

void app_http_answer(struct app_http_request *request, unsigned status, const char *type, const void *bytes, size_t length)
{
	void *copy = malloc(length ? length : 1);
	if (!copy) {
		answer_static(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
		return;
	}
	if (length)
		memcpy(copy, bytes, length);
	app_http_answer_from(request, status, type, copy, length, free, copy);
}

void app_http_say(struct app_http_request *request, unsigned status, const char *format, ...)
{
	char line[512];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(line, sizeof line - 1, format, arguments);
	va_end(arguments);
	size_t used = length < 0 ? 0 : (size_t)length < sizeof line - 1 ? (size_t)length : sizeof line - 2;
	line[used] = '\n';
	app_http_answer(request, status, APP_HTTP_TEXT, line, used + 1);
}

void app_http_answer_text(struct app_http_request *request, unsigned status, const char *type, struct app_text *text)
{
	char *bytes = text->bytes;
	size_t length = text->length;
	if (text->full) {
		app_text_release(text);
		answer_static(request, MHD_HTTP_SERVICE_UNAVAILABLE, "the answer is too long for this server\n");
		return;
	}
	*text = (struct app_text){.max = text->max};
	app_http_answer_from(request, status, type, bytes ? bytes : "", length, free, bytes);
}

void app_http_on_cancel(struct app_http_request *request, void (*canceled)(void *user), void *user)
{
	request->canceled = canceled;
	request->canceled_user = user;
}

void http_cancel(struct app_http_request *request)
{
	void (*canceled)(void *) = request->canceled;
	request->canceled = NULL;
	if (canceled)
		canceled(request->canceled_user);
	answer_static(request, MHD_HTTP_SERVICE_UNAVAILABLE, "the server is shutting down\n");
}

/* --- arrival ---------------------------------------------------------------------------------------------------- */

/* The first that libmicrohttpd tells of a request: its target as it came. */
void *http_on_target(void *user, const char *target, struct MHD_Connection *connection)
{
	struct app_http *http = user;
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct http_connection *mine = info ? info->socket_context : NULL;
	struct app_http_request *request = calloc(1, sizeof *request);
	if (mine && mine->deadline > 0)
		mine->deadline = ev_now(http->loop) + http->options.request_seconds;
	if (!request)
		return NULL;
	request->http = http;
	request->connection = connection;
	request->target = strdup(target);
	char *mark = request->target ? strchr(request->target, '?') : NULL;
	if (mark) {
		*mark = '\0';
		request->query = mark + 1;
	}
	return request;
}

void http_on_completed(void *user, struct MHD_Connection *connection, void **request_p, enum MHD_RequestTerminationCode code)
{
	struct app_http *http = user;
	struct app_http_request *request = *request_p;
	(void)code;
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct http_connection *mine = info ? info->socket_context : NULL;
	if (mine && mine->deadline > 0)
		mine->deadline = ev_now(http->loop) + http->options.request_seconds;
	if (!request)
		return;
	*request_p = NULL;
	void (*canceled)(void *) = request->canceled;
	if (canceled)
		canceled(request->canceled_user);
	leave_waiting(request);
	if (request->response)
		MHD_destroy_response(request->response);
	http->bytes -= request->body_room;
	free(request->body);
	free(request->target);
	free(request);
}

static bool same_method(const char *asked, const char *routed)
{
	return !strcmp(asked, routed) || (!strcmp(asked, "HEAD") && !strcmp(routed, "GET"));
}

/* The route, or the status of a refusal. */
static unsigned find_route(struct app_http_request *request)
{
	const struct app_http_options *options = &request->http->options;
	unsigned refusal = MHD_HTTP_NOT_FOUND;
	for (size_t i = 0; i < options->route_count; i++) {
		const struct app_http_route *route = &options->routes[i];
		if (strcmp(request->target, route->path))
			continue;
		refusal = MHD_HTTP_METHOD_NOT_ALLOWED;
		if (same_method(request->method, route->method)) {
			request->route = route;
			return 0;
		}
	}
	return refusal;
}

/* Looks at the head. True: refuse now, before the body, which is too long to be read for nothing or has not been sent yet. */
static bool begin(struct app_http_request *request, struct MHD_Connection *connection, const char *method)
{
	const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
	const char *expect = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_EXPECT);
	unsigned long long body = length ? strtoull(length, NULL, 10) : 0; /* libmicrohttpd refuses what is no number */
	snprintf(request->method, sizeof request->method, "%s", strlen(method) < sizeof request->method ? method : "?");
	request->refusal = find_route(request);
	if (!request->refusal && !parse_query(request))
		request->refusal = MHD_HTTP_BAD_REQUEST;
	if (!request->refusal && body > request->route->body_max)
		request->refusal = MHD_HTTP_CONTENT_TOO_LARGE;
	return request->refusal && (body > HTTP_SWALLOW_MAX || (expect && body));
}

/* A piece of the body. False: enough, the connection is to be closed. */
static bool take_body(struct app_http_request *request, const char *bytes, size_t length)
{
	struct app_http *http = request->http;
	if (!request->refusal && length > request->route->body_max - request->body_length)
		request->refusal = MHD_HTTP_CONTENT_TOO_LARGE;
	size_t room = request->body_room ? request->body_room : 4096;
	while (!request->refusal && room - request->body_length <= length)
		room *= 2;
	if (!request->refusal && room != request->body_room) {
		size_t more = room - request->body_room;
		char *body = more <= http->options.bytes_max - http->bytes ? realloc(request->body, room) : NULL;
		if (body) {
			http->bytes += more;
			request->body = body;
			request->body_room = room;
		} else {
			request->refusal = MHD_HTTP_SERVICE_UNAVAILABLE;
		}
	}
	if (request->refusal)
		return (request->swallowed += length) <= HTTP_SWALLOW_MAX;
	memcpy(request->body + request->body_length, bytes, length);
	request->body_length += length;
	request->body[request->body_length] = '\0';
	return true;
}

static void answer_too_long(struct app_http_request *request)
{
	char sentence[80];
	int length = snprintf(sentence, sizeof sentence, "the body is too long: at most %zu bytes are taken here\n", request->route->body_max);
	set_answer(request, MHD_HTTP_CONTENT_TOO_LARGE, APP_HTTP_TEXT,
	           MHD_create_response_from_buffer((size_t)length, sentence, MHD_RESPMEM_MUST_COPY));
}

static void add_allowed(struct app_http_request *request)
{
	const struct app_http_options *options = &request->http->options;
	char allowed[128] = "";
	size_t used = 0;
	for (size_t i = 0; i < options->route_count && used < sizeof allowed; i++) {
		const struct app_http_route *route = &options->routes[i];
		if (!strcmp(request->target, route->path))
			used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s%s", used ? ", " : "", route->method,
			                         strcmp(route->method, "GET") ? "" : ", HEAD");
	}
	if (request->response)
		(void)MHD_add_response_header(request->response, MHD_HTTP_HEADER_ALLOW, allowed);
}

static void refuse(struct app_http_request *request)
{
	switch (request->refusal) {
	case MHD_HTTP_NOT_FOUND: answer_static(request, request->refusal, "there is no such path here\n"); break;
	case MHD_HTTP_METHOD_NOT_ALLOWED:
		answer_static(request, request->refusal, "this path does not have this method\n");
		add_allowed(request);
		break;
	case MHD_HTTP_BAD_REQUEST:
		answer_static(request, request->refusal, "the query is not well encoded, or has more than 16 arguments\n");
		break;
	case MHD_HTTP_CONTENT_TOO_LARGE: answer_too_long(request); break;
	default: answer_static(request, request->refusal, "too much is under way, try again later\n"); break;
	}
}

static enum MHD_Result send_answer(struct app_http_request *request, struct MHD_Connection *connection)
{
	return request->response ? MHD_queue_response(connection, request->status, request->response) : MHD_NO;
}

static void hand_over(struct app_http_request *request)
{
	struct app_http *http = request->http;
	request->handed = true;
	request->next = http->waiting;
	request->slot = &http->waiting;
	if (request->next)
		request->next->slot = &request->next;
	http->waiting = request;
	request->route->handle(http->options.user, request);
}

enum MHD_Result http_on_access(void *user, struct MHD_Connection *connection, const char *path, const char *method,
                               const char *version, const char *bytes, size_t *length_p, void **request_p)
{
	struct app_http_request *request = *request_p;
	(void)user, (void)path, (void)version;
	if (!request || !request->target)
		return MHD_NO;
	if (!request->begun) {
		request->begun = true;
		if (!begin(request, connection, method))
			return MHD_YES;
		refuse(request);
		return send_answer(request, connection);
	}
	if (*length_p) {
		size_t length = *length_p;
		*length_p = 0;
		return take_body(request, bytes, length) ? MHD_YES : MHD_NO;
	}
	if (request->handed && !request->slot)
		return send_answer(request, connection); /* resumed */
	if (request->refusal) {
		refuse(request);
		return send_answer(request, connection);
	}
	hand_over(request);
	if (!request->slot)
		return send_answer(request, connection);
	request->suspended = true;
	MHD_suspend_connection(connection);
	return MHD_YES;
}
