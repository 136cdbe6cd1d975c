/* The operations on keys: what owners announce and what accessors ask. */
#include "store/master/codec.h"
#include <string.h>

/* --- announce ----------------------------------------------------------------------------------------------------------- */

int neap_master_ask_announce(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_announce *from = &call->as.announce;
	struct master_change *changes =
		from->count <= NEAP_MASTER_BATCH_MAX ? neap_master_take(arena, from->count, sizeof *changes) : NULL;
	if (!changes)
		return NEAP_EINVAL;
	for (uint32_t i = 0; i < from->count; i++) {
		const struct neap_key_change *change = &from->changes[i];
		if ((unsigned)change->kind > NEAP_KEY_REMOVE)
			return NEAP_EINVAL;
		changes[i] = (struct master_change){
			.remove = change->kind == NEAP_KEY_REMOVE,
			.key = neap_rpc_view_of(change->key.text, change->key.length),
			.segment_id = neap_master_id_view(&change->segment),
			.size = change->size,
			.generation = change->generation,
			.has_crc = change->has_crc,
			.crc32c = change->crc,
			.stamp_epoch = change->stamp.epoch,
			.stamp_sequence = change->stamp.sequence,
		};
	}
	*(struct master_announce *)message = (struct master_announce){
		.client_id = neap_master_id_view(&from->client.id),
		.instance = from->client.instance,
		.number = from->number,
		.round = from->round,
		.changes = neap_master_list(changes, from->count),
	};
	return NEAP_OK;
}

int neap_master_take_announce(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_announce *from = message;
	const struct master_change *changes = from->changes.items;
	struct neap_key_announce *to = &call->as.announce;
	struct neap_key_change *room = neap_master_take(arena, from->changes.count, sizeof *room);
	if (!room)
		return NEAP_EAGAIN;
	*to = (struct neap_key_announce){
		.client.instance = from->instance,
		.number = from->number,
		.round = (uint32_t)from->round,
		.changes = room,
		.count = from->changes.count,
	};
	for (uint32_t i = 0; i < to->count; i++) {
		room[i] = (struct neap_key_change){
			.kind = changes[i].remove ? NEAP_KEY_REMOVE : NEAP_KEY_ADD,
			.size = changes[i].size,
			.generation = changes[i].generation,
			.has_crc = changes[i].has_crc,
			.crc = (uint32_t)changes[i].crc32c,
			.stamp = {changes[i].stamp_epoch, changes[i].stamp_sequence},
		};
		if (!neap_master_id(changes[i].segment_id, &room[i].segment))
			return NEAP_STORE_INVALID_PARAMS;
		if (!neap_master_key_in(arena, changes[i].key, &room[i].key))
			return NEAP_EAGAIN;
	}
	return neap_master_id(from->client_id, &to->client.id) ? NEAP_OK : NEAP_STORE_INVALID_PARAMS;
}

int neap_master_answer_announce(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_announce *from = &call->as.announce;
	struct master_changed *changed = neap_master_take(arena, from->count, sizeof *changed);
	if (!changed)
		return NEAP_ELIMIT;
	for (uint32_t i = 0; i < from->count; i++)
		changed[i] = (struct master_changed){.error_code = from->changes[i].error,
		                                     .stamp_epoch = from->changes[i].stamp.epoch,
		                                     .stamp_sequence = from->changes[i].stamp.sequence};
	*(struct master_announce_reply *)message = (struct master_announce_reply){.changes = neap_master_list(changed, from->count)};
	return NEAP_OK;
}

int neap_master_learn_announce(struct neap_key_call *call, const void *message)
{
	const struct master_announce_reply *from = message;
	const struct master_changed *changed = from->changes.items;
	struct neap_key_announce *to = &call->as.announce;
	if (from->changes.count != to->count)
		return NEAP_STORE_RPC_FAIL;
	for (uint32_t i = 0; i < to->count; i++) {
		to->changes[i].error = (int)changed[i].error_code;
		to->changes[i].stamp = (struct neap_key_stamp){changed[i].stamp_epoch, changed[i].stamp_sequence};
	}
	return NEAP_OK;
}

