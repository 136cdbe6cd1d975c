/* The HTTP back-end. Every way out takes the call apart first and tells its owner last, so that the owner may call again, cancel others
 * or destroy the back-end. */
#include "metadata/http.h"
#include "metadata/http_call_fsm.h"
#include "metadata/json.h"
#include "reactor/pool.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CALLS_DEFAULT 4096u
#define BODY_BYTES_MAX ((size_t)64 << 20) /* held for all calls */
#define URL_MAX 1024u
#define WHY_MAX 384u

enum http_kind { HTTP_GET, HTTP_SET, HTTP_REMOVE, HTTP_TOUCH };

struct http_call {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_http *http;
	neap_backend_done_func *done;
	void *user;
	struct neap_resolution *resolution;
	struct neap_http_exchange *exchange;
	struct neap_sockaddr addresses[NEAP_HTTP_ADDRESSES_MAX];
	uint32_t address_count;
	uint64_t began_ns, deadline_ns;
	char *url, *body; /* from neap_allocate */
	size_t url_bytes, body_bytes, length;
	const char *answer; /* while its machine is told of it */
	size_t answer_length;
	long status;
	int error;
	uint8_t kind; /* enum http_kind */
	bool create;
	char why[WHY_MAX];
};

struct neap_http {
	struct neap_backend base;
	struct neap_reactor *reactor;
	const struct neap_http_driver *driver;
	struct neap_http_session *session;
	struct neap_dependent dependent;
	struct neap_reap reap;
	struct neap_reactor_class *class_;
	struct neap_pool calls;
	struct neap_host_port server;
	size_t body_bytes;
	bool numeric, closing;
	char url[URL_MAX];
};

static struct http_call *call_of(const struct neap_machine *machine)
{
	return (struct http_call *)(uintptr_t)((const char *)machine - offsetof(struct http_call, machine));
}

static struct neap_http *http_of(struct neap_backend *backend)
{
	return (struct neap_http *)(void *)((char *)backend - offsetof(struct neap_http, base));
}

