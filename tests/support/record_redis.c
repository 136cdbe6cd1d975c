#include "tests/support/record_redis.h"
#include <stdlib.h>
#include <string.h>

static const char *const replies[] = {
	[NEAP_REDIS_STATUS] = "status", [NEAP_REDIS_ERROR] = "error", [NEAP_REDIS_INTEGER] = "integer",
	[NEAP_REDIS_STRING] = "string", [NEAP_REDIS_NIL] = "nil",     [NEAP_REDIS_OTHER] = "other",
};
#define REPLIES (sizeof replies / sizeof *replies)

static uint32_t index_of(const struct record_wire *wire)
{
	return (uint32_t)(wire - wire->redis->wires);
}

static void happened(struct record_wire *wire, const char *what, int64_t number, const char *text, size_t length)
{
	record_happened(wire->redis->log, what, index_of(wire), number, text, length);
}

static void connected(void *user)
{
	struct record_wire *wire = user;
	happened(wire, "connected", 0, "", 0);
	wire->events->connected(wire->user);
}

static void replied(void *user, const struct neap_redis_reply *reply)
{
	struct record_wire *wire = user;
	happened(wire, replies[reply->kind], reply->integer, reply->text, reply->length);
	wire->events->replied(wire->user, reply);
}

static void subscribed(void *user)
{
	struct record_wire *wire = user;
	happened(wire, "subscribed", 0, "", 0);
	wire->events->subscribed(wire->user);
}

static void invalidated(void *user, const char *key, size_t length)
{
	struct record_wire *wire = user;
	happened(wire, "invalidated", key != NULL, key, length);
	wire->events->invalidated(wire->user, key, length);
}

static void closed(void *user, const char *why)
{
	struct record_wire *wire = user;
	happened(wire, "closed", 0, why, strlen(why));
	wire->real = NULL;
	wire->events->closed(wire->user, why);
}

static const struct neap_redis_events events = {
	.connected = connected, .replied = replied, .subscribed = subscribed, .invalidated = invalidated, .closed = closed};

static struct neap_redis_wire *do_connect(const struct neap_redis_driver *driver, struct neap_reactor *reactor, const char *address,
                                          uint16_t port, const struct neap_redis_events *told, void *user, char *why, size_t why_size)
{
	struct record_redis *redis = (struct record_redis *)(uintptr_t)driver;
	if (redis->count == RECORD_REDIS_WIRES)
		return NULL;
	struct record_wire *wire = &redis->wires[redis->count++];
	*wire = (struct record_wire){.redis = redis, .events = told, .user = user};
	record_did(redis->log, "connect", index_of(wire), port, address, strlen(address));
	if (!redis->log->plays)
		wire->real = neap_redis_hiredis()->connect(neap_redis_hiredis(), reactor, address, port, &events, wire, why, why_size);
	return redis->log->plays || wire->real ? (struct neap_redis_wire *)(void *)wire : NULL;
}

static int do_command(struct neap_redis_wire *base, int count, const char *const *words, const size_t *lengths)
{
	struct record_wire *wire = (struct record_wire *)(void *)base;
	size_t length = 0;
	for (int i = 0; i < count; i++)
		length += lengths[i] + 1;
	char *text = malloc(length + 1);
	length = 0;
	for (int i = 0; i < count; i++) {
		memcpy(text + length, words[i], lengths[i]);
		length += lengths[i];
		text[length++] = ' ';
	}
	record_did(wire->redis->log, "command", index_of(wire), count, text, length);
	free(text);
	return wire->real ? neap_redis_hiredis()->command(wire->real, count, words, lengths) : 0;
}

static int do_subscribe(struct neap_redis_wire *base, const char *channel)
{
	struct record_wire *wire = (struct record_wire *)(void *)base;
	record_did(wire->redis->log, "subscribe", index_of(wire), 0, channel, strlen(channel));
	return wire->real ? neap_redis_hiredis()->subscribe(wire->real, channel) : 0;
}

static void do_close(struct neap_redis_wire *base)
{
	struct record_wire *wire = (struct record_wire *)(void *)base;
	record_did(wire->redis->log, "close", index_of(wire), 0, "", 0);
	if (wire->real)
		neap_redis_hiredis()->close(wire->real);
	wire->real = NULL;
}

void record_redis_init(struct record_redis *redis, struct record_log *log)
{
	memset(redis, 0, sizeof *redis);
	redis->log = log;
	redis->driver =
		(struct neap_redis_driver){.connect = do_connect, .command = do_command, .subscribe = do_subscribe, .close = do_close};
}

bool record_redis_play(struct record_redis *redis, const struct record_line *line)
{
	if (line->which >= redis->count)
		return false;
	struct record_wire *wire = &redis->wires[line->which];
	if (strcmp(line->what, "connected") == 0) {
		connected(wire);
	} else if (strcmp(line->what, "subscribed") == 0) {
		subscribed(wire);
	} else if (strcmp(line->what, "invalidated") == 0) {
		invalidated(wire, line->number ? line->text : NULL, line->length);
	} else if (strcmp(line->what, "closed") == 0) {
		closed(wire, line->text);
	} else {
		size_t kind = 0;
		while (kind < REPLIES && strcmp(line->what, replies[kind]) != 0)
			kind++;
		if (kind == REPLIES)
			return false;
		replied(wire, &(struct neap_redis_reply){
						  .kind = (enum neap_redis_kind)kind, .integer = line->number, .text = line->text, .length = line->length});
	}
	return true;
}
