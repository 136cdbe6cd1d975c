#include "store/accessor/inside.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define REMOVALS_MAX 1024u
#define PUMP_MAX 256u /* operations a run */

/* --- create and close --------------------------------------------------------------------------------------------------------- */

static int set_options(struct neap_accessor *accessor, const struct neap_accessor_options *options)
{
	struct neap_accessor_options *o = &accessor->options;
	if (options)
		*o = *options;
	if (o->inline_max > NEAP_INLINE_MAX || o->direction > NEAP_FORWARD || o->operations_max > 1u << 20 || o->peers_max > 1u << 16)
		return NEAP_EINVAL;
	o->operations_max = o->operations_max ? o->operations_max : 4096;
	o->batches_max = o->batches_max ? o->batches_max : 256;
	o->peers_max = o->peers_max ? o->peers_max : 256;
	o->pins_max = o->pins_max ? o->pins_max : 4096;
	o->attempts_max = o->attempts_max ? o->attempts_max : 3;
	o->revokes_max = o->revokes_max ? o->revokes_max : 3;
	o->inline_max = o->no_inline ? 0 : o->inline_max ? o->inline_max : 16384;
	o->direction = o->direction ? o->direction : NEAP_REVERSE;
	o->deadline_ns = o->deadline_ns ? o->deadline_ns : 30000 * MS;
	o->call_timeout_ns = o->call_timeout_ns ? o->call_timeout_ns : 2000 * MS;
	o->cleanup_timeout_ns = o->cleanup_timeout_ns ? o->cleanup_timeout_ns : 2000 * MS;
	o->backoff_ns = o->backoff_ns ? o->backoff_ns : 10 * MS;
	o->unpin_after_ns = o->unpin_after_ns ? o->unpin_after_ns : 100 * MS;
	o->peer_idle_ns = o->peer_idle_ns ? o->peer_idle_ns : 60000 * MS;
	return NEAP_OK;
}

static void release(struct neap_accessor *accessor)
{
	neap_peers_destroy(&accessor->peers);
	neap_rpc_client_destroy(accessor->client);
	if (accessor->routes)
		neap_route_cache_destroy(accessor->routes);
	neap_pool_destroy(&accessor->ops);
	neap_pool_destroy(&accessor->batches);
	neap_pool_destroy(&accessor->removals);
	neap_pool_destroy(&accessor->slots);
}

static int build(struct neap_accessor *accessor)
{
	struct neap_reactor *reactor = accessor->reactor;
	const struct neap_accessor_options *o = &accessor->options;
	/* Closed channels stay for a moment; unpins are calls too. */
	struct neap_rpc_client_options client = {.channels_max = o->peers_max + 16, .calls_max = o->operations_max + o->peers_max + 16};
	struct neap_peers_options peers = {.peers_max = o->peers_max, .pins_max = o->pins_max, .unpins_max = o->revokes_max,
	                                   .unpin_after_ns = o->unpin_after_ns, .idle_ns = o->peer_idle_ns,
	                                   .call_timeout_ns = o->call_timeout_ns, .backoff_ns = o->backoff_ns};
	memcpy(client.instance, accessor->instance, sizeof client.instance);
	int error = neap_reactor_class_of(reactor, &store_put_kind, &accessor->put_class);
	if (!error)
		error = neap_reactor_class_of(reactor, &store_get_kind, &accessor->get_class);
	if (!error)
		error = neap_rpc_client_create(&accessor->client, reactor, &client);
	if (!error)
		error = neap_peers_create(&accessor->peers, accessor->engine, accessor->client, &peers);
	if (!error)
		error = neap_route_cache_create(&accessor->routes, reactor, &o->routes);
	if (!error)
		error = neap_pool_create(&accessor->ops, reactor, sizeof(struct accessor_op), o->operations_max);
	if (!error)
		error = neap_pool_create(&accessor->batches, reactor, sizeof(struct accessor_batch), o->batches_max);
	if (!error)
		error = neap_pool_create(&accessor->removals, reactor, sizeof(struct accessor_removal), REMOVALS_MAX);
	if (!error)
		error = neap_pool_create(&accessor->slots, reactor, sizeof(struct accessor_slot), o->operations_max);
	return error;
}

