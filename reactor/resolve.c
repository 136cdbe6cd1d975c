/* Names to addresses with c-ares: its sockets are watched by the reactor, its timeouts lie in the wheel.
 *
 * c-ares has no way to drop one question of several, so a cancelled one keeps its slot until c-ares is through with it, at most a
 * few tens of seconds; slots are bounded. /etc/hosts, /etc/resolv.conf and /etc/nsswitch.conf are read in place: small local files. */
#include "reactor/address.h"
#include "reactor/socket.h"

#include <ares.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ADDRESSES_MAX 16u
#define RESOLUTIONS_MAX 256u
#define SOCKETS_MAX 64u          /* of c-ares: one or two per name server and protocol */
#define TRY_TIMEOUT_MS 2000      /* per name server, doubled with each round */
#define TRIES 3
#define CHANNEL_LIFE_NS UINT64_C(60000000000) /* an idle channel older than this is made anew: resolv.conf may have changed */
#define DETAIL_MAX 64u

struct neap_resolution {
	struct neap_ready ready;
	struct neap_resolver *resolver;
	neap_resolved_func *resolved; /* NULL: cancelled */
	void *user;
	struct neap_sockaddr addresses[ADDRESSES_MAX];
	uint32_t count;
	int error;
	uint16_t port;
	bool answered; /* c-ares is through with it */
	char detail[DETAIL_MAX];
};

struct resolver_socket {
	struct neap_watch watch;
	struct neap_resolver *resolver;
	bool used;
};

struct neap_resolver {
	struct neap_reactor *reactor;
	ares_channel channel; /* NULL: none at present */
	uint64_t made_ns;
	uint32_t asked;       /* questions c-ares works on */
	struct neap_timer timer;
	struct neap_pool resolutions;
	struct resolver_socket sockets[SOCKETS_MAX];
};

/* --- the sockets of c-ares: made by us, so that they are non-blocking and close-on-exec from the start --------------------- */

static ares_socket_t open_socket(int domain, int type, int protocol, void *user)
{
	(void)user;
	return socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
}

static int close_socket(ares_socket_t fd, void *user)
{
	(void)user;
	return close(fd);
}

static int connect_socket(ares_socket_t fd, const struct sockaddr *address, ares_socklen_t length, void *user)
{
	(void)user;
	return connect(fd, address, length);
}

static ares_ssize_t receive(ares_socket_t fd, void *bytes, size_t size, int flags, struct sockaddr *from, ares_socklen_t *length,
                            void *user)
{
	(void)user;
	return recvfrom(fd, bytes, size, flags, from, length);
}

static ares_ssize_t send_vector(ares_socket_t fd, const struct iovec *vector, int count, void *user)
{
	struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)vector, .msg_iovlen = (size_t)count};
	(void)user;
	return sendmsg(fd, &message, MSG_NOSIGNAL);
}

static const struct ares_socket_functions socket_functions = {
	.asocket = open_socket,
	.aclose = close_socket,
	.aconnect = connect_socket,
	.arecvfrom = receive,
	.asendv = send_vector,
};

/* --- driving the channel -------------------------------------------------------------------------------------------------- */

static void process(struct neap_resolver *resolver, ares_socket_t readable, ares_socket_t writable);

