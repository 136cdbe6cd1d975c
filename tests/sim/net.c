/* The simulated network of byte streams: segments with seeded delay, in order within a connection and in any order between
 * connections; receive windows; short reads and writes; resets, half-closes, partitions that hold traffic back; hosts that die. It
 * behaves as Linux does where it matters: bytes given to the kernel are delivered even after close, a process that is stopped still
 * receives, closing with unread bytes sends a reset. */
#include "reactor/address.h"
#include "tests/sim/sim.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum segment_kind { SEGMENT_SYN, SEGMENT_ACCEPTED, SEGMENT_REFUSED, SEGMENT_DATA, SEGMENT_CREDIT, SEGMENT_FIN, SEGMENT_RESET };

struct sim_segment {
	struct sim_segment *next;
	int to; /* side */
	enum segment_kind kind;
	uint32_t length;
	unsigned char bytes[];
};

enum endpoint_phase { ENDPOINT_UNUSED, ENDPOINT_CONNECTING, ENDPOINT_OPEN, ENDPOINT_FAILED, ENDPOINT_CLOSED };

struct sim_endpoint {
	struct neap_stream stream; /* first */
	struct neap_ready again;
	struct neap_reap reap;
	struct sim_connection *connection;
	struct sim_node *node;
	int side;
	enum endpoint_phase phase;
	int connect_error;
	unsigned wanted;
	uint32_t low_water;
	unsigned char *received; /* ring of window bytes */
	uint32_t window, have, start;
	uint32_t credit;         /* bytes it may still send */
	uint64_t unacknowledged; /* bytes sent that have not arrived at the other host; TCP knows no more of them */
	bool eof, reset, sent_fin;
	bool host_dead;          /* closed because its host died: answers nothing while the host is down */
	struct neap_sockaddr local;
};

struct sim_connection {
	struct sim_connection *next, **slot;
	struct sim *sim;
	struct sim_endpoint *ends[2];
	uint32_t hosts[2], pending; /* segments under way or held */
	uint16_t port;
	/* by side that they go to. An arrival takes the first, whichever it was made for: so the order is kept whatever the delays are */
	struct sim_segment *first[2], **tail[2];
	uint64_t last_arrival_ns[2];
	uint32_t missed[2]; /* arrivals while the network was severed: made up for when it heals */
};

struct sim_listener {
	struct neap_listener listener; /* first */
	struct neap_ready again;
	struct neap_reap reap;
	struct sim_listener *next;
	struct sim_node *node;
	uint16_t port;
	bool wanted, closed;
	struct sim_endpoint *backlog[128];
	uint32_t backlog_count;
};

static struct sim_endpoint *endpoint_of(struct neap_stream *stream)
{
	return (struct sim_endpoint *)stream;
}

static struct sim_random *net_random(struct sim *sim)
{
	return &sim->random[SIM_NET];
}

/* --- readiness ------------------------------------------------------------------------------------------------------------- */

static unsigned endpoint_ready(const struct sim_endpoint *end)
{
	if (end->phase == ENDPOINT_FAILED)
		return NEAP_ERROR_READY | NEAP_WRITABLE | NEAP_READABLE;
	if (end->phase != ENDPOINT_OPEN)
		return 0;
	unsigned ready = 0;
	uint32_t enough = end->low_water < end->window ? end->low_water : end->window;
	if (end->have >= enough || end->eof || end->reset)
		ready |= NEAP_READABLE;
	if (end->eof && (end->wanted & NEAP_READABLE))
		ready |= NEAP_HANGUP;
	if (end->reset)
		ready |= NEAP_ERROR_READY | NEAP_HANGUP | NEAP_WRITABLE;
	if (end->credit > 0)
		ready |= NEAP_WRITABLE;
	return ready & (end->wanted | NEAP_HANGUP | NEAP_ERROR_READY);
}

static void endpoint_touch(struct sim_endpoint *end)
{
	if (end->wanted != 0 && endpoint_ready(end) != 0 && !end->node->crashed) {
		neap_ready_again(end->node->reactor, &end->again);
		sim_node_wake(end->node);
	}
}