static void stop(struct neap_dependent *dependent)
{
	neap_accessor_close((struct neap_accessor *)(void *)((char *)dependent - offsetof(struct neap_accessor, dependent)), NULL, NULL);
}

static void pump(struct neap_ready *ready);

int neap_accessor_create(struct neap_accessor **accessor_p, struct neap_engine *engine, const struct neap_places *places,
                         const struct neap_accessor_options *options)
{
	struct neap_reactor *reactor = neap_engine_reactor(engine);
	*accessor_p = NULL;
	struct neap_accessor *accessor = neap_allocate(reactor, sizeof *accessor);
	if (!accessor)
		return NEAP_ENOMEM;
	accessor->engine = engine;
	accessor->reactor = reactor;
	accessor->places = *places;
	accessor->pump.run = pump;
	neap_engine_instance(engine, accessor->instance);
	int error = set_options(accessor, options);
	if (!error)
		error = build(accessor);
	if (error) {
		release(accessor);
		neap_release(reactor, accessor, sizeof *accessor);
		return error;
	}
	accessor->dependent.what = "a store accessor";
	accessor->dependent.stop = stop;
	neap_reactor_attach(reactor, &accessor->dependent);
	*accessor_p = accessor;
	return NEAP_OK;
}

static void wake(struct neap_accessor *accessor)
{
	neap_ready_again(accessor->reactor, &accessor->pump);
}

static void ask_cancel(struct neap_accessor *accessor, struct accessor_op *op);

void neap_accessor_close(struct neap_accessor *accessor, void (*closed)(void *user), void *user)
{
	struct accessor_op *op;
	if (accessor->closing) {
		/* The reactor's stop came first, which asks nothing; whoever owns us is told all the same. */
		if (!accessor->closed) {
			accessor->closed = closed;
			accessor->closed_user = user;
		}
		return;
	}
	accessor->closing = true;
	accessor->closed = closed;
	accessor->closed_user = user;
	accessor_batches_cancel(accessor);
	accessor_removals_cancel(accessor);
	for (uint32_t index = 0; (op = neap_pool_next(&accessor->ops, &index)) != NULL;)
		ask_cancel(accessor, op);
	wake(accessor);
}

static void reap(struct neap_reap *reap_)
{
	struct neap_accessor *accessor = (struct neap_accessor *)(void *)((char *)reap_ - offsetof(struct neap_accessor, reap));
	struct neap_reactor *reactor = accessor->reactor;
	void (*closed)(void *user) = accessor->closed;
	void *user = accessor->closed_user;
	neap_ready_cancel(reactor, &accessor->pump);
	release(accessor);
	neap_reactor_detach(reactor, &accessor->dependent);
	neap_release(reactor, accessor, sizeof *accessor);
	if (closed)
		closed(user);
}

static void peers_idle(void *user)
{
	struct neap_accessor *accessor = user;
	accessor->gone = true;
	accessor->reap.reap = reap;
	neap_reap_later(accessor->reactor, &accessor->reap);
}

static void look_closed(struct neap_accessor *accessor)
{
	if (!accessor->closing || accessor->leaving || accessor->ops.used > accessor->broken || accessor->batches.used > 0 ||
	    accessor->removals.used > 0)
		return;
	accessor->leaving = true;
	neap_peers_close(&accessor->peers, peers_idle, accessor);
}

/* --- the list of what is to be started or ended ------------------------------------------------------------------------------- */

static void enlist(struct neap_accessor *accessor, struct accessor_op *op)
{
	if (op->todo)
		return;
	op->todo = true;
	op->todo_next = NULL;
	*(accessor->todo_first ? accessor->todo_end : &accessor->todo_first) = op;
	accessor->todo_end = &op->todo_next;
	wake(accessor);
}

static void unlist(struct neap_accessor *accessor, struct accessor_op *op)
{
	struct accessor_op **at = &accessor->todo_first;
	if (!op->todo)
		return;
	while (*at != op)
		at = &(*at)->todo_next;
	*at = op->todo_next;
	if (!*at)
		accessor->todo_end = at;
	op->todo = false;
}

static void ask_cancel(struct neap_accessor *accessor, struct accessor_op *op)
{
	if (op->told)
		return;
	op->cancel_asked = true;
	enlist(accessor, op);
}

