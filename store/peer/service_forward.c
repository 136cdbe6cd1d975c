/* PreWrite, WriteCommit, WriteRevoke, PinKey, UnPinKey: the accessor moves the bytes itself. */
#include "store/peer/service_inside.h"
#include "store/peer/token.h"
#include <string.h>

/* --- what grants have in common ------------------------------------------------------------------------------------------ */

static struct remote_slice buffer_of(struct neap_peer_service *service, const void *address, uint64_t size,
                                     const struct neap_grant_token *token)
{
	const char *name = neap_engine_name(service->engine);
	struct remote_slice slice = {
		.segment = neap_rpc_view_of(name, strlen(name)),
		.address = (uint64_t)(uintptr_t)address,
		.length = size,
	};
	peer_token_tell(&slice, token);
	return slice;
}

/* The owner's number for whoever gets the grant. Instances are random. */
static uint64_t peer_number(const struct neap_rpc_view *engine)
{
	uint64_t number;
	memcpy(&number, engine->bytes, sizeof number);
	return number;
}

/* A grant may be asked for only by the process that the engine is of. */
static bool names_own_engine(const struct peer_call *call, const struct neap_key *key, const struct neap_rpc_view *engine)
{
	struct neap_peer_service *service = call->service;
	if (key->length == 0 || engine->length != 16) {
		peer_refuse(call, NEAP_STORE_INVALID_PARAMS, key->length == 0 ? "the key is empty" : "an engine instance has 16 bytes", 0);
		return false;
	}
	if (service->options.is_own ? service->options.is_own(service->options.user, call->instance, NULL, (const uint8_t *)engine->bytes)
	                            : memcmp(call->instance, engine->bytes, engine->length) == 0)
		return true;
	service->stats.refused_foreign++;
	peer_refuse(call, NEAP_STORE_ILLEGAL_CLIENT, "the engine is not the caller's own", 0);
	return false;
}

/* At the quota a key that could not be reserved anyway is told as what it is. */
static void refuse_for_quota(const struct peer_call *call, enum peer_kind kind, const struct neap_key *key, uint64_t wait_ns)
{
	struct neap_key_facts facts;
	neap_owner_look_up(call->service->owner, key, &facts);
	if (kind == PEER_WRITE && facts.pending) {
		peer_refuse(call, NEAP_STORE_REPLICA_IS_PROCESSING, NULL, wait_ns);
	} else if (kind == PEER_WRITE && facts.exists) {
		peer_refuse(call, NEAP_STORE_OBJECT_ALREADY_EXISTS, NULL, 0);
	} else if (kind == PEER_PIN && !facts.exists) {
		peer_refuse(call, NEAP_STORE_OBJECT_NOT_FOUND, NULL, 0);
	} else {
		call->service->stats.refused_quota++;
		peer_refuse(call, NEAP_STORE_NO_AVAILABLE_HANDLE,
		            kind == PEER_WRITE ? "as many reservations are held as there may be" : "as many pins are held as there may be",
		            wait_ns);
	}
}

/* --- writes --------------------------------------------------------------------------------------------------------------- */

void peer_pre_write(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	const struct pre_write *pre_write = request;
	struct neap_peer_service *service = user;
	struct neap_key key = peer_key(pre_write->key);
	struct neap_write_grant grant;
	struct peer_call call;
	uint64_t wait_ns;
	peer_finish_pins(service, incoming->instance, &pre_write->finished);
	if (!peer_begin(service, incoming, &neap_method_pre_write, &call))
		return;
	if (pre_write->size_bytes == 0) {
		peer_refuse(&call, NEAP_STORE_INVALID_PARAMS, "a value has at least one byte", 0);
		return;
	}
	if (!names_own_engine(&call, &key, &pre_write->engine))
		return;
	wait_ns = peer_wait_for_room(service, &call, PEER_WRITE);
	if (wait_ns) {
		refuse_for_quota(&call, PEER_WRITE, &key, wait_ns);
		return;
	}
	struct neap_prewrite prewrite = {
		.key = key,
		.size = pre_write->size_bytes,
		.tier = pre_write->has_tier ? (uint32_t)pre_write->target_tier : NEAP_TIER_ANY,
		.peer = peer_number(&pre_write->engine),
		.instance = (const uint8_t *)pre_write->engine.bytes,
	};
	int error = neap_owner_prewrite(service->owner, &prewrite, &grant, &wait_ns);
	if (error) {
		peer_refuse(&call, error, NULL, wait_ns);
		return;
	}
	if (!peer_hold(service, &call, PEER_WRITE, &key, grant.write_id, grant.lease_ns)) {
		neap_owner_write_lost(service->owner, grant.write_id);
		peer_refuse(&call, NEAP_STORE_NO_AVAILABLE_HANDLE, NULL, 0);
		return;
	}
	struct remote_slice buffer = buffer_of(service, grant.address, grant.size, &grant.token);
	peer_answer(&call, &(struct pre_write_reply){.write_operation_id = grant.write_id,
	                                             .remote_buffer = {&buffer, 1},
	                                             .lease_ms = grant.lease_ns / 1000000});
}

