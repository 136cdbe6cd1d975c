#include "apps/master/metadata.h"
#include "store/key_hash.h"
#include <stdlib.h>
#include <string.h>

struct entry {
	struct entry *next;
	uint32_t key_length;
	size_t value_length;
	char *value;
	char key[];
};

struct master_metadata {
	struct master_metadata_options options;
	struct master_metadata_stats stats;
	struct neap_key_secret secret;
	struct entry **buckets;
	size_t bucket_mask;
};

static struct entry **find(struct master_metadata *metadata, const char *key, size_t length)
{
	struct entry **slot = &metadata->buckets[neap_key_hash(&metadata->secret, key, (uint32_t)length) & metadata->bucket_mask];
	while (*slot && ((*slot)->key_length != length || memcmp((*slot)->key, key, length)))
		slot = &(*slot)->next;
	return slot;
}

static void forget(struct master_metadata *metadata, struct entry **slot)
{
	struct entry *entry = *slot;
	*slot = entry->next;
	metadata->stats.entries--;
	metadata->stats.bytes -= entry->key_length + entry->value_length;
	free(entry->value);
	free(entry);
}

static void get(struct master_metadata *metadata, struct app_http_request *request, const char *key, size_t length)
{
	const struct entry *entry = *find(metadata, key, length);
	metadata->stats.gets++;
	if (entry) {
		app_http_answer(request, 200, APP_HTTP_JSON, entry->value, entry->value_length);
		return;
	}
	metadata->stats.misses++;
	app_http_say(request, 404, "metadata not found");
}

static void delete_key(struct master_metadata *metadata, struct app_http_request *request, const char *key, size_t length)
{
	struct entry **slot = find(metadata, key, length);
	metadata->stats.deletes++;
	if (!*slot) {
		metadata->stats.misses++;
		app_http_say(request, 404, "metadata not found");
		return;
	}
	forget(metadata, slot);
	app_http_say(request, 200, "metadata deleted");
}

/* Two nodes with one name would otherwise take each other's place without a word. The same value again is a repetition. */
static bool is_taken(const struct entry *entry, const char *key, size_t length, const char *value, size_t value_length)
{
	return entry && memmem(key, length, "rpc_meta", 8) &&
	       (entry->value_length != value_length || memcmp(entry->value, value, value_length));
}

static void put(struct master_metadata *metadata, struct app_http_request *request, const char *key, size_t length)
{
	struct entry **slot = find(metadata, key, length), *entry = *slot;
	size_t value_length, freed = entry ? entry->value_length : 0;
	const char *value = app_http_body(request, &value_length);
	size_t needed = value_length + (entry ? 0 : length);
	metadata->stats.puts++;
	if (is_taken(entry, key, length, value, value_length)) {
		metadata->stats.refused++;
		app_http_say(request, 400, "this rpc_meta key has another value already: delete it first, or choose another name for the node");
		return;
	}
	if ((!entry && metadata->stats.entries == metadata->options.entries_max) ||
	    needed > metadata->options.bytes_max - metadata->stats.bytes + freed) {
		metadata->stats.refused++;
		app_http_say(request, 507, "the metadata server is full");
		return;
	}
	char *copy = malloc(value_length ? value_length : 1);
	struct entry *fresh = entry ? entry : calloc(1, sizeof *fresh + length);
	if (!copy || !fresh) {
		free(copy);
		if (!entry)
			free(fresh);
		app_http_say(request, 503, "out of memory");
		return;
	}
	memcpy(copy, value, value_length);
	if (!entry) {
		memcpy(fresh->key, key, length);
		fresh->key_length = (uint32_t)length;
		*slot = fresh;
		metadata->stats.entries++;
	}
	free(fresh->value);
	fresh->value = copy;
	fresh->value_length = value_length;
	metadata->stats.bytes += needed - freed;
	app_http_say(request, 200, "metadata updated");
}

void master_metadata_serve(struct master_metadata *metadata, struct app_http_request *request)
{
	size_t length;
	const char *method = app_http_method(request), *key = app_http_argument(request, "key", &length);
	if (!key || !length || length > MASTER_METADATA_KEY_MAX)
		app_http_say(request, 400, "a key of 1 to %u bytes is needed: /metadata?key=...", MASTER_METADATA_KEY_MAX);
	else if (!strcmp(method, "PUT"))
		put(metadata, request, key, length);
	else if (!strcmp(method, "DELETE"))
		delete_key(metadata, request, key, length);
	else
		get(metadata, request, key, length);
}

struct master_metadata *master_metadata_create(const struct neap_reactor *reactor, const struct master_metadata_options *options)
{
	struct master_metadata *metadata = calloc(1, sizeof *metadata);
	size_t buckets = 64;
	while (buckets < options->entries_max)
		buckets *= 2;
	if (metadata)
		metadata->buckets = calloc(buckets, sizeof *metadata->buckets);
	if (!metadata || !metadata->buckets) {
		free(metadata);
		return NULL;
	}
	metadata->options = *options;
	metadata->bucket_mask = buckets - 1;
	neap_key_secret_draw(&metadata->secret, reactor);
	return metadata;
}

void master_metadata_destroy(struct master_metadata *metadata)
{
	if (!metadata)
		return;
	for (size_t i = 0; i <= metadata->bucket_mask; i++)
		while (metadata->buckets[i])
			forget(metadata, &metadata->buckets[i]);
	free(metadata->buckets);
	free(metadata);
}

void master_metadata_stats(const struct master_metadata *metadata, struct master_metadata_stats *stats_p)
{
	*stats_p = metadata->stats;
}
