#include "store/master/codec.h"
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids go out as they lie in memory");

#define CHUNK_BYTES 16384u /* a heartbeat with all it may be told */

static size_t rounded(size_t bytes)
{
	return (bytes + 15) & ~(size_t)15;
}

static bool more(struct neap_master_arena *arena, size_t bytes)
{
	size_t head = rounded(sizeof(struct neap_master_chunk)), whole = head + (bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);
	if (!arena->budget_p || whole > *arena->budget_p)
		return false;
	struct neap_master_chunk *chunk = neap_allocate(arena->reactor, whole);
	if (!chunk)
		return false;
	*arena->budget_p -= whole;
	*chunk = (struct neap_master_chunk){.next = arena->chunks, .bytes = whole};
	arena->chunks = chunk;
	arena->at = (unsigned char *)chunk + head;
	arena->left = whole - head;
	return true;
}

void *neap_master_take(struct neap_master_arena *arena, size_t count, size_t size)
{
	size_t bytes = rounded(count * size + (count == 0));
	if (bytes > arena->left && !more(arena, bytes))
		return NULL;
	void *taken = arena->at;
	arena->at += bytes;
	arena->left -= bytes;
	memset(taken, 0, bytes);
	return taken;
}

void neap_master_give(struct neap_master_arena *arena)
{
	while (arena->chunks) {
		struct neap_master_chunk *chunk = arena->chunks;
		arena->chunks = chunk->next;
		*arena->budget_p += chunk->bytes;
		neap_release(arena->reactor, chunk, chunk->bytes);
	}
	arena->at = NULL;
	arena->left = 0;
}

const struct neap_master_codec neap_master_codecs[NEAP_KEY_OPS] = {
#define ROW(op, name, method_)                                                                           \
	[NEAP_KEY_OP_##op] = {&neap_method_##method_, neap_master_ask_##name, neap_master_take_##name,       \
	                      neap_master_answer_##name, neap_master_learn_##name},
	NEAP_MASTER_OPS(ROW)
#undef ROW
};

const struct neap_key_client *neap_master_speaker(const struct neap_key_call *call)
{
	switch (call->op) {
	case NEAP_KEY_OP_REGISTER:
		return &call->as.register_.client;
	case NEAP_KEY_OP_UNREGISTER:
		return &call->as.unregister.client;
	case NEAP_KEY_OP_HEARTBEAT:
		return &call->as.heartbeat.client;
	case NEAP_KEY_OP_MOUNT:
	case NEAP_KEY_OP_UNMOUNT:
		return &call->as.mount.client;
	case NEAP_KEY_OP_ANNOUNCE:
		return &call->as.announce.client;
	case NEAP_KEY_OP_ROUND_BEGIN:
	case NEAP_KEY_OP_ROUND_END:
		return &call->as.round.client;
	case NEAP_KEY_OP_CLIENTS:
	case NEAP_KEY_OP_WRITE_ROUTES:
	case NEAP_KEY_OP_REPLICAS:
	case NEAP_KEY_OP_EXIST:
	case NEAP_KEY_OP_COUNT:
	case NEAP_KEY_OP_LIST:
	case NEAP_KEY_OPS:
		break;
	}
	return NULL;
}

/* --- pieces ------------------------------------------------------------------------------------------------------------- */

bool neap_master_id(struct neap_rpc_view view, struct neap_key_id *id_p)
{
	if (view.length != sizeof *id_p)
		return false;
	memcpy(id_p, view.bytes, sizeof *id_p);
	return true;
}

bool neap_master_text(struct neap_rpc_view view, char *text, size_t size)
{
	if (view.length >= size || (view.length && memchr(view.bytes, 0, view.length)))
		return false;
	if (view.length)
		memcpy(text, view.bytes, view.length);
	text[view.length] = '\0';
	return true;
}

struct neap_rpc_view neap_master_text_view(const char *text, size_t size)
{
	return neap_rpc_view_of(text, strnlen(text, size - 1));
}

struct neap_rpc_list neap_master_list(const void *items, uint32_t count)
{
	return (struct neap_rpc_list){items, count};
}

bool neap_master_tags_out(struct neap_master_arena *arena, const char (*tags)[NEAP_KEY_TAG_SIZE], uint32_t count,
                          struct neap_rpc_list *list_p)
{
	struct master_tag *items = count <= NEAP_KEY_TAGS_MAX ? neap_master_take(arena, count, sizeof *items) : NULL;
	if (!items)
		return false;
	for (uint32_t i = 0; i < count; i++)
		items[i].tag = neap_master_text_view(tags[i], NEAP_KEY_TAG_SIZE);
	*list_p = neap_master_list(items, count);
	return true;
}

bool neap_master_tags_in(struct neap_rpc_list list, char (*tags)[NEAP_KEY_TAG_SIZE], uint32_t *count_p)
{
	const struct master_tag *items = list.items;
	if (list.count > NEAP_KEY_TAGS_MAX)
		return false;
	for (uint32_t i = 0; i < list.count; i++)
		if (!neap_master_text(items[i].tag, tags[i], NEAP_KEY_TAG_SIZE))
			return false;
	*count_p = list.count;
	return true;
}

bool neap_master_key_in(struct neap_master_arena *arena, struct neap_rpc_view view, struct neap_key_text *text_p)
{
	char *text = neap_master_take(arena, view.length, 1);
	if (!text)
		return false;
	if (view.length)
		memcpy(text, view.bytes, view.length);
	*text_p = (struct neap_key_text){.text = text, .length = view.length};
	return true;
}
