/* What carries requests: the devices' queues, endpoints on them, and the initiator over both. */
#include "transports/rdma/rdma_inside.h"
#include <stdio.h>
#include <string.h>

/* --- names */

/* Peers send connection requests to this host, at the port of our segment's name, as Mooncake has it. The host was looked at when the
 * engine began. */
static void name_server(struct neap_rdma *rdma)
{
	const char *given = rdma->options->advertised_host;
	struct neap_host_port host, named;
	char unheard[NEAP_RDMA_WHY_SIZE];
	(void)snprintf(rdma->server, sizeof rdma->server, "%s", rdma->view->name);
	if (!given || neap_host_port_parse(given, 1, &host, unheard, sizeof unheard))
		return;
	int error = neap_host_port_parse(rdma->view->name, rdma->view->handshake_port, &named, unheard, sizeof unheard);
	host.port = error ? rdma->view->handshake_port : named.port;
	host.has_port = true;
	(void)neap_host_port_format(&host, rdma->server_name, sizeof rdma->server_name);
	memcpy(rdma->server, rdma->server_name, sizeof rdma->server);
}

/* --- queues */

static void completed(void *user, struct neap_rdma_queue *queue, const struct neap_verbs_completion *completions, uint32_t count)
{
	struct neap_rdma *rdma = user;
	if (rdma->initiator)
		neap_rdma_initiator_completed(rdma->initiator, queue, completions, count);
}

/* Endpoints first: what the initiator finds is as it is. */
static void queue_changed(void *user, struct neap_rdma_queue *queue)
{
	struct neap_rdma *rdma = user;
	if (rdma->endpoints)
		(void)neap_rdma_endpoints_queue_changed(rdma->endpoints, queue); /* there are at most NEAP_DEVICES_MAX */
	if (rdma->initiator)
		neap_rdma_initiator_queue_changed(rdma->initiator, queue);
}

static int begin_queues(struct neap_rdma *rdma)
{
	const struct neap_rdma_queue_listener listener = {.completed = completed, .changed = queue_changed, .user = rdma};
	int error = NEAP_OK;
	rdma->queues = neap_allocate(rdma->reactor, rdma->device_count * sizeof *rdma->queues);
	if (!rdma->queues)
		return NEAP_ENOMEM;
	for (; !error && rdma->queues_begun < rdma->device_count; rdma->queues_begun += !error)
		error = neap_rdma_queue_begin(&rdma->queues[rdma->queues_begun], rdma->reactor, rdma->verbs,
		                              neap_rdma_devices_at(rdma->devices, rdma->queues_begun), &listener);
	return error;
}

/* --- endpoints and the initiator */

static void answer(void *user, uint64_t ticket, const struct neap_connection_message *reply)
{
	struct neap_rdma *rdma = user;
	neap_engine_connection_answer(rdma->base.engine, ticket, reply);
}

static uint32_t tail_bytes(const struct neap_rdma_engine_options *given)
{
	return given->fragment_ratio ? given->slice_bytes / given->fragment_ratio : 0;
}

static int begin_initiator(struct neap_rdma *rdma)
{
	const struct neap_rdma_engine_options *given = rdma->options;
	const struct neap_rdma_ground ground = {
		.view = rdma->view,
		.topology = rdma->topology,
		.queues = rdma->queues,
		.queue_count = rdma->device_count,
		.endpoints = rdma->endpoints,
		.memory = rdma->memory,
		.find_local = neap_rdma_find_local,
		.scratch = &rdma->scratch,
		.want_scratch = neap_rdma_want_scratch,
		.user = rdma,
		.options = {
			.piece_bytes = given->slice_bytes,
			.tail_bytes = tail_bytes(given),
			.tries_max = given->retries_max,
			.rail_pause_ms = given->rail_pause_ms,
			.window_bytes = given->window_bytes,
			.any_rail = !given->same_name,
		},
	};
	return neap_rdma_initiator_create(&rdma->initiator, &ground);
}

