/* One owner is asked to remove a key. */
#include "store/accessor/inside.h"
#include <string.h>

#define ATTEMPTS_MAX 3u

static void finish(struct accessor_removal *removal, int error, const char *why)
{
	struct neap_accessor *accessor = removal->accessor;
	void (*done)(void *user, int error, const char *why) = removal->done;
	void *user = removal->user;
	neap_rpc_id_finish(removal->peer->channel, &removal->id);
	neap_store_peer_put(removal->peer);
	neap_pool_give(&accessor->removals, removal);
	done(user, error, why);
	if (accessor->closing)
		neap_ready_again(accessor->reactor, &accessor->pump);
}

static int ask(struct accessor_removal *removal);

static void answered(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	struct accessor_removal *removal = user;
	struct neap_accessor *accessor = removal->accessor;
	(void)reply;
	bool answer = outcome->result == NEAP_RPC_OK || outcome->result == NEAP_RPC_REFUSED;
	if (answer) {
		finish(removal, outcome->status, outcome->why);
		return;
	}
	bool again = removal->attempts < ATTEMPTS_MAX && outcome->result != NEAP_RPC_CANCELED && outcome->result != NEAP_RPC_CLOSED &&
	             neap_now(accessor->reactor) < removal->deadline_ns;
	if (!again || ask(removal))
		finish(removal, accessor->closing ? (int)NEAP_ECANCELED : (int)NEAP_STORE_RPC_FAIL, outcome->why);
}

static int ask(struct accessor_removal *removal)
{
	struct neap_accessor *accessor = removal->accessor;
	struct remove_key request = {.key = {removal->key, removal->key_length}};
	uint64_t now_ns = neap_now(accessor->reactor), timeout_ns = accessor->options.call_timeout_ns;
	if (removal->deadline_ns - now_ns < timeout_ns)
		timeout_ns = removal->deadline_ns - now_ns;
	removal->attempts++;
	return neap_rpc_call(removal->peer->channel, &neap_method_remove_key, &request, timeout_ns, &removal->id, answered, removal,
	                     &removal->call);
}

int neap_accessor_remove(struct neap_accessor *accessor, const struct neap_place *place, const struct neap_key *key, uint64_t deadline_ns,
                         void (*done)(void *user, int error, const char *why), void *user)
{
	int error = NEAP_OK;
	if (accessor->closing)
		return NEAP_ECLOSED;
	if (deadline_ns <= neap_now(accessor->reactor))
		return NEAP_ETIMEDOUT;
	struct accessor_removal *removal = neap_pool_take(&accessor->removals);
	if (!removal)
		return NEAP_EAGAIN;
	memset(removal, 0, offsetof(struct accessor_removal, key));
	removal->accessor = accessor;
	removal->deadline_ns = deadline_ns;
	removal->done = done;
	removal->user = user;
	removal->key_length = key->length;
	memcpy(removal->key, key->bytes, key->length);
	removal->peer = neap_store_peer_get(&accessor->peers, place, &error);
	if (removal->peer)
		error = neap_rpc_id_take(removal->peer->channel, &removal->id);
	if (!error) {
		error = ask(removal);
		if (error)
			neap_rpc_id_finish(removal->peer->channel, &removal->id);
	}
	neap_route_cache_drop(accessor->routes, key, NULL);
	if (!error)
		return NEAP_OK;
	if (removal->peer)
		neap_store_peer_put(removal->peer);
	neap_pool_give(&accessor->removals, removal);
	return error;
}

void accessor_removals_cancel(struct neap_accessor *accessor)
{
	struct accessor_removal *removal;
	for (uint32_t index = 0; (removal = neap_pool_next(&accessor->removals, &index)) != NULL;)
		neap_rpc_cancel(accessor->client, removal->call);
}
