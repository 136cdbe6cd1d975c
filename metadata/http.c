/* The HTTP back-end: each operation is one request. */
#include "metadata/http.h"
#include "metadata/json.h"
#include "reactor/pool.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CALLS_DEFAULT 4096u
#define BODY_BYTES_MAX ((size_t)64 << 20) /* held for all operations */
#define URL_MAX 1024u
#define WHY_MAX 384u

enum http_kind { HTTP_GET, HTTP_SET, HTTP_REMOVE, HTTP_TOUCH };

struct http_op {
	struct neap_http *http;
	neap_backend_done_func *done;
	void *user;
	uint64_t call;    /* the request */
	char *url, *body; /* from neap_allocate */
	size_t url_bytes, body_bytes, length;
	int error;
	uint8_t kind; /* enum http_kind */
	bool create;
	char why[WHY_MAX];
};

struct neap_http {
	struct neap_backend base;
	struct neap_reactor *reactor;
	struct neap_http_caller *caller;
	struct neap_reap reap;
	struct neap_pool ops;
	struct neap_http_server server;
	size_t body_bytes;
	bool closing;
	char url[URL_MAX];
};

static struct neap_http *http_of(struct neap_backend *backend)
{
	return (struct neap_http *)(void *)((char *)backend - offsetof(struct neap_http, base));
}

size_t neap_http_escape(const char *key, char *text, size_t size)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t at = 0;
	for (const unsigned char *c = (const unsigned char *)key; *c; c++) {
		bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || strchr("-._~", *c);
		if (at + (plain ? 1u : 3u) >= size)
			return 0;
		if (plain) {
			text[at++] = (char)*c;
			continue;
		}
		text[at++] = '%';
		text[at++] = digits[*c >> 4];
		text[at++] = digits[*c & 15];
	}
	text[at] = '\0';
	return at;
}

/* --- life ------------------------------------------------------------------------------------------------------------- */

static void end_op(struct http_op *op)
{
	struct neap_http *http = op->http;
	neap_http_cancel(http->caller, op->call);
	if (op->url)
		neap_release(http->reactor, op->url, op->url_bytes);
	if (op->body)
		neap_release(http->reactor, op->body, op->body_bytes);
	http->body_bytes -= op->body_bytes;
	op->url = op->body = NULL;
	op->body_bytes = 0;
	neap_pool_give(&http->ops, op);
}

NEAP_PRINTF(3, 4) static void note(struct http_op *op, int error, const char *format, ...)
{
	va_list list;
	int n = snprintf(op->why, sizeof op->why, "%s: ", op->http->base.where);
	op->error = error;
	if (n < 0 || (size_t)n >= sizeof op->why)
		return;
	va_start(list, format);
	(void)vsnprintf(op->why + n, sizeof op->why - (size_t)n, format, list);
	va_end(list);
}

/* Takes it apart first and tells its owner last, so that the owner may call again, cancel others or destroy the back-end. */
static void report(struct http_op *op, const char *value, size_t length)
{
	neap_backend_done_func *done = op->done;
	void *user = op->user;
	int error = op->error;
	char why[WHY_MAX];
	memcpy(why, op->why, sizeof why);
	end_op(op);
	done(user, error, value, length, error ? why : "");
}

/* --- answers ------------------------------------------------------------------------------------------------------------ */

static const struct {
	long least, most;
	int error;
	const char *advice;
} statuses[] = {
	{300, 399, NEAP_EREJECTED, "it points elsewhere; give that address, redirects are not followed"},
	{401, 403, NEAP_EREJECTED, "it does not let us; credentials are not supported"},
	{413, 413, NEAP_ELIMIT, "that is longer than it takes; raise its limit (neap-master: --http_metadata_value_max), or register fewer "
	                        "and larger OPEN regions"},
	{507, 507, NEAP_ELIMIT, "it is full"},
	{500, 599, NEAP_EAGAIN, "it is not well"},
};

/* 0 or what the status means for this request. */
static int judge(struct http_op *op, long status, const char *answer, size_t answer_length)
{
	if (status == 200)
		return NEAP_OK;
	if (status == 404 && op->kind == HTTP_REMOVE)
		return NEAP_OK;
	if (status == 404 && op->kind != HTTP_SET) {
		note(op, NEAP_EMETADATA, "there is no such key");
		return NEAP_EMETADATA;
	}
	if (status == 400 && op->create) {
		note(op, NEAP_ETAKEN, "the key has a value already");
		return NEAP_ETAKEN;
	}
	char said[80], size[48] = "";
	while (answer_length > 0 && answer[answer_length - 1] == '\n')
		answer_length--;
	neap_json_printable(answer ? answer : "", answer_length, said, sizeof said);
	if (op->kind == HTTP_SET)
		(void)snprintf(size, sizeof size, " to a value of %zu bytes", op->length);
	for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
		if (status >= statuses[i].least && status <= statuses[i].most) {
			note(op, statuses[i].error, "status %ld \"%s\"%s: %s", status, said, size, statuses[i].advice);
			return op->error;
		}
	note(op, NEAP_EPROTO, "status %ld \"%s\"; 200 is expected%s", status, said,
	     op->kind != HTTP_SET ? ", or 404: is this a metadata server?" : "");
	return op->error;
}