void neap_accessor_cancel(struct neap_accessor *accessor, neap_operation_id operation)
{
	struct accessor_op *op = neap_pool_find(&accessor->ops, operation);
	if (op)
		ask_cancel(accessor, op);
}

/* One that is to be ended before it has begun begins stopped, and ends in its first state. */
static void take_up(struct accessor_op *op)
{
	bool fresh = op->fresh, get = op->kind == ACCESSOR_GET;
	op->fresh = false;
	if (op->cancel_asked)
		accessor_stop(op, NEAP_ECANCELED);
	if (!fresh)
		accessor_step(op, get ? (uint8_t)store_get_on_CANCEL : (uint8_t)store_put_on_CANCEL);
	else if (accessor_begins_here(op))
		accessor_step(op, get ? (uint8_t)store_get_on_HERE : (uint8_t)store_put_on_HERE);
	else if (get)
		accessor_step(op, store_get_on_START);
	else
		accessor_step(op, op->kind == ACCESSOR_RESOLVE ? (uint8_t)store_put_on_EXISTS : (uint8_t)store_put_on_START);
}

static void pump(struct neap_ready *ready)
{
	struct neap_accessor *accessor = (struct neap_accessor *)(void *)((char *)ready - offsetof(struct neap_accessor, pump));
	if (accessor->gone)
		return;
	for (uint32_t i = 0; i < PUMP_MAX && accessor->todo_first; i++) {
		struct accessor_op *op = accessor->todo_first;
		unlist(accessor, op);
		take_up(op);
	}
	accessor_batches_run(accessor);
	if (accessor->todo_first)
		wake(accessor);
	look_closed(accessor);
}

/* --- operations --------------------------------------------------------------------------------------------------------------- */

/* What is at the end of the object is not cleared: it is large, and written before it is read. */
static void clear(struct accessor_op *op)
{
	struct neap_machine machine = op->machine;
	struct neap_timer timer = op->timer, pause = op->pause;
	struct neap_ready work = op->work;
	memset(op, 0, offsetof(struct accessor_op, slices));
	op->machine = machine;
	op->timer = timer;
	op->pause = pause;
	op->work = work;
}

static bool take_slices(struct accessor_op *op, const struct neap_slice_of *slices, uint32_t count)
{
	op->slice_count = count;
	for (uint32_t i = 0; i < count; i++) {
		op->slices[i] = slices[i];
		if (!slices[i].address || slices[i].length == 0 || slices[i].length > UINT64_MAX / 2 - op->total)
			return false;
		op->total += slices[i].length;
	}
	op->length = op->total;
	return true;
}

/* Takes an object and fills in what all kinds have. */
static int begin(struct neap_accessor *accessor, const struct neap_key *key, uint64_t deadline_ns, struct accessor_op **op_p)
{
	uint64_t now_ns = neap_now(accessor->reactor);
	deadline_ns = deadline_ns ? deadline_ns : accessor->options.deadline_ns;
	if (accessor->closing)
		return NEAP_ECLOSED;
	if (!key->bytes || key->length == 0 || key->length > NEAP_KEY_MAX || deadline_ns >= UINT64_MAX - now_ns)
		return NEAP_EINVAL;
	struct accessor_op *op = neap_pool_take(&accessor->ops);
	if (!op)
		return NEAP_EAGAIN;
	clear(op);
	op->accessor = accessor;
	op->handle = neap_pool_handle(&accessor->ops, op);
	op->key_length = key->length;
	memcpy(op->key, key->bytes, key->length);
	op->began_ns = now_ns;
	op->deadline_ns = now_ns + deadline_ns;
	op->outcome.status = NEAP_STORE_FAILED;
	*op_p = op;
	return NEAP_OK;
}

static void start(struct accessor_op *op, neap_store_done_func *done, void *user, neap_operation_id *operation_p)
{
	struct neap_accessor *accessor = op->accessor;
	op->done = done;
	op->user = user;
	op->fresh = true;
	op->inline_allowed = op->direction != NEAP_FORWARD;
	if (op->direction == NEAP_DIRECTION_DEFAULT)
		op->direction = accessor->options.direction;
	neap_machine_begin(&op->machine, op->kind == ACCESSOR_GET ? &accessor->get_class->class_ : &accessor->put_class->class_);
	enlist(accessor, op);
	if (operation_p)
		*operation_p = op->handle;
}

