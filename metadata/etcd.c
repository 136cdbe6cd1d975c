/* The etcd back-end: its members, its operations, and what its machines have in common. */
#include "metadata/etcd.h"
#include "metadata/etcd_inside.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_DEFAULT 2379u
#define CALLS_DEFAULT 4096u
#define VALUE_BYTES_MAX ((size_t)64 << 20) /* held for all calls */

static struct neap_etcd *etcd_of(struct neap_backend *backend)
{
	return (struct neap_etcd *)(void *)((char *)backend - offsetof(struct neap_etcd, base));
}

/* --- members ------------------------------------------------------------------------------------------------------------ */

void etcd_endpoint_failed(struct neap_etcd *etcd, uint32_t endpoint)
{
	if (etcd->endpoint == endpoint)
		etcd->endpoint = (endpoint + 1) % etcd->endpoint_count;
}

void etcd_note(struct neap_etcd *etcd, uint32_t endpoint, struct etcd_failure *failure, int error, const char *what)
{
	failure->error = error;
	(void)snprintf(failure->why, sizeof failure->why, "%.*s: %.320s", (int)etcd->endpoints[endpoint].server.base_length,
	               etcd->endpoints[endpoint].url, what);
}

/* --- requests ----------------------------------------------------------------------------------------------------------- */

void etcd_ask_end(struct neap_etcd *etcd, struct etcd_ask *ask)
{
	if (ask->call)
		neap_http_cancel(etcd->caller, ask->call);
	if (ask->body && ask->secret)
		explicit_bzero(ask->body, strlen(ask->body));
	free(ask->body);
	ask->call = 0;
	ask->body = NULL;
}

/* Where others are left, half of the time has to do for one. */
int etcd_send(struct neap_etcd *etcd, struct etcd_ask *ask, const struct etcd_send *send)
{
	const struct etcd_endpoint *endpoint = &etcd->endpoints[etcd->endpoint];
	const char *token = send->shows_token && etcd->token.text[0] ? etcd->token.text : NULL;
	size_t length;
	etcd_ask_end(etcd, ask);
	int error = neap_json_writer_take(send->body, &ask->body, &length);
	if (error)
		return error;
	ask->secret = send->secret;
	ask->endpoint = etcd->endpoint;
	(void)snprintf(ask->url, sizeof ask->url, "%s%s", endpoint->url, send->path);
	struct neap_http_ask request = {.server = &endpoint->server,
	                                .method = "POST",
	                                .url = ask->url,
	                                .body = ask->body,
	                                .length = length,
	                                .token = token,
	                                .answer_max = NEAP_ETCD_VALUE_MAX / 3 * 4 + ETCD_ANSWER_SLACK,
	                                .timeout_ns = etcd->endpoint_count > 1 && !send->once ? send->timeout_ns / 2 : send->timeout_ns,
	                                .done = send->done,
	                                .received = send->received,
	                                .user = send->user};
	if (send->received)
		request.answer_max = 2 * request.answer_max;
	error = neap_http_ask(etcd->caller, &request, &ask->call);
	if (error)
		etcd_ask_end(etcd, ask);
	return error;
}

enum etcd_remedy etcd_judge(struct neap_etcd *etcd, uint32_t endpoint, int error, long status, const char *body, size_t length,
                            const char *why, struct etcd_failure *failure)
{
	struct etcd_refusal refusal;
	char what[320];
	if (error) {
		bool others = error != NEAP_EREJECTED || etcd->endpoint_count > 1;
		etcd_note(etcd, endpoint, failure, error, why);
		return error != NEAP_ELIMIT && error != NEAP_EINTERNAL && others ? ETCD_AGAIN : ETCD_FAIL;
	}
	etcd_refusal_read(status, body, length, &refusal);
	if (status)
		(void)snprintf(what, sizeof what, "status %ld \"%s\": %s", status, refusal.said, refusal.advice);
	else
		(void)snprintf(what, sizeof what, "\"%s\": %s", refusal.said, refusal.advice);
	etcd_note(etcd, endpoint, failure, refusal.error, what);
	return refusal.remedy;
}

static void work(struct neap_ready *ready)
{
	struct neap_etcd *etcd = (struct neap_etcd *)(void *)((char *)ready - offsetof(struct neap_etcd, work));
	if (etcd->tell_all) {
		etcd->tell_all = false;
		neap_watches_tell_all(&etcd->watches);
	}
	if (etcd->closing || !etcd->token.settled)
		return;
	etcd->token.settled = false;
	etcd_watch_token_settled(&etcd->watch);
	etcd_calls_token_settled(etcd);
}

