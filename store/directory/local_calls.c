/* The calls, each a bounded piece at a time. */
#include "store/directory/local_calls.h"
#include <stdio.h>
#include <string.h>

#define STEPS_PER_WORK 64u

static bool spend(uint32_t *work_p, uint32_t cost)
{
	if (*work_p == 0)
		return false;
	*work_p -= cost < *work_p ? cost : *work_p;
	return true;
}

static bool valid(const struct neap_local_directory *local, struct neap_key_text key)
{
	return key.text && key.length > 0 && key.length <= local->options.key_length_max;
}

static bool recovering(const struct neap_local_directory *local)
{
	return neap_recovering(&local->recovery);
}

static int missing(const struct neap_local_directory *local)
{
	return recovering(local) ? NEAP_STORE_REPLICA_IS_NOT_READY : NEAP_STORE_OBJECT_NOT_FOUND;
}

static bool in_sight(const struct neap_local_directory *local, uint32_t key)
{
	const struct neap_routes *routes = &local->routes;
	if (key == NEAP_ROUTE_NONE)
		return false;
	const struct neap_route_replica *replica = neap_routes_replica(routes, neap_routes_key(routes, key)->replicas);
	while (replica && !neap_routes_visible(routes, replica))
		replica = neap_routes_replica(routes, replica->next);
	return replica != NULL;
}

static bool complete(const struct neap_local_directory *local)
{
	return !recovering(local) && !local->clients.sweeping;
}

/* --- owners ----------------------------------------------------------------------------------------------------------- */

static int fail_all(struct neap_key_announce *call, int error)
{
	for (uint32_t i = 0; i < call->count; i++)
		call->changes[i].error = error;
	return error;
}

static void change(struct neap_local_directory *local, struct neap_client *client, struct neap_key_change *item)
{
	const struct neap_client_segment *segment = neap_client_segment(client, item->segment);
	bool add = item->kind == NEAP_KEY_ADD;
	item->error = NEAP_STORE_OK;
	if (!valid(local, item->key))
		item->error = NEAP_STORE_INVALID_KEY;
	else if ((unsigned)item->kind > NEAP_KEY_REMOVE || (add && item->size == 0))
		item->error = NEAP_STORE_INVALID_PARAMS;
	else if (!segment)
		item->error = add ? NEAP_STORE_SEGMENT_NOT_FOUND : NEAP_STORE_REPLICA_NOT_FOUND;
	else if (add && neap_client_status(client) != NEAP_KEY_HEALTHY)
		item->error = NEAP_STORE_CLIENT_UNHEALTHY;
	else
		neap_routes_change(&local->routes, neap_pool_index(&local->clients.segments, segment), client->round, recovering(local),
		                   item);
}

static int run_announce(struct neap_local_directory *local, struct neap_key_call *call, uint32_t *work_p)
{
	struct neap_key_announce *announce = &call->as.announce;
	struct neap_client *client = neap_clients_find(&local->clients, announce->client);
	if (!client)
		return fail_all(announce, NEAP_STORE_CLIENT_NOT_FOUND);
	if (call->progress == 0) {
		if ((announce->number && announce->number <= client->number) || (announce->round && announce->round != client->round_open))
			return fail_all(announce, NEAP_STORE_INVALID_VERSION);
		if (announce->number)
			client->number = announce->number;
	}
	while (call->progress < announce->count) {
		if (!spend(work_p, 1))
			return NEAP_LOCAL_MORE;
		change(local, client, &announce->changes[call->progress++]);
	}
	return NEAP_STORE_OK;
}

static int run_round_begin(struct neap_local_directory *local, struct neap_key_round *round)
{
	struct neap_client *client = neap_clients_find(&local->clients, round->client);
	if (!client)
		return NEAP_STORE_CLIENT_NOT_FOUND;
	client->round_open = round->round = ++client->round;
	return NEAP_STORE_OK;
}

/* First in its place among the announcements, then as a walk beside others. */
static int run_round_end(struct neap_local_directory *local, struct neap_key_call *call, uint32_t *work_p)
{
	struct neap_key_round *round = &call->as.round;
	struct neap_client *client = neap_clients_find(&local->clients, round->client);
	if (!client)
		return NEAP_STORE_CLIENT_NOT_FOUND;
	if (round->round == 0 || round->round != client->round || (call->progress == 0 && round->round != client->round_open))
		return NEAP_STORE_INVALID_VERSION;
	if (call->progress++ == 0) {
		client->round_open = 0;
		round->dropped = 0;
		return NEAP_LOCAL_SLOW;
	}
	return neap_client_sweep_round(client, round->round, work_p, &round->dropped) ? NEAP_STORE_OK : NEAP_LOCAL_MORE;
}

/* --- accessors -------------------------------------------------------------------------------------------------------- */

