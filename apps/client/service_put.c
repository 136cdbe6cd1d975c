/* Values that come in: the caller fills a transfer's memory, then the store puts it. */
#include "apps/client/service_inside.h"
#include "transports/checksum.h"
#include <inttypes.h>
#include <string.h>

void local_on_put_begin(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct client_service *service = user;
	const struct local_put_begin *begin = request;
	if (!begin->size_bytes) {
		local_refuse(service, incoming->handle, NEAP_STORE_INVALID_PARAMS, "a value has at least one byte");
		return;
	}
	struct local_transfer *transfer = local_begin(service, incoming, begin->key);
	if (!transfer)
		return;
	transfer->size = begin->size_bytes;
	local_want_memory(transfer, transfer->size);
}

void local_put_granted(struct local_transfer *transfer)
{
	struct client_service *service = transfer->service;
	transfer->phase = LOCAL_FILLING;
	local_touch(transfer);
	local_answer(service, transfer->call,
	             &(struct local_put_begin_reply){.transfer = neap_pool_handle(&service->transfers, transfer),
	                                             .frame_max = LOCAL_FRAME_BYTES});
	transfer->call = 0;
}

void local_on_put_data(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct client_service *service = user;
	const struct local_put_data *data = request;
	struct local_transfer *transfer = local_find(service, incoming, data->transfer, LOCAL_FILLING);
	if (!transfer)
		return;
	if (transfer->is_get || data->offset != transfer->done || data->data.length > transfer->size - transfer->done) {
		local_refuse(service, incoming->handle, NEAP_STORE_INVALID_PARAMS,
		             "bytes come in order: %" PRIu64 " of %" PRIu64 " are here, these are %u at %" PRIu64, transfer->done, transfer->size,
		             data->data.length, data->offset);
		local_leave(transfer);
		return;
	}
	client_pieces_write(&transfer->pieces, transfer->done, data->data.bytes, data->data.length);
	transfer->crc = neap_crc32c(transfer->crc, data->data.bytes, data->data.length);
	transfer->done += data->data.length;
	service->stats.bytes_in += data->data.length;
	local_touch(transfer);
	local_answer(service, incoming->handle, &(struct local_done){0});
}

/* --- the store's part ---------------------------------------------------------------------------------------------------------- */

static void put_done(void *user, const struct neap_store_outcome *outcome);

static void answer_put(struct local_transfer *transfer, const struct neap_store_outcome *outcome)
{
	struct local_put_end_reply reply = {
		.created = outcome->created,
		.local = outcome->local,
		.size_bytes = outcome->size,
		.generation = outcome->generation,
		.has_crc = outcome->has_crc,
		.crc32c = outcome->crc,
	};
	if (outcome->place)
		reply.owner = neap_rpc_view_of(outcome->place->rpc, strlen(outcome->place->rpc));
	local_answer(transfer->service, transfer->call, &reply);
}

/* The owner may have committed it: asks it, once. False: that cannot be asked now. */
static bool ask_what_became(struct local_transfer *transfer, const struct neap_store_outcome *outcome)
{
	struct neap_key key = {.bytes = transfer->key, .length = transfer->key_length};
	uint64_t now_ns = neap_now(transfer->service->reactor), left_ns = LOCAL_RESOLVE_NS;
	if (transfer->deadline_ns < now_ns + left_ns + LOCAL_ANSWER_NS) /* what the caller does not wait for is of no use to him */
		left_ns = transfer->deadline_ns > now_ns + LOCAL_ANSWER_NS ? transfer->deadline_ns - now_ns - LOCAL_ANSWER_NS : 0;
	transfer->rounds++;
	transfer->asked = left_ns && !neap_store_resolve(transfer->service->store, &key, outcome->unsettled, left_ns, put_done, transfer,
	                                                 &transfer->operation);
	return transfer->asked;
}

static void put_done(void *user, const struct neap_store_outcome *outcome)
{
	struct local_transfer *transfer = user;
	struct client_service *service = transfer->service;
	bool held = transfer->was_held;
	local_outcome(transfer, outcome);
	transfer->was_held |= held; /* a resolve has no memory of its own */
	bool listens = transfer->phase == LOCAL_STORING;
	if (outcome->status == NEAP_STORE_UNKNOWN && listens && !transfer->rounds && outcome->unsettled && ask_what_became(transfer, outcome))
		return;
	if (listens && outcome->status == NEAP_STORE_SUCCESS)
		answer_put(transfer, outcome);
	else if (listens && outcome->status == NEAP_STORE_UNKNOWN)
		local_refuse(service, transfer->call, NEAP_STORE_RPC_FAIL,
		             "whether the value was stored is not known: %s; ask again later with `neap-client stat`", outcome->why);
	else if (listens)
		(void)neap_rpc_answer(service->rpc, transfer->call, outcome->error ? outcome->error : NEAP_STORE_INTERNAL_ERROR, NULL,
		                      outcome->why, outcome->retry_after_ms);
	local_leave(transfer);
}

static void put(struct local_transfer *transfer)
{
	struct client_service *service = transfer->service;
	struct neap_key key = {.bytes = transfer->key, .length = transfer->key_length};
	struct neap_put_options options = {
		.direction = (enum neap_direction)transfer->direction,
		.deadline_ns = local_time_left(service, transfer->deadline_ns),
		.has_crc = transfer->has_crc,
		.crc = transfer->crc,
		.released = local_released,
	};
	service->stats.puts++;
	transfer->phase = LOCAL_STORING;
	neap_timer_cancel(service->reactor, &transfer->timer);
	int error = neap_store_put(service->store, &key, transfer->pieces.slices, transfer->pieces.count, &options, put_done, transfer,
	                           &transfer->operation);
	transfer->asked = !error;
	if (!error)
		return;
	local_refuse(service, transfer->call, local_status_of(error), "the store does not take it: %s", neap_error_text(error));
	local_leave(transfer);
}

void local_on_put_end(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct client_service *service = user;
	const struct local_put_end *end = request;
	struct local_transfer *transfer = local_find(service, incoming, end->transfer, LOCAL_FILLING);
	if (!transfer)
		return;
	transfer->call = incoming->handle;
	transfer->deadline_ns = incoming->deadline_ns;
	transfer->direction = (uint8_t)end->direction;
	transfer->has_crc = end->has_crc;
	if (transfer->done != transfer->size) {
		local_refuse(service, transfer->call, NEAP_STORE_INVALID_PARAMS, "%" PRIu64 " of %" PRIu64 " bytes came", transfer->done,
		             transfer->size);
		local_leave(transfer);
	} else if (end->has_crc && end->crc32c != transfer->crc) {
		local_refuse(service, transfer->call, NEAP_ECORRUPT, "the bytes that came have the crc32c %08x, and were to have %08x",
		             transfer->crc, (unsigned)end->crc32c);
		local_leave(transfer);
	} else {
		put(transfer);
	}
}
