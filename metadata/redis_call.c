/* Commands to a Redis server. Every way out takes the call apart first and tells its owner last, so that the owner may call again,
 * cancel others or destroy the back-end. */
#include "metadata/redis_call_fsm.h"
#include "metadata/redis_inside.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SENT_A_PIECE 64u

static struct redis_call *call_of(const struct neap_machine *machine)
{
	return (struct redis_call *)(uintptr_t)((const char *)machine - offsetof(struct redis_call, machine));
}

/* --- lists ---------------------------------------------------------------------------------------------------------- */

static void append(struct redis_list *list, struct redis_call *call)
{
	call->next = NULL;
	call->slot = list->tail;
	call->list = list;
	*list->tail = call;
	list->tail = &call->next;
}

static void take_out(struct redis_call *call)
{
	if (!call->slot)
		return;
	*call->slot = call->next;
	if (call->next)
		call->next->slot = call->slot;
	else
		call->list->tail = call->slot;
	call->slot = NULL;
}

static void move_all(struct redis_list *to, struct redis_list *from)
{
	while (from->first) {
		struct redis_call *call = from->first;
		take_out(call);
		append(to, call);
	}
}

/* --- life ------------------------------------------------------------------------------------------------------------ */

void redis_call_end(struct redis_call *call)
{
	struct neap_redis *redis = call->redis;
	take_out(call);
	if (call->value) {
		neap_release(redis->reactor, call->value, call->value_length);
		redis->value_bytes -= call->value_length;
	}
	call->value = NULL;
	neap_machine_end(&call->machine);
	neap_pool_give(&redis->calls, call);
}

static void report(struct redis_call *call, int error, const char *value, size_t length, const char *why)
{
	neap_backend_done_func *done = call->done;
	void *user = call->user;
	char text[REDIS_WHY_MAX] = "";
	if (error && why)
		(void)snprintf(text, sizeof text, "%s: %s", call->redis->base.where, why);
	redis_call_end(call);
	if (done)
		done(user, error, value, length, text);
}

struct redis_call *redis_call_take(struct neap_redis *redis, enum redis_kind kind, uint64_t timeout_ns, neap_backend_done_func *done,
                                   void *user)
{
	struct redis_call *call = neap_pool_take(&redis->calls);
	if (!call)
		return NULL;
	uint64_t now_ns = neap_now(redis->reactor);
	call->redis = redis;
	call->slot = NULL;
	call->done = done;
	call->user = user;
	call->kind = (uint8_t)kind;
	call->began_ns = now_ns;
	call->deadline_ns = timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX - 1;
	call->lease_ns = 0;
	call->value = NULL;
	call->value_length = 0;
	call->create = call->was_lost = false;
	call->key[0] = '\0';
	neap_machine_begin(&call->machine, &redis->call_class->class_);
	return call;
}

void redis_call_start(struct redis_call *call)
{
	(void)neap_post(&call->machine, redis_call_on_HOLD, call->kind);
	neap_reactor_touch(call->redis->reactor);
}

/* What waits for a reply keeps its place among those that do. */
void redis_call_cancel(struct redis_call *call)
{
	if (!call->done)
		return;
	call->done = NULL;
	if (call->machine.state == redis_call_IDLE) /* its HOLD has not run yet */
		redis_call_end(call);
	else
		neap_step(&call->machine, redis_call_on_CANCEL, 0);
}

/* --- words ----------------------------------------------------------------------------------------------------------- */

struct words {
	const char *word[REDIS_WORDS_MAX];
	size_t length[REDIS_WORDS_MAX];
	int count;
	char number[24];
};

static void add_bytes(struct words *words, const char *word, size_t length)
{
	words->word[words->count] = word;
	words->length[words->count++] = length;
}

static void add(struct words *words, const char *word)
{
	add_bytes(words, word, strlen(word));
}

static void add_number(struct words *words, uint64_t number)
{
	(void)snprintf(words->number, sizeof words->number, "%" PRIu64, number);
	add(words, words->number);
}

static uint64_t lease_ms(const struct redis_call *call)
{
	return call->lease_ns < 1000000 ? 1 : call->lease_ns / 1000000;
}

static void say_set(struct words *words, const struct redis_call *call)
{
	add(words, "SET");
	add(words, call->key);
	add_bytes(words, call->value ? call->value : "", call->value_length);
	if (call->create)
		add(words, "NX");
	if (!call->lease_ns)
		return;
	add(words, "PX");
	add_number(words, lease_ms(call));
}

