/* What others are told of our devices. Mooncake's readers number devices as they meet them in the matrix, and take that number as an
 * index of devices[] and of each buffer's keys (te spec 2.4, rdma-observed 6). So all three are made from one list, and a device that
 * is gone is gone from all of them. */
#include "transports/topology/topology.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct publishing {
	const struct neap_topology *topology;
	struct neap_descriptor *descriptor;
	int16_t device_of[NEAP_DEVICES_MAX]; /* of each device of the topology: its index in the descriptor as it was; -1: not told */
	uint32_t row_count;                  /* that are told */
	uint32_t rows[NEAP_TOPOLOGY_ROWS_MAX];
	uint32_t order_count;                /* devices as readers will number them, as indices of the descriptor as it was */
	uint32_t order[NEAP_DEVICES_MAX];
	struct neap_priority_row *priority;
};

NEAP_PRINTF(4, 5) static int refuse(int error, char *why, size_t why_size, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	(void)vsnprintf(why, why_size, format, list);
	va_end(list);
	return error;
}

/* --- who is told */

static int check_keys(const struct neap_descriptor *descriptor, char *why, size_t why_size)
{
	if (descriptor->device_count > NEAP_DEVICES_MAX)
		return refuse(NEAP_EINVAL, why, why_size, "%u devices, at most %u are allowed", descriptor->device_count, NEAP_DEVICES_MAX);
	for (uint32_t i = 0; i < descriptor->buffer_count; i++) {
		uint32_t count = descriptor->buffers[i].key_count;
		if (count && count != descriptor->device_count)
			return refuse(NEAP_EINVAL, why, why_size, "buffers[%u] has %u keys for %u devices", i, count, descriptor->device_count);
	}
	return NEAP_OK;
}

static int choose_devices(struct publishing *publishing, char *why, size_t why_size)
{
	const struct neap_topology *topology = publishing->topology;
	for (uint32_t i = 0; i < NEAP_DEVICES_MAX; i++)
		publishing->device_of[i] = -1;
	for (uint32_t i = 0; i < publishing->descriptor->device_count; i++) {
		int known = neap_topology_find(topology, publishing->descriptor->devices[i].name);
		if (known < 0 || topology->devices[known].unusable)
			continue;
		if (publishing->device_of[known] >= 0)
			return refuse(NEAP_EINVAL, why, why_size, "devices[%u] is %s, which is there already", i, topology->devices[known].name);
		publishing->device_of[known] = (int16_t)i;
	}
	return NEAP_OK;
}

static bool has_told_device(const struct publishing *publishing, const struct neap_topology_row *row)
{
	for (uint32_t i = 0; i < row->count; i++)
		if (publishing->device_of[row->order[i]] >= 0)
			return true;
	return false;
}

/* Sorted as readers insert them: JSON objects come to them by key. */
static void choose_rows(struct publishing *publishing)
{
	const struct neap_topology *topology = publishing->topology;
	for (uint32_t i = 0; i < topology->row_count; i++) {
		const struct neap_topology_row *row = &topology->rows[i];
		if (strcmp(row->location, NEAP_ANY_LOCATION) == 0 || !has_told_device(publishing, row))
			continue;
		uint32_t at = publishing->row_count++;
		for (; at > 0 && strcmp(row->location, topology->rows[publishing->rows[at - 1]].location) < 0; at--)
			publishing->rows[at] = publishing->rows[at - 1];
		publishing->rows[at] = i;
	}
}

/* --- their order */

static void number_devices(struct publishing *publishing)
{
	const struct neap_topology *topology = publishing->topology;
	const char *keys[NEAP_TOPOLOGY_ROWS_MAX];
	uint32_t walk[NEAP_TOPOLOGY_ROWS_MAX];
	uint64_t numbered = 0;
	for (uint32_t i = 0; i < publishing->row_count; i++)
		keys[i] = topology->rows[publishing->rows[i]].location;
	neap_unordered_walk(keys, publishing->row_count, walk);
	for (uint32_t i = 0; i < publishing->row_count; i++) {
		const struct neap_topology_row *row = &topology->rows[publishing->rows[walk[i]]];
		for (uint32_t k = 0; k < row->count; k++) {
			uint32_t device = row->order[k];
			if (publishing->device_of[device] < 0 || numbered >> device & 1)
				continue;
			numbered |= UINT64_C(1) << device;
			publishing->order[publishing->order_count++] = (uint32_t)publishing->device_of[device];
		}
	}
}

/* --- the matrix */