static void own_address(const struct neap_rdma *rdma, struct neap_host_port *address_p)
{
	const char *host = rdma->view->host;
	*address_p = (struct neap_host_port){.port = rdma->view->handshake_port, .has_port = true, .is_v6 = strchr(host, ':') != NULL};
	(void)snprintf(address_p->host, sizeof address_p->host, "%s", host);
}

static int begin_endpoints(struct neap_rdma *rdma)
{
	const struct neap_rdma_engine_options *given = rdma->options;
	const struct neap_engine_options *engine = rdma->view->options;
	struct neap_rdma_endpoint_options options = {
		.endpoints_max = given->endpoints_max,
		.qps = given->qps_per_endpoint,
		.depth = given->sends_max,
		.mtu_bytes = given->mtu_bytes,
		.traffic_class = (uint8_t)given->traffic_class,
		.service_level = (uint8_t)given->service_level,
		.pkey_index = (uint16_t)given->pkey_index,
		.retry_count = (uint8_t)given->silence_retries,
		.handshake_timeout_ns = engine->handshake_timeout_ms * UINT64_C(1000000),
		.progress_timeout_ns = engine->progress_timeout_ms * UINT64_C(1000000),
		.drain_timeout_ns = engine->drain_timeout_ms * UINT64_C(1000000),
	};
	own_address(rdma, &options.address);
	const struct neap_rdma_answers answers = {.answer = answer, .user = rdma};
	return neap_rdma_endpoints_create(rdma->reactor, rdma->verbs, rdma->helper, rdma->view->caller, &answers, rdma->server,
	                                  rdma->view->instance, &options, &rdma->endpoints);
}

int neap_rdma_lanes_begin(struct neap_rdma *rdma)
{
	name_server(rdma);
	int error = begin_queues(rdma);
	if (!error)
		error = begin_endpoints(rdma);
	return error ? error : begin_initiator(rdma);
}

void neap_rdma_lanes_device_changed(struct neap_rdma *rdma, struct neap_rdma_device *device)
{
	uint32_t index = (uint32_t)(device - neap_rdma_devices_at(rdma->devices, 0));
	if (index < rdma->queues_begun)
		neap_rdma_queue_device_changed(&rdma->queues[index]);
}

int neap_rdma_lanes_asked(struct neap_rdma *rdma, uint64_t ticket, const struct neap_connection_message *request,
                          struct neap_connection_message *reply)
{
	if (!rdma->endpoints || rdma->ending)
		return NEAP_ECLOSED;
	return neap_rdma_endpoints_asked(rdma->endpoints, ticket, request, reply);
}

/* --- the end */

static void endpoints_closed(void *user)
{
	struct neap_rdma *rdma = user;
	rdma->endpoints = NULL;
	rdma->lanes_closed(rdma);
}

static void initiator_closed(void *user)
{
	struct neap_rdma *rdma = user;
	if (rdma->endpoints)
		neap_rdma_endpoints_close(rdma->endpoints, endpoints_closed, rdma);
	else
		rdma->lanes_closed(rdma);
}

void neap_rdma_lanes_close(struct neap_rdma *rdma, void (*closed)(struct neap_rdma *rdma))
{
	rdma->lanes_closed = closed;
	if (rdma->endpoints)
		neap_rdma_endpoints_hurry(rdma->endpoints);
	if (rdma->initiator)
		neap_rdma_initiator_close(rdma->initiator, initiator_closed, rdma);
	else
		initiator_closed(rdma);
}

void neap_rdma_lanes_free(struct neap_rdma *rdma)
{
	for (; rdma->queues_begun > 0; rdma->queues_begun--)
		neap_rdma_queue_end(&rdma->queues[rdma->queues_begun - 1]);
	if (rdma->queues)
		neap_release(rdma->reactor, rdma->queues, rdma->device_count * sizeof *rdma->queues);
	rdma->queues = NULL;
}