int neap_accessor_put(struct neap_accessor *accessor, const struct neap_key *key, const struct neap_slice_of *slices, uint32_t count,
                      const struct neap_put_options *options, neap_store_done_func *done, void *user, neap_operation_id *operation_p)
{
	static const struct neap_put_options defaults = {0};
	const struct neap_put_options *o = options ? options : &defaults;
	struct accessor_op *op;
	if (!done || count == 0 || count > NEAP_MOVE_SLICES_MAX || o->direction > NEAP_FORWARD)
		return NEAP_EINVAL;
	int error = begin(accessor, key, o->deadline_ns, &op);
	if (error)
		return error;
	if (!take_slices(op, slices, count)) {
		neap_pool_give(&accessor->ops, op);
		return NEAP_EINVAL;
	}
	op->kind = ACCESSOR_PUT;
	op->direction = o->direction;
	op->routes_max = o->candidates_max;
	op->released = o->released;
	op->unsettled = (struct neap_unsettled){.size = op->total, .has_crc = o->has_crc, .crc = o->crc};
	op->summed = o->has_crc || !(o->checksum || accessor->options.verify);
	start(op, done, user, operation_p);
	return NEAP_OK;
}

int neap_accessor_get(struct neap_accessor *accessor, const struct neap_key *key, const struct neap_slice_of *slices, uint32_t count,
                      const struct neap_get_options *options, neap_store_done_func *done, void *user, neap_operation_id *operation_p)
{
	static const struct neap_get_options defaults = {0};
	const struct neap_get_options *o = options ? options : &defaults;
	struct accessor_op *op;
	if (!done || count == 0 || count > NEAP_MOVE_SLICES_MAX || o->direction > NEAP_FORWARD)
		return NEAP_EINVAL;
	int error = begin(accessor, key, o->deadline_ns, &op);
	if (error)
		return error;
	if (!take_slices(op, slices, count)) {
		neap_pool_give(&accessor->ops, op);
		return NEAP_EINVAL;
	}
	op->kind = ACCESSOR_GET;
	op->direction = o->direction;
	op->routes_max = o->replicas_max;
	op->released = o->released;
	op->verify = !o->no_verify && (o->verify || accessor->options.verify);
	start(op, done, user, operation_p);
	return NEAP_OK;
}

int neap_accessor_resolve(struct neap_accessor *accessor, const struct neap_key *key, const struct neap_unsettled *unsettled,
                          uint64_t deadline_ns, neap_store_done_func *done, void *user, neap_operation_id *operation_p)
{
	struct accessor_op *op;
	int error = done ? begin(accessor, key, deadline_ns, &op) : NEAP_EINVAL;
	if (error)
		return error;
	op->kind = ACCESSOR_RESOLVE;
	op->unsettled = *unsettled;
	op->direction = NEAP_REVERSE;
	op->routes[0] = (struct neap_route){.place = unsettled->place};
	op->route_count = 1;
	accessor->stats.resolves++;
	start(op, done, user, operation_p);
	return NEAP_OK;
}

/* --- how they end ------------------------------------------------------------------------------------------------------------- */

void accessor_blame(struct accessor_op *op, int error, const char *format, ...)
{
	va_list arguments;
	if (op->stopped)
		return;
	op->outcome.error = error;
	va_start(arguments, format);
	(void)vsnprintf(op->why, sizeof op->why, format, arguments);
	va_end(arguments);
}

void accessor_stop(struct accessor_op *op, int error)
{
	if (op->stopped)
		return;
	char before[200];
	(void)snprintf(before, sizeof before, "%.199s", op->why);
	accessor_blame(op, error, "%s%s%s", error == NEAP_ETIMEDOUT ? "its deadline passed" : "canceled by its caller",
	               *before ? "; before: " : "", before);
	op->stopped = error;
}

static void count_outcome(struct accessor_op *op)
{
	struct neap_accessor_stats *stats = &op->accessor->stats;
	struct neap_way_stats *way = op->kind == ACCESSOR_GET ? &stats->gets[op->way] : &stats->puts[op->way];
	stats->held += op->outcome.held;
	if (op->kind == ACCESSOR_RESOLVE)
		return;
	way->operations++;
	way->failed += op->outcome.status == NEAP_STORE_FAILED;
	way->unknown += op->outcome.status == NEAP_STORE_UNKNOWN;
	if (op->outcome.status != NEAP_STORE_SUCCESS)
		return;
	way->succeeded++;
	way->bytes += op->length;
	neap_latency_note(&way->latency, accessor_now(op) - op->began_ns);
}

