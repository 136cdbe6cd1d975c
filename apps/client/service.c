#include "apps/client/service_inside.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- answers --------------------------------------------------------------------------------------------------------------- */

void local_refuse(struct client_service *service, uint64_t call, int status, const char *format, ...)
{
	char why[500];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(why, sizeof why, format, arguments);
	va_end(arguments);
	(void)neap_rpc_answer(service->rpc, call, status, NULL, why, status == NEAP_EAGAIN ? 100 : 0);
}

int local_status_of(int error)
{
	return error == NEAP_EINVAL ? NEAP_STORE_INVALID_PARAMS : error <= NEAP_EAGAIN ? error : NEAP_STORE_INTERNAL_ERROR;
}

uint64_t local_time_left(const struct client_service *service, uint64_t deadline_ns)
{
	uint64_t now_ns = neap_now(service->reactor), margin_ns = LOCAL_ANSWER_NS;
	if (deadline_ns == UINT64_MAX)
		return 0; /* the store's own */
	return deadline_ns > now_ns + 2 * margin_ns ? deadline_ns - now_ns - margin_ns : margin_ns;
}

/* --- memory and the queue for it --------------------------------------------------------------------------------------------- */

static void unqueue(struct local_transfer *transfer)
{
	struct client_service *service = transfer->service;
	if (transfer->previous)
		transfer->previous->next = transfer->next;
	else
		service->first = transfer->next;
	if (transfer->next)
		transfer->next->previous = transfer->previous;
	else
		service->last = transfer->previous;
	transfer->next = transfer->previous = NULL;
	service->waiting--;
}

static void enqueue(struct local_transfer *transfer)
{
	struct client_service *service = transfer->service;
	transfer->previous = service->last;
	transfer->next = NULL;
	if (service->last)
		service->last->next = transfer;
	else
		service->first = transfer;
	service->last = transfer;
	service->waiting++;
}

void local_got_memory(struct local_transfer *transfer)
{
	if (transfer->is_get)
		local_get_granted(transfer);
	else
		local_put_granted(transfer);
}

/* In order: a large value that waits is not passed by small ones for ever. */
static void serve(struct neap_ready *ready)
{
	struct client_service *service = (struct client_service *)(void *)((char *)ready - offsetof(struct client_service, serve));
	while (service->first) {
		struct local_transfer *transfer = service->first;
		if (!client_buffers_take(&service->buffers, transfer->wanted, &transfer->pieces))
			break;
		unqueue(transfer);
		neap_timer_cancel(service->reactor, &transfer->timer);
		local_got_memory(transfer);
	}
	if (service->draining && service->idle && !service->transfers.used) {
		void (*idle)(void *user) = service->idle;
		service->idle = NULL;
		idle(service->idle_user);
	}
}

static void give_memory(struct local_transfer *transfer)
{
	client_buffers_give(&transfer->service->buffers, &transfer->pieces);
	neap_ready_again(transfer->service->reactor, &transfer->service->serve);
}

static void on_waited(struct neap_timer *timer, void *user)
{
	(void)timer;
	struct local_transfer *transfer = user;
	local_refuse(transfer->service, transfer->call, NEAP_ETIMEDOUT,
	             "other values had all buffer memory (--local_buffer_size) until the deadline; raise it, or have less under way at once");
	local_leave(transfer);
}

