#include "tests/support/sim_redis_server.h"
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

/* Beside the kinds of replies. */
enum { TAG_COMMAND = 100, TAG_SUBSCRIBED, TAG_INVALIDATED };

struct sim_redis_client {
	struct sim_redis_client *next;
	struct sim_line *line;
	int64_t id, redirect; /* where its notices go; 0: it does not track */
	bool knows_password, subscribed, no_loop;
};

struct sim_redis_tracked {
	struct sim_redis_tracked *next;
	int64_t client;
	char key[];
};

static struct sim_redis_server *redis_of(struct sim_server *server)
{
	return (struct sim_redis_server *)server;
}

/* --- tracking ------------------------------------------------------------------------------------------------------------------ */

static struct sim_redis_client *client_of_id(struct sim_redis_server *redis, int64_t id)
{
	struct sim_redis_client *client = redis->clients;
	while (client && client->id != id)
		client = client->next;
	return client;
}

/* A redirection to nobody is not told to anybody. */
static void notify(struct sim_redis_server *redis, const struct sim_redis_client *client, const char *key)
{
	const struct sim_redis_client *to = client->redirect ? client_of_id(redis, client->redirect) : NULL;
	if (!to || !to->subscribed || redis->deaf)
		return;
	redis->notices++;
	sim_line_answer(to->line, sim_message_text(TAG_INVALIDATED, 0, key));
}

static void track(struct sim_redis_server *redis, const struct sim_redis_client *client, const char *key)
{
	struct sim_redis_tracked **slot = &redis->tracked;
	if (!client->redirect)
		return;
	for (; *slot; slot = &(*slot)->next)
		if ((*slot)->client == client->id && strcmp((*slot)->key, key) == 0)
			return;
	size_t length = strlen(key);
	struct sim_redis_tracked *tracked = calloc(1, sizeof *tracked + length + 1);
	if (!tracked)
		abort();
	tracked->client = client->id;
	memcpy(tracked->key, key, length);
	*slot = tracked;
}

/* Who has it forgotten for whom: told or not, by what Redis' trackingInvalidateKey does. */
static void tell_changed(struct sim_redis_server *redis, const struct sim_redis_client *by, const char *key)
{
	for (struct sim_redis_tracked **slot = &redis->tracked; *slot;) {
		struct sim_redis_tracked *tracked = *slot;
		if (key && strcmp(tracked->key, key) != 0) {
			slot = &tracked->next;
			continue;
		}
		const struct sim_redis_client *client = client_of_id(redis, tracked->client);
		*slot = tracked->next;
		if (client && !(client == by && client->no_loop))
			notify(redis, client, tracked->key);
		free(tracked);
	}
}

void sim_redis_server_forget_tracked(struct sim_redis_server *redis)
{
	tell_changed(redis, NULL, NULL);
}

static void forget_tracked_silently(struct sim_redis_server *redis)
{
	while (redis->tracked) {
		struct sim_redis_tracked *tracked = redis->tracked;
		redis->tracked = tracked->next;
		free(tracked);
	}
}

void sim_redis_server_flush(struct sim_redis_server *redis)
{
	sim_keys_wipe(&redis->keys);
	forget_tracked_silently(redis);
	for (const struct sim_redis_client *client = redis->clients; client; client = client->next)
		notify(redis, client, NULL);
}

void sim_redis_server_put(struct sim_redis_server *redis, const char *key, const char *value)
{
	if (value)
		sim_keys_set(&redis->keys, key, value, strlen(value), 0);
	else
		(void)sim_keys_remove(&redis->keys, key);
	tell_changed(redis, NULL, key);
}

static void expired(struct sim_keys *keys, const char *key)
{
	tell_changed((struct sim_redis_server *)(void *)((char *)keys - offsetof(struct sim_redis_server, keys)), NULL, key);
}

/* --- commands ------------------------------------------------------------------------------------------------------------------ */

static bool is(const struct sim_message *message, int word, const char *text)
{
	return word < message->count && strcmp(message->words[word], text) == 0;
}

static struct sim_message *ok(void)
{
	return sim_message_text(NEAP_REDIS_STATUS, 0, "OK");
}

static struct sim_message *refuse(const char *text)
{
	return sim_message_text(NEAP_REDIS_ERROR, 0, text);
}

static struct sim_message *number(int64_t value)
{
	return sim_message_text(NEAP_REDIS_INTEGER, value, NULL);
}

static uint64_t lease_of(const struct sim_redis_server *redis, const char *milliseconds)
{
	return redis->server.sim->now_ns + strtoull(milliseconds, NULL, 10) * MS;
}

