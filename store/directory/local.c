/* The queues of the local directory, its options and its life. A call is begun, waits its turn, is done piece by piece, and ends.
 * */
#include "store/directory/local.h"
#include "store/directory/local_calls.h"
#include <stdio.h>

#define DAY_MS 86400000u
#define MS_NS UINT64_C(1000000)

/* --- queues ----------------------------------------------------------------------------------------------------------- */

static void append(struct neap_call_queue *queue, struct neap_key_call *call)
{
	call->list = queue;
	call->next = NULL;
	call->previous = queue->last;
	*(queue->last ? &queue->last->next : &queue->first) = call;
	queue->last = call;
}

static void unlink_call(struct neap_key_call *call)
{
	struct neap_call_queue *queue = call->list;
	*(call->previous ? &call->previous->next : &queue->first) = call->next;
	*(call->next ? &call->next->previous : &queue->last) = call->previous;
	call->list = NULL;
}

static void release_call(struct neap_local_directory *local, struct neap_key_call *call)
{
	unlink_call(call);
	neap_timer_cancel(local->reactor, &call->timer);
	neap_local_let_go(local, call);
	local->calls--;
}

static void finish(struct neap_local_directory *local, struct neap_key_call *call, int error)
{
	release_call(local, call);
	call->done(call, error);
}

static void too_late(struct neap_timer *timer, void *user)
{
	struct neap_key_call *call = (struct neap_key_call *)(void *)((char *)timer - offsetof(struct neap_key_call, timer));
	struct neap_local_directory *local = user;
	local->calls_timed_out++;
	finish(local, call, NEAP_ETIMEDOUT);
}

/* Runs calls of a queue from its head while there is work left. A callee may begin, cancel, or destroy the directory. */
static void run_queue(struct neap_local_directory *local, struct neap_call_queue *queue, uint32_t *work_p)
{
	while (queue->first && *work_p > 0 && !local->closing) {
		struct neap_key_call *call = queue->first;
		int result = neap_local_run(local, call, work_p);
		*work_p -= *work_p > 0; /* for those that count nothing themselves; afterwards, so that a slice of one gets somewhere */
		if (result == NEAP_LOCAL_SLOW) {
			unlink_call(call);
			append(&local->slow, call);
		} else if (result == NEAP_LOCAL_MORE) {
			return;
		} else {
			finish(local, call, result);
		}
	}
}

/* A piece of one walk; the next one's turn is the next turn. */
static void run_slow(struct neap_local_directory *local, uint32_t work)
{
	struct neap_key_call *call = local->slow.first;
	if (!call || local->closing)
		return;
	unlink_call(call);
	append(&local->slow, call);
	int result = neap_local_run(local, call, &work);
	if (result != NEAP_LOCAL_MORE)
		finish(local, call, result);
}

static void run(struct neap_ready *ready)
{
	struct neap_local_directory *local =
		(struct neap_local_directory *)(void *)((char *)ready - offsetof(struct neap_local_directory, ready));
	uint32_t urgent = local->options.slice, work = local->options.slice;
	run_queue(local, &local->urgent, &urgent);
	run_queue(local, &local->normal, &work);
	run_slow(local, local->options.slice / 2 + 1);
	if (local->calls > 0 && !local->closing)
		neap_ready_again(local->reactor, &local->ready);
}

/* --- the interface ---------------------------------------------------------------------------------------------------- */

static uint32_t items_of(const struct neap_key_call *call)
{
	switch (call->op) {
	case NEAP_KEY_OP_REGISTER:
		return call->as.register_.segment_count;
	case NEAP_KEY_OP_HEARTBEAT:
		return call->as.heartbeat.usage_count;
	case NEAP_KEY_OP_CLIENTS:
		return call->as.clients.count;
	case NEAP_KEY_OP_ANNOUNCE:
		return call->as.announce.count;
	case NEAP_KEY_OP_WRITE_ROUTES:
		return call->as.write_routes.count;
	case NEAP_KEY_OP_REPLICAS:
		return call->as.replicas.count;
	case NEAP_KEY_OP_EXIST:
		return call->as.exist.count;
	case NEAP_KEY_OP_UNREGISTER:
	case NEAP_KEY_OP_MOUNT:
	case NEAP_KEY_OP_UNMOUNT:
	case NEAP_KEY_OP_ROUND_BEGIN:
	case NEAP_KEY_OP_ROUND_END:
	case NEAP_KEY_OP_COUNT:
	case NEAP_KEY_OP_LIST:
	case NEAP_KEY_OPS:
		break;
	}
	return 0;
}

