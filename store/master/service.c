#include "store/master/service.h"
#include "reactor/pool.h"
#include "store/master/codec.h"
#include <string.h>

#define INLINE_BYTES 2048u
#define SCRATCH_BYTES (1u << 20) /* the longest reply's lists, and then some */

/* A call between its arrival and its answer. */
struct service_call {
	struct neap_key_call call; /* first */
	struct neap_master_service *service;
	struct neap_rpc_server *server;
	uint64_t handle, begun_ns;
	struct neap_master_arena arena;
	_Alignas(16) unsigned char room[INLINE_BYTES];
};

struct neap_master_service {
	struct neap_reactor *reactor;
	struct neap_key_directory directory;
	struct neap_master_service_options options;
	struct neap_master_service_stats stats;
	struct neap_pool calls;
	size_t budget;
	unsigned char *scratch;
	struct neap_dependent dependent;
	struct neap_reap reap;
};

uint64_t neap_master_instance(const uint8_t instance[16])
{
	uint64_t number = 0;
	for (unsigned i = 8; i-- > 0;)
		number = number << 8 | instance[i];
	return number ? number : 1;
}

static bool is_instance(const void *context, const uint8_t instance[16])
{
	return neap_master_instance(instance) == *(const uint64_t *)context;
}

void neap_master_drop(struct neap_rpc_server *server, uint64_t instance)
{
	neap_rpc_server_drop_if(server, is_instance, &instance);
}

/* --- counts ------------------------------------------------------------------------------------------------------------- */

struct item_counts {
	uint64_t items, failed, misses;
};

static void count_item(struct item_counts *counts, int error)
{
	counts->items++;
	if (error == NEAP_STORE_OBJECT_NOT_FOUND)
		counts->misses++;
	else if (error)
		counts->failed++;
}

static void count_changes(struct neap_master_service_stats *stats, const struct neap_key_announce *announce, struct item_counts *counts)
{
	for (uint32_t i = 0; i < announce->count; i++) {
		const struct neap_key_change *change = &announce->changes[i];
		bool failed = change->error && change->error != NEAP_STORE_REPLICA_ALREADY_EXISTS;
		if (change->kind == NEAP_KEY_REMOVE) {
			failed = failed && change->error != NEAP_STORE_OBJECT_NOT_FOUND && change->error != NEAP_STORE_REPLICA_NOT_FOUND;
			stats->removes++;
			stats->removes_failed += failed;
		} else {
			stats->adds++;
			stats->adds_failed += failed;
		}
		counts->items++;
		counts->failed += failed;
	}
}

static void count_items(struct neap_master_service_stats *stats, const struct neap_key_call *call, struct item_counts *counts)
{
	switch (call->op) {
	case NEAP_KEY_OP_ANNOUNCE: count_changes(stats, &call->as.announce, counts); break;
	case NEAP_KEY_OP_WRITE_ROUTES:
		for (uint32_t i = 0; i < call->as.write_routes.count; i++)
			count_item(counts, call->as.write_routes.items[i].error);
		break;
	case NEAP_KEY_OP_REPLICAS:
		for (uint32_t i = 0; i < call->as.replicas.count; i++)
			count_item(counts, call->as.replicas.items[i].error);
		break;
	case NEAP_KEY_OP_EXIST:
		for (uint32_t i = 0; i < call->as.exist.count; i++)
			count_item(counts, call->as.exist.items[i].error);
		break;
	case NEAP_KEY_OP_CLIENTS:
		for (uint32_t i = 0; i < call->as.clients.count; i++)
			count_item(counts, call->as.clients.items[i].status == NEAP_KEY_UNDEFINED ? NEAP_STORE_OBJECT_NOT_FOUND : 0);
		break;
	case NEAP_KEY_OP_LIST: counts->items += call->as.list.count; break;
	case NEAP_KEY_OP_REGISTER:
	case NEAP_KEY_OP_UNREGISTER:
	case NEAP_KEY_OP_HEARTBEAT:
	case NEAP_KEY_OP_MOUNT:
	case NEAP_KEY_OP_UNMOUNT:
	case NEAP_KEY_OP_ROUND_BEGIN:
	case NEAP_KEY_OP_ROUND_END:
	case NEAP_KEY_OP_COUNT:
	case NEAP_KEY_OPS: break;
	}
}

