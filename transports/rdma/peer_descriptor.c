/* What a peer's descriptor says of its devices and buffers, and what is known of our memory. */
#include "transports/rdma/peer.h"
#include "transports/rdma/rail_fsm.h"
#include <stdlib.h>
#include <string.h>

#define FEW_BUFFERS 16u
#define SEGMENTS "segments:"

/* --- buffers by address */

void neap_rdma_peer_forget_buffers(struct neap_rdma_peer *peer)
{
	neap_release(peer->initiator->reactor, peer->by_address, peer->by_address_count * sizeof *peer->by_address);
	peer->by_address = NULL;
	peer->by_address_count = 0;
}

static int by_address(const void *a, const void *b, void *buffers_)
{
	const struct neap_buffer_desc *buffers = buffers_;
	uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
	if (buffers[first].address != buffers[second].address)
		return buffers[first].address < buffers[second].address ? -1 : 1;
	return first < second ? -1 : first > second;
}

/* Without memory for it, they are searched one by one. */
static void sort_buffers(struct neap_rdma_peer *peer, const struct neap_descriptor *descriptor)
{
	neap_rdma_peer_forget_buffers(peer);
	if (descriptor->buffer_count <= FEW_BUFFERS)
		return;
	peer->by_address = neap_allocate(peer->initiator->reactor, descriptor->buffer_count * sizeof *peer->by_address);
	if (!peer->by_address)
		return;
	peer->by_address_count = descriptor->buffer_count;
	for (uint32_t i = 0; i < descriptor->buffer_count; i++)
		peer->by_address[i] = i;
	qsort_r(peer->by_address, descriptor->buffer_count, sizeof *peer->by_address, by_address, descriptor->buffers);
}

static bool holds(const struct neap_buffer_desc *buffer, const struct neap_descriptor *descriptor, uint64_t address)
{
	return address >= buffer->address && address - buffer->address < buffer->length && buffer->key_count == descriptor->device_count;
}

static int64_t find_one_by_one(const struct neap_descriptor *descriptor, uint64_t address)
{
	for (uint32_t i = 0; i < descriptor->buffer_count; i++)
		if (holds(&descriptor->buffers[i], descriptor, address))
			return i;
	return -1;
}

/* Buffers do not overlap, but for those of peers that do not mind: then the one that begins last is looked at. */
static int64_t find_buffer(const struct neap_rdma_peer *peer, const struct neap_descriptor *descriptor, uint64_t address)
{
	uint32_t low = 0, high = peer->by_address_count;
	if (!peer->by_address)
		return find_one_by_one(descriptor, address);
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (descriptor->buffers[peer->by_address[middle]].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low > 0 && holds(&descriptor->buffers[peer->by_address[low - 1]], descriptor, address))
		return peer->by_address[low - 1];
	return -1;
}

/* --- the descriptor */

/* What a path to the peer depends on, in one number (FNV-1a). */
static uint64_t print_of(const struct neap_descriptor *descriptor)
{
	uint64_t print = UINT64_C(14695981039346656037);
	for (uint32_t i = 0; i < descriptor->device_count; i++) {
		const struct neap_device_desc *device = &descriptor->devices[i];
		for (const char *at = device->name; *at; at++)
			print = (print ^ (unsigned char)*at) * UINT64_C(1099511628211);
		for (uint32_t k = 0; k < sizeof device->gid; k++)
			print = (print ^ device->gid[k]) * UINT64_C(1099511628211);
		print = (print ^ device->lid) * UINT64_C(1099511628211);
	}
	return print;
}

bool neap_rdma_peer_is_as_seen(const struct neap_rdma_peer *peer)
{
	const struct neap_descriptor *now = neap_rdma_descriptor(peer);
	return peer->seen && peer->seen_print == print_of(now) &&
	       memcmp(peer->instance, now->neap.instance, sizeof peer->instance) == 0;
}

static int64_t find_device(const struct neap_descriptor *descriptor, const char *nic)
{
	for (uint32_t i = 0; i < descriptor->device_count && i < NEAP_DEVICES_MAX; i++)
		if (strcmp(descriptor->devices[i].name, nic) == 0)
			return i;
	return -1;
}

