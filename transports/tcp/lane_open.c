/* Opening a lane: the connection, then the hello of a Neap peer or the confirmation of a plain one. */
#include "transports/tcp/peer.h"

#include <errno.h>

#define NS_PER_MS 1000000u

static struct neap_tcp_lane *lane_of(struct neap_machine *machine)
{
	return (struct neap_tcp_lane *)(void *)machine;
}

static struct neap_reactor *reactor_of(const struct neap_tcp_lane *lane)
{
	return lane->peer->initiator->reactor;
}

/* --- hello -------------------------------------------------------------------------------------------------------------------- */

static void send_hello(struct neap_tcp_lane *lane)
{
	const struct neap_tcp_peer *peer = lane->peer;
	const struct neap_engine_core_view *view = peer->initiator->view;
	struct neap_hello hello = {
		.level = NEAP_WIRE_LEVEL,
		.flags = view->options->checksum ? NEAP_HELLO_CHECKSUM : 0,
		.lane = lane->id,
		.fence_lane = lane->fence,
		.core = lane->core,
	};
	unsigned char bytes[NEAP_HELLO_BYTES];
	memcpy(hello.client, view->instance, sizeof hello.client);
	memcpy(hello.expected_server, lane->instance, sizeof hello.expected_server);
	neap_hello_put(bytes, &hello);
	struct iovec vector = {.iov_base = bytes + lane->greeting_at, .iov_len = NEAP_HELLO_BYTES - lane->greeting_at};
	ssize_t put = neap_stream_writev(lane->stream, &vector, 1);
	view->stats->system_calls_initiator++;
	if (put < 0 && put != -EAGAIN) {
		neap_lane_stream_failed(lane, (int)put);
		return;
	}
	lane->greeting_at += put > 0 ? (uint32_t)put : 0;
	lane->greeting_sent = lane->greeting_at == NEAP_HELLO_BYTES;
	if (lane->greeting_sent)
		lane->greeting_at = 0;
	neap_lane_want(lane, NEAP_READABLE | (lane->greeting_sent ? 0 : (unsigned)NEAP_WRITABLE));
}

static void turned_away(struct neap_tcp_lane *lane, enum neap_cause cause, int system_errno)
{
	lane->cause = (uint8_t)cause;
	neap_lane_over(lane, NEAP_LANE_TURNED_AWAY, system_errno);
}

static void judge_reply(struct neap_tcp_lane *lane, const struct neap_hello_reply *reply)
{
	uint32_t known = neap_peer_options(lane->peer)->checksum ? NEAP_HELLO_CHECKSUM : 0;
	switch (reply->code) {
	case NEAP_HELLO_OK:
		break;
	case NEAP_HELLO_OTHER_INSTANCE:
		turned_away(lane, NEAP_CAUSE_OTHER_INSTANCE, 0);
		return;
	case NEAP_HELLO_BUSY:
		turned_away(lane, NEAP_CAUSE_CONNECT_FAILED, EUSERS);
		return;
	default:
		turned_away(lane, NEAP_CAUSE_PROTOCOL, 0);
		return;
	}
	if (reply->level != NEAP_WIRE_LEVEL || (reply->flags & ~known) || memcmp(reply->server, lane->instance, sizeof lane->instance) != 0) {
		turned_away(lane, NEAP_CAUSE_PROTOCOL, 0);
		return;
	}
	lane->checksum = (reply->flags & NEAP_HELLO_CHECKSUM) != 0;
	if (lane->fence)
		neap_peer_fenced(lane->peer, lane->slot, reply->fenced_lane == lane->fence);
	neap_step(&lane->machine, tcp_lane_on_ACCEPTED, 0);
}

static void receive_reply(struct neap_tcp_lane *lane)
{
	struct iovec vector = {.iov_base = lane->hello_reply + lane->greeting_at, .iov_len = NEAP_HELLO_REPLY_BYTES - lane->greeting_at};
	ssize_t got = neap_stream_readv(lane->stream, &vector, 1);
	lane->peer->initiator->view->stats->system_calls_initiator++;
	if (got == -EAGAIN)
		return;
	if (got < 0) {
		neap_lane_stream_failed(lane, (int)got);
		return;
	}
	if (got == 0) {
		neap_lane_over(lane, NEAP_LANE_FIN, 0);
		return;
	}
	lane->greeting_at += (uint32_t)got;
	if (lane->greeting_at < NEAP_STATUS_BYTES)
		return;
	struct neap_hello_reply reply;
	int error = neap_hello_reply_get(lane->hello_reply, &reply);
	if (error) /* a plain server's status: somebody else lives here now */
		turned_away(lane, error == NEAP_ENOTSUP ? NEAP_CAUSE_OTHER_INSTANCE : NEAP_CAUSE_PROTOCOL, 0);
	else if (lane->greeting_at == NEAP_HELLO_REPLY_BYTES)
		judge_reply(lane, &reply);
}

