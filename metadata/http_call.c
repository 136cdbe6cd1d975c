/* Requests over HTTP. Every way out takes the call apart first and tells its owner last, so that the owner may ask again, cancel others or
 * close the caller. */
#include "metadata/http.h"
#include "metadata/http_call_fsm.h"
#include "reactor/pool.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WHY_MAX 320u

struct http_call {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_http_caller *caller;
	struct neap_http_ask ask;
	struct neap_resolution *resolution;
	struct neap_http_exchange *exchange;
	struct neap_sockaddr addresses[NEAP_HTTP_ADDRESSES_MAX];
	uint32_t address_count;
	uint64_t deadline_ns;
	const char *answer; /* while its machine is told of it */
	size_t answer_length;
	long status;
	int error;
	char why[WHY_MAX];
};

struct neap_http_caller {
	struct neap_reactor *reactor;
	const struct neap_http_driver *driver;
	struct neap_http_session *session;
	struct neap_reactor_class *class_;
	struct neap_dependent dependent;
	struct neap_reap reap;
	struct neap_pool calls;
	bool closing;
};

static struct http_call *call_of(const struct neap_machine *machine)
{
	return (struct http_call *)(uintptr_t)((const char *)machine - offsetof(struct http_call, machine));
}

static struct neap_net *net_of(const struct http_call *call)
{
	return neap_reactor_net(call->caller->reactor);
}

/* --- life ------------------------------------------------------------------------------------------------------------- */

static void end_call(struct http_call *call)
{
	struct neap_http_caller *caller = call->caller;
	if (call->resolution)
		net_of(call)->resolve_cancel(call->resolution);
	call->resolution = NULL;
	if (call->exchange)
		caller->driver->cancel(call->exchange);
	call->exchange = NULL;
	neap_machine_end(&call->machine);
	neap_pool_give(&caller->calls, call);
}

NEAP_PRINTF(3, 4) static void note(struct http_call *call, int error, const char *format, ...)
{
	va_list list;
	call->error = error;
	va_start(list, format);
	(void)vsnprintf(call->why, sizeof call->why, format, list);
	va_end(list);
}

static void report(struct http_call *call, long status, const char *body, size_t length)
{
	struct neap_http_ask ask = call->ask;
	int error = call->error;
	char why[WHY_MAX];
	memcpy(why, call->why, sizeof why);
	end_call(call);
	ask.done(ask.user, error, status, body, length, error ? why : "");
}

/* --- facts to events ---------------------------------------------------------------------------------------------------- */

