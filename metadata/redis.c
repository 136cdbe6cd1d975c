/* The Redis back-end: commands on one connection, notices of changes on another. */
#include "metadata/redis_inside.h"
#include "metadata/redis_link_fsm.h"
#include <stdio.h>
#include <string.h>

#define PORT_DEFAULT 6379u
#define CALLS_DEFAULT 4096u
#define MS UINT64_C(1000000)
#define VALUE_BYTES_MAX ((size_t)256 << 20) /* held for all calls */

static struct neap_redis *redis_of(struct neap_backend *backend)
{
	return (struct neap_redis *)(void *)((char *)backend - offsetof(struct neap_redis, base));
}

/* --- the two connections together ------------------------------------------------------------------------------------- */

static void tracked(void *user, int error, const char *value, size_t length, const char *why)
{
	struct neap_redis *redis = user;
	(void)value;
	(void)length;
	redis->tracking = !error;
	if (!error || !redis->reply || !redis_link_is_ready(&redis->commands))
		return; /* what failed was the connection that it was said on: it is said again on the next */
	if (error != NEAP_EREJECTED) { /* another tracker will do better */
		redis_link_broke(&redis->tracker, error, why);
		return;
	}
	/* an old server, or one that does not let us: it is read again when a transfer fails, as with any that cannot watch */
	redis->untrackable = true;
	neap_log(redis->reactor, NEAP_LOG_INFO, "metadata", "changes are not watched: %s", why);
	redis_link_end(&redis->tracker);
}

/* From then on the server tells the other connection of each key that this one has read. */
static void begin_tracking(struct neap_redis *redis)
{
	if (!redis_link_is_ready(&redis->commands) || !redis_link_is_ready(&redis->tracker))
		return;
	struct redis_call *call = redis_call_take(redis, REDIS_TRACK, redis->options.reply_timeout_ns, tracked, redis);
	if (!call)
		return; /* at its bound: the next connection tries again */
	call->tracker = redis->tracker.id;
	redis_call_start(call);
}

void redis_opened(struct redis_link *link)
{
	neap_ready_again(link->redis->reactor, &link->redis->work);
	begin_tracking(link->redis);
}

/* What was read may change from now on without a word. */
void redis_lost(struct redis_link *link)
{
	struct neap_redis *redis = link->redis;
	if (!link->tracks)
		redis_calls_lost(redis);
	redis->tracking = false;
	redis->tell_all = true;
	neap_ready_again(redis->reactor, &redis->work);
}

/* With NOLOOP a server tells us nothing of what we change, and all the same remembers no longer that we have read it: what somebody else
 * changes after that would not be told either. */
void redis_wrote(struct neap_redis *redis, const char *key)
{
	neap_watches_tell(&redis->watches, key, strlen(key));
}

/* So a lease that begins anew, which changes nothing for who watches, is followed by a read. */
static void track_again(struct neap_redis *redis, const char *key, uint64_t timeout_ns)
{
	if (!neap_watches_any(&redis->watches, key))
		return;
	struct redis_call *call = redis_call_take(redis, REDIS_TOUCH, timeout_ns, NULL, NULL);
	if (call) {
		memcpy(call->key, key, strlen(key) + 1);
		redis_call_start(call);
	} else { /* at its bound: nobody knows any more */
		redis->tell_all = true;
		neap_ready_again(redis->reactor, &redis->work);
	}
}

void redis_invalidated(struct neap_redis *redis, const char *key, size_t length)
{
	if (key)
		neap_watches_tell(&redis->watches, key, length);
	else
		neap_watches_tell_all(&redis->watches);
}

static void work(struct neap_ready *ready)
{
	struct neap_redis *redis = (struct neap_redis *)(void *)((char *)ready - offsetof(struct neap_redis, work));
	if (redis->tell_all) {
		redis->tell_all = false;
		neap_watches_tell_all(&redis->watches);
	}
	redis_calls_tend(redis);
}

/* --- operations ------------------------------------------------------------------------------------------------------- */

static int begin(struct neap_backend *backend, enum redis_kind kind, const char *key, uint64_t timeout_ns,
                 neap_backend_done_func *done, void *user, struct redis_call **call_p)
{
	struct neap_redis *redis = redis_of(backend);
	size_t length = strnlen(key, NEAP_BACKEND_KEY_MAX);
	if (redis->closing)
		return NEAP_ECLOSED;
	if (length == 0 || length == NEAP_BACKEND_KEY_MAX)
		return length ? NEAP_ELIMIT : NEAP_EINVAL;
	struct redis_call *call = redis_call_take(redis, kind, timeout_ns, done, user);
	if (!call)
		return NEAP_EAGAIN;
	memcpy(call->key, key, length + 1);
	*call_p = call;
	return NEAP_OK;
}

