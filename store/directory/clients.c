/* Registration, heartbeats, mounts; and what happens when they stop. */
#include "store/directory/clients.h"
#include "store/directory/client_life_fsm.h"
#include <string.h>

static struct neap_client *client_of(const struct neap_machine *machine)
{
	return (struct neap_client *)(uintptr_t)((const char *)machine - offsetof(struct neap_client, machine));
}

/* --- finding ---------------------------------------------------------------------------------------------------------- */

static struct neap_client **bucket_of(const struct neap_clients *clients, struct neap_key_id id)
{
	uint64_t mixed = (id.first ^ id.second * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
	return &clients->buckets[mixed >> 32 & (clients->bucket_count - 1)];
}

struct neap_client *neap_clients_find_id(const struct neap_clients *clients, struct neap_key_id id)
{
	struct neap_client *client = *bucket_of(clients, id);
	while (client && !neap_key_id_equal(client->self.id, id))
		client = client->next_in_bucket;
	return client;
}

struct neap_client *neap_clients_find(const struct neap_clients *clients, struct neap_key_client self)
{
	struct neap_client *client = neap_clients_find_id(clients, self.id);
	return client && client->self.instance == self.instance ? client : NULL;
}

struct neap_client_segment *neap_client_segment(const struct neap_client *client, struct neap_key_id id)
{
	struct neap_client_segment *segment = client->segments;
	while (segment && !neap_key_id_equal(segment->info.id, id))
		segment = segment->next;
	return segment;
}

enum neap_key_status neap_client_status(const struct neap_client *client)
{
	switch (client->machine.state) {
	case client_life_HEALTHY:
		return NEAP_KEY_HEALTHY;
	case client_life_DISCONNECTED:
		return NEAP_KEY_DISCONNECTED;
	case client_life_CRASHED:
		return NEAP_KEY_CRASHED;
	default:
		return NEAP_KEY_UNDEFINED;
	}
}

/* --- segments --------------------------------------------------------------------------------------------------------- */

static bool sensible(const struct neap_key_segment *segment)
{
	if (neap_key_id_none(segment->id) || segment->tag_count > NEAP_KEY_TAGS_MAX || segment->used > segment->capacity ||
	    !memchr(segment->name, 0, sizeof segment->name))
		return false;
	for (uint32_t i = 0; i < segment->tag_count; i++)
		if (!memchr(segment->tags[i], 0, sizeof segment->tags[i]))
			return false;
	return true;
}

static bool is_anothers(const struct neap_clients *clients, const struct neap_client *client, struct neap_key_id id)
{
	for (const struct neap_client *other = clients->first; other; other = other->next)
		if (other != client && neap_client_segment(other, id))
			return true;
	return false;
}

static int mount(struct neap_client *client, const struct neap_key_segment *info)
{
	struct neap_clients *clients = client->clients;
	struct neap_client_segment *segment = neap_client_segment(client, info->id);
	if (segment) { /* its capacity and tags are as it says now */
		segment->info = *info;
		return NEAP_STORE_OK;
	}
	if (is_anothers(clients, client, info->id))
		return NEAP_STORE_ILLEGAL_CLIENT;
	if (client->segment_count == clients->options.segments_per_client_max || !(segment = neap_pool_take(&clients->segments)))
		return NEAP_STORE_KEYS_ULTRA_LIMIT;
	neap_route_segment_begin(&segment->routes, neap_pool_index(&clients->pool, client));
	segment->client = client;
	segment->info = *info;
	segment->given = 0;
	segment->swept = segment->sweeping_round = 0;
	segment->next = client->segments;
	client->segments = segment;
	client->segment_count++;
	return NEAP_STORE_OK;
}

/* From now on its routes are not to be seen; they are swept a slice a turn. */
static void hide(struct neap_client_segment *segment)
{
	struct neap_client *client = segment->client;
	struct neap_clients *clients = client->clients;
	struct neap_client_segment **slot = &client->segments;
	while (*slot != segment)
		slot = &(*slot)->next;
	*slot = segment->next;
	client->segment_count--;
	segment->routes.gone = true;
	segment->next = clients->sweeping;
	clients->sweeping = segment;
	client->sweeping++;
	neap_ready_again(clients->reactor, &clients->sweep);
}

static void sweep(struct neap_ready *ready)
{
	struct neap_clients *clients = (struct neap_clients *)(void *)((char *)ready - offsetof(struct neap_clients, sweep));
	uint32_t budget = clients->options.sweep_slice;
	uint64_t dropped = 0;
	while (clients->sweeping && budget > 0) {
		struct neap_client_segment *segment = clients->sweeping;
		struct neap_client *client = segment->client;
		if (!neap_routes_sweep(clients->routes, neap_pool_index(&clients->segments, segment), 0, &budget, &dropped))
			break;
		clients->sweeping = segment->next;
		neap_pool_give(&clients->segments, segment);
		if (--client->sweeping == 0 && client->machine.state != client_life_HEALTHY &&
		    client->machine.state != client_life_DISCONNECTED)
			neap_step(&client->machine, client_life_on_SWEPT, 0);
	}
	if (clients->sweeping)
		neap_ready_again(clients->reactor, &clients->sweep);
}

/* --- life ------------------------------------------------------------------------------------------------------------- */

static void settle(struct neap_client *client)
{
	if (client->owes)
		neap_recovery_paid(client->clients->recovery);
	client->owes = false;
}

/* It is not found any more, and its routes are not. The record stays until they are swept. */
static void end(struct neap_client *client, const char *how)
{
	struct neap_clients *clients = client->clients;
	struct neap_client **slot = bucket_of(clients, client->self.id);
	while (*slot != client)
		slot = &(*slot)->next_in_bucket;
	*slot = client->next_in_bucket;
	*(client->previous ? &client->previous->next : &clients->first) = client->next;
	*(client->next ? &client->next->previous : &clients->last) = client->previous;
	clients->live--;
	neap_log(clients->reactor, NEAP_LOG_INFO, "directory", "client %016llx%016llx at %s:%u %s; %u segments go",
	         (unsigned long long)client->self.id.first, (unsigned long long)client->self.id.second, client->host, client->port, how,
	         client->segment_count);
	settle(client);
	while (client->segments)
		hide(client->segments);
	if (client->sweeping == 0)
		(void)neap_post(&client->machine, client_life_on_SWEPT, 0);
}

static void do_welcome(struct neap_machine *machine, uint64_t argument)
{
	struct neap_client *client = client_of(machine);
	struct neap_clients *clients = client->clients;
	struct neap_client **bucket = bucket_of(clients, client->self.id);
	(void)argument;
	client->next_in_bucket = *bucket;
	*bucket = client;
	client->next = NULL;
	client->previous = clients->last;
	*(clients->last ? &clients->last->next : &clients->first) = client;
	clients->last = client;
	clients->live++;
	clients->healthy++;
	clients->stats.registered++;
}

static void do_suspect(struct neap_machine *machine, uint64_t argument)
{
	struct neap_client *client = client_of(machine);
	(void)argument;
	client->clients->healthy--;
	client->clients->stats.suspected++;
	neap_log(client->clients->reactor, NEAP_LOG_WARNING, "directory",
	         "client at %s:%u is silent; its values are not given out until it is heard", client->host, client->port);
}

static void do_recover(struct neap_machine *machine, uint64_t argument)
{
	struct neap_client *client = client_of(machine);
	(void)argument;
	client->clients->healthy++;
	client->clients->stats.recovered++;
	neap_log(client->clients->reactor, NEAP_LOG_INFO, "directory", "client at %s:%u is heard again", client->host, client->port);
}

static void do_bury(struct neap_machine *machine, uint64_t argument)
{
	struct neap_client *client = client_of(machine);
	const struct neap_clients_options *options = &client->clients->options;
	(void)argument;
	client->clients->stats.crashed++;
	if (options->crashed)
		options->crashed(options->user, client->self);
	end(client, "counts as crashed");
}

/* `argument` is 1 when it was healthy until now. */
static void do_depart(struct neap_machine *machine, uint64_t argument)
{
	struct neap_client *client = client_of(machine);
	client->clients->healthy -= (uint32_t)argument;
	client->clients->stats.left++;
	end(client, "left");
}

static void do_replace(struct neap_machine *machine, uint64_t argument)
{
	struct neap_client *client = client_of(machine);
	client->clients->healthy -= (uint32_t)argument;
	client->clients->stats.replaced++;
	end(client, "was started anew");
}

static void do_forget(struct neap_machine *machine, uint64_t argument)
{
	struct neap_client *client = client_of(machine);
	(void)argument;
	neap_machine_end(machine);
	neap_pool_give(&client->clients->pool, client);
}

static neap_action_func *const actions[] = {
	[client_life_do_welcome] = do_welcome, [client_life_do_suspect] = do_suspect, [client_life_do_recover] = do_recover,
	[client_life_do_bury] = do_bury,       [client_life_do_depart] = do_depart,   [client_life_do_replace] = do_replace,
	[client_life_do_forget] = do_forget,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_clients_options *options = &client_of(machine)->clients->options;
	return now_ns + (timeout_class == client_life_timeout_LIVE ? options->live_ns : options->crashed_ns - options->live_ns);
}

/* In production: the event is dropped; what the client has goes by its deadlines. */
static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)machine;
	(void)event;
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_client_life,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_client),
	.due_ns = due_ns,
	.broken = broken,
};

