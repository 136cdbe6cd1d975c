/* What an endpoint tells its peer, and what it makes of the answers. docs/WIRE.md "Connection". */
#include "transports/rdma/endpoint_inside.h"
#include "metadata/descriptor.h"
#include "metadata/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MTU_LEAST 256u
#define SHOWN_MAX 160u

/* --- messages ------------------------------------------------------------------------------------------------------------------- */

void rdma_local_path(const struct rdma_endpoint *endpoint, char path[NEAP_RDMA_NIC_PATH_MAX])
{
	const struct neap_rdma_endpoint *base = &endpoint->base;
	int length = snprintf(path, NEAP_RDMA_NIC_PATH_MAX, "%s@%s", base->endpoints->local_server, base->queue->device->name);
	if (length < 0)
		path[0] = '\0';
}

/* The message's texts belong to others: encoders only read them. */
static char *borrowed(const char *text)
{
	return (char *)(uintptr_t)text;
}

void rdma_message_empty(struct rdma_message *message, const char *reply_msg)
{
	message->message = (struct neap_connection_message){0};
	message->message.local_nic_path = message->message.peer_nic_path = message->message.payload = borrowed("");
	message->message.reply_msg = borrowed(reply_msg);
}

static void fill_extra(const struct rdma_endpoint *endpoint, struct neap_connection_extra *neap)
{
	neap->present = true;
	memcpy(neap->instance, endpoint->base.endpoints->instance, sizeof neap->instance);
	neap->address = endpoint->base.endpoints->options.address;
	neap->mtu_bytes = endpoint->own_mtu_bytes;
	neap->depth = endpoint->own_depth;
	neap->reads = endpoint->own_reads;
	neap->epoch = endpoint->epoch;
	neap->fence = endpoint->base.endpoints->fences_ever;
	neap->psn_count = endpoint->made;
	for (uint32_t i = 0; i < endpoint->made; i++)
		neap->psns[i] = endpoint->work.send_psns[i];
}

void rdma_message_of(struct rdma_endpoint *endpoint, bool neap, struct rdma_message *message)
{
	const struct neap_rdma_view *view = &endpoint->base.queue->device->view;
	struct neap_connection_message *out = &message->message;
	rdma_message_empty(message, "");
	rdma_local_path(endpoint, message->local_path);
	out->local_nic_path = message->local_path;
	out->peer_nic_path = endpoint->base.path;
	out->has_gid = true;
	memcpy(out->local_gid, view->gid.gid, sizeof out->local_gid);
	out->local_lid = (uint16_t)view->port.lid;
	out->has_ready_ack = true;
	out->qp_count = endpoint->made;
	for (uint32_t i = 0; i < endpoint->made; i++)
		out->qp_nums[i] = endpoint->base.qps[i].number;
	if (neap)
		fill_extra(endpoint, &out->neap);
}

/* --- the peer's half ------------------------------------------------------------------------------------------------------------ */

bool rdma_half_same(const struct rdma_half *peer, const struct neap_connection_message *message)
{
	if (peer->count != message->qp_count || peer->is_neap != message->neap.present)
		return false;
	if (peer->is_neap && memcmp(peer->instance, message->neap.instance, sizeof peer->instance) != 0)
		return false;
	uint32_t kept = peer->count < NEAP_RDMA_QPS_MAX ? peer->count : NEAP_RDMA_QPS_MAX;
	return memcmp(peer->numbers, message->qp_nums, kept * sizeof peer->numbers[0]) == 0;
}

static bool is_zero(const uint8_t gid[16])
{
	static const uint8_t none[16];
	return memcmp(gid, none, sizeof none) == 0;
}