static void resolved(void *user, int error, const char *detail, const struct neap_sockaddr *addresses, uint32_t count)
{
	struct http_call *call = user;
	call->resolution = NULL;
	if (error || count == 0) {
		note(call, error ? error : NEAP_EDNS, "'%s': %s", call->ask.server->at.host, detail ? detail : "has no address");
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

static void received(void *user, long status, const char *bytes, size_t length)
{
	struct http_call *call = user;
	call->ask.received(call->ask.user, status, bytes, length);
}

static const struct neap_http_events events = {.answered = answered, .failed = failed, .received = received};

/* --- actions ---------------------------------------------------------------------------------------------------------- */

static void do_resolve(struct neap_machine *machine, uint64_t argument)
{
	struct http_call *call = call_of(machine);
	const struct neap_host_port *server = &call->ask.server->at;
	int error = NEAP_EDNS;
	(void)argument;
	call->resolution =
		net_of(call)->resolve(net_of(call), call->caller->reactor, server->host, server->port, AF_UNSPEC, resolved, call, &error);
	if (call->resolution)
		return;
	note(call, error, "'%s': %s", server->host, neap_error_text(error));
	(void)neap_post_first(machine, http_call_on_FAILED, 0);
}

/* What keeps curl from looking for the name itself. The '+' lets it forget the addresses again. */
static const char *list_addresses(const struct http_call *call, char *line, size_t size)
{
	const struct neap_host_port *server = &call->ask.server->at;
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
	struct http_call *call = call_of(machine);
	const struct neap_http_ask *ask = &call->ask;
	(void)argument;
	char addresses[2048];
	struct neap_http_request request = {.method = ask->method,
	                                    .url = ask->url,
	                                    .addresses = list_addresses(call, addresses, sizeof addresses),
	                                    .body = ask->body,
	                                    .length = ask->length,
	                                    .token = ask->token,
	                                    .answer_max = ask->answer_max,
	                                    .streams = ask->received != NULL};
	call->exchange = call->caller->driver->begin(call->caller->session, &request, &events, call);
	if (call->exchange)
		return;
	note(call, NEAP_ENOMEM, "%s", neap_error_text(NEAP_ENOMEM));
	(void)neap_post_first(machine, http_call_on_FAILED, 0);
}

static void do_deliver(struct neap_machine *machine, uint64_t argument)
{
	struct http_call *call = call_of(machine);
	(void)argument;
	report(call, call->status, call->answer, call->answer_length);
}

static void do_fail(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	report(call_of(machine), 0, NULL, 0);
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct http_call *call = call_of(machine);
	(void)argument;
	note(call, NEAP_ETIMEDOUT, "%s within %" PRIu64 " ms", call->resolution ? "no name server answered" : "no whole answer",
	     call->ask.timeout_ns / 1000000);
	report(call, 0, NULL, 0);
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
	report(call_of(machine), 0, NULL, 0);
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_http_call,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct http_call),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls ---------------------------------------------------------------------------------------------------------------- */

int neap_http_ask(struct neap_http_caller *caller, const struct neap_http_ask *ask, uint64_t *call_p)
{
	uint64_t now_ns = neap_now(caller->reactor);
	struct http_call *call = caller->closing ? NULL : neap_pool_take(&caller->calls);
	if (!call)
		return caller->closing ? NEAP_ECLOSED : NEAP_EAGAIN;
	struct neap_machine machine = call->machine; /* its generation goes on */
	*call = (struct http_call){.machine = machine, .caller = caller, .ask = *ask};
	call->deadline_ns = ask->timeout_ns < UINT64_MAX - now_ns ? now_ns + ask->timeout_ns : UINT64_MAX - 1;
	neap_machine_begin(&call->machine, &caller->class_->class_);
	*call_p = neap_pool_handle(&caller->calls, call);
	(void)neap_post(&call->machine, ask->server->numeric ? http_call_on_NUMERIC : http_call_on_NAME, 0);
	neap_reactor_touch(caller->reactor);
	return NEAP_OK;
}

void neap_http_cancel(struct neap_http_caller *caller, uint64_t handle)
{
	struct http_call *call = neap_pool_find(&caller->calls, handle);
	if (call)
		end_call(call);
}

static void release_caller(struct neap_http_caller *caller)
{
	struct neap_reactor *reactor = caller->reactor;
	if (caller->session)
		caller->driver->close(caller->session);
	neap_pool_destroy(&caller->calls);
	neap_release(reactor, caller, sizeof *caller);
}

static void reap_caller(struct neap_reap *reap)
{
	struct neap_http_caller *caller = (struct neap_http_caller *)(void *)((char *)reap - offsetof(struct neap_http_caller, reap));
	neap_reactor_detach(caller->reactor, &caller->dependent);
	release_caller(caller);
}

void neap_http_caller_close(struct neap_http_caller *caller)
{
	struct http_call *call;
	uint32_t index = 0;
	if (!caller || caller->closing)
		return;
	caller->closing = true;
	while ((call = neap_pool_next(&caller->calls, &index)) != NULL)
		end_call(call);
	caller->reap.reap = reap_caller;
	neap_reap_later(caller->reactor, &caller->reap);
}

int neap_http_caller_open(struct neap_http_caller **caller_p, struct neap_reactor *reactor, const struct neap_http_driver *driver,
                          const struct neap_http_files *files, uint32_t calls_max)
{
	*caller_p = NULL;
	struct neap_http_caller *caller = neap_allocate(reactor, sizeof *caller);
	if (!caller)
		return NEAP_ENOMEM;
	caller->reactor = reactor;
	caller->driver = driver;
	int error = neap_reactor_class_of(reactor, &kind, &caller->class_);
	if (!error)
		error = neap_pool_create(&caller->calls, reactor, sizeof(struct http_call), calls_max);
	if (!error)
		error = driver->open(driver, reactor, files, &caller->session);
	if (error) {
		release_caller(caller);
		return error;
	}
	caller->dependent.what = "HTTP requests";
	neap_reactor_attach(reactor, &caller->dependent);
	*caller_p = caller;
	return NEAP_OK;
}

/* --- addresses and files --------------------------------------------------------------------------------------------------- */

int neap_http_server_parse(const char *what, const char *url, size_t url_max, uint16_t http_port, struct neap_http_server *server,
                           char *why, size_t why_size)
{
	char authority[NEAP_ADDRESS_TEXT_MAX], reason[160];
	struct neap_sockaddr numeric;
	bool tls = strncmp(url, "https://", 8) == 0;
	const char *rest = strstr(url, "://");
	size_t host_length = rest ? strcspn(rest + 3, "/?#") : 0;
	if (!rest || strlen(url) >= url_max || host_length >= sizeof authority || strchr(rest, '@')) { /* a password may have a slash in it */
		(void)snprintf(why, why_size, "%s 'http(s)://...' takes a host, a port and a path, at most %zu bytes in all, and no user name",
		               what, url_max - 1);
		return NEAP_EADDRESS;
	}
	(void)snprintf(authority, sizeof authority, "%.*s", (int)host_length, rest + 3);
	int error = neap_host_port_parse(authority, tls && http_port == 80 ? 443 : http_port, &server->at, reason, sizeof reason);
	if (error) {
		(void)snprintf(why, why_size, "%s '%.128s': %s", what, url, reason);
		return error;
	}
	server->numeric = neap_sockaddr_from_numeric(server->at.host, server->at.port, &numeric) == NEAP_OK;
	server->local = server->numeric ? neap_sockaddr_is_loopback(&numeric) : strcmp(server->at.host, "localhost") == 0;
	server->base_length = (size_t)(rest + 3 - url) + host_length;
	return NEAP_OK;
}

int neap_http_files_check(const struct neap_http_files *files, char *why, size_t why_size)
{
	const struct {
		const char *option, *path;
	} rows[] = {{"metadata_ca_file", files->ca}, {"metadata_certificate_file", files->certificate}, {"metadata_key_file", files->key}};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (rows[i].path && rows[i].path[0] && access(rows[i].path, R_OK) != 0) {
			(void)snprintf(why, why_size, "%s '%.200s' cannot be read", rows[i].option, rows[i].path);
			return NEAP_EINVAL;
		}
	return NEAP_OK;
}
