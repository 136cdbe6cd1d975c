/* What people and scripts ask a master over HTTP: is it well, how many keys, which keys, where a key is. Questions go to the directory
 * as everybody's do; the request waits for the answer. */
#include "apps/master/master.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTS_MAX 2u                     /* walks over all keys at once */
#define LIST_BYTES_MAX ((size_t)64 << 20) /* of one answer */
#define PAGE_KEYS 1000u
#define PAGE_TEXT 262144u
#define QUERY_KEYS_MAX 1000u
#define QUERY_REPLICAS_MAX 8u /* of a key */

/* A question under way; the kind's own room follows. */
struct question {
	struct neap_key_call call; /* first */
	struct master *master;
	struct app_http_request *request;
	void (*cancel)(void *user);
	bool json;
};

static bool wants_json(const struct app_http_request *request)
{
	size_t length;
	const char *format = app_http_argument(request, "format", &length);
	return format && !strcmp(format, "json");
}

static void cancel(void *user)
{
	struct question *question = user;
	neap_key_cancel(neap_local_directory_face(question->master->directory), &question->call);
	question->master->lists -= question->call.op == NEAP_KEY_OP_LIST;
	free(question);
}

static struct question *ask(struct master *master, struct app_http_request *request, size_t size, enum neap_key_op op)
{
	struct question *question = calloc(1, size);
	if (!question) {
		app_http_say(request, 503, "out of memory");
		return NULL;
	}
	question->master = master;
	question->request = request;
	question->json = wants_json(request);
	question->cancel = cancel;
	question->call.op = op;
	return question;
}

static void refused(struct question *question, int error)
{
	app_http_say(question->request, 503, "the directory cannot answer now: %s", neap_store_error_text(error));
}

/* False: it was refused, and is to be freed. */
static bool begin(struct question *question)
{
	int error = neap_key_begin(neap_local_directory_face(question->master->directory), &question->call);
	question->master->questions++;
	if (!error)
		app_http_on_cancel(question->request, question->cancel, question);
	else
		refused(question, error);
	return !error;
}

/* --- health ----------------------------------------------------------------------------------------------------- */

void master_serve_health(void *user, struct app_http_request *request)
{
	struct neap_local_directory_stats stats;
	neap_local_directory_stats(((struct master *)user)->directory, &stats);
	if (!wants_json(request)) {
		app_http_say(request, 200, stats.recovering ? "RECOVERING" : "OK");
		return;
	}
	struct app_text text = {.max = 4096};
	app_text_format(&text,
	                "{\"status\":\"%s\",\"keys\":%" PRIu64 ",\"clients\":%" PRIu32 ",\"healthy_clients\":%" PRIu32
	                ",\"owing_clients\":%" PRIu32 "}\n",
	                stats.recovering ? "RECOVERING" : "OK", stats.keys, stats.clients, stats.healthy, stats.owing);
	app_http_answer_text(request, 200, APP_HTTP_JSON, &text);
}

/* --- count ------------------------------------------------------------------------------------------------------ */

static void counted(struct neap_key_call *call, int error)
{
	struct question *question = (struct question *)(void *)call;
	const struct neap_key_count *count = &call->as.count;
	struct app_text text = {.max = 4096};
	if (error) {
		refused(question, error);
	} else if (question->json) {
		app_text_format(&text, "{\"keys\":%" PRIu64 ",\"replicas\":%" PRIu64 ",\"complete\":%s}\n", count->keys, count->replicas,
		                count->complete ? "true" : "false");
		app_http_answer_text(question->request, 200, APP_HTTP_JSON, &text);
	} else {
		app_http_say(question->request, 200, "%" PRIu64, count->keys);
	}
	free(question);
}

void master_serve_key_count(void *user, struct app_http_request *request)
{
	struct question *question = ask(user, request, sizeof *question, NEAP_KEY_OP_COUNT);
	if (!question)
		return;
	question->call.done = counted;
	if (!begin(question))
		free(question);
}

