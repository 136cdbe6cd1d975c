/* The operations that make and keep clients. */
#include "store/master/codec.h"
#include <string.h>

/* --- pieces ------------------------------------------------------------------------------------------------------------- */

static bool segment_out(struct neap_master_arena *arena, const struct neap_key_segment *segment, struct master_segment *out)
{
	*out = (struct master_segment){
		.segment_id = neap_master_id_view(&segment->id),
		.name = neap_master_text_view(segment->name, sizeof segment->name),
		.size = segment->capacity,
		.usage = segment->used,
		.priority = segment->priority,
		.memory_type = segment->memory_type,
	};
	return neap_master_tags_out(arena, segment->tags, segment->tag_count, &out->tags);
}

static bool segment_in(const struct master_segment *in, struct neap_key_segment *segment)
{
	segment->capacity = in->size;
	segment->used = in->usage;
	segment->priority = in->priority > INT32_MAX ? INT32_MAX : (int32_t)in->priority;
	segment->memory_type = (uint32_t)in->memory_type;
	return neap_master_id(in->segment_id, &segment->id) && neap_master_text(in->name, segment->name, sizeof segment->name) &&
	       neap_master_tags_in(in->tags, segment->tags, &segment->tag_count);
}

static bool self_in(struct neap_rpc_view id, uint64_t instance, struct neap_key_client *client)
{
	client->instance = instance;
	return neap_master_id(id, &client->id);
}

static int nothing_more(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	(void)call;
	(void)arena;
	*(struct master_done *)message = (struct master_done){0};
	return NEAP_OK;
}

static int nothing_learned(struct neap_key_call *call, const void *message)
{
	(void)call;
	(void)message;
	return NEAP_OK;
}

/* --- register ----------------------------------------------------------------------------------------------------------- */

int neap_master_ask_register(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_register *from = &call->as.register_;
	struct master_segment *segments =
		from->segment_count <= NEAP_MASTER_SEGMENTS_MAX ? neap_master_take(arena, from->segment_count, sizeof *segments) : NULL;
	for (uint32_t i = 0; segments && i < from->segment_count; i++)
		if (!segment_out(arena, &from->segments[i], &segments[i]))
			segments = NULL;
	if (!segments)
		return NEAP_EINVAL;
	*(struct master_register *)message = (struct master_register){
		.client_id = neap_master_id_view(&from->client.id),
		.instance = from->client.instance,
		.start = from->start,
		.ip_address = neap_master_text_view(from->host, sizeof from->host),
		.rpc_port = from->port,
		.holds = from->holds,
		.segments = neap_master_list(segments, from->segment_count),
	};
	return NEAP_OK;
}

int neap_master_take_register(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_register *from = message;
	const struct master_segment *segments = from->segments.items;
	struct neap_key_register *to = &call->as.register_;
	struct neap_key_segment *room = neap_master_take(arena, from->segments.count, sizeof *room);
	if (!room)
		return NEAP_EAGAIN;
	for (uint32_t i = 0; i < from->segments.count; i++)
		if (!segment_in(&segments[i], &room[i]))
			return NEAP_STORE_INVALID_PARAMS;
	to->start = from->start;
	to->port = (uint16_t)from->rpc_port;
	to->holds = from->holds;
	to->segments = room;
	to->segment_count = from->segments.count;
	if (!self_in(from->client_id, from->instance, &to->client) || !neap_master_text(from->ip_address, to->host, sizeof to->host))
		return NEAP_STORE_INVALID_PARAMS;
	return NEAP_OK;
}

int neap_master_answer_register(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_register *from = &call->as.register_;
	(void)arena;
	*(struct master_register_reply *)message =
		(struct master_register_reply){.view_version = from->epoch, .announce_all = from->announce_all};
	return NEAP_OK;
}

int neap_master_learn_register(struct neap_key_call *call, const void *message)
{
	const struct master_register_reply *from = message;
	call->as.register_.epoch = from->view_version;
	call->as.register_.announce_all = from->announce_all;
	return NEAP_OK;
}

/* --- unregister --------------------------------------------------------------------------------------------------------- */

int neap_master_ask_unregister(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_client *client = &call->as.unregister.client;
	(void)arena;
	*(struct master_self *)message =
		(struct master_self){.client_id = neap_master_id_view(&client->id), .instance = client->instance};
	return NEAP_OK;
}

int neap_master_take_unregister(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_self *from = message;
	(void)arena;
	return self_in(from->client_id, from->instance, &call->as.unregister.client) ? NEAP_OK : NEAP_STORE_INVALID_PARAMS;
}

int neap_master_answer_unregister(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	return nothing_more(call, arena, message);
}

int neap_master_learn_unregister(struct neap_key_call *call, const void *message)
{
	return nothing_learned(call, message);
}

/* --- heartbeat ---------------------------------------------------------------------------------------------------------- */

