/* WriteRemoteData and ReadRemoteData: the owner moves the bytes, or they are small and travel inside the call. */
#include "store/peer/service_inside.h"
#include "store/peer/token.h"
#include "transports/checksum.h"
#include <string.h>

/* The caller's buffers, as the owner wants them. */
struct peer_slices {
	char segment[256];
	struct neap_remote_slice slices[NEAP_MOVE_SLICES_MAX];
	uint32_t count;
	uint64_t bytes;
};

static const char *wrong_with(const struct remote_slice *slice, const struct remote_slice *first, uint64_t bytes)
{
	if (slice->address == 0 || slice->length == 0)
		return "a buffer has an address and a length";
	if (slice->length > UINT64_MAX - slice->address || slice->length > UINT64_MAX - bytes)
		return "a buffer goes beyond the end of the address space";
	if (slice->token.length != PEER_TOKEN_BYTES)
		return "a buffer's token has 32 bytes";
	if (slice->segment.length == 0 || memchr(slice->segment.bytes, 0, slice->segment.length))
		return "a segment's name is text";
	if (slice->segment.length != first->segment.length || memcmp(slice->segment.bytes, first->segment.bytes, first->segment.length) != 0)
		return "the buffers of one call are of one segment";
	return NULL;
}

/* False: it was refused. */
static bool read_slices(const struct peer_call *call, const struct neap_rpc_list *list, struct peer_slices *out)
{
	struct neap_peer_service *service = call->service;
	const struct remote_slice *from = list->items;
	const char *wrong = list->count == 0 || list->count > NEAP_MOVE_SLICES_MAX ? "there are no buffers, or too many" : NULL;
	out->count = wrong ? 0 : list->count;
	out->bytes = 0;
	for (uint32_t i = 0; i < out->count && !wrong; i++) {
		wrong = wrong_with(&from[i], &from[0], out->bytes);
		if (wrong)
			break;
		out->slices[i] = (struct neap_remote_slice){.segment = out->segment, .address = from[i].address, .length = from[i].length};
		peer_token_take(&from[i], &out->slices[i].token);
		out->bytes += from[i].length;
	}
	if (wrong) {
		peer_refuse(call, NEAP_STORE_INVALID_PARAMS, wrong, 0);
		return false;
	}
	memcpy(out->segment, from[0].segment.bytes, from[0].segment.length);
	out->segment[from[0].segment.length] = '\0';
	if (!service->options.is_own || service->options.is_own(service->options.user, call->instance, out->segment, NULL))
		return true;
	service->stats.refused_foreign++;
	peer_refuse(call, NEAP_STORE_ILLEGAL_CLIENT, "the buffers are not in a segment of the caller's own", 0);
	return false;
}

static void refuse_move(const struct peer_call *call, int error)
{
	peer_refuse(call, error, NULL, 0);
}

/* --- WriteRemoteData ------------------------------------------------------------------------------------------------------- */

/* The key has a value. The same one, as far as anybody knows: its facts. Known to be another: a refusal. */
static void answer_existing(const struct peer_call *call, const struct write_remote_data *request, uint64_t size)
{
	struct neap_key key = peer_key(request->key);
	struct neap_key_facts facts;
	neap_owner_look_up(call->service->owner, &key, &facts);
	bool has_crc = request->has_crc;
	uint32_t crc = (uint32_t)request->crc32c;
	if (facts.has_crc && request->value.length) {
		has_crc = true;
		crc = neap_crc32c(0, request->value.bytes, request->value.length);
	}
	if (facts.size != size || (facts.has_crc && has_crc && facts.crc != crc)) {
		peer_refuse(call, NEAP_STORE_OBJECT_ALREADY_EXISTS, "the key has another value already", 0);
		return;
	}
	peer_settle_call(call, &key,
	                 &(struct committed_reply){.generation = facts.generation,
	                                           .size_bytes = facts.size,
	                                           .created = false,
	                                           .has_crc = facts.has_crc,
	                                           .crc32c = facts.crc});
}

