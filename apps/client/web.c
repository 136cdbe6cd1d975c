#include "apps/client/web.h"
#include "apps/common/prometheus.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS_MAX 32u
#define FIRST_BYTES (UINT64_C(256) << 10)
#define METRICS_MAX ((size_t)4 << 20)
#define LIST_MAX ((size_t)16 << 20)
#define ROUNDS_MAX 4u

/* A request that waits for the store. */
struct web_request {
	struct client_web *web;
	struct app_http_request *request; /* NULL: canceled */
	bool used, asked, held, sending;
	void *memory; /* of the service's pool */
	uint64_t bytes;
	uint32_t rounds;
	size_t key_length;
	char key[NEAP_KEY_MAX];
	uint64_t limit, listed; /* of a list */
	struct app_text text;
};

struct client_web {
	struct app_http *http;
	struct neap_store *store;
	struct client_service *service;
	struct web_request requests[REQUESTS_MAX];
};

/* --- requests that wait ---------------------------------------------------------------------------------------------------------- */

static void canceled(void *user)
{
	((struct web_request *)user)->request = NULL;
}

static struct web_request *begin(struct client_web *web, struct app_http_request *request)
{
	for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
		struct web_request *place = &web->requests[i];
		if (place->used)
			continue;
		memset(place, 0, sizeof *place);
		place->web = web;
		place->request = request;
		place->used = true;
		app_http_on_cancel(request, canceled, place);
		return place;
	}
	app_http_say(request, 503, "%u requests are under way already; try again", REQUESTS_MAX);
	return NULL;
}

static void give_back(struct web_request *place)
{
	if (place->memory)
		client_service_return(place->web->service, place->memory, place->bytes);
	place->memory = NULL;
}

static void end(struct web_request *place)
{
	if (place->asked || place->held || place->sending)
		return;
	give_back(place);
	app_text_release(&place->text);
	place->used = false;
}

static void released(void *user)
{
	struct web_request *place = user;
	place->held = false;
	if (!place->request)
		end(place);
}

/* Its key, from the query; an answer when it is missing. */
static bool take_key(struct client_web *web, struct app_http_request *request, struct web_request **place_p)
{
	size_t length = 0;
	const char *key = app_http_argument(request, "key", &length);
	if (!key || !length || length > NEAP_KEY_MAX) {
		app_http_say(request, 400, "say which key: ?key=NAME, of 1 to %u bytes", NEAP_KEY_MAX);
		return false;
	}
	struct web_request *place = begin(web, request);
	if (!place)
		return false;
	place->key_length = length;
	memcpy(place->key, key, length);
	*place_p = place;
	return true;
}

static struct neap_key key_of(const struct web_request *place)
{
	return (struct neap_key){.bytes = place->key, .length = (uint32_t)place->key_length};
}

static unsigned http_status(int error)
{
	switch (error) {
	case NEAP_STORE_OBJECT_NOT_FOUND: return 404;
	case NEAP_STORE_OBJECT_ALREADY_EXISTS: return 409;
	case NEAP_STORE_INVALID_PARAMS:
	case NEAP_STORE_INVALID_KEY: return 400;
	case NEAP_STORE_NO_AVAILABLE_HANDLE:
	case NEAP_STORE_NO_AVAILABLE_CANDIDATE: return 507;
	case NEAP_STORE_REPLICA_IS_NOT_READY:
	case NEAP_STORE_REPLICA_IS_PROCESSING:
	case NEAP_STORE_UNAVAILABLE_IN_CURRENT_STATUS:
	case NEAP_EAGAIN: return 503;
	case NEAP_ETIMEDOUT: return 504;
	default: return 500;
	}
}

static void refuse(struct web_request *place, int error, const char *why)
{
	struct app_http_request *request = place->request;
	place->request = NULL;
	if (request)
		app_http_say(request, http_status(error), "%s: %s", neap_store_error_name(error), why && *why ? why : neap_store_error_text(error));
	end(place);
}