static void run_endpoint(struct neap_ready *ready)
{
	struct sim_endpoint *end = (struct sim_endpoint *)((char *)ready - offsetof(struct sim_endpoint, again));
	unsigned set = end->wanted ? endpoint_ready(end) : 0;
	if (set == 0 || end->phase == ENDPOINT_CLOSED)
		return;
	end->stream.ready(&end->stream, set);
	if (end->phase != ENDPOINT_CLOSED && end->wanted != 0 && endpoint_ready(end) != 0)
		neap_ready_again(end->node->reactor, &end->again); /* level-triggered */
}

/* --- segments --------------------------------------------------------------------------------------------------------------- */

static void deliver(struct sim *sim, void *user, uint64_t argument);

static void release_connection(struct sim_connection *connection)
{
	if (connection->pending != 0 || connection->ends[0] || connection->ends[1])
		return;
	*connection->slot = connection->next;
	if (connection->next)
		connection->next->slot = connection->slot;
	connection->sim->connections--;
	free(connection);
}

static void schedule_arrival(struct sim_connection *connection, int to)
{
	struct sim *sim = connection->sim;
	const struct sim_net_options *net = &sim->net;
	uint64_t at_ns = sim->now_ns + net->delay_min_ns + sim_random_below(net_random(sim), net->delay_max_ns - net->delay_min_ns + 1);
	if (at_ns < connection->last_arrival_ns[to])
		at_ns = connection->last_arrival_ns[to];
	connection->last_arrival_ns[to] = at_ns;
	sim_at(sim, at_ns, deliver, connection, (uint64_t)to);
}

/* The caller fills in the bytes of DATA. */
static struct sim_segment *send_segment(struct sim_connection *connection, int to, enum segment_kind kind, uint32_t length)
{
	struct sim_segment *segment = malloc(sizeof(*segment) + (kind == SEGMENT_DATA ? length : 0));
	if (!segment)
		abort();
	segment->next = NULL;
	segment->to = to;
	segment->kind = kind;
	segment->length = length;
	*connection->tail[to] = segment;
	connection->tail[to] = &segment->next;
	connection->pending++;
	schedule_arrival(connection, to);
	return segment;
}

static struct sim_listener *find_listener(struct sim *sim, uint32_t host, uint16_t port)
{
	for (uint32_t i = 0; i < sim->node_count; i++) {
		struct sim_node *node = sim->nodes[i];
		if (node->host != host || node->crashed)
			continue;
		for (struct sim_listener *l = node->listeners; l; l = l->next)
			if (l->port == port && !l->closed)
				return l;
	}
	return NULL;
}

static bool host_is_up(const struct sim *sim, uint32_t host)
{
	for (uint32_t i = 0; i < sim->node_count; i++)
		if (sim->nodes[i]->host == host && !sim->nodes[i]->crashed)
			return true;
	return false;
}

static struct sim_endpoint *endpoint_create(struct sim_connection *connection, int side, struct sim_node *node);

static void arrive_syn(struct sim_connection *connection)
{
	struct sim *sim = connection->sim;
	struct sim_listener *listener = find_listener(sim, connection->hosts[1], connection->port);
	if (!listener || listener->backlog_count == sizeof(listener->backlog) / sizeof(listener->backlog[0])) {
		if (host_is_up(sim, connection->hosts[1]))
			(void)send_segment(connection, 0, SEGMENT_REFUSED, 0);
		return;
	}
	struct sim_endpoint *end = endpoint_create(connection, 1, listener->node);
	end->phase = ENDPOINT_OPEN;
	listener->backlog[listener->backlog_count++] = end;
	if (connection->ends[0])
		end->credit = connection->ends[0]->window;
	(void)send_segment(connection, 0, SEGMENT_ACCEPTED, end->window);
	if (listener->wanted) {
		neap_ready_again(listener->node->reactor, &listener->again);
		sim_node_wake(listener->node);
	}
}

static void take_reset(struct sim_endpoint *end)
{
	struct sim *sim = end->connection->sim;
	if (end->phase == ENDPOINT_CONNECTING) {
		end->phase = ENDPOINT_FAILED;
		end->connect_error = -ECONNRESET;
	}
	end->reset = true;
	if (sim_random_chance(net_random(sim), sim->net.reset_loses_data_per_mille))
		end->have = 0;
	endpoint_touch(end);
}