static struct neap_call_queue *queue_for(struct neap_local_directory *local, enum neap_key_op op)
{
	if (op <= NEAP_KEY_OP_UNMOUNT)
		return &local->urgent;
	return op == NEAP_KEY_OP_LIST ? &local->slow : &local->normal;
}

static int begin(void *directory, struct neap_key_call *call)
{
	struct neap_local_directory *local = directory;
	uint64_t now_ns = neap_now(local->reactor);
	if (local->closing)
		return NEAP_ECLOSED;
	if ((unsigned)call->op >= NEAP_KEY_OPS || !call->done || call->list || items_of(call) > local->options.batch_max ||
	    (call->deadline_ns && call->deadline_ns <= now_ns))
		return NEAP_EINVAL;
	if (local->calls == local->options.calls_max) {
		local->calls_refused++;
		return NEAP_EAGAIN;
	}
	uint64_t due_ns = call->deadline_ns ? call->deadline_ns : now_ns + local->options.call_timeout_ms * MS_NS;
	int error = neap_timer_start(local->reactor, &call->timer, due_ns, too_late, local);
	if (error)
		return error;
	local->calls++;
	local->calls_begun++;
	call->progress = 0;
	call->extra = NULL;
	append(queue_for(local, call->op), call);
	neap_ready_again(local->reactor, &local->ready);
	neap_reactor_touch(local->reactor);
	return NEAP_OK;
}

static void cancel(void *directory, struct neap_key_call *call)
{
	if (call->list)
		release_call(directory, call);
}

/* --- options ---------------------------------------------------------------------------------------------------------- */

#define NUMBERS(N)                                                                  \
	N(keys_max, 1, 1u << 28, 1u << 20)                                              \
	N(replicas_max, 1, 1u << 29, filled->keys_max + filled->keys_max / 4)           \
	N(long_keys_cells, 1, 1u << 30, filled->keys_max)                               \
	N(key_length_max, 1, 4096, 1024)                                                \
	N(clients_max, 1, 65536, 1024)                                                  \
	N(segments_max, 1, 1u << 20, 4096)                                              \
	N(segments_per_client_max, 1, 1024, 16)                                         \
	N(calls_max, 1, 1u << 20, 4096)                                                 \
	N(batch_max, 1, 1u << 20, 2000)                                                 \
	N(lists_max, 1, 1024, 8)                                                        \
	N(slice, 1, 1u << 16, 512)                                                      \
	N(max_client_per_key, 1, UINT32_MAX, 1)                                         \
	N(client_ttl_ms, 1, DAY_MS, 10000)                                              \
	N(crashed_ttl_ms, filled->client_ttl_ms, 3 * DAY_MS, 3 * filled->client_ttl_ms) \
	N(announce_timeout_ms, 1, DAY_MS, 60000)                                        \
	N(call_timeout_ms, 1, DAY_MS, 5000)

