/* Drain and close. */
#include "store/node/inside.h"
#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define TICK_NS (5 * MS)
#define READY_NS (5000 * MS)

static struct neap_store *store_of(const struct neap_machine *machine)
{
	return (struct neap_store *)(uintptr_t)((const char *)machine - offsetof(struct neap_store, machine));
}

void node_life_ended(void *user)
{
	struct neap_store *store = user;
	(void)neap_post(&store->machine, store_life_on_ENDED, 0);
}

/* --- a look every few milliseconds, until the directory knows us, and while we drain --------------------------------------------- */

static bool is_known(const struct neap_store *store)
{
	struct neap_announcer_stats stats;
	if (!store->announcer)
		return store->reached;
	neap_announcer_stats(store->announcer, &stats);
	return stats.registered;
}

static void look_ready(struct neap_store *store, uint64_t now_ns)
{
	void (*ready)(void *user, int error, const char *why) = store->ready;
	bool known = is_known(store);
	char why[NODE_WHY_MAX + 64] = "";
	if (!ready || (!known && now_ns < store->ready_by_ns))
		return;
	if (!known)
		(void)snprintf(why, sizeof why, "master %s has not answered for 5 s; it is being tried on", store->master);
	store->ready = NULL;
	ready(store->user, known ? NEAP_OK : NEAP_EPEER, why);
}

static bool is_quiet(const struct neap_store *store)
{
	struct neap_peer_service_stats stats;
	if (!store->service)
		return true;
	neap_peer_service_stats(store->service, &stats);
	return stats.writes_now + stats.pins_now + stats.operations_now == 0;
}

static void tick(struct neap_timer *timer, void *user)
{
	struct neap_store *store = user;
	uint64_t now_ns = neap_now(store->reactor);
	look_ready(store, now_ns);
	if (store->machine.state == store_life_DRAINING && is_quiet(store) && !store->announcer) {
		(void)neap_post(&store->machine, store_life_on_QUIET, 0);
		return;
	}
	bool again = store->ready != NULL || store->machine.state == store_life_DRAINING;
	if (again && node_takes(store))
		(void)neap_timer_start(store->reactor, timer, now_ns + TICK_NS, tick, store);
}

static void begin_ticking(struct neap_store *store)
{
	if (!neap_timer_active(&store->tick))
		(void)neap_timer_start(store->reactor, &store->tick, neap_now(store->reactor) + TICK_NS, tick, store);
}

/* A store without tiers has no announcer: a small question shows now and then whether the directory is there. */
static void try_directory(struct neap_store *store);

static void probe(struct neap_timer *timer, void *user)
{
	(void)timer;
	try_directory(user);
}

static void probe_later(struct neap_store *store)
{
	if (store->has_master && node_takes(store))
		(void)neap_timer_start(store->reactor, &store->probe, neap_now(store->reactor) + store->heartbeat_ms * MS, probe, store);
}

static void counted(struct neap_key_call *call, int error)
{
	struct node_ask *ask = call->user;
	struct neap_store *store = ask->store;
	store->reached = error == 0 || call->effect == NEAP_KEY_EFFECT_DONE;
	neap_pool_give(&store->asks, ask);
	if (!store->reached && node_takes(store) && store->ready)
		begin_ticking(store);
	probe_later(store);
}

static void try_directory(struct neap_store *store)
{
	struct node_ask *ask = neap_pool_take(&store->asks);
	if (!ask) { /* others ask, and learn it */
		probe_later(store);
		return;
	}
	memset(ask, 0, sizeof *ask);
	ask->store = store;
	ask->call.op = NEAP_KEY_OP_COUNT;
	ask->call.done = counted;
	ask->call.user = ask;
	ask->call.deadline_ns = neap_now(store->reactor) + READY_NS;
	if (neap_key_begin(&store->directory, &ask->call) == NEAP_OK)
		return;
	neap_pool_give(&store->asks, ask);
	probe_later(store);
}

static void host_stops(struct neap_dependent *dependent)
{
	struct neap_store *store = (struct neap_store *)(void *)((char *)dependent - offsetof(struct neap_store, dependent));
	(void)neap_store_close(store, NULL, NULL);
}

void node_begin_life(struct neap_store *store)
{
	store->dependent.what = "a store";
	store->dependent.stop = host_stops;
	neap_reactor_attach(store->reactor, &store->dependent);
	neap_machine_begin(&store->machine, &store->life_class->class_);
	store->ready_by_ns = neap_now(store->reactor) + READY_NS;
	if (store->announcer)
		neap_announcer_start(store->announcer);
	else if (store->directory.begin) /* one that failed before it had a directory lives only to be closed */
		try_directory(store);
	if (store->ready)
		begin_ticking(store);
}

/* --- actions ------------------------------------------------------------------------------------------------------------------ */

static void unannounced(void *user)
{
	struct neap_store *store = user;
	neap_announcer_destroy(store->announcer);
	store->announcer = NULL;
	if (store->machine.state == store_life_UNANNOUNCING)
		node_life_ended(store);
}

static void do_drain(struct neap_machine *machine, uint64_t argument)
{
	struct neap_store *store = store_of(machine);
	(void)argument;
	if (store->service)
		neap_peer_service_drain(store->service);
	if (store->announcer)
		neap_announcer_close(store->announcer, unannounced, store);
	begin_ticking(store);
}

static void tell_drained(struct neap_store *store, int error)
{
	void (*drained)(void *user, int error) = store->drained;
	store->drained = NULL;
	if (drained)
		drained(store->drained_user, error);
}

static void do_drained(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	tell_drained(store_of(machine), NEAP_OK);
}

