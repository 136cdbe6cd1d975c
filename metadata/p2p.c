/* The P2P back-end: a segment's name is the address of its owner's handshake port, and the owner itself is asked. Nothing is stored. */
#include "metadata/directory.h"
#include <stdlib.h>
#include <string.h>

#define SELF_MAX (64u * 1024u) /* a longer descriptor of ours is not worth a serial server's time */

struct p2p {
	struct neap_backend base;
	struct neap_handshake_caller *caller;
	char *(*self)(void *user, size_t *length_p);
	void *user;
};

static struct p2p *p2p_of(struct neap_backend *backend)
{
	return (struct p2p *)(void *)((char *)backend - offsetof(struct p2p, base));
}

int neap_p2p_address(const char *name, struct neap_host_port *address_p, char *why, size_t why_size)
{
	return neap_host_port_parse(name, NEAP_P2P_PORT_DEFAULT, address_p, why, why_size);
}

static int p2p_get(struct neap_backend *backend, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
                   uint64_t *call_p)
{
	struct p2p *p2p = p2p_of(backend);
	struct neap_host_port peer;
	size_t length = 0;
	int error = neap_p2p_address(key, &peer, NULL, 0);
	if (error)
		return error;
	char *self = p2p->self ? p2p->self(p2p->user, &length) : NULL;
	bool short_enough = self && length <= SELF_MAX;
	error = neap_handshake_call(p2p->caller, &peer, NEAP_HANDSHAKE_METADATA, short_enough ? self : "{}\n",
	                            short_enough ? length : 3, timeout_ns, done, user, call_p);
	free(self);
	return error;
}

static int p2p_set(struct neap_backend *backend, const struct neap_backend_set *set, uint64_t timeout_ns, neap_backend_done_func *done,
                   void *user, uint64_t *call_p)
{
	(void)backend, (void)set, (void)timeout_ns, (void)done, (void)user, (void)call_p;
	return NEAP_ENOTSUP;
}

static int p2p_remove(struct neap_backend *backend, const char *key, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
                      uint64_t *call_p)
{
	(void)backend, (void)key, (void)timeout_ns, (void)done, (void)user, (void)call_p;
	return NEAP_ENOTSUP;
}

static int p2p_touch(struct neap_backend *backend, const char *key, uint64_t lease_ns, uint64_t timeout_ns, neap_backend_done_func *done,
                     void *user, uint64_t *call_p)
{
	(void)backend, (void)key, (void)lease_ns, (void)timeout_ns, (void)done, (void)user, (void)call_p;
	return NEAP_ENOTSUP;
}

static void p2p_cancel(struct neap_backend *backend, uint64_t call)
{
	neap_handshake_cancel(p2p_of(backend)->caller, call);
}

static int p2p_watch(struct neap_backend *backend, const char *key, struct neap_backend_watch *watch)
{
	(void)backend, (void)key, (void)watch;
	return NEAP_EAGAIN;
}

static void p2p_destroy(struct neap_backend *backend)
{
	free(p2p_of(backend));
}

static const struct neap_backend_ops ops = {
	.capabilities = 0,
	.get = p2p_get,
	.set = p2p_set,
	.remove = p2p_remove,
	.touch = p2p_touch,
	.cancel = p2p_cancel,
	.watch = p2p_watch,
	.destroy = p2p_destroy,
};

int neap_p2p_backend_create(struct neap_backend **backend_p, struct neap_handshake_caller *caller,
                            char *(*self)(void *user, size_t *length_p), void *user)
{
	struct p2p *p2p = malloc(sizeof *p2p);
	*backend_p = NULL;
	if (!p2p)
		return NEAP_ENOMEM;
	*p2p = (struct p2p){.caller = caller, .self = self, .user = user};
	p2p->base = (struct neap_backend){.ops = &ops, .scheme = "P2PHANDSHAKE", .where = "P2PHANDSHAKE"};
	*backend_p = &p2p->base;
	return NEAP_OK;
}