static struct neap_net *net_of(const struct http_call *call)
{
	return neap_reactor_net(call->http->reactor);
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

static void end_call(struct http_call *call)
{
	struct neap_http *http = call->http;
	if (call->resolution)
		net_of(call)->resolve_cancel(call->resolution);
	call->resolution = NULL;
	if (call->exchange)
		http->driver->cancel(call->exchange);
	call->exchange = NULL;
	if (call->url)
		neap_release(http->reactor, call->url, call->url_bytes);
	if (call->body)
		neap_release(http->reactor, call->body, call->body_bytes);
	http->body_bytes -= call->body_bytes;
	call->url = call->body = NULL;
	call->body_bytes = 0;
	neap_machine_end(&call->machine);
	neap_pool_give(&http->calls, call);
}

NEAP_PRINTF(3, 4) static void note(struct http_call *call, int error, const char *format, ...)
{
	va_list list;
	int n = snprintf(call->why, sizeof call->why, "%s: ", call->http->base.where);
	call->error = error;
	if (n < 0 || (size_t)n >= sizeof call->why)
		return;
	va_start(list, format);
	(void)vsnprintf(call->why + n, sizeof call->why - (size_t)n, format, list);
	va_end(list);
}

static void report(struct http_call *call, const char *value, size_t length)
{
	neap_backend_done_func *done = call->done;
	void *user = call->user;
	int error = call->error;
	char why[WHY_MAX];
	memcpy(why, call->why, sizeof why);
	end_call(call);
	done(user, error, value, length, error ? why : "");
}

/* --- facts to events ---------------------------------------------------------------------------------------------------- */

static void resolved(void *user, int error, const char *detail, const struct neap_sockaddr *addresses, uint32_t count)
{
	struct http_call *call = user;
	call->resolution = NULL;
	if (error || count == 0) {
		note(call, error ? error : NEAP_EDNS, "'%s': %s", call->http->server.host, detail ? detail : "has no address");
		neap_step(&call->machine, http_call_on_FAILED, 0);
		return;
	}
	call->address_count = count < NEAP_HTTP_ADDRESSES_MAX ? count : NEAP_HTTP_ADDRESSES_MAX;
	memcpy(call->addresses, addresses, call->address_count * sizeof *addresses);
	neap_step(&call->machine, http_call_on_RESOLVED, count);
}

static void answered(void *user, long status, const char *body, size_t length)
{
	struct http_call *call = user;
	call->exchange = NULL;
	call->status = status;
	call->answer = body;
	call->answer_length = length;
	neap_step(&call->machine, http_call_on_ANSWERED, (uint64_t)status);
}

static void failed(void *user, int error, const char *why)
{
	struct http_call *call = user;
	call->exchange = NULL;
	note(call, error, "%s", why);
	neap_step(&call->machine, http_call_on_FAILED, 0);
}

static const struct neap_http_events events = {.answered = answered, .failed = failed};

/* --- actions ---------------------------------------------------------------------------------------------------------- */

static void do_resolve(struct neap_machine *machine, uint64_t argument)
{
	struct http_call *call = call_of(machine);
	const struct neap_host_port *server = &call->http->server;
	int error = NEAP_EDNS;
	(void)argument;
	call->resolution =
		net_of(call)->resolve(net_of(call), call->http->reactor, server->host, server->port, AF_UNSPEC, resolved, call, &error);
	if (call->resolution)
		return;
	note(call, error, "'%s': %s", server->host, neap_error_text(error));
	(void)neap_post_first(machine, http_call_on_FAILED, 0);
}

/* What keeps curl from looking for the name itself. The '+' lets it forget the addresses again. */
static const char *list_addresses(const struct http_call *call, char *line, size_t size)
{
	const struct neap_host_port *server = &call->http->server;
	char text[NEAP_ADDRESS_TEXT_MAX], unheard[8];
	int at = snprintf(line, size, "+%s:%u:", server->host, server->port);
	for (uint32_t i = 0; i < call->address_count && at > 0 && (size_t)at < size; i++) {
		struct neap_host_port parts;
		if (neap_sockaddr_format(&call->addresses[i], text, sizeof text) < 0 ||
		    neap_host_port_parse(text, 0, &parts, unheard, sizeof unheard) != NEAP_OK)
			continue;
		at += snprintf(line + at, size - (size_t)at, parts.is_v6 ? "%s[%s]" : "%s%s", i ? "," : "", parts.host);
	}
	return call->address_count > 0 ? line : NULL;
}

static void do_ask(struct neap_machine *machine, uint64_t argument)
{
	static const char *const methods[] = {
		[HTTP_GET] = "GET", [HTTP_SET] = "PUT", [HTTP_REMOVE] = "DELETE", [HTTP_TOUCH] = "GET"};
	struct http_call *call = call_of(machine);
	struct neap_http *http = call->http;
	(void)argument;
	char addresses[2048];
	struct neap_http_request request = {.method = methods[call->kind],
	                                    .url = call->url,
	                                    .addresses = list_addresses(call, addresses, sizeof addresses),
	                                    .body = call->body,
	                                    .length = call->length,
	                                    .answer_max = http->base.value_max};
	call->exchange = http->driver->begin(http->session, &request, &events, call);
	if (call->exchange)
		return;
	note(call, NEAP_ENOMEM, "%s", neap_error_text(NEAP_ENOMEM));
	(void)neap_post_first(machine, http_call_on_FAILED, 0);
}

static const struct {
	long least, most;
	int error;
	const char *advice;
} statuses[] = {
	{300, 399, NEAP_EREJECTED, "it points elsewhere; give that address, redirects are not followed"},
	{401, 403, NEAP_EREJECTED, "it does not let us; credentials are not supported"},
	{413, 413, NEAP_ELIMIT, "the value is longer than it takes: raise its limit (neap-master: --http_metadata_value_max)"},
	{507, 507, NEAP_ELIMIT, "it is full"},
	{500, 599, NEAP_EAGAIN, "it is not well"},
};

/* 0 or what the status means for this request. */
static int judge(struct http_call *call)
{
	if (call->status == 200)
		return NEAP_OK;
	if (call->status == 404 && call->kind == HTTP_REMOVE)
		return NEAP_OK;
	if (call->status == 404 && call->kind != HTTP_SET) {
		note(call, NEAP_EMETADATA, "there is no such key");
		return NEAP_EMETADATA;
	}
	if (call->status == 400 && call->create) {
		note(call, NEAP_ETAKEN, "the key has a value already");
		return NEAP_ETAKEN;
	}
	char said[80];
	neap_json_printable(call->answer ? call->answer : "", call->answer_length, said, sizeof said);
	for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
		if (call->status >= statuses[i].least && call->status <= statuses[i].most) {
			note(call, statuses[i].error, "status %ld \"%s\": %s", call->status, said, statuses[i].advice);
			return call->error;
		}
	note(call, NEAP_EPROTO, "status %ld \"%s\"; 200 is expected%s", call->status, said,
	     call->kind != HTTP_SET ? ", or 404: is this a metadata server?" : "");
	return call->error;
}

static void do_deliver(struct neap_machine *machine, uint64_t argument)
{
	struct http_call *call = call_of(machine);
	(void)argument;
	int error = judge(call);
	bool value = !error && call->kind == HTTP_GET;
	report(call, value ? call->answer : NULL, value ? call->answer_length : 0);
}

static void do_fail(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	report(call_of(machine), NULL, 0);
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct http_call *call = call_of(machine);
	(void)argument;
	note(call, NEAP_ETIMEDOUT, "%s within %" PRIu64 " ms", call->resolution ? "no name server answered" : "no whole answer",
	     (call->deadline_ns - call->began_ns) / 1000000);
	report(call, NULL, 0);
}

static neap_action_func *const actions[] = {
	[http_call_do_resolve] = do_resolve, [http_call_do_ask] = do_ask,         [http_call_do_deliver] = do_deliver,
	[http_call_do_fail] = do_fail,       [http_call_do_give_up] = do_give_up,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)timeout_class;
	(void)now_ns;
	return call_of(machine)->deadline_ns;
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)event;
	note(call_of(machine), NEAP_EINTERNAL, "%s", neap_error_text(NEAP_EINTERNAL));
	report(call_of(machine), NULL, 0);
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_http_call,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct http_call),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- operations --------------------------------------------------------------------------------------------------------- */