static struct sim_message *do_set(struct sim_redis_server *redis, struct sim_redis_client *client, const struct sim_message *command)
{
	uint64_t ends_ns = 0;
	bool create = false;
	for (int i = 3; i < command->count; i++) {
		create |= is(command, i, "NX");
		if (is(command, i, "PX") && i + 1 < command->count)
			ends_ns = lease_of(redis, command->words[++i]);
	}
	if (create && sim_keys_find(&redis->keys, command->words[1]))
		return sim_message_text(NEAP_REDIS_NIL, 0, NULL);
	sim_keys_set(&redis->keys, command->words[1], command->words[2], command->lengths[2], ends_ns);
	tell_changed(redis, client, command->words[1]);
	return ok();
}

static struct sim_message *do_get(struct sim_redis_server *redis, struct sim_redis_client *client, const struct sim_message *command)
{
	const struct sim_key *at = sim_keys_find(&redis->keys, command->words[1]);
	track(redis, client, command->words[1]);
	return at ? sim_message_create(NEAP_REDIS_STRING, 0, 1, (const char *const[]){at->value}, &at->length)
	          : sim_message_text(NEAP_REDIS_NIL, 0, NULL);
}

static struct sim_message *do_exists(struct sim_redis_server *redis, struct sim_redis_client *client, const struct sim_message *command)
{
	track(redis, client, command->words[1]);
	return number(sim_keys_find(&redis->keys, command->words[1]) != NULL);
}

static struct sim_message *do_del(struct sim_redis_server *redis, struct sim_redis_client *client, const struct sim_message *command)
{
	bool there = sim_keys_remove(&redis->keys, command->words[1]);
	if (there)
		tell_changed(redis, client, command->words[1]);
	return number(there);
}

static struct sim_message *do_pexpire(struct sim_redis_server *redis, struct sim_redis_client *client, const struct sim_message *command)
{
	bool there = sim_keys_end_at(&redis->keys, command->words[1], lease_of(redis, command->words[2]));
	if (there)
		tell_changed(redis, client, command->words[1]);
	return number(there);
}

static struct sim_message *do_client(struct sim_redis_server *redis, struct sim_redis_client *client, const struct sim_message *command)
{
	if (is(command, 1, "ID"))
		return number(client->id);
	if (redis->old || !is(command, 1, "TRACKING") || !is(command, 3, "REDIRECT"))
		return refuse("ERR Unknown subcommand or wrong number of arguments for 'tracking'. Try CLIENT HELP.");
	int64_t redirect = strtoll(command->words[4], NULL, 10);
	if (!client_of_id(redis, redirect))
		return refuse("ERR The client ID you want redirect to does not exist");
	client->redirect = redirect;
	client->no_loop = is(command, 5, "NOLOOP");
	return ok();
}

static struct sim_message *do_ping(struct sim_redis_server *redis, struct sim_redis_client *client, const struct sim_message *command)
{
	(void)redis, (void)client, (void)command;
	return sim_message_text(NEAP_REDIS_STATUS, 0, "PONG");
}

static struct sim_message *do_select(struct sim_redis_server *redis, struct sim_redis_client *client, const struct sim_message *command)
{
	(void)redis, (void)client, (void)command;
	return ok();
}

static struct sim_message *do_subscribe(struct sim_redis_server *redis, struct sim_redis_client *client, const struct sim_message *command)
{
	(void)redis, (void)command;
	client->subscribed = true;
	return sim_message_text(TAG_SUBSCRIBED, 0, NULL);
}

static struct sim_message *do_auth(struct sim_redis_server *redis, struct sim_redis_client *client, const struct sim_message *command)
{
	if (!redis->password)
		return refuse("ERR AUTH <password> called without any password configured for the default user.");
	client->knows_password = is(command, command->count - 1, redis->password);
	return client->knows_password ? ok() : refuse("WRONGPASS invalid username-password pair or user is disabled.");
}

static const struct {
	const char *name;
	int words; /* at least */
	bool writes;
	struct sim_message *(*run)(struct sim_redis_server *redis, struct sim_redis_client *client, const struct sim_message *command);
} rows[] = {
	{"GET", 2, false, do_get},         {"SET", 3, true, do_set},       {"DEL", 2, true, do_del},
	{"EXISTS", 2, false, do_exists},   {"PEXPIRE", 3, true, do_pexpire}, {"CLIENT", 2, false, do_client},
	{"PING", 1, false, do_ping},       {"SELECT", 2, false, do_select}, {"SUBSCRIBE", 2, false, do_subscribe},
};

static struct sim_message *run(struct sim_redis_server *redis, struct sim_redis_client *client, const struct sim_message *command)
{
	if (is(command, 0, "AUTH"))
		return do_auth(redis, client, command);
	if (redis->password && !client->knows_password)
		return refuse("NOAUTH Authentication required.");
	if (redis->server.sim->now_ns < redis->loading_until_ns && !is(command, 0, "CLIENT") && !is(command, 0, "SUBSCRIBE"))
		return refuse("LOADING Redis is loading the dataset in memory");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (is(command, 0, rows[i].name) && command->count >= rows[i].words)
			return rows[i].writes && redis->refusal ? refuse(redis->refusal) : rows[i].run(redis, client, command);
	return refuse("ERR unknown command");
}