/* --- put --------------------------------------------------------------------------------------------------------------------------- */

static void put_done(void *user, const struct neap_store_outcome *outcome)
{
	struct web_request *place = user;
	place->asked = false;
	place->held = outcome->held;
	if (outcome->status == NEAP_STORE_UNKNOWN) {
		refuse(place, NEAP_STORE_RPC_FAIL, "whether the value was stored is not known; ask for it later");
	} else if (outcome->status != NEAP_STORE_SUCCESS) {
		refuse(place, outcome->error, outcome->why);
	} else {
		if (place->request)
			app_http_say(place->request, 200, "%s, %llu bytes", outcome->created ? "stored" : "it was there already",
			             (unsigned long long)outcome->size);
		place->request = NULL;
		end(place);
	}
}

static void on_put(void *user, struct app_http_request *request)
{
	struct client_web *web = user;
	struct web_request *place;
	size_t length = 0;
	const char *body = app_http_body(request, &length);
	if (!body || !length) {
		app_http_say(request, 400, "the body is the value, and has at least one byte");
		return;
	}
	if (!take_key(web, request, &place))
		return;
	place->bytes = length;
	place->memory = client_service_borrow(web->service, length);
	if (!place->memory) {
		refuse(place, NEAP_EAGAIN, "no buffer memory is free now (--local_buffer_size); try again");
		return;
	}
	memcpy(place->memory, body, length);
	struct neap_key key = key_of(place);
	struct neap_slice_of slice = {.address = place->memory, .length = length};
	struct neap_put_options options = {.released = released};
	int error = neap_store_put(web->store, &key, &slice, 1, &options, put_done, place, NULL);
	place->asked = !error;
	if (error)
		refuse(place, error == NEAP_EINVAL ? NEAP_STORE_INVALID_PARAMS : error, neap_error_text(error));
}

/* --- get --------------------------------------------------------------------------------------------------------------------------- */

static void get_done(void *user, const struct neap_store_outcome *outcome);

static void get(struct web_request *place, uint64_t bytes)
{
	struct client_web *web = place->web;
	place->rounds++;
	place->bytes = bytes;
	place->memory = client_service_borrow(web->service, bytes);
	if (!place->memory) {
		refuse(place, NEAP_EAGAIN, "no buffer memory is free now (--local_buffer_size); try again");
		return;
	}
	struct neap_key key = key_of(place);
	struct neap_slice_of slice = {.address = place->memory, .length = bytes};
	struct neap_get_options options = {.released = released};
	int error = neap_store_get(web->store, &key, &slice, 1, &options, get_done, place, NULL);
	place->asked = !error;
	if (error)
		refuse(place, error == NEAP_EINVAL ? NEAP_STORE_INVALID_PARAMS : error, neap_error_text(error));
}

static void sent(void *user)
{
	struct web_request *place = user;
	place->sending = false;
	end(place);
}

static void get_done(void *user, const struct neap_store_outcome *outcome)
{
	struct web_request *place = user;
	struct app_http_request *request = place->request;
	place->asked = false;
	place->held = outcome->held;
	bool longer = outcome->error == NEAP_STORE_BUFFER_OVERFLOW && outcome->size > place->bytes;
	if (!request) {
		end(place);
	} else if (outcome->status == NEAP_STORE_SUCCESS && !outcome->held) {
		place->request = NULL;
		place->sending = true;
		app_http_answer_from(request, 200, "application/octet-stream", place->memory, outcome->size, sent, place);
	} else if (longer && outcome->size > CLIENT_WEB_VALUE_MAX) {
		place->request = NULL;
		app_http_say(request, 413, "the value has %llu bytes, more than goes over HTTP (16 MiB); use `neap-client get`",
		             (unsigned long long)outcome->size);
		end(place);
	} else if (longer && !outcome->held && place->rounds < ROUNDS_MAX) {
		give_back(place);
		get(place, outcome->size);
	} else {
		refuse(place, outcome->error, outcome->why);
	}
}