static void arrive_data(struct sim_endpoint *end, const struct sim_segment *segment)
{
	struct sim_endpoint *sender = end->connection->ends[1 - end->side];
	if (sender)
		sender->unacknowledged -= segment->length;
	assert(end->have + segment->length <= end->window && "the sender kept to its credit");
	uint32_t at = (end->start + end->have) % end->window, straight = end->window - at;
	if (straight > segment->length)
		straight = segment->length;
	memcpy(end->received + at, segment->bytes, straight);
	memcpy(end->received, segment->bytes + straight, segment->length - straight);
	end->have += segment->length;
	endpoint_touch(end);
}

/* A segment for an endpoint that is closed or gone. */
static void arrive_at_nobody(struct sim_connection *connection, const struct sim_segment *segment)
{
	int from = 1 - segment->to;
	if (segment->kind != SEGMENT_DATA && segment->kind != SEGMENT_FIN && segment->kind != SEGMENT_ACCEPTED)
		return;
	if (connection->ends[from] && host_is_up(connection->sim, connection->hosts[segment->to]))
		(void)send_segment(connection, from, SEGMENT_RESET, 0);
}

static void arrive(struct sim_connection *connection, const struct sim_segment *segment)
{
	struct sim_endpoint *end = connection->ends[segment->to];
	if (segment->kind == SEGMENT_SYN) {
		arrive_syn(connection);
		return;
	}
	if (!end || end->phase == ENDPOINT_CLOSED || end->phase == ENDPOINT_FAILED) {
		arrive_at_nobody(connection, segment);
		return;
	}
	switch (segment->kind) {
	case SEGMENT_SYN:
		break;
	case SEGMENT_ACCEPTED:
		end->phase = ENDPOINT_OPEN;
		end->credit = segment->length;
		endpoint_touch(end);
		break;
	case SEGMENT_REFUSED:
		end->phase = ENDPOINT_FAILED;
		end->connect_error = -ECONNREFUSED;
		endpoint_touch(end);
		break;
	case SEGMENT_DATA:
		if (!end->reset)
			arrive_data(end, segment);
		break;
	case SEGMENT_CREDIT:
		end->credit += segment->length;
		endpoint_touch(end);
		break;
	case SEGMENT_FIN:
		end->eof = true;
		endpoint_touch(end);
		break;
	case SEGMENT_RESET:
		take_reset(end);
		break;
	}
}

static struct sim_segment *take_segment(struct sim_connection *connection, int to)
{
	struct sim_segment *segment = connection->first[to];
	connection->first[to] = segment->next;
	if (!segment->next)
		connection->tail[to] = &connection->first[to];
	return segment;
}

static void deliver(struct sim *sim, void *user, uint64_t argument)
{
	struct sim_connection *connection = user;
	int to = (int)argument;
	bool severed = sim->severed[connection->hosts[1 - to]][connection->hosts[to]];
	if (severed && connection->ends[to]) { /* held back until the network heals */
		connection->missed[to]++;
		return;
	}
	struct sim_segment *segment = take_segment(connection, to);
	if (severed) {
		connection->pending--;
		release_connection(connection);
		free(segment);
		return;
	}
	sim_fold(sim, (uint64_t)segment->kind << 32 | segment->length);
	connection->pending++; /* stays while we look at it */
	if (sim->net.cut_per_million && segment->kind == SEGMENT_DATA &&
	    sim_random_below(&sim->random[SIM_FAULTS], 1000000) < sim->net.cut_per_million) {
		sim->cuts++;
		for (int side = 0; side < 2; side++)
			if (connection->ends[side] && connection->ends[side]->phase == ENDPOINT_OPEN)
				take_reset(connection->ends[side]);
	} else {
		arrive(connection, segment);
	}
	free(segment);
	connection->pending -= 2;
	release_connection(connection);
}

void sim_net_resume(struct sim *sim)
{
	for (struct sim_connection *connection = sim->connections_list; connection; connection = connection->next)
		for (int to = 0; to < 2; to++)
			for (; connection->missed[to] > 0; connection->missed[to]--)
				schedule_arrival(connection, to);
}

/* --- stream operations -------------------------------------------------------------------------------------------------------- */

static size_t vector_bytes(const struct iovec *vector, int count)
{
	size_t bytes = 0;
	for (int i = 0; i < count; i++)
		bytes += vector[i].iov_len;
	return bytes;
}

