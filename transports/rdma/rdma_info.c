/* What users are told of the devices, and of what goes over them. */
#include "transports/rdma/rdma_inside.h"

int neap_rdma_device_info(const struct neap_transport *transport, uint32_t index, struct neap_device_info *info_p)
{
	const struct neap_rdma *rdma = (const struct neap_rdma *)(const void *)transport;
	if (!rdma->devices || index >= rdma->device_count)
		return NEAP_ENODEV;
	const struct neap_rdma_device *device = neap_rdma_devices_at(rdma->devices, index);
	*info_p = (struct neap_device_info){.name = device->name, .why = device->why, .usable = device->usable};
	if (device->usable) {
		info_p->port = device->view.port_number;
		neap_gid_format(device->view.gid.gid, info_p->address);
	}
	if (rdma->initiator)
		neap_rdma_initiator_device(rdma->initiator, device->index, &info_p->bytes_moved, &info_p->bytes_under_way);
	return NEAP_OK;
}

void neap_rdma_fill_stats(const struct neap_transport *transport, struct neap_rdma_stats *stats_p)
{
	const struct neap_rdma *rdma = (const struct neap_rdma *)(const void *)transport;
	struct neap_rdma_initiator_stats initiator = {0};
	if (rdma->initiator)
		neap_rdma_initiator_stats(rdma->initiator, &initiator);
	*stats_p = (struct neap_rdma_stats){
		.sends = initiator.pieces_posted,
		.repeats = initiator.pieces_repeated,
		.rails_paused = initiator.rails_paused,
		.probes = initiator.probes,
		.endpoints = rdma->endpoints ? neap_rdma_endpoints_count(rdma->endpoints) : 0,
		.rails = initiator.rails,
		.rails_open = initiator.rails_open,
	};
}

void neap_rdma_transport_retire_endpoints(struct neap_transport *transport)
{
	struct neap_rdma *rdma = (struct neap_rdma *)(void *)transport;
	if (rdma->endpoints)
		neap_rdma_endpoints_retire(rdma->endpoints, "asked to");
}