/* --- operations ------------------------------------------------------------------------------------------------------------ */

static int begin(struct neap_backend *backend, enum etcd_kind kind, const char *key, uint64_t timeout_ns, neap_backend_done_func *done,
                 void *user, struct etcd_call **call_p)
{
	struct neap_etcd *etcd = etcd_of(backend);
	size_t length = strnlen(key, NEAP_BACKEND_KEY_MAX);
	if (etcd->closing)
		return NEAP_ECLOSED;
	if (length == 0 || length == NEAP_BACKEND_KEY_MAX)
		return length ? NEAP_ELIMIT : NEAP_EINVAL;
	struct etcd_call *call = etcd_call_take(etcd, kind, timeout_ns, done, user);
	if (!call)
		return NEAP_EAGAIN;
	memcpy(call->key, key, length + 1);
	*call_p = call;
	return NEAP_OK;
}

static int start(struct etcd_call *call, uint64_t *call_p)
{
	*call_p = neap_pool_handle(&call->etcd->calls, call);
	etcd_call_start(call);
	return NEAP_OK;
}

static int etcd_get(struct neap_backend *backend, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
                    uint64_t *call_p)
{
	struct etcd_call *call;
	int error = begin(backend, ETCD_GET, key, timeout_ns, done, user, &call);
	return error ? error : start(call, call_p);
}

static int etcd_set(struct neap_backend *backend, const struct neap_backend_set *set, uint64_t timeout_ns, neap_backend_done_func *done,
                    void *user, uint64_t *call_p)
{
	struct neap_etcd *etcd = etcd_of(backend);
	struct etcd_call *call;
	if (set->length > backend->value_max)
		return NEAP_ELIMIT;
	if (set->length > VALUE_BYTES_MAX - etcd->value_bytes)
		return NEAP_EAGAIN;
	int error = begin(backend, ETCD_SET, set->key, timeout_ns, done, user, &call);
	if (error)
		return error;
	call->lease_ns = set->lease_ns;
	call->create = set->create;
	if (set->length) {
		call->value = neap_allocate(etcd->reactor, set->length);
		if (!call->value) {
			etcd_call_end(call);
			return NEAP_ENOMEM;
		}
		memcpy(call->value, set->value, set->length);
		call->value_length = set->length;
		etcd->value_bytes += set->length;
	}
	return start(call, call_p);
}

static int etcd_remove(struct neap_backend *backend, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
                       uint64_t *call_p)
{
	struct etcd_call *call;
	int error = begin(backend, ETCD_REMOVE, key, timeout_ns, done, user, &call);
	return error ? error : start(call, call_p);
}

static int etcd_touch(struct neap_backend *backend, const char *key, uint64_t lease_ns, uint64_t timeout_ns, neap_backend_done_func *done,
                      void *user, uint64_t *call_p)
{
	struct etcd_call *call;
	int error = begin(backend, ETCD_TOUCH, key, timeout_ns, done, user, &call);
	if (error)
		return error;
	call->lease_ns = lease_ns;
	return start(call, call_p);
}

static void etcd_cancel(struct neap_backend *backend, uint64_t handle)
{
	struct etcd_call *call = neap_pool_find(&etcd_of(backend)->calls, handle);
	if (call)
		etcd_call_end(call);
}

static int etcd_watch(struct neap_backend *backend, const char *key, struct neap_backend_watch *watch)
{
	struct neap_etcd *etcd = etcd_of(backend);
	if (etcd->closing || strncmp(key, etcd->prefix, strlen(etcd->prefix)) != 0)
		return NEAP_EAGAIN;
	etcd_watch_need(&etcd->watch);
	if (!etcd->watch.tracks)
		return NEAP_EAGAIN;
	neap_watches_add(&etcd->watches, key, watch);
	return NEAP_OK;
}

static void release_text(struct neap_etcd *etcd, char *text, size_t bytes)
{
	if (!text)
		return;
	explicit_bzero(text, bytes);
	neap_release(etcd->reactor, text, bytes);
}

static void release_etcd(struct neap_etcd *etcd)
{
	neap_pool_destroy(&etcd->calls);
	release_text(etcd, etcd->username, etcd->username_bytes);
	release_text(etcd, etcd->password, etcd->password_bytes);
	neap_release(etcd->reactor, etcd, sizeof *etcd);
}

