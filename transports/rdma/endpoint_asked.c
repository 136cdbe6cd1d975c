/* What peers ask endpoints for: connections, acks, ends. Texts and shapes of the refusals are the reference's (rdma-observed 2) where it
 * has such a case. Filled ones carry no queue pair numbers: those of the reference are of queue pairs that it has destroyed already. */
#include "transports/rdma/endpoint_inside.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX (4 * NEAP_RDMA_NIC_PATH_MAX)

/* --- answers that were kept ----------------------------------------------------------------------------------------------------- */

static void answer(const struct rdma_endpoint *endpoint, uint64_t ticket, const struct rdma_message *message)
{
	const struct neap_rdma_answers *answers = &endpoint->base.endpoints->answers;
	answers->answer(answers->user, ticket, &message->message);
}

/* To all that ask for this. */
static void answer_all(struct rdma_endpoint *endpoint, bool retire, const struct rdma_message *message)
{
	uint32_t kept = 0, count = endpoint->ticket_count;
	for (uint32_t i = 0; i < count; i++) {
		struct rdma_ticket ticket = endpoint->tickets[i];
		if (ticket.retire != retire)
			endpoint->tickets[kept++] = ticket;
		else
			answer(endpoint, ticket.id, message);
	}
	endpoint->ticket_count = kept;
}

void rdma_answer_connected(struct rdma_endpoint *endpoint)
{
	struct rdma_message message;
	rdma_message_of(endpoint, endpoint->peer.is_neap, &message);
	answer_all(endpoint, false, &message);
}

void rdma_answer_refused(struct rdma_endpoint *endpoint, const char *text, bool filled)
{
	struct rdma_message message;
	if (endpoint->ticket_count == 0)
		return;
	rdma_message_of(endpoint, endpoint->peer.is_neap, &message);
	message.message.qp_count = message.message.neap.psn_count = 0;
	if (!filled)
		rdma_message_empty(&message, text);
	message.message.reply_msg = (char *)(uintptr_t)text;
	answer_all(endpoint, false, &message);
}

/* Who answers is said too: it is a promise of this process. */
static void message_of_the_end(const struct neap_rdma_endpoints *endpoints, struct rdma_message *message)
{
	rdma_message_empty(message, "");
	message->message.neap.present = true;
	memcpy(message->message.neap.instance, endpoints->instance, sizeof endpoints->instance);
}

void rdma_answer_retired(struct rdma_endpoint *endpoint)
{
	struct rdma_message message;
	if (endpoint->ticket_count == 0)
		return;
	if (endpoint->destroy_tries < RDMA_DESTROY_TRIES)
		message_of_the_end(endpoint->base.endpoints, &message);
	else
		rdma_message_empty(&message, "a queue pair cannot be destroyed here: it stays until the process ends");
	answer_all(endpoint, true, &message);
}

static void keep(struct rdma_endpoint *endpoint, uint64_t ticket, bool retire)
{
	if (endpoint->ticket_count == RDMA_TICKETS_MAX) {
		struct rdma_message message;
		rdma_message_empty(&message, "too many handshakes wait for this endpoint; the oldest is given up");
		answer(endpoint, endpoint->tickets[0].id, &message);
		memmove(endpoint->tickets, endpoint->tickets + 1, (RDMA_TICKETS_MAX - 1) * sizeof endpoint->tickets[0]);
		endpoint->ticket_count--;
	}
	endpoint->tickets[endpoint->ticket_count++] = (struct rdma_ticket){ticket, retire};
}

/* --- answers at once ------------------------------------------------------------------------------------------------------------ */

/* The service frees what a reply holds. */
NEAP_PRINTF(2, 3) static int refuse(struct neap_connection_message *reply, const char *format, ...)
{
	struct rdma_message message;
	char text[TEXT_MAX];
	va_list list;
	va_start(list, format);
	(void)vsnprintf(text, sizeof text, format, list);
	va_end(list);
	rdma_message_empty(&message, text);
	return neap_connection_copy(&message.message, reply);
}

/* One request, while it is looked at. */
struct asked {
	struct neap_rdma_endpoints *endpoints;
	uint64_t ticket;
	const struct neap_connection_message *request;
	struct neap_connection_message *reply;
	struct rdma_place *place;
	struct rdma_endpoint *endpoint; /* the latest of the path; NULL: none */
};

