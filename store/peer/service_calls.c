/* How a call of the service begins, is counted and is answered. */
#include "store/peer/service_inside.h"
#include <string.h>

bool peer_begin(struct neap_peer_service *service, const struct neap_rpc_incoming *incoming, const struct neap_rpc_method *method,
                struct peer_call *call_p)
{
	*call_p = (struct peer_call){
		.service = service,
		.handle = incoming->handle,
		.connection = incoming->connection,
		.begun_ns = neap_now(service->reactor),
		.deadline_ns = incoming->deadline_ns,
		.instance = incoming->instance,
		.method = method->number - 1,
	};
	service->stats.methods[call_p->method].requests++;
	if (!service->draining)
		return true;
	service->stats.refused_draining++;
	peer_refuse(call_p, NEAP_STORE_UNAVAILABLE_IN_CURRENT_STATUS, "this owner is leaving", 0);
	return false;
}

static bool is_read(uint32_t method)
{
	uint32_t number = method + 1;
	return number == neap_method_pin_key.number || number == neap_method_read_remote_data.number || number == neap_method_look_up.number;
}

static void count(const struct peer_call *call, int error, bool miss)
{
	struct neap_peer_method_stats *stats = &call->service->stats.methods[call->method];
	bool failed = error != NEAP_STORE_OK && !miss;
	stats->failures += failed;
	stats->hits += is_read(call->method) && error == NEAP_STORE_OK && !miss;
	stats->misses += miss;
	neap_latency_note(failed ? &stats->failure : &stats->success, neap_now(call->service->reactor) - call->begun_ns);
}

static void say(const struct peer_call *call, int error, const void *reply, const char *why, uint64_t retry_after_ms)
{
	struct neap_peer_service *service = call->service;
	if (!service->rpc || neap_rpc_answer(service->rpc, call->handle, error, reply, why, retry_after_ms) == NEAP_ESTALE)
		service->stats.unheard++;
}

void peer_answer(const struct peer_call *call, const void *reply)
{
	/* "there is none" is LookUp's answer and no refusal */
	bool miss = call->method + 1 == neap_method_look_up.number && !((const struct look_up_reply *)reply)->exists;
	count(call, NEAP_STORE_OK, miss);
	say(call, NEAP_STORE_OK, reply, NULL, 0);
}

void peer_refuse(const struct peer_call *call, int error, const char *why, uint64_t retry_after_ns)
{
	bool busy = error == NEAP_STORE_NO_AVAILABLE_HANDLE || error == NEAP_STORE_REPLICA_IS_PROCESSING;
	uint64_t wait_ns = busy && !retry_after_ns ? PEER_RETRY_NS : retry_after_ns;
	count(call, error, error == NEAP_STORE_OBJECT_NOT_FOUND && is_read(call->method));
	say(call, error, NULL, why ? why : neap_store_error_text(error), wait_ns / 1000000 + (wait_ns % 1000000 != 0));
}

struct peer_operation *peer_operation_begin(const struct peer_call *call, const struct neap_key *key)
{
	struct neap_peer_service *service = call->service;
	struct peer_operation *operation = neap_pool_take(&service->operations);
	if (!operation) {
		peer_refuse(call, NEAP_STORE_NO_AVAILABLE_HANDLE, "too many commits and transfers are under way (operations_max)", 0);
		return NULL;
	}
	*operation = (struct peer_operation){.call = *call, .key_length = key->length};
	operation->call.instance = NULL;
	if (key->length > PEER_KEY_INSIDE) {
		operation->key_outside = neap_allocate(service->reactor, key->length);
		if (!operation->key_outside) {
			neap_pool_give(&service->operations, operation);
			peer_refuse(call, NEAP_STORE_NO_AVAILABLE_HANDLE, "no memory for a long key", 0);
			return NULL;
		}
	}
	memcpy(operation->key_outside ? operation->key_outside : operation->key_inside, key->bytes, key->length);
	return operation;
}

struct peer_call peer_operation_end(struct peer_operation *operation)
{
	struct peer_call call = operation->call;
	struct neap_peer_service *service = call.service;
	if (operation->key_outside)
		neap_release(service->reactor, operation->key_outside, operation->key_length);
	neap_pool_give(&service->operations, operation);
	if (service->closing)
		neap_ready_again(service->reactor, &service->ending);
	return call;
}
