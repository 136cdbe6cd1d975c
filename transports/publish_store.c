/* An engine whose segment is published in a metadata store: the back-end, the publisher over it, and what the owner is told of it. */
#include "metadata/publisher.h"
#include "transports/engine_state.h"
#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)

bool neap_engine_stores(const struct neap_engine *engine)
{
	return engine->make_backend || strcmp(engine->options.metadata, "P2PHANDSHAKE") != 0;
}

/* Peers on other machines would find an address of their own. */
static int check_reach(const struct neap_engine *engine, char *why, size_t why_size)
{
	char unheard[NEAP_WHY_MAX];
	struct neap_sockaddr numeric;
	struct neap_host_port named;
	const struct neap_engine_options *options = &engine->options;
	bool asked = options->local_name && neap_host_port_parse(options->local_name, 1, &named, unheard, sizeof unheard) == NEAP_OK &&
	             strcmp(named.host, engine->host) == 0;
	bool loopback = neap_sockaddr_from_numeric(engine->host, 0, &numeric) == NEAP_OK ? neap_sockaddr_is_loopback(&numeric)
	                                                                                 : strcmp(engine->host, "localhost") == 0;
	if (!loopback || engine->backend->local || asked || options->advertised_host || engine->bind_was_said)
		return NEAP_OK;
	(void)snprintf(why, why_size,
	               "%.160s is for other machines too, and this process would be published there as %s, where they find nobody: set "
	               "local_name or advertised_host (MC_TCP_BIND_ADDRESS) to the address that peers reach this machine at",
	               engine->backend->where, engine->host);
	return NEAP_EADDRESS;
}

int neap_store_open(struct neap_engine *engine, char *why, size_t why_size)
{
	const struct neap_engine_options *options = &engine->options;
	char prefix[NEAP_BACKEND_KEY_MAX] = "";
	int error = neap_directory_prefix(options->metadata_cluster, prefix, sizeof prefix);
	if (error) {
		(void)snprintf(why, why_size, "metadata_cluster is longer than a key may be (%u bytes)", NEAP_BACKEND_KEY_MAX - 1);
		return error;
	}
	struct neap_backend_options given = {.connection = options->metadata,
	                                     .redis_username = options->redis_username,
	                                     .redis_password = options->redis_password,
	                                     .redis_database = options->redis_database,
	                                     .etcd_username = options->etcd_username,
	                                     .etcd_password = options->etcd_password,
	                                     .ca_file = options->metadata_ca_file,
	                                     .certificate_file = options->metadata_certificate_file,
	                                     .key_file = options->metadata_key_file,
	                                     .prefix = prefix};
	error = engine->make_backend ? engine->make_backend(&engine->backend, engine->reactor, engine->make_backend_user)
	                                 : neap_backend_open(&engine->backend, engine->reactor, &given, why, why_size);
	if (error)
		return error;
	if (options->metadata_lease_ms && !neap_backend_can(engine->backend, NEAP_BACKEND_LEASES)) {
		(void)snprintf(why, why_size, "metadata_lease_ms is %u, and %s has no leases: set it to 0, or use redis or etcd",
		               options->metadata_lease_ms, engine->backend->scheme);
		return NEAP_EINVAL;
	}
	return engine->home == engine ? check_reach(engine, why, why_size) : NEAP_OK;
}

/* --- publishing --------------------------------------------------------------------------------------------------------- */

static void told(void *user, int error, const char *why)
{
	struct neap_engine *engine = user;
	struct neap_publication *publication = &engine->publication;
	if (error)
		neap_log(engine->reactor, error == NEAP_ETAKEN ? NEAP_LOG_ERROR : NEAP_LOG_WARNING, "metadata", "%s", why);
	publication->error = error;
	publication->known = publication->fresh = true;
	(void)snprintf(publication->why, sizeof publication->why, "%.300s", why);
	neap_engine_wake(engine);
}

static bool is_old(void *user)
{
	return neap_publish_is_old(user);
}

int neap_store_publish(struct neap_engine *engine, char *why, size_t why_size)
{
	const struct neap_engine_options *options = &engine->options;
	struct neap_publisher_options publisher = {.backend = engine->backend,
	                                           .caller = engine->caller,
	                                           .cluster = options->metadata_cluster,
	                                           .name = engine->name,
	                                           .timeout_ns = options->metadata_timeout_ms * MS,
	                                           .refresh_ns = options->metadata_refresh_ms * MS,
	                                           .lease_ns = options->metadata_lease_ms * MS,
	                                           .describe = neap_publish_describe,
	                                           .is_old = is_old,
	                                           .instance = engine->view.instance,
	                                           .told = told,
	                                           .user = engine};
	neap_name_address(engine, &publisher.address);
	int error = neap_publisher_create(&engine->publisher, engine->reactor, &publisher);
	if (error)
		(void)snprintf(why, why_size, "segment '%.80s' cannot be published: %s", engine->name, neap_error_text(error));
	return error;
}

void neap_store_changed(struct neap_engine *engine)
{
	if (engine->publisher)
		neap_publisher_changed(engine->publisher);
}

/* --- the end ------------------------------------------------------------------------------------------------------------ */

static void withdrawn(void *user)
{
	struct neap_engine *engine = user;
	engine->withdrawing = false;
	neap_timer_cancel(engine->reactor, &engine->withdraw_timer);
	neap_engine_wake(engine);
}

static void gave_up(struct neap_timer *timer, void *user)
{
	struct neap_engine *engine = user;
	(void)timer;
	neap_log(engine->reactor, NEAP_LOG_WARNING, "metadata",
	         "%s did not answer within drain_timeout_ms (%u): what it has of segment '%.80s' stays there until its name is used again",
	         engine->backend->where, engine->options.drain_timeout_ms, engine->name);
	neap_publisher_destroy(engine->publisher);
	engine->publisher = NULL;
	withdrawn(engine);
}

void neap_store_withdraw(struct neap_engine *engine)
{
	if (!engine->publisher)
		return;
	engine->withdrawing = true;
	(void)neap_timer_start(engine->reactor, &engine->withdraw_timer,
	                       neap_now(engine->reactor) + engine->options.drain_timeout_ms * MS, gave_up, engine);
	neap_publisher_withdraw(engine->publisher, withdrawn, engine);
}

void neap_store_free(struct neap_engine *engine)
{
	neap_timer_cancel(engine->reactor, &engine->withdraw_timer);
	neap_publisher_destroy(engine->publisher);
	engine->publisher = NULL;
}

/* --- the owner ---------------------------------------------------------------------------------------------------------- */

int neap_store_watch(struct neap_engine *engine, void (*watcher)(void *user, int error, const char *why), void *user)
{
	struct neap_publication *publication = &engine->publication;
	if (!neap_engine_is_running(engine))
		return NEAP_ECLOSED;
	publication->watcher = watcher;
	publication->user = user;
	publication->fresh = publication->known;
	neap_engine_wake(engine);
	neap_reactor_touch(engine->reactor);
	return NEAP_OK;
}

void neap_store_tend(struct neap_engine *engine)
{
	struct neap_publication *publication = &engine->publication;
	if (!publication->fresh || !publication->watcher)
		return;
	publication->fresh = false;
	publication->watcher(publication->user, publication->error, publication->error ? publication->why : NULL);
}