/* All but the queue pairs filled in. */
static int refuse_filled(const struct asked *asked, const char *text)
{
	const struct neap_rdma_view *view = &asked->place->queue->device->view;
	struct rdma_message message;
	struct neap_connection_message *out = &message.message;
	rdma_message_empty(&message, text);
	out->local_nic_path = asked->request->peer_nic_path;
	out->peer_nic_path = asked->request->local_nic_path;
	out->has_gid = out->has_ready_ack = true;
	memcpy(out->local_gid, view->gid.gid, sizeof out->local_gid);
	out->local_lid = (uint16_t)view->port.lid;
	return neap_connection_copy(&message.message, asked->reply);
}

static const char *nic_of(const char *path)
{
	const char *at = strchr(path, '@');
	return at ? at + 1 : NULL;
}

/* --- acks ----------------------------------------------------------------------------------------------------------------------- */

static int on_ack(const struct asked *asked)
{
	struct rdma_endpoint *endpoint = asked->endpoint;
	struct rdma_message message;
	if (!endpoint || endpoint->base.leaving || !endpoint->connected)
		return refuse(asked->reply, "Received RDMA ready ACK for unconnected endpoint");
	if (!rdma_half_same(&endpoint->peer, asked->request))
		return refuse(asked->reply, "Received stale RDMA ready ACK with mismatched peer QP numbers");
	if (endpoint->base.machine.state == rdma_endpoint_AWAITING_ACK)
		neap_step(&endpoint->base.machine, rdma_endpoint_on_ACKED, 0);
	rdma_message_empty(&message, "");
	return neap_connection_copy(&message.message, asked->reply);
}

/* --- ends ----------------------------------------------------------------------------------------------------------------------- */

/* Connected with that life of the sender's endpoint, or an earlier one. */
static bool is_meant(const struct rdma_endpoint *endpoint, const struct neap_connection_extra *neap)
{
	const struct rdma_half *peer = &endpoint->peer;
	return peer->known && peer->is_neap && peer->epoch <= neap->epoch &&
	       memcmp(peer->instance, neap->instance, sizeof peer->instance) == 0;
}

/* Only the eldest of a path has queue pairs that may be connected: those behind it wait for its end. */
static int on_retire(const struct asked *asked)
{
	struct rdma_endpoint *before, *eldest = NULL;
	struct rdma_message message;
	(void)rdma_guests_drop(asked->endpoints, asked->request);
	for (struct rdma_endpoint *endpoint = asked->endpoint; endpoint; endpoint = before) {
		before = endpoint->before;
		if (is_meant(endpoint, &asked->request->neap))
			eldest = endpoint;
	}
	if (eldest)
		keep(eldest, asked->ticket, true);
	for (struct rdma_endpoint *endpoint = asked->endpoint; endpoint; endpoint = before) {
		before = endpoint->before;
		if (is_meant(endpoint, &asked->request->neap))
			rdma_endpoint_fail(endpoint, NEAP_CAUSE_PEER_CLOSED, "the peer has ended its half and asked for the end of ours");
	}
	if (eldest)
		return NEAP_HANDSHAKE_LATER;
	message_of_the_end(asked->endpoints, &message);
	return neap_connection_copy(&message.message, asked->reply);
}

/* --- connections ---------------------------------------------------------------------------------------------------------------- */

/* The endpoint takes the peer's half, and the request waits until it is connected. */
static int take_and_keep(const struct asked *asked, struct rdma_endpoint *endpoint)
{
	endpoint->chances |= 3; /* the peer may send over it, which cannot be seen here */
	keep(endpoint, asked->ticket, false);
	if (endpoint->base.machine.state == rdma_endpoint_ASKING)
		neap_step(&endpoint->base.machine, rdma_endpoint_on_TOLD, 0);
	return NEAP_HANDSHAKE_LATER;
}

static int begin(const struct asked *asked)
{
	char why[NEAP_RDMA_WHY_SIZE];
	bool first = asked->endpoints->waiting == 0 || asked->endpoints->served;
	if (!first || !rdma_admit(asked->endpoints, asked->place))
		return rdma_guest_wait(asked->endpoints, asked->place, asked->ticket, asked->request) ? NEAP_HANDSHAKE_LATER
		                                                                                       : refuse(asked->reply, RDMA_CROWDED);
	struct rdma_endpoint *endpoint = rdma_endpoint_begin(asked->endpoints, asked->place, asked->request->local_nic_path);
	if (!endpoint)
		return refuse(asked->reply, "too many endpoints here (MC_MAX_EP_PER_CTX)");
	uint8_t event = endpoint->before ? rdma_endpoint_on_FOLLOW : rdma_endpoint_on_START;
	(void)rdma_half_take(endpoint, asked->request, why, sizeof why); /* it was looked at before */
	int answer = take_and_keep(asked, endpoint);
	neap_step(&endpoint->base.machine, event, 0);
	return answer;
}