/* Its caller wants it to end, and that was noted: what runs is cut short. */
void accessor_do_stop(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	if (op->batch_runs)
		(void)neap_batch_cancel(op->accessor->engine, op->batch);
	else
		accessor_cut(op);
}

/* Its time is up. */
void accessor_do_halt(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	accessor_stop(op, NEAP_ETIMEDOUT);
	accessor_cut(op);
}

static void give_back(struct accessor_op *op)
{
	struct neap_accessor *accessor = op->accessor;
	neap_timer_cancel(accessor->reactor, &op->pause);
	neap_machine_end(&op->machine);
	neap_pool_give(&accessor->ops, op);
	if (accessor->closing || accessor->batch_first)
		wake(accessor);
}

void accessor_tell(struct accessor_op *op, bool held)
{
	struct neap_store_outcome *outcome = &op->outcome;
	outcome->held = held;
	outcome->local = op->way == NEAP_WAY_LOCAL && outcome->status == NEAP_STORE_SUCCESS;
	outcome->stopped = op->stopped != 0 && outcome->status != NEAP_STORE_SUCCESS;
	outcome->place = op->route ? &op->route->place : NULL;
	outcome->unsettled = outcome->status == NEAP_STORE_UNKNOWN ? &op->unsettled : NULL;
	outcome->why = op->why;
	if (outcome->status != NEAP_STORE_SUCCESS) {
		outcome->created = false;
	} else {
		outcome->error = 0;
		outcome->retry_after_ms = 0;
		op->why[0] = '\0';
	}
	if (!held)
		accessor_leave_owner(op);
	count_outcome(op);
	unlist(op->accessor, op);
	op->told = true;
	op->done(op->user, outcome);
	if (!held)
		give_back(op);
}

void accessor_release(struct accessor_op *op)
{
	void (*released)(void *user) = op->released;
	void *user = op->user;
	accessor_leave_owner(op);
	if (released)
		released(user);
	give_back(op);
}

void accessor_broken(struct neap_machine *machine, uint8_t event)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)event;
	if (op->told)
		return;
	accessor_blame(op, NEAP_STORE_INTERNAL_ERROR, "%s", neap_error_text(NEAP_EINTERNAL));
	op->outcome.status = op->kind == ACCESSOR_GET ? NEAP_STORE_FAILED : NEAP_STORE_UNKNOWN;
	if (op->route)
		op->unsettled.place = op->route->place;
	op->accessor->broken++;
	accessor_tell(op, true);
}

/* --- owners ------------------------------------------------------------------------------------------------------------------- */

void accessor_leave_owner(struct accessor_op *op)
{
	if (op->peer)
		neap_store_peer_put(op->peer);
	op->peer = NULL;
}

static enum neap_way way_of(const struct accessor_op *op)
{
	uint64_t size = op->kind == ACCESSOR_GET && op->route->size && op->route->size < op->total ? op->route->size : op->total;
	if (op->inline_allowed && size <= op->accessor->options.inline_max)
		return NEAP_WAY_INLINE;
	return op->direction == NEAP_FORWARD ? NEAP_WAY_FORWARD : NEAP_WAY_REVERSE;
}

bool accessor_next_owner(struct accessor_op *op)
{
	struct neap_accessor_stats *stats = &op->accessor->stats;
	int error;
	if (accessor_now(op) >= op->deadline_ns)
		accessor_stop(op, NEAP_ETIMEDOUT);
	while (!op->stopped && !op->final && op->next_route < op->route_count) {
		op->route = &op->routes[op->next_route++];
		if (op->tries++ > 0)
			*(op->kind == ACCESSOR_GET ? &stats->read_retries : &stats->write_retries) += 1;
		op->peer = neap_store_peer_get(&op->accessor->peers, &op->route->place, &error);
		if (op->peer) {
			op->way = way_of(op);
			return true;
		}
		accessor_blame(op, error == NEAP_EADDRESS ? NEAP_STORE_INVALID_REPLICA : error, "owner at '%s': %s", op->route->place.rpc,
		               neap_error_text(error));
	}
	return false;
}

