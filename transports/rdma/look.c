#include "transports/rdma/look.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Below these a transport cannot work at all; devices of the last fifteen years have thousands. */
#define CQE_MIN 256u
#define WR_MIN 16u

/* --- opening */

static int explain_open(const char *name, int error, char *why, size_t why_size)
{
	if (error == -ENODEV) {
		snprintf(why, why_size, "%s: libibverbs does not know it: install its driver (Debian: ibverbs-providers) or load ib_uverbs", name);
		return NEAP_ENODEV;
	}
	if (error == -EACCES || error == -EPERM)
		snprintf(why, why_size, "%s: no permission: let this user read and write /dev/infiniband/uverbs* (group rdma, or --device)", name);
	else if (error == -ENOENT)
		snprintf(why, why_size, "%s: its file is not in /dev/infiniband: hand it to the container (--device), or load ib_uverbs", name);
	else
		snprintf(why, why_size, "%s: cannot be opened: %s", name, strerror(-error));
	return NEAP_ECONTEXT;
}

/* What it lacks; NULL: nothing. */
static const char *lacks(const struct neap_verbs_device_limits *limits)
{
	if (limits->cqe_max < CQE_MIN)
		return "completion queues of 256 entries";
	if (limits->wr_max < WR_MIN)
		return "queues of 16 work requests";
	if (limits->read_initiator_max == 0 || limits->read_target_max == 0)
		return "RDMA READ";
	if (limits->mr_size_max == 0 || limits->mr_max == 0)
		return "registration of memory";
	return NULL;
}

static int no_more(const char *name, const char *what, int error, char *why, size_t why_size)
{
	snprintf(why, why_size, "%s: no %s to be had: %s (rdma resource show; ulimit -l)", name, what, strerror(-error));
	return NEAP_ECONTEXT;
}

static int make_queue(const struct neap_verbs *verbs, const char *name, uint32_t wanted, struct neap_rdma_handle *handle, char *why,
                      size_t why_size)
{
	uint32_t entries = wanted ? wanted : NEAP_RDMA_CQ_ENTRIES;
	handle->cq_entries = entries < handle->limits.cqe_max ? entries : handle->limits.cqe_max;
	int error = verbs->ops->create_channel(handle->context, &handle->channel);
	if (error)
		return no_more(name, "completion channel", error, why, why_size);
	error = verbs->ops->create_cq(handle->context, handle->cq_entries, handle->channel, &handle->cq);
	return error ? no_more(name, "completion queue", error, why, why_size) : NEAP_OK;
}

static int measure(const struct neap_verbs *verbs, const char *name, struct neap_rdma_handle *handle, char *why, size_t why_size)
{
	int error = verbs->ops->query_device(handle->context, &handle->limits);
	if (error) {
		snprintf(why, why_size, "%s: does not tell its limits: %s", name, strerror(-error));
		return NEAP_ECONTEXT;
	}
	const char *missing = lacks(&handle->limits);
	if (missing) {
		snprintf(why, why_size, "%s: too old or too small a device: it has not %s; use another one (MC_TE_FILTERS)", name, missing);
		return NEAP_ECONTEXT;
	}
	error = verbs->ops->allocate_pd(handle->context, &handle->pd);
	return error ? no_more(name, "protection domain", error, why, why_size) : NEAP_OK;
}

int neap_rdma_open(const struct neap_verbs *verbs, const char *name, uint32_t cq_entries, struct neap_rdma_handle *handle, char *why,
                   size_t why_size)
{
	*handle = (struct neap_rdma_handle){0};
	int error = verbs->ops->open(verbs->user, name, &handle->context);
	if (error)
		return explain_open(name, error, why, why_size);
	error = measure(verbs, name, handle, why, why_size);
	if (!error)
		error = make_queue(verbs, name, cq_entries, handle, why, why_size);
	if (error)
		(void)neap_rdma_shut(verbs, handle);
	return error;
}