/* --- full announcements ------------------------------------------------------------------------------------------------- */

int neap_master_ask_round_begin(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_client *client = &call->as.round.client;
	(void)arena;
	*(struct master_self *)message =
		(struct master_self){.client_id = neap_master_id_view(&client->id), .instance = client->instance};
	return NEAP_OK;
}

int neap_master_take_round_begin(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_self *from = message;
	(void)arena;
	call->as.round.client.instance = from->instance;
	return neap_master_id(from->client_id, &call->as.round.client.id) ? NEAP_OK : NEAP_STORE_INVALID_PARAMS;
}

int neap_master_answer_round_begin(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	(void)arena;
	*(struct master_round_begin_reply *)message = (struct master_round_begin_reply){.round = call->as.round.round};
	return NEAP_OK;
}

int neap_master_learn_round_begin(struct neap_key_call *call, const void *message)
{
	call->as.round.round = (uint32_t)((const struct master_round_begin_reply *)message)->round;
	return NEAP_OK;
}

int neap_master_ask_round_end(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_round *from = &call->as.round;
	(void)arena;
	*(struct master_round_end *)message = (struct master_round_end){
		.client_id = neap_master_id_view(&from->client.id), .instance = from->client.instance, .round = from->round};
	return NEAP_OK;
}

int neap_master_take_round_end(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_round_end *from = message;
	(void)arena;
	call->as.round.client.instance = from->instance;
	call->as.round.round = (uint32_t)from->round;
	return neap_master_id(from->client_id, &call->as.round.client.id) ? NEAP_OK : NEAP_STORE_INVALID_PARAMS;
}

int neap_master_answer_round_end(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	(void)arena;
	*(struct master_round_end_reply *)message = (struct master_round_end_reply){.dropped = call->as.round.dropped};
	return NEAP_OK;
}

int neap_master_learn_round_end(struct neap_key_call *call, const void *message)
{
	call->as.round.dropped = ((const struct master_round_end_reply *)message)->dropped;
	return NEAP_OK;
}

/* --- pieces of questions ------------------------------------------------------------------------------------------------ */

static int32_t limited(int64_t priority)
{
	return priority > INT32_MAX ? INT32_MAX : (int32_t)priority;
}

static struct neap_rpc_list keys_out(struct neap_master_arena *arena, const struct neap_key_read_item *items, uint32_t count)
{
	struct master_key *keys = count <= NEAP_MASTER_BATCH_MAX ? neap_master_take(arena, count, sizeof *keys) : NULL;
	for (uint32_t i = 0; keys && i < count; i++)
		keys[i].key = neap_rpc_view_of(items[i].key.text, items[i].key.length);
	return neap_master_list(keys, count);
}

static struct neap_key_read_item *keys_in(struct neap_master_arena *arena, struct neap_rpc_list list)
{
	const struct master_key *keys = list.items;
	struct neap_key_read_item *items = neap_master_take(arena, list.count, sizeof *items);
	for (uint32_t i = 0; items && i < list.count; i++)
		if (!neap_master_key_in(arena, keys[i].key, &items[i].key))
			items = NULL;
	return items;
}

/* A part of an answer that lies in the list of `there` things. */
static bool sound(const struct master_part *part, uint32_t there)
{
	return part->first <= there && part->count <= there - part->first;
}

/* --- write routes ------------------------------------------------------------------------------------------------------- */

#define WEIGHT_UNIT 1e9
#define WEIGHT_MAX 1000.0
#define SCORE_MAX 1e9

/* Beyond the bounds it means the same as at them. Not a number: false. */
static bool weight_out(double weight, double max, int64_t *out)
{
	double held = weight > max ? max : weight < -max ? -max : weight;
	if (held != held)
		return false;
	*out = (int64_t)(held * WEIGHT_UNIT);
	return true;
}