static void reap_etcd(struct neap_reap *reap)
{
	struct neap_etcd *etcd = (struct neap_etcd *)(void *)((char *)reap - offsetof(struct neap_etcd, reap));
	neap_machine_end(&etcd->token.machine);
	neap_machine_end(&etcd->watch.machine);
	neap_reactor_detach(etcd->reactor, &etcd->dependent);
	release_etcd(etcd);
}

static void etcd_destroy(struct neap_backend *backend)
{
	struct neap_etcd *etcd = etcd_of(backend);
	struct etcd_call *call;
	uint32_t index = 0;
	if (etcd->closing)
		return;
	etcd->closing = true;
	while ((call = neap_pool_next(&etcd->calls, &index)) != NULL)
		etcd_call_end(call);
	neap_watches_drop_all(&etcd->watches);
	etcd_watch_end(&etcd->watch);
	etcd_token_end(&etcd->token);
	etcd_ask_end(etcd, &etcd->token.ask);
	neap_http_caller_close(etcd->caller);
	neap_ready_cancel(etcd->reactor, &etcd->work);
	etcd->reap.reap = reap_etcd;
	neap_reap_later(etcd->reactor, &etcd->reap);
}

static const struct neap_backend_ops ops = {
	.capabilities = NEAP_BACKEND_STORES | NEAP_BACKEND_WATCHES | NEAP_BACKEND_LEASES,
	.get = etcd_get,
	.set = etcd_set,
	.remove = etcd_remove,
	.touch = etcd_touch,
	.cancel = etcd_cancel,
	.watch = etcd_watch,
	.destroy = etcd_destroy,
};

/* --- making one ------------------------------------------------------------------------------------------------------------- */

static int add_endpoint(struct neap_etcd *etcd, const char *text, size_t length, char *why, size_t why_size)
{
	struct etcd_endpoint *endpoint = &etcd->endpoints[etcd->endpoint_count];
	bool said = memmem(text, length, "://", 3) != NULL;
	char url[ETCD_URL_MAX];
	if (etcd->endpoint_count == NEAP_ETCD_ENDPOINTS_MAX || length + 8 >= sizeof url) {
		(void)snprintf(why, why_size, "metadata 'etcd://...' takes at most %u endpoints of %u bytes", NEAP_ETCD_ENDPOINTS_MAX,
		               ETCD_URL_MAX - 9);
		return NEAP_ELIMIT;
	}
	(void)snprintf(url, sizeof url, "%s%.*s", said ? "" : "http://", (int)length, text);
	bool http = strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
	int error = NEAP_OK;
	if (http)
		error = neap_http_server_parse("metadata 'etcd://...': endpoint", url, sizeof url, PORT_DEFAULT, &endpoint->server, why, why_size);
	if (error)
		return error;
	const char *rest = http ? url + endpoint->server.base_length : "";
	if (!http || rest[rest[0] == '/']) {
		(void)snprintf(why, why_size, "metadata 'etcd://...': endpoint '%.128s' must be HOST[:PORT], or https://HOST[:PORT] for TLS",
		               strchr(url, '@') ? "" : url);
		return NEAP_EADDRESS;
	}
	char address[NEAP_ADDRESS_TEXT_MAX];
	endpoint->server.at.has_port = true; /* curl does not know our default */
	if (neap_host_port_format(&endpoint->server.at, address, sizeof address) < 0)
		return NEAP_EADDRESS;
	(void)snprintf(endpoint->url, sizeof endpoint->url, "%s%s", strncmp(url, "https", 5) == 0 ? "https://" : "http://", address);
	endpoint->server.base_length = strlen(endpoint->url);
	etcd->endpoint_count++;
	return NEAP_OK;
}

static int parse(struct neap_etcd *etcd, const char *connection, char *why, size_t why_size)
{
	const char *rest = strncmp(connection, "etcd://", 7) == 0 ? connection + 7 : connection;
	int error = NEAP_OK;
	etcd->base.local = true;
	for (size_t length; *rest && !error; rest += length + (rest[length] != '\0')) {
		length = strcspn(rest, ",;");
		size_t skip = strspn(rest, " "), end = length;
		while (end > skip && rest[end - 1] == ' ')
			end--;
		if (end > skip)
			error = add_endpoint(etcd, rest + skip, end - skip, why, why_size);
		if (!error && end > skip)
			etcd->base.local = etcd->base.local && etcd->endpoints[etcd->endpoint_count - 1].server.local;
	}
	if (!error && etcd->endpoint_count == 0) {
		(void)snprintf(why, why_size, "metadata 'etcd://' names no endpoint: give HOST[:PORT], several with commas");
		error = NEAP_EADDRESS;
	}
	if (!error)
		(void)snprintf(etcd->base.where, sizeof etcd->base.where, "etcd at %.300s%s", etcd->endpoints[0].url,
		               etcd->endpoint_count > 1 ? ",..." : "");
	return error;
}

