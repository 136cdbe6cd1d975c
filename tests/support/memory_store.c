#include "tests/support/memory_store.h"
#include "reactor/pool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS 64u

enum what { GET, SET, REMOVE, TOUCH };

struct memory_call {
	struct neap_timer timer;
	struct memory_backend *backend;
	neap_backend_done_func *done;
	void *user;
	uint64_t deadline_ns, lease_ns;
	enum what what;
	bool create;
	char *value; /* heap */
	size_t length;
	char key[NEAP_BACKEND_KEY_MAX];
};

struct memory_backend {
	struct neap_backend base;
	struct memory_store *store;
	struct neap_reactor *reactor;
	struct neap_reap reap;
	struct neap_pool calls;
	struct neap_watches watches;
	bool closing;
};

static struct memory_backend *backend_of(struct neap_backend *backend)
{
	return (struct memory_backend *)(void *)((char *)backend - offsetof(struct memory_backend, base));
}

/* --- keys ------------------------------------------------------------------------------------------------------------- */

static void tell(struct memory_store *store, const struct memory_backend *but, const char *key)
{
	for (uint32_t i = 0; i < MEMORY_STORE_BACKENDS; i++)
		if (store->backends[i] && store->backends[i] != but)
			neap_watches_tell(&store->backends[i]->watches, key, strlen(key));
}

static void drop(const struct memory_store *store, struct memory_store_key *at)
{
	if (!at || !at->value)
		return;
	free(at->value);
	at->value = NULL;
	if (store->changed)
		store->changed(store->user, at->key, NULL, 0);
}

void memory_store_expire(struct memory_store *store, uint64_t now_ns)
{
	for (uint32_t i = 0; i < MEMORY_STORE_KEYS; i++) {
		struct memory_store_key *at = &store->keys[i];
		if (!at->value || !at->ends_ns || at->ends_ns > now_ns)
			continue;
		drop(store, at);
		tell(store, NULL, at->key);
	}
}

static struct memory_store_key *find(struct memory_store *store, const char *key)
{
	for (uint32_t i = 0; i < MEMORY_STORE_KEYS; i++) {
		struct memory_store_key *at = &store->keys[i];
		if (at->value && strcmp(at->key, key) == 0)
			return at;
	}
	return NULL;
}

static void put(struct memory_store *store, const char *key, const char *value, size_t length, uint64_t ends_ns)
{
	struct memory_store_key *at = find(store, key);
	for (uint32_t i = 0; i < MEMORY_STORE_KEYS && !at; i++)
		if (!store->keys[i].value)
			at = &store->keys[i];
	if (!at)
		abort();
	free(at->value);
	(void)snprintf(at->key, sizeof at->key, "%s", key);
	at->value = malloc(length + 1);
	if (!at->value)
		abort();
	memcpy(at->value, value, length);
	at->value[length] = '\0';
	at->length = length;
	at->ends_ns = ends_ns;
	if (store->changed)
		store->changed(store->user, at->key, at->value, length);
}

void memory_store_put(struct memory_store *store, const char *key, const char *value)
{
	if (value)
		put(store, key, value, strlen(value), 0);
	else
		drop(store, find(store, key));
	tell(store, NULL, key);
}

const char *memory_store_value(struct memory_store *store, const char *key)
{
	const struct memory_store_key *at = find(store, key);
	return at ? at->value : NULL;
}

void memory_store_wipe(struct memory_store *store)
{
	for (uint32_t i = 0; i < MEMORY_STORE_KEYS; i++)
		drop(store, &store->keys[i]);
}

void memory_store_tell_all(struct memory_store *store)
{
	for (uint32_t i = 0; i < MEMORY_STORE_BACKENDS; i++)
		if (store->backends[i])
			neap_watches_tell_all(&store->backends[i]->watches);
}

void memory_store_release(struct memory_store *store)
{
	memory_store_wipe(store);
}

/* --- calls ------------------------------------------------------------------------------------------------------------ */

static void end_call(struct memory_call *call)
{
	struct memory_backend *backend = call->backend;
	neap_timer_cancel(backend->reactor, &call->timer);
	free(call->value);
	call->value = NULL;
	neap_pool_give(&backend->calls, call);
}

static void answer(struct memory_call *call, int error, const char *value, size_t length)
{
	neap_backend_done_func *done = call->done;
	void *user = call->user;
	char *copy = value ? malloc(length + 1) : NULL;
	if (copy)
		memcpy(copy, value, length);
	end_call(call);
	done(user, error, copy, length, error ? "memory://test: as the test says" : "");
	free(copy);
}

static int perform(struct memory_call *call, uint64_t now_ns, const struct memory_store_key **found_p)
{
	struct memory_store *store = call->backend->store;
	memory_store_expire(store, now_ns);
	struct memory_store_key *at = find(store, call->key);
	uint64_t ends_ns = call->lease_ns ? now_ns + call->lease_ns : 0;
	*found_p = at;
	switch (call->what) {
	case SET:
		if (call->create && at)
			return NEAP_ETAKEN;
		put(store, call->key, call->value, call->length, ends_ns);
		store->sets++;
		tell(store, call->backend, call->key);
		return NEAP_OK;
	case REMOVE:
		drop(store, at);
		tell(store, call->backend, call->key);
		return NEAP_OK;
	case TOUCH:
		if (at && call->lease_ns)
			at->ends_ns = ends_ns;
		return at ? NEAP_OK : NEAP_EMETADATA;
	case GET:
		break;
	}
	return at ? NEAP_OK : NEAP_EMETADATA;
}