static int start(struct neap_redis *redis, struct redis_call *call, uint64_t *call_p)
{
	*call_p = neap_pool_handle(&redis->calls, call);
	redis_call_start(call);
	return NEAP_OK;
}

static int redis_get(struct neap_backend *backend, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
                     uint64_t *call_p)
{
	struct redis_call *call;
	int error = begin(backend, REDIS_GET, key, timeout_ns, done, user, &call);
	return error ? error : start(redis_of(backend), call, call_p);
}

static int redis_set(struct neap_backend *backend, const struct neap_backend_set *set, uint64_t timeout_ns,
                     neap_backend_done_func *done, void *user, uint64_t *call_p)
{
	struct neap_redis *redis = redis_of(backend);
	struct redis_call *call;
	if (set->length > backend->value_max)
		return NEAP_ELIMIT;
	if (set->length > VALUE_BYTES_MAX - redis->value_bytes)
		return NEAP_EAGAIN;
	int error = begin(backend, REDIS_SET, set->key, timeout_ns, done, user, &call);
	if (error)
		return error;
	call->lease_ns = set->lease_ns;
	call->create = set->create;
	if (set->length) {
		call->value = neap_allocate(redis->reactor, set->length);
		if (!call->value) {
			redis_call_end(call);
			return NEAP_ENOMEM;
		}
		memcpy(call->value, set->value, set->length);
		call->value_length = set->length;
		redis->value_bytes += set->length;
	}
	return start(redis, call, call_p);
}

static int redis_remove(struct neap_backend *backend, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
                        uint64_t *call_p)
{
	struct redis_call *call;
	int error = begin(backend, REDIS_REMOVE, key, timeout_ns, done, user, &call);
	return error ? error : start(redis_of(backend), call, call_p);
}

static int redis_touch(struct neap_backend *backend, const char *key, uint64_t lease_ns, uint64_t timeout_ns,
                       neap_backend_done_func *done, void *user, uint64_t *call_p)
{
	struct redis_call *call;
	int error = begin(backend, REDIS_TOUCH, key, timeout_ns, done, user, &call);
	if (error)
		return error;
	call->lease_ns = lease_ns;
	error = start(redis_of(backend), call, call_p);
	if (lease_ns)
		track_again(redis_of(backend), key, timeout_ns);
	return error;
}

static void redis_cancel(struct neap_backend *backend, uint64_t handle)
{
	struct redis_call *call = neap_pool_find(&redis_of(backend)->calls, handle);
	if (call)
		redis_call_cancel(call);
}

static int redis_watch(struct neap_backend *backend, const char *key, struct neap_backend_watch *watch)
{
	struct neap_redis *redis = redis_of(backend);
	if (redis->closing || redis->untrackable)
		return NEAP_EAGAIN;
	redis_link_need(&redis->tracker);
	if (!redis->tracking)
		return NEAP_EAGAIN;
	neap_watches_add(&redis->watches, key, watch);
	return NEAP_OK;
}

static void release_redis(struct neap_redis *redis)
{
	struct neap_reactor *reactor = redis->reactor;
	neap_pool_destroy(&redis->calls);
	if (redis->username)
		neap_release(reactor, redis->username, redis->username_bytes);
	if (redis->password) {
		explicit_bzero(redis->password, redis->password_bytes);
		neap_release(reactor, redis->password, redis->password_bytes);
	}
	neap_release(reactor, redis, sizeof *redis);
}

static void reap_redis(struct neap_reap *reap)
{
	struct neap_redis *redis = (struct neap_redis *)(void *)((char *)reap - offsetof(struct neap_redis, reap));
	neap_machine_end(&redis->commands.machine);
	neap_machine_end(&redis->tracker.machine);
	neap_reactor_detach(redis->reactor, &redis->dependent);
	release_redis(redis);
}

static void redis_destroy(struct neap_backend *backend)
{
	struct neap_redis *redis = redis_of(backend);
	struct redis_call *call;
	uint32_t index = 0;
	if (redis->closing)
		return;
	redis->closing = true;
	while ((call = neap_pool_next(&redis->calls, &index)) != NULL)
		redis_call_end(call);
	neap_watches_drop_all(&redis->watches);
	redis_link_end(&redis->commands);
	redis_link_end(&redis->tracker);
	neap_ready_cancel(redis->reactor, &redis->work);
	redis->reap.reap = reap_redis;
	neap_reap_later(redis->reactor, &redis->reap);
}

