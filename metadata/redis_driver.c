/* The Redis driver over hiredis' asynchronous interface: the one place that knows that library. It moves what happens to the machines of
 * redis_link.c and decides nothing.
 *
 * What has to be known of hiredis: it frees its context itself, inside of its handlers, and tells by `cleanup`; a context must not be freed
 * from inside a connect callback; it looks at replies with assertions, which a server could make fail, so what it may look at is checked
 * while it is read (the functions `make_...`); it writes without MSG_NOSIGNAL. Addresses are numeric: with a name it would wait. */
#include "metadata/redis.h"
#include <errno.h>
#include <fcntl.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>


struct neap_redis_wire {
	struct neap_watch watch;
	struct neap_reap reap;
	struct neap_reactor *reactor;
	redisAsyncContext *context; /* NULL: hiredis has freed it */
	const struct neap_redis_events *events; /* NULL: nobody wants to know any more */
	void *user;
	redisReplyObjectFunctions plain, checked;
	uint32_t expected; /* replies to commands */
	bool connected, told, subscribes, strange;
	char why[160];
};

static void reap_wire(struct neap_reap *reap)
{
	struct neap_redis_wire *wire = (struct neap_redis_wire *)(void *)((char *)reap - offsetof(struct neap_redis_wire, reap));
	neap_release(wire->reactor, wire, sizeof *wire);
}

/* hiredis may be up the stack: the memory goes at the end of the turn. */
static void release_unused(struct neap_redis_wire *wire)
{
	if (wire->context || wire->events)
		return;
	wire->reap.reap = reap_wire;
	neap_reap_later(wire->reactor, &wire->reap);
}

/* Commands are answered by one value each and never by an array; a connection that subscribes is told ["message", channel, keys]. */
static bool fits(const redisReadTask *task, bool is_array, int elements, const char *text, size_t length)
{
	struct neap_redis_wire *wire = task->privdata;
	bool fine;
	if (task->type == REDIS_REPLY_ERROR)
		fine = !task->parent;
	else if (!wire->subscribes)
		fine = !task->parent && wire->expected > 0 && !is_array;
	else if (!task->parent)
		fine = is_array && elements == 3;
	else if (task->parent->parent)
		fine = !is_array && text;
	else if (task->idx == 0)
		fine = text && ((length == 7 && memcmp(text, "message", 7) == 0) || (length == 9 && memcmp(text, "subscribe", 9) == 0));
	else
		fine = task->idx == 1 ? text != NULL : !is_array || elements <= 1 << 20;
	wire->strange |= !fine;
	return fine;
}

static void *make_string(const redisReadTask *task, char *text, size_t length)
{
	return fits(task, false, 0, text, length) ? ((struct neap_redis_wire *)task->privdata)->plain.createString(task, text, length) : NULL;
}

static void *make_array(const redisReadTask *task, int elements)
{
	return fits(task, true, elements, NULL, 0) ? ((struct neap_redis_wire *)task->privdata)->plain.createArray(task, elements) : NULL;
}

static void *make_integer(const redisReadTask *task, long long value)
{
	return fits(task, false, 0, NULL, 0) ? ((struct neap_redis_wire *)task->privdata)->plain.createInteger(task, value) : NULL;
}

static void *make_nil(const redisReadTask *task)
{
	return fits(task, false, 0, NULL, 0) ? ((struct neap_redis_wire *)task->privdata)->plain.createNil(task) : NULL;
}

static void check_what_is_read(struct neap_redis_wire *wire)
{
	redisReader *reader = wire->context->c.reader;
	wire->plain = wire->checked = *reader->fn;
	wire->checked.createString = make_string;
	wire->checked.createArray = make_array;
	wire->checked.createInteger = make_integer;
	wire->checked.createNil = make_nil;
	reader->fn = &wire->checked;
	reader->privdata = wire;
}

static void want(struct neap_redis_wire *wire, unsigned more, unsigned less)
{
	(void)neap_watch_want(wire->reactor, &wire->watch, (wire->watch.wanted | more) & ~less);
}
static void add_read(void *wire) { want(wire, NEAP_READABLE, 0); }
static void end_read(void *wire) { want(wire, 0, NEAP_READABLE); }
static void add_write(void *wire) { want(wire, NEAP_WRITABLE, 0); }
static void end_write(void *wire) { want(wire, 0, NEAP_WRITABLE); }