static void say(struct words *words, const struct redis_call *call)
{
	words->count = 0;
	switch ((enum redis_kind)call->kind) {
	case REDIS_SET:
		say_set(words, call);
		return;
	case REDIS_TRACK: /* what we write ourselves is not told: we know */
		add(words, "CLIENT");
		add(words, "TRACKING");
		add(words, "ON");
		add(words, "REDIRECT");
		add_number(words, (uint64_t)call->tracker);
		add(words, "NOLOOP");
		return;
	case REDIS_GET:
		add(words, "GET");
		break;
	case REDIS_REMOVE:
		add(words, "DEL");
		break;
	case REDIS_TOUCH:
		add(words, call->lease_ns ? "PEXPIRE" : "EXISTS");
		break;
	}
	add(words, call->key);
	if (call->kind == REDIS_TOUCH && call->lease_ns)
		add_number(words, lease_ms(call));
}

/* --- replies --------------------------------------------------------------------------------------------------------- */

static bool is_ok(const struct neap_redis_reply *reply)
{
	return reply->kind == NEAP_REDIS_STATUS && reply->length == 2 && memcmp(reply->text, "OK", 2) == 0;
}

/* 0 or what the reply says that is no error; 1: it has to be classified. */
static int read_reply(const struct redis_call *call, const struct neap_redis_reply *reply)
{
	switch ((enum redis_kind)call->kind) {
	case REDIS_GET:
		return reply->kind == NEAP_REDIS_STRING ? NEAP_OK : reply->kind == NEAP_REDIS_NIL ? NEAP_EMETADATA : 1;
	case REDIS_SET:
		return is_ok(reply) ? NEAP_OK : reply->kind == NEAP_REDIS_NIL && call->create ? NEAP_ETAKEN : 1;
	case REDIS_REMOVE:
		return reply->kind == NEAP_REDIS_INTEGER ? NEAP_OK : 1;
	case REDIS_TOUCH:
		return reply->kind != NEAP_REDIS_INTEGER ? 1 : reply->integer ? NEAP_OK : NEAP_EMETADATA;
	case REDIS_TRACK:
		return is_ok(reply) ? NEAP_OK : 1;
	}
	return 1;
}

/* --- actions --------------------------------------------------------------------------------------------------------- */

static void do_hold(struct neap_machine *machine, uint64_t argument)
{
	struct redis_call *call = call_of(machine);
	(void)argument;
	append(&call->redis->queued, call);
	redis_link_need(&call->redis->commands);
	neap_ready_again(call->redis->reactor, &call->redis->work);
}

static void do_send(struct neap_machine *machine, uint64_t argument)
{
	struct redis_call *call = call_of(machine);
	struct neap_redis *redis = call->redis;
	struct words words;
	(void)argument;
	say(&words, call);
	append(&redis->sent, call);
	int error = redis->driver->command(redis->commands.wire, words.count, words.word, words.length);
	if (error)
		redis_link_broke(&redis->commands, error, neap_error_text(error));
}

static void do_deliver(struct neap_machine *machine, uint64_t argument)
{
	struct redis_call *call = call_of(machine);
	struct neap_redis *redis = call->redis;
	const struct neap_redis_reply *reply = redis->reply;
	char why[REDIS_WHY_MAX] = "";
	(void)argument;
	int error = read_reply(call, reply);
	if (error == 1) {
		struct neap_redis_verdict verdict = neap_redis_classify(reply, why, sizeof why);
		error = verdict.error;
		if (verdict.reconnect)
			redis_link_broke(&redis->commands, error, why);
	} else if (error) {
		(void)snprintf(why, sizeof why, "%s", error == NEAP_ETAKEN ? "the key has a value already" : "there is no such key");
	}
	bool value = !error && call->kind == REDIS_GET, wrote = !error && (call->kind == REDIS_SET || call->kind == REDIS_REMOVE);
	char key[NEAP_BACKEND_KEY_MAX];
	memcpy(key, call->key, sizeof key);
	report(call, error, value ? reply->text : NULL, value ? reply->length : 0, why);
	if (wrote)
		redis_wrote(redis, key);
}