static uint64_t bytes_of(const struct neap_rdma_piece_list *list)
{
	uint64_t bytes = 0;
	for (const struct neap_rdma_piece *piece = list->first; piece; piece = piece->next)
		bytes += piece->length;
	return bytes;
}

/* Bytes under way follow their device to its new index. */
static void renumber(struct neap_rdma_peer *peer, const struct neap_descriptor *descriptor)
{
	memset(peer->remote_bytes, 0, sizeof peer->remote_bytes);
	for (struct neap_rdma_rail *rail = peer->rails; rail; rail = rail->next) {
		int64_t index = find_device(descriptor, rail->nic);
		rail->stale = index < 0;
		if (index >= 0)
			rail->remote = (uint8_t)index;
		peer->remote_bytes[rail->remote] += bytes_of(&rail->pieces) + bytes_of(&rail->unchecked) + bytes_of(&rail->covered);
	}
}

static void end_stale(struct neap_rdma_peer *peer)
{
	struct neap_rdma_rail *next;
	for (struct neap_rdma_rail *rail = peer->rails; rail; rail = next) {
		next = rail->next;
		if (rail->stale)
			(void)neap_rdma_rail_end(rail);
	}
}

/* Another process answers there: what was connected with the former one leads nowhere. */
static void leave_former(struct neap_rdma_peer *peer)
{
	for (struct neap_rdma_rail *rail = peer->rails; rail; rail = rail->next) {
		if (rail->user.endpoint)
			neap_rdma_endpoint_retire(rail->user.endpoint, NEAP_CAUSE_OTHER_INSTANCE, "another process answers at the peer's address");
		neap_rdma_rail_resume(rail);
	}
}

void neap_rdma_peer_look(struct neap_rdma_peer *peer)
{
	if (peer->seen_refreshed == peer->segment->refreshed && peer->seen == peer->segment->snapshot) {
		end_stale(peer);
		return;
	}
	const struct neap_descriptor *descriptor = neap_rdma_descriptor(peer);
	bool first = peer->seen == NULL;
	bool other = !first && (peer->is_neap != descriptor->neap.present ||
	                        memcmp(peer->instance, descriptor->neap.instance, sizeof peer->instance) != 0);
	peer->seen = peer->segment->snapshot;
	peer->seen_refreshed = peer->segment->refreshed;
	peer->seen_print = print_of(descriptor);
	peer->is_neap = descriptor->neap.present && !neap_rdma_options_of(peer)->plain_only;
	memcpy(peer->instance, descriptor->neap.instance, sizeof peer->instance);
	peer->here.until = peer->there.until = 0;
	peer->fence = other ? 0 : peer->fence;
	sort_buffers(peer, descriptor);
	renumber(peer, descriptor);
	if (other)
		leave_former(peer);
	end_stale(peer);
}

/* --- both ends of an address */

/* Devices that have the range now. */
static void keep_registered(struct neap_rdma_peer *peer, struct neap_rdma_hot *hot, uint64_t address)
{
	struct neap_path_side side = {.count = 0};
	for (uint32_t i = 0; i < hot->side.count; i++) {
		const struct neap_rdma_queue *queue = peer->initiator->queue_of[hot->side.device[i]];
		struct neap_verbs_keys keys;
		uint64_t end;
		if (!queue || neap_rdma_memory_keys(peer->initiator->ground.memory, hot->memory_id, queue->device,
		                                    (const void *)(uintptr_t)address, &keys, &end))
			continue;
		side.names[side.count] = hot->side.names[i];
		side.device[side.count++] = hot->side.device[i];
		if (i < hot->side.preferred)
			side.preferred = side.count;
	}
	hot->side = side;
}

const struct neap_rdma_hot *neap_rdma_peer_here(struct neap_rdma_peer *peer, uint64_t address)
{
	struct neap_rdma_initiator *initiator = peer->initiator;
	struct neap_rdma_hot *hot = &peer->here;
	struct neap_rdma_local local;
	if (address >= hot->from && address < hot->until && hot->version == initiator->version)
		return hot;
	if (!initiator->ground.find_local(initiator->ground.user, address, &local))
		return NULL;
	hot->version = initiator->version;
	hot->from = local.from;
	hot->to = hot->until = local.to;
	hot->memory_id = local.memory_id;
	neap_path_local(initiator->ground.topology, local.location, -1, &hot->side);
	keep_registered(peer, hot, address);
	return hot;
}

