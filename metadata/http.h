/* The HTTP back-end: each operation is one request, each request an http_call machine. The machine is pure; it reaches a server through
 * struct neap_http_driver. http_driver.c is the one over curl; tests have others. docs/WIRE.md has the requests. Owner thread only. */
#ifndef NEAP_METADATA_HTTP_H
#define NEAP_METADATA_HTTP_H

#include "metadata/backend.h"
#include "reactor/address.h"

#define NEAP_HTTP_VALUE_MAX ((size_t)4 << 20) /* what neap-master takes by default */
#define NEAP_HTTP_ADDRESSES_MAX 16u

/* --- the driver ---------------------------------------------------------------------------------------------------------- */

struct neap_http_session;  /* its connections, kept alive between requests */
struct neap_http_exchange; /* one request under way */

struct neap_http_request {
	const char *method, *url;
	const char *addresses; /* "host:port:address,address", as curl takes it; NULL: the url's host is numeric */
	const char *body;      /* NULL: none. Must stay until the exchange has ended */
	size_t length;
	size_t answer_max;
};

/* Once, from a turn, never from inside a call to the driver: the exchange has ended. The callee may begin, cancel and close. */
struct neap_http_events {
	void (*answered)(void *user, long status, const char *body, size_t length);
	void (*failed)(void *user, int error, const char *why); /* NEAP_ESOCKET, NEAP_EPEER, NEAP_ELIMIT, NEAP_EREJECTED (TLS) */
};

struct neap_http_driver {
	int (*open)(const struct neap_http_driver *driver, struct neap_reactor *reactor, const char *ca_file,
	            struct neap_http_session **session_p);
	/* NULL: out of memory. */
	struct neap_http_exchange *(*begin)(struct neap_http_session *session, const struct neap_http_request *request,
	                                    const struct neap_http_events *events, void *user);
	void (*cancel)(struct neap_http_exchange *exchange);
	void (*close)(struct neap_http_session *session); /* no exchange is under way */
};

/* curl. Stateless. */
const struct neap_http_driver *neap_http_curl(void);

/* --- making one ---------------------------------------------------------------------------------------------------------- */

/* `url` as in the connection string; nothing may follow its path. Without userinfo, query and fragment: NEAP_EADDRESS, NEAP_ENOMEM, with
 * `why`. */
int neap_http_create(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                     const struct neap_http_driver *driver, char *why, size_t why_size);
int neap_http_open(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                   char *why, size_t why_size);

/* A key as it stands in a query: what is not unreserved (RFC 3986) as %XX, upper-case. The servers differ in whether they decode it, so
 * everybody must write the same. The length, or 0 when it does not fit. Pure. */
size_t neap_http_escape(const char *key, char *text, size_t size);

#endif
