/* Notify messages: sent as one handshake call each, received into a bounded queue. */
#include "transports/engine_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SENT_A_PIECE 64u
#define QUEUE_BYTES_MAX (UINT64_C(64) << 20)

/* --- receiving */

int neap_notify_receive(struct neap_engine *engine, const char *name, const char *message)
{
	struct neap_notify_queue *queue = &engine->notifies;
	size_t name_bytes = strlen(name) + 1, message_bytes = strlen(message) + 1;
	size_t bytes = sizeof(struct neap_notify_entry) + name_bytes + message_bytes;
	struct neap_notify_entry *entry = NULL;
	if (queue->count < engine->options.notifies_max && queue->bytes + bytes <= QUEUE_BYTES_MAX)
		entry = neap_allocate(engine->reactor, bytes);
	if (!entry) {
		engine->stats.notifies_refused++;
		return NEAP_EAGAIN;
	}
	entry->bytes = bytes;
	entry->name_bytes = name_bytes;
	memcpy(entry->text, name, name_bytes);
	memcpy(entry->text + name_bytes, message, message_bytes);
	*queue->tail = entry;
	queue->tail = &entry->next;
	queue->count++;
	queue->bytes += bytes;
	engine->stats.notifies_received++;
	queue->fresh = true;
	neap_engine_wake(engine);
	return NEAP_OK;
}

int neap_notify_received(void *engine, const char *name, const char *message)
{
	return neap_notify_receive(engine, name, message);
}

static void drop_taken(struct neap_engine *engine)
{
	struct neap_notify_entry *taken = engine->notifies.taken;
	if (taken)
		neap_release(engine->reactor, taken, taken->bytes);
	engine->notifies.taken = NULL;
}

int neap_notify_take_one(struct neap_engine *engine, struct neap_notify *notify_p)
{
	struct neap_notify_queue *queue = &engine->notifies;
	struct neap_notify_entry *entry = queue->first;
	drop_taken(engine);
	if (!entry)
		return 0;
	queue->first = entry->next;
	if (!entry->next)
		queue->tail = &queue->first;
	queue->count--;
	queue->bytes -= entry->bytes;
	queue->taken = entry;
	notify_p->name = entry->text;
	notify_p->message = entry->text + entry->name_bytes;
	return 1;
}

/* --- sending */

static void answer(struct neap_notify_call *call, int error, const char *why)
{
	struct neap_engine *engine = call->engine;
	call->under_way = false;
	call->error = error;
	snprintf(call->why, sizeof call->why, "%s", why ? why : "");
	call->next = NULL;
	*engine->notified.tail = call;
	engine->notified.tail = &call->next;
	neap_engine_wake(engine);
}

/* The peer says no by an empty message. */
static int read_reply(const char *json, size_t length, char *why, size_t why_size)
{
	struct neap_notify_message reply;
	int error = neap_notify_decode(json, length, &reply, why, why_size);
	if (error)
		return error;
	if (!*reply.message) {
		snprintf(why, why_size, "the peer refused the notify");
		error = NEAP_EREJECTED;
	}
	neap_notify_free(&reply);
	return error;
}

static void done(void *user, int error, const char *json, size_t length, const char *why)
{
	char reason[NEAP_WHY_MAX] = "";
	if (!error) {
		error = read_reply(json, length, reason, sizeof reason);
		why = reason;
	}
	answer(user, error, why);
}

static void find_peer(const struct neap_engine *engine, const struct neap_segment *segment, struct neap_host_port *peer_p)
{
	if (segment == &engine->self)
		neap_name_address(engine, peer_p);
	else
		*peer_p = segment->snapshot->owner;
}

static int call_peer(struct neap_notify_call *call, const struct neap_segment *segment, const char *name, const char *message)
{
	struct neap_engine *engine = call->engine;
	struct neap_host_port peer;
	char *json;
	size_t length;
	find_peer(engine, segment, &peer);
	int error = neap_notify_encode(name, message, &json, &length);
	if (error)
		return error;
	error = neap_handshake_call(engine->caller, &peer, NEAP_HANDSHAKE_NOTIFY, json, length,
	                            (uint64_t)engine->options.handshake_timeout_ms * 1000000u, done, call, &call->call);
	free(json);
	call->under_way = error == 0;
	return error;
}

int neap_notify_begin_send(struct neap_engine *engine, neap_segment_id id, const char *name, const char *message,
                           void (*sent)(void *user, int error, const char *why), void *user)
{
	if (!neap_engine_is_running(engine))
		return NEAP_ECLOSED;
	if (!name || !message || !*message)
		return NEAP_EINVAL;
	struct neap_segment *segment = id == NEAP_LOCAL_SEGMENT ? &engine->self : neap_segment_find(engine, id);
	if (!segment)
		return NEAP_ESTALE;
	struct neap_notify_call *call = neap_pool_take(&engine->notify_calls);
	if (!call)
		return NEAP_EAGAIN;
	*call = (struct neap_notify_call){.engine = engine, .sent = sent, .user = user};
	int error = NEAP_OK;
	if (segment == &engine->self && engine->home == engine) {
		error = neap_notify_receive(engine, name, message);
		answer(call, error ? NEAP_EREJECTED : NEAP_OK, error ? "the queue of received notifies is full" : NULL);
		error = NEAP_OK;
	} else {
		error = call_peer(call, segment, name, message);
	}
	if (error)
		neap_pool_give(&engine->notify_calls, call);
	neap_reactor_touch(engine->reactor);
	return error;
}

/* --- calls to users */

static bool report_sent(struct neap_engine *engine)
{
	for (uint32_t i = 0; i < SENT_A_PIECE && engine->notified.first; i++) {
		struct neap_notify_call call = *engine->notified.first;
		neap_pool_give(&engine->notify_calls, engine->notified.first);
		engine->notified.first = call.next;
		if (!call.next)
			engine->notified.tail = &engine->notified.first;
		if (call.sent)
			call.sent(call.user, call.error, call.error ? call.why : NULL);
		else if (call.error)
			neap_log(engine->reactor, NEAP_LOG_WARNING, "engine", "a notify was not delivered: %s", call.why);
	}
	return engine->notified.first != NULL;
}

bool neap_notifies_tend(struct neap_engine *engine)
{
	struct neap_notify_queue *queue = &engine->notifies;
	if (queue->fresh && queue->arrived) {
		queue->fresh = false;
		queue->arrived(queue->user);
	}
	return report_sent(engine);
}

void neap_notifies_abandon(struct neap_engine *engine)
{
	uint32_t index = 0;
	for (struct neap_notify_call *call; (call = neap_pool_next(&engine->notify_calls, &index)) != NULL;) {
		if (!call->under_way)
			continue;
		neap_handshake_cancel(engine->caller, call->call);
		answer(call, NEAP_ECLOSED, "the engine was closed");
	}
}

void neap_notifies_free_all(struct neap_engine *engine)
{
	struct neap_notify none;
	while (neap_notify_take_one(engine, &none) > 0)
		;
}
