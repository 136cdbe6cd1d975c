/* The public calls: each looks whether it is made on the right thread, by the right process, with an engine, and passes it on. */
#include "transports/engine_state.h"
#include <string.h>

static int check(const struct neap_engine *engine)
{
	return engine ? neap_reactor_check(engine->reactor) : NEAP_EINVAL;
}

/* Memory and notifies belong to the first engine of a process. */
static int check_home(const struct neap_engine *engine)
{
	int error = check(engine);
	return !error && engine->home != engine ? NEAP_EINVAL : error;
}

/* --- engine */

int neap_engine_create(struct neap_engine **engine_p, struct neap_reactor *reactor, const struct neap_engine_options *options,
                       char *why, size_t why_size)
{
	if (!engine_p)
		return NEAP_EINVAL;
	*engine_p = NULL;
	int error = reactor ? neap_reactor_check(reactor) : NEAP_EINVAL;
	return error ? error : neap_engine_create_with(engine_p, reactor, options, neap_rdma_transport_create, why, why_size);
}

int neap_engine_close(struct neap_engine *engine, void (*closed)(void *user), void *user)
{
	int error = check(engine);
	return error ? error : neap_engine_begin_close(engine, closed, user);
}

const char *neap_engine_name(const struct neap_engine *engine)
{
	return engine->name;
}

uint16_t neap_engine_handshake_port(const struct neap_engine *engine)
{
	return engine->handshake_port;
}

uint16_t neap_engine_data_port(const struct neap_engine *engine)
{
	return engine->data_port;
}

void neap_engine_instance(const struct neap_engine *engine, uint8_t instance[16])
{
	memcpy(instance, engine->view.instance, sizeof engine->view.instance);
}

struct neap_reactor *neap_engine_reactor(const struct neap_engine *engine)
{
	return engine->reactor;
}

void neap_engine_stats(const struct neap_engine *engine, struct neap_engine_stats *stats_p)
{
	if (check(engine) || !stats_p)
		return;
	*stats_p = engine->stats;
	if (engine->service) {
		struct neap_handshake_service_stats handshakes;
		neap_handshake_service_stats(engine->service, &handshakes);
		stats_p->handshakes_served = handshakes.served;
		stats_p->handshakes_refused = handshakes.refused;
	}
	stats_p->peers = engine->segments.used;
	stats_p->regions = engine->home == engine ? neap_registry_regions(engine->registry) : 0;
	stats_p->grants = engine->home == engine ? neap_registry_grants(engine->registry) : 0;
	stats_p->requests_pending = engine->pending;
	stats_p->batches = engine->batches.used;
}

int neap_engine_device(const struct neap_engine *engine, uint32_t index, struct neap_device_info *info_p)
{
	if (check(engine) || !info_p)
		return NEAP_EINVAL;
	const struct neap_transport *remote = engine->remote;
	return remote->ops->device ? remote->ops->device(remote, index, info_p) : NEAP_ENODEV;
}

int neap_engine_rdma_stats(const struct neap_engine *engine, struct neap_rdma_stats *stats_p)
{
	if (check(engine) || !stats_p)
		return NEAP_EINVAL;
	const struct neap_transport *remote = engine->remote;
	if (!remote->ops->rdma_stats)
		return NEAP_ENODEV;
	remote->ops->rdma_stats(remote, stats_p);
	return NEAP_OK;
}

/* --- memory and grants */

int neap_memory_register(struct neap_engine *engine, const struct neap_memory *memory, size_t count, neap_region_id *ids, char *why,
                         size_t why_size)
{
	char unheard[NEAP_WHY_MAX];
	int error = check_home(engine);
	if (!error && !memory)
		error = NEAP_EINVAL;
	if (!error && !neap_engine_is_running(engine))
		error = NEAP_ECLOSED;
	if (error)
		return error;
	error = neap_registry_register(engine->registry, memory, count, ids, why && why_size ? why : unheard,
	                               why && why_size ? why_size : sizeof unheard);
	if (!error)
		neap_store_changed(engine);
	return error;
}

int neap_memory_unregister(struct neap_engine *engine, neap_region_id region, void (*released)(void *user), void *user)
{
	int error = check_home(engine);
	if (!error)
		error = neap_registry_unregister(engine->registry, region, released, user);
	if (!error)
		neap_store_changed(engine);
	return error;
}

int neap_memory_settled(struct neap_engine *engine, neap_region_id region, neap_memory_settled_func *settled, void *user)
{
	int error = check_home(engine);
	return error ? error : neap_settle_begin(engine, region, settled, user);
}

int neap_engine_publish_watch(struct neap_engine *engine, void (*told)(void *user, int error, const char *why), void *user)
{
	int error = check_home(engine);
	return error ? error : neap_store_watch(engine, told, user);
}

int neap_memory_find(struct neap_engine *engine, const void *address, uint64_t length, neap_region_id *id_p)
{
	int error = check_home(engine);
	if (!error && !id_p)
		error = NEAP_EINVAL;
	return error ? error : neap_registry_find_exact(engine->registry, address, length, id_p);
}