int neap_master_ask_heartbeat(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_heartbeat *from = &call->as.heartbeat;
	struct master_usage *usages =
		from->usage_count <= NEAP_MASTER_SEGMENTS_MAX ? neap_master_take(arena, from->usage_count, sizeof *usages) : NULL;
	if (!usages)
		return NEAP_EINVAL;
	for (uint32_t i = 0; i < from->usage_count; i++)
		usages[i] = (struct master_usage){.segment_id = neap_master_id_view(&from->usages[i].segment),
		                                  .usage = from->usages[i].used,
		                                  .size = from->usages[i].capacity};
	uint32_t lost_max = from->lost ? from->lost_max : 0, text_max = from->lost ? from->lost_text_size : 0;
	*(struct master_heartbeat *)message = (struct master_heartbeat){
		.client_id = neap_master_id_view(&from->client.id),
		.instance = from->client.instance,
		.view_version = from->epoch_known,
		.usages = neap_master_list(usages, from->usage_count),
		.lost_max = lost_max < NEAP_MASTER_LOST_MAX ? lost_max : NEAP_MASTER_LOST_MAX,
		.lost_text_max = text_max < NEAP_MASTER_LOST_TEXT_MAX ? text_max : NEAP_MASTER_LOST_TEXT_MAX,
	};
	return NEAP_OK;
}

int neap_master_take_heartbeat(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_heartbeat *from = message;
	const struct master_usage *usages = from->usages.items;
	struct neap_key_heartbeat *to = &call->as.heartbeat;
	struct neap_key_usage *room = neap_master_take(arena, from->usages.count, sizeof *room);
	to->epoch_known = from->view_version;
	to->lost = neap_master_take(arena, from->lost_max, sizeof *to->lost);
	to->lost_text = neap_master_take(arena, from->lost_text_max, 1);
	to->lost_max = (uint32_t)from->lost_max;
	to->lost_text_size = (uint32_t)from->lost_text_max;
	to->usages = room;
	to->usage_count = from->usages.count;
	if (!room || !to->lost || !to->lost_text)
		return NEAP_EAGAIN;
	for (uint32_t i = 0; i < from->usages.count; i++) {
		room[i] = (struct neap_key_usage){.used = usages[i].usage, .capacity = usages[i].size};
		if (!neap_master_id(usages[i].segment_id, &room[i].segment))
			return NEAP_STORE_INVALID_PARAMS;
	}
	return self_in(from->client_id, from->instance, &to->client) ? NEAP_OK : NEAP_STORE_INVALID_PARAMS;
}

int neap_master_answer_heartbeat(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_heartbeat *from = &call->as.heartbeat;
	struct master_result *usages = neap_master_take(arena, from->usage_count, sizeof *usages);
	struct master_lost *lost = neap_master_take(arena, from->lost_count, sizeof *lost);
	if (!usages || !lost)
		return NEAP_ELIMIT;
	for (uint32_t i = 0; i < from->usage_count; i++)
		usages[i].error_code = from->usages[i].error;
	for (uint32_t i = 0; i < from->lost_count; i++)
		lost[i] = (struct master_lost){.key = neap_rpc_view_of(from->lost_text + from->lost[i].offset, from->lost[i].length),
		                               .segment_id = neap_master_id_view(&from->lost[i].segment),
		                               .generation = from->lost[i].generation};
	*(struct master_heartbeat_reply *)message = (struct master_heartbeat_reply){
		.status = (uint64_t)from->status,
		.view_version = from->epoch,
		.announce_all = from->announce_all,
		.usages = neap_master_list(usages, from->usage_count),
		.lost = neap_master_list(lost, from->lost_count),
		.lost_more = from->lost_more,
	};
	return NEAP_OK;
}

static int learn_lost(struct neap_key_heartbeat *to, struct neap_rpc_list list)
{
	const struct master_lost *lost = list.items;
	uint32_t used = 0;
	if (list.count > (to->lost ? to->lost_max : 0))
		return NEAP_STORE_RPC_FAIL;
	for (uint32_t i = 0; i < list.count; i++) {
		struct neap_key_lost *item = &to->lost[i];
		*item = (struct neap_key_lost){.generation = lost[i].generation, .offset = used, .length = lost[i].key.length};
		if (lost[i].key.length > to->lost_text_size - used || !neap_master_id(lost[i].segment_id, &item->segment))
			return NEAP_STORE_RPC_FAIL;
		if (lost[i].key.length)
			memcpy(to->lost_text + used, lost[i].key.bytes, lost[i].key.length);
		used += lost[i].key.length;
	}
	to->lost_count = list.count;
	return NEAP_OK;
}

int neap_master_learn_heartbeat(struct neap_key_call *call, const void *message)
{
	const struct master_heartbeat_reply *from = message;
	const struct master_result *usages = from->usages.items;
	struct neap_key_heartbeat *to = &call->as.heartbeat;
	to->lost_count = 0;
	if (from->usages.count != to->usage_count)
		return NEAP_STORE_RPC_FAIL;
	to->status = (enum neap_key_status)from->status;
	to->epoch = from->view_version;
	to->announce_all = from->announce_all;
	to->lost_more = from->lost_more;
	for (uint32_t i = 0; i < to->usage_count; i++)
		to->usages[i].error = (int)usages[i].error_code;
	return learn_lost(to, from->lost);
}