static const struct neap_backend_ops ops = {
	.capabilities = NEAP_BACKEND_STORES | NEAP_BACKEND_WATCHES | NEAP_BACKEND_LEASES,
	.get = redis_get,
	.set = redis_set,
	.remove = redis_remove,
	.touch = redis_touch,
	.cancel = redis_cancel,
	.watch = redis_watch,
	.destroy = redis_destroy,
};

/* --- making one -------------------------------------------------------------------------------------------------------- */

static bool copy_text(struct neap_redis *redis, const char *text, char **copy_p, size_t *bytes_p)
{
	if (!text || !text[0])
		return true;
	*bytes_p = strlen(text) + 1;
	*copy_p = neap_allocate(redis->reactor, *bytes_p);
	if (*copy_p)
		memcpy(*copy_p, text, *bytes_p);
	return *copy_p != NULL;
}

static void fill_options(struct neap_redis_options *options)
{
	options->calls_max = options->calls_max ? options->calls_max : CALLS_DEFAULT;
	options->connect_timeout_ns = options->connect_timeout_ns ? options->connect_timeout_ns : 1500 * MS;
	options->reply_timeout_ns = options->reply_timeout_ns ? options->reply_timeout_ns : 3000 * MS;
	options->pause_min_ns = options->pause_min_ns ? options->pause_min_ns : 50 * MS;
	options->pause_max_ns = options->pause_max_ns ? options->pause_max_ns : 5000 * MS;
	options->username = options->password = NULL; /* the caller's */
}

static void name_server(struct neap_redis *redis)
{
	struct neap_sockaddr numeric;
	const struct neap_host_port *server = &redis->options.server;
	char text[NEAP_ADDRESS_TEXT_MAX];
	redis->base.local = neap_sockaddr_from_numeric(server->host, server->port, &numeric) == NEAP_OK
	                        ? neap_sockaddr_is_loopback(&numeric)
	                        : strcmp(server->host, "localhost") == 0;
	if (neap_host_port_format(server, text, sizeof text) < 0)
		text[0] = '\0';
	(void)snprintf(redis->base.where, sizeof redis->base.where, "redis://%s", text);
}

int neap_redis_create(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_redis_options *options,
                      const struct neap_redis_driver *driver)
{
	*backend_p = NULL;
	struct neap_redis *redis = neap_allocate(reactor, sizeof *redis);
	if (!redis)
		return NEAP_ENOMEM;
	redis->reactor = reactor;
	redis->driver = driver;
	redis->options = *options;
	fill_options(&redis->options);
	redis->base = (struct neap_backend){.ops = &ops, .scheme = "redis", .value_max = NEAP_REDIS_VALUE_MAX};
	redis->work.run = work;
	name_server(redis);
	bool copied = copy_text(redis, options->password, &redis->password, &redis->password_bytes) &&
	              copy_text(redis, redis->password ? options->username : NULL, &redis->username, &redis->username_bytes);
	int error = copied ? redis_calls_init(redis) : NEAP_ENOMEM;
	if (!error)
		error = redis_link_init(&redis->commands, redis, false);
	if (!error)
		error = redis_link_init(&redis->tracker, redis, true);
	if (error) {
		release_redis(redis);
		return error;
	}
	redis->dependent.what = "a Redis back-end";
	neap_reactor_attach(reactor, &redis->dependent);
	*backend_p = &redis->base;
	return NEAP_OK;
}

int neap_redis_open(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                    char *why, size_t why_size)
{
	char reason[160];
	const char *rest = strstr(options->connection, "://");
	struct neap_redis_options redis = {.username = options->redis_username,
	                                   .password = options->redis_password,
	                                   .database = options->redis_database,
	                                   .calls_max = options->calls_max};
	*backend_p = NULL;
	rest = rest ? rest + 3 : options->connection;
	if (strpbrk(rest, "@/?#")) {
		(void)snprintf(why, why_size, "metadata 'redis://...' takes a host and a port and nothing else: user, password and database "
		               "are MC_REDIS_USERNAME, MC_REDIS_PASSWORD and MC_REDIS_DB_INDEX");
		return NEAP_EADDRESS;
	}
	int error = neap_host_port_parse(rest, PORT_DEFAULT, &redis.server, reason, sizeof reason);
	if (error) {
		(void)snprintf(why, why_size, "metadata 'redis://%.64s': %s", rest, reason);
		return error;
	}
	if (options->redis_username && options->redis_username[0] && !(options->redis_password && options->redis_password[0])) {
		(void)snprintf(why, why_size, "a Redis user name needs a password: set MC_REDIS_PASSWORD (redis_password) too");
		return NEAP_EINVAL;
	}
	error = neap_redis_create(backend_p, reactor, &redis, neap_redis_hiredis());
	if (error)
		(void)snprintf(why, why_size, "%s", neap_error_text(error));
	return error;
}