static enum rdma_verdict take_gid(struct rdma_endpoint *endpoint, const struct neap_connection_message *message, char *why, size_t why_size)
{
	struct rdma_half *peer = &endpoint->peer;
	if (message->bad_gid[0]) {
		snprintf(why, why_size, "Invalid peer GID: %s", message->bad_gid);
		return RDMA_WRONG;
	}
	if (!message->has_gid && (!endpoint->has_target || is_zero(endpoint->target.gid))) {
		snprintf(why, why_size, "Peer nic not found in that server: %s", endpoint->base.path);
		return RDMA_UNKNOWN;
	}
	memcpy(peer->gid, message->has_gid ? message->local_gid : endpoint->target.gid, sizeof peer->gid);
	return RDMA_TAKEN;
}

/* Equal counts where the other end wants that; Neap peers use what both have. */
static bool count_fits(const struct rdma_endpoint *endpoint, const struct neap_connection_message *message)
{
	return message->neap.present ? message->qp_count > 0 : message->qp_count == endpoint->base.endpoints->options.qps;
}

static bool extra_fits(const struct rdma_endpoint *endpoint, const struct neap_connection_message *message)
{
	uint32_t own = endpoint->base.endpoints->options.qps, used = message->qp_count < own ? message->qp_count : own;
	return !message->neap.present || (message->neap.psn_count >= used && message->neap.mtu_bytes >= MTU_LEAST);
}

/* Who was asked by the peer has no other. */
static void take_address(struct rdma_endpoint *endpoint, const struct neap_connection_message *message)
{
	if (endpoint->has_target || !message->neap.address.host[0])
		return;
	endpoint->target.address = message->neap.address;
	endpoint->has_address = true;
}

enum rdma_verdict rdma_half_take(struct rdma_endpoint *endpoint, const struct neap_connection_message *message, char *why, size_t why_size)
{
	struct rdma_half *peer = &endpoint->peer;
	if (!count_fits(endpoint, message)) {
		snprintf(why, why_size, "QP count mismatch in peer and local endpoints, check MC_MAX_EP_PER_CTX");
		return RDMA_WRONG;
	}
	if (!extra_fits(endpoint, message)) {
		snprintf(why, why_size, "neap: a path MTU below %u, or fewer sequence numbers than queue pairs", MTU_LEAST);
		return RDMA_WRONG;
	}
	enum rdma_verdict verdict = take_gid(endpoint, message, why, why_size);
	if (verdict != RDMA_TAKEN)
		return verdict;
	peer->known = true;
	peer->is_neap = message->neap.present;
	peer->has_ready_ack = message->has_ready_ack;
	peer->lid = message->local_lid;
	peer->count = message->qp_count;
	peer->mtu_bytes = message->neap.mtu_bytes;
	peer->depth = message->neap.depth;
	peer->reads = message->neap.reads;
	peer->epoch = message->neap.epoch;
	endpoint->base.peer_fence = message->neap.fence;
	memcpy(peer->instance, message->neap.instance, sizeof peer->instance);
	memcpy(peer->numbers, message->qp_nums, sizeof peer->numbers);
	memcpy(peer->psns, message->neap.psns, sizeof peer->psns);
	take_address(endpoint, message);
	return RDMA_TAKEN;
}

/* --- calls ---------------------------------------------------------------------------------------------------------------------- */

void rdma_hang_up(struct rdma_endpoint *endpoint)
{
	neap_handshake_cancel(endpoint->base.endpoints->caller, endpoint->call);
	endpoint->call = 0;
}

static int call(struct rdma_endpoint *endpoint, const struct rdma_message *message, neap_handshake_done_func *done)
{
	const struct neap_rdma_endpoints *endpoints = endpoint->base.endpoints;
	char *json;
	size_t length;
	int error = neap_connection_encode(&message->message, &json, &length);
	if (error)
		return error;
	error = neap_handshake_call(endpoints->caller, &endpoint->target.address, NEAP_HANDSHAKE_CONNECTION, json, length,
	                            endpoints->options.handshake_timeout_ns, done, endpoint, &endpoint->call);
	free(json);
	return error;
}

