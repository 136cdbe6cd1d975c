/* Peers whose requests for connections found no room: they wait for a turn as our own paths do, in a line of their own beside ours.
 *
 * Not for long: at the other end a place waits with each of them, perhaps for one that waits for a place here. Who is not served in time
 * is refused, and tries again. */
#include "transports/rdma/endpoint_inside.h"
#include <string.h>

struct rdma_guest {
	struct neap_rdma_endpoint_user user; /* first; in the line, but while it is served */
	struct rdma_guest *next;
	struct neap_rdma_endpoints *endpoints;
	struct neap_timer patience;
	uint64_t ticket;
	struct neap_connection_message request; /* owned */
};

static void answer(const struct neap_rdma_endpoints *endpoints, uint64_t ticket, const struct neap_connection_message *reply)
{
	endpoints->answers.answer(endpoints->answers.user, ticket, reply);
}

static void refuse(const struct rdma_guest *guest, const char *text)
{
	struct rdma_message message;
	rdma_message_empty(&message, text);
	answer(guest->endpoints, guest->ticket, &message.message);
}

static void leave(struct rdma_guest *guest)
{
	struct neap_rdma_endpoints *endpoints = guest->endpoints;
	struct rdma_guest **at = &endpoints->guests;
	while (*at != guest)
		at = &(*at)->next;
	*at = guest->next;
	if (guest->user.line)
		rdma_line_leave(&guest->user);
	neap_timer_cancel(endpoints->reactor, &guest->patience);
	neap_connection_free(&guest->request);
	neap_pool_give(&endpoints->guest_pool, guest);
}

static void impatient(struct neap_timer *timer, void *user)
{
	struct rdma_guest *guest = user;
	(void)timer;
	refuse(guest, RDMA_CROWDED);
	leave(guest);
}

/* Its turn: the request is looked at as if it had come now. */
static void told(struct neap_rdma_endpoint_user *user, enum neap_rdma_news news)
{
	struct rdma_guest *guest = (struct rdma_guest *)(void *)user;
	struct neap_connection_message reply = {0};
	(void)news;
	int error = neap_rdma_endpoints_asked(guest->endpoints, guest->ticket, &guest->request, &reply);
	if (!error)
		answer(guest->endpoints, guest->ticket, &reply);
	else if (error != NEAP_HANDSHAKE_LATER)
		refuse(guest, neap_error_text(error));
	if (error != NEAP_HANDSHAKE_LATER)
		neap_connection_free(&reply);
	leave(guest);
}

static bool is_about(const struct rdma_guest *guest, const struct neap_connection_message *request)
{
	return strcmp(guest->request.local_nic_path, request->local_nic_path) == 0 &&
	       strcmp(guest->request.peer_nic_path, request->peer_nic_path) == 0;
}

static bool is_of_the_same(const struct rdma_guest *guest, const struct neap_connection_message *request)
{
	const struct neap_connection_extra *ours = &guest->request.neap, *theirs = &request->neap;
	return ours->present == theirs->present && memcmp(ours->instance, theirs->instance, sizeof ours->instance) == 0;
}

bool rdma_guests_drop(struct neap_rdma_endpoints *endpoints, const struct neap_connection_message *request)
{
	bool latest = true;
	for (struct rdma_guest *guest = endpoints->guests, *next; guest; guest = next) {
		next = guest->next;
		bool same = is_of_the_same(guest, request);
		if (&guest->request == request || !is_about(guest, request) || (request->neap.retire && !same))
			continue;
		if (same && guest->request.neap.epoch > request->neap.epoch) {
			latest = false;
			continue;
		}
		refuse(guest, "a later request of this path has come meanwhile");
		leave(guest);
	}
	return latest;
}

bool rdma_guest_wait(struct neap_rdma_endpoints *endpoints, struct rdma_place *place, uint64_t ticket,
                     const struct neap_connection_message *request)
{
	struct rdma_guest *guest = endpoints->served ? NULL : neap_pool_take(&endpoints->guest_pool);
	if (!guest)
		return false;
	*guest = (struct rdma_guest){.user.told = told, .next = endpoints->guests, .endpoints = endpoints, .ticket = ticket};
	if (neap_connection_copy(request, &guest->request)) {
		neap_pool_give(&endpoints->guest_pool, guest);
		return false;
	}
	endpoints->guests = guest;
	uint64_t until_ns = neap_now(endpoints->reactor) + endpoints->options.guest_ns;
	(void)neap_timer_start(endpoints->reactor, &guest->patience, until_ns, impatient, guest);
	rdma_line_join(&place->guests, place, &guest->user);
	return true;
}

void rdma_guests_end(struct neap_rdma_endpoints *endpoints, const char *why)
{
	while (endpoints->guests) {
		refuse(endpoints->guests, why);
		leave(endpoints->guests);
	}
}

int rdma_guests_create(struct neap_rdma_endpoints *endpoints)
{
	return neap_pool_create(&endpoints->guest_pool, endpoints->reactor, sizeof(struct rdma_guest), RDMA_GUESTS_MAX);
}
