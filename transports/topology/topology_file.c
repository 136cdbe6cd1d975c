/* Topology files: the matrix as a person wrote it (MC_CUSTOM_TOPO_JSON). Strict, because what is guessed here is paid for with each
 * transfer: a new topology is made beside the old one, and takes its place when all of it was right. */
#include "transports/topology/topology.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ABSENT "named by the topology file, and this machine does not have it"
#define LEFT_OUT "not named by the topology file"

_Static_assert(NEAP_DEVICES_MAX <= 64, "a device is a bit of 64");

struct reading {
	struct neap_json json;
	struct neap_topology *topology; /* the new one */
	uint64_t named;                 /* devices that a row has */
};

/* --- names */

/* The index of the device, which is made when it is not there. New ones go to the end: rows hold indices. */
static bool take_device(struct reading *reading, const char *name, uint32_t *device_p)
{
	struct neap_topology *topology = reading->topology;
	int found = neap_topology_find(topology, name);
	if (found >= 0) {
		*device_p = (uint32_t)found;
		return true;
	}
	if (topology->device_count == NEAP_DEVICES_MAX)
		return neap_json_fail(&reading->json, NEAP_ELIMIT, "is one device more than %u, those of this machine among them",
		                      NEAP_DEVICES_MAX);
	struct neap_topology_device *device = &topology->devices[topology->device_count];
	*device = (struct neap_topology_device){.numa_node = -1, .unusable = ABSENT};
	(void)snprintf(device->name, sizeof device->name, "%s", name);
	*device_p = topology->device_count++;
	return true;
}

static bool take_name(struct reading *reading, char name[NEAP_TOPOLOGY_NAME_SIZE])
{
	struct neap_json *json = &reading->json;
	size_t length;
	if (!neap_json_short_string(json, name, NEAP_TOPOLOGY_NAME_SIZE, &length))
		return false;
	if (length == 0)
		return neap_json_fail(json, NEAP_EJSON, "is empty and must be the name of a device");
	if (length >= NEAP_TOPOLOGY_NAME_SIZE)
		return neap_json_fail(json, NEAP_ELIMIT, "has %zu bytes, and a device's name has at most %u", length, NEAP_TOPOLOGY_NAME_SIZE - 1);
	return true;
}

/* --- rows */

static void warn_twice(struct neap_topology *topology, const char *location, const char *name)
{
	char shown_location[NEAP_TOPOLOGY_LOCATION_SIZE], shown_name[NEAP_TOPOLOGY_NAME_SIZE];
	neap_topology_warn(topology, "%s names %s twice; the first one counts",
	                   neap_json_printable(location, strlen(location), shown_location, sizeof shown_location),
	                   neap_json_printable(name, strlen(name), shown_name, sizeof shown_name));
}

static bool take_devices(struct reading *reading, struct neap_topology_row *row)
{
	struct neap_json *json = &reading->json;
	if (!neap_json_enter_array(json))
		return false;
	while (neap_json_next_item(json)) {
		char name[NEAP_TOPOLOGY_NAME_SIZE];
		uint32_t device = 0;
		if (!take_name(reading, name) || !take_device(reading, name, &device))
			return false;
		if (memchr(row->order, (int)device, row->count)) {
			warn_twice(reading->topology, row->location, name);
			continue;
		}
		row->order[row->count++] = (uint8_t)device;
		reading->named |= UINT64_C(1) << device;
	}
	return !json->error;
}

/* [[preferred...], [available...]] */
static bool take_row(struct reading *reading, struct neap_topology_row *row)
{
	static const char shape[] = "must be two lists of device names, [[preferred], [available]]";
	struct neap_json *json = &reading->json;
	if (neap_json_kind(json) != NEAP_JSON_ARRAY)
		return neap_json_fail(json, NEAP_EJSON, "%s", shape);
	(void)neap_json_enter_array(json);
	for (int list = 0; list < 2; list++) {
		if (!neap_json_next_item(json))
			return neap_json_fail(json, NEAP_EJSON, "%s", shape);
		if (!take_devices(reading, row))
			return false;
		if (list == 0)
			row->preferred = row->count;
	}
	return neap_json_next_item(json) ? neap_json_fail(json, NEAP_EJSON, "is a third list; a location has two, [[preferred], [available]]")
	                                 : !json->error;
}

/* The key of the member as the text that it is: the reader's own copy has no room for escapes. */
static bool take_location(struct reading *reading, char location[NEAP_TOPOLOGY_LOCATION_SIZE])
{
	struct neap_json *json = &reading->json;
	const struct neap_json_frame *frame = &json->frames[json->depth - 1];
	struct neap_json key;
	size_t length = 0;
	neap_json_init(&key, frame->key - 1, (size_t)frame->key_length + 2, NULL, 0);
	if (!neap_json_short_string(&key, location, NEAP_TOPOLOGY_LOCATION_SIZE, &length))
		return neap_json_fail(json, key.error, "cannot be read as a location");
	if (length >= NEAP_TOPOLOGY_LOCATION_SIZE)
		return neap_json_fail(json, NEAP_ELIMIT, "has %zu bytes, and a location has at most %u", length, NEAP_TOPOLOGY_LOCATION_SIZE - 1);
	if (length == 0)
		return neap_json_fail(json, NEAP_EJSON, "a location without a name; such as \"cpu:0\"");
	if (neap_topology_row(reading->topology, location))
		return neap_json_fail(json, NEAP_EJSON, "is there twice; a location has one row");
	return true;
}