static void write_inside(const struct peer_call *call, const struct write_remote_data *request)
{
	struct neap_key key = peer_key(request->key);
	struct committed_reply reply = {.size_bytes = request->value.length, .created = true};
	if (request->has_crc && neap_crc32c(0, request->value.bytes, request->value.length) != (uint32_t)request->crc32c) {
		peer_refuse(call, NEAP_STORE_DATA_COPY_FAILED, "the bytes are not what their crc32c says", 0);
		return;
	}
	struct neap_copy copy = {
		.key = key,
		.bytes = request->value.bytes,
		.size = request->value.length,
		.tier = request->has_tier ? (uint32_t)request->target_tier : NEAP_TIER_ANY,
		.has_crc = request->has_crc,
		.crc = (uint32_t)request->crc32c,
	};
	uint64_t retry_after_ns;
	/* Before the value is there: afterwards a refusal for want of room would be a lie. */
	struct peer_operation *operation = call->service->options.settle ? peer_operation_begin(call, &key) : NULL;
	if (call->service->options.settle && !operation)
		return;
	int error = neap_owner_put_copy(call->service->owner, &copy, &reply.generation, &retry_after_ns);
	if (error && operation)
		(void)peer_operation_end(operation);
	if (error == NEAP_STORE_OBJECT_ALREADY_EXISTS) {
		answer_existing(call, request, request->value.length);
		return;
	}
	if (error) {
		peer_refuse(call, error, NULL, retry_after_ns);
		return;
	}
	struct neap_key_facts facts;
	neap_owner_look_up(call->service->owner, &key, &facts);
	reply.has_crc = facts.has_crc;
	reply.crc32c = facts.crc;
	if (operation)
		peer_settle(operation, &reply);
	else
		peer_answer(call, &reply);
}

static void pulled(void *user, const struct neap_moved *moved)
{
	if (!moved->error) {
		peer_settle(user, &(struct committed_reply){.generation = moved->generation,
		                                            .size_bytes = moved->size,
		                                            .created = true,
		                                            .has_crc = moved->has_crc,
		                                            .crc32c = moved->crc});
		return;
	}
	struct peer_call call = peer_operation_end(user);
	refuse_move(&call, moved->error);
}

static void write_by_pull(const struct peer_call *call, const struct write_remote_data *request)
{
	struct neap_peer_service *service = call->service;
	struct peer_slices slices;
	if (!read_slices(call, &request->src_buffers, &slices))
		return;
	struct neap_move move = {
		.key = peer_key(request->key),
		.slices = slices.slices,
		.count = slices.count,
		.instance = service->options.is_own ? NULL : call->instance,
		.tier = request->has_tier ? (uint32_t)request->target_tier : NEAP_TIER_ANY,
		.has_crc = request->has_crc,
		.crc = (uint32_t)request->crc32c,
	};
	struct peer_operation *operation = peer_operation_begin(call, &move.key);
	uint64_t retry_after_ns;
	if (!operation)
		return;
	int error = neap_owner_pull(service->owner, &move, pulled, NULL, operation, &retry_after_ns);
	if (!error)
		return;
	(void)peer_operation_end(operation);
	if (error == NEAP_STORE_OBJECT_ALREADY_EXISTS)
		answer_existing(call, request, slices.bytes);
	else
		peer_refuse(call, error, NULL, retry_after_ns);
}

void peer_write_remote_data(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	const struct write_remote_data *write_remote_data = request;
	struct neap_peer_service *service = user;
	struct peer_call call;
	peer_finish_pins(service, incoming->instance, &write_remote_data->finished);
	if (!peer_begin(service, incoming, &neap_method_write_remote_data, &call))
		return;
	if (write_remote_data->key.length == 0)
		peer_refuse(&call, NEAP_STORE_INVALID_PARAMS, "the key is empty", 0);
	else if (write_remote_data->value.length && write_remote_data->src_buffers.count)
		peer_refuse(&call, NEAP_STORE_INVALID_PARAMS, "either buffers or the value itself", 0);
	else if (write_remote_data->value.length)
		write_inside(&call, write_remote_data);
	else
		write_by_pull(&call, write_remote_data);
}

