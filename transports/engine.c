/* Making an engine: first one of a process identity, then others that join it on further cores. */
#include "transports/engine_life_fsm.h"
#include "transports/engine_state.h"
#include "transports/segment_fsm.h"
#include <stdio.h>
#include <string.h>

#define SPARE_OPENERS 1024u
#define NOTIFY_CALLS_MAX 1024u
#define CALLS_MAX 4096u
#define SETTLE_CALLS_MAX 4096u

static void out_of_memory(const char *what, char *why, size_t why_size)
{
	snprintf(why, why_size, "out of memory (%s): lower requests_max, batches_max, peers_max, regions_max or sessions_max", what);
}

static int make_pools(struct neap_engine *engine)
{
	const struct neap_engine_options *options = &engine->options;
	struct neap_reactor *reactor = engine->reactor;
	const struct {
		struct neap_pool *pool;
		size_t bytes;
		uint32_t capacity;
	} pools[] = {
		{&engine->slices, sizeof(struct neap_slice), options->requests_max},
		{&engine->tokens, sizeof(struct neap_grant_token), options->requests_max},
		{&engine->batches, sizeof(struct neap_batch), options->batches_max},
		/* The worst case is batches just too large for their inline index. */
		{&engine->pages, sizeof(struct neap_index_page), options->requests_max / NEAP_BATCH_INLINE + 64},
		{&engine->segments, sizeof(struct neap_segment), options->peers_max},
		{&engine->openers, sizeof(struct neap_opener), options->peers_max + SPARE_OPENERS},
		{&engine->notify_calls, sizeof(struct neap_notify_call), NOTIFY_CALLS_MAX},
		{&engine->settle_calls, sizeof(struct neap_settle_call), SETTLE_CALLS_MAX},
	};
	int error = NEAP_OK;
	for (size_t i = 0; !error && i < sizeof pools / sizeof pools[0]; i++)
		error = neap_pool_create(pools[i].pool, reactor, pools[i].bytes, pools[i].capacity);
	if (error)
		return error;
	engine->extras = neap_allocate(reactor, options->requests_max * sizeof *engine->extras);
	engine->names_mask = 63;
	while (engine->names_mask < options->peers_max)
		engine->names_mask = engine->names_mask << 1 | 1;
	engine->names = neap_allocate(reactor, ((size_t)engine->names_mask + 1) * sizeof *engine->names);
	return engine->extras && engine->names ? NEAP_OK : NEAP_ENOMEM;
}

static void free_pools(struct neap_engine *engine)
{
	struct neap_pool *pools[] = {&engine->slices, &engine->tokens, &engine->batches, &engine->pages, &engine->segments,
	                             &engine->openers, &engine->notify_calls, &engine->settle_calls};
	for (size_t i = 0; i < sizeof pools / sizeof pools[0]; i++)
		neap_pool_destroy(pools[i]);
	neap_release(engine->reactor, engine->extras, engine->options.requests_max * sizeof *engine->extras);
	neap_release(engine->reactor, engine->names, ((size_t)engine->names_mask + 1) * sizeof *engine->names);
}

static int make_directory(struct neap_engine *engine, char *why, size_t why_size)
{
	const struct neap_engine_options *options = &engine->options;
	int error = neap_handshake_caller_create(&engine->caller, engine->reactor, CALLS_MAX, options->handshake_length_max,
	                                         &engine->view.socket_options);
	bool stores = neap_engine_stores(engine);
	if (!error)
		error = stores ? neap_store_open(engine, why, why_size)
		               : neap_p2p_backend_create(&engine->backend, engine->caller, neap_publish_self, engine);
	if (!error)
		error = neap_directory_create(&engine->directory, engine->reactor, engine->backend, options->metadata_cluster, options->peers_max,
		                              (stores ? options->metadata_timeout_ms : options->handshake_timeout_ms) * UINT64_C(1000000));
	if (!error && engine->home == engine && stores)
		error = neap_store_publish(engine, why, why_size);
	return error;
}

/* The segment that is this process: there from the start. */
static void make_self(struct neap_engine *engine)
{
	engine->self.engine = engine;
	engine->self.name = engine->name;
	engine->self.transport = engine->local;
	neap_machine_begin(&engine->self.machine, &engine->classes.segment->class_);
	neap_step(&engine->self.machine, segment_on_FOUND, 0);
}