/* False: it was refused. What nobody holds is for the owner to judge: it may have ended, be committed, or never have been. */
static bool names_own_holding(const struct peer_call *call, enum peer_kind kind, const struct neap_key *key, uint64_t id,
                              struct peer_holding **holding_p)
{
	if (key->length == 0 || id == 0) {
		peer_refuse(call, NEAP_STORE_INVALID_PARAMS, key->length == 0 ? "the key is empty" : "an operation id is never 0", 0);
		return false;
	}
	*holding_p = peer_held(call->service, kind, id);
	if (*holding_p && !(*holding_p)->connection) {
		peer_refuse(call, NEAP_STORE_LEASE_EXPIRED, "its lease has ended, or its connection has", 0);
		return false;
	}
	if (!*holding_p || peer_holds(*holding_p, call->instance, key))
		return true;
	call->service->stats.refused_foreign++;
	peer_refuse(call, kind == PEER_WRITE ? NEAP_STORE_INVALID_WRITE : NEAP_STORE_INVALID_READ, NULL, 0);
	return false;
}

static void committed(void *user, int error, uint64_t generation)
{
	struct peer_operation *operation = user;
	struct committed_reply reply = {
		.generation = generation,
		.size_bytes = operation->size,
		.created = true,
		.has_crc = operation->has_crc,
		.crc32c = operation->crc,
	};
	if (!error) {
		peer_settle(operation, &reply);
		return;
	}
	struct peer_call call = peer_operation_end(operation);
	peer_refuse(&call, error, NULL, 0);
}

void peer_write_commit(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	const struct write_commit *write_commit = request;
	struct neap_peer_service *service = user;
	struct neap_key key = peer_key(write_commit->key);
	struct peer_holding *holding;
	struct peer_call call;
	if (!peer_begin(service, incoming, &neap_method_write_commit, &call) ||
	    !names_own_holding(&call, PEER_WRITE, &key, write_commit->write_operation_id, &holding))
		return;
	struct neap_commit commit = {
		.key = key,
		.write_id = write_commit->write_operation_id,
		.size = write_commit->size_bytes,
		.has_crc = write_commit->has_crc,
		.crc = (uint32_t)write_commit->crc32c,
	};
	struct peer_operation *operation = peer_operation_begin(&call, &key);
	if (!operation)
		return;
	operation->size = commit.size;
	operation->has_crc = commit.has_crc;
	operation->crc = commit.crc;
	int error = neap_owner_commit(service->owner, &commit, committed, operation);
	/* accepted: from here on it ends by itself, also without its accessor */
	if (holding && (error == NEAP_STORE_OK || error == NEAP_STORE_LEASE_EXPIRED))
		peer_let_go(service, PEER_WRITE, holding);
	if (error) {
		(void)peer_operation_end(operation);
		peer_refuse(&call, error, NULL, 0);
	}
}

void peer_write_revoke(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	const struct write_revoke *write_revoke = request;
	struct neap_peer_service *service = user;
	struct neap_key key = peer_key(write_revoke->key);
	struct peer_holding *holding;
	struct peer_call call;
	if (!peer_begin(service, incoming, &neap_method_write_revoke, &call) ||
	    !names_own_holding(&call, PEER_WRITE, &key, write_revoke->write_operation_id, &holding))
		return;
	int error = neap_owner_revoke(service->owner, &key, write_revoke->write_operation_id, write_revoke->quiet);
	if (holding && (error == NEAP_STORE_OK || error == NEAP_STORE_LEASE_EXPIRED))
		peer_let_go(service, PEER_WRITE, holding);
	if (error)
		peer_refuse(&call, error, NULL, 0);
	else
		peer_answer(&call, &(struct empty_reply){0});
}

