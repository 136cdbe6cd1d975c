/* What peers read of an engine with devices: protocol rdma, its devices, and OPEN memory with a key for each of them.
 *
 * A device is told only when all OPEN memory that is told is on it: Mooncake's readers take any device for any buffer. One that went
 * without a range when it came back is therefore not told until it has it. Memory that no device has is not told at all, because a buffer
 * without keys would make Mooncake's readers look for a key where there is none. When no device is left, the document is that of TCP. */
#include "transports/rdma/rdma_inside.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 11u      /* ten digits and a comma */
#define KEYS_BYTES 24u     /* of {"lkey":[],"rkey":[]} */
#define LOCATION_BYTES 31u
#define DEVICE_BYTES 160u  /* of {"gid":"..","lid":65535,"name":".."} */
#define ROW_BYTES 48u

/* The devices that are told, and how many pieces there are. */
struct telling {
	const struct neap_rdma *rdma;
	const struct neap_rdma_device *devices[NEAP_DEVICES_MAX];
	uint32_t device_count, piece_count;
};

void neap_rdma_publish_bytes(const struct neap_rdma *rdma, uint64_t *fixed_p, uint64_t *each_p, uint64_t *piece_bytes_p)
{
	uint64_t row = ROW_BYTES + (uint64_t)rdma->device_count * (NEAP_TOPOLOGY_NAME_SIZE + 3u);
	*fixed_p += rdma->device_count * (uint64_t)DEVICE_BYTES + rdma->topology->row_count * row + strlen(rdma->server_name);
	*each_p += LOCATION_BYTES + KEYS_BYTES + 2u * (uint64_t)rdma->device_count * KEY_BYTES;
	*piece_bytes_p = rdma->options->region_max_bytes;
}

/* --- which devices */

static bool has_all(const struct neap_rdma *rdma, const struct neap_rdma_device *device, uint64_t memory, uint64_t address,
                    uint64_t length)
{
	struct neap_verbs_keys keys;
	for (uint64_t at = address, end; at < address + length; at = end)
		if (neap_rdma_memory_keys(rdma->memory, memory, device, (void *)(uintptr_t)at, &keys, &end))
			return false;
	return true;
}

static uint32_t count_pieces(const struct neap_rdma *rdma, const struct neap_rdma_device *device, uint64_t memory, uint64_t address,
                             uint64_t length)
{
	struct neap_verbs_keys keys;
	uint32_t count = 0;
	for (uint64_t at = address, end; at < address + length; at = end, count++)
		if (neap_rdma_memory_keys(rdma->memory, memory, device, (void *)(uintptr_t)at, &keys, &end))
			break;
	return count;
}

/* Takes those out that do not have this region. */
static void keep_those_with(struct telling *telling, uint64_t memory, uint64_t address, uint64_t length)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < telling->device_count; i++)
		if (has_all(telling->rdma, telling->devices[i], memory, address, length))
			telling->devices[kept++] = telling->devices[i];
	telling->device_count = kept;
	if (kept)
		telling->piece_count += count_pieces(telling->rdma, telling->devices[0], memory, address, length);
}

static void choose(struct telling *telling, const struct neap_rdma *rdma, bool buffers)
{
	struct neap_registry_cursor cursor = {0};
	uint64_t address, length;
	*telling = (struct telling){.rdma = rdma};
	for (uint32_t i = 0; i < rdma->device_count; i++) {
		const struct neap_rdma_device *device = neap_rdma_devices_at(rdma->devices, i);
		if (device->usable)
			telling->devices[telling->device_count++] = device;
	}
	while (buffers && telling->device_count && neap_registry_next_open(rdma->view->registry, &cursor, &address, &length)) {
		const struct neap_rdma_kept *kept = &rdma->kept[cursor.slot];
		if (kept->on_devices)
			keep_those_with(telling, kept->memory, address, length);
	}
}

/* --- what is put in */

static int put_devices(struct neap_rdma *rdma, const struct telling *telling, struct neap_descriptor *descriptor)
{
	descriptor->devices = rdma->publishing.devices;
	for (uint32_t i = 0; i < telling->device_count; i++) {
		const struct neap_rdma_device *device = telling->devices[i];
		struct neap_device_desc *told = &descriptor->devices[i];
		*told = (struct neap_device_desc){.name = strdup(device->name), .lid = (uint16_t)device->view.port.lid};
		memcpy(told->gid, device->view.gid.gid, sizeof told->gid);
		if (!told->name)
			return NEAP_ENOMEM;
		descriptor->device_count++;
	}
	return NEAP_OK;
}

