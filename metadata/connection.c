/* Connection strings to back-ends. A back-end that is added gets its line in the table. */
#include "metadata/etcd.h"
#include "metadata/http.h"
#include "metadata/redis.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef int open_func(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                      char *why, size_t why_size);

static const struct {
	const char *scheme;
	open_func *open;     /* NULL: known, and not in this build */
	const char *instead; /* what to do then */
} schemes[] = {
	{"etcd", neap_etcd_open, NULL}, /* a text without a scheme too */
	{"redis", neap_redis_open, NULL},
	{"http", neap_http_open, NULL},
	{"https", neap_http_open, NULL},
	{"rediss", NULL, "Redis over TLS; give redis:// to a TLS proxy on this machine, such as stunnel"},
};
#define SCHEMES (sizeof schemes / sizeof *schemes)
static const char built_in[] = "this build has P2PHANDSHAKE, etcd, redis, http and https";

/* Where in the table, or SCHEMES. */
static size_t find(const char *connection)
{
	const char *colon = strstr(connection, "://");
	const char *name = colon ? connection : "etcd";
	size_t length = colon ? (size_t)(colon - connection) : 4, i = 0;
	while (i < SCHEMES && (strlen(schemes[i].scheme) != length || memcmp(schemes[i].scheme, name, length) != 0))
		i++;
	return i;
}

/* What of it may be shown: a name and password may stand before an '@'. */
static int shown(const char *connection)
{
	const char *colon = strstr(connection, "://");
	if (!strchr(connection, '@'))
		return 64;
	return colon ? (int)(colon - connection) : 0;
}

int neap_backend_scheme(const char *connection, const char **scheme_p, char *why, size_t why_size)
{
	size_t i = find(connection);
	*scheme_p = NULL;
	if (strcmp(connection, "P2PHANDSHAKE") == 0) {
		*scheme_p = "P2PHANDSHAKE";
		return NEAP_OK;
	}
	if (strcasecmp(connection, "P2PHANDSHAKE") == 0 || !connection[0]) {
		(void)snprintf(why, why_size,
		               "metadata '%s' names no store: say P2PHANDSHAKE, spelled like this, or etcd://..., redis://..., http(s)://...; %s",
		               connection, built_in);
		return NEAP_EINVAL;
	}
	if (i == SCHEMES) {
		(void)snprintf(why, why_size, "metadata '%.*s' has an unknown scheme; %s", shown(connection), connection, built_in);
		return NEAP_EINVAL;
	}
	*scheme_p = schemes[i].scheme;
	if (schemes[i].open)
		return NEAP_OK;
	(void)snprintf(why, why_size, "metadata '%.*s' asks for %s, which is not built in (%s); %s", shown(connection), connection,
	               *scheme_p, schemes[i].instead, built_in);
	return NEAP_ENOTSUP;
}

int neap_backend_open(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                      char *why, size_t why_size)
{
	const char *scheme;
	*backend_p = NULL;
	int error = neap_backend_scheme(options->connection, &scheme, why, why_size);
	if (error)
		return error;
	size_t i = find(options->connection);
	if (i == SCHEMES || !schemes[i].open)
		return NEAP_EINVAL;
	return schemes[i].open(backend_p, reactor, options, why, why_size);
}

uint64_t neap_backend_pause_ns(struct neap_reactor *reactor, uint32_t failures, uint64_t least_ns, uint64_t most_ns)
{
	uint64_t pause = least_ns;
	for (uint32_t i = 1; i < failures && pause < most_ns; i++)
		pause *= 2;
	if (pause > most_ns)
		pause = most_ns;
	return pause - pause / 4 + neap_random_u64(reactor) % (pause / 2 + 1);
}
