/* The P2P back-end: a segment's name is the address of its owner's handshake port, and the owner itself is asked. */
#include "metadata/directory.h"
#include <stdlib.h>

#define PORT_DEFAULT 12001u    /* as peers take it when a name has no port */
#define SELF_MAX (64u * 1024u) /* a longer descriptor of ours is not worth a serial server's time */

struct p2p {
	struct neap_handshake_caller *caller;
	char *(*self)(void *user, size_t *length_p);
	void *user;
};

static int address_of(void *backend, const char *name, const struct neap_descriptor *descriptor, struct neap_host_port *address_p,
                      char *why, size_t why_size)
{
	(void)backend;
	(void)descriptor; /* what it says of itself is not where it was found */
	return neap_host_port_parse(name, PORT_DEFAULT, address_p, why, why_size);
}

static int fetch(void *backend, const char *name, uint64_t timeout_ns, neap_handshake_done_func *done, void *user, uint64_t *call_p)
{
	struct p2p *p2p = backend;
	struct neap_host_port peer;
	size_t length = 0;
	int error = neap_host_port_parse(name, PORT_DEFAULT, &peer, NULL, 0);
	if (error)
		return error;
	char *self = p2p->self ? p2p->self(p2p->user, &length) : NULL;
	bool short_enough = self && length <= SELF_MAX;
	error = neap_handshake_call(p2p->caller, &peer, NEAP_HANDSHAKE_METADATA, short_enough ? self : "{}\n",
	                            short_enough ? length : 3, timeout_ns, done, user, call_p);
	free(self);
	return error;
}

static void cancel(void *backend, uint64_t call)
{
	struct p2p *p2p = backend;
	neap_handshake_cancel(p2p->caller, call);
}

int neap_p2p_backend_create(struct neap_directory_backend *backend_p, struct neap_handshake_caller *caller,
                            char *(*self)(void *user, size_t *length_p), void *user)
{
	struct p2p *p2p = malloc(sizeof *p2p);
	*backend_p = (struct neap_directory_backend){0};
	if (!p2p)
		return NEAP_ENOMEM;
	*p2p = (struct p2p){.caller = caller, .self = self, .user = user};
	*backend_p = (struct neap_directory_backend){
		.scheme = "P2PHANDSHAKE", .fetch = fetch, .cancel = cancel, .handshake_address = address_of, .backend = p2p};
	return NEAP_OK;
}

void neap_p2p_backend_destroy(struct neap_directory_backend *backend)
{
	free(backend->backend);
	*backend = (struct neap_directory_backend){0};
}