void local_want_memory(struct local_transfer *transfer, uint64_t bytes)
{
	struct client_service *service = transfer->service;
	if (bytes > service->options.bytes) {
		local_refuse(service, transfer->call, NEAP_ELIMIT,
		             "a value of %llu bytes does not fit into the %llu bytes of buffer memory; restart the neap-client with a larger "
		             "--local_buffer_size",
		             (unsigned long long)bytes, (unsigned long long)service->options.bytes);
		local_leave(transfer);
		return;
	}
	transfer->wanted = bytes;
	if (!service->first && client_buffers_take(&service->buffers, bytes, &transfer->pieces)) {
		local_got_memory(transfer);
		return;
	}
	if (service->waiting >= service->options.waiting_max) {
		service->stats.refused_busy++;
		local_refuse(service, transfer->call, NEAP_EAGAIN,
		             "%u values wait for buffer memory already; try again, or raise --local_buffer_size", service->waiting);
		local_leave(transfer);
		return;
	}
	transfer->phase = LOCAL_WAITING;
	enqueue(transfer);
	uint64_t now_ns = neap_now(service->reactor), idle_ns = now_ns + service->options.idle_ms * LOCAL_MS_NS;
	uint64_t due_ns = transfer->deadline_ns < idle_ns ? transfer->deadline_ns : idle_ns;
	neap_timer_start(service->reactor, &transfer->timer, due_ns, on_waited, transfer);
}

void *client_service_borrow(struct client_service *service, uint64_t bytes)
{
	struct client_pieces pieces;
	if (service->first || !client_buffers_take(&service->buffers, bytes, &pieces))
		return NULL;
	if (pieces.count == 1)
		return pieces.slices[0].address;
	client_buffers_give(&service->buffers, &pieces);
	return NULL;
}

void client_service_return(struct client_service *service, void *memory, uint64_t bytes)
{
	struct client_pieces pieces = {.slices = {{.address = memory, .length = bytes}}, .count = 1, .bytes = bytes};
	client_buffers_give(&service->buffers, &pieces);
	neap_ready_again(service->reactor, &service->serve);
}

/* --- transfers ---------------------------------------------------------------------------------------------------------------- */

static void free_transfer(struct local_transfer *transfer)
{
	struct client_service *service = transfer->service;
	neap_timer_cancel(service->reactor, &transfer->timer);
	give_memory(transfer);
	neap_pool_give(&service->transfers, transfer);
}

void local_leave(struct local_transfer *transfer)
{
	struct client_service *service = transfer->service;
	neap_rpc_detach(&transfer->resource);
	if (transfer->phase == LOCAL_WAITING)
		unqueue(transfer);
	neap_timer_cancel(service->reactor, &transfer->timer);
	transfer->phase = LOCAL_LEAVING;
	if (!transfer->asked && !transfer->was_held)
		free_transfer(transfer);
}

/* The connection has ended. Whoever has taken a value to its end need not say so first. */
static void on_release(struct neap_rpc_resource *resource)
{
	struct local_transfer *transfer = (struct local_transfer *)(void *)resource;
	bool taken = transfer->phase == LOCAL_SENDING && transfer->done == transfer->size;
	transfer->service->stats.given_up += !taken;
	if (transfer->asked)
		neap_store_cancel(transfer->service->store, transfer->operation);
	local_leave(transfer);
}

void local_outcome(struct local_transfer *transfer, const struct neap_store_outcome *outcome)
{
	transfer->asked = false;
	transfer->was_held = outcome->held;
}

void local_released(void *user)
{
	struct local_transfer *transfer = user;
	transfer->was_held = false;
	if (transfer->phase == LOCAL_LEAVING && !transfer->asked)
		free_transfer(transfer);
}

static void on_idle(struct neap_timer *timer, void *user)
{
	(void)timer;
	struct local_transfer *transfer = user;
	transfer->service->stats.idle++;
	local_leave(transfer);
}

void local_touch(struct local_transfer *transfer)
{
	struct client_service *service = transfer->service;
	uint64_t due_ns = neap_now(service->reactor) + service->options.idle_ms * LOCAL_MS_NS;
	neap_timer_start(service->reactor, &transfer->timer, due_ns, on_idle, transfer);
}

struct local_transfer *local_find(struct client_service *service, const struct neap_rpc_incoming *incoming, uint64_t id,
                                  enum local_phase phase)
{
	struct local_transfer *transfer = neap_pool_find(&service->transfers, id);
	if (transfer && transfer->connection == incoming->connection && transfer->phase == phase)
		return transfer;
	local_refuse(service, incoming->handle, NEAP_ESTALE,
	             "there is no such transfer of this connection: it has ended, or was left alone for %llu ms",
	             (unsigned long long)service->options.idle_ms);
	return NULL;
}