int neap_memory_info(struct neap_engine *engine, neap_region_id region, struct neap_region_info *info_p)
{
	int error = check_home(engine);
	if (!error && !info_p)
		error = NEAP_EINVAL;
	return error ? error : neap_registry_info(engine->registry, region, info_p);
}

int neap_grant_create(struct neap_engine *engine, const void *address, uint64_t length, unsigned rights,
                      const uint8_t peer_instance[16], struct neap_grant_token *token_p)
{
	int error = check_home(engine);
	if (!error && !neap_engine_is_running(engine))
		error = NEAP_ECLOSED;
	return error ? error : neap_registry_grant(engine->registry, address, length, rights, peer_instance, token_p);
}

static int end_grant(struct neap_engine *engine, const struct neap_grant_token *token, bool quiet, void (*ended)(void *user), void *user)
{
	int error = check_home(engine);
	if (!error && !token)
		error = NEAP_EINVAL;
	return error ? error : neap_registry_grant_end_as(engine->registry, token, quiet, ended, user);
}

int neap_grant_end(struct neap_engine *engine, const struct neap_grant_token *token, void (*ended)(void *user), void *user)
{
	return end_grant(engine, token, false, ended, user);
}

int neap_grant_end_quiet(struct neap_engine *engine, const struct neap_grant_token *token, void (*ended)(void *user), void *user)
{
	return end_grant(engine, token, true, ended, user);
}

/* --- segments */

int neap_segment_open(struct neap_engine *engine, const char *name, neap_opened_func *opened, void *user)
{
	int error = check(engine);
	return error ? error : neap_segment_begin_open(engine, name, opened, user);
}

int neap_segment_refresh(struct neap_engine *engine, neap_segment_id segment, neap_opened_func *opened, void *user)
{
	int error = check(engine);
	return error ? error : neap_segment_begin_refresh(engine, segment, opened, user);
}

int neap_segment_close(struct neap_engine *engine, neap_segment_id segment)
{
	int error = check(engine);
	return error ? error : neap_segment_begin_close(engine, segment);
}

int neap_segment_info(struct neap_engine *engine, neap_segment_id segment, struct neap_segment_info *info_p)
{
	int error = check(engine);
	if (!error && !info_p)
		error = NEAP_EINVAL;
	return error ? error : neap_segment_ask_info(engine, segment, info_p);
}

int neap_segment_buffer(struct neap_engine *engine, neap_segment_id segment, uint32_t index, uint64_t *address_p, uint64_t *length_p)
{
	int error = check(engine);
	if (!error && (!address_p || !length_p))
		error = NEAP_EINVAL;
	return error ? error : neap_segment_ask_buffer(engine, segment, index, address_p, length_p);
}

/* --- transfers */

int neap_submit(struct neap_engine *engine, const struct neap_request *requests, size_t count,
                const struct neap_batch_options *options, neap_batch_id *batch_p)
{
	int error = check(engine);
	return error ? error : neap_batch_submit(engine, requests, count, options, batch_p);
}

int neap_batch_status(struct neap_engine *engine, neap_batch_id batch, uint32_t index, struct neap_outcome *outcome_p)
{
	int error = check(engine);
	if (!error && !outcome_p)
		error = NEAP_EINVAL;
	return error ? error : neap_batch_ask_status(engine, batch, index, outcome_p);
}

int neap_batch_summary(struct neap_engine *engine, neap_batch_id batch, struct neap_batch_summary *summary_p, bool *finished_p)
{
	int error = check(engine);
	return error ? error : neap_batch_ask_summary(engine, batch, summary_p, finished_p);
}

int neap_batch_cancel(struct neap_engine *engine, neap_batch_id batch)
{
	int error = check(engine);
	return error ? error : neap_batch_ask_cancel(engine, batch);
}

int neap_request_cancel(struct neap_engine *engine, neap_batch_id batch, uint32_t index)
{
	int error = check(engine);
	return error ? error : neap_batch_ask_cancel_one(engine, batch, index);
}

int neap_batch_free(struct neap_engine *engine, neap_batch_id batch)
{
	int error = check(engine);
	return error ? error : neap_batch_ask_free(engine, batch);
}

/* --- notify */

int neap_notify_send(struct neap_engine *engine, neap_segment_id segment, const char *name, const char *message,
                     void (*sent)(void *user, int error, const char *why), void *user)
{
	int error = check(engine);
	return error ? error : neap_notify_begin_send(engine, segment, name, message, sent, user);
}

int neap_notify_take(struct neap_engine *engine, struct neap_notify *notify_p)
{
	int error = check_home(engine);
	if (!error && !notify_p)
		error = NEAP_EINVAL;
	return error ? error : neap_notify_take_one(engine, notify_p);
}

void neap_notify_watch(struct neap_engine *engine, void (*arrived)(void *user), void *user)
{
	if (check_home(engine))
		return;
	engine->notifies.arrived = arrived;
	engine->notifies.user = user;
	/* What came before the watch was set is told too. */
	engine->notifies.fresh = engine->notifies.first != NULL;
	if (arrived && engine->notifies.fresh)
		neap_engine_wake(engine);
}
