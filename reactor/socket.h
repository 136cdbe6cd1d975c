/* What socket.c and resolve.c share: the state the socket net keeps in each reactor. */
#ifndef NEAP_REACTOR_SOCKET_H
#define NEAP_REACTOR_SOCKET_H

#include "reactor/net.h"
#include "reactor/pool.h"

struct neap_resolver;

struct neap_socket_room {
	struct neap_resident resident;
	struct neap_pool streams, listeners;
	struct neap_resolver *resolver; /* made by the first name to resolve */
};

/* Made on first use; NULL: out of memory. */
struct neap_socket_room *neap_socket_room(struct neap_reactor *reactor);

struct neap_resolution *neap_resolver_begin(struct neap_net *net, struct neap_reactor *reactor, const char *host, uint16_t port,
                                            int family, neap_resolved_func *resolved, void *user, int *error_p);
void neap_resolver_cancel(struct neap_resolution *resolution);
void neap_resolver_destroy(struct neap_resolver *resolver);

#endif