static void do_late(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	tell_drained(store_of(machine), NEAP_ETIMEDOUT);
}

static void accessor_gone(void *user)
{
	struct neap_store *store = user;
	store->accessor = NULL;
	node_life_ended(store);
}

static void do_leave(struct neap_machine *machine, uint64_t argument)
{
	struct neap_store *store = store_of(machine);
	(void)argument;
	tell_drained(store, NEAP_ECANCELED);
	neap_timer_cancel(store->reactor, &store->tick);
	neap_timer_cancel(store->reactor, &store->probe);
	node_sweep_cancel(store);
	node_removals_cancel(store);
	if (store->service)
		neap_peer_service_drain(store->service);
	if (store->accessor)
		neap_accessor_close(store->accessor, accessor_gone, store);
	else
		node_life_ended(store);
}

static void do_unannounce(struct neap_machine *machine, uint64_t argument)
{
	struct neap_store *store = store_of(machine);
	(void)argument;
	node_places_destroy(&store->places);
	node_asks_cancel(store);
	if (!store->announcer)
		node_life_ended(store);
	else if (store->drain_until_ns == 0)
		neap_announcer_close(store->announcer, unannounced, store);
	/* else the drain has begun to close it */
}

static void unserved(void *user)
{
	struct neap_store *store = user;
	store->service = NULL;
	node_life_ended(store);
}

static void do_unserve(struct neap_machine *machine, uint64_t argument)
{
	struct neap_store *store = store_of(machine);
	(void)argument;
	if (store->service)
		neap_peer_service_close(store->service, unserved, store);
	else
		node_life_ended(store);
}

static void do_empty(struct neap_machine *machine, uint64_t argument)
{
	struct neap_store *store = store_of(machine);
	(void)argument;
	if (store->owner)
		neap_owner_close(store->owner, node_life_ended, store);
	else
		node_life_ended(store);
}

static void do_unmap(struct neap_machine *machine, uint64_t argument)
{
	struct neap_store *store = store_of(machine);
	(void)argument;
	if (store->owner)
		neap_owner_destroy(store->owner);
	store->owner = NULL;
	node_tiers_close(store);
}

static void reap(struct neap_reap *reap_)
{
	struct neap_store *store = (struct neap_store *)(void *)((char *)reap_ - offsetof(struct neap_store, reap));
	void (*closed)(void *user) = store->closed;
	void *user = store->closed_user;
	neap_machine_end(&store->machine);
	neap_reactor_detach(store->reactor, &store->dependent);
	node_release(store);
	if (closed)
		closed(user);
}

static void do_finish(struct neap_machine *machine, uint64_t argument)
{
	struct neap_store *store = store_of(machine);
	(void)argument;
	store->reap.reap = reap;
	neap_reap_later(store->reactor, &store->reap);
}

static neap_action_func *const actions[] = {
	[store_life_do_drain] = do_drain,           [store_life_do_drained] = do_drained, [store_life_do_late] = do_late,
	[store_life_do_leave] = do_leave,           [store_life_do_unannounce] = do_unannounce,
	[store_life_do_unserve] = do_unserve,       [store_life_do_empty] = do_empty,     [store_life_do_unmap] = do_unmap,
	[store_life_do_finish] = do_finish,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)timeout_class;
	(void)now_ns;
	return store_of(machine)->drain_until_ns;
}

const struct neap_machine_kind store_life_kind = {
	.fsm = &neap_fsm_store_life,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_store),
	.due_ns = due_ns,
};

/* --- calls --------------------------------------------------------------------------------------------------------------------- */

int neap_store_drain(struct neap_store *store, uint64_t deadline_ms, void (*drained)(void *user, int error), void *user)
{
	if (!node_is_open(store))
		return NEAP_ECLOSED;
	store->drain_until_ns = neap_now(store->reactor) + (deadline_ms ? deadline_ms : 1) * 1000000;
	store->drained = drained;
	store->drained_user = user;
	neap_step(&store->machine, store_life_on_DRAIN, 0);
	neap_reactor_touch(store->reactor);
	return NEAP_OK;
}

int neap_store_close(struct neap_store *store, void (*closed)(void *user), void *user)
{
	if (store->closed)
		return NEAP_ECLOSED;
	if (closed) {
		store->closed = closed;
		store->closed_user = user;
	}
	neap_step(&store->machine, store_life_on_CLOSE, 0);
	neap_reactor_touch(store->reactor);
	return NEAP_OK;
}

static bool is_settled(const struct neap_store *store, bool *registered_p)
{
	struct neap_announcer_stats stats;
	*registered_p = store->reached;
	if (!store->announcer)
		return store->reached;
	neap_announcer_stats(store->announcer, &stats);
	bool lost = stats.beats_failed > 0 && !stats.reached;
	*registered_p = stats.registered && !lost;
	return *registered_p && !stats.owes_all;
}

enum neap_store_health neap_store_health(const struct neap_store *store)
{
	bool registered;
	if (!node_is_open(store))
		return NEAP_STORE_DRAINING;
	if (!store->has_master)
		return NEAP_STORE_LOCAL_ONLY;
	if (is_settled(store, &registered))
		return NEAP_STORE_FULL;
	return registered ? NEAP_STORE_SYNCING : NEAP_STORE_DEGRADED;
}

const char *neap_store_health_name(enum neap_store_health health)
{
	static const char *const names[] = {"FULL", "SYNCING", "DEGRADED", "LOCAL_ONLY", "DRAINING"};
	return (unsigned)health < sizeof names / sizeof names[0] ? names[health] : "UNKNOWN";
}