static int write_item(struct neap_local_directory *local, struct neap_key_write_routes *call, struct neap_key_write_item *item)
{
	uint32_t max = local->routes.options.max_client_per_key;
	item->first = item->count = 0;
	if (!valid(local, item->key))
		return NEAP_STORE_INVALID_KEY;
	if (item->size == 0)
		return NEAP_STORE_INVALID_PARAMS;
	uint32_t key = neap_routes_find(&local->routes, item->key), owners = neap_candidates_owners(&local->clients, key);
	if (owners == 0 && recovering(local))
		return NEAP_STORE_REPLICA_IS_NOT_READY;
	if (max && owners >= max)
		return NEAP_STORE_REPLICA_NUM_EXCEEDED;
	return neap_candidates_choose(&local->clients, local->picks, key, call, item);
}

static int run_write_routes(struct neap_local_directory *local, struct neap_key_call *call, uint32_t *work_p)
{
	struct neap_key_write_routes *routes = &call->as.write_routes;
	if (call->progress == 0) {
		int error = neap_candidates_check(&routes->config);
		for (uint32_t i = 0; error && i < routes->count; i++)
			routes->items[i].error = error;
		if (error)
			return error;
		routes->candidates_used = 0;
	}
	while (call->progress < routes->count) {
		if (!spend(work_p, 1 + local->clients.live / 4))
			return NEAP_LOCAL_MORE;
		struct neap_key_write_item *item = &routes->items[call->progress++];
		item->error = write_item(local, routes, item);
	}
	return NEAP_STORE_OK;
}

static int run_replicas(struct neap_local_directory *local, struct neap_key_call *call, uint32_t *work_p)
{
	struct neap_key_replicas *replicas = &call->as.replicas;
	if (replicas->config.tag_count > NEAP_KEY_TAGS_MAX)
		return NEAP_STORE_INVALID_PARAMS;
	if (call->progress == 0)
		replicas->replicas_used = 0;
	while (call->progress < replicas->count) {
		if (!spend(work_p, 1))
			return NEAP_LOCAL_MORE;
		struct neap_key_read_item *item = &replicas->items[call->progress++];
		item->first = item->count = 0;
		item->error = !valid(local, item->key)
		                  ? NEAP_STORE_INVALID_KEY
		                  : neap_candidates_replicas(&local->clients, neap_routes_find(&local->routes, item->key), replicas, item);
		if (item->error == NEAP_STORE_OBJECT_NOT_FOUND)
			item->error = missing(local);
	}
	return NEAP_STORE_OK;
}

static int run_exist(struct neap_local_directory *local, struct neap_key_call *call, uint32_t *work_p)
{
	struct neap_key_exist *exist = &call->as.exist;
	while (call->progress < exist->count) {
		if (!spend(work_p, 1))
			return NEAP_LOCAL_MORE;
		struct neap_key_read_item *item = &exist->items[call->progress++];
		item->first = item->count = 0;
		item->error = !valid(local, item->key)                                       ? NEAP_STORE_INVALID_KEY
		              : in_sight(local, neap_routes_find(&local->routes, item->key)) ? NEAP_STORE_OK
		                                                                             : missing(local);
	}
	return NEAP_STORE_OK;
}

static int run_count(const struct neap_local_directory *local, struct neap_key_count *count)
{
	count->keys = local->routes.standing_keys;
	count->replicas = local->routes.replicas.used - local->routes.replicas_lost;
	count->complete = complete(local);
	return NEAP_STORE_OK;
}

static int run_clients(struct neap_local_directory *local, struct neap_key_call *call, uint32_t *work_p)
{
	while (call->progress < call->as.clients.count) {
		if (!spend(work_p, 1))
			return NEAP_LOCAL_MORE;
		struct neap_key_client_item *item = &call->as.clients.items[call->progress++];
		const struct neap_client *client = neap_clients_find_id(&local->clients, item->id);
		item->status = client ? neap_client_status(client) : NEAP_KEY_UNDEFINED;
		item->port = client ? client->port : 0;
		item->host[0] = 0;
		if (client)
			memcpy(item->host, client->host, sizeof item->host);
	}
	return NEAP_STORE_OK;
}

/* --- listing ---------------------------------------------------------------------------------------------------------- */

/* NEAP_LOCAL_MORE: as many are at work as may be; it waits for one to end. */
static int list_begin(struct neap_local_directory *local, struct neap_key_call *call)
{
	struct neap_key_list *list = &call->as.list;
	list->count = 0;
	list->why[0] = 0;
	if (list->cursor >= UINT32_MAX) {
		(void)snprintf(list->why, sizeof list->why, "the cursor is none of this directory's");
		return NEAP_STORE_INVALID_PARAMS;
	}
	call->extra = neap_pool_take(&local->matches);
	if (!call->extra)
		return NEAP_LOCAL_MORE;
	call->progress = 1;
	if (neap_match_compile(call->extra, list->pattern.text, list->pattern.length, list->why, sizeof list->why))
		return NEAP_STORE_INVALID_PARAMS;
	return NEAP_STORE_OK;
}