struct local_transfer *local_begin(struct client_service *service, const struct neap_rpc_incoming *incoming, struct neap_rpc_view key)
{
	if (service->draining) {
		local_refuse(service, incoming->handle, NEAP_STORE_UNAVAILABLE_IN_CURRENT_STATUS, "this neap-client is leaving; use another");
		return NULL;
	}
	if (!key.length) {
		local_refuse(service, incoming->handle, NEAP_STORE_INVALID_KEY, "the key is empty");
		return NULL;
	}
	struct local_transfer *transfer = neap_pool_take(&service->transfers);
	if (!transfer) {
		service->stats.refused_busy++;
		local_refuse(service, incoming->handle, NEAP_EAGAIN, "%u values are under way already; try again", service->transfers.used);
		return NULL;
	}
	memset(transfer, 0, offsetof(struct local_transfer, key));
	transfer->service = service;
	transfer->connection = incoming->connection;
	transfer->call = incoming->handle;
	transfer->deadline_ns = incoming->deadline_ns;
	transfer->key_length = key.length;
	memcpy(transfer->key, key.bytes, key.length);
	transfer->phase = LOCAL_LEAVING;
	transfer->resource.release = on_release;
	if (neap_rpc_attach(service->rpc, incoming->connection, &transfer->resource)) {
		neap_pool_give(&service->transfers, transfer);
		return NULL;
	}
	return transfer;
}

void local_on_end(void *user, const struct neap_rpc_incoming *incoming, const void *request)
{
	struct client_service *service = user;
	const struct local_end *end = request;
	struct local_transfer *transfer = neap_pool_find(&service->transfers, end->transfer);
	bool ends = transfer && transfer->connection == incoming->connection &&
	            (transfer->phase == LOCAL_FILLING || transfer->phase == LOCAL_SENDING);
	if (ends)
		local_leave(transfer);
	local_answer(service, incoming->handle, &(struct local_done){0}); /* one that has ended is what was wanted */
}

/* --- life ------------------------------------------------------------------------------------------------------------------------ */

static const struct neap_rpc_handler handlers[] = {
	{&local_method_put_begin, local_on_put_begin}, {&local_method_put_data, local_on_put_data},
	{&local_method_put_end, local_on_put_end},     {&local_method_get_begin, local_on_get_begin},
	{&local_method_get_data, local_on_get_data},   {&local_method_end, local_on_end},
	{&local_method_remove, local_on_remove},       {&local_method_remove_matching, local_on_remove_matching},
	{&local_method_exist, local_on_exist},         {&local_method_stat, local_on_stat},
	{&local_method_list, local_on_list},           {&local_method_health, local_on_health},
};

static void set_options(struct client_service *service, const struct client_service_options *options)
{
	struct client_service_options *o = &service->options;
	*o = *options;
	o->transfers_max = o->transfers_max ? o->transfers_max : 256;
	o->waiting_max = o->waiting_max ? o->waiting_max : 128;
	o->idle_ms = o->idle_ms ? o->idle_ms : 30000;
}

static int build(struct client_service *service)
{
	struct neap_reactor *reactor = service->reactor;
	uint64_t chunks = service->options.bytes / CLIENT_CHUNK_BYTES;
	uint8_t *used = neap_allocate(reactor, chunks);
	service->scratch = neap_allocate(reactor, LOCAL_FRAME_BYTES);
	if (used)
		client_buffers_open(&service->buffers, service->options.memory, service->options.bytes, used);
	if (!used || !service->scratch)
		return NEAP_ENOMEM;
	int error = neap_pool_create(&service->transfers, reactor, sizeof(struct local_transfer), service->options.transfers_max);
	return error ? error : neap_pool_create(&service->queries, reactor, sizeof(struct local_query), LOCAL_QUERIES_MAX);
}

