#include "tests/support/script_backend.h"
#include <check.h>
#include <stdio.h>
#include <string.h>

static struct script_backend *backend_of(struct neap_backend *base)
{
	return (struct script_backend *)(void *)((char *)base - offsetof(struct script_backend, base));
}

static int take(struct neap_backend *base, const char *verb, const char *key, uint64_t timeout_ns, neap_backend_done_func *done,
                void *user, uint64_t *handle_p, struct script_backend_call **call_p)
{
	struct script_backend *backend = backend_of(base);
	if (backend->refuse && (backend->refuse_after == 0 || --backend->refuse_after == 0))
		return backend->refuse;
	ck_assert_uint_lt(backend->count, SCRIPT_BACKEND_CALLS);
	struct script_backend_call *call = &backend->calls[backend->count++];
	*call = (struct script_backend_call){.verb = verb, .timeout_ns = timeout_ns, .done = done, .user = user};
	ck_assert_int_lt(snprintf(call->key, sizeof call->key, "%s", key), (int)sizeof call->key);
	*handle_p = backend->count;
	*call_p = call;
	return NEAP_OK;
}

static int do_get(struct neap_backend *base, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user, uint64_t *handle_p)
{
	struct script_backend_call *call;
	return take(base, "get", key, timeout_ns, done, user, handle_p, &call);
}

static int do_set(struct neap_backend *base, const struct neap_backend_set *set, uint64_t timeout_ns, neap_backend_done_func *done,
                  void *user, uint64_t *handle_p)
{
	struct script_backend_call *call;
	int error = take(base, set->create ? "create" : "set", set->key, timeout_ns, done, user, handle_p, &call);
	if (error)
		return error;
	ck_assert_uint_lt(set->length, sizeof call->value);
	memcpy(call->value, set->value, set->length);
	call->length = set->length;
	call->lease_ns = set->lease_ns;
	return NEAP_OK;
}

static int do_remove(struct neap_backend *base, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
                     uint64_t *handle_p)
{
	struct script_backend_call *call;
	return take(base, "remove", key, timeout_ns, done, user, handle_p, &call);
}

static int do_touch(struct neap_backend *base, const char *key, uint64_t lease_ns, uint64_t timeout_ns, neap_backend_done_func *done,
                    void *user, uint64_t *handle_p)
{
	struct script_backend_call *call;
	int error = take(base, "touch", key, timeout_ns, done, user, handle_p, &call);
	if (!error)
		call->lease_ns = lease_ns;
	return error;
}

static void do_cancel(struct neap_backend *base, uint64_t handle)
{
	struct script_backend *backend = backend_of(base);
	ck_assert(handle > 0 && handle <= backend->count);
	ck_assert_ptr_nonnull(backend->calls[handle - 1].done);
	backend->calls[handle - 1].done = NULL;
	backend->canceled++;
}

static int do_watch(struct neap_backend *base, const char *key, struct neap_backend_watch *watch)
{
	struct script_backend *backend = backend_of(base);
	if (!backend->no_watch)
		neap_watches_add(&backend->watches, key, watch);
	return backend->no_watch;
}

static void do_destroy(struct neap_backend *base)
{
	backend_of(base)->destroyed++;
}

void script_backend_open(struct script_backend *backend, unsigned capabilities)
{
	*backend = (struct script_backend){.ops = {.capabilities = capabilities,
	                                           .get = do_get,
	                                           .set = do_set,
	                                           .remove = do_remove,
	                                           .touch = do_touch,
	                                           .cancel = do_cancel,
	                                           .watch = do_watch,
	                                           .destroy = do_destroy}};
	backend->base = (struct neap_backend){.ops = &backend->ops, .scheme = "script", .value_max = 1024, .where = "script://test", .local = true};
}

struct script_backend_call *script_backend_expect(struct script_backend *backend, const char *verb, const char *key)
{
	for (uint32_t i = 0; i < backend->count; i++) {
		struct script_backend_call *call = &backend->calls[i];
		if (!call->done)
			continue;
		ck_assert_msg(strcmp(call->verb, verb) == 0 && strcmp(call->key, key) == 0, "%s %s, not %s %s", call->verb, call->key, verb, key);
		return call;
	}
	ck_abort_msg("no call, not %s %s", verb, key);
	return NULL;
}

void script_backend_answer(struct script_backend_call *call, int error, const char *value)
{
	neap_backend_done_func *done = call->done;
	ck_assert_ptr_nonnull(done);
	call->done = NULL;
	done(call->user, error, value, value ? strlen(value) : 0, error ? "script://test: as the test says" : "");
}

uint32_t script_backend_pending(const struct script_backend *backend)
{
	uint32_t pending = 0;
	for (uint32_t i = 0; i < backend->count; i++)
		pending += backend->calls[i].done != NULL;
	return pending;
}
