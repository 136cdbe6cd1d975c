/* What users ask about keys: stat, exist, list. */
#include "store/node/inside.h"
#include <string.h>

#define LISTED_KEYS 512u
#define LISTED_TEXT (64u << 10)

static void finish(struct node_ask *ask)
{
	struct neap_store *store = ask->store;
	if (ask->memory)
		neap_release(store->reactor, ask->memory, ask->memory_bytes);
	ask->memory = NULL;
	neap_pool_give(&store->asks, ask);
}

static void called(struct neap_key_call *call, int error)
{
	struct node_ask *ask = call->user;
	ask->store->reached = error == 0 || call->effect == NEAP_KEY_EFFECT_DONE;
	ask->answered(ask, error);
	finish(ask);
}

static int begin(struct neap_store *store, size_t memory_bytes, uint64_t deadline_ns, void *user, struct node_ask **ask_p)
{
	if (!node_takes(store))
		return NEAP_ECLOSED;
	struct node_ask *ask = neap_pool_take(&store->asks);
	if (!ask)
		return NEAP_EAGAIN;
	memset(ask, 0, sizeof *ask);
	ask->store = store;
	ask->user = user;
	ask->memory_bytes = memory_bytes;
	ask->memory = neap_allocate(store->reactor, memory_bytes);
	if (!ask->memory) {
		neap_pool_give(&store->asks, ask);
		return NEAP_ENOMEM;
	}
	ask->call.done = called;
	ask->call.user = ask;
	ask->call.deadline_ns = neap_now(store->reactor) + (deadline_ns ? deadline_ns : store->deadline_ns);
	*ask_p = ask;
	return NEAP_OK;
}

static int go(struct node_ask *ask)
{
	struct neap_store *store = ask->store;
	int error = neap_key_begin(&store->directory, &ask->call);
	if (error)
		finish(ask);
	neap_reactor_touch(store->reactor);
	return error;
}

/* The store is closing: all end now. */
void node_asks_cancel(struct neap_store *store)
{
	struct node_ask *ask;
	for (uint32_t index = 0; (ask = neap_pool_next(&store->asks, &index)) != NULL;) {
		neap_key_cancel(&store->directory, &ask->call);
		if (ask->answered)
			ask->answered(ask, NEAP_ECANCELED);
		finish(ask);
	}
}

static bool is_key(const struct neap_key *key)
{
	return key && key->bytes && key->length > 0 && key->length <= NEAP_KEY_MAX;
}

/* --- stat --------------------------------------------------------------------------------------------------------------------- */

struct stat_memory {
	struct neap_key_read_item item;
	struct neap_key_replica replicas[NODE_REPLICAS_MAX];
	struct neap_store_replica told[NODE_REPLICAS_MAX];
	char key[NEAP_KEY_MAX];
};

static void tell_stat(struct node_ask *ask, int error)
{
	struct stat_memory *memory = ask->memory;
	uint32_t count = 0;
	if (!error)
		error = memory->item.error;
	for (; !error && count < memory->item.count; count++) {
		const struct neap_key_replica *from = &memory->replicas[memory->item.first + count];
		struct neap_store_replica *to = &memory->told[count];
		*to = (struct neap_store_replica){
			.size = from->size,
			.generation = from->generation,
			.has_crc = from->has_crc,
			.crc = from->crc,
			.priority = from->priority,
			.in_memory = from->memory_type == NEAP_TIER_DRAM,
			.local = neap_key_id_equal(from->client, ask->store->client.id),
		};
		node_place(&to->place, from->client, from->host, from->port);
	}
	ask->done.stat(ask->user, error, memory->told, count, error ? node_directory_text(error) : "");
}

int neap_store_stat(struct neap_store *store, const struct neap_key *key, uint64_t deadline_ns, neap_store_stat_func *done, void *user)
{
	struct node_ask *ask;
	int error = is_key(key) && done ? begin(store, sizeof(struct stat_memory), deadline_ns, user, &ask) : NEAP_EINVAL;
	if (error)
		return error;
	struct stat_memory *memory = ask->memory;
	memcpy(memory->key, key->bytes, key->length);
	memory->item.key = (struct neap_key_text){memory->key, key->length};
	ask->call.op = NEAP_KEY_OP_REPLICAS;
	ask->call.as.replicas = (struct neap_key_replicas){
		.config = {.priority_limit = INT32_MIN}, .items = &memory->item, .count = 1, .replicas = memory->replicas,
		.replicas_max = NODE_REPLICAS_MAX};
	ask->answered = tell_stat;
	ask->done.stat = done;
	return go(ask);
}

