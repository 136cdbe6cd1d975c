#include "tests/support/paired_net.h"
#include "reactor/address.h"
#include "reactor/inside.h"
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#define CAPACITY 65536u
#define BACKLOG 64u

struct paired_listener {
	struct neap_listener base; /* first */
	struct paired_net *net;
	struct paired_listener *next;
	struct neap_ready again;
	uint16_t port;
	bool wanted, closed;
	struct paired_link *backlog[BACKLOG];
	uint32_t backlog_count;
};

/* ends[0] connects; it cannot write until the other end is there. */
struct paired_link {
	struct memory_pair pair; /* first */
	struct paired_net *net;
	struct paired_link *next;
	struct neap_timer timer;
	uint16_t port;
	bool arrived, refused;
};

static struct paired_link *link_of(struct neap_stream *stream)
{
	return (struct paired_link *)(void *)((struct memory_end *)(void *)stream)->pair;
}

static void look_again(struct memory_end *end)
{
	if (!end->closed)
		neap_stream_want(&end->base, end->wanted);
}

/* --- listening */

static void run_listener(struct neap_ready *ready)
{
	struct paired_listener *listener = (struct paired_listener *)(void *)((char *)ready - offsetof(struct paired_listener, again));
	if (listener->wanted && !listener->closed && listener->backlog_count > 0)
		listener->base.ready(&listener->base);
}

static struct neap_stream *accept_one(struct neap_listener *base, int *error_p)
{
	struct paired_listener *listener = (struct paired_listener *)(void *)base;
	*error_p = -EAGAIN;
	if (listener->backlog_count == 0)
		return NULL;
	struct paired_link *link = listener->backlog[0];
	listener->backlog_count--;
	for (uint32_t i = 0; i < listener->backlog_count; i++)
		listener->backlog[i] = listener->backlog[i + 1];
	return &link->pair.ends[1].base;
}

static void listener_want(struct neap_listener *base, bool wanted)
{
	struct paired_listener *listener = (struct paired_listener *)(void *)base;
	listener->wanted = wanted;
	if (wanted)
		neap_ready_again(listener->net->reactor, &listener->again);
}

static void listener_close(struct neap_listener *base)
{
	struct paired_listener *listener = (struct paired_listener *)(void *)base;
	listener->closed = true;
	neap_ready_cancel(listener->net->reactor, &listener->again);
	for (uint32_t i = 0; i < listener->backlog_count; i++)
		neap_stream_close(&listener->backlog[i]->pair.ends[1].base, true);
	listener->backlog_count = 0;
}

static int listener_address(struct neap_listener *base, struct neap_sockaddr *address_p)
{
	return neap_sockaddr_from_numeric("127.0.0.1", ((struct paired_listener *)(void *)base)->port, address_p);
}

static const struct neap_listener_ops listener_ops = {accept_one, listener_want, listener_close, listener_address};

static struct neap_listener *do_listen(struct neap_net *base, struct neap_reactor *reactor, const struct neap_sockaddr *address,
                                       const struct neap_socket_options *options, int *error_p)
{
	struct paired_net *net = (struct paired_net *)(void *)base;
	struct paired_listener *listener = calloc(1, sizeof *listener);
	(void)options;
	ck_assert_ptr_nonnull(listener);
	uint16_t port = neap_sockaddr_port(address);
	*listener = (struct paired_listener){.base = {.ops = &listener_ops, .reactor = reactor}, .net = net, .next = net->listeners,
	                                     .again.run = run_listener, .port = port ? port : net->next_port++};
	net->listeners = listener;
	*error_p = 0;
	return &listener->base;
}

/* --- connecting */

static struct paired_listener *find(const struct paired_net *net, uint16_t port)
{
	struct paired_listener *listener = net->listeners;
	while (listener && (listener->closed || listener->port != port))
		listener = listener->next;
	return listener;
}

static void arrive(struct neap_timer *timer, void *user)
{
	struct paired_link *link = user;
	struct memory_end *near_end = &link->pair.ends[0], *far_end = &link->pair.ends[1];
	struct paired_listener *listener = find(link->net, link->port);
	(void)timer;
	link->arrived = true;
	if (near_end->closed)
		return;
	if (!listener || listener->backlog_count == BACKLOG) {
		link->refused = true;
		near_end->reset = true;
		far_end->closed = true;
		look_again(near_end);
		return;
	}
	far_end->in.size = CAPACITY;
	listener->backlog[listener->backlog_count++] = link;
	neap_ready_again(link->net->reactor, &listener->again);
	look_again(near_end);
}

static void depart(struct paired_link *link)
{
	struct paired_net *net = link->net;
	net->random = net->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	uint64_t delay = net->delay_max_ns ? (net->random >> 33) % net->delay_max_ns : 0;
	(void)neap_timer_start(net->reactor, &link->timer, neap_now(net->reactor) + delay, arrive, link);
}

static struct neap_stream *do_connect(struct neap_net *base, struct neap_reactor *reactor, const struct neap_sockaddr *address,
                                      const struct neap_socket_options *options, int *error_p)
{
	struct paired_net *net = (struct paired_net *)(void *)base;
	struct paired_link *link = calloc(1, sizeof *link);
	(void)options;
	ck_assert_ptr_nonnull(link);
	memory_pair_open(&link->pair, reactor, CAPACITY);
	link->net = net;
	link->next = net->links;
	link->port = neap_sockaddr_port(address);
	link->pair.ends[1].in.size = 0;
	net->links = link;
	net->connections++;
	if (!net->held)
		depart(link);
	link->pair.ends[0].wanted = NEAP_WRITABLE;
	*error_p = 0;
	return &link->pair.ends[0].base;
}

static int connect_result(struct neap_stream *stream)
{
	return link_of(stream)->refused ? -ECONNREFUSED : 0;
}

/* --- life */

void paired_net_begin(struct paired_net *net, struct neap_reactor *reactor, uint64_t seed)
{
	*net = (struct paired_net){.net = *memory_net(), .reactor = reactor, .random = seed, .next_port = 5000};
	net->net.connect = do_connect;
	net->net.connect_result = connect_result;
	net->net.listen = do_listen;
	reactor->options.net = &net->net;
}

void paired_net_hold(struct paired_net *net, bool held)
{
	net->held = held;
	for (struct paired_link *link = net->links; link && !held; link = link->next)
		if (!link->arrived && !neap_timer_active(&link->timer))
			depart(link);
}

void paired_net_cut(struct paired_net *net)
{
	for (struct paired_link *link = net->links; link; link = link->next)
		for (int i = 0; i < 2; i++) {
			struct memory_end *end = &link->pair.ends[i];
			end->reset = true;
			look_again(end);
		}
}

uint32_t paired_net_open(const struct paired_net *net)
{
	uint32_t count = 0;
	for (const struct paired_link *link = net->links; link; link = link->next)
		count += !link->pair.ends[0].closed;
	return count;
}

void paired_net_end(struct paired_net *net)
{
	while (net->links) {
		struct paired_link *link = net->links;
		net->links = link->next;
		neap_timer_cancel(net->reactor, &link->timer);
		memory_pair_release(&link->pair);
		free(link);
	}
	while (net->listeners) {
		struct paired_listener *listener = net->listeners;
		net->listeners = listener->next;
		neap_ready_cancel(net->reactor, &listener->again);
		free(listener);
	}
}