static int fill(struct neap_local_directory_options *filled, char *why, size_t why_size)
{
#define FILL(name, least, most, default_)                                                                                       \
	if (filled->name == 0)                                                                                                      \
		filled->name = (default_);                                                                                              \
	if (filled->name < (least) || filled->name > (most)) {                                                                      \
		(void)snprintf(why, why_size, #name " is %u; allowed are %u to %u", filled->name, (unsigned)(least), (unsigned)(most)); \
		return NEAP_EINVAL;                                                                                                     \
	}
	NUMBERS(FILL)
#undef FILL
	return NEAP_OK;
}

/* --- life ------------------------------------------------------------------------------------------------------------- */

static size_t picks_bytes(const struct neap_local_directory *local)
{
	return local->options.clients_max * sizeof(struct neap_candidate_pick);
}

static int open_tables(struct neap_local_directory *local)
{
	const struct neap_local_directory_options *options = &local->options;
	struct neap_clients_options clients = {
		.clients_max = options->clients_max,
		.segments_max = options->segments_max,
		.segments_per_client_max = options->segments_per_client_max,
		.live_ns = options->client_ttl_ms * MS_NS,
		.crashed_ns = options->crashed_ttl_ms * MS_NS,
		.sweep_slice = options->slice,
		.crashed = options->crashed,
		.user = options->user,
	};
	struct neap_routes_options routes = {
		.keys_max = options->keys_max,
		.replicas_max = options->replicas_max,
		.cells_max = options->long_keys_cells,
		.max_client_per_key = options->max_client_per_key == UINT32_MAX ? 0 : options->max_client_per_key,
		.epoch = options->epoch ? options->epoch : neap_wall_us(local->reactor),
	};
	int error = neap_clients_create(&local->clients, local->reactor, &clients, &local->routes, &local->recovery);
	if (!error)
		error = neap_routes_create(&local->routes, local->reactor, &routes, &local->clients.segments);
	if (!error)
		error = neap_pool_create(&local->matches, local->reactor, sizeof(struct neap_match), options->lists_max);
	if (!error && !(local->picks = neap_allocate(local->reactor, picks_bytes(local))))
		error = NEAP_ENOMEM;
	if (!error)
		error = neap_recovery_begin(&local->recovery, local->reactor, options->first, options->crashed_ttl_ms * MS_NS,
		                            options->announce_timeout_ms * MS_NS);
	return error;
}

static void release(struct neap_local_directory *local)
{
	if (local->clients.reactor)
		neap_clients_destroy(&local->clients);
	if (local->routes.reactor)
		neap_routes_destroy(&local->routes);
	neap_pool_destroy(&local->matches);
	if (local->picks)
		neap_release(local->reactor, local->picks, picks_bytes(local));
	neap_release(local->reactor, local, sizeof *local);
}

int neap_local_directory_create(struct neap_local_directory **directory_p, struct neap_reactor *reactor,
                                const struct neap_local_directory_options *options, char *why, size_t why_size)
{
	struct neap_local_directory_options filled = options ? *options : (struct neap_local_directory_options){0};
	*directory_p = NULL;
	int error = neap_reactor_check(reactor);
	if (!error)
		error = fill(&filled, why, why_size);
	if (error)
		return error;
	struct neap_local_directory *local = neap_allocate(reactor, sizeof *local);
	if (!local)
		return NEAP_ENOMEM;
	local->reactor = reactor;
	local->options = filled;
	local->face = (struct neap_key_directory){.begin = begin, .cancel = cancel, .directory = local};
	local->ready.run = run;
	error = open_tables(local);
	if (error) {
		release(local);
		return error;
	}
	local->dependent.what = "a directory of keys";
	neap_reactor_attach(reactor, &local->dependent);
	*directory_p = local;
	return NEAP_OK;
}

static void end_all(struct neap_local_directory *local, const struct neap_call_queue *queue)
{
	while (queue->first)
		finish(local, queue->first, NEAP_ECLOSED);
}

static void reap(struct neap_reap *reap_)
{
	struct neap_local_directory *local =
		(struct neap_local_directory *)(void *)((char *)reap_ - offsetof(struct neap_local_directory, reap));
	end_all(local, &local->urgent);
	end_all(local, &local->normal);
	end_all(local, &local->slow);
	neap_reactor_detach(local->reactor, &local->dependent);
	release(local);
}

void neap_local_directory_destroy(struct neap_local_directory *local)
{
	if (!local || local->closing)
		return;
	local->closing = true;
	neap_ready_cancel(local->reactor, &local->ready);
	neap_recovery_end(&local->recovery);
	local->reap.reap = reap;
	neap_reap_later(local->reactor, &local->reap);
}

const struct neap_key_directory *neap_local_directory_face(struct neap_local_directory *local)
{
	return &local->face;
}

void neap_local_directory_stats(const struct neap_local_directory *local, struct neap_local_directory_stats *stats_p)
{
	const struct neap_clients_stats *clients = &local->clients.stats;
	*stats_p = (struct neap_local_directory_stats){
		.keys = local->routes.standing_keys,
		.replicas = local->routes.replicas.used - local->routes.replicas_lost,
		.lost = local->routes.replicas_lost,
		.clients = local->clients.live,
		.healthy = local->clients.healthy,
		.owing = local->recovery.owing,
		.registered = clients->registered,
		.recovered = clients->recovered,
		.suspected = clients->suspected,
		.crashed = clients->crashed,
		.left = clients->left,
		.replaced = clients->replaced,
		.calls = local->calls_begun,
		.refused = local->calls_refused,
		.timed_out = local->calls_timed_out,
		.given_up = local->recovery.given_up,
		.recovering = neap_recovering(&local->recovery),
		.sweeping = local->clients.sweeping != NULL,
	};
}

void neap_local_directory_segments(const struct neap_local_directory *local,
                                   void (*each)(void *user, struct neap_key_client client, const struct neap_key_segment *segment,
                                                enum neap_key_status status),
                                   void *user)
{
	for (const struct neap_client *client = local->clients.first; client; client = client->next)
		for (const struct neap_client_segment *segment = client->segments; segment; segment = segment->next)
			each(user, client->self, &segment->info, neap_client_status(client));
}

const char *neap_local_directory_check(const struct neap_local_directory *local)
{
	return neap_routes_check(&local->routes);
}
