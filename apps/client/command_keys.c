/* The commands about keys, and health. */
#include "apps/client/command.h"
#include <inttypes.h>
#include <neap/store.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct neap_rpc_view view_of(const char *text)
{
	return neap_rpc_view_of(text, strlen(text));
}

/* --- rm ---------------------------------------------------------------------------------------------------------------------- */

static void on_removed(void *user, const void *reply)
{
	*(uint64_t *)user = ((const struct local_removed *)reply)->removed;
}

static int remove_matching(struct client_link *link, const struct client_asked *asked)
{
	static uint64_t count;
	struct local_remove_matching request = {.pattern = view_of(asked->all ? "" : asked->matching)};
	if (asked->all && asked->matching) {
		app_error(link->program, "--all and --matching: say one of them");
		return CLIENT_USAGE;
	}
	if (asked->list.count) {
		app_error(link->program, "%s: say keys, or --matching, or --all", asked->words[0]);
		return CLIENT_USAGE;
	}
	if (!asked->all && !*asked->matching) {
		app_error(link->program, "--matching is empty; to remove all keys say --all");
		return CLIENT_USAGE;
	}
	int result =
		client_link_ask(link, &local_method_remove_matching, &request, on_removed, &count, asked->all ? "all keys" : asked->matching);
	if (result >= 0)
		return result;
	printf("%" PRIu64 " removed\n", count);
	return client_flush(link) < 0 ? CLIENT_OK : CLIENT_FAILED;
}

int client_remove(struct client_link *link, const struct client_asked *asked)
{
	if (asked->all || asked->matching)
		return remove_matching(link, asked);
	if (!asked->list.count) {
		app_error(link->program, "which key? usage: %s %s", link->program->name, link->program->usage);
		return CLIENT_USAGE;
	}
	int worst = CLIENT_OK;
	for (size_t i = 0; i < asked->list.count; i++) {
		char what[300];
		static uint64_t count;
		struct local_key request = {.key = view_of(asked->words[i])};
		client_key_text(asked->words[i], strlen(asked->words[i]), what, sizeof what);
		int result = client_link_ask(link, &local_method_remove, &request, on_removed, &count, what);
		if (result == CLIENT_UNREACHED)
			return result;
		if (result >= 0 && worst != CLIENT_FAILED)
			worst = result;
	}
	return worst;
}

/* --- exists -------------------------------------------------------------------------------------------------------------------- */

struct existing {
	uint32_t count;
	int error;
	char found[1000];
};

static void on_exist(void *user, const void *reply)
{
	const struct local_exist_reply *exist = reply;
	struct existing *existing = user;
	existing->count = exist->found.length;
	existing->error = (int)exist->error;
	if (exist->found.length)
		memcpy(existing->found, exist->found.bytes, exist->found.length);
}

int client_exists(struct client_link *link, const struct client_asked *asked)
{
	static struct existing existing;
	static struct local_key keys[1000];
	for (size_t i = 0; i < asked->list.count; i++)
		keys[i].key = view_of(asked->words[i]);
	struct local_exist request = {.keys = {keys, (uint32_t)asked->list.count}};
	int result = client_link_ask(link, &local_method_exist, &request, on_exist, &existing, "the keys");
	if (result >= 0)
		return result;
	result = CLIENT_OK;
	for (uint32_t i = 0; i < existing.count && i < asked->list.count; i++) {
		static const char *const words[] = {"no such key", "exists", "not known now"};
		char what[300];
		printf("%s: %s\n", client_key_text(asked->words[i], strlen(asked->words[i]), what, sizeof what),
		       words[existing.found[i] > 1 ? 2 : existing.found[i]]);
		if (existing.found[i] > 1)
			result = CLIENT_FAILED;
		else if (!existing.found[i] && result == CLIENT_OK)
			result = CLIENT_NO_KEY;
	}
	if (client_flush(link) >= 0)
		return CLIENT_FAILED;
	if (result == CLIENT_FAILED)
		app_error(link->program, "the directory cannot say now (%s); try again", neap_store_error_name(existing.error));
	return result;
}