static bool copy_text(struct neap_etcd *etcd, const char *text, char **copy_p, size_t *bytes_p)
{
	*bytes_p = strlen(text) + 1;
	*copy_p = neap_allocate(etcd->reactor, *bytes_p);
	if (*copy_p)
		memcpy(*copy_p, text, *bytes_p);
	return *copy_p != NULL;
}

static int take_user(struct neap_etcd *etcd, const struct neap_backend_options *options, char *why, size_t why_size)
{
	const char *username = options->etcd_username ? options->etcd_username : "";
	const char *password = options->etcd_password ? options->etcd_password : "";
	struct neap_json_writer body;
	if (!username[0] != !password[0]) {
		(void)snprintf(why, why_size, "an etcd user needs both MC_ETCD_USERNAME (etcd_username) and MC_ETCD_PASSWORD (etcd_password)");
		return NEAP_EINVAL;
	}
	if (!username[0])
		return NEAP_OK;
	neap_json_writer_init(&body, SIZE_MAX, 256);
	bool utf8 = etcd_put_user(&body, username, password);
	neap_json_writer_drop(&body);
	if (!utf8) {
		(void)snprintf(why, why_size, "MC_ETCD_USERNAME or MC_ETCD_PASSWORD is not UTF-8, and etcd takes nothing else");
		return NEAP_EINVAL;
	}
	return copy_text(etcd, username, &etcd->username, &etcd->username_bytes) &&
	               copy_text(etcd, password, &etcd->password, &etcd->password_bytes)
	           ? NEAP_OK
	           : NEAP_ENOMEM;
}

static int make_machines(struct neap_etcd *etcd, uint32_t calls_max)
{
	int error = etcd_calls_init(etcd, calls_max);
	if (!error)
		error = etcd_token_init(&etcd->token, etcd);
	return error ? error : etcd_watch_init(&etcd->watch, etcd);
}

int neap_etcd_create(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                     const struct neap_http_driver *driver, char *why, size_t why_size)
{
	const struct neap_http_files files = {.ca = options->ca_file, .certificate = options->certificate_file, .key = options->key_file};
	uint32_t calls_max = options->calls_max ? options->calls_max : CALLS_DEFAULT;
	*backend_p = NULL;
	struct neap_etcd *etcd = neap_allocate(reactor, sizeof *etcd);
	if (!etcd)
		return NEAP_ENOMEM;
	etcd->reactor = reactor;
	etcd->work.run = work;
	etcd->base = (struct neap_backend){.ops = &ops, .scheme = "etcd", .value_max = NEAP_ETCD_VALUE_MAX};
	(void)snprintf(etcd->prefix, sizeof etcd->prefix, "%s", options->prefix && options->prefix[0] ? options->prefix : "mooncake/");
	int error = parse(etcd, options->connection, why, why_size);
	if (!error)
		error = take_user(etcd, options, why, why_size);
	if (!error)
		error = make_machines(etcd, calls_max);
	if (!error && (error = neap_http_caller_open(&etcd->caller, reactor, driver, &files, calls_max + 2)) != 0)
		(void)snprintf(why, why_size, "curl does not start: %s", neap_error_text(error));
	if (error) {
		release_etcd(etcd);
		return error;
	}
	etcd->dependent.what = "an etcd back-end";
	neap_reactor_attach(reactor, &etcd->dependent);
	*backend_p = &etcd->base;
	return NEAP_OK;
}

int neap_etcd_open(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                   char *why, size_t why_size)
{
	const struct neap_http_files files = {.ca = options->ca_file, .certificate = options->certificate_file, .key = options->key_file};
	*backend_p = NULL;
	int error = neap_http_files_check(&files, why, why_size);
	return error ? error : neap_etcd_create(backend_p, reactor, options, neap_http_curl(), why, why_size);
}