static double weight_in(int64_t weight)
{
	return (double)weight / WEIGHT_UNIT;
}

static bool write_config_out(struct neap_master_arena *arena, const struct neap_key_write_config *config,
                             struct master_write_routes *to)
{
	to->max_candidates = config->candidates_max;
	to->strategy = (uint64_t)config->strategy;
	to->top_tier_only = config->top_tier_only;
	to->early_return = config->early_return;
	to->priority_limit = config->priority_limit;
	return weight_out(config->remote_weight, WEIGHT_MAX, &to->remote_weight) &&
	       weight_out(config->local_write_waterline, WEIGHT_MAX, &to->local_write_waterline) &&
	       neap_master_tags_out(arena, config->tags, config->tag_count, &to->tag_filters);
}

int neap_master_ask_write_routes(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_write_routes *from = &call->as.write_routes;
	struct master_write_routes *to = message;
	struct master_write_item *items =
		from->count <= NEAP_MASTER_BATCH_MAX ? neap_master_take(arena, from->count, sizeof *items) : NULL;
	*to = (struct master_write_routes){
		.room = from->candidates_max < NEAP_MASTER_CANDIDATES_MAX ? from->candidates_max : NEAP_MASTER_CANDIDATES_MAX};
	if (!items || !write_config_out(arena, &from->config, to))
		return NEAP_EINVAL;
	for (uint32_t i = 0; i < from->count; i++)
		items[i] = (struct master_write_item){.key = neap_rpc_view_of(from->items[i].key.text, from->items[i].key.length),
		                                      .size = from->items[i].size};
	to->client_id = neap_key_id_none(from->requester) ? (struct neap_rpc_view){0} : neap_master_id_view(&from->requester);
	to->items = neap_master_list(items, from->count);
	return NEAP_OK;
}

int neap_master_take_write_routes(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_write_routes *from = message;
	const struct master_write_item *items = from->items.items;
	struct neap_key_write_routes *to = &call->as.write_routes;
	to->items = neap_master_take(arena, from->items.count, sizeof *to->items);
	to->candidates = neap_master_take(arena, (size_t)from->room, sizeof *to->candidates);
	if (!to->items || !to->candidates)
		return NEAP_EAGAIN;
	to->count = from->items.count;
	to->candidates_max = (uint32_t)from->room;
	to->config = (struct neap_key_write_config){
		.candidates_max = (uint32_t)from->max_candidates,
		.strategy = (enum neap_key_strategy)from->strategy,
		.remote_weight = weight_in(from->remote_weight),
		.local_write_waterline = weight_in(from->local_write_waterline),
		.top_tier_only = from->top_tier_only,
		.early_return = from->early_return,
		.priority_limit = limited(from->priority_limit),
	};
	for (uint32_t i = 0; i < to->count; i++) {
		to->items[i].size = items[i].size;
		if (!neap_master_key_in(arena, items[i].key, &to->items[i].key))
			return NEAP_EAGAIN;
	}
	bool good = (from->client_id.length == 0 || neap_master_id(from->client_id, &to->requester)) &&
	            neap_master_tags_in(from->tag_filters, to->config.tags, &to->config.tag_count);
	return good ? NEAP_OK : NEAP_STORE_INVALID_PARAMS;
}

int neap_master_answer_write_routes(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_write_routes *from = &call->as.write_routes;
	struct master_part *items = neap_master_take(arena, from->count, sizeof *items);
	struct master_candidate *candidates = neap_master_take(arena, from->candidates_used, sizeof *candidates);
	if (!items || !candidates)
		return NEAP_ELIMIT;
	for (uint32_t i = 0; i < from->count; i++)
		items[i] = (struct master_part){from->items[i].error, from->items[i].first, from->items[i].count};
	for (uint32_t i = 0; i < from->candidates_used; i++) {
		const struct neap_key_candidate *candidate = &from->candidates[i];
		candidates[i] = (struct master_candidate){
			.client_id = neap_master_id_view(&candidate->client),
			.ip_address = neap_master_text_view(candidate->host, sizeof candidate->host),
			.rpc_port = candidate->port,
			.available_capacity = candidate->available,
		};
		(void)weight_out(candidate->score, SCORE_MAX, &candidates[i].score);
	}
	*(struct master_write_routes_reply *)message =
		(struct master_write_routes_reply){.items = neap_master_list(items, from->count),
	                                       .candidates = neap_master_list(candidates, from->candidates_used)};
	return NEAP_OK;
}

