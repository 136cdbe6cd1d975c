#include "tests/support/sim_http_server.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_NS UINT64_C(1500000000) /* as the driver over curl has it */
#define WORDS_MAX 4

enum { TAG_WHOLE, TAG_PART };

/* --- what it answers ----------------------------------------------------------------------------------------------------------- */

static struct sim_message *status(int64_t number, const char *text)
{
	return sim_message_text(0, number, text);
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static void unescape(const char *text, char *key, size_t size)
{
	size_t at = 0;
	for (; *text && at + 1 < size; text++) {
		bool escaped = *text == '%' && hex_digit(text[1]) >= 0 && hex_digit(text[2]) >= 0;
		key[at++] = escaped ? (char)(hex_digit(text[1]) * 16 + hex_digit(text[2])) : *text;
		text += escaped ? 2 : 0;
	}
	key[at] = '\0';
}

static struct sim_message *put(struct sim_http_server *http, const char *key, const struct sim_http_asked *asked)
{
	const struct sim_key *at = strstr(key, "rpc_meta") ? sim_keys_find(&http->keys, key) : NULL;
	bool same = at && at->length == asked->length && memcmp(at->value, asked->body, asked->length) == 0;
	if (at && !(same && http->same_is_fine))
		return status(400, "Duplicate rpc_meta key not allowed");
	sim_keys_set(&http->keys, key, asked->body, asked->length, 0);
	return status(200, "metadata updated");
}

struct sim_message *sim_http_metadata(struct sim_http_server *http, const struct sim_http_asked *asked)
{
	char key[NEAP_BACKEND_KEY_MAX];
	const char *query = strstr(asked->url, "/metadata?key=");
	if (http->refusal)
		return status(http->refusal, "not now");
	if (!query)
		return status(400, "no key");
	unescape(query + strlen("/metadata?key="), key, sizeof key);
	const struct sim_key *at = sim_keys_find(&http->keys, key);
	if (strcmp(asked->method, "PUT") == 0)
		return put(http, key, asked);
	if (!at)
		return status(404, "metadata not found");
	if (strcmp(asked->method, "GET") == 0)
		return sim_message_create(0, 200, 1, (const char *const[]){at->value}, &at->length);
	(void)sim_keys_remove(&http->keys, key);
	return status(200, "metadata deleted");
}

/* --- the server's end ---------------------------------------------------------------------------------------------------------- */

static void accepted(struct sim_server *server, struct sim_line *line)
{
	(void)server, (void)line;
}

static void received(struct sim_server *server, struct sim_line *line, const struct sim_message *message)
{
	struct sim_http_server *http = (struct sim_http_server *)server;
	struct sim_http_asked asked = {.method = message->words[0], .url = message->words[1]};
	if (message->count > 2) {
		asked.body = message->words[2];
		asked.length = message->lengths[2];
	}
	asked.token = message->count > 3 ? message->words[3] : NULL;
	asked.line = line;
	http->requests++;
	struct sim_message *answer = http->answer(http, &asked);
	if (answer)
		sim_line_answer(line, answer);
}

static void gone(struct sim_server *server, struct sim_line *line)
{
	struct sim_http_server *http = (struct sim_http_server *)server;
	if (http->gone)
		http->gone(http, line);
}

struct sim_message *sim_http_part(long status, const char *bytes, size_t length)
{
	return sim_message_create(TAG_PART, status, 1, &bytes, &length);
}

static const struct sim_service service = {.accepted = accepted, .received = received, .gone = gone};

void sim_http_server_init(struct sim_http_server *http, struct sim *sim, sim_http_answer_func *answer)
{
	*http = (struct sim_http_server){.keys = {.sim = sim}, .answer = answer, .kept_per_mille = 600};
	sim_server_init(&http->server, sim, &service);
	http->same_is_fine = sim_random_chance(&sim->random[SIM_NET], 500);
}

void sim_http_server_release(struct sim_http_server *http)
{
	sim_server_release(&http->server);
	sim_keys_release(&http->keys);
}

/* --- the driver ---------------------------------------------------------------------------------------------------------------- */

struct neap_http_session {
	struct sim_http_server *http; /* the first */
	struct sim_node *node;
	struct neap_reactor *reactor;
};

struct neap_http_exchange {
	struct neap_http_session *session;
	struct sim_http_server *http;
	struct sim_line *line; /* NULL: it has ended */
	struct neap_timer connecting;
	const struct neap_http_events *events;
	void *user;
	bool kept; /* the connection: it is tried again when that turns out to be gone */
	int count;
	size_t lengths[WORDS_MAX];
	char *words[WORDS_MAX];
};

static void release_exchange(struct neap_http_exchange *exchange)
{
	neap_timer_cancel(exchange->session->reactor, &exchange->connecting);
	if (exchange->line)
		sim_line_close(exchange->line);
	for (int i = 0; i < exchange->count; i++)
		free(exchange->words[i]);
	exchange->http->exchanges--;
	free(exchange);
}

static void fail(struct neap_http_exchange *exchange, int error, const char *why)
{
	const struct neap_http_events *events = exchange->events;
	void *user = exchange->user;
	release_exchange(exchange);
	events->failed(user, error, why);
}

static void opened(void *user)
{
	struct neap_http_exchange *exchange = user;
	neap_timer_cancel(exchange->session->reactor, &exchange->connecting);
}

static void arrived(void *user, const struct sim_message *message)
{
	struct neap_http_exchange *exchange = user;
	const struct neap_http_events *events = exchange->events;
	void *to = exchange->user;
	if (message->tag == TAG_PART) {
		exchange->kept = false; /* it has answered: nothing is repeated */
		events->received(to, (long)message->number, message->words[0], message->lengths[0]);
		return;
	}
	release_exchange(exchange);
	events->answered(to, (long)message->number, message->count ? message->words[0] : "", message->count ? message->lengths[0] : 0);
}

static void connect_line(struct neap_http_exchange *exchange);

static void ended(void *user, const char *why)
{
	struct neap_http_exchange *exchange = user;
	exchange->line = NULL;
	if (exchange->kept) {
		exchange->kept = false;
		exchange->http->server.repeated++;
		connect_line(exchange);
	} else {
		fail(exchange, strcmp(why, "Connection refused") == 0 ? NEAP_ESOCKET : NEAP_EPEER, why);
	}
}

static void connect_timed_out(struct neap_timer *timer, void *user)
{
	(void)timer;
	fail(user, NEAP_ESOCKET, "Connection timed out");
}

static const struct sim_line_events line_events = {.opened = opened, .arrived = arrived, .ended = ended};

/* The request goes behind the first message of the line, as if the connection were there already. */
static void connect_line(struct neap_http_exchange *exchange)
{
	struct neap_http_session *session = exchange->session;
	exchange->line = sim_line_open(&exchange->http->server, session->node, &line_events, exchange);
	sim_line_say(exchange->line, sim_message_create(0, 0, exchange->count, (const char *const *)exchange->words, exchange->lengths));
	(void)neap_timer_start(session->reactor, &exchange->connecting, neap_now(session->reactor) + CONNECT_NS, connect_timed_out, exchange);
}

static void keep_word(struct neap_http_exchange *exchange, const char *word, size_t length)
{
	char *copy = malloc(length + 1);
	if (!copy)
		abort();
	memcpy(copy, word, length);
	copy[length] = '\0';
	exchange->words[exchange->count] = copy;
	exchange->lengths[exchange->count++] = length;
}

static struct sim_http_server *server_of(struct sim_http_server *http, const char *url)
{
	while (http->next && http->at && strncmp(url, http->at, strlen(http->at)) != 0)
		http = http->next;
	return http;
}

static struct neap_http_exchange *do_begin(struct neap_http_session *session, const struct neap_http_request *request,
                                           const struct neap_http_events *events, void *user)
{
	struct neap_http_exchange *exchange = calloc(1, sizeof *exchange);
	struct sim_http_server *http = server_of(session->http, request->url);
	if (!exchange)
		abort();
	exchange->session = session;
	exchange->http = http;
	exchange->events = events;
	exchange->user = user;
	exchange->kept = sim_random_chance(&http->server.sim->random[SIM_NET], http->kept_per_mille);
	keep_word(exchange, request->method, strlen(request->method));
	keep_word(exchange, request->url, strlen(request->url));
	if (request->body || request->token)
		keep_word(exchange, request->body ? request->body : "", request->body ? request->length : 0);
	if (request->token)
		keep_word(exchange, request->token, strlen(request->token));
	http->exchanges++;
	connect_line(exchange);
	return exchange;
}

static int do_open(const struct neap_http_driver *base, struct neap_reactor *reactor, const struct neap_http_files *files,
                   struct neap_http_session **session_p)
{
	const struct sim_http_driver *driver = (const struct sim_http_driver *)base;
	(void)files;
	*session_p = calloc(1, sizeof **session_p);
	if (!*session_p)
		abort();
	**session_p = (struct neap_http_session){.http = driver->http, .node = driver->node, .reactor = reactor};
	return NEAP_OK;
}

static void do_close(struct neap_http_session *session)
{
	free(session);
}

void sim_http_driver_init(struct sim_http_driver *driver, struct sim_http_server *http, struct sim_node *node)
{
	*driver = (struct sim_http_driver){
		.driver = {.open = do_open, .begin = do_begin, .cancel = release_exchange, .close = do_close}, .http = http, .node = node};
}