static void fire(struct neap_timer *timer, void *user)
{
	struct memory_call *call = user;
	struct memory_backend *backend = call->backend;
	struct memory_store *store = backend->store;
	uint64_t now_ns = neap_now(backend->reactor);
	const struct memory_store_key *found = NULL;
	(void)timer;
	if (now_ns >= call->deadline_ns) {
		answer(call, NEAP_ETIMEDOUT, NULL, 0);
		return;
	}
	int error = store->refuse;
	if (!store->down && !error) {
		error = perform(call, now_ns, &found);
		store->calls++;
	}
	if (store->down || store->loses_replies)
		(void)neap_timer_start(backend->reactor, &call->timer, call->deadline_ns, fire, call);
	else if (!error && call->what == GET)
		answer(call, NEAP_OK, found->value, found->length);
	else
		answer(call, error, NULL, 0);
}

static int begin(struct neap_backend *base, enum what what, const char *key, uint64_t timeout_ns, neap_backend_done_func *done,
                 void *user, struct memory_call **call_p, uint64_t *handle_p)
{
	struct memory_backend *backend = backend_of(base);
	if (backend->store->busy)
		return backend->store->busy;
	struct memory_call *call = neap_pool_take(&backend->calls);
	if (!call)
		return NEAP_EAGAIN;
	uint64_t now_ns = neap_now(backend->reactor);
	*call = (struct memory_call){.backend = backend, .done = done, .user = user, .what = what, .deadline_ns = now_ns + timeout_ns};
	(void)snprintf(call->key, sizeof call->key, "%s", key);
	(void)neap_timer_start(backend->reactor, &call->timer, now_ns + backend->store->delay_ns, fire, call);
	*handle_p = neap_pool_handle(&backend->calls, call);
	*call_p = call;
	return NEAP_OK;
}

static int memory_get(struct neap_backend *base, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
                      uint64_t *handle_p)
{
	struct memory_call *call;
	return begin(base, GET, key, timeout_ns, done, user, &call, handle_p);
}

static int memory_set(struct neap_backend *base, const struct neap_backend_set *set, uint64_t timeout_ns, neap_backend_done_func *done,
                      void *user, uint64_t *handle_p)
{
	struct memory_call *call;
	int error = set->length > base->value_max ? NEAP_ELIMIT : begin(base, SET, set->key, timeout_ns, done, user, &call, handle_p);
	if (error)
		return error;
	call->create = set->create;
	call->lease_ns = set->lease_ns;
	call->value = malloc(set->length + 1);
	if (!call->value)
		abort();
	memcpy(call->value, set->value, set->length);
	call->length = set->length;
	return NEAP_OK;
}

static int memory_remove(struct neap_backend *base, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
                         uint64_t *handle_p)
{
	struct memory_call *call;
	return begin(base, REMOVE, key, timeout_ns, done, user, &call, handle_p);
}

static int memory_touch(struct neap_backend *base, const char *key, uint64_t lease_ns, uint64_t timeout_ns,
                        neap_backend_done_func *done, void *user, uint64_t *handle_p)
{
	struct memory_call *call;
	int error = begin(base, TOUCH, key, timeout_ns, done, user, &call, handle_p);
	if (!error)
		call->lease_ns = lease_ns;
	return error;
}

static void memory_cancel(struct neap_backend *base, uint64_t handle)
{
	struct memory_call *call = neap_pool_find(&backend_of(base)->calls, handle);
	if (call)
		end_call(call);
}

static int memory_watch(struct neap_backend *base, const char *key, struct neap_backend_watch *watch)
{
	if (backend_of(base)->store->blind)
		return NEAP_EAGAIN;
	neap_watches_add(&backend_of(base)->watches, key, watch);
	return NEAP_OK;
}

static void reap(struct neap_reap *reaped)
{
	struct memory_backend *backend = (struct memory_backend *)(void *)((char *)reaped - offsetof(struct memory_backend, reap));
	neap_pool_destroy(&backend->calls);
	neap_release(backend->reactor, backend, sizeof *backend);
}

static void memory_destroy(struct neap_backend *base)
{
	struct memory_backend *backend = backend_of(base);
	struct memory_call *call;
	uint32_t index = 0;
	while ((call = neap_pool_next(&backend->calls, &index)) != NULL)
		end_call(call);
	neap_watches_drop_all(&backend->watches);
	for (uint32_t i = 0; i < MEMORY_STORE_BACKENDS; i++)
		if (backend->store->backends[i] == backend)
			backend->store->backends[i] = NULL;
	backend->reap.reap = reap;
	neap_reap_later(backend->reactor, &backend->reap);
}

static const struct neap_backend_ops ops = {
	.capabilities = NEAP_BACKEND_STORES | NEAP_BACKEND_WATCHES | NEAP_BACKEND_LEASES,
	.get = memory_get,
	.set = memory_set,
	.remove = memory_remove,
	.touch = memory_touch,
	.cancel = memory_cancel,
	.watch = memory_watch,
	.destroy = memory_destroy,
};

int memory_store_open(struct neap_backend **backend_p, struct neap_reactor *reactor, void *user)
{
	struct memory_store *store = user;
	struct memory_backend *backend = neap_allocate(reactor, sizeof *backend);
	if (!backend)
		return NEAP_ENOMEM;
	backend->base = (struct neap_backend){.ops = &ops, .scheme = "memory", .value_max = 1u << 20, .where = "memory://test", .local = true};
	backend->store = store;
	backend->reactor = reactor;
	int error = neap_pool_create(&backend->calls, reactor, sizeof(struct memory_call), CALLS);
	for (uint32_t i = 0; i < MEMORY_STORE_BACKENDS && !error; i++)
		if (!store->backends[i]) {
			store->backends[i] = backend;
			*backend_p = &backend->base;
			return NEAP_OK;
		}
	neap_pool_destroy(&backend->calls);
	neap_release(reactor, backend, sizeof *backend);
	return error ? error : NEAP_ELIMIT;
}