/* --- ReadRemoteData -------------------------------------------------------------------------------------------------------- */

static void pushed(void *user, const struct neap_moved *moved)
{
	struct peer_call call = peer_operation_end(user);
	if (moved->error)
		refuse_move(&call, moved->error);
	else
		peer_answer(&call, &(struct read_remote_data_reply){.size_bytes = moved->size,
		                                                    .generation = moved->generation,
		                                                    .has_crc = moved->has_crc,
		                                                    .crc32c = moved->crc});
}

static void read_by_push(const struct peer_call *call, const struct neap_key *key, const struct peer_slices *slices)
{
	struct neap_move move = {.key = *key,
	                         .slices = slices->slices,
	                         .count = slices->count,
	                         .instance = call->service->options.is_own ? NULL : call->instance};
	struct peer_operation *operation = peer_operation_begin(call, key);
	if (!operation)
		return;
	int error = neap_owner_push(call->service->owner, &move, pushed, NULL, operation);
	if (!error)
		return;
	(void)peer_operation_end(operation);
	refuse_move(call, error);
}

static void read_inside(const struct peer_call *call, const struct neap_key *key)
{
	struct neap_value value;
	int error = neap_owner_hold(call->service->owner, key, &value);
	if (error) {
		refuse_move(call, error);
		return;
	}
	peer_answer_inside(call, &value);
	(void)neap_handle_drop(value.handle);
}

void peer_answer_inside(const struct peer_call *call, const struct neap_value *value)
{
	peer_answer(call, &(struct read_remote_data_reply){.size_bytes = value->size,
	                                                   .generation = value->generation,
	                                                   .has_crc = value->has_crc,
	                                                   .crc32c = value->crc,
	                                                   .is_inline = true,
	                                                   .value = neap_rpc_view_of(value->address, value->size)});
}

void peer_read_remote_data(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	const struct read_remote_data *read_remote_data = request;
	struct neap_peer_service *service = user;
	struct neap_key key = peer_key(read_remote_data->key);
	struct peer_slices slices = {.count = 0};
	struct neap_key_facts facts;
	struct peer_call call;
	peer_finish_pins(service, incoming->instance, &read_remote_data->finished);
	if (!peer_begin(service, incoming, &neap_method_read_remote_data, &call))
		return;
	bool buffers = read_remote_data->dest_buffers.count > 0;
	if (key.length == 0 || (!buffers && !read_remote_data->inline_max)) {
		peer_refuse(&call, NEAP_STORE_INVALID_PARAMS, key.length == 0 ? "the key is empty" : "there are no buffers", 0);
		return;
	}
	if (buffers && !read_slices(&call, &read_remote_data->dest_buffers, &slices))
		return;
	neap_owner_look_up(service->owner, &key, &facts);
	if (!peer_is_settled(&call, &key, &facts))
		return;
	bool fits = facts.exists && facts.size <= read_remote_data->inline_max;
	if (!facts.exists)
		refuse_move(&call, NEAP_STORE_OBJECT_NOT_FOUND);
	else if (buffers && slices.bytes != facts.size)
		peer_refuse(&call, NEAP_STORE_INVALID_PARAMS, "the buffers together are not as long as the value", 0);
	else if (fits && facts.in_memory)
		read_inside(&call, &key);
	else if (fits)
		peer_read_cold(&call, &key);
	else if (buffers)
		read_by_push(&call, &key, &slices);
	else /* without buffers the value must fit into the answer */
		peer_refuse(&call, NEAP_STORE_BUFFER_OVERFLOW, "the value is longer than inline_max, and there are no buffers", 0);
}