/* An answer, or why there is none. */
struct heard {
	bool ok;
	enum neap_cause cause;
	struct neap_connection_message reply; /* to be freed when ok */
	char why[NEAP_RDMA_WHY_SIZE];
};

static void hear(struct heard *heard, int error, const char *json, size_t length, const char *why)
{
	char shown[SHOWN_MAX];
	*heard = (struct heard){.cause = error == NEAP_ETIMEDOUT ? NEAP_CAUSE_CONNECT_TIMEOUT : NEAP_CAUSE_CONNECT_FAILED};
	snprintf(heard->why, sizeof heard->why, "%s", why);
	if (error)
		return;
	if (neap_connection_decode(json, length, &heard->reply, shown, sizeof shown)) {
		heard->cause = NEAP_CAUSE_PROTOCOL;
		snprintf(heard->why, sizeof heard->why, "the handshake's reply is not valid: %s", shown);
		return;
	}
	heard->ok = heard->reply.reply_msg[0] == '\0'; /* before anything else: the rest may look well in a refusal */
	if (heard->ok)
		return;
	(void)neap_json_printable(heard->reply.reply_msg, strlen(heard->reply.reply_msg), shown, sizeof shown);
	snprintf(heard->why, sizeof heard->why, "the peer refused the handshake: %s", shown);
	neap_connection_free(&heard->reply);
}

static void failed(struct rdma_endpoint *endpoint, enum neap_cause cause, const char *why)
{
	if (rdma_endpoint_leave(endpoint, cause, why))
		neap_step(&endpoint->base.machine, rdma_endpoint_on_FAILED, 0);
}

/* --- asking for a connection */

/* What the descriptor told of the peer, against who has answered. */
static bool is_whom_we_wanted(const struct rdma_endpoint *endpoint, const struct neap_connection_message *reply)
{
	const struct neap_rdma_target *target = &endpoint->target;
	return !target->is_neap || (reply->neap.present && memcmp(target->instance, reply->neap.instance, sizeof target->instance) == 0);
}

static void take_answer(struct rdma_endpoint *endpoint, struct heard *heard)
{
	const struct neap_connection_message *reply = &heard->reply;
	char local_path[NEAP_RDMA_NIC_PATH_MAX], why[NEAP_RDMA_WHY_SIZE];
	rdma_local_path(endpoint, local_path);
	if (strcmp(reply->local_nic_path, endpoint->base.path) != 0 || strcmp(reply->peer_nic_path, local_path) != 0) {
		failed(endpoint, NEAP_CAUSE_PROTOCOL, "the handshake's reply is about other paths: is RDMA switched on there?");
	} else if (!is_whom_we_wanted(endpoint, reply)) {
		failed(endpoint, NEAP_CAUSE_OTHER_INSTANCE, "another process answers at the peer's address");
	} else if (rdma_half_take(endpoint, reply, why, sizeof why) != RDMA_TAKEN) {
		failed(endpoint, NEAP_CAUSE_CONNECT_FAILED, why);
	} else {
		endpoint->answered = true;
		endpoint->ack_wanted = reply->has_ready_ack;
		neap_step(&endpoint->base.machine, rdma_endpoint_on_ANSWERED, 0);
	}
}

/* The peer had asked meanwhile: its answer says the same, or it speaks of another life. */
static void take_late_answer(struct rdma_endpoint *endpoint, const struct neap_connection_message *reply)
{
	if (!rdma_half_same(&endpoint->peer, reply)) {
		rdma_endpoint_fail(endpoint, NEAP_CAUSE_PEER_RESET, "the peer asked with other queue pairs than it answered with");
		return;
	}
	endpoint->answered = true;
	endpoint->ack_wanted = reply->has_ready_ack;
	if (endpoint->base.machine.state == rdma_endpoint_AWAITING_ACK)
		neap_step(&endpoint->base.machine, endpoint->ack_wanted ? rdma_endpoint_on_ANSWERED : rdma_endpoint_on_ACKED, 0);
}