/* The context goes; its descriptor is still open. */
static void cleanup(void *user)
{
	struct neap_redis_wire *wire = user;
	neap_watch_stop(wire->reactor, &wire->watch);
	wire->context = NULL;
	release_unused(wire);
}

static void on_connect(const redisAsyncContext *context, int status)
{
	struct neap_redis_wire *wire = context->data;
	wire->connected = status == REDIS_OK;
	if (!wire->connected)
		(void)snprintf(wire->why, sizeof wire->why, "%s", context->c.errstr);
}

static void on_disconnect(const redisAsyncContext *context, int status)
{
	struct neap_redis_wire *wire = context->data;
	if (status != REDIS_OK && context->errstr)
		(void)snprintf(wire->why, sizeof wire->why, "%s", wire->strange ? "it sent what was not asked for" : context->errstr);
}

static void on_reply(redisAsyncContext *context, void *answer, void *user)
{
	static const uint8_t kinds[] = {
		[REDIS_REPLY_STRING] = NEAP_REDIS_STRING, [REDIS_REPLY_ARRAY] = NEAP_REDIS_OTHER,   [REDIS_REPLY_INTEGER] = NEAP_REDIS_INTEGER,
		[REDIS_REPLY_NIL] = NEAP_REDIS_NIL,       [REDIS_REPLY_STATUS] = NEAP_REDIS_STATUS, [REDIS_REPLY_ERROR] = NEAP_REDIS_ERROR,
	};
	struct neap_redis_wire *wire = user;
	const redisReply *from = answer;
	(void)context;
	if (!from || !wire->events) /* it ends */
		return;
	wire->expected--;
	struct neap_redis_reply reply = {.kind = (enum neap_redis_kind)kinds[from->type], .integer = from->integer};
	if (reply.kind == NEAP_REDIS_STRING || reply.kind == NEAP_REDIS_STATUS || reply.kind == NEAP_REDIS_ERROR) {
		reply.text = from->str;
		reply.length = (size_t)from->len;
	}
	wire->events->replied(wire->user, &reply);
}

static void on_message(redisAsyncContext *context, void *answer, void *user)
{
	struct neap_redis_wire *wire = user;
	const redisReply *from = answer;
	(void)context;
	if (!from || !wire->events || from->type != REDIS_REPLY_ARRAY)
		return;
	const redisReply *keys = from->element[2];
	if (from->element[0]->str[0] == 's')
		wire->events->subscribed(wire->user);
	else if (keys->type != REDIS_REPLY_ARRAY)
		wire->events->invalidated(wire->user, NULL, 0);
	else
		for (size_t i = 0; i < keys->elements && wire->events; i++)
			wire->events->invalidated(wire->user, keys->element[i]->str, (size_t)keys->element[i]->len);
}