static bool copy_names(const struct publishing *publishing, const uint8_t *order, uint32_t count, char ***names_p, uint32_t *count_p)
{
	*names_p = calloc(count ? count : 1, sizeof **names_p);
	if (!*names_p)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		if (publishing->device_of[order[i]] < 0)
			continue;
		char *name = strdup(publishing->topology->devices[order[i]].name);
		if (!name)
			return false;
		(*names_p)[(*count_p)++] = name;
	}
	return true;
}

static bool make_row(const struct publishing *publishing, const struct neap_topology_row *row, struct neap_priority_row *made)
{
	made->location = strdup(row->location);
	return made->location && copy_names(publishing, row->order, row->preferred, &made->preferred, &made->preferred_count) &&
	       copy_names(publishing, row->order + row->preferred, row->count - row->preferred, &made->available, &made->available_count);
}

static void free_rows(struct neap_priority_row *rows, uint32_t count)
{
	for (uint32_t i = 0; rows && i < count; i++) {
		for (uint32_t k = 0; k < rows[i].preferred_count; k++)
			free(rows[i].preferred[k]);
		for (uint32_t k = 0; k < rows[i].available_count; k++)
			free(rows[i].available[k]);
		free(rows[i].preferred);
		free(rows[i].available);
		free(rows[i].location);
	}
	free(rows);
}

static bool make_matrix(struct publishing *publishing)
{
	if (publishing->row_count == 0)
		return true;
	publishing->priority = calloc(publishing->row_count, sizeof *publishing->priority);
	bool ok = publishing->priority != NULL;
	for (uint32_t i = 0; ok && i < publishing->row_count; i++)
		ok = make_row(publishing, &publishing->topology->rows[publishing->rows[i]], &publishing->priority[i]);
	if (!ok)
		free_rows(publishing->priority, publishing->row_count);
	return ok;
}

/* --- what cannot fail any more */

static void order_keys(const struct publishing *publishing, uint32_t *keys, uint32_t count)
{
	uint32_t before[NEAP_DEVICES_MAX];
	if (!count)
		return;
	memcpy(before, keys, count * sizeof *keys);
	for (uint32_t i = 0; i < publishing->order_count; i++)
		keys[i] = before[publishing->order[i]];
}

static void order_devices(const struct publishing *publishing)
{
	struct neap_descriptor *descriptor = publishing->descriptor;
	struct neap_device_desc before[NEAP_DEVICES_MAX];
	if (!descriptor->device_count)
		return;
	memcpy(before, descriptor->devices, descriptor->device_count * sizeof *before);
	for (uint32_t i = 0; i < publishing->order_count; i++) {
		struct neap_device_desc *device = &before[publishing->order[i]];
		descriptor->devices[i] = *device;
		device->name = NULL; /* stays */
	}
	for (uint32_t i = 0; i < descriptor->device_count; i++)
		free(before[i].name);
	descriptor->device_count = publishing->order_count;
}

static void put_into_descriptor(struct publishing *publishing)
{
	struct neap_descriptor *descriptor = publishing->descriptor;
	for (uint32_t i = 0; i < descriptor->buffer_count; i++) {
		struct neap_buffer_desc *buffer = &descriptor->buffers[i];
		order_keys(publishing, buffer->rkeys, buffer->key_count);
		order_keys(publishing, buffer->lkeys, buffer->key_count);
		buffer->key_count = buffer->key_count ? publishing->order_count : 0;
	}
	order_devices(publishing);
	free_rows(descriptor->priority, descriptor->priority_count);
	descriptor->priority = publishing->priority;
	descriptor->priority_count = publishing->row_count;
}

int neap_topology_publish(const struct neap_topology *topology, struct neap_descriptor *descriptor, char *why, size_t why_size)
{
	struct publishing publishing = {.topology = topology, .descriptor = descriptor};
	int error = check_keys(descriptor, why, why_size);
	if (!error)
		error = choose_devices(&publishing, why, why_size);
	if (error)
		return error;
	choose_rows(&publishing);
	number_devices(&publishing);
	if (!make_matrix(&publishing))
		return refuse(NEAP_ENOMEM, why, why_size, "out of memory (priority_matrix of %u locations)", publishing.row_count);
	put_into_descriptor(&publishing);
	return NEAP_OK;
}

void neap_topology_unpublish(struct neap_descriptor *descriptor)
{
	for (uint32_t i = 0; i < descriptor->device_count; i++)
		free(descriptor->devices[i].name);
	free_rows(descriptor->priority, descriptor->priority_count);
	descriptor->device_count = descriptor->priority_count = 0;
	descriptor->priority = NULL;
}