static void answered(void *user, int error, long status, const char *body, size_t length, const char *why)
{
	struct http_op *op = user;
	if (error)
		note(op, error, "%s", why);
	else
		error = judge(op, status, body, length);
	bool value = !error && op->kind == HTTP_GET;
	report(op, value ? body : NULL, value ? length : 0);
}

/* --- operations --------------------------------------------------------------------------------------------------------- */

static bool write_url(struct http_op *op, const char *key)
{
	struct neap_http *http = op->http;
	size_t base = strlen(http->url), need = base + 5 + 3 * strlen(key) + 1;
	op->url = neap_allocate(http->reactor, need);
	if (!op->url)
		return false;
	op->url_bytes = need;
	memcpy(op->url, http->url, base);
	memcpy(op->url + base, "?key=", 5);
	return neap_http_escape(key, op->url + base + 5, need - base - 5) > 0;
}

/* Bodies end without the newline that documents have elsewhere. */
static bool copy_body(struct http_op *op, const char *value, size_t length)
{
	struct neap_http *http = op->http;
	op->length = length > 0 && value[length - 1] == '\n' ? length - 1 : length;
	op->body = neap_allocate(http->reactor, op->length + 1);
	if (!op->body)
		return false;
	op->body_bytes = op->length + 1;
	http->body_bytes += op->body_bytes;
	memcpy(op->body, value, op->length);
	return true;
}

static int begin(struct neap_http *http, enum http_kind what, const char *key, neap_backend_done_func *done, void *user,
                 struct http_op **op_p)
{
	size_t length = strnlen(key, NEAP_BACKEND_KEY_MAX);
	if (http->closing)
		return NEAP_ECLOSED;
	if (length == 0 || length == NEAP_BACKEND_KEY_MAX)
		return length ? NEAP_ELIMIT : NEAP_EINVAL;
	struct http_op *op = neap_pool_take(&http->ops);
	if (!op)
		return NEAP_EAGAIN;
	*op = (struct http_op){.http = http, .done = done, .user = user, .kind = (uint8_t)what};
	*op_p = op;
	if (write_url(op, key))
		return NEAP_OK;
	end_op(op);
	return NEAP_ENOMEM;
}

static int start(struct http_op *op, uint64_t timeout_ns, uint64_t *call_p)
{
	static const char *const methods[] = {
		[HTTP_GET] = "GET", [HTTP_SET] = "PUT", [HTTP_REMOVE] = "DELETE", [HTTP_TOUCH] = "GET"};
	struct neap_http *http = op->http;
	struct neap_http_ask ask = {.server = &http->server,
	                            .method = methods[op->kind],
	                            .url = op->url,
	                            .body = op->body,
	                            .length = op->length,
	                            .answer_max = http->base.value_max,
	                            .timeout_ns = timeout_ns,
	                            .done = answered,
	                            .user = op};
	int error = neap_http_ask(http->caller, &ask, &op->call);
	*call_p = neap_pool_handle(&http->ops, op);
	if (error)
		end_op(op);
	return error;
}

static int ask(struct neap_backend *backend, enum http_kind what, const char *key, uint64_t timeout_ns, neap_backend_done_func *done,
               void *user, uint64_t *call_p)
{
	struct http_op *op;
	int error = begin(http_of(backend), what, key, done, user, &op);
	return error ? error : start(op, timeout_ns, call_p);
}

static int http_get(struct neap_backend *backend, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
                    uint64_t *call_p)
{
	return ask(backend, HTTP_GET, key, timeout_ns, done, user, call_p);
}

static int http_set(struct neap_backend *backend, const struct neap_backend_set *set, uint64_t timeout_ns, neap_backend_done_func *done,
                    void *user, uint64_t *call_p)
{
	struct neap_http *http = http_of(backend);
	struct http_op *op;
	if (set->lease_ns)
		return NEAP_EINVAL;
	if (set->length > backend->value_max)
		return NEAP_ELIMIT;
	if (set->length + 1 > BODY_BYTES_MAX - http->body_bytes)
		return NEAP_EAGAIN;
	int error = begin(http, HTTP_SET, set->key, done, user, &op);
	if (error)
		return error;
	op->create = set->create;
	if (copy_body(op, set->value, set->length))
		return start(op, timeout_ns, call_p);
	end_op(op);
	return NEAP_ENOMEM;
}