/* A signal that our own write would cause is kept from the process, whose business it is not. */
static void write_without_signal(redisAsyncContext *context)
{
	sigset_t pipe_signal, before, pending;
	sigemptyset(&pipe_signal);
	sigaddset(&pipe_signal, SIGPIPE);
	sigpending(&pending);
	bool was_pending = sigismember(&pending, SIGPIPE);
	(void)pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
	redisAsyncHandleWrite(context);
	sigpending(&pending);
	if (!was_pending && sigismember(&pending, SIGPIPE))
		(void)sigtimedwait(&pipe_signal, NULL, &(struct timespec){0});
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Tells what hiredis' handlers have only noted. */
static void settle(struct neap_redis_wire *wire)
{
	if (wire->events && wire->context && wire->connected && !wire->told) {
		wire->told = true;
		wire->events->connected(wire->user);
	}
	if (!wire->events || wire->context)
		return;
	const struct neap_redis_events *events = wire->events;
	wire->events = NULL;
	release_unused(wire);
	events->closed(wire->user, wire->why[0] ? wire->why : "the server closed it");
}

static void ready(struct neap_watch *watch, unsigned ready)
{
	struct neap_redis_wire *wire = (struct neap_redis_wire *)(void *)((char *)watch - offsetof(struct neap_redis_wire, watch));
	bool ended = ready & (NEAP_HANGUP | NEAP_ERROR_READY);
	if (watch->wanted & NEAP_WRITABLE && (ended || ready & NEAP_WRITABLE))
		write_without_signal(wire->context);
	settle(wire);
	if (wire->context && watch->wanted & NEAP_READABLE && (ended || ready & NEAP_READABLE))
		redisAsyncHandleRead(wire->context);
	settle(wire);
	if (!wire->context || !wire->events || wire->context->c.reader->len <= NEAP_REDIS_VALUE_MAX + 4096)
		return;
	(void)snprintf(wire->why, sizeof wire->why, "a reply is longer than %zu bytes", NEAP_REDIS_VALUE_MAX);
	redisAsyncFree(wire->context);
	settle(wire);
}

static void hook(struct neap_redis_wire *wire)
{
	redisAsyncContext *context = wire->context;
	context->data = context->ev.data = wire;
	context->ev.addRead = add_read;
	context->ev.delRead = end_read;
	context->ev.addWrite = add_write;
	context->ev.delWrite = end_write;
	context->ev.cleanup = cleanup;
}

static bool watch_context(struct neap_redis_wire *wire)
{
	redisAsyncContext *context = wire->context;
	int fd = context->c.fd;
	return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && redisEnableKeepAlive(&context->c) == REDIS_OK &&
	       neap_watch_start(wire->reactor, &wire->watch, fd, 0, ready) == NEAP_OK;
}

static struct neap_redis_wire *do_connect(const struct neap_redis_driver *driver, struct neap_reactor *reactor, const char *address,
                                          uint16_t port, const struct neap_redis_events *events, void *user, char *why, size_t why_size)
{
	struct neap_redis_wire *wire = neap_allocate(reactor, sizeof *wire);
	(void)driver;
	if (!wire) {
		(void)snprintf(why, why_size, "%s", neap_error_text(NEAP_ENOMEM));
		return NULL;
	}
	wire->reactor = reactor;
	wire->context = redisAsyncConnect(address, port);
	if (wire->context)
		hook(wire);
	if (!wire->context || wire->context->err || !watch_context(wire)) {
		(void)snprintf(why, why_size, "%s", wire->context && wire->context->err ? wire->context->errstr : "no descriptor is to be had");
		if (wire->context)
			redisAsyncFree(wire->context); /* cleans up */
		else
			release_unused(wire);
		return NULL;
	}
	check_what_is_read(wire);
	wire->events = events;
	wire->user = user;
	(void)redisAsyncSetConnectCallback(wire->context, on_connect);
	(void)redisAsyncSetDisconnectCallback(wire->context, on_disconnect);
	return wire;
}

static int do_command(struct neap_redis_wire *wire, int count, const char *const *words, const size_t *lengths)
{
	const char *copy[8];
	if (!wire->context || count > 8)
		return NEAP_EINVAL;
	memcpy(copy, words, (size_t)count * sizeof *copy);
	if (redisAsyncCommandArgv(wire->context, on_reply, wire, count, copy, lengths) != REDIS_OK)
		return NEAP_ENOMEM;
	wire->expected++;
	return NEAP_OK;
}

static int do_subscribe(struct neap_redis_wire *wire, const char *channel)
{
	const char *words[] = {"SUBSCRIBE", channel};
	const size_t lengths[] = {9, strlen(channel)};
	wire->subscribes = true;
	return wire->context && redisAsyncCommandArgv(wire->context, on_message, wire, 2, words, lengths) == REDIS_OK ? NEAP_OK : NEAP_ENOMEM;
}

static void do_close(struct neap_redis_wire *wire)
{
	wire->events = NULL;
	if (wire->context)
		redisAsyncFree(wire->context);
	else
		release_unused(wire);
}

static const struct neap_redis_driver driver_of_hiredis = {
	.connect = do_connect, .command = do_command, .subscribe = do_subscribe, .close = do_close};

const struct neap_redis_driver *neap_redis_hiredis(void)
{
	return &driver_of_hiredis;
}
