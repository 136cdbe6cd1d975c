/* Closing: no new work, everything pending ends with its callback, transports and grace periods run out, then the memory goes. */
#include "transports/batch_fsm.h"
#include "transports/engine_life_fsm.h"
#include "transports/engine_state.h"
#include "transports/lean.h"

/* What cannot tell that it has ended is looked at again: fences, other cores, the dispatcher's queue. */
#define LOOK_INTERVAL_NS 1000000u

static void look_again(struct neap_timer *timer, void *user)
{
	(void)timer;
	neap_engine_wake(user);
}

static void look_later(struct neap_engine *engine)
{
	if (!neap_timer_active(&engine->close_timer))
		(void)neap_timer_start(engine->reactor, &engine->close_timer, neap_now(engine->reactor) + LOOK_INTERVAL_NS, look_again,
		                       engine);
}

int neap_engine_begin_close(struct neap_engine *engine, void (*closed)(void *user), void *user)
{
	bool first = neap_engine_is_running(engine);
	/* A reactor that stops closes its engines; their owner may still ask to be told. */
	if (!first && (engine->closed || !closed))
		return NEAP_ECLOSED;
	if (first) {
		atomic_store(&engine->refuses_joins, 1);
		if (atomic_load(&engine->joined) > 0) {
			atomic_store(&engine->refuses_joins, 0);
			return NEAP_EBUSY;
		}
	}
	engine->closed = closed;
	engine->closed_user = user;
	if (first) {
		engine->refuses = true;
		neap_step(&engine->life, engine_life_on_CLOSE, 0);
	}
	neap_reactor_touch(engine->reactor);
	return NEAP_OK;
}

int neap_engine_lean(struct neap_engine *engine)
{
	if (!neap_engine_is_running(engine))
		return NEAP_ECLOSED;
	atomic_fetch_add(&engine->joined, 1);
	return NEAP_OK;
}

void neap_engine_let_go(struct neap_engine *engine)
{
	atomic_fetch_sub(&engine->joined, 1);
	neap_engine_wake(engine);
}

void neap_engine_stop(struct neap_dependent *dependent)
{
	struct neap_engine *engine = (struct neap_engine *)(void *)((unsigned char *)dependent - offsetof(struct neap_engine, dependent));
	if (!neap_engine_is_running(engine))
		return;
	atomic_store(&engine->refuses_joins, 1);
	engine->refuses = engine->waits_for_cores = true;
	neap_engine_wake(engine);
}

/* In a turn of its own: a transport may have thousands of connections to end, too many for an action. */
static void do_begin_close(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	struct neap_engine *engine = (struct neap_engine *)(void *)((unsigned char *)machine - offsetof(struct neap_engine, life));
	neap_engine_wake(engine);
}

static void reap(struct neap_reap *reap_later)
{
	struct neap_engine *engine = (struct neap_engine *)(void *)((unsigned char *)reap_later - offsetof(struct neap_engine, reap));
	struct neap_reactor *reactor = engine->reactor;
	struct neap_engine *home = engine->home == engine ? NULL : engine->home;
	void (*closed)(void *user) = engine->closed;
	void *user = engine->closed_user;
	neap_machine_end(&engine->self.machine);
	neap_machine_end(&engine->life);
	neap_reactor_detach(reactor, &engine->dependent);
	neap_engine_free(engine);
	if (home)
		atomic_fetch_sub(&home->joined, 1);
	if (closed)
		closed(user);
}

static void do_finish(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	struct neap_engine *engine = (struct neap_engine *)(void *)((unsigned char *)machine - offsetof(struct neap_engine, life));
	engine->reap.reap = reap;
	neap_reap_later(engine->reactor, &engine->reap);
}

neap_action_func *const neap_engine_life_actions[] = {
	[engine_life_do_begin_close] = do_begin_close,
	[engine_life_do_finish] = do_finish,
};

void neap_engine_transport_closed(struct neap_engine *engine, struct neap_transport *transport)
{
	if (transport->closed) {
		transport->closed(transport->closed_user);
		return;
	}
	if (transport == engine->local)
		engine->local_closed = true;
	else
		engine->remote_closed = true;
	neap_engine_wake(engine);
}

static void close_parts(struct neap_engine *engine)
{
	engine->closing_begun = true;
	if (engine->home == engine)
		neap_handshake_service_destroy(engine->service);
	engine->service = NULL;
	atomic_store(&engine->home->ports[engine->core_index], 0);
	atomic_fetch_add(&engine->home->ports_version, 1);
	neap_store_withdraw(engine);
	neap_segments_abandon(engine);
	neap_notifies_abandon(engine);
	engine->local->ops->close(engine->local);
	engine->remote->ops->close(engine->remote);
}

/* Owed to users: callbacks of requests, opens and notifies. */
static bool all_told(const struct neap_engine *engine)
{
	return engine->pending == 0 && !engine->ended.first && !engine->opened.first && !engine->notified.first && !engine->tends &&
	       !engine->sweeps && !engine->walks && engine->openers.used == 0 && engine->notify_calls.used == 0 &&
	       engine->settle_calls.used == 0;
}

static bool let_go_of_registry(struct neap_engine *engine)
{
	if (engine->home == engine)
		return neap_registry_idle(engine->registry);
	if (engine->has_core && neap_registry_remove_core(engine->registry, engine->core_index, engine->reactor) == NEAP_OK)
		engine->has_core = false;
	return !engine->has_core;
}

static void close_after_cores(struct neap_engine *engine)
{
	if (atomic_load(&engine->joined) > 0) {
		look_later(engine);
		return;
	}
	engine->waits_for_cores = false;
	neap_step(&engine->life, engine_life_on_CLOSE, 0);
}

bool neap_engine_close_tend(struct neap_engine *engine)
{
	if (engine->waits_for_cores)
		close_after_cores(engine);
	if (engine->life.state != engine_life_CLOSING)
		return false;
	if (!engine->closing_begun)
		close_parts(engine);
	if (!engine->local_closed || !engine->remote_closed || engine->withdrawing || !all_told(engine))
		return false;
	/* Events that are still queued point into memory that goes. */
	if (neap_dispatcher_pending(neap_reactor_dispatcher(engine->reactor)) > 0 || !let_go_of_registry(engine)) {
		look_later(engine);
		return false;
	}
	neap_step(&engine->life, engine_life_on_DRAINED, 0);
	return false;
}