static void leave(struct neap_client *client, uint8_t event)
{
	neap_step(&client->machine, event, client->machine.state == client_life_HEALTHY);
}

/* --- calls ------------------------------------------------------------------------------------------------------------ */

static int check_register(const struct neap_clients *clients, const struct neap_key_register *call)
{
	if (neap_key_id_none(call->client.id) || call->client.instance == 0 || call->host[0] == 0 || call->port == 0 ||
	    !memchr(call->host, 0, sizeof call->host))
		return NEAP_STORE_INVALID_PARAMS;
	if (call->segment_count > clients->options.segments_per_client_max)
		return NEAP_STORE_KEYS_ULTRA_LIMIT;
	for (uint32_t i = 0; i < call->segment_count; i++)
		if (!sensible(&call->segments[i]))
			return NEAP_STORE_INVALID_PARAMS;
	return NEAP_STORE_OK;
}

static bool same_address(const struct neap_client *client, const struct neap_key_register *call)
{
	return client->port == call->port && strcmp(client->host, call->host) == 0;
}

/* A process that started later at the same id or address has taken the place of the one before. The later is known by its start;
 * who does not tell is taken for later, since a process that is gone does not register. */
static int displace(struct neap_clients *clients, const struct neap_key_register *call, bool commit)
{
	for (struct neap_client *client = clients->first, *next; client; client = next) {
		next = client->next;
		bool same_id = neap_key_id_equal(client->self.id, call->client.id);
		if ((same_id && client->self.instance == call->client.instance) || !(same_id || same_address(client, call)))
			continue;
		if (call->start && client->start && call->start < client->start)
			return NEAP_STORE_ILLEGAL_CLIENT;
		if (commit)
			leave(client, client_life_on_REPLACED);
	}
	return NEAP_STORE_OK;
}

