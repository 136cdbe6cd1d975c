#include "apps/common/reach.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The host of "host", "host:port", "[v6]:port" and "v6"; what is none of these the engine explains. */
static bool host_of(const char *name, char *host, size_t size)
{
	const char *end = name + strlen(name), *colon = strchr(name, ':');
	if (*name == '[') {
		end = strchr(++name, ']');
	} else if (colon && !strchr(colon + 1, ':')) {
		end = colon;
	}
	if (!end || end == name || (size_t)(end - name) >= size)
		return false;
	memcpy(host, name, (size_t)(end - name));
	host[end - name] = 0;
	return true;
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
	if (!a || a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return a->sa_family == AF_INET6 && !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
	                                           &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr));
}

static bool is_loopback(const struct sockaddr *address)
{
	return address->sa_family == AF_INET && ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
}

static bool is_wildcard(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return ((const struct sockaddr_in *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static bool is_ours(const struct sockaddr *address, const struct ifaddrs *ours)
{
	if (is_loopback(address))
		return true;
	for (; ours; ours = ours->ifa_next)
		if (same_address(ours->ifa_addr, address))
			return true;
	return false;
}

static int not_ours(const char *host, const struct addrinfo *found, char *why, size_t why_size)
{
	char text[INET6_ADDRSTRLEN + 16] = "";
	getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
	if (!strcmp(text, host))
		snprintf(
			why, why_size,
			"--local_server_name=%s is not an address of this machine (`ip addr` lists them), so nobody could reach it here; "
			"name one, or say with --bind_address where to listen for it",
			host);
	else
		snprintf(why, why_size,
		         "--local_server_name=%s is %s, which is not an address of this machine (`ip addr` lists them); name one, or say "
		         "with --bind_address where to listen for it",
		         host, text);
	return -1;
}

int app_reach(const char *local_name, char *bind_address, size_t size, char *why, size_t why_size)
{
	char host[256];
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	bind_address[0] = 0;
	if (!host_of(local_name, host, sizeof host))
		return 0;
	int error = getaddrinfo(host, NULL, &hints, &found);
	if (error) {
		snprintf(
			why, why_size,
			"--local_server_name=%s does not resolve: %s; give an address of this machine, or a name that peers resolve to one",
			host, gai_strerror(error));
		return -1;
	}
	struct ifaddrs *ours = NULL;
	getifaddrs(&ours);
	int result = is_wildcard(found->ai_addr) ? 0 : -1; /* the engine says why not */
	for (const struct addrinfo *at = found; at && result && !bind_address[0]; at = at->ai_next)
		if (is_ours(at->ai_addr, ours))
			result = getnameinfo(at->ai_addr, at->ai_addrlen, bind_address, (socklen_t)size, NULL, 0, NI_NUMERICHOST) ? -1 : 0;
	if (result)
		not_ours(host, found, why, why_size);
	freeifaddrs(ours);
	freeaddrinfo(found);
	return result;
}