static void timer_fired(struct neap_timer *timer, void *user)
{
	(void)timer;
	process(user, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

static void arm_timer(struct neap_resolver *resolver)
{
	struct timeval left;
	if (!resolver->channel || !ares_timeout(resolver->channel, NULL, &left)) {
		neap_timer_cancel(resolver->reactor, &resolver->timer);
		return;
	}
	uint64_t due_ns = neap_now(resolver->reactor) + (uint64_t)left.tv_sec * UINT64_C(1000000000) + (uint64_t)left.tv_usec * 1000 +
	                  UINT64_C(1000000); /* c-ares looks at a clock of its own: not before it */
	(void)neap_timer_start(resolver->reactor, &resolver->timer, due_ns, timer_fired, resolver);
}

static void process(struct neap_resolver *resolver, ares_socket_t readable, ares_socket_t writable)
{
	if (!resolver->channel)
		return;
	ares_process_fd(resolver->channel, readable, writable);
	arm_timer(resolver);
}

static void socket_ready(struct neap_watch *watch, unsigned ready)
{
	struct resolver_socket *slot = (struct resolver_socket *)(void *)((char *)watch - offsetof(struct resolver_socket, watch));
	bool ended = ready & (NEAP_HANGUP | NEAP_ERROR_READY);
	process(slot->resolver, ended || (ready & NEAP_READABLE) ? watch->fd : ARES_SOCKET_BAD,
	        ended || (ready & NEAP_WRITABLE) ? watch->fd : ARES_SOCKET_BAD);
}

static struct resolver_socket *socket_find(struct neap_resolver *resolver, ares_socket_t fd)
{
	for (uint32_t i = 0; i < SOCKETS_MAX; i++)
		if (resolver->sockets[i].used && resolver->sockets[i].watch.fd == fd)
			return &resolver->sockets[i];
	return NULL;
}

/* c-ares tells what it wants to know of a socket; nothing at all comes before it closes it. Beyond SOCKETS_MAX a socket stays
 * unwatched and its question runs into c-ares' time-out. */
static void socket_state(void *user, ares_socket_t fd, int readable, int writable)
{
	struct neap_resolver *resolver = user;
	struct resolver_socket *slot = socket_find(resolver, fd);
	unsigned wanted = (readable ? (unsigned)NEAP_READABLE : 0) | (writable ? (unsigned)NEAP_WRITABLE : 0);

	if (slot && wanted) {
		(void)neap_watch_want(resolver->reactor, &slot->watch, wanted);
	} else if (slot) {
		neap_watch_stop(resolver->reactor, &slot->watch);
		slot->used = false;
	} else if (wanted) {
		for (uint32_t i = 0; i < SOCKETS_MAX && !slot; i++)
			if (!resolver->sockets[i].used)
				slot = &resolver->sockets[i];
		if (!slot)
			return;
		*slot = (struct resolver_socket){.resolver = resolver};
		slot->used = neap_watch_start(resolver->reactor, &slot->watch, fd, wanted, socket_ready) == NEAP_OK;
	}
}

/* --- the channel ---------------------------------------------------------------------------------------------------------- */

/* c-ares wants one process-wide start before there are threads: the loading of the library is that moment. */
__attribute__((constructor)) static void start_library(void)
{
	(void)ares_library_init(ARES_LIB_INIT_ALL);
}

static void drop_channel(struct neap_resolver *resolver)
{
	ares_channel channel = resolver->channel;
	resolver->channel = NULL;
	if (channel)
		ares_destroy(channel); /* answers what is pending with ARES_EDESTRUCTION and closes its sockets */
	neap_timer_cancel(resolver->reactor, &resolver->timer);
}

static int make_channel(struct neap_resolver *resolver)
{
	struct ares_options options = {.timeout = TRY_TIMEOUT_MS,
	                               .tries = TRIES,
	                               .sock_state_cb = socket_state,
	                               .sock_state_cb_data = resolver};

	if (resolver->channel && resolver->asked == 0 && neap_now(resolver->reactor) - resolver->made_ns > CHANNEL_LIFE_NS)
		drop_channel(resolver);
	if (resolver->channel)
		return NEAP_OK;
	int status = ares_init_options(&resolver->channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);
	if (status != ARES_SUCCESS) {
		resolver->channel = NULL;
		neap_log(resolver->reactor, NEAP_LOG_WARNING, "resolver", "c-ares does not start: %s", ares_strerror(status));
		return status == ARES_ENOMEM ? NEAP_ENOMEM : NEAP_EDNS;
	}
	ares_set_socket_functions(resolver->channel, &socket_functions, NULL);
	resolver->made_ns = neap_now(resolver->reactor);
	return NEAP_OK;
}

static struct neap_resolver *resolver_of(struct neap_reactor *reactor)
{
	struct neap_socket_room *room = neap_socket_room(reactor);
	if (!room || room->resolver)
		return room ? room->resolver : NULL;
	struct neap_resolver *resolver = neap_allocate(reactor, sizeof(*resolver));
	if (!resolver)
		return NULL;
	if (neap_pool_create(&resolver->resolutions, reactor, sizeof(struct neap_resolution), RESOLUTIONS_MAX)) {
		neap_release(reactor, resolver, sizeof(*resolver));
		return NULL;
	}
	resolver->reactor = reactor;
	room->resolver = resolver;
	return resolver;
}

void neap_resolver_destroy(struct neap_resolver *resolver)
{
	struct neap_reactor *reactor = resolver->reactor;
	uint32_t index = 0;
	struct neap_resolution *resolution;

	drop_channel(resolver);
	while ((resolution = neap_pool_next(&resolver->resolutions, &index)) != NULL)
		neap_ready_cancel(reactor, &resolution->ready);
	neap_pool_destroy(&resolver->resolutions);
	neap_release(reactor, resolver, sizeof(*resolver));
}

/* --- questions ------------------------------------------------------------------------------------------------------------ */

static void tell(struct neap_ready *ready)
{
	struct neap_resolution *resolution = (struct neap_resolution *)(void *)((char *)ready - offsetof(struct neap_resolution, ready));
	struct neap_resolution answer = *resolution;
	neap_pool_give(&resolution->resolver->resolutions, resolution);
	answer.resolved(answer.user, answer.error, answer.detail, answer.addresses, answer.count);
}

static void take_addresses(struct neap_resolution *resolution, const struct ares_addrinfo *result)
{
	for (const struct ares_addrinfo_node *node = result->nodes; node && resolution->count < ADDRESSES_MAX; node = node->ai_next) {
		struct neap_sockaddr *address = &resolution->addresses[resolution->count];
		if ((node->ai_family != AF_INET && node->ai_family != AF_INET6) || (size_t)node->ai_addrlen > sizeof(address->v6))
			continue;
		*address = (struct neap_sockaddr){.length = node->ai_addrlen};
		memcpy(&address->any, node->ai_addr, node->ai_addrlen);
		neap_sockaddr_set_port(address, resolution->port);
		resolution->count++;
	}
}

/* May be called from inside ares_getaddrinfo when a file had the answer: the caller is told from the turn's ready queue. */
static void answered(void *user, int status, int timeouts, struct ares_addrinfo *result)
{
	struct neap_resolution *resolution = user;
	struct neap_resolver *resolver = resolution->resolver;
	(void)timeouts;
	resolver->asked--;
	resolution->answered = true;
	if (status == ARES_SUCCESS && result)
		take_addresses(resolution, result);
	if (result)
		ares_freeaddrinfo(result);
	if (!resolution->resolved || status == ARES_EDESTRUCTION) {
		neap_pool_give(&resolver->resolutions, resolution);
		return;
	}
	if (resolution->count == 0) {
		resolution->error = status == ARES_ENOMEM ? NEAP_ENOMEM : NEAP_EDNS;
		(void)snprintf(resolution->detail, sizeof(resolution->detail), "%s",
		               status == ARES_SUCCESS ? "the name has no address of the wanted family" : ares_strerror(status));
	}
	neap_ready_again(resolver->reactor, &resolution->ready);
}

struct neap_resolution *neap_resolver_begin(struct neap_net *net, struct neap_reactor *reactor, const char *host, uint16_t port,
                                            int family, neap_resolved_func *resolved, void *user, int *error_p)
{
	struct ares_addrinfo_hints hints = {.ai_family = family, .ai_socktype = SOCK_STREAM};
	struct neap_resolver *resolver = resolver_of(reactor);
	(void)net;
	if (!resolver) {
		*error_p = NEAP_ENOMEM;
		return NULL;
	}
	*error_p = make_channel(resolver);
	if (*error_p)
		return NULL;
	struct neap_resolution *resolution = neap_pool_take(&resolver->resolutions);
	if (!resolution) {
		*error_p = NEAP_ELIMIT;
		return NULL;
	}
	*resolution = (struct neap_resolution){
		.ready = {.run = tell}, .resolver = resolver, .resolved = resolved, .user = user, .port = port};
	resolver->asked++;
	ares_getaddrinfo(resolver->channel, host, NULL, &hints, answered, resolution);
	arm_timer(resolver);
	neap_reactor_touch(reactor);
	return resolution;
}

void neap_resolver_cancel(struct neap_resolution *resolution)
{
	struct neap_resolver *resolver = resolution->resolver;
	resolution->resolved = NULL;
	if (!resolution->answered)
		return;
	neap_ready_cancel(resolver->reactor, &resolution->ready);
	neap_pool_give(&resolver->resolutions, resolution);
}
