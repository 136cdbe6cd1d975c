#include "store/peer/service_inside.h"
#include <stdio.h>

/* The order is that of their numbers: it is also that of the statistics. */
static const struct neap_rpc_handler handlers[NEAP_PEER_METHODS] = {
	{&neap_method_pre_write, peer_pre_write},
	{&neap_method_write_commit, peer_write_commit},
	{&neap_method_write_revoke, peer_write_revoke},
	{&neap_method_pin_key, peer_pin_key},
	{&neap_method_un_pin_key, peer_un_pin_key},
	{&neap_method_write_remote_data, peer_write_remote_data},
	{&neap_method_read_remote_data, peer_read_remote_data},
	{&neap_method_look_up, peer_look_up},
	{&neap_method_remove_key, peer_remove_key},
	{&neap_method_describe, peer_describe},
};

static void release(struct neap_peer_service *service)
{
	peer_holdings_destroy(service);
	neap_pool_destroy(&service->operations);
	neap_release(service->reactor, service, sizeof *service);
}

/* --- begin -------------------------------------------------------------------------------------------------------------- */

static void set_options(struct neap_peer_service *service, const struct neap_peer_service_options *options)
{
	struct neap_peer_service_options *o = &service->options;
	*o = *options;
	o->writes_per_connection = o->writes_per_connection ? o->writes_per_connection : 1024;
	o->pins_per_connection = o->pins_per_connection ? o->pins_per_connection : 4096;
	o->writes_max = o->writes_max ? o->writes_max : 65536;
	o->pins_max = o->pins_max ? o->pins_max : 65536;
	o->operations_max = o->operations_max ? o->operations_max : 16384;
}

static void end_piece(struct neap_ready *ready);

int neap_peer_service_create(struct neap_peer_service **service_p, struct neap_reactor *reactor, struct neap_engine *engine,
                             struct neap_owner *owner, const struct neap_peer_service_options *options, int *system_errno_p, char *why,
                             size_t why_size)
{
	*service_p = NULL;
	*system_errno_p = 0;
	struct neap_peer_service *service = neap_allocate(reactor, sizeof *service);
	int error = NEAP_ENOMEM;
	if (service) {
		service->reactor = reactor;
		service->engine = engine;
		service->owner = owner;
		service->ending.run = end_piece;
		set_options(service, options);
		for (uint32_t i = 0; i < NEAP_PEER_METHODS; i++)
			service->stats.methods[i].name = handlers[i].method->name;
		error = peer_holdings_create(service);
	}
	if (!error)
		error = neap_pool_create(&service->operations, reactor, sizeof(struct peer_operation), service->options.operations_max);
	if (error)
		(void)snprintf(why, why_size, "peer service: %s", neap_error_text(error));
	else
		error = neap_rpc_server_create(&service->rpc, reactor, options->address, handlers, NEAP_PEER_METHODS, &options->rpc, service,
		                               system_errno_p, why, why_size);
	if (error) {
		if (service)
			release(service);
		return error;
	}
	service->dependent.what = "a peer service";
	neap_reactor_attach(reactor, &service->dependent);
	*service_p = service;
	return NEAP_OK;
}

/* --- end ---------------------------------------------------------------------------------------------------------------- */

void neap_peer_service_drain(struct neap_peer_service *service)
{
	service->draining = true;
}

static void reap_service(struct neap_reap *reap)
{
	struct neap_peer_service *service = (struct neap_peer_service *)(void *)((char *)reap - offsetof(struct neap_peer_service, reap));
	neap_reactor_detach(service->reactor, &service->dependent);
	release(service);
}

/* The connections are gone, and then what the owner still does for them. */
static void end_piece(struct neap_ready *ready)
{
	struct neap_peer_service *service = (struct neap_peer_service *)(void *)((char *)ready - offsetof(struct neap_peer_service, ending));
	if (service->rpc || service->operations.used > 0 || service->reap.reap)
		return;
	service->reap.reap = reap_service;
	neap_reap_later(service->reactor, &service->reap);
	if (service->closed)
		service->closed(service->closed_user);
}

static void stopped(void *user)
{
	struct neap_peer_service *service = user;
	neap_rpc_server_destroy(service->rpc);
	service->rpc = NULL;
	neap_ready_again(service->reactor, &service->ending);
}

void neap_peer_service_close(struct neap_peer_service *service, void (*closed)(void *user), void *user)
{
	if (service->closing)
		return;
	service->draining = service->closing = true;
	service->closed = closed;
	service->closed_user = user;
	neap_rpc_server_stop(service->rpc, stopped);
}

struct neap_rpc_server *neap_peer_service_rpc(struct neap_peer_service *service)
{
	return service->rpc;
}

void neap_peer_service_stats(const struct neap_peer_service *service, struct neap_peer_service_stats *stats_p)
{
	*stats_p = service->stats;
	stats_p->writes_now = service->holdings[PEER_WRITE].line.count;
	stats_p->pins_now = service->holdings[PEER_PIN].line.count;
	stats_p->operations_now = service->operations.used;
}