/* --- all keys --------------------------------------------------------------------------------------------------- */

struct key_list {
	struct question question; /* first */
	uint64_t limit, count;
	struct app_text text;
	struct neap_key_listed keys[PAGE_KEYS];
	char page[PAGE_TEXT];
};

static void free_list(struct key_list *list)
{
	list->question.master->lists--;
	app_text_release(&list->text);
	free(list);
}

static void cancel_list(void *user)
{
	struct key_list *list = user;
	app_text_release(&list->text);
	cancel(user);
}

/* A line has a key: what would end the line, or cannot be printed, is escaped, and so is the backslash. */
static void add_line(struct app_text *text, const char *key, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++) {
		unsigned char byte = (unsigned char)key[i];
		if (byte == '\\')
			app_text_puts(text, "\\\\");
		else if (byte == '\n')
			app_text_puts(text, "\\n");
		else if (byte < 0x20 || byte == 0x7f)
			app_text_format(text, "\\x%02x", byte);
		else
			app_text_add(text, key + i, 1);
	}
	app_text_puts(text, "\n");
}

static void add_page(struct key_list *list, const struct neap_key_list *page)
{
	for (uint32_t i = 0; i < page->count && list->count < list->limit; i++, list->count++) {
		const char *key = list->page + page->keys[i].offset;
		if (!list->question.json) {
			add_line(&list->text, key, page->keys[i].length);
			continue;
		}
		app_text_puts(&list->text, list->count ? "," : "");
		app_text_json(&list->text, key, page->keys[i].length);
	}
}

static void listed(struct neap_key_call *call, int error)
{
	struct key_list *list = (struct key_list *)(void *)call;
	struct question *question = &list->question;
	const struct neap_key_list *page = &call->as.list;
	if (!error)
		add_page(list, page);
	bool more = !error && page->cursor && list->count < list->limit && !list->text.full;
	if (more && begin(question))
		return;
	if (!more && error) {
		refused(question, error);
	} else if (!more) {
		if (question->json)
			app_text_format(&list->text, "],\"complete\":%s}\n", page->complete ? "true" : "false");
		app_http_answer_text(question->request, 200, question->json ? APP_HTTP_JSON : APP_HTTP_TEXT, &list->text);
	}
	free_list(list);
}

void master_serve_all_keys(void *user, struct app_http_request *request)
{
	struct master *master = user;
	size_t length;
	char *end = NULL;
	const char *limit = app_http_argument(request, "limit", &length);
	unsigned long long number = limit && *limit >= '0' && *limit <= '9' ? strtoull(limit, &end, 10) : 0;
	if (limit && (!number || !end || *end)) {
		app_http_say(request, 400, "limit is to be a number greater than 0");
		return;
	}
	struct key_list *list = NULL;
	if (master->lists == LISTS_MAX)
		app_http_say(request, 503, "as many lists as may be are under way, try again later");
	else
		list = (struct key_list *)(void *)ask(master, request, sizeof *list, NEAP_KEY_OP_LIST);
	if (!list)
		return;
	master->lists++;
	list->limit = limit ? number : UINT64_MAX;
	list->text.max = LIST_BYTES_MAX;
	if (list->question.json)
		app_text_puts(&list->text, "{\"keys\":[");
	list->question.call.done = listed;
	list->question.cancel = cancel_list;
	list->question.call.as.list = (struct neap_key_list){
		.pattern = {.text = ""}, .keys = list->keys, .keys_max = PAGE_KEYS, .text = list->page, .text_size = PAGE_TEXT};
	if (!begin(&list->question))
		free_list(list);
}

/* --- where keys are --------------------------------------------------------------------------------------------- */