/* The call has ended. */
static void count(const struct service_call *mine, int error)
{
	struct neap_master_service *service = mine->service;
	struct neap_master_method_stats *stats = &service->stats.methods[mine->call.op];
	struct item_counts counts = {0};
	if (!error)
		count_items(&service->stats, &mine->call, &counts);
	stats->failures += error != 0 || (counts.failed > 0 && counts.failed == counts.items);
	stats->partial += counts.failed > 0 && counts.failed < counts.items;
	stats->items += counts.items;
	stats->failed_items += counts.failed;
	stats->misses += counts.misses;
	neap_latency_note(&stats->latency, neap_now(service->reactor) - mine->begun_ns);
}

/* --- ends --------------------------------------------------------------------------------------------------------------- */

static void forget(struct service_call *mine)
{
	neap_master_give(&mine->arena);
	neap_pool_give(&mine->service->calls, mine);
}

static void refuse(struct neap_master_service *service, struct service_call *mine, int error, const char *why)
{
	service->stats.refused++;
	count(mine, error);
	(void)neap_rpc_answer(mine->server, mine->handle, error, NULL, why, error == NEAP_EAGAIN ? 10 : 0);
	forget(mine);
}

/* What is wrong with a pattern is told beside the error. */
static bool told_inside(const struct neap_key_call *call, int error)
{
	return call->op == NEAP_KEY_OP_LIST && error > NEAP_EAGAIN && call->as.list.why[0] != '\0';
}

static void done(struct neap_key_call *call, int error)
{
	struct service_call *mine = (struct service_call *)(void *)call;
	struct neap_master_service *service = mine->service;
	struct neap_master_arena arena = {.at = service->scratch, .left = SCRATCH_BYTES};
	union neap_master_body body = {.align = 0};
	bool inside = told_inside(call, error);
	count(mine, error);
	int status = error && !inside ? error : neap_master_codecs[call->op].answer(call, &arena, body.bytes);
	if (inside)
		((struct master_list_reply *)(void *)body.bytes)->error_code = error;
	(void)neap_rpc_answer(mine->server, mine->handle, status, status ? NULL : (const void *)body.bytes,
	                      status ? "the directory answered so" : NULL, 0);
	forget(mine);
}

/* Nobody waits any more. The answer is for the RPC, which owes one to a caller that canceled. */
static void canceled(void *user, uint64_t handle)
{
	struct service_call *mine = user;
	struct neap_master_service *service = mine->service;
	(void)handle;
	service->stats.canceled++;
	count(mine, NEAP_ECANCELED);
	neap_key_cancel(&service->directory, &mine->call);
	(void)neap_rpc_answer(mine->server, mine->handle, NEAP_ECANCELED, NULL, "canceled by its caller", 0);
	forget(mine);
}

/* --- arrival ------------------------------------------------------------------------------------------------------------ */

static struct service_call *admit(struct neap_master_service *service, const struct neap_rpc_incoming *incoming, enum neap_key_op op)
{
	struct service_call *mine = neap_pool_take(&service->calls);
	service->stats.calls++;
	service->stats.methods[op].requests++;
	if (!mine) {
		service->stats.refused++;
		service->stats.methods[op].failures++;
		(void)neap_rpc_answer(incoming->server, incoming->handle, NEAP_EAGAIN, NULL,
		                      "the master has as many calls under way as it may (calls_max)", 10);
		return NULL;
	}
	mine->call = (struct neap_key_call){
		.op = op, .done = done, .deadline_ns = incoming->deadline_ns == UINT64_MAX ? 0 : incoming->deadline_ns};
	mine->service = service;
	mine->server = incoming->server;
	mine->handle = incoming->handle;
	mine->begun_ns = neap_now(service->reactor);
	mine->arena = (struct neap_master_arena){
		.reactor = service->reactor, .budget_p = &service->budget, .at = mine->room, .left = sizeof mine->room};
	return mine;
}

