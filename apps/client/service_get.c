/* Values that go out: the store gets one into a transfer's memory, then the caller takes it. */
#include "apps/client/service_inside.h"
#include <inttypes.h>
#include <string.h>

static void get_done(void *user, const struct neap_store_outcome *outcome);

void local_on_get_begin(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct client_service *service = user;
	const struct local_get_begin *begin = request;
	struct local_transfer *transfer = local_begin(service, incoming, begin->key);
	if (!transfer)
		return;
	uint64_t first = service->options.bytes < LOCAL_GET_FIRST ? service->options.bytes : LOCAL_GET_FIRST;
	transfer->is_get = true;
	transfer->direction = (uint8_t)begin->direction;
	transfer->verify = begin->verify;
	local_want_memory(transfer, first);
}

void local_get_granted(struct local_transfer *transfer)
{
	struct client_service *service = transfer->service;
	struct neap_key key = {.bytes = transfer->key, .length = transfer->key_length};
	struct neap_get_options options = {
		.direction = (enum neap_direction)transfer->direction,
		.deadline_ns = local_time_left(service, transfer->deadline_ns),
		.verify = transfer->verify,
		.released = local_released,
	};
	transfer->phase = LOCAL_FETCHING;
	transfer->rounds++;
	int error = neap_store_get(service->store, &key, transfer->pieces.slices, transfer->pieces.count, &options, get_done, transfer,
	                           &transfer->operation);
	transfer->asked = !error;
	if (!error)
		return;
	local_refuse(service, transfer->call, local_status_of(error), "the store does not take it: %s", neap_error_text(error));
	local_leave(transfer);
}

static void answer_get(struct local_transfer *transfer, const struct neap_store_outcome *outcome)
{
	struct client_service *service = transfer->service;
	struct local_get_begin_reply reply = {
		.transfer = neap_pool_handle(&service->transfers, transfer),
		.frame_max = LOCAL_FRAME_BYTES,
		.size_bytes = outcome->size,
		.generation = outcome->generation,
		.local = outcome->local,
		.has_crc = outcome->has_crc || transfer->verify,
		.crc_of_owner = outcome->has_crc,
		.crc32c = outcome->crc,
	};
	if (!outcome->has_crc && transfer->verify)
		reply.crc32c = client_pieces_crc(&transfer->pieces, outcome->size);
	if (outcome->place)
		reply.owner = neap_rpc_view_of(outcome->place->rpc, strlen(outcome->place->rpc));
	transfer->size = outcome->size;
	transfer->phase = LOCAL_SENDING;
	service->stats.gets++;
	local_touch(transfer);
	local_answer(service, transfer->call, &reply);
	transfer->call = 0;
}

static void get_done(void *user, const struct neap_store_outcome *outcome)
{
	struct local_transfer *transfer = user;
	struct client_service *service = transfer->service;
	local_outcome(transfer, outcome);
	bool listens = transfer->phase == LOCAL_FETCHING;
	if (listens && outcome->status == NEAP_STORE_SUCCESS && !outcome->held) {
		answer_get(transfer, outcome);
		return;
	}
	bool longer = outcome->error == NEAP_STORE_BUFFER_OVERFLOW && outcome->size > transfer->wanted;
	if (listens && longer && !outcome->held && transfer->rounds < LOCAL_ROUNDS_MAX) {
		client_buffers_give(&service->buffers, &transfer->pieces);
		local_want_memory(transfer, outcome->size);
		neap_ready_again(service->reactor, &service->serve);
		return;
	}
	if (listens)
		(void)neap_rpc_answer(service->rpc, transfer->call, outcome->error ? outcome->error : NEAP_STORE_INTERNAL_ERROR, NULL,
		                      outcome->why, outcome->retry_after_ms);
	local_leave(transfer);
}

/* Straight from the memory, or, where a frame lies in two pieces, from a copy. */
void local_on_get_data(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct client_service *service = user;
	const struct local_get_data *get = request;
	struct local_transfer *transfer = local_find(service, incoming, get->transfer, LOCAL_SENDING);
	if (!transfer)
		return;
	if (!get->length || get->offset > transfer->size || get->length > transfer->size - get->offset) {
		local_refuse(service, incoming->handle, NEAP_STORE_INVALID_PARAMS, "the value has %" PRIu64 " bytes, not %" PRIu64 " at %" PRIu64,
		             transfer->size, get->length, get->offset);
		return;
	}
	uint64_t length;
	const void *bytes = client_pieces_at(&transfer->pieces, get->offset, get->length, &length);
	if (length < get->length) {
		client_pieces_read(&transfer->pieces, get->offset, service->scratch, get->length);
		bytes = service->scratch;
	}
	service->stats.bytes_out += get->length;
	if (transfer->done < get->offset + get->length)
		transfer->done = get->offset + get->length;
	local_touch(transfer);
	local_answer(service, incoming->handle, &(struct local_get_data_reply){.data = neap_rpc_view_of(bytes, get->length)});
}
