/* Calls that ask whether memory is where it belongs: on devices, where the transport has some. */
#include "transports/engine_state.h"
#include <stdio.h>

#define TOLD_A_PIECE 64u

void neap_settle_answer(struct neap_settle_call *call, int error, const char *why)
{
	struct neap_engine *engine = call->engine;
	call->error = error;
	(void)snprintf(call->why, sizeof call->why, "%s", why ? why : "");
	call->next = NULL;
	*engine->settled.tail = call;
	engine->settled.tail = &call->next;
	neap_engine_wake(engine);
}

int neap_settle_begin(struct neap_engine *engine, neap_region_id region, neap_memory_settled_func *settled, void *user)
{
	uint32_t slot = neap_registry_slot(engine->registry, region);
	if (!settled)
		return NEAP_EINVAL;
	if (!neap_engine_is_running(engine))
		return NEAP_ECLOSED;
	if (slot == UINT32_MAX)
		return NEAP_ESTALE;
	struct neap_settle_call *call = neap_pool_take(&engine->settle_calls);
	if (!call)
		return NEAP_EAGAIN;
	*call = (struct neap_settle_call){.engine = engine, .settled = settled, .user = user};
	if (engine->remote->ops->settle)
		engine->remote->ops->settle(engine->remote, slot, call);
	else
		neap_settle_answer(call, NEAP_OK, NULL);
	neap_reactor_touch(engine->reactor);
	return NEAP_OK;
}

bool neap_settles_tend(struct neap_engine *engine)
{
	for (uint32_t i = 0; i < TOLD_A_PIECE && engine->settled.first; i++) {
		struct neap_settle_call call = *engine->settled.first;
		neap_pool_give(&engine->settle_calls, engine->settled.first);
		engine->settled.first = call.next;
		if (!call.next)
			engine->settled.tail = &engine->settled.first;
		call.settled(call.user, call.error, call.error ? call.why : NULL);
	}
	return engine->settled.first != NULL;
}