static size_t perhaps_short(struct sim *sim, size_t bytes)
{
	if (bytes > 1 && sim_random_chance(net_random(sim), sim->net.short_io_per_mille)) {
		sim->short_ios++;
		return 1 + sim_random_below(net_random(sim), bytes);
	}
	return bytes;
}

static ssize_t end_readv(struct neap_stream *stream, const struct iovec *vector, int count)
{
	struct sim_endpoint *end = endpoint_of(stream);
	struct sim *sim = end->connection->sim;
	size_t room = vector_bytes(vector, count), take = end->have < room ? end->have : room;
	if (end->node->crashed)
		return -ECONNRESET;
	if (take == 0)
		return end->reset ? -ECONNRESET : end->eof ? 0 : -EAGAIN;
	take = perhaps_short(sim, take);
	size_t done = 0;
	for (int i = 0; i < count && done < take; i++) {
		unsigned char *out = vector[i].iov_base;
		size_t n = vector[i].iov_len < take - done ? vector[i].iov_len : take - done;
		uint32_t at = (uint32_t)((end->start + done) % end->window);
		size_t straight = end->window - at < n ? end->window - at : n;
		memcpy(out, end->received + at, straight);
		memcpy(out + straight, end->received, n - straight);
		done += n;
	}
	end->start = (uint32_t)((end->start + take) % end->window);
	end->have -= (uint32_t)take;
	if (end->connection->ends[1 - end->side])
		(void)send_segment(end->connection, 1 - end->side, SEGMENT_CREDIT, (uint32_t)take);
	return (ssize_t)take;
}

static ssize_t end_writev(struct neap_stream *stream, const struct iovec *vector, int count)
{
	struct sim_endpoint *end = endpoint_of(stream);
	struct sim *sim = end->connection->sim;
	if (end->reset || end->node->crashed)
		return -ECONNRESET;
	if (end->sent_fin)
		return -EPIPE;
	size_t bytes = vector_bytes(vector, count);
	size_t take = end->credit < bytes ? end->credit : bytes;
	if (take == 0)
		return bytes == 0 ? 0 : -EAGAIN;
	take = perhaps_short(sim, take);
	size_t offset = 0; /* in *vector */
	for (size_t at = 0; at < take;) {
		size_t n = take - at < sim->net.segment_max ? take - at : sim->net.segment_max;
		unsigned char *out = send_segment(end->connection, 1 - end->side, SEGMENT_DATA, (uint32_t)n)->bytes;
		for (size_t filled = 0; filled < n;) {
			for (; offset == vector->iov_len; vector++)
				offset = 0;
			size_t piece = vector->iov_len - offset < n - filled ? vector->iov_len - offset : n - filled;
			memcpy(out + filled, (const unsigned char *)vector->iov_base + offset, piece);
			filled += piece;
			offset += piece;
		}
		at += n;
	}
	end->credit -= (uint32_t)take;
	end->unacknowledged += take;
	return (ssize_t)take;
}

static void end_want(struct neap_stream *stream, unsigned wanted)
{
	struct sim_endpoint *end = endpoint_of(stream);
	end->wanted = wanted;
	endpoint_touch(end);
}

static void end_shutdown_write(struct neap_stream *stream)
{
	struct sim_endpoint *end = endpoint_of(stream);
	if (!end->sent_fin && end->phase == ENDPOINT_OPEN && !end->node->crashed)
		(void)send_segment(end->connection, 1 - end->side, SEGMENT_FIN, 0);
	end->sent_fin = true;
}

static void end_low_water(struct neap_stream *stream, uint32_t bytes)
{
	struct sim_endpoint *end = endpoint_of(stream);
	end->low_water = bytes ? bytes : 1;
	endpoint_touch(end);
}

static int64_t end_unacknowledged(struct neap_stream *stream)
{
	return (int64_t)endpoint_of(stream)->unacknowledged;
}

static void free_endpoint(struct sim_endpoint *end)
{
	struct sim_connection *connection = end->connection;
	connection->ends[end->side] = NULL;
	release_connection(connection);
	free(end->received);
	free(end);
}

static void reap_endpoint(struct neap_reap *reap)
{
	free_endpoint((struct sim_endpoint *)((char *)reap - offsetof(struct sim_endpoint, reap)));
}

