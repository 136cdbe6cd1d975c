/* The HTTP back-end (http.c), and what it stands on: requests, each an http_call machine (http_call.c). The machine is pure; it reaches a
 * server through struct neap_http_driver. http_driver.c is the one over curl; tests have others. docs/WIRE.md has the requests. Owner
 * thread only. */
#ifndef NEAP_METADATA_HTTP_H
#define NEAP_METADATA_HTTP_H

#include "metadata/backend.h"
#include "reactor/address.h"

#define NEAP_HTTP_VALUE_MAX ((size_t)4 << 20) /* what neap-master takes by default */
#define NEAP_HTTP_ADDRESSES_MAX 16u
#define NEAP_HTTP_TOKEN_MAX 1024u /* bytes of an Authorization header's value */

/* --- the driver ---------------------------------------------------------------------------------------------------------- */

struct neap_http_session;  /* its connections, kept alive between requests */
struct neap_http_exchange; /* one request under way */

/* For TLS; NULL or "": the system's certificates, no certificate of our own. PEM. */
struct neap_http_files {
	const char *ca, *certificate, *key;
};

struct neap_http_request {
	const char *method, *url;
	const char *addresses; /* "host:port:address,address", as curl takes it; NULL: the url's host is numeric */
	const char *body;      /* NULL: none. Must stay until the exchange has ended */
	size_t length;
	const char *token;     /* value of the Authorization header; NULL: none */
	size_t answer_max;
	bool streams;          /* the answer is told as it comes, and not kept */
};

/* answered or failed: once, from a turn, never from inside a call to the driver: the exchange has ended. received: a streamed answer's next
 * bytes. The callee may begin, cancel and close. */
struct neap_http_events {
	void (*answered)(void *user, long status, const char *body, size_t length);
	void (*failed)(void *user, int error, const char *why); /* NEAP_ESOCKET, NEAP_EPEER, NEAP_ELIMIT, NEAP_EREJECTED (TLS) */
	void (*received)(void *user, long status, const char *bytes, size_t length);
};

struct neap_http_driver {
	/* Texts are copied. NEAP_ENOMEM, NEAP_ENOTSUP. */
	int (*open)(const struct neap_http_driver *driver, struct neap_reactor *reactor, const struct neap_http_files *files,
	            struct neap_http_session **session_p);
	/* NULL: out of memory. */
	struct neap_http_exchange *(*begin)(struct neap_http_session *session, const struct neap_http_request *request,
	                                    const struct neap_http_events *events, void *user);
	void (*cancel)(struct neap_http_exchange *exchange);
	void (*close)(struct neap_http_session *session); /* no exchange is under way */
};

/* curl. Stateless. */
const struct neap_http_driver *neap_http_curl(void);

/* --- requests (http_call.c) ---------------------------------------------------------------------------------------------- */

/* Where requests go. */
struct neap_http_server {
	struct neap_host_port at;
	bool numeric;         /* the host needs no name server */
	bool local;           /* on loopback */
	size_t base_length;   /* of the url: "http://host:port" */
};
/* From "http(s)://host[:port][/path]", without userinfo, query and fragment. NEAP_EADDRESS with `why`, which begins with `what`. Pure. */
int neap_http_server_parse(const char *what, const char *url, size_t url_max, uint16_t http_port, struct neap_http_server *server,
                           char *why, size_t why_size);

/* Once, from a turn. error 0: status and body came, whatever they say. Else nobody knows what the server did, and `why` says why. */
typedef void neap_http_done_func(void *user, int error, long status, const char *body, size_t length, const char *why);
/* The next bytes of a streamed answer. The callee may cancel. */
typedef void neap_http_received_func(void *user, long status, const char *bytes, size_t length);

/* The caller's texts must stay until the call has ended. */
struct neap_http_ask {
	const struct neap_http_server *server;
	const char *method, *url, *body, *token;
	size_t length, answer_max;
	uint64_t timeout_ns;
	neap_http_done_func *done;
	neap_http_received_func *received; /* NULL: the answer is not streamed. Otherwise done's body is empty */
	void *user;
};

struct neap_http_caller;
/* At most `calls_max` at once. NEAP_ENOMEM, NEAP_ENOTSUP (curl does not start). */
int neap_http_caller_open(struct neap_http_caller **caller_p, struct neap_reactor *reactor, const struct neap_http_driver *driver,
                          const struct neap_http_files *files, uint32_t calls_max);
/* NEAP_EAGAIN: too many at once. */
int neap_http_ask(struct neap_http_caller *caller, const struct neap_http_ask *ask, uint64_t *call_p);
void neap_http_cancel(struct neap_http_caller *caller, uint64_t call);
/* Calls end without callback. Frees it at the end of the turn. */
void neap_http_caller_close(struct neap_http_caller *caller);

/* A file that is asked for and cannot be read stops the start: there is no falling back to others. NEAP_EINVAL with `why`. */
int neap_http_files_check(const struct neap_http_files *files, char *why, size_t why_size);

/* --- the back-end -------------------------------------------------------------------------------------------------------- */

/* The connection string is the url; nothing may follow its path. NEAP_EADDRESS, NEAP_ENOMEM, with `why`. */
int neap_http_create(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                     const struct neap_http_driver *driver, char *why, size_t why_size);
int neap_http_open(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                   char *why, size_t why_size);

/* A key as it stands in a query: what is not unreserved (RFC 3986) as %XX, upper-case. The servers differ in whether they decode it, so
 * everybody must write the same. The length, or 0 when it does not fit. Pure. */
size_t neap_http_escape(const char *key, char *text, size_t size);

#endif