void neap_engine_free(struct neap_engine *engine)
{
	struct neap_reactor *reactor = engine->reactor;
	neap_ready_cancel(reactor, &engine->work);
	neap_timer_cancel(reactor, &engine->close_timer);
	if (engine->batches.reactor)
		neap_batches_free_all(engine);
	if (engine->segments.reactor)
		neap_segments_free_all(engine);
	neap_notifies_free_all(engine);
	if (engine->local)
		engine->local->ops->destroy(engine->local);
	if (engine->remote)
		engine->remote->ops->destroy(engine->remote);
	neap_store_free(engine);
	if (engine->directory)
		neap_directory_destroy(engine->directory);
	if (engine->backend)
		engine->backend->ops->destroy(engine->backend);
	if (engine->caller)
		neap_handshake_caller_destroy(engine->caller);
	if (engine->service)
		neap_handshake_service_destroy(engine->service);
	if (engine->registry && engine->home == engine)
		(void)neap_registry_destroy(engine->registry);
	neap_publish_free(engine);
	free_pools(engine);
	neap_options_free(engine);
	neap_release(reactor, engine, sizeof *engine);
}

static struct neap_engine *make_shell(struct neap_reactor *reactor)
{
	struct neap_engine *engine = neap_allocate(reactor, sizeof *engine);
	if (!engine)
		return NULL;
	engine->reactor = reactor;
	engine->home = engine;
	engine->ended.tail = &engine->ended.first;
	engine->opened.tail = &engine->opened.first;
	engine->notified.tail = &engine->notified.first;
	engine->notifies.tail = &engine->notifies.first;
	engine->settled.tail = &engine->settled.first;
	engine->work.run = neap_engine_tend;
	engine->dependent.what = "an engine";
	engine->dependent.stop = neap_engine_stop;
	if (neap_transports_classes_of(reactor, &engine->classes)) {
		neap_release(reactor, engine, sizeof *engine);
		return NULL;
	}
	return engine;
}

static void fill_view(struct neap_engine *engine)
{
	struct neap_engine_core_view *view = &engine->view;
	view->reactor = engine->reactor;
	view->registry = engine->registry;
	view->options = &engine->options;
	view->stats = &engine->stats;
	view->core_index = engine->core_index;
	view->name = engine->name;
	view->host = engine->host;
	view->handshake_port = engine->handshake_port;
	view->socket_options.congestion =
		strcmp(engine->options.congestion, "system") == 0 ? NULL : engine->options.congestion;
}

/* Everything that can fail comes before the remote transport, whose end takes turns. */
static int make_parts(struct neap_engine *engine, neap_transport_maker *make_remote, char *why, size_t why_size)
{
	fill_view(engine);
	int error = make_pools(engine);
	if (!error)
		error = make_directory(engine, why, why_size);
	if (!error)
		error = neap_local_transport_create(&engine->local, engine);
	if (error) {
		if (!why[0])
			snprintf(why, why_size, "%s", neap_error_text(error));
		if (error == NEAP_ENOMEM)
			out_of_memory("pools of the engine", why, why_size);
		return error;
	}
	engine->make_remote = make_remote;
	engine->view.caller = engine->caller;
	error = make_remote(&engine->remote, engine, why, why_size);
	/* Devices take room in the document. */
	if (!error && engine->home == engine)
		neap_publish_limit(engine);
	return error;
}

static void go_live(struct neap_engine *engine)
{
	struct neap_descriptor described = {0};
	engine->remote->ops->describe(engine->remote, &described);
	engine->data_port = (uint16_t)described.tcp_data_port;
	atomic_store(&engine->home->ports[engine->core_index], engine->data_port);
	atomic_fetch_add(&engine->home->ports_version, 1);
	make_self(engine);
	neap_machine_begin(&engine->life, &engine->classes.engine->class_);
	neap_reactor_attach(engine->reactor, &engine->dependent);
}

static int make_home(struct neap_engine *engine, const struct neap_engine_options *options, neap_transport_maker *make_remote,
                     char *why, size_t why_size)
{
	int error = neap_options_fill(engine, options, why, why_size);
	if (!error)
		error = neap_options_check_files(engine, why, why_size);
	if (!error)
		error = neap_name_resolve(engine, why, why_size);
	if (error)
		return error;
	neap_random_fill(engine->reactor, engine->view.instance, sizeof engine->view.instance);
	neap_publish_boot_id(engine);
	error = neap_registry_create(&engine->registry, engine->reactor, engine->options.regions_max, engine->options.grants_max);
	if (error) {
		out_of_memory("memory registry", why, why_size);
		return error;
	}
	error = neap_name_publish(engine, why, why_size);
	if (error)
		return error;
	engine->publication.known = !neap_engine_stores(engine);
	return make_parts(engine, make_remote, why, why_size);
}

static int report(struct neap_reactor *reactor, int error, const char *reason, char *why, size_t why_size)
{
	neap_log(reactor, NEAP_LOG_ERROR, "engine", "not started: %s", *reason ? reason : neap_error_text(error));
	if (why && why_size)
		snprintf(why, why_size, "%s", *reason ? reason : neap_error_text(error));
	return error;
}