/* --- exist -------------------------------------------------------------------------------------------------------------------- */

/* Items, then what is told, then the keys. */
static void tell_exist(struct node_ask *ask, int error)
{
	struct neap_key_exist *exist = &ask->call.as.exist;
	int8_t *found = (int8_t *)(void *)(exist->items + exist->count);
	int first = error; /* that one key is not known is nothing against those behind it */
	for (uint32_t i = 0; i < exist->count; i++) {
		int answer = error ? error : exist->items[i].error;
		found[i] = answer == 0 ? 1 : answer == NEAP_STORE_OBJECT_NOT_FOUND ? 0 : -1;
		if (found[i] < 0 && !first)
			first = answer;
	}
	ask->done.exist(ask->user, first, found, exist->count);
}

int neap_store_exist(struct neap_store *store, const struct neap_key *keys, uint32_t count, uint64_t deadline_ns,
                     neap_store_exist_func *done, void *user)
{
	struct node_ask *ask;
	size_t bytes = 0;
	if (!done || count == 0 || count > NEAP_STORE_EXIST_MAX)
		return NEAP_EINVAL;
	for (uint32_t i = 0; i < count; i++) {
		if (!is_key(&keys[i]))
			return NEAP_EINVAL;
		bytes += keys[i].length;
	}
	int error = begin(store, count * (sizeof(struct neap_key_read_item) + 1) + bytes, deadline_ns, user, &ask);
	if (error)
		return error;
	struct neap_key_read_item *items = ask->memory;
	char *text = (char *)(items + count) + count;
	for (uint32_t i = 0; i < count; i++) {
		memcpy(text, keys[i].bytes, keys[i].length);
		items[i].key = (struct neap_key_text){text, keys[i].length};
		text += keys[i].length;
	}
	ask->call.op = NEAP_KEY_OP_EXIST;
	ask->call.as.exist = (struct neap_key_exist){.items = items, .count = count};
	ask->answered = tell_exist;
	ask->done.exist = done;
	return go(ask);
}

/* --- list --------------------------------------------------------------------------------------------------------------------- */

struct list_memory {
	struct neap_key_listed listed[LISTED_KEYS];
	struct neap_key keys[LISTED_KEYS];
	char text[LISTED_TEXT];
	char pattern[];
};

static void tell_list(struct node_ask *ask, int error)
{
	struct list_memory *memory = ask->memory;
	struct neap_key_list *list = &ask->call.as.list;
	uint32_t count = error ? 0 : list->count;
	uint64_t next = error ? 0 : list->cursor;
	for (uint32_t i = 0; i < count; i++)
		memory->keys[i] = (struct neap_key){memory->text + memory->listed[i].offset, memory->listed[i].length};
	const char *why = error ? (*list->why ? list->why : node_directory_text(error)) : "";
	if (!error && !list->complete) {
		error = NEAP_STORE_REPLICA_IS_NOT_READY;
		why = NODE_NOT_ALL;
	}
	ask->done.listed(ask->user, error, memory->keys, count, next, why);
}

int neap_store_list(struct neap_store *store, const char *pattern, uint64_t cursor, uint64_t deadline_ns, neap_store_listed_func *done,
                    void *user)
{
	struct node_ask *ask;
	size_t length = pattern ? strlen(pattern) : 0;
	if (!done || length > NEAP_KEY_MAX)
		return NEAP_EINVAL;
	int error = begin(store, sizeof(struct list_memory) + length + 1, deadline_ns, user, &ask);
	if (error)
		return error;
	struct list_memory *memory = ask->memory;
	if (length)
		memcpy(memory->pattern, pattern, length);
	ask->call.op = NEAP_KEY_OP_LIST;
	ask->call.as.list = (struct neap_key_list){.pattern = {memory->pattern, (uint32_t)length}, .cursor = cursor, .keys = memory->listed,
	                                           .keys_max = LISTED_KEYS, .text = memory->text, .text_size = LISTED_TEXT};
	ask->answered = tell_list;
	ask->done.listed = done;
	return go(ask);
}