/* The kernel's side of a close: what the peer gets to see. */
static void say_goodbye(struct sim_endpoint *end, bool abortive)
{
	if (end->phase != ENDPOINT_OPEN || end->reset)
		return;
	if (abortive || end->have > 0)
		(void)send_segment(end->connection, 1 - end->side, SEGMENT_RESET, 0);
	else if (!end->sent_fin)
		(void)send_segment(end->connection, 1 - end->side, SEGMENT_FIN, 0);
}

static void end_close(struct neap_stream *stream, bool abortive)
{
	struct sim_endpoint *end = endpoint_of(stream);
	assert(end->phase != ENDPOINT_CLOSED || end->host_dead || end->node->crashed);
	if (!end->node->crashed)
		say_goodbye(end, abortive);
	end->phase = ENDPOINT_CLOSED;
	end->wanted = 0;
	neap_ready_cancel(end->node->reactor, &end->again);
	neap_reap_later(end->node->reactor, &end->reap);
}

static int end_local_address(struct neap_stream *stream, struct neap_sockaddr *address_p)
{
	*address_p = endpoint_of(stream)->local;
	return 0;
}

static void make_address(uint32_t host, uint16_t port, struct neap_sockaddr *address_p)
{
	char text[32];
	snprintf(text, sizeof(text), "10.0.0.%u", host + 1);
	(void)neap_sockaddr_from_numeric(text, port, address_p);
}

static int end_peer_address(struct neap_stream *stream, struct neap_sockaddr *address_p)
{
	struct sim_endpoint *end = endpoint_of(stream);
	make_address(end->connection->hosts[1 - end->side], end->side == 0 ? end->connection->port : 1, address_p);
	return 0;
}

static const struct neap_stream_ops stream_ops = {
	.readv = end_readv,
	.writev = end_writev,
	.want = end_want,
	.shutdown_write = end_shutdown_write,
	.low_water = end_low_water,
	.unacknowledged = end_unacknowledged,
	.close = end_close,
	.local_address = end_local_address,
	.peer_address = end_peer_address,
};

static struct sim_endpoint *endpoint_create(struct sim_connection *connection, int side, struct sim_node *node)
{
	struct sim *sim = connection->sim;
	struct sim_endpoint *end = calloc(1, sizeof(*end));
	if (!end)
		abort();
	end->stream.ops = &stream_ops;
	end->stream.reactor = node->reactor;
	end->again.run = run_endpoint;
	end->reap.reap = reap_endpoint;
	end->connection = connection;
	end->node = node;
	end->side = side;
	end->low_water = 1;
	end->window = sim->net.window_min + (uint32_t)sim_random_below(net_random(sim), sim->net.window_max - sim->net.window_min + 1);
	end->received = malloc(end->window);
	if (!end->received)
		abort();
	make_address(node->host, side == 0 ? node->next_port++ : connection->port, &end->local);
	connection->ends[side] = end;
	return end;
}

/* --- the net ------------------------------------------------------------------------------------------------------------------ */

/* 10.0.0.n to host n - 1; UINT32_MAX for anything else. */
static uint32_t host_of(const struct neap_sockaddr *address)
{
	uint32_t ip = ntohl(address->v4.sin_addr.s_addr);
	return address->any.sa_family == AF_INET && ip >> 8 == 0x0A0000 && (ip & 0xff) != 0 ? (ip & 0xff) - 1 : UINT32_MAX;
}

static struct neap_stream *net_connect(struct neap_net *net, struct neap_reactor *reactor, const struct neap_sockaddr *address,
                                       const struct neap_socket_options *options, int *error_p)
{
	(void)options;
	struct sim_node *node = (struct sim_node *)net;
	struct sim *sim = node->sim;
	uint32_t host = host_of(address);
	assert(reactor == node->reactor);
	if (host == UINT32_MAX || node->crashed) {
		*error_p = -ENETUNREACH;
		return NULL;
	}
	struct sim_connection *connection = calloc(1, sizeof(*connection));
	if (!connection)
		abort();
	connection->sim = sim;
	connection->tail[0] = &connection->first[0];
	connection->tail[1] = &connection->first[1];
	connection->hosts[0] = node->host;
	connection->hosts[1] = host;
	connection->port = neap_sockaddr_port(address);
	connection->next = sim->connections_list;
	connection->slot = &sim->connections_list;
	if (connection->next)
		connection->next->slot = &connection->next;
	sim->connections_list = connection;
	sim->connections++;
	struct sim_endpoint *end = endpoint_create(connection, 0, node);
	end->phase = ENDPOINT_CONNECTING;
	end->wanted = NEAP_WRITABLE;
	if (!sim->severed[node->host][host]) /* a lost SYN is not repeated: the caller has a deadline */
		(void)send_segment(connection, 1, SEGMENT_SYN, 0);
	return &end->stream;
}

