/* Topologies: devices and rows. */
#include "transports/topology/topology.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROWS 8u

struct neap_topology *neap_topology_new(void)
{
	return calloc(1, sizeof(struct neap_topology));
}

void neap_topology_free(struct neap_topology *topology)
{
	if (!topology)
		return;
	free(topology->rows);
	free(topology);
}

void neap_topology_warn(struct neap_topology *topology, const char *format, ...)
{
	if (topology->warning_count == NEAP_TOPOLOGY_WARNINGS_MAX) {
		topology->warnings_left_out++;
		return;
	}
	va_list list;
	va_start(list, format);
	(void)vsnprintf(topology->warnings[topology->warning_count++], NEAP_TOPOLOGY_WARNING_SIZE, format, list);
	va_end(list);
}

/* --- devices */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Two runs of digits: the longer one is larger, once leading zeroes are passed over. */
static int compare_numbers(const char **a_p, const char **b_p)
{
	const char *a = *a_p + strspn(*a_p, "0"), *b = *b_p + strspn(*b_p, "0");
	size_t a_length = strspn(a, "0123456789"), b_length = strspn(b, "0123456789");
	*a_p = a + a_length;
	*b_p = b + b_length;
	if (a_length != b_length)
		return a_length < b_length ? -1 : 1;
	return strncmp(a, b, a_length);
}

int neap_topology_compare(const char *a, const char *b)
{
	const char *whole_a = a, *whole_b = b;
	while (*a && *b) {
		if (is_digit(*a) && is_digit(*b)) {
			int order = compare_numbers(&a, &b);
			if (order)
				return order;
			continue;
		}
		if (*a != *b)
			break;
		a++, b++;
	}
	int order = (unsigned char)*a - (unsigned char)*b;
	return order ? order : strcmp(whole_a, whole_b); /* x01 and x1 are two names */
}

int neap_topology_find(const struct neap_topology *topology, const char *name)
{
	for (uint32_t i = 0; i < topology->device_count; i++)
		if (strcmp(topology->devices[i].name, name) == 0)
			return (int)i;
	return -1;
}

int neap_topology_add_device(struct neap_topology *topology, const char *name)
{
	uint32_t at = topology->device_count;
	if (at == NEAP_DEVICES_MAX)
		return -1;
	while (at > 0 && neap_topology_compare(name, topology->devices[at - 1].name) < 0)
		at--;
	struct neap_topology_device *device = &topology->devices[at];
	memmove(device + 1, device, (topology->device_count - at) * sizeof *device);
	*device = (struct neap_topology_device){.numa_node = -1};
	(void)snprintf(device->name, sizeof device->name, "%s", name);
	topology->device_count++;
	return (int)at;
}

void neap_topology_lose(struct neap_topology *topology, uint32_t device, const char *reason)
{
	topology->devices[device].unusable = reason;
}

void neap_topology_regain(struct neap_topology *topology, uint32_t device)
{
	topology->devices[device].unusable = NULL;
}

/* --- rows */

const struct neap_topology_row *neap_topology_row(const struct neap_topology *topology, const char *location)
{
	for (uint32_t i = 0; i < topology->row_count; i++)
		if (strcmp(topology->rows[i].location, location) == 0)
			return &topology->rows[i];
	return NULL;
}

bool neap_topology_places(const struct neap_topology *topology, uint32_t device)
{
	for (uint32_t i = 0; i < topology->row_count; i++)
		if (memchr(topology->rows[i].order, (int)device, topology->rows[i].count))
			return true;
	return false;
}

static bool grow_rows(struct neap_topology *topology)
{
	uint32_t capacity = topology->row_capacity ? topology->row_capacity * 2 : FIRST_ROWS;
	struct neap_topology_row *rows = realloc(topology->rows, capacity * sizeof *rows);
	if (!rows)
		return false;
	topology->rows = rows;
	topology->row_capacity = capacity;
	return true;
}

struct neap_topology_row *neap_topology_add_row(struct neap_topology *topology, const char *location)
{
	if (topology->row_count == NEAP_TOPOLOGY_ROWS_MAX)
		return NULL;
	if (topology->row_count == topology->row_capacity && !grow_rows(topology))
		return NULL;
	struct neap_topology_row *row = &topology->rows[topology->row_count++];
	*row = (struct neap_topology_row){0};
	(void)snprintf(row->location, sizeof row->location, "%s", location);
	return row;
}