/* Loopback alone: whoever reaches this port may read and remove all values. */
static int listen_at(struct client_service *service, char *why, size_t why_size)
{
	struct neap_sockaddr address;
	char reason[300];
	int system_errno = 0;
	struct neap_rpc_server_options options = {
		.connections_max = 256,
		.body_max = LOCAL_BODY_MAX,
		.replies_max = (size_t)32 << 20,
		.calls_max = 64,
		.calls_total_max = 4096,
		.leave_timeout_ns = 1000 * LOCAL_MS_NS,
	};
	(void)neap_sockaddr_from_numeric("127.0.0.1", service->options.port, &address);
	int error = neap_rpc_server_create(&service->rpc, service->reactor, &address, handlers, sizeof handlers / sizeof handlers[0], &options,
	                                   service, &system_errno, reason, sizeof reason);
	if (error)
		snprintf(why, why_size, "cannot listen at 127.0.0.1:%u for local processes: %s; choose another --port, or 0 for a free one",
		         (unsigned)service->options.port, system_errno ? strerror(system_errno) : reason);
	return error;
}

int client_service_create(struct client_service **service_p, struct neap_store *store, const struct client_service_options *options,
                          char *why, size_t why_size)
{
	struct neap_reactor *reactor = neap_engine_reactor(neap_store_engine(store));
	struct client_service *service = neap_allocate(reactor, sizeof *service);
	*service_p = NULL;
	if (!service) {
		snprintf(why, why_size, "out of memory");
		return NEAP_ENOMEM;
	}
	service->store = store;
	service->reactor = reactor;
	service->serve.run = serve;
	set_options(service, options);
	int error = build(service);
	if (error)
		snprintf(why, why_size, "out of memory for the local service; choose a smaller --local_buffer_size");
	else
		error = listen_at(service, why, why_size);
	if (error)
		client_service_destroy(service);
	else
		*service_p = service;
	return error;
}

uint16_t client_service_port(const struct client_service *service)
{
	return neap_rpc_server_port(service->rpc);
}

void client_service_stats(const struct client_service *service, struct client_service_stats *stats_p)
{
	struct neap_rpc_server_stats rpc;
	*stats_p = service->stats;
	neap_rpc_server_stats(service->rpc, &rpc);
	stats_p->connections = rpc.connections_now;
	stats_p->buffer_bytes = service->buffers.chunk_count * CLIENT_CHUNK_BYTES;
	stats_p->buffer_free_bytes = service->buffers.free_count * CLIENT_CHUNK_BYTES;
	stats_p->transfers = service->transfers.used;
	stats_p->waiting = service->waiting;
}

void client_service_drain(struct client_service *service, void (*idle)(void *user), void *user)
{
	service->draining = true;
	service->idle = idle;
	service->idle_user = user;
	neap_ready_again(service->reactor, &service->serve);
}

enum neap_store_health client_service_health(const struct client_service *service)
{
	return service->draining ? NEAP_STORE_DRAINING : neap_store_health(service->store);
}

static void on_stopped(void *user)
{
	struct client_service *service = user;
	service->stopped(service->stopped_user);
}

void client_service_stop(struct client_service *service, void (*stopped)(void *user), void *user)
{
	service->stopped = stopped;
	service->stopped_user = user;
	service->draining = true;
	neap_rpc_server_stop(service->rpc, on_stopped);
}

void client_service_destroy(struct client_service *service)
{
	struct neap_reactor *reactor = service->reactor;
	if (service->rpc)
		neap_rpc_server_destroy(service->rpc);
	neap_ready_cancel(reactor, &service->serve);
	uint32_t at = 0;
	for (struct local_transfer *transfer; service->transfers.objects && (transfer = neap_pool_next(&service->transfers, &at));)
		neap_timer_cancel(reactor, &transfer->timer);
	neap_pool_destroy(&service->transfers);
	neap_pool_destroy(&service->queries);
	neap_release(reactor, service->buffers.used, service->buffers.chunk_count);
	neap_release(reactor, service->scratch, LOCAL_FRAME_BYTES);
	neap_release(reactor, service, sizeof *service);
}