int neap_engine_create_over(struct neap_engine **engine_p, struct neap_reactor *reactor, const struct neap_engine_options *options,
                            neap_transport_maker *make_remote, neap_backend_maker *make_backend, void *user, char *why, size_t why_size)
{
	char reason[NEAP_WHY_MAX] = "";
	*engine_p = NULL;
	if (neap_reactor_stopping(reactor))
		return report(reactor, NEAP_ECLOSED, "the reactor is stopping", why, why_size);
	struct neap_engine *engine = make_shell(reactor);
	if (!engine)
		return report(reactor, NEAP_ENOMEM, "", why, why_size);
	engine->make_backend = make_backend;
	engine->make_backend_user = user;
	int error = make_home(engine, options, make_remote, reason, sizeof reason);
	if (error) {
		neap_engine_free(engine);
		return report(reactor, error, reason, why, why_size);
	}
	go_live(engine);
	*engine_p = engine;
	return NEAP_OK;
}

int neap_engine_create_with(struct neap_engine **engine_p, struct neap_reactor *reactor, const struct neap_engine_options *options,
                            neap_transport_maker *make_remote, char *why, size_t why_size)
{
	return neap_engine_create_over(engine_p, reactor, options, make_remote, NULL, NULL, why, why_size);
}

/* --- joining */

static int make_joined(struct neap_engine *engine, struct neap_engine *home, char *why, size_t why_size)
{
	struct neap_engine_options options = home->options;
	/* The home's port is taken; peers learn this one from the descriptor. */
	options.data_port = 0;
	engine->make_backend = home->make_backend;
	engine->make_backend_user = home->make_backend_user;
	int error = neap_options_fill(engine, &options, why, why_size);
	if (error)
		return error;
	engine->home = home;
	engine->registry = home->registry;
	memcpy(engine->view.instance, home->view.instance, sizeof engine->view.instance);
	memcpy(engine->boot, home->boot, sizeof engine->boot);
	memcpy(engine->name, home->name, sizeof engine->name);
	memcpy(engine->host, home->host, sizeof engine->host);
	engine->view.bind_address = home->view.bind_address;
	engine->handshake_port = home->handshake_port;
	error = neap_registry_add_core(engine->registry, engine->reactor, &engine->core_index);
	if (error) {
		snprintf(why, why_size, error == NEAP_ELIMIT ? "an engine has at most %u cores" : "out of memory (core %u)", NEAP_CORES_MAX);
		return error;
	}
	engine->has_core = true;
	return make_parts(engine, home->make_remote, why, why_size);
}

static int join(struct neap_engine **engine_p, struct neap_reactor *reactor, struct neap_engine *home, char *why, size_t why_size)
{
	char reason[NEAP_WHY_MAX] = "";
	struct neap_engine *engine = make_shell(reactor);
	if (!engine)
		return report(reactor, NEAP_ENOMEM, "", why, why_size);
	int error = make_joined(engine, home, reason, sizeof reason);
	if (error) {
		/* The home looks at other cores for microseconds and only now and then. */
		while (engine->has_core && neap_registry_remove_core(engine->registry, engine->core_index, reactor) != NEAP_OK)
			;
		neap_engine_free(engine);
		return report(reactor, error, reason, why, why_size);
	}
	go_live(engine);
	*engine_p = engine;
	return NEAP_OK;
}

int neap_engine_join(struct neap_engine **engine_p, struct neap_reactor *reactor, struct neap_engine *home, char *why, size_t why_size)
{
	*engine_p = NULL;
	int error = neap_reactor_check(reactor);
	if (error)
		return error;
	if (!home || home->home != home || home->reactor == reactor)
		return report(reactor, NEAP_EINVAL, "join needs the first engine of another reactor", why, why_size);
	atomic_fetch_add(&home->joined, 1);
	if (neap_reactor_stopping(reactor) || atomic_load(&home->refuses_joins))
		error = report(reactor, NEAP_ECLOSED, "the engine or the reactor is closing", why, why_size);
	if (!error)
		error = join(engine_p, reactor, home, why, why_size);
	if (error)
		atomic_fetch_sub(&home->joined, 1);
	return error;
}

/* --- small questions */

const struct neap_engine_core_view *neap_engine_view(const struct neap_engine *engine)
{
	return &engine->view;
}

bool neap_engine_is_running(const struct neap_engine *engine)
{
	return !engine->refuses;
}

void neap_engine_wake(struct neap_engine *engine)
{
	neap_ready_again(engine->reactor, &engine->work);
}

/* One piece of all that is owed to users and transports. */
void neap_engine_tend(struct neap_ready *ready)
{
	struct neap_engine *engine = (struct neap_engine *)(void *)((unsigned char *)ready - offsetof(struct neap_engine, work));
	bool more = neap_slices_tend(engine);
	more |= neap_batches_tend(engine);
	more |= neap_segments_tend(engine);
	more |= neap_notifies_tend(engine);
	more |= neap_settles_tend(engine);
	neap_store_tend(engine);
	more |= neap_engine_close_tend(engine);
	if (more)
		neap_engine_wake(engine);
}