static bool write_url(struct http_call *call, const char *key)
{
	struct neap_http *http = call->http;
	size_t base = strlen(http->url), need = base + 5 + 3 * strlen(key) + 1;
	call->url = neap_allocate(http->reactor, need);
	if (!call->url)
		return false;
	call->url_bytes = need;
	memcpy(call->url, http->url, base);
	memcpy(call->url + base, "?key=", 5);
	return neap_http_escape(key, call->url + base + 5, need - base - 5) > 0;
}

/* Bodies end without the newline that documents have elsewhere. */
static bool copy_body(struct http_call *call, const char *value, size_t length)
{
	struct neap_http *http = call->http;
	call->length = length > 0 && value[length - 1] == '\n' ? length - 1 : length;
	call->body = neap_allocate(http->reactor, call->length + 1);
	if (!call->body)
		return false;
	call->body_bytes = call->length + 1;
	http->body_bytes += call->body_bytes;
	memcpy(call->body, value, call->length);
	return true;
}

static int begin(struct neap_http *http, enum http_kind what, const char *key, uint64_t timeout_ns, neap_backend_done_func *done,
                 void *user, struct http_call **call_p)
{
	size_t length = strnlen(key, NEAP_BACKEND_KEY_MAX);
	uint64_t now_ns = neap_now(http->reactor);
	if (http->closing)
		return NEAP_ECLOSED;
	if (length == 0 || length == NEAP_BACKEND_KEY_MAX)
		return length ? NEAP_ELIMIT : NEAP_EINVAL;
	struct http_call *call = neap_pool_take(&http->calls);
	if (!call)
		return NEAP_EAGAIN;
	struct neap_machine machine = call->machine; /* its generation goes on */
	*call = (struct http_call){.machine = machine, .http = http, .done = done, .user = user, .kind = (uint8_t)what, .began_ns = now_ns};
	call->deadline_ns = timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX - 1;
	neap_machine_begin(&call->machine, &http->class_->class_);
	*call_p = call;
	if (write_url(call, key))
		return NEAP_OK;
	end_call(call);
	return NEAP_ENOMEM;
}

static int start(struct http_call *call, uint64_t *call_p)
{
	struct neap_http *http = call->http;
	*call_p = neap_pool_handle(&http->calls, call);
	(void)neap_post(&call->machine, http->numeric ? http_call_on_NUMERIC : http_call_on_NAME, call->kind);
	neap_reactor_touch(http->reactor);
	return NEAP_OK;
}

static int ask(struct neap_backend *backend, enum http_kind what, const char *key, uint64_t timeout_ns, neap_backend_done_func *done,
               void *user, uint64_t *call_p)
{
	struct http_call *call;
	int error = begin(http_of(backend), what, key, timeout_ns, done, user, &call);
	return error ? error : start(call, call_p);
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
	struct http_call *call;
	if (set->lease_ns)
		return NEAP_EINVAL;
	if (set->length > backend->value_max)
		return NEAP_ELIMIT;
	if (set->length + 1 > BODY_BYTES_MAX - http->body_bytes)
		return NEAP_EAGAIN;
	int error = begin(http, HTTP_SET, set->key, timeout_ns, done, user, &call);
	if (error)
		return error;
	call->create = set->create;
	if (copy_body(call, set->value, set->length))
		return start(call, call_p);
	end_call(call);
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
	struct http_call *call = neap_pool_find(&http_of(backend)->calls, handle);
	if (call)
		end_call(call);
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
	struct neap_reactor *reactor = http->reactor;
	if (http->session)
		http->driver->close(http->session);
	neap_pool_destroy(&http->calls);
	neap_release(reactor, http, sizeof *http);
}