/* --- mount, unmount ----------------------------------------------------------------------------------------------------- */

int neap_master_ask_mount(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_mount *from = &call->as.mount;
	struct master_segment *segment = neap_master_take(arena, 1, sizeof *segment);
	if (!segment || !segment_out(arena, &from->segment, segment))
		return NEAP_EINVAL;
	*(struct master_mount *)message = (struct master_mount){
		.client_id = neap_master_id_view(&from->client.id),
		.instance = from->client.instance,
		.segment = neap_master_list(segment, 1),
	};
	return NEAP_OK;
}

int neap_master_take_mount(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_mount *from = message;
	(void)arena;
	bool good = from->segment.count == 1 && segment_in(from->segment.items, &call->as.mount.segment) &&
	            self_in(from->client_id, from->instance, &call->as.mount.client);
	return good ? NEAP_OK : NEAP_STORE_INVALID_PARAMS;
}

int neap_master_answer_mount(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	return nothing_more(call, arena, message);
}

int neap_master_learn_mount(struct neap_key_call *call, const void *message)
{
	return nothing_learned(call, message);
}

int neap_master_ask_unmount(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_mount *from = &call->as.unmount;
	(void)arena;
	*(struct master_unmount *)message = (struct master_unmount){
		.client_id = neap_master_id_view(&from->client.id),
		.instance = from->client.instance,
		.segment_id = neap_master_id_view(&from->segment.id),
	};
	return NEAP_OK;
}

int neap_master_take_unmount(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_unmount *from = message;
	(void)arena;
	bool good = neap_master_id(from->segment_id, &call->as.unmount.segment.id) &&
	            self_in(from->client_id, from->instance, &call->as.unmount.client);
	return good ? NEAP_OK : NEAP_STORE_INVALID_PARAMS;
}

int neap_master_answer_unmount(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	return nothing_more(call, arena, message);
}

int neap_master_learn_unmount(struct neap_key_call *call, const void *message)
{
	return nothing_learned(call, message);
}

/* --- clients ------------------------------------------------------------------------------------------------------------ */

int neap_master_ask_clients(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_clients *from = &call->as.clients;
	struct master_client_id *ids = from->count <= NEAP_MASTER_BATCH_MAX ? neap_master_take(arena, from->count, sizeof *ids) : NULL;
	if (!ids)
		return NEAP_EINVAL;
	for (uint32_t i = 0; i < from->count; i++)
		ids[i].client_id = neap_master_id_view(&from->items[i].id);
	*(struct master_clients *)message = (struct master_clients){.clients = neap_master_list(ids, from->count)};
	return NEAP_OK;
}

int neap_master_take_clients(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_clients *from = message;
	const struct master_client_id *ids = from->clients.items;
	struct neap_key_client_item *items = neap_master_take(arena, from->clients.count, sizeof *items);
	if (!items)
		return NEAP_EAGAIN;
	for (uint32_t i = 0; i < from->clients.count; i++)
		if (!neap_master_id(ids[i].client_id, &items[i].id))
			return NEAP_STORE_INVALID_PARAMS;
	call->as.clients = (struct neap_key_clients){.items = items, .count = from->clients.count};
	return NEAP_OK;
}

int neap_master_answer_clients(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_clients *from = &call->as.clients;
	struct master_client_answer *answers = neap_master_take(arena, from->count, sizeof *answers);
	if (!answers)
		return NEAP_ELIMIT;
	for (uint32_t i = 0; i < from->count; i++)
		answers[i] = (struct master_client_answer){
			.status = (uint64_t)from->items[i].status,
			.ip_address = neap_master_text_view(from->items[i].host, sizeof from->items[i].host),
			.rpc_port = from->items[i].port,
		};
	*(struct master_clients_reply *)message = (struct master_clients_reply){.clients = neap_master_list(answers, from->count)};
	return NEAP_OK;
}

int neap_master_learn_clients(struct neap_key_call *call, const void *message)
{
	const struct master_clients_reply *from = message;
	const struct master_client_answer *answers = from->clients.items;
	struct neap_key_clients *to = &call->as.clients;
	if (from->clients.count != to->count)
		return NEAP_STORE_RPC_FAIL;
	for (uint32_t i = 0; i < to->count; i++) {
		to->items[i].status = (enum neap_key_status)answers[i].status;
		to->items[i].port = (uint16_t)answers[i].rpc_port;
		if (!neap_master_text(answers[i].ip_address, to->items[i].host, sizeof to->items[i].host))
			return NEAP_STORE_RPC_FAIL;
	}
	return NEAP_OK;
}