static int net_connect_result(struct neap_stream *stream)
{
	struct sim_endpoint *end = endpoint_of(stream);
	return end->phase == ENDPOINT_FAILED ? end->connect_error : end->phase == ENDPOINT_OPEN ? 0 : -EINPROGRESS;
}

static struct neap_stream *listener_accept(struct neap_listener *base, int *error_p)
{
	struct sim_listener *listener = (struct sim_listener *)base;
	if (listener->backlog_count == 0) {
		*error_p = -EAGAIN;
		return NULL;
	}
	struct sim_endpoint *end = listener->backlog[0];
	memmove(listener->backlog, listener->backlog + 1, --listener->backlog_count * sizeof(listener->backlog[0]));
	return &end->stream;
}

static void listener_touch(struct sim_listener *listener)
{
	if (listener->wanted && listener->backlog_count > 0 && !listener->node->crashed) {
		neap_ready_again(listener->node->reactor, &listener->again);
		sim_node_wake(listener->node);
	}
}

static void listener_want(struct neap_listener *base, bool wanted)
{
	struct sim_listener *listener = (struct sim_listener *)base;
	listener->wanted = wanted;
	listener_touch(listener);
}

static void run_listener(struct neap_ready *ready)
{
	struct sim_listener *listener = (struct sim_listener *)((char *)ready - offsetof(struct sim_listener, again));
	if (!listener->wanted || listener->closed || listener->backlog_count == 0)
		return;
	listener->listener.ready(&listener->listener);
	if (!listener->closed && listener->wanted && listener->backlog_count > 0)
		neap_ready_again(listener->node->reactor, &listener->again);
}

static void reap_listener(struct neap_reap *reap)
{
	free((char *)reap - offsetof(struct sim_listener, reap));
}

static void drop_backlog(struct sim_listener *listener, bool silent)
{
	for (uint32_t i = 0; i < listener->backlog_count; i++) {
		struct sim_endpoint *end = listener->backlog[i];
		if (!silent)
			say_goodbye(end, true);
		end->phase = ENDPOINT_CLOSED;
		free_endpoint(end);
	}
	listener->backlog_count = 0;
}

static void listener_close(struct neap_listener *base)
{
	struct sim_listener *listener = (struct sim_listener *)base;
	drop_backlog(listener, listener->node->crashed);
	listener->closed = true;
	for (struct sim_listener **slot = &listener->node->listeners; *slot; slot = &(*slot)->next)
		if (*slot == listener) {
			*slot = listener->next;
			break;
		}
	neap_ready_cancel(listener->node->reactor, &listener->again);
	neap_reap_later(listener->node->reactor, &listener->reap);
}

static int listener_local_address(struct neap_listener *base, struct neap_sockaddr *address_p)
{
	struct sim_listener *listener = (struct sim_listener *)base;
	make_address(listener->node->host, listener->port, address_p);
	return 0;
}

static const struct neap_listener_ops listener_ops = {
	.accept = listener_accept,
	.want = listener_want,
	.close = listener_close,
	.local_address = listener_local_address,
};

static struct neap_listener *net_listen(struct neap_net *net, struct neap_reactor *reactor, const struct neap_sockaddr *address,
                                        const struct neap_socket_options *options, int *error_p)
{
	(void)options;
	struct sim_node *node = (struct sim_node *)net;
	assert(reactor == node->reactor);
	uint16_t port = neap_sockaddr_port(address);
	if (port == 0)
		port = node->next_port++;
	if (node->crashed || find_listener(node->sim, node->host, port)) {
		*error_p = -EADDRINUSE;
		return NULL;
	}
	struct sim_listener *listener = calloc(1, sizeof(*listener));
	if (!listener)
		abort();
	listener->listener.ops = &listener_ops;
	listener->listener.reactor = reactor;
	listener->again.run = run_listener;
	listener->reap.reap = reap_listener;
	listener->node = node;
	listener->port = port;
	listener->next = node->listeners;
	node->listeners = listener;
	return &listener->listener;
}