static void on_get(void *user, struct app_http_request *request)
{
	struct web_request *place;
	if (take_key(user, request, &place))
		get(place, FIRST_BYTES);
}

/* --- keys --------------------------------------------------------------------------------------------------------------------------- */

static void removed(void *user, int error, uint64_t count, const char *why)
{
	struct web_request *place = user;
	place->asked = false;
	if (error) {
		refuse(place, error, why);
		return;
	}
	if (place->request)
		app_http_say(place->request, 200, "%llu", (unsigned long long)count);
	place->request = NULL;
	end(place);
}

static void on_remove(void *user, struct app_http_request *request)
{
	struct client_web *web = user;
	struct web_request *place;
	if (!take_key(web, request, &place))
		return;
	struct neap_key key = key_of(place);
	int error = neap_store_remove(web->store, &key, 0, removed, place);
	place->asked = !error;
	if (error)
		refuse(place, error, neap_error_text(error));
}

static void listed(void *user, int error, const struct neap_key *keys, uint32_t count, uint64_t next, const char *why)
{
	struct web_request *place = user;
	place->asked = false;
	if (error || !place->request) {
		refuse(place, error, why);
		return;
	}
	for (uint32_t i = 0; i < count && place->listed < place->limit; i++) {
		app_text_puts(&place->text, place->listed++ ? ",\n" : "[");
		app_text_json(&place->text, keys[i].bytes, keys[i].length);
	}
	if (next && place->listed < place->limit && !place->text.full) {
		error = neap_store_list(place->web->store, "", next, 0, listed, place);
		place->asked = !error;
		if (error)
			refuse(place, error, neap_error_text(error));
		return;
	}
	app_text_puts(&place->text, place->listed ? "]\n" : "[]\n");
	struct app_http_request *request = place->request;
	place->request = NULL;
	app_http_answer_text(request, 200, APP_HTTP_JSON, &place->text);
	end(place);
}

static void on_list(void *user, struct app_http_request *request)
{
	struct client_web *web = user;
	size_t length = 0;
	const char *text = app_http_argument(request, "limit", &length);
	uint64_t limit = 10000;
	if (text) {
		char *rest;
		errno = 0;
		limit = strtoull(text, &rest, 10);
		if (errno || *rest || rest != text + length || *text == '-' || !limit) {
			app_http_say(request, 400, "limit=%s is not valid; allowed: a number of 1 or more", text);
			return;
		}
	}
	struct web_request *place = begin(web, request);
	if (!place)
		return;
	place->limit = limit;
	place->text.max = LIST_MAX;
	int error = neap_store_list(web->store, "", 0, 0, listed, place);
	place->asked = !error;
	if (error)
		refuse(place, error, neap_error_text(error));
}

static void on_count(void *user, struct app_http_request *request)
{
	struct neap_store_numbers numbers;
	neap_store_numbers(((struct client_web *)user)->store, &numbers);
	app_http_say(request, 200, "%llu", (unsigned long long)numbers.keys);
}

/* --- figures ------------------------------------------------------------------------------------------------------------------------- */

static void add(struct app_prometheus *out, const char *name, const char *help, enum neap_metric_kind kind, uint64_t value)
{
	struct neap_metric metric = {.name = name, .help = help, .labels = "", .kind = kind, .value = value};
	app_prometheus_add(out, &metric);
}