static int on_known_peer(const struct asked *asked)
{
	struct rdma_endpoint *endpoint = asked->endpoint;
	const struct neap_connection_message *request = asked->request;
	struct rdma_half *peer = &endpoint->peer;
	struct rdma_message message;
	char why[NEAP_RDMA_WHY_SIZE];
	bool same_life = peer->is_neap && request->neap.present &&
	                 memcmp(peer->instance, request->neap.instance, sizeof peer->instance) == 0;
	if (rdma_half_same(peer, request)) {
		if (!endpoint->connected)
			return take_and_keep(asked, endpoint);
		rdma_message_of(endpoint, peer->is_neap, &message);
		return neap_connection_copy(&message.message, asked->reply);
	}
	if (same_life && request->neap.epoch < peer->epoch)
		return refuse(asked->reply, RDMA_STALE);
	if (endpoint->base.machine.state <= rdma_endpoint_MAKING) { /* nothing is connected yet: with the newer ones, then */
		rdma_answer_refused(endpoint, "another request with other queue pairs has come meanwhile", false);
		(void)rdma_half_take(endpoint, request, why, sizeof why);
		return take_and_keep(asked, endpoint);
	}
	rdma_endpoint_fail(endpoint, same_life || !peer->is_neap ? NEAP_CAUSE_PEER_RESET : NEAP_CAUSE_OTHER_INSTANCE,
	                   "the peer asks with other queue pairs: its half is gone");
	return begin(asked);
}

static int on_connection(const struct asked *asked)
{
	/* A stand-in for one that may have to be made: what is wrong with the request is found before anything is. */
	struct rdma_endpoint probe = {.base.endpoints = asked->endpoints};
	struct rdma_endpoint *endpoint = asked->endpoint;
	char why[NEAP_RDMA_WHY_SIZE + NEAP_RDMA_NIC_PATH_MAX];
	if (endpoint) {
		probe.has_target = endpoint->has_target;
		probe.target = endpoint->target;
	}
	snprintf(probe.base.path, sizeof probe.base.path, "%s", asked->request->local_nic_path);
	enum rdma_verdict verdict = rdma_half_take(&probe, asked->request, why, sizeof why);
	if (verdict != RDMA_TAKEN)
		return verdict == RDMA_WRONG ? refuse_filled(asked, why) : refuse(asked->reply, "%s", why);
	if (!rdma_guests_drop(asked->endpoints, asked->request))
		return refuse(asked->reply, RDMA_STALE);
	if (!endpoint || endpoint->base.leaving)
		return begin(asked);
	if (endpoint->peer.known)
		return on_known_peer(asked);
	(void)rdma_half_take(endpoint, asked->request, why, sizeof why);
	return take_and_keep(asked, endpoint);
}

int neap_rdma_endpoints_asked(struct neap_rdma_endpoints *endpoints, uint64_t ticket, const struct neap_connection_message *request,
                              struct neap_connection_message *reply)
{
	char local_path[NEAP_RDMA_NIC_PATH_MAX + NEAP_TOPOLOGY_NAME_SIZE];
	const char *nic = nic_of(request->peer_nic_path);
	if (endpoints->closing)
		return refuse(reply, "Local RDMA endpoint unavailable: the engine closes");
	if (!nic)
		return refuse(reply, "Invalid peer_nic_path in handshake: %s", request->peer_nic_path);
	struct rdma_place *place = rdma_place_named(endpoints, nic);
	if (!place)
		return refuse(reply, "Local RDMA context not found for handshake NIC: %s", nic);
	if (!nic_of(request->local_nic_path) || strlen(request->local_nic_path) >= NEAP_RDMA_NIC_PATH_MAX)
		return refuse(reply, "Parse peer nic path failed: %s", request->local_nic_path);
	struct asked asked = {endpoints, ticket, request, reply, place, rdma_map_find(endpoints, place, request->local_nic_path)};
	snprintf(local_path, sizeof local_path, "%s@%s", endpoints->local_server, nic);
	if (strcmp(local_path, request->peer_nic_path) != 0)
		return refuse(reply, "Invalid argument: peer nic path inconsistency, expect %s + %s, while got %s + %s", local_path,
		              request->local_nic_path, request->peer_nic_path, request->local_nic_path);
	if (request->neap.present && request->neap.retire)
		return on_retire(&asked);
	if (!place->queue->usable)
		return refuse(reply, "Local RDMA endpoint unavailable for %s <- %s", nic, request->local_nic_path);
	return request->has_ready_ack && request->ready_ack ? on_ack(&asked) : on_connection(&asked);
}