struct neap_resolution {
	struct sim_node *node;
	neap_resolved_func *resolved;
	void *user;
	uint32_t host;
	uint16_t port;
	bool known, canceled;
};

static void resolve_answer(struct sim *sim, void *user, uint64_t argument)
{
	(void)sim, (void)argument;
	struct neap_resolution *resolution = user;
	if (!resolution->canceled && !resolution->node->crashed) {
		struct neap_sockaddr address;
		make_address(resolution->host, resolution->port, &address);
		resolution->resolved(resolution->user, resolution->known ? NEAP_OK : NEAP_EDNS, resolution->known ? "" : "no such host",
		                     &address, resolution->known ? 1 : 0);
		sim_node_wake(resolution->node);
	}
	free(resolution);
}

/* "sim3" is host 3. */
static struct neap_resolution *net_resolve(struct neap_net *net, struct neap_reactor *reactor, const char *host, uint16_t port,
                                           int family, neap_resolved_func *resolved, void *user, int *error_p)
{
	(void)reactor, (void)family, (void)error_p;
	struct sim_node *node = (struct sim_node *)net;
	struct neap_resolution *resolution = calloc(1, sizeof(*resolution));
	if (!resolution)
		abort();
	*resolution = (struct neap_resolution){.node = node, .resolved = resolved, .user = user, .port = port};
	resolution->known = sscanf(host, "sim%u", &resolution->host) == 1;
	sim_after(node->sim, node->sim->net.delay_max_ns, resolve_answer, resolution, 0);
	return resolution;
}

static void net_resolve_cancel(struct neap_resolution *resolution)
{
	resolution->canceled = true;
}

void sim_net_init(struct sim_node *node)
{
	node->net = (struct neap_net){
		.connect = net_connect,
		.connect_result = net_connect_result,
		.listen = net_listen,
		.resolve = net_resolve,
		.resolve_cancel = net_resolve_cancel,
		.descriptor_ready = node->sim->descriptor_ready,
	};
}

void sim_net_close_node(struct sim_node *node, bool silent)
{
	struct sim *sim = node->sim;
	for (struct sim_connection *connection = sim->connections_list, *next; connection; connection = next) {
		next = connection->next;
		for (int side = 0; side < 2; side++) {
			struct sim_endpoint *end = connection->ends[side];
			if (!end || end->node != node || end->phase == ENDPOINT_CLOSED)
				continue;
			if (!silent)
				say_goodbye(end, false);
			end->phase = ENDPOINT_CLOSED;
			end->host_dead = silent;
		}
	}
}

bool sim_cut_one(struct sim *sim, uint32_t host_a, uint32_t host_b, bool loses)
{
	struct sim_connection *candidates[256];
	uint32_t count = 0;
	for (struct sim_connection *c = sim->connections_list; c && count < 256; c = c->next)
		if ((c->hosts[0] == host_a && c->hosts[1] == host_b) || (c->hosts[0] == host_b && c->hosts[1] == host_a))
			candidates[count++] = c;
	if (count == 0)
		return false;
	struct sim_connection *connection = candidates[sim_random_below(&sim->random[SIM_FAULTS], count)];
	sim->cuts++;
	for (int side = 0; side < 2; side++) {
		struct sim_endpoint *end = connection->ends[side];
		if (!end || end->phase != ENDPOINT_OPEN)
			continue;
		take_reset(end);
		if (loses)
			end->have = 0;
	}
	return true;
}

void sim_net_destroy(struct sim *sim)
{
	for (size_t i = 0; i < sim->heap_count; i++)
		if (sim->heap[i].run == resolve_answer)
			free(sim->heap[i].user);
	while (sim->connections_list) {
		struct sim_connection *connection = sim->connections_list;
		sim->connections_list = connection->next;
		for (int side = 0; side < 2; side++) {
			while (connection->first[side])
				free(take_segment(connection, side));
			if (connection->ends[side]) {
				free(connection->ends[side]->received);
				free(connection->ends[side]);
			}
		}
		free(connection);
	}
}
