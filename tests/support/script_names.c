#include "tests/support/script_names.h"
#include "tests/support/memory_stream.h"
#include <check.h>

static struct neap_resolution *resolve(struct neap_net *net, struct neap_reactor *reactor, const char *host, uint16_t port, int family,
                                       neap_resolved_func *resolved, void *user, int *error_p)
{
	struct script_names *names = (struct script_names *)(void *)net;
	(void)reactor, (void)port, (void)family;
	ck_assert_str_eq(host, names->host);
	*error_p = NEAP_ELIMIT;
	if (names->unresolvable)
		return NULL;
	ck_assert(!names->resolving);
	names->resolved = resolved;
	names->user = user;
	names->resolving = true;
	return (struct neap_resolution *)(void *)names;
}

static void resolve_cancel(struct neap_resolution *resolution)
{
	struct script_names *names = (struct script_names *)(void *)resolution;
	ck_assert(names->resolving);
	names->resolving = false;
}

void script_names_open(struct script_names *names, const char *host)
{
	*names = (struct script_names){.net = *memory_net(), .host = host};
	names->net.resolve = resolve;
	names->net.resolve_cancel = resolve_cancel;
}

void script_names_answer(struct script_names *names, int error, const struct neap_sockaddr *addresses, uint32_t count)
{
	ck_assert(names->resolving);
	names->resolving = false;
	names->resolved(names->user, error, error ? "no such name" : NULL, addresses, count);
}
