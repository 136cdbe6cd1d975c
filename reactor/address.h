/* Host and port texts: parsing, formatting, comparing. Pure. Rules: te spec 1.7, with its ambiguities refused instead of guessed. */
#ifndef NEAP_REACTOR_ADDRESS_H
#define NEAP_REACTOR_ADDRESS_H

#include "reactor/net.h"

#define NEAP_HOST_MAX 256u                     /* bytes with the final NUL, scope id included */
#define NEAP_ADDRESS_TEXT_MAX (NEAP_HOST_MAX + 9u) /* "[host]:65535" */

struct neap_host_port {
	char host[NEAP_HOST_MAX]; /* without brackets; may carry %scope */
	uint16_t port;
	bool has_port;
	bool is_v6; /* the host is an IPv6 literal: formatted with brackets */
};

/* Accepts host, host:port, v4, v4:port, [v6], [v6]:port, bare v6 literal (no port), v6%scope. `default_port` is used when there is no
 * port. Anything else is NEAP_EADDRESS with a sentence in `why` (what, where, what to write instead): empty host, port 0 or above
 * 65535 or not a number, a missing or stray bracket, an empty scope, non-ASCII, too long. `::1:9000` is a valid IPv6 literal and is
 * taken as a host without port. */
int neap_host_port_parse(const char *text, uint16_t default_port, struct neap_host_port *parsed_p, char *why, size_t why_size);

/* "host:port" or "[v6]:port". format(parse(x)) is stable. Returns the length, or NEAP_EINVAL when it does not fit. */
int neap_host_port_format(const struct neap_host_port *address, char *text, size_t size);

/* A numeric host (scope ids too) to an address: 0, or NEAP_EADDRESS when it is a name. */
int neap_sockaddr_from_numeric(const char *host, uint16_t port, struct neap_sockaddr *address_p);

/* "127.0.0.1:80", "[fe80::1%2]:80". */
int neap_sockaddr_format(const struct neap_sockaddr *address, char *text, size_t size);
uint16_t neap_sockaddr_port(const struct neap_sockaddr *address);
void neap_sockaddr_set_port(struct neap_sockaddr *address, uint16_t port);
bool neap_sockaddr_equal(const struct neap_sockaddr *a, const struct neap_sockaddr *b);
bool neap_sockaddr_is_loopback(const struct neap_sockaddr *address);
bool neap_sockaddr_is_wildcard(const struct neap_sockaddr *address);

#endif