static int mount_all(struct neap_client *client, const struct neap_key_register *call)
{
	int error = NEAP_STORE_OK;
	for (uint32_t i = 0; i < call->segment_count && !error; i++)
		error = mount(client, &call->segments[i]);
	return error;
}

static struct neap_client *begin(struct neap_clients *clients, const struct neap_key_register *call)
{
	struct neap_client *client = neap_pool_take(&clients->pool);
	if (!client)
		return NULL;
	client->clients = clients;
	client->self = call->client;
	client->owes = false;
	client->segments = NULL;
	client->segment_count = client->sweeping = 0;
	client->round = 1;
	client->round_open = 0;
	client->number = 0;
	neap_machine_begin(&client->machine, &clients->class_->class_);
	return client;
}

int neap_clients_register(struct neap_clients *clients, struct neap_key_register *call)
{
	int error = check_register(clients, call);
	if (!error)
		error = displace(clients, call, false);
	if (error)
		return error;
	(void)displace(clients, call, true);
	struct neap_client *client = neap_clients_find(clients, call->client);
	bool fresh = !client;
	if (fresh && !(client = begin(clients, call)))
		return NEAP_STORE_KEYS_ULTRA_LIMIT;
	client->start = call->start;
	client->port = call->port;
	memcpy(client->host, call->host, sizeof client->host);
	neap_step(&client->machine, client_life_on_HEARD, 0);
	error = mount_all(client, call);
	if (error) {
		if (fresh)
			leave(client, client_life_on_LEFT);
		return error;
	}
	if (fresh && call->holds) {
		client->owes = true;
		neap_recovery_owes(clients->recovery);
	}
	call->epoch = clients->routes->options.epoch;
	call->announce_all = client->owes;
	return NEAP_STORE_OK;
}

static int use(struct neap_client *client, struct neap_key_usage *usage)
{
	struct neap_client_segment *segment = neap_client_segment(client, usage->segment);
	if (!segment)
		return NEAP_STORE_SEGMENT_NOT_FOUND;
	uint64_t capacity = usage->capacity ? usage->capacity : segment->info.capacity;
	if (usage->used > capacity)
		return NEAP_STORE_INVALID_PARAMS;
	segment->info.capacity = capacity;
	segment->info.used = usage->used;
	segment->given = 0;
	return NEAP_STORE_OK;
}

/* Those that lost to an earlier owner, as many as there is room for, the first ones first told again until they are let go. */
static void tell_lost(const struct neap_clients *clients, const struct neap_client *client, struct neap_key_heartbeat *call)
{
	const struct neap_routes *routes = clients->routes;
	uint32_t used = 0;
	for (const struct neap_client_segment *segment = client->segments; segment; segment = segment->next) {
		const struct neap_route_replica *lost = neap_routes_replica(routes, segment->routes.lost.newest);
		for (; lost; lost = neap_routes_replica(routes, lost->older)) {
			uint32_t length = neap_routes_key(routes, lost->key)->length;
			if (call->lost_count == call->lost_max || !call->lost || length > call->lost_text_size - used) {
				call->lost_more = true;
				return;
			}
			call->lost[call->lost_count++] = (struct neap_key_lost){
				.segment = segment->info.id, .generation = lost->generation, .offset = used, .length = length};
			neap_routes_copy_key(routes, lost->key, call->lost_text + used);
			used += length;
		}
	}
}