static void tell_reached(struct accessor_op *op, int error, const char *why)
{
	bool get = op->kind == ACCESSOR_GET;
	if (!error) {
		accessor_step(op, get ? (uint8_t)store_get_on_FORWARD : (uint8_t)store_put_on_FORWARD);
		return;
	}
	accessor_blame(op, error == NEAP_EINSTANCE ? NEAP_STORE_REPLICA_IS_GONE : NEAP_STORE_TRANSFER_FAIL, "engine '%s': %s",
	               op->peer->engine, why);
	if (error == NEAP_EINSTANCE)
		accessor_stale(op);
	else
		accessor_forget_route(op);
	accessor_step(op, get ? (uint8_t)store_get_on_REFUSED : (uint8_t)store_put_on_REFUSED);
}

static void reached(struct neap_store_peer_waiter *waiter, int error, const char *why)
{
	tell_reached((struct accessor_op *)(void *)((char *)waiter - offsetof(struct accessor_op, waiter)), error, why);
}

void accessor_reach(struct accessor_op *op)
{
	op->waiter.reached = reached;
	int error = neap_store_peer_reach(op->peer, &op->waiter);
	if (error != NEAP_EAGAIN)
		tell_reached(op, error, neap_error_text(error));
}

void accessor_stale(struct accessor_op *op)
{
	struct neap_places *places = &op->accessor->places;
	struct neap_key key = accessor_key(op);
	accessor_forget_route(op);
	op->accessor->stats.stale_routes++;
	if (places->report_stale)
		places->report_stale(places->directory, &key, op->route);
}

void accessor_forget_route(struct accessor_op *op)
{
	struct neap_key key = accessor_key(op);
	if (!op->route) /* it was in this process */
		return;
	neap_route_cache_drop(op->accessor->routes, &key, &op->route->place);
}

static void placed(void *user, uint64_t question, int error, const struct neap_route *routes, uint32_t count, const char *why)
{
	struct neap_accessor *accessor = user;
	struct accessor_op *op = neap_pool_find(&accessor->ops, question);
	if (!op || !op->asking)
		return;
	op->asking = false;
	bool get = op->kind == ACCESSOR_GET;
	op->exists = !get && error == NEAP_STORE_OBJECT_ALREADY_EXISTS && count > 0;
	op->route_count = error && !op->exists ? 0 : count < NEAP_ROUTES_MAX ? count : NEAP_ROUTES_MAX;
	if (op->routes_max && op->route_count > op->routes_max)
		op->route_count = op->routes_max;
	for (uint32_t i = 0; i < op->route_count; i++)
		op->routes[i] = routes[i];
	if (op->route_count == 0)
		accessor_blame(op, error ? error : get ? NEAP_STORE_OBJECT_NOT_FOUND : NEAP_STORE_NO_AVAILABLE_HANDLE, "the directory: %s",
		               why ? why : get ? "no replica" : "no candidate");
	if (get)
		get_placed(op);
	else
		put_placed(op);
}

void accessor_ask_directory(struct accessor_op *op)
{
	struct neap_places *places = &op->accessor->places;
	struct neap_key key = accessor_key(op);
	op->asking = true;
	if (op->kind == ACCESSOR_GET)
		places->replicas(places->directory, &key, placed, op->accessor, op->handle);
	else
		places->write_candidates(places->directory, &key, op->total, placed, op->accessor, op->handle);
}

/* --- statistics --------------------------------------------------------------------------------------------------------------- */

void neap_accessor_stats(const struct neap_accessor *accessor, struct neap_accessor_stats *stats_p)
{
	*stats_p = accessor->stats;
	stats_p->pins = accessor->peers.stats.pins;
	stats_p->pins_ridden = accessor->peers.stats.ridden;
	stats_p->unpin_calls = accessor->peers.stats.unpin_calls;
	stats_p->pins_dropped = accessor->peers.stats.dropped;
	stats_p->operations_now = accessor->ops.used;
	stats_p->batches_now = accessor->batches.used;
	stats_p->peers_now = accessor->peers.pool.used;
	stats_p->pins_now = accessor->peers.pins.used;
	neap_route_cache_stats(accessor->routes, &stats_p->routes);
}
