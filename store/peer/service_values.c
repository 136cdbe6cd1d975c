/* LookUp, RemoveKey, Describe: they touch no bytes. */
#include "store/peer/service_inside.h"
#include <string.h>

static bool key_is_right(const struct peer_call *call, const struct neap_key *key)
{
	if (key->length == 0)
		peer_refuse(call, NEAP_STORE_INVALID_PARAMS, "the key is empty", 0);
	return key->length > 0;
}

void peer_look_up(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	const struct look_up *look_up = request;
	struct neap_peer_service *service = user;
	struct neap_key key = peer_key(look_up->key);
	struct neap_key_facts facts;
	struct peer_call call;
	if (!peer_begin(service, incoming, &neap_method_look_up, &call) || !key_is_right(&call, &key))
		return;
	neap_owner_look_up(service->owner, &key, &facts);
	struct look_up_reply reply = {.exists = facts.exists,
	                              .same_write = look_up->write_operation_id && facts.write_id == look_up->write_operation_id,
	                              .pending = facts.pending,
	                              .size_bytes = facts.size,
	                              .generation = facts.generation,
	                              .has_crc = facts.has_crc,
	                              .crc32c = facts.crc};
	peer_settle_look(&call, &key, &reply);
}

void peer_remove_key(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	const struct remove_key *remove_key = request;
	struct neap_peer_service *service = user;
	struct neap_key key = peer_key(remove_key->key);
	struct neap_key_facts facts;
	struct peer_call call;
	if (!peer_begin(service, incoming, &neap_method_remove_key, &call) || !key_is_right(&call, &key))
		return;
	neap_owner_look_up(service->owner, &key, &facts);
	bool meant = facts.exists && (!remove_key->generation || remove_key->generation == facts.generation);
	int error = meant ? neap_owner_remove(service->owner, &key) : NEAP_STORE_OBJECT_NOT_FOUND;
	if (error)
		peer_refuse(&call, error, facts.exists && !meant ? "the key has another generation's value" : NULL, 0);
	else
		peer_answer(&call, &(struct empty_reply){0});
}

void peer_describe(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct neap_peer_service *service = user;
	struct peer_call call;
	(void)request;
	if (!peer_begin(service, incoming, &neap_method_describe, &call))
		return;
	const char *name = neap_engine_name(service->engine);
	peer_answer(&call, &(struct described){.engine = neap_rpc_view_of(name, strlen(name))});
}