/* One piece: its keys on all devices. Returns where it ends. */
static uint64_t put_piece(struct neap_rdma *rdma, const struct telling *telling, struct neap_buffer_desc *buffer, uint64_t memory,
                          uint64_t address, uint64_t region_end)
{
	uint64_t end = region_end;
	for (uint32_t i = 0; i < telling->device_count; i++) {
		struct neap_verbs_keys keys = {0};
		(void)neap_rdma_memory_keys(rdma->memory, memory, telling->devices[i], (void *)(uintptr_t)address, &keys, &end);
		buffer->rkeys[i] = keys.rkey;
		buffer->lkeys[i] = keys.lkey;
	}
	buffer->address = address;
	buffer->length = end - address;
	buffer->key_count = telling->device_count;
	return end;
}

static int make_room(struct neap_rdma *rdma, const struct telling *telling)
{
	struct neap_rdma_publishing *publishing = &rdma->publishing;
	uint32_t keys = 2 * telling->piece_count * telling->device_count;
	publishing->buffers = neap_allocate(rdma->reactor, telling->piece_count * sizeof *publishing->buffers);
	publishing->buffers_max = telling->piece_count;
	publishing->keys = neap_allocate(rdma->reactor, keys * sizeof *publishing->keys);
	publishing->keys_max = keys;
	return publishing->buffers && publishing->keys ? NEAP_OK : NEAP_ENOMEM;
}

static int put_buffers(struct neap_rdma *rdma, const struct telling *telling, struct neap_descriptor *descriptor)
{
	struct neap_registry_cursor cursor = {0};
	uint64_t address, length;
	if (telling->piece_count == 0)
		return NEAP_OK;
	int error = make_room(rdma, telling);
	if (error)
		return error;
	uint32_t *keys = rdma->publishing.keys;
	descriptor->buffers = rdma->publishing.buffers;
	while (neap_registry_next_open(rdma->view->registry, &cursor, &address, &length)) {
		const struct neap_rdma_kept *kept = &rdma->kept[cursor.slot];
		for (uint64_t at = address; kept->on_devices && at < address + length;) {
			struct neap_buffer_desc *buffer = &descriptor->buffers[descriptor->buffer_count++];
			buffer->name = (char *)(uintptr_t)cursor.location;
			buffer->rkeys = keys;
			buffer->lkeys = keys + telling->device_count;
			keys += 2 * (size_t)telling->device_count;
			at = put_piece(rdma, telling, buffer, kept->memory, at, address + length);
		}
	}
	return NEAP_OK;
}

int neap_rdma_publish(struct neap_rdma *rdma, struct neap_descriptor *descriptor, bool buffers, char *why, size_t why_size)
{
	struct telling telling;
	if (rdma->plain || !rdma->memory || rdma->ending)
		return NEAP_ENODEV;
	choose(&telling, rdma, buffers);
	if (telling.device_count == 0)
		return NEAP_ENODEV;
	int error = put_devices(rdma, &telling, descriptor);
	if (!error && buffers)
		error = put_buffers(rdma, &telling, descriptor);
	if (!error)
		error = neap_topology_publish(rdma->topology, descriptor, why, why_size);
	if (!error && descriptor->device_count == 0) {
		neap_rdma_unpublish(rdma, descriptor); /* in no row of the topology */
		return NEAP_ENODEV;
	}
	descriptor->protocol = NEAP_PROTOCOL_RDMA;
	descriptor->rdma_server_name = rdma->server_name[0] ? rdma->server_name : NULL;
	if (error && !why[0])
		(void)snprintf(why, why_size, "%s", neap_error_text(error));
	return error;
}

void neap_rdma_unpublish(struct neap_rdma *rdma, struct neap_descriptor *descriptor)
{
	struct neap_rdma_publishing *publishing = &rdma->publishing;
	neap_topology_unpublish(descriptor);
	if (publishing->buffers)
		neap_release(rdma->reactor, publishing->buffers, publishing->buffers_max * sizeof *publishing->buffers);
	if (publishing->keys)
		neap_release(rdma->reactor, publishing->keys, publishing->keys_max * sizeof *publishing->keys);
	publishing->buffers = NULL;
	publishing->keys = NULL;
	descriptor->devices = NULL;
	descriptor->buffers = NULL;
	descriptor->buffer_count = 0;
}