/* --- pins ----------------------------------------------------------------------------------------------------------------- */

void peer_pin_key(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	const struct pin_key *pin_key = request;
	struct neap_peer_service *service = user;
	struct neap_key key = peer_key(pin_key->key);
	struct neap_value value;
	struct peer_call call;
	peer_finish_pins(service, incoming->instance, &pin_key->finished);
	if (!peer_begin(service, incoming, &neap_method_pin_key, &call) || !names_own_engine(&call, &key, &pin_key->engine))
		return;
	struct neap_key_facts facts;
	neap_owner_look_up(service->owner, &key, &facts);
	if (!peer_is_settled(&call, &key, &facts))
		return;
	uint64_t wait_ns = peer_wait_for_room(service, &call, PEER_PIN);
	if (wait_ns) {
		refuse_for_quota(&call, PEER_PIN, &key, wait_ns);
		return;
	}
	if (facts.exists && !facts.in_memory) {
		peer_pin_cold(&call, &key, (const uint8_t *)pin_key->engine.bytes);
		return;
	}
	struct neap_pin pin = {.key = key, .peer = peer_number(&pin_key->engine), .instance = (const uint8_t *)pin_key->engine.bytes};
	int error = neap_owner_hold(service->owner, &key, &value);
	if (error) {
		peer_refuse(&call, error, NULL, 0);
		return;
	}
	peer_answer_pin(&call, &pin, &value);
	(void)neap_handle_drop(value.handle);
}

void peer_answer_pin(const struct peer_call *call, const struct neap_pin *pin, const struct neap_value *value)
{
	struct neap_peer_service *service = call->service;
	struct neap_read_grant grant;
	int error = neap_owner_pin_value(service->owner, pin, value, &grant);
	if (error) {
		peer_refuse(call, error, NULL, 0);
		return;
	}
	if (!peer_hold(service, call, PEER_PIN, &pin->key, grant.read_id, grant.lease_ns)) {
		neap_owner_pin_lost(service->owner, grant.read_id);
		peer_refuse(call, NEAP_STORE_NO_AVAILABLE_HANDLE, NULL, 0);
		return;
	}
	struct remote_slice buffer = buffer_of(service, grant.address, grant.size, &grant.token);
	peer_answer(call, &(struct pin_key_reply){.read_operation_id = grant.read_id,
	                                           .remote_buffer = {&buffer, 1},
	                                           .lease_ms = grant.lease_ns / 1000000,
	                                           .generation = grant.generation,
	                                           .has_crc = grant.has_crc,
	                                           .crc32c = grant.crc});
}

static int unpin(struct neap_peer_service *service, const struct neap_key *key, uint64_t id, struct peer_holding *holding)
{
	int error = neap_owner_unpin(service->owner, key, id);
	if (holding && (error == NEAP_STORE_OK || error == NEAP_STORE_LEASE_EXPIRED))
		peer_let_go(service, PEER_PIN, holding);
	return error;
}

void peer_un_pin_key(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	const struct un_pin_key *un_pin_key = request;
	struct neap_peer_service *service = user;
	struct neap_key key = peer_key(un_pin_key->key);
	struct peer_holding *holding;
	struct peer_call call;
	if (!peer_begin(service, incoming, &neap_method_un_pin_key, &call))
		return;
	peer_finish_pins(service, incoming->instance, &un_pin_key->finished);
	if (!names_own_holding(&call, PEER_PIN, &key, un_pin_key->read_operation_id, &holding))
		return;
	int error = unpin(service, &key, un_pin_key->read_operation_id, holding);
	if (error)
		peer_refuse(&call, error, NULL, 0);
	else
		peer_answer(&call, &(struct empty_reply){0});
}

void peer_finish_pins(struct neap_peer_service *service, const uint8_t instance[16], const struct neap_rpc_list *finished)
{
	const struct finished_pin *pins = finished->items;
	for (uint32_t i = 0; i < finished->count; i++) {
		struct neap_key key = peer_key(pins[i].key);
		struct peer_holding *holding = peer_held(service, PEER_PIN, pins[i].read_operation_id);
		if (holding && holding->connection && peer_holds(holding, instance, &key))
			(void)unpin(service, &key, pins[i].read_operation_id, holding);
	}
}