void neap_clients_heartbeat(struct neap_clients *clients, struct neap_key_heartbeat *call)
{
	struct neap_client *client = neap_clients_find(clients, call->client);
	call->epoch = clients->routes->options.epoch;
	call->lost_count = 0;
	call->lost_more = call->announce_all = false;
	call->status = NEAP_KEY_UNDEFINED;
	if (!client)
		return;
	neap_step(&client->machine, client_life_on_HEARD, 0);
	for (uint32_t i = 0; i < call->usage_count; i++)
		call->usages[i].error = use(client, &call->usages[i]);
	call->status = neap_client_status(client);
	if (call->epoch_known != call->epoch && !client->owes) {
		client->owes = true;
		neap_recovery_owes(clients->recovery);
	}
	call->announce_all = client->owes;
	tell_lost(clients, client, call);
}

int neap_clients_mount(struct neap_clients *clients, struct neap_key_mount *call)
{
	struct neap_client *client = neap_clients_find(clients, call->client);
	if (!client)
		return NEAP_STORE_CLIENT_NOT_FOUND;
	if (!sensible(&call->segment))
		return NEAP_STORE_INVALID_PARAMS;
	neap_step(&client->machine, client_life_on_HEARD, 0);
	return mount(client, &call->segment);
}

int neap_clients_unmount(struct neap_clients *clients, const struct neap_key_mount *call)
{
	struct neap_client *client = neap_clients_find(clients, call->client);
	if (!client)
		return NEAP_STORE_CLIENT_NOT_FOUND;
	neap_step(&client->machine, client_life_on_HEARD, 0);
	struct neap_client_segment *segment = neap_client_segment(client, call->segment.id);
	if (segment)
		hide(segment);
	return NEAP_STORE_OK;
}

void neap_clients_unregister(struct neap_clients *clients, const struct neap_key_unregister *call)
{
	struct neap_client *client = neap_clients_find(clients, call->client);
	if (client)
		leave(client, client_life_on_LEFT);
}

bool neap_client_sweep_round(struct neap_client *client, uint32_t round, uint32_t *budget_p, uint64_t *dropped_p)
{
	struct neap_clients *clients = client->clients;
	for (struct neap_client_segment *segment = client->segments; segment; segment = segment->next) {
		uint32_t index = neap_pool_index(&clients->segments, segment);
		if (segment->swept == round)
			continue;
		if (segment->sweeping_round != round)
			neap_routes_sweep_begin(clients->routes, index);
		segment->sweeping_round = round;
		if (!neap_routes_sweep(clients->routes, index, round, budget_p, dropped_p))
			return false;
		segment->swept = round;
	}
	settle(client);
	return true;
}

/* --- create ----------------------------------------------------------------------------------------------------------- */

int neap_clients_create(struct neap_clients *clients, struct neap_reactor *reactor, const struct neap_clients_options *options,
                        struct neap_routes *routes, struct neap_recovery *recovery)
{
	*clients =
		(struct neap_clients){.reactor = reactor, .options = *options, .routes = routes, .recovery = recovery, .sweep.run = sweep};
	int error = neap_reactor_class_of(reactor, &kind, &clients->class_);
	if (!error)
		error = neap_pool_create(&clients->pool, reactor, sizeof(struct neap_client), options->clients_max);
	if (!error)
		error = neap_pool_create(&clients->segments, reactor, sizeof(struct neap_client_segment), options->segments_max);
	for (clients->bucket_count = 16; clients->bucket_count < options->clients_max && clients->bucket_count < 1u << 20;)
		clients->bucket_count *= 2;
	if (!error) {
		clients->buckets = neap_allocate(reactor, clients->bucket_count * sizeof(struct neap_client *));
		error = clients->buckets ? NEAP_OK : NEAP_ENOMEM;
	}
	if (error)
		neap_clients_destroy(clients);
	return error;
}

void neap_clients_destroy(struct neap_clients *clients)
{
	uint32_t at = 0;
	for (struct neap_client *client; clients->pool.objects && (client = neap_pool_next(&clients->pool, &at));)
		neap_machine_end(&client->machine);
	neap_ready_cancel(clients->reactor, &clients->sweep);
	if (clients->buckets)
		neap_release(clients->reactor, clients->buckets, clients->bucket_count * sizeof(struct neap_client *));
	clients->buckets = NULL;
	neap_pool_destroy(&clients->segments);
	neap_pool_destroy(&clients->pool);
}
