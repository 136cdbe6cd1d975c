/* A net on which nothing connects, like memory_net, and whose resolver answers when the test says so. One name, one question at a time. */
#ifndef SUPPORT_SCRIPT_NAMES_H
#define SUPPORT_SCRIPT_NAMES_H

#include "reactor/net.h"

struct script_names {
	struct neap_net net; /* first; for the reactor's options */
	const char *host;    /* what may be asked for */
	bool unresolvable;   /* a question cannot even begin */
	bool resolving;      /* one waits */
	neap_resolved_func *resolved;
	void *user;
};

void script_names_open(struct script_names *names, const char *host);
/* Answers the one that waits. */
void script_names_answer(struct script_names *names, int error, const struct neap_sockaddr *addresses, uint32_t count);

#endif