static bool is_v4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	return memcmp(gid, mapped, sizeof mapped) == 0;
}

/* Then the peer may have none from which ours is reached, and we another. Where it is not, the peer tries others of its own. */
static bool is_of_another_family(const struct rdma_endpoint *endpoint)
{
	return endpoint->has_target && !is_zero(endpoint->target.gid) && is_v4(endpoint->target.gid) != is_v4(endpoint->base.queue->gid.gid);
}

static void asked_done(void *user, int error, const char *json, size_t length, const char *why)
{
	struct rdma_endpoint *endpoint = user;
	struct heard heard;
	endpoint->call = 0;
	if (endpoint->base.leaving)
		return;
	hear(&heard, error, json, length, why);
	if (heard.ok && endpoint->peer.known)
		take_late_answer(endpoint, &heard.reply);
	else if (heard.ok)
		take_answer(endpoint, &heard);
	else if (!endpoint->peer.known) { /* else the peer's own request has connected us, and this one was not needed */
		if (is_of_another_family(endpoint) && strstr(heard.why, "modify QP to " RDMA_TO_RTR))
			rdma_endpoint_doubt_gid(endpoint);
		failed(endpoint, heard.cause, heard.why);
	}
	if (heard.ok)
		neap_connection_free(&heard.reply);
}

/* From an action: FAILED is its own follow-up. */
static void call_or_fail(struct rdma_endpoint *endpoint, const struct rdma_message *message, neap_handshake_done_func *done)
{
	char why[NEAP_RDMA_WHY_SIZE];
	int error = endpoint->has_target ? call(endpoint, message, done) : NEAP_EADDRESS;
	if (!error)
		return;
	snprintf(why, sizeof why, "the handshake cannot begin: %s", neap_error_text(error));
	failed(endpoint, NEAP_CAUSE_CONNECT_FAILED, why);
}

void rdma_call_ask(struct rdma_endpoint *endpoint)
{
	struct rdma_message message;
	rdma_message_of(endpoint, true, &message);
	call_or_fail(endpoint, &message, asked_done);
}

/* --- telling that we are connected */

static void acked_done(void *user, int error, const char *json, size_t length, const char *why)
{
	struct rdma_endpoint *endpoint = user;
	struct heard heard;
	endpoint->call = 0;
	if (endpoint->base.leaving)
		return;
	hear(&heard, error, json, length, why);
	if (heard.ok) {
		neap_connection_free(&heard.reply);
		neap_step(&endpoint->base.machine, rdma_endpoint_on_ACKED, 0);
	} else {
		failed(endpoint, heard.cause, heard.why);
	}
}

void rdma_call_ack(struct rdma_endpoint *endpoint)
{
	struct rdma_message message;
	rdma_message_of(endpoint, true, &message);
	message.message.ready_ack = true;
	call_or_fail(endpoint, &message, acked_done);
}

/* --- asking for the end of the peer's half */

static void fence_done(void *user, int error, const char *json, size_t length, const char *why)
{
	struct rdma_endpoint *endpoint = user;
	struct heard heard;
	endpoint->call = 0;
	hear(&heard, error, json, length, why);
	if (heard.ok) {
		const struct neap_connection_extra *neap = &heard.reply.neap;
		endpoint->fenced = neap->present && memcmp(neap->instance, endpoint->peer.instance, sizeof neap->instance) == 0;
		neap_connection_free(&heard.reply);
	}
	neap_step(&endpoint->base.machine, rdma_endpoint_on_CALLED, endpoint->fenced);
}

void rdma_call_fence(struct rdma_endpoint *endpoint)
{
	struct rdma_message message;
	rdma_message_of(endpoint, true, &message);
	message.message.has_ready_ack = false;
	message.message.neap.retire = true;
	if (call(endpoint, &message, fence_done))
		(void)neap_post_first(&endpoint->base.machine, rdma_endpoint_on_CALLED, 0);
}