static void add_service(struct app_prometheus *out, const struct client_service *service)
{
	struct client_service_stats s;
	client_service_stats(service, &s);
	add(out, "neap_local_puts_total", "values taken from local processes", NEAP_METRIC_COUNTER, s.puts);
	add(out, "neap_local_gets_total", "values given to local processes", NEAP_METRIC_COUNTER, s.gets);
	add(out, "neap_local_in_bytes_total", "bytes of them that came in", NEAP_METRIC_COUNTER, s.bytes_in);
	add(out, "neap_local_out_bytes_total", "bytes of them that went out", NEAP_METRIC_COUNTER, s.bytes_out);
	add(out, "neap_local_refused_total", "calls refused because too many were under way", NEAP_METRIC_COUNTER, s.refused_busy);
	add(out, "neap_local_given_up_total", "values given up because their connection ended", NEAP_METRIC_COUNTER, s.given_up);
	add(out, "neap_local_idle_total", "values given up because their process left them alone", NEAP_METRIC_COUNTER, s.idle);
	add(out, "neap_local_buffer_bytes", "memory that values pass through", NEAP_METRIC_GAUGE, s.buffer_bytes);
	add(out, "neap_local_buffer_free_bytes", "of it free", NEAP_METRIC_GAUGE, s.buffer_free_bytes);
	add(out, "neap_local_transfers", "values under way", NEAP_METRIC_GAUGE, s.transfers);
	add(out, "neap_local_waiting", "of them waiting for memory", NEAP_METRIC_GAUGE, s.waiting);
	add(out, "neap_local_connections", "local connections", NEAP_METRIC_GAUGE, s.connections);
}

static void show_metrics(struct client_web *web, struct app_http_request *request, bool summary)
{
	struct app_prometheus out = {.text = {.max = METRICS_MAX}, .summary = summary};
	neap_store_metrics(web->store, app_prometheus_add, &out);
	add_service(&out, web->service);
	app_http_answer_text(request, 200, summary ? APP_HTTP_TEXT : APP_PROMETHEUS_TYPE, &out.text);
}

static void on_metrics(void *user, struct app_http_request *request)
{
	show_metrics(user, request, false);
}

static void on_summary(void *user, struct app_http_request *request)
{
	show_metrics(user, request, true);
}

/* One that drains is no target for new work; all other conditions are for people. */
static void on_health(void *user, struct app_http_request *request)
{
	enum neap_store_health health = client_service_health(((struct client_web *)user)->service);
	app_http_say(request, health == NEAP_STORE_DRAINING ? 503 : 200, "%s", neap_store_health_name(health));
}

/* --- life ---------------------------------------------------------------------------------------------------------------------------- */

static const struct app_http_route routes[] = {
	{"GET", "/metrics", on_metrics, 0},
	{"GET", "/metrics/summary", on_summary, 0},
	{"GET", "/health", on_health, 0},
	{"GET", "/get", on_get, 0},
	{"POST", "/put", on_put, CLIENT_WEB_VALUE_MAX},
	{"GET", "/get_key_count", on_count, 0},
	{"GET", "/get_all_keys", on_list, 0},
	{"POST", "/remove", on_remove, 4096},
};

int client_web_open(struct client_web **web_p, struct ev_loop *loop, struct neap_store *store, struct client_service *service,
                    uint16_t port, char *why, size_t why_size)
{
	struct client_web *web = calloc(1, sizeof *web);
	*web_p = NULL;
	if (!web) {
		snprintf(why, why_size, "out of memory");
		return -1;
	}
	web->store = store;
	web->service = service;
	struct app_http_options options = {.port = port, .routes = routes, .route_count = sizeof routes / sizeof routes[0], .user = web};
	if (app_http_open(&web->http, loop, &options, why, why_size)) {
		free(web);
		return -1;
	}
	*web_p = web;
	return 0;
}

uint16_t client_web_port(const struct client_web *web)
{
	return app_http_port(web->http);
}

void client_web_close(struct client_web *web)
{
	if (!web)
		return;
	app_http_close(web->http);
	web->http = NULL;
}

void client_web_free(struct client_web *web)
{
	if (!web)
		return;
	client_web_close(web);
	for (uint32_t i = 0; i < REQUESTS_MAX; i++)
		app_text_release(&web->requests[i].text);
	free(web);
}