int neap_rdma_shut(const struct neap_verbs *verbs, struct neap_rdma_handle *handle)
{
	int error = handle->cq ? verbs->ops->destroy_cq(handle->cq) : 0;
	if (!error && handle->channel)
		error = verbs->ops->destroy_channel(handle->channel);
	if (!error && handle->pd)
		error = verbs->ops->free_pd(handle->pd);
	if (!error && handle->context)
		error = verbs->ops->close(handle->context);
	*handle = (struct neap_rdma_handle){0};
	return error ? NEAP_EBUSY : NEAP_OK;
}

/* --- port and address */

/* The ports in the form in which they are chosen from. */
static int read_ports(const struct neap_verbs *verbs, const struct neap_rdma_handle *handle, struct neap_topology_device *device)
{
	uint32_t count = handle->limits.port_count;
	device->port_count = count < NEAP_TOPOLOGY_PORTS_MAX ? count : NEAP_TOPOLOGY_PORTS_MAX;
	for (uint32_t i = 0; i < device->port_count; i++) {
		struct neap_verbs_port port;
		int error = verbs->ops->query_port(handle->context, i + 1, &port);
		if (error)
			return error;
		device->ports[i] = (struct neap_topology_port){.number = i + 1, .status = port.status, .ethernet = port.ethernet};
	}
	return 0;
}

static int unanswered(const char *name, int error, char *why, size_t why_size)
{
	snprintf(why, why_size, "%s: does not answer: %s", name, strerror(-error));
	return NEAP_ECONTEXT;
}

static bool was_refused(const struct neap_rdma_wants *wants, const struct neap_gid_entry *entry)
{
	for (uint32_t i = 0; i < wants->refused_count; i++)
		if (memcmp(wants->refused[i], entry->gid, sizeof entry->gid) == 0)
			return true;
	return false;
}

/* Without those that were refused, if that leaves one. */
static int choose_gid(const char *name, const struct neap_rdma_wants *wants, struct neap_rdma_view *view,
                      const struct neap_gid_entry *entries, uint32_t count, char *why, size_t why_size)
{
	struct neap_gid_entry others[NEAP_GIDS_MAX];
	uint32_t left = 0, position = 0;
	for (uint32_t i = 0; i < count && !wants->gid_fixed; i++)
		if (!was_refused(wants, &entries[i]))
			others[left++] = entries[i];
	if (left > 0 && left < count && !neap_gids_choose(name, view->port_number, others, left, -1, &position, why, why_size)) {
		view->gid = others[position];
		return NEAP_OK;
	}
	int32_t wanted = wants->gid_fixed ? (int32_t)wants->gid_index : -1;
	if (neap_gids_choose(name, view->port_number, entries, count, wanted, &position, why, why_size))
		return NEAP_ENODEV;
	view->gid = entries[position];
	return NEAP_OK;
}

static int look_at_gids(const struct neap_verbs *verbs, const struct neap_rdma_handle *handle, const char *name,
                        const struct neap_rdma_wants *wants, struct neap_rdma_view *view, char *why, size_t why_size)
{
	struct neap_gid_entry entries[NEAP_GIDS_MAX];
	uint32_t count = 0;
	int error = verbs->ops->query_gids(handle->context, view->port_number, entries, &count);
	if (error)
		return unanswered(name, error, why, why_size);
	return choose_gid(name, wants, view, entries, count, why, why_size);
}

int neap_rdma_look(const struct neap_verbs *verbs, const struct neap_rdma_handle *handle, const char *name,
                   const struct neap_rdma_wants *wants, struct neap_rdma_view *view, char *why, size_t why_size)
{
	struct neap_topology_device device = {0};
	*view = (struct neap_rdma_view){0};
	snprintf(device.name, sizeof device.name, "%s", name);
	int error = read_ports(verbs, handle, &device);
	if (error)
		return unanswered(name, error, why, why_size);
	if (neap_port_choose(&device, wants->port, &view->port_number, why, why_size))
		return NEAP_ENODEV;
	error = verbs->ops->query_port(handle->context, view->port_number, &view->port);
	if (error)
		return unanswered(name, error, why, why_size);
	return look_at_gids(verbs, handle, name, wants, view, why, why_size);
}