const struct neap_rdma_hot *neap_rdma_peer_there(struct neap_rdma_peer *peer, uint64_t address)
{
	const struct neap_descriptor *descriptor = neap_rdma_descriptor(peer);
	struct neap_rdma_hot *hot = &peer->there;
	char location[NEAP_TOPOLOGY_LOCATION_SIZE];
	if (address >= hot->from && address < hot->until)
		return hot;
	int64_t index = find_buffer(peer, descriptor, address);
	if (index < 0)
		return NULL;
	const struct neap_buffer_desc *buffer = &descriptor->buffers[index];
	bool in_parts = strncmp(buffer->name, SEGMENTS, sizeof SEGMENTS - 1) == 0;
	hot->from = in_parts ? address : buffer->address;
	hot->to = buffer->address + buffer->length;
	hot->until = in_parts ? address + 1 : hot->to;
	hot->buffer = (uint32_t)index;
	neap_location_at(buffer->name, address - buffer->address, buffer->length, location);
	neap_path_remote(descriptor, location, &hot->side);
	return hot;
}

bool neap_rdma_peer_covers(struct neap_rdma_peer *peer, uint64_t address, uint64_t length)
{
	const struct neap_rdma_hot *hot = &peer->there;
	if (peer->seen == peer->segment->snapshot && address >= hot->from && address < hot->until && length <= hot->to - address)
		return true;
	return neap_descriptor_covers(neap_rdma_descriptor(peer), address, length);
}

/* --- the unsure */

static void range_read(struct neap_segment_waiter *waiter, int error, const char *why)
{
	struct neap_rdma_peer *peer = (struct neap_rdma_peer *)(void *)((char *)waiter - offsetof(struct neap_rdma_peer, range));
	(void)error; /* unreachable: what is known stays what is known */
	(void)why;
	peer->range_waiting = peer->keys_doubted = false;
	peer->recheck = true;
	neap_rdma_peer_wake(peer);
}

/* A peer may have registered ranges, or have other keys, since its descriptor was read: it is read again before requests are refused. */
void neap_rdma_peer_ask_for_ranges(struct neap_rdma_peer *peer)
{
	if (peer->range_waiting || peer->recheck || !(peer->unsure.first || peer->keys_doubted))
		return;
	for (struct neap_rdma_request *request = peer->unsure.first; request; request = request->next)
		request->checked = true;
	peer->range_waiting = true;
	int error = neap_segment_want_fresh(peer->segment, &peer->range, neap_now(peer->initiator->reactor), range_read);
	if (error)
		range_read(&peer->range, error, NULL);
}

/* One whose range is known, or will not be. */
static void decide(struct neap_rdma_peer *peer, struct neap_rdma_request *request)
{
	const struct neap_slice *slice = request->slice;
	if (!request->lent && !neap_rdma_peer_covers(peer, slice->address, slice->length)) {
		if (request->checked)
			neap_rdma_request_stop(peer, request, NEAP_FAILED, NEAP_CAUSE_RANGE_NOT_REMOTE, 0);
		return;
	}
	neap_rdma_request_put(peer, request, request->cut == slice->length ? NEAP_RDMA_CUT : NEAP_RDMA_QUEUED);
	neap_rdma_request_rest(peer, request); /* without bytes it is done */
}

void neap_rdma_peer_look_at_unsure(struct neap_rdma_peer *peer)
{
	struct neap_rdma_request *next;
	uint32_t left = NEAP_RDMA_FEED;
	for (struct neap_rdma_request *request = peer->unsure.first; request; request = next) {
		next = request->next;
		if (request->checked ? !peer->recheck : request->looked)
			continue;
		if (left-- == 0) {
			neap_rdma_peer_wake(peer);
			return;
		}
		request->looked = true;
		decide(peer, request);
	}
	peer->recheck = false;
}