/* --- connections --------------------------------------------------------------------------------------------------------------- */

static void accepted(struct sim_server *server, struct sim_line *line)
{
	struct sim_redis_server *redis = redis_of(server);
	struct sim_redis_client *client = calloc(1, sizeof *client);
	if (!client)
		abort();
	client->line = line;
	client->id = (int64_t)++redis->next_id;
	client->next = redis->clients;
	redis->clients = client;
	sim_line_keep(line, client);
}

static void received(struct sim_server *server, struct sim_line *line, const struct sim_message *message)
{
	struct sim_redis_server *redis = redis_of(server);
	redis->commands++;
	sim_line_answer(line, run(redis, sim_line_kept(line), message));
}

static void gone(struct sim_server *server, struct sim_line *line)
{
	struct sim_redis_client *client = sim_line_kept(line), **slot = &redis_of(server)->clients;
	while (*slot != client)
		slot = &(*slot)->next;
	*slot = client->next;
	free(client);
}

static const struct sim_service service = {.accepted = accepted, .received = received, .gone = gone};

void sim_redis_server_init(struct sim_redis_server *redis, struct sim *sim)
{
	*redis = (struct sim_redis_server){.keys = {.sim = sim, .expired = expired}};
	sim_server_init(&redis->server, sim, &service);
}

void sim_redis_server_release(struct sim_redis_server *redis)
{
	sim_server_release(&redis->server);
	forget_tracked_silently(redis);
	sim_keys_release(&redis->keys);
}

/* --- the driver ---------------------------------------------------------------------------------------------------------------- */

struct neap_redis_wire {
	struct sim_redis_server *redis;
	struct sim_line *line;
	const struct neap_redis_events *events;
	void *user;
};

static void release_wire(struct neap_redis_wire *wire)
{
	wire->redis->wires--;
	free(wire);
}

static void opened(void *user)
{
	struct neap_redis_wire *wire = user;
	wire->events->connected(wire->user);
}

static void arrived(void *user, const struct sim_message *message)
{
	struct neap_redis_wire *wire = user;
	const char *text = message->count ? message->words[0] : NULL;
	size_t length = message->count ? message->lengths[0] : 0;
	struct neap_redis_reply reply = {.kind = (enum neap_redis_kind)message->tag, .integer = message->number, .text = text, .length = length};
	if (message->tag == TAG_SUBSCRIBED)
		wire->events->subscribed(wire->user);
	else if (message->tag == TAG_INVALIDATED)
		wire->events->invalidated(wire->user, text, length);
	else
		wire->events->replied(wire->user, &reply);
}

static void ended(void *user, const char *why)
{
	struct neap_redis_wire *wire = user;
	const struct neap_redis_events *events = wire->events;
	void *to = wire->user;
	release_wire(wire);
	events->closed(to, why);
}

static const struct sim_line_events line_events = {.opened = opened, .arrived = arrived, .ended = ended};

static struct neap_redis_wire *do_connect(const struct neap_redis_driver *base, struct neap_reactor *reactor, const char *address,
                                          uint16_t port, const struct neap_redis_events *events, void *user, char *why, size_t why_size)
{
	const struct sim_redis_driver *driver = (const struct sim_redis_driver *)base;
	struct neap_redis_wire *wire = calloc(1, sizeof *wire);
	(void)reactor, (void)address, (void)port, (void)why, (void)why_size;
	if (!wire)
		abort();
	*wire = (struct neap_redis_wire){.redis = driver->redis, .events = events, .user = user};
	wire->line = sim_line_open(&driver->redis->server, driver->node, &line_events, wire);
	driver->redis->wires++;
	return wire;
}

static int do_command(struct neap_redis_wire *wire, int count, const char *const *words, const size_t *lengths)
{
	sim_line_say(wire->line, sim_message_create(TAG_COMMAND, 0, count, words, lengths));
	return NEAP_OK;
}

static int do_subscribe_to(struct neap_redis_wire *wire, const char *channel)
{
	const char *words[] = {"SUBSCRIBE", channel};
	const size_t lengths[] = {9, strlen(channel)};
	return do_command(wire, 2, words, lengths);
}

static void do_close(struct neap_redis_wire *wire)
{
	sim_line_close(wire->line);
	release_wire(wire);
}

void sim_redis_driver_init(struct sim_redis_driver *driver, struct sim_redis_server *redis, struct sim_node *node)
{
	*driver = (struct sim_redis_driver){
		.driver = {.connect = do_connect, .command = do_command, .subscribe = do_subscribe_to, .close = do_close}, .redis = redis, .node = node};
}
