/* The last step of a put: the directory knows the value, and only then is its caller told, or anybody else. */
#include "store/peer/service_inside.h"

#define LONGEST_NS (UINT64_C(10) * 1000000000)

static struct peer_operation *operation_of(struct neap_settle *question)
{
	return (struct peer_operation *)(void *)((char *)question - offsetof(struct peer_operation, waits.settle));
}

/* What the accessor makes of it is in store/accessor/put.c. */
static void conclude_put(const struct peer_call *call, const struct committed_reply *reply, int result)
{
	bool refused = result != NEAP_STORE_OK && result != NEAP_STORE_OBJECT_NOT_FOUND && result != NEAP_ETIMEDOUT && result != NEAP_ECLOSED;
	if (!reply->created && refused) {
		peer_refuse(call, NEAP_STORE_REPLICA_IS_PROCESSING, "the value that was here is a second version of its key, and goes", 0);
		return;
	}
	switch (result) {
	case NEAP_STORE_OK:
	case NEAP_STORE_OBJECT_NOT_FOUND: /* committed, and removed or evicted since */
		peer_answer(call, reply);
		break;
	case NEAP_ETIMEDOUT:
	case NEAP_STORE_INTERNAL_ERROR: /* the directory has failed, not refused */
		peer_refuse(call, NEAP_STORE_REPLICA_IS_NOT_READY, "it is committed here, but the directory does not know it yet", 0);
		break;
	case NEAP_STORE_OBJECT_ALREADY_EXISTS:
		peer_refuse(call, NEAP_STORE_CAS_FAILED, "another owner had the key first, with another value", 0);
		break;
	case NEAP_ECLOSED:
		peer_refuse(call, NEAP_STORE_SHUTTING_DOWN, NULL, 0);
		break;
	default:
		peer_refuse(call, result, NULL, 0);
		break;
	}
}

/* A value that the directory has refused is going; one that it has not answered for is as good as pending. */
static void conclude_look(const struct peer_call *call, const struct look_up_reply *reply, int result)
{
	bool waits = result == NEAP_ETIMEDOUT || result == NEAP_ECLOSED;
	if (result == NEAP_STORE_OK)
		peer_answer(call, reply);
	else
		peer_answer(call, &(struct look_up_reply){.pending = waits, .same_write = waits && reply->same_write});
}

static void conclude(struct peer_operation *operation, int result)
{
	struct peer_operation ended = *operation;
	struct peer_call call = peer_operation_end(operation);
	if (ended.look)
		conclude_look(&call, &ended.reply.look_up, result);
	else
		conclude_put(&call, &ended.reply.committed, result);
}

static void settled(struct neap_settle *question, int result)
{
	conclude(operation_of(question), result);
}

/* Early enough for the answer to be in time. */
uint64_t peer_until(const struct peer_call *call)
{
	uint64_t now_ns = neap_now(call->service->reactor), left_ns = call->deadline_ns > now_ns ? call->deadline_ns - now_ns : 0;
	if (left_ns > LONGEST_NS)
		left_ns = LONGEST_NS;
	return now_ns + left_ns - left_ns / 8;
}

static void begin(struct peer_operation *operation, uint64_t generation)
{
	struct neap_peer_service *service = operation->call.service;
	struct neap_settle *question = &operation->waits.settle;
	struct neap_key_facts facts;
	int result = NEAP_STORE_OK;
	*question = (struct neap_settle){
		.key = {operation->key_outside ? operation->key_outside : operation->key_inside, operation->key_length},
		.generation = generation,
		.deadline_ns = peer_until(&operation->call),
		.settled = settled,
	};
	if (service->options.settle) {
		neap_owner_look_up(service->owner, &question->key, &facts);
		question->tier = facts.tier;
		if (facts.exists && facts.generation == generation)
			result = service->options.settle(service->options.user, question);
	}
	if (result != NEAP_SETTLING)
		conclude(operation, result);
}

void peer_settle(struct peer_operation *operation, const struct committed_reply *reply)
{
	operation->reply.committed = *reply;
	begin(operation, reply->generation);
}

void peer_settle_call(const struct peer_call *call, const struct neap_key *key, const struct committed_reply *reply)
{
	struct peer_operation *operation;
	if (!call->service->options.settle) {
		peer_answer(call, reply);
		return;
	}
	operation = peer_operation_begin(call, key);
	if (operation)
		peer_settle(operation, reply);
}

void peer_settle_look(const struct peer_call *call, const struct neap_key *key, const struct look_up_reply *reply)
{
	struct peer_operation *operation;
	if (!call->service->options.settle || !reply->exists) {
		peer_answer(call, reply);
		return;
	}
	operation = peer_operation_begin(call, key);
	if (!operation)
		return;
	operation->look = true;
	operation->reply.look_up = *reply;
	begin(operation, reply->generation);
}

bool peer_is_settled(const struct peer_call *call, const struct neap_key *key, const struct neap_key_facts *facts)
{
	const struct neap_peer_service_options *options = &call->service->options;
	if (!options->settled || !facts->exists || options->settled(options->user, key, facts->tier, facts->generation))
		return true;
	peer_refuse(call, NEAP_STORE_REPLICA_IS_NOT_READY, "the directory has not accepted this value yet", 0);
	return false;
}