/* False: it does not fit, so the page is full. */
static bool put_key(struct neap_key_list *list, const char *text, uint32_t length)
{
	uint32_t used = list->count ? list->keys[list->count - 1].offset + list->keys[list->count - 1].length : 0;
	if (list->count == list->keys_max || length > list->text_size - used)
		return false;
	memcpy(list->text + used, text, length);
	list->keys[list->count++] = (struct neap_key_listed){.offset = used, .length = length};
	return true;
}

static int run_list(struct neap_local_directory *local, struct neap_key_call *call, uint32_t *work_p)
{
	struct neap_key_list *list = &call->as.list;
	int error = call->progress == 0 ? list_begin(local, call) : NEAP_STORE_OK;
	if (error)
		return error;
	while (spend(work_p, 1)) {
		uint32_t at = (uint32_t)list->cursor;
		uint64_t steps = 0;
		const struct neap_route_key *key = neap_pool_next(&local->routes.keys, &at);
		if (!key) {
			list->cursor = 0;
			list->complete = !recovering(local); /* what is being swept is not in sight */
			return NEAP_STORE_OK;
		}
		uint32_t index = neap_pool_index(&local->routes.keys, key);
		const char *text = key->length <= NEAP_ROUTE_KEY_INLINE ? key->text : local->key;
		if (text == local->key)
			neap_routes_copy_key(&local->routes, index, local->key);
		bool listed = in_sight(local, index) && neap_match_run(call->extra, text, key->length, &steps);
		if (listed && !put_key(list, text, key->length)) {
			list->complete = !recovering(local); /* what is being swept is not in sight */
			return list->count ? NEAP_STORE_OK : NEAP_STORE_BUFFER_OVERFLOW;
		}
		list->cursor = at;
		(void)spend(work_p, (uint32_t)(steps / STEPS_PER_WORK));
	}
	return NEAP_LOCAL_MORE;
}

/* --- all -------------------------------------------------------------------------------------------------------------- */

static int run_heartbeat(struct neap_local_directory *local, struct neap_key_call *call, uint32_t *work_p)
{
	(void)spend(work_p, call->as.heartbeat.usage_count);
	neap_clients_heartbeat(&local->clients, &call->as.heartbeat);
	return NEAP_STORE_OK;
}

static int run_unregister(struct neap_local_directory *local, const struct neap_key_call *call)
{
	neap_clients_unregister(&local->clients, &call->as.unregister);
	return NEAP_STORE_OK;
}

int neap_local_run(struct neap_local_directory *local, struct neap_key_call *call, uint32_t *work_p)
{
	switch (call->op) {
	case NEAP_KEY_OP_REGISTER:
		return neap_clients_register(&local->clients, &call->as.register_);
	case NEAP_KEY_OP_UNREGISTER:
		return run_unregister(local, call);
	case NEAP_KEY_OP_HEARTBEAT:
		return run_heartbeat(local, call, work_p);
	case NEAP_KEY_OP_MOUNT:
		return neap_clients_mount(&local->clients, &call->as.mount);
	case NEAP_KEY_OP_UNMOUNT:
		return neap_clients_unmount(&local->clients, &call->as.unmount);
	case NEAP_KEY_OP_CLIENTS:
		return run_clients(local, call, work_p);
	case NEAP_KEY_OP_ANNOUNCE:
		return run_announce(local, call, work_p);
	case NEAP_KEY_OP_ROUND_BEGIN:
		return run_round_begin(local, &call->as.round);
	case NEAP_KEY_OP_ROUND_END:
		return run_round_end(local, call, work_p);
	case NEAP_KEY_OP_WRITE_ROUTES:
		return run_write_routes(local, call, work_p);
	case NEAP_KEY_OP_REPLICAS:
		return run_replicas(local, call, work_p);
	case NEAP_KEY_OP_EXIST:
		return run_exist(local, call, work_p);
	case NEAP_KEY_OP_COUNT:
		return run_count(local, &call->as.count);
	case NEAP_KEY_OP_LIST:
		return run_list(local, call, work_p);
	case NEAP_KEY_OPS:
		break;
	}
	return NEAP_STORE_INVALID_PARAMS;
}

void neap_local_let_go(struct neap_local_directory *local, struct neap_key_call *call)
{
	if (call->op == NEAP_KEY_OP_LIST && call->extra)
		neap_pool_give(&local->matches, call->extra);
	call->extra = NULL;
}