static bool take_rows(struct reading *reading)
{
	struct neap_json *json = &reading->json;
	if (!neap_json_enter_object(json))
		return false;
	while (neap_json_next_key(json)) {
		char location[NEAP_TOPOLOGY_LOCATION_SIZE];
		if (!take_location(reading, location))
			return false;
		if (reading->topology->row_count == NEAP_TOPOLOGY_ROWS_MAX)
			return neap_json_fail(json, NEAP_ELIMIT, "more than %u locations", NEAP_TOPOLOGY_ROWS_MAX);
		struct neap_topology_row *row = neap_topology_add_row(reading->topology, location);
		if (!row)
			return neap_json_fail(json, NEAP_ENOMEM, "out of memory");
		if (!take_row(reading, row))
			return false;
	}
	if (!neap_json_finish(json))
		return false;
	if (reading->topology->row_count == 0)
		return neap_json_fail(json, NEAP_EJSON, "has no location; such as {\"cpu:0\": [[\"mlx5_0\"], []]}");
	return true;
}

/* --- what becomes of the devices */

static void weigh_devices(struct reading *reading)
{
	struct neap_topology *topology = reading->topology;
	for (uint32_t i = 0; i < topology->device_count; i++) {
		struct neap_topology_device *device = &topology->devices[i];
		char shown[NEAP_TOPOLOGY_NAME_SIZE];
		neap_json_printable(device->name, strlen(device->name), shown, sizeof shown);
		if (device->unusable && strcmp(device->unusable, ABSENT) == 0)
			neap_topology_warn(topology, "%s is " ABSENT, shown);
		if (!device->unusable && !(reading->named >> i & 1)) {
			device->unusable = LEFT_OUT;
			neap_topology_warn(topology, "%s is " LEFT_OUT ", and is not used", shown);
		}
	}
}

/* A copy without rows. */
static struct neap_topology *begin_anew(const struct neap_topology *topology)
{
	struct neap_topology *anew = neap_topology_new();
	if (!anew)
		return NULL;
	*anew = *topology;
	anew->rows = NULL;
	anew->row_count = anew->row_capacity = 0;
	return anew;
}

int neap_topology_read(struct neap_topology *topology, const char *text, size_t length, char *why, size_t why_size)
{
	struct reading reading = {.topology = begin_anew(topology)};
	neap_json_init(&reading.json, text, length, why, why_size);
	if (!reading.topology) {
		(void)neap_json_fail(&reading.json, NEAP_ENOMEM, "out of memory");
	} else if (take_rows(&reading)) {
		weigh_devices(&reading);
		struct neap_topology_row *old = topology->rows;
		*topology = *reading.topology;
		reading.topology->rows = old; /* goes with it */
	}
	neap_topology_free(reading.topology);
	return reading.json.error;
}

/* --- files */

/* All of the file, heap; NULL with errno, EFBIG when it is too long. */
static char *read_whole(const char *path, size_t *length_p)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	size_t size = NEAP_TOPOLOGY_FILE_MAX + 1, at = 0;
	ssize_t got = -1;
	char *text = fd >= 0 ? malloc(size) : NULL;
	while (text && at < size && (got = read(fd, text + at, size - at)) > 0)
		at += (size_t)got;
	int error = at == size ? EFBIG : errno;
	if (fd >= 0)
		(void)close(fd);
	if (text && (got < 0 || at == size)) {
		free(text);
		text = NULL;
	}
	errno = error;
	*length_p = at;
	return text;
}

int neap_topology_read_file(struct neap_topology *topology, const char *path, char *why, size_t why_size)
{
	size_t length;
	char *text = read_whole(path, &length), place[256];
	if (!text) {
		int error = errno;
		if (error == EFBIG)
			(void)snprintf(why, why_size, "topology file %.128s: is longer than %u bytes", path, NEAP_TOPOLOGY_FILE_MAX);
		else
			(void)snprintf(why, why_size, "topology file %.128s: cannot be read: %s", path,
			               strerrordesc_np(error) ? strerrordesc_np(error) : "unknown error");
		return error == EFBIG ? NEAP_ELIMIT : error == ENOMEM ? NEAP_ENOMEM : NEAP_EINVAL;
	}
	int error = neap_topology_read(topology, text, length, place, sizeof place);
	free(text);
	if (error)
		(void)snprintf(why, why_size, "topology file %.128s: %s", path, place);
	return error;
}