static int http_remove(struct neap_backend *backend, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
                       uint64_t *call_p)
{
	return ask(backend, HTTP_REMOVE, key, timeout_ns, done, user, call_p);
}

static int http_touch(struct neap_backend *backend, const char *key, uint64_t lease_ns, uint64_t timeout_ns,
                      neap_backend_done_func *done, void *user, uint64_t *call_p)
{
	return lease_ns ? NEAP_EINVAL : ask(backend, HTTP_TOUCH, key, timeout_ns, done, user, call_p);
}

static void http_cancel(struct neap_backend *backend, uint64_t handle)
{
	struct http_op *op = neap_pool_find(&http_of(backend)->ops, handle);
	if (op)
		end_op(op);
}

static int http_watch(struct neap_backend *backend, const char *key, struct neap_backend_watch *watch)
{
	(void)backend;
	(void)key;
	(void)watch;
	return NEAP_EAGAIN;
}

static void release_http(struct neap_http *http)
{
	neap_pool_destroy(&http->ops);
	neap_release(http->reactor, http, sizeof *http);
}

static void reap_http(struct neap_reap *reap)
{
	release_http((struct neap_http *)(void *)((char *)reap - offsetof(struct neap_http, reap)));
}

static void http_destroy(struct neap_backend *backend)
{
	struct neap_http *http = http_of(backend);
	struct http_op *op;
	uint32_t index = 0;
	if (http->closing)
		return;
	http->closing = true;
	while ((op = neap_pool_next(&http->ops, &index)) != NULL)
		end_op(op);
	neap_http_caller_close(http->caller);
	http->reap.reap = reap_http;
	neap_reap_later(http->reactor, &http->reap);
}

static const struct neap_backend_ops ops = {
	.capabilities = NEAP_BACKEND_STORES,
	.get = http_get,
	.set = http_set,
	.remove = http_remove,
	.touch = http_touch,
	.cancel = http_cancel,
	.watch = http_watch,
	.destroy = http_destroy,
};

/* --- making one --------------------------------------------------------------------------------------------------------- */

static int parse(struct neap_http *http, const char *url, char *why, size_t why_size)
{
	int error = neap_http_server_parse("metadata", url, sizeof http->url, 80, &http->server, why, why_size);
	if (error)
		return error;
	if (strpbrk(url + http->server.base_length, "?# ")) {
		(void)snprintf(why, why_size, "metadata '%.128s': nothing may follow the path; \"?key=...\" is added to it", url);
		return NEAP_EADDRESS;
	}
	http->base.local = http->server.local;
	(void)snprintf(http->url, sizeof http->url, "%s", url);
	(void)snprintf(http->base.where, sizeof http->base.where, "%.*s", (int)http->server.base_length, url);
	return NEAP_OK;
}

int neap_http_create(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                     const struct neap_http_driver *driver, char *why, size_t why_size)
{
	const struct neap_http_files files = {.ca = options->ca_file, .certificate = options->certificate_file, .key = options->key_file};
	uint32_t calls_max = options->calls_max ? options->calls_max : CALLS_DEFAULT;
	*backend_p = NULL;
	struct neap_http *http = neap_allocate(reactor, sizeof *http);
	if (!http)
		return NEAP_ENOMEM;
	http->reactor = reactor;
	http->base = (struct neap_backend){.ops = &ops, .value_max = NEAP_HTTP_VALUE_MAX};
	http->base.scheme = strncmp(options->connection, "https://", 8) == 0 ? "https" : "http";
	int error = parse(http, options->connection, why, why_size);
	if (!error)
		error = neap_pool_create(&http->ops, reactor, sizeof(struct http_op), calls_max);
	if (!error && (error = neap_http_caller_open(&http->caller, reactor, driver, &files, calls_max)) != 0)
		(void)snprintf(why, why_size, "curl does not start: %s", neap_error_text(error));
	if (error) {
		release_http(http);
		return error;
	}
	*backend_p = &http->base;
	return NEAP_OK;
}

int neap_http_open(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                   char *why, size_t why_size)
{
	const struct neap_http_files files = {.ca = options->ca_file, .certificate = options->certificate_file, .key = options->key_file};
	*backend_p = NULL;
	int error = neap_http_files_check(&files, why, why_size);
	return error ? error : neap_http_create(backend_p, reactor, options, neap_http_curl(), why, why_size);
}