struct key_query {
	struct question question; /* first */
	struct neap_key_read_item items[QUERY_KEYS_MAX];
	struct neap_key_replica replicas[QUERY_KEYS_MAX * QUERY_REPLICAS_MAX];
	char keys[]; /* copy of the argument */
};

static void add_replica(struct app_text *text, const struct neap_key_replica *replica)
{
	app_text_format(text,
	                "{\"client_id\":\"%016" PRIx64 "%016" PRIx64 "\",\"segment_id\":\"%016" PRIx64 "%016" PRIx64 "\",\"ip_address\":",
	                replica->client.first, replica->client.second, replica->segment.first, replica->segment.second);
	app_text_json(text, replica->host, strnlen(replica->host, sizeof replica->host));
	app_text_format(text,
	                ",\"rpc_port\":%u,\"object_size\":%" PRIu64 ",\"generation\":%" PRIu64 ",\"priority\":%" PRId32
	                ",\"memory_type\":%" PRIu32 "}",
	                (unsigned)replica->port, replica->size, replica->generation, replica->priority, replica->memory_type);
}

static void found(struct neap_key_call *call, int error)
{
	struct key_query *query = (struct key_query *)(void *)call;
	struct app_text text = {.max = LIST_BYTES_MAX};
	if (error) {
		refused(&query->question, error);
		free(query);
		return;
	}
	app_text_puts(&text, "{\"success\":true,\"data\":{");
	for (uint32_t i = 0; i < call->as.replicas.count; i++) {
		const struct neap_key_read_item *item = &query->items[i];
		app_text_puts(&text, i ? "," : "");
		app_text_json(&text, item->key.text, item->key.length);
		if (item->error) {
			app_text_format(&text, ":{\"ok\":false,\"error\":\"%s\"}", neap_store_error_name(item->error));
			continue;
		}
		app_text_puts(&text, ":{\"ok\":true,\"values\":[");
		for (uint32_t r = 0; r < item->count; r++) {
			app_text_puts(&text, r ? "," : "");
			add_replica(&text, &query->replicas[item->first + r]);
		}
		app_text_puts(&text, "]}");
	}
	app_text_puts(&text, "}}\n");
	app_http_answer_text(query->question.request, 200, APP_HTTP_JSON, &text);
	free(query);
}

/* "a,b" to items; empty ones are left out. False: too many. */
static bool split(struct key_query *query, size_t length)
{
	struct neap_key_replicas *call = &query->question.call.as.replicas;
	for (size_t at = 0; at < length;) {
		const char *comma = memchr(query->keys + at, ',', length - at);
		size_t end = comma ? (size_t)(comma - query->keys) : length;
		if (end > at) {
			if (call->count == QUERY_KEYS_MAX)
				return false;
			query->items[call->count++].key = (struct neap_key_text){.text = query->keys + at, .length = (uint32_t)(end - at)};
		}
		at = end + 1;
	}
	return true;
}

void master_serve_query_keys(void *user, struct app_http_request *request)
{
	size_t length;
	const char *keys = app_http_argument(request, "keys", &length);
	struct key_query *query =
		(struct key_query *)(void *)ask(user, request, sizeof *query + length + 1, NEAP_KEY_OP_REPLICAS);
	if (!query)
		return;
	struct neap_key_replicas *call = &query->question.call.as.replicas;
	if (keys)
		memcpy(query->keys, keys, length);
	query->question.call.done = found;
	call->config = (struct neap_key_read_config){.replicas_max = QUERY_REPLICAS_MAX, .priority_limit = INT32_MIN};
	call->items = query->items;
	call->replicas = query->replicas;
	call->replicas_max = QUERY_KEYS_MAX * QUERY_REPLICAS_MAX;
	bool fits = split(query, length);
	if (!fits || !call->count) {
		app_http_say(request, 400, "1 to %u keys are needed: /batch_query_keys?keys=a,b", QUERY_KEYS_MAX);
		free(query);
	} else if (!begin(&query->question)) {
		free(query);
	}
}