static void serve(struct neap_master_service *service, const struct neap_rpc_incoming *incoming, const void *request,
                  enum neap_key_op op)
{
	struct service_call *mine = admit(service, incoming, op);
	if (!mine)
		return;
	int error = neap_master_codecs[op].take(&mine->call, &mine->arena, request);
	if (error) {
		refuse(service, mine, error,
		       error == NEAP_EAGAIN ? "the master has no memory for this batch (bytes_max)" : "an id or a text of it is none");
		return;
	}
	const struct neap_key_client *speaker = neap_master_speaker(&mine->call);
	if (speaker && speaker->instance != neap_master_instance(incoming->instance)) {
		service->stats.strangers++;
		refuse(service, mine, NEAP_STORE_ILLEGAL_CLIENT, "it speaks for another instance than that of its connection");
		return;
	}
	error = neap_key_begin(&service->directory, &mine->call);
	if (error)
		refuse(service, mine, error == NEAP_EINVAL ? NEAP_STORE_INVALID_PARAMS : error, "the directory does not take it");
	else
		(void)neap_rpc_on_cancel(mine->server, mine->handle, canceled, mine);
}

#define HANDLER(op, name, method)                                                                              \
	static void handle_##name(void *user, const struct neap_rpc_incoming *incoming, const void *request)       \
	{                                                                                                          \
		serve(user, incoming, request, NEAP_KEY_OP_##op);                                                      \
	}
NEAP_MASTER_OPS(HANDLER)
#undef HANDLER

static const struct neap_rpc_handler handlers[] = {
#define ROW(op, name, method) {&neap_method_##method, handle_##name},
	NEAP_MASTER_OPS(ROW)
#undef ROW
};

const struct neap_rpc_handler *neap_master_service_handlers(uint32_t *count_p)
{
	*count_p = sizeof handlers / sizeof handlers[0];
	return handlers;
}

/* --- life --------------------------------------------------------------------------------------------------------------- */

static void release(struct neap_master_service *service)
{
	neap_pool_destroy(&service->calls);
	if (service->scratch)
		neap_release(service->reactor, service->scratch, SCRATCH_BYTES);
	neap_release(service->reactor, service, sizeof *service);
}

int neap_master_service_create(struct neap_master_service **service_p, struct neap_reactor *reactor,
                               const struct neap_key_directory *directory, const struct neap_master_service_options *options)
{
	struct neap_master_service *service = neap_allocate(reactor, sizeof *service);
	*service_p = NULL;
	if (!service)
		return NEAP_ENOMEM;
	service->reactor = reactor;
	service->directory = *directory;
	service->options = options ? *options : (struct neap_master_service_options){0};
	service->options.calls_max = service->options.calls_max ? service->options.calls_max : 1024;
	service->options.bytes_max = service->options.bytes_max ? service->options.bytes_max : (size_t)64 << 20;
	service->budget = service->options.bytes_max;
	int error = neap_pool_create(&service->calls, reactor, sizeof(struct service_call), service->options.calls_max);
	if (!error && !(service->scratch = neap_allocate(reactor, SCRATCH_BYTES)))
		error = NEAP_ENOMEM;
	if (error) {
		release(service);
		return error;
	}
	service->dependent.what = "a master's service";
	neap_reactor_attach(reactor, &service->dependent);
	*service_p = service;
	return NEAP_OK;
}

static void reap(struct neap_reap *reap_)
{
	struct neap_master_service *service =
		(struct neap_master_service *)(void *)((char *)reap_ - offsetof(struct neap_master_service, reap));
	neap_reactor_detach(service->reactor, &service->dependent);
	release(service);
}

void neap_master_service_destroy(struct neap_master_service *service)
{
	struct service_call *mine;
	uint32_t index = 0;
	if (!service || service->reap.queued)
		return;
	while ((mine = neap_pool_next(&service->calls, &index)) != NULL) {
		neap_key_cancel(&service->directory, &mine->call);
		forget(mine);
	}
	service->reap.reap = reap;
	neap_reap_later(service->reactor, &service->reap);
}

void neap_master_service_stats(const struct neap_master_service *service, struct neap_master_service_stats *stats_p)
{
	*stats_p = service->stats;
	stats_p->calls_now = service->calls.used;
	stats_p->bytes = service->options.bytes_max - service->budget;
}