/* --- opening ---------------------------------------------------------------------------------------------------------------- */

void neap_lane_greeting_ready(struct neap_tcp_lane *lane)
{
	if (!lane->greeting_sent)
		send_hello(lane);
	if (!lane->end && lane->greeting_sent)
		receive_reply(lane);
}

static enum neap_cause cause_of_connect(int error)
{
	switch (error) {
	case NEAP_EDNS:
		return NEAP_CAUSE_NAME_UNRESOLVED;
	case NEAP_ETIMEDOUT:
		return NEAP_CAUSE_CONNECT_TIMEOUT;
	default:
		return NEAP_CAUSE_CONNECT_FAILED;
	}
}

static void connected(struct neap_connect *connect, int error, int system_errno, struct neap_stream *stream)
{
	struct neap_tcp_lane *lane = connect->user;
	struct neap_tcp_initiator *initiator = lane->peer->initiator;
	if (error) {
		lane->cause = (uint8_t)cause_of_connect(error);
		neap_lane_over(lane, NEAP_LANE_UNREACHED, system_errno);
		return;
	}
	lane->stream = stream;
	stream->user = lane;
	stream->ready = neap_lane_stream_ready;
	initiator->connected++;
	initiator->view->stats->lanes = initiator->connected;
	neap_step(&lane->machine, lane->kind == NEAP_PEER_NEAP ? tcp_lane_on_CONNECTED_NEAP : tcp_lane_on_CONNECTED_PLAIN, 0);
}

static void confirmed(struct neap_segment_waiter *waiter, int error, const char *why)
{
	struct neap_tcp_lane *lane = (struct neap_tcp_lane *)(void *)((char *)waiter - offsetof(struct neap_tcp_lane, waiter));
	(void)why;
	lane->waiting = false;
	if (error) {
		lane->cause = NEAP_CAUSE_DESCRIPTOR_FAILED;
		neap_lane_over(lane, NEAP_LANE_UNCONFIRMED, 0);
	} else if (!neap_lane_still_right(lane)) {
		lane->cause = NEAP_CAUSE_OTHER_INSTANCE;
		neap_lane_over(lane, NEAP_LANE_DIFFERS, 0);
	} else {
		neap_step(&lane->machine, tcp_lane_on_ACCEPTED, 0);
	}
}

/* --- actions ---------------------------------------------------------------------------------------------------------------- */

uint64_t neap_lane_connect_timeout_ns(const struct neap_tcp_lane *lane)
{
	return (uint64_t)neap_peer_options(lane->peer)->connect_timeout_ms * NS_PER_MS;
}

/* What is left of the peer's connect budget, but enough for an attempt to be one. */
static uint64_t attempt_ns(const struct neap_tcp_lane *lane)
{
	const struct neap_tcp_peer *peer = lane->peer;
	uint64_t whole_ns = neap_lane_connect_timeout_ns(lane), least_ns = whole_ns / 4;
	if (peer->failures == 0)
		return whole_ns;
	uint64_t end_ns = peer->outage_ns + whole_ns;
	return end_ns > lane->started_ns + least_ns ? end_ns - lane->started_ns : least_ns;
}

void neap_lane_do_connect(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_lane *lane = lane_of(machine);
	struct neap_host_port target;
	(void)argument;
	int error = NEAP_EADDRESS;
	if (neap_peer_target(lane->peer, lane->slot, &target, &lane->core)) {
		lane->port = target.port;
		error = neap_connect_start(&lane->connect, reactor_of(lane), &target, &lane->peer->initiator->view->socket_options,
		                           attempt_ns(lane), connected, lane);
	}
	if (error) {
		lane->cause = error == NEAP_EADDRESS ? NEAP_CAUSE_DESCRIPTOR_FAILED : NEAP_CAUSE_CONNECT_FAILED;
		neap_lane_over(lane, NEAP_LANE_UNREACHED, 0);
	}
}

void neap_lane_do_greet(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	send_hello(lane_of(machine));
}

void neap_lane_do_confirm(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_lane *lane = lane_of(machine);
	(void)argument;
	neap_lane_want(lane, NEAP_READABLE);
	lane->waiting = true;
	int error = neap_segment_want_fresh(lane->peer->segment, &lane->waiter, neap_now(reactor_of(lane)), confirmed);
	if (error)
		confirmed(&lane->waiter, error, NULL);
}

void neap_lane_do_serve(struct neap_machine *machine, uint64_t argument)
{
	struct neap_tcp_lane *lane = lane_of(machine);
	(void)argument;
	lane->live = true;
	lane->moved_ns = neap_now(reactor_of(lane));
	lane->peer->initiator->view->stats->lanes_opened++;
	neap_lane_want(lane, NEAP_READABLE);
	neap_peer_wake(lane->peer);
}
