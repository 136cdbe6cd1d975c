/* Host and port texts. What has two readings is refused with a sentence that says how to write it. */
#include "reactor/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LABEL_MAX 63u

static int refuse(char *why, size_t why_size, const char *format, ...) NEAP_PRINTF(3, 4);

static int refuse(char *why, size_t why_size, const char *format, ...)
{
	if (why && why_size > 0) {
		va_list arguments;
		va_start(arguments, format);
		(void)vsnprintf(why, why_size, format, arguments);
		va_end(arguments);
	}
	return NEAP_EADDRESS;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_name_byte(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
}

/* The text is quoted in messages that reach logs: only what can be printed without harm gets that far. */
static int check_bytes(const char *text, size_t length, char *why, size_t why_size)
{
	if (length == 0)
		return refuse(why, why_size, "the address is empty: write host, host:port or [v6]:port");
	if (length >= NEAP_ADDRESS_TEXT_MAX)
		return refuse(why, why_size, "the address has %zu characters or more; the limit is %u", length, NEAP_ADDRESS_TEXT_MAX - 1);
	for (size_t i = 0; i < length; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return refuse(why, why_size, "the address has byte 0x%02x at position %zu: only printable ASCII without blanks "
			              "is a host (international names: their xn-- form)", (unsigned)(unsigned char)text[i], i);
	return NEAP_OK;
}

static int parse_port(const char *text, const char *whole, uint16_t *port_p, char *why, size_t why_size)
{
	unsigned port = 0;
	size_t digits = 0;

	if (*text == '\0')
		return refuse(why, why_size, "\"%s\" ends in a colon without a port: write a port from 1 to 65535 or leave the colon out",
		              whole);
	for (; is_digit(text[digits]) && digits < 6; digits++)
		port = port * 10 + (unsigned)(text[digits] - '0');
	if (text[digits] != '\0' && !is_digit(text[digits]))
		return refuse(why, why_size, "the port \"%s\" of \"%s\" is not a number: write one from 1 to 65535", text, whole);
	if (digits > 5 || port == 0 || port > UINT16_MAX)
		return refuse(why, why_size, "the port \"%s\" of \"%s\" is out of range: write one from 1 to 65535", text, whole);
	*port_p = (uint16_t)port;
	return NEAP_OK;
}

static bool is_v6_literal(const char *host)
{
	struct in6_addr address;
	char plain[INET6_ADDRSTRLEN];
	size_t length = strcspn(host, "%");
	if (length >= sizeof(plain))
		return false;
	memcpy(plain, host, length);
	plain[length] = '\0';
	return inet_pton(AF_INET6, plain, &address) == 1;
}

/* `host` has a valid v6 literal up to an optional '%'. */
static int check_scope(const char *host, const char *whole, char *why, size_t why_size)
{
	const char *scope = strchr(host, '%');
	if (!scope)
		return NEAP_OK;
	scope++;
	if (*scope == '\0')
		return refuse(why, why_size, "\"%s\" has a %% without a scope: write an interface name or number after it", whole);
	for (size_t i = 0; scope[i]; i++) {
		if (scope[i] == ':')
			return refuse(why, why_size, "\"%s\" has a colon in its scope: with a port, write [v6%%scope]:port", whole);
		if (!is_name_byte(scope[i]) || i >= IFNAMSIZ - 1)
			return refuse(why, why_size, "the scope \"%s\" is not an interface name (at most %d characters)", scope, IFNAMSIZ - 1);
	}
	return NEAP_OK;
}

static int check_v6(const char *host, const char *whole, char *why, size_t why_size)
{
	if (*host == '\0')
		return refuse(why, why_size, "\"%s\" has nothing between its brackets: write an IPv6 address there", whole);
	if (!is_v6_literal(host))
		return refuse(why, why_size, "\"%s\" is not an IPv6 address; brackets are for these only: write [v6]:port or host:port", host);
	return check_scope(host, whole, why, why_size);
}

/* Names and IPv4 addresses. A last label of digits alone is no name: resolvers read such texts in surprising ways ("127.1"). */
static int check_name(const char *host, const char *whole, char *why, size_t why_size)
{
	size_t label = 0, length = strlen(host);
	bool digits_only = true;
	struct in_addr address;

	if (length == 0)
		return refuse(why, why_size, "\"%s\" has no host before the colon", whole);
	if (length >= NEAP_HOST_MAX)
		return refuse(why, why_size, "the host has %zu characters; the limit is %u", length, NEAP_HOST_MAX - 1);
	for (size_t i = 0; i < length; i++) {
		if (!is_name_byte(host[i]))
			return refuse(why, why_size, "the host of \"%s\" has the character '%c', which no host name has", whole, host[i]);
		if (host[i] != '.') {
			digits_only = digits_only && is_digit(host[i]);
			if (++label > LABEL_MAX)
				return refuse(why, why_size, "a part of the host name in \"%s\" is longer than %u characters", whole, LABEL_MAX);
			continue;
		}
		if (label == 0)
			return refuse(why, why_size, "the host of \"%s\" has an empty part at a dot", whole);
		label = 0;
		digits_only = digits_only || i + 1 < length;
	}
	if (digits_only && inet_pton(AF_INET, host, &address) != 1)
		return refuse(why, why_size, "\"%s\" is neither a name nor an IPv4 address: write four numbers from 0 to 255", host);
	return NEAP_OK;
}

static int parse_bracketed(const char *text, struct neap_host_port *parsed, char *why, size_t why_size)
{
	const char *end = strchr(text, ']');
	if (!end)
		return refuse(why, why_size, "\"%s\" opens a bracket and does not close it: write [v6] or [v6]:port", text);
	size_t length = (size_t)(end - text) - 1;
	if (length >= NEAP_HOST_MAX)
		return refuse(why, why_size, "the host has %zu characters; the limit is %u", length, NEAP_HOST_MAX - 1);
	memcpy(parsed->host, text + 1, length);
	parsed->host[length] = '\0';
	parsed->is_v6 = true;
	int error = check_v6(parsed->host, text, why, why_size);
	if (error || end[1] == '\0')
		return error;
	if (end[1] != ':')
		return refuse(why, why_size, "\"%s\" goes on behind its bracket: write [v6] or [v6]:port", text);
	parsed->has_port = true;
	return parse_port(end + 2, text, &parsed->port, why, why_size);
}

static int parse_plain(const char *text, size_t length, struct neap_host_port *parsed, char *why, size_t why_size)
{
	const char *colon = strchr(text, ':');
	if (colon && is_v6_literal(text)) {
		if (length >= NEAP_HOST_MAX)
			return refuse(why, why_size, "the host has %zu characters; the limit is %u", length, NEAP_HOST_MAX - 1);
		memcpy(parsed->host, text, length + 1);
		parsed->is_v6 = true;
		return check_scope(text, text, why, why_size);
	}
	if (colon && strchr(colon + 1, ':'))
		return refuse(why, why_size, "\"%s\" has several colons and is no IPv6 address: write host:port or [v6]:port", text);
	size_t host_length = colon ? (size_t)(colon - text) : length;
	if (host_length >= NEAP_HOST_MAX)
		return refuse(why, why_size, "the host has %zu characters; the limit is %u", host_length, NEAP_HOST_MAX - 1);
	memcpy(parsed->host, text, host_length);
	parsed->host[host_length] = '\0';
	int error = check_name(parsed->host, text, why, why_size);
	if (error || !colon)
		return error;
	parsed->has_port = true;
	return parse_port(colon + 1, text, &parsed->port, why, why_size);
}

int neap_host_port_parse(const char *text, uint16_t default_port, struct neap_host_port *parsed_p, char *why, size_t why_size)
{
	struct neap_host_port parsed = {.port = default_port};
	size_t length = strnlen(text, NEAP_ADDRESS_TEXT_MAX);
	int error = check_bytes(text, length, why, why_size);
	if (error)
		return error;
	error = text[0] == '[' ? parse_bracketed(text, &parsed, why, why_size) : parse_plain(text, length, &parsed, why, why_size);
	if (error)
		return error;
	*parsed_p = parsed;
	return NEAP_OK;
}

static int fitted(int length, size_t size)
{
	return length < 0 || (size_t)length >= size ? NEAP_EINVAL : length;
}

int neap_host_port_format(const struct neap_host_port *address, char *text, size_t size)
{
	return fitted(snprintf(text, size, address->is_v6 ? "[%s]:%u" : "%s:%u", address->host, (unsigned)address->port), size);
}

/* A number, or the name of an interface of this host. 0: neither. */
static uint32_t scope_index(const char *scope)
{
	uint64_t number = 0;
	size_t i = 0;
	for (; is_digit(scope[i]) && i < 10; i++)
		number = number * 10 + (uint64_t)(scope[i] - '0');
	if (i > 0 && scope[i] == '\0')
		return number <= UINT32_MAX ? (uint32_t)number : 0;
	return if_nametoindex(scope);
}

int neap_sockaddr_from_numeric(const char *host, uint16_t port, struct neap_sockaddr *address_p)
{
	struct neap_sockaddr address = {0};
	char plain[INET6_ADDRSTRLEN];
	size_t length = strcspn(host, "%");

	if (inet_pton(AF_INET, host, &address.v4.sin_addr) == 1) {
		address.length = sizeof(address.v4);
		address.v4.sin_family = AF_INET;
		address.v4.sin_port = htons(port);
		*address_p = address;
		return NEAP_OK;
	}
	if (length >= sizeof(plain))
		return NEAP_EADDRESS;
	memcpy(plain, host, length);
	plain[length] = '\0';
	if (inet_pton(AF_INET6, plain, &address.v6.sin6_addr) != 1)
		return NEAP_EADDRESS;
	if (host[length] == '%') {
		address.v6.sin6_scope_id = scope_index(host + length + 1);
		if (address.v6.sin6_scope_id == 0)
			return NEAP_EADDRESS;
	}
	address.length = sizeof(address.v6);
	address.v6.sin6_family = AF_INET6;
	address.v6.sin6_port = htons(port);
	*address_p = address;
	return NEAP_OK;
}

int neap_sockaddr_format(const struct neap_sockaddr *address, char *text, size_t size)
{
	char host[INET6_ADDRSTRLEN] = "?";
	unsigned port = neap_sockaddr_port(address);
	if (address->any.sa_family == AF_INET) {
		(void)inet_ntop(AF_INET, &address->v4.sin_addr, host, sizeof(host));
		return fitted(snprintf(text, size, "%s:%u", host, port), size);
	}
	if (address->any.sa_family != AF_INET6)
		return fitted(snprintf(text, size, "(family %u)", (unsigned)address->any.sa_family), size);
	(void)inet_ntop(AF_INET6, &address->v6.sin6_addr, host, sizeof(host));
	if (address->v6.sin6_scope_id)
		return fitted(snprintf(text, size, "[%s%%%u]:%u", host, (unsigned)address->v6.sin6_scope_id, port), size);
	return fitted(snprintf(text, size, "[%s]:%u", host, port), size);
}

uint16_t neap_sockaddr_port(const struct neap_sockaddr *address)
{
	return ntohs(address->any.sa_family == AF_INET6 ? address->v6.sin6_port : address->v4.sin_port);
}

void neap_sockaddr_set_port(struct neap_sockaddr *address, uint16_t port)
{
	if (address->any.sa_family == AF_INET6)
		address->v6.sin6_port = htons(port);
	else
		address->v4.sin_port = htons(port);
}

bool neap_sockaddr_equal(const struct neap_sockaddr *a, const struct neap_sockaddr *b)
{
	if (a->any.sa_family != b->any.sa_family || neap_sockaddr_port(a) != neap_sockaddr_port(b))
		return false;
	if (a->any.sa_family == AF_INET)
		return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
	return a->v6.sin6_scope_id == b->v6.sin6_scope_id && memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof(struct in6_addr)) == 0;
}

/* An IPv4 address inside an IPv6 one (::ffff:a.b.c.d) is what a dual-stack socket shows of an IPv4 peer. */
static bool as_v4(const struct neap_sockaddr *address, uint32_t *v4_p)
{
	if (address->any.sa_family == AF_INET) {
		*v4_p = ntohl(address->v4.sin_addr.s_addr);
		return true;
	}
	if (address->any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&address->v6.sin6_addr))
		return false;
	uint32_t big_endian;
	memcpy(&big_endian, &address->v6.sin6_addr.s6_addr[12], sizeof(big_endian));
	*v4_p = ntohl(big_endian);
	return true;
}

bool neap_sockaddr_is_loopback(const struct neap_sockaddr *address)
{
	uint32_t v4;
	if (as_v4(address, &v4))
		return v4 >> 24 == 127;
	return address->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
}

bool neap_sockaddr_is_wildcard(const struct neap_sockaddr *address)
{
	uint32_t v4;
	if (as_v4(address, &v4))
		return v4 == INADDR_ANY;
	return address->any.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr);
}