int neap_master_learn_write_routes(struct neap_key_call *call, const void *message)
{
	const struct master_write_routes_reply *from = message;
	const struct master_part *items = from->items.items;
	const struct master_candidate *candidates = from->candidates.items;
	struct neap_key_write_routes *to = &call->as.write_routes;
	if (from->items.count != to->count || from->candidates.count > to->candidates_max)
		return NEAP_STORE_RPC_FAIL;
	for (uint32_t i = 0; i < to->count; i++) {
		if (!sound(&items[i], from->candidates.count))
			return NEAP_STORE_RPC_FAIL;
		to->items[i].error = (int)items[i].error_code;
		to->items[i].first = (uint32_t)items[i].first;
		to->items[i].count = (uint32_t)items[i].count;
	}
	for (uint32_t i = 0; i < from->candidates.count; i++) {
		struct neap_key_candidate *candidate = &to->candidates[i];
		*candidate = (struct neap_key_candidate){.port = (uint16_t)candidates[i].rpc_port,
		                                         .available = candidates[i].available_capacity,
		                                         .score = weight_in(candidates[i].score)};
		if (!neap_master_id(candidates[i].client_id, &candidate->client) ||
		    !neap_master_text(candidates[i].ip_address, candidate->host, sizeof candidate->host))
			return NEAP_STORE_RPC_FAIL;
	}
	to->candidates_used = from->candidates.count;
	return NEAP_OK;
}

/* --- replicas ----------------------------------------------------------------------------------------------------------- */

int neap_master_ask_replicas(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_replicas *from = &call->as.replicas;
	struct master_replicas *to = message;
	*to = (struct master_replicas){
		.max_candidates = from->config.replicas_max,
		.priority_limit = from->config.priority_limit,
		.keys = keys_out(arena, from->items, from->count),
		.room = from->replicas_max < NEAP_MASTER_REPLICAS_MAX ? from->replicas_max : NEAP_MASTER_REPLICAS_MAX,
	};
	bool good = to->keys.items && neap_master_tags_out(arena, from->config.tags, from->config.tag_count, &to->tag_filters);
	return good ? NEAP_OK : NEAP_EINVAL;
}

int neap_master_take_replicas(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_replicas *from = message;
	struct neap_key_replicas *to = &call->as.replicas;
	to->items = keys_in(arena, from->keys);
	to->replicas = neap_master_take(arena, (size_t)from->room, sizeof *to->replicas);
	if (!to->items || !to->replicas)
		return NEAP_EAGAIN;
	to->count = from->keys.count;
	to->replicas_max = (uint32_t)from->room;
	to->config.replicas_max = (uint32_t)from->max_candidates;
	to->config.priority_limit = limited(from->priority_limit);
	bool good = neap_master_tags_in(from->tag_filters, to->config.tags, &to->config.tag_count);
	return good ? NEAP_OK : NEAP_STORE_INVALID_PARAMS;
}

static struct master_replica replica_out(const struct neap_key_replica *replica)
{
	return (struct master_replica){
		.client_id = neap_master_id_view(&replica->client),
		.segment_id = neap_master_id_view(&replica->segment),
		.ip_address = neap_master_text_view(replica->host, sizeof replica->host),
		.rpc_port = replica->port,
		.object_size = replica->size,
		.generation = replica->generation,
		.has_crc = replica->has_crc,
		.crc32c = replica->crc,
		.priority = replica->priority,
		.memory_type = replica->memory_type,
		.stamp_epoch = replica->stamp.epoch,
		.stamp_sequence = replica->stamp.sequence,
	};
}