static void do_fail(struct neap_machine *machine, uint64_t argument)
{
	struct redis_call *call = call_of(machine);
	char why[REDIS_WHY_MAX];
	(void)argument;
	memcpy(why, call->redis->commands.why, sizeof why);
	report(call, call->redis->commands.error, NULL, 0, why);
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct redis_call *call = call_of(machine);
	const struct redis_link *link = &call->redis->commands;
	char why[REDIS_WHY_MAX + 64];
	(void)argument;
	(void)snprintf(why, sizeof why, "not connected within %" PRIu64 " ms; last: %s", (call->deadline_ns - call->began_ns) / 1000000,
	               link->why[0] ? link->why : "no answer yet");
	report(call, NEAP_ETIMEDOUT, NULL, 0, why);
}

/* Replies come in order: behind one that does not come, none will. */
static void do_give_up_on_server(struct neap_machine *machine, uint64_t argument)
{
	struct redis_call *call = call_of(machine);
	char why[96];
	(void)argument;
	(void)snprintf(why, sizeof why, "no reply within %" PRIu64 " ms: the connection is given up",
	               (call->deadline_ns - call->began_ns) / 1000000);
	take_out(call);
	redis_link_broke(&call->redis->commands, NEAP_ETIMEDOUT, why);
	report(call, NEAP_ETIMEDOUT, NULL, 0, why);
}

static void do_drop(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	redis_call_end(call_of(machine));
}

static neap_action_func *const actions[] = {
	[redis_call_do_hold] = do_hold,       [redis_call_do_send] = do_send,
	[redis_call_do_deliver] = do_deliver, [redis_call_do_fail] = do_fail,
	[redis_call_do_give_up] = do_give_up, [redis_call_do_give_up_on_server] = do_give_up_on_server,
	[redis_call_do_drop] = do_drop,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)timeout_class;
	(void)now_ns;
	return call_of(machine)->deadline_ns;
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)event;
	report(call_of(machine), NEAP_EINTERNAL, NULL, 0, neap_error_text(NEAP_EINTERNAL));
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_redis_call,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct redis_call),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- all of them ----------------------------------------------------------------------------------------------------- */

int redis_calls_init(struct neap_redis *redis)
{
	redis->queued.tail = &redis->queued.first;
	redis->sent.tail = &redis->sent.first;
	redis->lost.tail = &redis->lost.first;
	int error = neap_reactor_class_of(redis->reactor, &kind, &redis->call_class);
	return error ? error : neap_pool_create(&redis->calls, redis->reactor, sizeof(struct redis_call), redis->options.calls_max);
}

void redis_calls_replied(struct neap_redis *redis, const struct neap_redis_reply *reply)
{
	struct redis_call *call = redis->sent.first;
	if (!call) {
		redis_link_broke(&redis->commands, NEAP_EPROTO, "it answered what was not asked");
		return;
	}
	take_out(call);
	redis->reply = reply;
	neap_step(&call->machine, redis_call_on_REPLY, 0);
	redis->reply = NULL;
}

void redis_calls_lost(struct neap_redis *redis)
{
	move_all(&redis->lost, &redis->sent);
	neap_ready_again(redis->reactor, &redis->work);
}

static void tell_lost(struct neap_redis *redis)
{
	while (redis->lost.first) {
		struct redis_call *call = redis->lost.first;
		take_out(call);
		bool again = call->machine.state == redis_call_SENT && !call->was_lost && call->kind != REDIS_TRACK;
		call->was_lost = true;
		neap_step(&call->machine, again ? redis_call_on_LOST_ONCE : redis_call_on_LOST, 0);
	}
}

/* Those that are there now: who calls again from its callback waits for the next connection. */
static void tell_refused(struct neap_redis *redis)
{
	struct redis_list refused = {.first = NULL};
	refused.tail = &refused.first;
	redis->refused = false;
	move_all(&refused, &redis->queued);
	while (refused.first) {
		struct redis_call *call = refused.first;
		take_out(call);
		neap_step(&call->machine, redis_call_on_REFUSED, 0);
	}
}

void redis_calls_tend(struct neap_redis *redis)
{
	tell_lost(redis);
	if (redis->refused)
		tell_refused(redis);
	for (uint32_t i = 0; i < SENT_A_PIECE && redis->queued.first && redis_link_is_ready(&redis->commands); i++) {
		struct redis_call *call = redis->queued.first;
		take_out(call);
		neap_step(&call->machine, redis_call_on_SEND, 0);
	}
	if (!redis->closing && redis->queued.first && redis_link_is_ready(&redis->commands))
		neap_ready_again(redis->reactor, &redis->work);
}