/* --- ls ------------------------------------------------------------------------------------------------------------------------- */

struct listing {
	uint64_t limit, shown, next;
	bool partial;
};

static void on_listed(void *user, const void *reply)
{
	const struct local_list_reply *list = reply;
	const struct local_key *keys = list->keys.items;
	struct listing *listing = user;
	listing->next = list->next;
	listing->partial = listing->partial || list->partial;
	for (uint32_t i = 0; i < list->keys.count && listing->shown < listing->limit; i++, listing->shown++) {
		char text[4 * NEAP_KEY_MAX + 8];
		puts(client_key_text(keys[i].key.bytes, keys[i].key.length, text, sizeof text));
	}
}

int client_list(struct client_link *link, const struct client_asked *asked)
{
	static struct listing listing;
	const char *pattern = asked->list.count ? asked->words[0] : "";
	listing = (struct listing){.limit = asked->limit ? asked->limit : UINT64_MAX};
	do {
		struct local_list request = {.pattern = view_of(pattern), .cursor = listing.next};
		int result = client_link_ask(link, &local_method_list, &request, on_listed, &listing, *pattern ? pattern : "all keys");
		if (result >= 0)
			return result;
		if (client_flush(link) >= 0)
			return CLIENT_FAILED;
	} while (listing.next && listing.shown < listing.limit);
	if (listing.partial) {
		app_error(link->program, "the master recovers and does not know all keys yet; there may be more: try again");
		return CLIENT_FAILED;
	}
	return CLIENT_OK;
}

/* --- stat ------------------------------------------------------------------------------------------------------------------------ */

static void on_stat(void *user, const void *reply)
{
	(void)user;
	const struct local_stat_reply *stat = reply;
	const struct local_replica *replicas = stat->replicas.items;
	for (uint32_t i = 0; i < stat->replicas.count; i++) {
		const struct local_replica *replica = &replicas[i];
		char crc[16] = "-";
		if (replica->has_crc)
			snprintf(crc, sizeof crc, "%08x", (unsigned)replica->crc32c);
		printf("size %" PRIu64 " owner %.*s generation %" PRIu64 " crc32c %s priority %" PRId64 " in %s%s\n", replica->size_bytes,
		       (int)replica->owner.length, replica->owner.length ? replica->owner.bytes : "", replica->generation, crc, replica->priority,
		       replica->in_memory ? "memory" : "storage", replica->local ? " here" : "");
	}
}

int client_stat(struct client_link *link, const struct client_asked *asked)
{
	char what[300];
	struct local_key request = {.key = view_of(asked->words[0])};
	client_key_text(asked->words[0], strlen(asked->words[0]), what, sizeof what);
	int result = client_link_ask(link, &local_method_stat, &request, on_stat, NULL, what);
	if (result >= 0)
		return result;
	return client_flush(link) < 0 ? CLIENT_OK : CLIENT_FAILED;
}

/* --- health ------------------------------------------------------------------------------------------------------------------------ */

/* The message's own list of fields: names and order are those on the wire. */
static void on_health(void *user, const void *reply)
{
	(void)user;
	const struct neap_rpc_message *message = &neap_rpc_message_local_health_reply;
	for (uint16_t i = 0; i < message->field_count; i++) {
		const struct neap_rpc_field *field = &message->fields[i];
		const void *at = (const char *)reply + field->offset;
		if (field->kind == NEAP_RPC_TEXT) {
			const struct neap_rpc_view *text = at;
			printf("%s %.*s\n", field->name, (int)text->length, text->length ? text->bytes : "");
		} else {
			printf("%s %" PRIu64 "\n", field->name, *(const uint64_t *)at);
		}
	}
}

int client_health(struct client_link *link, const struct client_asked *asked)
{
	(void)asked;
	int result = client_link_ask(link, &local_method_health, &(struct local_health){0}, on_health, NULL, "health");
	if (result >= 0)
		return result;
	return client_flush(link) < 0 ? CLIENT_OK : CLIENT_FAILED;
}