static bool replica_in(const struct master_replica *from, struct neap_key_replica *replica)
{
	*replica = (struct neap_key_replica){
		.port = (uint16_t)from->rpc_port,
		.size = from->object_size,
		.generation = from->generation,
		.has_crc = from->has_crc,
		.crc = (uint32_t)from->crc32c,
		.priority = limited(from->priority),
		.memory_type = (uint32_t)from->memory_type,
		.stamp = {from->stamp_epoch, from->stamp_sequence},
	};
	return neap_master_id(from->client_id, &replica->client) && neap_master_id(from->segment_id, &replica->segment) &&
	       neap_master_text(from->ip_address, replica->host, sizeof replica->host);
}

int neap_master_answer_replicas(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_replicas *from = &call->as.replicas;
	struct master_part *items = neap_master_take(arena, from->count, sizeof *items);
	struct master_replica *replicas = neap_master_take(arena, from->replicas_used, sizeof *replicas);
	if (!items || !replicas)
		return NEAP_ELIMIT;
	for (uint32_t i = 0; i < from->count; i++)
		items[i] = (struct master_part){from->items[i].error, from->items[i].first, from->items[i].count};
	for (uint32_t i = 0; i < from->replicas_used; i++)
		replicas[i] = replica_out(&from->replicas[i]);
	*(struct master_replicas_reply *)message = (struct master_replicas_reply){
		.items = neap_master_list(items, from->count), .replicas = neap_master_list(replicas, from->replicas_used)};
	return NEAP_OK;
}

int neap_master_learn_replicas(struct neap_key_call *call, const void *message)
{
	const struct master_replicas_reply *from = message;
	const struct master_part *items = from->items.items;
	const struct master_replica *replicas = from->replicas.items;
	struct neap_key_replicas *to = &call->as.replicas;
	if (from->items.count != to->count || from->replicas.count > to->replicas_max)
		return NEAP_STORE_RPC_FAIL;
	for (uint32_t i = 0; i < to->count; i++) {
		if (!sound(&items[i], from->replicas.count))
			return NEAP_STORE_RPC_FAIL;
		to->items[i].error = (int)items[i].error_code;
		to->items[i].first = (uint32_t)items[i].first;
		to->items[i].count = (uint32_t)items[i].count;
	}
	for (uint32_t i = 0; i < from->replicas.count; i++)
		if (!replica_in(&replicas[i], &to->replicas[i]))
			return NEAP_STORE_RPC_FAIL;
	to->replicas_used = from->replicas.count;
	return NEAP_OK;
}

/* --- exist, count ------------------------------------------------------------------------------------------------------- */

int neap_master_ask_exist(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	struct master_exist *to = message;
	to->keys = keys_out(arena, call->as.exist.items, call->as.exist.count);
	return to->keys.items ? NEAP_OK : NEAP_EINVAL;
}

int neap_master_take_exist(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_exist *from = message;
	call->as.exist = (struct neap_key_exist){.items = keys_in(arena, from->keys), .count = from->keys.count};
	return call->as.exist.items ? NEAP_OK : NEAP_EAGAIN;
}

int neap_master_answer_exist(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_exist *from = &call->as.exist;
	struct master_result *results = neap_master_take(arena, from->count, sizeof *results);
	for (uint32_t i = 0; results && i < from->count; i++)
		results[i].error_code = from->items[i].error;
	*(struct master_exist_reply *)message = (struct master_exist_reply){.keys = neap_master_list(results, from->count)};
	return results ? NEAP_OK : NEAP_ELIMIT;
}

int neap_master_learn_exist(struct neap_key_call *call, const void *message)
{
	const struct master_exist_reply *from = message;
	const struct master_result *results = from->keys.items;
	if (from->keys.count != call->as.exist.count)
		return NEAP_STORE_RPC_FAIL;
	for (uint32_t i = 0; i < from->keys.count; i++)
		call->as.exist.items[i].error = (int)results[i].error_code;
	return NEAP_OK;
}