static void reap_http(struct neap_reap *reap)
{
	struct neap_http *http = (struct neap_http *)(void *)((char *)reap - offsetof(struct neap_http, reap));
	neap_reactor_detach(http->reactor, &http->dependent);
	release_http(http);
}

static void http_destroy(struct neap_backend *backend)
{
	struct neap_http *http = http_of(backend);
	struct http_call *call;
	uint32_t index = 0;
	if (http->closing)
		return;
	http->closing = true;
	while ((call = neap_pool_next(&http->calls, &index)) != NULL)
		end_call(call);
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
	char authority[NEAP_ADDRESS_TEXT_MAX], reason[160];
	struct neap_sockaddr numeric;
	bool tls = strncmp(url, "https://", 8) == 0;
	const char *rest = strstr(url, "://");
	size_t host_length = rest ? strcspn(rest + 3, "/?#") : 0;
	if (!rest || strlen(url) >= URL_MAX || host_length >= sizeof authority || memchr(rest + 3, '@', host_length)) {
		(void)snprintf(why, why_size, "metadata 'http(s)://...' takes a host, a port and a path, at most %u bytes in all, and no user name",
		               URL_MAX - 1);
		return NEAP_EADDRESS;
	}
	if (rest[3 + host_length] && strpbrk(rest + 3 + host_length, "?# ")) {
		(void)snprintf(why, why_size, "metadata '%.128s': nothing may follow the path; \"?key=...\" is added to it", url);
		return NEAP_EADDRESS;
	}
	(void)snprintf(authority, sizeof authority, "%.*s", (int)host_length, rest + 3);
	int error = neap_host_port_parse(authority, tls ? 443 : 80, &http->server, reason, sizeof reason);
	if (error) {
		(void)snprintf(why, why_size, "metadata '%.128s': %s", url, reason);
		return error;
	}
	http->numeric = neap_sockaddr_from_numeric(http->server.host, http->server.port, &numeric) == NEAP_OK;
	http->base.local = http->numeric ? neap_sockaddr_is_loopback(&numeric) : strcmp(http->server.host, "localhost") == 0;
	(void)snprintf(http->url, sizeof http->url, "%s", url);
	(void)snprintf(http->base.where, sizeof http->base.where, "%.*s%s", (int)(rest + 3 + host_length - url), url, "");
	return NEAP_OK;
}

int neap_http_create(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                     const struct neap_http_driver *driver, char *why, size_t why_size)
{
	*backend_p = NULL;
	struct neap_http *http = neap_allocate(reactor, sizeof *http);
	if (!http)
		return NEAP_ENOMEM;
	http->reactor = reactor;
	http->driver = driver;
	http->base = (struct neap_backend){.ops = &ops, .value_max = NEAP_HTTP_VALUE_MAX};
	http->base.scheme = strncmp(options->connection, "https://", 8) == 0 ? "https" : "http";
	int error = parse(http, options->connection, why, why_size);
	if (!error && (error = neap_reactor_class_of(reactor, &kind, &http->class_)) == 0)
		error = neap_pool_create(&http->calls, reactor, sizeof(struct http_call),
		                         options->calls_max ? options->calls_max : CALLS_DEFAULT);
	if (!error && (error = driver->open(driver, reactor, options->ca_file, &http->session)) != 0)
		(void)snprintf(why, why_size, "curl does not start: %s", neap_error_text(error));
	if (error) {
		release_http(http);
		return error;
	}
	http->dependent.what = "an HTTP back-end";
	neap_reactor_attach(reactor, &http->dependent);
	*backend_p = &http->base;
	return NEAP_OK;
}

/* A certificate file that cannot be used stops the start: there is no falling back to others. */
int neap_http_open(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                   char *why, size_t why_size)
{
	*backend_p = NULL;
	if (options->ca_file && options->ca_file[0] && access(options->ca_file, R_OK) != 0) {
		(void)snprintf(why, why_size, "metadata_ca_file '%.200s' cannot be read", options->ca_file);
		return NEAP_EINVAL;
	}
	return neap_http_create(backend_p, reactor, options, neap_http_curl(), why, why_size);
}
