/* PinKey and ReadRemoteData of a value that lies on a disk: it is read into memory, and then they are answered as if it had been there. */
#include "store/peer/service_inside.h"
#include <string.h>

static struct peer_operation *operation_of(struct neap_bring *bring)
{
	return (struct peer_operation *)(void *)((char *)bring - offsetof(struct peer_operation, waits.bring));
}

static void wait(const struct peer_call *call, const struct neap_key *key, const uint8_t *engine,
                 void (*brought)(struct neap_bring *bring, int error, const struct neap_value *value))
{
	struct peer_operation *operation = peer_operation_begin(call, key);
	if (!operation)
		return;
	if (engine)
		memcpy(operation->engine, engine, sizeof operation->engine);
	memcpy(operation->instance, call->instance, sizeof operation->instance);
	operation->waits.bring = (struct neap_bring){.brought = brought, .deadline_ns = peer_until(call)};
	int error = neap_owner_bring(call->service->owner, key, &operation->waits.bring);
	if (!error)
		return;
	(void)peer_operation_end(operation);
	peer_refuse(call, error, NULL, 0);
}

static void refuse(const struct peer_call *call, int error)
{
	bool late = error == NEAP_STORE_UNAVAILABLE_IN_CURRENT_MODE;
	peer_refuse(call, error, late ? "the disk did not bring the value in time" : NULL, late ? PEER_RETRY_NS : 0);
}

static void pin_brought(struct neap_bring *bring, int error, const struct neap_value *value)
{
	struct peer_operation operation = *operation_of(bring);
	char key[NEAP_KEY_MAX];
	memcpy(key, operation.key_outside ? operation.key_outside : operation.key_inside, operation.key_length);
	struct peer_call call = peer_operation_end(operation_of(bring));
	if (error) {
		refuse(&call, error);
		return;
	}
	struct neap_pin pin = {.key = {key, operation.key_length}, .instance = operation.engine};
	memcpy(&pin.peer, operation.engine, sizeof pin.peer);
	call.instance = operation.instance;
	uint64_t wait_ns = peer_wait_for_room(call.service, &call, PEER_PIN); /* others have come meanwhile */
	if (wait_ns)
		peer_refuse(&call, NEAP_STORE_NO_AVAILABLE_HANDLE, "as many pins are held as there may be", wait_ns);
	else
		peer_answer_pin(&call, &pin, value);
}

void peer_pin_cold(const struct peer_call *call, const struct neap_key *key, const uint8_t engine[16])
{
	wait(call, key, engine, pin_brought);
}

static void read_brought(struct neap_bring *bring, int error, const struct neap_value *value)
{
	struct peer_call call = peer_operation_end(operation_of(bring));
	if (error)
		refuse(&call, error);
	else
		peer_answer_inside(&call, value);
}

void peer_read_cold(const struct peer_call *call, const struct neap_key *key)
{
	wait(call, key, NULL, read_brought);
}