int neap_master_ask_count(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	(void)call;
	(void)arena;
	*(struct master_done *)message = (struct master_done){0};
	return NEAP_OK;
}

int neap_master_take_count(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	(void)call;
	(void)arena;
	(void)message;
	return NEAP_OK;
}

int neap_master_answer_count(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_count *from = &call->as.count;
	(void)arena;
	*(struct master_count_reply *)message =
		(struct master_count_reply){.keys = from->keys, .replicas = from->replicas, .complete = from->complete};
	return NEAP_OK;
}

int neap_master_learn_count(struct neap_key_call *call, const void *message)
{
	const struct master_count_reply *from = message;
	call->as.count = (struct neap_key_count){.keys = from->keys, .replicas = from->replicas, .complete = from->complete};
	return NEAP_OK;
}

/* --- list --------------------------------------------------------------------------------------------------------------- */

int neap_master_ask_list(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_list *from = &call->as.list;
	(void)arena;
	*(struct master_list *)message = (struct master_list){
		.regex = neap_rpc_view_of(from->pattern.text, from->pattern.length),
		.cursor = from->cursor,
		.keys_max = from->keys_max < NEAP_MASTER_PAGE_MAX ? from->keys_max : NEAP_MASTER_PAGE_MAX,
		.text_max = from->text_size < NEAP_MASTER_PAGE_TEXT_MAX ? from->text_size : NEAP_MASTER_PAGE_TEXT_MAX,
	};
	return NEAP_OK;
}

int neap_master_take_list(struct neap_key_call *call, struct neap_master_arena *arena, const void *message)
{
	const struct master_list *from = message;
	struct neap_key_list *to = &call->as.list;
	to->cursor = from->cursor;
	to->keys_max = (uint32_t)from->keys_max;
	to->text_size = (uint32_t)from->text_max;
	to->keys = neap_master_take(arena, to->keys_max, sizeof *to->keys);
	to->text = neap_master_take(arena, to->text_size, 1);
	return to->keys && to->text && neap_master_key_in(arena, from->regex, &to->pattern) ? NEAP_OK : NEAP_EAGAIN;
}

int neap_master_answer_list(const struct neap_key_call *call, struct neap_master_arena *arena, void *message)
{
	const struct neap_key_list *from = &call->as.list;
	struct master_key *keys = neap_master_take(arena, from->count, sizeof *keys);
	for (uint32_t i = 0; keys && i < from->count; i++)
		keys[i].key = neap_rpc_view_of(from->text + from->keys[i].offset, from->keys[i].length);
	*(struct master_list_reply *)message = (struct master_list_reply){
		.why = neap_master_text_view(from->why, sizeof from->why),
		.cursor = from->cursor,
		.complete = from->complete,
		.keys = neap_master_list(keys, from->count),
	};
	return keys ? NEAP_OK : NEAP_ELIMIT;
}

int neap_master_learn_list(struct neap_key_call *call, const void *message)
{
	const struct master_list_reply *from = message;
	const struct master_key *keys = from->keys.items;
	struct neap_key_list *to = &call->as.list;
	uint32_t used = 0;
	to->count = 0;
	if (from->keys.count > to->keys_max || !neap_master_text(from->why, to->why, sizeof to->why))
		return NEAP_STORE_RPC_FAIL;
	for (uint32_t i = 0; i < from->keys.count; i++) {
		if (keys[i].key.length > to->text_size - used)
			return NEAP_STORE_RPC_FAIL;
		if (keys[i].key.length)
			memcpy(to->text + used, keys[i].key.bytes, keys[i].key.length);
		to->keys[i] = (struct neap_key_listed){.offset = used, .length = keys[i].key.length};
		used += keys[i].key.length;
	}
	if (from->error_code)
		return from->error_code < 0 ? (int)from->error_code : NEAP_STORE_RPC_FAIL;
	to->count = from->keys.count;
	to->cursor = from->cursor;
	to->complete = from->complete;
	return NEAP_OK;
}
